//! Drawing of screen 6: list of pairs, selected pair, flags, and notes.

use unicode_width::UnicodeWidthStr;

use super::compared::{AxisComparison, PairRow, one_of};
use super::detail::PairDetails;
use super::header::{self, StatusTexts, common, common_beside_legend, compared_counts};
use super::heat::{self, MapLegend};
use super::{Act, Compare, FOLDED, pivot};
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::table::{self, TableColumn, TableLayout, TableRows};
use ::table::{Provenance, Spec};
use base::text::{decimals, whole_percent};
use study::analysis::{Axis, Comparison, PairVerdict, Side, Varied};

/// Columns of the pair table. The mark, the compared value, the ratio and the cell come first and are never
/// dropped. Sortable columns leave room for the sort mark.
const COLUMNS: [TableColumn; 12] = [
    TableColumn::text("", 2, 0),
    TableColumn::text("", 12, 0),
    TableColumn::text("cell", 12, 0),
    TableColumn::number("tok/s x", 8, 0),
    TableColumn::text("95 % CI", 14, 1),
    TableColumn::text("verdict", 8, 1),
    TableColumn::number("p (BH)", 7, 1),
    TableColumn::number("TPOT ms", 15, 1),
    TableColumn::number("exposed", 17, 1),
    TableColumn::number("hidden", 17, 1),
    TableColumn::text("gap closed", 20, 1),
    TableColumn::text("provenance", 13, 0),
];

const VALUE: usize = 1;

const CELL: usize = 2;

const RATIO: usize = 3;

const LATENCY: usize = 7;
const INTERVAL: usize = 4;
const VERDICT: usize = 5;
const ADJUSTED: usize = 6;
const GAP: usize = 10;

/// Longest baseline in the title of the verdicts.
const LONGEST_BASELINE: usize = 9;

/// Column omitted when all pairs have the same provenance.
const PROVENANCE: usize = 11;

/// Visible columns for a window of this width, sized to their content, with their indices. Empty columns
/// are omitted.
fn columns(
    (compared, kept): (&AxisComparison, &[usize]),
    pair_settings: &PairSettings,
    width: u16,
) -> Vec<(usize, TableColumn)> {
    let simulated = pair_settings.provenance == Some(Provenance::Simulated);
    let says = |column: &usize| match *column {
        PROVENANCE => pair_settings.provenance.is_none(),
        CELL => !pair_settings.settings.is_empty(),
        // simulations are deterministic
        INTERVAL | ADJUSTED => !simulated,
        _ => true,
    };
    // a long name of the baseline is in the header
    let against = match compared.baseline_name().filter(|name| name.width() <= LONGEST_BASELINE) {
        Some(name) => format!("vs {name}"),
        None => "verdict".to_owned(),
    };
    let is_chance = |at: &usize| compared.report.pairs[*at].verdict == PairVerdict::Chance;
    let widest = |content: usize, share: u16| (content.max(6) as u16).min(share);
    // both columns, and the provenance, leave room for the ratio
    let [value_share, cell_share] = match pair_settings.provenance {
        None if width < 100 => [width / 4, width / 4],
        _ => [width / 3, width * 2 / 5],
    };
    let fixed = |column: usize| match column {
        VALUE => widest(pair_settings.widths.0.max(compared.report.by.len()), value_share),
        CELL => widest(pair_settings.widths.1, cell_share),
        // a share without an interval is short
        GAP if simulated => 13,
        VERDICT if kept.iter().any(is_chance) => 11,
        VERDICT if width >= 80 => COLUMNS[VERDICT].width.max(against.width() as u16),
        _ => COLUMNS[column].width,
    };
    let title = |at: usize| match (at, compared.report.latency()) {
        // `faster` than the baseline may tie for the fastest
        (VERDICT, _) if width >= 80 => against.clone().into(),
        (LATENCY, "TTFT") => "TTFT ms".into(),
        (RATIO, "TTFT") => "TTFT x".into(),
        _ => COLUMNS[at].title.clone(),
    };
    let column =
        |at: usize| (at, TableColumn { width: fixed(at), title: title(at), ..COLUMNS[at].clone() });
    // the ratio first, then the cell
    let order = [0, VALUE, RATIO, CELL].into_iter().chain(INTERVAL..COLUMNS.len());
    order.filter(says).map(column).collect()
}

