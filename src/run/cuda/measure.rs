//! What a GPU can do at best, measured: reading its memory, multiplying matrices. Decoding is judged
//! against the first, prefill against the second.
//!
//! Sizes grow from small ones until they are what a fast GPU is measured with, or until a pass takes long:
//! so a slow device answers too, and says with how much.

use std::time::{Duration, Instant};

use half::bf16;
use serde::Serialize;

use super::blas::{Blas, MatMul, Operands};
use base::error::{Error, Result};
use machine::driver::{Arguments, Event, Function, Gpu, Launch, Memory, Priority, Stream};
use plan::DType;

/// A pass that takes longer than this is not repeated with more.
const LONG: Duration = Duration::from_millis(20);
/// No pass takes so long on a GPU that works.
const LIMIT: Duration = Duration::from_secs(20);
/// Passes that are timed; the median counts.
const PASSES: usize = 21;
/// An idle GPU takes so long to raise its clocks.
const WARM_UP: Duration = Duration::from_millis(200);

/// How fast a GPU reads its memory.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ReadBandwidth {
    /// Bytes a second over 1e9.
    pub gb_s: f64,
    /// How much is read in a pass.
    pub buffer_bytes: u64,
    /// Passes, of which this is the median.
    pub passes: usize,
    /// Whether it is far more (eight times) than the GPU's cache holds.
    pub exceeds_caches: bool,
}

/// How fast a GPU multiplies matrices of bf16, with sums in f32.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct GemmRate {
    /// Floating-point operations a second over 1e12 of ten products, one behind the other, after a rest.
    pub tflops: f64,
    /// The same of single products after a fifth of a second of them, when a power limit may have lowered clocks.
    pub sustained_tflops: f64,
    /// Rows, inputs and outputs of the product.
    pub size: u64,
    /// Products, of whose times the sustained rate is the median.
    pub products: usize,
    /// How many algorithms of cuBLASLt were timed to find the fastest.
    pub algorithms: usize,
}

/// Measures how fast the GPU reads its memory, with `read_bandwidth` of `kernels/measure.cu`, given as
/// `kernel`: the median over passes through a buffer that no cache holds, of 4 GiB where there is room.
/// Fails where less than 2 MiB of memory is free, or the GPU does not answer.
pub fn read_bandwidth(gpu: &Gpu, kernel: &Function) -> Result<ReadBandwidth> {
    /// Threads of a block (`BOUNDED_KERNEL` in measure.cu).
    const THREADS: u32 = 512;
    /// Bytes of the smallest piece of memory that is read to find the bandwidth.
    const FIRST: u64 = 1 << 20;
    /// By which factor pieces grow, until they have `LAST` bytes.
    const FACTOR: u64 = 16;
    const LAST: u64 = 4 << 30;
    let info = gpu.info();
    let (free, _) = gpu.memory()?;
    let most = LAST.max(16 * info.l2_bytes).min(free / 2 / 4096 * 4096);
    if most < FIRST {
        return Err(Error::failed(format!("only {free} bytes of GPU {}'s memory are free", info.index)));
    }
    let stream = gpu.stream(Priority::Normal)?;
    let clock = Clock::new(gpu)?;
    let sink = gpu.allocate(4, "the result of reading")?;
    let blocks = info.multiprocessors * kernel.blocks_per_multiprocessor(THREADS, 0)?.max(1);
    let launch = Launch::flat(blocks, THREADS);
    let mut bytes = FIRST;
    loop {
        let buffer = gpu.allocate(bytes, "a buffer to read")?;
        stream.fill(buffer.ptr(), 0x5a, bytes)?;
        stream.fill(sink.ptr(), 0, 4)?;
        let mut read = || {
            let mut arguments = Arguments::new();
            arguments.pointer(buffer.ptr()).u64(bytes / 16).pointer(sink.ptr());
            stream.launch(kernel, &launch, &mut arguments)
        };
        // The first pass also loads the kernel.
        clock.time(&stream, &mut read)?;
        let (_, host) = clock.time(&stream, &mut read)?;
        if bytes < most && host < LONG {
            bytes = (bytes * FACTOR).min(most);
            continue;
        }
        let (seconds, passes) = clock.median(&stream, host, &mut read)?;
        return Ok(ReadBandwidth {
            gb_s: bytes as f64 / seconds / 1e9,
            buffer_bytes: bytes,
            passes,
            exceeds_caches: bytes >= 8 * info.l2_bytes,
        });
    }
}

