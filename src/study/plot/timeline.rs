//! Timeline figure: lanes of each rank in a window of one or several traces, with exposed communication
//! marked below the comm lane ([`trace::overlap::overlap()`]).

use std::path::Path;

use super::axis::number;
use super::figure::{Figure, check_format};
use super::lanes::{self, Window};
use super::layout::Sheet;
use super::options::Options;
use super::provenance::ProvenanceSummary;
use base::error::{Error, Result};
use trace::Trace;
use trace::overlap::{Selection, origin_ns, overlap};

/// Maximum ranks in one figure, counting identical ones once; the note says if there are more.
const MOST_RANKS: usize = 16;

#[derive(Clone, Copy, Debug)]
pub struct Stretch<'a> {
    pub trace: &'a Trace,
    /// Start (ns since the trace's first start); nothing happens at negative times.
    pub from_ns: i64,
    /// End (ns since the trace's first start), may exceed the trace.
    pub to_ns: i64,
}

/// Writes the timeline of one or several windows on one scale; the format follows from the extension (svg,
/// png). Returns an error if the extension is unknown or writing fails, and the errors of
/// [`timeline_figure`].
pub fn timeline(stretches: &[Stretch], path: &Path) -> Result<()> {
    check_format(path)?;
    timeline_figure(stretches, &Options::default())?.save(path)
}

/// Draws windows of traces, one below the other on one scale. A single window uses the figure's title and
/// note, several have their own headings. Returns an error if no window overlaps its trace, a trace's
/// provenance is no evidence, or the page is too small for the ranks.
pub fn timeline_figure(stretches: &[Stretch], options: &Options) -> Result<Figure> {
    check(stretches)?;
    let traces = || stretches.iter().map(|stretch| stretch.trace);
    traces().try_for_each(|trace| trace.meta.provenance.require_evidence("a trace"))?;
    let most = (MOST_RANKS / stretches.len().max(1)).max(1);
    let length = stretches.iter().map(|s| s.to_ns.saturating_sub(s.from_ns)).max().unwrap_or(1);
    let (unit_ns, unit) = lanes::unit(length);
    let start = |stretch: &Stretch| format!("{} {unit}", number(stretch.from_ns as f64 / unit_ns));
    let mixed = traces().any(|trace| trace.meta.provenance != stretches[0].trace.meta.provenance);
    let mut windows = Vec::new();
    for stretch in stretches {
        let (window, note) = window(stretch, most);
        let title = match mixed {
            true => format!("{} ({})", title(stretch.trace), stretch.trace.meta.provenance),
            false => title(stretch.trace),
        };
        windows.push(Window {
            title,
            notes: vec![format!("from {}; {note}", start(stretch)), note],
            ..window
        });
    }
    let titles: Vec<&str> = windows.iter().map(|window| window.title.as_str()).collect();
    let sheet = Sheet {
        options,
        provenance: &ProvenanceSummary::of_traces(traces()),
        title: titles.join(" over "),
        note: match &windows[..] {
            [window] => window.notes[1].clone(),
            _ => "same time scale; each window has its own start".into(),
        },
        remark: String::new(),
        legend: lanes::legend(),
    };
    let name = match &mut windows[..] {
        [window] => {
            (window.title, window.notes) = (String::new(), Vec::new());
            format!("time ({unit}), starting {} after the first operation", start(&stretches[0]))
        }
        _ => format!("time ({unit}) from the start of each window"),
    };
    lanes::figure(&sheet, &windows, [name, format!("time ({unit})")])
}

/// Window without a title, with identical ranks drawn once, and a note on its overlap and ranks.
fn window<'a>(stretch: &Stretch<'a>, most_ranks: usize) -> (Window<'a>, String) {
    let Stretch { trace, from_ns, to_ns } = *stretch;
    let selection = Selection { from_ns: Some(from_ns), to_ns: Some(to_ns), ..Selection::default() };
    let report = overlap(trace, &selection);
    let origin = origin_ns(trace);
    let ends = (origin.saturating_add(from_ns), origin.saturating_add(to_ns));
    let all: Vec<u32> = report.ranks.iter().filter_map(|rank| rank.rank).collect();
    let rows = lanes::rows(trace, ends);
    let mut ranks = lanes::classes(&rows, &all);
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
    let ranks = ranks.iter().map(|ranks| (ranks[0], lanes::names(ranks))).collect();
    let (title, right, notes) = (String::new(), String::new(), Vec::new());
    (Window { trace, ends, rows, ranks, title, right, notes, mark_ns: None }, note)
}

fn check(stretches: &[Stretch]) -> Result<()> {
    let last = |trace: &Trace| {
        let end = trace.spans.iter().map(|span| span.end_ns).max();
        end.map_or(0, |end| end.saturating_sub(origin_ns(trace)))
    };
    let seen = |s: &Stretch| s.from_ns < s.to_ns && s.from_ns < last(s.trace) && s.to_ns > 0;
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
        (None, None) => "imported trace".into(),
    }
}
