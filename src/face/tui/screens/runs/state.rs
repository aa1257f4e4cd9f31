//! State of screen 3: rows and what they have in common. Computed when the runs, the filter or the order change, not
//! while drawing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::cells::{CellKey, PooledCells, RunListCell, cell_numbers};
use super::columns;
use super::edits::RunEdit;
use super::order::{SORT_KEYS, SortOrder};
use super::recorded::TraceLookup;
use crate::desk;
use crate::face::tui::prelude::*;
use crate::face::tui::scope::RunScope;
use plan::Architecture;
use study::analysis::filter::{BoundFilter, Filter};
use study::analysis::run_list::{IfShared, RunListColumn, SCREEN_COLUMNS};
use study::analysis::{RunCell, RunTable, RunTableColumn};
use table::{Provenance, Record, Status, Unit};

pub const DETAILS: u16 = 60;

const EP: &str = "ep";
const DP: &str = "dp";

pub(super) const EXPOSED: &str = "exposed_pct";
pub(super) const HIDDEN: &str = "overlap_pct";
pub(super) const TPOT: &str = "tpot_p50_ms";
pub(super) const TTFT: &str = "prefill_ms";

/// Result that runs on a CPU do not show: they use no GPU.
pub(super) const PER_GPU: &str = "tokens_per_s_per_gpu";

/// Columns always shown first: the architecture and the provenance of the numbers. A provenance that all shown runs have is in
/// the header instead.
pub const PINNED: [&str; 2] = ["architecture", PROVENANCE];
pub const PROVENANCE: &str = "provenance";

pub const SETTING: &str = "setting";

/// Column shown where only the round tells runs apart.
pub(super) const ROUND: &str = "round";

/// Columns before the first one's text: the mark and the status of the run.
pub const STATUS: u16 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunListLine {
    /// Run, as an index into the records.
    Run(u32),
    /// Cell of several runs, as an index into [`Runs::cells`]. Its runs follow if it is unfolded.
    Cell(u32),
    Group {
        /// Record index of a run with the group's value.
        row: u32,
        count: u32,
        running: u32,
        /// Runs that are neither running nor successful.
        bad: u32,
    },
}

/// Rows of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grouping {
    /// One row per cell: its rounds are pooled.
    #[default]
    Cells,
    /// One row per run.
    Runs,
    /// One row per run, under headings with the values of the sort column. With rounds to pool, like [`Self::Cells`].
    Column,
}

