//! Picture of the window: SVG with selectable text, or PNG rendered with the bundled font. Colours are
//! the theme's; the terminal's sixteen follow xterm.

use std::fmt::Write as _;
use std::path::Path;

use ab_glyph::{Font, FontRef, Glyph, PxScale, ScaleFont, point};
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

use super::screen::FileKind;
use base::atomic;
use base::error::{Error, Result};

/// Cell size in SVG units; a PNG has twice as many pixels.
const CELL: (f32, f32) = (8.43, 16.5);

const FONT_SIZE: f32 = 14.0;

const DENSITY: f32 = 2.0;

type Rgb = [u8; 3];

/// Writes a picture of a window atomically; the path's extension selects the format.
pub fn write(buffer: &Buffer, light: bool, path: &Path) -> Result<()> {
    let bytes = match FileKind::from_path(path) {
        Some(FileKind::Svg) => svg(buffer, light).into_bytes(),
        Some(FileKind::Png) => png(buffer, light).map_err(Error::failed)?,
        _ => return Err(Error::input(format!("{}: end it with .svg or .png", path.display()))),
    };
    atomic::write(path, &bytes)
}

/// Text and background colour of a light or dark theme.
pub fn ink(light: bool) -> (Rgb, Rgb) {
    if light { ([28, 28, 28], [255, 255, 255]) } else { ([220, 220, 220], [18, 18, 22]) }
}

fn colors(cell: &Cell, light: bool) -> (Rgb, Rgb) {
    let (text, paper) = ink(light);
    let mut front = rgb(cell.fg, light).unwrap_or(text);
    let mut back = rgb(cell.bg, light).unwrap_or(paper);
    if cell.modifier.contains(Modifier::DIM) {
        front = std::array::from_fn(|i| ((u16::from(front[i]) * 3 + u16::from(back[i]) * 2) / 5) as u8);
    }
    if cell.modifier.contains(Modifier::REVERSED) {
        (front, back) = (back, front);
    }
    (front, back)
}

/// RGB value a terminal would show; `None` for its default text or background.
pub fn rgb(color: Color, light: bool) -> Option<Rgb> {
    const DARK: [(Color, Rgb); 16] = [
        (Color::Black, [0, 0, 0]),
        (Color::Red, [224, 82, 82]),
        (Color::Green, [88, 190, 100]),
        (Color::Yellow, [214, 178, 60]),
        (Color::Blue, [94, 140, 240]),
        (Color::Magenta, [200, 110, 210]),
        (Color::Cyan, [70, 190, 200]),
        (Color::Gray, [210, 210, 210]),
        (Color::DarkGray, [110, 110, 110]),
        (Color::LightRed, [255, 110, 110]),
        (Color::LightGreen, [120, 220, 130]),
        (Color::LightYellow, [240, 210, 90]),
        (Color::LightBlue, [130, 170, 255]),
        (Color::LightMagenta, [225, 140, 235]),
        (Color::LightCyan, [100, 220, 230]),
        (Color::White, [255, 255, 255]),
    ];
    let at = match color {
        Color::Indexed(i @ 0..16) => Some(usize::from(i)),
        named => DARK.iter().position(|(name, _)| *name == named),
    };
    if let Some(at) = at {
        // white backgrounds need darker hues
        let darker = |c: u8| (u16::from(c) * 2 / 3) as u8;
        return Some(if light { DARK[at].1.map(darker) } else { DARK[at].1 });
    }
    Some(match color {
        Color::Rgb(r, g, b) => [r, g, b],
        // xterm's colour cube and greys
        Color::Indexed(i @ ..232) => {
            let level = |n: u8| if n == 0 { 0 } else { 55 + 40 * n };
            let i = i - 16;
            [level(i / 36), level(i / 6 % 6), level(i % 6)]
        }
        Color::Indexed(i) => [8 + 10 * (i - 232); 3],
        _ => return None,
    })
}

