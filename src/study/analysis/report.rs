//! Everything that `overlap` says of a trace, in one go: what is collected once serves all of it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;

use super::critical::{self, PathSummary};
use super::idle::{IdleSplit, idle};
use super::ranges::{self, RangeRow};
use super::steps::{self, StepSummary};
use super::stragglers::{Stragglers, stragglers};
use crate::trace::overlap::{Cell, Lanes, OverlapReport, Runs, Selection, Tally, summarise, us};
use crate::trace::{ImportReport, OperationInfo, Trace};

/// All that is known of the selected part of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceReport {
    /// Overlap by rank and in all, breakdown by module and kind.
    #[serde(flatten)]
    pub overlap: OverlapReport,
    /// What idle ranks waited for, by rank.
    pub idle: Vec<IdleSplit>,
    /// By kind of operation, the longest first.
    pub kinds: Vec<GroupRow>,
    /// By name, the longest first; of our own plans the layers together.
    pub names: Vec<NameRow>,
    /// Collectives by operation, the most exposed first.
    pub collectives: Vec<GroupRow>,
    /// By layer, in order; empty where nothing tells layers.
    pub layers: Vec<LayerRow>,
    /// By named range, the longest first.
    pub ranges: Vec<RangeRow>,
    /// By step, in order of time.
    pub steps: Vec<StepSummary>,
    /// What the ends of steps waited for; own traces only.
    pub critical_path: Option<PathSummary>,
    /// Who arrived last at collectives; more than one rank only.
    pub stragglers: Option<Stragglers>,
    /// What was read and left of an imported trace.
    pub import: Option<ImportReport>,
}

/// Operations that have something in common. Sums of durations a rank, averaged over ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupRow {
    /// The operation's name, or its kind.
    pub name: String,
    /// `compute`, `comm` or `memory`.
    pub lane: &'static str,
    /// Executions, over all ranks.
    pub count: u64,
    /// Sum of their durations per rank, averaged over ranks (us).
    pub total_us: f64,
    /// The part of `total_us` during which the compute lane was idle, of communication (us).
    pub exposed_us: f64,
    /// Part of it hidden (%); null where it is no communication.
    pub hidden_pct: Option<f64>,
}

/// Operations of one name: a kernel, or an operation of a plan in all of its layers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NameRow {
    /// The name, whole; of a plan with `L*` for the layer.
    pub name: String,
    /// `compute`, `comm` or `memory`.
    pub lane: &'static str,
    /// Executions, over all ranks.
    pub count: u64,
    /// Sum of their durations per rank, averaged over ranks (us).
    pub total_us: f64,
    /// Mean duration of an execution (us).
    pub mean_us: f64,
    /// The longest execution (us).
    pub max_us: f64,
    /// Share of the lane's sum of durations (%).
    pub share_pct: f64,
    /// The part of `total_us` during which the compute lane was idle, of communication (us).
    pub exposed_us: f64,
}

/// A layer. Times a rank, averaged over ranks (us).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerRow {
    /// The layer, from 0; null for what belongs to none.
    pub layer: Option<u32>,
    /// Time of the layer's operations on the compute lane (us).
    pub compute_us: f64,
    /// Time of the layer's collectives on the comm lane (us).
    pub comm_us: f64,
    /// The part of `comm_us` during which the compute lane was idle (us).
    pub exposed_us: f64,
    /// Executions of its operations, or ranges that name it, over all ranks.
    pub count: u64,
    /// Where this is known from: `operations` (sums of durations of the layer's own operations) or
    /// `ranges` (what the device did in the time of ranges named after it).
    pub from: &'static str,
}

/// Analyses the selected part of a trace.
pub fn trace_report(trace: &Trace, selection: &Selection) -> TraceReport {
    let runs = Runs::new(trace, selection);
    let lanes = Lanes::of(&runs);
    let tally = Tally::of(&runs, &lanes);
    TraceReport {
        overlap: summarise(&runs, &lanes, &tally),
        idle: idle(&runs, &lanes),
        kinds: kinds(&runs, &tally),
        names: names(&runs, &tally),
        collectives: collectives(&runs, &tally),
        layers: layers(&runs, &lanes, &tally),
        ranges: ranges::by_name(&runs, &lanes),
        steps: steps::of_runs(&runs),
        critical_path: critical::summary(&runs),
        stragglers: stragglers(&runs),
        import: trace.meta.import.clone(),
    }
}

fn group(name: &str, lane: &'static str, cell: &Cell, ranks: usize) -> GroupRow {
    let average = |ns: i64| us(ns) / ranks.max(1) as f64;
    let hidden = cell.total_ns.saturating_sub(cell.exposed_ns) as f64;
    GroupRow {
        name: name.into(),
        lane,
        count: cell.count,
        total_us: average(cell.total_ns),
        exposed_us: average(cell.exposed_ns),
        hidden_pct: (lane == "comm" && cell.total_ns > 0).then(|| 100.0 * hidden / cell.total_ns as f64),
    }
}

fn kinds(runs: &Runs, tally: &Tally) -> Vec<GroupRow> {
    let groups = tally.group(runs.trace, |o, lane| Some((o.kind.as_str(), lane)));
    let ranks = runs.ranks.len();
    let mut rows: Vec<GroupRow> =
        groups.iter().map(|((kind, lane), cell)| group(kind, lane, cell, ranks)).collect();
    rows.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
    rows
}

