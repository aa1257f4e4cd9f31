//! Validation of the simulator against published measurements.
//!
//! A data set is a pair of files, most in `sets/`: a TOML file with source, setup and unknowns of the
//! measurements, and their rows as CSV. The score of a data set holds every prediction, its error, the mean and largest
//! error of each measure, and, for each pair of architectures in a published cell, if the simulator has the same one
//! ahead.

mod left_out;
mod set;
mod trust;

pub use left_out::{CrossValidation, left_out};
pub use set::{
    DataSet, Measure, MeasuredColumn, MeasuredRun, Overrides, ServedRow, ServingGroup, Slice,
};
pub(crate) use trust::{Changes, rewired_error};
pub use trust::{
    TieBand, Trust, badge, evidence, nearest_error, nearest_errors, reversed_orders, short_badge,
    stand_ins,
};

use std::collections::BTreeMap;
use std::path::Path;

use rayon::prelude::*;
use serde::Serialize;

use base::error::{Error, Result};
use base::input::InputKind;
use base::statistics::{extent, mean};
use plan::Architecture;
use run::sim::{LatencyPrediction, Simulator};
use table::Spec;
use table::render::{Shown, Table};

/// Prediction compared with a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "Residual")]
pub struct ValidationResidual {
    /// Line of the row in the file.
    pub line: usize,
    /// Description of the cell.
    pub cell: String,
    /// The measure that is compared, with its unit.
    #[schemars(with = "String")]
    pub measure: Measure,
    /// Measured value: tokens/s, ms, a ratio, or percent.
    pub measured: f64,
    /// Predicted value, in the same unit.
    pub predicted: f64,
    /// Predicted / measured - 1 (percent); for gains and communication shares, the difference in points.
    pub error: f64,
}

/// Residuals of a measure that are shown with their causes.
const WORST: usize = 3;

/// One of the largest residuals of a set.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "Worst")]
pub struct LargestResidual<'a> {
    #[serde(flatten)]
    pub residual: &'a ValidationResidual,
    /// Likely cause; null if unknown.
    pub cause: Option<&'a str>,
}

/// Row without a prediction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "NotRun")]
pub struct UnpredictedRow {
    /// Line of the row in the file.
    pub line: usize,
    /// Reason for the missing prediction.
    pub reason: String,
}

#[derive(Clone, Debug)]
pub struct Score {
    /// Data set whose columns the rows have; for a user's file, `about` and `source` describe that file.
    pub set: DataSet,
    /// True if the rows are the set's own published ones.
    pub is_published: bool,
    /// Constants that were fitted to the rows; `None` if unknown: for a user's file, or for a target other
    /// than the set's own.
    pub fitted: Option<Vec<String>>,
    pub rows: usize,
    pub not_run: Vec<UnpredictedRow>,
    pub residuals: Vec<ValidationResidual>,
    pub orders: Vec<RankOrder>,
    /// Lines of served rows whose requests wait for KV cache; the errors leave them out.
    pub queued: Vec<usize>,
    /// Errors of served rows by model, GPU, engine and format.
    pub groups: Vec<ServingGroup>,
    /// Errors of served rows by TP and by concurrency.
    pub slices: Vec<Slice>,
    pub hardware: String,
    pub stack: String,
    /// Overridden values of profile and stack, as `KEY=VALUE`.
    pub values: Vec<String>,
}

impl Score {
    /// Scores the rows of a file that has the columns of a set: the named set, or else the first one that
    /// matches.
    ///
    /// # Errors
    ///
    /// Returns an error if several sets are named or no set has these columns, and the errors of
    /// [`DataSet::parse`] and [`Self::new`].
    pub fn of_file(sets: &[String], path: &Path, overrides: &Overrides) -> Result<Self> {
        if sets.len() > 1 {
            return Err(Error::input("--data replaces the rows of one set; name that set"));
        }
        let file = path.display().to_string();
        let text = InputKind::TABLE.text(path)?;
        let mut known = DataSet::named(sets)?;
        if sets.is_empty() {
            known.retain(|set| set.has_columns_of(&text));
        }
        let Some(set) = known.first() else {
            return Err(Error::input_help(
                format!("{file}: columns match no data set"),
                "name the set: ladderscope validate SET --data FILE.csv",
            ));
        };
        let rows = set.parse(&file, &text, overrides)?;
        let about = format!("rows of a file with the columns of {}", set.name);
        let mut set = set.clone();
        (set.about, set.source) = (about, file);
        (set.fitted, set.unknown) = (Vec::new(), Vec::new());
        Ok(Self { is_published: false, fitted: None, ..Self::new(&set, &rows)? })
    }

