//! Layout of screen 7: sliders on the left; TPOT of every architecture, a strip of two steps and the frontier on the
//! right; notes and kept variants below.

use super::state::{StripView, WhatIf};
use crate::face::tui::prelude::*;
use study::whatif::Slider;

#[derive(Clone, Copy, Debug)]
pub struct WhatIfAreas {
    pub header: Rect,
    /// Sentence on the fastest architecture.
    pub fastest: Rect,
    /// Sentence on how far the numbers can be trusted.
    pub trust: Rect,
    pub sliders: Rect,
    pub bars: Rect,
    pub strip: Rect,
    pub frontier: Rect,
    /// Break-even where the frontier has no room, below the reason; empty if the notes have it.
    pub break_even: Rect,
    /// Break-even and the help of the selected slider, under the sliders or at the bottom.
    pub notes: Rect,
    /// Kept variants, or the key that keeps one.
    pub pins: Rect,
}

impl WhatIfAreas {
    /// True if kept variants have a table.
    pub fn has_pins(&self) -> bool {
        self.pins.height > 1
    }
}

/// Minimum rows under the sliders to place the notes there.
pub const NOTES: u16 = 6;

/// Rows of the strip: a title, and two lanes of two architectures.
const STRIP: u16 = 5;

/// Least rows of a frontier with axes.
pub const FRONTIER: u16 = 5;

/// Height below which sentences take the rows of the strip and of the frontier: both would be cut.
const LOW: u16 = 18;

/// Lays out a body for this many architectures, sliders and kept variants, with or without a strip.
pub fn areas(
    body: Rect,
    strip: bool,
    (architectures, sliders): (usize, usize),
    kept: usize,
) -> WhatIfAreas {
    let (header, rest) = cut_top(body, 1);
    let (fastest, rest) = cut_top(rest, 1);
    let (trust, rest) = cut_top(rest, 1);
    let large = body.height >= 34;
    // in a small window they scroll; a trace has fewer, but the notes stay in place
    let all = sliders.max(Slider::DENSE) as u16;
    // a large window has rows of its own for kept variants
    let pins = match (large, kept) {
        (true, 0) => 1,
        (true, kept) => (kept as u16 + 1).max(3),
        (false, _) => 0,
    };
    let beside = rest.height.saturating_sub(pins + all) >= NOTES;
    let below = match (beside, body.height) {
        (true, _) => 0,
        // the sliders up to P2P stay
        (false, ..LOW) => rest.height.saturating_sub(architectures.max(8) as u16 + 1).max(2),
        // the sliders of a trace leave room for whole sentences
        (false, _) => rest.height.saturating_sub(sliders as u16).clamp(1, 4),
    };
    let (rest, below) = cut_bottom(rest, below);
    let (rest, pins) = cut_bottom(rest, pins);
    let (left, gap) = match body.width {
        110.. => (50, 1),
        76.. => (36, 1),
        _ => (25, 1),
    };
    let (left, right) = cut_left(rest, left);
    let (_, right) = cut_left(right, gap);
    let (bars, right) = cut_top(right, architectures as u16 + if large { 2 } else { 1 });
    let (right, _) = cut_bottom(right, if body.height < LOW { right.height } else { 0 });
    let (strip, right) = cut_top(right, if strip { STRIP } else { 0 });
    let (_, frontier) = if right.height > 12 { cut_top(right, 1) } else { cut_top(right, 0) };
    // in a small window they take the first rows of the frontier
    let rows = if large || kept == 0 || frontier.height < 2 { 0 } else { kept as u16 + 1 };
    let (of_frontier, frontier) = cut_top(frontier, rows);
    let pins = if rows > 0 { of_frontier } else { pins };
    let (frontier, break_even) = match frontier.height {
        3..FRONTIER if !beside && below.height <= 2 => cut_top(frontier, 1),
        _ => (frontier, Rect::ZERO),
    };
    // a row for the number of sliders out of sight, if any
    let (_, left) = cut_top(left, u16::from(sliders as u16 > left.height));
    let (sliders, under) = cut_top(left, all);
    let notes = if beside { cut_top(under, 1).1 } else { below };
    WhatIfAreas { header, fastest, trust, sliders, bars, strip, frontier, break_even, notes, pins }
}

pub fn tracks(sliders: Rect) -> (u16, u16) {
    let columns = match sliders.width {
        48.. => 14,
        36.. => 7,
        _ => 0,
    };
    (sliders.x + 13 + u16::from(columns > 0), columns)
}

pub fn areas_of(body: Rect, whatif: &WhatIf) -> WhatIfAreas {
    areas_with(body, whatif, whatif.strip != StripView::Hidden)
}

fn areas_with(body: Rect, whatif: &WhatIf, strip: bool) -> WhatIfAreas {
    let architectures = whatif.answer.as_ref().map_or(0, |answer| answer.rows.len());
    let mut areas = areas(body, strip, (architectures, whatif.sliders().len()), whatif.pins.len());
    // a trace has no frontier: its notes take the larger room
    if whatif.traced.is_some() && areas.frontier.height > areas.notes.height.max(NOTES) {
        (areas.notes, areas.frontier) = (areas.frontier, Rect::ZERO);
    }
    areas
}

/// Rows that the window lacks for the strip; `None` if it has room.
pub fn rows_for_strip(body: Rect, whatif: &WhatIf) -> Option<u16> {
    missing_rows(body, |body| areas_with(body, whatif, true).strip.height > 0)
}

/// Rows that the window lacks for the frontier; `None` if it has room.
pub fn rows_for_frontier(body: Rect, whatif: &WhatIf) -> Option<u16> {
    missing_rows(body, |body| areas_of(body, whatif).frontier.height >= FRONTIER)
}

/// True if the frontier has room once the strip is hidden.
pub fn fits_without_strip(body: Rect, whatif: &WhatIf) -> bool {
    whatif.strip != StripView::Hidden && areas_with(body, whatif, false).frontier.height >= FRONTIER
}

fn missing_rows(body: Rect, has_room: impl Fn(Rect) -> bool) -> Option<u16> {
    let rows =
        (0..100).find(|more| has_room(Rect { height: body.height.saturating_add(*more), ..body }));
    rows.filter(|rows| *rows > 0)
}
