//! Measured runs as input of a fit, from a CSV file or stored ones, and a fit's accuracy on them: residuals, mean
//! errors, and errors on held-out data.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use super::{fit, prepare};
use crate::csv_table::{CsvRow, CsvTable};
use base::error::Result;
use base::input::InputKind;
use base::statistics::median;
use machine::hardware::Target;
use plan::{Architecture, DType};
use table::{Backend, Collective, P2p, Record, Spec};

#[derive(Clone, Debug, PartialEq)]
pub struct CalibrationPoint {
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
pub fn read_csv(path: &Path) -> Result<Vec<CalibrationPoint>> {
    let text = InputKind::TABLE.text(path)?;
    parse(&path.display().to_string(), &text)
}

pub(super) fn parse(file: &str, text: &str) -> Result<Vec<CalibrationPoint>> {
    let known: Vec<&str> = REQUIRED.into_iter().chain(OPTIONAL).collect();
    CsvTable::parse(file, text, &REQUIRED, &known)?.rows().map(|row| point(&row)).collect()
}

fn point(row: &CsvRow<'_>) -> Result<CalibrationPoint> {
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
    Ok(CalibrationPoint {
        spec,
        tokens_per_s: tokens_per_s.ok_or_else(|| row.wrong("tokens_per_s", "it is missing"))?,
        decode_s: row.positive("decode_s")?.or(decode_s),
        prefill_s: row.positive("prefill_s")?.or(prefill_s),
    })
}

/// Converts finished runs that were executed, not simulated; latencies are medians over samples.
pub fn of_records(records: &[Record]) -> Vec<CalibrationPoint> {
    records
        .iter()
        .filter(|record| record.is_finished() && !record.spec.backend.is_simulated())
        .filter_map(|record| {
            let metrics = record.metrics.as_ref()?;
            let median_of = |get: fn(&table::Sample) -> f64| {
                median(&record.samples.iter().map(get).collect::<Vec<_>>()).map(|ms| ms / 1e3)
            };
            Some(CalibrationPoint {
                spec: Spec { backend: Backend::Sim, ..record.spec.clone() },
                tokens_per_s: metrics.tokens_per_s,
                decode_s: median_of(|s| s.decode_ms).filter(|s| *s > 0.0),
                prefill_s: median_of(|s| s.prefill_ms).filter(|s| *s > 0.0),
            })
        })
        .collect()
}

/// Prediction compared with the measurement of one point.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "Residual")]
pub struct FitResidual {
    /// Cell of the point: `llama-3-70b ladder tp8 b1 p2p-on`.
    pub cell: String,
    /// Measured throughput (tokens/s).
    pub measured_tokens_per_s: f64,
    /// Throughput predicted with the fitted constants (tokens/s).
    pub predicted_tokens_per_s: f64,
    /// Predicted / measured - 1 (percent).
    pub error_pct: f64,
    /// Error of the decode latency (percent of the measured one).
    pub decode_error_pct: Option<f64>,
    /// Error of the prefill latency (percent of the measured one).
    pub prefill_error_pct: Option<f64>,
    /// Error of the speedup over standard (percent); null without a matching standard point.
    pub speedup_error_pct: Option<f64>,
}

/// Mean absolute errors (percent).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Errors {
    /// Number of points.
    pub points: usize,
    /// Mean error of the throughput (percent of the measured one).
    pub tokens_per_s_pct: f64,
    /// Mean error of the speedup over standard (percent); null if no point has a matching standard point.
    pub speedup_pct: Option<f64>,
    /// Mean error of the decode latency (percent).
    pub decode_pct: Option<f64>,
    /// Mean error of the prefill latency (percent).
    pub prefill_pct: Option<f64>,
}

/// Errors on held-out data of a fit to the rest.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "Held")]
pub struct HeldOutErrors {
    /// Held-out value: `tp 8`, `batch 16`.
    pub held_out: String,
    /// Errors on the held-out points.
    pub errors: Errors,
}

