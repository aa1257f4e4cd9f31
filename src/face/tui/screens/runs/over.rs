//! What lies on the screen of runs: choosing columns, two runs beside one another.

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::draw::cut_middle;
use super::state::{COLUMNS, PINNED, Runs};
use crate::base::text::folded;
use crate::face::tui::context::Context;
use crate::face::tui::format::{cut, digits};
use crate::face::tui::layout::{centered, cut_top};
use crate::face::tui::screen::Hints;
use crate::face::tui::theme::Role;
use crate::face::tui::widgets::field::{FilterBox, Typed};
use crate::face::tui::widgets::list::{List, scroll_key};
use crate::face::tui::widgets::paint::{line, popup, put, select, wrap};
use crate::study::analysis::{RunTable, SideBySide};
use crate::table::Provenance;

/// What lies on the page.
#[derive(Debug)]
pub enum Over {
    /// Which columns are shown.
    Columns {
        /// All columns by name: those shown in their order, then the others.
        names: Vec<String>,
        /// How many of them are shown.
        shown: usize,
        /// The rows, which of them is selected, and which are shown.
        list: List,
        /// What is searched for: letters of a name or of a title.
        search: Box<FilterBox>,
    },
    /// Two runs beside one another; nothing until it is worked out.
    SideBySide {
        /// What is known of the two runs, once it is computed.
        both: Option<Box<SideBySide>>,
        /// How many lines lie above the first one shown.
        scroll: usize,
    },
}

impl Over {
    /// Keeps what is scrolled within what there is.
    pub fn bound(&mut self, body: Rect) {
        if let Self::SideBySide { both, scroll } = self {
            let (place, lines) = side_by_side(body, both.as_deref());
            *scroll =
                (*scroll).min(lines.len().saturating_sub(usize::from(place.height.saturating_sub(2))));
        }
    }

    /// Its keys and what they do.
    pub fn hints(&self) -> Hints {
        match self {
            Self::Columns { search, .. } if search.typing => {
                &[("Enter", "next found"), ("↓", "stay"), ("Esc", "end the search")]
            }
            Self::Columns { .. } => &[
                ("Space", "on or off"),
                ("J K", "move"),
                ("d", "default"),
                ("/", "search"),
                ("Esc", "close"),
            ],
            Self::SideBySide { .. } => {
                &[("Enter", "both timelines"), ("↑ ↓", "scroll"), ("Esc", "close")]
            }
        }
    }

    /// The dialog in which columns are chosen.
    pub fn columns(shown: &[String], table: &RunTable) -> Self {
        let mut names: Vec<String> =
            shown.iter().filter(|name| table.find(name).is_some()).cloned().collect();
        let count = names.len();
        let others = table.shown().map(|column| column.field.name.to_string());
        names.extend(others.filter(|name| !shown.contains(name)));
        Self::Columns { names, shown: count, list: List::default(), search: Box::default() }
    }
}

impl Runs {
    /// A key while something lies on the screen.
    pub(super) fn in_over(&mut self, key: KeyEvent, cx: &mut Context) {
        let closes = matches!(key.code, KeyCode::Esc | KeyCode::Char('q'));
        if let Some(Over::Columns { names, list, search, .. }) = &mut self.over
            && let Some(typed) = search.key(key)
        {
            // the column that is looked for is gone to, the next one with Enter
            let from = list.selected + usize::from(typed == Typed::Kept);
            let found = match typed {
                Typed::Moved => None,
                Typed::Changed | Typed::Kept => find(names, search.value(), from, cx),
            };
            list.selected = found.unwrap_or(list.selected);
            search.typing |= typed == Typed::Kept && key.code == KeyCode::Enter && found.is_some();
            return;
        }
        match &mut self.over {
            _ if closes => self.over = None,
            Some(Over::Columns { .. }) => in_columns(self, key.code, cx),
            Some(Over::SideBySide { both, scroll }) => match key.code {
                code if scroll_key(code, scroll) => {}
                KeyCode::Enter => {
                    // the other above its baseline
                    let [a, b] = both.as_ref().map_or_else(Default::default, |both| both.runs.clone());
                    cx.open_runs([b, a].into_iter().filter(|run| !run.is_empty()));
                    self.over = None;
                }
                _ => {}
            },
            None => {}
        }
    }
}

