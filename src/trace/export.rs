//! Traces for other programs: Chrome JSON as PyTorch's profiler writes it, CSV, and the own format.

mod annotations;
mod chrome;
mod csv;
mod events;
mod flows;

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::Trace;
use base::atomic::AtomicFile;
use base::error::{Error, Result};

pub use chrome::{Ranks, chrome};
pub use csv::csv;

/// A format that traces are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Chrome JSON in Kineto's shape.
    Json,
    /// Chrome JSON in Kineto's shape, gzipped.
    JsonGz,
    /// Chrome JSON in Kineto's shape, packed by zstd.
    JsonZst,
    /// The format of this program ([`super::write()`]): Parquet with metadata in its footer.
    Parquet,
    /// A row a span.
    Csv,
}

impl Format {
    /// The format that a file's name asks for by its ending, in letters of either case. Fails for a name that ends in
    /// none of the formats' endings.
    pub fn of(path: &Path) -> Result<Self> {
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
                    format!("{}: no format follows from this name", path.display()),
                    "end it in .json, .json.gz or .json.zst (Chrome JSON, for Perfetto and Holistic Trace \
                     Analysis), .parquet (Ladderscope's own) or .csv; for a Chrome JSON file a rank, name a directory, \
                     with a slash at its end",
                )
            },
        )
    }

    /// The format that the name of a recording's file asks for: this program's own where it asks for none.
    pub fn of_recording(path: &Path) -> Self {
        Self::of(path).unwrap_or(Self::Parquet)
    }

    /// The format's name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Json | Self::JsonGz | Self::JsonZst => "Chrome JSON",
            Self::Parquet => "Parquet",
            Self::Csv => "CSV",
        }
    }
}

/// The error of a file that is in the way.
pub fn exists(path: &Path) -> Error {
    Error::input_help(
        format!("{}: there is such a file already", path.display()),
        "choose another name, or replace it with --force",
    )
}

/// Writes a trace to one file in the format of its name; nothing is there until all of it is.
///
/// # Errors
///
/// An input error for a name that tells no format; a failure where the file cannot be written, which
/// then is not there.
pub fn write(trace: &Trace, path: &Path) -> Result<()> {
    write_in(trace, Format::of(path)?, path)
}

/// Writes a trace to one file in this format; nothing is there until all of it is. Fails where the file cannot be
/// written, which then is not there.
pub fn write_in(trace: &Trace, format: Format, path: &Path) -> Result<()> {
    match format {
        Format::Parquet => super::write(path, trace),
        format => {
            let mut output = AtomicFile::create(path)?;
            text(trace, format, Ranks::All, &mut output)?;
            output.finish()
        }
    }
}

/// Writes the spans of several traces, each under its name, to one CSV file; nothing is there until all of it is.
/// Fails where the file cannot be written, which then is not there.
pub fn write_several(traces: &[(&str, &Trace)], path: &Path) -> Result<()> {
    let mut output = AtomicFile::create(path)?;
    let mut buffered = BufWriter::with_capacity(1 << 18, &mut output);
    let written = csv(traces, &mut buffered).and_then(|()| buffered.flush());
    written.map_err(Error::io(path))?;
    drop(buffered);
    output.finish()
}

/// Writes a Chrome JSON file a rank into a directory, which is made where there is none: what Holistic
/// Trace Analysis reads. Returns the files.
///
/// # Errors
///
/// An input error where one of the files exists and `replace` is not asked for, in which case nothing is
/// written; a failure where the directory or a file cannot be written.
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
        text(trace, Format::JsonGz, Ranks::One(rank), &mut output)?;
        outputs.push(output);
    }
    for output in outputs {
        output.finish()?;
    }
    Ok(paths)
}

fn text(trace: &Trace, format: Format, ranks: Ranks, output: &mut AtomicFile) -> Result<()> {
    let path = output.path().to_owned();
    let mut buffered = BufWriter::with_capacity(1 << 18, output);
    let written = match format {
        Format::JsonGz => {
            let packed = flate2::write::GzEncoder::new(&mut buffered, flate2::Compression::fast());
            packed_chrome(trace, ranks, packed).and_then(|packed| packed.finish().map(|_| ()))
        }
        Format::JsonZst => {
            zstd::stream::write::Encoder::new(&mut buffered, zstd::DEFAULT_COMPRESSION_LEVEL)
                .and_then(|packed| packed_chrome(trace, ranks, packed))
                .and_then(|packed| packed.finish().map(|_| ()))
        }
        Format::Csv => csv(&[("", trace)], &mut buffered),
        _ => chrome(trace, ranks, &mut buffered),
    };
    written.and_then(|()| buffered.flush()).map_err(Error::io(path))
}

/// Chrome JSON through what packs it. JSON comes in pieces of a few bytes, and a packer's call costs the most of one.
fn packed_chrome<P: Write>(trace: &Trace, ranks: Ranks, packer: P) -> std::io::Result<P> {
    let mut pieces = BufWriter::with_capacity(1 << 16, packer);
    chrome(trace, ranks, &mut pieces)?;
    pieces.into_inner().map_err(std::io::IntoInnerError::into_error)
}
