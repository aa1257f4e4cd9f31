//! Selected pair: both sides next to each other, and bars of the decode time breakdown.

use super::draw::p;
use crate::face::tui::prelude::*;
use study::analysis::{Axis, Comparison, Side, Verdict};
use table::{Link, Provenance, Spec};

/// Short label of a link; empty for the machine's own link.
pub fn link(spec: &Spec) -> String {
    match spec.link {
        Link::Native => String::new(),
        Link::P2pOn | Link::P2pOff => format!("link={}", spec.link),
        Link::Emulated { alpha_us, gb_s } => format!("{alpha_us}us+{gb_s}GB/s"),
    }
}

/// Parts of the decode phase: glyph, name, role.
const PARTS: [(&str, &str, Role); 5] = [
    ("█", "work", Role::Series(0)),
    ("▓", "contention", Role::Warn),
    ("╱", "exposed transfer", Role::Exposed),
    ("░", "waiting for peers", Role::Waiting),
    ("·", "idle", Role::Dim),
];

/// Time of each of [`PARTS`] in the recorded decode phase, in ms. Without a recorded split, falls back
/// to compute, exposed communication and idle time; the flag is true if the split is complete.
fn parts(side: &Side) -> Option<([f64; 5], bool)> {
    let idle = side.idle_ms?;
    if let Some(split) = side.split {
        let parts = [split.work_ms, split.contention_ms, split.transfer_ms, split.peer_wait_ms, idle];
        return Some((parts, true));
    }
    Some(([side.compute_ms?, 0.0, side.exposed_comm_ms?, 0.0, idle], false))
}

