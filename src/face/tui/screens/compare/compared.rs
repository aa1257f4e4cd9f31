//! Comparison of stored runs along an axis, computed off the drawing thread, and the rows of its list of pairs.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::draw::{PairSettings, shared_decimals};
use super::header::NOISY;
use super::map::MapSlices;
use super::state::{ComparisonFindings, ComparisonRequest};
use super::winners::winners_by_setting;
use crate::face::tui::context::Snapshot;
use base::error::Result;
use base::text::capitalized;
use study::analysis::{
    Axis, AxisCount, Cells, Comparison, ComparisonReport, Gaps, HeatAxes, HeatMap, HeatSlice, Pivot,
    Reasons, Side, Varied, first_equal, slices,
};
use study::answer::{MOST_RUNS, headlines, signs_of_noise};
use study::validate::{badge, reversed_orders, short_badge};
use table::{Provenance, Record, Spec};

#[derive(Clone, Debug)]
pub struct AxisComparison {
    pub axis: Axis,
    pub axes: Vec<AxisCount>,
    pub report: ComparisonReport,
    /// Slices over TP and batch.
    pub map_slices: Arc<MapSlices>,
    /// Settings that distinguish the pairs, and those they share.
    pub pair_settings: PairSettings,
    pub(super) runs: Arc<Snapshot>,
    /// Baseline, if all pairs share one; shown once above the table.
    pub baseline: Option<String>,
    /// Runs whose trace file is gone.
    pub(super) gone_traces: Arc<HashSet<String>>,
    /// Decimals of all latencies (ms) in tables.
    pub latency_decimals: usize,
    /// Rows of the unfiltered pivot.
    pub settings: usize,
    /// For each pair, the index of the first pair with the same numbers.
    pub(super) equal: Vec<usize>,
}

/// Returns the common value, if all are equal.
pub(super) fn one_of<T: PartialEq>(mut all: impl Iterator<Item = T>) -> Option<T> {
    all.next().filter(|first| all.all(|other| other == *first))
}

/// Indices of pairs in the report, and true if they are of the scope of one experiment.
pub type FilteredPairs = (Arc<Vec<usize>>, bool);

impl AxisComparison {
    /// Compares cells; too slow for the drawing thread.
    pub fn new(cells: &KeptCell, asked: &ComparisonRequest) -> Result<Self> {
        let report = cells.cells.compare(&asked.axis, asked.baseline.as_deref())?;
        let pair_settings = PairSettings::new(&report.pairs.iter().collect::<Vec<_>>(), &asked.axis);
        let slices = slices(&report);
        let mut axes = cells.axes.clone();
        // an axis without pairs has nothing to compare
        axes.sort_by_key(|axis| axis.pairs.is_empty());
        let mut compared = Self {
            axis: asked.axis.clone(),
            axes,
            map_slices: Arc::new(MapSlices {
                axes: HeatAxes::default(),
                names: slice_names(&report, &slices, &pair_settings.settings),
                slices,
            }),
            gone_traces: Arc::clone(&cells.gone_traces),
            pair_settings: PairSettings::default(),
            runs: Arc::clone(&cells.runs),
            baseline: one_of(report.pairs.iter().map(|pair| pair.baseline.clone())),
            equal: first_equal(&report),
            latency_decimals: shared_decimals(report.pairs.iter().flat_map(Comparison::latencies_ms)),
            settings: Pivot::new(&report, &Vec::from_iter(0..report.pairs.len())).rows.len(),
            report,
        };
        let rows: Vec<PairRow> =
            compared.rows(0..compared.report.pairs.len(), &|_: &Comparison| false).collect();
        compared.pair_settings = pair_settings.measured(&compared, &rows);
        Ok(compared)
    }

