//! `update(state, message) -> effects`: everything that happens to the state, and nothing else. No
//! clock, no files, no threads; what is to be done outside goes back as effects.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::action::{Action, Screen, lookup};
use super::keys;
use super::layout;
use super::message::{Effect, Message, TraceSource};
use super::mouse;
use super::palette;
use super::state::timeline::View;
use super::state::{Overlay, Question, State};
use crate::store::Record;

/// What the loop should do when the workbench opens.
pub fn begin() -> Vec<Effect> {
    vec![Effect::LoadExperiments, Effect::LoadRuns]
}

/// Takes in what happened; what is to be done about it comes back.
pub fn update(state: &mut State, message: Message) -> Vec<Effect> {
    let mut effects = match message {
        Message::Clock(now) => {
            state.now_ms = now;
            return Vec::new();
        }
        Message::Resize(columns, rows) => {
            state.size = (columns, rows);
            Vec::new()
        }
        Message::Key(key) if key.kind == KeyEventKind::Release => return Vec::new(),
        Message::Key(key) => press(state, key),
        Message::Mouse(event) => mouse::handle(state, event),
        Message::Paste(text) => keys::paste(state, &text),
        Message::Terminate => leave(state),
        result => learn(state, result),
    };
    settle(state, &mut effects);
    effects
}

/// Results of effects and events of the sweep.
fn learn(state: &mut State, message: Message) -> Vec<Effect> {
    match message {
        Message::Experiments(entries) => {
            state.experiments.set(entries);
            state.experiments.match_stored(state.stored.as_deref());
        }
        Message::Runs(Ok(snapshot)) => {
            state.experiments.match_stored(Some(&snapshot));
            state.runs.arrange(Some(&snapshot));
            let axis = state.compare.axis();
            state.stored = Some(snapshot.clone());
            return vec![Effect::Pareto(snapshot.clone()), Effect::Compare { axis, runs: snapshot }];
        }
        Message::Runs(Err(error)) | Message::Failed(error) => state.fail(error),
        Message::Sweep(event) => state.live.apply(*event, state.now_ms),
        Message::SweepEnded(result) => {
            let ended = result.as_ref().copied().unwrap_or_default();
            state.live.end(ended, state.now_ms);
            state.overlays.retain(|o| !matches!(o, Overlay::Confirm(_)));
            if state.leaving {
                return vec![Effect::Quit { interrupted: ended.interrupted }];
            }
            match result {
                Ok(ended) if ended.failed > 0 => {
                    state.fail(format!(
                        "{} of the sweep's runs failed; the others are stored",
                        ended.failed
                    ));
                }
                Ok(_) => {}
                Err(error) => state.fail(error),
            }
            return vec![Effect::LoadRuns];
        }
        Message::Trace { request, result } if request == state.timeline.request => match result {
            Ok(traces) => state.timeline.open(traces),
            Err(error) => {
                state.timeline.fail();
                state.fail(error);
            }
        },
        Message::Overlap { request, pane, part, overlap_pct } if request == state.timeline.request => {
            if let Some(pane) = state.timeline.view.as_mut().and_then(|v| v.panes.get_mut(pane)) {
                pane.overlap.insert(part, overlap_pct);
                pane.pending = None;
            }
        }
        Message::Found { request, pane, serial, matches } if request == state.timeline.request => {
            if let Some(view) = state.timeline.view.as_mut().filter(|v| v.search.serial == serial) {
                view.found(pane, matches);
            }
        }
        Message::Pareto(points) => state.pareto.set(points),
        Message::Compare { axis, result } if axis == state.compare.axis() => {
            state.compare.report = Some(result);
        }
        Message::Info(text) => state.inform(text),
        // answers to what nobody asks any more, and what `update` has handled
        _ => {}
    }
    Vec::new()
}

