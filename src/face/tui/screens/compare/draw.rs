//! Draws screen 6: what is compared, the table of pairs or the map, the selected pair, pickers.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::Compare;
use super::state::{Compared, Order};
use super::{Act, areas, detail, heat};
use crate::base::text::counted;
use crate::face::tui::context::Context;
use crate::face::tui::format::{digits, percent};
use crate::face::tui::theme::{Role, Theme};
use crate::face::tui::widgets::paint::{empty, frame, line, put, wrap};
use crate::face::tui::widgets::table::{self, Column, Rows};
use crate::study::analysis::{Comparison, Varied, Verdict};

const COLUMNS: [Column; 12] = [
    Column::text("", 1, 0),
    Column::text("baseline → other", 22, 0).growing(14),
    Column::number("tok/s x", 7, 0),
    Column::text("95% interval", 14, 6),
    Column::text("differs", 7, 1),
    Column::number("adj. p", 6, 7),
    Column::text("TPOT ms", 15, 8),
    Column::text("exposed", 15, 9),
    Column::text("overlap", 15, 10),
    Column::number("hidden", 6, 5),
    Column::text("provenance", 13, 2),
    Column::text("cell", 12, 0).growing(27),
];

/// The column that is left out where all pairs have the same.
const PROVENANCE: usize = 10;

/// The column of what tells pairs apart.
const CELL: usize = 11;

/// Draws the screen into its part of the window.
pub fn draw(buf: &mut Buffer, body: Rect, compare: &Compare, cx: &Context) {
    let theme = cx.theme;
    let compared = match &compare.compared {
        None => {
            let text = format!("comparing by {}…", compare.asked.axis);
            return empty(buf, body, &text, theme);
        }
        Some(Err(error)) => {
            let key = cx.key::<Compare>(Act::NextAxis);
            return empty(buf, body, &format!("{error}\n{key} compares by another axis"), theme);
        }
        Some(Ok(compared)) => compared,
    };
    let places = areas(body);
    header(buf, places.title, compare, cx, compared);
    if compared.report.pairs.is_empty() {
        empty(buf, places.table, &nothing(cx, compared), theme);
    } else if let Some(map) = &compare.map {
        heat::draw(buf, places.table, theme, map, compare);
    } else {
        pairs(buf, places.table, compare, cx, compared);
    }
    compare.filter.draw_offers(buf, Rect { y: places.title.y + 1, ..places.title }, body, theme);
    if compare.flags {
        flags(buf, places.detail, theme, &compared.report.flags);
    } else if let Some(selected) = compare.selected() {
        detail::draw(buf, places.detail, theme, &compare.asked.axis, selected);
    }
}

fn header(buf: &mut Buffer, area: Rect, compare: &Compare, cx: &Context, compared: &Compared) {
    let (theme, report) = (cx.theme, &compared.report);
    let (text, title, dim) = (theme.style(Role::Text), theme.style(Role::Title), theme.style(Role::Dim));
    let baseline = match &compare.asked.baseline {
        Some(baseline) => baseline.clone(),
        None => report.pairs.first().map_or_else(|| "-".into(), |pair| pair.baseline.clone()),
    };
    let wide = area.width >= 110;
    let adjusted = match report.adjusted.tested {
        0 if wide => "no p-values (simulated, or too few samples)".to_owned(),
        0 => "no p-values".to_owned(),
        tested => format!(
            "{} of {tested} after {} {}%",
            report.adjusted.differ,
            if wide { "Benjamini-Hochberg, false discovery rate" } else { "BH" },
            100.0 * report.adjusted.false_discovery_rate
        ),
    };
    let made = format!(": {}, {} differ; ", counted(report.comparisons, "comparison"), report.differ);
    line(
        buf,
        area,
        0,
        &[
            (" by ", text),
            (&report.by, title),
            (" against ", text),
            (&baseline, title),
            (&made, text),
            (&adjusted, dim),
        ],
    );
    let mut x = area.x;
    if let Some(provenance) = compared.provenance {
        let label = format!(" [{provenance}]");
        x = put(buf, area, x, area.y + 1, &label, theme.provenance(provenance));
    }
    let mut words = format!(" {} of {} pairs", compare.shown.len(), report.pairs.len());
    if compare.map.is_none() {
        let way = if compare.descending { "▼" } else { "▲" };
        words += &match compare.order {
            Order::Stored => format!(", {} {way}", compare.order.name()),
            order => format!(", by {} {way}", order.name()),
        };
    }
    if !compare.marked.is_empty() {
        words += &format!(", {} marked ●", compare.marked.len());
    }
    let x = put(buf, area, x, area.y + 1, &words, dim);
    let x = if compare.filter.typing || !compare.filter.value().is_empty() {
        let rest = Rect { x: x + 2, width: area.right().saturating_sub(x + 2), y: area.y + 1, ..area };
        compare.filter.draw(buf, rest, theme, " Enter keeps it, Esc drops it")
    } else {
        put(buf, area, x, area.y + 1, &format!("; all {}", compared.common), dim)
    };
    if !report.flags.is_empty() {
        let key = cx.key::<Compare>(Act::Flags);
        let flags = format!("  ⚑ {}: {key}", counted(report.flags.len(), "flag"));
        put(buf, area, x, area.y + 1, &flags, theme.style(Role::Warn));
    }
}

