//! Draws the Pareto screen: a plot of one group, the same model, workload, hardware and provenance.

use std::collections::HashSet;

use ratatui::widgets::{Block, Widget};

use super::labels;
use super::layout::{Areas, areas, legend, plot};
use super::state::Pareto;
use super::state::series::{glyph, letter};
use super::{Act, info, picture};
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::scatter::Plot;
use plan::Architecture;
use study::analysis::OverlayPoint;
use table::P2p;

/// Draws the screen into its part of the window.
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
    let Areas { header, table, info, .. } = areas(body, pareto);
    draw_header(buf, header, pareto, cx);
    let plot = plot(pareto, body);
    plot.draw_axes(buf, theme, &pareto.axes.x.title_in(pareto.unit().0), &pareto.axes.y.title());
    let note = "labels: TP x batch, of the selected series";
    let x = plot.area.right().saturating_sub(note.len() as u16);
    put(buf, body, x, plot.area.y.saturating_sub(1), note, theme.style(Role::Dim));
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
    info::draw_table(buf, table, pareto, cx);
    info::draw(buf, info, pareto, cx);
    pareto.filter.draw_offers(buf, header, body, theme);
}

/// Why there is no point, and which keys would help.
fn nothing(pareto: &Pareto, cx: &Context) -> String {
    let key = |act| cx.key::<Pareto>(act);
    if !pareto.filter.value().is_empty() {
        format!("no point matches the filter: {} changes it, Esc drops it", key(Act::Filter))
    } else if pareto.p2p.is_some() || !pareto.hidden.is_empty() {
        format!("all points are hidden: {} P2P, {} legend", key(Act::CycleP2p), key(Act::Legend))
    } else {
        format!("no run has {}: {} takes another axis", pareto.axes.x.title(), key(Act::CycleX))
    }
}

fn draw_header(buf: &mut Buffer, header: Rect, pareto: &Pareto, cx: &Context) {
    let theme = cx.theme;
    let (dim, title) = (theme.style(Role::Dim), theme.style(Role::Title));
    if pareto.filter.typing || !pareto.filter.value().is_empty() {
        let all = pareto.counts.get(pareto.group).copied().unwrap_or(0);
        // what the filter leaves of other groups is on other plots
        let others =
            || pareto.left.iter().enumerate().filter(|(at, left)| *at != pareto.group && **left > 0);
        let others = match (others().count(), others().map(|(_, left)| left).sum::<usize>()) {
            (0, _) => String::new(),
            (groups, points) => {
                let key = cx.key::<Pareto>(Act::Group);
                format!(", {points} in {} ({key})", counted(groups, "other group"))
            }
        };
        let count = format!(" {} of {all} points{others}  ", pareto.shown.len());
        let x = put(buf, header, header.x, header.y, &count, title);
        let rest = Rect { x, width: header.right().saturating_sub(x), ..header };
        let hint = " words, tp:4,8 arch:ladder batch>=16";
        let x = pareto.filter.draw(buf, rest, theme, hint);
        if !pareto.filter.typing {
            let group = pareto.titles.get(pareto.group).map_or("", String::as_str);
            put(buf, header, x + 1, header.y, group, dim);
        }
    } else {
        let group = pareto.titles.get(pareto.group).map_or("", String::as_str);
        let place = format!(" group {} of {}: ", pareto.group + 1, pareto.groups.len());
        line(buf, header, 0, &[(&place, dim), (group, title)]);
    }
    for (row, pieces) in legend(pareto, header.width).iter().enumerate() {
        let mut x = header.x;
        for piece in pieces {
            let style = match piece.look {
                Some(look) if !piece.hidden => theme.style(Role::Architecture(look)),
                _ => dim,
            };
            x = put(buf, header, x, header.y + 1 + row as u16, &piece.text, style);
        }
    }
}

