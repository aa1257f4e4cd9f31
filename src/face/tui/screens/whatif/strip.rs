//! Step of the standard architecture above one of the chosen architecture, on one scale: compute over
//! communication, exposed parts hatched.

use crate::face::tui::prelude::*;
use crate::face::tui::screens::timeline::state::cover::Cover;
use crate::face::tui::widgets::shade::{self, Shares};
use plan::Lane;
use study::whatif::Strip;

const LABELS: u16 = 9;

/// Draws the strips under a title, two rows each.
pub fn draw(buf: &mut Buffer, area: Rect, theme: Theme, strips: &[Strip], whole_step: bool) {
    let window = |strip: &Strip| if whole_step { (0, strip.length_ns) } else { strip.layer_ns };
    // common scale: the longer one fills the width
    let length = strips.iter().map(|s| window(s).1 - window(s).0).max().unwrap_or(1).max(1);
    let what = match (strips.first(), whole_step) {
        (Some(strip), false) => {
            format!("layers {}-{}, {}", strip.layer, strip.layer + 1, ns(length))
        }
        _ => format!("the middle step, {}", ns(length)),
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
        let cover = |mut intervals: Vec<(i64, i64)>| {
            intervals.sort_unstable();
            Cover::of(intervals.into_iter())
        };
        let spans = |lane: Lane| {
            let of_lane = strip.spans.iter().filter(|span| span.lane == lane);
            cover(of_lane.map(|span| (span.start_ns, span.end_ns)).collect())
        };
        let (compute, comm) = (spans(Lane::Compute), spans(Lane::Comm));
        let exposed = cover(strip.exposed.clone());
        let end = window(strip).1;
        for column in 0..columns {
            let (from, to) = bounds(column);
            if from >= end {
                break;
            }
            let x = area.x + LABELS + column;
            let share = |cover: &Cover| cover.between(from, to) as f64 / (to - from) as f64;
            let shares = Shares {
                compute: share(&compute),
                comm: share(&comm),
                exposed: share(&exposed),
                ..Shares::default()
            };
            let block = shade::BELOW[shade::eighths(shares.compute)];
            put(buf, area, x, y, block, theme.style(Role::Series(0)));
            let (glyph, role) = shade::comm(shares).unwrap_or((" ", Role::Text));
            put(buf, area, x, y + 1, glyph, theme.style(role));
        }
    }
}
