//! Accuracy of a fit: residuals, mean errors, and errors on held-out data.

use std::collections::BTreeMap;

use serde::Serialize;

use super::data::Point;
use super::fit::{fit, prepare};
use base::error::Result;
use machine::hardware::Target;
use plan::Architecture;

/// Prediction compared with the measurement of one point.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Residual {
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
pub struct Held {
    /// Held-out value: `tp 8`, `batch 16`.
    pub held_out: String,
    /// Errors on the held-out points.
    pub errors: Errors,
}

/// Residuals of a target's predictions, one per point, in order. Returns an error if a point's model is
/// unknown or TP does not divide it.
pub fn residuals(points: &[&Point], target: &Target) -> Result<Vec<Residual>> {
    let prepared = prepare(points.iter().copied(), target)?;
    let predicted: Vec<(f64, f64, f64)> = prepared
        .iter()
        .map(|one| {
            let prediction = one.predict(target);
            let (decode, prefill) = (prediction.decode_ms / 1e3, prediction.prefill_ms / 1e3);
            let tokens = f64::from(one.point.spec.batch) * f64::from(one.point.spec.output_tokens);
            (tokens / (decode + prefill), decode, prefill)
        })
        .collect();
    let pct = |predicted: f64, measured: f64| 100.0 * (predicted / measured - 1.0);
    let base = |point: &Point| {
        let standard = |other: &&Point| {
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
            Residual {
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

pub fn errors(residuals: &[Residual]) -> Option<Errors> {
    let mean = |of: fn(&Residual) -> Option<f64>| {
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
pub fn cross_validate(points: &[&Point], target: &Target, keys: Option<&[String]>) -> Result<Vec<Held>> {
    let mut held = Vec::new();
    for (axis, of) in
        [("tp", (|point| point.spec.tp) as fn(&Point) -> u32), ("batch", |point| point.spec.batch)]
    {
        let mut values: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for point in points {
            let known = values.entry(&point.spec.model).or_default();
            if !known.contains(&of(point)) {
                known.push(of(point));
            }
        }
        let varies = |point: &Point| values.get(point.spec.model.as_str()).is_some_and(|v| v.len() > 1);
        let mut folds: Vec<u32> = points.iter().filter(|p| varies(p)).map(|p| of(p)).collect();
        folds.sort_unstable();
        folds.dedup();
        let mut all = Vec::new();
        for value in folds {
            let (out, rest): (Vec<&Point>, Vec<&Point>) =
                points.iter().partition(|point| varies(point) && of(point) == value);
            let fitted = fit(&rest, target, keys)?;
            let residuals = residuals(&out, &fitted.target)?;
            if let Some(errors) = errors(&residuals) {
                held.push(Held { held_out: format!("{axis} {value}"), errors });
            }
            all.extend(residuals);
        }
        if let Some(errors) = errors(&all) {
            held.push(Held { held_out: format!("each {axis} in turn"), errors });
        }
    }
    Ok(held)
}
