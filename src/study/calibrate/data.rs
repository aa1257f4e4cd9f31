//! Measured runs as input of the fit: from a CSV file, or stored ones.

use std::path::Path;

use crate::rows::{Row, Sheet};
use base::error::Result;
use base::input::InputKind;
use base::statistics::median;
use plan::DType;
use table::{Backend, Collective, P2p, Record, Spec};

#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Cell; the fit replaces hardware and stack.
    pub spec: Spec,
    /// batch x output tokens / completion latency.
    pub tokens_per_s: f64,
    /// Latency of all decode steps (s), if known.
    pub decode_s: Option<f64>,
    pub prefill_s: Option<f64>,
}

/// Columns of a data file. Latencies cover all decode steps (`decode_s`) or one (`tpot_ms`).
const REQUIRED: [&str; 8] =
    ["model", "architecture", "tp", "batch", "p2p", "prompt_tokens", "output_tokens", "tokens_per_s"];
const OPTIONAL: [&str; 6] = ["decode_s", "prefill_s", "ttft_ms", "tpot_ms", "collective", "dtype"];

/// Reads a CSV file with the columns model, architecture, tp, batch, p2p, prompt_tokens, output_tokens,
/// tokens_per_s, and optionally decode_s or tpot_ms, prefill_s or ttft_ms, collective, dtype (default f16).
///
/// # Errors
///
/// Returns an error with file, line, column and the expected value if a column is missing, a model or
/// architecture is unknown, or a number is invalid.
pub fn read_csv(path: &Path) -> Result<Vec<Point>> {
    let text = InputKind::TABLE.text(path)?;
    parse(&path.display().to_string(), &text)
}

pub(super) fn parse(file: &str, text: &str) -> Result<Vec<Point>> {
    let known: Vec<&str> = REQUIRED.into_iter().chain(OPTIONAL).collect();
    Sheet::parse(file, text, &REQUIRED, &known)?.rows().map(|row| point(&row)).collect()
}

fn point(row: &Row<'_>) -> Result<Point> {
    let spec = Spec {
        architecture: row.parsed("architecture", "", "it must be standard, ladder, parallel, ...")?,
        model: row.text("model").unwrap_or_default().to_owned(),
        dtype: row.parsed::<DType>("dtype", "f16", "it must be f16, bf16, f32 or fp8")?,
        tp: row.whole("tp", None)?,
        batch: row.whole("batch", None)?,
        prompt_tokens: row.whole("prompt_tokens", None)?,
        output_tokens: row.whole("output_tokens", None)?,
        p2p: row.parsed::<P2p>("p2p", "", "it must be on or off")?,
        hardware: String::new(),
        stack: String::new(),
        collective: row.parsed::<Collective>("collective", "nccl", "it must be nccl or one-shot")?,
        samples: 1,
        warmup: 0,
        ..Spec::default()
    };
    let tokens_per_s = row.positive("tokens_per_s")?;
    let steps = f64::from(spec.output_tokens.saturating_sub(1));
    let decode_s = row.positive("tpot_ms")?.map(|ms| ms * steps / 1e3).filter(|s| *s > 0.0);
    let prefill_s = row.positive("ttft_ms")?.map(|ms| ms / 1e3);
    Ok(Point {
        spec,
        tokens_per_s: tokens_per_s.ok_or_else(|| row.wrong("tokens_per_s", "it is missing"))?,
        decode_s: row.positive("decode_s")?.or(decode_s),
        prefill_s: row.positive("prefill_s")?.or(prefill_s),
    })
}

/// Converts finished runs that were executed, not simulated; latencies are medians over samples.
pub fn of_records(records: &[Record]) -> Vec<Point> {
    records
        .iter()
        .filter(|record| record.is_finished() && !record.spec.backend.is_simulated())
        .filter_map(|record| {
            let metrics = record.metrics.as_ref()?;
            let of = |get: fn(&table::Sample) -> f64| {
                median(&record.samples.iter().map(get).collect::<Vec<_>>()).map(|ms| ms / 1e3)
            };
            Some(Point {
                spec: Spec { backend: Backend::Sim, ..record.spec.clone() },
                tokens_per_s: metrics.tokens_per_s,
                decode_s: of(|s| s.decode_ms).filter(|s| *s > 0.0),
                prefill_s: of(|s| s.prefill_ms).filter(|s| *s > 0.0),
            })
        })
        .collect()
}
