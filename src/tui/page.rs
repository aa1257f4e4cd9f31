//! What a screen is: its title, bindings, drawing, and what it does with keys and the mouse. A new
//! screen is one implementation of [`Page`] and one variant of [`Screen`](super::action::Screen).

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use super::action::Binding;
use super::message::Effect;
use super::state::{List, State};
use crate::error::Result;

/// A screen of the workbench. Nothing here reads clocks, files or terminals.
pub trait Page: Sync {
    /// The word on its tab; also the first half of its bindings' names.
    fn title(&self) -> &'static str;

    /// What can be done on it.
    fn bindings(&self) -> &'static [Binding];

    /// Draws its part of the state.
    fn draw(&self, buf: &mut Buffer, body: Rect, state: &State);

    /// Its list: rows in all, and the area of those shown (without a header).
    fn list_area(&self, _state: &State, _body: Rect) -> Option<(usize, Rect)> {
        None
    }

    /// The selection in that list.
    fn list<'a>(&self, _state: &'a mut State) -> Option<&'a mut List> {
        None
    }

    /// Moves by rows; a page of them is [`Page::rows_of_a_page`].
    fn step(&self, state: &mut State, rows: isize) -> Vec<Effect> {
        let len = self.list_area(state, body_of(state)).map_or(0, |(len, _)| len);
        if let Some(list) = self.list(state) {
            list.move_by(rows, len);
        }
        Vec::new()
    }

    /// Rows that a page key moves by.
    fn rows_of_a_page(&self, state: &State) -> isize {
        let area = self.list_area(state, body_of(state));
        area.map_or(4, |(_, area)| isize::from(area.height as i16 - 1).max(1))
    }

    /// A key that goes to something being typed or to something that lies on the page, before any
    /// binding; `None`: the bindings decide.
    fn typed(&self, _state: &mut State, _key: KeyEvent) -> Option<Vec<Effect>> {
        None
    }

    /// Pasted text, where something is being typed.
    fn paste(&self, _state: &mut State, _text: &str) -> Option<Vec<Effect>> {
        None
    }

    /// The mouse, on the body. What is not handled (`None`) selects rows and scrolls.
    fn pointer(&self, _state: &mut State, _body: Rect, _event: Pointer) -> Option<Vec<Effect>> {
        None
    }

    /// Escape with nothing on top: closes what the page has opened.
    fn close(&self, _state: &mut State) {}

    /// After every message: makes what is selected exist and asks for what is missing.
    fn settle(&self, state: &mut State, body: Rect, _effects: &mut Vec<Effect>) {
        if let Some((len, area)) = self.list_area(state, body)
            && let Some(list) = self.list(state)
        {
            list.fit(len, usize::from(area.height));
        }
    }

    /// What is worth keeping until the workbench is opened again: sort order, filter, zoom.
    fn remember(&self, _state: &State) -> Option<serde_json::Value> {
        None
    }

    /// Takes up what was kept; what cannot be read of it is left.
    fn recall(&self, _state: &mut State, _kept: &serde_json::Value) -> Vec<Effect> {
        Vec::new()
    }

    /// The command that shows the same: `ladderscope pareto --p2p on`; without the program's name and
    /// `--dir`. `None`: nothing is shown that a command could show.
    fn command(&self, _state: &State) -> Option<Vec<String>> {
        None
    }

    /// Why there is no command.
    fn no_command(&self, _state: &State) -> &'static str {
        "nothing is shown here that a command could show"
    }

    /// What is shown and [`Page::command`] cannot say, in words: it is told with the command.
    fn beyond_command(&self, _state: &State) -> Vec<String> {
        Vec::new()
    }

    /// What is shown, as a file of this kind; why not, where it cannot be had. The default is a picture
    /// of the screen, and no table.
    fn export(&self, _state: &State, _kind: FileKind) -> std::result::Result<Option<Export>, String> {
        Ok(None)
    }
}

/// The body of the window, empty where it is too small.
pub fn body_of(state: &State) -> Rect {
    super::layout::regions(state).map_or(Rect::ZERO, |regions| regions.body)
}

/// Something the mouse did on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// What.
    pub kind: PointerKind,
    /// Where.
    pub at: Position,
    /// With Shift held.
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

/// Kinds of exported files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A vector figure.
    Svg,
    /// A bitmap figure.
    Png,
    /// A table.
    Csv,
}

impl FileKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Svg, Self::Png, Self::Csv];

    /// Its file extension.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Svg => "svg",
            Self::Png => "png",
            Self::Csv => "csv",
        }
    }

    /// The kind of a file, by its extension.
    pub fn of(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        Self::ALL.into_iter().find(|kind| kind.extension() == extension)
    }
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
        Self::new(move |path| crate::store::atomic::write(path, text.as_bytes()))
    }

    /// Writes the file.
    pub fn write(&self, path: &Path) -> Result<()> {
        (self.0)(path)
    }
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Export")
    }
}
