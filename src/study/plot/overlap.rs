//! Overlap figure: the same layers of one decode step of several runs, one below the other on the same scale,
//! with exposed communication marked ([`trace::overlap::overlap()`]). Standard above ladder shows the gain
//! from hiding all-reduces.

use std::collections::BTreeSet;

use super::figure::{Figure, FigureOptions};
use super::layout::Sheet;
use super::provenance::ProvenanceSummary;
use super::timeline::{self, LaneWindow};
use crate::analysis::{self, Varied};
use base::error::{Error, Result};
use base::text::rank_label;
use plan::{Lane, Phase};
use trace::overlap::{Selection, origin_ns, overlap};
use trace::{Span, Trace};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverlapPart {
    /// Decode step; `None` is the middle one.
    pub step: Option<u32>,
    /// Number of layers, from the middle of the model.
    pub layers: u32,
    pub rank: u32,
}

impl Default for OverlapPart {
    fn default() -> Self {
        Self { step: None, layers: 2, rank: 0 }
    }
}

struct Excerpt<'a> {
    trace: &'a Trace,
    step: u32,
    /// Start of the first layer and end of the last one (absolute ns).
    layers: (i64, i64),
    /// First and last of these layers, counted from 1, and the total number of layers.
    which: (u32, u32, u32),
    /// Summary of the whole step.
    says: String,
}

impl Excerpt<'_> {
    /// Description of the part: `layers 2 to 3 of 4 of decode step 7`.
    fn shown(&self) -> String {
        let (from, to, all) = self.which;
        match from == to {
            true => format!("layer {from} of {all} of decode step {}", self.step),
            false => format!("layers {from} to {to} of {all} of decode step {}", self.step),
        }
    }
}

/// Draws the figure of these traces; a trace with fewer layers than requested shows all of them. The caller
/// supplies the provenance, because runs know more about it than their traces.
///
/// # Errors
///
/// Returns an error if there is no trace, if a trace lacks the decode step, the rank or the layers of its
/// operations, or if the page is too small.
pub fn overlap_figure(
    traces: &[&Trace],
    part: &OverlapPart,
    provenance: &ProvenanceSummary,
    options: &FigureOptions,
) -> Result<Figure> {
    let excerpts: Vec<Excerpt<'_>> =
        traces.iter().map(|trace| excerpt(trace, part)).collect::<Result<_>>()?;
    let Some(first) = excerpts.first() else { return Err(Error::input("nothing to plot: no trace")) };
    let length = excerpts.iter().map(|e| e.layers.1 - e.layers.0).max().unwrap_or(1).max(1);
    // steps and layers may differ between runs of other lengths and models of other depths
    let same_part = excerpts.iter().all(|excerpt| excerpt.shown() == first.shown());
    let specs = || traces.iter().filter_map(|trace| trace.meta.spec.as_ref());
    let varied = Varied::from_specs(specs());
    let common = specs().next().map(|spec| {
        let words = [
            ("model", spec.model.clone()),
            ("tp", format!("TP {}", spec.tp)),
            ("batch", format!("batch {}", spec.batch)),
            ("p2p", format!("P2P {}", spec.p2p.as_str())),
        ];
        let same = words.into_iter().filter(|(name, _)| !varied.axes().any(|axis| axis.key() == *name));
        same.map(|(_, word)| word).collect::<Vec<_>>().join(", ")
    });
    let common = common.filter(|common| !common.is_empty());
    let title = match (common, same_part) {
        (Some(common), true) => format!("{common}: {}", first.shown()),
        (None, true) => first.shown(),
        (common, false) => common.unwrap_or_else(|| "Layers of decode steps".into()),
    };
    let settings = varied.without(&analysis::Axis::ARCHITECTURE);
    // no ratio for runs that differ in more than one option: it would have no single cause
    let comparable = varied.axes().count() <= 1 && same_part;
    let ranks: Vec<BTreeSet<u32>> = excerpts.iter().map(|excerpt| same_as(excerpt, part.rank)).collect();
    // traces with another TP have other ranks, which then go into each heading
    let common_ranks = match ranks.iter().all(|others| *others == ranks[0]) {
        true => ranks[0].clone(),
        false => BTreeSet::new(),
    };
    let (unit_ns, unit) = timeline::unit(length);
    let reference = first.layers.1 - first.layers.0;
    let window = |index: usize| {
        let excerpt = &excerpts[index];
        let name = match &excerpt.trace.meta.spec {
            Some(spec) => {
                format!("{} {}", spec.architecture, settings.words(spec)).trim_end().to_owned()
            }
            None => super::timeline::title(excerpt.trace),
        };
        let name = if same_part { name } else { format!("{name}: {}", excerpt.shown()) };
        let title = match ranks[index] == common_ranks {
            true => name,
            false => format!("{name} ({})", rank_drawn(part.rank, &ranks[index])),
        };
        let (start, end) = excerpt.layers;
        let mut right = format!("{:.1} {unit}", (end - start) as f64 / unit_ns);
        if index > 0 && reference > 0 && comparable {
            let change = 100.0 * ((end - start) as f64 / reference as f64 - 1.0);
            right = format!("{right} ({}{:.1} %)", if change < 0.0 { "−" } else { "+" }, change.abs());
        }
        let ends = (start, start + (length as f64 * 1.04) as i64);
        LaneWindow {
            trace: excerpt.trace,
            ends,
            rows: timeline::rows(excerpt.trace, ends),
            ranks: vec![(part.rank, timeline::names(&[]))],
            title,
            right,
            note: excerpt.says.clone(),
            mark_ns: Some(end),
        }
    };
    let windows: Vec<LaneWindow<'_>> = (0..excerpts.len()).map(window).collect();
    let sheet = Sheet {
        options,
        provenance,
        title,
        note: format!("{}; dashed line: end of the same layers", rank_drawn(part.rank, &common_ranks)),
        remark: String::new(),
        legend: timeline::legend(&windows),
    };
    timeline::figure(&sheet, &windows, &format!("time ({unit}) since the start of these layers"))
}

