//! Nsight Systems: imports the SQLite files of `nsys export --type sqlite`.
//!
//! GPU rows (kernels, copies, fills) become spans, with one rank per process and device. Host calls
//! provide the launch time, matched by process and correlation id; NVTX provides ranges and step
//! numbers. `database` reads tables of any version, `gpu` and `host` parse their contents, `assemble` builds
//! the trace. This file opens the files, with their notes and the environment of the recording, and joins several.

pub(super) mod assemble;
mod database;
pub(super) mod gpu;
pub(super) mod host;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde_json::{Value, json};

use self::assemble::{ImportParts, assemble};
use self::database::{Database, DatabaseFile, DatabaseRow, RowCount};
use self::gpu::GpuActivity;
use self::host::{HostLaunches, HostRanges};
use super::formats::{FormatSignature, Importer};
use crate::import::input::InputFile;
use crate::import::left_out::{LeftOutEvents, described};
use crate::import::rank::{Decision, Name, RankClaim};
use crate::import::samples::align_samples;
use crate::import::{enclosing, formats, rank};
use crate::{Doubt, Doubted, ImportReport, LaunchSite, OperationInfo, Trace, TraceStream, sort_spans};
use base::error::{Error, Result};
use plan::Cost;
use table::Environment;

pub(super) static SQLITE: Importer = Importer {
    kernel: |files, wanted| {
        let each = files.iter().map(|path| host::kernel(path, wanted));
        each.collect::<Result<Vec<_>>>().map(|found| found.into_iter().flatten().next())
    },
    ..Importer::new(
        "an SQLite export of Nsight Systems",
        "SQLite",
        &[FormatSignature::Begins(b"SQLite format 3\0")],
        |mut selection| {
            let (files, chosen) = selection.choose()?;
            chosen.found(selection.recording)?;
            Ok(selection.noted(import(&files)?))
        },
    )
};

/// Limit on times (ns): 73 years from the clock's zero. Larger ones are damage; differences of smaller
/// ones cannot overflow.
const MOST: u64 = 1 << 61;

const MOST_WARNINGS: usize = 50;

/// Imports SQLite exports of Nsight Systems, unclassified; each file is a node or a rank. Skips and
/// reports files without GPU work if others have some. Returns an error for a file that is not such an
/// export, or if no file has GPU work.
pub(in crate::import) fn import(inputs: &[InputFile]) -> Result<Trace> {
    let (mut traces, mut claims, mut idle) = (Vec::new(), Vec::new(), Vec::new());
    for input in inputs {
        let (trace, began) = match one(input)? {
            Ok(read) => read,
            Err(error) => {
                idle.push((input, error));
                continue;
            }
        };
        let first = trace.spans.iter().map(|span| span.start_ns).min();
        claims.push(RankClaim {
            name: Name::parse(&input.name),
            parts: vec![None; trace.meta.ranks as usize],
            time_ns: began.zip(first).map(|(began, first)| began.saturating_add(first)),
            ..RankClaim::default()
        });
        traces.push((trace, began));
    }
    require_one_recording(&traces, &claims)?;
    if traces.is_empty()
        && let Some((_, error)) = idle.pop()
    {
        return Err(error);
    }
    let mut trace = join(traces, rank::decide(&claims))?;
    if let Some(report) = &mut trace.meta.import {
        let note = |(input, _): &(&InputFile, Error)| format!("ignored {}: no GPU work", input.name);
        report.warnings.extend(idle.iter().map(note));
    }
    Ok(trace)
}

/// Refuses recordings of one process after another (`nsys profile --capture-range-end=repeat`): they are no ranks.
fn require_one_recording(traces: &[(Trace, Option<i64>)], claims: &[RankClaim]) -> Result<()> {
    // file and last end by host, process and device
    let mut last: HashMap<_, (usize, i64)> = HashMap::new();
    let mut order: Vec<usize> = (0..traces.len()).collect();
    order.sort_by_key(|at| claims[*at].time_ns);
    for at in order {
        let (trace, began) = &traces[at];
        let host = trace.meta.environment.get("host");
        let (Some(start), Some(began), Some(host)) = (claims[at].time_ns, began, host) else { continue };
        let end = trace.spans.iter().map(|span| span.end_ns).max().unwrap_or(0).saturating_add(*began);
        for TraceStream { process, device, .. } in &trace.meta.streams {
            let before = last.insert((host, *process, *device), (at, end));
            if let Some((other, _)) = before.filter(|(other, end)| *other != at && *end < start) {
                let (first, second) = (&claims[other].name, &claims[at].name);
                let problem = format!("{first} and {second} record one process, one after the other");
                return Err(Error::input_help(problem, "open one of them"));
            }
        }
    }
    Ok(())
}

