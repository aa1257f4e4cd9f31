//! State of screen 3: rows, order, columns. Computed when the runs, the filter or the order change, not
//! while drawing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::edits::Done;
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::table;
use ::table::{Provenance, Record, Source, Status, Unit};
use study::analysis::filter::{BoundFilter, Filter};
use study::analysis::{Column, RunCell, RunTable};

/// Maximum number of sort columns; later ones break ties.
const SORT_KEYS: usize = 3;

pub const DETAILS: u16 = 60;

pub const COLUMNS: [&str; 17] = [
    "architecture",
    PROVENANCE,
    "tp",
    EP,
    DP,
    "batch",
    "p2p",
    SETTING,
    MODEL,
    "tpot_p50_ms",
    "tokens_per_s",
    EXPOSED,
    "overlap_pct",
    "tokens_per_s_per_gpu",
    "run",
    "tags",
    "note",
];

/// Columns shown only where runs differ in them: most runs divide neither experts nor sequences, and the header names the model
/// that all shown runs have.
const VARIED: [&str; 3] = [EP, DP, MODEL];
const EP: &str = "ep";
const DP: &str = "dp";
const MODEL: &str = "model";

const EXPOSED: &str = "exposed_pct";
const TPOT: &str = "tpot_p50_ms";
const TTFT: &str = "prefill_ms";

/// Columns always shown first: the architecture and the provenance of the numbers. A provenance that all shown runs have is in
/// the header instead.
pub const PINNED: [&str; 2] = ["architecture", PROVENANCE];
pub const PROVENANCE: &str = "provenance";

pub const SETTING: &str = "setting";

/// Columns before the first one's text: the mark and the status of the run.
pub const STATUS: u16 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// Run, as an index into the records.
    Run(u32),
    Group {
        /// Record index of a run with the group's value.
        row: u32,
        count: u32,
        running: u32,
        /// Runs that are neither running nor successful.
        bad: u32,
    },
}

#[derive(Debug)]
pub struct Runs {
    pub lines: Vec<Line>,
    pub count: usize,
    pub list: List,
    /// Sort columns by priority, and true for descending. `run` means creation order.
    pub sort: Vec<(String, bool)>,
    /// Shown columns, by name, in order.
    pub columns: Vec<String>,
    /// Columns that tell nothing about the shown runs, by name: empty, or [`VARIED`] ones with one value.
    pub empty: HashSet<String>,
    /// Length of the longest shown text of each column of texts, by name.
    pub longest: HashMap<String, usize>,
    /// Shown runs without a result, by status.
    pub bad: Vec<(Status, usize)>,
    /// Reason no run is shown.
    pub nothing: Option<String>,
    /// Provenance of all shown runs, if they have the same.
    pub provenance: Option<Provenance>,
    /// Model of all shown runs, if they have the same.
    pub model: Option<String>,
    /// Width that the table needs with all columns uncut.
    pub needed: u16,
    /// Unpinned columns scrolled off on the left.
    pub scroll: usize,
    pub filter: FilterBox,
    pub bound: BoundFilter,
    /// Details visibility; `None` shows them if they fit next to the table.
    pub detail: Option<bool>,
    /// Full record of the selected run, once read: rows of batches are listed without their environment.
    pub whole: Option<Box<Record>>,
    pub marked: Marked,
    pub only_marked: bool,
    /// Edits to undo, newest last.
    pub done: Vec<Done>,
    /// Edits to redo, newest last.
    pub undone: Vec<Done>,
    pub grouped: bool,
    /// Width of the groups of a numeric column with many values.
    pub bin: Option<f64>,
    /// Run that an undo brings back, until it is listed again.
    pub restored: Option<String>,
    /// Runs being deleted; no longer shown.
    pub deleting: HashSet<String>,
}

