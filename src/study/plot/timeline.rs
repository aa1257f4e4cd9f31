//! The timeline figure: what each rank's lanes did in a window of a trace, with exposed communication
//! marked under the comm lane; from [`crate::trace::overlap::overlap()`].

use std::path::Path;

use super::axis::{self, Axis, number};
use super::figure::{Figure, check_format};
use super::lanes::{self, Drawing, Heights};
use super::layout::{self, Sheet};
use super::options::Options;
use super::provenance::ProvenanceSummary;
use super::scene::Area;
use super::style::Sizes;
use super::too_narrow;
use crate::base::error::{Error, Result};
use crate::trace::Trace;
use crate::trace::overlap::{Selection, origin_ns, overlap};

/// Ranks in one figure; more are left out, and the figure says so.
const MOST_RANKS: usize = 16;

/// An overlap timeline of `from_ns..to_ns` (since the trace's first start): rank x lane rows,
/// exposed communication marked; format by extension (svg, png).
///
/// # Errors
///
/// An input error for another extension, or where the window holds no span; a
/// failure where writing fails.
pub fn timeline(trace: &Trace, from_ns: i64, to_ns: i64, path: &Path) -> Result<()> {
    check_format(path)?;
    timeline_figure(trace, from_ns, to_ns, &Options::default())?.save(path)
}

/// Lays out the timeline of a window of a trace, in the trace's own nanoseconds.
///
/// # Errors
///
/// An input error where the window holds no span, or the page is too small for the ranks.
pub fn timeline_figure(trace: &Trace, from_ns: i64, to_ns: i64, options: &Options) -> Result<Figure> {
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
    let mut note = match report.all.overlap_pct {
        Some(pct) => format!("overlap {pct:.1}% in this window"),
        None => "no communication in this window".into(),
    };
    if report.ranks.len() > ranks.len() {
        note.push_str(&format!("; first {} of {} ranks", ranks.len(), report.ranks.len()));
    }

    let provenance = ProvenanceSummary::of_traces([trace]);
    let sizes = Sizes::new(options.font);
    let count = ranks.len().max(1) as f64;
    let under = axis::under(&sizes) + 1.4 * sizes.label;
    let gap = 0.9 * sizes.tick;
    let height = count * (Heights::new(&sizes).rank() + gap) + under;
    let sheet = Sheet {
        options,
        provenance: &provenance,
        title: title(trace),
        note,
        remark: String::new(),
        legend: lanes::legend(),
    };
    let (mut scene, all, sizes) =
        sheet.lay(height, (120.0, count * (lanes::least(&sizes) + gap) + under))?;
    let names: Vec<_> = ranks.iter().map(|rank| lanes::names(Some(*rank), &sizes)).collect();
    let widest = names.iter().map(|(_, width)| *width).fold(0.0, f64::max);
    let area = Area {
        left: all.left + widest + 0.9 * sizes.tick,
        right: all.right - 1.2 * sizes.tick,
        top: all.top,
        bottom: all.bottom - under,
    };
    if area.width() < 60.0 {
        return Err(too_narrow(options));
    }
    let (unit_ns, unit) = lanes::unit(to_ns - from_ns);
    let time = Axis::exact(0.0, (to_ns - from_ns) as f64 / unit_ns).over(area.left, area.right);
    axis::horizontal(&mut scene, &time, &area, &sizes);
    let start = number(from_ns as f64 / unit_ns);
    let name = format!("time ({unit}), from {start} {unit} after the first operation");
    let named = [name.as_str(), &format!("time ({unit})")];
    layout::name_below(&mut scene, all, area.center().0, &named, &sizes);

    let rows = lanes::rows(trace, window);
    let block = area.height() / count;
    let heights = Heights::filling(block - gap);
    let x = |ns: i64| time.place((ns - window.0) as f64 / unit_ns);
    let drawing = Drawing { trace, origin, window, x, named: true };
    for (index, (rank, (names, _))) in ranks.iter().zip(&names).enumerate() {
        let top = area.top + index as f64 * block + gap / 2.0;
        drawing.rank(&mut scene, &rows, (*rank, names), (area.left, top), &heights, &sizes);
    }
    layout::frame(&mut scene, area, &sizes);
    Ok(Figure::new(scene, &provenance, options))
}

/// What the trace is of.
pub(super) fn title(trace: &Trace) -> String {
    match (&trace.meta.spec, &trace.meta.run) {
        (Some(spec), _) => format!("{}: {}", spec.model, spec.label()),
        (None, Some(run)) => run.clone(),
        (None, None) => "imported trace".into(),
    }
}
