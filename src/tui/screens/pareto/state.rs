//! State of screen 5: the points shown, in groups that never mix provenances.

use crate::analysis::ParetoPoint;
use crate::spec::P2p;

/// State of the Pareto screen.
#[derive(Debug, Default)]
pub struct Pareto {
    /// All points; `None` until they are computed.
    pub points: Option<Vec<ParetoPoint>>,
    /// The groups (model, workload, hardware, provenance), measurements first.
    pub groups: Vec<String>,
    /// Which group is shown.
    pub group: usize,
    /// Which P2P is shown; `None`: both.
    pub p2p: Option<P2p>,
    /// Indices of the points shown, by latency.
    pub shown: Vec<usize>,
    /// The selected one, an index into `shown`.
    pub selected: usize,
}

impl Pareto {
    /// Takes new points.
    pub fn set(&mut self, points: Vec<ParetoPoint>) {
        let group = self.groups.get(self.group).cloned();
        // measurements first
        let mut groups: Vec<_> = points.iter().map(|p| (p.provenance, group_of(p))).collect();
        groups.sort();
        groups.dedup();
        let groups: Vec<String> = groups.into_iter().map(|(_, name)| name).collect();
        self.group = group.and_then(|g| groups.iter().position(|x| *x == g)).unwrap_or(0);
        self.groups = groups;
        self.points = Some(points);
        self.arrange();
    }

    /// Chooses the points of the group and P2P anew; the selection stays on its run where it can.
    pub fn arrange(&mut self) {
        let points = self.points.as_deref().unwrap_or_default();
        let run = self.shown.get(self.selected).and_then(|i| points.get(*i)).map(|p| p.run.clone());
        let group = self.groups.get(self.group);
        self.shown = (0..points.len())
            .filter(|i| {
                let p = &points[*i];
                group.is_some_and(|g| *g == group_of(p))
                    && self.p2p.is_none_or(|p2p| p.spec.p2p == p2p)
                    && p.completion_ms.is_finite()
                    && p.tokens_per_s_per_gpu.is_finite()
            })
            .collect();
        self.shown.sort_by(|a, b| points[*a].completion_ms.total_cmp(&points[*b].completion_ms));
        self.selected =
            run.and_then(|r| self.shown.iter().position(|i| points[*i].run == r)).unwrap_or(0);
    }

    /// The points shown, by latency.
    pub fn visible(&self) -> impl Iterator<Item = &ParetoPoint> {
        let points = self.points.as_deref().unwrap_or_default();
        self.shown.iter().filter_map(|i| points.get(*i))
    }

    /// The selected point.
    pub fn current(&self) -> Option<&ParetoPoint> {
        self.points.as_ref()?.get(*self.shown.get(self.selected)?)
    }

    /// On, off, both, round and round.
    pub fn cycle_p2p(&mut self) {
        self.p2p = match self.p2p {
            None => Some(P2p::On),
            Some(P2p::On) => Some(P2p::Off),
            Some(P2p::Off) => None,
        };
        self.arrange();
    }

    /// The next group, round and round.
    pub fn cycle_group(&mut self) {
        self.group = (self.group + 1) % self.groups.len().max(1);
        self.arrange();
    }

    /// Selects a neighbour in latency.
    pub fn step_latency(&mut self, by: isize) {
        self.selected = self.selected.saturating_add_signed(by).min(self.shown.len().saturating_sub(1));
    }

    /// Selects a neighbour in throughput; upwards is faster.
    pub fn step_throughput(&mut self, upwards: bool) {
        let Some(points) = &self.points else { return };
        let mut order: Vec<usize> = (0..self.shown.len()).collect();
        order.sort_by(|a, b| {
            let of = |i: &usize| points[self.shown[*i]].tokens_per_s_per_gpu;
            of(a).total_cmp(&of(b))
        });
        let Some(at) = order.iter().position(|i| *i == self.selected) else { return };
        let to = if upwards { (at + 1).min(order.len() - 1) } else { at.saturating_sub(1) };
        self.selected = order[to];
    }

    /// The architectures of the group, each with its place in the legend: the same for every P2P.
    pub fn architectures(&self) -> Vec<String> {
        let group = self.groups.get(self.group);
        let mut names: Vec<_> = self
            .points
            .iter()
            .flatten()
            .filter(|p| group.is_some_and(|g| *g == group_of(p)))
            .map(|p| p.spec.architecture.clone())
            .collect();
        names.sort();
        names.dedup();
        names.iter().map(ToString::to_string).collect()
    }
}

/// The group of a point; the provenance is made part of it, whatever the analysis calls its groups.
fn group_of(point: &ParetoPoint) -> String {
    let provenance = point.provenance.as_str();
    if point.group.contains(provenance) {
        point.group.clone()
    } else {
        format!("{} {provenance}", point.group)
    }
}

/// The points (latency, throughput) that no other equals or beats in both, by latency.
pub fn frontier(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut points: Vec<_> = points.collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let mut best = f64::NEG_INFINITY;
    points.retain(|(_, throughput)| {
        let on = *throughput > best;
        best = best.max(*throughput);
        on
    });
    points
}

#[cfg(test)]
mod tests {
    use super::frontier;

    #[test]
    fn a_frontier_only_rises() {
        let points = [(1.0, 5.0), (2.0, 4.0), (3.0, 9.0), (1.0, 3.0), (4.0, 9.0)];
        assert_eq!(frontier(points.into_iter()), [(1.0, 5.0), (3.0, 9.0)]);
    }
}
