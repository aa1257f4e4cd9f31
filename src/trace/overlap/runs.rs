//! Splits a trace into [`SpanRun`]s: contiguous spans of one rank and step.
//!
//! All trace analyses iterate over runs, in parallel, and never look up a span's rank or step in a map.
//! A trace is sorted by step and rank, so runs are long; an unsorted one is only slower.
//!
//! A step lasts on a rank until the rank's next recorded step begins ([`StepWindow`]): the gap after its last kernel and
//! work that was launched outside of steps belong to its time. A selection of steps is a selection of their times: half-open
//! intervals of ns on each rank, sorted and disjoint. A kernel counts in each of them during which it runs, whichever step
//! launched it. An event without length counts in its own step, since it may be where two steps meet.
//!
//! [`Replays`] are CUDA graph replays: launches shared by several spans of a rank.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use rayon::prelude::*;

use super::intervals::{TimeInterval, clip, pieces, union};
use crate::import::step_name;
use crate::{NO_STEP, OperationInfo, OperationKind, Span, Trace};
use plan::{Lane, Phase};
use table::Provenance;

/// Spans per unit of work for a thread; also the maximum length of a run.
const PIECE: usize = 1 << 16;

/// Filter for spans; `None` means all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Timed generation, from 0.
    pub sample: Option<u32>,
    pub phase: Option<Phase>,
    /// Step, from 0: of the phase, else of decode.
    pub step: Option<u32>,
    /// Start of the time window (ns since the trace's first start); spans are clipped.
    pub from_ns: Option<i64>,
    /// End of the time window, exclusive; spans are clipped.
    pub to_ns: Option<i64>,
}

impl Trace {
    /// True for a run, and for an import with markers of steps. Without them, all work of an import is in one step.
    pub fn marks_steps(&self) -> bool {
        let first = self.spans.first().map(StepKey::from_span);
        self.meta.import.is_none()
            || self.meta.range_names.iter().any(|name| step_name(name).is_some())
            || self.spans.iter().any(|span| Some(StepKey::from_span(span)) != first)
    }

    /// True for a run, and for an import in which names of steps or operations tell prefill from decode.
    pub fn tells_phases(&self) -> bool {
        let is_step_of_phase = |name: &String| step_name(name).is_some_and(|step| step.work.is_some());
        self.meta.import.is_none()
            || self.spans.iter().any(|span| span.phase == Phase::Prefill)
            || self.meta.range_names.iter().any(is_step_of_phase)
    }
}

impl Selection {
    pub fn of_step(key: StepKey) -> Self {
        Self {
            sample: Some(key.sample),
            phase: Some(key.phase),
            step: Some(key.step),
            ..Self::default()
        }
    }

    pub fn is_everything(&self) -> bool {
        (self.sample, self.phase, self.step) == (None, None, None)
            && (self.from_ns, self.to_ns) == (None, None)
    }

    /// Default selection: the decode steps if the trace marks phases, else the whole trace.
    pub fn default_of(trace: &Trace) -> Self {
        let is_decode = |span: &Span| span.phase == Phase::Decode && span.step != NO_STEP;
        let has_decode = trace.spans.iter().any(is_decode);
        Self { phase: (has_decode && trace.tells_phases()).then_some(Phase::Decode), ..Self::default() }
    }

    /// True for a selection of phases or steps, which covers their times.
    fn picks_steps(&self) -> bool {
        self.phase.is_some() || self.step.is_some()
    }

    fn wants(&self, step: &StepKey) -> bool {
        self.sample.is_none_or(|sample| sample == step.sample)
            && self.phase.is_none_or(|phase| phase == step.phase)
            // without a phase, a step selects no prefill of a run, whose step is always 0
            && self.step.is_none_or(|s| s == step.step && (self.phase.is_some() || step.phase == Phase::Decode))
            && (self.phase.is_none() || self.step.is_some() || step.step != NO_STEP)
    }
}

/// A prefill or decode step of one sample.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, schemars::JsonSchema,
)]
pub struct StepKey {
    /// Index of the timed generation, from 0. In an imported trace, a sample begins where the numbers of steps start again.
    pub sample: u32,
    /// Prefill or decode phase.
    pub phase: Phase,
    /// Decode step from 0; 0 in prefill; null for work outside all steps of an imported trace.
    #[serde(serialize_with = "or_null")]
    #[schemars(with = "Option<u32>")]
    pub step: u32,
}

