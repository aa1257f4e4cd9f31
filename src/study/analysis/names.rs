//! Time by name of operation (a kernel, or a plan's operation over all layers): count, total, longest execution and
//! exposed time.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use plan::Lane;
use table::render::{Shown, Table};
use trace::overlap::{Cell, Class, Lanes, Runs, Selection, Tally, us};
use trace::{OperationInfo, Trace};

/// Operations of one name: a kernel, or a plan's operation over all layers.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct NameRow {
    /// Full name; `L*` for the layer in own plans.
    pub name: String,
    /// `compute`, `comm`, `memory` or `other`.
    pub lane: &'static str,
    /// Executions, over all ranks.
    pub count: u64,
    /// Total duration per rank, averaged over ranks (us).
    pub total_us: f64,
    pub mean_us: f64,
    pub max_us: f64,
    /// Share of the lane's total duration (%).
    pub share_pct: f64,
    /// Exposed part of communication: the rank communicated and did not compute (us). Rows add up to the rank's exposed
    /// time.
    pub exposed_us: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LaneTotal {
    /// `compute`, `comm`, `memory` or `other`.
    pub lane: &'static str,
    /// Executions, over all ranks.
    pub count: u64,
    /// Total duration per rank, averaged over ranks (us).
    pub total_us: f64,
    /// Share of the total duration of everything selected on the lane (%).
    pub share_pct: f64,
    /// Exposed part of communication in `total_us` (us).
    pub exposed_us: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct OperationTable {
    /// One row per name and lane, the largest total first.
    pub rows: Vec<NameRow>,
    /// Index of the span of each row's longest execution (the first of several).
    pub longest: Vec<usize>,
    pub lanes: Vec<LaneTotal>,
}

/// Table of the `wanted` operations in the selected part of a trace. Shares relate to everything selected. A few passes
/// over the selected spans, parallel except for the search of the longest.
pub fn operation_table(
    trace: &Trace,
    selection: &Selection,
    wanted: impl Fn(&OperationInfo) -> bool,
) -> OperationTable {
    let runs = Runs::new(trace, selection);
    let tally = Tally::of(&runs, &Lanes::of(&runs));
    let rows = names(&runs, &tally, &wanted);
    let longest = longest(&runs, &rows, &wanted);
    let lanes = totals_of(&rows);
    OperationTable { rows, longest, lanes }
}

/// Lane totals of the `wanted` operations as in [`operation_table`], without searching the longest executions.
pub fn lane_totals(
    trace: &Trace,
    selection: &Selection,
    wanted: impl Fn(&OperationInfo) -> bool,
) -> Vec<LaneTotal> {
    let runs = Runs::new(trace, selection);
    totals_of(&names(&runs, &Tally::of(&runs, &Lanes::of(&runs)), wanted))
}

pub fn totals_of<'a>(rows: impl IntoIterator<Item = &'a NameRow> + Clone) -> Vec<LaneTotal> {
    let of_lane = |lane: &'static str| {
        let rows = || rows.clone().into_iter().filter(|row| row.lane == lane);
        let sum = |of: fn(&NameRow) -> f64| rows().map(of).sum();
        rows().next().map(|_| LaneTotal {
            lane,
            count: rows().map(|row| row.count).sum(),
            total_us: sum(|row| row.total_us),
            share_pct: sum(|row| row.share_pct),
            exposed_us: sum(|row| row.exposed_us),
        })
    };
    ["compute", "comm", "memory", "other"].into_iter().filter_map(of_lane).collect()
}

/// Index of the span of each row's longest execution.
fn longest(runs: &Runs, rows: &[NameRow], wanted: impl Fn(&OperationInfo) -> bool) -> Vec<usize> {
    let places: HashMap<(&str, &str), usize> =
        rows.iter().enumerate().map(|(at, row)| ((row.name.as_str(), row.lane), at)).collect();
    // rows of each operation on the compute and on the comm lane
    let of_operation: Vec<[Option<usize>; 2]> = runs
        .trace
        .operations
        .iter()
        .map(|operation| {
            let name = over_layers(operation);
            let row =
                |lane: Lane| places.get(&(name.as_ref(), Class::of(operation, lane).as_str())).copied();
            if wanted(operation) { [row(Lane::Compute), row(Lane::Comm)] } else { [None; 2] }
        })
        .collect();
    let mut longest = vec![(-1, 0); rows.len()];
    for place in runs.by_rank.iter().flatten().flat_map(|run| run.at.clone()) {
        let span = &runs.trace.spans[place];
        let row = of_operation.get(span.operation as usize).and_then(|rows| rows[span.lane as usize]);
        if let Some((row, (start, end))) = row.zip(runs.clip(span)) {
            let duration = end.saturating_sub(start);
            if duration > longest[row].0 {
                longest[row] = (duration, place);
            }
        }
    }
    longest.into_iter().map(|(_, place)| place).collect()
}

