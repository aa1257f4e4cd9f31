//! Ends a run's process that makes no progress: whatever hangs (a collective, a graph, a call into a
//! driver), the run ends within its time-out and says what it was doing.

use std::sync::Arc;
use std::time::Duration;

use run::comm::Progress;

/// How often the watchdog looks for progress.
const LOOK: Duration = Duration::from_millis(100);

/// After so long without progress the process is ended. A little more than what waits inside of the run
/// take: those say more precisely what hangs.
pub(super) fn limit(timeout: Duration) -> Duration {
    timeout + (timeout / 4).min(Duration::from_secs(15))
}

/// Watches `progress` until the process ends; without any for longer than [`limit`], calls `end` with
/// what is to be said, once.
pub(super) fn start(
    progress: Arc<Progress>,
    timeout: Duration,
    end: impl FnOnce(String) + Send + 'static,
) {
    let limit = limit(timeout);
    // without a thread there is no watchdog; the run's own waits still end
    let _ = std::thread::Builder::new().name("watchdog".into()).spawn(move || {
        while progress.silence() <= limit {
            std::thread::sleep(LOOK.min(limit / 4));
        }
        end(format!(
            "no progress for {:.0} s ({}); the run ends itself (--timeout gives it longer)",
            progress.silence().as_secs_f64(),
            progress.describe()
        ));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_what_stands_still_and_says_what_that_was() {
        let progress = Arc::new(Progress::default());
        let (sender, abandoned) = crossbeam_channel::bounded(1);
        let timeout = Duration::from_millis(200);
        start(Arc::clone(&progress), timeout, move |why| {
            let _ = sender.send(why);
        });
        for step in 0..8 {
            progress.of_rank(1, &format!("decode step {step}"));
            assert!(abandoned.recv_timeout(timeout / 4).is_err(), "it goes on");
        }
        let why = abandoned.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(why.starts_with("no progress for 0 s (rank 1: decode step 7); the run ends"), "{why}");
    }
}
