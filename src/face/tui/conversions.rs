//! Overlay with stored results of `convert`: KL against speedup for sets of layers, a list of the sets,
//! and writing a checkpoint with the selected set.

use super::format;
use super::overlay::{Overlay, PlotAreas};
use super::prelude::*;
use super::update::BackgroundJob;
use super::widgets::scatter::{Plot, mark};
use super::widgets::table::{self, TableColumn, TableRows};
use crate::desk::{convert, files};
use base::text::layer_list;
use lab::store::Store;
use model::check_place;
use study::analysis::{Conversion, ConversionPoint, ConversionReport, SetSeries};
use study::plot::series_look;

/// Height of the plot in rows, if the window has room.
const PLOT: u16 = 16;

const COLUMNS: [TableColumn; 8] = [
    TableColumn::number("point", 5, 0),
    TableColumn::text("to", 9, 3),
    TableColumn::text("series", 12, 0),
    TableColumn::number("layers", 6, 0),
    TableColumn::number("kl", 9, 0),
    TableColumn::number("agree", 6, 2),
    TableColumn::number("speedup", 8, 0),
    TableColumn::text("which", 12, 1),
];

pub struct Conversions {
    reports: Vec<ConversionReport>,
    at: usize,
    list: List,
}

pub fn open(cx: &mut Context) {
    let store = Store::open(&cx.dir);
    cx.ask_own(
        "conversions",
        move |_| convert::stored(&store),
        |read, cx| {
            let Some((reports, problems)) = cx.ok_or_fail(read) else { return };
            if let Some(why) = problems.first() {
                cx.fail(why);
            }
            match reports.is_empty() {
                true => cx.inform("no conversion is stored: `ladderscope convert` measures one"),
                false => cx.lay(Conversions { reports, at: 0, list: List::default() }),
            }
        },
    );
}

impl Conversions {
    fn report(&self) -> &ConversionReport {
        &self.reports[self.at]
    }

    fn selected(&self) -> Option<&ConversionPoint> {
        self.report().points.get(self.list.selected)
    }

    fn go(&mut self, by: usize) {
        self.at = (self.at + by) % self.reports.len();
        self.list = List::default();
    }

    fn draw_plot(&self, buf: &mut Buffer, area: Rect, cx: &Context) {
        let (theme, report) = (cx.theme, self.report());
        let place = |point: &ConversionPoint| (point.speedup, point.quality.kl);
        let plot = Plot::new(area, report.points.iter().map(place));
        plot.draw_axes(buf, theme, "speedup", "KL (nats per token)");
        for conversion in Conversion::ALL {
            for series in [SetSeries::Ordered, SetSeries::Greedy, SetSeries::Last] {
                let line: Vec<(f64, f64)> =
                    report.series(conversion, series).into_iter().map(place).collect();
                plot.draw_series(buf, theme, series_look(conversion, series), &line);
            }
        }
        let style = |point: &ConversionPoint| {
            theme.style(Role::Architecture(series_look(point.conversion, point.series)))
        };
        let selected = self.selected().map(|point| (point, theme.style(Role::Selected)));
        for (point, style) in report.points.iter().map(|p| (p, style(p))).chain(selected) {
            let (x, y) = plot.cell(place(point));
            put(buf, plot.area, x, y, glyph(point), style);
        }
    }
}

