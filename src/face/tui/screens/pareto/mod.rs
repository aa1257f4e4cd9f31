//! Screen 5: latency against throughput, with the frontier of each series (architecture, P2P and setting).

mod draw;
mod errors;
mod info;
mod labels;
pub mod layout;
mod limit;
pub mod picture;
pub mod state;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use crate::desk::figure::FigureKind;
use crate::desk::files;
use crate::face::tui::figures;
use crate::face::tui::pictures;
use crate::face::tui::prelude::*;
use crate::face::tui::scope::RunScope;
use crate::face::tui::screens::runs::{Runs, TraceLookup};
use crate::face::tui::texts::{CheckItem, Checklist, ChecklistUpdate};
use crate::face::tui::widgets::scatter::Plot;
use plan::Architecture;
pub use state::Pareto;
use state::nearest::{Direction, nearest};
use state::series::glyph;
use state::window::ZoomWindow;
use state::{ParetoHeadline, Scale};
use study::analysis::{self, Axes, Axis, Cells, Comparison, ParetoPoint, is_measured_apart};
use study::answer::{RUN_AGAIN, headlines_of_all, signs_of_noise};
use table::render::Sourced;
use table::{Provenance, Record, Spec};

acts! {
    Open: "open", "Enter", "open the point's timeline, or its run's details if it has none", Some("timeline") => "time";
    Left: "left", "Left h", "nearest point to the left", None;
    Right: "right", "Right l", "nearest point to the right", None;
    Up: "up", "Up k", "nearest point above", None;
    Down: "down", "Down j", "nearest point below", None;
    Next: "next", "n", "next point by x, including covered ones", None;
    Previous: "previous", "N", "previous point by x", None;
    Dominating: "dominating", "d", "go to the run that dominates this one", None;
    Limit: "limit", "t", "limit of x: type one, go to the best point within it", Some("limit"), "at most within bound sla budget time";
    CycleX: "cycle-x", "a", "x axis: completion latency, TPOT, TTFT, tokens/s/user", Some("axis"), "latency";
    CycleY: "cycle-y", "A", "y axis: tokens/s/GPU, tokens/s, quality", None, "throughput";
    CycleP2p: "cycle-p2p", "p", "show P2P on, off, or both", Some("P2P");
    Group: "choose-group", "g", "choose a group: model, workload, hardware, provenance", Some("group");
    Filter: "filter", "/", "filter: words, tp:8, arch:ladder, batch>=16", Some("filter") => "find", "search narrow query";
    Legend: "legend", "L", "legend: show or hide architectures and P2P settings", Some("legend"), "colors colours series";
    Published: "published", "D", "show or hide published points (arXiv 2501.06589)", Some("published") => "paper", "paper arxiv literature";
    Errors: "published-errors", "v", "validation: table of published and simulated values with their errors", Some("errors");
    OverlayFile: "overlay", "B", "overlay points from a CSV file", None, "csv import own";
    Table: "table", "T", "table of all series within the limit", Some("table"), "numbers csv";
    ZoomIn: "zoom-in", "+ =", "zoom in at the point", None;
    ZoomOut: "zoom-out", "-", "zoom out at the point", None;
    FitAll: "fit-all", "f", "show all points", None, "reset zoom";
    Undo: "undo", "u", "undo a zoom, filter, or change of axes, limit, scale, group or P2P", Some("undo"), "back revert";
    Redo: "redo", "ctrl-r", "redo", None;
    ScaleX: "scale-x", "e", "x axis: automatic, linear, logarithmic", None;
    ScaleY: "scale-y", "E", "y axis: automatic, linear, logarithmic", None;
    Picture: "picture", "i", "draw the plot as an image or as text", None;
}

impl Acts for Pareto {
    type Act = Act;

