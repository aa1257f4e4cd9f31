//! External points laid over a Pareto plot: those published for Ladder Residual, or a user's own table. They never join
//! a frontier, since they were not measured here.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use serde::Serialize;

use super::axes::{Axes, XAxis, YAxis};
use crate::csv_table::{CsvRow, CsvTable};
use base::error::{Error, Result};
use base::input::InputKind;
use base::text::latency;
use machine::hardware::{Profile, Stack};
use plan::Architecture;
use table::{Collective, Measure, P2p, Provenance, Record, Spec, measure};

pub const PUBLISHED: &str = "published (arXiv 2501.06589)";

/// Bundled points; the file's first lines cite the paper.
const PUBLISHED_TABLE: &str = include_str!("../published/ladder-residual.tsv");

/// Columns of an overlay table, in any order. Other columns of this program's own point tables are accepted and
/// ignored.
pub const OVERLAY_COLUMNS: [&str; 20] = [
    "architecture",
    "model",
    "tp",
    "batch",
    "p2p",
    "prompt_tokens",
    "output_tokens",
    "completion_ms",
    "ttft_ms",
    "tpot_ms",
    "tokens_per_s_per_user",
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "source",
    "provenance",
    "label",
    "x",
    "x_measure",
    "y",
    "y_measure",
];

/// Difference between a latency and its parts above which one of them is of another run.
const CONTRADICTION: f64 = 0.05;

/// External point. Values missing from its table are `None`, or computed from the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct OverlayPoint {
    /// Label of the source: `published (arXiv 2501.06589)` or the file's name, with the provenance if the table has
    /// one: `points.csv (simulated)`.
    pub source: String,
    pub architecture: String,
    /// Label from the table; empty if TP and batch make the label.
    pub label: String,
    /// Model; `None` matches every model.
    pub model: Option<String>,
    pub tp: Option<u32>,
    pub batch: Option<u32>,
    /// P2P setting; `None` matches both.
    pub p2p: Option<P2p>,
    /// Tokens of each prompt; `None` matches every workload.
    pub prompt_tokens: Option<u32>,
    /// New tokens of each sequence; `None` matches every workload.
    pub output_tokens: Option<u32>,
    /// Latency of prefill and decode together (ms).
    pub completion_ms: Option<f64>,
    pub ttft_ms: Option<f64>,
    pub tpot_ms: Option<f64>,
    pub tokens_per_s_per_user: Option<f64>,
    pub tokens_per_s: Option<f64>,
    pub tokens_per_s_per_gpu: Option<f64>,
    /// Values of other measures by name, from the columns `x` and `y`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<&'static str, f64>,
}

impl OverlayPoint {
    /// Coordinates on these axes, if the table has both.
    pub fn place(&self, axes: Axes) -> Option<(f64, f64)> {
        let other = |measure: &Measure| self.others.get(measure.name).copied();
        let x = match axes.x {
            XAxis::Completion => self.completion_ms,
            XAxis::Tpot => self.tpot_ms,
            XAxis::Ttft => self.ttft_ms,
            XAxis::User => self.tokens_per_s_per_user,
            XAxis::Of(measure) => other(measure),
        };
        let y = match axes.y {
            YAxis::PerGpu => self.tokens_per_s_per_gpu,
            YAxis::Total => self.tokens_per_s,
            YAxis::Of(measure) => other(measure),
        };
        x.zip(y)
    }

    /// True if model and workload match a run, as far as the table has them.
    pub fn goes_with(&self, spec: &Spec) -> bool {
        self.model.as_ref().is_none_or(|model| *model == spec.model)
            && self.prompt_tokens.is_none_or(|n| n == spec.prompt_tokens)
            && self.output_tokens.is_none_or(|n| n == spec.output_tokens)
    }

