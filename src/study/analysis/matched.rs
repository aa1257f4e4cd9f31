//! Collectives of a trace, each with its spans on all ranks of its process group.
//!
//! Spans of one collective have the same communicator (process group and its ranks) and sequence number. Where the trace has
//! no numbers, they meet in order: the n-th of a kind on one rank, within a step, is the n-th on the others. Own traces
//! match operations instead of kinds. A trace that names no groups has one communicator, of all ranks.
//!
//! A collective is matched if every recorded rank of its group has it. Where ranks have different numbers of them, or the
//! message sizes in one place differ, nothing says which belongs to which, and none of them is matched.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use rayon::prelude::*;

use super::clocks::Clocks;
use base::statistics::median;
use plan::{Lane, Phase};
use trace::overlap::{Class, Runs, StepKey};
use trace::{ProcessGroup, Span, Trace};

/// All matched collectives of a trace, in order of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matching {
    /// Places in the trace's spans; those of a collective are adjacent, in order of ranks.
    places: Vec<usize>,
    collectives: Vec<(u32, Range<usize>)>,
    /// Places of collectives from which ranks are missing, because their files are: a part of [`Self::places`].
    partial: BTreeSet<usize>,
    /// Places of the spans of collectives that have no partner.
    pub unmatched: Vec<usize>,
}

/// One collective on all ranks of its group.
#[derive(Clone, Copy, Debug)]
pub struct MatchedCollective<'a> {
    /// Collectives of its communicator and kind before it in its step; 0 where it has a sequence number.
    pub nth: u32,
    /// Places of its spans in the trace, in order of ranks.
    pub places: &'a [usize],
    /// True if its group has ranks that were not recorded. One of them may have arrived last: waiting is at least, and
    /// transfer at most, what the recorded ranks show.
    pub is_partial: bool,
}

/// The communicator of operations without a process group: all ranks.
const EVERYBODY: u32 = 0;

/// One span of a collective. The order of fields is the order of matching.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    /// [`EVERYBODY`], or the group's index plus 1.
    communicator: u32,
    /// A number of the kind, or of the operation in own traces.
    kind: u32,
    /// The sequence number; [`Span::NO_SEQUENCE`] where steps count.
    sequence: u32,
    step: StepKey,
    nth: u32,
    rank: u32,
    start: i64,
    place: usize,
}

impl Part {
    /// Spans with the same bucket meet in order.
    fn bucket(&self) -> (u32, u32, u32, StepKey) {
        (self.communicator, self.kind, self.sequence, self.step)
    }
}

