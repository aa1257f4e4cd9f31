//! Import of traces: detects formats by content, and imports foreign traces.
//!
//! # What an importer returns
//!
//! An `Importer` (`formats`) builds one unclassified [`Trace`] from files of one profiler; the
//! [rules](crate::rules) then set kinds and lanes, and [`open_with`] checks that the ranks ran one program.
//!
//! - Spans: GPU work only, in the order of [`Trace`]; times in ns on one clock, starting near 0. `ready_ns` is the time
//!   of the launch, at least 1 ns before the start, or the start if the launch is unknown.
//! - Operations: of the kind `kernel`, `memcpy` or `memset`; equal ones are stored once.
//! - Ranks: from `rank::decide`, which also reports where the numbers come from; streams and ranges refer to them.
//! - Steps: from `steps`, in `samples` if their numbers start again; work that no step launched has
//!   [`NO_STEP`](crate::NO_STEP).
//! - [`ImportReport`](crate::ImportReport): every event is either used or ignored with a reason. What contradicts itself
//!   in a small part of a file is left out (`left_out`, `misplaced`); in much of a file it is kept, as a
//!   [`Doubt`](crate::Doubt).
//! - Limits: sizes that a file declares are checked ([`crate::memory::check`]) before memory is allocated for them.
//!
//! `kineto::assemble` serves all importers that fill the tables of PyTorch's profiler (JAX, rocprofv3), and
//! `nsight::assemble` those that fill the parts of an Nsight export (also `recording`).

mod directory;
mod enclosing;
mod formats;
mod input;
pub mod kineto;
mod launch;
mod left_out;
mod misplaced;
pub mod nsight;
mod one_program;
mod own;
mod rank;
mod recognise;
pub mod recording;
mod samples;
mod sniff;
mod steps;

pub use directory::{holds_traces, unpack};
pub use launch::{KernelLaunch, kernel};
pub use recognise::is_known_file;
pub use steps::{StepName, StepWork, step_name};

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use self::directory::ImportableFiles;
use self::formats::{ImportSelection, Reader};
use self::input::InputFile;
use self::launch::KernelQuery;
use self::one_program::require_one_program;
use self::rank::{RankClaim, choose, decide, far_apart, is_of_order, require_one_job};
use self::recognise::recognise;
use crate::Trace;
use crate::rules::{RuleReport, Rules};
use base::error::{Error, Result};
use table::Provenance;

/// Kernel of the cuda backend that emulates the latency of a link (`kernels/collective.cu`). A profile
/// that contains it did not measure a real link.
const EMULATED_COLLECTIVE: &str = "emulated_collective";

const MAX_OPERATIONS: usize = 200_000;

/// Opens a trace file, or a directory or archive with one file per rank. Traces of other profilers are
/// imported and classified by the default rules.
///
/// Returns an input error, with the detected format, for an unknown file; otherwise the errors of
/// reading or importing it.
pub fn open(path: &Path) -> Result<Trace> {
    open_with(path, &Rules::default()).map(|(trace, _)| trace)
}

/// Opens a trace and classifies it by `rules`. Native traces are not classified, because their plan
/// defines every operation, and their report is empty. An imported trace that was converted keeps its
/// classification under the default rules, and is classified again under others.
pub fn open_with(path: &Path, rules: &Rules) -> Result<(Trace, RuleReport)> {
    open_recording(path, None, rules)
}

/// Opens one of several recordings of the same ranks in a directory or archive, by name; `None` selects
/// the newest one with all ranks.
///
/// Returns the errors of [`open_with`], and an input error for an unknown recording, with the available
/// names.
pub fn open_recording(
    path: &Path,
    recording: Option<&str>,
    rules: &Rules,
) -> Result<(Trace, RuleReport)> {
    crate::memory::watch();
    let found = if path.is_dir() { directory::look(path)? } else { directory::of_file(path)? };
    let is_one = matches!(found.files.as_slice(), [(input, _)] if input.path == path);
    if recording.is_some() && is_one {
        return Err(Error::input_help(
            format!(
                "{}: a file, and --recording chooses among the files of a directory or archive",
                path.display()
            ),
            "leave out --recording, or name the directory or archive",
        ));
    }
    let ImportableFiles { importer, files, notes } = found;
    let mut trace = (importer.import)(ImportSelection { path, files, recording, notes })?;
    if trace.operations.len() > MAX_OPERATIONS {
        return Err(Error::input_help(
            format!(
                "{}: {} different names of kernels; real traces have some hundreds",
                path.display(),
                trace.operations.len()
            ),
            format!(
                "at most {MAX_OPERATIONS} are read: record fewer steps, or shapes without numbers in names"
            ),
        ));
    }
    if importer.is_foreign
        && trace.operations.iter().any(|operation| operation.name == EMULATED_COLLECTIVE)
    {
        trace.meta.provenance = trace.meta.provenance.max(Provenance::EmulatedLink);
    }
    let classify = trace.meta.import.is_some() && (importer.is_foreign || !rules.is_default());
    let report = if classify { rules.classify(&mut trace) } else { RuleReport::default() };
    require_one_program(&mut trace)?;
    Ok((trace, report))
}

/// Imported files of a trace that still exist.
pub fn files(trace: &Trace) -> Vec<PathBuf> {
    let files = trace.meta.import.iter().flat_map(|import| &import.files);
    files.map(PathBuf::from).filter(|path| path.is_file()).collect()
}

/// Format of a file that cannot be opened as a trace, with an article: `a Chakra trace (JSON)`. `None` if it can be
/// opened, or if its first bytes do not tell. Packed archives are not unpacked.
pub fn unreadable_format(path: &Path) -> Option<&'static str> {
    let found = recognise(&InputFile::from_path(path)).ok()?;
    match found.reader() {
        Reader::None => found.format.map(|format| format.name),
        Reader::Archive(_) if found.packed.is_some() => None,
        Reader::Archive(_) => directory::of_file(path).is_err().then_some("an archive without a trace"),
        Reader::Importer(_) | Reader::Json => None,
    }
}

/// True if these traces of a directory are the ranks of one job, by their contents or names. Archives do not count.
pub fn are_ranks(files: &[PathBuf]) -> bool {
    let Ok(ImportableFiles { files, .. }) = directory::of_files(files) else { return false };
    // each file counts as one rank: its processes are not read
    let claim = |(_, claim)| RankClaim { parts: vec![None], ..claim };
    let claims: Vec<RankClaim> = files.into_iter().map(claim).collect();
    // of several recordings of the same ranks, the importer reads one
    let Ok(chosen) = choose(&claims, None) else { return false };
    let claims: Vec<RankClaim> = chosen.files.iter().map(|at| claims[*at].clone()).collect();
    if claims.len() < 2 || require_one_job(&claims).is_err() || far_apart(&claims).is_some() {
        return false;
    }
    match claims.iter().map(RankClaim::rank).collect::<Option<BTreeSet<u32>>>() {
        Some(own) => own.len() > 1,
        None => !is_of_order(decide(&claims).source),
    }
}

#[cfg(test)]
mod tests;
