//! The two rows above the list of runs: counts and filter; order, and what the shown runs differ in or share.

use super::Act;
use super::columns;
use super::draw::{NOISY, REPLACED, UNSTEADY};
use super::layout::RunsLayout;
use super::state::{Grouping, RunListLine, Runs};
use crate::face::tui::keymap::Action;
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::table;
use study::analysis::RunTable;

/// Example that an empty filter shows while it has the focus.
const EXAMPLE: &str = "ladder tp=8 tpot<20";

/// Rows after the counts and the filter are drawn.
pub struct HeaderRows {
    /// Row of the filter.
    pub filter: Rect,
    is_filter_below: bool,
    /// Rest of the second row for the order.
    order: Rect,
    /// End of the second row, where the table writes the number of rows out of view if its titles take the whole header.
    end: Rect,
}

/// Draws the counts, the scope and the filter, which has the second row if the first has no room.
pub fn draw_top(
    buf: &mut Buffer,
    runs: &Runs,
    cx: &Context,
    stored: &Snapshot,
    layout: &RunsLayout,
) -> HeaderRows {
    let (theme, top) = (cx.theme, layout.areas.top);
    let (order, end) = second_row(runs, layout);
    let states = states(runs, stored, cx, top.width);
    let badge = runs.provenance.map_or_else(String::new, |provenance| format!(" [{provenance}]"));
    // hidden columns are counted on the right
    let hidden = layout.shown.words_in(top.width);
    let count = format!(" {} of {}", runs.count, counted(stored.records.len(), "run"));
    let taken = states.width() + badge.width() + hidden.width() + 2;
    let filter = runs.filter.whole_width(top);
    let is_filter_below = count.width() + taken + filter > top.width.into();
    let is_empty = runs.filter.typing && runs.filter.value().is_empty();
    let example = if is_empty { EXAMPLE } else { "" };
    // the scope and the filter come before the model and the row
    let taken = taken + if is_filter_below { 0 } else { filter + example.width() };
    let room = usize::from(top.width).saturating_sub(taken);
    let count = with_details(count, room, runs, cx, layout) + &states;
    let (first, columns) = cut_left(top, top.width.saturating_sub(hidden.width() as u16));
    // the provenance is cut last
    let room = usize::from(first.width).saturating_sub(badge.width());
    let count = leading_clauses(&count, room, &[", ", " ("]).unwrap_or(&count);
    let mut x = put(buf, top, top.x, top.y, count, theme.style(Role::Title));
    if let Some(provenance) = runs.provenance {
        x = put(buf, top, x, top.y, &badge, theme.provenance(provenance));
    }
    put(buf, columns, columns.x, columns.y, &hidden, theme.style(Role::Dim));
    let row = match is_filter_below {
        true => cut_left(order, 1).1,
        false => cut_left(first, (x + 2).saturating_sub(first.x)).1,
    };
    let x = runs.filter.draw(buf, row, theme, example);
    if let (None, false, Some(first)) = (&runs.filter.wrong, runs.filter.typing, stored.damaged.first())
    {
        let note = format!("✘ {} unreadable: {first}", stored.damaged.len());
        put(buf, row, x, row.y, &note, theme.style(Role::Bad));
    }
    let (filter, order) = match is_filter_below {
        true => (order, cut_left(order, x.saturating_sub(order.x)).1),
        false => (top, order),
    };
    HeaderRows { filter, is_filter_below, order, end }
}

/// Second row, as wide as the table, without and with the end that the table may need.
fn second_row(runs: &Runs, layout: &RunsLayout) -> (Rect, Rect) {
    let (row, table) = (layout.areas.order, layout.areas.table);
    let more = match runs.lines.is_empty() {
        true => None,
        false => table::rows_out_of_view(&runs.list, runs.lines.len(), table),
    };
    let more = more.map_or(0, |more| more.width() as u16);
    cut_left(Rect { width: table.width, ..row }, table.width.saturating_sub(more))
}

