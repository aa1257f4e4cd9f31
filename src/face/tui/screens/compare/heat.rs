//! Heat map over TP and batch: a shade and a number per cell, with brackets around cells without a significant
//! difference; and the details of the selected pair.

use super::draw::p;
use super::state::Compare;
use crate::face::tui::prelude::*;
use crate::face::tui::widgets::table::{self, Column};
use ::table::{Link, Provenance, Spec};
use base::text::without_middle;
use study::analysis::{
    Axis, CONTENTION, Comparison, Difference, HeatCell, HeatMap, HeatValue, PairVerdict, Side,
};

const SHADES: [&str; 5] = ["··", "░░", "▒▒", "▓▓", "██"];

/// Minimum top of the exposed-communication scale, as a share of TPOT in percent.
const LEAST_PERCENT: f64 = 5.0;

const CELL: u16 = 10;
const LABELS: u16 = 7;

/// Rows above the cells: the slice name and the batch labels.
pub const HEAD: u16 = 3;

/// Index of the shade of a number, in fifths of the range. Ratios are shaded by distance from 1, so the
/// largest slowdown is as solid as the largest gain, in a different colour.
fn shade_of(value: HeatValue, number: f64, range: [f64; 2]) -> usize {
    match value {
        HeatValue::Speedup => shade(distance(number), [0.0, farthest(range)]),
        _ => shade(number, scale(value, range)),
    }
}

/// Range of a share's scale. It starts at 0 and spans a minimum width, so that small values do not look
/// large.
fn scale(value: HeatValue, [low, high]: [f64; 2]) -> [f64; 2] {
    let least = if value == HeatValue::ExposedPct { LEAST_PERCENT } else { 1.0 };
    [low.min(0.0), high.max(least)]
}

/// True if all numbers round to the same displayed value; the map then has no shades.
fn is_one(value: HeatValue, [low, high]: [f64; 2]) -> bool {
    let decimals = value.decimals();
    format!("{low:.decimals$}") == format!("{high:.decimals$}")
}

/// Distance of a ratio from 1, symmetric for 2x and 0.5x.
fn distance(ratio: f64) -> f64 {
    ratio.max(f64::MIN_POSITIVE).ln().abs()
}

fn farthest([low, high]: [f64; 2]) -> f64 {
    distance(low).max(distance(high))
}

/// Fifth of the range in which a number falls.
fn shade(number: f64, [low, high]: [f64; 2]) -> usize {
    // a value on a boundary belongs above it, despite rounding
    (((number - low) / (high - low) * 5.0 + 1e-9) as usize).min(4)
}

fn first_column(area: Rect, cursor: usize) -> usize {
    let fit = usize::from(area.width.saturating_sub(LABELS) / CELL).max(1);
    (cursor + 1).saturating_sub(fit)
}

/// Cell (TP index, batch index) at a window position.
pub fn at(area: Rect, map: &HeatMap, cursor: usize, at: Position) -> Option<(usize, usize)> {
    let row = usize::from(at.y.checked_sub(area.y + HEAD)?);
    let column = usize::from(at.x.checked_sub(area.x + LABELS)? / CELL) + first_column(area, cursor);
    (row < map.tps.len() && column < map.batches.len()).then_some((row, column))
}

fn number(cell: &HeatCell, value: HeatValue) -> String {
    let text = match (value.number(cell), value) {
        (None, _) => return "-".into(),
        (Some(v), HeatValue::Speedup) => format!("{v:.2}x"),
        (Some(v), HeatValue::ExposedPct) => format!("{v:.1} %"),
        (Some(v), HeatValue::GapClosed) => format!("{v:.2}"),
    };
    if cell.differs || value != HeatValue::Speedup { text } else { format!("({text})") }
}

