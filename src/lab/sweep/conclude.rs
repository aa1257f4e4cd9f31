//! Combines the runs of each cell into one record and emits the records in cell order.

use std::collections::BTreeMap;

use super::{Cell, SweepEvent, SweepOutcome};
use crate::store::Store;
use run::Feasibility;
use table::{Record, Spec, Status};

/// Collects the runs of cells. Emits a cell's record once it and all earlier cells have ended.
pub(super) struct Conclusion<'a> {
    cells: &'a [Cell],
    /// Final round, after which a cell has ended.
    last_round: u32,
    name: Option<&'a str>,
    store: &'a Store,
    /// First cell that was not emitted yet.
    next: usize,
    /// Records of cells that were not emitted yet, by round, and true if they are complete.
    waiting: BTreeMap<usize, (Vec<Record>, bool)>,
    outcome: SweepOutcome,
    /// Predicate: true if some round of a cell was selected to run.
    chosen: &'a dyn Fn(usize) -> bool,
}

impl<'a> Conclusion<'a> {
    pub fn new(
        cells: &'a [Cell],
        rounds: u32,
        name: Option<&'a str>,
        store: &'a Store,
        chosen: &'a dyn Fn(usize) -> bool,
    ) -> Self {
        Self {
            cells,
            last_round: rounds.saturating_sub(1),
            name,
            store,
            next: 0,
            waiting: BTreeMap::new(),
            outcome: SweepOutcome::default(),
            chosen,
        }
    }

    /// Adds a run that was executed now.
    pub fn ran(&mut self, cell: usize, round: u32, record: Record, emit: &mut dyn FnMut(SweepEvent)) {
        self.outcome.failed += usize::from(record.status == Status::Failed);
        self.ended(cell, round, record, emit);
    }

    /// Adds a run that has ended, now or earlier.
    pub fn ended(&mut self, cell: usize, round: u32, record: Record, emit: &mut dyn FnMut(SweepEvent)) {
        let (records, all) = self.waiting.entry(cell).or_default();
        records.push(record);
        *all = round >= self.last_round;
        while let Some(cell) = self.cells.get(self.next) {
            let ended = self.waiting.get(&self.next).is_some_and(|(_, all)| *all);
            if !ended && cell.feasibility == Feasibility::Runs {
                break;
            }
            self.report(emit);
        }
    }

    /// Emits the remaining cells. Cancelled ones get a record too.
    pub fn finish(mut self, emit: &mut dyn FnMut(SweepEvent)) -> SweepOutcome {
        while self.next < self.cells.len() {
            self.report(emit);
        }
        self.outcome
    }

    fn report(&mut self, emit: &mut dyn FnMut(SweepEvent)) {
        let Some(cell) = self.cells.get(self.next) else { return };
        let records = self.waiting.remove(&self.next).map(|(records, _)| records).unwrap_or_default();
        let record =
            impossible(cell, self.name, self.store).unwrap_or_else(|| self.conclude(self.next, records));
        *self.outcome.cells.entry(record.status).or_default() += 1;
        emit(SweepEvent::CellDone { cell: self.next, record: Box::new(record) });
        self.next += 1;
    }

    /// Aggregates all rounds of a cell into one record.
    fn conclude(&self, number: usize, mut records: Vec<Record>) -> Record {
        let cell = &self.cells[number];
        // interrupted runs are ignored if another round ended
        if records.iter().any(|r| r.status != Status::Interrupted) {
            records.retain(|r| r.status != Status::Interrupted);
        }
        if !records.iter().any(|r| r.status == Status::Ok) {
            return records.pop().unwrap_or_else(|| Record {
                experiment: self.name.map(str::to_owned),
                reason: Some(if (self.chosen)(number) { CANCELLED } else { NOT_CHOSEN }.to_owned()),
                ..not_run(&cell.spec, self.store)
            });
        }
        let last = records.last().cloned();
        let ok = |record: &Record| record.status == Status::Ok;
        let aggregated = table::aggregate(&records);
        let best = aggregated.iter().find(|r| ok(r)).or(aggregated.first()).cloned();
        best.or(last).unwrap_or_else(|| not_run(&cell.spec, self.store))
    }
}

/// Record of a cell that cannot run. Never stored, and always has the same id.
pub(super) fn impossible(cell: &Cell, experiment: Option<&str>, store: &Store) -> Option<Record> {
    let (status, reason) = match &cell.feasibility {
        Feasibility::Runs => return None,
        Feasibility::Skipped(reason) => (Status::Skipped, reason),
        Feasibility::Oom(reason) => (Status::Oom, reason),
    };
    let experiment = experiment.map(str::to_owned);
    Some(Record { experiment, ..without_run(&cell.spec, status, reason, store) })
}

fn without_run(spec: &Spec, status: Status, reason: &str, store: &Store) -> Record {
    Record {
        run: format!("{}-{}", status.as_str(), spec.key()),
        created: store.now(),
        ..Record::new(spec.clone(), status, Some(reason.to_owned()))
    }
}

/// Reason of cells that were not reached.
const CANCELLED: &str = "cancelled before it ran";

/// Reason of cells that were not run because only failed ones were selected.
const NOT_CHOSEN: &str = "it did not fail before, and only what failed was to run again";

/// Record of a cell that was not reached.
pub(super) fn not_run(spec: &Spec, store: &Store) -> Record {
    without_run(spec, Status::Interrupted, CANCELLED, store)
}