/// Runs that are running, without a result or marked: `, 1 ▶ running, 2 marked (1 not shown: A unmarks all)`. A narrow
/// window names hidden marks alone: actions use them unseen.
fn states(runs: &Runs, stored: &Snapshot, cx: &Context, width: u16) -> String {
    let mut states = String::new();
    let is_wide = width >= 100;
    if stored.running > 0 {
        states += &format!(", {} ▶ running", stored.running);
    }
    for (status, runs) in runs.bad.iter().filter(|_| is_wide) {
        states += &format!(", {runs} {} {}", status.glyph(), status.as_str());
    }
    if !runs.marked.is_empty() {
        let (marked, key) = (runs.marked.len(), cx.key::<Runs>(Act::MarkNone));
        states += &match runs.hidden_marks(stored) {
            0 => format!(", {marked} marked"),
            hidden if is_wide => format!(", {marked} marked ({hidden} not shown: {key} unmarks all)"),
            hidden => format!(", {} ({key})", counted(hidden, "hidden mark")),
        };
    }
    if runs.only_marked {
        states += " (only these)";
    }
    states
}

/// Adds the number of cells, the model, the position in a list that is longer than the window, and the runs of other
/// experiments, each if there is room.
fn with_details(
    mut count: String,
    room: usize,
    runs: &Runs,
    cx: &Context,
    layout: &RunsLayout,
) -> String {
    let unfolded = runs.cells.iter().filter(|cell| cell.is_unfolded).map(|cell| cell.rows.len());
    let cells = runs.lines.len() - unfolded.sum::<usize>();
    let cells = runs.by_cell.then(|| format!(", {}", counted(cells, "cell")));
    let model = runs.model.as_ref().map(|model| format!(", {model}"));
    let is_long = runs.lines.len() > usize::from(layout.areas.table.height.saturating_sub(1));
    let runs_above = runs.lines.iter().take(runs.list.selected + 1);
    let runs_above = runs_above.filter(|line| !matches!(line, RunListLine::Group { .. }));
    let row = is_long.then(|| format!(", row {}", runs_above.count().max(1)));
    let is_filtered = runs.filter.typing || !runs.filter.value().is_empty();
    let out_of_scope = (runs.out_of_scope > 0 && !is_filtered).then(|| {
        let key = cx.keys.label(Action::Scope);
        format!(" ({} of other experiments: {key})", runs.out_of_scope)
    });
    for more in [cells, model, row, out_of_scope] {
        let more = more.filter(|more| count.width() + more.width() <= room);
        count.extend(more);
    }
    count
}

/// Draws the longest of [`order_texts`] that fits; next to the filter, only a text that fits whole. Returns the longest, and
/// true if there is no room for it.
pub fn draw_order(
    buf: &mut Buffer,
    runs: &Runs,
    cx: &Context,
    table: &RunTable,
    layout: &RunsLayout,
    rows: &HeaderRows,
) -> (String, bool) {
    let HeaderRows { order, end, .. } = *rows;
    let is_taken = end.intersection(buf.area).positions().any(|at| buf[at].symbol() != " ");
    let area = if is_taken { order } else { Rect { width: order.width + end.width, ..order } };
    let mut texts = order_texts(cx, runs, table, layout);
    // the words of a filter and those of the order look alike
    let has_text = runs.filter.typing || !runs.filter.value().is_empty();
    let bar = if rows.is_filter_below && has_text { "│" } else { "" };
    let before = bar.width() as u16 + 1;
    let room = area.width.saturating_sub(before + 1);
    let text = first_fitting(&texts, room);
    if !rows.is_filter_below || text.width() <= room.into() {
        let style = cx.theme.style(Role::Dim);
        put(buf, area, area.x, area.y, bar, style);
        put(buf, area, area.x + before, area.y, text, style);
    }
    let is_cut = area.is_empty() || texts[0].width() > room.into();
    (texts.swap_remove(0), is_cut)
}

