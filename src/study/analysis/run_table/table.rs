//! The table: its columns by name, its rows in an order, as CSV.

use std::sync::Arc;

use rayon::prelude::*;

use super::build;
use super::column::{Cell, Column};
use base::error::{Error, Result, nearest};
use base::text::same_name;
use lab::store::Annotations;
use table::render::csv;
use table::{Field, Record};

/// Runs under columns. Rows are numbered as the records were.
#[derive(Clone, Debug, Default)]
pub struct RunTable {
    rows: usize,
    columns: Vec<Arc<Column>>,
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

    /// The same runs and measures with other tags and notes.
    pub fn annotated(&self, records: &[Record], annotations: &Annotations) -> Self {
        let column = |column: &Arc<Column>| match column.field.is_added() {
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
            let bare = |column: &Arc<Column>| same_name(&column.field.title, name);
            self.columns.iter().position(|c| c.field.is_dynamic() && bare(c))
        })
    }

    /// The column that [`Self::find`] finds by this name. Fails where there is none, with the nearest name.
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

    /// Reads the columns to sort by, the most important first: `tpot:desc,arch`, where `-tpot` is `tpot:desc` too.
    /// Fails for a column that there is not, with the nearest.
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
