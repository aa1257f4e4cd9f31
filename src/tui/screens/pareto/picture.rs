//! The plot as a real picture, in terminals that can show one (Kitty, Sixel, iTerm2). What is to be seen
//! is collected as a [`Sketch`]; a thread paints it and makes the terminal's sequences of it; drawing
//! only copies those. The axes, and the marks of the selected point on them, stay text around it.

use std::fmt;
use std::sync::Arc;

use image::{DynamicImage, RgbImage, RgbaImage, imageops};
use plotters::backend::BitMapBackend;
use plotters::drawing::IntoDrawingArea;
use plotters::element::{Circle, PathElement, Polygon, Text};
use plotters::style::{Color as _, FontStyle, IntoFont, RGBColor, register_font};
use ratatui::buffer::Buffer;
use ratatui::layout::{Rect, Size};
use ratatui_image::Image;
use ratatui_image::protocol::Protocol;
use ratatui_image::protocol::halfblocks::Halfblocks;
use ratatui_image::protocol::iterm2::Iterm2;
use ratatui_image::protocol::kitty::Kitty;
use ratatui_image::protocol::sixel::Sixel;

use super::draw;
use super::layout::plot;
use super::state::Scale;
use super::state::window::Window;
use crate::spec::P2p;
use crate::tui::page::body_of;
use crate::tui::screenshot;
use crate::tui::state::State;
use crate::tui::theme::{Role, Theme};
use crate::tui::widgets::scatter::Plot;

/// Decides about pictures, whatever the terminal is: off, kitty, sixel, iterm2, halfblocks.
pub const VARIABLE: &str = "LADDERSCOPE_PICTURES";

/// Pictures are painted so much larger and then shrunk, which smooths them.
const FINER: u32 = 2;

/// Pixels of a cell where the terminal does not tell; enough for protocols that scale a picture.
const CELL: (u16, u16) = (10, 20);

/// One number for all our pictures: a new one replaces the one before it in the terminal's memory.
const KITTY_ID: u32 = 0x006c_6164;

/// How a picture reaches the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Kitty's graphics protocol.
    Kitty,
    /// Sixel.
    Sixel,
    /// iTerm2's inline images.
    Iterm2,
    /// Half blocks in two colours: any terminal with colours.
    Halfblocks,
}

/// What the terminal can show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pictures {
    /// How; `None`: not at all, as far as is known.
    pub kind: Option<Kind>,
    /// Sequences must be wrapped to pass tmux.
    pub tmux: bool,
    /// Whether the plot is shown as a picture.
    pub on: bool,
}

