//! Searchable picker. Input matches names fuzzily; for stored runs it is a filter expression; for files
//! it is a path whose folder is listed. The search runs once per change, not per frame.

use std::sync::Arc;

use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher};

use super::overlay::{Folder, Overlay, whole_body};
use super::prelude::*;
use super::widgets::field::Field;
use super::widgets::list::PAGE;
use crate::desk::files::folder_of;
use base::text::folded;
use study::analysis::filter::{Filter, complete};

pub struct Pick {
    pub title: String,
    pub field: Field,
    /// Selected match, an index into `found`.
    pub selected: usize,
    /// Entries: the searched name and a description.
    lines: Vec<(String, String)>,
    pub search: Search,
    /// Indices of the matching lines, best first.
    found: Vec<usize>,
    searched: Option<String>,
    folder: Option<Folder>,
    literal: Literal,
    take: TakeChosen,
}

#[derive(Clone, Debug, Default)]
pub enum Search {
    #[default]
    Letters,
    /// Fuzzy match of names, or a path.
    Paths,
    /// Filter expression over these runs, or a path. The lines are the runs in the same order; matches
    /// show the newest first.
    Runs(Arc<Snapshot>),
}

/// Describes what Enter does with the typed text itself, or returns `None` if the text is not a valid
/// choice. Arguments: the text, and true if no line matches it.
type Literal = Box<dyn Fn(&str, bool) -> Option<String>>;

type TakeChosen = Box<dyn FnOnce(&mut State, Chosen)>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    Line(usize),
    /// Typed text, a run id, or a file path.
    Text(String),
}

struct Named<'a>(usize, &'a str);

impl AsRef<str> for Named<'_> {
    fn as_ref(&self) -> &str {
        self.1
    }
}

impl Pick {
    /// Creates a picker; `literal` describes what Enter does with the typed text itself, if it is a
    /// valid choice.
    pub fn new(
        title: impl Into<String>,
        lines: Vec<(String, String)>,
        literal: impl Fn(&str, bool) -> Option<String> + 'static,
        take: impl FnOnce(&mut State, Chosen) + 'static,
    ) -> Self {
        let (literal, take) = (Box::new(literal), Box::new(take));
        let mut pick = Self {
            title: title.into(),
            field: Field::default(),
            selected: 0,
            lines,
            search: Search::Letters,
            found: Vec::new(),
            searched: None,
            folder: None,
            literal,
            take,
        };
        pick.refresh();
        pick
    }

    pub fn typed(mut self, text: &str) -> Self {
        self.field = Field::new(text);
        self.refresh();
        self
    }

    pub fn searched_by(mut self, search: Search) -> Self {
        (self.search, self.searched) = (search, None);
        self.refresh();
        self
    }

