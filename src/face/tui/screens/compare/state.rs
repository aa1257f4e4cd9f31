//! State of screen 6: compared axis, order, pivot, list of pairs or map.
//! The comparison itself is computed off the drawing thread ([`AxisComparison`]).

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::compared::{AxisComparison, FilteredPairs, KeptCells, PairRow};
use super::draw::PairSettings;
use super::map::MapSlices;
use super::pivot::MarkMeanings;
use crate::face::tui::prelude::*;
use base::statistics::extent;
use study::analysis::filter::Filter;
use study::analysis::{
    Axis, AxisCount, Comparison, HeatMap, HeatValue, Pivot, PivotRow, Reasons, compared_rows,
};
use study::answer::RUN_AGAIN;

/// Run ids of a pair; identifies it across comparisons.
pub fn runs_of(pair: &Comparison) -> (String, String) {
    (pair.baseline_run.clone(), pair.run.clone())
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    Setting,
    Speedup,
    Tpot,
    Exposed,
    Hidden,
    Gap,
    Adjusted,
}

/// Name of an order, its table column and the number of a pair.
type OrderRow = (Order, &'static str, Option<usize>, fn(&Comparison) -> Option<f64>);

impl Order {
    /// Orders in cycling sequence.
    const TABLE: [OrderRow; 7] = [
        (Self::Setting, "setting", None, |_| None),
        (Self::Speedup, "ratio", Some(3), |pair| Some(pair.speedup)),
        (Self::Tpot, "TPOT", Some(7), |pair| Some(pair.tpot_ms)),
        (Self::Exposed, "exposed", Some(8), |pair| pair.side.exposed_pct),
        (Self::Hidden, "hidden", Some(9), |pair| pair.overlap_pct),
        (Self::Gap, "gap closed", Some(10), |pair| pair.side.hidden_share),
        (Self::Adjusted, "p (BH)", Some(6), |pair| pair.adjusted_p),
    ];

    pub fn all() -> impl Iterator<Item = Self> {
        Self::TABLE.iter().map(|(order, ..)| *order)
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|order| order.name() == name)
    }

    pub fn name(self) -> &'static str {
        Self::TABLE[self as usize].1
    }

    pub fn column(self) -> Option<usize> {
        Self::TABLE[self as usize].2
    }

    /// Sort key of a pair; unknown values sort last.
    fn of(self, pair: &Comparison) -> f64 {
        let number = Self::TABLE[self as usize].3(pair);
        number.filter(|number| number.is_finite()).unwrap_or(f64::INFINITY)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub pairs: usize,
    pub differ: usize,
    /// Pairs of simulated cells, and those of them that differ.
    pub simulated: usize,
    pub simulated_differ: usize,
    pub tested: usize,
    /// Pairs that differ after correction for multiple comparisons.
    pub adjusted: usize,
}

impl Counts {
    fn from_pairs<'a>(pairs: impl Iterator<Item = &'a Comparison>) -> Self {
        pairs.fold(Self::default(), |sum, pair| Self {
            pairs: sum.pairs + 1,
            differ: sum.differ + usize::from(pair.matters()),
            simulated: sum.simulated + usize::from(pair.is_simulated()),
            simulated_differ: sum.simulated_differ + usize::from(pair.is_simulated() && pair.matters()),
            tested: sum.tested + usize::from(pair.p_value.is_some()),
            adjusted: sum.adjusted + usize::from(pair.differs_adjusted == Some(true)),
        })
    }
}

/// Pairs in scope, before the typed filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScopeCounts {
    pub pairs: usize,
    /// Rows of the pivot.
    pub settings: usize,
}

/// Part of a comparison: the slice of a map, or the pairs of a headline.
#[derive(Clone, Debug)]
pub struct PartOf<T>(pub Arc<AxisComparison>, pub T);

impl<T: PartialEq> PartialEq for PartOf<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) && self.1 == other.1
    }
}

/// Table below the map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableView {
    #[default]
    Pivot,
    Pairs,
}

