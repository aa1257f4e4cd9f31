//! Longest stretches of exposed communication, each with the collective that fills it and the next compute operation;
//! exposed communication by collective.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;

use super::names::over_layers;
use table::render::{Shown, Table};
use trace::overlap::intervals::{Coverage, TimeInterval, difference};
use trace::overlap::{Class, LaneNanoseconds, Lanes, Selection, SpanRuns, StepKey, us};
use trace::{NO_STEP, Span, Trace};

const MOST: usize = 1_000;

/// Maximum number of calls kept of a family.
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
    /// Effect of the collective on that operation: `holds up` or `launched later`; null if the trace does not show it.
    #[serde(serialize_with = "label_or_null")]
    #[schemars(with = "Option<String>")]
    pub effect: NextCompute,
    #[serde(skip)]
    pub span: usize,
    /// Start and end (ns, trace clock).
    #[serde(skip)]
    pub interval: TimeInterval,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ExposedStretches {
    /// Number of stretches; one shared by several ranks counts once.
    pub count: u64,
    /// Total per rank, averaged over ranks (us).
    pub total_us: f64,
    /// The longest stretches, at most 1000, longest first.
    pub longest: Vec<ExposedStretch>,
    /// Exposed communication by collective, largest total first; only from [`exposed_stretches`].
    #[serde(skip)]
    pub families: Vec<StretchFamily>,
    /// Ranks that totals are averaged over, also those that do not communicate.
    #[serde(skip)]
    pub ranks: u64,
    /// Time between first start and last end per rank (us).
    #[serde(skip)]
    pub time_us: f64,
}

/// Exposed communication of one collective of all layers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StretchFamily {
    /// Name, with `L*` for the layer.
    pub collective: String,
    /// Calls over all ranks, hidden ones included.
    pub calls: u64,
    /// Total per rank, averaged over ranks (us).
    pub total_us: f64,
    /// Mean time of a call before its last rank arrived (us); `None` if no arrival is known.
    pub peer_wait_us: Option<f64>,
    /// Mean time of a call after its last rank arrived (us).
    pub transfer_us: Option<f64>,
    /// Compute operation that it held up most often, with `L*` for its layer; `None` if it mostly held up none.
    pub held_up: Option<String>,
    /// True if the next compute operation was mostly launched after its end: the host was late.
    pub is_host_late: bool,
    /// The most exposed calls, at most 100: index of the span, and its exposed time (us), longest first.
    pub longest: Vec<(usize, f64)>,
    /// Number of exposed calls; one that several ranks made at the same times counts once.
    pub count: usize,
}

/// Effect of a collective on the compute span that follows it on its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextCompute {
    /// It starts as soon as the collective ends.
    HeldUp,
    /// It was launched this long after the collective ended (ns): the host was late.
    LaunchedLater(i64),
    /// It starts before the collective ends, or later for an unknown reason.
    Unrelated,
}

/// Serializes the label of an effect, or null.
fn label_or_null<S: serde::Serializer>(effect: &NextCompute, serializer: S) -> Result<S::Ok, S::Error> {
    effect.label().serialize(serializer)
}

impl NextCompute {
    /// Label in tables and files.
    pub fn label(self) -> Option<&'static str> {
        match self {
            Self::HeldUp => Some("holds up"),
            Self::LaunchedLater(_) => Some("launched later"),
            Self::Unrelated => None,
        }
    }

    pub fn new(trace: &Trace, collective: &Span, next: &Span) -> Self {
        /// Longest time between the end of a collective and the start of a kernel that waited for it (ns).
        const RIGHT_AFTER: i64 = 5_000;
        let end = collective.end_ns;
        // ready times of own traces are those of the operands
        let has_launch = trace.meta.import.is_some() && next.is_launch_known();
        match next.start_ns.saturating_sub(end) {
            ..0 => Self::Unrelated,
            _ if has_launch && next.ready_ns > end => {
                Self::LaunchedLater(next.ready_ns.saturating_sub(end))
            }
            0..=RIGHT_AFTER => Self::HeldUp,
            _ => Self::Unrelated,
        }
    }
}

/// Exposed stretches of the selected part of a trace, listed and by collective.
pub fn exposed_stretches(trace: &Trace, selection: &Selection) -> ExposedStretches {
    let runs = SpanRuns::new(trace, selection);
    let lanes = Lanes::from_runs(&runs);
    let bare = Bare::all(&lanes);
    let filled = filled(&runs, &bare, usize::MAX);
    let longest = filled.iter().take(MOST).map(|filled| filled.stretch(&runs)).collect();
    let families = families(&runs, &lanes, &filled);
    let sums: LaneNanoseconds = lanes.iter().map(Lanes::sums).sum();
    ExposedStretches {
        families,
        ranks: lanes.len() as u64,
        time_us: us(sums.span_ns) / lanes.len().max(1) as f64,
        ..bare_stretches(&bare, lanes.len(), longest)
    }
}

