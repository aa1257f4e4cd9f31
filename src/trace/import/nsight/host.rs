//! Host side of an export: calls that launched GPU work, and NVTX ranges of host threads.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::Path;

use rayon::prelude::*;

use super::database::{Database, DatabaseFile, DatabaseRow};
use super::gpu::KERNELS;
use super::{MOST, Notes, interval};
use crate::import::input::InputFile;
use crate::import::left_out::described;
use crate::import::misplaced::launch_before;
use crate::import::{KernelLaunch, KernelQuery};
use base::error::Result;

pub(super) const CALLS: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";

/// Process: the upper bits of a serialized id, unique across hosts.
pub(in crate::import) type ProcessId = i64;

pub(super) fn process(global: i64) -> ProcessId {
    global >> 24
}

/// A host call. Nested calls with the same correlation id count as one.
#[derive(Clone, Copy, Debug)]
pub(in crate::import) struct HostLaunch {
    pub correlation: u32,
    /// String id of the call's name; 0 if there is none.
    pub name: i64,
    /// Number of rows that were merged into this call.
    pub rows: u32,
    pub start: i64,
    /// Return of the host call (ns).
    pub end: i64,
    /// Serialized id of the calling thread.
    pub thread: i64,
}

#[derive(Debug, Default)]
pub(in crate::import) struct HostLaunches {
    /// Sorted by process, correlation id and start.
    pub calls: Vec<HostLaunch>,
    /// Number of rows with a correlation id.
    pub rows: u64,
}

impl HostLaunches {
    pub(super) fn read(db: &Database, notes: &mut Notes) -> Self {
        let mut launches = Self::default();
        if !db.has(CALLS) {
            notes.warn(format!(
                "no table {CALLS}: when the host launched something is not known, so each event counts as \
                 launched when it started"
            ));
            return launches;
        }
        let columns = ["start", "end", "globalTid", "correlationId", "nameId"];
        let missing = db.missing(CALLS, &columns[..4]);
        if !missing.is_empty() {
            notes.warn(format!(
                "table {CALLS} has no column {}: launches are not known",
                missing.join(", ")
            ));
            return launches;
        }
        let read = db.rows(CALLS, &columns, |row| {
            let name = row.integer(4).unwrap_or(0);
            let call = || db.string(name).unwrap_or_else(|| "a call".into());
            let Some((start, end)) = interval(row, "host call", notes, call) else { return };
            let correlation = row.integer(3).and_then(|id| u32::try_from(id).ok()).filter(|id| *id > 0);
            let (Some(thread), Some(correlation)) = (row.integer(2), correlation) else {
                notes.ignore("host call without a thread or correlation id", 1);
                return;
            };
            launches.rows += 1;
            launches.calls.push(HostLaunch { correlation, name, rows: 1, start, end, thread });
        });
        notes.read(&read);
        launches
    }

    /// Names of all calls, without the version suffix of the driver's tables (`_v7000`).
    pub(super) fn names(&self, db: &Database) -> HashMap<i64, String> {
        let mut names: HashMap<i64, Option<String>> = HashMap::new();
        for call in self.calls.iter().filter(|call| call.name != 0) {
            names.entry(call.name).or_insert_with(|| {
                let name = db.string(call.name)?;
                let bare = name.trim_end_matches(|c: char| c.is_ascii_digit()).strip_suffix("_v");
                Some(bare.unwrap_or(&name).to_owned())
            });
        }
        names.into_iter().filter_map(|(id, name)| Some((id, name?))).collect()
    }

    /// Sorts the calls and merges nested ones.
    pub fn settle(&mut self) {
        let key =
            |call: &HostLaunch| (process(call.thread), call.correlation, call.start, Reverse(call.end));
        self.calls.par_sort_by_key(key);
        // merge overlapping calls into the outermost; disjoint ones reused the id
        self.calls.dedup_by(|inner, outer| {
            let same = process(inner.thread) == process(outer.thread)
                && inner.correlation == outer.correlation
                && inner.start <= outer.end;
            if same {
                outer.end = outer.end.max(inner.end);
                outer.rows += inner.rows;
            }
            same
        });
    }

