//! Layout of the Pareto screen.
//!
//! ```text
//! | most tok/s/GPU: ladder 8x64 p2p-on, 278 ...         |   best point, or within a typed limit
//! | [simulated] Ladder is up to 1.4x faster than ...    |   who wins at the same TP and batch
//! | group 1 of 2: llama-3-70b f16, prompt 1024, ...     |   group, filter
//! | P2P on, off: ●○ standard  ◆◇ ladder  ...            |   legend, as many rows as needed
//! | tokens/s/GPU                                        |
//! | 200 ┤            ⡠⠔⠊●8x16                           |   plot
//! |     └┬─────────┬──────────┬──────── latency (ms)    |
//! | best tokens/s/GPU within 30 ms                      |   table of all series, if there is room
//! | ◆ ladder p2p-on          278 8x64  at 29.8 ms       |
//! | [simulated] ladder tp8 b16 ...                      |   selected point, area gained
//! ```

use std::collections::BTreeSet;

use super::draw::ELSEWHERE;
use super::info::has_headline;
use super::state::series::SeriesEntry;
use super::state::{Pareto, PlotExtent, series};
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::scatter::Plot;
use base::statistics::distinct;
use study::plot::ValueAxis;
use table::P2p;

/// Minimum width to show the area gained in one row instead of two.
const WIDE: u16 = 150;

/// Minimum plot rows when the table is shown.
const PLOT: u16 = 9;

/// Plot rows of its axes and title.
const AXES: u16 = 3;

/// Minimum window height to show the table by default.
const ROOM: u16 = 34;

/// Height below which the text around the plot is one row each, without the name of the only group.
const LOW: u16 = 18;

/// Height below which the selected point's text has three rows.
const HIGH: u16 = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParetoAreas {
    /// Best point within the limit, or of all points.
    pub answer: Rect,
    pub headline: Rect,
    /// Group and filter; may be empty.
    pub group: Rect,
    pub legend: Rect,
    pub plot: Rect,
    /// Best points of all series within the limit; empty if it does not fit.
    pub table: Rect,
    pub info: Rect,
}

pub fn areas(body: Rect, pareto: &Pareto) -> ParetoAreas {
    let low = body.height < LOW;
    let filtered = pareto.filter.typing || pareto.filter.narrows();
    let has_answer = pareto.bound().is_some() || !pareto.best_within.is_empty();
    let (answer, rest) = cut_top(body, u16::from(has_answer));
    // a low window names the only group and the scope if some runs are hidden
    let only = low && pareto.groups.len() < 2 && !filtered && has_headline(pareto);
    let (headline, rest) = cut_top(rest, u16::from(has_headline(pareto)));
    let (group, rest) = cut_top(rest, u16::from(!only));
    let rows = legend(pareto, body.width).len() as u16;
    let (legend, rest) = cut_top(rest, rows.min((body.height / 3).saturating_sub(1)));
    let info = match body.width {
        _ if low => 1,
        ..WIDE if body.height >= HIGH => 4,
        _ => 3,
    };
    let (rest, info) = cut_bottom(rest, info);
    let rows = table_rows(pareto);
    let wanted = pareto.table.unwrap_or(body.height >= ROOM) && rows > 0;
    // by default the lines of all series have room beside it, too
    let lines = if pareto.table.is_some() { 0 } else { pareto.lines.len() as u16 };
    let plot = PLOT.max(AXES + (3 * lines).div_ceil(2));
    let has_room = rest.height > plot + rows;
    let (plot, table) = cut_bottom(rest, if wanted && has_room { rows + 1 } else { 0 });
    ParetoAreas { answer, headline, group, legend, plot, table, info }
}

