//! Host calls that launched GPU work, with their times and threads.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

use rayon::prelude::*;

use super::database::Database;
use super::import::{Notes, interval};

pub(super) const TABLE: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";

/// Process: the upper bits of a serialized id, unique across hosts.
pub(super) type Process = i64;

pub(super) fn process(global: i64) -> Process {
    global >> 24
}

/// A host call. Nested calls with the same correlation id count as one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch {
    correlation: u32,
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
pub(super) struct Launches {
    /// Sorted by process, correlation id and start.
    pub calls: Vec<Launch>,
    /// Index range in [`Self::calls`] for each process.
    processes: HashMap<Process, Range<usize>>,
    /// Number of rows with a correlation id.
    pub rows: u64,
}

impl Launches {
    pub fn read(db: &Database, notes: &mut Notes) -> Self {
        let mut launches = Self::default();
        if !db.has(TABLE) {
            notes.warn(format!(
                "no table {TABLE}: when the host launched something is not known, so each event counts as \
                 launched when it started"
            ));
            return launches;
        }
        let columns = ["start", "end", "globalTid", "correlationId", "nameId"];
        let missing = db.missing(TABLE, &columns[..4]);
        if !missing.is_empty() {
            notes.warn(format!(
                "table {TABLE} has no column {}: launches are not known",
                missing.join(", ")
            ));
            return launches;
        }
        let read = db.rows(TABLE, &columns, |row| {
            let name = row.integer(4).unwrap_or(0);
            let call = || db.string(name).unwrap_or_else(|| "a call".into());
            let Some((start, end)) = interval(row, "host call", notes, call) else { return };
            let correlation = row.integer(3).and_then(|id| u32::try_from(id).ok()).filter(|id| *id > 0);
            let (Some(thread), Some(correlation)) = (row.integer(2), correlation) else {
                notes.ignore("host call without a thread or correlation id", 1);
                return;
            };
            launches.rows += 1;
            launches.calls.push(Launch { correlation, name, rows: 1, start, end, thread });
        });
        notes.read(&read);
        launches
    }

    /// Names of all calls, without the version suffix of the driver's tables (`_v7000`).
    pub fn names(&self, db: &Database) -> HashMap<i64, String> {
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
            |call: &Launch| (process(call.thread), call.correlation, call.start, Reverse(call.end));
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
        let mut from = 0;
        for calls in self.calls.chunk_by(|a, b| process(a.thread) == process(b.thread)) {
            self.processes.insert(process(calls[0].thread), from..from + calls.len());
            from += calls.len();
        }
    }

    /// True if a correlation id was reused.
    pub fn has_again(&self) -> bool {
        let key = |call: &Launch| (process(call.thread), call.correlation);
        self.calls.windows(2).any(|pair| key(&pair[0]) == key(&pair[1]))
    }

    pub fn only_process(&self) -> Option<Process> {
        let mut processes = self.processes.keys();
        processes.next().copied().filter(|_| processes.next().is_none())
    }

    pub fn of(&self, process: Process) -> Finder<'_> {
        let place = self.processes.get(&process).cloned().unwrap_or_default();
        Finder { calls: &self.calls[place.clone()], first: place.start, at: 0 }
    }
}

/// Finds the calls of a process by correlation id. Remembers its position, because ids mostly ascend.
pub(super) struct Finder<'a> {
    calls: &'a [Launch],
    /// Index of the process's first call in [`Launches::calls`].
    first: usize,
    at: usize,
}

impl Finder<'_> {
    /// Index of the call with a correlation id in [`Launches::calls`]; if the id was reused, of the last
    /// call before `start`.
    pub fn find(&mut self, correlation: u32, start: i64) -> Option<u32> {
        let of_id = |at: usize| self.calls.get(at).is_some_and(|call| call.correlation == correlation);
        let near = (self.at..self.at + 3).find(|at| of_id(*at) && !of_id(*at + 1));
        self.at = match near.filter(|at| *at == 0 || !of_id(*at - 1)) {
            Some(at) => at,
            None => {
                let key = |call: &Launch| (call.correlation, call.start) <= (correlation, start);
                let after = self.calls.partition_point(key);
                let before = after.checked_sub(1).filter(|at| of_id(*at));
                before.or(Some(after).filter(|at| of_id(*at)))?
            }
        };
        u32::try_from(self.first + self.at).ok()
    }
}