fn names(runs: &Runs, tally: &Tally) -> Vec<NameRow> {
    let groups = tally.group(runs.trace, |operation, lane| Some((over_layers(operation), lane)));
    let mut lane_ns: BTreeMap<&str, i64> = BTreeMap::new();
    for ((_, lane), cell) in &groups {
        let sum = lane_ns.entry(lane).or_default();
        *sum = sum.saturating_add(cell.total_ns);
    }
    let ranks = runs.ranks.len().max(1) as f64;
    let row = |((name, lane), cell): ((Cow<'_, str>, &'static str), Cell)| NameRow {
        name: name.into_owned(),
        lane,
        count: cell.count,
        total_us: us(cell.total_ns) / ranks,
        mean_us: us(cell.total_ns) / cell.count.max(1) as f64,
        max_us: us(cell.longest_ns),
        share_pct: 100.0 * cell.total_ns as f64 / lane_ns.get(lane).copied().unwrap_or(0).max(1) as f64,
        exposed_us: us(cell.exposed_ns) / ranks,
    };
    let mut rows: Vec<NameRow> = groups.into_iter().map(row).collect();
    rows.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
    rows
}

/// An operation's name without its layer: what a plan does in each layer is one thing to look at.
fn over_layers(operation: &OperationInfo) -> Cow<'_, str> {
    let name = operation.name.as_str();
    let Some(layer) = operation.layer else { return name.into() };
    let segment = format!("L{layer}");
    match name.split('/').any(|part| part == segment) {
        true => name
            .split('/')
            .map(|part| if part == segment { "L*" } else { part })
            .collect::<Vec<_>>()
            .join("/")
            .into(),
        false => name.into(),
    }
}

fn collectives(runs: &Runs, tally: &Tally) -> Vec<GroupRow> {
    let ranks = runs.ranks.len();
    let executed = tally.operations(runs.trace).filter(|(_, lane, _)| *lane == "comm");
    let mut rows: Vec<GroupRow> =
        executed.map(|(operation, lane, cell)| group(&operation.name, lane, &cell, ranks)).collect();
    let most = |row: &GroupRow| (row.exposed_us, row.total_us);
    rows.sort_by(|a, b| most(b).partial_cmp(&most(a)).unwrap_or(std::cmp::Ordering::Equal));
    rows
}

fn layers(runs: &Runs, lanes: &[Lanes], tally: &Tally) -> Vec<LayerRow> {
    if runs.trace.operations.iter().all(|operation| operation.layer.is_none()) {
        let of_range = |row: RangeRow| LayerRow {
            layer: row.layer,
            compute_us: row.compute_us,
            comm_us: row.comm_us,
            exposed_us: row.exposed_us,
            count: row.count,
            from: "ranges",
        };
        return ranges::by_layer(runs, lanes).into_iter().map(of_range).collect();
    }
    let average = |ns: i64| us(ns) / runs.ranks.len().max(1) as f64;
    // What belongs to no layer comes last.
    let groups = tally.group(runs.trace, |o, lane| Some(((o.layer.is_none(), o.layer), lane)));
    let mut rows: Vec<LayerRow> = Vec::new();
    for (((_, layer), lane), cell) in groups {
        if rows.last().is_none_or(|row| row.layer != layer) {
            let (compute_us, comm_us, exposed_us) = (0.0, 0.0, 0.0);
            rows.push(LayerRow { layer, compute_us, comm_us, exposed_us, count: 0, from: "operations" });
        }
        if let Some(row) = rows.last_mut() {
            row.count += cell.count;
            match lane {
                "comm" => {
                    (row.comm_us, row.exposed_us) = (average(cell.total_ns), average(cell.exposed_ns))
                }
                "compute" => row.compute_us = average(cell.total_ns),
                _ => {}
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Lane;
    use crate::study::analysis::testing::{span, trace};

    #[test]
    fn names_are_counted_over_layers_and_ranks_with_their_longest_execution() {
        let [compute, comm] = [Lane::Compute, Lane::Comm];
        let mut trace = trace(vec![
            span(0, compute, 0, 1000),
            span(0, comm, 500, 2500),
            span(1, compute, 0, 3000),
            span(1, comm, 3000, 4000),
        ]);
        // the same operation in another layer
        let mut other = trace.operations[0].clone();
        (other.name, other.layer) = ("decode/L1/mlp/down".into(), Some(1));
        trace.operations.push(other);
        trace.spans.push(span(0, compute, 2500, 2700));
        trace.spans.last_mut().unwrap().operation = trace.operations.len() as u32 - 1;
        let names = trace_report(&trace, &Selection::default()).names;
        assert_eq!(names.len(), 2);
        let [first, second] = [&names[0], &names[1]];
        assert_eq!((first.name.as_str(), first.lane, first.count), ("decode/L*/mlp/down", "compute", 3));
        assert!((first.total_us - 2.1).abs() < 1e-9 && (first.mean_us - 1.4).abs() < 1e-9);
        assert_eq!((first.max_us, first.share_pct, first.exposed_us), (3.0, 100.0, 0.0));
        assert_eq!((second.name.as_str(), second.lane), ("decode/L*/mlp/reduce", "comm"));
        assert_eq!((second.max_us, second.exposed_us), (2.0, 1.25));
    }
}
