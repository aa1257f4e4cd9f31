//! Description below the lanes: the item under the cursor (an operation, a range, exposed communication).

use super::lists::{self, time_of};
use super::state::row::SpanClass;
use super::state::view::RulerOrigin;
use super::state::window::TimeWindow;
use super::state::{Pane, TimelineView, TraceIndex, TraceLine};
use super::{Act, Timeline, stretch};
use crate::face::tui::format::si;
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::wrap::elided_clauses;
use base::text::fitting_name;
use plan::{Lane, Quantity};
use study::analysis::{LaneTotal, NextCompute};
use trace::{CollectiveInfo, OperationKind, Span, is_host_call};

/// Title and lines for a frame of this width; wrapping happens when drawing. A name too long for the
/// title becomes the last line.
pub fn content(view: &TimelineView, width: u16) -> (String, Vec<String>) {
    let pane = view.pane();
    let (title, mut lines) = match pane.current() {
        Some(TraceLine::Row(_)) => span(view, pane),
        Some(TraceLine::Ranges(row)) => range(view, pane, row),
        Some(TraceLine::Rank(rank)) => exposed(view, pane, rank),
        None => ("the trace is empty".into(), Vec::new()),
    };
    // a small window has room for the first lines only
    for words in [other(view), path(view)].into_iter().flatten() {
        lines.insert(2.min(lines.len()), words);
    }
    let status = search_status(view, width);
    let told = totals(view).into_iter().filter(|told| !status.contains(told));
    let told = told.collect::<Vec<_>>();
    if !told.is_empty() {
        let is_rest = told.len() < totals(view).len();
        let found = if is_rest { "also found" } else { "found" };
        lines.insert(0, format!("{found}: {}", told.join(" · ")));
    }
    let room = usize::from(width).saturating_sub(border_search(view, width).width() + 6);
    // the phase goes before the number of the layer; kernels have the short name of the tables
    let short = match title.width() > room {
        true => lists::brief(&title, room),
        false => fitting_name(&title, room.min(lists::SHORT_NAME)),
    };
    if short != title {
        lines.insert(if view.names_in_full { 0 } else { lines.len() }, title);
    }
    (short, lines)
}

/// Name and description of the item under the cursor, for the clipboard.
pub fn item_text(view: &TimelineView) -> String {
    let (title, lines) = content(view, u16::MAX);
    let lines = lines.iter().map(|line| line.trim_end());
    [title.as_str()].into_iter().chain(lines).collect::<Vec<_>>().join("; ").replace('\u{a0}', " ")
}

/// Name and description of the item under the cursor, for the help; folded if the area cuts them. `None` without an area.
pub fn note(view: &TimelineView, area: Rect) -> Option<ScreenNote> {
    let is_cut = || rows_of(&content(view, area.width).1, area.width) > inside(area).height.into();
    (area.area() > 0).then(|| ScreenNote::new(item_text(view), is_cut()))
}

/// Draws the description, with the search on the top border and the legend on the bottom border.
pub fn draw(buf: &mut Buffer, area: Rect, view: &TimelineView, cx: &Context) {
    let theme = cx.theme;
    let (title, lines) = content(view, area.width);
    let text = theme.style(Role::Text);
    if area.height < 3 {
        // no room for a frame
        let words = [title].into_iter().chain(lines.into_iter().skip(1)).collect::<Vec<_>>().join("; ");
        // the search has the end of the first row
        let width = area.width.saturating_sub(border_search(view, area.width).width() as u16 + 3);
        let shown = fitted(&[words], width.into(), area.height.into());
        for (row, words) in (0..area.height).zip(shown) {
            line(buf, area, row, &[(" ", text), (&cut(&words, width), text)]);
        }
        return;
    }
    let inner = frame(buf, area, &title, theme);
    draw_lines(buf, inner, &lines, theme);
    let more = format!(" {}: all ", cx.key::<Timeline>(Act::Legend));
    let (shown, more) = lists::short_legend(view, area.width, &more);
    let width: usize = shown.iter().map(|(mark, _, words)| mark.width() + words.width()).sum();
    let start = area.right().saturating_sub((width + more.width()) as u16 + 3).max(area.x + 1);
    // the frame has its corner in the last column
    let within = Rect { width: area.width.saturating_sub(1), ..area };
    let bottom = area.bottom().saturating_sub(1);
    let mut x = put(buf, within, start, bottom, " ", theme.style(Role::Dim));
    for (mark, role, words) in shown {
        x = put(buf, within, x, bottom, &lists::in_theme(mark, role, theme), theme.style(role));
        x = put(buf, within, x, bottom, words, theme.style(Role::Dim));
    }
    put(buf, within, x, bottom, more, theme.style(Role::Dim));
}