/// Serializes a step's number, or null for [`NO_STEP`].
fn or_null<S: serde::Serializer>(step: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&Some(*step).filter(|step| *step != NO_STEP), serializer)
}

impl StepKey {
    pub fn from_span(span: &Span) -> Self {
        Self { sample: span.sample, phase: span.phase, step: span.step }
    }

    /// Display name: `prefill`, `prefill (step 3)` of an imported trace, or `step 12`.
    pub fn label(&self) -> String {
        match self.phase {
            Phase::Prefill if self.step > 0 => format!("prefill (step {})", self.step),
            Phase::Prefill => "prefill".into(),
            Phase::Decode if self.step == NO_STEP => "no step".into(),
            Phase::Decode => format!("step {}", self.step),
        }
    }

    /// The step before in the same generation; before decode step 0, prefill.
    fn before(self) -> Option<Self> {
        match (self.phase, self.step) {
            (Phase::Prefill, _) | (_, NO_STEP) => None,
            (Phase::Decode, 0) => Some(Self { phase: Phase::Prefill, ..self }),
            (Phase::Decode, step) => Some(Self { step: step - 1, ..self }),
        }
    }

    /// Begin of a simulated step over all ranks: the last end of the step before (ns).
    pub fn begin(self, trace: &Trace) -> Option<i64> {
        let before = self.before().filter(|_| has_begins(trace))?;
        trace.spans[before.spans(trace)].iter().map(|span| span.end_ns).max()
    }

    /// Index range of the step's spans. The spans must be sorted, as in every trace that was read or
    /// recorded.
    pub fn spans(&self, trace: &Trace) -> Range<usize> {
        let from = trace.spans.partition_point(|span| Self::from_span(span) < *self);
        from..from + trace.spans[from..].partition_point(|span| Self::from_span(span) <= *self)
    }
}

/// Contiguous spans of one rank and step.
#[derive(Clone, Debug)]
pub struct SpanRun {
    pub step: StepKey,
    /// Rank: an index into [`SpanRuns::ranks`].
    pub rank: usize,
    pub at: Range<usize>,
    /// First start and last end (ns).
    extent: TimeInterval,
}

/// Latency of a step on one rank (ns). It begins with the rank's first start; in simulations at the end of the rank's
/// step before, since the host's time before the first operation belongs to the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepWindow {
    /// Half-open, in absolute ns.
    pub time: TimeInterval,
    /// False for the last recorded step of a sample (in own runs, of each phase of it), whose time ends with its last end,
    /// and if the selection cuts the time.
    pub until_next: bool,
}

/// Classification of an operation for overlap; numbers the unions of a [`LanesBuilder`](super::LanesBuilder).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Compute,
    Comm,
    /// Copies and fills of imported traces.
    Memory,
    /// Keeps the device busy, but counts as neither computation nor communication.
    Other,
}

impl Class {
    pub fn new(operation: &OperationInfo, lane: Lane) -> Self {
        match (&operation.kind, lane) {
            (OperationKind::Memcpy | OperationKind::Memset, _) => Self::Memory,
            (OperationKind::Other, _) => Self::Other,
            (_, Lane::Compute) => Self::Compute,
            (_, Lane::Comm) => Self::Comm,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Comm => "comm",
            Self::Memory => "memory",
            Self::Other => "other",
        }
    }
}

/// Span runs of a selection, with the trace and window for iterating over their spans.
#[derive(Clone)]
pub struct SpanRuns<'a> {
    pub trace: &'a Trace,
    pub selection: Selection,
    /// True if only the times of selected steps count.
    picks_steps: bool,
    /// Steps of [`Self::select_steps`]; `None` if the selection decides.
    steps: Option<BTreeSet<StepKey>>,
    /// First start in the trace (ns).
    pub origin: i64,
    /// Selected window of time (absolute ns).
    bounds: TimeInterval,
    /// Selected times of each rank (ns), between its first start and last end.
    parts: Vec<Vec<TimeInterval>>,
    windows: HashMap<(u32, StepKey), StepWindow>,
    /// Ranks of the whole trace, ascending, including those without selected spans.
    pub ranks: Vec<u32>,
    pub by_rank: Vec<Vec<SpanRun>>,
    classes: Vec<[Class; 2]>,
}

