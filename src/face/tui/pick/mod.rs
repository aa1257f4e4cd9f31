//! Searchable picker. Input is words in any order, or letters of a name; for stored runs it is also a filter
//! expression; for files also a path whose folder is listed. The search runs once per change, not per frame.

mod draw;
mod search;

use std::sync::Arc;

use super::overlay::{Folder, Overlay, is_no_text};
use super::palette::PaletteBasis;
use super::prelude::*;
use super::ranking::PickLine;
use super::widgets::field::TextField;
use super::widgets::list::PAGE;
use crate::desk::files::folder_of;
pub use search::PickSearch;

pub struct Pick {
    pub title: String,
    pub field: TextField,
    /// Selected match, an index into `found`.
    pub selected: usize,
    pub(super) lines: Vec<PickLine>,
    pub search: PickSearch,
    /// Number of lines that are chosen by index; later ones by name.
    pub(super) fixed: usize,
    /// Ids and paths that are not listed: traces shown already.
    pub(super) left_out: Vec<String>,
    /// Indices of the matching lines, best first.
    pub(super) found: Vec<usize>,
    searched: Option<String>,
    folder: Option<Folder>,
    /// Error of the last choice, until the text changes.
    pub(super) error: Option<String>,
    /// True if Enter was pressed before the folder of the typed path was listed: it is pressed again then.
    pub(super) awaited: bool,
    /// Contents of the palette; `None` for other pickers.
    pub(super) basis: Option<PaletteBasis>,
    literal: Literal,
    take: TakeChosen,
    /// Meanings of the marks in the lines, above them; may be empty.
    meanings: String,
}

/// Describes what Enter does with the typed text itself, or returns `None` if the text is not a valid
/// choice. Arguments: the text, and true if no line matches it.
type Literal = Box<dyn Fn(&str, bool) -> Option<String>>;

type TakeChosen = Box<dyn FnOnce(&mut State, PickResult)>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PickResult {
    Line(usize),
    /// Typed text, a run id, or a file path.
    Text(String),
}

impl Pick {
    /// Creates a picker; `literal` describes what Enter does with the typed text itself, if it is a
    /// valid choice.
    pub fn new(
        title: impl Into<String>,
        lines: Vec<(String, String)>,
        literal: impl Fn(&str, bool) -> Option<String> + 'static,
        take: impl FnOnce(&mut State, PickResult) + 'static,
    ) -> Self {
        let (literal, take) = (Box::new(literal), Box::new(take));
        let mut pick = Self {
            title: title.into(),
            field: TextField::default(),
            selected: 0,
            fixed: lines.len(),
            lines: lines.into_iter().map(PickLine::new).collect(),
            left_out: Vec::new(),
            search: PickSearch::Letters,
            found: Vec::new(),
            searched: None,
            folder: None,
            error: None,
            awaited: false,
            basis: None,
            literal,
            take,
            meanings: String::new(),
        };
        pick.refresh();
        pick
    }

    /// Explains the marks in the lines, above them.
    pub fn explained(self, meanings: String) -> Self {
        Self { meanings, ..self }
    }

    pub fn typed(mut self, text: &str) -> Self {
        self.field = TextField::new(text);
        self.refresh();
        self
    }

    /// Shows the error of the last choice, until the text changes.
    pub fn refused(self, why: String) -> Self {
        Self { error: Some(why), ..self }
    }

    pub fn searched_by(mut self, search: PickSearch) -> Self {
        (self.search, self.searched) = (search, None);
        self.refresh();
        self
    }

    /// Appends lines whose names are not listed yet.
    pub fn add(&mut self, lines: Vec<(String, String)>) {
        for line in lines {
            if self.lines.iter().all(|known| known.name != line.0) {
                self.lines.push(PickLine::new(line));
            }
        }
        self.searched = None;
        self.refresh();
    }

    pub fn selecting(self, selected: usize) -> Self {
        Self { selected, ..self }
    }

    /// Lists the most recently read folder if it is the one being typed.
    fn list_folder(&mut self, folder: Option<&Folder>) {
        let wanted = self.folder();
        let folder = folder.filter(|folder| Some(&folder.0) == wanted.as_ref());
        let same = match (&self.folder, folder) {
            (Some((_, known)), Some((_, now))) => Arc::ptr_eq(known, now),
            (None, None) => true,
            _ => false,
        };
        if !same {
            let on = self.found.get(self.selected).and_then(|at| self.line(*at));
            let on = on.map(|(path, _)| path.to_owned()).filter(|_| self.selected > 0);
            (self.folder, self.searched) = (folder.cloned(), None);
            self.refresh();
            // a look into the files orders them anew
            let is_on = |at: &usize| self.line(*at).map(|(path, _)| path) == on.as_deref();
            self.selected = self.found.iter().position(is_on).filter(|_| on.is_some()).unwrap_or(0);
        }
    }