pub fn draw_map(buf: &mut Buffer, area: Rect, theme: Theme, map: &HeatMap, compare: &Compare) {
    let (text, dim, title) = (theme.style(Role::Text), theme.style(Role::Dim), theme.style(Role::Title));
    let value = compare.value;
    let slices = compare.compared().map_or(0, |compared| compared.slices.len());
    let provenance = map
        .cells
        .iter()
        .filter_map(|cell| compare.pairs().get(cell.pair))
        .map(|pair| pair.provenance)
        .max();
    // provenance shared by all pairs is shown above
    let said =
        compare.compared().is_some_and(|compared| compare.pair_settings(compared).provenance.is_some());
    let label = match provenance.filter(|_| !said) {
        Some(provenance) => format!(" [{provenance}] "),
        None => " ".into(),
    };
    let style = provenance.map_or(dim, |provenance| theme.provenance(provenance));
    let name = format!("{}: ", value.name());
    line(buf, area, 0, &[(&label, style), (&name, title), (compare.slice_name(), text)]);
    let range = map.range(value);
    line(buf, area, 1, &[(&legend(value, range, (compare.slice + 1, slices), area.width), dim)]);
    let spread = range.filter(|range| !is_one(value, *range));
    let first = first_column(area, compare.cursor.1);
    put(buf, area, area.x, area.y + 2, " batch", title);
    for (column, batch) in map.batches.iter().enumerate().skip(first) {
        let x = area.x + LABELS + (column - first) as u16 * CELL;
        put(buf, area, x, area.y + 2, &format!("{batch:>9}"), title);
    }
    for (row, tp) in map.tps.iter().enumerate() {
        let y = area.y + HEAD + row as u16;
        put(buf, area, area.x, y, &format!(" tp{tp:<3}"), title);
        for (column, batch) in map.batches.iter().enumerate().skip(first) {
            let x = area.x + LABELS + (column - first) as u16 * CELL;
            if x + CELL > area.right() {
                put(buf, area, area.right().saturating_sub(1), y, "›", dim);
                break;
            }
            let selected = (row, column) == compare.cursor;
            let Some(cell) = map.cell(*tp, *batch) else {
                let style = if selected { theme.style(Role::Selected) } else { dim };
                // as far right as a number
                put(buf, area, x, y, &format!("{:>9}", compare.why_none(*tp, *batch)), style);
                continue;
            };
            let shown =
                value.number(cell).zip(spread).map(|(v, range)| SHADES[shade_of(value, v, range)]);
            let role = match value {
                HeatValue::Speedup if !cell.differs => Role::Dim,
                HeatValue::Speedup if cell.speedup < 1.0 => Role::Bad,
                HeatValue::ExposedPct => Role::Exposed,
                _ => Role::Good,
            };
            put(buf, area, x, y, shown.unwrap_or("  "), theme.style(role));
            let is_marked = compare.pairs().get(cell.pair).is_some_and(|pair| compare.is_marked(pair));
            let mark = match cell.more {
                _ if is_marked => "●",
                0 => "",
                _ => "+",
            };
            let style = if selected { theme.style(Role::Selected) } else { text };
            put(buf, area, x + 2, y, &format!("{:>7}{mark}", number(cell, value)), style);
        }
    }
    let more: usize = map.cells.iter().map(|cell| cell.more).sum();
    if more > 0 {
        let words = format!(" + {more} further pairs at the same TP and batch are in the table");
        put(buf, area, area.x, area.y + HEAD + map.tps.len() as u16, &words, theme.style(Role::Warn));
    }
}