/// Findings on the filtered pairs.
#[derive(Debug)]
pub struct ComparisonFindings {
    pub headline: String,
    /// Headline without the numbers of settings that `winners` gives.
    pub lead: Option<String>,
    /// Winners by setting, if these differ.
    pub winners: Option<String>,
    /// Signs of noise in measured cells.
    pub noise: Option<String>,
    /// Validation of the simulated cells, in words.
    pub trust: Option<String>,
    /// Short form of `trust`, if published pairs contradict the simulated order of two architectures.
    pub caveat: Option<String>,
    /// True if the pairs are of several experiments.
    pub is_mixed: bool,
}

#[derive(Debug, Default)]
pub struct Compare {
    pub asked: ComparisonRequest,
    /// Counter of reads of the runs directory.
    pub reading: u64,
    pub cells: Arc<KeptCells>,
    /// Comparison or error; `None` until computed.
    pub compared: Option<Result<Arc<AxisComparison>, String>>,
    pub view: TableView,
    /// Filtered pairs, in the order of the report.
    pub kept: Arc<Vec<usize>>,
    /// Reason that the filter leaves none.
    why_none: String,
    pub pivot: Pivot,
    /// Selected value of the pivot; `None` selects the best of each row.
    pub column: Option<String>,
    /// Value that the cursor keeps from row to row without a selected one.
    held: Option<String>,
    /// Experiment whose axis was chosen, see [`Self::follow_scope`].
    followed: Option<String>,
    /// Pair that the screen itself selected, as an index into the report. A cursor on any other pair was moved by the user
    /// and keeps its pair.
    opened_on: Option<usize>,
    /// Filtered pairs and the findings on them; `None` until computed.
    pub answer: Option<(PartOf<FilteredPairs>, ComparisonFindings)>,
    pub shown: Vec<PairRow>,
    /// Distinguishing settings of the filtered pairs; `None` without a filter.
    pub narrowed: Option<PairSettings>,
    pub counts: Counts,
    pub scope_counts: ScopeCounts,
    /// Minimum and maximum of each [`HeatValue`] over the pairs in scope, so that a shade means the same in all slices.
    pub ranges: [Option<[f64; 2]>; HeatValue::ALL.len()],
    pub marks: MarkMeanings,
    /// Indices in the report of the flags on cells of the filtered pairs.
    pub flagged: Vec<usize>,
    /// Expanded groups of equal pairs, by the runs of their first pair.
    pub opened: BTreeSet<(String, String)>,
    pub scrolled: usize,
    pub marked: BTreeSet<(String, String)>,
    pub list: List,
    pub order: Order,
    pub descending: bool,
    pub filter: FilterBox,
    pub map: Option<HeatMap>,
    /// Slices of the map: those of the comparison, or of the filtered pairs if their TP or batch does not vary.
    pub map_slices: Arc<MapSlices>,
    /// Indices of the slices with filtered pairs and their pair counts, largest first.
    pub slices_shown: Vec<(usize, usize)>,
    pub slice: usize,
    /// Cells (row, column) of the slice that the filter hides.
    pub left_out: Vec<(usize, usize)>,
    /// Reasons for the empty cells of a map; `None` until computed.
    pub gaps: Option<(PartOf<usize>, Reasons)>,
    pub value: HeatValue,
    /// Cursor in the map: row and column.
    pub cursor: (usize, usize),
    /// True if the details below the pivot are folded to the result, which leaves the pivot more rows.
    pub is_folded: bool,
    /// True if flags are shown instead of the selected pair.
    pub flags: bool,
    /// Index in [`Self::flagged`] of the first flag shown.
    pub first_flag: usize,
}

impl Compare {
    /// Shows a comparison or its error.
    pub fn set(&mut self, result: Result<Arc<AxisComparison>, String>) {
        let moved = self.moved_to().and_then(|at| self.pairs().get(at)).cloned();
        self.compared = Some(result);
        let moved = moved.and_then(|pair| self.position_of(&pair));
        self.arrange();
        self.place_cursor(moved);
        self.follow_scope();
    }

