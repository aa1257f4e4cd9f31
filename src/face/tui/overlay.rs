//! Overlays: help, texts, questions, pickers. An overlay covers a screen, receives its keys, and can
//! start background questions of its own ([`Context::ask_own`]).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::layout::regions_of;
use super::prelude::*;
use super::prompt::{Question, Take};
use super::state::Placed;
use crate::desk::files::{FileEntry, within};

/// Folder path as typed, and its files.
pub type Folder = (String, Arc<Vec<FileEntry>>);

pub trait Overlay: Any {
    fn draw(&self, buf: &mut Buffer, cx: &Context);

    /// Keys and their meaning, for the footer.
    fn hints(&self) -> Hints;

    /// Handles a key; returns `None` to close the overlay.
    fn key(self: Box<Self>, key: KeyEvent, state: &mut State) -> Option<Box<dyn Overlay>>;

    fn paste(&mut self, _text: &str) {}

    fn scroll(&mut self, _rows: isize) {}

    /// True if a click anywhere closes it.
    fn closes_on_click(&self) -> bool {
        false
    }

    fn folder(&self) -> Option<String> {
        None
    }

    /// Called after every message while on top: keeps selections in range and updates searches.
    fn settle(&mut self, _cx: &Context) {}

    /// Called on clock ticks while on top.
    fn tick(&mut self, _cx: &mut Context) {}
}

impl fmt::Debug for dyn Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Overlay({:?})", self.hints())
    }
}

/// Largest text popup in a window of this size.
pub fn text_area(size: (u16, u16)) -> Rect {
    let body = regions_of(size).map_or(Rect::ZERO, |regions| regions.body);
    centered(body, 110.min(body.width.saturating_sub(4)), body.height.saturating_sub(2))
}

/// Body of the window, ignoring any error message.
pub fn whole_body(cx: &Context) -> Rect {
    regions_of(cx.size).map_or(Rect::ZERO, |regions| regions.body)
}

pub struct PlotAreas {
    pub whole: Rect,
    pub head: Rect,
    pub plot: Rect,
    pub list: Rect,
}

impl PlotAreas {
    /// Lays out a plot of `rows` rows, or this share of the height if the window is too small.
    pub fn of(whole: Rect, rows: u16, share: f64) -> Self {
        let (head, rest) = cut_top(inside(whole), 2);
        let fits = rest.height >= rows + 8;
        let (plot, list) =
            cut_top(rest, if fits { rows } else { (f64::from(rest.height) * share) as u16 });
        Self { whole, head, plot, list }
    }
}

/// Called after every message: settles the top overlay and reads the folder being typed in the
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
        // reread it next time
        None if cx.folder.take().is_some() => cx.forget_own("folder"),
        None => {}
    }
    with_top(cx, |top, cx| top.settle(cx));
}

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
    pub fn lay(&mut self, overlay: impl Overlay) {
        self.overlays.push(Box::new(overlay));
    }

    pub fn top<T: Overlay>(&self) -> Option<&T> {
        let top: &dyn Any = &**self.overlays.last()?;
        top.downcast_ref()
    }

    pub fn top_mut<T: Overlay>(&mut self) -> Option<&mut T> {
        let top: &mut dyn Any = &mut **self.overlays.last_mut()?;
        top.downcast_mut()
    }

    /// Prompts for a line, prefilled with `text`; `take` consumes it or returns the reason it cannot.
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

    /// Prompts for a line; ↑ recalls earlier input under the same title.
    pub fn ask_line(&mut self, mut prompt: Prompt) {
        prompt.field.past = self.past.get(&prompt.title).cloned().unwrap_or_default();
        self.lay(prompt);
    }

    /// Asks for confirmation; only one such question is open at a time.
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

    /// Asks a question, replacing an open one.
    pub fn question(&mut self, text: impl Into<String>, yes: impl FnOnce(&mut State) + 'static) {
        self.drop_questions();
        self.lay(Question { text: text.into(), yes: Box::new(yes) });
    }

    pub fn drop_questions(&mut self) {
        self.overlays.retain(|overlay| !(&**overlay as &dyn Any).is::<Question>());
    }

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
