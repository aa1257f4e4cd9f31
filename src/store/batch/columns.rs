//! Records as the columns of a batch, and back.

use std::collections::BTreeMap;

use polars::prelude::{Column, DataFrame, DataType, Schema};

use super::super::record::{Metrics, Overlap, Percentiles, Record, SCHEMA, Sample, Split, Status};
use crate::error::{Error, Result};
use crate::spec::Spec;

/// The column of whole records.
pub(super) const RECORD: &str = "record";

/// Rows as one chunk.
pub(super) fn frame(rows: &[(u32, Record)]) -> Result<DataFrame> {
    fn column<T>(name: &str, rows: &[(u32, Record)], of: impl Fn(&Record) -> T) -> Column
    where
        Vec<T>: Into<Values>,
    {
        let values: Vec<T> = rows.iter().map(|(_, record)| of(record)).collect();
        match values.into() {
            Values::Text(values) => Column::new(name.into(), values),
            Values::Count(values) => Column::new(name.into(), values),
            Values::Large(values) => Column::new(name.into(), values),
            Values::Number(values) => Column::new(name.into(), values),
        }
    }
    let text = |name: &str, of: &dyn Fn(&Record) -> Option<String>| column(name, rows, of);
    let count = |name: &str, of: &dyn Fn(&Record) -> Option<u32>| column(name, rows, of);
    let large = |name: &str, of: &dyn Fn(&Record) -> Option<u64>| column(name, rows, of);
    let metric =
        |name: &str, of: fn(&Metrics) -> f64| column(name, rows, |r| r.metrics.as_ref().map(of));
    let lane = |name: &str, of: fn(&Overlap) -> f64| column(name, rows, |r| r.overlap.as_ref().map(of));
    let split = |name: &str, of: fn(&Split) -> f64| {
        column(name, rows, |r| r.overlap.and_then(|o| o.split).as_ref().map(of))
    };
    let json = rows
        .iter()
        .map(|(_, record)| serde_json::to_string(record))
        .collect::<Result<Vec<String>, _>>()
        .map_err(|e| Error::failed(format!("a record cannot be written as JSON: {e}")))?;
    let numbers: Vec<u32> = rows.iter().map(|(number, _)| *number).collect();
    let columns = vec![
        Column::new("row".into(), numbers),
        text("architecture", &|r| Some(r.spec.architecture.to_string())),
        text("model", &|r| Some(r.spec.model.clone())),
        text("dtype", &|r| Some(r.spec.dtype.to_string())),
        count("tp", &|r| Some(r.spec.tp)),
        count("batch", &|r| Some(r.spec.batch)),
        count("prompt_tokens", &|r| Some(r.spec.prompt_tokens)),
        count("output_tokens", &|r| Some(r.spec.output_tokens)),
        text("p2p", &|r| Some(r.spec.p2p.as_str().into())),
        text("backend", &|r| Some(r.spec.backend.as_str().into())),
        text("link", &|r| Some(r.spec.link.to_string())),
        text("hardware", &|r| Some(r.spec.hardware.clone())),
        text("stack", &|r| Some(r.spec.stack.clone())),
        text("collective", &|r| word(&r.spec.collective)),
        count("samples", &|r| Some(r.spec.samples)),
        count("warmup", &|r| Some(r.spec.warmup)),
        large("seed", &|r| Some(r.spec.seed)),
        text("env", &|r| pairs(&r.spec.env)),
        text("set", &|r| pairs(&r.spec.set)),
        text("provenance", &|r| Some(r.provenance.to_string())),
        text("status", &|r| Some(r.status.as_str().into())),
        text("reason", &|r| r.reason.clone()),
        metric("prefill_ms", |m| m.prefill_ms),
        metric("decode_ms", |m| m.decode_ms),
        metric("completion_ms", |m| m.completion_ms),
        metric("tpot_ms", |m| m.tpot_ms.p50),
        metric("tpot_p90_ms", |m| m.tpot_ms.p90),
        metric("tpot_p99_ms", |m| m.tpot_ms.p99),
        metric("tokens_per_s", |m| m.tokens_per_s),
        metric("tokens_per_s_per_gpu", |m| m.tokens_per_s_per_gpu),
        count("samples_done", &|r| r.metrics.as_ref().map(|m| m.samples)),
        large("memory_bytes_per_rank", &|r| r.metrics.as_ref().map(|m| m.memory_bytes_per_rank)),
        lane("comm_ms", |o| o.comm_ms),
        lane("exposed_comm_ms", |o| o.exposed_comm_ms),
        column("overlap_pct", rows, |r| r.overlap.and_then(|o| o.overlap_pct)),
        lane("compute_ms", |o| o.compute_ms),
        lane("idle_ms", |o| o.idle_ms),
        split("work_ms", |s| s.work_ms),
        split("contention_ms", |s| s.contention_ms),
        split("peer_wait_ms", |s| s.peer_wait_ms),
        split("transfer_ms", |s| s.transfer_ms),
        text("warnings", &|r| (!r.warnings.is_empty()).then(|| word_list(&r.warnings))),
        text("experiment", &|r| r.experiment.clone()),
        text("key", &|r| Some(r.spec.key())),
        count("round", &|r| Some(r.round)),
        text("created", &|r| Some(r.created.clone())),
        Column::new(RECORD.into(), json),
    ];
    DataFrame::new(rows.len(), columns).map_err(|e| Error::failed(format!("batch: {e}")))
}