/// Residuals of a target's predictions, one per point, in order. Returns an error if a point's model is
/// unknown or TP does not divide it.
pub fn residuals(points: &[&CalibrationPoint], target: &Target) -> Result<Vec<FitResidual>> {
    let prepared = prepare(points, &Arc::new(target.clone()))?;
    let predicted: Vec<(f64, f64, f64)> = prepared
        .iter()
        .map(|one| {
            let prediction = one.cell.predict();
            let (decode, prefill) = (prediction.decode_ms / 1e3, prediction.prefill_ms / 1e3);
            let tokens = f64::from(one.point.spec.batch) * f64::from(one.point.spec.output_tokens);
            (tokens / (decode + prefill), decode, prefill)
        })
        .collect();
    let pct = |predicted: f64, measured: f64| 100.0 * (predicted / measured - 1.0);
    let base = |point: &CalibrationPoint| {
        let standard = |other: &&CalibrationPoint| {
            let mut spec = other.spec.clone();
            let is = spec.architecture == Architecture::Standard;
            spec.architecture = point.spec.architecture.clone();
            is && spec == point.spec
        };
        points.iter().position(standard)
    };
    Ok(points
        .iter()
        .zip(&predicted)
        .map(|(point, (tokens_per_s, decode, prefill))| {
            let standard = base(point).filter(|_| point.spec.architecture != Architecture::Standard);
            FitResidual {
                cell: format!("{} {}", point.spec.model, point.spec.label()),
                measured_tokens_per_s: point.tokens_per_s,
                predicted_tokens_per_s: *tokens_per_s,
                error_pct: pct(*tokens_per_s, point.tokens_per_s),
                decode_error_pct: point.decode_s.map(|s| pct(*decode, s)),
                prefill_error_pct: point.prefill_s.map(|s| pct(*prefill, s)),
                speedup_error_pct: standard.map(|at| {
                    pct(tokens_per_s / predicted[at].0, point.tokens_per_s / points[at].tokens_per_s)
                }),
            }
        })
        .collect())
}

pub fn errors(residuals: &[FitResidual]) -> Option<Errors> {
    let mean = |of: fn(&FitResidual) -> Option<f64>| {
        let values: Vec<f64> = residuals.iter().filter_map(of).map(f64::abs).collect();
        base::statistics::mean(&values)
    };
    Some(Errors {
        points: residuals.len(),
        tokens_per_s_pct: mean(|r| Some(r.error_pct))?,
        speedup_pct: mean(|r| r.speedup_error_pct),
        decode_pct: mean(|r| r.decode_error_pct),
        prefill_pct: mean(|r| r.prefill_error_pct),
    })
}

/// Cross-validates by holding out one TP at a time, then one batch size at a time; the last entry of each
/// covers all held-out points. Models with a single TP (or batch size) stay in every fit. Returns the errors
/// of [`super::fit()`] on the remaining points.
pub fn cross_validate(
    points: &[&CalibrationPoint],
    target: &Target,
    keys: Option<&[String]>,
) -> Result<Vec<HeldOutErrors>> {
    let mut held = Vec::new();
    for (axis, of) in [
        ("tp", (|point| point.spec.tp) as fn(&CalibrationPoint) -> u32),
        ("batch", |point| point.spec.batch),
    ] {
        let mut values: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        for point in points {
            values.entry(&point.spec.model).or_default().insert(of(point));
        }
        let varies = |point: &CalibrationPoint| {
            values.get(point.spec.model.as_str()).is_some_and(|v| v.len() > 1)
        };
        let folds: BTreeSet<u32> = points.iter().filter(|p| varies(p)).map(|p| of(p)).collect();
        let mut all = Vec::new();
        for value in folds {
            let (out, rest): (Vec<&CalibrationPoint>, Vec<&CalibrationPoint>) =
                points.iter().partition(|point| varies(point) && of(point) == value);
            let fitted = fit(&rest, target, keys)?;
            let residuals = residuals(&out, &fitted.target)?;
            if let Some(errors) = errors(&residuals) {
                held.push(HeldOutErrors { held_out: format!("{axis} {value}"), errors });
            }
            all.extend(residuals);
        }
        if let Some(errors) = errors(&all) {
            held.push(HeldOutErrors { held_out: format!("each {axis} in turn"), errors });
        }
    }
    Ok(held)
}
