//! Number formatting for people: few digits, always a unit.

use unicode_width::UnicodeWidthStr;

use base::error::Error;
use base::text::latency;
pub use base::text::{digits, percent, si};
use table::Status;

/// Formats a duration in ns: `850 ns`, `12.3 us`, `4.56 ms`, `1.20 s`.
pub fn ns(value: i64) -> String {
    match value.unsigned_abs() {
        0..1_000 => format!("{value} ns"),
        _ => latency(value as f64 / 1e3),
    }
}

/// Truncates text to `width` columns, ending in an ellipsis.
pub fn cut(text: &str, width: u16) -> String {
    let width = usize::from(width);
    if text.width() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    while short.width() + 1 > width && short.pop().is_some() {}
    short + "…"
}

/// Truncates text at its front, where names come before values.
pub fn cut_front(text: &str, width: u16) -> String {
    let (width, letters) = (usize::from(width), text.chars().count());
    if letters <= width || width < 2 {
        return cut(text, width as u16);
    }
    let end: String = text.chars().skip(letters + 1 - width).collect();
    format!("…{end}")
}

/// Truncates an id in the middle: its end distinguishes runs of the same second and rows of a batch.
pub fn cut_middle(id: &str, width: u16) -> String {
    const END: usize = 9;
    let (width, letters) = (usize::from(width), id.chars().count());
    if letters <= width || width < END + 4 {
        return cut(id, width as u16);
    }
    let begin: String = id.chars().take(width - END - 1).collect();
    let end: String = id.chars().skip(letters - END).collect();
    format!("{begin}…{end}")
}

/// Formats milliseconds as a clock: `0:07`, `12:34`, `1:02:03`.
pub fn clock(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

pub fn error(error: &Error) -> String {
    match error {
        Error::Input { help: Some(help), .. } | Error::At { help: Some(help), .. } => {
            format!("{}\n{help}", error.placed())
        }
        _ => error.placed(),
    }
}

/// Word for cells that cannot run.
pub fn unable_word(status: Status) -> &'static str {
    if status == Status::Oom { "out of memory" } else { status.as_str() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_follow_the_size() {
        assert_eq!(ns(850), "850 ns");
        assert_eq!(ns(12_340), "12.3 us");
        assert_eq!(ns(-4_560_000), "-4.56 ms");
        assert_eq!(ns(1_200_000_000), "1.20 s");
        assert_eq!(si(16_777_216.0, "B"), "16.8 MB");
        assert_eq!(clock(3_723_000), "1:02:03");
        assert_eq!(digits(f64::NAN), "-");
    }

    #[test]
    fn a_place_in_a_file_names_line_and_column() {
        let text = "a = 1\nbb = 2\n".to_string();
        let shown = error(&Error::At {
            message: "no such key".into(),
            help: Some("write cc".into()),
            source_code: miette::NamedSource::new("x.toml", text),
            span: (8, 1).into(),
        });
        assert_eq!(shown, "x.toml:2:3: no such key\nwrite cc");
        let named = Error::at("x.toml", "a = 1\n", 0..1, "no such key", None);
        assert_eq!(error(&named), "x.toml:1:1: no such key", "once");
    }
}
