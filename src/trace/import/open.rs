//! Opening traces of any kind: recognised by content, imported where they are others', classified by rules.

use std::path::{Path, PathBuf};

use super::recognise::{Content, Packing, recognise, unknown, unpacked};
use super::{directory, kineto, nsight};
use crate::base::error::{Error, Result};
use crate::table::Provenance;
use crate::trace::rules::{RuleReport, Rules};
use crate::trace::{self, Trace};

/// The kernel of the cuda backend that takes as long as an emulated link would (`kernels/collective.cu`): whoever else
/// records a run in which it stands did not measure a link.
const EMULATED: &str = "emulated_collective";

/// Opens a trace file, or a directory of them, a file a rank. Traces of other profilers are imported and
/// classified by the default rules.
///
/// # Errors
///
/// An input error for a file that is no trace that is known, with what it looks like; else the errors of
/// reading or importing it.
pub fn open(path: &Path) -> Result<Trace> {
    open_with(path, &Rules::default()).map(|(trace, _)| trace)
}

/// Opens a trace and classifies it by `rules`. Own traces are not: their plan says what everything is, and
/// the report is empty. An imported trace that was converted keeps its classification under the default
/// rules, and is classified anew by any others.
///
/// # Errors
///
/// An input error for a file that is no trace that is known, with what it looks like; else the errors of
/// reading or importing it.
pub fn open_with(path: &Path, rules: &Rules) -> Result<(Trace, RuleReport)> {
    trace::memory::watch();
    let (mut trace, fresh) = if path.is_dir() { of_directory(path)? } else { of_file(path)? };
    if fresh && trace.operations.iter().any(|operation| operation.name == EMULATED) {
        trace.meta.provenance = trace.meta.provenance.max(Provenance::EmulatedLink);
    }
    let classify = trace.meta.import.is_some() && (fresh || !rules.is_default());
    let report = if classify { rules.classify(&mut trace) } else { RuleReport::default() };
    Ok((trace, report))
}

/// The trace, and whether it was imported just now.
fn of_file(path: &Path) -> Result<(Trace, bool)> {
    let found = recognise(path, 256)?;
    match (found.content, found.packing) {
        (Content::Own, Packing::Plain) => Ok((trace::read(path)?, false)),
        (Content::Json, _) => {
            Ok((kineto::import_files(&[path.to_path_buf()], kineto::Options::default())?, true))
        }
        (Content::Sqlite, packing) => Ok((sqlite(&[(path.to_path_buf(), packing)])?, true)),
        _ => Err(unknown(path, &found.head)),
    }
}

fn of_directory(path: &Path) -> Result<(Trace, bool)> {
    let found = directory::look(path)?;
    let mut trace = match (found.content, found.files.as_slice()) {
        (Content::Json, files) => kineto::import_files(files, kineto::Options::default())?,
        (Content::Sqlite, files) => {
            let packed: Result<Vec<_>> =
                files.iter().map(|file| Ok((file.clone(), recognise(file, 16)?.packing))).collect();
            sqlite(&packed?)?
        }
        (Content::Own, [file]) => return Ok((trace::read(file)?, false)),
        (_, files) => {
            return Err(Error::input_help(
                format!(
                    "{}: {} traces of ladderscope, each with all its ranks",
                    path.display(),
                    files.len()
                ),
                "name one of them",
            ));
        }
    };
    if let Some(report) = &mut trace.meta.import {
        report.warnings.extend(found.skipped);
    }
    Ok((trace, true))
}

/// SQLite is read here and there in the file, so a packed one is unpacked into a temporary file first.
fn sqlite(files: &[(PathBuf, Packing)]) -> Result<Trace> {
    let mut paths = Vec::with_capacity(files.len());
    let mut temporary = Vec::new();
    for (path, packing) in files {
        if *packing == Packing::Plain {
            paths.push(path.clone());
            continue;
        }
        let mut file = tempfile::NamedTempFile::new().map_err(Error::io(std::env::temp_dir()))?;
        std::io::copy(&mut unpacked(path, *packing)?, &mut file).map_err(|error| {
            Error::failed(format!("{}: cannot be unpacked: {error}", path.display()))
        })?;
        paths.push(file.path().to_path_buf());
        temporary.push((file, path));
    }
    // People know the file by the name that they gave.
    let known = |text: String| {
        temporary.iter().fold(text, |text, (file, path)| {
            text.replace(&file.path().display().to_string(), &path.display().to_string())
        })
    };
    match nsight::import(&paths) {
        Ok(mut trace) => {
            if let Some(report) = &mut trace.meta.import {
                report.files = std::mem::take(&mut report.files).into_iter().map(known).collect();
                report.warnings = std::mem::take(&mut report.warnings).into_iter().map(known).collect();
            }
            Ok(trace)
        }
        Err(Error::Input { message, help }) => Err(Error::Input { message: known(message), help }),
        Err(other) => Err(other),
    }
}