/// The trace of a file, and the start of its recording on the wall clock (ns since 1970), or the problem of a file without
/// GPU work.
fn one(input: &InputFile) -> Result<Result<(Trace, Option<i64>)>> {
    let path = &input.path;
    let file = DatabaseFile::from_input(input)?;
    let db = Database::open(&file)?;
    recognise(&db)?;
    // Host and GPU tables are read in parallel, each through its own connection.
    let (host, gpu) = rayon::join(
        || {
            let mut notes = Notes::default();
            let db = Database::open(&file)?;
            let launches = HostLaunches::read(&db, &mut notes);
            let ranges = HostRanges::read(&db, &mut notes);
            let calls = launches.names(&db);
            Ok::<_, Error>((launches, calls, ranges, notes))
        },
        || {
            let mut notes = Notes::default();
            let db = Database::open(&file)?;
            GpuActivity::read(&db, &mut notes).map(|gpu| (gpu, notes))
        },
    );
    let ((gpu, mut notes), (launches, calls, ranges, host_notes)) = (gpu?, host?);
    notes.add(host_notes);
    if !notes.report.used.contains_key("kernel") && !gpu.graphs.is_empty() {
        return Err(only_graphs(path, gpu.graphs.len()));
    }
    if gpu.events.is_empty() {
        return Ok(Err(nothing(&db, &notes)));
    }
    let environment = environment(&db);
    let parts = ImportParts { gpu, launches, calls, ranges, environment };
    let mut trace = assemble(parts, &mut notes)
        .map_err(|what| Error::input(format!("{}: {what}", path.display())))?;
    trace.meta.import = Some(notes.report("Nsight Systems SQLite", &path.display().to_string()));
    // with `--ts-normalize` times are since 1970, not since the session's start
    let is_normalized = |began: i64| trace.spans.iter().all(|span| span.start_ns > began / 2);
    let began = began(&db).map(|began| if is_normalized(began) { 0 } else { began });
    Ok(Ok((trace, began)))
}

/// Returns an error, which names the content, for an SQLite file that is not an export.
fn recognise(db: &Database) -> Result<()> {
    if let Some(format) = formats::of_tables(db.tables()) {
        return Err(formats::refusal(db.path(), Some(format), &[]));
    }
    let known = |table: &str| table.starts_with("CUPTI_ACTIVITY_KIND_") || table == "NVTX_EVENTS";
    if db.tables().any(known) {
        return Ok(());
    }
    let path = db.path().display();
    let nsight = db.has("META_DATA_EXPORT") || db.has("TARGET_INFO_SYSTEM_ENV");
    let names: Vec<&str> = db.tables().take(6).collect();
    Err(if nsight {
        Error::input_help(
            format!("{path}: an Nsight Systems export without any CUDA activity"),
            "record with `nsys profile -t cuda,nvtx`",
        )
    } else if names.is_empty() {
        Error::input(format!("{path}: an SQLite database without tables"))
    } else {
        Error::input_help(
            format!(
                "{path}: an SQLite database, but no export of Nsight Systems; it has {}",
                names.join(", ")
            ),
            "an export (`nsys export --type sqlite`) has tables CUPTI_ACTIVITY_KIND_KERNEL and StringIds",
        )
    })
}

fn only_graphs(path: &Path, graphs: usize) -> Error {
    Error::input_help(
        format!(
            "{}: {graphs} graph launches, each recorded as a whole graph, and no kernel: what the GPU did in them is \
             not in the file",
            path.display(),
        ),
        "record again with `nsys profile --cuda-graph-trace=node`",
    )
}

