//! Progress of a run's ranks, and the watchdog that ends a run without any. Whatever hangs (a collective, a graph, a
//! driver call), the run ends within its timeout with a message about its last activity.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Poll interval of the watchdog.
const LOOK: Duration = Duration::from_millis(100);

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

/// Watches until the process ends. After `timeout` without progress, and a margin because the waits inside the run
/// have more precise messages, calls `end` once with a message.
pub fn start_watchdog(
    progress: Arc<Progress>,
    timeout: Duration,
    end: impl FnOnce(String) + Send + 'static,
) {
    let limit = timeout + (timeout / 4).min(Duration::from_secs(15));
    // without a thread there is no watchdog, but the run's own waits still time out
    let _ = std::thread::Builder::new().name("watchdog".into()).spawn(move || {
        while progress.silence() <= limit {
            std::thread::sleep(LOOK.min(limit / 4));
        }
        end(format!(
            "no progress for {:.0} s ({}); ending the run (raise the limit with --timeout)",
            progress.silence().as_secs_f64(),
            progress.describe()
        ));
    });
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

    #[test]
    fn it_ends_what_stands_still_and_says_what_that_was() {
        let progress = Arc::new(Progress::default());
        let (sender, abandoned) = crossbeam_channel::bounded(1);
        let timeout = Duration::from_millis(200);
        start_watchdog(Arc::clone(&progress), timeout, move |why| {
            let _ = sender.send(why);
        });
        for step in 0..8 {
            progress.of_rank(1, &format!("decode step {step}"));
            assert!(abandoned.recv_timeout(timeout / 4).is_err(), "it goes on");
        }
        let why = abandoned.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(why.starts_with("no progress for 0 s (rank 1: decode step 7); ending the run"), "{why}");
    }
}
