//! State of screen 6: what is compared, in which order, as a table or a map.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use crate::base::error::Result;
use crate::face::tui::snapshot::Snapshot;
use crate::face::tui::widgets::field::FilterBox;
use crate::face::tui::widgets::list::{List, next_of};
use crate::study::analysis::filter::Filter;
use crate::study::analysis::{
    Axis, AxisCount, Cells, Comparison, ComparisonReport, HeatMap, HeatSlice, HeatValue, Varied,
    compared_rows, slices,
};
use crate::table::Provenance;

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
    /// The axes along which the runs differ.
    pub axes: Vec<AxisCount>,
    /// The matched pairs, and what is said of them all.
    pub report: ComparisonReport,
    /// What a map could hold fixed.
    pub slices: Vec<HeatSlice>,
    /// The provenance of all pairs, if it is one: said once, above them.
    pub provenance: Option<Provenance>,
    /// What tells pairs apart, beside the axis.
    pub settings: Varied,
    /// What all cells have in common, in words.
    pub common: String,
    /// The runs that are compared.
    runs: Arc<Snapshot>,
}

impl Compared {
    /// Compares cells; not for the thread that draws.
    pub fn new(cells: &KeptCell, asked: &Asked) -> Result<Self> {
        let report = cells.cells.compare(&asked.axis, asked.baseline.as_deref())?;
        let mut all = report.pairs.iter().map(|pair| pair.provenance);
        let provenance = all.next().filter(|first| all.all(|other| other == *first));
        let sides = report.pairs.iter().flat_map(|pair| [&pair.baseline_side.spec, &pair.side.spec]);
        let varied = Varied::of(sides);
        let common = report.pairs.first().map(|pair| varied.common(&pair.side.spec));
        Ok(Self {
            axes: cells.axes.clone(),
            slices: slices(&report),
            settings: varied.without(&asked.axis),
            common: common.unwrap_or_default(),
            runs: Arc::clone(&cells.runs),
            provenance,
            report,
        })
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

/// By what the pairs are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As the runs were stored.
    #[default]
    Stored,
    /// By the ratio of throughputs.
    Speedup,
    /// By the TPOT of the compared cell.
    Tpot,
    /// By the share of TPOT that is exposed communication.
    Exposed,
    /// By the overlap of the compared cell.
    Overlap,
    /// By the hidden share of the compared cell's architecture.
    Hidden,
    /// By the p-value, adjusted for the number of comparisons.
    Adjusted,
    /// By TP, and by batch where that is the same.
    Grid,
}

impl Order {
    /// All orders as a key goes through them: of each its name, and the table's column that it is by.
    const TABLE: [(Self, &'static str, Option<usize>); 8] = [
        (Self::Stored, "as stored", None),
        (Self::Speedup, "ratio", Some(2)),
        (Self::Tpot, "TPOT", Some(6)),
        (Self::Exposed, "exposed", Some(7)),
        (Self::Overlap, "overlap", Some(8)),
        (Self::Hidden, "hidden share", Some(9)),
        (Self::Adjusted, "adjusted p", Some(5)),
        (Self::Grid, "TP, batch", Some(11)),
    ];

    /// The order of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::TABLE.iter().find(|(_, known, _)| *known == name).map(|(order, ..)| *order)
    }

    /// The order's name, for the screen and for what is kept.
    pub fn name(self) -> &'static str {
        Self::TABLE[self as usize].1
    }

    /// The table's column that it is by.
    pub fn column(self) -> Option<usize> {
        Self::TABLE[self as usize].2
    }

    /// What to order by; what is not known comes last.
    fn of(self, pair: &Comparison) -> f64 {
        let number = match self {
            Self::Stored => None,
            Self::Speedup => Some(pair.speedup),
            Self::Tpot => Some(pair.tpot_ms),
            Self::Exposed => pair.side.exposed_pct,
            Self::Overlap => pair.overlap_pct,
            Self::Hidden => pair.side.hidden_share,
            Self::Adjusted => pair.adjusted_p,
            Self::Grid => Some(f64::from(pair.side.spec.tp) * 1e6 + f64::from(pair.side.spec.batch)),
        };
        number.filter(|number| number.is_finite()).unwrap_or(f64::INFINITY)
    }
}

/// State of the compare screen.
#[derive(Debug, Default)]
pub struct Compare {
    /// The axis, the baseline and the runs that are compared.
    pub asked: Asked,
    /// Cells of the runs that were compared last.
    pub cells: Arc<KeptCells>,
    /// The comparison, or why there is none; `None` until it is computed.
    pub compared: Option<std::result::Result<Arc<Compared>, String>>,
    /// The pairs shown, in order: indices into the report's.
    pub shown: Vec<usize>,
    /// Marked pairs, by their runs.
    pub marked: BTreeSet<(String, String)>,
    /// The selection in the table.
    pub list: List,
    /// By what pairs are ordered.
    pub order: Order,
    /// Whether the greatest values come first.
    pub descending: bool,
    /// Which pairs are shown.
    pub filter: FilterBox,
    /// Whether the map is shown.
    pub map: Option<HeatMap>,
    /// What the map holds fixed, an index into the slices.
    pub slice: usize,
    /// The number that it shows.
    pub value: HeatValue,
    /// The selected TP and batch: indices.
    pub cursor: (usize, usize),
    /// The flags are shown instead of the pair.
    pub flags: bool,
}

