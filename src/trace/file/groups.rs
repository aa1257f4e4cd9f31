//! The footer's table of row groups: length, content type and checksum of each.
//!
//! Row groups are contiguous from offset 0 of the file, so each can be read, checked and decoded
//! independently.

use serde::{Deserialize, Serialize};

use base::hash::sha256;

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
