//! Overlay with the stored trainings: curves comparable to the selected one, and a list of all. Running
//! trainings are reread periodically so that their curves grow.

use std::collections::BTreeMap;

use super::overlay::{Overlay, PlotAreas};
use super::prelude::*;
use super::widgets::scatter::{Plot, mark};
use super::widgets::table::{self, TableColumn, TableRows};
use ::table::{Curve, Status};
use base::text::{file_name, without_middle};
use lab::store::Store;
use plan::Architecture;
use study::analysis::{ArchitectureCurve, training_sets};
use study::plot::look_numbers;

/// Height of the plot in rows, if the window has room.
const PLOT: u16 = 18;

/// Reread interval of running trainings (ms).
const AGAIN: u64 = 2000;

const COLUMNS: [TableColumn; 10] = [
    TableColumn::text("", 2, 0),
    TableColumn::text("architecture", 14, 0),
    TableColumn::number("seed", 4, 2),
    TableColumn::text("model", 18, 3),
    TableColumn::number("steps", 11, 0),
    TableColumn::number("loss", 7, 0),
    TableColumn::number("held-out", 8, 0),
    TableColumn::number("kl", 7, 1),
    TableColumn::number("tok/s", 7, 2),
    TableColumn::text("id", 12, 4),
];

pub struct Trainings {
    all: Vec<Curve>,
    list: List,
    /// True to plot training steps instead of held-out evaluations.
    steps: bool,
    read_ms: u64,
}

pub fn open(cx: &mut Context) {
    ask(cx, true);
}

fn ask(cx: &mut Context, opens: bool) {
    let store = Store::open(&cx.dir);
    cx.ask_own(
        "trainings",
        move |_| store.trainings(),
        move |read, cx| {
            let Some((all, problems)) = cx.ok_or_fail(read) else { return };
            if let Some(why) = problems.first().filter(|_| opens) {
                cx.fail(why);
            }
            let read_ms = cx.now_ms;
            match cx.top_mut::<Trainings>() {
                Some(shown) => shown.take(all, read_ms),
                None if !opens => {}
                None if all.is_empty() => {
                    cx.inform("no training is stored: `ladderscope adapt` makes one")
                }
                None => cx.lay(Trainings { all, list: List::default(), steps: false, read_ms }),
            }
        },
    );
}

impl Trainings {
    fn selected(&self) -> Option<&Curve> {
        self.all.get(self.list.selected)
    }

    fn looks(&self) -> BTreeMap<Architecture, usize> {
        look_numbers(self.all.iter().map(|one| &one.training.spec.architecture))
    }

    fn is_under_way(&self) -> bool {
        self.all.iter().any(|one| one.training.status == Status::Running)
    }

    /// Replaces the trainings, keeping the selected one.
    fn take(&mut self, all: Vec<Curve>, read_ms: u64) {
        let id = self.selected().map(|one| one.training.id.clone());
        let at = all.iter().position(|one| Some(&one.training.id) == id.as_ref());
        self.list.selected = at.unwrap_or(0);
        (self.all, self.read_ms) = (all, read_ms);
    }

    /// Draws the curves of the selected training's set: one line per architecture over its seeds, with
    /// marks for the selected training.
    fn draw_plot(&self, buf: &mut Buffer, area: Rect, selected: &Curve, cx: &Context) {
        let theme = cx.theme;
        let spec = selected.training.spec.set();
        let Some(set) = training_sets(&self.all).into_iter().find(|set| set.spec == spec) else {
            return line(buf, area, 0, &[("no step was done yet", theme.style(Role::Dim))]);
        };
        let looks = self.looks();
        let look = |architecture: &Architecture| looks.get(architecture).copied().unwrap_or_default();
        let series = |curve: &ArchitectureCurve| -> (usize, Vec<(f64, f64)>) {
            let points = match self.steps {
                true => curve.loss.iter().map(|(step, loss)| (f64::from(*step), *loss)).collect(),
                false => curve.held_out.iter().map(|at| (f64::from(at.step), at.nll)).collect(),
            };
            (look(&curve.architecture), points)
        };
        let lines: Vec<_> = set.curves.iter().map(series).collect();
        let own: Vec<(f64, f64)> = match self.steps {
            true => Vec::new(),
            false => {
                selected.held_out().iter().map(|(step, lost)| (f64::from(*step), lost.nll)).collect()
            }
        };
        let all = lines.iter().flat_map(|(_, points)| points).chain(&own).copied();
        let plot = Plot::new(area, all.collect::<Vec<_>>().into_iter());
        let name = if self.steps { "loss (nats per token)" } else { "held-out text (nats per token)" };
        plot.draw_axes(buf, theme, "steps", name);
        for (look, points) in &lines {
            plot.draw_series(buf, theme, *look, points);
        }
        let mark = mark(look(&selected.training.spec.architecture), false, true);
        for point in own {
            let (x, y) = plot.cell(point);
            put(buf, plot.area, x, y, mark, theme.style(Role::Selected));
        }
    }
}

