//! Timeline figure: lanes of each rank in a window of one or several traces, with exposed communication
//! marked below the comm lane ([`trace::overlap::overlap()`]).
//!
//! Lanes of ranks in a window of a trace: operations as blocks, and exposed communication. Used by the
//! timeline and overlap figures.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use super::axis::{self, ValueAxis, number};
use super::figure::{Figure, FigureOptions, check_format};
use super::font;
use super::layout::{self, LegendEntry, LegendKey, Sheet, bar};
use super::provenance::ProvenanceSummary;
use super::scene::{Align, Area, Color, Hatch, Scene, SceneText};
use super::style::{FigureSizes, GREY, INK, VERMILION, WHITE};
use super::too_narrow;
use base::error::{Error, Result};
use base::text::rank_label;
use plan::Lane;
use trace::overlap::intervals::clip;
use trace::overlap::{Selection, exposed_intervals, origin_ns, overlap};
use trace::{OperationInfo, OperationKind, Span, Trace};

/// Maximum ranks in one figure, counting identical ones once; the note says if there are more.
const MOST_RANKS: usize = 16;

#[derive(Clone, Copy, Debug)]
pub struct TraceStretch<'a> {
    pub trace: &'a Trace,
    /// Start (ns since the trace's first start); nothing happens at negative times.
    pub from_ns: i64,
    /// End (ns since the trace's first start), may exceed the trace.
    pub to_ns: i64,
}

/// Writes the timeline of one or several windows on one scale; the format follows from the extension (svg,
/// png). Returns an error if the extension is unknown or writing fails, and the errors of
/// [`timeline_figure`].
pub fn timeline(stretches: &[TraceStretch], path: &Path) -> Result<()> {
    check_format(path)?;
    timeline_figure(stretches, &FigureOptions::default())?.save(path)
}

/// Draws windows of traces, one below the other on one scale. A single window uses the figure's title and
/// note, several have their own headings. Returns an error if no window overlaps its trace, a trace's
/// provenance is no evidence, or the page is too small for the ranks.
pub fn timeline_figure(stretches: &[TraceStretch], options: &FigureOptions) -> Result<Figure> {
    check(stretches)?;
    let traces = || stretches.iter().map(|stretch| stretch.trace);
    traces().try_for_each(|trace| trace.meta.provenance.require_evidence("a trace"))?;
    let most = (MOST_RANKS / stretches.len().max(1)).max(1);
    let length = stretches.iter().map(|s| s.to_ns.saturating_sub(s.from_ns)).max().unwrap_or(1);
    let unit = unit(length).1;
    let start = |stretch: &TraceStretch| {
        // in its own unit: a window of microseconds may start after seconds
        let (ns, unit) = match stretch.from_ns.abs().max(length) {
            1_000_000_000.. => (1e9, "s"),
            from => self::unit(from),
        };
        format!("{} {unit}", number(stretch.from_ns as f64 / ns))
    };
    let mixed = traces().any(|trace| trace.meta.provenance != stretches[0].trace.meta.provenance);
    let titles: Vec<String> = traces()
        .map(|trace| match mixed {
            true => format!("{} ({})", title(trace), trace.meta.provenance),
            false => title(trace),
        })
        .collect();
    let title = titles.join(" over ");
    let mut windows: Vec<LaneWindow<'_>> =
        stretches.iter().map(|stretch| window(stretch, most)).collect();
    let (note, name) = match &mut windows[..] {
        [window] => (
            std::mem::take(&mut window.note),
            format!("time ({unit}), starting {} after the first operation", start(&stretches[0])),
        ),
        several => {
            for ((window, stretch), title) in several.iter_mut().zip(stretches).zip(titles) {
                window.title = title;
                window.note += &format!("; from {}", start(stretch));
            }
            (
                "same time scale; each window has its own start".into(),
                format!("time ({unit}) from the start of each window"),
            )
        }
    };
    let provenance = &ProvenanceSummary::of_traces(traces());
    let (remark, legend) = (String::new(), legend(&windows));
    figure(&Sheet { options, provenance, title, note, remark, legend }, &windows, &name)
}

