//! Comparison as a map over two settings: TP and batch, or others if these do not vary. A map shows one slice: one
//! baseline, one value, everything else fixed. Nothing is averaged; users pick another slice instead.
//!
//! Reasons for empty cells in a TP-by-batch map, from stored runs, or from feasibility if a sweep stores none.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use super::{Axis, Comparison, ComparisonReport, PairVerdict, in_order};
use crate::analysis::Varied;
use base::statistics::{distinct, grouped};
use run::{Feasibility, GridContext, feasibility};
use table::{Record, Spec, Status};

/// Settings of the rows and of the columns of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeatAxes {
    pub rows: Axis,
    pub columns: Axis,
}

impl Default for HeatAxes {
    fn default() -> Self {
        Self { rows: Axis::TP, columns: Axis::Option("batch") }
    }
}

impl HeatAxes {
    /// TP and batch; if one of them is not among the settings that vary, the first of the others that do.
    pub fn among(by: &Axis, settings: &Varied) -> Self {
        let plain = Self::default();
        if is_own(&by.to_string()) {
            return plain;
        }
        let is_other = |axis: &&Axis| **axis != plain.rows && **axis != plain.columns;
        let others: Vec<Axis> = settings.axes().filter(is_other).cloned().collect();
        let mut others = others.into_iter();
        let mut chosen = |axis: Axis| match settings.axes().any(|varied| *varied == axis) {
            true => axis,
            false => others.next().unwrap_or(axis),
        };
        Self { columns: chosen(plain.columns), rows: chosen(plain.rows) }
    }

    /// True for TP and batch.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct HeatSlice {
    pub baseline: String,
    /// Compared value of the axis; `None` for tp and batch, which are the map's own axes.
    pub value: Option<String>,
    /// Other settings shared by all cells of the map.
    pub rest: String,
    pub pairs: usize,
    /// Indices of these pairs in the report, ascending.
    #[serde(skip)]
    pub members: Vec<usize>,
    #[serde(skip)]
    pub axes: HeatAxes,
}

/// Map with a row and a column per value of its axes, in ascending order.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct HeatMap {
    pub by: String,
    #[serde(flatten)]
    pub slice: HeatSlice,
    pub tps: Vec<u32>,
    pub batches: Vec<u32>,
    /// Values of the axes, as users write them.
    #[serde(skip)]
    pub rows: Vec<String>,
    #[serde(skip)]
    pub columns: Vec<String>,
    pub cells: Vec<HeatCell>,
}

#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct HeatCell {
    pub tp: u32,
    pub batch: u32,
    /// Row and column.
    #[serde(skip)]
    pub place: (usize, usize),
    pub pair: usize,
    /// Ratio of tokens/s to the baseline's; above 1 is faster.
    pub speedup: f64,
    /// True if the verdict is faster or slower ([`super::Comparison::verdict`]).
    pub differs: bool,
    /// Exposed share of the decode phase (%): baseline, compared.
    pub exposed_pct: [Option<f64>; 2],
    /// Gap closed: baseline, compared.
    pub hidden_share: [Option<f64>; 2],
    /// Further pairs of this place that have the same label and are not shown.
    pub more: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HeatValue {
    /// Ratio of tokens/s to the baseline's.
    #[default]
    Speedup,
    ExposedPct,
    GapClosed,
}

impl HeatValue {
    /// All values, in the order in which a key cycles through them.
    pub const ALL: [Self; 3] = [Self::Speedup, Self::ExposedPct, Self::GapClosed];

    pub fn name(self) -> &'static str {
        match self {
            Self::Speedup => "ratio of tokens/s",
            Self::ExposedPct => "exposed communication, % of TPOT",
            Self::GapClosed => "gap closed",
        }
    }

    /// Number of a pair: the ratio, or the value of the compared side.
    pub fn number(self, pair: &Comparison) -> Option<f64> {
        match self {
            Self::Speedup => Some(pair.speedup),
            Self::ExposedPct => pair.side.exposed_pct,
            Self::GapClosed => pair.side.hidden_share,
        }
    }

    pub fn decimals(self) -> usize {
        match self {
            Self::Speedup | Self::GapClosed => 2,
            Self::ExposedPct => 1,
        }
    }
}

/// Slices of a report for maps over TP and batch, those with the most pairs first.
pub fn slices(report: &ComparisonReport) -> Vec<HeatSlice> {
    slices_over(report, &HeatAxes::default(), 0..report.pairs.len(), |pair| pair.rest.clone())
}

/// Slices of some pairs of a report for maps over these axes, those with the most pairs first; `rest` names what is the
/// same in all pairs of a slice.
pub fn slices_over(
    report: &ComparisonReport,
    axes: &HeatAxes,
    pairs: impl IntoIterator<Item = usize>,
    rest: impl Fn(&Comparison) -> String,
) -> Vec<HeatSlice> {
    let keyed = pairs.into_iter().map(|at| {
        let pair = &report.pairs[at];
        let value = (!is_own(&report.by)).then_some(pair.value.as_str());
        ((pair.baseline.as_str(), value, rest(pair)), at)
    });
    let mut slices = Vec::new();
    for ((baseline, value, rest), members) in grouped(keyed) {
        let (baseline, value) = (baseline.to_owned(), value.map(str::to_owned));
        slices.push(HeatSlice {
            baseline,
            value,
            rest,
            pairs: members.len(),
            members,
            axes: axes.clone(),
        });
    }
    slices.sort_by_key(|slice| std::cmp::Reverse(slice.pairs));
    slices
}

