//! Dependencies of a span, in both directions, for walking through a step.
//!
//! A span waits for the operations that the plan lists, for the previous span on its lane, and, if it is a collective,
//! for ranks that arrived later. Imported traces only have the order within a stream.

use std::cmp::{Ordering, Reverse};

use super::critical::PathReason;
use plan::Lane;
use trace::overlap::StepKey;
use trace::{Span, Trace};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// Index into the trace's spans.
    pub span: usize,
    pub why: PathReason,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// Spans it waited for, the last to end (peers: to arrive) first.
    pub before: Vec<Dependency>,
    /// Spans that waited for it, the first to start first.
    pub after: Vec<Dependency>,
}

/// Edges of the span at an index; none if there is no such span. Scans the spans of a step. Spans must be sorted, as in
/// every trace that was read or recorded.
pub fn dependencies(trace: &Trace, at: usize) -> Dependencies {
    let Some(span) = trace.spans.get(at) else { return Dependencies::default() };
    let step = StepKey::from_span(span);
    let places = step.spans(trace);
    if !places.contains(&at) {
        return Dependencies::default();
    }
    let waits = |operation: u32| -> &[u32] {
        trace.operations.get(operation as usize).map_or(&[], |o| o.waits_for.as_slice())
    };
    let mut dependencies = Dependencies::default();
    // imported traces have neither dependencies nor peers, and may be one single step
    let known = if trace.meta.import.is_none() { places } else { at..at };
    for place in known.filter(|place| *place != at) {
        let other = &trace.spans[place];
        if other.rank == span.rank {
            if waits(span.operation).contains(&other.operation) && other.start_ns <= span.start_ns {
                dependencies.before.push(Dependency { span: place, why: PathReason::Result });
            }
            if waits(other.operation).contains(&span.operation) && other.start_ns >= span.start_ns {
                dependencies.after.push(Dependency { span: place, why: PathReason::Result });
            }
        } else if is_peer(span, other) {
            // earlier ranks waited for later ones
            let list = match other.start_ns.cmp(&span.start_ns) {
                Ordering::Greater => &mut dependencies.before,
                Ordering::Less => &mut dependencies.after,
                Ordering::Equal => continue,
            };
            list.push(Dependency { span: place, why: PathReason::Peer });
        }
    }
    let add = |list: &mut Vec<Dependency>, place: Option<usize>| {
        if let Some(span) = place.filter(|place| list.iter().all(|dependency| dependency.span != *place))
        {
            list.push(Dependency { span, why: PathReason::Lane });
        }
    };
    add(&mut dependencies.before, on_lane(trace, at, false));
    add(&mut dependencies.after, on_lane(trace, at, true));
    // a peer delays a collective until it arrives, other spans until they end
    let until = |dependency: &Dependency| match dependency.why {
        PathReason::Peer => trace.spans[dependency.span].start_ns,
        _ => trace.spans[dependency.span].end_ns,
    };
    // on a tie the plan's edges come first
    let rank = |dependency: &Dependency| u8::from(dependency.why == PathReason::Lane);
    dependencies
        .before
        .sort_by_key(|dependency| (Reverse(until(dependency)), rank(dependency), dependency.span));
    dependencies.after.sort_by_key(|dependency| {
        (trace.spans[dependency.span].start_ns, rank(dependency), dependency.span)
    });
    dependencies
}

/// True if two spans belong to the same collective on different ranks. Kernels of imported traces cannot be matched by
/// name.
fn is_peer(span: &Span, other: &Span) -> bool {
    span.lane == Lane::Comm && other.lane == Lane::Comm && other.operation == span.operation
}

/// Index of the previous or next span on the same lane (or stream): in the same step, else in the adjacent step of the
/// same rank.
fn on_lane(trace: &Trace, at: usize, after: bool) -> Option<usize> {
    let span = &trace.spans[at];
    let same =
        |other: &Span| (other.rank, other.lane, other.stream) == (span.rank, span.lane, span.stream);
    let own = StepKey::from_span(span).spans(trace);
    // in trace order, so that spans that start at once still have an order
    let nearest = |places: std::ops::Range<usize>| -> Option<usize> {
        match after {
            true => places.clone().find(|place| same(&trace.spans[*place])),
            false => places.clone().rev().find(|place| same(&trace.spans[*place])),
        }
    };
    let inside = if after { at + 1..own.end } else { own.start..at };
    nearest(inside).or_else(|| {
        let neighbour = match after {
            true => trace.spans.get(own.end),
            false => own.start.checked_sub(1).and_then(|place| trace.spans.get(place)),
        };
        let step = StepKey::from_span(neighbour?);
        // generations are independent: the clock may pause between them
        (step.sample == span.sample).then(|| nearest(step.spans(trace))).flatten()
    })
}

#[cfg(test)]
mod tests {
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

    fn ends(dependencies: &[Dependency]) -> Vec<(usize, PathReason)> {
        dependencies.iter().map(|dependency| (dependency.span, dependency.why)).collect()
    }

    #[test]
    fn a_collective_waits_for_its_operand_and_for_who_arrives_later() {
        let of = dependencies(&made(), 2);
        assert_eq!(
            ends(&of.before),
            [(5, PathReason::Peer), (0, PathReason::Result)],
            "the peer arrived last"
        );
        assert_eq!(ends(&of.after), [(1, PathReason::Result)]);
        let late = dependencies(&made(), 5);
        assert_eq!(ends(&late.before), [(3, PathReason::Result)], "nobody arrived after it");
        assert_eq!(ends(&late.after), [(2, PathReason::Peer), (4, PathReason::Result)]);
    }

    #[test]
    fn what_was_before_on_the_lane_is_waited_for_even_in_the_step_before() {
        let of = dependencies(&made(), 1);
        assert_eq!(
            ends(&of.before),
            [(2, PathReason::Result), (0, PathReason::Lane)],
            "the result came later"
        );
        let mut two = made();
        let next = Span { step: 1, ..span(0, Lane::Compute, 310, 320) };
        two.spans.push(next);
        assert_eq!(ends(&dependencies(&two, 6).before), [(1, PathReason::Lane)]);
        assert_eq!(ends(&dependencies(&two, 1).after), [(6, PathReason::Lane)]);
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
            peers += path.iter().filter(|step| step.why == PathReason::Peer).count();
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
            spans.sort_by_key(|s| (StepKey::from_span(s), s.rank, s.lane, s.start_ns));
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
}
