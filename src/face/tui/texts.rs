//! Read-only overlays: text such as an experiment file, and a picture.
//!
//! Overlay to show or hide items: table columns, plot series.

use super::keymap::Action;
use super::overlay::{Overlay, text_area, whole_body};
use super::pictures::Picture;
use super::prelude::*;
use super::screen::TabScreen;
use super::update::act;
use super::widgets::field::FilterKeyEffect;
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
            KeyCode::Esc | KeyCode::Char('q') => return None,
            // the help opens above this text
            KeyCode::Char('?') => act(state, Action::Help),
            KeyCode::Enter if self.enter.is_some() => {
                self.enter.into_iter().for_each(|(_, enter)| enter(state));
                return None;
            }
            _ => state.cx.say_what_closes(),
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

    fn key(self: Box<Self>, key: KeyEvent, state: &mut State) -> Option<Box<dyn Overlay>> {
        if matches!(key.code, KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q')) {
            return None;
        }
        state.cx.say_what_closes();
        Some(self)
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

type Change = dyn FnMut(&mut State, KeyCode, usize) -> ChecklistUpdate;

#[derive(Clone, Debug)]
pub struct CheckItem {
    pub mark: String,
    pub name: String,
    pub about: String,
    pub role: Role,
}

/// Effect of a key on a checklist.
#[derive(Debug)]
pub enum ChecklistUpdate {
    /// The key has no binding here.
    Nothing,
    /// New items and the index of the selected one.
    Items(Vec<CheckItem>, usize),
    Closed,
}

impl Checklist {
    pub fn new<S: TabScreen>(
        title: impl Into<String>,
        hints: Hints,
        items: Vec<CheckItem>,
        mut change: impl FnMut(&mut S, KeyCode, usize, &mut Context) -> ChecklistUpdate + 'static,
    ) -> Self {
        let change = move |state: &mut State, key, at| {
            let (screen, cx) = S::screen_and_context(state);
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
            true => &[("Enter", "end typing: Space toggles, n next"), ("Esc", "drop search")],
            false if self.search.value().is_empty() => self.hints,
            false => {
                &[("Space", "on or off"), ("n", "next match"), ("/", "other search"), ("Esc", "close")]
            }
        }
    }

    fn key(mut self: Box<Self>, key: KeyEvent, state: &mut State) -> Option<Box<dyn Overlay>> {
        if let Some(typed) = self.search.key(key) {
            // the selection jumps to the match
            let found = self.find(self.list.selected).filter(|_| typed == FilterKeyEffect::Changed);
            self.list.selected = found.unwrap_or(self.list.selected);
            return Some(self);
        }
        match key.code {
            KeyCode::Esc | KeyCode::Char('q') => return None,
            KeyCode::Char('n') if !self.search.value().is_empty() => {
                let next = self.find(self.list.selected + 1);
                self.list.selected = next.unwrap_or(self.list.selected);
            }
            KeyCode::Char('/') => self.search = FilterBox { typing: true, ..FilterBox::default() },
            code if self.list.key(code, self.items.len()) => {}
            code => match (self.change)(state, code, self.list.selected) {
                ChecklistUpdate::Nothing => state.cx.say_what_closes(),
                ChecklistUpdate::Items(items, selected) => {
                    (self.items, self.list.selected) = (items, selected)
                }
                ChecklistUpdate::Closed => return None,
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
