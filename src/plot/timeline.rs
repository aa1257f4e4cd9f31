//! The timeline figure: what each rank's lanes did in a window of a trace, with exposed communication
//! marked under the comm lane.

use std::collections::BTreeMap;
use std::path::Path;

use super::axis::{Axis, draw_horizontal, number};
use super::scene::{Align, Area, Color, Scene, Text};
use super::style::{GREY, INK, LABEL, NOTE, TICK, TITLE, VERMILION, provenance};
use super::surface::{check_format, save, text_width};
use crate::analysis::intervals::clip;
use crate::analysis::{Selection, exposed_intervals, origin_ns, overlap};
use crate::error::{Error, Result};
use crate::plan::Lane;
use crate::trace::{Span, Trace};

const WIDTH: f64 = 1600.0;
const TOP: f64 = 150.0;
const ROW: f64 = 52.0;
/// Space between ranks.
const GAP: f64 = 34.0;
/// Ranks in one figure; more are left out, and the figure says so.
const MOST_RANKS: usize = 16;

/// What is drawn in the same colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    MatMul,
    Attend,
    Norm,
    Other,
    Waiting,
    Transfer,
}

impl Class {
    const ALL: [Self; 6] =
        [Self::MatMul, Self::Attend, Self::Norm, Self::Other, Self::Waiting, Self::Transfer];

    /// Of an operation on the compute lane.
    fn of(kind: &str) -> Self {
        match kind {
            "matmul" => Self::MatMul,
            "attend" => Self::Attend,
            "norm" | "add" | "add_norm" | "add_mean" => Self::Norm,
            _ => Self::Other,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::MatMul => "matmul",
            Self::Attend => "attention",
            Self::Norm => "norm, add",
            Self::Other => "other compute",
            Self::Waiting => "waiting for a peer",
            Self::Transfer => "communication",
        }
    }

    fn color(self) -> Color {
        match self {
            Self::MatMul => (0, 114, 178),
            Self::Attend => (230, 159, 0),
            Self::Norm => (0, 158, 115),
            Self::Other => (150, 150, 150),
            Self::Waiting => (240, 214, 228),
            Self::Transfer => (204, 121, 167),
        }
    }
}

/// An overlap timeline of `from_ns..to_ns` (since the trace's first start): rank x lane rows,
/// exposed communication marked; format by extension (svg, png).
pub fn timeline(trace: &Trace, from_ns: i64, to_ns: i64, path: &Path) -> Result<()> {
    check_format(path)?;
    save(&scene(trace, from_ns, to_ns)?, path)
}

/// The figure, laid out.
pub(super) fn scene(trace: &Trace, from_ns: i64, to_ns: i64) -> Result<Scene> {
    let origin = origin_ns(trace);
    let last = trace.spans.iter().map(|span| span.end_ns).max().unwrap_or(origin) - origin;
    if from_ns >= to_ns || from_ns >= last || to_ns <= 0 {
        return Err(Error::input_help(
            format!("nothing to draw from {from_ns} ns to {to_ns} ns"),
            format!("the trace lasts from 0 to {last} ns; --from must lie before --to"),
        ));
    }
    let window = (origin.saturating_add(from_ns), origin.saturating_add(to_ns));
    let selection = Selection { from_ns: Some(from_ns), to_ns: Some(to_ns), ..Selection::default() };
    let report = overlap(trace, &selection);
    let ranks: Vec<u32> = report.ranks.iter().map(|rank| rank.rank).take(MOST_RANKS).collect();

    // Rows of a rank: compute, comm, and a thin one for what is exposed.
    let block = 2.0 * ROW + GAP;
    let labels = ranks.iter().map(|rank| text_width(&row_name(*rank, Lane::Compute), TICK, false));
    let area = Area {
        left: labels.fold(0.0, f64::max) + 60.0,
        right: WIDTH - 50.0,
        top: TOP,
        bottom: TOP + block * ranks.len() as f64,
    };
    let legend = legend_rows(area.width() + area.left - 40.0);
    let height = area.bottom + 140.0 + 54.0 * legend.len() as f64;
    let mut scene = Scene::new(WIDTH as u32, height as u32);

    scene.text(Text::new((40.0, 46.0), title(trace), TITLE).bold());
    let pct = match report.all.overlap_pct {
        Some(pct) => format!("overlap {pct:.1}% in this window"),
        None => "no communication in this window".into(),
    };
    let mut subtitle = format!("{}; {pct}", provenance([trace.meta.provenance]));
    if report.ranks.len() > ranks.len() {
        subtitle.push_str(&format!("; first {} of {} ranks", ranks.len(), report.ranks.len()));
    }
    scene.text(Text::new((40.0, 100.0), subtitle, LABEL - 4.0).color(GREY));

    let (unit_ns, unit) = unit(to_ns - from_ns);
    let time = Axis::exact(0.0, (to_ns - from_ns) as f64 / unit_ns, area.left, area.right);
    let start = number(from_ns as f64 / unit_ns);
    let name = format!("time ({unit}), from {start} {unit} after the first operation");
    draw_horizontal(&mut scene, &time, &area, &name);

    let x = |ns: i64| time.place((ns - window.0) as f64 / unit_ns);
    let rows = rows(trace, window);
    for (index, rank) in ranks.iter().enumerate() {
        let top = area.top + index as f64 * block + 6.0;
        for (lane, top) in [(Lane::Compute, top), (Lane::Comm, top + ROW)] {
            let middle = (area.left - 18.0, top + ROW / 2.0);
            scene.text(Text::new(middle, row_name(*rank, lane), TICK).align(Align::Right));
            let spans = rows.get(&(*rank, lane)).map_or(&[][..], Vec::as_slice);
            draw_row(&mut scene, trace, spans, window, top, &x);
        }
        let under = top + 2.0 * ROW;
        for (start, end) in exposed_intervals(trace, *rank, from_ns, to_ns) {
            let (left, right) = (x(start + origin), x(end + origin));
            let bar = Area { left, right: right.max(left + 1.0), top: under, bottom: under + 12.0 };
            scene.rect(bar, VERMILION);
        }
    }
    scene.frame(area, INK, 2);
    scene.data.push(area);
    draw_legend(&mut scene, &legend, area.bottom + 150.0);
    Ok(scene)
}

