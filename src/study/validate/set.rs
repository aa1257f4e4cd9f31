//!
//! Rows of serving benchmarks: an engine and its version instead of a stack, and errors by group of rows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::trust::has_experts;
use super::{Score, ValidationResidual};
use crate::csv_table::{CsvRow, CsvTable, delimiter};
use base::error::{Error, Result};
use base::statistics::mean;
use base::text::same_name;
use base::words::words;
use machine::hardware::Stack;
use model::{MAX_LAYERS, MAX_SIZE, Model};
use plan::{AttentionShape, DType, HeadStep, KvDType, ModelShape, Rope};
use table::options::option;
use table::{Backend, CellOptions, Spec};

/// Built-in sets: description and data.
const BUILT_IN: [(&str, &str); 7] = [
    (include_str!("sets/paper_70b.toml"), include_str!("../analysis/published/ladder-residual.tsv")),
    (include_str!("sets/prefill_h100.toml"), include_str!("sets/prefill_h100.csv")),
    (include_str!("sets/decode_a100_gptfast.toml"), include_str!("sets/decode_a100_gptfast.csv")),
    (include_str!("sets/decode_a100_lmdeploy.toml"), include_str!("sets/decode_a100_lmdeploy.csv")),
    (include_str!("sets/serving_dense.toml"), include_str!("sets/serving_dense.csv")),
    (include_str!("sets/serving_moe.toml"), include_str!("sets/serving_moe.csv")),
    (include_str!("sets/mi300x_static.toml"), include_str!("sets/mi300x_static.csv")),
];

/// Columns of a model's shape. A set that has them may use models that are not built in.
const SHAPE: [&str; 6] = ["layers", "hidden", "heads", "kv_heads", "mlp", "vocabulary"];

words! {
    /// Measure of a published row that the simulator can predict. The last two have errors in points, the others in
    /// percent.
    Measure, "measure" {
        /// batch x output tokens / completion latency (tokens/s).
        TokensPerS = "tokens_per_s",
        /// Decode latency / (output tokens - 1) (ms).
        Tpot = "tpot",
        /// Time from the prompts to the first token (ms).
        Prefill = "prefill",
        /// Time to the first token of a served request, with its queue (ms).
        Ttft = "ttft",
        /// Completion latency of a static batch (ms).
        Completion = "completion",
        /// Tokens/s relative to standard in the same cell.
        Speedup = "speedup",
        /// Speedup - 1 (%); errors in points.
        Gain = "gain",
        /// Share of the prefill that disappears without all-reduces (%); errors in points.
        CommunicationShare = "communication_share",
    }
}

