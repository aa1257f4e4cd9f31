//! Screen 2: the sweep that runs, or ran last, the run under way, and the sweeps that wait.

mod detail;
mod draw;
pub mod look;
mod progress;
pub mod state;

use std::sync::Arc;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use self::state::{CellState, Pause, Queued};
use crate::store::Status;
use crate::sweep::{Choice, Experiment, SweepEvent};
use crate::text::csv_field;
use crate::tui::action::{Action, Binding, Screen, bind};
use crate::tui::layout::{cut_bottom, cut_top};
use crate::tui::message::Effect;
use crate::tui::page::{Export, FileKind, Page, Pointer, PointerKind};
use crate::tui::state::{List, Question, State};
use crate::tui::update::{ask, open_records};

/// Finished runs are handed to the other screens no more often (ms), and more rarely the more runs
/// there are, each of which is copied.
const HAND_OVER_MS: u64 = 500;
/// See [`HAND_OVER_MS`].
const RECORDS_A_MS: usize = 20;

/// What can be done here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    OpenCell,
    Pause,
    CancelCell,
    CancelAll,
    RetryFailed,
    Follow,
    LogUp,
    LogDown,
    Queue,
    Earlier,
    Later,
    Remove,
}

#[rustfmt::skip]
const BINDINGS: &[Binding] = &[
    bind("open-cell", "Enter", Action::Live(Act::OpenCell), "open the timeline of the cell's last run", Some("timeline")),
    bind("pause", "p", Action::Live(Act::Pause), "pause: end the run under way, start no other; resume", Some("pause")),
    bind("cancel-cell", "c", Action::Live(Act::CancelCell), "cancel the selected cell", Some("cancel cell")),
    bind("cancel-all", "C", Action::Live(Act::CancelAll), "cancel the sweep", Some("cancel all")),
    bind("retry-failed", "F", Action::Live(Act::RetryFailed), "run again what failed or was interrupted", Some("retry")),
    bind("follow", "f", Action::Live(Act::Follow), "follow the cell under way, or stay on this one", Some("follow")),
    bind("log-up", "[", Action::Live(Act::LogUp), "scroll the log up", None),
    bind("log-down", "]", Action::Live(Act::LogDown), "scroll the log down", None),
    bind("queue", "Q", Action::Live(Act::Queue), "into the queue of sweeps, and back", Some("queue")),
    bind("earlier", "<", Action::Live(Act::Earlier), "queue: the sweep earlier", None),
    bind("later", ">", Action::Live(Act::Later), "queue: the sweep later", None),
    bind("remove", "D Delete", Action::Live(Act::Remove), "queue: remove the sweep", None),
];

/// The page.
#[derive(Debug)]
pub struct Live;

impl Page for Live {
    fn title(&self) -> &'static str {
        "live"
    }

    fn bindings(&self) -> &'static [Binding] {
        BINDINGS
    }

    fn draw(&self, buf: &mut Buffer, body: Rect, state: &State) {
        draw::draw(buf, body, state);
    }

    fn list_area(&self, state: &State, body: Rect) -> Option<(usize, Rect)> {
        Some((state.live.cells.len(), cut_top(areas(state, body).table, 1).1))
    }

    fn list<'a>(&self, state: &'a mut State) -> Option<&'a mut List> {
        Some(&mut state.live.list)
    }

    fn step(&self, state: &mut State, rows: isize) -> Vec<Effect> {
        let live = &mut state.live;
        if live.in_queue {
            live.queue_list.move_by(rows, live.queue.len());
        } else {
            live.list.move_by(rows, live.cells.len());
            live.follow = false;
            live.log_scroll = 0;
        }
        Vec::new()
    }

    fn pointer(&self, state: &mut State, body: Rect, event: Pointer) -> Option<Vec<Effect>> {
        let areas = areas(state, body);
        match event.kind {
            PointerKind::Wheel(notches) if areas.detail.contains(event.at) => {
                scroll_log(state, -notches * 3);
                return Some(Vec::new());
            }
            PointerKind::Click | PointerKind::DoubleClick if areas.queue.contains(event.at) => {
                state.live.in_queue = !state.live.queue.is_empty();
                let row = usize::from(event.at.y.saturating_sub(areas.queue.y + 1));
                let at = state.live.queue_list.offset + row;
                state.live.queue_list.selected = at.min(state.live.queue.len().saturating_sub(1));
                return Some(Vec::new());
            }
            PointerKind::Click | PointerKind::DoubleClick if areas.table.contains(event.at) => {
                (state.live.in_queue, state.live.follow) = (false, false);
            }
            _ => {}
        }
        None
    }

    fn close(&self, state: &mut State) {
        state.live.in_queue = false;
    }

    fn settle(&self, state: &mut State, body: Rect, effects: &mut Vec<Effect>) {
        let areas = areas(state, body);
        let live = &mut state.live;
        live.list.fit(live.cells.len(), usize::from(areas.table.height.saturating_sub(1)));
        live.queue_list.fit(live.queue.len(), usize::from(areas.queue.height.saturating_sub(2)));
        live.in_queue &= !live.queue.is_empty();
        let sweep = live.sweep;
        if let (Screen::Live, Some(cell)) = (state.screen, live.cells.get_mut(live.list.selected))
            && !cell.asked
        {
            cell.asked = true;
            effects.push(Effect::LookAtCell {
                sweep,
                cell: live.list.selected,
                spec: Box::new(cell.spec.clone()),
            });
        }
        hand_over(state, effects);
    }

    fn command(&self, state: &State) -> Option<Vec<String>> {
        let path = &state.live.source.as_ref()?.path;
        let file = if path.parent().is_none_or(|parent| parent.as_os_str().is_empty()) {
            path.with_extension("")
        } else {
            path.clone()
        };
        Some(vec!["sweep".into(), file.display().to_string()])
    }

    fn export(&self, state: &State, kind: FileKind) -> Result<Option<Export>, String> {
        if kind != FileKind::Csv {
            return Ok(None);
        }
        if state.live.experiment.is_none() {
            return Err("there is no sweep to export".into());
        }
        Ok(Some(Export::text(cells_csv(state))))
    }
}

