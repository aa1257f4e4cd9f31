//! Records as rows: a narrow table for people, every number for CSV, the contract's object for JSON.

use serde_json::Value;

use crate::lab::store::{Annotation, Annotations};
use crate::study::analysis::RunTable;
use crate::table::Record;
use crate::table::render::{Shown, Table};

/// The record as the contract's JSON object. The samples, which may be many thousand numbers, are
/// left to `show --format json`.
pub fn contract_object(record: &Record) -> Value {
    let mut value = serde_json::to_value(record).unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        object.remove("samples");
        if let Some(Value::Object(pass)) = object.get_mut("instrumented") {
            pass.remove("steps_ms");
        }
    }
    value
}

/// What a run was executed or simulated on: `cpu`, or `h100_sxm gpt-fast` where they are simulated.
pub fn platform(record: &Record) -> String {
    let spec = &record.spec;
    match spec.backend.is_simulated() {
        true => format!("{} {}", spec.hardware, spec.stack),
        false => spec.backend.as_str().to_owned(),
    }
}

/// The columns a person scans, a record a row; where there are any, tags and notes too.
pub fn narrow(records: &[Record], annotations: &Annotations) -> Table {
    let mut rows = Table::new([
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
        "link",
        "completion ms",
        "TPOT ms",
        "tok/s",
        "tok/s/GPU",
        "overlap %",
        "provenance",
        "tags",
        "note",
        "why",
    ]);
    for record in records {
        let spec = &record.spec;
        let metrics = record.metrics.as_ref();
        let annotation = annotations.of(&record.run);
        let some = |text: String| if text.is_empty() { Shown::None } else { Shown::Text(text) };
        rows.push(vec![
            Shown::text(&record.run),
            Shown::text(format!("{} {}", record.status.glyph(), record.status.as_str())),
            Shown::text(&spec.architecture),
            Shown::text(&spec.model),
            Shown::text(spec.dtype),
            Shown::Whole(spec.tp.into()),
            Shown::Whole(spec.batch.into()),
            Shown::text(format!("{}+{}", spec.prompt_tokens, spec.output_tokens)),
            Shown::text(spec.p2p.as_str()),
            Shown::text(platform(record)),
            Shown::text(spec.link),
            Shown::number(metrics.map(|m| m.completion_ms), 2),
            Shown::number(metrics.map(|m| m.tpot_ms.p50), 3),
            Shown::number(metrics.map(|m| m.tokens_per_s), 1),
            Shown::number(metrics.map(|m| m.tokens_per_s_per_gpu), 1),
            Shown::number(record.overlap.as_ref().and_then(|o| o.overlap_pct), 1),
            Shown::text(record.provenance),
            some(annotation.map(|a| words(&a.tags)).unwrap_or_default()),
            some(annotation.and_then(|a| a.note.lines().next()).unwrap_or_default().to_owned()),
            record.reason.as_ref().and_then(|why| why.lines().next()).map_or(Shown::None, Shown::text),
        ]);
    }
    rows
}

/// Adds a run's tags and note to its JSON object.
pub fn add_annotation(object: &mut serde_json::Map<String, Value>, annotation: Option<&Annotation>) {
    let tags = annotation.map(|a| &a.tags).into_iter().flatten();
    object.insert("tags".into(), tags.map(String::as_str).collect());
    let note = annotation.map(|a| a.note.as_str()).filter(|note| !note.is_empty());
    object.insert("note".into(), note.into());
}

/// Tags in a line.
pub fn words(tags: &std::collections::BTreeSet<String>) -> String {
    tags.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
}

/// Every number of these records, a record a row.
pub fn csv(records: &[Record]) -> String {
    let table = RunTable::new(records, &Annotations::default());
    let rows: Vec<u32> = (0..records.len() as u32).collect();
    table.csv(&rows, &table.columns_of_records())
}
