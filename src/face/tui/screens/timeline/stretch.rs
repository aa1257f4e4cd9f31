//! Numbers of the selected interval as text: the selection, or from mark A to mark B.

use super::draw::seconds;
use super::info::fitted;
use super::state::measure::Measured;
use super::state::window::Window;
use super::state::{Pane, View};
use crate::face::tui::prelude::*;

/// Lines of numbers, wrapped when drawn; empty until computed.
pub fn content(view: &View) -> Vec<String> {
    match view.panes.len() {
        1 => view.measured(0).map_or(Vec::new(), |(measured, _)| one(measured)),
        _ => two(view),
    }
}

pub fn draw(buf: &mut Buffer, area: Rect, view: &View, theme: Theme) {
    let Some(stretch) = view.stretch() else { return };
    let inner = frame(buf, area, &title(view, stretch), theme);
    let lines = content(view);
    let text = theme.style(Role::Text);
    let width = usize::from(inner.width.saturating_sub(2));
    for (row, words) in (0..inner.height).zip(fitted(&lines, width, inner.height.into())) {
        line(buf, inner, row, &[(" ", text), (&words, text)]);
    }
    let current = (0..view.panes.len()).all(|at| view.measured(at).is_some_and(|(_, now)| now));
    if !current {
        let note =
            if lines.is_empty() { " counting… " } else { " of the stretch before; counting… " };
        let x = area.right().saturating_sub(note.width() as u16 + 2);
        put(buf, area, x, area.bottom().saturating_sub(1), note, theme.style(Role::Warn));
    }
}

/// Title such as `selection 46.0 us: 0.000051000 to 0.000097000 s`.
fn title(view: &View, stretch: Window) -> String {
    let pane = view.pane();
    let own = pane.window(stretch);
    let at = |ns: i64| seconds(ns.saturating_sub(pane.index.zero), 9);
    let what = match view.selected {
        Some(selected) if selected.extending => "selecting",
        Some(_) => "selection",
        None => "A to B",
    };
    format!("{what} {}: {} to {} s", ns(stretch.width()), at(own.from), at(own.to))
}

fn one(measured: &Measured) -> Vec<String> {
    let (all, ranks) = (&measured.report.all, measured.ranks());
    let us = |value: f64| format!("{} us", digits(value / ranks));
    let list = |list: &[(String, f64)]| {
        // operations of unknown modules have an empty name
        let named = list.iter().filter(|(name, _)| !name.is_empty());
        let part = |(name, us): &(String, f64)| format!("{name} {} us", digits(*us));
        named.map(part).collect::<Vec<_>>().join(" · ")
    };
    vec![
        format!(
            "overlap {}   comm {}, ╱ exposed {}, ░ waits for peers {}",
            percent(all.overlap_pct),
            us(all.comm_us),
            us(all.exposed_comm_us),
            all.peer_wait_us.map_or_else(|| "-".to_owned(), us)
        ),
        format!(
            "compute {}, {}idle {}   a rank, mean of {ranks}",
            us(all.compute_us),
            if all.memory_us > 0.0 { format!("memory {}, ", us(all.memory_us)) } else { String::new() },
            us(all.idle_us)
        ),
        format!("{} operations   {}", measured.count, steps(measured)),
        format!("kinds: {}", list(&measured.kinds)),
        match list(&measured.modules) {
            modules if modules.is_empty() => "modules: not known of these operations".into(),
            modules => format!("modules: {modules}"),
        },
    ]
}

/// Text such as `step 3 to step 5, 2 steps begin`.
fn steps(measured: &Measured) -> String {
    let begin = match measured.begins {
        0 => "no step begins".to_string(),
        1 => "1 step begins".into(),
        n => format!("{n} steps begin"),
    };
    match measured.steps {
        Some((a, b)) if a == b => format!("within {}; {begin}", a.label()),
        Some((a, b)) => format!("{} to {}; {begin}", a.label(), b.label()),
        None => begin,
    }
}

/// Both traces over the same interval, and the difference (lower minus upper).
fn two(view: &View) -> Vec<String> {
    let numbers: Vec<&Measured> =
        (0..view.panes.len()).filter_map(|at| Some(view.measured(at)?.0)).collect();
    let [a, b] = numbers[..] else { return Vec::new() };
    let row = |name: &str, m: &Measured| {
        let us = |value: f64| digits(value / m.ranks());
        let all = &m.report.all;
        format!(
            "{name:<6} {:>8} {:>9} {:>9} {:>9} {:>9} {:>7}",
            percent(all.overlap_pct),
            us(all.comm_us),
            us(all.exposed_comm_us),
            us(all.compute_us),
            us(all.idle_us),
            m.count
        )
    };
    let less = |get: fn(&Measured) -> f64| {
        let delta = get(b) / b.ranks() - get(a) / a.ranks();
        format!("{}{}", if delta > 0.0 { "+" } else { "" }, digits(delta))
    };
    let overlap = |m: &Measured| m.report.all.overlap_pct;
    let points = overlap(b).zip(overlap(a)).map_or("-".into(), |(b, a)| format!("{:+.1}", b - a));
    vec![
        format!(
            "us/rank {:>8} {:>8} {:>9} {:>9} {:>9} {:>7}",
            "overlap", "comm", "exposed", "compute", "idle", "ops"
        ),
        row("upper", a),
        row("lower", b),
        format!(
            "{:<6} {points:>8} {:>9} {:>9} {:>9} {:>9} {:>+7}",
            "less",
            less(|m| m.report.all.comm_us),
            less(|m| m.report.all.exposed_comm_us),
            less(|m| m.report.all.compute_us),
            less(|m| m.report.all.idle_us),
            b.count as i64 - a.count as i64
        ),
        format!("upper: {}; lower: {}", steps(a), steps(b)),
    ]
}

/// Numbers as text for the clipboard, one line per trace; `None` until computed.
pub fn text(view: &View) -> Option<String> {
    let stretch = view.stretch()?;
    let lines: Option<Vec<String>> = (0..view.panes.len())
        .map(|at| {
            let (measured, true) = view.measured(at)? else { return None };
            Some(of_pane(&view.panes[at], measured, stretch))
        })
        .collect();
    Some(lines?.join("\n"))
}

fn of_pane(pane: &Pane, measured: &Measured, stretch: Window) -> String {
    let own = pane.window(stretch);
    let at = |ns: i64| seconds(ns.saturating_sub(pane.index.zero), 9);
    let (all, ranks) = (&measured.report.all, measured.ranks());
    let us = |value: f64| format!("{:.3} us", value / ranks);
    format!(
        "{} [{}] {} to {} s ({:.3} us), {}: overlap {}, comm {}, exposed {}, waits for peers {}, compute {}, idle {} (a rank, mean of {ranks}); {} operations",
        pane.index.title,
        pane.index.provenance(),
        at(own.from),
        at(own.to),
        own.width() as f64 / 1e3,
        steps(measured),
        percent(all.overlap_pct),
        us(all.comm_us),
        us(all.exposed_comm_us),
        all.peer_wait_us.map_or_else(|| "-".to_owned(), us),
        us(all.compute_us),
        us(all.idle_us),
        measured.count
    )
}