/// The parts of the page.
struct Areas {
    /// Name, progress.
    top: Rect,
    /// The cells, with a header.
    table: Rect,
    /// Sweeps that wait, with a frame; empty where none does.
    queue: Rect,
    /// The selected cell, with a frame.
    detail: Rect,
}

fn areas(state: &State, body: Rect) -> Areas {
    let (top, rest) = cut_top(body, 2);
    let (table, detail) = cut_bottom(rest, (body.height / 2).clamp(11, 26));
    let waiting = state.live.queue.len() as u16;
    let rows = if waiting == 0 { 0 } else { (waiting + 2).min(table.height / 2).max(3) };
    let (table, queue) = cut_bottom(table, rows);
    Areas { top, table, queue, detail }
}

/// Starts a sweep, or puts it behind the one that runs.
pub fn start(state: &mut State, experiment: Arc<Experiment>, choice: Choice) -> Vec<Effect> {
    if state.live.is_running() {
        let queued = Queued { experiment, choice };
        let title = queued.title();
        state.live.queue.push(queued);
        let screen = state.keys.label(Action::Show(Screen::Live));
        let waiting = state.live.queue.len();
        state.inform(format!(
            "{title} waits: number {waiting} in the queue behind the sweep that runs; {screen} shows it"
        ));
        return Vec::new();
    }
    begin(state, experiment, choice)
}

fn begin(state: &mut State, experiment: Arc<Experiment>, choice: Choice) -> Vec<Effect> {
    state.live.start(&experiment, state.now_ms);
    state.screen = Screen::Live;
    vec![Effect::StartSweep { experiment, choice }]
}

/// A sweep has ended: the next one, unless the user cancelled.
pub fn next(state: &mut State, interrupted: bool) -> Vec<Effect> {
    if state.live.queue.is_empty() {
        return Vec::new();
    }
    if interrupted {
        let (pause, waiting) = (key(state, Act::Pause), state.live.queue.len());
        state.inform(format!("{waiting} more in the queue: {pause} on this screen starts the next"));
        return Vec::new();
    }
    let screen = state.screen;
    let Queued { experiment, choice } = state.live.queue.remove(0);
    let effects = begin(state, experiment, choice);
    state.screen = screen;
    effects
}

fn key(state: &State, act: Act) -> String {
    state.keys.label(Action::Live(act))
}

/// An event of the sweep.
pub fn hear(state: &mut State, event: SweepEvent) {
    state.live.apply(event, state.now_ms);
}

/// Hands finished runs to the screens that show stored ones, now and then.
fn hand_over(state: &mut State, effects: &mut Vec<Effect>) {
    let live = &mut state.live;
    let Some(stored) = &state.stored else { return };
    let interval = HAND_OVER_MS + (stored.records.len() / RECORDS_A_MS) as u64;
    let due = state.now_ms.saturating_sub(live.handed_ms) >= interval;
    // at the end the directory is read again
    if live.fresh.is_empty() || live.handing || !due || !live.is_running() {
        return;
    }
    (live.handing, live.handed_ms) = (true, state.now_ms);
    let records = std::mem::take(&mut live.fresh);
    effects.push(Effect::Append(records));
}

