//! Result of a sweep, computed from its runs as they end.

use std::sync::Arc;

use lab::sweep::SweepEvent;
use study::answer::{Answer, MOST_RUNS};
use table::{Provenance, Record};

/// Collects the runs of a sweep from its events. Keeps none if there are more than [`MOST_RUNS`], so memory stays
/// bounded for large grids.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    records: Vec<Record>,
    left_out: bool,
}

impl Gathered {
    pub fn event(&mut self, event: &SweepEvent) {
        let (SweepEvent::CellSettled { record, .. } | SweepEvent::RunEnded { record, .. }) = event
        else {
            return;
        };
        if self.records.len() >= MOST_RUNS {
            (self.records, self.left_out) = (Vec::new(), true);
        }
        if self.left_out {
            return;
        }
        let mut record = Record::clone(record);
        if record.provenance == Provenance::Simulated {
            // simulated steps have no variance, so no interval needs them
            Arc::make_mut(&mut record.samples)
                .iter_mut()
                .for_each(|sample| sample.steps_ms = Vec::new());
        }
        self.records.push(record);
    }

    pub fn answers(self) -> Vec<Answer> {
        if self.left_out { Vec::new() } else { Answer::of(self.records) }
    }
}
