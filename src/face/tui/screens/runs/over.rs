//! Overlays of the runs screen: column picker, side-by-side comparison.

use std::sync::Arc;

use super::draw::cut_middle;
use super::state::{COLUMNS, PINNED, Runs};
use crate::face::tui::checklist::{Changed, CheckItem, Checklist};
use crate::face::tui::prelude::*;
use crate::face::tui::texts::{Pieces, TextView};
use study::analysis::{SideBySide, side_by_side};
use table::Provenance;

struct ColumnChoice {
    names: Vec<String>,
    /// Number of visible columns, which are the first in `names`.
    shown: usize,
}

impl ColumnChoice {
    fn items(&self, cx: &Context) -> Vec<CheckItem> {
        let item = |(at, name): (usize, &String)| {
            let (mark, role) = match at < self.shown {
                _ if PINNED.contains(&name.as_str()) => ("[always]", Role::Dim),
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
        let Self { names, shown } = self;
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
                let default = |name: &String| COLUMNS.iter().position(|column| column == name);
                names.sort_by_key(|name| default(name).unwrap_or(COLUMNS.len()));
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
        let mut choice = ColumnChoice { names, shown };
        let items = choice.items(cx);
        let hints = &[
            ("Space", "on or off"),
            ("J K", "move"),
            ("d", "default"),
            ("/", "search"),
            ("Esc", "close"),
        ];
        cx.lay(Checklist::new("columns", hints, items, move |runs: &mut Self, code, at, cx| {
            let Some(at) = choice.key(code, at) else { return Changed::Nothing };
            runs.columns = choice.names[..choice.shown].to_vec();
            runs.scroll = 0;
            if let Some(stored) = &cx.stored {
                runs.note_empty(&stored.table);
            }
            Changed::Items(choice.items(cx), at)
        }));
    }

    pub(super) fn put_side_by_side(two: &[String; 2], runs: &Arc<Snapshot>, cx: &mut Context) {
        let place = |run: &String| runs.records.iter().position(|record| record.run == *run);
        let (Some(a), Some(b)) = (place(&two[0]), place(&two[1])) else { return };
        let runs = Arc::clone(runs);
        cx.ask_own(
            "side by side",
            move |_| side_by_side(&runs.records, a, b),
            |both, cx| {
                let Some(both) = cx.told(both).filter(|_| cx.overlays.is_empty()) else { return };
                let [first, second] = both.runs.clone();
                let text = TextView::new("side by side", move |width| describe(&both, width));
                let hints = &[("Enter", "both timelines"), ("↑ ↓", "scroll"), ("Esc", "close")];
                // the second run above its baseline
                cx.lay(text.on_enter(hints, |state| state.cx.open_runs([second, first])));
            },
        );
    }
}

fn title_of(name: &str, cx: &Context) -> Option<String> {
    let table = &cx.stored.as_ref()?.table;
    let field = &table.columns().get(table.find(name)?)?.field;
    let short = field.short();
    let typed = if short == name { String::new() } else { format!("  ({short})") };
    Some(format!("{}{typed}", field.title))
}

fn describe(both: &SideBySide, width: usize) -> Vec<Pieces> {
    let mut lines: Vec<Pieces> = Vec::new();
    let column = width.saturating_sub(33).max(20) / 2;
    let row = |name: &str, a: &str, b: &str, last: &str, role: Role| -> Pieces {
        let fit = |text: &str| cut(text, column as u16 - 1);
        vec![
            (format!("{:<19}", cut(name, 18)), Role::Dim),
            (format!("{:<column$}{:<column$}{last}", fit(a), fit(b)), role),
        ]
    };
    let run = |run: &String| cut_middle(run, column as u16 - 1);
    lines.push(row("", &run(&both.runs[0]), &run(&both.runs[1]), "", Role::Title));
    let provenance = both.provenance.map(|p| p.to_string());
    let mixed = if provenance[0] == provenance[1] { Role::Text } else { Role::Warn };
    lines.push(row("provenance", &provenance[0], &provenance[1], "", mixed));
    for warning in &both.warnings {
        for (at, text) in wrap(warning, width.saturating_sub(4)).into_iter().enumerate() {
            lines.push(vec![(format!("{}{text}", if at == 0 { "⚠ " } else { "  " }), Role::Warn)]);
        }
    }
    lines.push(vec![(format!("asked differently ({} fields are alike)", both.alike), Role::Title)]);
    for (name, a, b) in &both.differences {
        lines.push(row(name, a, b, "", Role::Text));
    }
    if both.differences.is_empty() {
        lines.push(vec![("nothing: two runs of one cell".into(), Role::Dim)]);
    }
    lines.push(vec![("numbers, and the second over the first".into(), Role::Title)]);
    for measure in &both.measures {
        let unit = measure.measure.unit;
        let shown = |value: Option<f64>| value.map_or("-".into(), |value| unit.cell(value));
        let [a, b] = measure.values.map(shown);
        let ratio = measure.ratio().map_or(String::new(), |ratio| format!("x {}", digits(ratio)));
        lines.push(row(measure.measure.title, &a, &b, &ratio, Role::Text));
    }
    lines.extend(speedup(both));
    lines
}

fn speedup(both: &SideBySide) -> Vec<Pieces> {
    let Some(speedup) = both.speedup else {
        return vec![vec![("no ratio: one of them has no numbers".into(), Role::Dim)]];
    };
    let interval = match both.speedup_ci95 {
        Some([low, high]) => {
            let verdict = if both.differs { "they differ" } else { "no difference shown" };
            format!("95% [{low:.3}, {high:.3}]: {verdict}")
        }
        None if both.provenance.contains(&Provenance::Simulated) => "simulated: no interval".into(),
        None => "no interval: fewer than 6 samples".into(),
    };
    let rounds = match both.shared_rounds {
        0 => "no shared rounds".to_owned(),
        1 => "1 shared round".to_owned(),
        rounds => format!("{rounds} shared rounds"),
    };
    vec![
        vec![(format!("tokens/s over all rounds of both cells x {speedup:.3}"), Role::Title)],
        vec![(format!("{interval} ({rounds})"), Role::Text)],
    ]
}