/// First start of a trace (ns), the origin of all windows; 0 for an empty trace.
pub fn origin_ns(trace: &Trace) -> i64 {
    trace.spans.par_iter().with_min_len(PIECE).map(|span| span.start_ns).min().unwrap_or(0)
}

impl<'a> SpanRuns<'a> {
    /// Splits the spans into runs, in one pass, and selects from them.
    pub fn new(trace: &'a Trace, selection: &Selection) -> Self {
        let cuts: Vec<(i64, Vec<(u32, SpanRun)>)> = trace
            .spans
            .par_chunks(PIECE)
            .enumerate()
            .map(|(piece, spans)| cut(piece * PIECE, spans))
            .collect();
        let origin = cuts.iter().map(|(first, _)| *first).min().unwrap_or(0);
        let mut extents: HashMap<(u32, StepKey), TimeInterval> = HashMap::new();
        for (rank, run) in cuts.iter().flat_map(|(_, runs)| runs) {
            let extent = extents.entry((*rank, run.step)).or_insert(run.extent);
            *extent = hull(*extent, run.extent);
        }
        let windows = step_windows(trace, &extents);
        let mut by_rank: BTreeMap<u32, Vec<SpanRun>> = BTreeMap::new();
        for (rank, run) in cuts.into_iter().flat_map(|(_, runs)| runs) {
            by_rank.entry(rank).or_default().push(run);
        }
        let (ranks, mut by_rank): (Vec<u32>, Vec<Vec<SpanRun>>) = by_rank.into_iter().unzip();
        for (rank, runs) in by_rank.iter_mut().enumerate() {
            runs.iter_mut().for_each(|run| run.rank = rank);
        }
        let classes_of = |operation| [Lane::Compute, Lane::Comm].map(|lane| Class::new(operation, lane));
        let classes = trace.operations.iter().map(classes_of).collect();
        let (bounds, parts) = ((i64::MIN, i64::MAX), Vec::new());
        let all = Self {
            trace,
            selection: Selection::default(),
            picks_steps: false,
            steps: None,
            origin,
            bounds,
            parts,
            windows,
            ranks,
            by_rank,
            classes,
        };
        all.select(selection)
    }

    /// Selects from the runs of a whole trace.
    pub fn select(mut self, selection: &Selection) -> Self {
        let at = |time: Option<i64>, open| time.map_or(open, |t| self.origin.saturating_add(t));
        self.bounds = (at(selection.from_ns, i64::MIN), at(selection.to_ns, i64::MAX));
        self.selection = *selection;
        self.picks_steps = selection.picks_steps();
        self.keep(|step| selection.wants(step))
    }

    /// Selects the times of these steps from the runs of a whole trace.
    pub fn select_steps(mut self, steps: &BTreeSet<StepKey>) -> Self {
        self.picks_steps = true;
        self.steps = Some(steps.clone());
        self.keep(|step| steps.contains(step))
    }

    fn keep(mut self, is_wanted: impl Fn(&StepKey) -> bool) -> Self {
        self.parts.clear();
        for (rank, runs) in self.ranks.iter().zip(&mut self.by_rank) {
            let wanted = runs.iter().filter(|run| is_wanted(&run.step));
            let times: Vec<TimeInterval> = match self.picks_steps {
                true => {
                    let windows = wanted.filter_map(|run| self.windows.get(&(*rank, run.step)));
                    union(windows.map(|window| window.time))
                }
                false => wanted.map(|run| run.extent).reduce(hull).into_iter().collect(),
            };
            let parts: Vec<TimeInterval> =
                times.into_iter().filter_map(|time| clip(time, self.bounds)).collect();
            runs.retain(|run| match is_wanted(&run.step) {
                // also an event without length at the run's end
                true => run.extent.1 >= self.bounds.0 && run.extent.0 < self.bounds.1,
                false => self.picks_steps && pieces(&parts, run.extent, &mut 0).next().is_some(),
            });
            self.parts.push(parts);
        }
        self
    }

    /// True if samples, phases or steps are selected, rather than a window of time.
    pub fn is_by_step(&self) -> bool {
        self.picks_steps || self.selection.sample.is_some()
    }

