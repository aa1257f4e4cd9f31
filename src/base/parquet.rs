//! Data frames as Parquet files, with Polars' column encoders and decoders.
//!
//! Parquet readers allocate what a damaged file claims to contain, and a failed allocation aborts the
//! process. Page headers are therefore checked against their row group before decoding.

use std::fs::File;
use std::io::{Cursor, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use polars_buffer::Buffer;
use polars_core::prelude::{
    ArrayRef, ArrowDataType, ArrowField, ArrowSchema, Column, CompatLevel, DataFrame, DataType,
    PlSmallStr, PolarsError, PolarsResult, Schema, Series,
};
use polars_parquet::read::{
    BasicDecompressor, ColumnChunkMetadata, FileMetadata, Filter, PageReader, column_iter_to_arrays,
};
use polars_parquet::write::{
    CompressedPage, CompressionOptions, DynIter, DynStreamingIterator, Encoding,
    FallibleStreamingIterator, FileWriter, KeyValue, ParquetType, RowGroupIterColumns, SchemaDescriptor,
    StatisticsOptions, Version, WriteOptions, ZstdLevel, array_to_columns, compress, get_dtype_encoding,
    schema_to_metadata_key, to_parquet_schema,
};
use rayon::prelude::*;

/// Maximum page size; larger claims mean damage.
const LONGEST_PAGE: usize = 1 << 30;

pub type Pages = Vec<CompressedPage>;

/// Default write options: uncompressed, without statistics.
pub fn plain() -> WriteOptions {
    WriteOptions {
        statistics: StatisticsOptions::empty(),
        version: Version::V1,
        compression: CompressionOptions::Uncompressed,
        data_page_size: None,
    }
}

/// Zstandard compression at a level from 1 (fastest) to 22. Returns an error for other levels.
pub fn zstd(level: i32) -> PolarsResult<CompressionOptions> {
    Ok(CompressionOptions::Zstd(Some(ZstdLevel::try_new(level)?)))
}

/// Encodes and compresses a column of a row group. Returns an error if the encoding does not support its
/// type.
pub fn pages(
    series: &Series,
    field: &ParquetType,
    encodings: &[Encoding],
    options: WriteOptions,
) -> PolarsResult<Vec<Pages>> {
    let array: ArrayRef = series.rechunk().to_arrow(0, CompatLevel::newest());
    let columns = array_to_columns(array, field.clone(), options, encodings)?;
    let compressed = |page: PolarsResult<_>| Ok(compress(page?, Vec::new(), options.compression)?);
    columns.into_iter().map(|column| column.map(compressed).collect()).collect()
}

/// Converts encoded columns to the input of [`FileWriter`].
pub fn row_group(columns: Vec<Pages>) -> RowGroupIterColumns<'static, PolarsError> {
    let lent = |pages| Ok(DynStreamingIterator::new(Lent { pages, next: 0 }));
    DynIter::new(columns.into_iter().map(lent))
}

/// Iterator that lends pages one by one, as the writer requires.
struct Lent {
    pages: Pages,
    next: usize,
}

impl FallibleStreamingIterator for Lent {
    type Item = CompressedPage;
    type Error = PolarsError;

    fn advance(&mut self) -> PolarsResult<()> {
        self.next += 1;
        Ok(())
    }

    fn get(&self) -> Option<&CompressedPage> {
        self.pages.get(self.next.checked_sub(1)?)
    }
}

/// Adds the unit of a field's numbers to its metadata, where Arrow readers find it.
pub fn with_unit(field: ArrowField, unit: &str) -> ArrowField {
    field.with_metadata([("unit".into(), unit.into())].into())
}

/// File schema of a frame. Texts are plain UTF-8, because pyarrow before 15 and Polars before 0.21
/// reject the string views that Polars uses in memory.
pub fn file_schema(schema: &Schema) -> ArrowSchema {
    let field = |(name, dtype): (&PlSmallStr, &DataType)| {
        let field = dtype.to_arrow_field(name.clone(), CompatLevel::newest());
        let dtype = match field.dtype {
            ArrowDataType::Utf8View => ArrowDataType::Utf8,
            dtype => dtype,
        };
        (name.clone(), ArrowField { dtype, ..field })
    };
    schema.iter().map(field).collect()
}

/// Encoding of a field; texts are dictionary-encoded like string views.
fn encoding(field: &ArrowField) -> Vec<Encoding> {
    match &field.dtype {
        ArrowDataType::Utf8 => get_dtype_encoding(&ArrowDataType::Utf8View),
        dtype => get_dtype_encoding(dtype),
    }
}

