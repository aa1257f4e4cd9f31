//! Overlays: help, texts, questions, lists to choose from. An overlay lies on a screen, takes its keys, and may
//! ask questions of its own ([`Context::ask_own`]).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::layout::regions_of;
use super::prelude::*;
use super::prompt::{Question, Take};
use super::state::Placed;
use crate::desk::files::{FileEntry, within};

/// A folder's path as it was typed, and its files.
pub type Folder = (String, Arc<Vec<FileEntry>>);

/// Something that lies on a screen and takes its keys.
pub trait Overlay: Any {
    /// Draws it over the window.
    fn draw(&self, buf: &mut Buffer, cx: &Context);

    /// Its keys and what they do, for the footer.
    fn hints(&self) -> Hints;

    /// Handles a key, and returns the overlay unless the key closes it.
    fn key(self: Box<Self>, key: KeyEvent, state: &mut State) -> Option<Box<dyn Overlay>>;

    /// Inserts pasted text into the line that is typed.
    fn paste(&mut self, _text: &str) {}

    /// Moves by rows of the mouse's wheel.
    fn scroll(&mut self, _rows: isize) {}

    /// True if a click anywhere closes it.
    fn closes_on_click(&self) -> bool {
        false
    }

    /// The folder of the path that is typed in it.
    fn folder(&self) -> Option<String> {
        None
    }

    /// After every message, while it is on top: keeps selections in range and searches for what is typed.
    fn settle(&mut self, _cx: &Context) {}

    /// Called as time passes, while it is on top.
    fn tick(&mut self, _cx: &mut Context) {}
}

impl fmt::Debug for dyn Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Overlay({:?})", self.hints())
    }
}

/// Largest popup with text in a window of this size.
pub fn text_area(size: (u16, u16)) -> Rect {
    let body = regions_of(size).map_or(Rect::ZERO, |regions| regions.body);
    centered(body, 110.min(body.width.saturating_sub(4)), body.height.saturating_sub(2))
}

/// Body of the window, whether or not an error is shown.
pub fn whole_body(cx: &Context) -> Rect {
    regions_of(cx.size).map_or(Rect::ZERO, |regions| regions.body)
}

/// The parts of an overlay with a plot over a list.
pub struct PlotAreas {
    /// The whole overlay.
    pub whole: Rect,
    /// Two lines about the plot.
    pub head: Rect,
    /// The plot.
    pub plot: Rect,
    /// The list, with its header.
    pub list: Rect,
}

impl PlotAreas {
    /// A plot of so many rows, or this share of a window that has no room for them.
    pub fn of(whole: Rect, rows: u16, share: f64) -> Self {
        let (head, rest) = cut_top(inside(whole), 2);
        let fits = rest.height >= rows + 8;
        let (plot, list) =
            cut_top(rest, if fits { rows } else { (f64::from(rest.height) * share) as u16 });
        Self { whole, head, plot, list }
    }
}

/// After every message: settles the overlay on top, and has the folder of a path that is typed there read in the
/// background.
pub fn settle(cx: &mut Context) {
    match cx.overlays.last().and_then(|top| top.folder()) {
        Some(folder) => {
            let (typed, key) = (folder.clone(), folder.clone());
            cx.want_own(
                "folder",
                &key,
                move |_| Ok(within(&typed)),
                move |entries, cx| cx.folder = entries.ok().map(|entries| (folder, Arc::new(entries))),
            );
        }
        // another time it is read anew
        None if cx.folder.take().is_some() => cx.forget_own("folder"),
        None => {}
    }
    with_top(cx, |top, cx| top.settle(cx));
}

/// Lets the overlay on top know that time has passed.
pub fn tick(cx: &mut Context) {
    with_top(cx, |top, cx| top.tick(cx));
}

fn with_top(cx: &mut Context, work: impl FnOnce(&mut dyn Overlay, &mut Context)) {
    if let Some(mut top) = cx.overlays.pop() {
        work(&mut *top, cx);
        cx.overlays.push(top);
    }
}

impl Context {
    /// Puts an overlay on top.
    pub fn lay(&mut self, overlay: impl Overlay) {
        self.overlays.push(Box::new(overlay));
    }

    /// The overlay on top, if it is of this type.
    pub fn top<T: Overlay>(&self) -> Option<&T> {
        let top: &dyn Any = &**self.overlays.last()?;
        top.downcast_ref()
    }

    /// The overlay on top, if it is of this type.
    pub fn top_mut<T: Overlay>(&mut self) -> Option<&mut T> {
        let top: &mut dyn Any = &mut **self.overlays.last_mut()?;
        top.downcast_mut()
    }

    /// Asks the user for a line that begins as `text`; `take` uses it, or returns why it cannot.
    pub fn prompt<S: Placed>(
        &mut self,
        completing: Completing,
        title: impl Into<String>,
        hint: impl Into<String>,
        text: impl Into<String>,
        take: impl Fn(&mut S, &str, &mut Self) -> Result<(), String> + 'static,
    ) {
        let take: Take = Box::new(move |state, typed| {
            let (screen, cx) = S::of(state);
            take(screen, typed, cx)
        });
        self.ask_line(Prompt::new(title.into(), hint.into(), text.into(), completing, take));
    }

    /// Asks the user for a line; ↑ recalls lines that were typed under this title before.
    pub fn ask_line(&mut self, mut prompt: Prompt) {
        prompt.field.past = self.past.get(&prompt.title).cloned().unwrap_or_default();
        self.lay(prompt);
    }

    /// Asks the user whether to do something; one such question is open at a time.
    pub fn confirm<S: Placed>(
        &mut self,
        text: impl Into<String>,
        yes: impl FnOnce(&mut S, &mut Self) + 'static,
    ) {
        self.question(text, |state| {
            let (screen, cx) = S::of(state);
            yes(screen, cx);
        });
    }

    /// Asks a question in place of one that is open.
    pub fn question(&mut self, text: impl Into<String>, yes: impl FnOnce(&mut State) + 'static) {
        self.drop_questions();
        self.lay(Question { text: text.into(), yes: Box::new(yes) });
    }

    /// Takes back open questions.
    pub fn drop_questions(&mut self) {
        self.overlays.retain(|overlay| !(&**overlay as &dyn Any).is::<Question>());
    }

    /// Lets the user choose from a list; `take` gets the choice.
    pub fn pick<S: Placed>(
        &mut self,
        title: impl Into<String>,
        lines: Vec<(String, String)>,
        literal: impl Fn(&str, bool) -> Option<String> + 'static,
        take: impl FnOnce(&mut S, Chosen, &mut Self) + 'static,
    ) {
        self.lay(Pick::new(title, lines, literal, |state, chosen| {
            let (screen, cx) = S::of(state);
            take(screen, chosen, cx);
        }));
    }
}
