//! Records as rows: a narrow table for people, every number for CSV, the contract's object for JSON.

use serde_json::Value;

use crate::desk;
use crate::lab::store::{Annotation, Annotations};
use crate::study::analysis::{RunTable, settings};
use crate::table::options::option;
use crate::table::render::{Shown, Table};
use crate::table::{Record, measure};

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

/// What a person scans: options and measures by their names, and what is put together here; where there
/// are any, tags and notes too.
const NARROW: [&str; 21] = [
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
    "setting|differs in",
    "completion_ms|completion ms",
    "tpot_p50_ms|TPOT ms",
    "tokens_per_s|tok/s",
    "tokens_per_s_per_gpu|tok/s/GPU",
    "overlap_pct|overlap %",
    "!provenance",
    "tags",
    "note",
    "why",
];

/// What of these a narrow terminal does without, the first to go last.
const LEAST: [&str; 14] = [
    "TPOT ms",
    "p2p",
    "status",
    "tok/s",
    "overlap %",
    "model",
    "on",
    "completion ms",
    "tok/s/GPU",
    "link",
    "tokens",
    "dtype",
    "note",
    "why",
];

/// A record a row under the columns of [`NARROW`].
pub fn narrow(records: &[Record], annotations: &Annotations) -> Table {
    let mut rows = Table::new(NARROW).least(&LEAST);
    // what has a column here
    let told =
        ["architecture", "model", "dtype", "tp", "batch", "prompt_tokens", "output_tokens", "p2p"];
    let told = [&told[..], &["hardware", "link", "backend"]].concat();
    let settings = settings(records, &told);
    for (record, setting) in records.iter().zip(settings) {
        let (spec, annotation) = (&record.spec, annotations.of(&record.run));
        let first_line = |text: Option<&str>| text.and_then(|text| text.lines().next()).into();
        let cell = |column: &str| match column.split('|').next().unwrap_or_default() {
            "run" => Shown::text(&record.run),
            "status" => Shown::text(format!("{} {}", record.status.glyph(), record.status.as_str())),
            "tokens" => Shown::text(format!("{}+{}", spec.prompt_tokens, spec.output_tokens)),
            "setting" => Shown::some(&setting),
            "on" => Shown::text(desk::platform(record)),
            "!provenance" => Shown::text(record.provenance),
            "tags" => annotation.map_or(Shown::None, |a| Shown::some(a.tags_in_a_line())),
            "note" => first_line(annotation.map(|a| a.note.as_str())),
            "why" => first_line(record.reason.as_deref()),
            name => match (option(name), measure(name)) {
                (Some(option), _) => option.shown(spec),
                (_, measure) => measure.map_or(Shown::None, |m| Shown::number(m.of(record), m.decimals)),
            },
        };
        rows.push(NARROW.iter().map(|column| cell(column)).collect());
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

/// Every number of these records, a record a row.
pub fn csv(records: &[Record]) -> String {
    let table = RunTable::new(records, &Annotations::default());
    let rows: Vec<u32> = (0..records.len() as u32).collect();
    table.csv(&rows, &table.columns_of_records())
}
