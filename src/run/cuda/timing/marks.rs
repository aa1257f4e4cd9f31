//! CUDA events that bracket the timed parts of a step.

use super::parts::{StreamSegment, StreamSegments};
use crate::cuda::schedule::EventPosition;

/// Timing event of one rank: index into the step's events.
pub type EventIndex = u32;

/// Events before and after a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bracket {
    pub start: EventIndex,
    pub end: EventIndex,
}

/// Timing events of a step. If a part directly follows another on its stream without a wait, they share the
/// event in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepEvents {
    start: Option<EventIndex>,
    /// Event before each operation of the plan.
    before: Vec<Option<EventIndex>>,
    /// Event after each operation of the plan.
    after: Vec<Option<EventIndex>>,
    /// Events around each part; `None` if it is not timed.
    brackets: Vec<Option<Bracket>>,
    count: EventIndex,
}

impl StepEvents {
    /// Places events around the parts selected by `is_timed`, and at the start of the step if `starts`.
    pub fn around(
        parts: &StreamSegments,
        starts: bool,
        is_timed: impl Fn(&StreamSegment) -> bool,
    ) -> Self {
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

    fn next(&mut self) -> EventIndex {
        self.count += 1;
        self.count - 1
    }

    /// Number of events that a step needs.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Event at a place in the schedule, if placed.
    pub fn at(&self, place: EventPosition) -> Option<EventIndex> {
        let mark =
            |marks: &[Option<EventIndex>], operation: usize| marks.get(operation).copied().flatten();
        match place {
            EventPosition::Start => self.start,
            EventPosition::Before(operation) => mark(&self.before, operation),
            EventPosition::After(operation) => mark(&self.after, operation),
        }
    }

    /// Event at the start of the step, if placed.
    pub fn start(&self) -> Option<EventIndex> {
        self.start
    }

    /// Events around a part; `None` if it is not timed.
    pub fn bracket(&self, part: usize) -> Option<Bracket> {
        self.brackets.get(part).copied().flatten()
    }
}
