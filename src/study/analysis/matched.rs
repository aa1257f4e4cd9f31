//! Matching of collectives across the ranks of their process group.
//!
//! Spans of one collective share the communicator (process group and ranks) and the sequence number. Traces without
//! numbers match in order: the n-th collective of a kind on one rank, within a step, is the n-th on the others. Own
//! traces match operations instead of kinds. A trace that names no groups has a single communicator of all ranks.
//!
//! A collective is matched if every recorded rank of its group has it. If ranks have different counts, or message sizes
//! at one position differ, the order is ambiguous and none of them is matched.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use rayon::prelude::*;

use super::clocks::Clocks;
use base::statistics::median;
use plan::{Lane, Phase};
use trace::overlap::{Class, Runs, StepKey};
use trace::{ProcessGroup, Span, Trace};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matching {
    /// Indices of the trace's spans; those of a collective are adjacent, in rank order.
    places: Vec<usize>,
    collectives: Vec<(u32, Range<usize>)>,
    /// Positions in [`Self::places`] where collectives with unrecorded ranks begin.
    partial: BTreeSet<usize>,
    /// Indices of the spans that could not be matched.
    pub unmatched: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
pub struct MatchedCollective<'a> {
    /// Number of earlier collectives of its communicator and kind in its step; 0 if it has a sequence number.
    pub nth: u32,
    /// Indices of its spans in the trace, in rank order.
    pub places: &'a [usize],
    /// True if the group has unrecorded ranks. One of them may have arrived last, so recorded waiting is a lower bound
    /// and transfer an upper bound.
    pub is_partial: bool,
}

/// Communicator of operations without a process group: all ranks.
const EVERYBODY: u32 = 0;

/// One span of a collective. The order of fields is the order of matching.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CollectivePart {
    /// [`EVERYBODY`], or the group's index plus 1.
    communicator: u32,
    /// Number of the kind; number of the operation in own traces.
    kind: u32,
    /// Sequence number; [`Span::NO_SEQUENCE`] if spans match by step and order.
    sequence: u32,
    step: StepKey,
    nth: u32,
    rank: u32,
    start: i64,
    place: usize,
}

impl CollectivePart {
    /// Key of spans that match in order.
    fn bucket(&self) -> (u32, u32, u32, StepKey) {
        (self.communicator, self.kind, self.sequence, self.step)
    }
}

impl Matching {
    /// Matches the collectives of a whole trace: one pass over the spans and a sort of the collectives.
    pub fn of(trace: &Trace) -> Self {
        let members = Members::of(trace);
        let keys = keys(trace, &members);
        let is_import = trace.meta.import.is_some();
        let step = StepKey { sample: 0, phase: Phase::Decode, step: 0 };
        let part = |(place, span): (usize, &Span)| {
            let (communicator, kind) = keys.get(span.operation as usize).copied().flatten()?;
            (span.lane == Lane::Comm).then(|| CollectivePart {
                communicator,
                kind,
                sequence: span.sequence,
                // sequence numbers are unique in the whole trace, and numbers of imported steps in both phases: a
                // data-parallel rank can prefill while another one decodes
                step: match span.sequence == Span::NO_SEQUENCE {
                    true if is_import => StepKey { phase: Phase::Decode, ..StepKey::of(span) },
                    true => StepKey::of(span),
                    false => step,
                },
                nth: 0,
                rank: span.rank,
                start: span.start_ns,
                place,
            })
        };
        let mut parts: Vec<CollectivePart> =
            trace.spans.par_iter().enumerate().filter_map(part).collect();
        parts.par_sort_unstable_by_key(|part| (part.bucket(), part.rank, part.start, part.place));
        let mut matching = Self::default();
        for bucket in parts.chunk_by_mut(|a, b| a.bucket() == b.bucket()) {
            for of_rank in bucket.chunk_by_mut(|a, b| a.rank == b.rank) {
                of_rank.iter_mut().zip(0..).for_each(|(part, nth)| part.nth = nth);
            }
            let communicator = bucket[0].communicator as usize;
            let count = bucket.iter().filter(|part| part.rank == bucket[0].rank).count();
            let ranks: Vec<u32> =
                bucket.chunk_by(|a, b| a.rank == b.rank).map(|spans| spans[0].rank).collect();
            let is_whole = members.ranks[communicator].as_ref().is_some_and(|members| {
                *members == ranks && members.len() > 1 && bucket.len() == count * members.len()
            }) && bucket.iter().all(|part| (part.nth as usize) < count);
            if is_whole {
                bucket.sort_unstable_by_key(|part| (part.nth, part.rank));
            }
            for together in bucket.chunk_by(|a, b| is_whole && a.nth == b.nth) {
                let places = together.iter().map(|part| part.place);
                if !is_whole || !same_size(trace, together) {
                    matching.unmatched.extend(places);
                    continue;
                }
                let from = matching.places.len();
                if members.partial[communicator] {
                    matching.partial.insert(from);
                }
                matching.places.extend(places);
                matching.collectives.push((together[0].nth, from..matching.places.len()));
            }
        }
        let start = |range: &Range<usize>| trace.spans[matching.places[range.start]].start_ns;
        matching.collectives.sort_by_key(|(_, range)| (start(range), range.start));
        if matching.is_contradicted(trace) {
            matching.unmatched.append(&mut matching.places);
            matching.collectives.clear();
            matching.partial.clear();
        }
        matching
    }

