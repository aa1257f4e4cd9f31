//! Errors on served rows that a fit has not seen: the constants of each engine are fitted again without them.
//!
//! Stacks with equal constants are one engine. Left out are a third of the settings (rows that differ in more than their
//! concurrency) in turn, and each GPU, model and format of an engine with several. Without a GPU's rows its own constant
//! is unknown, so `host_scale` is 1 then.
//!
//! Least absolute logarithms of predicted over measured, by reweighted least squares. Latencies are nearly linear in the
//! constants, so all fits of an engine share one matrix of derivatives.

use std::collections::{BTreeMap, BTreeSet};

use nalgebra::{DMatrix, DVector};
use rayon::prelude::*;
use serde::Serialize;

use super::predicted;
use super::set::{DataSet, Measure, MeasuredRun, Overrides};
use base::error::{Error, Result};
use base::statistics::mean;
use machine::hardware::Stack;
use run::sim::Simulator;

/// Constant of a stack that serving rows determine.
struct StackConstant {
    key: &'static str,
    value: fn(&Stack) -> f64,
    /// Smallest and largest value.
    bounds: (f64, f64),
    /// Change that alters latencies by a few percent.
    unit: f64,
}

const fn constant(
    key: &'static str,
    bounds: (f64, f64),
    unit: f64,
    value: fn(&Stack) -> f64,
) -> StackConstant {
    StackConstant { key, value, bounds, unit }
}

/// Constants that are fitted to the rows of an engine.
const CONSTANTS: [StackConstant; 6] = [
    constant("launch_us", (0.0, 6.0), 0.5, |stack| stack.launch_us),
    constant("step_us", (0.0, 10_000.0), 300.0, |stack| stack.step_us),
    constant("sequence_us", (0.0, 200.0), 10.0, |stack| stack.sequence_us),
    constant("matmul.prefill_scale", (0.8, 2.0), 0.1, |stack| stack.matmul.prefill_scale),
    constant("serving.prefill_layer_us", (0.0, 1_000.0), 100.0, |stack| {
        stack.serving.as_ref().map_or(0.0, |serving| serving.prefill_layer_us)
    }),
    constant("serving.request_us", (0.0, 50_000.0), 3_000.0, |stack| {
        stack.serving.as_ref().map_or(0.0, |serving| serving.request_us)
    }),
];

/// Weight of a row's TTFT, whose queues are less exact than its TPOT.
const TTFT_WEIGHT: f64 = 0.1;
/// Residual below which errors count quadratically, in logarithms.
const SMOOTH: f64 = 0.02;
/// Maximum steps of the fit; it ends earlier if the loss no longer falls.
const ITERATIONS: usize = 6;
/// Values of a GPU's own constants that were fitted to its rows.
const UNKNOWN_GPU: (&str, &str) = ("host_scale", "1");

/// Errors on rows that were left out of an engine's fit, predicted with the constants of the others.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "LeftOut")]
pub struct CrossValidation {
    /// Stacks that share constants: `trtllm-1.0, trtllm-1.1`.
    pub engine: String,
    /// Rows left out: `h100_sxm`, `a third of the settings in turn`; `nothing` for the errors of the fit itself.
    pub left_out: String,
    /// Rows predicted, without those that wait for KV cache.
    pub rows: usize,
    /// Mean absolute error by measure (percent).
    pub mean_abs_pct: BTreeMap<&'static str, Option<f64>>,
    /// Mean error by measure (percent).
    pub bias_pct: BTreeMap<&'static str, Option<f64>>,
    /// Range of each constant over the fits.
    pub constants: BTreeMap<&'static str, [f64; 2]>,
}

/// Rows left out together, and the name of each such part.
type Fold = (String, Vec<Vec<usize>>);

