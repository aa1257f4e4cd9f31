//! Errors of trace files, and their messages.

use std::path::Path;

use polars_core::prelude::PolarsError;

use crate::FORMAT_VERSION;
use base::error::Error;
use base::panic::contained;

#[derive(Debug)]
pub(super) enum Problem {
    Io(std::io::Error),
    Foreign(String),
    Damaged(String),
    Older(u32),
    Newer(u32, String),
}

pub(super) type Read<T> = std::result::Result<T, Problem>;

impl Problem {
    pub(super) fn of(self, path: &Path) -> Error {
        let shown = path.display();
        match self {
            Self::Io(error) => Error::io(path)(error),
            Self::Foreign(what) => Error::input_help(
                format!("{shown}: not a Ladderscope trace: {what}"),
                "a trace is what `run --trace FILE` writes; others can be imported with `ladderscope trace convert IN OUT`",
            ),
            Self::Damaged(what) => Error::input_help(
                format!("{shown}: damaged trace: {what}"),
                "record it again, or copy it again from where it was whole",
            ),
            Self::Older(version) => Error::input_help(
                format!(
                    "{shown}: trace format {version} is older than {FORMAT_VERSION} and no longer read"
                ),
                "record it again: traces of that format were never part of a release",
            ),
            Self::Newer(version, what) => Error::input_help(
                format!(
                    "{shown}: trace format {version} is newer than {FORMAT_VERSION}, which this version reads: {what}"
                ),
                "read it with the version of ladderscope that wrote it",
            ),
        }
    }
}

impl From<PolarsError> for Problem {
    fn from(error: PolarsError) -> Self {
        Self::Damaged(error.to_string())
    }
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

/// Runs the Parquet parser; reports a panic as damage.
pub(super) fn inside<T>(work: impl FnOnce() -> Read<T>) -> Read<T> {
    contained(work).unwrap_or_else(|panic| {
        Err(Problem::Damaged(format!("the Parquet data make no sense ({panic})")))
    })
}
