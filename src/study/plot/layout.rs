//! Page layout of all figures: title, legend, chart area, caption with provenance, and grids of charts.

use std::ops::RangeInclusive;

use super::axis::{self, ValueAxis};
use super::figure::{FigureOptions, POINTS};
use super::font;
use super::provenance::ProvenanceSummary;
use super::scene::{Align, Area, Color, Fill, Hatch, Scene, SceneText, Stroke};
use super::style::{FigureSizes, GREY, INK, Look, Looks, PLAIN};
use base::error::{Error, Result};
use base::text::capitalized;
use base::words::KeywordEnum as _;
use table::Provenance;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LegendKey {
    Series {
        look: Look,
        fill: Fill,
        stroke: Stroke,
    },
    Marker {
        look: Look,
        fill: Fill,
    },
    Bar {
        color: Color,
        hatch: Hatch,
    },
    /// Low bar, for exposed communication.
    Strip {
        color: Color,
        hatch: Hatch,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct LegendEntry {
    pub key: LegendKey,
    pub name: String,
}

impl LegendEntry {
    pub fn new(key: LegendKey, name: impl ToString) -> Self {
        Self { key, name: name.to_string() }
    }
}

/// Size of each chart on a page (points).
#[derive(Clone, Debug)]
pub struct ChartSize {
    /// Height over the page's width per chart, before `height` limits it.
    pub aspect: f64,
    pub height: RangeInclusive<f64>,
    /// Width and height below which the page is too small.
    pub least: (f64, f64),
}

#[derive(Clone, Debug)]
pub struct Sheet<'a> {
    pub options: &'a FigureOptions,
    pub provenance: &'a ProvenanceSummary,
    pub title: String,
    /// Note below the title with context for the reader.
    pub note: String,
    /// Caption text after the provenance.
    pub remark: String,
    pub legend: Vec<LegendEntry>,
}

impl Sheet<'_> {
    /// Lays out the page around the chart area. `height` is the area's height in points unless the options
    /// set the page's; `least` is the minimum width and height of the area. Returns an error if the options
    /// are invalid or the area would be smaller than `least`.
    pub fn lay_out(&self, height: f64, least: (f64, f64)) -> Result<(Scene, Area)> {
        self.options.check()?;
        let sizes = FigureSizes::new(self.options.font);
        let edge = 0.5 * sizes.label;
        let page = self.options.size.width * POINTS;
        let width = page - 2.0 * edge;
        let title = font::wrap(&self.title, sizes.label, true, width);
        let note = font::wrap(&self.note, sizes.note, false, width);
        let caption = [self.provenance.caption().as_str(), &self.remark].map(sentence);
        let caption = caption.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
        let caption = font::wrap(&caption, sizes.note, false, width);
        let rows = self.rows(width, &sizes);
        let widest = self.legend.iter().map(|entry| entry_width(entry, &sizes)).fold(0.0, f64::max);
        let least = (least.0.max(widest), least.1);

        let above = title.len() as f64 * FigureSizes::line_of(sizes.label)
            + note.len() as f64 * FigureSizes::line_of(sizes.note)
            + rows.len() as f64 * FigureSizes::line_of(sizes.tick) * 1.1
            + edge * 1.6;
        let below = caption.len() as f64 * FigureSizes::line_of(sizes.note) + edge * 1.4;
        let total = self.options.size.height.map_or(above + height + below, |inches| inches * POINTS);
        let room = (width, total - above - below);
        if room.0 < least.0 || room.1 < least.1 {
            let inches = |points: f64| (points / POINTS * 10.0).ceil() / 10.0;
            let wide = page.max(least.0 + 2.0 * edge);
            return Err(Error::input_help(
                format!(
                    "{:.2} x {:.2} inches is too small for '{}' with text of {} pt",
                    self.options.size.width,
                    total / POINTS,
                    self.title,
                    self.options.font
                ),
                format!(
                    "use about {} x {} inches or more, a smaller font, or fewer runs",
                    inches(wide),
                    inches(total.max(above + below + least.1))
                ),
            ));
        }

        let mut scene = Scene::new(page, total, sizes);
        scene.title = self.title.clone();
        let mut y = edge;
        for (lines, size, bold) in [(title, sizes.label, true), (note, sizes.note, false)] {
            for line in lines {
                let text = SceneText::new((edge, y + 0.6 * size), line, size);
                scene.text(if bold { text.bold() } else { text.color(GREY) });
                y += FigureSizes::line_of(size);
            }
        }
        y += 0.3 * edge;
        for row in &rows {
            for (entry, left) in row {
                draw_entry(&mut scene, entry, (edge + left, y + 0.6 * sizes.tick));
            }
            y += FigureSizes::line_of(sizes.tick) * 1.1;
        }
        let mut from = total - below + 0.9 * edge;
        for line in caption {
            let text = SceneText::new((edge, from + 0.5 * sizes.note), line, sizes.note);
            scene.text(text.color(GREY));
            from += FigureSizes::line_of(sizes.note);
        }
        let area = Area { left: edge, right: page - edge, top: above, bottom: total - below };
        Ok((scene, area))
    }

    /// Lays out a page of `count` equal charts in at most `columns` columns, around the names of their axes.
    pub fn charts(
        &self,
        (count, columns): (usize, usize),
        ChartSize { aspect, height, least }: ChartSize,
        (x, y): (&str, &str),
    ) -> Result<(Scene, Vec<Area>)> {
        let (columns, rows) = shape(count, columns);
        let (across, down) = (columns as f64, rows as f64);
        let width = self.options.size.width * POINTS;
        let each = (aspect * width / across).clamp(*height.start(), *height.end());
        let (mut scene, area) = self.lay_out(each * down, (least.0 * across, least.1 * down))?;
        let area = name_axes(&mut scene, area, x, y);
        let gap = (0.9 * scene.sizes.label, 0.5 * scene.sizes.label);
        Ok((scene, grid(area, columns, rows, gap)))
    }

    fn rows(&self, width: f64, sizes: &FigureSizes) -> Vec<Vec<(&LegendEntry, f64)>> {
        let mut rows: Vec<Vec<(&LegendEntry, f64)>> = Vec::new();
        let mut left = f64::INFINITY;
        for entry in &self.legend {
            let needs = entry_width(entry, sizes) + 1.4 * sizes.tick;
            if left + needs - 1.4 * sizes.tick > width {
                rows.push(Vec::new());
                left = 0.0;
            }
            if let Some(row) = rows.last_mut() {
                row.push((entry, left));
            }
            left += needs;
        }
        rows
    }
}