/// Does what was asked for.
pub fn act(state: &mut State, act: Act) -> Vec<Effect> {
    let running = state.live.is_running();
    let at = state.live.queue_list.selected;
    match act {
        Act::CancelAll if running => ask(state, Question::CancelAll),
        Act::CancelCell if running => {
            let at = state.live.list.selected;
            if let Some(cell) = state.live.cells.get_mut(at) {
                if matches!(cell.state, CellState::Done(Status::Skipped | Status::Oom)) {
                    state.inform("this cell will not run anyway");
                    return Vec::new();
                }
                cell.cancelled = true;
                cell.note = "cancelled".into();
                return vec![Effect::CancelCell(at)];
            }
        }
        Act::Pause if running && !state.live.cancelling => {
            let pause = state.live.pause == Pause::No;
            state.live.pause = if pause { Pause::Asked } else { Pause::No };
            return vec![Effect::PauseSweep(pause)];
        }
        Act::Pause if !running && !state.live.queue.is_empty() => {
            let Queued { experiment, choice } = state.live.queue.remove(0);
            return begin(state, experiment, choice);
        }
        Act::CancelAll | Act::CancelCell | Act::Pause => state.inform("nothing runs"),
        Act::RetryFailed => return retry(state),
        Act::Follow => follow(state),
        Act::LogUp => scroll_log(state, 1),
        Act::LogDown => scroll_log(state, -1),
        Act::Queue | Act::Earlier | Act::Later | Act::Remove if state.live.queue.is_empty() => {
            state.inform("no sweep waits: start one more on screen 1 while one runs");
        }
        Act::Queue => state.live.in_queue = !state.live.in_queue,
        Act::Earlier | Act::Later | Act::Remove if !state.live.in_queue => {
            let queue = key(state, Act::Queue);
            state.inform(format!("that is for the queue: {queue} goes there"));
        }
        Act::Earlier if at > 0 => {
            state.live.queue.swap(at, at - 1);
            state.live.queue_list.selected = at - 1;
        }
        Act::Later if at + 1 < state.live.queue.len() => {
            state.live.queue.swap(at, at + 1);
            state.live.queue_list.selected = at + 1;
        }
        Act::Earlier | Act::Later => {}
        Act::Remove => {
            if at < state.live.queue.len() {
                let gone = state.live.queue.remove(at);
                state.inform(format!("{} will not run", gone.title()));
            }
        }
        Act::OpenCell => {
            let record = state.live.selected().and_then(|cell| cell.record.clone());
            match record {
                Some(record) => return open_records(state, vec![*record], false),
                None => state.inform("this cell has no finished run yet"),
            }
        }
    }
    Vec::new()
}

fn follow(state: &mut State) {
    let live = &mut state.live;
    live.follow = !live.follow;
    let running = live.cells.iter().position(|cell| cell.state == CellState::Running);
    if let (true, Some(at)) = (live.follow, running) {
        live.list.selected = at;
        live.log_scroll = 0;
    }
    let text = if live.follow { "following the cell under way" } else { "staying on this cell" };
    state.inform(text);
}

fn retry(state: &mut State) -> Vec<Effect> {
    let Some(experiment) = state.live.source.clone() else {
        state.inform("no sweep has run yet");
        return Vec::new();
    };
    if state.live.cells.iter().all(|cell| cell.bad.is_empty()) {
        state.inform("no run of this sweep has failed");
        return Vec::new();
    }
    start(state, experiment, Choice::Failed)
}

fn scroll_log(state: &mut State, up: isize) {
    let lines = state.live.selected().map_or(0, |cell| cell.log.len());
    let scroll = state.live.log_scroll.saturating_add_signed(up);
    state.live.log_scroll = scroll.min(lines.saturating_sub(1));
}

/// The sweep's cells as CSV.
fn cells_csv(state: &State) -> String {
    let mut text = String::from(
        "cell,architecture,model,tp,batch,p2p,backend,link,round,state,samples,tokens_per_s,tpot_ms,provenance,run,note\n",
    );
    let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    for (index, cell) in state.live.cells.iter().enumerate() {
        let spec = &cell.spec;
        let fields = [
            index.to_string(),
            spec.architecture.to_string(),
            spec.model.clone(),
            spec.tp.to_string(),
            spec.batch.to_string(),
            spec.p2p.as_str().to_owned(),
            spec.backend.as_str().to_owned(),
            spec.link.to_string(),
            cell.round.to_string(),
            cell.state.word().to_owned(),
            cell.samples.0.to_string(),
            number(cell.tokens_per_s),
            number(cell.tpot_ms),
            spec.provenance().to_string(),
            cell.record.as_ref().map_or(String::new(), |record| record.run.clone()),
            cell.note.clone(),
        ];
        let fields: Vec<String> = fields.iter().map(|field| csv_field(field)).collect();
        text.push_str(&fields.join(","));
        text.push('\n');
    }
    text
}
