//! Screen 5: latency against throughput, with the frontier of each architecture and P2P setting.

mod draw;
mod info;
mod kept;
mod labels;
pub mod layout;
pub mod picture;
pub mod state;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use tui_input::Input;

use crate::analysis::{self, Axes};
use crate::tui::action::{Action, Binding, Screen, bind};
use crate::tui::figures;
use crate::tui::keys::{paste_into, type_into};
use crate::tui::message::Effect;
use crate::tui::page::{Export, FileKind, Page, Pointer, PointerKind, body_of};
use crate::tui::state::{List, Overlay, Prompt, Purpose, State};
use crate::tui::update::open_run;
use state::nearest::{Direction, nearest};
use state::window::Window;
use state::{Panel, Pareto as Data};

/// What can be done here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    Go(Direction),
    Next,
    Previous,
    Dominating,
    Open,
    CycleX,
    CycleY,
    ScaleX,
    ScaleY,
    CycleP2p,
    Group,
    Legend,
    Filter,
    Table,
    Published,
    OverlayFile,
    ZoomIn,
    ZoomOut,
    FitAll,
    Undo,
    Picture,
}

const fn on(
    id: &'static str,
    keys: &'static str,
    act: Act,
    name: &'static str,
    hint: Option<&'static str>,
) -> Binding {
    bind(id, keys, Action::Pareto(act), name, hint)
}

#[rustfmt::skip]
const BINDINGS: &[Binding] = &[
    on("open", "Enter", Act::Open, "open the point's timeline", Some("timeline")),
    on("left", "Left", Act::Go(Direction::Left), "nearest point to the left", Some("point")),
    on("right", "Right", Act::Go(Direction::Right), "nearest point to the right", None),
    on("up", "Up", Act::Go(Direction::Up), "nearest point above", None),
    on("down", "Down", Act::Go(Direction::Down), "nearest point below", None),
    on("next", "n", Act::Next, "next point in order of x, whichever is covered", None),
    on("previous", "N", Act::Previous, "previous point in order of x", None),
    on("dominating", "d", Act::Dominating, "go to the run that dominates this one", None),
    on("cycle-x", "a", Act::CycleX, "x axis: completion latency, TPOT, TTFT, tokens/s/user", Some("x axis")),
    on("cycle-y", "A", Act::CycleY, "y axis: tokens/s/GPU or tokens/s", None),
    on("cycle-p2p", "p", Act::CycleP2p, "show P2P on, off, or both", Some("P2P")),
    on("choose-group", "g", Act::Group, "choose a group: model, workload, hardware, provenance", Some("group")),
    on("filter", "/", Act::Filter, "filter: words, tp:8, arch:ladder, batch>=16", Some("filter")),
    on("legend", "l", Act::Legend, "legend: show or hide architectures and P2P settings", Some("legend")),
    on("published", "b", Act::Published, "published points (arXiv 2501.06589) on or off", Some("published")),
    on("overlay", "B", Act::OverlayFile, "points from a CSV file of yours beside the runs", None),
    on("table", "t", Act::Table, "table of the frontiers at fixed latencies on or off", Some("table")),
    on("zoom-in", "+ =", Act::ZoomIn, "zoom in at the point", None),
    on("zoom-out", "-", Act::ZoomOut, "zoom out at the point", None),
    on("fit-all", "f", Act::FitAll, "show all points", None),
    on("undo", "u", Act::Undo, "undo zooming", Some("undo zoom")),
    on("scale-x", "s", Act::ScaleX, "x axis: automatic, linear, logarithmic", None),
    on("scale-y", "S", Act::ScaleY, "y axis: automatic, linear, logarithmic", None),
    on("picture", "i", Act::Picture, "plot as a picture, or in characters", None),
];

/// The page.
#[derive(Debug)]
pub struct Pareto;

