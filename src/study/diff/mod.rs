//! Comparison of two traces of one engine: P2P on and off, two versions, a flag.
//!
//! This file pairs the steps of the traces, also of one without markers, whose steps are inferred, and finds the parts,
//! layers and operations that became slower, per rank and step. A step lasts until the next one begins, as in `overlap`
//! and `rewire` ([`StepTime`]). `gate` has limits on the change, `replaced` pairs operations that took the place of others,
//! `prediction` has stored predictions and their error once the change was measured, `tables` the tables.

mod gate;
mod prediction;
mod replaced;
mod tables;

pub use gate::judge_diff;
pub use prediction::{PredictedRow, PredictionCheck, StoredPrediction, checked, checks_table};
pub use tables::{layers_table, operations_table, parts_table};

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use rayon::prelude::*;
use serde::Serialize;

use self::replaced::{Replacement, most_changed, replacements};
use crate::analysis::{
    ComputeTimes, LayerRow, OperationDifference, OperationDifferences, OperationShare, StepAlignment,
    StepSummary, StepTime, TraceReport, UNKNOWN_WORK, clocks, layers_of_steps, operation_differences,
    step_windows, trace_report,
};
use crate::rewire::{RecordedSteps, StepSelection};
use base::error::{Error, Result};
use base::statistics::{interval95, mean, resample_pools};
use base::text::{counted, latency};
use plan::Phase;
use table::Provenance;
use trace::overlap::intervals::TimeInterval;
use trace::overlap::{Selection, StepKey};
use trace::{NO_STEP, Span, Trace, TraceMeta, is_host_call};

/// Maximum pairs of steps whose operations are compared, evenly spread.
const MOST_PAIRS: usize = 256;

/// Characters of a name in a sentence.
const NAME: usize = 48;

/// Change of the step latency below which nothing is claimed (%), if no interval decides.
const LITTLE_PCT: f64 = 1.0;

/// Paired steps of one trace. Times per rank and step, averaged over ranks, then over steps (us).
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct SideSummary {
    /// Run or file.
    pub name: String,
    pub provenance: Provenance,
    pub ranks: u32,
    /// Steps of the trace, paired or not.
    pub steps: usize,
    /// Time from the start of a step until the next one begins (us).
    pub step_us: f64,
    pub comm_us: f64,
    pub exposed_us: f64,
    pub compute_us: f64,
    /// Idle time, including the gap before the next step (us).
    #[serde(rename = "idle_us")]
    pub idle_and_gap_us: f64,
    /// Time of work that was launched outside of the recorded steps; it counts in the step in whose time it runs (us).
    pub outside_us: f64,
    pub overlap_pct: Option<f64>,
}

/// Part of a step; the parts add up to the step.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ChangedPart {
    /// `compute`, `exposed communication`, `copies and other`, `idle` (between kernels), `gap to the next step`.
    pub part: &'static str,
    pub a_us: f64,
    pub b_us: f64,
    /// Second minus first (us).
    pub delta_us: f64,
    /// Share of the change of the step (%); null if the step hardly changed.
    pub explains_pct: Option<f64>,
}

/// Layer of the model, in both traces. Times per rank and step (us).
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ChangedLayer {
    /// Null for operations outside of layers.
    pub layer: Option<u32>,
    pub a_compute_us: f64,
    pub b_compute_us: f64,
    pub a_exposed_us: f64,
    pub b_exposed_us: f64,
    /// Second minus first, of compute and exposed communication (us).
    pub delta_us: f64,
}

/// An operation in one trace, per rank and step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct PerStep {
    pub count: f64,
    pub us: f64,
    /// Exposed part of communication (us).
    pub exposed_us: f64,
    /// Waiting for the last rank (us); null for computation, and if no arrival is known.
    pub waited_us: Option<f64>,
}

