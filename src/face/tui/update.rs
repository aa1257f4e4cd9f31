//! `update(state, message) -> effects`: everything that happens to the state, and nothing else. No
//! clock, no files, no threads; what is to be done outside goes back as effects.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::action::Action;
use super::context::{Context, Request};
use super::export;
use super::format;
use super::keys;
use super::message::{Effect, Message, StoreTask, TraceSource};
use super::mouse;
use super::overlay::{Overlay, Question};
use super::palette;
use super::state::{State, Tab};
use crate::table::Record;

/// What the loop should do when the workbench opens.
pub fn begin() -> Vec<Effect> {
    vec![Effect::LoadExperiments, Effect::Store(StoreTask::Read)]
}

/// Takes in what happened; what is to be done about it comes back.
pub fn update(state: &mut State, message: Message) -> Vec<Effect> {
    match message {
        Message::Clock(now) => {
            state.cx.now_ms = now;
            return Vec::new();
        }
        Message::Resize(columns, rows) => state.cx.size = (columns, rows),
        Message::Key(key) if key.kind == KeyEventKind::Release => return Vec::new(),
        Message::Key(key) => press(state, key),
        Message::Mouse(event) => mouse::handle(state, event),
        Message::Paste(text) => keys::paste(state, &text),
        Message::Terminate => leave(state),
        Message::Answered(answer) => answer.deliver(state),
        result => learn(state, result),
    }
    serve(state);
    settle(state);
    serve(state);
    std::mem::take(&mut state.cx.effects)
}

/// Does what screens ask of the workbench.
fn serve(state: &mut State) {
    while let Some(request) = state.cx.requests.pop_front() {
        match request {
            Request::OpenRuns { runs, beneath } => open_runs(state, runs, beneath),
            Request::OpenRecord(record) => open_records(state, vec![*record], false),
            Request::Sweep { experiment, choice } => {
                state.live.sweep(experiment, choice, &mut state.cx);
            }
        }
    }
}

/// Results of effects and events of the sweep.
fn learn(state: &mut State, message: Message) {
    match message {
        Message::Experiments(entries) => {
            state.experiments.set(entries);
            state.experiments.match_stored(state.cx.stored.as_deref());
        }
        Message::Runs(Ok(snapshot)) => {
            let before = state.cx.stored.replace(snapshot.clone());
            for tab in Tab::ALL {
                let (screen, cx) = state.split(tab);
                screen.runs_changed(&snapshot, before.as_ref(), cx);
            }
        }
        Message::Runs(Err(error)) | Message::Told(Err(error)) => state.cx.fail(error),
        Message::Told(Ok(note)) => state.cx.inform(note),
        Message::DraftChecked { name, checked } => {
            if let Some(draft) = state.experiments.drafts.get_mut(&name) {
                draft.learn(checked);
            }
        }
        Message::Saved { save, result } => {
            state.experiments.saved(save, result, &mut state.cx);
        }
        Message::Sweep(event) => state.live.apply(*event, state.cx.now_ms),
        Message::SweepEnded(result) => {
            let ended = result.as_ref().copied().unwrap_or_default();
            state.live.end(ended, state.cx.now_ms);
            let cx = &mut state.cx;
            cx.drop_questions();
            if cx.leaving {
                cx.perform(Effect::Quit { interrupted: ended.interrupted });
                return;
            }
            match result {
                Ok(ended) if ended.failed > 0 => {
                    cx.fail(format!(
                        "{} of the sweep's runs failed; the others are stored",
                        ended.failed
                    ));
                }
                Ok(_) => {}
                Err(error) => cx.fail(error),
            }
            cx.perform(Effect::Store(StoreTask::Read));
            state.live.next_sweep(ended.interrupted, &mut state.cx);
        }
        Message::Trace { request, result } if request == state.timeline.request => match result {
            Ok(traces) => state.timeline.open(traces),
            Err(error) => {
                state.timeline.fail();
                state.cx.fail(error);
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
                state.cx.fail(error);
            }
        }
        // answers to what nobody asks any more, and what `update` has handled
        _ => {}
    }
}

/// A key: to the topmost overlay, else to what is being typed, else by the table of bindings.
fn press(state: &mut State, key: KeyEvent) {
    let ctrl_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    if state.cx.notice.as_ref().is_some_and(|n| !n.error) {
        state.cx.notice = None;
    }
    if ctrl_c {
        return act(state, Action::Quit);
    }
    if !state.cx.overlays.is_empty() {
        return keys::in_overlay(state, key);
    }
    let (screen, cx) = state.split(state.cx.tab);
    if !screen.typed(key, cx)
        && let Some(action) = cx.keys.lookup(cx.tab, &key)
    {
        act(state, action);
    }
}

