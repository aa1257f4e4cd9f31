//! Read-only overlays: text such as an experiment file, a picture, and help with all bindings.
//!
//! Overlay to show or hide items: table columns, plot series.

use super::keymap::{Action, Bound, Keymap, MOVING, Scope};
use super::overlay::{Overlay, text_area, whole_body};
use super::pictures::Picture;
use super::prelude::*;
use super::screen::Placed;
use super::widgets::field::Typed;
use super::widgets::list::scroll_key;
use base::text::folded;

/// Segments of a line with their roles.
pub type Pieces = Vec<(String, Role)>;

type Enter = dyn FnOnce(&mut State);

pub struct TextView {
    title: String,
    /// Lays out the text for a width in columns.
    lines: Box<dyn Fn(usize) -> Vec<Pieces>>,
    scroll: usize,
    enter: Option<(Hints, Box<Enter>)>,
}

impl TextView {
    pub fn new(title: impl Into<String>, lines: impl Fn(usize) -> Vec<Pieces> + 'static) -> Self {
        Self { title: title.into(), lines: Box::new(lines), scroll: 0, enter: None }
    }

    pub fn plain(title: impl Into<String>, lines: Vec<String>) -> Self {
        let lines: Vec<Pieces> = lines.into_iter().map(|line| vec![(line, Role::Text)]).collect();
        Self::new(title, move |_| lines.clone())
    }

    pub fn on_enter(self, hints: Hints, enter: impl FnOnce(&mut State) + 'static) -> Self {
        Self { enter: Some((hints, Box::new(enter))), ..self }
    }

    fn laid_out(&self, cx: &Context) -> (Rect, Vec<Pieces>) {
        let most = text_area(cx.size);
        let lines = (self.lines)(usize::from(most.width.saturating_sub(3)));
        (centered(whole_body(cx), most.width, most.height.min(lines.len() as u16 + 2)), lines)
    }
}

impl Overlay for TextView {
    fn draw(&self, buf: &mut Buffer, cx: &Context) {
        let (whole, lines) = self.laid_out(cx);
        let area = popup(buf, whole, &self.title, cx.theme);
        let below = lines.len().saturating_sub(self.scroll + usize::from(area.height));
        hidden_rows(buf, whole, self.scroll, below, cx.theme);
        let area = Rect { x: area.x + 1, width: area.width.saturating_sub(1), ..area };
        for (row, pieces) in (0..area.height).zip(lines.iter().skip(self.scroll)) {
            let pieces = pieces.iter().map(|(text, role)| (text.as_str(), cx.theme.style(*role)));
            line(buf, area, row, &pieces.collect::<Vec<_>>());
        }
    }

    fn hints(&self) -> Hints {
        self.enter.as_ref().map_or(&[("↑ ↓", "scroll"), ("Esc", "close")], |(hints, _)| *hints)
    }

    fn key(mut self: Box<Self>, key: KeyEvent, state: &mut State) -> Option<Box<dyn Overlay>> {
        match key.code {
            code if scroll_key(code, &mut self.scroll) => {}
            KeyCode::Esc | KeyCode::Char('q' | '?') => return None,
            KeyCode::Enter => {
                if let Some((_, enter)) = self.enter {
                    enter(state);
                    return None;
                }
            }
            _ => {}
        }
        Some(self)
    }

    fn scroll(&mut self, rows: isize) {
        self.scroll = self.scroll.saturating_add_signed(rows);
    }

    fn settle(&mut self, cx: &Context) {
        let (area, lines) = self.laid_out(cx);
        self.scroll = self.scroll.min(lines.len().saturating_sub(inside(area).height.into()));
    }
}

#[derive(Debug)]
pub struct PictureView {
    pub title: String,
    pub picture: Picture,
}

impl Overlay for PictureView {
    fn draw(&self, buf: &mut Buffer, cx: &Context) {
        let (columns, rows) = self.picture.size();
        let wide = columns.max(self.title.width() as u16 + 2);
        let area = centered(whole_body(cx), wide + 2, rows + 2);
        let inner = popup(buf, area, &self.title, cx.theme);
        self.picture.draw(centered(inner, columns, rows), buf);
    }

    fn hints(&self) -> Hints {
        &[("Esc", "close")]
    }

    fn key(self: Box<Self>, key: KeyEvent, _state: &mut State) -> Option<Box<dyn Overlay>> {
        match key.code {
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => None,
            _ => Some(self),
        }
    }
}

