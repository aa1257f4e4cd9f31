//! The plot as a real picture, in terminals that can show one (Kitty, Sixel, iTerm2). What is to be seen
//! is collected as a [`Sketch`]; a thread paints it and makes the terminal's sequences of it; drawing
//! only copies those. The axes, and the marks of the selected point on them, stay text around it.

use std::fmt;
use std::sync::Arc;

use image::{DynamicImage, RgbaImage};
use ratatui::buffer::Buffer;
use ratatui::layout::{Rect, Size};
use ratatui_image::Image;
use ratatui_image::protocol::Protocol;
use ratatui_image::protocol::halfblocks::Halfblocks;
use ratatui_image::protocol::iterm2::Iterm2;
use ratatui_image::protocol::kitty::Kitty;
use ratatui_image::protocol::sixel::Sixel;

use super::Pareto;
use super::draw;
use super::layout;
use super::state::Scale;
use super::state::window::Window;
use crate::base::error::Error;
use crate::face::tui::context::Context;
use crate::face::tui::screenshot;
use crate::face::tui::task::Stop;
use crate::face::tui::theme::{Role, Theme};
use crate::face::tui::widgets::scatter::Plot;
use crate::study::plot::{self, Align, Color, Figure, Look, Scene, Shape, Text};
use crate::table::P2p;

/// Decides about pictures, whatever the terminal is: off, kitty, sixel, iterm2, halfblocks.
pub const VARIABLE: &str = "LADDERSCOPE_PICTURES";

/// Pixels of a cell where the terminal does not tell; enough for protocols that scale a picture.
const CELL: (u16, u16) = (10, 20);

/// One number for all pictures of the plot: a new one replaces the one before it in the terminal's memory.
const KITTY_ID: u32 = 0x006c_6164;

/// The number of pictures of figures, which lie on the plot.
const KITTY_FIGURE: u32 = 0x006c_6165;

/// How a picture reaches the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The graphics protocol of Kitty, which other terminals know too.
    Kitty,
    /// Sixel graphics, as DEC's terminals had them.
    Sixel,
    /// The inline images of iTerm2.
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

/// A place in shares of the picture, from the lower left.
type Share = (f64, f64);

/// Everything that a picture shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Sketch {
    /// How it is to reach the terminal.
    kind: Kind,
    tmux: bool,
    /// Pixels of the terminal's cells, where it tells.
    cell: Option<(u16, u16)>,
    /// Columns and rows of the terminal that the picture covers.
    size: (u16, u16),
    paper: Color,
    ink: Color,
    bars: Vec<[Share; 2]>,
    lines: Vec<(Vec<Share>, Color)>,
    marks: Vec<Mark>,
    /// Places of texts' left ends, in columns and rows.
    texts: Vec<(u16, u16, String, bool)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Mark {
    at: Share,
    look: usize,
    color: Color,
    hollow: bool,
    dominated: bool,
    /// A letter instead of a marker: the initial of a point from elsewhere, a capital where P2P is on; `hollow`
    /// puts a ring around it where P2P is off.
    letter: Option<String>,
}

