//! Runs as a table made for looking: every column with each run's value and its place in the column's
//! order, so that sorting and filtering a hundred thousand runs takes milliseconds. Made once for a
//! listing; [`crate::study::analysis::filter`] chooses rows of it.
//!
//! What the columns are is said by the lists of options and measures ([`crate::table::options::OPTIONS`],
//! [`crate::table::MEASURES`]). Files hold the same columns as a Polars data frame (`table::frame`). Rows are
//! sorted and filtered by ranks and not by that frame: a rank is compared once for all rows that have a
//! value. Whether the frame's own sorting would be slower has not been measured.

mod build;
mod field;
mod natural;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

pub use field::Field;
pub(super) use field::Search;
use memchr::memmem::Finder;
pub use natural::compare as natural_order;
use rayon::prelude::*;

use crate::base::error::{Error, Result, nearest};
use crate::lab::store::Annotations;
use crate::table::render::csv;
use crate::table::{Record, Scope};

/// The rank, or the code, of nothing.
pub(super) const NOTHING: u32 = u32::MAX;

/// Runs under columns. Rows are numbered as the records were.
#[derive(Clone, Debug, Default)]
pub struct RunTable {
    rows: usize,
    columns: Vec<Arc<Column>>,
}

/// A column: its field and its values.
#[derive(Clone, Debug)]
pub struct Column {
    /// What the column's values are of.
    pub field: Field,
    pub(super) values: Values,
    /// Of each row the place of its value among the column's different values, or [`NOTHING`].
    ranks: Vec<u32>,
    /// Letters of its longest text.
    pub longest: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Values {
    /// Each row's number of its text, or [`NOTHING`].
    Text { codes: Vec<u32>, texts: Vec<String>, lower: Lower },
    /// Each row's number, NaN for nothing.
    Number(Vec<f64>),
}

/// Texts in lower case, one behind another, so that all of them are searched in one go.
#[derive(Clone, Debug, Default)]
pub(super) struct Lower {
    all: String,
    /// Where each begins; and where the next one would.
    begins: Vec<usize>,
}

impl Lower {
    /// No text holds this.
    const BORDER: char = '\0';

    fn new(texts: &[String]) -> Self {
        let mut lower = Self { all: String::new(), begins: Vec::with_capacity(texts.len() + 1) };
        for text in texts {
            lower.begins.push(lower.all.len());
            lower.all.push_str(&text.to_lowercase());
            lower.all.push(Self::BORDER);
        }
        lower.begins.push(lower.all.len());
        lower
    }

    /// How many different texts there are.
    pub fn len(&self) -> usize {
        self.begins.len().saturating_sub(1)
    }

    /// The text of this number, in lower case.
    pub fn get(&self, code: usize) -> &str {
        let end = self.begins.get(code + 1).map_or(0, |end| end.saturating_sub(1));
        self.begins.get(code).and_then(|begin| self.all.get(*begin..end)).unwrap_or_default()
    }

    /// All texts, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|code| self.get(code))
    }

    /// Calls `found` with the number of each text that holds the word.
    pub fn holding(&self, word: &str, mut found: impl FnMut(usize)) {
        let bytes = self.all.as_bytes();
        let finder = Finder::new(word.as_bytes());
        let (mut from, mut code) = (0, 0);
        while let Some(at) = bytes.get(from..).and_then(|rest| finder.find(rest)) {
            // most often it is one of the next few
            let place = from + at;
            code += self.begins.get(code + 1..).map_or(0, |ends| {
                let near = ends.iter().take(8).take_while(|end| **end <= place).count();
                if near < 8 { near } else { ends.partition_point(|end| *end <= place) }
            });
            found(code);
            match self.begins.get(code + 1) {
                Some(next) => (from, code) = (*next, code + 1),
                None => return,
            }
        }
    }
}

/// The value that a run has in a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// Nothing: the run has no such value.
    Nothing,
    /// A text, as it is shown.
    Text(&'a str),
    /// A number in the column's unit.
    Number(f64),
}

/// By which columns rows are sorted, the first one first, and whether each descends.
pub type SortKeys = Vec<(usize, bool)>;

impl RunTable {
    /// The table of these records, with what people added to them.
    pub fn new(records: &[Record], annotations: &Annotations) -> Self {
        let fields = build::fields(records);
        let column = |field: Field| Arc::new(Column::new(field, records, annotations));
        Self { rows: records.len(), columns: fields.into_par_iter().map(column).collect() }
    }

