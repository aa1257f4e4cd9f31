//! Waiting and transfer of collectives, apart, and how much the ranks differ: wherever several ranks were traced.
//!
//! A collective moves data once its last rank is there; what the others spend in it before is waiting. Ranks recorded by
//! separate profilers have clocks of their own, which the collectives tie together ([`super::clocks`]). Between two
//! collectives a rank computes, and there ranks differ: lastingly (a rank's own speed) and from time to time (each
//! operation's). The simulator draws both from normal distributions ([`crate::machine::hardware::Skew`]), and here the
//! two standard deviations are estimated from what was measured.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::clocks::clocks;
use crate::base::statistics::median;
use crate::trace::overlap::{Class, Runs, Selection, StepKey, us};
use crate::trace::{Span, Trace};

/// Collectives of one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CollectiveSplit {
    /// The name; of our own plans with `L*` for the layer.
    pub name: String,
    /// Collectives that were found on all ranks.
    pub count: u64,
    /// From the last arrival to the end: what moving the data took, summed (us).
    pub transfer_us: f64,
    /// What a rank waited for the last one, averaged over ranks and summed over collectives (us).
    pub waited_us: f64,
    /// From the first to the last arrival: the median (us).
    pub spread_us: f64,
}

/// What the arrivals at collectives tell of the ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ArrivalReport {
    /// A row a name, the longest first.
    pub collectives: Vec<CollectiveSplit>,
    /// Standard deviation of a rank's own speed (percent of its compute time): the simulator's `skew.rank_pct`.
    pub rank_pct: f64,
    /// Standard deviation of each operation's time (percent): the simulator's `skew.operation_pct`.
    pub operation_pct: f64,
    /// How far the ends of collectives lie apart once clocks are tied together, the 90th percentile (us); 0 where one
    /// clock timed all ranks.
    pub clocks_apart_us: f64,
}

/// What one rank's span of a collective says.
#[derive(Clone, Copy)]
struct Part<'a> {
    rank: usize,
    span: &'a Span,
    /// What the rank computed since its collective before.
    computed: Computed,
}

/// Operations that a rank computed: the sum of their durations, and of their squares (ns).
#[derive(Clone, Copy, Debug, Default)]
struct Computed {
    time: f64,
    squares: f64,
}

impl Computed {
    fn add(&mut self, span: &Span) {
        let length = span.end_ns.saturating_sub(span.start_ns).max(0) as f64;
        self.time += length;
        self.squares += length * length;
    }
}

/// Splits collectives into waiting and transfer, and estimates how much the ranks differ. `None` where fewer than two ranks
/// took part in the same collectives.
pub fn arrivals(trace: &Trace, selection: &Selection) -> Option<ArrivalReport> {
    let runs = Runs::new(trace, selection);
    let tied = clocks(trace);
    let ranks = runs.ranks.len();
    if ranks < 2 {
        return None;
    }
    let offset = |rank: usize| tied.offsets.get(&runs.ranks[rank]).copied().unwrap_or(0);
    let mut splits: BTreeMap<String, (CollectiveSplit, Vec<f64>)> = BTreeMap::new();
    let mut stretches = Stretches::new(ranks);
    for parts in together(&runs) {
        let arrivals: Vec<i64> =
            parts.iter().map(|part| part.span.start_ns.saturating_add(offset(part.rank))).collect();
        let first = arrivals.iter().copied().min().unwrap_or(0);
        let own = trace.meta.import.is_none();
        let recorded =
            parts.iter().map(|part| part.span.last_arrival_ns).max().filter(|at| own && *at >= 0);
        let last = recorded.unwrap_or_else(|| arrivals.iter().copied().max().unwrap_or(0));
        let count = ranks as i64;
        let ended: i64 =
            parts.iter().map(|part| part.span.end_ns.saturating_add(offset(part.rank)) / count).sum();
        let waited: i64 = arrivals.iter().map(|at| last.saturating_sub(*at).max(0) / count).sum();
        let name = family(trace, parts[0].span);
        let (split, spreads) = splits.entry(name).or_default();
        split.count += 1;
        split.transfer_us += us(ended.saturating_sub(last).max(0));
        split.waited_us += us(waited);
        spreads.push(us(last.saturating_sub(first).max(0)));
        stretches.add(&parts);
    }
    let mut collectives: Vec<CollectiveSplit> = splits
        .into_iter()
        .map(|(name, (split, spreads))| CollectiveSplit {
            name,
            spread_us: median(&spreads).unwrap_or(0.0),
            ..split
        })
        .collect();
    collectives.sort_by(|a, b| (b.transfer_us + b.waited_us).total_cmp(&(a.transfer_us + a.waited_us)));
    let (rank_pct, operation_pct) = stretches.skew();
    (!collectives.is_empty()).then_some(ArrivalReport {
        collectives,
        rank_pct,
        operation_pct,
        clocks_apart_us: us(tied.apart_ns),
    })
}

