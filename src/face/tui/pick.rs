//! Searchable picker. Input is words in any order, or letters of a name; for stored runs it is also a filter
//! expression; for files also a path whose folder is listed. The search runs once per change, not per frame.

use std::sync::Arc;

use super::overlay::{Folder, Overlay, is_no_text, whole_body};
use super::palette::{NOT_FOUND, PALETTE, PaletteBasis};
use super::prelude::*;
use super::ranking::{PickLine, by_letters, by_words};
use super::trace_picker::counterpart_rank;
use super::widgets::field::TextField;
use super::widgets::list::PAGE;
use super::widgets::wrap::wrap_long_words;
use crate::desk::files::folder_of;
use base::offer::Completion;
use base::text::folded;
use study::analysis::filter::{Filter, complete};

/// Longest description that is aligned to the right edge.
const SHORT: u16 = 12;

/// Names narrower than this leave room for a description column.
const SHORT_NAMES: u16 = 28;

/// Begins the description of files that cannot be opened.
const REFUSED: &str = "cannot be opened";

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

#[derive(Clone, Debug, Default)]
pub enum PickSearch {
    #[default]
    Letters,
    /// Fuzzy match of names, or a path.
    Paths,
    /// Filter expression over these runs, words of a file's name, or a path. The first lines are the runs in the same
    /// order; then files. Matches show files opened before, then runs, the newest first, then other files.
    Runs(Arc<Snapshot>),
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

/// Name and description of a match, shortened to the width of the list.
struct FittedLine {
    name: String,
    about: String,
    /// Column of the description.
    column: u16,
    /// Whole text if a part is cut.
    whole: Option<String>,
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

