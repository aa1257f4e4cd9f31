//! Header of screen 6: the headline, the comparison, the status row, and the legend of the pivot.

use super::compared::AxisComparison;
use super::state::{Counts, Order};
use super::{Act, Compare, draw, pivot};
use crate::face::tui::keymap::Action;
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::wrap::elided_clauses;
use study::analysis::{Axis, Comparison, ComparisonReport};
use table::Provenance;

/// Beginning of the row on noisy data.
pub const NOISY: &str = "Noisy: ";

/// First clauses of a headline that fit into a row; if none fits, its first words and an ellipsis outside brackets.
pub fn leading_row(headline: &str, width: u16) -> String {
    let room = usize::from(width.saturating_sub(2));
    let clauses = leading_clauses(headline, room, &["; "]).map(str::to_owned);
    let clauses = clauses.or_else(|| elided_clauses(headline, room, &[" "]));
    clauses.unwrap_or_else(|| whole_words(headline, room))
}

/// Row below the headline: provenance, filter, settings, flags.
pub fn status_row(title: Rect, compare: &Compare, body: Rect) -> Rect {
    let y = title.y + compare.answer_rows(body).len() as u16 + u16::from(compare.has_counts());
    Rect { y, height: 1, ..title }.intersection(title)
}

pub fn draw(
    buf: &mut Buffer,
    area: Rect,
    compare: &Compare,
    cx: &Context,
    (compared, body): (&AxisComparison, Rect),
) {
    let theme = cx.theme;
    let (text, title, dim) = (theme.style(Role::Text), theme.style(Role::Title), theme.style(Role::Dim));
    let answer = compare.answer_rows(body);
    let findings = compare.finding_rows(body).len();
    for (row, text) in answer.iter().enumerate() {
        let style = match text.starts_with(NOISY) || row >= findings {
            true => theme.style(Role::Warn),
            false => title,
        };
        line(buf, area, row as u16, &[(" ", title), (text, style)]);
    }
    if compare.has_counts() {
        let counts = compared_counts(compare, compared, cx, area.width);
        let styles = [text, title, text, title, text, dim];
        let counts: Vec<(&str, Style)> = counts.iter().map(String::as_str).zip(styles).collect();
        line(buf, area, answer.len() as u16, &counts);
    }
    let status = status_row(area, compare, body);
    let rest = draw_status(buf, status, compare, cx, compared);
    if area.bottom() > status.bottom() {
        let below = Rect { y: status.bottom(), ..status };
        let common = common_beside_legend(compare, compared, below.width);
        line(buf, below, 0, &[(compare.marks.legend(below.width), dim), (&common, dim)]);
    } else if !compare.filter.typing {
        let common = common(compare, compared);
        let common = if common.is_empty() { common } else { format!("; {common}") };
        put(buf, rest, rest.x, rest.y, &whole_words(&common, rest.width.into()), dim);
    }
}

/// Settings that all cells of the filtered pairs share: `all tiny f32 tp2`; empty if none.
pub fn common(compare: &Compare, compared: &AxisComparison) -> String {
    match &*compare.pair_settings(compared).common {
        "" => String::new(),
        common => format!("all {common}"),
    }
}

/// [`common`], cut to the width left by the pivot's legend.
pub fn common_beside_legend(compare: &Compare, compared: &AxisComparison, width: u16) -> String {
    let legend = compare.marks.legend(width).width();
    let common = common(compare, compared);
    let common = if common.is_empty() { common } else { format!(" · {common}") };
    whole_words(&common, usize::from(width).saturating_sub(legend))
}

/// Texts of the status row.
pub struct StatusTexts {
    /// Provenance, if all pairs share one.
    label: String,
    /// Settings or pairs, their order, and marks.
    counts: String,
    /// Suspicious results, at the right end before `hidden`.
    flags: String,
    /// Columns that are scrolled off.
    hidden: String,
}

impl StatusTexts {
    pub fn new(compare: &Compare, compared: &AxisComparison, cx: &Context, width: u16) -> Self {
        let mut whole = Self::with(compare, compared, cx, width, true);
        let needed = compare.filter.whole_width(Rect::new(0, 0, width, 1)) + 1;
        // the filter is shown whole while it is typed
        if compare.filter.typing && whole.room(width) < needed {
            (whole.counts, whole.flags, whole.hidden) = Default::default();
            return whole;
        }
        // the scope's name has priority over the number of settings it hides
        match whole.room(width) > compare.filter.chip_width() {
            true => whole,
            false => Self::with(compare, compared, cx, width, false),
        }
    }

