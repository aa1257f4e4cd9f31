//! A column of a table of runs: what is asked of its values and of their order.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

use super::build;
use super::lower::Lower;
use table::Field;
use table::render::Shown;

/// The rank, or the code, of nothing.
pub(in crate::analysis) const NOTHING: u32 = u32::MAX;

/// A column: its field and its values.
#[derive(Clone, Debug)]
pub struct Column {
    /// What the column's values are of.
    pub field: Field,
    pub(in crate::analysis) values: Values,
    /// Of each row the place of its value among the column's different values, or [`NOTHING`]; made when
    /// the order is first asked for: most columns are never sorted by.
    pub(super) ranks: OnceLock<Vec<u32>>,
    /// Whether no row has a value, once that was asked for.
    pub(super) blank: OnceLock<bool>,
    /// Letters of its longest text.
    pub longest: usize,
}

#[derive(Clone, Debug)]
pub(in crate::analysis) enum Values {
    /// Each row's number of its text, or [`NOTHING`].
    Text { codes: Vec<u32>, texts: Vec<String>, lower: Lower },
    /// Each row's number, NaN for nothing.
    Number(Vec<f64>),
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

impl Column {
    fn ranks(&self) -> &[u32] {
        self.ranks.get_or_init(|| build::ranks(&self.values))
    }

    /// Whether no row has a value. Looks at the rows once: a hundred thousand of them take longer than a frame may.
    pub fn is_blank(&self) -> bool {
        *self.blank.get_or_init(|| match &self.values {
            Values::Text { codes, .. } => codes.iter().all(|code| *code == NOTHING),
            Values::Number(values) => values.iter().all(|value| value.is_nan()),
        })
    }

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

    /// A row's value as a table for people shows it, the first line of a text.
    pub fn shown(&self, row: usize) -> Shown {
        match (self.cell(row), self.field.unit) {
            (Cell::Nothing, _) => Shown::None,
            (Cell::Text(text), _) => Shown::text(text.lines().next().unwrap_or_default()),
            (Cell::Number(value), unit) if unit.is_whole() => Shown::Whole(value as u64),
            (Cell::Number(value), unit) => Shown::Number(value, unit.decimals()),
        }
    }

    /// A row's value for CSV.
    pub(super) fn full(&self, row: usize) -> Cow<'_, str> {
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

    /// Whether some text of it holds a word ([`base::text::folded`]).
    pub fn has_text(&self, word: &str) -> bool {
        matches!(&self.values, Values::Text { lower, .. } if lower.holds(word))
    }

    /// Whether two rows have the same value.
    pub fn same(&self, a: usize, b: usize) -> bool {
        self.ranks().get(a) == self.ranks().get(b)
    }

    /// One stable pass: rows are dealt into as many heaps as there are different values.
    pub(super) fn sort(&self, rows: &mut Vec<u32>, descending: bool) {
        let ranks = self.ranks();
        // each is looked up once: rows which another key has sorted lie anywhere
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
        // few rows of a column with many values: comparing is less work
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
