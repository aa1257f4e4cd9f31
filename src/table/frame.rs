//! Conversion between records and Polars data frames (the format of batch files): one column per option
//! and per stored measure, plus the other contents of a record.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use polars_core::prelude::{ArrowSchema, Column, DataFrame, DataType};
use rayon::prelude::*;

use super::options::{OPTIONS, OptionEntry, OptionKind};
use super::{MEASURES, Measure, Record, Sample, Spec, Unit};
use base::error::{Error, Result};

/// Column with the complete record.
pub const RECORD: &str = "record";

/// Converts records with their row numbers to a single-chunk frame, one row per record. Returns an error
/// if a record cannot be written as JSON.
pub fn frame(rows: &[(u32, Record)]) -> Result<DataFrame> {
    let text = |name: &str, of: &dyn Fn(&Record) -> Option<String>| {
        Column::new(name.into(), rows.iter().map(|(_, r)| of(r)).collect::<Vec<_>>())
    };
    let option = |option: &OptionEntry| {
        let number = |(_, r): &(u32, Record)| option.number(&r.spec).unwrap_or_default();
        match option.kind {
            OptionKind::Count => Column::new(
                option.name.into(),
                rows.iter().map(|r| number(r) as u32).collect::<Vec<_>>(),
            ),
            OptionKind::Large => {
                Column::new(option.name.into(), rows.iter().map(number).collect::<Vec<_>>())
            }
            _ => text(option.name, &|r| Some(option.text(&r.spec).into_owned())),
        }
    };
    let measure = |measure: &Measure| {
        let values = rows.iter().map(|(_, r)| measure.of(r));
        let name = measure.name.into();
        match measure.unit {
            Unit::Count => Column::new(name, values.map(|v| v.map(|v| v as u32)).collect::<Vec<_>>()),
            Unit::Bytes => Column::new(name, values.map(|v| v.map(|v| v as u64)).collect::<Vec<_>>()),
            _ => Column::new(name, values.collect::<Vec<_>>()),
        }
    };
    let json = rows
        .iter()
        .map(|(_, record)| serde_json::to_string(record))
        .collect::<Result<Vec<String>, _>>()
        .map_err(|e| Error::failed(format!("a record cannot be written as JSON: {e}")))?;
    let mut columns = vec![Column::new("row".into(), rows.iter().map(|r| r.0).collect::<Vec<_>>())];
    columns.extend(OPTIONS.iter().map(option));
    columns.extend([
        text("env", &|r| pairs(&r.spec.env)),
        text("set", &|r| pairs(&r.spec.set)),
        text("files", &|r| pairs(&r.spec.files)),
        text("provenance", &|r| Some(r.provenance.to_string())),
        text("status", &|r| Some(r.status.as_str().into())),
        text("reason", &|r| r.reason.clone()),
    ]);
    columns.extend(MEASURES.iter().filter(|measure| measure.is_key()).map(measure));
    columns.extend([
        text("warnings", &|r| {
            (!r.warnings.is_empty()).then(|| serde_json::to_string(&r.warnings).unwrap_or_default())
        }),
        text("experiment", &|r| r.experiment.clone()),
        text("key", &|r| Some(r.spec.key())),
        Column::new("round".into(), rows.iter().map(|(_, r)| r.round).collect::<Vec<_>>()),
        text("created", &|r| Some(r.created.clone())),
        Column::new(RECORD.into(), json),
    ]);
    DataFrame::new(rows.len(), columns).map_err(|e| Error::failed(format!("batch: {e}")))
}

fn pairs(map: &BTreeMap<String, String>) -> Option<String> {
    (!map.is_empty()).then(|| serde_json::to_string(map).unwrap_or_default())
}

/// Rows per parallel task.
const ROWS_PER_TASK: usize = 1024;

/// Columns that [`records`] needs, in the order of [`frame`].
pub fn without_record(schema: &ArrowSchema) -> Vec<String> {
    let names = schema.iter_names().map(|name| name.to_string());
    names.filter(|name| name != RECORD && name != "key").collect()
}

/// Values of an option's column, and for each row whether the value differs from the previous row.
/// Neighboring rows of a sweep are mostly equal, and unchanged values need no parsing.
struct OptionColumn {
    values: AskedValues,
    changes: Vec<bool>,
}

