//! Scatter plot with lines: quadrant characters for lines, which every font has; one glyph per point;
//! ticks at round numbers; logarithmic axes on request or if the values span more than a factor of ten.

use ratatui::style::Color;
use ratatui::symbols::Marker;
use ratatui::widgets::Widget;
use ratatui::widgets::canvas::{Canvas, Line};

use crate::face::tui::prelude::*;
use study::plot::{self, Marker as Shape};

const LABELS: u16 = 9;

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
        Shape::Circle | Shape::Pentagon | Shape::Hexagon => ["●", "○", "•", "◦"],
    };
    glyphs[usize::from(hollow) + 2 * usize::from(small)]
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    low: f64,
    high: f64,
    log: bool,
    /// Divisor of tick labels: 1000 for values in ms labelled in seconds.
    divided: f64,
}

impl Axis {
    /// Creates an axis for these values with a margin; logarithmic if they span more than a factor of ten.
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|v| v.is_finite()) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            return Self { low: 0.0, high: 1.0, log: false, divided: 1.0 };
        }
        Self::around((low, high), low > 0.0 && high / low > 10.0)
    }

    /// Creates an axis around a range, with a margin.
    pub fn around((low, high): (f64, f64), log: bool) -> Self {
        if low > high {
            return Self { low: 0.0, high: 1.0, log: false, divided: 1.0 };
        }
        let log = log && low > 0.0;
        let (low, high) = if log { (low.log10(), high.log10()) } else { (low, high) };
        let margin = match high - low {
            width if width > 0.0 => width * 0.06,
            _ => high.abs().max(1.0) * 0.1,
        };
        Self { low: low - margin, high: high + margin, log, divided: 1.0 }
    }

    /// Creates an axis over exactly this range.
    pub fn exact((low, high): (f64, f64), log: bool) -> Self {
        let log = log && low > 0.0;
        let (low, high) = if log { (low.log10(), high.log10()) } else { (low, high) };
        Self { low, high: high.max(low + f64::EPSILON), log, divided: 1.0 }
    }

    pub fn divided_by(self, divided: f64) -> Self {
        Self { divided, ..self }
    }

    /// Position of a value, clamped to 0 to 1.
    pub fn place(&self, value: f64) -> f64 {
        self.share(value).clamp(0.0, 1.0)
    }

    /// Position of a value; outside 0 to 1 if beyond an end.
    pub fn share(&self, value: f64) -> f64 {
        let value = if self.log { value.max(f64::MIN_POSITIVE).log10() } else { value };
        (value - self.low) / (self.high - self.low)
    }

    pub fn contains(&self, value: f64) -> bool {
        (-1e-9..=1.0 + 1e-9).contains(&self.share(value))
    }

    /// Round values for ticks, ascending; about `most` or fewer.
    pub fn ticks(&self, most: usize) -> Vec<f64> {
        let (low, high) = (self.value(0.0), self.value(1.0));
        let decade = |e: i32| 10f64.powi(e);
        if self.log {
            let (from, to) = (low.log10().floor() as i32, high.log10().ceil() as i32);
            for digits in [&[1.0, 2.0, 3.0, 4.0, 6.0, 8.0][..], &[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]] {
                let all = (from..=to).flat_map(|e| digits.iter().map(move |d| d * decade(e)));
                let ticks: Vec<f64> = all.filter(|tick| self.contains(*tick)).collect();
                if ticks.len() <= most.max(2) && ticks.len() >= 2 {
                    return ticks;
                }
            }
        }
        let raw = (high - low) / most.max(1) as f64;
        if !raw.is_finite() || raw <= 0.0 {
            return Vec::new();
        }
        let base = decade(raw.log10().floor() as i32);
        let step = [1.0, 2.0, 5.0, 10.0].map(|d| d * base).into_iter().find(|s| *s >= raw * 0.999);
        let step = step.unwrap_or(10.0 * base);
        let (first, last) = ((low / step).ceil(), (high / step).floor());
        (0..=(last - first).clamp(0.0, 1000.0) as u32).map(|n| (first + f64::from(n)) * step).collect()
    }

    pub fn value(&self, place: f64) -> f64 {
        let value = self.low + place * (self.high - self.low);
        if self.log { 10f64.powf(value) } else { value }
    }

    /// Axis name, with `(log)` if logarithmic.
    pub fn title(&self, name: &str) -> String {
        if self.log { format!("{name} (log)") } else { name.into() }
    }
}