/// Scale of the shades; remarks that do not fit are left out.
fn legend(
    value: HeatValue,
    range: Option<[f64; 2]>,
    (slice, slices): (usize, usize),
    width: u16,
) -> String {
    let Some([low, high]) = range else { return " no values for these cells".into() };
    let decimals = value.decimals();
    let mut words = if slices > 1 { format!(" slice {slice} of {slices} ") } else { String::new() };
    if is_one(value, [low, high]) {
        return words + &format!(" {low:.decimals$} everywhere");
    }
    if value == HeatValue::Speedup {
        for (index, shade) in SHADES.iter().enumerate() {
            let from = (farthest([low, high]) * index as f64 / 5.0).exp();
            words += &format!(" {} {from:.decimals$}", &shade[..shade.len() / 2]);
        }
        for remark in [" times, up or down", "; ( ): no clear difference"] {
            let fits = words.width() + remark.width() <= usize::from(width);
            words += if fits { remark } else { "" };
        }
        return words;
    }
    let [low, high] = scale(value, [low, high]);
    for (index, shade) in SHADES.iter().enumerate() {
        let from = low + (high - low) * index as f64 / 5.0;
        words += &format!(" {} {from:.decimals$}", &shade[..shade.len() / 2]);
    }
    words += &format!(" to {high:.decimals$}");
    words
}

/// Short label of a link; empty for the machine's own link, and for one that the P2P setting names.
pub fn link(spec: &Spec) -> String {
    match spec.link {
        Link::Native => String::new(),
        _ if spec.has_link_of_p2p() => String::new(),
        Link::P2pOn | Link::P2pOff => format!("link={}", spec.link),
        Link::Emulated { alpha_us, gb_s } => format!("{alpha_us}us+{gb_s}GB/s"),
    }
}

/// Parts of the decode phase: glyph, name, role.
const PARTS: [(&str, &str, Role); 6] = [
    ("█", "work", Role::Series(0)),
    ("▓", "contention", Role::Warn),
    ("╱", "exposed transfer", Role::Exposed),
    ("░", "waiting for peers", Role::Waiting),
    ("·", "idle", Role::Dim),
    (":", SKEW, Role::Dim),
];

/// Wait of a rank that has finished its decode phase for the slowest one.
const SKEW: &str = "rank skew";

/// Name of the last part of these cells: while requests are served, prefills of other requests are most of it.
fn rest(specs: [&Spec; 2]) -> &'static str {
    if specs.iter().any(|spec| spec.concurrency > 0) { "interleaved prefills" } else { SKEW }
}

/// Names of [`PARTS`] in a narrow window.
const SHORT: [&str; 6] = ["work", "contention", "exposed", "waiting", "idle", SKEW];

/// Time of each of [`PARTS`] in the recorded decode phase, in ms: with a recorded split, they sum to the decode latency.
/// Without one, falls back to compute, exposed communication and idle time; the flag is true if the split is complete.
fn parts(side: &Side) -> Option<([f64; 6], bool)> {
    let idle = side.idle_ms?;
    if let Some(split) = side.split {
        let parts = [split.work_ms, split.contention_ms, split.transfer_ms, split.peer_wait_ms, idle];
        let rest = side.decode_ms - parts.iter().sum::<f64>();
        // sums of the same nanoseconds differ in the last digits
        let rest = if rest > 1e-3 { rest } else { 0.0 };
        let [work, contention, transfer, wait, idle] = parts;
        return Some(([work, contention, transfer, wait, idle, rest], true));
    }
    Some(([side.compute_ms?, 0.0, side.exposed_comm_ms?, 0.0, idle, 0.0], false))
}

/// Definitions of the shares in the columns, the longest that fits.
const SHARES: [&str; 3] = [
    " exposed: communication not hidden by compute · overlap: its hidden share · gap closed: share of upper-bound's gain ",
    " exposed: not hidden by compute · gap closed: share of upper-bound's gain ",
    " exposed: communication not hidden by compute ",
];

/// Columns of the two sides. A narrow window drops the lanes' milliseconds, which are also in the bars.
const SIDES: [Column; 8] = [
    Column::text("", 12, 0),
    Column::number("TPOT ms", 20, 0),
    Column::number("comm ms", 8, 2),
    Column::number("exposed ms", 10, 2),
    Column::number("exposed", 8, 0),
    Column::number("overlap", 8, 0),
    Column::number("gap closed", 20, 1),
    Column::text("", 12, 3),
];

