//! Paints a [`Scene`] with plotters: on its SVG backend for files and pages, on its bitmap backend for
//! PNG files and terminals.

use std::fmt::Display;

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::Color as _;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::figure::POINTS;
use super::font;
use super::scene::{Align, Color, Point, Scene, SceneShape, SceneText};
use base::error::{Error, Result};

/// Units of the SVG file per point, because plotters places shapes at whole numbers.
pub const FINE: f64 = 100.0;

/// Bitmaps are painted at up to four times their width and height, but with at most so many pixels, and
/// scaled down: plotters neither smooths lines nor places glyphs between pixels.
const MOST_PAINTED: usize = 50_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pixels {
    pub width: u32,
    pub height: u32,
    /// Rows from top to bottom, three bytes (red, green, blue) per pixel.
    pub rgb: Vec<u8>,
}

/// SVG elements of a scene, and their size in [`FINE`] units.
pub fn svg(scene: &Scene) -> Result<(String, (u32, u32))> {
    let mut document = String::new();
    let size = [scene.width, scene.height].map(|points| (points * FINE).round() as u32).into();
    let page = SVGBackend::with_string(&mut document, size).into_drawing_area();
    // the backend divides font sizes by 1.24 and puts baselines 0.76 em below the top
    Painter { page, unit: FINE, em: 1.24, baseline: 0.76, by_glyph: false }.paint(scene)?;
    let elements = document.split_once(">\n").and_then(|(_, rest)| rest.strip_suffix("</svg>\n"));
    let elements = elements.ok_or_else(|| failed("plotters wrote no SVG document"))?;
    Ok((elements.replace(" opacity=\"1\"", "").replace(" stroke=\"none\"", ""), size))
}

/// Paints a scene at `dpi` pixels per inch.
pub fn pixels(scene: &Scene, dpi: f64) -> Result<Pixels> {
    let [width, height] =
        [scene.width, scene.height].map(|points| (points / POINTS * dpi).round().max(1.0) as usize);
    let fits = |times: &usize| width * height * times * times <= MOST_PAINTED;
    let times = (1..=4).rev().find(fits).unwrap_or(1);
    let (row, count) = (3 * width * times, (times * times) as u32);
    let mut large = vec![0; row * height * times];
    let size = ((width * times) as u32, (height * times) as u32);
    let page = BitMapBackend::with_buffer(&mut large, size).into_drawing_area();
    // a font size is a line's height here, and baselines are half of it below the top
    let line = font::line_height();
    let unit = times as f64 * dpi / POINTS;
    Painter { page, unit, em: line, baseline: line / 2.0, by_glyph: true }.paint(scene)?;
    let mut rgb = Vec::with_capacity(3 * width * height);
    for rows in large.chunks_exact(row * times) {
        let mut sums = vec![0u32; 3 * width];
        for row in rows.chunks_exact(row) {
            for (sums, cells) in sums.chunks_exact_mut(3).zip(row.chunks_exact(3 * times)) {
                cells.iter().enumerate().for_each(|(at, value)| sums[at % 3] += u32::from(*value));
            }
        }
        rgb.extend(sums.into_iter().map(|sum| (sum / count) as u8));
    }
    Ok(Pixels { width: width as u32, height: height as u32, rgb })
}

fn failed(reason: impl Display) -> Error {
    Error::failed(format!("painting the figure: {reason}"))
}

/// Page of a backend.
struct Painter<B: DrawingBackend> {
    page: DrawingArea<B, Shift>,
    /// Backend units per point.
    unit: f64,
    /// Font size of the backend for a text of one em, and depth of its baseline below the top (em).
    em: f64,
    baseline: f64,
    /// True to place glyphs one by one: the bitmap backend ignores the space left of their ink.
    by_glyph: bool,
}

impl<B: DrawingBackend> Painter<B> {
    fn paint(&self, scene: &Scene) -> Result<()> {
        font::faces().ok_or_else(|| failed("the bundled font cannot be read"))?;
        self.page.fill(&rgb(scene.paper)).map_err(failed)?;
        scene.shapes.iter().try_for_each(|shape| self.shape(shape)).map_err(failed)?;
        self.page.present().map_err(failed)
    }