/// Layout of the list of pairs, scrolled sideways.
pub fn layout(compare: &Compare, compared: &AxisComparison, width: u16) -> TableLayout {
    let columns: Vec<TableColumn> =
        columns((compared, compare.kept.as_slice()), compare.pair_settings(compared), width)
            .into_iter()
            .map(|(_, column)| column)
            .collect();
    table::lay_out(&columns, Rect::new(0, 0, width, 1), Some(compare.scrolled))
}

pub fn scroll(compare: &mut Compare, by: isize, width: u16) {
    let Some(compared) = compare.compared().cloned() else { return };
    compare.scrolled = layout(compare, &compared, width).left.saturating_add_signed(by);
    // clamp to the last column
    compare.scrolled = layout(compare, &compared, width).left;
}

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
    let has_runs = cx.stored.as_ref().is_some_and(|stored| !stored.records.is_empty());
    if compared.report.pairs.is_empty() && !has_runs {
        return empty(buf, body, &nothing(cx, compared), theme);
    }
    let places = compare.areas(body);
    header::draw(buf, places.title, compare, cx, (compared, body));
    let map_legend =
        compare.map.as_ref().map(|map| MapLegend::new(map, compare, places.table.width, cx));
    if compared.report.pairs.is_empty() {
        empty(buf, places.table, &nothing(cx, compared), theme);
    } else if compare.kept.is_empty() {
        none_left(buf, places.table, compare, theme);
    } else if let Some((map, legend)) = compare.map.as_ref().zip(map_legend.as_ref()) {
        heat::draw_map(buf, places.table, (map, compare, compared), legend, theme);
    } else if compare.shows_pivot() {
        pivot::draw(buf, places.table, compare, compared, theme);
        setting(buf, places.setting, compare, compared, theme);
    } else {
        pairs(buf, places.table, compare, cx, compared);
    }
    if let Some((area, rows)) = trust_below(compare, places.table) {
        for (row, text) in (0..).zip(&rows) {
            line(buf, cut_left(area, 1).1, row, &[(text, theme.style(Role::Dim))]);
        }
    }
    compare.filter.draw_offers(buf, header::status_row(places.title, compare, body), body, theme);
    if compare.flags {
        flags(buf, places.detail, theme, compare, compared);
    } else if let Some(selected) = compare.selected() {
        let details = PairDetails::new(&compared.axis, selected);
        let notes = notes_with(compare, body, cx, Some(&details));
        let marks = marks_in_frame(compare, body, map_legend.as_ref());
        let fold = fold_remark(compare, body, cx);
        details.draw(buf, places.detail, (notes.as_slice(), marks, &fold), cx);
    } else if let Some(why) = compare.why_no_pair() {
        let marks = marks_in_frame(compare, body, map_legend.as_ref()).unwrap_or_default();
        let (above, last) = cut_bottom(places.detail, u16::from(!marks.is_empty()));
        empty(buf, above, &format!("{why}\n{}", cx.keys.to_first_run()), theme);
        line(buf, cut_left(last, 2).1, 0, &[(&marks, theme.style(Role::Dim))]);
    }
}

/// Remark in the title of the details on the key that folds them, if the pivot hides rows, or opens them.
fn fold_remark(compare: &Compare, body: Rect, cx: &Context) -> String {
    if !compare.shows_pivot() || compare.pivot_width_beside_details(body).is_some() {
        return String::new();
    }
    let (places, key) = (compare.areas(body), cx.key::<Compare>(Act::Fold));
    // one row is the pivot's header
    let hides_rows = usize::from(places.table.height) <= compare.pivot.rows.len();
    match compare.is_folded {
        true => format!(" ({key} opens)"),
        false if hides_rows && places.detail.height > FOLDED => format!(" ({key} folds)"),
        false => String::new(),
    }
}

