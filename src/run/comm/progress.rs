//! Progress of a run's ranks, for the watchdog and its error message.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct Progress {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    latest: Instant,
    phase: String,
    ranks: BTreeMap<usize, String>,
}

impl Default for Progress {
    fn default() -> Self {
        let state = State { latest: Instant::now(), phase: String::new(), ranks: BTreeMap::new() };
        Self { state: Mutex::new(state) }
    }
}

impl Progress {
    pub fn of_rank(&self, rank: usize, what: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.latest = Instant::now();
        state.ranks.insert(rank, what.to_owned());
    }

    pub fn of_run(&self, phase: Option<&str>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.latest = Instant::now();
        if let Some(phase) = phase {
            state.phase = phase.to_owned();
        }
    }

    /// Time since the latest progress.
    pub fn silence(&self) -> Duration {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).latest.elapsed()
    }

    /// Current activity: `sample 3/10; rank 0: decode step 17, rank 1: decode step 16`.
    pub fn describe(&self) -> String {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let ranks: Vec<String> =
            state.ranks.iter().map(|(rank, what)| format!("rank {rank}: {what}")).collect();
        let parts = [state.phase.clone(), ranks.join(", ")];
        let known: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        if known.is_empty() { "it had not begun".into() } else { known.join("; ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_tells_what_every_rank_was_doing() {
        let progress = Progress::default();
        assert_eq!(progress.describe(), "it had not begun");
        std::thread::sleep(Duration::from_millis(30));
        assert!(progress.silence() >= Duration::from_millis(30));
        progress.of_run(Some("sample 3/10"));
        progress.of_rank(1, "prefill");
        progress.of_rank(0, "decode step 17");
        progress.of_run(None);
        assert!(progress.silence() < Duration::from_millis(30));
        assert_eq!(progress.describe(), "sample 3/10; rank 0: decode step 17, rank 1: prefill");
    }
}
