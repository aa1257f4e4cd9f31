//! Longest stretches of exposed communication, each with the collective that fills it and the compute that waited for
//! it.
//!
//! Causes of idle time: what a rank waited for while none of its lanes was busy.
//!
//! Every gap between two busy stretches of a rank is split by the span that begins after it. Let *r* be
//! the time within the gap when that span could start (imported spans: its launch, and the latency of a launch
//! without other holdups, see [`Launches`]; own spans: all dependencies done):
//!
//! 1. from the gap's start to *r*: **host** - the device had no work. In own traces this only counts if the gap does
//!    not follow a collective: a span that is not ready after a collective waits for its result. A receive from
//!    another pipeline stage, which has no length, ends such a wait as well. In imported traces it
//!    needs a recorded launch; otherwise the gap is between kernels. If the next span is the replay of a CUDA graph,
//!    the host's part is **between graphs**;
//! 2. the rest, if the next span is a collective or a collective ended at the gap's start: **communication** - starting
//!    a collective or handing over its result (comm busy while compute is idle is exposed communication, never idle
//!    time);
//! 3. otherwise **between kernels** - the span could start but had not, or its launch is not recorded.
//!
//! If several spans begin at once, the first that was ready counts, and any collective makes the gap
//! communication. A gap between timed generations of a run is **outside**, whatever its cause. The four
//! parts add up to the idle time exactly.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rayon::prelude::*;
use serde::Serialize;

use super::launches::Launches;
use super::names::over_layers;
use plan::Lane;
use table::render::{Shown, Table};
use trace::overlap::intervals::{Coverage, Interval, difference, pieces, seek, union};
use trace::overlap::{Class, Lanes, Nanoseconds, Runs, Selection, StepKey, us};
use trace::{NO_STEP, Span, Trace};

const MOST: usize = 1_000;

/// Maximum number of stretches kept of a family.
const MOST_OF_FAMILY: usize = 100;

/// Stretch in which a rank communicated and computed nothing.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ExposedStretch {
    /// Ranks with exactly this stretch, ascending; the other fields describe the first rank.
    pub ranks: Vec<u32>,
    /// Start since the trace's first start (us).
    pub at_us: f64,
    pub length_us: f64,
    #[serde(flatten)]
    pub step: StepKey,
    /// Collective that fills most of the stretch.
    pub collective: String,
    /// Next compute operation on the rank; null if there is none.
    pub waited: Option<String>,
    #[serde(skip)]
    pub span: usize,
    /// Start and end (ns, trace clock).
    #[serde(skip)]
    pub interval: Interval,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ExposedStretches {
    /// Number of stretches; one shared by several ranks counts once.
    pub count: u64,
    /// Total per rank, averaged over ranks (us).
    pub total_us: f64,
    /// The longest stretches, at most 1000, longest first.
    pub longest: Vec<ExposedStretch>,
    /// All stretches by the collective that fills them, largest total first; only from [`exposed_stretches`].
    #[serde(skip)]
    pub families: Vec<StretchFamily>,
    /// Number of selected steps if all are of one phase and all selected work is in steps, else 0.
    #[serde(skip)]
    pub steps: u64,
    /// Ranks that totals are averaged over, also those that do not communicate.
    #[serde(skip)]
    pub ranks: u64,
    /// Time between first start and last end per rank (us).
    #[serde(skip)]
    pub time_us: f64,
}

impl ExposedStretches {
    /// Number of steps that times and counts are averaged over.
    pub fn shares(&self) -> f64 {
        self.steps.max(1) as f64
    }
}

/// Stretches filled by one collective of all layers.
#[derive(Clone, Debug, PartialEq)]
pub struct StretchFamily {
    /// Name, with `L*` for the layer.
    pub collective: String,
    /// Calls of the collective over all ranks, hidden ones included.
    pub calls: u64,
    /// Total per rank, averaged over ranks (us).
    pub total_us: f64,
    /// Compute operation that waited most often, with `L*` for its layer.
    pub waited: Option<String>,
    /// The longest stretches, longest first, at most 100: index of the span that fills it, and its length (us).
    pub longest: Vec<(usize, f64)>,
    /// Number of stretches; one shared by several ranks counts once.
    pub count: usize,
}

