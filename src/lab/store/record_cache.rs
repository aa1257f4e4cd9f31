//! Cache of parsed records in one file, `records.cache`. A record's JSON may hold ten thousand numbers, and parsing
//! thousands of records takes seconds, which is too slow for listing runs.
//!
//! The cache is never authoritative. An entry is valid only while its `record.json` has the same inode, length and
//! modification time. Damaged entries are skipped, and a file of another build is started over. It may be deleted at
//! any time.
//!
//! ```text
//! header line, with a hash of this build's record schema
//! frame*       u32 length, u64 hash, payload
//! payload      'E' u64 id, JSON                                 an environment, which many runs share
//!              'R' stamp, u64 environment, id, steps, JSON      a record without steps and environment
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::hash::BuildHasher;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use super::directory::Stamp;
use base::error::{Error, Result};
use base::regular;
use table::{Environment, Record, Sample};

const FILE: &str = "records.cache";

/// Bytes before a frame's payload.
const FRAME: usize = 12;

/// Outdated entries beyond the number of runs before the file is rewritten.
const SLACK: usize = 1000;

/// Contents of the cache file, plus records read since.
#[derive(Debug, Default)]
pub(super) struct RecordCache {
    bytes: Vec<u8>,
    /// Payload ranges of records by run id.
    records: HashMap<String, Range<usize>>,
    environments: HashMap<u64, (Range<usize>, OnceLock<Option<Environment>>)>,
    /// End of the last whole frame; a torn frame may follow.
    whole: usize,
    /// Number of record frames, including outdated ones.
    frames: usize,
    /// Header of files written by this build.
    header: String,
    new: Mutex<New>,
}

#[derive(Debug, Default)]
struct New {
    frames: Vec<u8>,
    records: usize,
    environments: HashMap<u64, ()>,
}

impl RecordCache {
    /// Opens the cache of a runs directory; empty if there is no file or another build wrote it.
    pub fn open(dir: &Path) -> Self {
        let header = header();
        let mut bytes = Vec::new();
        let read = regular::open(&dir.join(FILE)).and_then(|mut file| file.read_to_end(&mut bytes));
        let mut cache = Self { header, ..Self::default() };
        if read.is_ok() && bytes.starts_with(cache.header.as_bytes()) {
            cache.bytes = bytes;
            cache.index();
        }
        cache
    }

    fn index(&mut self) {
        let mut at = self.header.len();
        self.whole = at;
        while let Some(payload) = frame(&self.bytes, at) {
            at = payload.end;
            self.whole = at;
            let mut cursor = Cursor { bytes: &self.bytes[payload.clone()], at: 0 };
            match cursor.byte() {
                Some(b'E') => {
                    if let Some(id) = cursor.u64() {
                        self.environments.insert(id, (payload, OnceLock::new()));
                    }
                }
                Some(b'R') => {
                    if let Some(run) = cursor.skip(STAMP + 8).and_then(|()| cursor.text()) {
                        self.frames += 1;
                        self.records.insert(run.to_owned(), payload);
                    }
                }
                // unknown kind of frame, from a later build
                _ => {}
            }
        }
    }

    /// Cached record of a run, if its file is unchanged.
    pub fn get(&self, run: &str, stamp: &Stamp) -> Option<Record> {
        let payload = self.records.get(run)?.clone();
        if !self.is_whole(&payload) {
            return None;
        }
        let mut cursor = Cursor { bytes: &self.bytes[payload], at: 1 };
        if cursor.stamp()? != *stamp {
            return None;
        }
        let environment = self.environment(cursor.u64()?)?;
        cursor.text()?;
        let samples = cursor.u32()?;
        let lengths: Vec<u32> = (0..samples).map(|_| cursor.u32()).collect::<Option<_>>()?;
        let steps: Vec<Vec<f64>> = lengths.iter().map(|n| cursor.numbers(*n)).collect::<Option<_>>()?;
        let mut record: Record = serde_json::from_slice(cursor.rest()).ok()?;
        for (sample, steps) in record.samples.iter_mut().zip(steps) {
            sample.steps_ms = steps;
        }
        record.environment = environment;
        (record.run == run).then_some(record)
    }

    fn environment(&self, id: u64) -> Option<Environment> {
        let (payload, parsed) = self.environments.get(&id)?;
        let parse = || {
            let whole = self.is_whole(payload);
            whole
                .then(|| serde_json::from_slice(self.bytes.get(payload.start + 9..payload.end)?).ok())?
        };
        parsed.get_or_init(parse).clone()
    }

    fn is_whole(&self, payload: &Range<usize>) -> bool {
        let mut cursor = Cursor { bytes: &self.bytes, at: payload.start - 8 };
        cursor.u64() == Some(hash(&self.bytes[payload.clone()]))
    }

    pub fn add(&self, record: &Record, stamp: &Stamp) {
        // a cache that was not opened is not written
        if self.header.is_empty() {
            return;
        }
        let Some((environment, payload)) = encoded(record, stamp) else { return };
        let Ok(mut new) = self.new.lock() else { return };
        let id = hash(&environment);
        if !self.environments.contains_key(&id) && new.environments.insert(id, ()).is_none() {
            let mut payload = vec![b'E'];
            payload.extend(id.to_le_bytes());
            payload.extend(&environment);
            push_frame(&mut new.frames, &payload);
        }
        push_frame(&mut new.frames, &payload);
        new.records += 1;
    }

