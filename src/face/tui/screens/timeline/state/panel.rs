//! Lists below the lanes. The tables of operations and of exposed stretches cover a scope: the user's choice, and the part of the trace that it currently refers to.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::index::{StepKey, TraceIndex};
use super::measure;
use super::search::NameQuery;
use super::view::TimelineView;
use super::window::TimeWindow;
use crate::face::tui::prelude::*;
use crate::face::tui::screens::timeline::Act;
use crate::face::tui::screens::timeline::lists::LEGEND_MARKS;
use crate::face::tui::widgets::list::List;
use base::text::distinguishing;
use plan::Phase;
use study::analysis::{
    self, Dependencies, ExposedStretches, LaneTotal, NameRow, OperationDifferences, OperationTable,
    StretchFamily,
};
use trace::overlap::Selection;

#[derive(Clone, Debug)]
pub enum TimelinePanel {
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
    Operations(Box<OperationsPanel>),
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
    pub scope: OperationScope,
    /// Result for the wanted part, or for the previous one while a new one is computed.
    pub counted: Option<ScopedTable<ExposedStretches>>,
    pub sorted: SortedBy<StretchColumn>,
    /// Shown rows, as indices into the table's families.
    pub order: Vec<usize>,
    pub list: List,
    /// Row last gone to, and which of its calls.
    pub gone: Option<(usize, usize)>,
    /// True if Enter was pressed before the first result: go to its first row then.
    pub awaited: bool,
}

impl Stretches {
    /// Takes a result, and selects the row with the longest exposed call of all, so that Enter goes there.
    pub fn set(&mut self, counted: ScopedTable<ExposedStretches>) {
        (self.counted, self.gone) = (Some(counted), None);
        self.arrange();
        self.list.selected = self.longest_row().unwrap_or(0);
    }

    /// Row with the longest exposed call of all, the first one of several.
    pub fn longest_row(&self) -> Option<usize> {
        let length =
            |row: &usize| self.family(*row).map_or(0.0, |family| StretchColumn::Longest.value(family));
        (0..self.order.len()).rev().max_by(|a, b| length(a).total_cmp(&length(b)))
    }

    /// Sorts by another column and selects the first row, as all tables do.
    fn sort(&mut self, act: Act) {
        self.sorted.change(act, &StretchColumn::ALL);
        self.arrange();
        self.list.selected = 0;
        self.gone = None;
    }

    fn arrange(&mut self) {
        let Some(counted) = &self.counted else { return };
        let (families, sorted) = (&counted.table.families, self.sorted);
        let mut order: Vec<usize> = (0..families.len()).collect();
        sorted.arrange(&mut order, |a, b| {
            let (a, b) = (&families[a], &families[b]);
            match sorted.column {
                StretchColumn::Collective => a.collective.cmp(&b.collective),
                column => column.value(b).total_cmp(&column.value(a)),
            }
        });
        self.order = order;
    }

    /// Rows in order.
    pub fn families(&self) -> impl Iterator<Item = &StretchFamily> {
        (0..self.order.len()).filter_map(move |row| self.family(row))
    }

    pub fn family(&self, row: usize) -> Option<&StretchFamily> {
        self.counted.as_ref()?.table.families.get(*self.order.get(row)?)
    }

    /// Span of the selected row's longest exposed call.
    pub fn longest_of_row(&mut self) -> Option<usize> {
        self.call(self.list.selected, 0)
    }

    /// Span of the next shorter call of the row last gone to, or of the next longer one; the longest follows the shortest.
    pub fn neighbour_call(&mut self, forwards: bool) -> Option<usize> {
        let (row, at) = self.gone?;
        let count = self.family(row)?.longest.len();
        let by = if forwards { 1 } else { count.saturating_sub(1) };
        self.call(row, (at + by) % count.max(1))
    }