/// Exposed stretches of the selected part of a trace, listed and by collective.
pub fn exposed_stretches(trace: &Trace, selection: &Selection) -> ExposedStretches {
    let runs = Runs::new(trace, selection);
    let lanes = Lanes::of(&runs);
    let bare = Bare::all(&lanes);
    let filled = filled(&runs, &bare, usize::MAX);
    let longest = filled.iter().take(MOST).map(|filled| filled.told(&runs)).collect();
    let families = families(&runs, &filled);
    let keys: BTreeSet<StepKey> = runs.by_step().into_iter().map(|(key, _)| key).collect();
    let first = keys.first().copied();
    let are_alike =
        keys.iter().all(|key| key.step != NO_STEP && Some(key.phase) == first.map(|key| key.phase));
    let sums = lanes.iter().map(Lanes::sums).fold(Nanoseconds::default(), std::ops::Add::add);
    ExposedStretches {
        families,
        steps: if are_alike { keys.len() as u64 } else { 0 },
        ranks: lanes.len() as u64,
        time_us: us(sums.span_ns) / lanes.len().max(1) as f64,
        ..bare_stretches(&bare, lanes.len(), longest)
    }
}

pub fn stretches_table(stretches: &[ExposedStretch]) -> Table {
    let us = Shown::Time;
    let ranks = |s: &ExposedStretch| s.ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    Table::of(
        stretches,
        &[
            ("at_us|start_us", &|s| Shown::instant(s.at_us)),
            ("length_us", &|s| us(s.length_us)),
            ("ranks", &|s| Shown::text(ranks(s))),
            ("sample", &|s| s.step.sample.into()),
            ("phase|", &|s| Shown::text(s.step.phase.as_str())),
            ("step", &|s| Some(s.step.step).filter(|step| *step != NO_STEP).into()),
            ("~collective", &|s| Shown::text(&s.collective)),
            ("~waited|delayed", &|s| s.waited.as_ref().map_or(Shown::None, Shown::text)),
        ],
    )
    .least(&["sample", "ranks"])
}

/// Interval without its collective: index of the rank, start and end (ns).
#[derive(Clone, Copy)]
struct Bare {
    rank: usize,
    interval: Interval,
}

impl Bare {
    /// Stretches of all ranks, longest first; equal stretches of several ranks are adjacent.
    fn all(lanes: &[Lanes]) -> Vec<Self> {
        let of_rank = |(rank, lanes): (usize, &Lanes)| -> Vec<Self> {
            let all = difference(&lanes.comm, lanes.compute.union());
            all.into_iter().map(|interval| Self { rank, interval }).collect()
        };
        let mut all: Vec<Self> = lanes.par_iter().enumerate().map(of_rank).flatten_iter().collect();
        all.par_sort_unstable_by_key(|bare| {
            (std::cmp::Reverse(bare.length()), bare.interval.0, bare.rank)
        });
        all
    }

    fn length(&self) -> i64 {
        self.interval.1.saturating_sub(self.interval.0)
    }
}

fn same(a: &Bare, b: &Bare) -> bool {
    a.interval == b.interval
}

fn bare_stretches(bare: &[Bare], ranks: usize, longest: Vec<ExposedStretch>) -> ExposedStretches {
    let sum: i64 = bare.iter().map(Bare::length).sum();
    let count = bare.chunk_by(same).count() as u64;
    let total_us = sum as f64 / 1e3 / ranks.max(1) as f64;
    ExposedStretches { count, total_us, longest, ..ExposedStretches::default() }
}

