//! Steps of a trace as modules between collectives, with the measured times of every rank.
//!
//! Our own traces record step and layer of every operation. In a foreign trace, collectives repeat with the
//! layers, and the kernels between two of them form a module. A layer has two: all-reduces, or dispatch and
//! combine of its experts. Attention has no collective before a dispatch; it ends at the norm before the router.

mod rank_spans;

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use rayon::prelude::*;

use self::rank_spans::kernels;
pub(super) use self::rank_spans::{RankSpans, find_launches, ranks};
use super::foreign::foreign;
use super::split::most_common;
use super::stretch::Stretch;
use super::wire::middle;
use crate::analysis::{CollectiveArrivals, WindowRank, WindowTimes, window_times};
use base::error::{Error, Result};
use base::text::counted;
use plan::{Architecture, Lane, Phase};
use trace::overlap::StepKey;
use trace::overlap::intervals::TimeInterval;
use trace::{NO_STEP, OperationKind, Span, Trace};

/// Selection of the steps to look for.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepSelection {
    /// Number of layers, if the trace leaves it open.
    pub layers: Option<u32>,
    /// Phase in a run of our own; decode by default.
    pub phase: Option<Phase>,
    /// Only this step, by the number of the trace's markers; without them, from 0 in the order of discovery.
    pub step: Option<u32>,
    /// Only the step with this key, in a run of our own.
    pub key: Option<StepKey>,
}

/// Collectives at the ends of a trace's layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerCollectives {
    /// Attention and MLP each end in an all-reduce.
    AllReduces,
    /// A dispatch brings tokens to their experts, and a combine brings the outputs back.
    Exchanges,
}

/// Experts of a model whose layers end in all-reduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExpertLayout {
    /// Dense layers before the first with experts.
    pub dense_first: u32,
    /// Distance of layers with experts.
    pub every: u32,
    /// True if shared experts run on every token; false for imported traces, which do not name them.
    pub has_shared: bool,
}

impl ExpertLayout {
    fn from_trace(trace: &Trace) -> Option<Self> {
        let experts =
            trace.operations.iter().filter(|operation| operation.kind == OperationKind::Experts);
        let layers: BTreeSet<u32> = experts.map(|operation| operation.layer.unwrap_or(0)).collect();
        let mut layers = layers.into_iter();
        let dense_first = layers.next()?;
        let every = layers.next().map_or(1, |second| second - dense_first);
        let has_shared = trace.operations.iter().any(|operation| operation.name.contains("/shared_"));
        Some(Self { dense_first, every, has_shared })
    }
}

/// Index of a part of a layer with experts that exchange tokens, in [`RankStepTimes::modules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoeLayerPart {
    Attention,
    /// Norm and router, up to the dispatch.
    Router,
    /// Work that starts while tokens are on their way: shared experts.
    Beside,
    /// Routed experts, up to the combine.
    Experts,
}

impl MoeLayerPart {
    pub fn index(self, layer: u32) -> usize {
        4 * layer as usize + self as usize
    }
}

/// One collective of a step, over all ranks (ns).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordedCollective {
    /// Time from the last rank's arrival to the end.
    pub transfer: i64,
    /// Mean wait of the ranks for the last one.
    pub waited: i64,
}

/// Times of one rank in a step.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RankStepTimes {
    /// Start, relative to the step's start (ns).
    pub begin: i64,
    /// Work before the first module up to an extra all-reduce (a sharded embedding).
    pub lead: Stretch,
    /// Attention and MLP of every layer alternately, each up to its all-reduce; with exchanges, the four
    /// [`MoeLayerPart`]s of every layer.
    pub modules: Vec<Stretch>,
    /// Work after the last collective.
    pub head: Stretch,
    /// Spans of the modules' collectives (ns of the trace).
    pub collectives: Vec<TimeInterval>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct RecordedStep {
    pub number: u32,
    /// Key of the first span.
    pub key: StepKey,
    /// Start, and start of the next step or, for the last step, its end (ns of the trace).
    pub time: (i64, i64),
    /// True if the next step was recorded, so that the time is the step's latency.
    pub until_next: bool,
    /// Launch of the first kernel (ns of the trace), if recorded.
    pub launched: Option<i64>,
    /// Gap at the end until the next step's CUDA graph is launched (ns).
    pub between_graphs: i64,
    /// Exposed communication and waiting for the host, as `overlap` counts them.
    pub times: WindowTimes,
    pub ranks: Vec<RankStepTimes>,
    /// Two collectives of every layer: all-reduces of attention and MLP, or dispatch and combine.
    pub reduces: Vec<RecordedCollective>,
}

