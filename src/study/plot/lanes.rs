//! Lanes of ranks in a window of a trace: operations as blocks, and exposed communication. Used by the
//! timeline and overlap figures.

use std::collections::{BTreeMap, HashMap};

use super::font;
use super::layout::{Entry, Key, bar};
use super::scene::{Align, Area, Color, Scene, Text};
use super::style::{INK, Sizes, VERMILION, WHITE};
use base::text::rank_label;
use plan::Lane;
use trace::overlap::exposed_intervals;
use trace::overlap::intervals::clip;
use trace::{Span, Trace};

/// Class of operations with one colour and hatch; all pairs also differ in greyscale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    name: &'static str,
    color: Color,
    hatch: usize,
}

const MATMUL: Class = Class { name: "matmul", color: (0, 114, 178), hatch: 0 };
const ATTEND: Class = Class { name: "attention", color: (230, 159, 0), hatch: 0 };
const NORM: Class = Class { name: "norm, add", color: (0, 158, 115), hatch: 2 };
const OTHER: Class = Class { name: "other compute", color: (150, 150, 150), hatch: 0 };
const WAITING: Class = Class { name: "waiting for a peer", color: (232, 200, 218), hatch: 0 };
const TRANSFER: Class = Class { name: "communication", color: (204, 121, 167), hatch: 1 };

fn class_of(kind: &str) -> Class {
    match kind {
        "matmul" => MATMUL,
        "attend" => ATTEND,
        "norm"
        | "add"
        | "add_norm"
        | "add_mean"
        | "join"
        | "join_norm"
        | "mean_share"
        | "all_reduce_add_norm" => NORM,
        _ => OTHER,
    }
}

const EXPOSED: usize = 3;

pub fn legend() -> Vec<Entry> {
    let classes = [MATMUL, ATTEND, NORM, OTHER, WAITING, TRANSFER]
        .map(|Class { name, color, hatch }| Entry::new(Key::Bar { color, hatch }, name));
    let exposed = Key::Strip { color: VERMILION, hatch: EXPOSED };
    classes.into_iter().chain([Entry::new(exposed, "exposed communication")]).collect()
}

/// Heights of a rank's rows (points): a lane, and the strip of exposed communication.
#[derive(Clone, Copy, Debug)]
pub struct Heights {
    lane: f64,
    strip: f64,
}

impl Heights {
    pub fn new(sizes: &Sizes) -> Self {
        Self { lane: 1.5 * sizes.tick, strip: 0.55 * sizes.tick }
    }

    /// Heights that add up to a rank of this height.
    pub fn filling(rank: f64) -> Self {
        Self { lane: rank * 0.4, strip: rank * 0.13 }
    }

    /// Height of a rank (points): two lanes, the strip of exposed communication, and the gap to the next
    /// rank.
    pub fn rank(&self) -> f64 {
        2.0 * self.lane + self.strip + self.lane * 0.2
    }
}

/// Minimum height of a rank at which row names do not overlap.
pub fn least(sizes: &Sizes) -> f64 {
    2.6 * sizes.tick
}

/// Row names of a rank, or of several identical ones, and the width of the widest. Without ranks, only lane
/// names.
pub fn names(ranks: &[u32], sizes: &Sizes) -> ([String; 2], f64) {
    let name = |lane: Lane| match ranks {
        [] => lane.as_str().to_owned(),
        [rank] => format!("rank {rank} {}", lane.as_str()),
        ranks => format!("{} {}", rank_label(ranks), lane.as_str()),
    };
    let names = [name(Lane::Compute), name(Lane::Comm)];
    let width = names.iter().map(|name| font::width(name, sizes.tick, false)).fold(0.0, f64::max);
    (names, width)
}

/// Spans by rank and lane, sorted by start.
pub type Rows<'a> = BTreeMap<(u32, Lane), Vec<&'a Span>>;

/// Spans within the window (absolute ns).
pub fn rows(trace: &Trace, window: (i64, i64)) -> Rows<'_> {
    let mut rows = Rows::new();
    for span in &trace.spans {
        if clip((span.start_ns, span.end_ns), window).is_some() {
            rows.entry((span.rank, span.lane)).or_default().push(span);
        }
    }
    for row in rows.values_mut() {
        row.sort_by_key(|span| span.start_ns);
    }
    rows
}

/// Groups ranks with identical spans, in order of first appearance.
pub fn classes(rows: &Rows<'_>, ranks: &[u32]) -> Vec<Vec<u32>> {
    let bare = |span: &&Span| Span { rank: 0, stream: 0, ..**span };
    let did = |rank: u32, lane| -> Vec<Span> {
        rows.get(&(rank, lane)).map_or(&[][..], Vec::as_slice).iter().map(bare).collect()
    };
    let mut classes: Vec<Vec<u32>> = Vec::new();
    let mut known: HashMap<[Vec<Span>; 2], usize> = HashMap::new();
    for rank in ranks {
        let next = classes.len();
        let class =
            *known.entry([Lane::Compute, Lane::Comm].map(|lane| did(*rank, lane))).or_insert(next);
        if class == next {
            classes.push(Vec::new());
        }
        classes[class].push(*rank);
    }
    classes
}