/// Longest stretches from collected lanes: one sort, plus a pass over the spans of the ranks involved.
pub(super) fn exposed(runs: &Runs, lanes: &[Lanes]) -> ExposedStretches {
    let bare = Bare::all(lanes);
    let longest = filled(runs, &bare, MOST).iter().map(|filled| filled.told(runs)).collect();
    bare_stretches(&bare, lanes.len(), longest)
}

/// Stretch with the span of the collective that fills most of it, and the next compute span.
struct Filled<'a> {
    group: &'a [Bare],
    place: usize,
    waited: Option<&'a Span>,
}

impl Filled<'_> {
    fn told(&self, runs: &Runs) -> ExposedStretch {
        let (span, interval) = (&runs.trace.spans[self.place], self.group[0].interval);
        let name = |span: &Span| {
            let operation = runs.trace.operations.get(span.operation as usize);
            operation.map_or_else(|| "?".to_owned(), |operation| operation.name.clone())
        };
        ExposedStretch {
            ranks: self.group.iter().map(|bare| runs.ranks[bare.rank]).collect(),
            at_us: us(interval.0.saturating_sub(runs.origin)),
            length_us: us(interval.1.saturating_sub(interval.0)),
            step: StepKey::of(span),
            collective: name(span),
            waited: self.waited.map(name),
            span: self.place,
            interval,
        }
    }
}

/// The `most` longest stretches, filled, longest first.
fn filled<'a>(runs: &'a Runs, bare: &'a [Bare], most: usize) -> Vec<Filled<'a>> {
    let groups: Vec<&[Bare]> = bare.chunk_by(same).take(most).collect();
    let mut filled: Vec<Filled> = (0..runs.ranks.len())
        .into_par_iter()
        .flat_map_iter(|rank| {
            let own: Vec<&[Bare]> =
                groups.iter().copied().filter(|group| group[0].rank == rank).collect();
            filled_of_rank(runs, rank, own)
        })
        .collect();
    filled
        .sort_by_key(|filled| (std::cmp::Reverse(filled.group[0].length()), filled.group[0].interval.0));
    filled
}

/// Adds the collective and the waiting operation to the stretches of a rank.
fn filled_of_rank<'a>(runs: &'a Runs, rank: usize, mut groups: Vec<&'a [Bare]>) -> Vec<Filled<'a>> {
    if groups.is_empty() {
        return Vec::new();
    }
    groups.sort_unstable_by_key(|group| group[0].interval);
    let intervals: Vec<Interval> = groups.iter().map(|group| group[0].interval).collect();
    // per stretch: overlap and index of the best collective so far; the next compute span
    let mut filled: Vec<Option<(i64, usize)>> = vec![None; groups.len()];
    let mut next: Vec<Option<&Span>> = vec![None; groups.len()];
    let places = runs.by_rank[rank].iter().flat_map(|run| run.at.clone());
    let pieces = |place: usize| runs.pieces(&runs.trace.spans[place]).map(move |piece| (place, piece));
    for (place, (start, end)) in places.flat_map(pieces) {
        let span = &runs.trace.spans[place];
        match runs.class(span) {
            Class::Comm => {
                let first = intervals.partition_point(|interval| interval.1 <= start);
                for (at, interval) in intervals.iter().enumerate().skip(first) {
                    let common = end.min(interval.1).saturating_sub(start.max(interval.0));
                    if common <= 0 {
                        break;
                    }
                    if filled[at].is_none_or(|(most, _)| common > most) {
                        filled[at] = Some((common, place));
                    }
                }
            }
            Class::Compute if start < end => {
                let behind = intervals.partition_point(|interval| interval.1 <= start);
                if let Some(at) = behind.checked_sub(1)
                    && next[at].is_none_or(|next| start < next.start_ns)
                {
                    next[at] = Some(span);
                }
            }
            _ => {}
        }
    }
    // with no compute between two stretches, both waited for the same span
    for at in (1..next.len()).rev() {
        next[at - 1] = next[at - 1].or(next[at]);
    }
    let stretch = |at: usize| Some(Filled { group: groups[at], place: filled[at]?.1, waited: next[at] });
    (0..groups.len()).filter_map(stretch).collect()
}