/// A key: to the topmost overlay, else to the filter being typed, else by the table of bindings.
fn press(state: &mut State, key: KeyEvent) -> Vec<Effect> {
    let ctrl_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    if state.notice.as_ref().is_some_and(|n| !n.error) {
        state.notice = None;
    }
    if ctrl_c {
        return act(state, Action::Quit);
    }
    if !state.overlays.is_empty() {
        return keys::in_overlay(state, key);
    }
    if state.screen == Screen::Runs && state.runs.typing {
        return keys::in_filter(state, key);
    }
    if state.screen == Screen::Timeline && is_searching(state) {
        return keys::in_search(state, key);
    }
    lookup(state.screen, &key).map_or_else(Vec::new, |action| act(state, action))
}

/// Whether a search of the timeline is being typed.
pub fn is_searching(state: &State) -> bool {
    state.timeline.view.as_ref().is_some_and(|view| view.search.typing)
}

/// Does an action, whoever asked for it: a key, the palette, the mouse.
pub fn act(state: &mut State, action: Action) -> Vec<Effect> {
    match action {
        Action::Show(screen) => state.screen = screen,
        Action::NextScreen => state.screen = state.screen.shifted(1),
        Action::PreviousScreen => state.screen = state.screen.shifted(Screen::ALL.len() - 1),
        Action::Help => state.overlays.push(Overlay::Help { scroll: 0 }),
        Action::Palette => type_into_palette(state, ""),
        Action::TypeOpen => type_into_palette(state, palette::OPEN),
        Action::TypeBeneath if state.timeline.view.is_none() => state.inform("no trace is open"),
        Action::TypeBeneath => type_into_palette(state, palette::BENEATH),
        Action::Close => close(state),
        Action::ToggleMouse => {
            state.mouse = !state.mouse;
            state.inform(match state.mouse {
                true => "mouse captured: click tabs and rows, scroll with the wheel",
                false => "mouse free: select text with it; m captures it again",
            });
            return vec![Effect::CaptureMouse(state.mouse)];
        }
        Action::Quit if state.live.is_running() => {
            let question = if state.leaving { Question::QuitNow } else { Question::Quit };
            ask(state, question);
        }
        Action::Quit => return vec![Effect::Quit { interrupted: false }],
        Action::Up => return step(state, -1),
        Action::Down => return step(state, 1),
        Action::PageUp => return step(state, -page(state)),
        Action::PageDown => return step(state, page(state)),
        Action::First => return step(state, isize::MIN / 2),
        Action::Last => return step(state, isize::MAX / 2),
        Action::RunExperiment | Action::ShowFile | Action::Rescan => {
            return on_experiments(state, action);
        }
        Action::OpenCell | Action::CancelCell | Action::CancelAll => return on_live(state, action),
        Action::OpenRun
        | Action::OpenRunBeneath
        | Action::SortNext
        | Action::SortPrevious
        | Action::SortReverse
        | Action::Filter
        | Action::Detail
        | Action::CopyRun
        | Action::Reload => return on_runs(state, action),
        Action::PointLeft => state.pareto.step_latency(-1),
        Action::PointRight => state.pareto.step_latency(1),
        Action::PointUp => state.pareto.step_throughput(true),
        Action::PointDown => state.pareto.step_throughput(false),
        Action::CycleP2p => state.pareto.cycle_p2p(),
        Action::CycleGroup => state.pareto.cycle_group(),
        Action::OpenPoint => {
            let run = state.pareto.current().map(|p| p.run.clone());
            return open_run(state, run);
        }
        Action::Export => {
            let points: Vec<_> = state.pareto.visible().cloned().collect();
            if points.is_empty() {
                state.inform("nothing to export: no points are shown");
                return Vec::new();
            }
            return vec![Effect::ExportPareto(points)];
        }
        Action::NextAxis | Action::PreviousAxis => {
            state.compare.cycle(action == Action::PreviousAxis);
            let axis = state.compare.axis();
            return state.stored.iter().map(|s| Effect::Compare { axis, runs: s.clone() }).collect();
        }
        Action::OpenPair => {
            let run = state.compare.selected().map(|p| p.run.clone());
            return open_run(state, run);
        }
        Action::OpenBoth => {
            let pair = state.compare.selected().map(|p| [p.run.clone(), p.baseline_run.clone()]);
            return open_runs(state, pair.map_or_else(Vec::new, Vec::from), false);
        }
        timeline => {
            let told = state.timeline.view.as_mut().map_or(Err(""), |view| on_timeline(view, timeline));
            if let Err(why) = told
                && !why.is_empty()
            {
                state.inform(why);
            }
        }
    }
    Vec::new()
}

