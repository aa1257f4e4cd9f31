//! Colours, markers and provenance words of all figures.
//!
//! The first eight colours are from M. Okabe and K. Ito, "Color Universal Design" (2008,
//! <https://jfly.uni-koeln.de/color/>), distinguishable with any colour vision. Marker shapes repeat the
//! colour's information, and filled or hollow, solid or dashed encodes P2P, so greyscale loses nothing.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};

use super::scene::{Color, Hatch, Point};
use plan::{Architecture, LayerSet};
use table::Provenance;

pub const INK: Color = (30, 30, 30);
/// Secondary text: captions, notes.
pub const GREY: Color = (95, 95, 95);
/// Grid lines, faint enough to stay behind the data.
pub const GRID: Color = (225, 225, 225);
pub const WHITE: Color = (255, 255, 255);
/// Exposed communication, in every figure and on every screen.
pub const VERMILION: Color = (213, 94, 0);

/// Sizes in points, derived from the font size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FigureSizes {
    /// Axis names, legends, titles.
    pub label: f64,
    pub tick: f64,
    /// Captions, labels of points.
    pub note: f64,
    pub marker: f64,
    pub line: f64,
    pub thin: f64,
}

impl FigureSizes {
    pub fn new(font: f64) -> Self {
        Self {
            label: font,
            tick: font * 0.875,
            note: font * 0.78,
            marker: font * 0.27,
            line: font * 0.14,
            thin: font * 0.06,
        }
    }

    pub fn line_of(text: f64) -> f64 {
        1.3 * text
    }
}

