//! cuBLASLt on one GPU: algorithms that were chosen, workspaces, and the call itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::cublaslt::sys;

use super::library::{Candidate, Lt};
use super::plan::{Alignment, Descriptors};
use super::{MatMul, library};
use base::error::{Error, Result};
use machine::driver::{DevicePtr, Gpu, Memory, Stream};

/// Scratch memory that algorithms may use, for each stream that multiplies (bytes);
/// NVIDIA's advice for Hopper.
pub const WORKSPACE_BYTES: u64 = 32 << 20;

/// cuBLASLt on one GPU: the plans of all shapes so far, and a workspace for each stream.
pub struct Blas {
    pub(super) plans: Mutex<HashMap<(MatMul, Alignment), Arc<Plan>>>,
    workspaces: Mutex<HashMap<usize, Arc<Memory>>>,
    /// Goes before the GPU, whose context it needs to go.
    pub(super) handle: Handle,
    pub(super) gpu: Gpu,
}

/// Descriptors and the algorithm that was chosen.
pub(super) struct Plan {
    pub(super) descriptors: Descriptors,
    pub(super) candidate: Candidate,
}

pub(super) struct Handle {
    pub(super) lt: &'static Lt,
    pub(super) handle: sys::cublasLtHandle_t,
}

// SAFETY: NVIDIA's documentation allows a handle in several threads.
unsafe impl Send for Handle {}

// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made by cuBLASLt, destroyed once, after the plans.
        unsafe { (self.lt.cublasLtDestroy)(self.handle) };
    }
}

impl Blas {
    /// Starts cuBLASLt on this GPU (`cublasLtCreate`). Fails where it is missing, or does not work with
    /// this driver; the message says what to do.
    pub fn new(gpu: &Gpu) -> Result<Self> {
        let lt = library::lt()?;
        gpu.bind()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle to a valid address; it belongs to the GPU that is current.
        let status = unsafe { (lt.cublasLtCreate)(&mut handle) };
        lt.check(status, || format!("starting cuBLASLt on GPU {}", gpu.info().index))?;
        Ok(Self {
            plans: Mutex::default(),
            workspaces: Mutex::default(),
            gpu: gpu.clone(),
            handle: Handle { lt, handle },
        })
    }

    /// Chooses the algorithm for operands that begin at allocations. Not needed before [`Blas::matmul`],
    /// but it costs a millisecond, and it fails early where cuBLASLt knows no algorithm for the product.
    pub fn prepare(&self, matmul: &MatMul) -> Result<()> {
        self.plan(matmul, Alignment::FULL).map(drop)
    }

    /// Allocates the stream's workspace of [`WORKSPACE_BYTES`]. Needed before a capture; otherwise the
    /// first product does it. Fails where the GPU has too little free memory.
    pub fn reserve(&self, stream: &Stream) -> Result<()> {
        self.workspace(stream).map(drop)
    }

    /// Enqueues the product. The addresses must be those of matrices of this shape on this GPU. cuBLASLt
    /// loads its kernels at their first use: run a product once before it is captured.
    ///
    /// # Errors
    ///
    /// A failure where cuBLASLt knows no algorithm for the shape or refuses the call;
    /// where there is too little memory for the workspace; or, in a capture, where the
    /// stream has no workspace ([`Blas::reserve`]).
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
        // SAFETY: the caller of `matmul` or `tune` knows the addresses; candidates that want more than the
        // workspace are not kept.
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

/// The content, also where another thread has panicked: maps of finished entries are never half-changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
