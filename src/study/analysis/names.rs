//! Time by name of operation (a kernel, or a plan's operation over all layers): count, total, longest execution and
//! exposed time.
//!
//! Device time by launching operator: the framework's, or the host's API call if there is none, as for the launch of a
//! CUDA graph.
//!
//! Work that dominates a trace: copies by direction, kernels, the longest kernel, idle time.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::experts::ExpertTimes;
use super::report::TraceReport;
use plan::Lane;
use table::render::{Shown, Table};
use trace::overlap::{Class, LaneNanoseconds, Lanes, Selection, SpanRuns, Tally, TallyCell, us};
use trace::{OperationInfo, Span, Trace};

/// Operations of one name: a kernel, or a plan's operation over all layers.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct NameRow {
    /// Full name; `L*` for the layer in own plans.
    pub name: String,
    /// `compute`, `comm`, `memory` or `other`.
    pub lane: &'static str,
    /// Executions with time in the selection, over all ranks. Their times are clipped to the selection.
    pub count: u64,
    /// Total duration per rank, averaged over ranks (us).
    pub total_us: f64,
    /// Mean duration of an execution (us).
    pub mean_us: f64,
    /// Longest execution on any rank (us).
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
    /// True if an execution continues beyond the selection, so that only a part of it counts.
    pub is_clipped: bool,
    pub lanes: Vec<LaneTotal>,
    /// Busy time of each lane per rank: concurrent executions count once (us). Empty unless all operations are wanted.
    pub busy_us: Vec<(&'static str, f64)>,
    /// Time between first start and last end of what is selected, per rank (us).
    pub time_us: f64,
    /// Experts of a mixture, if asked for.
    pub experts: Option<ExpertTimes>,
}

/// Table of the `wanted` operations in the selected part of a trace. Shares relate to everything selected. A few passes
/// over the selected spans, parallel except for the search of the longest.
pub fn operation_table(
    trace: &Trace,
    selection: &Selection,
    wanted: impl Fn(&OperationInfo) -> bool,
) -> OperationTable {
    let runs = SpanRuns::new(trace, selection);
    let of_ranks = Lanes::from_runs(&runs);
    let tally = Tally::new(&runs, &of_ranks);
    let rows = names(&runs, &tally, &wanted);
    let (longest, is_clipped) = longest(&runs, &rows, &wanted);
    let lanes = totals_of(&rows);
    let sums: LaneNanoseconds = of_ranks.iter().map(Lanes::sums).sum();
    let per_rank = |ns: i64| us(ns) / runs.ranks.len().max(1) as f64;
    let busy_us = match trace.operations.iter().all(&wanted) {
        true => vec![
            ("compute", per_rank(sums.compute_ns)),
            ("comm", per_rank(sums.comm_ns)),
            ("memory", per_rank(sums.memory_ns)),
        ],
        false => Vec::new(),
    };
    let time_us = per_rank(sums.span_ns);
    OperationTable { rows, longest, is_clipped, lanes, busy_us, time_us, experts: None }
}

/// Lane totals of the `wanted` operations as in [`operation_table`], without searching the longest executions.
pub fn lane_totals(
    trace: &Trace,
    selection: &Selection,
    wanted: impl Fn(&OperationInfo) -> bool,
) -> Vec<LaneTotal> {
    let runs = SpanRuns::new(trace, selection);
    totals_of(&names(&runs, &Tally::new(&runs, &Lanes::from_runs(&runs)), wanted))
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

/// Index of the span of each row's longest execution, and true if any execution is clipped to the selection.
fn longest(
    runs: &SpanRuns,
    rows: &[NameRow],
    wanted: impl Fn(&OperationInfo) -> bool,
) -> (Vec<usize>, bool) {
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
                |lane: Lane| places.get(&(name.as_ref(), Class::new(operation, lane).as_str())).copied();
            if wanted(operation) { [row(Lane::Compute), row(Lane::Comm)] } else { [None; 2] }
        })
        .collect();
    let (mut longest, mut is_clipped) = (vec![(-1, 0); rows.len()], false);
    for place in runs.by_rank.iter().flatten().flat_map(|run| run.at.clone()) {
        let span = &runs.trace.spans[place];
        let row = of_operation.get(span.operation as usize).and_then(|rows| rows[span.lane as usize]);
        if let Some(row) = row
            && let Some(time) = runs.time(span)
        {
            is_clipped |= time < span.end_ns.saturating_sub(span.start_ns);
            if time > longest[row].0 {
                longest[row] = (time, place);
            }
        }
    }
    (longest.into_iter().map(|(_, place)| place).collect(), is_clipped)
}