impl Pictures {
    /// As the environment tells: no question is put to the terminal, so start-up waits for nothing and
    /// no answer can end up among keys. Off over SSH, where pictures cost bandwidth, until a key turns
    /// them on; unknown under tmux and screen, unless [`VARIABLE`] says that they pass.
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

type Rgb = [u8; 3];

/// A place in shares of the picture, from the lower left.
type Share = (f64, f64);

/// Everything that a picture shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Sketch {
    /// How it is to reach the terminal.
    kind: Kind,
    tmux: bool,
    /// Columns and rows.
    size: (u16, u16),
    paper: Rgb,
    ink: Rgb,
    bars: Vec<[Share; 2]>,
    lines: Vec<(Vec<Share>, Rgb)>,
    marks: Vec<Mark>,
    /// Places of texts' left ends, in columns and rows.
    texts: Vec<(u16, u16, String, bool)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Mark {
    at: Share,
    look: usize,
    color: Rgb,
    hollow: bool,
    dominated: bool,
    /// A letter instead of a marker: a point from elsewhere; in a circle where P2P is off.
    letter: Option<String>,
}

impl Sketch {
    /// What the plot of the state shows; `None` where there is nothing to show or no picture is wanted.
    pub fn of(state: &State) -> Option<Self> {
        let pareto = &state.pareto;
        let kind = pareto.pictures.kind.filter(|_| pareto.pictures.on)?;
        let plot = plot(pareto, body_of(state));
        let (columns, rows) = (plot.area.width, plot.area.height);
        if pareto.shown.is_empty() || columns < 8 || rows < 4 {
            return None;
        }
        let light = state.theme.is_light();
        let (ink, paper) = screenshot::ink(light);
        let color = |look: usize| {
            let style = state.theme.style(Role::Series(look));
            style.fg.and_then(|color| screenshot::rgb(color, light)).unwrap_or(ink)
        };
        let look = |entry: usize| pareto.entries.get(entry).map_or(0, |e| e.look);
        let share = |(x, y): (f64, f64)| (plot.x.share(x), plot.y.share(y));
        let inside = |(_, place): &(_, (f64, f64))| plot.contains(*place);
        let drawn = draw::drawn(pareto, &plot);
        let mut marks: Vec<Mark> = drawn
            .iter()
            .filter_map(|d| {
                Some(Mark {
                    at: share(pareto.axes.of(pareto.nth(d.index)?)?),
                    look: d.look,
                    color: color(d.look),
                    hollow: d.p2p == P2p::Off,
                    dominated: d.dominated,
                    letter: None,
                })
            })
            .collect();
        // what is dominated first: frontiers must not lie under it
        marks.sort_by_key(|mark| !mark.dominated);
        marks.extend(pareto.others().filter(inside).map(|(other, place)| Mark {
            at: share(place),
            look: 0,
            color: ink,
            hollow: other.p2p == Some(P2p::Off),
            dominated: false,
            letter: Some(super::state::series::letter(&other.architecture, None)),
        }));
        // the selected point is not part of it: moving the cursor must not paint anew
        let labels = draw::labelled(state, &plot, &drawn, None).into_iter();
        Some(Self {
            kind,
            tmux: pareto.pictures.tmux,
            size: (columns, rows),
            paper,
            ink,
            bars: draw::all_bars(pareto).into_iter().map(|bar| bar.map(share)).collect(),
            lines: pareto
                .lines
                .iter()
                .map(|line| (line.places.iter().copied().map(share).collect(), color(look(line.entry))))
                .collect(),
            marks,
            texts: labels
                .map(|(l, _)| {
                    let own = l.point < drawn.len();
                    (l.x - plot.area.x, l.y - plot.area.y, l.text, own)
                })
                .collect(),
        })
    }
}

/// A painted picture, as the terminal's sequences.
pub struct Picture(Protocol);

impl fmt::Debug for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Picture({:?})", self.0.size())
    }
}

impl Picture {
    /// Puts it into the window.
    pub fn draw(&self, area: Rect, buf: &mut Buffer) {
        use ratatui::widgets::Widget;
        Image::new(&self.0).render(area.intersection(buf.area), buf);
    }
}

/// The plot as a picture: what was painted, and what was asked for last.
#[derive(Debug, Default)]
pub struct Shown {
    /// What was painted.
    made: Option<(Arc<Sketch>, Arc<Picture>)>,
    asked: Option<Arc<Sketch>>,
    /// What was looked at for that.
    seen: Option<Seen>,
}

/// Everything that a sketch follows from: while it is the same nothing needs to be sketched.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    pictures: Pictures,
    revision: u64,
    scales: (Scale, Scale),
    window: Option<Window>,
    table: Option<bool>,
    body: Rect,
    theme: Theme,
}

impl Seen {
    fn of(state: &State) -> Self {
        let pareto = &state.pareto;
        Self {
            pictures: pareto.pictures,
            revision: pareto.revision,
            scales: pareto.scales,
            window: pareto.zoom.window,
            table: pareto.table,
            body: body_of(state),
            theme: state.theme,
        }
    }
}

/// The sketch to be painted now, if the plot has changed since it was asked last.
pub fn ask(state: &mut State) -> Option<Arc<Sketch>> {
    let seen = Some(Seen::of(state));
    if state.pareto.picture.seen == seen {
        return None;
    }
    let sketch = Sketch::of(state);
    let asked = state.pareto.picture.ask(sketch);
    state.pareto.picture.seen = seen;
    asked
}