/// Operations of one name and place in both traces.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ChangedOperation {
    /// Name, with `L*` for the layer, and the framework's operator if both traces record it.
    pub name: String,
    /// `compute` or `comm`.
    pub lane: &'static str,
    /// Null if only the second trace has it.
    pub a: Option<PerStep>,
    /// Null if only the first trace has it.
    pub b: Option<PerStep>,
    /// Second minus first (us).
    pub delta_us: f64,
    /// Part of the difference that delays the step: exposed time of communication, all time of compute (us).
    pub delaying_us: f64,
}

/// Rule that paired the steps of the two traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StepPairing {
    Number,
    /// The traces number their steps differently.
    Order,
    /// One trace has no steps.
    #[serde(rename = "whole trace")]
    WholeTrace,
}

#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct TraceDiff {
    pub a: SideSummary,
    pub b: SideSummary,
    /// Phase of the compared steps; null if the traces do not both tell prefill from decode.
    pub phase: Option<Phase>,
    /// Paired steps.
    pub pairs: usize,
    pub paired_by: StepPairing,
    /// True if operations are matched by the framework's operator as well as by name.
    pub by_operator: bool,
    /// Change of the step latency (%).
    pub change_pct: f64,
    /// 95 % interval of the change, resampled over pairs; null with fewer than 6 pairs and for simulations.
    pub change_pct_ci95: Option<[f64; 2]>,
    /// Parts of the step, the largest change first.
    pub parts: Vec<ChangedPart>,
    /// Layers in order; empty if the traces name none.
    pub layers: Vec<ChangedLayer>,
    /// Operations, those that delay the step most first.
    pub operations: Vec<ChangedOperation>,
    /// Doubts about the comparison, one sentence each.
    pub warnings: Vec<String>,
    pub headline: String,
    /// Operations of the first trace whose place another one has in the second.
    #[serde(skip)]
    replaced: Vec<Replacement>,
    /// Times of paired steps: first, second.
    #[serde(skip)]
    steps: Vec<[StepTime; 2]>,
    /// True if steps were left out because their end is unknown: the next one was not recorded.
    pub leaves_out_last: bool,
    /// True if the importer doubts the GPU work of a trace.
    #[serde(skip)]
    is_doubtful: bool,
}

/// Compares two traces, named for people.
///
/// # Errors
///
/// Returns an input error if a trace is no evidence, or the traces have no steps in common.
pub fn trace_diff(traces: [(&Trace, &str); 2]) -> Result<TraceDiff> {
    for (trace, name) in traces {
        trace.meta.provenance.require_evidence(name)?;
    }
    let marked = traces.map(|(trace, _)| with_steps(trace));
    // of an imported trace without phases, everything
    let defaults = [&marked[0], &marked[1]].map(|trace| Selection::default_of(trace).phase);
    let phase = if defaults[0] == defaults[1] { defaults[0] } else { None };
    let selection = Selection { phase, ..Selection::default() };
    let reports = [&marked[0], &marked[1]].map(|trace| trace_report(trace, &selection));
    let PairedSteps { keys, times: steps, paired_by, leaves_out_last, guessed } =
        PairedSteps::new(&marked, &reports)?;
    let layers = layers([0, 1].map(|at| {
        let paired: BTreeSet<StepKey> = keys.iter().map(|pair| pair[at]).collect();
        let is_part = paired_by != StepPairing::WholeTrace && paired.len() < reports[at].steps.len();
        match is_part {
            true => (layers_of_steps(&marked[at], &paired), paired.len()),
            false => (reports[at].layers.clone(), paired.len()),
        }
    }));
    // work outside of steps is compared in the step before it, which it delays
    let whole_steps = marked.map(|trace| match has_outside(&trace) {
        true => {
            let windows = step_windows(&trace);
            Cow::Owned(with_keys(trace.into_owned(), &windows))
        }
        false => trace,
    });
    let (placed, by_operator) = with_places(whole_steps);
    let operations = operations([&placed[0], &placed[1]], &keys);
    let replaced = replacements([&placed[0], &placed[1]], keys[0], &operations);
    let [a, b] = [0, 1].map(|at| side(at, traces[at], &reports[at], &steps));
    let is_simulated = traces.iter().any(|(trace, _)| trace.meta.provenance == Provenance::Simulated);
    let delta = b.step_us - a.step_us;
    let change_pct = 100.0 * (b.step_us / a.step_us - 1.0);
    let change_pct_ci95 = interval(&steps, is_simulated, |s| s.step_us, |a, b| 100.0 * (b / a - 1.0));
    let mut diff = TraceDiff {
        phase,
        pairs: steps.len(),
        paired_by,
        leaves_out_last,
        by_operator,
        change_pct,
        change_pct_ci95,
        parts: parts(&steps, delta),
        layers,
        operations,
        replaced,
        warnings: warnings(traces, [&a, &b]),
        headline: String::new(),
        is_doubtful: traces.iter().any(|(trace, _)| {
            trace.meta.import.as_ref().is_some_and(|import| import.doubted_work().next().is_some())
        }),
        a,
        b,
        steps,
    };
    if let Some(at) = guessed {
        let unknown = traces[at].1;
        diff.warnings.push(format!(
            "{unknown}: step names do not say what the steps do; compared with decode steps of any batch size"
        ));
    }
    diff.warnings.extend(outlier(&diff.steps, &keys));
    diff.headline = diff.in_words();
    Ok(diff)
}

