//! Screen 2: the current or most recent sweep, its active run, and queued sweeps.

mod cancel;
mod chart;
mod draw;
mod progress;
mod result;
mod standing;
pub mod state;

use std::sync::Arc;

pub use self::state::Live;
use self::state::{CellState, LiveCell, Pause, QueuedSweep};
use crate::face::tui::context::Sweeps;
use crate::face::tui::format::clock;
use crate::face::tui::keymap::Action;
use crate::face::tui::prelude::*;
use crate::face::tui::scope::ShownExperiment;
use crate::face::tui::screens::experiments::{self, Experiments, history, is_edited};
use crate::face::tui::update::{SweepEnd, SweepOrder, page_rows};
use jiff::Timestamp;
use lab::sweep::{Experiment, SweepEvent, SweepSelection, forecast};
use study::answer::{MOST_RUNS, noise_so_far};
use table::render::{Shown, Sourced, Table};
use table::{Record, aggregate};

/// Rows that a key scrolls the result or the log.
const SCROLLED: isize = 4;

/// Height of the body below which the result takes the place of the cells.
const SMALL: u16 = 20;

/// Height of the body from which a third of the rows below a long result list the cells.
const TALL: u16 = 30;
/// Rows that list the cells below a long result in a lower window, with the header.
const FEW_CELLS: u16 = 4;

/// Slots of questions about a sweep.
const SWEEP_QUESTIONS: [&str; 5] = ["look", "medians", "answer", "work", "noise"];

/// Minimum interval (ms) between handing finished runs to other screens. It grows with the number of
/// runs, since each is copied.
const HAND_OVER_MS: u64 = 500;
/// Number of runs that extends that interval by 1 ms.
const RECORDS_A_MS: usize = 20;

acts! {
    OpenCell: "open-cell", "Enter", "open the timeline of the cell's last run", Some("timeline") => "time";
    Pause: "pause", "p", "pause after the current run, or resume", Some("pause"), "resume stop";
    CancelCell: "cancel-cell", "c", "cancel the selected cell, or take that back", Some("cancel cell") => "cancel", "stop abort kill";
    CancelAll: "cancel-all", "C", "cancel the sweep", Some("cancel all") => "stop", "stop abort kill";
    RetryFailed: "retry-failed", "r F", "resume: run failed, cancelled and interrupted cells", Some("resume"), "rerun repeat restart continue";
    RunAll: "run-all", "R", "run all cells of the result again", None, "rerun restart repeat";
    Queue: "queue", "Q", "go to the queue of sweeps, and back", Some("queue");
    Follow: "follow", "f", "follow the running cell, or stay on this one", Some("follow") => "track";
    LogUp: "log-up", "[", "scroll the result or the log up", None;
    LogDown: "log-down", "]", "scroll the result or the log down", None;
    Result: "result", "a", "show the result, or the selected cell", Some("result"), "answer outcome";
    Details: "details", "d", "show the details of the result, or its card", None, "more whole explain";
    Earlier: "earlier", "<", "queue: move the sweep up", None;
    Later: "later", ">", "queue: move the sweep down", None;
    Remove: "remove", "D Delete", "queue: remove the sweep", None, "delete rm";
}

impl Acts for Live {
    type Act = Act;

