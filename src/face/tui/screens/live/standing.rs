//! Cells of a sweep relative to `standard` in their setting, and the best one so far.

use super::state::{Live, LiveCell};
use crate::face::tui::prelude::*;
use base::text::whole_percent;
use study::analysis::{RatioSoFar, ratio_so_far};

impl Live {
    /// `standard` in the setting of another cell, and that cell's tokens/s relative to it in the rounds that both have.
    pub(super) fn beside_standard(&self, cell: &LiveCell) -> Option<(&LiveCell, RatioSoFar)> {
        Some((self.cells.get(cell.standard?)?, cell.ratio?))
    }

    /// Ratio as text: `1.25x`, `1.25x in 1 round`. `noisy` if the ratio, a median over rounds, and the medians beside it
    /// disagree on which of the two is faster.
    pub(super) fn ratio_words(&self, cell: &LiveCell) -> Option<String> {
        let (standard, ratio) = self.beside_standard(cell)?;
        if contradicts(cell, standard, ratio) {
            return Some("noisy".to_owned());
        }
        let of_rounds = if ratio.rounds == 1 && self.rounds > 1 { " in 1 round" } else { "" };
        Some(format!("{:.2}x{of_rounds}", ratio.speedup))
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

    /// Caveats of a number of this many rounds, in full and in short: ` (1 round, noise unknown yet)`.
    fn caveats(&self, rounds: usize, is_noisy: bool) -> [&'static str; 2] {
        match (rounds == 1 && self.rounds > 1, is_noisy) {
            (true, true) => [" (1 round, noisy)"; 2],
            (true, false) => [" (1 round, noise unknown yet)", " (1 round)"],
            (false, true) => [" (noisy)"; 2],
            (false, false) => [""; 2],
        }
    }

    /// Spread of the decode steps of a cell and of its `standard` if it is as large as a lead that rests on one round.
    fn spread_over_lead(&self, cell: &LiveCell, ratio: RatioSoFar) -> Option<f64> {
        let (standard, _) = self.beside_standard(cell)?;
        let spread = cell.step_spread().max(standard.step_spread());
        (ratio.rounds == 1 && self.rounds > 1 && ratio.speedup - 1.0 <= spread).then_some(spread)
    }

    /// Best finished cell, in full and then in shorter forms: `best so far: ladder tp2 1.25x standard's tok/s (1 round, noise
    /// unknown yet)`. If none is faster than its `standard`, the fastest `standard`; before any has its `standard`, the cell
    /// with the most tokens/s. A lead in one round within the spread of the steps is none, nor is any while rounds are
    /// noisy.
    pub(super) fn best(&self) -> Vec<String> {
        /// Least speedup that two decimals show as one.
        const FASTER: f64 = 1.005;
        /// Least spread of the steps of a run that counts as noise.
        const NOISY_SPREAD: f64 = 0.5;
        if self.noise.is_some() {
            return ["no winner yet: rounds are noisy", "no winner yet: noisy"]
                .map(str::to_owned)
                .to_vec();
        }
        let is_choice = |cell: &&LiveCell| !cell.rounds.is_empty() && !cell.spec.architecture.is_limit();
        let finished = || self.cells.iter().filter(is_choice);
        let is_noisy = |cell: &LiveCell| cell.step_spread() >= NOISY_SPREAD;
        let speedups = finished().filter_map(|cell| {
            let (standard, ratio) = self.beside_standard(cell)?;
            (!contradicts(cell, standard, ratio)).then_some((cell, ratio))
        });
        let fastest = speedups.max_by(|a, b| a.1.speedup.total_cmp(&b.1.speedup));
        if let Some((cell, ratio)) = fastest.filter(|(_, ratio)| ratio.speedup >= FASTER) {
            let own = format!("{} {:.2}x standard", self.title(&cell.spec), ratio.speedup);
            if let Some(spread) = self.spread_over_lead(cell, ratio) {
                let spread = whole_percent(100.0 * spread);
                return vec![
                    format!("no lead yet: {own} in 1 round, but its steps vary by {spread}"),
                    format!("no lead yet: {own}, steps vary by {spread}"),
                    format!("no lead yet: steps vary by {spread}"),
                ];
            }
            let [caveats, short] = self.caveats(ratio.rounds, is_noisy(cell));
            let measure = if self.latency() == "TTFT" { "" } else { "'s tok/s" };
            return vec![
                format!("best so far: {own}{measure}{caveats}"),
                format!("best so far: {own}{caveats}"),
                format!("best so far: {own}{short}"),
                format!("best: {own}{short}"),
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
            let own = format!("best so far: {} {} tok/s", self.title(&cell.spec), digits(rate));
            self.caveats(cell.rounds.len(), is_noisy(cell)).map(|caveats| format!("{own}{caveats}"))
        };
        best.into_iter().flat_map(words).collect()
    }
}

/// True if the tokens/s of a cell and of its `standard`, of all their rounds, order them the other way than their ratio does.
fn contradicts(cell: &LiveCell, standard: &LiveCell, ratio: RatioSoFar) -> bool {
    let rates = cell.tokens_per_s.zip(standard.tokens_per_s);
    rates.is_some_and(|(own, other)| (own > other) != (ratio.speedup > 1.0) && own != other)
}

impl LiveCell {
    /// Spread of the decode steps within a run, the widest of the finished ones: how far the 90th percentile is above the
    /// median, relative to it.
    fn step_spread(&self) -> f64 {
        let metrics = self.rounds.values().filter_map(|record| record.metrics.as_ref());
        let spreads = metrics.map(|metrics| metrics.tpot_ms.p90 / metrics.tpot_ms.p50 - 1.0);
        spreads.filter(|spread| spread.is_finite()).fold(0.0, f64::max)
    }
}
