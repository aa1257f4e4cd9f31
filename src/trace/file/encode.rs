//! Rows to Parquet pages: which encoding and which compression each column gets.
//!
//! Integers are stored as bit-packed differences from the row before (Parquet's DELTA_BINARY_PACKED):
//! within a lane starts grow by what an operation takes, and the columns that say where a row belongs
//! hardly change at all, so that they cost next to nothing, in bytes as in time. Zstandard then finds
//! nothing in packed times but noise, and is spent on the other columns only.

use polars_core::prelude::{
    ArrayRef, BooleanChunked, CompatLevel, Int64Chunked, IntoSeries, PlSmallStr, PolarsError,
    PolarsResult, Series, UInt32Chunked,
};
use polars_parquet::write::{
    CompressedPage, CompressionOptions, DynIter, DynStreamingIterator, Encoding,
    FallibleStreamingIterator, RowGroupIterColumns, SchemaDescriptor, StatisticsOptions, Version,
    WriteOptions, array_to_columns, compress,
};
use polars_utils::compression::ZstdLevel;

use super::columns::Rows;

/// A column's pages, as they will stand in the file.
pub(super) type Pages = Vec<CompressedPage>;

/// Options of the whole file.
pub(super) fn options() -> WriteOptions {
    WriteOptions {
        statistics: StatisticsOptions::empty(),
        version: Version::V1,
        compression: CompressionOptions::Uncompressed,
        data_page_size: None,
    }
}

/// Encodes a row group; the columns are in file order.
pub(super) fn row_group(rows: Rows, schema: &SchemaDescriptor) -> PolarsResult<Vec<Pages>> {
    let zstd = CompressionOptions::Zstd(Some(ZstdLevel::try_new(1)?));
    let plain = CompressionOptions::Uncompressed;
    let (delta, runs) = (Encoding::DeltaBinaryPacked, Encoding::Rle);
    let name = PlSmallStr::EMPTY;
    let u32s = |values| UInt32Chunked::from_vec(name.clone(), values).into_series();
    let i64s = |values| Int64Chunked::from_vec(name.clone(), values).into_series();
    let bools = |values: Vec<bool>| values.into_iter().collect::<BooleanChunked>().into_series();
    let arrival: Int64Chunked = rows.arrival.into_iter().collect();
    let columns: [(Series, Encoding, CompressionOptions); 12] = [
        (u32s(rows.sample), delta, zstd),
        (bools(rows.decode), runs, plain),
        (u32s(rows.step), delta, zstd),
        (u32s(rows.rank), delta, zstd),
        (bools(rows.comm), runs, plain),
        (u32s(rows.operation), delta, zstd),
        (i64s(rows.start), delta, plain),
        (i64s(rows.duration), delta, plain),
        (i64s(rows.wait), delta, plain),
        (arrival.into_series(), delta, plain),
        (u32s(rows.stream), delta, zstd),
        (bools(rows.range), runs, plain),
    ];
    let mut group = Vec::with_capacity(columns.len());
    for ((series, encoding, compression), field) in columns.into_iter().zip(schema.fields()) {
        let array: ArrayRef = series.to_arrow(0, CompatLevel::newest());
        let options = WriteOptions { compression, ..options() };
        for column in array_to_columns(array, field.clone(), options, &[encoding])? {
            let pages = column.map(|page| Ok(compress(page?, Vec::new(), compression)?));
            group.push(pages.collect::<PolarsResult<Pages>>()?);
        }
    }
    Ok(group)
}

/// Hands a row group to the file.
pub(super) fn columns(group: Vec<Pages>) -> RowGroupIterColumns<'static, PolarsError> {
    DynIter::new(group.into_iter().map(|pages| Ok(DynStreamingIterator::new(Handed { pages, next: 0 }))))
}

/// Pages as the file wants them: lent, one after the other.
struct Handed {
    pages: Pages,
    next: usize,
}

impl FallibleStreamingIterator for Handed {
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
