//! Steps of a trace as modules between all-reduces, with the measured times of every rank.
//!
//! Our own traces record step and layer of every operation. In a foreign trace, all-reduces repeat with the
//! layers, and the kernels between two of them form a module.

use std::collections::HashMap;
use std::ops::Range;

use rayon::prelude::*;

use super::foreign::foreign;
use super::stretch::{Kernel, Launches, Release, Stretch};
use super::wire::middle;
use crate::analysis::Arrived;
use base::error::{Error, Result};
use base::text::counted;
use plan::{Architecture, Lane, Phase};
use trace::overlap::StepKey;
use trace::{Span, Trace};

/// Selection of the steps to look for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// Number of layers, if the trace leaves it open.
    pub layers: Option<u32>,
    /// Phase in a run of our own; decode by default.
    pub phase: Option<Phase>,
    /// Only this step, from 0, in the order of discovery.
    pub step: Option<u32>,
    /// Only the step with this key, in a run of our own.
    pub key: Option<StepKey>,
}

/// One all-reduce of a step, over all ranks (ns).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reduced {
    /// Time from the last rank's arrival to the end.
    pub transfer: i64,
    /// Mean wait of the ranks for the last one.
    pub waited: i64,
}

/// Times of one rank in a step.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OfRank {
    /// Start, relative to the step's start (ns).
    pub begin: i64,
    /// Work before the first module up to an extra all-reduce (a sharded embedding).
    pub lead: Stretch,
    /// Attention and MLP of every layer alternately, each up to its all-reduce.
    pub modules: Vec<Stretch>,
    /// Work after the last all-reduce.
    pub head: Stretch,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    pub number: u32,
    /// Key of the first span.
    pub key: StepKey,
    /// Start, and start of the next step or, for the last step, its end (ns of the trace).
    pub time: (i64, i64),
    /// Launch of the first kernel (ns of the trace), if recorded.
    pub launched: Option<i64>,
    /// Gap at the end until the next step's CUDA graph is launched (ns).
    pub between_graphs: i64,
    pub ranks: Vec<OfRank>,
    /// All-reduces of attention and MLP of every layer, alternately.
    pub reduces: Vec<Reduced>,
}

impl Step {
    /// Extends the step to the start of the next one (ns of the trace). `launched` is the launch time of the
    /// next step if both replay CUDA graphs.
    fn end_at(&mut self, begins: i64, launched: Option<i64>) {
        self.between_graphs = launched.map_or(0, |at| (at.min(begins) - self.time.1).max(0));
        self.time.1 = begins;
    }
}

#[derive(Clone, Debug)]
pub struct Steps {
    pub layers: u32,
    /// Number of ranks with spans.
    pub ranks: u32,
    pub phase: Phase,
    pub all_reduce: String,
    pub has_launches: bool,
    pub has_graphs: bool,
    /// Assumptions and omissions, one sentence each.
    pub notes: Vec<String>,
    /// Number of steps found; at most 64 are kept.
    pub(super) found: usize,
    pub(super) steps: Vec<Step>,
}

/// Spans of one rank, sorted by start.
pub(super) struct Spans<'a> {
    pub rank: u32,
    pub spans: Vec<&'a Span>,
    /// Indices of the all-reduces in `spans`.
    pub reduces: Vec<usize>,
    launches: Launches,
    /// Clock correction to add to the rank's times (ns).
    offset: i64,
}

