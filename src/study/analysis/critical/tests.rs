//! Critical paths of traces made by hand.

use super::*;
use crate::analysis::trace_report;
use trace::overlap::Selection;
use trace::testing::{span, trace};

/// Operations 0 to 4 in a row, each waiting for the one before; 1 is the collective.
fn chained(spans: Vec<Span>) -> Trace {
    let mut trace = trace(spans);
    for at in 1..trace.operations.len() {
        trace.operations[at].waits_for = vec![at as u32 - 1];
    }
    let key = |s: &Span| (StepKey::of(s), s.rank, s.lane, s.start_ns);
    trace.spans.sort_by_key(key);
    trace
}

fn op(rank: u32, operation: u32, from: i64, to: i64) -> Span {
    let lane = if operation == 1 { Lane::Comm } else { Lane::Compute };
    Span { operation, ..span(rank, lane, from, to) }
}

/// (rank, operation, why, from, to) of each step.
fn described(trace: &Trace) -> Vec<(u32, u32, Why, i64, i64)> {
    critical_path(trace, 0, Phase::Decode, 0)
        .iter()
        .map(|s| {
            let span = &trace.spans[s.span];
            (span.rank, span.operation, s.why, s.from_ns, s.to_ns)
        })
        .collect()
}

#[test]
fn a_chain_is_its_own_path_and_gaps_lie_between() {
    let trace = chained(vec![op(0, 0, 100, 200), op(0, 1, 210, 300), op(0, 2, 300, 450)]);
    assert_eq!(
        described(&trace),
        [(0, 0, Why::Result, 100, 200), (0, 1, Why::Result, 210, 300), (0, 2, Why::Last, 300, 450)]
    );
    let summary = trace_report(&trace, &Selection::default()).critical_path.unwrap();
    assert_eq!((summary.steps, summary.length_us), (1, 0.35));
    assert_eq!((summary.compute_us, summary.transfer_us, summary.gap_us), (0.25, 0.09, 0.01));
    assert_eq!(summary.parts[0].kind, "attend", "the longest part comes first");
}

#[test]
fn the_hosts_time_before_a_simulated_step_is_a_gap_of_its_path() {
    let at = |step, span: Span| Span { step, ..span };
    let mut trace = chained(vec![
        at(4, op(0, 0, 100, 200)),
        at(4, op(0, 1, 200, 300)),
        at(5, op(0, 0, 350, 450)),
        at(5, op(0, 1, 450, 500)),
    ]);
    let of = |trace: &Trace| {
        let step = Selection { step: Some(5), ..Selection::default() };
        let found = trace_report(trace, &step).critical_path.unwrap();
        let path = critical_path(trace, 0, Phase::Decode, 5);
        assert_eq!(path_summary(trace, &path).unwrap(), found);
        (found.length_us, found.gap_us)
    };
    assert_eq!(of(&trace), (0.2, 0.05));
    trace.meta.provenance = table::Provenance::Measured;
    assert_eq!(of(&trace), (0.15, 0.0));
}

#[test]
fn at_a_collective_the_path_goes_on_where_the_last_rank_came_from() {
    let trace = chained(vec![
        op(0, 0, 0, 100),
        op(0, 1, 100, 600),
        op(0, 2, 600, 900),
        op(1, 0, 0, 400),
        op(1, 1, 400, 600),
        op(1, 2, 600, 700),
    ]);
    assert_eq!(
        described(&trace),
        [
            (1, 0, Why::Result, 0, 400),
            (1, 1, Why::Peer, 400, 400),
            (0, 1, Why::Result, 400, 600),
            (0, 2, Why::Last, 600, 900)
        ]
    );
    let summary = trace_report(&trace, &Selection::default()).critical_path.unwrap();
    assert_eq!((summary.compute_us, summary.transfer_us, summary.rank_changes), (0.7, 0.2, 1.0));
    let reduce = summary.parts.iter().find(|p| p.kind == "all_reduce").unwrap();
    assert_eq!(reduce.count, 1.0, "both ranks' spans are one collective");
}

#[test]
fn a_peer_that_the_trace_does_not_show_is_waited_for() {
    let mut collective = op(0, 1, 100, 600);
    collective.last_arrival_ns = 450;
    let trace = chained(vec![op(0, 0, 0, 100), collective]);
    let summary = trace_report(&trace, &Selection::default()).critical_path.unwrap();
    assert_eq!((summary.compute_us, summary.peer_us, summary.transfer_us), (0.1, 0.35, 0.15));
}

#[test]
fn a_hidden_collective_is_not_on_the_path_but_a_busy_lane_is() {
    // 2 does not wait for the collective, but for its lane; 3 waits for 1, which was done long before.
    let mut trace =
        chained(vec![op(0, 0, 0, 100), op(0, 1, 100, 200), op(0, 2, 100, 400), op(0, 3, 400, 500)]);
    trace.operations[2].waits_for = vec![];
    trace.operations[3].waits_for = vec![1];
    assert_eq!(
        described(&trace),
        [(0, 0, Why::Lane, 0, 100), (0, 2, Why::Lane, 100, 400), (0, 3, Why::Last, 400, 500)]
    );
}

#[test]
fn without_dependencies_or_without_the_step_there_is_no_path() {
    let imported = trace(vec![op(0, 0, 0, 100)]);
    assert!(critical_path(&imported, 0, Phase::Decode, 0).is_empty());
    assert_eq!(trace_report(&imported, &Selection::default()).critical_path, None);
    assert!(critical_path(&chained(vec![op(0, 0, 0, 9)]), 0, Phase::Decode, 7).is_empty());
}

mod laws {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However odd the clocks: a path ends, has no span twice, and its parts add up.
        #[test]
        fn parts_add_up_to_the_length(
            spans in prop::collection::vec((0u32..3, 0u32..5, 0i64..900, -50i64..300), 1..40),
            waits in prop::collection::vec(prop::collection::vec(0u32..6, 0..3), 5),
        ) {
            let spans = spans.into_iter().map(|(rank, operation, start, length)| {
                let mut span = op(rank, operation, start, start + length);
                if span.lane == Lane::Comm { span.last_arrival_ns = start + length / 2 }
                span
            });
            let mut trace = chained(spans.collect());
            for (operation, waits) in trace.operations.iter_mut().zip(waits) {
                operation.waits_for = waits;
            }
            trace.operations[0].waits_for.push(4);
            let path = critical_path(&trace, 0, Phase::Decode, 0);
            prop_assert!(!path.is_empty());
            let mut seen: Vec<usize> = path.iter().map(|s| s.span).collect();
            seen.sort_unstable();
            seen.dedup();
            prop_assert_eq!(seen.len(), path.len());
            prop_assert!(path.iter().all(|s| s.from_ns <= s.to_ns && s.peer_ns <= s.to_ns - s.from_ns));
            prop_assert!(path.windows(2).all(|w| w[0].to_ns <= w[1].from_ns));
            let sum = trace_report(&trace, &Selection::default()).critical_path.unwrap();
            let parts = sum.compute_us + sum.transfer_us + sum.peer_us + sum.gap_us;
            prop_assert!((parts - sum.length_us).abs() < 1e-6, "{:?}", sum);
        }
    }
}
