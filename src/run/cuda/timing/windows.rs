//! Which part of a step's operations each replay times.

use std::ops::Range;

use crate::plan::Lane;
use crate::table::Coverage;

/// Windows of a rotation, where there are operations and steps enough. Estimated, not measured: if an
/// event takes 1.5 us of a stream, the smallest operations of a decode step 6 us, and an operation needs
/// 1.3 events, timing everything stretches a step of small operations by a third, an eighth of them by
/// 4%. A record has the stretch that was measured.
const WINDOWS: usize = 8;

/// Operations that a window has at least.
const LEAST: usize = 4;

/// A step's operations, in the plan's order, as contiguous parts. An operation of the comm lane belongs
/// to the part in which it stands, and is timed whole although it may end in another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    ranges: Vec<Range<usize>>,
}

impl Windows {
    /// Parts of the operations whose lanes are `lanes`, for a generation of `steps` decode steps. Every
    /// part but the first begins with an operation of the compute lane; there are no more parts than
    /// steps, so that each is timed, and at least one.
    pub fn new(lanes: &[Lane], coverage: Coverage, steps: usize) -> Self {
        let count = match coverage {
            Coverage::Full => 1,
            Coverage::Rotating => WINDOWS.min(lanes.len() / LEAST).min(steps).max(1),
        };
        Self::split(lanes, count)
    }

    /// Cuts a plan into `count` windows, or fewer where the compute lane has too few operations.
    pub fn split(lanes: &[Lane], count: usize) -> Self {
        let mut ranges = Vec::new();
        let mut start = 0;
        for part in 1..=count.max(1) {
            let mut end = lanes.len() * part / count.max(1);
            while end < lanes.len() && lanes[end] != Lane::Compute {
                end += 1;
            }
            if end > start || (ranges.is_empty() && part == count.max(1)) {
                ranges.push(start..end);
                start = end;
            }
        }
        Self { ranges }
    }

    /// How many replays make up a step.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Never: there is at least one window.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The operations that replay `window` of a round times.
    pub fn range(&self, window: usize) -> Range<usize> {
        self.ranges.get(window).cloned().unwrap_or_default()
    }

    /// All windows, in the order of the plan.
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }
}
