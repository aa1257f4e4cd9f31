//! Files of a batch (whole or in parts), and the keys in their footers.

use std::path::{Path, PathBuf};

use polars_parquet::read::FileMetadata;

use base::regular;

/// Version of the batch format. Version 1 lacks the columns for the reason of `status`, overlap times and the rest of
/// a record without its environment. Version 2 has `tpot_ms` for `tpot_p50_ms`.
pub(super) const VERSION: u32 = 3;
/// First version with a checksum in every file.
pub(super) const SEALED_SINCE: u32 = 3;
/// First version whose records are read from columns.
pub(super) const COLUMNS_SINCE: u32 = 2;

pub(super) const VERSION_KEY: &str = "ladderscope.batch.version";

pub(super) const SEAL_KEY: &str = "ladderscope.batch.seal";

pub(super) fn version(metadata: &FileMetadata) -> Option<u32> {
    let entries = metadata.key_value_metadata().iter().flatten();
    entries.filter(|pair| pair.key == VERSION_KEY).find_map(|pair| pair.value.as_ref()?.parse().ok())
}

/// Rows per row group: a compromise between fast access to one row and good compression.
pub(in crate::store) const ROWS: usize = 4096;

/// File in the parts directory that the writer locks.
pub(super) const LOCK: &str = "lock";

/// Suffix of the parts directory of a batch.
pub(in crate::store) const PARTS: &str = ".parts";

/// Files with the rows of a batch in `dir`, in order; empty if there is no such batch.
pub(in crate::store) fn files(dir: &Path, batch: &str) -> Vec<PathBuf> {
    let whole = dir.join(format!("{batch}.parquet"));
    if whole.exists() {
        return vec![whole];
    }
    parts(&dir.join(format!("{batch}{PARTS}")))
}

/// Part files in a parts directory, in order.
pub(super) fn parts(dir: &Path) -> Vec<PathBuf> {
    let entries = regular::entries(dir).unwrap_or_default().into_iter();
    let mut parts: Vec<PathBuf> =
        entries.filter(|entry| is_part(&entry.name)).map(|entry| dir.join(entry.name)).collect();
    parts.sort_unstable();
    parts
}

pub(super) fn is_part(name: &str) -> bool {
    name.strip_suffix(".parquet").is_some_and(crate::store::id::is_id)
}
