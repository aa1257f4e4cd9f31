//! Complete report of a trace for `overlap`, computed from shared intermediate results.

use std::collections::BTreeSet;

use serde::Serialize;

use super::arrivals::{Stragglers, stragglers};
use super::clocks::Clocks;
use super::collectives::{self, CollectiveRow, GroupOverlap};
use super::critical::{self, PathSummary};
use super::experts::{ExpertTimes, experts};
use super::exposed::{ExposedStretches, exposed};
use super::idle::{IdleSplit, idle};
use super::matched::{CollectiveMatching, MatchObstacle};
use super::names::{NameRow, OperatorRow, names, operators};
use super::products::Products;
use super::ranges::{self, RangeRow};
use super::steps::{self, StepSummary};
use crate::rewire::LayerTimes;
use table::render::{Shown, Table};
use trace::overlap::{
    Class, Lanes, OverlapReport, RankOverlap, Selection, SpanRuns, StepKey, Tally, TallyCell, summarise,
    us,
};
use trace::{ImportReport, Span, Trace};

#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct TraceReport {
    /// Overlap by rank and in total; breakdown by module and kind.
    #[serde(flatten)]
    pub overlap: OverlapReport,
    pub idle: Vec<IdleSplit>,
    pub kinds: Vec<GroupRow>,
    /// Rows by name, the longest first; layers of own plans are merged.
    pub names: Vec<NameRow>,
    pub exposed_stretches: ExposedStretches,
    /// Collectives by operation, process group and message size, the most exposed first.
    pub collectives: Vec<CollectiveRow>,
    /// Overlap by kind of process group, the longest first; empty if the trace names no groups.
    pub groups: Vec<GroupOverlap>,
    /// Rows by layer, in order; empty if the trace has no layers.
    pub layers: Vec<LayerRow>,
    pub ranges: Vec<RangeRow>,
    /// Rows by launching operator, the longest first; empty if no operator is known.
    pub operators: Vec<OperatorRow>,
    #[serde(flatten)]
    pub products: Products,
    pub steps: Vec<StepSummary>,
    /// Critical paths of the steps; own traces only.
    pub critical_path: Option<PathSummary>,
    /// Last arrivals at collectives; needs more than one rank.
    pub stragglers: Option<Stragglers>,
    /// Known reasons for collectives without a match on other ranks.
    #[serde(skip)]
    pub obstacles: BTreeSet<MatchObstacle>,
    /// Experts of a mixture; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experts: Option<ExpertTimes>,
    /// Import report of an imported trace: what was read and what was skipped.
    pub import: Option<ImportReport>,
}

/// Group of operations. Total durations per rank, averaged over ranks.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct GroupRow {
    pub name: String,
    /// `compute`, `comm`, `memory` or `other`.
    pub lane: &'static str,
    /// Executions, over all ranks.
    pub count: u64,
    /// Total duration per rank, averaged over ranks (us).
    pub total_us: f64,
    /// Exposed part of communication (us): the rank communicated and did not compute. Time with several collectives at
    /// once counts for the first, so that rows add up to the rank's exposed time.
    pub exposed_us: f64,
    /// Share of `total_us` during which the rank computed (%); null for compute.
    pub hidden_pct: Option<f64>,
}

/// Layer of the model. Times per rank, averaged over ranks (us).
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct LayerRow {
    /// Layer, from 0; null for operations outside of layers.
    pub layer: Option<u32>,
    /// Time of the layer's operations on the compute lane (us).
    pub compute_us: f64,
    /// Time of the layer's collectives on the comm lane (us).
    pub comm_us: f64,
    /// Exposed part of `comm_us`: the compute lane was idle (us).
    pub exposed_us: f64,
    /// Executions of the layer's operations, or ranges that name it, over all ranks.
    pub count: u64,
    /// Source of the row: `operations` (total durations of the layer's operations), `ranges` (device time of ranges
    /// named after the layer) or `collectives` (total durations between the two all-reduces, or dispatch and combine,
    /// of every layer; counted from the first layer with them).
    pub from: &'static str,
}

pub fn trace_report(trace: &Trace, selection: &Selection) -> TraceReport {
    let all = SpanRuns::new(trace, &Selection::default());
    let lanes_of_all = Lanes::from_runs(&all);
    let selected = (!selection.is_everything()).then(|| {
        let runs = all.clone().select(selection);
        let lanes = Lanes::within(&lanes_of_all, &runs);
        (runs, lanes)
    });
    let (runs, lanes) = selected.as_ref().map_or((&all, &lanes_of_all), |(runs, lanes)| (runs, lanes));
    let tally = Tally::new(runs, lanes);
    let matching = CollectiveMatching::from_trace(trace);
    let clocks = Clocks::new(trace, &matching);
    let overlap = summarise(runs, lanes, &tally);
    TraceReport {
        products: Products::new(runs, overlap.all.exact.span_ns),
        overlap,
        idle: idle(runs, &all, &lanes_of_all),
        kinds: kinds(runs, &tally),
        names: names(runs, &tally, |_| true),
        exposed_stretches: exposed(runs, lanes),
        collectives: collectives::collectives(runs, &tally, &matching, &clocks),
        groups: collectives::by_group(runs, lanes, &tally),
        layers: layers(runs, lanes, &tally),
        ranges: ranges::by_name(runs, lanes),
        operators: operators(runs, lanes),
        steps: steps::of_runs(runs, lanes, &clocks),
        critical_path: critical::summary(runs),
        stragglers: stragglers(runs, &matching, &clocks),
        experts: experts(runs, &matching, &clocks),
        import: trace.meta.import.clone(),
        obstacles: matching.obstacles,
    }
}

