//! Assembles the tables of all files into one trace: ranks, streams, operations, nesting, order, and the
//! summary of the import.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use indexmap::IndexSet;
use plan::Phase;
use rayon::prelude::*;

use super::event::{EventClass, GpuCategory};
use super::host::HostEvents;
use super::json::last_integer;
use super::link::bare_name;
use super::names::{Names, OperationPairs, products};
use super::open::Metadata;
use super::parts::{FileRanks, FileStreams, place};
use super::table::{Category, EventTable, PART};
use crate::import::enclosing::sort_ranges;
use crate::import::misplaced::LEAST_DOUBTED;
use crate::import::rank::{Decision, RankClaim};
use crate::import::samples::align_samples;
use crate::{
    Doubt, Doubted, HostWork, ImportReport, LaunchSite, NO_STEP, OperationInfo, Range, Span, Trace,
    TraceMeta, TraceStream,
};
use base::text::{counted, planned};
use table::Provenance;

/// Source of a file's events, as traces name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Profiler {
    pub(super) format: &'static str,
    pub(super) recorder: &'static str,
}

pub(super) struct ReadFile {
    pub(super) name: String,
    pub(super) profiler: Profiler,
    pub(super) table: EventTable,
    pub(super) metadata: Metadata,
    pub(super) warnings: Vec<String>,
    pub(super) parts: FileRanks,
    pub(super) claim: RankClaim,
    /// Number of spans with a known launch.
    pub(super) launched: usize,
}

pub(super) struct StreamKey {
    pub(super) pid: Option<i64>,
    pub(super) device: Option<i64>,
    pub(super) id: Option<i64>,
}

pub(super) fn stream_key(key: &[u8]) -> StreamKey {
    let mut parts = key.split(|byte| *byte == PART).map(last_integer);
    let mut next = || parts.next().flatten();
    StreamKey { pid: next(), device: next(), id: next() }
}

/// Assembles one trace from at least one file, with the ranks from `decision`.
pub(super) fn assemble(mut files: Vec<ReadFile>, decision: Decision) -> Trace {
    let mut said = warnings(&files);
    let placed: Vec<FileStreams> =
        files.iter().zip(&decision.ranks).map(|(file, ranks)| place(file, ranks)).collect();
    said.extend(decision.warnings);
    let shifts = shifts(&files, &mut said);
    let wall_clock = share_wall_clock(&files);
    let report = report(&files);

    let operations = OperationPairs::from_files(&files);
    let used_names: Vec<Vec<bool>> = files.iter().map(|file| names_of_ranges(&file.table)).collect();
    let (range_names, range_maps) = Names::new(&files, &used_names);
    let replaced = operations.names.replaced + range_names.replaced;
    if replaced > 0 {
        said.push(format!("{replaced} names contain invalid UTF-8, shown as \u{fffd}"));
    }
    let (range_names, products) = products(range_names.texts);

    let mut merged = Merged::default();
    let most_host_events = HostWork::MOST / files.len();
    for (at, file) in files.iter_mut().enumerate() {
        // exports of ladderscope write calls only to mark launches: they are not recorded host work
        if file.metadata.provenance.is_some() {
            file.table.host = HostEvents::default();
        }
        file.table.host.keep_first(most_host_events);
        let names = (operations.maps[at].as_slice(), range_maps[at].as_slice());
        merged.add(&mut file.table, &placed[at], names, shifts[at]);
    }
    merged.warn(&mut said);
    carry_warnings(&files, &mut said);
    let (table, groups) = operations.table(&files);
    align_samples(&mut merged.spans);
    mark_prefills(&mut merged.spans, &table);
    merged.sort();

    let provenance = files.iter().filter_map(|file| file.metadata.provenance).max();
    let ranks = placed.iter().flat_map(FileStreams::ranks).max().map_or(1, |rank| rank + 1);
    let meta = TraceMeta {
        environment: files.first().map(|file| file.metadata.environment.clone()).unwrap_or_default(),
        clock: clock(&files, &shifts),
        recorder: files.first().map_or("", |file| file.profiler.recorder).into(),
        streams: merged.streams,
        range_names,
        groups,
        products,
        host: Arc::new(HostWork {
            events: merged.host,
            names: merged.host_names.into_iter().collect(),
            left_out: files.iter().map(|file| file.table.host.left_out).sum(),
        }),
        import: Some(crate::ImportReport {
            warnings: said,
            ranks_from: decision.source.map(str::to_owned),
            missing_ranks: decision.missing,
            clocks: own_clock(&files).map(|(_, clocks)| clocks),
            wall_clock,
            ..report
        }),
        ..TraceMeta::new(provenance.unwrap_or(Provenance::Measured), ranks)
    };
    Trace { meta, operations: table, spans: merged.spans, ranges: merged.ranges }
}

