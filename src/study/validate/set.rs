//! Data sets: what was measured, on what, by whom; and the runs in their rows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::rows::{Row, Sheet, delimiter};
use base::error::{Error, Result};
use base::text::same_name;
use model::{MAX_LAYERS, MAX_SIZE};
use plan::{HeadStep, ModelShape, Rope};
use table::options::option;
use table::{Backend, CellOptions, Spec};

/// The text of each built-in set, and its rows.
const BUILT_IN: [(&str, &str); 4] = [
    (
        include_str!("sets/paper_70b.toml"),
        // the points that are laid over Pareto plots, too
        include_str!("../analysis/published/ladder-residual.tsv"),
    ),
    (include_str!("sets/prefill_h100.toml"), include_str!("sets/prefill_h100.csv")),
    (include_str!("sets/decode_a100_gptfast.toml"), include_str!("sets/decode_a100_gptfast.csv")),
    (include_str!("sets/decode_a100_lmdeploy.toml"), include_str!("sets/decode_a100_lmdeploy.csv")),
];

/// Columns that give a model's shape where they stand in a set: then its name need not be a built-in one.
const SHAPE: [&str; 6] = ["layers", "hidden", "heads", "kv_heads", "mlp", "vocabulary"];

/// A measure of a published row that a prediction can be compared with.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// batch x output tokens / completion latency (tokens/s).
    TokensPerS,
    /// Decode latency / (output tokens - 1) (ms).
    Tpot,
    /// Time from the prompts to the first token (ms).
    Prefill,
    /// Tokens/s over those of standard in the same cell.
    Speedup,
    /// The speed-up less 1 (%); its errors are points.
    Gain,
    /// Share of the prefill that goes when all-reduces are left out (%); its errors are points.
    CommunicationShare,
}

impl Measure {
    /// All measures; the last two have errors in points, the others in percent.
    pub const ALL: [Self; 6] = [
        Self::TokensPerS,
        Self::Tpot,
        Self::Prefill,
        Self::Speedup,
        Self::Gain,
        Self::CommunicationShare,
    ];

    /// Its key in JSON.
    pub fn key(self) -> &'static str {
        match self {
            Self::TokensPerS => "tokens_per_s",
            Self::Tpot => "tpot",
            Self::Prefill => "prefill",
            Self::Speedup => "speedup",
            Self::Gain => "gain",
            Self::CommunicationShare => "communication_share",
        }
    }

    /// The unit of its errors.
    pub fn unit(self) -> &'static str {
        if matches!(self, Self::Gain | Self::CommunicationShare) { "points" } else { "%" }
    }

    /// Its name for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::TokensPerS => "tokens/s",
            Self::Tpot => "TPOT",
            Self::Prefill => "prefill",
            Self::Speedup => "speed-up",
            Self::Gain => "gain",
            Self::CommunicationShare => "communication share",
        }
    }
}

/// A set of published measurements.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSet {
    /// Its name on the command line.
    pub name: String,
    /// What it is, in a line.
    pub about: String,
    /// Who published it, and under which licence.
    pub source: String,
    /// Which constants of the profile and the stack were fitted to its rows; empty where none was.
    pub fitted: Vec<String>,
    /// What is not known of how it was measured.
    pub unknown: Vec<String>,
    /// Columns that say what was run: options, and the six of a model's shape.
    columns: Vec<String>,
    /// Columns that are not compared.
    #[serde(default)]
    ignored: Vec<String>,
    /// Options of every row, by name, where no column says otherwise.
    cell: BTreeMap<String, String>,
    /// Columns that are compared.
    measured: Vec<Measured>,
    /// The text of its rows.
    #[serde(skip)]
    rows: &'static str,
}

/// A column of measurements.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Its name in the file.
    pub column: String,
    /// The measure whose values the column holds.
    pub measure: Measure,
    /// What one of its units is in those of the measure: 1000 for seconds.
    #[serde(default = "one")]
    pub unit: f64,
    /// The column has the sum over all decode steps, of which there is one fewer than output tokens.
    #[serde(default)]
    of_all_steps: bool,
    /// Options in which the run of this column differs from the row's, by name.
    #[serde(default)]
    cell: BTreeMap<String, String>,
}

fn one() -> f64 {
    1.0
}