enum AskedValues {
    Texts(TextColumn),
    Numbers(NumericColumn),
}

impl OptionColumn {
    /// Reads the column of an option; `None` if the batch is older than the option.
    fn new(frame: &DataFrame, option: &OptionEntry) -> Result<Option<Self>, String> {
        if frame.column(option.name).is_err() && !option.is_required {
            return Ok(None);
        }
        let (values, changes) = match option.kind {
            OptionKind::Count | OptionKind::Large => {
                let numbers = NumericColumn::new(frame, option.name)?;
                let changes = numbers.changes();
                (AskedValues::Numbers(numbers), changes)
            }
            _ => {
                let texts = TextColumn::new(frame, option.name)?;
                let changes = changes(texts.values.iter());
                (AskedValues::Texts(texts), changes)
            }
        };
        Ok(Some(Self { values, changes }))
    }

    /// Stores the value of a row in a spec.
    fn put(&self, option: &OptionEntry, at: usize, spec: &mut Spec) -> Result<(), String> {
        match &self.values {
            AskedValues::Texts(texts) => option
                .read(spec, texts.some(at)?)
                .map_err(|e| format!("column {}, row {at}: {e}", option.name)),
            AskedValues::Numbers(numbers) => match option.put(spec, numbers.large(at)?) {
                true => Ok(()),
                false => Err(numbers.nothing(at)),
            },
        }
    }
}

/// For each value, true if it differs from the previous one; the first is always true.
fn changes<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<bool> {
    let mut before = None;
    let mut changed = |value: T| {
        let changed = before.as_ref() != Some(&value);
        before = Some(value);
        changed
    };
    values.map(&mut changed).collect()
}

/// Reads the column of a measure; `None` if the batch is older than the measure. Batches of earlier versions use a
/// former name, which remains an alias of the measure.
fn measured(frame: &DataFrame, measure: &'static Measure) -> Result<Option<NumericColumn>, String> {
    let names = std::iter::once(&measure.name).chain(measure.aliases);
    let name = names.copied().find(|name| frame.column(name).is_ok());
    name.map(|name| NumericColumn::new(frame, name)).transpose()
}

/// Rebuilds records, without their environment, from all columns except the complete record. Ids are
/// `BATCH:ROW`. Errors name the offending row and column.
pub fn records(frame: &DataFrame, batch: &str) -> Result<Vec<Record>, String> {
    let texts = |name: &'static str| TextColumn::new(frame, name);
    let numbers = |name: &'static str| NumericColumn::new(frame, name);
    let mut options: Vec<(&OptionEntry, OptionColumn)> = Vec::new();
    for option in OPTIONS {
        options.extend(OptionColumn::new(frame, option)?.map(|asked| (option, asked)));
    }
    let mut measures: Vec<(&Measure, NumericColumn)> = Vec::new();
    for measure in MEASURES.iter().filter(|measure| measure.is_key()) {
        measures.extend(measured(frame, measure)?.map(|numbers| (measure, numbers)));
    }
    let (row, round) = (numbers("row")?, numbers("round")?);
    // absent in batches of earlier versions
    let files = texts("files").ok();
    let (env, set, status) = (texts("env")?, texts("set")?, texts("status")?);
    let (reason, provenance, created) = (texts("reason")?, texts("provenance")?, texts("created")?);
    let (experiment, warnings) = (texts("experiment")?, texts("warnings")?);
    let part = |rows: Range<usize>| -> Result<Vec<Record>, String> {
        let mut records = Vec::with_capacity(rows.len());
        let mut spec = Spec::default();
        for at in rows.clone() {
            spec.env = env.json(at)?.unwrap_or_default();
            spec.set = set.json(at)?.unwrap_or_default();
            spec.files = match &files {
                Some(files) => files.json(at)?.unwrap_or_default(),
                None => BTreeMap::new(),
            };
            for (option, asked) in &options {
                if at == rows.start || asked.changes[at] {
                    asked.put(option, at, &mut spec)?;
                }
            }
            let mut record = Record {
                run: format!("{batch}:{}", row.count(at)?),
                provenance: provenance.word(at)?,
                created: created.text(at)?,
                round: round.count(at)?,
                experiment: experiment.get(at).map(str::to_owned),
                warnings: warnings.json(at)?.unwrap_or_default(),
                ..Record::new(spec.clone(), status.word(at)?, reason.get(at).map(str::to_owned))
            };
            for (measure, numbers) in &measures {
                if let Some(value) = numbers.get(at) {
                    measure.set(&mut record, value);
                }
            }
            if let Some(metrics) = record.metrics.as_ref().filter(|metrics| metrics.samples == 1) {
                let (prefill_ms, decode_ms) = (metrics.prefill_ms, metrics.decode_ms);
                let (steps_ms, overlap) = (Vec::new(), record.overlap);
                record.samples = Arc::new(vec![Sample { prefill_ms, decode_ms, steps_ms, overlap }]);
            }
            records.push(record);
        }
        Ok(records)
    };
    let first = (0..frame.height()).into_par_iter().step_by(ROWS_PER_TASK);
    let parts = first.map(|at| part(at..frame.height().min(at + ROWS_PER_TASK)));
    let mut parts: Vec<Vec<Record>> = parts.collect::<Result<_, String>>()?;
    Ok(if parts.len() == 1 { parts.swap_remove(0) } else { parts.into_iter().flatten().collect() })
}