    /// `counts_hidden`: count the settings that the scope hides.
    fn with(
        compare: &Compare,
        compared: &AxisComparison,
        cx: &Context,
        width: u16,
        counts_hidden: bool,
    ) -> Self {
        let provenance = compare.pair_settings(compared).provenance;
        let area = Rect::new(0, 0, width, 1);
        let hidden = match &compare.map {
            None if compare.shows_pivot() => pivot::layout(compare, compared, area).words_in(width),
            None => draw::layout(compare, compared, width).words_in(width),
            Some(_) => String::new(),
        };
        let label = provenance.map_or_else(String::new, |provenance| format!(" [{provenance}]"));
        let counts = status_counts(compare, compared, cx, width, counts_hidden);
        // the scope's name and the number it hides have priority over the flags
        let used = label.width() + counts.width() + hidden.width() + compare.filter.chip_width() + 1;
        let flags = match compare.flagged.len() {
            0 => String::new(),
            count => {
                let key = cx.key::<Compare>(Act::Flags);
                let texts = [format!(" ⚑ {count} suspicious: {key} "), format!(" ⚑ {count}: {key} ")];
                first_fitting(&texts, width.saturating_sub(used as u16)).to_owned()
            }
        };
        Self { label, counts, flags, hidden }
    }

    /// Columns between the texts at the two ends.
    pub fn room(&self, width: u16) -> usize {
        let texts = [&self.label, &self.counts, &self.flags, &self.hidden];
        usize::from(width).saturating_sub(texts.map(|text| text.width()).iter().sum())
    }
}

/// Number of settings or folded rows, their order, and marks: ` architecture: 4 of 24 settings, by TPOT of ladder ▼`.
fn status_counts(
    compare: &Compare,
    compared: &AxisComparison,
    cx: &Context,
    width: u16,
    counts_hidden: bool,
) -> String {
    let mut words: Vec<String> = Vec::new();
    if compare.shows_pivot() {
        let all = compare.scope_counts.settings;
        let settings = match compare.pivot.rows.len() {
            shown if shown < all => format!("{shown} of {}", counted(all, "setting")),
            _ => counted(all, "setting"),
        };
        // a filter needs the room
        let has_filter = compare.filter.typing || !compare.filter.value().is_empty();
        let hidden = match has_filter || !counts_hidden {
            true => String::new(),
            false => hidden_by_scope(compared.settings.saturating_sub(all), cx),
        };
        let is_usual = compared.axis == Axis::ARCHITECTURE;
        let by =
            if width < 80 && is_usual { String::new() } else { format!("{}: ", compared.report.by) };
        words.push(format!("{by}{settings}{hidden}"));
    }
    // a filter being typed needs the room
    if compare.map.is_none() && !compare.filter.typing {
        if !compare.shows_pivot() && compare.shown.len() < compare.counts.pairs {
            let key = cx.key::<Compare>(Act::Fold);
            words.push(format!("{}: {key} opens ▸", counted(compare.shown.len(), "row")));
        }
        let way = if compare.descending { "▼" } else { "▲" };
        let (order, is_of_setting) = (compare.order.name(), compare.order == Order::Setting);
        let of = match compare.shows_pivot() && !is_of_setting {
            true => format!(" of {}", compare.column.as_deref().unwrap_or("the fastest")),
            false => String::new(),
        };
        if !is_of_setting || compare.descending {
            words.push(format!("by {order}{of} {way}"));
        }
    }
    if !compare.marked.is_empty() {
        words.push(format!("{} marked ●", compare.marked.len()));
    }
    if words.is_empty() { String::new() } else { format!(" {}", words.join(", ")) }
}

/// Remark on settings or comparisons that the scope hides, with the key that shows them.
fn hidden_by_scope(hidden: usize, cx: &Context) -> String {
    let key = cx.keys.label(Action::Scope);
    match hidden {
        0 => String::new(),
        _ => format!(" ({hidden} more in other experiments: {key} shows all)"),
    }
}

