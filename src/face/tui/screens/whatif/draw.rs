//! Drawing of screen 7: sliders on the left; TPOT of every architecture, a strip of two steps and the frontier on the right; break-even and kept variants below.

use std::sync::Arc;

use super::state::{StripView, WhatIf, letter};
use crate::face::tui::prelude::*;
use crate::face::tui::screens::whatif::Act;
use crate::face::tui::widgets::scatter::{Plot, mark};
use crate::face::tui::widgets::shade::{self, Shares};
use crate::face::tui::widgets::table::{self, Column};
use ::table::P2p;
use base::text::{latency, without_middle};
use plan::Lane;
use study::analysis::XAxis;
use study::plot::look_numbers;
use study::whatif::{
    Answer, BreakEven, Numbers, ProfileValues, Row, Slider, Strip, Variant, about_architecture,
    hidden_words,
};
use trace::overlap::intervals::{Coverage, union};

#[derive(Clone, Copy, Debug)]
pub struct Areas {
    header: Rect,
    pub sliders: Rect,
    bars: Rect,
    strip: Rect,
    frontier: Rect,
    /// Break-even and the help of the selected slider, under the sliders or at the bottom.
    notes: Rect,
    pins: Rect,
}

impl Areas {
    /// True if kept variants have a table.
    fn has_pins(&self) -> bool {
        self.pins.height > 0 || self.frontier.height > 1
    }
}

/// Minimum rows under the sliders to place the notes there.
const NOTES: u16 = 6;

/// Height below which sentences take the rows of the strip and of the frontier: both would be cut.
const LOW: u16 = 18;

/// Lays out a body for this many architectures, sliders and kept variants, with or without a strip.
pub fn areas(body: Rect, strip: bool, (architectures, sliders): (usize, usize), kept: usize) -> Areas {
    let (header, rest) = cut_top(body, 1);
    let large = body.height >= 34;
    // in a small window they scroll; a trace has fewer, but the notes stay in place
    let all = sliders.max(Slider::DENSE) as u16;
    // a large window has room for kept variants; a small one shows them instead of the frontier
    let pins = match (large, kept) {
        (true, 0) => 1,
        (true, kept) => (kept as u16 + 1).max(3),
        (false, _) => 0,
    };
    let beside = rest.height.saturating_sub(pins + 1 + all) >= NOTES;
    // the sliders of a trace leave room for whole sentences
    let spare = rest.height.saturating_sub(sliders as u16 + 8).min(2);
    let below = match (beside, body.height) {
        (true, _) => 0,
        // the sliders up to P2P stay
        (false, ..LOW) => rest.height.saturating_sub(architectures.max(8) as u16 + 1).max(2),
        (false, _) => 2 + spare,
    };
    let (rest, below) = cut_bottom(rest, below);
    let (rest, pins) = cut_bottom(rest, pins);
    let left = match body.width {
        110.. => 50,
        76.. => 36,
        _ => 29,
    };
    let (left, right) = cut_left(rest, left);
    let (_, right) = cut_left(right, 1);
    let (bars, right) = cut_top(right, architectures as u16 + if large { 2 } else { 1 });
    let (right, _) = cut_bottom(right, if body.height < LOW { right.height } else { 0 });
    let (strip, right) = cut_top(right, if strip { 5 } else { 0 });
    let (_, frontier) = if right.height > 12 { cut_top(right, 1) } else { cut_top(right, 0) };
    let (_, sliders) = cut_top(left, 1);
    let (sliders, under) = cut_top(sliders, all);
    let notes = if beside { cut_top(under, 1).1 } else { below };
    Areas { header, sliders, bars, strip, frontier, notes, pins }
}

pub fn tracks(sliders: Rect) -> (u16, u16) {
    let columns = match sliders.width {
        48.. => 14,
        36.. => 7,
        _ => 0,
    };
    (sliders.x + 13 + u16::from(columns > 0), columns)
}

