//! Experts of a mixture: time of their kernels by rank, the exchange of tokens around them, and the wait for the
//! rank with the most.
//!
//! A call is one execution of a layer's experts on a rank: one operation of an own plan, or the kernels of kind
//! `experts` of a foreign trace between two collectives or choices of experts. The n-th calls of all ranks belong
//! together if all ranks have equally many.

use std::collections::HashSet;

use serde::Serialize;

use super::clocks::Clocks;
use super::matched::CollectiveMatching;
use base::text::latency;
use table::render::{Shown, Table};
use trace::overlap::{Class, Selection, SpanRuns, us};
use trace::{OperationKind, Trace};

#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct RankExperts {
    pub rank: u32,
    /// Executions of a layer's experts.
    pub calls: u64,
    /// Sum of the durations of the experts' kernels (us).
    pub experts_us: f64,
    /// `experts_us` divided by the mean over ranks.
    pub load: f64,
    /// Calls in which this rank's experts took longest; null if calls do not match across ranks.
    pub times_longest: Option<u64>,
    /// Wait for the last rank at the collectives that follow experts (us); null if none is matched across ranks.
    pub waited_us: Option<f64>,
    /// Wait of all other ranks for this one at these collectives (us).
    pub caused_us: Option<f64>,
}

/// Experts of a mixture. Times are sums of durations per rank, averaged over ranks (us).
#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ExpertTimes {
    pub experts_us: f64,
    pub router_us: f64,
    pub dispatch_us: f64,
    pub combine_us: f64,
    /// Longest expert time of a rank divided by the mean over ranks, averaged over calls by time; null for one rank
    /// or if calls do not match across ranks.
    pub imbalance: Option<f64>,
    /// Wait for the last rank at the collectives that follow experts; null if none is matched across ranks.
    pub waited_us: Option<f64>,
    pub ranks: Vec<RankExperts>,
}

/// Matched collectives of a mixture's trace, for the times of its experts in any part.
#[derive(Debug)]
pub struct ExpertLoads {
    matching: CollectiveMatching,
    clocks: Clocks,
}

impl ExpertLoads {
    /// `None` for a trace without experts.
    pub fn from_trace(trace: &Trace) -> Option<Self> {
        if !trace.has_experts() {
            return None;
        }
        let matching = CollectiveMatching::from_trace(trace);
        let clocks = Clocks::new(trace, &matching);
        Some(Self { matching, clocks })
    }

    /// Times in a part of the same trace; `None` if no experts ran there.
    pub fn times(&self, trace: &Trace, selection: &Selection) -> Option<ExpertTimes> {
        experts(&SpanRuns::new(trace, selection), &self.matching, &self.clocks)
    }
}

impl ExpertTimes {
    /// Ranks with the least and the most time in experts, relative to the mean: `r0 0.93x to r3 1.08x`; `None` for one
    /// rank.
    fn spread(&self) -> Option<String> {
        if self.ranks.len() < 2 {
            return None;
        }
        let by_load = |a: &&RankExperts, b: &&RankExperts| a.load.total_cmp(&b.load);
        let (least, most) = (self.ranks.iter().min_by(by_load)?, self.ranks.iter().max_by(by_load)?);
        Some(format!("r{} {:.2}x to r{} {:.2}x", least.rank, least.load, most.rank, most.load))
    }

    /// Load of all ranks: `r0 0.93x to r3 1.08x the mean, waits 12.3 us a rank`.
    pub fn in_words(&self) -> Option<String> {
        let waited = self.waited_us.map(|us| format!(", waits {} a rank", latency(us)));
        Some(format!("{} the mean{}", self.spread()?, waited.unwrap_or_default()))
    }

