//! Screen traits: a screen has its own state, bindings and drawing, and handles keys, the mouse and new runs. [`Tab`]
//! and [`State`], which holds all screens, are generated from the list of screens. See the workbench module for how to
//! add one.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::context::Context;
use super::keymap::{BindingRow, Listed};
use super::prelude::*;
use super::scope::ShownExperiment;
pub use super::screens::{State, Tab};
pub use crate::desk::export::FileKind;
use base::error::Result;

pub type Hints = &'static [(&'static str, &'static str)];

/// Screen with a table of bindings.
pub trait Acts: TabScreen {
    type Act: Listed;

    fn act(&mut self, act: Self::Act, cx: &mut Context);

    /// Reason why the act is not possible now, for the palette; the footer hides such acts. `None` if it is possible, or
    /// unknown because another screen is shown.
    fn why_not(&self, _act: Self::Act, _cx: &Context) -> Option<&'static str> {
        None
    }

    /// Footer words of the act in the current state, if they differ from those of its binding.
    fn hint(&self, _act: Self::Act, _cx: &Context) -> Option<HintWords> {
        None
    }
}

/// Screen state saved between sessions: sort order, filter, zoom.
pub trait PersistentScreen {
    type Kept: Serialize + DeserializeOwned;

    fn keep(&self) -> Option<Self::Kept>;

    fn restore(&mut self, kept: Self::Kept, cx: &mut Context);
}

/// Object-safe access to a screen's bindings and saved state.
pub trait AnyScreen {
    /// Performs the binding at this index of the screen's table.
    fn perform(&mut self, at: usize, cx: &mut Context);

    fn why_impossible(&self, at: usize, cx: &Context) -> Option<&'static str>;

    fn own_hint(&self, at: usize, cx: &Context) -> Option<HintWords>;

    fn remember(&self) -> Option<Value>;

    fn recall(&mut self, kept: &Value, cx: &mut Context);
}

impl<S: Acts + PersistentScreen> AnyScreen for S {
    fn perform(&mut self, at: usize, cx: &mut Context) {
        if let Some(binding) = S::Act::BINDINGS.get(at) {
            self.act(binding.act, cx);
        }
    }

    fn why_impossible(&self, at: usize, cx: &Context) -> Option<&'static str> {
        S::Act::BINDINGS.get(at).and_then(|binding| self.why_not(binding.act, cx))
    }

    fn own_hint(&self, at: usize, cx: &Context) -> Option<HintWords> {
        S::Act::BINDINGS.get(at).and_then(|binding| self.hint(binding.act, cx))
    }

    fn remember(&self) -> Option<Value> {
        serde_json::to_value(self.keep()?).ok()
    }

    fn recall(&mut self, kept: &Value, cx: &mut Context) {
        if let Ok(kept) = S::Kept::deserialize(kept) {
            self.restore(kept, cx);
        }
    }
}

/// Screen of the workbench. It never reads clocks, files or terminals itself; it asks through
/// [`Context::ask`].
pub trait Screen: AnyScreen {
    fn draw(&self, buf: &mut Buffer, body: Rect, cx: &Context);

    /// List that movement keys and the mouse act on, if any.
    fn list(&mut self, _body: Rect) -> Option<ScreenList<'_>> {
        None
    }

    /// Filter box, if any; receives keys and pasted text while it has focus.
    fn filter(&mut self) -> Option<&mut FilterBox> {
        None
    }

    /// Handles input; returns true if consumed. Otherwise keys go to the filter and the bindings, and
    /// mouse and movement to the list.
    fn input(&mut self, _input: ScreenInput<'_>, _cx: &mut Context) -> bool {
        false
    }

    /// False if the screen shows nothing that a file could hold.
    fn has_content(&self) -> bool {
        true
    }

    /// Reason why a screen without content exports nothing.
    fn nothing_to_export(&self) -> &'static str {
        "nothing to export yet"
    }

    /// Edits that the acts `undo` and `redo` of the screen take back and repeat. `None` if the session's history leaves
    /// these acts to the screen.
    fn own_edits(&self) -> Option<OwnEdits> {
        None
    }

    /// Reacts to news sent to all screens, visible or not.
    fn react(&mut self, _news: &News, _cx: &mut Context) {}

    /// Called after every message while visible: requests missing answers.
    fn settle(&mut self, _body: Rect, _cx: &mut Context) {}

    /// Serves a request, or returns it for another screen.
    fn serve(&mut self, request: Request, _cx: &mut Context) -> Option<Request> {
        Some(request)
    }

    fn status(&self, _cx: &Context) -> ScreenStatus {
        ScreenStatus::default()
    }

    /// Caveats of what is shown; the help begins with those for which the window has no room.
    fn notes(&self, _body: Rect, _cx: &Context) -> Vec<ScreenNote> {
        Vec::new()
    }

    fn selection(&self, _cx: &Context) -> ScreenSelection {
        ScreenSelection::default()
    }

    /// Items that the palette finds, and `/` on screens without a filter: experiments, runs, operations.
    fn finds(&self, _cx: &Context) -> Vec<Find> {
        Vec::new()
    }

    /// Equivalent command line, or the reason there is none.
    fn command(&self) -> std::result::Result<Command, &'static str> {
        Err(NO_COMMAND)
    }

    /// Content as a file of this kind, or the reason there is none. `Ok(None)` falls back to a picture
    /// of the screen; no table is available then.
    fn export(&self, _kind: FileKind, _cx: &Context) -> std::result::Result<Option<Export>, String> {
        Ok(None)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct OwnEdits {
    /// Number of edits to undo. Each edit adds one: an unchanged count means that nothing was edited.
    pub count: usize,
    /// True for moves of a view, which are undone on their own screen only.
    pub are_views: bool,
}

#[derive(Debug)]
pub struct ScreenList<'a> {
    pub list: &'a mut List,
    pub len: usize,
    /// Area of the visible items, without the header.
    pub area: Rect,
    /// Rows of an item.
    pub rows: u16,
}

