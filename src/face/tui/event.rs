//! Event loop: waits for keys, answers and signals, updates the state, performs effects, and redraws
//! only when something changed.

use std::io::{Stdout, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use crossterm::event::{Event, KeyEventKind, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;

use super::config::{Surroundings, WorkbenchConfig};
use super::effects::Performer;
use super::keys::{self, Keys};
use super::pictures::Pictures;
use super::prelude::*;
use super::update::{Message, begin, update};
use super::{WorkbenchOptions, format, memory, terminal, view};
use base::error::{Error, Result};

/// Minimum interval between frames that no key press triggered.
const FRAME: Duration = Duration::from_millis(100);

/// Redraw interval of a running sweep's clock.
const CLOCK: Duration = Duration::from_millis(500);

type Window = Terminal<CrosstermBackend<Stdout>>;

pub fn run(options: WorkbenchOptions) -> Result<()> {
    let failed = |error: std::io::Error| Error::failed(format!("the terminal: {error}"));
    let (sender, messages) = unbounded();
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGTSTP, SIGCONT]).map_err(failed)?;
    let handle = signals.handle();
    let config = WorkbenchConfig::load(&Surroundings::of_process());
    let memory = memory::path(&options.dir);
    let guard = terminal::take(config.mouse).map_err(failed)?;
    let mut window = Terminal::new(CrosstermBackend::new(std::io::stdout())).map_err(failed)?;
    let size = window.size().map_err(failed)?;
    let mut state = State::new(context(&options.dir, config, (size.width, size.height)));
    // screens read neither files nor variables
    let mut stored = std::fs::read_dir(&options.dir).into_iter().flatten();
    state.experiments.set_first_use(stored.next().is_none());
    state.pareto.set_pictures(Pictures::from_variable(|name| std::env::var(name).ok()));
    listen_to_signals(signals, sender.clone());
    listen_to_keys(sender.clone());
    let performer = Performer::new(&options.dir, sender);
    performer.watch();
    let mut workbench = Loop { state, performer, messages, opened: Instant::now() };
    let recalled = workbench.open(options, memory.as_deref());
    let left = workbench.work(&mut window);
    handle.close();
    // restore the terminal before the sweep has fully ended
    drop(guard);
    // an unwritable state directory must not make quitting fail
    if let Some(path) = &memory
        && let Err(error) = if recalled { Ok(()) } else { memory::keep_aside(path) }
            .and_then(|()| memory::save(path, &memory::remember(&workbench.state)))
            .and_then(|()| memory::save_theme(&workbench.state.cx))
    {
        // a closed stderr is no reason to fail
        let _ = writeln!(std::io::stderr(), "cannot save the session: {error}");
    }
    let patience = left.as_ref().map_or(true, |left| !left.at_once);
    if workbench.performer.finish(patience) {
        for message in workbench.messages.try_iter() {
            if let Message::Notified(Ok(text) | Err(text)) = message {
                let _ = writeln!(std::io::stderr(), "{text}");
            }
        }
    }
    match left.map_err(failed)? {
        Left { interrupted: true, .. } => Err(Error::Interrupted),
        Left { .. } => Ok(()),
    }
}

/// Context at startup, with the settings, and an error if some of them are wrong.
fn context(dir: &Path, config: WorkbenchConfig, size: (u16, u16)) -> Context {
    let mut cx = Context::new(dir.to_owned(), config.theme, size);
    cx.load = machine::environment::load;
    (cx.keys, cx.mouse, cx.cell_pixels) = (config.keys, config.mouse, terminal::cell_pixels());
    cx.themes = config.themes;
    memory::recall_theme(&mut cx);
    if let Some(first) = config.wrong.first() {
        let more = match config.wrong.len() {
            1 => String::new(),
            n => format!("\n{} more: ladderscope config --check lists all", n - 1),
        };
        cx.fail(format!("settings: {first}{more}"));
    }
    cx
}

#[derive(Clone, Copy, Debug)]
struct Left {
    interrupted: bool,
    /// Skip waiting for the sweep.
    at_once: bool,
}

struct Loop {
    state: State,
    performer: Performer,
    messages: Receiver<Message>,
    opened: Instant,
}

impl Loop {
    /// Starts everything; returns true if the saved session could be read.
    fn open(&mut self, options: WorkbenchOptions, memory: Option<&Path>) -> bool {
        let mut recalled = true;
        begin(&mut self.state);
        match memory.map_or(Ok(None), memory::load) {
            Ok(Some(memory)) => {
                memory::recall(&mut self.state, &memory, options.traces.is_empty());
            }
            Ok(None) => {}
            Err(error) => {
                recalled = false;
                self.state.cx.fail(format::error(&error));
            }
        }
        if !options.traces.is_empty() {
            let what = if options.traces.len() > 1 { "the traces" } else { "the trace" };
            let (timeline, cx) = (&mut self.state.timeline, &mut self.state.cx);
            timeline.open(what.into(), Opening::Alone(options.window), |_| Ok(options.traces), cx);
        }
        for effect in std::mem::take(&mut self.state.cx.effects) {
            self.performer.perform(effect);
        }
        recalled
    }

