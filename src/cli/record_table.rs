//! Records as rows: a narrow table for people, every number for CSV, the contract's object for JSON.

use serde_json::Value;

use super::output::{Field, Rows};
use crate::store::Record;

/// The record as the contract's JSON object. The samples, which may be many thousand numbers, are
/// left to `show --format json`.
pub fn contract_object(record: &Record) -> Value {
    let mut value = serde_json::to_value(record).unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        object.remove("samples");
    }
    value
}

/// What a run's numbers go over: `cpu`, `cpu emulated:alpha_us=20,gb_s=50`, `h100_sxm gpt-fast`.
pub fn platform(record: &Record) -> String {
    let spec = &record.spec;
    let mut text = match spec.backend {
        crate::spec::Backend::Sim => format!("{} {}", spec.hardware, spec.stack),
        backend => backend.as_str().to_owned(),
    };
    if spec.link.is_emulated() {
        text += &format!(" {}", spec.link);
    }
    text
}

/// The columns a person scans, a record a row.
pub fn narrow(records: &[&Record]) -> Rows {
    let mut rows = Rows::new([
        "run",
        "status",
        "architecture",
        "model",
        "dtype",
        "tp",
        "batch",
        "tokens",
        "p2p",
        "on",
        "completion ms",
        "TPOT ms",
        "tok/s",
        "tok/s/GPU",
        "overlap %",
        "provenance",
        "why",
    ]);
    for record in records {
        let spec = &record.spec;
        let metrics = record.metrics.as_ref();
        rows.push(vec![
            Field::text(&record.run),
            Field::text(format!("{} {}", record.status.glyph(), record.status.as_str())),
            Field::text(&spec.architecture),
            Field::text(&spec.model),
            Field::text(spec.dtype),
            Field::Whole(spec.tp.into()),
            Field::Whole(spec.batch.into()),
            Field::text(format!("{}+{}", spec.prompt_tokens, spec.output_tokens)),
            Field::text(spec.p2p.as_str()),
            Field::text(platform(record)),
            Field::number(metrics.map(|m| m.completion_ms), 2),
            Field::number(metrics.map(|m| m.tpot_ms.p50), 3),
            Field::number(metrics.map(|m| m.tokens_per_s), 1),
            Field::number(metrics.map(|m| m.tokens_per_s_per_gpu), 1),
            Field::number(record.overlap.as_ref().and_then(|o| o.overlap_pct), 1),
            Field::text(record.provenance),
            record.reason.as_ref().map_or(Field::None, Field::text),
        ]);
    }
    rows
}

/// Every number, a record a row.
pub fn wide(records: &[&Record]) -> Rows {
    let mut rows = Rows::new([
        "run",
        "status",
        "reason",
        "provenance",
        "created",
        "experiment",
        "round",
        "architecture",
        "model",
        "dtype",
        "tp",
        "batch",
        "prompt_tokens",
        "output_tokens",
        "p2p",
        "backend",
        "link",
        "hardware",
        "stack",
        "collective",
        "seed",
        "samples",
        "prefill_ms",
        "decode_ms",
        "completion_ms",
        "tpot_p50_ms",
        "tpot_p90_ms",
        "tpot_p99_ms",
        "tokens_per_s",
        "tokens_per_s_ci95_low",
        "tokens_per_s_ci95_high",
        "tokens_per_s_per_gpu",
        "memory_bytes_per_rank",
        "comm_ms",
        "exposed_comm_ms",
        "overlap_pct",
        "compute_ms",
        "idle_ms",
        "trace",
    ]);
    for record in records {
        let spec = &record.spec;
        let metrics = record.metrics.as_ref();
        let overlap = record.overlap.as_ref();
        let number = |get: fn(&crate::store::Metrics) -> f64| Field::number(metrics.map(get), 3);
        let bound =
            |at: usize| Field::number(metrics.and_then(|m| m.tokens_per_s_ci95).map(|ci| ci[at]), 3);
        let lane = |get: fn(&crate::store::Overlap) -> f64| Field::number(overlap.map(get), 3);
        let optional = |text: &Option<String>| text.as_ref().map_or(Field::None, Field::text);
        rows.push(vec![
            Field::text(&record.run),
            Field::text(record.status.as_str()),
            optional(&record.reason),
            Field::text(record.provenance),
            Field::text(&record.created),
            optional(&record.experiment),
            Field::Whole(record.round.into()),
            Field::text(&spec.architecture),
            Field::text(&spec.model),
            Field::text(spec.dtype),
            Field::Whole(spec.tp.into()),
            Field::Whole(spec.batch.into()),
            Field::Whole(spec.prompt_tokens.into()),
            Field::Whole(spec.output_tokens.into()),
            Field::text(spec.p2p.as_str()),
            Field::text(spec.backend.as_str()),
            Field::text(spec.link),
            Field::text(&spec.hardware),
            Field::text(&spec.stack),
            Field::text(match spec.collective {
                crate::spec::Collective::Nccl => "nccl",
                crate::spec::Collective::OneShot => "one-shot",
            }),
            Field::Whole(spec.seed),
            metrics.map_or(Field::None, |m| Field::Whole(m.samples.into())),
            number(|m| m.prefill_ms),
            number(|m| m.decode_ms),
            number(|m| m.completion_ms),
            number(|m| m.tpot_ms.p50),
            number(|m| m.tpot_ms.p90),
            number(|m| m.tpot_ms.p99),
            number(|m| m.tokens_per_s),
            bound(0),
            bound(1),
            number(|m| m.tokens_per_s_per_gpu),
            metrics.map_or(Field::None, |m| Field::Whole(m.memory_bytes_per_rank)),
            lane(|o| o.comm_ms),
            lane(|o| o.exposed_comm_ms),
            Field::number(overlap.and_then(|o| o.overlap_pct), 3),
            lane(|o| o.compute_ms),
            lane(|o| o.idle_ms),
            optional(&record.trace),
        ]);
    }
    rows
}
