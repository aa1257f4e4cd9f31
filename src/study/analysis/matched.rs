//! Matching of collectives across the ranks of their process group.
//!
//! Spans of one collective share the communicator (process group and ranks) and the sequence number. Traces without
//! numbers match in order: the n-th collective of a kind on one rank, within a step, is the n-th on the others. Own
//! traces match operations instead of kinds. A trace that names no groups has a single communicator of all ranks.
//!
//! A collective is matched if every recorded rank of its group has it. If ranks have different counts, or message sizes
//! at one position differ, the order is ambiguous and none of them is matched.
//!
//! Profiles of the ranks may begin at different steps. Steps are then renumbered (`shift`) so that those with common
//! collectives have one number.
//!
//! A send matches the receive of its peer: the n-th on one rank the n-th on the other, also shifted, since the first may
//! be of a transfer before the recording. The trace must say which kernels send and which receive, and the peer unless the
//! group has two ranks. Unless clocks agree, the times between transfers must tell them apart.

mod shift;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use rayon::prelude::*;

use self::shift::{SequenceElement, ShiftEvidence, shift};
use super::clocks::{Clocks, clocks_agree, offsets};
use base::statistics::median;
use base::text::rank_label;
use plan::{Lane, Phase};
use trace::import::step_name;
use trace::overlap::{Class, SpanRuns, StepKey};
use trace::{
    CollectiveInfo, NO_STEP, OperationKind, ProcessGroup, Span, Trace, TransferDirection, sort_spans,
};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct CollectiveMatching {
    /// Indices of the trace's spans; those of a collective are adjacent, in rank order.
    places: Vec<usize>,
    collectives: Vec<(u32, Range<usize>)>,
    /// Positions in [`Self::places`] where collectives with unrecorded ranks begin.
    partial: BTreeSet<usize>,
    /// Indices of the spans that could not be matched.
    pub unmatched: Vec<usize>,
    /// Known reasons for unmatched spans.
    pub obstacles: BTreeSet<MatchObstacle>,
    /// Number to add to the steps of a rank; ranks without one keep theirs.
    step_shifts: BTreeMap<u32, i64>,
}

/// Reason why collectives cannot be matched although all ranks were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatchObstacle {
    /// More ranks use a process group than it has.
    SeveralJobs,
    /// Ranks number their steps differently, and neither clocks nor times show by how much.
    Steps,
    /// The trace does not say which sends and receives belong together.
    Transfers,
}

impl MatchObstacle {
    /// What is missing, and the remedy.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::SeveralJobs => {
                "more ranks use a process group than it has, so these are traces of several jobs: open one of them to \
                 separate transfer from waiting"
            }
            Self::Steps => {
                "ranks began to record at different steps, and neither step numbers nor clocks show by how many; start \
                 all profilers at the same step to separate transfer from waiting"
            }
            Self::Transfers => {
                "transfer and waiting of sends and receives are not separated: that needs their peers (PyTorch: Src Rank \
                 and Dst Rank) or groups of two ranks, and clocks that agree"
            }
        }
    }
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

/// Spans of a communicator that match each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Channel {
    Collective,
    /// Sends of the first rank to the second one, and the receives of them.
    From(u32, u32),
    /// Sends and receives of two ranks, of unknown direction: both ranks have a kernel for each, in the same order.
    Both,
    /// Sends or receives of an unknown peer.
    Unknown,
}

/// Span of a collective.
#[derive(Clone, Copy, Debug)]
struct CollectivePart {
    /// [`EVERYBODY`], or the group's index plus 1.
    communicator: u32,
    /// Number of the kind; number of the operation in own traces.
    kind: u32,
    channel: Channel,
    /// Sequence number; [`Span::NO_SEQUENCE`] if spans match by step and order.
    sequence: u32,
    step: StepKey,
    nth: u32,
    rank: u32,
    start: i64,
    end: i64,
    place: usize,
}

impl CollectivePart {
    /// Key of spans that match in order.
    fn bucket(&self) -> (u32, u32, Channel, u32, StepKey) {
        const ANY_STEP: StepKey = StepKey { sample: 0, phase: Phase::Decode, step: 0 };
        // sequence numbers are unique in the whole trace, and transfers match across steps
        let (sequence, step) = match self.channel {
            Channel::Collective if self.sequence == Span::NO_SEQUENCE => (Span::NO_SEQUENCE, self.step),
            Channel::Collective => (self.sequence, ANY_STEP),
            Channel::From(..) | Channel::Both | Channel::Unknown => (Span::NO_SEQUENCE, ANY_STEP),
        };
        (self.communicator, self.kind, self.channel, sequence, step)
    }

