//! Pareto screen drawing: a plot of one group, i.e. runs with the same model, workload, hardware and
//! provenance.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use ratatui::buffer::Cell;
use ratatui::style::Color;
use ratatui::widgets::{Block, Widget};

use super::labels;
use super::layout::{ParetoAreas, areas, legend, meaning, plot};
use super::state::series::{glyph, letter};
use super::state::{FrontierLine, Pareto};
use super::{Act, info, limit, picture};
use crate::face::tui::keymap::Action;
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::scatter::{Plot, PlotLine};
use base::statistics::distinct;
use plan::Architecture;
use study::analysis::{OverlayPoint, frontier_steps};
use table::P2p;

pub fn draw(buf: &mut Buffer, body: Rect, pareto: &Pareto, cx: &Context) {
    let theme = cx.theme;
    match &pareto.points {
        None => return empty(buf, body, "reading the runs directory…", theme),
        Some(points) if points.is_empty() => {
            let text = format!("no finished runs to plot: {}", cx.keys.to_first_run());
            return empty(buf, body, &text, theme);
        }
        Some(_) => {}
    }
    let ParetoAreas { answer, headline, group, legend, table, info, .. } = areas(body, pareto);
    limit::draw_answer(buf, answer, pareto, cx);
    if info::has_headline(pareto) {
        info::draw_headline(buf, headline, pareto, cx);
    }
    draw_group(buf, group, pareto, cx);
    let plot = plot(pareto, body);
    draw_legend(buf, legend, pareto, cx, &plot);
    if pareto.visible().next().is_none() && pareto.others().next().is_none() {
        // axes without points would show a made-up range
        empty(buf, plot.area, &nothing(pareto, cx), theme);
        limit::draw_table(buf, table, pareto, cx);
        info::draw(buf, info, pareto, cx, &plot);
        return pareto.filter.draw_offers(buf, group, body, theme);
    }
    let (x_title, y_title) = (pareto.axes.x.title_in(pareto.unit().0), pareto.y_title());
    plot.draw_axes(buf, theme, &x_title, &y_title);
    // in narrow windows, beside a long title
    let heading = plot.heading(&x_title, &y_title);
    let room = usize::from(plot.area.right() - body.x).saturating_sub(heading.width() + 2);
    let division = if pareto.visible().any(|p| p.has_divisions) { " eEP dDP" } else { "" };
    let short = format!("TP x batch{division}");
    let note = format!("labels: {short}");
    // points from elsewhere may have labels, too
    let are_all_own = pareto.others().next().is_none();
    let series = are_all_own.then(|| format!("{note} (selected series, frontier's ends)"));
    let notes = series.into_iter().chain([note, short]);
    let note = notes.into_iter().find(|note| note.len() <= room).unwrap_or_default();
    let x = plot.area.right().saturating_sub(note.len() as u16);
    put(buf, body, x, plot.area.y.saturating_sub(1), &note, theme.style(Role::Dim));
    if pareto.visible().next().is_none() {
        empty(buf, plot.area, &nothing(pareto, cx), theme);
    }
    match picture::ready(pareto, cx, &plot) {
        Some(shown) => {
            shown.draw(plot.area, buf);
            cross(buf, pareto, cx, &plot);
        }
        None => draw_plot(buf, pareto, cx, &plot),
    }
    if let Some((from, to)) = pareto.drag {
        let (x, y) = (from.0.min(to.0), from.1.min(to.1));
        let area = Rect::new(x, y, from.0.abs_diff(to.0) + 1, from.1.abs_diff(to.1) + 1);
        let frame = Block::bordered().border_style(theme.style(Role::Active));
        frame.render(area.intersection(plot.area), buf);
    }
    limit::draw_table(buf, table, pareto, cx);
    info::draw(buf, info, pareto, cx, &plot);
    pareto.filter.draw_offers(buf, group, body, theme);
}