impl Measure {
    pub fn unit(self) -> &'static str {
        if matches!(self, Self::Gain | Self::CommunicationShare) { "points" } else { "%" }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::TokensPerS => "tokens/s",
            Self::Tpot => "TPOT",
            Self::Prefill => "prefill",
            Self::Ttft => "TTFT",
            Self::Completion => "whole latency",
            Self::Speedup => "speedup",
            Self::Gain => "gain",
            Self::CommunicationShare => "communication share",
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSet {
    pub name: String,
    pub about: String,
    /// Publisher and licence.
    pub source: String,
    /// Constants of profile and stack that were fitted to the rows; empty if none.
    pub fitted: Vec<String>,
    /// Unknowns of the measurement setup.
    pub unknown: Vec<String>,
    /// Likely causes of the largest residuals.
    #[serde(default)]
    pub(super) causes: Vec<ResidualCause>,
    /// Columns that describe the run: options, and the six of a model's shape.
    columns: Vec<String>,
    #[serde(default)]
    ignored: Vec<String>,
    /// Columns of a serving row that a file may lack.
    #[serde(default)]
    optional: Vec<String>,
    /// Options of columns that are called otherwise.
    #[serde(default)]
    options: BTreeMap<String, String>,
    /// True if rows are closed loops of requests in an engine, each row with its own hardware and stack.
    #[serde(default)]
    pub serving: bool,
    /// Defaults for all rows, by option name; columns take precedence.
    cell: BTreeMap<String, String>,
    pub(super) measured: Vec<MeasuredColumn>,
    #[serde(skip)]
    pub(super) rows: &'static str,
}

/// Likely cause of the residuals of some published rows, inferred from them and their setup.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResidualCause {
    pub(super) measure: Measure,
    /// Lines of the rows in the file.
    pub(super) lines: Vec<usize>,
    pub(super) cause: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredColumn {
    pub column: String,
    pub measure: Measure,
    /// Factor from the column's unit to the measure's: 1000 for seconds.
    #[serde(default = "one")]
    pub unit: f64,
    /// True if the column holds the sum over all decode steps (output tokens - 1).
    #[serde(default)]
    of_all_steps: bool,
    /// True if the runs of this column found their prompts in the KV cache: each token takes a decode step.
    #[serde(default)]
    pub cached_prompts: bool,
    /// Options of this column's run that differ from the row's, by name.
    #[serde(default)]
    cell: BTreeMap<String, String>,
}

fn one() -> f64 {
    1.0
}

/// User overrides of a set's target.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Overrides {
    /// Hardware profile to use instead of the set's: a built-in name or a TOML file
    #[arg(long, value_name = "NAME|FILE")]
    pub hardware: Option<String>,
    /// Software stack to use instead of the set's: a built-in name or a TOML file
    #[arg(long, value_name = "NAME|FILE")]
    pub stack: Option<String>,
    /// Override a value of the hardware or the stack (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct MeasuredRun {
    pub line: usize,
    pub column: usize,
    pub spec: Spec,
    pub shape: Option<ModelShape>,
    /// Engine and shortest length over the longest, of a served row.
    pub served: Option<ServedRow>,
    /// Measured value, in the unit of the column's measure.
    pub measured: f64,
}

impl DataSet {
    /// Parses all built-in sets; a test makes sure that this succeeds.
    ///
    /// # Errors
    ///
    /// Returns an input error with the position in the TOML text.
    pub fn built_in() -> Result<Vec<Self>> {
        let parse = |(text, rows): &(&str, &'static str)| {
            let set: Self =
                toml::from_str(text).map_err(|error| Error::toml("set.toml", text, &error))?;
            Ok(Self { rows, ..set })
        };
        BUILT_IN.iter().map(parse).collect()
    }

    /// Built-in sets with these names, in this order; all without names.
    ///
    /// # Errors
    ///
    /// Returns an error for an unknown name, with the nearest known one.
    pub fn named(names: &[String]) -> Result<Vec<Self>> {
        let all = Self::built_in()?;
        if names.is_empty() {
            return Ok(all);
        }
        let find = |name: &String| {
            let found = all.iter().find(|set| same_name(&set.name, name)).cloned();
            let names = all.iter().map(|set| set.name.as_str());
            found.ok_or_else(|| Error::unknown("data set", name, names))
        };
        names.iter().map(find).collect()
    }

    /// Runs of the built-in rows.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::parse`].
    pub fn runs(&self, overrides: &Overrides) -> Result<Vec<Vec<MeasuredRun>>> {
        self.parse(&format!("the rows of {}", self.name), self.rows, overrides)
    }

    /// True if a file's header matches this set: all setup columns, at least one measured one, no unknown
    /// one.
    pub fn has_columns_of(&self, text: &str) -> bool {
        let mut lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let header = lines.next().unwrap_or_default();
        let columns: Vec<&str> = header.split(delimiter(header)).map(str::trim).collect();
        let has = |name: &String| columns.contains(&name.as_str());
        self.columns.iter().all(has)
            && self.measured.iter().any(|measured| has(&measured.column))
            && columns.iter().all(|column| self.known().contains(column))
    }

    /// True if the set's own hardware and stack are these.
    pub fn is_on(&self, hardware: &str, stack: &str) -> bool {
        let is = |key: &str, name: &str| self.cell.get(key).is_some_and(|own| own.as_str() == name);
        is("hardware", hardware) && is("stack", stack)
    }

    pub fn header(&self) -> String {
        self.known().join(",")
    }

    fn known(&self) -> Vec<&str> {
        let measured = self.measured.iter().map(|measured| &measured.column);
        let known = self.columns.iter().chain(&self.optional).chain(measured).chain(&self.ignored);
        known.map(String::as_str).collect()
    }