pub fn draw(buf: &mut Buffer, body: Rect, whatif: &WhatIf, cx: &Context) {
    let theme = cx.theme;
    let areas = areas_of(body, whatif);
    let header = folded_notes(buf, areas.header, &notes(whatif, body, cx), cx);
    let pieces = header_pieces(whatif, areas.has_pins(), cx);
    let pieces: Vec<(&str, Style)> =
        pieces.iter().map(|(text, role)| (text.as_str(), theme.style(*role))).collect();
    line(buf, header, 0, &pieces);
    sliders(buf, &areas, theme, whatif);
    let Some(answer) = &whatif.answer else {
        let text = whatif.error.as_deref().unwrap_or("simulating…").replace('\n', ": ");
        put(buf, body, areas.bars.x, areas.bars.y + 1, &text, theme.style(Role::Dim));
        return;
    };
    match answer.cannot() {
        Some(why) => cannot(buf, areas.bars, &why, whatif, cx),
        None => bars(buf, areas.bars, theme, whatif, answer),
    }
    if whatif.strip != StripView::Hidden {
        let whole_step = whatif.strip == StripView::Step;
        if !answer.strips.is_empty() && !areas.strip.is_empty() {
            draw_strip(buf, areas.strip, theme, &answer.strips, whole_step);
        }
    }
    if areas.pins.height > 0 {
        frontier(buf, areas.frontier, theme, whatif, answer);
        pins(buf, areas.pins, whatif, cx);
    } else if whatif.pins.is_empty() {
        frontier(buf, areas.frontier, theme, whatif, answer);
    } else {
        pins(buf, areas.frontier, whatif, cx);
    }
    if whatif.error.is_some() && whatif.current().is_none() {
        stale(buf, &[areas.bars, areas.strip, areas.frontier], theme);
    }
    draw_notes(buf, areas.notes, whatif, answer, cx);
}

fn areas_of(body: Rect, whatif: &WhatIf) -> Areas {
    let architectures = whatif.answer.as_ref().map_or(0, |answer| answer.rows.len());
    let counts = (architectures, whatif.sliders().len());
    areas(body, whatif.strip != StripView::Hidden, counts, whatif.pins.len())
}

/// Reason why no architecture can run, and the keys that lead back.
fn cannot(buf: &mut Buffer, area: Rect, why: &str, whatif: &WhatIf, cx: &Context) {
    let key = |act| cx.key::<WhatIf>(act);
    let back = format!(
        "{} undoes the last change, {} resets {}, {} resets all",
        key(Act::Undo),
        key(Act::ResetOne),
        whatif.slider().name(),
        key(Act::ResetAll)
    );
    let width = usize::from(area.width);
    let mut row = 0;
    for (text, role) in [(format!("no architecture can run: {why}"), Role::Warn), (back, Role::Text)] {
        for words in wrap(&text, width) {
            line(buf, area, row, &[(&words, cx.theme.style(role))]);
            row += 1;
        }
    }
}

/// Marks results of earlier slider values: dimmed, and named so.
fn stale(buf: &mut Buffer, areas: &[Rect], theme: Theme) {
    for area in areas {
        buf.set_style(area.intersection(buf.area), theme.style(Role::Dim));
    }
    put(buf, areas[0], areas[0].x, areas[0].y, " previous", theme.style(Role::Bad));
}

/// Provenance, kept variants without a table of their own, the base and the present cell.
fn header_pieces(whatif: &WhatIf, shows_pins: bool, cx: &Context) -> [(String, Role); 6] {
    let base = format!(" {} ", cx.key::<WhatIf>(Act::Base));
    let cell = &whatif.variant.cell;
    let (label, from, what, other) = match &whatif.traced {
        Some(traced) => {
            let ranks = match cell.dp {
                0 | 1 => format!("TP {}", cell.tp),
                dp => format!("DP {dp}, EP {}", cell.ep),
            };
            let what = format!(
                "{} {} ms, {ranks}; link of {}",
                if traced.is_simulated() { "simulated" } else { "measured" },
                digits(traced.measured_ms),
                cell.hardware
            );
            let label = format!(" [predicted from {}] ", whatif.base_name);
            (label, String::new(), what, Some(whatif.cell_name()))
        }
        None => {
            let what = format!(
                "{} {} {} {} {}",
                cell.architecture_label(),
                cell.model,
                cell.place_label(),
                cell.hardware,
                cell.stack
            );
            if cx.size.0 < 80 {
                // sliders in sight have the rest
                let what = format!("{} on {}, {}", cell.model, cell.hardware, cell.stack);
                return [
                    (" [simulated] ".to_owned(), Role::Simulated),
                    (kept_in_words(whatif, shows_pins), Role::Title),
                    (String::new(), Role::Key),
                    (String::new(), Role::Dim),
                    (String::new(), Role::Text),
                    (what, Role::Dim),
                ];
            }
            let trace = cx.open_trace.as_ref().map(|name| format!("trace {}", cut(name, 28)));
            let now = if whatif.variant == whatif.base { ": " } else { ", now " };
            (" [simulated] ".to_owned(), format!("from {}{now}", whatif.base_name), what, trace)
        }
    };
    let other = other.map(|other| format!("{other}  "));
    let base = if other.is_some() { base } else { String::new() };
    [
        (label, Role::Simulated),
        (kept_in_words(whatif, shows_pins), Role::Title),
        (base, Role::Key),
        (other.unwrap_or_default(), Role::Dim),
        (from, Role::Text),
        (what, Role::Dim),
    ]
}