/// Formats a tick label with only the digits it needs.
fn round(value: f64) -> String {
    if value == 0.0 || value.abs() >= 1e7 || value.abs() < 1e-5 {
        return if value == 0.0 { "0".into() } else { format!("{value:e}") };
    }
    let decimals = (5 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Plot {
    pub area: Rect,
    pub x: Axis,
    pub y: Axis,
}

impl Plot {
    /// Creates a plot of these points; `area` includes the axes.
    pub fn new(area: Rect, points: impl Iterator<Item = (f64, f64)> + Clone) -> Self {
        let inner = Rect {
            x: area.x.saturating_add(LABELS + 1),
            y: area.y.saturating_add(1),
            width: area.width.saturating_sub(LABELS + 2),
            height: area.height.saturating_sub(3),
        };
        Self { area: inner, x: Axis::of(points.clone().map(|p| p.0)), y: Axis::of(points.map(|p| p.1)) }
    }

    pub fn with(self, x: Axis, y: Axis) -> Self {
        Self { x, y, ..self }
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
        let across = self.x.place(point.0) * f64::from(self.area.width.saturating_sub(1));
        let up = self.y.place(point.1) * f64::from(self.area.height.saturating_sub(1));
        let (across, up) = (across.round() as u16, up.round() as u16);
        (self.area.x + across, (self.area.y + self.area.height.saturating_sub(1)).saturating_sub(up))
    }

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
        for tick in self.y.ticks(usize::from(area.height / 4).clamp(2, 8)) {
            let (_, y) = self.cell((0.0, tick));
            let label = format!("{:>8} ┤", round(tick / self.y.divided));
            put(buf, whole, left.saturating_sub(LABELS), y, &label, dim);
        }
        let mut free = area.x;
        let end = area.right().saturating_sub(self.x.title(x_name).chars().count() as u16 + 2);
        for tick in self.x.ticks(usize::from(area.width / 12).clamp(2, 12)) {
            let (x, _) = self.cell((tick, 0.0));
            put(buf, whole, x, base, "┬", dim);
            let label = round(tick / self.x.divided);
            let wide = label.chars().count() as u16;
            let from = x.saturating_sub(wide / 2);
            // labels keep clear of each other and of the axis name
            if from >= free && from + wide <= end {
                put(buf, whole, from, base + 1, &label, dim);
                free = from + wide + 2;
            }
        }
        let name = self.x.title(x_name);
        let x = area.right().saturating_sub(name.chars().count() as u16);
        put(buf, whole, x, base + 1, &name, title);
    }

    pub fn draw_line(&self, buf: &mut Buffer, style: Style, points: &[(f64, f64)]) {
        self.draw_dashed(buf, style, points, Dash::default());
    }

    /// Draws a series' line by its look index: in colour, or dashed on themes without colours.
    pub fn draw_series(&self, buf: &mut Buffer, theme: Theme, look: usize, points: &[(f64, f64)]) {
        let dash = if theme.tells_series() { Dash::default() } else { Dash::of_look(look) };
        self.draw_dashed(buf, theme.style(Role::Architecture(look)), points, dash);
    }

    /// Draws a dashed line; the dashes continue across its segments.
    fn draw_dashed(&self, buf: &mut Buffer, style: Style, points: &[(f64, f64)], dash: Dash) {
        let area = self.area.intersection(buf.area);
        if area.is_empty() {
            return;
        }
        // the canvas paints its whole area, so pass on the existing background
        let ground = buf[(area.x, area.y)].bg;
        // cell centres match the points, so a glyph is on its line
        Canvas::default()
            .background_color(ground)
            .marker(Marker::Quadrant)
            .x_bounds([0.0, 1.0])
            .y_bounds([0.0, 1.0])
            .paint(|context| {
                let mut run = 0.0;
                for pair in points.windows(2) {
                    // the canvas clips what is outside
                    let at = |p: (f64, f64)| (self.x.share(p.0), self.y.share(p.1));
                    let ((x1, y1), (x2, y2)) = (at(pair[0]), at(pair[1]));
                    // a row is about as high as two columns are wide
                    let wide = (x2 - x1) * f64::from(area.width);
                    let high = (y2 - y1) * f64::from(area.height) * 2.0;
                    let length = wide.hypot(high);
                    for (from, to) in dash.within(run, length) {
                        let along = |a: f64, b: f64, share: f64| a + (b - a) * share;
                        let color = style.fg.unwrap_or(Color::Reset);
                        let [(x1, y1), (x2, y2)] =
                            [from, to].map(|share| (along(x1, x2, share), along(y1, y2, share)));
                        context.draw(&Line { x1, y1, x2, y2, color });
                    }
                    run += length;
                }
            })
            .render(area, buf);
    }
}

/// Maximum dashes per segment; a longer segment is drawn solid.
const MOST_DASHES: f64 = 1000.0;

/// Dash pattern: `on` columns drawn, `off` columns skipped; solid if `off` is 0. Distinguishes lines
/// without colours.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Dash {
    on: f64,
    off: f64,
}

