//! Terminal pictures (Kitty, Sixel, iTerm2, half blocks): detects support and encodes images. Encoding
//! happens once, off the drawing thread; drawing only copies sequences into cells.

mod kitty;
mod sixel;

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use png::ColorType;
use ratatui::buffer::{Buffer, CellDiffOption};
use ratatui::layout::Rect;
use ratatui::style::Color;

use self::kitty::{id_color, placeholders, transmission};
use self::sixel::encode_sixel;
use study::plot::{self, Figure, Pixels};

/// Environment variable that overrides detection: off, kitty, sixel, iterm2, halfblocks.
pub const VARIABLE: &str = "LADDERSCOPE_PICTURES";

/// Assumed cell size in pixels if the terminal does not report one; good enough for protocols that scale.
const CELL: (u16, u16) = (10, 20);

/// Forces the width of a cell that holds an escape sequence to one column, whatever its length.
const ONE_COLUMN: CellDiffOption = CellDiffOption::ForcedWidth(std::num::NonZeroU16::MIN);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Kitty graphics protocol, also supported by other terminals.
    Kitty,
    /// Sixel graphics (DEC).
    Sixel,
    Iterm2,
    /// Half blocks in two colours; works in any colour terminal.
    Halfblocks,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pictures {
    /// Protocol; `None` if unsupported or unknown.
    pub kind: Option<Kind>,
    /// True if sequences must be wrapped for tmux.
    pub tmux: bool,
    pub on: bool,
}

impl Pictures {
    /// Detects support from the environment. The terminal is not queried, so startup never waits and no
    /// reply can be mistaken for keys. Off over SSH, where pictures cost bandwidth, until a key turns
    /// them on; unknown under tmux and screen unless [`VARIABLE`] is set.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let has = |name: &str| variable(name).is_some_and(|v| !v.is_empty());
        let is = |name: &str, wanted: &str| variable(name).is_some_and(|v| v == wanted);
        let term = variable("TERM").unwrap_or_default();
        let tmux = has("TMUX");
        match variable(VARIABLE).as_deref() {
            Some("off") => return Self { kind: None, tmux, on: false },
            Some("kitty") => return Self { kind: Some(Kind::Kitty), tmux, on: true },
            Some("sixel") => return Self { kind: Some(Kind::Sixel), tmux, on: true },
            Some("iterm2") => return Self { kind: Some(Kind::Iterm2), tmux, on: true },
            Some("halfblocks") => return Self { kind: Some(Kind::Halfblocks), tmux, on: true },
            _ => {}
        }
        let within = tmux || has("STY") || has("ZELLIJ") || term.starts_with("tmux");
        if within || term.starts_with("screen") || term == "dumb" || term == "linux" {
            return Self::default();
        }
        let kind = if term == "xterm-kitty" || term == "xterm-ghostty" {
            Some(Kind::Kitty)
        } else if ["foot", "mlterm", "contour"].iter().any(|name| term.starts_with(name)) {
            Some(Kind::Sixel)
        } else if has("WEZTERM_EXECUTABLE")
            || has("KONSOLE_VERSION")
            || is("TERM_PROGRAM", "iTerm.app")
            || is("LC_TERMINAL", "iTerm2")
            || is("TERM_PROGRAM", "mintty")
        {
            Some(Kind::Iterm2)
        } else if has("KITTY_WINDOW_ID") || is("TERM_PROGRAM", "ghostty") {
            Some(Kind::Kitty)
        } else {
            None
        };
        let remote = has("SSH_CONNECTION") || has("SSH_TTY");
        Self { kind, tmux: false, on: kind.is_some() && !remote }
    }
}

/// Encoding of pictures for one terminal.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub kind: Kind,
    pub tmux: bool,
    /// Kitty image id; a new picture replaces the previous one with the same id in the terminal's memory.
    pub id: u32,
}

#[derive(Debug)]
pub struct Picture {
    /// Columns and rows covered.
    size: (u16, u16),
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// One sequence at the top left; the terminal paints over the cells.
    Sequence(String),
    /// Placeholder text per cell and the colour that encodes the image id. The first cell also transmits
    /// the image.
    Placed(Vec<String>, Color),
    /// Colours of the upper and lower half of each cell.
    Halves(Vec<[Color; 2]>),
}

impl Picture {
    /// Encodes a picture over this many columns and rows. Pixels of colour `clear` show the terminal's
    /// background, except with half blocks. Takes milliseconds. Errors are user-facing.
    pub fn new(
        pixels: &Pixels,
        clear: Option<[u8; 3]>,
        (columns, rows): (u16, u16),
        way: Way,
    ) -> Result<Self, String> {
        let size = (columns, rows);
        let content = match way.kind {
            Kind::Kitty => {
                // tmux limits the length of a sequence
                let parts = transmission(&png_of(pixels, clear)?, size, way.id);
                let mut cells = placeholders(size);
                if let Some(first) = cells.first_mut() {
                    let all: String = parts.iter().map(|part| passed(part, way.tmux)).collect();
                    first.insert_str(0, &all);
                }
                Content::Placed(cells, id_color(way.id))
            }
            Kind::Sixel => {
                let sequence = erased(size) + &encode_sixel(pixels, clear);
                Content::Sequence(passed(&sequence, way.tmux))
            }
            Kind::Iterm2 => {
                let file = png_of(pixels, clear)?;
                let (bytes, data) = (file.len(), STANDARD.encode(&file));
                let sequence = format!(
                    "{}\x1b]1337;File=inline=1;size={bytes};width={columns};height={rows};\
                     preserveAspectRatio=0;doNotMoveCursor=1:{data}\x07",
                    erased(size),
                );
                Content::Sequence(passed(&sequence, way.tmux))
            }
            Kind::Halfblocks => Content::Halves(halves(pixels, size)),
        };
        Ok(Self { size, content })
    }