    #[inline]
    pub fn class(&self, span: &Span) -> Class {
        match self.classes.get(span.operation as usize) {
            Some(classes) => classes[span.lane as usize],
            None if span.lane == Lane::Comm => Class::Comm,
            None => Class::Compute,
        }
    }

    /// True for a receive from another pipeline stage.
    pub fn is_receive(&self, span: &Span) -> bool {
        self.trace.operation_kind(span) == Some(&OperationKind::Receive)
    }

    pub fn selects(&self, span: &Span) -> bool {
        self.pieces(span).next().is_some()
    }

    /// True if a span starts in the selection, and so counts as an execution.
    pub fn counts(&self, span: &Span) -> bool {
        self.pieces(span).next().is_some_and(|piece| starts(span, piece))
    }

    /// Selected time of a span (ns); `None` if it is not selected.
    pub fn time(&self, span: &Span) -> Option<i64> {
        self.pieces(span).map(|(start, end)| end.saturating_sub(start)).reduce(i64::saturating_add)
    }

    /// Selected pieces of a span (absolute ns), in order: one in each part that it reaches.
    pub fn pieces(&self, span: &Span) -> impl Iterator<Item = TimeInterval> {
        let rank = self.ranks.binary_search(&span.rank);
        let parts = rank.map_or(&[][..], |rank| self.parts_of(rank, span));
        pieces(parts, interval(span), &mut 0)
    }

    fn wants(&self, step: &StepKey) -> bool {
        self.steps.as_ref().map_or_else(|| self.selection.wants(step), |steps| steps.contains(step))
    }

    /// Intervals in which a span counts (absolute ns), sorted and disjoint; `rank` is an index into [`Self::ranks`].
    fn parts_of(&self, rank: usize, span: &Span) -> &[TimeInterval] {
        let is_by_step = span.end_ns <= span.start_ns && span.step != NO_STEP;
        match self.picks_steps && !is_by_step {
            true => &self.parts[rank],
            false if self.wants(&StepKey::from_span(span)) => std::slice::from_ref(&self.bounds),
            false => &[],
        }
    }

    /// True if all spans of a run are selected in full, as those of most runs are.
    fn is_whole(&self, run: &SpanRun) -> bool {
        let ((start, end), parts) = (run.extent, &self.parts[run.rank]);
        let part = parts.get(parts.partition_point(|part| part.1 < end));
        self.selection.wants(&run.step)
            && end < self.bounds.1
            && part.is_some_and(|part| part.0 <= start)
    }

    /// Selected times of a rank (an index into [`Self::ranks`]; absolute ns), sorted and disjoint: its steps, or all
    /// between its first start and last end.
    pub fn parts(&self, rank: usize) -> &[TimeInterval] {
        &self.parts[rank]
    }

    /// Time of the run's step, within the selected window of time. `None` outside of steps.
    pub fn window(&self, run: &SpanRun) -> Option<StepWindow> {
        let StepWindow { time, until_next } = *self.windows.get(&(self.ranks[run.rank], run.step))?;
        clip(time, self.bounds)
            .map(|cut| StepWindow { time: cut, until_next: until_next && cut.1 == time.1 })
    }

    /// Clips an interval of any rank to the selected window of time (absolute ns).
    pub fn clip_interval(&self, interval: TimeInterval) -> Option<TimeInterval> {
        clip(interval, self.bounds)
    }

    /// Calls `see` with each selected piece of the runs' spans (absolute ns). A span that reaches several parts has
    /// several pieces, of which the one with its start ([`starts`]) counts as an execution.
    #[inline]
    pub fn each<'r>(
        &self,
        runs: impl IntoIterator<Item = &'r SpanRun>,
        mut see: impl FnMut(&'a Span, TimeInterval),
    ) {
        for run in runs {
            let (is_whole, mut cursor) = (self.is_whole(run), 0);
            // Nested loops, not a flattened iterator: this is the hot loop.
            for span in &self.trace.spans[run.at.clone()] {
                if is_whole {
                    see(span, interval(span));
                    continue;
                }
                let parts = self.parts_of(run.rank, span);
                pieces(parts, interval(span), &mut cursor).for_each(|piece| see(span, piece));
            }
        }
    }