    fn why_not(&self, act: Act, cx: &Context) -> Option<&'static str> {
        match act {
            Act::Undo => (!self.has_content() || self.zoom.edits() == 0).then_some(NOTHING_TO_UNDO),
            // the points are only computed while the screen is shown
            _ if cx.tab != Tab::Pareto || self.has_content() => None,
            _ => Some(cx.why_no_run()),
        }
    }

    fn hint(&self, act: Act, cx: &Context) -> Option<HintWords> {
        let is_bare = act == Act::Open && self.no_timeline(cx.stored.as_ref()).is_some();
        is_bare.then_some(HintWords::new("details").shortened("info"))
    }

    fn act(&mut self, act: Act, cx: &mut Context) {
        let plot = layout::plot(self, cx.body());
        let zoom = |pareto: &mut Self, factor| {
            let place = pareto.place().filter(|place| plot.contains(*place));
            let around = place.map_or((0.5, 0.5), |(x, y)| (plot.x.place(x), plot.y.place(y)));
            pareto.zoom.by(&plot, around, factor);
        };
        match act {
            Act::Left => go(self, &plot, Direction::Left),
            Act::Right => go(self, &plot, Direction::Right),
            Act::Up => go(self, &plot, Direction::Up),
            Act::Down => go(self, &plot, Direction::Down),
            Act::Next => step(self, &plot, 1),
            Act::Previous => step(self, &plot, -1),
            Act::Dominating => {
                let by = self.current().and_then(|p| p.dominated_by.clone());
                match by {
                    None => cx.inform("nothing dominates this point"),
                    Some(run) if !self.select(&run) => {
                        let by = self.point(&run);
                        let name = by.map_or(run.clone(), ParetoPoint::cell_label);
                        let hidden = by.map_or("filter", |by| info::hidden_by(self, by));
                        cx.inform(format!("{name} dominates it, but is hidden ({hidden})"));
                    }
                    Some(_) => {}
                }
            }
            Act::CycleX => {
                self.cycle_x();
                if let Some(text) = self.limit_elsewhere() {
                    cx.inform(text);
                }
            }
            Act::CycleY => self.cycle_y(),
            Act::ScaleX | Act::ScaleY => {
                let scales = &mut self.scales;
                let scale = if act == Act::ScaleX { &mut scales.0 } else { &mut scales.1 };
                *scale = next_of(&Scale::ALL, *scale, false);
                let name = if act == Act::ScaleX { "x" } else { "y" };
                let text = format!("{name} axis: {}", scale.word());
                self.zoom.forget();
                cx.inform(text);
            }
            Act::CycleP2p => {
                if !self.cycle_p2p() {
                    cx.inform("all of these points have the same P2P setting");
                }
            }
            Act::Group => self.pick_group(cx),
            Act::Legend => self.show_legend(cx),
            Act::Filter => self.filter.begin(),
            Act::Table => {
                let shown = layout::areas(cx.body(), self).table.height > 0;
                self.table = Some(!shown);
                // where it does not fit below the plot, in a popup
                if !shown && layout::areas(cx.body(), self).table.height == 0 {
                    limit::list_series(self, cx);
                }
            }
            Act::Limit => limit::ask(self, cx),
            Act::Published => self.toggle_published(cx),
            Act::Errors => self.show_errors(cx),
            Act::OverlayFile => self.ask_for_overlay(cx),
            Act::ZoomIn => zoom(self, 0.5),
            Act::ZoomOut => zoom(self, 2.0),
            Act::FitAll => self.zoom.to(None),
            Act::Undo => {
                if !self.zoom.undo() {
                    cx.inform(NOTHING_TO_UNDO);
                }
            }
            Act::Redo => {
                if !self.zoom.redo() {
                    cx.inform("nothing to redo");
                }
            }
            Act::Picture => self.toggle_picture(cx),
            Act::Open => self.open(cx),
        }
    }
}

impl Screen for Pareto {
    fn draw(&self, buf: &mut Buffer, body: Rect, cx: &Context) {
        draw::draw(buf, body, self, cx);
    }

    fn filter(&mut self) -> Option<&mut FilterBox> {
        Some(&mut self.filter)
    }

