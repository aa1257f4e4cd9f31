//! Drawing of screen 4, the lanes and the overview above them. Areas are defined in [`super::layout::TimelineAreas`];
//! [`super::header`] is above, [`super::info`] describes the item under the cursor.

use std::ops::Range;

use super::header::{header, names, title};
use super::layout::{self, LANE_LABEL, PaneAreas};
use super::state::measure::{CriticalPath, Density};
use super::state::row::SpanClass;
use super::state::select::MARKS;
use super::state::window::TimeWindow;
use super::state::{Pane, TimelineView, TraceIndex, TraceLine};
use super::{Timeline, info, lists, stretch};
use crate::face::tui::keymap::Action;
use crate::face::tui::prelude::*;
use crate::face::tui::screens::runs;
use crate::face::tui::widgets::lanes::{self, Canvas};
use crate::face::tui::widgets::paint::glyph;
use crate::face::tui::widgets::shade::{self, Shares, StyledGlyph};
use crate::face::tui::widgets::ticks;
use base::text::rank_list;
use lab::store::Store;
use plan::Lane;
use table::Record;

pub fn draw(buf: &mut Buffer, body: Rect, timeline: &Timeline, cx: &Context) {
    let theme = cx.theme;
    let Some(view) = &timeline.view else {
        if let Some(what) = &timeline.loading {
            return empty(buf, body, &format!("opening {what}…"), theme);
        }
        let key = |action| cx.keys.label(action);
        let offer = offered(cx).map_or_else(
            || without_traces(cx),
            |record| {
                let experiment =
                    record.experiment.as_deref().map_or(String::new(), |of| format!(" of {of}"));
                let (model, label) = (&record.spec.model, record.spec.label());
                format!("Enter opens the last run: {model} {label}{experiment}\n")
            },
        );
        let text = format!(
            "no trace is open\n{offer}{} lists runs, {} there opens the timeline of one\n{} opens a trace file",
            key(Action::Show(Tab::Runs)),
            cx.key::<runs::Runs>(runs::Act::Open),
            key(Action::TypeOpen)
        );
        empty(buf, body, &text, theme);
        return;
    };
    let Some(areas) = layout::open(timeline, body) else { return };
    header(buf, areas.header, view, timeline.loading.as_deref(), cx);
    draw_overview(buf, areas.overview, view, theme);
    let (since, over) = cut_left(areas.ticks, LANE_LABEL);
    let origin = view.ruler_origin();
    let words = cut(&format!("since {}", origin.label), LANE_LABEL - 1);
    put(buf, since, since.x + 1, since.y, &words, theme.style(Role::Dim));
    axis(buf, over, view.window, origin.time, theme);
    marks(buf, areas.marks, view, theme);
    for (i, (pane, areas)) in view.panes.iter().zip(&areas.panes).enumerate() {
        if i > 0 {
            title(buf, areas.title, view, i, theme);
        }
        draw_pane(buf, areas, view, pane, i == view.focus, theme);
    }
    lists::draw_docked(buf, areas.docked, view, cx);
    info::draw(buf, areas.info, view, cx);
    stretch::draw(buf, areas.stretch, view, theme);
    lists::draw(buf, areas.panel, view, cx);
    info::draw_search(buf, areas.bottom(), view, theme);
}

/// Run that is offered while no trace is open: the last one that has a result, and a trace or a simulation that makes one.
pub fn offered(cx: &Context) -> Option<&Record> {
    let store = Store::open(&cx.dir);
    let has_trace = |record: &&Record| {
        let is_simulated = record.spec.backend.is_simulated();
        record.metrics.is_some() && (is_simulated || store.trace_path(record).is_some())
    };
    cx.stored.as_ref()?.records.iter().rev().find(has_trace)
}

/// Line on runs that were stored without their traces; empty if none is stored.
fn without_traces(cx: &Context) -> String {
    match cx.stored.as_ref().map_or(0, |stored| stored.records.len()) {
        0 => String::new(),
        runs => format!("no stored run has a trace ({})\n", counted(runs, "run")),
    }
}

