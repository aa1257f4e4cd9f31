//! Accounting of a rank's lanes over the simulated decode phase: busy times, and the overlap of the run's record.

use super::lanes::SimulatedOperation;
use plan::Lane;
use table::{Overlap, Split, overlap_pct};

/// Busy times of a rank's two serial lanes (ns), summed in whole nanoseconds, so that they equal those of the trace's
/// decode phase exactly. The phase begins at the end of prefill. They saturate on an extremely slow link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LaneTimes {
    compute: i64,
    comm: i64,
    both: i64,
    /// Part of `both` in which the collective waited for a peer.
    both_waiting: i64,
    /// Comm lane busy before the last rank had arrived.
    waiting: i64,
    work: i64,
    /// Begin of the phase; the first event's start if unknown.
    begin: Option<i64>,
    span: Option<(i64, i64)>,
}

impl LaneTimes {
    /// Times of a phase that begins at `ns`.
    pub(super) fn since(ns: i64) -> Self {
        Self { begin: Some(ns), ..Self::default() }
    }

    /// Adds an event; [`Self::add_overlap`] adds its overlap with the other lane.
    #[inline]
    pub(super) fn count(&mut self, event: &SimulatedOperation) {
        let begin = self.begin.unwrap_or(event.start);
        let (first, last) = self.span.unwrap_or((begin, event.end));
        self.span = Some((first.min(event.start), last.max(event.end)));
        match event.lane {
            Lane::Compute => {
                self.compute = self.compute.saturating_add(event.end - event.start);
                self.work = self.work.saturating_add(event.work);
            }
            Lane::Comm => {
                self.comm = self.comm.saturating_add(event.end - event.start);
                self.waiting = self.waiting.saturating_add(event.arrival - event.start);
            }
        }
    }

    /// Adds time with both lanes busy, and the part of it in which the collective waited for a peer.
    pub(super) fn add_overlap(&mut self, both: i64, waiting: i64) {
        self.both = self.both.saturating_add(both);
        self.both_waiting = self.both_waiting.saturating_add(waiting);
    }

    /// Repeats the step added since `before` another `times` times, `ns` in total, because identical steps are
    /// simulated once.
    pub(super) fn repeat(&mut self, before: &Self, times: i64, ns: i64) {
        let more = |now: &mut i64, then: i64| {
            *now = now.saturating_add(times.saturating_mul(now.saturating_sub(then)))
        };
        more(&mut self.compute, before.compute);
        more(&mut self.comm, before.comm);
        more(&mut self.both, before.both);
        more(&mut self.both_waiting, before.both_waiting);
        more(&mut self.waiting, before.waiting);
        more(&mut self.work, before.work);
        if let Some((_, last)) = &mut self.span {
            *last = last.saturating_add(ns);
        }
    }

    /// Overlap of the decode phase; `None` without events.
    pub(super) fn overlap(&self) -> Option<Overlap> {
        let (first, last) = self.span?;
        let ms = |ns: i64| ns as f64 / 1e6;
        let exposed = self.comm - self.both;
        let waiting = self.waiting - self.both_waiting;
        let work_ms = ms(self.work);
        Some(Overlap {
            comm_ms: ms(self.comm),
            exposed_comm_ms: ms(exposed),
            overlap_pct: overlap_pct(exposed as f64, self.comm as f64),
            compute_ms: ms(self.compute),
            idle_ms: ms((last - first).saturating_sub(self.compute.saturating_add(exposed)).max(0)),
            peer_wait_ms: None,
            split: Some(Split {
                work_ms,
                contention_ms: ms(self.compute) - work_ms,
                peer_wait_ms: ms(waiting),
                transfer_ms: ms(exposed - waiting),
            }),
        })
    }
}

/// Mean overlap of ranks; `None` without events.
pub(super) fn mean_overlap<'a>(ranks: impl Iterator<Item = &'a LaneTimes>) -> Option<Overlap> {
    Overlap::mean(&ranks.map(LaneTimes::overlap).collect::<Option<Vec<_>>>()?)
}