    fn work(&mut self, window: &mut Window) -> std::io::Result<Left> {
        self.draw(window)?;
        let mut drawn = Instant::now();
        loop {
            let Some(first) = self.receive() else {
                return Ok(Left { interrupted: true, at_once: false });
            };
            let began = Instant::now();
            let (mut next, mut urgent) = (Some(first), false);
            // handle every pending message before drawing; sweep events may be batched, but a constant
            // stream of them must not hold back frames
            while let Some(message) = next {
                urgent |= is_urgent(&message);
                match message {
                    Message::Stop | Message::Resume => self.pause(&message, window)?,
                    message => {
                        if let Some(left) = self.take(message) {
                            return Ok(left);
                        }
                    }
                }
                let calm = !urgent && self.state.cx.sweeps.moving;
                let gather = if calm { FRAME.saturating_sub(drawn.elapsed()) } else { Duration::ZERO };
                next = match began.elapsed() < FRAME {
                    true => self.messages.recv_timeout(gather).ok(),
                    false => None,
                };
            }
            self.draw(window)?;
            drawn = Instant::now();
        }
    }

    /// Suspends the process on `Stop`, and retakes the terminal when it resumes.
    fn pause(&self, message: &Message, window: &mut Window) -> std::io::Result<()> {
        if matches!(message, Message::Stop) {
            terminal::stop();
        }
        terminal::retake(self.state.cx.mouse)?;
        // the screen is blank, so the last frame's diff is invalid
        *window = Terminal::new(CrosstermBackend::new(std::io::stdout()))?;
        Ok(())
    }

    /// Draws a frame at the window's current size; the resize event may not have arrived yet.
    fn draw(&mut self, window: &mut Window) -> std::io::Result<()> {
        let size = window.size()?;
        if (size.width, size.height) != self.state.cx.size {
            // a resize never quits
            let _ = self.take(Message::Resize(size.width, size.height));
        }
        draw(window, &self.state)
    }

    /// Returns the next message, or a clock tick while a sweep runs and when the message in the footer goes away. `None`
    /// once all senders are gone.
    fn receive(&self) -> Option<Message> {
        let tick = match (self.state.cx.sweeps.moving, self.state.cx.notice_left_ms()) {
            (true, _) => CLOCK,
            (false, Some(left)) => Duration::from_millis(left),
            (false, None) => return self.messages.recv().ok(),
        };
        match self.messages.recv_timeout(tick) {
            Err(RecvTimeoutError::Timeout) => Some(Message::Clock(self.now())),
            other => other.ok(),
        }
    }

    fn now(&self) -> u64 {
        self.opened.elapsed().as_millis().try_into().unwrap_or(u64::MAX)
    }

    fn take(&mut self, message: Message) -> Option<Left> {
        if matches!(message, Message::Resize(..)) {
            self.state.cx.cell_pixels = terminal::cell_pixels();
        }
        let now = self.now();
        update(&mut self.state, Message::Clock(now));
        for effect in update(&mut self.state, message) {
            match effect {
                Effect::Quit { interrupted } => {
                    return Some(Left { interrupted, at_once: self.state.cx.sweeps.running.is_some() });
                }
                effect => self.performer.perform(effect),
            }
        }
        None
    }
}

fn draw(window: &mut Window, state: &State) -> std::io::Result<()> {
    #[cfg(debug_assertions)]
    break_on_purpose(window);
    window.draw(|frame| view::draw(frame.buffer_mut(), state)).map(|_| ())
}

/// True if the user is waiting for the effect of this message.
fn is_urgent(message: &Message) -> bool {
    !matches!(message, Message::Request(Request::SweepNews(_)) | Message::Clock(_))
}

/// Passes signals on. The thread ends when the handle of the signals is closed.
fn listen_to_signals(mut signals: Signals, sender: Sender<Message>) {
    std::thread::spawn(move || {
        for signal in signals.forever() {
            let _ = sender.send(match signal {
                SIGTSTP => Message::Stop,
                SIGCONT => Message::Resume,
                _ => Message::Terminate,
            });
        }
    });
}

/// Reads terminal events. The thread lives as long as the process because its read cannot be
/// interrupted.
fn listen_to_keys(sender: Sender<Message>) {
    std::thread::spawn(move || {
        let mut keys = Keys::new(keys::TerminalKeys);
        loop {
            let message = match keys.next() {
                // comes back as a signal, as it would without raw mode
                Ok(Event::Key(key)) if is_stop(&key) => {
                    terminal::ask_to_stop();
                    continue;
                }
                Ok(Event::Key(key)) => Message::Key(key),
                Ok(Event::Mouse(mouse)) => Message::Mouse(mouse),
                Ok(Event::Resize(columns, rows)) => Message::Resize(columns, rows),
                Ok(Event::Paste(text)) => Message::Paste(text),
                Ok(Event::FocusGained | Event::FocusLost) => continue,
                // the terminal is gone
                Err(_) => {
                    let _ = sender.send(Message::Terminate);
                    return;
                }
            };
            if sender.send(message).is_err() {
                return;
            }
        }
    });
}

/// True for Ctrl-Z.
fn is_stop(key: &KeyEvent) -> bool {
    key.code == KeyCode::Char('z')
        && key.modifiers == KeyModifiers::CONTROL
        && key.kind == KeyEventKind::Press
}

/// Panics on demand to test terminal restoration; debug builds only.
#[cfg(debug_assertions)]
fn break_on_purpose(window: &mut Window) {
    let wanted = std::env::var("LADDERSCOPE_PANIC_AT_FRAME").ok().and_then(|n| n.parse().ok());
    assert!(wanted != Some(window.get_frame().count()), "a defect on purpose");
}
