//! Numbers of the selected interval, beside the description of the item under the cursor.

use super::info::{bounds, draw_lines, exact};
use super::lists::{SHORT_NAME, brief, plus};
use super::state::measure::MeasuredInterval;
use super::state::window::TimeWindow;
use super::state::{Pane, TimelineView, TraceIndex};
use crate::face::tui::prelude::*;
use base::text::latency;
use trace::Span;

/// Lines of numbers, wrapped when drawn; empty until computed.
pub fn content(view: &TimelineView) -> Vec<String> {
    match view.panes.len() {
        1 => view.measured(0).map_or(Vec::new(), |(measured, _)| {
            let mut lines = gap(view);
            lines.extend(one(&view.panes[0], measured));
            lines
        }),
        _ => two(view),
    }
}

/// Explanation of a selected gap of the cursor's rank: its cause, the host's range during it, and the work before and after
/// it. Empty if the rank is not idle in the selection.
pub fn gap(view: &TimelineView) -> Vec<String> {
    let (pane, index) = (view.pane(), &view.pane().index);
    let Some((selected, line)) = view.selected.zip(pane.current()) else { return Vec::new() };
    let (gap, rank) = (pane.window(selected.window), index.rank_of(line));
    let Some((before, after)) = index.around_gap(rank, gap) else { return Vec::new() };
    let [before, after] = [before, after].map(|at| &index.trace.spans[at]);
    let name = |span| brief(index.name(span), SHORT_NAME);
    let mut lines = host_wait(index, gap, after).map_or_else(
        || launch(index, gap, after).into_iter().collect(),
        |wait| vec![format!("the GPU waited {} for the host", ns(wait))],
    );
    lines.extend(host_during(index, rank, gap, after).map(|host| format!("its thread was {host}")));
    let of_rank = match index.rank_count() {
        0 | 1 => String::new(),
        _ => format!("rank {} ", index.ranks[rank].rank),
    };
    lines.push(format!("{of_rank}idle between {} and {}", name(before), name(after)));
    lines
}

/// Time of the launch of a span; unknown in ladderscope's own traces, whose ready times refer to operands.
fn launched_at(index: &TraceIndex, span: &Span) -> Option<i64> {
    (index.trace.meta.import.is_some() && span.is_launch_known()).then_some(span.ready_ns)
}

/// Part of a gap before the launch of the work after it (ns), if that is most of the gap.
fn host_wait(index: &TraceIndex, gap: TimeWindow, after: &Span) -> Option<i64> {
    let launched = launched_at(index, after)?;
    let (wait, queued) = (launched.saturating_sub(gap.from), after.start_ns.saturating_sub(launched));
    (wait > 0 && wait >= queued).then_some(wait)
}

/// Launch of the work after a gap that the host did not cause.
fn launch(index: &TraceIndex, gap: TimeWindow, after: &Span) -> Option<String> {
    let launched = launched_at(index, after)?;
    let name = brief(index.name(after), SHORT_NAME);
    Some(match launched > gap.from {
        true => format!(
            "{name} was launched {} into the gap, {} before it started: the launch was not the main delay",
            ns(launched.saturating_sub(gap.from)),
            ns(after.start_ns.saturating_sub(launched))
        ),
        false => format!(
            "{name} was launched {} before the gap: the host was in time",
            ns(gap.from.saturating_sub(launched))
        ),
    })
}

/// Innermost range or operator during most of a gap of a rank (by index), on the thread that launched the work after it: `in
/// aten::addmm for 2.43 ms`.
fn host_during(index: &TraceIndex, rank: usize, gap: TimeWindow, after: &Span) -> Option<String> {
    let launch = index.trace.ranges.get(after.launched.range as usize)?;
    let (range, filled) = index.range_during(rank, launch.thread, gap)?;
    Some(format!("in {} for {}", index.range_name(range), ns(filled)))
}

/// Wait of the GPU for the host just before a span of a rank (by index); `None` if the rank was not idle before it, or mostly
/// for another reason.
pub fn wait_before(index: &TraceIndex, rank: usize, span: &Span) -> Option<String> {
    let just_before = TimeWindow::new(span.start_ns.saturating_sub(1), span.start_ns);
    let (before, _) = index.around_gap(rank, just_before)?;
    let gap = TimeWindow::new(index.trace.spans[before].end_ns, span.start_ns);
    let wait = host_wait(index, gap, span)?;
    let host = host_during(index, rank, gap, span);
    let host = host.map(|host| format!("; its thread was {host}")).unwrap_or_default();
    Some(format!("before it, the GPU waited {} for the host{host}", ns(wait)))
}

pub fn draw(buf: &mut Buffer, area: Rect, view: &TimelineView, theme: Theme) {
    let Some(stretch) = view.stretch() else { return };
    let inner = frame(buf, area, &title(view, stretch), theme);
    let lines = content(view);
    draw_lines(buf, inner, &lines, theme);
    let current = (0..view.panes.len()).all(|at| view.measured(at).is_some_and(|(_, now)| now));
    if !current {
        let note =
            if lines.is_empty() { " counting… " } else { " of the previous interval; counting… " };
        let x = area.right().saturating_sub(note.width() as u16 + 2);
        put(buf, area, x, area.bottom().saturating_sub(1), note, theme.style(Role::Warn));
    }
}

