//! Splits a trace into runs: contiguous spans of one rank and step.
//!
//! All trace analyses iterate over runs, in parallel, and never look up a span's rank or step in a map.
//! A trace is sorted by step and rank, so runs are long; an unsorted one is only slower.
//!
//! [`Replays`] are CUDA graph replays: launches shared by several spans of a rank.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use rayon::prelude::*;

use super::intervals::{Interval, clip};
use crate::import::step_name;
use crate::rules::OTHER;
use crate::{NO_STEP, OperationInfo, Span, Trace};
use plan::{Kind, Lane, Phase};
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
    /// Index of the timed generation, from 0.
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
    pub fn of(span: &Span) -> Self {
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
        let from = trace.spans.partition_point(|span| Self::of(span) < *self);
        from..from + trace.spans[from..].partition_point(|span| Self::of(span) <= *self)
    }
}

/// Contiguous spans of one rank and step.
#[derive(Clone, Debug)]
pub struct Run {
    pub step: StepKey,
    /// Rank: an index into [`Runs::ranks`].
    pub rank: usize,
    pub at: Range<usize>,
    /// Begin of the step in a simulated trace: the end of the rank's step before (ns), since the host's time before the
    /// first operation belongs to the step. `None` in other traces and without such a step.
    begin: Option<i64>,
    /// Last end (ns).
    end: i64,
}

/// Classification of an operation for overlap.
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
    pub fn of(operation: &OperationInfo, lane: Lane) -> Self {
        match (operation.kind.as_str(), lane) {
            ("memcpy" | "memset", _) => Self::Memory,
            (OTHER, _) => Self::Other,
            (_, Lane::Compute) => Self::Compute,
            (_, Lane::Comm) => Self::Comm,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Comm => "comm",
            Self::Memory => "memory",
            Self::Other => OTHER,
        }
    }
}

/// Runs of a selection, with the trace and window for iterating over their spans.
pub struct Runs<'a> {
    pub trace: &'a Trace,
    pub selection: Selection,
    /// First start in the trace (ns).
    pub origin: i64,
    /// Absolute bounds of the selection (ns).
    bounds: Option<Interval>,
    /// Ranks of the whole trace, ascending, including those without selected spans.
    pub ranks: Vec<u32>,
    pub by_rank: Vec<Vec<Run>>,
    classes: Vec<[Class; 2]>,
}

/// First start of a trace (ns), the origin of all windows; 0 for an empty trace.
pub fn origin_ns(trace: &Trace) -> i64 {
    trace.spans.par_iter().with_min_len(PIECE).map(|span| span.start_ns).min().unwrap_or(0)
}

impl<'a> Runs<'a> {
    /// Splits the selected spans into runs, in one pass.
    pub fn new(trace: &'a Trace, selection: &Selection) -> Self {
        let pieces: Vec<(i64, Vec<(u32, Run)>)> = trace
            .spans
            .par_chunks(PIECE)
            .enumerate()
            .map(|(piece, spans)| cut(piece * PIECE, spans))
            .collect();
        let origin = pieces.iter().map(|(first, _)| *first).min().unwrap_or(0);
        let at = |time: Option<i64>, open| time.map_or(open, |t| origin.saturating_add(t));
        let bounds = (selection.from_ns.is_some() || selection.to_ns.is_some())
            .then(|| (at(selection.from_ns, i64::MIN), at(selection.to_ns, i64::MAX)));

        let mut ends: HashMap<(u32, StepKey), i64> = HashMap::new();
        if has_begins(trace) {
            for (rank, run) in pieces.iter().flat_map(|(_, runs)| runs) {
                let end = ends.entry((*rank, run.step)).or_insert(run.end);
                *end = run.end.max(*end);
            }
        }
        let mut by_rank: BTreeMap<u32, Vec<Run>> = BTreeMap::new();
        for (rank, run) in pieces.into_iter().flat_map(|(_, runs)| runs) {
            let runs = by_rank.entry(rank).or_default();
            if selection.wants(&run.step) {
                let begin = run.step.before().and_then(|before| ends.get(&(rank, before))).copied();
                runs.push(Run { begin, ..run });
            }
        }
        let (ranks, mut by_rank): (Vec<u32>, Vec<Vec<Run>>) = by_rank.into_iter().unzip();
        for (rank, runs) in by_rank.iter_mut().enumerate() {
            runs.iter_mut().for_each(|run| run.rank = rank);
        }
        let of = |operation| [Lane::Compute, Lane::Comm].map(|lane| Class::of(operation, lane));
        let classes = trace.operations.iter().map(of).collect();
        Self { trace, selection: *selection, origin, bounds, ranks, by_rank, classes }
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
        let operation = self.trace.operations.get(span.operation as usize);
        operation.is_some_and(|operation| operation.kind == Kind::Receive.as_str())
    }