/// Reason that no point is shown, and the keys that show points again.
fn nothing(pareto: &Pareto, cx: &Context) -> String {
    let key = |act| cx.key::<Pareto>(act);
    let all = cx.keys.label(Action::Scope);
    let has_points = pareto.left.get(pareto.group).is_some_and(|points| *points > 0);
    let is_typed = !pareto.filter.value().trim().is_empty();
    match pareto.filter.experiment() {
        experiment if is_typed && !has_points => {
            let why = pareto.nothing.as_deref().unwrap_or("no point of this group matches the filter");
            let close = cx.keys.label(Action::Close);
            let all = experiment.map_or_else(String::new, |_| format!(", {all} shows all runs"));
            format!("{why}\n{close} clears the filter, {} changes it{all}", key(Act::Filter))
        }
        Some(experiment) if !has_points => {
            format!("experiment {experiment} hides all points: {all} shows all")
        }
        _ if pareto.p2p().is_some() || !pareto.hidden.is_empty() => {
            format!("all points are hidden: {} P2P, {} legend", key(Act::CycleP2p), key(Act::Legend))
        }
        _ => format!("no run has {}: {} for another axis", pareto.axes.x.title(), key(Act::CycleX)),
    }
}

/// Draws the group, after the scope and the filter; if these hide points, after the numbers of points left and of cells that
/// do not fit in memory.
fn draw_group(buf: &mut Buffer, header: Rect, pareto: &Pareto, cx: &Context) {
    let theme = cx.theme;
    let (dim, title) = (theme.style(Role::Dim), theme.style(Role::Title));
    let filter = &pareto.filter;
    let group = pareto.titles.get(pareto.group).map_or("", String::as_str);
    if !filter.typing && !filter.narrows() {
        let x = filter.draw(buf, cut_left(header, 1).1, theme, "");
        let place = match pareto.groups.len() {
            0 | 1 => String::new(),
            groups => {
                format!("group {} of {groups} ({}): ", pareto.group + 1, cx.key::<Pareto>(Act::Group))
            }
        };
        return line(buf, cut_left(header, x - header.x).1, 0, &[(&place, dim), (group, title)]);
    }
    let all = pareto.in_scope();
    // matching points of other groups are on other plots
    let others =
        || pareto.left.iter().enumerate().filter(|(at, left)| *at != pareto.group && **left > 0);
    let others = match (others().count(), others().map(|(_, left)| left).sum::<usize>()) {
        (0, _) => String::new(),
        (groups, points) => {
            let key = cx.key::<Pareto>(Act::Group);
            format!(", {points} in {} ({key})", counted(groups, "other group"))
        }
    };
    let shown = pareto.shown.len();
    let count = if shown == all { counted(all, "point") } else { format!("{shown} of {all} points") };
    let out_of_memory = match pareto.out_of_memory {
        0 => String::new(),
        cells if header.width < 100 => format!("; {cells} out of memory"),
        1 => "; 1 cell does not fit in memory".to_owned(),
        cells => format!("; {cells} cells do not fit in memory"),
    };
    let count = format!(" {count}{others}{out_of_memory}  ");
    let x = put(buf, header, header.x, header.y, &count, title);
    let rest = Rect { x, width: header.right().saturating_sub(x), ..header };
    let mut x = filter.draw(buf, rest, theme, " words, tp:4,8 arch:ladder batch>=16");
    if filter.typing {
        return;
    }
    if !filter.value().is_empty() {
        x = put(buf, header, x, header.y, "(Esc clears)", theme.style(Role::Key));
    }
    put(buf, header, x + 1, header.y, group, dim);
}

