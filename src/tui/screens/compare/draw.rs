//! Screen 6: pairs of cells that differ along one axis only.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::analysis::Comparison;
use crate::tui::format::{digits, percent};
use crate::tui::state::State;
use crate::tui::theme::{Role, Theme};
use crate::tui::widgets::paint::{empty, frame, line, wrap};
use crate::tui::widgets::table::{self, Column, Rows};

const COLUMNS: [Column; 9] = [
    Column::text("baseline → other", 24, 0).growing(12),
    Column::number("speed-up", 8, 0),
    Column::text("95% interval", 15, 3),
    Column::text("differs", 7, 1),
    Column::text("TPOT ms", 15, 6),
    Column::text("overlap", 15, 4),
    Column::number("hidden share", 18, 5),
    Column::text("provenance", 13, 2),
    Column::text("matched", 20, 7),
];

/// Draws the screen.
pub fn draw(buf: &mut Buffer, body: Rect, state: &State) {
    let (theme, compare) = (state.theme, &state.compare);
    let report = match &compare.report {
        None => return empty(buf, body, &format!("comparing by {}…", compare.axis()), theme),
        Some(Err(error)) => {
            return empty(buf, body, &format!("{error}\na compares by the next axis"), theme);
        }
        Some(Ok(report)) => report,
    };
    let (top, area, pair, flags) = super::areas(body, report.flags.len());
    let (text, title, dim) = (theme.style(Role::Text), theme.style(Role::Title), theme.style(Role::Dim));
    let count = format!("  {} pairs", report.pairs.len());
    line(buf, top, 0, &[(" by ", text), (&report.by, title), (&count, text)]);
    let note = format!(
        " {} comparisons made: the more, the more differ by chance; above 1 is faster",
        report.comparisons
    );
    line(buf, top, 1, &[(&note, dim)]);
    if report.pairs.is_empty() {
        let text = match state.stored.as_ref().is_none_or(|s| s.records.is_empty()) {
            true => "no runs yet: press 1, Enter runs the quickstart".into(),
            false => format!("no two runs differ in {} alone: a compares by the next axis", report.by),
        };
        empty(buf, area, &text, theme);
    } else {
        let rows = Rows { list: &compare.list, len: report.pairs.len(), mark: None };
        table::draw(buf, area, theme, &COLUMNS, rows, |row, column| {
            report.pairs.get(row).map_or_else(Default::default, |pair| content(pair, column, theme))
        });
    }
    if let Some(selected) = compare.selected() {
        for (row, words) in describe(selected).iter().enumerate() {
            line(buf, pair, row as u16, &[(words, text)]);
        }
    }
    if !report.flags.is_empty() {
        let inner = frame(buf, flags, "what looks wrong", theme);
        let lines: Vec<String> = report
            .flags
            .iter()
            .flat_map(|f| wrap(&format!("⚑ {f}"), usize::from(inner.width)))
            .collect();
        for (row, text) in lines.iter().take(usize::from(inner.height)).enumerate() {
            line(buf, inner, row as u16, &[(text, theme.style(Role::Warn))]);
        }
    }
}

/// The selected pair in words: what a narrow table leaves out.
fn describe(pair: &Comparison) -> [String; 2] {
    let interval = pair.hidden_share_ci95.map(|[a, b]| format!(" [{a:.2}, {b:.2}]"));
    [
        format!(
            " TPOT {} → {} ms, overlap {} → {}, hidden share {}{}",
            digits(pair.baseline_tpot_ms),
            digits(pair.tpot_ms),
            percent(pair.baseline_overlap_pct),
            percent(pair.overlap_pct),
            pair.hidden_share.map_or("-".into(), |v| format!("{v:.2}")),
            interval.unwrap_or_default()
        ),
        format!(" {}  runs {} and {}", pair.matched, pair.baseline_run, pair.run),
    ]
}

fn content(pair: &Comparison, column: usize, theme: Theme) -> (String, Style) {
    let text = theme.style(Role::Text);
    let both = |a: String, b: String| (format!("{a} → {b}"), text);
    let ratio = |v: f64| format!("{v:.3}");
    match column {
        0 => both(pair.baseline.clone(), pair.value.clone()),
        1 => (format!("{}x", ratio(pair.speedup)), theme.style(Role::Title)),
        2 => {
            let interval = pair.speedup_ci95.map(|[a, b]| format!("{} to {}", ratio(a), ratio(b)));
            (interval.unwrap_or_else(|| "-".into()), text)
        }
        3 if pair.differs && pair.speedup > 1.0 => ("▲ yes".into(), theme.style(Role::Good)),
        3 if pair.differs => ("▼ yes".into(), theme.style(Role::Bad)),
        3 => ("· no".into(), theme.style(Role::Dim)),
        4 => both(digits(pair.baseline_tpot_ms), digits(pair.tpot_ms)),
        5 => both(percent(pair.baseline_overlap_pct), percent(pair.overlap_pct)),
        6 => {
            let share = pair.hidden_share.map_or("-".into(), |v| format!("{v:.2}"));
            let interval = pair.hidden_share_ci95.map(|[a, b]| format!(" [{a:.2}, {b:.2}]"));
            (share + &interval.unwrap_or_default(), text)
        }
        7 => (pair.provenance.to_string(), theme.provenance(pair.provenance)),
        _ => (pair.matched.clone(), theme.style(Role::Dim)),
    }
}
