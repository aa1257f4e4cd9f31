//! Integrity check of the footer, before any parser sees its bytes.
//!
//! A Parquet file ends with its footer (Thrift), the footer's length and a magic number. Polars trusts
//! the lengths in a footer and allocates accordingly, so a flipped bit could abort the process. The seal
//! prevents that: a SHA-256 of the footer, stored in the footer itself and computed with zeros in its
//! place. A footer without a seal is from another program, and is not parsed.
//!
//! [`Head`] is the parsed footer: metadata, operations, and the row groups with length, content and checksum.
//! Row groups are contiguous from offset 0 of the file, so each can be read, checked and decoded independently.

use std::io::{Cursor, Read as _, Seek, SeekFrom};
use std::ops::Range;

use polars_core::prelude::{ArrowSchema, DataType};
use polars_parquet::read::{FileMetadata, RowGroupMetadata, infer_schema};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::columns;
use super::read::{Problem, Read};
use crate::{FORMAT_VERSION, OperationInfo, TraceMeta};
use base::hash::{hex, sha256};

const MAGIC: &[u8] = b"PAR1";
/// Size of the footer's length field and the magic number after it.
const TAIL: usize = 8;
/// Prefix of the seal's 64 hex digits.
const SEAL: &str = "ladderscope.footer.sha256=";
const DIGITS: usize = 64;

#[derive(Debug)]
pub(super) struct FooterBytes {
    pub(super) start: u64,
    /// The footer and the 8 bytes after it.
    pub(super) bytes: Vec<u8>,
}

/// Footer entry that reserves space for the seal.
pub(super) fn unsealed() -> String {
    format!("{SEAL}{}", "0".repeat(DIGITS))
}

impl FooterBytes {
    pub(super) fn locate<R: std::io::Read + Seek>(source: &mut R) -> Read<Self> {
        let length = source.seek(SeekFrom::End(0))?;
        source.rewind()?;
        let mut head = Vec::new();
        source.by_ref().take(MAGIC.len() as u64).read_to_end(&mut head)?;
        if head != MAGIC {
            let shown: Vec<String> = head.iter().map(|byte| format!("{byte:02x}")).collect();
            return Err(Problem::Foreign(match shown.join(" ").as_str() {
                "" => "it is empty".into(),
                shown => {
                    format!("it begins with the bytes {shown}, Parquet files with 50 41 52 31 (PAR1)")
                }
            }));
        }
        let cut = || Problem::Damaged("it is cut off: the footer at its end is missing".into());
        let end =
            length.checked_sub(TAIL as u64).filter(|end| *end >= MAGIC.len() as u64).ok_or_else(cut)?;
        let mut tail = [0; TAIL];
        source.seek(SeekFrom::Start(end))?;
        source.read_exact(&mut tail)?;
        let [a, b, c, d, magic @ ..] = tail;
        if magic != *MAGIC {
            return Err(cut());
        }
        let claimed = u32::from_le_bytes([a, b, c, d]);
        let start = end.checked_sub(u64::from(claimed)).filter(|start| *start >= MAGIC.len() as u64);
        let Some(start) = start else {
            return Err(Problem::Damaged(format!(
                "its last 8 bytes speak of a footer of {claimed} bytes, but the file has {length}"
            )));
        };
        let mut bytes = Vec::new();
        source.seek(SeekFrom::Start(start))?;
        source.read_to_end(&mut bytes)?;
        source.rewind()?;
        Ok(Self { start, bytes })
    }

    /// Computes the seal; returns it with the file offset of its digits.
    pub(super) fn seal(&self) -> Option<(u64, String)> {
        let place = self.place()?;
        Some((self.start + place.start as u64, self.hash(&place)))
    }

    /// Returns an error if there is no seal or it does not match. Only then may a parser see the bytes.
    pub(super) fn check(&self) -> Read<()> {
        let Some(place) = self.place() else {
            return Err(Problem::Foreign(
                "its footer has no checksum: another program wrote it, or the checksum is damaged"
                    .into(),
            ));
        };
        if self.hash(&place).as_bytes() == &self.bytes[place] {
            return Ok(());
        }
        Err(Problem::Damaged("its footer is not what was written".into()))
    }

    fn place(&self) -> Option<Range<usize>> {
        let at = self.bytes.windows(SEAL.len()).rposition(|window| window == SEAL.as_bytes())?;
        let digits = at + SEAL.len()..at + SEAL.len() + DIGITS;
        (digits.end <= self.bytes.len()).then_some(digits)
    }

    fn hash(&self, place: &Range<usize>) -> String {
        let hash = Sha256::new()
            .chain_update(&self.bytes[..place.start])
            .chain_update([b'0'; DIGITS])
            .chain_update(&self.bytes[place.end..]);
        hex(hash.finalize())
    }
}

pub(super) struct Head {
    pub(super) version: u32,
    pub(super) meta: TraceMeta,
    pub(super) operations: Vec<OperationInfo>,
    pub(super) schema: ArrowSchema,
    row_groups: Vec<RowGroupMetadata>,
    groups: Vec<Group>,
}

#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) offset: u64,
    pub(super) length: usize,
    pub(super) first_row: usize,
    pub(super) parquet: &'a RowGroupMetadata,
    pub(super) group: &'a Group,
}

