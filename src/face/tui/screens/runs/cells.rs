//! Cells of screen 3: rounds of one cell pooled into one row that unfolds, cells that vary widely between their rounds, and
//! runs that a newer repetition replaces.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rayon::prelude::*;

use super::columns::cell_text;
use super::state::{Grouping, ROUND, RunListLine, Runs, TPOT, number};
use crate::face::tui::prelude::*;
use base::statistics::{extent, grouped};
use study::analysis::filter::{Filter, Term, Test};
use study::analysis::{RunTable, RunTableColumn, WideRounds};
use table::{CellRuns, Provenance, Record, host, measure};

/// Pooled numbers of a cell's runs.
#[derive(Debug)]
pub struct PooledRounds {
    /// Newest run with numbers, with the numbers of all that count.
    pub record: Record,
    /// Runs with numbers that count: of a repeated experiment, those of its newest complete repetition.
    pub counted: usize,
    /// Lowest and highest TPOT of these runs (ms).
    pub tpot_ms: Option<[f64; 2]>,
}

impl PooledRounds {
    /// Pools runs of one cell, oldest first; `None` without runs.
    fn new(runs: Vec<&Record>) -> Option<Self> {
        let cell = CellRuns::new(runs);
        let tpot = |run: &Record| run.metrics.as_ref().map(|metrics| metrics.tpot_ms.p50);
        let tpot_ms = extent(cell.ok().filter_map(tpot));
        Some(Self { record: cell.record()?, counted: cell.ok().count(), tpot_ms })
    }
}

/// Cache key of pooled numbers: the full ids of a cell's runs, each with true if the run has numbers.
type PooledRuns = Vec<(String, bool)>;

/// Cache of pooled cells by their runs: a change of the list pools only cells whose runs changed.
pub type PooledCells = HashMap<PooledRuns, Arc<PooledRounds>>;

/// Marked run, or the run that represents a cell of which all runs are marked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkedSide {
    pub run: String,
    pub is_cell: bool,
}

/// Cell of several shown runs, which is one line of the list until it is unfolded.
#[derive(Debug)]
pub struct RunListCell {
    /// Record indices of its shown runs, in the order of the list.
    pub rows: Vec<u32>,
    /// Record index of the run that represents the cell where a single run is needed.
    pub row: u32,
    pub pooled: Arc<PooledRounds>,
    pub is_unfolded: bool,
    /// Median TPOT with its interval: `66.1 [23.2, 73.6]`.
    pub tpot: String,
    /// Number of runs and the range of their TPOT: `3, 23.3 to 70.4 ms`.
    pub rounds: String,
}

/// Key and machine of a cell.
pub type CellKey = (String, Option<String>);

impl RunListCell {
    fn new(rows: Vec<u32>, pooled: Arc<PooledRounds>, stored: &Snapshot) -> Self {
        let id = |row: &u32| stored.records.get(*row as usize).map(|record| &record.run);
        let newest = rows.iter().copied().find(|row| id(row) == Some(&pooled.record.run));
        let row = newest.unwrap_or(rows[0]);
        let tpot = measure(TPOT).and_then(|tpot| Some((tpot.of(&pooled.record)?, tpot)));
        let tpot = tpot.map_or("-".into(), |(value, tpot)| match tpot.interval_of(&pooled.record) {
            Some([low, high]) => format!("{} [{}, {}]", digits(value), digits(low), digits(high)),
            None => digits(value),
        });
        let count = match (pooled.counted, rows.len()) {
            (counted, all) if counted == all => counted.to_string(),
            (counted, all) => format!("{counted} of {all} runs"),
        };
        let ends = pooled.tpot_ms.map(|ends| ends.map(digits));
        let range = ends.map(|[low, high]| match low == high {
            true => String::new(),
            false => format!(", {low} to {high} ms"),
        });
        let rounds = count + &range.unwrap_or_default();
        Self { rows, row, pooled, is_unfolded: false, tpot, rounds }
    }

    pub fn key(&self) -> CellKey {
        (self.pooled.record.spec.key(), host(&self.pooled.record))
    }

    /// Text in a column: pooled numbers, and other values that all its runs share.
    pub fn text(&self, column: &RunTableColumn) -> String {
        let field = &column.field;
        match &*field.name {
            ROUND => self.rounds.clone(),
            TPOT => self.tpot.clone(),
            _ if field.is_measure() => {
                field.number(&self.pooled.record).map_or("-".into(), |value| field.unit.cell(value))
            }
            _ if column.differs(self.rows.iter().map(|row| *row as usize)) => String::new(),
            _ => cell_text(column, self.row as usize),
        }
    }
}

/// Cell number of each record, valid only for these rows; `None` if no cell has more than one of them.
pub fn cell_numbers(stored: &Snapshot, rows: &[u32]) -> Option<Vec<u32>> {
    let mut is_shown = vec![false; stored.records.len()];
    rows.iter().for_each(|row| is_shown[*row as usize] = true);
    let (mut numbers, mut next, mut has_rounds) = (vec![0; is_shown.len()], 0, false);
    for runs in stored.cells.values() {
        let shown = runs.iter().copied().filter(|run| is_shown[*run]);
        // runs on different machines are different cells
        for (_, runs) in grouped(shown.map(|run| (host(&stored.records[run]), run))) {
            has_rounds |= runs.len() > 1;
            runs.into_iter().for_each(|run| numbers[run] = next);
            next += 1;
        }
    }
    has_rounds.then_some(numbers)
}