impl Page for Pareto {
    fn title(&self) -> &'static str {
        "pareto"
    }

    fn bindings(&self) -> &'static [Binding] {
        BINDINGS
    }

    fn draw(&self, buf: &mut Buffer, body: Rect, state: &State) {
        draw::draw(buf, body, state);
    }

    fn step(&self, state: &mut State, rows: isize) -> Vec<Effect> {
        state.pareto.step(rows);
        Vec::new()
    }

    fn typed(&self, state: &mut State, key: KeyEvent) -> Option<Vec<Effect>> {
        let pareto = &mut state.pareto;
        if pareto.typing {
            match key.code {
                KeyCode::Enter | KeyCode::Down | KeyCode::Tab => pareto.typing = false,
                KeyCode::Esc => drop_filter(pareto),
                _ if type_into(&mut pareto.filter, key) => pareto.arrange(),
                _ => {}
            }
            return Some(Vec::new());
        }
        in_panel(pareto, key).then(Vec::new)
    }

    fn paste(&self, state: &mut State, text: &str) -> Option<Vec<Effect>> {
        state.pareto.typing.then(|| {
            paste_into(&mut state.pareto.filter, text);
            state.pareto.arrange();
            Vec::new()
        })
    }

    fn pointer(&self, state: &mut State, body: Rect, event: Pointer) -> Option<Vec<Effect>> {
        let plot = layout::plot(&state.pareto, body);
        let pareto = &mut state.pareto;
        let cell = |at: Position| {
            let area = plot.area;
            (
                at.x.clamp(area.x, area.right().saturating_sub(1).max(area.x)),
                at.y.clamp(area.y, area.bottom().saturating_sub(1).max(area.y)),
            )
        };
        let inside = |at: Position| plot.area.contains(at);
        match event.kind {
            PointerKind::Click => {
                pareto.typing = false;
                pareto.panel = None;
                pareto.drag = None;
                select_at(pareto, &plot, event.at);
            }
            PointerKind::DoubleClick if inside(event.at) => {
                let found = select_at(pareto, &plot, event.at);
                let run = pareto.current().map(|p| p.run.clone()).filter(|_| found);
                return Some(run.map_or_else(Vec::new, |run| open_run(state, Some(run))));
            }
            PointerKind::Drag(from) if inside(from) => {
                pareto.drag = Some((cell(from), cell(event.at)));
            }
            PointerKind::Drop(from) => {
                pareto.drag = None;
                let (a, b) = (cell(from), cell(event.at));
                // less than that is a click that trembled
                if inside(from) && a.0.abs_diff(b.0) >= 3 && a.1.abs_diff(b.1) >= 1 {
                    let ((ax, ay), (bx, by)) = (plot.share(a), plot.share(b));
                    pareto.zoom.show_shares(&plot, (ax.min(bx), ax.max(bx)), (ay.min(by), ay.max(by)));
                }
            }
            PointerKind::Wheel(notches) if inside(event.at) => {
                let around = plot.share((event.at.x, event.at.y));
                pareto.zoom.by(&plot, around, if notches < 0 { 0.8 } else { 1.25 });
            }
            _ => {}
        }
        Some(Vec::new())
    }

    fn close(&self, state: &mut State) {
        let pareto = &mut state.pareto;
        if pareto.panel.take().is_none() && !pareto.filter.value().is_empty() {
            drop_filter(pareto);
        }
    }

    fn settle(&self, state: &mut State, _body: Rect, effects: &mut Vec<Effect>) {
        let leaving = effects.iter().any(|effect| matches!(effect, Effect::Quit { .. }));
        if state.screen != Screen::Pareto || leaving {
            return;
        }
        effects.extend(picture::ask(state).map(Effect::ParetoPicture));
        let (Some(runs), pareto) = (&state.stored, &mut state.pareto) else { return };
        if pareto.points.is_none() {
            return;
        }
        let marks = (pareto.axes, pareto.reading);
        if pareto.marked != pareto.axes && pareto.asked != Some(marks) {
            pareto.asked = Some(marks);
            effects.push(Effect::ParetoMarks {
                axes: pareto.axes,
                reading: pareto.reading,
                runs: runs.clone(),
            });
        }
        if let Some(key) = pareto.area_key().filter(|key| pareto.areas_asked.as_ref() != Some(key)) {
            pareto.areas_asked = Some(key.clone());
            effects.push(Effect::ParetoAreas { key, runs: runs.clone() });
        }
    }

    fn remember(&self, state: &State) -> Option<serde_json::Value> {
        kept::remember(&state.pareto)
    }

    fn recall(&self, state: &mut State, kept: &serde_json::Value) -> Vec<Effect> {
        kept::recall(&mut state.pareto, kept);
        Vec::new()
    }

    fn command(&self, state: &State) -> Option<Vec<String>> {
        command(&state.pareto)
    }

    fn export(&self, state: &State, kind: FileKind) -> Result<Option<Export>, String> {
        let points: Vec<_> = state.pareto.visible().cloned().collect();
        if points.is_empty() {
            return Err("nothing to export: no points are shown".into());
        }
        Ok(match kind {
            FileKind::Csv => Some(Export::text(analysis::points_csv(&points))),
            // the figure has these axes alone; of others there is a picture of the screen
            FileKind::Svg | FileKind::Png if state.pareto.axes == Axes::default() => {
                let others = state.pareto.others().map(|(other, _)| other.clone()).collect();
                Some(figures::pareto(state, points, others))
            }
            FileKind::Svg | FileKind::Png => None,
        })
    }
}