pub struct Drawing<'a, X> {
    pub trace: &'a Trace,
    /// First start of the trace (ns), zero of the times shown.
    pub origin: i64,
    /// Start and end of the window (absolute ns).
    pub window: (i64, i64),
    /// Maps absolute ns to page coordinates.
    pub x: X,
    /// True to write operation names into blocks that are wide enough.
    pub named: bool,
}

impl<X: Fn(i64) -> f64> Drawing<'_, X> {
    /// Draws the rows of a rank with its upper edge at `top`; the row names end left of `left`.
    pub fn rank(
        &self,
        scene: &mut Scene,
        rows: &Rows<'_>,
        (rank, names): (u32, &[String; 2]),
        (left, top): (f64, f64),
        heights: &Heights,
        sizes: &Sizes,
    ) {
        for (index, lane) in [Lane::Compute, Lane::Comm].into_iter().enumerate() {
            let top = top + index as f64 * heights.lane * 1.05;
            let middle = (left - 0.6 * sizes.tick, top + heights.lane / 2.0);
            scene.text(Text::new(middle, names[index].as_str(), sizes.tick).align(Align::Right));
            let spans = rows.get(&(rank, lane)).map_or(&[][..], Vec::as_slice);
            self.row(scene, spans, (top, top + heights.lane * 0.94), sizes);
        }
        let under = top + heights.lane * 2.05;
        let (from, to) = (self.window.0 - self.origin, self.window.1 - self.origin);
        for (start, end) in exposed_intervals(self.trace, rank, from, to) {
            let (left, right) = ((self.x)(start + self.origin), (self.x)(end + self.origin));
            let right = right.max(left + 0.25);
            let strip = Area { left, right, top: under, bottom: under + heights.strip };
            bar(scene, strip, VERMILION, EXPOSED, sizes);
        }
    }

    /// Draws the blocks of one row. Blocks narrower than a quarter point are widened to it unless they
    /// overlap the previous one: the smallest operation stays visible, and the number of blocks stays
    /// bounded.
    fn row(&self, scene: &mut Scene, spans: &[&Span], (top, bottom): (f64, f64), sizes: &Sizes) {
        const LEAST: f64 = 0.25;
        let mut taken = f64::NEG_INFINITY;
        let mut block = |from: i64, to: i64, class: Class, name: &str| {
            let Some((from, to)) = clip((from, to), self.window) else { return };
            let left = (self.x)(from);
            let right = (self.x)(to).max(left + LEAST);
            if right - LEAST / 2.0 <= taken {
                return;
            }
            let left = left.max(taken.min(right - LEAST));
            taken = right;
            let seam = if right - left > 1.5 { 0.3 } else { 0.0 };
            let area = Area { left, right: right - seam, top, bottom };
            let Class { color, hatch, .. } = class;
            // no text over a hatch, which would be hard to read
            let fits = self.named
                && hatch == 0
                && font::width(name, sizes.note, false) + 0.6 * sizes.note < area.width()
                && bottom - top > 1.2 * sizes.note;
            bar(scene, area, color, if area.width() < 1.0 { 0 } else { hatch }, sizes);
            if fits {
                let dark = class == MATMUL;
                let text = Text::new(area.center(), name, sizes.note).align(Align::Middle);
                scene.text(text.color(if dark { WHITE } else { INK }).inside());
            }
        };
        for span in spans {
            let operation = self.trace.operations.get(span.operation as usize);
            let name = operation.and_then(|o| o.name.rsplit('/').next()).unwrap_or_default();
            match span.lane {
                Lane::Compute => {
                    let kind = operation.map_or("", |o| &o.kind);
                    block(span.start_ns, span.end_ns, class_of(kind), name);
                }
                Lane::Comm => {
                    let arrived =
                        span.last_arrival_ns.clamp(span.start_ns, span.end_ns.max(span.start_ns));
                    if arrived > span.start_ns {
                        block(span.start_ns, arrived, WAITING, "wait");
                    }
                    if arrived < span.end_ns || span.start_ns == span.end_ns {
                        block(arrived, span.end_ns, TRANSFER, "");
                    }
                }
            }
        }
    }
}

/// Time unit with readable numbers for a window of this length: ns per unit, and its name.
pub fn unit(length_ns: i64) -> (f64, &'static str) {
    match length_ns {
        ..2_000 => (1.0, "ns"),
        2_000..5_000_000 => (1e3, "µs"),
        _ => (1e6, "ms"),
    }
}