impl Overlay for Conversions {
    fn draw(&self, buf: &mut Buffer, cx: &Context) {
        let (theme, report, areas) = (cx.theme, self.report(), PlotAreas::new(cx.body(), PLOT, 0.5));
        let of = if self.reports.len() > 1 {
            format!(" {} of {}", self.at + 1, self.reports.len())
        } else {
            String::new()
        };
        popup(buf, areas.whole, &format!("layers to convert{of}: {}", report.model), theme);
        let quality = format!(
            "{} of {}, {}",
            counted(report.windows, "window"),
            counted(report.context, "token"),
            report.text
        );
        let (dim, text) = (theme.style(Role::Dim), theme.style(Role::Text));
        line(buf, areas.head, 0, &[("kl [measured] ", dim), (&quality, text)]);
        line(
            buf,
            areas.head,
            1,
            &[("speedup [simulated] ", theme.style(Role::Warn)), (&report.target_label(), text)],
        );
        if areas.plot.height > 0 {
            self.draw_plot(buf, areas.plot, cx);
        }
        let rows = TableRows::new(&self.list, report.points.len());
        table::draw(buf, areas.list, theme, &COLUMNS, rows, |row, column, _| {
            let point = &report.points[row];
            let shown = match column {
                0 => point.number.to_string(),
                1 => point.conversion.to_string(),
                2 => format!("{} {}", glyph(point), point.series),
                3 => point.layers.len().to_string(),
                4 => format!("{:.4}", point.quality.kl),
                5 => format!("{:.3}", point.quality.agreement),
                6 => format!("{:.3}", point.speedup),
                _ => layer_list(&point.layers),
            };
            let look = theme.style(Role::Architecture(series_look(point.conversion, point.series)));
            table::cell((shown, if column == 2 { look } else { text }))
        });
    }

    fn hints(&self) -> Hints {
        match self.reports.len() {
            1 => &[("Enter", "write a checkpoint"), ("Esc", "close")],
            _ => &[("Enter", "write a checkpoint"), ("← →", "another result"), ("Esc", "close")],
        }
    }

    fn key(mut self: Box<Self>, key: KeyEvent, state: &mut State) -> Option<Box<dyn Overlay>> {
        match key.code {
            KeyCode::Right | KeyCode::Tab => self.go(1),
            KeyCode::Left | KeyCode::BackTab => self.go(self.reports.len() - 1),
            KeyCode::Esc | KeyCode::Char('q') => return None,
            KeyCode::Enter => {
                if let Some(point) = self.selected().cloned() {
                    let report = (self.report().model.clone(), self.report().layers);
                    ask(&mut state.cx, report, point);
                }
            }
            code if self.list.key(code, self.reports[self.at].points.len()) => {}
            _ => state.cx.say_what_closes(),
        }
        Some(self)
    }

    fn scroll(&mut self, rows: isize) {
        self.list.move_by(rows, self.report().points.len());
    }

    fn settle(&mut self, cx: &Context) {
        let rows = usize::from(PlotAreas::new(cx.body(), PLOT, 0.5).list.height.saturating_sub(1));
        self.list.fit(self.report().points.len(), rows);
    }
}

/// Plot mark of a set; hollow for random and single-layer sets, which serve as reference.
fn glyph(point: &ConversionPoint) -> &'static str {
    let hollow = matches!(point.series, SetSeries::Random | SetSeries::Alone);
    mark(series_look(point.conversion, point.series), hollow, hollow)
}

/// Prompts for a directory and writes a checkpoint with the point's layers in the background.
fn ask(cx: &mut Context, (model, layers): (String, u32), point: ConversionPoint) {
    if let Err(error) = convert::recorded_wiring(&point) {
        return cx.fail(format::error(&error));
    }
    let title = format!("write {} to", cut(&point.architecture.to_string(), 40));
    let hint = format!(
        "a directory that is not there yet: the files of {model}, weights linked, the layers in config.json"
    );
    let take = move |state: &mut State, typed: &str| {
        if typed.trim().is_empty() {
            return Err("name a directory".into());
        }
        let (out, model, point) = (files::expand_home(typed.trim()), model.clone(), point.clone());
        check_place(&out).map_err(|error| format::error(&error))?;
        state.cx.perform(Effect::Do(BackgroundJob(Box::new(move || {
            convert::write_stored(&model, layers, &point, &out).map_err(|error| format::error(&error))
        }))));
        Ok(())
    };
    cx.ask_line(Prompt::new(title, hint, String::new(), PromptCompletion::Paths, Box::new(take)));
}