fn drop_filter(pareto: &mut Data) {
    pareto.typing = false;
    pareto.filter.reset();
    pareto.arrange();
}

/// A key while a list lies on the plot; false where none does.
fn in_panel(pareto: &mut Data, key: KeyEvent) -> bool {
    let Some(panel) = pareto.panel else { return false };
    let (mut list, len) = match panel {
        Panel::Groups(list) => (list, pareto.groups.len()),
        Panel::Legend(list) => (list, pareto.entries.len()),
    };
    match (key.code, panel) {
        (KeyCode::Up | KeyCode::Char('k'), _) => list.move_by(-1, len),
        (KeyCode::Down | KeyCode::Char('j'), _) => list.move_by(1, len),
        (KeyCode::PageUp, _) => list.move_by(-10, len),
        (KeyCode::PageDown, _) => list.move_by(10, len),
        (KeyCode::Home, _) => list.selected = 0,
        (KeyCode::End, _) => list.move_by(isize::MAX / 2, len),
        (KeyCode::Enter | KeyCode::Char(' '), Panel::Groups(_)) => {
            pareto.choose_group(list.selected);
            pareto.panel = None;
            return true;
        }
        (KeyCode::Enter | KeyCode::Char(' '), Panel::Legend(_)) => pareto.toggle(list.selected),
        (KeyCode::Char('a'), Panel::Legend(_)) => {
            pareto.hidden.clear();
            pareto.arrange();
        }
        (KeyCode::Esc | KeyCode::Char('q' | 'g' | 'l'), _) => {
            pareto.panel = None;
            return true;
        }
        _ => {}
    }
    pareto.panel = Some(match panel {
        Panel::Groups(_) => Panel::Groups(list),
        Panel::Legend(_) => Panel::Legend(list),
    });
    true
}

/// Selects the point at a place of the window, or the nearest within two rows or four columns.
fn select_at(pareto: &mut Data, plot: &crate::tui::widgets::scatter::Plot, at: Position) -> bool {
    let distance = |place: (f64, f64)| {
        let (x, y) = plot.cell(place);
        // a row is about as high as two columns are wide
        x.abs_diff(at.x).saturating_add(y.abs_diff(at.y).saturating_mul(2))
    };
    let places = pareto.visible().map(|p| pareto.axes.of(p).filter(|place| plot.contains(*place)));
    let found = places
        .enumerate()
        .filter_map(|(i, place)| Some((i, distance(place?))))
        .min_by_key(|(_, distance)| *distance)
        .filter(|(_, distance)| *distance <= 4);
    if let Some((index, _)) = found {
        pareto.selected = index;
    }
    found.is_some()
}