    /// Searches again, after lines were changed.
    pub fn search_again(&mut self) {
        self.searched = None;
        self.refresh();
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
            (PickSearch::Runs(stored), None) => {
                let typed = self.field.value();
                let (bound, _) = Filter::parse(typed).bind(&stored.table);
                let runs = bound.rows(&stored.table).into_iter().rev().map(|row| row as usize);
                // a run without a timeline comes last
                let (mut with, without): (Vec<_>, Vec<_>) =
                    runs.partition(|row| stored.records[*row].metrics.is_some());
                // below an open run, those to compare it with come first
                if let Some(open) = self.left_out.first().and_then(|run| stored.find(run)) {
                    with.sort_by_cached_key(|row| counterpart_rank(open, &stored.records[*row]));
                }
                // runs are found by the filter
                let first = stored.records.len().min(self.lines.len());
                let files = by_words(&self.lines[first..], typed).into_iter().map(|at| at + first);
                let (before, near): (Vec<_>, Vec<_>) = files.partition(|at| *at < self.fixed);
                let name = |at: &usize| match stored.records.get(*at) {
                    Some(record) => &record.run,
                    None => &self.lines[*at].name,
                };
                let mut found = [before, with, near, without].concat();
                found.retain(|at| !self.left_out.contains(name(at)));
                found
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

    /// True for a file that is known not to open, and an action that is not possible.
    fn is_refused(&self, at: usize) -> bool {
        match (self.path(), &self.folder) {
            (Some(_), Some((_, entries))) => entries.get(at).is_some_and(|entry| entry.is_refused),
            _ => self.lines.get(at).is_some_and(|line| line.is_off || line.about.starts_with(REFUSED)),
        }
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
            PickSearch::Runs(_) => {
                text.starts_with(['~', '/', '.'])
                    || (text.contains('/') && !text.contains([':', '=', '<', '>', ' ']))
            }
            _ => text.starts_with('~') || text.contains('/'),
        };
        (meant && !matches!(self.search, PickSearch::Letters)).then_some(text)
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

    /// Reason why no line is listed, and what to type.
    fn nothing(&self) -> &'static str {
        match (self.field.value().is_empty(), &self.search) {
            (true, PickSearch::Paths) => {
                "no trace near this folder: type a path, such as ~/ or ../; its files are listed here"
            }
            (true, PickSearch::Runs(_)) => {
                "no other trace or stored run yet: type a path, such as ~/ or ../; its files are listed here"
            }
            (true, PickSearch::Letters) => "nothing to choose from yet",
            (false, _) if self.title == PALETTE => NOT_FOUND,
            (false, PickSearch::Paths) => {
                "no trace here has these letters: type a path, such as ~/ or ../; its files are listed here"
            }
            (false, PickSearch::Runs(_)) => {
                "no run matches this filter, no trace has these words: type ladder, tp:8, or a path such as ~/"
            }
            (false, PickSearch::Letters) => "nothing matches",
        }
    }

    /// Text that Tab completes a name to: the common prefix of all names that begin as typed, else the selected line.
    fn completed(&self) -> Option<String> {
        let typed = self.field.value();
        let names = self.found.iter().filter_map(|at| Some(self.line(*at)?.0));
        // `.` is the folder itself
        let names = names.filter(|name| name.starts_with(typed) && !name.ends_with("/."));
        let longer = names.reduce(in_common).filter(|common| common.len() > typed.len());
        let selected = || Some(self.line(*self.found.get(self.selected)?)?.0);
        let is_chosen = self.selected > 0 || matches!(self.search, PickSearch::Letters);
        longer.filter(|_| !is_chosen).or_else(selected).map(str::to_owned)
    }

    /// Tab: completes the name in the input, or a filter of runs.
    fn complete(&mut self) {
        let text = self.field.value();
        let (bytes, completed) = match &self.search {
            PickSearch::Runs(stored) if self.path().is_none() => {
                let Completion { replaces, offers } =
                    complete(text, self.field.cursor(), &stored.table, 1);
                (replaces, offers.into_iter().next().map(|offer| offer.text))
            }
            _ => (0..text.len(), self.completed()),
        };
        if let Some(completed) = completed {
            self.field.replace(bytes, &completed);
            self.selected = 0;
            self.refresh();
        }
    }

    /// Enter: returns the choice. `None` if nothing matches or the picker descends into a folder.
    pub fn chosen(&mut self) -> Option<PickResult> {
        self.refresh();
        if self.literal().is_some() {
            return Some(PickResult::Text(self.field.value().to_owned()));
        }
        let at = self.found.get(self.selected).copied()?;
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

    /// Area of the popup, with its frame.
    fn area(&self, cx: &Context) -> Rect {
        let (names, words) = self.widths();
        let width = names.saturating_add(words).saturating_add(6).clamp(66, 120);
        // a list of fixed length gets only the height it needs
        let height = match self.search {
            PickSearch::Letters => (self.lines.len().min(100) as u16 + 4).clamp(7, 18),
            PickSearch::Paths | PickSearch::Runs(_) => 18,
        };
        let body = whole_body(cx);
        let meanings = self.meanings_rows(width.min(body.width).saturating_sub(2)).len();
        centered(body, width, height + meanings.saturating_sub(1) as u16)
    }

    /// Meanings of the marks, wrapped to a popup of this inner width.
    fn meanings_rows(&self, width: u16) -> Vec<String> {
        match self.meanings.is_empty() {
            true => Vec::new(),
            false => wrap(&self.meanings, usize::from(width.saturating_sub(2))),
        }
    }

    /// Error of the last choice, wrapped to a popup with this inner area.
    fn error_rows(&self, area: Rect) -> Vec<String> {
        let mut rows = self.error.as_ref().map_or_else(Vec::new, |error| {
            wrap(&format!("✘ {error}"), usize::from(area.width.saturating_sub(2)))
        });
        rows.truncate(usize::from(area.height / 2));
        rows
    }

    /// Rows of the list: below the text, the error and the meanings, or a blank row in their place.
    fn list_area(&self, area: Rect) -> Rect {
        let meanings = self.meanings_rows(area.width).len().max(1);
        cut_top(area, 1 + (self.error_rows(area).len() + meanings) as u16).1
    }

    /// First visible match in a list with this area, with `unfolded` rows below the selected one.
    fn first(&self, list: Rect, unfolded: usize) -> usize {
        (self.selected + 1 + unfolded).saturating_sub(list.height.into())
    }

    /// Match at this index cut to a list with this area; `widths` are those of all names and descriptions.
    fn fitted(&self, at: usize, widths: (u16, u16), list: Rect) -> Option<FittedLine> {
        let (names, words) = widths;
        let (name, about) = self.line(at)?;
        let taken = (about.width() as u16).min(list.width / 2);
        let room = list.width.saturating_sub(taken + if taken > 0 { 4 } else { 2 });
        // sentences are cut after a whole word, paths where they end
        let is_sentence = matches!(self.search, PickSearch::Letters);
        let fit = |text: &str, room: u16| match is_sentence {
            true => words_or_cut(text, room),
            false => cut(text, room),
        };
        let shown = fit(name, room);
        // descriptions share a column: to the right of the names, or in the right half of a narrow list
        let beside = list.width.saturating_sub(names.saturating_add(3));
        let widest = words.min(beside.max(list.width / 2));
        let column = list.x + list.width.saturating_sub(widest + 1).max((names + 3).min(30));
        // if others are long, short descriptions such as keys end at the right edge
        let line = self.lines.get(at).filter(|_| self.path().is_none());
        let ends_right = line.is_some_and(|line| line.is_elsewhere || line.is_off);
        let is_short = taken <= SHORT && words > SHORT || ends_right;
        let column = match is_short {
            true => list.right().saturating_sub(taken + 1),
            // a description that is too long for the column begins further left
            false => column.min(list.right().saturating_sub(about.width() as u16 + 1)),
        };
        // descriptions of short names align in one column
        let column =
            if is_sentence && names < SHORT_NAMES { column.max(list.x + names + 3) } else { column };
        let column = column.max(list.x + shown.width() as u16 + 3);
        let described = fit(about, list.right().saturating_sub(column));
        let is_cut = (&*shown, &*described) != (name, about);
        let whole = is_cut.then(|| format!("{name}  {about}"));
        Some(FittedLine { name: shown, about: described, column, whole })
    }

    /// Whole text of the selected match if its line is cut: rows between its line and the next one.
    fn unfolded(&self, widths: (u16, u16), list: Rect) -> Vec<String> {
        let line = self.found.get(self.selected).and_then(|at| self.fitted(*at, widths, list));
        let Some(whole) = line.and_then(|line| line.whole) else { return Vec::new() };
        let mut rows = wrap_long_words(&whole, usize::from(list.width.saturating_sub(3)));
        rows.truncate(usize::from(list.height.saturating_sub(1)));
        rows
    }
}

impl Overlay for Pick {
    fn draw(&self, buf: &mut Buffer, cx: &Context) {
        let theme = cx.theme;
        let area = popup(buf, self.area(cx), &self.title, theme);
        let x = put(buf, area, area.x, area.y, "› ", theme.style(Role::Key));
        let typed =
            Rect { x, width: area.right().saturating_sub(x), height: 1.min(area.height), ..area };
        self.field.draw(buf, typed, theme);
        for (y, text) in (area.y + 1..).zip(self.error_rows(area)) {
            put(buf, area, area.x + 1, y, &text, theme.style(Role::Bad));
        }
        let list = self.list_area(area);
        let meanings = self.meanings_rows(area.width);
        for (y, text) in (list.y.saturating_sub(meanings.len() as u16)..list.y).zip(&meanings) {
            put(buf, area, area.x + 1, y, text, theme.style(Role::Dim));
        }
        let none = || self.found.is_empty().then(|| (self.nothing().to_owned(), Role::Dim));
        let instead = self.literal().map(|text| (text, Role::Text)).or_else(none);
        if let Some((text, role)) = instead {
            for (y, text) in (list.y..).zip(wrap(&text, usize::from(area.width.saturating_sub(2)))) {
                put(buf, area, area.x + 1, y, &text, theme.style(role));
            }
            return;
        }
        let widths = self.widths();
        let unfolded = self.unfolded(widths, list);
        let rows = usize::from(list.height) - unfolded.len();
        let first = self.first(list, unfolded.len());
        let below = self.found.len().saturating_sub(first + rows);
        hidden_rows(buf, self.area(cx).intersection(buf.area), first, below, theme);
        let mut y = list.y;
        for (row, at) in self.found.iter().enumerate().skip(first).take(rows) {
            let Some(line) = self.fitted(*at, widths, list) else { continue };
            let role = if self.is_refused(*at) { Role::Dim } else { Role::Text };
            put(buf, area, area.x + 1, y, &line.name, theme.style(role));
            put(buf, area, line.column, y, &line.about, theme.style(Role::Dim));
            if row == self.selected {
                select(buf, area, y, theme);
                for text in &unfolded {
                    y += 1;
                    put(buf, area, area.x + 2, y, text, theme.style(Role::Text));
                    select(buf, area, y, theme);
                }
            }
            y += 1;
        }
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
        let unfolded = self.unfolded(self.widths(), list).len();
        let row = self.first(list, unfolded) + usize::from(at.y.checked_sub(list.y)?);
        // the rows below the selected match belong to it
        let row = row.saturating_sub(unfolded).max(row.min(self.selected));
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

/// Common prefix of two names.
fn in_common<'a>(a: &'a str, b: &'a str) -> &'a str {
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b);
    &a[..same.map(|(letter, _)| letter.len_utf8()).sum()]
}