/// Rows of layers, of these steps only.
pub fn layers_of_steps(trace: &Trace, steps: &BTreeSet<StepKey>) -> Vec<LayerRow> {
    let all = SpanRuns::new(trace, &Selection::default());
    let lanes_of_all = Lanes::from_runs(&all);
    let runs = all.select_steps(steps);
    let lanes = Lanes::within(&lanes_of_all, &runs);
    layers(&runs, &lanes, &Tally::new(&runs, &lanes))
}

/// Table of ranks. `with_all`, for people, adds a row with the sum and leaves out times that are zero on all ranks.
pub fn ranks_table(report: &OverlapReport, with_all: bool) -> Table {
    let all = (with_all && report.ranks.len() > 1).then_some(&report.all);
    let rows: Vec<&RankOverlap> = report.ranks.iter().chain(all).collect();
    let some =
        |sum: f64, time: f64| if with_all && sum == 0.0 { Shown::None } else { Shown::Time(time) };
    Table::from_rows(
        &rows,
        &[
            ("rank", &|r| r.rank.map_or_else(|| Shown::text("all"), Into::into)),
            ("comm_us|comm", &|r| Shown::Time(r.comm_us)),
            ("compute_us|compute", &|r| Shown::Time(r.compute_us)),
            ("memory_us|copies", &|r| some(report.all.memory_us, r.memory_us)),
            ("overlap_us|overlap", &|r| Shown::Time(r.overlap_us)),
            ("exposed_comm_us|exposed", &|r| Shown::Time(r.exposed_comm_us)),
            ("overlap_pct|overlap %", &|r| Shown::number(r.overlap_pct, 1)),
            // omitted for people (span minus idle), to fit seconds of trace into 100 columns
            ("busy_us|", &|r| Shown::Time(r.busy_us)),
            ("idle_us|idle", &|r| Shown::Time(r.idle_us)),
            ("span_us|span", &|r| Shown::Time(r.span_us)),
            ("peer_wait_us|waited", &|r| {
                r.peer_wait_us
                    .map_or(Shown::None, |own| some(report.all.peer_wait_us.unwrap_or(0.0), own))
            }),
        ],
    )
}

pub(super) fn group(name: &str, lane: &'static str, cell: &TallyCell, ranks: usize) -> GroupRow {
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

fn kinds(runs: &SpanRuns, tally: &Tally) -> Vec<GroupRow> {
    let groups = tally.group(runs.trace, |o, lane| Some((o.kind.as_str(), lane)));
    let ranks = runs.ranks.len();
    let mut rows: Vec<GroupRow> =
        groups.iter().map(|((kind, lane), cell)| group(kind, lane, cell, ranks)).collect();
    rows.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
    rows
}

fn layers(runs: &SpanRuns, lanes: &[Lanes], tally: &Tally) -> Vec<LayerRow> {
    if runs.trace.operations.iter().all(|operation| operation.layer.is_none()) {
        let of_range = |row: RangeRow| LayerRow {
            layer: row.layer,
            compute_us: row.compute_us,
            comm_us: row.comm_us,
            exposed_us: row.exposed_us,
            count: row.count,
            from: "ranges",
        };
        let rows: Vec<LayerRow> = ranges::by_layer(runs, lanes).into_iter().map(of_range).collect();
        return if rows.is_empty() { between_collectives(runs, lanes) } else { rows };
    }
    let average = |ns: i64| us(ns) / runs.ranks.len().max(1) as f64;
    // operations outside of layers come last
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

/// Rows of layers that only their collectives tell apart; empty if these do not repeat.
fn between_collectives(runs: &SpanRuns, lanes: &[Lanes]) -> Vec<LayerRow> {
    let times = runs.trace.meta.import.as_ref().and_then(|_| LayerTimes::from_trace(runs.trace));
    let Some(times) = times else { return Vec::new() };
    let (outside, memory) = (times.layers as usize, times.layers as usize + 1);
    let number = |span: &Span| match runs.class(span) {
        Class::Compute | Class::Comm => times.layer(span).map_or(outside, |layer| layer as usize),
        Class::Memory | Class::Other => memory,
    };
    let average = |ns: i64| us(ns) / runs.ranks.len().max(1) as f64;
    let cells = Tally::by(runs, lanes, memory, number).cells;
    let row = |(layer, [compute, comm]): (usize, &[TallyCell; 2])| LayerRow {
        layer: (layer < outside).then_some(layer as u32),
        compute_us: average(compute.total_ns),
        comm_us: average(comm.total_ns),
        exposed_us: average(comm.exposed_ns),
        count: compute.count + comm.count,
        from: "collectives",
    };
    let is_empty = |cells: &[TallyCell; 2]| cells.iter().all(TallyCell::is_empty);
    cells.iter().enumerate().filter(|(_, cells)| !is_empty(cells)).map(row).collect()
}
