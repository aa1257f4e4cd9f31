//! Append-only files of JSON lines, and values derived from files.
//!
//! Writers append whole lines under the file's lock and sync them. A line without its line feed is the rest of a
//! writer that died: readers ignore it and the next writer cuts it off.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use serde::Serialize;
use serde::de::DeserializeOwned;

use base::error::{Error, Result};
use base::regular;

/// Inode, length and modification time: the version of a file that was read.
pub(super) type Stamp = (u64, u64, Option<SystemTime>);

/// Current version of a file; `None` if there is none. Links are not followed.
pub(super) fn stamp(path: &Path) -> Option<Stamp> {
    let there = path.symlink_metadata().ok()?;
    Some((there.ino(), there.len(), there.modified().ok()))
}

/// Value derived from a file, kept until the file changes. Clones share it.
#[derive(Debug)]
pub(super) struct Derived<T>(Arc<Mutex<Option<CachedValue<T>>>>);

/// Value and the version of its file.
type CachedValue<T> = (Stamp, Arc<T>);

impl<T> Clone for Derived<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Derived<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Default> Derived<T> {
    /// The value; the default if there is no file.
    pub fn get(&self, path: &Path, derive: impl FnOnce(io::Result<Vec<u8>>) -> T) -> Arc<T> {
        let Some(stamp) = stamp(path) else { return Arc::default() };
        if let Ok(seen) = self.0.lock()
            && let Some((seen, value)) = seen.as_ref()
            && *seen == stamp
        {
            return value.clone();
        }
        let value = Arc::new(derive(regular::read(path)));
        if let Ok(mut seen) = self.0.lock() {
            *seen = Some((stamp, value.clone()));
        }
        value
    }
}

/// Locks a file, creating it; `None` if another process holds the lock. The lock ends when the file is dropped or its
/// process dies.
pub(super) fn try_lock(path: &Path) -> Result<Option<File>> {
    let file = regular::open_or_make(path).map_err(Error::io(path))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(e)) => Err(Error::io(path)(e)),
    }
}

/// Appends the lines that `make` returns to the file, and syncs them. `make` gets the lines that are already there.
/// Fails if the file cannot be created, locked or written.
pub(super) fn append(
    path: &Path,
    make: impl FnOnce(&[u8]) -> serde_json::Result<Vec<u8>>,
) -> Result<()> {
    if let Some(folder) = path.parent() {
        regular::make_folder(folder).map_err(Error::io(folder))?;
    }
    let mut file = regular::open_or_make(path).map_err(Error::io(path))?;
    let write = || -> io::Result<()> {
        file.lock()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let whole = whole_lines(&bytes);
        let new = make(whole)?;
        if new.is_empty() {
            return Ok(());
        }
        if whole.len() < bytes.len() {
            file.set_len(whole.len() as u64)?;
        }
        file.seek(SeekFrom::End(0))?;
        file.write_all(&new)?;
        file.sync_data()
    };
    write().map_err(Error::io(path))
}

/// A value as a line of JSON.
pub(super) fn line(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

/// The bytes up to the last line feed.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)]
}

/// Parses each whole line that is not empty.
pub(super) fn parse<T: DeserializeOwned>(
    bytes: &[u8],
) -> impl DoubleEndedIterator<Item = serde_json::Result<T>> {
    lines(bytes).map(serde_json::from_slice)
}

fn lines(bytes: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let lines = whole_lines(bytes).split(|byte| *byte == b'\n');
    lines.filter(|line| !line.is_empty())
}

/// Finds the first line that is neither what `is` expects of it and its index nor of a format newer than `version`.
/// Returns its number and what is wrong.
pub(super) fn check(
    bytes: &[u8],
    version: u32,
    is: impl Fn(usize, &[u8]) -> serde_json::Result<()>,
) -> Result<(), String> {
    let wrong = |(at, line): (usize, &[u8])| {
        let why = is(at, line).err()?;
        let known = serde_json::from_slice::<serde_json::Value>(line);
        let is_newer = known.is_ok_and(|line| line["version"].as_u64() > Some(version.into()));
        // serde counts from this line
        let (why, place) = (why.to_string(), format!(" at line 1 column {}", why.column()));
        let why = why.trim_end_matches(&place);
        (!is_newer).then(|| format!("line {}: {why}: it is skipped, the others are kept", at + 1))
    };
    lines(bytes).enumerate().find_map(wrong).map_or(Ok(()), Err)
}

/// Parses a line as a `T`, for [`check`].
pub(super) fn is<T: DeserializeOwned>(line: &[u8]) -> serde_json::Result<()> {
    serde_json::from_slice::<T>(line).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_is_ignored_and_cut_off_by_the_next_writer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("folder/log.jsonl");
        append(&path, |_| line(&1)).unwrap();
        append(&path, |there| Ok(if there == b"1\n" { line(&22)? } else { Vec::new() })).unwrap();
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(whole, b"1\n22\n");
        for cut in 2..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let read = |path| parse::<u32>(&std::fs::read(path).unwrap()).flatten().collect::<Vec<_>>();
            assert_eq!(read(&path), [1]);
            append(&path, |_| line(&3)).unwrap();
            assert_eq!(read(&path), [1, 3]);
        }
        append(&path, |_| Ok(Vec::new())).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"1\n3\n");
    }

    #[test]
    fn a_derived_value_follows_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let derived = Derived::<usize>::default();
        let length = |bytes: io::Result<Vec<u8>>| bytes.map_or(99, |bytes| bytes.len());
        assert_eq!(*derived.get(&path, length), 0);
        std::fs::write(&path, "four").unwrap();
        assert_eq!(*derived.get(&path, length), 4);
        assert_eq!(*derived.get(&path, |_| panic!("it is unchanged")), 4);
        std::os::unix::fs::symlink(&path, dir.path().join("link")).unwrap();
        assert_eq!(*derived.get(&dir.path().join("link"), length), 99, "links are not followed");
    }
}
