//! Tables of pairs and of the sources of their differences: one list of columns each, for terminal, files and pages.

use std::collections::BTreeSet;

use super::{Axis, Comparison, ComparisonReport, sides};
use crate::analysis::{Difference, Varied};
use table::render::{Shown, Table};

/// Settings that all cells of a report share, for a line beside its tables, whose rows name the others.
pub fn common_settings(report: &ComparisonReport) -> String {
    sides(&report.pairs)
        .next()
        .map_or_else(String::new, |spec| Varied::from_specs(sides(&report.pairs)).common(spec))
}

/// Settings that name a row: those in which the cells of a report differ, besides its axis. `None` if the rows need
/// [`Comparison::matched`] to be told apart, for their machines or files.
pub(super) struct RowSettings(Option<Varied>);

impl RowSettings {
    pub(super) fn from_report(report: &ComparisonReport) -> Self {
        let varied = Varied::from_specs(sides(&report.pairs));
        let varied = Axis::parse(&report.by).map_or(varied.clone(), |axis| varied.without(&axis));
        let settings = varied.model_last(sides(&report.pairs));
        let words: BTreeSet<String> =
            report.pairs.iter().map(|pair| settings.words(&pair.side.spec)).collect();
        let matched: BTreeSet<&str> = report.pairs.iter().map(|pair| pair.matched.as_str()).collect();
        Self((words.len() >= matched.len()).then_some(settings))
    }

    pub(super) fn name(&self, pair: &Comparison) -> String {
        self.0.as_ref().map_or_else(|| pair.matched.clone(), |settings| settings.words(&pair.side.spec))
    }
}

/// Columns that a narrow window drops, the last entry first.
const LEAST: [&str; 10] = [
    "published",
    "baseline TPOT ms",
    "TPOT ms",
    "gap closed",
    "overlap %",
    "exposed %",
    "baseline gap closed",
    "baseline overlap %",
    "baseline exposed %",
    "adjusted p",
];

/// Part of a difference: its name in files, its title, and its time (ms).
type DifferencePart = (&'static str, &'static str, fn(&Difference) -> f64);

/// The whole difference, then the parts that sum to it.
const PARTS: [DifferencePart; 7] = [
    ("decode_ms", "decode ms", |d| d.decode_ms),
    ("transfer_ms", "transfer", |d| d.transfer_ms),
    ("peer_wait_ms", "peer wait", |d| d.peer_wait_ms),
    ("contention_ms", "contention", |d| d.contention_ms),
    ("operations_ms", "compute", |d| d.operations_ms),
    ("idle_ms", "idle", |d| d.idle_ms),
    ("rest_ms", "rest", |d| d.rest_ms),
];

/// Column of a table of pairs: its name, and the value of a pair.
type PairColumn<'a> = (String, Box<dyn Fn(&Comparison) -> Shown + 'a>);

/// Column with a fixed name.
fn column<'a>(name: &str, value: impl Fn(&Comparison) -> Shown + 'a) -> PairColumn<'a> {
    (name.to_owned(), Box::new(value))
}

/// Table with one row per pair. Files have all digits and the ends of intervals.
pub fn pairs_table(report: &ComparisonReport) -> Table {
    let mut columns = main_columns(report);
    // sources of the difference from the baseline and from `upper-bound`, for files
    columns.extend(PARTS.map(|(name, _, part)| {
        column(&format!("saved_{name}|"), move |p| Shown::number(p.saved.as_ref().map(part), 2))
    }));
    columns.extend(PARTS.map(|(name, _, part)| {
        column(&format!("above_bound_{name}|"), move |p| {
            Shown::number(p.above_upper_bound.as_ref().map(part), 2)
        })
    }));
    columns.extend([
        column("baseline_comm_ms|", |p| Shown::number(p.baseline_side.comm_ms, 3)),
        column("comm_ms|", |p| Shown::number(p.side.comm_ms, 3)),
        column("baseline_exposed_comm_ms|", |p| Shown::number(p.baseline_side.exposed_comm_ms, 3)),
        column("exposed_comm_ms|", |p| Shown::number(p.side.exposed_comm_ms, 3)),
        column("baseline_samples|", |p| p.baseline_side.samples.into()),
        column("samples|", |p| p.side.samples.into()),
    ]);
    let mut table = Table::new(columns.iter().map(|(name, _)| name));
    for pair in &report.pairs {
        table.push(columns.iter().map(|(_, value)| value(pair)).collect());
    }
    table.least(&LEAST)
}

