//! Data frames as Parquet files, through Polars' reader and writer.

use std::io::{Cursor, Write};
use std::ops::Range;
use std::sync::Arc;

use polars_core::prelude::{
    ArrowDataType, ArrowSchema, CompatLevel, DataFrame, PlSmallStr, PolarsResult, Schema, SchemaExt as _,
};
use polars_io::SerReader as _;
use polars_io::parquet::read::{FileMetadata, ParallelStrategy, ParquetReader};
use polars_io::parquet::write::{
    BatchedWriter, KeyValueMetadata, ParquetCompression, ParquetWriter, StatisticsOptions,
};
use polars_parquet::write::{ZstdLevel, schema_to_metadata_key};

use super::panic::contained;

/// Parquet file in memory, with its parsed footer.
#[derive(Clone)]
pub struct ParquetFile {
    bytes: Arc<[u8]>,
    metadata: Arc<FileMetadata>,
    schema: Arc<ArrowSchema>,
}

impl ParquetFile {
    /// Parses the footer. Returns what is wrong with a file that is not Parquet.
    pub fn open(bytes: Vec<u8>) -> Result<Self, String> {
        let bytes: Arc<[u8]> = bytes.into();
        let mut reader = ParquetReader::new(Cursor::new(&bytes));
        let (metadata, schema) = parsed(|| Ok((reader.get_metadata()?.clone(), reader.schema()?)))?;
        Ok(Self { bytes, metadata, schema })
    }

    /// Unpacked size of all columns, according to the footer.
    pub fn unpacked_bytes(&self) -> u64 {
        let columns = self.metadata.row_groups.iter().flat_map(|group| group.parquet_columns());
        columns
            .fold(0, |sum, column| sum.saturating_add(column.uncompressed_size().max(0).unsigned_abs()))
    }

    pub fn rows(&self) -> usize {
        self.metadata.num_rows
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of rows of each row group.
    pub fn row_groups(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.metadata.row_groups.iter().map(|group| group.num_rows())
    }

    /// Columns by name, with their types and units.
    pub fn schema(&self) -> &ArrowSchema {
        &self.schema
    }

    /// Metadata of the file under a key.
    pub fn entry(&self, key: &str) -> Option<&str> {
        let entries = self.metadata.key_value_metadata().iter().flatten();
        entries.filter(|entry| entry.key == key).find_map(|entry| entry.value.as_deref())
    }

    /// Reads the named columns for rows in `window`, which may extend beyond the file. Returns an error
    /// for a missing column or damaged data.
    pub fn columns(&self, names: &[&str], window: Range<usize>) -> Result<DataFrame, String> {
        let start = window.start.min(self.rows());
        let length = window.end.min(self.rows()).saturating_sub(start);
        parsed(|| {
            let mut reader = ParquetReader::new(Cursor::new(&self.bytes));
            reader.set_metadata(self.metadata.clone());
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            // callers read windows in parallel; a panic is contained only on this thread
            let reader = reader.read_parallel(ParallelStrategy::None).with_columns(Some(names));
            reader.with_slice(Some((start, length))).set_rechunk(true).finish()
        })
    }
}

/// Runs a parser of Polars, which panics on some damaged files.
fn parsed<T>(parse: impl FnOnce() -> PolarsResult<T>) -> Result<T, String> {
    match contained(parse) {
        Ok(Ok(parsed)) => Ok(parsed),
        Ok(Err(e)) => Err(e.to_string()),
        Err(_) => Err("not a readable Parquet file".into()),
    }
}

/// Starts a file, compressed by Zstandard at `level`. `unit` names the unit of a column's numbers, which
/// goes into the column's metadata; `entries` go into the file's.
///
/// The types that Arrow readers see are declared here: texts are plain UTF-8, because pyarrow before 15
/// and Polars before 0.21 reject the string views that Polars' writer declares.
///
/// # Errors
///
/// Returns an error for a type that Parquet lacks.
pub fn writer<W: Write>(
    sink: W,
    schema: &Schema,
    level: i32,
    unit: impl Fn(&str) -> Option<&'static str>,
    entries: Vec<(String, String)>,
) -> PolarsResult<BatchedWriter<W>> {
    let mut arrow = schema.to_arrow(CompatLevel::newest());
    for (name, field) in arrow.iter_mut() {
        if field.dtype == ArrowDataType::Utf8View {
            field.dtype = ArrowDataType::Utf8;
        }
        if let Some(unit) = unit(name) {
            field.metadata = Some(Arc::new([(PlSmallStr::from("unit"), unit.into())].into()));
        }
    }
    let types = schema_to_metadata_key(&arrow);
    let mut all = vec![(types.key, types.value.unwrap_or_default())];
    all.extend(entries);
    ParquetWriter::new(sink)
        .with_compression(ParquetCompression::Zstd(Some(ZstdLevel::try_new(level)?)))
        .with_statistics(StatisticsOptions::empty())
        .with_key_value_metadata(Some(KeyValueMetadata::from_static(all)))
        .set_parallel(false)
        .batched(schema)
}

#[cfg(test)]
mod tests {
    use polars_core::df;
    use proptest::prelude::*;

