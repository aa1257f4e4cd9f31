//! NVTX ranges of host threads.

use std::collections::HashMap;

use super::database::{Database, Row};
use super::import::{MOST, Notes};
use crate::import::times::described;

pub(super) const TABLE: &str = "NVTX_EVENTS";

/// A range; `end` is `None` if it was never ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostRange {
    pub start: i64,
    pub end: Option<i64>,
    /// Serialized id of the thread that started it.
    pub thread: i64,
    /// Name: an index into [`HostRanges::names`].
    pub name: u32,
}

#[derive(Debug, Default)]
pub(super) struct HostRanges {
    pub list: Vec<HostRange>,
    pub names: Vec<String>,
}

/// True for event types of ranges: push/pop (59, 70) and start/end (60, 71).
pub(super) fn is_range(event_type: i64) -> bool {
    matches!(event_type, 59 | 60 | 70 | 71)
}

impl HostRanges {
    pub fn read(db: &Database, notes: &mut Notes) -> Self {
        let mut ranges = Self::default();
        if !db.has(TABLE) {
            notes.warn(format!(
                "no table {TABLE}: no ranges and no steps (record with `nsys profile -t cuda,nvtx`)"
            ));
            return ranges;
        }
        let missing = db.missing(TABLE, &["start", "end", "globalTid"]);
        if !missing.is_empty() {
            notes.warn(format!("table {TABLE} has no column {}: no ranges", missing.join(", ")));
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
        let columns = ["start", "end", "eventType", "text", "textId", "globalTid"];
        let read = db.rows(TABLE, &columns, |row| {
            if row.integer(2).is_some_and(|kind| !is_range(kind)) {
                let reason =
                    if row.integer(2) == Some(34) { "NVTX mark" } else { "NVTX event that is no range" };
                notes.ignore(reason, 1);
                return;
            }
            let spelt = || {
                let text = row.text(3).map(str::to_owned);
                text.or_else(|| row.integer(4).and_then(|id| db.string(id))).unwrap_or_default()
            };
            let Some((start, end)) = times(row, notes, spelt) else { return };
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

/// Start and end of a range, which may be open. Counts and names invalid ones.
fn times(row: &Row, notes: &mut Notes, name: impl FnOnce() -> String) -> Option<(i64, Option<i64>)> {
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