fn is_own(by: &str) -> bool {
    matches!(by, "tp" | "batch")
}

impl HeatSlice {
    /// Display name: the value, the baseline and the fixed settings.
    pub fn name(&self) -> String {
        self.named(&self.rest)
    }

    /// Display name with these words for the fixed settings.
    pub fn named(&self, rest: &str) -> String {
        let name = match &self.value {
            Some(value) => format!("{value} / {}  {rest}", self.baseline),
            None => format!("/ {}  {rest}", self.baseline),
        };
        name.trim_end().to_owned()
    }
}

impl HeatMap {
    pub fn new(report: &ComparisonReport, slice: &HeatSlice) -> Self {
        let spec = |at: &usize| &report.pairs[*at].side.spec;
        let values =
            |axis: &Axis| in_order(distinct(slice.members.iter().map(|at| axis.value(spec(at)))));
        let (rows, columns) = (values(&slice.axes.rows), values(&slice.axes.columns));
        let position = |values: &[String], axis: &Axis, at: &usize| {
            let value = axis.value(spec(at));
            values.iter().position(|of| *of == value).unwrap_or_default()
        };
        let mut cells: Vec<HeatCell> = Vec::new();
        for index in &slice.members {
            let pair = &report.pairs[*index];
            let place = (
                position(&rows, &slice.axes.rows, index),
                position(&columns, &slice.axes.columns, index),
            );
            if let Some(cell) = cells.iter_mut().find(|cell| cell.place == place) {
                cell.more += 1;
                continue;
            }
            cells.push(HeatCell {
                tp: pair.side.spec.tp,
                batch: pair.side.spec.batch,
                place,
                pair: *index,
                speedup: pair.speedup,
                differs: matches!(pair.verdict, PairVerdict::Faster | PairVerdict::Slower),
                exposed_pct: [pair.baseline_side.exposed_pct, pair.side.exposed_pct],
                hidden_share: [pair.baseline_side.hidden_share, pair.side.hidden_share],
                more: 0,
            });
        }
        let all = |of: fn(&HeatCell) -> u32| -> Vec<u32> {
            cells.iter().map(of).collect::<BTreeSet<_>>().into_iter().collect()
        };
        Self {
            by: report.by.clone(),
            slice: slice.clone(),
            tps: all(|cell| cell.tp),
            batches: all(|cell| cell.batch),
            rows,
            columns,
            cells,
        }
    }

    pub fn cell(&self, row: usize, column: usize) -> Option<&HeatCell> {
        self.cells.iter().find(|cell| cell.place == (row, column))
    }
}

/// One-word reasons for missing numbers, by row and column.
pub type Reasons = HashMap<(usize, usize), &'static str>;

/// Runs of a comparison, used to explain empty cells of its maps.
#[derive(Debug)]
pub struct Gaps<'a> {
    report: &'a ComparisonReport,
    records: HashMap<(u32, u32), Vec<&'a Record>>,
    shared: GridContext,
}

impl<'a> Gaps<'a> {
    /// Takes the runs of the report, oldest first, and indexes them in one pass.
    pub fn new(report: &'a ComparisonReport, all: &'a [Record]) -> Self {
        let mut records: HashMap<_, Vec<&Record>> = HashMap::new();
        for record in all {
            records.entry((record.spec.tp, record.spec.batch)).or_default().push(record);
        }
        Self { report, records, shared: GridContext::default() }
    }

    /// One-word reason for each empty cell of the map: `oom`, `failed` and so on, `no base` if only the baseline is
    /// missing, or `not run`. Scans the runs of those TPs and batches, and plans each simulated cell that was not run. A
    /// map over other axes has no reasons.
    pub fn reasons(&self, map: &HeatMap) -> Reasons {
        let first = map.slice.members.first().filter(|_| map.slice.axes.is_plain());
        let Some(pair) = first.and_then(|at| self.report.pairs.get(*at)) else {
            return Reasons::new();
        };
        let along = |name| self.report.by == Axis::Option(name).to_string();
        let columns = 0..map.batches.len();
        let all = (0..map.tps.len()).flat_map(|row| columns.clone().map(move |column| (row, column)));
        let absent = all.filter(|(row, column)| map.cell(*row, *column).is_none());
        let why = |(row, column): (usize, usize)| {
            let (tp, batch) = (map.tps[row], map.batches[column]);
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
            true => feasibility::assess_with(cell, &self.shared).ok()?,
            false => return None,
        };
        match feasibility {
            Feasibility::Oom(_) => Some(Status::Oom),
            Feasibility::Skipped(_) => Some(Status::Skipped),
            Feasibility::Runs => None,
        }
    }
}
