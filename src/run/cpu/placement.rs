//! Which core each thread runs on.
//!
//! Threads are pinned, so that runs can be compared, and spin for a moment before they sleep where they wait for one
//! another. With fewer cores than threads nothing is pinned, and whoever waits sleeps at once: it keeps nobody from
//! computing, and waking it takes tens of microseconds for each collective.

use crate::comm::Patience;

/// The cores of all ranks' threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    /// For each rank its threads' cores; empty: not pinned.
    cores: Vec<Vec<usize>>,
}

impl Placement {
    /// For `ranks` ranks of so many threads on the cores that this process may use.
    pub fn here(ranks: usize, threads: u32) -> Self {
        Self::on(&allowed(), ranks, threads)
    }

    /// Threads go where the system puts them: for several groups of ranks at once, of which nobody measures one.
    pub fn free() -> Self {
        Self { cores: Vec::new() }
    }

    pub(super) fn on(cores: &[usize], ranks: usize, threads: u32) -> Self {
        let threads = threads as usize;
        let cores = match cores.len() >= ranks * threads {
            true => cores.chunks_exact(threads.max(1)).take(ranks).map(<[usize]>::to_vec).collect(),
            false => Vec::new(),
        };
        Self { cores }
    }

    /// Pins the calling thread, one of a rank's.
    pub fn compute(&self, rank: u32, number: u32) {
        if let Some(core) = self.cores.get(rank as usize).and_then(|cores| cores.get(number as usize)) {
            pin(*core);
        }
    }

    /// How long threads that wait for one another spin.
    pub fn patience(&self) -> Patience {
        if self.cores.is_empty() { Patience::default() } else { Patience::of_own_core() }
    }

    /// The placement in words, for the record's environment.
    pub fn describe(&self) -> String {
        if self.cores.is_empty() {
            return "not pinned: fewer cores than threads, which sleep where they wait for one another"
                .into();
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
    // where it is forbidden, the kernel schedules as it likes
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
        assert_eq!(Placement::on(&[0, 1, 2, 5], 2, 1).cores, [[0], [1]]);
        assert_eq!(Placement::on(&[0, 1, 2, 5], 2, 2).cores, [[0, 1], [2, 5]]);
        let few = Placement::on(&[3, 7, 9], 2, 2);
        assert!(few.cores.is_empty() && few.patience() == Patience::default());
        assert_eq!(Placement::on(&[0, 1], 1, 2).patience(), Patience::of_own_core());
        assert_eq!(Placement::on(&[0, 1], 1, 2).describe(), "rank 0: compute on cores 0, 1");
    }
}