#[derive(Debug, Default)]
pub struct Runs {
    pub lines: Vec<RunListLine>,
    pub count: usize,
    /// Stored runs that the scope leaves out: those of other experiments.
    pub out_of_scope: usize,
    pub list: List,
    pub sort: SortOrder,
    /// Experiment that the list is arranged for, `None` for all runs; nothing before the scope is known.
    pub arranged_for: Option<Option<String>>,
    /// Order and grouping of the other experiments, and of all runs (`None`).
    pub orders: HashMap<Option<String>, (SortOrder, Grouping)>,
    /// Run that had the cursor when an order was left, for the return to it.
    pub cursors: HashMap<SortOrder, String>,
    /// Shown columns, by name, in order; empty until rows are arranged.
    pub columns: Vec<String>,
    /// Names of columns that do not distinguish the shown runs: empty, with one value and not [`IfShared::Kept`], or
    /// `tok/s/GPU` of runs on CPUs.
    pub empty: HashSet<String>,
    /// Values of the [`IfShared::Moved`] columns that are not shown: `batch 16`.
    pub shared: Vec<String>,
    /// Options and variables in which the shown runs differ, as indices of columns.
    pub differing: Vec<usize>,
    /// Columns of `differing` that distinguish the selected run from one that looks the same.
    pub unseen: Vec<usize>,
    /// Row of `unseen`; `None` if the rows or the columns changed since.
    pub unseen_row: Option<usize>,
    /// True if some of the shown runs look the same without the column of settings.
    pub needs_setting: bool,
    /// True if some of the shown runs are rounds of one cell.
    pub needs_round: bool,
    /// True if samples of some of the shown runs vary widely, though not their cell's rounds.
    pub has_unsteady: bool,
    /// Runs (full ids) of cells whose rounds vary widely, each with the slowest round over the fastest.
    pub noisy: HashMap<String, f64>,
    /// Largest such ratio among the shown runs.
    pub noise: Option<f64>,
    /// Runs (full ids) that a newer repetition replaces.
    pub replaced: HashSet<String>,
    /// Number of these among the shown runs.
    pub shown_replaced: usize,
    /// True if all shown runs are of one experiment.
    pub is_one_experiment: bool,
    /// True if the shown runs are of several experiments, or of one and of none.
    pub has_sweeps: bool,
    pub has_upper_bound: bool,
    /// True if all shown runs ran on CPUs.
    pub is_on_cpu: bool,
    /// Length of the longest shown text of each column of texts, by name.
    pub longest: HashMap<String, usize>,
    /// Shown runs without a result, by status.
    pub bad: Vec<(Status, usize)>,
    /// Reason no run is shown.
    pub nothing: Option<String>,
    /// Provenance of all shown runs, if they have the same.
    pub provenance: Option<Provenance>,
    /// Model of all shown runs, if they have the same.
    pub model: Option<String>,
    /// Width that the table needs with all columns uncut.
    pub needed: u16,
    /// Unpinned columns scrolled off on the left.
    pub scroll: usize,
    pub filter: FilterBox,
    pub bound: BoundFilter,
    /// Details visibility; `None` shows them if they fit next to the table.
    pub detail: Option<bool>,
    /// Full record of the selected run, once read: rows of batches are listed without their environment.
    pub whole: Option<Box<Record>>,
    pub trace: TraceLookup,
    pub marked: MarkedRuns,
    pub only_marked: bool,
    /// Edits to undo, newest last.
    pub done: Vec<RunEdit>,
    /// Edits to redo, newest last.
    pub undone: Vec<RunEdit>,
    pub grouping: Grouping,
    /// True if some of the shown runs are of one cell, before conditions of the filter on results.
    pub has_rounds: bool,
    /// True if rows are cells with pooled rounds.
    pub by_cell: bool,
    /// Shown cells of several runs, if rounds are pooled.
    pub cells: Vec<RunListCell>,
    pub unfolded: HashSet<CellKey>,
    /// Pooled numbers of the shown cells, kept for the next change of the list.
    pub pooled: PooledCells,
    /// Order that grouping replaced.
    pub ungrouped: Option<SortOrder>,
    /// Width of the groups of a numeric column with many values.
    pub bin: Option<f64>,
    /// Run that an undo brings back, until it is listed again.
    pub restored: Option<String>,
    /// Runs being deleted; no longer shown.
    pub deleting: HashSet<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptRuns {
    sort: SortOrder,
    columns: Vec<String>,
    grouping: Grouping,
    detail: Option<bool>,
    marked: Vec<String>,
    /// Order and grouping by experiment, `None` for all runs.
    arrangements: Vec<(Option<String>, SortOrder, Grouping)>,
}

impl PersistentScreen for Runs {
    type Kept = KeptRuns;

    fn keep(&self) -> Option<KeptRuns> {
        /// Maximum number of marks that are kept: the state is compared after every input.
        const MOST: usize = 1000;
        let Self { sort, columns, grouping, detail, .. } = self;
        let (sort, columns) = (sort.clone(), columns.clone());
        let marked = self.marked.as_slice().iter().take(MOST).cloned().collect();
        let now = self.arranged_for.iter().map(|scope| (scope.clone(), sort.clone(), *grouping));
        let others =
            self.orders.iter().map(|(of, (sort, grouping))| (of.clone(), sort.clone(), *grouping));
        let mut arrangements: Vec<_> = now.chain(others).collect();
        arrangements.sort_by(|a, b| a.0.cmp(&b.0));
        Some(KeptRuns { sort, columns, grouping: *grouping, detail: *detail, marked, arrangements })
    }