fn draw_legend(buf: &mut Buffer, area: Rect, pareto: &Pareto, cx: &Context, plot: &Plot) {
    let theme = cx.theme;
    let (mut x, mut y) = (area.x, area.y);
    for (row, pieces) in legend(pareto, area.width).iter().enumerate() {
        (x, y) = (area.x, area.y + row as u16);
        for piece in pieces {
            let style = match piece.look {
                Some(look) if !piece.hidden => theme.style(Role::Architecture(look)),
                _ => theme.style(Role::Dim),
            };
            x = put(buf, area, x, y, &piece.text, style);
        }
    }
    let meaning = meaning(pareto, theme, area.width).map(|(_, text)| text);
    let line = is_crowded(pareto, plot).then_some("line: selected series");
    let both = meaning.as_ref().zip(line).map(|(meaning, line)| format!("{meaning}; {line}"));
    let texts = [both.as_deref(), meaning.as_deref(), line].into_iter().flatten();
    let room = usize::from(area.right().saturating_sub(x));
    if let Some(text) = texts.into_iter().find(|text| text.width() <= room) {
        put(buf, area, x, y, text, theme.style(Role::Dim));
    }
}

/// True if only the selected series keeps its line: more than two lines on three rows leave no room for points.
pub fn is_crowded(pareto: &Pareto, plot: &Plot) -> bool {
    3 * pareto.lines.len() > 2 * usize::from(plot.area.height)
}

/// Draws everything between the axes as characters.
fn draw_plot(buf: &mut Buffer, pareto: &Pareto, cx: &Context, plot: &Plot) {
    let theme = cx.theme;
    let look = |entry: usize| pareto.entries.get(entry).map_or(0, |e| e.look);
    let series = |line: &FrontierLine| {
        let is_off = pareto.entries.get(line.entry).is_some_and(|e| e.series.p2p == P2p::Off);
        plot.series(theme, look(line.entry), is_off, frontier_steps(&line.places))
    };
    let is_crowded = is_crowded(pareto, plot);
    let is_drawn = |line: &&FrontierLine| !is_crowded || Some(line.entry) == pareto.selected_entry();
    // of lines on the same points, the first series' stays visible, as its glyphs do
    let mut lines: Vec<PlotLine> = pareto.lines.iter().filter(is_drawn).rev().map(series).collect();
    // bars of all points would clutter the plot
    if let (Some(point), Some(entry)) = (pareto.current(), pareto.selected_entry()) {
        let style = theme.style(Role::Architecture(look(entry)));
        lines.extend(bars(pareto, point).iter().map(|bar| PlotLine::unmarked(style, bar)));
    }
    plot.draw_lines(buf, &lines);
    limit::draw_line(buf, pareto, cx, plot);
    let own = pareto.current().map(|point| &point.spec.architecture);
    for (other, place) in pareto.others().filter(|(_, place)| plot.contains(*place)) {
        let (x, y) = plot.cell(place);
        // letters of one architecture at a time can be read
        let is_own =
            other.architecture.parse().map_or(true, |parsed: Architecture| own == Some(&parsed));
        let (mark, role) = match is_own {
            true => (letter(&other.architecture, other.p2p), Role::Text),
            false => (ELSEWHERE.to_owned(), Role::Dim),
        };
        put(buf, plot.area, x, y, &mark, theme.style(role).add_modifier(Modifier::ITALIC));
    }
    let is_line = |at: &(u16, u16)| buf.cell(*at).is_some_and(|cell| !is_blank(cell));
    let lines: HashSet<(u16, u16)> =
        plot.area.positions().map(|at| (at.x, at.y)).filter(is_line).collect();
    // the colours of lines under a mark or a text do not show through
    let over = |style: Style| Style::new().fg(Color::Reset).patch(style);
    let drawn = drawn(pareto, plot);
    let order = drawing_order(pareto, &drawn);
    let suffixes = suffixes(plot, &order);
    for &((x, y), suffix, look) in &suffixes {
        put(buf, plot.area, x, y, suffix, over(theme.style(Role::Architecture(look))));
    }
    for point in order {
        let mut style = over(theme.style(Role::Architecture(point.look)));
        if !point.dominated {
            style = style.add_modifier(Modifier::BOLD);
        }
        let (x, y) = point.cell;
        if point.index == pareto.selected && pareto.other.is_none() {
            // a solid block: brackets alone are lost among lines
            let brackets = over(theme.style(Role::Selected));
            style = style.patch(theme.style(Role::Selected));
            for (x, bracket) in [(x.saturating_sub(1), "["), (x + 1, "]")] {
                put(buf, plot.area, x, y, bracket, brackets);
            }
        }
        put(buf, plot.area, x, y, glyph(point.look, point.p2p, point.dominated), style);
    }
    if let Some((other, place)) = pareto.other().filter(|(_, place)| plot.contains(*place)) {
        let ((x, y), style) = (plot.cell(place), over(theme.style(Role::Selected)));
        let mark = letter(&other.architecture, other.p2p);
        put(buf, plot.area, x.saturating_sub(1), y, &format!("[{mark}]"), style);
    }
    cross(buf, pareto, cx, plot);
    // cells of suffixes and of the brackets of the selected point
    let selected = drawn.iter().find(|d| d.index == pareto.selected).map(|d| d.cell);
    let brackets = selected.into_iter().flat_map(|(x, y)| [(x.saturating_sub(1), y), (x + 1, y)]);
    let beside: Vec<_> = suffixes.into_iter().map(|(cell, ..)| cell).chain(brackets).collect();
    let mut points: HashSet<(u16, u16)> = drawn.iter().map(|point| point.cell).collect();
    points.extend(&beside);
    for (label, style) in labelled(pareto, cx, plot, &drawn, &beside, &lines) {
        let style = over(style);
        // a blank on either side separates the text from lines
        let end = put(buf, plot.area, label.x, label.y, &label.text, style);
        for x in [label.x.saturating_sub(1), end] {
            if !points.contains(&(x, label.y)) {
                put(buf, plot.area, x, label.y, " ", style);
            }
        }
    }
    draw_corners(buf, pareto, plot, over(theme.style(Role::Dim)));
}

