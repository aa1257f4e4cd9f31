//! Help: keys of the screen in groups, its marks, and terms of the field. Its search finds those of all screens.

use super::glossary::{marks, searched_groups, terms};
use super::keymap::{Action, BindingScope, BoundAction, Keymap, MOVING};
use super::overlay::{Overlay, text_area, whole_body};
use super::palette::synonyms;
use super::prelude::*;
use super::widgets::list::scroll_key;
use super::widgets::wrap::elided_clauses;
use base::text::folded;

#[derive(Debug, Default)]
pub struct Help {
    scroll: usize,
    search: FilterBox,
    /// Notes of the screen.
    notes: Vec<ScreenNote>,
}

#[derive(Clone, Debug)]
pub struct HelpGroup {
    heading: String,
    pub entries: Vec<HelpEntry>,
}

#[derive(Clone, Debug)]
pub struct HelpEntry {
    /// Keys, a mark or a term; empty for an action without a key.
    pub name: String,
    /// Role of the name.
    pub role: Role,
    pub text: String,
    /// Other words that find it.
    pub also: String,
}

impl HelpEntry {
    pub fn new(name: &str, text: &str, also: &str) -> Self {
        let (name, text, also) = (name.to_owned(), text.to_owned(), also.to_owned());
        Self { name, role: Role::Key, text, also }
    }
}

/// Keys of the screen that come before its notes, one row each: in a low window, and at most.
const MAIN_KEYS: usize = 5;
const MOST_MAIN_KEYS: usize = 10;

/// Rows of help from which there are more than [`MAIN_KEYS`], if the notes leave room for them.
const LOW: usize = 16;

/// Columns of keys, marks and terms in help of this width; a longer name takes more.
const fn name_columns(width: usize) -> usize {
    if width < 70 { 10 } else { 13 }
}

/// Width of one of two columns.
const HELP_COLUMN: u16 = 80;

/// Most lines of a note that comes before the other keys.
const NOTE_LINES: usize = 8;

/// Name of actions without a key.
const NO_KEY: &str = "(palette)";

/// Help laid out for a window.
struct HelpPage {
    /// Popup, with its frame.
    area: Rect,
    columns: Vec<Vec<HelpRow>>,
    /// Rows that fit.
    height: usize,
}

impl HelpPage {
    fn longest(&self) -> usize {
        self.columns.iter().map(Vec::len).max().unwrap_or(0)
    }
}

/// Row of help; a heading has nothing before its text.
#[derive(Clone, Debug)]
struct HelpRow {
    before: String,
    role: Role,
    text: String,
}

/// Rows that stay in one column: an entry, with the heading if it is the first of its group.
#[derive(Clone, Debug)]
struct HelpBlock {
    rows: Vec<HelpRow>,
    begins_group: bool,
}

/// Everything that the search finds: help on this screen, all terms, help on the other screens.
pub fn help_groups(keys: &Keymap, tab: Tab, theme: Theme) -> Vec<HelpGroup> {
    let mut groups = own_groups(keys, tab, theme, MAIN_KEYS);
    let group_of = |(heading, entries): (&str, _)| HelpGroup { heading: heading.to_owned(), entries };
    groups.extend(searched_groups().map(group_of));
    for other in Tab::ALL.into_iter().filter(|other| *other != tab) {
        let place = format!("screen {}: {}", other as usize + 1, other.title());
        let of = |bound: &&BoundAction| bound.scope == BindingScope::On(other);
        groups.push(group(format!("On {place}"), keys.all().iter().filter(of)));
        groups.push(HelpGroup { heading: format!("Marks on {place}"), entries: marks(other, theme) });
    }
    groups
}