pub fn draw_lines(buf: &mut Buffer, inner: Rect, lines: &[String], theme: Theme) {
    let (text, width) = (theme.style(Role::Text), usize::from(inner.width.saturating_sub(2)));
    for (row, words) in (0..inner.height).zip(fitted(lines, width, inner.height.into())) {
        line(buf, inner, row, &[(" ", text), (&words, text)]);
    }
}

/// Rows needed to show all lines uncut in a frame of this width.
pub fn rows_of(lines: &[String], width: u16) -> usize {
    let width = usize::from(width.saturating_sub(4));
    lines.iter().map(|line| wrap(line, width).len()).sum()
}

/// Fits lines into rows: one row each, and spare rows go to the first lines that need more.
pub fn fitted(lines: &[String], width: usize, rows: usize) -> Vec<String> {
    let mut spare = rows.saturating_sub(lines.len());
    let mut shown = Vec::new();
    for words in lines {
        let wrapped = wrap(words, width);
        let more = wrapped.len().saturating_sub(1).min(spare);
        spare -= more;
        match wrapped.len() <= 1 + more {
            true => shown.extend(wrapped),
            false => {
                shown.extend(wrapped.iter().take(more).cloned());
                shown.push(whole_clauses(&wrapped[more..].join(" "), width));
            }
        }
    }
    shown
}

/// Text without trailing clauses that do not fit, so no number is cut; unchanged if the first does not fit.
fn whole_clauses(words: &str, width: usize) -> String {
    elided_clauses(words, width, &[", ", "; ", ": "]).unwrap_or_else(|| words.to_owned())
}

pub fn draw_search(buf: &mut Buffer, area: Rect, view: &TimelineView, theme: Theme) {
    // a list's own title takes precedence
    if view.panel.is_some() {
        return;
    }
    let search = border_search(view, area.width);
    let x = area.right().saturating_sub(search.width() as u16 + 2);
    put(buf, area, x, area.y, &search, theme.style(Role::Key));
}

fn path(view: &TimelineView) -> Option<String> {
    let pane = view.pane();
    let path = pane.path.as_ref().filter(|_| view.lit)?;
    let Some(summary) = &path.summary else {
        return Some(format!("critical path of {}: unknown", pane.index.step_label(path.key)));
    };
    let on = pane.span_index().is_some_and(|span| path.steps.iter().any(|step| step.span == span));
    let mut kinds: std::collections::BTreeMap<&str, f64> = std::collections::BTreeMap::new();
    for part in &summary.parts {
        *kinds.entry(&part.kind).or_default() += part.share;
    }
    let mut kinds: Vec<(&str, f64)> = kinds.into_iter().collect();
    let of_length = |us: f64| if summary.length_us > 0.0 { us / summary.length_us } else { 0.0 };
    kinds.extend([
        ("waiting for peers", of_length(summary.peer_us)),
        ("gaps", of_length(summary.gap_us)),
    ]);
    kinds.retain(|(_, share)| *share > 0.0005);
    kinds.sort_by(|a, b| b.1.total_cmp(&a.1));
    let kinds: Vec<String> =
        kinds.iter().map(|(name, share)| format!("{name}\u{a0}{:.1} %", 100.0 * share)).collect();
    let over = if pane.index.rank_count() > 1 { " over all ranks" } else { "" };
    Some(format!(
        "critical path of {} ({} on it), {}{over}: {}",
        pane.index.step_label(path.key),
        if on { "this is" } else { "this is not" },
        time_of(summary.length_us),
        kinds.join(" · ")
    ))
}

