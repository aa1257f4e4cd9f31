//! Lane cells from time shares. A lane, a collapsed rank and the overview use the same marks at every
//! zoom, so a cell over a thousand operations reads like a cell over part of one.
//!
//! Computation is a block as high as its share (or as wide, at the edge of an operation). Hidden
//! communication is `▒`, or `▓` from half of the time. Exposed communication is `╌ ▖ ▚ ▜ ╱`: a little, a
//! quarter, half, three quarters, all of the cell's time. Waiting for a peer is `░`, exposed `╲`; copies
//! are `▬`.

use crate::face::tui::prelude::*;

/// Blocks from below, in eighths of a cell.
pub const BELOW: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// Minimum share of a cell, or of its communication, that gets its own mark.
const WORTH: f64 = 0.125;

/// Shares of a cell's time, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    pub compute: f64,
    /// Communication, hidden or exposed.
    pub comm: f64,
    pub memory: f64,
    /// Communication that waits for a peer.
    pub waiting: f64,
    pub exposed: f64,
}

/// Full compute cells of attention, MLP, head and the rest on themes without colours; no other mark uses
/// these glyphs.
pub const MODULES: [&str; 4] = ["█", "▦", "▩", "▤"];

/// Full compute cell of a module (`Role::Series`), depending on whether the theme has colours.
pub fn module(role: Role, theme: Theme) -> &'static str {
    match role {
        Role::Series(module) if !theme.tells_series() => MODULES[module % MODULES.len()],
        _ => MODULES[0],
    }
}

