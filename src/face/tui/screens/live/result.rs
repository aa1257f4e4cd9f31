//! Result of a finished sweep; before the first sweep of the session, the stored result of the experiment in scope.

use std::collections::HashSet;
use std::sync::Arc;

use super::state::{CellState, Live};
use super::{Act, LiveAreas};
use crate::face::tui::keymap::Action;
use crate::face::tui::prelude::*;
use crate::face::tui::scope::RunScope;
use crate::face::tui::screens::experiments;
use crate::face::tui::widgets::result_card::{detail_lines, legend, more_keys, result_lines};
use study::answer::{Answer, MOST_RUNS};
use table::Record;

impl Live {
    /// Runs behind the sweep's result: all finished rounds, and one record for each cell without any.
    pub fn results(&self) -> Vec<Arc<Record>> {
        let of = |cell: &super::state::LiveCell| match (&cell.record, cell.state) {
            _ if !cell.rounds.is_empty() => cell.rounds.values().cloned().collect(),
            (Some(record), _) => vec![Arc::clone(record)],
            (None, CellState::Done(status)) => {
                vec![Arc::new(Record::new(cell.spec.clone(), status, Some(cell.note.clone())))]
            }
            (None, _) => Vec::new(),
        };
        self.cells.iter().flat_map(of).collect()
    }

    pub(super) fn ask_result(&self, cx: &mut Context) {
        if self.cells.len() * self.rounds as usize > MOST_RUNS {
            return;
        }
        let results = self.results();
        let work = move |_: &_| {
            Ok(Answer::from_records(results.iter().map(|record| Record::clone(record)).collect()))
        };
        cx.ask("answer", work, |live: &mut Self, answers, cx| {
            live.answers = cx.ok_or_fail(answers);
            (live.show_cell, live.show_details) = (false, false);
            live.select_lead();
            (live.wrapped, live.result_scroll) = Default::default();
        });
    }

    /// Computes the stored result of the experiment in scope, until a sweep starts.
    pub(super) fn ask_earlier(&mut self, cx: &mut Context) {
        if self.experiment.is_some() {
            return;
        }
        let Some(records) = cx.stored.as_ref().map(|stored| Arc::clone(&stored.records)) else { return };
        let own = cx.scope.own().cloned();
        let key = RunScope(own.clone());
        let work = move |_: &_| {
            // none are stored, or all were deleted
            let Some(own) = own else { return Ok((Vec::new(), None)) };
            let of = records.iter().filter(|record| own.holds(&record.run));
            let runs: Vec<&Record> = of.take(MOST_RUNS + 1).collect();
            let answers =
                if runs.len() > MOST_RUNS { Vec::new() } else { Answer::from_records(concluded(&runs)) };
            Ok((answers, Some(own.experiment.clone())))
        };
        cx.want("answer", &key, work, |live: &mut Self, answers, cx| {
            if let Some((answers, name)) = cx.ok_or_fail(answers) {
                if live.source.as_ref().map(|source| &source.name) != name.as_ref() {
                    // its keys run another experiment
                    (live.source, live.missing) = (None, 0);
                }
                (live.answers, live.earlier) = (Some(answers), name);
                (live.wrapped, live.result_scroll) = Default::default();
            }
        });
    }

    /// True if the result is shown in place of the selected cell.
    pub(super) fn shows_answer(&self) -> bool {
        !self.show_cell && self.answers.as_ref().is_some_and(|answers| !answers.is_empty())
    }

    /// Wraps the result or its details to the width of the area if needed, and clamps the scroll position.
    pub(super) fn wrap_result(&mut self, detail: Rect) {
        let key = (detail.width.saturating_sub(4), self.show_details);
        if let Some(answers) = self.answers.as_ref().filter(|_| self.wrapped.0 != key) {
            let lines = if self.show_details { detail_lines } else { result_lines };
            self.wrapped = (key, lines(answers, key.0.into()));
        }
        let rows = usize::from(detail.height.saturating_sub(2));
        self.result_scroll = self.result_scroll.min(self.wrapped.1.len().saturating_sub(rows));
    }

