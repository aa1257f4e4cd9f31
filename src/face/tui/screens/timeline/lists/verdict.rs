//! The verdict on the open traces, in sentences.

use crate::face::tui::keymap::Action;
use crate::face::tui::prelude::*;
use crate::face::tui::screens::timeline::header::names;
use crate::face::tui::screens::timeline::state::{Pane, TimelineView};
use crate::face::tui::screens::timeline::{Act, Timeline};
use study::verdict::{Verdict, VerdictPlace};

/// Lines of the verdicts on all open traces, each after the trace's name if there are two; empty until one is known.
/// Tables of remedies are not wrapped.
pub fn verdict_lines(view: &TimelineView, cx: &Context) -> Vec<String> {
    let names = names(view);
    let judged = view.panes.iter().enumerate().filter(|(_, pane)| pane.ghost.is_none());
    let lines = |(at, pane): (usize, &Pane)| {
        let Some(verdict) = &pane.verdict else {
            let is_other_known = view.panes.iter().any(|pane| pane.verdict.is_some());
            let pending = is_other_known.then(|| format!("{}: computing the verdict…", names[at]));
            return pending.into_iter().collect();
        };
        let mut lines = sentence_lines(verdict, cx);
        if view.panes.len() > 1 {
            lines
                .insert(0, format!("{} [{}]: {}", names[at], pane.index.provenance(), pane.index.title));
            lines.push(String::new());
        }
        lines
    };
    let mut lines: Vec<String> = judged.flat_map(lines).collect();
    lines.pop_if(|last| last.is_empty());
    lines
}

fn sentence_lines(verdict: &Verdict, cx: &Context) -> Vec<String> {
    let width = usize::from(cx.body().width.saturating_sub(4).max(20));
    let [go, compare] = [Act::ToggleRank, Act::WhatIf].map(|act| cx.key::<Timeline>(act));
    let open = cx.keys.label(Action::TypeOpen);
    let keys = VerdictPlace::Workbench { go: &go, open: &open, compare: &compare };
    let sentences = verdict.sentences_for(keys);
    let lines = |sentence: &String| match sentence.starts_with("  ") {
        true => vec![cut(sentence, width as u16)],
        false => wrap(sentence, width),
    };
    sentences.iter().flat_map(lines).collect()
}

pub fn draw_verdict(
    buf: &mut Buffer,
    (area, rows): (Rect, Rect),
    view: &TimelineView,
    (lines, list): (&[String], &List),
    cx: &Context,
) {
    let theme = cx.theme;
    let (of, part) = match &view.panes[..] {
        [pane] => {
            let part = pane.verdict.as_ref().and_then(|verdict| verdict.part.as_ref());
            let part = part.map_or_else(String::new, |part| format!("; {part}"));
            (format!(" [{}]", pane.index.provenance()), part)
        }
        _ => Default::default(),
    };
    // a narrow window cuts the part, which the first sentence names too
    frame(buf, area, &format!("verdict{of}; gains of remedies are simulated{part}"), theme);
    if lines.is_empty() {
        let operations = counted(view.pane().index.trace.spans.len(), "operation");
        let looking = format!("looking at {operations}…");
        put(buf, rows, rows.x + 1, rows.y, &looking, theme.style(Role::Dim));
    }
    for (row, y) in list.rows(lines.len(), rows) {
        put(buf, rows, rows.x + 1, y, &lines[row], theme.style(Role::Text));
    }
    let below = lines.len().saturating_sub(list.offset + usize::from(rows.height));
    hidden_rows(buf, area, list.offset, below, theme);
    let judged = &view.panes[view.judged()];
    if let Some(verdict) = &judged.verdict {
        let is_exposed = judged.index.ranks.iter().any(|rank| !rank.exposed.union().is_empty());
        let [go, close] = [Act::ToggleRank, Act::Verdict].map(|act| cx.key::<Timeline>(act));
        let keys = match verdict.leading_gap() {
            Some(_) => ["the longest gap", "the cause"],
            None if is_exposed => ["the longest exposed communication of a typical step", "the cause"],
            None => ["", ""],
        };
        let keys = keys.map(|to| match to {
            "" => format!(" {close}: close "),
            to => format!(" {go}: go to {to}; {close}: close "),
        });
        // beside the mark of hidden rows
        let fits = |keys: &&String| keys.width() + 20 <= usize::from(area.width);
        if let Some(keys) = keys.iter().find(fits) {
            put(buf, area, area.x + 2, area.bottom().saturating_sub(1), keys, theme.style(Role::Dim));
        }
    }
}
