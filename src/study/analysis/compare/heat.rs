//! A comparison as a map over TP and batch. A map shows one slice: a baseline, a value, and everything
//! else fixed. Nothing is averaged; whoever wants another slice chooses it.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{Comparison, ComparisonReport, Verdict};

/// What a map holds fixed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
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
                differs: matches!(pair.verdict, Verdict::Faster | Verdict::Slower),
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
