//! Screen 4: what the lanes did.
//!
//! ```text
//! | RUN  ladder tp2 ...  [simulated]   step 12: overlap 85%   |
//! | from 1.2 s, 45 us wide                                    |
//! |            +0        +10 us     +20 us                    |
//! | r0 compute ▐norm███qkv███████                             |
//! |    comm    ░░▓▓▓▓▓                                        |
//! |    exposed   ━━━                                          |
//! | ╭ decode/L12/mlp/down ──────────────────────────────────╮ |
//! ```

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;

use crate::plan::Lane;
use crate::tui::format::{digits, ns, percent, si};
use crate::tui::layout::{self, AXIS_ROWS, LANE_LABEL, RANK_ROWS, cut_left, cut_top};
use crate::tui::state::State;
use crate::tui::state::timeline::View;
use crate::tui::theme::{Role, Theme};
use crate::tui::widgets::lanes::{self, ticks};
use crate::tui::widgets::paint::{empty, frame, line, put};

/// Draws the screen.
pub fn draw(buf: &mut Buffer, body: Rect, state: &State) {
    let theme = state.theme;
    if let Some(what) = &state.timeline.loading {
        empty(buf, body, &format!("opening {what}…"), theme);
        return;
    }
    let Some(view) = &state.timeline.view else {
        empty(buf, body, "no trace is open: press 3, Enter opens the timeline of a run", theme);
        return;
    };
    let (top, area, info) = layout::timeline(body);
    header(buf, top, view, theme);
    if view.index.rows.is_empty() {
        empty(buf, area, "the trace has no spans", theme);
        return;
    }
    draw_lanes(buf, area, view, theme);
    operation(buf, info, view, theme);
}

fn header(buf: &mut Buffer, area: Rect, view: &View, theme: Theme) {
    let index = &view.index;
    let provenance = index.provenance();
    let label = format!("[{provenance}]");
    let step = view.step().and_then(|i| index.steps.get(i)).map(|s| s.key);
    let overlap = match step {
        Some(key) => match view.overlap.get(&key) {
            Some(pct) => format!("{}: overlap {}", key.label(), percent(*pct)),
            None => format!("{}: overlap …", key.label()),
        },
        None => String::new(),
    };
    let decode = format!("   decode phase: {}", percent(index.decode_overlap_pct));
    let (text, title) = (theme.style(Role::Text), theme.style(Role::Title));
    // the label comes first, so that nothing crowds it out
    line(
        buf,
        area,
        0,
        &[(" ", text), (&label, theme.provenance(provenance)), (" ", text), (&index.title, title)],
    );
    let from = view.window.from - index.bounds.from;
    let window = format!(
        "   window: {} from {} s of {}",
        ns(view.window.width()),
        seconds(from),
        ns(index.bounds.width())
    );
    line(
        buf,
        area,
        1,
        &[(" ", text), (&overlap, title), (&decode, title), (&window, theme.style(Role::Dim))],
    );
}

/// Seconds to the microsecond: windows deep in a long trace must be told apart.
fn seconds(ns: i64) -> String {
    format!("{:.6}", ns as f64 / 1e9)
}

fn draw_lanes(buf: &mut Buffer, area: Rect, view: &View, theme: Theme) {
    let index = &view.index;
    let (axis, rows) = cut_top(area, AXIS_ROWS);
    let (_, axis) = cut_left(axis, LANE_LABEL);
    let columns = usize::from(axis.width);
    let dim = theme.style(Role::Dim);
    put(buf, axis, axis.x, axis.y + 1, &"─".repeat(columns), dim);
    for tick in ticks(view.window, columns) {
        let Some(column) = view.window.column(view.window.from + tick, columns) else { continue };
        let x = axis.x + column as u16;
        put(buf, axis, x, axis.y, &format!("+{}", ns(tick)), dim);
        put(buf, axis, x, axis.y + 1, "┬", dim);
    }
    let span = view.span();
    let cursor = span.and_then(|span| {
        let first = view.window.column(span.start_ns.max(view.window.from), columns)?;
        let end = span.end_ns.min(view.window.to);
        if span.end_ns <= view.window.from {
            return None;
        }
        let last = view.window.column((end - 1).max(span.start_ns.max(view.window.from)), columns)?;
        Some((first, last.max(first)))
    });
    for shown in 0..rows.height / RANK_ROWS {
        let rank = view.first_rank + usize::from(shown);
        let (Some(pair), Some(exposed)) =
            (index.rows.get(rank * 2..rank * 2 + 2), index.exposed.get(rank))
        else {
            break;
        };
        let y = rows.y + shown * RANK_ROWS;
        for (lane, row) in pair.iter().enumerate() {
            let here = rank * 2 + lane == view.row;
            let name = match row.lane {
                Lane::Compute => format!("r{:<3}compute", row.rank),
                Lane::Comm => "    comm   ".into(),
            };
            let at = Rect::new(rows.x, y + lane as u16, rows.width, 1);
            let role = if here { Role::Selected } else { Role::Text };
            put(buf, at, at.x, at.y, &name, theme.style(role));
            let (_, strip) = cut_left(at, LANE_LABEL);
            lanes::draw(buf, strip, theme, index, row, view.window);
            if let (true, Some((first, last))) = (here, cursor) {
                let width = (last - first + 1) as u16;
                let area = Rect::new(strip.x + first as u16, strip.y, width, 1).intersection(buf.area);
                buf.set_style(
                    area,
                    theme.style(Role::Text).add_modifier(Modifier::UNDERLINED | Modifier::BOLD),
                );
                for x in [first, last] {
                    put(buf, axis, axis.x + x as u16, axis.y + 1, "▼", theme.style(Role::Key));
                }
            }
        }
        let at = Rect::new(rows.x, y + 2, rows.width, 1);
        put(buf, at, at.x, at.y, "    exposed", dim);
        lanes::exposed(buf, cut_left(at, LANE_LABEL).1, theme, exposed, view.window);
    }
}

