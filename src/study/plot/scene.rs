//! Figure as a list of shapes at positions in points (1/72 inch) from the top left, painted by
//! [`super::paint`].
//!
//! Bundled font (DejaVu Sans), and the widths of texts in it.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use ab_glyph::{Font as _, FontRef};
use plotters::style::{FontStyle, register_font};

use super::style::{GREY, INK, Look, Marker, WHITE};

/// RGB, 0 to 255 each.
pub type Color = (u8, u8, u8);

/// Position in points.
pub type Point = (f64, f64);

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
pub struct Text {
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
pub enum Shape {
    Rect(Area, Color),
    /// Polylines of one width in points: a line, or the strokes of one hatch or interval.
    Lines(Vec<Vec<Point>>, Color, f64),
    Dashed(Vec<Point>, Color, f64),
    Polygon(Vec<Point>, Color),
    Disc(Point, f64, Color),
    Text(Text),
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
    /// Page colour, also the inside of hollow markers.
    pub paper: Color,
    /// Colour of labels in charts.
    pub label: Color,
    pub shapes: Vec<Shape>,
    /// Data areas, which titles and legends avoid.
    pub data: Vec<Area>,
    pub title: String,
    pub tips: Vec<Tip>,
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

impl Text {
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
        let width = width(&self.text, self.size, self.bold);
        let before = match self.align {
            Align::Left => 0.0,
            Align::Middle => width / 2.0,
            Align::Right => width,
        };
        // from the descender of `p` to the ascender of `l`, centred on the capitals
        let (above, below) = (self.size * 0.42, self.size * 0.58);
        let (x, y) = self.at;
        if self.upwards {
            Area { left: x - above, right: x + below, top: y + before - width, bottom: y + before }
        } else {
            Area { left: x - before, right: x - before + width, top: y - above, bottom: y + below }
        }
    }
}

impl Scene {
    pub fn new(width: f64, height: f64) -> Self {
        Self {
            width,
            height,
            paper: WHITE,
            label: GREY,
            shapes: Vec::new(),
            data: Vec::new(),
            title: String::new(),
            tips: Vec::new(),
        }
    }

    pub fn colors(&self) -> BTreeSet<Color> {
        let color = |shape: &Shape| match shape {
            Shape::Rect(_, color)
            | Shape::Lines(_, color, _)
            | Shape::Dashed(_, color, _)
            | Shape::Polygon(_, color)
            | Shape::Disc(_, _, color) => *color,
            Shape::Text(text) => text.color,
        };
        self.shapes.iter().map(color).chain([self.paper]).collect()
    }

    pub fn text(&mut self, text: Text) {
        if !text.text.is_empty() {
            self.shapes.push(Shape::Text(text));
        }
    }

    pub fn rect(&mut self, area: Area, color: Color) {
        self.shapes.push(Shape::Rect(area, color));
    }

    /// Adds a polyline; fewer than two points draw nothing.
    pub fn line(&mut self, points: Vec<Point>, color: Color, width: f64) {
        if points.len() > 1 {
            self.shapes.push(Shape::Lines(vec![points], color, width));
        }
    }

    /// Adds a dashed line; dash lengths follow from its width.
    pub fn dashed(&mut self, points: Vec<Point>, color: Color, width: f64) {
        self.shapes.push(Shape::Dashed(points, color, width));
    }

    pub fn frame(&mut self, area: Area, color: Color, width: f64) {
        let Area { left, top, right, bottom } = area;
        let corners = vec![(left, top), (right, top), (right, bottom), (left, bottom), (left, top)];
        self.line(corners, color, width);
    }

    /// Adds a hatch over a rectangle: 1 rises, 2 falls, 3 crosses, 4 is horizontal, 0 is none.
    pub fn hatch(&mut self, area: Area, number: usize, color: Color, width: f64, every: f64) {
        let mut strokes = Vec::new();
        let (w, h) = (area.width(), area.height());
        if w <= 0.0 || h <= 0.0 || every <= 0.0 {
            return;
        }
        let mut slanted = |rising: bool| {
            // lines x + y = d (or x - y = d), clipped to the rectangle
            let mut d = every * 0.7;
            while d < w + h {
                let (a, b) = ((d - h).max(0.0), d.min(w));
                let y = |x: f64| if rising { area.top + d - x } else { area.bottom - d + x };
                strokes.push(vec![(area.left + a, y(a)), (area.left + b, y(b))]);
                d += every * std::f64::consts::SQRT_2;
            }
        };
        match number {
            1 => slanted(true),
            2 => slanted(false),
            3 => {
                slanted(true);
                slanted(false);
            }
            4 => {
                let mut y = area.top + every / 2.0;
                while y < area.bottom {
                    strokes.push(vec![(area.left, y), (area.right, y)]);
                    y += every;
                }
            }
            _ => {}
        }
        if !strokes.is_empty() {
            self.shapes.push(Shape::Lines(strokes, color, width));
        }
    }

    /// Adds a marker; a hollow one is filled with the page colour, to hide lines behind it.
    pub fn marker(&mut self, at: Point, look: Look, radius: f64, filled: bool) {
        let (Look { color, marker, .. }, paper) = (look, self.paper);
        let mut paint = |radius: f64, color| {
            self.shapes.push(match marker.corners(at, radius) {
                Some(corners) => Shape::Polygon(corners, color),
                None => Shape::Disc(at, radius, color),
            });
        };
        // a rim in page colour separates overlapping markers
        paint(radius * 1.18, paper);
        paint(radius, color);
        if !filled {
            // equal rims for all shapes: the inner radius of a triangle shrinks more
            let shrink = match marker {
                Marker::Up | Marker::Down | Marker::Right | Marker::Left | Marker::Star => 0.5,
                _ => 0.58,
            };
            paint(radius * shrink, paper);
        }
    }