/// Why there are no pairs, and what to do.
fn nothing(cx: &Context, compared: &Compared) -> String {
    if cx.stored.as_ref().is_none_or(|s| s.records.is_empty()) {
        return format!("no runs yet: {}", cx.keys.to_first_run());
    }
    let key = cx.key::<Compare>(Act::PickAxis);
    let with = compared.axes.iter().filter(|axis| axis.pairs > 0).map(|axis| axis.axis.to_string());
    let others: Vec<String> = with.collect();
    let by = &compared.report.by;
    match others.is_empty() {
        true => format!("no two runs differ in {by} alone, nor in anything else alone"),
        false => {
            format!("no two runs differ in {by} alone: {key} chooses among {}", others.join(", "))
        }
    }
}

fn pairs(buf: &mut Buffer, area: Rect, compare: &Compare, cx: &Context, compared: &Compared) {
    let theme = cx.theme;
    let way = if compare.descending { "▼" } else { "▲" };
    let told = compared.provenance.is_some();
    // what varies comes first; where nothing does, there is nothing to say
    let says = |column: &usize| match *column {
        PROVENANCE => !told,
        CELL => !compared.settings.is_empty(),
        _ => true,
    };
    let kept: Vec<usize> = [0, 1, CELL].into_iter().chain(2..CELL).filter(says).collect();
    let columns: Vec<Column> = kept.iter().map(|column| COLUMNS[*column]).collect();
    let mark = compare
        .order
        .column()
        .and_then(|column| kept.iter().position(|kept| *kept == column))
        .map(|column| (column, way));
    let rows = Rows { list: &compare.list, len: compare.shown.len(), mark };
    table::draw(buf, area, theme, &columns, rows, |row, column| {
        let column = kept[column];
        let pair = compare.shown.get(row).and_then(|index| compared.report.pairs.get(*index));
        pair.map_or_else(Default::default, |pair| {
            content(pair, column, theme, compare.is_marked(pair), &compared.settings)
        })
    });
    if compare.shown.is_empty() {
        empty(buf, area, "no pair matches the filter", theme);
    }
}

fn content(
    pair: &Comparison,
    column: usize,
    theme: Theme,
    marked: bool,
    settings: &Varied,
) -> (String, Style) {
    let text = theme.style(Role::Text);
    let both = |a: String, b: String| (format!("{a} → {b}"), text);
    let sides = [&pair.baseline_side, &pair.side];
    match column {
        0 => ((if marked { "●" } else { "" }).into(), theme.style(Role::Active)),
        1 => both(pair.baseline.clone(), pair.value.clone()),
        2 => (format!("{:.3}x", pair.speedup), theme.style(Role::Title)),
        3 => {
            let interval = pair.speedup_ci95.map(|[a, b]| format!("{a:.3} to {b:.3}"));
            (interval.unwrap_or_else(|| "-".into()), text)
        }
        4 => match pair.verdict() {
            Verdict::Faster => ("▲ yes".into(), theme.style(Role::Good)),
            Verdict::Slower => ("▼ yes".into(), theme.style(Role::Bad)),
            Verdict::Same => ("= same".into(), theme.style(Role::Dim)),
            Verdict::Chance => ("· no".into(), theme.style(Role::Dim)),
            Verdict::Unknown => ("? few".into(), theme.style(Role::Dim)),
        },
        5 => (p(pair.adjusted_p), text),
        6 => both(digits(pair.baseline_tpot_ms), digits(pair.tpot_ms)),
        7 => both(percent(sides[0].exposed_pct), percent(sides[1].exposed_pct)),
        8 => both(percent(pair.baseline_overlap_pct), percent(pair.overlap_pct)),
        9 => (sides[1].hidden_share.map_or_else(|| "-".into(), |v| format!("{v:.2}")), text),
        10 => (pair.provenance.to_string(), theme.provenance(pair.provenance)),
        _ => (settings.words(&pair.side.spec), text),
    }
}

/// A p-value: never more digits than the resamples tell.
pub fn p(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(p) if p < 0.001 => "<.001".into(),
        Some(p) => format!("{p:.3}"),
    }
}

fn flags(buf: &mut Buffer, area: Rect, theme: Theme, flags: &[String]) {
    let inner = frame(buf, area, "what looks wrong", theme);
    let rows = usize::from(inner.height);
    let (mut lines, mut whole) = (Vec::new(), 0);
    // there may be thousands: no more are wrapped than fit
    while let Some(flag) = flags.get(whole) {
        lines.extend(wrap(&format!("⚑ {flag}"), usize::from(inner.width)));
        if lines.len() > rows {
            break;
        }
        whole += 1;
    }
    for (row, text) in lines.iter().take(rows).enumerate() {
        line(buf, inner, row as u16, &[(text, theme.style(Role::Warn))]);
    }
    if whole < flags.len() {
        let more = format!(" {} more: `ladderscope compare` prints all ", flags.len() - whole);
        put(buf, area, area.x + 2, area.bottom().saturating_sub(1), &more, theme.style(Role::Dim));
    }
    if flags.is_empty() {
        empty(buf, inner, "nothing looks wrong", theme);
    }
}
