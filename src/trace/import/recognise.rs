//! Format detection by first bytes and file name.

use std::io::Read;
use std::path::Path;

use super::formats::{Format, HEAD, Reader, of_head};
use super::input::Input;
use super::unpack;
use base::error::{Error, Result};

/// Bytes at the end of a Parquet file that contain its column names.
const TAIL: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct Recognised {
    pub format: Option<&'static Format>,
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
pub(super) fn recognise(input: &Input) -> Result<Recognised> {
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
            return Err(unpack::broken(&name, packed, 0, &error));
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

/// True if the first bytes are those of a supported trace format or an archive.
pub fn is_trace(path: &Path) -> bool {
    recognise(&Input::of(path)).is_ok_and(|found| !matches!(found.reader(), Reader::None | Reader::Json))
}
