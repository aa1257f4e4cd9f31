//! `update(state, message) -> effects`: everything that happens to the state, and nothing else. No
//! clock, no files, no threads; what is to be done outside goes back as effects.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tui_input::Input;

use super::action::{Action, Screen};
use super::export;
use super::format;
use super::keys;
use super::message::{Effect, Message, TraceSource};
use super::mouse;
use super::page::body_of;
use super::palette;
use super::screens::{compare, experiments, live, pareto, runs, timeline, whatif};
use super::state::{Overlay, Purpose, Question, State};
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
            let before = state.stored.replace(snapshot.clone());
            runs::learn(state, before.as_ref());
            let compare = state.compare.ask(snapshot.clone());
            return vec![Effect::Pareto(snapshot), compare];
        }
        Message::Runs(Err(error)) | Message::Failed(error) => state.fail(error),
        Message::Appended(snapshot) => {
            state.live.handing = false;
            return learn(state, Message::Runs(Ok(snapshot)));
        }
        Message::DraftChecked { name, checked } => {
            if let Some(draft) = state.experiments.drafts.get_mut(&name) {
                draft.learn(checked);
            }
        }
        Message::Saved { save, result } => return experiments::saved(state, save, result),
        Message::CellLooked { sweep, cell, looked } if sweep == state.live.sweep => {
            if let Some(cell) = state.live.cells.get_mut(cell) {
                cell.looked = Some(looked);
            }
        }
        Message::Sweep(event) => live::hear(state, *event),
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
            let mut effects = vec![Effect::LoadRuns];
            effects.extend(live::next(state, ended.interrupted));
            return effects;
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
        Message::Timeline(answer) => {
            let told = state.timeline.view.as_mut().map_or(Ok(()), |view| view.learn(*answer));
            if let Err(error) = told {
                state.fail(error);
            }
        }
        Message::Pareto(points) => state.pareto.set(points),
        Message::ParetoMarks { axes, reading, points }
            if axes == state.pareto.axes && reading == state.pareto.reading =>
        {
            state.pareto.set_marked(axes, points);
        }
        Message::ParetoAreas { key, areas } => state.pareto.areas = Some((key, areas)),
        Message::Overlay(Ok(read)) => pareto::take_overlay(state, read),
        Message::Overlay(Err(error)) => state.fail(error),
        Message::ParetoPicture { sketch, result: Ok(picture) } => {
            state.pareto.picture.take(sketch, picture);
        }
        Message::ParetoPicture { result: Err(error), .. } => {
            state.pareto.pictures.on = false;
            state.inform(error);
        }
        Message::Compare { request, result } if request == state.compare.request => {
            state.compare.set(result);
        }
        Message::WhatIf { request, result } => state.whatif.learn(request, result),
        Message::BreakEven { request, found } if request == state.whatif.request => {
            state.whatif.break_even = Some(found);
        }
        Message::Annotated(snapshot) => {
            let before = state.stored.replace(snapshot);
            runs::learn(state, before.as_ref());
        }
        Message::WholeRun(record) => state.runs.whole = Some(record),
        Message::SideBySide(Ok(both)) => runs::show_side_by_side(state, both),
        Message::SideBySide(Err(error)) => {
            state.runs.over = None;
            state.fail(error);
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
    if let Some(effects) = state.screen.page().typed(state, key) {
        return effects;
    }
    state.keys.lookup(state.screen, &key).map_or_else(Vec::new, |action| act(state, action))
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
        Action::Close => close(state),
        Action::ToggleMouse => {
            state.mouse = !state.mouse;
            state.inform(match state.mouse {
                true => "mouse captured: click tabs and rows, scroll with the wheel, drag on plots",
                false => "mouse free: the terminal selects text with it; the same key captures it again",
            });
            return vec![Effect::CaptureMouse(state.mouse)];
        }
        Action::Quit if experiments::ask_before_leaving(state) => {}
        Action::Quit if state.live.is_running() => {
            let question = if state.leaving { Question::QuitNow } else { Question::Quit };
            ask(state, question);
        }
        Action::Quit => return vec![Effect::Quit { interrupted: false }],
        Action::Up => return step(state, -1),
        Action::Down => return step(state, 1),
        Action::PageUp => return step(state, -state.screen.page().rows_of_a_page(state)),
        Action::PageDown => return step(state, state.screen.page().rows_of_a_page(state)),
        Action::First => return step(state, isize::MIN / 2),
        Action::Last => return step(state, isize::MAX / 2),
        Action::Reload => return vec![Effect::LoadExperiments, Effect::LoadRuns],
        Action::Export => export::ask(state, Purpose::Export),
        Action::Picture => export::ask(state, Purpose::Picture),
        Action::Messages => show_messages(state),
        Action::CopyCommand => return export::copy_command(state),
        Action::Experiments(act) => return experiments::act(state, act),
        Action::Live(act) => return live::act(state, act),
        Action::Runs(act) => return runs::act(state, act),
        Action::Timeline(act) => return timeline::act(state, act),
        Action::Pareto(act) => return pareto::act(state, act),
        Action::Compare(act) => return compare::act(state, act),
        Action::WhatIf(act) => return whatif::act(state, act),
        Action::WhatIfHere => return whatif::from_selection(state),
    }
    Vec::new()
}

