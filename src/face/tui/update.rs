//! `update(state, message) -> effects`: all state changes. Pure: no clock, files or threads; side effects are returned.
//!
//! Inputs of the workbench ([`Message`]) and the side effects it requests ([`Effect`]).

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crossterm::event::{KeyEventKind, KeyModifiers, MouseEvent, MouseEventKind};

use super::context::Notice;
use super::help::Help;
use super::key::Key;
use super::keymap::Action;
use super::prelude::*;
use super::regions::regions_of;
use super::task::{BackgroundTask, TaskAnswer};
use super::texts::TextView;
use super::widgets::field::first_line;
use super::{
    conversions, figures, format, history, mouse, overlay, palette, scope, trace_picker, trainings,
};
use lab::store;
use lab::sweep::{Experiment, SweepSelection};
use table::Record;

/// Requests a read of everything shown, at startup or on reload.
pub fn begin(state: &mut State) {
    tell_all(state, &News::Reload);
    state.cx.perform(Effect::Store(StoreTask::Read));
}

fn tell_all(state: &mut State, news: &News) {
    for tab in Tab::ALL {
        let (screen, cx) = state.split(tab);
        screen.react(news, cx);
    }
}

/// Applies a message to the state; returns the side effects.
pub fn update(state: &mut State, message: Message) -> Vec<Effect> {
    if let Message::Key(key) = message
        && key.kind != KeyEventKind::Release
        && follows_escape(state, &key)
    {
        // two inputs, so that the second one can undo what Escape did
        let then = KeyEvent { modifiers: key.modifiers - KeyModifiers::ALT, ..key };
        let mut effects = update(state, Message::Key(KeyCode::Esc.into()));
        effects.extend(update(state, Message::Key(then)));
        return effects;
    }
    let is_news = matches!(message, Message::Runs(_) | Message::Answered(_));
    let is_input = match &message {
        Message::Key(key) => key.kind != KeyEventKind::Release,
        Message::Mouse(event) => event.kind != MouseEventKind::Moved,
        message => matches!(message, Message::Paste(_)),
    };
    let before = is_input.then(|| history::before(state));
    match message {
        Message::Clock(now) => {
            state.cx.now_ms = now;
            if state.cx.notice_left_ms() == Some(0) {
                state.cx.notice = None;
            }
            overlay::tick(&mut state.cx);
            return std::mem::take(&mut state.cx.effects);
        }
        Message::Resize(columns, rows) => state.cx.size = (columns, rows),
        Message::Key(key) if key.kind == KeyEventKind::Release => return Vec::new(),
        Message::Key(key) => press(state, key),
        // the window is too small to show a target
        Message::Mouse(_) | Message::Paste(_) if regions_of(state.cx.size).is_none() => {}
        Message::Mouse(event) => mouse::handle(state, event),
        Message::Paste(text) => paste(state, &text),
        Message::Terminate => leave(state),
        // handled by the event loop
        Message::Stop | Message::Resume => {}
        Message::Answered(answer) => answered(state, answer),
        Message::Request(request) => state.cx.request(request),
        // reread and found unchanged
        Message::Runs(Ok(snapshot))
            if state.cx.stored.as_ref().is_some_and(|known| Arc::ptr_eq(known, &snapshot)) => {}
        Message::Runs(Ok(snapshot)) => {
            let before = state.cx.stored.replace(snapshot.clone());
            tell_all(state, &News::Runs { now: snapshot, before });
        }
        Message::Runs(Err(error)) | Message::Notified(Err(error)) => state.cx.fail(error),
        Message::Notified(Ok(note)) => state.cx.inform(note),
    }
    serve(state);
    if let Some(before) = before {
        history::after(state, before);
    }
    let tab = state.cx.tab;
    settle(state);
    serve(state);
    if state.cx.tab != tab {
        settle(state);
    }
    if is_news {
        palette::renew(state);
    }
    std::mem::take(&mut state.cx.effects)
}

/// Delivers an answer, then presses the keys that waited for it.
fn answered(state: &mut State, answer: TaskAnswer) {
    answer.deliver(state);
    let awaited = state.cx.top::<Pick>().is_some_and(|pick| pick.awaited);
    let enter = awaited.then(|| KeyEvent::from(KeyCode::Enter));
    for key in std::mem::take(&mut state.cx.early).into_iter().chain(enter) {
        // an overlay, input or screen that a key opens takes the following keys
        serve(state);
        settle(state);
        press(state, key);
    }
}