/// Window without a title, with identical ranks drawn once, and a note on its overlap and ranks.
fn window<'a>(stretch: &TraceStretch<'a>, most_ranks: usize) -> LaneWindow<'a> {
    let TraceStretch { trace, from_ns, to_ns } = *stretch;
    let selection = Selection { from_ns: Some(from_ns), to_ns: Some(to_ns), ..Selection::default() };
    let report = overlap(trace, &selection);
    let origin = origin_ns(trace);
    let ends = (origin.saturating_add(from_ns), origin.saturating_add(to_ns));
    let all: Vec<u32> = report.ranks.iter().filter_map(|rank| rank.rank).collect();
    let rows = rows(trace, ends);
    let mut ranks = classes(&rows, &all);
    let folded = ranks.len() < all.len();
    ranks.truncate(most_ranks);
    let mut note = match report.all.overlap_pct {
        Some(pct) => format!("overlap {pct:.1} % in this window"),
        None => "no communication in this window".into(),
    };
    let shown = ranks.iter().map(Vec::len).sum::<usize>();
    if folded {
        note.push_str("; ranks with identical timelines are drawn once");
    }
    if shown < all.len() {
        note.push_str(&format!("; {shown} of {} ranks", all.len()));
    }
    let ranks = ranks.iter().map(|ranks| (ranks[0], names(ranks))).collect();
    let (title, right) = (String::new(), String::new());
    LaneWindow { trace, ends, rows, ranks, title, right, note, mark_ns: None }
}

fn check(stretches: &[TraceStretch]) -> Result<()> {
    let last = |trace: &Trace| {
        let end = trace.spans.iter().map(|span| span.end_ns).max();
        end.map_or(0, |end| end.saturating_sub(origin_ns(trace)))
    };
    let seen = |s: &TraceStretch| s.from_ns < s.to_ns && s.from_ns < last(s.trace) && s.to_ns > 0;
    match stretches {
        [] => Err(Error::input("nothing to plot: no trace")),
        [first, ..] if !stretches.iter().any(seen) => Err(Error::input_help(
            format!("nothing to plot between {} ns and {} ns", first.from_ns, first.to_ns),
            format!("the trace covers 0 to {} ns, and --from must be less than --to", last(first.trace)),
        )),
        _ => Ok(()),
    }
}

pub(super) fn title(trace: &Trace) -> String {
    match (&trace.meta.spec, &trace.meta.run) {
        (Some(spec), _) => format!("{}: {}", spec.model, spec.label()),
        (None, Some(run)) => run.clone(),
        (None, None) => file_name(trace).unwrap_or_else(|| "imported trace".into()),
    }
}

/// Name of the imported file, or of the folder that several share.
fn file_name(trace: &Trace) -> Option<String> {
    let files = &trace.meta.import.as_ref()?.files;
    let first = Path::new(files.first()?);
    let path = if files.len() > 1 { first.parent()? } else { first };
    Some(path.file_name()?.to_string_lossy().into_owned()).filter(|name| !name.is_empty())
}

/// Class of operations with one colour and hatch; all pairs also differ in greyscale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    name: &'static str,
    color: Color,
    hatch: Hatch,
}

const MATMUL: Class = Class { name: "matmul", color: (0, 114, 178), hatch: Hatch::None };
const ATTEND: Class = Class { name: "attention", color: (230, 159, 0), hatch: Hatch::None };
const NORM: Class = Class { name: "norm, add", color: (0, 158, 115), hatch: Hatch::Falling };
const OTHER: Class = Class { name: "other compute", color: (150, 150, 150), hatch: Hatch::None };
const WAITING: Class = Class { name: "waiting for a peer", color: (232, 200, 218), hatch: Hatch::None };
const TRANSFER: Class = Class { name: "communication", color: (204, 121, 167), hatch: Hatch::Rising };

fn class_of(operation: Option<&OperationInfo>) -> Class {
    match operation.map(|operation| &operation.kind) {
        Some(OperationKind::MatMul) => MATMUL,
        Some(OperationKind::Attend) => ATTEND,
        Some(
            OperationKind::Norm
            | OperationKind::Add
            | OperationKind::AddNorm
            | OperationKind::AddMean
            | OperationKind::Join
            | OperationKind::JoinNorm
            | OperationKind::MeanShare
            | OperationKind::AllReduceAddNorm,
        ) => NORM,
        _ => OTHER,
    }
}

/// Hatch of exposed communication.
const EXPOSED: Hatch = Hatch::Crossed;