/// True for the names that ranges and launches refer to.
fn names_of_ranges(table: &EventTable) -> Vec<bool> {
    let mut used = vec![false; table.names.len()];
    let EventTable { host_ranges, device_ranges, long_calls, .. } = table;
    let ranges = host_ranges.iter().chain(device_ranges).chain(long_calls);
    ranges.for_each(|range| used[range.name as usize] = true);
    let operators = table.spans.iter().map(|span| span.launched.operator as usize);
    operators.for_each(|name| used.get_mut(name).into_iter().for_each(|used| *used = true));
    used
}

/// Streams, spans and ranges of all files on one clock.
#[derive(Debug, Default)]
struct Merged {
    streams: Vec<TraceStream>,
    spans: Vec<Span>,
    ranges: Vec<Range>,
    /// Index in `ranges` of each host range; spans refer to host ranges by their index here until [`Self::sort`].
    places: Vec<u32>,
    /// Operators and calls of host threads; names are indices into `host_names`, plus [`HostWork::FIRST_NAME`].
    host: Vec<Range>,
    host_names: IndexSet<String>,
    /// Number of spans whose stream has no number.
    lost: u64,
    /// Number of events whose times do not fit.
    clipped: u64,
}

impl Merged {
    /// Takes the spans and ranges of a file. `names` are the new numbers of its operations and range names.
    fn add(&mut self, table: &mut EventTable, place: &FileStreams, names: (&[u32], &[u32]), shift: i64) {
        let first_stream = self.streams.len();
        self.streams.extend_from_slice(&place.streams);
        self.add_spans(std::mem::take(&mut table.spans), place, first_stream, names, shift);
        let mut host = std::mem::take(&mut table.host_ranges);
        // behind the ranges that spans refer to by index
        host.append(&mut table.long_calls);
        let device = std::mem::take(&mut table.device_ranges);
        let work = std::mem::take(&mut table.host.kept);
        let rows = place.rows(&host, &device, &work);
        self.add_ranges(host, device, (place, &rows), names.1, shift);
        self.add_host_work(&work, &table.names.texts(), (place, &rows), shift);
    }

    fn add_spans(
        &mut self,
        mut spans: Vec<Span>,
        place: &FileStreams,
        first_stream: usize,
        (operations, names): (&[u32], &[u32]),
        shift: i64,
    ) {
        let first_range = self.places.len() as u32;
        spans.retain_mut(|span| {
            let Ok(stream) = u16::try_from(first_stream + span.stream as usize) else {
                self.lost += 1;
                return false;
            };
            span.rank = place.rank_of(span.stream);
            span.stream = stream;
            span.operation = operations[span.operation as usize];
            if let Some(operator) = names.get(span.launched.operator as usize) {
                span.launched.operator = *operator;
            }
            if span.launched.range < LaunchSite::OUTSIDE {
                span.launched.range += first_range;
            }
            let moved = (
                span.ready_ns.checked_add(shift),
                span.start_ns.checked_add(shift),
                span.end_ns.checked_add(shift),
            );
            let (Some(ready), Some(start), Some(end)) = moved else {
                self.clipped += 1;
                return false;
            };
            (span.ready_ns, span.start_ns, span.end_ns) = (ready, start, end);
            true
        });
        if self.spans.is_empty() {
            self.spans = spans;
        } else {
            self.spans.reserve_exact(spans.len());
            self.spans.append(&mut spans);
        }
    }

