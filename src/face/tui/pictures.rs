//! Terminal pictures (Kitty, Sixel, iTerm2, half blocks) by ratatui-image. Encoding happens once, off the drawing
//! thread.
//!
//! The library's own detection asks the terminal and waits for its reply; here the environment decides, so startup
//! never waits and no reply can be mistaken for keys.

use std::fmt;

use image::{DynamicImage, RgbaImage};
use ratatui::buffer::Buffer;
use ratatui::layout::{Rect, Size};
use ratatui::widgets::{Clear, Widget};
pub use ratatui_image::picker::ProtocolType;
use ratatui_image::protocol::Protocol;
use ratatui_image::protocol::halfblocks::Halfblocks;
use ratatui_image::protocol::iterm2::Iterm2;
use ratatui_image::protocol::kitty::Kitty;
use ratatui_image::protocol::sixel::Sixel;

use study::plot::{Figure, Pixels};

/// Environment variable that overrides detection: off, kitty, sixel, iterm2, halfblocks.
pub const VARIABLE: &str = "LADDERSCOPE_PICTURES";

/// Assumed cell size in pixels if the terminal does not report one; good enough for protocols that scale.
const CELL: (u16, u16) = (10, 20);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pictures {
    /// `None` if unsupported or unknown.
    pub protocol: Option<ProtocolType>,
    /// True if sequences must be wrapped for tmux.
    pub tmux: bool,
    pub on: bool,
}

impl Pictures {
    /// Detects support from the environment. Off over SSH, where pictures cost bandwidth, until a key turns them on;
    /// unknown under tmux and screen unless [`VARIABLE`] is set.
    pub fn from_variable(variable: impl Fn(&str) -> Option<String>) -> Self {
        let has = |name: &str| variable(name).is_some_and(|v| !v.is_empty());
        let is = |name: &str, wanted: &str| variable(name).is_some_and(|v| v == wanted);
        let term = variable("TERM").unwrap_or_default();
        let tmux = has("TMUX");
        let protocol = match variable(VARIABLE).as_deref() {
            Some("off") => return Self { protocol: None, tmux, on: false },
            Some("kitty") => Some(ProtocolType::Kitty),
            Some("sixel") => Some(ProtocolType::Sixel),
            Some("iterm2") => Some(ProtocolType::Iterm2),
            Some("halfblocks") => Some(ProtocolType::Halfblocks),
            _ => None,
        };
        if protocol.is_some() {
            return Self { protocol, tmux, on: true };
        }
        let within = tmux || has("STY") || has("ZELLIJ") || term.starts_with("tmux");
        if within || term.starts_with("screen") || term == "dumb" || term == "linux" {
            return Self::default();
        }
        let protocol = if term == "xterm-kitty" || term == "xterm-ghostty" {
            Some(ProtocolType::Kitty)
        } else if ["foot", "mlterm", "contour"].iter().any(|name| term.starts_with(name)) {
            Some(ProtocolType::Sixel)
        } else if has("WEZTERM_EXECUTABLE")
            || has("KONSOLE_VERSION")
            || is("TERM_PROGRAM", "iTerm.app")
            || is("LC_TERMINAL", "iTerm2")
            || is("TERM_PROGRAM", "mintty")
        {
            Some(ProtocolType::Iterm2)
        } else if has("KITTY_WINDOW_ID") || is("TERM_PROGRAM", "ghostty") {
            Some(ProtocolType::Kitty)
        } else {
            None
        };
        let remote = has("SSH_CONNECTION") || has("SSH_TTY");
        Self { protocol, tmux: false, on: protocol.is_some() && !remote }
    }
}

/// Encoding of pictures for one terminal.
#[derive(Clone, Copy, Debug)]
pub struct PictureEncoding {
    pub protocol: ProtocolType,
    pub tmux: bool,
    /// Kitty image id; a new picture replaces the previous one with the same id in the terminal's memory.
    pub id: u32,
}

pub struct Picture(Protocol);

impl fmt::Debug for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Picture").field(&self.0.size()).finish()
    }
}

impl Picture {
    /// Encodes a picture over this many columns and rows. Pixels of colour `clear` show the terminal's background,
    /// except with half blocks. Takes milliseconds. Errors are user-facing.
    pub fn new(
        pixels: &Pixels,
        clear: Option<[u8; 3]>,
        (columns, rows): (u16, u16),
        encoding: PictureEncoding,
    ) -> Result<Self, String> {
        let PictureEncoding { protocol, tmux, id } = encoding;
        let clear = clear.filter(|_| protocol != ProtocolType::Halfblocks);
        let image = image_of(pixels, clear).ok_or("the picture has fewer pixels than its size")?;
        let size = Size::new(columns, rows);
        let encoded = match protocol {
            ProtocolType::Halfblocks => Halfblocks::new(image, size).map(Protocol::Halfblocks),
            ProtocolType::Sixel => Sixel::new(image, size, tmux).map(Protocol::Sixel),
            ProtocolType::Kitty => Kitty::new(image, size, id, tmux, true).map(Protocol::Kitty),
            ProtocolType::Iterm2 => Iterm2::new(image, size, tmux).map(Protocol::ITerm2),
        };
        encoded.map(Self).map_err(|error| error.to_string())
    }