    /// Restores saved state, with the cursor of that order; unknown columns are skipped when the rows are arranged.
    fn restore(&mut self, kept: KeptRuns, cx: &mut Context) {
        let KeptRuns { mut sort, columns, grouping, detail, marked, arrangements } = kept;
        sort.truncate(SORT_KEYS);
        self.orders =
            arrangements.into_iter().map(|(of, sort, grouping)| (of, (sort, grouping))).collect();
        marked.into_iter().for_each(|run| self.marked.insert(run));
        if !columns.is_empty() {
            self.columns = with_pinned(columns);
            self.unseen_row = None;
        }
        (self.grouping, self.detail) = (grouping, detail);
        if self.leave_order(cx, |runs| runs.sort = sort)
            && let (Some(run), Some(stored)) = (self.cursors.remove(&self.sort), &cx.stored)
        {
            self.select(&run, stored, self.list.selected);
        }
    }
}

impl Runs {
    pub fn shows_detail(&self, columns: u16) -> bool {
        self.detail.unwrap_or(columns >= self.needed.saturating_add(DETAILS))
    }

    /// Record index of the selected run, or of the run that represents the selected cell.
    pub fn row(&self) -> Option<usize> {
        match self.lines.get(self.list.selected)? {
            RunListLine::Run(row) => Some(*row as usize),
            RunListLine::Cell(at) => Some(self.cells.get(*at as usize)?.row as usize),
            RunListLine::Group { .. } => None,
        }
    }

    /// Selected cell of several runs.
    pub fn selected_cell(&self) -> Option<&RunListCell> {
        match self.lines.get(self.list.selected)? {
            RunListLine::Cell(at) => self.cells.get(*at as usize),
            _ => None,
        }
    }

    /// Record indices of the runs of a line; empty for an unfolded cell, whose runs follow as lines.
    pub(super) fn rows_of<'a>(&'a self, line: &'a RunListLine) -> &'a [u32] {
        match line {
            RunListLine::Run(row) => std::slice::from_ref(row),
            RunListLine::Cell(at) => match self.cells.get(*at as usize) {
                Some(cell) if !cell.is_unfolded => &cell.rows,
                _ => &[],
            },
            RunListLine::Group { .. } => &[],
        }
    }

