//! What a screen is: a value with its own state, bindings, drawing, and what it does with keys, the mouse and
//! new runs. The module of the workbench says how to add one.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::action::Listed;
use super::prelude::*;
use super::state::Placed;
pub use crate::desk::export::FileKind;
use base::error::Result;

/// Keys and what they do, in a word or two, for the footer.
pub type Hints = &'static [(&'static str, &'static str)];

/// What can be done on a screen, and how.
pub trait Acts: Placed {
    /// What can be done.
    type Act: Listed;

    /// Does what was asked for.
    fn act(&mut self, act: Self::Act, cx: &mut Context);

    /// Whether that can be done now: a key that does nothing is not advertised.
    fn can(&self, _act: Self::Act) -> bool {
        true
    }
}

/// The part of a screen's state that outlives the workbench: sort order, filter, zoom.
pub trait Kept {
    /// That state, as it is stored.
    type Kept: Serialize + DeserializeOwned;

    /// Returns the state to keep, if any.
    fn keep(&self) -> Option<Self::Kept>;

    /// Restores a state that was kept.
    fn restore(&mut self, kept: Self::Kept, cx: &mut Context);
}

/// What a screen of any type does through its table of bindings and its kept state.
pub trait AnyScreen {
    /// Does what the binding at this place of the screen's table says.
    fn perform(&mut self, at: usize, cx: &mut Context);

    /// True if that can be done now.
    fn is_possible(&self, at: usize) -> bool;

    /// The state to keep until the workbench is opened again.
    fn remember(&self) -> Option<Value>;

    /// Restores a state that was kept; ignores one that it cannot read.
    fn recall(&mut self, kept: &Value, cx: &mut Context);
}

impl<S: Acts + Kept> AnyScreen for S {
    fn perform(&mut self, at: usize, cx: &mut Context) {
        if let Some(binding) = S::Act::BINDINGS.get(at) {
            self.act(binding.act, cx);
        }
    }

    fn is_possible(&self, at: usize) -> bool {
        S::Act::BINDINGS.get(at).is_some_and(|binding| self.can(binding.act))
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

/// A screen of the workbench. Nothing in it reads clocks, files or terminals: it asks ([`Context::ask`]).
pub trait Screen: AnyScreen {
    /// Draws the screen into its part of the window.
    fn draw(&self, buf: &mut Buffer, body: Rect, cx: &Context);

    /// Its list, where it has one: keys and the mouse move in it.
    fn list(&mut self, _body: Rect) -> Option<ScreenList<'_>> {
        None
    }

    /// The line that narrows what is shown, where there is one: keys and pasted text go to it while it is typed.
    fn filter(&mut self) -> Option<&mut FilterBox> {
        None
    }

    /// Handles input, and returns true if it is used up. Otherwise keys go on to the filter and the bindings, and
    /// the mouse and moves to the list.
    fn input(&mut self, _input: Input<'_>, _cx: &mut Context) -> bool {
        false
    }

    /// Reacts to news that concern all screens, whichever is shown.
    fn react(&mut self, _news: &News, _cx: &mut Context) {}

    /// After every message, while it is shown: asks for missing answers.
    fn settle(&mut self, _body: Rect, _cx: &mut Context) {}

    /// Serves a request to the workbench, or gives it back for another screen.
    fn serve(&mut self, request: Request, _cx: &mut Context) -> Option<Request> {
        Some(request)
    }

    /// What the window around the screen shows of it.
    fn status(&self, _cx: &Context) -> ScreenStatus {
        ScreenStatus::default()
    }

    /// What actions of the workbench start from.
    fn selection(&self, _cx: &Context) -> Selection {
        Selection::default()
    }

    /// The command that shows the same, or why there is none.
    fn command(&self) -> std::result::Result<Command, &'static str> {
        Err(NO_COMMAND)
    }

    /// The content as a file of this kind, or why there is none. `None`: a picture of the screen, and no table.
    fn export(&self, _kind: FileKind, _cx: &Context) -> std::result::Result<Option<Export>, String> {
        Ok(None)
    }
}

