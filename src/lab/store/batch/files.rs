//! Where a batch lies, whole or in parts, and what marks the files as batches.

use std::path::{Path, PathBuf};

use polars_parquet::read::FileMetadata;

use base::regular;

/// Version of the batch format. 1: no columns for `status`' reason, overlap times and the rest of what
/// a record without its environment needs. 2: `tpot_ms` for `tpot_p50_ms`.
pub(super) const VERSION: u32 = 3;
/// From this version on every file has a checksum.
pub(super) const SEALED_SINCE: u32 = 3;
/// From this version on records are read from their columns.
pub(super) const COLUMNS_SINCE: u32 = 2;

pub(super) const VERSION_KEY: &str = "ladderscope.batch.version";

pub(super) const SEAL_KEY: &str = "ladderscope.batch.seal";

/// The version of the format that a file says it has.
pub(super) fn version(metadata: &FileMetadata) -> Option<u32> {
    let entries = metadata.key_value_metadata().iter().flatten();
    entries.filter(|pair| pair.key == VERSION_KEY).find_map(|pair| pair.value.as_ref()?.parse().ok())
}

/// Rows of a row group: few enough that one row is read at once, enough to compress well.
pub(in crate::store) const ROWS: usize = 4096;

/// The file in a directory of parts that its writer has locked.
pub(super) const LOCK: &str = "lock";

/// How the directory of a batch's parts ends.
pub(in crate::store) const PARTS: &str = ".parts";

/// Files that hold a batch's rows, in order; none where there is no such batch. `dir`
/// is where batches lie.
pub(in crate::store) fn files(dir: &Path, batch: &str) -> Vec<PathBuf> {
    let whole = dir.join(format!("{batch}.parquet"));
    if whole.exists() {
        return vec![whole];
    }
    parts(&dir.join(format!("{batch}{PARTS}")))
}

/// Parts in a directory of parts, in order.
pub(super) fn parts(dir: &Path) -> Vec<PathBuf> {
    let entries = regular::entries(dir).unwrap_or_default().into_iter();
    let mut parts: Vec<PathBuf> =
        entries.filter(|entry| is_part(&entry.name)).map(|entry| dir.join(entry.name)).collect();
    parts.sort_unstable();
    parts
}

/// True for the name of a part's file.
pub(super) fn is_part(name: &str) -> bool {
    name.strip_suffix(".parquet").is_some_and(crate::store::id::is_id)
}
