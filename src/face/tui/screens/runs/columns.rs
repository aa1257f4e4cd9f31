//! Where the columns of the table of runs are, and what stands in them.

use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use super::state::{PINNED, Runs};
use crate::study::analysis::{Column, RunCell, RunTable};
use crate::table::{Source, Unit};

/// Columns of the window that a text gets at most, where it is not a run's id.
const WIDEST: usize = 28;

/// A column on the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The index of the column in the table of runs.
    pub column: usize,
    /// Its name, as it is kept.
    pub name: String,
    /// Its first column of the window, and how many.
    pub x: u16,
    pub width: u16,
    /// What it is sorted by: its place among the sort keys, and whether it descends.
    pub sorted: Option<(usize, bool)>,
}

/// The columns that fit, and how many do not on the left and on the right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// The columns on the screen, from left to right.
    pub places: Vec<Place>,
    /// How many columns are scrolled out to the left.
    pub left: usize,
    /// How many columns there is no room for on the right.
    pub right: usize,
}

/// Lays the columns out: the pinned ones, then the others from the first that is not scrolled out, those in which
/// no run has anything last. The first result is there in any window: what stands before it and has no room beside
/// it is left out.
pub fn lay_out(runs: &Runs, table: &RunTable, area: Rect) -> Shown {
    let (pinned, mut others): (Vec<_>, Vec<_>) =
        wanted(runs, table).partition(|(_, name)| PINNED.contains(&name.as_str()));
    others.sort_by_key(|(_, name)| runs.empty.contains(name));
    let left = runs.scroll.min(others.len().saturating_sub(1));
    let wanted: Vec<_> = pinned.into_iter().chain(others.into_iter().skip(left)).collect();
    let is_result = |column: usize| {
        let column = table.columns().get(column);
        column.is_some_and(|column| matches!(column.field.source, Source::Measure(_)))
    };
    let result = wanted.iter().position(|(column, _)| is_result(*column));
    let reserved = |at: usize| match result.filter(|result| at < *result) {
        Some(result) => table.columns().get(wanted[result].0).map_or(0, |spec| widths(spec).0 + 1),
        None => 0,
    };
    let mut shown = Shown { left, ..Shown::default() };
    let mut x = area.x;
    for (at, (column, name)) in wanted.iter().enumerate() {
        let Some(spec) = table.columns().get(*column) else { continue };
        let key = runs.sort.iter().position(|(key, _)| key == name);
        // the mark of a later sort key has its number
        let least = widths(spec).0 + u16::from(key.is_some_and(|key| key > 0));
        let room = area.right().saturating_sub(x);
        if room < least + reserved(at) && !PINNED.contains(&name.as_str()) {
            shown.right += 1;
            // what follows the results does not stand in the place of one that has no room
            if result.is_none_or(|result| at >= result) {
                shown.right = wanted.len() - shown.places.len();
                break;
            }
            continue;
        }
        let sorted = key.map(|key| (key, runs.sort[key].1));
        shown.places.push(Place { column: *column, name: name.clone(), x, width: least, sorted });
        x += least + 1;
    }
    widen(&mut shown.places, table, (area.right() + 1).saturating_sub(x));
    shown
}

/// The columns to be shown: of each its place in the table, and its name.
fn wanted(runs: &Runs, table: &RunTable) -> impl Iterator<Item = (usize, String)> {
    // what sets runs apart is shown where something does
    let says = |name: &&String| *name != "setting" || !runs.empty.contains(*name);
    runs.columns.iter().filter(says).filter_map(|name| Some((table.find(name)?, name.clone())))
}

/// How many columns of the window all of them need, none cut.
pub fn needed(runs: &Runs, table: &RunTable) -> u16 {
    let columns = wanted(runs, table).filter_map(|(column, _)| table.columns().get(column));
    columns.map(|column| widths(column).1 + 1).sum()
}

/// Gives the room that is left to texts that are cut off, from left to right.
fn widen(places: &mut [Place], table: &RunTable, mut extra: u16) {
    let mut shift = 0;
    for place in places {
        place.x += shift;
        let Some(spec) = table.columns().get(place.column) else { continue };
        let (least, most) = widths(spec);
        let more = (most - least).min(extra);
        place.width += more;
        shift += more;
        extra -= more;
    }
}

/// How many columns of the window a column needs, and can use.
fn widths(column: &Column) -> (u16, u16) {
    // room for the mark of sorting
    let title = column.field.title.width() + 1;
    let number = |width: usize| (width.max(title) as u16, width.max(title) as u16);
    match column.field.unit {
        Unit::Text | Unit::Words | Unit::Names if column.field.name == "run" => {
            // mark and status stand before it
            let most = (column.longest + 4).clamp(12, 60);
            (most.min(19) as u16, most as u16)
        }
        Unit::Text | Unit::Words | Unit::Names => {
            let most = column.longest.clamp(title.max(3), WIDEST);
            // the end of what sets runs apart says most of it
            let least = if column.field.name == "setting" { 8 } else { title.max(13) };
            (most.min(least) as u16, most as u16)
        }
        Unit::Count => number(4),
        Unit::Ms | Unit::Percent | Unit::Share | Unit::Factor | Unit::Nats => number(7),
        Unit::Bytes | Unit::Rate => number(8),
    }
}

/// A value for people.
pub fn content(column: &Column, row: usize) -> String {
    match column.cell(row) {
        RunCell::Nothing if column.field.unit.is_number() => "-".into(),
        RunCell::Nothing => String::new(),
        // one line of a note
        RunCell::Text(text) => text.lines().next().unwrap_or_default().to_owned(),
        RunCell::Number(value) => column.field.unit.cell(value),
    }
}