pub struct TextColumn {
    name: &'static str,
    values: polars_core::prelude::StringChunked,
}

impl TextColumn {
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

    fn json<T: serde::de::DeserializeOwned>(&self, at: usize) -> Result<Option<T>, String> {
        let parse = |text| serde_json::from_str(text);
        let parsed = self.get(at).map(parse).transpose();
        parsed.map_err(|e| format!("column {}, row {at}: {e}", self.name))
    }

    /// Parses a value with serde.
    pub fn word<T: serde::de::DeserializeOwned>(&self, at: usize) -> Result<T, String> {
        let text: serde::de::value::StrDeserializer<'_, serde::de::value::Error> =
            serde::de::IntoDeserializer::into_deserializer(self.some(at)?);
        T::deserialize(text).map_err(|e| format!("column {}, row {at}: {e}", self.name))
    }
}

pub struct NumericColumn {
    name: &'static str,
    column: NumberColumn,
}

enum NumberColumn {
    Whole(Vec<Option<u64>>),
    Number(Vec<Option<f64>>),
}

impl NumericColumn {
    pub fn new(frame: &DataFrame, name: &'static str) -> Result<Self, String> {
        let column = frame.column(name).map_err(|e| e.to_string())?;
        let wrong = |e| format!("column {name}: {e}");
        let column = match column.dtype() {
            DataType::UInt64 => NumberColumn::Whole(column.u64().map_err(wrong)?.iter().collect()),
            DataType::Float64 => NumberColumn::Number(column.f64().map_err(wrong)?.iter().collect()),
            _ => {
                let counts = column.u32().map_err(wrong)?.iter();
                NumberColumn::Whole(counts.map(|count| count.map(u64::from)).collect())
            }
        };
        Ok(Self { name, column })
    }

    fn changes(&self) -> Vec<bool> {
        match &self.column {
            NumberColumn::Whole(values) => changes(values.iter()),
            NumberColumn::Number(values) => changes(values.iter()),
        }
    }

    fn nothing(&self, at: usize) -> String {
        format!("column {} has nothing that fits in row {at}", self.name)
    }

    pub fn count(&self, at: usize) -> Result<u32, String> {
        u32::try_from(self.large(at)?).map_err(|_| self.nothing(at))
    }

    fn large(&self, at: usize) -> Result<u64, String> {
        let value = match &self.column {
            NumberColumn::Whole(values) => values.get(at).copied().flatten(),
            NumberColumn::Number(_) => None,
        };
        value.ok_or_else(|| self.nothing(at))
    }

    fn get(&self, at: usize) -> Option<f64> {
        match &self.column {
            NumberColumn::Whole(values) => values.get(at).copied().flatten().map(|value| value as f64),
            NumberColumn::Number(values) => values.get(at).copied().flatten(),
        }
    }
}