    /// Load of one rank: `r2 1.08x the mean (r0 0.93x to r2 1.08x), longest in 14 of 36 calls, waited 2.1 us after
    /// experts, others 45.1 us for it`.
    pub fn of_rank(&self, rank: u32) -> Option<String> {
        let own = self.ranks.iter().find(|own| own.rank == rank)?;
        let mut words = format!("r{rank} {:.2}x the mean ({})", own.load, self.spread()?);
        if let Some(longest) = own.times_longest {
            words += &format!(", longest in {longest} of {} calls", own.calls);
        }
        if let Some((waited, caused)) = own.waited_us.zip(own.caused_us) {
            words += &format!(
                ", waited {} after experts, others {} for it",
                latency(waited),
                latency(caused)
            );
        }
        Some(words)
    }
}

/// Calls of one rank: times of the experts (ns), and the collectives that follow them.
#[derive(Default)]
struct Calls {
    times: Vec<i64>,
    after: Vec<usize>,
    router: i64,
    dispatch: i64,
    combine: i64,
}

/// Times of the experts; `None` without any.
pub(super) fn experts(
    runs: &SpanRuns,
    matching: &CollectiveMatching,
    clocks: &Clocks,
) -> Option<ExpertTimes> {
    if !runs.trace.has_experts() {
        return None;
    }
    let calls: Vec<Calls> = (0..runs.ranks.len()).map(|rank| Calls::new(runs, rank)).collect();
    let count = calls.len().max(1) as f64;
    let total = |calls: &Calls| calls.times.iter().sum::<i64>();
    let mean = calls.iter().map(total).sum::<i64>() as f64 / count;
    if mean <= 0.0 {
        return None;
    }
    let mut ranks: Vec<RankExperts> = runs
        .ranks
        .iter()
        .zip(&calls)
        .map(|(rank, calls)| RankExperts {
            rank: *rank,
            calls: calls.times.len() as u64,
            experts_us: us(total(calls)),
            load: total(calls) as f64 / mean,
            ..RankExperts::default()
        })
        .collect();
    let imbalance = imbalance(&calls, &mut ranks);
    let waited_us = waits(runs, &calls, (matching, clocks), &mut ranks);
    let average = |of: fn(&Calls) -> i64| us(calls.iter().map(of).sum()) / count;
    Some(ExpertTimes {
        experts_us: mean / 1e3,
        router_us: average(|calls| calls.router),
        dispatch_us: average(|calls| calls.dispatch),
        combine_us: average(|calls| calls.combine),
        imbalance,
        waited_us,
        ranks,
    })
}

impl Calls {
    fn new(runs: &SpanRuns, rank: usize) -> Self {
        let mut places: Vec<usize> = Vec::new();
        for run in &runs.by_rank[rank] {
            places.extend(run.at.clone().filter(|place| {
                let span = &runs.trace.spans[*place];
                let is_part = matches!(
                    runs.trace.operation_kind(span),
                    Some(OperationKind::Experts | OperationKind::Router)
                );
                (is_part || runs.class(span) == Class::Comm) && runs.selects(span)
            }));
        }
        places.sort_by_key(|place| runs.trace.spans[*place].start_ns);
        let is_own = runs.trace.meta.import.is_none();
        let mut calls = Self::default();
        // time of the call so far; experts without a collective after them
        let (mut open, mut waits): (Option<i64>, bool) = (None, false);
        for place in places {
            let span = &runs.trace.spans[place];
            let Some(info) = runs.trace.operations.get(span.operation as usize) else { continue };
            let Some(time) = runs.time(span) else { continue };
            if info.kind == OperationKind::Experts {
                *open.get_or_insert(0) += time;
                waits = true;
                if is_own {
                    calls.times.extend(open.take());
                }
                continue;
            }
            calls.times.extend(open.take());
            match info.kind {
                OperationKind::Router => calls.router += time,
                OperationKind::Dispatch => calls.dispatch += time,
                OperationKind::Combine => calls.combine += time,
                _ => {}
            }
            // an own plan names the module; attention's collectives may run beside its experts
            let follows = if is_own { info.module == "moe" } else { std::mem::take(&mut waits) };
            if follows && runs.class(span) == Class::Comm && info.kind != OperationKind::Dispatch {
                calls.after.push(place);
            }
        }
        calls.times.extend(open);
        calls
    }
}