impl Sketch {
    /// What the plot of the state shows; `None` where there is nothing to show or no picture is wanted.
    pub fn of(pareto: &Pareto, cx: &Context) -> Option<Self> {
        let kind = pareto.pictures.kind.filter(|_| pareto.pictures.on)?;
        let plot = layout::plot(pareto, cx.body());
        let (columns, rows) = (plot.area.width, plot.area.height);
        if pareto.shown.is_empty() || columns < 8 || rows < 4 {
            return None;
        }
        let light = cx.theme.is_light();
        let (ink, paper): (Color, Color) = {
            let (ink, paper) = screenshot::ink(light);
            (ink.into(), paper.into())
        };
        let color = |look: usize| {
            let style = cx.theme.style(Role::Architecture(look));
            style.fg.and_then(|color| screenshot::rgb(color, light)).map_or(ink, Color::from)
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
            letter: Some(super::state::series::letter(&other.architecture, other.p2p)),
        }));
        // the selected point is not part of it: moving the cursor must not paint anew
        let labels = draw::labelled(pareto, cx, &plot, &drawn, None).into_iter();
        Some(Self {
            kind,
            tmux: pareto.pictures.tmux,
            cell: cx.cell_pixels,
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
                .map(|(l, _)| ((l.x, l.y), l.text, l.point < drawn.len()))
                .chain(draw::suffixes(&plot, &drawn).map(|(cell, text, _)| (cell, text.into(), true)))
                .map(|((x, y), text, own)| (x - plot.area.x, y - plot.area.y, text, own))
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
    /// A figure, as large as it can be in a room of so many columns and rows. Takes tens of milliseconds. Fails where
    /// a Sixel terminal does not tell its cells' pixels, and where painting does; the error is for people.
    pub fn of_figure(
        figure: &Figure,
        (columns, rows): (u16, u16),
        kind: Kind,
        tmux: bool,
        cell: Option<(u16, u16)>,
    ) -> Result<Self, String> {
        let (wide, high) = pixels_of_cell(cell, kind)?;
        let room = (f64::from(columns) * f64::from(wide), f64::from(rows) * f64::from(high));
        let width = room.0.min(room.1 / figure.aspect()).floor().max(1.0);
        let pixels = figure.pixels(width as u32).map_err(|error| error.to_string())?;
        let size = |pixels: u32, of: u16| pixels.div_ceil(u32::from(of.max(1))).max(1) as u16;
        let size = (size(pixels.width, wide).min(columns), size(pixels.height, high).min(rows));
        let rgba = pixels.rgb.chunks_exact(3).flat_map(|pixel| [pixel[0], pixel[1], pixel[2], 255]);
        let image = RgbaImage::from_raw(pixels.width, pixels.height, rgba.collect());
        encode(image.ok_or("its size does not fit")?, size, kind, tmux, KITTY_FIGURE)
    }

    /// The columns and rows that it covers.
    pub fn size(&self) -> (u16, u16) {
        let size = self.0.size();
        (size.width, size.height)
    }

    /// Puts it into the window.
    pub fn draw(&self, area: Rect, buf: &mut Buffer) {
        use ratatui::widgets::Widget;
        Image::new(&self.0).render(area.intersection(buf.area), buf);
    }
}

/// The plot as a picture.
#[derive(Debug, Default)]
pub struct Shown {
    /// The picture that was painted last, and of what.
    made: Option<(Arc<Sketch>, Picture)>,
    /// What was looked at when one was asked for last.
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
    cell: Option<(u16, u16)>,
}

impl Seen {
    fn of(pareto: &Pareto, cx: &Context) -> Self {
        Self {
            pictures: pareto.pictures,
            revision: pareto.revision,
            scales: pareto.scales,
            window: pareto.zoom.window,
            table: pareto.table,
            body: cx.body(),
            theme: cx.theme,
            cell: cx.cell_pixels,
        }
    }
}

/// Has the plot painted, if it has changed since that was asked last.
pub fn ask(pareto: &mut Pareto, cx: &mut Context) {
    let seen = Some(Seen::of(pareto, cx));
    if pareto.picture.seen == seen {
        return;
    }
    pareto.picture.seen = seen;
    let Some(sketch) = Sketch::of(pareto, cx).map(Arc::new) else {
        pareto.picture.made = None;
        return cx.forget::<Pareto>("picture");
    };
    let asked = sketch.clone();
    let work = move |_: &Stop| match paint(&asked) {
        Ok(picture) => Ok((asked, picture)),
        Err(why) => Err(Error::failed(format!("no picture: {why}"))),
    };
    cx.want("picture", &sketch, work, |pareto: &mut Pareto, painted, cx| match painted {
        Ok(made) => pareto.picture.made = Some(made),
        Err(why) => {
            pareto.pictures.on = false;
            cx.inform(why);
        }
    });
}

/// The picture that can be shown in this plot now. While something lies on the plot there is none:
/// characters on a picture would stay there.
pub fn ready<'a>(pareto: &'a Pareto, cx: &Context, plot: &Plot) -> Option<&'a Picture> {
    let free = cx.overlays.is_empty() && pareto.panel.is_none() && pareto.drag.is_none();
    let (sketch, picture) = pareto.picture.made.as_ref()?;
    let fits =
        sketch.size == (plot.area.width, plot.area.height) && Some(sketch.kind) == pareto.pictures.kind;
    (free && fits && pareto.pictures.on).then_some(picture)
}

/// Paints a sketch in the pixels that the terminal's cells have, and makes the terminal's sequences of it. Fails
/// where the pixels are needed and not told, and where painting does.
fn paint(sketch: &Sketch) -> Result<Picture, String> {
    let cell = pixels_of_cell(sketch.cell, sketch.kind)?;
    let pixels =
        (u32::from(cell.0) * u32::from(sketch.size.0), u32::from(cell.1) * u32::from(sketch.size.1));
    encode(render(sketch, pixels)?, sketch.size, sketch.kind, sketch.tmux, KITTY_ID)
}

