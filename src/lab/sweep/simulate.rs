//! Simulates cells in this process, on all cores, with results in cell order.
//!
//! Time is proportional to cells times steps times operations per step; memory does not grow with the number of
//! cells.

use std::ops::Range;
use std::time::{Duration, Instant};

use rayon::prelude::*;

use crate::launch::Cancel;
use crate::outcome::with_outcome;
use crate::store::Store;
use base::error::{Error, Result, catch_panic};
use run::RunResult;
use run::sim::Simulator;
use table::{Environment, Record, Spec, Status};

/// Cells of one round that are stored as one batch, with the fields common to their records.
pub(super) struct Simulations<'a> {
    /// Index and spec of each cell.
    pub cells: Vec<(usize, &'a Spec)>,
    pub environment: Environment,
    pub experiment: Option<&'a str>,
    pub round: u32,
}

pub(super) enum SimulationEvent {
    /// The cell is about to be simulated as this run.
    Started(String),
    /// The cell's record is on disk.
    Stored(Box<Record>),
}

/// Simulates these specs and calls `on_record` with each record, in order. Stores nothing. A failed simulation yields
/// a failed record.
pub fn simulate_cells(specs: &[&Spec], mut on_record: impl FnMut(usize, Record)) {
    let simulator = Simulator::default();
    // the callback cannot fail here
    let _ = in_order(
        specs.len(),
        |index| simulate(specs[index], &simulator),
        |index, progress| {
            if let ItemProgress::Done(record) = progress {
                on_record(index, record);
            }
            Ok(())
        },
    );
}

impl Simulations<'_> {
    /// Simulates the cells, stores them as one batch and calls `emit` with each cell's start and, in order, its
    /// record. Failed or cancelled cells do not stop the others. The stored rows depend only on the arguments and the
    /// store's clock.
    pub(super) fn run(
        &self,
        simulator: &Simulator,
        store: &Store,
        cancel: &Cancel,
        emit: &mut dyn FnMut(usize, SimulationEvent),
    ) -> Result<()> {
        let mut batch = store.new_batch();
        let mut unstored: Vec<(usize, Record)> = Vec::new();
        in_order(
            self.cells.len(),
            |row| {
                let (cell, spec) = self.cells[row];
                (!cancel.is_cell(cell)).then(|| simulate(spec, simulator))
            },
            |row, progress| {
                let (cell, _) = self.cells[row];
                let mut record = match progress {
                    ItemProgress::Done(Some(record)) => record,
                    ItemProgress::Started if !cancel.is_cell(cell) => {
                        emit(cell, SimulationEvent::Started(format!("{}:{row}", batch.id())));
                        return Ok(());
                    }
                    ItemProgress::Started | ItemProgress::Done(None) => return Ok(()),
                };
                record.experiment = self.experiment.map(str::to_owned);
                record.round = self.round;
                for (key, value) in &self.environment {
                    record.environment.entry(key.clone()).or_insert_with(|| value.clone());
                }
                let all_stored = batch.push(row as u32, &mut record)?;
                unstored.push((cell, record));
                if all_stored {
                    for (cell, record) in unstored.drain(..) {
                        emit(cell, SimulationEvent::Stored(record.into()));
                    }
                }
                Ok(())
            },
        )?;
        batch.finish()?;
        for (cell, record) in unstored {
            emit(cell, SimulationEvent::Stored(record.into()));
        }
        Ok(())
    }
}

/// Simulates one cell. A failed or panicked simulation yields a failed record.
fn simulate(spec: &Spec, simulator: &Simulator) -> Record {
    match simulate_cell(spec, simulator, false) {
        Ok((outcome, _)) => with_outcome(Record::new(spec.clone(), Status::Ok, None), outcome),
        Err(error) => Record::new(spec.clone(), Status::Failed, Some(error.to_string())),
    }
}

