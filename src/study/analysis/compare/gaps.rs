//! Reasons for empty cells in a TP-by-batch map, from stored runs, or from feasibility if a sweep stores none.

use std::collections::HashMap;

use super::{Axis, ComparisonReport, HeatMap};
use run::{Feasibility, Shared, feasibility};
use table::{Record, Spec, Status};

/// One-word reasons for missing numbers, by TP and batch.
pub type Reasons = HashMap<(u32, u32), &'static str>;

/// Runs of a comparison, used to explain empty cells of its maps.
#[derive(Debug)]
pub struct Gaps<'a> {
    report: &'a ComparisonReport,
    records: HashMap<(u32, u32), Vec<&'a Record>>,
    shared: Shared,
}

impl<'a> Gaps<'a> {
    /// Takes the runs of the report, oldest first, and indexes them in one pass.
    pub fn new(report: &'a ComparisonReport, all: &'a [Record]) -> Self {
        let mut records: HashMap<_, Vec<&Record>> = HashMap::new();
        for record in all {
            records.entry((record.spec.tp, record.spec.batch)).or_default().push(record);
        }
        Self { report, records, shared: Shared::default() }
    }

    /// One-word reason for each empty cell of the map: `oom`, `failed` and so on, `no base` if only the baseline is
    /// missing, or `not run`. Scans the runs of those TPs and batches, and plans each simulated cell that was not run.
    pub fn of(&self, map: &HeatMap) -> Reasons {
        let Some(pair) = map.slice.members.first().and_then(|at| self.report.pairs.get(*at)) else {
            return Reasons::new();
        };
        let along = |name| self.report.by == Axis::Option(name).to_string();
        let all = map.tps.iter().flat_map(|tp| map.batches.iter().map(move |batch| (*tp, *batch)));
        let absent = all.filter(|(tp, batch)| map.cell(*tp, *batch).is_none());
        let why = |(tp, batch)| {
            let base = &pair.baseline_side.spec;
            // along an axis of the map all cells share one baseline
            let base = Spec {
                tp: if along("tp") { base.tp } else { tp },
                batch: if along("batch") { base.batch } else { batch },
                ..base.clone()
            };
            match self.status(&Spec { tp, batch, ..pair.side.spec.clone() }) {
                Some(Status::Ok) => "no base",
                Some(status) => status.as_str(),
                None => match self.status(&base) {
                    Some(Status::Ok) | None => "not run",
                    Some(status) => status.as_str(),
                },
            }
        };
        absent.map(|place| (place, why(place))).collect()
    }

    /// Status of the cell's newest run, or the reason why it cannot run; `None` if it could run.
    fn status(&self, cell: &Spec) -> Option<Status> {
        let runs = self.records.get(&(cell.tp, cell.batch));
        if let Some(run) = runs.into_iter().flatten().rev().find(|record| record.spec == *cell) {
            return Some(run.status);
        }
        // memory is known only for simulated machines
        let feasibility = match cell.backend.is_simulated() {
            true => feasibility::of_with(cell, &self.shared).ok()?,
            false => return None,
        };
        match feasibility {
            Feasibility::Oom(_) => Some(Status::Oom),
            Feasibility::Skipped(_) => Some(Status::Skipped),
            Feasibility::Runs => None,
        }
    }
}
