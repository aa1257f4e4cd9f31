//! What profiles and stacks have in common: bounds of values, and errors that name the place.

use crate::error::{Error, nearest};

/// Bounds of values: each check names the key, the value and what would be right.
pub(super) struct Bounds;

type Checked = Result<(), (String, String)>;

impl Bounds {
    /// Finite and above `least`.
    pub(super) fn above(&self, key: &str, value: f64, least: f64) -> Checked {
        self.that(key, value, value.is_finite() && value > least, &format!("above {least}"))
    }

    /// Finite and at least `least`.
    pub(super) fn at_least(&self, key: &str, value: f64, least: f64) -> Checked {
        self.that(key, value, value.is_finite() && value >= least, &format!("at least {least}"))
    }

    /// A share: above 0, up to 1.
    pub(super) fn share(&self, key: &str, value: f64) -> Checked {
        self.that(key, value, value > 0.0 && value <= 1.0, "above 0 and at most 1")
    }

    /// A loss: at least 0, below 1.
    pub(super) fn loss(&self, key: &str, value: f64) -> Checked {
        self.that(key, value, (0.0..1.0).contains(&value), "at least 0 and below 1")
    }

    fn that(&self, key: &str, value: f64, fine: bool, wanted: &str) -> Checked {
        if fine { Ok(()) } else { Err((key.to_owned(), format!("is {value}; it must be {wanted}"))) }
    }
}

/// A TOML error with file, line, column and, for an unknown name, the nearest valid one.
pub(super) fn located(file: &str, text: &str, error: &toml::de::Error) -> Error {
    let span = error.span().unwrap_or(0..0);
    let before = text.get(..span.start).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    // serde quotes the offending name first, the valid ones after it
    let quoted: Vec<&str> = error.message().split('`').skip(1).step_by(2).collect();
    let help = match quoted.split_first() {
        Some((given, valid)) if error.message().starts_with("unknown field") => {
            nearest(given, valid.iter().copied()).map(|name| format!("did you mean '{name}'?"))
        }
        _ => None,
    };
    Error::At {
        message: format!("{file}:{line}:{column}: {}", error.message()),
        help,
        source_code: miette::NamedSource::new(file, text.to_owned()),
        span: span.into(),
    }
}