    /// True if a correlation id was reused.
    pub fn has_again(&self) -> bool {
        let key = |call: &HostLaunch| (process(call.thread), call.correlation);
        self.calls.windows(2).any(|pair| key(&pair[0]) == key(&pair[1]))
    }

    pub fn only_process(&self) -> Option<ProcessId> {
        let (first, last) = (self.calls.first()?, self.calls.last()?);
        let first = process(first.thread);
        (first == process(last.thread)).then_some(first)
    }

    /// Index of the call that launched work of a process; see [`launch_before`].
    pub(super) fn find(
        &self,
        process: ProcessId,
        correlation: u32,
        start: i64,
        near: &mut usize,
    ) -> u32 {
        let key = |call: &HostLaunch| ((self::process(call.thread), call.correlation), call.start);
        launch_before(&self.calls, (process, correlation), start, key, near)
    }
}

const NVTX: &str = "NVTX_EVENTS";
const RANGE_COLUMNS: [&str; 6] = ["start", "end", "eventType", "text", "textId", "globalTid"];

/// A range; `end` is `None` if it was never ended.
#[derive(Clone, Copy, Debug)]
pub(in crate::import) struct HostRange {
    pub start: i64,
    pub end: Option<i64>,
    /// Serialized id of the thread that started it.
    pub thread: i64,
    /// Name: an index into [`HostRanges::names`].
    pub name: u32,
}

#[derive(Debug, Default)]
pub(in crate::import) struct HostRanges {
    pub list: Vec<HostRange>,
    pub names: Vec<String>,
}

/// True for event types of ranges: push/pop (59, 70) and start/end (60, 71).
pub(super) fn is_range(event_type: i64) -> bool {
    matches!(event_type, 59 | 60 | 70 | 71)
}

impl HostRanges {
    pub(super) fn read(db: &Database, notes: &mut Notes) -> Self {
        let mut ranges = Self::default();
        if !db.has(NVTX) {
            notes.warn(format!(
                "no table {NVTX}: no ranges and no steps (record with `nsys profile -t cuda,nvtx`)"
            ));
            return ranges;
        }
        let missing = db.missing(NVTX, &["start", "end", "globalTid"]);
        if !missing.is_empty() {
            notes.warn(format!("table {NVTX} has no column {}: no ranges", missing.join(", ")));
            return ranges;
        }
        let mut by_text: HashMap<String, u32> = HashMap::new();
        let mut by_id: HashMap<i64, Option<u32>> = HashMap::new();
        let mut cut = 0u64;
        let mut named = |text: &str, names: &mut Vec<String>| {
            let short = without_numbers(text);
            cut += u64::from(short.len() < text.len());
            if let Some(number) = by_text.get(short) {
                return *number;
            }
            let number = names.len() as u32;
            names.push(short.to_owned());
            by_text.insert(short.to_owned(), number);
            number
        };
        let read = db.rows(NVTX, &RANGE_COLUMNS, |row| {
            if row.integer(2).is_some_and(|kind| !is_range(kind)) {
                let reason =
                    if row.integer(2) == Some(34) { "NVTX mark" } else { "NVTX event that is no range" };
                notes.ignore(reason, 1);
                return;
            }
            let spelt = || range_text(row, db).unwrap_or_default();
            let Some((start, end)) = range_times(row, notes, spelt) else { return };
            let Some(thread) = row.integer(5) else {
                notes.ignore("range of no thread", 1);
                return;
            };
            let name = match (row.text(3), row.integer(4)) {
                (Some(text), _) => Some(named(text, &mut ranges.names)),
                (None, Some(id)) => *by_id
                    .entry(id)
                    .or_insert_with(|| db.string(id).map(|text| named(&text, &mut ranges.names))),
                (None, None) => None,
            };
            let Some(name) = name else {
                notes.ignore("range without a name", 1);
                return;
            };
            ranges.list.push(HostRange { start, end, thread, name });
        });
        notes.read(&read);
        if cut > 0 {
            notes.warn(format!(
                "PyTorch's sequence numbers (', seq = 1, op_id = 2') were cut off the names of {cut} ranges"
            ));
        }
        ranges
    }
}