    use super::*;

    /// Whole numbers, texts and gaps.
    fn frame(rows: usize) -> DataFrame {
        let texts = (0..rows).map(|row| (row % 3 > 0).then(|| format!("row {}", row % 7)));
        df!(
            "number" => (0..rows as u64).collect::<Vec<_>>(),
            "half" => (0..rows).map(|row| row as f64 / 2.0).collect::<Vec<_>>(),
            "text" => texts.collect::<Vec<Option<String>>>(),
        )
        .unwrap()
    }

    fn written(groups: &[DataFrame]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let entries = vec![("key".into(), "value".into())];
        let unit = |name: &str| (name == "half").then_some("ms");
        let mut writer = writer(&mut bytes, groups[0].schema(), 1, unit, entries).unwrap();
        groups.iter().for_each(|group| writer.write_batch(group).unwrap());
        writer.finish().unwrap();
        drop(writer);
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_window_has_the_rows_that_were_written_in_whatever_groups(
            rows in 1..60_usize, group in 1..20_usize, start in 0..70_usize, length in 0..70_usize,
        ) {
            let all = frame(rows);
            let groups: Vec<DataFrame> =
                (0..rows).step_by(group).map(|at| all.slice(at as i64, group)).collect();
            let file = ParquetFile::open(written(&groups)).unwrap();
            let names = ["text", "number", "half"];
            let found = file.columns(&names, start..start + length).unwrap().select(names).unwrap();
            let expected = all.select(names).unwrap().slice(start as i64, length);
            prop_assert!(found.equals_missing(&expected), "{found:?} is not {expected:?}");
        }
    }

    #[test]
    fn old_readers_find_plain_texts_and_units() {
        let file = ParquetFile::open(written(&[frame(9)])).unwrap();
        assert_eq!((file.rows(), file.entry("key")), (9, Some("value")));
        let types = file.schema();
        assert_eq!(types.get("text").unwrap().dtype, ArrowDataType::Utf8View, "in memory");
        let mut declared = frame(1).schema().to_arrow(CompatLevel::newest());
        declared.get_mut("text").unwrap().dtype = ArrowDataType::Utf8;
        let unit = Arc::new([(PlSmallStr::from("unit"), "ms".into())].into());
        declared.get_mut("half").unwrap().metadata = Some(unit);
        assert_eq!(file.entry("ARROW:schema"), schema_to_metadata_key(&declared).value.as_deref());
    }

    #[test]
    fn what_is_missing_or_damaged_is_an_error() {
        let bytes = written(&[frame(900)]);
        let file = ParquetFile::open(bytes.clone()).unwrap();
        assert!(file.columns(&["other"], 0..9).unwrap_err().contains("other"));
        assert!((900 * 8..900 * 40).contains(&file.unpacked_bytes()));
        for cut in [0, 4, bytes.len() / 2, bytes.len() - 1] {
            assert!(ParquetFile::open(bytes[..cut].to_vec()).is_err(), "cut at {cut}");
        }
    }
}