/// Mean excess of the longest call over the ranks' mean; counts each rank's longest calls.
fn imbalance(calls: &[Calls], ranks: &mut [RankExperts]) -> Option<f64> {
    let count = calls[0].times.len();
    if calls.len() < 2 || calls.iter().any(|calls| calls.times.len() != count) {
        return None;
    }
    ranks.iter_mut().for_each(|rank| rank.times_longest = Some(0));
    let (mut longest, mut all) = (0i64, 0i64);
    for at in 0..count {
        let times = || calls.iter().map(move |calls: &Calls| calls.times[at]);
        let most = times().max().unwrap_or(0);
        longest += most;
        all += times().sum::<i64>();
        if times().filter(|time| *time == most).count() == 1
            && let Some(rank) = times().position(|time| time == most)
            && let Some(times) = &mut ranks[rank].times_longest
        {
            *times += 1;
        }
    }
    (all > 0).then(|| longest as f64 * calls.len() as f64 / all as f64)
}

/// Waits at the collectives after experts, by rank; returns the mean over ranks.
fn waits(
    runs: &SpanRuns,
    calls: &[Calls],
    (matching, clocks): (&CollectiveMatching, &Clocks),
    ranks: &mut [RankExperts],
) -> Option<f64> {
    let after: HashSet<usize> = calls.iter().flat_map(|calls| calls.after.iter().copied()).collect();
    let (mut waited, mut caused) = (vec![0i64; ranks.len()], vec![0i64; ranks.len()]);
    let mut found = false;
    for collective in
        matching.selected(runs).filter(|one| one.places.iter().all(|at| after.contains(at)))
    {
        found = true;
        let arrived = matching.arrived(runs.trace, clocks, &collective);
        let index = |at: usize| {
            let rank = runs.trace.spans[collective.places[at]].rank;
            runs.ranks.binary_search(&rank).unwrap_or(0)
        };
        arrived.waited.iter().enumerate().for_each(|(at, ns)| waited[index(at)] += ns);
        if let Some(last) = (0..arrived.starts.len()).max_by_key(|at| arrived.starts[*at]) {
            caused[index(last)] += arrived.waited.iter().sum::<i64>();
        }
    }
    if !found || ranks.len() < 2 {
        return None;
    }
    for ((rank, waited), caused) in ranks.iter_mut().zip(&waited).zip(caused) {
        (rank.waited_us, rank.caused_us) = (Some(us(*waited)), Some(us(caused)));
    }
    Some(us(waited.iter().sum()) / ranks.len() as f64)
}

/// Table of the ranks' experts.
pub fn experts_table(experts: &ExpertTimes) -> Table {
    Table::from_rows(
        &experts.ranks,
        &[
            ("rank", &|r: &RankExperts| r.rank.into()),
            ("calls", &|r| r.calls.into()),
            ("experts_us|experts", &|r| Shown::Time(r.experts_us)),
            ("load|load, mean 1", &|r| Shown::Number(r.load, 2)),
            ("times_longest|times longest", &|r| r.times_longest.into()),
            ("waited_us|waited after", &|r| Shown::time(r.waited_us)),
            ("caused_us|others waited, sum", &|r| Shown::time(r.caused_us)),
        ],
    )
}

#[cfg(test)]
mod tests {
    use crate::analysis::trace_report;
    use plan::{DType, Phase};
    use run::testing::simulated;
    use table::Spec;
    use table::testing::spec;
    use trace::Trace;
    use trace::import::kineto::{KinetoOptions, import_bytes};
    use trace::overlap::Selection;
    use trace::rules::Rules;

    fn cell(ep: u32, dp: u32) -> Spec {
        let model = "gpt-oss-120b".into();
        let tp = if dp > 1 { 1 } else { 8 };
        Spec { model, dtype: DType::Bf16, tp, ep, dp, batch: 32, output_tokens: 4, ..spec() }
    }