impl RecordedStep {
    /// Extends the step to the start of the next one (ns of the trace). `launched` is the launch time of the
    /// next step if both replay CUDA graphs.
    fn end_at(&mut self, begins: i64, launched: Option<i64>) {
        self.between_graphs = launched.map_or(0, |at| (at.min(begins) - self.time.1).max(0));
        self.time.1 = begins;
        self.until_next = true;
    }
}

#[derive(Clone, Debug)]
pub struct RecordedSteps {
    /// Number of layers; with exchanges, of those with experts.
    pub layers: u32,
    pub ends: LayerCollectives,
    /// Experts of the layers, if they end in all-reduces.
    pub(super) mixture: Option<ExpertLayout>,
    /// Number of ranks with spans.
    pub ranks: u32,
    pub phase: Phase,
    /// Name of the most frequent all-reduce, or dispatch.
    pub all_reduce: String,
    pub has_launches: bool,
    pub has_graphs: bool,
    /// Assumptions and omissions, one sentence each.
    pub notes: Vec<String>,
    /// Number of steps found; at most 64 are kept.
    pub(super) found: usize,
    pub(super) steps: Vec<RecordedStep>,
}

impl RecordedSteps {
    /// Finds the steps of a trace.
    ///
    /// # Errors
    ///
    /// Returns an error that describes the findings if there is no all-reduce and no dispatch, no repetition,
    /// another number of layers than requested, only one all-reduce per layer, or another architecture than
    /// standard.
    pub fn new(trace: &Trace, asked: &StepSelection) -> Result<Self> {
        if trace.meta.spec.is_some() {
            return own(trace, asked);
        }
        let mut steps = foreign(trace, asked)?;
        if let Some(wanted) = asked.step {
            let numbers = steps.shown_numbers();
            let mut is_wanted = numbers.iter().map(|number| *number == wanted);
            steps.steps.retain(|_| is_wanted.next() == Some(true));
            if steps.steps.is_empty() {
                return Err(no_step(wanted, &numbers));
            }
        }
        Ok(steps)
    }

    pub fn len(&self) -> usize {
        self.found
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Steps whose latency is known, or all if the end of each is unknown.
    pub(super) fn ended(&self) -> Vec<usize> {
        let all = 0..self.steps.len();
        let ended: Vec<usize> = all.clone().filter(|at| self.steps[*at].until_next).collect();
        if ended.is_empty() { all.collect() } else { ended }
    }

    /// Number, start and end of each step, in order (ns of the trace).
    pub fn times(&self) -> impl Iterator<Item = (u32, i64, i64)> {
        self.steps.iter().map(|step| (step.number, step.time.0, step.time.1))
    }

    /// True if kernels start beside a dispatch in any step.
    pub(super) fn has_work_beside_dispatch(&self) -> bool {
        let parts = self.steps.iter().flat_map(|step| &step.ranks);
        self.ends == LayerCollectives::Exchanges
            && parts
                .flat_map(|rank| rank.modules.iter().skip(MoeLayerPart::Beside as usize).step_by(4))
                .any(|part| part.work > 0)
    }

    /// Number of each step as other tables show it: of the trace's markers if they tell all steps apart, else from 0.
    fn shown_numbers(&self) -> Vec<u32> {
        let marked: Vec<u32> = self.steps.iter().map(|step| step.key.step).collect();
        let distinct: BTreeSet<&u32> = marked.iter().collect();
        match distinct.len() == marked.len() && !marked.contains(&NO_STEP) {
            true => marked,
            false => self.steps.iter().map(|step| step.number).collect(),
        }
    }

    /// Number of the only step to which the trace gives this one.
    pub fn number_of(&self, step: u32) -> Option<u32> {
        let mut found = self.steps.iter().filter(|one| one.key.step == step);
        found.next().filter(|_| found.next().is_none()).map(|one| one.number)
    }

    /// Median transfer time of a collective, from the last rank's arrival (ns).
    pub(super) fn usual_transfer(&self) -> i64 {
        middle(self.steps.iter().flat_map(|step| &step.reduces).map(|reduced| reduced.transfer))
    }

    /// True if ranks wait for launches so much that other remedies help only after that one.
    pub fn is_launch_bound(&self) -> bool {
        self.host_share() >= LAUNCH_BOUND
    }

    /// Remedy for waiting for launches.
    pub fn launch_remedy(&self) -> &'static str {
        match self.has_graphs {
            true if 2.0 * self.between_graphs_share() >= self.host_share() => {
                "no gap between CUDA graphs"
            }
            true => "all kernels in CUDA graphs",
            false => "CUDA graph",
        }
    }