/// Title such as `selection 46.0 us: 5.000 us to 51.000 us`.
fn title(view: &TimelineView, stretch: TimeWindow) -> String {
    let what = match view.selected {
        Some(selected) if selected.extending => "selecting",
        Some(_) => "selection",
        None => "A to B",
    };
    format!("{what} {}: {}", ns(stretch.width()), bounds(view, view.pane().window(stretch)))
}

fn one(pane: &Pane, measured: &MeasuredInterval) -> Vec<String> {
    let list = |list: &[(String, f64)]| {
        // operations of unknown modules have an empty name
        let named = list.iter().filter(|(name, _)| !name.is_empty());
        let part = |(name, us): &(String, f64)| format!("{name} {}", latency(*us));
        named.map(part).collect::<Vec<_>>().join(" · ")
    };
    let [communication, rest, count] = numbers(pane, measured, latency);
    let mut lines = vec![communication, rest, count];
    // an idle interval has no operations to sort
    if measured.count > 0 {
        lines.push(format!("kinds: {}", list(&measured.kinds)));
        lines.push(match list(&measured.modules) {
            modules if modules.is_empty() => "modules: unknown for these operations".into(),
            modules => format!("modules: {modules}"),
        });
    }
    lines
}

/// Communication, all else, and the operations of an interval; times are per rank.
fn numbers(pane: &Pane, measured: &MeasuredInterval, written: fn(f64) -> String) -> [String; 3] {
    let (all, ranks) = (&measured.report.all, measured.ranks());
    let us = |value: f64| written(value / ranks);
    let memory =
        if all.memory_us > 0.0 { format!("memory {}, ", us(all.memory_us)) } else { String::new() };
    [
        format!(
            "overlap {}   comm {}, ╱ exposed {}, ░ waits for peers {}",
            percent(all.overlap_pct),
            us(all.comm_us),
            us(all.exposed_comm_us),
            all.peer_wait_us.map_or_else(|| "-".to_owned(), us)
        ),
        format!(
            "compute {}, {memory}idle {}   per rank, mean of {}",
            us(all.compute_us),
            us(all.idle_us),
            measured.meant_ranks()
        ),
        format!("{}   {}", counted(measured.count as usize, "operation"), steps(pane, measured)),
    ]
}

/// Text such as `step 3 to step 5, 2 steps begin`.
fn steps(pane: &Pane, measured: &MeasuredInterval) -> String {
    let label = |key| pane.index.step_label(key);
    let begin = match measured.begins {
        0 => "no step begins".to_string(),
        1 => "1 step begins".into(),
        n => format!("{n} steps begin"),
    };
    match measured.steps {
        Some((a, b)) if a == b => format!("within {}; {begin}", label(a)),
        Some((a, b)) => format!("{} to {}; {begin}", label(a), label(b)),
        None => begin,
    }
}

/// Both traces over the same interval, and the difference (lower minus upper).
fn two(view: &TimelineView) -> Vec<String> {
    let numbers: Vec<&MeasuredInterval> =
        (0..view.panes.len()).filter_map(|at| Some(view.measured(at)?.0)).collect();
    let [a, b] = numbers[..] else { return Vec::new() };
    let times = |m: &MeasuredInterval| {
        let all = &m.report.all;
        [all.comm_us, all.exposed_comm_us, all.compute_us, all.idle_us].map(|us| us / m.ranks())
    };
    let row = |name: &str, overlap: String, times: [String; 4], count: String| {
        let [comm, exposed, compute, idle] = times;
        let name = cut(name, 10);
        format!("{name:<10} {overlap:>8} {comm:>9} {exposed:>9} {compute:>9} {idle:>9} {count:>7}")
    };
    let [upper, lower] = super::header::names(view);
    let [above, below] = [a, b].map(times);
    let change = std::array::from_fn(|at| plus(below[at] - above[at], digits));
    let overlap = |m: &MeasuredInterval| m.report.all.overlap_pct;
    let points = overlap(b).zip(overlap(a)).map_or("-".into(), |(b, a)| format!("{:+.1}", b - a));
    vec![
        "us per rank overlap      comm   exposed   compute      idle     ops".into(),
        row(&upper, percent(overlap(a)), above.map(digits), a.count.to_string()),
        row(&lower, percent(overlap(b)), below.map(digits), b.count.to_string()),
        row("change", points, change, format!("{:+}", b.count as i64 - a.count as i64)),
        format!("{upper}: {}; {lower}: {}", steps(&view.panes[0], a), steps(&view.panes[1], b)),
    ]
}

/// Numbers as text for the clipboard, one line per trace: the numbers first, which a short message then shows. `None`
/// until computed.
pub fn text(view: &TimelineView) -> Option<String> {
    let stretch = view.stretch()?;
    let lines: Option<Vec<String>> = (0..view.panes.len())
        .map(|at| {
            let (measured, true) = view.measured(at)? else { return None };
            Some(of_pane(&view.panes[at], measured, stretch))
        })
        .collect();
    Some(lines?.join("\n"))
}

fn of_pane(pane: &Pane, measured: &MeasuredInterval, stretch: TimeWindow) -> String {
    let own = pane.window(stretch);
    // the clipboard has no ruler: since the first start, as in `overlap --from`
    let at = |time: i64| exact(time.saturating_sub(pane.index.zero));
    let us = |us: f64| format!("{us:.3} us");
    format!(
        "{}; {} to {} of the trace ({}), {} [{}]",
        numbers(pane, measured, us).join("; "),
        at(own.from),
        at(own.to),
        us(own.width() as f64 / 1e3),
        pane.index.title,
        pane.index.provenance()
    )
}