/// What the timeline's own actions do; why, where one did nothing.
fn on_timeline(view: &mut View, action: Action) -> Result<(), &'static str> {
    let done = |done: bool, why| if done { Ok(()) } else { Err(why) };
    match action {
        Action::SpanPrevious => view.move_in_line(-1),
        Action::SpanNext => view.move_in_line(1),
        Action::ZoomIn => view.zoom(0.5),
        Action::ZoomOut => view.zoom(2.0),
        Action::PanLeft => view.pan(-0.5),
        Action::PanRight => view.pan(0.5),
        Action::StepNext => view.fit_neighbour(true),
        Action::StepPrevious => view.fit_neighbour(false),
        Action::FitAll => view.fit_all(),
        Action::ZoomSpan => view.zoom_span(),
        Action::Undo => return done(view.undo(), "nothing to undo"),
        Action::SearchName => view.search.typing = true,
        Action::MatchNext | Action::MatchPrevious => {
            let found = view.go_to_match(action == Action::MatchNext);
            return done(found, "nothing was found: / searches for part of a name");
        }
        Action::ToggleRank => view.toggle_rank(),
        Action::ToggleRanks => view.toggle_all(),
        Action::SwitchTrace if view.panes.len() > 1 => view.switch(),
        Action::ShiftNext | Action::ShiftPrevious if view.panes.len() > 1 => {
            let by = if action == Action::ShiftNext { 1 } else { -1 };
            return done(view.shift(by), "the lower trace has no further step");
        }
        Action::CloseBeneath if view.panes.len() > 1 => return done(view.remove(), ""),
        Action::SwitchTrace | Action::ShiftNext | Action::ShiftPrevious | Action::CloseBeneath => {
            return Err("only one trace is open: b opens another beneath it");
        }
        _ => {}
    }
    Ok(())
}

fn type_into_palette(state: &mut State, text: &str) {
    let input = tui_input::Input::new(text.into());
    state.overlays.push(Overlay::Palette { input, selected: 0 });
}

fn on_experiments(state: &mut State, action: Action) -> Vec<Effect> {
    if action == Action::Rescan {
        return vec![Effect::LoadExperiments];
    }
    let Some(entry) = state.experiments.selected().cloned() else {
        state.inform("no experiment is selected");
        return Vec::new();
    };
    if action == Action::ShowFile {
        let lines = entry.text.lines().map(|l| l.replace('\t', "    ")).collect();
        state.overlays.push(Overlay::Text {
            title: format!("{} ({})", entry.name, entry.place),
            lines,
            scroll: 0,
        });
        return Vec::new();
    }
    if state.live.is_running() {
        state.inform("a sweep is running: wait for it, or press 2 and C to cancel it");
        return Vec::new();
    }
    match entry.experiment {
        Ok(experiment) => {
            state.live.start(&experiment, state.now_ms);
            state.screen = Screen::Live;
            vec![Effect::StartSweep(experiment)]
        }
        Err(error) => {
            state.fail(error);
            Vec::new()
        }
    }
}