/// Steps of two traces that do the same work.
struct PairedSteps {
    keys: Vec<[StepKey; 2]>,
    times: Vec<[StepTime; 2]>,
    paired_by: StepPairing,
    leaves_out_last: bool,
    /// Index of the trace whose steps of unknown work are taken as decode steps.
    guessed: Option<usize>,
}

impl PairedSteps {
    fn new(traces: &[Cow<'_, Trace>; 2], reports: &[TraceReport; 2]) -> Result<Self> {
        let [steps_a, steps_b] = [&reports[0].steps, &reports[1].steps];
        if steps_a.is_empty() || steps_b.is_empty() {
            let [a, b] = [0, 1].map(|at| whole(&traces[at], &reports[at].overlap));
            return Ok(Self {
                keys: vec![[StepKey { sample: 0, phase: Phase::Decode, step: NO_STEP }; 2]],
                times: vec![[a?, b?]],
                paired_by: StepPairing::WholeTrace,
                leaves_out_last: false,
                guessed: None,
            });
        }
        // steps of unknown work are taken as decode steps if the other trace says what its steps do
        let is_unknown =
            [steps_a, steps_b].map(|steps| steps.iter().any(|step| step.phase == UNKNOWN_WORK));
        let is_guess = is_unknown[0] != is_unknown[1];
        let kinds = |steps: &[StepSummary]| -> Vec<(StepKey, (&'static str, Option<u32>))> {
            let kind = |step: &StepSummary| match is_guess {
                true if step.phase == UNKNOWN_WORK => (Phase::Decode.as_str(), None),
                true => (step.phase, None),
                false => (step.phase, step.batch),
            };
            steps.iter().map(|step| (step.key, kind(step))).collect()
        };
        let StepAlignment { mut pairs, by_order } = StepAlignment::new(&kinds(steps_a), &kinds(steps_b));
        // samples of one trace may share a step of the other
        let mut seen = BTreeSet::new();
        pairs.retain(|pair| seen.insert(pair.1));
        if pairs.is_empty() {
            return Err(no_common_work(steps_a, steps_b));
        }
        let found = pairs.len();
        let is_ended =
            |pair: &(usize, usize)| steps_a[pair.0].time.until_next && steps_b[pair.1].time.until_next;
        // the latency of a step is known if the next one was recorded
        if pairs.iter().any(is_ended) {
            pairs.retain(is_ended);
        }
        Ok(Self {
            keys: pairs.iter().map(|(a, b)| [steps_a[*a].key, steps_b[*b].key]).collect(),
            times: pairs.iter().map(|(a, b)| [steps_a[*a].time, steps_b[*b].time]).collect(),
            paired_by: if by_order { StepPairing::Order } else { StepPairing::Number },
            leaves_out_last: pairs.len() < found,
            guessed: is_guess.then_some(usize::from(is_unknown[1])),
        })
    }
}

fn no_common_work(a: &[StepSummary], b: &[StepSummary]) -> Error {
    let what = |steps: &[StepSummary]| {
        let batch = |step: &StepSummary| step.batch.map_or(String::new(), |n| format!(" of batch {n}"));
        let kinds: BTreeSet<String> =
            steps.iter().map(|step| format!("{}{}", step.phase, batch(step))).collect();
        format!("{} ({})", counted(steps.len(), "step"), Vec::from_iter(kinds).join(", "))
    };
    Error::input_help(
        format!("no steps do the same work: {} against {}", what(a), what(b)),
        "record both with the same requests and batch size; `ladderscope overlap TRACE --by step` lists steps",
    )
}

fn side(
    at: usize,
    (trace, name): (&Trace, &str),
    report: &TraceReport,
    steps: &[[StepTime; 2]],
) -> SideSummary {
    let mean_of = |part: fn(&StepTime) -> f64| average(steps, at, part);
    let (comm_us, exposed_us) = (mean_of(|s| s.comm_us), mean_of(|s| s.exposed_us));
    SideSummary {
        name: name.to_owned(),
        provenance: trace.meta.provenance,
        ranks: report.overlap.ranks.len() as u32,
        steps: report.steps.len(),
        step_us: mean_of(|s| s.step_us),
        comm_us,
        exposed_us,
        compute_us: mean_of(|s| s.compute_us),
        idle_and_gap_us: mean_of(StepTime::idle_and_gap_us),
        outside_us: mean_of(|s| s.outside_us),
        overlap_pct: table::overlap_pct(exposed_us, comm_us),
    }
}

/// Factor by which the change of one pair of steps must exceed that of all others together, and of each other: separates a
/// disturbed step from a change that several share. Chosen so that it is more than two thirds of the whole change.
const ALONE: f64 = 2.0;

/// Warning about one pair of steps that explains most of the change.
fn outlier(steps: &[[StepTime; 2]], keys: &[[StepKey; 2]]) -> Option<String> {
    let deltas: Vec<f64> = steps.iter().map(|[a, b]| b.step_us - a.step_us).collect();
    let (at, most) = deltas.iter().enumerate().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))?;
    let rest = deltas.iter().sum::<f64>() - most;
    let others = deltas.iter().enumerate().filter(|(other, _)| *other != at);
    let next = others.map(|(_, delta)| delta.abs()).fold(0.0, f64::max);
    let rest_before: f64 = steps.iter().map(|[a, _]| a.step_us).sum::<f64>() - steps[at][0].step_us;
    // the others may cancel out
    let is_alone = most.abs() > ALONE * rest.abs().max(next);
    let is_outlier = steps.len() >= 3 && is_alone && keys[at][0].step != NO_STEP;
    let is_large = 100.0 * most.abs() >= LITTLE_PCT * (rest_before + steps[at][0].step_us);
    (is_outlier && is_large && rest_before > 0.0).then(|| {
        format!(
            "step {} ({:+.1} %) alone explains most of the change; the other {}: {:+.1} %",
            keys[at][0].step,
            100.0 * most / steps[at][0].step_us,
            counted(steps.len() - 1, "pair"),
            100.0 * rest / rest_before
        )
    })
}

