//! Tables of anything, and how they are shown: aligned on a terminal, as CSV, in an HTML page, as cells
//! of a screen. Nothing here knows what a column is about.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use comfy_table::{CellAlignment, LineStyle, TableStyle};
use unicode_width::UnicodeWidthStr;

use super::{Provenance, Unit};
use base::text::{digits, escape, percent, printable, si, without_middle};

/// What stands in a row under a column. Tables for people show numbers rounded, CSV in full.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// Nothing to say: a dash in tables, empty in CSV.
    None,
    /// Words, with no number to sort by.
    Text(String),
    /// A number without decimals.
    Whole(u64),
    /// A number, and how many decimals a table shows.
    Number(f64, usize),
    /// A number with its 95 % interval, and how many decimals a table shows; CSV has the number alone.
    Interval(f64, Option<[f64; 2]>, usize),
}

impl Shown {
    /// Words as they are.
    pub fn text(text: impl ToString) -> Self {
        Self::Text(text.to_string())
    }

    /// Text, or nothing where it is empty.
    pub fn some(text: impl ToString) -> Self {
        Some(text.to_string()).filter(|text| !text.is_empty()).map_or(Self::None, Self::Text)
    }

    /// A number, or nothing.
    pub fn number(value: impl Into<Option<f64>>, decimals: usize) -> Self {
        let value = value.into().filter(|v| !v.is_nan());
        value.map_or(Self::None, |v| Self::Number(v, decimals))
    }

    /// A number with its interval, or nothing.
    pub fn interval(value: Option<f64>, ci: Option<[f64; 2]>, decimals: usize) -> Self {
        value.map_or(Self::None, |v| Self::Interval(v, ci, decimals))
    }

    fn in_full(&self) -> Cow<'_, str> {
        match self {
            Self::None => "".into(),
            Self::Text(text) => text.into(),
            Self::Whole(n) => n.to_string().into(),
            Self::Number(n, _) | Self::Interval(n, ..) => n.to_string().into(),
        }
    }

    fn is_number(&self) -> bool {
        !matches!(self, Self::None | Self::Text(_))
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("-"),
            Self::Text(text) => f.write_str(text),
            Self::Whole(n) => write!(f, "{n}"),
            Self::Number(n, decimals) | Self::Interval(n, None, decimals) => write!(f, "{n:.decimals$}"),
            Self::Interval(n, Some([low, high]), decimals) => {
                write!(f, "{n:.decimals$} [{low:.decimals$}, {high:.decimals$}]")
            }
        }
    }
}

macro_rules! whole {
    ($($number:ty),*) => {$(
        impl From<$number> for Shown {
            fn from(number: $number) -> Self {
                Self::Whole(number as u64)
            }
        }
    )*};
}
whole!(u32, u64, usize);

impl<T: Into<Self>> From<Option<T>> for Shown {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

impl From<String> for Shown {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Shown {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// What is shown of a thing under a column: the column's name, and how its value is had.
pub type Shows<'a, T> = (&'a str, &'a dyn Fn(&T) -> Shown);

/// Rows under named columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Shown>>,
    /// Titles of the columns that a narrow window does without first, the first to go last.
    least: &'static [&'static str],
}

/// A column; its name and title are not there where they are empty.
#[derive(Clone, Debug, PartialEq)]
struct Column {
    /// The column's name in files.
    name: String,
    /// The header above it in tables for people.
    title: String,
    /// Whether it stays however narrow a window is.
    stays: bool,
    /// Whether its texts may lose their middles in a narrow window.
    may_be_cut: bool,
}

/// The column that says where a row's numbers come from.
const PROVENANCE: &str = "provenance";

/// Where the numbers of a table come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sourced {
    /// A column of the table says it of each row.
    ByRow,
    /// All rows have them from there, and no column says so yet.
    All(Provenance),
    /// They are no numbers of runs or trainings: names, sizes, settings, a report on the machine.
    NoRuns,
}

/// A table that was made to fit a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fitted {
    /// Its lines; before them what all rows say alike, where that made room.
    pub text: String,
    /// Titles of the columns that were left out.
    pub left_out: Vec<String>,
}

/// The columns of the window that a text which may be cut keeps.
const LEAST_OF_CUT: usize = 24;

