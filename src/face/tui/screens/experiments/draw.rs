//! Screen 1: the list of experiments and the editor of the selected one.
//!
//! ```text
//! | ╭ experiments ─────╮ ╭ quickstart* ─────────────────────╮ |
//! | │ ▶ quickstart* 3/9 │ │ question                         │ |
//! | │   paper-70b  0/48 │ │ grid   tp  [2]  4   8            │ |
//! | │                   │ │ same for all cells  ...          │ |
//! | │                   │ │ ── what a sweep does ──────────  │ |
//! | ╰───────────────────╯ ╰──────────────────────────────────╯ |
//! ```

use super::Experiments;
use super::draft::name_before_edits;
use super::{areas, editor};
use crate::face::tui::action::Action;
use crate::face::tui::prelude::*;
use crate::face::tui::screens::experiments::entries::Entry;

pub fn draw(buf: &mut Buffer, body: Rect, experiments: &Experiments, cx: &Context) {
    let theme = cx.theme;
    let (left, right) = areas(body);
    let list = frame(buf, left, "experiments", theme);
    for (row, y) in experiments.list.rows(experiments.len(), list) {
        match &experiments.entries {
            None => {
                let name = format!("… {}", experiments.names[row]);
                put(buf, list, list.x, y, &name, theme.style(Role::Dim));
            }
            Some(entries) => {
                draw_entry(buf, Rect { y, height: 1, ..list }, experiments, cx, row, &entries[row]);
            }
        }
        if row == experiments.list.selected {
            select(buf, list, y, theme);
        }
    }
    let Some(entry) = experiments.selected() else {
        let inner = frame(buf, right, "", theme);
        if experiments.entries.is_none() {
            empty(buf, inner, "planning the cells of the experiments…", theme);
        } else {
            let reload = cx.keys.label(Action::Reload);
            let text =
                format!("no experiments: write one to experiments/NAME.toml, then press {reload}");
            empty(buf, inner, &text, theme);
        }
        return;
    };
    let edited = experiments.draft().is_some_and(|draft| draft.revisions.is_edited());
    let mark = if edited { "* edited, not saved" } else { "" };
    let inner = frame(buf, right, &format!("{}{mark} · {}", entry.name, entry.place), theme);
    editor::draw(buf, inner, experiments, cx, entry);
}

/// `▶ quickstart*   3/9`: state, name, edit mark, stored runs.
fn draw_entry(
    buf: &mut Buffer,
    area: Rect,
    experiments: &Experiments,
    cx: &Context,
    row: usize,
    entry: &Entry,
) {
    let theme = cx.theme;
    let draft = experiments.drafts.get(&entry.name);
    let is_this = |name: &String| name_before_edits(name) == entry.name;
    let running = cx.sweeps.running.as_ref().is_some_and(is_this);
    let queued = cx.sweeps.queued.iter().any(is_this);
    let broken = match draft.and_then(|draft| draft.checked.as_ref()) {
        Some(checked) => checked.experiment.is_err(),
        None => entry.experiment.is_err(),
    };
    let (glyph, role) = match () {
        () if running => ("▶ ", Role::Active),
        () if queued => ("… ", Role::Active),
        () if broken => ("✘ ", Role::Bad),
        () => ("  ", Role::Text),
    };
    let star = if draft.is_some_and(|draft| draft.revisions.is_edited()) { "*" } else { "" };
    let stored = match draft.filter(|draft| draft.revisions.is_edited()) {
        // counts for the file's cells do not apply to edited ones
        Some(draft) => draft.stored(),
        None => experiments.stored.get(row).copied().unwrap_or_default(),
    };
    let counts =
        if stored.runs > 0 { format!("{}/{}", stored.done, stored.runs) } else { String::new() };
    let right = area.right().saturating_sub(counts.width() as u16);
    let name = Rect { width: area.width.saturating_sub(counts.width() as u16 + 1), ..area };
    let x = put(buf, name, area.x, area.y, glyph, theme.style(role));
    let x = put(buf, name, x, area.y, &entry.name, theme.style(role));
    put(buf, name, x, area.y, star, theme.style(Role::Warn));
    let done = stored.runs > 0 && stored.done >= stored.runs;
    let role = if done { Role::Good } else { Role::Dim };
    put(buf, area, right, area.y, &counts, theme.style(role));
}
