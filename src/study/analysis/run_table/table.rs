//! Table of runs: columns by name, sorting, and CSV.

use std::sync::Arc;

use rayon::prelude::*;

use super::build;
use super::column::{Cell, Column};
use base::error::{Error, Result, nearest};
use base::text::same_name;
use lab::store::Annotations;
use table::render::csv;
use table::{Field, Record};

/// Runs under columns. Row numbers are the indices of the records.
#[derive(Clone, Debug, Default)]
pub struct RunTable {
    rows: usize,
    columns: Vec<Arc<Column>>,
}

/// Sort columns by priority, each with a flag for descending order.
pub type SortKeys = Vec<(usize, bool)>;

impl RunTable {
    pub fn new(records: &[Record], annotations: &Annotations) -> Self {
        let fields = build::fields(records);
        let column = |field: Field| Arc::new(Column::new(field, records, annotations));
        Self { rows: records.len(), columns: fields.into_par_iter().map(column).collect() }
    }

    /// Rebuilds only the columns of tags and notes.
    pub fn annotated(&self, records: &[Record], annotations: &Annotations) -> Self {
        let column = |column: &Arc<Column>| match column.field.is_added() {
            true => Arc::new(Column::new(column.field.clone(), records, annotations)),
            false => column.clone(),
        };
        Self { rows: self.rows, columns: self.columns.iter().map(column).collect() }
    }

    pub fn len(&self) -> usize {
        self.rows
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// All columns; the built-in ones come first, in a fixed order.
    pub fn columns(&self) -> &[Arc<Column>] {
        &self.columns
    }

    /// Column with this name: a built-in's name or alias, `env.NAME`, `set.NAME`, or the bare name of a variable or
    /// override.
    pub fn find(&self, name: &str) -> Option<usize> {
        let by_name = self.columns.iter().position(|column| column.field.is(name));
        by_name.or_else(|| {
            let bare = |column: &Arc<Column>| same_name(&column.field.title, name);
            self.columns.iter().position(|c| c.field.is_dynamic() && bare(c))
        })
    }

    /// Column found by [`Self::find`]. Returns an error with the nearest name if there is none.
    pub fn column(&self, name: &str) -> Result<usize> {
        self.find(name).ok_or_else(|| self.unknown(name))
    }

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

    /// Visible columns: all but the one that is only searched.
    pub fn shown(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().map(Arc::as_ref).filter(|column| column.field.name != "cell")
    }

    pub fn cell(&self, row: usize, column: usize) -> Cell<'_> {
        self.columns.get(column).map_or(Cell::Nothing, |column| column.cell(row))
    }

    /// Parses sort keys, the most important first: `tpot:desc,arch`, with `-tpot` short for `tpot:desc`. Returns an
    /// error with the nearest name for an unknown column.
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

    /// Sorts rows by the first key, ties by the next, and full ties stably. Rows without a value come last in either
    /// direction.
    pub fn sort(&self, rows: &mut Vec<u32>, keys: &[(usize, bool)]) {
        // one stable pass per key, the least important first
        for (column, descending) in keys.iter().rev() {
            let Some(column) = self.columns.get(*column) else { continue };
            column.sort(rows, *descending);
        }
    }

    /// CSV (RFC 4180, with plain line feeds) of these rows and columns with a header; numbers round-trip exactly.
    pub fn csv(&self, rows: &[u32], columns: &[usize]) -> String {
        let columns: Vec<&Arc<Column>> = columns.iter().filter_map(|at| self.columns.get(*at)).collect();
        csv(
            columns.iter().map(|column| column.field.name.as_ref()),
            rows.iter().map(|row| columns.iter().map(|column| column.full(*row as usize))),
        )
    }

    /// Columns determined by a record alone: no tags, notes or measures that depend on other runs.
    pub fn columns_of_records(&self) -> Vec<usize> {
        let own = |at: &usize| self.columns.get(*at).is_some_and(|column| column.field.is_of_record());
        self.csv_columns().into_iter().filter(own).collect()
    }

    /// Default columns of a CSV file: all except those that are part of another.
    pub fn csv_columns(&self) -> Vec<usize> {
        let all = self.columns.iter().enumerate();
        all.filter(|(_, c)| !c.field.is_dynamic() && c.field.name != "cell").map(|(at, _)| at).collect()
    }
}