/// Labels the best corner with its direction and the architectures on the frontier, and the opposite corner with the meaning
/// of `close`. A label that would cover a line or a mark is left out.
fn draw_corners(buf: &mut Buffer, pareto: &Pareto, plot: &Plot, style: Style) {
    let (right, up) = (pareto.axes.x.is_more_better(), pareto.axes.y.is_more_better());
    let arrow = match (right, up) {
        (false, true) => "↖",
        (true, true) => "↗",
        (false, false) => "↙",
        (true, false) => "↘",
    };
    let better = format!("{arrow} better");
    let is_marked = pareto.marked == pareto.axes;
    let best = pareto.visible().filter(|point| point.on_frontier && is_marked);
    let names = distinct(best.map(|point| point.spec.architecture.to_string())).join(", ");
    let named = format!("{better}; on the frontier: {names}");
    let corner = [Some(named).filter(|_| !names.is_empty()), Some(better)];
    put_in_corner(buf, plot, (right, up), corner.iter().flatten().map(String::as_str), style);
    let meanings = limit::tie_meanings(pareto);
    put_in_corner(buf, plot, (!right, !up), meanings.iter().map(String::as_str), style);
}

/// Writes the first text that covers nothing in a corner of the plot.
fn put_in_corner<'a>(
    buf: &mut Buffer,
    plot: &Plot,
    (right, up): (bool, bool),
    texts: impl IntoIterator<Item = &'a str>,
    style: Style,
) {
    let area = plot.area.intersection(buf.area);
    let y = if up { area.y } else { area.bottom().saturating_sub(1) };
    for text in texts {
        let width = text.width() as u16;
        if width + 2 > area.width {
            continue;
        }
        let x = if right { area.right() - width - 1 } else { area.x + 1 };
        if (x - 1..=x + width).all(|x| buf.cell((x, y)).is_some_and(is_blank)) {
            put(buf, area, x, y, text, style);
            return;
        }
    }
}

/// Suffix of points with rounds that were not measured side by side with the others.
pub const APART: &str = "?";