/// A list on a screen.
#[derive(Debug)]
pub struct ScreenList<'a> {
    /// Its selection.
    pub list: &'a mut List,
    /// How many rows it has.
    pub len: usize,
    /// The area of the rows shown, without a header.
    pub area: Rect,
}

/// Input that goes to the screen that is shown.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A key, before the filter and any binding.
    Key(KeyEvent),
    /// Pasted text.
    Paste(&'a str),
    /// The mouse, and the body that it is used on.
    Mouse(Rect, Pointer),
    /// Moves by rows, down if positive.
    Step(isize),
    /// Moves by pages, down if positive.
    Page(isize),
    /// The filter was typed into or left.
    Narrow,
    /// Escape with nothing on top: closes what the screen has opened.
    Close,
}

/// News that concern all screens.
#[derive(Clone, Debug)]
pub enum News {
    /// Files are to be read: when the workbench opens, and when the user asks for it.
    Reload,
    /// There are other stored runs, or other tags and notes on them.
    Runs {
        /// The runs.
        now: Arc<Snapshot>,
        /// The runs until now.
        before: Option<Arc<Snapshot>>,
    },
    /// The user leaves without saving.
    Discard,
}

/// What the window around a screen shows of it.
#[derive(Clone, Debug, Default)]
pub struct ScreenStatus {
    /// The keys of a line that is typed, while it takes them all.
    pub hints: Option<Hints>,
    /// The text at the right end of the row of tabs, whichever screen is shown.
    pub badge: Option<String>,
    /// The question before edits are lost.
    pub unsaved: Option<&'static str>,
    /// The experiment of the selected run, or of the sweep.
    pub experiment: Option<String>,
    /// True if the screen opens on the experiment that was looked at last, unless a filter is typed.
    pub opens_on_experiment: bool,
}

/// What actions of the workbench start from.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The selected run.
    pub run: Option<SelectedRun>,
    /// The figure for a paper, and its runs.
    pub figure: Subject,
}

/// Why there is no command where nothing is shown.
pub const NO_COMMAND: &str = "nothing is shown here that a command could show";

/// A command that shows what a screen shows: `pareto --p2p on`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Its words, without the program's name and `--dir`.
    pub words: Vec<String>,
    /// What is shown and the command cannot say, in words.
    pub beyond: Vec<String>,
}

impl From<Vec<String>> for Command {
    fn from(words: Vec<String>) -> Self {
        Self { words, beyond: Vec::new() }
    }
}

/// Something the mouse did on a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// What the mouse did.
    pub kind: PointerKind,
    /// The column and the row of the terminal where it happened.
    pub at: Position,
    /// Whether Shift was held meanwhile.
    pub shift: bool,
}

/// What the mouse did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerKind {
    /// The left button went down.
    Click,
    /// It went down a second time at once, at the same place.
    DoubleClick,
    /// It is moved with the button held, since it went down there.
    Drag(Position),
    /// It went up after a drag from there.
    Drop(Position),
    /// The wheel: notches, down is positive.
    Wheel(isize),
    /// The wheel sideways: notches, right is positive.
    WheelSideways(isize),
}

type Writer = dyn Fn(&Path) -> Result<()> + Send + Sync;

/// What is shown, ready to be written on a thread.
#[derive(Clone)]
pub struct Export(Arc<Writer>);

impl Export {
    /// By a function that writes the file at a path, atomically.
    pub fn new(write: impl Fn(&Path) -> Result<()> + Send + Sync + 'static) -> Self {
        Self(Arc::new(write))
    }

    /// A text, such as a table as CSV.
    pub fn text(text: String) -> Self {
        Self::new(move |path| base::atomic::write(path, text.as_bytes()))
    }

    /// Writes what is exported to a file.
    pub fn write(&self, path: &Path) -> Result<()> {
        (self.0)(path)
    }
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Export")
    }
}
