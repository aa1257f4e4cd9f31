//! Tables of screen 7: TPOT of every architecture with a bar each, and the kept variants.

use std::sync::Arc;

use super::Act;
use super::layout::THICK;
use super::state::{Pin, WhatIf, letter};
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::shade;
use crate::face::tui::widgets::table::{self, TableColumn};
use crate::face::tui::widgets::wrap::join_fitting;
use base::text::latency;
use plan::Phase;
use study::whatif::{SimulatedMetrics, WhatIfAnswer, WhatIfRow, hidden_words, needs_retraining};

/// Mark of architectures that a standard model must be retrained for, and its legend above their names.
const RETRAINED: (&str, &str) = ("†", "†retrained");

/// Title of the column of speedups over a trace.
const OVER_TRACE: &str = "x trace";

/// Title of the column of speedups beside step times.
const OVER_STANDARD: &str = "x standard";

/// Title of that column in a narrow table.
const OVER_STD: &str = "x std.";

/// Title of the column of [`per_user`].
const PER_USER: &str = "tok/s/user";

/// Title of the column of step times.
fn step_ms(whatif: &WhatIf) -> &'static str {
    if whatif.traced.is_some() { "step ms" } else { "TPOT ms" }
}

/// Signed change against the base in percent.
fn delta(now: f64, base: Option<f64>) -> String {
    match base {
        Some(base) if base > 0.0 && now / base >= 2.0 => format!("{:+.0} %", 100.0 * (now / base - 1.0)),
        Some(base) if base > 0.0 && (now / base - 1.0).abs() >= 0.0005 => {
            format!("{:+.1} %", 100.0 * (now / base - 1.0))
        }
        Some(_) => "=".into(),
        None => String::new(),
    }
}

/// Closed share of the gap to `upper-bound` (0 to 1) for people; no share if it is slower than standard.
fn gap_words(share: f64) -> String {
    if share < -0.005 { "slower".to_owned() } else { hidden_words(100.0 * share.max(0.0)) }
}