impl Default for Runs {
    fn default() -> Self {
        Self {
            lines: Vec::new(),
            count: 0,
            list: List::default(),
            sort: vec![("run".into(), true)],
            columns: COLUMNS.map(String::from).into(),
            empty: HashSet::new(),
            longest: HashMap::new(),
            bad: Vec::new(),
            nothing: None,
            provenance: None,
            model: None,
            needed: u16::MAX,
            scroll: 0,
            filter: FilterBox::default(),
            bound: BoundFilter::default(),
            detail: None,
            whole: None,
            marked: Marked::default(),
            only_marked: false,
            done: Vec::new(),
            undone: Vec::new(),
            grouped: false,
            bin: None,
            restored: None,
            deleting: HashSet::new(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptRuns {
    sort: Vec<(String, bool)>,
    columns: Vec<String>,
    grouped: bool,
    detail: Option<bool>,
}

impl Kept for Runs {
    type Kept = KeptRuns;

    fn keep(&self) -> Option<KeptRuns> {
        let Self { sort, columns, grouped, detail, .. } = self;
        let (sort, columns) = (sort.clone(), columns.clone());
        Some(KeptRuns { sort, columns, grouped: *grouped, detail: *detail })
    }

    /// Restores saved state; unknown columns are skipped when the rows are arranged.
    fn restore(&mut self, kept: KeptRuns, cx: &mut Context) {
        if !kept.sort.is_empty() {
            self.sort = kept.sort;
            self.sort.truncate(SORT_KEYS);
        }
        if !kept.columns.is_empty() {
            self.columns = with_pinned(kept.columns);
        }
        (self.grouped, self.detail) = (kept.grouped, kept.detail);
        self.rearrange(cx);
    }
}

impl Runs {
    pub fn shows_detail(&self, columns: u16) -> bool {
        self.detail.unwrap_or(columns >= self.needed.saturating_add(DETAILS))
    }

    /// Record index of the selected run.
    pub fn row(&self) -> Option<usize> {
        match self.lines.get(self.list.selected)? {
            Line::Run(row) => Some(*row as usize),
            Line::Group { .. } => None,
        }
    }

    pub fn selected<'a>(&self, snapshot: Option<&'a Arc<Snapshot>>) -> Option<&'a Record> {
        snapshot?.records.get(self.row()?)
    }

    /// Record indices of the shown runs.
    pub fn rows(&self) -> impl Iterator<Item = u32> {
        self.lines.iter().filter_map(|line| match line {
            Line::Run(row) => Some(*row),
            Line::Group { .. } => None,
        })
    }

    /// Marked runs, or the selected one if none is marked.
    pub fn chosen(&self, snapshot: Option<&Arc<Snapshot>>) -> Vec<String> {
        if self.marked.is_empty() {
            self.selected(snapshot).map(|record| record.run.clone()).into_iter().collect()
        } else {
            self.marked.as_slice().to_vec()
        }
    }

    /// Selects a run, or the line at `place` if it is not shown.
    pub fn select(&mut self, run: &str, snapshot: &Snapshot, place: usize) {
        let is = |line: &Line| match line {
            Line::Run(row) => snapshot.records.get(*row as usize).is_some_and(|r| r.run == run),
            Line::Group { .. } => false,
        };
        let at = self.lines.iter().position(is);
        self.list.selected = at.unwrap_or(place.min(self.lines.len().saturating_sub(1)));
    }

    /// Filters and sorts the lines, keeping the selected run if possible.
    pub fn arrange(&mut self, snapshot: Option<&Snapshot>) {
        let selected = self.lines.get(self.list.selected).copied();
        let Some(snapshot) = snapshot else {
            (self.lines, self.count) = (Vec::new(), 0);
            return;
        };
        let (records, table) = (&snapshot.records, &snapshot.table);
        let (bound, mut rows) = self.filter.rows(snapshot);
        self.bound = bound;
        let run = |row: &u32| records.get(*row as usize).map_or("", |record| record.run.as_str());
        if !self.deleting.is_empty() {
            rows.retain(|row| !self.deleting.contains(run(row)));
        }
        if self.only_marked {
            rows.retain(|row| self.marked.contains(run(row)));
        }
        self.order(table, &mut rows);
        self.count = rows.len();
        let of = |status: Status| {
            let is = |row: &&u32| records.get(**row as usize).is_some_and(|run| run.status == status);
            (status, rows.iter().filter(is).count())
        };
        self.bad = [Status::Failed, Status::Interrupted].map(of).into_iter().collect();
        self.bad.retain(|(_, runs)| *runs > 0);
        self.nothing = match (rows.is_empty(), self.only_marked) {
            (true, true) => Some("no marked run matches the filter".into()),
            (true, false) => Filter::parse(self.filter.value()).why_nothing(table),
            (false, _) => None,
        };
        let group = self.group(table);
        self.bin = group.and_then(|column| bin_width(table.columns().get(column)?, &rows));
        self.lines = match group {
            Some(column) => grouped(snapshot, column, &rows, self.bin),
            None => rows.into_iter().map(Line::Run).collect(),
        };
        let at = match selected {
            Some(Line::Run(row)) => self.lines.iter().position(|line| *line == Line::Run(row)),
            _ => None,
        };
        let first = usize::from(matches!(self.lines.first(), Some(Line::Group { .. })));
        self.list.selected = at.unwrap_or(first);
        let shown = || self.rows().filter_map(|row| records.get(row as usize));
        let provenance = only(shown().map(|record| record.provenance));
        let model = only(shown().map(|record| &record.spec.model)).cloned();
        (self.provenance, self.model) = (provenance, model);
        self.note_empty(table);
    }

    /// Updates the list of columns that tell nothing, the longest texts, and the width all columns need.
    pub fn note_empty(&mut self, table: &RunTable) {
        let says = |name: &&String| {
            let column = table.find(name).and_then(|at| table.columns().get(at));
            column.is_some_and(|column| {
                let mut cells = self.rows().map(|row| column.cell(row as usize));
                match name.as_str() {
                    name if VARIED.contains(&name) => {
                        let first = cells.next();
                        cells.any(|cell| Some(cell) != first)
                    }
                    _ => !column.is_blank() && cells.any(|cell| cell != RunCell::Nothing),
                }
            })
        };
        self.empty = self.columns.iter().filter(|name| !says(name)).cloned().collect();
        let longest = |name: &String| {
            let column = table.columns().get(table.find(name)?)?;
            let length = |row: u32| match column.cell(row as usize) {
                RunCell::Text(text) => text.chars().count(),
                _ => 0,
            };
            let longest = match self.count == table.len() {
                true => column.longest,
                false => self.rows().map(length).max().unwrap_or(0),
            };
            (!column.field.unit.is_number()).then(|| (column.field.name.to_string(), longest))
        };
        self.longest = self.columns.iter().filter_map(longest).collect();
        self.needed = needed(self, table);
    }

    pub fn group(&self, table: &RunTable) -> Option<usize> {
        let name = &self.sort.first().filter(|(name, _)| self.grouped && name != "run")?.0;
        table.find(name)
    }

    fn order(&self, table: &RunTable, rows: &mut Vec<u32>) {
        // records are in creation order, which has no ties, so later keys have no effect
        let creation = self.sort.iter().position(|(name, _)| name == "run");
        if creation.is_none_or(|at| self.sort[at].1) {
            rows.reverse();
        }
        let before = &self.sort[..creation.unwrap_or(self.sort.len())];
        // skip columns that no longer exist
        let keys: Vec<(usize, bool)> =
            before.iter().filter_map(|(name, down)| Some((table.find(name)?, *down))).collect();
        table.sort(rows, &keys);
    }

    /// Sorts by this column alone; by the first one again reverses it.
    pub fn sort_by(&mut self, name: &str, unit: Unit) {
        match self.sort.first_mut() {
            Some((first, down)) if first == name => *down = !*down,
            _ => self.sort = vec![(name.to_owned(), is_down_first(name, unit))],
        }
    }

    /// Breaks ties of the order by another column, or reverses it if the order has it.
    pub fn sort_also_by(&mut self, name: &str, unit: Unit) {
        match self.sort.iter_mut().find(|(known, _)| known == name) {
            Some((_, down)) => *down = !*down,
            None => {
                self.sort.truncate(SORT_KEYS - 1);
                self.sort.push((name.to_owned(), is_down_first(name, unit)));
            }
        }
    }

    pub fn sort_by_next(&mut self, backwards: bool, table: &RunTable) {
        let current = self.sort.first().map(|(name, _)| name.as_str());
        // empty columns are not shown, nor a provenance that all runs have
        let is_shown = |name: &&String| {
            !self.empty.contains(*name) && (self.provenance.is_none() || *name != PROVENANCE)
        };
        let shown: Vec<&String> = self.columns.iter().filter(is_shown).collect();
        let at = shown.iter().position(|name| Some(name.as_str()) == current).unwrap_or(0);
        let step = if backwards { shown.len().saturating_sub(1) } else { 1 };
        let Some(name) = shown.get((at + step) % shown.len().max(1)).map(|name| (*name).clone()) else {
            return;
        };
        self.sort_by(&name, unit(table, &name));
    }

    /// Arguments of `ladderscope runs` for the filter and order.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec!["runs".to_owned()];
        let mut filter = self.filter.text().trim().to_owned();
        if self.only_marked && !self.marked.is_empty() {
            filter = format!("{filter} id={}", self.marked.as_slice().join("|")).trim().to_owned();
        }
        if !filter.is_empty() {
            words.extend(["--filter".into(), filter]);
        }
        let key = |(name, down): &(String, bool)| format!("{name}{}", if *down { ":desc" } else { "" });
        let sort: Vec<String> = self.sort.iter().map(key).collect();
        words.extend(["--sort".into(), sort.join(",")]);
        let is_shown =
            |name: &&String| ![EP, DP].contains(&name.as_str()) || !self.empty.contains(*name);
        let columns: Vec<&str> = self.columns.iter().filter(is_shown).map(String::as_str).collect();
        words.extend(["--columns".into(), columns.join(",")]);
        words
    }
}

/// Value that all items have; `None` if they differ or there are none.
fn only<T: PartialEq>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next()?;
    items.all(|item| item == first).then_some(first)
}

