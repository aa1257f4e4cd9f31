//! An input: a file, or a member of an archive, as bytes that can be read again and again.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::unpack::{self, Limits, Source, Unpacked, unpack};
use base::error::{Error, Result};
use base::regular;

/// A file to import.
#[derive(Clone, Debug)]
pub(super) struct Input {
    /// Its path; a member's is its name below the path of its archive.
    pub path: PathBuf,
    /// Its path below the directory or archive that was opened.
    pub name: String,
    pub place: Place,
}

/// Where the bytes of an input are.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// A file of its own, at the input's path.
    File,
    Member(Member),
}

/// Bytes within an open file: a member of an archive.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub file: Arc<File>,
    pub range: Range<u64>,
    pub coding: Coding,
}

/// How a member of an archive is stored.
#[derive(Clone, Copy, Debug)]
pub(super) enum Coding {
    Plain,
    /// A zip archive's method, and the length and CRC-32 of the unpacked bytes.
    Zip {
        method: u16,
        length: u64,
        crc: u32,
    },
}

/// Methods of zip archives that are unpacked.
const STORED: u16 = 0;
const DEFLATE: u16 = 8;
const BZIP2: u16 = 12;
const ZSTD: u16 = 93;
const XZ: u16 = 95;

impl Input {
    /// A file that was named by itself.
    pub(super) fn of(path: &Path) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Self { path: path.to_path_buf(), name, place: Place::File }
    }

    /// The path, for messages.
    pub(super) fn shown(&self) -> String {
        self.path.display().to_string()
    }

    /// True for a file of its own that begins with these bytes, uncompressed, so that others can open it by its path.
    pub(super) fn begins_plain(&self, magic: &[u8]) -> Result<bool> {
        if !matches!(self.place, Place::File) {
            return Ok(false);
        }
        let mut start = Vec::new();
        let read = self.stored()?.take(magic.len() as u64).read_to_end(&mut start);
        read.map_err(Error::io(&self.path))?;
        Ok(start == magic)
    }

    /// The bytes as they are stored: compressed, if the file is.
    pub(super) fn stored(&self) -> Result<Section> {
        match &self.place {
            Place::File => {
                let file = regular::open_linked(&self.path).map_err(Error::io(&self.path))?;
                let length = file.metadata().map_err(Error::io(&self.path))?.len();
                Ok(Section::of(Arc::new(file), 0..length))
            }
            Place::Member(member) => Ok(Section::of(member.file.clone(), member.range.clone())),
        }
    }

    /// The content, unpacked.
    pub(super) fn unpacked(&self) -> Result<Source<'static>> {
        let stored = self.stored()?;
        let name = self.shown();
        match &self.place {
            Place::Member(Member { coding: Coding::Zip { method, length, crc }, .. }) => {
                let bytes = decoded(*method, stored).map_err(Error::io(&self.path))?;
                let checked =
                    Checked { bytes, sum: flate2::Crc::new(), read: 0, length: *length, crc: *crc };
                let source = unpack(&name, checked)?;
                Ok(Source { packed: source.packed.or(Some("zip")), ..source })
            }
            _ => unpack(&name, stored),
        }
    }

    /// The content in a file of its own: a temporary one without a name, within the limits of the environment.
    pub(super) fn to_file(&self) -> Result<Unpacked> {
        let packed = self.stored()?.length();
        let mut source = self.unpacked()?;
        unpack::to_file(&self.shown(), &mut source.bytes, packed, Limits::from_environment()?)
    }

    /// The content in a file of its own, to its last byte.
    pub(super) fn to_whole_file(&self) -> Result<File> {
        let Unpacked { file, length, trouble } = self.to_file()?;
        match trouble {
            None => Ok(file),
            Some(error) => Err(unpack::broken(&self.shown(), "compressed", length, &error)),
        }
    }
}

fn decoded(method: u16, stored: Section) -> io::Result<Box<dyn Read>> {
    let stored = Box::new(BufReader::with_capacity(256 << 10, stored));
    match method {
        STORED => Ok(stored),
        DEFLATE => Ok(Box::new(flate2::bufread::DeflateDecoder::new(stored))),
        BZIP2 => unpack::bzip2(stored),
        ZSTD => unpack::zstd(stored),
        XZ => unpack::xz(stored),
        other => Err(io::Error::other(format!(
            "packed by method {other} of zip archives, which is not known here; pack it again by deflate"
        ))),
    }
}

/// Bytes of a file, from some place on, of which other readers can read at the same time.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub file: Arc<File>,
    /// Where in the file they are.
    pub range: Range<u64>,
    /// The place of the next byte in the section.
    at: u64,
}

impl Section {
    pub(super) fn of(file: Arc<File>, range: Range<u64>) -> Self {
        Self { file, range, at: 0 }
    }

    /// Its last bytes, so many at most.
    pub(super) fn tail(&self, most: u64) -> Self {
        let start = self.range.start + self.length().saturating_sub(most);
        Self::of(self.file.clone(), start..self.range.end)
    }

    pub(super) fn length(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.length().saturating_sub(self.at);
        let wanted = usize::try_from(rest).map_or(buffer.len(), |rest| rest.min(buffer.len()));
        let count = self.file.read_at(&mut buffer[..wanted], self.range.start + self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Section {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let place = match to {
            SeekFrom::Start(place) => Some(place),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.length().checked_add_signed(by),
        };
        self.at = place.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}

/// A zip member's unpacked bytes, whose length and checksum are compared at the end.
struct Checked<R> {
    bytes: R,
    sum: flate2::Crc,
    read: u64,
    length: u64,
    crc: u32,
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.bytes.read(buffer)?;
        self.read += count as u64;
        self.sum.update(&buffer[..count]);
        if count == 0 && !buffer.is_empty() && (self.read, self.sum.sum()) != (self.length, self.crc) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the checksum of the archive's member does not match",
            ));
        }
        Ok(count)
    }
}
