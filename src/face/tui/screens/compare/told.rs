//! Distinguishing settings shown per pair, and common settings shown once above the table.

use unicode_width::UnicodeWidthStr;

use super::compared::{Compared, Row, one_of};
use study::analysis::{Axis, Comparison, Varied};
use table::{Provenance, Spec};

fn sides<'a>(pairs: &'a [&Comparison]) -> impl Iterator<Item = &'a Spec> + Clone {
    pairs.iter().flat_map(|pair| [&pair.baseline_side.spec, &pair.side.spec])
}

#[derive(Clone, Debug, Default)]
pub struct Told {
    varied: Varied,
    /// Varying settings other than the axis.
    pub settings: Varied,
    pub common: String,
    /// Provenance, if all pairs share one; shown once above the table.
    pub provenance: Option<Provenance>,
    /// Widths of the longest value and the longest cell, in columns.
    pub widths: (usize, usize),
}

impl Told {
    /// Settings of these pairs other than the axis; widths are not measured yet.
    pub fn of(pairs: &[&Comparison], axis: &Axis) -> Self {
        Self::with(Varied::of(sides(pairs)), pairs, axis)
    }

    /// Settings of a subset of the pairs. Only checks settings that vary among all pairs, because it
    /// runs on every key press.
    pub fn narrowed(&self, pairs: &[&Comparison], axis: &Axis) -> Self {
        Self::with(self.varied.among(sides(pairs)), pairs, axis)
    }

    fn with(varied: Varied, pairs: &[&Comparison], axis: &Axis) -> Self {
        Self {
            common: pairs.first().map_or(String::new(), |pair| varied.common(&pair.side.spec)),
            settings: varied.without(axis).model_last(sides(pairs)),
            provenance: one_of(pairs.iter().map(|pair| pair.provenance)),
            widths: (0, 0),
            varied,
        }
    }

    pub fn measured(mut self, compared: &Compared, rows: &[Row]) -> Self {
        let values = rows.iter().flat_map(Row::all).map(|at| &compared.report.pairs[at]);
        let values = values.map(|pair| compared.values(pair).width()).max();
        let cells = rows.iter().map(|row| self.cell(compared, row).width()).max();
        self.widths = (values.unwrap_or(0), cells.unwrap_or(0));
        self
    }

    /// Cell text of a row: the varying settings other than the compared one.
    pub fn cell(&self, compared: &Compared, row: &Row) -> String {
        let specs = row.all().map(|at| &compared.report.pairs[at].side.spec);
        let words = self.settings.words_of(specs);
        match row.folded.len() {
            0 => words,
            more => format!("{} equal: {words}", more + 1),
        }
    }
}