/// Legend of the classes drawn in some window.
pub fn legend(windows: &[LaneWindow<'_>]) -> Vec<LegendEntry> {
    let mut drawn: Vec<Class> = Vec::new();
    let mut exposes = false;
    for window in windows {
        for (rank, _) in &window.ranks {
            let of_lane = |lane| window.rows.get(&(*rank, lane)).into_iter().flatten();
            for span in of_lane(Lane::Compute).chain(of_lane(Lane::Comm)) {
                let operation = window.trace.operations.get(span.operation as usize);
                let classes = match span.lane {
                    Lane::Compute => [Some(class_of(operation)), None],
                    Lane::Comm => {
                        [Some(TRANSFER), Some(WAITING).filter(|_| span.last_arrival_ns > span.start_ns)]
                    }
                };
                let new = classes.into_iter().flatten().filter(|class| !drawn.contains(class));
                drawn.extend(new.collect::<Vec<_>>());
            }
            exposes = exposes || !window.exposed(*rank).is_empty();
        }
    }
    let classes = [MATMUL, ATTEND, NORM, OTHER, WAITING, TRANSFER].into_iter();
    let classes = classes.filter(|class| drawn.contains(class)).map(|class| {
        // kernels of other programs are not classified
        let is_alone = class == OTHER && ![MATMUL, ATTEND, NORM].iter().any(|one| drawn.contains(one));
        let name = if is_alone { "compute" } else { class.name };
        LegendEntry::new(LegendKey::Bar { color: class.color, hatch: class.hatch }, name)
    });
    let exposed = LegendKey::Strip { color: VERMILION, hatch: EXPOSED };
    let exposed = exposes.then(|| LegendEntry::new(exposed, "exposed communication"));
    classes.chain(exposed).collect()
}

/// Window of a trace: lanes of some ranks below a heading.
pub struct LaneWindow<'a> {
    pub trace: &'a Trace,
    /// Start and end (absolute ns).
    pub ends: (i64, i64),
    pub rows: SpansByLane<'a>,
    /// Ranks with the names of their two lanes.
    pub ranks: Vec<(u32, [String; 2])>,
    /// Heading on the left and right; none if empty.
    pub title: String,
    pub right: String,
    /// Second line of the heading: clauses between semicolons, of which the last are left out if it is too long.
    pub note: String,
    /// Time of a dashed line (absolute ns).
    pub mark_ns: Option<i64>,
}

/// Names of the lanes of identical ranks; without ranks, only of the lanes.
pub fn names(ranks: &[u32]) -> [String; 2] {
    [Lane::Compute, Lane::Comm].map(|lane| match ranks {
        [] => lane.as_str().to_owned(),
        [rank] => format!("rank {rank} {}", lane.as_str()),
        ranks => format!("{} {}", rank_label(ranks), lane.as_str()),
    })
}

/// Draws windows one below the other on one scale. Returns an error if the page is too small.
pub fn figure(sheet: &Sheet<'_>, windows: &[LaneWindow<'_>], axis_name: &str) -> Result<Figure> {
    let sizes = FigureSizes::new(sheet.options.font);
    let line = FigureSizes::line_of(sizes.tick);
    let (under, gap) = (axis::under(&sizes) + 1.4 * sizes.label, 0.9 * sizes.tick);
    let head = if windows.iter().all(|window| window.title.is_empty()) { 0.0 } else { 2.2 * line };
    let heads = head * windows.len() as f64;
    let count = windows.iter().map(|window| window.ranks.len()).sum::<usize>().max(1) as f64;
    // at less than 2.6 lines of text per rank, names overlap
    let [height, least] = [4.0, 2.6].map(|rank| count * (rank * sizes.tick + gap) + heads + under);
    let (mut scene, all) = sheet.lay_out(height, (120.0, least))?;
    let names = windows.iter().flat_map(|window| &window.ranks).flat_map(|(_, names)| names);
    let widest = names.map(|name| font::width(name, sizes.tick, false)).fold(0.0, f64::max);
    let area = Area {
        left: all.left + widest + 0.9 * sizes.tick,
        right: all.right - 1.2 * sizes.tick,
        top: all.top,
        bottom: all.bottom - under,
    };
    if area.width() < 60.0 {
        return Err(too_narrow(sheet.options));
    }
    let length = windows.iter().map(|window| window.ends.1.saturating_sub(window.ends.0)).max();
    let length = length.unwrap_or(1).max(1);
    let unit_ns = unit(length).0;
    let time = ValueAxis::exact((0.0, length as f64 / unit_ns), false).over(area.left, area.right);
    layout::name_below(&mut scene, all, area.center().0, axis_name);
    let block = (area.height() - heads) / count;
    let mut top = area.top;
    for window in windows {
        let at = |x: f64, above: f64| (x, top + head - above * line);
        scene.text(SceneText::new(at(area.left, 1.6), &window.title, sizes.tick).bold());
        scene.text(SceneText::new(at(area.right, 1.6), &window.right, sizes.tick).align(Align::Right));
        let mut note = window.note.as_str();
        while font::width(note, sizes.note, false) > area.width() {
            note = note.rsplit_once("; ").map_or("", |(kept, _)| kept);
        }
        scene.text(SceneText::new(at(area.left, 0.6), note, sizes.note).color(GREY));
        let bottom = top + head + block * window.ranks.len().max(1) as f64;
        let own = Area { top: top + head, bottom, ..area };
        axis::grid(&mut scene, &time, &own);
        let x = |ns: i64| time.place((ns - window.ends.0) as f64 / unit_ns);
        for (index, (rank, names)) in window.ranks.iter().enumerate() {
            let at = (area.left, own.top + index as f64 * block + gap / 2.0);
            window.draw_rank(&mut scene, (*rank, names), at, block - gap, &x);
        }
        if let Some(mark) = window.mark_ns.map(x) {
            scene.dashed(vec![(mark, own.top), (mark, own.bottom)], INK, sizes.line * 0.7);
        }
        layout::frame(&mut scene, own);
        top = own.bottom;
    }
    axis::numbers(&mut scene, &time, &area);
    Ok(Figure::new(scene, sheet.provenance, sheet.options))
}

