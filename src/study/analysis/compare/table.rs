//! Tables of pairs and of their differences: one list of columns each, for terminal, files and pages.

use super::{Comparison, ComparisonReport};
use crate::analysis::Difference;
use table::render::{Shown, Table};

/// Columns that a narrow window drops, the last entry first.
const LEAST: [&str; 9] = [
    "baseline TPOT ms",
    "TPOT ms",
    "hidden share",
    "overlap %",
    "exposed %",
    "baseline hidden share",
    "baseline overlap %",
    "baseline exposed %",
    "adjusted p",
];

/// Table with one row per pair. Files have all digits and the ends of intervals.
pub fn pairs_table(report: &ComparisonReport) -> Table {
    let end = |ci: Option<[f64; 2]>, at: usize| Shown::number(ci.map(|ci| ci[at]), 3);
    let saved = |p: &Comparison, of: fn(&Difference) -> f64| Shown::number(p.saved.as_ref().map(of), 2);
    let above = |p: &Comparison, of: fn(&Difference) -> f64| {
        Shown::number(p.above_upper_bound.as_ref().map(of), 2)
    };
    // no TPOT if no token was decoded
    let tpot = |ms: f64| Shown::number(Some(ms).filter(|ms| *ms > 0.0), 3);
    let value = |p: &Comparison, at: usize| {
        let measured = p.measured.as_ref();
        Shown::number(measured.and_then(|m| m.values[at]), measured.map_or(3, |m| m.measure.decimals))
    };
    let title = |before: &str| {
        let measured = report.pairs.first().and_then(|pair| pair.measured.as_ref());
        measured.map(|m| format!("{before} {}", m.measure.title).trim().to_owned()).unwrap_or_default()
    };
    // omit columns that were not requested
    let named = |name: &str, title: &str| {
        if title.is_empty() { String::new() } else { format!("{name}|{title}") }
    };
    let [mine, base, ratio] = ["", "baseline", "ratio of"].map(title);
    let (measure, mine) = (if mine.is_empty() { "" } else { "measure|" }, named("measured", &mine));
    let (base, ratio) = (named("baseline_measured", &base), named("measured_ratio", &ratio));
    Table::of(
        &report.pairs,
        &[
            ("~matched|cell", &|p| Shown::text(&p.matched)),
            ("by|", &|_| Shown::text(&report.by)),
            ("baseline", &|p| Shown::text(&p.baseline)),
            ("value", &|p| Shown::text(&p.value)),
            ("baseline_run|", &|p| Shown::text(&p.baseline_run)),
            ("run|", &|p| Shown::text(&p.run)),
            ("baseline_tpot_ms|baseline TPOT ms", &|p| tpot(p.baseline_tpot_ms)),
            ("tpot_ms|TPOT ms", &|p| tpot(p.tpot_ms)),
            (measure, &|p| Shown::some(p.measured.as_ref().map_or("", |m| m.measure.name))),
            (&base, &|p| value(p, 0)),
            (&mine, &|p| value(p, 1)),
            (&ratio, &|p| Shown::number(p.measured.as_ref().and_then(|m| m.ratio), 3)),
            ("speedup|speedup (tokens/s)", &|p| Shown::Interval(p.speedup, p.speedup_ci95, 3)),
            ("speedup_ci95_low|", &|p| end(p.speedup_ci95, 0)),
            ("speedup_ci95_high|", &|p| end(p.speedup_ci95, 1)),
            ("differs|", &|p| Shown::text(p.differs)),
            ("verdict", &|p| Shown::text(p.verdict.as_str())),
            ("p_value|", &|p| Shown::number(p.p_value, 4)),
            ("adjusted_p|adjusted p", &|p| Shown::number(p.adjusted_p, 4)),
            ("baseline_exposed_pct|baseline exposed %", &|p| {
                Shown::number(p.baseline_side.exposed_pct, 1)
            }),
            ("exposed_pct|exposed %", &|p| Shown::number(p.side.exposed_pct, 1)),
            ("baseline_overlap_pct|baseline overlap %", &|p| Shown::number(p.baseline_overlap_pct, 1)),
            ("overlap_pct|overlap %", &|p| Shown::number(p.overlap_pct, 1)),
            ("baseline_hidden_share|", &|p| Shown::number(p.baseline_side.hidden_share, 3)),
            // standard hides nothing, and is the baseline when comparing architectures
            ("|baseline hidden share", &|p| {
                let side = &p.baseline_side;
                let share = side.hidden_share.filter(|share| *share != 0.0);
                Shown::interval(share, side.hidden_share_ci95, 3)
            }),
            ("hidden_share|hidden share", &|p| Shown::interval(p.hidden_share, p.hidden_share_ci95, 3)),
            ("hidden_share_ci95_low|", &|p| end(p.hidden_share_ci95, 0)),
            ("hidden_share_ci95_high|", &|p| end(p.hidden_share_ci95, 1)),
            ("!provenance", &|p| Shown::text(p.provenance)),
            ("saved_decode_ms|", &|p| saved(p, |d| d.decode_ms)),
            ("saved_transfer_ms|", &|p| saved(p, |d| d.transfer_ms)),
            ("saved_peer_wait_ms|", &|p| saved(p, |d| d.peer_wait_ms)),
            ("saved_contention_ms|", &|p| saved(p, |d| d.contention_ms)),
            ("saved_operations_ms|", &|p| saved(p, |d| d.operations_ms)),
            ("above_bound_decode_ms|", &|p| above(p, |d| d.decode_ms)),
            ("above_bound_transfer_ms|", &|p| above(p, |d| d.transfer_ms)),
            ("above_bound_peer_wait_ms|", &|p| above(p, |d| d.peer_wait_ms)),
            ("above_bound_contention_ms|", &|p| above(p, |d| d.contention_ms)),
            ("above_bound_operations_ms|", &|p| above(p, |d| d.operations_ms)),
            ("baseline_comm_ms|", &|p| Shown::number(p.baseline_side.comm_ms, 3)),
            ("comm_ms|", &|p| Shown::number(p.side.comm_ms, 3)),
            ("baseline_exposed_comm_ms|", &|p| Shown::number(p.baseline_side.exposed_comm_ms, 3)),
            ("exposed_comm_ms|", &|p| Shown::number(p.side.exposed_comm_ms, 3)),
            ("baseline_samples|", &|p| p.baseline_side.samples.into()),
            ("samples|", &|p| p.side.samples.into()),
        ],
    )
    .least(&LEAST)
}