/// Settings, latencies, the measure that was asked for, ratios, and overlap.
fn main_columns(report: &ComparisonReport) -> Vec<PairColumn<'_>> {
    let settings = RowSettings::from_report(report);
    let (tpots, ttfts, speedup) = match report.latency() {
        "TPOT" => (
            ["baseline_tpot_ms|baseline TPOT ms", "tpot_ms|TPOT ms"],
            ["", ""],
            "speedup|speedup (tokens/s)",
        ),
        _ => (
            ["baseline_tpot_ms|", "tpot_ms|"],
            ["|baseline TTFT ms", "|TTFT ms"],
            "speedup|speedup (TTFT)",
        ),
    };
    // no TPOT if no token was decoded
    let tpot = |ms: f64| Shown::number(Some(ms).filter(|ms| *ms > 0.0), 3);
    // without names if no measure was asked for
    let measured = report.pairs.first().and_then(|pair| pair.measured.as_ref());
    let named = |name: &str, before: &str| {
        let title =
            measured.map(|m| format!("{name}|{}", format!("{before} {}", m.measure.title).trim()));
        title.unwrap_or_default()
    };
    let value = |p: &Comparison, at: usize| {
        let measured = p.measured.as_ref();
        Shown::number(measured.and_then(|m| m.values[at]), measured.map_or(3, |m| m.measure.decimals))
    };
    let [published, error] = match report.pairs.iter().any(|pair| pair.published_speedup.is_some()) {
        true => ["published_speedup|published", "published_error_pct|vs published %"],
        false => ["published_speedup|", "published_error_pct|"],
    };
    let end = |ci: Option<[f64; 2]>, at: usize| Shown::number(ci.map(|ci| ci[at]), 3);
    vec![
        column("matched|", |p| Shown::text(&p.matched)),
        column("~|cell", move |p| Shown::some(settings.name(p))),
        column("by|", move |_| Shown::text(&report.by)),
        column("baseline", |p| Shown::text(&p.baseline)),
        column("value", |p| Shown::text(&p.value)),
        column("baseline_run|", |p| Shown::text(&p.baseline_run)),
        column("run|", |p| Shown::text(&p.run)),
        column(tpots[0], move |p| tpot(p.baseline_tpot_ms)),
        column(tpots[1], move |p| tpot(p.tpot_ms)),
        column(ttfts[0], |p| Shown::Number(p.latencies_ms()[0], 3)),
        column(ttfts[1], |p| Shown::Number(p.latencies_ms()[1], 3)),
        column(if measured.is_some() { "measure|" } else { "" }, |p| {
            Shown::some(p.measured.as_ref().map_or("", |m| m.measure.name))
        }),
        column(&named("baseline_measured", "baseline"), move |p| value(p, 0)),
        column(&named("measured", ""), move |p| value(p, 1)),
        column(&named("measured_ratio", "ratio of"), |p| {
            Shown::number(p.measured.as_ref().and_then(|m| m.ratio), 3)
        }),
        column(speedup, |p| Shown::Interval(p.speedup, p.speedup_ci95, 3)),
        column("speedup_ci95_low|", move |p| end(p.speedup_ci95, 0)),
        column("speedup_ci95_high|", move |p| end(p.speedup_ci95, 1)),
        column("differs|", |p| Shown::text(p.differs)),
        column("verdict", |p| Shown::text(p.verdict_word())),
        column(published, |p| Shown::number(p.published_speedup.map(|of| of.value), 3)),
        column(error, |p| Shown::number(p.published_speedup.map(|of| of.error_pct), 1)),
        column("p_value|", |p| Shown::number(p.p_value, 4)),
        column("adjusted_p|adjusted p", |p| Shown::number(p.adjusted_p, 4)),
        column("baseline_exposed_pct|baseline exposed %", |p| {
            Shown::number(p.baseline_side.exposed_pct, 1)
        }),
        column("exposed_pct|exposed %", |p| Shown::number(p.side.exposed_pct, 1)),
        column("baseline_overlap_pct|baseline overlap %", |p| Shown::number(p.baseline_overlap_pct, 1)),
        column("overlap_pct|overlap %", |p| Shown::number(p.overlap_pct, 1)),
        column("baseline_hidden_share|", |p| Shown::number(p.baseline_side.hidden_share, 3)),
        // standard closes no gap, and is the baseline when comparing architectures
        column("|baseline gap closed", |p| {
            let side = &p.baseline_side;
            let share = side.hidden_share.filter(|share| *share != 0.0);
            Shown::interval(share, side.hidden_share_ci95, 3)
        }),
        column("hidden_share|gap closed", |p| Shown::interval(p.hidden_share, p.hidden_share_ci95, 3)),
        column("hidden_share_ci95_low|", move |p| end(p.hidden_share_ci95, 0)),
        column("hidden_share_ci95_high|", move |p| end(p.hidden_share_ci95, 1)),
        column("!provenance", |p| Shown::text(p.provenance)),
    ]
}

