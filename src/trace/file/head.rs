//! What the footer says: metadata, operations, and where the row groups are.

use std::fs::File;
use std::io::{Cursor, Read as _, Seek as _};

use polars::prelude::{ArrowSchema, DataType};
use polars_parquet::read::{FileMetadata, RowGroupMetadata, infer_schema};
use sha2::Digest as _;

use super::columns;
use super::footer::FooterBytes;
use super::groups::{Group, Holds};
use super::problem::{Problem, Read};
use crate::trace::{FORMAT_VERSION, OperationInfo, TraceMeta};

/// The footer, understood.
pub(super) struct Head {
    pub(super) version: u32,
    pub(super) meta: TraceMeta,
    pub(super) operations: Vec<OperationInfo>,
    /// Of the file's columns.
    pub(super) schema: ArrowSchema,
    row_groups: Vec<RowGroupMetadata>,
    checksums: Checksums,
}

/// How the data are protected.
enum Checksums {
    /// Each row group by its own (since version 2).
    Groups(Vec<Group>),
    /// All bytes by one, and the texts of the footer with them (version 1).
    Whole { entry: String, texts: (String, String) },
}

/// A row group in the file.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) offset: u64,
    pub(super) length: usize,
    /// Number of its first row in the file.
    pub(super) first_row: usize,
    pub(super) parquet: &'a RowGroupMetadata,
    /// Its checksum, where it has one of its own.
    pub(super) group: Option<&'a Group>,
}

impl Head {
    /// Understands a footer that was checked.
    pub(super) fn read(footer: &FooterBytes) -> Read<Self> {
        // the Parquet reader is given a file without data: a beginning, and the footer
        let mut file = b"PAR1".to_vec();
        file.extend_from_slice(&footer.bytes);
        let metadata = polars_parquet::read::read_metadata(&mut Cursor::new(file))?;
        let schema = infer_schema(&metadata)?;
        let entry = |key: &str| {
            let entries = metadata.key_value_metadata.iter().flatten();
            entries.filter(|entry| entry.key == key).find_map(|entry| entry.value.clone())
        };
        let stated: Option<u32> = entry(super::VERSION).and_then(|version| version.parse().ok());
        // a file that says what it is may be of a later format; one that does not is foreign
        let newer = stated.filter(|version| *version > FORMAT_VERSION);
        check_schema(&schema, stated.unwrap_or(FORMAT_VERSION)).map_err(|problem| match newer {
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
        let meta_parsed = serde_json::from_str(&meta).map_err(|e| wrong(super::META, e))?;
        let parsed = serde_json::from_str(&operations).map_err(|e| wrong(super::OPERATIONS, e))?;
        let checksums = if version == 1 {
            Checksums::Whole { entry: wanted(super::CHECKSUM)?, texts: (meta, operations) }
        } else {
            let groups = wanted(super::GROUPS)?;
            Checksums::Groups(serde_json::from_str(&groups).map_err(|e| wrong(super::GROUPS, e))?)
        };
        if !footer.is_sealed() {
            return Err(Problem::Damaged("its footer is not what was written".into()));
        }
        let FileMetadata { row_groups, .. } = metadata;
        let head =
            Self { version, meta: meta_parsed, operations: parsed, schema, row_groups, checksums };
        head.fits(footer.start)?;
        Ok(head)
    }

    /// Whether the table of row groups speaks of the row groups that Parquet speaks of.
    fn fits(&self, data: u64) -> Read<()> {
        let mut end = 0_u64;
        let mut sound = true;
        for part in self.all_parts() {
            end = part.offset.saturating_add(part.length as u64);
            sound &= part.group.is_none_or(|group| group.rows == part.parquet.num_rows() as u64);
            let columns = part.parquet.parquet_columns().iter().map(|column| column.byte_range());
            sound &= columns.into_iter().all(|c| part.offset <= c.start && c.end <= end);
        }
        if let Checksums::Groups(groups) = &self.checksums {
            sound &= groups.len() == self.row_groups.len();
        }
        if sound && end <= data {
            return Ok(());
        }
        Err(Problem::Damaged("its footer speaks of row groups that are not there".into()))
    }

    /// Checks what is not checked row group by row group: nothing since version 2.
    pub(super) fn verify(&self, file: &mut File) -> Read<()> {
        let Checksums::Whole { entry, texts } = &self.checksums else { return Ok(()) };
        let mut parts = entry.split(':');
        let bytes = parts.next().and_then(|bytes| bytes.parse::<u64>().ok()).unwrap_or_default();
        let spans = parts.next().and_then(|spans| spans.parse::<usize>().ok());
        let mut hash = super::checksum_of_texts(&texts.0, &texts.1);
        let mut data = vec![0; 1 << 16];
        file.rewind()?;
        let mut file = file.take(bytes);
        loop {
            match file.read(&mut data)? {
                0 => break,
                read => hash.update(&data[..read]),
            }
        }
        let rows = self.row_groups.iter().map(RowGroupMetadata::num_rows).sum();
        if parts.next() == Some(super::hex(hash).as_str()) && spans == Some(rows) {
            return Ok(());
        }
        Err(Problem::changed())
    }

    /// The row groups that hold these, and their rows.
    pub(super) fn parts(&self, holds: Holds) -> impl Iterator<Item = (Part<'_>, usize)> {
        self.all_parts()
            .filter(move |part| part.group.map_or(Holds::Spans, |group| group.holds) == holds)
            .map(|part| (part, part.parquet.num_rows()))
    }

    fn all_parts(&self) -> impl Iterator<Item = Part<'_>> {
        let (mut offset, mut rows) = (0_u64, 0);
        self.row_groups.iter().enumerate().map(move |(number, parquet)| {
            let group = match &self.checksums {
                Checksums::Groups(groups) => groups.get(number),
                Checksums::Whole { .. } => None,
            };
            let own = match group {
                Some(group) => offset..offset.saturating_add(group.bytes),
                None => parquet.full_byte_range(),
            };
            let first_row = rows;
            rows += parquet.num_rows();
            offset = own.end;
            let length = usize::try_from(own.end.saturating_sub(own.start)).unwrap_or(usize::MAX);
            Part { offset: own.start, length, first_row, parquet, group }
        })
    }
}

/// Whether the file has the columns of this version, in their types.
fn check_schema(schema: &ArrowSchema, version: u32) -> Result<(), String> {
    for column in columns::schema() {
        let (name, dtype) = (column.name, column.dtype);
        match schema.get(name).map(DataType::from_arrow_field) {
            Some(found) if found == dtype => {}
            Some(found) => return Err(format!("its column {name} is {found}, not {dtype}")),
            None if version < column.since => {}
            None => return Err(format!("it has no column {name}")),
        }
    }
    Ok(())
}

impl Problem {
    /// Data that do not match their checksum.
    pub(super) fn changed() -> Self {
        Self::Damaged(
            "its bytes do not match its checksum: something changed after it was written".into(),
        )
    }
}