/// Help on one screen: as many of its keys, its other keys, its marks, then keys of all screens and terms.
fn own_groups(keys: &Keymap, tab: Tab, theme: Theme, main: usize) -> Vec<HelpGroup> {
    let is_own = |bound: &&BoundAction| bound.scope == BindingScope::On(tab);
    let mut own: Vec<&BoundAction> = keys.all().iter().filter(is_own).collect();
    own.sort_by_key(|bound| bound.row.hint.is_none());
    let (main, others) = own.split_at(own.len().min(main));
    let everywhere = |kind: u8| {
        let of = move |bound: &&BoundAction| match bound.action {
            _ if bound.scope != BindingScope::Anywhere => false,
            Action::Show(_) | Action::NextScreen | Action::PreviousScreen => kind == 1,
            action if MOVING.iter().any(|moving| moving.act == action) => kind == 2,
            _ => kind == 0,
        };
        keys.all().iter().filter(of)
    };
    vec![
        group(format!("On this screen: {}", tab.title()), main.iter().copied()),
        group("Also on this screen".into(), others.iter().copied()),
        HelpGroup { heading: "Marks on this screen".into(), entries: marks(tab, theme) },
        group("Everywhere (unless the screen uses the key itself)".into(), everywhere(0)),
        group("Screens".into(), everywhere(1)),
        group("Moving in lists".into(), everywhere(2)),
        HelpGroup { heading: "Terms".into(), entries: terms() },
    ]
}

fn group<'a>(heading: String, bound: impl Iterator<Item = &'a BoundAction>) -> HelpGroup {
    let entry = |bound: &BoundAction| {
        let also = format!("{} {}", bound.row.also, synonyms(bound.row.name));
        HelpEntry::new(&bound.label(), bound.row.name, &also)
    };
    HelpGroup { heading, entries: bound.map(entry).collect() }
}

/// Word of a search without the value at its end, so that `desync:2` finds `desync:N`; short words such as `tp8` keep
/// it, as `tp` is part of too many.
fn without_value(word: &str) -> &str {
    let name = word.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, ':' | '.' | '='));
    if name.len() < 4 { word } else { name }
}

/// Word without its ending, so that `waiting` finds `waits`; `None` if it has none.
fn stem(word: &str) -> Option<&str> {
    let without = ["ing", "ed", "s"].into_iter().find_map(|end| word.strip_suffix(end));
    without.filter(|stem| stem.len() >= 4)
}

/// Entries with all words in name, text or other words, with their headings; without words those of the screen, which
/// begin with `main` keys. Groups with an entry whose name begins with the first word come first.
fn found(cx: &Context, words: &str, main: usize) -> Vec<HelpGroup> {
    let words: Vec<String> = words.split_whitespace().map(folded).collect();
    let Some(first) = words.first() else {
        return own_groups(&cx.keys, cx.tab, cx.theme, main);
    };
    let mut groups = help_groups(&cx.keys, cx.tab, cx.theme);
    for group in &mut groups {
        group.entries.retain(|HelpEntry { name, text, also, .. }| {
            let all = folded(&format!("{name} {text} {also}"));
            let begins =
                |stem: &str| all.split(|c: char| !c.is_alphanumeric()).any(|w| w.starts_with(stem));
            words.iter().all(|word| all.contains(without_value(word)) || stem(word).is_some_and(begins))
        });
    }
    let begins = |entry: &HelpEntry| folded(&entry.name).starts_with(without_value(first));
    groups.sort_by_key(|group| !group.entries.iter().any(begins));
    groups
}

/// First clauses of a description that fit into a row, or its first words, with an ellipsis if it is cut.
fn in_one_row(text: &str, room: usize) -> String {
    let clauses = elided_clauses(text, room, &["; ", ": ", ", ", " ("]);
    clauses.unwrap_or_else(|| words_or_cut(text, room as u16))
}