fn serve(state: &mut State) {
    while let Some(mut request) = state.cx.requests.pop_front() {
        for tab in Tab::ALL {
            let (screen, cx) = state.split(tab);
            let Some(other) = screen.serve(request, cx) else { break };
            request = other;
        }
    }
}

/// Routes a key: to the top overlay, else to an active input, else to the bindings.
pub fn press(state: &mut State, key: KeyEvent) {
    let ctrl_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    let is_g = key.code == KeyCode::Char('g') && key.modifiers.is_empty();
    let is_gg = is_g && state.cx.after_g;
    state.cx.after_g = is_g && !is_gg;
    if state.cx.notice.as_ref().is_some_and(|n| !n.error) {
        state.cx.notice = None;
    }
    if ctrl_c {
        return act(state, Action::Quit);
    }
    if regions_of(state.cx.size).is_none() {
        // nothing is visible, so no other key is handled
        if state.cx.keys.lookup(state.cx.tab, &key) == Some(Action::Quit) {
            act(state, Action::Quit);
        }
        return;
    }
    if let Some(top) = state.cx.overlays.pop() {
        // overlays opened by the key go above it
        let at = state.cx.overlays.len();
        if let Some(top) = top.key(key, state) {
            state.cx.overlays.insert(at.min(state.cx.overlays.len()), top);
        }
        return;
    }
    let (screen, cx) = state.split(state.cx.tab);
    if screen.input(ScreenInput::Key(key), cx) {
    } else if screen.filter().is_some_and(|filter| filter.key(key).is_some()) {
        screen.input(ScreenInput::Narrow, cx);
    } else if let Some(action) = cx.keys.lookup(cx.tab, &key) {
        // a message of the screen about this key, such as that an earlier one was dropped, outlives the action
        let said = cx.notice.take_if(|notice| !notice.error);
        act(state, action);
        state.cx.notice = state.cx.notice.take().or(said);
        if is_gg {
            // on a screen with a `g` of its own, the second `g` takes it back
            act(state, Action::First);
        }
    } else if is_gg {
        act(state, Action::First);
    } else if is_g {
        cx.inform("g again: first row");
    } else {
        let (label, help) = (Key::from_event(&key).label(), cx.keys.label(Action::Help));
        cx.inform(format!("{label} does nothing on this screen; {help} lists the keys"));
    }
}

/// True for a key with Alt that means nothing: terminals, tmux and ssh join Escape with a key that follows at once.
fn follows_escape(state: &mut State, key: &KeyEvent) -> bool {
    use KeyCode::{Backspace, Char, Left, Right};
    let edits_words = matches!(key.code, Char('b' | 'd' | 'f') | Left | Right | Backspace);
    let (screen, cx) = state.split(state.cx.tab);
    let is_typing = !cx.overlays.is_empty() || screen.filter().is_some_and(|filter| filter.typing);
    let is_bound = cx.keys.lookup(cx.tab, key).is_some();
    key.modifiers.contains(KeyModifiers::ALT) && !is_bound && !(is_typing && edits_words)
}

/// Routes pasted text to the active input, if any. A path dropped on the window also arrives as a paste;
/// it prefills the file picker, where Enter opens it.
fn paste(state: &mut State, text: &str) {
    if let Some(top) = state.cx.overlays.last_mut() {
        return top.paste(text);
    }
    let (screen, cx) = state.split(state.cx.tab);
    if screen.filter().is_some_and(|filter| filter.paste(text)) {
        screen.input(ScreenInput::Narrow, cx);
    } else if !screen.input(ScreenInput::Paste(text), cx) {
        let text: String = first_line(text).collect();
        if trace_picker::looks_like_path(&text) {
            cx.pick_file(&text, Opening::Alone(None));
        }
    }
}

