//! Which parts of a step events stand around, as few as give each a start and an end.

use super::{Part, Parts};
use crate::cuda::schedule::Place;

/// A timing event of one rank: an index into the events that the engine made for its step.
pub type Mark = u32;

/// The events of a step. Where a part follows another of its stream without waiting for anything in between, the end of
/// the one is the start of the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    /// The event at the step's start, if there is one.
    start: Option<Mark>,
    /// By operation of the plan: the event before it.
    before: Vec<Option<Mark>>,
    /// By operation of the plan: the event after it.
    after: Vec<Option<Mark>>,
    /// By part: the events at which it started and ended.
    of: Vec<Option<(Mark, Mark)>>,
    count: Mark,
}

impl Marks {
    /// Events around those of `parts` that `is_timed` holds of, and at the step's start where `starts`.
    pub fn around(parts: &Parts, starts: bool, is_timed: impl Fn(&Part) -> bool) -> Self {
        let operations = parts.parts.iter().map(|part| part.operations.len()).sum();
        let mut marks = Self {
            start: starts.then_some(0),
            before: vec![None; operations],
            after: vec![None; operations],
            of: Vec::with_capacity(parts.parts.len()),
            count: u32::from(starts),
        };
        for part in &parts.parts {
            let (Some(first), Some(last)) = (part.operations.first(), part.operations.last()) else {
                continue;
            };
            if !is_timed(part) {
                marks.of.push(None);
                continue;
            }
            let before = part.follows.and_then(|before| marks.of[before]);
            let start = before.map_or_else(|| marks.next(), |(_, end)| end);
            if before.is_none() {
                marks.before[*first as usize] = Some(start);
            }
            let end = marks.next();
            marks.after[*last as usize] = Some(end);
            marks.of.push(Some((start, end)));
        }
        marks
    }

    fn next(&mut self) -> Mark {
        self.count += 1;
        self.count - 1
    }

    /// How many events a rank needs.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// The event to record at a place of the step.
    pub fn at(&self, place: Place) -> Option<Mark> {
        let of = |all: &[Option<Mark>], operation: usize| all.get(operation).copied().flatten();
        match place {
            Place::Start => self.start,
            Place::Before(operation) => of(&self.before, operation),
            Place::After(operation) => of(&self.after, operation),
        }
    }

    /// The event at the step's start.
    pub fn start(&self) -> Option<Mark> {
        self.start
    }

    /// The events at which a part started and ended, where it is timed.
    pub fn of(&self, part: usize) -> Option<(Mark, Mark)> {
        self.of.get(part).copied().flatten()
    }
}
