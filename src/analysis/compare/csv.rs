//! The pairs of a comparison as CSV (RFC 4180): the command line's and the workbench's.

use super::{Comparison, ComparisonReport};
use crate::analysis::Difference;
use crate::text::csv_field;

const COLUMNS: [&str; 38] = [
    "matched",
    "by",
    "baseline",
    "value",
    "baseline_run",
    "run",
    "baseline_tpot_ms",
    "tpot_ms",
    "speedup",
    "speedup_ci95_low",
    "speedup_ci95_high",
    "differs",
    "baseline_overlap_pct",
    "overlap_pct",
    "hidden_share",
    "hidden_share_ci95_low",
    "hidden_share_ci95_high",
    "provenance",
    "saved_decode_ms",
    "saved_transfer_ms",
    "saved_peer_wait_ms",
    "saved_contention_ms",
    "saved_operations_ms",
    "above_bound_decode_ms",
    "above_bound_transfer_ms",
    "above_bound_peer_wait_ms",
    "above_bound_contention_ms",
    "above_bound_operations_ms",
    "p_value",
    "adjusted_p",
    "baseline_comm_ms",
    "comm_ms",
    "baseline_exposed_comm_ms",
    "exposed_comm_ms",
    "baseline_exposed_pct",
    "exposed_pct",
    "baseline_samples",
    "samples",
];

/// A header and a line a pair; every digit, and nothing where a number is not known.
pub fn pairs_csv(report: &ComparisonReport) -> String {
    let mut text = COLUMNS.join(",") + "\n";
    for pair in &report.pairs {
        text += &fields(report, pair).join(",");
        text.push('\n');
    }
    text
}

fn fields(report: &ComparisonReport, pair: &Comparison) -> Vec<String> {
    let maybe = |value: Option<f64>| value.map_or_else(String::new, |v| v.to_string());
    let bounds = |ci: Option<[f64; 2]>| [maybe(ci.map(|ci| ci[0])), maybe(ci.map(|ci| ci[1]))];
    let mut fields: Vec<String> =
        [&pair.matched, &report.by, &pair.baseline, &pair.value, &pair.baseline_run, &pair.run]
            .map(|text| csv_field(text))
            .into();
    fields.extend([pair.baseline_tpot_ms, pair.tpot_ms, pair.speedup].map(|v| v.to_string()));
    fields.extend(bounds(pair.speedup_ci95));
    fields.push(pair.differs.to_string());
    fields.extend([pair.baseline_overlap_pct, pair.overlap_pct, pair.hidden_share].map(maybe));
    fields.extend(bounds(pair.hidden_share_ci95));
    fields.push(pair.provenance.to_string());
    for difference in [pair.saved, pair.above_upper_bound] {
        let parts: [fn(Difference) -> f64; 5] = [
            |d| d.decode_ms,
            |d| d.transfer_ms,
            |d| d.peer_wait_ms,
            |d| d.contention_ms,
            |d| d.operations_ms,
        ];
        fields.extend(parts.map(|of| maybe(difference.map(of))));
    }
    let sides = [&pair.baseline_side, &pair.side];
    fields.extend([pair.p_value, pair.adjusted_p].map(maybe));
    fields.extend(sides.map(|side| maybe(side.comm_ms)));
    fields.extend(sides.map(|side| maybe(side.exposed_comm_ms)));
    fields.extend(sides.map(|side| maybe(side.exposed_pct)));
    fields.extend(sides.map(|side| side.samples.to_string()));
    fields
}