    fn act(&mut self, act: Act, cx: &mut Context) {
        let running = self.is_running();
        let at = self.queue_list.selected;
        match act {
            Act::CancelAll if running => {
                let text = "Cancel the whole sweep? Finished runs are stored.";
                cx.confirm(text, |live: &mut Self, cx| live.cancel(cx));
            }
            Act::CancelCell if running => self.cancel_or_restore(cx),
            Act::Pause if running && !self.cancelling => {
                let pause = self.pause == Pause::No;
                self.pause = if pause { Pause::Asked } else { Pause::No };
                cx.perform(Effect::Sweep(SweepOrder::Pause(pause)));
            }
            Act::Pause if !running && !self.queue.is_empty() => {
                let QueuedSweep { experiment, choice } = self.queue.remove(0);
                self.begin(experiment, choice, cx);
            }
            Act::Follow if running => self.toggle_follow(cx),
            Act::CancelAll | Act::CancelCell | Act::Pause | Act::Follow => cx.inform("nothing runs"),
            Act::RetryFailed => self.retry(cx),
            Act::RunAll => self.run_all(cx),
            Act::Result if self.why_not(act, cx).is_none() => self.show_cell = !self.show_cell,
            Act::Result if self.cells.is_empty() => {
                cx.inform("this result is stored: no sweep ran since the start")
            }
            Act::Result => {
                let screen = cx.keys.label(Action::Show(Tab::Experiments));
                cx.inform(format!(
                    "no result before the sweep has ended; earlier results: screen {screen}"
                ));
            }
            Act::Details if self.why_not(act, cx).is_none() => {
                self.show_details = !self.show_details;
                self.result_scroll = 0;
            }
            Act::Details => {
                let result = cx.key::<Self>(Act::Result);
                cx.inform(format!("only of a result: {result} shows it once the sweep has ended"));
            }
            Act::LogUp => self.scroll(SCROLLED),
            Act::LogDown => self.scroll(-SCROLLED),
            Act::Queue | Act::Earlier | Act::Later | Act::Remove if self.queue.is_empty() => {
                cx.inform("the queue is empty: start another sweep on screen 1 while one runs");
            }
            Act::Queue => self.in_queue = !self.in_queue,
            Act::Earlier | Act::Later | Act::Remove if !self.in_queue => {
                let queue = cx.key::<Self>(Act::Queue);
                cx.inform(format!("only in the queue: {queue} opens it"));
            }
            Act::Earlier if at > 0 => {
                self.queue.swap(at, at - 1);
                self.queue_list.selected = at - 1;
            }
            Act::Later if at + 1 < self.queue.len() => {
                self.queue.swap(at, at + 1);
                self.queue_list.selected = at + 1;
            }
            Act::Earlier | Act::Later => {}
            Act::Remove => {
                if at < self.queue.len() {
                    let gone = self.queue.remove(at);
                    cx.inform(format!("{} will not run", gone.title()));
                }
            }
            Act::OpenCell => match self.selected().and_then(|cell| cell.record.as_deref()) {
                Some(record) => cx.request(Request::OpenRecord(Box::new(record.clone()))),
                None => cx.inform("this cell has no finished run yet"),
            },
        }
    }

    fn why_not(&self, act: Act, _cx: &Context) -> Option<&'static str> {
        let (running, queued) = (self.is_running(), !self.queue.is_empty());
        let has_record = || self.selected().is_some_and(|cell| cell.record.is_some());
        let has_result = || self.answers.is_some() && !self.cells.is_empty();
        let (is_possible, why_not) = match act {
            Act::OpenCell => (has_record(), "no run of this cell yet"),
            Act::Pause => (running || queued, "no sweep is running"),
            Act::CancelCell | Act::CancelAll | Act::Follow => (running, "no sweep is running"),
            Act::RetryFailed => {
                let has_missing = self.was_interrupted() || self.missing > 0;
                (has_missing || self.has_failures(), "no run is missing or failed")
            }
            Act::RunAll => (self.can_run_all(), "no finished sweep"),
            Act::LogUp | Act::LogDown => {
                (self.selected().is_some() || self.shows_answer(), "nothing to scroll")
            }
            Act::Result => (has_result(), "no result yet"),
            Act::Details => (self.shows_answer(), "no sweep is running"),
            Act::Queue | Act::Earlier | Act::Later | Act::Remove => (queued, "no sweep is queued"),
        };
        (!is_possible).then_some(why_not)
    }

    fn hint(&self, act: Act, _cx: &Context) -> Option<HintWords> {
        let words = |words| Some(HintWords::new(words));
        match act {
            Act::Pause if !self.is_running() => words("start queue"),
            Act::Pause if self.pause != Pause::No => words("resume"),
            Act::RetryFailed if self.missing > 0 => Some(HintWords::new("run missing").shortened("run")),
            // only one hint may say resume: a paused sweep has that of the pause key
            Act::RetryFailed if !self.was_interrupted() => {
                Some(HintWords::new("retry failed").shortened("retry"))
            }
            Act::CancelCell if !self.can_cancel() && !self.can_restore() => Some(HintWords::HIDDEN),
            Act::CancelCell if self.can_restore() => {
                Some(HintWords::new("restore cell").shortened("restore"))
            }
            Act::Queue if self.in_queue => words("back to cells"),
            Act::Result if self.shows_answer() => words("back to cell"),
            _ => None,
        }
    }
}