    /// Parses the runs of each row.
    ///
    /// # Errors
    ///
    /// Returns an error with file, line, column and the expected value if a column is missing or unknown, an
    /// option's value is invalid, a measurement is not a number above 0, or a row has no measurement.
    pub fn parse(&self, file: &str, text: &str, overrides: &Overrides) -> Result<Vec<Vec<MeasuredRun>>> {
        let required: Vec<&str> = self.columns.iter().map(String::as_str).collect();
        let sheet = CsvTable::parse(file, text, &required, &self.known())?;
        let mut base = Spec { backend: Backend::Sim, samples: 1, warmup: 0, ..Spec::default() };
        apply(&mut base, self.cell.iter().map(|(name, value)| (name.as_str(), value.as_str())))?;
        base.hardware = overrides.hardware.clone().unwrap_or(base.hardware);
        base.stack = overrides.stack.clone().unwrap_or(base.stack);
        for pair in &overrides.set {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(Error::input(format!("--set {pair}: write it as KEY=VALUE")));
            };
            base.set.insert(key.to_owned(), value.to_owned());
        }
        sheet.rows().map(|row| self.row(&row, &base)).collect()
    }

    fn row(&self, row: &CsvRow<'_>, base: &Spec) -> Result<Vec<MeasuredRun>> {
        let mut spec = base.clone();
        for column in self.columns.iter().filter(|column| !SHAPE.contains(&column.as_str())) {
            let Some(text) = row.text(column) else {
                return Err(row.wrong(column, "it is missing"));
            };
            // columns without an option of the same form
            if self.serving && matches!(column.as_str(), "engine" | "version") {
                continue;
            }
            let option = self.options.get(column).unwrap_or(column);
            apply(&mut spec, [(option.as_str(), text)]).map_err(|error| match error {
                Error::Input { message, help } => row.wrong(column, &help.unwrap_or(message)),
                other => other,
            })?;
        }
        let served = self.serving.then(|| ServedRow::read(row, &mut spec)).transpose()?;
        let shape = self.columns.iter().any(|column| column == "layers").then(|| shape(row));
        let shape = shape.transpose()?;
        let mut runs = Vec::new();
        for (column, measured) in self.measured.iter().enumerate() {
            let Some(value) = row.positive(&measured.column)? else { continue };
            let mut spec = spec.clone();
            apply(&mut spec, measured.cell.iter().map(|(name, value)| (name.as_str(), value.as_str())))?;
            let known = |run: &MeasuredRun| self.measured[run.column].measure == measured.measure;
            if runs.iter().any(|run: &MeasuredRun| known(run) && run.spec == spec) {
                continue;
            }
            let steps = match (measured.of_all_steps, spec.output_tokens.saturating_sub(1)) {
                (false, _) => 1.0,
                // no decode step, so nothing was measured
                (true, 0) => continue,
                (true, steps) => f64::from(steps),
            };
            let (line, measured) = (row.line, value * measured.unit / steps);
            let (shape, served) = (shape.clone(), served.clone());
            runs.push(MeasuredRun { line, column, spec, shape, served, measured });
        }
        match (runs.is_empty(), self.measured.first()) {
            (true, Some(first)) => {
                let columns: Vec<&str> = self.measured.iter().map(|m| m.column.as_str()).collect();
                let wanted = format!("a row needs at least one measurement, of {}", columns.join(", "));
                Err(row.wrong(&first.column, &wanted))
            }
            _ => Ok(runs),
        }
    }
}

fn apply<'a>(spec: &mut Spec, values: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<()> {
    for (name, text) in values {
        let Some(entry) = option(name) else {
            return Err(Error::input(format!("'{name}' is not an option")));
        };
        let mut options = CellOptions::default();
        entry.ask(&mut options, text)?;
        entry.check(&options)?;
        entry.apply(&options, spec);
    }
    Ok(())
}

