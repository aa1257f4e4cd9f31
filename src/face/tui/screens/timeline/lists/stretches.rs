//! Table of exposed communication by collective, the largest total first unless sorted by another column.

use ratatui::text::Line;

use super::{
    SHORT_NAME, brief, count, nanoseconds, note, outlier_step, part_label, share_of, time_of, which,
};
use crate::face::tui::prelude::*;
use crate::face::tui::screens::timeline::state::align::two_times;
use crate::face::tui::screens::timeline::state::panel::{StretchColumn, Stretches, TimelinePanel};
use crate::face::tui::screens::timeline::state::{TimelineView, TraceIndex};
use crate::face::tui::screens::timeline::{Act, Timeline};
use crate::face::tui::widgets::table::{self, TableColumn, TableRows};
use base::text::fitting_name;
use study::analysis::{ExposedStretches, StretchFamily};
use trace::NO_STEP;
use trace::overlap::StepKey;

pub fn draw_stretches(
    buf: &mut Buffer,
    area: Rect,
    view: &TimelineView,
    shown: &Stretches,
    cx: &Context,
) {
    let theme = cx.theme;
    let counted = shown.counted.as_ref().filter(|counted| counted.is_of(shown.scope, view));
    let table = counted.map(|counted| &*counted.table);
    let index = &view.pane().index;
    let mut title = title(view, &part_label(&shown.scope.part(view), view), table);
    if let Some(phase) = shown.scope.other_phase_in_view(view) {
        title += &format!(", the window shows {}", phase.as_str());
    }
    let room = usize::from(area.width.saturating_sub(4));
    let fitting = |room: usize| leading_clauses(&title, room, &[", "]);
    // of the title, what the place leaves
    let title = match place_of_call(shown, index).filter(|_| is_gone(shown)) {
        Some(place) => match fitting(room.saturating_sub(place.width() + 3)) {
            Some(title) => format!("{title} · {place}"),
            None => place,
        },
        None => fitting(room).unwrap_or(&title).to_owned(),
    };
    let inner = frame(buf, area, &title, theme);
    let (picked, columns) = columns(shown, index, inner.width);
    let (total_us, ranks) =
        table.map_or((0.0, 1.0), |table| (table.total_us, table.ranks.max(1) as f64));
    let rows = TableRows::new(&shown.list, shown.order.len());
    let full = has_both_phases(shown);
    table::draw(buf, inner, theme, &columns, rows, |row, column, width| {
        let Some(family) = shown.family(row) else { return Line::default() };
        Line::from(match picked[column] {
            0 => count(family.calls as f64 / ranks),
            1 => time_of(family.total_us),
            2 if total_us > 0.0 => format!("{:.1} %", 100.0 * family.total_us / total_us),
            2 => String::new(),
            3 => time_of(per_call_us(shown, family)),
            4 => longest_over_mean(shown, family, index, inner.width),
            // a gap after the number before it
            5 => format!(" {}", full_or_brief(full, family, usize::from(width).saturating_sub(1))),
            6 => held_up(family, width),
            7 => family.peer_wait_us.map_or_else(|| UNKNOWN.to_owned(), time_of),
            _ => family.transfer_us.map_or_else(|| UNKNOWN.to_owned(), time_of),
        })
    });
    if shown.order.is_empty() && inner.height > 1 {
        let words = if table.is_none() { COMPUTING } else { "no communication is exposed" };
        put(buf, inner, inner.x + 1, inner.y + 1, words, theme.style(Role::Dim));
    }
    note(buf, area, &keys(shown, index, cx), theme);
}

/// Time that the trace does not separate.
const UNKNOWN: &str = "-";

const COMPUTING: &str = "computing…";

/// Title of the table, `None` while it is computed: the part of the trace, the share, then the times. A narrow window cuts
/// the end.
fn title(view: &TimelineView, part: &str, table: Option<&ExposedStretches>) -> String {
    let of = which(view);
    let table = match table {
        None => return format!("{of}{part}: exposed communication · {COMPUTING}"),
        Some(table) if table.count == 0 => return format!("{of}{part}: exposed communication"),
        Some(table) => table,
    };
    let share = match share_of(table.total_us, table.time_us) {
        share if share.is_empty() => share,
        share => format!("{share} %, "),
    };
    let times = two_times(nanoseconds(table.total_us), "of", nanoseconds(table.time_us));
    let per_rank = if view.pane().index.rank_count() > 1 { " per rank" } else { "" };
    format!("{of}{part}: exposed {share}{times}{per_rank}")
}

/// Call of the exposed communication that was last gone to, of the open list or of the one left.
pub fn place_gone_to(view: &TimelineView) -> Option<String> {
    let shown = match &view.panel {
        Some(TimelinePanel::Stretches(shown)) => Some(shown),
        _ => view.left.as_ref(),
    };
    place_of_call(shown?, &view.pane().index)
}

