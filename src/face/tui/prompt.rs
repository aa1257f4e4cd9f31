//! User input: a line of text ([`Prompt`]), or yes or no ([`Question`]).

use super::overlay::{Overlay, whole_body};
use super::prelude::*;
use super::widgets::field::Field;
use crate::desk::files::{FileEntry, folder_of};
use base::offer::{Completion, Offer, complete_word};

/// Consumes the input, or returns the reason it cannot.
pub type Take = Box<dyn Fn(&mut State, &str) -> Result<(), String>>;

pub struct Prompt {
    pub title: String,
    pub hint: String,
    pub field: Field,
    pub error: Option<String>,
    /// True if the screen draws the line inline.
    pub in_place: bool,
    completing: Completing,
    take: Take,
}

#[derive(Clone, Debug)]
pub enum Completing {
    Nothing,
    Words(Vec<Offer>),
    Paths,
}

/// Maximum completions listed.
const LISTED: usize = 10;

impl Prompt {
    pub fn new(title: String, hint: String, text: String, completing: Completing, take: Take) -> Self {
        let field = Field::new(text);
        let mut prompt = Self { title, hint, field, error: None, in_place: false, completing, take };
        prompt.suggest(None);
        prompt
    }

    fn suggest(&mut self, cx: Option<&Context>) {
        let line = self.field.value();
        let completion = match &self.completing {
            Completing::Nothing => return,
            Completing::Words(words) => complete_word(line, self.field.cursor(), words, LISTED),
            Completing::Paths => {
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
        let (theme, body) = (cx.theme, whole_body(cx));
        let width = 76.min(body.width);
        let (below, role) = match &self.error {
            Some(error) => (error, Role::Bad),
            None => (&self.hint, Role::Dim),
        };
        let lines = wrap(below, usize::from(width.saturating_sub(4)));
        let offers = self.field.offers.list().len() as u16;
        let below = if offers == 0 { 0 } else { offers + 1 };
        let height = lines.len() as u16 + 4 + below;
        let area = popup(buf, centered(body, width, height), &self.title, theme);
        let row = Rect { x: area.x + 1, width: area.width.saturating_sub(1), height: 1, ..area };
        self.field.draw(buf, row, theme);
        for (row, text) in (2..).zip(&lines) {
            line(buf, area, row, &[(" ", theme.style(role)), (text, theme.style(role))]);
        }
        let (_, listed) = cut_top(area, lines.len() as u16 + 3);
        self.field.offers.draw_rows(buf, listed, theme);
    }

    fn hints(&self) -> Hints {
        match self.field.offers.list().is_empty() {
            true => &[("Enter", "accept"), ("↑", "history"), ("Esc", "close")],
            false => &[("Enter", "accept"), ("Tab", "complete"), ("↑", "history"), ("Esc", "close")],
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
            _ if self.field.key(key) => self.error = None,
            _ => {}
        }
        Some(self)
    }

    fn paste(&mut self, text: &str) {
        self.field.paste(text);
        self.error = None;
    }

    fn folder(&self) -> Option<String> {
        let is_path = matches!(self.completing, Completing::Paths);
        is_path.then(|| folder_of(self.field.value()).to_owned())
    }

    fn settle(&mut self, cx: &Context) {
        self.suggest(Some(cx));
    }
}

pub struct Question {
    pub text: String,
    pub yes: Box<dyn FnOnce(&mut State)>,
}

impl Overlay for Question {
    fn draw(&self, buf: &mut Buffer, cx: &Context) {
        let theme = cx.theme;
        let lines = wrap(&self.text, 56);
        let area = centered(whole_body(cx), 60, lines.len() as u16 + 4);
        let area = popup(buf, area, "sure?", theme);
        let (key, text) = (theme.style(Role::Key), theme.style(Role::Text));
        for (row, words) in (0..).zip(&lines) {
            line(buf, area, row, &[(" ", text), (words, text)]);
        }
        let answers = [(" y", key), (" yes   ", text), ("n", key), (" no", text)];
        line(buf, area, lines.len() as u16 + 1, &answers);
    }

    fn hints(&self) -> Hints {
        &[("y Enter", "yes"), ("n Esc", "no")]
    }

    fn key(self: Box<Self>, key: KeyEvent, state: &mut State) -> Option<Box<dyn Overlay>> {
        match key.code {
            KeyCode::Char('y' | 'Y') | KeyCode::Enter => (self.yes)(state),
            KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc => {}
            _ => return Some(self),
        }
        None
    }
}