/// Draws marks A and B above the lanes, and the distance between them.
fn marks(buf: &mut Buffer, area: Rect, view: &TimelineView, theme: Theme) {
    let (_, over) = cut_left(area, LANE_LABEL);
    let (key, dim) = (theme.style(Role::Key), theme.style(Role::Dim));
    let last = over.width.saturating_sub(1);
    if let Some(between) = view.marked().filter(|m| m.from < view.window.to && m.to > view.window.from) {
        let clamp = |time: i64| time.clamp(view.window.from, view.window.to);
        let first = column_of(clamp(between.from), view.window, over.width).unwrap_or(0);
        let end = column_of(clamp(between.to), view.window, over.width).unwrap_or(last);
        put(buf, over, over.x + first, over.y, &"─".repeat(usize::from(end - first) + 1), dim);
        let length = format!(" {} ", ns(between.width()));
        let room = usize::from(end - first);
        if length.width() + 4 <= room {
            let x = over.x + first + ((room - length.width()) / 2) as u16;
            put(buf, over, x, over.y, &length, key);
        }
    }
    for (mark, name) in view.marks.iter().zip(MARKS) {
        if let Some(column) = mark.and_then(|time| column_of(time, view.window, over.width)) {
            put(buf, over, over.x + column, over.y, name, key);
        }
    }
}

/// Column of a time; the end of the window maps to the last column.
fn column_of(time: i64, window: TimeWindow, columns: u16) -> Option<u16> {
    let last = time == window.to;
    let time = if last { time - 1 } else { time };
    window.column(time, usize::from(columns)).map(|column| column as u16)
}

/// Draws the time axis: ticks at round times since an origin (window time).
pub fn axis(buf: &mut Buffer, area: Rect, window: TimeWindow, origin: i64, theme: Theme) {
    for (column, label) in ticks::labelled(window, origin, usize::from(area.width)) {
        let label = format!("╷{}", label.unwrap_or_default());
        put(buf, area, area.x + column as u16, area.y, &label, theme.style(Role::Dim));
    }
}

/// Name of the cursor's step on the ruler, if the step is narrower than its name: its columns, with that of the cursor,
/// where it starts, and the name. Names of other steps would pass for it.
fn name_at_cursor(
    pane: &Pane,
    window: TimeWindow,
    columns: usize,
    (cursor, step): (usize, usize),
) -> Option<(Range<usize>, usize, String)> {
    let step = pane.index.steps.get(step)?;
    let label = pane.index.step_label(step.key);
    let column =
        |time: i64| window.column(time.clamp(window.from, window.to - 1), columns).unwrap_or(cursor);
    let width = label.width();
    if column(step.window.to - 1).saturating_sub(column(step.window.from)) > width {
        return None;
    }
    match cursor + 1 + width <= columns {
        true => Some((cursor..cursor + 1 + width, cursor + 1, label)),
        false => Some((cursor.checked_sub(width)?..cursor + 1, cursor - width, label)),
    }
}

/// Draws the steps of a trace. The step that a pair is aligned at is always named; names make way for the cursor's mark,
/// and for the name of its step. `cursor` is its column and its step.
fn ruler(
    buf: &mut Buffer,
    area: Rect,
    pane: &Pane,
    window: TimeWindow,
    (aligned, cursor): (Option<usize>, Option<(usize, Option<usize>)>),
    theme: Theme,
) {
    let columns = usize::from(area.width);
    let dim = theme.style(Role::Dim);
    put(buf, area, area.x, area.y, &"─".repeat(columns), dim);
    let steps = &pane.index.steps;
    let named = cursor.and_then(|(column, step)| name_at_cursor(pane, window, columns, (column, step?)));
    if let Some((_, at, label)) = &named {
        put(buf, area, area.x + *at as u16, area.y, label, theme.style(Role::Text));
    }
    let cursor = cursor.map(|(column, _)| column);
    let first = pane.index.step_at(window.from).unwrap_or(0);
    let mut free = 0;
    let mut at = first;
    while at < steps.len() && steps[at].window.from < window.to {
        let start = steps[at].window.from;
        let column = window.column(start.max(window.from), columns).unwrap_or(0);
        let label = pane.index.step_label(steps[at].key);
        let is_aligned = aligned == Some(at);
        // the label of a step that began earlier yields to the next one
        let gives_way = start < window.from
            && !is_aligned
            && steps
                .get(at + 1)
                .and_then(|s| window.column(s.window.from, columns))
                .is_some_and(|next| next < label.width() + 2);
        let crossed = named.as_ref().map(|(taken, ..)| taken);
        let crossed =
            crossed.filter(|taken| column < taken.end && taken.start <= column + 1 + label.width());
        if let Some(taken) = crossed {
            free = taken.end.max(free);
        } else if column >= free && !gives_way {
            let mark = if start >= window.from { "├" } else { "─" };
            put(buf, area, area.x + column as u16, area.y, mark, dim);
            let name = match cursor {
                Some(cursor) if (column + 1..=column + label.width()).contains(&cursor) => cursor + 1,
                _ => column + 1,
            };
            if label.width() <= columns - name {
                let style = if is_aligned { theme.style(Role::Title) } else { dim };
                put(buf, area, area.x + name as u16, area.y, &label, style);
            }
            free = name + label.width() + 1;
        }
        // jump to the next step with room for a label, rather than visit steps of one column each
        let next = window.time(free.min(columns), columns).max(start.saturating_add(1));
        at += steps[at..].partition_point(|s| s.window.from < next).max(1);
    }
}