/// Does an action, whoever asked for it: a key, the palette, the mouse.
pub fn act(state: &mut State, action: Action) {
    let (screen, cx) = state.split(state.cx.tab);
    match action {
        Action::Show(tab) => cx.tab = tab,
        Action::NextScreen => cx.tab = cx.tab.shifted(1),
        Action::PreviousScreen => cx.tab = cx.tab.shifted(Tab::ALL.len() - 1),
        Action::Help => cx.overlays.push(Overlay::Help { scroll: 0 }),
        Action::Palette => cx.type_into_palette(""),
        Action::TypeOpen => cx.type_into_palette(palette::OPEN),
        Action::Close => {
            if cx.overlays.pop().is_none() && cx.notice.take().is_none() {
                screen.close(cx);
            }
        }
        Action::ToggleMouse => {
            cx.mouse = !cx.mouse;
            cx.inform(match cx.mouse {
                true => "mouse captured: click tabs and rows, scroll with the wheel, drag on plots",
                false => "mouse free: the terminal selects text with it; the same key captures it again",
            });
            cx.perform(Effect::CaptureMouse(cx.mouse));
        }
        Action::Quit => quit(state),
        Action::Up => screen.step(-1, cx),
        Action::Down => screen.step(1, cx),
        Action::PageUp => screen.step(-screen.rows_of_a_page(cx), cx),
        Action::PageDown => screen.step(screen.rows_of_a_page(cx), cx),
        Action::First => screen.step(isize::MIN / 2, cx),
        Action::Last => screen.step(isize::MAX / 2, cx),
        Action::Reload => cx.effects.extend(begin()),
        Action::Export => export::ask(state, true),
        Action::Picture => export::ask(state, false),
        Action::Messages => show_messages(cx),
        Action::CopyCommand => export::copy_command(state),
        Action::On(tab, at) => {
            let (screen, cx) = state.split(tab);
            screen.perform(at, cx);
        }
        Action::WhatIfHere if cx.tab != Tab::WhatIf => {
            if let Some(selected) = screen.selected_run(cx) {
                state.whatif.start_from(&selected, &mut state.cx);
            }
            state.cx.tab = Tab::WhatIf;
        }
        Action::WhatIfHere => {}
    }
}

/// Leaves, or asks first: edits may be lost, a sweep be cut short.
fn quit(state: &mut State) {
    let question = |text: &str, yes: fn(&mut State)| Question { text: text.into(), yes: Box::new(yes) };
    if !state.experiments.discard && !state.experiments.edited().is_empty() {
        state.cx.tab = Tab::Experiments;
        let text = "Experiments marked * were edited and not saved. Quit and lose the edits?";
        state.cx.question(question(text, |state| {
            state.experiments.discard = true;
            quit(state);
        }));
    } else if !state.live.is_running() {
        state.cx.perform(Effect::Quit { interrupted: false });
    } else if state.cx.leaving {
        let text = "The sweep is still ending. Quit without waiting for it?";
        state.cx.question(question(text, |state| state.cx.perform(Effect::Quit { interrupted: true })));
    } else {
        let text = "A sweep is running. Cancel it and quit? Finished runs are stored.";
        state.cx.question(question(text, leave));
    }
}

/// Shows what was told until now, the newest first.
fn show_messages(cx: &mut Context) {
    let mut lines = Vec::new();
    for (ms, notice) in cx.messages.iter().rev() {
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
    cx.overlays.push(Overlay::Text { title: "messages since the start".into(), lines, scroll: 0 });
}

/// Opens the timelines of stored runs, from top to bottom.
fn open_runs(state: &mut State, runs: Vec<String>, beneath: bool) {
    let cx = &mut state.cx;
    if runs.is_empty() {
        return cx.inform("nothing is selected");
    }
    let mut records = Vec::new();
    for run in &runs {
        match cx.stored.as_ref().and_then(|s| s.find(run)).cloned() {
            Some(record) => records.push(record),
            None => {
                let reload = cx.keys.label(Action::Reload);
                let dir = cx.dir.display();
                return cx.fail(format!("run {run} is not in {dir}: {reload} reads it again"));
            }
        }
    }
    open_records(state, records, beneath);
}

/// Opens the timelines of runs, from top to bottom, or says why there are none.
fn open_records(state: &mut State, records: Vec<Record>, beneath: bool) {
    if let Some(record) = records.iter().find(|r| r.metrics.is_none()) {
        let reason = record.reason.as_deref().unwrap_or("no reason is recorded");
        let text = format!("run {} is {}: {reason}", record.run, record.status.as_str());
        return state.cx.inform(text);
    }
    let names: Vec<&str> = records.iter().map(|r| r.run.as_str()).collect();
    let names = names.join(" and ");
    let sources = records.into_iter().map(|r| TraceSource::Run(Box::new(r))).collect();
    open_traces(state, names, sources, beneath);
}

/// Opens a trace file that was typed or dropped.
pub fn open_path(state: &mut State, path: &str, beneath: bool) {
    open_traces(state, path.into(), vec![TraceSource::Path { path: path.into(), rules: None }], beneath);
}

fn open_traces(state: &mut State, what: String, sources: Vec<TraceSource>, beneath: bool) {
    let beneath = beneath && state.timeline.view.is_some();
    let request = state.timeline.request(what, beneath);
    state.cx.tab = Tab::Timeline;
    state.cx.perform(Effect::OpenTraces { request, sources });
}

/// Moves the selection of the current screen by rows.
pub fn step(state: &mut State, rows: isize) {
    let (screen, cx) = state.split(state.cx.tab);
    screen.step(rows, cx);
}

/// Leaves as soon as nothing runs any more; asked a second time, at once.
fn leave(state: &mut State) {
    let cx = &mut state.cx;
    if !state.live.is_running() || cx.leaving {
        return cx.perform(Effect::Quit { interrupted: true });
    }
    cx.leaving = true;
    cx.notice = None;
    state.live.cancel(cx);
}

/// After every message: selections exist and can be seen, what is missing is asked for.
fn settle(state: &mut State) {
    keys::bound(&mut state.cx);
    let body = state.cx.body();
    for tab in Tab::ALL {
        let (screen, cx) = state.split(tab);
        screen.settle(body, cx);
    }
}