    /// Predicts rows of a set and compares. A row with an unknown model, or a TP that does not divide it,
    /// goes to `not_run`.
    ///
    /// # Errors
    ///
    /// Returns an error if the hardware profile, the stack or an overridden value is invalid.
    pub fn new(set: &DataSet, rows: &[Vec<MeasuredRun>]) -> Result<Self> {
        let simulator = Simulator::default();
        // an invalid target fails all rows: return an error instead of rows in `not_run`
        let (mut hardware, mut stack) = (String::new(), String::new());
        let (mut values, mut fitted) = (Vec::new(), None);
        if set.serving {
            (hardware, stack) = ("that of each row".to_owned(), "that of each row's engine".to_owned());
            let own = rows.iter().flatten().all(|run| run.spec.set.is_empty());
            fitted = own.then(|| set.fitted.clone());
        } else if let Some(MeasuredRun { spec, .. }) = rows.iter().flatten().next() {
            let target = simulator.target(&spec.hardware, &spec.stack, &spec.set)?;
            (hardware, stack) = (target.profile.name.clone(), target.stack.name.clone());
            values.extend(spec.set.iter().map(|(key, value)| format!("{key}={value}")));
            let as_fitted = values.is_empty() && set.is_on(&spec.hardware, &spec.stack);
            fitted = as_fitted.then(|| set.fitted.clone());
        }
        let predicted: Vec<Result<Predicted>> =
            rows.par_iter().map(|runs| predicted(set, runs, &simulator)).collect();
        let mut score = Self {
            set: set.clone(),
            is_published: true,
            fitted,
            rows: rows.len(),
            not_run: Vec::new(),
            residuals: Vec::new(),
            orders: Vec::new(),
            queued: Vec::new(),
            groups: Vec::new(),
            slices: Vec::new(),
            hardware,
            stack,
            values,
        };
        let mut done: Vec<(&MeasuredRun, f64)> = Vec::new();
        for (runs, predicted) in rows.iter().zip(predicted) {
            match predicted {
                Ok(row) => {
                    let lines = runs.iter().filter(|_| row.is_queued).map(|run| run.line);
                    score.queued.extend(lines.take(1));
                    done.extend(runs.iter().zip(row.values));
                }
                Err(error) => {
                    let line = runs.first().map_or(0, |run| run.line);
                    score.not_run.push(UnpredictedRow { line, reason: error.to_string() });
                }
            }
        }
        for (run, value) in &done {
            let measure = set.measured[run.column].measure;
            score.residuals.push(residual(run, measure, run.measured, *value));
            if measure == Measure::TokensPerS
                && let Some((standard, base)) = done.iter().find(|(other, _)| {
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
                && let Some((standard, base)) = done
                    .iter()
                    .find(|(other, _)| is_standard_of(&other.spec, &run.spec) && other.line == run.line)
            {
                let share = |without: f64, with: f64| 100.0 * (1.0 - without / with);
                let (measured, predicted) =
                    (share(run.measured, standard.measured), share(*value, *base));
                let measure = Measure::CommunicationShare;
                score.residuals.push(residual(run, measure, measured, predicted));
            }
        }
        score.orders = rank_orders(set, &done);
        (score.groups, score.slices) = (ServingGroup::new(rows, &score), Slice::new(rows, &score));
        Ok(score)
    }

    /// Stack and overridden values: `gpt-fast, hbm_gb_s=10`.
    pub fn stack_and_values(&self) -> String {
        let words = std::iter::once(&self.stack).chain(&self.values);
        words.map(String::as_str).collect::<Vec<_>>().join(", ")
    }

    /// Residuals of a measure that count: those of rows that do not wait for KV cache.
    fn of_measure(&self, measure: Measure) -> impl Iterator<Item = &ValidationResidual> {
        let residuals = self.residuals.iter().filter(move |residual| residual.measure == measure);
        residuals.filter(move |residual| !self.queued.contains(&residual.line))
    }

    /// Mean and largest absolute error of a measure, in its unit; `None` if no row has it.
    pub fn errors(&self, measure: Measure) -> Option<(f64, f64)> {
        let errors: Vec<f64> = self.of_measure(measure).map(|r| r.error.abs()).collect();
        Some((mean(&errors)?, errors.iter().copied().fold(0.0, f64::max)))
    }

    /// Residuals of a measure by size, the largest first.
    fn by_size(&self, measure: Measure) -> Vec<&ValidationResidual> {
        let mut residuals: Vec<&ValidationResidual> = self.of_measure(measure).collect();
        residuals.sort_by(|a, b| b.error.abs().total_cmp(&a.error.abs()));
        residuals
    }

    pub fn largest(&self, measure: Measure) -> Option<&ValidationResidual> {
        self.by_size(measure).first().copied()
    }

    /// Three largest residuals of decoding and of first tokens, or else of the set's first measure, with their likely causes.
    pub fn worst(&self) -> Vec<LargestResidual<'_>> {
        let has = |measure: &Measure| self.residuals.iter().any(|one| one.measure == *measure);
        let first = [Measure::Tpot, Measure::Completion, Measure::Prefill, Measure::TokensPerS];
        let measures = first.into_iter().find(has).into_iter().chain(Some(Measure::Ttft).filter(has));
        let worst = measures.flat_map(|measure| self.by_size(measure).into_iter().take(WORST));
        worst.map(|residual| LargestResidual { residual, cause: self.cause(residual) }).collect()
    }

    fn cause(&self, residual: &ValidationResidual) -> Option<&str> {
        let is = |cause: &&self::set::ResidualCause| {
            self.is_published
                && cause.measure == residual.measure
                && cause.lines.contains(&residual.line)
        };
        self.set.causes.iter().find(is).map(|known| known.cause.as_str())
    }
}

/// True if `standard` is the standard counterpart of the cell `other`.
fn is_standard_of(standard: &Spec, other: &Spec) -> bool {
    let same = Spec { architecture: other.architecture.clone(), ..standard.clone() };
    standard.architecture == Architecture::Standard
        && other.architecture != Architecture::Standard
        && same == *other
}

fn residual(run: &MeasuredRun, measure: Measure, measured: f64, predicted: f64) -> ValidationResidual {
    let spec = &run.spec;
    let error = match measure {
        _ if measure.unit() == "points" => predicted - measured,
        _ => 100.0 * (predicted / measured - 1.0),
    };
    let tokens = format!("{}+{}", spec.prompt_tokens, spec.output_tokens);
    let cell = format!("{} {} {tokens}", spec.model, spec.label());
    ValidationResidual { line: run.line, cell, measure, measured, predicted, error }
}

/// Predictions for the runs of one row, in the unit of each measure.
struct Predicted {
    values: Vec<f64>,
    /// True if requests wait for KV cache.
    is_queued: bool,
}

fn predicted(set: &DataSet, runs: &[MeasuredRun], simulator: &Simulator) -> Result<Predicted> {
    let mut known: Vec<(&Spec, LatencyPrediction)> = Vec::new();
    let (mut values, mut is_queued) = (Vec::with_capacity(runs.len()), false);
    for run in runs {
        let spec = &run.spec;
        let prediction = match known.iter().find(|(other, _)| *other == spec) {
            Some((_, prediction)) => *prediction,
            None => {
                let (prediction, waits) = prediction(run, simulator)?;
                is_queued |= waits;
                prediction
            }
        };
        known.push((spec, prediction));
        let LatencyPrediction { prefill_ms, decode_ms } = prediction;
        let tokens = f64::from(spec.batch) * f64::from(spec.output_tokens);
        let column = &set.measured[run.column];
        values.push(match column.measure {
            Measure::Tpot if spec.output_tokens < 2 => {
                return Err(Error::input("output_tokens is 1, so there is no decode step"));
            }
            Measure::Tpot => decode_ms / f64::from(spec.output_tokens - 1),
            Measure::Prefill | Measure::Ttft => prefill_ms,
            Measure::Completion if column.cached_prompts => {
                let steps = f64::from(spec.output_tokens.saturating_sub(1).max(1));
                decode_ms * f64::from(spec.output_tokens) / steps
            }
            Measure::Completion => prefill_ms + decode_ms,
            _ => 1e3 * tokens / (prefill_ms + decode_ms),
        });
    }
    Ok(Predicted { values, is_queued })
}

/// Prefill and decode latency of a run, and whether its requests wait for KV cache. Skips the memory check: the run was
/// measured, so it fits.
fn prediction(run: &MeasuredRun, simulator: &Simulator) -> Result<(LatencyPrediction, bool)> {
    let cell = match (&run.shape, &run.served) {
        (_, Some(ServedRow { problem: Some(problem), .. })) => return Err(Error::input(problem)),
        (Some(shape), _) => {
            let target = simulator.target(&run.spec.hardware, &run.spec.stack, &run.spec.set)?;
            simulator.cell_on(&run.spec, shape, target)?
        }
        (None, _) => simulator.cell(&run.spec)?,
    };
    let served = run.served.as_ref().and_then(|row| cell.serve(row.length_ratio));
    Ok(match served {
        Some(served) => {
            let steps = f64::from(run.spec.output_tokens.saturating_sub(1));
            let prediction =
                LatencyPrediction { prefill_ms: served.ttft_ms, decode_ms: served.tpot_ms * steps };
            (prediction, served.is_queued)
        }
        None => (cell.predict(), false),
    })
}

/// Two architectures in all cells of a set that have both.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct RankOrder {
    /// The two architectures.
    pub architectures: [String; 2],
    /// Cells in which both were measured and one was faster.
    pub pairs: usize,
    /// Cells in which the simulator does not have the measured winner ahead.
    pub reversed: Vec<ReversedPair>,
}

