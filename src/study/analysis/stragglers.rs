//! Stragglers: the rank that arrived last at each collective, and the waiting it caused.
//!
//! A rank arrives when its span of the collective starts. [`super::matched`] finds the spans of a collective,
//! [`super::clocks`] aligns the clocks of several files. If two ranks arrive last at the same time, neither counts as
//! last.

use serde::Serialize;

use super::clocks::Clocks;
use super::matched::{Arrived, MatchedCollective, Matching};
use base::statistics::median;
use trace::Span;
use trace::overlap::{Runs, us};

/// Collective at which one rank arrived after all others.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Arrival {
    /// Timed generation of the run, from 0.
    pub sample: u32,
    pub step: u32,
    /// Operation, as named on the last rank.
    pub name: String,
    /// Number of earlier collectives of its kind in the step.
    pub nth: u32,
    pub last: u32,
    /// Last arrival (ns since the trace's first start).
    pub at_ns: i64,
    /// Delay after the previous arrival (ns).
    pub late_ns: i64,
    /// Waiting time of all other ranks, summed (ns).
    pub waited_ns: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct RankArrivals {
    pub rank: u32,
    /// Collectives at which the rank alone arrived last.
    pub times_last: u64,
    /// Share of all matched collectives, 0 to 1.
    pub share: f64,
    /// Median delay after the previous arrival when the rank was last (us).
    pub late_median_us: f64,
    /// Longest delay after the previous arrival when the rank was last (us).
    pub late_max_us: f64,
    /// Waiting time caused in other ranks, summed over ranks and collectives (us).
    pub caused_us: f64,
    /// Time that the rank waited for the last arrival, summed (us).
    pub waited_us: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Stragglers {
    /// Collectives found on all recorded ranks of their process group.
    pub matched: u64,
    /// Spans of collectives that could not be matched across ranks.
    pub unmatched: u64,
    pub ranks: Vec<RankArrivals>,
    pub worst: Vec<Arrival>,
    /// 90th percentile of the distance between the ends of a collective after clock alignment (us); null if one clock
    /// timed all ranks.
    pub clocks_apart_us: Option<f64>,
    pub note: Option<String>,
}

const CLOCKS: &str = "ranks were recorded by separate profilers, whose clocks are tied together by the ends of the \
                      collectives";

const PARTIAL: &str = "some ranks were not recorded and may have been even later";

const WORST: usize = 10;

#[derive(Default)]
struct Sums {
    matched: u64,
    unmatched: u64,
    is_partial: bool,
    /// Delays of each rank when it was last (ns).
    late: Vec<Vec<i64>>,
    caused: Vec<i64>,
    waited: Vec<i64>,
    worst: Vec<(i64, Arrival)>,
}

/// Stragglers of all collectives; `None` with one rank or without matched collectives.
pub(super) fn stragglers(runs: &Runs, matching: &Matching, clocks: &Clocks) -> Option<Stragglers> {
    if runs.ranks.len() < 2 {
        return None;
    }
    let mut sums = Sums::new(runs.ranks.len());
    for collective in matching.selected(runs) {
        sums.add(runs, &collective, &matching.arrived(runs.trace, clocks, &collective));
    }
    let trace = runs.trace;
    let alone = matching.unmatched.iter().filter(|place| runs.selects(&trace.spans[**place]));
    sums.unmatched = alone.count() as u64;
    (sums.matched > 0).then(|| sums.describe(runs, clocks))
}

impl Sums {
    fn new(ranks: usize) -> Self {
        Self {
            late: vec![Vec::new(); ranks],
            caused: vec![0; ranks],
            waited: vec![0; ranks],
            ..Self::default()
        }
    }

    fn add(&mut self, runs: &Runs, collective: &MatchedCollective<'_>, arrived: &Arrived) {
        let spans: Vec<&Span> =
            collective.places.iter().map(|place| &runs.trace.spans[*place]).collect();
        let index = |span: &Span| runs.ranks.binary_search(&span.rank).unwrap_or(0);
        self.matched += 1;
        self.is_partial |= collective.is_partial;
        let mut waited_ns = 0i64;
        for (span, waited) in spans.iter().zip(&arrived.waited) {
            let sum = &mut self.waited[index(span)];
            *sum = sum.saturating_add(*waited);
            waited_ns = waited_ns.saturating_add(*waited);
        }
        let mut order: Vec<usize> = (0..spans.len()).collect();
        order.sort_by_key(|at| arrived.starts[*at]);
        let [.., second, last] = order[..] else { return };
        let late_ns = arrived.starts[last].saturating_sub(arrived.starts[second]);
        if late_ns == 0 {
            return;
        }
        let span = spans[last];
        self.late[index(span)].push(late_ns);
        let caused = &mut self.caused[index(span)];
        *caused = caused.saturating_add(waited_ns);
        if self.worst.len() < WORST || self.worst.last().is_some_and(|(least, _)| waited_ns > *least) {
            let info = runs.trace.operations.get(span.operation as usize);
            let arrival = Arrival {
                sample: span.sample,
                step: span.step,
                name: info.map(|o| o.name.clone()).unwrap_or_default(),
                nth: collective.nth,
                last: span.rank,
                at_ns: arrived.starts[last].saturating_sub(runs.origin),
                late_ns,
                waited_ns,
            };
            self.worst.push((waited_ns, arrival));
            self.worst.sort_by_key(|(waited, arrival)| (std::cmp::Reverse(*waited), arrival.at_ns));
            self.worst.truncate(WORST);
        }
    }

    fn describe(self, runs: &Runs, clocks: &Clocks) -> Stragglers {
        let ranks = runs
            .ranks
            .iter()
            .zip(&self.late)
            .enumerate()
            .map(|(at, (rank, late))| {
                let late_us: Vec<f64> = late.iter().copied().map(us).collect();
                RankArrivals {
                    rank: *rank,
                    times_last: late.len() as u64,
                    share: late.len() as f64 / self.matched as f64,
                    late_median_us: median(&late_us).unwrap_or(0.0),
                    late_max_us: us(late.iter().copied().max().unwrap_or(0)),
                    caused_us: us(self.caused[at]),
                    waited_us: us(self.waited[at]),
                }
            })
            .collect();
        let is_tied = !clocks.offsets.is_empty();
        let notes = [is_tied.then_some(CLOCKS), self.is_partial.then_some(PARTIAL)];
        let notes: Vec<&str> = notes.into_iter().flatten().collect();
        Stragglers {
            matched: self.matched,
            unmatched: self.unmatched,
            ranks,
            worst: self.worst.into_iter().map(|(_, arrival)| arrival).collect(),
            clocks_apart_us: (!clocks.offsets.is_empty()).then(|| us(clocks.apart_ns)),
            note: (!notes.is_empty()).then(|| notes.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests;
