//! Order of screen 3: as it opens, the best runs first; later by the columns that the user sorts by.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::columns;
use super::state::{Grouping, ROUND, Runs, TPOT, TTFT};
use crate::face::tui::prelude::*;
use plan::Architecture;
use study::analysis::RunTable;
use table::{Record, Unit};

/// Maximum number of sort columns; later ones break ties.
pub const SORT_KEYS: usize = 3;

/// Sort columns by priority, and true for descending. `run` means creation order. Empty for the order in which the screen
/// opens.
pub type SortOrder = Vec<(String, bool)>;

const ARCHITECTURE: &str = "architecture";

impl Runs {
    pub(super) fn order(&self, stored: &Snapshot, rows: &mut Vec<u32>) {
        let mut sort = self.sort.clone();
        if sort.is_empty() {
            // as the screen opens: the lowest TPOT first (of prefills, TTFT)
            sort.extend([TPOT, TTFT].map(|name| (name.to_owned(), false)));
        }
        // records are in creation order, which has no ties, so later keys have no effect
        let creation = sort.iter().position(|(name, _)| name == "run");
        if creation.is_none_or(|at| sort[at].1) {
            rows.reverse();
        }
        let before = &sort[..creation.unwrap_or(sort.len())];
        // skip columns that no longer exist
        let table = &stored.table;
        let keys: Vec<(usize, bool)> =
            before.iter().filter_map(|(name, down)| Some((table.find(name)?, *down))).collect();
        table.sort(rows, &keys);
        if self.is_by_result() {
            let place = self.place_among_results(stored);
            rows.sort_by_cached_key(|row| place(*row));
        } else if self.is_by_architecture() {
            let run = |row: &u32| stored.records.get(*row as usize);
            rows.sort_by_key(|row| run(row).is_some_and(|run| run.spec.architecture.is_limit()));
        }
    }

    /// True for an order by a result or the rounds, in which `upper-bound` comes last. Groups of a column need their values next to one
    /// another.
    fn is_by_result(&self) -> bool {
        match self.sort.first() {
            Some((name, _)) => {
                let has_headings = self.grouping == Grouping::Column && !self.by_cell;
                !has_headings && (name == ROUND || table::measure(name).is_some())
            }
            None => true,
        }
    }

    fn is_by_architecture(&self) -> bool {
        self.sort.first().is_some_and(|(name, _)| name == ARCHITECTURE)
    }

