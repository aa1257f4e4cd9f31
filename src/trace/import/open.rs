//! Opening traces of any kind: recognised by content, imported where they are others', classified by rules.

use std::path::Path;

use super::directory::Input;
use super::rank::Claim;
use super::recognise::{Content, Packing, recognise, unknown, unpacked};
use super::{directory, kineto, nsight, rank};
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
    open_recording(path, None, rules)
}

/// Opens one of several recordings of the same ranks in a directory, by its name; `None` is the newest that has all
/// ranks.
///
/// # Errors
///
/// Those of [`open_with`], and an input error for an unknown recording, with the names of those that are there.
pub fn open_recording(
    path: &Path,
    recording: Option<&str>,
    rules: &Rules,
) -> Result<(Trace, RuleReport)> {
    trace::memory::watch();
    let (mut trace, fresh) = match recording {
        _ if path.is_dir() => of_directory(path, recording)?,
        None => of_file(path)?,
        Some(_) => {
            return Err(Error::input_help(
                format!(
                    "{}: a file, and --recording chooses among the files of a directory",
                    path.display()
                ),
                "leave out --recording, or name the directory",
            ));
        }
    };
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
            Ok((kineto::import_files(&[Input::of(path)], None, kineto::Options::default())?, true))
        }
        (Content::Sqlite, packing) => Ok((sqlite(&[(Input::of(path), packing)])?, true)),
        _ => Err(unknown(path, &found.head)),
    }
}

fn of_directory(path: &Path, recording: Option<&str>) -> Result<(Trace, bool)> {
    let mut found = directory::look(path)?;
    if found.content == Content::Own {
        return match found.files.as_slice() {
            [(file, _)] => Ok((trace::read(&file.path)?, false)),
            files => Err(Error::input_help(
                format!(
                    "{}: {} traces of ladderscope, each with all its ranks",
                    path.display(),
                    files.len()
                ),
                "name one of them",
            )),
        };
    }
    let claims: Vec<Claim> = found.files.iter().map(|(_, claim)| claim.clone()).collect();
    let chosen = rank::choose(&claims, recording)?;
    let files: Vec<Input> = chosen.files.iter().map(|at| found.files[*at].0.clone()).collect();
    found.notes.extend(chosen.notes.iter().cloned());
    let mut trace = if found.content == Content::Json {
        // what the beginnings of files do not show is looked for in the whole files
        let wanted = recording.filter(|_| !chosen.is_one_of_several());
        kineto::import_files(&files, wanted, kineto::Options::default())?
    } else {
        chosen.found(recording)?;
        let packed: Result<Vec<_>> =
            files.iter().map(|file| Ok((file.clone(), recognise(&file.path, 16)?.packing))).collect();
        sqlite(&packed?)?
    };
    if let Some(report) = &mut trace.meta.import {
        report.warnings.splice(0..0, found.notes);
    }
    Ok((trace, true))
}

/// SQLite is read here and there in the file, so a packed one is unpacked into a temporary file first.
fn sqlite(files: &[(Input, Packing)]) -> Result<Trace> {
    let mut inputs = Vec::with_capacity(files.len());
    let mut temporary = Vec::new();
    for (input, packing) in files {
        if *packing == Packing::Plain {
            inputs.push(input.clone());
            continue;
        }
        let path = &input.path;
        let mut file = tempfile::NamedTempFile::new().map_err(Error::io(std::env::temp_dir()))?;
        std::io::copy(&mut unpacked(path, *packing)?, &mut file).map_err(|error| {
            Error::failed(format!("{}: cannot be unpacked: {error}", path.display()))
        })?;
        inputs.push(Input { path: file.path().to_path_buf(), name: input.name.clone() });
        temporary.push((file, path));
    }
    // People know the file by the name that they gave.
    let known = |text: String| {
        temporary.iter().fold(text, |text, (file, path)| {
            text.replace(&file.path().display().to_string(), &path.display().to_string())
        })
    };
    match nsight::import(&inputs) {
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