    /// Renders a figure at the largest size that fits the given columns and rows. Takes tens of
    /// milliseconds.
    ///
    /// # Errors
    ///
    /// Returns a user-facing error if a Sixel terminal does not report its cell size, or if rendering fails.
    pub fn of_figure(
        figure: &Figure,
        (columns, rows): (u16, u16),
        cell: Option<(u16, u16)>,
        way: Way,
    ) -> Result<Self, String> {
        let (wide, high) = pixels_of_cell(cell, way.kind)?;
        let room = (f64::from(columns) * f64::from(wide), f64::from(rows) * f64::from(high));
        let width = room.0.min(room.1 / figure.aspect()).floor().max(1.0);
        let pixels = figure.pixels(width as u32).map_err(|error| error.to_string())?;
        let size = |pixels: u32, of: u16| pixels.div_ceil(u32::from(of.max(1))).max(1) as u16;
        let size = (size(pixels.width, wide).min(columns), size(pixels.height, high).min(rows));
        Self::new(&pixels, None, size, way)
    }

    pub fn size(&self) -> (u16, u16) {
        self.size
    }

    /// Draws the picture at the top left of an area; does nothing if it does not fit.
    pub fn draw(&self, area: Rect, buf: &mut Buffer) {
        let area = area.intersection(buf.area);
        let (columns, rows) = self.size;
        if columns > area.width || rows > area.height {
            return;
        }
        let area = Rect { width: columns, height: rows, ..area };
        for (at, position) in area.positions().enumerate() {
            let cell = &mut buf[position];
            cell.reset();
            match &self.content {
                Content::Sequence(sequence) if at == 0 => {
                    cell.set_symbol(sequence).set_diff_option(ONE_COLUMN);
                }
                Content::Sequence(_) => {
                    cell.set_diff_option(CellDiffOption::Skip);
                }
                Content::Placed(cells, color) => {
                    cell.set_symbol(&cells[at]).set_fg(*color).set_diff_option(ONE_COLUMN);
                }
                Content::Halves(colors) => {
                    let [upper, lower] = colors[at];
                    cell.set_char('▀').set_fg(upper).set_bg(lower);
                }
            }
        }
    }
}

/// Cell size in pixels for rendering.
///
/// # Errors
///
/// Returns an error for Sixel, which cannot scale, if the terminal does not report the cell size.
pub fn pixels_of_cell(cell: Option<(u16, u16)>, kind: Kind) -> Result<(u16, u16), String> {
    match (cell, kind) {
        (Some(cell), _) => Ok(cell),
        (None, Kind::Sixel) => Err("the terminal does not tell how many pixels its cells have".into()),
        (None, _) => Ok(CELL),
    }
}

/// Wraps a sequence for tmux passthrough, doubling each escape, if needed.
fn passed(sequence: &str, tmux: bool) -> String {
    if tmux {
        format!("\x1bPtmux;{}\x1b\\", sequence.replace('\x1b', "\x1b\x1b"))
    } else {
        sequence.to_owned()
    }
}

/// Sequence that erases the covered cells and restores the cursor: transparent parts of a picture do not
/// hide characters.
fn erased((columns, rows): (u16, u16)) -> String {
    let mut sequence = String::from("\x1b7");
    for row in 0..rows {
        let down = if row == 0 { "" } else { "\x1b[1B" };
        write!(sequence, "{down}\x1b[{columns}X").expect("strings take any text");
    }
    sequence + "\x1b8"
}

/// Encodes the pixels as PNG; pixels of colour `clear` become transparent.
fn png_of(pixels: &Pixels, clear: Option<[u8; 3]>) -> Result<Vec<u8>, String> {
    let rgba = pixels.rgb.as_chunks::<3>().0.iter().flat_map(|pixel| {
        let [r, g, b] = *pixel;
        [r, g, b, if Some(*pixel) == clear { 0 } else { 255 }]
    });
    let rgba: Vec<u8> = rgba.collect();
    let file = plot::png_file((pixels.width, pixels.height), ColorType::Rgba, &rgba, None, []);
    file.map_err(|error| error.to_string())
}

/// Mean colours of the upper and lower half of each cell.
fn halves(pixels: &Pixels, (columns, rows): (u16, u16)) -> Vec<[Color; 2]> {
    let (across, down) = (usize::from(columns), usize::from(rows) * 2);
    let (width, height) = (pixels.width as usize, pixels.height as usize);
    let (rgb, _) = pixels.rgb.as_chunks::<3>();
    // at least one pixel per half, even if the picture has fewer pixels than halves
    let span = |at: usize, parts: usize, of: usize| {
        let from = (at * of / parts).min(of - 1);
        from..((at + 1) * of / parts).max(from + 1)
    };
    let mean = |x: usize, y: usize| {
        let (columns, rows) = (span(x, across, width), span(y, down, height));
        let count = (columns.len() * rows.len()) as u32;
        let mut sum = [0u32; 3];
        for row in rows {
            for pixel in &rgb[row * width..][columns.clone()] {
                sum.iter_mut().zip(pixel).for_each(|(sum, part)| *sum += u32::from(*part));
            }
        }
        let [r, g, b] = sum.map(|sum| (sum / count) as u8);
        Color::Rgb(r, g, b)
    };
    let cells = (0..down / 2).flat_map(|row| (0..across).map(move |column| (column, row * 2)));
    cells.map(|(x, y)| [mean(x, y), mean(x, y + 1)]).collect()
}

#[cfg(test)]
mod tests;
