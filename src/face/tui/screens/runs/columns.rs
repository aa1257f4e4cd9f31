//! Columns of screen 3: which are shown, how wide they are, and in which others the shown runs differ.

use std::collections::HashMap;

use super::cells::RunListCell;
use super::draw::text_of;
use super::layout::RunsLayout;
use super::order::arrow;
use super::state::{
    EXPOSED, HIDDEN, PER_GPU, PINNED, PROVENANCE, ROUND, Runs, SETTING, STATUS, TPOT, TTFT,
};
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::table;
use ::table::{FieldSource, Provenance, Unit};
use study::analysis::run_list::{IfShared, options_in_both_lists, screen_column};
use study::analysis::{RunCell, RunTable, RunTableColumn};

/// Width from which a table writes provenances whole even if columns are missing.
const WHOLE: u16 = 100;

/// Maximum width of a text column other than the run id.
const WIDEST: usize = 28;

/// Number of results that stay while the other columns scroll.
const RESULTS: usize = 3;

#[derive(Clone, Debug)]
pub struct RunColumn {
    /// Column index in the run table.
    pub column: usize,
    /// Name, used in saved state.
    pub name: String,
}

/// Columns in display order, each with how it is drawn: pinned, others, empty ones last. In a table of this width, provenances
/// are short where columns are missing.
pub fn columns(runs: &Runs, table: &RunTable, width: u16) -> (Vec<RunColumn>, Vec<table::TableColumn>) {
    let (mut wanted, mut others): (Vec<_>, Vec<_>) =
        wanted(runs, table).partition(|(_, name)| PINNED.contains(&name.as_str()));
    others.sort_by_key(|(_, name)| runs.empty.contains(name));
    let pinned = wanted.len();
    wanted.extend(others);
    let column = |(at, (column, name)): (usize, (usize, String))| {
        let spec = &table.columns()[column];
        let before = if at == 0 { STATUS } else { 0 };
        let (least, most) = widths(runs, spec, title_width(runs, spec));
        let title = match title(runs, spec) {
            // the direction is behind it
            whole if whole.width() > least.into() && is_marked_behind(runs, spec) => {
                head(runs, spec).to_owned()
            }
            whole => whole,
        };
        let spec = table::TableColumn {
            title: format!("{}{title}", " ".repeat(before.into())).into(),
            width: before + least,
            right: spec.field.unit.is_number() && !(name == ROUND && shows_cells(runs)),
            spare: u8::from(at >= pinned),
            grows: if name == PROVENANCE && width < runs.needed.min(WHOLE) { 0 } else { most - least },
        };
        (RunColumn { column, name }, spec)
    };
    let (columns, mut specs): (Vec<RunColumn>, Vec<table::TableColumn>) =
        wanted.into_iter().enumerate().map(column).unzip();
    pin(runs, table, &columns, &mut specs, width);
    let is_crowded = |(column, spec): (&RunColumn, &table::TableColumn)| {
        mark_behind(runs, &table.columns()[column.column], spec).is_some()
    };
    if let Some(at) = columns.iter().zip(&specs).position(is_crowded) {
        // apart from the next title, if that hides no column
        let mut wider = specs.clone();
        let title = title(runs, &table.columns()[columns[at].column]);
        wider[at].width = title.width() as u16;
        wider[at].title = title.into();
        let shown = |specs: &[table::TableColumn]| -> Vec<usize> {
            let layout = table::lay_out(specs, Rect::new(0, 0, width, 1), Some(runs.scroll));
            layout.places.iter().map(|place| place.column).collect()
        };
        if shown(&wider) == shown(&specs) {
            specs = wider;
        }
    }
    (columns, specs)
}