/// Search on the border of the info: ` /gemm 3 of 45 · 12.3 us per rank, 4.1 % of compute `. Empty without a search, or
/// while the header has the line in which it is typed.
fn border_search(view: &TimelineView, columns: u16) -> String {
    match search_status(view, columns) {
        status if status.is_empty() || view.search.line.typing => String::new(),
        status => format!(" /{} {status} ", view.search.line.value()),
    }
}

/// Search status: `3 of 45 (12 on the GPU) · 12.3 us per rank, 4.1 % of compute`, empty without a search; the remark on the
/// GPU only if the host has matches. Fits the given columns after
/// leaving room for the query and a short title.
pub fn search_status(view: &TimelineView, columns: u16) -> String {
    let query = view.search.line.value();
    if !view.search.line.typing && query.is_empty() {
        return String::new();
    }
    let pane = view.pane();
    let mut text = match pane.matches.as_ref().filter(|m| m.query == query) {
        _ if query.is_empty() => "type part of a name".into(),
        None => "…".into(),
        Some(found) => {
            let hides = |line| pane.hides(line);
            let total = found.shown(&pane.index, hides);
            let is_host = |line| matches!(line, TraceLine::Ranges(_));
            let of_gpu = match found.shown(&pane.index, |line| hides(line) || is_host(line)) {
                all if all == total => String::new(),
                0 => " (none on the GPU)".into(),
                some => format!(" ({some} on the GPU)"),
            };
            match pane.current().and_then(|at| found.ordinal(&pane.index, hides, (at, pane.place))) {
                Some(ordinal) => format!("{ordinal} of {total}{of_gpu}"),
                None if total == 1 => format!("1 match{of_gpu}"),
                None => format!("{total} matches{of_gpu}"),
            }
        }
    };
    for told in totals(view) {
        if query.width() + text.width() + told.width() + 24 <= usize::from(columns) {
            text.push_str(" · ");
            text.push_str(&told);
        }
    }
    text
}

/// Total time of the matches per lane: `12.3 us per rank, 4.1 % of compute`.
fn totals(view: &TimelineView) -> Vec<String> {
    let query = view.search.line.value();
    let totals = view.pane().totals.as_ref().filter(|(of, _)| of == query);
    let told = |lane: &LaneTotal| {
        let exposed = match lane.lane {
            "comm" => format!(", exposed {}", time_of(lane.exposed_us)),
            _ => String::new(),
        };
        format!("{} per rank, {:.1} % of {}{exposed}", time_of(lane.total_us), lane.share_pct, lane.lane)
    };
    totals.map_or(Vec::new(), |(_, lanes)| lanes.iter().map(told).collect())
}

/// Interval of the focused trace, exact to the nanosecond, since the ruler's origin: `took 10.000 us: 46.000 us to 56.000 us
/// since step 2`.
fn interval(view: &TimelineView, (start, end): (i64, i64)) -> String {
    format!("took {}: {}", exact(end.saturating_sub(start)), bounds(view, TimeWindow::new(start, end)))
}

/// Start and end of a stretch of the focused trace (ns), since the ruler's origin, which it names.
pub fn bounds(view: &TimelineView, stretch: TimeWindow) -> String {
    let RulerOrigin { time: origin, label } = view.ruler_origin();
    let origin = view.pane().own(origin);
    let [from, to] = [stretch.from, stretch.to].map(|time| exact(time.saturating_sub(origin)));
    format!("{from} to {to} since {label}")
}

pub fn exact(value: i64) -> String {
    let (sign, size) = (if value < 0 { "-" } else { "" }, value.unsigned_abs());
    match size {
        0..1_000 => format!("{sign}{size} ns"),
        1_000..1_000_000 => format!("{sign}{}.{:03} us", size / 1_000, size % 1_000),
        1_000_000..1_000_000_000 => format!("{sign}{}.{:06} ms", size / 1_000_000, size % 1_000_000),
        _ => format!("{sign}{}.{:09} s", size / 1_000_000_000, size % 1_000_000_000),
    }
}