fn on_live(state: &mut State, action: Action) -> Vec<Effect> {
    match action {
        Action::CancelAll if state.live.is_running() => ask(state, Question::CancelAll),
        Action::CancelCell if state.live.is_running() => {
            let at = state.live.list.selected;
            if let Some(cell) = state.live.cells.get_mut(at) {
                cell.cancelled = true;
                cell.note = "cancelled".into();
                return vec![Effect::CancelCell(at)];
            }
        }
        Action::CancelAll | Action::CancelCell => state.inform("nothing runs"),
        _ => {
            let record = state.live.selected().and_then(|cell| cell.record.clone());
            return match record {
                Some(record) => open_record(state, *record),
                None => {
                    state.inform("this cell has no finished run yet");
                    Vec::new()
                }
            };
        }
    }
    Vec::new()
}

fn on_runs(state: &mut State, action: Action) -> Vec<Effect> {
    let stored = state.stored.clone();
    let selected = state.runs.selected(stored.as_ref()).map(|r| r.run.clone());
    match action {
        Action::Reload => return vec![Effect::LoadRuns],
        Action::Filter => state.runs.typing = true,
        Action::Detail => state.runs.detail = !state.runs.detail,
        Action::OpenRun => return open_run(state, selected),
        Action::OpenRunBeneath => {
            let beneath = state.timeline.view.is_some();
            return open_runs(state, selected.into_iter().collect(), beneath);
        }
        Action::CopyRun => {
            if let Some(run) = selected {
                state.inform(format!("copied {run}"));
                return vec![Effect::Copy(run)];
            }
        }
        _ => {
            match action {
                Action::SortReverse => state.runs.ascending = !state.runs.ascending,
                _ => state.runs.sort_by_next(action == Action::SortPrevious),
            }
            state.runs.arrange(stored.as_deref());
        }
    }
    Vec::new()
}

/// Opens the timeline of a stored run.
fn open_run(state: &mut State, run: Option<String>) -> Vec<Effect> {
    open_runs(state, run.into_iter().collect(), false)
}

/// Opens the timelines of stored runs, from top to bottom.
fn open_runs(state: &mut State, runs: Vec<String>, beneath: bool) -> Vec<Effect> {
    if runs.is_empty() {
        state.inform("nothing is selected");
        return Vec::new();
    }
    let mut records = Vec::new();
    for run in &runs {
        match state.stored.as_ref().and_then(|s| s.find(run)).cloned() {
            Some(record) => records.push(record),
            None => {
                state.fail(format!("run {run} is not in {}: R reads it again", state.dir.display()));
                return Vec::new();
            }
        }
    }
    open_records(state, records, beneath)
}

fn open_record(state: &mut State, record: Record) -> Vec<Effect> {
    open_records(state, vec![record], false)
}

fn open_records(state: &mut State, records: Vec<Record>, beneath: bool) -> Vec<Effect> {
    if let Some(record) = records.iter().find(|r| r.metrics.is_none()) {
        let reason = record.reason.as_deref().unwrap_or("no reason is recorded");
        let text = format!("run {} is {}: {reason}", record.run, record.status.as_str());
        state.inform(text);
        return Vec::new();
    }
    let names: Vec<&str> = records.iter().map(|r| r.run.as_str()).collect();
    let names = names.join(" and ");
    let sources = records.into_iter().map(|r| TraceSource::Run(Box::new(r))).collect();
    open_traces(state, names, sources, beneath)
}

/// Opens a trace file that was typed or dropped.
pub fn open_path(state: &mut State, path: &str, beneath: bool) -> Vec<Effect> {
    let beneath = beneath && state.timeline.view.is_some();
    open_traces(state, path.into(), vec![TraceSource::Path(path.into())], beneath)
}

fn open_traces(
    state: &mut State,
    what: String,
    sources: Vec<TraceSource>,
    beneath: bool,
) -> Vec<Effect> {
    let request = state.timeline.request(what, beneath);
    state.screen = Screen::Timeline;
    vec![Effect::OpenTraces { request, sources }]
}