/// Meaning of the marks of the pivot or the map for the frame below it, if they have no room for it and it fits there.
fn marks_in_frame(compare: &Compare, body: Rect, map_legend: Option<&MapLegend>) -> Option<String> {
    let detail = compare.areas(body).detail;
    let room = detail.width.saturating_sub(5);
    let legend = match map_legend {
        _ if detail.height < 3 || compare.flags => return None,
        Some(legend) => legend.marks.clone(),
        None if compare.shows_pivot() && !compare.has_legend(body) => {
            compare.marks.legend(room).to_owned()
        }
        None => return None,
    };
    let legend = legend.trim();
    (!legend.is_empty() && legend.width() < room.into()).then(|| format!(" {legend} "))
}

/// Validation of the simulated cells, for the empty rows at the end of a table; `None` if it does not fit.
fn trust_below(compare: &Compare, table: Rect) -> Option<(Rect, Vec<String>)> {
    let count = match compare.shows_pivot() {
        _ if compare.map.is_some() => return None,
        true => compare.pivot.rows.len(),
        false => compare.shown.len(),
    };
    let rows = wrap(&trust_note(compare.trust()?), usize::from(table.width.saturating_sub(2)));
    // a header above the rows, and a gap below them
    let below = cut_top(table, u16::try_from(count + 2).unwrap_or(u16::MAX)).1;
    (count > 0 && rows.len() <= below.height.into()).then_some((below, rows))
}

fn trust_note(trust: &str) -> String {
    format!("simulated: {trust}")
}

/// Caveats of the comparison: the headline with its remark, the meaning of the marks, the settings that all cells share,
/// the validation of simulated cells, and the result of the selected pair.
pub fn notes(compare: &Compare, body: Rect, cx: &Context) -> Vec<ScreenNote> {
    let selected = compare.compared().zip(compare.selected());
    let details = selected.map(|(compared, pair)| PairDetails::new(&compared.axis, pair));
    notes_with(compare, body, cx, details.as_ref())
}

fn notes_with(
    compare: &Compare,
    body: Rect,
    cx: &Context,
    details: Option<&PairDetails<'_>>,
) -> Vec<ScreenNote> {
    let Some(compared) = compare.compared().filter(|compared| !compared.report.pairs.is_empty()) else {
        return Vec::new();
    };
    let (places, rows) = (compare.areas(body), compare.finding_rows(body));
    let width = usize::from(body.width);
    let has_legend = compare.has_legend(body);
    let mut notes = Vec::new();
    let answer = compare.whole_answer();
    if !is_whole(&rows, &answer.join(" ")) {
        notes.push(ScreenNote::new(answer.join(". "), true));
    }
    if compare.shows_pivot() {
        let is_folded = match has_legend {
            true => compare.marks.legend(body.width).width() > width,
            false => marks_in_frame(compare, body, None).is_none(),
        };
        let all = compare.marks.legend(u16::MAX).trim();
        notes.push(ScreenNote::new(format!("marks: {all}"), is_folded));
    } else {
        let shown = compared_counts(compare, compared, cx, body.width).concat();
        let all = compared_counts(compare, compared, cx, u16::MAX).concat();
        notes.push(ScreenNote::new(all.trim(), shown != all || shown.width() > width));
    }
    let common = common(compare, compared);
    if !common.is_empty() {
        let is_folded = match has_legend {
            true => !common_beside_legend(compare, compared, body.width).ends_with(&common),
            // the scope and the filter take room in the status row
            false => {
                let room = StatusTexts::new(compare, compared, cx, body.width).room(body.width);
                let needed = compare.filter.chip_width() + common.width() + 2;
                !compare.filter.value().is_empty() || needed > room
            }
        };
        notes.push(ScreenNote::new(common, is_folded));
    }
    let is_folded = trust_below(compare, places.table).is_none();
    notes.extend(compare.trust().into_iter().map(|trust| ScreenNote::new(trust_note(trust), is_folded)));
    notes.extend(details.into_iter().flat_map(|details| details.notes(inside(places.detail))));
    notes
}