    /// True if the matches are implausible: after clock alignment, their ends are typically further apart than they
    /// last. Matches by order alone have a stricter limit, a quarter of the duration or 10 us: ranks whose recordings
    /// start one collective apart have equal counts too.
    fn is_contradicted(&self, trace: &Trace) -> bool {
        let length = |collective: MatchedCollective<'_>| {
            let spans = collective.places.iter().map(|place| &trace.spans[*place]);
            spans.map(|span| span.end_ns.saturating_sub(span.start_ns)).min().map(|ns| ns as f64)
        };
        let lengths: Vec<f64> = self.collectives().filter_map(length).collect();
        let is_by_order = self.places.iter().all(|at| trace.spans[*at].sequence == Span::NO_SEQUENCE);
        let most =
            |length: f64| if is_by_order { length.min((length / 4.0).max(10_000.0)) } else { length };
        let apart = Clocks::of(trace, self).typically_apart_ns as f64;
        median(&lengths).is_some_and(|length| apart > most(length))
    }

    /// Arrivals of the ranks at a collective, on one clock.
    pub fn arrived(
        &self,
        trace: &Trace,
        clocks: &Clocks,
        collective: &MatchedCollective<'_>,
    ) -> Arrived {
        let spans = collective.places.iter().map(|place| &trace.spans[*place]);
        let parts: Vec<(&Span, i64)> = spans.map(|span| (span, clocks.offset(span.rank))).collect();
        Arrived::of(&parts, trace.meta.import.is_none())
    }

    /// Collectives whose spans are all selected and not all began before the selection, in order of time.
    pub fn selected(&self, runs: &Runs) -> impl Iterator<Item = MatchedCollective<'_>> {
        let is_selected = |place: &usize| runs.selects(&runs.trace.spans[*place]);
        let counts = |place: &usize| runs.counts(&runs.trace.spans[*place]);
        self.collectives().filter(move |collective| {
            collective.places.iter().all(is_selected) && collective.places.iter().any(counts)
        })
    }

    pub fn collectives(&self) -> impl Iterator<Item = MatchedCollective<'_>> {
        self.collectives.iter().map(|(nth, range)| MatchedCollective {
            nth: *nth,
            places: &self.places[range.clone()],
            is_partial: self.partial.contains(&range.start),
        })
    }
}

/// True if the recorded message sizes allow the spans to be one collective.
fn same_size(trace: &Trace, parts: &[CollectivePart]) -> bool {
    let sizes = parts.iter().filter_map(|part| {
        let operation = trace.operations.get(trace.spans[part.place].operation as usize)?;
        // message sizes differ by rank for these kinds
        const VARIES: [&str; 6] =
            ["all_to_all", "dispatch", "combine", "gather", "scatter", "send_recv"];
        let varies = VARIES.contains(&operation.kind.as_str());
        operation.collective.as_ref().filter(|_| !varies)?.message_bytes
    });
    sizes.collect::<BTreeSet<u64>>().len() < 2
}

/// Recorded ranks of every communicator.
struct Members {
    /// Ranks, ascending; `None` if unknown.
    ranks: Vec<Option<Vec<u32>>>,
    /// True if the communicator has unrecorded ranks.
    partial: Vec<bool>,
}

