//! Which core each thread runs on.
//!
//! Threads are pinned, so that runs can be compared and a rank's two threads do not chase each other.
//! With two cores a rank, compute and communication have one each; with fewer, a rank's threads share
//! one, and the compute thread steps aside for a moment whenever it posts a collective (the kernel
//! may otherwise let the communication thread wait for a whole time slice). With fewer cores than
//! ranks nothing is pinned.

/// The cores of all ranks' threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    /// For each rank its compute thread's and its communication thread's core; empty: not pinned.
    cores: Vec<(usize, usize)>,
}

impl Placement {
    /// For `ranks` ranks on the cores that this process may use.
    pub fn here(ranks: usize) -> Self {
        Self::on(&allowed(), ranks)
    }

    /// Threads go where the system puts them: for several groups of ranks at once, of which nobody measures one.
    pub fn free() -> Self {
        Self { cores: Vec::new() }
    }

    fn on(cores: &[usize], ranks: usize) -> Self {
        let cores = match cores.len() {
            n if n >= 2 * ranks => (0..ranks).map(|r| (cores[2 * r], cores[2 * r + 1])).collect(),
            n if n >= ranks => (0..ranks).map(|r| (cores[r], cores[r])).collect(),
            _ => Vec::new(),
        };
        Self { cores }
    }

    /// Pins the calling compute thread.
    pub fn compute(&self, rank: u32) {
        if let Some((core, _)) = self.cores.get(rank as usize) {
            pin(*core);
        }
    }

    /// Pins the calling communication thread.
    pub fn comm(&self, rank: u32) {
        if let Some((_, core)) = self.cores.get(rank as usize) {
            pin(*core);
        }
    }

    /// Whether a rank's compute thread must step aside for its communication thread.
    pub fn shares_cores(&self) -> bool {
        self.cores.iter().all(|(compute, comm)| compute == comm)
    }

    /// The placement in words, for the record's environment.
    pub fn describe(&self) -> String {
        if self.cores.is_empty() {
            return "not pinned: fewer cores than ranks".into();
        }
        let ranks = self.cores.iter().enumerate();
        let text: Vec<String> = ranks
            .map(|(rank, (compute, comm))| {
                format!("rank {rank}: compute on core {compute}, comm on {comm}")
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
    fn cores_are_shared_only_where_they_are_few() {
        assert_eq!(Placement::on(&[0, 1, 2, 5], 2).cores, [(0, 1), (2, 5)]);
        assert_eq!(Placement::on(&[3, 7, 9], 2).cores, [(3, 3), (7, 7)]);
        assert!(Placement::on(&[3, 7, 9], 2).shares_cores());
        assert_eq!(Placement::on(&[0], 2).cores, []);
        assert!(Placement::on(&[0], 2).shares_cores());
        assert!(!Placement::on(&[0, 1], 1).shares_cores());
    }
}