    /// True if this is the point of a run's cell; a simulated one must be of the published machine and engine.
    pub fn is_of(&self, spec: &Spec) -> bool {
        self.goes_with(spec)
            && (self.source != PUBLISHED || !spec.backend.is_simulated() || is_published_target(spec))
            && self.architecture.parse().is_ok_and(|own: Architecture| own == spec.architecture)
            && self.tp == Some(spec.tp)
            && self.batch == Some(spec.batch)
            && self.p2p == Some(spec.p2p)
            && spec.ep.max(spec.dp) == 1
    }

    /// Note on a latency that TTFT and TPOT of the same table contradict.
    pub fn contradiction(&self) -> Option<String> {
        let steps = self.output_tokens?.checked_sub(1)?;
        let (completion_ms, tpot_ms) = (self.completion_ms?, self.tpot_ms?);
        let sum_ms = self.logged_ms()?;
        ((sum_ms / completion_ms - 1.0).abs() > CONTRADICTION).then(|| {
            let [completion, sum, tpot] = [completion_ms, sum_ms, tpot_ms].map(|ms| latency(1e3 * ms));
            format!("the latency of {completion} contradicts TTFT + {steps} x TPOT ({tpot}) = {sum}")
        })
    }

    /// Latency of prefill and decode that TTFT and TPOT of the same table give (ms).
    fn logged_ms(&self) -> Option<f64> {
        let steps = self.output_tokens?.checked_sub(1)?;
        Some(self.ttft_ms? + f64::from(steps) * self.tpot_ms?)
    }

    /// Throughput for that latency (tokens/s).
    fn logged_tokens_per_s(&self) -> Option<f64> {
        let tokens = f64::from(self.batch?) * f64::from(self.output_tokens?);
        Some(1e3 * tokens / self.logged_ms()?)
    }

    /// Run with the point's cell, for filters; options that the table lacks are those of another run, values are NaN.
    pub fn record(&self, like: &Record) -> Record {
        let mut record = Record {
            provenance: like.provenance,
            experiment: like.experiment.clone(),
            ..Record::new(like.spec.clone(), like.status, None)
        };
        let spec = &mut record.spec;
        spec.architecture = self.architecture.parse().unwrap_or_else(|_| spec.architecture.clone());
        (spec.tp, spec.batch) = (self.tp.unwrap_or(spec.tp), self.batch.unwrap_or(spec.batch));
        (spec.p2p, spec.ep, spec.dp) = (self.p2p.unwrap_or(spec.p2p), 1, 1);
        if let Some(model) = &self.model {
            spec.model.clone_from(model);
        }
        spec.prompt_tokens = self.prompt_tokens.unwrap_or(spec.prompt_tokens);
        spec.output_tokens = self.output_tokens.unwrap_or(spec.output_tokens);
        let values = [
            ("completion_ms", self.completion_ms),
            ("prefill_ms", self.ttft_ms),
            ("tpot_p50_ms", self.tpot_ms),
            ("tokens_per_s", self.tokens_per_s),
            ("tokens_per_s_per_gpu", self.tokens_per_s_per_gpu),
        ];
        for (name, value) in values {
            // no comparison holds for NaN
            if let Some(measure) = measure(name) {
                measure.set(&mut record, value.unwrap_or(f64::NAN));
            }
        }
        record
    }

    /// Label from the table, else TP and batch as `8x16`.
    pub fn name(&self) -> String {
        match (self.tp, self.batch) {
            _ if !self.label.is_empty() => self.label.clone(),
            (Some(tp), Some(batch)) => format!("{tp}x{batch}"),
            (Some(tp), None) => format!("tp{tp}"),
            (None, Some(batch)) => format!("b{batch}"),
            (None, None) => String::new(),
        }
    }

    fn complete(mut self) -> Self {
        let gpus = self.tp.map(f64::from);
        self.tokens_per_s = self.tokens_per_s.or_else(|| Some(self.tokens_per_s_per_gpu? * gpus?));
        let tokens = self.batch.zip(self.output_tokens).map(|(b, o)| f64::from(b) * f64::from(o));
        self.completion_ms = self.completion_ms.or_else(|| Some(tokens? * 1e3 / self.tokens_per_s?));
        self.tokens_per_s = self.tokens_per_s.or_else(|| Some(tokens? * 1e3 / self.completion_ms?));
        self.tokens_per_s_per_gpu =
            self.tokens_per_s_per_gpu.or_else(|| Some(self.tokens_per_s? / gpus?));
        self.tokens_per_s_per_user = self.tokens_per_s_per_user.or_else(|| Some(1000.0 / self.tpot_ms?));
        self.tpot_ms = self.tpot_ms.or_else(|| Some(1000.0 / self.tokens_per_s_per_user?));
        self
    }
}