    fn input(&mut self, input: ScreenInput<'_>, cx: &mut Context) -> bool {
        match input {
            ScreenInput::Step(rows) => self.move_by(rows),
            ScreenInput::Mouse(body, event) => self.point_at(body, event, cx),
            ScreenInput::Narrow => {
                self.arrange();
                self.follow_filter();
            }
            ScreenInput::Close if self.filter.drop_text() => self.arrange(),
            _ => return false,
        }
        true
    }

    fn own_edits(&self) -> Option<OwnEdits> {
        Some(OwnEdits { count: self.zoom.edits(), are_views: true })
    }

    fn has_content(&self) -> bool {
        self.points.as_ref().is_some_and(|points| !points.is_empty())
    }

    fn settle(&mut self, _body: Rect, cx: &mut Context) {
        self.p2p_key = cx.key::<Self>(Act::CycleP2p);
        let Some(runs) = cx.stored.clone() else { return };
        if let Some(record) = self.executed(Some(&runs)) {
            TraceLookup::ask::<Self>(record, cx, |pareto| &mut pareto.trace);
        }
        let (axes, of, told) = (self.axes, runs.clone(), runs.clone());
        let scope = cx.scope.runs();
        cx.follow(
            "points",
            &(axes, self.reading, scope.clone()),
            move |_| {
                let points = points_in(&scope, &of.records, axes);
                Ok((state::trust(&points), state::simulator_errors(&points), points))
            },
            move |pareto: &mut Self, found, cx| {
                if let Some((trust, errors, points)) = cx.ok_or_fail(found) {
                    (pareto.trust, pareto.errors) = (trust, errors);
                    pareto.set(axes, points, told);
                }
            },
        );
        let (revision, shown) = (self.revision, Arc::clone(&self.shown_cells));
        if info::has_headline(self) {
            let (of, shown) = (runs.clone(), shown.clone());
            let work = move |_: &_| compared(revision, of_cells(&of.records, &shown));
            cx.want("headline", &(revision, self.reading), work, |pareto: &mut Self, found, cx| {
                pareto.headline = cx.ok_or_fail(found);
            });
        }
        picture::ask(self, cx);
        let Some(key) = self.area_key() else { return };
        let asked = key.clone();
        let work = move |_: &_| {
            let records = of_cells(&runs.records, &shown);
            Ok(analysis::area_gained(&records, asked.options, Some(&asked.group)))
        };
        cx.want("areas", &(key.clone(), self.reading), work, move |pareto: &mut Self, areas, cx| {
            pareto.areas = cx.ok_or_fail(areas).map(|areas| (key, areas));
        });
    }

    fn react(&mut self, news: &News, _cx: &mut Context) {
        if let News::Runs { now, before } = news {
            self.reading += u64::from(!now.has_runs_of(before.as_ref()));
        }
    }

    fn status(&self, _cx: &Context) -> ScreenStatus {
        ScreenStatus { hints: self.filter.taken(), ..ScreenStatus::default() }
    }

    fn notes(&self, _body: Rect, cx: &Context) -> Vec<ScreenNote> {
        info::notes(self, cx)
    }

    fn selection(&self, _cx: &Context) -> ScreenSelection {
        let run = |point: &ParetoPoint| SelectedRun { spec: point.spec.clone(), run: point.run.clone() };
        let runs = self.visible().map(|point| point.run.clone()).collect::<Vec<_>>();
        let figure = Subject {
            kind: Some(FigureKind::Pareto),
            runs: Some(runs).filter(|runs| !runs.is_empty()),
            axes: self.axes,
            others: self.others().map(|(other, _)| other.clone()).collect(),
            limits: self.limit.into_iter().collect(),
        };
        ScreenSelection { run: self.current().map(run), figure }
    }

