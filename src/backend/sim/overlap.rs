//! Overlap of one rank's lanes, summed while the simulation goes on.
//!
//! Times are the nanoseconds that a trace of the run has, so that what is said of a run and what is
//! found in its trace are the same to the last digit.

use super::lanes::{Event, nanoseconds};
use crate::plan::Lane;
use crate::store;

/// Busy times of two lanes, each of which does one thing at a time, in order (ns).
#[derive(Debug, Default)]
pub(super) struct Overlap {
    compute: i64,
    comm: i64,
    both: i64,
    /// First start and last end.
    span: Option<(i64, i64)>,
    /// Intervals that the other lane may still meet.
    open_compute: Vec<(i64, i64)>,
    open_comm: Vec<(i64, i64)>,
}

impl Overlap {
    pub(super) fn add(&mut self, event: &Event) {
        let (start, end) = (nanoseconds(event.start), nanoseconds(event.end));
        let (first, last) = self.span.unwrap_or((start, end));
        self.span = Some((first.min(start), last.max(end)));
        match event.lane {
            Lane::Compute => {
                self.compute += end - start;
                self.open_compute.push((start, end));
            }
            Lane::Comm => {
                self.comm += end - start;
                self.open_comm.push((start, end));
            }
        }
    }

    /// Settles what has been added since the last call. To be called between steps: all that follows
    /// on the compute lane starts after all that was added to it.
    pub(super) fn settle(&mut self) {
        let horizon = self.open_compute.last().map_or(i64::MIN, |last| last.1);
        let mut from = 0;
        for &(start, end) in &self.open_comm {
            // compute intervals that end before this one starts meet no later one either
            while self.open_compute.get(from).is_some_and(|compute| compute.1 <= start) {
                from += 1;
            }
            for compute in self.open_compute[from..].iter().take_while(|compute| compute.0 < end) {
                self.both += (end.min(compute.1) - start.max(compute.0)).max(0);
            }
        }
        // a transfer that outlives its step meets the next step's compute with what is left of it
        self.open_comm.retain_mut(|comm| {
            comm.0 = comm.0.max(horizon);
            comm.0 < comm.1
        });
        self.open_compute.clear();
    }

    /// The record's overlap; `None` if nothing was added.
    pub(super) fn finish(mut self) -> Option<store::Overlap> {
        self.settle();
        let (first, last) = self.span?;
        let ms = |ns: i64| ns as f64 / 1e6;
        let exposed = self.comm - self.both;
        Some(store::Overlap {
            comm_ms: ms(self.comm),
            exposed_comm_ms: ms(exposed),
            overlap_pct: (self.comm > 0).then(|| 100.0 * (1.0 - exposed as f64 / self.comm as f64)),
            compute_ms: ms(self.compute),
            idle_ms: ms(last - first - (self.compute + self.comm - self.both)),
        })
    }
}
