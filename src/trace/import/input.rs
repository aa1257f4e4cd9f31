//! Import inputs: files and archive members as bytes that can be read repeatedly, unpacked from gzip, zstd, xz
//! and bzip2, also nested, as streams or into files with limits.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::error::{Error, Result};
use base::regular;

#[derive(Clone, Debug)]
pub(super) struct InputFile {
    /// Path of the file; for a member, its name appended to the path of the archive.
    pub path: PathBuf,
    /// Path relative to the opened directory or archive.
    pub name: String,
    /// `None` for a file of its own.
    pub member: Option<ArchiveMember>,
}

/// Member of an archive.
#[derive(Clone, Debug)]
pub(super) struct ArchiveMember {
    pub file: Arc<File>,
    pub range: Range<u64>,
    /// `None` for a member of a tar archive.
    pub zipped: Option<ZipMember>,
}

/// Compression method of a zip member, with length and CRC-32 of the unpacked bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZipMember {
    pub method: u16,
    pub length: u64,
    pub crc: u32,
}

impl InputFile {
    pub(super) fn from_path(path: &Path) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Self { path: path.to_path_buf(), name, member: None }
    }

    pub(super) fn shown(&self) -> String {
        self.path.display().to_string()
    }

    /// True for an uncompressed regular file with these first bytes, which other libraries can open by
    /// path.
    pub(super) fn begins_plain(&self, magic: &[u8]) -> Result<bool> {
        if self.member.is_some() {
            return Ok(false);
        }
        let mut start = Vec::new();
        let read = self.stored()?.take(magic.len() as u64).read_to_end(&mut start);
        read.map_err(Error::io(&self.path))?;
        Ok(start == magic)
    }

    pub(super) fn stored(&self) -> Result<FileSection> {
        match &self.member {
            None => {
                let file = regular::open_linked(&self.path).map_err(Error::io(&self.path))?;
                let length = file.metadata().map_err(Error::io(&self.path))?.len();
                Ok(FileSection::new(Arc::new(file), 0..length))
            }
            Some(member) => Ok(FileSection::new(member.file.clone(), member.range.clone())),
        }
    }

    pub(super) fn unpacked(&self) -> Result<UnpackedReader<'static>> {
        let stored = self.stored()?;
        let name = self.shown();
        let Some(expected) = self.member.as_ref().and_then(|member| member.zipped) else {
            return unpack(&name, stored);
        };
        let bytes = decoded(expected.method, stored).map_err(Error::io(&self.path))?;
        let source =
            unpack(&name, ChecksumReader { bytes, sum: flate2::Crc::new(), read: 0, expected })?;
        Ok(UnpackedReader { packed: source.packed.or(Some("zip")), ..source })
    }

    /// Unpacks the content into an anonymous temporary file, up to the limits in the environment.
    pub(super) fn to_file(&self) -> Result<Unpacked> {
        let packed = self.stored()?.length();
        let mut source = self.unpacked()?;
        let limits = UnpackLimits::from(|name| std::env::var(name).ok())?;
        to_file(&self.shown(), &mut source.bytes, packed, limits)
    }

    /// Like [`Self::to_file`], but returns an error if the content is truncated.
    pub(super) fn to_whole_file(&self) -> Result<File> {
        let Unpacked { file, length, trouble } = self.to_file()?;
        match trouble {
            None => Ok(file),
            Some(error) => Err(broken(&self.shown(), "compressed", length, &error)),
        }
    }
}

fn decoded(method: u16, stored: FileSection) -> io::Result<Box<dyn Read>> {
    let stored = Box::new(BufReader::with_capacity(256 << 10, stored));
    match method {
        0 => Ok(stored),
        8 => Ok(Box::new(flate2::bufread::DeflateDecoder::new(stored))),
        12 => bzip2(stored),
        93 => zstd(stored),
        95 => xz(stored),
        other => Err(io::Error::other(format!(
            "unknown zip compression method {other}; compress it with deflate"
        ))),
    }
}