    /// Filters the pairs after the scope or the text of the filter changed. Pairs that come back leave the cursor where it
    /// is.
    pub fn narrow(&mut self) {
        let (moved, selected, before) = (self.moved_to(), self.selected_at(), self.kept.len());
        self.arrange();
        let keeps = if self.kept.len() > before { selected } else { moved };
        self.place_cursor(keeps);
        self.follow_scope();
    }

    /// Compares another experiment by its own axis: architecture, or else the first with pairs. The restored axis of the
    /// first experiment stays if it has pairs.
    fn follow_scope(&mut self) {
        let (Some(experiment), Some(compared)) = (self.filter.experiment(), self.compared()) else {
            return;
        };
        let experiment = experiment.to_owned();
        if self.followed.as_ref() == Some(&experiment) {
            return;
        }
        let axes: Vec<Axis> = self.axes_in_scope(compared).into_iter().map(|of| of.axis).collect();
        let is_restored = self.followed.is_none() && axes.contains(&self.asked.axis);
        let natural = axes.iter().find(|axis| **axis == Axis::ARCHITECTURE).or(axes.first()).cloned();
        self.followed = Some(experiment);
        if let Some(axis) = natural.filter(|axis| !is_restored && *axis != self.asked.axis) {
            self.compare_by(axis, None);
        }
    }

    pub fn compare_by(&mut self, axis: Axis, baseline: Option<String>) {
        (self.asked.axis, self.asked.baseline) = (axis, baseline);
        self.start_over();
    }

    /// Axes with pairs in scope.
    pub fn axes_in_scope(&self, compared: &AxisComparison) -> Vec<AxisCount> {
        let is_in_scope = |runs: &[String; 2]| runs.iter().all(|run| self.filter.holds(run));
        let axes = compared.axes.iter().filter(|axis| axis.pairs.iter().any(is_in_scope));
        axes.cloned().collect()
    }

    /// Pair, an index into the report, that the user moved the cursor to; `None` if it is where the screen put it.
    fn moved_to(&self) -> Option<usize> {
        self.selected_at().filter(|at| Some(*at) != self.opened_on)
    }

    /// Index in the report of a pair of an earlier report.
    fn position_of(&self, pair: &Comparison) -> Option<usize> {
        let (pairs, runs) = (self.pairs(), runs_of(pair));
        let is_of_cells = |other: &Comparison| {
            other.provenance == pair.provenance
                && other.side.spec == pair.side.spec
                && other.baseline_side.spec == pair.baseline_side.spec
        };
        // a further round names a cell by another run
        let of_cells = || pairs.iter().position(is_of_cells);
        pairs.iter().position(|other| runs_of(other) == runs).or_else(of_cells)
    }

    /// Keeps the cursor on a pair if that is left, or else puts it on the pair of the headline.
    fn place_cursor(&mut self, keeps: Option<usize>) {
        match keeps.filter(|at| self.kept.contains(at)) {
            Some(at) => {
                self.held = Some(self.pairs()[at].value.clone());
                self.select(at);
            }
            None => self.select_headline(),
        }
    }

    /// Selects the pair of the headline, or else the first row. The first rows are in sight unless its row is too far below.
    fn select_headline(&mut self) {
        (self.list, self.held) = (List::default(), None);
        let row = self.best_row().and_then(|row| self.pivot.rows.get(row));
        if let Some(at) = row.and_then(|row| row.pairs[row.best]) {
            self.select(at);
        }
        self.opened_on = self.selected_at();
    }

