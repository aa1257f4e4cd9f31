//! Everything that `overlap` says of a trace, in one go: what is collected once serves all of it.

use serde::Serialize;

use super::clocks::Clocks;
use super::collectives::{self, CollectiveRow, GroupOverlap};
use super::critical::{self, PathSummary};
use super::exposed::{ExposedStretches, exposed};
use super::idle::{IdleSplit, idle};
use super::matched::Matching;
use super::names::{NameRow, names};
use super::operators::{OperatorRow, operators};
use super::products::Products;
use super::ranges::{self, RangeRow};
use super::steps::{self, StepSummary};
use super::stragglers::{Stragglers, stragglers};
use trace::overlap::{Cell, Lanes, OverlapReport, Runs, Selection, Tally, summarise, us};
use trace::{ImportReport, Trace};

/// All that is known of the selected part of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
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
    /// The longest stretches of exposed communication, the longest first.
    pub exposed_stretches: ExposedStretches,
    /// Collectives by operation, process group and message size, the most exposed first.
    pub collectives: Vec<CollectiveRow>,
    /// Overlap by kind of process group, the longest first; empty if the trace names no groups.
    pub groups: Vec<GroupOverlap>,
    /// By layer, in order; empty where nothing tells layers.
    pub layers: Vec<LayerRow>,
    /// By named range, the longest first.
    pub ranges: Vec<RangeRow>,
    /// By the operator that launched the work, the longest first; empty where no operator is known.
    pub operators: Vec<OperatorRow>,
    /// Matrix products and attention whose shapes the trace records.
    #[serde(flatten)]
    pub products: Products,
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
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct GroupRow {
    /// The operation's name, or its kind.
    pub name: String,
    /// `compute`, `comm`, `memory` or `other`.
    pub lane: &'static str,
    /// Executions, over all ranks.
    pub count: u64,
    /// Sum of their durations per rank, averaged over ranks (us).
    pub total_us: f64,
    /// Of communication: its part of the time in which the rank communicated and computed nothing. Where several run at
    /// once that time counts for the first, so that the rows add up to the rank's exposed time (us).
    pub exposed_us: f64,
    /// Share of `total_us` during which the rank computed (%); null where it is no communication.
    pub hidden_pct: Option<f64>,
}

/// A layer. Times a rank, averaged over ranks (us).
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
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
    let matching = Matching::of(trace);
    let clocks = Clocks::of(trace, &matching);
    let overlap = summarise(&runs, &lanes, &tally);
    TraceReport {
        products: Products::of(&runs, overlap.all.exact.span_ns),
        overlap,
        idle: idle(&runs, &lanes),
        kinds: kinds(&runs, &tally),
        names: names(&runs, &tally, |_| true),
        exposed_stretches: exposed(&runs, &lanes),
        collectives: collectives::collectives(&runs, &tally, &matching, &clocks),
        groups: collectives::by_group(&runs, &lanes, &tally),
        layers: layers(&runs, &lanes, &tally),
        ranges: ranges::by_name(&runs, &lanes),
        operators: operators(&runs, &lanes),
        steps: steps::of_runs(&runs, &clocks),
        critical_path: critical::summary(&runs),
        stragglers: stragglers(&runs, &matching, &clocks),
        import: trace.meta.import.clone(),
    }
}

pub(super) fn group(name: &str, lane: &'static str, cell: &Cell, ranks: usize) -> GroupRow {
    let average = |ns: i64| us(ns) / ranks.max(1) as f64;
    GroupRow {
        name: name.into(),
        lane,
        count: cell.count,
        total_us: average(cell.total_ns),
        exposed_us: average(cell.exposed_ns),
        hidden_pct: (lane == "comm" && cell.total_ns > 0)
            .then(|| 100.0 * cell.hidden_ns as f64 / cell.total_ns as f64),
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