/// Model shape from a row; the remaining fields do not affect latency.
fn shape(row: &CsvRow<'_>) -> Result<ModelShape> {
    let [layers, hidden, heads, kv_heads, intermediate, vocab] = SHAPE;
    let at_most = |column, most: u32| {
        let value = row.whole(column, None)?;
        if value > most {
            return Err(row.wrong(column, &format!("it must be at most {most}")));
        }
        Ok(value)
    };
    let size = |column| at_most(column, MAX_SIZE);
    let (hidden, heads, kv_heads) = (size(hidden)?, size(heads)?, size(kv_heads)?);
    if !hidden.is_multiple_of(heads) {
        return Err(row.wrong("heads", &format!("it must divide hidden, which is {hidden}")));
    }
    if !heads.is_multiple_of(kv_heads) {
        return Err(row.wrong("kv_heads", &format!("it must divide heads, which is {heads}")));
    }
    Ok(ModelShape {
        layers: at_most(layers, MAX_LAYERS)?,
        hidden,
        heads,
        kv_heads,
        head_dim: hidden / heads,
        qkv: HeadStep::Plain,
        intermediate: size(intermediate)?,
        vocab: size(vocab)?,
        rope: Rope::plain(10_000.0),
        norm_eps: 1e-5,
        tied_embeddings: false,
        attention: AttentionShape::default(),
        experts: None,
    })
}

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
    /// Completes a served cell: stack, all-reduce and KV cache of the engine, and the model's built-in name.
    pub(super) fn read(row: &CsvRow<'_>, spec: &mut Spec) -> Result<Self> {
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "Group")]
pub struct ServingGroup {
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

impl ServingGroup {
    /// Groups of a scored serving set, in the order of the file.
    pub(super) fn new(rows: &[Vec<MeasuredRun>], score: &Score) -> Vec<Self> {
        let mut groups: Vec<(Self, Vec<&ValidationResidual>)> = Vec::new();
        for runs in rows {
            let Some(MeasuredRun { line, served: Some(row), .. }) = runs.first() else { continue };
            let is = |group: &Self| {
                (&group.model, &group.system, &group.engine, &group.weights)
                    == (&row.model, &row.system, &row.engine, &row.weights)
            };
            let at = groups.iter().position(|(group, _)| is(group)).unwrap_or_else(|| {
                let ServedRow { model, system, engine, weights, .. } = row.clone();
                let group = Self { model, system, engine, weights, ..Self::default() };
                groups.push((group, Vec::new()));
                groups.len() - 1
            });
            let (group, residuals) = &mut groups[at];
            group.rows += 1;
            group.not_run += usize::from(score.not_run.iter().any(|not| not.line == *line));
            group.queued += usize::from(score.queued.contains(line));
            residuals.extend(score.residuals.iter().filter(|residual| residual.line == *line));
        }
        for (group, residuals) in &mut groups {
            (group.mean_abs_pct, group.bias_pct) = means(residuals, score);
        }
        groups.into_iter().map(|(group, _)| group).collect()
    }
}

/// Mean absolute error and mean error of a measure, by measure (percent).
type Means = BTreeMap<&'static str, Option<f64>>;

/// Mean absolute errors and mean errors of residuals, without the rows that wait for KV cache.
fn means(residuals: &[&ValidationResidual], score: &Score) -> (Means, Means) {
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
    pub(super) fn new(rows: &[Vec<MeasuredRun>], score: &Score) -> Vec<Self> {
        let mut slices: BTreeMap<(bool, u32), Vec<&ValidationResidual>> = BTreeMap::new();
        for run in rows.iter().filter_map(|runs| runs.first()).filter(|run| run.served.is_some()) {
            let own = || score.residuals.iter().filter(|residual| residual.line == run.line);
            slices.entry((false, run.spec.tp)).or_default().extend(own());
            slices.entry((true, run.spec.concurrency)).or_default().extend(own());
        }
        let slice = |((is_concurrency, value), residuals): ((bool, u32), Vec<&ValidationResidual>)| {
            let is_counted =
                |r: &&&ValidationResidual| r.measure == Measure::Tpot && !score.queued.contains(&r.line);
            let rows = residuals.iter().filter(is_counted).count();
            let (mean_abs_pct, bias_pct) = means(&residuals, score);
            let by = if is_concurrency { "concurrency" } else { "tp" };
            Self { by, value, rows, mean_abs_pct, bias_pct }
        };
        slices.into_iter().map(slice).filter(|slice| slice.rows > 0).collect()
    }
}