fn title(trace: &Trace) -> String {
    match (&trace.meta.spec, &trace.meta.run) {
        (Some(spec), _) => format!("{}: {}", spec.model, spec.label()),
        (None, Some(run)) => run.clone(),
        (None, None) => "imported trace".into(),
    }
}

fn row_name(rank: u32, lane: Lane) -> String {
    format!("rank {rank} {}", lane.as_str())
}

/// The unit in which a window of this length has handy numbers, as ns and by name.
fn unit(length_ns: i64) -> (f64, &'static str) {
    match length_ns {
        ..2_000 => (1.0, "ns"),
        ..5_000_000 => (1e3, "µs"),
        _ => (1e6, "ms"),
    }
}

/// Spans within the window by rank and lane, by start.
fn rows(trace: &Trace, window: (i64, i64)) -> BTreeMap<(u32, Lane), Vec<&Span>> {
    let mut rows: BTreeMap<(u32, Lane), Vec<&Span>> = BTreeMap::new();
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

/// Blocks of one row. What is narrower than a pixel is widened to one, unless that pixel is taken: so
/// the smallest operation can be seen, and a million of them are no more than a pixel's width of shapes.
fn draw_row(
    scene: &mut Scene,
    trace: &Trace,
    spans: &[&Span],
    window: (i64, i64),
    top: f64,
    x: &impl Fn(i64) -> f64,
) {
    let mut taken = f64::NEG_INFINITY;
    let mut block = |from: i64, to: i64, class: Class| {
        let Some((from, to)) = clip((from, to), window) else { return };
        let (left, right) = (x(from).floor(), x(to).floor().max(x(from).floor() + 1.0));
        if right <= taken {
            return;
        }
        let left = left.max(taken.min(right - 1.0));
        taken = right;
        // A white seam tells neighbours apart where there is room for it.
        let seam = if right - left > 5.0 { 1.0 } else { 0.0 };
        let area = Area { left, right: right - seam, top: top + 4.0, bottom: top + ROW - 4.0 };
        scene.rect(area, class.color());
    };
    for span in spans {
        match span.lane {
            Lane::Compute => {
                let kind = trace.operations.get(span.operation as usize).map_or("", |o| &o.kind);
                block(span.start_ns, span.end_ns, Class::of(kind));
            }
            Lane::Comm => {
                let arrived = span.last_arrival_ns.clamp(span.start_ns, span.end_ns.max(span.start_ns));
                if arrived > span.start_ns {
                    block(span.start_ns, arrived, Class::Waiting);
                }
                if arrived < span.end_ns || span.start_ns == span.end_ns {
                    block(arrived, span.end_ns, Class::Transfer);
                }
            }
        }
    }
}

/// An entry of the legend: name, colour, and its left edge.
type Entry = (&'static str, Color, f64);

/// The legend's entries, in as many rows as `width` makes necessary.
fn legend_rows(width: f64) -> Vec<Vec<Entry>> {
    let classes = Class::ALL.into_iter().map(|class| (class.name(), class.color()));
    let mut rows: Vec<Vec<Entry>> = vec![Vec::new()];
    let mut left = 0.0;
    for (name, color) in classes.chain([("exposed communication", VERMILION)]) {
        let needs = text_width(name, NOTE, false) + 100.0;
        if left + needs > width {
            rows.push(Vec::new());
            left = 0.0;
        }
        if let Some(row) = rows.last_mut() {
            row.push((name, color, left));
        }
        left += needs;
    }
    rows
}

fn draw_legend(scene: &mut Scene, rows: &[Vec<Entry>], top: f64) {
    for (index, row) in rows.iter().enumerate() {
        let y = top + 54.0 * index as f64;
        for (name, color, left) in row {
            let left = left + 40.0;
            // Exposed communication is a thin bar in the figure, so it is one here.
            let half = if *color == VERMILION { 6.0 } else { 16.0 };
            scene.rect(Area { left, right: left + 40.0, top: y - half, bottom: y + half }, *color);
            scene.text(Text::new((left + 52.0, y), *name, NOTE));
        }
    }
}
