//! Where the events of a window go: as few as give every operation of it a start and an end.

use std::ops::Range;

use crate::plan::Lane;
use crate::run::cuda::schedule;

/// A timing event of one rank and one window: an index into the events that the engine made for it.
pub type Mark = u32;

/// The events of one window. Where an operation follows another of its lane without waiting for
/// anything in between, the end of the one is the start of the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    window: Range<usize>,
    /// By operation of the plan: the event before it.
    before: Vec<Option<Mark>>,
    /// By operation of the plan: the event after it.
    after: Vec<Option<Mark>>,
    /// By operation of the window.
    start: Vec<Mark>,
    /// By operation of the window.
    end: Vec<Mark>,
    /// Where the next window begins.
    closing: Mark,
    count: u32,
}

impl Marks {
    /// On the compute stream before anything of the step, and before the comm stream is forked off it.
    pub const STEP_START: Mark = schedule::STEP_START;
    /// On the compute stream after everything of the step, the comm stream joined.
    pub const STEP_END: Mark = schedule::STEP_END;

    /// The events of `window`. `lanes` and `waits` are by operation of the plan: the lane of its stream, and whether
    /// its stream waits for an event of another stream right before it.
    pub fn new(lanes: &[Lane], waits: &[bool], window: Range<usize>) -> Self {
        let mut marks = Self {
            before: vec![None; lanes.len()],
            after: vec![None; lanes.len()],
            start: Vec::with_capacity(window.len()),
            end: Vec::with_capacity(window.len()),
            closing: Self::STEP_END,
            count: 2,
            window: window.clone(),
        };
        // the last event of each lane, as long as nothing untimed came after it
        let mut last: [Option<Mark>; 2] = [None; 2];
        for operation in window.clone() {
            let waited = waits.get(operation).copied().unwrap_or(true);
            let last = &mut last[lanes[operation] as usize];
            let start = match *last {
                Some(mark) if !waited => mark,
                _ => {
                    let mark = marks.count;
                    marks.count += 1;
                    marks.before[operation] = Some(mark);
                    mark
                }
            };
            let end = marks.count;
            marks.count += 1;
            marks.after[operation] = Some(end);
            *last = Some(end);
            marks.start.push(start);
            marks.end.push(end);
        }
        // where the next window starts its first operation, this one says when it would have
        if let Some(lane) = lanes.get(window.end) {
            let waited = waits.get(window.end).copied().unwrap_or(true);
            marks.closing = match last[*lane as usize] {
                Some(mark) if !waited => mark,
                _ => {
                    let mark = marks.count;
                    marks.count += 1;
                    marks.before[window.end] = Some(mark);
                    mark
                }
            };
        }
        marks
    }

    /// How many events a rank needs for the window.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// The event to record on the operation's stream after its waits and before its launch.
    pub fn before(&self, operation: usize) -> Option<Mark> {
        self.before.get(operation).copied().flatten()
    }

    /// The event to record on the operation's stream right after its launch.
    pub fn after(&self, operation: usize) -> Option<Mark> {
        self.after.get(operation).copied().flatten()
    }

    /// The event at which an operation of the window started, and the one at which it ended.
    pub fn of(&self, operation: usize) -> Option<(Mark, Mark)> {
        let at = operation.checked_sub(self.window.start)?;
        Some((*self.start.get(at)?, *self.end.get(at)?))
    }

    /// The event at which the window began: the first operation's start; of the step's
    /// first window the step's.
    pub fn opening(&self) -> Mark {
        match self.window.start {
            0 => Self::STEP_START,
            _ => self.start.first().copied().unwrap_or(Self::STEP_START),
        }
    }

    /// The event at which the next window would have begun; of the step's last window the step's end.
    pub fn closing(&self) -> Mark {
        self.closing
    }
}
