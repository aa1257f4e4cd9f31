//! The parsed footer: metadata, operations and locations of the row groups.

use std::io::Cursor;

use polars_core::prelude::{ArrowSchema, DataType};
use polars_parquet::read::{FileMetadata, RowGroupMetadata, infer_schema};

use super::columns;
use super::footer::FooterBytes;
use super::groups::{Group, Holds};
use super::problem::{Problem, Read};
use crate::{FORMAT_VERSION, OperationInfo, TraceMeta};

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
        if !footer.is_sealed() {
            return Err(Problem::Damaged("its footer is not what was written".into()));
        }
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
