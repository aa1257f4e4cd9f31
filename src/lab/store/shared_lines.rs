//! Line-based files that several processes append to, under a lock.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde::Serialize;

use base::error::{Error, Result};
use base::regular;

/// Opens or creates the file and locks it. The lock is released when the file is closed or the process dies.
pub(super) fn open_locked(path: &Path) -> Result<File> {
    let file = regular::open_or_make(path).map_err(Error::io(path))?;
    file.lock().map_err(Error::io(path))?;
    Ok(file)
}

/// Seeks to the end. Returns true if the last line is torn because its writer died.
pub(super) fn seek_end(file: &mut File) -> std::io::Result<bool> {
    let length = file.seek(SeekFrom::End(0))?;
    if length == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::Start(length - 1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// True if a line of JSON has a version above `known`.
pub(super) fn is_newer(line: &[u8], known: u32) -> bool {
    serde_json::from_slice::<serde_json::Value>(line)
        .is_ok_and(|v| v["version"].as_u64().is_some_and(|v| v > u64::from(known)))
}

/// Appends a value as a line of JSON and syncs it to disk. Removes a torn last line first.
pub(super) fn append_line(file: &mut File, value: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    heal(file)?;
    file.write_all(&line)?;
    file.sync_data()
}

/// Removes a torn last line and seeks to the end. Returns the remaining length in bytes.
pub(super) fn heal(file: &mut File) -> std::io::Result<u64> {
    if seek_end(file)? {
        cut_torn_line(file)?;
    }
    file.seek(SeekFrom::End(0))
}

/// Truncates the file after the last line feed.
fn cut_torn_line(file: &mut File) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    file.set_len(whole as u64)
}
