//! Trace export: Chrome JSON in the format of PyTorch's profiler, CSV, and the native Parquet format.

mod chrome;

use std::borrow::Cow;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

pub use chrome::{ExportedRanks, chrome};

use crate::overlap::Class;
use crate::{NO_STEP, OperationInfo, Trace};
use base::atomic::AtomicFile;
use base::error::{Error, Result};
use table::render::write_csv;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    Json,
    JsonGz,
    JsonZst,
    /// Native format ([`super::write()`]): Parquet with metadata in its footer.
    Parquet,
    Csv,
}

impl ExportFormat {
    /// Selects the format by file extension, ignoring case. Returns an error for an unknown extension.
    pub fn from_path(path: &Path) -> Result<Self> {
        let name =
            path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
        let formats = [
            (".json.gz", Self::JsonGz),
            (".json.zst", Self::JsonZst),
            (".json", Self::Json),
            (".parquet", Self::Parquet),
            (".csv", Self::Csv),
        ];
        formats.iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, format)| *format).ok_or_else(
            || {
                Error::input_help(
                    format!("{}: cannot infer the output format from this name", path.display()),
                    "end it in .json, .json.gz or .json.zst (Chrome JSON, for Perfetto and Holistic Trace \
                     Analysis), .parquet (Ladderscope's own) or .csv; for a Chrome JSON file a rank, name a directory, \
                     with a slash at its end",
                )
            },
        )
    }

    /// Selects the format of a recording by file extension; defaults to Parquet.
    pub fn of_recording(path: &Path) -> Self {
        Self::from_path(path).unwrap_or(Self::Parquet)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Json | Self::JsonGz | Self::JsonZst => "Chrome JSON",
            Self::Parquet => "Parquet",
            Self::Csv => "CSV",
        }
    }
}

/// Error for an output file that already exists.
pub fn exists(path: &Path) -> Error {
    Error::input_help(
        format!("{}: file exists", path.display()),
        "choose another name, or replace it with --force",
    )
}

/// Writes a trace to one file in the format of its extension. The file appears only when complete.
///
/// # Errors
///
/// Returns an input error for an unknown extension, and a failure if the file cannot be written; no file
/// is left then.
pub fn write(trace: &Trace, path: &Path) -> Result<()> {
    write_in(trace, ExportFormat::from_path(path)?, path)
}

/// Writes a trace to one file in this format. The file appears only when complete. Returns an error if
/// the file cannot be written.
pub fn write_in(trace: &Trace, format: ExportFormat, path: &Path) -> Result<()> {
    match format {
        ExportFormat::Parquet => super::write(path, trace),
        format => {
            let mut output = AtomicFile::create(path)?;
            text(trace, format, ExportedRanks::All, &mut output)?;
            output.finish()
        }
    }
}

/// Writes the spans of several named traces to one CSV file. The file appears only when complete.
/// Returns an error if the file cannot be written.
pub fn write_several(traces: &[(&str, &Trace)], path: &Path) -> Result<()> {
    let mut output = AtomicFile::create(path)?;
    let mut buffered = BufWriter::with_capacity(1 << 18, &mut output);
    let written = csv(traces, &mut buffered).and_then(|()| buffered.flush());
    written.map_err(Error::io(path))?;
    drop(buffered);
    output.finish()
}

/// Writes one Chrome JSON file per rank, as Holistic Trace Analysis expects, and creates the directory
/// if needed. Returns the files.
///
/// # Errors
///
/// Returns an input error, before writing anything, if one of the files exists and `replace` is false; a
/// failure if the directory or a file cannot be written.
pub fn write_ranks(trace: &Trace, directory: &Path, replace: bool) -> Result<Vec<PathBuf>> {
    let paths: Vec<PathBuf> =
        (0..trace.meta.ranks).map(|rank| directory.join(format!("rank-{rank}.json.gz"))).collect();
    if let Some(there) = paths.iter().find(|path| !replace && path.exists()) {
        return Err(exists(there));
    }
    std::fs::create_dir_all(directory).map_err(Error::io(directory))?;
    let mut outputs = Vec::new();
    for (rank, path) in (0..).zip(&paths) {
        let mut output = AtomicFile::create(path)?;
        text(trace, ExportFormat::JsonGz, ExportedRanks::One(rank), &mut output)?;
        outputs.push(output);
    }
    for output in outputs {
        output.finish()?;
    }
    Ok(paths)
}