    /// Share of the steps' time in which a rank waited for the host (0 to 1).
    pub fn host_share(&self) -> f64 {
        self.share(|times| times.host)
    }

    /// Part of [`Self::host_share`] between CUDA graphs.
    pub fn between_graphs_share(&self) -> f64 {
        self.share(|times| times.between_graphs)
    }

    /// Share of the steps' time; 0 without recorded launches.
    fn share(&self, part: fn(&WindowTimes) -> f64) -> f64 {
        let all: i64 = self.steps.iter().map(|step| step.time.1 - step.time.0).sum();
        let sum: f64 = self.steps.iter().map(|step| part(&step.times)).sum();
        if all > 0 && self.has_launches { sum / all as f64 } else { 0.0 }
    }
}

/// True for an all-reduce; with `group`, only of that process group.
pub(super) fn is_all_reduce(trace: &Trace, span: &Span, group: Option<u32>) -> bool {
    let operation = trace.operations.get(span.operation as usize);
    span.lane == Lane::Comm
        && operation.is_some_and(|operation| {
            let group_of = || operation.collective.as_ref().and_then(|info| info.group);
            operation.kind == OperationKind::AllReduce && (group.is_none() || group_of() == group)
        })
}

/// True for a collective at the end of a layer's module; with `group`, only of that process group.
fn is_end(trace: &Trace, span: &Span, ends: LayerCollectives, group: Option<u32>) -> bool {
    match ends {
        LayerCollectives::AllReduces => is_all_reduce(trace, span, group),
        LayerCollectives::Exchanges => {
            span.lane == Lane::Comm && trace.operation_kind(span).is_some_and(OperationKind::is_exchange)
        }
    }
}

impl LayerCollectives {
    /// True if a step of this many layers may have `count` collectives, with up to three all-reduces of the embedding and
    /// the head.
    pub(super) fn fits(self, layers: u32, count: usize) -> bool {
        let own = 2 * layers as usize;
        match self {
            Self::AllReduces => (own..own + 4).contains(&count),
            Self::Exchanges => count == own,
        }
    }

