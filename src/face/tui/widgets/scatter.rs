//! Scatter plot with lines: braille dots for lines; one glyph per point; the axes of figures.

use ratatui::style::Color;
use ratatui::symbols::Marker;
use ratatui::widgets::Widget;
use ratatui::widgets::canvas::{self, Canvas, Line};

use crate::face::tui::prelude::*;
use study::plot::{self, Marker as Shape, ValueAxis, number};

/// Columns left of the vertical axis, for its labels.
const LABELS: u16 = 9;

/// The same in an area narrower than this.
const NARROW: (u16, u16) = (80, 6);

/// Height below which the horizontal axis carries its labels, and both axes' names share a row.
const LOW: u16 = 12;

/// Mark of a point by its look index: the shape used in figures, filled or hollow, small for less
/// important points.
pub fn mark(look: usize, hollow: bool, small: bool) -> &'static str {
    let glyphs = match plot::look(look).marker {
        Shape::Square => ["■", "□", "▪", "▫"],
        Shape::Up => ["▲", "△", "▴", "▵"],
        Shape::Diamond => ["◆", "◇", "♦", "◊"],
        Shape::Down => ["▼", "▽", "▾", "▿"],
        Shape::Right => ["▶", "▷", "▸", "▹"],
        Shape::Left => ["◀", "◁", "◂", "◃"],
        Shape::Star => ["★", "☆", "✦", "✧"],
        Shape::Bar => ["▬", "▭", "▬", "▭"],
        Shape::Pillar => ["▮", "▯", "▮", "▯"],
        Shape::Slant => ["▰", "▱", "▰", "▱"],
        Shape::Corner => ["◣", "◺", "◣", "◺"],
        Shape::Circle | Shape::Pentagon | Shape::Hexagon => ["●", "○", "•", "◦"],
    };
    glyphs[usize::from(hollow) + 2 * usize::from(small)]
}

/// Ticks of an axis: about `most`, and at least three.
fn ticks(axis: &ValueAxis, most: usize) -> Vec<f64> {
    let more = (most..most + 8).map(|most| axis.ticks(most)).find(|ticks| ticks.len() >= 3);
    more.unwrap_or_else(|| axis.ticks(most))
}

/// Axis name, with `(log)` if logarithmic.
pub fn titled(axis: &ValueAxis, name: &str) -> String {
    if axis.is_log() { format!("{name} (log)") } else { name.into() }
}

#[derive(Clone, Copy, Debug)]
pub struct Plot {
    pub area: Rect,
    pub x: ValueAxis,
    pub y: ValueAxis,
    /// Divisor of horizontal labels: 1000 for values in ms labelled in seconds.
    pub divided: f64,
    /// Columns of the vertical axis' labels.
    pub labels: u16,
    /// True if labels are on the horizontal axis.
    pub is_low: bool,
}

impl Plot {
    /// Creates a plot of these points; `area` includes the axes.
    pub fn new(area: Rect, points: impl Iterator<Item = (f64, f64)> + Clone) -> Self {
        let (narrow, few) = NARROW;
        let (labels, is_low) = (if area.width < narrow { few } else { LABELS }, area.height < LOW);
        let inner = Rect {
            x: area.x.saturating_add(labels + 1),
            y: area.y.saturating_add(1),
            width: area.width.saturating_sub(labels + 2),
            height: area.height.saturating_sub(if is_low { 2 } else { 3 }),
        };
        let (x, y) = (ValueAxis::fit(points.clone().map(|p| p.0)), ValueAxis::fit(points.map(|p| p.1)));
        Self { area: inner, x, y, divided: 1.0, labels, is_low }
    }

    /// Text above the vertical axis: its name, in a low plot also that of the horizontal axis.
    pub fn heading(&self, x_name: &str, y_name: &str) -> String {
        let y = titled(&self.y, y_name);
        if self.is_low { format!("{y} over {}", titled(&self.x, x_name)) } else { y }
    }

    pub fn contains(&self, point: (f64, f64)) -> bool {
        self.x.contains(point.0) && self.y.contains(point.1)
    }

    /// Position of a cell as fractions of the area, from the lower left.
    pub fn share(&self, (x, y): (u16, u16)) -> (f64, f64) {
        let of = |at: u16, from: u16, length: u16| {
            f64::from(at.saturating_sub(from).min(length.saturating_sub(1)))
                / f64::from(length.saturating_sub(1).max(1))
        };
        (of(x, self.area.x, self.area.width), 1.0 - of(y, self.area.y, self.area.height))
    }

    pub fn cell(&self, point: (f64, f64)) -> (u16, u16) {
        self.cell_at(self.x.share(point.0), self.y.share(point.1))
    }

