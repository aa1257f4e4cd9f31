//! What a file is, by its first bytes, whatever it is called.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use crate::base::error::{Error, Result};

/// How a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    Gzip,
    Zstd,
}

/// What a file holds, once unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Content {
    /// Chrome JSON: PyTorch's profiler.
    Json,
    /// SQLite: an export of Nsight Systems.
    Sqlite,
    /// Parquet: one of our own.
    Own,
    Unknown,
}

/// A file whose content was recognised by its first bytes.
#[derive(Debug)]
pub(super) struct Recognised {
    pub content: Content,
    pub packing: Packing,
    /// The first bytes of the file, unpacked.
    pub head: Vec<u8>,
}

const SQLITE: &[u8] = b"SQLite format 3\0";
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Looks at the first `most` bytes of what is in a file.
pub(super) fn recognise(path: &Path, most: usize) -> Result<Recognised> {
    let mut magic = Vec::new();
    File::open(path).and_then(|file| file.take(4).read_to_end(&mut magic)).map_err(Error::io(path))?;
    if magic.is_empty() {
        return Err(Error::input(format!("{}: the file is empty", path.display())));
    }
    let packing = match magic.as_slice() {
        bytes if bytes.starts_with(GZIP) => Packing::Gzip,
        bytes if bytes.starts_with(ZSTD) => Packing::Zstd,
        _ => Packing::Plain,
    };
    let mut head = Vec::new();
    let read = unpacked(path, packing)?.take(most as u64).read_to_end(&mut head);
    // A broken file may still show what it is.
    if let Err(error) = read
        && head.is_empty()
    {
        return Err(Error::input(format!("{}: cannot be unpacked: {error}", path.display())));
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&head).trim_ascii_start();
    let content = match () {
        () if head.starts_with(SQLITE) => Content::Sqlite,
        () if head.starts_with(b"PAR1") => Content::Own,
        () if text.starts_with(b"{") || text.starts_with(b"[") => Content::Json,
        () => Content::Unknown,
    };
    Ok(Recognised { content, packing, head })
}

/// Whether a file holds a trace of a known kind, by its first bytes.
pub fn is_trace(path: &Path) -> bool {
    recognise(path, 64).is_ok_and(|found| found.content != Content::Unknown)
}

/// What is in a file.
pub(super) fn unpacked(path: &Path, packing: Packing) -> Result<Box<dyn Read>> {
    let file = BufReader::new(File::open(path).map_err(Error::io(path))?);
    Ok(match packing {
        Packing::Plain => Box::new(file),
        Packing::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
        Packing::Zstd => Box::new(zstd::Decoder::with_buffer(file).map_err(Error::io(path))?),
    })
}

/// The error of a file that is no trace.
pub(super) fn unknown(path: &Path, head: &[u8]) -> Error {
    let name = path.to_string_lossy().to_lowercase();
    let (what, help) = if name.ends_with(".nsys-rep") || name.ends_with(".qdrep") {
        (
            "a report of Nsight Systems, of which only exports can be read",
            "run `nsys export --type sqlite` on it",
        )
    } else if head.starts_with(b"PK\x03\x04") {
        ("a zip archive", "unpack it first")
    } else {
        (
            "not a trace of a known kind",
            "known are: traces of ladderscope (Parquet), JSON of PyTorch's profiler (plain, gzip, zstd), and SQLite \
             exports of Nsight Systems",
        )
    };
    Error::input_help(format!("{}: {what}; it begins with '{}'", path.display(), beginning(head)), help)
}

fn beginning(head: &[u8]) -> String {
    head.iter().take(16).flat_map(|byte| std::ascii::escape_default(*byte)).map(char::from).collect()
}
