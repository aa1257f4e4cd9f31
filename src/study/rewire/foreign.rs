//! Steps of a foreign trace without step markers, found from the repetition of collectives with the layers.
//!
//! The gap before each all-reduce of a Transformer, or before each dispatch and combine, repeats: the same kernels
//! for attention and the same for the MLP in every layer, while the gap between steps (head, sampling, embedding)
//! occurs once per step. Each gap has a signature, a hash of its kernels. Gaps with a rare signature start a step, unless
//! they belong to layers of another kind; within a step the signatures repeat with the layers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use rayon::prelude::*;

use super::split::{GapPattern, HEAD, extends, repeat, split_steps, usual_length};
use super::steps::{
    LayerCollectives, RankSpans, RecordedStep, RecordedSteps, StepSelection, assembled, find_launches,
    follow, is_all_reduce, leads, ranks, step, unlike, whole_exchanges,
};
use crate::analysis::{Clocks, clocks, mixed_steps, over_layers};
use base::error::{Error, Result};
use base::text::{counted, rank_label};
use plan::{Lane, Phase};
use trace::import::step_name;
use trace::overlap::StepKey;
use trace::overlap::intervals::{Coverage, union};
use trace::{NO_STEP, OperationInfo, OperationKind, Span, Trace};

/// Hidden share of all-reduce time above which a trace cannot be of standard layers.
const HIDDEN: f64 = 0.5;

/// Repetition of the collectives at the ends of a foreign trace's layers.
pub(super) struct LayerRepetition<'a> {
    pub ranks: Vec<RankSpans<'a>>,
    pub layers: u32,
    /// Steps as ranges of the first rank's collectives; most have `usual` many.
    pub steps: Vec<Range<usize>>,
    /// Steps with the usual number of collectives, among those with markers if these are forward passes.
    pub whole: Vec<Range<usize>>,
    pub usual: usize,
    /// True if ranks have different numbers of collectives.
    pub is_uneven: bool,
    /// True if ranks are left out: their collectives or clocks do not match the first rank's, or no step is on all ranks.
    pub is_partial: bool,
    /// Signature of the kernels before each collective of the first rank.
    gaps: Vec<u64>,
}

/// Spans whose collectives end the layers, and the process group of these.
pub(super) fn spans_of<'a>(
    trace: &'a Trace,
    ends: LayerCollectives,
    notes: &mut Vec<String>,
) -> Result<(Cow<'a, [Span]>, Option<u32>)> {
    Ok(match ends {
        LayerCollectives::AllReduces => (Cow::Borrowed(&trace.spans[..]), group(trace, notes)),
        LayerCollectives::Exchanges => (Cow::Owned(whole_exchanges(trace)?), None),
    })
}

