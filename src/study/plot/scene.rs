//! Figure as a list of shapes at positions in points (1/72 inch) from the top left, painted by
//! [`super::paint`].

use std::collections::BTreeSet;

use super::font;
use super::style::{FigureSizes, GREY, INK, Look, Marker, WHITE};
use table::P2p;

/// RGB, 0 to 255 each.
pub type Color = (u8, u8, u8);

/// Position in points.
pub type Point = (f64, f64);

/// Pattern of white strokes over a bar, so that bars differ without colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hatch {
    None,
    Rising,
    Falling,
    Crossed,
    Horizontal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    Solid,
    Dashed,
}

/// Inside of a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    Solid,
    /// In page colour, to hide lines behind the marker.
    Hollow,
}

/// Radius of the rim in page colour that separates overlapping markers, relative to the marker's.
const RIM: f64 = 1.18;

/// Heights of a text above and below the middle of its capitals, relative to the font size: from the ascender of `l` to
/// the descender of `p`.
const ABOVE: f64 = 0.42;
const BELOW: f64 = 0.58;

/// Rectangle in points, from the top left of the page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Middle,
    Right,
}

/// One line of text, vertically centred on `at`.
#[derive(Clone, Debug, PartialEq)]
pub struct SceneText {
    pub at: Point,
    pub text: String,
    /// Font size in points.
    pub size: f64,
    pub color: Color,
    pub bold: bool,
    pub align: Align,
    /// True if rotated to read from bottom to top.
    pub upwards: bool,
    /// True if the text may overlap a data area.
    pub inside: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SceneShape {
    Rect(Area, Color),
    /// Polylines of one width in points: a line, or the strokes of one hatch or interval.
    Lines(Vec<Vec<Point>>, Color, f64),
    Dashed(Vec<Point>, Color, f64),
    Polygon(Vec<Point>, Color),
    Disc(Point, f64, Color),
    Text(SceneText),
}

/// Tooltip with a hit radius in points.
#[derive(Clone, Debug, PartialEq)]
pub struct Tip {
    pub at: Point,
    pub radius: f64,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    pub width: f64,
    pub height: f64,
    pub sizes: FigureSizes,
    /// Page colour, also the inside of hollow markers.
    pub paper: Color,
    /// Colour of labels in charts.
    pub label: Color,
    pub shapes: Vec<SceneShape>,
    /// Data areas, which titles and legends avoid.
    pub data: Vec<Area>,
    pub title: String,
    pub tips: Vec<Tip>,
}

impl Stroke {
    /// Stroke of lines that connect points with this P2P setting.
    pub fn from_p2p(p2p: P2p) -> Self {
        match p2p {
            P2p::On => Self::Solid,
            P2p::Off => Self::Dashed,
        }
    }
}

impl Fill {
    /// Fill of points with this P2P setting.
    pub fn from_p2p(p2p: P2p) -> Self {
        match p2p {
            P2p::On => Self::Solid,
            P2p::Off => Self::Hollow,
        }
    }
}

impl Area {
    pub fn width(&self) -> f64 {
        self.right - self.left
    }

    pub fn height(&self) -> f64 {
        self.bottom - self.top
    }

    pub fn center(&self) -> Point {
        ((self.left + self.right) / 2.0, (self.top + self.bottom) / 2.0)
    }

    pub fn meets(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    pub fn holds(&self, other: &Self) -> bool {
        self.left <= other.left
            && self.top <= other.top
            && self.right >= other.right
            && self.bottom >= other.bottom
    }

    pub fn around(at: Point, radius: f64) -> Self {
        Self { left: at.0 - radius, top: at.1 - radius, right: at.0 + radius, bottom: at.1 + radius }
    }
}

impl SceneText {
    /// Horizontal, left-aligned, regular text in ink.
    pub fn new(at: Point, text: impl Into<String>, size: f64) -> Self {
        Self {
            at,
            text: text.into(),
            size,
            color: INK,
            bold: false,
            align: Align::Left,
            upwards: false,
            inside: false,
        }
    }

    pub fn align(self, align: Align) -> Self {
        Self { align, ..self }
    }

    pub fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    pub fn color(self, color: Color) -> Self {
        Self { color, ..self }
    }

    pub fn upwards(self) -> Self {
        Self { upwards: true, ..self }
    }

    pub fn inside(self) -> Self {
        Self { inside: true, ..self }
    }

    pub fn area(&self) -> Area {
        let width = font::width(&self.text, self.size, self.bold);
        let before = match self.align {
            Align::Left => 0.0,
            Align::Middle => width / 2.0,
            Align::Right => width,
        };
        let (above, below) = (self.size * ABOVE, self.size * BELOW);
        let (x, y) = self.at;
        if self.upwards {
            Area { left: x - above, right: x + below, top: y + before - width, bottom: y + before }
        } else {
            Area { left: x - before, right: x - before + width, top: y - above, bottom: y + below }
        }
    }
}

impl Scene {
    pub fn new(width: f64, height: f64, sizes: FigureSizes) -> Self {
        Self {
            width,
            height,
            sizes,
            paper: WHITE,
            label: GREY,
            shapes: Vec::new(),
            data: Vec::new(),
            title: String::new(),
            tips: Vec::new(),
        }
    }