fn draw_pane(
    buf: &mut Buffer,
    areas: &PaneAreas,
    view: &TimelineView,
    pane: &Pane,
    focus: bool,
    theme: Theme,
) {
    let window = pane.window(view.window);
    let (label_of_ruler, over) = cut_left(areas.ruler, LANE_LABEL);
    if pane.index.rank_count() > 1 {
        let (x, y) = (label_of_ruler.x, label_of_ruler.y);
        put(buf, label_of_ruler, x, y, " steps", theme.style(Role::Dim));
    }
    let columns = usize::from(over.width);
    let time = view.window.column(view.time, columns);
    let cursor = match focus {
        true => time.or_else(|| under_cursor(pane, window, columns).map(|(first, _)| first)),
        false => time,
    };
    let aligned = pane.aligned.filter(|_| view.panes.len() > 1);
    let at_cursor = cursor.map(|column| (column, pane.step(view.time, focus)));
    ruler(buf, over, pane, window, (aligned, at_cursor), theme);
    if let Some(selected) = view.stretch() {
        let span = [selected.from, selected.to - 1]
            .map(|time| time.clamp(view.window.from, view.window.to - 1));
        let seen = selected.from < view.window.to && selected.to > view.window.from;
        if let (true, [Some(first), Some(last)]) =
            (seen, span.map(|time| view.window.column(time, columns)))
        {
            for column in first..=last {
                put(buf, over, over.x + column as u16, over.y, "═", theme.style(Role::Key));
            }
        }
    }
    if let Some(column) = cursor {
        mark_ruler(buf, over, column, if focus { "▼" } else { "▽" }, theme);
    }
    hidden_lanes(buf, over, pane, areas, theme);
    let path = pane.path.as_ref().filter(|_| view.lit);
    if view.lit {
        draw_path(buf, areas.path, pane, path, window, theme);
    }
    if pane.lines.is_empty() {
        empty(buf, areas.lines, "the trace has no spans", theme);
        return;
    }
    let index = &pane.index;
    let last = (pane.first_line + usize::from(areas.lines.height)).min(pane.lines.len());
    let shown = pane.lines.get(pane.first_line..last).unwrap_or_default();
    let strips = lanes::strips(index, shown, |rank| pane.is_collapsed(rank), window, columns);
    let launch = launch_mark(pane, shown, window, columns).filter(|_| focus);
    let canvas = Canvas { index, window, theme, matches: pane.matches.as_ref(), launch };
    let mut below = areas.lines.y;
    for (i, (what, strip)) in shown.iter().zip(&strips).enumerate() {
        let row = Rect { y: below, height: areas.rows(*what), ..areas.lines };
        below = row.bottom();
        let (name, area) = cut_left(row, LANE_LABEL);
        let here = pane.first_line + i == pane.line;
        let style = match (here, focus) {
            (true, true) => theme.style(Role::Selected),
            (true, false) => theme.style(Role::Title),
            _ if matches!(what, TraceLine::Ranges(_)) => theme.style(Role::Dim),
            _ => theme.style(Role::Text),
        };
        put(buf, name, name.x, name.y, &cut(&label(pane, *what), LANE_LABEL - 1), style);
        bracket(buf, name, theme);
        canvas.draw(buf, area, *what, strip);
        for column in canvas.found(*what, strip) {
            mark_ruler(buf, over, column, "◆", theme);
        }
        if let Some(path) = path {
            area.rows().for_each(|row| light(buf, row, pane, *what, path, window));
        }
        if pane.ghost.is_some() {
            buf.set_style(area.intersection(buf.area), Style::new().add_modifier(Modifier::DIM));
        }
        for mark in view.marks.iter().flatten() {
            if let Some(column) = column_of(*mark, view.window, area.width) {
                over_blanks(buf, area, area.x + column, "│", theme.style(Role::Key));
            }
        }
        if let Some(column) = time {
            over_blanks(buf, area, area.x + column as u16, "┊", theme.style(Role::Dim));
        }
        if let Some((_, column)) = launch.filter(|(line, _)| line == what) {
            glyph(buf, area, area.x + column as u16, area.y, "↓", theme.style(Role::Key));
        }
        if here && let Some((first, last)) = under_cursor(pane, window, columns) {
            let mark = Rect { x: area.x + first as u16, width: (last - first + 1) as u16, ..area };
            let under = Style::new().add_modifier(Modifier::UNDERLINED | Modifier::BOLD);
            buf.set_style(mark.intersection(buf.area), under);
        }
    }
}

