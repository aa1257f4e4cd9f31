//! The score of a data set: each number predicted, how far off, and the mean and the largest error of each measure.

use std::path::Path;

use rayon::prelude::*;
use serde::Serialize;

use super::order::{RankOrder, rank_orders};
use super::set::{DataSet, Measure, Overrides, Run};
use base::error::{Error, Result};
use base::input::InputKind;
use base::statistics::mean;
use plan::Architecture;
use run::Shared;
use run::sim::{Plans, Prediction, predict};
use table::Spec;

/// A prediction against a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Residual {
    /// The line of its row in the file.
    pub line: usize,
    /// What was run, in words.
    pub cell: String,
    /// The measure that is compared, with its unit.
    #[schemars(with = "String")]
    pub measure: Measure,
    /// What was measured: tokens/s, ms, a ratio, percent.
    pub measured: f64,
    /// What the simulator predicts, in the same unit.
    pub predicted: f64,
    /// Predicted over measured, less 1 (percent); of gains and communication shares the difference (points).
    pub error: f64,
}

/// A row that could not be predicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct NotRun {
    /// Its line in the file.
    pub line: usize,
    /// Why it has no prediction, in words.
    pub reason: String,
}

/// How well the rows of a set are predicted.
#[derive(Clone, Debug)]
pub struct Score {
    /// The set whose columns the rows have. Of a file's rows it says nothing but where they are.
    pub set: DataSet,
    /// Whether the rows are the set's own, which were published.
    pub is_published: bool,
    /// Which constants were fitted to the rows; `None` where nobody knows, as of a file's rows, or of constants on
    /// which the set is not predicted.
    pub fitted: Option<Vec<String>>,
    /// How many rows there are.
    pub rows: usize,
    /// Those that could not be predicted.
    pub not_run: Vec<NotRun>,
    /// A residual for each number, row by row.
    pub residuals: Vec<Residual>,
    /// The order of architectures, measured and predicted.
    pub orders: Vec<RankOrder>,
    /// The hardware profile on which they are predicted.
    pub hardware: String,
    /// The stack with which they are predicted.
    pub stack: String,
    /// Values of either that are others, as `KEY=VALUE`.
    pub values: Vec<String>,
}

impl Score {
    /// The score of a file's rows, which have the columns of a set: of the one that is named, else of the first
    /// whose columns they are.
    ///
    /// # Errors
    ///
    /// Input errors: several sets are named, no set has such columns,
    /// and what [`DataSet::parse`] and [`Self::of`] refuse.
    pub fn of_file(sets: &[String], path: &Path, overrides: &Overrides) -> Result<Self> {
        if sets.len() > 1 {
            return Err(Error::input("--csv takes the rows of one set: name one"));
        }
        let file = path.display().to_string();
        let text = InputKind::TABLE.text(path)?;
        let mut known = DataSet::named(sets)?;
        if sets.is_empty() {
            known.retain(|set| set.has_columns_of(&text));
        }
        let Some(set) = known.first() else {
            return Err(Error::input_help(
                format!("{file}: its columns are those of no data set"),
                "name the set whose columns it is to have: ladderscope validate SET --csv FILE",
            ));
        };
        let rows = set.parse(&file, &text, overrides)?;
        let about = format!("rows of a file with the columns of {}", set.name);
        let mut set = set.clone();
        (set.about, set.source) = (about, file);
        (set.fitted, set.unknown) = (Vec::new(), Vec::new());
        Ok(Self { is_published: false, fitted: None, ..Self::of(&set, &rows)? })
    }

    /// Predicts the set's own rows and compares. A model that there is not, or that TP does not divide, is
    /// a row that did not run.
    ///
    /// # Errors
    ///
    /// A hardware profile, a stack or a value of theirs that is wrong.
    pub fn of(set: &DataSet, rows: &[Vec<Run>]) -> Result<Self> {
        let shared = Shared::default();
        // what is wrong with all rows is an error, not a row that did not run
        let (mut hardware, mut stack) = (String::new(), String::new());
        let (mut values, mut fitted) = (Vec::new(), None);
        if let Some(Run { spec, .. }) = rows.iter().flatten().next() {
            let target = shared.target(&spec.hardware, &spec.stack, &spec.set)?;
            (hardware, stack) = (target.profile.name.clone(), target.stack.name.clone());
            values.extend(spec.set.iter().map(|(key, value)| format!("{key}={value}")));
            let as_fitted = values.is_empty() && set.is_on(&spec.hardware, &spec.stack);
            fitted = as_fitted.then(|| set.fitted.clone());
        }
        let predicted: Vec<Result<Vec<f64>>> =
            rows.par_iter().map(|runs| predicted(set, runs, &shared)).collect();
        let (not_run, residuals) = (Vec::new(), Vec::new());
        let mut score = Self {
            set: set.clone(),
            is_published: true,
            fitted,
            rows: rows.len(),
            not_run,
            residuals,
            orders: Vec::new(),
            hardware,
            stack,
            values,
        };
        let mut done: Vec<(&Run, f64)> = Vec::new();
        for (runs, predicted) in rows.iter().zip(predicted) {
            match predicted {
                Ok(values) => done.extend(runs.iter().zip(values)),
                Err(error) => {
                    let line = runs.first().map_or(0, |run| run.line);
                    score.not_run.push(NotRun { line, reason: error.to_string() });
                }
            }
        }
        for (run, value) in &done {
            let measure = set.measured()[run.column].measure;
            score.residuals.push(residual(run, measure, run.measured, *value));
            if measure == Measure::TokensPerS
                && let Some((standard, base)) = beside(run, &done, |_, other| {
                    is_standard_of(&other.spec, &run.spec) && other.column == run.column
                })
            {
                let (measured, predicted) = (run.measured / standard.measured, value / base);
                score.residuals.push(residual(run, Measure::Speedup, measured, predicted));
                let [measured, predicted] = [measured, predicted].map(|ratio| 100.0 * (ratio - 1.0));
                score.residuals.push(residual(run, Measure::Gain, measured, predicted));
            }
            if measure == Measure::Prefill
                && run.spec.architecture == Architecture::UpperBound
                && let Some((standard, base)) = beside(run, &done, |run, other| {
                    is_standard_of(&other.spec, &run.spec) && other.line == run.line
                })
            {
                let share = |without: f64, with: f64| 100.0 * (1.0 - without / with);
                let (measured, predicted) =
                    (share(run.measured, standard.measured), share(*value, base));
                let measure = Measure::CommunicationShare;
                score.residuals.push(residual(run, measure, measured, predicted));
            }
        }
        score.orders = rank_orders(set, &done);
        Ok(score)
    }