impl Screen for Live {
    fn draw(&self, buf: &mut Buffer, body: Rect, cx: &Context) {
        draw::draw(buf, body, self, cx);
    }

    fn list(&mut self, body: Rect) -> Option<ScreenList<'_>> {
        let area = cut_top(self.areas(body).table, 1).1;
        Some(ScreenList { len: self.cells.len(), area, rows: 1, list: &mut self.list })
    }

    fn input(&mut self, input: ScreenInput<'_>, cx: &mut Context) -> bool {
        match input {
            ScreenInput::Page(pages) if self.shows_answer() && !self.in_queue => {
                let shown = self.areas(cx.body()).detail.height.saturating_sub(2);
                self.scroll(-pages * page_rows(shown.into()));
            }
            ScreenInput::Step(rows) if self.in_queue => self.queue_list.move_by(rows, self.queue.len()),
            // without cells in view, the arrows scroll the result
            ScreenInput::Step(rows) if self.shows_answer() && !self.lists_cells(cx.body()) => {
                self.scroll(-rows);
            }
            ScreenInput::Step(_) if self.cells.is_empty() => {}
            ScreenInput::Step(rows) => {
                self.list.move_by(rows, self.cells.len());
                (self.follow, self.show_cell, self.log_scroll) = (false, true, 0);
            }
            ScreenInput::Mouse(body, event) => return self.point(body, event),
            ScreenInput::Close => self.in_queue = false,
            _ => return false,
        }
        true
    }

    fn settle(&mut self, body: Rect, cx: &mut Context) {
        let areas = self.areas(body);
        self.queue_list.fit(self.queue.len(), usize::from(areas.queue.height.saturating_sub(2)));
        self.in_queue &= !self.queue.is_empty();
        let at = self.list.selected;
        if let Some(cell) = self.cells.get(at).filter(|cell| cell.looked.is_none()) {
            let spec = cell.spec.clone();
            cx.follow(
                "look",
                &at,
                move |_| Ok(progress::look(&spec)),
                move |live: &mut Self, looked, cx| {
                    if let Some(cell) = live.cells.get_mut(at) {
                        cell.looked = cx.ok_or_fail(looked);
                    }
                },
            );
        }
        self.ask_earlier(cx);
        self.wrap_result(areas.detail);
        self.share(cx);
    }

    fn serve(&mut self, request: Request, cx: &mut Context) -> Option<Request> {
        match request {
            Request::Sweep { experiment, choice } => self.sweep(experiment, choice, cx),
            Request::StoredResult { experiment, missing } => self.show_stored(experiment, missing, cx),
            Request::CancelSweep => self.cancel(cx),
            Request::SweepNews(event) => {
                // the footer shows the last note; the message history has all of them
                if let SweepEvent::Note(note) = &*event {
                    cx.inform(note.as_str());
                }
                self.apply(*event, cx.now_ms);
            }
            Request::SweepEnded(result) => self.ended(result, cx),
            other => return Some(other),
        }
        self.share(cx);
        None
    }

    fn has_content(&self) -> bool {
        self.experiment.is_some() || self.shows_answer()
    }

    fn react(&mut self, news: &News, _cx: &mut Context) {
        let News::Runs { now, .. } = news else { return };
        self.handing = false;
        let rereads = std::mem::take(&mut self.rereads_stored) && self.is_running();
        if self.awaits_stored || rereads {
            self.count_stored(now);
        }
    }

    fn status(&self, cx: &Context) -> ScreenStatus {
        ScreenStatus {
            experiment: self.experiment.clone().map(ShownExperiment::named),
            badge: self.is_running().then(|| self.badge(cx)),
            ..ScreenStatus::default()
        }
    }

    fn notes(&self, body: Rect, cx: &Context) -> Vec<ScreenNote> {
        draw::notes(self, cx, body.width)
    }

    fn selection(&self, _cx: &Context) -> ScreenSelection {
        let run = |cell: &LiveCell| {
            let run = cell.record.as_ref().map(|record| record.run.clone());
            SelectedRun { spec: cell.spec.clone(), run: run.unwrap_or_else(|| cell.spec.label()) }
        };
        ScreenSelection { run: self.selected().map(run), ..ScreenSelection::default() }
    }

    fn finds(&self, _cx: &Context) -> Vec<Find> {
        let find = |(at, cell): (usize, &LiveCell)| {
            Find::new(cell.spec.label(), "cell of the sweep", move |live: &mut Self, _| {
                live.list.selected = at;
                (live.follow, live.show_cell, live.log_scroll) = (false, true, 0);
            })
        };
        self.cells.iter().enumerate().map(find).collect()
    }

    fn command(&self) -> Result<Command, &'static str> {
        let source = self.source.as_ref().ok_or(NO_COMMAND)?;
        let path = &source.path;
        let file = if path.parent().is_none_or(|parent| parent.as_os_str().is_empty()) {
            path.with_extension("")
        } else {
            path.clone()
        };
        // a command runs the saved version
        let beyond = is_edited(&source.name).then(|| "its unsaved edits".to_owned());
        let words = vec!["sweep".into(), file.display().to_string()];
        Ok(Command { words, beyond: beyond.into_iter().collect() })
    }

    fn export(&self, kind: FileKind, _cx: &Context) -> Result<Option<Export>, String> {
        if kind != FileKind::Csv {
            return Ok(None);
        }
        if self.experiment.is_none() {
            return Err("there is no sweep to export".into());
        }
        Ok(Some(Export::text(self.cells_csv())))
    }
}

