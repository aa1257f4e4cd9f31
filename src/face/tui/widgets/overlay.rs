//! What lies on top of a screen: help, palette, questions, texts, notices.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::paint::{line, popup, put, select, wrap};
use unicode_width::UnicodeWidthStr;

use crate::base::text::folded;
use crate::face::tui::action::Action;
use crate::face::tui::context::{Context, Notice};
use crate::face::tui::format::cut;
use crate::face::tui::keymap::{Keymap, Scope};
use crate::face::tui::layout::{centered, cut_top, inside, regions_of};
use crate::face::tui::overlay::{Overlay, Prompt, Question};
use crate::face::tui::pick::Pick;
use crate::face::tui::state::Tab;
use crate::face::tui::theme::Role;
use crate::face::tui::widgets::field::FilterBox;

/// Columns of the keys in help.
const HELP_KEYS: usize = 14;

/// A line of help: keys and what they do, or a heading without keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelpLine {
    /// The keys, as labels.
    pub keys: String,
    /// What the keys do, in a few words.
    pub text: String,
    /// Whether it heads the lines under it.
    pub is_heading: bool,
}

/// All bindings: those of the screen, those of everywhere, those of the other screens.
pub fn help_lines(keys: &Keymap, tab: Tab) -> Vec<HelpLine> {
    let heading = |text: &str| HelpLine { keys: String::new(), text: text.into(), is_heading: true };
    let of = |scope: Scope| {
        keys.all().iter().filter(move |b| b.scope == scope).map(|b| HelpLine {
            keys: b.label(),
            text: b.row.name.into(),
            is_heading: false,
        })
    };
    let mut lines = vec![heading(&format!("On this screen: {}", tab.title()))];
    lines.extend(of(Scope::On(tab)));
    lines.push(heading("Everywhere (unless the screen uses the key itself)"));
    lines.extend(of(Scope::Anywhere));
    for other in Tab::ALL.into_iter().filter(|other| *other != tab) {
        lines.push(heading(&format!("On screen {}: {}", other as usize + 1, other.title())));
        lines.extend(of(Scope::On(other)));
    }
    lines
}

/// The rows of help in a window of this size: the lines that hold all words, none cut.
pub fn help_rows(keys: &Keymap, tab: Tab, words: &str, size: (u16, u16)) -> Vec<HelpLine> {
    let width = usize::from(inside(text_area(size)).width);
    let rows = |found: HelpLine| {
        let HelpLine { mut keys, text, is_heading } = found;
        let room = width.saturating_sub(keys.width().max(HELP_KEYS) + 2);
        let row = move |text| HelpLine { keys: std::mem::take(&mut keys), text, is_heading };
        wrap(&text, room).into_iter().map(row).collect::<Vec<_>>()
    };
    help_found(keys, tab, words).into_iter().flat_map(rows).collect()
}

/// The lines of [`help_lines`] that hold all words, in their keys or in what they do, under their headings.
fn help_found(keys: &Keymap, tab: Tab, words: &str) -> Vec<HelpLine> {
    let words: Vec<String> = words.split_whitespace().map(folded).collect();
    let mut found: Vec<HelpLine> = Vec::new();
    for line in help_lines(keys, tab) {
        let text = folded(&format!("{} {}", line.keys, line.text));
        if !line.is_heading && !words.iter().all(|word| text.contains(word)) {
            continue;
        }
        // a heading over nothing
        if line.is_heading && found.last().is_some_and(|last| last.is_heading) {
            found.pop();
        }
        found.push(line);
    }
    if found.last().is_some_and(|last| last.is_heading) {
        found.pop();
    }
    found
}

fn text_area(size: (u16, u16)) -> Rect {
    let body = regions_of(size).map_or(Rect::ZERO, |r| r.body);
    centered(body, 100.min(body.width.saturating_sub(4)), body.height.saturating_sub(2))
}

/// Rows of text that an overlay shows in a window of this size.
pub fn text_rows(size: (u16, u16)) -> usize {
    usize::from(inside(text_area(size)).height)
}

