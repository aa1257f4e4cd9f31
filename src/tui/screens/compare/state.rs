//! State of screen 6: the comparison along one axis.

use crate::analysis::{AXES, Comparison, ComparisonReport};
use crate::tui::state::List;

/// State of the compare screen.
#[derive(Debug, Default)]
pub struct Compare {
    /// Index into [`AXES`].
    axis: usize,
    /// The comparison along it, or why there is none; `None` until it is computed.
    pub report: Option<Result<ComparisonReport, String>>,
    /// The selection.
    pub list: List,
}

impl Compare {
    /// The axis.
    pub fn axis(&self) -> &'static str {
        AXES[self.axis % AXES.len()]
    }

    /// Takes the next or the previous axis.
    pub fn cycle(&mut self, backwards: bool) {
        self.axis = (self.axis + if backwards { AXES.len() - 1 } else { 1 }) % AXES.len();
        self.report = None;
        self.list = List::default();
    }

    /// The pairs.
    pub fn pairs(&self) -> &[Comparison] {
        match &self.report {
            Some(Ok(report)) => &report.pairs,
            _ => &[],
        }
    }

    /// The flags.
    pub fn flags(&self) -> &[String] {
        match &self.report {
            Some(Ok(report)) => &report.flags,
            _ => &[],
        }
    }

    /// The selected pair.
    pub fn selected(&self) -> Option<&Comparison> {
        self.pairs().get(self.list.selected)
    }
}