    fn has_step(&self) -> bool {
        self.channel == Channel::Collective && self.step.step != NO_STEP
    }

    /// Its place among the transfers of its rank.
    fn transfer(&self) -> SequenceElement {
        let sequence = Span::NO_SEQUENCE;
        SequenceElement { number: self.nth.into(), count: 1, sequence, end_ns: self.end }
    }
}

/// Step with another number.
fn renumbered(step: u32, by: i64) -> u32 {
    u32::try_from(i64::from(step) + by).unwrap_or(NO_STEP)
}

/// True unless the trace has steps that the importer numbered in order of time.
fn has_numbered_steps(trace: &Trace) -> bool {
    let is_unnumbered = |name: &String| step_name(name).is_some_and(|step| step.number.is_none());
    !trace.meta.range_names.iter().any(is_unnumbered)
}

impl CollectiveMatching {
    /// Matches the collectives of a whole trace: one pass over the spans and a sort of the collectives.
    pub fn from_trace(trace: &Trace) -> Self {
        let mut matching = Self::candidates(trace);
        matching.drop_contradicted(trace);
        matching
    }

    /// Matches that times may contradict.
    pub(super) fn candidates(trace: &Trace) -> Self {
        let members = Members::from_trace(trace);
        let mut parts = parts(trace, &members);
        let mut matching = Self::default();
        // communicators whose ranks number steps differently
        let mut unaligned = BTreeSet::new();
        if trace.meta.import.is_some() {
            unaligned = matching.align_steps(trace, &members, &mut parts);
        }
        parts.par_sort_unstable_by_key(|part| (part.bucket(), part.rank, part.start, part.place));
        for bucket in parts.chunk_by_mut(|a, b| a.bucket() == b.bucket()) {
            for of_rank in bucket.chunk_by_mut(|a, b| a.rank == b.rank) {
                of_rank.iter_mut().zip(0..).for_each(|(part, nth)| part.nth = nth);
            }
            let first = bucket[0];
            let is_crowded =
                first.communicator != EVERYBODY && members.ranks[first.communicator as usize].is_none();
            let is_unaligned = first.has_step()
                && first.sequence == Span::NO_SEQUENCE
                && unaligned.contains(&first.communicator);
            match first.channel {
                _ if is_crowded => matching.leave(bucket, Some(MatchObstacle::SeveralJobs)),
                _ if is_unaligned => matching.leave(bucket, Some(MatchObstacle::Steps)),
                Channel::From(..) => matching.match_transfers(bucket, clocks_agree(trace)),
                // without agreeing clocks, kernels of the other direction may look like the partners
                Channel::Both if clocks_agree(trace) => matching.match_transfers(bucket, true),
                Channel::Both | Channel::Unknown => {
                    matching.leave(bucket, Some(MatchObstacle::Transfers));
                }
                Channel::Collective => matching.match_in_order(trace, &members, bucket),
            }
        }
        let start = |range: &Range<usize>| trace.spans[matching.places[range.start]].start_ns;
        matching.collectives.sort_by_key(|(_, range)| (start(range), range.start));
        matching
    }

    /// Leaves out the collectives of ranks whose matches are implausible.
    pub(super) fn drop_contradicted(&mut self, trace: &Trace) {
        let ranks = self.contradicted(trace);
        if ranks.is_empty() {
            return;
        }
        let is_contradicted = |place: &usize| ranks.contains(&trace.spans[*place].rank);
        let (dropped, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.collectives)
            .into_iter()
            .partition(|(_, range)| self.places[range.clone()].iter().any(is_contradicted));
        for (_, range) in dropped {
            self.partial.remove(&range.start);
            self.unmatched.extend_from_slice(&self.places[range]);
        }
        if kept.is_empty() {
            self.step_shifts.clear();
        }
        self.collectives = kept;
    }