/// Kept variants without a table of their own.
fn kept_in_words(whatif: &WhatIf, shows_pins: bool) -> String {
    let kept: String =
        whatif.pins.iter().enumerate().filter(|_| !shows_pins).fold(String::new(), |all, (at, pin)| {
            let ms = pin.answer.chosen().map_or_else(|| "-".into(), |numbers| digits(numbers.tpot_ms));
            let now = if pin.variant == whatif.variant { "▸" } else { "" };
            format!("{all}{now}{} {ms}  ", letter(at))
        });
    if kept.is_empty() { kept } else { format!("kept, ms: {kept}") }
}

fn sliders(buf: &mut Buffer, areas: &Areas, theme: Theme, whatif: &WhatIf) {
    let area = areas.sliders;
    let profile_values = whatif.profile_values();
    let (track_x, bar) = tracks(area);
    let (dim, text) = (theme.style(Role::Dim), theme.style(Role::Text));
    let all = whatif.sliders();
    let above = whatif.list.offset;
    let below = all.len().saturating_sub(above + usize::from(area.height));
    let mark =
        |arrow: &str, rows: usize| if rows > 0 { format!(" {arrow} {rows}") } else { String::new() };
    if above + below > 0 && area.y > areas.header.y {
        let more = format!("{}{} more sliders", mark("↑", above), mark("↓", below));
        put(buf, areas.header.union(area), area.x, area.y - 1, &more, theme.style(Role::Key));
    }
    for (index, y) in whatif.list.rows(all.len(), area) {
        let slider = all[index];
        let no_effect = slider.no_effect(&whatif.variant, profile_values).is_some();
        let text = if no_effect { dim } else { text };
        let changed = slider.is_changed(&whatif.variant, &whatif.base);
        let mark = if changed { "*" } else { " " };
        put(buf, area, area.x, y, mark, theme.style(Role::Warn));
        put(buf, area, area.x + 1, y, slider.name(), text);
        // a slider without effect has no knob
        let place = slider.place(&whatif.variant, profile_values).filter(|_| !no_effect);
        let track = track(place, usize::from(bar));
        put(buf, area, track_x, y, &track, theme.style(if changed { Role::Active } else { Role::Dim }));
        let value = value_text(slider, &whatif.variant, profile_values);
        let style = if changed { theme.style(Role::Title) } else { text };
        // a value too long beside the track takes its place
        let x = track_x + bar + 1;
        let fits = value.width() <= usize::from(area.right().saturating_sub(x));
        let (x, value) = match fits {
            true => (x, value),
            false => {
                let room = area.right().saturating_sub(track_x);
                put(buf, area, track_x, y, &" ".repeat(room.into()), text);
                (track_x, without_middle(&value, room.into()))
            }
        };
        let x = put(buf, area, x, y, &value, style);
        let of_all = match (slider, profile_values.and_then(|profile_values| profile_values.sms_total)) {
            (Slider::Sms, Some(total)) => format!("of {total}"),
            _ => String::new(),
        };
        let unit = if of_all.is_empty() { slider.unit() } else { &of_all };
        let room = |x: u16| usize::from(area.right().saturating_sub(x + 1));
        let x = match unit.width() {
            1.. if unit.width() <= room(x) => put(buf, area, x + 1, y, unit, dim),
            _ => x,
        };
        // the note of the selected slider has a base value that does not fit
        let before = base_text(whatif, slider).map(|before| format!("({before})"));
        if let Some(before) = before.filter(|before| before.width() <= room(x)) {
            put(buf, area, x + 1, y, &before, dim);
        }
        if index == whatif.list.selected {
            select(buf, area, y, theme);
        }
    }
}

/// Value of a slider as shown. SM usage is derived from measured contention, so fractions are meaningless.
fn value_text(slider: Slider, variant: &Variant, values: Option<&ProfileValues>) -> String {
    match (slider, slider.number(variant, values)) {
        (Slider::Sms, Some(sms)) => format!("{sms:.0}"),
        (Slider::Serving, Some(0.0)) => "static batch".into(),
        (Slider::Serving, _) => format!("{} in flight", slider.text(variant, values)),
        (Slider::P2p, _) if values.is_some_and(|values| stand_in(values).is_some()) => {
            format!("{} (stand-in)", slider.text(variant, values))
        }
        _ => slider.text(variant, values),
    }
}

/// Remark that another GPU's link stands in for the profile's, if so.
fn stand_in(values: &ProfileValues) -> Option<&str> {
    values.link_note.as_deref().filter(|note| note.starts_with("stand-in"))
}

