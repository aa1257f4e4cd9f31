//! Lists that lie beneath the lanes.

use crate::face::tui::widgets::list::List;
use crate::study::analysis::{Dependencies, OperationDifferences};

/// A list beneath the lanes.
#[derive(Clone, Debug)]
pub enum Panel {
    /// What a span waited for, and what waited for it.
    Dependencies {
        /// The span, an index into the trace.
        span: usize,
        /// What the span waited for, and what waited for it.
        dependencies: Dependencies,
        /// The selected row: first what it waited for, then what waited for it.
        list: List,
    },
    /// What took how much longer in the lower trace than in the upper one.
    Differences {
        /// The rows, which of them is selected, and which are shown.
        list: List,
        /// Sorted by what was exposed, not by what it took.
        by_exposed: bool,
    },
}

impl Panel {
    /// Rows of its list.
    pub fn rows(&self, differences: Option<&OperationDifferences>) -> usize {
        match self {
            Self::Dependencies { dependencies, .. } => {
                dependencies.before.len() + dependencies.after.len()
            }
            Self::Differences { .. } => differences.map_or(0, |report| report.groups.len()),
        }
    }

    /// The selection of its list.
    pub fn list(&mut self) -> &mut List {
        match self {
            Self::Dependencies { list, .. } | Self::Differences { list, .. } => list,
        }
    }
}
