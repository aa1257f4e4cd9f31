//! A comparison of stored runs as screen 6 shows it: its pairs, the rows into which equal ones fold, and the
//! cells that are kept for the next one.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use super::told::Told;
use crate::face::tui::snapshot::Snapshot;
use base::error::Result;
use study::analysis::{
    Axis, AxisCount, Cells, Comparison, ComparisonReport, Gaps, HeatMap, HeatSlice, Reasons, Varied,
    first_equal, slices,
};

/// What is to be compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The axis along which cells are compared.
    pub axis: Axis,
    /// What to compare with; `None`: the natural baseline.
    pub baseline: Option<String>,
}

impl Default for Asked {
    fn default() -> Self {
        Self { axis: Axis::ARCHITECTURE, baseline: None }
    }
}

/// A comparison, and what else could be compared.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The axis along which cells are compared.
    pub axis: Axis,
    /// The axes along which the runs differ.
    pub axes: Vec<AxisCount>,
    /// The matched pairs, and what is said of them all.
    pub report: ComparisonReport,
    /// What a map could hold fixed.
    pub slices: Vec<HeatSlice>,
    /// What tells all pairs apart, and what they have in common.
    pub told: Told,
    /// The runs that are compared.
    pub(super) runs: Arc<Snapshot>,
    /// The baseline of all pairs, if it is one: said once, above them.
    pub baseline: Option<String>,
    /// Of each slice its name: what is compared, and what tells it from other slices.
    pub slice_names: Vec<String>,
    /// Of each pair the first that gives the same numbers.
    pub(super) equal: Vec<usize>,
}

/// The one value that all have, if it is one.
pub(super) fn one_of<T: PartialEq>(mut all: impl Iterator<Item = T>) -> Option<T> {
    all.next().filter(|first| all.all(|other| other == *first))
}

impl Compared {
    /// Compares cells; not for the thread that draws.
    pub fn new(cells: &KeptCell, asked: &Asked) -> Result<Self> {
        let report = cells.cells.compare(&asked.axis, asked.baseline.as_deref())?;
        let told = Told::of(&report.pairs.iter().collect::<Vec<_>>(), &asked.axis);
        let slices = slices(&report);
        let mut compared = Self {
            axis: asked.axis.clone(),
            axes: cells.axes.clone(),
            slice_names: slice_names(&report, &slices, &told.settings),
            slices,
            told: Told::default(),
            runs: Arc::clone(&cells.runs),
            baseline: one_of(report.pairs.iter().map(|pair| pair.baseline.clone())),
            equal: first_equal(&report),
            report,
        };
        let rows: Vec<Row> =
            compared.rows(0..compared.report.pairs.len(), &|_: &Comparison| false).collect();
        compared.told = told.measured(&compared, &rows);
        Ok(compared)
    }

    /// The whole map of a slice, by the slice's index.
    pub fn map(&self, slice: usize) -> Option<HeatMap> {
        Some(HeatMap::new(&self.report, self.slices.get(slice)?))
    }

    /// Why the map of a slice has no number, for each TP and batch where it has none; not for the thread that draws.
    pub fn gaps(&self, slice: usize) -> Reasons {
        let map = self.map(slice);
        map.map_or_else(Reasons::new, |map| Gaps::new(&self.report, &self.runs.records).of(&map))
    }

    /// What a pair compares: the value, with the baseline before it where that is not the same for all.
    pub fn values(&self, pair: &Comparison) -> String {
        match self.baseline {
            Some(_) => pair.value.clone(),
            None => format!("{} → {}", pair.baseline, pair.value),
        }
    }

    /// The rows that show these pairs, in their order: equal ones are one row, unless that is `opened`, told
    /// by its first pair.
    pub(super) fn rows<'a>(
        &'a self,
        shown: impl Iterator<Item = usize>,
        opened: &'a dyn Fn(&Comparison) -> bool,
    ) -> impl Iterator<Item = Row> + 'a {
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
                    vec![Row { pair: *first, folded: folded.to_vec(), of: class.len(), first: true }]
                }
                _ => {
                    let row = |at: &usize| Row {
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

/// The names of slices: what is compared, and of the rest what varies; with all of the rest where slices would
/// have the same name.
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

/// A row of the table: a pair, and those that give the same numbers and are folded into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The pair whose numbers are shown: its index in the report.
    pub pair: usize,
    /// The other pairs that have the same numbers: their indices in the report.
    pub folded: Vec<usize>,
    /// How many pairs have these numbers, folded into this row or not.
    pub of: usize,
    /// Whether it is the first row of the pairs with these numbers.
    pub first: bool,
}

impl Row {
    /// All pairs that the row stands for, the one whose numbers are shown first: indices in the report.
    pub fn all(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        std::iter::once(self.pair).chain(self.folded.iter().copied())
    }
}

/// The cells of some runs and the axes along which they differ.
#[derive(Debug)]
pub struct KeptCell {
    runs: Arc<Snapshot>,
    cells: Cells,
    axes: Vec<AxisCount>,
}

/// The cells of the runs that were compared last: pooling thousands of runs takes
/// longer than comparing them.
#[derive(Debug, Default)]
pub struct KeptCells(Mutex<Option<(Arc<Snapshot>, Arc<KeptCell>)>>);

impl KeptCells {
    /// The cells of these runs.
    pub fn of(&self, runs: &Arc<Snapshot>) -> Arc<KeptCell> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, cells)) = &*kept
            && Arc::ptr_eq(of, runs)
        {
            return Arc::clone(cells);
        }
        let cells = Cells::of(&runs.records);
        let made = Arc::new(KeptCell { runs: Arc::clone(runs), axes: cells.axes(), cells });
        *kept = Some((Arc::clone(runs), Arc::clone(&made)));
        made
    }
}