/// The first column from a place on, then from the top, whose name or title holds what is typed.
fn find(names: &[String], typed: &str, from: usize, cx: &Context) -> Option<usize> {
    let typed = folded(typed);
    let holds = |at: &usize| {
        let name = &names[*at];
        folded(name).contains(&typed) || title_of(name, cx).is_some_and(|t| folded(&t).contains(&typed))
    };
    let from = from.min(names.len());
    (from..names.len()).chain(0..from).find(holds).filter(|_| !typed.is_empty())
}

/// What heads a column, and its short name for typing where that is another one.
fn title_of(name: &str, cx: &Context) -> Option<String> {
    let table = &cx.stored.as_ref()?.table;
    let field = &table.columns().get(table.find(name)?)?.field;
    let short = field.short();
    let typed = if short == name { String::new() } else { format!("  ({short})") };
    Some(format!("{}{typed}", field.title))
}

fn in_columns(runs: &mut Runs, code: KeyCode, cx: &Context) {
    let Some(Over::Columns { names, shown, list, search }) = &mut runs.over else { return };
    let at = list.selected;
    let pinned =
        |names: &[String], at: usize| names.get(at).is_none_or(|n| PINNED.contains(&n.as_str()));
    match code {
        code if list.key(code, names.len()) => {}
        KeyCode::Char(' ') | KeyCode::Enter if !pinned(names, at) => {
            let name = names.remove(at);
            if at < *shown {
                *shown -= 1;
                names.insert(*shown, name);
            } else {
                names.insert(*shown, name);
                *shown += 1;
                // the next one stands where this one stood
                list.move_by(1, names.len());
            }
        }
        KeyCode::Char('/') => **search = FilterBox { typing: true, ..FilterBox::default() },
        KeyCode::Char('J') | KeyCode::Right if at + 1 < *shown && !pinned(names, at) => {
            names.swap(at, at + 1);
            list.selected += 1;
        }
        KeyCode::Char('K') | KeyCode::Left
            if at < *shown && !pinned(names, at) && !pinned(names, at.saturating_sub(1)) =>
        {
            names.swap(at, at - 1);
            list.selected -= 1;
        }
        KeyCode::Char('d') => {
            names.sort_by_key(|name| COLUMNS.iter().position(|c| c == name).unwrap_or(COLUMNS.len()));
            *shown = names.iter().filter(|name| COLUMNS.contains(&name.as_str())).count();
        }
        _ => {}
    }
    let columns = names[..(*shown).min(names.len())].to_vec();
    runs.columns = columns;
    runs.scroll = 0;
    if let Some(stored) = &cx.stored {
        runs.note_empty(&stored.table);
    }
}

/// Draws what lies over the list of runs.
pub fn draw(buf: &mut Buffer, body: Rect, cx: &Context, over: &Over) {
    let theme = cx.theme;
    match over {
        Over::Columns { names, shown, list, search } => {
            draw_columns(buf, body, cx, (names, *shown), *list, search);
        }
        Over::SideBySide { both, scroll } => {
            let (place, lines) = side_by_side(body, both.as_deref());
            let area = popup(buf, place, "side by side", theme);
            for (row, pieces) in lines.iter().skip(*scroll).take(usize::from(area.height)).enumerate() {
                let pieces: Vec<_> =
                    pieces.iter().map(|(text, role)| (text.as_str(), theme.style(*role))).collect();
                line(
                    buf,
                    Rect { x: area.x + 1, width: area.width.saturating_sub(1), ..area },
                    row as u16,
                    &pieces,
                );
            }
        }
    }
}

/// Where two runs stand beside one another, with the frame, and what is said of them.
fn side_by_side(body: Rect, both: Option<&SideBySide>) -> (Rect, Vec<Pieces>) {
    let width = body.width.saturating_sub(4).min(110);
    let lines = match both {
        Some(both) => describe(both, usize::from(width.saturating_sub(3))),
        None => vec![vec![("working it out…".to_owned(), Role::Dim)]],
    };
    (centered(body, width, (lines.len() as u16 + 2).min(body.height)), lines)
}

