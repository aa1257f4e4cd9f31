//! Axes: map values to positions, linear or logarithmic, with ticks at round numbers.
//!
//! Chart of lines and markers on two axes.

use super::font;
use super::layout;
use super::scene::{Align, Area, Color, Fill, Point, Scene, SceneText, Stroke, Tip};
use super::style::{FigureSizes, GREY, GRID, INK, Look};
use base::statistics::extent;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueAxis {
    /// Ends; decimal logarithms on a logarithmic axis.
    low: f64,
    high: f64,
    log: bool,
    /// Positions of the ends on the page.
    from: f64,
    to: f64,
}

impl ValueAxis {
    /// True if values from `low` to `high` use a logarithmic axis by default.
    pub fn spans_much((low, high): (f64, f64)) -> bool {
        low > 0.0 && high / low > 10.0
    }

    /// Axis over all finite values, with a margin.
    pub fn fit(values: impl Iterator<Item = f64>) -> Self {
        let bounds = extent(values).map_or((0.0, 1.0), Into::into);
        Self::around(bounds, Self::spans_much(bounds))
    }

    /// Logarithmic axis over all finite values, with a margin; linear if a value is not positive.
    pub fn fit_log(values: impl Iterator<Item = f64>) -> Self {
        Self::around(extent(values).map_or((1.0, 1.0), Into::into), true)
    }

    /// Axis around a range, with a margin; a linear one does not extend from positive values below 0.
    pub fn around((low, high): (f64, f64), log: bool) -> Self {
        if low > high {
            return Self::exact((0.0, 1.0), false);
        }
        let axis = Self::exact((low, high), log);
        let air = match high > low {
            true => 0.07 * (axis.high - axis.low),
            false if axis.low == 0.0 => 1.0,
            false => 0.1 * axis.low.abs(),
        };
        let least = if !axis.log && low >= 0.0 { 0.0 } else { f64::NEG_INFINITY };
        Self { low: (axis.low - air).max(least), high: axis.high + air, ..axis }
    }

    /// Axis over exactly this range; linear if an end is not positive.
    pub fn exact((low, high): (f64, f64), log: bool) -> Self {
        let log = log && low > 0.0;
        let (low, high) = if log { (low.log10(), high.log10()) } else { (low, high) };
        Self { low, high: high.max(low + f64::EPSILON), log, from: 0.0, to: 1.0 }
    }

    /// Linear axis for bars: includes 0 and all finite values, with a margin beyond them.
    pub fn from_zero(values: impl Iterator<Item = f64>) -> Self {
        let [low, high] = extent(values.chain([0.0])).unwrap_or_default();
        let air = 0.08 * (high - low);
        let min = if low < 0.0 { low - air } else { 0.0 };
        let max = if high > 0.0 { high + air } else { 0.0 };
        Self::exact((min, if max > min { max } else { min + 1.0 }), false)
    }

    /// Extends a linear axis at its upper end by a fraction of its length.
    pub fn with_air(self, part: f64) -> Self {
        Self { high: self.high + part * (self.high - self.low), ..self }
    }

    /// Places the axis between two page coordinates.
    pub fn over(self, from: f64, to: f64) -> Self {
        Self { from, to, ..self }
    }

    pub fn is_log(&self) -> bool {
        self.log
    }

    /// Part of the axis below a value; outside 0 to 1 beyond an end.
    pub fn share(&self, value: f64) -> f64 {
        let value = if self.log { value.max(f64::MIN_POSITIVE).log10() } else { value };
        (value - self.low) / (self.high - self.low)
    }

    pub fn value(&self, share: f64) -> f64 {
        let value = self.low + share * (self.high - self.low);
        if self.log { 10f64.powf(value) } else { value }
    }

    pub fn contains(&self, value: f64) -> bool {
        (-1e-9..=1.0 + 1e-9).contains(&self.share(value))
    }

    pub fn place(&self, value: f64) -> f64 {
        self.from + self.share(value) * (self.to - self.from)
    }