impl Steps {
    /// Finds the steps of a trace.
    ///
    /// # Errors
    ///
    /// Returns an error that describes the findings if there is no all-reduce, no repetition, another number
    /// of layers than requested, only one all-reduce per layer, or another architecture than standard.
    pub fn of(trace: &Trace, asked: &Asked) -> Result<Self> {
        let mut steps = match &trace.meta.spec {
            Some(_) => own(trace, asked)?,
            None => foreign(trace, asked)?,
        };
        if let Some(wanted) = asked.step {
            let found = steps.found;
            steps.steps.retain(|step| step.number == wanted);
            if steps.steps.is_empty() {
                return Err(no_step(wanted, found));
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

    /// Number, start and end of each step, in order (ns of the trace).
    pub fn times(&self) -> impl Iterator<Item = (u32, i64, i64)> {
        self.steps.iter().map(|step| (step.number, step.time.0, step.time.1))
    }

    /// Median transfer time of an all-reduce, from the last rank's arrival (ns).
    pub(super) fn usual_transfer(&self) -> i64 {
        middle(self.steps.iter().flat_map(|step| &step.reduces).map(|reduced| reduced.transfer))
    }

    /// Share of the steps' time in which a rank waited for the host (0 to 1).
    pub fn host_share(&self) -> f64 {
        self.share(|stretch| stretch.host)
    }

    /// Part of [`Self::host_share`] between CUDA graphs.
    pub fn between_graphs_share(&self) -> f64 {
        self.share(|stretch| stretch.between_graphs)
    }

    /// Share of the steps' time in a part of their stretches plus the gaps between CUDA graphs of two steps.
    fn share(&self, part: fn(&Stretch) -> i64) -> f64 {
        let (mut host, mut all) = (0i64, 0i64);
        for step in &self.steps {
            for rank in &step.ranks {
                let of = [&rank.lead, &rank.head].into_iter().chain(&rank.modules);
                host += step.between_graphs + of.map(part).sum::<i64>();
                all += step.time.1 - step.time.0;
            }
        }
        if all > 0 { host as f64 / all as f64 } else { 0.0 }
    }
}

/// True for an all-reduce; with `group`, only of that process group.
pub(super) fn is_all_reduce(trace: &Trace, span: &Span, group: Option<u32>) -> bool {
    let operation = trace.operations.get(span.operation as usize);
    span.lane == Lane::Comm
        && operation.is_some_and(|operation| {
            let of = || operation.collective.as_ref().and_then(|info| info.group);
            operation.kind == "all_reduce" && (group.is_none() || of() == group)
        })
}

/// Error for a trace whose experts exchange tokens instead of sums; `None` without all-to-alls.
pub(super) fn all_to_alls(trace: &Trace) -> Option<Error> {
    let is_exchange = |kind: &str| matches!(kind, "all_to_all" | "dispatch" | "combine");
    let of = |span: &&Span| {
        let operation = trace.operations.get(span.operation as usize);
        operation.is_some_and(|operation| is_exchange(&operation.kind))
    };
    let exchanges = trace.spans.iter().filter(|span| span.lane == Lane::Comm).filter(of);
    let count = exchanges.filter(|span| span.rank == trace.spans[0].rank).count();
    (count > 0).then(|| {
        Error::input_help(
            format!(
                "the experts of this trace exchange tokens: rank {} has {} (dispatch and combine) and no all-reduce; \
                 rewire needs layers that end in all-reduces",
                trace.spans[0].rank,
                counted(count, "all-to-all"),
            ),
            "record the engine with tensor-parallel attention instead of data-parallel, or simulate this one: \
             `ladderscope whatif --dp N --ep N`",
        )
    })
}

/// True for an operation that adds a sum to the residual or normalizes it.
fn leads(trace: &Trace, span: &Span) -> bool {
    let Some(operation) = trace.operations.get(span.operation as usize) else { return false };
    match trace.meta.spec {
        Some(_) => matches!(operation.kind.as_str(), "add" | "norm" | "add_norm" | "select_last"),
        // copies out of a collective's buffer, sums and norms; the first matrix product ends them
        None => {
            let name = operation.name.to_ascii_lowercase();
            span.lane == Lane::Compute
                && ["memcpy", "norm", "add"].iter().any(|word| name.contains(word))
                && !["gemm", "nvjet", "cutlass", "matmul"].iter().any(|word| name.contains(word))
        }
    }
}

fn own(trace: &Trace, asked: &Asked) -> Result<Steps> {
    let Some(spec) = &trace.meta.spec else { return Err(Error::failed("the trace has no spec")) };
    if spec.architecture != Architecture::Standard
        || spec.micro_batches > 1
        || spec.sequence_parallel
        || spec.pp > 1
    {
        return Err(Error::input_help(
            format!("this run is {}, but rewire needs a run of standard", spec.label()),
            "run the same cell with --architecture standard and --pp 1 and record its trace",
        ));
    }
    if let Some(problem) = all_to_alls(trace).filter(|_| spec.dp > 1) {
        return Err(problem);
    }
    if spec.tp < 2 {
        return Err(Error::input("the run has one rank, so no communication to rewire"));
    }
    let phase = asked.phase.unwrap_or(Phase::Decode);
    let layers = trace.operations.iter().filter_map(|operation| operation.layer).max();
    let layers = layers.map_or(0, |last| last + 1);
    if let Some(wanted) = asked.layers.filter(|wanted| *wanted != layers) {
        return Err(Error::input(format!("--layers {wanted}: the run has {layers}")));
    }
    let places = steps_of(trace, phase);
    let found = places.len();
    let wanted = |(at, (key, _)): &(usize, &(StepKey, Range<usize>))| {
        asked.key.is_none_or(|asked| asked == *key) && asked.step.is_none_or(|step| step as usize == *at)
    };
    let chosen: Vec<usize> = places.iter().enumerate().filter(wanted).map(|(at, _)| at).collect();
    let begin = |range: &Range<usize>| trace.spans[range.clone()].iter().map(|s| s.start_ns).min();
    let of = |range: &Range<usize>| ranks(trace, &trace.spans[range.clone()], &HashMap::new(), None);
    let one = |at: usize| -> Option<Step> {
        let (key, range) = &places[at];
        let ranks = of(range);
        let whole: Vec<Range<usize>> = ranks.iter().map(|rank| 0..rank.spans.len()).collect();
        let mut step = step(trace, &ranks, &whole, at as u32, layers)?;
        // a step ends at the start of the next one in its generation
        let next = places.get(at + 1).filter(|(next, _)| next.sample == key.sample);
        if let Some(begins) = next.and_then(|(_, range)| begin(range)) {
            step.end_at(begins, None);
        }
        Some(step)
    };
    if let (true, Some(step)) = (chosen.is_empty(), asked.step) {
        return Err(no_step(step, found));
    }
    let steps: Vec<Step> = spread(&chosen).into_par_iter().filter_map(one).collect();
    let Some(first) = steps.first() else { return Err(unlike(layers, 0)) };
    let ranks = of(&places[first.number as usize].1);
    Ok(Steps { found, ..assembled(trace, &ranks, steps, layers, phase) })
}

fn no_step(wanted: u32, found: usize) -> Error {
    Error::input(format!("no step {wanted}: {} found, counted from 0", counted(found, "step")))
}

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
        let key = StepKey::of(first);
        let range = key.spans(trace);
        from = range.end.max(from + 1);
        if key.phase == phase {
            steps.push((key, range));
        }
    }
    steps
}

pub(super) fn unlike(layers: u32, found: usize) -> Error {
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
    ranks: &[Spans<'_>],
    steps: Vec<Step>,
    layers: u32,
    phase: Phase,
) -> Steps {
    let first = &ranks[0];
    let mut counts: HashMap<u32, usize> = HashMap::new();
    first.reduces.iter().for_each(|at| *counts.entry(first.spans[*at].operation).or_default() += 1);
    let usual =
        counts.into_iter().max_by_key(|(operation, count)| (*count, std::cmp::Reverse(*operation)));
    let name = usual.and_then(|(operation, _)| trace.operations.get(operation as usize));
    Steps {
        has_launches: ranks.iter().any(|rank| rank.launches.are_recorded()),
        has_graphs: ranks.iter().any(|rank| !rank.launches.replays.is_empty()),
        layers,
        ranks: ranks.len() as u32,
        phase,
        all_reduce: name.map_or(String::new(), |operation| match trace.meta.spec {
            Some(_) => operation.kind.clone(),
            None => operation.name.clone(),
        }),
        notes: Vec::new(),
        found: steps.len(),
        steps,
    }
}

/// Sorted spans per rank, with the indices of the all-reduces (of one process group, if given).
pub(super) fn ranks<'a>(
    trace: &'a Trace,
    spans: &'a [Span],
    offsets: &HashMap<u32, i64>,
    group: Option<u32>,
) -> Vec<Spans<'a>> {
    let mut by_rank: HashMap<u32, Vec<&Span>> = HashMap::new();
    spans.iter().for_each(|span| by_rank.entry(span.rank).or_default().push(span));
    let is_own = trace.meta.spec.is_some();
    let mut ranks: Vec<Spans<'_>> = by_rank
        .into_par_iter()
        .map(|(rank, mut spans)| {
            spans.sort_by_key(|span| (span.start_ns, span.end_ns));
            let reduces =
                (0..spans.len()).filter(|at| is_all_reduce(trace, spans[*at], group)).collect();
            let launches = if is_own { Launches::default() } else { Launches::of(&spans) };
            Spans { rank, spans, reduces, launches, offset: offsets.get(&rank).copied().unwrap_or(0) }
        })
        .collect();
    ranks.sort_by_key(|rank| rank.rank);
    ranks
}

