//! Everything the workbench knows. Plain data: [`super::update`] changes it, screens draw it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use tui_input::Input;

use super::action::Screen;
use super::keymap::Keymap;
use super::message::Snapshot;
use super::mouse::Press;
use super::screens::{compare, experiments, live, pareto, runs, timeline, whatif};
use super::theme::Theme;

/// Messages that are kept.
const MESSAGES: usize = 200;

/// The state of the workbench.
#[derive(Debug)]
pub struct State {
    /// Columns and rows of the window.
    pub size: (u16, u16),
    /// Milliseconds since the workbench was opened.
    pub now_ms: u64,
    /// The screen shown.
    pub screen: Screen,
    /// What lies on the screen, the topmost last.
    pub overlays: Vec<Overlay>,
    /// Something the user is told.
    pub notice: Option<Notice>,
    /// Which key does what.
    pub keys: Keymap,
    /// What was told until now, the newest last.
    pub messages: VecDeque<(u64, Notice)>,
    /// Whether the mouse is captured.
    pub mouse: bool,
    /// Where and when the mouse's button went down last.
    pub press: Option<Press>,
    /// The user wants to leave as soon as the cancelled sweep has ended.
    pub leaving: bool,
    /// Colours.
    pub theme: Theme,
    /// The runs directory.
    pub dir: PathBuf,
    /// The runs directory's content, once read.
    pub stored: Option<Arc<Snapshot>>,
    /// Screen 1.
    pub experiments: experiments::state::Experiments,
    /// Screen 2.
    pub live: live::state::Live,
    /// Screen 3.
    pub runs: runs::state::Runs,
    /// Screen 4.
    pub timeline: timeline::state::Timeline,
    /// Screen 5.
    pub pareto: pareto::state::Pareto,
    /// Screen 6.
    pub compare: compare::state::Compare,
    /// Screen 7.
    pub whatif: whatif::state::WhatIf,
}

impl State {
    /// A workbench that has just been opened.
    pub fn new(dir: PathBuf, theme: Theme, size: (u16, u16)) -> Self {
        Self {
            size,
            now_ms: 0,
            screen: Screen::Experiments,
            overlays: Vec::new(),
            notice: None,
            keys: Keymap::default(),
            messages: VecDeque::new(),
            mouse: true,
            press: None,
            leaving: false,
            theme,
            dir,
            stored: None,
            experiments: experiments::state::Experiments::default(),
            live: live::state::Live::default(),
            runs: runs::state::Runs::default(),
            timeline: timeline::state::Timeline::default(),
            pareto: pareto::state::Pareto::default(),
            compare: compare::state::Compare::default(),
            whatif: whatif::state::WhatIf::default(),
        }
    }

    /// Whether the screen changes with time alone.
    pub fn is_moving(&self) -> bool {
        self.live.is_moving()
    }

    /// Tells the user something that a key press takes away.
    pub fn inform(&mut self, text: impl Into<String>) {
        self.tell(Notice { text: text.into(), error: false });
    }

    /// Tells the user what went wrong; stays until Escape.
    pub fn fail(&mut self, text: impl Into<String>) {
        self.tell(Notice { text: text.into(), error: true });
    }

    fn tell(&mut self, notice: Notice) {
        if self.messages.len() == MESSAGES {
            self.messages.pop_front();
        }
        self.messages.push_back((self.now_ms, notice.clone()));
        // what went wrong stays until it is closed, whatever else there is to tell
        if notice.error || !self.notice.as_ref().is_some_and(|n| n.error) {
            self.notice = Some(notice);
        }
    }
}

/// Something the user is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What; may have several lines.
    pub text: String,
    /// It went wrong: shown until it is closed.
    pub error: bool,
}

/// What lies on a screen and takes its keys.
#[derive(Clone, Debug)]
pub enum Overlay {
    /// All bindings.
    Help {
        /// First line shown.
        scroll: usize,
    },
    /// Actions by fuzzy search.
    Palette {
        /// What was typed.
        input: Input,
        /// Index into the matches.
        selected: usize,
    },
    /// A question.
    Confirm(Question),
    /// A line to be typed.
    Prompt(Prompt),
    /// A text, such as an experiment's file.
    Text {
        /// Its name.
        title: String,
        /// Its lines.
        lines: Vec<String>,
        /// First line shown.
        scroll: usize,
    },
}

/// A line that the user is asked for.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// What is asked.
    pub title: String,
    /// What may be typed.
    pub hint: String,
    /// What was typed.
    pub input: Input,
    /// Why it could not be used.
    pub error: Option<String>,
    /// What it is for.
    pub purpose: Purpose,
}

/// What a typed line is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The path of a file to be written: what is shown.
    Export,
    /// The path of a table of points to be shown beside the runs.
    ParetoOverlay,
    /// The path of a file to be written: a picture of the screen.
    Picture,
    /// The timeline's.
    Timeline(super::screens::timeline::Typed),
}

/// What is asked before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Leave although a sweep runs?
    Quit,
    /// Leave although the cancelled sweep has not yet ended?
    QuitNow,
    /// Cancel the whole sweep?
    CancelAll,
    /// Leave although experiments were edited and not saved?
    QuitUnsaved,
    /// Write over an experiment's file that somebody else has changed?
    Overwrite,
}

impl Question {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Quit => "A sweep is running. Cancel it and quit? Finished runs are stored.",
            Self::QuitNow => "The sweep is still ending. Quit without waiting for it?",
            Self::CancelAll => "Cancel the whole sweep? Finished runs are stored.",
            Self::QuitUnsaved => {
                "Experiments marked * were edited and not saved. Quit and lose the edits?"
            }
            Self::Overwrite => {
                "The file is not as it was read: somebody changed it, or it is there already. Write over it?"
            }
        }
    }
}

/// A selection in rows that may not all fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// The selected row.
    pub selected: usize,
    /// The first row shown.
    pub offset: usize,
}

impl List {
    /// Moves the selection, not beyond the ends of `len` rows.
    pub fn move_by(&mut self, by: isize, len: usize) {
        self.selected = self.selected.saturating_add_signed(by).min(len.saturating_sub(1));
    }

    /// Makes the selection exist and be among the `height` rows shown.
    pub fn fit(&mut self, len: usize, height: usize) {
        self.selected = self.selected.min(len.saturating_sub(1));
        let height = height.max(1);
        self.offset = self.offset.clamp((self.selected + 1).saturating_sub(height), self.selected);
        self.offset = self.offset.min(len.saturating_sub(height));
    }
}
