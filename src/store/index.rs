//! The index: a line of JSON a finished run, appended under a lock. It is a summary that can be read
//! at once; what is missing, torn or damaged in it is healed from the directories.

use std::collections::{BTreeMap, HashSet};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::record::{Record, Status};
use super::shared_lines::{is_newer, open_locked, seek_end};
use crate::error::{Error, Result};

/// Version of the index's lines.
const VERSION: u32 = 1;

/// One finished run in few words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexEntry {
    /// Version of the line's format.
    pub version: u32,
    /// The run's id.
    pub id: String,
    /// [`crate::spec::Spec::key`].
    pub key: String,
    /// Which pass over the cells of its sweep.
    pub round: u32,
    /// How it ended.
    pub status: Status,
    /// RFC 3339, UTC.
    pub created: String,
}

impl IndexEntry {
    fn of(record: &Record) -> Self {
        Self {
            version: VERSION,
            id: record.run.clone(),
            key: record.spec.key(),
            round: record.round,
            status: record.status,
            created: record.created.clone(),
        }
    }
}

pub(super) fn path(dir: &Path) -> PathBuf {
    dir.join("index.jsonl")
}

/// What could be read of the index, newest line of an id winning; whether all of it was whole.
pub(super) fn read(dir: &Path) -> (Vec<IndexEntry>, bool) {
    match std::fs::read(path(dir)) {
        Ok(bytes) => parse(&bytes),
        Err(e) => (Vec::new(), e.kind() == std::io::ErrorKind::NotFound),
    }
}

fn parse(bytes: &[u8]) -> (Vec<IndexEntry>, bool) {
    let mut whole = bytes.is_empty() || bytes.ends_with(b"\n");
    let mut entries = BTreeMap::new();
    for line in bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice::<IndexEntry>(line) {
            Ok(entry) => {
                entries.insert(entry.id.clone(), entry);
            }
            // a line of a newer version that says less than we want is not ours to remove
            Err(_) if is_newer(line, VERSION) => {}
            Err(_) => whole = false,
        }
    }
    (entries.into_values().collect(), whole)
}

/// Appends finished runs.
pub(super) fn append<'a>(dir: &Path, records: impl IntoIterator<Item = &'a Record>) -> Result<()> {
    let path = path(dir);
    let mut file = open_locked(&path)?;
    let mut text = String::new();
    if seek_end(&mut file).map_err(Error::io(&path))? {
        // the torn line must not swallow ours
        text.push('\n');
    }
    lines(&mut text, records);
    file.seek(SeekFrom::End(0)).map_err(Error::io(&path))?;
    file.write_all(text.as_bytes()).map_err(Error::io(&path))
}

/// Brings the index in line with the finished runs that the directories hold. It is rewritten in
/// place, not renamed into it: who waits for the lock must find the same file. Dying in the middle
/// leaves an index that the next call heals.
pub(super) fn heal<'a>(dir: &Path, records: impl Iterator<Item = &'a Record> + Clone) -> Result<()> {
    let (entries, whole) = read(dir);
    let known: HashSet<&str> = entries.iter().map(|e| e.id.as_str()).collect();
    let mut missing = records.clone().filter(|r| !known.contains(r.run.as_str())).peekable();
    if whole && missing.peek().is_none() {
        return Ok(());
    }
    if whole {
        return append(dir, missing);
    }
    let path = path(dir);
    let mut file = open_locked(&path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(Error::io(&path))?;
    let mut text = String::new();
    for line in bytes.split(|b| *b == b'\n').filter(|line| is_newer(line, VERSION)) {
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    lines(&mut text, records);
    file.set_len(0).map_err(Error::io(&path))?;
    file.seek(SeekFrom::Start(0)).map_err(Error::io(&path))?;
    file.write_all(text.as_bytes()).map_err(Error::io(&path))
}

fn lines<'a>(text: &mut String, records: impl IntoIterator<Item = &'a Record>) {
    for record in records {
        if let Ok(line) = serde_json::to_string(&IndexEntry::of(record)) {
            text.push_str(&line);
            text.push('\n');
        }
    }
}