/// Measures how fast cuBLASLt multiplies square matrices of random bf16 numbers, up to 8192 x 8192, with
/// the fastest of its algorithms. Fails where cuBLASLt is missing or refuses the product, where too
/// little memory is free, or where the GPU does not answer.
pub fn gemm_rate(gpu: &Gpu) -> Result<GemmRate> {
    const FIRST: u64 = 256;
    const LAST: u64 = 8192;
    let blas = Blas::new(gpu)?;
    let stream = gpu.stream(Priority::Normal)?;
    let clock = Clock::new(gpu)?;
    let mut size = FIRST;
    loop {
        let matmul = MatMul {
            rows: size,
            inputs: size,
            outputs: size,
            dtype: DType::Bf16,
            f32_output: false,
            sm_target: None,
        };
        let [x_bytes, w_bytes, out_bytes] = matmul.bytes();
        let x = random(gpu, x_bytes, 1)?;
        let w = random(gpu, w_bytes, 2)?;
        let out = gpu.allocate(out_bytes, "a product")?;
        let mut multiply = || blas.matmul(&stream, &matmul, x.ptr(), w.ptr(), out.ptr());
        clock.time(&stream, &mut multiply)?;
        let (_, mut host) = clock.time(&stream, &mut multiply)?;
        if size < LAST && host < LONG {
            size *= 2;
            continue;
        }
        let mut algorithms = 1;
        if host < LONG {
            let weights = [w.ptr()];
            let operands = Operands { x: x.ptr(), weights: &weights, out: out.ptr() };
            algorithms = blas.tune(&stream, &matmul, &operands)?.candidates;
            (_, host) = clock.time(&stream, &mut multiply)?;
        }
        let burst = clock.burst(&stream, host, &mut multiply)?;
        let (seconds, products) = clock.median(&stream, host, &mut multiply)?;
        let [tflops, sustained_tflops] = [burst, seconds].map(|seconds| matmul.flops() / seconds / 1e12);
        return Ok(GemmRate { tflops, sustained_tflops, size, products, algorithms });
    }
}

/// Memory full of random numbers: zeros would draw less power and run at higher clocks than weights do.
fn random(gpu: &Gpu, bytes: u64, seed: u64) -> Result<Memory> {
    /// Repeated; long enough that no tile is like another.
    const PATTERN: u64 = 8 << 20;
    let memory = gpu.allocate(bytes, "a random matrix")?;
    let mut random = fastrand::Rng::with_seed(seed);
    let numbers = bytes.min(PATTERN) / 2;
    let pattern: Vec<bf16> =
        (0..numbers).map(|_| bf16::from_f32(random.f32().mul_add(2.0, -1.0))).collect();
    let pattern: &[u8] = bytemuck::cast_slice(&pattern);
    let mut at = 0;
    while at < bytes {
        let part = pattern.len().min((bytes - at) as usize);
        memory.upload(at, &pattern[..part])?;
        at += part as u64;
    }
    Ok(memory)
}

/// Two events between which work is timed.
struct Clock {
    start: Event,
    end: Event,
}

impl Clock {
    fn new(gpu: &Gpu) -> Result<Self> {
        Ok(Self { start: gpu.event(true)?, end: gpu.event(true)? })
    }

    /// Seconds on the GPU, and time on the host, of one pass.
    fn time(&self, stream: &Stream, work: &mut impl FnMut() -> Result<()>) -> Result<(f64, Duration)> {
        let begun = Instant::now();
        stream.record(&self.start)?;
        work()?;
        stream.record(&self.end)?;
        self.end.synchronize_within(LIMIT)?;
        let seconds = f64::from(self.end.elapsed_ms(&self.start)?) / 1e3;
        Ok((seconds, begun.elapsed()))
    }

    /// Seconds of a pass among ten that follow one another, after a rest and a warm-up of three; of one where one takes
    /// long.
    fn burst(
        &self,
        stream: &Stream,
        one: Duration,
        work: &mut impl FnMut() -> Result<()>,
    ) -> Result<f64> {
        let (warm_up, passes) = if one < LONG { (3, 10) } else { (0, 1) };
        std::thread::sleep(WARM_UP.min(one * 100));
        (0..warm_up).try_for_each(|_| work())?;
        let (seconds, _) = self.time(stream, &mut || (0..passes).try_for_each(|_| work()))?;
        Ok((seconds / f64::from(passes)).max(0.5e-6))
    }

    /// The median of several passes in seconds, and of how many (fewer where one takes
    /// long), after a warm-up.
    fn median(
        &self,
        stream: &Stream,
        one: Duration,
        work: &mut impl FnMut() -> Result<()>,
    ) -> Result<(f64, usize)> {
        let passes = if one < LONG { PASSES } else { 3 };
        let begun = Instant::now();
        while begun.elapsed() < WARM_UP {
            self.time(stream, work)?;
        }
        let mut times = Vec::new();
        for _ in 0..passes {
            times.push(self.time(stream, work)?.0);
        }
        times.sort_by(f64::total_cmp);
        // Events tick in half microseconds.
        Ok((times[passes / 2].max(0.5e-6), passes))
    }
}
