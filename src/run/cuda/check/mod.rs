//! Self-check of this program on this GPU: short runs with known results, for correctness and speed. Runs
//! once per binary, GPU, driver and set of libraries; every record contains the cached outcome.
//!
//! `runs` has the checks of one process; this file also has the all-reduces with known results: small rank-dependent
//! integers, exact in every format, with the latency of a decode step's message and the bandwidth of a large one.

mod runs;

pub use runs::check;

use std::sync::Arc;
use std::time::Duration;

use half::bf16;
use serde::{Deserialize, Serialize};

use super::blas;
use super::kernels::Nvrtc;
use crate::comm::nccl::{Nccl, NcclCommunicator};
use crate::comm::{Exchange, Peers, nccl};
use crate::cuda::ranks::on_threads;
use crate::cuda::timing::clock::collective_us;
use base::cache::FileCache;
use base::checksum::sha256;
use base::error::{Error, Result};
use base::words::words;
use machine::driver::{Gpu, Memory, Priority, Stream};
use machine::environment::binary_hash;
use plan::DType;
use table::shared_gpu;

/// Environment variable; 0 disables the automatic check.
const VARIABLE: &str = "LADDERSCOPE_CHECK";

/// Name and description of each check, in order.
pub const CHECKS: [(&str, &str); 8] = [
    ("products", "matrix products agree with cuBLASLt on model shapes"),
    ("graph", "a CUDA graph with early kernel starts gives the same bits as eager execution"),
    ("early starts", "the captured graph contains early-start edges, and they save time"),
    ("bandwidth", "a decode step reaches 50 to 100 % of the GPU's memory bandwidth"),
    ("overlap", "a 500 us collective fully overlaps with a chain of matrix products"),
    ("link", "an emulated all-reduce takes its link's latency plus message size / bandwidth"),
    ("stamps", "the GPU clock resolves kernel times; cost of a timestamp and an event"),
    ("nccl", "NCCL sums of small integers are exact, eager and in a graph"),
];

words! {
    /// Outcome of a check.
    #[schemars(rename = "Found")]
    CheckOutcome, "finding" {
        /// The check passed.
        Passed = "passed",
        /// Something is unusual, but results are valid.
        Warned = "warned",
        /// Results are not valid.
        Failed = "failed",
        /// The check could not run on this machine.
        NotDone = "not done",
    }
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "Checked")]
pub struct CheckResult {
    /// Name of the check in [`CHECKS`].
    pub name: String,
    /// Outcome: passed, warned, failed or not done.
    pub found: CheckOutcome,
    /// Explanation with the measured numbers.
    pub said: String,
}

/// True if checks ran and none failed.
pub fn passed(all: &[CheckResult]) -> bool {
    !all.is_empty() && all.iter().all(|check| check.found != CheckOutcome::Failed)
}

/// Cache key of a GPU's outcome: everything it depends on.
fn key(gpu: &Gpu) -> String {
    let info = gpu.info();
    let libraries = (Nvrtc::get().map(Nvrtc::version).ok(), blas::version().ok(), nccl::probe().version);
    let all = serde_json::json!([
        binary_hash(),
        info.name,
        info.uuid,
        info.driver_api,
        format!("{libraries:?}"),
        shared_gpu::is_on(),
    ]);
    format!("{}.json", sha256(all.to_string()))
}

/// Cached results for this GPU and binary.
pub fn known(gpu: &Gpu) -> Option<Vec<CheckResult>> {
    serde_json::from_slice(&FileCache::of_user("checks")?.load(&key(gpu))?).ok()
}

pub fn keep(gpu: &Gpu, all: &[CheckResult]) {
    if let (Some(cache), Ok(bytes)) = (FileCache::of_user("checks"), serde_json::to_vec(all)) {
        cache.store(&key(gpu), &bytes);
    }
}

/// Returns the cached results, or runs the checks if there are none. Returns `None` if automatic checks are
/// disabled. `say` receives progress messages.
pub(super) fn before_a_run(gpu: &Gpu, say: &mut dyn FnMut(&str)) -> Option<Vec<CheckResult>> {
    if let Some(known) = known(gpu) {
        return Some(known);
    }
    // with a shared GPU, another rank's kernel may already wait for this rank and block the check from
    // freeing memory
    if shared_gpu::is_on() || std::env::var(VARIABLE).is_ok_and(|value| value.trim() == "0") {
        return None;
    }
    let all = check(gpu, say);
    keep(gpu, &all);
    Some(all)
}