impl<'a> LayerRepetition<'a> {
    /// Without known clocks, ranks with equally many collectives match in order.
    pub fn new(
        trace: &'a Trace,
        (spans, group): (&'a [Span], Option<u32>),
        known: Option<&Clocks>,
        ends: LayerCollectives,
        asked: Option<u32>,
    ) -> Result<Self> {
        let offsets = known.map(|clocks| clocks.offsets.clone()).unwrap_or_default();
        let mut ranks = ranks(trace, spans, &offsets, (ends, group));
        ranks.retain(|rank| !rank.reduces.is_empty());
        let Some(first) = ranks.first() else {
            if let Some(kernel) = unnamed_collective(trace) {
                return Err(Error::input_help(
                    format!("{kernel} runs any collective, so all-reduces cannot be identified"),
                    "record with PyTorch's profiler, which names each collective; if all of them are all-reduces, say so with --rules",
                ));
            }
            return Err(Error::input_help(
                "no all-reduce in this trace, so nothing to rewire",
                "`ladderscope overlap TRACE` lists its kernels; define all-reduces with --rules",
            ));
        };
        let count = first.reduces.len();
        let is_uneven = ranks.iter().any(|rank| rank.reduces.len() != count);
        let untied = match known {
            Some(clocks) => Some(clocks.untied.clone()),
            None => is_uneven.then(|| clocks(trace).untied),
        };
        let is_tied = |rank: &RankSpans<'_>| untied.as_ref().map(|untied| !untied.contains(&rank.rank));
        let found: Vec<Option<Vec<Option<usize>>>> =
            ranks.iter().map(|rank| first.matched_with(rank, is_tied(rank))).collect();
        let is_partial = found.contains(&None);
        let mut found = found.into_iter();
        ranks.retain_mut(|rank| {
            let counterparts = found.next().flatten();
            let is_matched = counterparts.is_some();
            rank.counterparts = counterparts.unwrap_or_default();
            is_matched
        });
        let first = &ranks[0];
        let (gaps, kernels) = signatures(trace, first);
        let extends = |gap: u64, common: u64| extends(&kernels[&gap], &kernels[&common]);
        let is_longer = |gap: u64, common: u64| kernels[&gap].len() >= kernels[&common].len() + HEAD;
        let starts_step = |gap: u64, first: u64, is_likely: bool| {
            let (gap, first) = (&kernels[&gap], &kernels[&first]);
            let continues = gap.len() >= first.len() + HEAD && gap.ends_with(first) && !first.is_empty();
            continues && (is_likely || gap.iter().any(|kernel| is_at_ends(trace, *kernel)))
        };
        let found = first.at_first_layers(trace);
        let found = found
            .unwrap_or_else(|| split_steps(&gaps, asked.is_some(), extends, is_longer, starts_step));
        let mark_forwards = marks_forwards(trace);
        let fits = |step: &Range<usize>| asked.is_some_and(|layers| ends.fits(layers, step.len()));
        let steps = first.at_markers(found, mark_forwards, fits);
        // the steps that fit, among those with markers if these are forward passes
        let is_marked = |step: &&Range<usize>| first.step_at(step.start).step != NO_STEP;
        let mut chosen: Vec<Range<usize>> =
            match mark_forwards && steps.iter().any(|step| is_marked(&step)) {
                true => steps.iter().filter(is_marked).cloned().collect(),
                false => steps.clone(),
            };
        if chosen.iter().any(fits) {
            chosen.retain(fits);
        }
        let usual = usual_length(&chosen);
        chosen.retain(|step| step.len() == usual);
        let layers = layers(ends, asked, usual, &steps, &gaps)?;
        let whole = chosen;
        let mut repeated = Self { ranks, layers, steps, whole, usual, is_uneven, is_partial, gaps };
        repeated.leave_ranks_without_common_steps();
        Ok(repeated)
    }

    /// Leaves out ranks that recorded none of the whole steps that the ranks before them have in common.
    fn leave_ranks_without_common_steps(&mut self) {
        let (mut common, before) = (self.whole.clone(), self.ranks.len());
        self.ranks.retain(|rank| {
            let shared: Vec<Range<usize>> =
                common.iter().filter(|step| rank.own(step).is_some()).cloned().collect();
            let is_kept = !shared.is_empty();
            if is_kept {
                common = shared;
            }
            is_kept
        });
        self.is_partial |= self.ranks.len() < before;
    }
}

/// Function of a kernel that runs any collective, as RCCL's generic one.
fn unnamed_collective(trace: &Trace) -> Option<&str> {
    let is_unnamed = |operation: &&OperationInfo| {
        operation.lane == Lane::Comm && operation.kind == OperationKind::Collective
    };
    trace.operations.iter().find(is_unnamed)?.name.split('(').next()
}

pub(super) fn foreign(trace: &Trace, asked: &StepSelection) -> Result<RecordedSteps> {
    let clocks = clocks(trace);
    let mut notes = Vec::new();
    let ends = LayerCollectives::from_trace(trace)?;
    let (spans, group) = spans_of(trace, ends, &mut notes)?;
    let mut repeated = LayerRepetition::new(trace, (&spans, group), Some(&clocks), ends, asked.layers)?;
    find_launches(trace, &mut repeated.ranks);
    let LayerRepetition { ranks, layers, usual, .. } = &repeated;
    let (layers, usual, count) = (*layers, *usual, ranks[0].reduces.len());
    if repeated.is_partial && (ranks.len() == 1 || !repeated.is_uneven) {
        let why = match repeated.is_uneven {
            true => "ranks have different counts of collectives",
            false => "the clocks of ranks cannot be aligned",
        };
        let used = match ranks[..] {
            [ref only] => format!("rank {}", only.rank),
            _ => rank_label(&ranks.iter().map(|rank| rank.rank).collect::<Vec<_>>()),
        };
        notes.push(format!("{why}; using {used} only, so waiting for others counts as transfer"));
    } else if repeated.is_uneven {
        let ranks: Vec<u32> = ranks.iter().map(|rank| rank.rank).collect();
        notes.push(format!(
            "ranks have different counts of collectives; using the steps of {} in which none is missing",
            rank_label(&ranks)
        ));
    } else if clocks.offsets.len() > 1 {
        notes.push("rank clocks aligned at the ends of matched collectives".into());
    }
    let size = group.map_or(0, |group| trace.meta.groups[group as usize].size as usize);
    if ranks.len() > 1 && ranks.len() < size {
        let how = if repeated.is_partial { "used" } else { "recorded" };
        notes.push(format!(
            "{} of the process group's {size} ranks were {how}, so transfer times may include waiting for the others",
            ranks.len()
        ));
    }
    let extra = usual - 2 * layers as usize;
    if extra > 0 {
        notes.push(format!(
            "{} before the first layer (sharded embedding) left unchanged",
            counted(extra, "all-reduce")
        ));
    }
    let (whole, phase) = of_phase(trace, &ranks[0], repeated.whole.clone(), asked.phase, &mut notes);
    let whole = with_common_kernels(whole, &repeated.gaps, repeated.steps.len(), &mut notes);
    let mut steps: Vec<RecordedStep> = whole
        .par_iter()
        .enumerate()
        .filter_map(|(at, step_of)| {
            let places = |rank: &RankSpans<'_>| Some(rank.places(&rank.own(step_of)?));
            let places: Vec<Range<usize>> = ranks.iter().map(places).collect::<Option<_>>()?;
            step(trace, ranks, &places, at as u32, (ends, layers))
        })
        .collect();
    let is_marked = |step: &Range<usize>| ranks[0].step_at(step.start).step != NO_STEP;
    let mark_forwards = marks_forwards(trace);
    follow(&mut steps, ranks, |step| {
        let own = &whole[step.number as usize];
        let at = repeated.steps.binary_search_by_key(&own.end, |next| next.start).ok()?;
        // shorter work between marked steps, as of a draft model, belongs to the one before
        let is_step = |next: &&Range<usize>| {
            !mark_forwards || !is_marked(own) || is_marked(next) || next.len() == usual
        };
        let next = repeated.steps[at..].iter().find(is_step)?.start;
        let start = |rank: &RankSpans<'_>| Some(rank.begin(rank.own(&(next..next + 1))?.start));
        ranks.iter().map(start).collect()
    });
    if steps.is_empty() {
        return Err(unlike(ends, layers, count));
    }
    require_exposed(trace, &ranks[0], ends, &mut notes)?;
    Ok(RecordedSteps { notes, ..assembled(trace, ranks, steps, (ends, layers), phase) })
}

/// Refuses a trace whose collectives are mostly hidden, and notes those that are partly.
fn require_exposed(
    trace: &Trace,
    rank: &RankSpans<'_>,
    ends: LayerCollectives,
    notes: &mut Vec<String>,
) -> Result<()> {
    let what = match ends {
        LayerCollectives::AllReduces => "all-reduces",
        LayerCollectives::Exchanges => "combines",
    };
    let overlapped = overlapped(trace, rank);
    if overlapped > HIDDEN {
        return Err(Error::input_help(
            format!(
                "{:.0} % of the {what}' time overlaps kernels: the engine already hides its communication; rewire \
                 needs exposed {what}",
                100.0 * overlapped
            ),
            "record the same engine without overlap of communication (standard layers, no micro-batches)",
        ));
    }
    if overlapped > 0.05 {
        notes.push(format!(
            "{:.0} % of the {what}' time already overlaps kernels: the architecture may not be standard",
            100.0 * overlapped
        ));
    }
    Ok(())
}

/// Process group whose all-reduces are rewired, if the trace names groups: the tensor-parallel one if they
/// are described, else the one with the most all-reduces.
fn group(trace: &Trace, notes: &mut Vec<String>) -> Option<u32> {
    let groups = &trace.meta.groups;
    let mut counts = vec![0u64; groups.len()];
    for span in trace.spans.iter().filter(|span| is_all_reduce(trace, span, None)) {
        let info = trace.operations[span.operation as usize].collective.as_ref();
        let group = info.and_then(|info| info.group);
        if let Some(count) = group.and_then(|group| counts.get_mut(group as usize)) {
            *count += 1;
        }
    }
    let used = || (0..groups.len()).filter(|at| counts[*at] > 0);
    let best = |at: &usize| (groups[*at].kind() == "TP", counts[*at], std::cmp::Reverse(*at));
    let chosen = used().max_by_key(best)?;
    let others = used().count() - 1;
    if others > 0 {
        let ranks: Vec<String> = groups[chosen].ranks.iter().map(u32::to_string).collect();
        let ranks =
            if ranks.is_empty() { String::new() } else { format!(", ranks {}", ranks.join(" ")) };
        notes.push(format!(
            "rewiring the all-reduces of process group {} ({}{ranks}); those of {} stay as recorded",
            groups[chosen].name,
            groups[chosen].kind(),
            counted(others, "other group"),
        ));
    }
    Some(chosen as u32)
}

fn layers(
    ends: LayerCollectives,
    asked: Option<u32>,
    usual: usize,
    found: &[Range<usize>],
    gaps: &[u64],
) -> Result<u32> {
    let undetected = |why: String| {
        Error::input_help(
            format!("cannot detect the layers: {why}"),
            "pass the number of the model's layers with --layers N",
        )
    };
    let step = found.iter().find(|step| step.len() == usual).cloned().unwrap_or(0..0);
    if ends == LayerCollectives::Exchanges {
        let has =
            format!("{} found, most with {usual} dispatches and combines", counted(found.len(), "step"));
        let layers = usual as u32 / 2;
        return match asked {
            Some(asked) if asked != layers => Err(Error::input(format!(
                "--layers {asked}: expected {} dispatches and combines per step; {has}",
                2 * asked
            ))),
            _ if usual < 4 || !usual.is_multiple_of(2) => Err(Error::input_help(
                format!(
                    "cannot detect the layers: {has}; expected two per layer and at least two layers"
                ),
                "record whole decode steps, or name dispatch and combine kernels in a file for --rules",
            )),
            _ => Ok(layers),
        };
    }
    let has =
        format!("{} found, most with {}", counted(found.len(), "step"), counted(usual, "all-reduce"));
    if let Some(layers) = asked {
        return match 2 * layers as usize {
            _ if layers > 0 && ends.fits(layers, usual) => Ok(layers),
            _ if layers as usize == usual => Err(Error::input(format!(
                "--layers {layers}: {has}: one a layer, as `parallel` has; rewiring begins with standard's two"
            ))),
            need => Err(Error::input(format!(
                "--layers {layers}: expected {need} all-reduces per step (two per layer); {has}"
            ))),
        };
    }
    match repeat(&gaps[step]) {
        GapPattern::Two if usual >= 4 => Ok(usual as u32 / 2),
        GapPattern::One => Err(undetected(format!("{has}, and the kernels before each are the same"))),
        _ => Err(undetected(format!("{has}, and no kernel sequence repeats once per layer"))),
    }
}

/// Steps of the asked phase (decode by default), or all if none is of it; and the phase of those kept.
fn of_phase(
    trace: &Trace,
    first: &RankSpans<'_>,
    whole: Vec<Range<usize>>,
    asked: Option<Phase>,
    notes: &mut Vec<String>,
) -> (Vec<Range<usize>>, Phase) {
    let wanted = asked.unwrap_or(Phase::Decode);
    let phase = |step: &Range<usize>| first.spans[first.reduces[step.start]].phase;
    let found = whole.iter().filter(|step| phase(step) == wanted).count();
    if found == whole.len() {
        return (whole, wanted);
    }
    if found == 0 {
        let has = whole.first().map_or(wanted, phase);
        let mixed = mixed_steps(trace);
        let is_mixed = |step: &Range<usize>| {
            mixed.contains(&StepKey::from_span(first.spans[first.reduces[step.start]]))
        };
        let kind = if whole.iter().all(is_mixed) { "mixed" } else { has.as_str() };
        notes.push(format!("no {} steps in this trace; using its {kind} steps", wanted.as_str()));
        return (whole, has);
    }
    notes.push(format!("using the {found} {} steps of {}", wanted.as_str(), whole.len()));
    (whole.into_iter().filter(|step| phase(step) == wanted).collect(), wanted)
}

/// Keeps the steps whose kernels match the majority; a prefill has other kernels than decode.
fn with_common_kernels(
    whole: Vec<Range<usize>>,
    gaps: &[u64],
    found: usize,
    notes: &mut Vec<String>,
) -> Vec<Range<usize>> {
    // kernels before the first layer vary with the requests
    let inner = |step: &Range<usize>| gaps[(step.start + 2).min(step.end)..step.end].to_vec();
    // number of steps with these kernels, and the first of them
    let mut counts: HashMap<Vec<u64>, (usize, std::cmp::Reverse<usize>)> = HashMap::new();
    for (at, step) in whole.iter().enumerate() {
        counts.entry(inner(step)).or_insert((0, std::cmp::Reverse(at))).0 += 1;
    }
    let most = counts.iter().max_by_key(|(_, found)| **found);
    let Some(most) = most.map(|(of, _)| of.clone()) else { return whole };
    let kept: Vec<Range<usize>> = whole.into_iter().filter(|step| inner(step) == most).collect();
    if kept.len() < found {
        notes.push(format!(
            "{} of {found} steps have the same kernels and number of collectives; the others are skipped",
            kept.len()
        ));
    }
    kept
}

/// Share of the collectives' time that overlaps kernels of the same rank. Work beside a dispatch is standard:
/// shared experts.
fn overlapped(trace: &Trace, rank: &RankSpans<'_>) -> f64 {
    let computes = rank.spans.iter().filter(|span| span.lane == Lane::Compute);
    let computes = Coverage::new(union(computes.map(|span| (span.start_ns, span.end_ns))));
    let (mut all, mut beside, mut near) = (0i64, 0i64, 0);
    for &at in &rank.reduces {
        let reduce = rank.spans[at];
        if trace.operations[reduce.operation as usize].kind == OperationKind::Dispatch {
            continue;
        }
        all += reduce.end_ns - reduce.start_ns;
        beside += computes.within_with_cursor((reduce.start_ns, reduce.end_ns), &mut near);
    }
    if all > 0 { beside as f64 / all as f64 } else { 0.0 }
}

/// Hash of the kernels before each collective, and the kernels of each hash. Kernels of an export of our own name their
/// layer, which does not count.
fn signatures(trace: &Trace, rank: &RankSpans<'_>) -> (Vec<u64>, HashMap<u64, Vec<usize>>) {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let families = families(trace);
    let mut kernels_of: HashMap<u64, Vec<usize>> = HashMap::new();
    let mut from = 0;
    let signature = |at: &usize| {
        let kernels = || rank.spans[from..*at].iter().map(|span| families[span.operation as usize]);
        let mut hasher = DefaultHasher::new();
        kernels().for_each(|kernel| kernel.hash(&mut hasher));
        let hash = hasher.finish();
        kernels_of.entry(hash).or_insert_with(|| kernels().collect());
        from = *at + 1;
        hash
    };
    let signatures = rank.reduces.iter().map(signature).collect();
    (signatures, kernels_of)
}

/// For each operation, the first one of its name in any layer.
pub(super) fn families(trace: &Trace) -> Vec<usize> {
    let mut first: HashMap<Cow<'_, str>, usize> = HashMap::new();
    let mut families = Vec::with_capacity(trace.operations.len());
    for (at, operation) in trace.operations.iter().enumerate() {
        families.push(match operation.layer {
            Some(_) => *first.entry(over_layers(operation)).or_insert(at),
            None => at,
        });
    }
    families
}

impl RankSpans<'_> {
    /// Splits an export of our own, whose collectives name their layers, where the layers start again; `None` for other
    /// traces.
    fn at_first_layers(&self, trace: &Trace) -> Option<Vec<Range<usize>>> {
        let layer = |at: &usize| trace.operations[self.spans[*at].operation as usize].layer;
        let layers: Vec<u32> = self.reduces.iter().map(layer).collect::<Option<_>>()?;
        let mut end = 0;
        let step = |step: &[u32]| {
            end += step.len();
            end - step.len()..end
        };
        Some(layers.chunk_by(|a, b| a <= b).map(step).collect())
    }

