//! Pivot of screen 6: one row per setting, one column per compared value.

use super::Compare;
use super::compared::AxisComparison;
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::table::{self, TableColumn, TableLayout, TableRows};
use ::table::Provenance;
use study::analysis::PairVerdict;

/// Columns before the compared values: mark, setting, baseline.
const FIXED: usize = 3;

const SETTING: usize = 1;

/// Width of the mark, one compared value and the gaps between the columns.
const VALUE_AND_GAPS: u16 = 15;

/// Longest title of a compared value.
const LONGEST_TITLE: u16 = 16;

fn columns(compare: &Compare, compared: &AxisComparison, width: u16) -> Vec<TableColumn> {
    let pair_settings = compare.pair_settings(compared);
    let way = if compare.descending { "▼" } else { "▲" };
    // nothing but the axis may vary
    let title = if pair_settings.settings.is_empty() { "" } else { "setting" };
    let widest = pair_settings.widths.1.max(title.width()) as u16;
    let name = compared.baseline_name().unwrap_or_else(|| "baseline".to_owned());
    let baseline = match width {
        ..64 => format!("{} ms", cut(&name, LONGEST_TITLE - 3)),
        _ => format!("{name} {} ms", compared.report.latency()),
    };
    // baselines that differ are named in the cells
    let least = if compared.baseline.is_some() { 8 } else { 18 };
    let baseline_width = baseline.width().max(least) as u16;
    // rows differ in all words of a setting, so it is whole if one compared value fits beside it
    let shortened = widest.min(width.saturating_sub(baseline_width + VALUE_AND_GAPS).max(12));
    let mut columns = vec![
        TableColumn::text("", 1, 0),
        TableColumn::text(title, shortened, 0).growing(widest - shortened),
        titled(TableColumn::number("", baseline_width, 0), baseline),
    ];
    // `[★≈1.04x]`, and a mark if it differs from the published speedup
    let has_published = compared.report.pairs.iter().any(|pair| pair.published_speedup.is_some());
    let least = if has_published { 10 } else { 9 };
    columns.extend(compare.pivot.values.iter().map(|value| {
        let wanted = compare.column.as_ref() == Some(value);
        let sorted = if wanted && compare.order.column().is_some() { way } else { "" };
        let title = format!("{}{sorted}", cut(value, LONGEST_TITLE));
        let width = (title.width() as u16 + 2).max(least);
        let title = if wanted { format!("[{title}]") } else { format!(" {title} ") };
        titled(TableColumn::number("", width, 1), title)
    }));
    if pair_settings.provenance.is_none() {
        columns.push(TableColumn::text("provenance", 13, 1));
    }
    columns
}

fn titled(column: TableColumn, title: String) -> TableColumn {
    TableColumn { title: title.into(), ..column }
}

/// Columns scrolled off so that the selected one is visible.
fn scrolled(compare: &Compare, columns: &[TableColumn], width: u16) -> usize {
    let area = Rect::new(0, 0, width, 1);
    let Some(selected) = compare.selected_row().map(|row| FIXED + compare.column_of(row)) else {
        return 0;
    };
    let shows = |scrolled: &usize| {
        let places = table::lay_out(columns, area, Some(*scrolled)).places;
        places.iter().any(|place| place.column == selected)
    };
    (0..columns.len()).find(shows).unwrap_or(0)
}

pub fn layout(compare: &Compare, compared: &AxisComparison, area: Rect) -> TableLayout {
    let columns = columns(compare, compared, area.width);
    table::lay_out(&columns, area, Some(scrolled(compare, &columns, area.width)))
}

/// Columns that the whole table needs; `width` if it ends in text or does not fit.
pub fn needed_width(compare: &Compare, compared: &AxisComparison, width: u16) -> u16 {
    let layout = layout(compare, compared, Rect::new(0, 0, width, 1));
    let last = layout.places.last().filter(|_| layout.right == 0);
    last.map_or(width, |place| place.x + place.width)
}

/// Compared value at a position of the window.
pub fn value_at(
    compare: &Compare,
    compared: &AxisComparison,
    area: Rect,
    at: Position,
) -> Option<String> {
    let places = layout(compare, compared, area).places;
    let place = places.iter().find(|place| (place.x..place.x + place.width).contains(&at.x))?;
    compare.pivot.values.get(place.column.checked_sub(FIXED)?).cloned().filter(|_| area.contains(at))
}

/// Legends that only a wide window has, the first ones.
const WHOLE_LEGENDS: usize = 2;

/// Meanings of the marks of the filtered pairs.
#[derive(Clone, Debug, Default)]
pub struct MarkMeanings {
    /// Rule for `≈`, as on the result card: within the simulator's error, or undecided.
    pub tie: String,
    /// Meaning of `?`.
    pub unknown: &'static str,
    /// Legends of the pivot, the longest first.
    legends: Vec<String>,
}

