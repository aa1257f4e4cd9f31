//! Text around the plot: selected point, area gained, frontiers at fixed x.

use super::state::Pareto;
use super::state::series::Entry;
use crate::face::tui::prelude::*;
use plan::Architecture;
use study::analysis::{
    AreaGained, AtLimit, BestAtLimit, LEAST_CELLS, ParetoPoint, TOO_CLOSE, is_too_close,
};
use table::Provenance;

pub fn draw(buf: &mut Buffer, area: Rect, pareto: &Pareto, cx: &Context) {
    let theme = cx.theme;
    let Some(point) = pareto.current() else { return };
    let (text, title, dim) = (theme.style(Role::Text), theme.style(Role::Title), theme.style(Role::Dim));
    let label = format!(" [{}] ", point.provenance);
    let what = point.spec.label();
    let standing = standing(pareto, point);
    line(
        buf,
        area,
        0,
        &[(&label, theme.provenance(point.provenance)), (&what, title), (&standing, text)],
    );
    line(buf, area, 1, &[(&numbers(pareto, point), text)]);
    let gained = pareto.area().map_or_else(String::new, |a| gained(pareto, a));
    for (row, text) in
        wrap(&gained, usize::from(area.width.saturating_sub(2))).iter().enumerate().take(2)
    {
        line(buf, area, 2 + row as u16, &[(" ", dim), (text, dim)]);
    }
}

/// True if [`draw_headline`] has a row: not for quality, and not without points.
pub fn has_headline(pareto: &Pareto) -> bool {
    pareto.axes.quality().is_none() && !pareto.limits.is_empty() && pareto.current().is_some()
}

/// Draws the headline, after its provenance where both fit; the selected point below always shows it.
pub fn draw_headline(buf: &mut Buffer, area: Rect, pareto: &Pareto, cx: &Context) {
    let (Some(best), Some(point)) = (headline(pareto), pareto.current()) else { return };
    let label = format!(" [{}]", point.provenance);
    let best = format!(" {best}");
    let has_room = label.width() + best.width() <= usize::from(area.width);
    let label = if has_room { label } else { String::new() };
    let (title, provenance) = (cx.theme.style(Role::Title), cx.theme.provenance(point.provenance));
    line(buf, area, 0, &[(&label, provenance), (&best, title)]);
}

/// Best choices at the tightest limit that most architectures meet, with the selected point's P2P setting:
/// `Most tokens/s/GPU within 10.0 s, P2P on: parallel 124 (TP 8, batch 16), ladder 122`.
fn headline(pareto: &Pareto) -> Option<String> {
    /// Architectures named, best first.
    const NAMED: usize = 4;
    if !has_headline(pareto) {
        return None;
    }
    let of = pareto.current()?.series();
    let shown: Vec<_> = pareto.lines.iter().filter(|line| !line.places.is_empty()).collect();
    let shown: Vec<_> = shown.iter().filter_map(|line| pareto.entries.get(line.entry)).collect();
    let is_choice = |at: &&AtLimit| {
        let series = |entry: &&&Entry| {
            let series = &entry.series;
            series.architecture == at.architecture
                && (series.p2p, &series.setting) == (at.p2p, &at.setting)
        };
        (at.p2p, &at.setting) == (of.p2p, &of.setting)
            && !at.architecture.is_limit()
            && shown.iter().any(|entry| series(&entry))
    };
    let choices: Vec<&AtLimit> = pareto.limits.iter().filter(is_choice).collect();
    let met = |limit: f64| choices.iter().filter(move |at| at.limit == limit && at.best.is_some());
    let mut limits: Vec<f64> = choices.iter().map(|at| at.limit).collect();
    limits.sort_by(f64::total_cmp);
    let more = pareto.axes.x.is_more_better();
    if !more {
        limits.reverse();
    }
    // of equal ones the last, which is the tightest
    let limit = limits.into_iter().max_by_key(|limit| met(*limit).count())?;
    let with_best = met(limit).filter_map(|at| Some((&at.architecture, at.best.as_ref()?)));
    let mut best: Vec<(_, &BestAtLimit)> = with_best.collect();
    best.sort_by(|a, b| b.1.y.total_cmp(&a.1.y));
    let named = best.iter().take(NAMED).enumerate().map(|(place, (architecture, best))| {
        let (value, place) = (digits(best.y), place == 0);
        let setting =
            if place { format!(" (TP {}, batch {})", best.tp, best.batch) } else { String::new() };
        format!("{architecture} {value}{setting}")
    });
    let named: Vec<String> = named.collect();
    let (unit, by) = pareto.unit();
    let bound = if more { "at least" } else { "within" };
    let both = pareto.entries.iter().any(|entry| entry.series.p2p != of.p2p);
    let p2p = if both { format!(", P2P {}", of.p2p.as_str()) } else { String::new() };
    let close = match &best[..] {
        [first, second, ..] => {
            let is_simulated = |point: &ParetoPoint| point.provenance == Provenance::Simulated;
            pareto.point(&first.1.run).is_some_and(is_simulated) && is_too_close(first.1.y / second.1.y)
        }
        _ => false,
    };
    let close = if close { format!("; {TOO_CLOSE}") } else { String::new() };
    let (y, limit) = (pareto.axes.y.title(), digits(limit / by));
    (!named.is_empty())
        .then(|| format!("Most {y} {bound} {limit} {unit}{p2p}: {}{close}", named.join(", ")))
}

