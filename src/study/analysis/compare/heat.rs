//! A comparison as a map over TP and batch. A map shows one slice: a baseline, a value, and everything
//! else fixed. Nothing is averaged; whoever wants another slice chooses it.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use super::{Axis, Comparison, ComparisonReport, Verdict};
use crate::run::{Feasibility, Shared, feasibility};
use crate::table::{Record, Spec, Status};

/// What a map holds fixed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeatSlice {
    /// The axis's value of the baseline.
    pub baseline: String,
    /// The axis's value that is compared; `None` by tp and by batch, where it is one of the map's own.
    pub value: Option<String>,
    /// What else all cells of the map have in common.
    pub rest: String,
    /// How many pairs of the comparison the map shows.
    pub pairs: usize,
    /// These pairs: their indices in the report, ascending.
    #[serde(skip)]
    pub members: Vec<usize>,
}

/// A map: rows are TPs, columns batches, each ascending.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeatMap {
    /// The name of the axis by which cells were compared.
    pub by: String,
    /// What all cells of the map have in common.
    #[serde(flatten)]
    pub slice: HeatSlice,
    /// The TPs that occur, ascending: the map's rows.
    pub tps: Vec<u32>,
    /// The batches that occur, ascending: the map's columns.
    pub batches: Vec<u32>,
    /// The cells of the map that were run.
    pub cells: Vec<HeatCell>,
}

/// A cell of the map.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeatCell {
    /// The TP of the compared run: its row.
    pub tp: u32,
    /// The batch of the compared run: its column.
    pub batch: u32,
    /// Index of its pair in the report.
    pub pair: usize,
    /// Tokens/s of the compared run over the baseline's; above 1 it is faster.
    pub speedup: f64,
    /// Whether the ratio is a difference that matters ([`super::Comparison::verdict`]).
    pub differs: bool,
    /// Exposed communication of the decode phase (%), the baseline's and its own.
    pub exposed_pct: [Option<f64>; 2],
    /// Hidden share, the baseline's and its own.
    pub hidden_share: [Option<f64>; 2],
    /// Further pairs of this TP and batch that the label cannot tell apart and the map does not show.
    pub more: usize,
}

/// Which number of a cell a map shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HeatValue {
    /// Tokens/s over the baseline's.
    #[default]
    Speedup,
    /// Exposed communication in TPOT (%).
    ExposedPct,
    /// Hidden share of the architecture.
    HiddenShare,
}

impl HeatValue {
    /// All values that a map can show, in the order in which a key goes through them.
    pub const ALL: [Self; 3] = [Self::Speedup, Self::ExposedPct, Self::HiddenShare];

    /// What the value is called, with its unit.
    pub fn name(self) -> &'static str {
        match self {
            Self::Speedup => "ratio of tokens/s",
            Self::ExposedPct => "exposed communication, % of TPOT",
            Self::HiddenShare => "hidden share",
        }
    }

    /// The number of a cell.
    pub fn of(self, cell: &HeatCell) -> Option<f64> {
        match self {
            Self::Speedup => Some(cell.speedup),
            Self::ExposedPct => cell.exposed_pct[1],
            Self::HiddenShare => cell.hidden_share[1],
        }
    }

    /// How many decimals the value is shown with.
    pub fn decimals(self) -> usize {
        match self {
            Self::Speedup | Self::HiddenShare => 2,
            Self::ExposedPct => 1,
        }
    }
}

/// The slices of a report, those with most pairs first.
pub fn slices(report: &ComparisonReport) -> Vec<HeatSlice> {
    let mut slices: Vec<HeatSlice> = Vec::new();
    for (at, pair) in report.pairs.iter().enumerate() {
        match slices.iter_mut().find(|slice| slice.holds(&report.by, pair)) {
            Some(slice) => {
                slice.pairs += 1;
                slice.members.push(at);
            }
            None => slices.push(HeatSlice {
                baseline: pair.baseline.clone(),
                value: (!is_own(&report.by)).then(|| pair.value.clone()),
                rest: pair.rest.clone(),
                pairs: 1,
                members: vec![at],
            }),
        }
    }
    slices.sort_by_key(|slice| std::cmp::Reverse(slice.pairs));
    slices
}

/// Whether the axis is one of the map's own.
fn is_own(by: &str) -> bool {
    matches!(by, "tp" | "batch")
}

impl HeatSlice {
    /// Whether a pair belongs to it.
    fn holds(&self, by: &str, pair: &Comparison) -> bool {
        self.baseline == pair.baseline
            && self.rest == pair.rest
            && (is_own(by) || self.value.as_deref() == Some(&pair.value))
    }

    /// For people: what is fixed.
    pub fn name(&self) -> String {
        self.named(&self.rest)
    }

    /// For people: what is compared, and what else is fixed in these words.
    pub fn named(&self, rest: &str) -> String {
        let name = match &self.value {
            Some(value) => format!("{value} / {}  {rest}", self.baseline),
            None => format!("/ {}  {rest}", self.baseline),
        };
        name.trim_end().to_owned()
    }
}