    fn command(&self) -> Result<Command, &'static str> {
        let words = command(self).ok_or(NO_COMMAND)?;
        // the command limits the x axis only
        let limit = self.other_limit.map(|(axis, _)| format!("the limit on {}", axis.measure().words));
        Ok(Command { words, beyond: self.filter.beyond().into_iter().chain(limit).collect() })
    }

    fn export(&self, kind: FileKind, cx: &Context) -> Result<Option<Export>, String> {
        let points: Vec<_> = self.visible().cloned().collect();
        if points.is_empty() {
            return Err("nothing to export: no points are shown".into());
        }
        Ok(match kind {
            FileKind::Html => None,
            FileKind::Csv => {
                Some(Export::text(analysis::points_table(&points, self.axes).csv(Sourced::ByRow)))
            }
            FileKind::Svg | FileKind::Png => {
                Some(figures::pareto(cx, points, self.selection(cx).figure))
            }
        })
    }
}

impl Pareto {
    /// Opens the selected point's timeline, or the details of its run if it has none.
    fn open(&self, cx: &mut Context) {
        let stored = cx.stored.clone();
        match self.no_timeline(stored.as_ref()) {
            Some((record, why)) => Runs::show_record(record.clone(), Some(why), cx),
            None => cx.open_runs(self.current().map(|point| point.run.clone())),
        }
    }

    /// Stored run of the selected point if it is not simulated; of several pooled runs, the last.
    fn executed<'a>(&self, stored: Option<&'a Arc<Snapshot>>) -> Option<&'a Record> {
        let point = self.current().filter(|point| !point.spec.backend.is_simulated())?;
        stored?.find(&point.run)
    }

    /// Run of the selected point with the reason why it has no timeline; `None` if it has one.
    fn no_timeline<'a>(&self, stored: Option<&'a Arc<Snapshot>>) -> Option<(&'a Record, String)> {
        let record = self.executed(stored)?;
        Some((record, self.trace.no_timeline(record)?))
    }

    fn point_at(&mut self, body: Rect, event: Pointer, cx: &mut Context) {
        let plot = layout::plot(self, body);
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
                self.drag = None;
                select_at(self, &plot, event.at);
            }
            PointerKind::DoubleClick if inside(event.at) && select_at(self, &plot, event.at) => {
                self.open(cx);
            }
            PointerKind::Drag(from) if inside(from) => {
                self.drag = Some((cell(from), cell(event.at)));
            }
            PointerKind::Drop(from) => {
                self.drag = None;
                let (a, b) = (cell(from), cell(event.at));
                // a smaller drag counts as a click
                if inside(from) && a.0.abs_diff(b.0) >= 3 && a.1.abs_diff(b.1) >= 1 {
                    let ((ax, ay), (bx, by)) = (plot.share(a), plot.share(b));
                    self.zoom.show_shares(&plot, (ax.min(bx), ax.max(bx)), (ay.min(by), ay.max(by)));
                }
            }
            PointerKind::Wheel(notches) if inside(event.at) => {
                let around = plot.share((event.at.x, event.at.y));
                self.zoom.by(&plot, around, if notches < 0 { 0.8 } else { 1.25 });
            }
            _ => {}
        }
    }

    fn pick_group(&self, cx: &mut Context) {
        let filtered = self.left != self.counts;
        let line = |(i, name): (usize, &String)| {
            let of = |counts: &[usize]| counts.get(i).copied().unwrap_or(0);
            let (left, all) = (of(&self.left), counted(of(&self.counts), "point"));
            let points = match filtered {
                // choosing it shows all runs
                true if self.is_out_of_scope(i) => format!("{all} of other experiments"),
                true => format!("{left} of {all}"),
                false => all,
            };
            let shown = if i == self.group { "shown now, " } else { "" };
            (name.clone(), format!("{shown}{points}"))
        };
        let lines = self.titles.iter().enumerate().map(line).collect();
        let pick = Pick::new(
            "show a group of comparable runs",
            lines,
            |_, _| None,
            |state, chosen| {
                let PickResult::Line(at) = chosen else { return };
                // a group chosen by hand is shown, with runs of other experiments if need be
                if state.pareto.is_out_of_scope(at) {
                    state.cx.scope.is_all = true;
                    state.cx.inform("all runs are shown: the scope has none of this group");
                }
                state.pareto.choose_group(at);
            },
        );
        cx.lay(pick.selecting(self.group));
    }

    fn show_legend(&self, cx: &mut Context) {
        let hints = &[("Space", "show or hide"), ("a", "show all"), ("/", "search"), ("Esc", "close")];
        let title = match limit::tie_meanings(self).pop() {
            None => "legend".to_owned(),
            Some(meaning) => format!("legend; {meaning}"),
        };
        cx.lay(Checklist::new(title, hints, self.legend(), |pareto: &mut Self, code, at, _| {
            match code {
                KeyCode::Enter | KeyCode::Char(' ') => pareto.toggle(at),
                KeyCode::Char('a') => {
                    pareto.hidden.clear();
                    pareto.arrange();
                }
                KeyCode::Char('L') => return ChecklistUpdate::Closed,
                _ => return ChecklistUpdate::Nothing,
            }
            ChecklistUpdate::Items(pareto.legend(), at)
        }));
    }

    fn legend(&self) -> Vec<CheckItem> {
        let item = |entry: &state::series::SeriesEntry| CheckItem {
            mark: if entry.hidden { "✕".into() } else { entry.mark() },
            name: entry.series.label(),
            about: format!("{} dominated", glyph(entry.look, entry.series.p2p, true)),
            role: Role::Architecture(entry.look),
        };
        self.entries.iter().map(item).collect()
    }
}

