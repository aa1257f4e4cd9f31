//! Files of lines that several processes append to, under a lock.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::base::error::{Error, Result};
use crate::base::regular;

/// Opens such a file, making it where there is none. The lock is released when the file is closed, so
/// also when the process dies.
pub(super) fn open_locked(path: &Path) -> Result<File> {
    let file = regular::open_or_make(path).map_err(Error::io(path))?;
    file.lock().map_err(Error::io(path))?;
    Ok(file)
}

/// Goes to the file's end. Whether its last line is torn: somebody died while writing it.
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

/// Whether a line of JSON says that it is of a version after `known`.
pub(super) fn is_newer(line: &[u8], known: u32) -> bool {
    serde_json::from_slice::<serde_json::Value>(line)
        .is_ok_and(|v| v["version"].as_u64().is_some_and(|v| v > u64::from(known)))
}
