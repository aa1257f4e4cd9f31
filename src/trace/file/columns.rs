//! Columns of a trace file.
//!
//! `start_ns` is absolute, so any Parquet tool can draw a timeline. The other times are small offsets:
//! `wait_ns` = start - ready, `duration_ns` = end - start, `arrival_ns` = last arrival - start (null if
//! there is none). `launch_range` is the index of a range in the file, or [`LaunchSite::OUTSIDE`];
//! `launch_operator` indexes the range names; both are null if the launch is unknown.
//!
//! Files of older versions lack the columns marked [`ColumnInfo::optional`]; readers treat them as null.
//! To add a column: add a row in [`schema`] with `later`, a series in [`of_spans`] and [`of_ranges`], and
//! `columns.later` in `read`.
//!
//! A row is a span, or a range if `range` is true: then `stream` is its thread, `step` its depth,
//! `operation` its name, and `comm` is true for device time. Each row group has rows of one type only.

use polars_core::prelude::{
    ArrowDataType, ArrowField, ArrowSchema, BooleanChunked, DataType, Int64Chunked, IntoSeries,
    PlSmallStr, Series, UInt32Chunked,
};

use crate::{LaunchSite, OperationInfo, Range, Span, TraceMeta};
use plan::{Lane, Phase};

pub(super) struct ColumnInfo {
    pub(super) name: &'static str,
    pub(super) dtype: DataType,
    pub(super) nulls: bool,
    /// True if files of older versions may lack the column.
    pub(super) optional: bool,
}

pub(super) const COLUMNS: usize = 15;

pub(super) fn schema() -> [ColumnInfo; COLUMNS] {
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
            let field = match column.name.ends_with("_ns") {
                true => field.with_metadata([("unit".into(), "ns".into())].into()),
                false => field,
            };
            (column.name.into(), field)
        })
        .collect()
}

fn u32s<T>(rows: &[T], of: impl Fn(&T) -> u32) -> Series {
    UInt32Chunked::from_vec(PlSmallStr::EMPTY, rows.iter().map(of).collect()).into_series()
}

fn i64s<T>(rows: &[T], of: impl Fn(&T) -> i64) -> Series {
    Int64Chunked::from_vec(PlSmallStr::EMPTY, rows.iter().map(of).collect()).into_series()
}

fn flags<T>(rows: &[T], of: impl Fn(&T) -> bool) -> Series {
    rows.iter().map(of).collect::<BooleanChunked>().into_series()
}

fn some_u32s<T>(rows: &[T], of: impl Fn(&T) -> Option<u32>) -> Series {
    rows.iter().map(of).collect::<UInt32Chunked>().into_series()
}

fn some_i64s<T>(rows: &[T], of: impl Fn(&T) -> Option<i64>) -> Series {
    rows.iter().map(of).collect::<Int64Chunked>().into_series()
}

/// Spans as columns, in the order of [`schema`]. Differences wrap here and wrap back on reading, so no
/// value is lost.
pub(super) fn of_spans(spans: &[Span]) -> [Series; COLUMNS] {
    let known = |place: u32| (place != LaunchSite::NONE).then_some(place);
    let arrival = |span: &Span| {
        (span.last_arrival_ns != -1).then(|| span.last_arrival_ns.wrapping_sub(span.start_ns))
    };
    [
        u32s(spans, |span| span.sample),
        flags(spans, |span| span.phase == Phase::Decode),
        u32s(spans, |span| span.step),
        u32s(spans, |span| span.rank),
        flags(spans, |span| span.lane == Lane::Comm),
        u32s(spans, |span| span.operation),
        i64s(spans, |span| span.start_ns),
        i64s(spans, |span| span.end_ns.wrapping_sub(span.start_ns)),
        i64s(spans, |span| span.start_ns.wrapping_sub(span.ready_ns)),
        some_i64s(spans, arrival),
        u32s(spans, |span| span.stream.into()),
        flags(spans, |_| false),
        some_u32s(spans, |span| (span.sequence != Span::NO_SEQUENCE).then_some(span.sequence)),
        some_u32s(spans, |span| known(span.launched.range)),
        some_u32s(spans, |span| known(span.launched.operator)),
    ]
}

/// Ranges as columns, in the order of [`schema`].
pub(super) fn of_ranges(ranges: &[Range]) -> [Series; COLUMNS] {
    [
        u32s(ranges, |_| 0),
        flags(ranges, |_| false),
        u32s(ranges, |range| range.depth.into()),
        u32s(ranges, |range| range.rank),
        flags(ranges, |range| range.on_device),
        u32s(ranges, |range| range.name),
        i64s(ranges, |range| range.start_ns),
        i64s(ranges, |range| range.end_ns.wrapping_sub(range.start_ns)),
        i64s(ranges, |_| 0),
        some_i64s(ranges, |_| None),
        u32s(ranges, |range| range.thread.into()),
        flags(ranges, |_| true),
        some_u32s(ranges, |_| None),
        some_u32s(ranges, |_| None),
        some_u32s(ranges, |_| None),
    ]
}

/// Sizes of the tables that rows index.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableSizes {
    pub(super) operations: usize,
    pub(super) ranks: u32,
    pub(super) streams: usize,
    pub(super) names: usize,
}

impl TableSizes {
    pub(super) fn new(meta: &TraceMeta, operations: &[OperationInfo]) -> Self {
        Self {
            operations: operations.len(),
            ranks: meta.ranks,
            streams: meta.streams.len(),
            names: meta.range_names.len(),
        }
    }

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