/// Value of a changed slider in the base; `None` if it is unchanged.
fn base_text(whatif: &WhatIf, slider: Slider) -> Option<String> {
    let values = whatif.base_answer.as_ref().map(|answer| &answer.profile_values);
    let is_changed = slider.is_changed(&whatif.variant, &whatif.base);
    is_changed.then(|| value_text(slider, &whatif.base, values))
}

/// Slider track with its knob, such as `──●────`.
fn track(place: Option<f64>, columns: usize) -> String {
    let at = place.map(|place| (place * (columns.max(1) - 1) as f64).round() as usize);
    (0..columns).map(|column| if Some(column) == at { '●' } else { '─' }).collect()
}

/// Title of the column of step times.
fn step_ms(whatif: &WhatIf) -> &'static str {
    if whatif.traced.is_some() { "step ms" } else { "TPOT ms" }
}

/// Signed change against the base in percent, or a factor from 2x.
fn delta(now: f64, base: Option<f64>) -> String {
    match base {
        Some(base) if base > 0.0 && now / base >= 2.0 => format!("{:.1}x", now / base),
        Some(base) if base > 0.0 && (now / base - 1.0).abs() >= 0.0005 => {
            format!("{:+.1} %", 100.0 * (now / base - 1.0))
        }
        Some(_) => "=".into(),
        None => String::new(),
    }
}

fn bars(buf: &mut Buffer, area: Rect, theme: Theme, whatif: &WhatIf, answer: &Arc<Answer>) {
    let text = theme.style(Role::Text);
    let names: u16 = 12;
    // title, width, and the minimum width of the area that shows it
    let (speedup, speedup_width) = match (area.width, whatif.traced.is_some()) {
        (58.., false) => ("TPOT speedup", 13),
        (58.., true) => ("step speedup", 13),
        _ => ("speedup", 9),
    };
    let numbers = [
        (step_ms(whatif), 8, 0),
        (speedup, speedup_width, 29),
        ("change", 8, 48),
        ("hidden", 7, 37),
        ("gap", 6, 58),
        ("completion", 12, 100),
        ("tok/s/GPU", 11, 100),
    ];
    let shown = |least: u16| area.width >= least;
    let fixed = names + numbers.iter().filter(|n| shown(n.2)).map(|n| n.1 as u16).sum::<u16>();
    // numbers take precedence over bars, which need a minimum width and a gap
    let (names, columns) = match usize::from(area.width.saturating_sub(fixed)) {
        0..9 => (names, 0),
        columns => (names + 1, columns - 1),
    };
    let first = area.x + names;
    let told = match columns {
        16.. => ("█", " rest "),
        _ => ("", ""),
    };
    if columns >= 9 {
        let x = put(buf, area, first, area.y, told.0, theme.style(Role::Series(0)));
        let x = put(buf, area, x, area.y, told.1, theme.style(Role::Title));
        let x = put(buf, area, x, area.y, "╱", theme.style(Role::Exposed));
        put(buf, area, x, area.y, " exposed", theme.style(Role::Title));
    }
    let title =
        numbers.iter().filter(|n| shown(n.2)).map(|&(title, width, _)| format!("{title:>width$}"));
    let title: String = title.collect();
    put(buf, area, first + columns as u16, area.y, &title, theme.style(Role::Title));
    let rows = answer.rows.iter().filter_map(|row| row.numbers.as_ref().ok());
    let most = rows.map(|n| n.tpot_ms).fold(0.0, f64::max);
    let most = if most > 0.0 { most } else { 1.0 };
    for (index, row) in answer.rows.iter().enumerate() {
        let y = area.y + 1 + index as u16;
        let chosen = answer.is_chosen(row);
        let mark = if chosen { "▸" } else { " " };
        // standard with micro-batches has its own short name
        let name = match row.micro_batches == answer.spec.micro_batches {
            true => row.architecture.to_string(),
            false => format!("micro{}", row.micro_batches),
        };
        let name = cut(&name, 11);
        let style = if chosen { theme.style(Role::Title) } else { text };
        put(buf, area, area.x, y, &format!("{mark}{name}"), style);
        let n = match &row.numbers {
            Ok(numbers) => numbers,
            Err(why) => {
                let own = why.strip_prefix(&format!("{} ", row.architecture)).unwrap_or(why);
                put(buf, area, first, y, own, theme.style(Role::Warn));
                continue;
            }
        };
        if columns > 0 {
            bar(buf, (area, first, y), theme, (n, most, columns));
        }
        let base = whatif.base_answer.as_ref().and_then(|base| tpot(base, row));
        let speedup = n.speedup.map_or_else(|| "-".into(), |speedup| format!("{speedup:.2}x"));
        let delta = delta(n.tpot_ms, base);
        let or_none = |number: Option<String>| number.unwrap_or_else(|| "-".into());
        let cells = [
            digits(n.tpot_ms),
            speedup,
            delta,
            or_none(n.overlap_pct.map(hidden_words)),
            or_none(n.hidden_share.map(|share| hidden_words(100.0 * share))),
            or_none(n.completion_ms.map(|ms| latency(1e3 * ms))),
            or_none(n.tokens_per_s_per_gpu.map(digits)),
        ];
        let words = numbers.iter().zip(cells).filter(|(n, _)| shown(n.2));
        let words: String = words.map(|(&(_, width, _), cell)| format!("{cell:>width$}")).collect();
        put(buf, area, first + columns as u16, y, &words, style);
    }
    // a large window has a row for the terms
    let below = area.y + 1 + answer.rows.len() as u16;
    if below < area.bottom() && shown(58) {
        let terms = match whatif.traced.is_some() {
            true => "speedup: over the traced step; hidden: behind compute; gap: closed",
            false => "hidden: comm behind compute; gap: closed to upper-bound",
        };
        put(buf, area, area.x, below, &cut(terms, area.width), theme.style(Role::Dim));
    }
}