/// Everything between the axes, in characters.
fn draw_plot(buf: &mut Buffer, pareto: &Pareto, cx: &Context, plot: &Plot) {
    let theme = cx.theme;
    let dim = theme.style(Role::Dim);
    let look = |entry: usize| pareto.entries.get(entry).map_or(0, |e| e.look);
    for bar in all_bars(pareto) {
        plot.draw_line(buf, dim, &bar);
    }
    for line in &pareto.lines {
        plot.draw_series(buf, theme, look(line.entry), &line.places);
    }
    for (other, place) in pareto.others().filter(|(_, place)| plot.contains(*place)) {
        let (x, y) = plot.cell(place);
        let style = theme.style(Role::Text).add_modifier(Modifier::ITALIC);
        put(buf, plot.area, x, y, &letter(&other.architecture, other.p2p), style);
    }
    let drawn = drawn(pareto, plot);
    // what is dominated first, the selected point last: what matters must not lie under another
    let rank = |d: &&Drawn| (d.index == pareto.selected, !d.dominated);
    let mut order: Vec<&Drawn> = drawn.iter().collect();
    order.sort_by_key(rank);
    for ((x, y), suffix, look) in suffixes(plot, &drawn) {
        put(buf, plot.area, x, y, suffix, theme.style(Role::Architecture(look)));
    }
    for point in order {
        let mut style = theme.style(Role::Architecture(point.look));
        style = style.add_modifier(if point.dominated { Modifier::DIM } else { Modifier::BOLD });
        if point.index == pareto.selected {
            style = style.remove_modifier(Modifier::DIM).add_modifier(Modifier::REVERSED);
        }
        let (x, y) = point.cell;
        put(buf, plot.area, x, y, glyph(point.look, point.p2p, point.dominated), style);
    }
    for (label, style) in labelled(pareto, cx, plot, &drawn, Some(pareto.selected)) {
        put(buf, plot.area, label.x, label.y, &label.text, style);
    }
}

/// A point that lies between the axes' ends.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// Index into the points shown.
    pub index: usize,
    /// The column and the row of the terminal that it is drawn in.
    pub cell: (u16, u16),
    /// The number of its look: glyph and colour.
    pub look: usize,
    /// Whether the run's GPUs talked directly.
    pub p2p: P2p,
    /// What stands behind its glyph.
    pub suffix: &'static str,
    /// Another of its series dominates it.
    pub dominated: bool,
}