fn operation(buf: &mut Buffer, area: Rect, view: &View, theme: Theme) {
    let trace = &view.index.trace;
    let Some(span) = view.span() else {
        frame(buf, area, "no operation in this lane", theme);
        return;
    };
    let Some(info) = trace.operations.get(span.operation as usize) else {
        frame(buf, area, &format!("operation {} is not in the trace's table", span.operation), theme);
        return;
    };
    let inner = frame(buf, area, &info.name, theme);
    let duration = (span.end_ns - span.start_ns).max(0);
    let mut lines = vec![format!(
        "{} on {}, rank {}, {}   {}",
        info.kind,
        span.lane.as_str(),
        span.rank,
        view.step().map_or_else(String::new, |i| view.index.steps[i].key.label()),
        info.shape
    )];
    let ready = match span.ready_ns >= 0 && span.ready_ns <= span.start_ns {
        true => format!(", ready {} before", ns(span.start_ns - span.ready_ns)),
        false => String::new(),
    };
    let start = span.start_ns - view.index.bounds.from;
    let mut timing = format!("took {}, started at {} s{ready}", ns(duration), seconds(start));
    let arrival = span.last_arrival_ns.clamp(span.start_ns, span.end_ns.max(span.start_ns));
    let collective = span.last_arrival_ns >= 0;
    let transfer = if collective { (span.end_ns - arrival).max(0) } else { duration };
    if collective {
        timing.push_str(&format!(
            ": ░ waited {} for peers, ▓ moved data {}",
            ns(arrival - span.start_ns),
            ns(transfer)
        ));
    }
    lines.push(timing);
    if let Some(step) = trace.step(span) {
        let cost = |q: &crate::plan::Quantity| q.at(&step) as f64;
        let (flops, message) = (cost(&info.cost.flops), cost(&info.cost.message_bytes));
        let (read, written) = (cost(&info.cost.bytes_read), cost(&info.cost.bytes_written));
        let work = match info.lane {
            Lane::Comm => format!("message {}", si(message, "B")),
            Lane::Compute => {
                format!("{}, {} read, {} written", si(flops, "FLOP"), si(read, "B"), si(written, "B"))
            }
        };
        let rate = |amount: f64, over: i64| amount / over as f64;
        let achieved = match info.lane {
            _ if transfer <= 0 => String::new(),
            Lane::Comm => format!("; achieved {} GB/s (message bytes)", digits(rate(message, transfer))),
            Lane::Compute => format!(
                "; achieved {} GB/s, {} GFLOP/s",
                digits(rate(read + written, duration)),
                digits(rate(flops, duration))
            ),
        };
        lines.push(work + &achieved);
    }
    let names = |list: &[u32]| -> Vec<&str> {
        list.iter().filter_map(|i| trace.operations.get(*i as usize)).map(|o| o.name.as_str()).collect()
    };
    if !info.waits_for.is_empty() {
        lines.push(format!("waits for {}", names(&info.waits_for).join(", ")));
    }
    for (row, text) in lines.iter().enumerate() {
        line(buf, inner, row as u16, &[(" ", theme.style(Role::Text)), (text, theme.style(Role::Text))]);
    }
}