/// Draws an overlay over the middle of the window.
pub fn draw(buf: &mut Buffer, cx: &Context, overlay: &Overlay) {
    let theme = cx.theme;
    match overlay {
        Overlay::Help { scroll, search } => help(buf, cx, *scroll, search),
        Overlay::Text { title, lines, scroll } => {
            let area = popup(buf, text_area(cx.size), title, theme);
            for (row, text) in lines.iter().skip(*scroll).take(usize::from(area.height)).enumerate() {
                line(buf, area, row as u16, &[(text, theme.style(Role::Text))]);
            }
        }
        Overlay::Picture { title, picture } => {
            let body = regions_of(cx.size).map_or(Rect::ZERO, |r| r.body);
            let (columns, rows) = picture.size();
            let wide = columns.max(title.width() as u16 + 2);
            let inner = popup(buf, centered(body, wide + 2, rows + 2), title, theme);
            picture.draw(centered(inner, columns, rows), buf);
        }
        Overlay::Conversions(shown) => shown.draw(buf, cx),
        Overlay::Trainings(shown) => shown.draw(buf, cx),
        Overlay::Pick(shown) => pick(buf, cx, shown),
        Overlay::Prompt(prompt) => ask(buf, cx, prompt),
        Overlay::Confirm(question) => confirm(buf, cx, question),
    }
}

fn help(buf: &mut Buffer, cx: &Context, scroll: usize, search: &FilterBox) {
    let theme = cx.theme;
    let lines = help_rows(&cx.keys, cx.tab, search.value(), cx.size);
    let area = popup(buf, text_area(cx.size), "help", theme);
    let (top, area) = cut_top(area, u16::from(search.typing || !search.value().is_empty()));
    let hint = " words of what a key does, or a key";
    search.draw_named(buf, Rect { x: top.x + 1, ..top }, theme, "search: ", hint);
    if lines.is_empty() {
        put(buf, area, area.x + 1, area.y + 1, "no key does that", theme.style(Role::Dim));
    }
    for (row, help) in lines.iter().skip(scroll).take(usize::from(area.height)).enumerate() {
        if help.is_heading {
            line(buf, area, row as u16, &[(&help.text, theme.style(Role::Title))]);
        } else {
            let keys = format!("  {:<HELP_KEYS$}", help.keys);
            line(
                buf,
                area,
                row as u16,
                &[(&keys, theme.style(Role::Key)), (&help.text, theme.style(Role::Text))],
            );
        }
    }
}

fn ask(buf: &mut Buffer, cx: &Context, prompt: &Prompt) {
    let theme = cx.theme;
    let body = regions_of(cx.size).map_or(Rect::ZERO, |r| r.body);
    let width = 76.min(body.width);
    let (below, role) = match &prompt.error {
        Some(error) => (error, Role::Bad),
        None => (&prompt.hint, Role::Dim),
    };
    let lines = wrap(below, usize::from(width.saturating_sub(4)));
    let offers = prompt.offers.list();
    let below = if offers.is_empty() { 0 } else { offers.len() as u16 + 1 };
    let height = lines.len() as u16 + 4 + below;
    let area = popup(buf, centered(body, width, height), &prompt.title, theme);
    let row = Rect { x: area.x + 1, width: area.width.saturating_sub(1), height: 1, ..area };
    prompt.field.draw(buf, row, theme);
    for (row, text) in lines.iter().enumerate() {
        line(buf, area, row as u16 + 2, &[(" ", theme.style(role)), (text, theme.style(role))]);
    }
    let (_, listed) = cut_top(area, lines.len() as u16 + 3);
    prompt.offers.draw_rows(buf, listed, theme);
}

