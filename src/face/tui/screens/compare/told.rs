//! What of the pairs that are shown is said of each, in its cell, and what of all of them, once above.

use unicode_width::UnicodeWidthStr;

use super::compared::{Compared, Row, one_of};
use study::analysis::{Axis, Comparison, Varied};
use table::{Provenance, Spec};

fn sides<'a>(pairs: &'a [&Comparison]) -> impl Iterator<Item = &'a Spec> + Clone {
    pairs.iter().flat_map(|pair| [&pair.baseline_side.spec, &pair.side.spec])
}

/// What tells pairs apart, and what they have in common.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Everything that varies among the pairs.
    varied: Varied,
    /// What tells pairs apart, beside the axis.
    pub settings: Varied,
    /// What all cells have in common, in words.
    pub common: String,
    /// The provenance of all pairs, if it is one: said once, above them.
    pub provenance: Option<Provenance>,
    /// Columns of the window that the longest value, and the longest cell, take.
    pub widths: (usize, usize),
}

impl Told {
    /// What these pairs have in common and what not, beside an axis; widths are not known yet.
    pub fn of(pairs: &[&Comparison], axis: &Axis) -> Self {
        Self::with(Varied::of(sides(pairs)), pairs, axis)
    }

    /// The same of some of the pairs: only what varies among all is looked at, as this is done while keys are typed.
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

    /// Measures how much room the rows ask for.
    pub fn measured(mut self, compared: &Compared, rows: &[Row]) -> Self {
        let values = rows.iter().flat_map(Row::all).map(|at| &compared.report.pairs[at]);
        let values = values.map(|pair| compared.values(pair).width()).max();
        let cells = rows.iter().map(|row| self.cell(compared, row).width()).max();
        self.widths = (values.unwrap_or(0), cells.unwrap_or(0));
        self
    }

    /// The cell of a pair, or of all pairs of a row: what varies, beside what is compared.
    pub fn cell(&self, compared: &Compared, row: &Row) -> String {
        let specs = row.all().map(|at| &compared.report.pairs[at].side.spec);
        let words = self.settings.words_of(specs);
        match row.folded.len() {
            0 => words,
            more => format!("{} equal: {words}", more + 1),
        }
    }
}
