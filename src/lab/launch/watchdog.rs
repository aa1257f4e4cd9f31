//! Ends a process that makes no progress. Whatever hangs (a collective, a graph, a driver call), the run ends within
//! its timeout with a message about its last activity.

use std::sync::Arc;
use std::time::Duration;

use run::comm::Progress;

const LOOK: Duration = Duration::from_millis(100);

/// Time without progress after which the process is ended. Slightly longer than the waits inside the run, whose
/// messages are more precise.
pub(super) fn limit(timeout: Duration) -> Duration {
    timeout + (timeout / 4).min(Duration::from_secs(15))
}

/// Watches `progress` until the process ends. After [`limit`] without progress, calls `end` once with a message.
pub(super) fn start(
    progress: Arc<Progress>,
    timeout: Duration,
    end: impl FnOnce(String) + Send + 'static,
) {
    let limit = limit(timeout);
    // without a thread there is no watchdog, but the run's own waits still time out
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