/// Writer of frames with one schema as row groups of a file.
pub struct FrameWriter<W: Write> {
    parquet: FileWriter<W>,
    schema: SchemaDescriptor,
    encodings: Vec<Vec<Encoding>>,
    options: WriteOptions,
}

impl<W: Write> FrameWriter<W> {
    /// Starts a file with this [`file_schema`], in which integers may be declared as timestamps. Returns
    /// an error for types that Parquet lacks.
    pub fn new(sink: W, arrow: ArrowSchema, options: WriteOptions) -> PolarsResult<Self> {
        Ok(Self {
            schema: to_parquet_schema(&arrow)?,
            encodings: arrow.iter_values().map(encoding).collect(),
            parquet: FileWriter::try_new(sink, arrow, options)?,
            options,
        })
    }

    /// Appends a frame as one row group, encoding columns in parallel; skips empty frames.
    pub fn write(&mut self, frame: &DataFrame) -> PolarsResult<()> {
        if frame.height() == 0 {
            return Ok(());
        }
        let (fields, options) = (self.schema.fields(), self.options);
        let encoded = frame.columns().par_iter().zip(fields).zip(&self.encodings).map(
            |((column, field), encodings)| {
                pages(column.as_materialized_series(), field, encodings, options)
            },
        );
        let columns: Vec<Vec<Pages>> = encoded.collect::<PolarsResult<_>>()?;
        let columns = columns.into_iter().flatten().collect();
        self.parquet.write(frame.height() as u64, row_group(columns))
    }

    /// Writes the footer, with `entries` after the entry for the column types.
    pub fn finish(mut self, entries: Vec<(String, String)>) -> PolarsResult<()> {
        let entries = entries.into_iter().map(|(key, value)| KeyValue { key, value: Some(value) });
        let footer = std::iter::once(schema_to_metadata_key(self.parquet.schema())).chain(entries);
        self.parquet.end(Some(footer.collect())).map(drop)
    }
}

/// Reads the named columns for rows in `window`, which may extend beyond the file. Reads only the column
/// chunks needed. Returns an error for a missing column or damaged data.
pub fn columns(
    file: &File,
    metadata: &FileMetadata,
    schema: &ArrowSchema,
    names: &[&str],
    window: Range<usize>,
) -> PolarsResult<DataFrame> {
    let length = file.metadata()?.len();
    let height = window.end.min(metadata.num_rows).saturating_sub(window.start);
    let column = |name: &&str| -> PolarsResult<Column> {
        let field = schema.get(name).ok_or_else(|| damaged(format!("there is no column {name}")))?;
        let mut arrays = Vec::new();
        let mut end = 0_usize;
        for group in &metadata.row_groups {
            let (start, rows) = (end, group.num_rows());
            end = start.saturating_add(rows);
            let wanted = window.start.max(start)..window.end.min(end);
            if wanted.is_empty() {
                continue;
            }
            let chunks = group.columns_under_root_iter(name);
            let chunks = chunks.ok_or_else(|| damaged(format!("a row group lacks column {name}")))?;
            let chunks = chunks.map(|chunk| Ok((chunk, read_chunk(file, length, chunk)?)));
            let chunks: Vec<_> = chunks.collect::<PolarsResult<_>>()?;
            arrays.extend(decoded(chunks, field, rows, Some(wanted.start - start..wanted.end - start))?);
        }
        if arrays.is_empty() {
            let dtype = DataType::from_arrow_field(field);
            return Ok(Series::new_empty(field.name.clone(), &dtype).into());
        }
        Ok(Series::try_from((field.name.clone(), arrays))?.into())
    };
    DataFrame::new(height, names.iter().map(column).collect::<PolarsResult<_>>()?)
}

fn read_chunk(file: &File, length: u64, column: &ColumnChunkMetadata) -> PolarsResult<Buffer<u8>> {
    let place = column.byte_range();
    let bytes = place.end.checked_sub(place.start).filter(|_| place.end <= length);
    let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
    let mut chunk = vec![0; bytes.ok_or_else(|| damaged("a column is outside the file".into()))?];
    file.read_exact_at(&mut chunk, place.start)?;
    Ok(chunk.into())
}

