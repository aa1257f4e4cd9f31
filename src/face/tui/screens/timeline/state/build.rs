//! Construction of a trace index, off the drawing thread and on all cores: one pass sorts the spans into rows, a second one
//! sums up each row; exposed communication follows from the unions of the second pass.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use rayon::prelude::*;

use super::index::{RankRows, StepKey, StepRange, TraceIndex};
use super::row::{Arrival, SpanClass, SpanRow, Spans, ThreadRanges, Unions};
use super::window::TimeWindow;
use plan::Lane;
use study::analysis::{CollectiveMatching, mixed_steps};
use trace::overlap::Selection;
use trace::overlap::intervals::{self, Coverage};
use trace::{NO_STEP, Range, Span, Trace, TraceStream};

/// Spans of two ranks to compare before using other cores for the rest.
const FIRST: usize = 64;

const CHUNK: usize = 1 << 16;

/// Key of a row: rank, and stream or lane.
type RowKey = (u32, u32);

#[derive(Debug, Default)]
struct Chunk {
    rows: Vec<(RowKey, ChunkRow)>,
    steps: Vec<(StepKey, (i64, i64))>,
}

#[derive(Debug)]
struct ChunkRow {
    order: Vec<u32>,
    /// First and last start (ns).
    starts: (i64, i64),
    /// True if the starts are already ascending.
    sorted: bool,
}

fn row_key(span: &Span, streams: usize) -> RowKey {
    let stream = usize::from(span.stream);
    // lanes come after all streams; our own traces have only lanes
    let sub = if stream < streams { stream } else { streams + usize::from(span.lane == Lane::Comm) };
    (span.rank, sub as u32)
}

/// Sorts a chunk of spans into rows and steps; `base` is the index of its first span.
fn sort(spans: &[Span], base: usize, streams: usize) -> Chunk {
    const RECENT: usize = 64;
    let mut chunk = Chunk::default();
    let mut recent = [usize::MAX; RECENT];
    for (i, span) in spans.iter().enumerate() {
        let key = row_key(span, streams);
        let slot = &mut recent[(key.0 as usize).wrapping_mul(31).wrapping_add(key.1 as usize) % RECENT];
        if chunk.rows.get(*slot).is_none_or(|(k, _)| *k != key) {
            *slot = chunk.rows.iter().position(|(k, _)| *k == key).unwrap_or_else(|| {
                let starts = (span.start_ns, span.start_ns);
                chunk.rows.push((key, ChunkRow { order: Vec::new(), starts, sorted: true }));
                chunk.rows.len() - 1
            });
        }
        let part = &mut chunk.rows[*slot].1;
        part.order.push((base + i) as u32);
        part.sorted &= part.starts.1 <= span.start_ns;
        part.starts.1 = span.start_ns;
        let step = StepKey::from_span(span);
        match chunk.steps.last_mut() {
            Some((last, range)) if *last == step => {
                *range = (range.0.min(span.start_ns), range.1.max(span.end_ns));
            }
            _ => chunk.steps.push((step, (span.start_ns, span.end_ns))),
        }
    }
    chunk
}

type RankParts = BTreeMap<u32, Vec<ChunkRow>>;

fn gather(trace: &Trace) -> (BTreeMap<u32, RankParts>, BTreeMap<StepKey, (i64, i64)>) {
    let streams = trace.meta.streams.len();
    let chunks: Vec<Chunk> = trace
        .spans
        .par_chunks(CHUNK)
        .enumerate()
        .map(|(i, spans)| sort(spans, i * CHUNK, streams))
        .collect();
    let mut ranks: BTreeMap<u32, RankParts> = BTreeMap::new();
    let mut steps: BTreeMap<StepKey, (i64, i64)> = BTreeMap::new();
    for chunk in chunks {
        for ((rank, sub), part) in chunk.rows {
            ranks.entry(rank).or_default().entry(sub).or_default().push(part);
        }
        for (key, (from, to)) in chunk.steps {
            let range = steps.entry(key).or_insert((from, to));
            *range = (range.0.min(from), range.1.max(to));
        }
    }
    for rows in ranks.values_mut().filter(|_| streams == 0) {
        // an empty lane is informative, so keep it
        rows.entry(0).or_default();
        rows.entry(1).or_default();
    }
    for range in &trace.ranges {
        ranks.entry(range.rank).or_default();
    }
    (ranks, steps)
}

