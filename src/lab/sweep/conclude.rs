//! From a cell's runs to its one record, told in the order of the cells.

use std::collections::BTreeMap;

use super::{Cell, SweepEvent, SweepOutcome};
use crate::store::Store;
use run::Feasibility;
use table::{Record, Spec, Status};

/// Collects what runs of cells left, and tells each cell's record when it and all before it have ended.
pub(super) struct Conclusion<'a> {
    cells: &'a [Cell],
    /// After this round a cell has ended.
    last_round: u32,
    name: Option<&'a str>,
    store: &'a Store,
    /// The first cell that was not told.
    next: usize,
    /// Of cells that were not told: their records, a round after the other, and whether that is all.
    waiting: BTreeMap<usize, (Vec<Record>, bool)>,
    outcome: SweepOutcome,
    /// Whether some round of a cell was to be run now.
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

    /// A run was executed now.
    pub fn ran(&mut self, cell: usize, round: u32, record: Record, emit: &mut dyn FnMut(SweepEvent)) {
        self.outcome.failed += usize::from(record.status == Status::Failed);
        self.ended(cell, round, record, emit);
    }

    /// A run has ended, now or earlier.
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

    /// Tells the cells that are left: what was cancelled has a record too.
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

    /// One record of all rounds of a cell.
    fn conclude(&self, number: usize, mut records: Vec<Record>) -> Record {
        let cell = &self.cells[number];
        // an interrupted run says nothing about a cell that ended in another round
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

/// The record of a cell that cannot run: never stored, its id always the same.
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

/// Why a cell was not reached.
const CANCELLED: &str = "cancelled before it ran";

/// Why a cell was not run where only what failed was to be run again.
const NOT_CHOSEN: &str = "it did not fail before, and only what failed was to run again";

/// The record of a cell that was not reached.
pub(super) fn not_run(spec: &Spec, store: &Store) -> Record {
    without_run(spec, Status::Interrupted, CANCELLED, store)
}
