//! The workbench: a terminal interface to experiments, runs, timelines, frontiers, comparisons.

use std::path::PathBuf;

use crate::error::Result;
use crate::trace::Trace;

/// How the workbench is opened.
#[derive(Debug, Default)]
pub struct Options {
    /// The runs directory.
    pub dir: PathBuf,
    /// Open at the timeline of this trace.
    pub trace: Option<Trace>,
}

/// Opens the workbench; returns when the user quits. The terminal is restored whatever happens.
pub fn run(options: Options) -> Result<()> {
    let _ = options;
    todo!()
}
