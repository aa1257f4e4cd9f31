//! Results on standard output: tables, JSON, CSV.

use std::io::Write;

use clap::ValueEnum;
use comfy_table::{CellAlignment, LineStyle, TableStyle};
use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};

use crate::error::{Error, Result};

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
    /// For spreadsheets
    Csv,
}

/// The option that every verb with results has.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct FormatArgs {
    /// How results are printed: table, json, csv
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub format: Format,
}

/// A line under the header, and nothing else that a reader would have to look past.
const TABLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

const STDOUT: &str = "standard output";

/// Whether whoever read our output went away (`ladderscope runs | head`): no error of ours.
pub fn is_broken_pipe(error: &Error) -> bool {
    matches!(error, Error::Io { path, source }
        if path.as_os_str() == STDOUT && source.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Writes `text` to standard output, as it is.
pub fn emit(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::io(STDOUT))
}

/// Writes `value` as indented JSON.
pub fn json(value: &impl Serialize) -> Result<()> {
    emit(&(to_json(value, true)? + "\n"))
}

/// Writes an indented JSON list, each element when `fill` hands it over.
pub fn json_list<T: Serialize>(
    fill: impl FnOnce(&mut dyn FnMut(T) -> Result<()>) -> Result<()>,
) -> Result<()> {
    let failed = |e: serde_json::Error| Error::io(STDOUT)(e.into());
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut json = serde_json::Serializer::pretty(&mut out);
    let mut list = json.serialize_seq(None).map_err(failed)?;
    fill(&mut |element| list.serialize_element(&element).map_err(failed))?;
    list.end().map_err(failed)?;
    out.write_all(b"\n").and_then(|()| out.flush()).map_err(Error::io(STDOUT))
}

/// Writes `value` as JSON on one line.
pub fn json_line(value: &impl Serialize) -> Result<()> {
    emit(&(to_json(value, false)? + "\n"))
}

fn to_json(value: &impl Serialize, indented: bool) -> Result<String> {
    let text = if indented { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    text.map_err(|e| Error::failed(format!("writing JSON: {e}")))
}

/// One field of a row. Tables show it rounded, CSV in full.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    /// Text.
    Text(String),
    /// A whole number.
    Whole(u64),
    /// A number, and how many decimals a table shows.
    Number(f64, usize),
    /// Nothing to say: a dash in tables, empty in CSV.
    None,
}

impl Field {
    /// Text.
    pub fn text(text: impl ToString) -> Self {
        Self::Text(text.to_string())
    }

    /// A number, or nothing.
    pub fn number(value: Option<f64>, decimals: usize) -> Self {
        value.map_or(Self::None, |v| Self::Number(v, decimals))
    }

    fn shown(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Whole(n) => n.to_string(),
            Self::Number(n, decimals) => format!("{n:.decimals$}"),
            Self::None => "-".into(),
        }
    }

    fn csv(&self) -> String {
        match self {
            Self::Text(text) if text.contains([',', '"', '\n', '\r']) => {
                format!("\"{}\"", text.replace('"', "\"\""))
            }
            Self::Text(text) => text.clone(),
            Self::Whole(n) => n.to_string(),
            Self::Number(n, _) => n.to_string(),
            Self::None => String::new(),
        }
    }

    fn is_number(&self) -> bool {
        matches!(self, Self::Whole(_) | Self::Number(..))
    }
}

/// Rows under named columns, for a table or CSV.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    columns: Vec<String>,
    rows: Vec<Vec<Field>>,
}

impl Rows {
    /// No rows yet under these columns.
    pub fn new<C: Into<String>>(columns: impl IntoIterator<Item = C>) -> Self {
        Self { columns: columns.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row: a field a column.
    pub fn push(&mut self, row: Vec<Field>) {
        debug_assert_eq!(row.len(), self.columns.len(), "a field a column");
        self.rows.push(row);
    }

    /// As an aligned table, without the columns in which no row has anything to say.
    pub fn table(&self) -> String {
        let kept: Vec<usize> = (0..self.columns.len())
            .filter(|&c| self.rows.is_empty() || self.rows.iter().any(|row| row[c] != Field::None))
            .collect();
        let mut table = comfy_table::Table::new();
        table.load_style(TABLE);
        table.set_header(kept.iter().map(|&c| &self.columns[c]));
        for row in &self.rows {
            table.add_row(kept.iter().map(|&c| row[c].shown()));
        }
        for (at, &c) in kept.iter().enumerate() {
            if self.rows.iter().any(|row| row[c].is_number())
                && let Some(column) = table.column_mut(at)
            {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.trim_fmt() + "\n"
    }

    /// As CSV (RFC 4180) with a header.
    pub fn csv(&self) -> String {
        let mut text = self.columns.join(",") + "\n";
        for row in &self.rows {
            text += &row.iter().map(Field::csv).collect::<Vec<_>>().join(",");
            text.push('\n');
        }
        text
    }
}

/// A byte count for people: `70.6 GB`.
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

    fn rows() -> Rows {
        let mut rows = Rows::new(["name", "ms", "reason"]);
        rows.push(vec![Field::text("a,\"b\""), Field::Number(1.23456, 2), Field::None]);
        rows.push(vec![Field::text("c"), Field::Whole(7), Field::None]);
        rows
    }

    #[test]
    fn csv_keeps_every_digit_and_quotes_what_needs_it() {
        assert_eq!(rows().csv(), "name,ms,reason\n\"a,\"\"b\"\"\",1.23456,\nc,7,\n");
    }

    #[test]
    fn a_table_rounds_and_leaves_out_columns_without_content() {
        let table = rows().table();
        assert!(table.contains("1.23") && !table.contains("1.234"), "{table}");
        assert!(!table.contains("reason"), "{table}");
    }

    #[test]
    fn byte_counts_never_show_a_thousand_of_a_unit() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(999_950), "1.0 MB");
        assert_eq!(bytes(70_600_000_000), "70.6 GB");
    }
}