/// True if a simulated cell has the hardware, the engine and the all-reduce of the published runs.
fn is_published_target(spec: &Spec) -> bool {
    Profile::canonical_name(&spec.hardware) == "h100_sxm"
        && Stack::canonical_name(&spec.stack) == "gpt-fast"
        && spec.collective == Collective::Nccl
        && spec.set.is_empty()
}

/// Published point of a run's cell.
pub fn published_of(spec: &Spec) -> Option<&'static OverlayPoint> {
    static POINTS: LazyLock<Vec<OverlayPoint>> = LazyLock::new(|| published().unwrap_or_default());
    POINTS.iter().find(|point| point.is_of(spec))
}

/// Published point of a simulated cell.
fn published_of_simulated(spec: &Spec) -> Option<&'static OverlayPoint> {
    published_of(spec).filter(|_| spec.backend.is_simulated())
}

/// Published value of a number, with the error of this program's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct PublishedValue {
    pub value: f64,
    /// This program's value over the published one, less 1 (percent).
    pub error_pct: f64,
    /// Speedup that the published TTFT and TPOT give; `None` unless they contradict the published latencies.
    #[serde(skip)]
    pub by_tpot: Option<f64>,
}

impl PublishedValue {
    pub fn new(own: f64, published: f64) -> Self {
        Self { value: published, error_pct: 100.0 * (own / published - 1.0), by_tpot: None }
    }

    /// Published throughput of a simulated cell (tokens/s).
    pub fn of_cell(spec: &Spec, tokens_per_s: f64) -> Option<Self> {
        Some(Self::new(tokens_per_s, published_of_simulated(spec)?.tokens_per_s?))
    }

    /// Published speedup of a simulated cell over its baseline in tokens/s; `None` if one of them was not published.
    pub fn of_speedup([baseline, cell]: [&Spec; 2], speedup: f64) -> Option<Self> {
        let (cell, baseline) = (published_of_simulated(cell)?, published_of_simulated(baseline)?);
        let contradicts = cell.contradiction().or_else(|| baseline.contradiction()).is_some();
        let by_tpot = || Some(cell.logged_tokens_per_s()? / baseline.logged_tokens_per_s()?);
        Some(Self {
            by_tpot: contradicts.then(by_tpot).flatten(),
            ..Self::new(speedup, cell.tokens_per_s? / baseline.tokens_per_s?)
        })
    }

    /// Speedup by the published TPOT, after the published one that it contradicts: `, but 1.50x by the published TPOT`.
    pub fn contradicting(&self) -> String {
        self.by_tpot
            .map_or_else(String::new, |speedup| format!(", but {speedup:.2}x by the published TPOT"))
    }

    /// Value and error of a speedup: `1.60x, -7.3 %`.
    pub fn ratio(&self) -> String {
        format!("{:.2}x, {:+.1} %", self.value, self.error_pct)
    }
}

/// Bundled points from the Ladder Residual paper.
///
/// # Errors
///
/// Returns an error if the bundled table is invalid, which a test rules out.
pub fn published() -> Result<Vec<OverlayPoint>> {
    parse_overlay("ladder-residual.tsv", PUBLISHED_TABLE, PUBLISHED)
}

/// Reads a table: CSV, or tab-separated if the header has a tab; lines starting with `#` are comments.
/// Points are labelled with the file's name or the `source` column, plus the `provenance` column.
///
/// # Errors
///
/// Returns a failure if the file cannot be read, or an input error with line and column.
pub fn read_overlay(path: &Path) -> Result<Vec<OverlayPoint>> {
    let text = InputKind::TABLE.text(path)?;
    let name = path.display().to_string();
    let source = path.file_name().map_or_else(|| name.clone(), |n| n.to_string_lossy().into_owned());
    parse_overlay(&name, &text, &source)
}