/// A trace without steps as one step.
fn whole(trace: &Trace, overlap: &trace::overlap::OverlapReport) -> Result<StepTime> {
    if trace.spans.iter().any(|span| span.step != NO_STEP) {
        return Err(Error::input_help(
            "one trace has steps and the other has none",
            "record both with the profiler's steps, or with NVTX ranges around them",
        ));
    }
    Ok(StepTime::of_whole(&overlap.all, overlap.ranks.len().max(1) as f64))
}

fn average(steps: &[[StepTime; 2]], side: usize, of: fn(&StepTime) -> f64) -> f64 {
    mean(&steps.iter().map(|pair| of(&pair[side])).collect::<Vec<_>>()).unwrap_or(0.0)
}

/// 95 % interval of a function of the means over paired steps. `None` for simulations, which repeat exactly, and for
/// fewer than 6 pairs.
fn interval(
    steps: &[[StepTime; 2]],
    is_simulated: bool,
    value: fn(&StepTime) -> f64,
    change: impl Fn(f64, f64) -> f64,
) -> Option<[f64; 2]> {
    if is_simulated {
        return None;
    }
    // a round a pair keeps the pairs together
    let side = |at: usize| steps.iter().map(|pair| vec![value(&pair[at])]).collect::<Vec<_>>();
    let (a, b) = (side(0), side(1));
    let statistic = |pools: &mut [Vec<f64>]| {
        change(mean(&pools[0]).unwrap_or(f64::NAN), mean(&pools[1]).unwrap_or(f64::NAN))
    };
    resample_pools(&[&a, &b], statistic).and_then(interval95)
}

