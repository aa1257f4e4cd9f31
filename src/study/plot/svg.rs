//! SVG renderer for a [`Scene`]: a plotters backend with a resolution of 1/100 point, glyph outlines (see
//! [`super::font`]) and metadata. The SVG backend of plotters supports only whole pixels and viewer fonts.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt::Write as _;

use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Polygon, Rectangle};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color as _, FontDesc, FontFamily, FontStyle, FontTransform, RGBColor, ShapeStyle, TextStyle,
};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
};

use super::font::{self, Glyph};
use super::provenance::ProvenanceSummary;
use super::scene::{Align, Color, Point, Scene, Shape, Text};
use super::style::{GREY, GRID, INK, WHITE, unfaded};
use base::text::escape;

const FINE: f64 = 100.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    File,
    /// Element of a page with CSS variables for ink and paper (`--fig-ink`, `--fig-grey`, `--fig-grid`,
    /// `--fig-paper`); the name prefixes ids to keep them unique.
    Page(&'a str),
}

/// Renders the figure as SVG text; `None` if the bundled font cannot be read.
pub fn svg(scene: &Scene, provenance: &ProvenanceSummary, place: Place<'_>) -> Option<String> {
    if !font::is_there() {
        return None;
    }
    let mut body = Body { place, ..Body::new(scene) };
    let _ = paint(scene, &(&mut body).into_drawing_area());
    body.end_path();
    Some(body.document(scene, provenance))
}

type Outcome = Result<(), DrawingErrorKind<Infallible>>;

fn paint<B: DrawingBackend<ErrorType = Infallible>>(
    scene: &Scene,
    area: &DrawingArea<B, Shift>,
) -> Result<(), Box<dyn std::error::Error>> {
    let result = (|| {
        let page = [(0, 0), unit((scene.width, scene.height))];
        area.draw(&Rectangle::new(page, rgb(scene.paper).filled()))?;
        for shape in &scene.shapes {
            match shape {
                Shape::Rect(place, color) => {
                    let corners = [unit((place.left, place.top)), unit((place.right, place.bottom))];
                    area.draw(&Rectangle::new(corners, rgb(*color).filled()))?;
                }
                Shape::Lines(lines, color, width) => {
                    let width = (width * FINE).round() as u32;
                    let style = ShapeStyle::from(rgb(*color)).stroke_width(width);
                    for points in lines {
                        let points: Vec<_> = points.iter().copied().map(unit).collect();
                        area.draw(&PathElement::new(points, style))?;
                    }
                }
                Shape::Polygon(points, color) => {
                    let points: Vec<_> = points.iter().copied().map(unit).collect();
                    area.draw(&Polygon::new(points, rgb(*color).filled()))?;
                }
                Shape::Disc(at, radius, color) => {
                    let radius = (radius * FINE).round() as i32;
                    area.draw(&Circle::new(unit(*at), radius, rgb(*color).filled()))?;
                }
                Shape::Text(text) => write_text(text, area)?,
            }
        }
        area.present()
    })();
    result.map_err(|error| error.to_string().into())
}

fn write_text<B: DrawingBackend>(
    text: &Text,
    area: &DrawingArea<B, Shift>,
) -> Result<(), plotters::drawing::DrawingAreaErrorKind<B::ErrorType>> {
    let horizontal = match text.align {
        Align::Left => HPos::Left,
        Align::Middle => HPos::Center,
        Align::Right => HPos::Right,
    };
    let weight = if text.bold { FontStyle::Bold } else { FontStyle::Normal };
    let mut font = FontDesc::new(FontFamily::SansSerif, text.size * FINE, weight);
    if text.upwards {
        font = font.transform(FontTransform::Rotate270);
    }
    let color = rgb(text.color);
    let style = TextStyle::from(font).pos(Pos::new(horizontal, VPos::Center)).color(&color);
    area.draw_text(&text.text, &style, unit(text.at))
}

fn rgb(color: Color) -> RGBColor {
    RGBColor(color.0, color.1, color.2)
}

fn unit(point: Point) -> (i32, i32) {
    ((point.0 * FINE).round() as i32, (point.1 * FINE).round() as i32)
}

