//! SVG text of a [`Scene`], in hundredths of points, with outlines for text (see [`super::font`]) and
//! what the file says of itself.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::font::{self, Glyph};
use super::provenance::ProvenanceSummary;
use super::scene::{Align, Color, Point, Scene, Shape, Text};
use super::style::{GREY, GRID, INK, WHITE, unfaded};
use crate::base::text::escape;

/// Units of a place in a point.
const FINE: f64 = 100.0;

/// Where the SVG will lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// In a file of its own.
    File,
    /// Within a page, which has variables for ink and paper (`--fig-ink`, `--fig-grey`, `--fig-grid`,
    /// `--fig-paper`); the name keeps its ids apart from those of other figures.
    Page(&'a str),
}

/// The figure as SVG text. `None` where the bundled font cannot be read.
pub fn svg(scene: &Scene, provenance: &ProvenanceSummary, place: Place<'_>) -> Option<String> {
    if !font::is_there() {
        return None;
    }
    let mut body = Body::new(scene, place);
    body.rect((0, 0), body.size, scene.paper);
    scene.shapes.iter().for_each(|shape| body.shape(shape));
    body.end_path();
    Some(body.document(scene, provenance))
}

fn unit(point: Point) -> (i32, i32) {
    ((point.0 * FINE).round() as i32, (point.1 * FINE).round() as i32)
}

/// A number of units as points: no more digits than it needs.
fn points(units: i32) -> String {
    let text =
        format!("{}{}.{:02}", if units < 0 { "-" } else { "" }, units.abs() / 100, units.abs() % 100);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// What is drawn, as it comes.
struct Body<'a> {
    place: Place<'a>,
    /// Width and height of the page, in units.
    size: (i32, i32),
    text: String,
    glyphs: BTreeSet<Glyph>,
    /// Lines of one colour and width that follow each other are one path.
    path: Option<(Color, u32, String)>,
}

impl<'a> Body<'a> {
    fn new(scene: &Scene, place: Place<'a>) -> Self {
        let size = unit((scene.width, scene.height));
        Self { place, size, text: String::new(), glyphs: BTreeSet::new(), path: None }
    }

    fn color(&self, color: Color) -> String {
        let hex = |color: Color| format!("#{:02x}{:02x}{:02x}", color.0, color.1, color.2);
        if self.place == Place::File {
            return hex(color);
        }
        let name = match color {
            INK | (0, 0, 0) => "ink",
            GREY => "grey",
            GRID => "grid",
            WHITE => "paper",
            // What fades into paper fades into the page's.
            (r, g, b) if r.min(g).min(b) >= 170 => {
                return format!(
                    "color-mix(in srgb, {} 33%, var(--fig-paper,#ffffff))",
                    self.color(unfaded(color))
                );
            }
            _ => return hex(color),
        };
        format!("var(--fig-{name},{})", hex(color))
    }

    /// The name that ids begin with.
    fn ids(&self) -> &str {
        match self.place {
            Place::File => "",
            Place::Page(name) => name,
        }
    }

    fn id(&self, glyph: Glyph) -> String {
        format!("{}{}{}", self.ids(), if glyph.bold { 'b' } else { 'g' }, glyph.id)
    }

    // Writing to a String cannot fail, here and below.
    fn end_path(&mut self) {
        if let Some((color, width, data)) = self.path.take() {
            let color = self.color(color);
            let width = points(width as i32);
            let _ = writeln!(
                self.text,
                "<path d=\"{data}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\"/>"
            );
        }
    }

    fn document(&self, scene: &Scene, provenance: &ProvenanceSummary) -> String {
        let (width, height) = (points(self.size.0), points(self.size.1));
        let mut out = String::new();
        let title = escape(&scene.title);
        let caption = escape(&provenance.caption());
        if self.place == Place::File {
            out.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        }
        let inches = |points: f64| {
            let text = format!("{:.4}", points / 72.0);
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        let (in_width, in_height) = (inches(scene.width), inches(scene.height));
        let _ = writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\" \
             width=\"{in_width}in\" height=\"{in_height}in\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
             <title>{title}</title>\n<desc>{caption}</desc>"
        );
        if self.place == Place::File {
            let _ = write!(
                out,
                "<metadata><rdf:RDF xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\" \
                 xmlns:dc=\"http://purl.org/dc/elements/1.1/\"><rdf:Description rdf:about=\"\">\n\
                 <dc:title>{title}</dc:title>\n<dc:description>{caption}</dc:description>\n"
            );
            for (name, value) in provenance.pairs() {
                let element = match name {
                    "Provenance" => "source",
                    "Software" => "creator",
                    "Creation Time" => "date",
                    _ => "coverage",
                };
                let said = if element == "coverage" { format!("{name}: {value}") } else { value };
                let _ = writeln!(out, "<dc:{element}>{}</dc:{element}>", escape(&said));
            }
            out.push_str("</rdf:Description></rdf:RDF></metadata>\n");
        }
        if !self.glyphs.is_empty() {
            out.push_str("<defs>\n");
            for glyph in &self.glyphs {
                let _ =
                    writeln!(out, "<path id=\"{}\" d=\"{}\"/>", self.id(*glyph), font::outline(*glyph));
            }
            out.push_str("</defs>\n");
        }
        out.push_str(&self.text);
        if !scene.tips.is_empty() {
            out.push_str("<g fill=\"#000000\" fill-opacity=\"0\">\n");
            for tip in &scene.tips {
                let (x, y) = unit(tip.at);
                let _ = writeln!(
                    out,
                    "<circle cx=\"{}\" cy=\"{}\" r=\"{}\"><title>{}</title></circle>",
                    points(x),
                    points(y),
                    points((tip.radius * FINE).round() as i32),
                    escape(&tip.text)
                );
            }
            out.push_str("</g>\n");
        }
        out.push_str("</svg>\n");
        out
    }