impl Overlay for Trainings {
    fn draw(&self, buf: &mut Buffer, cx: &Context) {
        let (theme, areas) = (cx.theme, PlotAreas::new(cx.body(), PLOT, 0.6));
        let Some(selected) = self.selected() else { return };
        let training = &selected.training;
        let spec = &training.spec;
        let of = format!("{} of {}", self.list.selected + 1, self.all.len());
        popup(buf, areas.whole, &format!("trainings {of}: {}", spec.label()), theme);
        let (dim, text) = (theme.style(Role::Dim), theme.style(Role::Text));
        let trained = if spec.from_scratch { "from scratch" } else { "retrained" };
        let miniature = if training.miniature { ", a miniature" } else { "" };
        let about = format!(
            "{trained} on {}: {} windows of {} tokens per step, {:.1} M parameters{miniature}",
            file_name(&spec.text),
            spec.batch,
            spec.context,
            training.trained_parameters as f64 / 1e6,
        );
        line(buf, areas.head, 0, &[("[measured on cpu] ", dim), (&about, text)]);
        line(buf, areas.head, 1, &[("", text), (&training_outcome(selected), text)]);
        if areas.plot.height > 3 {
            self.draw_plot(buf, areas.plot, selected, cx);
        }
        let looks = self.looks();
        let rows = TableRows::new(&self.list, self.all.len());
        table::draw(buf, areas.list, theme, &COLUMNS, rows, |row, column, _| {
            let one = &self.all[row];
            let (training, number) = (&one.training, |value: Option<f64>| {
                value.map_or("-".to_owned(), |value| format!("{value:.4}"))
            });
            let look = looks.get(&training.spec.architecture).copied().unwrap_or_default();
            let shown = match column {
                0 => training.status.glyph().to_owned(),
                1 => format!("{} {}", mark(look, false, false), training.spec.architecture),
                2 => training.spec.seed.to_string(),
                3 => without_middle(&file_name(&training.spec.model), 18),
                4 => format!("{}/{}", one.curve.len(), training.spec.steps),
                5 => number(one.last_loss()),
                6 => {
                    number(training.after.map(|q| q.nll).or_else(|| Some(one.held_out().last()?.1.nll)))
                }
                7 => number(training.after.map(|q| q.kl).filter(|_| !training.spec.from_scratch)),
                8 => training.speed.map_or("-".into(), |speed| format!("{:.0}", speed.tokens_per_s)),
                _ => training.id.clone(),
            };
            table::cell((shown, if column == 1 { theme.style(Role::Architecture(look)) } else { text }))
        });
    }

    fn hints(&self) -> Hints {
        match self.steps {
            true => &[("↑ ↓", "select"), ("s", "the held-out text's loss"), ("Esc", "close")],
            false => &[("↑ ↓", "select"), ("s", "loss of each step"), ("Esc", "close")],
        }
    }

    fn key(mut self: Box<Self>, key: KeyEvent, state: &mut State) -> Option<Box<dyn Overlay>> {
        match key.code {
            KeyCode::Esc | KeyCode::Char('q') => return None,
            KeyCode::Char('s') => self.steps = !self.steps,
            code if self.list.key(code, self.all.len()) => {}
            _ => state.cx.say_what_closes(),
        }
        Some(self)
    }

    fn scroll(&mut self, rows: isize) {
        self.list.move_by(rows, self.all.len());
    }

    fn settle(&mut self, cx: &Context) {
        let rows = usize::from(PlotAreas::new(cx.body(), PLOT, 0.6).list.height.saturating_sub(1));
        self.list.fit(self.all.len(), rows);
    }

    fn tick(&mut self, cx: &mut Context) {
        if self.is_under_way() && cx.now_ms >= self.read_ms + AGAIN {
            self.read_ms = cx.now_ms;
            ask(cx, false);
        }
    }
}

fn training_outcome(one: &Curve) -> String {
    let training = &one.training;
    let speed = training.speed.map_or(String::new(), |speed| {
        let share = speed.gemm_share.map(|share| format!(", {:.0} % of the GEMM's peak", 100.0 * share));
        format!(", {:.0} tokens/s{}", speed.tokens_per_s, share.unwrap_or_default())
    });
    match (training.status, training.before, training.after) {
        (Status::Ok, Some(before), Some(after)) => format!(
            "NLL {:.4} -> {:.4}, KL {:.4} -> {:.4} nats per token of held-out text{speed}",
            before.nll, after.nll, before.kl, after.kl
        ),
        (Status::Ok, None, Some(after)) => {
            format!("NLL {:.4} nats per token of held-out text{speed}", after.nll)
        }
        (Status::Failed, ..) => training.reason.clone().unwrap_or_else(|| "failed".into()),
        (status, ..) => format!(
            "{} at step {} of {}, checkpoint after {}{speed}",
            status.as_str(),
            one.curve.len(),
            training.spec.steps,
            training.step
        ),
    }
}
