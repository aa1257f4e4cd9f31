//! Calibration: fits the few free constants of a stack and its links to measured runs.
//!
//! Bounded Levenberg-Marquardt least squares over logarithms of latencies, decode and prefill separately.
//! Intervals come from the curvature at the optimum; errors on unseen data come from leaving out one TP, or
//! one batch size, at a time. Evaluating all points once takes a few milliseconds.

mod inspector;
mod links;
mod nccl_tests;
mod parameters;
mod points;
mod traced;

pub use inspector::{Inspected, inspector_files, read_inspector};
pub use links::{KeptValue, LinkOptions, MeasuredLink, MeasuredLinks};
pub use nccl_tests::AllReduces;
pub use parameters::{PARAMETERS, Parameter};
pub use points::{
    CalibrationPoint, Errors, FitResidual, HeldOutErrors, cross_validate, errors, of_records, read_csv,
    residuals,
};
pub use traced::all_reduces_of;

use std::sync::Arc;

use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt};
use nalgebra::storage::Owned;
use nalgebra::{DMatrix, DVector, Dyn};
use rayon::prelude::*;

use self::parameters::CalibratedTarget;
use base::error::{Error, Result};
use machine::hardware::Target;
use run::sim::{SimulatedCell, Simulator};

/// Weight of prefill residuals: prefills are short and measured once per run.
const PREFILL_WEIGHT: f64 = 0.5;

/// Soft L1 threshold, in logarithms (3 %): larger residuals count less than quadratically.
const ROBUST: f64 = 0.03;

/// Step of numeric derivatives, in the unbounded coordinates.
const STEP: f64 = 1e-3;

#[derive(Clone, Copy, Debug)]
pub struct FittedConstant {
    pub parameter: &'static Parameter,
    /// Value at the optimum, in the parameter's unit.
    pub value: f64,
    /// 95 % interval from the curvature at the optimum, clamped to the bounds; `None` if the data do not
    /// determine the constant.
    pub interval: Option<(f64, f64)>,
}

#[derive(Clone, Debug)]
pub struct Fit {
    pub target: Target,
    /// Fitted constants, in the order of [`PARAMETERS`].
    pub constants: Vec<FittedConstant>,
}

struct Prepared<'a> {
    point: &'a CalibrationPoint,
    cell: SimulatedCell<'a>,
}

fn prepare<'a>(points: &[&'a CalibrationPoint], target: &Arc<Target>) -> Result<Vec<Prepared<'a>>> {
    let simulator = Simulator::default();
    let prepared = points.iter().map(|point| {
        let shape = &simulator.model(&point.spec.model)?.shape;
        let cell = simulator.cell_on(&point.spec, shape, Arc::clone(target))?;
        Ok(Prepared { point, cell })
    });
    prepared.collect()
}

/// Fits constants of `target` to the points: those in `keys`, by default all except
/// [`Parameter::is_by_name`]. Constants that no point depends on keep their values. Deterministic.
///
/// # Errors
///
/// Returns an error if the data depend on none of the constants or are too few, or if a model is unknown or
/// TP does not divide it.
pub fn fit(points: &[&CalibrationPoint], target: &Target, keys: Option<&[String]>) -> Result<Fit> {
    let prepared = prepare(points, &Arc::new(target.clone()))?;
    let mut free: Vec<&'static Parameter> = PARAMETERS
        .iter()
        .filter(|parameter| match keys {
            Some(keys) => keys.iter().any(|key| key == parameter.key),
            None => !parameter.is_by_name(),
        })
        .collect();
    // drop constants that no point depends on
    let problem = Problem::new(&prepared, target, free.clone());
    let jacobian = problem.jacobian();
    let columns = jacobian.iter().flat_map(|jacobian| jacobian.column_iter());
    let keep: Vec<bool> = columns.map(|column| column.norm() > 1e-9).collect();
    let host = free.iter().zip(&keep).any(|(parameter, keep)| parameter.is_host_link() && *keep);
    let mut keep = keep.into_iter();
    free.retain(|parameter| keep.next().unwrap_or(false) || host && parameter.is_host_link());
    if free.is_empty() {
        return Err(Error::input("the data depend on none of the constants"));
    }
    let problem = Problem::new(&prepared, target, free.clone());
    if problem.len() < free.len() {
        return Err(Error::input_help(
            format!("{} measurements are too few to fit {} constants", problem.len(), free.len()),
            "add measurements, or fit fewer constants with --fit KEY,...",
        ));
    }
    let (problem, _) = LevenbergMarquardt::new().with_tol(1e-9).with_patience(40).minimize(problem);
    let values = problem.values();
    let intervals = problem.intervals();
    let state = problem.state(&problem.unbounded);
    let constants = free
        .iter()
        .zip(values)
        .zip(intervals)
        .map(|((parameter, value), interval)| FittedConstant { parameter, value, interval })
        .collect();
    Ok(Fit { target: state.target, constants })
}

/// Least-squares problem in unbounded coordinates: `value = low + (high - low) / (1 + exp(-u))`.
struct Problem<'a> {
    prepared: &'a [Prepared<'a>],
    target: &'a Target,
    free: Vec<&'static Parameter>,
    unbounded: DVector<f64>,
}

