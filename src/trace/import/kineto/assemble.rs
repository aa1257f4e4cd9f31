//! From the tables of all files to one trace: ranks, streams, operations, nesting, order.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rayon::prelude::*;

use super::event::Gpu;
use super::number::last_integer;
use super::ranks::{Place, places};
use super::report::{report, warnings};
use super::scan::unescape;
use super::table::{PART, Table};
use super::top::Facts;
use crate::plan::{Cost, Lane, Phase};
use crate::spec::Provenance;
use crate::trace::{FORMAT_VERSION, OperationInfo, Range, Stream, Trace, TraceMeta};

/// A file, read and linked.
pub(super) struct ReadFile {
    pub(super) name: String,
    pub(super) table: Table,
    pub(super) facts: Facts,
    pub(super) warnings: Vec<String>,
    /// Spans whose launch is known.
    pub(super) launched: usize,
}

/// A stream's key, taken apart.
pub(super) struct StreamKey {
    pub(super) pid: Option<i64>,
    pub(super) device: Option<i64>,
    pub(super) id: Option<i64>,
}

/// Takes a [`Table::streams`] key apart.
pub(super) fn stream_key(key: &[u8]) -> StreamKey {
    let mut parts = key.split(|byte| *byte == PART).map(last_integer);
    let mut next = || parts.next().flatten();
    StreamKey { pid: next(), device: next(), id: next() }
}

/// Names of all files, decoded and numbered in their own order, so that numbers do not depend on which
/// thread read what.
struct Names {
    texts: Vec<String>,
    replaced: u64,
}

impl Names {
    /// Of every file's used names; the result's second part maps a file's numbers to these.
    fn of(files: &[ReadFile], used: impl Fn(&ReadFile) -> BTreeSet<u32>) -> (Self, Vec<HashMap<u32, u32>>) {
        let mut replaced = 0;
        let mut all: BTreeMap<String, u32> = BTreeMap::new();
        let decoded: Vec<Vec<(u32, String)>> = files
            .iter()
            .map(|file| {
                let texts = file.table.names.texts();
                let decode = |number: u32| {
                    let (text, lossy) = unescape(texts[number as usize]);
                    replaced += u64::from(lossy);
                    all.insert(text.clone(), 0);
                    (number, text)
                };
                used(file).into_iter().map(decode).collect()
            })
            .collect();
        all.values_mut().zip(0..).for_each(|(number, at)| *number = at);
        let maps = decoded
            .into_iter()
            .map(|names| names.into_iter().map(|(number, text)| (number, all[&text])).collect())
            .collect();
        (Self { texts: all.into_keys().collect(), replaced }, maps)
    }
}