/// Describes the frontier the point is on, or what dominates it.
fn standing(pareto: &Pareto, point: &ParetoPoint) -> String {
    if pareto.marked != pareto.axes {
        return String::new();
    }
    let close = if point.too_close { format!(", {TOO_CLOSE}") } else { String::new() };
    if point.on_frontier {
        return format!(": on the frontier{close}");
    }
    if point.is_limit() {
        return ": a limit, not a choice".into();
    }
    let own = if point.on_series_frontier { ": on its own frontier, " } else { ": " };
    match point.dominated_by.as_ref().and_then(|run| pareto.point(run)) {
        Some(by) => {
            let hidden =
                if pareto.visible().any(|p| p.run == by.run) { "" } else { ", which is not shown" };
            format!("{own}dominated by {}{hidden}{close}", by.spec.label())
        }
        None => format!("{own}dominated"),
    }
}

fn numbers(pareto: &Pareto, point: &ParetoPoint) -> String {
    let (x, y) = (pareto.axes.x, pareto.axes.y);
    let with = |value: Option<f64>, ci: Option<[f64; 2]>, by: f64| {
        let value = value.map_or("-".into(), |value| digits(value / by));
        let ends = |[low, high]: [f64; 2]| format!(" [{}, {}]", digits(low / by), digits(high / by));
        format!("{value}{}", ci.map(ends).unwrap_or_default())
    };
    let (unit, by) = pareto.unit();
    let name = match x {
        study::analysis::XAxis::Tpot => "TPOT ",
        study::analysis::XAxis::Ttft => "TTFT ",
        _ => "",
    };
    let mut text = format!(
        " {name}{} {}, {} {}",
        with(x.of(point), x.interval(point), by),
        unit,
        with(y.of(point), y.interval(point), 1.0),
        y.title()
    );
    if x != study::analysis::XAxis::Tpot {
        text.push_str(&format!(", TPOT {} ms", digits(point.tpot_ms)));
    }
    // the provenance label already covers where the times come from
    if let (Some(measure), Some(quality)) = (pareto.axes.quality(), &point.quality) {
        text.push_str(&format!(", {} {}", measure.title, quality.told()));
    }
    format!("{text}, run {}", point.run)
}

/// Area gained in one line, with its reference point, scales and provenance.
fn gained(pareto: &Pareto, a: &AreaGained) -> String {
    // the area of two cells is a single step, whose size depends on their arbitrary distance
    if a.cells < LEAST_CELLS {
        return format!(
            "area of {} over {} (P2P {}): needs {LEAST_CELLS} matched cells, have {}",
            a.architecture,
            a.baseline,
            a.p2p.as_str(),
            a.cells
        );
    }
    let percent = a.gained_pct.map_or("-".into(), |v| format!("{v:+.1} %"));
    let interval = match a.gained_pct_ci95 {
        Some([low, high]) => format!(" [{low:+.1}, {high:+.1}]"),
        None => String::new(),
    };
    let scale = if a.x_scale == a.y_scale {
        a.x_scale.to_string()
    } else {
        format!("{} x, {} y", a.x_scale, a.y_scale)
    };
    format!(
        "frontier area vs {} (P2P {}): {} {percent}{interval}, {}, {} (up to {} {}, from {} {}, {scale}; not a speedup)",
        a.baseline,
        a.p2p.as_str(),
        a.architecture,
        counted(a.cells, "matched cell"),
        a.provenance,
        digits(a.reference[0] / pareto.unit().1),
        pareto.unit().0,
        digits(a.reference[1]),
        pareto.axes.y.title(),
    )
}