    /// Finds out whether the layers of a trace end in all-reduces or in exchanges, from its first rank.
    ///
    /// # Errors
    ///
    /// Returns an error if layers have both, or all-to-alls that the experts' kernels do not tell apart.
    pub fn from_trace(trace: &Trace) -> Result<Self> {
        let first = trace.spans.first().map_or(0, |span| span.rank);
        let mut counts = [0usize; 4];
        for span in trace.spans.iter().filter(|span| span.rank == first && span.lane == Lane::Comm) {
            match trace.operation_kind(span) {
                Some(OperationKind::AllReduce) => counts[0] += 1,
                Some(OperationKind::Dispatch) => counts[1] += 1,
                Some(OperationKind::Combine) => counts[2] += 1,
                Some(OperationKind::AllToAll) => counts[3] += 1,
                _ => {}
            }
        }
        match counts {
            [reduces, 0, 0, all_to_alls] if reduces == 0 && all_to_alls > 0 => Err(Error::input_help(
                format!(
                    "rank {first} has {} and no all-reduce, and no kernels of experts that tell dispatch from combine",
                    counted(all_to_alls, "all-to-all"),
                ),
                "name the experts' kernels in a file for --rules, with kind = \"experts\"",
            )),
            [_, 0, 0, _] => Ok(Self::AllReduces),
            // a few all-reduces may belong to dense layers or to the head
            [reduces, dispatches, combines, _] if 2 * reduces < dispatches.min(combines) => {
                Ok(Self::Exchanges)
            }
            [0, dispatches, combines, _] => Err(Error::input(format!(
                "rank {first} has {} and {}; layers need both",
                counted(dispatches, "dispatch kernel"),
                counted(combines, "combine kernel"),
            ))),
            [reduces, dispatches, ..] => Err(Error::input_help(
                format!(
                    "the layers have all-reduces and exchanges of tokens (rank {first}: {} and {}), and rewire needs \
                     either two all-reduces a layer or dispatch and combine",
                    counted(reduces, "all-reduce"),
                    counted(dispatches, "dispatch kernel"),
                ),
                "record the engine with attention on one rank a replica (data-parallel), or with tensor-parallel experts",
            )),
        }
    }
}

/// Spans of a foreign trace in which the kernels of one exchange are one span: an engine may send and receive in two
/// kernels, announce a dispatch, or gather tokens and their choices separately. The merged span has the
/// operation of the longest.
///
/// # Errors
///
/// Returns an error if experts lie within an exchange, as with micro-batches.
pub(super) fn whole_exchanges(trace: &Trace) -> Result<Vec<Span>> {
    let mut by_rank: HashMap<u32, Vec<usize>> = HashMap::new();
    for (place, span) in trace.spans.iter().enumerate() {
        let is_experts = trace.operation_kind(span) == Some(&OperationKind::Experts);
        if is_experts || is_end(trace, span, LayerCollectives::Exchanges, None) {
            by_rank.entry(span.rank).or_default().push(place);
        }
    }
    let mut spans = trace.spans.clone();
    let mut merged = vec![false; spans.len()];
    let length = |place: usize| trace.spans[place].end_ns - trace.spans[place].start_ns;
    for (rank, mut places) in by_rank {
        places.sort_by_key(|place| trace.spans[*place].start_ns);
        // first and longest kernel of the exchange; true if experts ran since
        let mut open: Option<(usize, usize, bool)> = None;
        for place in places {
            let Some(kind) = trace.operation_kind(&trace.spans[place]) else { continue };
            if *kind == OperationKind::Experts {
                open = open.map(|(first, longest, _)| (first, longest, true));
                continue;
            }
            open = Some(match open {
                Some((first, ..)) if trace.operation_kind(&trace.spans[first]) != Some(kind) => {
                    (place, place, false)
                }
                Some((first, _, true)) => {
                    let at_us = (trace.spans[place].start_ns - trace.spans[first].start_ns) as f64 / 1e3;
                    return Err(Error::input_help(
                        format!(
                            "rank {rank} starts a {kind} {at_us:.0} us after another, with experts between them: the \
                             engine runs micro-batches, which hide its communication already"
                        ),
                        "record it without micro-batches (vLLM: no --enable-dbo, SGLang: no two-batch overlap)",
                    ));
                }
                Some((first, longest, false)) => {
                    let longest = if length(place) > length(longest) { place } else { longest };
                    spans[first].end_ns = spans[first].end_ns.max(spans[place].end_ns);
                    spans[first].operation = trace.spans[longest].operation;
                    merged[place] = true;
                    (first, longest, false)
                }
                None => (place, place, false),
            });
        }
    }
    let mut merged = merged.into_iter();
    spans.retain(|_| !merged.next().unwrap_or(false));
    Ok(spans)
}