/// Simulates one cell, with its trace if `record`. A panic is an error.
pub fn simulate_cell(spec: &Spec, simulator: &Simulator, record: bool) -> RunResult {
    catch_panic(|| simulator.cell(spec)?.run(record)).unwrap_or_else(|text| {
        Err(Error::failed(format!("internal error: the simulation panicked: {text}")))
    })
}

/// Blocks faster than this are followed by larger ones.
const GROW_BELOW: Duration = Duration::from_millis(100);
/// Blocks slower than this are followed by smaller ones.
const SHRINK_ABOVE: Duration = Duration::from_millis(400);
/// Maximum items in a block.
const LARGEST_BLOCK: usize = 1024;

enum ItemProgress<T> {
    Started,
    Done(T),
}

/// Runs `work` for 0 to `count` on Rayon's threads and calls `on_progress` in order, on this thread: for all items of a
/// block before it starts, and for each result. Stops at the first error of `on_progress`.
///
/// Results are delivered block by block while the next block is computed, so at most two blocks are in memory,
/// however slow the work or its consumer is. The block size adapts so that a block takes a fraction of a second. It
/// affects only how often results arrive, never the results.
fn in_order<T: Send>(
    count: usize,
    work: impl Fn(usize) -> T + Sync,
    mut on_progress: impl FnMut(usize, ItemProgress<T>) -> Result<()>,
) -> Result<()> {
    let least = 2 * rayon::current_num_threads();
    let mut size = 2 * least;
    let mut block = 0..size.min(count);
    block.clone().try_for_each(|index| on_progress(index, ItemProgress::Started))?;
    let mut results = do_block(&block, &work).0;
    while !block.is_empty() {
        let next = block.end..(block.end + size).min(count);
        next.clone().try_for_each(|index| on_progress(index, ItemProgress::Started))?;
        let mut done = (Vec::new(), Duration::ZERO);
        let taken = rayon::in_place_scope(|scope| {
            scope.spawn(|_| done = do_block(&next, &work));
            block
                .zip(results)
                .try_for_each(|(index, result)| on_progress(index, ItemProgress::Done(result)))
        });
        taken?;
        size = match done.1 {
            elapsed if elapsed < GROW_BELOW => (size * 2).min(LARGEST_BLOCK),
            elapsed if elapsed > SHRINK_ABOVE => (size / 2).max(least),
            _ => size,
        };
        (block, results) = (next, done.0);
    }
    Ok(())
}

fn do_block<T: Send>(block: &Range<usize>, work: &(impl Fn(usize) -> T + Sync)) -> (Vec<T>, Duration) {
    let start = Instant::now();
    let results = block.clone().into_par_iter().map(work).collect();
    (results, start.elapsed())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use base::error::Error;

    #[test]
    fn results_come_in_order_and_never_far_ahead_of_those_taken() {
        for count in [0, 1, 7, 10_000] {
            let (worked, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let (mut order, mut started) = (Vec::new(), 0);
            let work = |index: usize| {
                let ahead = worked.fetch_add(1, Ordering::SeqCst) - taken.load(Ordering::SeqCst);
                (index * 3, ahead)
            };
            in_order(count, work, |index, progress| {
                let ItemProgress::Done((result, ahead)) = progress else {
                    assert_eq!(index, started);
                    started += 1;
                    return Ok(());
                };
                assert!(index < started);
                taken.fetch_add(1, Ordering::SeqCst);
                assert_eq!(result, index * 3);
                assert!(ahead <= 2 * LARGEST_BLOCK, "{ahead} results were waiting");
                order.push(index);
                Ok(())
            })
            .unwrap();
            assert_eq!(order, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_error_in_taking_a_result_ends_it() {
        let worked = AtomicUsize::new(0);
        let work = |_| worked.fetch_add(1, Ordering::SeqCst);
        let ended = in_order(1_000_000, work, |index, progress| match (index, progress) {
            (100, ItemProgress::Done(_)) => Err(Error::failed("disk full")),
            _ => Ok(()),
        });
        assert!(ended.is_err());
        assert!(worked.into_inner() <= 100 + 2 * LARGEST_BLOCK);
    }
}
