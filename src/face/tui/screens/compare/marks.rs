//! Marked pairs of screen 6, and the pairs that it exports.

use std::collections::HashSet;

use super::Compare;
use super::compared::PairRow;
use super::state::{TableView, runs_of};
use crate::face::tui::prelude::*;
use study::analysis::{Comparison, ComparisonReport};

/// Pairs that are exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedPairs {
    /// Indices into the report.
    pub pairs: Vec<usize>,
    pub are_marked: bool,
    /// Number of marked pairs that the filter hides.
    pub hidden: usize,
}

impl ExportedPairs {
    /// Number of rows in words: `3 marked rows, 1 pair hidden by the filter`.
    pub fn words(&self, rows: usize, row: &str) -> String {
        let marked = if self.are_marked { "marked " } else { "" };
        let hidden = match self.hidden {
            0 => String::new(),
            hidden => format!(", {} hidden by the filter", counted(hidden, "pair")),
        };
        format!("{}{hidden}", counted(rows, &format!("{marked}{row}")))
    }
}

impl Compare {
    /// Toggles the mark on the selected pair and those folded into its row.
    pub fn toggle_mark(&mut self) {
        let row: Option<Vec<usize>> = match self.view {
            _ if self.map.is_some() => None,
            TableView::Pivot => self.selected_row().map(|row| row.known().collect()),
            TableView::Pairs => self.shown.get(self.list.selected).map(|row| row.all().collect()),
        };
        let pairs: Vec<&Comparison> = match row {
            Some(row) => row.into_iter().filter_map(|at| self.pairs().get(at)).collect(),
            None => self.selected().into_iter().collect(),
        };
        let keys: Vec<_> = pairs.into_iter().map(runs_of).collect();
        let marked = keys.first().is_some_and(|key| self.marked.contains(key));
        for key in keys {
            match marked {
                true => self.marked.remove(&key),
                false => self.marked.insert(key),
            };
        }
    }

    pub fn is_marked(&self, pair: &Comparison) -> bool {
        !self.marked.is_empty() && self.marked.contains(&runs_of(pair))
    }

    /// Pairs that are exported, as indices into the report: the marked ones, hidden or not, or else the filtered ones.
    pub fn exported(&self) -> ExportedPairs {
        let shown: Vec<usize> = self.shown.iter().flat_map(PairRow::all).collect();
        let pairs = self.pairs();
        let marked: Vec<usize> = (0..pairs.len()).filter(|at| self.is_marked(&pairs[*at])).collect();
        if marked.is_empty() {
            return ExportedPairs { pairs: shown, are_marked: false, hidden: 0 };
        }
        let shown: HashSet<usize> = shown.into_iter().collect();
        let hidden = marked.iter().filter(|at| !shown.contains(at)).count();
        ExportedPairs { pairs: marked, are_marked: true, hidden }
    }

    /// Report of the exported pairs. Counts remain those of the whole comparison.
    pub fn exported_report(&self) -> Option<ComparisonReport> {
        let report = &self.compared()?.report;
        let pairs = self.exported().pairs.into_iter().map(|at| report.pairs[at].clone());
        Some(report.of_pairs(pairs.collect()))
    }
}