/// Moves the selection of the current screen by rows.
pub fn step(state: &mut State, rows: isize) -> Vec<Effect> {
    let stored = state.runs.order.len();
    match state.screen {
        Screen::Experiments => state.experiments.list.move_by(rows, state.experiments.len()),
        Screen::Live => state.live.list.move_by(rows, state.live.cells.len()),
        Screen::Runs => state.runs.list.move_by(rows, stored),
        Screen::Compare => state.compare.list.move_by(rows, state.compare.pairs().len()),
        Screen::Pareto => state.pareto.step_latency(rows),
        Screen::Timeline => {
            if let Some(view) = &mut state.timeline.view {
                view.move_line(rows);
            }
        }
    }
    Vec::new()
}

/// Rows of a page of the current screen.
fn page(state: &State) -> isize {
    let lines = || {
        let areas = layout::open_timeline(state)?;
        let focus = state.timeline.view.as_ref()?.focus;
        areas.panes.get(focus).map(|pane| pane.lines)
    };
    let area = if state.screen == Screen::Timeline { lines() } else { layout::list(state) };
    area.map_or(4, |area| isize::from(area.height as i16 - 1).max(1))
}

/// Closes what lies on top: an overlay, a notice, then what the screen has opened.
fn close(state: &mut State) {
    if state.overlays.pop().is_some() || state.notice.take().is_some() {
        return;
    }
    if let (Screen::Timeline, Some(view)) = (state.screen, &mut state.timeline.view) {
        view.forget_search();
    }
    if state.screen != Screen::Runs {
        return;
    }
    if state.runs.detail {
        state.runs.detail = false;
    } else if !state.runs.filter.value().is_empty() {
        state.runs.filter.reset();
        let stored = state.stored.clone();
        state.runs.arrange(stored.as_deref());
    }
}

/// Asks, once.
fn ask(state: &mut State, question: Question) {
    state.overlays.retain(|o| !matches!(o, Overlay::Confirm(_)));
    state.overlays.push(Overlay::Confirm(question));
}

/// The answer yes.
pub fn agree(state: &mut State, question: Question) -> Vec<Effect> {
    match question {
        _ if !state.live.is_running() => match question {
            Question::CancelAll => Vec::new(),
            Question::Quit | Question::QuitNow => vec![Effect::Quit { interrupted: false }],
        },
        Question::CancelAll => {
            state.live.cancelling = true;
            vec![Effect::CancelAll]
        }
        Question::Quit => leave(state),
        Question::QuitNow => vec![Effect::Quit { interrupted: true }],
    }
}

/// Leaves as soon as nothing runs any more; asked a second time, at once.
fn leave(state: &mut State) -> Vec<Effect> {
    if !state.live.is_running() || state.leaving {
        return vec![Effect::Quit { interrupted: true }];
    }
    state.leaving = true;
    state.live.cancelling = true;
    state.notice = None;
    vec![Effect::CancelAll]
}

/// After every message: selections exist and can be seen, the header's overlap is asked for.
fn settle(state: &mut State, effects: &mut Vec<Effect>) {
    keys::bound(state);
    let height = layout::list(state).map_or(0, |area| usize::from(area.height));
    match state.screen {
        Screen::Experiments => state.experiments.list.fit(state.experiments.len(), height),
        Screen::Live => state.live.list.fit(state.live.cells.len(), height),
        Screen::Runs => state.runs.list.fit(state.runs.order.len(), height),
        Screen::Compare => {
            let len = state.compare.pairs().len();
            state.compare.list.fit(len, height);
        }
        Screen::Pareto | Screen::Timeline => {}
    }
    let Some(areas) = layout::open_timeline(state) else { return };
    let request = state.timeline.request;
    let Some(view) = &mut state.timeline.view else { return };
    let (time, focus) = (view.time, view.focus);
    for (i, (pane, areas)) in view.panes.iter_mut().zip(areas.panes).enumerate() {
        pane.scroll_to_cursor(usize::from(areas.lines.height));
        // while another trace is on its way, answers for this one would be dropped
        if state.timeline.loading.is_none()
            && let Some(part) = pane.wanted(time, i == focus)
        {
            effects.push(Effect::Analyse { request, pane: i, index: pane.index.clone(), part });
        }
    }
}
