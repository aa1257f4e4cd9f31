//! Stragglers: which rank arrived last at each collective, and what that cost the others.
//!
//! A rank arrives when its span of the collective starts. Which spans belong to one collective says
//! [`super::matched`]; how the clocks of several files are tied together, [`super::clocks`]. Nobody is last where two arrive
//! last at once.

use serde::Serialize;

use super::clocks::Clocks;
use super::matched::{Arrived, MatchedCollective, Matching};
use base::statistics::median;
use trace::Span;
use trace::overlap::{Runs, us};

/// A collective at which the ranks did not arrive together.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Arrival {
    /// Which timed generation of the run, from 0.
    pub sample: u32,
    /// The decode step in which it happened, from 0.
    pub step: u32,
    /// The operation, as the last rank calls it.
    pub name: String,
    /// How many of its kind came before it in the step.
    pub nth: u32,
    /// The rank that arrived last.
    pub last: u32,
    /// When it did (ns since the trace's first start).
    pub at_ns: i64,
    /// How long after the rank before it (ns).
    pub late_ns: i64,
    /// How long all other ranks waited for it, summed (ns).
    pub waited_ns: i64,
}

/// How a rank behaved at collectives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct RankArrivals {
    /// The rank that arrived, from 0.
    pub rank: u32,
    /// Collectives at which it alone arrived last.
    pub times_last: u64,
    /// Share of all matched collectives, 0 to 1.
    pub share: f64,
    /// How long after the rank before it, where it was last: the median (us).
    pub late_median_us: f64,
    /// How long after the rank before it, where it was last: the longest (us).
    pub late_max_us: f64,
    /// How long others waited for it, summed over ranks and collectives (us).
    pub caused_us: f64,
    /// How long it waited for the last, summed (us).
    pub waited_us: f64,
}

/// Who arrived last, at all collectives of a selection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Stragglers {
    /// Collectives found on all recorded ranks of their process group.
    pub matched: u64,
    /// Spans of collectives that could not be matched with those of other ranks.
    pub unmatched: u64,
    /// How each rank behaved, ascending by rank.
    pub ranks: Vec<RankArrivals>,
    /// The collectives that ranks waited longest at, the worst first.
    pub worst: Vec<Arrival>,
    /// How far the ends of collectives are apart once the ranks' clocks are tied together: the 90th percentile (us); null where
    /// one clock timed all ranks.
    pub clocks_apart_us: Option<f64>,
    /// What to keep in mind about these numbers.
    pub note: Option<String>,
}

/// Said where ranks come from files of their own.
const CLOCKS: &str = "ranks were recorded by separate profilers, whose clocks are tied together by the ends of the \
                      collectives";

/// Said where ranks of a process group were not recorded.
const PARTIAL: &str =
    "there are ranks that were not recorded: one of these may have arrived later than those here";

/// How many of the worst are listed.
const WORST: usize = 10;

/// Sums of some steps.
#[derive(Default)]
struct Sums {
    matched: u64,
    unmatched: u64,
    is_partial: bool,
    /// Lateness of each time a rank was last (ns).
    late: Vec<Vec<i64>>,
    caused: Vec<i64>,
    waited: Vec<i64>,
    worst: Vec<(i64, Arrival)>,
}

/// The stragglers of all collectives; `None` where there is one rank, or no collective on two of them.
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
