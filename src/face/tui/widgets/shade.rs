//! What a cell of a lane shows, from the shares of its time: the same marks for a lane, for a rank whose lanes
//! are one line, and for a whole trace in a row, at every zoom. So a cell that covers a thousand operations
//! and one that covers a part of one are read alike.
//!
//! Computation is a block, as high (or, at the edge of an operation, as wide) as its share; communication that
//! is hidden is `▒`, or `▓` from half of the time on; what is exposed of it is `╌ ▖ ▚ ▜ ╱`: a little, a
//! quarter, half, three quarters, all of the cell's time. Waiting for a peer is `░`, exposed `╲`; copies `▬`.

use crate::face::tui::theme::{Role, Theme};

/// Eighths of a cell, from below.
pub const BELOW: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// The least share of a cell, or of its communication, that is worth a mark of its own.
const WORTH: f64 = 0.125;

/// Shares of a cell's time, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    /// Share in which something is computed.
    pub compute: f64,
    /// Share of communicating, hidden or exposed.
    pub comm: f64,
    /// Share of copies and fills.
    pub memory: f64,
    /// Share of communication that waits for a peer.
    pub waiting: f64,
    /// Share of communicating while the rank computes nothing.
    pub exposed: f64,
}

/// A full cell of computation of attention, MLP, head and all else where no colour tells them apart: glyphs that
/// no other mark of the lanes has.
pub const MODULES: [&str; 4] = ["█", "▦", "▩", "▤"];

/// A full cell of computation of a module (`Role::Series`), in colours or without.
pub fn module(role: Role, theme: Theme) -> &'static str {
    match role {
        Role::Series(module) if !theme.tells_series() => MODULES[module % MODULES.len()],
        _ => MODULES[0],
    }
}

/// A mark and its colour.
pub type Mark = (&'static str, Role);

/// A share in eighths; what is there at all is seen.
pub fn eighths(share: f64) -> usize {
    match share {
        share if share > 0.0 => ((share * 8.0).round() as usize).clamp(1, 8),
        _ => 0,
    }
}

/// The mark of exposed communication by its share of the time.
pub fn exposed(share: f64) -> Mark {
    let mark = match (share * 8.0).round() as usize {
        0 => "╌",
        1..=2 => "▖",
        3..=4 => "▚",
        5..=6 => "▜",
        _ => "╱",
    };
    (mark, Role::Exposed)
}

/// What a comm lane shows; `None` where it does nothing.
pub fn comm(shares: Shares) -> Option<Mark> {
    let Shares { comm, waiting, exposed: bare, .. } = shares;
    let waits = waiting > comm / 2.0;
    Some(match () {
        () if comm <= 0.0 => return None,
        () if bare > 0.0 && bare >= WORTH * comm => match exposed(bare) {
            ("╱", role) if waits => ("╲", role),
            mark => mark,
        },
        () if waits => ("░", Role::Waiting),
        () => (if comm >= 0.5 { "▓" } else { "▒" }, Role::Comm),
    })
}

/// What several lanes show as one, where that is no computation: exposed communication that is worth it, or
/// communication or copies that take more of the time than computing does. `None`: what is computed.
pub fn several(shares: Shares) -> Option<Mark> {
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
    fn eighths_show_what_is_there_at_all() {
        assert_eq!([0.0, 0.001, 0.5, 1.0, 1.2].map(eighths), [0, 1, 4, 8, 8]);
    }
}