/// True for an operation that adds a sum to the residual or normalizes it.
pub(super) fn leads(trace: &Trace, span: &Span) -> bool {
    let Some(operation) = trace.operations.get(span.operation as usize) else { return false };
    match trace.meta.spec {
        Some(_) => matches!(
            operation.kind,
            OperationKind::Add
                | OperationKind::Norm
                | OperationKind::AddNorm
                | OperationKind::SelectLast
        ),
        // copies out of a collective's buffer, sums and norms; the first matrix product ends them
        None => {
            let name = operation.name.to_ascii_lowercase();
            span.lane == Lane::Compute
                && ["memcpy", "norm", "add"].iter().any(|word| name.contains(word))
                && !["gemm", "nvjet", "cutlass", "matmul"].iter().any(|word| name.contains(word))
        }
    }
}

fn own(trace: &Trace, asked: &StepSelection) -> Result<RecordedSteps> {
    let Some(spec) = &trace.meta.spec else { return Err(Error::failed("the trace has no spec")) };
    if spec.architecture != Architecture::Standard
        || spec.micro_batches > 1
        || spec.sequence_parallel
        || spec.pp > 1
    {
        return Err(Error::input_help(
            format!("this run is {}; predictions start from a run of standard", spec.label()),
            "run the same cell with --architecture standard and --pp 1 and record its trace",
        ));
    }
    if spec.tp.max(spec.dp) < 2 {
        return Err(Error::input("the run has one rank, so no communication to rewire"));
    }
    let ends = if spec.dp > 1 { LayerCollectives::Exchanges } else { LayerCollectives::AllReduces };
    let phase = asked.phase.unwrap_or(Phase::Decode);
    let layers = trace.operations.iter().filter_map(|operation| operation.layer).max();
    let mut layers = layers.map_or(0, |last| last + 1);
    if let Some(wanted) = asked.layers.filter(|wanted| *wanted != layers) {
        return Err(Error::input(format!("--layers {wanted}: the run has {layers}")));
    }
    let mut notes = Vec::new();
    if ends == LayerCollectives::Exchanges {
        let dense = dense_first(trace, layers)?;
        if dense > 0 {
            notes.push(format!(
                "the first {} (dense) left unchanged; layers are counted from the first with experts",
                counted(dense as usize, "layer")
            ));
        }
        layers -= dense;
    }
    let places = steps_of(trace, phase);
    let found = places.len();
    let wanted = |(_, (key, _)): &(usize, &(StepKey, Range<usize>))| {
        asked.key.is_none_or(|asked| asked == *key) && asked.step.is_none_or(|step| step == key.step)
    };
    let chosen: Vec<usize> = places.iter().enumerate().filter(wanted).map(|(at, _)| at).collect();
    if let (true, Some(step)) = (chosen.is_empty(), asked.step) {
        let numbers: Vec<u32> = places.iter().map(|(key, _)| key.step).collect();
        return Err(no_step(step, &numbers));
    }
    let begin = |range: &Range<usize>| trace.spans[range.clone()].iter().map(|s| s.start_ns).min();
    let of =
        |range: &Range<usize>| ranks(trace, &trace.spans[range.clone()], &HashMap::new(), (ends, None));
    let one = |at: usize| -> Option<RecordedStep> {
        let (key, range) = &places[at];
        let ranks = of(range);
        let whole: Vec<Range<usize>> = ranks.iter().map(|rank| 0..rank.spans.len()).collect();
        let mut step = step(trace, &ranks, &whole, at as u32, (ends, layers))?;
        // a step ends at the start of the next one in its generation
        let next = places.get(at + 1).filter(|(next, _)| next.sample == key.sample);
        if let Some(begins) = next.and_then(|(_, range)| begin(range)) {
            step.end_at(begins, None);
        }
        Some(step)
    };
    let steps: Vec<RecordedStep> = spread(&chosen).into_par_iter().filter_map(one).collect();
    let Some(first) = steps.first() else { return Err(unlike(ends, layers, 0)) };
    let ranks = of(&places[first.number as usize].1);
    Ok(RecordedSteps { found, notes, ..assembled(trace, &ranks, steps, (ends, layers), phase) })
}