    pub fn selected<'a>(&self, snapshot: Option<&'a Arc<Snapshot>>) -> Option<&'a Record> {
        snapshot?.records.get(self.row()?)
    }

    /// Record indices of the shown runs, with those of folded cells.
    pub fn rows(&self) -> impl Iterator<Item = u32> {
        self.lines.iter().flat_map(move |line| self.rows_of(line)).copied()
    }

    /// Ids of the selected run, or of all runs of the selected cell.
    pub fn under_cursor(&self, snapshot: Option<&Arc<Snapshot>>) -> Vec<String> {
        let rows: Vec<usize> = match self.selected_cell() {
            Some(cell) => cell.rows.iter().map(|row| *row as usize).collect(),
            None => self.row().into_iter().collect(),
        };
        let run = |row: usize| Some(snapshot?.records.get(row)?.run.clone());
        rows.into_iter().filter_map(run).collect()
    }

    /// Marked runs, or those under the cursor if none is marked.
    pub fn chosen(&self, snapshot: Option<&Arc<Snapshot>>) -> Vec<String> {
        if self.marked.is_empty() {
            self.under_cursor(snapshot)
        } else {
            self.marked.as_slice().to_vec()
        }
    }

    /// Selects a run or its folded cell, or the line at `place` if it is not shown.
    pub fn select(&mut self, run: &str, snapshot: &Snapshot, place: usize) {
        let is = |row: &u32| snapshot.records.get(*row as usize).is_some_and(|r| r.run == run);
        let at = self.lines.iter().position(|line| self.rows_of(line).iter().any(is));
        self.list.selected = at.unwrap_or(place.min(self.lines.len().saturating_sub(1)));
    }

    /// Line of the first run.
    pub fn first_run(&self) -> usize {
        usize::from(matches!(self.lines.first(), Some(RunListLine::Group { .. })))
    }

    /// Filters and sorts the lines, keeping the selected run if possible.
    pub fn arrange(&mut self, snapshot: Option<&Snapshot>) {
        if self.columns.is_empty() {
            self.columns = SCREEN_COLUMNS.iter().map(|column| column.name.to_owned()).collect();
        }
        let (held, is_cell) = (self.row(), self.selected_cell().is_some());
        self.cells.clear();
        let Some(snapshot) = snapshot else {
            (self.lines, self.count) = (Vec::new(), 0);
            return;
        };
        let (records, table) = (&snapshot.records, &snapshot.table);
        let (bound, mut rows) = self.filter.rows(snapshot);
        self.bound = bound;
        rows = self.rows_of_passing_cells(snapshot, rows);
        let run = |row: &u32| records.get(*row as usize).map_or("", |record| record.run.as_str());
        if !self.deleting.is_empty() {
            rows.retain(|row| !self.deleting.contains(run(row)));
        }
        if self.only_marked {
            rows.retain(|row| self.marked.contains(run(row)));
        }
        let numbers = cell_numbers(snapshot, &rows);
        self.has_rounds |= numbers.is_some();
        let numbers = numbers.filter(|_| self.grouping != Grouping::Runs);
        self.by_cell = numbers.is_some();
        self.note_result(table, &rows);
        self.order(snapshot, &mut rows);
        self.differing = columns::differing(table, &rows);
        self.count = rows.len();
        self.out_of_scope = records.iter().filter(|record| !self.filter.holds(&record.run)).count();
        let of = |status: Status| {
            let is = |row: &&u32| records.get(**row as usize).is_some_and(|run| run.status == status);
            (status, rows.iter().filter(is).count())
        };
        self.bad = [Status::Failed, Status::Interrupted].map(of).into_iter().collect();
        self.bad.retain(|(_, runs)| *runs > 0);
        self.nothing = match (rows.is_empty(), self.only_marked) {
            (true, true) => Some("no marked run matches the filter".into()),
            (true, false) => {
                let filter = Filter::parse(self.filter.value());
                let scope = self.filter.scope.as_ref().and_then(RunScope::runs);
                let of_scope = || scope?.why_nothing(&filter, snapshot);
                filter.why_nothing(table).or_else(of_scope)
            }
            (false, _) => None,
        };
        let group = self.group(table);
        self.bin = group.and_then(|column| bin_width(table.columns().get(column)?, &rows));
        self.lines = match (group, numbers) {
            (_, Some(numbers)) => self.lines_by_cell(snapshot, &numbers, &rows),
            (Some(column), None) => grouped(snapshot, column, &rows, self.bin),
            (None, None) => rows.into_iter().map(RunListLine::Run).collect(),
        };
        let has = |rows: &[u32]| held.is_some_and(|held| rows.contains(&(held as u32)));
        let is_held = |line: &RunListLine| match line {
            // the cursor stays on the line of an unfolded cell
            RunListLine::Cell(at) if is_cell => has(&self.cells[*at as usize].rows),
            line => has(self.rows_of(line)),
        };
        let at = self.lines.iter().position(is_held);
        self.list.selected = at.unwrap_or_else(|| self.first_run());
        let shown = || self.rows().filter_map(|row| records.get(row as usize));
        let provenance = only(shown().map(|record| record.provenance));
        let model = only(shown().map(|record| &record.spec.model)).cloned();
        let experiment = only(shown().map(|record| record.experiment.as_deref()));
        let is_bound = |record: &Record| record.spec.architecture == Architecture::UpperBound;
        let has_upper_bound = shown().any(is_bound);
        let is_on_cpu = shown().all(|record| record.spec.backend.computes_on_cores());
        // a noisy cell has another mark
        let is_marked = |record: &Record| is_unsteady(record) && !self.noisy.contains_key(&record.run);
        let has_unsteady = shown().any(is_marked);
        let is_replaced = |record: &&Record| self.replaced.contains(&record.run);
        let shown_replaced = match self.replaced.is_empty() {
            true => 0,
            false => shown().filter(is_replaced).count(),
        };
        self.is_one_experiment = experiment.is_some_and(|name| name.is_some());
        (self.has_sweeps, self.has_upper_bound) = (experiment.is_none(), has_upper_bound);
        (self.has_unsteady, self.is_on_cpu) = (has_unsteady, is_on_cpu);
        let ratio = |row: u32| self.noisy.get(&records.get(row as usize)?.run).copied();
        let is_noisy = !self.noisy.is_empty();
        self.shown_replaced = shown_replaced;
        self.noise = self.rows().filter(|_| is_noisy).filter_map(ratio).max_by(f64::total_cmp);
        (self.provenance, self.model) = (provenance, model);
        self.note_empty(table);
    }

    /// Notes whether these rows have TPOT, before they are ordered by it: the rows before them may have had none.
    fn note_result(&mut self, table: &RunTable, rows: &[u32]) {
        let has = |name: &str| {
            let column = table.find(name).and_then(|at| table.columns().get(at));
            column.is_some_and(|of| rows.iter().any(|row| of.cell(*row as usize) != RunCell::Nothing))
        };
        match has(TPOT) || !has(TTFT) {
            true => _ = self.empty.remove(TPOT),
            false => _ = self.empty.insert(TPOT.to_owned()),
        }
    }

    /// Updates the list of columns that tell nothing, the longest texts, and the width all columns need.
    pub fn note_empty(&mut self, table: &RunTable) {
        let says = |name: &&String| {
            let column = table.find(name).and_then(|at| table.columns().get(at));
            column.is_some_and(|column| {
                let mut cells = self.rows().map(|row| column.cell(row as usize));
                let differs = || column.differs(self.rows().map(|row| row as usize));
                match columns::if_shared(name) {
                    _ if self.is_on_cpu && *name == PER_GPU => false,
                    IfShared::Omitted => differs(),
                    IfShared::Moved => self.count == 1 || differs(),
                    IfShared::Kept => !column.is_blank() && cells.any(|cell| cell != RunCell::Nothing),
                }
            })
        };
        self.empty = self.columns.iter().filter(|name| !says(name)).cloned().collect();
        let first = self.rows().next();
        let value = |column: &RunListColumn| {
            let is_moved = column.if_shared == IfShared::Moved && self.empty.contains(column.name);
            let column = table.columns().get(table.find(column.name).filter(|_| is_moved)?)?;
            Some(format!("{} {}", columns::name(column), columns::cell_text(column, first? as usize)))
        };
        self.shared = SCREEN_COLUMNS.iter().filter_map(value).collect();
        let longest = |name: &String| {
            let column = table.columns().get(table.find(name)?)?;
            let length = |row: u32| match column.cell(row as usize) {
                RunCell::Text(text) => text.chars().count(),
                _ => 0,
            };
            let longest = match self.count == table.len() {
                true => column.longest,
                false => self.rows().map(length).max().unwrap_or(0),
            };
            (!column.field.unit.is_number()).then(|| (column.field.name.to_string(), longest))
        };
        self.longest = self.columns.iter().filter_map(longest).collect();
        self.needs_round = columns::needs_round(self, table);
        self.needed = columns::needed(self, table);
        self.needs_setting = columns::needs_setting(self, table);
        self.unseen_row = None;
    }

    pub fn group(&self, table: &RunTable) -> Option<usize> {
        let is_grouped = self.grouping == Grouping::Column && !self.by_cell;
        let name = &self.sort.first().filter(|(name, _)| is_grouped && name != "run")?.0;
        table.find(name)
    }

    /// Arguments of `ladderscope runs` for the filter and order.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec!["runs".to_owned()];
        let mut filter = self.filter.text().trim().to_owned();
        if self.only_marked && !self.marked.is_empty() {
            filter = format!("{filter} id={}", self.marked.as_slice().join("|")).trim().to_owned();
        }
        if !filter.is_empty() {
            words.extend(["--filter".into(), filter]);
        }
        let key = |(name, down): &(String, bool)| format!("{name}{}", if *down { ":desc" } else { "" });
        let sort: Vec<String> = self.marked_order().iter().map(key).collect();
        words.extend(["--sort".into(), sort.join(",")]);
        let is_shown =
            |name: &&String| ![EP, DP].contains(&name.as_str()) || !self.empty.contains(*name);
        let columns: Vec<&str> = self.columns.iter().filter(is_shown).map(String::as_str).collect();
        if !columns.is_empty() {
            words.extend(["--columns".into(), columns.join(",")]);
        }
        words
    }
}