    #[cfg(test)]
    pub fn found(&self) -> &[usize] {
        &self.found
    }

    /// Address of the list, which is new after a rebuild.
    #[cfg(test)]
    pub fn lines(&self) -> *const () {
        self.lines.as_ptr().cast()
    }

    pub fn line(&self, at: usize) -> Option<(&str, &str)> {
        if self.path().is_some() {
            let (_, entries) = self.folder.as_ref()?;
            return entries.get(at).map(|entry| (entry.path.as_str(), entry.about.as_str()));
        }
        self.lines.get(at).map(|line| (line.name.as_str(), line.about.as_str()))
    }

    /// True for the line that counts the lines left out of its group.
    fn is_more(&self, at: usize) -> bool {
        self.path().is_none() && self.lines.get(at).is_some_and(|line| line.more_of.is_some())
    }

    /// True while the folder of the typed path is being read.
    fn is_unlisted(&self) -> bool {
        let is_listed = |wanted: &str| self.folder.as_ref().is_some_and(|(folder, _)| folder == wanted);
        self.path().is_some_and(|path| !is_listed(folder_of(path)))
    }

    /// Action of Enter on the typed text itself, if it is a valid choice.
    fn literal(&self) -> Option<String> {
        (self.literal)(self.field.value(), self.found.is_empty())
    }

    /// Enter: returns the choice. `None` if nothing matches, the picker descends into a folder, or the line only counts
    /// others.
    pub fn chosen(&mut self) -> Option<PickResult> {
        self.refresh();
        if self.literal().is_some() {
            return Some(PickResult::Text(self.field.value().to_owned()));
        }
        let at = self.found.get(self.selected).copied().filter(|at| !self.is_more(*at))?;
        if self.path().is_none() {
            return Some(match &self.search {
                PickSearch::Letters if at < self.fixed => PickResult::Line(at),
                PickSearch::Runs(stored) if at < stored.records.len() => {
                    PickResult::Text(stored.records[at].run.clone())
                }
                _ => PickResult::Text(self.lines.get(at)?.name.clone()),
            });
        }
        let entry = self.folder.as_ref()?.1.get(at)?.clone();
        if entry.is_folder() {
            self.field.replace(0..self.field.value().len(), &entry.path);
            self.selected = 0;
            return None;
        }
        Some(PickResult::Text(entry.path))
    }
}

impl Overlay for Pick {
    fn draw(&self, buf: &mut Buffer, cx: &Context) {
        self.draw_popup(buf, cx);
    }

    fn hints(&self) -> Hints {
        &[("Enter", "choose"), ("↑ ↓", "select"), ("Tab", "complete"), ("Esc", "close")]
    }

    fn key(mut self: Box<Self>, key: KeyEvent, state: &mut State) -> Option<Box<dyn Overlay>> {
        match key.code {
            KeyCode::Esc => return None,
            KeyCode::Enter if self.is_unlisted() => self.awaited = true,
            KeyCode::Enter => {
                self.awaited = false;
                if let Some(chosen) = self.chosen() {
                    (self.take)(state, chosen);
                    return None;
                }
                if self.found.is_empty() {
                    state.cx.inform(self.nothing());
                }
            }
            KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down => self.selected += 1,
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(PAGE),
            KeyCode::PageDown => self.selected += PAGE,
            KeyCode::Tab => self.complete(),
            _ if self.field.key(key) => (self.selected, self.error, self.awaited) = (0, None, false),
            code if is_no_text(code) => state.cx.say_what_closes(),
            _ => {}
        }
        Some(self)
    }

    fn scroll(&mut self, rows: isize) {
        let last = self.found.len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(rows).min(last);
    }

    fn paste(&mut self, text: &str) {
        (self.selected, self.error, self.awaited) = (0, None, false);
        self.field.paste(text);
    }

    /// A click on a line chooses it, one outside closes the picker.
    fn click(&mut self, at: Position, cx: &Context) -> Option<KeyCode> {
        let outer = self.area(cx);
        if !outer.contains(at) {
            return Some(KeyCode::Esc);
        }
        let list = self.list_area(inside(outer));
        let further = self.unfolded(self.widths(), list).len().saturating_sub(1);
        let row = self.first(list, further) + usize::from(at.y.checked_sub(list.y)?);
        // the rows below the selected match belong to it
        let row = row.saturating_sub(further).max(row.min(self.selected));
        let on = list.contains(at) && row < self.found.len() && self.literal().is_none();
        on.then(|| {
            self.selected = row;
            KeyCode::Enter
        })
    }

    fn folder(&self) -> Option<String> {
        self.path().map(|path| folder_of(path).to_owned())
    }

    fn settle(&mut self, cx: &Context) {
        self.list_folder(cx.folder.as_ref());
        self.refresh();
        self.selected = self.selected.min(self.found.len().saturating_sub(1));
    }
}
