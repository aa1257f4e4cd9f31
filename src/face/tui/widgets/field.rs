//! Text input with common editing keys (← → by characters, with Ctrl or Alt by words, ↑ ↓ through the history, paste),
//! its completion popup (↑ ↓ choose, Tab inserts the choice), and the filter box built on it.

use std::borrow::Cow;
use std::ops::Range;

use crossterm::event::{Event, KeyModifiers};
use tui_input::backend::crossterm::EventHandler as _;
use tui_input::{Input, InputRequest};

use crate::face::tui::format;
use crate::face::tui::prelude::*;
use crate::face::tui::scope::{RunScope, ScopedRuns};
use base::error::Error;
use base::offer::{Completion, Offer};
use study::analysis::filter::{BoundFilter, Filter, complete_among};

const PAST: usize = 50;

#[derive(Clone, Debug, Default)]
pub struct TextField {
    input: Input,
    pub offers: Offers,
    /// History, oldest first.
    pub past: Vec<String>,
    /// Position in the history, counted back from the new line (0).
    back: usize,
    /// New line, saved while the history is browsed.
    new: String,
    /// True if the text is a proposal that the first typed character replaces.
    pub proposed: bool,
}

impl TextField {
    pub fn new(text: impl Into<String>) -> Self {
        Self { input: Input::new(text.into()), ..Self::default() }
    }

    pub fn value(&self) -> &str {
        self.input.value()
    }

    /// Byte position of the cursor.
    pub fn cursor(&self) -> usize {
        let text = self.value();
        text.char_indices().nth(self.input.cursor()).map_or(text.len(), |(at, _)| at)
    }

    /// Replaces a byte range and puts the cursor after it; false if the range is invalid.
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

    /// Clears the line; returns true if it was not empty.
    pub fn clear(&mut self) -> bool {
        let typed = !self.value().is_empty();
        (self.input, self.offers, self.back) = (Input::default(), Offers::default(), 0);
        typed
    }

    pub fn keep(&mut self) {
        let line = self.value().to_owned();
        self.past.retain(|past| *past != line && !line.is_empty());
        self.past.extend((!line.is_empty()).then_some(line));
        self.past.drain(..self.past.len().saturating_sub(PAST));
        self.back = 0;
    }

    pub fn suggest(&mut self, completion: Completion) {
        self.offers.set(completion, self.input.value());
    }

    /// True if ↓ has a meaning in the line.
    fn takes_down(&self) -> bool {
        self.back > 0 || !self.offers.list().is_empty()
    }

    /// Handles an editing or completion key; returns true if the text may have changed.
    pub fn key(&mut self, mut key: KeyEvent) -> bool {
        if std::mem::take(&mut self.proposed) {
            let commands = KeyModifiers::CONTROL | KeyModifiers::ALT;
            if matches!(key.code, KeyCode::Char(_)) && !key.modifiers.intersects(commands) {
                self.input = Input::default();
            }
        }
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
            // both Ctrl and Alt move by words
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

    /// Shows a history entry; false if there is none.
    fn travel(&mut self, back: usize) -> bool {
        let Some(at) = self.past.len().checked_sub(back) else { return false };
        if self.back == 0 {
            self.new = self.value().to_owned();
        }
        self.back = back;
        self.input = Input::new(self.past.get(at).unwrap_or(&self.new).clone());
        true
    }

    /// Inserts the first line of pasted text without control characters.
    pub fn paste(&mut self, text: &str) {
        if std::mem::take(&mut self.proposed) {
            self.input = Input::default();
        }
        first_line(text).for_each(|c| _ = self.input.handle(InputRequest::InsertChar(c)));
    }

    /// Draws the line, scrolled to keep the cursor visible.
    pub fn draw(&self, buf: &mut Buffer, area: Rect, theme: Theme) {
        let scroll = self.input.visual_scroll(usize::from(area.width.saturating_sub(1)));
        let shown: String = self.value().chars().skip(scroll).collect();
        let role = if self.proposed { Role::Selected } else { Role::Text };
        put(buf, area, area.x, area.y, &shown, theme.style(role));
        let at = area.x + self.input.visual_cursor().saturating_sub(scroll) as u16;
        let cursor = Rect::new(at, area.y, 1, 1).intersection(area);
        buf.set_style(cursor, theme.style(Role::Selected));
    }
}

/// First line of a text, without control characters.
pub fn first_line(text: &str) -> impl Iterator<Item = char> {
    text.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control())
}