/// Shows what was told until now, the newest first.
fn show_messages(state: &mut State) {
    let mut lines = Vec::new();
    for (ms, notice) in state.messages.iter().rev() {
        let glyph = if notice.error { "✘" } else { " " };
        for (i, text) in notice.text.lines().enumerate() {
            let clock = format::clock(*ms);
            lines.push(if i == 0 {
                format!("{clock:>7} {glyph} {text}")
            } else {
                format!("{:>7}   {text}", "")
            });
        }
    }
    if lines.is_empty() {
        lines.push("nothing was told yet".into());
    }
    state.overlays.push(Overlay::Text { title: "messages since the start".into(), lines, scroll: 0 });
}

/// Opens the palette with something typed.
pub fn type_into_palette(state: &mut State, text: &str) {
    let input = Input::new(text.into());
    state.overlays.push(Overlay::Palette { input, selected: 0 });
}

/// Opens the timeline of a stored run.
pub fn open_run(state: &mut State, run: Option<String>) -> Vec<Effect> {
    open_runs(state, run.into_iter().collect(), false)
}

/// Opens the timelines of stored runs, from top to bottom.
pub fn open_runs(state: &mut State, runs: Vec<String>, beneath: bool) -> Vec<Effect> {
    if runs.is_empty() {
        state.inform("nothing is selected");
        return Vec::new();
    }
    let mut records = Vec::new();
    for run in &runs {
        match state.stored.as_ref().and_then(|s| s.find(run)).cloned() {
            Some(record) => records.push(record),
            None => {
                state.fail({
                    let reload = state.keys.label(Action::Reload);
                    format!("run {run} is not in {}: {reload} reads it again", state.dir.display())
                });
                return Vec::new();
            }
        }
    }
    open_records(state, records, beneath)
}

/// Opens the timelines of runs, from top to bottom, or says why there are none.
pub fn open_records(state: &mut State, records: Vec<Record>, beneath: bool) -> Vec<Effect> {
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
    open_traces(state, path.into(), vec![TraceSource::Path { path: path.into(), rules: None }], beneath)
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
    state.screen.page().step(state, rows)
}

/// Closes what lies on top: an overlay, a notice, then what the screen has opened.
fn close(state: &mut State) {
    if state.overlays.pop().is_some() || state.notice.take().is_some() {
        return;
    }
    state.screen.page().close(state);
}

/// Asks, once.
pub fn ask(state: &mut State, question: Question) {
    state.overlays.retain(|o| !matches!(o, Overlay::Confirm(_)));
    state.overlays.push(Overlay::Confirm(question));
}

/// The answer yes.
pub fn agree(state: &mut State, question: Question) -> Vec<Effect> {
    match question {
        Question::Overwrite => experiments::overwrite(state),
        Question::QuitUnsaved => {
            state.experiments.discard = true;
            act(state, Action::Quit)
        }
        _ if !state.live.is_running() => match question {
            Question::Quit | Question::QuitNow => vec![Effect::Quit { interrupted: false }],
            _ => Vec::new(),
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

/// After every message: selections exist and can be seen, what is missing is asked for.
fn settle(state: &mut State, effects: &mut Vec<Effect>) {
    keys::bound(state);
    let body = body_of(state);
    for screen in Screen::ALL {
        screen.page().settle(state, body, effects);
    }
}
