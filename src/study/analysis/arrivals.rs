//! Waiting and transfer time of collectives, and the skew between ranks; needs traces of several ranks.
//!
//! A collective moves data once its last rank arrives; the time that other ranks spend in it before is waiting. Ranks
//! recorded by separate profilers have separate clocks, which the collectives align ([`super::clocks`]). Between two
//! collectives ranks compute at different speeds: each rank has its own speed, and each operation varies. The simulator
//! draws both from normal distributions ([`machine::hardware::Skew`]); this module estimates their standard deviations
//! from the trace.
//!
//! Stragglers: the rank that arrived last at each collective, and the waiting it caused.
//!
//! A rank arrives when its span of the collective starts. [`super::matched`] finds the spans of a collective,
//! [`super::clocks`] aligns the clocks of several files. If two ranks arrive last at the same time, neither counts as
//! last.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::clocks::Clocks;
use super::matched::{CollectiveArrivals, CollectiveMatching, MatchedCollective};
use base::statistics::median;
use machine::hardware::Skew;
use trace::overlap::{Class, Selection, SpanRuns, us};
use trace::{OperationKind, Span, Trace};

/// Waiting and transfer time of the matched spans of one operation (ns).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MatchedTime {
    /// Matched spans, over all ranks.
    pub spans: u64,
    pub waited_ns: i64,
    /// Time spent moving data; includes waiting if ranks are missing.
    pub moved_ns: i64,
    /// True if some ranks were not recorded.
    pub is_partial: bool,
}

/// Compute operations of a rank: sum of durations (ns) and of their squares.
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

/// Skew of ranks that explains their compute times between collectives. `None` if fewer than two ranks share
/// collectives. Pipeline stages, which share only transfers, do different work.
pub fn estimated_skew(trace: &Trace, selection: &Selection) -> Option<Skew> {
    let (runs, matching) = (SpanRuns::new(trace, selection), CollectiveMatching::from_trace(trace));
    if runs.ranks.len() < 2 {
        return None;
    }
    let computed = computed(&runs);
    let mut stretches: BTreeMap<Vec<u32>, Stretches> = BTreeMap::new();
    let is_transfer = |collective: &MatchedCollective<'_>| {
        trace.operation_kind(&trace.spans[collective.places[0]]) == Some(&OperationKind::SendRecv)
    };
    for collective in matching.collectives().filter(|collective| !is_transfer(collective)) {
        let of = collective.places.iter().map(|place| computed.get(place));
        let Some(of) = of.collect::<Option<Vec<_>>>() else { continue };
        let ranks: Vec<u32> = collective.places.iter().map(|place| trace.spans[*place].rank).collect();
        let count = ranks.len();
        stretches.entry(ranks).or_insert_with(|| Stretches::new(count)).add(&of);
    }
    (!stretches.is_empty()).then(|| skew(stretches.values()))
}

/// Waiting and transfer time of the matched spans of each selected operation.
pub(super) fn times_by_operation(
    runs: &SpanRuns,
    matching: &CollectiveMatching,
    clocks: &Clocks,
) -> HashMap<u32, MatchedTime> {
    let mut times: HashMap<u32, MatchedTime> = HashMap::new();
    for collective in matching.selected(runs) {
        let arrived = matching.arrived(runs.trace, clocks, &collective);
        for ((place, waited), moved) in collective.places.iter().zip(arrived.waited).zip(arrived.moved) {
            let time = times.entry(runs.trace.spans[*place].operation).or_default();
            time.spans += 1;
            time.is_partial |= collective.is_partial;
            time.waited_ns = time.waited_ns.saturating_add(waited);
            time.moved_ns = time.moved_ns.saturating_add(moved);
        }
    }
    times
}

/// Compute time of a rank since its previous collective, by index of the collective's span.
fn computed(runs: &SpanRuns) -> HashMap<usize, Computed> {
    let mut computed = HashMap::new();
    for of_rank in &runs.by_rank {
        let mut sums = Computed::default();
        // a step of a long trace may be split between its lanes
        for cut in of_rank.chunk_by(|a, b| a.step == b.step && a.at.end == b.at.start) {
            let at = cut[0].at.start..cut[cut.len() - 1].at.end;
            let spans = || at.clone().map(|place| (place, &runs.trace.spans[place]));
            // each lane is sorted by start, so both are iterated in one pass
            let spans = || spans().filter(|(_, span)| runs.selects(span));
            let is_comm = |span: &Span| runs.class(span) == Class::Comm;
            // copies are not compute
            let is_compute = |span: &Span| runs.class(span) == Class::Compute;
            let mut others = spans().filter(|(_, span)| is_compute(span)).peekable();
            for (place, span) in spans().filter(|(_, span)| is_comm(span)) {
                while let Some((_, other)) = others.next_if(|(_, other)| other.start_ns < span.start_ns)
                {
                    sums.add(other);
                }
                computed.insert(place, std::mem::take(&mut sums));
            }
            others.for_each(|(_, other)| sums.add(other));
        }
    }
    computed
}