/// What the user has otherwise than the set says.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Another hardware profile, by name or file.
    pub hardware: Option<String>,
    /// Another stack, by name or file.
    pub stack: Option<String>,
    /// Values of either, as `KEY=VALUE`.
    pub set: Vec<String>,
}

/// One measured number and the cell that it is of.
#[derive(Clone, Debug)]
pub struct Run {
    /// The line of its row in the file, from 1 on.
    pub line: usize,
    /// The column, as an index into the set's.
    pub column: usize,
    /// The cell that was run, as the simulator is asked for it.
    pub spec: Spec,
    /// The shape of the model, where the row gives it.
    pub shape: Option<ModelShape>,
    /// What was measured, in the unit of the column's measure.
    pub measured: f64,
}

impl DataSet {
    /// All sets that are built in. Fails where one of them is wrong, which a test rules out.
    ///
    /// # Errors
    ///
    /// An input error with the place of what is wrong.
    pub fn built_in() -> Result<Vec<Self>> {
        let parse = |(text, rows): &(&str, &'static str)| {
            let set: Self =
                toml::from_str(text).map_err(|error| Error::toml("set.toml", text, &error))?;
            Ok(Self { rows, ..set })
        };
        BUILT_IN.iter().map(parse).collect()
    }

    /// The built-in sets of these names, in this order; without names all.
    ///
    /// # Errors
    ///
    /// An input error for a name that there is not, with the nearest one.
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

    /// The columns that are compared.
    pub fn measured(&self) -> &[Measured] {
        &self.measured
    }

    /// The runs of the built-in rows.
    ///
    /// # Errors
    ///
    /// An input error for each reason that [`Self::parse`] has.
    pub fn runs(&self, overrides: &Overrides) -> Result<Vec<Vec<Run>>> {
        self.parse(&format!("the rows of {}", self.name), self.rows, overrides)
    }

    /// Whether a file's header has the columns of this set.
    pub fn has_columns_of(&self, text: &str) -> bool {
        let mut lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let header = lines.next().unwrap_or_default();
        let columns: Vec<&str> = header.split(delimiter(header)).map(str::trim).collect();
        let has = |name: &String| columns.contains(&name.as_str());
        self.columns.iter().all(has)
            && self.measured.iter().any(|measured| has(&measured.column))
            && columns.iter().all(|column| self.known().contains(column))
    }

    /// Whether its rows are predicted on this hardware with this stack.
    pub fn is_on(&self, hardware: &str, stack: &str) -> bool {
        let is = |key: &str, name: &str| self.cell.get(key).is_some_and(|own| own.as_str() == name);
        is("hardware", hardware) && is("stack", stack)
    }

    /// The first line of a file with all columns of this set.
    pub fn header(&self) -> String {
        self.known().join(",")
    }

    /// All columns that a file may have.
    fn known(&self) -> Vec<&str> {
        let measured = self.measured.iter().map(|measured| &measured.column);
        self.columns.iter().chain(measured).chain(&self.ignored).map(String::as_str).collect()
    }

    /// The runs of each row.
    ///
    /// # Errors
    ///
    /// Input errors with file, line, column and what would be right: a column that is missing or unknown, a value
    /// that its option does not take, a measurement that is no number above 0, a row without any.
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
            apply(&mut spec, [(column.as_str(), text)]).map_err(|error| match error {
                Error::Input { message, help } => row.wrong(column, &help.unwrap_or(message)),
                other => other,
            })?;
        }
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
                // a sum of none is no measurement
                (true, 0) => continue,
                (true, steps) => f64::from(steps),
            };
            let (line, measured) = (row.line, value * measured.unit / steps);
            runs.push(Run { line, column, spec, shape: shape.clone(), measured });
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

/// Sets options by name, as the command line would.
fn apply<'a>(spec: &mut Spec, values: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<()> {
    for (name, text) in values {
        let Some(entry) = option(name) else {
            return Err(Error::input(format!("'{name}' is no option")));
        };
        let mut options = CellOptions::default();
        entry.ask(&mut options, text)?;
        entry.check(&options)?;
        entry.apply(&options, spec);
    }
    Ok(())
}

/// The shape that a row gives; of the rest nothing costs time.
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
        rope: Rope { theta: 10_000.0, scaling: None },
        norm_eps: 1e-5,
        tied_embeddings: false,
    })
}