/// Describes the same operation of the same step in the other trace; `None` if the cursor is on none.
fn other(view: &TimelineView) -> Option<String> {
    let (at, pane) = view.panes.iter().enumerate().find(|(i, _)| *i != view.focus)?;
    let which = &super::header::names(view)[at.min(1)];
    let own = view.pane().span()?;
    let length = |span: &Span| span.end_ns.saturating_sub(span.start_ns);
    let Some(span) = view.counterpart.and_then(|at| pane.index.trace.spans.get(at)) else {
        return Some(format!("{which} trace: no such operation in the aligned step"));
    };
    let name = pane.index.name(span);
    let name = if name == view.pane().index.name(own) { "the same operation" } else { name };
    let change = length(own) - length(span);
    let change = match change {
        0 => "as here".to_owned(),
        change => format!("{} {} here", ns(change.abs()), if change > 0 { "more" } else { "less" }),
    };
    Some(format!("{which} trace: {name} took {}, {change}", exact(length(span))))
}

fn exposed(view: &TimelineView, pane: &Pane, at: usize) -> (String, Vec<String>) {
    let rank = &pane.index.ranks[at];
    let title = format!("exposed communication of rank {}", rank.rank);
    let all = rank.exposed.union();
    let Some(interval_here) = all.get(pane.place).copied() else {
        return (title, vec!["none: its communication was hidden, or it had none".into()]);
    };
    let window = pane.window(view.window);
    let shown = rank.exposed.within((window.from, window.to));
    let bounds = pane.index.bounds;
    let step = pane
        .step_key(view.time, true)
        .map_or(String::new(), |key| format!(", {}", pane.index.step_label(key)));
    let mut lines = vec![
        format!("interval {} of {}{step}", pane.place + 1, all.len()),
        interval(view, interval_here),
    ];
    let collective = pane.index.collective(at, interval_here);
    if let Some(collective) = collective.and_then(|span| pane.index.trace.spans.get(span)) {
        let reason = exposure_reason(&pane.index, at, collective, false);
        lines.push(format!("exposed: {}{reason}", pane.index.name(collective)));
    }
    lines.push(format!(
        "in this window {}, in the whole trace {}",
        ns(shown),
        ns(rank.exposed.within((bounds.from, bounds.to)))
    ));
    (title, lines)
}

fn range(view: &TimelineView, pane: &Pane, row: usize) -> (String, Vec<String>) {
    let Some(range) = pane.index.range(row, pane.place) else {
        return ("no range".into(), Vec::new());
    };
    let title = pane.index.range_name(range).to_string();
    let host = &pane.index.trace.meta.host;
    let what = match pane.index.range_rows[row].is_host_work {
        true if is_host_call(&title) => "call",
        true => "operator",
        false => "range",
    };
    let place = format!("{what} on rank {}, thread {}, depth {}", range.rank, range.thread, range.depth);
    let mut lines = vec![place, interval(view, (range.start_ns, range.end_ns))];
    if let Some((rows, is_open)) = pane.nested_ranges(TraceLine::Ranges(row)) {
        let shows = if is_open { "hides" } else { "shows" };
        let of = if host.events.is_empty() { "ranges" } else { "ranges, operators and calls" };
        lines.push(format!("Enter {shows} {} of {of}", counted(rows, "more row")));
    }
    if host.left_out > 0 {
        let kept = host.events.len();
        let all = kept as u64 + host.left_out;
        lines.push(format!("only the first {kept} of {all} operators and calls are shown"));
    }
    (title, lines)
}

/// Number of steps up to which none is labelled typical.
const FEW_STEPS: usize = 2;