/// Incremental filter box: Enter keeps the text, Escape drops it. On a result screen, the name of its scope is beside
/// the text.
#[derive(Clone, Debug, Default)]
pub struct FilterBox {
    pub field: TextField,
    /// Runs that a result screen shows; `None` on other screens.
    pub scope: Option<RunScope>,
    pub typing: bool,
    pub wrong: Option<String>,
}

/// Label before the text of a filter.
const LABEL: &str = "filter: ";

/// Effect of a key on the filter box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterKeyEffect {
    /// The text may have changed; filter again.
    Changed,
    /// Accepted; keys go to the screen again.
    Kept,
    Moved,
}

impl FilterBox {
    /// Hints while it has focus.
    pub fn taken(&self) -> Option<Hints> {
        const KEYS: Hints = &[("Enter", "keep"), ("Tab", "complete"), ("Esc", "drop")];
        self.typing.then_some(KEYS)
    }

    pub fn new(text: impl Into<String>) -> Self {
        Self { field: TextField::new(text), ..Self::default() }
    }

    /// Gives the box focus; the first typed letter replaces the text, keys that move or delete edit it.
    pub fn begin(&mut self) {
        self.typing = true;
        self.field.proposed = !self.value().is_empty();
    }

    /// Typed text, without the scope.
    pub fn value(&self) -> &str {
        self.field.value()
    }

    fn scoped(&self) -> Option<&ScopedRuns> {
        self.scope.as_ref()?.runs()
    }

    /// Experiment of the scope; `None` if all runs are in it.
    pub fn experiment(&self) -> Option<&str> {
        self.scoped().map(|runs| runs.experiment.as_str())
    }

    /// True if a run is in the scope.
    pub fn holds(&self, run: &str) -> bool {
        self.scoped().is_none_or(|runs| runs.holds(run))
    }

    /// True if the scope or the typed text may hide runs.
    pub fn narrows(&self) -> bool {
        !self.value().trim().is_empty() || self.scoped().is_some_and(|runs| !runs.is_all)
    }

    /// True if the box has something to draw.
    pub fn is_shown(&self) -> bool {
        self.typing || self.scope.is_some() || !self.value().is_empty()
    }