    /// Cell at shares of the area, from the lower left.
    fn cell_at(&self, x: f64, y: f64) -> (u16, u16) {
        let across = x.clamp(0.0, 1.0) * f64::from(self.area.width.saturating_sub(1));
        let up = y.clamp(0.0, 1.0) * f64::from(self.area.height.saturating_sub(1));
        let (across, up) = (across.round() as u16, up.round() as u16);
        (self.area.x + across, (self.area.y + self.area.height.saturating_sub(1)).saturating_sub(up))
    }

    pub fn draw_axes(&self, buf: &mut Buffer, theme: Theme, x_name: &str, y_name: &str) {
        let (dim, title) = (theme.style(Role::Dim), theme.style(Role::Title));
        let area = self.area;
        let whole = buf.area;
        let left = area.x.saturating_sub(1);
        let first = left.saturating_sub(self.labels - 1);
        put(buf, whole, first, area.y.saturating_sub(1), &self.heading(x_name, y_name), title);
        for y in area.y..area.bottom() {
            put(buf, whole, left, y, "│", dim);
        }
        let base = area.bottom();
        put(buf, whole, left, base, "└", dim);
        put(buf, whole, area.x, base, &"─".repeat(usize::from(area.width)), dim);
        for tick in ticks(&self.y, usize::from(area.height / 4).clamp(2, 8)) {
            let (_, y) = self.cell((0.0, tick));
            let label = format!("{} ┤", number(tick));
            put(buf, whole, (left + 1).saturating_sub(label.width() as u16), y, &label, dim);
        }
        // the label of the first tick may begin left of the plot
        let (mut free, below) = (area.x.saturating_sub(self.labels), u16::from(!self.is_low));
        for tick in ticks(&self.x, usize::from(area.width / 12).clamp(2, 12)) {
            let (x, _) = self.cell((tick, 0.0));
            put(buf, whole, x, base, "┬", dim);
            let label = number(tick / self.divided);
            let wide = label.chars().count() as u16;
            let from = x.saturating_sub(wide / 2);
            // labels keep clear of each other
            if from >= free && from + wide <= whole.right() {
                put(buf, whole, from, base + below, &label, dim);
                free = from + wide + 2;
            }
        }
        if self.is_low {
            return;
        }
        // on the axis, so that it covers no label
        let name = format!(" {} ", titled(&self.x, x_name));
        let x = area.right().saturating_sub(name.chars().count() as u16 + 1);
        put(buf, whole, x, base, &name, title);
    }

    /// Draws a series' line by its look index: in colour, or with marks on themes without colours.
    pub fn draw_series(&self, buf: &mut Buffer, theme: Theme, look: usize, points: &[(f64, f64)]) {
        self.draw_lines(buf, &[self.series(theme, look, false, points.to_vec())]);
    }

    /// Line of a series, for [`Self::draw_lines`]; without colours, small marks of its look distinguish it.
    pub fn series(
        &self,
        theme: Theme,
        look: usize,
        is_hollow: bool,
        points: Vec<(f64, f64)>,
    ) -> PlotLine {
        let marked = match theme.tells_series() {
            true => Vec::new(),
            false => self.cells_along(&points, 3.0 + (2 * look) as f64 % BETWEEN_MARKS),
        };
        let style = theme.style(Role::Architecture(look));
        PlotLine { style, mark: mark(look, is_hollow, true), marked, points }
    }

    /// Cells along a line, [`BETWEEN_MARKS`] columns apart; the first is `from` columns after its begin.
    fn cells_along(&self, points: &[(f64, f64)], from: f64) -> Vec<(u16, u16)> {
        let (mut next, mut cells) = (from, Vec::new());
        for pair in points.windows(2) {
            let [(x1, y1), (x2, y2)] =
                [pair[0], pair[1]].map(|(x, y)| (self.x.share(x), self.y.share(y)));
            let wide = (x2 - x1) * f64::from(self.area.width);
            // a row is about as high as two columns are wide
            let length = wide.hypot((y2 - y1) * f64::from(self.area.height) * 2.0);
            // far outside a zoomed window, marks are of no use
            if length.is_nan() || length > MOST_MARKED {
                continue;
            }
            while next < length {
                let along = |a: f64, b: f64| a + (b - a) * next / length;
                let (x, y) = (along(x1, x2), along(y1, y2));
                if (0.0..=1.0).contains(&x) && (0.0..=1.0).contains(&y) {
                    cells.push(self.cell_at(x, y));
                }
                next += BETWEEN_MARKS;
            }
            next -= length;
        }
        cells
    }