fn nothing(db: &Database, notes: &Notes) -> Error {
    let counts = notes.report.ignored.iter().map(|(reason, count)| (reason.clone(), *count));
    let counts = notes.left_out.counts().chain(counts).take(5);
    let ignored: Vec<String> = counts.map(|(reason, count)| format!("{count} {reason}")).collect();
    let why = match (ignored.is_empty(), notes.first_warning()) {
        (false, _) => format!(" (ignored: {})", ignored.join(", ")),
        (true, Some(warning)) => format!(" ({warning})"),
        (true, None) => String::new(),
    };
    Error::input_help(
        format!("{}: no kernel, copy or fill in it{why}", db.path().display()),
        "record with `nsys profile -t cuda,nvtx --cuda-graph-trace=node`",
    )
}

/// Report of an import while it reads a file.
#[derive(Debug, Default)]
pub(in crate::import) struct Notes {
    report: ImportReport,
    pub left_out: LeftOutEvents,
}

impl Notes {
    fn read(&mut self, rows: &RowCount) {
        self.count(rows.count);
        if let Some(broken) = &rows.broken {
            self.warn(broken.clone());
        }
    }

    /// Counts rows of GPU work; if its table is damaged, the rest is missing.
    fn read_gpu_work(&mut self, rows: &RowCount) {
        self.count(rows.count);
        let doubt = |sentence: &String| Doubt { about: Doubted::Missing, sentence: sentence.clone() };
        self.left_out.doubt(rows.broken.as_ref().map(doubt));
    }

    pub fn use_(&mut self, what: &str, count: u64) {
        count_up(&mut self.report.used, what, count);
    }

    /// Reverts the count of events that were dropped later.
    pub fn unuse(&mut self, what: &str, count: u64) {
        if let Some(used) = self.report.used.get_mut(what) {
            *used = used.saturating_sub(count);
        }
    }

    pub fn ignore(&mut self, reason: &str, count: u64) {
        count_up(&mut self.report.ignored, reason, count);
    }

    pub fn warn(&mut self, sentence: String) {
        if self.report.warnings.len() < MOST_WARNINGS {
            self.report.warnings.push(sentence);
        }
    }

    fn add(&mut self, other: Self) {
        add_counts(&mut self.report, &other.report);
        other.report.warnings.into_iter().for_each(|warning| self.warn(warning));
        self.left_out.merge(other.left_out);
    }

    /// Counts events that were read elsewhere.
    pub fn count(&mut self, events: u64) {
        self.report.events += events;
    }

    pub fn first_warning(&self) -> Option<&str> {
        self.report.warnings.first().map(String::as_str)
    }

    pub fn report(self, format: &str, file: &str) -> ImportReport {
        let Self { mut report, left_out } = self;
        left_out.counts().for_each(|(what, count)| count_up(&mut report.ignored, &what, count));
        report.used.retain(|_, count| *count > 0);
        ImportReport {
            format: format.into(),
            files: vec![file.into()],
            warnings: left_out.sentences().chain(report.warnings).collect(),
            doubts: left_out.doubts(file).collect(),
            ignored_kernels: left_out.kernels().collect(),
            ..report
        }
    }
}

fn add_counts(report: &mut ImportReport, more: &ImportReport) {
    report.events += more.events;
    more.used.iter().for_each(|(what, count)| count_up(&mut report.used, what, *count));
    more.ignored.iter().for_each(|(why, count)| count_up(&mut report.ignored, why, *count));
}

fn count_up(counts: &mut BTreeMap<String, u64>, what: &str, count: u64) {
    if count == 0 {
        return;
    }
    match counts.get_mut(what) {
        Some(known) => *known += count,
        None => {
            counts.insert(what.to_owned(), count);
        }
    }
}

/// Start and end from a row's first two columns. Counts and names invalid ones.
fn interval(
    row: &DatabaseRow,
    what: &'static str,
    notes: &mut Notes,
    name: impl FnOnce() -> String,
) -> Option<(i64, i64)> {
    let times = (row.integer(0), row.integer(1));
    let why = match times {
        (Some(start), Some(end)) if start.abs_diff(0) > MOST || end.abs_diff(0) > MOST => {
            "beyond any clock"
        }
        (Some(start), Some(end)) if end < start => "with an end before its start",
        (Some(start), Some(end)) => return Some((start, end)),
        _ => "without a start or end",
    };
    let (start, end) = (times.0.unwrap_or(0), times.1.or(times.0).unwrap_or(0));
    notes.left_out.add(what, why, start, || described(&name(), start, end));
    None
}