impl Shown {
    /// The sketch to be painted now, if it is another than the one asked for last.
    fn ask(&mut self, wanted: Option<Sketch>) -> Option<Arc<Sketch>> {
        let Some(wanted) = wanted else {
            *self = Self::default();
            return None;
        };
        if self.asked.as_deref() == Some(&wanted) {
            return None;
        }
        let wanted = Arc::new(wanted);
        self.asked = Some(wanted.clone());
        Some(wanted)
    }

    /// Takes what was painted; false where something else has been asked for since.
    pub fn take(&mut self, sketch: Arc<Sketch>, picture: Arc<Picture>) -> bool {
        let wanted = self.asked.as_ref().is_some_and(|asked| Arc::ptr_eq(asked, &sketch));
        if wanted {
            self.made = Some((sketch, picture));
        }
        wanted
    }
}

/// The picture that can be shown in this plot now. While something lies on the plot there is none:
/// characters on a picture would stay there.
pub fn ready<'a>(state: &'a State, plot: &Plot) -> Option<&'a Picture> {
    let pareto = &state.pareto;
    let free = state.overlays.is_empty() && pareto.panel.is_none() && pareto.drag.is_none();
    let (sketch, picture) = pareto.picture.made.as_ref()?;
    let fits =
        sketch.size == (plot.area.width, plot.area.height) && Some(sketch.kind) == pareto.pictures.kind;
    (free && fits && pareto.pictures.on).then_some(picture.as_ref())
}

/// Paints a sketch for a terminal whose cells have so many pixels, where that is known.
pub fn paint(sketch: &Sketch, cell: Option<(u16, u16)>) -> Result<Picture, String> {
    let cell = match (cell, sketch.kind) {
        (Some(cell), _) => cell,
        (None, Kind::Sixel) => {
            return Err("no picture: the terminal does not tell how many pixels its cells have".into());
        }
        (None, _) => CELL,
    };
    let pixels =
        (u32::from(cell.0) * u32::from(sketch.size.0), u32::from(cell.1) * u32::from(sketch.size.1));
    let image = DynamicImage::ImageRgba8(render(sketch, pixels)?);
    let size = Size::new(sketch.size.0, sketch.size.1);
    let failed = |error: ratatui_image::errors::Errors| format!("no picture: {error}");
    Ok(Picture(match sketch.kind {
        // Kitty's number is one for all: a new picture replaces the one before
        Kind::Kitty => {
            Protocol::Kitty(Kitty::new(image, size, KITTY_ID, sketch.tmux, true).map_err(failed)?)
        }
        Kind::Sixel => Protocol::Sixel(Sixel::new(image, size, sketch.tmux).map_err(failed)?),
        Kind::Iterm2 => Protocol::ITerm2(Iterm2::new(image, size, sketch.tmux).map_err(failed)?),
        Kind::Halfblocks => Protocol::Halfblocks(Halfblocks::new(image, size).map_err(failed)?),
    }))
}

/// The picture, transparent where nothing is painted.
fn render(sketch: &Sketch, (width, height): (u32, u32)) -> Result<RgbaImage, String> {
    let (wide, high) = (width * FINER, height * FINER);
    let mut pixels = vec![0; wide as usize * high as usize * 3];
    draw_on(sketch, &mut pixels, (wide, high)).map_err(|error| format!("no picture: {error}"))?;
    let large = RgbImage::from_raw(wide, high, pixels).ok_or("no picture: its size does not fit")?;
    let small = imageops::resize(&large, width, height, imageops::FilterType::Triangle);
    Ok(RgbaImage::from_fn(width, height, |x, y| {
        let [r, g, b] = small.get_pixel(x, y).0;
        image::Rgba([r, g, b, if [r, g, b] == sketch.paper { 0 } else { 255 }])
    }))
}

/// The bundled font, under a name of its own.
const FONT: &str = "picture";

