//! Device time by launching operator: the framework's, or the host's API call if there is none, as for the launch of a
//! CUDA graph.

use std::collections::BTreeMap;

use serde::Serialize;

use trace::Span;
use trace::overlap::{Cell, Lanes, Runs, Tally, us};

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
pub(super) fn operators(runs: &Runs, lanes: &[Lanes]) -> Vec<OperatorRow> {
    let names = &runs.trace.meta.range_names;
    if names.is_empty() {
        return Vec::new();
    }
    // one cell per operator plus one for unknown launches; compute and copies separate from communication
    let operator = |span: &Span| (span.launched.operator as usize).min(names.len());
    let cells = Tally::by(runs, lanes, names.len() + 1, operator).cells;
    if cells[..names.len()].iter().flatten().all(|cell| cell.count == 0) {
        return Vec::new();
    }
    let average = |ns: i64| us(ns) / runs.ranks.len().max(1) as f64;
    let row = |(name, [other, comm]): (&&str, &[Cell; 2])| OperatorRow {
        name: (*name).into(),
        count: other.count + comm.count,
        total_us: average(other.total_ns.saturating_add(comm.total_ns)),
        comm_us: average(comm.total_ns),
        exposed_us: average(comm.exposed_ns),
    };
    // an operator with several shapes has several numbers
    let mut by_name: BTreeMap<&str, [Cell; 2]> = BTreeMap::new();
    for (name, cells) in names.iter().map(String::as_str).chain([UNKNOWN]).zip(&cells) {
        by_name.entry(name).or_default().iter_mut().zip(cells).for_each(|(sum, cell)| sum.add(cell));
    }
    let mut rows: Vec<OperatorRow> = by_name.iter().map(row).filter(|row| row.count > 0).collect();
    rows.sort_by(|a, b| b.total_us.total_cmp(&a.total_us).then_with(|| a.name.cmp(&b.name)));
    rows
}
