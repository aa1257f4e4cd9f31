//! Operators and calls of a file that the trace keeps as [`HostWork`]: the first in time, up to a limit, so that large
//! files do not need more memory.

use super::table::LaunchCall;
use crate::{HostWork, Range};

#[derive(Clone, Debug, Default)]
pub(super) struct HostEvents {
    /// Kept events; `thread` and `name` are numbers of the file's table.
    pub(super) kept: Vec<Range>,
    /// Number of later events that were not kept.
    pub(super) left_out: u64,
}

impl HostEvents {
    /// Keeps the earliest operators and launch calls of a file, up to [`HostWork::MOST`].
    pub(super) fn new(operators: &[Range], launches: &[LaunchCall]) -> Self {
        let of_call = |call: &LaunchCall| Range {
            rank: 0,
            on_device: false,
            thread: call.thread,
            depth: 0,
            name: call.name,
            start_ns: call.start_ns,
            end_ns: call.end_ns,
        };
        let all = operators.iter().copied().chain(launches.iter().map(of_call));
        let end = start_after(all.clone(), HostWork::MOST);
        let kept: Vec<Range> = all.filter(|event| is_before(event, end)).collect();
        let left_out = (operators.len() + launches.len() - kept.len()) as u64;
        Self { kept, left_out }
    }

    /// Keeps only the earliest events, `most` of them at the maximum.
    pub(super) fn keep_first(&mut self, most: usize) {
        let (end, count) = (start_after(self.kept.iter().copied(), most), self.kept.len());
        self.kept.retain(|event| is_before(event, end));
        self.left_out += (count - self.kept.len()) as u64;
    }
}

/// Start of the earliest event after the first `most`; `None` if there are no more events.
fn start_after(events: impl Iterator<Item = Range>, most: usize) -> Option<i64> {
    let mut starts: Vec<i64> = events.map(|event| event.start_ns).collect();
    (starts.len() > most).then(|| *starts.select_nth_unstable(most).1)
}

fn is_before(event: &Range, end: Option<i64>) -> bool {
    end.is_none_or(|end| event.start_ns < end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_events_are_kept_and_the_rest_is_counted() {
        let event = |start_ns: i64| Range {
            rank: 0,
            on_device: false,
            thread: 0,
            depth: 0,
            name: 0,
            start_ns,
            end_ns: start_ns + 1,
        };
        let events = [50, 10, 30, 20, 40].map(event);
        let mut host = HostEvents::new(&events, &[]);
        assert_eq!((host.kept.len(), host.left_out), (5, 0));
        host.keep_first(5);
        assert_eq!(host.kept.len(), 5);
        host.keep_first(2);
        assert_eq!((host.kept, host.left_out), ([10, 20].map(event).to_vec(), 3));
    }
}