    /// Sort key that precedes the result. In the default order, the newest sweep comes first, unless the scope is one
    /// experiment.
    pub(super) fn place_among_results<'a>(
        &'a self,
        stored: &'a Snapshot,
    ) -> impl Fn(u32) -> (Reverse<usize>, u8) + use<'a> {
        let (records, replaced) = (&stored.records, &self.replaced);
        let sweeps = (0..).zip(records.iter()).map(|(at, run)| (run.experiment.as_deref(), at));
        let newest: HashMap<Option<&str>, usize> =
            match self.sort.is_empty() && self.filter.experiment().is_none() {
                true => sweeps.collect(),
                false => HashMap::new(),
            };
        move |row| {
            let record = records.get(row as usize);
            let sweep = record.and_then(|record| newest.get(&record.experiment.as_deref()));
            let rank = record.map_or(3, |record| match result_rank(record) {
                0 | 1 if replaced.contains(&record.run) => 2,
                rank => rank,
            });
            (Reverse(sweep.copied().unwrap_or(0)), rank)
        }
    }

    /// Order that the titles mark; of the order in which the screen opens, its main column.
    pub fn marked_order(&self) -> SortOrder {
        match self.sort.is_empty() {
            true => vec![(self.result().to_owned(), false)],
            false => self.sort.clone(),
        }
    }

    /// Result that the screen sorts by as it opens.
    fn result(&self) -> &'static str {
        if self.empty.contains(TPOT) { TTFT } else { TPOT }
    }

    /// Names the order: `lowest TPOT first, upper-bound last`.
    pub fn order_words(&self, table: &RunTable) -> String {
        let title = |name: &str| order_title(table, name);
        let bound = self.bound_words();
        match self.sort.as_slice() {
            [] => {
                let lowest = format!("lowest {} first", title(self.result()));
                match self.orders_sweeps() {
                    true => format!("newest sweep, then {lowest}{bound}"),
                    false => format!("{lowest}{bound}"),
                }
            }
            [(name, true), ..] if name == "run" => "newest first".to_owned(),
            [(name, false), ..] if name == "run" => "oldest first".to_owned(),
            [(name, down), ties @ ..] => {
                let first = match (unit(table, name).is_number(), *down) {
                    (true, true) => format!("highest {} first", title(name)),
                    (true, false) => format!("lowest {} first", title(name)),
                    (false, true) => format!("by {} (Z to A)", title(name)),
                    (false, false) => format!("by {} (A to Z)", title(name)),
                };
                let then = |words: String, (name, _): &(String, bool)| {
                    format!("{words}, then by {}", title(name))
                };
                ties.iter().fold(first, then) + bound
            }
        }
    }

    pub(super) fn bound_words(&self) -> &'static str {
        let is_last = self.is_by_result() || self.is_by_architecture();
        if self.has_upper_bound && is_last { ", upper-bound last" } else { "" }
    }

    /// Like [`Self::order_words`], for a narrow window.
    pub fn short_order_words(&self, table: &RunTable) -> String {
        let marked = |name: &str, down: bool| format!("{}{}", order_title(table, name), arrow(down));
        let first = match self.sort.first() {
            Some((name, _)) if name == "run" => self.order_words(table),
            Some((name, down)) => format!("by {}", marked(name, *down)),
            None if self.orders_sweeps() => format!("by sweep, {}", marked(self.result(), false)),
            None => format!("by {}", marked(self.result(), false)),
        };
        first + self.bound_words()
    }

    /// True if the default order has runs of several sweeps to order.
    fn orders_sweeps(&self) -> bool {
        self.has_sweeps && self.filter.experiment().is_none()
    }

    /// Order that a command line cannot express, in words.
    pub fn order_beyond(&self) -> Option<String> {
        let (is_default, has_bound) = (self.sort.is_empty(), !self.bound_words().is_empty());
        let words = if is_default { "the default order" } else { "upper-bound last" };
        (has_bound || is_default && self.orders_sweeps()).then(|| words.to_owned())
    }

    /// Restores the order last used for the experiment in scope, or the default order.
    pub(super) fn follow_scope(&mut self) {
        if self.filter.scope.is_none() {
            return;
        }
        let scope = self.filter.experiment().map(str::to_owned);
        let left = self.arranged_for.replace(scope.clone());
        // a saved order of an older version belongs to no experiment
        if left.as_ref() == Some(&scope) || left.is_none() && self.orders.is_empty() {
            return;
        }
        let (sort, grouping) = self.orders.remove(&scope).unwrap_or_default();
        let sort = std::mem::replace(&mut self.sort, sort);
        let grouping = std::mem::replace(&mut self.grouping, grouping);
        if let Some(left) = left {
            self.orders.insert(left, (sort, grouping));
        }
        self.ungrouped = None;
    }

    /// Sorts anew: the cursor goes to the first run, which is what one sorts for.
    pub fn sort_anew(&mut self, cx: &Context, sort: impl FnOnce(&mut Self)) {
        if self.leave_order(cx, sort) {
            (self.list.selected, self.list.offset) = (self.first_run(), 0);
        }
    }

    /// Changes the order and remembers the run under the cursor for the return to the one before; false if it is the same.
    pub fn leave_order(&mut self, cx: &Context, change: impl FnOnce(&mut Self)) -> bool {
        let before = self.sort.clone();
        let held = self.selected(cx.stored.as_ref()).map(|record| record.run.clone());
        change(self);
        self.arrange(cx.stored.as_deref());
        let has_changed = self.sort != before;
        if has_changed {
            self.cursors.extend(held.map(|run| (before, run)));
        }
        has_changed
    }

    /// Sorts by this column alone; by the first one again reverses it.
    pub fn sort_by(&mut self, name: &str, unit: Unit) {
        match self.sort.first_mut() {
            Some((first, down)) if first == name => *down = !*down,
            _ => self.sort = vec![(name.to_owned(), is_down_first(name, unit))],
        }
    }

    /// Breaks ties of the order by another column, or reverses it if the order has it.
    pub fn sort_also_by(&mut self, name: &str, unit: Unit) {
        match self.sort.iter_mut().find(|(known, _)| known == name) {
            Some((_, down)) => *down = !*down,
            None => {
                self.sort.truncate(SORT_KEYS - 1);
                self.sort.push((name.to_owned(), is_down_first(name, unit)));
            }
        }
    }

    /// Pools the rounds of cells or lists single runs. Without rounds, groups by the sort column, or by architecture in
    /// creation order, which would make each run its own group; without groups, the order before that returns.
    pub fn toggle_groups(&mut self) {
        self.grouping = match (self.has_rounds, self.grouping) {
            (true, Grouping::Runs) | (false, Grouping::Column) => Grouping::Cells,
            (true, _) => Grouping::Runs,
            (false, _) => Grouping::Column,
        };
        let before = self.ungrouped.take();
        if self.grouping == Grouping::Column {
            if self.sort.first().is_none_or(|(name, _)| name == "run") {
                self.ungrouped = Some(self.sort.clone());
                self.sort_by(ARCHITECTURE, Unit::Text);
            }
        } else if let Some(before) = before
            && self.sort == [(ARCHITECTURE.to_owned(), false)]
        {
            self.sort = before;
        }
    }

    pub fn reverse(&mut self) {
        match self.sort.first_mut() {
            Some((_, down)) => *down = !*down,
            None => self.sort = vec![(self.result().to_owned(), true)],
        }
    }

    /// Sorts by the column next to the one whose title has the mark of the order.
    pub fn sort_by_next(&mut self, backwards: bool, table: &RunTable) {
        let (columns, _) = columns::columns(self, table, u16::MAX);
        let names = columns.into_iter().map(|column| column.name);
        let is_blank = |name: &str| {
            let column = table.find(name).and_then(|at| table.columns().get(at));
            column.is_none_or(|column| self.is_blank(column))
        };
        let is_shown = |name: &String| !self.empty.contains(name) && !is_blank(name);
        let shown: Vec<String> = names.filter(is_shown).collect();
        let marked = self.marked_order();
        let current = marked.first().map(|(name, _)| name.as_str());
        let at = shown.iter().position(|name| Some(name.as_str()) == current);
        let len = shown.len().max(1);
        let next = match (at, backwards) {
            (Some(at), true) => at + len - 1,
            (Some(at), false) => at + 1,
            (None, true) => len - 1,
            (None, false) => 0,
        };
        if let Some(name) = shown.get(next % len) {
            self.sort_by(name, unit(table, name));
        }
    }
}

