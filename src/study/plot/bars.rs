//! Grouped bars with intervals and labels, for the improvement and P2P figures.

use super::axis::{self, ValueAxis};
use super::font;
use super::layout::{self, bar};
use super::scene::{Align, Area, Color, Hatch, Scene, SceneText};
use super::style::{FigureSizes, GREY, INK};

#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    pub value: f64,
    pub interval: Option<[f64; 2]>,
    pub color: Color,
    pub hatch: Hatch,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct BarGroup {
    pub name: String,
    /// Bars from left to right; `None` leaves the place of a missing run empty.
    pub bars: Vec<Option<Bar>>,
    pub labels: Vec<BarLabel>,
}

/// Label over neighbouring bars of a group, by their indices.
#[derive(Clone, Debug, PartialEq)]
pub struct BarLabel {
    pub first: usize,
    pub last: usize,
    pub text: String,
}

impl BarLabel {
    fn bars(&self) -> f64 {
        (self.last - self.first + 1) as f64
    }

    fn width(&self, sizes: &FigureSizes) -> f64 {
        font::width(&self.text, sizes.note, false)
    }
}

/// Chart of grouped bars with its title.
#[derive(Clone, Debug)]
pub struct BarChart {
    pub title: String,
    pub groups: Vec<BarGroup>,
    pub y: ValueAxis,
}

/// Values and ends of intervals of all bars, for an axis.
pub fn values(groups: &[BarGroup]) -> Vec<f64> {
    let bars = groups.iter().flat_map(|group| group.bars.iter().flatten());
    bars.flat_map(|bar| bar.interval.unwrap_or([bar.value; 2]).into_iter().chain([bar.value])).collect()
}

fn widest_name(groups: &[BarGroup], sizes: &FigureSizes) -> f64 {
    groups.iter().map(|group| font::width(&group.name, sizes.tick, false)).fold(0.0, f64::max)
}

/// True if the group names fit horizontally below bars of this total width.
fn names_fit(groups: &[BarGroup], width: f64, sizes: &FigureSizes) -> bool {
    widest_name(groups, sizes) + 0.5 * sizes.tick <= width / groups.len().max(1) as f64
}

/// Height of the group names below bars of this total width.
pub fn under(groups: &[BarGroup], width: f64, sizes: &FigureSizes) -> f64 {
    if names_fit(groups, width, sizes) {
        return axis::under(sizes);
    }
    widest_name(groups, sizes).min(9.0 * sizes.tick) + 0.7 * sizes.tick
}

/// Orientation of the labels over bars, the same for a whole figure: the last one that a chart of it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LabelOrientation {
    Horizontal,
    /// Within the width of a bar.
    Vertical,
    Hidden,
}

impl LabelOrientation {
    /// First orientation that fits over bars of width `slot` in a chart of this height.
    fn new(groups: &[BarGroup], slot: f64, height: f64, sizes: &FigureSizes) -> Self {
        let labels = || groups.iter().flat_map(|group| &group.labels);
        let fits_across =
            labels().all(|label| label.width(sizes) + 0.2 * sizes.note <= label.bars() * slot);
        let fits_upright = labels().all(|label| label.bars() * slot >= 1.02 * sizes.note);
        let upright_height = upright_height(groups, sizes);
        match (fits_across, fits_upright) {
            (true, _) if height > 5.0 * sizes.note => Self::Horizontal,
            (_, true) if height > 2.5 * upright_height => Self::Vertical,
            _ => Self::Hidden,
        }
    }

    /// Height that the labels need over the highest bar.
    fn height(self, groups: &[BarGroup], sizes: &FigureSizes) -> f64 {
        match self {
            _ if groups.iter().all(|group| group.labels.is_empty()) => 0.0,
            Self::Horizontal => 1.2 * sizes.note,
            Self::Vertical => upright_height(groups, sizes),
            Self::Hidden => 0.0,
        }
    }
}

fn upright_height(groups: &[BarGroup], sizes: &FigureSizes) -> f64 {
    let labels = groups.iter().flat_map(|group| &group.labels);
    labels.map(|label| label.width(sizes)).fold(0.0, f64::max) + 0.6 * sizes.note
}

/// Data area of a chart, and the widths of a group and of a bar.
fn place(cell: Area, groups: &[BarGroup], y: &ValueAxis, sizes: &FigureSizes) -> (Area, f64, f64) {
    let area = layout::data_area(cell, true, y, 0.0, sizes);
    let area = Area { bottom: cell.bottom - under(groups, area.width(), sizes), ..area };
    let room = area.width() / groups.len().max(1) as f64;
    let most = groups.iter().map(|group| group.bars.len()).max().unwrap_or(1).max(1) as f64;
    (area, room, room / (most + 0.9))
}

