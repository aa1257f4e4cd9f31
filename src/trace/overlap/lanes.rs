//! Unions of intervals per rank, from which overlap, idle time and exposure are computed.

use rayon::prelude::*;

use super::intervals::{Coverage, Interval, UnionBuilder, common_length, difference, length, merge};
use super::report::Nanoseconds;
use super::runs::{Class, Run, Runs};
use crate::Span;

/// Unions of one rank's intervals by class (absolute ns).
#[derive(Debug, Default)]
pub struct Lanes {
    pub comm: Vec<Interval>,
    pub compute: Coverage,
    pub memory: Vec<Interval>,
    pub other: Vec<Interval>,
    pub peer_wait: Vec<Interval>,
    /// First start and last end, including zero-length events.
    pub extent: Option<Interval>,
}

#[derive(Debug, Default)]
pub struct LanesBuilder {
    comm: UnionBuilder,
    compute: UnionBuilder,
    memory: UnionBuilder,
    other: UnionBuilder,
    peer_wait: UnionBuilder,
    extent: Option<Interval>,
}

impl LanesBuilder {
    #[inline]
    pub fn add(&mut self, span: &Span, interval: Interval, class: Class) {
        match class {
            Class::Memory => self.memory.add(interval),
            Class::Other => self.other.add(interval),
            Class::Compute => self.compute.add(interval),
            Class::Comm => {
                self.comm.add(interval);
                // -1: arrivals were not recorded.
                if span.last_arrival_ns >= 0 {
                    self.peer_wait.add((interval.0, interval.1.min(span.last_arrival_ns)));
                }
            }
        }
        self.reach(interval);
    }

    fn reach(&mut self, interval: Interval) {
        let (start, end) = self.extent.unwrap_or(interval);
        self.extent = Some((start.min(interval.0), end.max(interval.1)));
    }

    fn append(&mut self, other: Self) {
        self.comm.append(other.comm);
        self.compute.append(other.compute);
        self.memory.append(other.memory);
        self.other.append(other.other);
        self.peer_wait.append(other.peer_wait);
        if let Some(extent) = other.extent {
            self.reach(extent);
        }
    }

    pub fn finish(self) -> Lanes {
        Lanes {
            comm: self.comm.finish(),
            compute: Coverage::new(self.compute.finish()),
            memory: self.memory.finish(),
            other: self.other.finish(),
            peer_wait: self.peer_wait.finish(),
            extent: self.extent,
        }
    }
}

impl Lanes {
    /// Lanes of all selected ranks, in the order of [`Runs::ranks`]. Ranks without selected spans have
    /// empty lanes.
    pub fn of(runs: &Runs) -> Vec<Self> {
        let portions: Vec<(usize, LanesBuilder)> = runs
            .portions()
            .into_par_iter()
            .map(|portion| (portion[0].rank, Self::build(runs, portion)))
            .collect();
        let mut ranks: Vec<Vec<LanesBuilder>> = Vec::new();
        ranks.resize_with(runs.ranks.len(), Vec::new);
        portions.into_iter().for_each(|(rank, builder)| ranks[rank].push(builder));
        let whole = |builders: Vec<LanesBuilder>| {
            builders.into_iter().reduce(|mut all, next| {
                all.append(next);
                all
            })
        };
        ranks.into_par_iter().map(|builders| whole(builders).unwrap_or_default().finish()).collect()
    }

    pub fn build<'r>(runs: &Runs, portion: impl IntoIterator<Item = &'r Run>) -> LanesBuilder {
        let mut builder = LanesBuilder::default();
        runs.each(portion, |span, interval| builder.add(span, interval, runs.class(span)));
        builder
    }

    pub fn busy(&self) -> Vec<Interval> {
        merge(&[&self.comm, self.compute.union(), &self.memory, &self.other])
    }

    /// Intervals in which no lane was busy, between the first start and the last end.
    pub fn gaps(&self) -> Vec<Interval> {
        match self.extent {
            Some(extent) if extent.0 < extent.1 => difference(&[extent], &self.busy()),
            _ => Vec::new(),
        }
    }

    pub fn sums(&self) -> Nanoseconds {
        let [comm, compute] = [&self.comm[..], self.compute.union()].map(length);
        let overlap = common_length(&self.comm, self.compute.union());
        let busy = match self.memory.is_empty() && self.other.is_empty() {
            true => comm + compute - overlap,
            false => length(&self.busy()),
        };
        let span = self.extent.map_or(0, |(start, end)| end.saturating_sub(start));
        Nanoseconds {
            comm_ns: comm,
            compute_ns: compute,
            memory_ns: length(&self.memory),
            overlap_ns: overlap,
            exposed_comm_ns: comm - overlap,
            busy_ns: busy,
            idle_ns: span - busy,
            span_ns: span,
            peer_wait_ns: length(&self.peer_wait),
        }
    }
}