pub fn bars(buf: &mut Buffer, area: Rect, theme: Theme, whatif: &WhatIf, answer: &Arc<WhatIfAnswer>) {
    let text = theme.style(Role::Text);
    let names: u16 = 12;
    let (of_trace, is_base) = (whatif.traced.is_some(), whatif.variant == whatif.base);
    let (step, speedup) = match (area.width, of_trace) {
        (100.., true) => (("predicted ms", 13), (OVER_TRACE, 9)),
        (58.., true) => ((step_ms(whatif), 8), (OVER_TRACE, 9)),
        (58.., false) => ((step_ms(whatif), 8), (OVER_STANDARD, 13)),
        (columns, of_trace) => {
            let speedup = if of_trace { OVER_TRACE } else { OVER_STD };
            ((step_ms(whatif), if columns < 43 { 6 } else { 7 }), (speedup, 8))
        }
    };
    let over_standard = if area.width < 100 { (OVER_STD, 8) } else { (OVER_STANDARD, 12) };
    let exposed = if area.width < 100 { ("exp. ms", 8) } else { ("exposed ms", 11) };
    // title, width, and true if the area has room for it
    let least = |columns: u16| area.width >= columns;
    let numbers = [
        (step.0, step.1, true),
        (speedup.0, speedup.1, true),
        // at the base of a trace, standard is as fast as the trace, and every change is zero
        (over_standard.0, over_standard.1, of_trace && !is_base),
        ("95 % of steps", 14, of_trace && (least(67) || least(58) && is_base)),
        // from 64 columns on, bars show the exposed time, but a trace has intervals instead of bars; in the smallest window, the
        // speedup over standard takes its place
        (exposed.0, exposed.1, if of_trace { is_base || least(43) } else { !least(64) || least(100) }),
        ("change", 8, if of_trace { !is_base && least(75) } else { least(51) }),
        ("hidden", 8, least(if of_trace && !is_base { 51 } else { 43 })),
        // the interval takes its place beside changes
        ("gap", 7, least(if of_trace && !is_base { 82 } else { 66 })),
        (PER_USER, 12, least(118) && decodes(whatif)),
        ("completion", 12, !of_trace && least(100)),
        ("tok/s/GPU", 11, !of_trace && least(100)),
    ];
    let wide = numbers.iter().filter(|n| n.2).map(|n| n.1 as u16).sum::<u16>();
    // numbers take precedence over bars, which need a minimum width and a gap
    let (names, columns) = match usize::from(area.width.saturating_sub(names + wide)) {
        0..9 => (names, 0),
        columns => (names + 1, columns - 1),
    };
    let first = area.x + names;
    let legend = [
        ("█", Role::Series(0)),
        (" rest ", Role::Title),
        ("╱", Role::Exposed),
        (" exposed", Role::Title),
    ];
    let skipped = match columns {
        16.. => 0,
        9.. => 2,
        _ => legend.len(),
    };
    put(buf, area, area.x, area.y, RETRAINED.1, theme.style(Role::Dim));
    let mut x = first;
    for (text, role) in legend.into_iter().skip(skipped) {
        x = put(buf, area, x, area.y, text, theme.style(role));
    }
    let title = numbers.iter().filter(|n| n.2).map(|&(title, width, _)| format!("{title:>width$}"));
    let title: String = title.collect();
    // a title wider than its column begins over the names
    let wider = (title.width() as u16).saturating_sub(wide);
    let x = (first + columns as u16).saturating_sub(wider);
    put(buf, area, x, area.y, &title, theme.style(Role::Title));
    let rows = answer.rows.iter().filter_map(|row| row.numbers.as_ref().ok());
    let most = rows.map(|n| n.tpot_ms).fold(0.0, f64::max);
    let most = if most > 0.0 { most } else { 1.0 };
    // a tall table has thick bars, and a row between them
    let architectures = answer.rows.len() as u16;
    let pitch = (area.height.saturating_sub(2) / architectures.max(1)).clamp(1, THICK);
    for (index, row) in answer.rows.iter().enumerate() {
        let y = area.y + 1 + pitch * index as u16;
        let chosen = answer.is_chosen(row);
        let mark = if chosen { "▸" } else { " " };
        // standard with micro-batches has its own short name
        let name = match row.micro_batches == answer.spec.micro_batches {
            true => row.architecture.to_string(),
            false => format!("micro{}", row.micro_batches),
        };
        let retrained = if needs_retraining(&row.architecture) { RETRAINED.0 } else { "" };
        let name = format!("{}{retrained}", cut(&name, 11 - retrained.width() as u16));
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
            for y in y..y + (pitch - 1).max(1) {
                bar(buf, (area, first, y), theme, (n, most, columns));
            }
        }
        let base = whatif.base_answer.as_ref().and_then(|base| tpot(base, row));
        let delta = delta(n.tpot_ms, base);
        let or_none = |number: Option<String>| number.unwrap_or_else(|| "-".into());
        let cells = [
            digits(n.tpot_ms),
            speedup_of(answer, n),
            over_standard_of(answer, n),
            or_none(n.speedup_95.map(|[low, high]| format!("[{low:.2}, {high:.2}]"))),
            digits(n.exposed_ms),
            delta,
            percent(n.overlap_pct),
            or_none(n.hidden_share.map(gap_words)),
            per_user(n),
            or_none(n.completion_ms.map(|ms| latency(1e3 * ms))),
            or_none(n.tokens_per_s_per_gpu.map(digits)),
        ];
        let words = numbers.iter().zip(cells).filter(|(n, _)| n.2);
        let words: String = words.map(|(&(_, width, _), cell)| format!("{cell:>width$}")).collect();
        put(buf, area, first + columns as u16, y, &words, style);
    }
    // a large window has a row for the terms
    let below = area.y + 1 + pitch * architectures;
    if below < area.bottom() && least(58) {
        let has = |title: &str| numbers.iter().any(|column| column.0 == title && column.2);
        let terms = [
            ("hidden: behind compute", true),
            ("; gap: closed to the limit", has("gap")),
            ("; change: by sliders", has("change")),
            ("; each column is a median of its own", of_trace),
        ];
        let terms = terms.into_iter().filter(|(_, is_shown)| *is_shown);
        let terms: Vec<String> = terms.map(|(term, _)| term.to_owned()).collect();
        let terms = join_fitting(&terms, area.width);
        put(buf, area, area.x, below, &terms, theme.style(Role::Dim));
    }
}