/// Place of a run in an order by results: `upper-bound` cannot be deployed, so it comes after the architectures; then runs that
/// were repeated since (2), and runs without a result last.
fn result_rank(record: &Record) -> u8 {
    match (&record.metrics, &record.spec.architecture) {
        (None, _) => 3,
        (Some(_), Architecture::UpperBound) => 1,
        (Some(_), _) => 0,
    }
}

/// Mark of a direction.
pub const fn arrow(is_descending: bool) -> &'static str {
    if is_descending { "↓" } else { "↑" }
}

/// Title of a column without the unit, except of exposed time: `exposed` is the share.
pub fn order_title(table: &RunTable, name: &str) -> String {
    let title = table.find(name).map_or(name, |at| columns::name(&table.columns()[at]));
    title.strip_suffix(" ms").filter(|title| *title != "exposed").unwrap_or(title).to_owned()
}

/// True if a column starts in descending order: newest and fastest first.
fn is_down_first(name: &str, unit: Unit) -> bool {
    name == "run" || matches!(unit, Unit::Rate | Unit::Percent | Unit::Share)
}

/// Unit of a column; text if it does not exist.
pub fn unit(table: &RunTable, name: &str) -> Unit {
    let column = table.find(name).and_then(|at| table.columns().get(at));
    column.map_or(Unit::Text, |column| column.field.unit)
}