/// Table rows below the header: visible series with points, and the note on ratios; none if no point is within the limit.
fn table_rows(pareto: &Pareto) -> u16 {
    if pareto.bound().is_some() && pareto.limits.iter().all(|at| at.best.is_none()) {
        return 0;
    }
    match pareto.lines.iter().filter(|line| !line.places.is_empty()).count() {
        0 => 0,
        series => series as u16 + 1,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegendItem {
    pub text: String,
    /// Look of its series; `None` for other entries.
    pub look: Option<usize>,
    pub hidden: bool,
}

/// Legend, wrapped into rows of at most `width` columns.
pub fn legend(pareto: &Pareto, width: u16) -> Vec<Vec<LegendItem>> {
    let mut pieces: Vec<LegendItem> = Vec::new();
    let p2p = pareto.p2p();
    let shown = |entry: &&SeriesEntry| p2p.is_none_or(|p2p| p2p == entry.series.p2p);
    let entries: Vec<&SeriesEntry> = pareto.entries.iter().filter(shown).collect();
    let both = [P2p::On, P2p::Off].map(|p2p| entries.iter().any(|e| e.series.p2p == p2p));
    let is_other_hidden = entries.len() < pareto.entries.len();
    let (key, [shown, next]) = (&pareto.p2p_key, if both[0] { ["on", "off"] } else { ["off", "both"] });
    let p2p = match both {
        [true, true] if width < 80 => " P2P on/off ".to_owned(),
        [true, true] => " P2P on, off: ".to_owned(),
        [false, false] => " ".to_owned(),
        _ if !is_other_hidden => format!(" P2P {shown}: "),
        _ if width < 80 => format!(" P2P {shown}, {key}: {next} "),
        _ => format!(" P2P {shown} only ({key}: {next}): "),
    };
    let gap = if width < 80 { " " } else { "  " };
    pieces.push(LegendItem { text: p2p, look: None, hidden: false });
    // one entry per architecture: glyphs for P2P on and off, then the name
    for same in entries.chunk_by(|a, b| a.series.architecture == b.series.architecture) {
        let glyph = |e: &&SeriesEntry| if e.hidden { "✕".into() } else { e.mark() };
        let glyphs: String = same.iter().map(glyph).collect();
        let settings = match same.len() {
            3.. if width >= 80 => format!(" ({} settings)", same.len()),
            _ => String::new(),
        };
        pieces.push(LegendItem {
            text: format!("{glyphs} {}{settings}{gap}", same[0].series.architecture),
            look: Some(same[0].look),
            hidden: same.iter().all(|e| e.hidden),
        });
    }
    let mut sources: Vec<&str> = pareto.others().map(|(other, _)| other.source.as_str()).collect();
    sources.dedup();
    for source in sources {
        let of_source = || pareto.others().filter(|(other, _)| other.source == source);
        let mut letters: Vec<String> =
            of_source().map(|(o, _)| series::letter(&o.architecture, o.p2p)).collect();
        letters.sort();
        letters.dedup();
        let settings = if of_source().any(|(o, _)| o.p2p.is_some()) { ", capitals: P2P on" } else { "" };
        let text = match &letters[..] {
            [letter] => format!("{letter} {source}{settings}  "),
            _ => format!("{source}: initials{settings}, {ELSEWHERE} other architectures  "),
        };
        pieces.push(LegendItem { text, look: None, hidden: false });
    }
    let mut rows: Vec<Vec<LegendItem>> = vec![Vec::new()];
    let mut used = 0;
    for piece in pieces {
        let wide = piece.text.width() as u16;
        if used + piece.text.trim_end().width() as u16 > width && used > 0 {
            rows.push(vec![LegendItem { text: " ".into(), look: None, hidden: false }]);
            used = 1;
        }
        used += wide;
        if let Some(row) = rows.last_mut() {
            row.push(piece);
        }
    }
    rows
}

/// Maximum number of small marks that the legend shows as examples.
const MOST_SMALL: usize = 3;

/// Meanings of the marks that the legend's entries leave open, in descending length; empty if no such mark is drawn.
pub fn meanings(pareto: &Pareto, theme: Theme) -> Vec<String> {
    let dominated = pareto.looks.iter().filter(|(_, is_on_frontier)| !is_on_frontier);
    let dominated: BTreeSet<usize> = dominated.map(|(entry, _)| *entry).collect();
    let dominated = dominated.into_iter().filter_map(|entry| pareto.entries.get(entry));
    let small = distinct(dominated.map(|entry| series::glyph(entry.look, entry.series.p2p, true)));
    let suffix = pareto.entries.iter().map(|entry| entry.suffix).find(|suffix| !suffix.is_empty());
    let small = small.into_iter().take(MOST_SMALL).collect::<String>();
    let has_small = !small.is_empty();
    // without colours, marks along the lines distinguish them
    let is = if theme.tells_series() { "dominated" } else { "dominated, or along a line" };
    let meaning = |small: String, setting: &str| {
        let small = has_small.then_some(small);
        let setting = suffix.map(|suffix| format!("{suffix} {setting}"));
        small.into_iter().chain(setting).collect::<Vec<_>>().join("; ")
    };
    let named = suffix.and_then(|suffix| series::setting_of(suffix, &pareto.entries));
    let setting = named.as_deref().unwrap_or("another setting");
    let all = [
        meaning(format!("{small} small: {is}"), setting),
        meaning(format!("{small} {is}"), setting),
        meaning(format!("{small} {is}"), "setting"),
    ];
    all.into_iter().filter(|text| !text.is_empty()).collect()
}

/// The longest of [`meanings`] behind the last row of a legend of this width, and its column there.
pub fn meaning(pareto: &Pareto, theme: Theme, width: u16) -> Option<(u16, String)> {
    let rows = legend(pareto, width);
    let used = rows.last()?.iter().map(|piece| piece.text.width() as u16).sum::<u16>();
    let texts = meanings(pareto, theme).into_iter();
    texts.map(|text| (used, text)).find(|(used, text)| used + text.width() as u16 <= width)
}

pub fn plot(pareto: &Pareto, body: Rect) -> Plot {
    let PlotExtent { x, y } = pareto.extent;
    let (log_x, log_y) = pareto.logarithmic();
    let plot = Plot::new(areas(body, pareto).plot, std::iter::empty());
    let (x, y) = match pareto.zoom.window {
        Some(window) => (ValueAxis::exact(window.x, log_x), ValueAxis::exact(window.y, log_y)),
        None => (ValueAxis::around(x, log_x), ValueAxis::around(y, log_y)),
    };
    Plot { x, y, divided: pareto.unit().1, ..plot }
}
