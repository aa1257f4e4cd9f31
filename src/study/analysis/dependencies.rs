//! Dependencies of a span, in both directions, for walking through a step.
//!
//! A span waits for the operations that the plan lists, for the previous span on its lane, and, if it is a collective,
//! for ranks that arrived later. Imported traces only have the order within a stream.

use serde::Serialize;

use super::critical::Why;
use plan::Lane;
use trace::overlap::StepKey;
use trace::{Span, Trace};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Dependency {
    /// Index into the trace's spans.
    pub span: usize,
    pub why: Why,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
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
    let step = StepKey::of(span);
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
                dependencies.before.push(Dependency { span: place, why: Why::Result });
            }
            if waits(other.operation).contains(&span.operation) && other.start_ns >= span.start_ns {
                dependencies.after.push(Dependency { span: place, why: Why::Result });
            }
        } else if is_peer(span, other) {
            // earlier ranks waited for later ones
            match other.start_ns > span.start_ns {
                true => dependencies.before.push(Dependency { span: place, why: Why::Peer }),
                false if other.start_ns < span.start_ns => {
                    dependencies.after.push(Dependency { span: place, why: Why::Peer });
                }
                false => {}
            }
        }
    }
    let add = |list: &mut Vec<Dependency>, place: Option<usize>| {
        if let Some(span) = place.filter(|place| list.iter().all(|dependency| dependency.span != *place))
        {
            list.push(Dependency { span, why: Why::Lane });
        }
    };
    add(&mut dependencies.before, on_lane(trace, at, false));
    add(&mut dependencies.after, on_lane(trace, at, true));
    // a peer delays a collective until it arrives, other spans until they end
    let until = |dependency: &Dependency| match dependency.why {
        Why::Peer => trace.spans[dependency.span].start_ns,
        _ => trace.spans[dependency.span].end_ns,
    };
    // on a tie the plan's edges come first
    let rank = |dependency: &Dependency| u8::from(dependency.why == Why::Lane);
    dependencies.before.sort_by_key(|dependency| {
        (std::cmp::Reverse(until(dependency)), rank(dependency), dependency.span)
    });
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
    let own = StepKey::of(span).spans(trace);
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
        let step = StepKey::of(neighbour?);
        // generations are independent: the clock may pause between them
        (step.sample == span.sample).then(|| nearest(step.spans(trace))).flatten()
    })
}

#[cfg(test)]
mod tests;
