//! Tables of `overlap`: a function from the report to rows, for each thing that can have rows.

use super::output::{Field, Rows};
use super::overlap::By;
use crate::analysis::{GroupRow, OverlapReport, RankOverlap, Stragglers, TraceReport};

/// The rank table under the names of the JSON keys.
pub fn ranks(report: &OverlapReport) -> Rows {
    let mut rows = Rows::new([
        "rank",
        "comm_us",
        "compute_us",
        "memory_us",
        "overlap_us",
        "exposed_comm_us",
        "overlap_pct",
        "busy_us",
        "idle_us",
        "span_us",
        "peer_wait_us",
    ]);
    report.ranks.iter().for_each(|rank| rows.push(rank_row(Field::Whole(rank.rank.into()), rank)));
    rows
}

/// The rank table for people: short names, sums at the end, no columns without content, and none for
/// busy (span less idle), so that a terminal of 100 columns has room for seconds of trace.
pub fn ranks_short(report: &OverlapReport) -> Rows {
    let mut rows = Rows::new([
        "rank",
        "comm",
        "compute",
        "memory",
        "overlap",
        "exposed",
        "overlap %",
        "idle",
        "span",
        "peer wait",
    ]);
    let mut push = |name: Field, of: &RankOverlap| {
        let mut row = rank_row(name, of);
        for (column, sum) in [(3, report.all.memory_us), (10, report.all.peer_wait_us)] {
            if sum == 0.0 {
                row[column] = Field::None;
            }
        }
        row.remove(7);
        rows.push(row);
    };
    for rank in &report.ranks {
        push(Field::Whole(rank.rank.into()), rank);
    }
    if report.ranks.len() > 1 {
        push(Field::text("all"), &report.all);
    }
    rows
}

fn rank_row(name: Field, of: &RankOverlap) -> Vec<Field> {
    vec![
        name,
        Field::Number(of.comm_us, 1),
        Field::Number(of.compute_us, 1),
        Field::Number(of.memory_us, 1),
        Field::Number(of.overlap_us, 1),
        Field::Number(of.exposed_comm_us, 1),
        Field::number(of.overlap_pct, 1),
        Field::Number(of.busy_us, 1),
        Field::Number(of.idle_us, 1),
        Field::Number(of.span_us, 1),
        Field::Number(of.peer_wait_us, 1),
    ]
}

/// The table that `--by` asks for.
pub fn by(report: &TraceReport, by: By) -> Rows {
    match by {
        By::Step => steps(report),
        By::Layer => layers(report),
        By::Collective => groups("collective", &report.collectives),
        By::Range => ranges(report),
        By::Kind => groups("kind", &report.kinds),
    }
}

fn steps(report: &TraceReport) -> Rows {
    let mut rows = Rows::new([
        "sample",
        "phase",
        "step",
        "start_us",
        "duration_us",
        "compute_us",
        "comm_us",
        "exposed_us",
        "overlap_pct",
        "idle_us",
    ]);
    for step in &report.steps {
        rows.push(vec![
            Field::Whole(step.sample.into()),
            Field::text(step.phase.as_str()),
            Field::Whole(step.step.into()),
            Field::Number(step.start_ns as f64 / 1e3, 1),
            Field::Number(step.duration_us, 1),
            Field::Number(step.compute_us, 1),
            Field::Number(step.comm_us, 1),
            Field::Number(step.exposed_us, 1),
            Field::number(step.overlap_pct, 1),
            Field::Number(step.idle_us, 1),
        ]);
    }
    rows
}

fn layers(report: &TraceReport) -> Rows {
    let mut rows = Rows::new(["layer", "count", "compute_us", "comm_us", "exposed_us", "hidden_pct"]);
    for layer in &report.layers {
        let hidden = 100.0 * (1.0 - layer.exposed_us / layer.comm_us);
        rows.push(vec![
            layer.layer.map_or(Field::text("none"), |layer| Field::Whole(layer.into())),
            Field::Whole(layer.count),
            Field::Number(layer.compute_us, 1),
            Field::Number(layer.comm_us, 1),
            Field::Number(layer.exposed_us, 1),
            Field::number((layer.comm_us > 0.0).then_some(hidden), 1),
        ]);
    }
    rows
}

fn ranges(report: &TraceReport) -> Rows {
    let mut rows =
        Rows::new(["range", "count", "time_us", "busy_us", "compute_us", "comm_us", "exposed_us"]);
    for range in &report.ranges {
        rows.push(vec![
            Field::text(&range.name),
            Field::Whole(range.count),
            Field::Number(range.time_us, 1),
            Field::Number(range.busy_us, 1),
            Field::Number(range.compute_us, 1),
            Field::Number(range.comm_us, 1),
            Field::Number(range.exposed_us, 1),
        ]);
    }
    rows
}

/// Rows of operations grouped under `name`.
pub fn groups(name: &'static str, groups: &[GroupRow]) -> Rows {
    let mut rows = Rows::new([name, "lane", "count", "total_us", "exposed_us", "hidden_pct"]);
    for group in groups {
        rows.push(vec![
            Field::text(&group.name),
            Field::text(group.lane),
            Field::Whole(group.count),
            Field::Number(group.total_us, 1),
            Field::Number(group.exposed_us, 1),
            Field::number(group.hidden_pct, 1),
        ]);
    }
    rows
}

/// Who was late.
pub fn stragglers(stragglers: &Stragglers) -> Rows {
    let mut rows = Rows::new([
        "rank",
        "times last",
        "%",
        "late (median)",
        "late (most)",
        "others waited",
        "waited",
    ]);
    for rank in &stragglers.ranks {
        rows.push(vec![
            Field::Whole(rank.rank.into()),
            Field::Whole(rank.times_last),
            Field::Number(100.0 * rank.share, 1),
            Field::Number(rank.late_median_us, 1),
            Field::Number(rank.late_max_us, 1),
            Field::Number(rank.caused_us, 1),
            Field::Number(rank.waited_us, 1),
        ]);
    }
    rows
}