/// Fits the engines of a serving set without parts of its rows.
///
/// # Errors
///
/// Returns an error for a set without served rows, and those of [`DataSet::runs`].
pub fn left_out(set: &DataSet) -> Result<Vec<CrossValidation>> {
    if !set.serving {
        return Err(Error::input_help(
            format!("{} has no rows of serving engines", set.name),
            "--left-out is for serving_dense and serving_moe",
        ));
    }
    let mut engines: Vec<Engine<'_>> = Vec::new();
    for row in set.runs(&Overrides::default())? {
        let Some(first) = row.first() else { continue };
        let stack = Stack::load(&first.spec.stack)?;
        let constants: Vec<f64> = CONSTANTS.iter().map(|constant| (constant.value)(&stack)).collect();
        let at = engines.iter().position(|known| known.constants == constants).unwrap_or_else(|| {
            engines.push(Engine::new(set, constants));
            engines.len() - 1
        });
        engines[at].stacks.insert(stack.name);
        engines[at].rows.push(row);
    }
    Ok(engines.into_iter().flat_map(Engine::left_out).collect())
}

/// Stacks with the same constants, and their rows.
struct Engine<'a> {
    set: &'a DataSet,
    stacks: BTreeSet<String>,
    rows: Vec<Vec<MeasuredRun>>,
    constants: Vec<f64>,
    simulator: Simulator,
    /// Derivatives of each run's logarithm by the units of the constants.
    slopes: Vec<Vec<Vec<f64>>>,
}

impl<'a> Engine<'a> {
    fn new(set: &'a DataSet, constants: Vec<f64>) -> Self {
        let (stacks, simulator) = (BTreeSet::new(), Simulator::default());
        Self { set, stacks, rows: Vec::new(), constants, simulator, slopes: Vec::new() }
    }

    fn folds(&self) -> Vec<Fold> {
        let all: Vec<usize> = (0..self.rows.len()).collect();
        let by = |of: &dyn Fn(&MeasuredRun) -> String| {
            let mut parts: BTreeMap<String, Vec<usize>> = BTreeMap::new();
            for at in &all {
                parts.entry(of(&self.rows[*at][0])).or_default().push(*at);
            }
            parts
        };
        let setting = |run: &MeasuredRun| {
            let mut spec = run.spec.clone();
            (spec.concurrency, spec.batch) = (0, 0);
            format!("{spec:?}")
        };
        let mut thirds = vec![Vec::new(); 3];
        for (at, rows) in by(&setting).into_values().enumerate() {
            thirds[at % 3].extend(rows);
        }
        let mut folds = vec![("nothing".to_owned(), vec![Vec::new()])];
        if thirds.iter().all(|rows| !rows.is_empty()) {
            folds.push(("a third of the settings in turn".to_owned(), thirds));
        }
        let gpu = |run: &MeasuredRun| run.spec.hardware.clone();
        let model = |run: &MeasuredRun| format!("{} {}", run.spec.model, run.spec.dtype);
        for parts in [by(&gpu), by(&model)].into_iter().filter(|parts| parts.len() > 1) {
            folds.extend(parts.into_iter().map(|(name, rows)| (name, vec![rows])));
        }
        folds
    }

    /// Errors on the rows that run without waiting for KV cache.
    fn left_out(mut self) -> Vec<CrossValidation> {
        let (set, simulator) = (self.set, &self.simulator);
        let is_free =
            |runs: &Vec<MeasuredRun>| predicted(set, runs, simulator).is_ok_and(|row| !row.is_queued);
        let free: Vec<bool> = self.rows.par_iter().map(is_free).collect();
        let mut free = free.into_iter();
        self.rows.retain(|_| free.next().unwrap_or(false));
        if self.rows.is_empty() {
            return Vec::new();
        }
        self.slopes = self.slopes_at_start();
        self.folds().into_iter().map(|(left_out, parts)| self.fold(left_out, &parts)).collect()
    }