impl Head {
    /// Parses a footer that passed [`FooterBytes::check`].
    pub(super) fn read(footer: &FooterBytes) -> Read<Self> {
        // present the footer to the Parquet reader as a file without data
        let mut file = b"PAR1".to_vec();
        file.extend_from_slice(&footer.bytes);
        let metadata = polars_parquet::read::read_metadata(&mut Cursor::new(file))?;
        let schema = infer_schema(&metadata)?;
        let entry = |key: &str| {
            let entries = metadata.key_value_metadata.iter().flatten();
            entries.filter(|entry| entry.key == key).find_map(|entry| entry.value.clone())
        };
        let stated: Option<u32> = entry(super::VERSION).and_then(|version| version.parse().ok());
        if let Some(older) = stated.filter(|version| *version < FORMAT_VERSION) {
            return Err(Problem::Older(older));
        }
        // a file with a version may be newer; a file without one is foreign
        let newer = stated.filter(|version| *version > FORMAT_VERSION);
        check_schema(&schema).map_err(|problem| match newer {
            Some(version) => Problem::Newer(version, problem),
            None => Problem::Foreign(problem),
        })?;
        let wanted = |key: &str| {
            entry(key).ok_or_else(|| Problem::Foreign(format!("its footer has no entry {key}")))
        };
        let version = wanted(super::VERSION)?;
        let version = stated.ok_or_else(|| {
            Problem::Damaged(format!("{} is '{version}', not a number", super::VERSION))
        })?;
        let wrong = |key: &str, error: serde_json::Error| match newer {
            Some(version) => Problem::Newer(version, format!("{key}: {error}")),
            None => Problem::Damaged(format!("{key}: {error}")),
        };
        let (meta, operations) = (wanted(super::META)?, wanted(super::OPERATIONS)?);
        let meta = serde_json::from_str(&meta).map_err(|e| wrong(super::META, e))?;
        let operations = serde_json::from_str(&operations).map_err(|e| wrong(super::OPERATIONS, e))?;
        let groups =
            serde_json::from_str(&wanted(super::GROUPS)?).map_err(|e| wrong(super::GROUPS, e))?;
        let FileMetadata { row_groups, .. } = metadata;
        let head = Self { version, meta, operations, schema, row_groups, groups };
        head.fits(footer.start)?;
        Ok(head)
    }

    /// Checks that the table of row groups agrees with Parquet's own.
    fn fits(&self, data: u64) -> Read<()> {
        let mut end = 0_u64;
        let mut sound = self.groups.len() == self.row_groups.len();
        for part in self.all_parts() {
            end = part.offset.saturating_add(part.length as u64);
            sound &= part.group.rows == part.parquet.num_rows() as u64;
            let columns = part.parquet.parquet_columns().iter().map(|column| column.byte_range());
            sound &= columns.into_iter().all(|c| part.offset <= c.start && c.end <= end);
        }
        if sound && end <= data {
            return Ok(());
        }
        Err(Problem::Damaged("its footer speaks of row groups that are not there".into()))
    }

    pub(super) fn parts(&self, holds: Holds) -> impl Iterator<Item = (Part<'_>, usize)> {
        self.all_parts()
            .filter(move |part| part.group.holds == holds)
            .map(|part| (part, part.parquet.num_rows()))
    }

    fn all_parts(&self) -> impl Iterator<Item = Part<'_>> {
        let (mut offset, mut rows) = (0_u64, 0);
        self.row_groups.iter().zip(&self.groups).map(move |(parquet, group)| {
            let length = usize::try_from(group.bytes).unwrap_or(usize::MAX);
            let part = Part { offset, length, first_row: rows, parquet, group };
            rows += parquet.num_rows();
            offset = offset.saturating_add(group.bytes);
            part
        })
    }
}

fn check_schema(schema: &ArrowSchema) -> Result<(), String> {
    for column in columns::schema() {
        let (name, dtype) = (column.name, column.dtype);
        match schema.get(name).map(DataType::from_arrow_field) {
            Some(found) if found == dtype => {}
            Some(found) => return Err(format!("its column {name} is {found}, not {dtype}")),
            None if column.optional => {}
            None => return Err(format!("it has no column {name}")),
        }
    }
    Ok(())
}

impl Problem {
    pub(super) fn changed() -> Self {
        Self::Damaged(
            "its bytes do not match its checksum: something changed after it was written".into(),
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Holds {
    Spans,
    Ranges,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Group {
    pub(super) holds: Holds,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

impl Group {
    pub(super) fn of(holds: Holds, rows: usize, bytes: &[u8]) -> Self {
        Self { holds, rows: rows as u64, bytes: bytes.len() as u64, sha256: sha256(bytes) }
    }

    pub(super) fn is(&self, bytes: &[u8]) -> bool {
        sha256(bytes) == self.sha256
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_holds_until_anything_changes() {
        let mut footer =
            FooterBytes { start: 100, bytes: format!("xx{}yyyyyyyyyy", unsealed()).into_bytes() };
        let (at, digits) = footer.seal().unwrap();
        assert_eq!(at, 100 + 2 + SEAL.len() as u64);
        assert!(footer.check().is_err());
        let from = (at - 100) as usize;
        footer.bytes[from..from + DIGITS].copy_from_slice(digits.as_bytes());
        footer.check().unwrap();
        for at in [0, from, footer.bytes.len() - 1] {
            footer.bytes[at] ^= 1;
            assert!(footer.check().is_err(), "byte {at}");
            footer.bytes[at] ^= 1;
        }
    }
}
