//! Generic tables and their output: aligned text, CSV, HTML, and screen cells. Independent of the
//! columns' contents.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use comfy_table::{CellAlignment, LineStyle, TableStyle};
use unicode_width::UnicodeWidthStr;

use super::{Provenance, Unit};
use base::text::{decimals, digits, escape, percent, printable, si, without_middle};

/// Table cell. Human-readable tables round numbers to at most four significant digits, CSV keeps all digits.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// Empty: a dash in tables, nothing in CSV.
    None,
    /// Text without a sort value.
    Text(String),
    Whole(u64),
    /// Number and its decimals at most.
    Number(f64, usize),
    /// Point in time and its decimals, all of them shown.
    Instant(f64, usize),
    /// Number with its 95 % interval and its decimals at most; CSV contains only the number.
    Interval(f64, Option<[f64; 2]>, usize),
    /// Time in microseconds; tables choose the unit by size and add it to the column's title.
    Time(f64),
}

impl Shown {
    pub fn text(text: impl ToString) -> Self {
        Self::Text(text.to_string())
    }

    /// Text, or empty cell for an empty text.
    pub fn some(text: impl ToString) -> Self {
        Some(text.to_string()).filter(|text| !text.is_empty()).map_or(Self::None, Self::Text)
    }

    pub fn number(value: impl Into<Option<f64>>, decimals: usize) -> Self {
        let value = value.into().filter(|v| !v.is_nan());
        value.map_or(Self::None, |v| Self::Number(v, decimals))
    }

    pub fn interval(value: Option<f64>, ci: Option<[f64; 2]>, decimals: usize) -> Self {
        value.map_or(Self::None, |v| Self::Interval(v, ci, decimals))
    }

    pub fn time(us: impl Into<Option<f64>>) -> Self {
        us.into().filter(|us| !us.is_nan()).map_or(Self::None, Self::Time)
    }

    /// Point in time in microseconds, in the unit of the table's times.
    pub fn instant(us: f64) -> Self {
        Self::Instant(us, 1)
    }

    fn in_full(&self) -> Cow<'_, str> {
        match self {
            Self::None => "".into(),
            Self::Text(text) => text.into(),
            Self::Whole(n) => n.to_string().into(),
            Self::Number(n, _) | Self::Instant(n, _) | Self::Interval(n, ..) | Self::Time(n) => {
                n.to_string().into()
            }
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
            Self::Time(us) => write!(f, "{us:.1}"),
            Self::Instant(n, decimals) => write!(f, "{n:.decimals$}"),
            Self::Number(n, most) | Self::Interval(n, None, most) => {
                write!(f, "{n:.0$}", decimals(*n, *most))
            }
            Self::Interval(n, Some([low, high]), most) => {
                let decimals = decimals(*n, *most);
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

/// Column specification and accessor of its value.
pub type Shows<'a, T> = (&'a str, &'a dyn Fn(&T) -> Shown);

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Shown>>,
    /// Titles or names of the least important columns, most important first; narrow windows drop them first.
    least: Vec<&'static str>,
    /// Words before the values that all rows share; `all N rows:` if empty.
    common_head: String,
}

/// Column; an empty name or title hides it in files or on screen.
#[derive(Clone, Debug, PartialEq)]
struct Column {
    /// Name in files.
    name: String,
    /// Header in human-readable tables.
    title: String,
    /// True if the column is never dropped.
    stays: bool,
    /// True if a narrow window may shorten its texts in the middle.
    may_be_cut: bool,
}

/// Unit of a table's times.
#[derive(Clone, Copy, Debug)]
struct TimeUnit {
    /// Length in microseconds.
    us: f64,
    name: &'static str,
    decimals: usize,
}

impl TimeUnit {
    /// Unit for times up to `most` microseconds: at most four digits before the point.
    fn for_longest(most: f64) -> Self {
        match most {
            _ if most < 1e4 => Self { us: 1.0, name: "us", decimals: 1 },
            _ if most < 1e7 => Self { us: 1e3, name: "ms", decimals: 2 },
            _ => Self { us: 1e6, name: "s", decimals: 3 },
        }
    }
}

const PROVENANCE: &str = "provenance";

/// Source of a table's provenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sourced {
    /// A column states it per row.
    ByRow,
    /// The same for all rows, and not yet in a column.
    All(Provenance),
    /// No numbers of runs or trainings: names, sizes, settings, a machine report.
    NoRuns,
}

/// Table fitted to a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FittedTable {
    pub text: String,
    pub left_out: Vec<String>,
}

/// Minimum width of shortened text.
const LEAST_OF_CUT: usize = 24;