/// Cell in which the simulator has the slower architecture ahead, or a tie.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ReversedPair {
    /// Cell without its architecture.
    pub cell: String,
    /// Lines of both rows in the file, in the order of `architectures`.
    pub lines: [usize; 2],
    /// Architecture that was measured to be faster.
    pub faster: String,
    /// Measured lead of the faster architecture in tokens/s (percent).
    pub measured_lead_pct: f64,
    /// Simulated lead of the slower architecture in tokens/s (percent).
    pub reversed_lead_pct: f64,
}

/// Rank orders of a set's throughputs; excludes `upper-bound`, which is a limit.
fn rank_orders(set: &DataSet, done: &[(&MeasuredRun, f64)]) -> Vec<RankOrder> {
    let mut cells: BTreeMap<String, Vec<(&MeasuredRun, f64)>> = BTreeMap::new();
    let is_throughput = |run: &MeasuredRun| set.measured[run.column].measure == Measure::TokensPerS;
    for (run, predicted) in done {
        if is_throughput(run) && !run.spec.architecture.is_limit() {
            let cell = Spec { architecture: Architecture::Standard, ..run.spec.clone() };
            let key = serde_json::to_string(&(run.column, cell)).unwrap_or_default();
            cells.entry(key).or_default().push((run, *predicted));
        }
    }
    let mut orders: BTreeMap<[Architecture; 2], RankOrder> = BTreeMap::new();
    for runs in cells.values_mut() {
        runs.sort_by(|a, b| a.0.spec.architecture.cmp(&b.0.spec.architecture));
        for (at, first) in runs.iter().enumerate() {
            for second in &runs[at + 1..] {
                let architectures = [first, second].map(|(run, _)| run.spec.architecture.clone());
                if architectures[0] == architectures[1] {
                    continue;
                }
                let order = orders.entry(architectures.clone()).or_insert_with(|| RankOrder {
                    architectures: architectures.map(|architecture| architecture.to_string()),
                    pairs: 0,
                    reversed: Vec::new(),
                });
                order.add(*first, *second);
            }
        }
    }
    orders.into_values().collect()
}