/// Divides blocks into two columns of about equal height: between two groups if both fit then.
fn in_two_columns(blocks: Vec<HelpBlock>, height: usize) -> Vec<Vec<HelpRow>> {
    let rows = |blocks: &[HelpBlock]| blocks.iter().map(|block| block.rows.len()).sum::<usize>();
    let taller = |at: usize| rows(&blocks[..at]).max(rows(&blocks[at..]));
    let between_groups = (1..blocks.len()).filter(|at| blocks[*at].begins_group);
    let at = between_groups
        .min_by_key(|at| taller(*at))
        .filter(|at| taller(*at) <= height)
        .or_else(|| (1..blocks.len()).min_by_key(|at| taller(*at)))
        .unwrap_or(blocks.len());
    let (left, right) = blocks.split_at(at);
    let rows = |blocks: &[HelpBlock]| -> Vec<HelpRow> {
        blocks.iter().flat_map(|block| block.rows.clone()).collect()
    };
    vec![rows(left), rows(right)]
}

impl Help {
    /// Help that begins with the notes of a screen.
    pub fn with(notes: Vec<ScreenNote>) -> Self {
        Self { notes, ..Self::default() }
    }

    /// Takes two columns if one does not hold all rows and the window has the width.
    fn page(&self, cx: &Context) -> HelpPage {
        let (area, body) = (text_area(cx.size), whole_body(cx));
        let height = usize::from(inside(area).height.saturating_sub(self.search_rows()));
        let blocks = self.blocks(cx, inside(area).width);
        let rows = |blocks: &[HelpBlock]| blocks.iter().map(|block| block.rows.len()).sum::<usize>();
        if rows(&blocks) <= height || body.width < 2 * HELP_COLUMN + 2 {
            let column = blocks.into_iter().flat_map(|block| block.rows).collect();
            return HelpPage { area, columns: vec![column], height };
        }
        // two columns keep a gap
        let columns = in_two_columns(self.blocks(cx, HELP_COLUMN - 2), height);
        let area = centered(body, 2 * HELP_COLUMN + 2, area.height);
        HelpPage { area, columns, height }
    }

    /// Entries wrapped to a width.
    fn blocks(&self, cx: &Context, width: u16) -> Vec<HelpBlock> {
        let width = usize::from(width);
        let wrapped = |before: [String; 2], role: Role, text: &str| {
            let rows = wrap(text, width.saturating_sub(before[0].width())).into_iter().enumerate();
            let row =
                |(at, text): (usize, String)| HelpRow { before: before[at.min(1)].clone(), role, text };
            rows.map(row).collect::<Vec<_>>()
        };
        let of_group = |heading: &str, entries: Vec<Vec<HelpRow>>| {
            let mut title = wrapped(Default::default(), Role::Key, heading);
            let block = |(at, mut entry): (usize, Vec<HelpRow>)| {
                let mut rows = std::mem::take(&mut title);
                rows.append(&mut entry);
                HelpBlock { rows, begins_group: at == 0 }
            };
            entries.into_iter().enumerate().map(block).collect::<Vec<_>>()
        };
        let entries = |HelpGroup { heading, entries }: HelpGroup, is_short: bool| {
            let entry = |HelpEntry { name, role, text, .. }: HelpEntry| {
                let name = if name.is_empty() { NO_KEY } else { name.as_str() };
                let of = |name: &str| format!("  {name:<columns$} ", columns = name_columns(width));
                let before = of(name);
                let room = width.saturating_sub(before.width());
                let text = if is_short { in_one_row(&text, room) } else { text };
                wrapped([before, of("")], role, &text)
            };
            of_group(&heading, entries.into_iter().map(entry).collect())
        };
        let is_search = !self.search.value().is_empty();
        let notes = self.notes.iter().filter(|_| !is_search);
        // all keys come before a list such as all details of a run
        let (lists, notes): (Vec<&ScreenNote>, Vec<&ScreenNote>) =
            notes.partition(|note| note.text.lines().count() > NOTE_LINES);
        let rows = |note: &ScreenNote| wrapped(["  • ".into(), "    ".into()], Role::Key, &note.text);
        let notes: Vec<Vec<HelpRow>> = notes.into_iter().map(rows).collect();
        let lists = lists.into_iter().map(rows).collect();
        // the headings of the keys and of the notes, and a row of the rest
        let others = notes.iter().map(Vec::len).sum::<usize>() + 3;
        let height = usize::from(inside(text_area(cx.size)).height);
        let main = match height {
            ..LOW => MAIN_KEYS,
            _ => height.saturating_sub(others).clamp(MAIN_KEYS, MOST_MAIN_KEYS),
        };
        let mut groups = found(cx, self.search.value(), main).into_iter();
        let first =
            groups.next().into_iter().flat_map(|group| entries(group, height < LOW && !is_search));
        let mut blocks: Vec<HelpBlock> = first.collect();
        blocks.extend(of_group("Notes not shown on this screen", notes));
        blocks.extend(groups.flat_map(|group| entries(group, false)));
        blocks.extend(of_group("Lists not shown on this screen", lists));
        blocks
    }

