//! Peak rates of a GPU: memory read bandwidth, the bound for decode, and GEMM throughput, the bound for
//! prefill.
//!
//! Problem sizes grow until they are large enough for a fast GPU or a pass takes long, so slow GPUs finish,
//! too; the result states the size used.

use std::time::{Duration, Instant};

use half::bf16;
use serde::Serialize;

use super::blas::{Blas, MatMul, Operands};
use base::error::{Error, Result};
use machine::driver::{Event, Function, Gpu, Launch, Memory, Priority, Stream, arguments};
use plan::DType;

/// Passes longer than this are not repeated at a larger size.
const LONG_PASS: Duration = Duration::from_millis(20);
/// Timeout of one pass.
const PASS_TIMEOUT: Duration = Duration::from_secs(20);
/// Timed passes; the median counts.
const PASSES: usize = 21;
/// Time an idle GPU needs to raise its clocks.
const CLOCK_WARM_UP: Duration = Duration::from_millis(200);

/// Memory read bandwidth of a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ReadBandwidth {
    /// Bandwidth in GB/s (1e9 bytes per second).
    pub gb_s: f64,
    /// Bytes read per pass.
    pub buffer_bytes: u64,
    /// Number of passes; the bandwidth is their median.
    pub passes: usize,
    /// True if the buffer is at least eight times the L2 cache.
    pub exceeds_caches: bool,
}

/// Throughput of bf16 matrix products with f32 accumulation.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct GemmRate {
    /// Throughput of ten consecutive products after a pause, in TFLOP/s (1e12 per second).
    pub tflops: f64,
    /// Throughput of single products after 0.2 s of load, when a power limit may have lowered the clocks, in
    /// TFLOP/s.
    pub sustained_tflops: f64,
    /// Rows, inputs and outputs of the product.
    pub size: u64,
    /// Number of products; the sustained rate is their median.
    pub products: usize,
    /// Number of cuBLASLt algorithms tuned.
    pub algorithms: usize,
}

/// Measures the read bandwidth with the `read_bandwidth` kernel of `kernels/measure.cu`: median over passes
/// through a buffer larger than the caches, 4 GiB if there is room. Returns an error if less than 2 MiB is
/// free.
pub fn read_bandwidth(gpu: &Gpu, kernel: &Function) -> Result<ReadBandwidth> {
    /// Threads per block (`BOUNDED_KERNEL` in measure.cu).
    const THREADS: u32 = 512;
    /// Smallest buffer (bytes).
    const FIRST: u64 = 1 << 20;
    /// Growth factor of the buffer, up to `LAST` bytes.
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
        let mut read =
            || stream.launch(kernel, &launch, &mut arguments![buffer.ptr(), bytes / 16, sink.ptr()]);
        // The first pass also loads the kernel.
        clock.time(&stream, &mut read)?;
        let (_, host) = clock.time(&stream, &mut read)?;
        if bytes < most && host < LONG_PASS {
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

/// Measures cuBLASLt on square matrices of random bf16 numbers, up to 8192 x 8192, with the fastest
/// algorithm.
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
        if size < LAST && host < LONG_PASS {
            size *= 2;
            continue;
        }
        let mut algorithms = 1;
        if host < LONG_PASS {
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

/// Random data, because zeros draw less power and run at higher clocks than real weights.
fn random(gpu: &Gpu, bytes: u64, seed: u64) -> Result<Memory> {
    /// Period of the random data (bytes), longer than a tile.
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

struct Clock {
    start: Event,
    end: Event,
}

impl Clock {
    fn new(gpu: &Gpu) -> Result<Self> {
        Ok(Self { start: gpu.event(true)?, end: gpu.event(true)? })
    }

    /// GPU time (s) and host time of one pass.
    fn time(&self, stream: &Stream, work: &mut impl FnMut() -> Result<()>) -> Result<(f64, Duration)> {
        let begun = Instant::now();
        stream.record(&self.start)?;
        work()?;
        stream.record(&self.end)?;
        self.end.synchronize_within(PASS_TIMEOUT)?;
        let seconds = f64::from(self.end.elapsed_ms(&self.start)?) / 1e3;
        Ok((seconds, begun.elapsed()))
    }

    /// Average time (s) of ten consecutive passes after a pause and three warm-up passes; of a single pass if
    /// it takes long.
    fn burst(
        &self,
        stream: &Stream,
        one: Duration,
        work: &mut impl FnMut() -> Result<()>,
    ) -> Result<f64> {
        let (warm_up, passes) = if one < LONG_PASS { (3, 10) } else { (0, 1) };
        std::thread::sleep(CLOCK_WARM_UP.min(one * 100));
        (0..warm_up).try_for_each(|_| work())?;
        let (seconds, _) = self.time(stream, &mut || (0..passes).try_for_each(|_| work()))?;
        Ok((seconds / f64::from(passes)).max(0.5e-6))
    }

    /// Median time of a pass (s) after a warm-up, and the number of passes, which is lower if a pass takes
    /// long.
    fn median(
        &self,
        stream: &Stream,
        one: Duration,
        work: &mut impl FnMut() -> Result<()>,
    ) -> Result<(f64, usize)> {
        let passes = if one < LONG_PASS { PASSES } else { 3 };
        let begun = Instant::now();
        while begun.elapsed() < CLOCK_WARM_UP {
            self.time(stream, work)?;
        }
        let mut times = Vec::new();
        for _ in 0..passes {
            times.push(self.time(stream, work)?.0);
        }
        times.sort_by(f64::total_cmp);
        // Event resolution is 0.5 us.
        Ok((times[passes / 2].max(0.5e-6), passes))
    }
}