    fn fold(&self, left_out: String, parts: &[Vec<usize>]) -> CrossValidation {
        let gpus = |rows: &[usize]| -> BTreeSet<&str> {
            rows.iter().map(|at| self.rows[*at][0].spec.hardware.as_str()).collect()
        };
        let all: Vec<usize> = (0..self.rows.len()).collect();
        let mut errors: BTreeMap<Measure, Vec<f64>> = BTreeMap::new();
        let mut constants: BTreeMap<&'static str, [f64; 2]> = BTreeMap::new();
        let mut rows = 0;
        for part in parts {
            let rest: Vec<usize> = all.iter().copied().filter(|at| !part.contains(at)).collect();
            let out = if part.is_empty() { &all } else { part };
            let is_known = gpus(out).is_subset(&gpus(&rest));
            let values = self.fit(&rest, is_known);
            for (constant, value) in CONSTANTS.iter().zip(&values) {
                let range = constants.entry(constant.key).or_insert([*value; 2]);
                *range = [range[0].min(*value), range[1].max(*value)];
            }
            for (at, logs) in out.iter().zip(self.logs(out, &values, is_known)) {
                for (run, log) in self.rows[*at].iter().zip(logs) {
                    let measure = self.set.measured[run.column].measure;
                    errors.entry(measure).or_default().push(100.0 * (log.exp() - 1.0));
                }
            }
            rows += out.len();
        }
        let mean_of = |each: fn(&f64) -> f64| {
            let mean = |errors: &Vec<f64>| mean(&errors.iter().map(each).collect::<Vec<_>>());
            errors.iter().map(|(measure, errors)| (measure.as_str(), mean(errors))).collect()
        };
        let (mean_abs_pct, bias_pct) = (mean_of(|error| error.abs()), mean_of(|error| *error));
        let engine = self.stacks.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        CrossValidation { engine, left_out, rows, mean_abs_pct, bias_pct, constants }
    }

    /// Logarithms of predicted over measured for the runs of some rows.
    fn logs(&self, rows: &[usize], values: &[f64], is_known_gpu: bool) -> Vec<Vec<f64>> {
        let one = |at: &usize| {
            let mut runs = self.rows[*at].clone();
            for run in &mut runs {
                let set = CONSTANTS.iter().zip(values);
                run.spec.set.extend(set.map(|(c, value)| (c.key.to_owned(), value.to_string())));
                if !is_known_gpu {
                    run.spec.set.insert(UNKNOWN_GPU.0.to_owned(), UNKNOWN_GPU.1.to_owned());
                }
            }
            let row = predicted(self.set, &runs, &self.simulator);
            let values = row.map(|row| row.values).unwrap_or_default();
            runs.iter().zip(values).map(|(run, value)| (value / run.measured).max(1e-9).ln()).collect()
        };
        rows.par_iter().map(one).collect()
    }

    fn slopes_at_start(&self) -> Vec<Vec<Vec<f64>>> {
        let all: Vec<usize> = (0..self.rows.len()).collect();
        let start = self.logs(&all, &self.constants, true);
        let mut slopes: Vec<Vec<Vec<f64>>> =
            start.iter().map(|logs| vec![Vec::new(); logs.len()]).collect();
        for (at, constant) in CONSTANTS.iter().enumerate() {
            let mut values = self.constants.clone();
            values[at] += constant.unit;
            for (row, logs) in self.logs(&all, &values, true).into_iter().enumerate() {
                for (run, log) in logs.into_iter().enumerate() {
                    slopes[row][run].push(log - start[row][run]);
                }
            }
        }
        slopes
    }

    /// Constants fitted to some rows.
    fn fit(&self, rows: &[usize], is_known_gpu: bool) -> Vec<f64> {
        let runs: Vec<(usize, usize)> =
            rows.iter().flat_map(|at| (0..self.slopes[*at].len()).map(move |run| (*at, run))).collect();
        let slopes = DMatrix::from_fn(runs.len(), CONSTANTS.len(), |row, column| {
            self.slopes[runs[row].0][runs[row].1][column]
        });
        let weights: Vec<f64> = runs
            .iter()
            .map(|(at, run)| match self.set.measured[self.rows[*at][*run].column].measure {
                Measure::Tpot => 1.0,
                _ => TTFT_WEIGHT,
            })
            .collect();
        let mut values = self.constants.clone();
        let mut best = (f64::INFINITY, values.clone());
        for _ in 0..ITERATIONS {
            let logs = self.logs(rows, &values, is_known_gpu).concat();
            let loss: f64 = logs.iter().zip(&weights).map(|(log, weight)| weight * log.abs()).sum();
            if loss >= best.0 {
                break;
            }
            best = (loss, values.clone());
            let weighted: Vec<f64> = logs
                .iter()
                .zip(&weights)
                .map(|(log, weight)| (weight / log.abs().max(SMOOTH)).sqrt())
                .collect();
            values = stepped(&values, &slopes, &logs, &weighted);
        }
        best.1
    }
}