impl<'a> Problem<'a> {
    fn new(prepared: &'a [Prepared<'a>], target: &'a Target, free: Vec<&'static Parameter>) -> Self {
        let start = free.iter().map(|parameter| {
            let (low, high) = parameter.bounds;
            let share = ((parameter.start - low) / (high - low)).clamp(0.01, 0.99);
            (share / (1.0 - share)).ln()
        });
        let unbounded = DVector::from_iterator(free.len(), start);
        Self { prepared, target, free, unbounded }
    }

    /// Number of residuals: one per known decode and prefill latency, or one for the completion latency of a
    /// point without either.
    fn len(&self) -> usize {
        let known = |point: &CalibrationPoint| {
            usize::from(point.decode_s.is_some()) + usize::from(point.prefill_s.is_some())
        };
        self.prepared.iter().map(|prepared| known(prepared.point).max(1)).sum()
    }

    fn values_at(&self, unbounded: &DVector<f64>) -> Vec<f64> {
        let bounded = |(parameter, u): (&&Parameter, &f64)| {
            let (low, high) = parameter.bounds;
            low + (high - low) / (1.0 + (-u).exp())
        };
        self.free.iter().zip(unbounded.iter()).map(bounded).collect()
    }

    fn values(&self) -> Vec<f64> {
        self.values_at(&self.unbounded)
    }

    fn state(&self, unbounded: &DVector<f64>) -> CalibratedTarget {
        let values = self.values_at(unbounded);
        let pairs: Vec<_> = self.free.iter().copied().zip(values).collect();
        CalibratedTarget::new(self.target, &pairs)
    }

    /// Robust residuals: their sum of squares is the soft L1 loss.
    fn residuals_at(&self, unbounded: &DVector<f64>) -> DVector<f64> {
        let target = Arc::new(self.state(unbounded).target);
        let each: Vec<Vec<f64>> =
            self.prepared.par_iter().map(|prepared| log_residuals(prepared, &target)).collect();
        let soft = |r: f64| {
            let squared = 2.0 * ROBUST * ROBUST * ((1.0 + (r / ROBUST).powi(2)).sqrt() - 1.0);
            squared.max(0.0).sqrt().copysign(r)
        };
        DVector::from_iterator(self.len(), each.into_iter().flatten().map(soft))
    }

    fn intervals(&self) -> Vec<Option<(f64, f64)>> {
        let none = || vec![None; self.free.len()];
        let Some(jacobian) = self.jacobian() else { return none() };
        let residuals = self.residuals_at(&self.unbounded);
        let degrees = self.len().saturating_sub(self.free.len()).max(1) as f64;
        let variance = residuals.norm_squared() / degrees;
        let Ok(inverse) = (jacobian.transpose() * &jacobian).pseudo_inverse(1e-12) else {
            return none();
        };
        let values = self.values();
        (0..self.free.len())
            .map(|i| {
                let (low, high) = self.free[i].bounds;
                let slope = (values[i] - low) * (high - values[i]) / (high - low);
                let half = 1.96 * (variance * inverse[(i, i)]).max(0.0).sqrt() * slope;
                // an interval as wide as the bounds, or a value at a bound, is not determined
                let determined =
                    half.is_finite() && half < 0.5 * (high - low) && slope > 1e-6 * (high - low);
                determined.then(|| ((values[i] - half).max(low), (values[i] + half).min(high)))
            })
            .collect()
    }
}

/// Weighted logarithms of predicted / measured latencies of one point.
fn log_residuals(prepared: &Prepared<'_>, target: &Arc<Target>) -> Vec<f64> {
    let prediction = prepared.cell.on(target).predict();
    let ratio = |ms: f64, s: f64| (ms / 1e3 / s).max(1e-12).ln();
    let CalibrationPoint { spec, tokens_per_s, decode_s, prefill_s } = prepared.point;
    let mut residuals = Vec::with_capacity(2);
    if let Some(s) = decode_s {
        residuals.push(ratio(prediction.decode_ms, *s));
    }
    if let Some(s) = prefill_s {
        residuals.push(PREFILL_WEIGHT * ratio(prediction.prefill_ms, *s));
    }
    if residuals.is_empty() {
        let completion_s = f64::from(spec.batch) * f64::from(spec.output_tokens) / tokens_per_s;
        residuals.push(ratio(prediction.prefill_ms + prediction.decode_ms, completion_s));
    }
    residuals
}

impl LeastSquaresProblem<f64, Dyn, Dyn> for Problem<'_> {
    type ParameterStorage = Owned<f64, Dyn>;
    type ResidualStorage = Owned<f64, Dyn>;
    type JacobianStorage = Owned<f64, Dyn, Dyn>;

    fn set_params(&mut self, unbounded: &DVector<f64>) {
        // far out, a bound is reached to the last digit and derivatives vanish
        self.unbounded = unbounded.map(|u| u.clamp(-12.0, 12.0));
    }

    fn params(&self) -> DVector<f64> {
        self.unbounded.clone()
    }

    fn residuals(&self) -> Option<DVector<f64>> {
        Some(self.residuals_at(&self.unbounded))
    }

    fn jacobian(&self) -> Option<DMatrix<f64>> {
        let mut jacobian = DMatrix::zeros(self.len(), self.free.len());
        for i in 0..self.free.len() {
            let (mut more, mut less) = (self.unbounded.clone(), self.unbounded.clone());
            more[i] += STEP;
            less[i] -= STEP;
            let slope = (self.residuals_at(&more) - self.residuals_at(&less)) / (2.0 * STEP);
            jacobian.set_column(i, &slope);
        }
        Some(jacobian)
    }
}

#[cfg(test)]
mod tests;