    /// The same table with other tags and notes.
    pub fn annotated(&self, records: &[Record], annotations: &Annotations) -> Self {
        let column = |column: &Arc<Column>| match column.field.is_of_people() {
            true => Arc::new(Column::new(column.field.clone(), records, annotations)),
            false => column.clone(),
        };
        Self { rows: self.rows, columns: self.columns.iter().map(column).collect() }
    }

    /// How many runs the table has.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// All columns; the built-in ones are always there and always in one order.
    pub fn columns(&self) -> &[Arc<Column>] {
        &self.columns
    }

    /// The column that goes by this name: a built-in's name or alias, `env.NAME`, `set.NAME`, or the bare
    /// name of a variable or an override.
    pub fn find(&self, name: &str) -> Option<usize> {
        let by_name = self.columns.iter().position(|column| column.field.is(name));
        by_name.or_else(|| {
            let bare = |column: &Arc<Column>| column.field.title.eq_ignore_ascii_case(name);
            self.columns.iter().position(|c| c.field.is_dynamic() && bare(c))
        })
    }

    /// Like [`Self::find`]; the error names the nearest.
    ///
    /// # Errors
    ///
    /// An input error for a column that there is not, with the nearest.
    pub fn column(&self, name: &str) -> Result<usize> {
        self.find(name).ok_or_else(|| self.unknown(name))
    }

    /// There is no such column; what may have been meant.
    pub fn unknown(&self, name: &str) -> Error {
        let names = || {
            self.columns.iter().flat_map(|c| {
                std::iter::once(c.field.name.as_ref()).chain(c.field.aliases.iter().copied())
            })
        };
        let shown: Vec<&str> = self.shown().map(|c| c.field.short()).collect();
        let longer = || names().find(|known| name.len() > 2 && known.starts_with(name));
        let help = match longer().or_else(|| nearest(name, names()).filter(|_| name.len() > 1)) {
            Some(meant) => format!("did you mean '{meant}'? columns: {}", shown.join(", ")),
            None => format!("columns: {}", shown.join(", ")),
        };
        Error::input_help(format!("unknown column '{name}'"), help)
    }

    /// Columns that can be shown: all but the one that is only searched.
    pub fn shown(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().map(Arc::as_ref).filter(|column| column.field.name != "cell")
    }

    /// The value of a run in a column, by their places.
    pub fn cell(&self, row: usize, column: usize) -> Cell<'_> {
        self.columns.get(column).map_or(Cell::Nothing, |column| column.cell(row))
    }

    /// Reads `tpot:desc,arch`, where `-tpot` is `tpot:desc` too.
    ///
    /// # Errors
    ///
    /// An input error for a column that there is not, with the nearest.
    pub fn sort_keys(&self, text: &str) -> Result<SortKeys> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        words
            .map(|word| {
                let (name, descending) = match (word.strip_prefix('-'), word.rsplit_once(':')) {
                    (Some(name), _) => (name, true),
                    (None, Some((name, "desc"))) => (name, true),
                    (None, Some((name, "asc"))) => (name, false),
                    (None, _) => (word, false),
                };
                Ok((self.column(name)?, descending))
            })
            .collect()
    }

    /// Sorts rows: by the first key, equal ones by the next, and those equal in all keys as they were.
    /// Rows without a value come last, whichever way a column is read.
    pub fn sort(&self, rows: &mut Vec<u32>, keys: &[(usize, bool)]) {
        // one stable pass a key, the least important first
        for (column, descending) in keys.iter().rev() {
            let Some(column) = self.columns.get(*column) else { continue };
            column.sort(rows, *descending);
        }
    }

    /// These columns of these rows as CSV (RFC 4180, with plain line feeds), header included; numbers so
    /// that they read back as the same.
    pub fn csv(&self, rows: &[u32], columns: &[usize]) -> String {
        let columns: Vec<&Arc<Column>> = columns.iter().filter_map(|at| self.columns.get(*at)).collect();
        csv(
            columns.iter().map(|column| column.field.name.as_ref()),
            rows.iter().map(|row| columns.iter().map(|column| column.full(*row as usize))),
        )
    }

    /// The columns that a record alone fills: no tags and notes, nothing that other runs decide.
    pub fn columns_of_records(&self) -> Vec<usize> {
        let own = |at: &usize| self.columns.get(*at).is_some_and(|column| column.field.is_of_record());
        self.csv_columns().into_iter().filter(own).collect()
    }

    /// The columns of a CSV file that nobody chose columns for: every one that is not another's part.
    pub fn csv_columns(&self) -> Vec<usize> {
        let all = self.columns.iter().enumerate();
        all.filter(|(_, c)| !c.field.is_dynamic() && c.field.name != "cell").map(|(at, _)| at).collect()
    }
}