/// Rows of each cell, in the order of its first row.
fn rows_by_cell(numbers: &[u32], rows: &[u32]) -> Vec<Vec<u32>> {
    let mut places: HashMap<u32, usize> = HashMap::new();
    let mut cells: Vec<Vec<u32>> = Vec::new();
    for row in rows {
        let at = *places.entry(numbers[*row as usize]).or_insert_with(|| {
            cells.push(Vec::new());
            cells.len() - 1
        });
        cells[at].push(*row);
    }
    cells
}

impl Runs {
    /// Lines with one row per cell, by the pooled value of the column that orders the list; a cell of one run is that run.
    pub(super) fn lines_by_cell(
        &mut self,
        stored: &Snapshot,
        numbers: &[u32],
        rows: &[u32],
    ) -> Vec<RunListLine> {
        let mut cells = self.pool(stored, rows_by_cell(numbers, rows));
        let order = self.marked_order().into_iter().next();
        let order = order.and_then(|(name, down)| Some((stored.table.find(&name)?, down)));
        let order = order.map(|(at, down)| (&stored.table.columns()[at], down));
        if let Some((column, down)) = order.filter(|(column, _)| column.field.is_measure()) {
            let value = |(rows, pooled): &(Vec<u32>, Option<Arc<PooledRounds>>)| {
                let pooled = pooled.as_ref().and_then(|pooled| column.field.number(&pooled.record));
                pooled.or_else(|| number(column, rows[0]))
            };
            cells.sort_by(|a, b| compare(value(a), value(b), down));
            let place = self.place_among_results(stored);
            cells.sort_by_cached_key(|(rows, _)| place(rows[0]));
        }
        let (mut lines, mut pooled_cells) = (Vec::with_capacity(cells.len()), Vec::new());
        for (rows, pooled) in cells {
            let Some(pooled) = pooled else {
                lines.extend(rows.into_iter().map(RunListLine::Run));
                continue;
            };
            let mut cell = RunListCell::new(rows, pooled, stored);
            cell.is_unfolded = !self.unfolded.is_empty() && self.unfolded.contains(&cell.key());
            lines.push(RunListLine::Cell(pooled_cells.len() as u32));
            if cell.is_unfolded {
                lines.extend(cell.rows.iter().copied().map(RunListLine::Run));
            }
            pooled_cells.push(cell);
        }
        self.cells = pooled_cells;
        lines
    }

    /// Rows in the scope that pass the conditions of the filter on anything but results, and its conditions on results.
    fn rows_by_options(&self, stored: &Snapshot) -> (Vec<u32>, Vec<Term>) {
        let table = &stored.table;
        let is_on_result = |term: &Term| match &term.test {
            Test::Field { name, .. } => {
                table.find(name).is_some_and(|at| table.columns()[at].field.is_measure())
            }
            Test::Word { .. } => false,
        };
        let terms = Filter::parse(self.filter.value()).terms;
        let (on_results, others): (Vec<Term>, Vec<Term>) = terms.into_iter().partition(is_on_result);
        let (others, _) = Filter { terms: others }.bind(table);
        let mut rows = others.rows(table);
        rows.retain(|row| self.filter.holds(&stored.records[*row as usize].run));
        (rows, on_results)
    }

    /// Rows that the filter leaves if cells are pooled: its conditions on results then hold for the pooled numbers of a
    /// cell, not for each of its rounds. Notes if some of the rows without these conditions are of one cell.
    pub(super) fn rows_of_passing_cells(&mut self, stored: &Snapshot, rows: Vec<u32>) -> Vec<u32> {
        self.has_rounds = false;
        if self.filter.value().trim().is_empty() {
            return rows;
        }
        let (mut all, on_results) = self.rows_by_options(stored);
        if on_results.is_empty() {
            return rows;
        }
        let Some(numbers) = cell_numbers(stored, &all) else { return rows };
        self.has_rounds = true;
        if self.grouping == Grouping::Runs {
            return rows;
        }
        let cells = self.pool(stored, rows_by_cell(&numbers, &all));
        let pooled = cells.iter().filter_map(|(_, pooled)| Some(pooled.as_ref()?.record.clone()));
        let pooled = RunTable::new(&pooled.collect::<Vec<_>>(), &stored.annotations);
        let (on_results, _) = Filter { terms: on_results }.bind(&pooled);
        let passing: HashSet<u32> = on_results.rows(&pooled).into_iter().collect();
        let single: HashSet<u32> = rows.into_iter().collect();
        let (mut passes, mut at) = (HashSet::new(), 0);
        for (rows, pooled) in cells {
            let passes_here = match pooled {
                Some(_) => {
                    at += 1;
                    passing.contains(&(at - 1))
                }
                None => rows.iter().all(|row| single.contains(row)),
            };
            passes.extend(rows.into_iter().filter(|_| passes_here));
        }
        all.retain(|row| passes.contains(row));
        all
    }

