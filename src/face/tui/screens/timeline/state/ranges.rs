//! Row of named ranges of one thread and depth; they never overlap, so the row is an ordered list.

use super::row::nearer;
use crate::face::tui::screens::timeline::state::window::Window;
use trace::Range;

#[derive(Clone, Debug)]
pub struct RangeRow {
    pub rank: u32,
    /// Thread number within the rank.
    pub thread: u16,
    /// Nesting depth; 0 is outermost.
    pub depth: u16,
    /// Indices into the trace's ranges, by start.
    order: Vec<u32>,
}

impl RangeRow {
    /// Creates a row of ranges, given as indices into `all` in any order.
    pub fn new(rank: u32, thread: u16, depth: u16, mut order: Vec<u32>, all: &[Range]) -> Self {
        order.sort_by_key(|i| all[*i as usize].start_ns);
        order.shrink_to_fit();
        Self { rank, thread, depth, order }
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Memory used without the ranges, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.order.capacity() * size_of::<u32>()
    }

    pub fn range(&self, place: usize) -> Option<usize> {
        self.order.get(place).map(|i| *i as usize)
    }

    /// Number of ranges that start before a time.
    fn before(&self, all: &[Range], time: i64) -> usize {
        self.order.partition_point(|i| all[*i as usize].start_ns < time)
    }

    pub fn nearest(&self, all: &[Range], time: i64) -> usize {
        let next = self.before(all, time.saturating_add(1));
        nearer(next, time, |place| self.range(place).map(|i| (all[i].start_ns, all[i].end_ns)))
    }

    /// Positions of the ranges that start in each column, and of the range that continues from before
    /// the window, if any.
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
