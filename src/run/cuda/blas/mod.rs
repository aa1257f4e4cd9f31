//! Matrix products with cuBLASLt: row-major, f32 accumulation, one algorithm per shape. [`Blas::tune`] times several
//! algorithms instead of trusting the heuristic's first choice.

mod descriptors;

pub use descriptors::version;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cudarc::cublaslt::sys;

use crate::cuda::timing::clock::{CLEARLY, median_us};
use base::error::{Error, Result};
use descriptors::{AlgorithmCandidate, Alignment, Descriptors, Lt};
use machine::driver::{DevicePtr, Gpu, Memory, Stream};
use plan::DType;

/// `out[rows][outputs] = x[rows][inputs] w[outputs][inputs]^T`, all row-major and dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatMul {
    pub rows: u64,
    pub inputs: u64,
    pub outputs: u64,
    /// Format of input and weights.
    pub dtype: DType,
    /// True if the output is f32 instead of `dtype`.
    pub f32_output: bool,
    /// SMs available to the product while other kernels occupy the rest; `None` means all.
    pub sm_target: Option<u32>,
}

impl std::fmt::Display for MatMul {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rows, inputs, outputs, dtype, .. } = self;
        write!(f, "the product [{rows}x{inputs}] x [{outputs}x{inputs}]^T in {dtype}")?;
        if self.f32_output && self.dtype != DType::F32 {
            f.write_str(" to f32")?;
        }
        match self.sm_target {
            Some(multiprocessors) => write!(f, " for {multiprocessors} multiprocessors"),
            None => Ok(()),
        }
    }
}

impl MatMul {
    /// FLOPs, counting a multiply-add as two.
    pub fn flops(&self) -> f64 {
        2.0 * self.rows as f64 * self.inputs as f64 * self.outputs as f64
    }

    pub fn bytes(&self) -> [u64; 3] {
        let number = self.dtype.bytes();
        let out = if self.f32_output { 4 } else { number };
        [
            self.rows * self.inputs * number,
            self.outputs * self.inputs * number,
            self.rows * self.outputs * out,
        ]
    }
}

/// Workspace per stream (bytes), as NVIDIA recommends for Hopper.
pub const WORKSPACE_BYTES: u64 = 32 << 20;

/// cuBLASLt on one GPU, with the plan of every shape used so far and one workspace per stream.
pub struct Blas {
    plans: Mutex<HashMap<(MatMul, Alignment), Arc<Plan>>>,
    workspaces: Mutex<HashMap<usize, Arc<Memory>>>,
    /// Dropped before the GPU, whose context it needs.
    handle: Handle,
    gpu: Gpu,
}

struct Plan {
    descriptors: Descriptors,
    candidate: AlgorithmCandidate,
}

struct Handle {
    lt: &'static Lt,
    handle: sys::cublasLtHandle_t,
}

// SAFETY: NVIDIA documents that a handle may be used from several threads.
unsafe impl Send for Handle {}

// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: created by cuBLASLt, destroyed once, after the plans.
        unsafe { (self.lt.cublasLtDestroy)(self.handle) };
    }
}

impl Blas {
    /// Creates a cuBLASLt handle on this GPU. Returns an error if cuBLASLt is missing or does not work with
    /// this driver.
    pub fn new(gpu: &Gpu) -> Result<Self> {
        let lt = descriptors::lt()?;
        gpu.bind()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle to a valid address; the handle belongs to the current GPU.
        let status = unsafe { (lt.cublasLtCreate)(&mut handle) };
        lt.check(status, || format!("starting cuBLASLt on GPU {}", gpu.info().index))?;
        Ok(Self {
            plans: Mutex::default(),
            workspaces: Mutex::default(),
            gpu: gpu.clone(),
            handle: Handle { lt, handle },
        })
    }

    /// Selects the algorithm for operands at the start of an allocation. Optional before [`Blas::matmul`],
    /// but it takes about 1 ms, and errors for unsupported products surface early.
    pub fn prepare(&self, matmul: &MatMul) -> Result<()> {
        self.plan(matmul, Alignment::FULL).map(drop)
    }

    /// Allocates the stream's workspace of [`WORKSPACE_BYTES`], which the first product would do otherwise.
    /// Required before a capture.
    pub fn reserve(&self, stream: &Stream) -> Result<()> {
        self.workspace(stream).map(drop)
    }

    /// Enqueues the product. The addresses must point to matrices of these shapes on this GPU. cuBLASLt loads
    /// kernels lazily, so run a product once before capturing it.
    ///
    /// # Errors
    ///
    /// Returns an error if cuBLASLt has no algorithm for the shape or refuses the call, if memory for the
    /// workspace runs out, or if the stream has no workspace during a capture ([`Blas::reserve`]).
    pub fn matmul(
        &self,
        stream: &Stream,
        matmul: &MatMul,
        x: DevicePtr,
        w: DevicePtr,
        out: DevicePtr,
    ) -> Result<()> {
        let plan = self.plan(matmul, Alignment::new(x.0, w.0, out.0))?;
        self.run(stream, matmul, &plan.descriptors, &plan.candidate, (x, w, out))
    }

    fn run(
        &self,
        stream: &Stream,
        matmul: &MatMul,
        descriptors: &Descriptors,
        candidate: &AlgorithmCandidate,
        (x, w, out): (DevicePtr, DevicePtr, DevicePtr),
    ) -> Result<()> {
        let workspace = self.workspace(stream)?;
        self.gpu.bind()?;
        // SAFETY: the caller of `matmul` or `tune` vouches for the addresses; candidates that need more than
        // the workspace were filtered out.
        let status = unsafe {
            descriptors.run(
                self.handle.handle,
                candidate,
                (x.0, w.0, out.0),
                workspace.ptr().0,
                stream.raw().cast(),
            )
        };
        self.handle.lt.check(status, || format!("GPU {}: {matmul}", self.gpu.info().index))
    }