impl PersistentScreen for Live {
    type Kept = ();

    fn keep(&self) -> Option<()> {
        None
    }

    fn restore(&mut self, (): (), _cx: &mut Context) {}
}

#[derive(Default)]
struct LiveAreas {
    top: Rect,
    table: Rect,
    queue: Rect,
    detail: Rect,
    /// Rows below the cells of a result: the selected cell, or the chart.
    below: Rect,
}

impl Live {
    fn areas(&self, body: Rect) -> LiveAreas {
        if self.experiment.is_none() {
            let (top, detail) = cut_top(body, 1);
            return LiveAreas { top, detail, ..LiveAreas::default() };
        }
        let warned = u16::from(self.warning().is_some());
        let cells = u16::try_from(self.cells.len() + 1).unwrap_or(u16::MAX);
        let (waiting, line) = (self.queue.len() as u16, self.queue_line());
        let card = self.wrapped.1.len() as u16 + 2;
        // the result itself counts the cells without one, so that the bar gives way to it and the cells
        let whole = (2 + line + card).saturating_add(cells);
        let is_full = body.height < SMALL || body.height < TALL && whole > body.height;
        let head = if self.shows_answer() && is_full { 1 } else { 2 + warned };
        let (top, rest) = cut_top(body, head);
        let room = rest.height.saturating_sub(4);
        let (detail, table) = match self.shows_answer() {
            // in a small window the result needs the rows of the cells
            true if body.height < SMALL => cut_top(rest, rest.height),
            true => {
                // leaves room for all cells, but at most a third of the rows, and few in a window of 24
                let rows = if body.height < TALL { FEW_CELLS + line } else { rest.height / 3 };
                let most = rest.height.saturating_sub(cells.min(rows)).max(11);
                cut_top(rest, card.clamp(11, most).min(room))
            }
            false => {
                // the frame, numbers, two lanes a rank and the log need these rows; spare rows go to them, too
                let ranks = self.selected().map_or(1, |cell| draw::drawn_ranks(cell) as u16);
                let others = cells.saturating_add(line);
                let most = match body.height {
                    // the frame, the step and the lanes of a rank; two rows less below a warning
                    ..SMALL => rest.height.saturating_sub(others).max(6 - 2 * warned),
                    SMALL..24 => rest.height.saturating_sub(others).max(7),
                    _ => ranks.saturating_mul(2).saturating_add(9),
                };
                let least = (body.height / 2).clamp(11, 26).min(most).min(room);
                let queue = if self.in_queue { waiting.saturating_add(2) } else { line };
                let (table, detail) =
                    cut_top(rest, cells.saturating_add(queue).min(rest.height.saturating_sub(least)));
                (detail, table)
            }
        };
        let queue = match self.in_queue && waiting > 0 {
            false => line,
            true => (waiting + 2).min(table.height / 2).max(3),
        };
        let needed = cells.saturating_add(queue);
        let (table, below) = match self.shows_answer() {
            true => cut_top(table, needed.min(table.height)),
            false => (table, Rect::ZERO),
        };
        let (table, queue) = cut_bottom(table, queue);
        LiveAreas { top, table, queue, detail, below }
    }

