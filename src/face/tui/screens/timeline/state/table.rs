//! Operations table below the lanes: scope, sort order, filter.

use super::scope::{Counted, Scope};
use super::search::Words;
use crate::face::tui::prelude::*;
use study::analysis::{NameRow, OperationTable};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Column {
    /// Number of executions.
    Count,
    /// Total time (us per rank).
    #[default]
    Total,
    /// Mean execution time (us).
    Mean,
    /// Longest execution (us).
    Max,
    /// Share of its lane's time (%).
    Share,
    /// Exposed communication (us per rank).
    Exposed,
    Name,
}

impl Column {
    pub const ALL: [Self; 7] =
        [Self::Count, Self::Total, Self::Mean, Self::Max, Self::Share, Self::Exposed, Self::Name];

    pub fn title(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Total => "total",
            Self::Mean => "mean",
            Self::Max => "max",
            Self::Share => "% lane",
            Self::Exposed => "exposed",
            Self::Name => "operation",
        }
    }

    fn value(self, row: &NameRow) -> f64 {
        match self {
            Self::Count => row.count as f64,
            Self::Total => row.total_us,
            Self::Mean => row.mean_us,
            Self::Max => row.max_us,
            Self::Share => row.share_pct,
            Self::Exposed => row.exposed_us,
            Self::Name => 0.0,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Operations {
    pub scope: Scope,
    /// Result for the wanted part, or for the previous one while a new one is computed.
    pub counted: Option<Counted<OperationTable>>,
    pub column: Column,
    /// True for the reverse order: numbers ascend, names descend.
    pub reverse: bool,
    /// Filter by words of names.
    pub filter: FilterBox,
    /// True to show the selected row's full name.
    pub whole: bool,
    /// Shown rows, as indices into the table.
    pub order: Vec<usize>,
    pub list: List,
}

impl Operations {
    /// Sorts and filters, keeping the selected operation if possible.
    pub fn arrange(&mut self) {
        let before = self.row().map(|(row, _)| (row.name.clone(), row.lane));
        let Some(counted) = &self.counted else { return };
        let (rows, words) = (&counted.table.rows, Words::new(self.filter.value()));
        let mut order: Vec<usize> = (0..rows.len()).filter(|at| words.are_in(&rows[*at].name)).collect();
        order.sort_by(|a, b| {
            let (a, b) = (&rows[*a], &rows[*b]);
            match self.column {
                Column::Name => a.name.cmp(&b.name),
                column => column.value(b).total_cmp(&column.value(a)),
            }
        });
        if self.reverse {
            order.reverse();
        }
        let same = |at: &usize| before == Some((rows[*at].name.clone(), rows[*at].lane));
        self.list.selected = order.iter().position(same).unwrap_or(0);
        self.order = order;
    }

    pub fn sort_by_next(&mut self, backwards: bool) {
        (self.column, self.reverse) = (next_of(&Column::ALL, self.column, backwards), false);
        self.arrange();
    }

    /// Selected row, and the span index of its longest execution.
    pub fn row(&self) -> Option<(&NameRow, usize)> {
        let table = &self.counted.as_ref()?.table;
        let at = *self.order.get(self.list.selected)?;
        Some((table.rows.get(at)?, *table.longest.get(at)?))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::face::tui::screens::timeline::state::scope::Part;
    use crate::face::tui::tests::fixtures;

    #[test]
    fn rows_are_sorted_by_any_column_and_narrowed_by_words() {
        let index = fixtures::imported();
        let table = Arc::new(Part::All.operations(&index));
        let counted = Some(Counted { pane: 0, part: Part::All, table });
        let mut shown = Operations { counted, ..Operations::default() };
        shown.arrange();
        let of = |shown: &Operations, column: Column| -> Vec<f64> {
            let rows = &shown.counted.as_ref().expect("it is counted").table.rows;
            shown.order.iter().map(|at| column.value(&rows[*at])).collect()
        };
        for column in Column::ALL {
            shown.column = column;
            for reverse in [false, true] {
                shown.reverse = reverse;
                shown.arrange();
                let values = of(&shown, column);
                assert!(values.windows(2).all(|pair| if reverse {
                    pair[0] <= pair[1]
                } else {
                    pair[0] >= pair[1]
                }));
                assert_eq!(values.len(), 3, "gemm, copy, all-reduce");
            }
        }
        let last = shown.row().map(|(row, _)| row.name.clone());
        shown.list.selected = 1;
        let kept = shown.row().map(|(row, _)| row.name.clone());
        assert_ne!(kept, last);
        shown.sort_by_next(false);
        assert_eq!((shown.column, shown.reverse), (Column::Count, false), "round and round");
        assert_eq!(shown.row().map(|(row, _)| row.name.clone()), kept, "the selection stays");
        shown.filter = FilterBox::new("NCCL reduce");
        shown.arrange();
        assert!(shown.row().is_some_and(|(row, _)| row.lane == "comm") && shown.order.len() == 1);
        shown.filter = FilterBox::new("nothing of this");
        shown.arrange();
        assert!(shown.row().is_none());
    }
}