/// Draws a bar at a column and row of the area, `columns` wide for the longest TPOT; the exposed part is
/// hatched.
fn bar(
    buf: &mut Buffer,
    (area, x, y): (Rect, u16, u16),
    theme: Theme,
    (n, most, columns): (&SimulatedMetrics, f64, usize),
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

/// TPOT of the same architecture and micro-batches in the base (ms).
pub fn tpot(base: &WhatIfAnswer, row: &WhatIfRow) -> Option<f64> {
    let same = |other: &&WhatIfRow| {
        other.architecture == row.architecture && other.micro_batches == row.micro_batches
    };
    base.rows.iter().find(same)?.numbers.as_ref().ok().map(|numbers| numbers.tpot_ms)
}

/// Change of a kept variant's TPOT against the present sliders; empty while these have no answer.
fn to_now(whatif: &WhatIf, own: &SimulatedMetrics) -> String {
    let now = whatif.current().and_then(|answer| answer.chosen());
    delta(own.tpot_ms, now.map(|now| now.tpot_ms))
}

/// Change of a kept variant's TPOT against the base; `-` if the base has another model or load.
fn to_base(whatif: &WhatIf, pin: &Pin, own: &SimulatedMetrics) -> String {
    let (spec, load) = (&pin.answer.spec, pin.answer.spec.load_label());
    let base = whatif.base_answer.as_ref();
    let base = base.filter(|base| base.spec.model == spec.model && base.spec.load_label() == load);
    match base.and_then(|base| base.chosen()) {
        None => "-".into(),
        Some(base) => delta(own.tpot_ms, Some(base.tpot_ms)),
    }
}

/// Mark of a kept variant; shown if the sliders are set to it.
fn mark_of(whatif: &WhatIf, pin: &Pin) -> &'static str {
    if pin.variant == whatif.variant { "▸" } else { " " }
}

/// Speedup of an answer's numbers, as an upper bound if it is one: `1.35x`, `<6.57x`.
fn speedup_of(answer: &WhatIfAnswer, numbers: &SimulatedMetrics) -> String {
    let at_most = if answer.is_overstated() { "<" } else { "" };
    numbers.speedup.map_or_else(|| "-".into(), |ratio| format!("{at_most}{ratio:.2}x"))
}

/// Speedup over `standard` with the same changes to a trace.
fn over_standard_of(answer: &WhatIfAnswer, numbers: &SimulatedMetrics) -> String {
    answer.speedup_over_standard(numbers).map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}x"))
}

/// Tokens/s of one sequence while it decodes.
fn per_user(numbers: &SimulatedMetrics) -> String {
    digits(1e3 / numbers.tpot_ms)
}

/// True if the step times are those of decode steps, false for a traced prefill.
fn decodes(whatif: &WhatIf) -> bool {
    whatif.traced.as_ref().is_none_or(|traced| traced.phase() == Phase::Decode)
}

/// Difference of a kept variant from the base; its architecture if that is all or another one.
fn difference(whatif: &WhatIf, pin: &Pin) -> String {
    let architecture = &pin.answer.spec.architecture;
    match whatif.changes(&pin.variant, &pin.answer.profile_values) {
        changes if changes.is_empty() => architecture.to_string(),
        changes if *architecture == whatif.base.cell.architecture => changes,
        changes => format!("{architecture}, {changes}"),
    }
}

/// Text of a column for a kept variant and its index.
type KeptCell<'a> = &'a dyn Fn(usize, &Pin) -> String;