/// Why a map has no number at a TP and a batch: what the stored runs say of the two cells of the pair that it lacks.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    /// Of the baseline's and of the compared cells the status of the run stored last, by TP and batch.
    statuses: [HashMap<(u32, u32), Status>; 2],
    /// The baseline's TP and batch where the comparison is along that axis: it has the same for all cells.
    fixed: [Option<u32>; 2],
}

impl Gaps {
    /// What these runs, oldest first, say of the cells of a slice. Costs a comparison of specs for each run that has
    /// the architecture and the P2P setting of one of its sides.
    pub fn of(report: &ComparisonReport, map: &HeatMap, records: &[Record]) -> Self {
        let Some(pair) = map.slice.members.first().and_then(|at| report.pairs.get(*at)) else {
            return Self::default();
        };
        let sides = [&pair.baseline_side.spec, &pair.side.spec];
        let along = |name| report.by == Axis::Option(name).to_string();
        let fixed = [along("tp").then_some(sides[0].tp), along("batch").then_some(sides[0].batch)];
        let mut gaps = Self { fixed, ..Self::default() };
        for record in records {
            let spec = &record.spec;
            for (side, statuses) in sides.into_iter().zip(&mut gaps.statuses) {
                let may_be = spec.architecture == side.architecture && spec.p2p == side.p2p;
                if may_be && *spec == placed(side, spec) {
                    statuses.insert((spec.tp, spec.batch), record.status);
                }
            }
        }
        gaps.judge(map, sides);
        gaps
    }

    /// Finds which cells without a run cannot run: sweeps store nothing of them. Cells that are simulated alone, since
    /// what another machine's memory held is not known here; [`MOST_JUDGED`] at most.
    fn judge(&mut self, map: &HeatMap, sides: [&Spec; 2]) {
        let shared = Shared::default();
        let all = map.tps.iter().flat_map(|tp| map.batches.iter().map(move |batch| (*tp, *batch)));
        let absent = all.filter(|(tp, batch)| map.cell(*tp, *batch).is_none());
        for (tp, batch) in absent.take(MOST_JUDGED) {
            for (side, statuses) in sides.into_iter().zip(&mut self.statuses) {
                if statuses.contains_key(&(tp, batch)) || !side.backend.is_simulated() {
                    continue;
                }
                match feasibility::of_with(&Spec { tp, batch, ..side.clone() }, &shared) {
                    Ok(Feasibility::Oom(_)) => statuses.insert((tp, batch), Status::Oom),
                    Ok(Feasibility::Skipped(_)) => statuses.insert((tp, batch), Status::Skipped),
                    Ok(Feasibility::Runs) | Err(_) => None,
                };
            }
        }
    }

    /// In a word why there is no number.
    pub fn why(&self, tp: u32, batch: u32) -> &'static str {
        let baseline = (self.fixed[0].unwrap_or(tp), self.fixed[1].unwrap_or(batch));
        let known = [self.statuses[0].get(&baseline), self.statuses[1].get(&(tp, batch))];
        match known {
            [_, Some(Status::Ok)] => "no base",
            [_, Some(status)] => status.as_str(),
            [Some(status), None] if *status != Status::Ok => status.as_str(),
            _ => "not run",
        }
    }
}

/// The most cells of a map that are planned to find whether they can run.
const MOST_JUDGED: usize = 64;

/// The cell of a side at another TP and batch: with what may differ between the cells of a map.
fn placed(side: &Spec, of: &Spec) -> Spec {
    let Spec { tp, batch, link, samples, warmup, .. } = *of;
    Spec { tp, batch, link, samples, warmup, ..side.clone() }
}

impl HeatMap {
    /// The map of a slice.
    pub fn new(report: &ComparisonReport, slice: &HeatSlice) -> Self {
        let mut cells: Vec<HeatCell> = Vec::new();
        for &index in &slice.members {
            let pair = &report.pairs[index];
            let (tp, batch) = (pair.side.spec.tp, pair.side.spec.batch);
            if let Some(cell) = cells.iter_mut().find(|cell| (cell.tp, cell.batch) == (tp, batch)) {
                cell.more += 1;
                continue;
            }
            cells.push(HeatCell {
                tp,
                batch,
                pair: index,
                speedup: pair.speedup,
                differs: matches!(pair.verdict(), Verdict::Faster | Verdict::Slower),
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
            cells,
        }
    }

    /// The cell of a TP and a batch.
    pub fn cell(&self, tp: u32, batch: u32) -> Option<&HeatCell> {
        self.cells.iter().find(|cell| (cell.tp, cell.batch) == (tp, batch))
    }

    /// The least and the greatest of the numbers shown.
    pub fn range(&self, value: HeatValue) -> Option<[f64; 2]> {
        let numbers = self.cells.iter().filter_map(|cell| value.of(cell)).filter(|v| v.is_finite());
        numbers.fold(None, |range, v| {
            let [low, high] = range.unwrap_or([v, v]);
            Some([v.min(low), v.max(high)])
        })
    }
}