    /// A place on the page: what lies beside it is moved to its edge.
    fn on_page(&self, point: Point) -> (i32, i32) {
        let (x, y) = unit(point);
        (x.clamp(0, self.size.0), y.clamp(0, self.size.1))
    }

    fn shape(&mut self, shape: &Shape) {
        if !matches!(shape, Shape::Lines(..)) {
            self.end_path();
        }
        match shape {
            Shape::Rect(area, color) => {
                let from = self.on_page((area.left, area.top));
                self.rect(from, self.on_page((area.right, area.bottom)), *color);
            }
            Shape::Lines(lines, color, width) => {
                let width = (width * FINE).round() as u32;
                lines.iter().for_each(|points| self.line(points, *color, width));
            }
            Shape::Polygon(corners, color) => {
                let color = self.color(*color);
                let corner = |at: &Point| {
                    let (x, y) = self.on_page(*at);
                    format!("{},{}", points(x), points(y))
                };
                let corners = corners.iter().map(corner).collect::<Vec<_>>().join(" ");
                let _ = writeln!(self.text, "<polygon points=\"{corners}\" fill=\"{color}\"/>");
            }
            Shape::Disc(at, radius, color) => {
                let color = self.color(*color);
                let (x, y) = self.on_page(*at);
                let (x, y, r) = (points(x), points(y), points((radius * FINE).round() as i32));
                let _ =
                    writeln!(self.text, "<circle cx=\"{x}\" cy=\"{y}\" r=\"{r}\" fill=\"{color}\"/>");
            }
            Shape::Text(text) => self.write_text(text),
        }
    }

    fn rect(&mut self, from: (i32, i32), to: (i32, i32), color: Color) {
        let color = self.color(color);
        let _ = writeln!(
            self.text,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{color}\"/>",
            points(from.0.min(to.0)),
            points(from.1.min(to.1)),
            points((to.0 - from.0).abs()),
            points((to.1 - from.1).abs())
        );
    }

    fn line(&mut self, line: &[Point], color: Color, width: u32) {
        if self.path.as_ref().is_none_or(|(c, w, _)| (*c, *w) != (color, width)) {
            self.end_path();
        }
        let (_, _, mut data) = self.path.take().unwrap_or((color, width, String::new()));
        for (index, at) in line.iter().enumerate() {
            let (x, y) = self.on_page(*at);
            let _ = write!(data, "{}{} {}", if index == 0 { 'M' } else { 'L' }, points(x), points(y));
        }
        self.path = Some((color, width, data));
    }

    fn write_text(&mut self, text: &Text) {
        let (glyphs, width) = font::glyphs(&text.text, text.bold);
        let before = match text.align {
            Align::Left => 0.0,
            Align::Middle => width / 2.0,
            Align::Right => width,
        };
        let (size, at) = (text.size * FINE, unit(text.at));
        let scale = size / FINE / font::units(text.bold);
        // The middle of capitals, which are 0.73 em high, lies at the place.
        let (x, y) = (-before * scale, 0.365 * size / FINE);
        let turn = if text.upwards { "rotate(-90) " } else { "" };
        let color = self.color(text.color);
        let _ = write!(
            self.text,
            "<g aria-label=\"{}\" fill=\"{color}\" transform=\"translate({} {}) {turn}translate({x:.2} {y:.2}) scale({scale:.6} {:.6})\">",
            escape(&text.text),
            points(at.0),
            points(at.1),
            -scale
        );
        for (glyph, x) in glyphs {
            if font::outline(glyph).is_empty() {
                continue;
            }
            self.glyphs.insert(glyph);
            let id = self.id(glyph);
            let _ = write!(self.text, "<use xlink:href=\"#{id}\" x=\"{}\"/>", x.round());
        }
        self.text.push_str("</g>\n");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_have_no_more_digits_than_they_need() {
        let all = [0, 5, 50, 123, 1200, -7, -250].map(points);
        assert_eq!(all, ["0", "0.05", "0.5", "1.23", "12", "-0.07", "-2.5"]);
    }

    proptest! {
        #[test]
        fn any_text_can_be_carried(text in any::<String>()) {
            let xml = format!("<a b=\"{0}\">{0}</a>", escape(&text));
            let document = roxmltree::Document::parse(&xml).unwrap();
            let root = document.root_element();
            prop_assert_eq!(root.attribute("b").unwrap(), root.text().unwrap_or_default());
        }
    }
}