/// Parses the text of a table; errors name `file`, line and column.
///
/// # Errors
///
/// Returns an input error for an unknown or missing column or an invalid number.
pub fn parse_overlay(file: &str, text: &str, source: &str) -> Result<Vec<OverlayPoint>> {
    let sheet = CsvTable::parse_with(file, text, (&[], &OVERLAY_COLUMNS), super::is_own)?;
    let y = ["tokens_per_s", "tokens_per_s_per_gpu"];
    let x = ["completion_ms", "ttft_ms", "tpot_ms", "tokens_per_s_per_user"];
    // throughput, batch and output tokens give the completion latency
    let derived = sheet.has_any(&["batch"]) && sheet.has_any(&["output_tokens"]);
    let tells_y = sheet.has_any(&y) || (derived && sheet.has_any(&["completion_ms"]));
    if !tells_y || !(sheet.has_any(&x) || derived) {
        return Err(Error::input_help(
            format!("{file}: no column for latency or for throughput"),
            format!("columns: {}", OVERLAY_COLUMNS.join(", ")),
        ));
    }
    sheet.rows().map(|row| point(&row, source)).collect()
}

fn point(row: &CsvRow<'_>, source: &str) -> Result<OverlayPoint> {
    let text = |name| row.text(name).map(str::to_owned);
    let p2p = match row.text("p2p") {
        None => None,
        Some(value) => Some(value.parse().map_err(|_| row.wrong("p2p", "it must be on or off"))?),
    };
    let mut source = text("source").unwrap_or_else(|| source.to_owned());
    if let Some(provenance) = provenance(row)? {
        provenance.require_evidence(&source)?;
        source.push_str(&format!(" ({provenance})"));
    }
    let point = OverlayPoint {
        source,
        architecture: text("architecture").unwrap_or_else(|| "?".into()),
        label: text("label").unwrap_or_default(),
        model: text("model"),
        tp: row.count("tp")?,
        batch: row.count("batch")?,
        p2p,
        prompt_tokens: row.count("prompt_tokens")?,
        output_tokens: row.count("output_tokens")?,
        completion_ms: row.positive("completion_ms")?,
        ttft_ms: row.positive("ttft_ms")?,
        tpot_ms: row.positive("tpot_ms")?,
        tokens_per_s_per_user: row.positive("tokens_per_s_per_user")?,
        tokens_per_s: row.positive("tokens_per_s")?,
        tokens_per_s_per_gpu: row.positive("tokens_per_s_per_gpu")?,
        others: [other(row, "x", "x_measure")?, other(row, "y", "y_measure")?]
            .into_iter()
            .flatten()
            .collect(),
    };
    Ok(point.complete())
}

/// Provenance of a row, so that simulated numbers are not shown as measurements.
fn provenance(row: &CsvRow<'_>) -> Result<Option<Provenance>> {
    let parse = |text: &str| {
        text.parse().map_err(|_| {
            let known = Provenance::ALL.map(Provenance::as_str).join(", ");
            row.wrong("provenance", &format!("it must be one of {known}"))
        })
    };
    row.text("provenance").map(parse).transpose()
}

/// Measure and value of an extra axis; `None` if the value is not above 0 and cannot be plotted.
fn other(row: &CsvRow<'_>, value: &str, name: &str) -> Result<Option<(&'static str, f64)>> {
    let Some(text) = row.text(value) else { return Ok(None) };
    let number: f64 = text.parse().map_err(|_| row.wrong(value, "it must be a number"))?;
    let measure = row.text(name).and_then(measure);
    let what = format!("the column {name} names no measure");
    let measure = measure.ok_or_else(|| row.wrong(value, &what))?;
    Ok((number > 0.0).then_some((measure.name, number)))
}