/// A byte range of a shared file, with its own read position.
#[derive(Clone, Debug)]
pub(super) struct FileSection {
    pub file: Arc<File>,
    pub range: Range<u64>,
    at: u64,
}

impl FileSection {
    pub(super) fn new(file: Arc<File>, range: Range<u64>) -> Self {
        Self { file, range, at: 0 }
    }

    pub(super) fn tail(&self, most: u64) -> Self {
        let start = self.range.start + self.length().saturating_sub(most);
        Self::new(self.file.clone(), start..self.range.end)
    }

    pub(super) fn length(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }
}

impl Read for FileSection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.length().saturating_sub(self.at);
        let wanted = usize::try_from(rest).map_or(buffer.len(), |rest| rest.min(buffer.len()));
        let count = self.file.read_at(&mut buffer[..wanted], self.range.start + self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for FileSection {
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
struct ChecksumReader<R> {
    bytes: R,
    sum: flate2::Crc,
    read: u64,
    expected: ZipMember,
}

impl<R: Read> Read for ChecksumReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.bytes.read(buffer)?;
        self.read += count as u64;
        self.sum.update(&buffer[..count]);
        let ZipMember { length, crc, .. } = self.expected;
        if count == 0 && !buffer.is_empty() && (self.read, self.sum.sum()) != (length, crc) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the checksum of the archive's member does not match",
            ));
        }
        Ok(count)
    }
}

const PACKED: usize = 256 << 10;

/// Buffer size for detecting nested compression; larger reads bypass the buffer.
const PEEK: usize = 1 << 10;

/// Maximum nesting depth of compressions.
const DEPTH: usize = 3;

/// Memory limit for an xz dictionary in bytes; `xz -9` needs 65 MiB.
const XZ_MEMORY: u64 = 512 << 20;

pub(super) struct UnpackedReader<'a> {
    pub bytes: Box<dyn Read + 'a>,
    /// Outermost compression. If there is one, a read error means damage, not a failing disk.
    pub packed: Option<&'static str>,
}

type Decode = for<'a> fn(Box<dyn BufRead + 'a>) -> io::Result<Box<dyn Read + 'a>>;

struct Compression {
    name: &'static str,
    magic: &'static [u8],
    decode: Decode,
}

const COMPRESSIONS: [Compression; 4] = [
    Compression { name: "gzip", magic: &[0x1f, 0x8b], decode: gzip },
    Compression { name: "zstd", magic: &[0x28, 0xb5, 0x2f, 0xfd], decode: zstd },
    Compression { name: "xz", magic: &[0xfd, b'7', b'z', b'X', b'Z', 0], decode: xz },
    Compression { name: "bzip2", magic: b"BZh", decode: bzip2 },
];

fn gzip<'a>(bytes: Box<dyn BufRead + 'a>) -> io::Result<Box<dyn Read + 'a>> {
    Ok(Box::new(flate2::bufread::MultiGzDecoder::new(bytes)))
}

pub(super) fn zstd<'a>(bytes: Box<dyn BufRead + 'a>) -> io::Result<Box<dyn Read + 'a>> {
    Ok(Box::new(zstd::stream::read::Decoder::with_buffer(bytes)?))
}

pub(super) fn xz<'a>(bytes: Box<dyn BufRead + 'a>) -> io::Result<Box<dyn Read + 'a>> {
    let stream = liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY, liblzma::stream::CONCATENATED)?;
    Ok(Box::new(liblzma::bufread::XzDecoder::new_stream(bytes, stream)))
}

pub(super) fn bzip2<'a>(bytes: Box<dyn BufRead + 'a>) -> io::Result<Box<dyn Read + 'a>> {
    Ok(Box::new(bzip2::bufread::MultiBzDecoder::new(bytes)))
}