/// Selects the point at a window position, or the nearest within two rows or four columns.
fn select_at(pareto: &mut Pareto, plot: &Plot, at: Position) -> bool {
    let distance = |place: (f64, f64)| {
        let (x, y) = plot.cell(place);
        // a row is about as high as two columns are wide
        x.abs_diff(at.x).saturating_add(y.abs_diff(at.y).saturating_mul(2))
    };
    let (places, selected) = pareto.places();
    let places = places.into_iter().map(|place| place.filter(|place| plot.contains(*place)));
    let near: Vec<(usize, u16)> = places
        .enumerate()
        .filter_map(|(i, place)| Some((i, distance(place?))))
        .filter(|(_, distance)| *distance <= 4)
        .collect();
    let Some(least) = near.iter().map(|(_, distance)| *distance).min() else { return false };
    let mut nearest = near.iter().filter(|(_, distance)| *distance == least).map(|(i, _)| *i);
    // a second click goes to the next of several points there
    let next = nearest.clone().find(|i| *i > selected && nearest.clone().any(|i| i == selected));
    pareto.select_place(next.or_else(|| nearest.next()).unwrap_or(selected));
    true
}

/// Points of all finished cells. Those in scope have frontiers of their own: points outside of it are not shown.
fn points_in(scope: &RunScope, records: &[Record], axes: Axes) -> Vec<ParetoPoint> {
    let points = analysis::pareto_on(records, axes);
    let Some(scope) = scope.runs().filter(|scope| !scope.is_all) else { return points };
    let (mut own, mut others): (Vec<_>, Vec<_>) =
        points.into_iter().partition(|point| scope.holds(&point.run));
    analysis::relate_points(&mut own, axes);
    analysis::relate_points(&mut others, axes);
    own.into_iter().chain(others).collect()
}

/// Records of these cells and of `standard` at the same settings.
fn of_cells(records: &[Record], shown: &[(Spec, Provenance)]) -> Vec<Record> {
    let cells = shown.iter().flat_map(|(spec, provenance)| {
        let baseline = Spec { architecture: Architecture::Standard, ..spec.clone() };
        [(spec.key(), *provenance), (baseline.key(), *provenance)]
    });
    let cells: HashSet<(String, Provenance)> = cells.collect();
    let is_of = |record: &&Record| cells.contains(&(record.spec.key(), record.provenance));
    records.iter().filter(is_of).cloned().collect()
}