pub fn stretches_table(stretches: &[ExposedStretch]) -> Table {
    let us = Shown::Time;
    let ranks = |s: &ExposedStretch| s.ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    Table::from_rows(
        stretches,
        &[
            ("at_us|start_us", &|s| Shown::instant(s.at_us)),
            ("length_us", &|s| us(s.length_us)),
            ("ranks", &|s| Shown::text(ranks(s))),
            ("sample", &|s| s.step.sample.into()),
            ("phase|", &|s| Shown::text(s.step.phase.as_str())),
            ("step", &|s| Some(s.step.step).filter(|step| *step != NO_STEP).into()),
            ("~collective", &|s| Shown::text(&s.collective)),
            ("effect", &|s| s.effect.label().into()),
            ("~waited|next operation", &|s| s.waited.as_deref().into()),
        ],
    )
    .least(&["sample", "ranks"])
}

/// Interval without its collective: index of the rank, start and end (ns).
#[derive(Clone, Copy)]
struct Bare {
    rank: usize,
    interval: TimeInterval,
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

fn bare_stretches(bare: &[Bare], ranks: usize, longest: Vec<ExposedStretch>) -> ExposedStretches {
    let sum: i64 = bare.iter().map(Bare::length).sum();
    let count = bare.chunk_by(|a, b| a.interval == b.interval).count() as u64;
    let total_us = sum as f64 / 1e3 / ranks.max(1) as f64;
    ExposedStretches { count, total_us, longest, ..ExposedStretches::default() }
}

/// Longest stretches from collected lanes: one sort, plus a pass over the spans of the ranks involved.
pub(super) fn exposed(runs: &SpanRuns, lanes: &[Lanes]) -> ExposedStretches {
    let bare = Bare::all(lanes);
    let longest = filled(runs, &bare, MOST).iter().map(|filled| filled.stretch(runs)).collect();
    bare_stretches(&bare, lanes.len(), longest)
}

/// Stretch with the span of the collective that fills most of it, and the next compute span.
struct Filled<'a> {
    group: &'a [Bare],
    place: usize,
    waited: Option<&'a Span>,
}

impl Filled<'_> {
    fn stretch(&self, runs: &SpanRuns) -> ExposedStretch {
        let (span, interval) = (&runs.trace.spans[self.place], self.group[0].interval);
        let name = |span: &Span| {
            let operation = runs.trace.operations.get(span.operation as usize);
            operation.map_or_else(|| "?".to_owned(), |operation| operation.name.clone())
        };
        ExposedStretch {
            ranks: self.group.iter().map(|bare| runs.ranks[bare.rank]).collect(),
            at_us: us(interval.0.saturating_sub(runs.origin)),
            length_us: us(interval.1.saturating_sub(interval.0)),
            step: StepKey::from_span(span),
            collective: name(span),
            waited: self.waited.map(name),
            effect: self
                .waited
                .map_or(NextCompute::Unrelated, |next| NextCompute::new(runs.trace, span, next)),
            span: self.place,
            interval,
        }
    }
}

