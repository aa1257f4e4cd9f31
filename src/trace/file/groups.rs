//! The footer's table of row groups: how long each is, what it holds, and its checksum.
//!
//! Row groups stand one behind the other from the file's first byte on, so that each can be read,
//! checked and decoded on its own.

use serde::{Deserialize, Serialize};

use base::hash::sha256;

/// What a row group holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Holds {
    /// Every row is an executed operation.
    Spans,
    /// Every row is a named range.
    Ranges,
}

/// One row group as the footer's table describes it: what it holds, its length, its checksum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Group {
    pub(super) holds: Holds,
    pub(super) rows: u64,
    /// Length in the file.
    pub(super) bytes: u64,
    /// The SHA-256 of the group's bytes, in hex.
    pub(super) sha256: String,
}

impl Group {
    /// The entry of a row group that was just encoded.
    pub(super) fn of(holds: Holds, rows: usize, bytes: &[u8]) -> Self {
        Self { holds, rows: rows as u64, bytes: bytes.len() as u64, sha256: sha256(bytes) }
    }

    /// Whether these bytes are what was written.
    pub(super) fn is(&self, bytes: &[u8]) -> bool {
        sha256(bytes) == self.sha256
    }
}
