//! Points as a table: every number of each, in columns that an overlay can read back.

use super::points::ParetoPoint;

const COLUMNS: [&str; 31] = [
    "group",
    "on_frontier",
    "architecture",
    "model",
    "dtype",
    "tp",
    "batch",
    "prompt_tokens",
    "output_tokens",
    "p2p",
    "backend",
    "link",
    "hardware",
    "stack",
    "completion_ms",
    "tokens_per_s_per_gpu",
    "tpot_ms",
    "provenance",
    "run",
    "ttft_ms",
    "tokens_per_s",
    "tokens_per_s_per_user",
    "completion_ms_low",
    "completion_ms_high",
    "tpot_ms_low",
    "tpot_ms_high",
    "tokens_per_s_low",
    "tokens_per_s_high",
    "setting",
    "on_series_frontier",
    "dominated_by",
];

/// The points as CSV (RFC 4180, with plain line feeds) with a header. Numbers are written in full;
/// `low` and `high` are the ends of 95 % intervals, empty where there are none.
pub fn points_csv(points: &[ParetoPoint]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let number = |value: Option<f64>| value.map(|v| v.to_string()).unwrap_or_default();
    let low = |ci: Option<[f64; 2]>| number(ci.map(|ci| ci[0]));
    let high = |ci: Option<[f64; 2]>| number(ci.map(|ci| ci[1]));
    let rows = points.iter().map(|point| {
        let spec = &point.spec;
        [
            point.group.clone(),
            point.on_frontier.to_string(),
            spec.architecture.to_string(),
            spec.model.clone(),
            spec.dtype.to_string(),
            spec.tp.to_string(),
            spec.batch.to_string(),
            spec.prompt_tokens.to_string(),
            spec.output_tokens.to_string(),
            spec.p2p.as_str().to_owned(),
            spec.backend.as_str().to_owned(),
            spec.link.to_string(),
            spec.hardware.clone(),
            spec.stack.clone(),
            number(Some(point.completion_ms)),
            number(Some(point.tokens_per_s_per_gpu)),
            number(Some(point.tpot_ms)),
            point.provenance.to_string(),
            point.run.clone(),
            number(point.ttft_ms),
            number(Some(point.tokens_per_s)),
            number(point.tokens_per_s_per_user),
            low(point.completion_ms_ci95),
            high(point.completion_ms_ci95),
            low(point.tpot_ms_ci95),
            high(point.tpot_ms_ci95),
            low(point.tokens_per_s_ci95),
            high(point.tokens_per_s_ci95),
            point.setting.clone(),
            point.on_series_frontier.to_string(),
            point.dominated_by.clone().unwrap_or_default(),
        ]
    });
    let header = COLUMNS.map(str::to_owned);
    for row in std::iter::once(header).chain(rows) {
        // a vector takes everything, and every row has a field a column
        if writer.write_record(row).is_err() {
            break;
        }
    }
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}

/// Columns of this table that an overlay does not read.
pub(super) fn is_own(column: &str) -> bool {
    COLUMNS.contains(&column)
}