/// Blanks between two columns of an aligned table; before the first and behind the last there is one.
const BETWEEN: usize = 3;

/// A line under the header, and nothing else that a reader would have to look past.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

impl Table {
    /// No rows yet under these columns: `name` is the name in files and the title, `name|title` has a
    /// title of its own, `|title` is for people alone, `name|` for files alone. `!` before either: it is never
    /// left out, however narrow a window is; `~`: its texts lose their middles before a column is left out.
    pub fn new<C: AsRef<str>>(columns: impl IntoIterator<Item = C>) -> Self {
        let column = |column: C| {
            let (stays, may_be_cut) =
                (column.as_ref().starts_with('!'), column.as_ref().starts_with('~'));
            let words = column.as_ref().trim_start_matches(['!', '~']);
            let (name, title) = words.split_once('|').unwrap_or((words, words));
            Column { name: name.to_owned(), title: title.to_owned(), stays, may_be_cut }
        };
        Self { columns: columns.into_iter().map(column).collect(), ..Self::default() }
    }

    /// The table with the titles of columns that a narrow window does without first, the first to go last.
    pub fn least(self, least: &'static [&'static str]) -> Self {
        Self { least, ..self }
    }

    /// A row a thing, under columns as [`Table::new`] takes them.
    pub fn of<'a, T: 'a>(things: impl IntoIterator<Item = &'a T>, columns: &[Shows<'_, T>]) -> Self {
        let mut table = Self::new(columns.iter().map(|(name, _)| name));
        for thing in things {
            table.push(columns.iter().map(|(_, value)| value(thing)).collect());
        }
        table
    }

    /// Adds a row: a value a column.
    pub fn push(&mut self, row: Vec<Shown>) {
        debug_assert_eq!(row.len(), self.columns.len(), "a value a column");
        self.rows.push(row);
    }

    /// The table with a column more, behind the others, in which all rows say the same.
    pub fn with(mut self, column: &str, value: &Shown) -> Self {
        self.columns.extend(Self::new([column]).columns);
        self.rows.iter_mut().for_each(|row| row.push(value.clone()));
        self
    }

    /// Whether files have a column of this name.
    pub fn has(&self, name: &str) -> bool {
        !name.is_empty() && self.columns.iter().any(|column| column.name == name)
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The columns that people see: those in which some row says something.
    fn shown(&self) -> Vec<usize> {
        let says = |column: usize| self.rows.iter().any(|row| row[column] != Shown::None);
        let titled = |column: &usize| !self.columns[*column].title.is_empty();
        (0..self.columns.len())
            .filter(titled)
            .filter(|column| self.rows.is_empty() || says(*column))
            .collect()
    }

    /// As an aligned table, without the columns in which no row has anything to say.
    pub fn aligned(&self) -> String {
        self.aligned_of(&self.shown(), &|_| usize::MAX)
    }

    /// As an aligned table of at most so many columns of the window, if it can be. Where it is too wide, what all rows
    /// say alike is said once, above; then texts that may be cut are; then what matters least ([`Self::least`]) is left
    /// out, and then columns from the right. The first column and those that stay never are.
    pub fn fitted(&self, width: usize) -> Fitted {
        let mut shown = self.shown();
        let natural = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].to_string().width());
            cells.chain([self.columns[column].title.width()]).max().unwrap_or(0)
        };
        let mut widths: BTreeMap<usize, usize> = shown.iter().map(|&c| (c, natural(c))).collect();
        let needed = |shown: &[usize], widths: &BTreeMap<usize, usize>| {
            shown.iter().map(|c| widths[c] + BETWEEN).sum::<usize>().saturating_sub(1)
        };
        let mut common = String::new();
        if needed(&shown, &widths) > width {
            let alike: Vec<usize> =
                shown.iter().copied().skip(1).filter(|c| self.is_alike(*c)).collect();
            shown.retain(|column| !alike.contains(column));
            let word = |c: &usize| format!("{} {}", self.columns[*c].title, self.rows[0][*c]);
            let words: Vec<String> = alike.iter().map(word).collect();
            if !words.is_empty() {
                common = format!("all {}: {}\n", self.rows.len(), words.join(", "));
            }
        }
        for column in shown.iter().copied().filter(|c| self.columns[*c].may_be_cut) {
            let excess = needed(&shown, &widths).saturating_sub(width);
            let own = widths[&column];
            widths.insert(column, own.saturating_sub(excess).max(LEAST_OF_CUT).min(own));
        }
        let named = |title: &&str| shown.iter().copied().find(|c| self.columns[*c].title == **title);
        let least: Vec<usize> = self.least.iter().rev().filter_map(named).collect();
        let others = shown.iter().copied().rev().filter(|column| !least.contains(column));
        let going: Vec<usize> = least.iter().copied().chain(others).collect();
        let first = shown.first().copied();
        let (mut now, mut gone) = (needed(&shown, &widths), Vec::new());
        for column in going {
            if now <= width {
                break;
            }
            if !self.columns[column].stays && Some(column) != first {
                now -= widths[&column] + BETWEEN;
                gone.push(column);
            }
        }
        // a wide column that went last may have made room for narrow ones that went before it
        for at in (0..gone.len()).rev() {
            let more = widths[&gone[at]] + BETWEEN;
            if now + more <= width {
                now += more;
                gone.remove(at);
            }
        }
        shown.retain(|column| !gone.contains(column));
        // and room that is left belongs to what was cut
        for column in shown.iter().copied().filter(|c| self.columns[*c].may_be_cut) {
            let own = widths[&column];
            let more = (natural(column) - own).min(width.saturating_sub(now));
            widths.insert(column, own + more);
            now += more;
        }
        let title = |column: usize| self.columns[column].title.clone();
        let text = common + &self.aligned_of(&shown, &|column| widths[&column]);
        Fitted { text, left_out: gone.into_iter().map(title).collect() }
    }

    /// Whether all rows, of which there are several, say the same under a column.
    fn is_alike(&self, column: usize) -> bool {
        let [first, rest @ ..] = self.rows.as_slice() else { return false };
        let same = |row: &Vec<Shown>| row[column] == first[column];
        !rest.is_empty() && first[column] != Shown::None && rest.iter().all(same)
    }

    /// These columns, each at most so wide.
    fn aligned_of(&self, shown: &[usize], most: &dyn Fn(usize) -> usize) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(STYLE);
        table.set_header(shown.iter().map(|&c| &self.columns[c].title));
        for row in &self.rows {
            table.add_row(shown.iter().map(|&c| without_middle(&row[c].to_string(), most(c))));
        }
        for (at, &c) in shown.iter().enumerate() {
            if self.rows.iter().any(|row| row[c].is_number())
                && let Some(column) = table.column_mut(at)
            {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.trim_fmt() + "\n"
    }

    /// As CSV with a header. Whoever writes it says where its numbers come from; they may not get lost on the way to
    /// another program.
    pub fn csv(&self, sourced: Sourced) -> String {
        match sourced {
            Sourced::All(provenance) => self.clone().with(PROVENANCE, &Shown::text(provenance)).text(),
            Sourced::ByRow => {
                let says = |column: &Column| column.name.contains(PROVENANCE);
                debug_assert!(self.columns.iter().any(says), "no column says where numbers come from");
                self.text()
            }
            Sourced::NoRuns => self.text(),
        }
    }

    fn text(&self) -> String {
        let kept: Vec<usize> =
            (0..self.columns.len()).filter(|c| !self.columns[*c].name.is_empty()).collect();
        csv(
            kept.iter().map(|&c| self.columns[c].name.as_str()),
            self.rows.iter().map(|row| kept.iter().map(|&c| row[c].in_full())),
        )
    }

    /// As an HTML table with its caption, its first `most` rows; what is left out is said, with the
    /// command that shows all of it. Columns in which no row says anything are left out.
    pub fn html(&self, caption: &str, most: usize, whole: &str) -> String {
        let shown = self.shown();
        let class = |column: usize| {
            let text = self.rows.iter().any(|row| matches!(row[column], Shown::Text(_)));
            if text { "" } else { " class=\"n\"" }
        };
        // writing to a String cannot fail, here and below
        let mut html = format!("<div class=\"scroll\"><table><caption>{}", escape(caption));
        if self.rows.len() > most {
            let _ = write!(
                html,
                " <strong>The first {most} of {} rows; all: <code>{}</code></strong>",
                self.rows.len(),
                escape(whole)
            );
        }
        html.push_str("</caption>\n<thead><tr>");
        for &column in &shown {
            let title = escape(&self.columns[column].title);
            let _ = write!(html, "<th scope=\"col\"{}>{title}</th>", class(column));
        }
        html.push_str("</tr></thead>\n<tbody>\n");
        for row in self.rows.iter().take(most) {
            html.push_str("<tr>");
            for &column in &shown {
                let (cell, key) = row[column].html();
                let key = match key.is_empty() || key == cell {
                    true => String::new(),
                    false => format!(" data-v=\"{key}\""),
                };
                let _ = write!(html, "<td{}{key}>{cell}</td>", class(column));
            }
            html.push_str("</tr>\n");
        }
        html + "</tbody></table></div>\n"
    }
}