/// Sums filled stretches, longest first, by their collective over all layers.
fn families(runs: &Runs, filled: &[Filled]) -> Vec<StretchFamily> {
    let name = |operation: u32| {
        let operation = runs.trace.operations.get(operation as usize);
        operation.map_or_else(|| "?".into(), |operation| over_layers(operation).into_owned())
    };
    let mut families: Vec<StretchFamily> = Vec::new();
    // family of each operation, and how often each operation waited for a family
    let mut places: HashMap<u32, usize> = HashMap::new();
    let mut by_name: HashMap<String, usize> = HashMap::new();
    let mut waits: HashMap<(usize, u32), u64> = HashMap::new();
    let ranks = runs.ranks.len().max(1) as f64;
    for stretch in filled {
        let span = &runs.trace.spans[stretch.place];
        let length = us(stretch.group[0].length());
        let at = *places.entry(span.operation).or_insert_with(|| {
            let name = name(span.operation);
            *by_name.entry(name.clone()).or_insert_with(|| {
                families.push(StretchFamily {
                    collective: name,
                    calls: 0,
                    total_us: 0.0,
                    waited: None,
                    longest: Vec::new(),
                    count: 0,
                });
                families.len() - 1
            })
        });
        let family = &mut families[at];
        family.total_us += length * stretch.group.len() as f64 / ranks;
        family.count += 1;
        // stretches come longest first
        if family.longest.len() < MOST_OF_FAMILY {
            family.longest.push((stretch.place, length));
        }
        if let Some(waited) = stretch.waited {
            *waits.entry((at, waited.operation)).or_default() += 1;
        }
    }
    // operations that are hidden everywhere have no stretch, but belong to the family of their name
    let mut of: HashMap<u32, Option<usize>> =
        places.into_iter().map(|(operation, at)| (operation, Some(at))).collect();
    for span in runs.by_rank.iter().flatten().flat_map(|run| &runs.trace.spans[run.at.clone()]) {
        if span.lane == Lane::Comm && runs.selects(span) {
            let family = || by_name.get(&name(span.operation)).copied();
            if let Some(at) = *of.entry(span.operation).or_insert_with(family) {
                families[at].calls += 1;
            }
        }
    }
    let mut counts: BTreeMap<(usize, String), u64> = BTreeMap::new();
    for ((at, operation), count) in waits {
        *counts.entry((at, name(operation))).or_default() += count;
    }
    let mut most = vec![0; families.len()];
    for ((at, name), count) in counts {
        if count > most[at] {
            (most[at], families[at].waited) = (count, Some(name));
        }
    }
    families.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
    families
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct IdleSplit {
    pub rank: u32,
    /// The device had no work (us); in imported traces only as far as launches are recorded.
    pub host_us: f64,
    /// Part of [`Self::host_us`] before the replay of a CUDA graph (us).
    pub between_graphs_us: f64,
    /// Gaps next to collectives, none of them running (us).
    pub communication_us: f64,
    /// The next span could start but had not, or no launch is recorded (us).
    pub between_us: f64,
    /// Gaps between timed generations of a run, whatever their cause (us).
    pub outside_us: f64,
    /// Total idle time of the rank, the sum of the four parts (us).
    pub idle_us: f64,
    pub host_ns: i64,
    pub between_graphs_ns: i64,
    pub communication_ns: i64,
    pub between_ns: i64,
    pub outside_ns: i64,
    pub idle_ns: i64,
    pub gaps: u64,
    /// Longest gap within a generation (ns).
    pub longest_ns: i64,
    /// Start of the longest gap (ns since the trace's first start).
    pub longest_at_ns: i64,
}

/// Facts about a gap that determine its cause.
#[derive(Clone, Copy)]
struct Edge {
    /// Earliest possible start of the spans that begin after the gap; `i64::MIN` if a launch is not recorded.
    ready: i64,
    /// True if that span is the replay of a CUDA graph.
    is_replay: bool,
    sample: u32,
    to_comm: bool,
    from_comm: bool,
}

/// Idle time of each rank in the selected part of a trace, from the runs and lanes of the whole: the cause of a gap at the
/// end of the selection is behind it.
pub(super) fn idle(runs: &Runs, all: &Runs, lanes: &[Lanes]) -> Vec<IdleSplit> {
    let of_rank = |rank: usize| {
        let (mut near, mut selected) = (0, Vec::new());
        for gap in gaps(all, rank, &lanes[rank]) {
            let cut = |interval: Interval| Gap {
                interval,
                given: gap.given.clamp(interval.0, interval.1),
                ..gap
            };
            selected.extend(pieces(runs.parts(rank), gap.interval, &mut near).map(cut));
        }
        IdleSplit::of(runs.ranks[rank], runs.origin, &selected)
    };
    (0..runs.ranks.len()).into_par_iter().map(of_rank).collect()
}

/// Times of ranks within a window (ns), averaged over the ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct WindowTimes {
    pub exposed: f64,
    /// Part of `exposed` without the collectives of the layers.
    pub exposed_others: f64,
    /// Waiting for the host.
    pub host: f64,
    /// Part of `host` before replays of CUDA graphs.
    pub between_graphs: f64,
    /// Busy time of the compute lane, of the rank with the most.
    pub compute: f64,
}