/// Compute time of a group's ranks between collectives.
struct Stretches {
    of_rank: Vec<f64>,
    each: Vec<(Vec<f64>, f64)>,
}

impl Stretches {
    fn new(ranks: usize) -> Self {
        Self { of_rank: vec![0.0; ranks], each: Vec::new() }
    }

    fn add(&mut self, parts: &[&Computed]) {
        let times: Vec<f64> = parts.iter().map(|part| part.time).collect();
        if times.iter().any(|time| *time <= 0.0) {
            return;
        }
        for (sum, time) in self.of_rank.iter_mut().zip(&times) {
            *sum += time;
        }
        // number of equally long operations with the same variance
        let effective: f64 = parts.iter().map(|part| part.time.powi(2) / part.squares.max(1.0)).sum();
        self.each.push((times, effective / parts.len() as f64));
    }

    /// Variances of ranks and of operations, each with its weight.
    fn variances(&self) -> Option<[(f64, f64); 2]> {
        let ranks = self.of_rank.len() as f64;
        let mean = self.of_rank.iter().sum::<f64>() / ranks;
        if mean <= 0.0 || self.each.is_empty() {
            return None;
        }
        let speeds: Vec<f64> = self.of_rank.iter().map(|time| time / mean).collect();
        let (mut squares, mut count) = (0.0, 0.0);
        for (times, effective) in &self.each {
            let own = times.iter().zip(&speeds).map(|(time, speed)| time / speed);
            let middle = own.clone().sum::<f64>() / ranks;
            squares += own.map(|time| (time / middle - 1.0).powi(2) * effective).sum::<f64>();
            // one degree of freedom goes to the mean of the same numbers
            count += ranks - 1.0;
        }
        let variance = squares / count;
        // operation noise that remains in a rank's speed
        let operations: f64 = self.each.iter().map(|(_, effective)| effective).sum();
        let of_speed =
            speeds.iter().map(|speed| (speed - 1.0).powi(2)).sum::<f64>() / (ranks - 1.0).max(1.0);
        let rank = (of_speed - variance / operations.max(1.0)).max(0.0);
        Some([(rank, count), (variance, count)])
    }
}

/// Skew of all groups. Only ranks of one group do the same work, so each group is compared with itself.
fn skew<'a>(groups: impl Iterator<Item = &'a Stretches>) -> Skew {
    let mut sums = [(0.0, 0.0); 2];
    for variances in groups.filter_map(Stretches::variances) {
        for (sum, (variance, weight)) in sums.iter_mut().zip(variances) {
            (sum.0, sum.1) = (sum.0 + variance * weight, sum.1 + weight);
        }
    }
    let [rank_pct, operation_pct] = sums
        .map(|(sum, weight): (f64, f64)| if weight > 0.0 { 100.0 * (sum / weight).sqrt() } else { 0.0 });
    Skew { rank_pct, operation_pct }
}

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
    ranks: Vec<RankSums>,
    worst: Vec<Arrival>,
}

#[derive(Clone, Default)]
struct RankSums {
    /// Delays of the rank when it was last (ns).
    late: Vec<i64>,
    caused: i64,
    waited: i64,
}

/// Stragglers of all collectives; `None` with one rank or without matched collectives.
pub(super) fn stragglers(
    runs: &SpanRuns,
    matching: &CollectiveMatching,
    clocks: &Clocks,
) -> Option<Stragglers> {
    if runs.ranks.len() < 2 {
        return None;
    }
    let ranks = vec![RankSums::default(); runs.ranks.len()];
    let mut sums = Sums { ranks, ..Sums::default() };
    for collective in matching.selected(runs) {
        sums.add(runs, &collective, &matching.arrived(runs.trace, clocks, &collective));
    }
    let trace = runs.trace;
    let alone = matching.unmatched.iter().filter(|place| runs.counts(&trace.spans[**place]));
    sums.unmatched = alone.count() as u64;
    (sums.matched > 0).then(|| sums.describe(runs, clocks))
}