fn nothing(cx: &Context, compared: &AxisComparison) -> String {
    if cx.stored.as_ref().is_none_or(|s| s.records.is_empty()) {
        return format!("no runs yet: {}", cx.keys.to_first_run());
    }
    let key = cx.key::<Compare>(Act::PickAxis);
    let with =
        compared.axes.iter().filter(|axis| !axis.pairs.is_empty()).map(|axis| axis.axis.to_string());
    let others: Vec<String> = with.collect();
    let by = &compared.report.by;
    match others.is_empty() {
        true => "no two runs differ in exactly one option".into(),
        false => {
            format!("no two runs differ only in {by}: {key} chooses another axis: {}", others.join(", "))
        }
    }
}

fn pairs(buf: &mut Buffer, area: Rect, compare: &Compare, cx: &Context, compared: &AxisComparison) {
    let theme = cx.theme;
    let way = if compare.descending { "▼" } else { "▲" };
    let (kept, mut columns): (Vec<usize>, Vec<TableColumn>) =
        columns((compared, compare.kept.as_slice()), compare.pair_settings(compared), area.width)
            .into_iter()
            .unzip();
    columns[VALUE].title = value_title(compared).into();
    if let Some(at) = compare.order.column().and_then(|at| kept.iter().position(|kept| *kept == at)) {
        columns[at] = columns[at].clone().marked(way);
    }
    let rows = TableRows {
        scrolled: Some(compare.scrolled),
        ..TableRows::new(&compare.list, compare.shown.len())
    };
    table::draw(buf, area, theme, &columns, rows, |row, column, _| {
        table::cell(content(compare, compared, &compare.shown[row], kept[column], theme))
    });
}

/// Reason that no pair is left, and the key that clears the filter.
fn none_left(buf: &mut Buffer, area: Rect, compare: &Compare, theme: Theme) {
    let text = match (compare.filter.value().trim(), compare.shows_pivot()) {
        ("", _) => compare.headline().to_owned(),
        // the header has the reason
        (_, true) => "no pair matches the filter\nEsc clears the filter".to_owned(),
        (_, false) => format!("{}\nEsc clears the filter", compare.headline()),
    };
    empty(buf, area, &text, theme);
}

fn value_title(compared: &AxisComparison) -> &'static str {
    match (&compared.baseline, &compared.axis) {
        (None, _) => "baseline → other",
        (_, Axis::Option(name)) => name,
        (_, Axis::Division) => "division",
        _ => "value",
    }
}

/// All values at the selected setting of the pivot, in the columns of the list of pairs.
fn setting(buf: &mut Buffer, area: Rect, compare: &Compare, compared: &AxisComparison, theme: Theme) {
    let Some(selected) = compare.selected_row().filter(|_| !area.is_empty()) else { return };
    let row = |pair| PairRow { pair, folded: Vec::new(), of: 1, first: true };
    let rows: Vec<PairRow> = selected.known().map(row).collect();
    let Some(first) = rows.first() else { return };
    let pair_settings = compare.pair_settings(compared);
    let title = match pair_settings.cell(compared, first) {
        cell if cell.is_empty() => "all values".to_owned(),
        cell => format!("all values at {cell}"),
    };
    let inner = frame(buf, area, &title, theme);
    let mut shown = columns((compared, compare.kept.as_slice()), pair_settings, inner.width);
    // the title has the setting, and the pivot the marks
    shown.retain(|(at, _)| ![0, CELL].contains(at));
    let (kept, mut columns): (Vec<usize>, Vec<TableColumn>) = shown.into_iter().unzip();
    columns[0].title = value_title(compared).into();
    let pair = selected.pairs[compare.column_of(selected)];
    let at = rows.iter().position(|row| Some(row.pair) == pair).unwrap_or(usize::MAX);
    let list = List { selected: at, offset: 0 };
    table::draw(buf, inner, theme, &columns, TableRows::new(&list, rows.len()), |row, column, _| {
        table::cell(content(compare, compared, &rows[row], kept[column], theme))
    });
}

