//! Encoding of rows as Parquet pages, with an encoding and a compression per column.
//!
//! Integers are bit-packed differences from the previous row (DELTA_BINARY_PACKED): within a lane,
//! starts grow by the duration of an operation, and the columns that identify a row hardly change, so
//! they cost almost no bytes and no time. Packed times look like noise to Zstandard, so only the other
//! columns are compressed. Booleans are plain bits: Polars before 0.21 cannot read run-length encoded
//! ones, and Zstandard makes them equally small.

use polars_core::prelude::{
    BooleanChunked, Int64Chunked, IntoSeries, PlSmallStr, PolarsResult, Series, UInt32Chunked,
};
use polars_parquet::write::{CompressionOptions, Encoding, SchemaDescriptor, WriteOptions};

use super::columns::Rows;
use base::parquet::{self, Pages};

pub(super) fn row_group(rows: Rows, schema: &SchemaDescriptor) -> PolarsResult<Vec<Pages>> {
    let (zstd, plain) = (parquet::zstd(1)?, CompressionOptions::Uncompressed);
    let (delta, bits) = (Encoding::DeltaBinaryPacked, Encoding::Plain);
    let name = PlSmallStr::EMPTY;
    let u32s = |values| UInt32Chunked::from_vec(name.clone(), values).into_series();
    let i64s = |values| Int64Chunked::from_vec(name.clone(), values).into_series();
    let bools = |values: Vec<bool>| values.into_iter().collect::<BooleanChunked>().into_series();
    let arrival: Int64Chunked = rows.arrival.into_iter().collect();
    let sequence: UInt32Chunked = rows.sequence.into_iter().collect();
    let launch_range: UInt32Chunked = rows.launch_range.into_iter().collect();
    let launch_operator: UInt32Chunked = rows.launch_operator.into_iter().collect();
    let columns: [(Series, Encoding, CompressionOptions); 15] = [
        (u32s(rows.sample), delta, zstd),
        (bools(rows.decode), bits, zstd),
        (u32s(rows.step), delta, zstd),
        (u32s(rows.rank), delta, zstd),
        (bools(rows.comm), bits, zstd),
        (u32s(rows.operation), delta, zstd),
        (i64s(rows.start), delta, plain),
        (i64s(rows.duration), delta, plain),
        (i64s(rows.wait), delta, plain),
        (arrival.into_series(), delta, plain),
        (u32s(rows.stream), delta, zstd),
        (bools(rows.range), bits, zstd),
        (sequence.into_series(), delta, zstd),
        (launch_range.into_series(), delta, zstd),
        (launch_operator.into_series(), delta, zstd),
    ];
    let mut group = Vec::with_capacity(columns.len());
    for ((series, encoding, compression), field) in columns.into_iter().zip(schema.fields()) {
        let options = WriteOptions { compression, ..parquet::plain() };
        group.extend(parquet::pages(&series, field, &[encoding], options)?);
    }
    Ok(group)
}