/// Rank whose times in windows are wanted.
pub(crate) struct WindowRank {
    pub rank: u32,
    /// Clock correction to add to the rank's times (ns).
    pub offset: i64,
    /// Spans of the layers' collectives (ns of the common clock).
    pub collectives: Vec<Interval>,
}

/// Exposed communication and waiting for the host, as `overlap` counts them, of these ranks in windows of a common clock.
pub(crate) fn window_times(
    trace: &Trace,
    ranks: &[WindowRank],
    windows: &[Interval],
) -> Vec<WindowTimes> {
    let runs = Runs::new(trace, &Selection::default());
    let lanes = Lanes::of(&runs);
    let of_rank = |of: &WindowRank| {
        let rank = runs.ranks.iter().position(|rank| *rank == of.rank)?;
        let gaps = gaps(&runs, rank, &lanes[rank]);
        let waits = |wanted: fn(&Gap) -> bool| {
            let gaps = gaps.iter().filter(|gap| wanted(gap));
            Coverage::new(union(gaps.map(|gap| (gap.interval.0, gap.given))))
        };
        let own = |(start, end): &Interval| (start - of.offset, end - of.offset);
        let exposed = difference(&lanes[rank].comm, lanes[rank].compute.union());
        let others = difference(&exposed, &union(of.collectives.iter().map(own)));
        let compute = Coverage::new(lanes[rank].compute.union().to_vec());
        let parts = [
            Coverage::new(exposed),
            Coverage::new(others),
            waits(|_| true),
            waits(|gap| gap.is_replay),
            compute,
        ];
        let within = |window: &Interval| parts.each_ref().map(|part| part.within(own(window)) as f64);
        Some(windows.iter().map(within).collect::<Vec<_>>())
    };
    let by_rank: Vec<Vec<[f64; 5]>> = ranks.par_iter().filter_map(of_rank).collect();
    let mean = |at: usize, part: usize| {
        by_rank.iter().map(|windows| windows[at][part]).sum::<f64>() / by_rank.len().max(1) as f64
    };
    let times = |at: usize| WindowTimes {
        exposed: mean(at, 0),
        exposed_others: mean(at, 1),
        host: mean(at, 2),
        between_graphs: mean(at, 3),
        compute: by_rank.iter().map(|windows| windows[at][4]).fold(0.0, f64::max),
    };
    (0..windows.len()).map(times).collect()
}