/// Constants after a weighted Gauss-Newton step within their bounds: those at a bound stay there, the others follow.
fn stepped(values: &[f64], slopes: &DMatrix<f64>, logs: &[f64], weights: &[f64]) -> Vec<f64> {
    let mut bounded: Vec<Option<f64>> = vec![None; values.len()];
    loop {
        let free: Vec<usize> = (0..values.len()).filter(|at| bounded[*at].is_none()).collect();
        let matrix = DMatrix::from_fn(logs.len(), free.len(), |row, column| {
            weights[row] * slopes[(row, free[column])]
        });
        let rest = DVector::from_fn(logs.len(), |row, _| {
            let moved = (0..values.len()).filter_map(|at| Some(bounded[at]? * slopes[(row, at)]));
            -weights[row] * (logs[row] + moved.sum::<f64>())
        });
        let mut normal = matrix.transpose() * &matrix;
        let damping = 1e-4 * normal.trace() / free.len().max(1) as f64;
        (0..free.len()).for_each(|at| normal[(at, at)] += damping);
        let solved = match free.is_empty() {
            true => Some(rest.rows(0, 0).into_owned()),
            false => normal.lu().solve(&(matrix.transpose() * rest)),
        };
        let Some(steps) = solved else { return values.to_vec() };
        let mut is_inside = true;
        for (at, step) in free.iter().zip(steps.iter()) {
            let constant = &CONSTANTS[*at];
            let to = values[*at] + step * constant.unit;
            let (least, most) = constant.bounds;
            if !(least..=most).contains(&to) {
                bounded[*at] = Some((to.clamp(least, most) - values[*at]) / constant.unit);
                is_inside = false;
            }
        }
        if is_inside {
            let mut steps = steps.iter();
            let step = |at: usize| bounded[at].or_else(|| steps.next().copied()).unwrap_or(0.0);
            let steps: Vec<f64> = (0..values.len()).map(step).collect();
            let to = values.iter().zip(steps).zip(&CONSTANTS);
            // rounding must not leave the bounds
            let moved = to.map(|((value, step), constant)| {
                (value + step * constant.unit).clamp(constant.bounds.0, constant.bounds.1)
            });
            return moved.collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_keeps_constants_within_their_bounds_and_moves_the_others() {
        let of = |each: fn(&StackConstant) -> f64| CONSTANTS.iter().map(each).collect::<Vec<f64>>();
        let values = of(|constant| constant.bounds.1 / 2.0);
        // each constant has a row of its own, whose latency it halves or doubles
        let own = DMatrix::from_fn(CONSTANTS.len(), CONSTANTS.len(), |row, at| f64::from(row == at));
        let step = |logs: &[f64]| stepped(&values, &own, logs, &[1.0; CONSTANTS.len()]);
        let near = |found: f64, wanted: f64| (found - wanted).abs() < 1e-3 * CONSTANTS[0].unit;
        let one = step(&[-1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert!(near(one[0], values[0] + CONSTANTS[0].unit) && one[1..] == values[1..], "{one:?}");
        let is_near = |found: Vec<f64>, wanted: Vec<f64>| {
            found.iter().zip(&wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-9)
        };
        assert!(is_near(step(&[1e6; CONSTANTS.len()]), of(|constant| constant.bounds.0)));
        assert!(is_near(step(&[-1e6; CONSTANTS.len()]), of(|constant| constant.bounds.1)));
    }
}