/// The name of a collective without its layer and phase.
fn family(trace: &Trace, span: &Span) -> String {
    let Some(operation) = trace.operations.get(span.operation as usize) else { return String::new() };
    match operation.layer {
        Some(layer) => operation.name.replace(&format!("L{layer}/"), "L*/"),
        None => operation.name.clone(),
    }
}

/// The parts of every collective that all ranks took part in: the n-th of a kind in a step on one rank
/// is the n-th on the others.
fn together<'a>(runs: &Runs<'a>) -> Vec<Vec<Part<'a>>> {
    let own = runs.trace.meta.import.is_none();
    let mut kinds: HashMap<&str, u32> = HashMap::new();
    let mut key_of = |span: &Span| {
        if own {
            return span.operation;
        }
        let kind = runs.trace.operations.get(span.operation as usize).map_or("", |o| o.kind.as_str());
        let next = kinds.len() as u32;
        *kinds.entry(kind).or_insert(next)
    };
    let mut groups: HashMap<(StepKey, u32), Vec<Vec<Part<'a>>>> = HashMap::new();
    for (rank, of_rank) in runs.by_rank.iter().enumerate() {
        let mut sums = Computed::default();
        // a step of a long trace may be cut in two, between its lanes
        for cut in of_rank.chunk_by(|a, b| a.step == b.step && a.at.end == b.at.start) {
            let (step, at) = (cut[0].step, cut[0].at.start..cut[cut.len() - 1].at.end);
            let is_comm = |span: &&Span| runs.class(span) == Class::Comm;
            // each lane lies in order of its starts: both are gone through at once
            let spans = || runs.trace.spans[at.clone()].iter().filter(move |s| runs.clip(s).is_some());
            let mut others = spans().filter(|span| !is_comm(span)).peekable();
            for span in spans().filter(is_comm) {
                while let Some(other) = others.next_if(|other| other.start_ns < span.start_ns) {
                    sums.add(other);
                }
                let lists = groups.entry((step, key_of(span))).or_default();
                lists.resize_with(runs.ranks.len(), Vec::new);
                lists[rank].push(Part { rank, span, computed: std::mem::take(&mut sums) });
            }
            others.for_each(|other| sums.add(other));
        }
    }
    let mut all: Vec<Vec<Part<'a>>> = Vec::new();
    for lists in groups.into_values() {
        let least = lists.iter().map(Vec::len).min().unwrap_or(0);
        // a rank that has not as many of them was not traced as long: which belongs to which is not known
        if lists.iter().any(|list| list.len() != least) {
            continue;
        }
        all.extend((0..least).map(|nth| lists.iter().map(|list| list[nth]).collect()));
    }
    all.sort_by_key(|parts| parts[0].span.start_ns);
    all
}

/// What ranks computed between collectives, side by side.
struct Stretches {
    /// Time computed by each rank.
    of_rank: Vec<f64>,
    each: Vec<(Vec<f64>, f64)>,
}

impl Stretches {
    fn new(ranks: usize) -> Self {
        Self { of_rank: vec![0.0; ranks], each: Vec::new() }
    }