fn hex([r, g, b]: Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// Runs of equally styled cells in a row: first column, width, text, foreground, background, bold.
fn runs(buffer: &Buffer, row: u16, light: bool) -> Vec<(u16, u16, String, Rgb, Rgb, bool)> {
    let mut runs: Vec<(u16, u16, String, Rgb, Rgb, bool)> = Vec::new();
    for column in 0..buffer.area.width {
        let cell = &buffer[(column, row)];
        let (front, back) = colors(cell, light);
        let bold = cell.modifier.contains(Modifier::BOLD);
        match runs.last_mut() {
            Some(run) if (run.3, run.4, run.5) == (front, back, bold) => {
                run.1 += 1;
                run.2.push_str(cell.symbol());
            }
            _ => runs.push((column, 1, cell.symbol().into(), front, back, bold)),
        }
    }
    runs
}

pub fn svg(buffer: &Buffer, light: bool) -> String {
    let (width, height) =
        (f32::from(buffer.area.width) * CELL.0, f32::from(buffer.area.height) * CELL.1);
    let (text, paper) = colors(&Cell::EMPTY, light);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.1}\" height=\"{height:.1}\" \
         viewBox=\"0 0 {width:.1} {height:.1}\" font-family=\"'DejaVu Sans Mono','Menlo','Consolas',monospace\" \
         font-size=\"{FONT_SIZE}\" fill=\"{}\">\n<title>Ladderscope</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"{}\"/>\n",
        hex(text),
        hex(paper)
    );
    for row in 0..buffer.area.height {
        let top = f32::from(row) * CELL.1;
        for (column, columns, symbols, front, back, bold) in runs(buffer, row, light) {
            let (x, width) = (f32::from(column) * CELL.0, f32::from(columns) * CELL.0);
            if back != paper {
                let _ = writeln!(
                    out,
                    "<rect x=\"{x:.2}\" y=\"{top:.2}\" width=\"{width:.2}\" height=\"{:.2}\" fill=\"{}\"/>",
                    CELL.1,
                    hex(back)
                );
            }
            let shown = symbols.trim_end();
            if shown.is_empty() {
                continue;
            }
            // width without trailing blanks, which have no glyphs to stretch
            let blanks = symbols.chars().count() - shown.chars().count();
            let length = f32::from(columns - (blanks as u16).min(columns)) * CELL.0;
            let weight = if bold { " font-weight=\"bold\"" } else { "" };
            let color = if front == text { String::new() } else { format!(" fill=\"{}\"", hex(front)) };
            let _ = writeln!(
                out,
                "<text x=\"{x:.2}\" y=\"{:.2}\" textLength=\"{length:.2}\" lengthAdjust=\"spacingAndGlyphs\" \
                 xml:space=\"preserve\"{weight}{color}>{}</text>",
                top + CELL.1 * 0.78,
                escaped(shown)
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn png(buffer: &Buffer, light: bool) -> std::result::Result<Vec<u8>, String> {
    let fonts = Fonts::load()?;
    let (w, h) = (CELL.0 * DENSITY, CELL.1 * DENSITY);
    let width = (f32::from(buffer.area.width) * w).ceil() as u32;
    let height = (f32::from(buffer.area.height) * h).ceil() as u32;
    let (_, paper) = colors(&Cell::EMPTY, light);
    let mut pixels = Pixels { width, height, bytes: paper.repeat((width * height) as usize) };
    for row in 0..buffer.area.height {
        for column in 0..buffer.area.width {
            let cell = &buffer[(column, row)];
            let (front, back) = colors(cell, light);
            let (x, y) = (f32::from(column) * w, f32::from(row) * h);
            if back != paper {
                pixels.fill((x, y), (w, h), back);
            }
            let bold = cell.modifier.contains(Modifier::BOLD);
            for symbol in cell.symbol().chars().filter(|c| !c.is_whitespace()) {
                fonts.paint(&mut pixels, symbol, bold, (x, y), front);
            }
        }
    }
    let file = study::plot::png_file((width, height), png::ColorType::Rgb, &pixels.bytes, None, []);
    file.map_err(|error| error.to_string())
}

struct Pixels {
    width: u32,
    height: u32,
    bytes: Vec<u8>,
}

impl Pixels {
    fn fill(&mut self, (x, y): (f32, f32), (w, h): (f32, f32), color: Rgb) {
        let (right, bottom) = ((x + w).round() as u32, (y + h).round() as u32);
        for py in y.round() as u32..bottom.min(self.height) {
            for px in x.round() as u32..right.min(self.width) {
                self.blend(px, py, color, 1.0);
            }
        }
    }

    fn blend(&mut self, x: u32, y: u32, color: Rgb, coverage: f32) {
        if x >= self.width || y >= self.height {
            return;
        }
        let at = (y * self.width + x) as usize * 3;
        for (byte, color) in self.bytes[at..at + 3].iter_mut().zip(color) {
            let mixed = f32::from(*byte) + (f32::from(color) - f32::from(*byte)) * coverage.min(1.0);
            *byte = mixed.round() as u8;
        }
    }
}

/// Bundled fonts: monospaced, with the proportional sibling for missing glyphs such as other scripts.
struct Fonts {
    regular: FontRef<'static>,
    bold: FontRef<'static>,
    other: FontRef<'static>,
}

impl Fonts {
    fn load() -> std::result::Result<Self, String> {
        let font = |bytes| FontRef::try_from_slice(bytes).map_err(|e| format!("the bundled font: {e}"));
        Ok(Self {
            regular: font(dejavu::sans_mono::regular())?,
            bold: font(dejavu::sans_mono::bold())?,
            other: font(dejavu::sans::regular())?,
        })
    }

    fn paint(&self, pixels: &mut Pixels, symbol: char, bold: bool, (x, y): (f32, f32), color: Rgb) {
        let own = if bold { &self.bold } else { &self.regular };
        let font = if own.glyph_id(symbol).0 == 0 { &self.other } else { own };
        let scale = PxScale::from(
            FONT_SIZE * DENSITY * font.height_unscaled() / font.units_per_em().unwrap_or(2048.0),
        );
        let scaled = font.as_scaled(scale);
        // centre glyphs of the fallback font in the cell
        let spare = (CELL.0 * DENSITY - scaled.h_advance(font.glyph_id(symbol))) / 2.0;
        let at = point(x + spare, y + CELL.1 * DENSITY * 0.78);
        let glyph: Glyph = font.glyph_id(symbol).with_scale_and_position(scale, at);
        let Some(outline) = font.outline_glyph(glyph) else { return };
        let bounds = outline.px_bounds();
        outline.draw(|px, py, coverage| {
            let (px, py) = (bounds.min.x as i64 + i64::from(px), bounds.min.y as i64 + i64::from(py));
            if let (Ok(px), Ok(py)) = (px.try_into(), py.try_into()) {
                pixels.blend(px, py, color, coverage);
            }
        });
    }
}
