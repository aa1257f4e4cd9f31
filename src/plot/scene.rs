//! A figure as a list of shapes at their places, in pixels from the top left: laid out here, painted
//! by [`super::surface`], looked into by tests.

use super::style::{INK, Marker, WHITE};
use super::surface::text_width;

/// Red, green, blue.
pub type Color = (u8, u8, u8);

/// A place in pixels.
pub type Point = (f64, f64);

/// A rectangle in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    /// Left edge.
    pub left: f64,
    /// Upper edge.
    pub top: f64,
    /// Right edge.
    pub right: f64,
    /// Lower edge.
    pub bottom: f64,
}

/// Which point of a text lies at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Its left end.
    Left,
    /// Its middle.
    Middle,
    /// Its right end.
    Right,
}

/// A text, its vertical middle at `at`.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    /// Where.
    pub at: Point,
    /// What.
    pub text: String,
    /// Height of the font in pixels.
    pub size: f64,
    /// Its colour.
    pub color: Color,
    /// Bold or not.
    pub bold: bool,
    /// What lies at `at`.
    pub align: Align,
    /// Read from below upwards.
    pub upwards: bool,
}

/// Something to paint.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// A filled rectangle.
    Rect(Area, Color),
    /// A line through points, in pixels wide.
    Line(Vec<Point>, Color, u32),
    /// A filled polygon.
    Polygon(Vec<Point>, Color),
    /// A disc of this radius.
    Disc(Point, f64, Color),
    /// A text.
    Text(Text),
}

/// A figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scene {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// What to paint, in order.
    pub shapes: Vec<Shape>,
    /// Where data lies; legends keep off.
    pub data: Vec<Area>,
}

impl Area {
    /// Its width.
    pub fn width(&self) -> f64 {
        self.right - self.left
    }

    /// Its horizontal middle.
    pub fn center(&self) -> f64 {
        (self.left + self.right) / 2.0
    }

    /// Whether both cover some pixel.
    #[cfg(test)]
    pub fn meets(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }
}

impl Text {
    /// Black, left-aligned, regular.
    pub fn new(at: Point, text: impl Into<String>, size: f64) -> Self {
        Self { at, text: text.into(), size, color: INK, bold: false, align: Align::Left, upwards: false }
    }

    /// With another point at its place.
    pub fn align(self, align: Align) -> Self {
        Self { align, ..self }
    }

    /// In bold.
    pub fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    /// In another colour.
    pub fn color(self, color: Color) -> Self {
        Self { color, ..self }
    }

    /// Read from below upwards.
    pub fn upwards(self) -> Self {
        Self { upwards: true, ..self }
    }

    /// The pixels it covers.
    #[cfg(test)]
    pub fn area(&self) -> Area {
        let width = text_width(&self.text, self.size, self.bold);
        let before = match self.align {
            Align::Left => 0.0,
            Align::Middle => width / 2.0,
            Align::Right => width,
        };
        // Glyphs fill about the middle three quarters of a line.
        let half = self.size * 0.38;
        let (x, y) = self.at;
        if self.upwards {
            Area { left: x - half, right: x + half, top: y + before - width, bottom: y + before }
        } else {
            Area { left: x - before, right: x - before + width, top: y - half, bottom: y + half }
        }
    }
}

impl Scene {
    /// An empty figure.
    pub fn new(width: u32, height: u32) -> Self {
        Self { width, height, ..Self::default() }
    }

    /// Adds a text.
    pub fn text(&mut self, text: Text) {
        self.shapes.push(Shape::Text(text));
    }

    /// Adds a filled rectangle.
    pub fn rect(&mut self, area: Area, color: Color) {
        self.shapes.push(Shape::Rect(area, color));
    }

    /// Adds a line.
    pub fn line(&mut self, points: Vec<Point>, color: Color, width: u32) {
        self.shapes.push(Shape::Line(points, color, width));
    }

    /// Adds a line in dashes.
    pub fn dashed(&mut self, points: &[Point], color: Color, width: u32) {
        const DASH: f64 = 14.0;
        const GAP: f64 = 10.0;
        // The walk goes on around corners: `before` is how much of the line lies behind it.
        let mut before = 0.0;
        for pair in points.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            let length = (to.0 - from.0).hypot(to.1 - from.1);
            let at =
                |d: f64| (from.0 + (to.0 - from.0) * d / length, from.1 + (to.1 - from.1) * d / length);
            let periods = (before / (DASH + GAP)) as u32..=((before + length) / (DASH + GAP)) as u32;
            for start in periods.map(|n| f64::from(n) * (DASH + GAP) - before) {
                let (start, end) = (start.max(0.0), (start + DASH).min(length));
                if start < end {
                    self.line(vec![at(start), at(end)], color, width);
                }
            }
            before += length;
        }
    }

    /// Adds the outline of a rectangle.
    pub fn frame(&mut self, area: Area, color: Color, width: u32) {
        let Area { left, top, right, bottom } = area;
        let corners = vec![(left, top), (right, top), (right, bottom), (left, bottom), (left, top)];
        self.line(corners, color, width);
    }

    /// Adds a marker; a hollow one is white inside, so that lines do not cross it.
    pub fn marker(&mut self, at: Point, marker: Marker, radius: f64, color: Color, filled: bool) {
        let mut paint = |radius: f64, color| {
            self.shapes.push(match marker.corners(at, radius) {
                Some(corners) => Shape::Polygon(corners, color),
                None => Shape::Disc(at, radius, color),
            });
        };
        // A white rim keeps markers apart that lie on each other.
        paint(radius + 2.0, WHITE);
        paint(radius, color);
        if !filled {
            paint(radius - 4.5, WHITE);
        }
    }

    /// Adds a text broken at blanks into lines of at most `width` pixels; gives back the `y` of the
    /// line that would follow.
    pub fn paragraph(&mut self, text: &Text, width: f64) -> f64 {
        let (x, mut y) = text.at;
        for line in wrap(&text.text, width, |line| text_width(line, text.size, text.bold)) {
            self.text(Text { at: (x, y), text: line, ..text.clone() });
            y += text.size * 1.2;
        }
        y
    }
}

/// Breaks a text at blanks so that each line measures at most `width`; a longer word has a line to itself.
fn wrap(text: &str, width: f64, measure: impl Fn(&str) -> f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if measure(&format!("{line} {word}")) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
