//! Spans and ranges as columns, and back.
//!
//! Starts are absolute, so that any Parquet tool can draw a timeline; the other times are small
//! numbers relative to them: `wait_ns` = start - ready, `duration_ns` = end - start, `arrival_ns` =
//! last arrival - start (null where there is none). `launch_range` is the place of a range in the file, counted from
//! 0, or [`LaunchSite::OUTSIDE`]; `launch_operator` a name of ranges; both are null where the launch is not known.
//!
//! Files of older versions lack the columns that [`ColumnInfo::optional`] marks; readers take them as null. To add a column:
//! a row in [`schema`] made by `later`, a vector in [`Rows`], a series in `encode`, and `columns.later` in `decode`.
//!
//! A row is a span, or a range where `range` is true; then `stream` is its thread, `step` its depth, `operation`
//! its name, and `comm` says whether it is a device's time. A row group has rows of one sort only.

use polars_core::prelude::{ArrowDataType, ArrowField, ArrowSchema, DataType};

use crate::{LaunchSite, Range, Span};
use base::parquet;
use plan::{Lane, Phase};

/// A column of the file.
pub(super) struct ColumnInfo {
    pub(super) name: &'static str,
    pub(super) dtype: DataType,
    /// Whether the column may have nulls.
    pub(super) nulls: bool,
    /// Whether a file may lack the column: files of older versions do.
    pub(super) optional: bool,
}

/// All columns, in file order.
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

/// The columns of [`schema`] as Arrow fields, from which the Parquet schema is made.
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

/// Rows as columns, in one pass over them.
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

    /// Spans. Differences wrap, and wrap back when read, so that nothing is lost.
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

    /// Named ranges as rows: `stream` is the thread, `step` the depth, `operation` the name, `comm` a device's time.
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

/// How many there are of what rows point to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) operations: usize,
    pub(super) ranks: u32,
    pub(super) streams: usize,
    pub(super) names: usize,
}

impl Limits {
    /// What readers of a span rely on.
    #[inline]
    pub(super) fn check_span(&self, span: &Span) -> Result<(), String> {
        if span.operation as usize >= self.operations {
            let there = self.operations;
            return Err(format!("operation is {}, but there are {there} operations", span.operation));
        }
        // without a table of streams, the lanes are the streams
        if usize::from(span.stream) >= self.streams.max(1) {
            let there = self.streams;
            return Err(format!("stream is {}, but there are {there} streams", span.stream));
        }
        self.check(span.rank, span.start_ns, span.end_ns)
    }

    /// What readers of a range rely on.
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