/// Okabe-Ito colours, with grey instead of yellow, which is hard to see on white, then four more. With
/// simulated protanopia, deuteranopia and tritanopia (Machado et al., 2009), each of the four differs from all
/// others by at least 15 in CIELAB; the closest two of the first eight differ by 11.
const PALETTE: [Color; 12] = [
    (0, 114, 178),
    (213, 94, 0),
    (0, 158, 115),
    (204, 121, 167),
    (0, 0, 0),
    (230, 159, 0),
    (86, 180, 233),
    (120, 120, 120),
    (136, 34, 85),
    (190, 175, 90),
    (51, 34, 136),
    (120, 70, 20),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Marker {
    Circle,
    Square,
    Up,
    Diamond,
    Down,
    Right,
    Left,
    Pentagon,
    Hexagon,
    Star,
    /// A wide rectangle.
    Bar,
    /// A tall rectangle.
    Pillar,
    /// A parallelogram.
    Slant,
    /// A triangle with its right angle at the lower left.
    Corner,
}

/// Markers of series, all available in terminal fonts, and hatches of bars; as many as colours. Blue and black differ
/// without a hatch.
const SHAPES: [(Marker, Hatch); PALETTE.len()] = [
    (Marker::Circle, Hatch::None),
    (Marker::Square, Hatch::Rising),
    (Marker::Up, Hatch::Falling),
    (Marker::Diamond, Hatch::Crossed),
    (Marker::Down, Hatch::None),
    (Marker::Right, Hatch::Horizontal),
    (Marker::Left, Hatch::Rising),
    (Marker::Star, Hatch::Falling),
    (Marker::Bar, Hatch::Crossed),
    (Marker::Pillar, Hatch::Horizontal),
    (Marker::Slant, Hatch::Falling),
    (Marker::Corner, Hatch::Rising),
];

impl Marker {
    /// Corners around a point; `None` for a disc. Radii are scaled so that all shapes look equally large.
    pub fn corners(self, at: Point, radius: f64) -> Option<Vec<Point>> {
        let polygon = |corners: &[Point]| -> Vec<Point> {
            corners.iter().map(|(x, y)| (at.0 + radius * x, at.1 + radius * y)).collect()
        };
        // number of corners, radius, radius of the corners between them, angle of the first corner from the
        // top
        let (corners, outer, inner, turn) = match self {
            Self::Circle => return None,
            Self::Square => (4, 1.25, None, 45.0),
            Self::Up => (3, 1.4, None, 0.0),
            Self::Diamond => (4, 1.35, None, 0.0),
            Self::Down => (3, 1.4, None, 60.0),
            Self::Right => (3, 1.4, None, 90.0),
            Self::Left => (3, 1.4, None, 30.0),
            Self::Pentagon => (5, 1.15, None, 0.0),
            Self::Hexagon => (6, 1.1, None, 30.0),
            Self::Star => (5, 1.5, Some(0.65), 0.0),
            Self::Bar => return Some(polygon(&[(-1.4, -0.5), (1.4, -0.5), (1.4, 0.5), (-1.4, 0.5)])),
            Self::Pillar => return Some(polygon(&[(-0.5, -1.4), (0.5, -1.4), (0.5, 1.4), (-0.5, 1.4)])),
            Self::Slant => return Some(polygon(&[(-0.5, -0.8), (1.6, -0.8), (0.5, 0.8), (-1.6, 0.8)])),
            Self::Corner => return Some(polygon(&[(-1.0, -1.3), (1.3, 1.0), (-1.0, 1.0)])),
        };
        let spoke = |number: usize, of: usize, scale: f64| {
            let angle = (turn + 360.0 * number as f64 / of as f64).to_radians();
            (at.0 + radius * scale * angle.sin(), at.1 - radius * scale * angle.cos())
        };
        Some(match inner {
            None => (0..corners).map(|n| spoke(n, corners, outer)).collect(),
            Some(inner) => (0..2 * corners)
                .map(|n| spoke(n, 2 * corners, if n % 2 == 0 { outer } else { inner }))
                .collect(),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Look {
    pub color: Color,
    pub marker: Marker,
    pub hatch: Hatch,
}

pub const PLAIN: Look = Look { color: GREY, marker: Marker::Circle, hatch: Hatch::None };

/// Look number `index`; the first 144 are distinct.
pub fn look(index: usize) -> Look {
    let round = index / PALETTE.len();
    let (marker, hatch) = SHAPES[(index + round) % SHAPES.len()];
    Look { color: PALETTE[index % PALETTE.len()], marker, hatch }
}

pub type Looks = BTreeMap<Architecture, Look>;

pub fn looks<'a>(architectures: impl IntoIterator<Item = &'a Architecture>) -> Looks {
    numbers(architectures).into_iter().map(|(architecture, index)| (architecture, look(index))).collect()
}

/// Index of each architecture's look, in figures and on the screen, independent of the other architectures
/// shown. Exception: variants of one family whose parameters differ by 12 collide, and one gets a free index.
pub fn numbers<'a>(
    architectures: impl IntoIterator<Item = &'a Architecture>,
) -> BTreeMap<Architecture, usize> {
    let all: BTreeSet<&Architecture> = architectures.into_iter().collect();
    let mut taken: BTreeMap<usize, &Architecture> = BTreeMap::new();
    let mut waiting = Vec::new();
    for architecture in all {
        match taken.entry(number(architecture)) {
            Entry::Occupied(_) => waiting.push(architecture),
            Entry::Vacant(free) => {
                free.insert(architecture);
            }
        }
    }
    for architecture in waiting {
        if let Some(free) = (PALETTE.len()..).find(|index| !taken.contains_key(index)) {
            taken.insert(free, architecture);
        }
    }
    taken.into_iter().map(|(index, architecture)| (architecture.clone(), index)).collect()
}

/// Default look of an architecture: its family's, and for each variant a colour and marker that no other
/// family or variant has.
fn number(architecture: &Architecture) -> usize {
    let layers = |which: &LayerSet| match which {
        LayerSet::All => 0,
        LayerSet::Last(count) => *count,
        LayerSet::Only(layers) => layers.iter().fold(4u32, |sum, layer| sum.wrapping_add(*layer)),
    };
    // the best-known variant is number 0; the rivals usually shown together, including desync:2, delayed:2,
    // delayed:4 and sync-drop, each have a colour and a marker of their own
    let (family, variant) = match architecture {
        Architecture::Standard => (0, 0),
        Architecture::Ladder(which) => (1, layers(which)),
        Architecture::Parallel => (2, 0),
        Architecture::Desync(every) => (3, every.wrapping_add(10)),
        Architecture::UpperBound => (4, 0),
        // sync-drop uses the variant slots of upper-bound, which has no variants
        Architecture::SyncDrop(which) => (4, 1 + layers(which) % 11),
        Architecture::Stale(staleness) => (5, staleness.wrapping_add(10)),
        Architecture::ParallelLadder => (6, 0),
        Architecture::Partial(share) => (8, share.thousandths() + 700),
        Architecture::PartialLadder(share) => (9, share.thousandths() + 700),
        Architecture::Kraken => (10, 0),
        Architecture::FarSkip(which) => (2, 1 + layers(which) % 11),
        Architecture::Tracks(every) => (11, every.wrapping_add(8)),
        Architecture::Delayed(delay) => match delay.wrapping_add(10) % 12 {
            2 => (7, 11),
            11 => (7, 2),
            other => (7, other),
        },
    };
    let variant = variant as usize % PALETTE.len();
    PALETTE.len() * variant + (family + variant) % PALETTE.len()
}

/// Mixes a colour with two thirds of the paper's.
pub fn faded(color: Color, paper: Color) -> Color {
    let mix = |channel: u8, paper: u8| ((u16::from(channel) + 2 * u16::from(paper)) / 3) as u8;
    (mix(color.0, paper.0), mix(color.1, paper.1), mix(color.2, paper.2))
}

/// Colour in an SVG file, as plotters writes it.
pub fn hex((r, g, b): Color) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

/// Colour in a page with variables for ink and paper; pale colours fade towards its paper.
pub fn page_color(color: Color) -> String {
    let name = match color {
        INK | (0, 0, 0) => "ink",
        GREY => "grey",
        GRID => "grid",
        WHITE => "paper",
        (r, g, b) if r.min(g).min(b) >= 170 => {
            let full = |channel: u8| 255 - (255 - channel).saturating_mul(3);
            let full = page_color((full(r), full(g), full(b)));
            return format!("color-mix(in srgb, {full} 33%, var(--fig-paper,{}))", hex(WHITE));
        }
        _ => return hex(color),
    };
    format!("var(--fig-{name},{})", hex(color))
}

pub fn provenance(all: impl IntoIterator<Item = Provenance>) -> String {
    let all: BTreeSet<Provenance> = all.into_iter().collect();
    let words = all.into_iter().map(|provenance| match provenance {
        Provenance::Measured => "measured",
        Provenance::EmulatedLink => "emulated-link (all-reduces delayed by an emulated link)",
        Provenance::Simulated => "simulated (not a measurement)",
        Provenance::SharedGpu => "shared-gpu (ranks shared one GPU: not a measurement)",
    });
    words.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rivals_of_ladder_have_colours_and_markers_of_their_own() {
        let names = [
            "standard",
            "ladder",
            "parallel",
            "desync:2",
            "delayed:2",
            "delayed:4",
            "sync-drop",
            "upper-bound",
            "kraken",
            "tracks:4",
            "partial:0.5",
            "partial:0.5+ladder",
        ];
        let all: Vec<Architecture> = names.iter().filter_map(|name| name.parse().ok()).collect();
        let looks = looks(&all);
        let colors: BTreeSet<Color> = looks.values().map(|look| look.color).collect();
        let markers: BTreeSet<Marker> = looks.values().map(|look| look.marker).collect();
        assert_eq!([colors.len(), markers.len()], [names.len(); 2]);
    }
}
