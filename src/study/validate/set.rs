use std::collections::BTreeMap;

use serde::Deserialize;

use super::serving::ServedRow;
use crate::rows::{Row, Sheet, delimiter};
use base::error::{Error, Result};
use base::text::same_name;
use base::words::words;
use model::{MAX_LAYERS, MAX_SIZE};
use plan::{AttentionShape, HeadStep, ModelShape, Rope};
use table::options::option;
use table::{Backend, CellOptions, Spec};

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
    measured: Vec<Measured>,
    #[serde(skip)]
    pub(super) rows: &'static str,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
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
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    pub hardware: Option<String>,
    pub stack: Option<String>,
    /// Values of profile or stack, as `KEY=VALUE`.
    pub set: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Run {
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

    pub fn measured(&self) -> &[Measured] {
        &self.measured
    }

    /// Runs of the built-in rows.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::parse`].
    pub fn runs(&self, overrides: &Overrides) -> Result<Vec<Vec<Run>>> {
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
        self.columns
            .iter()
            .chain(&self.optional)
            .chain(measured)
            .chain(&self.ignored)
            .map(String::as_str)
            .collect()
    }

    /// Parses the runs of each row.
    ///
    /// # Errors
    ///
    /// Returns an error with file, line, column and the expected value if a column is missing or unknown, an
    /// option's value is invalid, a measurement is not a number above 0, or a row has no measurement.
    pub fn parse(&self, file: &str, text: &str, overrides: &Overrides) -> Result<Vec<Vec<Run>>> {
        let required: Vec<&str> = self.columns.iter().map(String::as_str).collect();
        let sheet = Sheet::parse(file, text, &required, &self.known())?;
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

    fn row(&self, row: &Row<'_>, base: &Spec) -> Result<Vec<Run>> {
        let mut spec = base.clone();
        for column in self.columns.iter().filter(|column| !SHAPE.contains(&column.as_str())) {
            let Some(text) = row.text(column) else {
                return Err(row.wrong(column, "it is missing"));
            };
            if self.serving && ServedRow::reads(column) {
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
            let known = |run: &Run| self.measured[run.column].measure == measured.measure;
            if runs.iter().any(|run: &Run| known(run) && run.spec == spec) {
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
            runs.push(Run { line, column, spec, shape, served, measured });
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
fn shape(row: &Row<'_>) -> Result<ModelShape> {
    let [layers, hidden, heads, kv_heads, intermediate, vocab] = SHAPE;
    let at_most = |column, most: u32| {
        let value = row.whole(column, None)?;
        if value > most {
            return Err(row.wrong(column, &format!("it must be at most {most}")));
        }
        Ok(value)
    };
    let of = |column| at_most(column, MAX_SIZE);
    let (hidden, heads, kv_heads) = (of(hidden)?, of(heads)?, of(kv_heads)?);
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
        intermediate: of(intermediate)?,
        vocab: of(vocab)?,
        rope: Rope::plain(10_000.0),
        norm_eps: 1e-5,
        tied_embeddings: false,
        attention: AttentionShape::default(),
        experts: None,
    })
}