    /// The stack, and what differs from it and the hardware: `gpt-fast, hbm_gb_s=10`.
    pub fn stack_and_values(&self) -> String {
        let words = std::iter::once(&self.stack).chain(&self.values);
        words.map(String::as_str).collect::<Vec<_>>().join(", ")
    }

    /// The mean and the largest absolute error of a measure, in its unit. `None` where no row has it.
    pub fn errors(&self, measure: Measure) -> Option<(f64, f64)> {
        let of = |residual: &&Residual| residual.measure == measure;
        let errors: Vec<f64> = self.residuals.iter().filter(of).map(|r| r.error.abs()).collect();
        Some((mean(&errors)?, errors.iter().copied().fold(0.0, f64::max)))
    }

    /// The residual of a measure that is the farthest off.
    pub fn largest(&self, measure: Measure) -> Option<&Residual> {
        let of = |residual: &&Residual| residual.measure == measure;
        self.residuals.iter().filter(of).max_by(|a, b| a.error.abs().total_cmp(&b.error.abs()))
    }
}

/// Another run that was predicted, and its value.
fn beside<'a>(
    run: &Run,
    done: &[(&'a Run, f64)],
    is: impl Fn(&Run, &Run) -> bool,
) -> Option<(&'a Run, f64)> {
    done.iter().find(|(other, _)| is(run, other)).copied()
}

/// Whether a cell is the same as another, but standard where that is not.
fn is_standard_of(standard: &Spec, other: &Spec) -> bool {
    let same = Spec { architecture: other.architecture.clone(), ..standard.clone() };
    standard.architecture == Architecture::Standard
        && other.architecture != Architecture::Standard
        && same == *other
}

fn residual(run: &Run, measure: Measure, measured: f64, predicted: f64) -> Residual {
    let spec = &run.spec;
    let error = match measure {
        _ if measure.unit() == "points" => predicted - measured,
        _ => 100.0 * (predicted / measured - 1.0),
    };
    let tokens = format!("{}+{}", spec.prompt_tokens, spec.output_tokens);
    let cell = format!("{} {} {tokens}", spec.model, spec.label());
    Residual { line: run.line, cell, measure, measured, predicted, error }
}

/// What the simulator predicts for each run of a row, in the unit of its measure.
fn predicted(set: &DataSet, runs: &[Run], shared: &Shared) -> Result<Vec<f64>> {
    let mut known: Vec<(&Spec, Prediction)> = Vec::new();
    let mut values = Vec::with_capacity(runs.len());
    for run in runs {
        let spec = &run.spec;
        let prediction = match known.iter().find(|(other, _)| *other == spec) {
            Some((_, prediction)) => *prediction,
            None => prediction(run, shared)?,
        };
        known.push((spec, prediction));
        let Prediction { prefill_ms, decode_ms } = prediction;
        let tokens = f64::from(spec.batch) * f64::from(spec.output_tokens);
        values.push(match set.measured()[run.column].measure {
            Measure::Tpot if spec.output_tokens < 2 => {
                return Err(Error::input("output_tokens is 1: there is no decode step"));
            }
            Measure::Tpot => decode_ms / f64::from(spec.output_tokens - 1),
            Measure::Prefill => prefill_ms,
            _ => 1e3 * tokens / (prefill_ms + decode_ms),
        });
    }
    Ok(values)
}

/// Prefill and decode latency of a run. Whether it fits in memory is not asked: it ran.
fn prediction(run: &Run, shared: &Shared) -> Result<Prediction> {
    let spec = &run.spec;
    let target = shared.target(&spec.hardware, &spec.stack, &spec.set)?;
    match &run.shape {
        Some(shape) => Ok(predict(&Plans::new(spec, shape, &target)?, spec, shape, &target)),
        None => {
            let shape = &shared.model(&spec.model)?.shape;
            Ok(predict(&*shared.plans(spec, shape, &target)?, spec, shape, &target))
        }
    }
}