    pub fn interval(&mut self, from: Point, to: Point, color: Color, width: f64) {
        let (dx, dy) = if from.0 == to.0 { (2.0 * width, 0.0) } else { (0.0, 2.0 * width) };
        let end = |at: Point| vec![(at.0 - dx, at.1 - dy), (at.0 + dx, at.1 + dy)];
        self.shapes.push(Shape::Lines(vec![vec![from, to], end(from), end(to)], color, width));
    }
}

/// Font family of texts in SVG files; Verdana is as wide.
pub const FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";

/// Regular and bold face, registered with plotters; `None` if the bundled bytes cannot be read.
pub fn faces() -> Option<&'static [FontRef<'static>; 2]> {
    static FACES: OnceLock<Option<[FontRef<'static>; 2]>> = OnceLock::new();
    let face = |style, bytes: &'static [u8]| {
        register_font(FAMILY, style, bytes).ok()?;
        FontRef::try_from_slice(bytes).ok()
    };
    let read = || {
        let regular = face(FontStyle::Normal, dejavu::sans::regular())?;
        Some([regular, face(FontStyle::Bold, dejavu::sans::bold())?])
    };
    FACES.get_or_init(read).as_ref()
}

/// Height of a line, from ascender to descender (em).
pub fn line_height() -> f64 {
    let of = |face: &FontRef| Some(f64::from(face.height_unscaled() / face.units_per_em()?));
    faces().and_then(|faces| of(&faces[0])).unwrap_or(1.0)
}

/// Glyphs of a text with the left edges of their ink, and the width of the text, in the unit of `size`.
pub fn glyphs(text: &str, size: f64, bold: bool) -> (Vec<(char, f64)>, f64) {
    let Some(face) = faces().map(|faces| &faces[usize::from(bold)]) else { return (Vec::new(), 0.0) };
    let scale = size / f64::from(face.units_per_em().unwrap_or(2048.0));
    let (mut x, mut before) = (0.0, None);
    let place = |c: char| {
        let glyph = face.glyph_id(c);
        x += before.map_or(0.0, |before| face.kern_unscaled(before, glyph));
        let ink = x + face.h_side_bearing_unscaled(glyph);
        x += face.h_advance_unscaled(glyph);
        before = Some(glyph);
        (c, f64::from(ink) * scale)
    };
    let placed = text.chars().map(place).collect();
    (placed, f64::from(x) * scale)
}

/// Width of a text, in the unit of `size`.
pub fn width(text: &str, size: f64, bold: bool) -> f64 {
    glyphs(text, size, bold).1
}

/// Text, truncated with an ellipsis if it is wider than `most`.
pub fn fit(text: &str, size: f64, most: f64) -> String {
    if width(text, size, false) <= most {
        return text.to_owned();
    }
    let mut kept = text.to_owned();
    while !kept.is_empty() && width(&format!("{kept}…"), size, false) > most {
        kept.pop();
    }
    if kept.is_empty() { kept } else { kept + "…" }
}

/// Wraps a text at blanks to lines of at most `most`; splits words that are wider.
pub fn wrap(text: &str, size: f64, bold: bool, most: f64) -> Vec<String> {
    let fits = |line: &str| width(line, size, bold) <= most;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|_| !text.is_empty()) {
        match lines.last_mut() {
            Some(line) if fits(&format!("{line} {word}")) => *line += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
        while let Some(line) = lines.last_mut().filter(|line| !fits(line) && line.chars().count() > 1) {
            let ends = line.char_indices().map(|(at, _)| at).skip(1);
            let end = ends.take_while(|end| fits(&line[..*end])).last();
            let rest = line.split_off(end.unwrap_or(line.ceil_char_boundary(1)));
            lines.push(rest);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hatches_stay_in_their_rectangle() {
        let area = Area { left: 3.0, top: 4.0, right: 20.0, bottom: 9.0 };
        for number in 0..=4 {
            let mut scene = Scene::new(30.0, 30.0);
            scene.hatch(area, number, INK, 0.5, 2.0);
            assert_eq!(scene.shapes.is_empty(), number == 0);
            for shape in &scene.shapes {
                let Shape::Lines(strokes, ..) = shape else { panic!("{shape:?}") };
                for at in strokes.iter().flatten() {
                    let dot = Area::around(*at, 0.0);
                    let wide = Area { left: 2.999, top: 3.999, right: 20.001, bottom: 9.001 };
                    assert!(wide.holds(&dot), "{number}: {at:?}");
                }
            }
        }
    }

    #[test]
    fn widths_add_up_and_scale() {
        let (a, b) = (width("latency", 8.0, false), width("latency", 16.0, false));
        assert!((b - 2.0 * a).abs() < 1e-4 && a > 20.0 && a < 40.0, "{a} {b}");
        assert!(width("latency", 8.0, true) > a, "bold is wider");
        assert!(width("AV", 8.0, false) < width("A", 8.0, false) + width("V", 8.0, false), "kerning");
    }

    #[test]
    fn long_texts_end_in_an_ellipsis_or_are_wrapped() {
        assert_eq!(fit("short", 8.0, 100.0), "short");
        let cut = fit("a rather long name of a model", 8.0, 60.0);
        assert!(cut.ends_with('…') && width(&cut, 8.0, false) <= 60.0, "{cut}");
        assert_eq!(fit("x", 8.0, 0.0), "");
        assert_eq!(
            wrap("one two three-and-µµ four", 8.0, false, 40.0),
            ["one two", "three-and", "-µµ four"]
        );
        assert_eq!(wrap("µs", 8.0, false, 0.0), ["µ", "s"]);
        assert_eq!(wrap("", 8.0, false, 9.0), [""; 0]);
    }
}