/// Values of one column.
enum Values {
    Text(Vec<Option<String>>),
    Count(Vec<Option<u32>>),
    Large(Vec<Option<u64>>),
    Number(Vec<Option<f64>>),
}

macro_rules! values {
    ($($kind:ident($of:ty)),*) => {$(
        impl From<Vec<Option<$of>>> for Values {
            fn from(values: Vec<Option<$of>>) -> Self {
                Self::$kind(values)
            }
        }
    )*};
}
values!(Text(String), Count(u32), Large(u64), Number(f64));

/// A name that serde knows, as it stands in files.
fn word(value: &impl serde::Serialize) -> Option<String> {
    serde_json::to_value(value).ok()?.as_str().map(str::to_owned)
}

fn pairs(map: &BTreeMap<String, String>) -> Option<String> {
    (!map.is_empty()).then(|| serde_json::to_string(map).unwrap_or_default())
}

fn word_list(words: &[String]) -> String {
    serde_json::to_string(words).unwrap_or_default()
}

/// The columns that [`records`] needs, in the order of [`frame`]'s.
pub(super) fn without_record(schema: &Schema) -> Vec<String> {
    let names = schema.iter_names().map(|name| name.to_string());
    names.filter(|name| name != RECORD && name != "key").collect()
}

/// Records without their environment, from every column but the whole records; or which row and column
/// is wrong, and how. Ids are `BATCH:ROW`.
pub(super) fn records(frame: &DataFrame, batch: &str) -> Result<Vec<Record>, String> {
    let texts = |name: &'static str| Texts::new(frame, name);
    let numbers = |name: &'static str| Numbers::new(frame, name);
    let (row, tp, sequences) = (numbers("row")?, numbers("tp")?, numbers("batch")?);
    let (prompt, output, samples) =
        (numbers("prompt_tokens")?, numbers("output_tokens")?, numbers("samples")?);
    let (warmup, seed, round) = (numbers("warmup")?, numbers("seed")?, numbers("round")?);
    let (architecture, model, dtype) = (texts("architecture")?, texts("model")?, texts("dtype")?);
    let (p2p, backend, link) = (texts("p2p")?, texts("backend")?, texts("link")?);
    let (hardware, stack, collective) = (texts("hardware")?, texts("stack")?, texts("collective")?);
    let (env, set, status) = (texts("env")?, texts("set")?, texts("status")?);
    let (reason, provenance, created) = (texts("reason")?, texts("provenance")?, texts("created")?);
    let (experiment, warnings) = (texts("experiment")?, texts("warnings")?);
    let (metrics, overlap) = (metrics(frame)?, overlap(frame)?);
    let mut records = Vec::with_capacity(frame.height());
    for at in 0..frame.height() {
        let spec = Spec {
            architecture: architecture.parse(at)?,
            model: model.text(at)?,
            dtype: dtype.parse(at)?,
            tp: tp.count(at)?,
            batch: sequences.count(at)?,
            prompt_tokens: prompt.count(at)?,
            output_tokens: output.count(at)?,
            p2p: p2p.parse(at)?,
            backend: backend.parse(at)?,
            link: link.parse(at)?,
            hardware: hardware.text(at)?,
            stack: stack.text(at)?,
            collective: collective.parse(at)?,
            samples: samples.count(at)?,
            warmup: warmup.count(at)?,
            seed: seed.large(at)?,
            env: env.json(at)?.unwrap_or_default(),
            set: set.json(at)?.unwrap_or_default(),
            recorder: Default::default(),
            coverage: Default::default(),
            no_graph: false,
        };
        let (metrics, overlap) = (metrics(at)?, overlap(at)?);
        let sample = |m: &Metrics| Sample {
            prefill_ms: m.prefill_ms,
            decode_ms: m.decode_ms,
            steps_ms: Vec::new(),
            overlap,
        };
        records.push(Record {
            schema: SCHEMA,
            run: format!("{batch}:{}", row.count(at)?),
            status: status.word(at)?,
            reason: reason.get(at).map(str::to_owned),
            provenance: provenance.word(at)?,
            samples: metrics.iter().filter(|m| m.samples == 1).map(sample).collect(),
            metrics,
            overlap,
            environment: BTreeMap::new(),
            trace: None,
            created: created.text(at)?,
            round: round.count(at)?,
            experiment: experiment.get(at).map(str::to_owned),
            runs: Vec::new(),
            warnings: warnings.json(at)?.unwrap_or_default(),
            instrumented: None,
            spec,
        });
    }
    Ok(records)
}