/// True if the samples of an executed run vary widely: some stalled.
pub fn is_unsteady(record: &Record) -> bool {
    !record.spec.backend.is_simulated() && desk::unsteady_mean_ms(record).is_some()
}

/// Value that all items have; `None` if they differ or there are none.
fn only<T: PartialEq>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next()?;
    items.all(|item| item == first).then_some(first)
}

/// Prepends the pinned columns.
pub fn with_pinned(columns: Vec<String>) -> Vec<String> {
    let mut all: Vec<String> = PINNED.map(String::from).into();
    for name in columns {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

/// Width of groups of a measured number: 1, 2 or 5 times a power of ten, for about eight groups. `None` if the column has few
/// values or counts something.
fn bin_width(column: &RunTableColumn, rows: &[u32]) -> Option<f64> {
    /// Maximum number of distinct values that are groups of their own.
    const FEW: usize = 12;
    if !column.field.unit.is_number() || column.field.unit == Unit::Count {
        return None;
    }
    let mut values: Vec<f64> = rows.iter().filter_map(|row| number(column, *row)).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let range = values.last()? - values.first()?;
    if values.len() <= FEW || !range.is_finite() || range <= 0.0 {
        return None;
    }
    let power = 10f64.powf((range / 8.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * power).find(|width| range / width <= 8.0)
}

/// Value of a numeric column.
pub fn number(column: &RunTableColumn, row: u32) -> Option<f64> {
    match column.cell(row as usize) {
        RunCell::Number(value) => Some(value),
        _ => None,
    }
}

/// Inserts a header before each group of equal values, or of values in the same bin; rows must be sorted by the column.
fn grouped(snapshot: &Snapshot, column: usize, rows: &[u32], bin: Option<f64>) -> Vec<RunListLine> {
    let Some(column) = snapshot.table.columns().get(column) else { return Vec::new() };
    let status = |row: &u32| snapshot.records.get(*row as usize).map(|record| record.status);
    let mut lines = Vec::with_capacity(rows.len() + 16);
    let place = |row: u32, width: f64| number(column, row).map(|value| (value / width).floor() as i64);
    let same = |a: &u32, b: &u32| match bin {
        Some(width) => place(*a, width) == place(*b, width),
        None => column.same(*a as usize, *b as usize),
    };
    for group in rows.chunk_by(same) {
        let of = |wanted| group.iter().filter(|row| status(row) == Some(wanted)).count() as u32;
        let (count, running) = (group.len() as u32, of(Status::Running));
        let bad = count - running - of(Status::Ok);
        lines.push(RunListLine::Group { row: group[0], count, running, bad });
        lines.extend(group.iter().copied().map(RunListLine::Run));
    }
    lines
}

#[derive(Clone, Debug, Default)]
pub struct MarkedRuns {
    order: Vec<String>,
    all: HashSet<String>,
}

impl MarkedRuns {
    pub fn insert(&mut self, run: String) {
        if self.all.insert(run.clone()) {
            self.order.push(run);
        }
    }

    pub fn toggle(&mut self, run: String) {
        if self.contains(&run) {
            self.retain(|marked| marked != run);
        } else {
            self.insert(run);
        }
    }

    pub fn contains(&self, run: &str) -> bool {
        self.all.contains(run)
    }

    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.order.retain(|run| keep(run));
        self.all.retain(|run| keep(run));
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn as_slice(&self) -> &[String] {
        &self.order
    }
}