/// True if a column starts in descending order: newest and fastest first.
fn is_down_first(name: &str, unit: Unit) -> bool {
    name == "run" || matches!(unit, Unit::Rate | Unit::Percent | Unit::Share)
}

/// Unit of a column; text if it does not exist.
pub fn unit(table: &RunTable, name: &str) -> Unit {
    let column = table.find(name).and_then(|at| table.columns().get(at));
    column.map_or(Unit::Text, |column| column.field.unit)
}

/// Prepends the pinned columns.
pub fn with_pinned(columns: Vec<String>) -> Vec<String> {
    let mut all: Vec<String> = PINNED.map(String::from).into();
    for name in columns {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

/// Width of groups of a measured number: 1, 2 or 5 times a power of ten, for about eight groups. `None` if the column has few
/// values or counts something.
fn bin_width(column: &Column, rows: &[u32]) -> Option<f64> {
    /// Maximum number of distinct values that are groups of their own.
    const FEW: usize = 12;
    if !column.field.unit.is_number() || column.field.unit == Unit::Count {
        return None;
    }
    let mut values: Vec<f64> = rows.iter().filter_map(|row| number(column, *row)).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let range = values.last()? - values.first()?;
    if values.len() <= FEW || !range.is_finite() || range <= 0.0 {
        return None;
    }
    let power = 10f64.powf((range / 8.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * power).find(|width| range / width <= 8.0)
}

/// Value of a numeric column.
pub fn number(column: &Column, row: u32) -> Option<f64> {
    match column.cell(row as usize) {
        RunCell::Number(value) => Some(value),
        _ => None,
    }
}

/// Inserts a header before each group of equal values, or of values in the same bin; rows must be sorted by the column.
fn grouped(snapshot: &Snapshot, column: usize, rows: &[u32], bin: Option<f64>) -> Vec<Line> {
    let Some(column) = snapshot.table.columns().get(column) else { return Vec::new() };
    let status = |row: &u32| snapshot.records.get(*row as usize).map(|record| record.status);
    let mut lines = Vec::with_capacity(rows.len() + 16);
    let place = |row: u32, width: f64| number(column, row).map(|value| (value / width).floor() as i64);
    let same = |a: &u32, b: &u32| match bin {
        Some(width) => place(*a, width) == place(*b, width),
        None => column.same(*a as usize, *b as usize),
    };
    for group in rows.chunk_by(same) {
        let of = |wanted| group.iter().filter(|row| status(row) == Some(wanted)).count() as u32;
        let (count, running) = (group.len() as u32, of(Status::Running));
        let bad = count - running - of(Status::Ok);
        lines.push(Line::Group { row: group[0], count, running, bad });
        lines.extend(group.iter().copied().map(Line::Run));
    }
    lines
}

#[derive(Clone, Debug, Default)]
pub struct Marked {
    order: Vec<String>,
    all: HashSet<String>,
}

impl Marked {
    pub fn insert(&mut self, run: String) {
        if self.all.insert(run.clone()) {
            self.order.push(run);
        }
    }

    pub fn toggle(&mut self, run: String) {
        if self.contains(&run) {
            self.retain(|marked| marked != run);
        } else {
            self.insert(run);
        }
    }

    pub fn contains(&self, run: &str) -> bool {
        self.all.contains(run)
    }

    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.order.retain(|run| keep(run));
        self.all.retain(|run| keep(run));
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn as_slice(&self) -> &[String] {
        &self.order
    }
}

/// Width from which a table writes provenances whole even if columns are missing.
const WHOLE: u16 = 100;

/// Maximum width of a text column other than the run id.
const WIDEST: usize = 28;

#[derive(Clone, Debug)]
pub struct RunColumn {
    /// Column index in the run table.
    pub column: usize,
    /// Name, used in saved state.
    pub name: String,
}

/// Columns in display order, each with how it is drawn: pinned, others, empty ones last. The pinned columns and the first result
/// are never dropped. In a table of this width, provenances are short where columns are missing.
pub fn columns(runs: &Runs, table: &RunTable, width: u16) -> (Vec<RunColumn>, Vec<table::Column>) {
    let (mut wanted, mut others): (Vec<_>, Vec<_>) =
        wanted(runs, table).partition(|(_, name)| PINNED.contains(&name.as_str()));
    others.sort_by_key(|(_, name)| runs.empty.contains(name));
    let is_result = |(column, _): &(usize, String)| {
        matches!(table.columns()[*column].field.source, Source::Measure(_))
    };
    let result = others.iter().position(is_result).map(|at| wanted.len() + at);
    let pinned = wanted.len();
    wanted.extend(others);
    let column = |(at, (column, name)): (usize, (usize, String))| {
        let spec = &table.columns()[column];
        let before = if at == 0 { STATUS } else { 0 };
        let (least, most) = widths(runs, spec, title_width(runs, spec));
        let title = match title(runs, spec) {
            // the direction is behind it
            whole if whole.width() > least.into() && is_marked_behind(runs, spec) => {
                self::name(spec).to_owned()
            }
            whole => whole,
        };
        let spec = table::Column {
            title: format!("{}{title}", " ".repeat(before.into())).into(),
            width: before + least,
            right: spec.field.unit.is_number(),
            spare: u8::from(at >= pinned && Some(at) != result),
            grows: if name == PROVENANCE && width < runs.needed.min(WHOLE) { 0 } else { most - least },
        };
        (RunColumn { column, name }, spec)
    };
    wanted.into_iter().enumerate().map(column).unzip()
}

/// Column title, shorter than the field's name where its values are short.
pub fn name(column: &Column) -> &str {
    match &*column.field.name {
        PROVENANCE => "source",
        SETTING => "setting",
        EXPOSED => "exposed",
        _ => &column.field.title,
    }
}

/// Title of a column, with its direction and, among several sort columns, its rank.
fn title(runs: &Runs, column: &Column) -> String {
    let title = name(column);
    let Some(key) = runs.sort.iter().position(|(key, _)| *key == column.field.name) else {
        return title.to_owned();
    };
    let rank = if runs.sort.len() > 1 { (key + 1).to_string() } else { String::new() };
    format!("{title}{}{rank}", if runs.sort[key].1 { "↓" } else { "↑" })
}

/// True if the direction of a sorted column may be in the gap behind it, so that sorting widens no column: numbers end at
/// their title's end. Several sort columns have ranks, too.
fn is_marked_behind(runs: &Runs, column: &Column) -> bool {
    column.field.unit.is_number() && runs.sort.len() < 2
}

fn title_width(runs: &Runs, column: &Column) -> usize {
    if is_marked_behind(runs, column) { name(column).width() } else { title(runs, column).width() }
}

/// Direction of a sorted column whose title has no room for it.
pub fn mark_behind(runs: &Runs, column: &Column, shown: &table::Column) -> Option<&'static str> {
    let (_, descending) = runs.sort.iter().find(|(key, _)| *key == column.field.name)?;
    let is_missing = !shown.title.ends_with(['↑', '↓']);
    (is_missing && is_marked_behind(runs, column)).then_some(if *descending { "↓" } else { "↑" })
}

/// Columns to show: index in the run table and name.
fn wanted(runs: &Runs, table: &RunTable) -> impl Iterator<Item = (usize, String)> {
    let says = |name: &&String| match name.as_str() {
        PROVENANCE => runs.provenance.is_none(),
        "architecture" => true,
        // a column that the user added says that it is empty
        name => !runs.empty.contains(name) || !COLUMNS.contains(&name),
    };
    // prefills alone have their latency in place of TPOT
    let named = |name: &String| match name.as_str() {
        TPOT if runs.empty.contains(TPOT) && !runs.columns.iter().any(|name| name == TTFT) => {
            TTFT.to_owned()
        }
        _ => name.clone(),
    };
    let names = runs.columns.iter().map(named).collect::<Vec<_>>();
    names.into_iter().filter(move |name| says(&name)).filter_map(|name| Some((table.find(&name)?, name)))
}

/// Total width that all columns need uncut.
pub fn needed(runs: &Runs, table: &RunTable) -> u16 {
    let columns = wanted(runs, table).filter_map(|(column, _)| table.columns().get(column));
    STATUS + columns.map(|column| widths(runs, column, title_width(runs, column)).1 + 1).sum::<u16>()
}

/// Length of the longest text of a column among the shown runs.
pub fn longest(runs: &Runs, column: &Column) -> usize {
    runs.longest.get(&*column.field.name).copied().unwrap_or(column.longest)
}

/// Minimum and maximum useful width of a column with a title of this width.
fn widths(runs: &Runs, column: &Column, title: usize) -> (u16, u16) {
    let number = |width: usize| (width.max(title) as u16, width.max(title) as u16);
    let longest = longest(runs, column);
    match column.field.unit {
        Unit::Text | Unit::Words | Unit::Names => {
            let (least, most) = match &*column.field.name {
                "run" => (15, longest.clamp(12, 60)),
                // the end of the distinguishing settings is the most informative part
                SETTING => (11, longest.clamp(title, WIDEST)),
                PROVENANCE => (title, longest.max(title)),
                _ => (title.max(13), longest.clamp(title.max(3), WIDEST)),
            };
            (least.min(most) as u16, most as u16)
        }
        Unit::Count => number(4),
        Unit::Ms | Unit::Percent | Unit::Share | Unit::Factor | Unit::Nats => number(7),
        Unit::Bytes | Unit::Rate => number(8),
    }
}

/// Provenance in at most six letters, for a narrow column.
pub const fn short_provenance(provenance: Provenance) -> &'static str {
    match provenance {
        Provenance::Measured => "meas",
        Provenance::EmulatedLink => "emul",
        Provenance::Simulated => "sim",
        Provenance::SharedGpu => "shared",
    }
}

pub fn cell_text(column: &Column, row: usize) -> String {
    match column.cell(row) {
        RunCell::Nothing if column.field.unit.is_number() => "-".into(),
        RunCell::Nothing => String::new(),
        // first line of a note
        RunCell::Text(text) => text.lines().next().unwrap_or_default().to_owned(),
        RunCell::Number(value) => column.field.unit.cell(value),
    }
}
