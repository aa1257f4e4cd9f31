//! Axes: from values to pixels, linear or logarithmic, with ticks at round numbers.

use super::scene::{Align, Area, Scene, Text};
use super::style::{GRID, INK, LABEL, TICK};

/// One axis of a chart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    min: f64,
    max: f64,
    log: bool,
    from_px: f64,
    to_px: f64,
}

impl Axis {
    /// An axis that shows all values with some air around them, between two pixels. Logarithmic where
    /// the largest is more than ten times the smallest.
    pub fn fit(values: impl Iterator<Item = f64> + Clone, from_px: f64, to_px: f64) -> Self {
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
        let log = low > 0.0 && high / low > 10.0;
        let (a, b) = if log { (low.ln(), high.ln()) } else { (low, high) };
        // A single value still needs a range around it.
        let air = if b > a { 0.07 * (b - a) } else { (0.1 * a.abs()).max(1e-9) };
        let (mut a, b) = (a - air, b + air);
        if !log && low >= 0.0 {
            a = a.max(0.0);
        }
        let (min, max) = if log { (a.exp(), b.exp()) } else { (a, b) };
        Self { min, max, log, from_px, to_px }
    }

    /// A linear axis over exactly this range.
    pub fn exact(min: f64, max: f64, from_px: f64, to_px: f64) -> Self {
        Self { min, max, log: false, from_px, to_px }
    }

    /// The pixel of a value.
    pub fn place(&self, value: f64) -> f64 {
        let share = if self.log {
            (value / self.min).ln() / (self.max / self.min).ln()
        } else {
            (value - self.min) / (self.max - self.min)
        };
        self.from_px + share * (self.to_px - self.from_px)
    }

    /// Round numbers on the axis: at most `most` or one more.
    pub fn ticks(&self, most: usize) -> Vec<f64> {
        if self.log {
            let digits: [&[f64]; 3] = [&[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];
            let all = |digits: &[f64]| -> Vec<f64> {
                let decades = (self.min.log10().floor() as i32)..=(self.max.log10().ceil() as i32);
                let ticks =
                    decades.flat_map(|decade| digits.iter().map(move |d| d * 10f64.powi(decade)));
                ticks.filter(|tick| self.min <= *tick && *tick <= self.max).collect()
            };
            let choices = digits.map(all);
            let fits = choices.iter().find(|ticks| ticks.len() <= most + 1);
            return fits.unwrap_or(&choices[2]).clone();
        }
        let raw = (self.max - self.min) / most.max(1) as f64;
        let decade = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|d| d * decade).into_iter().find(|step| *step >= raw);
        let step = step.unwrap_or(10.0 * decade);
        let (first, last) = ((self.min / step).ceil() as i64, (self.max / step).floor() as i64);
        (first..=last).map(|n| n as f64 * step).collect()
    }
}

/// A number at a tick: no more digits than it needs.
pub fn number(value: f64) -> String {
    if value.abs() >= 10_000.0 {
        return format!("{}k", number(value / 1e3));
    }
    // Ticks are round numbers; what lies beyond the sixth digit is arithmetic.
    let decimals = if value == 0.0 { 0 } else { (5 - value.abs().log10().floor() as i32).clamp(0, 9) };
    let text = format!("{value:.*}", decimals as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Grid lines, numbers and name of the horizontal axis of a chart.
pub fn draw_horizontal(scene: &mut Scene, axis: &Axis, area: &Area, name: &str) {
    for tick in axis.ticks((area.width() / 130.0) as usize) {
        let x = axis.place(tick);
        scene.line(vec![(x, area.top), (x, area.bottom)], GRID, 2);
        scene.line(vec![(x, area.bottom), (x, area.bottom + 10.0)], INK, 2);
        let text = Text::new((x, area.bottom + 34.0), number(tick), TICK);
        scene.text(text.align(Align::Middle));
    }
    let text = Text::new((area.center(), area.bottom + 86.0), name, LABEL);
    scene.text(text.align(Align::Middle));
}

/// Grid lines, numbers and name of the vertical axis of a chart.
pub fn draw_vertical(scene: &mut Scene, axis: &Axis, area: &Area, name: &str) {
    for tick in axis.ticks(((area.bottom - area.top) / 90.0) as usize) {
        let y = axis.place(tick);
        scene.line(vec![(area.left, y), (area.right, y)], GRID, 2);
        scene.line(vec![(area.left - 10.0, y), (area.left, y)], INK, 2);
        let text = Text::new((area.left - 18.0, y), number(tick), TICK);
        scene.text(text.align(Align::Right));
    }
    let middle = (area.left - 138.0, (area.top + area.bottom) / 2.0);
    scene.text(Text::new(middle, name, LABEL).align(Align::Middle).upwards());
}