pub type StyledGlyph = (&'static str, Role);

/// Share in eighths; nonzero shares give at least 1.
pub fn eighths(share: f64) -> usize {
    match share {
        share if share > 0.0 => ((share * 8.0).round() as usize).clamp(1, 8),
        _ => 0,
    }
}

pub fn exposed(share: f64) -> StyledGlyph {
    let mark = match (share * 8.0).round() as usize {
        0 => "╌",
        1..=2 => "▖",
        3..=4 => "▚",
        5..=6 => "▜",
        _ => "╱",
    };
    (mark, Role::Exposed)
}

/// Mark of exposed communication that takes this share of a cell, `waiting` (a share too) of `comm` for a peer.
pub fn exposed_or_waiting(Shares { comm, waiting, exposed: share, .. }: Shares) -> StyledGlyph {
    match exposed(share) {
        ("╱", role) if waiting > comm / 2.0 => ("╲", role),
        mark => mark,
    }
}

/// Mark of a comm lane; `None` if idle.
pub fn comm(shares: Shares) -> Option<StyledGlyph> {
    let Shares { comm, waiting, exposed: bare, .. } = shares;
    Some(match () {
        () if comm <= 0.0 => return None,
        () if bare > 0.0 && bare >= WORTH * comm => exposed_or_waiting(shares),
        () if waiting > comm / 2.0 => ("░", Role::Waiting),
        () => (if comm >= 0.5 { "▓" } else { "▒" }, Role::Comm),
    })
}

/// Draws the compute lane of a step, and below it its comm lane, each `rows` high: a column for each of the shares. `idle`
/// fills the lowest row of the columns in which a lane does nothing.
pub fn draw_step(
    buf: &mut Buffer,
    area: Rect,
    (x, y): (u16, u16),
    rows: u16,
    columns: impl IntoIterator<Item = Shares>,
    idle: &str,
    theme: Theme,
) {
    for (x, shares) in (x..).zip(columns) {
        let comm = comm(shares);
        for row in 0..rows {
            // the block grows from the lowest row
            let below = rows - 1 - row;
            let compute = eighths(shares.compute * f64::from(rows) - f64::from(below));
            let nothing = if below == 0 { (idle, Role::Dim) } else { (" ", Role::Dim) };
            let compute = if compute == 0 { nothing } else { (BELOW[compute], Role::Series(0)) };
            for (y, (glyph, role)) in [(y + row, compute), (y + rows + row, comm.unwrap_or(nothing))] {
                put(buf, area, x, y, glyph, theme.style(role));
            }
        }
    }
}

/// Non-compute mark of several merged lanes: exposed communication above the minimum share, or
/// communication or copies if they take more time than computation. `None` means computation.
pub fn several(shares: Shares) -> Option<StyledGlyph> {
    let Shares { compute, comm: all, memory, exposed: bare, .. } = shares;
    match () {
        () if bare >= WORTH => comm(Shares { comm: bare, ..shares }),
        () if compute >= all && compute >= memory => None,
        () if all >= memory => comm(shares),
        () => Some(("▬", Role::Series(2))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_exposed_is_shaded_by_its_share_of_the_time() {
        let shown = |comm: f64, bare: f64| {
            super::comm(Shares { comm, exposed: bare, ..Shares::default() }).map_or(" ", |mark| mark.0)
        };
        assert_eq!(shown(0.0, 0.0), " ");
        assert_eq!((shown(1.0, 0.0), shown(0.3, 0.0)), ("▓", "▒"), "hidden");
        assert_eq!(shown(1.0, 0.1), "▓", "a tenth of it is exposed");
        assert_eq!(shown(1.0, 0.25), "▖", "never solid while a quarter is exposed");
        assert_eq!(shown(1.0, 0.5), "▚");
        assert_eq!(shown(1.0, 0.75), "▜");
        assert_eq!(shown(1.0, 1.0), "╱");
        assert_eq!(shown(0.5, 0.5), "▚", "of the cell's time, not of its communication");
        assert_eq!(shown(0.02, 0.02), "╌", "a little, and yet there");
        let waits =
            |bare| super::comm(Shares { comm: 1.0, waiting: 0.8, exposed: bare, ..Shares::default() });
        assert_eq!((waits(0.0), waits(1.0)), (Some(("░", Role::Waiting)), Some(("╲", Role::Exposed))));
    }

    #[test]
    fn several_lanes_show_what_is_exposed_before_what_is_computed() {
        let shown = |compute, comm, bare| {
            several(Shares { compute, comm, exposed: bare, ..Shares::default() }).map(|mark| mark.0)
        };
        assert_eq!(shown(0.9, 0.3, 0.05), None, "little of it is exposed: computation");
        assert_eq!(shown(0.75, 0.4, 0.25), Some("▖"));
        assert_eq!(shown(0.5, 0.5, 0.5), Some("▚"));
        assert_eq!(shown(0.3, 0.6, 0.0), Some("▓"));
        assert_eq!(shown(0.0, 0.01, 0.01), Some("╌"));
        let copies = Shares { compute: 0.1, memory: 0.5, ..Shares::default() };
        assert_eq!(several(copies).map(|mark| mark.0), Some("▬"));
    }

    #[test]
    fn lanes_of_several_rows_are_as_high_as_their_share() {
        let area = Rect::new(0, 0, 3, 6);
        let mut buf = Buffer::empty(area);
        let of = |compute, comm| Shares { compute, comm, exposed: comm, ..Shares::default() };
        let columns = [of(1.0, 0.0), of(0.5, 0.0), of(0.0, 1.0)];
        draw_step(&mut buf, area, (0, 0), 3, columns, "·", Theme::new(true));
        let row = |y: u16| (0..3u16).map(|x| buf[(x, y)].symbol()).collect::<String>();
        assert_eq!([0, 1, 2].map(row), ["█  ", "█▄ ", "██·"]);
        assert_eq!([3, 4, 5].map(row), ["  ╱", "  ╱", "··╱"]);
    }

    #[test]
    fn eighths_show_what_is_there_at_all() {
        assert_eq!([0.0, 0.001, 0.5, 1.0, 1.2].map(eighths), [0, 1, 4, 8, 8]);
    }
}
