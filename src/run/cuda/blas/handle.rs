//! cuBLASLt handle of one GPU with its plans and workspaces.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::cublaslt::sys;

use super::library::{Candidate, Lt};
use super::plan::{Alignment, Descriptors};
use super::{MatMul, library};
use base::error::{Error, Result};
use machine::driver::{DevicePtr, Gpu, Memory, Stream};

/// Workspace per stream (bytes), as NVIDIA recommends for Hopper.
pub const WORKSPACE_BYTES: u64 = 32 << 20;

/// cuBLASLt on one GPU, with the plan of every shape used so far and one workspace per stream.
pub struct Blas {
    pub(super) plans: Mutex<HashMap<(MatMul, Alignment), Arc<Plan>>>,
    workspaces: Mutex<HashMap<usize, Arc<Memory>>>,
    /// Dropped before the GPU, whose context it needs.
    pub(super) handle: Handle,
    pub(super) gpu: Gpu,
}

pub(super) struct Plan {
    pub(super) descriptors: Descriptors,
    pub(super) candidate: Candidate,
}

pub(super) struct Handle {
    pub(super) lt: &'static Lt,
    pub(super) handle: sys::cublasLtHandle_t,
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
        let lt = library::lt()?;
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
        let plan = self.plan(matmul, Alignment::of(x.0, w.0, out.0))?;
        self.run(stream, matmul, &plan.descriptors, &plan.candidate, (x, w, out))
    }

    pub(super) fn run(
        &self,
        stream: &Stream,
        matmul: &MatMul,
        descriptors: &Descriptors,
        candidate: &Candidate,
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

    pub(super) fn plan(&self, matmul: &MatMul, alignment: Alignment) -> Result<Arc<Plan>> {
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
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
