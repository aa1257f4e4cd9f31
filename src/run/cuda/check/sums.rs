//! Sums over NCCL whose result is known: small integers that depend on the rank, which every format holds exactly; how
//! long a decode step's message takes, and how fast a large one goes.

use std::sync::Arc;
use std::time::Duration;

use half::bf16;

use super::Found;
use crate::base::error::{Error, Result};
use crate::machine::driver::{Gpu, Memory, Priority, Stream};
use crate::plan::DType;
use crate::run::comm::nccl::{Communicator, Nccl};
use crate::run::comm::{Exchange, Peers};
use crate::run::cuda::stopwatch::collective_us;
use crate::run::cuda::threads::on_threads;

/// Bytes of a decode step's message of a 70B model, and of one that shows the bandwidth.
const SMALL: u64 = 16 << 10;
const LARGE: u64 = 64 << 20;

const LIMIT: Duration = Duration::from_secs(60);

/// What rank `rank` gives at `at`: integers whose sum over 64 ranks is still exact in bf16.
fn given(rank: usize, at: usize) -> f32 {
    ((rank + at) % 4) as f32
}

/// Sums over this many GPUs, eager and captured, and what that took.
pub(super) fn exact(gpus: usize) -> Result<(Found, String)> {
    let nccl = Nccl::load()?;
    let rank = |peers: &Arc<Peers>| -> Result<[f64; 2]> {
        let one = || {
            let gpu = Gpu::open(peers.rank())?;
            let on = gpu.clone();
            let communicator = Communicator::join(nccl, peers, move || on.bind())?;
            of_rank(&gpu, &communicator, peers)
        };
        one().inspect_err(|error| peers.abort(&format!("rank {}: {error}", peers.rank())))
    };
    let [latency_us, gb_s] = on_threads(Peers::threads(gpus, LIMIT), rank, rank)?;
    Ok((
        Found::Passed,
        format!(
            "exact over {gpus} GPUs, eager and captured; 16 KB take {latency_us:.1} us, 64 MB go at {gb_s:.0} GB/s"
        ),
    ))
}

fn sum(communicator: &Communicator, memory: &Memory, count: usize, stream: &Stream) -> Result<()> {
    let at = memory.ptr().0;
    // SAFETY: so many numbers of bf16 lie there on the communicator's GPU, until the stream is done.
    unsafe {
        let (sum, format) = (Exchange::AllReduce, Some(DType::Bf16));
        communicator.exchange(sum, [at, at], count, format, stream.raw().cast())
    }
}

fn of_rank(gpu: &Gpu, communicator: &Communicator, peers: &Arc<Peers>) -> Result<[f64; 2]> {
    let stream = gpu.stream(Priority::High)?;
    let count = (SMALL / 2) as usize;
    let mine: Vec<bf16> = (0..count).map(|at| bf16::from_f32(given(peers.rank(), at))).collect();
    let wanted: Vec<bf16> = (0..count)
        .map(|at| bf16::from_f32((0..peers.ranks()).map(|rank| given(rank, at)).sum()))
        .collect();
    let memory = gpu.allocate(SMALL, "a message")?;
    let right = |how: &str| -> Result<()> {
        stream.synchronize_within(LIMIT)?;
        let mut got = vec![bf16::ZERO; count];
        memory.download(0, bytemuck::cast_slice_mut(&mut got))?;
        match got.iter().zip(&wanted).position(|(got, wanted)| got != wanted) {
            Some(at) => Err(Error::failed(format!(
                "the {how} sum over NCCL has {} at {at} on rank {}, and not {}",
                got[at],
                peers.rank(),
                wanted[at]
            ))),
            None => Ok(()),
        }
    };
    memory.upload(0, bytemuck::cast_slice(&mine))?;
    sum(communicator, &memory, count, &stream)?;
    right("eager")?;
    memory.upload(0, bytemuck::cast_slice(&mine))?;
    let graph = stream.capture(|| sum(communicator, &memory, count, &stream))?;
    graph.instantiate()?.launch(&stream)?;
    right("captured")?;
    peers.barrier()?;
    let latency_us = collective_us(gpu, &stream, || sum(communicator, &memory, count, &stream))?;
    let (free, _) = gpu.memory()?;
    let bytes = LARGE.min(free / 4 / 4096 * 4096).max(SMALL);
    let large = gpu.allocate(bytes, "a large message")?;
    stream.fill(large.ptr(), 0, bytes)?;
    peers.barrier()?;
    let turn = || sum(communicator, &large, (bytes / 2) as usize, &stream);
    let us = collective_us(gpu, &stream, turn)?;
    peers.barrier()?;
    Ok([latency_us, bytes as f64 / us.max(1e-3) / 1e3])
}