const SYSTEM: [(&str, &str); 5] = [
    ("Hostname", "host"),
    ("CpuDescription", "cpu"),
    ("NvDriverVersion", "driver"),
    ("CudaDriverVersion", "cuda_driver"),
    ("OsDescription", "os"),
];

const EXPORT: [(&str, &str); 2] =
    [("EXPORT_PRODUCT_VERSION", "nsight_systems"), ("EXPORT_SCHEMA_VERSION", "nsight_schema")];

fn environment(db: &Database) -> Environment {
    let mut environment = Environment::new();
    for (table, names) in [("TARGET_INFO_SYSTEM_ENV", &SYSTEM[..]), ("META_DATA_EXPORT", &EXPORT[..])] {
        db.rows(table, &["name", "value"], |row| {
            let known = names.iter().find(|(name, _)| row.text(0) == Some(name));
            if let (Some((_, ours)), Some(value)) = (known, row.text(1))
                && !value.is_empty()
                && value.len() < 1024
            {
                environment.insert((*ours).into(), value.into());
            }
        });
    }
    let mut gpus: Vec<(i64, Value)> = Vec::new();
    db.rows("TARGET_INFO_GPU", &["id", "name"], |row| {
        if let Some(name) = row.text(1) {
            gpus.push((row.integer(0).unwrap_or(i64::MAX), name.into()));
        }
    });
    gpus.sort_by_key(|(id, _)| *id);
    if !gpus.is_empty() {
        let gpus = gpus.into_iter().map(|(id, name)| json!({ "index": id, "name": name }));
        environment.insert("gpus".into(), gpus.collect());
    }
    environment
}

/// Start of the recording on the host's wall clock (ns since 1970).
fn began(db: &Database) -> Option<i64> {
    let mut began = None;
    db.rows("TARGET_INFO_SESSION_START_TIME", &["utcEpochNs"], |row| began = began.or(row.integer(0)));
    began
}

/// Joins several traces, each with the wall-clock time of its zero (ns since 1970) if known. `decision`
/// gives their ranks.
fn join(traces: Vec<(Trace, Option<i64>)>, decision: Decision) -> Result<Trace> {
    let began: Option<Vec<i64>> = traces.iter().map(|(_, began)| *began).collect();
    let earliest = began.as_ref().and_then(|began| began.iter().min().copied());
    let several = traces.len() > 1;
    let mut traces = traces.into_iter();
    let Some((mut all, began)) = traces.next() else {
        return Err(Error::input("no file to import"));
    };
    let mut ranks = decision.ranks.iter();
    renumber(&mut all, ranks.next());
    if let Some(report) = &mut all.meta.import {
        report.ranks_from = decision.source.map(str::to_owned);
        report.missing_ranks = decision.missing;
        report.warnings.extend(decision.warnings);
    }
    if !several {
        return Ok(all);
    }
    shift(&mut all, began, earliest);
    let key = |operation: &OperationInfo| (operation.name.clone(), operation.kind.clone());
    let mut operations: HashMap<_, u32> = all.operations.iter().map(key).zip(0..).collect();
    let mut names: HashMap<String, u32> = all.meta.range_names.iter().cloned().zip(0..).collect();
    for (mut trace, began) in traces {
        shift(&mut trace, began, earliest);
        renumber(&mut trace, ranks.next());
        let first_stream = all.meta.streams.len();
        if first_stream + trace.meta.streams.len() > usize::from(u16::MAX) {
            return Err(Error::input_help(
                "more than 65535 streams in these files",
                "import fewer at once",
            ));
        }
        let operation_to = |operation: OperationInfo| {
            let number = *operations.entry(key(&operation)).or_insert_with(|| {
                all.operations.push(operation.clone());
                all.operations.len() as u32 - 1
            });
            // mean copy sizes of the files differ, so the joint mean is unknown
            let known = &mut all.operations[number as usize];
            if known.cost != operation.cost {
                known.cost = Cost::default();
            }
            number
        };
        let to: Vec<u32> = trace.operations.into_iter().map(operation_to).collect();
        let name_to = |name: String| {
            *names.entry(name).or_insert_with_key(|name| {
                all.meta.range_names.push(name.clone());
                all.meta.range_names.len() as u32 - 1
            })
        };
        let name_to: Vec<u32> = trace.meta.range_names.into_iter().map(name_to).collect();
        let first_range = all.ranges.len() as u32;
        all.spans.extend(trace.spans.into_iter().map(|mut span| {
            let launched = &mut span.launched;
            if launched.range < LaunchSite::OUTSIDE {
                launched.range += first_range;
            }
            launched.operator =
                name_to.get(launched.operator as usize).copied().unwrap_or(LaunchSite::NONE);
            span.stream += first_stream as u16;
            span.operation = to[span.operation as usize];
            span
        }));
        all.ranges.extend(trace.ranges.into_iter().map(|mut range| {
            range.name = name_to[range.name as usize];
            range
        }));
        all.meta.streams.extend(trace.meta.streams);
        all.meta.ranks = all.meta.ranks.max(trace.meta.ranks);
        if let (Some(report), Some(more)) = (&mut all.meta.import, trace.meta.import) {
            add(report, more);
        }
    }
    align_samples(&mut all.spans);
    sort_spans(&mut all.spans);
    sort_ranges(&mut all);
    let clock = match earliest {
        Some(_) => {
            "Nsight Systems: files put together by the wall clocks of their hosts, good to about a millisecond"
        }
        None => "Nsight Systems: each file on a clock of its own; they are not put together",
    };
    all.meta.clock = clock.into();
    if let Some(report) = &mut all.meta.import {
        report.wall_clock = earliest.is_some();
        report.warnings.push(format!("several files: {}", clock.replace("Nsight Systems: ", "")));
    }
    Ok(all)
}

