//! Searchable picker, and the pickers of the workbench: the palette (actions with their shortcuts, items of all screens,
//! traces, themes), items of one screen, themes, stored runs, trace files. Input is words in any order, or letters of a
//! name; for stored runs it is also a filter expression; for files also a path whose folder is listed. The search runs
//! once per change, not per frame.

use std::path::Path;
use std::sync::Arc;

use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher};

use super::context::{Context, Notice, Opening, Request};
use super::keymap::{Action, MOVING};
use super::keymap::{Bound, Keymap, Scope};
use super::overlay::{Folder, Overlay, whole_body};
use super::prelude::*;
use super::screens::experiments::state::Entry;
use super::screens::live::state::LiveCell;
use super::update::act;
use super::widgets::field::Field;
use super::widgets::list::PAGE;
use crate::desk::files;
use crate::desk::files::{FileEntry, folder_of};
use base::text::folded;
use study::analysis::NameRow;
use study::analysis::filter::{Filter, complete};
use study::whatif::Slider;
use table::Record;

/// Longest description that is aligned to the right edge.
const SHORT: u16 = 12;

pub struct Pick {
    pub title: String,
    pub field: Field,
    /// Selected match, an index into `found`.
    pub selected: usize,
    lines: Vec<PickLine>,
    pub search: Search,
    /// Number of lines that are chosen by index; later ones by name.
    fixed: usize,
    /// Ids and paths that are not listed: traces shown already.
    left_out: Vec<String>,
    /// Indices of the matching lines, best first.
    found: Vec<usize>,
    searched: Option<String>,
    folder: Option<Folder>,
    /// Error of the last choice, until the text changes.
    error: Option<String>,
    /// Contents of the palette; `None` for other pickers.
    basis: Option<PaletteBasis>,
    literal: Literal,
    take: TakeChosen,
}

/// Line of a picker: the searched name, and its description.
#[derive(Clone, Debug)]
struct PickLine {
    name: String,
    about: String,
    /// Name as searched: folded.
    folded: String,
    /// Other words that find the line, folded: those of the description among them.
    also: String,
    is_elsewhere: bool,
}

impl PickLine {
    fn new((name, about): (String, String)) -> Self {
        let (folded, also) = (folded(&name), folded(&about));
        Self { name, about, folded, also, is_elsewhere: false }
    }

    fn is_same(&self, other: &Self) -> bool {
        (&self.name, &self.about) == (&other.name, &other.about)
    }
}

#[derive(Clone, Debug, Default)]
pub enum Search {
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

type TakeChosen = Box<dyn FnOnce(&mut State, Chosen)>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    Line(usize),
    /// Typed text, a run id, or a file path.
    Text(String),
}