/// Title of a table of differences.
pub const DIFFERENCES: &str = "Source of the difference in decode latency (ms, mean over ranks)";

/// Explanation of the column `rest`.
pub const REST: &str = "rest: ranks that end early, prefills of other requests";

/// Row of a table of differences.
#[derive(Clone, Debug)]
pub struct DifferenceRow<'a> {
    /// Matched cell, for files; empty if the table has one.
    pub cell: &'a str,
    /// Its settings that others do not have, for people.
    pub settings: String,
    /// `minuend − subtrahend`.
    pub name: String,
    pub difference: Difference,
}

/// Table of decode-phase differences: one row for baseline minus compared, one for compared minus `upper-bound`; none
/// if the backend does not provide a breakdown. Times per rank (ms).
pub fn differences_table(report: &ComparisonReport) -> Table {
    let settings = RowSettings::from_report(report);
    let mut rows: Vec<DifferenceRow<'_>> = Vec::new();
    for pair in &report.pairs {
        let mut add = |minuend: &str, subtrahend: &str, difference: Option<Difference>| {
            // skip upper-bound minus itself
            let difference = difference.filter(|_| minuend != subtrahend);
            rows.extend(difference.map(|difference| DifferenceRow {
                cell: &pair.matched,
                settings: settings.name(pair),
                name: format!("{minuend} − {subtrahend}"),
                difference,
            }));
        };
        add(&pair.baseline, &pair.value, pair.saved);
        add(&pair.value, "upper-bound", pair.above_upper_bound);
    }
    difference_rows_table(&rows)
}

/// Table of differences. Windows too narrow for all parts lose the smallest ones.
pub fn difference_rows_table(rows: &[DifferenceRow<'_>]) -> Table {
    let fixed = ["cell|", "~|cell", "difference"].map(str::to_owned);
    let parts = PARTS.map(|(name, title, _)| format!("{name}|{title}"));
    let mut table = Table::new(fixed.into_iter().chain(parts));
    for row in rows {
        let fixed = [Shown::some(row.cell), Shown::some(&row.settings), Shown::text(&row.name)];
        let parts = PARTS.map(|(.., part)| Shown::Number(part(&row.difference), 2));
        table.push(fixed.into_iter().chain(parts).collect());
    }
    let total = |(.., part): &DifferencePart| -> f64 {
        rows.iter().map(|row| part(&row.difference).abs()).sum()
    };
    let [_, mut parts @ ..] = PARTS;
    parts.sort_by(|a, b| total(b).total_cmp(&total(a)));
    table.least(&parts.map(|(_, title, _)| title))
}
