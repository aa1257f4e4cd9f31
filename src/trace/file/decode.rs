//! Decodes the bytes of a row group into spans or ranges, in one pass over its columns.

use polars_buffer::Buffer;
use polars_core::prelude::{PlSmallStr, Series};

use super::columns::Limits;
use super::head::{Head, Part};
use super::problem::{Problem, Read};
use crate::{Range, Span};
use base::parquet::decoded;
use plan::{Lane, Phase};

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
