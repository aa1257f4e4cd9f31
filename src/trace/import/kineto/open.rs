//! Entry points of the Kineto importer, and its pipeline: one thread decompresses and splits, others parse,
//! each into its own table. Both sides recycle the same few buffers, so memory use does not grow with the file.

use std::thread;

use crossbeam_channel::{bounded, unbounded};
use rayon::prelude::*;

use super::assemble::{Profiler, ReadFile, assemble};
use super::jax;
use super::link::link;
use super::parts::Parts;
use super::split::{PIECE, Piece, Top, split, walk};
use super::table::Table;
use super::top::{Metadata, metadata};
use crate::Trace;
use crate::import::input::{Input, Source, unpack};
use crate::import::rank::{self, Claim, Name};
use base::error::{Error, Result};

const PYTORCH: Profiler = Profiler { format: "Kineto JSON", recorder: "kineto" };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Number of parser threads in addition to the reading thread; 0 parses on the reading thread.
    pub parsers: usize,
    /// Bytes of JSON per piece.
    pub piece: usize,
}

impl Default for Options {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { parsers: cores.min(8), piece: PIECE }
    }
}

/// Imports several files as one trace, with the ranks from [`rank::decide`]. Skips and reports files
/// without GPU work if others have some, and merged files next to their parts. `wanted` selects a
/// recording if the files belong to several. Returns an input error, with the byte offset, for a file
/// that `read` refuses.
pub(super) fn import_files(inputs: &[Input], wanted: Option<&str>, read: Read) -> Result<Trace> {
    if inputs.is_empty() {
        return Err(Error::input("no trace files were given"));
    }
    let mut files: Vec<ReadFile> = inputs
        .par_iter()
        .map(|input| {
            let file = read_source(&input.shown(), &|| input.unpacked(), read, Options::default())?;
            Ok(ReadFile { claim: Claim { name: Name::parse(&input.name), ..file.claim }, ..file })
        })
        .collect::<Result<_>>()?;
    let mut notes = leave_out(&mut files, |file| {
        file.table
            .spans
            .is_empty()
            .then(|| "no GPU events: the trace of a front end or of CPUs only".into())
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
    let mut trace = trace(files)?;
    if let Some(report) = &mut trace.meta.import {
        report.warnings.extend(chosen.notes.into_iter().chain(notes));
    }
    Ok(trace)
}

/// Drops files for which `reason` returns a reason, unless it does for all. Returns one note per dropped
/// file.
fn leave_out(files: &mut Vec<ReadFile>, reason: impl Fn(&ReadFile) -> Option<String>) -> Vec<String> {
    let reasons: Vec<Option<String>> = files.iter().map(reason).collect();
    if reasons.iter().all(Option::is_some) {
        return Vec::new();
    }
    let note = |(file, reason): (&ReadFile, &Option<String>)| {
        reason.as_ref().map(|reason| format!("ignored {}: {reason}", file.claim.name))
    };
    let notes = files.iter().zip(&reasons).filter_map(note).collect();
    let mut reasons = reasons.iter();
    files.retain(|_| reasons.next().is_none_or(Option::is_none));
    notes
}

fn trace(files: Vec<ReadFile>) -> Result<Trace> {
    let claims: Vec<Claim> = files.iter().map(|file| file.claim.clone()).collect();
    rank::require_one_job(&claims)?;
    Ok(assemble(files, rank::decide(&claims)))
}

/// Imports a trace from memory, plain or compressed; `name` is for messages.
///
/// # Errors
///
/// Returns an input error if the text is not a profiler's JSON (with the byte offset), or has no trace
/// events.
pub fn import_bytes(name: &str, bytes: &[u8], options: Options) -> Result<Trace> {
    trace(vec![read_source(name, &|| unpack(name, bytes), read_events, options)?])
}

#[cfg(test)]
pub(super) fn import_as<R: std::io::Read>(name: &str, raw: impl Fn() -> R, read: Read) -> Result<Trace> {
    trace(vec![read_source(name, &|| unpack(name, raw()), read, Options::default())?])
}

/// Reader of a file's events: its profiler, events, metadata and warnings.
pub(super) type Read = fn(&str, &Open<'_>, Options) -> Result<(Profiler, Table, Metadata, Vec<String>)>;

fn read_source(name: &str, open: &Open<'_>, read: Read, options: Options) -> Result<ReadFile> {
    let (profiler, mut table, metadata, mut warnings) = read(name, open, options)?;
    let parts = Parts::of(name, &table, &metadata)?;
    let linked = link(&mut table, &parts.groups);
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
        profiler,
        table,
        metadata,
        warnings,
        parts,
        claim,
        launched: linked.launched,
    })
}

/// Reads trace events of PyTorch's profiler or JAX.
pub(super) fn read_events(
    name: &str,
    open: &Open<'_>,
    options: Options,
) -> Result<(Profiler, Table, Metadata, Vec<String>)> {
    let Options { parsers, piece } = options;
    let (mut top, mut table) = read_pieces(name, open, Reading { parsers, piece })?;
    if let Some(cut) = &top.cut {
        if table.events == 0 {
            return Err(Error::input_help(
                format!("{name}: {cut}, and no event is before it"),
                "the file is cut off: copy it again, or record it again",
            ));
        }
        top.warnings.push(format!("{cut}; everything before it was read: {} events", table.events));
    }
    if table.with_phase == 0 && table.events > 0 {
        return Err(Error::input_help(
            format!("{name}: none of its {} elements is a trace event with a phase (ph)", table.events),
            "expected a PyTorch profiler trace: an object with traceEvents, or an array of events",
        ));
    }
    let profiler = if jax::adopt(name, &mut table)? { jax::JAX } else { PYTORCH };
    Ok((profiler, table, metadata(&top), top.warnings))
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Number of parser threads; 0 parses on the calling thread.
    pub(super) parsers: usize,
    pub(super) piece: usize,
}

pub(super) type Open<'a> = dyn Fn() -> Result<Source<'a>> + 'a;

/// Parses a file's events into one table. A broken file is read again on one thread, because its
/// brackets no longer delimit events; the result thus depends only on the bytes, not on the piece
/// boundaries.
fn read_pieces(name: &str, open: &Open<'_>, reading: Reading) -> Result<(Top, Table)> {
    if let Some(read) = read_sound(name, open()?, reading)? {
        return Ok(read);
    }
    let mut table = Table::default();
    let mut top = walk(name, open()?, reading.piece, &mut |cursor, place| table.event(cursor, place))?;
    table.lose(std::mem::take(&mut top.lost));
    Ok((top, table))
}

/// Parses a file in pieces. Returns `None` if a piece is broken or truncated.
fn read_sound(name: &str, source: Source<'_>, reading: Reading) -> Result<Option<(Top, Table)>> {
    let parse = |table: &mut Table, piece: &Piece| {
        table.read(&piece.data[piece.from..piece.to], piece.offset).is_ok()
    };
    if reading.parsers == 0 {
        let (mut table, mut sound) = (Table::default(), true);
        let top = split(name, source, reading.piece, &mut |piece| {
            sound = sound && parse(&mut table, &piece);
            Some(piece.data)
        })?;
        return Ok((sound && !top.is_broken).then_some((top, table)));
    }
    thread::scope(|scope| {
        let (work, pieces) = bounded::<Piece>(reading.parsers + 1);
        let (spare, spares) = unbounded::<Vec<u8>>();
        let parsers: Vec<_> = (0..reading.parsers)
            .map(|_| {
                let (pieces, spare) = (pieces.clone(), spare.clone());
                scope.spawn(move || {
                    let (mut table, mut sound) = (Table::default(), true);
                    for piece in pieces {
                        sound = sound && parse(&mut table, &piece);
                        // fails if the reader has finished
                        spare.send(piece.data).ok();
                    }
                    (table, sound)
                })
            })
            .collect();
        drop(pieces);
        let top = split(name, source, reading.piece, &mut |piece| {
            work.send(piece).ok();
            spares.try_recv().ok()
        });
        drop(work);
        let (mut tables, mut sound) = (Vec::new(), true);
        for parser in parsers {
            let (table, is_sound) =
                parser.join().map_err(|_| Error::failed(format!("{name}: a parser gave up")))?;
            sound &= is_sound;
            tables.push(table);
        }
        let top = top?;
        Ok((sound && !top.is_broken).then(|| (top, Table::merged(tables))))
    })
}