/// Result of a pair: measure, ratio, verdict with what goes with it, and its statistics. `is_short` has the exposed shares in
/// place of the ratio of TPOT.
fn result(pair: &Comparison, is_short: bool) -> [String; 4] {
    let ci = pair.speedup_ci95.map_or_else(String::new, |[a, b]| format!(" [{a:.2}, {b:.2}]"));
    // tokens/s includes the prefill
    let of_tpot = if is_short {
        let exposed = [&pair.baseline_side, &pair.side].map(|side| percent(side.exposed_pct));
        format!("; exposed {}", exposed.join(" → "))
    } else if pair.tpot_ms > 0.0 {
        format!("; by TPOT {:.2}x", pair.baseline_tpot_ms / pair.tpot_ms)
    } else {
        String::new()
    };
    let verdict = match pair.verdict {
        PairVerdict::Faster if pair.is_limit_ahead() => "▲ the limit".to_owned(),
        PairVerdict::Faster => "▲ faster".into(),
        PairVerdict::Slower => "▼ slower".into(),
        PairVerdict::Same => "= negligible difference".into(),
        PairVerdict::TooClose => {
            pair.band.map_or_else(String::new, |band| format!("≈ {}", band.too_close()))
        }
        PairVerdict::Chance => "· no significant difference".into(),
        PairVerdict::Unknown => "? too few samples".into(),
    };
    let adjusted = match pair.adjusted_p {
        Some(_) => format!("; adjusted p {}", p(pair.adjusted_p)),
        None => String::new(),
    };
    let samples = match [&pair.baseline_side, &pair.side].map(|side| (side.samples, side.rounds)) {
        _ if pair.provenance == Provenance::Simulated => String::new(),
        [a, b] if a == b => {
            format!("; {} in {} each", counted(a.0 as usize, "sample"), counted(a.1, "round"))
        }
        [a, b] => format!("; {} and {} samples in {} and {}", a.0, b.0, a.1, counted(b.1, "round")),
    };
    let unit = if pair.latency() == "TPOT" { "tokens/s " } else { "TTFT " };
    let published = pair.published_speedup.map_or_else(String::new, |of| format!("; {}", of.of_ratio()));
    [
        unit.to_owned(),
        format!("{:.2}x{ci}", pair.speedup),
        format!(" {verdict}{published}{of_tpot}"),
        format!("{adjusted}{samples}"),
    ]
}

/// Result without the last clauses that do not fit; [`notes`] have all of them.
fn fitted_result(pair: &Comparison, is_short: bool, room: usize) -> [String; 4] {
    let mut pieces = result(pair, is_short);
    let width = |pieces: &[String; 4]| pieces.iter().map(|piece| piece.width()).sum::<usize>();
    let is_whole = width(&pieces) <= room;
    for at in [3, 2] {
        while !is_whole
            && width(&pieces) + 2 > room
            && let Some((kept, _)) = pieces[at].rsplit_once("; ")
        {
            pieces[at] = kept.to_owned();
        }
    }
    pieces[3] += if is_whole { "" } else { " …" };
    pieces
}

/// Source of the difference in decode latency, as a sentence each: from the baseline to the cell, and from the cell to
/// `upper-bound`; none without a recorded split.
fn differences(pair: &Comparison) -> Vec<String> {
    let above = pair.above_upper_bound.filter(|_| pair.value != "upper-bound");
    let by = [
        (format!("{} less {}", pair.baseline, pair.value), pair.saved),
        (format!("{} less upper-bound", pair.value), above),
    ];
    let known = by.into_iter().filter_map(|(name, by)| by.map(|by| (name, by))).enumerate();
    let sentence = |(row, (name, by)): (usize, (String, Difference))| {
        let parts = [
            ("exposed transfer", by.transfer_ms),
            ("waiting for peers", by.peer_wait_ms),
            ("contention", by.contention_ms),
            ("operations", by.operations_ms),
            ("idle", by.idle_ms),
            (rest([&pair.baseline_side.spec, &pair.side.spec]), by.rest_ms),
        ];
        // skip parts that contribute nothing to the difference
        let parts = parts.into_iter().filter(|(_, ms)| ms.abs() >= 0.0005);
        let parts: Vec<String> = parts.map(|(part, ms)| format!("{part} {}", digits(ms))).collect();
        let sum = if parts.is_empty() { String::new() } else { format!(" = {}", parts.join(" + ")) };
        let capped = if row == 1 && pair.is_capped() {
            format!("; what is left of the gap is {CONTENTION}")
        } else {
            String::new()
        };
        format!("{name}: {} ms{sum}{capped}", digits(by.decode_ms))
    };
    known.map(sentence).collect()
}

