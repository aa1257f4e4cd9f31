//! Builds the index of a trace: one pass over the spans sorts them into rows, a second sums each row
//! up, both in parallel. What is exposed follows from the unions that the second pass leaves.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;

use super::cover::Cover;
use super::index::{RankRows, StepKey, StepRange, TraceIndex};
use super::ranges::RangeRow;
use super::row::{Class, Row, Spans, Unions};
use crate::plan::Lane;
use crate::trace::{Range, Span, Stream, Trace};
use crate::tui::state::window::Window;

/// Spans that one task sorts into rows.
const CHUNK: usize = 1 << 16;

/// What makes a row: a rank, and its stream or lane.
type RowKey = (u32, u32);

/// What one task found in its spans.
#[derive(Debug, Default)]
struct Chunk {
    rows: Vec<(RowKey, Part)>,
    steps: Vec<(StepKey, (i64, i64))>,
}

/// A row's spans within a chunk.
#[derive(Debug)]
struct Part {
    order: Vec<u32>,
    /// First and last start (ns).
    starts: (i64, i64),
    /// Starts ascend.
    sorted: bool,
}

fn row_key(span: &Span, streams: usize) -> RowKey {
    let stream = usize::from(span.stream);
    // lanes come behind all streams: own traces have lanes only
    let sub = if stream < streams { stream } else { streams + usize::from(span.lane == Lane::Comm) };
    (span.rank, sub as u32)
}

/// Sorts a chunk of spans, the first of which is number `base`, into rows and steps.
fn sort(spans: &[Span], base: usize, streams: usize) -> Chunk {
    const RECENT: usize = 64;
    let mut chunk = Chunk::default();
    // where rows were found last: spans of a row come in runs, or a few rows take turns
    let mut recent = [usize::MAX; RECENT];
    for (i, span) in spans.iter().enumerate() {
        let key = row_key(span, streams);
        let slot = &mut recent[(key.0 as usize).wrapping_mul(31).wrapping_add(key.1 as usize) % RECENT];
        if chunk.rows.get(*slot).is_none_or(|(k, _)| *k != key) {
            *slot = chunk.rows.iter().position(|(k, _)| *k == key).unwrap_or_else(|| {
                let starts = (span.start_ns, span.start_ns);
                chunk.rows.push((key, Part { order: Vec::new(), starts, sorted: true }));
                chunk.rows.len() - 1
            });
        }
        let part = &mut chunk.rows[*slot].1;
        part.order.push((base + i) as u32);
        part.sorted &= part.starts.1 <= span.start_ns;
        part.starts.1 = span.start_ns;
        let step = StepKey::of(span);
        match chunk.steps.last_mut() {
            Some((last, range)) if *last == step => {
                *range = (range.0.min(span.start_ns), range.1.max(span.end_ns));
            }
            _ => chunk.steps.push((step, (span.start_ns, span.end_ns))),
        }
    }
    chunk
}

impl TraceIndex {
    /// Indexes a trace.
    pub fn new(title: String, trace: Trace) -> Self {
        let streams = trace.meta.streams.len();
        let classes: Vec<Class> = trace.operations.iter().map(Class::of).collect();
        let chunks: Vec<Chunk> = trace
            .spans
            .par_chunks(CHUNK)
            .enumerate()
            .map(|(i, spans)| sort(spans, i * CHUNK, streams))
            .collect();
        let mut parts: BTreeMap<RowKey, Vec<Part>> = BTreeMap::new();
        let mut steps: BTreeMap<StepKey, (i64, i64)> = BTreeMap::new();
        for chunk in chunks {
            for (key, part) in chunk.rows {
                parts.entry(key).or_default().push(part);
            }
            for (key, (from, to)) in chunk.steps {
                let range = steps.entry(key).or_insert((from, to));
                *range = (range.0.min(from), range.1.max(to));
            }
        }
        if streams == 0 {
            // a lane without spans is a finding, too
            let ranks: BTreeSet<u32> = parts.keys().map(|(rank, _)| *rank).collect();
            for key in ranks.into_iter().flat_map(|rank| [(rank, 0), (rank, 1)]) {
                parts.entry(key).or_default();
            }
        }
        let spans = Spans { all: &trace.spans, classes: &classes };
        let parts: Vec<(RowKey, Vec<Part>)> = parts.into_iter().collect();
        let (rows, unions): (Vec<Row>, Vec<Unions>) = parts
            .into_par_iter()
            .map(|((rank, sub), parts)| {
                let sorted = parts.iter().all(|part| part.sorted)
                    && parts.windows(2).all(|pair| pair[0].starts.1 <= pair[1].starts.0);
                let mut order = Vec::with_capacity(parts.iter().map(|part| part.order.len()).sum());
                parts.iter().for_each(|part| order.extend_from_slice(&part.order));
                Row::new(rank, label(sub as usize, &trace.meta.streams), order, sorted, spans)
            })
            .unzip();
        let range_rows = range_rows(&trace.ranges);
        let ranks = ranks(&rows, &unions, &range_rows, &trace.meta.streams);
        let zero = steps.values().map(|(from, _)| *from).min().unwrap_or(0);
        let extent = |spans: i64, ranges: Option<i64>, pick: fn(i64, i64) -> i64| match ranges {
            Some(ranges) if steps.is_empty() => ranges,
            Some(ranges) => pick(spans, ranges),
            None => spans,
        };
        let end = steps.values().map(|(_, to)| *to).max().unwrap_or(1);
        let bounds = Window::new(
            extent(zero, trace.ranges.iter().map(|r| r.start_ns).min(), i64::min),
            extent(end, trace.ranges.iter().map(|r| r.end_ns).max(), i64::max),
        );
        let mut steps: Vec<StepRange> = steps
            .into_iter()
            .map(|(key, (from, to))| StepRange { key, window: Window::new(from, to) })
            .collect();
        steps.sort_by_key(|s| (s.window.from, s.key));
        let step_places = steps.iter().enumerate().map(|(i, s)| (s.key, i)).collect();
        Self { trace, title, bounds, zero, ranks, rows, range_rows, steps, classes, step_places }
    }
}