    /// True if the table of cells has rows in this body.
    fn lists_cells(&self, body: Rect) -> bool {
        !self.cells.is_empty() && self.areas(body).table.height > 1
    }

    fn badge(&self, cx: &Context) -> String {
        if cx.leaving {
            return "■ ending… ".into();
        }
        let progress = self.progress(cx.now_ms);
        let glyph = if self.pause == Pause::No { "▶" } else { "‖" };
        let waiting = match self.queue.len() {
            0 => String::new(),
            n => format!("+{n} "),
        };
        format!("{glyph} {} {waiting}", self.count_words(&progress))
    }

    fn point(&mut self, body: Rect, event: Pointer) -> bool {
        let areas = self.areas(body);
        match event.kind {
            PointerKind::Wheel(notches) if areas.detail.contains(event.at) => {
                self.scroll(-notches * 3);
                return true;
            }
            PointerKind::Click | PointerKind::DoubleClick if areas.queue.contains(event.at) => {
                self.in_queue = !self.queue.is_empty();
                let row = usize::from(event.at.y.saturating_sub(areas.queue.y + 1));
                let at = self.queue_list.offset + row;
                self.queue_list.selected = at.min(self.queue.len().saturating_sub(1));
                return true;
            }
            PointerKind::Click | PointerKind::DoubleClick if areas.table.contains(event.at) => {
                (self.in_queue, self.follow) = (false, false);
            }
            _ => {}
        }
        false
    }

    /// Publishes the sweep state and finished runs to other screens, even while this screen is hidden.
    fn share(&mut self, cx: &mut Context) {
        self.pool(cx);
        self.compare_with_standard();
        self.look_for_noise(cx);
        self.hand_over(cx);
        cx.sweeps = Sweeps {
            running: self.experiment.clone().filter(|_| self.is_running()),
            moving: self.is_running() && self.pause != Pause::Yes,
            queued: self.queue.iter().map(|queued| queued.experiment.name.clone()).collect(),
        };
    }

    fn sweep(&mut self, experiment: Arc<Experiment>, choice: SweepSelection, cx: &mut Context) {
        if self.is_running() {
            let queued = QueuedSweep { experiment, choice };
            let screen = cx.keys.label(Action::Show(Tab::Live));
            let text = format!("{} {}; {screen} shows the queue", queued.title(), self.start_words(cx));
            self.queue.push(queued);
            cx.inform(text);
            return;
        }
        self.begin(experiment, choice, cx);
    }

