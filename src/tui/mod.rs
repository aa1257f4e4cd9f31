//! The workbench: a terminal interface to experiments, runs, timelines, frontiers, comparisons.
//!
//! `event` waits and draws, `update` decides, `effects` does, `view` and `screens` show, `action` says
//! what there is to do. The state changes in `update` alone; see there first.

mod action;
mod config;
mod effects;
mod event;
mod experiments;
mod export;
mod figures;
mod format;
mod keymap;
mod keys;
mod layout;
mod memory;
mod message;
mod mouse;
mod page;
mod palette;
mod preview;
mod screens;
mod screenshot;
mod state;
mod terminal;
mod theme;
mod update;
mod view;
mod widgets;

#[cfg(test)]
mod tests;

pub use preview::Preview;

use std::io::IsTerminal;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::trace::Trace;

/// How the workbench is opened.
#[derive(Debug, Default)]
pub struct Options {
    /// The runs directory.
    pub dir: PathBuf,
    /// Open at the timeline of these traces, the first above the second; each with what it was opened
    /// from, a file or a run.
    pub traces: Vec<(String, Trace)>,
    /// By which rules they were classified, as `--rules` takes them; `None`: the default ones.
    pub rules: Option<String>,
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

/// A settings file that says what is built in, with the colours of a theme.
pub fn config_template(theme: &str) -> Result<String> {
    config::template(theme)
}

/// Opens the workbench; returns when the user quits. The terminal is restored whatever happens.
pub fn run(options: Options) -> Result<()> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Error::input_help(
            "the workbench needs a terminal",
            "every screen has a verb: ladderscope sweep, runs, show, overlap, pareto, compare",
        ));
    }
    event::run(options)
}
