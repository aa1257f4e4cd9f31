//! Lists that lie beneath the lanes.

use std::collections::BTreeSet;

use super::scope::{Counted, Scope};
use super::table::Operations;
use crate::face::tui::screens::timeline::lists::legend::MARKS;
use crate::face::tui::widgets::list::List;
use study::analysis::{Dependencies, ExposedStretch, ExposedStretches, OperationDifferences};

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
        /// Names of the families whose layers are listed, too.
        open: BTreeSet<String>,
    },
    /// Where the time went, by operation.
    Operations(Box<Operations>),
    /// The longest stretches of exposed communication.
    Stretches(Stretches),
    /// How much of the upper trace is exposed communication, why, and what would help.
    Verdict {
        /// The verdict in lines, as wide as the window was; none while it is not known.
        lines: Vec<String>,
        /// Which of them are seen.
        list: List,
    },
    /// What the marks and colours of the lanes mean, and the list that it covers.
    Legend(List, Option<Box<Self>>),
}

/// The longest stretches of exposed communication, as they are listed.
#[derive(Clone, Debug, Default)]
pub struct Stretches {
    /// Which part of the trace they are of.
    pub scope: Scope,
    /// What was found: in the part that is wanted, or in the one that was wanted before.
    pub counted: Option<Counted<ExposedStretches>>,
    /// Which of them is selected, and which are seen.
    pub list: List,
}

impl Stretches {
    /// The stretches, the longest first.
    pub fn all(&self) -> &[ExposedStretch] {
        self.counted.as_ref().map_or(&[], |counted| &counted.table.longest)
    }
}

/// A row of the differences: what all layers do, or what one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferenceRow {
    /// A place among the families.
    Family(usize),
    /// A place among the groups: a layer of the family above it.
    Group(usize),
}

/// The rows of differences: all families in order, the layers of those that are open beneath them.
pub fn difference_rows(
    report: &OperationDifferences,
    by_exposed: bool,
    open: &BTreeSet<String>,
) -> Vec<DifferenceRow> {
    let order: Vec<usize> = match by_exposed {
        true => report.by_exposed.clone(),
        false => (0..report.families.len()).collect(),
    };
    let mut rows = Vec::new();
    for at in order {
        rows.push(DifferenceRow::Family(at));
        let family = &report.families[at];
        if family.groups.len() > 1 && open.contains(&family.sum.name) {
            rows.extend(family.groups.iter().map(|group| DifferenceRow::Group(*group)));
        }
    }
    rows
}

impl Panel {
    /// Rows of its list.
    pub fn rows(&self, differences: Option<&OperationDifferences>) -> usize {
        match self {
            Self::Dependencies { dependencies, .. } => {
                dependencies.before.len() + dependencies.after.len()
            }
            Self::Differences { by_exposed, open, .. } => {
                differences.map_or(0, |report| difference_rows(report, *by_exposed, open).len())
            }
            Self::Operations(operations) => operations.order.len(),
            Self::Stretches(stretches) => stretches.all().len(),
            Self::Verdict { lines, .. } => lines.len().max(1),
            Self::Legend(..) => MARKS.len(),
        }
    }

    /// The selection of its list.
    pub fn list(&mut self) -> &mut List {
        match self {
            Self::Dependencies { list, .. }
            | Self::Differences { list, .. }
            | Self::Verdict { list, .. }
            | Self::Legend(list, _) => list,
            Self::Operations(operations) => &mut operations.list,
            Self::Stretches(stretches) => &mut stretches.list,
        }
    }

    /// The table of operations, where it is that.
    pub fn operations(&mut self) -> Option<&mut Operations> {
        if let Self::Operations(operations) = self { Some(operations) } else { None }
    }
}