/// Draws a bar at a column and row of the area, `columns` wide for the longest TPOT; the exposed part is
/// hatched.
fn bar(
    buf: &mut Buffer,
    (area, x, y): (Rect, u16, u16),
    theme: Theme,
    (n, most, columns): (&Numbers, f64, usize),
) {
    let of = |ms: f64| ms / most * columns as f64;
    // nonzero values stay visible; less than half a column uses the mark of the lanes
    let (exposed, hatch) = match of(n.exposed_ms).round() as usize {
        0 if n.exposed_ms > 0.0 => (1, shade::exposed(of(n.exposed_ms)).0),
        columns => (columns, "╱"),
    };
    let all = (of(n.tpot_ms).round() as usize).max(exposed);
    let x = put(buf, area, x, y, &"█".repeat(all - exposed), theme.style(Role::Series(0)));
    put(buf, area, x, y, &hatch.repeat(exposed), theme.style(Role::Exposed));
}

/// TPOT of the same architecture and micro-batches in the base.
fn tpot(base: &Answer, row: &Row) -> Option<f64> {
    let same = |other: &&Row| {
        other.architecture == row.architecture && other.micro_batches == row.micro_batches
    };
    base.rows.iter().find(same)?.numbers.as_ref().ok().map(|numbers| numbers.tpot_ms)
}

fn frontier(buf: &mut Buffer, area: Rect, theme: Theme, whatif: &WhatIf, answer: &Arc<Answer>) {
    if area.is_empty() {
        return;
    }
    let x_of = |p: &study::whatif::FrontierPoint| {
        if whatif.by_tpot { p.tpot_ms } else { p.completion_ms }
    };
    let at = |p: &study::whatif::FrontierPoint| (x_of(p), p.tokens_per_s_per_gpu);
    let points: Vec<(f64, f64)> =
        answer.frontiers.iter().flat_map(|frontier| frontier.points.iter().map(at)).collect();
    let missing = match (whatif.traced.is_some(), area.height) {
        (true, _) => Some("a trace has one batch size: no frontier"),
        (false, ..5) => Some("over batch: no room for the plot; t hides the strip"),
        (false, _) => None,
    };
    if let Some(missing) = missing {
        put(buf, area, area.x, area.y, missing, theme.style(Role::Dim));
        return;
    }
    if points.is_empty() {
        let said = match answer.cannot() {
            Some(_) => "no frontier: no architecture can run",
            None => "no batch fits in memory: no frontier",
        };
        put(buf, area, area.x, area.y, said, theme.style(Role::Dim));
        return;
    }
    let names = answer.frontiers.iter().map(|of| of.architecture.to_string().width() + 3).sum::<usize>();
    let titles = ["over batch ".to_owned(), "batch ".to_owned()];
    let title = first_fitting(&titles, area.width.saturating_sub(names as u16));
    let mut x = put(buf, area, area.x, area.y, title, theme.style(Role::Title));
    let order = |architecture: &plan::Architecture| match architecture {
        plan::Architecture::UpperBound => 2,
        a if *a == answer.spec.architecture => 1,
        _ => 0,
    };
    // use each architecture's usual mark and colour
    let looks = look_numbers(answer.frontiers.iter().map(|frontier| &frontier.architecture));
    let look = |architecture| looks.get(architecture).copied().unwrap_or(0);
    let glyph = |architecture| mark(look(architecture), answer.spec.p2p == P2p::Off, false);
    for frontier in &answer.frontiers {
        let entry = format!("{} {} ", glyph(&frontier.architecture), frontier.architecture);
        let style = theme.style(Role::Architecture(look(&frontier.architecture)));
        x = put(buf, area, x, area.y, &entry, style);
    }
    let (_, below) = cut_top(area, 1);
    let plot = Plot::new(below, points.iter().copied());
    let x = if whatif.by_tpot { XAxis::Tpot } else { XAxis::Completion };
    let (unit, by) = x.unit_for(points.iter().map(|point| point.0).fold(0.0, f64::max));
    let plot = Plot { divided: by, ..plot };
    let name = format!("{} {unit}", if whatif.by_tpot { "TPOT" } else { "completion" });
    plot.draw_axes(buf, theme, &name, "tok/s/GPU");
    let mut frontiers: Vec<_> = answer.frontiers.iter().collect();
    frontiers.sort_by_key(|frontier| match order(&frontier.architecture) {
        1 => 2,
        2 => 0,
        _ => 1,
    });
    for frontier in frontiers {
        let index = order(&frontier.architecture);
        let style = theme.style(Role::Architecture(look(&frontier.architecture)));
        let line: Vec<(f64, f64)> = frontier.points.iter().map(at).collect();
        plot.draw_series(buf, theme, look(&frontier.architecture), &line);
        for point in &frontier.points {
            let (x, y) = plot.cell(at(point));
            let own = index == 1 && point.batch == answer.spec.batch;
            let style = if own { style.add_modifier(Modifier::REVERSED) } else { style };
            put(buf, area, x, y, glyph(&frontier.architecture), style);
        }
    }
}

