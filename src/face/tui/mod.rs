//! The workbench: a terminal interface to experiments, runs, timelines, frontiers, comparisons.
//!
//! ```text
//! event     waits for keys, answers and the sweep, updates the state, performs effects, draws
//! update    changes the state: pure, no clock, no file, no thread
//! screen    the trait of screens ([`screen::Screen`]); screens/ holds one folder each
//! context   what all screens share, and their ways out
//! task      questions that take longer than a key press, and which answers are stale
//! scope     the filter that goes from screen to screen, the experiment that results open on
//! overlay   the trait of overlays ([`overlay::Overlay`])
//! pick      the list to choose from; palette, opener: the lists of actions, of runs and files to open
//! checklist items to show or hide; prompt: a line, yes or no; texts: help, texts, pictures
//! effects   performs: threads for questions, the store's worker, the sweep, the terminal
//! view      draws the tabs, the screen, the footer, the overlays
//! ```
//!
//! # A screen
//!
//! A screen is a value with its own state. `impl Acts` lists its actions and their keys (help, palette, footer and
//! key maps read the same table), `impl Kept` names the part of its state that outlives the workbench, and
//! `impl Screen` draws it and handles input, news and requests. It gets its own `&mut self` and the
//! `context::Context`, and cannot see another screen: it asks the workbench with a `context::Request` to open runs
//! or to sweep an experiment. Only the screen that is shown settles after a message; news such as other stored runs
//! reach all. A new screen is a folder in `screens/` and its line in `screens/mod.rs`: tab, digit, help, palette,
//! memory and export follow.
//!
//! # A question
//!
//! Work that takes longer than a key press is asked where it is wanted, together with the use of its answer:
//!
//! ```ignore
//! let store = Store::open(&cx.dir);
//! cx.want("whole", &run, move |_| store.get(&run), |screen: &mut Self, whole, cx| {
//!     screen.whole = cx.told(whole).map(Box::new);
//! });
//! ```
//!
//! `cx.ask` asks now; a newer question of the same name makes the older one stale: its work can see that it
//! should stop, and its answer never arrives. `want`, called from `settle` after every message, asks when its
//! key has changed; `follow` does so one after the other, so that answers follow a held key. Overlays ask with
//! `ask_own` and `want_own`. A panic in the work is an error of the answer. Long-lived work (the sweep, the worker
//! that reads and changes the stored runs) is an effect of its own.
//!
//! # Asking the user
//!
//! `cx.prompt` asks for a line; `cx.pick` offers a list that is searched by typing; `cx.confirm` asks yes or no;
//! `cx.inform` and `cx.fail` tell something. Every line that is typed is a `widgets::field::Field`, over
//! `tui-input`; one that narrows a screen is a `FilterBox`. Lists with columns are `widgets::table`, drawn by
//! ratatui's `Table`.

mod action;
mod checklist;
pub mod config;
mod context;
mod conversions;
mod effects;
mod event;
mod export;
mod figures;
mod format;
mod keymap;
mod layout;
mod memory;
mod message;
mod mouse;
mod opener;
mod overlay;
mod palette;
mod paper;
mod pick;
mod pictures;
mod prelude;
mod preview;
mod prompt;
mod scope;
mod screen;
mod screens;
mod screenshot;
mod snapshot;
mod state;
mod task;
mod terminal;
mod texts;
mod theme;
mod trainings;
mod update;
mod view;
mod widgets;

#[cfg(test)]
mod tests;

pub use preview::Preview;

use std::io::IsTerminal;
use std::path::PathBuf;

use crate::desk::Opened;
use base::error::{Error, Result};
use base::terminal::takes_escapes;

/// How the workbench is opened.
#[derive(Debug, Default)]
pub struct Options {
    /// The directory in which runs are stored.
    pub dir: PathBuf,
    /// Open at the timeline of these traces, the first above the second.
    pub traces: Vec<Opened>,
    /// Show this stretch of the first (ns since its first start).
    pub window: Option<(i64, i64)>,
}

/// Where the workbench's settings are read; `None` where there is no home directory.
pub fn config_path() -> Option<PathBuf> {
    config::path()
}

/// What is wrong with the user's settings, a line each.
pub fn config_problems() -> Vec<String> {
    config::Config::load(&config::Surroundings::of_process()).wrong
}

/// The names of the built-in themes.
pub fn theme_names() -> impl Iterator<Item = &'static str> {
    theme::names()
}

/// A settings file that says what is built in, with the colours of a theme.
pub fn config_template(theme: &str) -> Result<String> {
    config::template(theme)
}

/// Gives the terminal back if the workbench has it; for what ends the program from another thread.
pub fn restore_terminal() {
    terminal::restore();
}

/// Opens the workbench; returns when the user quits. The terminal is restored whatever happens.
pub fn run(options: Options) -> Result<()> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Error::input_help(
            "the workbench needs a terminal",
            "every screen has a verb: ladderscope sweep, runs, show, overlap, pareto, compare",
        ));
    }
    if !takes_escapes() {
        return Err(Error::input_help(
            "the workbench draws with escape sequences, and TERM is 'dumb' or not set",
            "set TERM to the terminal's kind, such as xterm-256color; every screen has a verb: ladderscope runs, compare",
        ));
    }
    event::run(options)
}