/// Line and column of the launch of the kernel under the cursor: the innermost shown row of its thread with a range around
/// the launch.
fn launch_mark(
    pane: &Pane,
    shown: &[TraceLine],
    window: TimeWindow,
    columns: usize,
) -> Option<(TraceLine, usize)> {
    let (index, (thread, at)) = (&pane.index, pane.launch()?);
    let (column, rank) = (window.column(at, columns)?, index.rank_of(pane.current()?));
    let is_around = |line: &&TraceLine| {
        let TraceLine::Ranges(row) = **line else { return false };
        let is_of_thread = index.range_rows[row].thread == thread && index.rank_of(**line) == rank;
        let nearest = index.interval(**line, index.nearest(**line, at));
        is_of_thread && nearest.is_some_and(|(from, to)| from <= at && at <= to)
    };
    shown.iter().rfind(is_around).map(|line| (*line, column))
}

/// Joins the rows of a tall lane behind its label, which only the first of them has.
fn bracket(buf: &mut Buffer, label: Rect, theme: Theme) {
    let last = label.bottom().saturating_sub(1);
    for y in (label.y..=last).filter(|_| label.height > 1) {
        let mark = match y {
            _ if y == label.y => "╭",
            _ if y == last => "╰",
            _ => "│",
        };
        glyph(buf, label, label.right() - 1, y, mark, theme.style(Role::Dim));
    }
}

/// Number of lanes above and below the shown ones with the ranks that they hide entirely, and of hidden empty rows, at the
/// right end of the ruler: ` ↓ 3 lanes (1 rank), 3 empty rows hidden`.
fn hidden_lanes(buf: &mut Buffer, ruler: Rect, pane: &Pane, areas: &PaneAreas, theme: Theme) {
    // lanes are taller than one row only if all fit
    let height = usize::from(areas.lines.height);
    let below = pane.lines.len().saturating_sub(pane.first_line + height);
    let lanes = match (pane.first_line, below) {
        (0, 0) => None,
        (above, 0) => Some(format!("↑ {}", counted(above, "lane"))),
        (0, below) => Some(format!("↓ {}", counted(below, "lane"))),
        (above, below) => Some(format!("↑ {above} ↓ {}", counted(below, "lane"))),
    };
    let ranks = Some(hidden_ranks(pane, height)).filter(|ranks| *ranks > 0);
    let ranks = ranks.map(|ranks| format!(" ({})", counted(ranks, "rank"))).unwrap_or_default();
    let lanes = lanes.map(|lanes| lanes + &ranks);
    let idle = Some(pane.idle_rows()).filter(|rows| *rows > 0);
    let idle = idle.map(|rows| format!("{} hidden", counted(rows, "empty row")));
    let parts: Vec<String> = lanes.into_iter().chain(idle).collect();
    if parts.is_empty() {
        return;
    }
    let text = format!(" {}", parts.join(", "));
    let x = ruler.right().saturating_sub(text.width() as u16);
    put(buf, ruler, x.max(ruler.x), ruler.y, &text, theme.style(Role::Key));
}

