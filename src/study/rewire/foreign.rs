//! Steps of a foreign trace without step markers, found from the repetition of collectives with the layers.
//!
//! The gap before each all-reduce of a Transformer, or before each dispatch and combine, repeats: the same kernels
//! for attention and the same for the MLP in every layer, while the gap between steps (head, sampling, embedding)
//! occurs once per step. Each gap has a signature, a hash of its kernels. Gaps with a rare signature start a step, unless
//! they belong to layers of another kind; within a step the signatures repeat with the layers.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::ops::Range;

use rayon::prelude::*;

use super::steps::{
    Asked, Ends, RankSpans, Step, Steps, assembled, find_launches, follow, is_all_reduce, leads, ranks,
    step, unlike, whole_exchanges,
};
use crate::analysis::{Clocks, clocks, mixed_steps, over_layers};
use base::error::{Error, Result};
use base::text::{counted, rank_label};
use plan::{Lane, Phase};
use trace::import::step_name;
use trace::overlap::StepKey;
use trace::overlap::intervals::{Coverage, union};
use trace::rules::DISPATCH;
use trace::{NO_STEP, OperationInfo, Span, Trace};

/// Hidden share of all-reduce time above which a trace cannot be of standard layers.
const HIDDEN: f64 = 0.5;

/// Repetition of the collectives at the ends of a foreign trace's layers.
pub(super) struct Repeated<'a> {
    pub ranks: Vec<RankSpans<'a>>,
    pub layers: u32,
    /// Steps as ranges of the first rank's collectives; most have `usual` many.
    pub steps: Vec<Range<usize>>,
    /// Steps with the usual number of collectives, among those with markers if these are forward passes.
    pub whole: Vec<Range<usize>>,
    pub usual: usize,
    /// True if ranks have different numbers of collectives.
    pub is_uneven: bool,
    /// True if ranks are left out whose collectives or clocks do not match the first rank's.
    pub is_partial: bool,
    /// For each rank, the indices of its collectives that match the first rank's.
    counterparts: Vec<Vec<Option<usize>>>,
    /// Signature of the kernels before each collective of the first rank.
    gaps: Vec<u64>,
}

/// Spans whose collectives end the layers, and the process group of these.
pub(super) fn spans_of<'a>(
    trace: &'a Trace,
    ends: Ends,
    notes: &mut Vec<String>,
) -> Result<(Cow<'a, [Span]>, Option<u32>)> {
    Ok(match ends {
        Ends::AllReduces => (Cow::Borrowed(&trace.spans[..]), group(trace, notes)),
        Ends::Exchanges => (Cow::Owned(whole_exchanges(trace)?), None),
    })
}