fn draw_columns(
    buf: &mut Buffer,
    body: Rect,
    cx: &Context,
    (names, shown): (&[String], usize),
    mut list: List,
    search: &FilterBox,
) {
    let theme = cx.theme;
    let height = (names.len() as u16 + 3).min(body.height);
    let area = popup(buf, centered(body, 68, height), "columns", theme);
    let (top, rows) = cut_top(area, u16::from(search.typing));
    let row = Rect { x: top.x + 1, width: top.width.saturating_sub(1), ..top };
    search.draw_named(buf, row, theme, "search: ", "");
    list.fit(names.len(), usize::from(rows.height));
    for (at, y) in list.rows(names.len(), rows) {
        let name = &names[at];
        let (mark, role) = match at < shown {
            _ if PINNED.contains(&name.as_str()) => ("[always]", Role::Dim),
            true => ("[x]", Role::Text),
            false => ("[ ]", Role::Dim),
        };
        let title = title_of(name, cx).unwrap_or_default();
        put(buf, area, area.x + 1, y, mark, theme.style(role));
        put(buf, area, area.x + 10, y, name, theme.style(role));
        put(buf, area, area.x + 36, y, &title, theme.style(Role::Dim));
        if at == list.selected {
            select(buf, area, y, theme);
        }
    }
}

/// Pieces of a line, with what they mean.
type Pieces = Vec<(String, Role)>;

fn describe(both: &SideBySide, width: usize) -> Vec<Pieces> {
    let mut lines: Vec<Pieces> = Vec::new();
    let column = width.saturating_sub(33).max(20) / 2;
    let row = |name: &str, a: &str, b: &str, last: &str, role: Role| -> Pieces {
        let fit = |text: &str| cut(text, column as u16 - 1);
        vec![
            (format!("{:<19}", cut(name, 18)), Role::Dim),
            (format!("{:<column$}{:<column$}{last}", fit(a), fit(b)), role),
        ]
    };
    let run = |run: &String| cut_middle(run, column as u16 - 1);
    lines.push(row("", &run(&both.runs[0]), &run(&both.runs[1]), "", Role::Title));
    let provenance = both.provenance.map(|p| p.to_string());
    let mixed = if provenance[0] == provenance[1] { Role::Text } else { Role::Warn };
    lines.push(row("provenance", &provenance[0], &provenance[1], "", mixed));
    for warning in &both.warnings {
        for (at, text) in wrap(warning, width.saturating_sub(4)).into_iter().enumerate() {
            lines.push(vec![(format!("{}{text}", if at == 0 { "⚠ " } else { "  " }), Role::Warn)]);
        }
    }
    lines.push(vec![(format!("asked differently ({} fields are alike)", both.alike), Role::Title)]);
    for (name, a, b) in &both.differences {
        lines.push(row(name, a, b, "", Role::Text));
    }
    if both.differences.is_empty() {
        lines.push(vec![("nothing: two runs of one cell".into(), Role::Dim)]);
    }
    lines.push(vec![("numbers, and the second over the first".into(), Role::Title)]);
    for measure in &both.measures {
        let unit = measure.measure.unit;
        let shown = |value: Option<f64>| value.map_or("-".into(), |value| unit.cell(value));
        let [a, b] = measure.values.map(shown);
        let ratio = measure.ratio().map_or(String::new(), |ratio| format!("x {}", digits(ratio)));
        lines.push(row(measure.measure.title, &a, &b, &ratio, Role::Text));
    }
    lines.extend(speedup(both));
    lines
}

fn speedup(both: &SideBySide) -> Vec<Pieces> {
    let Some(speedup) = both.speedup else {
        return vec![vec![("no ratio: one of them has no numbers".into(), Role::Dim)]];
    };
    let interval = match both.speedup_ci95 {
        Some([low, high]) => {
            let verdict = if both.differs { "they differ" } else { "no difference shown" };
            format!("95% [{low:.3}, {high:.3}]: {verdict}")
        }
        None if both.provenance.contains(&Provenance::Simulated) => "simulated: no interval".into(),
        None => "no interval: fewer than 6 samples".into(),
    };
    let rounds = match both.shared_rounds {
        0 => "no shared rounds".to_owned(),
        1 => "1 shared round".to_owned(),
        rounds => format!("{rounds} shared rounds"),
    };
    vec![
        vec![(format!("tokens/s over all rounds of both cells x {speedup:.3}"), Role::Title)],
        vec![(format!("{interval} ({rounds})"), Role::Text)],
    ]
}