/// The `most` longest stretches, filled, longest first.
fn filled<'a>(runs: &'a SpanRuns, bare: &'a [Bare], most: usize) -> Vec<Filled<'a>> {
    let groups: Vec<&[Bare]> = bare.chunk_by(|a, b| a.interval == b.interval).take(most).collect();
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
fn filled_of_rank<'a>(runs: &'a SpanRuns, rank: usize, mut groups: Vec<&'a [Bare]>) -> Vec<Filled<'a>> {
    if groups.is_empty() {
        return Vec::new();
    }
    groups.sort_unstable_by_key(|group| group[0].interval);
    let intervals: Vec<TimeInterval> = groups.iter().map(|group| group[0].interval).collect();
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

/// Calls of a collective over all layers and ranks.
#[derive(Default)]
struct Calls {
    /// Exposed time (ns) and place of each call that is exposed.
    exposed: Vec<(i64, usize)>,
    /// Number of calls that start in the selection.
    count: u64,
    /// Number of those whose last arrival is known, their time before it, and after it (ns).
    arrived: u64,
    wait_ns: i64,
    transfer_ns: i64,
    /// Operations that its stretches held up, and how often.
    held_up: BTreeMap<String, u64>,
    /// Number of stretches whose next operation was launched after the end.
    late: u64,
}

impl Calls {
    /// Adds a call, with its wait and transfer if its last arrival is known.
    fn add(&mut self, runs: &SpanRuns, place: usize, exposed: &Coverage) {
        let span = &runs.trace.spans[place];
        let exposed_ns: i64 = runs.pieces(span).map(|piece| exposed.within(piece)).sum();
        if exposed_ns > 0 {
            self.exposed.push((exposed_ns, place));
        }
        if !runs.counts(span) {
            return;
        }
        self.count += 1;
        if let Some(arrival) = runs.trace.arrival(span) {
            self.arrived += 1;
            self.wait_ns = self.wait_ns.saturating_add(arrival - span.start_ns);
            self.transfer_ns = self.transfer_ns.saturating_add(span.end_ns.saturating_sub(arrival));
        }
    }

    fn family(mut self, collective: String, runs: &SpanRuns) -> StretchFamily {
        let total_ns: i64 = self.exposed.iter().map(|(ns, _)| ns).sum();
        // a call that several ranks made at the same times is listed once
        let key = |(ns, place): &(i64, usize)| {
            let span = &runs.trace.spans[*place];
            (std::cmp::Reverse(*ns), span.start_ns, span.end_ns, span.operation)
        };
        self.exposed.sort_by_key(|call| (key(call), call.1));
        self.exposed.dedup_by_key(|call| key(&*call));
        let mean = |ns: i64| (self.arrived > 0).then(|| us(ns) / self.arrived as f64);
        let longest = self.exposed.iter().take(MOST_OF_FAMILY);
        let is_host_late = self.late > self.held_up.values().sum::<u64>();
        let held_up = self.held_up.into_iter().rev().max_by_key(|(_, count)| *count);
        StretchFamily {
            collective,
            calls: self.count,
            total_us: us(total_ns) / runs.ranks.len().max(1) as f64,
            peer_wait_us: mean(self.wait_ns),
            transfer_us: mean(self.transfer_ns),
            longest: longest.map(|(ns, place)| (*place, us(*ns))).collect(),
            count: self.exposed.len(),
            held_up: held_up.filter(|_| !is_host_late).map(|(name, _)| name),
            is_host_late,
        }
    }
}

/// Sums the calls of collectives over all layers, and the operations that their stretches held up.
fn families(runs: &SpanRuns, lanes: &[Lanes], filled: &[Filled]) -> Vec<StretchFamily> {
    let names: Vec<String> =
        runs.trace.operations.iter().map(|operation| over_layers(operation).into_owned()).collect();
    let name = |operation: u32| names.get(operation as usize).map_or("?", String::as_str);
    let mut families: BTreeMap<&str, Calls> = BTreeMap::new();
    for (of_rank, lanes) in runs.by_rank.iter().zip(lanes) {
        let exposed = Coverage::new(difference(&lanes.comm, lanes.compute.union()));
        for place in of_rank.iter().flat_map(|run| run.at.clone()) {
            let span = &runs.trace.spans[place];
            if runs.class(span) == Class::Comm {
                let calls = families.entry(name(span.operation)).or_default();
                calls.add(runs, place, &exposed);
            }
        }
    }
    for stretch in filled {
        let collective = &runs.trace.spans[stretch.place];
        let family = families.get_mut(name(collective.operation));
        let Some((calls, next)) = family.zip(stretch.waited) else { continue };
        match NextCompute::new(runs.trace, collective, next) {
            NextCompute::HeldUp => {
                *calls.held_up.entry(name(next.operation).to_owned()).or_default() += 1;
            }
            NextCompute::LaunchedLater(_) => calls.late += 1,
            NextCompute::Unrelated => {}
        }
    }
    let families = families.into_iter().filter(|(_, calls)| !calls.exposed.is_empty());
    let mut families: Vec<StretchFamily> =
        families.map(|(name, calls)| calls.family(name.to_owned(), runs)).collect();
    families.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
    families
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::Lane;
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
        let found = exposed_stretches(&trace, &Selection::default());
        assert_eq!(found.count, 4, "what both ranks have is one");
        let rows: Vec<_> = found
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
        assert_eq!(found.longest[0].span, 2);
        let family = &found.families[0];
        assert_eq!((family.collective.as_str(), family.calls), ("decode/L*/mlp/reduce", 5));
        assert_eq!(family.held_up.as_deref(), Some("decode/L*/attn/norm"));
        assert_eq!(family.longest[0], (8, 0.2), "the most exposed call first");
        assert_eq!((family.count, found.ranks), (5, 2));
        // another collective begins the longest stretch
        let [other] = &found.families[1..] else { panic!("{:?}", found.families) };
        assert_eq!(other.longest, [(1, 0.04)]);
        assert!((family.total_us + other.total_us - found.total_us).abs() < 1e-9);
        let selection = Selection { from_ns: Some(420), ..Selection::default() };
        let late = exposed_stretches(&trace, &selection);
        assert_eq!((late.count, late.longest[0].length_us), (3, 0.01), "clipped to what is selected");
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
        let found = exposed_stretches(&trace(spans.collect()), &Selection::default());
        let family = &found.families[0];
        assert_eq!((family.calls, found.ranks), (16, 2));
        assert!((family.total_us - 1.228).abs() < 1e-9, "{family:?}");
        assert_eq!((family.longest[0].1, family.count), (0.5, 8), "in the first step, one per step");
        assert_eq!(family.longest[1].1, 0.107, "then the last step's");
        let per_call = family.total_us * found.ranks as f64 / family.calls as f64;
        assert!(per_call <= family.longest[0].1 && per_call > 0.1, "{per_call}");
    }

    /// Trace of a run of one rank.
    fn alone(spans: Vec<Span>) -> Trace {
        let mut trace = trace(spans);
        trace.meta.spec.iter_mut().for_each(|spec| spec.tp = 1);
        trace
    }

    /// An emulated collective of the only recorded rank begins when that rank arrives, whenever the others would.
    #[test]
    fn a_trace_without_some_ranks_separates_no_waiting() {
        let reduce = Span { last_arrival_ns: 100, ..span(0, Lane::Comm, 100, 200) };
        let mut trace = alone(vec![span(0, Lane::Compute, 0, 100), reduce]);
        let waited = |trace: &Trace| {
            let family = exposed_stretches(trace, &Selection::default()).families[0].clone();
            let all = trace::overlap::overlap(trace, &Selection::default()).all;
            (family.peer_wait_us, family.transfer_us, all.peer_wait_us)
        };
        assert_eq!(waited(&trace), (Some(0.0), Some(0.1), Some(0.0)));
        trace.meta.spec.iter_mut().for_each(|spec| spec.tp = 8);
        assert!(trace.lacks_ranks());
        assert_eq!(waited(&trace), (None, None, None));
    }

    /// All-reduces of an imported trace; most of the kernels behind them were launched after their ends.
    #[test]
    fn a_collective_holds_up_no_kernel_that_was_launched_after_it() {
        let [compute, comm] = [Lane::Compute, Lane::Comm];
        let launched = |ready_ns, span| Span { ready_ns, ..span };
        let of = |late: usize| {
            let spans = (0..4usize).flat_map(|at| {
                let start = at as i64 * 100_000;
                let ready = start + if at < late { 22_000 } else { 10_000 };
                let kernel = span(0, compute, start + 23_000, start + 30_000);
                [span(0, comm, start, start + 20_000), launched(ready, kernel)]
            });
            let mut trace = alone(spans.collect());
            (trace.meta.spec, trace.meta.import) = (None, Some(Default::default()));
            let found = exposed_stretches(&trace, &Selection::default());
            let effects = found.longest.iter().filter_map(|stretch| stretch.effect.label());
            let launched_later = effects.filter(|effect| *effect == "launched later").count();
            let family = &found.families[0];
            (family.held_up.is_some(), family.is_host_late, launched_later)
        };
        assert_eq!((of(1), of(3)), ((true, false, 1), (false, true, 3)));
    }

    /// One all-reduce, cut by a short kernel, that fills two intervals.
    #[test]
    fn the_longest_exposed_call_is_not_cut_by_a_kernel() {
        let [compute, comm] = [Lane::Compute, Lane::Comm];
        let reduce = Span { last_arrival_ns: 130, ..span(0, comm, 100, 200) };
        let found = exposed_stretches(
            &alone(vec![span(0, compute, 0, 100), reduce, span(0, compute, 150, 160)]),
            &Selection::default(),
        );
        let [family] = &found.families[..] else { panic!("{:?}", found.families) };
        assert_eq!((found.count, &family.longest[..]), (2, &[(1, 0.09)][..]));
        assert_eq!((family.peer_wait_us, family.transfer_us), (Some(0.03), Some(0.07)));
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
        let found = exposed_stretches(&trace, &Selection::default());
        let family = &found.families[0];
        assert_eq!((family.calls, found.ranks), (2, 2), "{family:?}");
        let per_call = family.total_us * found.ranks as f64 / family.calls as f64;
        assert!((per_call - 0.1).abs() < 1e-9, "0.2 us in two calls: {per_call}");
    }
}
