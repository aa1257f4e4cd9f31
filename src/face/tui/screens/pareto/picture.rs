//! Plot as a real picture, in terminals that support it. A [`Sketch`] captures the content; a background
//! thread paints and encodes it. The axes and the marks of the selected point on them remain text.

use std::sync::Arc;

use super::Pareto;
use super::layout;
use super::state::window::ZoomWindow;
use super::state::{Scale, series};
use crate::face::tui::pictures::{Picture, PictureEncoding, Pictures, ProtocolType, pixels_of_cell};
use crate::face::tui::prelude::*;
use crate::face::tui::screenshot;
use crate::face::tui::task::Stop;
use crate::face::tui::widgets::scatter::Plot;
use base::error::Error;
use study::plot::{self, Area, Chart, Color, FigureSizes, Fill, Look, Overlaid, ParetoPanel, Scene};

/// Kitty image id of the plot.
const KITTY_ID: u32 = 0x006c_6164;

#[derive(Clone, Debug, PartialEq)]
pub struct Sketch {
    protocol: ProtocolType,
    tmux: bool,
    /// Cell size in pixels, if the terminal reports it.
    cell: Option<(u16, u16)>,
    size: (u16, u16),
    /// Contents, one point per pixel.
    scene: Scene,
}

impl Sketch {
    /// Captures the current plot; `None` if there is nothing to show or pictures are off.
    pub fn new(pareto: &Pareto, cx: &Context) -> Option<Self> {
        let protocol = pareto.pictures.protocol.filter(|_| pareto.pictures.on)?;
        let plot = layout::plot(pareto, cx.body());
        let (columns, rows) = (plot.area.width, plot.area.height);
        if pareto.shown.is_empty() || columns < 8 || rows < 4 {
            return None;
        }
        let (ink, paper) = screenshot::ink(cx.theme.is_light());
        let color = |look: usize| {
            let style = cx.theme.style(Role::Architecture(look));
            let color = style.fg.and_then(|color| screenshot::rgb(color, cx.theme.is_light()));
            Color::from(color.unwrap_or(ink))
        };
        let looks = pareto.entries.iter().map(|entry| {
            let look = Look { color: color(entry.look), ..plot::look(entry.look) };
            (entry.series.architecture.clone(), look)
        });
        let overlaid = pareto.others().map(|(other, at)| Overlaid {
            at,
            look: Look { color: ink.into(), ..plot::look(0) },
            fill: Fill::Solid,
            letter: Some(series::letter(&other.architecture, other.p2p)),
            tip: String::new(),
        });
        let suffixes = pareto.entries.iter().map(|entry| (entry.series.clone(), entry.suffix));
        let panel = ParetoPanel {
            points: pareto.visible().collect(),
            overlay: overlaid.collect(),
            looks: &looks.collect(),
            suffixes: suffixes.filter(|(_, suffix)| !suffix.is_empty()).collect(),
            axes: pareto.axes,
            limits: pareto.limit.as_slice(),
            by: 1.0,
        };
        let cell = pixels_of_cell(cx.cell_pixels, protocol).unwrap_or_default();
        let (column, row) = (f64::from(cell.0), f64::from(cell.1));
        let (right, bottom) = (f64::from(columns) * column, f64::from(rows) * row);
        let scene = Scene::new(right, bottom, FigureSizes::new(row));
        let mut scene = Scene { paper: paper.into(), label: ink.into(), ..scene };
        // markers sit at cell centres, like the characters
        let (left, top) = (column / 2.0, row / 2.0);
        let area = Area { left, top, right: right - left, bottom: bottom - top };
        panel.draw(&mut Chart {
            area,
            x: plot.x.over(area.left, area.right),
            y: plot.y.over(area.bottom, area.top),
            scene: &mut scene,
        });
        let (tmux, cell) = (pareto.pictures.tmux, cx.cell_pixels);
        Some(Self { protocol, tmux, cell, size: (columns, rows), scene })
    }
}

#[derive(Debug, Default)]
pub struct DisplayedPicture {
    made: Option<(Arc<Sketch>, Picture)>,
    seen: Option<SketchInputs>,
}

/// All inputs of a sketch; if unchanged, the sketch is up to date.
#[derive(Clone, Debug, PartialEq)]
struct SketchInputs {
    pictures: Pictures,
    revision: u64,
    scales: (Scale, Scale),
    window: Option<ZoomWindow>,
    table: Option<bool>,
    limit: Option<f64>,
    body: Rect,
    theme: Theme,
    cell: Option<(u16, u16)>,
}

impl SketchInputs {
    fn new(pareto: &Pareto, cx: &Context) -> Self {
        Self {
            pictures: pareto.pictures,
            revision: pareto.revision,
            scales: pareto.scales,
            window: pareto.zoom.window,
            table: pareto.table,
            limit: pareto.limit,
            body: cx.body(),
            theme: cx.theme,
            cell: cx.cell_pixels,
        }
    }
}

/// Requests a new picture if the plot has changed since the last request.
pub fn ask(pareto: &mut Pareto, cx: &mut Context) {
    let seen = Some(SketchInputs::new(pareto, cx));
    if pareto.picture.seen == seen {
        return;
    }
    pareto.picture.seen = seen;
    let Some(sketch) = Sketch::new(pareto, cx).map(Arc::new) else {
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
    let fits = sketch.size == (plot.area.width, plot.area.height)
        && Some(sketch.protocol) == pareto.pictures.protocol;
    (free && fits && pareto.pictures.on).then_some(picture)
}

/// Paints a sketch and encodes it.
///
/// # Errors
///
/// Returns an error if the protocol needs a cell size and the terminal reports none, or if painting fails.
fn paint(sketch: &Sketch) -> Result<Picture, String> {
    pixels_of_cell(sketch.cell, sketch.protocol)?;
    let pixels = plot::pixels(&sketch.scene, plot::POINTS).map_err(|error| error.to_string())?;
    let encoding = PictureEncoding { protocol: sketch.protocol, tmux: sketch.tmux, id: KITTY_ID };
    Picture::new(&pixels, Some(sketch.scene.paper.into()), sketch.size, encoding)
}
