//! Chooser of the columns of screen 3 and their order.

use std::collections::HashSet;

use super::columns;
use super::state::{PINNED, Runs};
use crate::face::tui::prelude::*;
use crate::face::tui::texts::{CheckItem, Checklist, ChecklistUpdate};
use study::analysis::run_list::SCREEN_COLUMNS;

struct ColumnChoice {
    names: Vec<String>,
    /// Number of visible columns, which are the first in `names`.
    shown: usize,
    /// Columns whose value all listed runs share.
    same: HashSet<String>,
}

impl ColumnChoice {
    fn items(&self, cx: &Context) -> Vec<CheckItem> {
        let item = |(at, name): (usize, &String)| {
            let (mark, role) = match at < self.shown {
                _ if PINNED.contains(&name.as_str()) => ("[always]", Role::Dim),
                // shown once the runs differ in it
                true if self.same.contains(name) => ("[same]", Role::Text),
                true => ("[x]", Role::Text),
                false => ("[ ]", Role::Dim),
            };
            let about = title_of(name, cx).unwrap_or_default();
            CheckItem { mark: mark.into(), name: name.clone(), about, role }
        };
        self.names.iter().enumerate().map(item).collect()
    }

    /// Handles a key at a column; returns the new selection, or `None` if the key is not handled.
    fn key(&mut self, code: KeyCode, at: usize) -> Option<usize> {
        let Self { names, shown, .. } = self;
        let is_movable = |at: usize| names.get(at).is_some_and(|name| !PINNED.contains(&name.as_str()));
        match code {
            KeyCode::Char(' ') | KeyCode::Enter if is_movable(at) => {
                let name = names.remove(at);
                let off = at < *shown;
                *shown -= usize::from(off);
                names.insert(*shown, name);
                *shown += usize::from(!off);
                // the next column has moved here
                Some(if off { at } else { (at + 1).min(names.len() - 1) })
            }
            KeyCode::Char('J') | KeyCode::Right if at + 1 < *shown && is_movable(at) => {
                names.swap(at, at + 1);
                Some(at + 1)
            }
            KeyCode::Char('K') | KeyCode::Left
                if at < *shown && is_movable(at) && is_movable(at.checked_sub(1)?) =>
            {
                names.swap(at, at - 1);
                Some(at - 1)
            }
            KeyCode::Char('d') => {
                let default =
                    |name: &String| SCREEN_COLUMNS.iter().position(|column| column.name == name);
                names.sort_by_key(|name| default(name).unwrap_or(SCREEN_COLUMNS.len()));
                *shown = names.iter().filter(|name| default(name).is_some()).count();
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
        let mut names: Vec<String> =
            self.columns.iter().filter(|name| table.find(name).is_some()).cloned().collect();
        let shown = names.len();
        let others = table.shown().map(|column| column.field.name.to_string());
        names.extend(others.filter(|name| !self.columns.contains(name)));
        let mut choice = ColumnChoice { names, shown, same: self.empty.clone() };
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
            runs.columns = choice.names[..choice.shown].to_vec();
            runs.scroll = 0;
            if let Some(stored) = &cx.stored {
                runs.note_empty(&stored.table);
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