    /// Writes the added records. Skips this if another process is writing or has written since; the next listing adds
    /// them.
    pub fn append_new(&self, dir: &Path) -> Result<()> {
        let Ok(new) = self.new.lock() else { return Ok(()) };
        if new.records == 0 {
            return Ok(());
        }
        let path = dir.join(FILE);
        let mut file = regular::open_or_make(&path).map_err(Error::io(&path))?;
        if file.try_lock().is_err() {
            return Ok(());
        }
        let length = file.metadata().map_err(Error::io(&path))?.len();
        let outdated = self.frames + new.records > 2 * (self.records.len() + new.records) + SLACK;
        let write = |file: &mut File| {
            if self.bytes.is_empty() || outdated {
                file.set_len(0)?;
                file.seek(SeekFrom::Start(0))?;
                file.write_all(self.header.as_bytes())?;
            } else {
                file.set_len(self.whole as u64)?;
                file.seek(SeekFrom::End(0))?;
            }
            file.write_all(&new.frames)
        };
        if self.bytes.is_empty() || length == self.bytes.len() as u64 {
            write(&mut file).map_err(Error::io(&path))?;
        }
        Ok(())
    }
}

/// Header line with a hash of the record schema, so that a cache with other fields is started over.
fn header() -> String {
    static HEADER: OnceLock<String> = OnceLock::new();
    let make = || {
        let schema = serde_json::to_string(&schemars::schema_for!(Record)).unwrap_or_default();
        let version = env!("CARGO_PKG_VERSION");
        format!("ladderscope records {version} {:016x}\n", hash(schema.as_bytes()))
    };
    HEADER.get_or_init(make).clone()
}

/// Fast hash that detects damage. Unsuitable for permanent files: another version may hash differently.
fn hash(bytes: &[u8]) -> u64 {
    foldhash::quality::FixedState::default().hash_one(bytes)
}

fn push_frame(frames: &mut Vec<u8>, payload: &[u8]) {
    frames.extend((payload.len() as u32).to_le_bytes());
    frames.extend(hash(payload).to_le_bytes());
    frames.extend(payload);
}

/// Payload range of the frame at `at`, if complete.
fn frame(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let length = u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize;
    let payload = at + FRAME..(at + FRAME).checked_add(length)?;
    (length > 0 && payload.end <= bytes.len()).then_some(payload)
}

/// Bytes of a stamp, which shows if a record was rewritten after caching.
const STAMP: usize = 28;

/// JSON of the environment, and the payload of the record.
fn encoded(record: &Record, stamp: &Stamp) -> Option<(Vec<u8>, Vec<u8>)> {
    let environment = serde_json::to_vec(&record.environment).ok()?;
    let mut payload = vec![b'R'];
    let (inode, length, changed) = stamp;
    let changed = (*changed)?.duration_since(UNIX_EPOCH).ok()?;
    payload.extend(inode.to_le_bytes());
    payload.extend(length.to_le_bytes());
    payload.extend(changed.as_secs().to_le_bytes());
    payload.extend(changed.subsec_nanos().to_le_bytes());
    payload.extend(hash(&environment).to_le_bytes());
    payload.extend((record.run.len() as u32).to_le_bytes());
    payload.extend(record.run.as_bytes());
    payload.extend((record.samples.len() as u32).to_le_bytes());
    for sample in &record.samples {
        payload.extend((sample.steps_ms.len() as u32).to_le_bytes());
    }
    for sample in &record.samples {
        sample.steps_ms.iter().for_each(|ms| payload.extend(ms.to_le_bytes()));
    }
    let without_steps = |s: &Sample| Sample { steps_ms: Vec::new(), ..*s };
    let short = Record {
        samples: record.samples.iter().map(without_steps).collect(),
        environment: Environment::new(),
        schema: record.schema,
        run: record.run.clone(),
        status: record.status,
        reason: record.reason.clone(),
        spec: record.spec.clone(),
        provenance: record.provenance,
        verified: record.verified,
        metrics: record.metrics.clone(),
        overlap: record.overlap,
        trace: record.trace.clone(),
        created: record.created.clone(),
        round: record.round,
        experiment: record.experiment.clone(),
        runs: record.runs.clone(),
        warnings: record.warnings.clone(),
        instrumented: record.instrumented.clone(),
        quality: None,
        training: None,
    };
    serde_json::to_writer(&mut payload, &short).ok()?;
    Some((environment, payload))
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        self.take(count).map(|_| ())
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.u32()? as usize;
        std::str::from_utf8(self.take(length)?).ok()
    }

    fn stamp(&mut self) -> Option<Stamp> {
        let (inode, length, seconds) = (self.u64()?, self.u64()?, self.u64()?);
        let changed = UNIX_EPOCH.checked_add(Duration::new(seconds, self.u32()?))?;
        Some((inode, length, Some(changed)))
    }

    fn numbers(&mut self, count: u32) -> Option<Vec<f64>> {
        let bytes = self.take((count as usize).checked_mul(8)?)?;
        let number = |bytes: &[u8]| Some(f64::from_le_bytes(bytes.try_into().ok()?));
        bytes.chunks_exact(8).map(number).collect()
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }
}