/// Headline of the comparison of these runs by architecture.
fn compared(revision: u64, records: Vec<Record>) -> base::error::Result<ParetoHeadline> {
    let axis = Axis::ARCHITECTURE;
    let report = Cells::from_records(&records).compare(&axis, None)?;
    let text = headlines_of_all(&axis, &report);
    let ratio = |pair: &Comparison| (!is_measured_apart(pair)).then_some(pair.speedup);
    let ratios = report.pairs.iter().map(|pair| (pair.run.clone(), ratio(pair))).collect();
    let mut choices = report.pairs.iter().filter(|pair| !pair.is_limit() && !is_measured_apart(pair));
    let has_choice = choices.clone().next().is_some();
    let is_undecided =
        has_choice && (text.contains(RUN_AGAIN) || choices.all(|pair| pair.verdict.is_undecided()));
    let is_noisy = signs_of_noise(records).is_some();
    Ok(ParetoHeadline { revision, text, is_undecided, is_noisy, ratios })
}

/// Command line that prints the same points.
fn command(pareto: &Pareto) -> Option<Vec<String>> {
    let spec = &pareto.current().or_else(|| pareto.visible().next())?.spec;
    let provenance = pareto.current()?.provenance;
    let mut conditions = vec![
        format!("model={}", spec.model),
        format!("dtype={}", spec.dtype),
        format!("prompt_tokens={}", spec.prompt_tokens),
        format!("output_tokens={}", spec.output_tokens),
        format!("hardware={}", spec.hardware),
        format!("backend={}", spec.backend.as_str()),
        format!("stack={}", spec.stack),
        format!("provenance={provenance}"),
    ];
    conditions.extend(pareto.p2p().map(|p2p| format!("p2p={}", p2p.as_str())));
    for entry in pareto.entries.iter().filter(|entry| entry.hidden) {
        // fully hidden architectures become conditions; a single hidden P2P setting cannot be expressed
        let name = entry.series.architecture.to_string();
        let all = pareto.entries.iter().filter(|e| e.series.architecture == entry.series.architecture);
        let condition = format!("architecture!={name}");
        if all.clone().all(|e| e.hidden) && !conditions.contains(&condition) {
            conditions.push(condition);
        }
    }
    conditions.extend(Some(pareto.filter.text().trim().to_owned()).filter(|typed| !typed.is_empty()));
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
    if pareto.axes.has_area() {
        let log = match pareto.logarithmic() {
            (true, true) => Some("--log=xy"),
            (true, false) => Some("--log=x"),
            (false, true) => Some("--log=y"),
            (false, false) => None,
        };
        words.extend(log.map(str::to_string));
        words.push("--area".into());
    }
    words.push("--at".into());
    words.extend(pareto.limit.map(|limit| limit.to_string()));
    Some(words)
}

impl Pareto {
    fn take_overlay(&mut self, file: PathBuf, points: Vec<analysis::OverlayPoint>, cx: &mut Context) {
        let all = points.len();
        self.lay_over(Some(file), points);
        let shown = self.others().filter(|(other, _)| self.overlay.contains(other)).count();
        cx.inform(format!("{shown} of its {all} points go with this group and these axes"));
    }

    fn ask_for_overlay(&mut self, cx: &mut Context) {
        let file = self.overlay_file.as_ref().map(|file| file.display().to_string());
        let columns = analysis::OVERLAY_COLUMNS.join(", ");
        let hint = format!("nothing typed takes its points away; columns: {columns}");
        let title = "overlay points from a CSV file";
        let text = file.unwrap_or_default();
        cx.prompt(PromptCompletion::Paths, title, hint, text, move |pareto: &mut Self, typed, cx| {
            let path = files::expand_home(typed.trim());
            match (typed.trim(), &pareto.overlay_file) {
                ("", None) => return Err(format!("name a CSV file; columns: {columns}")),
                ("", Some(_)) => {
                    cx.forget::<Self>("overlay");
                    pareto.lay_over(None, Vec::new());
                }
                _ => cx.ask(
                    "overlay",
                    move |_| Ok((analysis::read_overlay(&path)?, path)),
                    |pareto: &mut Self, read, cx| {
                        if let Some((points, file)) = cx.ok_or_fail(read) {
                            pareto.take_overlay(file, points, cx);
                        }
                    },
                ),
            }
            Ok(())
        });
    }
}

