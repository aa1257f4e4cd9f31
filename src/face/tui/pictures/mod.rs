//! Terminal pictures (Kitty, Sixel, iTerm2, half blocks): detects support and encodes images. Encoding
//! happens once, off the drawing thread; drawing only copies sequences into cells.
//!
//! Kitty graphics protocol: the PNG is transmitted once under an id, and placeholder cells show parts of
//! it. Overwriting a placeholder removes that part, so nothing needs deleting.
//! (<https://sw.kovidgoyal.net/kitty/graphics-protocol/#unicode-placeholders>)
//!
//! Sixel encoding: bands of six rows, painted one palette colour after the other. (VT330/VT340
//! Programmer Reference Manual, volume 2, chapter 14)

use std::collections::HashMap;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use foldhash::fast::FixedState;
use png::ColorType;
use ratatui::buffer::{Buffer, CellDiffOption};
use ratatui::layout::Rect;
use ratatui::style::Color;

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
                Content::Placed(cells, color(way.id))
            }
            Kind::Sixel => {
                let sequence = erased(size) + &encode_sixel(pixels, clear);
                Content::Sequence(passed(&sequence, way.tmux))
            }
            Kind::Iterm2 => {
                let file = png_of(pixels, clear)?;
                let (bytes, data) = (file.len(), STANDARD.encode(&file));
                let sequence = format!(
                    "{}\x1b]1337;File=inline=1;size={bytes};width={columns};height={rows};preserveAspectRatio=0;doNotMoveCursor=1:{data}\x07",
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

const PLACEHOLDER: char = '\u{10EEEE}';

/// Maximum base64 bytes per sequence.
const CHUNK: usize = 4096;

/// Combining characters that encode row and column numbers, as code point ranges. Source: Kitty's
/// `rowcolumn-diacritics.txt` (class 230 in Unicode 6.0, not part of any precomposed character).
#[rustfmt::skip]
const NUMBERS: [(u32, u32); 86] = [
    (0x305, 0x305), (0x30d, 0x30e), (0x310, 0x310), (0x312, 0x312), (0x33d, 0x33f), (0x346,
    0x346), (0x34a, 0x34c), (0x350, 0x352), (0x357, 0x357), (0x35b, 0x35b), (0x363, 0x36f),
    (0x483, 0x487), (0x592, 0x595), (0x597, 0x599), (0x59c, 0x5a1), (0x5a8, 0x5a9), (0x5ab,
    0x5ac), (0x5af, 0x5af), (0x5c4, 0x5c4), (0x610, 0x617), (0x657, 0x65b), (0x65d, 0x65e),
    (0x6d6, 0x6dc), (0x6df, 0x6e2), (0x6e4, 0x6e4), (0x6e7, 0x6e8), (0x6eb, 0x6ec), (0x730,
    0x730), (0x732, 0x733), (0x735, 0x736), (0x73a, 0x73a), (0x73d, 0x73d), (0x73f, 0x741),
    (0x743, 0x743), (0x745, 0x745), (0x747, 0x747), (0x749, 0x74a), (0x7eb, 0x7f1), (0x7f3,
    0x7f3), (0x816, 0x819), (0x81b, 0x823), (0x825, 0x827), (0x829, 0x82d), (0x951, 0x951),
    (0x953, 0x954), (0xf82, 0xf83), (0xf86, 0xf87), (0x135d, 0x135f), (0x17dd, 0x17dd),
    (0x193a, 0x193a), (0x1a17, 0x1a17), (0x1a75, 0x1a7c), (0x1b6b, 0x1b6b), (0x1b6d,
    0x1b73), (0x1cd0, 0x1cd2), (0x1cda, 0x1cdb), (0x1ce0, 0x1ce0), (0x1dc0, 0x1dc1),
    (0x1dc3, 0x1dc9), (0x1dcb, 0x1dcc), (0x1dd1, 0x1de6), (0x1dfe, 0x1dfe), (0x20d0,
    0x20d1), (0x20d4, 0x20d7), (0x20db, 0x20dc), (0x20e1, 0x20e1), (0x20e7, 0x20e7),
    (0x20e9, 0x20e9), (0x20f0, 0x20f0), (0x2cef, 0x2cf1), (0x2de0, 0x2dff), (0xa66f,
    0xa66f), (0xa67c, 0xa67d), (0xa6f0, 0xa6f1), (0xa8e0, 0xa8f1), (0xaab0, 0xaab0),
    (0xaab2, 0xaab3), (0xaab7, 0xaab8), (0xaabe, 0xaabf), (0xaac1, 0xaac1), (0xfe20,
    0xfe26), (0x10a0f, 0x10a0f), (0x10a38, 0x10a38), (0x1d185, 0x1d189), (0x1d1aa, 0x1d1ad),
    (0x1d242, 0x1d244),
];

/// Escape sequences that transmit a PNG for placeholder display over this many columns and rows. Replies
/// from the terminal are suppressed.
pub fn transmission(png: &[u8], (columns, rows): (u16, u16), id: u32) -> Vec<String> {
    let data = STANDARD.encode(png);
    let chunks = data.len().div_ceil(CHUNK);
    let what = format!("a=T,U=1,f=100,t=d,i={id},c={columns},r={rows},");
    let part = |at: usize| {
        let what = if at == 0 { &what } else { "" };
        let more = u8::from(at + 1 < chunks);
        let data = &data[at * CHUNK..data.len().min((at + 1) * CHUNK)];
        format!("\x1b_G{what}q=2,m={more};{data}\x1b\\")
    };
    (0..chunks).map(part).collect()
}

/// Placeholder text of each cell, row by row. Past the last encodable number, the terminal counts on
/// from the cell to the left.
pub fn placeholders((columns, rows): (u16, u16)) -> Vec<String> {
    let numbers = || NUMBERS.iter().flat_map(|(first, last)| *first..=*last).map(char::from_u32);
    let numbered = |count: u16| -> Vec<Option<char>> {
        numbers().chain(std::iter::repeat(None)).take(usize::from(count)).collect()
    };
    let columns = numbered(columns);
    let cell = |row: Option<char>, column: Option<char>| {
        let numbers = row.into_iter().chain(column.filter(|_| row.is_some()));
        std::iter::once(PLACEHOLDER).chain(numbers).collect()
    };
    let rows = numbered(rows);
    rows.iter().flat_map(|row| columns.iter().map(|column| cell(*row, *column))).collect()
}

/// Foreground colour of placeholder cells; encodes the image id.
pub fn color(id: u32) -> Color {
    let [_, r, g, b] = id.to_be_bytes();
    Color::Rgb(r, g, b)
}

/// Palette size that terminals commonly support.
const COLORS: usize = 256;

const BAND: usize = 6;

/// Encodes pixels as Sixel; pixels of colour `clear` are left unpainted.
///
/// Costs a few passes over the pixels, plus one pass over the width for each colour in each band.
pub fn encode_sixel(pixels: &Pixels, clear: Option<[u8; 3]>) -> String {
    let (width, height) = (pixels.width as usize, pixels.height as usize);
    let (colors, indices) = palette(pixels.rgb.as_chunks().0, clear);
    // P2=1 leaves unpainted pixels alone; square pixels
    let mut sequence = format!("\x1bP0;1;0q\"1;1;{width};{height}");
    for (at, color) in colors.iter().enumerate() {
        let [r, g, b] = color.map(|part| (u32::from(part) * 100 + 127) / 255);
        write!(sequence, "#{at};2;{r};{g};{b}").expect("strings take any text");
    }
    // six-row bit columns, one buffer per colour
    let mut bits = vec![vec![0u8; width]; colors.len()];
    let mut used = vec![false; colors.len()];
    for band in indices.chunks(width * BAND) {
        for (row, indices) in band.chunks(width).enumerate() {
            for (column, index) in indices.iter().enumerate() {
                if let Some(index) = index {
                    let index = usize::from(*index);
                    bits[index][column] |= 1 << row;
                    used[index] = true;
                }
            }
        }
        for (at, bits) in bits.iter_mut().enumerate() {
            if std::mem::take(&mut used[at]) {
                write!(sequence, "#{at}").expect("strings take any text");
                runs(bits, &mut sequence);
                sequence.push('$');
                bits.fill(0);
            }
        }
        sequence.push('-');
    }
    sequence + "\x1b\\"
}

/// Run-length encodes one colour of a band, dropping trailing empty columns.
fn runs(bits: &[u8], sequence: &mut String) {
    let painted = bits.iter().rposition(|bits| *bits != 0).map_or(0, |last| last + 1);
    for run in bits[..painted].chunk_by(|a, b| a == b) {
        let sixel = char::from(b'?' + run[0]);
        if run.len() > 3 {
            write!(sequence, "!{}{sixel}", run.len()).expect("strings take any text");
        } else {
            sequence.extend(run.iter().map(|_| sixel));
        }
    }
}

/// Colours, and the colour index of each pixel.
type Palette = (Vec<[u8; 3]>, Vec<Option<u8>>);

/// Palette of the pixels: exact if it fits, else quantized to as many high bits as fit.
fn palette(rgb: &[[u8; 3]], clear: Option<[u8; 3]>) -> Palette {
    // two bits per channel give 64 colours, which always fit
    (2..=8).rev().find_map(|kept| by_bits(rgb, clear, kept)).unwrap_or_default()
}

/// Palette by the `kept` high bits of each channel, if it fits. Each entry is the mean of its pixels.
fn by_bits(rgb: &[[u8; 3]], clear: Option<[u8; 3]>, kept: u8) -> Option<Palette> {
    let mut found: HashMap<[u8; 3], u8, FixedState> = HashMap::default();
    let mut sums: Vec<([u64; 3], u64)> = Vec::new();
    let mut indices = Vec::with_capacity(rgb.len());
    for pixel in rgb {
        if Some(*pixel) == clear {
            indices.push(None);
            continue;
        }
        let key = pixel.map(|part| part >> (8 - kept));
        let index = match found.get(&key) {
            Some(index) => *index,
            None if sums.len() == COLORS => return None,
            None => {
                let index = sums.len() as u8;
                sums.push(([0; 3], 0));
                found.insert(key, index);
                index
            }
        };
        let (sum, count) = &mut sums[usize::from(index)];
        sum.iter_mut().zip(pixel).for_each(|(sum, part)| *sum += u64::from(*part));
        *count += 1;
        indices.push(Some(index));
    }
    let mean = |(sum, count): &([u64; 3], u64)| sum.map(|sum| ((sum + count / 2) / count) as u8);
    Some((sums.iter().map(mean).collect(), indices))
}

#[cfg(test)]
mod tests;
