//! Lane time by operation: the tally that is grouped into modules and kinds, collectives, and layers.

use std::collections::{BTreeMap, HashMap};

use rayon::prelude::*;
use serde::Serialize;

use super::intervals::{Coverage, Interval, length};
use super::lanes::Lanes;
use super::report::us;
use super::runs::{Class, Runs};
use crate::{OperationInfo, Span, Trace};
use plan::Lane;

/// Lane time of one module and kind of operation.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct BreakdownRow {
    /// Module: `attn`, `mlp`, `head`; empty for an imported trace.
    pub module: String,
    /// Kind of operation: `matmul`, `all_reduce`; for an imported trace, the kind from the matching
    /// rule.
    pub kind: String,
    /// `compute` or `comm`; `memory` for the copies and fills of imported traces.
    pub lane: String,
    /// Number of executions on all ranks.
    pub count: u64,
    /// Sum of durations, averaged over ranks (us).
    pub total_us: f64,
    /// Exposed part of `total_us`, for communication (us, averaged over ranks).
    pub exposed_us: f64,
    /// Share of the lane's summed durations, 0 to 1. Shares of a lane add up to 1 even if an imported
    /// trace ran several operations concurrently.
    pub share: f64,
}

/// Sums over executions. Durations are summed, not united: concurrent executions count twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    pub count: u64,
    pub total_ns: i64,
    /// For communication: the part of `total_ns` hidden by computation of the same rank.
    pub hidden_ns: i64,
    /// For communication: its share of the rank's exposed time, with each moment counted once
    /// ([`Exposure`]).
    pub exposed_ns: i64,
    pub longest_ns: i64,
}

