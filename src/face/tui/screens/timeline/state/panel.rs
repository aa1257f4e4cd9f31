//! Lists below the lanes.

use std::collections::BTreeSet;

use super::scope::{Counted, Scope};
use super::table::Operations;
use crate::face::tui::screens::timeline::lists::legend::MARKS;
use crate::face::tui::widgets::list::List;
use study::analysis::{Dependencies, ExposedStretch, ExposedStretches, OperationDifferences};

#[derive(Clone, Debug)]
pub enum Panel {
    Dependencies {
        span: usize,
        dependencies: Dependencies,
        /// Selected row: dependencies first, then dependents.
        list: List,
    },
    /// Time differences between the lower and the upper trace.
    Differences {
        list: List,
        /// True if sorted by exposed time rather than duration.
        by_exposed: bool,
        /// Names of expanded families, whose layers are listed too.
        open: BTreeSet<String>,
    },
    Operations(Box<Operations>),
    Stretches(Stretches),
    Verdict {
        /// Wrapped lines of the verdict; empty until computed.
        lines: Vec<String>,
        list: List,
    },
    /// Legend of the lanes, and the list it covers.
    Legend(List, Option<Box<Self>>),
}

#[derive(Clone, Debug, Default)]
pub struct Stretches {
    pub scope: Scope,
    /// Result for the wanted part, or for the previous one while a new one is computed.
    pub counted: Option<Counted<ExposedStretches>>,
    pub list: List,
}

impl Stretches {
    pub fn all(&self) -> &[ExposedStretch] {
        self.counted.as_ref().map_or(&[], |counted| &counted.table.longest)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferenceRow {
    /// Sum over all layers; index into the families.
    Family(usize),
    /// One layer of the family above; index into the groups.
    Group(usize),
}

/// Rows of the differences list: families in order, each expanded one followed by its layers.
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

    pub fn operations(&mut self) -> Option<&mut Operations> {
        if let Self::Operations(operations) = self { Some(operations) } else { None }
    }
}
