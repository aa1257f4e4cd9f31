//! What a user can do: the actions and bindings that hold on every screen, and those of each page
//! behind one type. What is in no table of bindings cannot be done, and what is in one is shown: help
//! cannot lie.

use super::page::Page;
use super::screens::{compare, experiments, live, pareto, runs, timeline, whatif};

/// The pages of the workbench, in the order of their digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Screen {
    /// Experiment files.
    Experiments,
    /// The sweep that runs, or ran last.
    Live,
    /// Stored runs.
    Runs,
    /// Lanes of a trace.
    Timeline,
    /// Latency against per-GPU throughput.
    Pareto,
    /// Matched pairs along an axis.
    Compare,
    /// Sliders over the simulator.
    WhatIf,
}

impl Screen {
    /// All of them; the first has digit 1.
    pub const ALL: [Self; 7] = [
        Self::Experiments,
        Self::Live,
        Self::Runs,
        Self::Timeline,
        Self::Pareto,
        Self::Compare,
        Self::WhatIf,
    ];

    /// What it is.
    pub fn page(self) -> &'static dyn Page {
        match self {
            Self::Experiments => &experiments::Experiments,
            Self::Live => &live::Live,
            Self::Runs => &runs::Runs,
            Self::Timeline => &timeline::Timeline,
            Self::Pareto => &pareto::Pareto,
            Self::Compare => &compare::Compare,
            Self::WhatIf => &whatif::WhatIf,
        }
    }

    /// The word on its tab.
    pub fn title(self) -> &'static str {
        self.page().title()
    }

    /// The screen `by` tabs further, round and round.
    pub fn shifted(self, by: usize) -> Self {
        Self::ALL[(self as usize + by) % Self::ALL.len()]
    }
}

/// Something a user asks for; its [`Binding`] says in words what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Show(Screen),
    NextScreen,
    PreviousScreen,
    Help,
    Palette,
    Close,
    ToggleMouse,
    Quit,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    /// Read experiments and runs again.
    Reload,
    /// Type the path of a trace to open.
    TypeOpen,
    /// Write what is shown to a file.
    Export,
    /// Write a picture of the screen to a file.
    Picture,
    /// Copy the command that shows the same.
    CopyCommand,
    /// Start a what-if from what is selected.
    WhatIfHere,
    /// Show what was told until now.
    Messages,
    Experiments(experiments::Act),
    Live(live::Act),
    Runs(runs::Act),
    Timeline(timeline::Act),
    Pareto(pareto::Act),
    Compare(compare::Act),
    WhatIf(whatif::Act),
}

/// One row of a table of bindings.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// Its name within its page, for key maps: `sort-next`.
    pub id: &'static str,
    /// Its built-in keys, separated by blanks, the one to advertise first.
    pub keys: &'static str,
    /// What they do.
    pub action: Action,
    /// That in words, for help and palette.
    pub name: &'static str,
    /// A word or two for the footer, where it deserves a place there.
    pub hint: Option<&'static str>,
}

/// A row, in short.
pub const fn bind(
    id: &'static str,
    keys: &'static str,
    action: Action,
    name: &'static str,
    hint: Option<&'static str>,
) -> Binding {
    Binding { id, keys, action, name, hint }
}

/// What holds on every screen, in the order of help.
#[rustfmt::skip]
pub const EVERYWHERE: &[Binding] = &[
    bind("up", "Up k", Action::Up, "up one row", None),
    bind("down", "Down j", Action::Down, "down one row", None),
    bind("page-up", "PageUp ctrl-u", Action::PageUp, "up one page", None),
    bind("page-down", "PageDown ctrl-d", Action::PageDown, "down one page", None),
    bind("first", "Home", Action::First, "first row", None),
    bind("last", "End G", Action::Last, "last row", None),
    bind("show-experiments", "1", Action::Show(Screen::Experiments), "screen: experiments", None),
    bind("show-live", "2", Action::Show(Screen::Live), "screen: live", None),
    bind("show-runs", "3", Action::Show(Screen::Runs), "screen: runs", None),
    bind("show-timeline", "4", Action::Show(Screen::Timeline), "screen: timeline", None),
    bind("show-pareto", "5", Action::Show(Screen::Pareto), "screen: pareto", None),
    bind("show-compare", "6", Action::Show(Screen::Compare), "screen: compare", None),
    bind("show-what-if", "7", Action::Show(Screen::WhatIf), "screen: what-if", None),
    bind("what-if", "w", Action::WhatIfHere, "what if: sliders over the simulation of what is selected", None),
    bind("open", "o", Action::TypeOpen, "open a trace file", None),
    bind("export", "x", Action::Export, "export what is shown: SVG, PNG, CSV", Some("export")),
    bind("picture", "", Action::Picture, "picture of the screen: SVG, PNG", None),
    bind("messages", "M", Action::Messages, "messages until now", None),
    bind("copy-command", "Y", Action::CopyCommand, "copy the command that shows the same", None),
    bind("reload", "R", Action::Reload, "read experiments and runs again", Some("reload")),
    bind("next-screen", "Tab", Action::NextScreen, "next screen", None),
    bind("previous-screen", "shift-Tab", Action::PreviousScreen, "previous screen", None),
    bind("help", "?", Action::Help, "help", Some("help")),
    bind("palette", ":", Action::Palette, "palette of all actions", Some("palette")),
    bind("close", "Esc", Action::Close, "close what lies on top", None),
    bind("toggle-mouse", "m", Action::ToggleMouse, "mouse capture on or off", None),
    bind("quit", "q ctrl-c", Action::Quit, "quit", Some("quit")),
];