    /// Renders a figure at the largest size that fits the given columns and rows. Takes tens of milliseconds.
    ///
    /// # Errors
    ///
    /// Returns a user-facing error if a Sixel terminal does not report its cell size, or if rendering fails.
    pub fn of_figure(
        figure: &Figure,
        (columns, rows): (u16, u16),
        cell: Option<(u16, u16)>,
        encoding: PictureEncoding,
    ) -> Result<Self, String> {
        let (wide, high) = pixels_of_cell(cell, encoding.protocol)?;
        let room = (f64::from(columns) * f64::from(wide), f64::from(rows) * f64::from(high));
        let width = room.0.min(room.1 / figure.aspect()).floor().max(1.0);
        let pixels = figure.pixels(width as u32).map_err(|error| error.to_string())?;
        let size = |pixels: u32, of: u16| pixels.div_ceil(u32::from(of.max(1))).max(1) as u16;
        let size = (size(pixels.width, wide).min(columns), size(pixels.height, high).min(rows));
        Self::new(&pixels, None, size, encoding)
    }

    pub fn size(&self) -> (u16, u16) {
        self.0.size().into()
    }

    /// Draws the picture at the top left of an area; does nothing if it does not fit.
    pub fn draw(&self, area: Rect, buf: &mut Buffer) {
        let area = area.intersection(buf.area);
        let (width, height) = self.size();
        if width > area.width || height > area.height {
            return;
        }
        let area = Rect { width, height, ..area };
        Clear.render(area, buf);
        ratatui_image::Image::new(&self.0).render(area, buf);
    }
}

/// Cell size in pixels for rendering.
///
/// # Errors
///
/// Returns an error for Sixel, which cannot scale, if the terminal does not report the cell size.
pub fn pixels_of_cell(cell: Option<(u16, u16)>, protocol: ProtocolType) -> Result<(u16, u16), String> {
    match (cell, protocol) {
        (Some(cell), _) => Ok(cell),
        (None, ProtocolType::Sixel) => {
            Err("the terminal does not report its cell size in pixels, which Sixel needs".into())
        }
        (None, _) => Ok(CELL),
    }
}

/// Pixels of colour `clear` become transparent; `None` if some are missing.
fn image_of(pixels: &Pixels, clear: Option<[u8; 3]>) -> Option<DynamicImage> {
    let rgba = pixels.rgb.as_chunks::<3>().0.iter().flat_map(|pixel| {
        let [r, g, b] = *pixel;
        [r, g, b, if Some(*pixel) == clear { 0 } else { 255 }]
    });
    RgbaImage::from_raw(pixels.width, pixels.height, rgba.collect()).map(DynamicImage::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing beyond the picture is touched, and what does not fit is not drawn.
    #[test]
    fn a_picture_covers_its_cells() {
        let at = |x: u8, y: u8| [x * 30, y * 30, 9];
        let rgb = (0..8).flat_map(|y| (0..8).flat_map(move |x| at(x, y))).collect();
        let pixels = Pixels { width: 8, height: 8, rgb };
        for protocol in
            [ProtocolType::Kitty, ProtocolType::Sixel, ProtocolType::Iterm2, ProtocolType::Halfblocks]
        {
            let encoding = PictureEncoding { protocol, tmux: false, id: 0x0012_3456 };
            let picture = Picture::new(&pixels, Some(at(0, 0)), (4, 2), encoding).unwrap();
            assert_eq!(picture.size(), (4, 2));
            let mut buf = Buffer::filled(Rect::new(0, 0, 10, 8), ratatui::buffer::Cell::new("x"));
            let before = buf.clone();
            picture.draw(Rect::new(2, 1, 3, 5), &mut buf);
            assert_eq!(buf, before, "too narrow");
            picture.draw(Rect::new(2, 1, 6, 5), &mut buf);
            let covered = Rect::new(2, 1, 4, 2);
            for at in buf.area.positions() {
                assert_eq!(buf[at] != before[at], covered.contains(at), "{protocol:?} {at}");
            }
        }
        let missing = Pixels { width: 9, ..pixels };
        let encoding = PictureEncoding { protocol: ProtocolType::Kitty, tmux: false, id: 1 };
        assert!(Picture::new(&missing, None, (4, 2), encoding).is_err());
    }
}
