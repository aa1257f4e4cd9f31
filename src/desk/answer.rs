//! What a sweep answers when it has ended: its runs are gathered as they end, rounds apart.

use crate::lab::sweep::SweepEvent;
use crate::study::answer::Answer;
use crate::table::{Provenance, Record};

/// Runs of one sweep that are kept for its answer. A grid of more is for `compare` and the report: a sweep
/// of 100,000 cells keeps its memory flat.
const MOST: usize = 10_000;

/// The runs of a sweep, gathered from its events.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    records: Vec<Record>,
    left_out: usize,
}

impl Gathered {
    /// Keeps what the event says of a run that has ended, now or in an earlier sweep.
    pub fn event(&mut self, event: &SweepEvent) {
        let (SweepEvent::CellSettled { record, .. } | SweepEvent::RunEnded { record, .. }) = event
        else {
            return;
        };
        if self.records.len() >= MOST {
            self.left_out += 1;
            return;
        }
        let mut record = Record::clone(record);
        if record.provenance == Provenance::Simulated {
            // no interval asks for the steps of what is the same each time
            record.samples.iter_mut().for_each(|sample| sample.steps_ms = Vec::new());
        }
        self.records.push(record);
    }

    /// What the sweep answers; nothing where it has too many runs to be told in sentences.
    pub fn answers(&self) -> Vec<Answer> {
        if self.left_out > 0 { Vec::new() } else { Answer::of(&self.records) }
    }
}