impl Cell {
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.hidden_ns = self.hidden_ns.saturating_add(other.hidden_ns);
        self.exposed_ns = self.exposed_ns.saturating_add(other.exposed_ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

/// Exposed communication of one rank. Each moment counts once, for the concurrent collective that
/// started first, so the operations add up to the rank's exposed time. Spans must be in order of start.
#[derive(Clone, Copy, Debug)]
pub struct Exposure {
    /// End of the communication so far.
    until: i64,
    near: usize,
}

impl Default for Exposure {
    fn default() -> Self {
        Self { until: i64::MIN, near: 0 }
    }
}

impl Exposure {
    pub fn add(&mut self, (start, end): Interval, compute: &Coverage) -> i64 {
        let new = (start.max(self.until), end);
        if new.0 >= new.1 {
            return 0;
        }
        self.until = end;
        new.1 - new.0 - compute.near(new, &mut self.near)
    }
}

/// Sums over all ranks per operation, or per another key of the spans, separately for the compute and
/// comm lanes.
#[derive(Debug)]
pub struct Tally {
    pub cells: Vec<[Cell; 2]>,
}

impl Tally {
    /// Tallies the selected spans by operation, in one pass.
    pub fn of(runs: &Runs, lanes: &[Lanes]) -> Self {
        // By operation, not by name: names are compared once per operation, not once per span.
        Self::by(runs, lanes, runs.trace.operations.len(), |span| span.operation as usize)
    }

    /// Tallies the selected spans by `number`. Skips spans with a number of `count` or more.
    pub fn by(
        runs: &Runs,
        lanes: &[Lanes],
        count: usize,
        number: impl Fn(&Span) -> usize + Sync,
    ) -> Self {
        let empty = || vec![[Cell::default(); 2]; count];
        let cells = runs
            .portions()
            .into_par_iter()
            .fold(empty, |mut cells, portion| {
                let (compute, mut near) = (&lanes[portion[0].rank].compute, 0);
                runs.each(portion, |span, interval| {
                    let Some(cell) = cells.get_mut(number(span)) else { return };
                    let cell = &mut cell[span.lane as usize];
                    let duration = interval.1.saturating_sub(interval.0);
                    cell.count += 1;
                    cell.total_ns = cell.total_ns.saturating_add(duration);
                    cell.longest_ns = cell.longest_ns.max(duration);
                    if span.lane == Lane::Comm {
                        let hidden = compute.near(interval, &mut near);
                        cell.hidden_ns += hidden;
                        cell.exposed_ns += duration - hidden;
                    }
                });
                cells
            })
            .reduce(empty, |mut all, more| {
                all.iter_mut().flatten().zip(more.iter().flatten()).for_each(|(a, b)| a.add(b));
                all
            });
        let mut tally = Self { cells };
        tally.expose_once(runs, lanes, number);
        tally
    }

    /// Removes double-counted exposed time of concurrent operations. Returns early if none are
    /// concurrent.
    fn expose_once(&mut self, runs: &Runs, lanes: &[Lanes], number: impl Fn(&Span) -> usize + Sync) {
        let united = lanes.iter().fold(0i64, |sum, lanes| sum.saturating_add(length(&lanes.comm)));
        let of_comm = |cells: &[Cell; 2]| cells[Lane::Comm as usize].total_ns;
        if self.cells.iter().map(of_comm).fold(0, i64::saturating_add) == united {
            return;
        }
        let each: Vec<Vec<(usize, i64)>> = (0..runs.ranks.len())
            .into_par_iter()
            .map(|rank| {
                let mut spans: Vec<(Interval, usize)> = Vec::new();
                runs.each(&runs.by_rank[rank], |span, interval| {
                    if runs.class(span) == Class::Comm {
                        spans.push((interval, number(span)));
                    }
                });
                spans.sort_unstable();
                let (compute, mut exposure) = (&lanes[rank].compute, Exposure::default());
                spans.into_iter().map(|(at, number)| (number, exposure.add(at, compute))).collect()
            })
            .collect();
        let of_comm = |cells: &mut [Cell; 2]| cells[Lane::Comm as usize].exposed_ns = 0;
        self.cells.iter_mut().for_each(of_comm);
        for (number, exposed) in each.into_iter().flatten() {
            if let Some(cells) = self.cells.get_mut(number) {
                cells[Lane::Comm as usize].exposed_ns += exposed;
            }
        }
    }

    pub fn comm(&self, operation: usize) -> Cell {
        self.cells[operation][Lane::Comm as usize]
    }

    pub fn operations<'a>(
        &'a self,
        trace: &'a Trace,
    ) -> impl Iterator<Item = (&'a OperationInfo, &'static str, Cell)> {
        trace.operations.iter().zip(&self.cells).flat_map(|(operation, cells)| {
            [Lane::Compute, Lane::Comm].into_iter().zip(cells).filter(|(_, cell)| cell.count > 0).map(
                move |(lane, cell)| {
                    let class = Class::of(operation, lane);
                    let of_comm = |ns: i64| if class == Class::Comm { ns } else { 0 };
                    let [hidden_ns, exposed_ns] = [cell.hidden_ns, cell.exposed_ns].map(of_comm);
                    (operation, class.as_str(), Cell { hidden_ns, exposed_ns, ..*cell })
                },
            )
        })
    }

    pub fn group<'a, K: Ord>(
        &'a self,
        trace: &'a Trace,
        key: impl Fn(&'a OperationInfo, &'static str) -> Option<K>,
    ) -> BTreeMap<K, Cell> {
        let mut groups: BTreeMap<K, Cell> = BTreeMap::new();
        for (operation, lane, cell) in self.operations(trace) {
            if let Some(key) = key(operation, lane) {
                groups.entry(key).or_default().add(&cell);
            }
        }
        groups
    }

    /// Breakdown by module and kind, longest first; times are averaged over `ranks`.
    pub fn breakdown(&self, trace: &Trace, ranks: usize) -> Vec<BreakdownRow> {
        let ranks = ranks.max(1) as f64;
        let groups = self.group(trace, |o, lane| Some((o.module.as_str(), o.kind.as_str(), lane)));
        let mut lane_ns: HashMap<&str, i64> = HashMap::new();
        for ((_, _, lane), cell) in &groups {
            let sum = lane_ns.entry(lane).or_default();
            *sum = sum.saturating_add(cell.total_ns);
        }
        let mut rows: Vec<BreakdownRow> = groups
            .into_iter()
            .map(|((module, kind, lane), cell)| BreakdownRow {
                module: module.into(),
                kind: kind.into(),
                lane: lane.into(),
                count: cell.count,
                total_us: us(cell.total_ns) / ranks,
                exposed_us: us(cell.exposed_ns) / ranks,
                share: match lane_ns.get(lane) {
                    Some(&all) if all > 0 => cell.total_ns as f64 / all as f64,
                    _ => 0.0,
                },
            })
            .collect();
        rows.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
        rows
    }
}
