//! The workbench: a terminal interface to experiments, runs, timelines, frontiers and comparisons.
//!
//! ```text
//! for screens
//!   screen    trait of screens ([`screen::Screen`]); screens/ has one folder each
//!   context   state shared by all screens (window, stored runs), and their ways to reach outside
//!   keymap    actions and the keys bound to them; key has the names of keys
//!   task      background questions and stale answers
//!   overlay   trait of overlays ([`overlay::Overlay`]); text input, yes or no
//!   pick      searchable picker; ranking orders its lines
//!   texts     overlays: texts, pictures, items to show or hide
//!   glossary  marks of each screen, and terms, for the help
//!   regions   areas of the window, and cuts of areas
//!   widgets   tables, plots, lanes, text fields, wrapped text
//!   format    numbers and durations for people; theme has the colours
//!   figures   figures that screens export
//!
//! from an event to the frame
//!   keys      terminal events; joins keys that crossterm takes apart
//!   event     event loop: waits for keys, answers and the sweep, updates the state, performs effects, draws
//!   update    state changes; pure: no clock, files or threads
//!   mouse     pointer events and their routes
//!   history   undo and redo of the session's changes on all screens
//!   effects   executes effects: question threads, the store's worker, the sweep, the terminal
//!   view      draws the tabs, the screen, the overlays; footer the key hints, notice the messages
//!   terminal  setup and restoration of the terminal
//!
//! on all screens
//!   palette   picker of actions, items of all screens, traces and themes
//!   help      overlay: keys, marks and terms
//!   scope     runs that the result screens show: of one experiment, or all
//!   trace_picker  pickers of trace files and stored runs; recording a program
//!   conversions, trainings  overlays: stored conversions and trainings
//!   pictures, screenshot  pictures in the terminal, and of the window
//!
//! around a session
//!   config    settings of the user; memory has the state saved between sessions
//!   preview   headless timeline, for measurements
//! ```
//!
//! # Screens
//!
//! A screen is a value with its own state. `impl Acts` lists its actions and their keys (help, palette, footer and key
//! maps read the same table) and says why one is not possible now, `impl PersistentScreen` selects the state saved
//! between sessions, and `impl Screen` draws it and handles input, news and requests. A screen gets its own `&mut self`
//! and the `context::Context`, and cannot access other screens: to open runs or start a sweep, it sends a
//! `context::Request`. The event loop tells two screens what it found at startup, once, before the first frame. The
//! macro `screens!` in `screen` generates `Tab` and `State` from that list. Only the visible screen is settled after a
//! message; news, such as changed runs, reach all screens. To add a screen, create a folder in `screens/`, add it to
//! `screens/mod.rs`, and its marks to `marks` in `glossary`: tab, digit, footer, help, palette, saved state and export
//! follow.
//!
//! # Background questions
//!
//! Work that takes longer than a key press runs in the background. The question and the use of its
//! answer are written in one place:
//!
//! ```ignore
//! let store = Store::open(&cx.dir);
//! cx.want("whole", &run, move |_| store.get(&run), |screen: &mut Self, whole, cx| {
//!     screen.whole = cx.ok_or_fail(whole).map(Box::new);
//! });
//! ```
//!
//! `cx.ask` asks at once. A newer question with the same name makes the older one stale: its work can
//! see that it should stop, and its answer is dropped. `want`, called from `settle` after every message,
//! asks when its key has changed; `follow` does so sequentially, so that answers follow a held key.
//! Overlays use `ask_own` and `want_own`. A panic in the work becomes an error of the answer. Long-lived
//! work (the sweep, the store's worker) is an effect instead.
//!
//! # User input and messages
//!
//! `cx.prompt` asks for a line of text, `cx.pick` opens a searchable picker, `cx.confirm` asks yes or
//! no, and `cx.inform` and `cx.fail` show messages. All text input uses `widgets::field::TextField`, based
//! on `tui-input`; filters of a screen use `FilterBox`. Lists with columns use `widgets::table`, drawn
//! by ratatui's `Table`.

pub mod config;
mod context;
mod conversions;
mod effects;
mod event;
mod figures;
mod footer;
mod format;
mod glossary;
mod help;
mod history;
mod key;
mod keymap;
mod keys;
mod memory;
mod mouse;
mod notice;
mod overlay;
mod palette;
mod pick;
mod pictures;
mod preview;
mod ranking;
mod regions;
mod scope;
mod screen;
mod screens;
mod screenshot;
mod task;
mod terminal;
mod texts;
mod theme;
mod trace_picker;
mod trainings;
mod update;
mod view;
mod widgets;

/// Common imports of screens, overlays and widgets.
mod prelude {
    pub use crossterm::event::{KeyCode, KeyEvent};
    pub use ratatui::buffer::Buffer;
    pub use ratatui::layout::{Position, Rect};
    pub use ratatui::style::{Modifier, Style};
    pub use unicode_width::UnicodeWidthStr;

    pub use super::context::Snapshot;
    pub use super::context::{Context, Opening, Request, SelectedRun};
    pub use super::figures::Subject;
    pub use super::format::{cut, digits, ns, percent};
    pub use super::keymap::HintWords;
    pub(super) use super::keymap::acts;
    pub use super::overlay::{Prompt, PromptCompletion};
    pub use super::pick::{Pick, PickResult};
    pub use super::regions::{centered, cut_bottom, cut_left, cut_top, inside};
    pub use super::screen::{
        Acts, Command, Export, FileKind, Find, Hints, NO_COMMAND, NOTHING_TO_UNDO, News, OwnEdits,
        PersistentScreen, Pointer, PointerKind, Screen, ScreenInput, ScreenList, ScreenNote,
        ScreenSelection, ScreenStatus,
    };
    pub use super::screen::{State, Tab};
    pub use super::theme::{Role, Theme};
    pub use super::update::{Effect, StoreTask};
    pub use super::widgets::field::FilterBox;
    pub use super::widgets::list::{List, next_of};
    pub use super::widgets::paint::{
        empty, folded_notes, frame, hidden_rows, line, notes_hint, popup, put, select, selected,
    };
    pub use super::widgets::wrap::{
        first_fitting, headline_rows, is_whole, leading_clauses, whole_words, words_or_cut, wrap,
    };
    pub use base::text::counted;
}

#[cfg(test)]
mod tests;

use std::io::IsTerminal;
use std::path::PathBuf;

pub use preview::Preview;
pub use terminal::restore as restore_terminal;
pub use theme::names as theme_names;

use crate::desk::OpenedTrace;
use base::error::{Error, Result};
use base::text::takes_escapes;

#[derive(Debug, Default)]
pub struct WorkbenchOptions {
    pub dir: PathBuf,
    pub traces: Vec<OpenedTrace>,
    /// Interval of the first trace to show (ns since its first start).
    pub window: Option<(i64, i64)>,
}

/// Runs the workbench until the user quits. The terminal is restored even on a panic.
pub fn run(options: WorkbenchOptions) -> Result<()> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Error::input_help(
            "the workbench needs a terminal",
            "every screen has a verb: ladderscope sweep, runs, show, overlap, pareto, compare",
        ));
    }
    if !takes_escapes() {
        return Err(Error::input_help(
            "the workbench draws with escape sequences, and TERM is 'dumb' or not set",
            "set TERM to the terminal's kind, such as xterm-256color; every screen has a verb: ladderscope \
             runs, compare",
        ));
    }
    event::run(options)
}