fn rank_rows(parts: RankParts, streams: &[TraceStream], spans: Spans) -> (Vec<SpanRow>, Coverage) {
    let (mut rows, unions): (Vec<SpanRow>, Vec<Unions>) = parts
        .into_par_iter()
        .map(|(sub, parts)| {
            let sorted = parts.iter().all(|part| part.sorted)
                && parts.windows(2).all(|pair| pair[0].starts.1 <= pair[1].starts.0);
            let mut order = Vec::with_capacity(parts.iter().map(|part| part.order.len()).sum());
            parts.iter().for_each(|part| order.extend_from_slice(&part.order));
            SpanRow::new(label(sub as usize, streams), order, sorted, spans)
        })
        .unzip();
    if !streams.is_empty() {
        // some programs use hundreds of streams once, which would push the busy ones off the screen
        let most = rows.iter().map(SpanRow::len).max().unwrap_or(0);
        rows.sort_by_key(|row| 100 * row.len() < most);
    }
    let comm = union(unions.iter().map(|u| u.comm.as_slice()));
    let compute = union(unions.iter().map(|u| u.compute.as_slice()));
    (rows, Coverage::new(intervals::difference(&comm, &compute)))
}

impl TraceIndex {
    /// Indexes a trace for drawing, on all cores. Stores the spans of ranks that did the same once.
    pub fn new(title: String, mut trace: Trace) -> Self {
        // the load of experts is compared between ranks
        let folded = if trace.has_experts() { Vec::new() } else { trace.fold_ranks() };
        Self::from_title(title, trace, folded)
    }

    pub(super) fn from_title(title: String, trace: Trace, folded: Vec<u32>) -> Self {
        let classes: Vec<SpanClass> = trace.operations.iter().map(SpanClass::from_operation).collect();
        let (parts, steps) = gather(&trace);
        let arrivals = arrivals(&trace);
        let spans = Spans { trace: &trace, classes: &classes, arrivals: &arrivals };
        let streams = &trace.meta.streams;
        // rank by rank, so that one rank's unions are freed before the next rank's are built
        let built: Vec<_> = parts
            .into_par_iter()
            .map(|(rank, parts)| {
                let (rows, exposed) = rank_rows(parts, streams, spans);
                let own = rows.iter().flat_map(|row| (0..row.len()).filter_map(|place| row.span(place)));
                let last = own.max_by_key(|span| spans.all()[*span].end_ns);
                (rank, (rows, exposed), last)
            })
            .collect();
        let zero = steps.values().map(|(from, _)| *from).min();
        let end = steps.values().map(|(_, to)| *to).max();
        let from = trace.ranges.iter().map(|r| r.start_ns).chain(zero).min().unwrap_or(0);
        let to = trace.ranges.iter().map(|r| r.end_ns).chain(end).max().unwrap_or(1);
        let range_rows = range_rows(&trace, (from, to));
        let mut rows = Vec::new();
        let ranks = built
            .into_iter()
            .map(|(rank, (own, exposed), last)| {
                let first = rows.len();
                rows.extend(own);
                let ranges = range_rows.partition_point(|r| r.rank < rank)
                    ..range_rows.partition_point(|r| r.rank <= rank);
                let label = rank_label(rank, streams);
                RankRows { rank, label, rows: first..rows.len(), ranges, exposed, last, same_as: None }
            })
            .collect();
        let mut steps: Vec<StepRange> = steps
            .into_iter()
            .filter(|(key, _)| key.step != NO_STEP)
            .map(|(key, (from, to))| StepRange { key, window: TimeWindow::new(from, to) })
            .collect();
        steps.sort_by_key(|s| (s.window.from, s.key));
        let step_places = steps.iter().enumerate().map(|(i, s)| (s.key, i)).collect();
        let default_phase = Selection::default_of(&trace).phase;
        let mixed = mixed_steps(&trace);
        let mut index = Self {
            trace,
            folded,
            title,
            opened: None,
            rules: None,
            recording: None,
            files: None,
            bounds: TimeWindow::new(from, to),
            zero: zero.unwrap_or(from),
            ranks,
            rows,
            range_rows,
            steps,
            typical_step: None,
            default_phase,
            mixed,
            classes,
            arrivals,
            step_places,
            experts: OnceLock::new(),
        };
        index.find_alike();
        index.typical_step = index.find_typical_step();
        index
    }

    /// Finds ranks identical to an earlier one. Stops comparing at the first difference.
    fn find_alike(&mut self) {
        let mut different: Vec<usize> = Vec::new();
        for at in 0..self.ranks.len() {
            let same = different.iter().copied().find(|other| self.is_alike(*other, at));
            self.ranks[at].same_as = same;
            if same.is_none() {
                different.push(at);
            }
        }
    }