/// Kept variants as a table, or the key that keeps one.
pub fn pins(buf: &mut Buffer, area: Rect, whatif: &WhatIf, cx: &Context) {
    if whatif.pins.is_empty() {
        let hint =
            format!("{} keeps this variant to compare it with others", cx.key::<WhatIf>(Act::Pin));
        put(buf, area, area.x + 1, area.y, &hint, cx.theme.style(Role::Dim));
        return;
    }
    let of_trace = whatif.traced.is_some();
    let number = |pin: &Pin, of: &dyn Fn(&SimulatedMetrics) -> String| {
        pin.answer.chosen().map_or_else(String::new, of)
    };
    // beside the sliders
    let is_narrow = area.width < 60;
    // the difference takes all that the marks and two numbers leave
    let difference_width = area.width.saturating_sub(21).clamp(9, 30);
    let [arch, step] = if is_narrow { [difference_width, 7] } else { [11, 10] };
    let (settings, settings_width) = match of_trace {
        true => ("settings (variants of this trace)", 14),
        // with the cell behind the changes
        false => ("settings", 30),
    };
    let arch_title = match (is_narrow, of_trace) {
        (true, true) => "kept for this trace",
        (true, false) => "settings",
        (false, _) => "arch",
    };
    let step_ms = TableColumn { title: step_ms(whatif).into(), ..TableColumn::number("", step, 0) };
    let (over, over_width) = if of_trace { (OVER_TRACE, 8) } else { (OVER_STANDARD, 10) };
    // title and width, cell, and true if the base has such a number
    let columns: [(TableColumn, KeptCell<'_>, bool); 12] = [
        (
            TableColumn::text("kept", 4, 0),
            &|at, pin| format!("{} {}", mark_of(whatif, pin), letter(at)),
            true,
        ),
        (
            TableColumn::text(arch_title, arch, 0),
            &|_, pin| match is_narrow {
                true => difference(whatif, pin),
                false => pin.answer.spec.architecture.to_string(),
            },
            true,
        ),
        (
            step_ms,
            &|_, pin| pin.answer.chosen().map_or_else(|| "cannot run".into(), |own| digits(own.tpot_ms)),
            true,
        ),
        (
            TableColumn::number(over, over_width, if is_narrow { 5 } else { 0 }),
            &|_, pin| number(pin, &|own| speedup_of(&pin.answer, own)),
            true,
        ),
        (
            TableColumn::number(OVER_STANDARD, 10, 1),
            &|_, pin| number(pin, &|own| over_standard_of(&pin.answer, own)),
            of_trace,
        ),
        (TableColumn::number("vs now", 7, 0), &|_, pin| number(pin, &|own| to_now(whatif, own)), true),
        (
            TableColumn::number("vs base", 8, 5),
            &|_, pin| number(pin, &|own| to_base(whatif, pin, own)),
            !of_trace,
        ),
        (TableColumn::number(PER_USER, 10, 1), &|_, pin| number(pin, &per_user), decodes(whatif)),
        (
            TableColumn::number("tok/s/GPU", 9, 2),
            &|_, pin| number(pin, &|own| own.tokens_per_s_per_gpu.map_or("-".into(), digits)),
            !of_trace,
        ),
        (
            TableColumn::number("hidden", 7, 4),
            &|_, pin| number(pin, &|own| percent(own.overlap_pct)),
            true,
        ),
        (
            TableColumn::number("completion", 10, 3),
            &|_, pin| number(pin, &|own| own.completion_ms.map_or("-".into(), |ms| latency(1e3 * ms))),
            !of_trace,
        ),
        (
            TableColumn::text(settings, settings_width, 0),
            &|_, pin| {
                let spec = &pin.answer.spec;
                let cell = format!("tp{} {}", spec.tp, spec.load_label());
                match whatif.changes(&pin.variant, &pin.answer.profile_values) {
                    changes if changes.is_empty() => cell,
                    changes => format!("{changes}; {cell}"),
                }
            },
            true,
        ),
    ];
    // a narrow table has the settings in place of the architecture
    let count = columns.len() - usize::from(is_narrow);
    let shown = columns.into_iter().take(count).filter(|(_, _, is_shown)| *is_shown);
    let (columns, cells): (Vec<TableColumn>, Vec<KeptCell<'_>>) =
        shown.map(|(column, cell, _)| (column, cell)).unzip();
    table::draw_all(buf, area, cx.theme, &columns, whatif.pins.len(), |row, column| {
        cells[column](row, &whatif.pins[row])
    });
}

/// Kept variants as a line each: ` kept B batch 2    9.72 ms 1.44x std.  +1.6 % vs now`. If not all have room, the last
/// ones, with the number of the others before the first: ` ↑1   B batch 2`.
pub fn pins_in_words(buf: &mut Buffer, area: Rect, whatif: &WhatIf, theme: Theme) {
    let above = whatif.pins.len().saturating_sub(area.height.into());
    let over = if whatif.traced.is_some() { "trace" } else { "std." };
    for (row, (at, pin)) in whatif.pins.iter().enumerate().skip(above).enumerate() {
        let y = area.y + row as u16;
        let numbers = pin.answer.chosen().map_or_else(
            || "cannot run".to_owned(),
            |own| {
                let ms = latency(1e3 * own.tpot_ms);
                let (speedup, now) = (speedup_of(&pin.answer, own), to_now(whatif, own));
                format!("{ms:>7} {speedup:>5} {over} {now:>7} vs now")
            },
        );
        let difference = difference(whatif, pin);
        let start = if row == 0 && above > 0 { format!("↑{above}") } else { "kept".to_owned() };
        let name = format!("{}{start:<4} {} {difference}", mark_of(whatif, pin), letter(at));
        let right = area.right().saturating_sub(numbers.width() as u16);
        let room = usize::from(right.saturating_sub(area.x + 1));
        put(buf, area, area.x, y, &cut(&name, room as u16), theme.style(Role::Text));
        put(buf, area, right, y, &numbers, theme.style(Role::Text));
    }
}