impl Spans<'_> {
    fn kernel(&self, trace: &Trace, span: &Span) -> Kernel {
        Kernel {
            start: span.start_ns + self.offset,
            end: span.end_ns.max(span.start_ns) + self.offset,
            released: self.released(span),
            leads: leads(trace, span),
        }
    }

    fn released(&self, span: &Span) -> Option<Release> {
        let release = self.launches.release(span)?;
        Some(Release { at: release.at + self.offset, ..release })
    }
}

/// Builds one step over all ranks; `None` if it has too few all-reduces.
pub(super) fn step(
    trace: &Trace,
    ranks: &[Spans<'_>],
    places: &[Range<usize>],
    number: u32,
    layers: u32,
) -> Option<Step> {
    let modules = 2 * layers as usize;
    let of_step = |(rank, places): (&Spans<'_>, &Range<usize>)| -> Option<Vec<usize>> {
        let from = rank.reduces.partition_point(|at| *at < places.start);
        let to = rank.reduces.partition_point(|at| *at < places.end);
        (to - from >= modules).then(|| rank.reduces[from..to].to_vec())
    };
    let reduces: Vec<Vec<usize>> = ranks.iter().zip(places).map(of_step).collect::<Option<_>>()?;
    let first = |(rank, places): (&Spans<'_>, &Range<usize>)| {
        rank.spans[places.clone()].first().map(|span| span.start_ns + rank.offset)
    };
    let begins: Vec<i64> = ranks.iter().zip(places).map(first).collect::<Option<_>>()?;
    let begin = begins.iter().copied().min()?;
    let first = ranks.iter().zip(places).zip(&begins).find(|(_, begun)| **begun == begin);
    let launched = first.and_then(|((rank, places), _)| {
        let release = rank.released(rank.spans[places.start])?;
        Some(release.at).filter(|_| !rank.launches.replays.is_empty())
    });
    let key = StepKey::of(ranks.first()?.spans[places.first()?.start]);
    let end = ranks
        .iter()
        .zip(places)
        .flat_map(|(rank, places)| {
            rank.spans[places.clone()].iter().map(|span| span.end_ns + rank.offset)
        })
        .max()?;
    let mut of_ranks = Vec::with_capacity(ranks.len());
    for (((rank, places), reduces), begun) in ranks.iter().zip(places).zip(&reduces).zip(&begins) {
        let kernels = |from: usize, to: usize| {
            rank.spans[from..to].iter().map(|span| rank.kernel(trace, span)).collect::<Vec<_>>()
        };
        let extra = reduces.len() - modules;
        let (mut from, mut at) = (places.start, *begun);
        let mut lead = Stretch::default();
        if let Some(last) = extra.checked_sub(1).map(|last| reduces[last]) {
            let end = rank.spans[last].end_ns + rank.offset;
            lead = Stretch::of(kernels(from, last + 1), (at, end), None, begin);
            (from, at) = (last + 1, end);
        }
        let mut stretches = Vec::with_capacity(modules);
        for &reduce in &reduces[extra..] {
            let span = rank.spans[reduce];
            let to = span.start_ns + rank.offset;
            stretches.push(Stretch::of(kernels(from, reduce), (at, to), rank.released(span), begin));
            (from, at) = (reduce + 1, span.end_ns + rank.offset);
        }
        let rest = kernels(from, places.end);
        let last = rest.iter().map(|kernel| kernel.end).max().unwrap_or(at).max(at);
        let head = Stretch::of(rest, (at, last), None, begin);
        of_ranks.push(OfRank { begin: begun - begin, lead, modules: stretches, head });
    }
    let reduced = |nth: usize| {
        let of = ranks.iter().zip(&reduces);
        let parts: Vec<(&Span, i64)> =
            of.map(|(rank, of)| (rank.spans[of[of.len() - modules + nth]], rank.offset)).collect();
        // use the backend's record: an emulated link starts when the last rank arrives
        let arrived = Arrived::of(&parts, trace.meta.spec.is_some());
        Reduced { transfer: arrived.mean_moved(), waited: arrived.mean_waited() }
    };
    Some(Step {
        number,
        key,
        time: (begin, end),
        launched,
        between_graphs: 0,
        reduces: (0..modules).map(reduced).collect(),
        ranks: of_ranks,
    })
}

/// Extends every step to the start of the next one, if the two are adjacent in the trace.
pub(super) fn follow(steps: &mut [Step], follows: impl Fn(&Step, &Step) -> bool) {
    for at in 1..steps.len() {
        let (before, next) = (&steps[at - 1], &steps[at]);
        if next.number == before.number + 1 && next.time.0 >= before.time.0 && follows(before, next) {
            let (begins, launched) = (next.time.0, next.launched);
            steps[at - 1].end_at(begins, launched);
        }
    }
}
