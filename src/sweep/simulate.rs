//! Simulated cells: in this process, on all cores, stored as one batch. What is done is written every
//! few seconds, so that not even kill -9 loses much.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::Cancel;
use crate::backend::{self, Job};
use crate::error::Result;
use crate::spec::Spec;
use crate::store::{Record, Status, Store};

/// Time between writes of a batch that grows.
const WRITE_EVERY: Duration = Duration::from_secs(5);

/// A cell to simulate.
pub(super) struct Simulation<'a> {
    /// Index of the cell.
    pub cell: usize,
    /// What to simulate.
    pub spec: &'a Spec,
}

/// What happens, in the order of the cells.
pub(super) enum Event {
    /// A cell's turn.
    Started { cell: usize, run: String },
    /// It is done; it is in the batch that is written at the latest when all are.
    Ended { cell: usize, record: Box<Record> },
}

/// Simulates the cells and stores them; a cell that fails or is cancelled does not stop the others.
pub(super) fn run(
    cells: &[Simulation<'_>],
    round: u32,
    experiment: Option<&str>,
    store: &Store,
    cancel: &Cancel,
    emit: &mut dyn FnMut(Event),
) -> Result<()> {
    if cells.is_empty() || cancel.is_all() {
        return Ok(());
    }
    let batch = store.new_batch();
    let environment = crate::environment::collect();
    let (sender, done) = crossbeam_channel::unbounded();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            cells.par_iter().enumerate().for_each(|(row, simulation)| {
                let record = (!cancel.is_cell(simulation.cell)).then(|| simulate(simulation.spec));
                // nobody receives any more only when writing failed
                let _ = sender.send((row, record));
            });
        });
        let mut rows = BTreeMap::new();
        // results come in any order and are told in the cells' order, the same each time
        let mut waiting = BTreeMap::new();
        let mut next = 0;
        let (mut written, mut last_write) = (0, Instant::now());
        for (row, record) in done {
            waiting.insert(row, record);
            while let Some(record) = waiting.remove(&next) {
                let row = next;
                next += 1;
                let Some(mut record) = record else { continue };
                record.run = format!("{batch}:{row}");
                record.created = store.now();
                record.round = round;
                record.experiment = experiment.map(str::to_owned);
                for (key, value) in &environment {
                    record.environment.entry(key.clone()).or_insert_with(|| value.clone());
                }
                let cell = cells[row].cell;
                rows.insert(row as u32, record.clone());
                emit(Event::Started { cell, run: record.run.clone() });
                emit(Event::Ended { cell, record: Box::new(record) });
            }
            if rows.len() > written && last_write.elapsed() > WRITE_EVERY {
                store.write_rows(&batch, &rows)?;
                (written, last_write) = (rows.len(), Instant::now());
            }
        }
        if rows.len() > written {
            store.write_rows(&batch, &rows)?;
        }
        Ok(())
    })
}

/// One cell's record; a simulation that failed, or panicked, is a failed record.
fn simulate(spec: &Spec) -> Record {
    let job = Job { spec: spec.clone(), record: false };
    let mut warnings = Vec::new();
    let failed = |reason: String| Record::new(spec.clone(), Status::Failed, Some(reason));
    let simulated = catch_unwind(AssertUnwindSafe(|| {
        let result = backend::run(&job, &mut |event| {
            if let backend::RunEvent::Warning { message } = event {
                warnings.push(message);
            }
        });
        match result {
            Ok((outcome, _)) => {
                crate::launch::with_outcome(Record::new(spec.clone(), Status::Ok, None), outcome)
            }
            Err(e) => failed(e.to_string()),
        }
    }));
    let mut record =
        simulated.unwrap_or_else(|_| failed("internal error: the simulation panicked".into()));
    record.warnings.append(&mut warnings);
    record
}