/// Idle time between two busy stretches of a rank.
#[derive(Clone, Copy)]
struct Gap {
    interval: Interval,
    /// End of the part in which the device had no work.
    given: i64,
    /// True if the next span is the replay of a CUDA graph.
    is_replay: bool,
    rest: Rest,
}

/// Cause of a gap after the part in which the device had no work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    Communication,
    Between,
    /// The whole gap is between two timed generations.
    Outside,
}

/// Idle time of a rank (an index into [`Runs::ranks`]) by gap, in order. `runs` and `lanes` are those of a whole trace.
fn gaps(runs: &Runs, rank: usize, lanes: &Lanes) -> Vec<Gap> {
    let intervals: Vec<Interval> = lanes.gaps();
    let own = runs.trace.meta.import.is_none();
    let mut sample = runs.by_rank[rank].first().map_or(0, |run| run.step.sample);
    let edges = edges(runs, rank, &intervals, sample);
    let gap = |(interval, edge): (Interval, Edge)| {
        let is_replay = edge.is_replay;
        if std::mem::replace(&mut sample, edge.sample) != edge.sample {
            return Gap { interval, given: interval.0, is_replay, rest: Rest::Outside };
        }
        let given = match own && edge.from_comm {
            true => interval.0,
            false => edge.ready.clamp(interval.0, interval.1),
        };
        let is_known = edge.ready > i64::MIN;
        let rest = match is_known && (edge.to_comm || edge.from_comm) {
            true => Rest::Communication,
            false => Rest::Between,
        };
        Gap { interval, given, is_replay, rest }
    };
    intervals.into_iter().zip(edges).map(gap).collect()
}

impl IdleSplit {
    fn of(rank: u32, origin: i64, gaps: &[Gap]) -> Self {
        let mut split = Self { rank, gaps: gaps.len() as u64, ..Self::default() };
        for Gap { interval: (start, end), given, is_replay, rest } in gaps {
            split.host_ns += given - start;
            if *is_replay {
                split.between_graphs_ns += given - start;
            }
            *match rest {
                Rest::Communication => &mut split.communication_ns,
                Rest::Between => &mut split.between_ns,
                Rest::Outside => &mut split.outside_ns,
            } += end - given;
            if *rest != Rest::Outside && end - start > split.longest_ns {
                (split.longest_ns, split.longest_at_ns) = (end - start, start - origin);
            }
        }
        split.idle_ns = split.host_ns + split.communication_ns + split.between_ns + split.outside_ns;
        split.host_us = us(split.host_ns);
        split.between_graphs_us = us(split.between_graphs_ns);
        split.communication_us = us(split.communication_ns);
        split.between_us = us(split.between_ns);
        split.outside_us = us(split.outside_ns);
        split.idle_us = us(split.idle_ns);
        split
    }
}

