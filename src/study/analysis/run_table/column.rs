//! Columns of a table of runs: values and their order.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

use super::build;
use super::lower::Lower;
use table::Field;
use table::render::Shown;

/// Rank or code of a missing value.
pub(in crate::analysis) const NOTHING: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub struct Column {
    pub field: Field,
    pub(in crate::analysis) values: Values,
    /// Rank of each row's value among the distinct values, or [`NOTHING`]. Computed on first use: most columns are
    /// never sorted.
    pub(super) ranks: OnceLock<Vec<u32>>,
    pub(super) blank: OnceLock<bool>,
    pub longest: usize,
}

#[derive(Clone, Debug)]
pub(in crate::analysis) enum Values {
    /// Code of each row's text, or [`NOTHING`].
    Text { codes: Vec<u32>, texts: Vec<String>, lower: Lower },
    /// Number of each row, NaN if missing.
    Number(Vec<f64>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    Nothing,
    Text(&'a str),
    /// Number in the column's unit.
    Number(f64),
}

impl Column {
    fn ranks(&self) -> &[u32] {
        self.ranks.get_or_init(|| build::ranks(&self.values))
    }

    /// True if no row has a value. Scans the rows once: for a hundred thousand rows that takes longer than a frame.
    pub fn is_blank(&self) -> bool {
        *self.blank.get_or_init(|| match &self.values {
            Values::Text { codes, .. } => codes.iter().all(|code| *code == NOTHING),
            Values::Number(values) => values.iter().all(|value| value.is_nan()),
        })
    }

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

    /// Value of a row for display: the first line of a text.
    pub fn shown(&self, row: usize) -> Shown {
        match (self.cell(row), self.field.unit) {
            (Cell::Nothing, _) => Shown::None,
            (Cell::Text(text), _) => Shown::text(text.lines().next().unwrap_or_default()),
            (Cell::Number(value), unit) if unit.is_whole() => Shown::Whole(value as u64),
            (Cell::Number(value), unit) => Shown::Number(value, unit.decimals()),
        }
    }

    pub(super) fn full(&self, row: usize) -> Cow<'_, str> {
        match self.cell(row) {
            Cell::Nothing => "".into(),
            Cell::Text(text) => text.into(),
            Cell::Number(value) => value.to_string().into(),
        }
    }

    /// Distinct values as users type them, in the column's order, with their number of `rows`; `None` if there are more
    /// than `most`.
    pub fn distinct(
        &self,
        rows: impl Iterator<Item = usize>,
        most: usize,
    ) -> Option<Vec<(String, usize)>> {
        let mut counts: HashMap<u32, (usize, usize)> = HashMap::new();
        let ranks = self.ranks();
        for row in rows {
            let Some(rank) = ranks.get(row).filter(|rank| **rank != NOTHING) else { continue };
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

    /// True if a text contains a word ([`base::text::folded`]).
    pub fn has_text(&self, word: &str) -> bool {
        matches!(&self.values, Values::Text { lower, .. } if lower.holds(word))
    }

    pub fn same(&self, a: usize, b: usize) -> bool {
        self.ranks().get(a) == self.ranks().get(b)
    }

    /// Counting sort: one stable pass with one bucket per distinct value.
    pub(super) fn sort(&self, rows: &mut Vec<u32>, descending: bool) {
        let ranks = self.ranks();
        // one lookup per row: after another sort key, rows are in random order
        let mut heaps: Vec<u32> =
            rows.iter().map(|row| ranks.get(*row as usize).copied().unwrap_or(NOTHING)).collect();
        let highest = heaps.iter().copied().filter(|rank| *rank != NOTHING).max();
        let Some(highest) = highest else { return };
        for heap in &mut heaps {
            *heap = match *heap {
                NOTHING => highest + 1,
                rank if descending => highest - rank,
                rank => rank,
            };
        }
        // few rows in a column with many values: comparing is cheaper
        if highest as usize > 4 * rows.len() {
            let mut pairs: Vec<(u32, u32)> = heaps.into_iter().zip(rows.iter().copied()).collect();
            pairs.sort_by_key(|(heap, _)| *heap);
            *rows = pairs.into_iter().map(|(_, row)| row).collect();
            return;
        }
        let mut starts = vec![0_u32; highest as usize + 3];
        heaps.iter().for_each(|heap| starts[*heap as usize + 1] += 1);
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut sorted = vec![0; rows.len()];
        for (row, heap) in rows.iter().zip(heaps) {
            let place = &mut starts[heap as usize];
            sorted[*place as usize] = *row;
            *place += 1;
        }
        *rows = sorted;
    }
}