pub(super) fn names(
    runs: &Runs,
    tally: &Tally,
    wanted: impl Fn(&OperationInfo) -> bool,
) -> Vec<NameRow> {
    let mut lane_ns: BTreeMap<&str, i64> = BTreeMap::new();
    for (_, lane, cell) in tally.operations(runs.trace) {
        let sum = lane_ns.entry(lane).or_default();
        *sum = sum.saturating_add(cell.total_ns);
    }
    let groups = tally
        .group(runs.trace, |operation, lane| wanted(operation).then(|| (over_layers(operation), lane)));
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

pub fn names_table(names: &[NameRow]) -> Table {
    let us = Shown::Time;
    Table::of(
        names,
        &[
            ("~name", &|n| Shown::text(&n.name)),
            ("lane", &|n| Shown::text(n.lane)),
            ("count|count, all ranks", &|n| n.count.into()),
            ("total_us", &|n| us(n.total_us)),
            ("mean_us", &|n| us(n.mean_us)),
            ("max_us", &|n| us(n.max_us)),
            ("share_pct|% of lane", &|n| Shown::Number(n.share_pct, 1)),
            ("exposed_us", &|n| if n.lane == "comm" { us(n.exposed_us) } else { Shown::None }),
        ],
    )
    .least(&["max_us", "exposed_us", "lane"])
}

/// Name of an operation with `L*` for its layer, so that all layers of a plan share a row.
pub(super) fn over_layers(operation: &OperationInfo) -> Cow<'_, str> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::trace_report;
    use trace::Span;
    use trace::overlap::StepKey;
    use trace::testing::{span, trace};

    /// Two layers' `down` and a reduce of each rank, rank 1 slower.
    fn layered() -> Trace {
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
        let operation = trace.operations.len() as u32 - 1;
        trace.spans.push(Span { operation, ..span(0, compute, 2500, 2700) });
        trace
    }

    #[test]
    fn names_are_counted_over_layers_and_ranks_with_their_longest_execution() {
        let trace = layered();
        let names = trace_report(&trace, &Selection::default()).names;
        assert_eq!(names.len(), 2);
        let [first, second] = [&names[0], &names[1]];
        assert_eq!((first.name.as_str(), first.lane, first.count), ("decode/L*/mlp/down", "compute", 3));
        assert!((first.total_us - 2.1).abs() < 1e-9 && (first.mean_us - 1.4).abs() < 1e-9);
        assert_eq!((first.max_us, first.share_pct, first.exposed_us), (3.0, 100.0, 0.0));
        assert_eq!((second.name.as_str(), second.lane), ("decode/L*/mlp/reduce", "comm"));
        assert_eq!((second.max_us, second.exposed_us), (2.0, 1.25));
        let table = operation_table(&trace, &Selection::default(), |_| true);
        assert_eq!(table.rows, names);
        assert_eq!(table.longest, [2, 1], "rank 1's down, rank 0's reduce");
        let lanes: Vec<(&str, u64, f64)> =
            table.lanes.iter().map(|lane| (lane.lane, lane.count, lane.share_pct)).collect();
        assert_eq!(lanes, [("compute", 3, 100.0), ("comm", 2, 100.0)]);
    }

    #[test]
    fn a_part_of_the_operations_keeps_its_share_of_the_whole() {
        let trace = layered();
        let of_layer = operation_table(&trace, &Selection::default(), |o| o.name.contains("L1"));
        let [row] = &of_layer.rows[..] else { panic!("{of_layer:?}") };
        assert_eq!((row.count, row.total_us, row.max_us), (1, 0.1, 0.2));
        assert!((row.share_pct - 100.0 * 0.2 / 4.2).abs() < 1e-9, "of all on its lane: {row:?}");
        assert_eq!(of_layer.longest, [4]);
        // the first 700 ns of the trace: reduce is clipped to 200 ns of it, all hidden
        let selection = Selection { from_ns: Some(0), to_ns: Some(700), ..Selection::default() };
        let early = operation_table(&trace, &selection, |_| true);
        assert_eq!((early.rows[1].max_us, early.rows[1].exposed_us), (0.2, 0.0));
        let none = operation_table(&trace, &selection, |_| false);
        assert_eq!((none.rows.len(), none.lanes.len()), (0, 0));
    }

    #[test]
    fn a_step_is_of_one_generation() {
        let mut trace = layered();
        let again: Vec<Span> = trace.spans.iter().map(|s| Span { sample: 1, ..*s }).collect();
        trace.spans.extend(again);
        let key = StepKey::of(&trace.spans[7]);
        let table = operation_table(&trace, &Selection::of_step(key), |_| true);
        assert_eq!((table.rows[0].count, &table.longest[..]), (3, &[7, 6][..]));
    }
}