    fn add_ranges(
        &mut self,
        host: Vec<Range>,
        device: Vec<Range>,
        (place, rows): (&FileStreams, &HashMap<(bool, u16), u16>),
        names: &[u32],
        shift: i64,
    ) {
        let host = host.into_iter().map(|range| (range, false));
        for (range, on_device) in host.chain(device.into_iter().map(|range| (range, true))) {
            let rank =
                if on_device { place.rank_of(range.thread) } else { place.rank_of_host(range.thread) };
            let (Some(start_ns), Some(end_ns)) =
                (range.start_ns.checked_add(shift), range.end_ns.checked_add(shift))
            else {
                self.clipped += 1;
                self.places.extend((!on_device).then_some(LaunchSite::OUTSIDE));
                continue;
            };
            self.places.extend((!on_device).then_some(self.ranges.len() as u32));
            let name = names[range.name as usize];
            let thread = rows[&(on_device, range.thread)];
            self.ranges.push(Range { rank, on_device, thread, depth: 0, name, start_ns, end_ns });
        }
    }

    /// Adds the operators and calls of a file; `texts` are the file's names.
    fn add_host_work(
        &mut self,
        work: &[Range],
        texts: &[&[u8]],
        (place, rows): (&FileStreams, &HashMap<(bool, u16), u16>),
        shift: i64,
    ) {
        let mut numbers: Vec<Option<u32>> = vec![None; texts.len()];
        for events in work.chunk_by(|a, b| a.thread == b.thread) {
            let row = events[0].thread;
            let (rank, thread) = (place.rank_of_host(row), rows[&(false, row)]);
            for event in events {
                let (Some(start_ns), Some(end_ns)) =
                    (event.start_ns.checked_add(shift), event.end_ns.checked_add(shift))
                else {
                    continue;
                };
                let at = event.name as usize;
                let name = *numbers[at].get_or_insert_with(|| {
                    let number = self.host_names.insert_full(bare_name(texts[at])).0;
                    HostWork::FIRST_NAME + number as u32
                });
                self.host.push(Range { rank, thread, name, start_ns, end_ns, ..*event });
            }
        }
    }

    fn warn(&self, said: &mut Vec<String>) {
        let Self { lost, clipped, .. } = self;
        if *lost > 0 {
            said.push(format!(
                "{lost} GPU events ignored: more than 65536 streams in all files together"
            ));
        }
        if *clipped > 0 {
            said.push(format!(
                "{clipped} events ignored: their times do not fit on one clock of all files"
            ));
        }
    }

    /// Sorts spans and ranges, and makes spans refer to ranges by their final index.
    fn sort(&mut self) {
        // stable sorts of rayon merge ascending runs, and files consist of few
        self.spans.par_sort_by_key(|span| {
            (
                (span.sample, span.phase, span.step, span.rank),
                (span.start_ns, span.end_ns, span.stream, span.operation, span.ready_ns),
            )
        });
        self.host.par_sort_by_key(nesting_order);
        set_depths(&mut self.host);
        let (sorted, places) = (sort_ranges(&mut self.ranges, nesting_order), &self.places);
        set_depths(&mut self.ranges);
        self.spans.par_iter_mut().for_each(|span| {
            if let Some(place) = places.get(span.launched.range as usize) {
                span.launched.range =
                    sorted.get(*place as usize).copied().unwrap_or(LaunchSite::OUTSIDE);
            }
        });
    }
}

/// Adds the warnings of the imports that exports were made from, unless the files show the same again.
fn carry_warnings(files: &[ReadFile], said: &mut Vec<String>) {
    for carried in files.iter().flat_map(|file| &file.metadata.carried) {
        // the same after another file's name
        let is_again = |own: &String| {
            let text = own.split_once(": ").map_or(own.as_str(), |(_, text)| text);
            carried.ends_with(text)
        };
        if !said.iter().any(is_again) {
            said.push(carried.clone());
        }
    }
}

/// Sets the phase of steps that run operations of a plan's prefill, as exports of our own traces name them.
fn mark_prefills(spans: &mut [Span], operations: &[OperationInfo]) {
    let of_phase = |prefix: &str| -> Vec<bool> {
        let name = |operation: &OperationInfo| {
            planned(&operation.name).unwrap_or(&operation.name).starts_with(prefix)
        };
        operations.iter().map(name).collect()
    };
    let (is_prefill, is_decode) = (of_phase("prefill/"), of_phase("decode/"));
    if !is_prefill.contains(&true) {
        return;
    }
    let of_prefill = |span: &Span| span.step != NO_STEP && is_prefill[span.operation as usize];
    let of_step = |span: &Span| (span.sample, span.step);
    let steps: HashSet<(u32, u32)> = spans.iter().filter(|span| of_prefill(span)).map(of_step).collect();
    for span in spans.iter_mut().filter(|span| steps.contains(&of_step(span))) {
        // without the ranges of steps, all spans are of one
        if !is_decode[span.operation as usize] {
            span.phase = Phase::Prefill;
        }
    }
}

