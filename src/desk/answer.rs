//! What a sweep answers when it has ended: its runs are gathered as they end, rounds apart.

use lab::sweep::SweepEvent;
use study::answer::{Answer, MOST_RUNS};
use table::{Provenance, Record};

/// The runs of a sweep, gathered from its events. Of a sweep of more than [`MOST_RUNS`] runs none are
/// kept, so that the memory of a large grid stays flat.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    records: Vec<Record>,
    left_out: bool,
}

impl Gathered {
    /// Keeps what the event says of a run that has ended, now or in an earlier sweep.
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
            // no interval asks for the steps of what is the same each time
            record.samples.iter_mut().for_each(|sample| sample.steps_ms = Vec::new());
        }
        self.records.push(record);
    }

    /// What the sweep answers; nothing where it has too many runs to be told in sentences.
    pub fn answers(self) -> Vec<Answer> {
        if self.left_out { Vec::new() } else { Answer::of(self.records) }
    }
}