fn text(
    trace: &Trace,
    format: ExportFormat,
    ranks: ExportedRanks,
    output: &mut AtomicFile,
) -> Result<()> {
    let path = output.path().to_owned();
    let mut buffered = BufWriter::with_capacity(1 << 18, output);
    let written = match format {
        ExportFormat::JsonGz => {
            let packed = flate2::write::GzEncoder::new(&mut buffered, flate2::Compression::fast());
            packed_chrome(trace, ranks, packed).and_then(|packed| packed.finish().map(|_| ()))
        }
        ExportFormat::JsonZst => {
            zstd::stream::write::Encoder::new(&mut buffered, zstd::DEFAULT_COMPRESSION_LEVEL)
                .and_then(|packed| packed_chrome(trace, ranks, packed))
                .and_then(|packed| packed.finish().map(|_| ()))
        }
        ExportFormat::Csv => csv(&[("", trace)], &mut buffered),
        _ => chrome(trace, ranks, &mut buffered),
    };
    written.and_then(|()| buffered.flush()).map_err(Error::io(path))
}

/// Writes Chrome JSON through a compressor. Buffered: the writer emits a few bytes at a time, and each
/// call of a compressor is expensive.
fn packed_chrome<P: Write>(trace: &Trace, ranks: ExportedRanks, packer: P) -> std::io::Result<P> {
    let mut pieces = BufWriter::with_capacity(1 << 16, packer);
    chrome(trace, ranks, &mut pieces)?;
    pieces.into_inner().map_err(std::io::IntoInnerError::into_error)
}

/// Writes spans as CSV (RFC 4180, but with plain line feeds); times in ns. Lanes are those of `overlap`: `compute`,
/// `comm`, `memory` or `other`. With several traces, the first column is the trace's name. Returns an error only if writing to `out` fails.
pub fn csv(traces: &[(&str, &Trace)], out: &mut impl Write) -> io::Result<()> {
    let several = traces.len() > 1;
    let header = [
        "trace",
        "sample",
        "phase",
        "step",
        "rank",
        "lane",
        "process",
        "device",
        "stream",
        "operation",
        "kind",
        "module",
        "layer",
        "ready_ns",
        "start_ns",
        "end_ns",
        "last_arrival_ns",
        "provenance",
    ];
    let number = |number: i64| Cow::Owned(number.to_string());
    let optional = |of: Option<i64>| of.map_or(Cow::Borrowed(""), number);
    let spans =
        traces.iter().flat_map(|(name, trace)| trace.spans.iter().map(move |span| (name, trace, span)));
    let rows = spans.map(|(name, trace, span)| {
        let stream = trace.meta.streams.get(usize::from(span.stream));
        let operation = trace.operations.get(span.operation as usize);
        let text = |of: fn(&OperationInfo) -> &str| Cow::Borrowed(operation.map_or("", of));
        let row = [
            Cow::Borrowed(*name),
            number(span.sample.into()),
            span.phase.as_str().into(),
            optional(Some(span.step).filter(|step| *step != NO_STEP).map(i64::from)),
            number(span.rank.into()),
            operation.map_or(span.lane.as_str(), |o| Class::new(o, span.lane).as_str()).into(),
            optional(stream.and_then(|s| s.process)),
            optional(stream.and_then(|s| s.device)),
            optional(stream.map(|s| s.id)),
            text(|o| &o.name),
            text(|o| o.kind.as_str()),
            text(|o| &o.module),
            optional(operation.and_then(|o| o.layer.map(i64::from))),
            number(span.ready_ns),
            number(span.start_ns),
            number(span.end_ns),
            optional(Some(span.last_arrival_ns).filter(|ns| *ns != -1)),
            trace.meta.provenance.as_str().into(),
        ];
        row.into_iter().skip(usize::from(!several))
    });
    write_csv(out, header.into_iter().skip(usize::from(!several)), rows)
}