    /// Findings on these pairs; too slow for the drawing thread. Runs of several experiments have no common headline, unless
    /// they are the scope of one experiment, which reuses runs of others.
    pub fn answer(&self, (pairs, is_of_one): &FilteredPairs) -> ComparisonFindings {
        let kept: Vec<&Comparison> = pairs.iter().map(|at| &self.report.pairs[*at]).collect();
        let specs = simulated_specs(&kept);
        let trust = badge(specs.iter().copied());
        let reversed = reversed_orders(specs.iter().copied());
        let reversed = reversed.filter(|_| self.axis == Axis::ARCHITECTURE);
        let caveat = reversed.and_then(|_| short_badge(&specs, &[]));
        let runs: HashSet<&String> = kept.iter().map(|pair| &pair.run).collect();
        let of_runs = self.runs.records.iter().filter(|record| runs.contains(&record.run));
        let experiments: BTreeSet<Option<&String>> =
            of_runs.map(|record| record.experiment.as_ref()).collect();
        if experiments.len() > 1 && !is_of_one {
            let headline = format!("Pairs of {} experiments: no common headline", experiments.len());
            let is_mixed = true;
            return ComparisonFindings {
                headline,
                lead: None,
                winners: None,
                noise: None,
                trust,
                caveat,
                is_mixed,
            };
        }
        let noise = self.noise(&kept);
        let settings = self.pair_settings.narrowed(&kept, &self.axis);
        let pivot = Pivot::new(&self.report, pairs);
        // rows of different provenance can have the same setting
        let winners = settings
            .provenance
            .and_then(|_| winners_by_setting(&self.axis, &self.report, &pivot, &settings.settings));
        let headline = |has_wins: bool| match pairs.len() > MOST_RUNS {
            true => pivot.wins(),
            false => headlines(&self.axis, &self.report, &kept, &settings.settings, has_wins),
        };
        let lead = winners.is_some().then(|| capitalized(&headline(false)));
        let (headline, is_mixed) = (capitalized(&headline(true)), false);
        ComparisonFindings { headline, lead, winners, noise, trust, caveat, is_mixed }
    }

    /// Signs of noise in all rounds of the cells of measured pairs.
    fn noise(&self, pairs: &[&Comparison]) -> Option<String> {
        let measured = pairs.iter().filter(|pair| !pair.is_simulated());
        let keys: HashSet<String> =
            measured.flat_map(|pair| [pair.baseline_side.spec.key(), pair.side.spec.key()]).collect();
        if keys.is_empty() {
            return None;
        }
        let is_own = |record: &&Record| {
            record.provenance != Provenance::Simulated && keys.contains(&record.spec.key())
        };
        let records = self.runs.records.iter().filter(is_own).cloned().collect();
        signs_of_noise(records).map(|signs| format!("{NOISY}{signs}"))
    }

    /// Baseline that all pairs share, in words.
    pub fn baseline_name(&self) -> Option<String> {
        self.baseline.as_ref()?;
        let [baseline, _] = side_names(&self.axis, self.report.pairs.first()?);
        Some(baseline)
    }

    fn map(&self, slice: usize) -> Option<HeatMap> {
        Some(HeatMap::new(&self.report, self.map_slices.slices.get(slice)?))
    }

    /// Reasons for the empty cells of a slice's map, by TP and batch; too slow for the drawing thread.
    pub fn gaps(&self, slice: usize) -> Reasons {
        let map = self.map(slice);
        map.map_or_else(Reasons::new, |map| Gaps::new(&self.report, &self.runs.records).reasons(&map))
    }

    /// Compared value of a pair, preceded by its baseline unless all pairs share one.
    pub fn values(&self, pair: &Comparison) -> String {
        match self.baseline {
            Some(_) => pair.value.clone(),
            None => format!("{} → {}", pair.baseline, pair.value),
        }
    }

    /// Groups pairs into rows, in order: pairs with equal numbers share a row unless `opened` returns
    /// true for the first of them.
    pub(super) fn rows<'a>(
        &'a self,
        shown: impl Iterator<Item = usize>,
        opened: &'a dyn Fn(&Comparison) -> bool,
    ) -> impl Iterator<Item = PairRow> + 'a {
        let mut classes: Vec<Vec<usize>> = Vec::new();
        let mut class_of: HashMap<usize, usize> = HashMap::new();
        for at in shown {
            let class = *class_of.entry(self.equal[at]).or_insert_with(|| {
                classes.push(Vec::new());
                classes.len() - 1
            });
            classes[class].push(at);
        }
        classes.into_iter().flat_map(|class| {
            let open = class.len() > 1 && opened(&self.report.pairs[self.equal[class[0]]]);
            match (open, class.split_first()) {
                (false, Some((first, folded))) => {
                    vec![PairRow { pair: *first, folded: folded.to_vec(), of: class.len(), first: true }]
                }
                _ => {
                    let row = |at: &usize| PairRow {
                        pair: *at,
                        folded: Vec::new(),
                        of: class.len(),
                        first: *at == class[0],
                    };
                    class.iter().map(row).collect()
                }
            }
        })
    }
}

