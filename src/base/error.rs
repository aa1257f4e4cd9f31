//! Errors with exit status and help, and panics as errors.

use std::any::Any;
use std::cell::Cell;
use std::io::ErrorKind::{InvalidData, InvalidInput, IsADirectory, NotADirectory, NotFound};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::{Path, PathBuf};
use std::sync::Once;

/// Error with a message that names the file, the value and the remedy.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum Error {
    /// Invalid input; nothing was started.
    #[error("{message}")]
    Input {
        message: String,
        #[help]
        help: Option<String>,
    },
    /// Failure with valid input.
    #[error("{message}")]
    Failed { message: String },
    #[error("{}: {}", path.display(), in_words(source))]
    Io { path: PathBuf, source: std::io::Error },
    /// Invalid place in a file, rendered with the line and a marker.
    #[error("{message}")]
    At {
        message: String,
        #[help]
        help: Option<String>,
        /// Content and name of the file.
        #[source_code]
        source_code: miette::NamedSource<String>,
        /// Byte range that the terminal underlines.
        #[label("here")]
        span: miette::SourceSpan,
    },
    /// Interrupted by the user; finished work is stored.
    #[error("interrupted; finished work is stored")]
    Interrupted,
}

/// Maximum line length in bytes shown in full.
const LONGEST_LINE: usize = 400;

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Invalid input without further advice.
    pub fn input(message: impl Into<String>) -> Self {
        Self::Input { message: message.into(), help: None }
    }

    /// Invalid input with a remedy.
    pub fn input_help(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Input { message: message.into(), help: Some(help.into()) }
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into() }
    }

    /// Adapter for `map_err` on file operations: `.map_err(Error::io(path))`.
    pub fn io(path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        move |source| Self::Io { path, source }
    }

    /// Unknown name, with the nearest valid one.
    pub fn unknown<'a>(what: &str, given: &str, valid: impl IntoIterator<Item = &'a str>) -> Self {
        let valid: Vec<&str> = valid.into_iter().collect();
        let help = match nearest(given, valid.iter().copied()) {
            Some(name) => format!("did you mean '{name}'? valid: {}", valid.join(", ")),
            None => format!("valid: {}", valid.join(", ")),
        };
        Self::input_help(format!("unknown {what} '{given}'"), help)
    }

    /// Error at a place in a file; the message starts with `FILE:LINE:COLUMN`. Offsets beyond the text
    /// or inside a character move to the nearest valid place before.
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
            // the terminal shows whole lines, so shorten a long one to an excerpt at the same line
            // number
            let from = boundary(start.saturating_sub(LONGEST_LINE / 4)).max(line_start);
            let to = boundary(start + LONGEST_LINE / 4).min(line_end);
            let newlines = line - 1;
            let excerpt = "\n".repeat(newlines) + &text[from..to];
            (excerpt, newlines + start - from..newlines + end.min(to) - from)
        };
        let source_code = miette::NamedSource::new(file, source);
        Self::At { message, help, source_code, span: span.into() }
    }

    /// Message that starts with `FILE:LINE:COLUMN` if the error is at a place in a file.
    pub fn placed(&self) -> String {
        let Self::At { message, source_code, span, .. } = self else { return self.to_string() };
        let before = source_code.inner().get(..span.offset()).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let place = format!("{}:{line}:", source_code.name());
        if message.starts_with(&place) {
            return message.clone();
        }
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!("{place}{column}: {message}")
    }

    /// TOML error with file, line, column and, for an unknown name, the nearest valid one.
    pub fn toml(file: &str, text: &str, error: &toml::de::Error) -> Self {
        // serde quotes the offending name first, then the valid ones
        let quoted: Vec<&str> = error.message().split('`').skip(1).step_by(2).collect();
        let help = match quoted.split_first() {
            Some((given, valid)) if error.message().starts_with("unknown ") => {
                nearest(given, valid.iter().copied()).map(|name| format!("did you mean '{name}'?"))
            }
            _ => None,
        };
        Self::at(file, text, error.span().unwrap_or(0..0), error.message(), help)
    }

    /// Exit status: 2 for invalid input, 1 for a failure, 130 for an interruption.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Input { .. } | Self::At { .. } => 2,
            Self::Failed { .. } => 1,
            // a missing file, a directory or a non-text file is the user's input
            Self::Io { source, .. } => match source.kind() {
                NotFound | IsADirectory | NotADirectory | InvalidData | InvalidInput => 2,
                _ => 1,
            },
            Self::Interrupted => 130,
        }
    }
}

/// Reason of a failed file operation, without the number of the system's error.
fn in_words(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".into(),
        std::io::ErrorKind::IsADirectory => "is a directory; a file is expected".into(),
        std::io::ErrorKind::NotADirectory => "is not a directory".into(),
        std::io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => {
            let text = error.to_string();
            text.split_once(" (os error").map_or(text.clone(), |(reason, _)| reason.to_owned())
        }
    }
}

/// Closest valid name, if it starts with the given one or is close enough to be a typo.
pub fn nearest<'a>(given: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    by_distance(given, valid).into_iter().next()
}

/// All valid names within the typo distance of [`nearest`], the closest first.
pub fn by_distance<'a>(given: &str, valid: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut close: Vec<(usize, &str)> = valid
        .into_iter()
        .map(|name| match given.len() >= 3 && name.starts_with(given) {
            true => (0, name),
            false => (strsim::damerau_levenshtein(given, name), name),
        })
        .filter(|(distance, name)| *distance <= 1 + name.len().max(given.len()) / 3)
        .collect();
    close.sort_by_key(|(distance, _)| *distance);
    close.into_iter().map(|(_, name)| name).collect()
}

thread_local! {
    /// True while panics in this thread are expected and should not be reported.
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, returning a panic's message as `Err`; the panic hook still reports it. A panic may leave
/// data borrowed by `work` inconsistent: do not use it afterwards.
pub fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| text(&*panic).to_owned())
}

/// Like [`catch_panic`], without calling the panic hook. For parsers that panic on damaged files, as Polars
/// does in places. `work` must stay on this thread; other panics are reported as usual.
pub fn catch_panic_quietly<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let report = take_hook();
        set_hook(Box::new(move |panic| {
            if !CONTAINED.get() {
                report(panic);
            }
        }));
    });
    let outer = CONTAINED.replace(true);
    let result = catch_panic(work);
    CONTAINED.set(outer);
    result
}

/// Panic message: `panic!` uses one of two text types as payload.
fn text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("it panicked")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_its_message_and_later_ones_are_reported_again() {
        assert_eq!(catch_panic_quietly(|| 5), Ok(5));
        assert_eq!(catch_panic_quietly(|| -> u8 { panic!("row {}", 7) }), Err("row 7".to_owned()));
        assert_eq!(catch_panic_quietly(|| -> u8 { panic!("no row") }), Err("no row".to_owned()));
        assert!(catch_panic_quietly(|| CONTAINED.get()).unwrap());
        assert!(!CONTAINED.get());
    }
}