    pub fn any<'r>(&self, runs: impl IntoIterator<Item = &'r SpanRun>) -> bool {
        let mut spans = runs.into_iter().flat_map(|run| &self.trace.spans[run.at.clone()]);
        spans.any(|span| self.selects(span))
    }

    /// Splits the runs into ordered work portions for threads, each of a single rank: whole ranks if
    /// there are enough, or else pieces of about equal size.
    pub fn portions(&self) -> Vec<&[SpanRun]> {
        let ranks = self.by_rank.iter().filter(|runs| !runs.is_empty());
        if ranks.clone().count() >= 2 * rayon::current_num_threads() {
            return ranks.map(Vec::as_slice).collect();
        }
        let mut portions = Vec::new();
        for mut runs in self.by_rank.iter().map(Vec::as_slice) {
            while !runs.is_empty() {
                let mut spans = 0;
                let many = runs.iter().take_while(|run| {
                    let more = spans < PIECE;
                    spans += run.at.len();
                    more
                });
                let (portion, rest) = runs.split_at(many.count());
                portions.push(portion);
                runs = rest;
            }
        }
        portions
    }

    /// Span runs of each selected step, ordered by step, then by rank.
    pub fn by_step(&self) -> Vec<(StepKey, Vec<&SpanRun>)> {
        let wanted = |run: &&SpanRun| self.selection.wants(&run.step);
        let mut runs: Vec<&SpanRun> = self.by_rank.iter().flatten().filter(wanted).collect();
        // Stable: keeps a step's runs ordered by rank, and within a rank in trace order.
        runs.par_sort_by_key(|run| run.step);
        runs.chunk_by(|a, b| a.step == b.step).map(|runs| (runs[0].step, runs.to_vec())).collect()
    }
}

/// Interval of a span (ns); a reversed span has length 0.
#[inline]
fn interval(span: &Span) -> TimeInterval {
    (span.start_ns, span.end_ns.max(span.start_ns))
}

/// True for the piece of a span that has its start. An execution counts in the part in which it starts, its time in each
/// part during which it runs.
#[inline]
pub fn starts(span: &Span, piece: TimeInterval) -> bool {
    piece.0 == span.start_ns
}

fn hull(a: TimeInterval, b: TimeInterval) -> TimeInterval {
    (a.0.min(b.0), a.1.max(b.1))
}

/// Start of a step on a rank; ordered as steps follow each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct StepStart {
    /// Rank, sample and, where they are apart, phase.
    sequence: (u32, u32, Option<Phase>),
    /// ns of the trace.
    from: i64,
    key: StepKey,
}

/// Times of the steps on each rank, from the extents of their spans: each lasts until the next one of its sample, in order
/// of time.
fn step_windows(
    trace: &Trace,
    extents: &HashMap<(u32, StepKey), TimeInterval>,
) -> HashMap<(u32, StepKey), StepWindow> {
    let is_simulated = has_begins(trace);
    let begin = |rank: u32, key: StepKey, first: i64| {
        let before =
            key.before().filter(|_| is_simulated).and_then(|before| extents.get(&(rank, before)));
        before.map_or(first, |before| first.min(before.1))
    };
    // steps of both phases follow each other in imported traces
    let phase = |key: StepKey| trace.meta.import.is_none().then_some(key.phase);
    let steps = extents.iter().filter(|((_, key), _)| key.step != NO_STEP);
    let mut steps: Vec<StepStart> = steps
        .map(|(&(rank, key), extent)| StepStart {
            sequence: (rank, key.sample, phase(key)),
            from: begin(rank, key, extent.0),
            key,
        })
        .collect();
    steps.sort_unstable();
    let mut windows = HashMap::with_capacity(steps.len());
    for (at, step) in steps.iter().enumerate() {
        let rank_step = (step.sequence.0, step.key);
        let next = steps.get(at + 1).filter(|next| next.sequence == step.sequence);
        let time = (step.from, next.map_or(extents[&rank_step].1, |next| next.from));
        windows.insert(rank_step, StepWindow { time, until_next: next.is_some() });
    }
    windows
}

/// True for traces whose steps begin where the step before ends: those of our own simulated runs.
fn has_begins(trace: &Trace) -> bool {
    trace.meta.provenance == Provenance::Simulated && trace.meta.import.is_none()
}

