//! What a screen is: a value with its own state, bindings, drawing, and what it does with keys, the mouse and
//! new runs. The module of the workbench says how to add one.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use super::action::Listed;
use super::context::{Context, Request, SelectedRun};
use super::paper::Subject;
use super::snapshot::Snapshot;
use super::state::Placed;
use super::widgets::field::FilterBox;
use super::widgets::list::List;
use crate::base::error::Result;
pub use crate::desk::export::FileKind;

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

/// Does what a binding says, on a screen of any type.
pub trait Perform {
    /// Does what the binding at this place of the screen's table says.
    fn perform(&mut self, at: usize, cx: &mut Context);

    /// Whether that can be done now.
    fn is_possible(&self, at: usize) -> bool;
}

impl<S: Acts> Perform for S {
    fn perform(&mut self, at: usize, cx: &mut Context) {
        if let Some(binding) = S::Act::BINDINGS.get(at) {
            self.act(binding.act, cx);
        }
    }

    fn is_possible(&self, at: usize) -> bool {
        S::Act::BINDINGS.get(at).is_some_and(|binding| self.can(binding.act))
    }
}

/// A screen of the workbench. Nothing in it reads clocks, files or terminals: it asks ([`Context::ask`]).
pub trait Screen: Perform {
    /// Draws the screen into its part of the window.
    fn draw(&self, buf: &mut Buffer, body: Rect, cx: &Context);

    /// Its list: rows in all, and the area of those shown (without a header).
    fn list_area(&self, _body: Rect) -> Option<(usize, Rect)> {
        None
    }

    /// The selection in that list.
    fn list(&mut self) -> Option<&mut List> {
        None
    }

    /// Moves by rows; a page of them is [`Screen::rows_of_a_page`].
    fn step(&mut self, rows: isize, cx: &mut Context) {
        let len = self.list_area(cx.body()).map_or(0, |(len, _)| len);
        if let Some(list) = self.list() {
            list.move_by(rows, len);
        }
    }

    /// Rows that a page key moves by.
    fn rows_of_a_page(&self, cx: &Context) -> isize {
        let area = self.list_area(cx.body());
        area.map_or(4, |(_, area)| isize::from(area.height as i16 - 1).max(1))
    }

    /// The line that narrows what is shown, where there is one: keys and pasted text go to it while it is typed.
    fn filter(&mut self) -> Option<&mut FilterBox> {
        None
    }

    /// The filter was typed into or left: what it narrows is chosen anew.
    fn narrow(&mut self, _cx: &mut Context) {}

    /// Whether it comes up on the experiment that was looked at last, where no filter says otherwise.
    fn opens_on_experiment(&self) -> bool {
        false
    }

    /// The experiment that is looked at on it: of the run that is selected, or of the sweep.
    fn experiment(&self, _cx: &Context) -> Option<String> {
        None
    }

    /// A key that goes to something being typed or to something that lies on the screen, before its filter and
    /// any binding; whether it was one.
    fn typed(&mut self, _key: KeyEvent, _cx: &mut Context) -> bool {
        false
    }

    /// The keys of what is being typed or lies on the screen, and what they do, while it takes them all.
    fn taken(&self) -> Option<Hints> {
        None
    }

    /// Pasted text; whether something is being typed that takes it.
    fn paste(&mut self, _text: &str, _cx: &mut Context) -> bool {
        false
    }

    /// The mouse, on the body; whether it was handled. What is not selects rows and scrolls.
    fn pointer(&mut self, _body: Rect, _event: Pointer, _cx: &mut Context) -> bool {
        false
    }

    /// Escape with nothing on top: closes what the screen has opened.
    fn close(&mut self, _cx: &mut Context) {}

    /// After every message, when the selection in its list exists: asks for what is missing.
    fn settle(&mut self, _body: Rect, _cx: &mut Context) {}

    /// There are other stored runs, or other tags and notes on them, than `before`.
    fn runs_changed(
        &mut self,
        _runs: &Arc<Snapshot>,
        _before: Option<&Arc<Snapshot>>,
        _cx: &mut Context,
    ) {
    }

    /// Reads files that it alone shows: when the workbench opens, and when the user asks for it.
    fn reload(&mut self, _cx: &mut Context) {}

    /// Does what is asked of the workbench; gives back what another screen does.
    fn serve(&mut self, request: Request, _cx: &mut Context) -> Option<Request> {
        Some(request)
    }

    /// What would be lost if the workbench were left now, as a question.
    fn unsaved(&self) -> Option<&'static str> {
        None
    }

    /// Gives up what would be lost: the user said so.
    fn discard(&mut self) {}

    /// What is told at the right end of the row of tabs, whichever screen is shown.
    fn badge(&self, _cx: &Context) -> Option<String> {
        None
    }

    /// The run that is selected on it.
    fn selected_run(&self, _cx: &Context) -> Option<SelectedRun> {
        None
    }

    /// What is worth keeping until the workbench is opened again: sort order, filter, zoom.
    fn remember(&self) -> Option<serde_json::Value> {
        None
    }

    /// Takes up what was kept; what cannot be read of it is left.
    fn recall(&mut self, _kept: &serde_json::Value, _cx: &mut Context) {}

    /// The command that shows the same, or why there is none.
    fn command(&self) -> std::result::Result<Command, &'static str> {
        Err(NO_COMMAND)
    }

    /// The figure for a paper that goes with what is shown, and the runs that it is of.
    fn figured(&self, _cx: &Context) -> Subject {
        Subject::default()
    }

    /// What is shown, as a file of this kind; why not, where it cannot be had. The default is a picture
    /// of the screen, and no table.
    fn export(&self, _kind: FileKind, _cx: &Context) -> std::result::Result<Option<Export>, String> {
        Ok(None)
    }
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
        Self::new(move |path| crate::base::atomic::write(path, text.as_bytes()))
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