#[derive(Debug, Default)]
pub struct Help {
    scroll: usize,
    search: FilterBox,
    /// Notes of the screen.
    notes: Vec<Note>,
}

const HELP_KEYS: usize = 14;

/// Width of one of two columns.
const HELP_COLUMN: u16 = 80;

/// Help laid out for a window.
struct HelpPage {
    /// Popup, with its frame.
    area: Rect,
    /// Lines: the part before the text, and the text; a heading has nothing before it.
    rows: Vec<(String, String)>,
    /// Number of columns.
    columns: usize,
    /// Rows of a column.
    height: usize,
}

/// Line of help: keys and description; a line without keys is a heading.
pub type HelpLine = (Option<String>, String);

pub fn help_lines(keys: &Keymap, tab: Tab) -> Vec<HelpLine> {
    let mut lines = own_lines(keys, tab);
    for other in Tab::ALL.into_iter().filter(|other| *other != tab) {
        let of = |bound: &&Bound| bound.scope == Scope::On(other);
        let heading = format!("On screen {}: {}", other as usize + 1, other.title());
        lines.extend(group(heading, keys.all().iter().filter(of)));
    }
    lines
}

/// Help on one screen: its main keys, its other keys, then those of all screens.
fn own_lines(keys: &Keymap, tab: Tab) -> Vec<HelpLine> {
    let own = |hinted: bool| {
        let is_own =
            move |bound: &&Bound| bound.scope == Scope::On(tab) && bound.row.hint.is_some() == hinted;
        keys.all().iter().filter(is_own)
    };
    let everywhere = |kind: u8| {
        let of = move |bound: &&Bound| match bound.action {
            _ if bound.scope != Scope::Anywhere => false,
            Action::Show(_) | Action::NextScreen | Action::PreviousScreen => kind == 1,
            action if MOVING.iter().any(|moving| moving.act == action) => kind == 2,
            _ => kind == 0,
        };
        keys.all().iter().filter(of)
    };
    let groups = [
        group(format!("On this screen: {}", tab.title()), own(true)),
        group("Also on this screen".into(), own(false)),
        group("Everywhere (unless the screen uses the key itself)".into(), everywhere(0)),
        group("Screens".into(), everywhere(1)),
        group("Moving in lists".into(), everywhere(2)),
    ];
    groups.concat()
}

/// Heading and lines of some bindings; nothing if there are none.
fn group<'a>(heading: String, bound: impl Iterator<Item = &'a Bound>) -> Vec<HelpLine> {
    let mut lines: Vec<HelpLine> =
        bound.map(|bound| (Some(bound.label()), bound.row.name.to_owned())).collect();
    if !lines.is_empty() {
        lines.insert(0, (None, heading));
    }
    lines
}

/// Help lines that contain all words in keys or description, with their headings; without words those of the screen.
fn help_found(keys: &Keymap, tab: Tab, words: &str) -> Vec<HelpLine> {
    let words: Vec<String> = words.split_whitespace().map(folded).collect();
    if words.is_empty() {
        return own_lines(keys, tab);
    }
    let mut found: Vec<HelpLine> = Vec::new();
    let mut heading = None;
    for (keys, text) in help_lines(keys, tab) {
        let Some(keys) = keys else {
            heading = Some(text);
            continue;
        };
        let all = folded(&format!("{keys} {text}"));
        if words.iter().all(|word| all.contains(word)) {
            found.extend(heading.take().map(|heading| (None, heading)));
            found.push((Some(keys), text));
        }
    }
    found
}

impl Help {
    /// Help that begins with the notes of a screen.
    pub fn with(notes: Vec<Note>) -> Self {
        Self { notes, ..Self::default() }
    }

    /// Takes two columns if one does not hold all lines and the window has the width.
    fn page(&self, cx: &Context) -> HelpPage {
        let (mut area, body) = (text_area(cx.size), whole_body(cx));
        let height = usize::from(inside(area).height.saturating_sub(self.search_rows()));
        let (mut rows, mut columns) = (self.rows(cx, inside(area).width), 1);
        if rows.len() > height && body.width >= 2 * HELP_COLUMN + 2 {
            // two columns keep a gap
            (rows, columns) = (self.rows(cx, HELP_COLUMN - 2), 2);
            area = centered(body, 2 * HELP_COLUMN + 2, area.height);
        }
        HelpPage { area, rows, columns, height }
    }