fn sentence(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{}.", capitalized(text)) }
}

/// Columns and rows for a number of charts, at most `most` side by side, with as few empty places as
/// possible.
fn shape(charts: usize, most: usize) -> (usize, usize) {
    let rows = charts.div_ceil(most.max(1)).max(1);
    (charts.div_ceil(rows).max(1), rows)
}

fn key_width(key: LegendKey, sizes: &FigureSizes) -> f64 {
    match key {
        LegendKey::Series { .. } => 2.6 * sizes.tick,
        LegendKey::Marker { .. } => 1.0 * sizes.tick,
        LegendKey::Bar { .. } | LegendKey::Strip { .. } => 1.6 * sizes.tick,
    }
}

fn entry_width(entry: &LegendEntry, sizes: &FigureSizes) -> f64 {
    key_width(entry.key, sizes) + 0.5 * sizes.tick + font::width(&entry.name, sizes.tick, false)
}

fn draw_entry(scene: &mut Scene, entry: &LegendEntry, (x, y): (f64, f64)) {
    let sizes = scene.sizes;
    let wide = key_width(entry.key, &sizes);
    match entry.key {
        LegendKey::Series { look, fill, stroke } => {
            let ends = [(x, y), (x + wide, y)];
            scene.stroke(ends.to_vec(), look.color, sizes.line, stroke);
            scene.marker((x + wide / 2.0, y), look, sizes.marker, fill);
        }
        LegendKey::Marker { look, fill } => {
            scene.marker((x + wide / 2.0, y), look, sizes.marker, fill);
        }
        LegendKey::Bar { color, hatch } | LegendKey::Strip { color, hatch } => {
            let half = sizes.tick * if matches!(entry.key, LegendKey::Bar { .. }) { 0.42 } else { 0.2 };
            let area = Area { left: x, right: x + wide, top: y - half, bottom: y + half };
            bar(scene, area, color, hatch);
        }
    }
    scene.text(SceneText::new((x + wide + 0.5 * sizes.tick, y), entry.name.as_str(), sizes.tick));
}

/// Draws a bar with a white hatch, so that bars differ without colour.
pub fn bar(scene: &mut Scene, area: Area, color: Color, hatch: Hatch) {
    scene.rect(area, color);
    let FigureSizes { thin, label, .. } = scene.sizes;
    scene.hatch(area, hatch, super::style::WHITE, thin * 1.3, 0.42 * label);
}