fn same_as(excerpt: &Excerpt<'_>, rank: u32) -> BTreeSet<u32> {
    let rows = timeline::rows(excerpt.trace, excerpt.layers);
    let ranks: BTreeSet<u32> = rows.keys().map(|(rank, _)| *rank).collect();
    let classes = timeline::classes(&rows, &ranks.into_iter().collect::<Vec<_>>());
    let own = classes.into_iter().find(|class| class.contains(&rank));
    own.into_iter().flatten().filter(|other| *other != rank).collect()
}

/// Label of the drawn rank with the ranks identical to it: `rank 0 = r1..r7`.
fn rank_drawn(rank: u32, same: &BTreeSet<u32>) -> String {
    match same.iter().copied().collect::<Vec<_>>() {
        others if others.is_empty() => format!("rank {rank}"),
        others => format!("rank {rank} = {}", rank_label(&others)),
    }
}

/// Middle layers of the step, delimited by the rank's compute lane.
fn excerpt<'a>(trace: &'a Trace, part: &OverlapPart) -> Result<Excerpt<'a>> {
    let name = super::timeline::title(trace);
    let decode = || trace.spans.iter().filter(|s| s.phase == Phase::Decode && s.rank == part.rank);
    let numbers: BTreeSet<u32> = decode().map(|span| span.step).collect();
    let Some(last) = numbers.last() else {
        return Err(Error::input(format!("{name}: no decode step of rank {}", part.rank)));
    };
    // numbers of imported decode steps may have gaps, where prefills are
    let middle = numbers.iter().nth((numbers.len() - 1) / 2);
    let step = part.step.or(middle.copied()).unwrap_or(*last);
    let of_step = || decode().filter(move |span| span.step == step);
    let Some(sample) = of_step().map(|span| span.sample).max() else {
        return Err(Error::input(format!("{name}: no decode step {step}; the last is {last}")));
    };
    let spans = || of_step().filter(move |span| span.sample == sample);
    let layer = |span: &Span| trace.operations.get(span.operation as usize).and_then(|o| o.layer);
    let all = spans().filter_map(layer).max().map_or(0, |last| last + 1);
    if all == 0 {
        return Err(Error::input_help(
            format!("{name}: the operations have no layer numbers"),
            "for an imported trace, use ladderscope timeline TRACE -o FILE.svg",
        ));
    }
    let count = part.layers.clamp(1, all);
    let from = (all - count) / 2;
    let within = |span: &&Span| {
        span.lane == Lane::Compute && layer(span).is_some_and(|l| (from..from + count).contains(&l))
    };
    let start = spans().filter(within).map(|span| span.start_ns).min();
    let end = spans().filter(within).map(|span| span.end_ns).max();
    let (Some(start), Some(end)) = (start, end) else {
        return Err(Error::input(format!("{name}: no compute operations from layer {from} on")));
    };
    // the layers last until the next compute operation, to include communication exposed after them
    let next = spans()
        .filter(|span| span.lane == Lane::Compute && span.start_ns >= end)
        .map(|span| span.start_ns)
        .min();

    let origin = origin_ns(trace);
    let bounds =
        spans().fold((i64::MAX, i64::MIN), |(a, b), span| (a.min(span.start_ns), b.max(span.end_ns)));
    let selection = Selection {
        phase: Some(Phase::Decode),
        step: Some(step),
        from_ns: Some(bounds.0 - origin),
        to_ns: Some(bounds.1 - origin),
        ..Selection::default()
    };
    let report = overlap(trace, &selection);
    let says = report.ranks.iter().find(|rank| rank.rank == Some(part.rank)).map(|rank| {
        let [step, comm, exposed] =
            [rank.span_us, rank.comm_us, rank.exposed_comm_us].map(|us| us / 1e3);
        let pct = rank.overlap_pct;
        let overlap = pct.map_or("no communication".into(), |pct| format!("overlap {pct:.1} %"));
        format!(
            "{overlap}; whole step {step:.2} ms; communication {comm:.2} ms; exposed {exposed:.2} ms"
        )
    });
    let says = says.unwrap_or_default();
    let which = (from + 1, from + count, all);
    Ok(Excerpt { trace, step, layers: (start, next.unwrap_or(end)), which, says })
}