fn points(units: i32) -> String {
    let text =
        format!("{}{}.{:02}", if units < 0 { "-" } else { "" }, units.abs() / 100, units.abs() % 100);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

struct Body<'a> {
    place: Place<'a>,
    size: (u32, u32),
    text: String,
    glyphs: BTreeSet<Glyph>,
    /// Pending path: merges consecutive lines of the same colour and width.
    path: Option<(Color, u32, String)>,
}

impl Body<'_> {
    fn new(scene: &Scene) -> Self {
        let (width, height) = unit((scene.width, scene.height));
        let size = (width.unsigned_abs(), height.unsigned_abs());
        Self { place: Place::File, size, text: String::new(), glyphs: BTreeSet::new(), path: None }
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
            // colours faded towards white fade towards the page's paper
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

    fn ids(&self) -> &str {
        match self.place {
            Place::File => "",
            Place::Page(name) => name,
        }
    }

    fn id(&self, glyph: Glyph) -> String {
        format!("{}{}{}", self.ids(), if glyph.bold { 'b' } else { 'g' }, glyph.id)
    }

    // writing to a String cannot fail, here and below
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
        let (width, height) = (points(self.size.0 as i32), points(self.size.1 as i32));
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
}

impl DrawingBackend for &mut Body<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Outcome {
        Ok(())
    }

    fn present(&mut self) -> Outcome {
        Ok(())
    }

    fn draw_pixel(&mut self, at: BackendCoord, color: BackendColor) -> Outcome {
        self.draw_rect(at, (at.0 + 1, at.1 + 1), &color, true)
    }

    fn draw_line<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
    ) -> Outcome {
        self.draw_path([from, to], style)
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Outcome {
        let corners = [from, (to.0, from.1), to, (from.0, to.1)];
        if !fill {
            return self.draw_path(corners.into_iter().chain([from]), style);
        }
        self.end_path();
        let color = self.color(style.color().rgb);
        let (left, right) = (from.0.min(to.0), from.0.max(to.0));
        let (top, bottom) = (from.1.min(to.1), from.1.max(to.1));
        let _ = writeln!(
            self.text,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{color}\"/>",
            points(left),
            points(top),
            points(right - left),
            points(bottom - top)
        );
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Outcome {
        let (color, width) = (style.color().rgb, style.stroke_width());
        if self.path.as_ref().is_none_or(|(c, w, _)| (*c, *w) != (color, width)) {
            self.end_path();
        }
        let (_, _, data) = self.path.get_or_insert_with(|| (color, width, String::new()));
        for (index, (x, y)) in path.into_iter().enumerate() {
            let _ = write!(data, "{}{} {}", if index == 0 { 'M' } else { 'L' }, points(x), points(y));
        }
        Ok(())
    }

    fn draw_circle<S: BackendStyle>(
        &mut self,
        center: BackendCoord,
        radius: u32,
        style: &S,
        _fill: bool,
    ) -> Outcome {
        self.end_path();
        let color = self.color(style.color().rgb);
        let (x, y, r) = (points(center.0), points(center.1), points(radius as i32));
        let _ = writeln!(self.text, "<circle cx=\"{x}\" cy=\"{y}\" r=\"{r}\" fill=\"{color}\"/>");
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        corners: I,
        style: &S,
    ) -> Outcome {
        self.end_path();
        let color = self.color(style.color().rgb);
        let corners: Vec<String> =
            corners.into_iter().map(|(x, y)| format!("{},{}", points(x), points(y))).collect();
        let _ = writeln!(self.text, "<polygon points=\"{}\" fill=\"{color}\"/>", corners.join(" "));
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, at: BackendCoord) -> Outcome {
        self.end_path();
        let bold = matches!(style.style(), FontStyle::Bold);
        let (glyphs, width) = font::glyphs(text, bold);
        let before = match style.anchor().h_pos {
            HPos::Left => 0.0,
            HPos::Center => width / 2.0,
            HPos::Right => width,
        };
        let scale = style.size() / FINE / font::units(bold);
        // centre the capitals, which are 0.73 em high
        let (x, y) = (-before * scale, 0.365 * style.size() / FINE);
        let turn =
            if matches!(style.transform(), FontTransform::Rotate270) { "rotate(-90) " } else { "" };
        let color = self.color(style.color().rgb);
        let _ = write!(
            self.text,
            "<g aria-label=\"{}\" fill=\"{color}\" transform=\"translate({} {}) {turn}translate({x:.2} {y:.2}) scale({scale:.6} {:.6})\">",
            escape(text),
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
        Ok(())
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