/// Rows of the details above the differences: two of the result, three of the sides, four of the bars.
const ABOVE_DIFFERENCES: u16 = 9;

/// Rows of [`differences`].
fn difference_rows(pair: &Comparison, width: u16) -> Vec<String> {
    differences(pair).iter().flat_map(|sentence| wrap(sentence, width.into())).collect()
}

/// Caveats of the selected pair, whose details have this area: its result, and the differences.
pub fn notes(pair: &Comparison, inner: Rect) -> Vec<Note> {
    let width = usize::from(inner.width);
    let text = result(pair, false).concat();
    let place = format!("[{}] {}", pair.provenance, pair.matched);
    let is_folded = inner.height < 2 || text.width() > width || place.width() > width;
    let result = format!("{}, {} against {}: {text}", pair.matched, pair.value, pair.baseline);
    let mut notes = vec![Note::new(result, is_folded)];
    let sentences = differences(pair);
    if !sentences.is_empty() {
        let rows = usize::from(inner.height.saturating_sub(ABOVE_DIFFERENCES));
        let is_folded = difference_rows(pair, inner.width).len() > rows;
        notes.push(Note::new(sentences.join("; "), is_folded));
    }
    notes
}

pub fn draw_detail(
    buf: &mut Buffer,
    area: Rect,
    (axis, pair): (&Axis, &Comparison),
    notes: &[Note],
    cx: &Context,
) {
    let theme = cx.theme;
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let name = format!("{axis}: {} against {}", pair.value, pair.baseline);
    let room = area.width.saturating_sub(notes_hint(notes, cx).width() as u16 + 6);
    let inner = frame(buf, area, &cut(&name, room), theme);
    folded_notes(buf, cut_top(Rect { width: area.width.saturating_sub(2), ..area }, 1).0, notes, cx);
    let shares = SHARES.into_iter().find(|shares| shares.width() + 4 <= usize::from(area.width));
    put(buf, area, area.x + 2, area.bottom().saturating_sub(1), shares.unwrap_or_default(), dim);
    // a single row is for the result
    let is_low = inner.height < 2;
    if !is_low {
        let label = format!("[{}] ", pair.provenance);
        let x = put(buf, inner, inner.x, inner.y, &label, theme.provenance(pair.provenance));
        let room = usize::from(inner.right().saturating_sub(x));
        let ids = [&pair.run, &pair.baseline_run];
        let short = ids.map(|id| without_middle(id, 14));
        let runs = [
            format!("{}  runs {} and {}", pair.matched, ids[0], ids[1]),
            format!("{}  runs {} and {}", pair.matched, short[0], short[1]),
            pair.matched.clone(),
        ];
        let fits = runs.iter().find(|runs| runs.width() <= room).unwrap_or(&runs[2]);
        put(buf, inner, x, inner.y, fits, dim);
    }
    let pieces = fitted_result(pair, is_low, inner.width.into());
    let roles = [Role::Text, Role::Title, Role::Text, Role::Dim];
    let pieces: Vec<(&str, Style)> =
        pieces.iter().map(String::as_str).zip(roles.map(|role| theme.style(role))).collect();
    line(buf, inner, u16::from(!is_low), &pieces);
    draw_sides(buf, cut_top(inner, 2).1, pair, theme);
    let sides = [(&pair.baseline, &pair.baseline_side), (&pair.value, &pair.side)];
    bars(buf, inner, theme, &sides.map(|(value, side)| (value.as_str(), side)));
    for (row, words) in (ABOVE_DIFFERENCES..).zip(difference_rows(pair, inner.width)) {
        line(buf, inner, row, &[(&words, text)]);
    }
}

