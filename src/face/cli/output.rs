//! Results on standard output: tables, JSON, CSV.

use std::io::{IsTerminal, Write};

use clap::ValueEnum;
use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};
use serde_json::Value;

use super::stderr;
use base::error::{Error, Result};
use base::text::{EscapedJson, escaped_json, printable};
use lab::store::Annotation;
use table::Record;
use table::render::{FittedTable, Sourced, Table};

/// Output format of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Aligned columns, for people
    #[default]
    Table,
    /// JSON with stable keys, for programs
    Json,
    /// Comma-separated values, for spreadsheets
    Csv,
}

/// Output format option of every verb with results.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct FormatArgs {
    /// Output format: table, json, csv
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub format: OutputFormat,
}

const STDOUT: &str = "standard output";

/// True if the reader of standard output has closed it (`ladderscope runs | head`), which is no error.
pub fn is_broken_pipe(error: &Error) -> bool {
    matches!(error, Error::Io { path, source }
        if path.as_os_str() == STDOUT && source.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Writes `text` to standard output, with terminal control characters from names and notes replaced by `�`. Fails if
/// standard output cannot be written: a full disk, or a closed pipe.
pub fn emit(text: &str) -> Result<()> {
    write(&printable(text))
}

/// Writes `text` to standard output unchanged.
fn write(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::io(STDOUT))
}

/// Formats a table, no wider than the terminal, or 100 columns without one, if possible: drops columns and prints a
/// note that names them.
pub fn aligned(table: &Table) -> String {
    let width = width().unwrap_or(DEFAULT_COLUMNS);
    let FittedTable { text, left_out } = table.fitted(width);
    if !left_out.is_empty() {
        stderr::note(&format!(
            "hidden to fit {width} columns: {}; --format json has all",
            left_out.join(", ")
        ));
    }
    text
}

/// Maximum length of a name in a text: kernel names are whole signatures, and numbers need half of the row.
pub const NAME_WIDTH: usize = 56;

/// Width of text without a terminal.
const DEFAULT_COLUMNS: usize = 100;

/// Columns of the terminal on standard output; `None` without one, and in tests.
fn width() -> Option<usize> {
    let terminal = std::io::stdout().is_terminal() && !cfg!(test);
    let size = terminal.then(crossterm::terminal::size)?;
    size.ok().map(|(columns, _)| columns.into())
}

/// Wraps `head` and `words` at blanks to the width of the terminal, at most 100 columns. Lines after the first are
/// indented by `indent` blanks. U+00A0 is a blank without a line break.
pub fn wrapped(head: &str, words: &str, indent: usize) -> String {
    let most = width().map_or(DEFAULT_COLUMNS, |columns| columns.clamp(40, DEFAULT_COLUMNS));
    let blanks = " ".repeat(indent);
    let options = textwrap::Options::new(most)
        .initial_indent(head)
        .subsequent_indent(&blanks)
        .word_separator(textwrap::WordSeparator::AsciiSpace)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .break_words(false);
    textwrap::fill(words, options).replace('\u{a0}', " ") + "\n"
}

/// Prints a result that people also read as a table.
pub fn table(
    format: OutputFormat,
    result: &impl Serialize,
    table: &Table,
    sourced: Sourced,
) -> Result<()> {
    print(format, result, || table.csv(sourced), || aligned(table))
}

/// Prints a result in the requested format: JSON, CSV, or text for people.
pub fn print(
    format: OutputFormat,
    result: &impl Serialize,
    csv: impl FnOnce() -> String,
    text: impl FnOnce() -> String,
) -> Result<()> {
    match format {
        OutputFormat::Json => json(result),
        OutputFormat::Csv => emit(&csv()),
        OutputFormat::Table => emit(&text()),
    }
}

pub fn json(value: &impl Serialize) -> Result<()> {
    write(&(to_json(value, true)? + "\n"))
}

/// Writes an indented JSON list, each element as soon as `fill` passes it.
pub fn json_list<T: Serialize>(
    fill: impl FnOnce(&mut dyn FnMut(T) -> Result<()>) -> Result<()>,
) -> Result<()> {
    let failed = |e: serde_json::Error| Error::io(STDOUT)(e.into());
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut json = serde_json::Serializer::pretty(EscapedJson(&mut out));
    let mut list = json.serialize_seq(None).map_err(failed)?;
    fill(&mut |element| list.serialize_element(&element).map_err(failed))?;
    list.end().map_err(failed)?;
    out.write_all(b"\n").and_then(|()| out.flush()).map_err(Error::io(STDOUT))
}

pub fn json_line(value: &impl Serialize) -> Result<()> {
    write(&(to_json(value, false)? + "\n"))
}

fn to_json(value: &impl Serialize, indented: bool) -> Result<String> {
    let text = if indented { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    let text = text.map_err(|e| Error::failed(format!("writing JSON: {e}")))?;
    Ok(escaped_json(&text).into_owned())
}

/// Record with tags and note of its run.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Annotated<'a> {
    #[serde(flatten)]
    record: &'a Record,
    tags: Vec<&'a str>,
    note: Option<&'a str>,
}

impl<'a> Annotated<'a> {
    /// Combines a record with its annotation, if any.
    pub fn new(record: &'a Record, annotation: Option<&'a Annotation>) -> Self {
        let tags = annotation.map(|a| &a.tags).into_iter().flatten();
        let note = annotation.map(|a| a.note.as_str()).filter(|note| !note.is_empty());
        Self { record, tags: tags.map(String::as_str).collect(), note }
    }
}

/// JSON object of a record, annotated or not, without samples. `show --format json` prints those, which may be many
/// thousand numbers.
pub fn without_samples(record: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(record).unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        object.remove("samples");
        if let Some(Value::Object(pass)) = object.get_mut("instrumented") {
            pass.remove("steps_ms");
        }
    }
    value
}

/// Smallest and largest of some numbers, as `1.2x to 1.4x`, or one if both look the same; `None` without numbers.
pub fn range_text(
    values: impl Iterator<Item = f64> + Clone,
    shown: impl Fn(f64) -> String,
) -> Option<String> {
    let (low, high) = (values.clone().min_by(f64::total_cmp)?, values.max_by(f64::total_cmp)?);
    let (low, high) = (shown(low), shown(high));
    Some(if low == high { low } else { format!("{low} to {high}") })
}

/// Formats a byte count, e.g. `70.6 GB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_wrapped_at_100_columns() {
        let words = vec!["17 cpu_op"; 40].join(", ");
        let text = wrapped("  ignored ", &words, 4);
        assert!(text.lines().count() > 3);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert_eq!(text.matches("cpu_op").count(), 40, "nothing is lost");
    }

    #[test]
    fn byte_counts_never_show_a_thousand_of_a_unit() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(999_950), "1.0 MB");
        assert_eq!(bytes(70_600_000_000), "70.6 GB");
    }
}
