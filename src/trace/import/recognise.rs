//! The format of a file, by its first bytes and its name.

use std::io::Read;
use std::path::Path;

use super::formats::{Format, HEAD, Reader, of_head};
use super::input::Input;
use super::unpack;
use base::error::{Error, Result};

/// Bytes of a Parquet file's end in which its columns are named.
const TAIL: u64 = 64 << 10;

/// A file whose format was looked for.
#[derive(Debug)]
pub(super) struct Recognised {
    pub format: Option<&'static Format>,
    /// Its outermost compression.
    pub packed: Option<&'static str>,
    /// Its first bytes, unpacked.
    pub head: Vec<u8>,
}

impl Recognised {
    pub(super) fn reader(&self) -> Reader {
        self.format.map_or(Reader::None, |format| format.reader)
    }
}

/// Looks at the first bytes of an input.
///
/// # Errors
///
/// An input error for an empty file and for one that cannot be unpacked; a failure where it cannot be read.
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
        // a broken file may still show its format
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

/// True for a file whose first bytes are those of a trace that is read, or of an archive.
pub fn is_trace(path: &Path) -> bool {
    recognise(&Input::of(path)).is_ok_and(|found| !matches!(found.reader(), Reader::None | Reader::Json))
}