    fn search_rows(&self) -> u16 {
        u16::from(self.search.typing || !self.search.value().is_empty())
    }
}

impl Overlay for Help {
    fn draw(&self, buf: &mut Buffer, cx: &Context) {
        let theme = cx.theme;
        let page = self.page(cx);
        let area = popup(buf, page.area, "help", theme);
        let (top, area) = cut_top(area, self.search_rows());
        let hint = " words of what a key does, a key, a mark, a term, an option";
        self.search.draw_named(buf, Rect { x: top.x + 1, ..top }, theme, "search: ", hint);
        let below = page.longest().saturating_sub(self.scroll + page.height);
        hidden_rows(buf, page.area, self.scroll, below, theme);
        if page.longest() == 0 {
            let text =
                "no key does that, and no mark, term, architecture, option or column has these words";
            empty(buf, area, text, theme);
        }
        let width = area.width / (page.columns.len() as u16).max(1);
        let mut rest = area;
        for column in &page.columns {
            let (area, right) = cut_left(rest, width);
            rest = right;
            for (row, HelpRow { before, role, text }) in
                (0..area.height).zip(column.iter().skip(self.scroll))
            {
                let of_text = if before.is_empty() { Role::Title } else { Role::Text };
                line(buf, area, row, &[(before, theme.style(*role)), (text, theme.style(of_text))]);
            }
        }
    }

    fn hints(&self) -> Hints {
        &[("/", "search all screens"), ("↑ ↓", "scroll"), ("Esc", "close")]
    }