/// Draws charts into cells, with labels in the same orientation.
pub fn draw(scene: &mut Scene, cells: &[Area], charts: &[BarChart]) {
    let sizes = scene.sizes;
    let all = || cells.iter().zip(charts);
    let orientations = all().map(|(cell, chart)| {
        let (area, _, slot) = place(*cell, &chart.groups, &chart.y, &sizes);
        LabelOrientation::new(&chart.groups, slot, area.height(), &sizes)
    });
    let orientation = orientations.max().unwrap_or(LabelOrientation::Hidden);
    // reserve the same height above, or a common axis would have several scales
    let above = charts.iter().map(|chart| orientation.height(&chart.groups, &sizes)).fold(0.0, f64::max);
    for (cell, chart) in all() {
        draw_chart(scene, *cell, chart, (orientation, above));
    }
}

/// Draws a chart into a cell. `above` is the height reserved for labels.
fn draw_chart(
    scene: &mut Scene,
    cell: Area,
    BarChart { title, groups, y }: &BarChart,
    (orientation, above): (LabelOrientation, f64),
) {
    let sizes = scene.sizes;
    let (area, room, slot) = place(cell, groups, y, &sizes);
    layout::header(scene, &area, title);
    let y = y.with_air(above / (area.height() - above)).over(area.bottom, area.top);
    axis::vertical(scene, &y, &area);
    for (index, group) in groups.iter().enumerate() {
        let middle = area.left + (index as f64 + 0.5) * room;
        let left = middle - slot * group.bars.len() as f64 / 2.0;
        draw_bars(scene, &group.bars, &y, (left, slot));
        for label in &group.labels {
            let text = label_text(label, &group.bars, &y, (left, slot), orientation, sizes.note);
            if let Some(text) = text.filter(|text| area.holds(&text.area())) {
                scene.text(text);
            }
        }
        let name = match names_fit(groups, area.width(), &sizes) {
            true => SceneText::new(
                (middle, area.bottom + 0.95 * sizes.tick),
                group.name.as_str(),
                sizes.tick,
            )
            .align(Align::Middle),
            false if room >= 1.05 * sizes.tick => {
                let text = font::fit(&group.name, sizes.tick, 9.0 * sizes.tick);
                SceneText::new((middle, area.bottom + 0.4 * sizes.tick), text, sizes.tick)
                    .align(Align::Right)
                    .upwards()
            }
            false => continue,
        };
        scene.text(name.color(INK));
    }
    let zero = y.place(0.0);
    scene.line(vec![(area.left, zero), (area.right, zero)], GREY, sizes.thin * 1.5);
    layout::frame(scene, area);
}

/// Draws the bars of a group with their intervals, from `left`, one every `slot`.
fn draw_bars(scene: &mut Scene, bars: &[Option<Bar>], y: &ValueAxis, (left, slot): (f64, f64)) {
    for (index, drawn) in bars.iter().enumerate() {
        let Some(drawn) = drawn else { continue };
        let left = left + slot * index as f64;
        let (zero, end) = (y.place(0.0), y.place(drawn.value));
        let block = Area {
            left: left + 0.04 * slot,
            right: left + 0.96 * slot,
            top: zero.min(end),
            bottom: zero.max(end),
        };
        bar(scene, block, drawn.color, drawn.hatch);
        if let Some([low, high]) = drawn.interval {
            let x = left + slot / 2.0;
            scene.interval((x, y.place(low)), (x, y.place(high)), INK, scene.sizes.line * 0.55);
        }
    }
}

/// Text of a label over the highest of its bars; `None` if all of them are missing or labels are hidden.
fn label_text(
    label: &BarLabel,
    bars: &[Option<Bar>],
    y: &ValueAxis,
    (left, slot): (f64, f64),
    orientation: LabelOrientation,
    size: f64,
) -> Option<SceneText> {
    let bars = bars.get(label.first..=label.last).unwrap_or_default().iter().flatten();
    let tops = bars.map(|b| b.interval.map_or(b.value, |[_, high]| high.max(b.value)).max(0.0));
    let above = y.place(tops.reduce(f64::max)?);
    let x = left + slot * (label.first + label.last + 1) as f64 / 2.0;
    let text = SceneText::new((x, above), label.text.as_str(), size).inside();
    match orientation {
        LabelOrientation::Horizontal => {
            Some(SceneText { at: (x, above - 0.85 * size), ..text }.align(Align::Middle))
        }
        LabelOrientation::Vertical => Some(SceneText { at: (x, above - 0.4 * size), ..text }.upwards()),
        LabelOrientation::Hidden => None,
    }
}