pub(super) fn names(
    runs: &SpanRuns,
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
    let row = |((name, lane), cell): ((Cow<'_, str>, &'static str), TallyCell)| NameRow {
        name: name.into_owned(),
        lane,
        count: cell.executions,
        total_us: us(cell.total_ns) / ranks,
        mean_us: us(cell.total_ns) / cell.executions.max(1) as f64,
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
    Table::from_rows(
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
pub(crate) fn over_layers(operation: &OperationInfo) -> Cow<'_, str> {
    let name = operation.name.as_str();
    let Some(layer) = operation.layer else { return name.into() };
    let segment = format!("L{layer}");
    if !name.split('/').any(|part| part == segment) {
        return name.into();
    }
    let parts = name.split('/').map(|part| if part == segment { "L*" } else { part });
    parts.collect::<Vec<_>>().join("/").into()
}

/// Row of work launched before the recording, or by an unrecorded call.
const UNKNOWN: &str = "(launch not recorded)";

/// GPU work launched by an operator. Times are total durations per rank, averaged over ranks (us).
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct OperatorRow {
    /// Operator (`aten::mm`) or API call of the host (`cudaGraphLaunch`).
    pub name: String,
    /// Kernels, copies and fills launched, over all ranks.
    pub count: u64,
    pub total_us: f64,
    pub comm_us: f64,
    /// Exposed communication; counts each moment once, so rows add up to the rank's exposed time (us).
    pub exposed_us: f64,
}

/// Rows by operator, the longest first; empty if no operator is known.
pub(super) fn operators(runs: &SpanRuns, lanes: &[Lanes]) -> Vec<OperatorRow> {
    let names = &runs.trace.meta.range_names;
    if names.is_empty() {
        return Vec::new();
    }
    // one cell per operator plus one for unknown launches; compute and copies separate from communication
    let operator = |span: &Span| (span.launched.operator as usize).min(names.len());
    let cells = Tally::by(runs, lanes, names.len() + 1, operator).cells;
    if cells[..names.len()].iter().flatten().all(TallyCell::is_empty) {
        return Vec::new();
    }
    let average = |ns: i64| us(ns) / runs.ranks.len().max(1) as f64;
    let row = |(name, [other, comm]): (&&str, &[TallyCell; 2])| OperatorRow {
        name: (*name).into(),
        count: other.count + comm.count,
        total_us: average(other.total_ns.saturating_add(comm.total_ns)),
        comm_us: average(comm.total_ns),
        exposed_us: average(comm.exposed_ns),
    };
    // an operator with several shapes has several numbers
    let mut by_name: BTreeMap<&str, [TallyCell; 2]> = BTreeMap::new();
    for (name, cells) in names.iter().map(String::as_str).chain([UNKNOWN]).zip(&cells) {
        by_name.entry(name).or_default().iter_mut().zip(cells).for_each(|(sum, cell)| sum.add(cell));
    }
    by_name.retain(|_, cells| !cells.iter().all(TallyCell::is_empty));
    let mut rows: Vec<OperatorRow> = by_name.iter().map(row).collect();
    rows.sort_by(|a, b| b.total_us.total_cmp(&a.total_us).then_with(|| a.name.cmp(&b.name)));
    rows
}

/// Minimum share of the time for a part to be reported (0 to 1).
const LEAST: f64 = 0.01;

/// Part of the time of a trace. Parts add up to at most the whole: communication and copies count while nothing else runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct TimePart {
    /// `idle`, `compute`, `exposed communication`, or the direction of copies: `host-to-device copies`.
    pub work: String,
    /// Share of the time, averaged over ranks (0 to 1).
    pub share: f64,
    /// Kernel with the largest share of the part; null for idle time and copies.
    pub longest: Option<String>,
    /// Share of the time that this kernel takes (0 to 1).
    pub longest_share: f64,
    /// Bandwidth of copies (GB/s), if the trace records all their sizes.
    pub gb_s: Option<f64>,
}

/// Parts of the time of a trace, the largest first; empty if nothing ran.
pub fn time_parts(trace: &Trace, report: &TraceReport, selection: &Selection) -> Vec<TimePart> {
    let all = &report.overlap.all;
    if all.span_us <= 0.0 {
        return Vec::new();
    }
    // sums of durations count parallel work twice, so shares use the unions of lanes
    let lane = |lane: &str, of: fn(&NameRow) -> f64, union_us: f64| {
        let rows = || report.names.iter().filter(move |row| row.lane == lane);
        let sum: f64 = rows().map(of).sum();
        let part = move |us: f64| if sum > 0.0 { us / sum * union_us / all.span_us } else { 0.0 };
        let longest = rows().reduce(|most, row| if of(row) > of(most) { row } else { most });
        let longest = longest.map(|row| (row.name.clone(), part(of(row))));
        (union_us / all.span_us, longest, part)
    };
    let idle = all.idle_us / all.span_us;
    let mut parts = vec![TimePart { work: "idle".into(), share: idle, ..TimePart::default() }];
    let total: fn(&NameRow) -> f64 = |row| row.total_us;
    let exposed: fn(&NameRow) -> f64 = |row| row.exposed_us;
    for (work, name, of, union_us) in [
        ("compute", "compute", total, all.compute_us),
        ("exposed communication", "comm", exposed, all.exposed_comm_us),
    ] {
        let (share, longest, _) = lane(name, of, union_us);
        let (longest, longest_share) = longest.unzip();
        let longest_share = longest_share.unwrap_or(0.0);
        parts.push(TimePart { work: work.into(), share, longest, longest_share, gb_s: None });
    }
    let alone_us = (all.busy_us - all.compute_us - all.exposed_comm_us).min(all.memory_us);
    let (_, _, part) = lane("memory", total, alone_us);
    let is_whole = selection.is_everything();
    let mut copies: BTreeMap<&str, (f64, Option<f64>, f64)> = BTreeMap::new();
    let ranks = report.overlap.ranks.len().max(1) as f64;
    for row in report.names.iter().filter(|row| row.lane == "memory") {
        let operation = trace.operations.iter().find(|operation| operation.name == row.name);
        let mean = operation.map_or(0, |operation| operation.cost.bytes_written.fixed);
        let bytes = (mean > 0 && is_whole).then_some(mean as f64 * row.count as f64);
        let (us, sum, time) = copies.entry(direction(&row.name)).or_insert((0.0, Some(0.0), 0.0));
        *us += row.total_us;
        *sum = sum.zip(bytes).map(|(sum, bytes)| sum + bytes);
        *time += row.total_us * ranks;
    }
    parts.extend(copies.into_iter().map(|(work, (us, bytes, time))| {
        let gb_s = bytes.filter(|_| time > 0.0).map(|bytes| bytes / time / 1e3);
        TimePart { work: work.into(), share: part(us), gb_s, ..TimePart::default() }
    }));
    parts.retain(|part| part.share >= LEAST);
    parts.sort_by(|a, b| b.share.total_cmp(&a.share));
    parts
}

/// Direction of a copy, from the names that CUDA and ROCm profilers use.
fn direction(name: &str) -> &'static str {
    const MARKS: [(&str, [&str; 3]); 5] = [
        ("host-to-device copies", ["HtoD", "HostToDevice", "HOST_TO_DEVICE"]),
        ("device-to-host copies", ["DtoH", "DeviceToHost", "DEVICE_TO_HOST"]),
        ("copies between GPUs", ["PtoP", "PeerToPeer", "PEER_TO_PEER"]),
        ("device-to-device copies", ["DtoD", "DeviceToDevice", "DEVICE_TO_DEVICE"]),
        ("fills", ["Memset", "fill", "Fill"]),
    ];
    let is_of = |(_, marks): &&(&str, [&str; 3])| marks.iter().any(|mark| name.contains(mark));
    MARKS.iter().find(is_of).map_or("copies", |(direction, _)| *direction)
}