/// Minimum width of text that is shortened further because the columns that stay need the room.
const LEAST_OF_NAME: usize = 12;

/// Spaces between columns of an aligned table; the margins have one.
const COLUMN_GAP: usize = 3;

/// A single line under the header.
const TABLE_STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Joins items with commas after `head`, in lines of at most `width` columns if possible.
fn listed(head: &str, items: &[String], width: usize) -> String {
    let mut text = head.to_owned();
    let mut column = head.width();
    for (at, item) in items.iter().enumerate() {
        let comma = if at + 1 < items.len() { "," } else { "" };
        let wide = item.width() + comma.len();
        let is_full = column + 1 + wide > width;
        text += if is_full { "\n  " } else { " " };
        column = if is_full { 2 + wide } else { column + 1 + wide };
        text += item;
        text += comma;
    }
    text + "\n"
}

impl Table {
    /// Creates an empty table. `name` serves as name in files and as title; `name|title` sets both,
    /// `|title` appears only on screen, `name|` only in files. Prefix `!`: never dropped; `~`: texts are
    /// shortened before columns are dropped.
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

    /// Sets the titles or names of the least important columns, most important first; narrow windows drop them
    /// first.
    pub fn least(self, least: &[&'static str]) -> Self {
        Self { least: least.to_vec(), ..self }
    }

    /// Sets the words before the values that all rows share.
    pub fn common_head(self, common_head: String) -> Self {
        Self { common_head, ..self }
    }

    /// Builds a table with one row per item; columns as in [`Table::new`].
    pub fn from_rows<'a, T: 'a>(
        things: impl IntoIterator<Item = &'a T>,
        columns: &[Shows<'_, T>],
    ) -> Self {
        let mut table = Self::new(columns.iter().map(|(name, _)| name));
        for thing in things {
            table.push(columns.iter().map(|(_, value)| value(thing)).collect());
        }
        table
    }

    /// Adds a row with one value per column.
    pub fn push(&mut self, row: Vec<Shown>) {
        debug_assert_eq!(row.len(), self.columns.len(), "a value a column");
        self.rows.push(row);
    }

    /// Appends a column with the same value in all rows.
    pub fn with(mut self, column: &str, value: &Shown) -> Self {
        self.columns.extend(Self::new([column]).columns);
        self.rows.iter_mut().for_each(|row| row.push(value.clone()));
        self
    }

    /// True if files have a column of this name.
    pub fn has(&self, name: &str) -> bool {
        !name.is_empty() && self.columns.iter().any(|column| column.name == name)
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Columns shown to people: titled and not empty in every row.
    fn shown(&self) -> Vec<usize> {
        let says = |column: usize| self.rows.iter().any(|row| row[column] != Shown::None);
        let titled = |column: &usize| !self.columns[*column].title.is_empty();
        (0..self.columns.len())
            .filter(titled)
            .filter(|column| self.rows.is_empty() || says(*column))
            .collect()
    }

    /// Replaces times by numbers in the unit of the largest one, and adds the unit to their titles. A column whose
    /// times are all below 1 in that unit has its own.
    fn in_units(&self) -> Self {
        let times = |column: usize| {
            self.rows.iter().filter_map(move |row| match row[column] {
                Shown::Time(us) | Shown::Instant(us, _) => Some(us.abs()),
                _ => None,
            })
        };
        let most: Vec<Option<f64>> =
            (0..self.columns.len()).map(|column| times(column).reduce(f64::max)).collect();
        let of_table = TimeUnit::for_longest(most.iter().flatten().copied().fold(0.0, f64::max));
        let mut table = self.clone();
        for (at, most) in most.iter().enumerate().filter_map(|(at, most)| Some((at, (*most)?))) {
            let is_small = most > 0.0 && most < of_table.us;
            let unit = if is_small { TimeUnit::for_longest(most) } else { of_table };
            let title = &mut table.columns[at].title;
            if !title.is_empty() {
                *title = format!("{} {}", title.strip_suffix("_us").unwrap_or(title), unit.name);
            }
            for row in &mut table.rows {
                match row[at] {
                    Shown::Time(us) => row[at] = Shown::Number(us / unit.us, unit.decimals),
                    Shown::Instant(us, _) => row[at] = Shown::Instant(us / unit.us, unit.decimals),
                    _ => {}
                }
            }
        }
        table
    }

    /// Formats an aligned table without empty columns.
    pub fn aligned(&self) -> String {
        let table = self.in_units();
        table.aligned_of(&table.shown(), &|_| usize::MAX)
    }

    /// Formats an aligned table that fits `width` columns, if possible. If too wide, it first moves
    /// values common to all rows above the table, then words common to all texts of a column, then
    /// shortens texts, then drops the least important columns ([`Self::least`]), then columns from the
    /// right. The first column and those marked `!` always stay.
    pub fn fitted(&self, width: usize) -> FittedTable {
        self.in_units().fitted_of(width, None)
    }

    /// Fits the table; `words` are the common words already removed from its texts.
    fn fitted_of(&self, width: usize, words: Option<Vec<String>>) -> FittedTable {
        let mut shown = self.shown();
        let natural = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].to_string().width());
            cells.chain([self.columns[column].title.width()]).max().unwrap_or(0)
        };
        let mut widths: BTreeMap<usize, usize> = shown.iter().map(|&c| (c, natural(c))).collect();
        let needed = |shown: &[usize], widths: &BTreeMap<usize, usize>| {
            shown.iter().map(|c| widths[c] + COLUMN_GAP).sum::<usize>().saturating_sub(1)
        };
        let (may_shorten, mut common_words) = (words.is_none(), words.unwrap_or_default());
        if needed(&shown, &widths) > width {
            // the first column names the rows, unless all texts below its first one are left out
            let is_common = |(at, column): &(usize, usize)| match (at, self.rows.as_slice()) {
                (0, [first, rest @ ..]) if first[*column] != Shown::None && !rest.is_empty() => {
                    rest.iter().all(|row| row[*column] == Shown::text(""))
                }
                (0, _) => false,
                _ => self.is_constant(*column),
            };
            let constant = shown.iter().copied().enumerate().filter(is_common);
            let constant: Vec<usize> = constant.map(|(_, column)| column).collect();
            shown.retain(|column| !constant.contains(column));
            let word = |c: &usize| format!("{} {}", self.columns[*c].title, self.rows[0][*c]);
            common_words.extend(constant.iter().map(word));
            if may_shorten && needed(&shown, &widths) > width {
                let (table, words) = self.without_common_words(&shown);
                if !words.is_empty() {
                    return table.fitted_of(width, Some(words));
                }
            }
        }
        let common = match (common_words.is_empty(), self.common_head.as_str()) {
            (true, _) => String::new(),
            (false, "") => listed(&format!("all {} rows:", self.rows.len()), &common_words, width),
            (false, head) => listed(head, &common_words, width),
        };
        for column in shown.iter().copied().filter(|c| self.columns[*c].may_be_cut) {
            let excess = needed(&shown, &widths).saturating_sub(width);
            let own = widths[&column];
            widths.insert(column, own.saturating_sub(excess).max(LEAST_OF_CUT).min(own));
        }
        let named = |name: &&str| {
            let is_it = |c: &usize| self.columns[*c].title == **name || self.columns[*c].name == **name;
            shown.iter().copied().find(is_it)
        };
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
                now -= widths[&column] + COLUMN_GAP;
                gone.push(column);
            }
        }
        // dropping a wide column may have made room for narrow ones dropped before it
        for at in (0..gone.len()).rev() {
            let more = widths[&gone[at]] + COLUMN_GAP;
            if now + more <= width {
                now += more;
                gone.remove(at);
            }
        }
        shown.retain(|column| !gone.contains(column));
        // shortened texts get the remaining room, or give the room that the columns that stay need
        for column in shown.iter().copied().filter(|c| self.columns[*c].may_be_cut) {
            let own = widths[&column];
            let room = (own + width).saturating_sub(now);
            let fitted = room.clamp(own.min(LEAST_OF_NAME), natural(column));
            widths.insert(column, fitted);
            now = now + fitted - own;
        }
        let title = |column: usize| self.columns[column].title.clone();
        let text = common + &self.aligned_of(&shown, &|column| widths[&column]);
        FittedTable { text, left_out: gone.into_iter().map(title).collect() }
    }

    /// Removes the words that all texts of a column have, in columns that may be shortened. Returns the rest, in which rows
    /// still differ, and the removed words after the column's title.
    fn without_common_words(&self, shown: &[usize]) -> (Self, Vec<String>) {
        let (mut table, mut removed) = (self.clone(), Vec::new());
        for &column in shown.iter().filter(|c| self.columns[**c].may_be_cut) {
            let texts: Vec<String> = self.rows.iter().map(|row| row[column].to_string()).collect();
            let words: Vec<Vec<&str>> = texts.iter().map(|text| text.split(' ').collect()).collect();
            // a text that is left out repeats the one above
            let filled: Vec<&Vec<&str>> = words.iter().filter(|words| words[..] != [""]).collect();
            let [first, rest @ ..] = &filled[..] else { continue };
            let is_common = |word: &&str| rest.iter().all(|words| words.contains(word));
            let common: Vec<&str> = first.iter().copied().filter(is_common).collect();
            let own = |words: &[&str]| {
                let own = words.iter().copied().filter(|word| !common.contains(word));
                own.collect::<Vec<_>>().join(" ")
            };
            if rest.is_empty() || common.is_empty() || filled.iter().any(|words| own(words).is_empty()) {
                continue;
            }
            removed.push(format!("{} {}", self.columns[column].title, common.join(" ")));
            for (row, words) in table.rows.iter_mut().zip(&words).filter(|(_, words)| words[..] != [""])
            {
                row[column] = Shown::Text(own(words));
            }
        }
        (table, removed)
    }

    /// True if several rows all have the same value in a column.
    fn is_constant(&self, column: usize) -> bool {
        let [first, rest @ ..] = self.rows.as_slice() else { return false };
        let same = |row: &Vec<Shown>| row[column] == first[column];
        !rest.is_empty() && first[column] != Shown::None && rest.iter().all(same)
    }

    /// Formats the given columns with maximum widths.
    fn aligned_of(&self, shown: &[usize], most: &dyn Fn(usize) -> usize) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(TABLE_STYLE);
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

    /// Formats CSV with a header. Requires the provenance, so that it survives export to other programs.
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

    /// Formats an HTML table with caption and at most `most` rows; if rows are cut, the caption gives
    /// the command that shows all. Empty columns are dropped.
    pub fn html(&self, caption: &str, most: usize, whole: &str) -> String {
        self.in_units().html_of(caption, most, whole)
    }

    fn html_of(&self, caption: &str, most: usize, whole: &str) -> String {
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
    /// Cell text and sort key.
    fn html(&self) -> (String, String) {
        match self {
            Self::None => ("–".into(), "-Infinity".into()),
            Self::Text(text) => (escape(text), String::new()),
            Self::Interval(n, Some([low, high]), most) => {
                let decimals = decimals(*n, *most);
                (
                    format!("{n:.decimals$} <small>[{low:.decimals$}, {high:.decimals$}]</small>"),
                    n.to_string(),
                )
            }
            _ => (self.to_string(), self.in_full().into_owned()),
        }
    }
}