    /// Start of a sweep that is queued now: `starts after quickstart, in about 0:45`. A measured sweep has the cores for
    /// itself, so that even a simulation waits for it.
    fn start_words(&self, cx: &Context) -> String {
        let running = self.experiment.as_deref().unwrap_or_default();
        match (self.queue.len(), self.pause, self.progress(cx.now_ms).left_ms) {
            (0, Pause::No, Some(left)) => format!("starts after {running}, in about {}", clock(left)),
            (0, Pause::No, None) => format!("starts after {running}"),
            (0, ..) => format!("starts after {running}, which is paused"),
            (waiting, ..) => format!("starts after {running} and {waiting} more in the queue"),
        }
    }

    fn begin(&mut self, experiment: Arc<Experiment>, choice: SweepSelection, cx: &mut Context) {
        let rereads_stored = self.rereads_stored;
        self.start(&experiment, cx.now_ms);
        (self.choice, self.rereads_stored) = (choice, rereads_stored);
        match &cx.stored {
            Some(stored) => self.count_stored(stored),
            None => self.awaits_stored = true,
        }
        // answers about the previous sweep must not show up in this one
        SWEEP_QUESTIONS.into_iter().for_each(|slot| cx.forget::<Self>(slot));
        cx.tab = Tab::Live;
        let of = Arc::clone(&experiment);
        cx.perform(Effect::Sweep(SweepOrder::Start { experiment, choice }));
        // before the sweep itself loads the machine
        let (stored, load) = (cx.stored.clone(), (cx.load)());
        if let Some(load) = load {
            self.expect_noise(load);
        }
        cx.ask(
            "work",
            move |_| {
                let history = history(&of.cells, stored.as_deref(), load);
                Ok(forecast::work(&of.cells, &history))
            },
            |live: &mut Self, work, cx| live.weigh(cx.ok_or_fail(work).unwrap_or_default()),
        );
    }

    /// Shows the stored result of the experiment in scope, in place of an ended sweep of another.
    fn show_stored(&mut self, experiment: Arc<Experiment>, missing: usize, cx: &mut Context) {
        let name = experiment.name.clone();
        if self.is_running() {
            let all = cx.key::<Experiments>(experiments::Act::RunAll);
            let compare = cx.keys.label(Action::Show(Tab::Compare));
            return cx.inform(format!(
                "all runs of {name} are stored: {compare} compares them, {all} runs all again"
            ));
        }
        let known = self.experiment.as_deref().or(self.earlier.as_deref());
        let is_own = self.answers.is_some() && known == Some(name.as_str());
        if !is_own {
            self.forget_sweep();
            SWEEP_QUESTIONS.into_iter().for_each(|slot| cx.forget::<Self>(slot));
        }
        // an ended sweep counts its own runs
        self.missing = if self.experiment.is_some() { 0 } else { missing };
        self.source = Some(experiment);
        self.show_cell = false;
        cx.tab = Tab::Live;
        let all = cx.key::<Self>(Act::RunAll);
        let resume = match self.missing {
            0 => String::new(),
            missing => {
                let (key, runs) = (cx.key::<Self>(Act::RetryFailed), counted(missing, "missing run"));
                format!("{key} runs the {runs}, ")
            }
        };
        cx.inform(format!("stored result of {name}; {resume}{all} runs all again"));
    }

    /// Handles the end of a sweep: quits if the user is waiting for that, otherwise starts the next one.
    fn ended(&mut self, result: Result<SweepEnd, String>, cx: &mut Context) {
        let ended = result.as_ref().copied().unwrap_or_default();
        self.end(ended, cx.now_ms);
        cx.drop_questions();
        if cx.leaving {
            return cx.perform(Effect::Quit { interrupted: ended.interrupted });
        }
        if let Some(SweepEnd { failed: failed @ 1.., .. }) = cx.ok_or_fail(result) {
            cx.fail(match self.progress(cx.now_ms).done {
                0 => format!("no run of the sweep has a result: {failed} failed"),
                done => format!(
                    "{failed} of the sweep's runs failed; {} stored",
                    if done == 1 { "the other is".to_owned() } else { format!("the other {done} are") }
                ),
            });
        }
        self.ask_result(cx);
        cx.perform(Effect::Store(StoreTask::Read));
        self.rereads_stored = true;
        self.next_sweep(ended, cx);
    }