impl TimePart {
    /// Description: `97 % host-to-device copies at 27.7 GB/s`. `percent` formats a share, `name` a kernel's name.
    pub fn in_words(&self, percent: impl Fn(f64) -> String, name: impl Fn(&str) -> String) -> String {
        let mut words = format!("{} {}", percent(self.share), self.work);
        if let Some(gb_s) = self.gb_s {
            words += &format!(" at {gb_s:.1} GB/s");
        }
        if let Some(longest) = &self.longest {
            let all = self.share - self.longest_share < LEAST / 2.0;
            words += &match all {
                true => format!(" in {}", name(longest)),
                false => format!(" ({} in {})", percent(self.longest_share), name(longest)),
            };
        }
        words
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
        assert_eq!((early.rows[1].total_us, early.rows[1].exposed_us), (0.1, 0.0));
        let none = operation_table(&trace, &selection, |_| false);
        assert_eq!((none.rows.len(), none.lanes.len()), (0, 0));
    }

    #[test]
    fn executions_that_leave_a_window_count_with_their_time_in_it() {
        let trace = layered();
        let window = |from, to| {
            let selection = Selection { from_ns: Some(from), to_ns: Some(to), ..Selection::default() };
            operation_table(&trace, &selection, |_| true)
        };
        let numbers = |row: &NameRow| (row.count, row.total_us, row.mean_us, row.max_us);
        // all begin before the window; rank 1's `down` and rank 0's reduce end after it
        let table = window(600, 1100);
        let [down, reduce] = &table.rows[..] else { panic!("{table:?}") };
        assert_eq!(numbers(down), (2, 0.45, 0.45, 0.5));
        assert_eq!(numbers(reduce), (1, 0.25, 0.5, 0.5));
        assert_eq!((&table.longest[..], table.is_clipped), (&[2, 1][..], true));
        // one execution begins in this window and ends after it
        let table = window(2600, 3500);
        let reduce = table.rows.iter().find(|row| row.lane == "comm").expect("rank 1's reduce");
        assert_eq!((numbers(reduce), table.is_clipped), ((1, 0.25, 0.5, 0.5), true));
        assert!(!window(0, 4000).is_clipped);
        assert!(!operation_table(&trace, &Selection::default(), |_| true).is_clipped);
    }

    #[test]
    fn a_step_is_of_one_generation() {
        let mut trace = layered();
        let again = |s: &Span| Span {
            sample: 1,
            start_ns: s.start_ns + 100_000,
            end_ns: s.end_ns + 100_000,
            ..*s
        };
        let again: Vec<Span> = trace.spans.iter().map(again).collect();
        trace.spans.extend(again);
        let key = StepKey::from_span(&trace.spans[7]);
        let table = operation_table(&trace, &Selection::of_step(key), |_| true);
        assert_eq!((table.rows[0].count, &table.longest[..]), (3, &[7, 6][..]));
    }
}
