//! Checksum of a batch: SHA-256 of the whole file, stored in its footer. It detects damage before Parquet readers see
//! the file, which would allocate whatever a damaged length asks for.

use std::fs::File;
use std::io::{Cursor, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

use polars_parquet::read::{FileMetadata, read_metadata};
use sha2::{Digest, Sha256};

use base::error::{Error, Result};
use base::hash::hex;
use base::panic::contained;
use base::regular;

use super::files::{SEALED_SINCE, version};

/// Prefix of the digits, by which they are found in the footer.
const MARK: &str = "ladderscope.batch.sha256:";
const DIGITS: usize = 64;

/// Footer entry with zeros in place of the checksum.
pub(super) fn unsealed() -> String {
    format!("{MARK}{}", "0".repeat(DIGITS))
}

/// Writes the checksum into a file that was written with [`unsealed`] in its footer.
pub(super) fn seal(file: &mut File, path: &Path) -> Result<()> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).map_err(Error::io(path))?;
    file.read_to_end(&mut bytes).map_err(Error::io(path))?;
    let Some(place) = place(&bytes) else {
        return Err(Error::failed(format!(
            "{}: the footer has no place for its checksum",
            path.display()
        )));
    };
    let digits = checksum(&bytes, &place);
    file.seek(SeekFrom::Start(place.start as u64)).map_err(Error::io(path))?;
    file.write_all(digits.as_bytes()).map_err(Error::io(path))
}

/// Verifies the checksum of a file and returns its footer. Files of early versions may lack a checksum.
pub(super) fn verify(path: &Path) -> Result<FileMetadata, String> {
    let bytes = regular::read(path).map_err(|e| e.to_string())?;
    if bytes.is_empty() {
        return Err("the file is empty".into());
    }
    let place = place(&bytes);
    if let Some(place) = &place
        && bytes[place.clone()] != *checksum(&bytes, place).as_bytes()
    {
        return Err("it is damaged: its checksum is another one".into());
    }
    match contained(|| read_metadata(&mut Cursor::new(&bytes))) {
        Ok(Ok(metadata)) if place.is_none() && version(&metadata) >= Some(SEALED_SINCE) => {
            Err("it is damaged: its checksum is gone".into())
        }
        Ok(Ok(metadata)) => Ok(metadata),
        Ok(Err(e)) => Err(format!("not a batch of runs: {e}")),
        Err(_) => Err("not a readable Parquet file".into()),
    }
}

/// Byte range of the digits. Searches from the end, where the footer is: an earlier match would be text of a record.
fn place(bytes: &[u8]) -> Option<Range<usize>> {
    let start = memchr::memmem::rfind(bytes, MARK.as_bytes())? + MARK.len();
    let range = start..start.checked_add(DIGITS)?;
    bytes.get(range.clone()).map(|_| range)
}

/// Checksum of all bytes except its own digits.
fn checksum(bytes: &[u8], place: &Range<usize>) -> String {
    let hash = Sha256::new().chain_update(&bytes[..place.start]).chain_update(&bytes[place.end..]);
    hex(hash.finalize())
}