/// One trace of all files. There is at least one.
pub(super) fn assemble(mut files: Vec<ReadFile>) -> Trace {
    let mut said = warnings(&files);
    let (placed, rank_warnings) = places(&files);
    said.extend(rank_warnings);
    let shifts = shifts(&files, &mut said);
    let report = report(&files);

    // operations: distinct names and kinds
    let (operation_names, name_maps) = Names::of(&files, |file| {
        file.table.spans.iter().map(|span| span.operation / 3).collect()
    });
    let mut operations: BTreeMap<(u32, u32), u32> = files
        .iter()
        .zip(&name_maps)
        .flat_map(|(file, map)| file.table.spans.iter().map(|span| (map[&(span.operation / 3)], span.operation % 3)))
        .map(|operation| (operation, 0))
        .collect();
    operations.values_mut().zip(0..).for_each(|(number, at)| *number = at);

    let (range_names, range_maps) = Names::of(&files, |file| {
        let ranges = file.table.host_ranges.iter().chain(&file.table.device_ranges);
        ranges.map(|range| range.name).collect()
    });
    let replaced = operation_names.replaced + range_names.replaced;
    if replaced > 0 {
        said.push(format!("{replaced} names hold bytes that are no UTF-8; they are shown as \u{fffd}"));
    }

    let mut streams: Vec<Stream> = Vec::new();
    let (mut spans, mut ranges) = (Vec::new(), Vec::new());
    let (mut lost, mut clipped) = (0u64, 0u64);
    for (file_at, file) in files.iter_mut().enumerate() {
        let place = &placed[file_at];
        let first_stream = streams.len();
        streams.extend(place.streams());
        let mut file_spans = std::mem::take(&mut file.table.spans);
        let shift = shifts[file_at];
        let mut known: HashMap<u32, u32> = HashMap::new();
        file_spans.retain_mut(|span| {
            let Ok(stream) = u16::try_from(first_stream + span.stream as usize) else {
                lost += 1;
                return false;
            };
            span.rank = place.rank_of(span.stream);
            span.stream = stream;
            span.operation = *known.entry(span.operation).or_insert_with(|| {
                operations[&(name_maps[file_at][&(span.operation / 3)], span.operation % 3)]
            });
            let moved = (
                span.ready_ns.checked_add(shift),
                span.start_ns.checked_add(shift),
                span.end_ns.checked_add(shift),
            );
            let (Some(ready), Some(start), Some(end)) = moved else {
                clipped += 1;
                return false;
            };
            (span.ready_ns, span.start_ns, span.end_ns) = (ready, start, end);
            true
        });
        if spans.is_empty() {
            spans = file_spans;
        } else {
            spans.reserve_exact(file_spans.len());
            spans.append(&mut file_spans);
        }
        let host = std::mem::take(&mut file.table.host_ranges);
        let device = std::mem::take(&mut file.table.device_ranges);
        let rows = place.rows(&host, &device);
        let host = host.into_iter().map(|range| (range, false));
        for (range, on_device) in host.chain(device.into_iter().map(|range| (range, true))) {
            let rank = if on_device { place.rank_of(range.thread) } else { place.first_rank() };
            let (Some(start_ns), Some(end_ns)) =
                (range.start_ns.checked_add(shift), range.end_ns.checked_add(shift))
            else {
                clipped += 1;
                continue;
            };
            let name = range_maps[file_at][&range.name];
            let thread = rows[&(on_device, range.thread)];
            ranges.push(Range { rank, thread, depth: 0, name, start_ns, end_ns });
        }
    }
    if lost > 0 {
        said.push(format!("{lost} GPU events ignored: more than 65536 streams in all files together"));
    }
    if clipped > 0 {
        said.push(format!("{clipped} events ignored: their times do not fit on one clock of all files"));
    }
    spans.par_sort_unstable_by_key(|span| {
        (span.step, span.rank, span.start_ns, span.end_ns, span.stream, span.operation, span.ready_ns)
    });
    nest(&mut ranges);

    let meta = TraceMeta {
        version: FORMAT_VERSION,
        provenance: Provenance::Measured,
        run: None,
        spec: None,
        ranks: placed.iter().flat_map(Place::ranks).max().map_or(1, |rank| rank + 1),
        plan_hashes: Vec::new(),
        environment: files.first().map(|file| file.facts.environment.clone()).unwrap_or_default(),
        clock: clock(&files, &shifts),
        recorder: "kineto".into(),
        streams,
        range_names: range_names.texts,
        import: Some(crate::trace::ImportReport { warnings: said, ..report }),
    };
    let operations = operations
        .into_keys()
        .map(|(name, kind)| OperationInfo {
            name: operation_names.texts[name as usize].clone(),
            phase: Phase::Decode,
            kind: Gpu::ALL[kind as usize].as_str().into(),
            module: String::new(),
            layer: None,
            lane: Lane::Compute,
            shape: String::new(),
            cost: Cost::default(),
            origins: Vec::new(),
            waits_for: Vec::new(),
        })
        .collect();
    Trace { meta, operations, spans, ranges }
}

/// What to add to each file's times so that all count from the earliest base.
fn shifts(files: &[ReadFile], said: &mut Vec<String>) -> Vec<i64> {
    let bases: Vec<Option<i64>> = files.iter().map(|file| file.facts.base_ns).collect();
    let first = bases.iter().flatten().min().copied();
    if files.len() > 1 && bases.iter().any(Option::is_none) && first.is_some() {
        said.push("some files do not say what their times count from (baseTimeNanoseconds); times of ranks may be apart".into());
    }
    let shift = |base: &Option<i64>| Some((*base)?.saturating_sub(first?));
    bases.iter().map(|base| shift(base).unwrap_or(0)).collect()
}

fn clock(files: &[ReadFile], shifts: &[i64]) -> String {
    if files.len() == 1 {
        return "the profiler's, one for host and devices".into();
    }
    if shifts.iter().any(|shift| *shift != 0) {
        return "the profiler's, one a file, tied together by baseTimeNanoseconds".into();
    }
    "the profiler's, one a file, taken as one".into()
}

/// Sorts ranges and counts in how many of their thread each lies.
fn nest(ranges: &mut [Range]) {
    let order = |range: &Range| {
        (range.rank, range.thread, range.start_ns, std::cmp::Reverse(range.end_ns), range.name)
    };
    ranges.par_sort_unstable_by_key(order);
    let mut open: Vec<i64> = Vec::new();
    let mut row = None;
    for range in ranges {
        if row.replace((range.rank, range.thread)) != Some((range.rank, range.thread)) {
            open.clear();
        }
        while open.last().is_some_and(|end| *end <= range.start_ns) {
            open.pop();
        }
        range.depth = u16::try_from(open.len()).unwrap_or(u16::MAX);
        open.push(range.end_ns);
    }
}
