//! Progress events for decode steps, at most ten per second: rank 0 chooses a step before it starts, every rank sends
//! its lanes of that step, and the main thread merges them into one event. Without a watcher none of this happens.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{RunEvent, StepLanes};
use trace::Span;

/// Minimum time between two reported steps (ns).
const MIN_REPORT_INTERVAL_NS: i64 = 100_000_000;

/// State shared by the ranks: the next wanted step, and the one before for ranks that are behind.
#[derive(Debug, Default)]
pub(super) struct Watch {
    wanted: AtomicU64,
    before: AtomicU64,
}

#[derive(Debug)]
pub(super) struct StepReport {
    pub generation: u32,
    /// Completed decode steps; 0 means the end of prefill.
    pub done: u32,
    /// Steps since rank 0's last note, and their time (ns); 0 on other ranks.
    pub steps: u32,
    pub took_ns: i64,
    /// Spans of the step; `None` if not recorded (warm-up).
    pub spans: Option<Vec<Span>>,
}

impl Watch {
    fn key(generation: u32, done: u32) -> u64 {
        u64::from(generation) << 32 | u64::from(done)
    }

    /// True if step `done`, which has just ended on this rank, is wanted.
    pub fn wants(&self, rank: u32, generation: u32, done: u32) -> bool {
        let key = Self::key(generation, done);
        let is = |wanted: &AtomicU64| wanted.load(Ordering::Relaxed) == key;
        // rank 0 chooses the step, so it is never behind
        is(&self.wanted) || (rank != 0 && is(&self.before))
    }

    fn want(&self, generation: u32, done: u32) {
        let before = self.wanted.swap(Self::key(generation, done), Ordering::Relaxed);
        self.before.store(before, Ordering::Relaxed);
    }
}

/// Step selection on rank 0.
#[derive(Debug, Default)]
pub(super) struct Pace {
    reported_ns: Option<i64>,
    step_ns: i64,
    since: (u32, i64),
}

impl Pace {
    /// Starts a generation and chooses the first wanted step. The end of prefill is decided when it is reached.
    pub fn begin(&mut self, watch: &Watch, generation: u32, now: i64) {
        watch.want(generation, self.next(0, now));
    }

    pub fn prefilled(&mut self, watch: &Watch, generation: u32, now: i64) -> Option<StepReport> {
        self.since = (0, now);
        let due = self.reported_ns.is_none_or(|reported| now - reported >= MIN_REPORT_INTERVAL_NS);
        if due {
            self.reported_ns = Some(now);
        }
        watch.want(generation, self.next(0, now));
        due.then_some(StepReport { generation, done: 0, steps: 0, took_ns: 0, spans: None })
    }

    pub fn stepped(&mut self, watch: &Watch, generation: u32, done: u32, now: i64) -> StepReport {
        let (before, from) = std::mem::replace(&mut self.since, (done, now));
        let (steps, took_ns) = (done.saturating_sub(before), (now - from).max(0));
        if steps > 0 {
            self.step_ns = took_ns / i64::from(steps);
        }
        self.reported_ns = Some(now);
        watch.want(generation, self.next(done, now));
        StepReport { generation, done, steps, took_ns, spans: None }
    }

    /// Next step to report: the first one that ends after the interval. The step time exists after the first
    /// report.
    fn next(&self, done: u32, now: i64) -> u32 {
        let wait =
            self.reported_ns.map_or(0, |reported| (reported + MIN_REPORT_INTERVAL_NS - now).max(0));
        let steps = if self.step_ns > 0 { (wait + self.step_ns - 1) / self.step_ns } else { 1 };
        done.saturating_add(u32::try_from(steps.max(1)).unwrap_or(u32::MAX))
    }
}

#[derive(Debug)]
pub(super) struct Gather {
    ranks: u32,
    of: u32,
    notes: Vec<StepReport>,
}

impl Gather {
    pub fn new(ranks: u32, of: u32) -> Self {
        Self { ranks, of, notes: Vec::new() }
    }

