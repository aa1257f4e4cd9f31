//! Errors that point at a place in an experiment file.

use std::ops::Range;
use std::path::Path;

use base::error::Error;

/// A file's text, for errors that point into it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub path: &'a Path,
    pub text: &'a str,
}

impl Source<'_> {
    /// An error at some bytes of the file; its message begins with `FILE:LINE:COLUMN`.
    pub fn error(&self, at: Range<usize>, message: impl AsRef<str>, help: Option<String>) -> Error {
        Error::at(&self.path.display().to_string(), self.text, at, message, help)
    }

    /// An error of a value's own, at the place where the value stands.
    pub fn blame(&self, at: Range<usize>, error: Error) -> Error {
        match error {
            Error::Input { message, help } => self.error(at, message, help),
            // an error in another file keeps its place there
            Error::At { message, help, .. } => self.error(at, message, help),
            other => self.error(at, other.to_string(), None),
        }
    }

    /// An unknown name, with the nearest valid one.
    pub fn unknown(&self, at: Range<usize>, what: &str, given: &str, valid: &[&str]) -> Error {
        self.blame(at, Error::unknown(what, given, valid.iter().copied()))
    }
}