    fn plan(&self, matmul: &MatMul, alignment: Alignment) -> Result<Arc<Plan>> {
        if let Some(plan) = lock(&self.plans).get(&(*matmul, alignment)) {
            return Ok(Arc::clone(plan));
        }
        if matmul.rows == 0 || matmul.inputs == 0 || matmul.outputs == 0 {
            return Err(Error::failed(format!("{matmul} is empty")));
        }
        let descriptors = Descriptors::new(self.handle.lt, matmul)?;
        self.gpu.bind()?;
        let candidates = descriptors.candidates(self.handle.handle, matmul, alignment, 1)?;
        let plan = Arc::new(Plan { descriptors, candidate: candidates[0] });
        lock(&self.plans).insert((*matmul, alignment), Arc::clone(&plan));
        Ok(plan)
    }

    fn workspace(&self, stream: &Stream) -> Result<Arc<Memory>> {
        let mut workspaces = lock(&self.workspaces);
        if let Some(workspace) = workspaces.get(&(stream.raw() as usize)) {
            return Ok(Arc::clone(workspace));
        }
        if Stream::any_capturing() {
            return Err(Error::failed(
                "a product is captured on a stream without a workspace; reserve it before the capture",
            ));
        }
        let workspace = Arc::new(self.gpu.allocate(WORKSPACE_BYTES, "the workspace of cuBLASLt")?);
        workspaces.insert(stream.raw() as usize, Arc::clone(&workspace));
        Ok(workspace)
    }
}

/// Locks a map and ignores poisoning: entries are inserted whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    /// Input, `[rows, inputs]`.
    pub x: DevicePtr,
    /// At least one weight. Weights alternate like layers, so that a set larger than the L2 cache is read
    /// from memory as in decoding.
    pub weights: &'a [DevicePtr],
    /// Output, `[rows, outputs]`; overwritten.
    pub out: DevicePtr,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuned {
    /// Number of algorithms timed.
    pub candidates: usize,
    /// Index of the selected algorithm; 0 is the heuristic's first choice.
    pub best: usize,
    /// Latency with the selected algorithm (us).
    pub best_us: f64,
    /// Latency with the heuristic's first choice (us).
    pub first_us: f64,
}

/// Maximum number of algorithms timed.
const CANDIDATES: usize = 8;
/// Warm-up before the first algorithm, to reach steady clocks.
const CLOCK_WARM_UP: Duration = Duration::from_millis(20);

impl Blas {
    /// Times the first few algorithms and keeps the fastest for [`Blas::matmul`] calls of the same shape and
    /// alignment. Takes a few milliseconds; not allowed during a capture.
    pub fn tune(&self, stream: &Stream, matmul: &MatMul, operands: &Operands<'_>) -> Result<Tuned> {
        let &[first, ..] = operands.weights else {
            return Err(Error::failed(format!("{matmul} is timed without weights")));
        };
        let alignment = Alignment::new(operands.x.0, first.0, operands.out.0);
        let descriptors = Descriptors::new(self.handle.lt, matmul)?;
        self.gpu.bind()?;
        let candidates = descriptors.candidates(self.handle.handle, matmul, alignment, CANDIDATES)?;
        let begun = Instant::now();
        while begun.elapsed() < CLOCK_WARM_UP {
            self.run(stream, matmul, &descriptors, &candidates[0], (operands.x, first, operands.out))?;
            stream.synchronize()?;
        }
        let mut times = Vec::new();
        for candidate in &candidates {
            times.push(median_us(&self.gpu, stream, operands.weights, |w| {
                self.run(stream, matmul, &descriptors, candidate, (operands.x, w, operands.out))
            })?);
        }
        let best = fastest(&times);
        let plan = Arc::new(Plan { descriptors, candidate: candidates[best] });
        lock(&self.plans).insert((*matmul, alignment), plan);
        Ok(Tuned { candidates: candidates.len(), best, best_us: times[best], first_us: times[0] })
    }
}

/// Index of the lowest time. Keeps the first choice unless another is at least 2 % faster, so that noise does
/// not change results between runs.
fn fastest(times: &[f64]) -> usize {
    let best = (0..times.len()).min_by(|&a, &b| times[a].total_cmp(&times[b])).unwrap_or(0);
    if times[best] < CLEARLY * times[0] { best } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_described_with_its_shape_and_costs() {
        let matmul = MatMul {
            rows: 3,
            inputs: 64,
            outputs: 100,
            dtype: DType::Bf16,
            f32_output: true,
            sm_target: Some(108),
        };
        assert_eq!(
            matmul.to_string(),
            "the product [3x64] x [100x64]^T in bf16 to f32 for 108 multiprocessors"
        );
        assert_eq!(matmul.flops(), 38_400.0);
        assert_eq!(matmul.bytes(), [384, 12_800, 1_200]);
    }

    #[test]
    fn the_first_choice_stays_unless_another_is_clearly_faster() {
        assert_eq!(fastest(&[10.0, 9.9, 10.5]), 0);
        assert_eq!(fastest(&[10.0, 9.9, 7.0, 8.0]), 2);
        assert_eq!(fastest(&[10.0]), 0);
    }
}
