//! Legend of the lanes: the short one on the border of the info, and the list of all marks.

use std::borrow::Cow;

use crate::face::tui::prelude::*;
use crate::face::tui::screens::timeline::state::row::SpanClass;
use crate::face::tui::screens::timeline::state::{Pane, TimelineView, TraceIndex};
use crate::face::tui::widgets::lanes::{UNCLASSIFIED, is_unclassified};
use crate::face::tui::widgets::shade::module;
use trace::{OperationInfo, OperationKind};

/// Mark of a legend, its role, and its words.
type Entry = (&'static str, Role, &'static str);

/// Short legend of the classes in the open traces, for a frame of this width. A narrow frame drops the first classes
/// (compute, whose operations the lanes name) and ends with `more`, the key to the full legend; otherwise the text is empty.
pub fn short_legend<'a>(view: &TimelineView, width: u16, more: &'a str) -> (Vec<Entry>, &'a str) {
    let has = |is_wanted: fn(&OperationInfo) -> bool| {
        view.panes.iter().flat_map(|pane| &pane.index.trace.operations).any(is_wanted)
    };
    let attention = has(|one| one.module == "attn");
    let feed_forward = match (
        has(|one| one.kind == OperationKind::Experts || one.module == "moe"),
        has(|one| one.module == "mlp"),
    ) {
        (true, false) => " experts ",
        (true, true) => " MLP, experts ",
        (false, true) => " MLP ",
        (false, false) => "",
    };
    let is_by_name = |pane: &Pane| has_unclassified(&pane.index);
    let by_name = view.panes.iter().any(is_by_name);
    let by_module = !view.panes.iter().all(is_by_name);
    let rest = if attention || !feed_forward.is_empty() { " other " } else { " compute " };
    let [first, second, third] = UNCLASSIFIED;
    let all: [(bool, Entry); 10] = [
        (attention, ("█", Role::Series(0), " attention ")),
        (!feed_forward.is_empty(), ("█", Role::Series(1), feed_forward)),
        (by_module, ("█", Role::Series(3), rest)),
        (by_name, ("█", first, "")),
        (by_name, ("█", second, "")),
        (by_name, ("█", third, " kernels, by name ")),
        (true, ("▓▒", Role::Comm, " hidden comm ")),
        (true, ("▚╱", Role::Exposed, " exposed ")),
        (true, ("░╲", Role::Waiting, " waiting ")),
        (true, ("▬", Role::Series(2), " copies ")),
    ];
    let mut entries: Vec<Entry> =
        all.into_iter().filter(|(is_shown, _)| *is_shown).map(|(_, entry)| entry).collect();
    let needed = |entries: &[Entry]| {
        entries.iter().map(|(mark, _, words)| mark.width() + words.width()).sum::<usize>()
    };
    // the corners, and a space before the first mark
    let room = usize::from(width).saturating_sub(3);
    if needed(&entries) <= room {
        return (entries, "");
    }
    while needed(&entries) + more.width() > room && !entries.is_empty() {
        // marks without words share the words of the next mark, so drop them together
        while entries.remove(0).2.is_empty() {}
    }
    (entries, more)
}

/// True if kernels of the trace are coloured by name.
fn has_unclassified(index: &TraceIndex) -> bool {
    let mut operations = index.trace.operations.iter();
    operations
        .any(|one| SpanClass::from_operation(one) == SpanClass::Compute && is_unclassified(index, one))
}

/// All marks; the smallest window has room for the first eight, those of the lanes of most traces.
pub const LEGEND_MARKS: [(&str, Role, &str); 27] = [
    ("▂▅█", Role::Series(0), "compute, attention; height: share of the cell"),
    ("▎▋█", Role::Series(1), "compute, MLP or experts; width: its start or end"),
    ("▒▓", Role::Comm, "hidden communication: under, over half the cell"),
    ("╱", Role::Exposed, "exposed communication: all of the cell"),
    ("▚", Role::Exposed, "exposed communication: about half of it"),
    ("▖", Role::Exposed, "exposed communication: about a quarter of it"),
    ("╲", Role::Exposed, "communication that waits for a peer, exposed"),
    ("░", Role::Waiting, "communication that waits for a peer, hidden"),
    ("▜", Role::Exposed, "exposed communication: about three quarters of it"),
    ("╌", Role::Exposed, "exposed communication: under 1/8 of the cell"),
    ("█", Role::Series(2), "compute, head"),
    ("█", Role::Series(3), "compute, all else"),
    ("█", Role::Series(0), "imported kernels without a class: colour by name"),
    ("▬", Role::Series(2), "copies and fills: no compute, no communication"),
    ("▸ ▾", Role::Text, "a folded rank, its lanes in one line; an open one"),
    ("r0 p9", Role::Text, "rank 0, whose work process 9 launched"),
    ("▸ +4", Role::Dim, "a CPU thread's ranges with four more rows"),
    ("=", Role::Text, "ranks with the same timeline, shown once"),
    ("◆", Role::Key, "a match of the search; underlined in its lane"),
    ("▼ ▽", Role::Key, "the cursor; the same time in the other trace"),
    ("┊", Role::Dim, "the time of the cursor"),
    ("↓", Role::Key, "the launch of the kernel under the cursor"),
    ("A──B", Role::Key, "marks A and B, and the time between them"),
    ("═", Role::Key, "what is selected"),
    ("[ ] ┃", Role::Key, "the window, in the overview of the whole trace"),
    ("0", Role::Comm, "on the critical path: the rank that it is on"),
    ("├ ╫ ╷", Role::Dim, "a CPU range or operator; several; one unnamed"),
];

/// Mark of a legend: modules have distinct full cells in themes without colours for them.
pub fn in_theme(mark: &'static str, role: Role, theme: Theme) -> Cow<'static, str> {
    match mark.strip_suffix('█') {
        Some(part) => format!("{part}{}", module(role, theme)).into(),
        None => mark.into(),
    }
}

pub fn draw_legend(buf: &mut Buffer, (area, rows): (Rect, Rect), list: &List, theme: Theme) {
    frame(buf, area, "marks and colours, the same at every zoom", theme);
    for (row, y) in list.rows(LEGEND_MARKS.len(), rows) {
        let (mark, role, words) = LEGEND_MARKS[row];
        put(buf, rows, rows.x + 1, y, &in_theme(mark, role, theme), theme.style(role));
        put(buf, rows, rows.x + 8, y, words, theme.style(Role::Text));
    }
    let below = LEGEND_MARKS.len().saturating_sub(list.offset + usize::from(rows.height));
    hidden_rows(buf, area, list.offset, below, theme);
}
