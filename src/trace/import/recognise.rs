//! Recognition of a file's format by its first bytes and its name.

use std::io::Read;
use std::path::Path;

use memchr::memmem::find;

use super::formats::{FORMATS, FileFormat, FormatSignature, Reader};
use super::input::{self, InputFile};
use super::sniff::{first_line, is_json};
use base::error::{Error, Result};

/// Number of unpacked bytes inspected for detection: enough for the device descriptions that profilers
/// write first.
pub(super) const HEAD: usize = 256 << 10;

/// Bytes at the end of a Parquet file that contain its column names.
const TAIL: u64 = 64 << 10;

pub(super) struct Recognised {
    pub format: Option<&'static FileFormat>,
    /// Outermost compression of the input: `gzip`.
    pub packed: Option<&'static str>,
    /// First [`HEAD`] bytes, unpacked.
    pub head: Vec<u8>,
}

impl Recognised {
    pub(super) fn reader(&self) -> Reader {
        self.format.map_or(Reader::None, |format| format.reader)
    }
}

/// Detects the format of an input by its first bytes. Returns an error if the file is empty, unreadable
/// or cannot be unpacked.
pub(super) fn recognise(input: &InputFile) -> Result<Recognised> {
    let name = input.shown();
    let stored = input.stored()?;
    if stored.length() == 0 {
        return Err(empty(&name));
    }
    let source = input.unpacked()?;
    let mut head = Vec::new();
    let read = source.bytes.take(HEAD as u64).read_to_end(&mut head);
    match (read, source.packed) {
        // the format of a broken file may still be detectable
        (Err(error), None) if head.is_empty() => return Err(Error::io(&input.path)(error)),
        (Err(error), Some(packed)) if head.is_empty() => {
            return Err(input::broken(&name, packed, 0, &error));
        }
        (Ok(_), Some(_)) if head.is_empty() => return Err(empty(&name)),
        _ => {}
    }
    let format = if head.starts_with(b"PAR1") && source.packed.is_none() {
        let mut sample = head.clone();
        stored.tail(TAIL).read_to_end(&mut sample).map_err(Error::io(&input.path))?;
        of_head(&input.path, &sample)
    } else {
        of_head(&input.path, &head)
    };
    Ok(Recognised { format, packed: source.packed, head })
}

fn empty(name: &str) -> Error {
    Error::input_help(format!("{name}: the file is empty"), "copy it again, or record it again")
}

/// True unless the content is readable and of no known format.
pub fn is_known_file(path: &Path) -> bool {
    recognise(&InputFile::from_path(path)).map_or(true, |found| found.format.is_some())
}

fn of_head(path: &Path, head: &[u8]) -> Option<&'static FileFormat> {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let (is_json, line) = (is_json(text), first_line(head));
    let name = path.to_string_lossy().to_lowercase();
    let mut name = name.as_str();
    for ending in [".gz", ".zst", ".xz", ".bz2"] {
        name = name.strip_suffix(ending).unwrap_or(name);
    }
    FORMATS.iter().find(|format| {
        format.signatures.iter().any(|signature| match signature {
            FormatSignature::Begins(bytes) => head.starts_with(bytes) || text.starts_with(bytes),
            FormatSignature::Json(keys) => is_json && keys.iter().all(|key| find(text, key).is_some()),
            FormatSignature::Within(start, texts) => {
                head.starts_with(start) && texts.iter().all(|text| find(head, text).is_some())
            }
            FormatSignature::Line(texts) => texts.iter().all(|text| find(line, text).is_some()),
            FormatSignature::Name(ending) => name.ends_with(ending),
            FormatSignature::Table(_) => false,
            FormatSignature::Test(test) => test(head),
        })
    })
}
