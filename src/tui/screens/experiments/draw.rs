//! Screen 1: which experiments there are, and what the selected one would do.
//!
//! ```text
//! | ╭ experiments ──╮ ╭ quickstart ─────────────╮ |
//! | │ quickstart    │ │ question, grid, cells,  │ |
//! | │ paper-70b     │ │ what cannot run and why │ |
//! | ╰───────────────╯ ╰─────────────────────────╯ |
//! ```

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use super::Act;
use crate::store::Status;
use crate::sweep::{Experiment, Verdict};
use crate::tui::action::Action;
use crate::tui::experiments::Entry;
use crate::tui::format::clock;
use crate::tui::screens::experiments::state::{Stored, axes};
use crate::tui::state::State;
use crate::tui::theme::Role;
use crate::tui::widgets::paint::{empty, frame, line, put, wrap};

/// Draws the screen.
pub fn draw(buf: &mut Buffer, body: Rect, state: &State) {
    let theme = state.theme;
    let (left, right) = super::areas(body);
    let list = frame(buf, left, "experiments", theme);
    match &state.experiments.entries {
        None => empty(buf, list, "reading…", theme),
        Some(entries) => {
            let first = state.experiments.list.offset;
            for (row, entry) in entries.iter().skip(first).take(usize::from(list.height)).enumerate() {
                let broken = entry.experiment.is_err();
                let (glyph, role) = if broken { ("✘ ", Role::Bad) } else { ("  ", Role::Text) };
                line(
                    buf,
                    list,
                    row as u16,
                    &[(glyph, theme.style(role)), (&entry.name, theme.style(role))],
                );
                if first + row == state.experiments.list.selected {
                    let y = list.y + row as u16;
                    buf.set_style(Rect::new(list.x, y, list.width, 1), theme.style(Role::Selected));
                }
            }
        }
    }
    let Some(entry) = state.experiments.selected() else {
        let inner = frame(buf, right, "", theme);
        if state.experiments.entries.is_some() {
            empty(buf, inner, "no experiments: write one to experiments/NAME.toml, then press R", theme);
        }
        return;
    };
    let inner = frame(buf, right, &entry.name, theme);
    let stored = state.experiments.stored.get(state.experiments.list.selected);
    let width = usize::from(inner.width.saturating_sub(2));
    let lines = details(state, entry, stored.copied().unwrap_or_default(), width);
    for (row, (text, style)) in (0..inner.height).zip(&lines) {
        put(buf, inner, inner.x + 1, inner.y + row, text, *style);
    }
    if lines.len() > usize::from(inner.height) {
        put(
            buf,
            inner,
            inner.right().saturating_sub(2),
            inner.bottom().saturating_sub(1),
            "…",
            theme.style(Role::Dim),
        );
    }
}

fn details(state: &State, entry: &Entry, stored: Stored, width: usize) -> Vec<(String, Style)> {
    let theme = state.theme;
    let (text, dim, title) = (theme.style(Role::Text), theme.style(Role::Dim), theme.style(Role::Title));
    let mut lines = Vec::new();
    let mut say = |content: &str, style: Style| {
        lines.extend(wrap(content, width).into_iter().map(|l| (l, style)));
    };
    let experiment = match &entry.experiment {
        Ok(experiment) => experiment,
        Err(error) => {
            say("✘ this file cannot be run", theme.style(Role::Bad));
            say(error, text);
            say(" ", text);
            let show = state.keys.label(Action::Experiments(Act::ShowFile));
            let reload = state.keys.label(Action::Reload);
            say(&format!("{show} shows the file, {reload} reads it again"), dim);
            return lines;
        }
    };
    if let Some(question) = &experiment.question {
        say(question, title);
        say(" ", text);
    }
    let axes = axes(experiment);
    let name_width = axes.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
    for (name, values) in &axes {
        say(&format!("{name:<name_width$}  {}", values.join("  ")), text);
    }
    say(" ", text);
    say(&counts(experiment), text);
    if stored.runs > 0 {
        say(&format!("{} of {} runs are stored already", stored.done, stored.runs), text);
    }
    if stored.runs > stored.done
        && let Some(ms) = stored.remaining_ms
    {
        say(&format!("the others should take about {}", clock(ms as u64)), text);
    }
    let mut provenances: Vec<_> = experiment.cells.iter().map(|c| c.spec.provenance()).collect();
    provenances.sort();
    provenances.dedup();
    for provenance in provenances {
        say(&format!("results will be: {provenance}"), theme.provenance(provenance));
    }
    say(&entry.place, dim);
    let unable = experiment.cells.iter().filter_map(|cell| match &cell.verdict {
        Verdict::Runs => None,
        Verdict::Skipped(why) => Some((cell, Status::Skipped, why)),
        Verdict::Oom(why) => Some((cell, Status::Oom, why)),
    });
    for (i, (cell, status, why)) in unable.enumerate() {
        if i == 0 {
            say(" ", text);
            say("will not run:", title);
        }
        say(
            &format!("{} {} {}: {why}", status.glyph(), status.as_str(), cell.spec.label()),
            theme.status(status),
        );
    }
    lines
}

/// `24 cells x 3 rounds: 18 run, 4 skipped, 2 oom`.
fn counts(experiment: &Experiment) -> String {
    let count = |is: fn(&Verdict) -> bool| experiment.cells.iter().filter(|c| is(&c.verdict)).count();
    let runs = count(|v| matches!(v, Verdict::Runs));
    let skipped = count(|v| matches!(v, Verdict::Skipped(_)));
    let oom = count(|v| matches!(v, Verdict::Oom(_)));
    let rounds = match experiment.rounds {
        1 => "1 round".into(),
        n => format!("{n} rounds"),
    };
    let mut text = format!("{} cells x {rounds}: {runs} run", experiment.cells.len());
    for (count, word) in [(skipped, "skipped"), (oom, "oom")] {
        if count > 0 {
            text.push_str(&format!(", {count} {word}"));
        }
    }
    text
}
