//! Columns of a trace file: transposition of spans and ranges, and their Parquet pages.
//!
//! Integers are bit-packed differences from the previous row (DELTA_BINARY_PACKED): within a lane, starts grow by
//! the duration of an operation, and the columns that identify a row hardly change, so they cost almost no bytes
//! and no time. Packed times look like noise to Zstandard, so only the other columns are compressed. Booleans are
//! plain bits: Polars before 0.21 cannot read run-length encoded ones, and Zstandard makes them equally small.

use polars_buffer::Buffer;
use polars_core::prelude::{
    ArrowDataType, ArrowField, ArrowSchema, BooleanChunked, DataType, Int64Chunked, IntoSeries,
    PlSmallStr, PolarsResult, Series, UInt32Chunked,
};
use polars_parquet::write::{CompressionOptions, Encoding, SchemaDescriptor, WriteOptions};

use super::footer::{Head, Part};
use super::read::{Problem, Read};
use crate::{LaunchSite, Range, Span};
use base::parquet::{self, Pages, decoded};
use plan::{Lane, Phase};

pub(super) struct ColumnInfo {
    pub(super) name: &'static str,
    pub(super) dtype: DataType,
    pub(super) nulls: bool,
    /// True if files of older versions may lack the column.
    pub(super) optional: bool,
}

pub(super) fn schema() -> [ColumnInfo; 15] {
    let column = |name, dtype| ColumnInfo { name, dtype, nulls: false, optional: false };
    let later = |name, dtype| ColumnInfo { name, dtype, nulls: true, optional: true };
    [
        column("sample", DataType::UInt32),
        column("decode", DataType::Boolean),
        column("step", DataType::UInt32),
        column("rank", DataType::UInt32),
        column("comm", DataType::Boolean),
        column("operation", DataType::UInt32),
        column("start_ns", DataType::Int64),
        column("duration_ns", DataType::Int64),
        column("wait_ns", DataType::Int64),
        ColumnInfo { nulls: true, ..column("arrival_ns", DataType::Int64) },
        column("stream", DataType::UInt32),
        column("range", DataType::Boolean),
        later("sequence", DataType::UInt32),
        later("launch_range", DataType::UInt32),
        later("launch_operator", DataType::UInt32),
    ]
}

pub(super) fn arrow_schema() -> ArrowSchema {
    schema()
        .into_iter()
        .map(|column| {
            let dtype = match column.dtype {
                DataType::UInt32 => ArrowDataType::UInt32,
                DataType::Boolean => ArrowDataType::Boolean,
                _ => ArrowDataType::Int64,
            };
            let field = ArrowField::new(column.name.into(), dtype, column.nulls);
            let field =
                if column.name.ends_with("_ns") { parquet::with_unit(field, "ns") } else { field };
            (column.name.into(), field)
        })
        .collect()
}

#[derive(Default)]
pub(super) struct Rows {
    pub(super) sample: Vec<u32>,
    pub(super) decode: Vec<bool>,
    pub(super) step: Vec<u32>,
    pub(super) rank: Vec<u32>,
    pub(super) comm: Vec<bool>,
    pub(super) operation: Vec<u32>,
    pub(super) start: Vec<i64>,
    pub(super) duration: Vec<i64>,
    pub(super) wait: Vec<i64>,
    pub(super) arrival: Vec<Option<i64>>,
    pub(super) stream: Vec<u32>,
    pub(super) range: Vec<bool>,
    pub(super) sequence: Vec<Option<u32>>,
    pub(super) launch_range: Vec<Option<u32>>,
    pub(super) launch_operator: Vec<Option<u32>>,
}

impl Rows {
    fn with_capacity(rows: usize) -> Self {
        Self {
            sample: Vec::with_capacity(rows),
            decode: Vec::with_capacity(rows),
            step: Vec::with_capacity(rows),
            rank: Vec::with_capacity(rows),
            comm: Vec::with_capacity(rows),
            operation: Vec::with_capacity(rows),
            start: Vec::with_capacity(rows),
            duration: Vec::with_capacity(rows),
            wait: Vec::with_capacity(rows),
            arrival: Vec::with_capacity(rows),
            stream: Vec::with_capacity(rows),
            range: Vec::with_capacity(rows),
            sequence: Vec::with_capacity(rows),
            launch_range: Vec::with_capacity(rows),
            launch_operator: Vec::with_capacity(rows),
        }
    }