pub fn act(state: &mut State, action: Action) {
    use Action::{Close, Down, First, Last, Messages, PageDown, PageUp, Up};
    let keeps = matches!(action, Up | Down | PageUp | PageDown | First | Last | Close | Messages);
    if !keeps && action != Action::Help {
        // a key has removed other notices, unless its screen gave one
        state.cx.notice.take_if(|notice| notice.error);
    }
    let (screen, cx) = state.split(state.cx.tab);
    match action {
        Action::Show(tab) => scope::show_screen(state, tab),
        Action::NextScreen => {
            let next = cx.tab.shifted(1);
            scope::show_screen(state, next);
        }
        Action::PreviousScreen => {
            let previous = cx.tab.shifted(Tab::ALL.len() - 1);
            scope::show_screen(state, previous);
        }
        Action::Help => {
            let mut notes = screen.notes(cx.body(), cx);
            notes.retain(|note| note.is_folded);
            cx.lay(Help::with(notes));
        }
        Action::Palette => palette::open(state, ""),
        Action::Find => palette::find(state),
        Action::TypeOpen => cx.pick_file("", Opening::Alone(None)),
        Action::Close => {
            if cx.overlays.pop().is_none() && cx.notice.take().is_none() {
                screen.input(ScreenInput::Close, cx);
            }
        }
        Action::ToggleMouse => toggle_mouse(cx),
        Action::Quit => quit(state),
        Action::Up => step(state, -1),
        Action::Down => step(state, 1),
        Action::PageUp => page(state, -1),
        Action::PageDown => page(state, 1),
        Action::First => step(state, isize::MIN / 2),
        Action::Last => step(state, isize::MAX / 2),
        Action::Reload => begin(state),
        Action::Scope => scope::toggle(state),
        Action::Export => figures::ask_export(state),
        Action::Figure => figures::ask(state),
        Action::Report => figures::ask_page(state),
        Action::Picture => figures::ask_picture(state),
        Action::Conversions => conversions::open(cx),
        Action::Trainings => trainings::open(cx),
        Action::Record => trace_picker::ask_recording(cx),
        Action::Messages => show_messages(cx),
        Action::Theme => cx.pick_theme(),
        Action::CopyCommand => figures::copy_command(state),
        Action::On(tab, at) => act_on(state, tab, at),
        Action::WhatIfHere => {
            let selected = match cx.tab {
                Tab::Experiments => state.experiments.typical_cell(),
                _ => screen.selection(cx).run,
            };
            state.cx.request(Request::WhatIf(selected.map(Box::new)));
        }
    }
}

/// Performs the binding at this index of a screen's table; undo and redo belong to the session's history first.
fn act_on(state: &mut State, tab: Tab, at: usize) {
    let back = match tab.bindings().get(at).map(|row| row.id) {
        Some("undo") => Some(true),
        Some("redo") => Some(false),
        _ => None,
    };
    if back.is_some_and(|back| history::travel(state, tab, back)) {
        return;
    }
    let (screen, cx) = state.split(tab);
    screen.perform(at, cx);
}

fn toggle_mouse(cx: &mut Context) {
    cx.mouse = !cx.mouse;
    cx.inform(match cx.mouse {
        true => "mouse captured: click, scroll, drag on plots",
        false => "mouse free to select text; the same key captures it",
    });
    cx.perform(Effect::CaptureMouse(cx.mouse));
}

/// Quits, after confirmation if edits would be lost or a sweep cut short.
fn quit(state: &mut State) {
    let question = |tab| Some((tab, state.screen(tab).status(&state.cx).unsaved?));
    if let Some((tab, text)) = Tab::ALL.into_iter().find_map(question) {
        state.cx.tab = tab;
        return state.cx.question(text, |state| {
            tell_all(state, &News::Discard);
            quit(state);
        });
    }
    let text = match (&state.cx.sweeps.running, state.cx.leaving) {
        (None, _) => return state.cx.perform(Effect::Quit { interrupted: false }),
        (Some(_), true) => "The sweep is still ending. Quit without waiting for it?",
        (Some(_), false) => "A sweep is running. Cancel it and quit? Finished runs are stored.",
    };
    state.cx.question(text, leave);
}

fn show_messages(cx: &mut Context) {
    const TITLE: &str = "messages since the start";
    if cx.messages.is_empty() {
        return cx.lay(TextView::plain(TITLE, vec!["no messages yet".into()]));
    }
    let message = |(ms, notice): &(u64, Notice)| {
        let (clock, glyph) = (format::clock(*ms), if notice.error { "✘" } else { " " });
        (format!("{clock:>7} {glyph} "), notice.text.clone())
    };
    let messages: Vec<(String, String)> = cx.messages.iter().rev().map(message).collect();
    cx.lay(TextView::new(TITLE, move |width| {
        let mut lines = Vec::new();
        for (before, text) in &messages {
            let blank = " ".repeat(before.width());
            for (at, row) in wrap(text, width.saturating_sub(before.width())).into_iter().enumerate() {
                let before = if at == 0 { before } else { &blank };
                lines.push(vec![(format!("{before}{row}"), Role::Text)]);
            }
        }
        lines
    }));
}

