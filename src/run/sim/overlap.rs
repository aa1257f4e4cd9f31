//! Overlap of one rank's lanes, summed during the simulation in whole nanoseconds, so that it equals the overlap of
//! the run's trace to the last digit.

use super::lanes::Event;
use plan::Lane;

/// Busy times of two serial lanes (ns).
#[derive(Debug, Default)]
pub(super) struct Overlap {
    compute: i64,
    comm: i64,
    both: i64,
    /// Time with both lanes busy while the collective waited for a peer.
    both_waiting: i64,
    /// Comm lane busy before the last rank had arrived.
    waiting: i64,
    work: i64,
    span: Option<(i64, i64)>,
    /// Intervals that may still overlap with the other lane; for comm with the last arrival.
    open_compute: Vec<(i64, i64)>,
    open_comm: Vec<(i64, i64, i64)>,
}

impl Overlap {
    /// Adds an event without its overlap; the caller adds that with [`Self::meet`].
    #[inline]
    pub(super) fn count(&mut self, event: &Event) {
        let (first, last) = self.span.unwrap_or((event.start, event.end));
        self.span = Some((first.min(event.start), last.max(event.end)));
        match event.lane {
            Lane::Compute => {
                self.compute = self.compute.saturating_add(event.end - event.start);
                self.work = self.work.saturating_add(event.work);
            }
            Lane::Comm => self.comm = self.comm.saturating_add(event.end - event.start),
        }
    }

    pub(super) fn meet(&mut self, ns: i64) {
        self.both = self.both.saturating_add(ns);
    }

    /// Adds an event; [`Self::settle`] computes its overlap.
    pub(super) fn add(&mut self, event: &Event) {
        let (start, end) = (event.start, event.end);
        let (first, last) = self.span.unwrap_or((start, end));
        self.span = Some((first.min(start), last.max(end)));
        match event.lane {
            Lane::Compute => {
                self.compute = self.compute.saturating_add(end - start);
                self.work = self.work.saturating_add(event.work);
                self.open_compute.push((start, end));
            }
            Lane::Comm => {
                let arrival = event.arrival.clamp(start, end);
                // times saturate on an extremely slow link
                self.comm = self.comm.saturating_add(end - start);
                self.waiting = self.waiting.saturating_add(arrival - start);
                self.open_comm.push((start, end, arrival));
            }
        }
    }

    /// Computes the overlap of the events since the last call. Call it between steps, when every later compute event
    /// starts after the added ones.
    pub(super) fn settle(&mut self) {
        let horizon = self.open_compute.last().map_or(i64::MIN, |last| last.1);
        let mut from = 0;
        for &(start, end, arrival) in &self.open_comm {
            // compute intervals that end before this one starts cannot overlap later ones either
            while self.open_compute.get(from).is_some_and(|compute| compute.1 <= start) {
                from += 1;
            }
            for compute in self.open_compute[from..].iter().take_while(|compute| compute.0 < end) {
                self.both += (end.min(compute.1) - start.max(compute.0)).max(0);
                self.both_waiting += (arrival.min(compute.1) - start.max(compute.0)).max(0);
            }
        }
        // the rest of a transfer that outlives its step overlaps with the next step's compute
        self.open_comm.retain_mut(|comm| {
            comm.0 = comm.0.max(horizon);
            comm.2 = comm.2.max(comm.0);
            comm.0 < comm.1
        });
        self.open_compute.clear();
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

    pub(super) fn sums(&self) -> Self {
        Self {
            compute: self.compute,
            comm: self.comm,
            both: self.both,
            both_waiting: self.both_waiting,
            waiting: self.waiting,
            work: self.work,
            ..Self::default()
        }
    }

    pub(super) fn finish(mut self) -> Option<table::Overlap> {
        self.settle();
        let (first, last) = self.span?;
        let ms = |ns: i64| ns as f64 / 1e6;
        let exposed = self.comm - self.both;
        let waiting = self.waiting - self.both_waiting;
        let work_ms = ms(self.work);
        Some(table::Overlap {
            comm_ms: ms(self.comm),
            exposed_comm_ms: ms(exposed),
            overlap_pct: (self.comm > 0).then(|| 100.0 * (1.0 - exposed as f64 / self.comm as f64)),
            compute_ms: ms(self.compute),
            idle_ms: ms((last - first).saturating_sub(self.compute.saturating_add(exposed)).max(0)),
            split: Some(table::Split {
                work_ms,
                contention_ms: ms(self.compute) - work_ms,
                peer_wait_ms: ms(waiting),
                transfer_ms: ms(exposed - waiting),
            }),
        })
    }
}

/// Mean overlap of a run's ranks (ms); `None` if no rank has any.
pub(super) fn average(ranks: Vec<Overlap>) -> Option<table::Overlap> {
    let all: Vec<table::Overlap> = ranks.into_iter().filter_map(Overlap::finish).collect();
    let count = all.len() as f64;
    let mean = |of: &dyn Fn(&table::Overlap) -> f64| all.iter().map(of).sum::<f64>() / count;
    let split = |of: fn(&table::Split) -> f64| mean(&|o| o.split.as_ref().map_or(0.0, of));
    if all.is_empty() {
        return None;
    }
    let (comm_ms, exposed_comm_ms) = (mean(&|o| o.comm_ms), mean(&|o| o.exposed_comm_ms));
    Some(table::Overlap {
        comm_ms,
        exposed_comm_ms,
        overlap_pct: (comm_ms > 0.0).then(|| 100.0 * (1.0 - exposed_comm_ms / comm_ms)),
        compute_ms: mean(&|o| o.compute_ms),
        idle_ms: mean(&|o| o.idle_ms),
        split: Some(table::Split {
            work_ms: split(|s| s.work_ms),
            contention_ms: split(|s| s.contention_ms),
            peer_wait_ms: split(|s| s.peer_wait_ms),
            transfer_ms: split(|s| s.transfer_ms),
        }),
    })
}
