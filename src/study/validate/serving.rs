//! Rows of serving benchmarks: an engine and its version instead of a stack, and errors by group of rows.

use std::collections::BTreeMap;

use serde::Serialize;

use super::score::has_experts;
use super::score::{Residual, Score};
use super::set::{Measure, Run};
use crate::rows::Row;
use base::error::Result;
use base::statistics::mean;
use base::text::same_name;
use machine::hardware::Stack;
use model::Model;
use plan::{DType, KvDType};
use table::Spec;

/// Properties of a served row that are not options of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct ServedRow {
    pub engine: String,
    /// Model and weights as the file has them.
    pub model: String,
    pub weights: String,
    pub system: String,
    /// Shortest length of prompts and outputs over the longest.
    pub length_ratio: f64,
    /// Reason why the simulator cannot predict the row.
    pub problem: Option<String>,
}

impl ServedRow {
    /// True for columns without an option of the same form.
    pub(super) fn reads(column: &str) -> bool {
        matches!(column, "engine" | "version")
    }

    /// Completes a served cell: stack, all-reduce and KV cache of the engine, and the model's built-in name.
    pub(super) fn read(row: &Row<'_>, spec: &mut Spec) -> Result<Self> {
        let text = |column| row.text(column).unwrap_or_default().to_owned();
        let mut problem = None;
        let (engine, version) = (text("engine"), text("version"));
        match Stack::of_engine(&engine, &version) {
            Some((stack, _)) => spec.stack = stack.to_owned(),
            None => problem = Some(format!("no stack for engine {engine} {version}")),
        }
        if let Some(serving) = Stack::load(&spec.stack).ok().and_then(|stack| stack.serving) {
            spec.collective = serving.collective_on(&spec.hardware);
        }
        let ranks = |column: &str| row.whole(column, Some(1));
        (spec.ep, spec.dp) = (ranks("ep")?, ranks("dp")?);
        let pp = ranks("pp")?;
        if pp > 1 {
            problem = Some(format!("pp {pp}: pipelines decode static batches only"));
        }
        spec.batch = spec.concurrency;
        let model = std::mem::take(&mut spec.model);
        if spec.dtype == DType::Fp8 && has_block_scales(&model) {
            spec.dtype = DType::Fp8Block;
        }
        let eight_bits = matches!(spec.dtype, DType::Fp8 | DType::Fp8Block);
        spec.kv_dtype = match row.text("kv") {
            Some("fp8") => KvDType::Fp8,
            Some("?") | None if eight_bits => KvDType::Fp8,
            _ => KvDType::Activations,
        };
        let length_ratio = row.positive("length_ratio")?.unwrap_or(1.0);
        if length_ratio > 1.0 {
            return Err(row.wrong("length_ratio", "it must be above 0 and at most 1"));
        }
        spec.model = built_in_name(&model);
        let settings = launch_settings(&engine, spec, length_ratio);
        spec.set.extend(settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        let (weights, system) = (text("weights"), text("system"));
        Ok(Self { engine, model, weights, system, length_ratio, problem })
    }
}

/// True if the publisher's fp8 checkpoints of a model have a scale for each block of 128 x 128 weights.
fn has_block_scales(model: &str) -> bool {
    let model = model.to_ascii_lowercase();
    ["qwen3", "deepseek"].iter().any(|family| model.starts_with(family))
}

/// Settings of the scheduler with which the published rows were measured, beside the stack's.
///
/// - InferenceX, whose lengths vary, starts TensorRT-LLM so that prompts of dense models wait for others at 1024 + 1024
///   tokens below TP 8: first tokens come 17 to 20 steps later than without, at every TP, concurrency and format.
/// - NVIDIA's rows, of exact lengths, limit the tokens of a step: one prompt from 1024 tokens on, several shorter ones.
fn launch_settings(
    engine: &str,
    spec: &Spec,
    length_ratio: f64,
) -> &'static [(&'static str, &'static str)] {
    let is_short = (spec.prompt_tokens, spec.output_tokens) == (1024, 1024);
    match engine {
        "trtllm" if length_ratio == 1.0 => &[("serving.step_tokens", "2048")],
        "vllm" if length_ratio == 1.0 => &[("serving.step_prompts", "1")],
        "trtllm" if is_short && spec.tp < 8 && !has_experts(&spec.model) => {
            &[("serving.wait_steps", "20")]
        }
        _ => &[],
    }
}

/// Built-in name of a model that is published without its suffix.
fn built_in_name(model: &str) -> String {
    let instruct = format!("{model}-instruct");
    let is_known = |name: &str| Model::built_in().iter().any(|known| same_name(&known.name, name));
    if !is_known(model) && is_known(&instruct) { instruct } else { model.to_owned() }
}

