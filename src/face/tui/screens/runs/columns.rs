//! Columns of the run table and their layout.

use super::state::{PINNED, Runs};
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::table;
use ::table::{Source, Unit};
use study::analysis::{Column, RunCell, RunTable};

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
/// are never dropped.
pub fn columns(runs: &Runs, table: &RunTable) -> (Vec<RunColumn>, Vec<table::Column>) {
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
        let sorted = runs.sort.iter().position(|(key, _)| *key == name);
        let mark = sorted.map_or(String::new(), |key| {
            let number = if key > 0 { (key + 1).to_string() } else { String::new() };
            format!("{}{number}", if runs.sort[key].1 { "↓" } else { "↑" })
        });
        let indent = if name == "run" { "    " } else { "" };
        let (least, most) = widths(spec);
        // secondary sort marks include their rank
        let width = least + u16::from(sorted.is_some_and(|key| key > 0));
        let spec = table::Column {
            title: format!("{indent}{}{mark}", spec.field.title).into(),
            width,
            right: spec.field.unit.is_number(),
            spare: u8::from(at >= pinned && Some(at) != result),
            grows: most - least,
        };
        (RunColumn { column, name }, spec)
    };
    wanted.into_iter().enumerate().map(column).unzip()
}

/// Columns to show: index in the run table and name.
fn wanted(runs: &Runs, table: &RunTable) -> impl Iterator<Item = (usize, String)> {
    // the distinguishing settings are shown only if there are any
    let says = |name: &&String| *name != "setting" || !runs.empty.contains(*name);
    runs.columns.iter().filter(says).filter_map(|name| Some((table.find(name)?, name.clone())))
}

/// Total width that all columns need uncut.
pub fn needed(runs: &Runs, table: &RunTable) -> u16 {
    let columns = wanted(runs, table).filter_map(|(column, _)| table.columns().get(column));
    columns.map(|column| widths(column).1 + 1).sum()
}

/// Minimum and maximum useful width of a column.
fn widths(column: &Column) -> (u16, u16) {
    // room for the sort mark
    let title = column.field.title.width() + 1;
    let number = |width: usize| (width.max(title) as u16, width.max(title) as u16);
    match column.field.unit {
        Unit::Text | Unit::Words | Unit::Names if column.field.name == "run" => {
            // preceded by the mark and the status
            let most = (column.longest + 4).clamp(12, 60);
            (most.min(19) as u16, most as u16)
        }
        Unit::Text | Unit::Words | Unit::Names => {
            let most = column.longest.clamp(title.max(3), WIDEST);
            // the end of the distinguishing settings is the most informative part
            let least = if column.field.name == "setting" { 8 } else { title.max(13) };
            (most.min(least) as u16, most as u16)
        }
        Unit::Count => number(4),
        Unit::Ms | Unit::Percent | Unit::Share | Unit::Factor | Unit::Nats => number(7),
        Unit::Bytes | Unit::Rate => number(8),
    }
}

pub fn content(column: &Column, row: usize) -> String {
    match column.cell(row) {
        RunCell::Nothing if column.field.unit.is_number() => "-".into(),
        RunCell::Nothing => String::new(),
        // first line of a note
        RunCell::Text(text) => text.lines().next().unwrap_or_default().to_owned(),
        RunCell::Number(value) => column.field.unit.cell(value),
    }
}