/// Offset of each file that moves its times to the earliest base.
fn shifts(files: &[ReadFile], said: &mut Vec<String>) -> Vec<i64> {
    let bases: Vec<Option<i64>> = files.iter().map(|file| file.metadata.base_ns).collect();
    let first = bases.iter().flatten().min().copied();
    if files.len() > 1 && bases.iter().any(Option::is_none) && first.is_some() {
        said.push("some files do not say what their times count from (baseTimeNanoseconds); times of ranks may be apart".into());
    }
    let shift = |base: &Option<i64>| Some((*base)?.saturating_sub(first?));
    bases.iter().map(|base| shift(base).unwrap_or(0)).collect()
}

/// Times after it count from 1970 (ns): it is in 2001, and machines do not run for decades.
const LEAST_WALL_CLOCK: i64 = 1_000_000_000_000_000_000;

/// True if the times of several files count from one moment on the clocks of their hosts.
fn share_wall_clock(files: &[ReadFile]) -> bool {
    let since_1970 = |file: &ReadFile| {
        let first = file.table.spans.iter().map(|span| span.start_ns).min();
        file.metadata.base_ns.is_none() && first.is_some_and(|first| first >= LEAST_WALL_CLOCK)
    };
    match own_clock(files) {
        Some(_) => files.iter().all(|file| file.metadata.wall_clock),
        None if files.len() < 2 => false,
        None => files.iter().all(|file| file.metadata.base_ns.is_some()) || files.iter().all(since_1970),
    }
}

/// Clock and number of clocks, if all files come from the same Ladderscope export.
fn own_clock(files: &[ReadFile]) -> Option<(String, u32)> {
    let first = files.first()?.metadata.clock.as_ref()?;
    files.iter().all(|file| file.metadata.clock.as_ref() == Some(first)).then(|| first.clone())
}

fn clock(files: &[ReadFile], shifts: &[i64]) -> String {
    if let Some((clock, _)) = own_clock(files) {
        return clock;
    }
    if files.len() == 1 {
        return "the profiler's, one for host and devices".into();
    }
    if shifts.iter().any(|shift| *shift != 0) {
        return "the profiler's, one per file, aligned by baseTimeNanoseconds".into();
    }
    "the profiler's, one per file, assumed to agree".into()
}

/// Sort key of ranges that puts enclosing ranges before nested ones.
fn nesting_order(range: &Range) -> (u32, u16, i64, Reverse<i64>, u32) {
    (range.rank, range.thread, range.start_ns, Reverse(range.end_ns), range.name)
}

