//! Placement of timing events: as few as give each timed part a start and an end.

use super::{Part, Parts};
use crate::cuda::schedule::Place;

/// Timing event of one rank: index into the step's events.
pub type Mark = u32;

/// Timing events of a step. If a part directly follows another on its stream without a wait, they share the
/// event in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    start: Option<Mark>,
    /// Event before each operation of the plan.
    before: Vec<Option<Mark>>,
    after: Vec<Option<Mark>>,
    /// Start and end event of each part.
    of: Vec<Option<(Mark, Mark)>>,
    count: Mark,
}

impl Marks {
    /// Places events around the parts selected by `is_timed`, and at the start of the step if `starts`.
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

    pub fn count(&self) -> usize {
        self.count as usize
    }

    pub fn at(&self, place: Place) -> Option<Mark> {
        let of = |all: &[Option<Mark>], operation: usize| all.get(operation).copied().flatten();
        match place {
            Place::Start => self.start,
            Place::Before(operation) => of(&self.before, operation),
            Place::After(operation) => of(&self.after, operation),
        }
    }

    pub fn start(&self) -> Option<Mark> {
        self.start
    }

    pub fn of(&self, part: usize) -> Option<(Mark, Mark)> {
        self.of.get(part).copied().flatten()
    }
}
