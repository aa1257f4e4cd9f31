//! Timeline figure: lanes of each rank in a window of one or several traces, with exposed communication
//! marked below the comm lane ([`trace::overlap::overlap()`]).

use std::path::Path;

use super::axis::{self, Axis, number};
use super::figure::{Figure, check_format};
use super::lanes::{self, Drawing, Heights};
use super::layout::{self, Sheet};
use super::options::Options;
use super::provenance::ProvenanceSummary;
use super::scene::{Area, Text};
use super::style::{GREY, Sizes};
use super::too_narrow;
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

struct Part<'a> {
    stretch: Stretch<'a>,
    origin: i64,
    /// Groups of identical ranks; each group is drawn once.
    ranks: Vec<Vec<u32>>,
    rows: lanes::Rows<'a>,
    note: String,
}

impl<'a> Part<'a> {
    fn new(stretch: Stretch<'a>, most_ranks: usize) -> Self {
        let Stretch { trace, from_ns, to_ns } = stretch;
        let selection = Selection { from_ns: Some(from_ns), to_ns: Some(to_ns), ..Selection::default() };
        let report = overlap(trace, &selection);
        let origin = origin_ns(trace);
        let window = (origin.saturating_add(from_ns), origin.saturating_add(to_ns));
        let all: Vec<u32> = report.ranks.iter().filter_map(|rank| rank.rank).collect();
        let rows = lanes::rows(trace, window);
        let mut ranks = lanes::classes(&rows, &all);
        let folded = ranks.len() < all.len();
        ranks.truncate(most_ranks);
        let mut note = match report.all.overlap_pct {
            Some(pct) => format!("overlap {pct:.1}% in this window"),
            None => "no communication in this window".into(),
        };
        let shown = ranks.iter().map(Vec::len).sum::<usize>();
        if folded {
            note.push_str("; ranks with identical timelines are drawn once");
        }
        if shown < all.len() {
            note.push_str(&format!("; {shown} of {} ranks", all.len()));
        }
        Self { stretch, origin, ranks, rows, note }
    }

    /// Start and end in absolute ns.
    fn window(&self) -> (i64, i64) {
        let own = |ns: i64| self.origin.saturating_add(ns);
        (own(self.stretch.from_ns), own(self.stretch.to_ns))
    }
}

/// Draws windows of traces, one below the other on one scale. A single window uses the figure's title and
/// note, several have their own headings. Returns an error if no window overlaps its trace, a trace's
/// provenance is no evidence, or the page is too small for the ranks.
pub fn timeline_figure(stretches: &[Stretch], options: &Options) -> Result<Figure> {
    check(stretches)?;
    stretches
        .iter()
        .try_for_each(|stretch| stretch.trace.meta.provenance.require_evidence("a trace"))?;
    let most = (MOST_RANKS / stretches.len().max(1)).max(1);
    let parts: Vec<Part> = stretches.iter().map(|stretch| Part::new(*stretch, most)).collect();
    let alone = parts.len() == 1;
    let provenance = ProvenanceSummary::of_traces(stretches.iter().map(|stretch| stretch.trace));
    let sizes = Sizes::new(options.font);
    let count = parts.iter().map(|part| part.ranks.len()).sum::<usize>().max(1) as f64;
    let under = axis::under(&sizes) + 1.4 * sizes.label;
    let gap = 0.9 * sizes.tick;
    let head = if alone { 0.0 } else { 2.9 * Sizes::line_of(sizes.tick) };
    let heads = head * parts.len() as f64;
    let height = count * (Heights::new(&sizes).rank() + gap) + heads + under;
    let of = |part: &Part| part.stretch.trace.meta.provenance;
    let mixed = parts.iter().any(|part| of(part) != of(&parts[0]));
    let told = |part: &Part| {
        let title = title(part.stretch.trace);
        if mixed { format!("{title} ({})", of(part)) } else { title }
    };
    let titles: Vec<String> = parts.iter().map(told).collect();
    let sheet = Sheet {
        options,
        provenance: &provenance,
        title: titles.join(" over "),
        note: match &parts[..] {
            [part] => part.note.clone(),
            _ => "same time scale; each window has its own start".into(),
        },
        remark: String::new(),
        legend: lanes::legend(),
    };
    let least = count * (lanes::least(&sizes) + gap) + heads + under;
    let (mut scene, all, sizes) = sheet.lay(height, (120.0, least))?;
    let names = |part: &Part| -> Vec<([String; 2], f64)> {
        part.ranks.iter().map(|ranks| lanes::names(ranks, &sizes)).collect()
    };
    let widest = parts.iter().flat_map(names).map(|(_, width)| width).fold(0.0, f64::max);
    let area = Area {
        left: all.left + widest + 0.9 * sizes.tick,
        right: all.right - 1.2 * sizes.tick,
        top: all.top,
        bottom: all.bottom - under,
    };
    if area.width() < 60.0 {
        return Err(too_narrow(options));
    }
    let length = stretches.iter().map(|s| s.to_ns.saturating_sub(s.from_ns)).max().unwrap_or(1);
    let (unit_ns, unit) = lanes::unit(length);
    let time = Axis::exact(0.0, length as f64 / unit_ns).over(area.left, area.right);
    let start = |part: &Part| number(part.stretch.from_ns as f64 / unit_ns);
    let name = match &parts[..] {
        [part] => format!("time ({unit}), starting {} {unit} after the first operation", start(part)),
        _ => format!("time ({unit}) from the start of each window"),
    };
    let named = [name.as_str(), &format!("time ({unit})")];
    layout::name_below(&mut scene, all, area.center().0, &named, &sizes);

    let block = (area.height() - heads) / count;
    let heights = Heights::filling(block - gap);
    let mut top = area.top;
    for (part, title) in parts.iter().zip(titles) {
        if !alone {
            let line = |at: f64| top + head - at * Sizes::line_of(sizes.tick);
            scene.text(Text::new((area.left, line(1.6)), title, sizes.tick).bold());
            let said = format!("from {} {unit}; {}", start(part), part.note);
            scene.text(Text::new((area.left, line(0.6)), said, sizes.note).color(GREY));
        }
        let height = block * part.ranks.len().max(1) as f64;
        let own = Area { top: top + head, bottom: top + head + height, ..area };
        axis::grid(&mut scene, &time, &own, &sizes);
        let window = part.window();
        let x = |ns: i64| time.place((ns - window.0) as f64 / unit_ns);
        let (trace, origin) = (part.stretch.trace, part.origin);
        let drawing = Drawing { trace, origin, window, x, named: true };
        for (index, (ranks, (names, _))) in part.ranks.iter().zip(names(part)).enumerate() {
            let top = own.top + index as f64 * block + gap / 2.0;
            drawing.rank(&mut scene, &part.rows, (ranks[0], &names), (area.left, top), &heights, &sizes);
        }
        layout::frame(&mut scene, own, &sizes);
        top = own.bottom;
    }
    axis::numbers(&mut scene, &time, &area, &sizes);
    Ok(Figure::new(scene, &provenance, options))
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
