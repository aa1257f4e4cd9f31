//! What one span waited for, and what waited for it: the edges along which a user walks through a step.
//!
//! A span waits for the operations that the plan says it waits for, for what was before it on its lane,
//! and, where it is a collective, for the ranks that arrived later. Streams of imported traces know
//! their order alone.

use serde::Serialize;

use super::critical::Why;
use plan::Lane;
use trace::overlap::StepKey;
use trace::{Span, Trace};

/// An edge to another span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Dependency {
    /// Index into the trace's spans.
    pub span: usize,
    /// Why the one waited for the other.
    pub why: Why,
}

/// The edges of a span.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dependencies {
    /// What it waited for, the last to end (of peers: to arrive) first.
    pub before: Vec<Dependency>,
    /// What waited for it, the first to start first.
    pub after: Vec<Dependency>,
}

/// The edges of the span at a place of a trace; none where there is no such span. Costs as much as a step
/// has spans. The trace's spans must be sorted, as they are in every trace that was read or recorded.
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
    // imported traces know of neither, and a step may be all of one
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
            // who arrived earlier waited for who arrived later
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
    // A peer holds a collective up until it arrives, anything else until it ends.
    let until = |dependency: &Dependency| match dependency.why {
        Why::Peer => trace.spans[dependency.span].start_ns,
        _ => trace.spans[dependency.span].end_ns,
    };
    // At the same time the plan's edges come first: they are what it says.
    let rank = |dependency: &Dependency| u8::from(dependency.why == Why::Lane);
    dependencies.before.sort_by_key(|dependency| {
        (std::cmp::Reverse(until(dependency)), rank(dependency), dependency.span)
    });
    dependencies.after.sort_by_key(|dependency| {
        (trace.spans[dependency.span].start_ns, rank(dependency), dependency.span)
    });
    dependencies
}

/// Whether two spans are of the same collective on different ranks. (Kernels of imported traces have
/// names, not identities: no one can tell which of them belong together.)
fn is_peer(span: &Span, other: &Span) -> bool {
    span.lane == Lane::Comm && other.lane == Lane::Comm && other.operation == span.operation
}

/// The place of what was before a span, or came after it, on its lane (or stream): in its step, else in
/// the step before or after of the same rank.
fn on_lane(trace: &Trace, at: usize, after: bool) -> Option<usize> {
    let span = &trace.spans[at];
    let same =
        |other: &Span| (other.rank, other.lane, other.stream) == (span.rank, span.lane, span.stream);
    let own = StepKey::of(span).spans(trace);
    // by the order of the trace, so that spans that start at once are before or after one another
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
        // a generation does not wait for the one before it: the user's clock stood still between them
        (step.sample == span.sample).then(|| nearest(step.spans(trace))).flatten()
    })
}

#[cfg(test)]
mod tests;