    fn call(&mut self, row: usize, at: usize) -> Option<usize> {
        let (span, _) = *self.family(row)?.longest.get(at)?;
        self.gone = Some((row, at));
        Some(span)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferencePanelRow {
    /// Sum over all layers; index into the families.
    Family(usize),
    /// One layer of the family above; index into the groups.
    Group(usize),
    /// Rest of the step's length.
    Rest,
    /// Sum of the families and the rest.
    Step,
}

/// True if exposed communication explains most of the difference between two steps.
pub fn is_explained_by_exposed(report: &OperationDifferences) -> bool {
    let change = |(a, b): (f64, f64)| (b - a).abs();
    report.recorders.is_none() && change(report.exposed_us) > change(report.lengths_us) / 2.0
}

/// Rows of the differences list: families in order, each expanded one followed by its layers; the rest, the step.
pub fn difference_rows(
    report: &OperationDifferences,
    by_exposed: bool,
    open: &BTreeSet<String>,
) -> Vec<DifferencePanelRow> {
    let order: Vec<usize> = match by_exposed {
        true => report.by_exposed.clone(),
        false => (0..report.families.len()).collect(),
    };
    let mut rows = Vec::new();
    for at in order {
        rows.push(DifferencePanelRow::Family(at));
        let family = &report.families[at];
        if family.groups.len() > 1 && open.contains(&family.sum.name) {
            rows.extend(family.groups.iter().map(|group| DifferencePanelRow::Group(*group)));
        }
    }
    rows.extend([DifferencePanelRow::Rest, DifferencePanelRow::Step]);
    rows
}

impl TimelinePanel {
    pub fn rows(&self, differences: Option<&OperationDifferences>) -> usize {
        match self {
            Self::Dependencies { dependencies, .. } => {
                dependencies.before.len() + dependencies.after.len()
            }
            Self::Differences { by_exposed, open, .. } => {
                differences.map_or(0, |report| difference_rows(report, *by_exposed, open).len())
            }
            Self::Operations(operations) => operations.order.len(),
            Self::Stretches(stretches) => stretches.order.len(),
            Self::Verdict { lines, .. } => lines.len().max(1),
            Self::Legend(..) => LEGEND_MARKS.len(),
        }
    }

    /// List that returns when this one closes.
    pub fn covered(self) -> Option<Self> {
        match self {
            Self::Legend(_, covered) => covered.map(|covered| *covered),
            _ => None,
        }
    }

    /// Moves the selection, or scrolls a text.
    pub fn move_by(&mut self, by: isize, len: usize) {
        match self {
            Self::Verdict { list, .. } | Self::Legend(list, _) => list.scroll_by(by, len),
            other => other.list().move_by(by, len),
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

    /// Sorts a table anew, by the next or previous column or in reverse; false for lists that have one order.
    pub fn sort(&mut self, act: Act) -> bool {
        match (self, act) {
            (Self::Operations(operations), _) => operations.sort(act),
            (Self::Stretches(stretches), _) => stretches.sort(act),
            (Self::Differences { by_exposed, list, .. }, Act::SortNext | Act::SortPrevious) => {
                (*by_exposed, *list) = (!*by_exposed, List::default());
            }
            _ => return false,
        }
        true
    }
}

/// Column that a table is sorted by: the largest numbers first, names from A to Z, or the reverse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SortedBy<C> {
    pub column: C,
    pub reverse: bool,
}

impl<C: Copy + PartialEq> SortedBy<C> {
    fn change(&mut self, act: Act, all: &[C]) {
        *self = match act {
            Act::SortReverse => Self { reverse: !self.reverse, ..*self },
            _ => Self { column: next_of(all, self.column, act == Act::SortPrevious), reverse: false },
        };
    }

    /// Sorts row indices by a comparison that puts the largest number, or the first name, first.
    fn arrange(self, order: &mut [usize], compare: impl Fn(usize, usize) -> Ordering) {
        order.sort_by(|a, b| compare(*a, *b));
        if self.reverse {
            order.reverse();
        }
    }

    /// Arrow behind a column's title; empty unless the table is sorted by it.
    pub fn arrow(self, column: C) -> &'static str {
        match (self.column == column, self.reverse) {
            (true, false) => "▾",
            (true, true) => "▴",
            (false, _) => "",
        }
    }
}

/// Columns that exposed communication is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StretchColumn {
    Calls,
    /// Total exposed time.
    #[default]
    Exposed,
    /// Mean exposed time of a call.
    PerCall,
    /// Longest exposed time of a call.
    Longest,
    Collective,
}

impl StretchColumn {
    pub const ALL: [Self; 5] =
        [Self::Calls, Self::Exposed, Self::PerCall, Self::Longest, Self::Collective];

