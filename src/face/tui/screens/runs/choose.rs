//! Chooser of the columns of screen 3 and their order.

use std::collections::HashSet;

use super::columns;
use super::state::{PER_GPU, PINNED, Runs};
use crate::face::tui::prelude::*;
use crate::face::tui::texts::{CheckItem, Checklist, ChecklistUpdate};
use study::analysis::run_list::SCREEN_COLUMNS;

/// Columns in the order of the list, which stays as it is while columns are switched on and off.
struct ColumnChoice {
    /// Names, each with true if the column is on.
    columns: Vec<(String, bool)>,
    /// Columns whose value all listed runs share.
    same: HashSet<String>,
}

impl ColumnChoice {
    fn items(&self, cx: &Context) -> Vec<CheckItem> {
        let item = |(name, is_on): &(String, bool)| {
            let (mark, role) = match *is_on {
                _ if PINNED.contains(&name.as_str()) => ("[always]", Role::Dim),
                true => ("[x]", Role::Text),
                false => ("[ ]", Role::Dim),
            };
            let mut about = title_of(name, cx).unwrap_or_default();
            if *is_on && self.same.contains(name) {
                about +=
                    if name == PER_GPU { "  (hidden: no GPU)" } else { "  (hidden: no run differs)" };
            }
            CheckItem { mark: mark.into(), name: name.clone(), about, role }
        };
        self.columns.iter().map(item).collect()
    }

    /// Names of the columns that are on.
    fn shown(&self) -> Vec<String> {
        let shown = self.columns.iter().filter(|(_, is_on)| *is_on);
        shown.map(|(name, _)| name.clone()).collect()
    }

    /// Handles a key at a column; returns the new selection, or `None` if the key is not handled.
    fn key(&mut self, code: KeyCode, at: usize) -> Option<usize> {
        let columns = &mut self.columns;
        let is_movable =
            |at: usize| columns.get(at).is_some_and(|(name, _)| !PINNED.contains(&name.as_str()));
        match code {
            KeyCode::Char(' ') | KeyCode::Enter if is_movable(at) => {
                columns[at].1 = !columns[at].1;
                Some(at)
            }
            KeyCode::Char('J') | KeyCode::Right if is_movable(at) && is_movable(at + 1) => {
                columns.swap(at, at + 1);
                Some(at + 1)
            }
            KeyCode::Char('K') | KeyCode::Left if is_movable(at) && is_movable(at.checked_sub(1)?) => {
                columns.swap(at, at - 1);
                Some(at - 1)
            }
            KeyCode::Char('d') => {
                let default = |name: &str| SCREEN_COLUMNS.iter().position(|column| column.name == name);
                columns.sort_by_key(|(name, _)| default(name).unwrap_or(SCREEN_COLUMNS.len()));
                columns.iter_mut().for_each(|(name, is_on)| *is_on = default(name).is_some());
                Some(at)
            }
            _ => None,
        }
    }
}

impl Runs {
    pub(super) fn choose_columns(&self, cx: &mut Context) {
        let Some(stored) = cx.stored.clone() else { return };
        let table = &stored.table;
        let shown = self.columns.iter().filter(|name| table.find(name).is_some());
        let mut columns: Vec<(String, bool)> = shown.map(|name| (name.clone(), true)).collect();
        let others = table.shown().map(|column| (column.field.name.to_string(), false));
        columns.extend(others.filter(|(name, _)| !self.columns.contains(name)));
        let mut choice = ColumnChoice { columns, same: self.empty.clone() };
        let items = choice.items(cx);
        let hints = &[
            ("Space", "on or off"),
            ("J K", "move"),
            ("d", "default"),
            ("/", "search"),
            ("Esc", "close"),
        ];
        cx.lay(Checklist::new("columns", hints, items, move |runs: &mut Self, code, at, cx| {
            let Some(at) = choice.key(code, at) else { return ChecklistUpdate::Nothing };
            let before = std::mem::replace(&mut runs.columns, choice.shown());
            runs.scroll = 0;
            if let Some(stored) = &cx.stored {
                runs.note_empty(&stored.table);
            }
            let added = runs.columns.iter().find(|name| !before.contains(name)).cloned();
            if let Some(added) = added.filter(|_| runs.columns.len() == before.len() + 1) {
                runs.scroll_to(&added, cx);
            }
            ChecklistUpdate::Items(choice.items(cx), at)
        }));
    }
}

fn title_of(name: &str, cx: &Context) -> Option<String> {
    let table = &cx.stored.as_ref()?.table;
    let column = table.columns().get(table.find(name)?)?;
    let (title, short) = (columns::name(column), column.field.short());
    // if the title itself can be typed, the short name adds nothing
    let typed =
        if short == name || column.field.is(title) { String::new() } else { format!("  ({short})") };
    Some(format!("{title}{typed}"))
}