impl Shown {
    /// What a page says, and what a script sorts by.
    fn html(&self) -> (String, String) {
        match self {
            Self::None => ("–".into(), "-Infinity".into()),
            Self::Text(text) => (escape(text), String::new()),
            Self::Interval(n, Some([low, high]), decimals) => (
                format!("{n:.decimals$} <small>[{low:.decimals$}, {high:.decimals$}]</small>"),
                n.to_string(),
            ),
            _ => (self.to_string(), self.in_full().into_owned()),
        }
    }
}

/// CSV (RFC 4180, with plain line feeds): a header, and a line a row.
pub fn csv<'a, R>(header: impl IntoIterator<Item = &'a str>, rows: impl IntoIterator<Item = R>) -> String
where
    R: IntoIterator<Item: AsRef<str>>,
{
    let mut text = Vec::new();
    // a vector takes everything
    let _ = write_csv(&mut text, header, rows);
    String::from_utf8(text).unwrap_or_default()
}

/// Writes to `out` the CSV that [`csv()`] makes, a row at a time. Fails where `out` takes no more.
pub fn write_csv<'a, R>(
    out: impl io::Write,
    header: impl IntoIterator<Item = &'a str>,
    rows: impl IntoIterator<Item = R>,
) -> io::Result<()>
where
    R: IntoIterator<Item: AsRef<str>>,
{
    let mut writer = ::csv::WriterBuilder::new().flexible(true).from_writer(out);
    writer.write_record(header.into_iter().map(|name| cell(name).into_owned()))?;
    for row in rows {
        for value in row {
            writer.write_field(&*cell(value.as_ref()))?;
        }
        writer.write_record(None::<&[u8]>)?;
    }
    writer.flush()
}

