//! Plot as a real picture, in terminals that support it. A [`Sketch`] captures the content; a background
//! thread paints and encodes it. The axes and the marks of the selected point on them remain text.

use std::sync::Arc;

use super::Pareto;
use super::draw;
use super::layout;
use super::state::Scale;
use super::state::window::Window;
use crate::face::tui::pictures::{Kind, Picture, Pictures, Way, pixels_of_cell};
use crate::face::tui::prelude::*;
use crate::face::tui::screenshot;
use crate::face::tui::task::Stop;
use crate::face::tui::widgets::scatter::Plot;
use base::error::Error;
use study::plot::{self, Align, Color, Figure, Look, Scene, Shape, Text};
use table::P2p;

/// Kitty image id of the plot.
const KITTY_ID: u32 = 0x006c_6164;

/// Position in fractions of the picture, from the lower left.
type Share = (f64, f64);

#[derive(Clone, Debug, PartialEq)]
pub struct Sketch {
    kind: Kind,
    tmux: bool,
    /// Cell size in pixels, if the terminal reports it.
    cell: Option<(u16, u16)>,
    size: (u16, u16),
    paper: Color,
    ink: Color,
    bars: Vec<[Share; 2]>,
    lines: Vec<(Vec<Share>, Color)>,
    marks: Vec<Mark>,
    /// Left ends of texts, in columns and rows.
    texts: Vec<(u16, u16, String, bool)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Mark {
    at: Share,
    look: usize,
    color: Color,
    hollow: bool,
    dominated: bool,
    /// Letter in place of a marker for an overlay point: its initial, upper case with P2P on; `hollow`
    /// adds a ring with P2P off.
    letter: Option<String>,
}

impl Sketch {
    /// Captures the current plot; `None` if there is nothing to show or pictures are off.
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
        // dominated points first, so that frontiers stay on top
        marks.sort_by_key(|mark| !mark.dominated);
        marks.extend(pareto.others().filter(inside).map(|(other, place)| Mark {
            at: share(place),
            look: 0,
            color: ink,
            hollow: other.p2p == Some(P2p::Off),
            dominated: false,
            letter: Some(super::state::series::letter(&other.architecture, other.p2p)),
        }));
        // leave the selected point out, so that moving the cursor does not repaint
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

#[derive(Debug, Default)]
pub struct Shown {
    made: Option<(Arc<Sketch>, Picture)>,
    seen: Option<Seen>,
}

/// All inputs of a sketch; if unchanged, the sketch is up to date.
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

/// Requests a new picture if the plot has changed since the last request.
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

/// Picture that can be shown now, if any. None while something overlaps the plot: characters drawn over
/// a picture would remain.
pub fn ready<'a>(pareto: &'a Pareto, cx: &Context, plot: &Plot) -> Option<&'a Picture> {
    let free = cx.overlays.is_empty() && pareto.drag.is_none();
    let (sketch, picture) = pareto.picture.made.as_ref()?;
    let fits =
        sketch.size == (plot.area.width, plot.area.height) && Some(sketch.kind) == pareto.pictures.kind;
    (free && fits && pareto.pictures.on).then_some(picture)
}

/// Paints a sketch at the terminal's cell resolution and encodes it.
///
/// # Errors
///
/// Returns an error if the protocol needs a cell size and the terminal reports none, or if painting fails.
fn paint(sketch: &Sketch) -> Result<Picture, String> {
    let cell = pixels_of_cell(sketch.cell, sketch.kind)?;
    let (width, height) =
        (u32::from(cell.0) * u32::from(sketch.size.0), u32::from(cell.1) * u32::from(sketch.size.1));
    let pixels = Figure::plain(scene(sketch, (width, height))).pixels(width);
    let pixels = pixels.map_err(|error| error.to_string())?;
    let way = Way { kind: sketch.kind, tmux: sketch.tmux, id: KITTY_ID };
    Picture::new(&pixels, Some(sketch.paper.into()), sketch.size, way)
}

/// Scene of a sketch, at one pixel per point.
fn scene(sketch: &Sketch, (width, height): (u32, u32)) -> Scene {
    let (wide, high) = (f64::from(width), f64::from(height));
    let mut scene = Scene { paper: sketch.paper, ..Scene::new(wide, high) };
    let (column, row) = (wide / f64::from(sketch.size.0), high / f64::from(sketch.size.1));
    // clamp far beyond the visible edge
    let far = wide.max(high) * 4.0;
    // markers sit at cell centres, like the characters
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