/// Number of layers before the first with experts, in our own trace of `layers` layers. Returns an error if later ones
/// lack experts.
fn dense_first(trace: &Trace, layers: u32) -> Result<u32> {
    let with_experts: BTreeSet<u32> = trace
        .operations
        .iter()
        .filter(|operation| operation.kind == OperationKind::Dispatch)
        .filter_map(|operation| operation.layer)
        .collect();
    let first = with_experts.first().copied().unwrap_or(layers);
    if with_experts.len() as u32 != layers - first {
        return Err(Error::input(format!(
            "{} of the last {} layers have experts; rewire needs them in all layers after the first dense ones",
            with_experts.len(),
            layers - first
        )));
    }
    Ok(first)
}

fn no_step(wanted: u32, numbers: &[u32]) -> Error {
    let found = match (numbers.iter().min(), numbers.iter().max()) {
        (Some(first), Some(last)) => format!("steps {first} to {last}"),
        _ => "no steps".to_owned(),
    };
    Error::input(format!("no step {wanted} to rewire: the trace has {found}"))
}

/// Share of the time waiting for the host above which launches come first.
pub const LAUNCH_BOUND: f64 = 0.2;

/// Maximum number of rewired steps; a longer trace is sampled evenly.
const MOST_STEPS: usize = 64;

pub(super) fn spread(chosen: &[usize]) -> Vec<usize> {
    let count = chosen.len();
    match count {
        0..=MOST_STEPS => chosen.to_vec(),
        _ => (0..MOST_STEPS).map(|at| chosen[at * count / MOST_STEPS]).collect(),
    }
}

/// Steps of a phase in our own trace, with the range of their spans; one lookup per step.
fn steps_of(trace: &Trace, phase: Phase) -> Vec<(StepKey, Range<usize>)> {
    let (mut steps, mut from) = (Vec::new(), 0);
    while let Some(first) = trace.spans.get(from) {
        let key = StepKey::from_span(first);
        let range = key.spans(trace);
        from = range.end.max(from + 1);
        if key.phase == phase {
            steps.push((key, range));
        }
    }
    steps
}

pub(super) fn unlike(ends: LayerCollectives, layers: u32, found: usize) -> Error {
    if ends == LayerCollectives::Exchanges {
        return Error::input_help(
            format!(
                "no step with {} was found in which a norm or the router separates attention from each dispatch; \
                 a rank has {found} dispatches and combines in all",
                counted(layers as usize, "layer"),
            ),
            "name the router's kernels in a file for --rules, with kind = \"router\"",
        );
    }
    Error::input_help(
        format!(
            "no step with {} was found: a standard model of {layers} layers has two a layer, and rank 0 has {} in all",
            counted(2 * layers as usize, "all-reduce"),
            counted(found, "all-reduce"),
        ),
        "an all-reduce that is fused with a norm, or a reduce-scatter and an all-gather, cannot be rewired",
    )
}