    /// Draws lines on one canvas, so that those that share a cell all stay visible; their marks cover them.
    pub fn draw_lines(&self, buf: &mut Buffer, lines: &[PlotLine]) {
        let area = self.area.intersection(buf.area);
        if area.is_empty() {
            return;
        }
        // the canvas paints its whole area, so pass on the existing background
        let ground = buf[(area.x, area.y)].bg;
        Canvas::default()
            .background_color(ground)
            .marker(Marker::Braille)
            .x_bounds(centred_bounds(area.width, 2.0))
            .y_bounds(centred_bounds(area.height, 4.0))
            .paint(|context| {
                for line in lines {
                    self.paint(context, line);
                }
            })
            .render(area, buf);
        for line in lines {
            line.marked.iter().for_each(|(x, y)| _ = put(buf, area, *x, *y, line.mark, line.style));
        }
    }

    fn paint(&self, context: &mut canvas::Context<'_>, line: &PlotLine) {
        for pair in line.points.windows(2) {
            // the canvas clips what is outside
            let [(x1, y1), (x2, y2)] =
                [pair[0], pair[1]].map(|(x, y)| (self.x.share(x), self.y.share(y)));
            let color = line.style.fg.unwrap_or(Color::Reset);
            context.draw(&Line { x1, y1, x2, y2, color });
        }
    }
}

/// Canvas bounds of so many cells with so many dots each, such that shares 0 and 1 are the centres of the first and the last
/// cell, as in [`Plot::cell`]: a line passes through the glyphs of its points.
fn centred_bounds(cells: u16, dots: f64) -> [f64; 2] {
    // half a cell less half a dot beyond either centre
    let beyond = (dots - 1.0) / 2.0 / (dots * f64::from(cells.saturating_sub(1).max(1)));
    [-beyond, 1.0 + beyond]
}

#[derive(Clone, Debug)]
pub struct PlotLine {
    style: Style,
    /// Mark drawn over the line in the cells of `marked`.
    mark: &'static str,
    marked: Vec<(u16, u16)>,
    /// In units of the axes.
    points: Vec<(f64, f64)>,
}

impl PlotLine {
    pub fn unmarked(style: Style, points: &[(f64, f64)]) -> Self {
        Self { style, mark: "", marked: Vec::new(), points: points.to_vec() }
    }
}

/// Columns between the marks of a line.
const BETWEEN_MARKS: f64 = 10.0;

/// Maximum length of a segment with marks, in columns.
const MOST_MARKED: f64 = 10_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_colours_each_line_has_the_marks_of_its_look() {
        let points = [(1.0, 1.0), (2.0, 3.0), (9.0, 4.0)];
        let plot = Plot::new(Rect::new(0, 0, 60, 20), points.into_iter());
        let drawn = |theme: Theme, look, is_hollow| {
            let mut buf = Buffer::empty(Rect::new(0, 0, 60, 20));
            plot.draw_lines(&mut buf, &[plot.series(theme, look, is_hollow, points.to_vec())]);
            buf.content.iter().map(|cell| cell.symbol()).collect::<String>()
        };
        for (look, is_hollow, mark) in [(0, false, "•"), (1, false, "▪"), (1, true, "▫")] {
            let marks = drawn(Theme::new(false), look, is_hollow).matches(mark).count();
            assert!(marks > 3, "{marks} {mark}");
            assert!(!drawn(Theme::new(true), look, is_hollow).contains(mark), "colours do");
        }
        let far = [(1.0, 1.0), (f64::INFINITY, 2.0), (1e300, 3.0), (2.0, 2.0)];
        assert!(plot.cells_along(&far, 0.0).len() < 100);
    }

    #[test]
    fn a_line_passes_through_the_cells_of_its_points() {
        for (width, height) in [(60, 16), (67, 21), (120, 40)] {
            let area = Rect::new(0, 0, width, height);
            let ends = [(0.0, 0.0), (1000.0, 1000.0)];
            for step in 0..=97 {
                let place = (f64::from(step) * 1000.0 / 97.0, f64::from(97 - step) * 1000.0 / 97.0);
                let plot = Plot::new(area, ends.into_iter());
                let mut buf = Buffer::empty(area);
                // a line of no length is a dot
                plot.draw_lines(&mut buf, &[PlotLine::unmarked(Style::new(), &[place, place])]);
                let symbol = buf[plot.cell(place)].symbol();
                assert!(symbol > "\u{2800}", "{place:?} is beside its line at {width}x{height}");
            }
        }
    }

    #[test]
    fn points_stay_inside() {
        let points = [(1.0, 2.0), (3.0, 1000.0), (2.0, 5.0)];
        let plot = Plot::new(Rect::new(0, 0, 40, 12), points.into_iter());
        for point in points {
            let (x, y) = plot.cell(point);
            assert!(plot.area.contains((x, y).into()), "{x} {y} {:?}", plot.area);
        }
    }
}