    /// Transposes spans. Differences wrap here and wrap back on reading, so no value is lost.
    pub(super) fn of_spans(spans: &[Span]) -> Self {
        let mut rows = Self::with_capacity(spans.len());
        for span in spans {
            let arrival = span.last_arrival_ns.wrapping_sub(span.start_ns);
            rows.sample.push(span.sample);
            rows.decode.push(span.phase == Phase::Decode);
            rows.step.push(span.step);
            rows.rank.push(span.rank);
            rows.comm.push(span.lane == Lane::Comm);
            rows.operation.push(span.operation);
            rows.start.push(span.start_ns);
            rows.duration.push(span.end_ns.wrapping_sub(span.start_ns));
            rows.wait.push(span.start_ns.wrapping_sub(span.ready_ns));
            rows.arrival.push((span.last_arrival_ns != -1).then_some(arrival));
            rows.stream.push(span.stream.into());
            rows.range.push(false);
            rows.sequence.push((span.sequence != Span::NO_SEQUENCE).then_some(span.sequence));
            let known = |place: u32| (place != LaunchSite::NONE).then_some(place);
            rows.launch_range.push(known(span.launched.range));
            rows.launch_operator.push(known(span.launched.operator));
        }
        rows
    }

    pub(super) fn of_ranges(ranges: &[Range]) -> Self {
        let mut rows = Self::with_capacity(ranges.len());
        for range in ranges {
            rows.sample.push(0);
            rows.decode.push(false);
            rows.step.push(range.depth.into());
            rows.rank.push(range.rank);
            rows.comm.push(range.on_device);
            rows.operation.push(range.name);
            rows.start.push(range.start_ns);
            rows.duration.push(range.end_ns.wrapping_sub(range.start_ns));
            rows.wait.push(0);
            rows.arrival.push(None);
            rows.stream.push(range.thread.into());
            rows.range.push(true);
            rows.sequence.push(None);
            rows.launch_range.push(None);
            rows.launch_operator.push(None);
        }
        rows
    }
}

/// Sizes of the tables that rows index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) operations: usize,
    pub(super) ranks: u32,
    pub(super) streams: usize,
    pub(super) names: usize,
}

impl Limits {
    /// Checks the indices and times of a span, which readers rely on.
    #[inline]
    pub(super) fn check_span(&self, span: &Span) -> Result<(), String> {
        if span.operation as usize >= self.operations {
            let there = self.operations;
            return Err(format!("operation is {}, but there are {there} operations", span.operation));
        }
        // without a table of streams, lanes are the streams
        if usize::from(span.stream) >= self.streams.max(1) {
            let there = self.streams;
            return Err(format!("stream is {}, but there are {there} streams", span.stream));
        }
        self.check(span.rank, span.start_ns, span.end_ns)
    }

    pub(super) fn check_range(&self, range: &Range) -> Result<(), String> {
        if range.name as usize >= self.names {
            let there = self.names;
            return Err(format!("name is {}, but there are {there} names of ranges", range.name));
        }
        self.check(range.rank, range.start_ns, range.end_ns)
    }

    #[inline]
    fn check(&self, rank: u32, start_ns: i64, end_ns: i64) -> Result<(), String> {
        if rank >= self.ranks {
            return Err(format!("rank is {rank}, but there are {} ranks", self.ranks));
        }
        if end_ns < start_ns {
            return Err(format!("it ends at {end_ns} ns, before it starts at {start_ns} ns"));
        }
        Ok(())
    }
}

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

pub(super) fn spans(bytes: Vec<u8>, part: &Part<'_>, head: &Head, into: &mut [Span]) -> Read<()> {
    let rows = into.len();
    let columns = Columns::new(bytes, part, head, rows)?;
    let (sample, step) = (columns.get("sample")?, columns.get("step")?);
    let (sample, step) = (u32s(&sample)?, u32s(&step)?);
    let (rank, operation) = (columns.get("rank")?, columns.get("operation")?);
    let (rank, operation) = (u32s(&rank)?, u32s(&operation)?);
    let (start, duration) = (columns.get("start_ns")?, columns.get("duration_ns")?);
    let (start, duration) = (i64s(&start)?, i64s(&duration)?);
    let wait = columns.get("wait_ns")?;
    let wait = i64s(&wait)?;
    let (decode, comm) = (bools(&columns.get("decode")?)?, bools(&columns.get("comm")?)?);
    let stream = columns.get("stream")?;
    let stream = u32s(&stream)?;
    let arrival = columns.column("arrival_ns")?;
    let limits = head.limits();
    let arrivals = arrival.i64()?.downcast_iter().flat_map(|array| array.iter());
    for ((row, span), arrival) in into.iter_mut().enumerate().zip(arrivals) {
        let stream = stream[row];
        let stream = u16::try_from(stream)
            .map_err(|_| columns.wrong(row, &format!("stream is {stream}, above {}", u16::MAX)))?;
        *span = Span {
            sample: sample[row],
            phase: if decode[row] { Phase::Decode } else { Phase::Prefill },
            step: step[row],
            rank: rank[row],
            lane: if comm[row] { Lane::Comm } else { Lane::Compute },
            stream,
            operation: operation[row],
            ready_ns: start[row].wrapping_sub(wait[row]),
            start_ns: start[row],
            end_ns: start[row].wrapping_add(duration[row]),
            last_arrival_ns: arrival.map_or(-1, |arrival| start[row].wrapping_add(*arrival)),
            ..Span::EMPTY
        };
        limits.check_span(span).map_err(|problem| columns.wrong(row, &problem))?;
    }
    columns.later("sequence", |row, sequence| into[row].sequence = sequence)?;
    columns.later("launch_range", |row, range| into[row].launched.range = range)?;
    columns.later("launch_operator", |row, operator| into[row].launched.operator = operator)
}