impl Field {
    /// Whether it is there because some run has such a variable.
    pub fn is_dynamic(&self) -> bool {
        matches!(self.name, Cow::Owned(_))
    }

    fn is_of_people(&self) -> bool {
        matches!(self.source, field::Source::Tags | field::Source::Note)
    }

    /// Whether a record alone fills it.
    fn is_of_record(&self) -> bool {
        match self.source {
            field::Source::Tags | field::Source::Note => false,
            field::Source::Measure(measure) => measure.scope != Scope::Runs,
            _ => true,
        }
    }
}

impl Column {
    /// The value of a run, by its place.
    pub fn cell(&self, row: usize) -> Cell<'_> {
        match &self.values {
            Values::Text { codes, texts, .. } => {
                let text = codes.get(row).and_then(|code| texts.get(*code as usize));
                text.map_or(Cell::Nothing, |text| Cell::Text(text))
            }
            Values::Number(values) => {
                let value = values.get(row).copied().filter(|value| !value.is_nan());
                value.map_or(Cell::Nothing, Cell::Number)
            }
        }
    }

    /// A row's value for CSV.
    fn full(&self, row: usize) -> Cow<'_, str> {
        match self.cell(row) {
            Cell::Nothing => "".into(),
            Cell::Text(text) => text.into(),
            Cell::Number(value) => value.to_string().into(),
        }
    }

    /// Its different values as one would type them, in the column's order, and how many of `rows` have
    /// each; `None` where there are more than `most`.
    pub fn distinct(
        &self,
        rows: impl Iterator<Item = usize>,
        most: usize,
    ) -> Option<Vec<(String, usize)>> {
        let mut counts: HashMap<u32, (usize, usize)> = HashMap::new();
        for row in rows {
            let Some(rank) = self.ranks.get(row).filter(|rank| **rank != NOTHING) else { continue };
            counts.entry(*rank).or_insert((row, 0)).1 += 1;
            if counts.len() > most {
                return None;
            }
        }
        let mut values: Vec<_> = counts.into_iter().collect();
        values.sort_unstable();
        let typed = |row| match self.cell(row) {
            Cell::Text(text) => text.to_owned(),
            Cell::Number(value) => value.to_string(),
            Cell::Nothing => String::new(),
        };
        Some(values.into_iter().map(|(_, (row, count))| (typed(row), count)).collect())
    }

    /// Whether two rows have the same value.
    pub fn same(&self, a: usize, b: usize) -> bool {
        self.ranks.get(a) == self.ranks.get(b)
    }

    /// One stable pass: rows are dealt into as many heaps as there are different values.
    fn sort(&self, rows: &mut Vec<u32>, descending: bool) {
        let rank = |row: &u32| self.ranks.get(*row as usize).copied().unwrap_or(NOTHING);
        let highest = rows.iter().map(rank).filter(|rank| *rank != NOTHING).max();
        let Some(highest) = highest.map(|rank| rank as usize) else { return };
        // few rows of a column with many values: comparing is less work
        if highest > 4 * rows.len() {
            let key = |row: &u32| match rank(row) {
                NOTHING => NOTHING,
                rank if descending => highest as u32 - rank,
                rank => rank,
            };
            rows.sort_by_key(key);
            return;
        }
        let heap = |row: &u32| match rank(row) {
            NOTHING => highest + 1,
            rank if descending => highest - rank as usize,
            rank => rank as usize,
        };
        let mut starts = vec![0_u32; highest + 3];
        rows.iter().for_each(|row| starts[heap(row) + 1] += 1);
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut sorted = vec![0; rows.len()];
        for row in rows.iter() {
            let place = &mut starts[heap(row)];
            sorted[*place as usize] = *row;
            *place += 1;
        }
        *rows = sorted;
    }
}

#[cfg(test)]
mod tests;