fn content(
    compare: &Compare,
    compared: &AxisComparison,
    row: &PairRow,
    column: usize,
    theme: Theme,
) -> (String, Style) {
    let text = theme.style(Role::Text);
    // rows have the arrow at one place
    let both = |a: String, b: String| (format!("{a:>6} → {b:>6}"), text);
    let Some(pair) = compared.report.pairs.get(row.pair) else { return Default::default() };
    let sides = [&pair.baseline_side, &pair.side];
    match column {
        0 => {
            let mark = if compare.is_marked(pair) { "●" } else { " " };
            let fold = match (row.of > 1 && row.first, row.folded.is_empty()) {
                (false, _) => " ",
                (true, false) => "▸",
                (true, true) => "▾",
            };
            (format!("{mark}{fold}"), theme.style(Role::Active))
        }
        VALUE => (compared.values(pair), text),
        CELL => (compare.pair_settings(compared).cell(compared, row), text),
        RATIO => {
            // the verdict has the other marks
            let marks = compare.marks_of(row.pair);
            let marks = if marks.starts_with('★') { &*marks } else { "" };
            (format!("{marks}{:.3}x", pair.speedup), theme.style(Role::Title))
        }
        VERDICT => match pair.verdict {
            PairVerdict::Faster if pair.is_limit_ahead() => ("▲ limit".into(), text),
            PairVerdict::Faster => ("▲ faster".into(), theme.style(Role::Good)),
            PairVerdict::Slower => ("▼ slower".into(), theme.style(Role::Bad)),
            tied => {
                let word = match tied {
                    PairVerdict::Same => "same",
                    PairVerdict::Chance => "undecided",
                    PairVerdict::Unknown if pair.rounds_apart > 0 => "apart",
                    PairVerdict::Unknown => "few",
                    _ => "close",
                };
                (format!("{} {word}", tied.mark()), theme.style(Role::Dim))
            }
        },
        // standard closes no gap, so show its share only if it is not the baseline
        GAP if sides[0].hidden_share.is_none_or(|share| share == 0.0) => (sides[1].gap_closed(), text),
        GAP => {
            let share =
                |side: &Side| side.hidden_share.map_or("-".into(), |share| whole_percent(100.0 * share));
            (format!("{} → {}", share(sides[0]), share(sides[1])), text)
        }
        INTERVAL => {
            let interval = pair.speedup_ci95.map(|[a, b]| format!("[{a:.3}, {b:.3}]"));
            (interval.unwrap_or_else(|| "-".into()), text)
        }
        ADJUSTED => (p(pair.adjusted_p), text),
        LATENCY if pair.latency() != compared.report.latency() => (String::from("-"), text),
        LATENCY => {
            let decimals = compared.latency_decimals;
            let [baseline, own] = pair.latencies_ms().map(|ms| format!("{ms:.decimals$}"));
            both(baseline, own)
        }
        8 => both(percent(sides[0].exposed_pct), percent(sides[1].exposed_pct)),
        9 => both(percent(pair.baseline_overlap_pct), percent(pair.overlap_pct)),
        _ => (pair.provenance.to_string(), theme.provenance(pair.provenance)),
    }
}

/// Decimals that numbers of a column share, so that their points align.
pub fn shared_decimals(numbers: impl IntoIterator<Item = f64>) -> usize {
    let finite = numbers.into_iter().map(f64::abs).filter(|number| number.is_finite());
    let most = finite.fold(0.0, f64::max);
    decimals(most, if most < 1.0 { 3 } else { 2 })
}

/// Formats a p-value, limited to the resolution of the resampling.
pub fn p(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(p) if p < 0.001 => "<.001".into(),
        Some(p) => format!("{p:.3}"),
    }
}