    /// Starts the next queued sweep, unless the user cancelled the previous one. A line above its
    /// cell says where the result of the previous one is.
    fn next_sweep(&mut self, ended: SweepEnd, cx: &mut Context) {
        if self.queue.is_empty() {
            return;
        }
        if ended.interrupted {
            let (pause, waiting) = (cx.key::<Self>(Act::Pause), self.queue.len());
            cx.inform(format!("{waiting} more in the queue: {pause} on this screen starts the next"));
            return;
        }
        let cancelled = self.progress(cx.now_ms).cancelled;
        let (screen, name) = (cx.tab, self.experiment.take().unwrap_or_default());
        let QueuedSweep { experiment, choice } = self.queue.remove(0);
        self.begin(experiment, choice, cx);
        cx.tab = screen;
        let word = match (ended.failed, cancelled) {
            (0, 0) => "finished".to_owned(),
            (0, runs) => format!("ended, {runs} cancelled"),
            _ => "ended with failures".to_owned(),
        };
        let key = cx.keys.label(Action::Show(Tab::Experiments));
        let previous = format!("{name} {word}: its result is on screen {key}");
        if ended.failed == 0 {
            cx.inform(previous.as_str());
        }
        self.previous = Some(previous);
    }

    fn cancel(&mut self, cx: &mut Context) {
        self.cancelling = true;
        cx.perform(Effect::Sweep(SweepOrder::CancelAll));
    }

    /// Pools the rounds of a cell in the background after another round ended; the interval is slow to
    /// compute.
    fn pool(&mut self, cx: &mut Context) {
        let Some((at, cell)) = self.unpooled.last().and_then(|at| Some((*at, self.cells.get(*at)?)))
        else {
            return;
        };
        let (rounds, runs) = (cell.rounds.clone(), cell.run_ids());
        let work = move |_: &_| {
            let rounds: Vec<Record> = rounds.values().map(|record| Record::clone(record)).collect();
            Ok(aggregate(&rounds).pop().and_then(|cell| cell.metrics))
        };
        cx.follow("medians", &(at, runs.clone()), work, move |live: &mut Self, metrics, cx| {
            let metrics = cx.ok_or_fail(metrics).flatten();
            if let Some(cell) = live.cells.get_mut(at) {
                cell.pooled(metrics.as_ref());
                // a round that ended in the meantime is pooled next
                let whole = cell.run_ids() == runs;
                live.unpooled.retain(|other| *other != at || !whole);
            }
        });
    }

    /// Looks for noise in the background after each executed run.
    fn look_for_noise(&mut self, cx: &mut Context) {
        let executed = self.cells.iter().filter(|cell| !cell.spec.backend.is_simulated());
        let count: usize = executed.map(|cell| cell.rounds.len()).sum();
        if count == 0 || count > MOST_RUNS || !self.is_running() {
            return;
        }
        let results = self.results();
        let work =
            move |_: &_| Ok(noise_so_far(results.iter().map(|record| Record::clone(record)).collect()));
        cx.follow("noise", &count, work, |live: &mut Self, noise, cx| {
            live.noise = cx.ok_or_fail(noise).flatten();
        });
    }

    fn hand_over(&mut self, cx: &mut Context) {
        let Some(stored) = &cx.stored else { return };
        let interval = HAND_OVER_MS + (stored.records.len() / RECORDS_A_MS) as u64;
        let due = cx.now_ms.saturating_sub(self.handed_ms) >= interval;
        // when the sweep ends, the directory is read again
        if self.fresh.is_empty() || self.handing || !due || !self.is_running() {
            return;
        }
        (self.handing, self.handed_ms) = (true, cx.now_ms);
        let records = std::mem::take(&mut self.fresh);
        cx.perform(Effect::Store(StoreTask::Append(records)));
    }
}