    /// Appends lines whose names are not listed yet.
    pub fn add(&mut self, lines: Vec<(String, String)>) {
        for line in lines {
            if self.lines.iter().all(|known| known.0 != line.0) {
                self.lines.push(line);
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
            (self.folder, self.searched) = (folder.cloned(), None);
        }
    }

    /// Searches for the input unless it is unchanged.
    fn refresh(&mut self) {
        if self.searched.as_deref() == Some(self.field.value()) {
            return;
        }
        self.found = match (&self.search, self.path()) {
            (_, Some(path)) => {
                let typed = folded(&path[folder_of(path).len()..]);
                let entries = self.folder.iter().flat_map(|(folder, entries)| {
                    entries.iter().enumerate().map(move |(at, entry)| (at, &entry.path[folder.len()..]))
                });
                // hidden files only match a typed dot; `.` is the folder itself
                let shown = |name: &str| typed.starts_with('.') || name == "." || !name.starts_with('.');
                let mut found: Vec<(bool, usize)> = entries
                    .filter(|(_, name)| shown(name))
                    .filter_map(|(at, name)| Some((folded(name).find(&typed)? > 0, at)))
                    .collect();
                found.sort_by_key(|(within, _)| *within);
                found.into_iter().map(|(_, at)| at).collect()
            }
            (Search::Runs(stored), None) => {
                let (bound, _) = Filter::parse(self.field.value()).bind(&stored.table);
                bound.rows(&stored.table).into_iter().rev().map(|row| row as usize).collect()
            }
            _ => by_letters(&self.lines, self.field.value()),
        };
        self.searched = Some(self.field.value().to_owned());
        self.selected = self.selected.min(self.found.len().saturating_sub(1));
    }

    #[cfg(test)]
    pub fn found(&self) -> &[usize] {
        &self.found
    }

    pub fn line(&self, at: usize) -> Option<(&str, &str)> {
        if self.path().is_some() {
            let (_, entries) = self.folder.as_ref()?;
            return entries.get(at).map(|entry| (entry.path.as_str(), entry.about.as_str()));
        }
        self.lines.get(at).map(|(name, about)| (name.as_str(), about.as_str()))
    }

    fn widths(&self) -> (u16, u16) {
        let count = match (self.path(), &self.folder) {
            (Some(_), folder) => folder.as_ref().map_or(0, |(_, entries)| entries.len()),
            (None, _) => self.lines.len(),
        };
        let widest = |(names, words): (usize, usize), (name, about): (&str, &str)| {
            (names.max(name.width()), words.max(about.width()))
        };
        let (names, words) = (0..count).filter_map(|at| self.line(at)).fold((0, 0), widest);
        (names as u16, words as u16)
    }

    /// Typed path, if the picker accepts paths.
    fn path(&self) -> Option<&str> {
        let text = self.field.value();
        let meant = match &self.search {
            // column and model names may contain slashes, too
            Search::Runs(_) => {
                text.starts_with(['~', '/', '.'])
                    || (text.contains('/') && !text.contains([':', '=', '<', '>', ' ']))
            }
            _ => text.starts_with('~') || text.contains('/'),
        };
        (meant && !matches!(self.search, Search::Letters)).then_some(text)
    }

    /// Action of Enter on the typed text itself, if it is a valid choice.
    fn literal(&self) -> Option<String> {
        (self.literal)(self.field.value(), self.found.is_empty())
    }

    /// Tab: copies the selected line into the input, or completes a filter of runs.
    fn complete(&mut self) {
        let text = self.field.value();
        let completion = match &self.search {
            Search::Runs(stored) if self.path().is_none() => {
                complete(text, self.field.cursor(), &stored.table, 1)
            }
            _ => {
                let name = self.found.get(self.selected).and_then(|at| self.line(*at));
                let Some((name, _)) = name.map(|(name, about)| (name.to_owned(), about)) else { return };
                self.field.replace(0..text.len(), &name);
                self.selected = 0;
                return self.refresh();
            }
        };
        if let Some(offer) = completion.offers.first() {
            self.field.replace(completion.replaces, &offer.text);
            self.selected = 0;
            self.refresh();
        }
    }

    /// Enter: returns the choice. `None` if nothing matches or the picker descends into a folder.
    pub fn chosen(&mut self) -> Option<Chosen> {
        self.refresh();
        if self.literal().is_some() {
            return Some(Chosen::Text(self.field.value().to_owned()));
        }
        let at = self.found.get(self.selected).copied()?;
        if self.path().is_none() {
            return Some(match self.search {
                Search::Letters => Chosen::Line(at),
                Search::Paths | Search::Runs(_) => Chosen::Text(self.lines.get(at)?.0.clone()),
            });
        }
        let entry = self.folder.as_ref()?.1.get(at)?.clone();
        if entry.is_folder() {
            self.field.replace(0..self.field.value().len(), &entry.path);
            self.selected = 0;
            return None;
        }
        Some(Chosen::Text(entry.path))
    }
}

impl Overlay for Pick {
    fn draw(&self, buf: &mut Buffer, cx: &Context) {
        let theme = cx.theme;
        let (names, words) = self.widths();
        let width = names.saturating_add(words).saturating_add(6).clamp(66, 100);
        // a list of fixed length gets only the height it needs
        let height = match self.search {
            Search::Letters => (self.lines.len() as u16).saturating_add(4).clamp(7, 18),
            Search::Paths | Search::Runs(_) => 18,
        };
        let area = popup(buf, centered(whole_body(cx), width, height), &self.title, theme);
        let x = put(buf, area, area.x, area.y, "› ", theme.style(Role::Key));
        let typed =
            Rect { x, width: area.right().saturating_sub(x), height: 1.min(area.height), ..area };
        self.field.draw(buf, typed, theme);
        let instead = self.literal().map(|text| (text, Role::Text)).or_else(|| {
            let empty = self.field.value().is_empty();
            let none = if empty { "nothing to choose from yet" } else { "nothing matches" };
            self.found.is_empty().then(|| (none.to_owned(), Role::Dim))
        });
        if let Some((text, role)) = instead {
            for (y, text) in (area.y + 2..).zip(wrap(&text, usize::from(area.width.saturating_sub(2)))) {
                put(buf, area, area.x + 1, y, &text, theme.style(role));
            }
            return;
        }
        let rows = usize::from(area.height.saturating_sub(2));
        let first = (self.selected + 1).saturating_sub(rows);
        // align descriptions in one column, as far right as they fit
        let column = area.x + area.width.saturating_sub(words + 1).max((names + 3).min(30));
        for ((row, at), y) in self.found.iter().enumerate().skip(first).take(rows).zip(area.y + 2..) {
            let Some((name, about)) = self.line(*at) else { continue };
            let end = put(buf, area, area.x + 1, y, name, theme.style(Role::Text));
            put(buf, area, column.max(end + 2), y, about, theme.style(Role::Dim));
            if row == self.selected {
                select(buf, area, y, theme);
            }
        }
    }