/// The command that prints what is shown.
fn command(pareto: &Data) -> Option<Vec<String>> {
    let spec = &pareto.current().or_else(|| pareto.visible().next())?.spec;
    let provenance = pareto.current()?.provenance;
    let mut conditions = vec![
        format!("model={}", spec.model),
        format!("dtype={}", spec.dtype),
        format!("prompt_tokens={}", spec.prompt_tokens),
        format!("output_tokens={}", spec.output_tokens),
        format!("hardware={}", spec.hardware),
        format!("provenance={provenance}"),
    ];
    conditions.extend(pareto.p2p.map(|p2p| format!("p2p={}", p2p.as_str())));
    for entry in pareto.entries.iter().filter(|entry| entry.hidden) {
        // an architecture of which nothing is shown; one of its two settings cannot be said
        let name = entry.series.architecture.to_string();
        let all = pareto.entries.iter().filter(|e| e.series.architecture == entry.series.architecture);
        let condition = format!("architecture!={name}");
        if all.clone().all(|e| e.hidden) && !conditions.contains(&condition) {
            conditions.push(condition);
        }
    }
    conditions.extend(state::filter::Filter::parse(pareto.filter.value()).words());
    let mut words: Vec<String> = vec!["pareto".into(), "--filter".into(), conditions.join(" ")];
    let mut option = |name: &str, value: &str| words.extend([name.to_string(), value.to_string()]);
    if pareto.axes.x != Axes::default().x {
        option("--x", pareto.axes.x.as_str());
    }
    if pareto.axes.y != Axes::default().y {
        option("--y", pareto.axes.y.as_str());
    }
    if !pareto.published.is_empty() {
        option("--overlay", "published");
    }
    if let Some(file) = &pareto.overlay_file {
        option("--overlay", &file.display().to_string());
    }
    let log = match pareto.logarithmic() {
        (true, true) => Some("--log=xy"),
        (true, false) => Some("--log=x"),
        (false, true) => Some("--log=y"),
        (false, false) => None,
    };
    words.extend(log.map(str::to_string));
    words.extend(["--area".into(), "--at".into()]);
    Some(words)
}

/// Reads the file that was typed at the prompt.
pub fn read_overlay(state: &State, typed: &str) -> Result<Vec<Effect>, String> {
    let typed = typed.trim();
    if typed.is_empty() {
        return match state.pareto.overlay_file {
            Some(_) => Ok(vec![Effect::ReadOverlay(None)]),
            None => Err(format!("name a CSV file; columns: {}", analysis::OVERLAY_COLUMNS.join(", "))),
        };
    }
    Ok(vec![Effect::ReadOverlay(Some(PathBuf::from(typed)))])
}

/// Shows points that were read, or takes them away.
pub fn take_overlay(state: &mut State, read: Option<(PathBuf, Vec<analysis::OverlayPoint>)>) {
    let pareto = &mut state.pareto;
    let Some((file, points)) = read else {
        return pareto.lay_over(None, Vec::new());
    };
    let all = points.len();
    pareto.lay_over(Some(file), points);
    let shown = pareto.others().filter(|(other, _)| pareto.overlay.contains(other)).count();
    state.inform(format!("{shown} of its {all} points go with this group and these axes"));
}

fn ask_for_overlay(state: &mut State) {
    let file = state.pareto.overlay_file.as_ref().map(|file| file.display().to_string());
    state.overlays.push(Overlay::Prompt(Prompt {
        title: "points from a CSV file beside the runs".into(),
        hint: format!(
            "Enter reads it, nothing typed takes its points away; columns: {}",
            analysis::OVERLAY_COLUMNS.join(", ")
        ),
        input: Input::new(file.unwrap_or_default()),
        error: None,
        purpose: Purpose::ParetoOverlay,
    }));
}