/// Decodes a column of a row group with `rows` rows, or only the `wanted` ones; `chunks` holds its
/// leaves.
pub fn decoded(
    chunks: Vec<(&ColumnChunkMetadata, Buffer<u8>)>,
    field: &ArrowField,
    rows: usize,
    wanted: Option<Range<usize>>,
) -> PolarsResult<Vec<ArrayRef>> {
    let (mut leaves, mut types) = (Vec::new(), Vec::new());
    for (column, chunk) in chunks {
        let whole = Cursor::new(chunk);
        let reader = |whole| PageReader::new(whole, column, Vec::new(), LONGEST_PAGE);
        // headers only: nothing is decoded or copied
        for page in reader(whole.clone()) {
            if matches!(page?, CompressedPage::Data(page) if page.num_values() > rows) {
                let name = &field.name;
                return Err(damaged(format!(
                    "column {name} has a page of more rows than the {rows} of its row group"
                )));
            }
        }
        leaves.push(BasicDecompressor::new(reader(whole), Vec::new()));
        types.push(&column.descriptor().descriptor.primitive_type);
    }
    let filter = wanted.map(Filter::Range);
    Ok(column_iter_to_arrays(leaves, types, field.clone(), filter)?.0)
}

fn damaged(what: String) -> PolarsError {
    PolarsError::ComputeError(what.into())
}

#[cfg(test)]
mod tests {
    use polars_core::df;
    use polars_parquet::read::{infer_schema, read_metadata};
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

    fn written(groups: &[DataFrame]) -> File {
        let file = tempfile::tempfile().unwrap();
        let options = WriteOptions { compression: zstd(1).unwrap(), ..plain() };
        let mut writer =
            FrameWriter::new(file.try_clone().unwrap(), file_schema(groups[0].schema()), options)
                .unwrap();
        groups.iter().for_each(|group| writer.write(group).unwrap());
        writer.finish(vec![("key".into(), "value".into())]).unwrap();
        file
    }

    fn opened(mut file: &File) -> (FileMetadata, ArrowSchema) {
        let metadata = read_metadata(&mut file).unwrap();
        let schema = infer_schema(&metadata).unwrap();
        (metadata, schema)
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
            let file = written(&groups);
            let (metadata, schema) = opened(&file);
            let names = ["text", "number", "half"];
            let found = columns(&file, &metadata, &schema, &names, start..start + length).unwrap();
            let expected = all.select(names).unwrap().slice(start as i64, length);
            prop_assert!(found.equals_missing(&expected), "{found:?} is not {expected:?}");
        }
    }

    #[test]
    fn texts_are_plain_utf8_in_the_file() {
        let file = written(&[frame(9)]);
        let (metadata, _) = opened(&file);
        let entries = metadata.key_value_metadata().as_ref().unwrap();
        let schema = entries.iter().find(|entry| entry.key == "ARROW:schema").unwrap();
        let mut plain = file_schema(frame(1).schema());
        let key = |schema: &ArrowSchema| schema_to_metadata_key(schema).value;
        assert_eq!(schema.value, key(&plain));
        assert_eq!(plain.get("text").unwrap().dtype, ArrowDataType::Utf8);
        plain.get_mut("text").unwrap().dtype = ArrowDataType::Utf8View;
        assert_ne!(schema.value, key(&plain), "no string view");
    }

    #[test]
    fn what_is_not_there_is_told() {
        let file = written(&[frame(9)]);
        let (metadata, schema) = opened(&file);
        let entries = metadata.key_value_metadata().as_ref().unwrap();
        assert!(entries.iter().any(|e| e.key == "key" && e.value.as_deref() == Some("value")));
        let read = |names: &[&str]| columns(&file, &metadata, &schema, names, 0..9);
        assert!(read(&["other"]).unwrap_err().to_string().contains("no column other"));
        file.set_len(40).unwrap();
        assert!(read(&["text"]).unwrap_err().to_string().contains("outside the file"));
    }

    #[test]
    fn a_page_that_claims_more_rows_than_its_group_is_refused() {
        let file = written(&[frame(9)]);
        let (metadata, schema) = opened(&file);
        let column = metadata.row_groups[0].columns_under_root_iter("number").unwrap().next().unwrap();
        let field = schema.get("number").unwrap();
        let chunk = || vec![(column, read_chunk(&file, 1 << 20, column).unwrap())];
        assert_eq!(decoded(chunk(), field, 9, None).unwrap()[0].len(), 9);
        let error = decoded(chunk(), field, 8, None).unwrap_err().to_string();
        assert!(error.contains("number has a page of more rows than the 8"), "{error}");
    }
}