    fn shape(&self, shape: &SceneShape) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let all = |points: &[Point]| points.iter().map(|at| self.at(*at)).collect::<Vec<_>>();
        let stroke = |color: Color, width: f64| {
            ShapeStyle::from(rgb(color)).stroke_width(self.length(width).max(1) as u32)
        };
        match shape {
            SceneShape::Rect(area, color) => {
                let corners = [self.at((area.left, area.top)), self.at((area.right, area.bottom))];
                self.page.draw(&Rectangle::new(corners, rgb(*color).filled()))
            }
            SceneShape::Lines(lines, color, width) => lines.iter().try_for_each(|line| {
                self.page.draw(&PathElement::new(all(line), stroke(*color, *width)))
            }),
            SceneShape::Dashed(line, color, width) => {
                // each dash is an element of an SVG file: not too many on thin lines
                let dash = (4.0 * width).max(3.0);
                let (dash, gap) = (self.length(dash), self.length(0.625 * dash));
                self.page.draw(&DashedPathElement::new(all(line), dash, gap, stroke(*color, *width)))
            }
            SceneShape::Polygon(corners, color) => {
                self.page.draw(&Polygon::new(all(corners), rgb(*color).filled()))
            }
            SceneShape::Disc(center, radius, color) => {
                let radius = self.length(*radius);
                self.page.draw(&Circle::new(self.at(*center), radius, rgb(*color).filled()))
            }
            SceneShape::Text(text) => self.text(text),
        }
    }

    fn text(&self, text: &SceneText) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let weight = if text.bold { FontStyle::Bold } else { FontStyle::Normal };
        let size = text.size * self.unit * self.em;
        let font = FontDesc::new(FontFamily::Name(font::FAMILY), size, weight);
        let turn = if text.upwards { FontTransform::Rotate270 } else { FontTransform::None };
        let color = rgb(text.color);
        let style = TextStyle::from(font.transform(turn)).color(&color);
        // XML has no control characters
        let is_bad = |c: char| c.is_control() || ('\u{fffe}'..='\u{ffff}').contains(&c);
        let shown = text.text.replace(is_bad, "\u{fffd}");
        // centres the capitals, which are 0.73 em high
        let down = text.size * (0.365 - self.baseline);
        let write = |shown: &str, horizontal: HPos, along: f64| {
            let (right, down) = if text.upwards { (down, -along) } else { (along, down) };
            let style = style.pos(Pos::new(horizontal, VPos::Top));
            self.page.draw_text(shown, &style, self.at((text.at.0 + right, text.at.1 + down)))
        };
        let (share, horizontal) = match text.align {
            Align::Left => (0.0, HPos::Left),
            Align::Middle => (0.5, HPos::Center),
            Align::Right => (1.0, HPos::Right),
        };
        if !self.by_glyph {
            return write(&shown, horizontal, 0.0);
        }
        let (glyphs, width) = font::glyphs(&shown, text.size, text.bold);
        glyphs
            .into_iter()
            .filter(|(c, _)| !c.is_whitespace())
            .try_for_each(|(c, x)| write(c.encode_utf8(&mut [0; 4]), HPos::Left, x - share * width))
    }

    /// Backend units; shapes far outside the page are clamped.
    fn length(&self, points: f64) -> i32 {
        (points * self.unit).round().clamp(-1e6, 1e6) as i32
    }

    fn at(&self, (x, y): Point) -> (i32, i32) {
        (self.length(x), self.length(y))
    }
}

fn rgb(color: Color) -> RGBColor {
    RGBColor(color.0, color.1, color.2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::FigureSizes;

    /// Darkness of each column of a text.
    fn columns(text: &str, bold: bool) -> Vec<u32> {
        let mut scene = Scene::new(72.0, 16.0, FigureSizes::new(8.0));
        scene.text(SceneText { bold, ..SceneText::new((4.0, 8.0), text, 8.0) });
        let pixels = pixels(&scene, 120.0).unwrap();
        let dark = |x: u32, y: u32| 255 - u32::from(pixels.rgb[(3 * (y * pixels.width + x)) as usize]);
        (0..pixels.width).map(|x| (0..pixels.height).map(|y| dark(x, y)).sum()).collect()
    }

    #[test]
    fn letters_of_bitmaps_are_evenly_spaced_and_may_be_bold() {
        let columns_of = columns("l|l|l|l|l|l", false);
        let mut at = 0.0;
        let strokes = columns_of.split(|dark| *dark == 0).filter_map(|stroke| {
            let from: f64 = at;
            at += stroke.len() as f64 + 1.0;
            let weights = || stroke.iter().map(|dark| f64::from(*dark)).enumerate();
            let center = weights().map(|(x, dark)| (from + x as f64) * dark).sum::<f64>();
            (!stroke.is_empty()).then(|| center / weights().map(|(_, dark)| dark).sum::<f64>())
        });
        let strokes: Vec<f64> = strokes.collect();
        let gaps: Vec<f64> = strokes.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let wide = font::width("l|", 8.0, false) / 2.0 * 120.0 / POINTS;
        assert_eq!(gaps.len(), 10, "{columns_of:?}");
        assert!(gaps.iter().all(|gap| (gap - wide).abs() < 0.4), "{gaps:?} instead of {wide}");
        let ink = |bold| columns("bold", bold).iter().sum::<u32>();
        assert!(ink(true) > ink(false) * 5 / 4);
    }
}
