//! An import input: a file or an archive member, as bytes that can be read repeatedly.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::unpack::{self, Limits, Source, Unpacked, unpack};
use base::error::{Error, Result};
use base::regular;

#[derive(Clone, Debug)]
pub(super) struct Input {
    /// Path of the file; for a member, its name appended to the path of the archive.
    pub path: PathBuf,
    /// Path relative to the opened directory or archive.
    pub name: String,
    pub place: Place,
}

#[derive(Clone, Debug)]
pub(super) enum Place {
    File,
    Member(Member),
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub file: Arc<File>,
    pub range: Range<u64>,
    pub coding: Coding,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Coding {
    Plain,
    /// Zip compression method, with length and CRC-32 of the unpacked bytes.
    Zip {
        method: u16,
        length: u64,
        crc: u32,
    },
}

const STORED: u16 = 0;
const DEFLATE: u16 = 8;
const BZIP2: u16 = 12;
const ZSTD: u16 = 93;
const XZ: u16 = 95;

impl Input {
    pub(super) fn of(path: &Path) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Self { path: path.to_path_buf(), name, place: Place::File }
    }

    pub(super) fn shown(&self) -> String {
        self.path.display().to_string()
    }

    /// True for an uncompressed regular file with these first bytes, which other libraries can open by
    /// path.
    pub(super) fn begins_plain(&self, magic: &[u8]) -> Result<bool> {
        if !matches!(self.place, Place::File) {
            return Ok(false);
        }
        let mut start = Vec::new();
        let read = self.stored()?.take(magic.len() as u64).read_to_end(&mut start);
        read.map_err(Error::io(&self.path))?;
        Ok(start == magic)
    }

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

    /// Unpacks the content into an anonymous temporary file, up to the limits in the environment.
    pub(super) fn to_file(&self) -> Result<Unpacked> {
        let packed = self.stored()?.length();
        let mut source = self.unpacked()?;
        unpack::to_file(&self.shown(), &mut source.bytes, packed, Limits::from_environment()?)
    }

    /// Like [`Self::to_file`], but returns an error if the content is truncated.
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

/// A byte range of a shared file, with its own read position.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub file: Arc<File>,
    pub range: Range<u64>,
    at: u64,
}

impl Section {
    pub(super) fn of(file: Arc<File>, range: Range<u64>) -> Self {
        Self { file, range, at: 0 }
    }

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

/// Reader of a zip member that verifies length and checksum at the end.
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