    /// Renumbers the steps of the parts so that those with common collectives have one number on all ranks. Returns the
    /// communicators where nothing decides by how much.
    fn align_steps(
        &mut self,
        trace: &Trace,
        members: &Members,
        parts: &mut [CollectivePart],
    ) -> BTreeSet<u32> {
        // numbers that start again in each sample are those of the ranks' common steps
        if parts.iter().any(|part| part.step.sample > 0) {
            return BTreeSet::new();
        }
        let mut steps: BTreeMap<(u32, u32), BTreeMap<u32, SequenceElement>> = BTreeMap::new();
        for part in parts.iter().filter(|part| part.has_step()) {
            let number = part.step.step;
            let of_rank = steps.entry((part.communicator, part.rank)).or_default();
            let step = of_rank.entry(number).or_insert(SequenceElement {
                number: number.into(),
                count: 0,
                sequence: part.sequence,
                end_ns: part.end,
            });
            step.count += 1;
            if part.end > step.end_ns {
                (step.end_ns, step.sequence) = (part.end, part.sequence);
            }
        }
        let steps: BTreeMap<(u32, u32), Vec<SequenceElement>> =
            steps.into_iter().map(|(key, steps)| (key, steps.into_values().collect())).collect();
        let (clocks_agree, has_numbers) = (clocks_agree(trace), has_numbered_steps(trace));
        let (mut edges, mut unaligned) = (Vec::new(), BTreeSet::new());
        for (communicator, ranks) in (0..).zip(&members.ranks) {
            let Some([first, others @ ..]) = ranks.as_deref() else { continue };
            for other in others {
                let of = |rank: &u32| steps.get(&(communicator, *rank));
                let (Some(a), Some(b)) = (of(first), of(other)) else { continue };
                let is_same = a.len() == b.len() && a[0].number == b[0].number;
                let evidence = ShiftEvidence { clocks_agree, is_numbered: has_numbers || is_same };
                match shift(a, b, evidence) {
                    Some(by) => edges.push(((*first, *other), a.len().min(b.len()), by)),
                    None => drop(unaligned.insert(communicator)),
                }
            }
        }
        let shifts = offsets(edges).into_iter().map(|(rank, (_, by))| (rank, by));
        self.step_shifts = shifts.filter(|(_, by)| *by != 0).collect();
        if self.step_shifts.is_empty() {
            return unaligned;
        }
        let numbered = trace.spans.iter().filter(|span| span.step != NO_STEP);
        let numbers = numbered.map(|span| i64::from(span.step) + self.step_shift(span.rank));
        let least = numbers.min().unwrap_or(0);
        if least < 0 {
            for rank in 0..trace.meta.ranks {
                *self.step_shifts.entry(rank).or_default() -= least;
            }
            self.step_shifts.retain(|_, by| *by != 0);
        }
        for part in parts.iter_mut().filter(|part| part.has_step()) {
            part.step.step = renumbered(part.step.step, self.step_shift(part.rank));
        }
        unaligned
    }

    fn step_shift(&self, rank: u32) -> i64 {
        self.step_shifts.get(&rank).copied().unwrap_or(0)
    }

    /// Renumbers the steps of the trace as the matching did, and reports it. The matching's places are invalid afterwards.
    pub(super) fn renumber_steps(self, trace: &mut Trace) {
        if self.step_shifts.is_empty() {
            return;
        }
        for span in trace.spans.iter_mut().filter(|span| span.step != NO_STEP) {
            span.step = renumbered(span.step, self.step_shift(span.rank));
        }
        sort_spans(&mut trace.spans);
        let mut ranks: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
        for (rank, by) in &self.step_shifts {
            ranks.entry(*by).or_default().push(*rank);
        }
        let warning = |(by, ranks): (i64, Vec<u32>)| {
            format!(
                "steps of {} renumbered by {by:+}: ranks began to record at different steps, and steps with common \
                 collectives have one number now",
                rank_label(&ranks)
            )
        };
        if let Some(import) = &mut trace.meta.import {
            import.warnings.extend(ranks.into_iter().map(warning));
        }
    }

    /// Matches collectives of one kind: the n-th of each rank.
    fn match_in_order(&mut self, trace: &Trace, members: &Members, bucket: &mut [CollectivePart]) {
        let communicator = bucket[0].communicator as usize;
        let count = bucket.iter().filter(|part| part.rank == bucket[0].rank).count();
        let ranks: Vec<u32> =
            bucket.chunk_by(|a, b| a.rank == b.rank).map(|spans| spans[0].rank).collect();
        let is_whole = members.ranks[communicator].as_ref().is_some_and(|members| {
            *members == ranks && members.len() > 1 && bucket.len() == count * members.len()
        }) && bucket.iter().all(|part| (part.nth as usize) < count);
        if !is_whole {
            return self.leave(bucket, None);
        }
        bucket.sort_unstable_by_key(|part| (part.nth, part.rank));
        for together in bucket.chunk_by(|a, b| a.nth == b.nth) {
            match same_size(trace, together) {
                true => self.push(together, members.partial[communicator]),
                false => self.leave(together, None),
            }
        }
    }