pub fn draw(buf: &mut Buffer, area: Rect, theme: Theme, axis: &Axis, pair: &Comparison) {
    let (text, dim, title) = (theme.style(Role::Text), theme.style(Role::Dim), theme.style(Role::Title));
    let name = format!("{axis}: {} against {}", pair.value, pair.baseline);
    let inner = frame(buf, area, &name, theme);
    let label = format!("[{}] ", pair.provenance);
    let x = put(buf, inner, inner.x, inner.y, &label, theme.provenance(pair.provenance));
    let runs = format!("{}  runs {} and {}", pair.matched, pair.run, pair.baseline_run);
    put(buf, inner, x, inner.y, &runs, dim);
    let interval =
        |ci: Option<[f64; 2]>| ci.map(|[a, b]| format!(" [{a:.3}, {b:.3}]")).unwrap_or_default();
    let ratio = format!("{:.3}x{}", pair.speedup, interval(pair.speedup_ci95));
    let differs = match pair.verdict {
        Verdict::Faster => "▲ faster",
        Verdict::Slower => "▼ slower",
        Verdict::Same => "= too little to matter",
        Verdict::TooClose => "≈ too close to call: below the simulator's error",
        Verdict::Chance => "· not shown to differ",
        Verdict::Unknown => "? too few samples to say",
    };
    let adjusted = match pair.adjusted_p {
        Some(_) => format!(", p {} (adjusted {})", p(pair.p_value), p(pair.adjusted_p)),
        None => String::new(),
    };
    let sides = [(&pair.baseline, &pair.baseline_side), (&pair.value, &pair.side)];
    let samples = match sides.map(|(_, side)| (side.samples, side.rounds)) {
        [a, b] if a == b => {
            format!("; {} in {} each", counted(a.0 as usize, "sample"), counted(a.1, "round"))
        }
        [a, b] => format!("; {} and {} samples in {} and {}", a.0, b.0, a.1, counted(b.1, "round")),
    };
    let samples = if pair.provenance == Provenance::Simulated { String::new() } else { samples };
    let told = [("tokens/s ", text), (&*ratio, title), (" ", text), (differs, text)];
    line(buf, inner, 1, &[&told[..], &[(&*adjusted, dim), (&*samples, dim)]].concat());
    let tpots = [pair.baseline_tpot_ms, pair.tpot_ms];
    let overlaps = [pair.baseline_overlap_pct, pair.overlap_pct];
    // a narrow window keeps only shares and intervals; the lanes' milliseconds are also in the bars
    let wide = inner.width >= 100;
    let row = |cells: [&str; 7]| {
        let [name, tpot, comm, exposed, of_tpot, overlap, hidden] = cells;
        let lanes = if wide { format!(" {comm:>10} {exposed:>8}") } else { String::new() };
        format!("{name:<12} {tpot:>20}{lanes} {of_tpot:>8} {overlap:>8} {hidden:>20}")
    };
    let exposed = if wide { "of TPOT" } else { "exposed" };
    let hidden = "hidden share [95%]";
    let head = row(["", "TPOT ms [95%]", "of it comm", "exposed", exposed, "overlap", hidden]);
    put(buf, inner, inner.x, inner.y + 2, &head, title);
    for (index, (value, side)) in sides.iter().enumerate() {
        let y = inner.y + 3 + index as u16;
        // per step, like TPOT; the bars cover all steps
        let steps = f64::from(side.spec.output_tokens.saturating_sub(1).max(1));
        let ms = |value: Option<f64>| value.map_or_else(|| "-".into(), |ms| digits(ms / steps));
        let name = cut(value, 12);
        let tpot = format!("{}{}", digits(tpots[index]), interval(side.tpot_ms_ci95));
        let mut row = row([
            &name,
            &tpot,
            &ms(side.comm_ms),
            &ms(side.exposed_comm_ms),
            &percent(side.exposed_pct),
            &percent(overlaps[index]),
            &side.hidden(),
        ]);
        let from = link(&side.spec);
        if !from.is_empty() {
            row += &format!("  {from}");
        }
        put(buf, inner, inner.x, y, &row, text);
    }
    bars(buf, inner, theme, &sides.map(|(value, side)| (value.as_str(), side)));
    let by = [
        (format!("{} less {}", pair.baseline, pair.value), pair.saved),
        (format!("{} less upper-bound", pair.value), pair.above_upper_bound),
    ];
    let known = by.into_iter().filter_map(|(name, by)| by.map(|by| (name, by)));
    for (row, (name, by)) in known.enumerate() {
        let parts = [
            ("exposed transfer", by.transfer_ms),
            ("waiting for peers", by.peer_wait_ms),
            ("contention", by.contention_ms),
            ("operations", by.operations_ms),
            ("idle", by.idle_ms),
        ];
        // skip parts that contribute nothing to the difference
        let parts = parts.into_iter().filter(|(_, ms)| ms.abs() >= 0.0005);
        let parts: Vec<String> = parts.map(|(part, ms)| format!("{part} {}", digits(ms))).collect();
        let sum = if parts.is_empty() { String::new() } else { format!(" = {}", parts.join(" + ")) };
        let words = format!("{name}: {} ms{sum}", digits(by.decode_ms));
        line(buf, inner, 9 + row as u16, &[(&words, text)]);
    }
}

/// One bar per side on a common scale, with a legend of the parts.
fn bars(buf: &mut Buffer, inner: Rect, theme: Theme, sides: &[(&str, &Side); 2]) {
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let told: Vec<_> = sides.iter().map(|(_, side)| parts(side)).collect();
    let (Some((first, whole)), Some((second, _))) = (told[0], told[1]) else {
        put(buf, inner, inner.x, inner.y + 5, "where the time went was not recorded", dim);
        return;
    };
    let longest = [first, second].iter().map(|parts| parts.iter().sum::<f64>()).fold(0.0, f64::max);
    if longest <= 0.0 {
        return;
    }
    let columns = f64::from(inner.width.saturating_sub(15 + 17));
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
        let what = if whole { "decode" } else { "recorded" };
        put(buf, inner, x + 1, y, &format!("{} ms {what}", digits(parts.iter().sum())), text);
    }
    let mut x = inner.x;
    for (index, (glyph, name, role)) in PARTS.into_iter().enumerate() {
        if (first[index], second[index]) == (0.0, 0.0) {
            continue;
        }
        let name = match (index, whole) {
            (0, false) => "compute",
            (2, false) => "exposed communication",
            _ => name,
        };
        x = put(buf, inner, x, inner.y + 7, glyph, theme.style(role));
        let words = format!(" {name} {} → {}  ", digits(first[index]), digits(second[index]));
        x = put(buf, inner, x, inner.y + 7, &words, dim);
    }
}