/// The order, and the options in which the shown runs differ unseen or that they share; then shorter forms.
fn order_texts(cx: &Context, runs: &Runs, table: &RunTable, layout: &RunsLayout) -> Vec<String> {
    let (order, short) = (runs.order_words(table), runs.short_order_words(table));
    let first = runs.marked_order().into_iter().next().map(|(name, _)| name);
    let mut shown = layout.shown.places.iter().map(|place| &layout.columns[place.column].name);
    let is_marked = shown.any(|name| Some(name) == first.as_ref());
    // without a title that marks the order, its words are cut last
    let least = short.split(", ").next().unwrap_or_default().to_owned();
    let hidden = columns::hidden_differences(runs, table, layout);
    let key = cx.key::<Runs>(Act::Columns);
    // a title marks the rest of the order
    let bound = runs.bound_words().trim_start_matches(", ");
    let mut texts = match hidden.is_empty() {
        true => vec![order, short],
        false => {
            let all = hidden.join(", ");
            let options = counted(hidden.len(), "option");
            let count = format!("differ also in {options}: {key}");
            vec![
                format!("{order}; runs differ also in {all} ({key} adds columns)"),
                format!("{order}; {count}"),
                format!("{short}; {count}"),
                format!("{short}; {options} hidden: {key}"),
                match (is_marked, bound) {
                    (true, "") => count,
                    (true, bound) => format!("{bound}; {options} hidden: {key}"),
                    (false, _) => short,
                },
            ]
        }
    };
    match (is_marked, bound) {
        (true, "") => {}
        (true, bound) => texts.push(bound.to_owned()),
        (false, _) => texts.push(least),
    }
    if !runs.shared.is_empty() {
        texts.insert(0, format!("{}; all {}", texts[0], runs.shared.join(", ")));
    }
    // marks are explained before details of the order
    let legends = legends(runs);
    let explained =
        legends.iter().flat_map(|legend| texts.iter().map(move |t| format!("{t}; {legend}")));
    let explained: Vec<String> = explained.collect();
    let legend = Vec::from_iter(legends.last().cloned());
    let Some(rows) = rows_words(cx, runs) else { return [explained, legend, texts].concat() };
    let of = |texts: &[String]| -> Vec<String> {
        let with =
            |rows: &String| texts.iter().map(|text| format!("{rows}; {text}")).collect::<Vec<_>>();
        rows.iter().flat_map(with).collect()
    };
    // which runs the order leaves out has priority over the key of the rounds
    [of(&explained), explained, of(&legend), of(&texts), rows.to_vec()].concat()
}

/// Rows of a list with rounds, pooled or single, and the key for the other; then shorter. `None` without rounds.
fn rows_words(cx: &Context, runs: &Runs) -> Option<[String; 2]> {
    let key = cx.key::<Runs>(Act::Group);
    runs.has_rounds.then(|| match runs.grouping {
        Grouping::Runs => [format!("single rounds ({key} pools them)"), format!("single ({key}: pool)")],
        Grouping::Cells | Grouping::Column => {
            [format!("rounds pooled ({key}: single rounds)"), format!("pooled ({key}: single)")]
        }
    })
}

/// Meanings of the marks that the shown runs have; then shorter. Empty without marks.
fn legends(runs: &Runs) -> Vec<String> {
    let noisy = runs.noise.map(|ratio| {
        let short = format!("{NOISY} rounds differ up to {ratio:.1}x");
        [format!("{NOISY} noisy: rounds of one cell differ up to {ratio:.1}x"), short]
    });
    let unsteady = runs.has_unsteady.then(|| format!("{UNSTEADY} samples vary widely"));
    let unsteady = unsteady.map(|text| [text.clone(), text]);
    let replaced = (runs.shown_replaced > 0).then(|| {
        let short = format!("{REPLACED} {} repeated since", runs.shown_replaced);
        [format!("{short}, not pooled"), short]
    });
    let marks: Vec<[String; 2]> = [noisy, unsteady, replaced].into_iter().flatten().collect();
    let join = |at: usize| marks.iter().map(|texts| texts[at].as_str()).collect::<Vec<_>>().join("; ");
    let mut legends = vec![join(0), join(1)];
    legends.dedup();
    legends.retain(|legend| !legend.is_empty());
    legends
}