impl ScreenList<'_> {
    /// Items that fit.
    pub fn height(&self) -> usize {
        usize::from(self.area.height / self.rows.max(1))
    }
}

#[derive(Clone, Copy, Debug)]
pub enum ScreenInput<'a> {
    /// Key, before the filter and any binding.
    Key(KeyEvent),
    Paste(&'a str),
    Mouse(Rect, Pointer),
    /// Move by rows; positive is down.
    Step(isize),
    /// Move by pages; positive is down.
    Page(isize),
    /// The filter text changed or lost focus.
    Narrow,
    /// Escape without an overlay: closes what the screen has opened.
    Close,
}

#[derive(Clone, Debug)]
pub enum News {
    /// Read files: at startup, and when the user requests it.
    Reload,
    Runs {
        now: Arc<Snapshot>,
        before: Option<Arc<Snapshot>>,
    },
    Discard,
}

#[derive(Clone, Debug, Default)]
pub struct ScreenStatus {
    /// Hints of an input line that currently takes all keys.
    pub hints: Option<Hints>,
    /// Hint of Escape, the first one of the footer: the level that it closes.
    pub closes: Option<HintWords>,
    /// Text at the right end of the tab row, on every screen.
    pub badge: Option<String>,
    /// Confirmation question while there are unsaved edits.
    pub unsaved: Option<&'static str>,
    /// Experiment that the screen shows; a key makes it the scope of the result screens.
    pub experiment: Option<ShownExperiment>,
}

/// Caveat about the current screen, such as the simulator's error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScreenNote {
    pub text: String,
    /// True if the screen does not show it, and counts it beside the key of the help instead.
    pub is_folded: bool,
    /// True for the row that has the hint: if it is folded, its beginning is shown.
    pub is_beside_hint: bool,
}

impl ScreenNote {
    pub fn new(text: impl Into<String>, is_folded: bool) -> Self {
        Self { text: text.into(), is_folded, is_beside_hint: false }
    }

    /// Whole text of the row that has the hint.
    pub fn beside_hint(text: impl Into<String>, is_cut: bool) -> Self {
        Self { is_beside_hint: true, ..Self::new(text, is_cut) }
    }
}

/// Item of a screen that can be searched and gone to.
pub struct Find {
    pub name: String,
    /// Kind and description of the item: `experiment  How much ...`.
    pub about: String,
    /// Other words that find it.
    pub also: String,
    /// Reason why an action is not possible now.
    pub why_not: Option<&'static str>,
    pub go: Box<dyn FnOnce(&mut State)>,
}

impl Find {
    pub fn new<S: TabScreen>(
        name: impl Into<String>,
        about: impl Into<String>,
        go: impl FnOnce(&mut S, &mut Context) + 'static,
    ) -> Self {
        let go = Box::new(move |state: &mut State| {
            let (screen, cx) = S::screen_and_context(state);
            cx.tab = S::TAB;
            go(screen, cx);
        });
        Self { name: name.into(), about: about.into(), also: String::new(), why_not: None, go }
    }

    pub fn also(self, also: impl Into<String>) -> Self {
        Self { also: also.into(), ..self }
    }
}

#[derive(Clone, Debug, Default)]
pub struct ScreenSelection {
    pub run: Option<SelectedRun>,
    pub figure: Subject,
}

/// Reason why an act `undo` is not possible.
pub const NOTHING_TO_UNDO: &str = "nothing to undo";