    fn key(mut self: Box<Self>, key: KeyEvent, state: &mut State) -> Option<Box<dyn Overlay>> {
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
            _ => state.cx.say_what_closes(),
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
        let page = self.page(cx);
        self.scroll = self.scroll.min(page.longest().saturating_sub(page.height));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::tui::tests::fixtures::Driver;

    #[test]
    fn two_columns_divide_no_entry_and_keep_a_heading_with_its_first_entry() {
        for tab in Tab::ALL {
            for rows in [16, 24, 36, 50, 60] {
                let mut driver = Driver::full(200, rows);
                driver.state.cx.tab = tab;
                let page = Help::default().page(&driver.state.cx);
                assert_eq!(page.columns.len(), 2, "{tab:?}");
                for column in &page.columns {
                    let [first, last] = [column.first(), column.last()].map(|row| row.expect("rows"));
                    assert!(first.before.is_empty() || !first.before.trim().is_empty(), "{first:?}");
                    assert!(!last.before.is_empty(), "{tab:?}: a heading without an entry: {last:?}");
                }
                // moving a group, or an entry of a divided group, would not balance the columns better
                let blocks = Help::default().blocks(&driver.state.cx, HELP_COLUMN - 2);
                let rows =
                    |blocks: &[HelpBlock]| blocks.iter().map(|block| block.rows.len()).sum::<usize>();
                let tallest = match page.columns[1][0].before.is_empty() {
                    true => blocks.chunk_by(|_, next| !next.begins_group).map(rows).max(),
                    false => blocks.chunks(1).map(rows).max(),
                }
                .expect("rows");
                let [left, right] = [page.columns[0].len(), page.columns[1].len()];
                assert!(left.abs_diff(right) <= tallest, "{tab:?}: {left} and {right} rows");
            }
        }
    }

    #[test]
    fn the_first_page_of_the_smallest_window_has_five_keys_of_the_screen_in_a_row_each() {
        for tab in Tab::ALL {
            let mut driver = Driver::full(60, 16);
            driver.state.cx.tab = tab;
            let note = ScreenNote::new("a note that has no room on the screen", true);
            let blocks = Help::with(vec![note]).blocks(&driver.state.cx, 58);
            let rows: Vec<&HelpRow> = blocks.iter().flat_map(|block| &block.rows).collect();
            assert!(rows[0].text.starts_with("On this screen: "), "{tab:?}");
            assert!(rows[1..=MAIN_KEYS].iter().all(|row| !row.before.trim().is_empty()), "{tab:?}");
            assert!(rows[MAIN_KEYS + 1].text.starts_with("Notes not shown"), "{tab:?}: {rows:?}");
        }
    }

    #[test]
    fn keys_of_the_screen_and_notes_come_first_and_the_rest_fills_the_page() {
        for (columns, rows) in [(80, 24), (120, 40)] {
            let mut driver = Driver::full(columns, rows);
            driver.keys("3?");
            driver.shows("On this screen: runs");
            driver.shows("Also on this screen");
            driver.shows("show all details of the run");
            driver.shows(" more ");
            driver.press(KeyCode::End);
            driver.shows("predicted from measured tables");
        }
    }

    #[test]
    fn the_search_explains_marks_and_terms_and_knows_synonyms() {
        for (screen, typed, text) in [
            ("6", "★", "fastest of its row"),
            ("4", "╱", "exposed communication: all of the cell"),
            ("3", "▣", "does not fit in memory"),
            ("3", "noisy", "rounds of this cell differ widely"),
            ("5", "dominated", "another run beats it"),
            ("1", "inter-token", "time per output token"),
            ("3", "undo delete", "undo the last tag, note, deletion"),
            ("3", "dark", "choose a colour theme"),
            ("3", "overlap", "share of communication"),
            ("6", "desync:2", "synchronised every N modules"),
            ("1", "ladder", "modules read the residual without the newest output"),
            ("7", "alpha", "alpha + bytes / bandwidth"),
            ("6", "micro2", "one computes while the other communicates"),
            ("1", "sharded-head", "Shard the LM head"),
            ("4", "waiting", "communication that waits for a peer"),
            ("7", "comm loss", "share of its bandwidth that an all-reduce loses"),
            ("6", "exposed transfer", "the rest waits for the last rank"),
            ("6", "interval", "from the spread of rounds and samples"),
            ("3", "significant", "interval of the ratio excludes 1"),
            ("2", "undecided", "more rounds settle it"),
            ("6", "tie", "their own ratio is not significant"),
            ("1", "p-value", "adjusted for the number of comparisons"),
        ] {
            let mut driver = Driver::full(120, 40);
            driver.keys(&format!("{screen}?/{typed}"));
            driver.shows(text);
        }
    }

    /// The glossary of the documentation: `- **term**, **term**: meaning; **term**: meaning`.
    #[test]
    fn the_search_finds_every_term_of_the_written_glossary() {
        let page = include_str!("../../../docs/faq.md");
        let (_, glossary) = page.split_once("## Glossary").expect("a glossary");
        let terms: Vec<&str> = glossary.split("**").skip(1).step_by(2).collect();
        assert!(terms.len() > 15, "{terms:?}");
        let cx = Context::new("runs".into(), Theme::new(true), (80, 24));
        for term in terms {
            let groups = found(&cx, term, MAIN_KEYS);
            assert!(groups.iter().any(|group| !group.entries.is_empty()), "{term}");
        }
    }
}
