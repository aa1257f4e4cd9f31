//! Plots of screen 7: the frontier over batch sizes, and the middle step of two architectures as a strip of two lanes.

use std::sync::Arc;

use super::Act;
use super::layout::{FRONTIER, fits_without_strip, rows_for_frontier};
use super::state::WhatIf;
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::scatter::{Plot, mark};
use crate::face::tui::widgets::shade::{self, Shares};
use plan::{Architecture, Lane};
use study::analysis::XAxis;
use study::plot::look_numbers;
use study::whatif::{FrontierPoint, StepStrip, WhatIfAnswer};
use table::P2p;
use trace::overlap::intervals::{Coverage, union};

pub fn frontier(
    buf: &mut Buffer,
    area: Rect,
    whatif: &WhatIf,
    answer: &Arc<WhatIfAnswer>,
    cx: &Context,
) {
    if area.is_empty() {
        return;
    }
    let theme = cx.theme;
    let at = |p: &FrontierPoint| {
        (if whatif.by_tpot { p.tpot_ms } else { p.completion_ms }, p.tokens_per_s_per_gpu)
    };
    let points: Vec<(f64, f64)> =
        answer.frontiers.iter().flat_map(|frontier| frontier.points.iter().map(at)).collect();
    let missing = match (whatif.traced.is_some(), area.height) {
        (true, _) => Some("a trace has one batch size: no frontier".to_owned()),
        (false, ..FRONTIER) => no_room(whatif, cx),
        (false, _) => None,
    };
    if let Some(missing) = missing {
        put(buf, area, area.x, area.y, &missing, theme.style(Role::Dim));
        return;
    }
    if points.is_empty() {
        let said = match answer.cannot() {
            Some(_) => "no frontier: no architecture can run",
            None => "no batch fits in memory: no frontier",
        };
        put(buf, area, area.x, area.y, said, theme.style(Role::Dim));
        return;
    }
    let names = answer.frontiers.iter().map(|of| of.architecture.to_string().width() + 3).sum::<usize>();
    let titles = ["over batch ".to_owned(), "batch ".to_owned()];
    let title = first_fitting(&titles, area.width.saturating_sub(names as u16));
    let mut x = put(buf, area, area.x, area.y, title, theme.style(Role::Title));
    // the chosen architecture is drawn over the others, the limit below them
    let order = |architecture: &Architecture| match architecture {
        Architecture::UpperBound => 0,
        other if *other != answer.spec.architecture => 1,
        _ => 2,
    };
    // use each architecture's usual mark and colour
    let looks = look_numbers(answer.frontiers.iter().map(|frontier| &frontier.architecture));
    let look = |architecture| looks.get(architecture).copied().unwrap_or(0);
    let glyph = |architecture| mark(look(architecture), answer.spec.p2p == P2p::Off, false);
    for frontier in &answer.frontiers {
        let entry = format!("{} {} ", glyph(&frontier.architecture), frontier.architecture);
        let style = theme.style(Role::Architecture(look(&frontier.architecture)));
        x = put(buf, area, x, area.y, &entry, style);
    }
    let (_, below) = cut_top(area, 1);
    let plot = Plot::new(below, points.iter().copied());
    let x = if whatif.by_tpot { XAxis::Tpot } else { XAxis::Completion };
    let (unit, by) = x.unit_for(points.iter().map(|point| point.0).fold(0.0, f64::max));
    let plot = Plot { divided: by, ..plot };
    let name = format!("{} {unit}", if whatif.by_tpot { "TPOT" } else { "completion" });
    plot.draw_axes(buf, theme, &name, "tok/s/GPU");
    let mut frontiers: Vec<_> = answer.frontiers.iter().collect();
    frontiers.sort_by_key(|frontier| order(&frontier.architecture));
    for frontier in frontiers {
        let index = order(&frontier.architecture);
        let style = theme.style(Role::Architecture(look(&frontier.architecture)));
        let line: Vec<(f64, f64)> = frontier.points.iter().map(at).collect();
        plot.draw_series(buf, theme, look(&frontier.architecture), &line);
        for point in &frontier.points {
            let (x, y) = plot.cell(at(point));
            let own = index == 2 && point.batch == answer.spec.batch;
            let style = if own { style.add_modifier(Modifier::REVERSED) } else { style };
            put(buf, area, x, y, glyph(&frontier.architecture), style);
        }
    }
}