/// True if a cell of the plot has neither a line nor a mark.
pub fn is_blank(cell: &Cell) -> bool {
    matches!(cell.symbol(), " " | "\u{2800}")
}

#[derive(Clone, Debug)]
pub struct PlottedPoint {
    /// Index into the shown points.
    pub index: usize,
    /// Terminal column and row.
    pub cell: (u16, u16),
    /// Index of its glyph and colour.
    pub look: usize,
    pub p2p: P2p,
    /// Text after the glyph.
    pub suffix: &'static str,
    /// True if another point of its series dominates it.
    pub dominated: bool,
}

/// Points within the plot area.
pub fn drawn(pareto: &Pareto, plot: &Plot) -> Vec<PlottedPoint> {
    let drawn =
        |(index, (point, (entry, on))): (usize, (&study::analysis::ParetoPoint, &(usize, bool)))| {
            let place = pareto.axes.coordinates(point).filter(|place| plot.contains(*place))?;
            let (look, suffix) = pareto.entries.get(*entry).map_or((0, ""), |e| (e.look, e.suffix));
            let suffix = if point.is_apart { APART } else { suffix };
            Some(PlottedPoint {
                index,
                cell: plot.cell(place),
                look,
                p2p: point.spec.p2p,
                suffix,
                dominated: !on,
            })
        };
    pareto.visible().zip(&pareto.looks).enumerate().filter_map(drawn).collect()
}

/// Points in drawing order: dominated ones first, then the later series, so that the first series and the
/// selected point stay on top.
fn drawing_order<'a>(pareto: &Pareto, drawn: &'a [PlottedPoint]) -> Vec<&'a PlottedPoint> {
    let entry = |d: &PlottedPoint| pareto.looks.get(d.index).map(|look| look.0);
    let mut order: Vec<&PlottedPoint> = drawn.iter().collect();
    order.sort_by_key(|d| (d.index == pareto.selected, !d.dominated, Reverse(entry(d))));
    order
}

/// Mark of overlay points of other architectures than the selected one.
pub const ELSEWHERE: &str = "×";

/// Suffixes of the topmost glyphs, their cells and looks; skips cells with a point and cells outside the plot.
fn suffixes(plot: &Plot, order: &[&PlottedPoint]) -> Vec<((u16, u16), &'static str, usize)> {
    let cells: BTreeMap<(u16, u16), &PlottedPoint> =
        order.iter().map(|point| (point.cell, *point)).collect();
    let beside = cells.iter().map(|((x, y), point)| ((x + 1, *y), point.suffix, point.look));
    let free = |(cell, suffix, _): &((u16, u16), &str, usize)| {
        !suffix.is_empty() && cell.0 < plot.area.right() && !cells.contains_key(cell)
    };
    beside.filter(free).collect()
}

/// Position of the selected point among the points in its cell, from 1, and their number; `None` if it is alone.
pub fn covered(pareto: &Pareto, plot: &Plot) -> Option<(usize, usize)> {
    let drawn = drawn(pareto, plot);
    let cell = drawn.iter().find(|point| point.index == pareto.selected)?.cell;
    let here: Vec<usize> = drawn.iter().filter(|d| d.cell == cell).map(|d| d.index).collect();
    let at = here.iter().position(|index| *index == pareto.selected)?;
    (here.len() > 1).then_some((at + 1, here.len()))
}

