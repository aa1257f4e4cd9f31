//! Arrivals and stragglers in traces made by hand.

use super::*;
use crate::analysis::{Stragglers, trace_report};
use machine::hardware::Skew;
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
    assert_eq!((found.ranks[0].waited_us, found.ranks[2].waited_us, rank.waited_us), (5.0, 3.0, 0.0));
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
        let found = arrivals(&of_spec, &Selection::default()).unwrap();
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
