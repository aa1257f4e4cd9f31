//! PyTorch profiler traces (Kineto): Chrome JSON, plain or compressed, one file or one per rank. JAX
//! (`jax`) and rocprofv3 (`rocprof`) traces fill the same tables.
//!
//! Pipeline (`open`, which also reads the metadata at the top): decompression, `split` into pieces of whole events by
//! brackets (`blocks`, 64 bytes at a time), parallel parsing (`event`, `json`) into rows of numbers (`table`) and
//! `names`, pairs of begin and end events (`begin_end`), launches and steps (`link`), ranks (`parts`) and order
//! (`assemble`). The JSON is never in memory as a whole, and times are never converted to floating point. A file with
//! broken events is read a second time, event by event.
//!
//! The scanner is custom because it can skip irrelevant values: on A100 and B200 profiles the whole
//! import on one thread took a third of the time sonic-rs takes to parse the same bytes into the needed
//! fields, and a sixth of simd-json's.

mod assemble;
mod begin_end;
mod blocks;
mod event;
mod host;
mod jax;
mod json;
mod kernel;
mod link;
mod names;
mod open;
mod parts;
mod rocprof;
mod split;
mod table;

pub use open::{KinetoOptions, import_bytes};

use super::formats::{FormatSignature, ImportSelection, Importer};
use crate::Trace;
use base::error::Result;

pub(super) static TRACE_EVENTS: Importer = Importer {
    glance: open::glance,
    kernel: kernel::kernel,
    ..Importer::new(
        "trace events (JSON) of PyTorch's profiler or JAX",
        "trace events (JSON)",
        &[FormatSignature::Json(&[b"\"traceEvents\""])],
        |selection| import(selection, open::read_events),
    )
};

pub(super) static ROCPROF: Importer = Importer::new(
    "a rocprofv3 trace (JSON)",
    "rocprofv3's",
    &[FormatSignature::Json(&[b"\"rocprofiler-sdk-tool\""])],
    |selection| import(selection, rocprof::read),
);

/// Imports files whose events `read` makes those of PyTorch's profiler.
fn import(mut selection: ImportSelection<'_>, read: open::ReadEvents) -> Result<Trace> {
    let (files, chosen) = selection.choose()?;
    // if the beginnings of the files do not identify the recordings, check the whole files
    let wanted = selection.recording.filter(|_| !chosen.is_one_of_several());
    let trace = open::import_files(&files, wanted, read)?;
    Ok(selection.noted(trace))
}

#[cfg(test)]
mod tests;
