//! NCCL all-reduces with known results: small rank-dependent integers, exact in every format. Also measures
//! latency at the message size of a decode step and bandwidth of a large message.

use std::sync::Arc;
use std::time::Duration;

use half::bf16;

use super::Found;
use crate::comm::nccl::{Communicator, Nccl};
use crate::comm::{Exchange, Peers};
use crate::cuda::ranks::on_threads;
use crate::cuda::timing::clock::collective_us;
use base::error::{Error, Result};
use machine::driver::{Gpu, Memory, Priority, Stream};
use plan::DType;
use table::shared_gpu;

/// Message size of a decode step of a 70B model, and one for bandwidth (bytes).
const SMALL: u64 = 16 << 10;
const LARGE: u64 = 64 << 20;

/// Timeout of a rank waiting for its peers.
const LIMIT: Duration = Duration::from_secs(60);

/// Checked message sizes (bytes).
const SIZES: [u64; 4] = [256, SMALL, 256 << 10, 2 << 20];

/// Numbers of ranks that share one GPU.
const SHARING: [usize; 2] = [2, 4];

/// Input of rank `rank` at index `at`. The sum over 64 ranks is still exact in bf16.
fn given(rank: usize, at: usize) -> f32 {
    ((rank + at) % 4) as f32
}

/// Checks eager and captured sums over this many GPUs, with latency and bandwidth.
pub(super) fn on_own_gpus(gpus: usize) -> Result<(Found, String)> {
    let [latency_us, gb_s] = over(gpus, |gpu, communicator, peers| {
        sums(gpu, communicator, peers)?;
        times(gpu, communicator, peers)
    })?;
    let checked = checked(&format!("{gpus} GPUs"));
    let said = format!("{checked}; 16 KB take {latency_us:.1} us, 64 MB go at {gb_s:.0} GB/s");
    Ok((Found::Passed, said))
}

/// Checks sums over ranks that share one GPU; their latency is meaningless.
pub(super) fn on_one_gpu() -> Result<(Found, String)> {
    for ranks in SHARING {
        over(ranks, sums)
            .map_err(|error| Error::failed(format!("{ranks} ranks on one GPU: {error}")))?;
    }
    let [few, many] = SHARING;
    let version = Nccl::load()?.version();
    let checked = checked(&format!("{few} and over {many} ranks on one GPU"));
    Ok((Found::Passed, format!("{checked} (NCCL {version})")))
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
    part: impl Fn(&Gpu, &Communicator, &Arc<Peers>) -> Result<R> + Sync,
) -> Result<R> {
    let nccl = Nccl::load()?;
    let rank = |peers: &Arc<Peers>| -> Result<R> {
        let one = || {
            let gpu = Gpu::open(shared_gpu::device(peers.rank()))?;
            let on = gpu.clone();
            let communicator = Communicator::join(nccl, peers, move || on.bind())?;
            let done = part(&gpu, &communicator, peers)?;
            // free no memory while other ranks still sum
            peers.barrier()?;
            Ok(done)
        };
        one().inspect_err(|error| peers.abort(&format!("rank {}: {error}", peers.rank())))
    };
    on_threads(Peers::threads(ranks, LIMIT), rank, rank)
}

/// Enqueues an in-place sum of `count` elements over all ranks.
fn sum(
    communicator: &Communicator,
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
fn sums(gpu: &Gpu, communicator: &Communicator, peers: &Arc<Peers>) -> Result<()> {
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
                stream.synchronize_within(LIMIT)?;
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
            stream.synchronize_within(LIMIT)?;
            peers.barrier()?;
            graph.launch(&stream)?;
            right("captured")?;
            peers.barrier()?;
        }
    }
    Ok(())
}

/// Latency of a decode step's message (us) and bandwidth of a large one (GB/s).
fn times(gpu: &Gpu, communicator: &Communicator, peers: &Arc<Peers>) -> Result<[f64; 2]> {
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