    /// Adds a note; returns an event once all ranks have reported a step or a later step arrives.
    pub fn take(&mut self, note: StepReport) -> Option<RunEvent> {
        let same = |there: &StepReport| (there.generation, there.done) == (note.generation, note.done);
        let before = if self.notes.iter().all(same) { None } else { self.finish() };
        let alone = note.spans.is_none();
        self.notes.push(note);
        if before.is_none() && (alone || self.notes.len() >= self.ranks as usize) {
            return self.finish();
        }
        before
    }

    /// Returns the event of the collected notes, with lanes if all ranks noted the step; also called at the end of a
    /// generation.
    pub fn finish(&mut self) -> Option<RunEvent> {
        let notes = std::mem::take(&mut self.notes);
        // rank 0 counts the steps; without its note there is no event
        let first = notes.iter().find(|note| note.steps > 0 || note.done == 0)?;
        let (done, steps, ms) = (first.done, first.steps, first.took_ns as f64 / 1e6);
        let is_whole = notes.len() >= self.ranks as usize;
        let notes = notes.into_iter().filter(|_| is_whole);
        let spans: Vec<Span> = notes.filter_map(|note| note.spans).flatten().collect();
        Some(RunEvent::Step { done, of: self.of, steps, ms, lanes: StepLanes::of_step(&spans) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps told of while each takes `step_ns`, over `of` steps, and when.
    fn reported(step_ns: i64, of: u32) -> Vec<(u32, u32, i64)> {
        let (watch, mut pace, mut reported) = (Watch::default(), Pace::default(), Vec::new());
        let mut now = 0;
        for generation in 0..2 {
            pace.begin(&watch, generation, now);
            now += step_ns;
            if let Some(note) = pace.prefilled(&watch, generation, now) {
                reported.push((generation, note.done, now));
            }
            for done in 1..=of {
                now += step_ns;
                if watch.wants(0, generation, done) {
                    let note = pace.stepped(&watch, generation, done, now);
                    assert!(note.steps >= 1 && note.took_ns == i64::from(note.steps) * step_ns);
                    reported.push((generation, done, now));
                }
            }
        }
        reported
    }

    #[test]
    fn slow_steps_are_all_told_and_fast_ones_ten_times_a_second() {
        let slow = reported(300_000_000, 5);
        assert_eq!(slow.len(), 12, "prefill and every step: {slow:?}");
        let fast = reported(1_000_000, 1000);
        let seconds = 2.0 * 1001.0 * 1e-3;
        assert!((fast.len() as f64) <= seconds * 10.0 + 3.0 && fast.len() >= 18, "{fast:?}");
        // all but the first two, which are told to learn how long a step takes
        assert!(
            fast.windows(2)
                .skip(1)
                .all(|pair| pair[1].2 - pair[0].2 >= MIN_REPORT_INTERVAL_NS - 1_000_000),
            "{fast:?}"
        );
    }

    #[test]
    fn one_event_has_the_lanes_of_all_ranks_that_spoke_of_a_step() {
        let note =
            |done, steps, spans| StepReport { generation: 0, done, steps, took_ns: 2_000_000, spans };
        let mut gather = Gather::new(2, 9);
        assert!(gather.take(note(4, 2, Some(Vec::new()))).is_none());
        let event = gather.take(note(4, 0, Some(Vec::new()))).unwrap();
        assert_eq!(event, RunEvent::Step { done: 4, of: 9, steps: 2, ms: 2.0, lanes: Vec::new() });
        // a rank that missed the step holds nothing up
        assert!(gather.take(note(6, 2, Some(Vec::new()))).is_none());
        let event = gather.take(note(8, 2, Some(Vec::new()))).unwrap();
        assert!(matches!(event, RunEvent::Step { done: 6, .. }));
        assert!(matches!(gather.finish(), Some(RunEvent::Step { done: 8, .. })));
        assert!(gather.finish().is_none());
        // nothing recorded: rank 0 alone speaks
        assert!(matches!(gather.take(note(0, 0, None)), Some(RunEvent::Step { done: 0, steps: 0, .. })));
    }
}
