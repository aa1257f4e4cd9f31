//! Telling a watcher about decode steps, at most ten times a second: rank 0 chooses a step before it
//! begins, every rank hands in its lanes of that step, the main thread makes one event of them.
//!
//! With nobody watching there is none of this.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{RunEvent, StepLanes};
use trace::Span;

/// Least time between two steps that are told of (ns).
const INTERVAL: i64 = 100_000_000;

/// What the ranks share: the step that is wanted next, and the one before, which a rank that is late may
/// not have ended yet.
#[derive(Debug, Default)]
pub(super) struct Watch {
    wanted: AtomicU64,
    before: AtomicU64,
}

/// What a rank says of a step.
#[derive(Debug)]
pub(super) struct Note {
    pub generation: u32,
    /// Decode steps done; 0: the prefill ended.
    pub done: u32,
    /// Steps since the last note of rank 0, and how long they took (ns); 0 of other ranks.
    pub steps: u32,
    pub took_ns: i64,
    /// What it recorded of the step; `None` where nothing is recorded (warm-up).
    pub spans: Option<Vec<Span>>,
}

impl Watch {
    fn key(generation: u32, done: u32) -> u64 {
        u64::from(generation) << 32 | u64::from(done)
    }

    /// Whether the step that has just ended on this rank, the `done`-th, is wanted.
    pub fn wants(&self, rank: u32, generation: u32, done: u32) -> bool {
        let key = Self::key(generation, done);
        let is = |wanted: &AtomicU64| wanted.load(Ordering::Relaxed) == key;
        // rank 0 chose it, and is never late
        is(&self.wanted) || (rank != 0 && is(&self.before))
    }

    fn want(&self, generation: u32, done: u32) {
        let before = self.wanted.swap(Self::key(generation, done), Ordering::Relaxed);
        self.before.store(before, Ordering::Relaxed);
    }
}

/// Rank 0's part: which step to tell of.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When a step was reported last (ns), if one was.
    reported_ns: Option<i64>,
    /// How long a step takes.
    step_ns: i64,
    /// Where the steps that were not told of begin.
    since: (u32, i64),
}

impl Pace {
    /// Before a generation: the first step wanted is the one that will be due. Whether the end of the
    /// prefill should be told is asked when it has ended.
    pub fn begin(&mut self, watch: &Watch, generation: u32, now: i64) {
        watch.want(generation, self.next(0, now));
    }

    /// After the prefill; a note where one is due.
    pub fn prefilled(&mut self, watch: &Watch, generation: u32, now: i64) -> Option<Note> {
        self.since = (0, now);
        let due = self.reported_ns.is_none_or(|reported| now - reported >= INTERVAL);
        if due {
            self.reported_ns = Some(now);
        }
        watch.want(generation, self.next(0, now));
        due.then_some(Note { generation, done: 0, steps: 0, took_ns: 0, spans: None })
    }

    /// After the wanted step; chooses the next one.
    pub fn stepped(&mut self, watch: &Watch, generation: u32, done: u32, now: i64) -> Note {
        let (before, from) = std::mem::replace(&mut self.since, (done, now));
        let (steps, took_ns) = (done.saturating_sub(before), (now - from).max(0));
        if steps > 0 {
            self.step_ns = took_ns / i64::from(steps);
        }
        self.reported_ns = Some(now);
        watch.want(generation, self.next(done, now));
        Note { generation, done, steps, took_ns, spans: None }
    }

    /// The step after `done` steps that ends when something may be told again, the next one at the
    /// earliest. How long a step takes is known once one was told of.
    fn next(&self, done: u32, now: i64) -> u32 {
        let wait = self.reported_ns.map_or(0, |reported| (reported + INTERVAL - now).max(0));
        let steps = if self.step_ns > 0 { (wait + self.step_ns - 1) / self.step_ns } else { 1 };
        done.saturating_add(u32::try_from(steps.max(1)).unwrap_or(u32::MAX))
    }
}

/// The main thread's part: one event of the ranks' notes.
#[derive(Debug)]
pub(super) struct Gather {
    ranks: u32,
    of: u32,
    /// What the ranks noted of one step, until all have.
    notes: Vec<Note>,
}

impl Gather {
    /// For so many ranks and decode steps a generation.
    pub fn new(ranks: u32, of: u32) -> Self {
        Self { ranks, of, notes: Vec::new() }
    }

    /// Takes a note; the event, once all ranks spoke of a step or one speaks of another.
    pub fn take(&mut self, note: Note) -> Option<RunEvent> {
        let same = |there: &Note| (there.generation, there.done) == (note.generation, note.done);
        let before = if self.notes.iter().all(same) { None } else { self.finish() };
        let alone = note.spans.is_none();
        self.notes.push(note);
        if before.is_none() && (alone || self.notes.len() >= self.ranks as usize) {
            return self.finish();
        }
        before
    }

    /// The event of what is there; also called when a generation has ended.
    pub fn finish(&mut self) -> Option<RunEvent> {
        let notes = std::mem::take(&mut self.notes);
        // rank 0 counts steps; without it there is nothing to say
        let first = notes.iter().find(|note| note.steps > 0 || note.done == 0)?;
        let (done, steps, ms) = (first.done, first.steps, first.took_ns as f64 / 1e6);
        let spans: Vec<Span> = notes.into_iter().filter_map(|note| note.spans).flatten().collect();
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
            fast.windows(2).skip(1).all(|pair| pair[1].2 - pair[0].2 >= INTERVAL - 1_000_000),
            "{fast:?}"
        );
    }

    #[test]
    fn one_event_has_the_lanes_of_all_ranks_that_spoke_of_a_step() {
        let note = |done, steps, spans| Note { generation: 0, done, steps, took_ns: 2_000_000, spans };
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