    /// Range of this rank's collectives that match a step of the first rank; `None` if the rank lacks some.
    fn own(&self, step: &Range<usize>) -> Option<Range<usize>> {
        let counterpart = |at: usize| self.counterparts.get(at).copied().flatten();
        let own = counterpart(step.start)?..counterpart(step.end.checked_sub(1)?)? + 1;
        (own.len() == step.len()).then_some(own)
    }

    /// Step of a collective.
    fn step_at(&self, reduce: usize) -> StepKey {
        StepKey::from_span(self.spans[self.reduces[reduce]])
    }

    /// Splits at the markers of steps, which are more reliable than signatures. Work outside of markers is split at
    /// `found`. A marker around a user's steps may hold several forward passes, so these are split at `found` too unless
    /// they `fit` the asked layers, and at markers only if all have the same number of all-reduces.
    fn at_markers(
        &self,
        found: Vec<Range<usize>>,
        mark_forwards: bool,
        fits: impl Fn(&Range<usize>) -> bool,
    ) -> Vec<Range<usize>> {
        let mut next = 0;
        let marked: Vec<Range<usize>> = self
            .reduces
            .chunk_by(|a, b| StepKey::from_span(self.spans[*a]) == StepKey::from_span(self.spans[*b]))
            .map(|step| {
                next += step.len();
                next - step.len()..next
            })
            .collect();
        let is_even = marked.iter().all(|step| step.len() == marked[0].len());
        let decide = mark_forwards || is_even && marked.len() > 1 || marked.iter().any(&fits);
        if !decide {
            return found;
        }
        let is_whole = |step: &Range<usize>| {
            mark_forwards && self.step_at(step.start).step != NO_STEP || fits(step)
        };
        let whole: Vec<&Range<usize>> = marked.iter().filter(|step| is_whole(step)).collect();
        let is_inside = |begin: &usize| {
            let after = whole.partition_point(|step| step.start <= *begin);
            after.checked_sub(1).is_some_and(|at| whole[at].contains(begin))
        };
        let mut begins: Vec<usize> =
            found.iter().map(|step| step.start).filter(|begin| !is_inside(begin)).collect();
        begins.extend(marked.iter().map(|step| step.start));
        begins.sort_unstable();
        begins.dedup();
        let ends = begins.iter().copied().skip(1).chain([self.reduces.len()]);
        begins.iter().copied().zip(ends).map(|(from, to)| from..to).collect()
    }

