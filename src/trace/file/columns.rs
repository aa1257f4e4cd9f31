//! Spans as columns, and back.
//!
//! Starts are absolute, so that any Parquet tool can draw a timeline; the other times are small
//! numbers relative to them, which compress well: `wait_ns` = start - ready, `duration_ns` = end -
//! start, `arrival_ns` = last arrival - start (null where there is none).

use polars::prelude::{Column, DataFrame, DataType, PolarsResult, Schema};

use crate::plan::{Lane, Phase};
use crate::trace::Span;

/// Names and types of the columns, in file order.
pub(super) fn schema() -> [(&'static str, DataType); 10] {
    [
        ("sample", DataType::UInt32),
        ("decode", DataType::Boolean),
        ("step", DataType::UInt32),
        ("rank", DataType::UInt32),
        ("comm", DataType::Boolean),
        ("operation", DataType::UInt32),
        ("start_ns", DataType::Int64),
        ("duration_ns", DataType::Int64),
        ("wait_ns", DataType::Int64),
        ("arrival_ns", DataType::Int64),
    ]
}

/// Likewise, as Polars has it.
pub(super) fn polars_schema() -> Schema {
    schema().into_iter().map(|(name, dtype)| (name.into(), dtype)).collect()
}

/// Spans as one chunk. Differences wrap, and wrap back when read, so that nothing is lost.
pub(super) fn frame(spans: &[Span]) -> PolarsResult<DataFrame> {
    let u32s = |name: &str, of: fn(&Span) -> u32| {
        Column::new(name.into(), spans.iter().map(of).collect::<Vec<u32>>())
    };
    let i64s = |name: &str, of: fn(&Span) -> i64| {
        Column::new(name.into(), spans.iter().map(of).collect::<Vec<i64>>())
    };
    let bools = |name: &str, of: fn(&Span) -> bool| {
        Column::new(name.into(), spans.iter().map(of).collect::<Vec<bool>>())
    };
    let arrival = |span: &Span| {
        (span.last_arrival_ns != -1).then(|| span.last_arrival_ns.wrapping_sub(span.start_ns))
    };
    let arrivals: Vec<Option<i64>> = spans.iter().map(arrival).collect();
    DataFrame::new(
        spans.len(),
        vec![
            u32s("sample", |s| s.sample),
            bools("decode", |s| s.phase == Phase::Decode),
            u32s("step", |s| s.step),
            u32s("rank", |s| s.rank),
            bools("comm", |s| s.lane == Lane::Comm),
            u32s("operation", |s| s.operation),
            i64s("start_ns", |s| s.start_ns),
            i64s("duration_ns", |s| s.end_ns.wrapping_sub(s.start_ns)),
            i64s("wait_ns", |s| s.start_ns.wrapping_sub(s.ready_ns)),
            Column::new("arrival_ns".into(), arrivals),
        ],
    )
}

/// Spans of a file with `operations` operations and `ranks` ranks; or which row is wrong, and how.
pub(super) fn spans(frame: &DataFrame, operations: usize, ranks: u32) -> Result<Vec<Span>, String> {
    let rows = frame.height();
    let whole = |name: &str, nulls: bool| -> Result<&Column, String> {
        let column = frame.column(name).map_err(|error| error.to_string())?;
        if column.len() != rows {
            return Err(format!("column {name} has {} rows, the others {rows}", column.len()));
        }
        match column.null_count() {
            0 => Ok(column),
            _ if nulls => Ok(column),
            missing => Err(format!("column {name} lacks {missing} values")),
        }
    };
    let text = |error: polars::prelude::PolarsError| error.to_string();
    let u32s = |name: &str| -> Result<Vec<u32>, String> {
        Ok(whole(name, false)?.u32().map_err(text)?.into_no_null_iter().collect())
    };
    let i64s = |name: &str| -> Result<Vec<i64>, String> {
        Ok(whole(name, false)?.i64().map_err(text)?.into_no_null_iter().collect())
    };
    let bools = |name: &str| -> Result<Vec<bool>, String> {
        Ok(whole(name, false)?.bool().map_err(text)?.iter().flatten().collect())
    };
    let (sample, step, rank, operation) =
        (u32s("sample")?, u32s("step")?, u32s("rank")?, u32s("operation")?);
    let (decode, comm) = (bools("decode")?, bools("comm")?);
    let (start, duration, wait) = (i64s("start_ns")?, i64s("duration_ns")?, i64s("wait_ns")?);
    let arrival = whole("arrival_ns", true)?.i64().map_err(text)?;

    let mut spans = Vec::with_capacity(rows);
    for (row, arrival) in arrival.iter().enumerate() {
        let span = Span {
            sample: sample[row],
            phase: if decode[row] { Phase::Decode } else { Phase::Prefill },
            step: step[row],
            rank: rank[row],
            lane: if comm[row] { Lane::Comm } else { Lane::Compute },
            stream: 0,
            operation: operation[row],
            ready_ns: start[row].wrapping_sub(wait[row]),
            start_ns: start[row],
            end_ns: start[row].wrapping_add(duration[row]),
            last_arrival_ns: arrival.map_or(-1, |arrival| start[row].wrapping_add(arrival)),
        };
        check(&span, operations, ranks).map_err(|problem| format!("row {row}: {problem}"))?;
        spans.push(span);
    }
    Ok(spans)
}

/// What readers of a trace rely on.
pub(super) fn check(span: &Span, operations: usize, ranks: u32) -> Result<(), String> {
    if span.operation as usize >= operations {
        return Err(format!("operation is {}, but there are {operations} operations", span.operation));
    }
    if span.rank >= ranks {
        return Err(format!("rank is {}, but there are {ranks} ranks", span.rank));
    }
    if span.end_ns < span.start_ns {
        return Err(format!("it ends at {} ns, before it starts at {} ns", span.end_ns, span.start_ns));
    }
    Ok(())
}