fn metrics(frame: &DataFrame) -> Result<impl Fn(usize) -> Result<Option<Metrics>, String>, String> {
    let of = |name| Numbers::new(frame, name);
    let (prefill, decode, completion) = (of("prefill_ms")?, of("decode_ms")?, of("completion_ms")?);
    let (p50, p90, p99) = (of("tpot_ms")?, of("tpot_p90_ms")?, of("tpot_p99_ms")?);
    let (all, per_gpu) = (of("tokens_per_s")?, of("tokens_per_s_per_gpu")?);
    let (samples, memory) = (of("samples_done")?, of("memory_bytes_per_rank")?);
    Ok(move |at| {
        if samples.is_null(at) {
            return Ok(None);
        }
        Ok(Some(Metrics {
            prefill_ms: prefill.number(at)?,
            decode_ms: decode.number(at)?,
            completion_ms: completion.number(at)?,
            tpot_ms: Percentiles { p50: p50.number(at)?, p90: p90.number(at)?, p99: p99.number(at)? },
            tokens_per_s: all.number(at)?,
            tokens_per_s_per_gpu: per_gpu.number(at)?,
            samples: samples.count(at)?,
            // simulations have no intervals
            tokens_per_s_ci95: None,
            tpot_ms_ci95: None,
            memory_bytes_per_rank: memory.large(at)?,
        }))
    })
}

fn overlap(frame: &DataFrame) -> Result<impl Fn(usize) -> Result<Option<Overlap>, String>, String> {
    let of = |name| Numbers::new(frame, name);
    let (comm, exposed, pct) = (of("comm_ms")?, of("exposed_comm_ms")?, of("overlap_pct")?);
    let (compute, idle) = (of("compute_ms")?, of("idle_ms")?);
    let (work, contention) = (of("work_ms")?, of("contention_ms")?);
    let (peers, transfer) = (of("peer_wait_ms")?, of("transfer_ms")?);
    Ok(move |at| {
        if comm.is_null(at) {
            return Ok(None);
        }
        Ok(Some(Overlap {
            comm_ms: comm.number(at)?,
            exposed_comm_ms: exposed.number(at)?,
            overlap_pct: if pct.is_null(at) { None } else { Some(pct.number(at)?) },
            compute_ms: compute.number(at)?,
            idle_ms: idle.number(at)?,
            split: if work.is_null(at) {
                None
            } else {
                Some(Split {
                    work_ms: work.number(at)?,
                    contention_ms: contention.number(at)?,
                    peer_wait_ms: peers.number(at)?,
                    transfer_ms: transfer.number(at)?,
                })
            },
        }))
    })
}