/// Number of ranks of which these rows show no line.
fn hidden_ranks(pane: &Pane, rows: usize) -> usize {
    let is_rank = |line: &TraceLine| matches!(line, TraceLine::Rank(_));
    let ranks = |lines: &[TraceLine]| lines.iter().filter(|line| is_rank(line)).count();
    let from = pane.first_line.min(pane.lines.len());
    let shown = &pane.lines[from..(from + rows).min(pane.lines.len())];
    // the rank of the first line, if its own line is above
    let is_begun = shown.first().is_some_and(|line| !is_rank(line));
    ranks(&pane.lines) - ranks(shown) - usize::from(is_begun)
}

/// Draws a glyph into the blank rows of a column.
fn over_blanks(buf: &mut Buffer, area: Rect, x: u16, symbol: &'static str, style: Style) {
    for y in area.y..area.bottom() {
        if buf.cell((x, y)).is_some_and(|cell| cell.symbol() == " ") {
            glyph(buf, area, x, y, symbol, style);
        }
    }
}

/// Draws the critical path of the step under the cursor, column by column.
fn draw_path(
    buf: &mut Buffer,
    area: Rect,
    pane: &Pane,
    path: Option<&CriticalPath>,
    window: TimeWindow,
    theme: Theme,
) {
    let (label, over) = cut_left(area, LANE_LABEL);
    put(buf, label, label.x, label.y, " critical path", theme.style(Role::Title));
    let Some(path) = path else {
        put(buf, over, over.x, over.y, "…", theme.style(Role::Dim));
        return;
    };
    let columns = usize::from(over.width);
    let column = |time: i64| window.column(time.clamp(window.from, window.to - 1), columns).unwrap_or(0);
    if let [first, .., last] = &path.steps[..]
        && first.from_ns < window.to
        && last.to_ns > window.from
    {
        let (first, last) = (column(first.from_ns), column(last.to_ns));
        let words = format!(" of {} alone", pane.index.step_label(path.key));
        // few columns do not say why the rest is empty
        if last.saturating_sub(first) < 4 && last + 1 + words.width() <= columns {
            put(buf, over, over.x + last as u16 + 1, over.y, &words, theme.style(Role::Dim));
        }
    }
    let mut rank = None;
    for column in 0..columns {
        let (from, to) = (window.time(column, columns), window.time(column + 1, columns));
        let steps = path.within(from, to);
        // item with the largest share of the column
        let share = |step: &&study::analysis::PathStep| step.to_ns.min(to) - step.from_ns.max(from);
        let Some(step) = steps.iter().max_by_key(share) else { continue };
        let Some(span) = pane.index.trace.spans.get(step.span) else { continue };
        let exposed = pane.index.ranks.iter().find(|rank| rank.rank == span.rank);
        let exposed = exposed.map_or(0, |rank| rank.exposed.within((from, to)));
        let waits = step.from_ns.saturating_add(step.peer_ns).min(to) - step.from_ns.max(from);
        let most = |ns: i64| ns > share(&step) / 2;
        let (symbol, role) = match span.lane {
            Lane::Compute => ("█", Role::Series(0)),
            Lane::Comm if most(waits) && most(exposed) => ("╲", Role::Exposed),
            Lane::Comm if most(waits) => ("░", Role::Waiting),
            Lane::Comm if most(exposed) => ("╱", Role::Exposed),
            Lane::Comm => ("▓", Role::Comm),
        };
        // show the rank number at the start and at each change of rank
        let number = (span.rank % 10).to_string();
        let new = rank.replace(span.rank) != Some(span.rank);
        let symbol = if new { number.as_str() } else { symbol };
        put(buf, over, over.x + column as u16, over.y, symbol, theme.style(role));
    }
}

/// Highlights the critical path on a line by dimming the rest.
fn light(
    buf: &mut Buffer,
    area: Rect,
    pane: &Pane,
    line: TraceLine,
    path: &CriticalPath,
    window: TimeWindow,
) {
    let TraceLine::Row(row) = line else { return };
    let Some((rank, lane)) = pane.index.lane_of(row) else { return };
    let columns = usize::from(area.width);
    let mut on = vec![false; columns];
    for step in path.within(window.from, window.to) {
        let span = pane.index.trace.spans.get(step.span);
        if span.is_some_and(|span| (span.rank, span.lane) == (rank, lane)) {
            let time = |time: i64| time.clamp(window.from, window.to - 1);
            let first = window.column(time(step.from_ns), columns).unwrap_or(0);
            let last = window.column(time(step.to_ns.saturating_sub(1)), columns).unwrap_or(first);
            on[first.min(last)..=last].fill(true);
        }
    }
    for (column, _) in on.iter().enumerate().filter(|(_, on)| !**on) {
        let cell = Rect { x: area.x + column as u16, width: 1, height: 1, ..area };
        buf.set_style(cell.intersection(buf.area), Style::new().add_modifier(Modifier::DIM));
    }
}