/// Pins the columns of the order, a result, the options that distinguish runs, then other results, as long as there is room.
/// Settings without which runs look the same are pinned whole if possible. Once the user scrolls, all columns that distinguish
/// runs come before results, and the other columns keep a minimum width.
fn pin(
    runs: &Runs,
    table: &RunTable,
    columns: &[RunColumn],
    specs: &mut [table::TableColumn],
    width: u16,
) {
    /// Minimum width left to the other columns after a column that distinguishes runs is pinned, and after a result is.
    const LEAST: (u16, u16) = (9, 17);
    let is_result = |at: &usize| {
        let column = &table.columns()[columns[*at].column];
        specs[*at].spare > 0 && matches!(column.field.source, FieldSource::Measure(_))
    };
    let tells_apart = |at: &usize| {
        let name = columns[*at].name.as_str();
        let is_round = name == ROUND && shows_round(runs);
        let is_known = if_shared(name) != IfShared::Kept || name == SETTING || is_round;
        is_known && !runs.empty.contains(name)
    };
    let order = runs.marked_order().into_iter();
    let sorted = order.filter_map(|(name, _)| columns.iter().position(|column| column.name == name));
    let mut results = (0..specs.len()).filter(is_result).take(RESULTS);
    let apart = (0..specs.len()).filter(tells_apart);
    let all: Vec<(usize, u16)> = if runs.scroll == 0 {
        let (settings, options): (Vec<usize>, Vec<usize>) =
            apart.partition(|at| columns[*at].name == SETTING);
        let settings = settings.into_iter().filter(|_| runs.needs_setting);
        let first = results.next();
        sorted.chain(first).chain(options).chain(settings).chain(results).map(|at| (at, 0)).collect()
    } else {
        let apart = apart.map(|at| (at, LEAST.0));
        sorted.map(|at| (at, 0)).chain(apart).chain(results.map(|at| (at, LEAST.1))).collect()
    };
    let fixed = specs.iter().filter(|spec| spec.spare == 0);
    let mut taken: u16 = fixed.map(|spec| spec.width + 1).sum();
    for (at, least) in all {
        let spec = &mut specs[at];
        // the last column needs no gap
        let fits = |needed: u16| taken + needed + least <= width.saturating_add(1);
        let is_cut = columns[at].name == SETTING && runs.scroll == 0;
        if spec.spare > 0 && is_cut && fits(spec.width + spec.grows + 1) {
            (spec.width, spec.grows) = (spec.width + spec.grows, 0);
        }
        if spec.spare > 0 && fits(spec.width + 1) {
            (spec.spare, taken) = (0, taken + spec.width + 1);
        }
    }
}

/// Options that differ between the shown runs and have no column, as far as they fit behind these columns uncut.
pub fn fitting_options(
    runs: &Runs,
    table: &RunTable,
    columns: &[RunColumn],
    specs: &[table::TableColumn],
    width: u16,
) -> Vec<(RunColumn, table::TableColumn)> {
    let needed: u16 = specs.iter().map(|spec| spec.width + spec.grows + 1).sum();
    // a text in the last column has the rest of the row, beyond its usual width
    let last = columns.last().and_then(|last| table.columns().get(last.column));
    let last = last.filter(|column| !column.field.unit.is_number());
    let rest = last.map_or(0, |last| longest(runs, last).saturating_sub(WIDEST)) as u16;
    let mut room = (width + 1).saturating_sub(needed).saturating_sub(rest);
    let mut fitting = Vec::new();
    for at in &runs.differing {
        let Some(option) = table.columns().get(*at) else { continue };
        let (_, most) = widths(runs, option, title_width(runs, option));
        if columns.iter().any(|column| column.column == *at) || most >= room {
            continue;
        }
        room -= most + 1;
        let spec = table::TableColumn {
            title: title(runs, option).into(),
            width: most,
            right: option.field.unit.is_number(),
            spare: 1,
            grows: 0,
        };
        fitting.push((RunColumn { column: *at, name: option.field.name.to_string() }, spec));
    }
    fitting
}

/// Treatment of a column if the shown runs share its value; columns that the user adds are kept.
pub fn if_shared(name: &str) -> IfShared {
    screen_column(name).map_or(IfShared::Kept, |column| column.if_shared)
}

/// Column title, shorter than the field's name where its values are short.
pub fn name(column: &RunTableColumn) -> &str {
    match &*column.field.name {
        PROVENANCE => "source",
        SETTING => "setting",
        EXPOSED => "exposed",
        HIDDEN => "hidden",
        _ => &column.field.title,
    }
}

/// Title of a column: its name; for cells, the number of their rounds.
fn head<'a>(runs: &Runs, column: &'a RunTableColumn) -> &'a str {
    match &*column.field.name {
        ROUND if shows_cells(runs) => "rounds",
        _ => name(column),
    }
}

/// Title of a column, with its direction and, among several sort columns, its rank.
fn title(runs: &Runs, column: &RunTableColumn) -> String {
    let title = head(runs, column);
    let order = runs.marked_order();
    let Some(key) = order.iter().position(|(key, _)| *key == column.field.name) else {
        return title.to_owned();
    };
    let rank = if order.len() > 1 { (key + 1).to_string() } else { String::new() };
    format!("{title}{}{rank}", arrow(order[key].1))
}

/// True if the direction of a sorted column may be in the gap behind it, so that sorting widens no column: numbers end at
/// their title's end. Several sort columns have ranks, too.
fn is_marked_behind(runs: &Runs, column: &RunTableColumn) -> bool {
    column.field.unit.is_number() && runs.sort.len() < 2
}