impl Live {
    fn toggle_follow(&mut self, cx: &mut Context) {
        self.follow = !self.follow;
        let running = self.cells.iter().position(|cell| cell.state == CellState::Running);
        if let (true, Some(at)) = (self.follow, running) {
            self.list.selected = at;
            self.log_scroll = 0;
        }
        let text = if self.follow { "following the cell under way" } else { "staying on this cell" };
        cx.inform(text);
    }

    /// Runs what an interrupted sweep has left, or what failed.
    fn retry(&mut self, cx: &mut Context) {
        let screen = cx.keys.label(Action::Show(Tab::Experiments));
        let Some(experiment) = self.source.clone() else {
            return cx.inform(format!("no sweep ran in this session: {screen} selects an experiment"));
        };
        match () {
            () if self.was_interrupted() => {
                // keeps `Again`: `Missing` would skip the cells whose earlier runs the user asked to repeat
                let choice = match self.choice {
                    SweepSelection::Again(_) => self.choice,
                    SweepSelection::Missing | SweepSelection::Failed => SweepSelection::Missing,
                };
                self.sweep(experiment, choice, cx);
            }
            () if self.missing > 0 => self.sweep(experiment, SweepSelection::Missing, cx),
            () if self.has_failures() => self.sweep(experiment, SweepSelection::Failed, cx),
            () if self.is_running() => cx.inform("the sweep is running, and no run of it has failed"),
            () => {
                let all = cx.key::<Self>(Act::RunAll);
                cx.inform(format!("no run of this sweep is missing or failed: {all} runs all again"))
            }
        }
    }

    /// True if the experiment of the result is known and nothing runs.
    fn can_run_all(&self) -> bool {
        self.source.is_some() && !self.is_running()
    }

    /// Runs all cells of the ended sweep, or of the stored result, again.
    fn run_all(&mut self, cx: &mut Context) {
        match self.source.clone().filter(|_| self.can_run_all()) {
            Some(experiment) => self.sweep(experiment, SweepSelection::Again(Timestamp::now()), cx),
            None if self.is_running() => cx.inform("the sweep is running: only an ended one runs again"),
            None => {
                let screen = cx.keys.label(Action::Show(Tab::Experiments));
                cx.inform(format!("no sweep ran in this session: {screen} selects an experiment"));
            }
        }
    }

    fn has_failures(&self) -> bool {
        self.cells.iter().any(|cell| !cell.bad.is_empty())
    }

    fn cells_csv(&self) -> String {
        let cells: Vec<_> = self.cells.iter().enumerate().collect();
        Table::from_rows(
            &cells,
            &[
                ("cell", &|c| c.0.into()),
                ("architecture", &|c| Shown::text(&c.1.spec.architecture)),
                ("model", &|c| Shown::text(&c.1.spec.model)),
                ("tp", &|c| c.1.spec.tp.into()),
                ("batch", &|c| c.1.spec.batch.into()),
                ("p2p", &|c| Shown::text(c.1.spec.p2p.as_str())),
                ("backend", &|c| Shown::text(c.1.spec.backend.as_str())),
                ("link", &|c| Shown::text(c.1.spec.link)),
                ("round", &|c| Shown::text(c.1.round)),
                ("state", &|c| Shown::text(c.1.state.word())),
                ("samples", &|c| Shown::text(c.1.samples.0)),
                ("tokens_per_s", &|c| Shown::number(c.1.tokens_per_s, 1)),
                ("tpot_ms", &|c| Shown::number(c.1.tpot_ms, 3)),
                ("ttft_ms", &|c| Shown::number(c.1.ttft_ms, 3)),
                ("provenance", &|c| Shown::text(c.1.spec.provenance())),
                ("run", &|c| c.1.record.as_ref().map(|record| record.run.as_str()).into()),
                ("note", &|c| Shown::text(&c.1.note)),
            ],
        )
        .csv(Sourced::ByRow)
    }
}
