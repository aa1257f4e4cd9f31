//! Legend of the lanes' marks and colours.

use crate::face::tui::prelude::*;
use crate::face::tui::widgets::shade::module;

pub const LINE: &str = " █ compute ▓▒ hidden comm ▖▚▜╱ exposed: ¼ to all ░╲ waits ▬ memory ";

pub const MARKS: [(&str, Role, &str); 22] = [
    ("▂▅█", Role::Series(0), "compute, attention; height: a cell's share, of many operations"),
    ("▎▋█", Role::Series(1), "compute, MLP; width: where one operation begins or ends"),
    ("█", Role::Series(2), "compute, head"),
    ("█", Role::Series(3), "compute, all else, and kernels of imported traces"),
    ("▒▓", Role::Comm, "communication that compute hides: under, over half of the cell's time"),
    ("╌", Role::Exposed, "exposed communication: under an eighth of the cell's time"),
    ("▖", Role::Exposed, "exposed communication: about a quarter of it"),
    ("▚", Role::Exposed, "about half of it"),
    ("▜", Role::Exposed, "about three quarters of it"),
    ("╱", Role::Exposed, "all of it"),
    ("░", Role::Waiting, "communication that waits for a peer, hidden"),
    ("╲", Role::Exposed, "communication that waits for a peer, exposed"),
    ("▬", Role::Series(2), "copies and fills: neither compute nor communication"),
    ("▸ ▾", Role::Text, "a rank that is collapsed, all its lanes in one line; one that is open"),
    ("=", Role::Text, "ranks that did the same at the same times, shown once"),
    ("◆", Role::Key, "what the search found"),
    ("▼ ▽", Role::Key, "the cursor; the same time in the other trace"),
    ("┊", Role::Dim, "the time of the cursor"),
    ("A──B", Role::Key, "the marks A and B, and what lies between them"),
    ("═", Role::Key, "what is selected"),
    ("[ ]", Role::Key, "the window, in the overview of the whole trace"),
    ("├ ╫ ╷", Role::Text, "a named range; several in a cell; one without room for its name"),
];

pub fn draw(buf: &mut Buffer, (area, rows): (Rect, Rect), list: &List, theme: Theme) {
    frame(buf, area, "marks and colours, the same at every zoom", theme);
    for (row, y) in list.rows(MARKS.len(), rows) {
        let (mark, role, words) = MARKS[row];
        // modules have distinct full cells on themes without colours for them
        let mark = match mark.strip_suffix('█') {
            Some(part) => format!("{part}{}", module(role, theme)),
            None => mark.to_owned(),
        };
        put(buf, rows, rows.x + 1, y, &mark, theme.style(role));
        put(buf, rows, rows.x + 8, y, words, theme.style(Role::Text));
    }
}