/// Chart areas, row by row, that fill an area with gaps between them.
fn grid(area: Area, columns: usize, rows: usize, gap: (f64, f64)) -> Vec<Area> {
    let part = |whole: f64, count: usize, gap: f64| {
        let count = count.max(1) as f64;
        (whole - gap * (count - 1.0)) / count
    };
    let (width, height) = (part(area.width(), columns, gap.0), part(area.height(), rows, gap.1));
    let place = |row: usize, column: usize| {
        let (left, top) =
            (area.left + column as f64 * (width + gap.0), area.top + row as f64 * (height + gap.1));
        Area { left, top, right: left + width, bottom: top + height }
    };
    (0..rows).flat_map(|row| (0..columns).map(move |column| place(row, column))).collect()
}

/// Draws the axis names shared by all charts; returns the remaining area.
fn name_axes(scene: &mut Scene, area: Area, x: &str, y: &str) -> Area {
    let sizes = scene.sizes;
    let left = Area { left: area.left + 1.4 * sizes.label, ..area };
    let rest = Area { bottom: left.bottom - 1.3 * sizes.label, ..left };
    let text = SceneText::new((rest.center().0, area.bottom - 0.6 * sizes.label), x, sizes.label);
    scene.text(text.align(Align::Middle));
    let y = font::fit(y, sizes.label, rest.height() + 1.0 * sizes.label);
    let text = SceneText::new((area.left + 0.5 * sizes.label, rest.center().1), y, sizes.label);
    scene.text(text.align(Align::Middle).upwards());
    rest
}

/// Draws the name of a horizontal axis below a chart, within `all`.
pub fn name_below(scene: &mut Scene, all: Area, center: f64, name: &str) {
    let size = scene.sizes.label;
    let name = font::fit(name, size, all.width());
    let half = font::width(&name, size, false) / 2.0;
    // the name may be wider than a narrow chart
    let middle = center.max(all.left + half).min(all.right - half);
    scene.text(SceneText::new((middle, all.bottom - 0.6 * size), name, size).align(Align::Middle));
}

/// Data area of a chart: below its header, right of the vertical numbers, above the horizontal ones.
pub fn data_area(cell: Area, header: bool, y: &ValueAxis, right: f64, sizes: &FigureSizes) -> Area {
    let top = cell.top + if header { FigureSizes::line_of(sizes.tick) } else { 0.4 * sizes.tick };
    let bottom = cell.bottom - axis::under(sizes);
    let left = cell.left + axis::vertical_ticks(y, bottom - top, sizes).1 + 0.7 * sizes.tick;
    Area { left, right: cell.right - right, top, bottom }
}

pub fn header(scene: &mut Scene, area: &Area, text: &str) {
    let size = scene.sizes.tick;
    let at = (area.center().0, area.top - 0.65 * size);
    scene.text(SceneText::new(at, font::fit(text, size, area.width()), size).align(Align::Middle));
}

pub fn frame(scene: &mut Scene, area: Area) {
    scene.frame(area, INK, scene.sizes.thin);
    scene.data.push(area);
}

/// Name of a group of comparable runs, without the provenance, which the caption contains.
pub fn group_note(name: &str) -> String {
    let words = name.split(", ");
    let words = words.filter(|word| !Provenance::WORDS.contains(word));
    words.collect::<Vec<_>>().join(", ")
}

/// Returns an input error if so many charts do not fit in one figure; `axis` names the option that makes a chart of
/// each of its values.
pub fn check_charts(charts: usize, axis: &str) -> Result<()> {
    const MOST: usize = 16;
    if charts <= MOST {
        return Ok(());
    }
    Err(Error::input_help(
        format!("{charts} charts do not fit in one figure (at most {MOST})"),
        format!("select fewer runs with --filter, for example '{axis}<=8'"),
    ))
}

pub fn too_narrow(options: &FigureOptions) -> Error {
    Error::input_help(
        format!("{} inches is too narrow for the row names", options.size.width),
        "use a wider --size",
    )
}

/// Legend entries: line and marker of each architecture, and of P2P on and off if there are `both`.
pub fn series_legend(looks: &Looks, both: bool) -> Vec<LegendEntry> {
    let on = |look| LegendKey::Series { look, fill: Fill::Solid, stroke: Stroke::Solid };
    let off = LegendKey::Series { look: PLAIN, fill: Fill::Hollow, stroke: Stroke::Dashed };
    let mut legend: Vec<LegendEntry> =
        looks.iter().map(|(name, look)| LegendEntry::new(on(*look), name)).collect();
    if both {
        legend.extend([LegendEntry::new(on(PLAIN), "P2P on"), LegendEntry::new(off, "P2P off")]);
    }
    legend
}