const KEPT: [Column; 7] = [
    Column::text("kept", 4, 0),
    Column::text("arch", 12, 0),
    Column::number("TPOT ms", 10, 0),
    Column::number("to base", 8, 1),
    Column::number("hidden", 8, 2),
    Column::number("completion", 11, 3),
    Column::text("settings", 12, 1),
];

fn pins(buf: &mut Buffer, area: Rect, whatif: &WhatIf, cx: &Context) {
    if whatif.pins.is_empty() {
        let hint =
            format!("{} keeps this variant to compare it with others", cx.key::<WhatIf>(Act::Pin));
        put(buf, area, area.x + 1, area.y, &hint, cx.theme.style(Role::Dim));
        return;
    }
    let base = whatif.base_answer.as_ref();
    // only a variant of the same load compares with the base
    let base_of = |pin: &Answer| {
        let (own, load) = (&pin.spec, pin.spec.load_label());
        let base = base.filter(|base| base.spec.model == own.model && base.spec.load_label() == load);
        base.and_then(|base| base.chosen()).map(|n| n.tpot_ms)
    };
    let mut columns = KEPT.to_vec();
    columns[2].title = step_ms(whatif).into();
    table::draw_all(buf, area, cx.theme, &columns, whatif.pins.len(), |row, column| {
        let pin = &whatif.pins[row];
        let now = if pin.variant == whatif.variant { "▸" } else { " " };
        let number = |of: &dyn Fn(&Numbers) -> String| pin.answer.chosen().map_or_else(String::new, of);
        match column {
            0 => format!("{now} {}", letter(row)),
            1 => pin.answer.spec.architecture.to_string(),
            2 => pin.answer.chosen().map_or_else(|| "cannot run".into(), |n| digits(n.tpot_ms)),
            3 => number(&|n| match base_of(&pin.answer) {
                None => "-".into(),
                base => delta(n.tpot_ms, base),
            }),
            4 => number(&|n| n.overlap_pct.map_or_else(|| "-".into(), hidden_words)),
            5 => number(&|n| n.completion_ms.map_or("-".into(), |ms| latency(1e3 * ms))),
            _ => {
                let spec = &pin.answer.spec;
                let changes = whatif.changes(&pin.variant, &pin.answer.profile_values);
                format!("tp{} {}: {changes}", spec.tp, spec.load_label())
            }
        }
    });
}

/// Text below the sliders, with its heading.
struct Sentence {
    head: String,
    role: Role,
    words: String,
    style: Role,
}

impl Sentence {
    fn new(head: impl Into<String>, role: Role, words: String, style: Role) -> Self {
        Self { head: head.into(), role, words, style }
    }

    fn whole(&self) -> String {
        format!("{} {}", self.head, self.words).trim_start().to_owned()
    }

    /// Rows of the sentence if it starts at row `from` of an area: one row in areas of at most two rows; in areas below
    /// [`NOTES`] rows the rows that are left, of which the first sentence leaves one to the next; else all.
    fn rows(&self, area: Rect, from: u16) -> Vec<String> {
        match area.height {
            ..=2 => vec![self.whole()],
            3..NOTES => {
                let rest = area.height.saturating_sub(from + u16::from(from == 0)).max(1);
                headline_rows(&self.whole(), area.width + 1, rest.into())
            }
            _ => wrap(&self.whole(), usize::from(area.width.saturating_sub(1))),
        }
    }
}