/// True if a call of the selected row was last gone to.
fn is_gone(shown: &Stretches) -> bool {
    shown.gone.is_some_and(|(row, _)| row == shown.list.selected)
}

/// Call that was last gone to: `1 of 100: 61.6 us, L79 step 0`.
fn place_of_call(shown: &Stretches, index: &TraceIndex) -> Option<String> {
    let (row, at) = shown.gone?;
    let family = shown.family(row)?;
    let stretch = family.longest.get(at)?;
    Some(format!("{} of {}: {}", at + 1, family.longest.len(), stretch_place(index, *stretch)))
}

/// Columns for this width, and their places in [`STRETCH_COLUMNS`]. The name of the collective keeps its room.
fn columns(shown: &Stretches, index: &TraceIndex, width: u16) -> (&'static [usize], Vec<TableColumn>) {
    // in traces of ladderscope's own runs, the columns stay even if the waits are unknown
    let shows_waits =
        index.trace.meta.spec.is_some() || shown.families().any(|family| family.peer_wait_us.is_some());
    let picked: &[usize] = match (width, shown.sorted.column) {
        (140.., _) if shows_waits => &[0, 1, 2, 3, 7, 8, 4, 5, 6],
        (100.., _) if shows_waits => &[0, 1, 3, 7, 8, 4, 5, 6],
        (100.., _) => &[0, 1, 2, 3, 4, 5, 6],
        (70.., _) => &[0, 1, 2, 3, 4, 5],
        (_, StretchColumn::PerCall) => &[0, 1, 3, 5],
        _ => &[0, 1, 4, 5],
    };
    let sorted = |at: &usize| {
        let (column, sort) = &STRETCH_COLUMNS[*at];
        column.clone().marked(sort.map_or("", |sort| shown.sorted.arrow(sort)))
    };
    let mut columns: Vec<TableColumn> = picked.iter().map(sorted).collect();
    // the names get what the number leaves
    for (column, _) in columns.iter_mut().zip(picked).filter(|(_, at)| **at == 4) {
        let needed = widest(shown, |family| longest_over_mean(shown, family, index, width));
        let needed = needed.max(column.title.width() as u16);
        column.width = column.width.min(needed);
    }
    if let [others @ .., collective, waits] = &mut columns[..]
        && width >= 100
    {
        let others: u16 = others.iter().map(|column| column.width + 1).sum();
        let free = width.saturating_sub(others + 1);
        let waiting = widest(shown, |family| match (family.is_host_late, LAUNCHED_LATER) {
            (true, [.., short]) => short.to_owned(),
            (false, _) => held_up(family, LONGEST_NAME as u16),
        });
        let waiting = waiting.max(waits.title.width() as u16).min(free / 2);
        let full = has_both_phases(shown);
        let name = widest(shown, |family| format!(" {}", full_or_brief(full, family, LONGEST_NAME)));
        collective.width = name.max(collective.title.width() as u16).min(free - waiting);
    }
    (picked, columns)
}

/// Keys of the table on its border.
fn keys(shown: &Stretches, index: &TraceIndex, cx: &Context) -> String {
    let selected = shown.list.selected;
    let acts = [Act::Stretches, Act::SortNext, Act::MatchNext, Act::ToggleRank];
    let [key, sort, next, go] = acts.map(|act| cx.key::<Timeline>(act));
    let part = format!("{key}: other phase or step");
    let Some(family) = shown.family(selected) else { return part };
    let overall =
        shown.longest_row().filter(|row| shown.order.len() > 1 && is_longer(shown, *row, selected));
    let of = match overall {
        None if shown.order.len() > 1 => "of all",
        _ => "of this row",
    };
    let enter = format!("{go}: go to the longest {of}, then {next}: next");
    let longest = overall.and_then(|row| shown.family(row)).map(|family| longest(family, Some(index)));
    let longest = longest.map(|longest| format!("; longest of all: {longest}")).unwrap_or_default();
    let is_of_layers = |family: &StretchFamily| family.collective.split('/').any(|part| part == "L*");
    let layers = if shown.families().any(is_of_layers) { "; L*: all layers" } else { "" };
    let (listed, count) = (family.longest.len(), family.count);
    let kept = if count > listed { format!("; {listed} of {count} listed") } else { String::new() };
    format!("{enter}; {sort}: sort; {part}{layers}{longest}{kept}")
}

/// True if the longest stretch of a row is longer than that of another row.
fn is_longer(shown: &Stretches, row: usize, than: usize) -> bool {
    let length = |row: usize| shown.family(row)?.longest.first().map(|(_, us)| *us);
    length(row) > length(than)
}