impl<'a> Repeated<'a> {
    /// Without known clocks, ranks with equally many collectives match in order.
    pub fn of(
        trace: &'a Trace,
        (spans, group): (&'a [Span], Option<u32>),
        known: Option<&Clocks>,
        ends: Ends,
        asked: Option<u32>,
    ) -> Result<Self> {
        let offsets = known.map(|clocks| clocks.offsets.clone()).unwrap_or_default();
        let mut ranks = ranks(trace, spans, &offsets, (ends, group));
        ranks.retain(|rank| !rank.reduces.is_empty());
        let Some(first) = ranks.first() else {
            if let Some(kernel) = unnamed_collective(trace) {
                return Err(Error::input_help(
                    format!(
                        "{kernel} runs any collective, so all-reduces cannot be told from the others"
                    ),
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
            ranks.iter().map(|rank| first.counterparts(rank, is_tied(rank))).collect();
        let mut of_ranks = found.iter();
        ranks.retain(|_| of_ranks.next().is_some_and(Option::is_some));
        let is_partial = ranks.len() < found.len();
        let counterparts = found.into_iter().flatten().collect();
        let first = &ranks[0];
        let (gaps, kernels) = signatures(trace, first);
        let extends = |gap: u64, common: u64| extends(&kernels[&gap], &kernels[&common]);
        let is_longer = |gap: u64, common: u64| kernels[&gap].len() >= kernels[&common].len() + HEAD;
        let starts_step = |gap: u64, first: u64, is_few: bool| {
            let (gap, first) = (&kernels[&gap], &kernels[&first]);
            let continues = gap.len() >= first.len() + HEAD && gap.ends_with(first) && !first.is_empty();
            continues
                && (is_few || asked.is_some() || gap.iter().any(|kernel| is_at_ends(trace, *kernel)))
        };
        let found = first.at_first_layers(trace);
        let found = found.unwrap_or_else(|| split_steps(&gaps, extends, is_longer, starts_step));
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
        Ok(Self { ranks, layers, steps, whole, usual, is_uneven, is_partial, counterparts, gaps })
    }

    /// Range of a step's collectives on another rank; `None` if the rank lacks some.
    fn on_rank(&self, rank: usize, step: &Range<usize>) -> Option<Range<usize>> {
        let counterpart = |at: usize| self.counterparts[rank].get(at).copied().flatten();
        let own = counterpart(step.start)?..counterpart(step.end.checked_sub(1)?)? + 1;
        (own.len() == step.len()).then_some(own)
    }
}

/// Function of a kernel that runs any collective, as RCCL's generic one.
fn unnamed_collective(trace: &Trace) -> Option<&str> {
    let is_unnamed =
        |operation: &&OperationInfo| operation.lane == Lane::Comm && operation.kind == "collective";
    trace.operations.iter().find(is_unnamed)?.name.split('(').next()
}

pub(super) fn foreign(trace: &Trace, asked: &Asked) -> Result<Steps> {
    let clocks = clocks(trace);
    let mut notes = Vec::new();
    let ends = Ends::of(trace)?;
    let (spans, group) = spans_of(trace, ends, &mut notes)?;
    let mut repeated = Repeated::of(trace, (&spans, group), Some(&clocks), ends, asked.layers)?;
    find_launches(trace, &mut repeated.ranks);
    let Repeated { ranks, layers, usual, .. } = &repeated;
    let (layers, usual, count) = (*layers, *usual, ranks[0].reduces.len());
    if repeated.is_partial && (ranks.len() == 1 || !repeated.is_uneven) {
        let why = match repeated.is_uneven {
            true => "ranks have different counts of collectives",
            false => "the clocks of ranks cannot be aligned, so waiting counts as transfer",
        };
        let used = match ranks[..] {
            [ref only] => format!("rank {}", only.rank),
            _ => rank_label(&ranks.iter().map(|rank| rank.rank).collect::<Vec<_>>()),
        };
        notes.push(format!("{why}; using {used} only"));
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
        notes.push(format!(
            "{} of the process group's {size} ranks were recorded, so transfer times may include waiting for the others",
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
    let mut steps: Vec<Step> = whole
        .par_iter()
        .enumerate()
        .filter_map(|(at, step_of)| {
            let places =
                |(at, rank): (usize, &RankSpans<'_>)| Some(rank.places(&repeated.on_rank(at, step_of)?));
            let places: Vec<Range<usize>> =
                ranks.iter().enumerate().map(places).collect::<Option<_>>()?;
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
        let start = |(at, rank): (usize, &RankSpans<'_>)| {
            Some(rank.begin(repeated.on_rank(at, &(next..next + 1))?.start))
        };
        ranks.iter().enumerate().map(start).collect()
    });
    if steps.is_empty() {
        return Err(unlike(ends, layers, count));
    }
    let what = match ends {
        Ends::AllReduces => "all-reduces",
        Ends::Exchanges => "combines",
    };
    let overlapped = overlapped(trace, &ranks[0]);
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
    Ok(Steps { notes, ..assembled(trace, ranks, steps, (ends, layers), phase) })
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
    ends: Ends,
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
    if ends == Ends::Exchanges {
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
        Repeat::Two if usual >= 4 => Ok(usual as u32 / 2),
        Repeat::One => Err(undetected(format!("{has}, and the kernels before each are the same"))),
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
        let is_mixed =
            |step: &Range<usize>| mixed.contains(&StepKey::of(first.spans[first.reduces[step.start]]));
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
        if trace.operations[reduce.operation as usize].kind == DISPATCH {
            continue;
        }
        all += reduce.end_ns - reduce.start_ns;
        beside += computes.near((reduce.start_ns, reduce.end_ns), &mut near);
    }
    if all > 0 { beside as f64 / all as f64 } else { 0.0 }
}

/// Hash of the kernels before each collective, and the kernels of each hash. Kernels of an export of our own name their
/// layer, which does not count.
fn signatures(trace: &Trace, rank: &RankSpans<'_>) -> (Vec<u64>, HashMap<u64, Vec<usize>>) {
    use std::hash::{DefaultHasher, Hasher};
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

    /// Step of a collective.
    fn step_at(&self, reduce: usize) -> StepKey {
        StepKey::of(self.spans[self.reduces[reduce]])
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
            .chunk_by(|a, b| StepKey::of(self.spans[*a]) == StepKey::of(self.spans[*b]))
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

/// Maximum period of the layers' kernels, in all-reduces: full attention or experts in every eighth layer.
const LONGEST: usize = 16;

/// Minimum share of gaps that must repeat for a period to count.
const REPEATS: f64 = 0.6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeat {
    /// Every gap equals the previous one: one all-reduce per layer, or attention and MLP look alike.
    One,
    Two,
    Nothing,
}

/// Length of a run of rare gaps, in all-reduces, that is a step of another kind: two layers of a prefill.
const OTHER_STEP: usize = 4;

/// Splits a sequence of gaps into steps, as ranges of all-reduces. The first step starts at the first gap.
///
/// Gaps are rare where a step starts, but also in layers of another kind: dense ones before the experts, full attention
/// in every fourth layer. A step starts at a rare gap that `extends` a common one (kernels of the head and the embedding
/// precede the layer's), or where the layers' period breaks (the embedding has an all-reduce of its own). Models of up to
/// three layers have no rare gaps; their steps start at the only gap that `starts_step`, given the trace's first gap and
/// whether it occurs at most once in two layers.
fn split_steps(
    gaps: &[u64],
    extends: impl Fn(u64, u64) -> bool,
    is_longer: impl Fn(u64, u64) -> bool,
    starts_step: impl Fn(u64, u64, bool) -> bool,
) -> Vec<Range<usize>> {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    gaps.iter().for_each(|gap| *counts.entry(*gap).or_default() += 1);
    // the most common gap occurs in almost every layer
    let Some((usual, most)) = counts.iter().max_by_key(|(gap, count)| (**count, **gap)) else {
        return Vec::new();
    };
    let is_rare = |gap: &u64| 4 * counts[gap] <= *most;
    let common: Vec<u64> = counts.keys().filter(|gap| !is_rare(gap)).copied().collect();
    let rare = counts.keys().filter(|gap| is_rare(gap)).copied();
    let extended: HashSet<u64> =
        rare.filter(|gap| common.iter().any(|common| extends(*gap, *common))).collect();
    // adjacent rare gaps start the same step
    let runs: Vec<Range<usize>> = (1..gaps.len())
        .filter(|at| is_rare(&gaps[*at]))
        .collect::<Vec<_>>()
        .chunk_by(|a, b| a + 1 == *b)
        .map(|run| run[0]..run[run.len() - 1] + 1)
        .collect();
    let places: Vec<usize> = (0..gaps.len()).filter(|at| gaps[*at] == *usual).collect();
    let period = most_common(places.windows(2).map(|pair| pair[1] - pair[0])).unwrap_or(1);
    let mut broken: Option<usize> = None;
    let has_start = |run: &&Range<usize>| {
        let after = places.partition_point(|at| *at < run.start);
        let (before, next) = (after.checked_sub(1).map(|at| places[at]), places.get(after));
        // only the first run between two usual gaps breaks the period
        let breaks = match (before, next) {
            (Some(before), Some(next)) => {
                !(next - before).is_multiple_of(period) && broken.replace(before) != Some(before)
            }
            // before the first usual gap, or after the last
            _ => run.len() > 1,
        };
        // the first gap starts a step with the rare ones after it
        let is_first = run.start == 1;
        let extends = gaps[(*run).clone()].iter().any(|gap| extended.contains(gap));
        !is_first && (breaks || extends || run.len() >= OTHER_STEP)
    };
    // layers of another kind at the end of a step, or at its start, are adjacent to its first gap
    let rarest = |run: &Range<usize>| run.clone().min_by_key(|at| counts[&gaps[*at]]);
    let mut begins: Vec<usize> = runs.iter().filter(has_start).filter_map(rarest).collect();
    if begins.is_empty() {
        // kernels of the head make a gap longer, also where those of the first layer differ from the others'
        let is_long = |gap: &u64| common.iter().all(|common| is_longer(*gap, *common));
        let long = runs.iter().filter(|run| gaps[(*run).clone()].iter().any(is_long));
        begins.extend(long.filter(|run| run.start > 1).filter_map(rarest));
    }
    let start = if begins.is_empty() {
        let mut starts =
            counts.iter().filter(|(gap, count)| starts_step(**gap, gaps[0], 2 * **count <= *most));
        starts.next().filter(|_| starts.next().is_none()).map(|(gap, _)| *gap)
    } else {
        most_common(begins.iter().map(|at| gaps[*at]))
    };
    // also within a run, after a step of another kind
    begins.extend((1..gaps.len()).filter(|at| Some(gaps[*at]) == start));
    begins.sort_unstable();
    begins.dedup();
    begins.insert(0, 0);
    let ends = begins.iter().copied().skip(1).chain([gaps.len()]);
    let parts: Vec<Range<usize>> = begins.iter().copied().zip(ends).map(|(from, to)| from..to).collect();
    join_parts(with_drafts(parts).into_iter())
}

/// Joins parts of less than two layers to the steps before them if most steps have one: a layer that predicts further
/// tokens (MTP) begins with an embedding and ends with a head, as a step does.
fn with_drafts(parts: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let is_short = |part: &Range<usize>| part.len() < OTHER_STEP;
    let short = parts.iter().filter(|part| is_short(part)).count();
    if short == parts.len() || 2 * short < parts.len() - short {
        return parts;
    }
    let mut steps: Vec<Range<usize>> = Vec::new();
    for part in parts {
        match steps.last_mut() {
            Some(last) if is_short(&part) => last.end = part.end,
            _ => steps.push(part),
        }
    }
    steps
}

/// Minimum number of kernels of the head, sampling and embedding.
const HEAD: usize = 2;

/// True for a kernel of sampling or the embedding, by its name.
fn is_at_ends(trace: &Trace, operation: usize) -> bool {
    let name = trace.operations[operation].name.to_ascii_lowercase();
    ["argmax", "sampl", "embed"].iter().any(|word| name.contains(word))
}

/// True if `gap` has more kernels than `common` and ends with the same ones; the first norm of a step differs.
fn extends(gap: &[usize], common: &[usize]) -> bool {
    let same = gap.iter().rev().zip(common.iter().rev()).take_while(|(a, b)| a == b).count();
    gap.len() > common.len() && same > 0 && same + 1 >= common.len()
}

/// Most common of some values, the largest of several.
fn most_common<T: Copy + Eq + Hash + Ord>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: HashMap<T, usize> = HashMap::new();
    values.for_each(|value| *counts.entry(value).or_default() += 1);
    counts.into_iter().max_by_key(|(value, count)| (*count, *value)).map(|(value, _)| value)
}

/// True if the trace's markers of steps are a serving engine's, one for each forward pass.
fn marks_forwards(trace: &Trace) -> bool {
    trace.meta.range_names.iter().filter_map(|name| step_name(name)).any(|step| step.is_forward())
}

/// Joins adjacent parts that together have a step's usual length: a gap is also rare if a kernel is missing.
fn join_parts(parts: impl Iterator<Item = Range<usize>> + Clone) -> Vec<Range<usize>> {
    let usual = usual_length(&parts.clone().collect::<Vec<_>>());
    let mut steps: Vec<Range<usize>> = Vec::new();
    for part in parts {
        match steps.last_mut() {
            Some(last) if last.len() + part.len() == usual => last.end = part.end,
            _ => steps.push(part),
        }
    }
    steps
}

fn repeat(gaps: &[u64]) -> Repeat {
    // the first gap has kernels of the head and the embedding
    let gaps = gaps.get(1..).unwrap_or_default();
    let share = |period: usize| {
        let pairs = gaps.len().saturating_sub(period);
        let same = gaps.iter().zip(gaps.iter().skip(period)).filter(|(a, b)| a == b).count();
        if pairs == 0 { 0.0 } else { same as f64 / pairs as f64 }
    };
    if share(1) > REPEATS {
        return Repeat::One;
    }
    match (2..=LONGEST).step_by(2).any(|period| share(period) > REPEATS) {
        true => Repeat::Two,
        false => Repeat::Nothing,
    }
}

/// Most common number of all-reduces per step; the largest of several. 0 without steps.
fn usual_length(steps: &[Range<usize>]) -> usize {
    most_common(steps.iter().map(ExactSizeIterator::len)).unwrap_or(0)
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
    pub fn of(trace: &Trace) -> Option<Self> {
        let ends = Ends::of(trace).ok()?;
        let (spans, group) = spans_of(trace, ends, &mut Vec::new()).ok()?;
        let repeated = Repeated::of(trace, (&spans, group), None, ends, None).ok()?;
        if repeated.is_partial {
            return None;
        }
        let families = families(trace);
        let begins = |(at, rank): (usize, &RankSpans<'_>)| {
            let mut begins = Vec::new();
            for step in repeated.whole.iter().filter_map(|step| repeated.on_rank(at, step)) {
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
        let begins = repeated.ranks.iter().enumerate().map(begins).collect();
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The gaps of decode steps: `first` (the embedding's, where there is one), attention and MLP in turn, attention of
    /// every second layer of another kind.
    fn gaps(steps: usize, layers: usize, embedding: bool, kinds: u64) -> Vec<u64> {
        let mut gaps = Vec::new();
        for _ in 0..steps {
            if embedding {
                gaps.push(900);
            }
            for layer in 0..layers {
                gaps.push(if layer == 0 { 901 } else { 10 + layer as u64 % kinds });
                gaps.push(20);
            }
        }
        gaps
    }

    /// True if a gap of the model above has the kernels of another and those of the head.
    fn starts(gap: u64, common: u64) -> bool {
        gap == 901 && common < 20
    }

    fn steps_in(gaps: &[u64]) -> Vec<Range<usize>> {
        split_steps(gaps, starts, starts, |gap, first, is_few| is_few && (gap, first) == (901, 900))
    }

    proptest! {
        /// Every `sparse`th layer has full attention, the first `dense` have no experts.
        #[test]
        fn layers_of_other_kinds_start_no_step(
            count in 3usize..6, layers in 16usize..90, embedding: bool, sparse in 2usize..9, dense in 0usize..4,
        ) {
            let mut gaps = gaps(count, layers, embedding, 1);
            let each = 2 * layers + usize::from(embedding);
            for step in gaps.chunks_mut(each) {
                let attention = usize::from(embedding);
                for layer in 0..layers {
                    if layer % sparse == sparse - 1 {
                        step[attention + 2 * layer] = 30;
                    }
                    if layer < dense {
                        step[attention + 2 * layer + 1] = 40;
                    }
                }
            }
            let found = steps_in(&gaps);
            prop_assert_eq!(&found, &(0..count).map(|at| at * each..(at + 1) * each).collect::<Vec<_>>());
            prop_assert_eq!(repeat(&gaps[found[0].clone()]), Repeat::Two);
        }

        #[test]
        fn steps_and_layers_are_found(count in 1usize..6, layers in 6usize..90, embedding: bool, kinds in 1u64..3) {
            let gaps = gaps(count, layers, embedding, kinds);
            let each = 2 * layers + usize::from(embedding);
            let found = steps_in(&gaps);
            prop_assert_eq!(&found, &(0..count).map(|at| at * each..(at + 1) * each).collect::<Vec<_>>());
            prop_assert_eq!(usual_length(&found), each);
            prop_assert_eq!(repeat(&gaps[found[0].clone()]), Repeat::Two);
        }

        #[test]
        fn any_sequence_is_cut_into_steps_without_a_rest(gaps in prop::collection::vec(0u64..6, 0..80)) {
            let found = steps_in(&gaps);
            let mut next = 0;
            for step in &found {
                prop_assert_eq!(step.start, next);
                prop_assert!(step.end > step.start);
                next = step.end;
            }
            prop_assert_eq!(next, gaps.len());
            repeat(&gaps);
            usual_length(&found);
        }
    }

    /// Each step ends with a layer of its own embedding and head, which predicts another token.
    #[test]
    fn a_layer_that_predicts_another_token_belongs_to_its_step() {
        let mut gaps = Vec::new();
        for step in 0..5 {
            gaps.extend(self::gaps(1, 16, false, 1));
            gaps.extend([901, 20]);
            assert_eq!(gaps.len(), 34 * (step + 1));
        }
        let found = steps_in(&gaps);
        assert_eq!(found, (0..5).map(|at| 34 * at..34 * (at + 1)).collect::<Vec<_>>());
    }

    #[test]
    fn layers_of_another_kind_at_the_end_of_a_step_belong_to_it() {
        let mut gaps = gaps(6, 27, false, 1);
        for step in gaps.chunks_mut(54) {
            [0, 1, 2, 26].map(|layer| step[2 * layer + 1] = 40);
        }
        assert_eq!(steps_in(&gaps), (0..6).map(|at| 54 * at..54 * (at + 1)).collect::<Vec<_>>());
    }

    #[test]
    fn the_step_after_a_prefill_is_one_of_its_own() {
        let mut gaps = gaps(6, 16, false, 1);
        gaps[96..128].iter_mut().for_each(|gap| *gap += 2_000);
        assert_eq!(steps_in(&gaps), (0..6).map(|at| 32 * at..32 * (at + 1)).collect::<Vec<_>>());
    }

    /// The trace begins with a step, whose first gap lacks the head of the step before.
    #[test]
    fn steps_of_two_layers_are_found() {
        for layers in 2..4 {
            let mut gaps = gaps(6, layers, false, 1);
            gaps[0] = 900;
            let found = steps_in(&gaps);
            let each = 2 * layers;
            assert_eq!(found, (0..6).map(|at| each * at..each * (at + 1)).collect::<Vec<_>>());
            assert_eq!(repeat(&gaps[found[1].clone()]), Repeat::Two);
        }
    }

    /// Without gaps like those between steps, everything is one step.
    #[test]
    fn a_single_step_is_not_cut_at_layers_of_another_kind() {
        let mut gaps = gaps(1, 24, false, 1);
        (3..24).step_by(4).for_each(|layer| gaps[2 * layer] = 30);
        assert_eq!(steps_in(&gaps), vec![0..48]);
    }

    #[test]
    fn one_all_reduce_a_layer_and_none_that_repeat_are_told_apart() {
        assert_eq!(repeat(&[7; 32]), Repeat::One);
        assert_eq!(repeat(&(0..32).collect::<Vec<_>>()), Repeat::Nothing);
        assert_eq!(repeat(&[1]), Repeat::Nothing);
    }

    #[test]
    fn a_missing_kernel_does_not_split_a_step() {
        let whole = gaps(4, 8, true, 1);
        let wanted = steps_in(&whole);
        for at in 19..32 {
            let mut gaps = whole.clone();
            gaps[at] = 777;
            assert_eq!(steps_in(&gaps), wanted, "gap {at}");
        }
    }

    #[test]
    fn a_step_that_was_cut_off_is_not_usual() {
        let mut gaps = gaps(3, 8, false, 1);
        gaps.truncate(2 * 16 + 5);
        let found = steps_in(&gaps);
        assert_eq!((found.len(), usual_length(&found)), (3, 16));
    }
}