    /// Filter for a command line: the experiment, if its name finds the same cells, and the typed text.
    pub fn text(&self) -> Cow<'_, str> {
        match self.scoped().filter(|runs| runs.is_named && !runs.is_all) {
            None => self.value().into(),
            Some(runs) => {
                let chip = Filter { terms: vec![Filter::is("experiment", &runs.experiment)] };
                format!("{chip} {}", self.value()).trim_end().to_owned().into()
            }
        }
    }

    /// Scope that [`Self::text`] cannot express, in words.
    pub fn beyond(&self) -> Option<String> {
        let runs = self.scoped().filter(|runs| !runs.is_named && !runs.is_all)?;
        Some(format!(
            "the exact cells of experiment {}, which experiment=NAME does not select",
            runs.experiment
        ))
    }

    /// Runs of the scope that [`Self::text`] does not find, in words.
    pub fn runs_beyond(&self) -> Option<String> {
        let runs = self.scoped().filter(|runs| runs.is_named && !runs.is_all && runs.by_others > 0)?;
        Some(format!("{} of the same cells from other experiments", counted(runs.by_others, "run")))
    }

    /// Rows of the stored runs that the box leaves, with the bound filter. Invalid terms are ignored and reported next
    /// to the box.
    pub fn rows(&mut self, stored: &Snapshot) -> (BoundFilter, Vec<u32>) {
        let (bound, wrong) = Filter::parse(self.value()).bind(&stored.table);
        self.tell(&wrong);
        let mut rows = bound.rows(&stored.table);
        let run = |row: &u32| stored.records.get(*row as usize).map_or("", |record| record.run.as_str());
        rows.retain(|row| self.holds(run(row)));
        (bound, rows)
    }

    /// Shows the first error and the first line of its help. Further lines list all columns, which would cover the
    /// screen: the help finds them.
    pub fn tell(&mut self, wrong: &[Error]) {
        self.wrong = wrong.first().map(|error| {
            let text = format::error(error);
            let mut lines = text.lines();
            let shown = lines.by_ref().take(2).collect::<Vec<_>>().join("; ");
            let more = if lines.next().is_some() { " (? then / finds all columns)" } else { "" };
            shown + more
        });
    }

    /// Offers completions, with the values of the runs in the scope.
    pub fn suggest(&mut self, stored: &Snapshot) {
        let is_row = |row: usize| stored.records.get(row).is_some_and(|run| self.holds(&run.run));
        let rows = (&stored.table, &is_row as &dyn Fn(usize) -> bool);
        let completion = complete_among(self.value(), self.field.cursor(), rows, MOST);
        self.field.suggest(completion);
    }

    /// Draws the completions below the box, over the screen, or an error that is too long for its row.
    pub fn draw_offers(&self, buf: &mut Buffer, row: Rect, body: Rect, theme: Theme) {
        match &self.wrong {
            Some(wrong) if !self.has_room(wrong, row) => {
                let lines = wrap(&format!("✘ {wrong}"), row.width.saturating_sub(2).into());
                let height = lines.len() as u16;
                let area = Rect { y: row.y + 1, height, ..row }.intersection(body);
                for (text, line) in lines.iter().zip(area.rows()) {
                    let blank = " ".repeat(line.width.into());
                    put(buf, line, line.x, line.y, &blank, theme.style(Role::Text));
                    put(buf, line, line.x + 1, line.y, text, theme.style(Role::Bad));
                }
            }
            _ if self.typing => {
                self.field.offers.draw(buf, Position::new(row.x + 20, row.y), body, theme);
            }
            _ => {}
        }
    }

    /// True if an error fits into the row beside what comes before it.
    fn has_room(&self, wrong: &str, row: Rect) -> bool {
        const BEFORE: usize = 40;
        BEFORE + self.chip_width() + self.value().width() + wrong.width() <= row.width.into()
    }

    /// Columns of the whole box in a row, with the gap after it.
    pub fn whole_width(&self, row: Rect) -> usize {
        let has_text = self.typing || !self.value().is_empty();
        let text = if has_text { LABEL.width() + self.value().width() + 2 } else { 0 };
        let wrong = self.wrong.as_ref().map_or(0, |wrong| match self.has_room(wrong, row) {
            true => wrong.width() + 2,
            false => 2,
        });
        self.chip_width() + text + wrong
    }

    /// Columns of the name of the scope, with the gap after it.
    pub fn chip_width(&self) -> usize {
        self.scope.as_ref().map_or(0, |scope| scope.chip().width() + 1)
    }

    /// Handles a key; `None` without focus.
    pub fn key(&mut self, key: KeyEvent) -> Option<FilterKeyEffect> {
        if !self.typing {
            return None;
        }
        Some(match key.code {
            KeyCode::Down if self.field.takes_down() => match self.field.key(key) {
                true => FilterKeyEffect::Changed,
                false => FilterKeyEffect::Moved,
            },
            KeyCode::Enter | KeyCode::Down => {
                self.typing = false;
                self.field.keep();
                FilterKeyEffect::Kept
            }
            KeyCode::Esc => {
                self.drop_text();
                FilterKeyEffect::Changed
            }
            _ if self.field.key(key) => FilterKeyEffect::Changed,
            _ => FilterKeyEffect::Moved,
        })
    }

    /// Inserts pasted text; returns true if the box has focus.
    pub fn paste(&mut self, text: &str) -> bool {
        if self.typing {
            self.field.paste(text);
        }
        self.typing
    }

    /// Clears the typed text; returns true if it was not empty.
    pub fn drop_text(&mut self) -> bool {
        self.typing = false;
        self.field.clear()
    }

    /// Draws the name of the scope and the box, followed by its error, or by a hint while typing; draws nothing if
    /// empty. Returns the next free column.
    pub fn draw(&self, buf: &mut Buffer, area: Rect, theme: Theme, hint: &str) -> u16 {
        self.draw_named(buf, area, theme, LABEL, hint)
    }

    /// Like [`Self::draw`], with another label.
    pub fn draw_named(&self, buf: &mut Buffer, area: Rect, theme: Theme, name: &str, hint: &str) -> u16 {
        /// Least width of the name of a scope.
        const LEAST_CHIP: u16 = 6;
        let mut x = area.x;
        let has_text = self.typing || !self.value().is_empty();
        if let Some(scope) = &self.scope {
            // the text comes first
            let text = if has_text { (name.width() + self.value().width() + 3) as u16 } else { 0 };
            let (chip, room) = (scope.chip(), area.width.saturating_sub(text).max(LEAST_CHIP));
            let chip = match chip.width() > room.into() {
                true => format!("{}]", cut(&chip, room - 1)),
                false => chip,
            };
            x = put(buf, area, x, area.y, &chip, theme.style(Role::Title)) + 1;
        }
        if has_text {
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
            Some(wrong) => {
                // a long error is drawn below
                let wrong = if self.has_room(wrong, buf.area) { wrong } else { "" };
                put(buf, area, x, area.y, &format!("✘ {wrong}"), theme.style(Role::Bad))
            }
            None if self.typing => put(buf, area, x, area.y, hint, theme.style(Role::Dim)),
            None => x,
        }
    }
}

