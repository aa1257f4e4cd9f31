//! Import of traces: detects formats by content, and imports foreign traces. Launch details of one kernel are read from
//! the profiler's file on demand: traces do not store them.
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
mod left_out;
mod misplaced;
pub mod nsight;
mod own;
mod rank;
mod recognise;
pub mod recording;
mod samples;
mod sniff;
mod steps;

pub use directory::{holds_traces, unpack};
pub use recognise::is_known_file;
pub use steps::{StepName, StepWork, step_name};

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use self::directory::ImportableFiles;
use self::formats::{ImportSelection, Reader};
use self::input::InputFile;
use self::rank::{RankClaim, choose, decide, far_apart, is_of_order, require_one_job};
use self::recognise::recognise;
use crate::Trace;
use crate::overlap::Class;
use crate::rules::{RuleReport, Rules};
use base::error::{Error, Result};
use base::text::file_name;
use table::Provenance;

/// Kernel of the cuda backend that emulates the latency of a link (`kernels/collective.cu`). A profile
/// that contains it did not measure a real link.
const EMULATED: &str = "emulated_collective";

const MOST_OPERATIONS: usize = 200_000;

/// Opens a trace file, or a directory or archive with one file per rank. Traces of other profilers are
/// imported and classified by the default rules.
///
/// # Errors
///
/// Returns an input error, with the detected format, for an unknown file; otherwise the errors of
/// reading or importing it.
pub fn open(path: &Path) -> Result<Trace> {
    open_with(path, &Rules::default()).map(|(trace, _)| trace)
}

/// Opens a trace and classifies it by `rules`. Native traces are not classified, because their plan
/// defines every operation, and their report is empty. An imported trace that was converted keeps its
/// classification under the default rules, and is classified again under others.
///
/// # Errors
///
/// Returns an input error, with the detected format, for an unknown file; otherwise the errors of
/// reading or importing it.
pub fn open_with(path: &Path, rules: &Rules) -> Result<(Trace, RuleReport)> {
    open_recording(path, None, rules)
}

/// Opens one of several recordings of the same ranks in a directory or archive, by name; `None` selects
/// the newest one with all ranks.
///
/// # Errors
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
    if trace.operations.len() > MOST_OPERATIONS {
        return Err(Error::input_help(
            format!(
                "{}: {} different names of kernels; real traces have some hundreds",
                path.display(),
                trace.operations.len()
            ),
            format!(
                "at most {MOST_OPERATIONS} are read: record fewer steps, or shapes without numbers in names"
            ),
        ));
    }
    if importer.is_foreign && trace.operations.iter().any(|operation| operation.name == EMULATED) {
        trace.meta.provenance = trace.meta.provenance.max(Provenance::EmulatedLink);
    }
    let classify = trace.meta.import.is_some() && (importer.is_foreign || !rules.is_default());
    let report = if classify { rules.classify(&mut trace) } else { RuleReport::default() };
    require_one_program(&mut trace)?;
    Ok((trace, report))
}

/// Minimum share of compute kernels, by name, that two ranks of one job have in common. Chosen, not measured: names of
/// kernels differ between ranks with other shapes.
const COMMON: f64 = 1.0 / 3.0;

/// Minimum number of different compute kernels by which a rank is judged: helpers launch a few of their own.
const JUDGED: usize = 4;

/// Refuses several files whose ranks run different compute kernels if nothing names them as ranks of one job; warns if
/// something does.
fn require_one_program(trace: &mut Trace) -> Result<()> {
    let Some(import) = trace.meta.import.as_mut().filter(|import| import.files.len() > 1) else {
        return Ok(());
    };
    let mut ran: BTreeMap<u32, Vec<bool>> = BTreeMap::new();
    for span in &trace.spans {
        let ran = ran.entry(span.rank).or_insert_with(|| vec![false; trace.operations.len()]);
        ran[span.operation as usize] = true;
    }
    let names = |ran: Vec<bool>| -> BTreeSet<&str> {
        let ran =
            trace.operations.iter().zip(ran).filter(|(_, ran)| *ran).map(|(operation, _)| operation);
        ran.filter(|operation| Class::new(operation, operation.lane) == Class::Compute)
            .map(|operation| operation.name.as_str())
            .collect()
    };
    let kernels: Vec<BTreeSet<&str>> = ran.into_values().map(names).collect();
    let mut ranks = kernels.iter().filter(|names| names.len() >= JUDGED);
    let Some(first) = ranks.next() else { return Ok(()) };
    let common = |other: &BTreeSet<&str>| {
        first.intersection(other).count() as f64 / first.len().min(other.len()) as f64
    };
    let Some(share) = ranks.map(common).find(|share| *share < COMMON) else { return Ok(()) };
    if !rank::is_of_order(import.ranks_from.as_deref()) {
        import.warnings.push(format!(
            "ranks share only {:.0} % of their compute kernels: unless they are pipeline stages, they run different \
             programs",
            100.0 * share
        ));
        return Ok(());
    }
    let names: Vec<String> = import.files.iter().take(MOST_NAMED).map(|file| file_name(file)).collect();
    let more = import.files.len() - names.len();
    Err(Error::input_help(
        format!(
            "{} traces of different programs, not the ranks of one job: some share only {:.0} % of their compute \
             kernels, and neither contents nor file names have rank numbers",
            import.files.len(),
            100.0 * share
        ),
        format!(
            "open one file: {}{}; to open ranks together, name their files rank0, rank1, ...",
            names.join(", "),
            if more > 0 { format!(" and {more} more") } else { String::new() }
        ),
    ))
}

/// Maximum number of files named in an error.
const MOST_NAMED: usize = 8;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelLaunch {
    /// Grid size in blocks: x, y, z.
    pub grid: Option<[i64; 3]>,
    /// Block size in threads: x, y, z.
    pub block: Option<[i64; 3]>,
    pub correlation: Option<i64>,
    /// Host call that launched the kernel: `cudaLaunchKernel`.
    pub call: Option<String>,
    /// Framework operator around the call, or the innermost NVTX range: `aten::mm`.
    pub operator: Option<String>,
}

#[derive(Clone, Debug)]
struct KernelQuery<'a> {
    pub name: &'a str,
    /// Start and end in the trace (ns).
    pub time: (i64, i64),
    pub stream: i64,
}

/// Imported files of a trace that still exist.
pub fn files(trace: &Trace) -> Vec<PathBuf> {
    let files = trace.meta.import.iter().flat_map(|import| &import.files);
    files.map(PathBuf::from).filter(|path| path.is_file()).collect()
}

/// Reads the launch details of a span (an index into the trace) from the imported files. Returns `None`
/// if they do not have it or no longer exist. Reads each file about twice. Returns an error if a file
/// cannot be read.
pub fn kernel(trace: &Trace, span: usize) -> Result<Option<KernelLaunch>> {
    let Some(span) = trace.spans.get(span) else { return Ok(None) };
    let (operation, stream) = (
        trace.operations.get(span.operation as usize),
        trace.meta.streams.get(usize::from(span.stream)),
    );
    let (Some(operation), Some(stream)) = (operation, stream) else { return Ok(None) };
    let wanted =
        KernelQuery { name: &operation.name, time: (span.start_ns, span.end_ns), stream: stream.id };
    let files = files(trace);
    let Some(first) = files.first() else { return Ok(None) };
    match recognise(&InputFile::from_path(first))?.reader() {
        Reader::Importer(importer) => (importer.kernel)(&files, &wanted),
        _ => Ok(None),
    }
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