    /// Round numbers on the axis: about `most`, at most one more.
    pub fn ticks(&self, most: usize) -> Vec<f64> {
        // digits of each decade, or 1 of every so many decades
        const STEPS: [(&[f64], usize); 8] = [
            (&[1.0, 2.0, 3.0, 4.0, 6.0, 8.0], 1),
            (&[1.0, 2.0, 5.0], 1),
            (&[1.0, 3.0], 1),
            (&[1.0], 1),
            (&[1.0], 2),
            (&[1.0], 5),
            (&[1.0], 20),
            (&[1.0], 100),
        ];
        let log_ticks = |(digits, every): (&[f64], usize)| -> Vec<f64> {
            let decades = (self.low.floor() as i32..=self.high.ceil() as i32).step_by(every);
            let ticks = decades.flat_map(|decade| digits.iter().map(move |d| d * 10f64.powi(decade)));
            ticks.filter(|tick| self.contains(*tick)).collect()
        };
        let fits = |ticks: &Vec<f64>| (2..=most + 1).contains(&ticks.len());
        if let Some(ticks) = STEPS.into_iter().filter(|_| self.log).map(log_ticks).find(fits) {
            return ticks;
        }
        let (low, high) = (self.value(0.0), self.value(1.0));
        let raw = (high - low) / most.max(1) as f64;
        if !raw.is_finite() || raw <= 0.0 {
            return Vec::new();
        }
        let decade = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0].map(|d| d * decade).into_iter().find(|step| *step >= raw * 0.999);
        let step = step.unwrap_or(10.0 * decade);
        let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
        (first..=last).map(|n| n as f64 * step).collect()
    }
}