pub(super) fn ranges(bytes: Vec<u8>, part: &Part<'_>, head: &Head, rows: usize) -> Read<Vec<Range>> {
    let columns = Columns::new(bytes, part, head, rows)?;
    let (thread, depth) = (columns.get("stream")?, columns.get("step")?);
    let (thread, depth) = (u32s(&thread)?, u32s(&depth)?);
    let (rank, name) = (columns.get("rank")?, columns.get("operation")?);
    let (rank, name) = (u32s(&rank)?, u32s(&name)?);
    let (start, duration) = (columns.get("start_ns")?, columns.get("duration_ns")?);
    let (start, duration) = (i64s(&start)?, i64s(&duration)?);
    let on_device = bools(&columns.get("comm")?)?;
    let limits = head.limits();
    let range = |row: usize| -> Result<Range, String> {
        let small = |what, value: u32| {
            u16::try_from(value).map_err(|_| format!("{what} is {value}, above {}", u16::MAX))
        };
        let range = Range {
            rank: rank[row],
            on_device: on_device[row],
            thread: small("thread", thread[row])?,
            depth: small("depth", depth[row])?,
            name: name[row],
            start_ns: start[row],
            end_ns: start[row].wrapping_add(duration[row]),
        };
        limits.check_range(&range).map(|()| range)
    };
    (0..rows).map(|row| range(row).map_err(|problem| columns.wrong(row, &problem))).collect()
}

/// Values of a column without nulls, as one contiguous slice.
fn u32s(series: &Series) -> Read<&[u32]> {
    Ok(series.u32()?.cont_slice()?)
}

fn i64s(series: &Series) -> Read<&[i64]> {
    Ok(series.i64()?.cont_slice()?)
}

fn bools(series: &Series) -> Read<Vec<bool>> {
    Ok(series.bool()?.downcast_iter().flat_map(|array| array.values_iter()).collect())
}

impl Head {
    fn limits(&self) -> Limits {
        Limits {
            operations: self.operations.len(),
            ranks: self.meta.ranks,
            streams: self.meta.streams.len(),
            names: self.meta.range_names.len(),
        }
    }
}

struct Columns<'a> {
    bytes: Buffer<u8>,
    part: &'a Part<'a>,
    head: &'a Head,
    rows: usize,
}

impl<'a> Columns<'a> {
    fn new(bytes: Vec<u8>, part: &'a Part<'a>, head: &'a Head, rows: usize) -> Read<Self> {
        if bytes.len() == part.length {
            return Ok(Self { bytes: bytes.into(), part, head, rows });
        }
        Err(Problem::Damaged("it is shorter than its footer says".into()))
    }

    fn get(&self, name: &str) -> Read<Series> {
        let column = self.column(name)?;
        match column.null_count() {
            0 => Ok(column.rechunk()),
            missing => Err(Problem::Damaged(format!("column {name} lacks {missing} values"))),
        }
    }

    /// Calls `set(row, value)` for each non-null value of an optional column.
    fn later(&self, name: &str, mut set: impl FnMut(usize, u32)) -> Read<()> {
        if self.head.schema.get(name).is_none() {
            return Ok(());
        }
        let column = self.column(name)?;
        if column.null_count() < self.rows {
            let values = column.u32()?.iter().enumerate();
            values.for_each(|(row, value)| value.into_iter().for_each(|value| set(row, value)));
        }
        Ok(())
    }

    fn column(&self, name: &str) -> Read<Series> {
        let missing = || Problem::Damaged(format!("a row group lacks the column {name}"));
        let field = self.head.schema.get(name).ok_or_else(missing)?;
        let mut columns = self.part.parquet.columns_under_root_iter(name).ok_or_else(missing)?;
        let column = columns.next().ok_or_else(missing)?;
        let place = column.byte_range();
        let relative =
            |at: u64| at.checked_sub(self.part.offset).and_then(|at| usize::try_from(at).ok());
        let chunk = match (relative(place.start), relative(place.end)) {
            (Some(start), Some(end)) if self.bytes.get(start..end).is_some() => {
                self.bytes.clone().sliced(start..end)
            }
            _ => return Err(missing()),
        };
        let arrays = decoded(vec![(column, chunk)], field, self.rows, None)?;
        let series = Series::try_from((PlSmallStr::from_str(name), arrays))?;
        if series.len() != self.rows {
            return Err(Problem::Damaged(format!(
                "column {name} has {} rows in a row group of {}",
                series.len(),
                self.rows
            )));
        }
        Ok(series)
    }

    fn wrong(&self, row: usize, problem: &str) -> Problem {
        Problem::Damaged(format!("row {}: {problem}", self.part.first_row + row))
    }
}
