//! A scatter plot with lines: braille for the lines, a glyph a point, axes that turn logarithmic where
//! the values span more than a factor of ten.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::widgets::Widget;
use ratatui::widgets::canvas::{Canvas, Line};

use super::paint::put;
use crate::tui::format::digits;
use crate::tui::theme::{Role, Theme};

/// Columns of the vertical axis's labels.
const LABELS: u16 = 9;

/// An axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    low: f64,
    high: f64,
    log: bool,
}

impl Axis {
    /// An axis for these values, with a margin; logarithmic where they span more than a factor of ten.
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|v| v.is_finite()) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            return Self { low: 0.0, high: 1.0, log: false };
        }
        let log = low > 0.0 && high / low > 10.0;
        let (low, high) = if log { (low.log10(), high.log10()) } else { (low, high) };
        let margin = match high - low {
            width if width > 0.0 => width * 0.06,
            _ => high.abs().max(1.0) * 0.1,
        };
        Self { low: low - margin, high: high + margin, log }
    }

    /// Where a value lies on it: 0 to 1.
    pub fn place(&self, value: f64) -> f64 {
        let value = if self.log { value.log10() } else { value };
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// The value at a place from 0 to 1.
    fn value(&self, place: f64) -> f64 {
        let value = self.low + place * (self.high - self.low);
        if self.log { 10f64.powf(value) } else { value }
    }

    /// Its name with `(log)` where it is.
    fn title(&self, name: &str) -> String {
        if self.log { format!("{name} (log)") } else { name.into() }
    }
}

/// The axes of a plot and the area between them.
#[derive(Clone, Copy, Debug)]
pub struct Plot {
    /// Where points are.
    pub area: Rect,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
}

impl Plot {
    /// A plot of these points in an area that has room for the axes, too.
    pub fn new(area: Rect, points: impl Iterator<Item = (f64, f64)> + Clone) -> Self {
        let inner = Rect {
            x: area.x.saturating_add(LABELS + 1),
            y: area.y.saturating_add(1),
            width: area.width.saturating_sub(LABELS + 2),
            height: area.height.saturating_sub(3),
        };
        Self { area: inner, x: Axis::of(points.clone().map(|p| p.0)), y: Axis::of(points.map(|p| p.1)) }
    }

    /// The cell of the window that shows a point.
    pub fn cell(&self, point: (f64, f64)) -> (u16, u16) {
        let across = self.x.place(point.0) * f64::from(self.area.width.saturating_sub(1));
        let up = self.y.place(point.1) * f64::from(self.area.height.saturating_sub(1));
        let (across, up) = (across.round() as u16, up.round() as u16);
        (self.area.x + across, (self.area.y + self.area.height.saturating_sub(1)).saturating_sub(up))
    }

    /// Draws axes with ticks and names.
    pub fn draw_axes(&self, buf: &mut Buffer, theme: Theme, x_name: &str, y_name: &str) {
        let (dim, title) = (theme.style(Role::Dim), theme.style(Role::Title));
        let area = self.area;
        let whole = buf.area;
        let left = area.x.saturating_sub(1);
        put(
            buf,
            whole,
            left.saturating_sub(LABELS),
            area.y.saturating_sub(1),
            &self.y.title(y_name),
            title,
        );
        for y in area.y..area.bottom() {
            put(buf, whole, left, y, "│", dim);
        }
        let base = area.bottom();
        put(buf, whole, left, base, "└", dim);
        put(buf, whole, area.x, base, &"─".repeat(usize::from(area.width)), dim);
        let rows = area.height.saturating_sub(1);
        for i in 0..=(rows / 4).min(5) {
            let share = f64::from(i) / f64::from((rows / 4).clamp(1, 5));
            let y = area.bottom().saturating_sub(1 + (share * f64::from(rows)).round() as u16);
            let label = format!("{:>8} ┤", digits(self.y.value(share)));
            put(buf, whole, left.saturating_sub(LABELS), y, &label, dim);
        }
        let columns = area.width.saturating_sub(1);
        let count = (columns / 16).clamp(1, 8);
        for i in 0..count {
            let share = f64::from(i) / f64::from(count);
            let x = area.x + (share * f64::from(columns)).round() as u16;
            put(buf, whole, x, base, "┬", dim);
            put(buf, whole, x, base + 1, &digits(self.x.value(share)), dim);
        }
        let name = self.x.title(x_name);
        let x = area.right().saturating_sub(name.chars().count() as u16);
        put(buf, whole, x, base + 1, &name, title);
    }

    /// Draws a line through points.
    pub fn draw_line(&self, buf: &mut Buffer, style: Style, points: &[(f64, f64)]) {
        let area = self.area.intersection(buf.area);
        if area.is_empty() {
            return;
        }
        // the canvas's cells are centred on points, so a point's glyph lies on its line
        Canvas::default()
            .marker(Marker::Braille)
            .x_bounds([0.0, 1.0])
            .y_bounds([0.0, 1.0])
            .paint(|context| {
                for pair in points.windows(2) {
                    let at = |p: (f64, f64)| (self.x.place(p.0), self.y.place(p.1));
                    let ((x1, y1), (x2, y2)) = (at(pair[0]), at(pair[1]));
                    context.draw(&Line { x1, y1, x2, y2, color: style.fg.unwrap_or(Color::Reset) });
                }
            })
            .render(area, buf);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_turn_logarithmic_beyond_a_factor_of_ten() {
        assert!(!Axis::of([1.0, 9.0].into_iter()).log);
        let axis = Axis::of([1.0, 100.0].into_iter());
        assert!(axis.log && (axis.place(10.0) - 0.5).abs() < 1e-9);
        assert!((axis.value(0.5) - 10.0).abs() < 1e-9);
        let one = Axis::of([5.0].into_iter());
        assert!((one.place(5.0) - 0.5).abs() < 1e-9);
        assert_eq!(Axis::of(std::iter::empty()).place(0.5), 0.5);
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