    /// Row of the headline: the largest lead of the value that is fastest in most rows.
    fn best_row(&self) -> Option<usize> {
        let rows = &self.pivot.rows;
        let wins = |column: &usize| rows.iter().filter(|row| row.fastest.contains(column)).count();
        // the first of several
        let winner = (0..self.pivot.values.len()).rev().max_by_key(wins)?;
        let lead = |row: &PivotRow| {
            let at = row.pairs[winner].filter(|_| row.fastest.contains(&winner))?;
            Some(self.pairs()[at].speedup)
        };
        let leads = rows.iter().enumerate().filter_map(|(at, row)| Some((at, lead(row)?)));
        leads.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at)
    }

    /// Selects the row of a pair, an index into the report, or its cell of the map, if it is shown.
    fn select(&mut self, pair: usize) {
        let at = match self.view {
            _ if self.map.is_some() => return self.open_map_on(Some(pair)),
            TableView::Pivot => self.pivot.rows.iter().position(|row| row.known().any(|at| at == pair)),
            TableView::Pairs => self.shown.iter().position(|row| row.all().any(|at| at == pair)),
        };
        self.list.selected = at.unwrap_or(self.list.selected);
    }

    /// Leaves the map, or changes the table, and keeps the selected pair.
    pub fn show(&mut self, view: TableView) {
        let selected = self.selected_at();
        (self.map, self.view) = (None, view);
        if let Some(at) = selected {
            self.held = Some(self.pairs()[at].value.clone());
            self.select(at);
        }
    }

    pub fn shows_pivot(&self) -> bool {
        self.map.is_none() && self.view == TableView::Pivot
    }

    pub fn selected_row(&self) -> Option<&PivotRow> {
        self.pivot.rows.get(self.list.selected)
    }

    /// Selected column of a row of the pivot.
    pub fn column_of(&self, row: &PivotRow) -> usize {
        let held = self.held.as_ref().and_then(|held| self.column_named(held));
        match (&self.column, held.filter(|held| row.pairs[*held].is_some())) {
            (None, Some(held)) => held,
            _ => self.ordering_column(row),
        }
    }

    /// Column of a row that the order is by: the selected value, or else the best of each row.
    fn ordering_column(&self, row: &PivotRow) -> usize {
        self.column.as_ref().and_then(|column| self.column_named(column)).unwrap_or(row.best)
    }

    fn column_named(&self, name: &str) -> Option<usize> {
        self.pivot.values.iter().position(|value| value == name)
    }

    /// Keeps the column of the cursor while it moves between rows.
    pub fn hold_column(&mut self) {
        if self.held.is_none()
            && let Some(row) = self.selected_row()
        {
            self.held = self.pivot.values.get(self.column_of(row)).cloned();
        }
    }

    /// Selects a value of the pivot; `None` the best of each row.
    pub fn choose(&mut self, value: Option<String>) {
        let of_row = self.selected_row().and_then(|row| row.known().next());
        (self.column, self.held) = (value, None);
        // the order may be by this column
        self.arrange();
        if let Some(at) = of_row {
            self.select(at);
        }
    }

    pub fn move_column(&mut self, by: isize) {
        let Some(at) = self.selected_row().map(|row| self.column_of(row)) else { return };
        let last = self.pivot.values.len().saturating_sub(1);
        self.choose(self.pivot.values.get(at.saturating_add_signed(by).min(last)).cloned());
    }

    /// Part of the comparison that the answer is about, and whether it is one experiment.
    pub fn answer_of(&self) -> Option<PartOf<FilteredPairs>> {
        let is_of_one = self.filter.experiment().is_some();
        Some(PartOf(Arc::clone(self.compared()?), (Arc::clone(&self.kept), is_of_one)))
    }

    /// Headline of the filtered pairs; `…` until computed.
    pub fn headline(&self) -> &str {
        if self.kept.is_empty() {
            return &self.why_none;
        }
        self.known_answer().map_or("…", |answer| &answer.headline)
    }

    /// Headline without the numbers of settings that the [`Self::winners`] give; whole without these.
    pub fn lead(&self) -> &str {
        let answer = self.known_answer().filter(|answer| answer.winners.is_some());
        let lead = answer.and_then(|answer| answer.lead.as_deref()).filter(|_| !self.kept.is_empty());
        lead.unwrap_or_else(|| self.headline())
    }

    /// Validation of the filtered pairs' simulated cells, in words.
    pub fn trust(&self) -> Option<&str> {
        self.known_answer()?.trust.as_deref()
    }

    /// Error of the filtered pairs' simulated cells, if published pairs contradict the order of two architectures.
    pub fn caveat(&self) -> Option<&str> {
        self.known_answer()?.caveat.as_deref()
    }

    /// Winners of the filtered pairs by setting, if these differ.
    pub fn winners(&self) -> Option<&str> {
        self.known_answer()?.winners.as_deref()
    }

    /// Signs of noise in the filtered pairs' measured cells, unless the headline names them.
    pub fn noise(&self) -> Option<&str> {
        let answer = self.known_answer()?;
        answer.noise.as_deref().filter(|_| !answer.headline.contains(RUN_AGAIN))
    }

    fn known_answer(&self) -> Option<&ComparisonFindings> {
        let (of, answer) = self.answer.as_ref()?;
        (Some(of) == self.answer_of().as_ref()).then_some(answer)
    }

    pub fn compared(&self) -> Option<&Arc<AxisComparison>> {
        self.compared.as_ref()?.as_ref().ok()
    }

    pub fn pairs(&self) -> &[Comparison] {
        self.compared().map_or(&[], |compared| &compared.report.pairs)
    }

    /// Selected pair: in the pivot, in the list, or under the map cursor.
    pub fn selected(&self) -> Option<&Comparison> {
        self.pairs().get(self.selected_at()?)
    }

    /// Index in the report of the [selected](Self::selected) pair.
    pub(super) fn selected_at(&self) -> Option<usize> {
        match &self.map {
            Some(map) => Some(map.cell(self.cursor.0, self.cursor.1)?.pair),
            None if self.view == TableView::Pivot => {
                let row = self.selected_row()?;
                row.pairs[self.column_of(row)]
            }
            None => Some(self.shown.get(self.list.selected)?.pair),
        }
    }

    /// Resets the cursor and the slice for another comparison, whose headline then places the cursor.
    pub fn start_over(&mut self) {
        (self.slice, self.cursor, self.list, self.column) = (0, (0, 0), List::default(), None);
        self.opened_on = self.selected_at();
    }

    /// Runs of the selected pair with timelines: recorded or simulated ones, the baseline last.
    pub fn traced_runs(&self) -> Vec<String> {
        let Some((pair, compared)) = self.selected().zip(self.compared()) else { return Vec::new() };
        let has_trace = |run: &&String| {
            let record = compared.runs.find(run);
            record.is_some_and(|record| {
                let has_file = record.trace.is_some() && !compared.gone_traces.contains(*run);
                has_file || record.spec.backend.is_simulated()
            })
        };
        [&pair.run, &pair.baseline_run].into_iter().filter(has_trace).cloned().collect()
    }

    /// Reason that the selected pair has no timelines.
    pub fn why_no_timeline(&self) -> &'static str {
        let is_gone = |compared: &Arc<AxisComparison>| {
            let pair = self.selected();
            pair.is_some_and(|pair| compared.gone_traces.contains(&pair.run))
        };
        match self.compared().is_some_and(is_gone) {
            true => "the traces of both runs are gone",
            false => "neither run was recorded",
        }
    }

    /// Reason that the selected cell of the pivot or the map has no pair; `None` if it has one.
    pub fn why_no_pair(&self) -> Option<String> {
        if self.selected().is_some() {
            return None;
        }
        if let Some(map) = &self.map {
            let (row, column) = self.cursor;
            let (of_row, of_column) = (map.rows.get(row)?, map.columns.get(column)?);
            let why = match self.why_none(row, column) {
                "no base" => "the baseline has no result there",
                "oom" => "does not fit in memory",
                "filtered" => "the filter hides it",
                other => other,
            };
            let axes = &map.slice.axes;
            let at = match axes.is_plain() {
                true => format!("TP {of_row}, batch {of_column}"),
                false => format!("{} {of_row}, {} {of_column}", axes.rows, axes.columns),
            };
            return Some(format!("no result at {at}: {why}"));
        }
        let row = self.selected_row().filter(|_| self.view == TableView::Pivot)?;
        let value = self.pivot.values.get(self.column_of(row))?;
        let spec = &self.pairs()[row.known().next()?].side.spec;
        let setting = self.pair_settings(self.compared()?).settings.phrase(spec);
        let at = if setting.is_empty() { setting } else { format!(" at {setting}") };
        Some(format!("no result of {value}{at}"))
    }

    /// Marks of a pair, an index into the report, in all views: `★` the fastest of its setting, `★≈` tied for the fastest, `≈`
    /// no clear difference from the baseline, `?` too few samples. `†` is left to the summary.
    pub fn marks_of(&self, pair: usize) -> String {
        let Some(compared) = self.compared() else { return String::new() };
        let marks = |row: &PivotRow| {
            let column = row.pairs.iter().position(|at| *at == Some(pair))?;
            Some(row.marks(&compared.report, column).replace('†', ""))
        };
        self.pivot.rows.iter().find_map(marks).unwrap_or_default()
    }

    pub fn pair_settings<'a>(&'a self, compared: &'a AxisComparison) -> &'a PairSettings {
        self.narrowed.as_ref().unwrap_or(&compared.pair_settings)
    }

    /// Filters, sorts and groups the pairs.
    pub fn arrange(&mut self) {
        let chosen_runs = self.chosen();
        let Some(compared) = self.compared().cloned() else {
            (self.kept, self.pivot, self.shown, self.narrowed) = Default::default();
            (self.counts, self.scope_counts, self.flagged, self.map) = Default::default();
            (self.why_none, self.marks, self.ranges) = Default::default();
            return;
        };
        let pairs = &compared.report.pairs;
        let runs_in = |at: usize| [&pairs[at].run, &pairs[at].baseline_run];
        let is_chosen = |run: &String| chosen_runs.as_ref().is_none_or(|runs| runs.contains(run));
        let mut scoped: Vec<usize> = (0..pairs.len()).collect();
        scoped.retain(|at| runs_in(*at).into_iter().all(|run| self.filter.holds(run)));
        let mut kept = scoped.clone();
        kept.retain(|at| runs_in(*at).into_iter().all(is_chosen));
        let cells: HashSet<&String> = kept.iter().flat_map(|at| runs_in(*at)).collect();
        let flags = &compared.report.flags;
        let is_of_cells = |at: &usize| flags[*at].runs.iter().any(|run| cells.contains(run));
        self.flagged = (0..flags.len()).filter(is_of_cells).collect();
        self.pivot = Pivot::new(&compared.report, &kept);
        let mut rows = std::mem::take(&mut self.pivot.rows);
        self.sort(&mut rows, |row| row.pairs[self.ordering_column(row)]);
        self.pivot.rows = rows;
        let settings = match scoped.len() {
            all if all == kept.len() => self.pivot.rows.len(),
            all if all == pairs.len() => compared.settings,
            _ => Pivot::new(&compared.report, &scoped).rows.len(),
        };
        self.scope_counts = ScopeCounts { pairs: scoped.len(), settings };
        self.ranges =
            HeatValue::ALL.map(|value| extent(scoped.iter().filter_map(|at| value.number(&pairs[*at]))));
        self.why_none = if kept.is_empty() { self.why_all_hidden(&compared) } else { String::new() };
        let mut shown = kept.clone();
        self.sort(&mut shown, |at| Some(*at));
        self.kept = Arc::new(kept);
        let left: Vec<&Comparison> = shown.iter().map(|at| &pairs[*at]).collect();
        self.counts = Counts::from_pairs(left.iter().copied());
        let narrowed =
            (left.len() < pairs.len()).then(|| compared.pair_settings.narrowed(&left, &compared.axis));
        let opened = |pair: &Comparison| self.opened.contains(&runs_of(pair));
        let rows: Vec<PairRow> = compared.rows(shown.into_iter(), &opened).collect();
        self.narrowed = narrowed.map(|settings| settings.measured(&compared, &rows));
        self.shown = rows;
        self.marks = MarkMeanings::new(self, &compared);
        if self.map.is_some() {
            self.open_map();
        }
    }

    /// Numbers of values and pairs that the scope and the filter leave of an axis.
    pub fn left_of_axis(&self, compared: &AxisComparison, axis: &AxisCount) -> [usize; 2] {
        let (runs, filter) = (&compared.runs, Filter::parse(self.filter.value()));
        let chosen = || {
            let (rows, _) = compared_rows(&filter, &runs.table, &runs.records, &axis.axis, None);
            let run = |row: u32| Some(&runs.records.get(row as usize)?.run);
            rows.into_iter().filter_map(run).collect::<HashSet<&String>>()
        };
        let chosen = (!filter.is_empty()).then(chosen);
        let is_left = |run: &String| {
            self.filter.holds(run) && chosen.as_ref().is_none_or(|chosen| chosen.contains(run))
        };
        let left: Vec<&[String; 2]> =
            axis.pairs.iter().filter(|runs| runs.iter().all(is_left)).collect();
        let records = left.iter().flat_map(|pair| pair.iter()).filter_map(|run| runs.find(run));
        let values: HashSet<String> = records.map(|record| axis.axis.value(&record.spec)).collect();
        [values.len(), left.len()]
    }

    /// Reason that the scope and the filter leave no pair.
    fn why_all_hidden(&self, compared: &AxisComparison) -> String {
        match (self.filter.experiment(), self.filter.value().trim()) {
            (Some(experiment), "") => {
                format!("experiment {experiment} has no complete pair yet; * shows all runs.")
            }
            (None, "") => "No two finished runs differ in this option alone.".to_owned(),
            (_, typed) => Filter::parse(typed).why_nothing(&compared.runs.table).unwrap_or_else(|| {
                "The filter leaves no pair: both runs of a pair must match.".to_owned()
            }),
        }
    }

    /// Sorts rows by their pairs.
    fn sort<T>(&self, rows: &mut [T], pair: impl Fn(&T) -> Option<usize>) {
        let key = |row: &T| pair(row).map_or(f64::INFINITY, |at| self.order.of(&self.pairs()[at]));
        rows.sort_by(|a, b| {
            let (a, b) = (key(a), key(b));
            // unknown values stay last in both directions
            match self.descending && a.is_finite() && b.is_finite() {
                true => b.total_cmp(&a),
                false => a.total_cmp(&b),
            }
        });
        // the report has this order
        if self.order == Order::Setting && self.descending {
            rows.reverse();
        }
    }

    /// Runs that pass the typed filter, together with their comparison partners; `None` without one.
    fn chosen(&mut self) -> Option<HashSet<String>> {
        let compared = Arc::clone(self.compared()?);
        let filter = Filter::parse(self.filter.value());
        if filter.is_empty() {
            self.filter.tell(&[]);
            return None;
        }
        let (runs, axis, baseline) = (&compared.runs, &compared.axis, &self.asked.baseline);
        let (rows, wrong) =
            compared_rows(&filter, &runs.table, &runs.records, axis, baseline.as_deref());
        self.filter.tell(&wrong);
        let run = |row: u32| Some(runs.records.get(row as usize)?.run.clone());
        Some(rows.into_iter().filter_map(run).collect())
    }

    /// Expands or folds the selected group of equal pairs; false if the pair has no equals.
    pub fn fold(&mut self) -> bool {
        let Some(row) = self.shown.get(self.list.selected).filter(|row| row.of > 1).cloned() else {
            return false;
        };
        let Some(compared) = self.compared().cloned() else { return false };
        let class = compared.equal[row.pair];
        let first = runs_of(&compared.report.pairs[class]);
        if !self.opened.remove(&first) {
            self.opened.insert(first);
        }
        self.arrange();
        let at = self.shown.iter().position(|row| compared.equal[row.pair] == class);
        self.list.selected = at.unwrap_or(self.list.selected);
        true
    }

    pub fn order_by_next(&mut self, backwards: bool) {
        self.order = next_of(&Order::TABLE.map(|(order, ..)| order), self.order, backwards);
        self.arrange();
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ComparisonRequest {
    pub axis: Axis,
    /// Baseline value; `None` selects the natural one.
    pub baseline: Option<String>,
}

impl Default for ComparisonRequest {
    fn default() -> Self {
        Self { axis: Axis::ARCHITECTURE, baseline: None }
    }
}