/// Reason why the frontier is not drawn, and what makes room for it; `None` if it has room.
pub fn no_room(whatif: &WhatIf, cx: &Context) -> Option<String> {
    let rows = rows_for_frontier(cx.body(), whatif)?;
    let remedy = match fits_without_strip(cx.body(), whatif) {
        true => format!("; {} hides the strip", cx.key::<WhatIf>(Act::Strip)),
        false => format!(": it needs {} rows", cx.size.1 + rows),
    };
    Some(format!("no room for the frontier{remedy}"))
}

const LABELS: u16 = 9;

/// Draws the strips under a title, two rows each.
pub fn draw_strip(
    buf: &mut Buffer,
    area: Rect,
    theme: Theme,
    (label, strips): (&str, &[StepStrip]),
    whole_step: bool,
) {
    let window = |strip: &StepStrip| if whole_step { (0, strip.length_ns) } else { strip.layer_ns };
    // common scale: the longer one fills the width
    let length = strips.iter().map(|s| window(s).1 - window(s).0).max().unwrap_or(1).max(1);
    let what = match (strips.first(), whole_step) {
        (Some(strip), false) => {
            format!("{label}layers {}-{}, {}", strip.layer, strip.layer + 1, ns(length))
        }
        _ if label.is_empty() => format!("the middle decode step, {}", ns(length)),
        _ => format!("{label}{}", ns(length)),
    };
    let x = put(buf, area, area.x, area.y, &what, theme.style(Role::Title));
    // the compute lane is labelled already, so a narrow window drops its legend entry
    let narrow = area.width < 60;
    let legend = [
        ("▂█", "compute", Role::Series(0)),
        (if narrow { "▓" } else { "▒▓" }, "hidden", Role::Comm),
        (if narrow { "╱" } else { "╌▖▚▜╱" }, "exposed", Role::Exposed),
    ];
    let mut x = x + 1;
    for (glyph, words, role) in legend.into_iter().skip(usize::from(narrow)) {
        if usize::from(area.right().saturating_sub(x)) < glyph.width() + 1 + words.width() {
            break;
        }
        x = put(buf, area, x, area.y, glyph, theme.style(role));
        x = put(buf, area, x + 1, area.y, words, theme.style(Role::Dim)) + 1;
    }
    let columns = area.width.saturating_sub(LABELS);
    if columns == 0 {
        return;
    }
    for (index, strip) in strips.iter().enumerate() {
        let y = area.y + 1 + 2 * index as u16;
        let name = cut(&strip.architecture.to_string(), LABELS - 1);
        put(buf, area, area.x, y, &name, theme.style(Role::Text));
        put(buf, area, area.x, y + 1, "  comm", theme.style(Role::Dim));
        let from = window(strip).0;
        let bounds = |column: u16| {
            let edge = |c: u16| from + (i128::from(length) * i128::from(c) / i128::from(columns)) as i64;
            (edge(column), edge(column + 1).max(edge(column) + 1))
        };
        let cover = |intervals: Vec<(i64, i64)>| Coverage::new(union(intervals));
        let spans = |lane: Lane| {
            let of_lane = strip.spans.iter().filter(|span| span.lane == lane);
            cover(of_lane.map(|span| (span.start_ns, span.end_ns)).collect())
        };
        let (compute, comm) = (spans(Lane::Compute), spans(Lane::Comm));
        let exposed = cover(strip.exposed.clone());
        let end = window(strip).1;
        let columns = (0..columns).map(bounds).take_while(|(from, _)| *from < end);
        let shares = columns.map(|(from, to)| {
            let share = |cover: &Coverage| cover.within((from, to)) as f64 / (to - from) as f64;
            Shares {
                compute: share(&compute),
                comm: share(&comm),
                exposed: share(&exposed),
                ..Shares::default()
            }
        });
        shade::draw_step(buf, area, (area.x + LABELS, y), 1, shares, " ", theme);
    }
}