    pub fn colors(&self) -> BTreeSet<Color> {
        let color = |shape: &SceneShape| match shape {
            SceneShape::Rect(_, color)
            | SceneShape::Lines(_, color, _)
            | SceneShape::Dashed(_, color, _)
            | SceneShape::Polygon(_, color)
            | SceneShape::Disc(_, _, color) => *color,
            SceneShape::Text(text) => text.color,
        };
        self.shapes.iter().map(color).chain([self.paper]).collect()
    }

    pub fn text(&mut self, text: SceneText) {
        if !text.text.is_empty() {
            self.shapes.push(SceneShape::Text(text));
        }
    }

    pub fn rect(&mut self, area: Area, color: Color) {
        self.shapes.push(SceneShape::Rect(area, color));
    }

    /// Adds a polyline; fewer than two points draw nothing.
    pub fn line(&mut self, points: Vec<Point>, color: Color, width: f64) {
        if points.len() > 1 {
            self.shapes.push(SceneShape::Lines(vec![points], color, width));
        }
    }

    pub fn stroke(&mut self, points: Vec<Point>, color: Color, width: f64, stroke: Stroke) {
        match stroke {
            Stroke::Solid => self.line(points, color, width),
            Stroke::Dashed => self.dashed(points, color, width),
        }
    }

    /// Adds a dashed line; dash lengths follow from its width.
    pub fn dashed(&mut self, points: Vec<Point>, color: Color, width: f64) {
        self.shapes.push(SceneShape::Dashed(points, color, width));
    }

    pub fn frame(&mut self, area: Area, color: Color, width: f64) {
        let Area { left, top, right, bottom } = area;
        let corners = vec![(left, top), (right, top), (right, bottom), (left, bottom), (left, top)];
        self.line(corners, color, width);
    }

    /// Adds the strokes of a hatch, `every` points apart, over a rectangle.
    pub fn hatch(&mut self, area: Area, hatch: Hatch, color: Color, width: f64, every: f64) {
        if area.width() <= 0.0 || area.height() <= 0.0 || every <= 0.0 {
            return;
        }
        let strokes = match hatch {
            Hatch::None => return,
            Hatch::Rising => slanted(area, every, true),
            Hatch::Falling => slanted(area, every, false),
            Hatch::Crossed => [slanted(area, every, true), slanted(area, every, false)].concat(),
            Hatch::Horizontal => {
                let heights = std::iter::successors(Some(area.top + every / 2.0), |y| Some(y + every));
                let heights = heights.take_while(|y| *y < area.bottom);
                heights.map(|y| vec![(area.left, y), (area.right, y)]).collect()
            }
        };
        if !strokes.is_empty() {
            self.shapes.push(SceneShape::Lines(strokes, color, width));
        }
    }

    pub fn marker(&mut self, at: Point, look: Look, radius: f64, fill: Fill) {
        let (Look { color, marker, .. }, paper) = (look, self.paper);
        let mut paint = |radius: f64, color| {
            self.shapes.push(match marker.corners(at, radius) {
                Some(corners) => SceneShape::Polygon(corners, color),
                None => SceneShape::Disc(at, radius, color),
            });
        };
        paint(radius * RIM, paper);
        paint(radius, color);
        if fill == Fill::Hollow {
            // equal rims for all shapes: the inner radius of a triangle shrinks more
            let inner = match marker {
                Marker::Up | Marker::Down | Marker::Right | Marker::Left | Marker::Star => 0.5,
                _ => 0.58,
            };
            paint(radius * inner, paper);
        }
    }

    pub fn interval(&mut self, from: Point, to: Point, color: Color, width: f64) {
        let (dx, dy) = if from.0 == to.0 { (2.0 * width, 0.0) } else { (0.0, 2.0 * width) };
        let end = |at: Point| vec![(at.0 - dx, at.1 - dy), (at.0 + dx, at.1 + dy)];
        self.shapes.push(SceneShape::Lines(vec![vec![from, to], end(from), end(to)], color, width));
    }
}

/// Diagonal strokes at 45 degrees: the lines x + y = d (falling: x - y = d), clipped to the rectangle.
fn slanted(area: Area, every: f64, rising: bool) -> Vec<Vec<Point>> {
    let (w, h) = (area.width(), area.height());
    let y = |d: f64, x: f64| if rising { area.top + d - x } else { area.bottom - d + x };
    let distances =
        std::iter::successors(Some(every * 0.7), |d| Some(d + every * std::f64::consts::SQRT_2));
    let stroke = |d: f64| [(d - h).max(0.0), d.min(w)].map(|x| (area.left + x, y(d, x))).to_vec();
    distances.take_while(|d| *d < w + h).map(stroke).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hatches_stay_in_their_rectangle() {
        let area = Area { left: 3.0, top: 4.0, right: 20.0, bottom: 9.0 };
        for hatch in [Hatch::None, Hatch::Rising, Hatch::Falling, Hatch::Crossed, Hatch::Horizontal] {
            let mut scene = Scene::new(30.0, 30.0, FigureSizes::new(8.0));
            scene.hatch(area, hatch, INK, 0.5, 2.0);
            assert_eq!(scene.shapes.is_empty(), hatch == Hatch::None);
            for shape in &scene.shapes {
                let SceneShape::Lines(strokes, ..) = shape else { panic!("{shape:?}") };
                for at in strokes.iter().flatten() {
                    let dot = Area::around(*at, 0.0);
                    let wide = Area { left: 2.999, top: 3.999, right: 20.001, bottom: 9.001 };
                    assert!(wide.holds(&dot), "{hatch:?}: {at:?}");
                }
            }
        }
    }
}
