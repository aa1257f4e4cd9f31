//! Cells of a sweep relative to `standard` in their setting, and the best one so far.

use super::state::{Live, LiveCell};
use crate::face::tui::prelude::*;
use study::analysis::{RatioSoFar, ratio_so_far};

impl Live {
    /// `standard` in the setting of another cell, and that cell's tokens/s relative to it in the rounds that both have.
    pub(super) fn beside_standard(&self, cell: &LiveCell) -> Option<(&LiveCell, RatioSoFar)> {
        Some((self.cells.get(cell.standard?)?, cell.ratio?))
    }

    /// Compares the cells with their `standard` whose rounds, or those of `standard`, changed: a frame reads the ratio.
    pub(super) fn compare_with_standard(&mut self) {
        for at in 0..self.cells.len() {
            let cell = &self.cells[at];
            let Some(standard) = cell.standard.filter(|standard| *standard != at) else { continue };
            let Some(standard) = self.cells.get(standard) else { continue };
            let runs = [standard, cell].map(LiveCell::runs_hash);
            if runs != cell.ratio_of {
                let ratio = ratio_so_far(&standard.rounds, &cell.rounds);
                let cell = &mut self.cells[at];
                (cell.ratio, cell.ratio_of) = (ratio, runs);
            }
        }
    }

    /// ` in 1 round` if only the first of several rounds is behind a ratio.
    pub(super) fn of_rounds(&self, ratio: RatioSoFar) -> &'static str {
        if ratio.rounds == 1 && self.rounds > 1 { " in 1 round" } else { "" }
    }

    /// Best finished cell, in full and then in shorter forms: `best so far: ladder tp2 1.25x standard's tok/s in 1 round`. If
    /// none is faster than its `standard`, the fastest `standard`; before any has its `standard`, the cell with the most
    /// tokens/s. Noise is named: `standard tp2 800 tok/s (noisy)`.
    pub(super) fn best(&self) -> Vec<String> {
        /// Least speedup that two decimals show as one.
        const FASTER: f64 = 1.005;
        let is_choice = |cell: &&LiveCell| !cell.rounds.is_empty() && !cell.spec.architecture.is_limit();
        let finished = || self.cells.iter().filter(is_choice);
        let noisy = if self.noise.is_some() { " (noisy)" } else { "" };
        let speedups = finished().filter_map(|cell| Some((cell, self.beside_standard(cell)?.1)));
        let fastest = speedups.max_by(|a, b| a.1.speedup.total_cmp(&b.1.speedup));
        if let Some((cell, ratio)) = fastest.filter(|(_, ratio)| ratio.speedup >= FASTER) {
            let own = format!("{} {:.2}x standard", self.title(&cell.spec), ratio.speedup);
            let caveats = format!("{}{noisy}", self.of_rounds(ratio));
            let measure = if self.latency() == "TTFT" { "" } else { "'s tok/s" };
            return vec![
                format!("best so far: {own}{measure}{caveats}"),
                format!("best so far: {own}{caveats}"),
                format!("best: {own}{caveats}"),
            ];
        }
        let is_standard = |cell: &LiveCell| {
            let standard = cell.standard.and_then(|at| self.cells.get(at));
            standard.is_some_and(|standard| std::ptr::eq(standard, cell))
        };
        let rates = finished().filter(|cell| fastest.is_none() || is_standard(cell));
        let rates = rates.filter_map(|cell| Some((cell, cell.tokens_per_s?)));
        let best = rates.max_by(|a, b| a.1.total_cmp(&b.1));
        let words = |(cell, rate): (&LiveCell, f64)| {
            format!("best so far: {} {} tok/s{noisy}", self.title(&cell.spec), digits(rate))
        };
        best.into_iter().map(words).collect()
    }
}