impl Members {
    fn of(trace: &Trace) -> Self {
        let groups = &trace.meta.groups;
        let mut recorded: BTreeSet<u32> = BTreeSet::new();
        let mut users: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); groups.len()];
        for of_rank in trace.spans.chunk_by(|a, b| a.rank == b.rank) {
            recorded.insert(of_rank[0].rank);
            if groups.is_empty() {
                continue;
            }
            for span in of_rank {
                let operation = trace.operations.get(span.operation as usize);
                let group = operation.and_then(|operation| operation.collective.as_ref()?.group);
                if let Some(users) = group.and_then(|group| users.get_mut(group as usize)) {
                    users.insert(span.rank);
                }
            }
        }
        let of_group = |(group, users): (&ProcessGroup, &BTreeSet<u32>)| {
            // the trace numbers its ranks differently from the framework
            let is_foreign = users.iter().any(|rank| !group.ranks.contains(rank));
            if !is_foreign {
                return Some(
                    group.ranks.iter().copied().filter(|rank| recorded.contains(rank)).collect(),
                );
            }
            // more ranks than the group's size: several groups share the name
            let fits = group.size == 0 || users.len() <= group.size as usize;
            fits.then(|| users.iter().copied().collect())
        };
        let named: Vec<Option<Vec<u32>>> = groups.iter().zip(&users).map(of_group).collect();
        // with several groups, the group of a collective without one is unknown
        let is_split =
            named.iter().flatten().any(|members| members.len() > 1 && members.len() < recorded.len());
        let everybody = (!is_split).then(|| recorded.into_iter().collect());
        let is_partial = |(group, members): (&ProcessGroup, &Option<Vec<u32>>)| {
            let recorded = members.as_ref().map_or(0, Vec::len);
            recorded > 1 && recorded < (group.size as usize).max(group.ranks.len())
        };
        let partial: Vec<bool> = groups.iter().zip(&named).map(is_partial).collect();
        let missing = trace.meta.import.as_ref().is_some_and(|import| import.missing_ranks > 0);
        // a collective without a group may belong to any
        let partial = std::iter::once(missing || partial.contains(&true)).chain(partial).collect();
        Self { ranks: std::iter::once(everybody).chain(named).collect(), partial }
    }
}

/// Communicator and kind number of each operation; `None` if it cannot be matched.
fn keys(trace: &Trace, members: &Members) -> Vec<Option<(u32, u32)>> {
    let own = trace.meta.import.is_none();
    let mut kinds: HashMap<&str, u32> = HashMap::new();
    let mut keys = Vec::with_capacity(trace.operations.len());
    for (operation, at) in trace.operations.iter().zip(0..) {
        let next = kinds.len() as u32;
        let kind = if own { at } else { *kinds.entry(&operation.kind).or_insert(next) };
        let group = operation.collective.as_ref().and_then(|collective| collective.group);
        let communicator = group.map(|group| group + 1).filter(|c| (*c as usize) < members.ranks.len());
        // point-to-point in a larger group: the order does not tell the pair
        let is_pair = operation.kind == "send_recv"
            && communicator
                .and_then(|c| members.ranks[c as usize].as_ref())
                .is_some_and(|ranks| ranks.len() > 2)
            || own && operation.kind == "send";
        let matches = Class::of(operation, Lane::Comm) == Class::Comm && !is_pair;
        keys.push(matches.then_some((communicator.unwrap_or(EVERYBODY), kind)));
    }
    keys
}

/// Arrivals of the ranks at a collective, on one clock (ns).
#[derive(Clone, Debug, PartialEq)]
pub struct Arrived {
    pub starts: Vec<i64>,
    /// Time each span waited for the last rank, at most its duration.
    pub waited: Vec<i64>,
    /// Rest of each span's duration: data movement.
    pub moved: Vec<i64>,
}

impl Arrived {
    /// Arrivals from spans and their clock offsets. Own traces record the last arrival, since an emulated link starts
    /// when the last rank arrives.
    pub fn of(parts: &[(&Span, i64)], own: bool) -> Self {
        let starts = || parts.iter().map(|(span, offset)| span.start_ns.saturating_add(*offset));
        let recorded = parts.iter().filter(|(span, _)| own && span.last_arrival_ns >= 0);
        let recorded = recorded.map(|(span, offset)| span.last_arrival_ns.saturating_add(*offset)).max();
        // data moves from the last arrival on
        let last = recorded.or_else(|| starts().max()).unwrap_or(0);
        let split = |((span, _), start): (&(&Span, i64), i64)| {
            let ran = span.end_ns.saturating_sub(span.start_ns).max(0);
            let waited = last.saturating_sub(start).clamp(0, ran);
            (waited, ran - waited)
        };
        let (waited, moved) = parts.iter().zip(starts()).map(split).unzip();
        Self { starts: starts().collect(), waited, moved }
    }

    pub fn mean_waited(&self) -> i64 {
        mean(&self.waited)
    }

    pub fn mean_moved(&self) -> i64 {
        mean(&self.moved)
    }
}

fn mean(times: &[i64]) -> i64 {
    let sum: i128 = times.iter().map(|time| i128::from(*time)).sum();
    (sum / (times.len().max(1) as i128)) as i64
}

#[cfg(test)]
mod tests;