/// Removes the compressions that the first bytes indicate. Returns an error if these cannot be read or
/// unpacked.
pub(super) fn unpack<'a>(name: &str, raw: impl Read + 'a) -> Result<UnpackedReader<'a>> {
    let mut bytes: Box<dyn BufRead + 'a> = Box::new(BufReader::with_capacity(PACKED, raw));
    let mut packed = None;
    for _ in 0..DEPTH {
        let start = match (bytes.fill_buf(), packed) {
            (Ok(start), _) => start,
            (Err(error), None) => return Err(Error::io(name)(error)),
            (Err(error), Some(packed)) => return Err(broken(name, packed, 0, &error)),
        };
        let Some(found) = COMPRESSIONS.iter().find(|found| start.starts_with(found.magic)) else {
            break;
        };
        packed.get_or_insert(found.name);
        let decoded = (found.decode)(bytes).map_err(Error::io(name))?;
        bytes = Box::new(BufReader::with_capacity(PEEK, decoded));
    }
    Ok(UnpackedReader { bytes: Box::new(bytes), packed })
}

pub(super) fn broken(name: &str, packed: &str, bytes: u64, error: &io::Error) -> Error {
    Error::input_help(
        format!("{name}: the {packed} stream breaks after {bytes} unpacked bytes: {error}"),
        "the file is cut off or damaged: copy it again",
    )
}

const BYTES_VARIABLE: &str = "LADDERSCOPE_UNPACK_GB";
const RATIO_VARIABLE: &str = "LADDERSCOPE_UNPACK_RATIO";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnpackLimits {
    pub bytes: u64,
    /// Maximum ratio of unpacked to packed bytes, beyond the first [`UnpackLimits::FREE`].
    pub ratio: u64,
}

impl Default for UnpackLimits {
    /// Real SQLite exports and tar archives of traces unpack to 5 to 50 times their size.
    fn default() -> Self {
        Self { bytes: 16_000_000_000, ratio: 200 }
    }
}

impl UnpackLimits {
    /// Unpacked bytes exempt from the ratio.
    const FREE: u64 = 64 << 20;

    /// Limits from variables of the environment, or the defaults. Returns an error for a value that is not a number above 0.
    fn from(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let number = |name: &str, default: f64| match variable(name) {
            None => Ok(default),
            Some(text) => text
                .trim()
                .parse()
                .ok()
                .filter(|number| *number > 0.0)
                .ok_or_else(|| Error::input(format!("{name}={text}: expected a number above 0"))),
        };
        let default = Self::default();
        Ok(Self {
            bytes: (number(BYTES_VARIABLE, default.bytes as f64 / 1e9)? * 1e9) as u64,
            ratio: number(RATIO_VARIABLE, default.ratio as f64)? as u64,
        })
    }
}

/// An anonymous temporary file, which the system deletes when it is closed, however the process ends.
pub(super) struct Unpacked {
    pub file: File,
    pub length: u64,
    pub trouble: Option<io::Error>,
}