/// Name of a line at this index.
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
            fixed: lines.len(),
            lines: lines.into_iter().map(PickLine::new).collect(),
            left_out: Vec::new(),
            search: Search::Letters,
            found: Vec::new(),
            searched: None,
            folder: None,
            error: None,
            basis: None,
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
            if self.lines.iter().all(|known| known.name != line.0) {
                self.lines.push(PickLine::new(line));
            }
        }
        self.searched = None;
        self.refresh();
    }

    /// Lists files from the directory of the last trace, then recent files from elsewhere, then files near the current
    /// directory; files that cannot be opened come last.
    fn list_files(&mut self, siblings: Vec<FileEntry>, near: Vec<FileEntry>) {
        let before = std::mem::take(&mut self.lines);
        let (refused, siblings): (Vec<_>, Vec<_>) =
            siblings.into_iter().partition(|file| file.is_refused);
        let before = before.into_iter().map(|line| (line.name, line.about)).collect();
        for group in [files_as_lines(siblings), before, files_as_lines(near), files_as_lines(refused)] {
            self.add(group);
        }
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
                let typed = self.field.value();
                let (bound, _) = Filter::parse(typed).bind(&stored.table);
                let runs = bound.rows(&stored.table).into_iter().rev().map(|row| row as usize);
                // a run without a timeline comes last
                let (with, without): (Vec<_>, Vec<_>) =
                    runs.partition(|row| stored.records[*row].metrics.is_some());
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

    /// True for a file that is known not to open.
    fn is_refused(&self, at: usize) -> bool {
        match (self.path(), &self.folder) {
            (Some(_), Some((_, entries))) => entries.get(at).is_some_and(|entry| entry.is_refused),
            _ => self.lines.get(at).is_some_and(|line| line.about.starts_with(REFUSED)),
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

    /// Reason why no line is listed, and what to type.
    fn nothing(&self) -> &'static str {
        match (self.field.value().is_empty(), &self.search) {
            (true, Search::Paths) => {
                "no trace near this folder: type a path, such as ~/ or ../; its files are listed here"
            }
            (true, Search::Runs(_)) => {
                "no other trace or stored run yet: type a path, such as ~/ or ../; its files are listed here"
            }
            (true, Search::Letters) => "nothing to choose from yet",
            (false, _) if self.title == PALETTE => NOT_FOUND,
            (false, Search::Paths) => {
                "no trace here has these letters: type a path, such as ~/ or ../; its files are listed here"
            }
            (false, Search::Runs(_)) => {
                "no run matches this filter, no trace has these words: type ladder, tp:8, or a path such as ~/"
            }
            (false, Search::Letters) => "nothing matches",
        }
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
            return Some(match &self.search {
                Search::Letters if at < self.fixed => Chosen::Line(at),
                Search::Runs(stored) if at < stored.records.len() => {
                    Chosen::Text(stored.records[at].run.clone())
                }
                _ => Chosen::Text(self.lines.get(at)?.name.clone()),
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

impl Pick {
    /// Area of the popup, with its frame.
    fn area(&self, cx: &Context) -> Rect {
        let (names, words) = self.widths();
        let width = names.saturating_add(words).saturating_add(6).clamp(66, 100);
        // a list of fixed length gets only the height it needs
        let height = match self.search {
            Search::Letters => (self.lines.len().min(100) as u16 + 4).clamp(7, 18),
            Search::Paths | Search::Runs(_) => 18,
        };
        centered(whole_body(cx), width, height)
    }

    /// Error of the last choice, wrapped to a popup with this inner area.
    fn error_rows(&self, area: Rect) -> Vec<String> {
        let mut rows = self.error.as_ref().map_or_else(Vec::new, |error| {
            wrap(&format!("✘ {error}"), usize::from(area.width.saturating_sub(2)))
        });
        rows.truncate(usize::from(area.height / 2));
        rows
    }

    /// Rows of the list: below the text and the error.
    fn list_area(&self, area: Rect) -> Rect {
        cut_top(area, 2 + self.error_rows(area).len() as u16).1
    }

    /// First visible match in a list with this area.
    fn first(&self, list: Rect) -> usize {
        (self.selected + 1).saturating_sub(list.height.into())
    }
}

impl Overlay for Pick {
    fn draw(&self, buf: &mut Buffer, cx: &Context) {
        let theme = cx.theme;
        let (names, words) = self.widths();
        let area = popup(buf, self.area(cx), &self.title, theme);
        let x = put(buf, area, area.x, area.y, "› ", theme.style(Role::Key));
        let typed =
            Rect { x, width: area.right().saturating_sub(x), height: 1.min(area.height), ..area };
        self.field.draw(buf, typed, theme);
        for (y, text) in (area.y + 1..).zip(self.error_rows(area)) {
            put(buf, area, area.x + 1, y, &text, theme.style(Role::Bad));
        }
        let list = self.list_area(area);
        let none = || self.found.is_empty().then(|| (self.nothing().to_owned(), Role::Dim));
        let instead = self.literal().map(|text| (text, Role::Text)).or_else(none);
        if let Some((text, role)) = instead {
            for (y, text) in (list.y..).zip(wrap(&text, usize::from(area.width.saturating_sub(2)))) {
                put(buf, area, area.x + 1, y, &text, theme.style(role));
            }
            return;
        }
        let rows = usize::from(list.height);
        let first = self.first(list);
        let below = self.found.len().saturating_sub(first + rows);
        hidden_rows(buf, self.area(cx).intersection(buf.area), first, below, theme);
        // align descriptions in one column, as far right as they fit
        let about = words.min(area.width / 2);
        let column = area.x + area.width.saturating_sub(about + 1).max((names + 3).min(30));
        for ((row, at), y) in self.found.iter().enumerate().skip(first).take(rows).zip(list.y..) {
            let Some((name, about)) = self.line(*at) else { continue };
            let taken = (about.width() as u16).min(area.width / 2);
            let room = area.width.saturating_sub(taken + if taken > 0 { 4 } else { 2 });
            let role = if self.is_refused(*at) { Role::Dim } else { Role::Text };
            // sentences are cut after a whole word, paths where they end
            let is_sentence = matches!(self.search, Search::Letters);
            let name = if is_sentence { words_or_cut(name, room) } else { cut(name, room) };
            let end = put(buf, area, area.x + 1, y, &name, theme.style(role));
            // beside long descriptions, short ones such as keys end at the right edge
            let is_elsewhere = self.path().is_none() && self.lines[*at].is_elsewhere;
            let is_short = taken <= SHORT && words > SHORT || is_elsewhere;
            let column = if is_short { area.right().saturating_sub(taken + 1) } else { column };
            let about = cut(about, area.right().saturating_sub(column.max(end + 2)));
            put(buf, area, column.max(end + 2), y, &about, theme.style(Role::Dim));
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
                if self.found.is_empty() {
                    state.cx.inform(self.nothing());
                }
            }
            KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down => self.selected += 1,
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(PAGE),
            KeyCode::PageDown => self.selected += PAGE,
            KeyCode::Tab => self.complete(),
            _ if self.field.key(key) => (self.selected, self.error) = (0, None),
            _ => {}
        }
        Some(self)
    }

    fn scroll(&mut self, rows: isize) {
        let last = self.found.len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(rows).min(last);
    }

    fn paste(&mut self, text: &str) {
        (self.selected, self.error) = (0, None);
        self.field.paste(text);
    }

    /// A click on a line chooses it, one outside closes the picker.
    fn click(&mut self, at: Position, cx: &Context) -> Option<KeyCode> {
        let outer = self.area(cx);
        if !outer.contains(at) {
            return Some(KeyCode::Esc);
        }
        let list = self.list_area(inside(outer));
        let row = self.first(list) + usize::from(at.y.checked_sub(list.y)?);
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

/// Lines that [`by_words`] finds; if there are none, those whose names have the letters of each word in order.
fn by_letters(lines: &[PickLine], typed: &str) -> Vec<usize> {
    let found = by_words(lines, typed);
    if found.is_empty() { likest(lines, typed) } else { found }
}

/// Lines whose names have the letters of each word in order, the best first.
fn likest(lines: &[PickLine], typed: &str) -> Vec<usize> {
    let pattern = Pattern::parse(typed, CaseMatching::Ignore, Normalization::Smart);
    let names = lines.iter().enumerate().map(|(at, line)| Named(at, &line.name));
    let found = pattern.match_list(names, &mut Matcher::new(Config::DEFAULT));
    let found = found.into_iter().map(|(named, _)| named.0);
    let (here, elsewhere): (Vec<_>, Vec<_>) = found.partition(|at| !lines[*at].is_elsewhere);
    [here, elsewhere].concat()
}

/// Lines with every typed word, in any order: within the name, or at the start of one of the other words. Names that
/// begin as typed come first, then lines with the most whole words; lines found by other words alone come last, and behind
/// all of them those of other screens.
fn by_words(lines: &[PickLine], typed: &str) -> Vec<usize> {
    /// Least letters that may begin another word; fewer have to be the whole word.
    const LEAST: usize = 3;
    let typed = typed.trim_end_matches([' ', '=']);
    let mut rank = vec![usize::MAX; lines.len()];
    likest(lines, typed).into_iter().enumerate().for_each(|(place, at)| rank[at] = place);
    let typed = folded(typed);
    let words: Vec<&str> = typed.split_whitespace().collect();
    let has = |line: &PickLine, word: &str| {
        let begins = |other: &str| other == word || word.len() >= LEAST && other.starts_with(word);
        line.folded.contains(word) || line.also.split([' ', '-']).any(begins)
    };
    let has_whole = |line: &PickLine, word: &str| {
        let is_word = |text: &str| text.split([' ', '-', '_', ':', '/']).any(|part| part == word);
        is_word(&line.folded) || is_word(&line.also)
    };
    let is_found = |at: &usize| words.iter().all(|word| has(&lines[*at], word));
    let mut found: Vec<usize> = (0..lines.len()).filter(is_found).collect();
    found.sort_by_cached_key(|at| {
        let PickLine { folded, is_elsewhere, .. } = &lines[*at];
        let named = words.iter().all(|word| folded.contains(word));
        // `b1` is not the start of `b16`
        let parts = words.iter().filter(|word| !has_whole(&lines[*at], word)).count();
        let (starts, contains) = (folded.starts_with(&typed), folded.contains(&typed));
        (*is_elsewhere, !named, !starts, parts, !contains, rank[*at], *at)
    });
    found
}

/// Bindings usable on a screen: its main ones, then other ones, then those of all screens; moving last.
pub fn usable(keys: &Keymap, tab: Tab) -> impl Iterator<Item = &Bound> {
    let holds = |b: &&Bound| b.holds_on(tab) && !matches!(b.action, Action::Palette | Action::Close);
    // drop global bindings whose keys the screen uses itself
    let is_seen = |b: &&Bound| b.scope != Scope::Anywhere || !hidden(keys, tab, b);
    let mut all: Vec<&Bound> = keys.all().iter().filter(holds).filter(is_seen).collect();
    all.sort_by_key(|b| {
        let moves = MOVING.iter().any(|moving| moving.act == b.action);
        (moves, b.scope == Scope::Anywhere, b.row.hint.is_none())
    });
    all.into_iter()
}

/// True if the screen overrides every key of a global binding.
fn hidden(keys: &Keymap, tab: Tab, bound: &Bound) -> bool {
    !bound.keys.is_empty() && bound.keys.iter().all(|k| keys.is_taken(tab, *k))
}

/// Path of a trace file, with or without a leading `open`; `None` for search words.
fn path(typed: &str) -> Option<String> {
    let typed = typed.trim_start();
    let path = typed.strip_prefix("open ").unwrap_or(typed);
    looks_like_path(path).then(|| clean(path))
}

const PALETTE: &str = "palette: actions, experiments, runs, traces, settings";

const NOT_FOUND: &str = "nothing matches; words or letters find actions (export, sort), experiments (paper-70b), runs \
                         (ladder tp8 b1), traces and their operations (all_reduce), and settings (theme: light)";

/// Opens the palette: actions, items of all screens, traces opened before or near, themes.
pub fn palette(state: &mut State, typed: &str) {
    let pick = palette_of(state).typed(typed);
    let cx = &mut state.cx;
    cx.lay(pick);
    let runs = cx.dir.clone();
    cx.ask_own(
        "near",
        move |_| Ok(files::near(Path::new("."), &runs)),
        |found, cx| {
            let found = found.unwrap_or_default().into_iter();
            let lines = found.map(|file| (file.path, format!("trace  {}", file.about))).collect();
            if let Some(pick) = cx.top_mut::<Pick>().filter(|pick| pick.title == PALETTE) {
                pick.add(lines);
            }
        },
    );
}

/// Contents that the palette lists, by address and length: a palette is rebuilt when they change.
#[derive(Debug, PartialEq)]
pub struct PaletteBasis {
    runs: Option<*const Snapshot>,
    experiments: (*const (String, String), Option<*const Entry>),
    operations: Option<(*const NameRow, usize)>,
    cells: (*const LiveCell, usize),
    sliders: &'static [Slider],
}

impl PaletteBasis {
    fn of(state: &State) -> Self {
        let counted = state.timeline.view.as_ref().and_then(|view| view.docked.counted.as_ref());
        let cells = &state.live.cells;
        Self {
            runs: state.cx.stored.as_ref().map(Arc::as_ptr),
            experiments: (
                state.experiments.names.as_ptr(),
                state.experiments.entries.as_ref().map(Vec::as_ptr),
            ),
            operations: counted.map(|counted| (counted.table.rows.as_ptr(), counted.table.rows.len())),
            cells: (cells.as_ptr(), cells.len()),
            sliders: state.whatif.sliders(),
        }
    }
}

/// Rebuilds the open palette if runs, experiments or a trace were loaded; keeps its text and its selected line.
pub fn renew_palette(state: &mut State) {
    let basis = PaletteBasis::of(state);
    let Some(before) = state.cx.top::<Pick>() else { return };
    if before.basis.as_ref().is_none_or(|known| *known == basis) {
        return;
    }
    let mut pick = palette_of(state);
    let Some(before) = state.cx.top_mut::<Pick>() else { return };
    let near = before.lines.split_off(before.fixed.min(before.lines.len()));
    let on = before.found.get(before.selected);
    let on = on.and_then(|at| before.lines.iter().chain(&near).nth(*at)).cloned();
    pick.field = std::mem::take(&mut before.field);
    pick.add(near.into_iter().map(|line| (line.name, line.about)).collect());
    let is_on = |at: &usize| on.as_ref().is_some_and(|on| pick.lines[*at].is_same(on));
    pick.selected = pick.found.iter().position(is_on).unwrap_or(0);
    *before = pick;
}

fn palette_of(state: &State) -> Pick {
    let cx = &state.cx;
    let mut items: Vec<Find> = Vec::new();
    for bound in usable(&cx.keys, cx.tab) {
        let action = bound.action;
        let go = Box::new(move |state: &mut State| act(state, action));
        items.push(Find { name: bound.row.name.to_owned(), about: bound.label(), go });
    }
    let mut also: Vec<String> = usable(&cx.keys, cx.tab).map(words_of).collect();
    items.extend(Tab::ALL.into_iter().flat_map(|tab| state.screen(tab).finds(cx)));
    for path in cx.recent.clone() {
        let (name, about) = (path.clone(), "trace  opened before".to_owned());
        items.push(Find { name, about, go: Box::new(move |state| open_trace(state, path)) });
    }
    for theme in cx.themes.names() {
        let (name, about) = (format!("theme: {theme}"), "setting".to_owned());
        items.push(Find { name, about, go: Box::new(move |state| state.cx.take_theme(theme)) });
    }
    let here = items.len();
    also.resize(here, String::new());
    for (tab, bound) in elsewhere(&cx.keys, cx.tab) {
        let (action, about) = (bound.action, format!("{}  {}", tab.title(), bound.label()));
        let go = Box::new(move |state: &mut State| {
            state.cx.tab = tab;
            act(state, action);
        });
        items.push(Find { name: bound.row.name.to_owned(), about, go });
        also.push(words_of(bound));
    }
    // names of operations contain slashes, too
    let literal = |typed: &str, nothing_matches: bool| {
        let is_meant = nothing_matches || typed.starts_with(['/', '~', '\'', '"']);
        Some(format!("Enter opens {}", path(typed).filter(|_| is_meant)?))
    };
    let mut pick = pick_of(PALETTE, items, literal, |state, typed| {
        if let Some(path) = path(&typed) {
            open_trace(state, path);
        }
    });
    for (at, (line, also)) in pick.lines.iter_mut().zip(also).enumerate() {
        line.also = format!("{} {also}", line.also);
        line.is_elsewhere = at >= here;
    }
    pick.basis = Some(PaletteBasis::of(state));
    pick
}

/// Other words that find an action.
fn words_of(bound: &Bound) -> String {
    folded(&format!("{} {}", bound.row.id, bound.row.also))
}

/// Actions of other screens, without those that this screen has under the same id.
fn elsewhere(keys: &Keymap, tab: Tab) -> impl Iterator<Item = (Tab, &Bound)> {
    let here: Vec<&str> = usable(keys, tab).map(|bound| bound.row.id).collect();
    keys.all().iter().filter_map(move |bound| match bound.scope {
        Scope::On(other) if other != tab && !here.contains(&bound.row.id) => Some((other, bound)),
        _ => None,
    })
}

/// Opens a picker of the items of the current screen.
pub fn find(state: &mut State) {
    let tab = state.cx.tab;
    let items = state.screen(tab).finds(&state.cx);
    if items.is_empty() {
        return state.cx.inform("this screen lists nothing to find yet");
    }
    let pick = pick_of(&format!("find in {}", tab.title()), items, |_, _| None, |_, _| ());
    state.cx.lay(pick);
}

/// Picker of items; `text` takes a line that is none of them.
fn pick_of(
    title: &str,
    items: Vec<Find>,
    literal: impl Fn(&str, bool) -> Option<String> + 'static,
    text: impl FnOnce(&mut State, String) + 'static,
) -> Pick {
    let lines = items.iter().map(|item| (item.name.clone(), item.about.clone())).collect();
    Pick::new(title, lines, literal, move |state, chosen| match chosen {
        Chosen::Line(at) => items.into_iter().nth(at).into_iter().for_each(|item| (item.go)(state)),
        Chosen::Text(typed) => text(state, typed),
    })
}

fn open_trace(state: &mut State, path: String) {
    state.cx.open_typed(path, Opening::Alone(None));
}

impl Context {
    /// Opens the theme picker; the choice is saved for the next session.
    pub fn pick_theme(&mut self) {
        let names = self.themes.names();
        let shown = self.chosen_theme.clone().unwrap_or_else(|| self.themes.setting.clone());
        let about = |name: &String| match (*name == shown, *name == self.themes.setting) {
            (true, _) => "shown now",
            (false, true) => "of the settings",
            (false, false) => "",
        };
        let lines = names.iter().map(|name| (name.clone(), about(name).to_owned())).collect();
        let pick = Pick::new(
            "theme",
            lines,
            |_, _| None,
            move |state, chosen| {
                let Chosen::Line(at) = chosen else { return };
                if let Some(name) = names.get(at) {
                    state.cx.take_theme(name.clone());
                }
            },
        );
        self.lay(pick);
    }

    /// Applies a theme by name; ignores unknown names.
    pub fn take_theme(&mut self, name: String) {
        if let Some(theme) = self.themes.of(&name) {
            self.theme = theme;
            self.chosen_theme = (name != self.themes.setting).then_some(name);
        }
    }
}

/// Path chosen in a dialog that is being opened, and the screen below the dialog.
#[derive(Debug)]
pub struct TypedPath {
    path: String,
    opening: Opening,
    tab: Tab,
}

const RECENT: usize = 20;

const BEFORE: &str = "opened before";

/// Begins the description of files that cannot be opened.
const REFUSED: &str = "cannot be opened";

fn folder_exists(path: &str) -> bool {
    files::expanded(folder_of(path)).is_dir()
}

const FILES: &str = "open a trace: letters of its name, or a path";
const RUNS: &str = "open below: a trace, or a run (words or a filter)";
const RUNS_ALONE: &str = "open: a trace, or a run (words or a filter)";

fn files_as_lines(files: Vec<FileEntry>) -> Vec<(String, String)> {
    files.into_iter().map(|file| (file.path, file.about)).collect()
}

impl Context {
    /// Opens a picker of trace files: from the last trace's directory, recent ones, and near the current directory.
    pub fn pick_file(&mut self, typed: &str, opening: Opening) {
        let before = |path: &String| (path.clone(), BEFORE.to_owned());
        let lines: Vec<(String, String)> = self.recent.iter().map(before).collect();
        let pick = self.trace_pick(FILES, lines, opening);
        self.lay(pick.searched_by(Search::Paths).typed(&clean(typed)));
        let (runs, recent) = (self.dir.clone(), self.recent.clone());
        self.ask_own(
            "near",
            move |_| {
                let last = recent.iter().find(|path| folder_exists(path));
                let mut siblings = last.map(|last| files::siblings(last)).unwrap_or_default();
                for file in siblings.iter_mut().filter(|file| recent.contains(&file.path)) {
                    file.about = format!("{BEFORE}  {}", file.about);
                }
                Ok((siblings, files::near(Path::new("."), &runs)))
            },
            |found, cx| {
                let (siblings, near) = found.unwrap_or_default();
                if let Some(pick) = cx.top_mut::<Pick>().filter(|pick| pick.title == FILES) {
                    pick.list_files(siblings, near);
                }
            },
        );
    }

    /// Opens a picker of traces opened before, stored runs and files near the current directory, without those named in
    /// `shown`.
    pub fn pick_run(&mut self, opening: Opening, shown: &[String]) {
        let Some(stored) = self.stored.clone() else { return self.pick_file("", opening) };
        let lines = stored.records.iter().map(named);
        let before = self.recent.iter().filter(|path| !shown.contains(path));
        let before = before.map(|path| (path.clone(), BEFORE.to_owned()));
        let title = if shown.is_empty() { RUNS_ALONE } else { RUNS };
        let pick = self.trace_pick(title, lines.chain(before).collect(), opening);
        self.lay(Pick { left_out: shown.to_vec(), ..pick }.searched_by(Search::Runs(stored)));
        let runs = self.dir.clone();
        self.ask_own(
            "near",
            move |_| Ok(files::near(Path::new("."), &runs)),
            |found, cx| {
                if let Some(pick) =
                    cx.top_mut::<Pick>().filter(|pick| matches!(pick.search, Search::Runs(_)))
                {
                    pick.add(files_as_lines(found.unwrap_or_default()));
                }
            },
        );
    }

    /// Picker of traces; typed text is a choice if it is a path or the id of a run.
    fn trace_pick(&self, title: &str, lines: Vec<(String, String)>, opening: Opening) -> Pick {
        let stored = self.stored.clone();
        let is_run = move |name: &str| stored.as_ref().is_some_and(|stored| stored.find(name).is_some());
        let literal = move |text: &str, nothing_matches: bool| {
            let name = clean(text);
            let is_meant = nothing_matches && (looks_like_path(text) || is_run(&name));
            let below = if opening == Opening::Beneath { " below the open trace" } else { "" };
            is_meant.then(|| format!("Enter opens {name}{below}"))
        };
        Pick::new(title, lines, literal, move |state, chosen| {
            if let Chosen::Text(name) = chosen {
                state.cx.open_named(clean(&name), opening);
            }
        })
    }

    fn open_named(&mut self, name: String, opening: Opening) {
        let run = self.stored.as_ref().is_some_and(|stored| stored.find(&name).is_some());
        match run {
            true => self.request(Request::OpenRuns { runs: vec![name], opening }),
            false => self.open_typed(name, opening),
        }
    }

    /// Opens a path typed in a dialog; the dialog reopens if that fails.
    fn open_typed(&mut self, path: String, opening: Opening) {
        self.typed_path = Some(TypedPath { path: path.clone(), opening, tab: self.tab });
        self.request(Request::OpenPath(path, opening));
    }

    /// Reports that a trace did not open. Reopens the dialog with the typed path and the error, unless the user has moved
    /// on.
    pub fn open_failed(&mut self, name: &str, why: String) {
        let is_waiting = self.tab == Tab::Timeline && self.overlays.is_empty();
        let typed = self.typed_path.take_if(|typed| typed.path == name).filter(|_| is_waiting);
        let Some(TypedPath { path, opening, tab }) = typed else { return self.fail(why) };
        self.tab = tab;
        self.log(Notice { text: why.clone(), error: true });
        self.pick_file(&path, opening);
        if let Some(pick) = self.top_mut::<Pick>() {
            pick.error = Some(why);
        }
    }

    /// Adds a file to the recent list; ignores run ids.
    pub fn opened(&mut self, source: String) {
        if !looks_like_path(&source) {
            return;
        }
        self.recent.retain(|known| *known != source);
        self.recent.insert(0, source);
        self.recent.truncate(RECENT);
    }
}

/// Line of a run: its cell; provenance, status without a timeline, end of the id.
fn named(record: &Record) -> (String, String) {
    const END: usize = 9;
    let failed = if record.metrics.is_some() { "" } else { record.status.as_str() };
    let from = record.run.char_indices().rev().nth(END - 1).map_or(0, |(at, _)| at);
    let cut = if from > 0 { "…" } else { "" };
    let id = format!("{cut}{}", &record.run[from..]);
    let words = [record.provenance.as_str(), failed, &id];
    let about = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join("  ");
    (format!("{} {}", record.spec.label(), record.spec.model), about)
}

pub fn looks_like_path(text: &str) -> bool {
    let text = text.trim();
    let name = text.rsplit('/').next().unwrap_or(text);
    text.starts_with(['/', '~', '\'', '"'])
        || text.contains('/')
        || name.rsplit_once('.').is_some_and(|(stem, end)| !stem.is_empty() && !end.is_empty())
}

/// Normalizes a path dropped by a terminal: removes quotes, escaped spaces and `file://`.
pub fn clean(text: &str) -> String {
    let text = text.trim();
    for quote in ['\'', '"'] {
        if let Some(inner) = text.strip_prefix(quote) {
            return inner.strip_suffix(quote).unwrap_or(inner).into();
        }
    }
    text.strip_prefix("file://").unwrap_or(text).replace("\\ ", " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::tui::screens::{experiments, runs, timeline};
    use crate::face::tui::theme::Theme;

    #[test]
    fn what_begins_as_typed_comes_first() {
        let lines = ["only these runs", "open a trace", "runs: sort", "rewire"];
        let lines = lines.map(|name| PickLine::new((name.to_owned(), String::new())));
        assert_eq!(by_letters(&lines, "runs"), [2, 0]);
        assert_eq!(by_letters(&lines, "r"), [2, 3, 0, 1], "then by how well letters fit");
        assert_eq!(by_letters(&lines, "rwr"), [3], "no name holds these together");
        assert_eq!(by_letters(&lines, "trace open"), [1], "in any order");
    }

    fn first(tab: Tab, typed: &str) -> Option<Action> {
        let mut cx = Context::new("runs".into(), Theme::new(true), (80, 24));
        cx.tab = tab;
        let mut state = State::new(cx);
        palette(&mut state, typed);
        let at = *state.cx.top::<Pick>()?.found().first()?;
        usable(&Keymap::default(), tab).nth(at).map(|bound| bound.action)
    }

    #[test]
    fn a_few_letters_find_an_action() {
        assert_eq!(
            first(Tab::Timeline, "undo"),
            Some(Action::of::<timeline::Timeline>(timeline::Act::Undo))
        );
        assert_eq!(first(Tab::Runs, "rvrs"), Some(Action::of::<runs::Runs>(runs::Act::SortReverse)));
        assert_eq!(first(Tab::Runs, "undo zoom"), None, "not on this screen");
        assert_eq!(first(Tab::Runs, "qqqq"), None);
        for (typed, action) in [
            ("picture", Action::Picture),
            ("screenshot", Action::Picture),
            ("plot", Action::Figure),
            ("exit", Action::Quit),
            ("clipboard", Action::CopyCommand),
            ("shortcuts", Action::Help),
        ] {
            assert_eq!(first(Tab::Runs, typed), Some(action), "{typed}");
        }
    }

    #[test]
    fn without_a_query_the_screen_comes_first() {
        let map = Keymap::default();
        let all: Vec<&Bound> = usable(&map, Tab::Experiments).collect();
        assert_eq!(all[0].action, Action::of::<experiments::Experiments>(experiments::Act::Run));
        assert!(all.iter().any(|b| b.action == Action::Quit));
    }

    #[test]
    fn paths_are_told_from_words() {
        for path in
            ["/tmp/a.parquet", "'/tmp/a b.json' ", "a/b", "~/x", "trace.json.gz", "file:///tmp/x.sqlite"]
        {
            assert!(looks_like_path(path), "{path}");
        }
        for words in ["undo", "open the run", "20260102-0304-1", ""] {
            assert!(!looks_like_path(words), "{words}");
        }
    }

    #[test]
    fn a_path_is_cleaned_of_what_terminals_put_round_it() {
        assert_eq!(clean("'/tmp/a b.json' "), "/tmp/a b.json");
        assert_eq!(clean("/tmp/a\\ b.json"), "/tmp/a b.json");
        assert_eq!(clean("file:///tmp/x.sqlite"), "/tmp/x.sqlite");
    }
}