/// Tick label with only the digits it needs.
pub fn number(value: f64) -> String {
    let large = [(1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")];
    if let Some((_, by, prefix)) = large.into_iter().find(|(least, ..)| value.abs() >= *least) {
        return format!("{}{prefix}", number(value / by));
    }
    // ticks are round numbers: digits beyond the sixth are rounding errors
    let decimals = if value == 0.0 { 0 } else { (5 - value.abs().log10().floor() as i32).clamp(0, 9) };
    let text = format!("{value:.*}", decimals as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Ticks of a vertical axis of this height, and the width of the widest number.
pub fn vertical_ticks(axis: &ValueAxis, height: f64, sizes: &FigureSizes) -> (Vec<f64>, f64) {
    let ticks = axis.ticks((height / (2.6 * sizes.tick)).clamp(2.0, 8.0) as usize);
    let width = |tick: &f64| font::width(&number(*tick), sizes.tick, false);
    let widest = ticks.iter().map(width).fold(0.0, f64::max);
    (ticks, widest)
}

fn horizontal_ticks(axis: &ValueAxis, sizes: &FigureSizes) -> Vec<f64> {
    let fits = |ticks: &Vec<f64>| {
        let width = |tick: f64| font::width(&number(tick), sizes.tick, false);
        ticks.windows(2).all(|pair| {
            let between = (axis.place(pair[1]) - axis.place(pair[0])).abs();
            between >= (width(pair[0]) + width(pair[1])) / 2.0 + 0.8 * sizes.tick
        })
    };
    let mut ticks = (2..=8).rev().map(|most| axis.ticks(most));
    ticks.find(fits).unwrap_or_else(|| axis.ticks(2).into_iter().take(1).collect())
}

/// Height of the numbers below a chart, without the axis name.
pub fn under(sizes: &FigureSizes) -> f64 {
    FigureSizes::line_of(sizes.tick) + 0.3 * sizes.tick
}

pub fn horizontal(scene: &mut Scene, axis: &ValueAxis, area: &Area) {
    grid(scene, axis, area);
    numbers(scene, axis, area);
}

/// Draws the vertical grid lines of one chart; several charts may share the axis.
pub fn grid(scene: &mut Scene, axis: &ValueAxis, area: &Area) {
    for tick in horizontal_ticks(axis, &scene.sizes) {
        let x = axis.place(tick);
        scene.line(vec![(x, area.top), (x, area.bottom)], GRID, scene.sizes.thin);
    }
}

pub fn numbers(scene: &mut Scene, axis: &ValueAxis, area: &Area) {
    let sizes = scene.sizes;
    for tick in horizontal_ticks(axis, &sizes) {
        let x = axis.place(tick);
        scene.line(vec![(x, area.bottom), (x, area.bottom + 0.3 * sizes.tick)], INK, sizes.thin);
        let text = SceneText::new((x, area.bottom + 0.95 * sizes.tick), number(tick), sizes.tick);
        scene.text(text.align(Align::Middle));
    }
}

pub fn vertical(scene: &mut Scene, axis: &ValueAxis, area: &Area) {
    let sizes = scene.sizes;
    for tick in vertical_ticks(axis, area.height(), &sizes).0 {
        let y = axis.place(tick);
        scene.line(vec![(area.left, y), (area.right, y)], GRID, sizes.thin);
        scene.line(vec![(area.left - 0.3 * sizes.tick, y), (area.left, y)], INK, sizes.thin);
        let text = SceneText::new((area.left - 0.55 * sizes.tick, y), number(tick), sizes.tick);
        scene.text(text.align(Align::Right));
    }
}

pub struct Chart<'a> {
    pub area: Area,
    pub x: ValueAxis,
    pub y: ValueAxis,
    pub scene: &'a mut Scene,
}

impl<'a> Chart<'a> {
    /// Draws the header and the vertical axis into a cell.
    pub fn new(
        scene: &'a mut Scene,
        cell: Area,
        header: Option<&str>,
        (x, y): (ValueAxis, ValueAxis),
    ) -> Self {
        let sizes = scene.sizes;
        let area = layout::data_area(cell, header.is_some(), &y, 1.2 * sizes.tick, &sizes);
        let (x, y) = (x.over(area.left, area.right), y.over(area.bottom, area.top));
        if let Some(header) = header {
            layout::header(scene, &area, header);
        }
        vertical(scene, &y, &area);
        Self { area, x, y, scene }
    }

    pub fn framed(self) -> Self {
        layout::frame(self.scene, self.area);
        self
    }

    pub fn numbered(self) -> Self {
        horizontal(self.scene, &self.x, &self.area);
        self.framed()
    }

    pub fn at(&self, (x, y): (f64, f64)) -> Point {
        (self.x.place(x), self.y.place(y))
    }

    /// Draws a thin line across the chart.
    pub fn level(&mut self, y: f64) {
        let y = self.y.place(y);
        let line = vec![(self.area.left, y), (self.area.right, y)];
        self.scene.line(line, GREY, 0.5 * self.scene.sizes.line);
    }

    pub fn line(
        &mut self,
        points: impl IntoIterator<Item = (f64, f64)>,
        color: Color,
        stroke: Stroke,
    ) -> Vec<Point> {
        let line: Vec<Point> = points.into_iter().map(|point| self.at(point)).collect();
        self.scene.stroke(line.clone(), color, self.scene.sizes.line, stroke);
        line
    }

    /// Writes a text into the chart, unless it crosses its edge; returns its area.
    pub fn write(&mut self, text: SceneText) -> Area {
        let covers = text.area();
        if self.area.holds(&covers) {
            self.scene.text(text.inside());
        }
        covers
    }

    /// Draws the 95 % intervals of a point in the chart on either axis, up to its edge.
    pub fn intervals(&mut self, point: (f64, f64), [x, y]: [Option<[f64; 2]>; 2], color: Color) {
        let (area, at, width) = (self.area, self.at(point), 0.6 * self.scene.sizes.line);
        if !area.holds(&Area::around(at, 0.0)) {
            return;
        }
        if let Some([low, high]) = x {
            let [low, high] = [low, high].map(|end| self.x.place(end).clamp(area.left, area.right));
            self.scene.interval((low, at.1), (high, at.1), color, width);
        }
        if let Some([low, high]) = y {
            let [low, high] = [low, high].map(|end| self.y.place(end).clamp(area.top, area.bottom));
            self.scene.interval((at.0, low), (at.0, high), color, width);
        }
    }

    /// Draws a marker with a tooltip, unless it is outside the chart; returns its area.
    pub fn mark(&mut self, point: (f64, f64), look: Look, fill: Fill, tip: String) -> Area {
        self.mark_scaled(point, look, fill, 1.0, tip)
    }

    /// Like [`Self::mark`], with the marker's size multiplied by `scale`. Hollow markers are larger, so that they stay
    /// visible below filled ones.
    pub fn mark_scaled(
        &mut self,
        point: (f64, f64),
        look: Look,
        fill: Fill,
        scale: f64,
        tip: String,
    ) -> Area {
        let (at, size) = (self.at(point), self.scene.sizes.marker);
        let radius = scale * size * if fill == Fill::Solid { 1.0 } else { 1.3 };
        if self.area.holds(&Area::around(at, 0.0)) {
            self.scene.marker(at, look, radius, fill);
            self.scene.tips.push(Tip { at, radius: 1.6 * size, text: tip });
        }
        Area::around(at, radius)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ticks_are_round_numbers() {
        let ticks = |low: f64, high: f64, most| {
            let axis = ValueAxis::fit([low, high].into_iter()).over(0.0, 100.0);
            axis.ticks(most).into_iter().map(number).collect::<Vec<_>>()
        };
        assert_eq!(ticks(0.82, 1.34, 8), ["0.8", "0.9", "1", "1.1", "1.2", "1.3"]);
        assert_eq!(ticks(3.0, 300.0, 8), ["5", "10", "20", "50", "100", "200"]);
        assert_eq!(
            ticks(1e-3, 1e5, 8),
            ["0.001", "0.01", "0.1", "1", "10", "100", "1000", "10k", "100k"]
        );
        assert_eq!(ticks(1e-3, 1e5, 4), ["0.01", "1", "100", "10k"]);
        assert_eq!(ticks(4655.0, 50_000.0, 6), ["4000", "6000", "8000", "10k", "20k", "30k", "40k"]);
        let narrow = ValueAxis::exact((1.02, 1.09), true).ticks(6).into_iter().map(number);
        assert_eq!(narrow.collect::<Vec<_>>(), ["1.02", "1.04", "1.06", "1.08"], "no decade in it");
        assert_eq!(ticks(7.0, 7.0, 4), ["6.5", "7", "7.5"]);
    }

    #[test]
    fn axes_turn_logarithmic_beyond_a_factor_of_ten() {
        assert!(!ValueAxis::fit([1.0, 9.0].into_iter()).is_log());
        let axis = ValueAxis::fit([1.0, 100.0].into_iter());
        assert!(axis.is_log() && (axis.share(10.0) - 0.5).abs() < 1e-9);
        assert!((axis.value(0.5) - 10.0).abs() < 1e-9);
    }

    #[test]
    fn bars_stand_on_zero_whatever_their_values() {
        for values in [vec![], vec![0.0], vec![-3.0, -1.0], vec![5.0], vec![f64::NAN, 2.0]] {
            let axis = ValueAxis::from_zero(values.iter().copied()).over(100.0, 0.0);
            for value in values.iter().copied().filter(|v| v.is_finite()).chain([0.0]) {
                assert!((-0.1..=100.1).contains(&axis.place(value)), "{values:?}");
            }
            assert!(!axis.ticks(4).is_empty(), "{values:?}");
        }
    }

    #[test]
    fn numbers_have_no_more_digits_than_they_need() {
        let all = [0.0, 0.30000000000000004, 12.5, 1500.0, 25_000.0, -0.02, 1_500_000.0].map(number);
        assert_eq!([2e10, 5e9, 3e4].map(number), ["20G", "5G", "30k"]);
        assert_eq!(all, ["0", "0.3", "12.5", "1500", "25k", "-0.02", "1.5M"]);
    }

    proptest! {
        #[test]
        fn values_and_ticks_lie_on_the_axis(
            values in prop::collection::vec(0.001f64..1e6, 1..20),
            most in 2usize..12,
        ) {
            let axis = ValueAxis::fit(values.iter().copied()).over(900.0, 100.0);
            for value in values.iter().copied().chain(axis.ticks(most)) {
                let place = axis.place(value);
                prop_assert!((99.9..=900.1).contains(&place), "{} at {}", value, place);
            }
            let ticks = axis.ticks(most);
            prop_assert!(ticks.windows(2).all(|w| axis.place(w[0]) > axis.place(w[1])));
            prop_assert!(ticks.len() <= most.max(9) + 1, "{:?}", ticks);
        }
    }
}