impl Dash {
    /// Dash pattern by look index; the first is solid.
    fn of_look(look: usize) -> Self {
        let all = [(0.0, 0.0), (4.0, 3.0), (1.0, 3.0), (8.0, 3.0), (1.0, 1.5), (6.0, 6.0), (2.0, 6.0)];
        let (on, off) = all[look % all.len()];
        Self { on, off }
    }

    /// Dashes of a segment `length` columns long that starts `run` columns into the line, as fractions
    /// of the segment.
    fn within(self, run: f64, length: f64) -> Vec<(f64, f64)> {
        let period = self.on + self.off;
        if self.off <= 0.0 || !length.is_finite() || length <= 0.0 || length > MOST_DASHES * period {
            return vec![(0.0, 1.0)];
        }
        let first = (run / period).floor();
        let dashes = (0..).map(|at| (first + f64::from(at)) * period - run);
        let dashes = dashes.take_while(|from| *from < length).map(|from| (from, from + self.on));
        let dashes = dashes.filter(|(_, to)| *to > 0.0);
        dashes.map(|(from, to)| (from.max(0.0) / length, to.min(length) / length)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashes_go_on_over_the_corners_of_a_line() {
        let dash = Dash { on: 4.0, off: 2.0 };
        assert_eq!(dash.within(0.0, 8.0), [(0.0, 0.5), (0.75, 1.0)]);
        assert_eq!(dash.within(8.0, 4.0), [(0.0, 0.5)], "the dash that began before the corner");
        assert_eq!(dash.within(4.0, 1.0), [], "a gap");
        assert_eq!(Dash::default().within(3.0, 5.0), [(0.0, 1.0)]);
        assert_eq!(dash.within(0.0, f64::NAN), [(0.0, 1.0)]);
    }

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
    fn ticks_are_round_and_lie_on_the_axis() {
        let ticks = |low, high, log| {
            let axis = Axis::exact((low, high), log);
            axis.ticks(6).into_iter().map(round).collect::<Vec<_>>()
        };
        assert_eq!(ticks(0.0, 100.0, false), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(ticks(3.0, 300.0, true), ["5", "10", "20", "50", "100", "200"]);
        assert_eq!(ticks(4655.0, 23766.0, true), ["6000", "8000", "10000", "20000"]);
        assert_eq!(ticks(1.02, 1.09, true), ["1.02", "1.04", "1.06", "1.08"], "no decade in it");
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