    fn hints(&self) -> Hints {
        &[("Enter", "choose"), ("↑ ↓", "select"), ("Tab", "complete"), ("Esc", "close")]
    }

    fn key(mut self: Box<Self>, key: KeyEvent, state: &mut State) -> Option<Box<dyn Overlay>> {
        match key.code {
            KeyCode::Esc => return None,
            KeyCode::Enter => {
                if let Some(chosen) = self.chosen() {
                    (self.take)(state, chosen);
                    return None;
                }
            }
            KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down => self.selected += 1,
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(PAGE),
            KeyCode::PageDown => self.selected += PAGE,
            KeyCode::Tab => self.complete(),
            _ if self.field.key(key) => self.selected = 0,
            _ => {}
        }
        Some(self)
    }

    fn paste(&mut self, text: &str) {
        self.selected = 0;
        self.field.paste(text);
    }

    fn closes_on_click(&self) -> bool {
        true
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

/// Matches names that contain the typed letters in order. If any name contains every typed word, only
/// those are returned, prefix matches first: part of a name is meant literally.
fn by_letters(lines: &[(String, String)], typed: &str) -> Vec<usize> {
    let typed = typed.trim_end_matches([' ', '=']);
    let pattern = Pattern::parse(typed, CaseMatching::Ignore, Normalization::Smart);
    let names = lines.iter().enumerate().map(|(at, line)| Named(at, &line.0));
    let found = pattern.match_list(names, &mut Matcher::new(Config::DEFAULT));
    let typed = folded(typed);
    let name = |at: &usize| folded(&lines[*at].0);
    let holds = |at: &usize| typed.split_whitespace().all(|word| name(at).contains(word));
    let mut whole: Vec<usize> = (0..lines.len()).filter(holds).collect();
    let found: Vec<usize> = found.into_iter().map(|(named, _)| named.0).collect();
    if whole.is_empty() {
        return found;
    }
    let rank = |at: &usize| found.iter().position(|other| other == at).unwrap_or(usize::MAX);
    whole.sort_by_key(|at| {
        let name = name(at);
        (!name.starts_with(&typed), !name.contains(&typed), rank(at))
    });
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_as_typed_comes_first() {
        let lines = ["only these runs", "open a trace", "runs: sort", "rewire"];
        let lines: Vec<_> = lines.map(|name| (name.to_owned(), String::new())).into();
        assert_eq!(by_letters(&lines, "runs"), [2, 0]);
        assert_eq!(by_letters(&lines, "r"), [2, 3, 0, 1], "then by how well letters fit");
        assert_eq!(by_letters(&lines, "rwr"), [3], "no name holds these together");
    }
}