/// Computes the nesting depth of sorted ranges.
fn set_depths(ranges: &mut [Range]) {
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

pub(super) fn report(files: &[ReadFile]) -> ImportReport {
    let mut report = ImportReport {
        format: files.first().map_or("", |file| file.profiler.format).into(),
        files: files.iter().map(|file| file.name.clone()).collect(),
        ..ImportReport::default()
    };
    let add = |counts: &mut BTreeMap<String, u64>, what: String, count: u64| {
        if count > 0 {
            *counts.entry(what).or_default() += count;
        }
    };
    for ReadFile { name, table, .. } in files {
        report.events += table.events;
        for (gpu, count) in GpuCategory::ALL.iter().zip(table.used) {
            add(&mut report.used, gpu.as_str().into(), count);
        }
        let ranges = table.host_ranges.len() + table.device_ranges.len();
        add(&mut report.used, "range".into(), ranges as u64);
        add(&mut report.used, "launch".into(), table.launches_read);
        add(&mut report.used, "operator".into(), table.operators_read);
        report.doubts.extend(table.left_out.doubts(name));
        // one hole may swallow many events
        let lost = table.lost.elements.max(table.lost.bytes / EVENT_BYTES);
        let is_much = lost as f64 >= LEAST_DOUBTED * table.events as f64;
        report.doubts.extend(
            broken(table)
                .filter(|_| is_much)
                .map(|what| Doubt { about: Doubted::Missing, sentence: format!("{name}: {what}") }),
        );
        report.ignored_kernels.extend(table.left_out.kernels());
        table.left_out.counts().for_each(|(what, count)| add(&mut report.ignored, what, count));
        for category in &table.categories {
            let name = String::from_utf8_lossy(&category.name);
            let what = match &*name {
                "python_function" => ImportReport::PYTHON_STACK.into(),
                "overhead" => "category overhead: the profiler's own".into(),
                "Trace" => "category Trace: the profiler's own".into(),
                name => format!("category {name}"),
            };
            add(&mut report.ignored, what, category.ignored);
        }
        for (phase, count) in &table.phases {
            let what = match phase {
                b'M' => "metadata (ph M)",
                b's' | b't' | b'f' => "flow arrows (ph s, t, f)",
                b'C' => "counters (ph C)",
                b'i' | b'I' | b'R' => "instants (ph i, I, R)",
                b'B' | b'E' => "unpaired begin or end events (ph B, E)",
                b'b' | b'n' | b'e' | b'S' | b'T' | b'p' | b'F' => "asynchronous events (ph b, n, e)",
                _ => "events of another phase (ph)",
            };
            add(&mut report.ignored, what.into(), *count);
        }
        add(&mut report.ignored, "event: broken JSON, or no event".into(), table.lost.elements);
        for ((what, why), count) in &table.odd {
            add(&mut report.ignored, format!("{what}: {why}"), *count);
        }
    }
    let graphs = files.iter().map(|file| file.metadata.whole_graphs).max().unwrap_or(0);
    if let Some(ranges) = report.used.get_mut("range").filter(|_| graphs > 0) {
        let graphs = graphs.min(*ranges);
        *ranges -= graphs;
        report.used.insert("graph launch".into(), graphs);
    }
    report
}

/// Usual length of an event.
const EVENT_BYTES: u64 = 200;

/// Says what broken JSON left out.
fn broken(table: &EventTable) -> Option<String> {
    let lost = &table.lost;
    let (offset, expected) = lost.first?;
    let elements = counted(lost.elements as usize, "such element");
    Some(format!(
        "byte {offset}: broken JSON, expected {expected}; left out: {elements} ({} bytes)",
        lost.bytes
    ))
}

pub(super) fn warnings(files: &[ReadFile]) -> Vec<String> {
    let mut said = Vec::new();
    for file in files {
        let name = &file.name;
        let mut say = |text: String| said.push(format!("{name}: {text}"));
        file.warnings
            .iter()
            .chain(&file.metadata.warnings)
            .chain(&file.parts.notes)
            .for_each(|text| say(text.clone()));
        broken(&file.table).into_iter().for_each(&mut say);
        let unpaired = file.table.phases.iter().filter(|(phase, _)| matches!(phase, b'B' | b'E'));
        let unpaired: u64 = unpaired.map(|(_, count)| *count).sum();
        if unpaired > 0 {
            say(format!(
                "{unpaired} unpaired begin or end events (ph B, E) ignored; GPU work among them is missing"
            ));
        }
        for Category { name, class, ignored } in &file.table.categories {
            if *class == EventClass::Other && *ignored > 0 && looks_like_gpu_work(name) {
                let name = String::from_utf8_lossy(name);
                say(format!(
                    "{ignored} events of category {name} are not read: if they are GPU work, it is missing"
                ));
            }
        }
        file.table.left_out.sentences().for_each(&mut say);
        for ((what, why), count) in &file.table.odd {
            if *why != super::table::NO_CORRELATION {
                say(format!("{count} ignored ({what}): {why}"));
            }
        }
        let spans = file.table.used.iter().sum::<u64>();
        if spans == 0 {
            say("no GPU events: none of category kernel, gpu_memcpy or gpu_memset".into());
        } else if file.table.launches_read == 0 {
            say("no host launches recorded, so idle time cannot be attributed to the host".into());
        } else if (file.launched as u64) < spans {
            let rest = spans - file.launched as u64;
            say(format!(
                "{rest} of {spans} GPU events have no host launch; assuming that they were ready at their start"
            ));
        }
    }
    said
}

/// True for an unknown category that names GPU work: `gpu_kernel`, `hpu_op`.
fn looks_like_gpu_work(category: &[u8]) -> bool {
    let category = category.to_ascii_lowercase();
    let has = |word: &[u8]| memchr::memmem::find(&category, word).is_some();
    has(b"kernel")
        || has(b"memcpy")
        || has(b"memset")
        || has(b"collective_comm")
        || category == b"hpu_op"
}
