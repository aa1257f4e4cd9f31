//! Whether this machine can run the cuda backend at all: the one answer of cells, `generate` and doctor.

use base::error::{Error, Result};
use machine::driver::libraries::{Library, open};
use machine::driver::{Gpu, GpuInfo};

/// The oldest GPUs that kernels are compiled for.
const OLDEST: (u32, u32) = (8, 0);

/// The GPUs that this process sees, where all of them can run the cuda backend.
///
/// # Errors
///
/// Where there is no driver or no GPU, where a GPU is older than compute capability 8.0, or where a
/// library is missing that every run needs (NVRTC, cuBLASLt), with what to do.
pub fn gpus() -> Result<Vec<GpuInfo>> {
    let all = Gpu::list()?;
    if let Some(why) = too_old(&all) {
        return Err(Error::failed(why));
    }
    // only where there is a GPU to use them on: they are large
    if !all.is_empty() {
        open(Library::Nvrtc)?;
        open(Library::CublasLt)?;
    }
    Ok(all)
}

/// Why kernels cannot be compiled for one of these, if so.
pub fn too_old(gpus: &[GpuInfo]) -> Option<String> {
    gpus.iter().find(|gpu| gpu.sm < OLDEST).map(|old| {
        format!(
            "GPU {} ({}) has compute capability {}.{}; the cuda backend needs {}.{} or newer",
            old.index, old.name, old.sm.0, old.sm.1, OLDEST.0, OLDEST.1
        )
    })
}
