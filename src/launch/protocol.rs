//! What parent and child say to each other: one request, then events, a line of JSON each.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::spec::Spec;

/// The one line on the child's standard input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Request {
    /// The run's id.
    pub run: String,
    /// The run's directory, where the trace goes.
    pub dir: PathBuf,
    /// What to run.
    pub spec: Spec,
    /// Whether to record spans.
    pub record: bool,
    /// Whether to tell of decode steps while they go by.
    #[serde(default)]
    pub watch: bool,
}

/// The trace's name in the run's directory.
pub(super) const TRACE: &str = "trace.parquet";

/// The log's name in the run's directory.
pub(super) const LOG: &str = "log.txt";