/// Draws the status row; returns what is free of it.
fn draw_status(
    buf: &mut Buffer,
    area: Rect,
    compare: &Compare,
    cx: &Context,
    compared: &AxisComparison,
) -> Rect {
    let (theme, texts) = (cx.theme, StatusTexts::new(compare, compared, cx, area.width));
    let dim = theme.style(Role::Dim);
    let label = compare.pair_settings(compared).provenance.map_or(dim, |known| theme.provenance(known));
    let x = put(buf, area, area.x, area.y, &texts.label, label);
    // important text goes to the right end, and long text is cut before it
    let mut right = area.right();
    for (text, role) in [(&texts.hidden, Role::Dim), (&texts.flags, Role::Warn)] {
        right = right.saturating_sub(text.width() as u16);
        put(buf, area, right, area.y, text, theme.style(role));
    }
    let before = Rect { width: right.saturating_sub(area.x), ..area };
    let x = put(buf, before, x, area.y, &texts.counts, dim);
    let mut free = Rect { x, width: right.saturating_sub(x), ..area };
    let filter = &compare.filter;
    if filter.is_shown() {
        let mut end = filter.draw(buf, cut_left(free, 1).1, theme, "").saturating_sub(1);
        if !filter.typing && !filter.value().is_empty() {
            end = put(buf, free, end, area.y, " (Esc clears)", theme.style(Role::Key));
        }
        free = Rect { x: end, width: right.saturating_sub(end), ..area };
    }
    free
}

/// Axis, baseline, and numbers of comparisons: hidden by the scope (if there is room), significant, and significant after
/// the correction; then the meanings of the marks in the list.
pub fn compared_counts(
    compare: &Compare,
    compared: &AxisComparison,
    cx: &Context,
    width: u16,
) -> [String; 6] {
    let report = &compared.report;
    let baseline = match &compare.asked.baseline {
        Some(baseline) => baseline.clone(),
        None => report.pairs.first().map_or_else(|| "-".into(), |pair| pair.baseline.clone()),
    };
    let adjusted = match compare.pair_settings(compared).provenance {
        // simulations are deterministic
        Some(Provenance::Simulated) if compare.counts.pairs > 0 => String::new(),
        _ => format!("; {}", adjusted(compare, report)),
    };
    let of = [" by ".to_owned(), report.by.clone(), " against ".to_owned(), baseline];
    let room = usize::from(width).saturating_sub(of.iter().map(|text| text.width()).sum());
    let hidden = hidden_by_scope(compare.pairs().len().saturating_sub(compare.scope_counts.pairs), cx);
    let all = made(compare, &hidden);
    let made = if all.width() <= room { all } else { made(compare, "") };
    let room = room.saturating_sub(made.width() + adjusted.width());
    let marks = if compare.map.is_none() { compare.marks.of_ratios(room) } else { String::new() };
    let adjusted = adjusted + &marks;
    let [by, axis, against, baseline] = of;
    [by, axis, against, baseline, made, adjusted]
}

/// Number of comparisons and of those that differ, among the filtered pairs; `hidden` remarks on others.
fn made(compare: &Compare, hidden: &str) -> String {
    let (Counts { pairs: shown, differ, simulated, simulated_differ, .. }, all) =
        (compare.counts, compare.scope_counts.pairs);
    // simulated pairs differ by more than the simulator's error; no test applies to them
    let differ = match (shown - simulated, simulated) {
        (0, _) | (_, 0) => format!("{differ} differ"),
        (measured, simulated) => format!(
            "{} of {measured} measured and {simulated_differ} of {simulated} simulated differ",
            differ - simulated_differ
        ),
    };
    let all = counted(all, "comparison");
    match shown < compare.scope_counts.pairs {
        true => format!(": {shown} of {all}{hidden}, {differ}"),
        false => format!(": {all}{hidden}, {differ}"),
    }
}

/// Number of pairs that differ after correction for multiple comparisons.
fn adjusted(compare: &Compare, report: &ComparisonReport) -> String {
    let counts = compare.counts;
    match counts.tested {
        _ if counts.pairs == 0 && !report.pairs.is_empty() => "the filter leaves none".to_owned(),
        0 if report.pairs.iter().all(Comparison::is_simulated) => "simulated: no p-values".to_owned(),
        0 => "no p-values: too few samples".to_owned(),
        tested => format!(
            "{} after correction ({} at {} %, {tested} tested)",
            counts.adjusted,
            report.adjusted.method,
            100.0 * report.adjusted.false_discovery_rate
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_headline_ends_with_a_clause_or_an_ellipsis() {
        let headline = "Ladder is 1.21x [1.02, 1.40] (P2P off) and 1.43x [1.05, 1.97] (P2P on) faster than standard; \
                        hides 28 % of it";
        assert_eq!(leading_row(headline, 100), headline.split_once(';').unwrap().0);
        let cut = "Ladder is 1.21x [1.02, 1.40] (P2P off) and 1.43x [1.05, 1.97] (P2P on) …";
        assert_eq!(leading_row(headline, 80), cut);
        assert_eq!(leading_row(headline, 60), cut.replace(" [1.05, 1.97] (P2P on)", ""));
    }
}