/// Warning for results on a GPU that has not passed; `None` if it has.
pub(super) fn warning(known: Option<&[CheckResult]>) -> Option<String> {
    let all = known.unwrap_or_default();
    if passed(all) {
        return None;
    }
    let failed = all.iter().filter(|check| check.found == CheckOutcome::Failed);
    let failed: Vec<String> = failed.map(|check| format!("{}: {}", check.name, check.said)).collect();
    Some(match failed.as_slice() {
        [] => "unverified: no self-check on this GPU yet; run `ladderscope doctor --check`".into(),
        failed => format!(
            "unverified: this program's check of itself on this GPU failed ({})",
            failed.join("; ")
        ),
    })
}

/// Converts an outcome to a result; a check that ends in an error has failed.
fn concluded(name: &str, outcome: Result<(CheckOutcome, String)>) -> CheckResult {
    let (found, said) = outcome.unwrap_or_else(|error: Error| (CheckOutcome::Failed, error.to_string()));
    CheckResult { name: name.into(), found, said }
}

/// Message size of a decode step of a 70B model, and one for bandwidth (bytes).
const SMALL: u64 = 16 << 10;
const LARGE: u64 = 64 << 20;

/// Timeout of a rank waiting for its peers.
const PEER_TIMEOUT: Duration = Duration::from_secs(60);

/// Checked message sizes (bytes).
const SIZES: [u64; 4] = [256, SMALL, 256 << 10, 2 << 20];

/// Numbers of ranks that share one GPU.
const SHARING: [usize; 2] = [2, 4];

/// Input of rank `rank` at index `at`. The sum over 64 ranks is still exact in bf16.
fn given(rank: usize, at: usize) -> f32 {
    ((rank + at) % 4) as f32
}

/// Checks eager and captured sums over this many GPUs, with latency and bandwidth.
fn on_own_gpus(gpus: usize) -> Result<(CheckOutcome, String)> {
    let [latency_us, gb_s] = over(gpus, |gpu, communicator, peers| {
        sums(gpu, communicator, peers)?;
        times(gpu, communicator, peers)
    })?;
    let checked = checked(&format!("{gpus} GPUs"));
    let said = format!("{checked}; 16 KB take {latency_us:.1} us, 64 MB go at {gb_s:.0} GB/s");
    Ok((CheckOutcome::Passed, said))
}

/// Checks sums over ranks that share one GPU; their latency is meaningless.
fn on_one_gpu() -> Result<(CheckOutcome, String)> {
    for ranks in SHARING {
        over(ranks, sums)
            .map_err(|error| Error::failed(format!("{ranks} ranks on one GPU: {error}")))?;
    }
    let [few, many] = SHARING;
    let version = Nccl::load()?.version();
    let checked = checked(&format!("{few} and over {many} ranks on one GPU"));
    Ok((CheckOutcome::Passed, format!("{checked} (NCCL {version})")))
}

fn checked(ranks: &str) -> String {
    format!(
        "exact over {ranks}, bf16 and f32, {} bytes to {} MB, eager and captured",
        SIZES[0],
        SIZES[3] >> 20
    )
}

/// Runs one thread per rank and returns the first rank's result.
fn over<R: Send>(
    ranks: usize,
    part: impl Fn(&Gpu, &NcclCommunicator, &Arc<Peers>) -> Result<R> + Sync,
) -> Result<R> {
    let nccl = Nccl::load()?;
    let rank = |peers: &Arc<Peers>| -> Result<R> {
        let check_rank = || {
            let gpu = Gpu::open(shared_gpu::device(peers.rank()))?;
            let on = gpu.clone();
            let communicator = NcclCommunicator::join(nccl, peers, move || on.bind())?;
            let done = part(&gpu, &communicator, peers)?;
            // free no memory while other ranks still sum
            peers.barrier()?;
            Ok(done)
        };
        check_rank().inspect_err(|error| peers.abort(&format!("rank {}: {error}", peers.rank())))
    };
    on_threads(Peers::threads(ranks, PEER_TIMEOUT), rank, rank)
}

/// Enqueues an in-place sum of `count` elements over all ranks.
fn sum(
    communicator: &NcclCommunicator,
    memory: &Memory,
    (count, format): (usize, DType),
    stream: &Stream,
) -> Result<()> {
    let at = memory.ptr().0;
    // SAFETY: the memory holds `count` elements on the communicator's GPU and lives until the stream is done.
    unsafe {
        communicator.exchange(Exchange::AllReduce, [at, at], count, Some(format), stream.raw().cast())
    }
}

