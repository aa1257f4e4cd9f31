//! A line of text that is typed, everywhere in the same way: ← → by letters, with Ctrl or Alt by words, ↑ ↓
//! through what was typed there before, pasted text; and such a line that narrows what a screen shows.

use std::ops::Range;

use crossterm::event::{Event, KeyModifiers};
use tui_input::backend::crossterm::EventHandler as _;
use tui_input::{Input, InputRequest};

use super::offers::{MOST, Offers};
use crate::face::tui::format;
use crate::face::tui::prelude::*;
use base::error::Error;
use base::offer::Completion;
use study::analysis::RunTable;
use study::analysis::filter::{Bound, Filter, complete};

/// Lines that were typed before and are kept.
const PAST: usize = 50;

/// A line that is typed, with its cursor, its completions, and the lines that were typed in its place before.
#[derive(Clone, Debug, Default)]
pub struct Field {
    input: Input,
    /// What can be typed next.
    pub offers: Offers,
    /// What was typed before, the oldest first.
    pub past: Vec<String>,
    /// How many lines back in the past the line is; 0: it is new.
    back: usize,
    /// The new line, while one of the past is shown.
    new: String,
}

impl Field {
    /// A line that begins as `text`, the cursor behind it.
    pub fn new(text: impl Into<String>) -> Self {
        Self { input: Input::new(text.into()), ..Self::default() }
    }

    /// The text so far.
    pub fn value(&self) -> &str {
        self.input.value()
    }

    /// The byte of the text before which the cursor stands.
    pub fn cursor(&self) -> usize {
        let text = self.value();
        text.char_indices().nth(self.input.cursor()).map_or(text.len(), |(at, _)| at)
    }

    /// Puts a text in the place of some bytes, the cursor behind it; whether there are such bytes.
    pub fn replace(&mut self, bytes: Range<usize>, with: &str) -> bool {
        let (Some(before), Some(behind)) =
            (self.value().get(..bytes.start), self.value().get(bytes.end..))
        else {
            return false;
        };
        let cursor = before.chars().count() + with.chars().count();
        self.input = Input::new(format!("{before}{with}{behind}")).with_cursor(cursor);
        true
    }

    /// Empties the line; whether there was something in it.
    pub fn clear(&mut self) -> bool {
        let typed = !self.value().is_empty();
        (self.input, self.offers, self.back) = (Input::default(), Offers::default(), 0);
        typed
    }

    /// Keeps the line for ↑: it was taken.
    pub fn keep(&mut self) {
        let line = self.value().to_owned();
        self.past.retain(|past| *past != line && !line.is_empty());
        self.past.extend((!line.is_empty()).then_some(line));
        self.past.drain(..self.past.len().saturating_sub(PAST));
        self.back = 0;
    }

    /// Shows these completions from now on.
    pub fn suggest(&mut self, completion: Completion) {
        self.offers.set(completion, self.input.value());
    }

    /// True if ↓ means something in the line.
    fn takes_down(&self) -> bool {
        self.back > 0 || !self.offers.list().is_empty()
    }

    /// Edits the line, or chooses one of its completions; true if its text may have changed.
    pub fn key(&mut self, mut key: KeyEvent) -> bool {
        match key.code {
            KeyCode::Up | KeyCode::Down if self.offers.choose(key.code == KeyCode::Down) => {
                return false;
            }
            KeyCode::Up => return self.travel(self.back + 1),
            KeyCode::Down => return self.back > 0 && self.travel(self.back - 1),
            KeyCode::Tab => {
                let chosen = self.offers.chosen();
                return chosen.is_some_and(|(bytes, text)| self.replace(bytes, &text));
            }
            // Ctrl and Alt alike move by words
            KeyCode::Left | KeyCode::Right if key.modifiers.contains(KeyModifiers::ALT) => {
                key.modifiers = KeyModifiers::CONTROL;
            }
            KeyCode::Backspace if key.modifiers.contains(KeyModifiers::CONTROL) => {
                key.modifiers = KeyModifiers::ALT;
            }
            _ => {}
        }
        self.input.handle_event(&Event::Key(key)).is_some_and(|change| change.value)
    }

    /// Shows the line that is so many lines back; whether there is one.
    fn travel(&mut self, back: usize) -> bool {
        let Some(at) = self.past.len().checked_sub(back) else { return false };
        if self.back == 0 {
            self.new = self.value().to_owned();
        }
        self.back = back;
        self.input = Input::new(self.past.get(at).unwrap_or(&self.new).clone());
        true
    }

    /// Inserts the first line of a text that was pasted, without control characters.
    pub fn paste(&mut self, text: &str) {
        first_line(text).for_each(|c| _ = self.input.handle(InputRequest::InsertChar(c)));
    }

    /// Draws it, scrolled so that its cursor is seen.
    pub fn draw(&self, buf: &mut Buffer, area: Rect, theme: Theme) {
        let scroll = self.input.visual_scroll(usize::from(area.width.saturating_sub(1)));
        let shown: String = self.value().chars().skip(scroll).collect();
        put(buf, area, area.x, area.y, &shown, theme.style(Role::Text));
        let at = area.x + self.input.visual_cursor().saturating_sub(scroll) as u16;
        let cursor = Rect::new(at, area.y, 1, 1).intersection(area);
        buf.set_style(cursor, theme.style(Role::Selected));
    }
}

/// The first line of a text, without control characters.
pub fn first_line(text: &str) -> impl Iterator<Item = char> {
    text.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control())
}

/// A line that narrows what is shown while it is typed: Enter keeps it, Escape drops it.
#[derive(Clone, Debug, Default)]
pub struct FilterBox {
    /// The line that is typed, and its cursor.
    pub field: Field,
    /// Whether keys go to it.
    pub typing: bool,
    /// What is wrong with it.
    pub wrong: Option<String>,
}

