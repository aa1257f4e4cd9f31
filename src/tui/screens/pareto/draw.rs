//! Screen 5: completion latency against per-GPU throughput, with the frontier of each architecture.
//! A plot shows one group: the same model, workload, hardware and provenance.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Modifier;

use crate::analysis::ParetoPoint;
use crate::spec::P2p;
use crate::tui::format::digits;
use crate::tui::screens::pareto::state::frontier;
use crate::tui::state::State;
use crate::tui::theme::Role;
use crate::tui::widgets::paint::{empty, line, put};
use crate::tui::widgets::scatter::Plot;

/// Glyphs of architectures: P2P on, P2P off.
const GLYPHS: [(&str, &str); 6] =
    [("●", "○"), ("◆", "◇"), ("■", "□"), ("▲", "△"), ("★", "☆"), ("▼", "▽")];

fn glyph(architecture: usize, p2p: P2p) -> &'static str {
    let (on, off) = GLYPHS[architecture % GLYPHS.len()];
    if p2p == P2p::On { on } else { off }
}

fn coordinates(point: &ParetoPoint) -> (f64, f64) {
    (point.completion_ms, point.tokens_per_s_per_gpu)
}

fn plot(state: &State, body: Rect) -> Plot {
    let points: Vec<_> = state.pareto.visible().map(coordinates).collect();
    Plot::new(super::areas(body).1, points.iter().copied())
}

/// Draws the screen.
pub fn draw(buf: &mut Buffer, body: Rect, state: &State) {
    let (theme, pareto) = (state.theme, &state.pareto);
    match &pareto.points {
        None => return empty(buf, body, "reading the runs directory…", theme),
        Some(points) if points.is_empty() => {
            let text = "no finished runs to plot: press 1, Enter runs the quickstart";
            return empty(buf, body, text, theme);
        }
        Some(_) => {}
    }
    let (header, _, info) = super::areas(body);
    let names = pareto.architectures();
    let (text, title) = (theme.style(Role::Text), theme.style(Role::Title));
    let group = pareto.groups.get(pareto.group).map_or("", String::as_str);
    let place = format!(" group {} of {}: ", pareto.group + 1, pareto.groups.len());
    line(buf, header, 0, &[(&place, theme.style(Role::Dim)), (group, title)]);
    let p2p = match pareto.p2p {
        None => " P2P: on ● and off ○  ",
        Some(P2p::On) => " P2P: on ●  ",
        Some(P2p::Off) => " P2P: off ○  ",
    };
    let mut x = put(buf, header, header.x, header.y + 1, p2p, text);
    for (i, name) in names.iter().enumerate() {
        let entry = format!(" {} {name} ", glyph(i, pareto.p2p.unwrap_or(P2p::On)));
        x = put(buf, header, x, header.y + 1, &entry, theme.style(Role::Series(i)));
    }
    let plot = plot(state, body);
    plot.draw_axes(buf, theme, "completion latency (ms)", "tokens/s/GPU");
    for (i, name) in names.iter().enumerate() {
        for p2p in [P2p::On, P2p::Off] {
            let mine = pareto
                .visible()
                .filter(|p| p.spec.p2p == p2p && p.spec.architecture.to_string() == *name);
            plot.draw_line(buf, theme.style(Role::Series(i)), &frontier(mine.map(coordinates)));
        }
    }
    // the selected point last: it must not lie under another
    let current = pareto.current();
    let others = pareto.visible().filter(|p| current.is_none_or(|c| c.run != p.run));
    for point in others.chain(current) {
        let architecture = point.spec.architecture.to_string();
        let series = names.iter().position(|n| *n == architecture).unwrap_or(0);
        let (x, y) = plot.cell(coordinates(point));
        let mut style = theme.style(Role::Series(series)).add_modifier(Modifier::BOLD);
        if current.is_some_and(|c| c.run == point.run) {
            style = style.add_modifier(Modifier::REVERSED);
        }
        put(buf, body, x, y, glyph(series, point.spec.p2p), style);
    }
    let Some(point) = current else {
        return empty(buf, plot.area, "no points with this P2P: p shows the others", theme);
    };
    let on = if point.on_frontier { "on the frontier" } else { "dominated" };
    let what = format!("{} {on}", point.spec.label());
    let numbers = format!(
        " {} ms, {} tokens/s/GPU, TPOT {} ms, run {}",
        digits(point.completion_ms),
        digits(point.tokens_per_s_per_gpu),
        digits(point.tpot_ms),
        point.run
    );
    let label = format!(" [{}] ", point.provenance);
    line(buf, info, 0, &[(&label, theme.provenance(point.provenance)), (&what, title)]);
    line(buf, info, 1, &[(&numbers, text)]);
}

/// Selects the point that was clicked, or the nearest within two rows or four columns.
pub fn click(state: &mut State, body: Rect, at: Position) {
    let plot = plot(state, body);
    let distance = |point: &ParetoPoint| {
        let (x, y) = plot.cell(coordinates(point));
        // a row is about as high as two columns are wide
        x.abs_diff(at.x).saturating_add(y.abs_diff(at.y).saturating_mul(2))
    };
    let nearest = state.pareto.visible().map(distance).enumerate().min_by_key(|(_, d)| *d);
    if let Some((index, distance)) = nearest
        && distance <= 4
    {
        state.pareto.selected = index;
    }
}