    /// Pools the numbers of each cell with several runs; `None` for a single run.
    fn pool(
        &mut self,
        stored: &Snapshot,
        cells: Vec<Vec<u32>>,
    ) -> Vec<(Vec<u32>, Option<Arc<PooledRounds>>)> {
        let known = &self.pooled;
        let pool = |rows: &Vec<u32>| {
            let mut rows = rows.clone();
            rows.sort_unstable();
            let runs: Vec<&Record> = rows.iter().map(|row| &stored.records[*row as usize]).collect();
            let key: PooledRuns = runs.iter().map(|run| (run.run.clone(), run.has_numbers())).collect();
            let pooled = match known.get(&key) {
                Some(pooled) => Arc::clone(pooled),
                None => Arc::new(PooledRounds::new(runs)?),
            };
            Some((key, pooled))
        };
        let pool = |rows: &Vec<u32>| if rows.len() > 1 { pool(rows) } else { None };
        let pooled: Vec<Option<(PooledRuns, Arc<PooledRounds>)>> = cells.par_iter().map(pool).collect();
        self.pooled = pooled.iter().flatten().cloned().collect();
        let of_cell = pooled.into_iter().map(|pooled| pooled.map(|(_, pooled)| pooled));
        cells.into_iter().zip(of_cell).collect()
    }

    /// Folds or unfolds the selected cell; returns false if the selected line is not a cell.
    pub(super) fn toggle_cell(&mut self, cx: &Context) -> bool {
        let Some(key) = self.selected_cell().map(RunListCell::key) else { return false };
        if !self.unfolded.remove(&key) {
            self.unfolded.insert(key);
        }
        self.arrange(cx.stored.as_deref());
        true
    }

    /// Marked runs; a cell with all its runs marked counts as one.
    pub(super) fn marked_sides(&self, stored: Option<&Arc<Snapshot>>) -> Vec<MarkedSide> {
        let side = |run: &String| MarkedSide { run: run.clone(), is_cell: false };
        let mut marked: Vec<MarkedSide> = self.marked.as_slice().iter().map(side).collect();
        let run = |row: &u32| Some(stored?.records.get(*row as usize)?.run.as_str());
        for cell in &self.cells {
            let runs: Vec<&str> = cell.rows.iter().filter_map(run).collect();
            if runs.iter().all(|run| self.marked.contains(run)) {
                let kept = run(&cell.row);
                marked.retain_mut(|side| {
                    let is_of_cell = runs.contains(&side.run.as_str());
                    side.is_cell |= is_of_cell;
                    !is_of_cell || Some(side.run.as_str()) == kept
                });
            }
        }
        marked
    }
}

/// Compares values in a direction; missing ones come last in either.
fn compare(a: Option<f64>, b: Option<f64>, is_descending: bool) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) if is_descending => b.total_cmp(&a),
        (Some(a), Some(b)) => a.total_cmp(&b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

/// Runs (full ids) of measured cells whose rounds vary widely, each with the slowest round over the fastest. Covers all
/// stored runs, because a filter that leaves only the fastest round must not hide slower ones.
pub fn noisy_runs(stored: &Snapshot) -> HashMap<String, f64> {
    let mut noisy = HashMap::new();
    let is_measured = |run: &&Record| run.provenance != Provenance::Simulated;
    for runs in stored.cells.values().filter(|runs| runs.len() > 1) {
        let runs = runs.iter().filter_map(|run| stored.records.get(*run)).filter(is_measured);
        // runs on different machines are different cells
        for (_, runs) in grouped(runs.map(|run| (host(run), run))) {
            let cell = CellRuns::new(runs);
            if let Some(wide) = WideRounds::of_cell(&cell) {
                noisy.extend(cell.runs.iter().map(|run| (run.run.clone(), wide.ratio())));
            }
        }
    }
    noisy
}

/// Runs (full ids) that a newer repetition of their experiment replaces: pooled numbers leave them out.
pub fn replaced_runs(stored: &Snapshot) -> HashSet<String> {
    let mut replaced = HashSet::new();
    for runs in stored.cells.values().filter(|runs| runs.len() > 1) {
        let runs = runs.iter().filter_map(|run| stored.records.get(*run));
        // runs on different machines are different cells
        for (_, runs) in grouped(runs.map(|run| (host(run), run))) {
            let counted = CellRuns::new(runs.clone()).runs.into_iter();
            let counted: HashSet<&str> = counted.map(|run| run.run.as_str()).collect();
            let is_counted = |run: &Record| counted.contains(run.run.as_str());
            // runs after the last one that counts belong to a repetition that is not complete yet
            let last = runs.iter().rposition(|run| is_counted(run)).unwrap_or_default();
            let older = runs[..last].iter().filter(|run| !is_counted(run));
            replaced.extend(older.map(|run| run.run.clone()));
        }
    }
    replaced
}
