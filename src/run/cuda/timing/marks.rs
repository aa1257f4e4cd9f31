//! CUDA events that bracket the timed parts of a step.

use super::parts::{Part, Parts};
use crate::cuda::schedule::Place;

/// Timing event of one rank: index into the step's events.
pub type Mark = u32;

/// Events before and after a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bracket {
    pub start: Mark,
    pub end: Mark,
}

/// Timing events of a step. If a part directly follows another on its stream without a wait, they share the
/// event in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    start: Option<Mark>,
    /// Event before each operation of the plan.
    before: Vec<Option<Mark>>,
    /// Event after each operation of the plan.
    after: Vec<Option<Mark>>,
    /// Events around each part; `None` if it is not timed.
    brackets: Vec<Option<Bracket>>,
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
            brackets: Vec::with_capacity(parts.parts.len()),
            count: u32::from(starts),
        };
        for part in &parts.parts {
            let (Some(first), Some(last)) = (part.operations.first(), part.operations.last()) else {
                continue;
            };
            if !is_timed(part) {
                marks.brackets.push(None);
                continue;
            }
            let preceding = part.follows.and_then(|preceding| marks.brackets[preceding]);
            let start = preceding.map_or_else(|| marks.next(), |bracket| bracket.end);
            if preceding.is_none() {
                marks.before[*first as usize] = Some(start);
            }
            let end = marks.next();
            marks.after[*last as usize] = Some(end);
            marks.brackets.push(Some(Bracket { start, end }));
        }
        marks
    }

    fn next(&mut self) -> Mark {
        self.count += 1;
        self.count - 1
    }

    /// Number of events that a step needs.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Event at a place in the schedule, if placed.
    pub fn at(&self, place: Place) -> Option<Mark> {
        let mark = |marks: &[Option<Mark>], operation: usize| marks.get(operation).copied().flatten();
        match place {
            Place::Start => self.start,
            Place::Before(operation) => mark(&self.before, operation),
            Place::After(operation) => mark(&self.after, operation),
        }
    }

    /// Event at the start of the step, if placed.
    pub fn start(&self) -> Option<Mark> {
        self.start
    }

    /// Events around a part; `None` if it is not timed.
    pub fn bracket(&self, part: usize) -> Option<Bracket> {
        self.brackets.get(part).copied().flatten()
    }
}