/// First characters of a formula, those of full width too, and blanks that spreadsheets skip before one.
const FORMULA: [char; 10] =
    ['=', '+', '-', '@', '\t', '\n', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'];

/// True if CSV keeps text that a spreadsheet would execute (`--raw`).
static RAW_CSV: AtomicBool = AtomicBool::new(false);

/// From here on CSV has text as it is, without apostrophes before what a spreadsheet would take for a formula.
pub fn keep_formulas() {
    RAW_CSV.store(true, Ordering::Relaxed);
}

/// A cell of CSV. Names come from files and other processes: a spreadsheet executes text that begins with one of
/// `=+-@`, so that it gets an apostrophe; numbers stay. Characters that steer a terminal become `�`.
fn cell(text: &str) -> Cow<'_, str> {
    let text = printable(text);
    let is_formula = || text.len() > 1 && text.starts_with(FORMULA);
    if !is_formula() || text.parse::<f64>().is_ok() || RAW_CSV.load(Ordering::Relaxed) {
        return text;
    }
    format!("'{text}").into()
}

impl Unit {
    /// A number as a cell of a screen: few digits, and its unit where the column's title has none.
    pub fn cell(self, value: f64) -> String {
        match self {
            Self::Count => format!("{value:.0}"),
            Self::Bytes => si(value, "B"),
            Self::Percent => percent(Some(value)),
            Self::Share => percent(Some(100.0 * value)),
            // an overhead of timing is judged by its thousandths
            Self::Factor => format!("{value:.3}"),
            Self::Nats => format!("{value:.4}"),
            Self::Ms | Self::Rate | Self::Text | Self::Words | Self::Names => digits(value),
        }
    }
}

#[cfg(test)]
mod tests;
