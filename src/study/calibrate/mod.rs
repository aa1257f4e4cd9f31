//! Calibration: fits the few free constants of a stack and its links to measured runs.
//!
//! Bounded Levenberg-Marquardt least squares over logarithms of latencies, decode and prefill separately.
//! Intervals come from the curvature at the optimum; errors on unseen data come from leaving out one TP, or
//! one batch size, at a time. Evaluating all points once takes a few milliseconds.
//!
//! Each constant has a unit, meaning, and physical bounds. None is specific to a data point or a batch size.

mod inspector;
mod links;
mod nccl_tests;
mod points;
mod traced;

pub use inspector::{Inspected, inspector_files, read_inspector};
pub use links::{KeptValue, LinkOptions, MeasuredLink, MeasuredLinks};
pub use nccl_tests::AllReduces;
pub use points::{
    Errors, Held, Point, Residual, cross_validate, errors, of_records, read_csv, residuals,
};
pub use traced::all_reduces_of;

use std::sync::Arc;

use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt};
use nalgebra::storage::Owned;
use nalgebra::{DMatrix, DVector, Dyn};
use rayon::prelude::*;

use base::error::{Error, Result};
use machine::hardware::{LargeMessages, LinkPoint, Target};
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
    point: &'a Point,
    cell: SimulatedCell<'a>,
}