    /// Scrolls the result, or else the log of the selected cell, up by rows.
    pub(super) fn scroll(&mut self, up: isize) {
        if self.shows_answer() {
            // clamped when the state settles
            self.result_scroll = self.result_scroll.saturating_add_signed(-up);
            return;
        }
        let lines = self.selected().map_or(0, |cell| cell.log.len());
        self.log_scroll = self.log_scroll.saturating_add_signed(up).min(lines.saturating_sub(1));
    }
}

/// Runs with numbers, and the last run of each cell without any.
fn concluded(runs: &[&Record]) -> Vec<Record> {
    let has_numbers = |run: &&&Record| run.has_numbers();
    let mut cells: HashSet<String> = runs.iter().filter(has_numbers).map(|run| run.spec.key()).collect();
    let newest = runs.iter().rev();
    let kept = newest.filter(|run| has_numbers(run) || cells.insert(run.spec.key()));
    let mut kept: Vec<Record> = kept.map(|run| Record::clone(run)).collect();
    // in storage order
    kept.reverse();
    kept
}

pub(super) fn draw(buf: &mut Buffer, area: Rect, live: &Live, cx: &Context) {
    /// Columns for the number of hidden lines in the top border: ` ↑ 12 ↓ 34 more `, with the corner and a dash.
    const HIDDEN: u16 = 18;
    let lines = &live.wrapped.1;
    let name = live.experiment.as_ref().or(live.earlier.as_ref()).map_or("", String::as_str);
    let part = if live.show_details { "details" } else { "result" };
    let stored = if live.experiment.is_some() { "" } else { "stored " };
    let title = format!("{stored}{part} of {name}");
    let mut titles = Vec::new();
    if lines.len() + 2 > usize::from(area.height) {
        let page = cx.keys.label(Action::PageDown);
        let (up, down) = (cx.key::<Live>(Act::LogUp), cx.key::<Live>(Act::LogDown));
        titles.push(format!("{title} ({up} {down} scroll, {page} a page)"));
        titles.push(format!("{title} ({up} {down} scroll)"));
    }
    titles.push(title);
    let title = first_fitting(&titles, area.width.saturating_sub(HIDDEN + 4));
    let inner = frame(buf, area, title, cx.theme);
    let (key, other) =
        (cx.key::<Live>(Act::Details), if live.show_details { "result" } else { "details" });
    let mut own = vec![(key, other)];
    if live.can_run_all() {
        own.push((cx.key::<Live>(Act::RunAll), "run again"));
    }
    let x = more_keys(buf, area, &own, cx);
    if lines.iter().any(|(words, role)| *role == Role::Title && words.contains(" gap %")) {
        legend(buf, area, x, cx);
    }
    let (above, rows) = (live.result_scroll, usize::from(inner.height));
    for (row, (words, role)) in lines.iter().skip(above).take(rows).enumerate() {
        let style = cx.theme.style(*role);
        line(buf, inner, row as u16, &[(" ", style), (words, style)]);
    }
    hidden_rows(buf, cut_top(area, 1).0, above, lines.len().saturating_sub(above + rows), cx.theme);
}

/// Draws the screen before the first sweep: how to start one, and the latest result.
pub(super) fn draw_earlier(buf: &mut Buffer, body: Rect, areas: &LiveAreas, live: &Live, cx: &Context) {
    let screen = cx.keys.label(Action::Show(Tab::Experiments));
    let run = cx.key::<experiments::Experiments>(experiments::Act::Run);
    let how = match &live.source {
        Some(source) if live.missing > 0 => {
            let (runs, retry) = (counted(live.missing, "run"), cx.key::<Live>(Act::RetryFailed));
            let (are, them) = if live.missing == 1 { ("is", "it") } else { ("are", "them") };
            format!("{runs} of {} {are} missing: {retry} runs {them}", source.name)
        }
        _ => format!("no sweep is running: {screen} selects an experiment, {run} runs it"),
    };
    if live.shows_answer() {
        line(buf, areas.top, 0, &[(" ", cx.theme.style(Role::Text)), (&how, cx.theme.style(Role::Dim))]);
        return draw(buf, areas.detail, live, cx);
    }
    let then = match (cx.scope.own(), &live.answers) {
        (Some(own), None) => format!("computing the stored result of {}…", own.experiment),
        _ => "A running sweep shows its cells here: medians so far, lanes of the last step, memory, log; then the result."
            .to_owned(),
    };
    empty(buf, body, &format!("{how}\n{then}"), cx.theme);
}