fn draw_on(
    sketch: &Sketch,
    pixels: &mut [u8],
    (wide, high): (u32, u32),
) -> Result<(), Box<dyn std::error::Error>> {
    let known = register_font(FONT, FontStyle::Normal, dejavu::sans::regular()).is_ok();
    let area = BitMapBackend::with_buffer(pixels, (wide, high)).into_drawing_area();
    let rgb = |[r, g, b]: Rgb| RGBColor(r, g, b);
    let row = f64::from(high) / f64::from(sketch.size.1);
    let column = f64::from(wide) / f64::from(sketch.size.0);
    // a character of the same place is in the middle of its cell
    let at = |(x, y): Share| {
        let across = column / 2.0 + x * (f64::from(wide) - column);
        let down = row / 2.0 + (1.0 - y) * (f64::from(high) - row);
        // plotters takes whole pixels; far beyond the edge nothing is seen
        let far = f64::from(wide.max(high)) * 4.0;
        (across.clamp(-far, far).round() as i32, down.clamp(-far, far).round() as i32)
    };
    area.fill(&rgb(sketch.paper))?;
    let grey: Rgb =
        std::array::from_fn(|i| ((u16::from(sketch.ink[i]) + u16::from(sketch.paper[i])) / 2) as u8);
    let thin = (row / 12.0).round().max(1.0) as u32;
    for bar in &sketch.bars {
        area.draw(&PathElement::new(bar.map(at).to_vec(), rgb(grey).stroke_width(thin)))?;
    }
    for (line, color) in sketch.lines.iter().filter(|(line, _)| line.len() > 1) {
        let line: Vec<_> = line.iter().copied().map(at).collect();
        area.draw(&PathElement::new(line, rgb(*color).stroke_width(thin * 2)))?;
    }
    let size = |share: f64| (row * share).round() as i32;
    for mark in &sketch.marks {
        let (x, y) = at(mark.at);
        if let Some(letter) = &mark.letter {
            if known {
                let font = (FONT, row * 0.8).into_font().color(&rgb(mark.color));
                area.draw(&Text::new(letter.clone(), (x - size(0.2), y - size(0.45)), font))?;
            }
            if mark.hollow {
                area.draw(&Circle::new((x, y), size(0.45), rgb(mark.color).stroke_width(thin)))?;
            }
            continue;
        }
        let radius = size(if mark.dominated { 0.16 } else { 0.28 });
        let filled = rgb(mark.color).filled();
        let hole = rgb(sketch.paper).filled();
        let inner = radius - (thin as i32 * 2).min(radius / 2).max(1);
        for (radius, style) in
            [(radius, filled), (inner, hole)].into_iter().take(1 + usize::from(mark.hollow))
        {
            match corners(mark.look, (x, y), radius) {
                Some(corners) => area.draw(&Polygon::new(corners, style))?,
                None => area.draw(&Circle::new((x, y), radius, style))?,
            }
        }
    }
    for (x, y, text, own) in sketch.texts.iter().filter(|_| known) {
        let color = if *own { sketch.ink } else { grey };
        let place = ((f64::from(*x) * column) as i32, ((f64::from(*y) + 0.1) * row) as i32);
        area.draw(&Text::new(text.clone(), place, (FONT, row * 0.75).into_font().color(&rgb(color))))?;
    }
    area.present()?;
    Ok(())
}

/// The corners of a marker, in the shapes of the glyphs; `None`: a disc.
fn corners(look: usize, (x, y): (i32, i32), radius: i32) -> Option<Vec<(i32, i32)>> {
    // corners, the angle of the first from above, inner radius of a star
    let (count, turn, inner) = match look % 8 {
        0 => return None,
        1 => (4, 0.0, 1.0),
        2 => (4, 45.0, 1.0),
        3 => (10, 0.0, 0.45),
        4 => (3, 0.0, 1.0),
        5 => (3, 60.0, 1.0),
        6 => (3, 90.0, 1.0),
        _ => (3, 30.0, 1.0),
    };
    let corner = |n: u32| {
        let angle = (turn + 360.0 * f64::from(n) / f64::from(count)).to_radians();
        let far = f64::from(radius) * 1.2 * if n % 2 == 1 { inner } else { 1.0 };
        (x + (far * angle.sin()).round() as i32, y - (far * angle.cos()).round() as i32)
    };
    Some((0..count as u32).map(corner).collect())
}
