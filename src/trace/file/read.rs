//! Trace reader. Each kind of damage yields an error that names the damaged part. All cores read, check
//! and decode row groups directly into place. The file is not memory-mapped: the bytes that were checked
//! are the bytes that are decoded, even if another program modifies the file meanwhile.

use std::fs::File;
use std::io::{Read as _, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use polars_core::prelude::{ArrowSchema, DataFrame, DataType, Series};
use rayon::prelude::*;

use super::columns::{self, TableSizes};
use super::{CHECKSUM, GROUPS, Group, Holds, MAGIC, META, OPERATIONS, Problem, Read, TAIL, VERSION};
use crate::{FORMAT_VERSION, OperationInfo, Range, Span, Trace, TraceMeta, memory};
use base::checksum::{Check, sha256};
use base::error::{Error, Result};
use base::parquet::ParquetFile;
use plan::{Lane, Phase};

/// Bytes that a file is read in at a time, on all cores.
const BLOCK: usize = 16 << 20;

/// Maximum unpacked size of a row: more than twice what its columns take.
const MOST_ROW_BYTES: u64 = 256;

/// Reads a whole trace file into memory, on all cores.
///
/// # Errors
///
/// Returns an input error if the file is not a trace, is damaged or truncated, or has a newer format; a
/// failure if it needs more than the memory limit.
pub fn read(path: &Path) -> Result<Trace> {
    read_file(File::open(path).map_err(Error::io(path))?, path)
}

/// Reads a whole trace from an open file; `path` is for messages. Returns the same errors as [`read`].
pub fn read_file(mut file: File, path: &Path) -> Result<Trace> {
    memory::watch();
    let head = Head::read(&mut file).map_err(|problem| problem.in_file(path))?;
    memory::check(head.needed_bytes())
        .map_err(|why| Error::failed(format!("{}: {why}", path.display())))?;
    let (spans, ranges) = head.decode(&file).map_err(|problem| {
        let problem = match problem {
            Problem::Damaged(what) if head.version > FORMAT_VERSION => {
                Problem::Newer(head.version, what)
            }
            other => other,
        };
        problem.in_file(path)
    })?;
    Ok(Trace { meta: head.meta, operations: head.operations, spans, ranges })
}

/// Reads metadata and operations only. Does not check the row groups.
///
/// # Errors
///
/// Returns an input error if the file is not a trace, has a damaged footer, or has a newer format.
pub fn read_meta(path: &Path) -> Result<(TraceMeta, Vec<OperationInfo>)> {
    let mut file = File::open(path).map_err(Error::io(path))?;
    let head = Head::read(&mut file).map_err(|problem| problem.in_file(path))?;
    Ok((head.meta, head.operations))
}

/// Compares a trace file with its checksums, without decoding it. Returns what is wrong.
pub fn check(path: &Path) -> std::result::Result<(), String> {
    let checked = || -> Read<()> {
        let mut file = base::regular::open(path)?;
        let head = Head::read(&mut file)?;
        let mut start = 0;
        for group in &head.groups {
            let mut bytes = vec![0; group.bytes as usize];
            file.read_exact_at(&mut bytes, start)?;
            group.verify(&bytes)?;
            start += group.bytes;
        }
        Ok(())
    };
    checked().map_err(|problem| match problem {
        Problem::Io(error) => error.to_string(),
        Problem::Foreign(what) => format!("not a Ladderscope trace: {what}"),
        Problem::Damaged(what) => what,
        Problem::Older(version) | Problem::Newer(version, _) => format!("trace format {version}"),
    })
}

/// Metadata, operations and row groups from the footer.
struct Head {
    version: u32,
    meta: TraceMeta,
    operations: Vec<OperationInfo>,
    groups: Vec<Group>,
    /// Length of the file.
    length: u64,
}

impl Head {
    fn read(file: &mut File) -> Read<Self> {
        let (start, footer) = footer(file)?;
        match CHECKSUM.check(&footer) {
            Check::Intact => {}
            Check::Changed => {
                return Err(Problem::Damaged("the checksum of its footer does not match".into()));
            }
            Check::Missing => {
                return Err(Problem::Foreign("its footer has no checksum of Ladderscope".into()));
            }
        }
        let length = start + footer.len() as u64;
        // present the footer to the Parquet reader as a file without data
        let parquet = ParquetFile::open([MAGIC, &footer].concat())?;
        let stated = parquet.entry(VERSION).and_then(|version| version.parse::<u32>().ok());
        if let Some(older) = stated.filter(|version| *version < FORMAT_VERSION) {
            return Err(Problem::Older(older));
        }
        // a file with a version may be newer; a file without one is foreign
        let newer = stated.filter(|version| *version > FORMAT_VERSION);
        check_schema(parquet.schema()).map_err(|problem| match newer {
            Some(version) => Problem::Newer(version, problem),
            None => Problem::Foreign(problem),
        })?;
        let wanted = |key: &str| {
            let missing = || Problem::Foreign(format!("its footer has no entry {key}"));
            parquet.entry(key).ok_or_else(missing)
        };
        let wrong = |key: &str, error: serde_json::Error| match newer {
            Some(version) => Problem::Newer(version, format!("{key}: {error}")),
            None => Problem::Damaged(format!("{key}: {error}")),
        };
        let version = wanted(VERSION)?;
        let version =
            stated.ok_or_else(|| Problem::Damaged(format!("{VERSION} is '{version}', not a number")))?;
        let meta = serde_json::from_str(wanted(META)?).map_err(|e| wrong(META, e))?;
        let operations = serde_json::from_str(wanted(OPERATIONS)?).map_err(|e| wrong(OPERATIONS, e))?;
        let groups: Vec<Group> = serde_json::from_str(wanted(GROUPS)?).map_err(|e| wrong(GROUPS, e))?;
        let rows = parquet.row_groups().map(|rows| rows as u64);
        let bytes = groups.iter().fold(0_u64, |sum, group| sum.saturating_add(group.bytes));
        if !groups.iter().map(|group| group.rows).eq(rows) || bytes > start {
            return Err(Problem::Damaged("its footer lists row groups that it does not contain".into()));
        }
        let most = (parquet.rows() as u64).saturating_mul(MOST_ROW_BYTES).saturating_add(1 << 20);
        if parquet.unpacked_bytes() > most {
            return Err(Problem::Damaged("its footer speaks of more data than its rows have".into()));
        }
        Ok(Self { version, meta, operations, groups, length })
    }

    fn rows(&self, holds: Holds) -> usize {
        self.groups.iter().filter(|group| group.holds == holds).map(|group| group.rows as usize).sum()
    }

    /// Memory for the file and its rows.
    fn needed_bytes(&self) -> u64 {
        let rows = |holds, size: usize| (self.rows(holds) as u64).saturating_mul(size as u64);
        let (spans, ranges) =
            (rows(Holds::Spans, size_of::<Span>()), rows(Holds::Ranges, size_of::<Range>()));
        self.length.saturating_add(spans).saturating_add(ranges)
    }

    /// Reads, checks and decodes all row groups.
    fn decode(&self, file: &File) -> Read<(Vec<Span>, Vec<Range>)> {
        let mut bytes = vec![0; usize::try_from(self.length).unwrap_or(usize::MAX)];
        let blocks = bytes.par_chunks_mut(BLOCK).enumerate();
        blocks.try_for_each(|(at, block)| file.read_exact_at(block, (at * BLOCK) as u64))?;
        let parquet = ParquetFile::open(bytes)?;
        let mut spans = Vec::new();
        // parallel, so all cores share the page faults of a large allocation
        rayon::iter::repeat_n(Span::EMPTY, self.rows(Holds::Spans)).collect_into_vec(&mut spans);
        let mut ranges = Vec::with_capacity(self.rows(Holds::Ranges));
        let (mut places, mut others) = (Vec::new(), Vec::new());
        let (mut rest, mut first, mut start) = (spans.as_mut_slice(), 0, 0);
        for group in &self.groups {
            let (rows, end) = (group.rows as usize, start + group.bytes as usize);
            let part =
                RowGroupReader { head: self, parquet: &parquet, group, bytes: start..end, first, rows };
            match group.holds {
                Holds::Spans => {
                    let (place, after) = rest.split_at_mut(rows);
                    places.push((part, place));
                    rest = after;
                }
                Holds::Ranges => others.push(part),
            }
            (first, start) = (first + rows, end);
        }
        // the first damaged row group in file order is reported
        let read: Vec<Read<()>> =
            places.into_par_iter().map(|(part, place)| part.spans(place)).collect();
        read.into_iter().collect::<Read<()>>()?;
        let read: Vec<Read<Vec<Range>>> = others.into_par_iter().map(|part| part.ranges()).collect();
        for part in read {
            ranges.append(&mut part?);
        }
        Ok((spans, ranges))
    }

    fn limits(&self) -> TableSizes {
        TableSizes::new(&self.meta, &self.operations)
    }
}

/// Place of the footer in a file, and its bytes with the 8 after them. Returns an error for a file that is not Parquet
/// or is cut off.
fn footer(file: &mut File) -> Read<(u64, Vec<u8>)> {
    let length = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    let mut head = Vec::new();
    file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut head)?;
    if head != MAGIC {
        let shown: Vec<String> = head.iter().map(|byte| format!("{byte:02x}")).collect();
        return Err(Problem::Foreign(match shown.join(" ").as_str() {
            "" => "it is empty".into(),
            shown => format!("it begins with the bytes {shown}, Parquet files with 50 41 52 31 (PAR1)"),
        }));
    }
    let cut = || Problem::Damaged("it is cut off: the footer at its end is missing".into());
    let end = length.checked_sub(TAIL).filter(|end| *end >= MAGIC.len() as u64).ok_or_else(cut)?;
    let mut tail = [0; TAIL as usize];
    file.read_exact_at(&mut tail, end)?;
    let [a, b, c, d, magic @ ..] = tail;
    if magic != *MAGIC {
        return Err(cut());
    }
    let claimed = u32::from_le_bytes([a, b, c, d]);
    let start = end.checked_sub(u64::from(claimed)).filter(|start| *start >= MAGIC.len() as u64);
    let start = start.ok_or_else(|| {
        Problem::Damaged(format!(
            "its last 8 bytes speak of a footer of {claimed} bytes, but the file has {length}"
        ))
    })?;
    let mut footer = vec![0; (length - start) as usize];
    file.read_exact_at(&mut footer, start)?;
    Ok((start, footer))
}

