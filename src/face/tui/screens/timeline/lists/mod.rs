//! Lists below the lanes: dependencies, differences of two traces, operations, exposed stretches, the verdict, the legend.

mod dependencies;
mod differences;
mod legend;
mod operations;
mod stretches;
mod verdict;

pub use self::differences::{differences_csv, differences_note};
pub use self::legend::{LEGEND_MARKS, in_theme, short_legend};
pub use self::operations::{distinct_names, draw_docked};
pub use self::stretches::place_gone_to;
pub use self::verdict::verdict_lines;
use super::header::names;
use super::state::panel::{ResolvedScope, TimelinePanel};
use super::state::{TimelineView, TraceIndex};
use crate::face::tui::prelude::*;
use base::text::fitting_name;
use trace::NO_STEP;
use trace::overlap::StepKey;

/// Rows of the list, without frame, header, and whatever is below a table.
pub fn rows(area: Rect, view: &TimelineView) -> Rect {
    let rows = cut_top(inside(area), 1).1;
    match &view.panel {
        Some(TimelinePanel::Operations(table)) => cut_bottom(rows, operations::beneath(table, rows)).0,
        Some(TimelinePanel::Legend(..) | TimelinePanel::Verdict { .. }) => inside(area),
        _ => rows,
    }
}

pub fn draw(buf: &mut Buffer, area: Rect, view: &TimelineView, cx: &Context) {
    let (theme, rows) = (cx.theme, rows(area, view));
    match &view.panel {
        Some(TimelinePanel::Dependencies { span, dependencies, list }) => {
            let index = &view.pane().index;
            dependencies::draw_dependencies(buf, area, index, (*span, dependencies, list), theme);
        }
        Some(TimelinePanel::Differences { list, by_exposed, open }) => {
            differences::draw_differences(buf, area, view, (list, *by_exposed, open), theme);
        }
        Some(TimelinePanel::Operations(table)) => {
            operations::draw_operations(buf, (area, rows), view, table, cx)
        }
        Some(TimelinePanel::Stretches(shown)) => stretches::draw_stretches(buf, area, view, shown, cx),
        Some(TimelinePanel::Verdict { lines, list }) => {
            verdict::draw_verdict(buf, (area, rows), view, (lines, list), cx);
        }
        Some(TimelinePanel::Legend(list, _)) => legend::draw_legend(buf, (area, rows), list, theme),
        None => {}
    }
}

/// Most characters of a name in a list: those that it has in a verdict.
pub const SHORT_NAME: usize = 48;

/// Shortens a name for a narrow place: drops the phase and abbreviates kernel names, at most to [`SHORT_NAME`] characters as
/// in the table of operations.
pub fn brief(name: &str, room: usize) -> String {
    let name = name.strip_prefix("decode/").or(name.strip_prefix("prefill/")).unwrap_or(name);
    fitting_name(name, room.min(SHORT_NAME))
}

/// Label of the trace that a list belongs to; empty if only one is open.
fn which(view: &TimelineView) -> String {
    let provenance = view.pane().index.provenance();
    match names(view).get(view.focus) {
        _ if view.panes.len() < 2 => String::new(),
        Some(name) if *name != provenance.to_string() => format!("{name} [{provenance}], "),
        _ => format!("[{provenance}], "),
    }
}

/// Part of the trace that a table covers; a trace of prefills alone says so.
fn part_label(part: &ResolvedScope, view: &TimelineView) -> String {
    let verdict = view.pane().verdict.as_ref();
    match (part, verdict.and_then(|verdict| verdict.only_prefill())) {
        (ResolvedScope::All, Some(only)) => format!("{only}, no decode step"),
        (part, _) => part.label(&view.pane().index),
    }
}

/// Writes keys and remarks on the bottom border: the leading clauses that fit.
fn note(buf: &mut Buffer, area: Rect, words: &str, theme: Theme) {
    // the corners stay
    let room = area.width.saturating_sub(6);
    let fitting = leading_clauses(words, room.into(), &["; ", "  "]);
    let words = format!(" {} ", fitting.map_or_else(|| cut(words, room), str::to_owned));
    let x = area.right().saturating_sub(words.width() as u16 + 2);
    put(buf, area, x.max(area.x + 1), area.bottom().saturating_sub(1), &words, theme.style(Role::Dim));
}

pub fn time_of(us: f64) -> String {
    ns(nanoseconds(us))
}

fn nanoseconds(us: f64) -> i64 {
    (us * 1e3).round() as i64
}

/// Change with its sign.
pub fn plus(us: f64, written: fn(f64) -> String) -> String {
    format!("{}{}", if us > 0.0 { "+" } else { "" }, written(us))
}

/// Share of the time between first start and last end, in percent.
fn share_of(us: f64, time_us: f64) -> String {
    if time_us > 0.0 { format!("{:.1}", 100.0 * us / time_us) } else { String::new() }
}

/// Longest over mean time from which a row names the step of its longest execution, often the first call.
const OUTLIER: f64 = 4.0;

/// Label of the step of an outlier, a span (an index) that takes over [`OUTLIER`] times the mean of its row (both us):
/// `step 0`. `None` for other spans, and in a trace of one step.
fn outlier_step(index: &TraceIndex, span: usize, us: f64, mean_us: f64) -> Option<String> {
    let key = index.trace.spans.get(span).map(StepKey::from_span)?;
    let is_named = key.step != NO_STEP && index.steps.len() > 1;
    (is_named && mean_us > 0.0 && us > OUTLIER * mean_us).then(|| index.step_label(key))
}

/// Mean of a count; whole numbers without decimals.
fn count(mean: f64) -> String {
    if (mean - mean.round()).abs() < 1e-9 { format!("{mean:.0}") } else { format!("{mean:.1}") }
}
