//! Layout of screen 7: sliders on the left; TPOT of every architecture, a strip of two steps and the frontier on the
//! right; kept variants and notes below.

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
    /// True if each kept variant is a line of text, because a table's title row would displace one.
    pub has_pins_in_words: bool,
}

impl WhatIfAreas {
    /// True if this many kept variants have a row each.
    pub fn has_pins(&self, kept: usize) -> bool {
        usize::from(self.pins.height) >= kept + usize::from(!self.has_pins_in_words)
    }
}

/// Minimum rows under the sliders to place the notes there.
pub const NOTES: u16 = 6;

/// Least width of the sliders with long tracks.
pub const WIDE_SLIDERS: u16 = 48;

/// Rows of the strip: a title, and two lanes of two architectures.
const STRIP: u16 = 5;

/// Least rows of a frontier with axes.
pub const FRONTIER: u16 = 5;

/// Rows of an architecture with a thick bar and a gap below it.
pub const THICK: u16 = 3;

/// Least width of a trace's table with bars.
const BARS_OF_TRACE: u16 = 100;

/// Rows that the sentences on a trace need below thick bars.
const SENTENCES: u16 = 10;

/// Height from which kept variants have rows of their own.
const LARGE: u16 = 34;

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
    let large = body.height >= LARGE;
    // in a small window they scroll
    let all = sliders.max(Slider::DENSE) as u16;
    let is_low = body.height < LOW;
    let (kept, bars) = (kept as u16, architectures as u16 + 1);
    // without kept variants, the sliders up to P2P stay
    let low = rest.height.saturating_sub(if kept > 0 { bars } else { bars.max(9) }).max(2);
    // the strip stays, and a row of sentences
    let others = bars + if strip { STRIP } else { 0 } + 1;
    let pins = match (large, kept) {
        (true, 0) => 1,
        (true, kept) => (kept + 1).max(3),
        (false, 0) => 0,
        // in place of the sentences
        (false, kept) if is_low => kept.min(low),
        (false, kept) => (kept + 1).min(rest.height.saturating_sub(others).max(2)),
    };
    // kept variants that would take rows of sliders take the frontier's
    let has_kept = kept > 0 && !large && !is_low && body.width >= 76;
    let takes_sliders = rest.height <= pins + sliders as u16;
    let is_on_right = has_kept && takes_sliders && rest.height >= others + 2;
    let (pins, right_pins) = if is_on_right { (0, kept + 1) } else { (pins, 0) };
    let beside = rest.height.saturating_sub(pins + all) >= NOTES;
    let below = match (beside, is_low) {
        (true, _) => 0,
        (false, true) => low - pins,
        // the sliders of a trace leave room for whole sentences
        (false, false) => rest.height.saturating_sub(pins + bars.max(sliders as u16)).clamp(1, 4),
    };
    let (rest, below) = cut_bottom(rest, below);
    let (rest, pins) = cut_bottom(rest, pins);
    let (left, gap) = match body.width {
        // a changed latency with all its values
        160.. => (60, 1),
        110.. => (50, 1),
        76.. => (36, 1),
        _ => (25, 1),
    };
    let (left, right) = cut_left(rest, left);
    let (_, right) = cut_left(right, gap);
    let (bars, right) = cut_top(right, bars + u16::from(large));
    let (right, _) = cut_bottom(right, if is_low { right.height } else { 0 });
    let (strip, right) = cut_top(right, if strip { STRIP } else { 0 });
    let (right, right_pins) = cut_bottom(right, right_pins);
    let pins = if is_on_right { right_pins } else { pins };
    let (_, frontier) = if right.height > 12 { cut_top(right, 1) } else { cut_top(right, 0) };
    let (frontier, break_even) = match frontier.height {
        3..FRONTIER if !beside && below.height <= 2 => cut_top(frontier, 1),
        _ => (frontier, Rect::ZERO),
    };
    // a row for the number of sliders out of sight, if any
    let (_, left) = cut_top(left, u16::from(sliders as u16 > left.height));
    let (sliders, under) = cut_top(left, all);
    let notes = if beside { cut_top(under, 1).1 } else { below };
    WhatIfAreas {
        header,
        fastest,
        trust,
        sliders,
        bars,
        strip,
        frontier,
        break_even,
        notes,
        pins,
        has_pins_in_words: is_low,
    }
}

pub fn tracks(sliders: Rect) -> (u16, u16) {
    let columns = match sliders.width {
        WIDE_SLIDERS.. => 14,
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
    let sliders = whatif.sliders().len();
    // an error needs the rows of the sentences
    let kept = if whatif.error.is_some() && body.height < LOW { 0 } else { whatif.pins.len() };
    let areas = areas(body, strip, (architectures, sliders), kept);
    match whatif.traced.is_some() {
        true => {
            let strips = whatif.answer.as_ref().map_or(0, |answer| answer.strips.len() as u16);
            let rows = if strip { 1 + 2 * strips } else { 0 };
            without_frontier(body, areas, rows, (architectures as u16, sliders as u16, kept as u16))
        }
        false => areas,
    }
}

/// A trace has fewer sliders and no frontier: strip and notes take the whole width below sliders and architectures, whose
/// bars are thick if rows are left.
fn without_frontier(
    body: Rect,
    areas: WhatIfAreas,
    strip: u16,
    (architectures, sliders, kept): (u16, u16, u16),
) -> WhatIfAreas {
    let has_own_pins = body.height >= LARGE;
    let bottom = if has_own_pins { areas.pins.y } else { body.bottom() };
    // title and terms
    let thick = Rect { height: 2 + THICK * architectures, ..areas.bars };
    let has_room = has_own_pins && thick.bottom() + strip + SENTENCES <= bottom;
    let bars = if has_room && thick.width >= BARS_OF_TRACE { thick } else { areas.bars };
    let top = bars.bottom().max(areas.sliders.y + sliders);
    let below = Rect { y: top, height: bottom.saturating_sub(top), ..body };
    let of_pins = if has_own_pins || kept == 0 { 0 } else { kept + 1 };
    if body.height < LOW || below.height < strip + of_pins + 2 {
        return areas;
    }
    let (strip, rest) = cut_top(cut_left(below, 1).1, strip);
    let (pins, rest) = cut_top(rest, of_pins);
    let pins = if has_own_pins { areas.pins } else { pins };
    let notes = cut_top(rest, u16::from(rest.height > NOTES)).1;
    let sliders = Rect { height: sliders.min(areas.sliders.height), ..areas.sliders };
    let (frontier, break_even) = (Rect::ZERO, Rect::ZERO);
    WhatIfAreas { sliders, bars, strip, pins, notes, frontier, break_even, ..areas }
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
