//! Lists that lie beneath the lanes.

use crate::analysis::{Links, OperationDifferences};
use crate::tui::state::List;

/// A list beneath the lanes.
#[derive(Clone, Debug)]
pub enum Panel {
    /// What a span waited for, and what waited for it.
    Links {
        /// The span, an index into the trace.
        span: usize,
        /// Its edges.
        links: Links,
        /// The selected row: first what it waited for, then what waited for it.
        list: List,
    },
    /// What took how much longer in the lower trace than in the upper one.
    Differences {
        /// The selected row.
        list: List,
        /// Sorted by what was exposed, not by what it took.
        by_exposed: bool,
    },
}

impl Panel {
    /// Rows of its list.
    pub fn rows(&self, differences: Option<&OperationDifferences>) -> usize {
        match self {
            Self::Links { links, .. } => links.before.len() + links.after.len(),
            Self::Differences { .. } => differences.map_or(0, |report| report.groups.len()),
        }
    }

    /// The selection of its list.
    pub fn list(&mut self) -> &mut List {
        match self {
            Self::Links { list, .. } | Self::Differences { list, .. } => list,
        }
    }
}
