//! What one span waited for, and what waited for it: the edges along which a user walks through a step.
//!
//! A span waits for the operations that the plan says it waits for, for what was before it on its lane,
//! and, where it is a collective, for the ranks that arrived later. Streams of imported traces know
//! their order alone.

use serde::Serialize;

use super::critical::Why;
use super::runs::StepKey;
use crate::plan::Lane;
use crate::trace::{Span, Trace};

/// An edge to another span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Index into the trace's spans.
    pub span: usize,
    /// Why the one waited for the other.
    pub why: Why,
}

/// The edges of a span.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Links {
    /// What it waited for, the last to end (of peers: to arrive) first.
    pub before: Vec<Link>,
    /// What waited for it, the first to start first.
    pub after: Vec<Link>,
}

/// The edges of the span at a place of a trace; none where there is no such span. Costs as much as a step
/// has spans. The trace's spans must be sorted, as they are in every trace that was read or recorded.
pub fn links(trace: &Trace, at: usize) -> Links {
    let Some(span) = trace.spans.get(at) else { return Links::default() };
    let step = StepKey::of(span);
    let places = step.spans(trace);
    if !places.contains(&at) {
        return Links::default();
    }
    let waits = |operation: u32| -> &[u32] {
        trace.operations.get(operation as usize).map_or(&[], |o| o.waits_for.as_slice())
    };
    let mut links = Links::default();
    // imported traces know of neither, and a step may be all of one
    let known = if trace.meta.import.is_none() { places } else { at..at };
    for place in known.filter(|place| *place != at) {
        let other = &trace.spans[place];
        if other.rank == span.rank {
            if waits(span.operation).contains(&other.operation) && other.start_ns <= span.start_ns {
                links.before.push(Link { span: place, why: Why::Result });
            }
            if waits(other.operation).contains(&span.operation) && other.start_ns >= span.start_ns {
                links.after.push(Link { span: place, why: Why::Result });
            }
        } else if is_peer(span, other) {
            // who arrived earlier waited for who arrived later
            match other.start_ns > span.start_ns {
                true => links.before.push(Link { span: place, why: Why::Peer }),
                false if other.start_ns < span.start_ns => {
                    links.after.push(Link { span: place, why: Why::Peer });
                }
                false => {}
            }
        }
    }
    let add = |list: &mut Vec<Link>, place: Option<usize>| {
        if let Some(span) = place.filter(|place| list.iter().all(|link| link.span != *place)) {
            list.push(Link { span, why: Why::Lane });
        }
    };
    add(&mut links.before, on_lane(trace, at, false));
    add(&mut links.after, on_lane(trace, at, true));
    // A peer holds a collective up until it arrives, anything else until it ends.
    let until = |link: &Link| match link.why {
        Why::Peer => trace.spans[link.span].start_ns,
        _ => trace.spans[link.span].end_ns,
    };
    // At the same time the plan's edges come first: they are what it says.
    let rank = |link: &Link| u8::from(link.why == Why::Lane);
    links.before.sort_by_key(|link| (std::cmp::Reverse(until(link)), rank(link), link.span));
    links.after.sort_by_key(|link| (trace.spans[link.span].start_ns, rank(link), link.span));
    links
}

/// The same collective on another rank. (Kernels of imported traces have names, not identities: no one
/// can tell which of them belong together.)
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
#[path = "links_tests.rs"]
mod tests;
