//! Batches: many simulated runs as the rows of one Parquet file. The columns are for whoever reads the
//! file with other tools; the `record` column holds each run's whole record as JSON.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use polars::prelude::*;

use super::atomic;
use super::record::{Metrics, Record};
use crate::error::{Error, Result};

/// Version of the batch format.
const VERSION: u32 = 1;
const VERSION_KEY: &str = "ladderscope.batch.version";

/// Writes a batch: rows by number. An older file of this name is replaced as a whole.
pub(super) fn write(path: &Path, rows: &BTreeMap<u32, Record>) -> Result<()> {
    let failed = |e: PolarsError| Error::failed(format!("{}: {e}", path.display()));
    let mut frame = frame(rows)?;
    atomic::write_with(path, |file| {
        let mut buffered = BufWriter::new(file);
        ParquetWriter::new(&mut buffered)
            .with_compression(ParquetCompression::Zstd(None))
            .with_key_value_metadata(Some(KeyValueMetadata::from_static(vec![(
                VERSION_KEY.into(),
                VERSION.to_string(),
            )])))
            .finish(&mut frame)
            .map_err(failed)?;
        buffered.flush().map_err(Error::io(path))
    })
}

fn frame(rows: &BTreeMap<u32, Record>) -> Result<DataFrame> {
    let text = |name: &str, get: &dyn Fn(&Record) -> String| {
        let values: Vec<String> = rows.values().map(get).collect();
        Column::new(name.into(), values)
    };
    let count = |name: &str, get: &dyn Fn(&Record) -> u32| {
        let values: Vec<u32> = rows.values().map(get).collect();
        Column::new(name.into(), values)
    };
    let metric = |name: &str, get: &dyn Fn(&Metrics) -> f64| {
        let values: Vec<Option<f64>> = rows.values().map(|r| r.metrics.as_ref().map(get)).collect();
        Column::new(name.into(), values)
    };
    let json = rows
        .values()
        .map(serde_json::to_string)
        .collect::<Result<Vec<String>, _>>()
        .map_err(|e| Error::failed(format!("a record cannot be written as JSON: {e}")))?;
    let overlap: Vec<Option<f64>> =
        rows.values().map(|r| r.overlap.and_then(|o| o.overlap_pct)).collect();
    let memory: Vec<Option<u64>> =
        rows.values().map(|r| r.metrics.as_ref().map(|m| m.memory_bytes_per_rank)).collect();
    let columns = vec![
        Column::new("row".into(), rows.keys().copied().collect::<Vec<u32>>()),
        text("architecture", &|r| r.spec.architecture.to_string()),
        text("model", &|r| r.spec.model.clone()),
        text("dtype", &|r| r.spec.dtype.to_string()),
        count("tp", &|r| r.spec.tp),
        count("batch", &|r| r.spec.batch),
        count("prompt_tokens", &|r| r.spec.prompt_tokens),
        count("output_tokens", &|r| r.spec.output_tokens),
        text("p2p", &|r| r.spec.p2p.as_str().into()),
        text("link", &|r| r.spec.link.to_string()),
        text("hardware", &|r| r.spec.hardware.clone()),
        text("stack", &|r| r.spec.stack.clone()),
        text("provenance", &|r| r.provenance.to_string()),
        text("status", &|r| r.status.as_str().into()),
        metric("prefill_ms", &|m| m.prefill_ms),
        metric("decode_ms", &|m| m.decode_ms),
        metric("completion_ms", &|m| m.completion_ms),
        metric("tpot_ms", &|m| m.tpot_ms.p50),
        metric("tokens_per_s", &|m| m.tokens_per_s),
        metric("tokens_per_s_per_gpu", &|m| m.tokens_per_s_per_gpu),
        Column::new("memory_bytes_per_rank".into(), memory),
        Column::new("overlap_pct".into(), overlap),
        text("key", &|r| r.spec.key()),
        count("round", &|r| r.round),
        text("created", &|r| r.created.clone()),
        Column::new("record".into(), json),
    ];
    DataFrame::new(rows.len(), columns).map_err(|e| Error::failed(format!("batch: {e}")))
}

/// Reads a batch: rows by number, and what could not be read of it. Rows get their ids.
pub(super) fn read(path: &Path) -> Result<(BTreeMap<u32, Record>, Vec<String>), String> {
    let file = File::open(path).map_err(|e| e.to_string())?;
    // Polars panics at some corrupt files; this is the door where that becomes an error
    let read = catch_unwind(AssertUnwindSafe(|| -> PolarsResult<_> {
        let mut reader = ParquetReader::new(file);
        let version = reader
            .get_metadata()?
            .key_value_metadata()
            .iter()
            .flatten()
            .find(|pair| pair.key == VERSION_KEY)
            .and_then(|pair| pair.value.as_ref()?.parse::<u32>().ok());
        let frame = reader.with_columns(Some(vec!["row".into(), "record".into()])).finish()?;
        let numbers: Vec<Option<u32>> = frame.column("row")?.u32()?.iter().collect();
        let texts: Vec<Option<String>> =
            frame.column("record")?.str()?.iter().map(|t| t.map(str::to_owned)).collect();
        Ok((version, numbers, texts))
    }));
    let (version, numbers, texts) = match read {
        Ok(Ok(read)) => read,
        Ok(Err(e)) => return Err(format!("not a batch of runs: {e}")),
        Err(_) => return Err("not a readable Parquet file".into()),
    };
    let batch = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    let newer = match version {
        None => return Err(format!("not a batch of runs: its footer has no {VERSION_KEY}")),
        Some(version) => (version > VERSION)
            .then(|| format!("batch format {version} is newer than this build's {VERSION}")),
    };
    let (mut rows, mut damaged) = (BTreeMap::new(), Vec::new());
    for (number, text) in numbers.into_iter().zip(texts) {
        let (Some(number), Some(text)) = (number, text) else {
            damaged.push("a row without number or record".into());
            continue;
        };
        match super::record::parse(text.as_bytes()) {
            Ok(mut record) => {
                record.run = format!("{batch}:{number}");
                record.warnings.extend(newer.clone());
                rows.insert(number, record);
            }
            Err(why) => damaged.push(format!("row {number}: {why}")),
        }
    }
    Ok((rows, damaged))
}