/// A column of texts.
pub(super) struct Texts {
    name: &'static str,
    values: polars::prelude::StringChunked,
}

impl Texts {
    pub fn new(frame: &DataFrame, name: &'static str) -> Result<Self, String> {
        let column = frame.column(name).map_err(|e| e.to_string())?;
        let values = column.str().map_err(|e| format!("column {name}: {e}"))?.rechunk().into_owned();
        Ok(Self { name, values })
    }

    pub fn get(&self, at: usize) -> Option<&str> {
        self.values.get(at)
    }

    fn some(&self, at: usize) -> Result<&str, String> {
        self.get(at).ok_or_else(|| format!("column {} has nothing in row {at}", self.name))
    }

    pub fn text(&self, at: usize) -> Result<String, String> {
        self.some(at).map(str::to_owned)
    }

    fn parse<T: std::str::FromStr<Err = Error>>(&self, at: usize) -> Result<T, String> {
        self.some(at)?.parse().map_err(|e| format!("column {}, row {at}: {e}", self.name))
    }

    fn json<T: serde::de::DeserializeOwned>(&self, at: usize) -> Result<Option<T>, String> {
        let parse = |text| serde_json::from_str(text);
        let parsed = self.get(at).map(parse).transpose();
        parsed.map_err(|e| format!("column {}, row {at}: {e}", self.name))
    }

    /// What serde knows by this name.
    pub fn word<T: serde::de::DeserializeOwned>(&self, at: usize) -> Result<T, String> {
        let text: serde::de::value::StrDeserializer<'_, serde::de::value::Error> =
            serde::de::IntoDeserializer::into_deserializer(self.some(at)?);
        T::deserialize(text).map_err(|e| format!("column {}, row {at}: {e}", self.name))
    }
}

/// A column of numbers of any kind.
pub(super) struct Numbers {
    name: &'static str,
    column: NumberColumn,
}

enum NumberColumn {
    Count(polars::prelude::UInt32Chunked),
    Large(polars::prelude::UInt64Chunked),
    Number(polars::prelude::Float64Chunked),
}

impl Numbers {
    pub fn new(frame: &DataFrame, name: &'static str) -> Result<Self, String> {
        let column = frame.column(name).map_err(|e| e.to_string())?;
        let wrong = |e| format!("column {name}: {e}");
        let column = match column.dtype() {
            DataType::UInt64 => NumberColumn::Large(column.u64().map_err(wrong)?.rechunk().into_owned()),
            DataType::Float64 => {
                NumberColumn::Number(column.f64().map_err(wrong)?.rechunk().into_owned())
            }
            _ => NumberColumn::Count(column.u32().map_err(wrong)?.rechunk().into_owned()),
        };
        Ok(Self { name, column })
    }

    fn nothing(&self, at: usize) -> String {
        format!("column {} has nothing that fits in row {at}", self.name)
    }

    pub fn is_null(&self, at: usize) -> bool {
        match &self.column {
            NumberColumn::Count(values) => values.get(at).is_none(),
            NumberColumn::Large(values) => values.get(at).is_none(),
            NumberColumn::Number(values) => values.get(at).is_none(),
        }
    }

    pub fn count(&self, at: usize) -> Result<u32, String> {
        u32::try_from(self.large(at)?).map_err(|_| self.nothing(at))
    }

    fn large(&self, at: usize) -> Result<u64, String> {
        let value = match &self.column {
            NumberColumn::Count(values) => values.get(at).map(u64::from),
            NumberColumn::Large(values) => values.get(at),
            NumberColumn::Number(_) => None,
        };
        value.ok_or_else(|| self.nothing(at))
    }

    fn number(&self, at: usize) -> Result<f64, String> {
        match &self.column {
            NumberColumn::Number(values) => values.get(at),
            _ => None,
        }
        .ok_or_else(|| self.nothing(at))
    }
}

/// A status by its name in files.
pub(super) fn is_ok(texts: &Texts, at: usize) -> bool {
    texts.get(at) == Some(Status::Ok.as_str())
}
