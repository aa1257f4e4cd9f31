//! Best points within a limit of x: "which one would I choose for 30 ms per token?"

use super::Pareto;
use base::statistics::distinct;
use study::analysis::{self, ParetoPoint};

/// Number of round limits in the table; a window shows those that fit.
const ROUND: usize = 7;

impl Pareto {
    /// Finds the best points within the limit of this axis, typed or else round, and within the table's other limits.
    pub(super) fn find_within(&mut self) {
        let shown: Vec<&ParetoPoint> = self.visible().collect();
        let round = analysis::round_limits(shown.iter().copied(), self.axes, ROUND);
        let typed = self.typed_limits.get(self.axes.x.as_str()).copied();
        let limit = typed.or_else(|| round.get(round.len() / 2).copied());
        let mut limits = distinct(limit.into_iter().chain(round));
        limits.sort_by(f64::total_cmp);
        let rows = analysis::at_limits(shown.iter().copied(), self.axes, &limits);
        let best = limit.map(|limit| analysis::best_within(&shown, &rows, self.axes, limit));
        self.best_within = best.unwrap_or_default();
        (self.limit, self.limits) = (limit, rows);
    }

    /// Limits x on the axis shown, or returns to a round limit, and selects the winner within it.
    pub fn set_limit(&mut self, limit: Option<f64>) {
        let axis = self.axes.x.as_str();
        match limit {
            Some(limit) => _ = self.typed_limits.insert(axis.to_owned(), limit),
            None => _ = self.typed_limits.remove(axis),
        }
        self.find_within();
        let winner = self.best_within.first().map(|winner| winner.run.clone());
        winner.iter().for_each(|run| _ = self.select(run));
    }
}