    /// Matches the sends of a rank with the receives of its peer.
    fn match_transfers(&mut self, bucket: &[CollectivePart], clocks_agree: bool) {
        let (first, second) =
            bucket.split_at(bucket.partition_point(|part| part.rank == bucket[0].rank));
        let elements =
            |parts: &[CollectivePart]| parts.iter().map(CollectivePart::transfer).collect::<Vec<_>>();
        let is_numbered = clocks_agree && first.len() == second.len();
        let evidence = ShiftEvidence { clocks_agree, is_numbered };
        let Some(by) = shift(&elements(first), &elements(second), evidence) else {
            return self.leave(bucket, Some(MatchObstacle::Transfers));
        };
        let nth_of = |parts: &[CollectivePart], nth: i64| {
            usize::try_from(nth).ok().and_then(|nth| parts.get(nth).copied())
        };
        for part in first {
            match nth_of(second, i64::from(part.nth) - by) {
                Some(other) => self.push(&[*part, other], false),
                None => self.leave(&[*part], None),
            }
        }
        let is_alone = |part: &&CollectivePart| nth_of(first, i64::from(part.nth) + by).is_none();
        self.unmatched.extend(second.iter().filter(is_alone).map(|part| part.place));
    }

    /// Adds the spans of a matched collective, in rank order.
    fn push(&mut self, together: &[CollectivePart], is_partial: bool) {
        let from = self.places.len();
        if is_partial {
            self.partial.insert(from);
        }
        self.places.extend(together.iter().map(|part| part.place));
        self.collectives.push((together[0].nth, from..self.places.len()));
    }

    fn leave(&mut self, parts: &[CollectivePart], obstacle: Option<MatchObstacle>) {
        self.unmatched.extend(parts.iter().map(|part| part.place));
        self.obstacles.extend(obstacle);
    }

    /// Ranks whose matches are implausible: after clock alignment, their ends are typically further from those of the
    /// first ranks than they last; all ranks if that is so of most matches. Matches by order alone have a stricter limit,
    /// a quarter of the duration or 10 us: ranks whose recordings start one collective apart have equal counts too.
    fn contradicted(&self, trace: &Trace) -> BTreeSet<u32> {
        let mut all: Vec<f64> = Vec::new();
        let mut by_rank: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for collective in self.collectives() {
            let spans = || collective.places.iter().map(|place| &trace.spans[*place]);
            let lengths = spans().map(|span| span.end_ns.saturating_sub(span.start_ns));
            let Some(length) = lengths.min().map(|ns| ns as f64) else { continue };
            all.push(length);
            spans().skip(1).for_each(|span| by_rank.entry(span.rank).or_default().push(length));
        }
        let is_by_order = self.places.iter().all(|at| trace.spans[*at].sequence == Span::NO_SEQUENCE);
        let most =
            |length: f64| if is_by_order { length.min((length / 4.0).max(10_000.0)) } else { length };
        let is_beyond = |apart_ns: i64, lengths: &[f64]| {
            median(lengths).is_some_and(|length| apart_ns as f64 > most(length))
        };
        let clocks = Clocks::new(trace, self);
        if is_beyond(clocks.typically_apart_ns, &all) {
            return self.places.iter().map(|place| trace.spans[*place].rank).collect();
        }
        let apart = |rank: &u32| clocks.typically_apart_by_rank.get(rank).copied().unwrap_or(0);
        by_rank.iter().filter(|(rank, of)| is_beyond(apart(rank), of)).map(|(rank, _)| *rank).collect()
    }

    /// Arrivals of the ranks at a collective, on one clock.
    pub fn arrived(
        &self,
        trace: &Trace,
        clocks: &Clocks,
        collective: &MatchedCollective<'_>,
    ) -> CollectiveArrivals {
        let spans = collective.places.iter().map(|place| &trace.spans[*place]);
        let parts: Vec<(&Span, i64)> = spans.map(|span| (span, clocks.offset(span.rank))).collect();
        CollectiveArrivals::new(&parts, trace.meta.import.is_none())
    }