    fn value(self, family: &StretchFamily) -> f64 {
        match self {
            Self::Calls => family.calls as f64,
            Self::Exposed => family.total_us,
            Self::PerCall => family.total_us / family.calls.max(1) as f64,
            Self::Longest => family.longest.first().map_or(0.0, |(_, us)| *us),
            Self::Collective => 0.0,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OperationColumn {
    /// Number of executions.
    Count,
    /// Total time (us per rank).
    #[default]
    Total,
    /// Mean execution time (us).
    Mean,
    /// Longest execution on any rank (us).
    Max,
    /// Share of the time between first start and last end (%).
    Share,
    /// Exposed communication (us per rank).
    Exposed,
    Name,
}

impl OperationColumn {
    pub const ALL: [Self; 7] =
        [Self::Count, Self::Total, Self::Mean, Self::Max, Self::Share, Self::Exposed, Self::Name];

    fn value(self, row: &NameRow) -> f64 {
        match self {
            Self::Count => row.count as f64,
            // shares of the same time
            Self::Total | Self::Share => row.total_us,
            Self::Mean => row.mean_us,
            Self::Max => row.max_us,
            Self::Exposed => row.exposed_us,
            Self::Name => 0.0,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct OperationsPanel {
    pub scope: OperationScope,
    /// Result for the wanted part, or for the previous one while a new one is computed.
    pub counted: Option<ScopedTable<OperationTable>>,
    pub sorted: SortedBy<OperationColumn>,
    /// Filter by words of names.
    pub filter: FilterBox,
    /// True to show the selected row's full name.
    pub whole: bool,
    /// Shown rows, as indices into the table.
    pub order: Vec<usize>,
    /// Suffixes of the table's names that tell equal short names apart.
    pub suffixes: Vec<String>,
    pub list: List,
    /// True if Enter was pressed before the first result: go to its first row then.
    pub awaited: bool,
}

impl OperationsPanel {
    pub fn set(&mut self, counted: ScopedTable<OperationTable>) {
        let names: Vec<&str> = counted.table.rows.iter().map(|row| row.name.as_str()).collect();
        self.suffixes = distinguishing(&names);
        self.counted = Some(counted);
        self.arrange();
    }

    /// Sorts and filters, keeping the selected operation if possible.
    pub fn arrange(&mut self) {
        let before = self.row().map(|(row, _)| (row.name.clone(), row.lane));
        let Some(counted) = &self.counted else { return };
        let (rows, words) = (&counted.table.rows, NameQuery::new(self.filter.value()));
        let sorted = self.sorted;
        let mut order: Vec<usize> = (0..rows.len()).filter(|at| words.are_in(&rows[*at].name)).collect();
        sorted.arrange(&mut order, |a, b| {
            let (a, b) = (&rows[a], &rows[b]);
            match sorted.column {
                OperationColumn::Name => a.name.cmp(&b.name),
                column => column.value(b).total_cmp(&column.value(a)),
            }
        });
        let same = |at: &usize| before == Some((rows[*at].name.clone(), rows[*at].lane));
        self.list.selected = order.iter().position(same).unwrap_or(0);
        self.order = order;
    }

    fn sort(&mut self, act: Act) {
        self.sorted.change(act, &OperationColumn::ALL);
        self.arrange();
        self.list.selected = 0;
    }

    /// Selected row, and the span index of its longest execution.
    pub fn row(&self) -> Option<(&NameRow, usize)> {
        let table = &self.counted.as_ref()?.table;
        let at = *self.order.get(self.list.selected)?;
        Some((table.rows.get(at)?, *table.longest.get(at)?))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OperationScope {
    /// Whole trace: every step of every rank.
    #[default]
    All,
    /// All steps of a phase, if the trace has both.
    Phase(Phase),
    Step,
    /// Selection, or the interval between the marks.
    Stretch,
    /// Window, while it shows less than the step under the cursor, or than a trace without steps.
    Window,
    Hits,
}

/// Part of a trace that a scope currently refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolvedScope {
    /// Whole trace; also the fallback if a scope matches nothing.
    All,
    Phase(Phase),
    /// Prefill or decode step of one sample.
    Step(StepKey),
    /// Selected interval (ns of the trace).
    Stretch(TimeWindow),
    /// Shown interval (ns of the trace).
    Window(TimeWindow),
    /// Operations whose names contain all words of a search.
    Hits(String),
}

impl OperationScope {
    /// Scopes of operations tables, in cycling order.
    pub const OF_OPERATIONS: [Self; 4] = [Self::All, Self::Step, Self::Stretch, Self::Hits];

    /// Scopes of exposed-stretch lists, in cycling order. Decode comes first because the stretches of a
    /// prefill would dominate.
    pub const OF_STRETCHES: [Self; 5] =
        [Self::Phase(Phase::Decode), Self::Phase(Phase::Prefill), Self::All, Self::Step, Self::Stretch];

    /// Scope that the list of exposed communication opens with, if the trace has both phases: the phase in view, else
    /// decode.
    pub fn first_of_stretches(view: &TimelineView) -> Self {
        let in_view = view.phase_in_view().map(Self::Phase);
        let has_both = |scope: &Self| scope.of_view(view).is_some();
        in_view.filter(has_both).unwrap_or_else(|| Self::Stretch.next(view, &Self::OF_STRETCHES))
    }

    /// Phase in view, if the scope is the other one.
    pub fn other_phase_in_view(self, view: &TimelineView) -> Option<Phase> {
        match self {
            Self::Phase(own) => view.phase_in_view().filter(|shown| *shown != own),
            _ => None,
        }
    }

    /// Next scope in `all` that currently matches something.
    pub fn next(self, view: &TimelineView, all: &[Self]) -> Self {
        let at = all.iter().position(|scope| *scope == self).unwrap_or(0);
        let mut behind = all.iter().cycle().skip(at + 1).take(all.len());
        behind.find(|scope| scope.of_view(view).is_some()).copied().unwrap_or_default()
    }

    pub(super) fn of_view(self, view: &TimelineView) -> Option<ResolvedScope> {
        let pane = view.pane();
        match self {
            Self::All => Some(ResolvedScope::All),
            Self::Phase(phase) => {
                let steps = &pane.index.steps;
                let has = |wanted| steps.iter().any(|step| step.key.phase == wanted);
                (has(Phase::Prefill) && has(Phase::Decode)).then_some(ResolvedScope::Phase(phase))
            }
            Self::Step => pane.step_key(view.time, true).map(ResolvedScope::Step),
            Self::Stretch => view.stretch().map(|stretch| ResolvedScope::Stretch(pane.window(stretch))),
            Self::Window => {
                let step = pane.step(view.time, true).and_then(|at| pane.index.steps.get(at));
                let whole = step.map_or(pane.index.bounds, |step| step.window).width();
                let whole = whole.min(view.opened_width);
                // zooming in and out again may end a few ns off
                let is_part = view.window.width() < whole - whole / 50;
                is_part.then(|| ResolvedScope::Window(pane.window(view.window)))
            }
            Self::Hits => {
                let query = view.search.line.value();
                (!query.trim().is_empty()).then(|| ResolvedScope::Hits(query.to_owned()))
            }
        }
    }

    /// Current part; the whole trace if the scope no longer matches anything.
    pub fn part(self, view: &TimelineView) -> ResolvedScope {
        self.of_view(view).unwrap_or(ResolvedScope::All)
    }
}

impl ResolvedScope {
    pub fn label(&self, index: &TraceIndex) -> String {
        match self {
            Self::All => "the whole trace".into(),
            Self::Phase(phase) => phase.as_str().into(),
            Self::Step(key) => index.step_label(*key),
            Self::Stretch(_) => "the selection".into(),
            Self::Window(window) => format!("the window ({})", ns(window.width())),
            Self::Hits(query) => format!("what /{query} finds"),
        }
    }

    fn selection(&self, index: &TraceIndex) -> Selection {
        let since = |time: i64| Some(time.saturating_sub(index.zero));
        match self {
            Self::All | Self::Hits(_) => Selection::default(),
            Self::Phase(phase) => Selection { phase: Some(*phase), ..Selection::default() },
            Self::Step(key) => Selection::of_step(*key),
            Self::Stretch(TimeWindow { from, to }) | Self::Window(TimeWindow { from, to }) => {
                Selection { from_ns: since(*from), to_ns: since(*to), ..Selection::default() }
            }
        }
    }

    /// Total time per lane. Linear in the spans of the trace.
    pub fn totals(&self, index: &TraceIndex) -> Vec<LaneTotal> {
        let words = self.words();
        analysis::lane_totals(&index.trace, &self.selection(index), |o| words.are_in(&o.name))
    }

    fn words(&self) -> NameQuery {
        NameQuery::new(if let Self::Hits(query) = self { query } else { "" })
    }

    /// Operations by name, and the experts of a mixture. Linear in the spans of the interval, else of the trace.
    pub fn operations(&self, index: &TraceIndex) -> OperationTable {
        let (words, selection) = (self.words(), self.selection(index));
        let table = match self {
            Self::Stretch(window) | Self::Window(window) => measure::operations(index, *window),
            _ => analysis::operation_table(&index.trace, &selection, |o| words.are_in(&o.name)),
        };
        OperationTable { experts: index.experts(&selection), ..table }
    }

    /// Longest exposed stretches. Linear in the spans of the trace.
    pub fn stretches(&self, index: &TraceIndex) -> ExposedStretches {
        analysis::exposed_stretches(&index.trace, &self.selection(index))
    }
}

/// Table with the part of the trace it covers.
#[derive(Clone, Debug)]
pub struct ScopedTable<T> {
    pub pane: usize,
    pub part: ResolvedScope,
    pub table: Arc<T>,
}

impl<T> ScopedTable<T> {
    /// True if the table covers what is currently wanted.
    pub fn is_of(&self, scope: OperationScope, view: &TimelineView) -> bool {
        self.pane == view.focus && self.part == scope.part(view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::face::tui::tests::fixtures;

    #[test]
    fn rows_are_sorted_by_any_column_and_narrowed_by_words() {
        let index = fixtures::imported();
        let table = Arc::new(ResolvedScope::All.operations(&index));
        let counted = Some(ScopedTable { pane: 0, part: ResolvedScope::All, table });
        let mut shown = OperationsPanel { counted, ..OperationsPanel::default() };
        shown.arrange();
        let of = |shown: &OperationsPanel, column: OperationColumn| -> Vec<f64> {
            let rows = &shown.counted.as_ref().expect("it is counted").table.rows;
            shown.order.iter().map(|at| column.value(&rows[*at])).collect()
        };
        for column in OperationColumn::ALL {
            for reverse in [false, true] {
                shown.sorted = SortedBy { column, reverse };
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
        assert_ne!(shown.row().map(|(row, _)| row.name.clone()), last);
        shown.sort(Act::SortNext);
        let first = SortedBy { column: OperationColumn::Count, reverse: false };
        assert_eq!(shown.sorted, first, "round and round");
        assert_eq!(shown.list.selected, 0, "a new order is read from its top");
        shown.filter = FilterBox::new("NCCL reduce");
        shown.arrange();
        assert!(shown.row().is_some_and(|(row, _)| row.lane == "comm") && shown.order.len() == 1);
        shown.filter = FilterBox::new("nothing of this");
        shown.arrange();
        assert!(shown.row().is_none());
    }
}