fn flags(buf: &mut Buffer, area: Rect, theme: Theme, compare: &Compare, compared: &AxisComparison) {
    let inner = frame(buf, area, "suspicious results", theme);
    let flags = &compare.flagged;
    let rows = usize::from(inner.height);
    let (mut lines, mut whole) = (Vec::new(), 0);
    // there may be thousands: wrap only what fits
    let from = compare.first_flag.min(flags.len().saturating_sub(1));
    while let Some(flag) = flags.get(from + whole).and_then(|at| compared.report.flags.get(*at)) {
        lines.extend(wrap(&format!("⚑ {}", flag.text), usize::from(inner.width)));
        if lines.len() > rows {
            break;
        }
        whole += 1;
    }
    for (row, text) in lines.iter().take(rows).enumerate() {
        line(buf, inner, row as u16, &[(text, theme.style(Role::Warn))]);
    }
    if from > 0 || whole < flags.len() {
        let (first, all) = (from + 1, flags.len());
        let more = [
            format!(" {first} of {all}, j k scroll; `ladderscope compare --by {}` ", compared.axis),
            format!(" {first} of {all}, j k scroll "),
        ];
        let more = first_fitting(&more, area.width.saturating_sub(4));
        put(buf, area, area.x + 2, area.bottom().saturating_sub(1), more, theme.style(Role::Dim));
    }
    if flags.is_empty() {
        let text = match (compared.report.flags.len(), compare.filter.experiment()) {
            (0, _) => "nothing looks wrong".to_owned(),
            (_, Some(experiment)) if compare.filter.value().trim().is_empty() => {
                format!("no flags in {experiment}")
            }
            (all, _) => format!("the filter leaves none of {}", counted(all, "flag")),
        };
        empty(buf, inner, &text, theme);
    }
}

fn sides<'a>(pairs: &'a [&Comparison]) -> impl Iterator<Item = &'a Spec> + Clone {
    pairs.iter().flat_map(|pair| [&pair.baseline_side.spec, &pair.side.spec])
}

/// Settings in which pairs differ, and those that they share.
#[derive(Clone, Debug, Default)]
pub struct PairSettings {
    varied: Varied,
    /// Varying settings other than the axis.
    pub settings: Varied,
    pub common: String,
    /// Provenance, if all pairs share one; shown once above the table.
    pub provenance: Option<Provenance>,
    /// Widths of the longest value and the longest cell, in columns.
    pub widths: (usize, usize),
}

impl PairSettings {
    /// Settings of these pairs other than the axis; widths are not measured yet.
    pub fn new(pairs: &[&Comparison], axis: &Axis) -> Self {
        Self::with(Varied::from_specs(sides(pairs)), pairs, axis)
    }

    /// Settings of a subset of the pairs. Only checks settings that vary among all pairs, because it
    /// runs on every key press.
    pub fn narrowed(&self, pairs: &[&Comparison], axis: &Axis) -> Self {
        Self::with(self.varied.among(sides(pairs)), pairs, axis)
    }

    fn with(varied: Varied, pairs: &[&Comparison], axis: &Axis) -> Self {
        Self {
            common: pairs.first().map_or(String::new(), |pair| varied.common(&pair.side.spec)),
            settings: varied.without(axis).model_last(sides(pairs)),
            provenance: one_of(pairs.iter().map(|pair| pair.provenance)),
            widths: (0, 0),
            varied,
        }
    }

    pub fn measured(mut self, compared: &AxisComparison, rows: &[PairRow]) -> Self {
        let values = rows.iter().flat_map(PairRow::all).map(|at| &compared.report.pairs[at]);
        let values = values.map(|pair| compared.values(pair).width()).max();
        let cells = rows.iter().map(|row| self.cell(compared, row).width()).max();
        self.widths = (values.unwrap_or(0), cells.unwrap_or(0));
        self
    }

    /// Cell text of a row: the varying settings other than the compared one.
    pub fn cell(&self, compared: &AxisComparison, row: &PairRow) -> String {
        let specs = row.all().map(|at| &compared.report.pairs[at].side.spec);
        let words = self.settings.words_of(specs);
        match row.folded.len() {
            0 => words,
            more => format!("{} equal: {words}", more + 1),
        }
    }
}