/// Name of a range, in its row or registered; `None` without one.
fn range_text(row: &DatabaseRow, db: &Database) -> Option<String> {
    let text = row.text(3).map(str::to_owned);
    text.or_else(|| row.integer(4).and_then(|id| db.string(id)))
}

/// Start and end of a range, which may be open. Counts and names invalid ones.
fn range_times(
    row: &DatabaseRow,
    notes: &mut Notes,
    name: impl FnOnce() -> String,
) -> Option<(i64, Option<i64>)> {
    let (start, end) = (row.integer(0), row.integer(1));
    let why = match (start, end) {
        (None, _) => "without a start",
        (Some(start), end)
            if start.abs_diff(0) > MOST || end.is_some_and(|end| end.abs_diff(0) > MOST) =>
        {
            "beyond any clock"
        }
        (Some(start), Some(end)) if end < start => "with an end before its start",
        (Some(start), end) => return Some((start, end)),
    };
    let start = start.unwrap_or(0);
    notes.left_out.add("range", why, start, || described(&name(), start, end.unwrap_or(start)));
    None
}

/// Removes the sequence numbers that PyTorch appends to operator names.
pub(super) fn without_numbers(text: &str) -> &str {
    let at = [", seq = ", ", op_id = "].iter().filter_map(|mark| text.find(mark)).min();
    at.map_or(text, |at| &text[..at])
}

/// Reads the launch details of a kernel; `None` if the export does not contain it. Returns an error if
/// the file is not a readable database.
pub(super) fn kernel(path: &Path, wanted: &KernelQuery) -> Result<Option<KernelLaunch>> {
    let db = Database::open(&DatabaseFile::from_input(&InputFile::from_path(path))?)?;
    let Some((mut kernel, own)) = row(&db, wanted) else { return Ok(None) };
    let mut call: Option<(i64, i64, Option<i64>)> = None;
    db.rows(CALLS, &["start", "globalTid", "correlationId", "nameId"], |row| {
        let (Some(start), Some(thread)) = (row.integer(0), row.integer(1)) else { return };
        let same = row.integer(2) == kernel.correlation && kernel.correlation > Some(0);
        // outermost of nested calls
        let first = call.is_none_or(|(before, ..)| start < before);
        if same && own.is_none_or(|own| own == process(thread)) && first {
            call = Some((start, thread, row.integer(3)));
        }
    });
    if let Some((start, thread, name)) = call {
        kernel.call = name.and_then(|id| db.string(id));
        kernel.operator = range(&db, start, thread);
    }
    Ok(Some(kernel))
}

fn row(db: &Database, wanted: &KernelQuery) -> Option<(KernelLaunch, Option<ProcessId>)> {
    let columns = [
        "start",
        "end",
        "streamId",
        "correlationId",
        "globalPid",
        "gridX",
        "gridY",
        "gridZ",
        "blockX",
        "blockY",
        "blockZ",
    ];
    let mut found = None;
    db.rows(KERNELS, &columns, |row| {
        let time = row.integer(0).zip(row.integer(1));
        if time == Some(wanted.time) && row.integer(2) == Some(wanted.stream) {
            let three = |first: usize| {
                Some([row.integer(first)?, row.integer(first + 1)?, row.integer(first + 2)?])
            };
            let kernel = KernelLaunch {
                grid: three(5),
                block: three(8),
                correlation: row.integer(3),
                ..KernelLaunch::default()
            };
            found = Some((kernel, row.integer(4).map(process)));
        }
    });
    found
}

fn range(db: &Database, time: i64, thread: i64) -> Option<String> {
    let mut inner: Option<(i64, String)> = None;
    db.rows(NVTX, &RANGE_COLUMNS, |row| {
        let Some(start) = row.integer(0) else { return };
        let covers = start <= time && row.integer(1).is_none_or(|end| time < end);
        let of_thread = row.integer(5) == Some(thread) && row.integer(2).is_none_or(is_range);
        if covers && of_thread && inner.as_ref().is_none_or(|(before, _)| start >= *before) {
            let text = range_text(row, db);
            inner = text.map(|text| (start, without_numbers(&text).to_owned())).or(inner.take());
        }
    });
    inner.map(|(_, name)| name)
}