/// Does what was asked for.
pub fn act(state: &mut State, act: Act) -> Vec<Effect> {
    let plot = layout::plot(&state.pareto, body_of(state));
    let pareto = &mut state.pareto;
    let zoom = |pareto: &mut Data, factor| {
        let place = pareto.current().and_then(|p| pareto.axes.of(p)).filter(|p| plot.contains(*p));
        let around = place.map_or((0.5, 0.5), |(x, y)| (plot.x.place(x), plot.y.place(y)));
        pareto.zoom.by(&plot, around, factor);
    };
    match act {
        Act::Go(direction) => go(pareto, &plot, direction),
        Act::Next => pareto.step(1),
        Act::Previous => pareto.step(-1),
        Act::Dominating => {
            let by = pareto.current().and_then(|p| p.dominated_by.clone());
            match by {
                None => state.inform("nothing dominates this point"),
                Some(run) if !pareto.select(&run) => {
                    state.inform(format!("{run} dominates it, and is not shown: filter, legend, P2P"));
                }
                Some(_) => {}
            }
        }
        Act::CycleX => pareto.cycle_x(),
        Act::CycleY => pareto.cycle_y(),
        Act::ScaleX | Act::ScaleY => {
            let scales = &mut pareto.scales;
            let scale = if act == Act::ScaleX { &mut scales.0 } else { &mut scales.1 };
            *scale = scale.next();
            let name = if act == Act::ScaleX { "x" } else { "y" };
            let text = format!("{name} axis: {}", scale.word());
            pareto.zoom.forget();
            state.inform(text);
        }
        Act::CycleP2p => pareto.cycle_p2p(),
        Act::Group => {
            let selected = pareto.group;
            pareto.panel = Some(Panel::Groups(List { selected, offset: 0 }));
        }
        Act::Legend => pareto.panel = Some(Panel::Legend(List::default())),
        Act::Filter => pareto.typing = true,
        Act::Table => {
            let shown = layout::areas(body_of(state), &state.pareto).table.height > 0;
            state.pareto.table = Some(!shown);
        }
        Act::Published => return publish(state),
        Act::OverlayFile => ask_for_overlay(state),
        Act::ZoomIn => zoom(pareto, 0.5),
        Act::ZoomOut => zoom(pareto, 2.0),
        Act::FitAll => pareto.zoom.to(None),
        Act::Undo => {
            if !pareto.zoom.undo() {
                state.inform("nothing to undo");
            }
        }
        Act::Picture => toggle_picture(state),
        Act::Open => {
            let run = pareto.current().map(|p| p.run.clone());
            return open_run(state, run);
        }
    }
    Vec::new()
}

/// Goes to the nearest point in an arrow's direction; a zoomed plot follows.
fn go(pareto: &mut Data, plot: &crate::tui::widgets::scatter::Plot, direction: Direction) {
    let (wide, high) = (f64::from(plot.area.width), 2.0 * f64::from(plot.area.height));
    let place = |p| pareto.axes.of(p).map(|(x, y)| (plot.x.share(x) * wide, plot.y.share(y) * high));
    let places: Vec<_> = pareto.visible().map(place).collect();
    if let Some(to) = nearest(&places, pareto.selected, direction) {
        pareto.selected = to;
        show_selected(pareto, plot);
    }
}

/// Moves a zoomed window so that it shows the selected point.
fn show_selected(pareto: &mut Data, plot: &crate::tui::widgets::scatter::Plot) {
    let Some((x, y)) = pareto.current().and_then(|p| pareto.axes.of(p)) else { return };
    if pareto.zoom.window.is_none() || plot.contains((x, y)) {
        return;
    }
    // as far as needed, and a tenth more
    let shift = |share: f64| match share {
        s if s < 0.0 => s - 0.1,
        s if s > 1.0 => s - 0.9,
        _ => 0.0,
    };
    let (dx, dy) = (shift(plot.x.share(x)), shift(plot.y.share(y)));
    pareto.zoom.window = Some(Window {
        x: (plot.x.value(dx), plot.x.value(1.0 + dx)),
        y: (plot.y.value(dy), plot.y.value(1.0 + dy)),
    });
}

fn publish(state: &mut State) -> Vec<Effect> {
    let pareto = &mut state.pareto;
    if !pareto.published.is_empty() {
        pareto.publish(Vec::new());
        return Vec::new();
    }
    match analysis::published() {
        Ok(points) => {
            pareto.publish(points);
            if !pareto.others().any(|(other, _)| other.source == analysis::PUBLISHED) {
                let text = "no published point has this model, workload and axes: they are of \
                            llama-3-70b and llama-3.1-405b, prompt 1024, output 512";
                state.inform(text);
            }
        }
        Err(error) => state.fail(error.to_string()),
    }
    Vec::new()
}

fn toggle_picture(state: &mut State) {
    let pictures = &mut state.pareto.pictures;
    if pictures.kind.is_none() {
        state.inform(format!(
            "this terminal is not known to show pictures; {}=kitty, sixel, iterm2 or halfblocks says it does",
            picture::VARIABLE
        ));
        return;
    }
    pictures.on = !pictures.on;
}
