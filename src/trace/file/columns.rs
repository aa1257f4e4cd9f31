//! Conversion of spans and ranges to columns and back.
//!
//! `start_ns` is absolute, so any Parquet tool can draw a timeline. The other times are small offsets:
//! `wait_ns` = start - ready, `duration_ns` = end - start, `arrival_ns` = last arrival - start (null if
//! there is none). `launch_range` is the index of a range in the file, or [`LaunchSite::OUTSIDE`];
//! `launch_operator` indexes the range names; both are null if the launch is unknown.
//!
//! Files of older versions lack the columns marked [`ColumnInfo::optional`]; readers treat them as null.
//! To add a column: add a row in [`schema`] with `later`, a vector in [`Rows`], a series in `encode`,
//! and `columns.later` in `decode`.
//!
//! A row is a span, or a range if `range` is true: then `stream` is its thread, `step` its depth,
//! `operation` its name, and `comm` is true for device time. Each row group has rows of one type only.

use polars_core::prelude::{ArrowDataType, ArrowField, ArrowSchema, DataType};

use crate::{LaunchSite, Range, Span};
use base::parquet;
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
