//! GPUs of this machine, as far as they decide the feasibility of a cell.

use std::sync::OnceLock;

use super::usable;
use crate::launcher;
use machine::driver::GpuInfo;

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
            found: usable::gpus().map_err(|e| e.to_string()),
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
