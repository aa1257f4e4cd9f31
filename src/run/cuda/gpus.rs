//! GPUs of this machine, and whether they can run the cuda backend.

use std::sync::OnceLock;

use crate::launcher;
use base::error::{Error, Result};
use machine::driver::libraries::{Library, open};
use machine::driver::{Gpu, GpuInfo};

#[derive(Clone, Debug)]
pub struct Gpus {
    /// Usable GPUs, or the reason why there are none.
    pub found: Result<Vec<GpuInfo>, String>,
    /// Number of ranks started by a launcher, or the problem with its variables; `None` without a launcher.
    pub launched: Result<Option<usize>, String>,
}

impl Gpus {
    /// Queried once: the set of GPUs does not change within a process.
    pub fn of_machine() -> &'static Self {
        static FOUND: OnceLock<Gpus> = OnceLock::new();
        FOUND.get_or_init(|| Self {
            found: usable().map_err(|e| e.to_string()),
            launched: launcher::of_process()
                .map(|launched| launched.map(|launched| launched.meeting.ranks))
                .map_err(|e| e.to_string()),
        })
    }

    /// GPU with the least memory, which limits all ranks.
    pub fn smallest(&self) -> Option<&GpuInfo> {
        self.found.iter().flatten().min_by_key(|gpu| gpu.memory_bytes)
    }
}

/// Fictitious GPUs for tests.
#[cfg(test)]
pub fn made_up(count: usize, memory_bytes: u64) -> Gpus {
    let gpu = |index| GpuInfo {
        index,
        name: "NVIDIA H200".into(),
        sm: (9, 0),
        multiprocessors: 132,
        memory_bytes,
        l2_bytes: 50 << 20,
        shared_per_block: 227 << 10,
        driver_api: 13_000,
        uuid: format!("GPU-{index}"),
        pci: String::new(),
        clock_khz: 0,
    };
    Gpus { found: Ok((0..count).map(gpu).collect()), launched: Ok(None) }
}

/// Minimum compute capability.
const OLDEST: (u32, u32) = (8, 0);

/// GPUs visible to this process, if all can run the cuda backend.
///
/// # Errors
///
/// Returns an error if there is no driver or no GPU, a GPU is older than compute capability 8.0, or a
/// required library (NVRTC, cuBLASLt) is missing.
pub fn usable() -> Result<Vec<GpuInfo>> {
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