fn mark_ruler(buf: &mut Buffer, ruler: Rect, column: usize, symbol: &str, theme: Theme) {
    let x = ruler.x + column as u16;
    if buf.cell((x, ruler.y)).is_some_and(|cell| matches!(cell.symbol(), "─" | "├" | "═")) {
        put(buf, ruler, x, ruler.y, symbol, theme.style(Role::Key));
    }
}

/// First and last column of the item under the cursor, if visible.
fn under_cursor(pane: &Pane, window: TimeWindow, columns: usize) -> Option<(usize, usize)> {
    let (start, end) = pane.interval()?;
    if end < window.from || (end == window.from && start < end) {
        return None;
    }
    let first = window.column(start.max(window.from), columns)?;
    let last =
        window.column(end.saturating_sub(1).min(window.to - 1).max(start.max(window.from)), columns)?;
    Some((first, last.max(first)))
}

fn label(pane: &Pane, line: TraceLine) -> String {
    let index = &pane.index;
    match line {
        TraceLine::Rank(rank) if pane.folded && !index.alike(rank).is_empty() => {
            let (one, others) = (index.ranks[rank].rank, rank_list(&index.alike(rank)));
            match pane.is_collapsed(rank) {
                true => format!("▸ r{one} = {others}"),
                false => {
                    // the line's content, as far as there is room
                    let close = format!("▾ r{one}={}", others.replace("..r", ".."));
                    let labels = [
                        format!("{close} exposed"),
                        format!("{close} exp."),
                        format!("▾ r{one} = {others}"),
                    ];
                    first_fitting(&labels, LANE_LABEL - 1).to_owned()
                }
            }
        }
        TraceLine::Rank(rank) if pane.is_collapsed(rank) => format!("▸ {}", index.ranks[rank].label),
        TraceLine::Rank(rank) => match index.ranks[rank].label.as_str() {
            // short labels have room for the line's content
            short if short.len() <= 4 => format!("▾ {short:<4}exposed"),
            long => format!("▾ {long}"),
        },
        TraceLine::Ranges(row) => {
            let row = &index.range_rows[row];
            match (pane.nested_ranges(line), row.depth) {
                (Some((_, true)), _) => format!("  ▾ thread {}", row.thread),
                (Some((rows, false)), _) => format!("  ▸ thread {} +{rows}", row.thread),
                (None, 0) if row.is_host_work => format!("  thread {} ops", row.thread),
                (None, 0) => format!("  thread {}", row.thread),
                (None, depth) => {
                    let what = if row.is_host_work { "op" } else { "range" };
                    format!("  {:>d$}{what}", "", d = usize::from(depth.min(6)))
                }
            }
        }
        TraceLine::Row(row) => lane_label(index, row),
    }
}

/// Label of a lane. The label of a stream names the class of most of its work; `s567 compute` where the number is long.
fn lane_label(index: &TraceIndex, row: usize) -> String {
    let row = &index.rows[row];
    if index.trace.meta.streams.is_empty() {
        return format!("      {}", row.label);
    }
    let labels = [row.label.clone(), row.label.replacen("stream ", "s", 1)];
    let classes: Vec<&str> = row.main.into_iter().flat_map(SpanClass::names).collect();
    let mut texts = Vec::new();
    for label in &labels {
        texts.extend(classes.iter().map(|class| format!("{label} {class}")));
    }
    texts.extend(labels);
    let text = first_fitting(&texts, LANE_LABEL - 1);
    let indent = usize::from(text.width() + 1 < LANE_LABEL.into());
    format!("{:indent$}{text}", "")
}

/// Pane of an overview row: one trace takes all rows; two traces take one row each if there are two.
pub fn overview_pane(view: &TimelineView, rows: u16, row: u16) -> usize {
    match view.panes.len() {
        0 | 1 => 0,
        _ if rows < 2 => view.focus.min(1),
        _ => usize::from(row.min(1)),
    }
}