/// Draws a list to choose from: what was typed, and below it what matches.
fn pick(buf: &mut Buffer, cx: &Context, pick: &Pick) {
    let theme = cx.theme;
    let body = regions_of(cx.size).map_or(Rect::ZERO, |r| r.body);
    let (names, words) = pick.widths();
    let width = names.saturating_add(words).saturating_add(6).clamp(66, 100);
    let area = popup(buf, centered(body, width, 18), &pick.title, theme);
    let x = put(buf, area, area.x, area.y, "› ", theme.style(Role::Key));
    let typed = Rect { x, width: area.right().saturating_sub(x), height: 1.min(area.height), ..area };
    pick.field.draw(buf, typed, theme);
    let found = pick.found();
    let instead = pick.literal().map(|text| (text, Role::Text));
    let none =
        if pick.field.value().is_empty() { "nothing to choose from yet" } else { "nothing matches" };
    let nothing = || found.is_empty().then(|| (none.to_owned(), Role::Dim));
    if let Some((text, role)) = instead.or_else(nothing) {
        for (row, text) in wrap(&text, usize::from(area.width.saturating_sub(2))).iter().enumerate() {
            put(buf, area, area.x + 1, area.y + 2 + row as u16, text, theme.style(role));
        }
        return;
    }
    let rows = usize::from(area.height.saturating_sub(2));
    let first = (pick.selected + 1).saturating_sub(rows);
    // what is said of them stands as far right as it fits, all in one column
    let column = area.x + area.width.saturating_sub(words + 1).max((names + 3).min(30));
    for (row, at) in found.iter().enumerate().skip(first).take(rows) {
        let Some((name, about)) = pick.line(*at) else { continue };
        let y = area.y + 2 + (row - first) as u16;
        let end = put(buf, area, area.x + 1, y, name, theme.style(Role::Text));
        put(buf, area, column.max(end + 2), y, about, theme.style(Role::Dim));
        if row == pick.selected {
            select(buf, area, y, theme);
        }
    }
}

fn confirm(buf: &mut Buffer, cx: &Context, question: &Question) {
    let theme = cx.theme;
    let body = regions_of(cx.size).map_or(Rect::ZERO, |r| r.body);
    let lines = wrap(&question.text, 56);
    let area = popup(buf, centered(body, 60, lines.len() as u16 + 4), "sure?", theme);
    for (row, text) in lines.iter().enumerate() {
        line(buf, area, row as u16, &[(" ", theme.style(Role::Text)), (text, theme.style(Role::Text))]);
    }
    let (key, text) = (theme.style(Role::Key), theme.style(Role::Text));
    line(
        buf,
        area,
        lines.len() as u16 + 1,
        &[(" y", key), (" yes   ", text), ("n", key), (" no", text)],
    );
}

/// Draws what went wrong under the body.
pub fn failure(buf: &mut Buffer, area: Rect, cx: &Context, notice: &Notice) {
    let theme = cx.theme;
    let (bad, text) = (theme.style(Role::Bad), theme.style(Role::Text));
    let close = cx.keys.label(Action::Close);
    line(
        buf,
        area,
        0,
        &[("✘ it failed", bad), (&format!("  {close} closes this"), theme.style(Role::Dim))],
    );
    let lines = wrap(&notice.text, usize::from(area.width.saturating_sub(2)));
    let rows = usize::from(area.height.saturating_sub(1));
    for (row, words) in lines.iter().take(rows).enumerate() {
        // what does not fit is in the list of messages
        let cut = row + 1 == rows && lines.len() > rows;
        line(
            buf,
            area,
            row as u16 + 1,
            &[("  ", text), (words, text), (if cut { " …" } else { "" }, text)],
        );
    }
}

/// Tells something in the place of the key hints, on one line.
pub fn note(buf: &mut Buffer, area: Rect, cx: &Context, notice: &Notice) {
    let text = notice.text.lines().collect::<Vec<_>>().join("  ");
    let title = cx.theme.style(Role::Title);
    buf.set_style(area, cx.theme.style(Role::Text));
    let width = usize::from(area.width).saturating_sub(4);
    line(buf, area, 0, &[(" ", title), (&cut(&text, width as u16), title)]);
}