/// Row of a difference: cell, `minuend − subtrahend`, breakdown.
pub type Told<'a> = (&'a str, String, Difference);

/// Table of decode-phase differences: one row for baseline minus compared, one for compared minus `upper-bound`; none
/// if the backend does not provide a breakdown. Times per rank (ms).
pub fn differences_table(report: &ComparisonReport) -> Table {
    let mut told: Vec<Told<'_>> = Vec::new();
    for pair in &report.pairs {
        let mut add = |minuend: &str, subtrahend: &str, difference: Option<Difference>| {
            // skip upper-bound minus itself
            let difference = difference.filter(|_| minuend != subtrahend);
            let name = || format!("{minuend} − {subtrahend}");
            told.extend(difference.map(|difference| (&*pair.matched, name(), difference)));
        };
        add(&pair.baseline, &pair.value, pair.saved);
        add(&pair.value, "upper-bound", pair.above_upper_bound);
    }
    told_table(&told)
}

pub fn told_table(told: &[Told<'_>]) -> Table {
    Table::of(
        told,
        &[
            ("~cell", &|told| Shown::some(told.0)),
            ("difference", &|told| Shown::text(&told.1)),
            ("decode_ms|decode ms", &|told| Shown::Number(told.2.decode_ms, 2)),
            ("transfer_ms|transfer", &|told| Shown::Number(told.2.transfer_ms, 2)),
            ("peer_wait_ms|waiting for ranks", &|told| Shown::Number(told.2.peer_wait_ms, 2)),
            ("contention_ms|contention", &|told| Shown::Number(told.2.contention_ms, 2)),
            ("operations_ms|compute", &|told| Shown::Number(told.2.operations_ms, 2)),
            ("idle_ms|idle", &|told| Shown::Number(told.2.idle_ms, 2)),
        ],
    )
}