/// Name and value of a number of a step, in us unless its list says otherwise.
type StepNumber = (&'static str, fn(&StepTime) -> f64);

/// Parts of a step, which add up to it.
const PARTS: [StepNumber; 5] = [
    ("compute", |s| s.compute_us),
    ("exposed communication", |s| s.exposed_us),
    ("copies and other", |s| s.other_us),
    ("idle", |s| s.idle_us),
    ("gap to the next step", |s| s.gap_us),
];

fn parts(steps: &[[StepTime; 2]], delta: f64) -> Vec<ChangedPart> {
    let changed = delta.abs() * 100.0 > average(steps, 0, |s| s.step_us) * 0.5;
    let part = |(part, value): StepNumber| {
        let (a_us, b_us) = (average(steps, 0, value), average(steps, 1, value));
        let explains_pct = changed.then(|| 100.0 * (b_us - a_us) / delta);
        ChangedPart { part, a_us, b_us, delta_us: b_us - a_us, explains_pct }
    };
    let mut parts: Vec<ChangedPart> = PARTS.into_iter().map(part).collect();
    // differences of sums are never exactly 0
    parts.retain(|part| part.a_us.abs() > 1e-6 || part.b_us.abs() > 1e-6);
    parts.sort_by(|x, y| y.delta_us.abs().total_cmp(&x.delta_us.abs()));
    parts
}

/// Compares the layers that both traces have, given their rows and numbers of steps.
fn layers([(rows_a, steps_a), (rows_b, steps_b)]: [(Vec<LayerRow>, usize); 2]) -> Vec<ChangedLayer> {
    let both = rows_a.iter().filter_map(|a| {
        let layer = a.layer;
        let b = rows_b.iter().find(|row| row.layer == layer)?;
        let each = |us: f64, steps: usize| us / steps as f64;
        let [a_compute_us, b_compute_us] = [each(a.compute_us, steps_a), each(b.compute_us, steps_b)];
        let [a_exposed_us, b_exposed_us] = [each(a.exposed_us, steps_a), each(b.exposed_us, steps_b)];
        let delta_us = b_compute_us + b_exposed_us - a_compute_us - a_exposed_us;
        Some(ChangedLayer { layer, a_compute_us, b_compute_us, a_exposed_us, b_exposed_us, delta_us })
    });
    both.collect()
}

/// Operations over all pairs, by name and lane; layers are merged.
fn operations([a, b]: [&Trace; 2], steps: &[[StepKey; 2]]) -> Vec<ChangedOperation> {
    let stride = steps.len().div_ceil(MOST_PAIRS);
    let pairs: Vec<&[StepKey; 2]> = steps.iter().step_by(stride).collect();
    let ranks = [a, b].map(|trace| ranks(trace).len().max(1) as f64);
    let [a, b] = [a, b].map(ComputeTimes::from_trace);
    let compared: Vec<OperationDifferences> =
        pairs.par_iter().map(|pair| operation_differences(&a, pair[0], &b, pair[1])).collect();
    let mut sums: BTreeMap<(String, &'static str), [Option<PerStep>; 2]> = BTreeMap::new();
    for family in compared.into_iter().flat_map(|differences| differences.families) {
        let OperationDifference { name, lane, a, b, .. } = family.sum;
        let sum = sums.entry((name, lane.as_str())).or_default();
        for (at, share) in [a, b].into_iter().enumerate() {
            if let Some(share) = share {
                sum[at].get_or_insert_default().add(&share, ranks[at]);
            }
        }
    }
    let each = |sum: PerStep| {
        let n = pairs.len() as f64;
        PerStep {
            count: sum.count / n,
            us: sum.us / n,
            exposed_us: sum.exposed_us / n,
            waited_us: sum.waited_us.map(|us| us / n),
        }
    };
    let changed = |((name, lane), sums): ((String, &'static str), [Option<PerStep>; 2])| {
        let [a, b] = sums.map(|sum| sum.map(each));
        let [before, after] = [a, b].map(Option::unwrap_or_default);
        let delta_us = after.us - before.us;
        let delaying_us = if lane == "comm" { after.exposed_us - before.exposed_us } else { delta_us };
        ChangedOperation { name, lane, a, b, delta_us, delaying_us }
    };
    let mut operations: Vec<ChangedOperation> = sums.into_iter().map(changed).collect();
    let size = |one: &ChangedOperation| (one.delaying_us.abs(), one.delta_us.abs());
    operations.sort_by(|x, y| {
        let (x, y) = (size(x), size(y));
        y.0.total_cmp(&x.0).then(y.1.total_cmp(&x.1))
    });
    operations
}

impl PerStep {
    fn add(&mut self, share: &OperationShare, ranks: f64) {
        self.count += share.count as f64 / ranks;
        self.us += share.us;
        self.exposed_us += share.exposed_us;
        let waits = [self.waited_us, share.peer_wait_us].into_iter().flatten();
        self.waited_us = waits.reduce(|a, b| a + b);
    }
}

fn warnings(traces: [(&Trace, &str); 2], sides: [&SideSummary; 2]) -> Vec<String> {
    let [a, b] = sides;
    let mut warnings = Vec::new();
    if a.ranks != b.ranks {
        warnings.push(format!("the traces have {} and {} ranks", a.ranks, b.ranks));
    }
    if a.provenance != b.provenance {
        warnings.push(format!("the first trace is {}, the second {}", a.provenance, b.provenance));
    }
    let recorders = traces.map(|(trace, _)| trace.meta.recorder.as_str());
    if recorders[0] != recorders[1] && !recorders.contains(&"sim") {
        let [a, b] = recorders;
        warnings.push(format!("recorded by {a} and {b}, which time operations differently"));
    }
    for side in [a, b].into_iter().filter(|side| side.outside_us > 0.0) {
        warnings.push(format!(
            "{}: kernels of {} per step were launched outside of the recorded steps; they count in the step in whose time \
             they run",
            side.name,
            latency(side.outside_us)
        ));
    }
    for (trace, name) in traces {
        let doubts = trace.meta.import.iter().flat_map(|import| &import.doubts);
        warnings.extend(doubts.map(|doubt| format!("{name}: {}", doubt.sentence)));
    }
    warnings
}

impl TraceDiff {
    /// True if the change of the step latency is clear: its interval excludes 0, or it exceeds 1 % without one.
    pub fn is_changed(&self) -> bool {
        match self.change_pct_ci95 {
            Some([low, high]) => low > 0.0 || high < 0.0,
            None => self.change_pct.abs() >= LITTLE_PCT,
        }
    }

    fn in_words(&self) -> String {
        let (a, b) = (&self.a, &self.b);
        let shown = |[low, high]: [f64; 2]| format!(" [{low:.1}, {high:.1}]");
        let interval = self.change_pct_ci95.map_or(String::new(), shown);
        let times = format!("{} to {} per step", latency(a.step_us), latency(b.step_us));
        if !self.is_changed() {
            return format!("No clear change: {:+.1} %{interval}, {times}", self.change_pct);
        }
        let is_slower = b.step_us > a.step_us;
        let way = if is_slower { "slower" } else { "faster" };
        // as the size of the change, which has no sign
        let size = |[low, high]: [f64; 2]| if is_slower { [low, high] } else { [-high, -low] };
        let interval = self.change_pct_ci95.map(size).map_or(String::new(), shown);
        let mut words = format!("Second is {:.1} %{interval} {way}: {times}", self.change_pct.abs());
        let largest = self.parts.first().filter(|part| part.explains_pct.is_some());
        if let Some(part) = largest {
            let explains = part.explains_pct.unwrap_or(0.0);
            words += &format!(
                "; {} {} of it",
                part.part,
                match explains {
                    all if all >= 100.5 => "more than explains all".to_owned(),
                    pct => format!("explains {pct:.0} %"),
                }
            );
        }
        // an operation explains no idle time
        if largest.is_some_and(|part| ["idle", "gap to the next step"].contains(&part.part)) {
            return words;
        }
        let lane_of = |part: &ChangedPart| match part.part {
            "exposed communication" => "comm",
            _ => "compute",
        };
        let delta_us = largest.map_or(b.step_us - a.step_us, |part| part.delta_us);
        let most = most_changed(&self.operations, &self.replaced, largest.map(lane_of), delta_us);
        words += &most.map_or(String::new(), |most| format!(", most in {most}"));
        words
    }
}

/// Minimum share of spans with a known operator for it to tell kernels apart.
const KNOWN: f64 = 0.5;

/// Maximum share of a kernel's spans without an operator for the others to be told apart by theirs.
const PLACELESS: f64 = 0.1;

/// Adds step numbers to a trace without step markers, if its all-reduces repeat as those of a model do.
fn with_steps(trace: &Trace) -> Cow<'_, Trace> {
    if trace.marks_steps() {
        return Cow::Borrowed(trace);
    }
    let Ok(steps) = RecordedSteps::new(trace, &StepSelection::default()) else {
        return Cow::Borrowed(trace);
    };
    let (mut times, mut number, mut last) = (Vec::new(), 0, None);
    for (_, from, until) in steps.times() {
        // skipped steps leave a number out
        number += u32::from(last.is_some_and(|last| last != from));
        times.push(((from, until), StepKey { sample: 0, phase: Phase::Decode, step: number }));
        (number, last) = (number + 1, Some(until));
    }
    let clocks = clocks(trace);
    let on_clock = |rank: u32| {
        let own = |time: i64| time.saturating_sub(clocks.offset(rank));
        let times = times.iter().map(move |((from, until), key)| ((own(*from), own(*until)), *key));
        (rank, times.collect())
    };
    let mut unmarked = trace.clone();
    unmarked.spans.iter_mut().for_each(|span| span.step = NO_STEP);
    Cow::Owned(with_keys(unmarked, &ranks(trace).into_iter().map(on_clock).collect()))
}

fn ranks(trace: &Trace) -> BTreeSet<u32> {
    trace.spans.iter().map(|span| span.rank).collect()
}

/// True if a trace with steps has work outside of them.
fn has_outside(trace: &Trace) -> bool {
    let is_outside = |span: &trace::Span| span.step == NO_STEP;
    trace.spans.iter().any(is_outside) && !trace.spans.iter().all(is_outside)
}

/// Assigns work outside of steps to the step of its rank in whose window it starts.
fn with_keys(mut marked: Trace, windows: &HashMap<u32, Vec<(TimeInterval, StepKey)>>) -> Trace {
    for span in marked.spans.iter_mut().filter(|span| span.step == NO_STEP) {
        let Some(of_rank) = windows.get(&span.rank) else { continue };
        let after = of_rank.partition_point(|((from, _), _)| *from <= span.start_ns);
        let within = after.checked_sub(1).map(|at| of_rank[at]);
        if let Some((_, key)) = within.filter(|((_, until), _)| span.start_ns < *until) {
            (span.sample, span.phase, span.step) = (key.sample, key.phase, key.step);
        }
    }
    // the order of every trace: see `Trace`
    marked.spans.sort_by_key(|s| (s.sample, s.phase, s.step, s.rank, s.lane, s.start_ns));
    marked
}

/// Name of the framework's operator that launched a span; `None` for a host call such as `cudaGraphLaunch`, which
/// says nothing about the kernel's place in the model.
fn operator<'t>(meta: &'t TraceMeta, span: &Span) -> Option<&'t str> {
    let name = meta.range_names.get(span.launched.operator as usize)?;
    Some(name.as_str()).filter(|name| !is_host_call(name))
}