/// What a key did to a line that is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Typed {
    /// Its text may be another: what is shown is narrowed anew.
    Changed,
    /// It is kept: keys are the screen's again.
    Kept,
    /// At most its cursor has moved.
    Moved,
}

impl FilterBox {
    /// Its keys while it is typed into; `None` while it is not.
    pub fn taken(&self) -> Option<Hints> {
        const KEYS: Hints = &[("Enter", "keep"), ("Tab", "take an offer"), ("Esc", "drop")];
        self.typing.then_some(KEYS)
    }

    /// A box that is not typed into, and begins as `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self { field: Field::new(text), ..Self::default() }
    }

    /// The text so far.
    pub fn value(&self) -> &str {
        self.field.value()
    }

    /// The line as a filter of runs; what of it cannot be is left out and told beside it.
    pub fn bind(&mut self, table: &RunTable) -> Bound {
        let (bound, wrong) = Filter::parse(self.value()).bind(table);
        self.tell(&wrong);
        bound
    }

    /// Tells beside it what of the line cannot be.
    pub fn tell(&mut self, wrong: &[Error]) {
        self.wrong = wrong.first().map(|error| format::error(error).replace('\n', "; "));
    }

    /// Offers what can be typed next of runs in a table.
    pub fn suggest(&mut self, table: &RunTable) {
        self.field.suggest(complete(self.value(), self.field.cursor(), table, MOST));
    }

    /// Draws what can be typed next under the line's row, over what the screen shows.
    pub fn draw_offers(&self, buf: &mut Buffer, row: Rect, body: Rect, theme: Theme) {
        if self.typing {
            self.field.offers.draw(buf, Position::new(row.x + 20, row.y), body, theme);
        }
    }

    /// What a key does; `None` where keys do not go to it.
    pub fn key(&mut self, key: KeyEvent) -> Option<Typed> {
        if !self.typing {
            return None;
        }
        Some(match key.code {
            KeyCode::Down if self.field.takes_down() => match self.field.key(key) {
                true => Typed::Changed,
                false => Typed::Moved,
            },
            KeyCode::Enter | KeyCode::Down => {
                self.typing = false;
                self.field.keep();
                Typed::Kept
            }
            KeyCode::Esc => {
                self.drop_text();
                Typed::Changed
            }
            _ if self.field.key(key) => Typed::Changed,
            _ => Typed::Moved,
        })
    }

    /// Takes pasted text; whether text goes to it.
    pub fn paste(&mut self, text: &str) -> bool {
        if self.typing {
            self.field.paste(text);
        }
        self.typing
    }

    /// Narrows nothing any more; whether it did.
    pub fn drop_text(&mut self) -> bool {
        self.typing = false;
        self.field.clear()
    }

    /// Draws it on a line, and beside it what is wrong with it, or while it is typed a hint; nothing where it is
    /// empty. The column behind all that.
    pub fn draw(&self, buf: &mut Buffer, area: Rect, theme: Theme, hint: &str) -> u16 {
        self.draw_named(buf, area, theme, "filter: ", hint)
    }

    /// As [`Self::draw`], with another name before it.
    pub fn draw_named(&self, buf: &mut Buffer, area: Rect, theme: Theme, name: &str, hint: &str) -> u16 {
        let mut x = area.x;
        if self.typing || !self.value().is_empty() {
            x = put(buf, area, x, area.y, name, theme.style(Role::Key));
            let room = Rect { x, width: area.right().saturating_sub(x + 1), ..area };
            x = if self.typing {
                let width = (self.value().width() as u16 + 1).min(room.width);
                self.field.draw(buf, Rect { width, ..room }, theme);
                x + width + 1
            } else {
                put(buf, room, x, area.y, self.value(), theme.style(Role::Text)) + 1
            };
        }
        match &self.wrong {
            Some(wrong) => put(buf, area, x, area.y, &format!("✘ {wrong}"), theme.style(Role::Bad)),
            None if self.typing => put(buf, area, x, area.y, hint, theme.style(Role::Dim)),
            None => x,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(field: &mut Field, code: KeyCode, modifiers: KeyModifiers) {
        field.key(KeyEvent::new(code, modifiers));
    }

    #[test]
    fn words_are_moved_over_and_what_was_taken_comes_back() {
        let mut field = Field::new("tp:8 batch>=16");
        press(&mut field, KeyCode::Left, KeyModifiers::CONTROL);
        press(&mut field, KeyCode::Char('k'), KeyModifiers::CONTROL);
        assert!(field.value().starts_with("tp:8 batch"), "{}", field.value());
        field.clear();
        for line in ["one", "two", "one"] {
            field.clear();
            field.paste(line);
            field.keep();
        }
        field.clear();
        field.paste("new\nand a line that is not taken");
        let mut seen = Vec::new();
        for code in [KeyCode::Up, KeyCode::Up, KeyCode::Up, KeyCode::Down, KeyCode::Down, KeyCode::Down]
        {
            press(&mut field, code, KeyModifiers::NONE);
            seen.push(field.value().to_owned());
        }
        assert_eq!(seen, ["one", "two", "two", "one", "new", "new"]);
    }

    #[test]
    fn a_text_is_put_in_the_place_of_bytes_with_the_cursor_behind_it() {
        let mut field = Field::new("größe:8 tp");
        assert!(!field.replace(3..8, "x"), "in the middle of a letter");
        assert!(field.replace(0..7, "batch"));
        assert_eq!((field.value(), field.cursor()), ("batch:8 tp", 5));
    }
}