fn prepare<'a>(points: &[&'a Point], target: &Arc<Target>) -> Result<Vec<Prepared<'a>>> {
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
pub fn fit(points: &[&Point], target: &Target, keys: Option<&[String]>) -> Result<Fit> {
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
    let sensitivity = problem
        .jacobian()
        .map(|jacobian| jacobian.column_iter().map(|column| column.norm()).collect::<Vec<f64>>());
    let sensitive = sensitivity.unwrap_or_default();
    let keep: Vec<bool> = sensitive.iter().map(|norm| *norm > 1e-9).collect();
    let host = free.iter().zip(&keep).any(|(parameter, keep)| parameter.is_host_link() && *keep);
    let mut index = 0;
    free.retain(|parameter| {
        index += 1;
        keep.get(index - 1).copied().unwrap_or(false) || host && parameter.is_host_link()
    });
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
        let known = |point: &Point| {
            usize::from(point.decode_s.is_some()) + usize::from(point.prefill_s.is_some())
        };
        self.prepared.iter().map(|one| known(one.point).max(1)).sum()
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

    fn state(&self, unbounded: &DVector<f64>) -> State {
        let values = self.values_at(unbounded);
        let pairs: Vec<_> = self.free.iter().copied().zip(values).collect();
        State::new(self.target, &pairs)
    }

    /// Robust residuals: their sum of squares is the soft L1 loss.
    fn residuals_at(&self, unbounded: &DVector<f64>) -> DVector<f64> {
        let target = Arc::new(self.state(unbounded).target);
        let each: Vec<Vec<f64>> =
            self.prepared.par_iter().map(|one| log_residuals(one, &target)).collect();
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
fn log_residuals(one: &Prepared<'_>, target: &Arc<Target>) -> Vec<f64> {
    let prediction = one.cell.on(target).predict();
    let ratio = |ms: f64, s: f64| (ms / 1e3 / s).max(1e-12).ln();
    let Point { spec, tokens_per_s, decode_s, prefill_s } = one.point;
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

#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Key in the stack, in the profile, or in the model of the link without P2P.
    pub key: &'static str,
    /// Unit of the values, such as `us` or `GB/s`; empty for ratios.
    pub unit: &'static str,
    pub meaning: &'static str,
    pub bounds: (f64, f64),
    pub start: f64,
    place: &'static [&'static str],
    set: fn(&mut State, f64),
}

/// Target, plus the model of its link without P2P.
#[derive(Clone, Debug)]
struct State {
    target: Target,
    host: HostLink,
}

/// All-reduce through host memory: small messages go around a ring in `2 (tp - 1)` hops; large ones take
/// another path above two ranks (NVLink SHARP, which needs no P2P).
#[derive(Clone, Copy, Debug)]
struct HostLink {
    base_us: f64,
    hop_us: f64,
    cross_socket: f64,
    bus_gb_s: f64,
    large_latency: f64,
    large_bus_gb_s: f64,
}

/// GPUs per CPU socket in the usual server of eight.
const GPUS_PER_SOCKET: u32 = 4;

const TPS: [u32; 3] = [2, 4, 8];

impl HostLink {
    fn point(&self, tp: u32) -> LinkPoint {
        let hops = f64::from(2 * (tp - 1));
        let cross = if tp > GPUS_PER_SOCKET { self.cross_socket } else { 1.0 };
        let alpha_us = self.base_us + hops * self.hop_us * cross;
        // bus bytes are 2 (tp - 1) / tp message bytes
        let bus = hops / f64::from(tp);
        let large = (tp > 2).then(|| LargeMessages {
            alpha_us: alpha_us * self.large_latency,
            gb_s: self.large_bus_gb_s / bus,
        });
        LinkPoint { large, ..LinkPoint::formula(alpha_us, self.bus_gb_s / bus) }
    }
}

impl State {
    fn new(target: &Target, values: &[(&'static Parameter, f64)]) -> Self {
        let host = HostLink {
            base_us: 0.0,
            hop_us: 0.0,
            cross_socket: 1.0,
            bus_gb_s: 1.0,
            large_latency: 1.0,
            large_bus_gb_s: 1.0,
        };
        let mut state = Self { target: target.clone(), host };
        for (parameter, value) in values {
            (parameter.set)(&mut state, *value);
        }
        if values.iter().any(|(parameter, _)| parameter.is_host_link()) {
            state.target.profile.link.p2p_off.tp =
                TPS.into_iter().map(|tp| (tp, state.host.point(tp))).collect();
        }
        state
    }
}

impl Parameter {
    /// True for constants of the link without P2P, which are fitted together or not at all.
    pub fn is_host_link(&self) -> bool {
        self.place.starts_with(&["host"])
    }

    /// True if the constant is fitted only on request, because data of one machine and engine cannot separate
    /// it from others.
    pub fn is_by_name(&self) -> bool {
        BY_NAME.contains(&self.key)
    }

    /// True if the constant belongs to the hardware profile, false if to the stack.
    pub fn is_of_profile(&self) -> bool {
        self.place.starts_with(&["target", "profile"])
    }
}

/// Builds the table of constants from one line each: key and unit, lowest and highest physical value, start
/// value, field of [`State`], and meaning.
macro_rules! parameters {
    ($($key:literal $unit:literal, $low:literal to $high:literal from $start:literal, $($place:ident).+, $meaning:literal;)*) => {
        /// All constants that may be fitted; a data set usually determines only some of them.
        pub static PARAMETERS: [Parameter; [$($key),*].len()] = [$(Parameter {
            key: $key,
            unit: $unit,
            meaning: $meaning,
            bounds: ($low, $high),
            start: $start,
            place: &[$(stringify!($place)),+],
            set: |state, value| state.$($place).+ = value,
        },)*];
    };
}

const BY_NAME: [&str; 5] = [
    "hbm_efficiency",
    "matvec_scale",
    "step_us",
    "attention.prefill_efficiency",
    "collective.transfer_scale",
];

#[rustfmt::skip]
parameters! {
    "launch_us" "us", 0.5 to 6.0 from 2.5, target.stack.launch_us, "fixed time of one kernel in a CUDA graph; from the hardware's minimum to an eager launch";
    "matvec.efficiency" "", 0.5 to 1.0 from 0.9, target.stack.matvec.efficiency, "share of the peak memory bandwidth of generated matrix-vector kernels; at most 1";
    "matmul.decode_scale" "", 0.8 to 1.6 from 1.1, target.stack.matmul.decode_scale, "decode matrix multiplications over the latency table's, which are the best of tuned libraries";
    "matmul.prefill_scale" "", 0.9 to 2.5 from 1.5, target.stack.matmul.prefill_scale, "prefill matrix multiplications over the latency table's; power limits and layouts at most double it";
    "attention.expanded_kv_gb_s" "GB/s", 500.0 to 8000.0 from 3500.0, target.stack.attention.expanded_kv_gb_s, "rate at which decode attention consumes expanded K and V; at most the L2 cache's";
    "collective.latency_scale" "", 1.0 to 2.5 from 1.4, target.stack.collective.latency_scale, "latency of an all-reduce inside a model, relative to back-to-back all-reduces; at least 1";
    "contention.memory" "", 0.0 to 0.75 from 0.3, target.stack.contention.memory, "slowdown of memory-bound compute during a large all-reduce";
    "contention.arithmetic" "", 0.0 to 0.9 from 0.5, target.stack.contention.arithmetic, "slowdown of arithmetic-bound compute during a large all-reduce";
    "contention.small" "", 0.05 to 1.0 from 0.5, target.stack.contention.small, "part of these losses that the smallest all-reduce causes (fewer thread blocks)";
    "contention.comm" "", 0.0 to 0.6 from 0.1, target.stack.contention.comm, "slowdown of an all-reduce during compute";
    "host_link.base_us" "us", 2.0 to 30.0 from 10.0, host.base_us, "without P2P: latency of an all-reduce before its first hop; at least a kernel's launch";
    "host_link.hop_us" "us", 0.5 to 6.0 from 2.0, host.hop_us, "without P2P: one of 2 (tp - 1) hops through host memory; a PCIe round trip is about 1 us";
    "host_link.cross_socket" "", 1.0 to 4.0 from 1.8, host.cross_socket, "without P2P: hop of a ring over both CPU sockets (tp > 4) over one inside a socket";
    "host_link.bus_gb_s" "GB/s", 3.0 to 63.0 from 15.0, host.bus_gb_s, "without P2P: bus bandwidth of a ring through host memory; at most PCIe 5 x16";
    "host_link.large_latency" "", 1.0 to 4.0 from 1.6, host.large_latency, "without P2P: latency of the way of large messages over that of the ring";
    "host_link.large_bus_gb_s" "GB/s", 20.0 to 480.0 from 250.0, host.large_bus_gb_s, "without P2P: bus bandwidth of the way of large messages (tp >= 4); at most NVLink SHARP's";
    "link.inter_node.alpha_us" "us", 2.0 to 100.0 from 25.0, target.profile.link.inter_node.alpha_us, "network latency added per doubling of the node count";
    "hbm_efficiency" "", 0.5 to 1.0 from 0.85, target.profile.hbm_efficiency, "share of the peak memory bandwidth that kernels reach; at most 1";
    "matvec_scale" "", 0.5 to 1.2 from 0.95, target.profile.matvec_scale, "matrix-vector bandwidth efficiency on this machine, relative to the stack's";
    "step_us" "us", 0.0 to 30000.0 from 500.0, target.stack.step_us, "host time before each step";
    "attention.prefill_efficiency" "", 0.2 to 1.0 from 0.5, target.stack.attention.prefill_efficiency, "share of the peak arithmetic that prefill attention reaches; at most 1";
    "collective.transfer_scale" "", 0.5 to 2.0 from 1.0, target.stack.collective.transfer_scale, "transfer time of an all-reduce inside a model, relative to back-to-back all-reduces";
}

#[cfg(test)]
mod tests;