    /// Collectives whose spans are all selected and not all began before the selection, in order of time.
    pub fn selected(&self, runs: &SpanRuns) -> impl Iterator<Item = MatchedCollective<'_>> {
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
        let varies = matches!(
            operation.kind,
            OperationKind::AllToAll
                | OperationKind::Dispatch
                | OperationKind::Combine
                | OperationKind::Gather
                | OperationKind::Scatter
                | OperationKind::SendRecv
        );
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
    fn from_trace(trace: &Trace) -> Self {
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
        let missing = trace.lacks_ranks();
        // a collective without a group may belong to any
        let partial = std::iter::once(missing || partial.contains(&true)).chain(partial).collect();
        Self { ranks: std::iter::once(everybody).chain(named).collect(), partial }
    }

    /// Channel of a rank's sends or receives. The trace names the peer, or it is the other rank of a group of two.
    fn channel(&self, key: &OperationKey, rank: u32) -> Channel {
        let at = key.communicator as usize;
        let Some(ranks) = self.ranks[at].as_deref() else { return Channel::Unknown };
        let is_pair = ranks.len() == 2 && !self.partial[at];
        let other = match key.peer.filter(|peer| *peer != rank && ranks.contains(peer)) {
            Some(peer) => peer,
            None if is_pair && rank == ranks[0] => ranks[1],
            None if is_pair => ranks[0],
            None => return Channel::Unknown,
        };
        match key.direction {
            Some(TransferDirection::Send) => Channel::From(rank, other),
            Some(TransferDirection::Receive) => Channel::From(other, rank),
            None if is_pair => Channel::Both,
            None => Channel::Unknown,
        }
    }
}

/// Operation of collectives, or of sends and receives.
#[derive(Clone, Copy, Debug)]
struct OperationKey {
    communicator: u32,
    kind: u32,
    is_transfer: bool,
    direction: Option<TransferDirection>,
    peer: Option<u32>,
}

/// Keys of the operations; `None` for what is no communication, and sends of own traces.
fn keys(trace: &Trace, members: &Members) -> Vec<Option<OperationKey>> {
    let own = trace.meta.import.is_none();
    let mut kinds: HashMap<&OperationKind, u32> = HashMap::new();
    let mut keys = Vec::with_capacity(trace.operations.len());
    for (operation, at) in trace.operations.iter().zip(0..) {
        let next = kinds.len() as u32;
        let kind = if own { at } else { *kinds.entry(&operation.kind).or_insert(next) };
        let group = operation.collective.as_ref().and_then(|collective| collective.group);
        let communicator = group.map(|group| group + 1).filter(|c| (*c as usize) < members.ranks.len());
        let matches = Class::new(operation, Lane::Comm) == Class::Comm
            && !(own && operation.kind == OperationKind::Send);
        keys.push(matches.then(|| OperationKey {
            communicator: communicator.unwrap_or(EVERYBODY),
            kind,
            is_transfer: operation.kind == OperationKind::SendRecv,
            direction: operation.collective.as_ref().and_then(CollectiveInfo::direction),
            peer: operation.collective.as_ref().and_then(|collective| collective.peer),
        }));
    }
    keys
}

/// Spans of all collectives, in order of the trace.
fn parts(trace: &Trace, members: &Members) -> Vec<CollectivePart> {
    let keys = keys(trace, members);
    let is_import = trace.meta.import.is_some();
    let part = |(place, span): (usize, &Span)| {
        let key = keys.get(span.operation as usize).copied().flatten()?;
        (span.lane == Lane::Comm).then(|| CollectivePart {
            communicator: key.communicator,
            kind: key.kind,
            channel: match key.is_transfer {
                true => members.channel(&key, span.rank),
                false => Channel::Collective,
            },
            sequence: span.sequence,
            // numbers of imported steps are unique in both phases: a data-parallel rank can prefill while another one
            // decodes
            step: match is_import {
                true => StepKey { phase: Phase::Decode, ..StepKey::from_span(span) },
                false => StepKey::from_span(span),
            },
            nth: 0,
            rank: span.rank,
            start: span.start_ns,
            end: span.end_ns,
            place,
        })
    };
    trace.spans.par_iter().enumerate().filter_map(part).collect()
}

/// Arrivals of the ranks at a collective, on one clock (ns).
#[derive(Clone, Debug, PartialEq)]
pub struct CollectiveArrivals {
    pub starts: Vec<i64>,
    /// Time each span waited for the last rank, at most its duration.
    pub waited: Vec<i64>,
    /// Rest of each span's duration: data movement.
    pub moved: Vec<i64>,
}

impl CollectiveArrivals {
    /// Arrivals from spans and their clock offsets. Own traces record the last arrival, since an emulated link starts
    /// when the last rank arrives.
    pub fn new(parts: &[(&Span, i64)], own: bool) -> Self {
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