fn renumber(trace: &mut Trace, ranks: Option<&Vec<u32>>) {
    let Some(ranks) = ranks.filter(|ranks| ranks.iter().copied().ne(0..trace.meta.ranks)) else {
        return;
    };
    let rank = |own: u32| ranks.get(own as usize).copied().unwrap_or(own);
    trace.spans.iter_mut().for_each(|span| span.rank = rank(span.rank));
    trace.ranges.iter_mut().for_each(|range| range.rank = rank(range.rank));
    trace.meta.streams.iter_mut().for_each(|stream| stream.rank = rank(stream.rank));
    trace.meta.ranks = ranks.iter().max().map_or(1, |most| most + 1);
    sort_ranges(trace);
}

/// Sorts the ranges, and updates the range index of every span.
fn sort_ranges(trace: &mut Trace) {
    let places = enclosing::sort_ranges(&mut trace.ranges, |range| {
        (range.rank, range.thread, range.start_ns, Reverse(range.end_ns))
    });
    for span in &mut trace.spans {
        let range = &mut span.launched.range;
        *range = places.get(*range as usize).copied().unwrap_or(*range);
    }
}

fn shift(trace: &mut Trace, began: Option<i64>, earliest: Option<i64>) {
    let by = began.zip(earliest).and_then(|(began, earliest)| began.checked_sub(earliest));
    let Some(by) = by.filter(|by| by.unsigned_abs() <= MOST) else { return };
    let moved = |time: i64| time.saturating_add(by);
    for span in &mut trace.spans {
        span.ready_ns = moved(span.ready_ns);
        span.start_ns = moved(span.start_ns);
        span.end_ns = moved(span.end_ns);
    }
    for range in &mut trace.ranges {
        range.start_ns = moved(range.start_ns);
        range.end_ns = moved(range.end_ns);
    }
}

fn add(report: &mut ImportReport, more: ImportReport) {
    add_counts(report, &more);
    let file = more.files.first().cloned().unwrap_or_default();
    report.files.extend(more.files);
    report.doubts.extend(more.doubts);
    report.ignored_kernels.extend(more.ignored_kernels);
    report.warnings.extend(more.warnings.into_iter().map(|warning| format!("{file}: {warning}")));
}

#[cfg(test)]
mod tests;
