//! The breakdown: where the lanes' time went, by module and kind of operation.

use std::collections::BTreeMap;

use serde::Serialize;

use super::intervals::Coverage;
use super::overlap::{Lanes, Selected, Selection, is_memory, us};
use crate::plan::Lane;
use crate::trace::Trace;

/// A row of the breakdown: where the lanes' time went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BreakdownRow {
    /// `attn`, `mlp`, `head` ...
    pub module: String,
    /// `matmul`, `all_reduce` ...
    pub kind: String,
    /// `compute` or `comm`; `memory` for the copies and fills of imported traces.
    pub lane: String,
    /// Executions, over all ranks.
    pub count: u64,
    /// Sum of durations per rank, averaged over ranks (us).
    pub total_us: f64,
    /// Part of it exposed: comm with an idle compute lane (us, averaged over ranks).
    pub exposed_us: f64,
    /// Share of the lane's time, 0 to 1: of the sum of its durations, so that shares of a lane add up
    /// to 1 even where an imported trace ran several operations at once.
    pub share: f64,
}

/// Rows for the selected spans, the longest first. `lanes` are the selection's closed lanes by rank.
pub(super) fn breakdown(
    trace: &Trace,
    selection: &Selection,
    lanes: BTreeMap<u32, Lanes>,
) -> Vec<BreakdownRow> {
    let ranks = lanes.len().max(1) as f64;
    let computing: BTreeMap<u32, Coverage> =
        lanes.into_iter().map(|(rank, lanes)| (rank, Coverage::new(lanes.compute))).collect();

    // Count, total ns and exposed ns by operation first: names are compared once an operation, not once a span.
    let mut by_operation = vec![[(0u64, 0i64, 0i64); 2]; trace.operations.len()];
    for Selected { span, interval } in selection.of(trace) {
        let Some(cells) = by_operation.get_mut(span.operation as usize) else { continue };
        let duration = interval.1 - interval.0;
        let cell = &mut cells[span.lane as usize];
        cell.0 += 1;
        cell.1 += duration;
        if span.lane == Lane::Comm {
            cell.2 += duration - computing.get(&span.rank).map_or(0, |c| c.of(interval));
        }
    }

    let mut rows: BTreeMap<(&str, &str, &str), (u64, i64, i64)> = BTreeMap::new();
    let mut lane_ns: BTreeMap<&str, i64> = BTreeMap::new();
    for (operation, cells) in trace.operations.iter().zip(by_operation) {
        for (lane, (count, total, exposed)) in [Lane::Compute, Lane::Comm].into_iter().zip(cells) {
            if count == 0 {
                continue;
            }
            let memory = is_memory(&operation.kind);
            let lane = if memory { "memory" } else { lane.as_str() };
            let row = rows.entry((&operation.module, &operation.kind, lane)).or_default();
            row.0 += count;
            row.1 += total;
            row.2 += if memory { 0 } else { exposed };
            *lane_ns.entry(lane).or_default() += total;
        }
    }

    let mut rows: Vec<BreakdownRow> = rows
        .into_iter()
        .map(|((module, kind, lane), (count, total, exposed))| BreakdownRow {
            module: module.into(),
            kind: kind.into(),
            lane: lane.into(),
            count,
            total_us: us(total) / ranks,
            exposed_us: us(exposed) / ranks,
            share: match lane_ns.get(lane) {
                Some(&all) if all > 0 => total as f64 / all as f64,
                _ => 0.0,
            },
        })
        .collect();
    rows.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
    rows
}
