//! Cells of the stored runs: which vary widely between their rounds.

use std::collections::HashMap;

use crate::face::tui::prelude::*;
use base::statistics::grouped;
use study::analysis::WideRounds;
use table::{CellRuns, Provenance, Record, host};

/// Runs (full ids) of measured cells whose rounds vary widely, each with the slowest round over the fastest. Of all stored
/// runs: a filter that leaves the luckiest round must not hide that others were slower.
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