/// Selects the nearest point in a direction; a zoomed plot scrolls along.
fn go(pareto: &mut Pareto, plot: &Plot, direction: Direction) {
    let (wide, high) = (f64::from(plot.area.width), 2.0 * f64::from(plot.area.height));
    let (places, selected) = pareto.places();
    let place = |(x, y)| (plot.x.share(x) * wide, plot.y.share(y) * high);
    let places: Vec<_> = places.into_iter().map(|at| at.map(place)).collect();
    if let Some(to) = nearest(&places, selected, direction) {
        pareto.select_place(to);
        show_selected(pareto, plot);
    }
}

/// Moves the selection along x; points on one another follow each other.
fn step(pareto: &mut Pareto, plot: &Plot, by: isize) {
    let (places, selected) = pareto.places();
    let (wide, high) = (plot.area.width.saturating_sub(1), plot.area.height.saturating_sub(1));
    // not clamped to the plot: points outside a zoomed window stay apart from those at its edge
    let cell = |share: f64, cells: u16| (share * f64::from(cells)).round() as i64;
    let cell = |(x, y)| (cell(plot.x.share(x), wide), -cell(plot.y.share(y), high));
    let cells: Vec<_> = places.into_iter().map(|at| at.map(cell)).collect();
    let mut order: Vec<usize> = (0..cells.len()).collect();
    order.sort_by_key(|at| cells[*at]);
    if let Some(at) = order.iter().position(|at| *at == selected) {
        pareto.select_place(order[at.saturating_add_signed(by).min(order.len() - 1)]);
        show_selected(pareto, plot);
    }
}

/// Scrolls a zoomed window to the selected point.
fn show_selected(pareto: &mut Pareto, plot: &Plot) {
    let Some((x, y)) = pareto.place() else { return };
    if pareto.zoom.window.is_none() || plot.contains((x, y)) {
        return;
    }
    // as far as needed plus a tenth
    let shift = |share: f64| match share {
        s if s < 0.0 => s - 0.1,
        s if s > 1.0 => s - 0.9,
        _ => 0.0,
    };
    let (dx, dy) = (shift(plot.x.share(x)), shift(plot.y.share(y)));
    pareto.zoom.window = Some(ZoomWindow {
        x: (plot.x.value(dx), plot.x.value(1.0 + dx)),
        y: (plot.y.value(dy), plot.y.value(1.0 + dy)),
    });
}

impl Pareto {
    fn toggle_published(&mut self, cx: &mut Context) {
        if !self.published.is_empty() {
            self.publish(Vec::new());
            return;
        }
        match analysis::published() {
            Ok(points) => {
                self.publish(points);
                if !self.others().any(|(other, _)| other.source == analysis::PUBLISHED) {
                    let text = "no published point has this model, workload and axes: they are of \
                                llama-3-70b and llama-3.1-405b, prompt 1024, output 512";
                    cx.inform(text);
                }
            }
            Err(error) => cx.fail(error.to_string()),
        }
    }

    /// Sets how the terminal shows pictures.
    pub fn set_pictures(&mut self, pictures: pictures::Pictures) {
        self.pictures = pictures;
    }

    fn toggle_picture(&mut self, cx: &mut Context) {
        let pictures = &mut self.pictures;
        if pictures.protocol.is_none() {
            cx.inform(format!(
                "this terminal is not known to show pictures; {}=kitty, sixel, iterm2 or halfblocks says it does",
                pictures::VARIABLE
            ));
            return;
        }
        pictures.on = !pictures.on;
    }
}