fn title_width(runs: &Runs, column: &RunTableColumn) -> usize {
    if is_marked_behind(runs, column) { head(runs, column).width() } else { title(runs, column).width() }
}

/// Direction of a sorted column whose title has no room for it.
pub fn mark_behind(
    runs: &Runs,
    column: &RunTableColumn,
    shown: &table::TableColumn,
) -> Option<&'static str> {
    let order = runs.marked_order();
    let (_, descending) = order.iter().find(|(key, _)| *key == column.field.name)?;
    let is_missing = !shown.title.ends_with(['↑', '↓']);
    (is_missing && is_marked_behind(runs, column)).then_some(arrow(*descending))
}

/// Columns to show: index in the run table and name. Those of the order that the user has not chosen come last.
fn wanted(runs: &Runs, table: &RunTable) -> impl Iterator<Item = (usize, String)> {
    let says = |name: &&String| match name.as_str() {
        PROVENANCE => runs.provenance.is_none(),
        "architecture" => true,
        // a column that the user added says that it is empty
        name => !runs.empty.contains(name) || screen_column(name).is_none(),
    };
    // prefills alone have their latency in place of TPOT
    let named = |name: &String| match name.as_str() {
        TPOT if runs.empty.contains(TPOT) && !runs.columns.iter().any(|name| name == TTFT) => {
            TTFT.to_owned()
        }
        _ => name.clone(),
    };
    let mut names: Vec<String> = runs.columns.iter().map(named).collect();
    for (name, _) in &runs.sort {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    if shows_round(runs) && !names.iter().any(|name| name == ROUND) {
        let before = if shows_cells(runs) { PER_GPU } else { "run" };
        let at = names.iter().position(|name| name == before).unwrap_or(names.len());
        names.insert(at, ROUND.to_owned());
    }
    names.into_iter().filter(move |name| says(&name)).filter_map(|name| Some((table.find(&name)?, name)))
}

/// True if the list needs the round column: to distinguish runs, or to summarize the rounds of a cell.
fn shows_round(runs: &Runs) -> bool {
    runs.needs_round || shows_cells(runs)
}

fn shows_cells(runs: &Runs) -> bool {
    !runs.cells.is_empty()
}

/// Total width that all columns need uncut.
pub fn needed(runs: &Runs, table: &RunTable) -> u16 {
    let columns = wanted(runs, table).filter_map(|(column, _)| table.columns().get(column));
    STATUS + columns.map(|column| widths(runs, column, title_width(runs, column)).1 + 1).sum::<u16>()
}

/// Length of the longest text of a column among the shown runs.
pub fn longest(runs: &Runs, column: &RunTableColumn) -> usize {
    runs.longest.get(&*column.field.name).copied().unwrap_or(column.longest)
}

/// Minimum and maximum useful width of a column with a title of this width.
fn widths(runs: &Runs, column: &RunTableColumn, title: usize) -> (u16, u16) {
    let number = |width: usize| (width.max(title) as u16, width.max(title) as u16);
    let of_cells =
        |text: fn(&RunListCell) -> &String| runs.cells.iter().map(|cell| text(cell).width()).max();
    let pooled = match &*column.field.name {
        ROUND => of_cells(|cell| &cell.rounds),
        TPOT => of_cells(|cell| &cell.tpot),
        _ => None,
    };
    if let Some(width) = pooled {
        return number(width.max(7));
    }
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

impl Runs {
    /// True if no line of the list has a text in this column, such as the id in rows of pooled rounds.
    pub(super) fn is_blank(&self, column: &RunTableColumn) -> bool {
        self.lines.iter().all(|line| ["", "-"].contains(&text_of(self, *line, column).as_str()))
    }
}

pub fn cell_text(column: &RunTableColumn, row: usize) -> String {
    match column.cell(row) {
        RunCell::Nothing if column.field.unit.is_number() => "-".into(),
        RunCell::Nothing => String::new(),
        // first line of a note
        RunCell::Text(text) => text.lines().next().unwrap_or_default().to_owned(),
        RunCell::Number(value) => column.field.unit.cell(value),
    }
}

/// Options and variables in which these rows differ, as indices of columns. Without the link if P2P determines it, and without
/// P2P's own variables.
pub fn differing(table: &RunTable, rows: &[u32]) -> Vec<usize> {
    let is_asked = |column: &RunTableColumn| match column.field.source {
        FieldSource::Option(_) | FieldSource::Override => true,
        FieldSource::Variable => !column.field.title.starts_with("NCCL_P2P_"),
        _ => false,
    };
    let all = table.columns().iter().enumerate();
    let differ = all
        .filter(|(_, column)| is_asked(column) && column.differs(rows.iter().map(|row| *row as usize)));
    let mut differing: Vec<usize> = differ.map(|(at, _)| at).collect();
    if let (Some(p2p), Some(link)) = (table.find("p2p"), table.find("link"))
        && differing.contains(&p2p)
        && link_follows(table, (p2p, link), rows)
    {
        differing.retain(|at| *at != link);
    }
    differing
}

/// True if some of the shown runs look the same without the column of settings: they are equal in all options of the other
/// columns.
pub fn needs_setting(runs: &Runs, table: &RunTable) -> bool {
    let Some(setting) = table.find(SETTING) else { return false };
    let shown = wanted(runs, table).map(|(column, _)| column);
    let options: Vec<usize> = shown.filter(|at| runs.differing.contains(at)).collect();
    differ_only_in(runs, table, setting, &options)
}

/// True if several of the shown runs are rounds of one cell, which only their number distinguishes.
pub fn needs_round(runs: &Runs, table: &RunTable) -> bool {
    let Some(round) = table.find(ROUND) else { return false };
    differ_only_in(runs, table, round, &runs.differing)
}

/// True if some of the shown runs differ in a column although they are equal in these options.
fn differ_only_in(runs: &Runs, table: &RunTable, column: usize, options: &[usize]) -> bool {
    let Some(column) = table.columns().get(column) else { return false };
    if !column.differs(runs.rows().map(|row| row as usize)) {
        return false;
    }
    let keys: Vec<(usize, bool)> = options.iter().map(|at| (*at, false)).collect();
    let mut rows: Vec<u32> = runs.rows().collect();
    table.sort(&mut rows, &keys);
    rows.windows(2).any(|pair| {
        let (a, b) = (pair[0] as usize, pair[1] as usize);
        let is_same = |at: &usize| table.columns().get(*at).is_none_or(|option| option.same(a, b));
        !column.same(a, b) && options.iter().all(is_same)
    })
}

/// Columns that are not shown and in which this run differs from another one that looks the same: equal in all options of the
/// shown columns.
pub fn unseen(runs: &Runs, table: &RunTable, row: usize) -> Vec<usize> {
    let wanted: Vec<(usize, String)> = wanted(runs, table).collect();
    let is_wanted = |at: &usize| wanted.iter().any(|(column, _)| column == at);
    let (shown, mut hidden): (Vec<usize>, Vec<usize>) =
        runs.differing.iter().copied().partition(is_wanted);
    let setting = table.find(SETTING).filter(is_wanted);
    let is_same = |at: usize, other: u32| table.columns()[at].same(row, other as usize);
    let looks_the_same = |other: u32| shown.iter().chain(&setting).all(|at| is_same(*at, other));
    hidden.retain(|at| runs.rows().any(|other| !is_same(*at, other) && looks_the_same(other)));
    hidden
}

/// True if each P2P setting has one link.
fn link_follows(table: &RunTable, (p2p, link): (usize, usize), rows: &[u32]) -> bool {
    let mut links: HashMap<&str, &str> = HashMap::new();
    rows.iter().all(|row| match (table.cell(*row as usize, p2p), table.cell(*row as usize, link)) {
        (RunCell::Text(p2p), RunCell::Text(link)) => *links.entry(p2p).or_insert(link) == link,
        _ => false,
    })
}

/// Names of the columns in which the shown runs differ although no visible column says so. The column of settings names the
/// differences within an experiment, if it is not cut.
pub fn hidden_differences(runs: &Runs, table: &RunTable, layout: &RunsLayout) -> Vec<String> {
    let RunsLayout { columns, shown, .. } = layout;
    let place_of = |name: &str| shown.places.iter().find(|place| columns[place.column].name == name);
    let names_settings = runs.is_one_experiment
        && place_of(SETTING).is_some_and(|place| {
            let column = &table.columns()[columns[place.column].column];
            longest(runs, column) <= place.width.into()
        });
    let own_columns = options_in_both_lists();
    let is_hidden = |column: &&RunTableColumn| {
        let name = &*column.field.name;
        place_of(name).is_none() && (!names_settings || own_columns.contains(&name))
    };
    let differing = runs.differing.iter().filter_map(|at| table.columns().get(*at));
    differing.map(AsRef::as_ref).filter(is_hidden).map(|column| name(column).to_owned()).collect()
}