/// A picture of so many columns and rows as the terminal's sequences.
fn encode(
    image: RgbaImage,
    (columns, rows): (u16, u16),
    kind: Kind,
    tmux: bool,
    id: u32,
) -> Result<Picture, String> {
    let (image, size) = (DynamicImage::ImageRgba8(image), Size::new(columns, rows));
    let failed = |error: ratatui_image::errors::Errors| error.to_string();
    Ok(Picture(match kind {
        // Kitty's number is one for all: a new picture replaces the one before
        Kind::Kitty => Protocol::Kitty(Kitty::new(image, size, id, tmux, true).map_err(failed)?),
        Kind::Sixel => Protocol::Sixel(Sixel::new(image, size, tmux).map_err(failed)?),
        Kind::Iterm2 => Protocol::ITerm2(Iterm2::new(image, size, tmux).map_err(failed)?),
        Kind::Halfblocks => Protocol::Halfblocks(Halfblocks::new(image, size).map_err(failed)?),
    }))
}

/// Pixels of a cell, by which a picture is painted.
fn pixels_of_cell(cell: Option<(u16, u16)>, kind: Kind) -> Result<(u16, u16), String> {
    match (cell, kind) {
        (Some(cell), _) => Ok(cell),
        (None, Kind::Sixel) => Err("the terminal does not tell how many pixels its cells have".into()),
        (None, _) => Ok(CELL),
    }
}

/// The picture, transparent where nothing is painted.
fn render(sketch: &Sketch, (width, height): (u32, u32)) -> Result<RgbaImage, String> {
    let pixels = Figure::plain(scene(sketch, (width, height))).pixels(width);
    let pixels = pixels.map_err(|error| error.to_string())?;
    let rgba = pixels.rgb.chunks_exact(3).flat_map(|pixel| {
        let painted = pixel != <[u8; 3]>::from(sketch.paper);
        [pixel[0], pixel[1], pixel[2], if painted { 255 } else { 0 }]
    });
    RgbaImage::from_raw(pixels.width, pixels.height, rgba.collect())
        .ok_or_else(|| "its size does not fit".into())
}

/// A sketch in the shapes of figures, a pixel a point.
fn scene(sketch: &Sketch, (width, height): (u32, u32)) -> Scene {
    let (wide, high) = (f64::from(width), f64::from(height));
    let mut scene = Scene { paper: sketch.paper, ..Scene::new(wide, high) };
    let (column, row) = (wide / f64::from(sketch.size.0), high / f64::from(sketch.size.1));
    // far beyond the edge nothing is seen
    let far = wide.max(high) * 4.0;
    // a character of the same place is in the middle of its cell
    let at = |(x, y): Share| {
        let (across, down) = (x * (wide - column), (1.0 - y) * (high - row));
        ((column / 2.0 + across).clamp(-far, far), (row / 2.0 + down).clamp(-far, far))
    };
    let half = |a: u8, b: u8| ((u16::from(a) + u16::from(b)) / 2) as u8;
    let (ink, paper) = (sketch.ink, sketch.paper);
    let grey = (half(ink.0, paper.0), half(ink.1, paper.1), half(ink.2, paper.2));
    let thin = row / 12.0;
    for bar in &sketch.bars {
        scene.line(bar.map(at).to_vec(), grey, thin);
    }
    for (line, color) in &sketch.lines {
        scene.line(line.iter().copied().map(at).collect(), *color, thin * 2.0);
    }
    for mark in &sketch.marks {
        let (place, color) = (at(mark.at), mark.color);
        if let Some(letter) = &mark.letter {
            if mark.hollow {
                scene.shapes.push(Shape::Disc(place, 0.45 * row, color));
                scene.shapes.push(Shape::Disc(place, 0.45 * row - thin, paper));
            }
            let letter = Text::new(place, letter.as_str(), 0.8 * row);
            scene.text(letter.align(Align::Middle).color(color));
            continue;
        }
        let look = Look { color, marker: plot::look(mark.look).marker, hatch: 0 };
        scene.marker(place, look, row * if mark.dominated { 0.16 } else { 0.28 }, !mark.hollow);
    }
    for (x, y, text, own) in &sketch.texts {
        let place = (f64::from(*x) * column, (f64::from(*y) + 0.3) * row);
        let text = Text::new(place, text.as_str(), 0.75 * row);
        scene.text(text.color(if *own { ink } else { grey }));
    }
    scene
}