fn span(view: &TimelineView, pane: &Pane) -> (String, Vec<String>) {
    let index = &pane.index;
    let trace = &index.trace;
    let Some(span) = pane.span() else {
        return ("no operation in this lane".into(), Vec::new());
    };
    let Some(info) = trace.operations.get(span.operation as usize) else {
        return (format!("operation {} is not in the trace's table", span.operation), Vec::new());
    };
    // the lane of an imported kernel is its class, not the stream that it ran on
    let stream = trace.meta.streams.get(usize::from(span.stream)).map(|stream| stream.label());
    let on = stream.unwrap_or_else(|| span.lane.as_str().into());
    let mut what = format!("{} on {on}, rank {}", info.kind, span.rank);
    if let Some(at) = pane.step(view.time, true) {
        let label = index.step_label(index.steps[at].key);
        let is_typical = index.typical_step == Some(at) && index.steps.len() > FEW_STEPS;
        let typical = if is_typical { " (typical: nearest to the median)" } else { "" };
        // first, as a narrow window cuts the end
        let longest = if is_longest_exposed(pane, at) { "longest exposed: " } else { "" };
        what = format!("{longest}{what}, {label}{typical}");
    }
    let arrival = pane.span_index().and_then(|at| index.spans().arrival(at));
    // a shape is not wrapped within its brackets
    let shape = info.shape.replace(", ", ",\u{a0}");
    let mut lines = vec![format!("{what}   {shape}")];
    let (timing, exposure) = (timing(view, span, arrival), exposure(pane, span, arrival));
    let wait = pane.current().and_then(|line| stretch::wait_before(index, index.rank_of(line), span));
    match arrival {
        // the parts of a collective explain it, and a small window has room for the first lines only
        Some(arrival) => {
            let parts = std::iter::once(transfer_and_waiting(pane, span, arrival)).chain(exposure);
            lines.extend([parts.collect::<Vec<_>>().join(", "), timing]);
            lines.extend(wait);
        }
        // in front of the times: it is why the kernel started so late
        None => lines.extend(wait.into_iter().chain([timing]).chain(exposure)),
    }
    lines.extend(experts(view, &info.kind, span));
    lines.extend(work(pane, span, arrival));
    lines.extend(info.collective.as_ref().and_then(collective));
    lines.extend(launch(view, pane));
    let names: Vec<&str> = info
        .waits_for
        .iter()
        .filter_map(|i| trace.operations.get(*i as usize))
        .map(|o| o.name.as_str())
        .collect();
    if !names.is_empty() {
        lines.push(format!("waits for {}", names.join(", ")));
    }
    (info.name.clone(), lines)
}

/// True if the span under the cursor is the collective behind its rank's longest exposed stretch in a step (by index).
fn is_longest_exposed(pane: &Pane, step: usize) -> bool {
    let (index, here) = (&pane.index, pane.span_index());
    let is_comm = pane.span().is_some_and(|span| index.spans().class(span) == SpanClass::Comm);
    let Some(line) = pane.current().filter(|_| is_comm) else { return false };
    let rank = index.rank_of(line);
    let stretch = index.ranks[rank].longest_exposed(index.steps[step].window);
    stretch.is_some_and(|stretch| here.is_some() && index.collective(rank, stretch) == here)
}

/// Load of the span's rank in experts, for a part of a mixture's layer, over the step; `None` until counted.
fn experts(view: &TimelineView, kind: &OperationKind, span: &Span) -> Option<String> {
    let counted = view.docked.counted.as_ref().filter(|counted| counted.is_of(view.docked.scope, view));
    let is_part = matches!(kind, OperationKind::Experts | OperationKind::Router) || kind.is_exchange();
    let counted = counted.filter(|_| is_part)?;
    let load = counted.table.experts.as_ref()?.of_rank(span.rank)?;
    Some(format!("experts in {}: {load}", counted.part.label(&view.pane().index)))
}

/// NCCL's choices for a collective; `None` if the trace has none.
fn collective(info: &CollectiveInfo) -> Option<String> {
    let chosen = [&info.algorithm, &info.protocol].map(|text| text.as_str());
    let chosen: Vec<&str> = chosen.into_iter().filter(|text| !text.is_empty()).collect();
    let bytes = info.message_bytes.map(|bytes| format!("message {}", si(bytes as f64, "B")));
    let channels = info.channels.map(|channels| counted(channels as usize, "channel"));
    let first = (!chosen.is_empty()).then(|| format!("{}: {}", info.name, chosen.join(" ")))?;
    Some([Some(first), channels, bytes].into_iter().flatten().collect::<Vec<_>>().join(", "))
}