/// Labels (TP x batch) in order of priority: the selected point, the frontier's ends, the rest of the
/// selected series' frontier, overlay points; `beside` are cells of marks beside points, `lines` cells that only the selected
/// point, the frontier's ends and overlay points may cover.
pub fn labelled(
    pareto: &Pareto,
    cx: &Context,
    plot: &Plot,
    drawn: &[PlottedPoint],
    beside: &[(u16, u16)],
    lines: &HashSet<(u16, u16)>,
) -> Vec<(labels::PointLabel, Style)> {
    let others: Vec<_> = pareto.others().filter(|(_, place)| plot.contains(*place)).collect();
    let cells = drawn.iter().map(|d| d.cell).chain(others.iter().map(|(_, place)| plot.cell(*place)));
    let cells: Vec<(u16, u16)> = cells.collect();
    let (entry, ends) = (pareto.selected_entry(), pareto.ends);
    let rank = |(i, d): (usize, &PlottedPoint)| {
        let own = !d.dominated && pareto.looks.get(d.index).map(|look| look.0) == entry;
        let rank = match () {
            () if d.index == pareto.selected => 0,
            () if ends.contains(&Some(d.index)) => 1,
            () if own => 2,
            () => return None,
        };
        Some((rank, i))
    };
    let mut wanted: Vec<(u8, usize)> = drawn.iter().enumerate().filter_map(rank).collect();
    wanted.sort_unstable();
    // points on one another get one label
    let mut named = HashSet::new();
    wanted.retain(|(_, i)| named.insert(drawn[*i].cell));
    // of the overlay points, label those comparable to the selected point, and those with an unknown
    // architecture
    let current = pareto.current().map(|point| &point.spec);
    let told = |other: &OverlayPoint| match (other.architecture.parse::<Architecture>(), current) {
        (Ok(architecture), Some(spec)) => {
            architecture == spec.architecture && other.p2p.is_none_or(|p2p| p2p == spec.p2p)
        }
        (Ok(_), None) => false,
        (Err(_), _) => true,
    };
    let elsewhere = others.iter().enumerate().filter(|(_, (other, _))| told(other));
    let elsewhere = elsewhere.map(|(i, _)| drawn.len() + i);
    let wanted: Vec<usize> = wanted.into_iter().map(|(_, i)| i).chain(elsewhere).collect();
    let own = drawn.iter().map(|d| pareto.nth(d.index).map(|point| point.label()).unwrap_or_default());
    let names: Vec<String> = own.chain(others.iter().map(|(other, _)| other.name())).collect();
    let is_main = |at: usize| {
        drawn.get(at).is_none_or(|d| d.index == pareto.selected || ends.contains(&Some(d.index)))
    };
    let placed = labels::place(plot.area, &cells, beside, lines, (&names, &wanted), is_main);
    let styled = |label: labels::PointLabel| {
        let style = match drawn.get(label.point) {
            Some(d) if d.index == pareto.selected => cx.theme.style(Role::Title),
            Some(_) => cx.theme.style(Role::Text),
            None => cx.theme.style(Role::Dim).add_modifier(Modifier::ITALIC),
        };
        (label, style)
    };
    placed.into_iter().map(styled).collect()
}

/// Horizontal and vertical interval bars of a point, if there are enough samples.
fn bars(pareto: &Pareto, point: &study::analysis::ParetoPoint) -> Vec<[(f64, f64); 2]> {
    let Some((x, y)) = pareto.axes.coordinates(point) else { return Vec::new() };
    let across = pareto.axes.x.interval(point).map(|[low, high]| [(low, y), (high, y)]);
    let upright = pareto.axes.y.interval(point).map(|[low, high]| [(x, low), (x, high)]);
    across.into_iter().chain(upright).collect()
}

/// Marks the selected point on the axes, unlike any series.
fn cross(buf: &mut Buffer, pareto: &Pareto, cx: &Context, plot: &Plot) {
    if let Some(place) = pareto.place().filter(|place| plot.contains(*place)) {
        let (x, y) = plot.cell(place);
        let style = cx.theme.style(Role::Title);
        // beside the axis's title
        let axis = buf.cell((x, plot.area.bottom()));
        if axis.is_some_and(|cell| cell.symbol().contains(['─', '┬'])) {
            put(buf, buf.area, x, plot.area.bottom(), "┻", style);
        }
        put(buf, buf.area, plot.area.x.saturating_sub(1), y, "┣", style);
    }
}