    /// Range of a step's spans. A step starts at the longest idle gap between the last all-reduce of the
    /// previous step and its own first one.
    pub fn places(&self, step: &Range<usize>) -> Range<usize> {
        self.begin(step.start)..self.begin(step.end)
    }

    /// First span of the step that starts with this all-reduce.
    fn begin(&self, reduce: usize) -> usize {
        if reduce == 0 {
            return 0;
        }
        if reduce == self.reduces.len() {
            return self.spans.len();
        }
        let (from, to) = (self.reduces[reduce - 1] + 1, self.reduces[reduce]);
        let gap = |at: &usize| self.spans[*at].start_ns - self.spans[at - 1].end_ns;
        (from..=to).max_by_key(|at| (gap(at), std::cmp::Reverse(*at))).unwrap_or(from)
    }
}

/// True for a kernel of sampling or the embedding, by its name.
fn is_at_ends(trace: &Trace, operation: usize) -> bool {
    let name = trace.operations[operation].name.to_ascii_lowercase();
    ["argmax", "sampl", "embed"].iter().any(|word| name.contains(word))
}

/// True if the trace's markers of steps are a serving engine's, one for each forward pass.
fn marks_forwards(trace: &Trace) -> bool {
    trace.meta.range_names.iter().filter_map(|name| step_name(name)).any(|step| step.is_forward())
}