fn bytes_of(format: DType, numbers: impl Iterator<Item = f32>) -> Vec<u8> {
    match format {
        DType::F32 => numbers.flat_map(f32::to_ne_bytes).collect(),
        _ => numbers.flat_map(|number| bf16::from_f32(number).to_ne_bytes()).collect(),
    }
}

/// Checks sums of all formats and sizes, eager and captured. With a shared GPU, allocating, freeing or
/// preparing work waits for the whole GPU and could deadlock with another rank's sum, so it only happens
/// behind a barrier.
fn sums(gpu: &Gpu, communicator: &NcclCommunicator, peers: &Arc<Peers>) -> Result<()> {
    let stream = gpu.stream(Priority::High)?;
    let memory = gpu.allocate(SIZES[3], "a message")?;
    for format in [DType::Bf16, DType::F32] {
        for bytes in SIZES {
            let count = (bytes / format.bytes()) as usize;
            let rank = peers.rank();
            let mine = bytes_of(format, (0..count).map(|at| given(rank, at)));
            let all = |at| (0..peers.ranks()).map(|rank| given(rank, at)).sum();
            let wanted = bytes_of(format, (0..count).map(all));
            let right = |how: &str| -> Result<()> {
                stream.synchronize_within(PEER_TIMEOUT)?;
                let mut got = vec![0; wanted.len()];
                memory.download(0, &mut got)?;
                match got.iter().zip(&wanted).position(|(got, wanted)| got != wanted) {
                    Some(byte) => {
                        let at = byte / format.bytes() as usize;
                        Err(Error::failed(format!(
                            "the {how} sum of {count} numbers of {format} over NCCL is wrong at {at} on rank {rank}"
                        )))
                    }
                    None => Ok(()),
                }
            };
            let turn = || sum(communicator, &memory, (count, format), &stream);
            memory.upload(0, &mine)?;
            peers.barrier()?;
            turn()?;
            right("eager")?;
            memory.upload(0, &mine)?;
            peers.barrier()?;
            let graph = stream.capture(turn)?;
            let graph = graph.instantiate()?;
            graph.upload(&stream)?;
            stream.synchronize_within(PEER_TIMEOUT)?;
            peers.barrier()?;
            graph.launch(&stream)?;
            right("captured")?;
            peers.barrier()?;
        }
    }
    Ok(())
}

/// Latency of a decode step's message (us) and bandwidth of a large one (GB/s).
fn times(gpu: &Gpu, communicator: &NcclCommunicator, peers: &Arc<Peers>) -> Result<[f64; 2]> {
    let stream = gpu.stream(Priority::High)?;
    let memory = gpu.allocate(SMALL, "a message")?;
    stream.fill(memory.ptr(), 0, SMALL)?;
    let count = |bytes: u64| ((bytes / 2) as usize, DType::Bf16);
    peers.barrier()?;
    let turn = || sum(communicator, &memory, count(SMALL), &stream);
    let latency_us = collective_us(gpu, &stream, turn)?;
    let (free, _) = gpu.memory()?;
    let bytes = LARGE.min(free / 4 / 4096 * 4096).max(SMALL);
    let large = gpu.allocate(bytes, "a large message")?;
    stream.fill(large.ptr(), 0, bytes)?;
    peers.barrier()?;
    let turn = || sum(communicator, &large, count(bytes), &stream);
    let us = collective_us(gpu, &stream, turn)?;
    peers.barrier()?;
    Ok([latency_us, bytes as f64 / us.max(1e-3) / 1e3])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(found: CheckOutcome) -> CheckResult {
        CheckResult { name: "graph".into(), found, said: "12 of 20 tokens".into() }
    }

    #[test]
    fn one_failure_is_no_pass_and_no_check_is_none_either() {
        assert!(!passed(&[]));
        let fine = [
            checked(CheckOutcome::Passed),
            checked(CheckOutcome::Warned),
            checked(CheckOutcome::NotDone),
        ];
        assert!(passed(&fine));
        assert_eq!(warning(Some(&fine)), None);
        let wrong = [checked(CheckOutcome::Passed), checked(CheckOutcome::Failed)];
        assert!(!passed(&wrong));
        let told = warning(Some(&wrong)).unwrap_or_default();
        assert!(told.starts_with("unverified") && told.contains("graph: 12 of 20 tokens"), "{told}");
        assert!(warning(None).is_some_and(|told| told.contains("doctor --check")));
        let error = concluded("graph", Err(Error::failed("no memory")));
        assert_eq!((error.found, error.said.as_str()), (CheckOutcome::Failed, "no memory"));
    }
}