    /// Lines wrapped to a width.
    fn rows(&self, cx: &Context, width: u16) -> Vec<(String, String)> {
        let width = usize::from(width);
        let wrapped = |before: [String; 2], text: &str| {
            let rows = wrap(text, width.saturating_sub(before[0].width())).into_iter().enumerate();
            rows.map(|(at, text)| (before[at.min(1)].clone(), text)).collect::<Vec<_>>()
        };
        let notes = self.notes.iter().filter(|_| self.search.value().is_empty());
        let mut rows: Vec<(String, String)> =
            notes.flat_map(|note| wrapped(["  • ".into(), "    ".into()], &note.text)).collect();
        if !rows.is_empty() {
            rows.insert(0, (String::new(), "Notes not shown on this screen".into()));
        }
        let found = help_found(&cx.keys, cx.tab, self.search.value());
        rows.extend(found.into_iter().flat_map(|(keys, text)| {
            let of = |keys: &str| format!("  {keys:<HELP_KEYS$}");
            let before = keys.map_or_else(Default::default, |keys| [of(&keys), of("")]);
            wrapped(before, &text)
        }));
        rows
    }

    fn search_rows(&self) -> u16 {
        u16::from(self.search.typing || !self.search.value().is_empty())
    }
}

impl Overlay for Help {
    fn draw(&self, buf: &mut Buffer, cx: &Context) {
        let theme = cx.theme;
        let HelpPage { area: whole, rows, columns, height } = self.page(cx);
        let area = popup(buf, whole, "help", theme);
        let (top, area) = cut_top(area, self.search_rows());
        let hint = " words of what a key does, or a key";
        self.search.draw_named(buf, Rect { x: top.x + 1, ..top }, theme, "search: ", hint);
        let below = rows.len().saturating_sub(self.scroll + columns * height);
        hidden_rows(buf, whole, self.scroll, below, theme);
        if rows.is_empty() {
            put(buf, area, area.x + 1, area.y + 1, "no key does that", theme.style(Role::Dim));
        }
        let shown = rows.get(self.scroll..).unwrap_or_default();
        let mut rest = area;
        for column in shown.chunks(height.max(1)).take(columns) {
            let (area, right) = cut_left(rest, area.width / columns as u16);
            rest = right;
            for (row, (before, text)) in (0..area.height).zip(column) {
                let role = if before.is_empty() { Role::Title } else { Role::Text };
                line(buf, area, row, &[(before, theme.style(Role::Key)), (text, theme.style(role))]);
            }
        }
    }

    fn hints(&self) -> Hints {
        &[("/", "search all screens"), ("↑ ↓", "scroll"), ("Esc", "close")]
    }

    fn key(mut self: Box<Self>, key: KeyEvent, _state: &mut State) -> Option<Box<dyn Overlay>> {
        let before = self.search.value().to_owned();
        let dropped = key.code == KeyCode::Esc && self.search.drop_text();
        if dropped || self.search.key(key).is_some() {
            if self.search.value() != before {
                self.scroll = 0;
            }
            return Some(self);
        }
        match key.code {
            KeyCode::Char('/') => self.search.begin(),
            code if scroll_key(code, &mut self.scroll) => {}
            KeyCode::Esc | KeyCode::Char('q' | '?') => return None,
            _ => {}
        }
        Some(self)
    }

    fn paste(&mut self, text: &str) {
        self.search.paste(text);
    }

    fn scroll(&mut self, rows: isize) {
        self.scroll = self.scroll.saturating_add_signed(rows);
    }

    fn settle(&mut self, cx: &Context) {
        let HelpPage { rows, columns, height, .. } = self.page(cx);
        self.scroll = self.scroll.min(rows.len().saturating_sub(columns * height));
    }
}

pub struct Checklist {
    title: String,
    hints: Hints,
    items: Vec<CheckItem>,
    list: List,
    search: FilterBox,
    change: Box<Change>,
}

type Change = dyn FnMut(&mut State, KeyCode, usize) -> Changed;

#[derive(Clone, Debug)]
pub struct CheckItem {
    pub mark: String,
    pub name: String,
    pub about: String,
    pub role: Role,
}

#[derive(Debug)]
pub enum Changed {
    Nothing,
    /// New items and the index of the selected one.
    Items(Vec<CheckItem>, usize),
    Closed,
}