pub const MOST: usize = 8;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    completion: Completion,
    chosen: usize,
}

impl Offers {
    /// Sets the completions of a line, keeping the choice if they are unchanged. Clears them if the only
    /// one is typed already.
    pub fn set(&mut self, mut completion: Completion, line: &str) {
        let typed = line.get(completion.replaces.clone()).unwrap_or_default();
        if matches!(completion.offers.as_slice(), [only] if only.text == typed) {
            completion.offers.clear();
        }
        if completion != self.completion {
            (self.completion, self.chosen) = (completion, 0);
        }
    }

    /// Offers, best first.
    pub fn list(&self) -> &[Offer] {
        &self.completion.offers
    }

    /// Chooses the next or previous offer, wrapping around; false if there is none.
    pub fn choose(&mut self, next: bool) -> bool {
        let count = self.completion.offers.len();
        if count > 0 {
            self.chosen = (self.chosen + if next { 1 } else { count - 1 }) % count;
        }
        count > 0
    }

    /// Chosen text, and the byte range of the line that it replaces.
    pub fn chosen(&self) -> Option<(Range<usize>, String)> {
        let offer = self.completion.offers.get(self.chosen)?;
        Some((self.completion.replaces.clone(), offer.text.clone()))
    }

    /// Draws the offers below a position, or above it if there is no room, within an area.
    pub fn draw(&self, buf: &mut Buffer, at: Position, within: Rect, theme: Theme) {
        let offers = self.list();
        if offers.is_empty() {
            return;
        }
        let text = offers.iter().map(|offer| offer.text.width()).max().unwrap_or(0).min(36);
        let about = offers.iter().map(|offer| offer.about.width()).max().unwrap_or(0).min(44);
        let width = ((text + about + 6) as u16).min(within.width);
        let rows = offers.len().min(MOST) as u16 + 2;
        let x = at.x.min(within.right().saturating_sub(width));
        let below = within.bottom().saturating_sub(at.y + 1);
        let y = if below >= rows.min(5) { at.y + 1 } else { at.y.saturating_sub(rows) };
        let area = Rect::new(x, y, width, rows).intersection(within);
        let inner = popup(buf, area, "", theme);
        self.draw_rows(buf, inner, theme);
    }

    pub fn draw_rows(&self, buf: &mut Buffer, area: Rect, theme: Theme) {
        let offers = self.list();
        let height = usize::from(area.height);
        let first = (self.chosen + 1).saturating_sub(height);
        let texts = offers.iter().map(|offer| offer.text.width()).max().unwrap_or(0) as u16;
        let words = offers.iter().map(|offer| offer.about.width()).max().unwrap_or(0) as u16;
        // descriptions share one column, on the right if there is room
        let column = (area.x + texts + 3).max(area.right().saturating_sub(words + 1).min(area.x + 36));
        for (row, (index, offer)) in offers.iter().enumerate().skip(first).take(height).enumerate() {
            let y = area.y + row as u16;
            let end = put(buf, area, area.x + 1, y, &offer.text, theme.style(Role::Text));
            put(buf, area, column.max(end + 2), y, &offer.about, theme.style(Role::Dim));
            if index == self.chosen {
                select(buf, area, y, theme);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(field: &mut TextField, code: KeyCode, modifiers: KeyModifiers) {
        field.key(KeyEvent::new(code, modifiers));
    }

    #[test]
    fn words_are_moved_over_and_what_was_taken_comes_back() {
        let mut field = TextField::new("tp:8 batch>=16");
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
        let mut field = TextField::new("größe:8 tp");
        assert!(!field.replace(3..8, "x"), "in the middle of a letter");
        assert!(field.replace(0..7, "batch"));
        assert_eq!((field.value(), field.cursor()), ("batch:8 tp", 5));
    }
}