    pub fn selects(&self, span: &Span) -> bool {
        self.selection.wants(&StepKey::of(span)) && self.clip(span).is_some()
    }

    /// Clips a span to the selection (absolute ns); a reversed span has length 0.
    #[inline]
    pub fn clip(&self, span: &Span) -> Option<Interval> {
        let interval = (span.start_ns, span.end_ns.max(span.start_ns));
        match self.bounds {
            None => Some(interval),
            Some(bounds) => clip(interval, bounds),
        }
    }

    /// Known begin of the run's step (ns), if both it and spans of the run are selected.
    pub fn begin(&self, run: &Run) -> Option<i64> {
        let from = self.bounds.map_or(i64::MIN, |(from, _)| from);
        run.begin.filter(|begin| from < *begin && self.any([run]))
    }

    pub fn clip_interval(&self, interval: Interval) -> Option<Interval> {
        self.bounds.map_or(Some(interval), |bounds| clip(interval, bounds))
    }

    /// Calls `see` with each selected span of the runs, clipped.
    #[inline]
    pub fn each<'r>(
        &self,
        runs: impl IntoIterator<Item = &'r Run>,
        mut see: impl FnMut(&'a Span, Interval),
    ) {
        for run in runs {
            // Nested loops, not a flattened iterator: this is the hot loop.
            for span in &self.trace.spans[run.at.clone()] {
                if let Some(interval) = self.clip(span) {
                    see(span, interval);
                }
            }
        }
    }

    pub fn any<'r>(&self, runs: impl IntoIterator<Item = &'r Run>) -> bool {
        let mut spans = runs.into_iter().flat_map(|run| &self.trace.spans[run.at.clone()]);
        spans.any(|span| self.clip(span).is_some())
    }

    /// Splits the runs into ordered work portions for threads, each of a single rank: whole ranks if
    /// there are enough, or else pieces of about equal size.
    pub fn portions(&self) -> Vec<&[Run]> {
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

    /// Runs of each step, ordered by step, then by rank.
    pub fn by_step(&self) -> Vec<(StepKey, Vec<&Run>)> {
        let mut runs: Vec<&Run> = self.by_rank.iter().flatten().collect();
        // Stable: keeps a step's runs ordered by rank, and within a rank in trace order.
        runs.par_sort_by_key(|run| run.step);
        runs.chunk_by(|a, b| a.step == b.step).map(|runs| (runs[0].step, runs.to_vec())).collect()
    }
}

/// True for traces whose steps begin where the step before ends: those of our own simulated runs.
fn has_begins(trace: &Trace) -> bool {
    trace.meta.provenance == Provenance::Simulated && trace.meta.import.is_none()
}

/// Splits a piece of the spans, which starts at `offset`, into runs with their ranks; also returns its
/// first start.
fn cut(offset: usize, spans: &[Span]) -> (i64, Vec<(u32, Run)>) {
    let (mut runs, mut from, mut origin, mut end) = (Vec::new(), 0, i64::MAX, i64::MIN);
    let run = |from: usize, to: usize, end: i64| {
        let (rank, step) = (spans[from].rank, StepKey::of(&spans[from]));
        (rank, Run { step, rank: 0, at: offset + from..offset + to, begin: None, end })
    };
    for (at, span) in spans.iter().enumerate() {
        origin = origin.min(span.start_ns);
        let first = &spans[from];
        if span.rank != first.rank || StepKey::of(span) != StepKey::of(first) {
            runs.push(run(from, at, end));
            (from, end) = (at, i64::MIN);
        }
        end = end.max(span.end_ns);
    }
    if !spans.is_empty() {
        runs.push(run(from, spans.len(), end));
    }
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
    pub fn of<'a>(spans: impl IntoIterator<Item = &'a Span>) -> Self {
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
        self.has_launch(span.ready_ns) && span.is_launch_known()
    }

    pub fn has_launch(&self, launched_ns: i64) -> bool {
        self.launched.binary_search(&launched_ns).is_ok()
    }
}
