//! What a user can do: what holds on every screen, and what a screen's own table of bindings says. What is in
//! no table of bindings cannot be done, and what is in one is shown: help cannot lie.

use super::prelude::*;

/// Something a user asks for; its [`Row`] says in words what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Show(Tab),
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
    /// Draw a figure for a paper.
    Figure,
    /// Write a picture of the screen to a file.
    Picture,
    /// Copy the command that shows the same.
    CopyCommand,
    /// Start a what-if from what is selected.
    WhatIfHere,
    /// Show what converting layers costs and gives.
    Conversions,
    /// Shows the stored trainings.
    Trainings,
    /// Show what was told until now.
    Messages,
    /// Choose the theme: the colours of the workbench.
    Theme,
    /// What the binding at this place of a screen's table says.
    On(Tab, usize),
}

impl Action {
    /// What can be done on a screen, as an action.
    pub fn of<S: Acts>(act: S::Act) -> Self {
        // a test presses every binding: what is in no table cannot be asked for
        let at = S::Act::BINDINGS.iter().position(|binding| binding.act == act);
        Self::On(S::TAB, at.unwrap_or(usize::MAX))
    }
}

/// A binding in words.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name within its screen, for key maps: `sort-next`.
    pub id: &'static str,
    /// Its built-in keys, separated by blanks, the one to advertise first.
    pub keys: &'static str,
    /// What they do, for help and palette.
    pub name: &'static str,
    /// A word or two for the footer, where it deserves a place there.
    pub hint: Option<&'static str>,
}

/// One row of a table of bindings.
#[derive(Clone, Copy, Debug)]
pub struct Binding<A> {
    /// The binding's name, its keys, and what it does in words.
    pub row: Row,
    /// What the keys do on the screen.
    pub act: A,
}

/// A row, in short.
pub const fn bind<A: Copy>(
    id: &'static str,
    keys: &'static str,
    act: A,
    name: &'static str,
    hint: Option<&'static str>,
) -> Binding<A> {
    Binding { row: Row { id, keys, name, hint }, act }
}

/// Acts that are listed with their keys and words.
pub trait Listed: Copy + PartialEq + 'static {
    /// Keys and words of each act, in the order of help.
    const BINDINGS: &'static [Binding<Self>];
}

/// Makes the acts of a screen, in the order of help: of each its name in the code, and what [`bind`] takes.
macro_rules! acts {
    ($($act:ident: $id:literal, $keys:literal, $name:literal, $hint:expr;)*) => {
        /// What can be done here.
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

/// Moving in a list, on every screen.
#[rustfmt::skip]
pub const MOVING: &[Binding<Action>] = &[
    bind("up", "Up k", Action::Up, "up one row", None),
    bind("down", "Down j", Action::Down, "down one row", None),
    bind("page-up", "PageUp ctrl-u", Action::PageUp, "up one page", None),
    bind("page-down", "PageDown ctrl-d", Action::PageDown, "down one page", None),
    bind("first", "Home", Action::First, "first row", None),
    bind("last", "End G", Action::Last, "last row", None),
];

/// The digits that show the screens, in the order of their tabs.
pub const DIGITS: [&str; 9] = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];

/// What holds on every screen beside moving and showing others, in the order of help.
#[rustfmt::skip]
pub const EVERYWHERE: &[Binding<Action>] = &[
    bind("what-if", "w", Action::WhatIfHere, "what if: sliders over the simulation of what is selected", None),
    bind("open", "o", Action::TypeOpen, "open a trace file", None),
    bind("export", "x", Action::Export, "export what is shown: SVG, PNG, CSV", Some("export")),
    bind("figure", "", Action::Figure, "figure for a paper: which, how large, in which file", None),
    bind("picture", "", Action::Picture, "picture of the screen: SVG, PNG", None),
    bind("conversions", "", Action::Conversions, "layers to convert: what sets of them cost and give", None),
    bind("trainings", "", Action::Trainings, "trainings: loss curves of what trains and has trained", None),
    bind("messages", "M", Action::Messages, "messages until now", None),
    bind("theme", "", Action::Theme, "theme: colours of the workbench", None),
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