pub fn step(state: &mut State, rows: isize) {
    let (screen, cx) = state.split(state.cx.tab);
    if !screen.input(ScreenInput::Step(rows), cx)
        && let Some(shown) = screen.list(cx.body())
    {
        shown.list.move_by(rows, shown.len);
    }
}

fn page(state: &mut State, pages: isize) {
    let (screen, cx) = state.split(state.cx.tab);
    if !screen.input(ScreenInput::Page(pages), cx) {
        let rows = screen.list(cx.body()).map_or(4, |shown| page_rows(shown.height()));
        step(state, pages * rows);
    }
}

pub fn page_rows(height: usize) -> isize {
    (height as isize - 1).max(1)
}

/// Cancels the sweep and quits once it has ended; a second request quits immediately.
fn leave(state: &mut State) {
    let cx = &mut state.cx;
    if cx.sweeps.running.is_none() || cx.leaving {
        return cx.perform(Effect::Quit { interrupted: true });
    }
    cx.leaving = true;
    cx.notice = None;
    cx.request(Request::CancelSweep);
}

/// Called after every message: clamps the current screen's selection and requests missing answers.
fn settle(state: &mut State) {
    scope::settle(state);
    overlay::settle(&mut state.cx);
    let body = state.cx.body();
    let (screen, cx) = state.split(state.cx.tab);
    let fit = |screen: &mut dyn Screen| {
        if let Some(shown) = screen.list(body) {
            shown.list.fit(shown.len, shown.height());
        }
    };
    fit(screen);
    screen.settle(body, cx);
    // the list may have other rows now
    fit(screen);
}

/// Input event: a key, a result from a worker, a sweep event.
#[derive(Debug)]
pub enum Message {
    /// Time in milliseconds since the workbench was opened; sent before other messages.
    Clock(u64),
    Key(KeyEvent),
    /// Mouse event (only while captured).
    Mouse(MouseEvent),
    Paste(String),
    Resize(u16, u16),
    /// Termination signal, or the terminal is gone.
    Terminate,
    /// Suspend signal (Ctrl-Z, SIGTSTP).
    Stop,
    /// Resume after a suspend (`fg`, SIGCONT).
    Resume,
    Runs(Result<Arc<Snapshot>, String>),
    Notified(Result<String, String>),
    Answered(TaskAnswer),
    Request(Request),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepEnd {
    pub failed: usize,
    pub interrupted: bool,
}

#[derive(Debug)]
pub enum Effect {
    Quit {
        /// True if a sweep was cut short; reflected in the exit status.
        interrupted: bool,
    },
    Ask(BackgroundTask),
    Store(StoreTask),
    Sweep(SweepOrder),
    /// Writes an export; never overwrites an existing file.
    Export {
        export: Export,
        path: PathBuf,
    },
    /// Runs a job in the background to completion and reports its result.
    Do(BackgroundJob),
    Copy(String),
    CaptureMouse(bool),
}

pub struct BackgroundJob(pub Box<dyn FnOnce() -> Result<String, String> + Send>);

impl fmt::Debug for BackgroundJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BackgroundJob")
    }
}

/// Job on the stored runs; executed in order, each returns the new run list.
#[derive(Clone, Debug)]
pub enum StoreTask {
    Read,
    Append(Vec<Record>),
    Annotate {
        /// Full run ids.
        runs: Vec<String>,
        edit: store::AnnotationEdit,
    },
    Delete(Vec<String>),
    Restore,
}

#[derive(Clone, Debug)]
pub enum SweepOrder {
    Start {
        experiment: Arc<Experiment>,
        /// Runs to start: missing, failed, or all.
        choice: SweepSelection,
    },
    /// Pauses (starts no more runs) or resumes.
    Pause(bool),
    CancelCell(usize),
    /// Takes back the cancelling of a cell, for the runs that the sweep has not reached.
    RestoreCell(usize),
    /// Cancels the whole sweep, including the current run.
    CancelAll,
}