    fn is_alike(&self, a: usize, b: usize) -> bool {
        let [a, b] = [&self.ranks[a], &self.ranks[b]];
        let rows = |rank: &RankRows| self.rows[rank.rows.clone()].iter();
        // ranges have a thread of their own process, so ranks with ranges are never merged
        let plain = a.ranges.is_empty() && b.ranges.is_empty();
        let bare = |span: &Span| Span { rank: 0, stream: 0, ..*span };
        let same = |(a, b): (&SpanRow, &SpanRow)| {
            let same = |place: usize| {
                let span = |row: &SpanRow| row.span(place).map(|at| bare(&self.trace.spans[at]));
                span(a) == span(b)
            };
            // differing ranks usually differ early; use other cores only if the first spans match
            let first = a.len().min(FIRST);
            a.label == b.label
                && a.len() == b.len()
                && (0..first).all(same)
                && (first..a.len()).into_par_iter().with_min_len(4_096).all(same)
        };
        plain && a.rows.len() == b.rows.len() && rows(a).zip(rows(b)).all(same)
    }
}

/// Arrival of the last rank at each collective, send and receive whose ranks an imported trace has all recorded; sorted by
/// span. The clocks of the ranks are already aligned.
fn arrivals(trace: &Trace) -> Vec<Arrival> {
    if trace.meta.import.is_none() || trace.meta.ranks < 2 {
        return Vec::new();
    }
    let matching = CollectiveMatching::from_trace(trace);
    let mut arrivals = Vec::new();
    // a rank that was not recorded may arrive last
    for collective in matching.collectives().filter(|collective| !collective.is_partial) {
        let starts = collective.places.iter().map(|place| trace.spans[*place].start_ns);
        let Some(last) = starts.max() else { continue };
        arrivals.extend(collective.places.iter().map(|place| (*place, last)));
    }
    arrivals.sort_unstable();
    arrivals
}

fn label(sub: usize, streams: &[TraceStream]) -> String {
    match streams.get(sub) {
        Some(stream) => stream.label(),
        None if sub == streams.len() => Lane::Compute.as_str().into(),
        None => Lane::Comm.as_str().into(),
    }
}

/// Rows of named ranges; below the ranges of a thread, rows of its operators and calls. Skips operators and calls outside
/// of `from..to`, the bounds of the spans and ranges, because no window shows them.
fn range_rows(trace: &Trace, (from, to): (i64, i64)) -> Vec<ThreadRanges> {
    let (ranges, host) = (&trace.ranges[..], &trace.meta.host.events[..]);
    let mut rows: BTreeMap<(u32, u16, bool, u16), Vec<u32>> = BTreeMap::new();
    let mut add = |is_host_work: bool, i: usize, range: &Range| {
        let key = (range.rank, range.thread, is_host_work, range.depth);
        rows.entry(key).or_default().push(i as u32);
    };
    ranges.iter().enumerate().for_each(|(i, range)| add(false, i, range));
    let seen = host.iter().enumerate().filter(|(_, work)| work.end_ns > from && work.start_ns < to);
    seen.for_each(|(i, work)| add(true, i, work));
    rows.into_iter()
        .map(|(key, order)| ThreadRanges::new(key, order, if key.2 { host } else { ranges }))
        .collect()
}

fn union<'a>(parts: impl Iterator<Item = &'a [(i64, i64)]>) -> Cow<'a, [(i64, i64)]> {
    let parts: Vec<&[(i64, i64)]> = parts.filter(|part| !part.is_empty()).collect();
    match parts[..] {
        [] => Default::default(),
        [one] => one.into(),
        _ => {
            // the stable sort detects and merges the sorted runs
            let mut all = parts.concat();
            all.sort();
            intervals::union(all).into()
        }
    }
}

/// Label of a rank: `r0`, or `r1 p4711 gpu1` if all streams of the rank share a process and device.
fn rank_label(rank: u32, streams: &[TraceStream]) -> String {
    let own = || streams.iter().filter(move |s| s.rank == rank);
    let agreed = |get: fn(&TraceStream) -> Option<i64>| {
        let first = own().next().and_then(get)?;
        own().all(|s| get(s) == Some(first)).then_some(first)
    };
    let process = agreed(|s| s.process).map(|process| format!(" p{process}"));
    let device = agreed(|s| s.device).map(|device| format!(" gpu{device}"));
    format!("r{rank}{}{}", process.unwrap_or_default(), device.unwrap_or_default())
}