fn operators(trace: &Trace) -> impl Iterator<Item = Option<&str>> {
    trace.spans.iter().map(|span| operator(&trace.meta, span))
}

/// True if the framework's operators tell the kernels of this trace apart.
fn has_places(trace: &Trace) -> bool {
    let known = operators(trace).flatten().count();
    !trace.spans.is_empty() && known as f64 >= KNOWN * trace.spans.len() as f64
}

/// Splits operations by the operator that launched them: one kernel in two places becomes two operations. Kernels that
/// often lack an operator in one trace, as those of a CUDA graph, stay whole in both. True if any were split.
fn with_places(traces: [Cow<'_, Trace>; 2]) -> ([Cow<'_, Trace>; 2], bool) {
    if !traces.iter().all(|trace| has_places(trace)) {
        return (traces, false);
    }
    let placeless: HashSet<String> = traces.iter().flat_map(|trace| placeless(trace)).collect();
    let mut is_split = false;
    let mut split = |trace: Cow<'_, Trace>| {
        let mut placed = trace.into_owned();
        let operations = std::mem::take(&mut placed.operations);
        let mut known: HashMap<(u32, Option<&str>), u32> = HashMap::new();
        for span in &mut placed.spans {
            let Some(info) = operations.get(span.operation as usize) else { continue };
            let operator = operator(&placed.meta, span)
                .filter(|_| info.collective.is_none() && !placeless.contains(&info.name));
            let next = placed.operations.len() as u32;
            let operation = *known.entry((span.operation, operator)).or_insert(next);
            if operation == next {
                let mut info = info.clone();
                if let Some(operator) = operator {
                    info.name = format!("{} in {operator}", info.name);
                    is_split = true;
                }
                placed.operations.push(info);
            }
            span.operation = operation;
        }
        Cow::Owned(placed)
    };
    let placed = traces.map(&mut split);
    (placed, is_split)
}

/// Names of kernels of which more than [`PLACELESS`] lack an operator.
fn placeless(trace: &Trace) -> Vec<String> {
    // spans without an operator, and all
    let mut counts: HashMap<&str, [usize; 2]> = HashMap::new();
    for (span, operator) in trace.spans.iter().zip(operators(trace)) {
        let Some(operation) = trace.operations.get(span.operation as usize) else { continue };
        let [without, all] = counts.entry(&operation.name).or_default();
        *without += usize::from(operator.is_none());
        *all += 1;
    }
    let is_placeless =
        |(_, [without, all]): &(&str, [usize; 2])| *without as f64 > PLACELESS * *all as f64;
    counts.into_iter().filter(is_placeless).map(|(name, _)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests;