fn draw_overview(buf: &mut Buffer, area: Rect, view: &TimelineView, theme: Theme) {
    for row in 0..area.height {
        let at = overview_pane(view, area.height, row);
        let Some(pane) = view.panes.get(at) else { continue };
        let (line, _) = cut_top(Rect { y: area.y + row, ..area }, 1);
        // a single trace has a second row if there is room: communication, as on a comm lane
        let is_comm = view.panes.len() == 1 && row > 0;
        draw_overview_row(buf, line, view, pane, is_comm, theme);
        let (label, _) = cut_left(line, LANE_LABEL);
        let text = if is_comm {
            "  communication".to_owned()
        } else if view.panes.len() > 1 {
            let length = ns(pane.index.bounds.width());
            let room = LANE_LABEL.saturating_sub(length.width() as u16 + 2);
            format!("{} {length}", cut(&names(view)[at.min(1)], room))
        } else {
            // `overlap` covers the kernels only
            let (whole, kernels) = (pane.index.bounds, pane.index.extent());
            let of = if kernels == whole { " all" } else { "CPU+GPU" };
            format!("{of} {}", ns(whole.width()))
        };
        let text = cut(&text, LANE_LABEL - 1);
        put(buf, label, label.x, label.y, &text, theme.style(Role::Dim));
    }
}

fn draw_overview_row(
    buf: &mut Buffer,
    line: Rect,
    view: &TimelineView,
    pane: &Pane,
    is_comm: bool,
    theme: Theme,
) {
    let (_, over) = cut_left(line, LANE_LABEL);
    let columns = usize::from(over.width);
    let Some(overview) = pane.overview.as_ref().filter(|overview| overview.len() == columns) else {
        put(buf, over, over.x, over.y, "…", theme.style(Role::Dim));
        return;
    };
    // first and last column of the window
    let (bounds, window) = (pane.index.bounds, pane.window(view.window));
    let place = |time: i64| bounds.column(time.clamp(bounds.from, bounds.to - 1), columns).unwrap_or(0);
    let (first, last) = (place(window.from), place(window.to - 1));
    for (i, density) in overview.iter().enumerate() {
        let (symbol, role) = overview_glyph(density, is_comm);
        let mut style = theme.style(role);
        if !(first..=last).contains(&i) {
            style = style.add_modifier(Modifier::DIM);
        }
        glyph(buf, over, over.x + i as u16, over.y, symbol, style);
    }
    let key = theme.style(Role::Key);
    if first == last {
        put(buf, over, over.x + first as u16, over.y, "┃", key);
    } else {
        put(buf, over, over.x + first as u16, over.y, "[", key);
        put(buf, over, over.x + last as u16, over.y, "]", key);
    }
}

/// Mark of an overview column: all work, as on a collapsed rank, or communication alone.
fn overview_glyph(density: &Density, is_comm: bool) -> StyledGlyph {
    let shares = Shares {
        compute: density.compute.into(),
        comm: density.comm.into(),
        exposed: density.exposed.into(),
        ..Shares::default()
    };
    if is_comm {
        return shade::comm(shares).unwrap_or((" ", Role::Dim));
    }
    let compute = shade::BELOW[shade::eighths(shares.compute)];
    shade::several(shares).unwrap_or((compute, Role::Series(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_exposed_has_a_glyph_of_its_own() {
        let shown = |compute, comm, exposed, is_comm| {
            overview_glyph(&Density { compute, comm, exposed }, is_comm).0
        };
        assert_eq!(shown(0.5, 0.3, 0.0, false), "▄");
        assert_eq!(shown(0.001, 0.0, 0.0, false), "▁", "tiny, and yet there");
        assert_eq!(shown(0.0, 0.0, 0.0, false), " ");
        assert_eq!(shown(0.7, 0.3, 0.25, false), "▖");
        assert_eq!(shown(0.9, 0.3, 0.0, true), "▒");
        assert_eq!(shown(0.9, 0.6, 0.0, true), "▓");
        assert_eq!(shown(0.5, 0.5, 0.5, true), "▚");
        assert_eq!(shown(0.0, 0.0, 0.0, true), " ");
    }
}