pub(super) fn assembled(
    trace: &Trace,
    ranks: &[RankSpans<'_>],
    mut steps: Vec<RecordedStep>,
    (ends, layers): (LayerCollectives, u32),
    phase: Phase,
) -> RecordedSteps {
    let first = &ranks[0];
    let windows: Vec<(i64, i64)> = steps.iter().map(|step| step.time).collect();
    let of_rank = |(at, rank): (usize, &RankSpans<'_>)| {
        let of_steps = steps.iter().filter_map(|step| step.ranks.get(at));
        let collectives = of_steps.flat_map(|rank| rank.collectives.iter().copied()).collect();
        WindowRank { rank: rank.rank, offset: rank.offset, collectives }
    };
    let wanted: Vec<WindowRank> = ranks.iter().enumerate().map(of_rank).collect();
    for (step, times) in steps.iter_mut().zip(window_times(trace, &wanted, &windows)) {
        step.times = times;
    }
    let named = |span: &&&Span| {
        ends == LayerCollectives::AllReduces
            || trace.operation_kind(span) == Some(&OperationKind::Dispatch)
    };
    let named = first.reduces.iter().map(|at| &first.spans[*at]).filter(named);
    let usual = most_common(named.map(|span| Reverse(span.operation)));
    let name = usual.and_then(|Reverse(operation)| trace.operations.get(operation as usize));
    RecordedSteps {
        has_launches: ranks.iter().any(|rank| rank.launches.are_recorded()),
        has_graphs: ranks.iter().any(|rank| !rank.launches.replays.is_empty()),
        layers,
        ends,
        mixture: ExpertLayout::from_trace(trace).filter(|_| ends == LayerCollectives::AllReduces),
        ranks: ranks.len() as u32,
        phase,
        all_reduce: name.map_or(String::new(), |operation| match trace.meta.spec {
            Some(_) => operation.kind.to_string(),
            None => operation.name.clone(),
        }),
        notes: Vec::new(),
        found: steps.len(),
        steps,
    }
}

impl RankStepTimes {
    /// Times of a rank in the step that begins at `begin`, on this rank at `begun` (ns); the last `modules` of its
    /// collectives end the modules. `None` if nothing separates attention from a router.
    fn new(
        trace: &Trace,
        rank: &RankSpans<'_>,
        places: &Range<usize>,
        reduces: &[usize],
        (begin, begun): (i64, i64),
        (ends, modules): (LayerCollectives, usize),
    ) -> Option<Self> {
        let kernels = |from: usize, to: usize| kernels(trace, rank, from..to);
        let (extra, reduces) = reduces.split_at(reduces.len() - modules);
        let (mut from, mut at) = (places.start, begun);
        let mut lead = Stretch::default();
        if let Some(last) = extra.last() {
            let end = rank.spans[*last].end_ns + rank.offset;
            lead = Stretch::new(kernels(from, last + 1), (at, end), None, begin);
            (from, at) = (last + 1, end);
        }
        let mut stretches: Vec<Stretch> = Vec::with_capacity(2 * modules);
        for &reduce in reduces {
            let span = rank.spans[reduce];
            let to = span.start_ns + rank.offset;
            let is_dispatch = stretches.len().is_multiple_of(4);
            let mut add = |kernels: Range<usize>, from: i64, (to, next): (i64, Option<&Span>)| {
                let released = next.and_then(|next| rank.released(next));
                let part =
                    Stretch::new(self::kernels(trace, rank, kernels), (from, to), released, begin);
                stretches.push(part);
            };
            match ends {
                LayerCollectives::AllReduces => add(from..reduce, at, (to, Some(span))),
                LayerCollectives::Exchanges if is_dispatch => {
                    let router = rank.router(trace, from..reduce)?;
                    let first = rank.spans[router];
                    let split = (first.start_ns + rank.offset).clamp(at, to.max(at));
                    add(from..router, at, (split, Some(first)));
                    add(router..reduce, split, (to, Some(span)));
                }
                LayerCollectives::Exchanges => {
                    let sent = rank.spans[from - 1];
                    let beside = |other: &&Span| other.start_ns < sent.end_ns;
                    let after = from + rank.spans[from..reduce].partition_point(beside);
                    let ended = rank.spans[from..after].iter().map(|other| other.end_ns);
                    let ended = ended.max().map_or(at, |end| at.max(end + rank.offset));
                    let start = sent.start_ns + rank.offset;
                    add(from..after, start, (if after > from { ended } else { start }, None));
                    add(after..reduce, ended, (to, Some(span)));
                }
            }
            (from, at) = (reduce + 1, span.end_ns + rank.offset);
        }
        let rest = kernels(from, places.end);
        let last = rest.iter().map(|kernel| kernel.end).max().unwrap_or(at).max(at);
        let head = Stretch::new(rest, (at, last), None, begin);
        let collective = |at: &usize| {
            let span = rank.spans[*at];
            (span.start_ns + rank.offset, span.end_ns + rank.offset)
        };
        let collectives = reduces.iter().map(collective).collect();
        Some(Self { begin: begun - begin, lead, modules: stretches, head, collectives })
    }
}

/// Builds one step over all ranks; `None` if it has too few collectives, or with exchanges another number, or nothing
/// that separates attention from a router.
pub(super) fn step(
    trace: &Trace,
    ranks: &[RankSpans<'_>],
    places: &[Range<usize>],
    number: u32,
    (ends, layers): (LayerCollectives, u32),
) -> Option<RecordedStep> {
    let modules = 2 * layers as usize;
    let of_step = |(rank, places): (&RankSpans<'_>, &Range<usize>)| -> Option<Vec<usize>> {
        let from = rank.reduces.partition_point(|at| *at < places.start);
        let to = rank.reduces.partition_point(|at| *at < places.end);
        let ends_between = &rank.reduces[from..to];
        let fits = match ends {
            LayerCollectives::AllReduces => ends_between.len() >= modules,
            LayerCollectives::Exchanges => {
                ends_between.len() == modules
                    && trace.operation_kind(rank.spans[*ends_between.first()?])
                        == Some(&OperationKind::Dispatch)
            }
        };
        fits.then(|| ends_between.to_vec())
    };
    let reduces: Vec<Vec<usize>> = ranks.iter().zip(places).map(of_step).collect::<Option<_>>()?;
    let first = |(rank, places): (&RankSpans<'_>, &Range<usize>)| {
        rank.spans[places.clone()].first().map(|span| span.start_ns + rank.offset)
    };
    let begins: Vec<i64> = ranks.iter().zip(places).map(first).collect::<Option<_>>()?;
    let begin = begins.iter().copied().min()?;
    let first = ranks.iter().zip(places).zip(&begins).find(|(_, begun)| **begun == begin);
    let launched = first.and_then(|((rank, places), _)| {
        rank.released(rank.spans[places.start]).filter(|_| !rank.launches.replays.is_empty())
    });
    let key = StepKey::from_span(ranks.first()?.spans[places.first()?.start]);
    let end = ranks
        .iter()
        .zip(places)
        .flat_map(|(rank, places)| {
            rank.spans[places.clone()].iter().map(|span| span.end_ns + rank.offset)
        })
        .max()?;
    let mut of_ranks = Vec::with_capacity(ranks.len());
    for (((rank, places), reduces), begun) in ranks.iter().zip(places).zip(&reduces).zip(&begins) {
        of_ranks.push(RankStepTimes::new(
            trace,
            rank,
            places,
            reduces,
            (begin, *begun),
            (ends, modules),
        )?);
    }
    let reduced = |nth: usize| {
        let with_reduces = ranks.iter().zip(&reduces);
        let parts: Vec<(&Span, i64)> = with_reduces
            .map(|(rank, own)| (rank.spans[own[own.len() - modules + nth]], rank.offset))
            .collect();
        // use the backend's record: an emulated link starts when the last rank arrives
        let arrived = CollectiveArrivals::new(&parts, trace.meta.spec.is_some());
        RecordedCollective { transfer: arrived.mean_moved(), waited: arrived.mean_waited() }
    };
    Some(RecordedStep {
        number,
        key,
        time: (begin, end),
        until_next: false,
        launched,
        between_graphs: 0,
        times: WindowTimes::default(),
        reduces: (0..modules).map(reduced).collect(),
        ranks: of_ranks,
    })
}

/// Extends every step to the start of the next one, whose first span on every rank `next` finds.
pub(super) fn follow(
    steps: &mut [RecordedStep],
    ranks: &[RankSpans<'_>],
    next: impl Fn(&RecordedStep) -> Option<Vec<usize>>,
) {
    let begins: HashMap<i64, Option<i64>> =
        steps.iter().map(|step| (step.time.0, step.launched)).collect();
    for step in steps {
        let Some(places) = next(step) else { continue };
        let starts = ranks.iter().zip(places);
        let starts =
            starts.filter_map(|(rank, at)| rank.spans.get(at).map(|span| span.start_ns + rank.offset));
        if let Some(begin) = starts.min().filter(|begin| *begin >= step.time.0) {
            step.end_at(begin, begins.get(&begin).copied().flatten());
        }
    }
}
