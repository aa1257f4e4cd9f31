//! Measured runs to fit: from a CSV file, or stored ones.

use std::path::Path;

use crate::base::error::{Error, Result, nearest};
use crate::base::statistics::median;
use crate::plan::DType;
use crate::table::{Backend, Collective, P2p, Record, Spec, Status};

/// One measured run, as the fit needs it: its cell and its latencies.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// What was run; hardware and stack are the ones that are fit.
    pub spec: Spec,
    /// batch x output tokens / completion latency.
    pub tokens_per_s: f64,
    /// Latency of all decode steps (s), where it is known.
    pub decode_s: Option<f64>,
    /// Prefill latency (s), where it is known.
    pub prefill_s: Option<f64>,
}

/// Columns of a data file. The last two, and `collective` and `dtype`, may be missing.
const REQUIRED: [&str; 8] =
    ["model", "architecture", "tp", "batch", "p2p", "prompt_tokens", "output_tokens", "tokens_per_s"];
const OPTIONAL: [&str; 4] = ["decode_s", "prefill_s", "collective", "dtype"];

/// Reads a CSV file with a header: the columns model, architecture, tp, batch, p2p,
/// prompt_tokens, output_tokens, tokens_per_s, and optionally decode_s, prefill_s, collective,
/// dtype (f16 unless given).
///
/// # Errors
///
/// An input error with file, line and column of what is wrong, and with what would be right: a missing
/// column, an unknown model or architecture, a number that is none.
pub fn read_csv(path: &Path) -> Result<Vec<Point>> {
    let text = std::fs::read_to_string(path).map_err(Error::io(path))?;
    parse(&path.display().to_string(), &text)
}

pub(super) fn parse(file: &str, text: &str) -> Result<Vec<Point>> {
    let mut lines =
        text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty() && !l.starts_with('#'));
    let wanted = || format!("columns are {}; optional: {}", REQUIRED.join(","), OPTIONAL.join(","));
    let Some((_, header)) = lines.next() else {
        return Err(Error::input_help(format!("{file}: it is empty"), wanted()));
    };
    let columns: Vec<&str> = header.split(',').map(str::trim).collect();
    for name in &columns {
        if !REQUIRED.contains(name) && !OPTIONAL.contains(name) {
            let guess = nearest(name, REQUIRED.into_iter().chain(OPTIONAL));
            let guess = guess.map(|g| format!("did you mean '{g}'? ")).unwrap_or_default();
            let message = format!("{file}:1: unknown column '{name}'");
            return Err(Error::input_help(message, format!("{guess}{}", wanted())));
        }
    }
    if let Some(missing) = REQUIRED.iter().find(|name| !columns.contains(name)) {
        return Err(Error::input_help(format!("{file}:1: it has no column '{missing}'"), wanted()));
    }
    let mut points = Vec::new();
    for (number, line) in lines {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let row = Row { file, line: number + 1, columns: &columns, fields: &fields };
        if fields.len() != columns.len() {
            let problem = format!("has {} fields, the header {}", fields.len(), columns.len());
            return Err(Error::input(format!("{file}:{}: {problem}", number + 1)));
        }
        points.push(row.point()?);
    }
    if points.is_empty() {
        return Err(Error::input(format!("{file}: it has a header and no rows")));
    }
    Ok(points)
}

struct Row<'a> {
    file: &'a str,
    line: usize,
    columns: &'a [&'a str],
    fields: &'a [&'a str],
}

impl Row<'_> {
    fn text(&self, column: &str) -> Option<&str> {
        let at = self.columns.iter().position(|name| *name == column)?;
        self.fields.get(at).copied().filter(|text| !text.is_empty())
    }

    fn wrong(&self, column: &str, wanted: &str) -> Error {
        let text = self.text(column).unwrap_or_default();
        Error::input(format!("{}:{}: {column} is '{text}'; {wanted}", self.file, self.line))
    }

    fn whole(&self, column: &str) -> Result<u32> {
        let value = self.text(column).and_then(|text| text.parse().ok()).filter(|n| *n > 0);
        value.ok_or_else(|| self.wrong(column, "it must be a whole number of at least 1"))
    }

    fn positive(&self, column: &str) -> Result<Option<f64>> {
        let Some(text) = self.text(column) else { return Ok(None) };
        let value = text.parse().ok().filter(|x: &f64| x.is_finite() && *x > 0.0);
        value.map(Some).ok_or_else(|| self.wrong(column, "it must be a number above 0, or empty"))
    }

    fn parsed<T: std::str::FromStr>(&self, column: &str, default: &str, wanted: &str) -> Result<T> {
        self.text(column).unwrap_or(default).parse().map_err(|_| self.wrong(column, wanted))
    }

    fn point(&self) -> Result<Point> {
        let spec = Spec {
            architecture: self.parsed(
                "architecture",
                "",
                "it must be standard, ladder, parallel, ...",
            )?,
            model: self.text("model").unwrap_or_default().to_owned(),
            dtype: self.parsed::<DType>("dtype", "f16", "it must be f16, bf16 or f32")?,
            tp: self.whole("tp")?,
            batch: self.whole("batch")?,
            prompt_tokens: self.whole("prompt_tokens")?,
            output_tokens: self.whole("output_tokens")?,
            p2p: self.parsed::<P2p>("p2p", "", "it must be on or off")?,
            hardware: String::new(),
            stack: String::new(),
            collective: self.parsed::<Collective>(
                "collective",
                "nccl",
                "it must be nccl or one-shot",
            )?,
            samples: 1,
            warmup: 0,
            ..Spec::default()
        };
        let tokens_per_s = self.positive("tokens_per_s")?;
        Ok(Point {
            spec,
            tokens_per_s: tokens_per_s.ok_or_else(|| self.wrong("tokens_per_s", "it is missing"))?,
            decode_s: self.positive("decode_s")?,
            prefill_s: self.positive("prefill_s")?,
        })
    }
}

/// Finished runs that were executed, not simulated, as points; medians over their samples.
pub fn of_records(records: &[Record]) -> Vec<Point> {
    records
        .iter()
        .filter(|record| record.status == Status::Ok && !record.spec.backend.is_simulated())
        .filter_map(|record| {
            let metrics = record.metrics.as_ref()?;
            let of = |get: fn(&crate::table::Sample) -> f64| {
                median(&record.samples.iter().map(get).collect::<Vec<_>>()).map(|ms| ms / 1e3)
            };
            Some(Point {
                spec: Spec { backend: Backend::Sim, ..record.spec.clone() },
                tokens_per_s: metrics.tokens_per_s,
                decode_s: of(|s| s.decode_ms).filter(|s| *s > 0.0),
                prefill_s: of(|s| s.prefill_ms).filter(|s| *s > 0.0),
            })
        })
        .collect()
}