/// Formats CSV (RFC 4180, but with plain line feeds): a header and one line per row.
pub fn csv<'a, R>(header: impl IntoIterator<Item = &'a str>, rows: impl IntoIterator<Item = R>) -> String
where
    R: IntoIterator<Item: AsRef<str>>,
{
    let mut text = Vec::new();
    // writing to a vector cannot fail
    let _ = write_csv(&mut text, header, rows);
    String::from_utf8(text).unwrap_or_default()
}

/// Writes the CSV of [`csv()`] to `out` row by row. Returns an error if `out` fails.
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

/// First characters of a spreadsheet formula, including fullwidth forms and the whitespace that
/// spreadsheets skip.
const FORMULA_STARTS: [char; 10] =
    ['=', '+', '-', '@', '\t', '\n', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'];

/// True if CSV keeps text that a spreadsheet would execute (`--raw`).
static RAW_CSV: AtomicBool = AtomicBool::new(false);

/// Disables the apostrophe before formula-like text in CSV for the rest of the process.
pub fn keep_formulas() {
    RAW_CSV.store(true, Ordering::Relaxed);
}

/// Formats a CSV cell. Names come from files and other processes, and spreadsheets execute text starting
/// with one of `=+-@`, so an apostrophe is added; numbers are kept. Terminal control characters become
/// `�`.
fn cell(text: &str) -> Cow<'_, str> {
    let text = printable(text);
    let is_formula = || text.len() > 1 && text.starts_with(FORMULA_STARTS);
    if !is_formula() || text.parse::<f64>().is_ok() || RAW_CSV.load(Ordering::Relaxed) {
        return text;
    }
    format!("'{text}").into()
}

impl Unit {
    /// Formats a number for a screen cell: few digits, with the unit if the column title lacks it.
    pub fn cell(self, value: f64) -> String {
        match self {
            Self::Count => format!("{value:.0}"),
            Self::Bytes => si(value, "B"),
            Self::Percent => percent(Some(value)),
            Self::Share => percent(Some(100.0 * value)),
            // overheads of instrumentation differ in the third decimal
            Self::Factor => format!("{value:.3}"),
            Self::Nats => format!("{value:.4}"),
            Self::Ms | Self::Rate | Self::Text | Self::Words | Self::Names => digits(value),
        }
    }
}

#[cfg(test)]
mod tests;
