//! Grouped bars with intervals and labels, for the improvement and P2P figures.

use super::axis::{self, Axis};
use super::font;
use super::layout::{self, bar};
use super::scene::{Align, Area, Color, Scene, Text};
use super::style::{GREY, INK, Sizes};

#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    pub value: f64,
    pub interval: Option<[f64; 2]>,
    pub color: Color,
    /// Pattern over the colour (see [`super::scene::Scene::hatch`]); 0 is none.
    pub hatch: usize,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    pub name: String,
    /// Bars from left to right; `None` leaves the place of a missing run empty.
    pub bars: Vec<Option<Bar>>,
    /// Labels over bars: first bar, last bar, text.
    pub words: Vec<(usize, usize, String)>,
}

pub fn values(groups: &[Group]) -> Vec<f64> {
    let bars = groups.iter().flat_map(|group| group.bars.iter().flatten());
    bars.flat_map(|bar| bar.interval.unwrap_or([bar.value; 2]).into_iter().chain([bar.value])).collect()
}

/// True if the group names fit horizontally below bars of this total width.
fn names_lie(groups: &[Group], width: f64, sizes: &Sizes) -> bool {
    let room = width / groups.len().max(1) as f64;
    let widest = groups.iter().map(|g| font::width(&g.name, sizes.tick, false)).fold(0.0, f64::max);
    widest + 0.5 * sizes.tick <= room
}

pub fn under(groups: &[Group], width: f64, sizes: &Sizes) -> f64 {
    if names_lie(groups, width, sizes) {
        return axis::under(sizes);
    }
    let widest = groups.iter().map(|g| font::width(&g.name, sizes.tick, false)).fold(0.0, f64::max);
    widest.min(9.0 * sizes.tick) + 0.7 * sizes.tick
}

/// Orientation of the labels over bars, the same for a whole figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum How {
    Lying,
    /// Vertical, within the width of a bar.
    Upright,
    Not,
}

impl How {
    fn of(groups: &[Group], slot: f64, height: f64, sizes: &Sizes) -> Self {
        let words = || groups.iter().flat_map(|group| &group.words);
        let width = |text: &str| font::width(text, sizes.note, false);
        let across = |from: usize, to: usize| (to - from + 1) as f64 * slot;
        let lie = words().all(|(from, to, text)| width(text) + 0.2 * sizes.note <= across(*from, *to));
        let stand = words().all(|(from, to, _)| across(*from, *to) >= 1.02 * sizes.note);
        let upright = upright(groups, sizes);
        match (lie, stand) {
            (true, _) if height > 5.0 * sizes.note => Self::Lying,
            (_, true) if height > 2.5 * upright => Self::Upright,
            _ => Self::Not,
        }
    }

    fn room(self, groups: &[Group], sizes: &Sizes) -> f64 {
        match self {
            _ if groups.iter().all(|group| group.words.is_empty()) => 0.0,
            Self::Lying => 1.2 * sizes.note,
            Self::Upright => upright(groups, sizes),
            Self::Not => 0.0,
        }
    }
}

fn upright(groups: &[Group], sizes: &Sizes) -> f64 {
    let words = groups.iter().flat_map(|group| &group.words);
    let widest = words.map(|(_, _, text)| font::width(text, sizes.note, false)).fold(0.0, f64::max);
    widest + 0.6 * sizes.note
}

/// Data area of a chart, and the widths of a group and of a bar.
fn place(cell: Area, groups: &[Group], y: &Axis, sizes: &Sizes) -> (Area, f64, f64) {
    let area = layout::data_area(cell, true, y, 0.0, sizes);
    let area = Area { bottom: cell.bottom - under(groups, area.width(), sizes), ..area };
    let room = area.width() / groups.len().max(1) as f64;
    let most = groups.iter().map(|group| group.bars.len()).max().unwrap_or(1).max(1) as f64;
    (area, room, room / (most + 0.9))
}

/// Draws charts into cells, with labels in the same orientation.
pub fn draw(scene: &mut Scene, cells: &[Area], charts: &[(String, Vec<Group>, Axis)], sizes: &Sizes) {
    let all = || cells.iter().zip(charts);
    let how = all().map(|(cell, (_, groups, y))| {
        let (area, _, slot) = place(*cell, groups, y, sizes);
        How::of(groups, slot, area.height(), sizes)
    });
    let how = how.max().unwrap_or(How::Not);
    // reserve the same height above, or a common axis would have several scales
    let above = charts.iter().map(|(_, groups, _)| how.room(groups, sizes)).fold(0.0, f64::max);
    for (cell, (header, groups, y)) in all() {
        chart(scene, *cell, header, groups, (*y, how, above), sizes);
    }
}

/// Draws a chart into a cell. `above` is the height reserved for labels.
fn chart(
    scene: &mut Scene,
    cell: Area,
    header: &str,
    groups: &[Group],
    (y, how, above): (Axis, How, f64),
    sizes: &Sizes,
) {
    let (area, room, slot) = place(cell, groups, &y, sizes);
    layout::header(scene, &area, header, sizes);
    let y = y.with_air(above / (area.height() - above)).over(area.bottom, area.top);
    axis::vertical(scene, &y, &area, sizes);
    for (index, group) in groups.iter().enumerate() {
        let middle = area.left + (index as f64 + 0.5) * room;
        let first = middle - slot * group.bars.len() as f64 / 2.0;
        for (number, one) in group.bars.iter().enumerate() {
            let Some(one) = one else { continue };
            let left = first + slot * number as f64;
            let (zero, end) = (y.place(0.0), y.place(one.value));
            let block = Area {
                left: left + 0.04 * slot,
                right: left + 0.96 * slot,
                top: zero.min(end),
                bottom: zero.max(end),
            };
            bar(scene, block, one.color, one.hatch, sizes);
            if let Some([low, high]) = one.interval {
                let x = left + slot / 2.0;
                scene.interval((x, y.place(low)), (x, y.place(high)), INK, sizes.line * 0.55);
            }
        }
        for (from, to, text) in &group.words {
            let bars = group.bars.get(*from..=*to).unwrap_or_default().iter().flatten();
            let tops = bars.map(|b| b.interval.map_or(b.value, |[_, high]| high.max(b.value)).max(0.0));
            let Some(top) = tops.reduce(f64::max) else { continue };
            let x = first + slot * (*from + *to + 1) as f64 / 2.0;
            let above = y.place(top);
            let text = Text::new((x, above), text.as_str(), sizes.note).inside();
            let text = match how {
                How::Lying => Text { at: (x, above - 0.85 * sizes.note), ..text }.align(Align::Middle),
                How::Upright => Text { at: (x, above - 0.4 * sizes.note), ..text }.upwards(),
                How::Not => continue,
            };
            if area.holds(&text.area()) {
                scene.text(text);
            }
        }
        let name = match names_lie(groups, area.width(), sizes) {
            true => {
                Text::new((middle, area.bottom + 0.95 * sizes.tick), group.name.as_str(), sizes.tick)
                    .align(Align::Middle)
            }
            false if room >= 1.05 * sizes.tick => {
                let text = font::fit(&group.name, sizes.tick, 9.0 * sizes.tick);
                Text::new((middle, area.bottom + 0.4 * sizes.tick), text, sizes.tick)
                    .align(Align::Right)
                    .upwards()
            }
            false => continue,
        };
        scene.text(name.color(INK));
    }
    let zero = y.place(0.0);
    scene.line(vec![(area.left, zero), (area.right, zero)], GREY, sizes.thin * 1.5);
    layout::frame(scene, area, sizes);
}
