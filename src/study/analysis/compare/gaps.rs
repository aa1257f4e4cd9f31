//! Why a map over TP and batch has no number in a cell: what the stored runs say of the two cells of the pair that it
//! lacks, and of what no sweep stores, whether it could run at all.

use std::collections::HashMap;

use super::{Axis, ComparisonReport, HeatMap};
use run::{Feasibility, Shared, feasibility};
use table::{Record, Spec, Status};

/// In a word why there is no number, by TP and batch.
pub type Reasons = HashMap<(u32, u32), &'static str>;

/// The runs that were compared, for finding why maps of their comparison have no number somewhere.
#[derive(Debug)]
pub struct Gaps<'a> {
    report: &'a ComparisonReport,
    /// By TP and batch, as they were stored.
    records: HashMap<(u32, u32), Vec<&'a Record>>,
    shared: Shared,
}

impl<'a> Gaps<'a> {
    /// Takes the runs that the report compares, oldest first. Costs a look at each.
    pub fn new(report: &'a ComparisonReport, all: &'a [Record]) -> Self {
        let mut records: HashMap<_, Vec<&Record>> = HashMap::new();
        for record in all {
            records.entry((record.spec.tp, record.spec.batch)).or_default().push(record);
        }
        Self { report, records, shared: Shared::default() }
    }

    /// In a word why there is no number, for each TP and batch at which a map of the report has none: `oom`, `failed`
    /// and the like, `no base` where only the baseline is missing, or `not run`. Costs a look at the runs of those TPs
    /// and batches, and a plan for each simulated cell of which there is none.
    pub fn of(&self, map: &HeatMap) -> Reasons {
        let Some(pair) = map.slice.members.first().and_then(|at| self.report.pairs.get(*at)) else {
            return Reasons::new();
        };
        let along = |name| self.report.by == Axis::Option(name).to_string();
        let all = map.tps.iter().flat_map(|tp| map.batches.iter().map(move |batch| (*tp, *batch)));
        let absent = all.filter(|(tp, batch)| map.cell(*tp, *batch).is_none());
        let why = |(tp, batch)| {
            let base = &pair.baseline_side.spec;
            // along an axis of the map the baseline is the same for all cells
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

    /// How the cell's newest run ended, or why there can be none; `None` where it might run.
    fn status(&self, cell: &Spec) -> Option<Status> {
        let runs = self.records.get(&(cell.tp, cell.batch));
        if let Some(run) = runs.into_iter().flatten().rev().find(|record| record.spec == *cell) {
            return Some(run.status);
        }
        // what the memory of another machine holds is not known here, but of those that are simulated
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