const CELL: u16 = 20;

const RATIOS: &str = "×: over standard's best in the same column, of the same batch, P2P and setting";

/// Draws the frontiers at fixed x: the best y, its TP x batch, and its ratio to standard.
pub fn draw_table(buf: &mut Buffer, area: Rect, pareto: &Pareto, cx: &Context) {
    if area.height < 2 {
        return;
    }
    let theme = cx.theme;
    let (text, title, dim) = (theme.style(Role::Text), theme.style(Role::Title), theme.style(Role::Dim));
    let entries = pareto.lines.iter().filter(|line| !line.places.is_empty());
    let all: Vec<usize> = entries.map(|line| line.entry).collect();
    // a low window shows the rows around the selected series and counts the rest
    let rows = usize::from(area.height) - 1;
    let fitting = if all.len() > rows { rows - 1 } else { all.len() };
    let selected = all.iter().position(|entry| Some(*entry) == pareto.selected_entry());
    let first = selected.map_or(0, |at| (at + 1).saturating_sub(fitting.max(1)));
    let left_out = all.len() - fitting;
    let entries = all.iter().skip(first).take(fitting);
    let entries: Vec<_> = entries.filter_map(|entry| pareto.entries.get(*entry)).collect();
    let bound = if pareto.axes.x.is_more_better() { "at least" } else { "within" };
    let head = format!(" best {} {bound}", pareto.axes.y.title());
    let names = entries.iter().map(|e| e.series.label().width() + 4);
    let names = names.chain([head.width() + 1]).max().unwrap_or(0) as u16;
    let mut limits: Vec<f64> = pareto.limits.iter().map(|row| row.limit).collect();
    limits.sort_by(f64::total_cmp);
    limits.dedup();
    let fit = usize::from(area.width.saturating_sub(names) / CELL);
    put(buf, area, area.x, area.y, &head, title);
    let mut ratios = false;
    for (column, limit) in limits.iter().take(fit).enumerate() {
        let x = area.x + names + column as u16 * CELL;
        let (unit, by) = pareto.unit();
        let name = format!("{} {unit}", digits(*limit / by));
        put(buf, area, x, area.y, &name, title);
        for (row, entry) in entries.iter().enumerate() {
            let found = pareto.limits.iter().find(|at| {
                at.limit == *limit
                    && at.architecture == entry.series.architecture
                    && at.p2p == entry.series.p2p
                    && at.setting == entry.series.setting
            });
            let y = area.y + 1 + row as u16;
            let Some(best) = found.and_then(|at| at.best.as_ref()) else {
                put(buf, area, x, y, "-", dim);
                continue;
            };
            let value = format!("{:>5} {:<6}", digits(best.y), format!("{}x{}", best.tp, best.batch));
            // across batch sizes a ratio is no speedup
            let same = best.standard_batch.is_none_or(|batch| batch == best.batch);
            let of_itself = entry.series.architecture == Architecture::Standard;
            let over = best.over_standard.filter(|_| same && !of_itself);
            ratios |= over.is_some();
            let over = over.map(|over| format!("{over:.2}×")).unwrap_or_default();
            let end = put(buf, area, x, y, &value, text);
            put(buf, area, end, y, &over, dim);
        }
    }
    if area.height as usize > 1 + entries.len() {
        let more = (left_out > 0).then(|| format!("{left_out} more series"));
        let words: Vec<String> = more.into_iter().chain(ratios.then(|| RATIOS.to_owned())).collect();
        put(buf, area, area.x + 1, area.bottom() - 1, &words.join("; "), dim);
    }
    for (row, entry) in entries.iter().enumerate() {
        let name = format!(" {} {}", entry.mark(), entry.series.label());
        put(
            buf,
            area,
            area.x,
            area.y + 1 + row as u16,
            &name,
            theme.style(Role::Architecture(entry.look)),
        );
    }
}