/// Splits a piece of the spans, which starts at `offset`, into runs with their ranks; also returns its
/// first start.
fn cut(offset: usize, spans: &[Span]) -> (i64, Vec<(u32, SpanRun)>) {
    let same = |a: &Span, b: &Span| (a.rank, StepKey::from_span(a)) == (b.rank, StepKey::from_span(b));
    let (mut runs, mut from) = (Vec::new(), offset);
    for spans in spans.chunk_by(same) {
        let extent = spans.iter().map(interval).reduce(hull).unwrap_or_default();
        let at = from..from + spans.len();
        from = at.end;
        runs.push((spans[0].rank, SpanRun { step: StepKey::from_span(&spans[0]), rank: 0, at, extent }));
    }
    let origin = runs.iter().map(|(_, run)| run.extent.0).min().unwrap_or(i64::MAX);
    (origin, runs)
}

#[derive(Clone, Debug, Default)]
pub struct Replays {
    /// Launch time of each replay (ns), ascending.
    launched: Vec<i64>,
}

impl Replays {
    /// Finds the replays among the spans of one rank. Requires spans with different starts: spans that
    /// start together may have equal ready times only because these are capped by the start.
    pub fn from_spans<'a>(spans: impl IntoIterator<Item = &'a Span>) -> Self {
        let known = spans.into_iter().filter(|span| span.is_launch_known());
        let mut launches: Vec<(i64, i64)> = known.map(|span| (span.ready_ns, span.start_ns)).collect();
        launches.sort_unstable();
        let replays = launches.chunk_by(|a, b| a.0 == b.0).filter(|all| all[0].1 < all[all.len() - 1].1);
        Self { launched: replays.map(|all| all[0].0).collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.launched.is_empty()
    }

    pub fn has(&self, span: &Span) -> bool {
        self.launched.binary_search(&span.ready_ns).is_ok() && span.is_launch_known()
    }
}

/// Longest delay from launch to start that a launch itself can take, on slow hosts under a profiler (ns). If even the
/// quickest kernels took longer, they waited in the stream's queue.
const MOST_DELAY: i64 = 20_000;

#[derive(Clone, Debug, Default)]
pub struct Launches {
    /// Delay from launch to start of a single kernel without other holdups (ns); `None` if no launch is
    /// recorded.
    delay: Option<i64>,
    pub replays: Replays,
}

impl Launches {
    /// Launches among the spans of one rank of an imported trace.
    pub fn from_spans<'a>(spans: impl Iterator<Item = &'a Span> + Clone) -> Self {
        let replays = Replays::from_spans(spans.clone());
        // skip calls that returned after their kernel had started
        let is_single = |span: &&Span| span.start_ns - span.ready_ns > 1 && !replays.has(span);
        let mut delays: Vec<i64> =
            spans.clone().filter(is_single).map(|span| span.start_ns - span.ready_ns).collect();
        let at = delays.len() / 20;
        let quickest = (!delays.is_empty()).then(|| (*delays.select_nth_unstable(at).1).min(MOST_DELAY));
        let delay = quickest.or_else(|| spans.clone().any(Span::is_launch_known).then_some(0));
        Self { delay, replays }
    }

    /// Like [`Self::from_spans`]; in an export of a native trace, which names layers, launches are the times at which inputs were
    /// ready, and have no latency.
    pub fn of_trace<'a>(trace: &Trace, spans: impl Iterator<Item = &'a Span> + Clone) -> Self {
        let launches = Self::from_spans(spans);
        match trace.operations.iter().any(|operation| operation.layer.is_some()) {
            true => Self { delay: launches.delay.map(|_| 0), ..launches },
            false => launches,
        }
    }

    pub fn are_recorded(&self) -> bool {
        self.delay.is_some()
    }

    /// Earliest possible start of a span given its launch; `None` if the launch is not recorded. A replay's
    /// first kernel includes the graph's own startup, which the host cannot avoid; the others follow the
    /// first.
    pub fn release(&self, span: &Span) -> Option<i64> {
        let delay = self.delay.filter(|_| span.is_launch_known())?;
        let delay = if self.replays.has(span) { 0 } else { delay };
        Some((span.ready_ns + delay).min(span.start_ns))
    }
}