impl RankOrder {
    fn add(&mut self, first: (&MeasuredRun, f64), second: (&MeasuredRun, f64)) {
        let (mut fast, mut slow) = (first, second);
        if fast.0.measured < slow.0.measured {
            (fast, slow) = (slow, fast);
        }
        if fast.0.measured == slow.0.measured {
            return;
        }
        self.pairs += 1;
        if fast.1 > slow.1 {
            return;
        }
        let spec = &fast.0.spec;
        let cell = format!("{} {}", spec.model, spec.label());
        self.reversed.push(ReversedPair {
            cell: cell.replacen(&format!("{} ", spec.architecture), "", 1),
            lines: [first.0.line, second.0.line],
            faster: spec.architecture.to_string(),
            measured_lead_pct: 100.0 * (fast.0.measured / slow.0.measured - 1.0),
            reversed_lead_pct: 100.0 * (slow.1 / fast.1 - 1.0),
        });
    }
}

/// One row per pair of architectures: cells that have both, and those that the simulator reverses.
pub fn orders_table<'a>(orders: impl IntoIterator<Item = (&'a str, &'a RankOrder)>) -> Table {
    let orders: Vec<(&str, &RankOrder)> = orders.into_iter().collect();
    let leads = |order: &RankOrder, lead: fn(&ReversedPair) -> f64| {
        extent(order.reversed.iter().map(lead)).map(|[least, most]| match least == most {
            true => format!("{least:.1}"),
            false => format!("{least:.1} to {most:.1}"),
        })
    };
    Table::from_rows(
        &orders,
        &[
            ("set", &|(set, _): &(&str, &RankOrder)| Shown::text(set)),
            ("architectures", &|(_, order)| Shown::text(order.architectures.join(", "))),
            ("cells", &|(_, order)| order.pairs.into()),
            ("reversed", &|(_, order)| order.reversed.len().into()),
            ("measured_lead_%|measured lead %", &|(_, order)| {
                leads(order, |pair| pair.measured_lead_pct).into()
            }),
            ("reversed_lead_%|predicted lead of the other %", &|(_, order)| {
                leads(order, |pair| pair.reversed_lead_pct).into()
            }),
            ("at", &|(_, order)| {
                Shown::some(
                    order.reversed.iter().map(|p| p.cell.as_str()).collect::<Vec<_>>().join("; "),
                )
            }),
        ],
    )
}