/// Table of the two sides: latency, communication, and the shares of them.
fn draw_sides(buf: &mut Buffer, area: Rect, pair: &Comparison, theme: Theme) {
    let interval = |ci: Option<[f64; 2]>| {
        ci.map(|[a, b]| format!(" [{}, {}]", digits(a), digits(b))).unwrap_or_default()
    };
    let sides = [(&pair.baseline, &pair.baseline_side), (&pair.value, &pair.side)];
    let latencies = pair.latencies_ms();
    let overlaps = [pair.baseline_overlap_pct, pair.overlap_pct];
    let mut columns = SIDES;
    // simulated sides have no intervals
    let titled = |title: String, ci: fn(&Side) -> Option<[f64; 2]>| {
        let has_ci = sides.iter().any(|(_, side)| ci(side).is_some());
        format!("{title}{}", if has_ci { " [95 % CI]" } else { "" })
    };
    columns[1].title = titled(format!("{} ms", pair.latency()), |side| side.tpot_ms_ci95).into();
    columns[6].title = titled("gap closed".into(), |side| side.hidden_share_ci95).into();
    let area = Rect { height: area.height.min(3), ..area };
    table::draw_all(buf, area, theme, &columns, 2, |row, column| {
        let (value, side) = sides[row];
        // per step, like TPOT; the bars cover all steps
        let steps = f64::from(side.spec.output_tokens.saturating_sub(1).max(1));
        let ms = |value: Option<f64>| value.map_or_else(|| "-".into(), |ms| digits(ms / steps));
        match column {
            0 => value.clone(),
            1 => format!("{}{}", digits(latencies[row]), interval(side.tpot_ms_ci95)),
            2 => ms(side.comm_ms),
            3 => ms(side.exposed_comm_ms),
            4 => percent(side.exposed_pct),
            5 => percent(overlaps[row]),
            6 => side.gap_closed(),
            _ => link(&side.spec),
        }
    });
}

