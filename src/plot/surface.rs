//! Paints a [`Scene`] into an SVG or a PNG file, whole or not at all.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Polygon, Rectangle};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color as _, FontDesc, FontFamily, FontStyle, FontTransform, RGBColor, TextStyle, WHITE,
    register_font,
};
use tempfile::NamedTempFile;

use super::scene::{Align, Color, Point, Scene, Shape, Text};
use crate::error::{Error, Result};

/// Name of the bundled font. In an SVG it lets the viewer use its own sans-serif font.
const FONT: FontFamily<'static> = FontFamily::SansSerif;

/// What a figure can be written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Svg,
    Png,
}

impl Format {
    fn of(path: &Path) -> Result<Self> {
        let extension = path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase);
        match extension.as_deref() {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            Some(other) => Err(Error::input_help(
                format!("{}: unknown figure format '{other}'", path.display()),
                "name a file that ends in .svg or .png",
            )),
            None => Err(Error::input_help(
                format!("{}: the name does not say which format", path.display()),
                "name a file that ends in .svg or .png",
            )),
        }
    }
}

/// Refuses a path whose extension is no figure format, before any work is done.
pub fn check_format(path: &Path) -> Result<()> {
    Format::of(path).map(|_| ())
}

/// Makes the bundled font (DejaVu Sans) known to plotters, once.
fn register_fonts() -> bool {
    static DONE: OnceLock<bool> = OnceLock::new();
    *DONE.get_or_init(|| {
        let fonts =
            [(FontStyle::Normal, dejavu::sans::regular()), (FontStyle::Bold, dejavu::sans::bold())];
        fonts.into_iter().all(|(style, bytes)| register_font(FONT.as_str(), style, bytes).is_ok())
    })
}

fn font(size: f64, bold: bool) -> FontDesc<'static> {
    FontDesc::new(FONT, size, if bold { FontStyle::Bold } else { FontStyle::Normal })
}

/// Width of a text in pixels. Where the font cannot be had nothing can be painted either, and
/// [`save`] says so; until then a guess does.
pub fn text_width(text: &str, size: f64, bold: bool) -> f64 {
    let measured = if register_fonts() { font(size, bold).box_size(text).ok() } else { None };
    measured.map_or(0.6 * size * text.chars().count() as f64, |(width, _)| f64::from(width))
}

/// Writes the figure; the format follows from the extension. The file is replaced only by a whole one.
pub fn save(scene: &Scene, path: &Path) -> Result<()> {
    let format = Format::of(path)?;
    if !register_fonts() {
        return Err(Error::failed("the bundled font cannot be read"));
    }
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let mut file = temporary(&dir, format).map_err(Error::io(path))?;
    let size = (scene.width, scene.height);
    match format {
        Format::Svg => {
            let text = svg(scene).map_err(|reason| failed(path, &reason))?;
            file.write_all(text.as_bytes()).map_err(Error::io(path))?;
        }
        Format::Png => {
            let area = BitMapBackend::new(file.path(), size).into_drawing_area();
            paint(scene, &area).map_err(|reason| failed(path, &reason.to_string()))?;
        }
    }
    file.as_file().sync_all().map_err(Error::io(path))?;
    file.persist(path).map_err(|error| Error::io(path)(error.error))?;
    Ok(())
}

fn failed(path: &Path, reason: &str) -> Error {
    Error::failed(format!("{}: painting the figure failed: {reason}", path.display()))
}

/// A file beside the one that is asked for. Its extension tells the PNG encoder the format; its
/// permissions are those of any new file, not the narrow ones of temporary files.
fn temporary(dir: &Path, format: Format) -> std::io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".figure-").suffix(if format == Format::Svg { ".svg" } else { ".png" });
    #[cfg(unix)]
    let permissions: Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    #[cfg(unix)]
    builder.permissions(permissions);
    builder.tempfile_in(dir)
}

/// The figure as SVG text.
pub fn svg(scene: &Scene) -> std::result::Result<String, String> {
    if !register_fonts() {
        return Err("the bundled font cannot be read".into());
    }
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, (scene.width, scene.height)).into_drawing_area();
    paint(scene, &area).map_err(|reason| reason.to_string())?;
    // The backend closes the document when it is dropped.
    drop(area);
    Ok(text)
}

fn paint<B: DrawingBackend>(
    scene: &Scene,
    area: &DrawingArea<B, Shift>,
) -> std::result::Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    area.fill(&WHITE)?;
    for shape in &scene.shapes {
        match shape {
            Shape::Rect(place, color) => {
                let corners = [pixel((place.left, place.top)), pixel((place.right, place.bottom))];
                area.draw(&Rectangle::new(corners, rgb(*color).filled()))?;
            }
            Shape::Line(points, color, width) => {
                let points: Vec<_> = points.iter().copied().map(pixel).collect();
                area.draw(&PathElement::new(points, rgb(*color).stroke_width(*width)))?;
            }
            Shape::Polygon(points, color) => {
                let points: Vec<_> = points.iter().copied().map(pixel).collect();
                area.draw(&Polygon::new(points, rgb(*color).filled()))?;
            }
            Shape::Disc(at, radius, color) => {
                area.draw(&Circle::new(pixel(*at), radius.round() as i32, rgb(*color).filled()))?;
            }
            Shape::Text(text) => write_text(text, area)?,
        }
    }
    area.present()
}

fn write_text<B: DrawingBackend>(
    text: &Text,
    area: &DrawingArea<B, Shift>,
) -> std::result::Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let horizontal = match text.align {
        Align::Left => HPos::Left,
        Align::Middle => HPos::Center,
        Align::Right => HPos::Right,
    };
    let mut font = font(text.size, text.bold);
    if text.upwards {
        font = font.transform(FontTransform::Rotate270);
    }
    let color = rgb(text.color);
    let style = TextStyle::from(font).pos(Pos::new(horizontal, VPos::Center)).color(&color);
    area.draw_text(&text.text, &style, pixel(text.at))
}

fn rgb(color: Color) -> RGBColor {
    RGBColor(color.0, color.1, color.2)
}

fn pixel(point: Point) -> (i32, i32) {
    (point.0.round() as i32, point.1.round() as i32)
}