/// The points that lie between the axes' ends.
pub fn drawn(pareto: &Pareto, plot: &Plot) -> Vec<Drawn> {
    let drawn =
        |(index, (point, (entry, on))): (usize, (&study::analysis::ParetoPoint, &(usize, bool)))| {
            let place = pareto.axes.of(point).filter(|place| plot.contains(*place))?;
            let (look, suffix) = pareto.entries.get(*entry).map_or((0, ""), |e| (e.look, e.suffix));
            Some(Drawn {
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

/// What stands behind glyphs, and in which cells: never in one that has a point, nor beyond the plot.
pub fn suffixes<'a>(
    plot: &'a Plot,
    drawn: &'a [Drawn],
) -> impl Iterator<Item = ((u16, u16), &'static str, usize)> + 'a {
    let points: HashSet<(u16, u16)> = drawn.iter().map(|point| point.cell).collect();
    let suffixed = drawn.iter().filter(|point| !point.suffix.is_empty());
    let beside = suffixed.map(|point| ((point.cell.0 + 1, point.cell.1), point.suffix, point.look));
    beside.filter(move |(cell, ..)| cell.0 < plot.area.right() && !points.contains(cell))
}

/// Labels (TP x batch) of the selected point, then of the frontier's ends and of those on its own series' frontier,
/// where there is room; then of points from elsewhere. A picture has no selected point: it labels the frontier's
/// ends, then all points on the frontier.
pub fn labelled(
    pareto: &Pareto,
    cx: &Context,
    plot: &Plot,
    drawn: &[Drawn],
    selected: Option<usize>,
) -> Vec<(labels::Label, Style)> {
    let others: Vec<_> = pareto.others().filter(|(_, place)| plot.contains(*place)).collect();
    let cells = drawn.iter().map(|d| d.cell).chain(others.iter().map(|(_, place)| plot.cell(*place)));
    let cells: Vec<(u16, u16)> = cells.chain(suffixes(plot, drawn).map(|(cell, ..)| cell)).collect();
    let (entry, ends) = (pareto.selected_entry(), pareto.ends);
    let rank = |(i, d): (usize, &Drawn)| {
        let own = match selected {
            Some(_) => !d.dominated && pareto.looks.get(d.index).map(|look| look.0) == entry,
            None => pareto.nth(d.index).is_some_and(|point| point.on_frontier),
        };
        let rank = match () {
            () if Some(d.index) == selected => 0,
            () if ends.contains(&Some(d.index)) => 1,
            () if own => 2,
            () => return None,
        };
        Some((rank, i))
    };
    let mut wanted: Vec<(u8, usize)> = drawn.iter().enumerate().filter_map(rank).collect();
    wanted.sort_unstable();
    let own = wanted.into_iter().filter_map(|(_, i)| Some((i, pareto.nth(drawn[i].index)?.label())));
    // of those from elsewhere the ones that the selected point is compared with, and what is of no architecture here
    let current = selected.and_then(|number| pareto.nth(number)).map(|point| &point.spec);
    let told = |other: &OverlayPoint| match (other.architecture.parse::<Architecture>(), current) {
        (Ok(architecture), Some(spec)) => {
            architecture == spec.architecture && other.p2p.is_none_or(|p2p| p2p == spec.p2p)
        }
        (Ok(_), None) => false,
        (Err(_), _) => true,
    };
    let elsewhere = others.iter().enumerate().filter(|(_, (other, _))| told(other));
    let elsewhere = elsewhere.map(|(i, (other, _))| (drawn.len() + i, other.name()));
    let texts: Vec<(usize, String)> = own.chain(elsewhere).collect();
    let placed = labels::place(plot.area, &cells, &texts);
    let styled = |label: labels::Label| {
        let style = match drawn.get(label.point) {
            Some(d) if Some(d.index) == selected => cx.theme.style(Role::Title),
            Some(_) => cx.theme.style(Role::Text),
            None => cx.theme.style(Role::Dim).add_modifier(Modifier::ITALIC),
        };
        (label, style)
    };
    placed.into_iter().map(styled).collect()
}

/// A line from place to place.
pub type Bar = [(f64, f64); 2];

/// The interval bars of points on frontiers: those of dominated ones would hide more than they tell.
pub fn all_bars(pareto: &Pareto) -> Vec<Bar> {
    let on = pareto.visible().zip(&pareto.looks).filter(|(_, (_, on))| *on);
    on.flat_map(|(point, _)| bars(pareto, point)).collect()
}

/// The interval bars of a point: across and upright, where samples allow them.
fn bars(pareto: &Pareto, point: &study::analysis::ParetoPoint) -> Vec<Bar> {
    let Some((x, y)) = pareto.axes.of(point) else { return Vec::new() };
    let across = pareto.axes.x.interval(point).map(|[low, high]| [(low, y), (high, y)]);
    let upright = pareto.axes.y.interval(point).map(|[low, high]| [(x, low), (x, high)]);
    across.into_iter().chain(upright).collect()
}

/// The selected point's column and row at the axes: beside a picture, where no character can lie on it.
fn cross(buf: &mut Buffer, pareto: &Pareto, cx: &Context, plot: &Plot) {
    let place = pareto.current().and_then(|p| pareto.axes.of(p));
    if let Some(place) = place.filter(|place| plot.contains(*place)) {
        let (x, y) = plot.cell(place);
        let style = cx.theme.style(Role::Title);
        put(buf, buf.area, x, plot.area.bottom(), "▲", style);
        put(buf, buf.area, plot.area.x.saturating_sub(1), y, "▶", style);
    }
}
