//! Best points within a limit of x: "which one would I choose for 30 ms per token?"

use super::Pareto;
use base::statistics::distinct;
use plan::Architecture;
use study::analysis::{self, AtLimit, BestAtLimit, ParetoPoint};

/// Number of round limits in the table; a window shows those that fit.
const ROUND: usize = 7;

/// Best point of an architecture within the limit.
#[derive(Clone, Debug, PartialEq)]
pub struct BestWithin {
    pub run: String,
    pub y: f64,
    /// True if no lead of the winner over this point is shown.
    pub is_tied: bool,
}

impl Pareto {
    /// Finds the best points within the limit of this axis, typed or else round, and within the table's other limits.
    pub(super) fn find_within(&mut self) {
        let shown: Vec<&ParetoPoint> = self.visible().collect();
        let round = analysis::round_limits(shown.iter().copied(), self.axes, ROUND);
        let typed = self.typed_limits.get(self.axes.x.as_str()).copied();
        let limit = typed.or_else(|| round.get(round.len() / 2).copied());
        let limits = distinct(limit.into_iter().chain(round));
        let rows = analysis::at_limits(shown, self.axes, &limits);
        self.best_within = limit.map_or_else(Vec::new, |limit| self.best_of(&rows, limit));
        (self.limit, self.limits) = (limit, rows);
    }

    /// Best point of each architecture that can be chosen, the winner first.
    fn best_of(&self, rows: &[AtLimit], limit: f64) -> Vec<BestWithin> {
        let [more_x, more_y] = [self.axes.x.is_more_better(), self.axes.y.is_more_better()];
        let order = |a: f64, b: f64, more: bool| if more { b.total_cmp(&a) } else { a.total_cmp(&b) };
        let rows = rows.iter().filter(|row| row.limit == limit && !row.architecture.is_limit());
        let mut best: Vec<(&Architecture, &BestAtLimit)> =
            rows.filter_map(|row| Some((&row.architecture, row.best.as_ref()?))).collect();
        best.sort_by(|(_, a), (_, b)| order(a.y, b.y, more_y).then(order(a.x, b.x, more_x)));
        let mut named: Vec<&Architecture> = Vec::new();
        best.retain(|(architecture, _)| {
            let is_first = !named.contains(architecture);
            named.push(*architecture);
            is_first
        });
        let winner = best.first().and_then(|(_, winner)| self.point(&winner.run));
        let within = |(at, (_, best)): (usize, &(&Architecture, &BestAtLimit))| {
            let both = winner.zip(self.point(&best.run)).filter(|_| at > 0);
            let is_tied = both.is_some_and(|(winner, rival)| self.axes.are_tied_in_y(winner, rival));
            BestWithin { run: best.run.clone(), y: best.y, is_tied }
        };
        best.iter().enumerate().map(within).collect()
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
