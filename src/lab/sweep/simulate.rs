//! Simulates cells in this process, on all cores, with results in cell order.
//!
//! Time is proportional to cells times steps times operations per step; memory does not grow with the number of
//! cells.

use super::ordered::in_order;
use crate::launch::Cancel;
use crate::store::Store;
use base::error::Result;
use base::panic::caught;
use run::{Shared, backend};
use table::{Environment, Record, Spec, Status};

pub(super) struct Simulation<'a> {
    pub cell: usize,
    pub spec: &'a Spec,
}

/// Simulates these specs and calls `on_record` with each record, in order. Stores nothing. A failed simulation yields
/// a failed record.
pub fn simulate_cells(specs: &[&Spec], mut on_record: impl FnMut(usize, Record)) {
    let shared = Shared::default();
    // `on_record` cannot fail here
    let _ = in_order(
        specs.len(),
        |index| simulate(specs[index], &shared),
        |index, record| {
            on_record(index, record);
            Ok(())
        },
    );
}

/// Simulates the cells, stores them as one batch and calls `on_record` with each record, in order. Failed or
/// cancelled cells do not stop the others.
pub(super) fn run(
    cells: &[Simulation<'_>],
    round: u32,
    experiment: Option<&str>,
    store: &Store,
    cancel: &Cancel,
    on_record: &mut dyn FnMut(usize, Record),
) -> Result<()> {
    if cells.is_empty() || cancel.is_all() {
        return Ok(());
    }
    let origin = Origin { environment: machine::environment::collect(), experiment, round };
    run_as(cells, &origin, store, cancel, on_record)
}

/// Fields common to all records of a batch.
pub(super) struct Origin<'a> {
    pub environment: Environment,
    pub experiment: Option<&'a str>,
    pub round: u32,
}

/// Simulates cells, stores them as one batch and calls `on_record` with each record, in order, once it is on disk.
/// The stored rows depend only on the arguments and the store's clock.
pub(super) fn run_as(
    cells: &[Simulation<'_>],
    origin: &Origin<'_>,
    store: &Store,
    cancel: &Cancel,
    on_record: &mut dyn FnMut(usize, Record),
) -> Result<()> {
    let mut batch = store.new_batch();
    let shared = Shared::default();
    let mut unstored: Vec<(usize, Record)> = Vec::new();
    in_order(
        cells.len(),
        |row| (!cancel.is_cell(cells[row].cell)).then(|| simulate(cells[row].spec, &shared)),
        |row, record| {
            let Some(mut record) = record else { return Ok(()) };
            record.round = origin.round;
            record.experiment = origin.experiment.map(str::to_owned);
            for (key, value) in &origin.environment {
                record.environment.entry(key.clone()).or_insert_with(|| value.clone());
            }
            let all_stored = batch.push(row as u32, &mut record)?;
            unstored.push((cells[row].cell, record));
            if all_stored {
                unstored.drain(..).for_each(|(cell, record)| on_record(cell, record));
            }
            Ok(())
        },
    )?;
    batch.finish()?;
    unstored.into_iter().for_each(|(cell, record)| on_record(cell, record));
    Ok(())
}

/// Simulates one cell. A failed or panicked simulation yields a failed record.
fn simulate(spec: &Spec, shared: &Shared) -> Record {
    let failed = |reason: String| Record::new(spec.clone(), Status::Failed, Some(reason));
    let simulated = caught(|| backend(spec.backend)?.predict(spec, shared, false));
    match simulated {
        Ok(Ok((outcome, _))) => {
            crate::launch::with_outcome(Record::new(spec.clone(), Status::Ok, None), outcome)
        }
        Ok(Err(error)) => failed(error.to_string()),
        Err(text) => failed(format!("internal error: the simulation panicked: {text}")),
    }
}