impl Compare {
    /// Shows a comparison, or why there is none; the selection stays where it can.
    pub fn set(&mut self, result: std::result::Result<Arc<Compared>, String>) {
        let selected = self.selected().map(|p| (p.baseline_run.clone(), p.run.clone()));
        self.compared = Some(result);
        let slices = self.compared().map_or(0, |compared| compared.slices.len());
        self.slice = self.slice.min(slices.saturating_sub(1));
        self.arrange();
        if let Some(selected) = selected
            && let Some(at) = self.shown.iter().position(|i| {
                let pair = &self.pairs()[*i];
                pair.baseline_run == selected.0 && pair.run == selected.1
            })
        {
            self.list.selected = at;
        }
    }

    /// The comparison that is shown, if there is one.
    pub fn compared(&self) -> Option<&Arc<Compared>> {
        self.compared.as_ref()?.as_ref().ok()
    }

    /// All pairs of the comparison, in its own order.
    pub fn pairs(&self) -> &[Comparison] {
        self.compared().map_or(&[], |compared| &compared.report.pairs)
    }

    /// The selected pair: of the table, or under the map's cursor.
    pub fn selected(&self) -> Option<&Comparison> {
        match &self.map {
            Some(map) => {
                let (tp, batch) = (map.tps.get(self.cursor.0)?, map.batches.get(self.cursor.1)?);
                self.pairs().get(map.cell(*tp, *batch)?.pair)
            }
            None => self.pairs().get(*self.shown.get(self.list.selected)?),
        }
    }

    /// Chooses and orders the pairs shown anew.
    pub fn arrange(&mut self) {
        let chosen = self.chosen();
        let fits = |index: &usize| {
            let pair = &self.pairs()[*index];
            let meets = |run: &String| chosen.as_ref().is_none_or(|runs| runs.contains(run));
            meets(&pair.run) && meets(&pair.baseline_run)
        };
        let mut shown: Vec<usize> = (0..self.pairs().len()).filter(fits).collect();
        let (order, pairs) = (self.order, self.pairs());
        let key = |index: &usize| order.of(&pairs[*index]);
        shown.sort_by(|a, b| {
            let (a, b) = (key(a), key(b));
            // what is not known stays last either way
            match self.descending && a.is_finite() && b.is_finite() {
                true => b.total_cmp(&a),
                false => a.total_cmp(&b),
            }
        });
        if self.order == Order::Stored && self.descending {
            shown.reverse();
        }
        self.shown = shown;
        if self.map.is_some() {
            self.open_map();
        }
    }

    /// The runs that the filter leaves, and what they are compared with; `None` where there is none.
    fn chosen(&mut self) -> Option<HashSet<String>> {
        let compared = Arc::clone(self.compared()?);
        let filter = Filter::parse(self.filter.value());
        if filter.is_empty() {
            self.filter.tell(&[]);
            return None;
        }
        let (runs, Asked { axis, baseline }) = (&compared.runs, &self.asked);
        let (rows, wrong) =
            compared_rows(&filter, &runs.table, &runs.records, axis, baseline.as_deref());
        self.filter.tell(&wrong);
        let run = |row: u32| Some(runs.records.get(row as usize)?.run.clone());
        Some(rows.into_iter().filter_map(run).collect())
    }

    /// Orders by the next column.
    pub fn order_by_next(&mut self, backwards: bool) {
        self.order = next_of(&Order::TABLE.map(|(order, ..)| order), self.order, backwards);
        self.arrange();
    }

    /// Shows the map of the chosen slice, its cursor on a cell that exists.
    pub fn open_map(&mut self) {
        let shown: HashSet<usize> = self.shown.iter().copied().collect();
        let map = self.compared().and_then(|compared| {
            let mut map = HeatMap::new(&compared.report, compared.slices.get(self.slice)?);
            map.cells.retain(|cell| shown.contains(&cell.pair));
            Some(map)
        });
        if let Some(map) = &map {
            let (row, column) = self.cursor;
            self.cursor = (row.min(map.tps.len() - 1), column.min(map.batches.len() - 1));
        }
        self.map = map;
    }

    /// Moves the map's cursor.
    pub fn move_cursor(&mut self, rows: isize, columns: isize) {
        let Some(map) = &self.map else { return };
        let to =
            |at: usize, by: isize, len: usize| at.saturating_add_signed(by).min(len.saturating_sub(1));
        self.cursor =
            (to(self.cursor.0, rows, map.tps.len()), to(self.cursor.1, columns, map.batches.len()));
    }

    /// Marks the selected pair, or takes its mark away.
    pub fn toggle_mark(&mut self) {
        let Some(pair) = self.selected() else { return };
        let key = (pair.baseline_run.clone(), pair.run.clone());
        if !self.marked.remove(&key) {
            self.marked.insert(key);
        }
    }

    /// Whether a pair is marked.
    pub fn is_marked(&self, pair: &Comparison) -> bool {
        !self.marked.is_empty() && self.marked.contains(&(pair.baseline_run.clone(), pair.run.clone()))
    }

    /// The report of what is shown: marked pairs where there are any, else those that the filter lets
    /// through, in their order. Counts stay those of the whole comparison.
    pub fn shown_report(&self) -> Option<ComparisonReport> {
        let compared = self.compared()?;
        let shown = self.shown.iter().map(|index| &compared.report.pairs[*index]);
        let mut pairs: Vec<Comparison> = shown.clone().filter(|p| self.is_marked(p)).cloned().collect();
        if pairs.is_empty() {
            pairs = shown.cloned().collect();
        }
        let ComparisonReport { by, values, pairs: _, comparisons, differ, adjusted, flags } =
            &compared.report;
        Some(ComparisonReport {
            by: by.clone(),
            values: values.clone(),
            pairs,
            comparisons: *comparisons,
            differ: *differ,
            adjusted: *adjusted,
            flags: flags.clone(),
        })
    }
}
