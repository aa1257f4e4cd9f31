//! The importer of Kineto traces, from a path, from several, or from bytes.

use std::fs::File;
use std::io::Read;

use rayon::prelude::*;

use super::assemble::{ReadFile, assemble};
use super::link::link;
use super::parts::Parts;
use super::pipeline::{Reading, read};
use super::source::unpack;
use super::split::PIECE;
use super::top::metadata;
use crate::base::error::{Error, Result};
use crate::trace::Trace;
use crate::trace::import::directory::Input;
use crate::trace::import::rank::{self, Claim, Name};

/// What to read besides GPU work and annotations, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Threads that parse beside the one that reads; 0 parses on that one.
    pub parsers: usize,
    /// Bytes of JSON that are parsed at once.
    pub piece: usize,
}

impl Default for Options {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { parsers: cores.min(8), piece: PIECE }
    }
}

/// Reads several files as one trace, with the ranks that [`rank::decide`] finds. Files without GPU work beside others,
/// and merged ones beside their parts, are left out and named. `wanted` is the recording to choose where the files turn
/// out to be of several.
///
/// # Errors
///
/// An input error where no file is given, or one is no profiler's JSON (with the byte); a failure where
/// one cannot be read.
pub(in crate::trace::import) fn import_files(
    inputs: &[Input],
    wanted: Option<&str>,
    options: Options,
) -> Result<Trace> {
    if inputs.is_empty() {
        return Err(Error::input("no trace files were given"));
    }
    let mut files: Vec<ReadFile> = inputs
        .par_iter()
        .map(|Input { path, name }| {
            let file = File::open(path).map_err(Error::io(path))?;
            let read = read_file(&path.display().to_string(), file, options)?;
            Ok(ReadFile { claim: Claim { name: Name::parse(name), ..read.claim }, ..read })
        })
        .collect::<Result<_>>()?;
    let mut notes = leave_out(&mut files, |file| {
        file.table
            .spans
            .is_empty()
            .then(|| "no GPU events: a front end's trace, or one of CPUs alone".into())
    });
    let parts: Vec<Claim> =
        files.iter().map(|file| file.claim.clone()).filter(|claim| claim.parts.len() == 1).collect();
    let spans: usize =
        files.iter().filter(|file| file.claim.parts.len() == 1).map(|file| file.table.spans.len()).sum();
    notes.extend(leave_out(&mut files, |file| {
        let count = file.claim.parts.len();
        let is_merged = count > 1
            && (rank::is_merged_of(&file.claim, &parts)
                || count == parts.len() && file.table.spans.len() == spans);
        is_merged.then(|| format!("{count} ranks merged, whose own files are here"))
    }));
    let claims: Vec<Claim> = files.iter().map(|file| file.claim.clone()).collect();
    let chosen = rank::choose(&claims, wanted)?.found(wanted)?;
    let mut at = 0..;
    files.retain(|_| at.next().is_some_and(|at| chosen.files.contains(&at)));
    let mut trace = trace(files);
    if let Some(report) = &mut trace.meta.import {
        report.warnings.extend(chosen.notes.into_iter().chain(notes));
    }
    Ok(trace)
}

/// Leaves out the files for which there is a reason, unless that is all of them. A note for each.
fn leave_out(files: &mut Vec<ReadFile>, reason: impl Fn(&ReadFile) -> Option<String>) -> Vec<String> {
    let reasons: Vec<Option<String>> = files.iter().map(reason).collect();
    if reasons.iter().all(Option::is_some) {
        return Vec::new();
    }
    let note = |(file, reason): (&ReadFile, &Option<String>)| {
        reason.as_ref().map(|reason| format!("left out {}: {reason}", file.claim.name))
    };
    let notes = files.iter().zip(&reasons).filter_map(note).collect();
    let mut reasons = reasons.iter();
    files.retain(|_| reasons.next().is_none_or(Option::is_none));
    notes
}

fn trace(files: Vec<ReadFile>) -> Trace {
    let claims: Vec<Claim> = files.iter().map(|file| file.claim.clone()).collect();
    assemble(files, rank::decide(&claims))
}

/// Reads a trace from memory, plain or packed; `name` is what messages call it.
///
/// # Errors
///
/// An input error for text that is no profiler's JSON, with the byte, or whose elements are no trace events.
pub fn import_bytes(name: &str, bytes: &[u8], options: Options) -> Result<Trace> {
    Ok(trace(vec![read_file(name, bytes, options)?]))
}

pub(super) fn read_file(name: &str, raw: impl Read, options: Options) -> Result<ReadFile> {
    let source = unpack(name, raw)?;
    let Options { parsers, piece } = options;
    let (top, mut table) = read(name, source, Reading { parsers, piece })?;
    if table.with_phase == 0 && table.events > 0 {
        return Err(Error::input_help(
            format!("{name}: none of its {} elements is a trace event with a phase (ph)", table.events),
            "expected a PyTorch profiler trace: an object with traceEvents, or an array of events",
        ));
    }
    let metadata = metadata(&top);
    let parts = Parts::of(&table, &metadata);
    let linked = link(&mut table, &parts.groups);
    let mut warnings = top.warnings;
    warnings.extend(linked.warnings);
    let claim = Claim {
        name: Name::parse(name),
        own: metadata.rank.filter(|_| parts.labels.len() == 1),
        world_size: metadata.world_size,
        time_ns: table
            .spans
            .iter()
            .map(|span| span.start_ns)
            .min()
            .map(|start| start.saturating_add(metadata.base_ns.unwrap_or(0))),
        parts: parts.labels.clone(),
    };
    Ok(ReadFile {
        name: name.to_owned(),
        table,
        metadata,
        warnings,
        parts,
        claim,
        launched: linked.launched,
    })
}