/// Launch gaps, break-even or assumptions, meaning of the slider, and validation; two rows have room for what matters
/// most.
fn sentences(area: Rect, whatif: &WhatIf, answer: &Arc<Answer>, cx: &Context) -> Vec<Sentence> {
    let launches = answer.launch_bound(&cx.key::<WhatIf>(Act::LaunchGaps));
    let launches = launches.map(|said| match said.split_once(": ") {
        Some((head, words)) => {
            Sentence::new(format!("{head}:"), Role::Warn, words.to_owned(), Role::Text)
        }
        None => Sentence::new("", Role::Text, said, Role::Text),
    });
    let said = match (&whatif.error, &whatif.traced) {
        (Some(why), _) => Sentence::new("✘", Role::Bad, why.replace('\n', ": "), Role::Bad),
        (None, Some(_)) => {
            let assumptions = answer.assumptions.clone().unwrap_or_default();
            Sentence::new("predicted:", Role::Title, assumptions, Role::Text)
        }
        (None, None) => {
            Sentence::new("break-even:", Role::Title, break_even(whatif, answer), Role::Text)
        }
    };
    let name = format!("{}:", whatif.slider().name());
    let of_slider = Sentence::new(name, Role::Dim, about(whatif, answer), Role::Dim);
    let error =
        |error: &String| Sentence::new("error of predictions:", Role::Dim, error.clone(), Role::Dim);
    let link = stand_in(&answer.profile_values).filter(|_| answer.profile_values.no_link.is_none());
    let link = link.map(|note| Sentence::new("link:", Role::Warn, note.to_owned(), Role::Text));
    let validated = answer.error.as_ref().map(error);
    let is_last = area.height <= 2 && whatif.error.is_none() && launches.is_some();
    let mut all: Vec<Sentence> =
        launches.into_iter().chain([said, of_slider]).chain(link).chain(validated).collect();
    if is_last {
        all[1..].rotate_left(1);
    }
    all
}

fn draw_notes(buf: &mut Buffer, area: Rect, whatif: &WhatIf, answer: &Arc<Answer>, cx: &Context) {
    let theme = cx.theme;
    let mut row = 0;
    for sentence in sentences(area, whatif, answer, cx) {
        for (at, words) in sentence.rows(area, row).iter().enumerate() {
            let (head, words) = match words.split_at_checked(sentence.head.len()) {
                Some(split) if at == 0 => split,
                _ => ("", words.as_str()),
            };
            let pieces = [(" ", Role::Text), (head, sentence.role), (words, sentence.style)];
            line(buf, area, row, &pieces.map(|(text, role)| (text, theme.style(role))));
            row += 1;
        }
        row += u16::from(area.height >= NOTES);
    }
}

/// Caveats: the cell or step, and the sentences below the sliders.
pub fn notes(whatif: &WhatIf, body: Rect, cx: &Context) -> Vec<Note> {
    let Some(answer) = &whatif.answer else { return Vec::new() };
    let areas = areas_of(body, whatif);
    let mut notes = Vec::new();
    let mut row = 0;
    for sentence in sentences(areas.notes, whatif, answer, cx) {
        let rows = sentence.rows(areas.notes, row);
        row += rows.len() as u16;
        let is_wide = rows.iter().any(|row| row.width() + 1 > areas.notes.width.into());
        let is_cut = is_wide || !is_whole(&rows, &sentence.whole());
        notes.push(Note::new(sentence.whole(), is_cut || row > areas.notes.height));
        row += u16::from(areas.notes.height >= NOTES);
    }
    // the hint takes its room from the header
    let pieces = header_pieces(whatif, areas.has_pins(), cx);
    let header: String = pieces.iter().map(|(text, _)| text.as_str()).collect();
    let is_cut = header.width() + notes_hint(&notes, cx).width() > areas.header.width.into();
    notes.push(Note::new(header.trim(), is_cut));
    notes
}

/// Meaning of the selected slider, and what its value needs or rests on.
fn about(whatif: &WhatIf, answer: &Answer) -> String {
    let slider = whatif.slider();
    let before = base_text(whatif, slider).map_or_else(String::new, |before| format!("base {before}; "));
    before + &about_value(whatif, answer)
}