    fn add(&mut self, parts: &[Part<'_>]) {
        let times: Vec<f64> = parts.iter().map(|part| part.computed.time).collect();
        if times.iter().any(|time| *time <= 0.0) {
            return;
        }
        for (sum, time) in self.of_rank.iter_mut().zip(&times) {
            *sum += time;
        }
        // as many operations of equal length as vary as much together
        let effective: f64 =
            parts.iter().map(|part| part.computed.time.powi(2) / part.computed.squares.max(1.0)).sum();
        self.each.push((times, effective / parts.len() as f64));
    }

    /// The profile's (`skew.rank_pct`, `skew.operation_pct`) that these times have.
    fn skew(&self) -> (f64, f64) {
        let ranks = self.of_rank.len() as f64;
        let mean = self.of_rank.iter().sum::<f64>() / ranks;
        if mean <= 0.0 || self.each.is_empty() {
            return (0.0, 0.0);
        }
        let speeds: Vec<f64> = self.of_rank.iter().map(|time| time / mean).collect();
        let (mut squares, mut count) = (0.0, 0.0);
        for (times, effective) in &self.each {
            let own = times.iter().zip(&speeds).map(|(time, speed)| time / speed);
            let middle = own.clone().sum::<f64>() / ranks;
            squares += own.map(|time| (time / middle - 1.0).powi(2) * effective).sum::<f64>();
            // the mean is of the same numbers: one of them tells nothing
            count += ranks - 1.0;
        }
        let variance = squares / count;
        // what operations vary leaves in a rank's own speed
        let operations: f64 = self.each.iter().map(|(_, effective)| effective).sum();
        let of_speed =
            speeds.iter().map(|speed| (speed - 1.0).powi(2)).sum::<f64>() / (ranks - 1.0).max(1.0);
        let rank = (of_speed - variance / operations.max(1.0)).max(0.0).sqrt();
        (100.0 * rank, 100.0 * variance.sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::hardware::Skew;
    use crate::plan::{DType, Lane};
    use crate::study::analysis::testing::{self, span, trace};
    use crate::table::Spec;

    /// Ranks of a simulated run differ as much as was asked for.
    #[test]
    fn the_skew_of_a_simulated_run_is_found_again() {
        let (none, some) = (Skew::default(), Skew { rank_pct: 4.0, operation_pct: 6.0 });
        // the longest has so many spans that they are gone through in several pieces
        for (skew, output_tokens) in [(none, 6), (none, 60), (some, 6), (some, 60)] {
            let (model, dtype) = ("llama-3-8b".into(), DType::F16);
            let mut spec =
                Spec { model, dtype, tp: 8, prompt_tokens: 1024, output_tokens, ..testing::spec() };
            spec.set.insert("skew.rank_pct".into(), skew.rank_pct.to_string());
            spec.set.insert("skew.operation_pct".into(), skew.operation_pct.to_string());
            let (simulated, _) = crate::desk::resimulate(&spec, None).unwrap();
            let found = arrivals(&simulated, &Selection::default()).unwrap();
            // eight ranks tell a deviation of their speeds to a quarter of it, thousands of operations theirs better
            assert!((found.rank_pct - skew.rank_pct).abs() <= 0.6 * skew.rank_pct + 0.01, "{found:?}");
            assert!(
                (found.operation_pct - skew.operation_pct).abs() <= 0.15 * skew.operation_pct + 0.01,
                "{found:?}"
            );
            let waited: f64 = found.collectives.iter().map(|row| row.waited_us).sum();
            assert_eq!(waited > 1.0, skew.rank_pct > 0.0, "{waited}");
        }
    }

    #[test]
    fn waiting_is_told_from_transfer() {
        let mut spans = Vec::new();
        for (rank, late) in [(0, 0), (1, 4_000)] {
            spans.push(span(rank, Lane::Compute, 0, 10_000 + late));
            spans.push(span(rank, Lane::Comm, 10_000 + late, 20_000));
        }
        let found = arrivals(&trace(spans), &Selection::default()).unwrap();
        let row = &found.collectives[0];
        assert_eq!((row.count, row.transfer_us, row.waited_us, row.spread_us), (1, 6.0, 2.0, 4.0));
        assert_eq!(row.name, "decode/L*/mlp/reduce");
        let one = vec![span(0, Lane::Comm, 0, 5)];
        assert_eq!(arrivals(&trace(one), &Selection::default()), None);
    }
}
