//! Named ranges of one thread and depth: they do not overlap, so a row of them is an ordered list.

use super::row::nearer;
use crate::face::tui::screens::timeline::state::window::Window;
use trace::Range;

/// A row of ranges.
#[derive(Clone, Debug)]
pub struct RangeRow {
    /// The rank on which the ranges were pushed.
    pub rank: u32,
    /// Number of the thread within the rank.
    pub thread: u16,
    /// Nesting: 0 is outermost.
    pub depth: u16,
    /// Indices into the trace's ranges, by start.
    order: Vec<u32>,
}

impl RangeRow {
    /// A row of these ranges (indices into all), in any order.
    pub fn new(rank: u32, thread: u16, depth: u16, mut order: Vec<u32>, all: &[Range]) -> Self {
        order.sort_by_key(|i| all[*i as usize].start_ns);
        order.shrink_to_fit();
        Self { rank, thread, depth, order }
    }

    /// How many ranges it has.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Bytes of the index, without the ranges.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.order.capacity() * size_of::<u32>()
    }

    /// The index in the trace of the range at a place.
    pub fn range(&self, place: usize) -> Option<usize> {
        self.order.get(place).map(|i| *i as usize)
    }

    /// How many start before the time.
    fn before(&self, all: &[Range], time: i64) -> usize {
        self.order.partition_point(|i| all[*i as usize].start_ns < time)
    }

    /// The place of the range nearest to the time.
    pub fn nearest(&self, all: &[Range], time: i64) -> usize {
        let next = self.before(all, time.saturating_add(1));
        nearer(next, time, |place| self.range(place).map(|i| (all[i].start_ns, all[i].end_ns)))
    }

    /// Of each column of the window, the places that start in it; and the place of the range that runs
    /// on from before the window, if there is one.
    pub fn columns(
        &self,
        all: &[Range],
        window: Window,
        columns: usize,
    ) -> (Option<usize>, Vec<(usize, usize)>) {
        let mut first = self.before(all, window.from);
        let running = first
            .checked_sub(1)
            .filter(|place| self.range(*place).is_some_and(|i| all[i].end_ns > window.from));
        let places = (0..columns)
            .map(|column| {
                let to = window.time(column + 1, columns);
                let next =
                    first + self.order[first..].partition_point(|i| all[*i as usize].start_ns < to);
                (std::mem::replace(&mut first, next), next)
            })
            .collect();
        (running, places)
    }
}