fn about_value(whatif: &WhatIf, answer: &Answer) -> String {
    let slider = whatif.slider();
    let (about, values) = (slider.about().to_owned(), &answer.profile_values);
    if let Some(why) = slider.no_effect(&whatif.variant, Some(values)) {
        return format!("no effect: {why}");
    }
    match slider {
        Slider::Architecture => about_architecture(&answer.spec.architecture),
        // the all-reduces of a trace change in proportion
        Slider::Alpha if whatif.traced.is_some() => about,
        Slider::Alpha => {
            let stack = &answer.spec.stack;
            match (values.latency_scale, answer.spec.link.is_emulated()) {
                (Some(1.0), _) => format!("{about}, as in nccl-tests"),
                (Some(scale), _) => {
                    format!("{about}, as in nccl-tests; stack {stack} scales it by {scale}")
                }
                (None, true) => format!("{about}, emulated; stack {stack} does not scale it"),
                (None, false) => {
                    format!("{about}, by the profile's formula, which stack {stack} does not scale")
                }
            }
        }
        // a stand-in has a sentence of its own
        Slider::P2p | Slider::Hardware => {
            match values.link_note.as_ref().filter(|_| stand_in(values).is_none()) {
                Some(note) => format!("{about}; link: {note}"),
                None => about,
            }
        }
        Slider::Tp => match &values.tp_note {
            Some(note) => format!("{about}; {note}"),
            None => about,
        },
        Slider::Load => match answer.experts_touched() {
            Some(touched) => format!("{about}; {touched}"),
            None => about,
        },
        _ => about,
    }
}

fn break_even(whatif: &WhatIf, answer: &Answer) -> String {
    if let Err(why) =
        answer.row(&answer.spec.architecture).map_or(Ok(()), |row| row.numbers.as_ref().map(drop))
    {
        return format!("none: {why}");
    }
    let Some(found) = whatif.break_even() else { return "searching…".into() };
    match found.iter().cloned().collect::<Result<Vec<_>, _>>() {
        Err(why) => format!("none: {why}"),
        Ok(found) => format!("{} {}", answer.spec.architecture, BreakEven::beside_values(&found)),
    }
}

const LABELS: u16 = 9;

/// Draws the strips under a title, two rows each.
fn draw_strip(buf: &mut Buffer, area: Rect, theme: Theme, strips: &[Strip], whole_step: bool) {
    let window = |strip: &Strip| if whole_step { (0, strip.length_ns) } else { strip.layer_ns };
    // common scale: the longer one fills the width
    let length = strips.iter().map(|s| window(s).1 - window(s).0).max().unwrap_or(1).max(1);
    let what = match (strips.first(), whole_step) {
        (Some(strip), false) => {
            format!("layers {}-{}, {}", strip.layer, strip.layer + 1, ns(length))
        }
        _ => format!("the middle step, {}", ns(length)),
    };
    let x = put(buf, area, area.x, area.y, &what, theme.style(Role::Title));
    // the compute lane is labelled already, so a narrow window drops its legend entry
    let narrow = area.width < 60;
    let legend = [
        ("▂█", "compute", Role::Series(0)),
        (if narrow { "▓" } else { "▒▓" }, "hidden", Role::Comm),
        (if narrow { "╱" } else { "╌▖▚▜╱" }, "exposed", Role::Exposed),
    ];
    let mut x = x + 1;
    for (glyph, words, role) in legend.into_iter().skip(usize::from(narrow)) {
        x = put(buf, area, x, area.y, glyph, theme.style(role));
        x = put(buf, area, x + 1, area.y, words, theme.style(Role::Dim)) + 1;
    }
    let columns = area.width.saturating_sub(LABELS);
    if columns == 0 {
        return;
    }
    for (index, strip) in strips.iter().enumerate() {
        let y = area.y + 1 + 2 * index as u16;
        let name = cut(&strip.architecture.to_string(), LABELS - 1);
        put(buf, area, area.x, y, &name, theme.style(Role::Text));
        put(buf, area, area.x, y + 1, "  comm", theme.style(Role::Dim));
        let from = window(strip).0;
        let bounds = |column: u16| {
            let edge = |c: u16| from + (i128::from(length) * i128::from(c) / i128::from(columns)) as i64;
            (edge(column), edge(column + 1).max(edge(column) + 1))
        };
        let cover = |intervals: Vec<(i64, i64)>| Coverage::new(union(intervals));
        let spans = |lane: Lane| {
            let of_lane = strip.spans.iter().filter(|span| span.lane == lane);
            cover(of_lane.map(|span| (span.start_ns, span.end_ns)).collect())
        };
        let (compute, comm) = (spans(Lane::Compute), spans(Lane::Comm));
        let exposed = cover(strip.exposed.clone());
        let end = window(strip).1;
        let columns = (0..columns).map(bounds).take_while(|(from, _)| *from < end);
        let shares = columns.map(|(from, to)| {
            let share = |cover: &Coverage| cover.within((from, to)) as f64 / (to - from) as f64;
            Shares {
                compute: share(&compute),
                comm: share(&comm),
                exposed: share(&exposed),
                ..Shares::default()
            }
        });
        shade::draw_step(buf, area, (area.x + LABELS, y), shares, " ", theme);
    }
}