    #[test]
    fn whole_experts_differ_by_rank_and_slices_do_not() {
        for (ep, dp) in [(1, 1), (8, 1), (8, 8)] {
            let decode = Selection { phase: Some(Phase::Decode), ..Selection::default() };
            let found = trace_report(&simulated(&cell(ep, dp)), &decode);
            let experts = found.experts.as_ref().expect("a mixture");
            assert_eq!(experts.ranks.len(), 8);
            assert_eq!(experts.ranks[0].calls, 3 * 36, "3 decode steps of 36 layers");
            let load: f64 = experts.ranks.iter().map(|rank| rank.load).sum();
            assert!((load - 8.0).abs() < 1e-6, "{load}");
            let imbalance = experts.imbalance.expect("calls match");
            assert_eq!(imbalance > 1.05, ep > 1, "EP {ep}: {imbalance}");
            assert_eq!(experts.dispatch_us > 0.0 && experts.combine_us > 0.0, dp > 1);
            assert_eq!(experts.waited_us.expect("matched") > 0.0, ep > 1);
            // the rank with the longest experts makes the others wait
            if ep > 1 {
                let by = |of: fn(&super::RankExperts) -> f64| {
                    let most = experts.ranks.iter().max_by(|a, b| of(a).total_cmp(&of(b)));
                    most.map(|rank| rank.rank)
                };
                assert_eq!(
                    by(|r| r.caused_us.unwrap_or(0.0)),
                    by(|r| r.times_longest.unwrap_or(0) as f64)
                );
            }
        }
    }

    /// Two ranks of an engine with DeepEP, whose second rank's experts take twice as long.
    #[test]
    fn experts_of_a_foreign_trace_are_found_by_their_kernels() {
        let layer = |rank: i64| {
            let long = 40 + 40 * rank;
            [
                ("void flash::flash_fwd_splitkv_kernel<128>(x)", 10, 30, 7),
                ("void vllm::moe::topkGatingSoftmax<8, 128, 4, 16, int>(x)", 40, 5, 7),
                ("void deep_ep::internode_ll::dispatch<true, 7168>(x)", 45, 15, 20),
                ("fused_moe_kernel", 60, long / 2, 7),
                ("void vllm::act_and_mul_kernel<c10::BFloat16>(x)", 60 + long / 2, 2, 7),
                ("fused_moe_kernel", 62 + long / 2, long / 2, 7),
                ("void deep_ep::internode_ll::combine<true, 7168, 9>(x)", 62 + long, 102 - long, 20),
            ]
        };
        let file = |rank: i64| {
            let kernels = (0..3).flat_map(|at| layer(rank).map(move |one| (at, one)));
            let events: Vec<String> = kernels
                .map(|(at, (name, ts, dur, stream))| {
                    format!(
                        r#"{{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": {stream}, "ts": {}, "dur": {dur},
                         "args": {{"device": 0, "stream": {stream}}}}}"#,
                        1_000 + 200 * at + ts
                    )
                })
                .collect();
            format!(
                r#"{{"distributedInfo": {{"rank": {rank}}}, "traceEvents": [{}]}}"#,
                events.join(",")
            )
        };
        let mut ranks: Vec<Trace> = [0, 1]
            .map(|rank| import_bytes("a.json", file(rank).as_bytes(), KinetoOptions::default()).unwrap())
            .into();
        let mut trace = ranks.remove(0);
        let second = ranks.remove(0);
        trace.spans.extend(second.spans.into_iter().map(|span| trace::Span { rank: 1, ..span }));
        trace.meta.ranks = 2;
        Rules::default().classify(&mut trace);
        let found = trace_report(&trace, &Selection::default()).experts.expect("experts");
        assert_eq!(found.ranks.iter().map(|rank| rank.calls).collect::<Vec<_>>(), [3, 3]);
        assert_eq!((found.ranks[0].experts_us, found.ranks[1].experts_us), (120.0, 240.0));
        assert!((found.imbalance.expect("matched") - 80.0 / 60.0).abs() < 1e-9);
        assert_eq!((found.router_us, found.dispatch_us), (15.0, 45.0));
        assert_eq!(found.ranks[1].times_longest, Some(3));
        assert_eq!(found.ranks[0].waited_us, Some(120.0), "{found:?}");
        assert_eq!(found.ranks[1].caused_us, Some(120.0));
    }
}