/// Spans by rank and lane, sorted by start.
pub type SpansByLane<'a> = BTreeMap<(u32, Lane), Vec<&'a Span>>;

/// Spans within the window (absolute ns).
pub fn rows(trace: &Trace, window: (i64, i64)) -> SpansByLane<'_> {
    let mut rows = SpansByLane::new();
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
pub fn classes(rows: &SpansByLane<'_>, ranks: &[u32]) -> Vec<Vec<u32>> {
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

impl LaneWindow<'_> {
    /// Exposed communication of a rank (absolute ns).
    fn exposed(&self, rank: u32) -> Vec<(i64, i64)> {
        let origin = origin_ns(self.trace);
        let (from, to) = (self.ends.0 - origin, self.ends.1 - origin);
        let intervals = exposed_intervals(self.trace, rank, from, to).into_iter();
        intervals.map(|(start, end)| (start + origin, end + origin)).collect()
    }

    /// Draws the rows of a rank, two lanes and a strip of exposed communication, with its upper edge at `top`; the row
    /// names end left of `left`.
    fn draw_rank(
        &self,
        scene: &mut Scene,
        (rank, names): (u32, &[String; 2]),
        (left, top): (f64, f64),
        height: f64,
        x: &impl Fn(i64) -> f64,
    ) {
        let (lane_height, size) = (0.4 * height, scene.sizes.tick);
        for (index, lane) in [Lane::Compute, Lane::Comm].into_iter().enumerate() {
            let top = top + index as f64 * lane_height * 1.05;
            let middle = (left - 0.6 * size, top + lane_height / 2.0);
            scene.text(SceneText::new(middle, names[index].as_str(), size).align(Align::Right));
            let spans = self.rows.get(&(rank, lane)).map_or(&[][..], Vec::as_slice);
            self.draw_row(scene, spans, (top, top + lane_height * 0.94), x);
        }
        let under = top + lane_height * 2.05;
        for (start, end) in self.exposed(rank) {
            let (left, right) = (x(start), x(end));
            let right = right.max(left + 0.25);
            let strip = Area { left, right, top: under, bottom: under + 0.13 * height };
            bar(scene, strip, VERMILION, EXPOSED);
        }
    }

    /// Draws the blocks of one row. Blocks narrower than a quarter point are widened to it unless they
    /// overlap the previous one: the smallest operation stays visible, and the number of blocks stays
    /// bounded.
    fn draw_row(
        &self,
        scene: &mut Scene,
        spans: &[&Span],
        (top, bottom): (f64, f64),
        x: &impl Fn(i64) -> f64,
    ) {
        /// Minimum width of a block (points).
        const LEAST: f64 = 0.25;
        let size = scene.sizes.note;
        let mut taken = f64::NEG_INFINITY;
        let mut block = |from: i64, to: i64, class: Class, name: &str| {
            let Some((from, to)) = clip((from, to), self.ends) else { return };
            let left = x(from);
            let right = x(to).max(left + LEAST);
            if right - LEAST / 2.0 <= taken {
                return;
            }
            let left = left.max(taken.min(right - LEAST));
            taken = right;
            let seam = if right - left > 1.5 { 0.3 } else { 0.0 };
            let area = Area { left, right: right - seam, top, bottom };
            let Class { color, hatch, .. } = class;
            // no text over a hatch, which would be hard to read
            let fits = hatch == Hatch::None
                && font::width(name, size, false) + 0.6 * size < area.width()
                && bottom - top > 1.2 * size;
            bar(scene, area, color, if area.width() < 1.0 { Hatch::None } else { hatch });
            if fits {
                let dark = class == MATMUL;
                let text = SceneText::new(area.center(), name, size).align(Align::Middle);
                scene.text(text.color(if dark { WHITE } else { INK }).inside());
            }
        };
        for span in spans {
            let operation = self.trace.operations.get(span.operation as usize);
            let name = operation.and_then(|o| o.name.rsplit('/').next()).unwrap_or_default();
            match span.lane {
                Lane::Compute => {
                    block(span.start_ns, span.end_ns, class_of(operation), name);
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
