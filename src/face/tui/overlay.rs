//! Overlays: help, texts, pickers, a line of text ([`Prompt`]), yes or no ([`YesNoPrompt`]). An overlay covers a
//! screen, receives its keys, and can start background questions of its own ([`Context::ask_own`]).

use std::any::Any;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::prelude::*;
use super::regions::regions_of;
use super::screen::TabScreen;
use super::widgets::field::TextField;
use crate::desk::files::{FileEntry, folder_of, inspect_directory, list_directory};
use base::offer::{Completion, Offer, complete_word};

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

    /// Handles a click; returns the key it stands for.
    fn click(&mut self, _at: Position, _cx: &Context) -> Option<KeyCode> {
        None
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

/// Largest text popup in a window of this size: all rows, as a row of the screen below would be a second border.
pub fn text_area(size: (u16, u16)) -> Rect {
    let body = regions_of(size).map_or(Rect::ZERO, |regions| regions.body);
    centered(body, popup_width(body, 110), body.height)
}

/// Width of a popup of `columns`: the whole window if only a few columns would remain.
fn popup_width(body: Rect, columns: u16) -> u16 {
    if body.width < columns + 10 { body.width } else { columns }
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
    pub fn new(whole: Rect, rows: u16, share: f64) -> Self {
        let (head, rest) = cut_top(inside(whole), 2);
        let fits = rest.height >= rows + 8;
        let (plot, list) =
            cut_top(rest, if fits { rows } else { (f64::from(rest.height) * share) as u16 });
        Self { whole, head, plot, list }
    }
}

/// Called after every message: settles the top overlay, and in the background lists the folder being typed and looks
/// into its files.
pub fn settle(cx: &mut Context) {
    match cx.overlays.last().and_then(|top| top.folder()) {
        Some(folder) => {
            let (typed, key) = (folder.clone(), folder.clone());
            let (looked, of) = (folder.clone(), folder.clone());
            cx.want_own(
                "folder",
                &key,
                move |_| Ok(list_directory(&typed)),
                move |entries, cx| {
                    // the look into its files may have been faster
                    if cx.folder.as_ref().is_none_or(|(known, _)| *known != folder) {
                        cx.folder = entries.ok().map(|entries| (folder, Arc::new(entries)));
                    }
                },
            );
            cx.want_own(
                "looked",
                &key,
                move |_| Ok(inspect_directory(&looked)),
                move |entries, cx| cx.folder = entries.ok().map(|entries| (of, Arc::new(entries))),
            );
        }
        // reread it next time
        None if cx.folder.take().is_some() => {
            cx.forget_own("folder");
            cx.forget_own("looked");
        }
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
    pub fn prompt<S: TabScreen>(
        &mut self,
        completing: PromptCompletion,
        title: impl Into<String>,
        hint: impl Into<String>,
        text: impl Into<String>,
        take: impl Fn(&mut S, &str, &mut Self) -> Result<(), String> + 'static,
    ) {
        let take: Take = Box::new(move |state, typed| {
            let (screen, cx) = S::screen_and_context(state);
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
    pub fn confirm<S: TabScreen>(
        &mut self,
        text: impl Into<String>,
        yes: impl FnOnce(&mut S, &mut Self) + 'static,
    ) {
        self.question(text, on_screen::<S>(yes));
    }

    /// Like [`Self::confirm`], with another answer: only the selected item. Enter answers neither.
    pub fn confirm_or_selected<S: TabScreen>(
        &mut self,
        text: impl Into<String>,
        yes: impl FnOnce(&mut S, &mut Self) + 'static,
        only_selected: impl FnOnce(&mut S, &mut Self) + 'static,
    ) {
        self.drop_questions();
        let (yes, only_selected) = (on_screen::<S>(yes), Some(on_screen::<S>(only_selected)));
        self.lay(YesNoPrompt { text: text.into(), yes, only_selected });
    }

    /// Asks a question, replacing an open one.
    pub fn question(&mut self, text: impl Into<String>, yes: impl FnOnce(&mut State) + 'static) {
        self.drop_questions();
        self.lay(YesNoPrompt { text: text.into(), yes: Box::new(yes), only_selected: None });
    }

    /// Says how to close the top overlay, after a key without a binding in it.
    pub fn say_what_closes(&mut self) {
        self.inform("Esc closes this first");
    }

    pub fn drop_questions(&mut self) {
        self.overlays.retain(|overlay| !(&**overlay as &dyn Any).is::<YesNoPrompt>());
    }

    pub fn pick<S: TabScreen>(
        &mut self,
        title: impl Into<String>,
        lines: Vec<(String, String)>,
        literal: impl Fn(&str, bool) -> Option<String> + 'static,
        take: impl FnOnce(&mut S, PickResult, &mut Self) + 'static,
    ) {
        self.lay(Pick::new(title, lines, literal, |state, chosen| {
            let (screen, cx) = S::screen_and_context(state);
            take(screen, chosen, cx);
        }));
    }
}

/// True for a key that no line of text uses; others may change nothing, as at the end of a line.
pub fn is_no_text(code: KeyCode) -> bool {
    matches!(code, KeyCode::F(_) | KeyCode::Insert | KeyCode::BackTab)
}

/// Consumes the input, or returns the reason it cannot.
pub type Take = Box<dyn Fn(&mut State, &str) -> Result<(), String>>;

pub struct Prompt {
    pub title: String,
    pub hint: String,
    pub field: TextField,
    pub error: Option<String>,
    /// True if the screen draws the line inline.
    pub in_place: bool,
    completing: PromptCompletion,
    /// Formats of the file to write, with what they hold; ↑ ↓ change the extension of the path.
    formats: Vec<FormatChoice>,
    take: Take,
}

pub type FormatChoice = (FileKind, String);

#[derive(Clone, Debug)]
pub enum PromptCompletion {
    Nothing,
    Words(Vec<Offer>),
    Paths,
}

/// Maximum completions listed.
const LISTED: usize = 10;

impl Prompt {
    pub fn new(
        title: String,
        hint: String,
        text: String,
        completing: PromptCompletion,
        take: Take,
    ) -> Self {
        // a text that ends in a blank is meant to be continued
        let proposed = !text.is_empty() && !text.ends_with(' ');
        let mut field = TextField::new(text);
        field.proposed = proposed;
        let (error, in_place, formats) = (None, false, Vec::new());
        let mut prompt = Self { title, hint, field, error, in_place, completing, formats, take };
        prompt.suggest(None);
        prompt
    }

    /// Offers the formats of the file below its path.
    pub fn with_formats(self, formats: Vec<FormatChoice>) -> Self {
        Self { formats, ..self }
    }

    /// Formats that are listed: completions of the path take their place.
    fn listed_formats(&self) -> &[FormatChoice] {
        if self.field.offers.list().is_empty() { &self.formats } else { &[] }
    }

    fn format(&self) -> Option<usize> {
        let kind = FileKind::from_path(Path::new(self.field.value()))?;
        self.formats.iter().position(|(known, _)| *known == kind)
    }

    /// Changes the extension of the path, or appends one. Other text behind a dot belongs to the name.
    fn set_format(&mut self, at: usize) {
        let Some((kind, _)) = self.formats.get(at) else { return };
        let typed = self.field.value();
        if typed.is_empty() || typed.ends_with('/') {
            return;
        }
        let path = match FileKind::from_path(Path::new(typed)) {
            Some(_) => Path::new(typed).with_extension(kind.extension()).display().to_string(),
            None => format!("{typed}.{}", kind.extension()),
        };
        self.field.replace(0..typed.len(), &path);
        self.error = None;
    }

    /// Error or hint, wrapped, and the popup with its frame.
    fn laid_out(&self, cx: &Context) -> (Vec<String>, Rect) {
        let body = whole_body(cx);
        let width = popup_width(body, 76);
        let below = self.error.as_ref().unwrap_or(&self.hint);
        let lines = wrap(below, usize::from(width.saturating_sub(4)));
        let listed = [self.listed_formats().len(), self.field.offers.list().len()];
        let rows: usize = listed.iter().filter(|rows| **rows > 0).map(|rows| rows + 1).sum();
        let height = (lines.len() + rows) as u16 + 4;
        (lines, centered(body, width, height))
    }

    fn suggest(&mut self, cx: Option<&Context>) {
        let line = self.field.value();
        let completion = match &self.completing {
            PromptCompletion::Nothing => return,
            PromptCompletion::Words(words) => complete_word(line, self.field.cursor(), words, LISTED),
            PromptCompletion::Paths => {
                let folder = cx.and_then(|cx| cx.folder.as_ref());
                let folder = folder.filter(|folder| folder.0 == folder_of(line));
                let begins = |entry: &&FileEntry| entry.path.starts_with(line);
                let entries = folder.iter().flat_map(|(_, entries)| entries.iter()).filter(begins);
                let offers = entries.map(|entry| Offer::new(entry.path.clone(), entry.about.clone()));
                Completion { replaces: 0..line.len(), offers: offers.take(LISTED).collect() }
            }
        };
        self.field.suggest(completion);
    }
}

impl Overlay for Prompt {
    fn draw(&self, buf: &mut Buffer, cx: &Context) {
        if self.in_place {
            return;
        }
        let theme = cx.theme;
        let role = if self.error.is_some() { Role::Bad } else { Role::Dim };
        let (lines, whole) = self.laid_out(cx);
        let area = popup(buf, whole, &self.title, theme);
        let row = Rect { x: area.x + 1, width: area.width.saturating_sub(1), height: 1, ..area };
        self.field.draw(buf, row, theme);
        let (_, mut rest) = cut_top(area, 2);
        let chosen = self.format();
        for (at, (kind, about)) in self.listed_formats().iter().enumerate() {
            let name = format!(" {:<6}", kind.extension().to_uppercase());
            line(buf, rest, 0, &[(&name, theme.style(Role::Text)), (about, theme.style(Role::Dim))]);
            if chosen == Some(at) {
                select(buf, rest, rest.y, theme);
            }
            (_, rest) = cut_top(rest, 1);
        }
        if !self.listed_formats().is_empty() {
            (_, rest) = cut_top(rest, 1);
        }
        for (row, text) in (0..).zip(&lines) {
            line(buf, rest, row, &[(" ", theme.style(role)), (text, theme.style(role))]);
        }
        let (_, listed) = cut_top(rest, lines.len() as u16 + 1);
        self.field.offers.draw_rows(buf, listed, theme);
    }

    fn hints(&self) -> Hints {
        match (self.field.offers.list().is_empty(), self.formats.is_empty()) {
            (true, true) => &[("Enter", "accept"), ("↑", "history"), ("Esc", "close")],
            (true, false) => &[("Enter", "write"), ("↑ ↓", "format"), ("Esc", "close")],
            (false, _) => {
                &[("Enter", "accept"), ("Tab", "complete"), ("↑", "history"), ("Esc", "close")]
            }
        }
    }

    fn key(mut self: Box<Self>, key: KeyEvent, state: &mut State) -> Option<Box<dyn Overlay>> {
        match key.code {
            KeyCode::Esc => return None,
            KeyCode::Enter => match (self.take)(state, self.field.value()) {
                Ok(()) => {
                    self.field.keep();
                    state.cx.past.insert(self.title, self.field.past);
                    return None;
                }
                Err(why) => self.error = Some(why),
            },
            KeyCode::Up | KeyCode::Down if !self.listed_formats().is_empty() => {
                let (count, back) = (self.formats.len(), key.code == KeyCode::Up);
                let next = self.format().map_or(0, |at| (at + if back { count - 1 } else { 1 }) % count);
                self.set_format(next);
            }
            _ if self.field.key(key) => self.error = None,
            KeyCode::PageUp | KeyCode::PageDown => state.cx.say_what_closes(),
            code if is_no_text(code) => state.cx.say_what_closes(),
            _ => {}
        }
        Some(self)
    }

    fn paste(&mut self, text: &str) {
        self.field.paste(text);
        self.error = None;
    }

    /// A click on a format chooses it.
    fn click(&mut self, at: Position, cx: &Context) -> Option<KeyCode> {
        let area = inside(self.laid_out(cx).1);
        let row = usize::from(at.y.checked_sub(area.y + 2)?);
        if !self.in_place && area.contains(at) && row < self.listed_formats().len() {
            self.set_format(row);
        }
        None
    }

    fn folder(&self) -> Option<String> {
        let is_path = matches!(self.completing, PromptCompletion::Paths);
        is_path.then(|| folder_of(self.field.value()).to_owned())
    }

    fn settle(&mut self, cx: &Context) {
        self.suggest(Some(cx));
    }
}

type ConfirmedAction = Box<dyn FnOnce(&mut State)>;

fn on_screen<S: TabScreen>(answer: impl FnOnce(&mut S, &mut Context) + 'static) -> ConfirmedAction {
    Box::new(move |state| {
        let (screen, cx) = S::screen_and_context(state);
        answer(screen, cx);
    })
}

pub struct YesNoPrompt {
    pub text: String,
    pub yes: ConfirmedAction,
    /// Answer `s`. With it, Enter is no answer.
    pub only_selected: Option<ConfirmedAction>,
}

impl Overlay for YesNoPrompt {
    fn draw(&self, buf: &mut Buffer, cx: &Context) {
        let theme = cx.theme;
        let lines = wrap(&self.text, 56);
        let area = centered(whole_body(cx), 60, lines.len() as u16 + 4);
        let area = popup(buf, area, "sure?", theme);
        let (key, text) = (theme.style(Role::Key), theme.style(Role::Text));
        for (row, words) in (0..).zip(&lines) {
            line(buf, area, row, &[(" ", text), (words, text)]);
        }
        let mut answers = vec![(" y", key), (" yes   ", text)];
        if self.only_selected.is_some() {
            answers.extend([("s", key), (" only the selected one   ", text)]);
        }
        answers.extend([("n", key), (" no", text)]);
        line(buf, area, lines.len() as u16 + 1, &answers);
    }

    fn hints(&self) -> Hints {
        match self.only_selected.is_some() {
            true => &[("y", "yes"), ("s", "only the selected one"), ("n Esc", "no")],
            false => &[("y Enter", "yes"), ("n Esc", "no")],
        }
    }

    fn key(self: Box<Self>, key: KeyEvent, state: &mut State) -> Option<Box<dyn Overlay>> {
        match key.code {
            KeyCode::Char('y' | 'Y') => (self.yes)(state),
            KeyCode::Enter if self.only_selected.is_none() => (self.yes)(state),
            KeyCode::Char('s' | 'S') if self.only_selected.is_some() => {
                self.only_selected.into_iter().for_each(|answer| answer(state));
            }
            KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc => {}
            _ => {
                state.cx.say_what_closes();
                return Some(self);
            }
        }
        None
    }
}