/// Layers after the first that its own kernels are compared with; some models alternate two kinds.
const COMPARED: usize = 2;

/// Times at which the layers of a foreign trace begin, by rank.
#[derive(Clone, Debug)]
pub(crate) struct LayerTimes {
    pub layers: u32,
    /// Start (ns) of each layer, in time order; `None` starts the work after a step's last layer.
    begins: HashMap<u32, Vec<(i64, Option<u32>)>>,
}

impl LayerTimes {
    /// Finds the layers of every rank; `None` without a repetition, or if the collectives of ranks do not match.
    pub fn from_trace(trace: &Trace) -> Option<Self> {
        let ends = LayerCollectives::from_trace(trace).ok()?;
        let (spans, group) = spans_of(trace, ends, &mut Vec::new()).ok()?;
        let repeated = LayerRepetition::new(trace, (&spans, group), None, ends, None).ok()?;
        if repeated.is_partial {
            return None;
        }
        let families = families(trace);
        let begins = |rank: &RankSpans<'_>| {
            let mut begins = Vec::new();
            for step in repeated.whole.iter().filter_map(|step| rank.own(step)) {
                let places = rank.places(&step);
                let own = &rank.reduces[step];
                let (extra, own) = own.split_at(own.len() - 2 * repeated.layers as usize);
                let from = extra.last().map_or(places.start, |at| at + 1);
                let mut at = first_of_layers(trace, rank, &families, own, from);
                for (layer, ends) in (0..).zip(own.chunks_exact(2)) {
                    begins.push((rank.spans[at].start_ns, Some(layer)));
                    at = ends[1] + 1;
                }
                begins.extend(rank.spans.get(at).map(|span| (span.start_ns, None)));
            }
            (rank.rank, begins)
        };
        let begins = repeated.ranks.iter().map(begins).collect();
        Some(Self { layers: repeated.layers, begins })
    }

    pub fn layer(&self, span: &Span) -> Option<u32> {
        let begins = self.begins.get(&span.rank)?;
        let at = begins.partition_point(|(begin, _)| *begin <= span.start_ns);
        begins[at.checked_sub(1)?].1
    }
}

/// First span of the first layer, between `from` and its first collective: where its kernels start to match those of
/// later layers, including the norm before. Earlier work is the embedding.
fn first_of_layers(
    trace: &Trace,
    rank: &RankSpans<'_>,
    families: &[usize],
    own: &[usize],
    from: usize,
) -> usize {
    let family = |at: usize| families[rank.spans[at].operation as usize];
    let common = |later: &[usize]| {
        let most = (own[0] - from).min(later[1] - later[0] - 1);
        (0..most).take_while(|back| family(own[0] - 1 - back) == family(later[1] - 1 - back)).count()
    };
    // the collective before a later layer, and its first one
    let later = own[1..].chunks(2).filter(|pair| pair.len() == 2).take(COMPARED);
    let mut first = own[0] - later.map(common).max().unwrap_or(own[0] - from);
    while first > from && leads(trace, rank.spans[first - 1]) {
        first -= 1;
    }
    first
}