impl Checklist {
    pub fn new<S: Placed>(
        title: impl Into<String>,
        hints: Hints,
        items: Vec<CheckItem>,
        mut change: impl FnMut(&mut S, KeyCode, usize, &mut Context) -> Changed + 'static,
    ) -> Self {
        let change = move |state: &mut State, key, at| {
            let (screen, cx) = S::of(state);
            change(screen, key, at, cx)
        };
        let (list, search) = (List::default(), FilterBox::default());
        Self { title: title.into(), hints, items, list, search, change: Box::new(change) }
    }

    /// Returns the first item at or after `from` that contains the search text, wrapping to the top.
    fn find(&self, from: usize) -> Option<usize> {
        let typed = folded(self.search.value());
        let holds = |at: &usize| {
            let item = &self.items[*at];
            folded(&item.name).contains(&typed) || folded(&item.about).contains(&typed)
        };
        let from = from.min(self.items.len());
        (from..self.items.len()).chain(0..from).find(holds).filter(|_| !typed.is_empty())
    }

    fn area(&self, cx: &Context) -> Rect {
        let about = self.items.iter().map(|item| item.about.width()).max().unwrap_or(0);
        let width = (self.about_column() + about).max(self.title.width() + 2) + 3;
        centered(whole_body(cx), width as u16, self.items.len() as u16 + 3)
    }

    fn name_column(&self) -> usize {
        self.items.iter().map(|item| item.mark.width()).max().unwrap_or(0) + 2
    }

    fn about_column(&self) -> usize {
        self.name_column() + self.items.iter().map(|item| item.name.width()).max().unwrap_or(0) + 2
    }
}

impl Overlay for Checklist {
    fn draw(&self, buf: &mut Buffer, cx: &Context) {
        let theme = cx.theme;
        let area = popup(buf, self.area(cx), &self.title, theme);
        let (top, rows) = cut_top(area, u16::from(self.search.typing));
        let row = Rect { x: top.x + 1, width: top.width.saturating_sub(1), ..top };
        self.search.draw_named(buf, row, theme, "search: ", "");
        let mut list = self.list;
        list.fit(self.items.len(), rows.height.into());
        for (at, y) in list.rows(self.items.len(), rows) {
            let CheckItem { mark, name, about, role } = &self.items[at];
            let pieces = [(1, mark, *role), (self.name_column(), name, *role)];
            for (x, text, role) in pieces.into_iter().chain([(self.about_column(), about, Role::Dim)]) {
                put(buf, area, area.x + x as u16, y, text, theme.style(role));
            }
            if at == list.selected {
                select(buf, area, y, theme);
            }
        }
    }

    fn hints(&self) -> Hints {
        match self.search.typing {
            true => &[("Enter", "next match"), ("↓", "stop here"), ("Esc", "end search")],
            false => self.hints,
        }
    }

    fn key(mut self: Box<Self>, key: KeyEvent, state: &mut State) -> Option<Box<dyn Overlay>> {
        if let Some(typed) = self.search.key(key) {
            // the selection jumps to the match; Enter goes to the next one
            let from = self.list.selected + usize::from(typed == Typed::Kept);
            let found = self.find(from).filter(|_| typed != Typed::Moved);
            self.list.selected = found.unwrap_or(self.list.selected);
            self.search.typing |= typed == Typed::Kept && key.code == KeyCode::Enter && found.is_some();
            return Some(self);
        }
        match key.code {
            KeyCode::Esc | KeyCode::Char('q') => return None,
            KeyCode::Char('/') => self.search = FilterBox { typing: true, ..FilterBox::default() },
            code if self.list.key(code, self.items.len()) => {}
            code => match (self.change)(state, code, self.list.selected) {
                Changed::Nothing => {}
                Changed::Items(items, selected) => (self.items, self.list.selected) = (items, selected),
                Changed::Closed => return None,
            },
        }
        Some(self)
    }

    fn paste(&mut self, text: &str) {
        self.search.paste(text);
    }

    fn scroll(&mut self, rows: isize) {
        self.list.move_by(rows, self.items.len());
    }

    fn settle(&mut self, cx: &Context) {
        let rows = self.area(cx).height.saturating_sub(2 + u16::from(self.search.typing));
        self.list.fit(self.items.len(), rows.into());
    }
}