/// Edges of a rank's gaps. Spans come mostly in order, so the search usually only checks the next gap.
fn edges(runs: &Runs, rank: usize, gaps: &[Interval], sample: u32) -> Vec<Edge> {
    let own = runs.trace.meta.import.is_none();
    let spans = runs.by_rank[rank].iter().flat_map(|run| &runs.trace.spans[run.at.clone()]);
    let launches = match own || gaps.is_empty() {
        true => Launches::default(),
        false => Launches::of_trace(runs.trace, spans),
    };
    let unknown = Edge { ready: i64::MAX, is_replay: false, sample, to_comm: false, from_comm: false };
    let mut edges = vec![unknown; gaps.len()];
    let (mut begins, mut ends) = (0, 0);
    runs.each(&runs.by_rank[rank], |span, (start, end)| {
        let comm = runs.class(span) == Class::Comm;
        begins = seek(gaps, begins, |gap| gap.1 < start);
        let is_known = own || span.is_launch_known();
        let is_receive = start == end && is_known && if own { runs.is_receive(span) } else { comm };
        let ends_in = |gap: &Interval| gap.1 == start || is_receive && gap.0 <= start && start < gap.1;
        if gaps.get(begins).is_some_and(ends_in) {
            let edge = &mut edges[begins];
            let ready = if own { Some(span.ready_ns) } else { launches.release(span) };
            let ready = ready.unwrap_or(i64::MIN);
            if ready < edge.ready {
                (edge.ready, edge.is_replay) = (ready, launches.replays.has(span));
            }
            edge.sample = span.sample;
            edge.to_comm |= comm;
            edge.from_comm |= own && is_receive;
        }
        if comm && start < end {
            ends = seek(gaps, ends, |gap| gap.0 < end);
            if gaps.get(ends).is_some_and(|gap| gap.0 == end) {
                edges[ends].from_comm = true;
            }
        }
    });
    edges
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::testing::{span, trace};

    #[test]
    fn stretches_tell_what_was_exposed_and_what_waited() {
        let [compute, comm] = [Lane::Compute, Lane::Comm];
        let with = |operation: u32, span: Span| Span { operation, ..span };
        let trace = trace(vec![
            span(0, compute, 100, 200),
            // of two collectives the longer one fills the stretch
            with(4, span(0, comm, 150, 240)),
            span(0, comm, 240, 400),
            with(2, span(0, compute, 450, 500)),
            span(0, comm, 480, 530),
            span(0, comm, 540, 545),
            with(3, span(0, compute, 550, 600)),
            span(1, compute, 100, 200),
            span(1, comm, 200, 400),
            span(1, comm, 700, 710),
        ]);
        let told = exposed_stretches(&trace, &Selection::default());
        assert_eq!(told.count, 4, "what both ranks have is one");
        let rows: Vec<_> = told
            .longest
            .iter()
            .map(|s| (&s.ranks[..], s.at_us, s.length_us, s.collective.as_str(), s.waited.as_deref()))
            .collect();
        let (reduce, attend, norm) =
            ("decode/L0/mlp/reduce", "decode/L0/attn/attend", "decode/L0/attn/norm");
        assert_eq!(
            rows,
            [
                (&[0, 1][..], 0.1, 0.2, reduce, Some(attend)),
                (&[0], 0.4, 0.03, reduce, Some(norm)),
                (&[1], 0.6, 0.01, reduce, None),
                (&[0], 0.44, 0.005, reduce, Some(norm)),
            ]
        );
        assert_eq!(told.longest[0].span, 2);
        let family = &told.families[0];
        assert_eq!((family.collective.as_str(), family.calls), ("decode/L*/mlp/reduce", 5));
        assert_eq!(family.waited.as_deref(), Some("decode/L*/attn/norm"));
        assert_eq!(family.longest[0], (2, 0.2), "the longest first");
        assert_eq!((family.count, told.steps, told.ranks), (4, 1, 2));
        assert!((family.total_us - told.total_us).abs() < 1e-9, "all of it is this collective");
        let selection = Selection { from_ns: Some(420), ..Selection::default() };
        let late = exposed_stretches(&trace, &selection);
        assert_eq!((late.count, late.longest[0].length_us), (3, 0.01), "clipped to what is selected");
    }

    /// Two ranks whose clocks are apart by 3 ms, and a window that begins and ends within kernels of both.
    #[test]
    fn window_times_are_those_of_the_overlap_of_the_same_window_on_each_clock() {
        const APART: i64 = 3_000_000;
        let [compute, comm] = [Lane::Compute, Lane::Comm];
        let of_rank = |rank: u32, late: i64| {
            let at = |lane, from: i64, to: i64| {
                let shift = i64::from(rank) * APART;
                span(rank, lane, from + shift, to + shift)
            };
            // launched 20 before its start
            let next = at(compute, 260 + late, 400);
            [
                at(compute, 0, 100),
                at(comm, 90, 200),
                Span { ready_ns: next.start_ns - 20, ..next },
                at(comm, 380, 450),
                at(compute, 450, 600),
            ]
        };
        let mut trace = trace([of_rank(0, 0), of_rank(1, 30)].concat());
        (trace.meta.spec, trace.meta.import) = (None, Some(Default::default()));
        let window = (50, 500);
        let ranks = [(0, 0), (1, -APART)].map(|(rank, offset)| WindowRank {
            rank,
            offset,
            collectives: vec![(90, 200)],
        });
        let found = window_times(&trace, &ranks, &[window])[0];
        let [mut exposed_us, mut host_us] = [0.0; 2];
        for (at, WindowRank { offset, .. }) in ranks.iter().enumerate() {
            let [from_ns, to_ns] = [window.0, window.1].map(|time| Some(time - offset));
            let selection = Selection { from_ns, to_ns, ..Selection::default() };
            let report = super::super::trace_report(&trace, &selection);
            exposed_us += report.overlap.ranks[at].exposed_comm_us / 2.0;
            host_us += report.idle[at].host_us / 2.0;
        }
        assert!((found.exposed / 1e3 - exposed_us).abs() < 1e-9, "{found:?}, not {exposed_us}");
        assert!((found.host / 1e3 - host_us).abs() < 1e-9, "{found:?}, not {host_us}");
        assert_eq!((found.exposed, found.exposed_others, found.host), (150.0, 50.0, 55.0));
    }

    /// Eight steps of one all-reduce, of which the first takes five times as long as the others.
    #[test]
    fn calls_total_and_longest_stretches_have_one_basis() {
        let spans = (0..8).flat_map(|step| {
            let at = i64::from(step) * 1_000;
            let length = if step == 0 { 500 } else { 100 + i64::from(step) };
            (0..2).flat_map(move |rank| {
                let of = |lane, from, to| Span { step, ..span(rank, lane, at + from, at + to) };
                [of(Lane::Compute, 0, 100), of(Lane::Comm, 100, 100 + length)]
            })
        });
        let told = exposed_stretches(&trace(spans.collect()), &Selection::default());
        let family = &told.families[0];
        assert_eq!((family.calls, told.ranks, told.steps), (16, 2, 8));
        assert!((family.total_us - 1.228).abs() < 1e-9, "{family:?}");
        assert_eq!((family.longest[0].1, family.count), (0.5, 8), "in the first step, one per step");
        assert_eq!(family.longest[1].1, 0.107, "then the last step's");
        let per_call = family.total_us * told.ranks as f64 / family.calls as f64;
        assert!(per_call <= family.longest[0].1 && per_call > 0.1, "{per_call}");
    }

    /// Two layers' all-reduces on one rank, the second one hidden, beside a rank that only computes.
    #[test]
    fn hidden_operations_count_as_calls_and_idle_ranks_in_means() {
        let [compute, comm] = [Lane::Compute, Lane::Comm];
        let layer = |operation: u32, span: Span| Span { operation, ..span };
        let mut trace = trace(vec![
            span(0, compute, 0, 100),
            span(0, comm, 100, 300),
            span(0, compute, 300, 600),
            layer(5, span(0, comm, 400, 500)),
            span(1, compute, 0, 600),
        ]);
        let reduce = trace.operations[trace.spans[1].operation as usize].clone();
        let name = reduce.name.replace("L0", "L1");
        trace.operations.push(trace::OperationInfo { name, layer: Some(1), ..reduce });
        let told = exposed_stretches(&trace, &Selection::default());
        let family = &told.families[0];
        assert_eq!((family.calls, told.ranks), (2, 2), "{family:?}");
        let per_call = family.total_us * told.ranks as f64 / family.calls as f64;
        assert!((per_call - 0.1).abs() < 1e-9, "0.2 us in two calls: {per_call}");
    }
}
