//! Errors that point at a place in an experiment file.

use std::ops::Range;
use std::path::Path;

use crate::base::error::Error;

/// A file's text, for errors that point into it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub path: &'a Path,
    pub text: &'a str,
}

impl Source<'_> {
    /// An error at some bytes of the file; its message begins with `FILE:LINE:COLUMN`.
    pub fn error(&self, at: Range<usize>, message: impl AsRef<str>, help: Option<String>) -> Error {
        let start = self.boundary(at.start);
        let end = self.boundary(at.end).max(start);
        let before = &self.text[..start];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let file = self.path.display().to_string();
        Error::At {
            message: format!("{file}:{line}:{column}: {}", message.as_ref()),
            help,
            source_code: miette::NamedSource::new(file, self.text.to_owned()),
            span: (start..end).into(),
        }
    }

    /// The last place at or before `at` where a character begins.
    fn boundary(&self, at: usize) -> usize {
        (0..=at.min(self.text.len())).rev().find(|i| self.text.is_char_boundary(*i)).unwrap_or(0)
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