/// Unpacks a stream of `packed` compressed bytes into a temporary file. A truncated stream yields the
/// bytes before the error. Returns an input error if a limit is exceeded.
pub(super) fn to_file(
    name: &str,
    bytes: &mut dyn Read,
    packed: u64,
    limits: UnpackLimits,
) -> Result<Unpacked> {
    let directory = std::env::temp_dir();
    let failed = |error: io::Error| {
        Error::failed(format!(
            "{name}: cannot be unpacked into {}: {error}; set TMPDIR to a directory with room",
            directory.display()
        ))
    };
    let mut file = tempfile::tempfile().map_err(failed)?;
    let mut buffer = vec![0; 1 << 20];
    let (mut length, mut trouble) = (0_u64, None);
    loop {
        let count = match bytes.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                trouble = Some(error);
                break;
            }
        };
        length += count as u64;
        let by_ratio = packed.saturating_mul(limits.ratio).max(UnpackLimits::FREE);
        if length > limits.bytes || length > by_ratio {
            let (limit, variable) = match length > limits.bytes {
                true => (format!("{} GB", limits.bytes as f64 / 1e9), BYTES_VARIABLE),
                false => (format!("{} times its {packed} bytes", limits.ratio), RATIO_VARIABLE),
            };
            return Err(Error::input_help(
                format!("{name}: unpacks to more than {limit}; not read"),
                format!("if the file can be trusted, unpack it by hand, or set {variable} higher"),
            ));
        }
        file.write_all(&buffer[..count]).map_err(failed)?;
    }
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    Ok(Unpacked { file, length, trouble })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::tests::{bzip2, gzip, xz, zstd};

    fn limits(pairs: &[(&str, &str)]) -> Result<UnpackLimits> {
        UnpackLimits::from(|name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn limits_come_from_the_environment() {
        assert_eq!(limits(&[]).unwrap(), UnpackLimits::default());
        let set = limits(&[(BYTES_VARIABLE, "0.5"), (RATIO_VARIABLE, "1000")]).unwrap();
        assert_eq!((set.bytes, set.ratio), (500_000_000, 1000));
        for value in ["0", "-1", "many", "NaN", ""] {
            let error = limits(&[(RATIO_VARIABLE, value)]).unwrap_err().to_string();
            assert!(error.contains(RATIO_VARIABLE), "{error}");
        }
    }

    #[test]
    fn unpacking_stops_at_either_limit() {
        let unpacked =
            |bytes: u64, packed, limits| to_file("t", &mut io::repeat(7).take(bytes), packed, limits);
        let whole = unpacked(100_000, 1, UnpackLimits::default()).unwrap();
        assert_eq!((whole.length, whole.file.metadata().unwrap().len()), (100_000, 100_000));
        assert_eq!(
            std::os::unix::fs::MetadataExt::nlink(&whole.file.metadata().unwrap()),
            0,
            "it has no name"
        );
        let small = UnpackLimits { bytes: 50_000, ratio: 200 };
        let error = unpacked(100_000, 100_000, small).err().unwrap();
        assert!(error.to_string().contains("more than 0.00005 GB"), "{error}");
        let error =
            unpacked(UnpackLimits::FREE + (4 << 20), 1000, UnpackLimits::default()).err().unwrap();
        assert!(error.to_string().contains("more than 200 times its 1000 bytes"), "{error}");
        assert!(unpacked(UnpackLimits::FREE + (4 << 20), 1 << 20, UnpackLimits::default()).is_ok());
    }

    #[test]
    fn streams_within_streams_are_unpacked_and_broken_ones_named() {
        let text = b"{\"traceEvents\": []}".repeat(1000);
        for (packed, name) in [
            (text.clone(), None),
            (gzip(&text), Some("gzip")),
            (zstd(&text), Some("zstd")),
            (xz(&text), Some("xz")),
            (bzip2(&text), Some("bzip2")),
            (xz(&gzip(&text)), Some("xz")),
            (gzip(&zstd(&bzip2(&text))), Some("gzip")),
            ([xz(&text[..5000]), xz(&text[5000..])].concat(), Some("xz")),
            ([bzip2(&text[..5000]), bzip2(&text[5000..])].concat(), Some("bzip2")),
        ] {
            let mut source = unpack("t", &packed[..]).unwrap();
            let mut bytes = Vec::new();
            source.bytes.read_to_end(&mut bytes).unwrap();
            assert!(source.packed == name && bytes == text, "{name:?}");
            if name.is_some() {
                let half = unpack("t", &packed[..packed.len() / 2]);
                let cut = half.is_err()
                    || half.is_ok_and(|mut half| half.bytes.read_to_end(&mut Vec::new()).is_err());
                assert!(cut, "{name:?}: cut off");
            }
        }
        let error = unpack("t", &b"\x1f\x8bbroken"[..]).err().unwrap().to_string();
        assert!(error.contains("the gzip stream breaks after 0 unpacked bytes"), "{error}");
    }
}
