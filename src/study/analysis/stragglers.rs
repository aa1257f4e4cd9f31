//! Stragglers: which rank arrived last at each collective, and what that cost the others.
//!
//! A rank arrives when its span of the collective starts. The spans of one collective on several ranks
//! find each other by operation (own traces) or by kind (imported ones), in order: the n-th on one rank
//! belongs to the n-th on the others, within a step. Where ranks have different numbers of them, the
//! surplus at the end is left out and counted. Nobody is last where two arrive last at once. Clocks of
//! several files are tied together by the collectives ([`super::clocks`]).

use std::collections::HashMap;

use rayon::prelude::*;
use serde::Serialize;

use super::clocks::clock_offsets;
use crate::base::statistics::median;
use crate::trace::overlap::{Class, Run, Runs, StepKey, us};

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
    /// Collectives found on at least two ranks.
    pub matched: u64,
    /// Spans of collectives without a partner on another rank.
    pub unmatched: u64,
    /// How each rank behaved, ascending by rank.
    pub ranks: Vec<RankArrivals>,
    /// The collectives that ranks waited longest at, the worst first.
    pub worst: Vec<Arrival>,
    /// What to keep in mind about these numbers.
    pub note: Option<&'static str>,
}

/// Said where ranks come from files of their own.
const CLOCKS: &str = "ranks were recorded by separate profilers, whose clocks are tied together by the ends of the \
                      collectives";

/// How many of the worst are listed.
const WORST: usize = 10;

/// What one rank's span of a collective says.
#[derive(Clone, Copy)]
struct Came {
    key: u32,
    nth: u32,
    rank: usize,
    start: i64,
    operation: u32,
}

/// Sums of some steps.
#[derive(Default)]
struct Sums {
    matched: u64,
    unmatched: u64,
    /// Lateness of each time a rank was last (ns).
    late: Vec<Vec<i64>>,
    caused: Vec<i64>,
    waited: Vec<i64>,
    worst: Vec<(i64, Arrival)>,
}

/// The stragglers of all collectives; `None` where there is one rank, or no collective on two of them.
pub(super) fn stragglers(runs: &Runs) -> Option<Stragglers> {
    if runs.ranks.len() < 2 {
        return None;
    }
    let keys = keys(runs);
    let clocks = clock_offsets(runs.trace);
    let offsets: Vec<i64> =
        runs.ranks.iter().map(|rank| clocks.get(rank).copied().unwrap_or(0)).collect();
    let sums = runs
        .by_step()
        .into_par_iter()
        .fold(
            || Sums::new(runs.ranks.len()),
            |mut sums, (key, of_step)| {
                sums.add_step(runs, key, &of_step, &keys, &offsets);
                sums
            },
        )
        .reduce(|| Sums::new(runs.ranks.len()), Sums::merge);
    (sums.matched > 0).then(|| sums.describe(runs))
}

/// What the spans of an operation are matched by.
fn keys(runs: &Runs) -> Vec<u32> {
    let operations = &runs.trace.operations;
    if runs.trace.meta.import.is_none() {
        return (0..operations.len() as u32).collect();
    }
    let mut kinds: HashMap<&str, u32> = HashMap::new();
    operations
        .iter()
        .map(|operation| {
            let next = kinds.len() as u32;
            *kinds.entry(&operation.kind).or_insert(next)
        })
        .collect()
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

    fn add_step(&mut self, runs: &Runs, step: StepKey, of_step: &[&Run], keys: &[u32], offsets: &[i64]) {
        let mut came: Vec<Came> = Vec::new();
        for of_rank in of_step.chunk_by(|a, b| a.rank == b.rank) {
            let from = came.len();
            runs.each(of_rank.iter().copied(), |span, _| {
                if runs.class(span) == Class::Comm
                    && let Some(&key) = keys.get(span.operation as usize)
                {
                    let rank = of_rank[0].rank;
                    let start = span.start_ns.saturating_add(offsets[rank]);
                    came.push(Came { key, nth: 0, rank, start, operation: span.operation });
                }
            });
            let of_rank = &mut came[from..];
            of_rank.sort_by_key(|came| (came.key, came.start));
            for at in 1..of_rank.len() {
                if of_rank[at].key == of_rank[at - 1].key {
                    of_rank[at].nth = of_rank[at - 1].nth + 1;
                }
            }
        }
        came.sort_by_key(|came| (came.key, came.nth, came.start));
        for together in came.chunk_by(|a, b| (a.key, a.nth) == (b.key, b.nth)) {
            self.add_collective(runs, step, together);
        }
    }

    /// `together` is sorted by arrival.
    fn add_collective(&mut self, runs: &Runs, step: StepKey, together: &[Came]) {
        let [before @ .., last] = together else { return };
        let Some(second) = before.last() else {
            self.unmatched += 1;
            return;
        };
        self.matched += 1;
        let mut waited_ns = 0i64;
        for other in before {
            let waited = last.start.saturating_sub(other.start);
            self.waited[other.rank] = self.waited[other.rank].saturating_add(waited);
            waited_ns = waited_ns.saturating_add(waited);
        }
        let late_ns = last.start.saturating_sub(second.start);
        if late_ns == 0 {
            return;
        }
        self.late[last.rank].push(late_ns);
        self.caused[last.rank] = self.caused[last.rank].saturating_add(waited_ns);
        if self.worst.len() < WORST || self.worst.last().is_some_and(|(least, _)| waited_ns > *least) {
            let info = runs.trace.operations.get(last.operation as usize);
            let arrival = Arrival {
                sample: step.sample,
                step: step.step,
                name: info.map(|o| o.name.clone()).unwrap_or_default(),
                nth: last.nth,
                last: runs.ranks[last.rank],
                at_ns: last.start.saturating_sub(runs.origin),
                late_ns,
                waited_ns,
            };
            self.keep_worst([(waited_ns, arrival)]);
        }
    }

    fn keep_worst(&mut self, more: impl IntoIterator<Item = (i64, Arrival)>) {
        self.worst.extend(more);
        // Ties in order of time, so that the list does not depend on threads.
        self.worst.sort_by_key(|(waited, arrival)| (std::cmp::Reverse(*waited), arrival.at_ns));
        self.worst.truncate(WORST);
    }

    fn merge(mut self, other: Self) -> Self {
        self.matched += other.matched;
        self.unmatched += other.unmatched;
        for (all, more) in self.late.iter_mut().zip(other.late) {
            all.extend(more);
        }
        let sums = [(&mut self.caused, other.caused), (&mut self.waited, other.waited)];
        for (all, more) in sums {
            all.iter_mut().zip(more).for_each(|(a, b)| *a = a.saturating_add(b));
        }
        self.keep_worst(other.worst);
        self
    }

    fn describe(self, runs: &Runs) -> Stragglers {
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
        Stragglers {
            matched: self.matched,
            unmatched: self.unmatched,
            ranks,
            worst: self.worst.into_iter().map(|(_, arrival)| arrival).collect(),
            note: (runs.trace.meta.import.as_ref())
                .is_some_and(|import| import.files.len() > 1)
                .then_some(CLOCKS),
        }
    }
}

#[cfg(test)]
#[path = "stragglers_tests.rs"]
mod tests;