/// Launch configuration of the kernel under the cursor from the imported file, or the lookup status.
fn launch(view: &TimelineView, pane: &Pane) -> Option<String> {
    let bytes = pane.index.files?;
    if view.looked_up(view.focus).is_none() {
        let size = si(bytes as f64, "B");
        return Some(format!("i: look up grid, block and operator ({size} to read)"));
    }
    let (_, found) = match &pane.kernel {
        Some(kernel) if Some(kernel.0) == pane.span_index() => kernel,
        _ => return Some("looking into the file…".into()),
    };
    let kernel = match found {
        Ok(Some(kernel)) => kernel,
        Ok(None) => return Some("no more details in the file".into()),
        Err(why) => return Some(format!("no more details: {why}")),
    };
    let three =
        |what: &str, size: &Option<[i64; 3]>| size.map(|[x, y, z]| format!("{what} {x} x {y} x {z}"));
    let sizes = [three("grid", &kernel.grid), three("block", &kernel.block)];
    let by = match (&kernel.operator, &kernel.call) {
        (Some(operator), Some(call)) => Some(format!("launched by {operator} ({call})")),
        (Some(one), None) | (None, Some(one)) => Some(format!("launched by {one}")),
        (None, None) => None,
    };
    let correlation = kernel.correlation.map(|number| format!("correlation {number}"));
    let told: Vec<String> = sizes.into_iter().chain([by, correlation]).flatten().collect();
    Some(if told.is_empty() { "no more details in the file".into() } else { told.join(", ") })
}

/// Part of a communication span during which its rank computes nothing, and the reason if the spans show it: `exposed 9.25
/// ms of 9.31 ms (99.4 %): holds up gemm`, or `exposed 99.4 %: holds up gemm` behind the parts that a known `arrival` gives.
fn exposure(pane: &Pane, span: &Span, arrival: Option<i64>) -> Option<String> {
    let index = &pane.index;
    let length = span.end_ns.saturating_sub(span.start_ns);
    if index.spans().class(span) != SpanClass::Comm || length <= 0 {
        return None;
    }
    let at = index.rank_of(pane.current()?);
    let exposed = index.ranks.get(at)?.exposed.within((span.start_ns, span.end_ns));
    Some(match exposed {
        0 => "hidden: the rank computes meanwhile".into(),
        exposed => {
            let share = percent(Some(100.0 * exposed as f64 / length as f64));
            let why = exposure_reason(index, at, span, exposed == length);
            match arrival {
                Some(_) => format!("exposed {share}{why}"),
                None => format!("╱ exposed {} of {} ({share}){why}", ns(exposed), ns(length)),
            }
        }
    })
}

/// Reason why communication of a rank (by index) is exposed: no work was launched, the next kernel begins when it ends, or
/// at least that nothing runs beside it. Empty if the spans do not show it.
fn exposure_reason(index: &TraceIndex, rank: usize, span: &Span, is_all_exposed: bool) -> String {
    let end = span.end_ns;
    let ends_exposed = index.ranks[rank].exposed.within((end - 1, end)) > 0;
    let next = index.computes_after(rank, end).filter(|_| ends_exposed);
    if let Some(next) = next.map(|next| &index.trace.spans[next]) {
        let name = lists::brief(index.name(next), lists::SHORT_NAME);
        match NextCompute::new(&index.trace, span, next) {
            NextCompute::HeldUp => return format!(": holds up {name}"),
            NextCompute::LaunchedLater(late) => {
                return format!(": {name} was launched {} after it ended", ns(late));
            }
            NextCompute::Unrelated => {}
        }
    }
    let beside = if is_all_exposed { ": no compute on this rank runs beside it" } else { "" };
    beside.into()
}

/// Parts of a collective before and after its last rank arrives: `░ waited 500 ns for peers, ▓ transfer 14.5 us`.
fn transfer_and_waiting(pane: &Pane, span: &Span, arrival: i64) -> String {
    let (waited, moved) = (arrival.saturating_sub(span.start_ns), span.end_ns.saturating_sub(arrival));
    let waits = drawn(pane, (span.start_ns, arrival), ["░", "╲"]);
    let moves = drawn(pane, (arrival, span.end_ns), ["▓", "╱"]);
    let late = late_rank(&pane.index, span, arrival).filter(|_| waited > 0);
    let peers = late.map_or_else(|| peers(&pane.index, span).to_owned(), |rank| format!("rank {rank}"));
    format!("{waits}waited {} for {peers}, {moves}transfer {}", ns(waited), ns(moved))
}