fn check_schema(schema: &ArrowSchema) -> std::result::Result<(), String> {
    for column in columns::schema() {
        let (name, dtype) = (column.name, column.dtype);
        match schema.get(name).map(DataType::from_arrow_field) {
            Some(found) if found == dtype => {}
            Some(found) => return Err(format!("its column {name} is {found}, not {dtype}")),
            None if column.optional => {}
            None => return Err(format!("it has no column {name}")),
        }
    }
    Ok(())
}

impl Group {
    fn verify(&self, bytes: &[u8]) -> Read<()> {
        if sha256(bytes) == self.sha256 {
            return Ok(());
        }
        Err(Problem::Damaged(
            "its bytes do not match its checksum: something changed after it was written".into(),
        ))
    }
}

/// Row group of a file.
struct RowGroupReader<'a> {
    head: &'a Head,
    parquet: &'a ParquetFile,
    group: &'a Group,
    bytes: std::ops::Range<usize>,
    /// Number of the first row in the file.
    first: usize,
    rows: usize,
}

impl RowGroupReader<'_> {
    fn spans(&self, into: &mut [Span]) -> Read<()> {
        let columns = self.columns()?;
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
        let limits = self.head.limits();
        let arrivals = arrival.i64()?.downcast_iter().flat_map(|array| array.iter());
        for ((row, span), arrival) in into.iter_mut().enumerate().zip(arrivals) {
            let stream = stream[row];
            let stream = u16::try_from(stream)
                .map_err(|_| self.wrong(row, &format!("stream is {stream}, above {}", u16::MAX)))?;
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
            limits.check_span(span).map_err(|problem| self.wrong(row, &problem))?;
        }
        columns.later("sequence", |row, sequence| into[row].sequence = sequence)?;
        columns.later("launch_range", |row, range| into[row].launched.range = range)?;
        columns.later("launch_operator", |row, operator| into[row].launched.operator = operator)
    }

    fn ranges(&self) -> Read<Vec<Range>> {
        let columns = self.columns()?;
        let (thread, depth) = (columns.get("stream")?, columns.get("step")?);
        let (thread, depth) = (u32s(&thread)?, u32s(&depth)?);
        let (rank, name) = (columns.get("rank")?, columns.get("operation")?);
        let (rank, name) = (u32s(&rank)?, u32s(&name)?);
        let (start, duration) = (columns.get("start_ns")?, columns.get("duration_ns")?);
        let (start, duration) = (i64s(&start)?, i64s(&duration)?);
        let on_device = bools(&columns.get("comm")?)?;
        let limits = self.head.limits();
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
        (0..self.rows).map(|row| range(row).map_err(|problem| self.wrong(row, &problem))).collect()
    }

    /// Checks and decodes the row group.
    fn columns(&self) -> Read<Columns> {
        let missing = || Problem::Damaged("it is shorter than its footer says".into());
        self.group.verify(self.parquet.bytes().get(self.bytes.clone()).ok_or_else(missing)?)?;
        let known = columns::schema();
        let names = known.iter().map(|column| column.name);
        let names: Vec<&str> = names.filter(|name| self.parquet.schema().contains(name)).collect();
        let frame = self.parquet.columns(&names, self.first..self.first + self.rows)?;
        if frame.height() != self.rows {
            let found = frame.height();
            return Err(Problem::Damaged(format!("{found} rows in a row group of {}", self.rows)));
        }
        Ok(Columns(frame))
    }

    fn wrong(&self, row: usize, problem: &str) -> Problem {
        Problem::Damaged(format!("row {}: {problem}", self.first + row))
    }
}

struct Columns(DataFrame);

impl Columns {
    fn column(&self, name: &str) -> Read<Series> {
        Ok(self.0.column(name)?.as_materialized_series().clone())
    }

    /// A column without nulls.
    fn get(&self, name: &str) -> Read<Series> {
        let column = self.column(name)?;
        match column.null_count() {
            0 => Ok(column.rechunk()),
            missing => Err(Problem::Damaged(format!("column {name} lacks {missing} values"))),
        }
    }

    /// Calls `set(row, value)` for each non-null value of a column that older files lack.
    fn later(&self, name: &str, mut set: impl FnMut(usize, u32)) -> Read<()> {
        let Ok(column) = self.column(name) else { return Ok(()) };
        if column.null_count() < column.len() {
            let values = column.u32()?.iter().enumerate();
            values.for_each(|(row, value)| value.into_iter().for_each(|value| set(row, value)));
        }
        Ok(())
    }
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