/// One bar per side on a common scale, with a legend of the parts.
fn bars(buf: &mut Buffer, inner: Rect, theme: Theme, sides: &[(&str, &Side); 2]) {
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let all: Vec<_> = sides.iter().map(|(_, side)| parts(side)).collect();
    let (Some((first, whole)), Some((second, _))) = (all[0], all[1]) else {
        put(buf, inner, inner.x, inner.y + 5, "where the time went was not recorded", dim);
        return;
    };
    let longest = [first, second].iter().map(|parts| parts.iter().sum::<f64>()).fold(0.0, f64::max);
    if longest <= 0.0 {
        return;
    }
    let columns = f64::from(inner.width.saturating_sub(15 + 23));
    for (index, parts) in [first, second].iter().enumerate() {
        let y = inner.y + 5 + index as u16;
        let name = cut(sides[index].0, 14);
        put(buf, inner, inner.x, y, &name, text);
        let mut x = inner.x + 15;
        let mut done = 0.0;
        for (part, (glyph, _, role)) in parts.iter().zip(PARTS) {
            let from = (done / longest * columns).round() as usize;
            done += part.max(0.0);
            let to = (done / longest * columns).round() as usize;
            x = put(buf, inner, x, y, &glyph.repeat(to - from), theme.style(role));
        }
        // a recorded phase differs in length from the median one
        let what = match (sides[index].1.rounds, whole) {
            (_, true) => "decode".to_owned(),
            (..2, _) => "recorded".to_owned(),
            (runs, _) => format!("mean of {runs} runs"),
        };
        put(
            buf,
            inner,
            x + 1,
            y,
            &format!("{} {what}", ns((parts.iter().sum::<f64>() * 1e6) as i64)),
            text,
        );
    }
    let part = |is_long: bool| {
        let named = PARTS.into_iter().zip(SHORT).enumerate();
        let shown = named.filter(|(index, _)| (first[*index], second[*index]) != (0.0, 0.0));
        shown.map(move |(index, ((glyph, long, role), short))| {
            let name = match (index, whole, is_long) {
                (0, false, _) => "compute",
                (2, false, true) => "exposed communication",
                (5, ..) => rest([&sides[0].1.spec, &sides[1].1.spec]),
                (.., is_long) => {
                    if is_long {
                        long
                    } else {
                        short
                    }
                }
            };
            let unit = if is_long { " ms" } else { "" };
            let words = format!(" {name} {} → {}{unit}  ", digits(first[index]), digits(second[index]));
            (glyph, words, role)
        })
    };
    let width = |is_long| part(is_long).map(|(_, words, _)| words.width() + 1).sum::<usize>();
    let is_long = width(true) <= usize::from(inner.width) + 2;
    let mut x = inner.x;
    for (glyph, words, role) in part(is_long) {
        x = put(buf, inner, x, inner.y + 7, glyph, theme.style(role));
        x = put(buf, inner, x, inner.y + 7, &words, dim);
    }
    if !is_long {
        put(buf, inner, x.saturating_sub(1), inner.y + 7, "ms", dim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_sum_to_the_latency_also_if_ranks_end_before_the_slowest() {
        let cells = crate::face::tui::tests::fixtures::records();
        let report = study::analysis::Cells::of(&cells).compare(&Axis::ARCHITECTURE, None).unwrap();
        let mut side = report.pairs[0].side.clone();
        (side.decode_ms, side.idle_ms) = (20.0, Some(1.0));
        side.split = Some(::table::Split {
            work_ms: 10.0,
            contention_ms: 2.0,
            peer_wait_ms: 1.0,
            transfer_ms: 3.0,
        });
        assert_eq!(parts(&side), Some(([10.0, 2.0, 3.0, 1.0, 1.0, 3.0], true)));
        side.decode_ms = 17.0 - 1e-9;
        assert_eq!(parts(&side).unwrap().0[5], 0.0, "the same nanoseconds");
    }

    #[test]
    fn time_beyond_the_ranks_is_skew_unless_requests_are_served() {
        let batch = Spec::default();
        let served = Spec { concurrency: 64, ..Spec::default() };
        assert_eq!(rest([&batch, &batch]), "rank skew");
        assert_eq!(rest([&served, &served]), "interleaved prefills");
    }

    #[test]
    fn shades_are_fifths_of_the_range() {
        let shades: Vec<usize> = [1.0, 1.19, 1.2, 1.5, 1.99, 2.0].map(|v| shade(v, [1.0, 2.0])).into();
        assert_eq!(shades, [0, 0, 1, 2, 4, 4]);
        let alike = |value, number: f64| is_one(value, [number, number + 1e-4]);
        assert!(alike(HeatValue::ExposedPct, 5.0) && alike(HeatValue::Speedup, 2.0));
        assert!(!is_one(HeatValue::GapClosed, [0.5, 0.52]));
        assert_eq!(legend(HeatValue::Speedup, Some([2.0, 2.0]), (1, 1), 80), " 2.00 everywhere");
        // a fifth of a percent is nothing, also where it is the most
        let shown = [0.0, 0.2, 27.0].map(|v| shade_of(HeatValue::ExposedPct, v, [0.0, v.max(0.2)]));
        assert_eq!(shown, [0, 0, 4]);
        assert_eq!(shade_of(HeatValue::GapClosed, 0.5, [0.4, 0.5]), 2, "half of all");
        // half as fast is as far from 1 as twice as fast
        let ratios = [0.5, 0.96, 1.04, 2.0].map(|v| shade_of(HeatValue::Speedup, v, [0.5, 2.0]));
        assert_eq!(ratios, [4, 0, 0, 4]);
    }
}
