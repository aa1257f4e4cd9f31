//! Edges of spans: made by hand, and against the critical path, which walks along the same ones.

use proptest::prelude::*;

use super::*;
use crate::analysis::critical_path;
use plan::Phase;
use run::testing::simulated;
use trace::testing::{span, trace};

/// Rank 0: down (0..100), its reduce (100..200), attend (200..300) that waits for it; rank 1 arrives at 150.
fn made() -> Trace {
    let attend = |rank| Span { operation: 2, ..span(rank, Lane::Compute, 200, 300) };
    let mut trace = trace(vec![
        span(0, Lane::Compute, 0, 100),
        attend(0),
        span(0, Lane::Comm, 100, 200),
        span(1, Lane::Compute, 0, 150),
        attend(1),
        span(1, Lane::Comm, 150, 200),
    ]);
    trace.operations[1].waits_for = vec![0];
    trace.operations[2].waits_for = vec![1];
    trace
}

fn ends(dependencies: &[Dependency]) -> Vec<(usize, Why)> {
    dependencies.iter().map(|dependency| (dependency.span, dependency.why)).collect()
}

#[test]
fn a_collective_waits_for_its_operand_and_for_who_arrives_later() {
    let of = dependencies(&made(), 2);
    assert_eq!(ends(&of.before), [(5, Why::Peer), (0, Why::Result)], "the peer arrived last");
    assert_eq!(ends(&of.after), [(1, Why::Result)]);
    let late = dependencies(&made(), 5);
    assert_eq!(ends(&late.before), [(3, Why::Result)], "nobody arrived after it");
    assert_eq!(ends(&late.after), [(2, Why::Peer), (4, Why::Result)]);
}

#[test]
fn what_was_before_on_the_lane_is_waited_for_even_in_the_step_before() {
    let of = dependencies(&made(), 1);
    assert_eq!(ends(&of.before), [(2, Why::Result), (0, Why::Lane)], "the result came later");
    let mut two = made();
    let next = Span { step: 1, ..span(0, Lane::Compute, 310, 320) };
    two.spans.push(next);
    assert_eq!(ends(&dependencies(&two, 6).before), [(1, Why::Lane)]);
    assert_eq!(ends(&dependencies(&two, 1).after), [(6, Why::Lane)]);
    two.spans[6].sample = 1;
    assert_eq!(dependencies(&two, 6), Dependencies::default(), "another generation");
}

#[test]
fn a_place_beyond_the_trace_has_no_links() {
    assert_eq!(dependencies(&made(), 99), Dependencies::default());
}

#[test]
fn the_critical_path_walks_along_links() {
    let mut spec = table::testing::spec();
    spec.set.insert("skew.operation_pct".into(), "30".into());
    let trace = simulated(&spec);
    let mut peers = 0;
    for step in 0..4 {
        let path = critical_path(&trace, 0, Phase::Decode, step);
        assert!(path.len() > 10);
        peers += path.iter().filter(|step| step.why == Why::Peer).count();
        for pair in path.windows(2) {
            let before = dependencies(&trace, pair[1].span).before;
            assert!(
                before.iter().any(|dependency| dependency.span == pair[0].span),
                "{pair:?}: {before:?}"
            );
        }
    }
    assert!(peers > 0, "ranks that differ wait for one another");
}

proptest! {
    #[test]
    fn links_go_both_ways(
        starts in prop::collection::vec((0u32..2, 0u32..5, 0i64..300, 1i64..60), 1..40),
        waits in prop::collection::vec(prop::collection::vec(0u32..5, 0..3), 5),
    ) {
        let mut spans: Vec<Span> = starts
            .into_iter()
            .map(|(rank, operation, start, width)| {
                let lane = if operation == 1 { Lane::Comm } else { Lane::Compute };
                Span { operation, ..span(rank, lane, start, start + width) }
            })
            .collect();
        spans.sort_by_key(|s| (StepKey::of(s), s.rank, s.lane, s.start_ns));
        let mut trace = trace(spans);
        for (operation, waits) in trace.operations.iter_mut().zip(waits) {
            operation.waits_for = waits;
        }
        for at in 0..trace.spans.len() {
            let of = dependencies(&trace, at);
            for (list, back) in [(&of.before, false), (&of.after, true)] {
                for dependency in list {
                    let other = dependencies(&trace, dependency.span);
                    let there = if back { other.before } else { other.after };
                    prop_assert!(there.iter().any(|l| l.span == at), "{} and {}", at, dependency.span);
                }
            }
        }
    }
}
