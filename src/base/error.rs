//! The one error type that crosses module borders.
//!
//! What matters to a user is which of three things happened: their input was wrong and nothing was
//! started ([`Error::Input`], exit status 2), something failed on the way ([`Error::Failed`], 1), or
//! they interrupted it ([`Error::Interrupted`], 130).

use std::io::ErrorKind::{InvalidData, InvalidInput, IsADirectory, NotADirectory, NotFound};
use std::path::{Path, PathBuf};

/// Anything that can go wrong, with a message that names the file, the value and what would be right.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum Error {
    /// The input was wrong; nothing was started.
    #[error("{message}")]
    Input {
        /// What was wrong, with the offending value.
        message: String,
        /// What would be right.
        #[help]
        help: Option<String>,
    },
    /// Something failed although the input was right.
    #[error("{message}")]
    Failed {
        /// What failed and where.
        message: String,
    },
    /// Reading or writing a file failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file that could not be read or written.
        path: PathBuf,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// A place in a file is wrong (rendered with the line and a marker).
    #[error("{message}")]
    At {
        /// What was wrong in the file, as a sentence.
        message: String,
        /// What would be right.
        #[help]
        help: Option<String>,
        /// The whole file, named.
        #[source_code]
        source_code: miette::NamedSource<String>,
        /// The bytes of the file that are wrong, which the terminal underlines.
        #[label("here")]
        span: miette::SourceSpan,
    },
    /// Interrupted by the user; what was done is stored.
    #[error("interrupted; what was done is stored")]
    Interrupted,
}

/// Lines above this many bytes are shown in part.
const LONGEST_LINE: usize = 400;

/// Result with the crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Wrong input without further advice.
    pub fn input(message: impl Into<String>) -> Self {
        Self::Input { message: message.into(), help: None }
    }

    /// Wrong input, and what would be right.
    pub fn input_help(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Input { message: message.into(), help: Some(help.into()) }
    }

    /// A failure on the way.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into() }
    }

    /// For `map_err` on file operations: `.map_err(Error::io(path))`.
    pub fn io(path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        move |source| Self::Io { path, source }
    }

    /// An unknown name, with the nearest of the valid ones.
    pub fn unknown<'a>(what: &str, given: &str, valid: impl IntoIterator<Item = &'a str>) -> Self {
        let valid: Vec<&str> = valid.into_iter().collect();
        let help = match nearest(given, valid.iter().copied()) {
            Some(name) => format!("did you mean '{name}'? valid: {}", valid.join(", ")),
            None => format!("valid: {}", valid.join(", ")),
        };
        Self::input_help(format!("unknown {what} '{given}'"), help)
    }

    /// A place in a file: the message begins with `FILE:LINE:COLUMN`. Offsets beyond the text or inside a
    /// character are moved to the nearest place before.
    pub fn at(
        file: &str,
        text: &str,
        span: std::ops::Range<usize>,
        message: impl AsRef<str>,
        help: Option<String>,
    ) -> Self {
        let boundary =
            |at: usize| (0..=at.min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
        let start = boundary(span.start);
        let end = boundary(span.end).max(start);
        let before = &text[..start];
        let line = before.matches('\n').count() + 1;
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let column = text[line_start..start].chars().count() + 1;
        let message = format!("{file}:{line}:{column}: {}", message.as_ref());
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let (source, span) = if line_end - line_start <= LONGEST_LINE {
            (text.to_owned(), start..end)
        } else {
            // the terminal shows whole lines: of a long one, the neighbourhood under the same line number
            let from = boundary(start.saturating_sub(LONGEST_LINE / 4)).max(line_start);
            let to = boundary(start + LONGEST_LINE / 4).min(line_end);
            let newlines = line - 1;
            let excerpt = "\n".repeat(newlines) + &text[from..to];
            (excerpt, newlines + start - from..newlines + end.min(to) - from)
        };
        let source_code = miette::NamedSource::new(file, source);
        Self::At { message, help, source_code, span: span.into() }
    }

    /// A TOML error with file, line, column and, for an unknown name, the nearest valid one.
    pub fn toml(file: &str, text: &str, error: &toml::de::Error) -> Self {
        // serde quotes the offending name first, the valid ones after it
        let quoted: Vec<&str> = error.message().split('`').skip(1).step_by(2).collect();
        let help = match quoted.split_first() {
            Some((given, valid)) if error.message().starts_with("unknown ") => {
                nearest(given, valid.iter().copied()).map(|name| format!("did you mean '{name}'?"))
            }
            _ => None,
        };
        Self::at(file, text, error.span().unwrap_or(0..0), error.message(), help)
    }

    /// The process's exit status for this error: 2 wrong input, 1 a failure, 130 interrupted.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Input { .. } | Self::At { .. } => 2,
            Self::Failed { .. } => 1,
            // a file that is not there, is a directory or no text was named or filled by the user
            Self::Io { source, .. } => match source.kind() {
                NotFound | IsADirectory | NotADirectory | InvalidData | InvalidInput => 2,
                _ => 1,
            },
            Self::Interrupted => 130,
        }
    }
}

/// The valid name closest to what was typed, if one is close enough to be meant.
pub fn nearest<'a>(given: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    valid
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(given, name), name))
        .filter(|(distance, name)| *distance <= 1 + name.len().max(given.len()) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}
