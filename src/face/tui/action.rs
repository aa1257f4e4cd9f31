//! User actions: global ones, and those in each screen's binding table. Help and the palette read the
//! same tables that dispatch keys, so they always agree.

use super::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Show(Tab),
    NextScreen,
    PreviousScreen,
    Help,
    Palette,
    Find,
    Close,
    ToggleMouse,
    Quit,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Reload,
    Scope,
    TypeOpen,
    Export,
    Figure,
    Picture,
    CopyCommand,
    WhatIfHere,
    Conversions,
    Trainings,
    Record,
    Messages,
    Theme,
    /// Binding at this index of a screen's table.
    On(Tab, usize),
}

impl Action {
    pub fn of<S: Acts>(act: S::Act) -> Self {
        // a test presses every binding: an act without a table entry has no action
        let at = S::Act::BINDINGS.iter().position(|binding| binding.act == act);
        Self::On(S::TAB, at.unwrap_or(usize::MAX))
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Name within its screen, as in key maps: `sort-next`.
    pub id: &'static str,
    /// Built-in keys, separated by spaces; the first is the one shown in hints.
    pub keys: &'static str,
    pub name: &'static str,
    /// One or two words for the footer; `None` keeps it out of the footer.
    pub hint: Option<&'static str>,
}

#[derive(Clone, Copy, Debug)]
pub struct Binding<A> {
    pub row: Row,
    pub act: A,
}

pub const fn bind<A: Copy>(
    id: &'static str,
    keys: &'static str,
    act: A,
    name: &'static str,
    hint: Option<&'static str>,
) -> Binding<A> {
    Binding { row: Row { id, keys, name, hint }, act }
}

pub trait Listed: Copy + PartialEq + 'static {
    /// Keys and description of each act, in help order.
    const BINDINGS: &'static [Binding<Self>];
}

/// Defines a screen's acts in help order: the variant name, then the arguments of [`bind`].
macro_rules! acts {
    ($($act:ident: $id:literal, $keys:literal, $name:literal, $hint:expr;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Act {
            $(#[doc = $name] $act,)*
        }

        impl $crate::face::tui::action::Listed for Act {
            const BINDINGS: &'static [$crate::face::tui::action::Binding<Self>] =
                &[$($crate::face::tui::action::bind($id, $keys, Self::$act, $name, $hint),)*];
        }
    };
}
pub(super) use acts;

/// List movement, on every screen.
#[rustfmt::skip]
pub const MOVING: &[Binding<Action>] = &[
    bind("up", "Up k", Action::Up, "up one row", None),
    bind("down", "Down j", Action::Down, "down one row", None),
    bind("page-up", "PageUp ctrl-u", Action::PageUp, "up one page", None),
    bind("page-down", "PageDown ctrl-d", Action::PageDown, "down one page", None),
    bind("first", "Home", Action::First, "first row (also gg)", None),
    bind("last", "End G", Action::Last, "last row", None),
];

/// Other words that find actions in the palette, by id.
pub const SYNONYMS: [(&str, &str); 30] = [
    ("run", "start launch sweep"),
    ("run-all", "rerun restart repeat"),
    ("retry-failed", "rerun repeat"),
    ("cancel-all", "stop abort kill"),
    ("cancel-cell", "stop abort kill"),
    ("pause", "resume stop"),
    ("save", "write"),
    ("delete", "remove rm trash"),
    ("remove", "delete rm"),
    ("undo", "revert back"),
    ("filter", "search narrow query"),
    ("search", "find"),
    ("sort-next", "order"),
    ("side-by-side", "diff compare"),
    ("open", "load import profile trace"),
    ("record", "profile capture nsys"),
    ("what-if", "predict simulate slider link"),
    ("what-if-traced", "predict simulate slider link"),
    ("predict", "simulate ghost"),
    ("exposed", "communication collectives"),
    ("operations", "kernels"),
    ("verdict", "summary diagnosis why"),
    ("critical-path", "bottleneck"),
    ("export", "save csv svg png"),
    ("figure", "plot chart paper pdf"),
    ("picture", "screenshot image capture print"),
    ("messages", "log errors history"),
    ("copy-command", "clipboard yank shell cli"),
    ("help", "keys shortcuts manual"),
    ("quit", "exit close leave"),
];

/// Other words for an action; empty if it has none.
pub fn synonyms(id: &str) -> &'static str {
    SYNONYMS.iter().find(|(of, _)| *of == id).map_or("", |(_, words)| words)
}

pub const DIGITS: [&str; 9] = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];

/// Bindings on every screen apart from movement and screen switching, in help order.
#[rustfmt::skip]
pub const EVERYWHERE: &[Binding<Action>] = &[
    bind("what-if", "w", Action::WhatIfHere, "what-if: sliders, starting from the selected run", None),
    bind("open", "o", Action::TypeOpen, "open a trace file", None),
    bind("scope", "*", Action::Scope, "show runs of one experiment, or of all", None),
    bind("export", "x", Action::Export, "export the view: SVG, PNG, CSV", Some("export")),
    bind("figure", "", Action::Figure, "draw a figure for a paper", None),
    bind("picture", "", Action::Picture, "take a screenshot: SVG, PNG", None),
    bind("conversions", "", Action::Conversions, "layers to convert: quality and speedup of each set", None),
    bind("trainings", "", Action::Trainings, "loss curves of trainings", None),
    bind("record", "", Action::Record, "record a program: run a command and open its trace", None),
    bind("messages", "M", Action::Messages, "message history", None),
    bind("theme", "", Action::Theme, "choose a colour theme", None),
    bind("copy-command", "Y", Action::CopyCommand, "copy the equivalent command", None),
    bind("reload", "F5", Action::Reload, "reload experiments and runs", None),
    bind("next-screen", "Tab", Action::NextScreen, "next screen", None),
    bind("previous-screen", "shift-Tab", Action::PreviousScreen, "previous screen", None),
    bind("help", "?", Action::Help, "help", Some("help")),
    bind("palette", ": ctrl-p", Action::Palette, "palette: actions, experiments, runs, traces, operations, settings", Some("palette")),
    bind("find", "/", Action::Find, "find on this screen", None),
    bind("close", "Esc", Action::Close, "close the popup", None),
    bind("toggle-mouse", "m", Action::ToggleMouse, "mouse capture on or off", None),
    bind("quit", "q ctrl-c", Action::Quit, "quit", Some("quit")),
];
