//! A batch's checksum: SHA-256 of the whole file, in the file's own footer. What is damaged is told from
//! it before Parquet's readers see it, which allocate whatever a damaged length asks for.

use std::fs::File;
use std::io::{Cursor, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use polars_buffer::Buffer;
use polars_core::prelude::PolarsResult;
use polars_parquet::read::{FileMetadata, read_metadata};
use sha2::{Digest, Sha256};

use crate::base::error::{Error, Result};
use crate::base::hash::hex;
use crate::base::pages::pages;
use crate::base::panic::contained;
use crate::base::regular;

use super::files::{SEALED_SINCE, version};

/// Begins the digits in the footer, so that they can be found in it.
const MARK: &str = "ladderscope.batch.sha256:";
/// Hex digits of the checksum.
const DIGITS: usize = 64;

/// The footer's entry before its digits are known.
pub(super) fn unsealed() -> String {
    format!("{MARK}{}", "0".repeat(DIGITS))
}

/// Puts the checksum into a file that was written with [`unsealed`] in its footer.
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

/// Whether the file is as it was written. One without a checksum may be of an early version. The checksum may be
/// somebody else's: that pages hold no more than their row group is looked at in every file, since Parquet's readers
/// would allocate what they claim. Returns what its footer says, for those who read on.
pub(super) fn verify(path: &Path) -> Result<Arc<FileMetadata>, String> {
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
    match contained(|| looks(bytes)) {
        Ok(Ok((metadata, _))) if place.is_none() && version(&metadata) >= Some(SEALED_SINCE) => {
            Err("it is damaged: its checksum is gone".into())
        }
        Ok(Ok((_, false))) => {
            Err("it is damaged: a page claims more rows than its row group has".into())
        }
        Ok(Ok((metadata, true))) => Ok(Arc::new(metadata)),
        Ok(Err(e)) => Err(format!("not a batch of runs: {e}")),
        Err(_) => Err("not a readable Parquet file".into()),
    }
}

/// What a file's footer says, and whether each of its pages holds at most the rows of its row group.
fn looks(bytes: Vec<u8>) -> PolarsResult<(FileMetadata, bool)> {
    let metadata = read_metadata(&mut Cursor::new(&bytes))?;
    let bytes = Buffer::from(bytes);
    let mut fits = true;
    for group in &metadata.row_groups {
        for column in group.parquet_columns() {
            let place = column.byte_range();
            let place = usize::try_from(place.start).ok().zip(usize::try_from(place.end).ok());
            let place = place.filter(|(start, end)| bytes.get(*start..*end).is_some());
            fits &= match place {
                Some((start, end)) => {
                    pages(bytes.clone().sliced(start..end), column, group.num_rows())?.is_some()
                }
                None => false,
            };
        }
    }
    Ok((metadata, fits))
}

/// Where the digits are. The footer is last in the file, and what follows the mark first elsewhere
/// would be text of a record.
fn place(bytes: &[u8]) -> Option<Range<usize>> {
    let start = memchr::memmem::rfind(bytes, MARK.as_bytes())? + MARK.len();
    let range = start..start.checked_add(DIGITS)?;
    bytes.get(range.clone()).map(|_| range)
}

/// The checksum of all bytes but the digits of the checksum itself.
fn checksum(bytes: &[u8], place: &Range<usize>) -> String {
    let hash = Sha256::new().chain_update(&bytes[..place.start]).chain_update(&bytes[place.end..]);
    hex(hash.finalize())
}
