//! Errors that point at a position in an experiment file.

use std::ops::Range;
use std::path::Path;

use base::error::Error;

#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub path: &'a Path,
    pub text: &'a str,
}

impl Source<'_> {
    /// Error at a byte range of the file; its message begins with `FILE:LINE:COLUMN`.
    pub fn error(&self, at: Range<usize>, message: impl AsRef<str>, help: Option<String>) -> Error {
        Error::at(&self.path.display().to_string(), self.text, at, message, help)
    }

    /// Moves an error of a value to the value's position.
    pub fn blame(&self, at: Range<usize>, error: Error) -> Error {
        match error {
            Error::Input { message, help } => self.error(at, message, help),
            // drops the position in another file
            Error::At { message, help, .. } => self.error(at, message, help),
            other => self.error(at, other.to_string(), None),
        }
    }

    /// Error for an unknown name, with the nearest valid one.
    pub fn unknown(&self, at: Range<usize>, what: &str, given: &str, valid: &[&str]) -> Error {
        self.blame(at, Error::unknown(what, given, valid.iter().copied()))
    }
}