/// Errors of the rows of one model, GPU, engine and format.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Group {
    pub model: String,
    pub system: String,
    pub engine: String,
    /// Number format of the weights.
    pub weights: String,
    pub rows: usize,
    /// Rows without a prediction.
    pub not_run: usize,
    /// Rows whose requests wait for KV cache; the errors below leave them out.
    pub queued: usize,
    /// Mean absolute error by measure (percent); null without rows.
    pub mean_abs_pct: BTreeMap<&'static str, Option<f64>>,
    /// Mean error by measure (percent).
    pub bias_pct: BTreeMap<&'static str, Option<f64>>,
}

impl Group {
    /// Groups of a scored serving set, in the order of the file.
    pub(super) fn of(rows: &[Vec<Run>], score: &Score) -> Vec<Self> {
        let mut groups: Vec<(Self, Vec<&Residual>)> = Vec::new();
        for runs in rows {
            let Some(Run { line, served: Some(row), .. }) = runs.first() else { continue };
            let is = |group: &Self| {
                (&group.model, &group.system, &group.engine, &group.weights)
                    == (&row.model, &row.system, &row.engine, &row.weights)
            };
            let at = groups.iter().position(|(group, _)| is(group)).unwrap_or_else(|| {
                groups.push((Self::empty(row), Vec::new()));
                groups.len() - 1
            });
            let (group, residuals) = &mut groups[at];
            group.rows += 1;
            group.not_run += usize::from(score.not_run.iter().any(|not| not.line == *line));
            group.queued += usize::from(score.queued.contains(line));
            residuals.extend(score.residuals.iter().filter(|residual| residual.line == *line));
        }
        groups.into_iter().map(|(group, residuals)| group.with(&residuals, score)).collect()
    }

    fn empty(row: &ServedRow) -> Self {
        Self {
            model: row.model.clone(),
            system: row.system.clone(),
            engine: row.engine.clone(),
            weights: row.weights.clone(),
            rows: 0,
            not_run: 0,
            queued: 0,
            mean_abs_pct: BTreeMap::new(),
            bias_pct: BTreeMap::new(),
        }
    }

    fn with(self, residuals: &[&Residual], score: &Score) -> Self {
        let (mean_abs_pct, bias_pct) = means(residuals, score);
        Self { mean_abs_pct, bias_pct, ..self }
    }
}

/// Mean absolute error and mean error of a measure, by measure (percent).
type Means = BTreeMap<&'static str, Option<f64>>;

/// Mean absolute errors and mean errors of residuals, without the rows that wait for KV cache.
fn means(residuals: &[&Residual], score: &Score) -> (Means, Means) {
    let (mut absolute, mut bias) = (Means::new(), Means::new());
    for measure in [Measure::Tpot, Measure::Ttft] {
        let counted = residuals.iter().filter(|residual| residual.measure == measure);
        let errors: Vec<f64> = counted
            .filter(|residual| !score.queued.contains(&residual.line))
            .map(|residual| residual.error)
            .collect();
        absolute.insert(measure.as_str(), mean(&errors.iter().map(|e| e.abs()).collect::<Vec<_>>()));
        bias.insert(measure.as_str(), mean(&errors));
    }
    (absolute, bias)
}

/// Errors of the rows with one TP, or one concurrency.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Slice {
    /// `tp` or `concurrency`.
    pub by: &'static str,
    pub value: u32,
    /// Rows predicted, without those that wait for KV cache.
    pub rows: usize,
    /// Mean absolute error by measure (percent).
    pub mean_abs_pct: BTreeMap<&'static str, Option<f64>>,
    /// Mean error by measure (percent).
    pub bias_pct: BTreeMap<&'static str, Option<f64>>,
}

impl Slice {
    /// Slices of a scored serving set by TP, then by concurrency; none of other sets.
    pub(super) fn of(rows: &[Vec<Run>], score: &Score) -> Vec<Self> {
        let mut slices: BTreeMap<(bool, u32), Vec<&Residual>> = BTreeMap::new();
        for run in rows.iter().filter_map(|runs| runs.first()).filter(|run| run.served.is_some()) {
            let own = || score.residuals.iter().filter(|residual| residual.line == run.line);
            slices.entry((false, run.spec.tp)).or_default().extend(own());
            slices.entry((true, run.spec.concurrency)).or_default().extend(own());
        }
        let slice = |((is_concurrency, value), residuals): ((bool, u32), Vec<&Residual>)| {
            let is_counted =
                |r: &&&Residual| r.measure == Measure::Tpot && !score.queued.contains(&r.line);
            let rows = residuals.iter().filter(is_counted).count();
            let (mean_abs_pct, bias_pct) = means(&residuals, score);
            let by = if is_concurrency { "concurrency" } else { "tp" };
            Self { by, value, rows, mean_abs_pct, bias_pct }
        };
        slices.into_iter().map(slice).filter(|slice| slice.rows > 0).collect()
    }
}