impl MarkMeanings {
    pub fn new(compare: &Compare, compared: &AxisComparison) -> Self {
        let report = &compared.report;
        let shown = compare.kept.iter().map(|at| &report.pairs[*at]);
        let within = report.within(shown);
        let tie = match compare.pair_settings(compared).provenance {
            Some(Provenance::Simulated) => within,
            Some(_) => "undecided".into(),
            None => format!("{within} or undecided"),
        };
        let (mut marks, mut farthest_pct) = (String::new(), 0.0_f64);
        for row in &compare.pivot.rows {
            marks += row.baseline_marks();
            for (column, pair) in row.pairs.iter().enumerate() {
                let own = row.marks(report, column);
                let published = pair.and_then(|at| report.pairs[at].published_speedup);
                if let Some(of) = published.filter(|_| own.contains('†')) {
                    farthest_pct = farthest_pct.max(of.error_pct.abs());
                }
                marks += &own;
            }
        }
        let baseline = compared.baseline_name().unwrap_or_else(|| "the baseline".to_owned());
        let [whole, ratio, brief_ratio, short] = match report.latency() {
            "TTFT" => {
                let ratio = format!("TTFT speedup over {baseline}");
                let whole = format!("1.10x: {ratio}");
                [whole.clone(), whole, ratio, "TTFT speedup".to_owned()]
            }
            _ => {
                let ratio = format!("1.10x: 1.10 times {baseline}'s tokens/s");
                let brief = format!("x tokens/s of {baseline}");
                [format!("{ratio} with prefill"), ratio, brief, "x tokens/s".to_owned()]
            }
        };
        let [limit, published] = ["above the upper bound: noise", "differs from the published speedup"];
        let [unknown, few] = match report.pairs.iter().any(|pair| pair.rounds_apart > 0) {
            true => ["too few samples, or measured apart", "few samples, or apart"],
            false => ["too few samples", "few samples"],
        };
        let long = ["fastest", &tie, unknown, limit, published];
        let farthest = format!("{published} by up to {farthest_pct:.0} %");
        let longest = ["fastest", &tie, unknown, limit, &farthest];
        let brief = ["fastest", &tie, few, "above the bound: noise", "published speedup differs"];
        let terse = ["fastest", "tie", "unknown", "noise", "published differs"];
        let legend = |ratio: &str, meanings: [&str; 5]| {
            let all = ["★", "≈", "?", "!", "†"].into_iter().zip(meanings);
            let used = all.filter(|(mark, _)| marks.contains(mark));
            let used: String = used.map(|(mark, meaning)| format!("  {mark} {meaning}")).collect();
            let text = format!("{ratio}{used}");
            format!(" {}", text.trim_start())
        };
        let legends = vec![
            legend(&whole, longest),
            legend(&whole, long),
            legend(&ratio, long),
            legend(&ratio, brief),
            legend(&brief_ratio, brief),
            legend(&short, brief),
            legend("", brief),
            legend("", terse),
        ];
        Self { tie, unknown, legends }
    }

    /// Meanings of the marks of ratios in the list of pairs, whose verdicts have the others; empty if they do not fit.
    pub fn of_ratios(&self, room: usize) -> String {
        let has = |mark: char| self.legends.last().is_some_and(|legend| legend.contains(mark));
        let texts = match (has('★'), has('≈')) {
            (false, _) => Vec::new(),
            (true, false) => vec!["  ★ fastest".to_owned()],
            (true, true) => {
                vec![format!("  ★ fastest  ≈ {}", self.tie), "  ★ fastest, ≈ tie".to_owned()]
            }
        };
        texts.into_iter().find(|text| text.width() <= room).unwrap_or_default()
    }

    /// Legend of the pivot, shortened to the width. In a narrow window the common settings follow it in the same row.
    pub fn legend(&self, width: u16) -> &str {
        let first = if width < 100 { WHOLE_LEGENDS } else { 0 };
        let texts = self.legends.get(first..).unwrap_or_default();
        first_fitting(texts, width)
    }
}

pub fn draw(buf: &mut Buffer, area: Rect, compare: &Compare, compared: &AxisComparison, theme: Theme) {
    let columns = columns(compare, compared, area.width);
    let scrolled = Some(scrolled(compare, &columns, area.width));
    let pivot = &compare.pivot;
    let rows = TableRows { scrolled, ..TableRows::new(&compare.list, pivot.rows.len()) };
    table::draw(buf, area, theme, &columns, rows, |row, column, width| {
        let (text, style) = content(compare, compared, row, column, theme);
        // settings differ in their first words
        let text = if column == SETTING { cut(&text, width) } else { text };
        table::cell((text, style))
    });
}

fn content(
    compare: &Compare,
    compared: &AxisComparison,
    at: usize,
    column: usize,
    theme: Theme,
) -> (String, Style) {
    let (row, report) = (&compare.pivot.rows[at], &compared.report);
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let winner = theme.style(Role::Good).add_modifier(Modifier::BOLD);
    let mut pairs = row.known().map(|pair| &report.pairs[pair]);
    let Some(first) = pairs.next() else { return Default::default() };
    match column {
        0 => {
            let marked = compare.is_marked(first) || pairs.any(|pair| compare.is_marked(pair));
            (if marked { "●" } else { "" }.into(), theme.style(Role::Active))
        }
        SETTING => (compare.pair_settings(compared).settings.words(&first.side.spec), text),
        2 => {
            let name = match &compared.baseline {
                Some(_) => String::new(),
                None => format!("{} ", first.baseline),
            };
            let latency = format!("{:.*}", compared.latency_decimals, first.latencies_ms()[0]);
            let marks = row.baseline_marks();
            (format!("{marks}{name}{latency}"), if marks.is_empty() { text } else { winner })
        }
        _ if column == FIXED + row.pairs.len() => {
            (first.provenance.to_string(), theme.provenance(first.provenance))
        }
        _ => {
            let column = column - FIXED;
            let words = row.words(report, column);
            let selected = at == compare.list.selected && compare.column_of(row) == column;
            let words = if selected { format!("[{words}]") } else { format!(" {words} ") };
            let verdict = row.pairs[column].map(|pair| report.pairs[pair].verdict);
            let style = match verdict {
                _ if row.is_beaten(report, column) => theme.style(Role::Warn),
                _ if row.fastest.contains(&column) => winner,
                Some(PairVerdict::Faster) => text,
                _ => dim,
            };
            (words, style)
        }
    }
}