/// Other rank that arrived last at the collective of a span: the only one with communication that starts then. `None` if
/// several have, or none.
fn late_rank(index: &TraceIndex, span: &Span, arrival: i64) -> Option<u32> {
    let kind = index.trace.operation_kind(span);
    let starts_then = |row: usize| {
        let first = index.rows[row].from(index.spans(), arrival);
        let at = (first..first + 2).filter_map(|place| index.span(row, place));
        at.filter(|at| at.start_ns == arrival).any(|at| index.trace.operation_kind(at) == kind)
    };
    let others = index.ranks.iter().filter(|rank| rank.rank != span.rank);
    let mut late = others.filter(|rank| rank.rows.clone().any(starts_then)).map(|rank| rank.rank);
    late.next().filter(|_| late.next().is_none())
}

/// Ranks that a communication span may wait for, in words.
fn peers(index: &TraceIndex, span: &Span) -> &'static str {
    match index.trace.operation_kind(span) {
        Some(OperationKind::SendRecv) => "the peer",
        _ => "peers",
    }
}

/// Time of a span, with its launch, and a remark if an unknown part of it may be waiting for peers.
fn timing(view: &TimelineView, span: &Span, arrival: Option<i64>) -> String {
    let index = &view.pane().index;
    let mut text = interval(view, (span.start_ns, span.end_ns));
    // 1 ns encodes a launch that returned after the start
    if span.ready_ns >= 0 && span.ready_ns + 1 < span.start_ns {
        // foreign traces have the time of the launch
        let was = match (index.trace.meta.import.is_some(), view.pane().launch().is_some()) {
            // with its mark in the lanes
            (_, true) => "↓ launched",
            (true, false) => "launched",
            (false, false) => "ready",
        };
        text.push_str(&format!(", {was} {} before", ns(span.start_ns - span.ready_ns)));
    }
    if arrival.is_none() && index.spans().class(span) == SpanClass::Comm {
        text.push_str(&format!("; may include waiting for {}", peers(index, span)));
    }
    text
}

/// Marks with which a lane draws a part of the collective under the cursor, and a space: of hidden communication, of
/// exposed communication, or of both; empty for a part without length.
fn drawn(pane: &Pane, (from, to): (i64, i64), [hidden, exposed]: [&str; 2]) -> String {
    let rank = pane.current().and_then(|line| pane.index.ranks.get(pane.index.rank_of(line)));
    let exposed_ns = rank.map_or(0, |rank| rank.exposed.within((from, to)));
    let share = exposed_ns as f64 / to.saturating_sub(from).max(1) as f64;
    match (share * 8.0).round() as usize {
        _ if to <= from => String::new(),
        0 => format!("{hidden} "),
        1..=7 => format!("{hidden}{exposed} "),
        _ => format!("{exposed} "),
    }
}

/// FLOPs, bytes and achieved rates, if the trace has the costs.
fn work(pane: &Pane, span: &Span, arrival: Option<i64>) -> Option<String> {
    let trace = &pane.index.trace;
    let info = trace.operations.get(span.operation as usize)?;
    let step = trace.step(span)?;
    let duration = span.end_ns.saturating_sub(span.start_ns);
    let transfer = arrival.map_or(duration, |arrival| span.end_ns.saturating_sub(arrival));
    let cost = |q: &Quantity| q.at(&step) as f64;
    let (flops, message) = (cost(&info.cost.flops), cost(&info.cost.message_bytes));
    let (read, written) = (cost(&info.cost.bytes_read), cost(&info.cost.bytes_written));
    let rate = |amount: f64, over: i64| digits(amount / over as f64);
    let (work, achieved) = match info.lane {
        Lane::Comm => (
            format!("message {}", si(message, "B")),
            format!("; achieved {} GB/s (message bytes)", rate(message, transfer)),
        ),
        Lane::Compute => (
            format!("{}, {} read, {} written", si(flops, "FLOP"), si(read, "B"), si(written, "B")),
            format!(
                "; achieved {} GB/s, {}",
                rate(read + written, duration),
                si(flops / duration as f64 * 1e9, "FLOP/s")
            ),
        ),
    };
    Some(if transfer > 0 { work + &achieved } else { work })
}
