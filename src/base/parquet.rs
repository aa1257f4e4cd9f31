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
use polars_parquet::read::ColumnChunkMetadata;
use polars_parquet::write::{ZstdLevel, schema_to_metadata_key};
use polars_parquet_format::PageHeader;
use polars_parquet_format::thrift::protocol::TCompactInputProtocol;

use super::error::catch_panic_quietly;

/// Maximum memory for a parsed page header, including statistics.
const MOST_HEADER_BYTES: usize = 1 << 20;

/// Parquet file in memory, with its parsed footer.
pub struct ParquetFile {
    bytes: Vec<u8>,
    metadata: Arc<FileMetadata>,
    schema: Arc<ArrowSchema>,
}

impl ParquetFile {
    /// Parses the footer. Returns what is wrong with a file that is not Parquet.
    pub fn open(bytes: Vec<u8>) -> Result<Self, String> {
        let mut reader = ParquetReader::new(Cursor::new(&bytes));
        let (metadata, schema) = parsed(|| Ok((reader.get_metadata()?.clone(), reader.schema()?)))?;
        let mut groups = metadata.row_groups.iter().map(|group| group.num_rows());
        if groups.try_fold(0_usize, usize::checked_add) != Some(metadata.num_rows) {
            return Err(format!("its row groups do not add up to its {} rows", metadata.num_rows));
        }
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

    /// Reads the named columns, which are not nested, for rows in `window`, which may extend beyond the file. Returns
    /// an error for a missing column or damaged data.
    pub fn columns(&self, names: &[&str], window: Range<usize>) -> Result<DataFrame, String> {
        let start = window.start.min(self.rows());
        let length = window.end.min(self.rows()).saturating_sub(start);
        let mut end = 0;
        for group in &self.metadata.row_groups {
            let first = end;
            end += group.num_rows();
            if first < start + length && start < end {
                let columns =
                    names.iter().filter_map(|name| group.columns_under_root_iter(name)).flatten();
                columns.into_iter().try_for_each(|column| self.check_pages(column, group.num_rows()))?;
            }
        }
        parsed(|| {
            let mut reader = ParquetReader::new(Cursor::new(&self.bytes));
            reader.set_metadata(self.metadata.clone());
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            // callers read windows in parallel; a panic is contained only on this thread
            let reader = reader.read_parallel(ParallelStrategy::None).with_columns(Some(names));
            reader.with_slice(Some((start, length))).set_rechunk(true).finish()
        })
    }

    /// Compares the page headers of a column with the footer. Polars allocates what a header declares: up to 2 GiB per
    /// page, however small the file.
    fn check_pages(&self, column: &ColumnChunkMetadata, rows: usize) -> Result<(), String> {
        let wrong = || {
            let name = column.descriptor().path_in_schema.join(".");
            format!("the pages of column {name} do not match the footer")
        };
        let (range, size) =
            (column.byte_range(), |bytes: i32| usize::try_from(bytes).map_err(|_| wrong()));
        let mut rest = self.bytes.get(range.start as usize..range.end as usize).ok_or_else(wrong)?;
        let (mut unpacked, mut values) = (0, 0);
        while !rest.is_empty() {
            let before = rest.len();
            let mut protocol = TCompactInputProtocol::new(&mut rest, MOST_HEADER_BYTES);
            let header = PageHeader::read_from_in_protocol(&mut protocol).map_err(|_| wrong())?;
            unpacked += before - rest.len() + size(header.uncompressed_page_size)?;
            rest = rest.get(size(header.compressed_page_size)?..).ok_or_else(wrong)?;
            let (v1, v2) = (header.data_page_header, header.data_page_header_v2);
            let data = v1.map(|page| page.num_values).or(v2.map(|page| page.num_values));
            values += size(data.unwrap_or(0))?;
            let dictionary = header.dictionary_page_header.map_or(0, |page| page.num_values);
            if size(dictionary)? > size(header.uncompressed_page_size)? {
                return Err(wrong());
            }
        }
        let is_as_declared =
            usize::try_from(column.uncompressed_size()).is_ok_and(|most| unpacked <= most);
        if is_as_declared && values == rows { Ok(()) } else { Err(wrong()) }
    }
}

/// Runs a parser of Polars, which panics on some damaged files.
fn parsed<T>(parse: impl FnOnce() -> PolarsResult<T>) -> Result<T, String> {
    match catch_panic_quietly(parse) {
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
    use polars_parquet_format::FileMetaData;
    use polars_parquet_format::thrift::protocol::TCompactOutputProtocol;
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

    /// A file with another footer.
    fn with_footer(mut bytes: Vec<u8>, change: impl FnOnce(&mut FileMetaData)) -> Vec<u8> {
        let end = bytes.len() - 8;
        let length = u32::from_le_bytes(bytes[end..end + 4].try_into().unwrap()) as usize;
        let footer = bytes.split_off(end - length);
        let mut protocol = TCompactInputProtocol::new(&footer[..], usize::MAX);
        let mut footer = FileMetaData::read_from_in_protocol(&mut protocol).unwrap();
        change(&mut footer);
        let start = bytes.len();
        footer.write_to_out_protocol(&mut TCompactOutputProtocol::new(&mut bytes)).unwrap();
        let length = (bytes.len() - start) as u32;
        [&bytes[..], &length.to_le_bytes(), b"PAR1"].concat()
    }

    #[test]
    fn row_groups_that_do_not_add_up_are_an_error() {
        let whole = written(&[frame(9), frame(3), frame(2)]);
        assert_eq!(with_footer(whole.clone(), |_| {}), whole);
        for counts in [[i64::MAX; 3], [9, 3, 3], [9, 3, 0]] {
            let bytes = with_footer(whole.clone(), |footer| {
                footer.row_groups.iter_mut().zip(counts).for_each(|(group, rows)| group.num_rows = rows);
            });
            let why = ParquetFile::open(bytes).err().unwrap();
            assert_eq!(why, "its row groups do not add up to its 14 rows", "{counts:?}");
        }
    }

    #[test]
    fn pages_larger_than_the_footer_says_are_not_allocated() {
        let mut bytes = written(&[frame(900)]);
        // the first page's header: its type, and its size of two bytes, which becomes the largest of two bytes
        assert!(bytes[4] == 0x15 && bytes[6] == 0x15 && bytes[7] >= 0x80 && bytes[8] < 0x80);
        (bytes[7], bytes[8]) = (0xfe, 0x7f);
        let file = ParquetFile::open(bytes.clone()).unwrap();
        let why = file.columns(&["half", "number"], 0..1).unwrap_err();
        assert_eq!(why, "the pages of column number do not match the footer");
        assert_eq!(file.columns(&["half"], 0..900).unwrap().height(), 900);
        assert_eq!(file.columns(&["number"], 900..901).unwrap().height(), 0);
        let fewer = with_footer(written(&[frame(900)]), |footer| {
            (footer.num_rows, footer.row_groups[0].num_rows) = (9, 9);
        });
        assert!(ParquetFile::open(fewer).unwrap().columns(&["number"], 0..9).is_err());
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