/// Message when no command line shows the same view.
pub const NO_COMMAND: &str = "nothing is shown here that a command could show";

/// Command line that shows the same view: `pareto --p2p on`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Arguments without the program name and `--dir`.
    pub words: Vec<String>,
    /// Parts of the view that the command cannot express, in words.
    pub beyond: Vec<String>,
}

impl From<Vec<String>> for Command {
    fn from(words: Vec<String>) -> Self {
        Self { words, beyond: Vec::new() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    pub kind: PointerKind,
    pub at: Position,
    pub shift: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerKind {
    Click,
    /// Second press in quick succession at the same place.
    DoubleClick,
    Drag(Position),
    Drop(Position),
    /// Wheel, in notches; positive is down.
    Wheel(isize),
    /// Horizontal wheel, in notches; positive is right.
    WheelSideways(isize),
}

type Writer = dyn Fn(&Path) -> Result<()> + Send + Sync;

#[derive(Clone)]
pub struct Export {
    write: Arc<Writer>,
    /// Contents in words: `2 marked runs`.
    pub holds: Option<String>,
}

impl Export {
    /// Creates an export from a function that writes the file atomically.
    pub fn new(write: impl Fn(&Path) -> Result<()> + Send + Sync + 'static) -> Self {
        Self { write: Arc::new(write), holds: None }
    }

    pub fn text(text: String) -> Self {
        Self::new(move |path| base::atomic::write(path, text.as_bytes()))
    }

    /// Names the contents, for the message that the file is written.
    pub fn holding(self, what: impl Into<String>) -> Self {
        Self { holds: Some(what.into()), ..self }
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        (self.write)(path)
    }
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Export")
    }
}

/// Screen as part of the state, so that answers and typed input can be routed back to it.
pub trait TabScreen: Sized + 'static {
    const TAB: Tab;

    /// Borrows the screen and the shared context.
    fn screen_and_context(state: &mut State) -> (&mut Self, &mut Context);
}

/// Bindings of a screen, in help order.
pub fn binding_rows<S: Acts>() -> Vec<BindingRow> {
    S::Act::BINDINGS.iter().map(|binding| binding.row).collect()
}

/// Generates the types from a list of `module::Type => "title", "title in a narrow window"` in digit order.
macro_rules! screens {
    ($($module:ident::$type:ident => $title:literal, $short_title:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Tab {
            $(#[doc = $title] $type,)*
        }

        impl Tab {
            /// All tabs; the first has digit 1.
            pub const ALL: [Self; [$($title),*].len()] = [$(Self::$type),*];

            /// Binding name and description for showing each screen.
            pub const SHOW: [(&'static str, &'static str); [$($title),*].len()] =
                [$((concat!("show-", $title), concat!("screen: ", $title))),*];

            /// Tab title, also the prefix of the screen's binding names.
            pub fn title(self) -> &'static str {
                match self {
                    $(Self::$type => $title,)*
                }
            }

            pub fn short_title(self) -> &'static str {
                match self {
                    $(Self::$type => $short_title,)*
                }
            }

            /// Tab `by` positions further, wrapping around.
            pub fn shifted(self, by: usize) -> Self {
                Self::ALL[(self as usize + by) % Self::ALL.len()]
            }

            pub fn bindings(self) -> Vec<$crate::face::tui::keymap::BindingRow> {
                match self {
                    $(Self::$type => $crate::face::tui::screen::binding_rows::<$module::$type>(),)*
                }
            }
        }

        /// State of the whole workbench. [`super::update`] changes it, screens draw it.
        #[derive(Debug)]
        pub struct State {
            pub cx: $crate::face::tui::context::Context,
            $(#[doc = $title] pub $module: $module::$type,)*
        }

        impl State {
            pub fn new(cx: $crate::face::tui::context::Context) -> Self {
                Self { cx, $($module: Default::default(),)* }
            }

            pub fn screen(&self, tab: Tab) -> &dyn $crate::face::tui::screen::Screen {
                match tab {
                    $(Tab::$type => &self.$module,)*
                }
            }

            pub fn split(
                &mut self,
                tab: Tab,
            ) -> (&mut dyn $crate::face::tui::screen::Screen, &mut $crate::face::tui::context::Context) {
                match tab {
                    $(Tab::$type => (&mut self.$module, &mut self.cx),)*
                }
            }
        }

        $(impl $crate::face::tui::screen::TabScreen for $module::$type {
            const TAB: Tab = Tab::$type;

            fn screen_and_context(state: &mut State) -> (&mut Self, &mut $crate::face::tui::context::Context) {
                (&mut state.$module, &mut state.cx)
            }
        })*
    };
}
pub(super) use screens;