impl Matching {
    /// Matches the collectives of a whole trace: a pass over its spans and a sort of its collectives.
    pub fn of(trace: &Trace) -> Self {
        let members = Members::of(trace);
        let keys = keys(trace, &members);
        let step = StepKey { sample: 0, phase: Phase::Decode, step: 0 };
        let part = |(place, span): (usize, &Span)| {
            let (communicator, kind) = keys.get(span.operation as usize).copied().flatten()?;
            (span.lane == Lane::Comm).then(|| Part {
                communicator,
                kind,
                sequence: span.sequence,
                // a number holds for the whole trace
                step: if span.sequence == Span::NO_SEQUENCE { StepKey::of(span) } else { step },
                nth: 0,
                rank: span.rank,
                start: span.start_ns,
                place,
            })
        };
        let mut parts: Vec<Part> = trace.spans.par_iter().enumerate().filter_map(part).collect();
        parts.par_sort_unstable_by_key(|part| (part.bucket(), part.rank, part.start, part.place));
        let mut matching = Self::default();
        for bucket in parts.chunk_by_mut(|a, b| a.bucket() == b.bucket()) {
            for of_rank in bucket.chunk_by_mut(|a, b| a.rank == b.rank) {
                of_rank.iter_mut().zip(0..).for_each(|(part, nth)| part.nth = nth);
            }
            let bucket_communicator = bucket[0].communicator;
            let count = bucket.iter().filter(|part| part.rank == bucket[0].rank).count();
            let ranks: Vec<u32> =
                bucket.chunk_by(|a, b| a.rank == b.rank).map(|of| of[0].rank).collect();
            let is_whole = members.of[bucket[0].communicator as usize].as_ref().is_some_and(|members| {
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
                if members.partial[bucket_communicator as usize] {
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

    /// True if collectives cannot be the same ones: with clocks tied together, their ends are typically further apart than
    /// they last. Where order alone matched them, a quarter of that and 10 us are enough: ranks whose recordings begin one
    /// collective apart have the same number of them, too.
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

    /// When the ranks of a collective arrived, on one clock.
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

    /// The collectives of which every span is selected, in order of time.
    pub fn selected(&self, runs: &Runs) -> impl Iterator<Item = MatchedCollective<'_>> {
        let is_selected = |place: &usize| runs.selects(&runs.trace.spans[*place]);
        self.collectives().filter(move |collective| collective.places.iter().all(is_selected))
    }

    /// The collectives, in order of time.
    pub fn collectives(&self) -> impl Iterator<Item = MatchedCollective<'_>> {
        self.collectives.iter().map(|(nth, range)| MatchedCollective {
            nth: *nth,
            places: &self.places[range.clone()],
            is_partial: self.partial.contains(&range.start),
        })
    }
}

/// Whether the spans may be of one collective by the message sizes that the trace has.
fn same_size(trace: &Trace, parts: &[Part]) -> bool {
    let sizes = parts.iter().filter_map(|part| {
        let operation = trace.operations.get(trace.spans[part.place].operation as usize)?;
        // ranks pass different amounts into these
        let varies = ["all_to_all", "gather", "scatter", "send_recv"].contains(&operation.kind.as_str());
        operation.collective.as_ref().filter(|_| !varies)?.message_bytes
    });
    sizes.collect::<BTreeSet<u64>>().len() < 2
}

/// The recorded ranks of every communicator.
struct Members {
    /// Ascending; `None` where they are not known.
    of: Vec<Option<Vec<u32>>>,
    /// True if the communicator has more ranks.
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
            // ranks that the trace numbers in another way than the framework
            let is_foreign = users.iter().any(|rank| !group.ranks.contains(rank));
            if !is_foreign {
                return Some(
                    group.ranks.iter().copied().filter(|rank| recorded.contains(rank)).collect(),
                );
            }
            // more ranks than the group has: several groups of one name
            let fits = group.size == 0 || users.len() <= group.size as usize;
            fits.then(|| users.iter().copied().collect())
        };
        let named: Vec<Option<Vec<u32>>> = groups.iter().zip(&users).map(of_group).collect();
        // where ranks work in several groups, nothing says in which of them a collective without one belongs
        let is_split =
            named.iter().flatten().any(|members| members.len() > 1 && members.len() < recorded.len());
        let everybody = (!is_split).then(|| recorded.into_iter().collect());
        let is_partial = |(group, members): (&ProcessGroup, &Option<Vec<u32>>)| {
            let recorded = members.as_ref().map_or(0, Vec::len);
            recorded > 1 && recorded < (group.size as usize).max(group.ranks.len())
        };
        let partial: Vec<bool> = groups.iter().zip(&named).map(is_partial).collect();
        let missing = trace.meta.import.as_ref().is_some_and(|import| import.missing_ranks > 0);
        // a collective without a group may be of any
        let partial = std::iter::once(missing || partial.contains(&true)).chain(partial).collect();
        Self { of: std::iter::once(everybody).chain(named).collect(), partial }
    }
}

/// Communicator and number of the kind of each operation; `None` for those that never match.
fn keys(trace: &Trace, members: &Members) -> Vec<Option<(u32, u32)>> {
    let own = trace.meta.import.is_none();
    let mut kinds: HashMap<&str, u32> = HashMap::new();
    let mut keys = Vec::with_capacity(trace.operations.len());
    for (operation, at) in trace.operations.iter().zip(0..) {
        let next = kinds.len() as u32;
        let kind = if own { at } else { *kinds.entry(&operation.kind).or_insert(next) };
        let group = operation.collective.as_ref().and_then(|collective| collective.group);
        let communicator = group.map(|group| group + 1).filter(|c| (*c as usize) < members.of.len());
        // between two of many ranks: no order says which
        let is_pair = operation.kind == "send_recv"
            && communicator.and_then(|c| members.of[c as usize].as_ref()).is_some_and(|of| of.len() > 2);
        let matches = Class::of(operation, Lane::Comm) == Class::Comm && !is_pair;
        keys.push(matches.then_some((communicator.unwrap_or(EVERYBODY), kind)));
    }
    keys
}

/// When the ranks arrived at a collective, on one clock (ns).
#[derive(Clone, Debug, PartialEq)]
pub struct Arrived {
    /// Each rank's arrival.
    pub starts: Vec<i64>,
    /// The first rank's arrival.
    pub first: i64,
    /// The last rank's arrival: data moves from then on.
    pub last: i64,
    /// How long each span waited for the last rank, at most as long as it ran.
    pub waited: Vec<i64>,
    /// How long each span moved data: what it did not wait.
    pub moved: Vec<i64>,
}

impl Arrived {
    /// Arrivals from spans and what to add to their times. Own traces have the last arrival recorded: an emulated link begins
    /// when the last rank is there.
    pub fn of(parts: &[(&Span, i64)], own: bool) -> Self {
        let starts = || parts.iter().map(|(span, offset)| span.start_ns.saturating_add(*offset));
        let recorded = parts.iter().filter(|(span, _)| own && span.last_arrival_ns >= 0);
        let recorded = recorded.map(|(span, offset)| span.last_arrival_ns.saturating_add(*offset)).max();
        let first = starts().min().unwrap_or(0);
        let last = recorded.or_else(|| starts().max()).unwrap_or(0);
        let split = |((span, _), start): (&(&Span, i64), i64)| {
            let ran = span.end_ns.saturating_sub(span.start_ns).max(0);
            let waited = last.saturating_sub(start).clamp(0, ran);
            (waited, ran - waited)
        };
        let (waited, moved) = parts.iter().zip(starts()).map(split).unzip();
        Self { starts: starts().collect(), first, last, waited, moved }
    }

    /// How long a rank waited, in the mean (ns).
    pub fn mean_waited(&self) -> i64 {
        mean(&self.waited)
    }

    /// How long a rank moved data, in the mean (ns).
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
