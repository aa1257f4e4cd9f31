//! Host calls that launched GPU work: when they ended, and on which thread.

use std::collections::HashMap;

use super::database::Database;
use super::import::{Notes, interval};

pub(super) const TABLE: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";

/// A process, as the upper bits of its serialized id: unique over hosts.
pub(super) type Process = i64;

/// The process of a serialized process or thread id.
pub(super) fn process(global: i64) -> Process {
    global >> 24
}

/// A host call, or several within one another of the same correlation id: the outermost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch {
    correlation: u32,
    /// Rows of the table that it stands for.
    rows: u32,
    /// When the host's call began (ns).
    pub start: i64,
    /// When the host's call returned (ns).
    pub end: i64,
    /// Serialized id of the thread.
    pub thread: i64,
}

/// Host calls of all processes.
#[derive(Debug, Default)]
pub(super) struct Launches {
    /// Calls by correlation id.
    processes: Vec<Vec<Launch>>,
    /// Indices of the processes.
    numbers: HashMap<Process, usize>,
    /// Rows with a correlation id.
    pub rows: u64,
}

impl Launches {
    /// Reads the table of host calls.
    pub fn read(db: &Database, notes: &mut Notes) -> Self {
        let mut launches = Self::default();
        if !db.has(TABLE) {
            notes.warn(format!(
                "no table {TABLE}: when the host launched something is not known, so each event counts as \
                 launched when it started"
            ));
            return launches;
        }
        let columns = ["start", "end", "globalTid", "correlationId"];
        let missing = db.missing(TABLE, &columns);
        if !missing.is_empty() {
            notes.warn(format!(
                "table {TABLE} has no column {}: launches are not known",
                missing.join(", ")
            ));
            return launches;
        }
        let mut last = (Process::MIN, usize::MAX);
        let read = db.rows(TABLE, &columns, |row| {
            let Some((start, end)) = interval(row, "host call", notes) else { return };
            let correlation = row.integer(3).and_then(|id| u32::try_from(id).ok()).filter(|id| *id > 0);
            let (Some(thread), Some(correlation)) = (row.integer(2), correlation) else {
                notes.ignore("host call without a thread or correlation id", 1);
                return;
            };
            let process = process(thread);
            if last.0 != process || last.1 == usize::MAX {
                let next = launches.processes.len();
                last = (process, *launches.numbers.entry(process).or_insert(next));
                if last.1 == next {
                    launches.processes.push(Vec::new());
                }
            }
            launches.rows += 1;
            launches.processes[last.1].push(Launch { correlation, rows: 1, start, end, thread });
        });
        for calls in &mut launches.processes {
            calls.sort_by_key(|call| (call.correlation, call.start, std::cmp::Reverse(call.end)));
            calls.dedup_by(|inner, outer| {
                let same = inner.correlation == outer.correlation;
                if same {
                    outer.end = outer.end.max(inner.end);
                    outer.rows += inner.rows;
                }
                same
            });
        }
        notes.read(&read);
        launches
    }

    /// The only process that called anything, if there is one.
    pub fn only_process(&self) -> Option<Process> {
        let mut processes = self.numbers.keys();
        processes.next().copied().filter(|_| processes.next().is_none())
    }

    /// A reader of one process's calls.
    pub fn of(&self, process: Process) -> Finder<'_> {
        let calls = self.numbers.get(&process).map_or(&[][..], |number| &self.processes[*number]);
        Finder { calls, at: 0, found: vec![false; calls.len()] }
    }
}

/// Finds calls of a process by correlation id; remembers where it was, for ids mostly rise.
pub(super) struct Finder<'a> {
    calls: &'a [Launch],
    at: usize,
    found: Vec<bool>,
}

impl Finder<'_> {
    /// The call of a correlation id.
    pub fn find(&mut self, correlation: u32) -> Option<Launch> {
        let near = self.at..(self.at + 3).min(self.calls.len());
        let index = near.clone().find(|i| self.calls[*i].correlation == correlation);
        self.at = match index {
            Some(index) => index,
            None => self.calls.binary_search_by_key(&correlation, |call| call.correlation).ok()?,
        };
        self.found[self.at] = true;
        Some(self.calls[self.at])
    }

    /// Rows of the table behind the calls that were found.
    pub fn rows_found(&self) -> u64 {
        let found = self.calls.iter().zip(&self.found).filter(|(_, found)| **found);
        found.map(|(call, _)| u64::from(call.rows)).sum()
    }
}