/// Simulated cells of pairs, each once.
fn simulated_specs<'a>(pairs: &[&'a Comparison]) -> Vec<&'a Spec> {
    // several pairs share a baseline
    let mut specs: HashMap<&str, &Spec> = HashMap::new();
    for &pair in pairs {
        specs.insert(&pair.run, &pair.side.spec);
        specs.insert(&pair.baseline_run, &pair.baseline_side.spec);
    }
    specs.into_values().filter(|spec| spec.backend.is_simulated()).collect()
}

/// Names of the baseline and of the compared cell: `standard`, `P2P on`; for variables and profile values, the value alone.
pub fn side_names(axis: &Axis, pair: &Comparison) -> [String; 2] {
    let named = |side: &Side, value: &str| {
        match axis {
            Axis::Option(_) => Some(axis.phrase(&side.spec)).filter(|words| !words.is_empty()),
            _ => None,
        }
        .unwrap_or_else(|| value.to_owned())
    };
    [named(&pair.baseline_side, &pair.baseline), named(&pair.side, &pair.value)]
}

/// Names of slices: the compared value and the settings that vary. Falls back to all settings if names
/// would collide.
fn slice_names(report: &ComparisonReport, slices: &[HeatSlice], settings: &Varied) -> Vec<String> {
    let settings = settings.without(&Axis::Option("tp")).without(&Axis::Option("batch"));
    let name =
        |slice: &HeatSlice| slice.named(&settings.words(&report.pairs[slice.members[0]].side.spec));
    let names: Vec<String> = slices.iter().map(name).collect();
    match names.iter().collect::<BTreeSet<_>>().len() == names.len() {
        true => names,
        false => slices.iter().map(HeatSlice::name).collect(),
    }
}

/// Table row: a pair, and the equal pairs folded into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairRow {
    /// Index in the report of the pair whose numbers are shown.
    pub pair: usize,
    /// Indices in the report of the other pairs with the same numbers.
    pub folded: Vec<usize>,
    /// Number of pairs with these numbers, folded into this row or not.
    pub of: usize,
    /// True for the first row of the pairs with these numbers.
    pub first: bool,
}

impl PairRow {
    /// Indices in the report of all pairs in the row, the shown one first.
    pub fn all(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        std::iter::once(self.pair).chain(self.folded.iter().copied())
    }
}

/// Pooled cells of some runs and the axes along which they differ.
#[derive(Debug)]
pub struct KeptCell {
    runs: Arc<Snapshot>,
    cells: Cells,
    axes: Vec<AxisCount>,
    gone_traces: Arc<HashSet<String>>,
}

/// Cache of the most recent cells: pooling thousands of runs takes longer than comparing them.
#[derive(Debug, Default)]
pub struct KeptCells(Mutex<Option<Arc<KeptCell>>>);

impl KeptCells {
    /// Cells of these runs in a runs directory.
    pub fn of(&self, runs: &Arc<Snapshot>, dir: &Path) -> Arc<KeptCell> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cells) = kept.as_ref().filter(|cells| Arc::ptr_eq(&cells.runs, runs)) {
            return Arc::clone(cells);
        }
        let cells = Cells::from_records(&runs.records);
        let gone_traces = Arc::new(gone_traces(runs, dir));
        let made = Arc::new(KeptCell { runs: Arc::clone(runs), axes: cells.axes(), cells, gone_traces });
        *kept = Some(Arc::clone(&made));
        made
    }
}

/// Runs whose folder has lost its trace file, for example because it was copied without.
fn gone_traces(runs: &Snapshot, dir: &Path) -> HashSet<String> {
    let is_gone = |file: &str| {
        let file = dir.join(file);
        file.parent().is_some_and(Path::is_dir) && !file.exists()
    };
    let gone = runs.records.iter().filter(|record| record.trace.as_deref().is_some_and(is_gone));
    gone.map(|record| record.run.clone()).collect()
}