impl Sums {
    fn add(
        &mut self,
        runs: &SpanRuns,
        collective: &MatchedCollective<'_>,
        arrived: &CollectiveArrivals,
    ) {
        let spans: Vec<&Span> =
            collective.places.iter().map(|place| &runs.trace.spans[*place]).collect();
        let index = |span: &Span| runs.ranks.binary_search(&span.rank).unwrap_or(0);
        self.matched += 1;
        self.is_partial |= collective.is_partial;
        let mut waited_ns = 0i64;
        for (span, waited) in spans.iter().zip(&arrived.waited) {
            let sum = &mut self.ranks[index(span)].waited;
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
        let rank = &mut self.ranks[index(span)];
        rank.late.push(late_ns);
        rank.caused = rank.caused.saturating_add(waited_ns);
        if self.worst.len() < WORST || self.worst.last().is_some_and(|least| waited_ns > least.waited_ns)
        {
            let info = runs.trace.operations.get(span.operation as usize);
            self.worst.push(Arrival {
                sample: span.sample,
                step: span.step,
                name: info.map(|o| o.name.clone()).unwrap_or_default(),
                nth: collective.nth,
                last: span.rank,
                at_ns: arrived.starts[last].saturating_sub(runs.origin),
                late_ns,
                waited_ns,
            });
            self.worst.sort_by_key(|arrival| (std::cmp::Reverse(arrival.waited_ns), arrival.at_ns));
            self.worst.truncate(WORST);
        }
    }

    fn describe(self, runs: &SpanRuns, clocks: &Clocks) -> Stragglers {
        let of_rank = |(rank, RankSums { late, caused, waited }): (&u32, &RankSums)| {
            let late_us: Vec<f64> = late.iter().copied().map(us).collect();
            RankArrivals {
                rank: *rank,
                times_last: late.len() as u64,
                share: late.len() as f64 / self.matched as f64,
                late_median_us: median(&late_us).unwrap_or(0.0),
                late_max_us: us(late.iter().copied().max().unwrap_or(0)),
                caused_us: us(*caused),
                waited_us: us(*waited),
            }
        };
        let ranks = runs.ranks.iter().zip(&self.ranks).map(of_rank).collect();
        let is_tied = !clocks.offsets.is_empty();
        let notes = [is_tied.then_some(CLOCKS), self.is_partial.then_some(PARTIAL)];
        let notes: Vec<&str> = notes.into_iter().flatten().collect();
        Stragglers {
            matched: self.matched,
            unmatched: self.unmatched,
            ranks,
            worst: self.worst,
            clocks_apart_us: is_tied.then(|| us(clocks.apart_ns)),
            note: (!notes.is_empty()).then(|| notes.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Arrivals and stragglers in traces made by hand.

    use super::*;
    use crate::analysis::{Stragglers, trace_report};
    use plan::{DType, Lane};
    use run::testing::simulated;
    use table::Spec;
    use table::testing::spec;
    use trace::overlap::Selection;
    use trace::testing::{span, trace};
    use trace::{ImportReport, Span, Trace};

    /// A collective as the ranks arrived at it; it ends at 1000 after the last.
    fn collective(operation: u32, starts: &[(u32, i64)]) -> Vec<Span> {
        let end = starts.iter().map(|(_, at)| *at).max().unwrap_or(0) + 1000;
        starts.iter().map(|&(rank, at)| Span { operation, ..span(rank, Lane::Comm, at, end) }).collect()
    }

    fn imported(spans: Vec<Span>) -> Trace {
        let mut trace = trace(spans);
        trace.meta.import = Some(ImportReport::default());
        trace.spans.sort_by_key(|s| (s.step, s.rank, s.lane, s.start_ns));
        trace
    }

    fn stragglers(trace: &Trace) -> Stragglers {
        trace_report(trace, &Selection::default()).stragglers.unwrap()
    }

    #[test]
    fn the_last_to_arrive_is_late_by_what_the_one_before_it_waited() {
        let spans = collective(1, &[(0, 100), (1, 5_100), (2, 2_100)]);
        // files of their own, whose clocks are apart: the collective ends on all ranks at once
        let mut separate = imported(spans);
        separate.meta.import = Some(ImportReport {
            files: (0..3).map(|rank| format!("rank{rank}.json")).collect(),
            ..ImportReport::default()
        });
        for span in separate.spans.iter_mut().filter(|span| span.rank == 2) {
            (span.start_ns, span.end_ns) = (span.start_ns + 7_777, span.end_ns + 7_777);
        }
        let found = stragglers(&separate);
        assert_eq!((found.matched, found.unmatched), (1, 0));
        let rank = &found.ranks[1];
        assert_eq!((rank.times_last, rank.share), (1, 1.0));
        assert_eq!((rank.late_median_us, rank.late_max_us, rank.caused_us), (3.0, 3.0, 8.0));
        assert_eq!(
            (found.ranks[0].waited_us, found.ranks[2].waited_us, rank.waited_us),
            (5.0, 3.0, 0.0)
        );
        let worst = &found.worst[0];
        assert_eq!((worst.last, worst.at_ns, worst.late_ns, worst.waited_ns), (1, 5_000, 3_000, 8_000));
        assert!(found.note.is_some(), "how clocks of separate files were tied together is said");
    }

    #[test]
    fn collectives_of_a_kind_meet_in_order_within_their_step() {
        // Two all-reduces under other names on rank 1, and one of rank 0's without a partner in the next step.
        let mut spans = collective(1, &[(0, 0), (1, 400)]);
        spans.extend(collective(1, &[(0, 10_000)]));
        spans.extend(collective(5, &[(1, 10_700)]));
        spans.extend(collective(1, &[(0, 30_000)]).into_iter().map(|span| Span { step: 1, ..span }));
        let mut trace = imported(spans);
        let mut other = trace.operations[1].clone();
        other.name = "another all-reduce".into();
        trace.operations.push(other);
        let found = stragglers(&trace);
        assert_eq!((found.matched, found.unmatched), (2, 1));
        assert_eq!((found.ranks[1].times_last, found.ranks[1].late_max_us), (2, 0.7));
        assert_eq!((found.worst[0].name.as_str(), found.worst[0].nth), ("another all-reduce", 1));
        // in one step nothing says which of rank 0's three belongs to which of rank 1's two
        trace.spans.iter_mut().for_each(|span| span.step = 0);
        trace.spans.sort_by_key(|s| (s.rank, s.start_ns));
        assert_eq!(trace_report(&trace, &Selection::default()).stragglers, None);
    }

    #[test]
    fn nobody_is_last_where_all_arrive_at_once_and_one_rank_has_no_peers() {
        let found = stragglers(&trace(collective(1, &[(0, 100), (1, 100)])));
        assert_eq!((found.matched, found.worst.len(), found.note), (1, 0, None));
        assert!(found.ranks.iter().all(|rank| rank.times_last == 0 && rank.caused_us == 0.0));
        let alone = trace(collective(1, &[(0, 100)]));
        assert_eq!(trace_report(&alone, &Selection::default()).stragglers, None);
    }

    #[test]
    fn own_traces_match_operations_not_kinds() {
        // Rank 1 executes the two collectives of the plan in the other order: they still find each other.
        let mut spans = collective(1, &[(0, 0), (1, 6_000)]);
        spans.extend(collective(5, &[(0, 5_000), (1, 0)]));
        let mut trace = trace(spans);
        trace.operations.push(trace.operations[1].clone());
        trace.spans.sort_by_key(|s| (s.rank, s.start_ns));
        let found = stragglers(&trace);
        assert_eq!(found.matched, 2);
        assert_eq!((found.ranks[0].late_max_us, found.ranks[1].late_max_us), (5.0, 6.0));
    }

    /// Ranks of a simulated run differ as much as was asked for.
    #[test]
    fn the_skew_of_a_simulated_run_is_found_again() {
        let (none, some) = (Skew::default(), Skew { rank_pct: 4.0, operation_pct: 6.0 });
        // the longest has so many spans that they are gone through in several pieces
        for (skew, output_tokens) in [(none, 6), (none, 60), (some, 6), (some, 60)] {
            let (model, dtype) = ("llama-3-8b".into(), DType::F16);
            let mut spec = Spec { model, dtype, tp: 8, prompt_tokens: 1024, output_tokens, ..spec() };
            spec.set.insert("skew.rank_pct".into(), skew.rank_pct.to_string());
            spec.set.insert("skew.operation_pct".into(), skew.operation_pct.to_string());
            let of_spec = simulated(&spec);
            let found = estimated_skew(&of_spec, &Selection::default()).unwrap();
            // eight ranks tell a deviation of their speeds to a quarter of it, thousands of operations theirs better
            assert!((found.rank_pct - skew.rank_pct).abs() <= 0.6 * skew.rank_pct + 0.01, "{found:?}");
            assert!(
                (found.operation_pct - skew.operation_pct).abs() <= 0.15 * skew.operation_pct + 0.01,
                "{found:?}"
            );
            let waited: f64 = stragglers(&of_spec).ranks.iter().map(|rank| rank.waited_us).sum();
            assert_eq!(waited > 8.0, skew.rank_pct > 0.0, "{waited}");
        }
    }

    #[test]
    fn waiting_is_told_from_transfer() {
        let mut spans = Vec::new();
        for (rank, late) in [(0, 0), (1, 4_000)] {
            spans.push(span(rank, Lane::Compute, 0, 10_000 + late));
            spans.push(span(rank, Lane::Comm, 10_000 + late, 20_000));
        }
        let report = trace_report(&trace(spans), &Selection::default());
        let row = &report.collectives[0];
        assert_eq!((row.executed.count, row.transfer_us, row.waited_us), (2, Some(6.0), Some(2.0)));
        assert_eq!(row.family, "decode/L*/mlp/reduce");
        let one = vec![span(0, Lane::Comm, 0, 5)];
        assert_eq!(estimated_skew(&trace(one), &Selection::default()), None);
    }
}