/// Most columns that a name asks for.
const LONGEST_NAME: usize = 200;

/// The index, for looking up the places of calls, if the table is wide enough to show them.
fn with_places(index: &TraceIndex, width: u16) -> Option<&TraceIndex> {
    (width >= 70).then_some(index)
}

/// Longest exposed time of a call of a row (the target of Enter), with its place if an index is given.
fn longest(family: &StretchFamily, place_of: Option<&TraceIndex>) -> String {
    let Some(stretch) = family.longest.first() else { return String::new() };
    place_of.map_or_else(|| time_of(stretch.1), |index| stretch_place(index, *stretch))
}

/// Longest exposed time of a call of a row. Wide tables add the place of the call, and its ratio to the mean if it is an
/// outlier.
fn longest_over_mean(
    shown: &Stretches,
    family: &StretchFamily,
    index: &TraceIndex,
    width: u16,
) -> String {
    let (text, mean_us) = (longest(family, with_places(index, width)), per_call_us(shown, family));
    let first = family.longest.first().filter(|_| width >= 110);
    match first.filter(|(span, us)| outlier_step(index, *span, *us, mean_us).is_some()) {
        Some((_, us)) => format!("{text}, {:.0}x mean", us / mean_us),
        None => text,
    }
}

/// Mean exposed time of a call of a row, hidden calls included (us).
fn per_call_us(shown: &Stretches, family: &StretchFamily) -> f64 {
    let ranks = shown.counted.as_ref().map_or(1, |counted| counted.table.ranks.max(1));
    family.total_us * ranks as f64 / family.calls.max(1) as f64
}

/// Exposed time of a call (us) with its layer and step: `61.6 us, L79 step 0`.
fn stretch_place(index: &TraceIndex, (at, us): (usize, f64)) -> String {
    let span = index.trace.spans.get(at);
    let operation = span.and_then(|span| index.trace.operations.get(span.operation as usize));
    let layer = operation.and_then(|operation| operation.layer).map(|layer| format!("L{layer}"));
    let step = span.map(StepKey::from_span).filter(|key| key.step != NO_STEP && index.steps.len() > 1);
    let place: Vec<String> = layer.into_iter().chain(step.map(|key| index.step_label(key))).collect();
    match place.is_empty() {
        true => time_of(us),
        false => format!("{}, {}", time_of(us), place.join(" ")),
    }
}

/// Columns with their sort order; the share is that of the exposed time.
const STRETCH_COLUMNS: [(TableColumn, Option<StretchColumn>); 9] = [
    (TableColumn::number("calls", 6, 0), Some(StretchColumn::Calls)),
    (TableColumn::number("exposed", 9, 0), Some(StretchColumn::Exposed)),
    (TableColumn::number("share", 7, 0), None),
    (TableColumn::number("per call", 9, 0), Some(StretchColumn::PerCall)),
    (TableColumn::number("max exp.", 30, 0), Some(StretchColumn::Longest)),
    (TableColumn::text(" collective", 9, 0), Some(StretchColumn::Collective)),
    // of several, the most frequent one
    (TableColumn::text("mostly holds up", 15, 0), None),
    (TableColumn::number("wait/call", 9, 0), None),
    (TableColumn::number("transfer/call", 13, 0), None),
];

/// Columns that the widest text of the rows needs.
fn widest(shown: &Stretches, text: impl Fn(&StretchFamily) -> String) -> u16 {
    let widths = shown.families().map(|family| text(family).width());
    widths.max().unwrap_or(0).min(LONGEST_NAME) as u16
}

/// True if the rows are of both phases.
fn has_both_phases(shown: &Stretches) -> bool {
    let is_of = |phase: &str| shown.families().any(|family| family.collective.starts_with(phase));
    is_of("prefill/") && is_of("decode/")
}

/// Shortened name of a row's collective, with its phase or without.
fn full_or_brief(full: bool, family: &StretchFamily, room: usize) -> String {
    match full {
        true => fitting_name(&family.collective, room.min(SHORT_NAME)),
        false => brief(&family.collective, room),
    }
}

/// Remark on calls whose next kernel was launched after their end, and its short form.
const LAUNCHED_LATER: [&str; 2] =
    ["nothing: the next kernel is launched later", "nothing: launched later"];

/// Operation that calls of a row held up most often, for this many columns.
fn held_up(family: &StretchFamily, room: u16) -> String {
    match &family.held_up {
        _ if family.is_host_late => first_fitting(&LAUNCHED_LATER.map(str::to_owned), room).to_owned(),
        Some(name) => brief(name, room.into()),
        None => "nothing".to_owned(),
    }
}