/// Mean and largest absolute error of each measure as a table, with the cell of the largest.
pub fn card(scores: &[Score]) -> Table {
    let lines: Vec<(&Score, Measure)> = scores
        .iter()
        .flat_map(|score| Measure::ALL.map(|measure| (score, measure)))
        .filter(|(score, measure)| score.errors(*measure).is_some())
        .collect();
    let errors = |(score, measure): &(&Score, Measure)| score.errors(*measure);
    Table::from_rows(
        &lines,
        &[
            ("set", &|(score, _): &(&Score, Measure)| Shown::text(&score.set.name)),
            ("rows", &|(score, _)| score.rows.into()),
            ("not_run|not run", &|(score, _)| Some(score.not_run.len()).filter(|rows| *rows > 0).into()),
            ("measure", &|(_, measure)| measure.title().into()),
            ("mean_error|mean error", &|line| Shown::number(errors(line).map(|(mean, _)| mean), 1)),
            ("largest", &|line| Shown::number(errors(line).map(|(_, max)| max), 1)),
            ("unit", &|(_, measure)| measure.unit().into()),
            ("largest_at|largest at", &|(score, measure)| {
                let words = |r: &self::ValidationResidual| match measure.unit() {
                    "points" => {
                        format!(
                            "{:+.1}: {}, {:.1} % for {:.1} %",
                            r.error, r.cell, r.predicted, r.measured
                        )
                    }
                    _ => format!("{:+.1}: {}", r.error, r.cell),
                };
                score.largest(*measure).map(words).into()
            }),
        ],
    )
}

#[cfg(test)]
mod tests;
