//! Cores of a run's threads.

use crate::comm::SpinWait;

/// Cores of all threads of a run. With fewer cores than threads nothing is pinned and waiting threads sleep at once;
/// waking them costs tens of microseconds per collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CorePlacement {
    /// Cores of each rank's threads; empty if not pinned.
    cores: Vec<Vec<usize>>,
}

impl CorePlacement {
    /// Places `ranks` ranks of `threads` threads each on the cores that this process may use.
    pub fn for_this_process(ranks: usize, threads: u32) -> Self {
        Self::on_cores(&allowed(), ranks, threads)
    }

    /// Leaves placement to the system, for several unmeasured groups of ranks.
    pub fn unpinned() -> Self {
        Self { cores: Vec::new() }
    }

    pub fn on_cores(cores: &[usize], ranks: usize, threads: u32) -> Self {
        let threads = threads as usize;
        let cores = match cores.len() >= ranks * threads {
            true => cores.chunks_exact(threads.max(1)).take(ranks).map(<[usize]>::to_vec).collect(),
            false => Vec::new(),
        };
        Self { cores }
    }

    pub fn pin_this_thread(&self, rank: u32, number: u32) {
        if let Some(core) = self.cores.get(rank as usize).and_then(|cores| cores.get(number as usize)) {
            pin(*core);
        }
    }

    pub fn spin_wait(&self) -> SpinWait {
        if self.cores.is_empty() { SpinWait::default() } else { SpinWait::with_own_core() }
    }

    pub fn describe(&self) -> String {
        if self.cores.is_empty() {
            return "not pinned: fewer cores than threads, so waiting threads sleep".into();
        }
        let ranks = self.cores.iter().enumerate();
        let text: Vec<String> = ranks
            .map(|(rank, cores)| {
                let numbers: Vec<String> = cores.iter().map(ToString::to_string).collect();
                let cores = if cores.len() == 1 { "core" } else { "cores" };
                format!("rank {rank}: compute on {cores} {}", numbers.join(", "))
            })
            .collect();
        text.join("; ")
    }
}

#[cfg(target_os = "linux")]
fn allowed() -> Vec<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

#[cfg(target_os = "linux")]
fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    // if pinning is forbidden, the kernel schedules as usual
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

#[cfg(not(target_os = "linux"))]
fn allowed() -> Vec<usize> {
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
fn pin(_: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_pinned_and_spin_where_each_has_a_core() {
        assert_eq!(CorePlacement::on_cores(&[0, 1, 2, 5], 2, 1).cores, [[0], [1]]);
        assert_eq!(CorePlacement::on_cores(&[0, 1, 2, 5], 2, 2).cores, [[0, 1], [2, 5]]);
        let few = CorePlacement::on_cores(&[3, 7, 9], 2, 2);
        assert!(few.cores.is_empty() && few.spin_wait() == SpinWait::default());
        assert_eq!(CorePlacement::on_cores(&[0, 1], 1, 2).spin_wait(), SpinWait::with_own_core());
        assert_eq!(CorePlacement::on_cores(&[0, 1], 1, 2).describe(), "rank 0: compute on cores 0, 1");
    }
}
