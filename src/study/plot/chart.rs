//! Chart of lines and markers on two axes.

use super::axis::{self, Axis};
use super::layout;
use super::scene::{Area, Color, Point, Scene, Text, Tip};
use super::style::{GREY, Look, Sizes};

pub struct Chart<'a> {
    pub area: Area,
    pub x: Axis,
    pub y: Axis,
    pub scene: &'a mut Scene,
    pub sizes: Sizes,
}

impl<'a> Chart<'a> {
    /// Draws the header and the vertical axis into a cell.
    pub fn new(
        scene: &'a mut Scene,
        cell: Area,
        header: Option<&str>,
        (x, y): (Axis, Axis),
        sizes: &Sizes,
    ) -> Self {
        let area = layout::data_area(cell, header.is_some(), &y, 1.2 * sizes.tick, sizes);
        let (x, y) = (x.over(area.left, area.right), y.over(area.bottom, area.top));
        if let Some(header) = header {
            layout::header(scene, &area, header, sizes);
        }
        axis::vertical(scene, &y, &area, sizes);
        Self { area, x, y, scene, sizes: *sizes }
    }

    pub fn framed(self) -> Self {
        layout::frame(self.scene, self.area, &self.sizes);
        self
    }

    pub fn numbered(self) -> Self {
        axis::horizontal(self.scene, &self.x, &self.area, &self.sizes);
        self.framed()
    }

    pub fn at(&self, (x, y): (f64, f64)) -> Point {
        (self.x.place(x), self.y.place(y))
    }

    /// Draws a thin line across the chart.
    pub fn level(&mut self, y: f64) {
        let y = self.y.place(y);
        let line = vec![(self.area.left, y), (self.area.right, y)];
        self.scene.line(line, GREY, 0.5 * self.sizes.line);
    }

    pub fn line(
        &mut self,
        points: impl IntoIterator<Item = (f64, f64)>,
        color: Color,
        dashed: bool,
    ) -> Vec<Point> {
        let line: Vec<Point> = points.into_iter().map(|point| self.at(point)).collect();
        match dashed {
            true => self.scene.dashed(line.clone(), color, self.sizes.line),
            false => self.scene.line(line.clone(), color, self.sizes.line),
        }
        line
    }

    /// Writes a text into the chart, unless it crosses its edge; returns its area.
    pub fn write(&mut self, text: Text) -> Area {
        let covers = text.area();
        if self.area.holds(&covers) {
            self.scene.text(text.inside());
        }
        covers
    }

    /// Draws the 95 % intervals of a point in the chart on either axis, up to its edge.
    pub fn intervals(&mut self, point: (f64, f64), [x, y]: [Option<[f64; 2]>; 2], color: Color) {
        let (area, at, width) = (self.area, self.at(point), 0.6 * self.sizes.line);
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

    /// Draws a marker of a relative size with a tooltip, unless it is outside the chart; returns its area.
    /// Hollow markers are larger, so that they stay visible below filled ones.
    pub fn mark(
        &mut self,
        point: (f64, f64),
        look: Look,
        (filled, scale): (bool, f64),
        tip: String,
    ) -> Area {
        let at = self.at(point);
        let radius = scale * self.sizes.marker * if filled { 1.0 } else { 1.3 };
        if self.area.holds(&Area::around(at, 0.0)) {
            self.scene.marker(at, look, radius, filled);
            self.scene.tips.push(Tip { at, radius: 1.6 * self.sizes.marker, text: tip });
        }
        Area::around(at, radius)
    }
}