/// `compute`, `comm`, or a stream's number.
fn label(sub: usize, streams: &[Stream]) -> String {
    match streams.get(sub) {
        Some(stream) => format!("stream {}", stream.id),
        None if sub == streams.len() => Lane::Compute.as_str().into(),
        None => Lane::Comm.as_str().into(),
    }
}

fn range_rows(ranges: &[Range]) -> Vec<RangeRow> {
    let mut rows: BTreeMap<(u32, u16, u16), Vec<u32>> = BTreeMap::new();
    for (i, range) in ranges.iter().enumerate() {
        rows.entry((range.rank, range.thread, range.depth)).or_default().push(i as u32);
    }
    rows.into_iter()
        .map(|((rank, thread, depth), order)| RangeRow::new(rank, thread, depth, order, ranges))
        .collect()
}

/// The ranks, each with its rows (which are sorted by rank).
fn ranks(rows: &[Row], unions: &[Unions], ranges: &[RangeRow], streams: &[Stream]) -> Vec<RankRows> {
    let numbers: BTreeSet<u32> =
        rows.iter().map(|r| r.rank).chain(ranges.iter().map(|r| r.rank)).collect();
    let numbers: Vec<u32> = numbers.into_iter().collect();
    numbers
        .into_par_iter()
        .map(|rank| {
            let rows = rows.partition_point(|r| r.rank < rank)..rows.partition_point(|r| r.rank <= rank);
            let ranges =
                ranges.partition_point(|r| r.rank < rank)..ranges.partition_point(|r| r.rank <= rank);
            let unions = &unions[rows.clone()];
            let comm = union(unions.iter().map(|u| u.comm.as_slice()));
            let compute = union(unions.iter().map(|u| u.compute.as_slice()));
            let exposed = Cover::disjoint(crate::analysis::intervals::difference(&comm, &compute));
            RankRows { rank, label: rank_label(rank, streams), rows, ranges, exposed }
        })
        .collect()
}

/// The union of unions.
fn union<'a>(parts: impl Iterator<Item = &'a [(i64, i64)]>) -> std::borrow::Cow<'a, [(i64, i64)]> {
    let parts: Vec<&[(i64, i64)]> = parts.filter(|part| !part.is_empty()).collect();
    match parts[..] {
        [] => Default::default(),
        [one] => one.into(),
        _ => {
            // sorted runs one behind another: the stable sort finds them and merges them
            let mut all = parts.concat();
            all.sort();
            crate::analysis::intervals::union(all).into()
        }
    }
}

/// `r0`, `r1 p4711 gpu 1`: process and device where all streams of the rank agree on them.
fn rank_label(rank: u32, streams: &[Stream]) -> String {
    let own = || streams.iter().filter(move |s| s.rank == rank);
    let mut label = format!("r{rank}");
    let agreed = |get: fn(&Stream) -> Option<i64>| {
        let first = own().next().and_then(get)?;
        own().all(|s| get(s) == Some(first)).then_some(first)
    };
    if let Some(process) = agreed(|s| s.process) {
        label.push_str(&format!(" p{process}"));
    }
    if let Some(device) = agreed(|s| s.device) {
        label.push_str(&format!(" gpu{device}"));
    }
    label
}
