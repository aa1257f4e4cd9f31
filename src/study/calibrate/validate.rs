//! How good a fit is: residuals, mean errors, and errors on data that it has not seen.

use std::collections::BTreeMap;

use serde::Serialize;

use super::data::Point;
use super::fit::{fit, prepare};
use base::error::Result;
use machine::hardware::Target;
use plan::Architecture;

/// A prediction against the measurement of one point.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Residual {
    /// The cell of the point, in words: `llama-3-70b ladder tp8 b1 p2p-on`.
    pub cell: String,
    /// Throughput that was measured (tokens/s).
    pub measured_tokens_per_s: f64,
    /// Throughput that the fitted constants predict (tokens/s).
    pub predicted_tokens_per_s: f64,
    /// Predicted over measured, less 1 (percent).
    pub error_pct: f64,
    /// Error of the decode latency (percent of what was measured).
    pub decode_error_pct: Option<f64>,
    /// Error of the prefill latency (percent of what was measured).
    pub prefill_error_pct: Option<f64>,
    /// Error of the speed-up over standard (percent), where the matched standard point is there.
    pub speedup_error_pct: Option<f64>,
}

/// Mean absolute errors (percent).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Errors {
    /// How many points the means are over.
    pub points: usize,
    /// Mean error of the throughput (percent of what was measured).
    pub tokens_per_s_pct: f64,
    /// Mean error of the speed-up over standard (percent); null where no point has a
    /// standard one beside it.
    pub speedup_pct: Option<f64>,
    /// Mean error of the decode latency (percent).
    pub decode_pct: Option<f64>,
    /// Mean error of the prefill latency (percent).
    pub prefill_pct: Option<f64>,
}

/// Errors on a part of the data by a fit to the rest.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Held {
    /// What was left out of the fit: `tp 8`, `batch 16`.
    pub held_out: String,
    /// Errors on the part that was left out of the fit.
    pub errors: Errors,
}

/// Predictions of a target against measurements: one residual for each point, in their order. Fails for a point of a
/// model that there is not, or that TP does not divide.
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
    // the same cell of standard
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

/// Mean absolute errors; `None` of nothing.
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

/// Leaves out one TP, then one batch size, at a time; the last entry of each is over all points held out. Points of
/// models of which only one TP and batch is there are always fit, never held out. Fails where [`super::fit()`] does
/// on the points that remain.
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
