//! Drawing of screen 4, the lanes and the overview above them. Areas are defined in [`super::layout::TimelineAreas`];
//! [`super::info`] describes the item under the cursor.

use super::layout::{self, LANE_LABEL, PaneAreas};
use super::state::measure::{CriticalPath, Density};
use super::state::select::MARKS;
use super::state::window::Window;
use super::state::{Line, Pane, View};
use super::{Timeline, ask, info, lists};
use crate::face::tui::keymap::Action;
use crate::face::tui::prelude::*;
use crate::face::tui::screens::runs;
use crate::face::tui::widgets::lanes::{self, Canvas, tick_labels, ticks};
use crate::face::tui::widgets::paint::glyph;
use crate::face::tui::widgets::shade::{self, Mark, Shares};
use base::text::{rank_list, without_middle};
use plan::Lane;
use study::analysis::Varied;
use table::Record;

pub fn draw(buf: &mut Buffer, body: Rect, timeline: &Timeline, cx: &Context) {
    let theme = cx.theme;
    let Some(view) = &timeline.view else {
        if let Some(what) = &timeline.loading {
            return empty(buf, body, &format!("opening {what}…"), theme);
        }
        let key = |action| cx.keys.label(action);
        let offer = offered(cx).map_or(String::new(), |record| {
            let experiment =
                record.experiment.as_deref().map_or(String::new(), |of| format!(" of {of}"));
            let (model, label) = (&record.spec.model, record.spec.label());
            format!("Enter opens the last run: {model} {label}{experiment}\n")
        });
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
    info::draw(buf, areas.info, view, theme);
    info::draw_stretch(buf, areas.stretch, view, theme);
    lists::draw(buf, areas.panel, view, cx);
    info::draw_search(buf, areas.bottom(), view, theme);
}

/// Run that is offered while no trace is open: the last one that has a result.
pub fn offered(cx: &Context) -> Option<&Record> {
    let has_trace = |record: &&Record| record.metrics.is_some();
    cx.stored.as_ref()?.records.iter().rev().find(has_trace)
}

/// Draws marks A and B above the lanes, and the distance between them.
fn marks(buf: &mut Buffer, area: Rect, view: &View, theme: Theme) {
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
fn column_of(time: i64, window: Window, columns: u16) -> Option<u16> {
    let last = time == window.to;
    let time = if last { time - 1 } else { time };
    window.column(time, usize::from(columns)).map(|column| column as u16)
}

fn header(buf: &mut Buffer, area: Rect, view: &View, loading: Option<&str>, cx: &Context) {
    let theme = cx.theme;
    let (shown, whole) = (ns(view.window.width()), ns(view.bounds().width()));
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let pane = view.pane();
    let busy = match loading {
        Some(what) => format!("opening {}…  ", cut(what, area.width / 2)),
        None if cx.is_under_way::<Timeline>(ask::PREDICTION) => "simulating the run…  ".to_owned(),
        None => String::new(),
    };
    let position = |whole: &str| format!("window {shown} of {whole}");
    // at the right end of the title's row, if the title keeps most of it
    let fits = |window: &str| view.panes.len() == 1 && usize::from(area.width) > 2 * window.width() + 20;
    let kernels = ns(pane.index.extent().width());
    let detailed = position(&format!("{whole} (kernels {kernels})"));
    let window = if kernels != whole && fits(&detailed) { detailed } else { position(&whole) };
    let is_above = fits(&window);
    let (mut above, mut beside) = (Rect::ZERO, window.as_str());
    if is_above {
        (above, beside) = (Rect { width: window.width() as u16 + 1, height: 1, ..area }, "");
        above.x = area.right() - above.width;
    }
    let gap = above.width + u16::from(above.width > 0);
    title(buf, Rect { width: area.width.saturating_sub(gap), ..area }, view, 0, theme);
    put(buf, above, above.x, above.y, &window, dim);
    let below = Rect { x: area.x + 1, width: area.width.saturating_sub(1), ..area };
    if view.search.line.typing {
        let row = cut_bottom(below, 1).1;
        let status = info::search_status(view, area.width);
        view.search.line.draw_named(buf, row, theme, "search: ", &status);
        return;
    }
    let room = usize::from(below.width).saturating_sub(busy.width());
    let pieces = if view.panes.len() > 1 {
        let other = &names(view)[1 - view.focus.min(1)];
        let aligned = view.aligned_words(area.width < 80, other);
        fitting_pair_header(view.compared_words(), &aligned, &window, room)
    } else {
        let verdict = pane.verdict.as_ref().map_or("", |verdict| verdict.headline.as_str());
        fitting_header(verdict, &hidden(view, view.focus), beside, room)
    };
    let styles = [theme.style(Role::Title), text, dim];
    let pieces = pieces.iter().map(String::as_str).zip(styles);
    let pieces: Vec<(&str, Style)> =
        std::iter::once((&*busy, theme.style(Role::Key))).chain(pieces).collect();
    line(buf, below, 1, &pieces);
}

/// Headline, hidden share and window for a line of this width: drops the window, then details of the share, then
/// abbreviates the headline and drops its later parts. The exposed share outlasts the hidden one.
fn fitting_header(headline: &str, shares: &[String; 3], window: &str, room: usize) -> [String; 3] {
    let parts: Vec<&str> = headline.split(", ").filter(|part| !part.is_empty()).collect();
    let least = parts.len().min(1);
    // such a headline says so itself
    let unsaid = [(); 3].map(|()| String::new());
    let shares = if parts.contains(&"no communication") { &unsaid } else { shares };
    let brief =
        |count: usize| parts[..count].join(", ").replace("exposed communication", "exposed comm");
    let mut lines = vec![[parts.join(", "), shares[0].clone(), window.to_owned()]];
    for count in (least..=parts.len()).rev() {
        let headline = || parts[..count].join(", ");
        lines.extend(shares.iter().map(|share| [headline(), share.clone(), String::new()]));
        lines.push([brief(count), shares[2].clone(), String::new()]);
        if parts[..count].last().is_some_and(|part| part.contains("exposed")) {
            lines.push([brief(count), String::new(), String::new()]);
        }
    }
    lines.push([parts[..least].join(", "), String::new(), String::new()]);
    first_fitting_line(lines, "  ", room)
}

/// Comparison of two aligned steps, their alignment and the window for a line of this width: drops the window, then the
/// exposed communication.
fn fitting_pair_header(
    [whole, lengths]: [String; 2],
    aligned: &str,
    window: &str,
    room: usize,
) -> [String; 3] {
    let mut lines = Vec::new();
    for compared in [whole, lengths, String::new()] {
        for window in [window, ""] {
            lines.push([compared.clone(), aligned.to_owned(), window.to_owned()]);
        }
    }
    first_fitting_line(lines, "   ", room)
}

/// First line of three parts that fits, the last if none does, with a gap before each part but the first.
fn first_fitting_line(lines: Vec<[String; 3]>, gap: &str, room: usize) -> [String; 3] {
    let apart = |parts: [String; 3]| {
        let mut is_first = true;
        parts.map(|part| match part.is_empty() || std::mem::take(&mut is_first) {
            true => part,
            false => format!("{gap}{part}"),
        })
    };
    let mut lines: Vec<[String; 3]> = lines.into_iter().map(apart).collect();
    let width = |parts: &[String; 3]| parts.iter().map(|part| part.width()).sum::<usize>();
    let fits = lines.iter().position(|line| width(line) <= room);
    lines.swap_remove(fits.unwrap_or(lines.len() - 1))
}

/// Hidden share of the communication of the step looked at and of all steps, `76.1 % of communication hidden in step 3,
/// 71.2 % in decode`, then in fewer words. Imported traces whose steps have no names show all steps.
fn hidden(view: &View, at: usize) -> [String; 3] {
    let pane = &view.panes[at.min(view.panes.len() - 1)];
    let step = view.step_looked_at(at).and_then(|i| pane.index.steps.get(i)).map(|s| s.key);
    let all = match pane.index.default_phase {
        Some(_) => "decode",
        None => "all steps",
    };
    let place = step.map_or_else(|| all.to_owned(), |key| pane.index.step_label(key));
    if pane.overlap.get(&step) == Some(&None) {
        let none = format!("no communication in {place}");
        return [none.clone(), none, "no communication".into()];
    }
    let pct = |part| pane.overlap.get(&part).map_or("…".into(), |pct| percent(*pct));
    let own = format!("{} of communication hidden in {place}", pct(step));
    let whole = match step {
        Some(_) => format!("{own}, {} in {all}", pct(None)),
        None => own.clone(),
    };
    [whole, own, format!("{} of comm hidden", pct(step))]
}

/// Draws a trace's title after its provenance, which is never cut.
fn title(buf: &mut Buffer, area: Rect, view: &View, at: usize, theme: Theme) {
    let Some(pane) = view.panes.get(at) else { return };
    let provenance = pane.index.provenance();
    let label = format!("[{provenance}]{}", if pane.ghost.is_some() { " ghost:" } else { "" });
    let name = match &pane.ghost {
        Some(on) => format!("{}, on {on}", pane.index.title),
        None => pane.index.title.clone(),
    };
    let (text, bold) = (theme.style(Role::Text), theme.style(Role::Title));
    // in a narrow window, fewer words leave room for the name
    let [whole, own, short] = hidden(view, at);
    let hidden = match area.width {
        140.. => whole,
        100.. => own,
        _ => short,
    };
    let hidden = format!("  {hidden} ");
    let taken = label.width() + 2 + if pane.aligned.is_some() { hidden.width() } else { 0 };
    let room = area.width.saturating_sub(taken as u16);
    let apart = apart(view, at, room);
    let room = room.saturating_sub(apart.width() as u16);
    // a format makes way for the file's name
    let file = name.split_once("  ").filter(|(format, _)| is_format(pane, format));
    let file = file.filter(|_| name.width() > room.into()).map(|(_, file)| file.to_owned());
    let name = file.unwrap_or(name);
    // the end of a run's id tells it from others
    let name = match name.rsplit_once("  ") {
        Some((cell, id)) if name.width() > room.into() && cell.width() + 12 < room.into() => {
            format!("{cell}  {}", without_middle(id, usize::from(room) - cell.width() - 2))
        }
        _ => cut(&name, room),
    };
    let pieces = [
        (" ", text),
        (&*label, theme.provenance(provenance)),
        (" ", text),
        (&*apart, theme.style(Role::Key)),
        (&*name, bold),
    ];
    line(buf, area, 0, &pieces);
    // the share goes to the right, if there is room or another trace occupies its row
    if pane.aligned.is_some() {
        let x = area.right().saturating_sub(hidden.width() as u16);
        put(buf, area, x, area.y, &hidden, text);
    }
}

/// True for the format that the title of a trace file begins with.
fn is_format(pane: &Pane, word: &str) -> bool {
    let import = pane.index.trace.meta.import.as_ref();
    import.map_or(word == "Ladderscope", |import| import.format == word)
}

/// Names that tell two traces apart: architectures, else settings that differ, else provenance, else the order.
pub fn names(view: &View) -> [String; 2] {
    let [a, b] = &view.panes[..] else { return Default::default() };
    let named = match (&a.index.trace.meta.spec, &b.index.trace.meta.spec) {
        (Some(a), Some(b)) if a.architecture != b.architecture => {
            [a, b].map(|spec| spec.architecture.to_string())
        }
        (Some(a), Some(b)) => [a, b].map(|spec| Varied::of([a, b].into_iter()).words(spec)),
        _ => Default::default(),
    };
    let recorded = [a, b].map(|pane| pane.index.provenance().to_string());
    let tells = |names: &[String; 2]| names[0] != names[1] && names.iter().all(|name| !name.is_empty());
    let order = ["first".into(), "second".into()];
    [named, recorded].into_iter().find(tells).unwrap_or(order)
}

/// Prefix that distinguishes a pane's run if both titles look alike at this width: `p2p-off: `. Empty if
/// unknown.
fn apart(view: &View, at: usize, room: u16) -> String {
    let [upper, lower] = &view.panes[..] else { return String::new() };
    let titles = [upper, lower].map(|pane| cut(&pane.index.title, room));
    let spec = |pane: &'_ Pane| pane.index.trace.meta.spec.clone();
    let (Some(upper), Some(lower), true) = (spec(upper), spec(lower), titles[0] == titles[1]) else {
        return String::new();
    };
    let specs = [upper, lower];
    match Varied::of(specs.iter()).words(&specs[at.min(1)]) {
        words if words.is_empty() => words,
        words => format!("{words}: "),
    }
}

/// Draws the time axis: ticks at round times since an origin (window time).
pub fn axis(buf: &mut Buffer, area: Rect, window: Window, origin: i64, theme: Theme) {
    let columns = usize::from(area.width);
    let ticks = ticks(window, origin, columns);
    let column = |tick: &i64| window.column(origin.saturating_add(*tick), columns);
    let nexts = ticks.0.iter().skip(1).map(|tick| column(tick).unwrap_or(columns)).chain([columns]);
    for ((tick, label), next) in ticks.0.iter().zip(tick_labels(&ticks)).zip(nexts) {
        let Some(column) = column(tick) else { continue };
        let label = format!("╷{label}");
        // a truncated number would look like a different one
        let label = if label.width() <= next.saturating_sub(column) { &label } else { "╷" };
        put(buf, area, area.x + column as u16, area.y, label, theme.style(Role::Dim));
    }
}

/// Draws the steps of a trace. The step that a pair is aligned at is always named; names make way for the cursor's mark.
fn ruler(
    buf: &mut Buffer,
    area: Rect,
    pane: &Pane,
    window: Window,
    (aligned, cursor): (Option<usize>, Option<usize>),
    theme: Theme,
) {
    let columns = usize::from(area.width);
    let dim = theme.style(Role::Dim);
    put(buf, area, area.x, area.y, &"─".repeat(columns), dim);
    let steps = &pane.index.steps;
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
        if column >= free && !gives_way {
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

fn draw_pane(buf: &mut Buffer, areas: &PaneAreas, view: &View, pane: &Pane, focus: bool, theme: Theme) {
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
    ruler(buf, over, pane, window, (aligned, cursor), theme);
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
    let canvas = Canvas { index, window, theme, matches: pane.matches.as_ref() };
    let mut below = areas.lines.y;
    for (i, (what, strip)) in shown.iter().zip(&strips).enumerate() {
        let row = Rect { y: below, height: areas.rows(*what), ..areas.lines };
        below = row.bottom();
        let (name, area) = cut_left(row, LANE_LABEL);
        let here = pane.first_line + i == pane.line;
        let style = match (here, focus) {
            (true, true) => theme.style(Role::Selected),
            (true, false) => theme.style(Role::Title),
            _ if matches!(what, Line::Ranges(_)) => theme.style(Role::Dim),
            _ => theme.style(Role::Text),
        };
        put(buf, name, name.x, name.y, &label(pane, *what), style);
        canvas.draw(buf, area, *what, strip);
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
        if here && let Some((first, last)) = under_cursor(pane, window, columns) {
            let mark = Rect { x: area.x + first as u16, width: (last - first + 1) as u16, ..area };
            let under = Style::new().add_modifier(Modifier::UNDERLINED | Modifier::BOLD);
            buf.set_style(mark.intersection(buf.area), under);
        }
    }
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
    window: Window,
    theme: Theme,
) {
    let (label, over) = cut_left(area, LANE_LABEL);
    put(buf, label, label.x, label.y, " critical path", theme.style(Role::Title));
    let Some(path) = path else {
        put(buf, over, over.x, over.y, "…", theme.style(Role::Dim));
        return;
    };
    let columns = usize::from(over.width);
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
fn light(buf: &mut Buffer, area: Rect, pane: &Pane, line: Line, path: &CriticalPath, window: Window) {
    let Line::Row(row) = line else { return };
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
fn under_cursor(pane: &Pane, window: Window, columns: usize) -> Option<(usize, usize)> {
    let (start, end) = pane.interval()?;
    if end < window.from || (end == window.from && start < end) {
        return None;
    }
    let first = window.column(start.max(window.from), columns)?;
    let last =
        window.column(end.saturating_sub(1).min(window.to - 1).max(start.max(window.from)), columns)?;
    Some((first, last.max(first)))
}

fn label(pane: &Pane, line: Line) -> String {
    let index = &pane.index;
    let text = match line {
        Line::Rank(rank) if pane.folded && !index.alike(rank).is_empty() => {
            let mark = if pane.is_collapsed(rank) { "▸" } else { "▾" };
            format!("{mark} r{} = {}", index.ranks[rank].rank, rank_list(&index.alike(rank)))
        }
        Line::Rank(rank) if pane.is_collapsed(rank) => format!("▸ {}", index.ranks[rank].label),
        Line::Rank(rank) => match index.ranks[rank].label.as_str() {
            // short labels have room for the line's content
            short if short.len() <= 4 => format!("▾ {short:<4}exposed"),
            long => format!("▾ {long}"),
        },
        Line::Ranges(row) => {
            let row = &index.range_rows[row];
            match (pane.nested_ranges(line), row.depth) {
                (Some((_, true)), _) => format!("  ▾ thread {}", row.thread),
                (Some((rows, false)), _) => format!("  ▸ thread {} +{rows}", row.thread),
                (None, 0) => format!("  thread {}", row.thread),
                (None, depth) => format!("  {:>d$}range", "", d = usize::from(depth.min(6))),
            }
        }
        Line::Row(row) => format!("      {}", index.rows[row].label),
    };
    cut(&text, LANE_LABEL - 1)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OverviewRow {
    /// Computation and exposed communication, as on a collapsed rank.
    All,
    /// Communication, as on a comm lane.
    Comm,
}

/// Pane of an overview row: one trace takes all rows; two traces take one row each if there are two.
pub fn overview_pane(view: &View, rows: u16, row: u16) -> usize {
    match view.panes.len() {
        0 | 1 => 0,
        _ if rows < 2 => view.focus.min(1),
        _ => usize::from(row.min(1)),
    }
}

fn draw_overview(buf: &mut Buffer, area: Rect, view: &View, theme: Theme) {
    for row in 0..area.height {
        let at = overview_pane(view, area.height, row);
        let Some(pane) = view.panes.get(at) else { continue };
        let (line, _) = cut_top(Rect { y: area.y + row, ..area }, 1);
        // a single trace has a second row if there is room
        let part = if view.panes.len() == 1 && row > 0 { OverviewRow::Comm } else { OverviewRow::All };
        draw_overview_row(buf, line, view, pane, part, theme);
        let (label, _) = cut_left(line, LANE_LABEL);
        let text = match (part, view.panes.len() > 1) {
            (OverviewRow::Comm, _) => "  communication".to_string(),
            (_, true) => {
                let length = ns(pane.index.bounds.width());
                let room = LANE_LABEL.saturating_sub(length.width() as u16 + 2);
                format!("{} {length}", cut(&names(view)[at.min(1)], room))
            }
            _ => {
                // `overlap` covers the kernels only
                let (whole, kernels) = (pane.index.bounds, pane.index.extent());
                let of = if kernels == whole { " all" } else { "CPU+GPU" };
                format!("{of} {}", ns(whole.width()))
            }
        };
        let text = cut(&text, LANE_LABEL - 1);
        put(buf, label, label.x, label.y, &text, theme.style(Role::Dim));
    }
}

fn draw_overview_row(
    buf: &mut Buffer,
    line: Rect,
    view: &View,
    pane: &Pane,
    part: OverviewRow,
    theme: Theme,
) {
    let (_, over) = cut_left(line, LANE_LABEL);
    let columns = usize::from(over.width);
    let Some(overview) = pane.overview.as_ref().filter(|o| o.columns.len() == columns) else {
        put(buf, over, over.x, over.y, "…", theme.style(Role::Dim));
        return;
    };
    // first and last column of the window
    let (bounds, window) = (pane.index.bounds, pane.window(view.window));
    let place = |time: i64| bounds.column(time.clamp(bounds.from, bounds.to - 1), columns).unwrap_or(0);
    let (first, last) = (place(window.from), place(window.to - 1));
    for (i, density) in overview.columns.iter().enumerate() {
        let (symbol, role) = overview_glyph(density, part);
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

fn overview_glyph(density: &Density, part: OverviewRow) -> Mark {
    let shares = Shares {
        compute: density.compute.into(),
        comm: density.comm.into(),
        exposed: density.exposed.into(),
        ..Shares::default()
    };
    match part {
        OverviewRow::All => shade::several(shares)
            .unwrap_or((shade::BELOW[shade::eighths(shares.compute)], Role::Series(0))),
        OverviewRow::Comm => shade::comm(shares).unwrap_or((" ", Role::Dim)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::face::tui::tests::fixtures;

    #[test]
    fn the_hidden_share_is_of_the_communication_of_a_step() {
        let mut view = View::new(Arc::new(fixtures::trace()));
        let step = view.panes[0].step_key(view.time, true);
        view.panes[0].overlap = [(step, Some(76.1)), (None, Some(71.2))].into();
        let words = hidden(&view, 0);
        assert_eq!(words[0], "76.1 % of communication hidden in step 2, 71.2 % in decode");
        assert_eq!(words[1..], ["76.1 % of communication hidden in step 2", "76.1 % of comm hidden"]);
        view.panes[0].overlap.insert(step, None);
        assert_eq!(hidden(&view, 0)[0], "no communication in step 2", "a share of nothing is no number");
    }

    #[test]
    fn the_exposed_share_outlasts_the_hidden_one() {
        let hidden = "0.0 % of communication hidden in step 0";
        let shares =
            [format!("{hidden}, 0.0 % in decode"), hidden.into(), "0.0 % of comm hidden".into()];
        let shown = |headline: &str, room: usize| fitting_header(headline, &shares, "", room).concat();
        let headline = "9.6 % idle, 4.2 % exposed communication, mixed";
        assert_eq!(shown(headline, 58), "9.6 % idle, 4.2 % exposed comm  0.0 % of comm hidden");
        assert_eq!(shown(headline, 40), "9.6 % idle, 4.2 % exposed comm");
        assert_eq!(shown("one rank, no communication", 80), "one rank, no communication", "once");
    }

    #[test]
    fn what_is_exposed_has_a_glyph_of_its_own() {
        let shown =
            |compute, comm, exposed, part| overview_glyph(&Density { compute, comm, exposed }, part).0;
        assert_eq!(shown(0.5, 0.3, 0.0, OverviewRow::All), "▄");
        assert_eq!(shown(0.001, 0.0, 0.0, OverviewRow::All), "▁", "tiny, and yet there");
        assert_eq!(shown(0.0, 0.0, 0.0, OverviewRow::All), " ");
        assert_eq!(shown(0.7, 0.3, 0.25, OverviewRow::All), "▖");
        assert_eq!(shown(0.9, 0.3, 0.0, OverviewRow::Comm), "▒");
        assert_eq!(shown(0.9, 0.6, 0.0, OverviewRow::Comm), "▓");
        assert_eq!(shown(0.5, 0.5, 0.5, OverviewRow::Comm), "▚");
        assert_eq!(shown(0.0, 0.0, 0.0, OverviewRow::Comm), " ");
    }
}
