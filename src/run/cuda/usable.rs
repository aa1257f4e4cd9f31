//! Checks whether this machine can run the cuda backend; shared by cells, `generate` and doctor.

use base::error::{Error, Result};
use machine::driver::libraries::{Library, open};
use machine::driver::{Gpu, GpuInfo};

/// Minimum compute capability.
const OLDEST: (u32, u32) = (8, 0);

/// GPUs visible to this process, if all can run the cuda backend.
///
/// # Errors
///
/// Returns an error if there is no driver or no GPU, a GPU is older than compute capability 8.0, or a
/// required library (NVRTC, cuBLASLt) is missing.
pub fn gpus() -> Result<Vec<GpuInfo>> {
    let all = Gpu::list()?;
    if let Some(why) = too_old(&all) {
        return Err(Error::failed(why));
    }
    // load these large libraries only if there is a GPU
    if !all.is_empty() {
        open(Library::Nvrtc)?;
        open(Library::CublasLt)?;
    }
    Ok(all)
}

/// Returns the reason if kernels do not support one of these GPUs.
pub fn too_old(gpus: &[GpuInfo]) -> Option<String> {
    gpus.iter().find(|gpu| gpu.sm < OLDEST).map(|old| {
        format!(
            "GPU {} ({}) has compute capability {}.{}; the cuda backend needs {}.{} or newer",
            old.index, old.name, old.sm.0, old.sm.1, OLDEST.0, OLDEST.1
        )
    })
}
