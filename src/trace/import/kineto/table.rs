//! Table of parsed events: rows of numbers, and interned texts. Each parser thread fills its own table;
//! they are merged at the end.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::event::{EventArguments, EventClass, GpuCategory, TraceEvent, times};
use super::host::HostEvents;
use super::jax::{self, Uncategorised};
use super::json::{Cursor, JsonError, last_integer, unescape};
use super::names::{self, CollectiveArguments, Interner};
use super::split::LostEvents;
use crate::import::left_out::{EventDescription, Extremes, LeftOutEvents};
use crate::import::rank::MAX_RANK;
use crate::{CopiedBytes, Range, Span, is_host_call};

/// Separator within keys (ASCII unit separator); does not occur in numbers or sensible names.
pub(super) const PART: u8 = 0x1f;

/// A host call, with the id that links it to the work it launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LaunchCall {
    /// [`link`] of the correlation or external id.
    pub(super) link: i64,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    /// Process: an index into [`EventTable::processes`].
    pub(super) process: u16,
    /// Thread: an index into [`EventTable::threads`].
    pub(super) thread: u16,
    /// Name of the call: an index into [`EventTable::names`].
    pub(super) name: u32,
}

type ProcessLabel = (Box<[u8]>, Box<[u8]>);

/// Minimum duration of a host call that is kept as a host range, which tells what the host did in a long gap (ns).
const LONG_CALL: i64 = 1_000_000;

/// An operator with the arguments of the collectives that it launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CommsOperator {
    /// [`link`] of the external id.
    pub(super) link: i64,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    /// Arguments: an index into [`EventTable::names`].
    pub(super) arguments: u32,
    pub(super) sequence: u32,
    /// Process: an index into [`EventTable::processes`].
    pub(super) process: u16,
}

/// A kernel of a collective library without arguments of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct BareCollective {
    /// Position of the kernel in [`EventTable::spans`].
    pub(super) span: usize,
    /// [`link`] of the external id.
    pub(super) link: i64,
}

#[derive(Clone, Debug)]
pub(super) struct Category {
    pub(super) name: Box<[u8]>,
    pub(super) class: EventClass,
    pub(super) ignored: u64,
}

#[derive(Clone, Copy, Debug)]
enum Ignored {
    Phase(u8),
    /// Position in the list [`EventTable::categories`].
    Category(usize),
}

/// Lengths of the row lists: spans, launches, collective operators, collectives without arguments, host
/// ranges, device ranges, operators, long calls.
type Lengths = [usize; 8];

/// A piece of the file: its offset there, and its place in the row lists.
#[derive(Clone, Copy, Debug)]
struct Piece {
    offset: u64,
    from: Lengths,
    to: Lengths,
}

/// Events parsed by one thread, as rows of numbers, with counts of ignored events.
#[derive(Clone, Debug, Default)]
pub(super) struct EventTable {
    pub(super) names: Interner,
    /// Stream keys: pid, device, stream.
    pub(super) streams: Interner,
    /// Host thread keys: pid, tid.
    pub(super) threads: Interner,
    pub(super) processes: Interner,
    /// Cache of the last launch's process id and number: most launches are from one process.
    pub(super) last_process: (Vec<u8>, u16),
    /// Cache of the last event's pid, tid and thread number: most events are on the same thread.
    last_thread: Option<(Vec<u8>, Vec<u8>, u32)>,
    pieces: Vec<Piece>,
    /// Process ids with a name or label that contains a number.
    pub(super) labels: Vec<ProcessLabel>,
    /// Ranks of streams, from the communicators of their collectives.
    pub(super) ranks: BTreeMap<u16, u32>,
    /// Unlinked spans: `operation` is 3 x name + kind, `ready_ns` is the [`link`].
    pub(super) spans: Vec<Span>,
    pub(super) copied: BTreeMap<u32, CopiedBytes>,
    pub(super) launches: Vec<LaunchCall>,
    pub(super) comms: Vec<CommsOperator>,
    pub(super) bare: Vec<BareCollective>,
    /// True for names of kernels of NCCL, RCCL and similar libraries; indexed by name, for the names
    /// checked so far.
    pub(super) libraries: Vec<bool>,
    /// Numbers of launches and operators, kept after linking consumes the lists.
    pub(super) launches_read: u64,
    pub(super) operators_read: u64,
    /// Host annotations; `thread` indexes [`Self::threads`].
    pub(super) host_ranges: Vec<Range>,
    /// Framework operators; `thread` indexes [`Self::threads`].
    pub(super) operators: Vec<Range>,
    /// True if some operator names have shapes appended.
    pub(super) has_shapes: bool,
    /// Device annotations; `thread` indexes [`Self::streams`].
    pub(super) device_ranges: Vec<Range>,
    /// Host calls of at least [`LONG_CALL`], whether or not they launched anything. They annotate nothing.
    pub(super) long_calls: Vec<Range>,
    /// Operators and calls that the trace keeps, once linked.
    pub(super) host: HostEvents,
    pub(super) categories: Vec<Category>,
    pub(super) uncategorised: Uncategorised,
    /// Begin and end events (ph B, E) until [`Self::join_begin_end`]: offset in the file, and JSON.
    pub(super) begin_end: Vec<(u64, Vec<u8>)>,
    /// Number of events by phase, other than `X`.
    pub(super) phases: BTreeMap<u8, u64>,
    /// Number of malformed events by category and problem.
    pub(super) odd: BTreeMap<(&'static str, &'static str), u64>,
    pub(super) left_out: LeftOutEvents,
    pub(super) extremes: Extremes,
    pub(super) events: u64,
    /// Number of events with a phase; if 0, the file is not a trace.
    pub(super) with_phase: u64,
    pub(super) used: [u64; 3],
    pub(super) lost: LostEvents,
}

pub(super) const NO_CORRELATION: &str = "no correlation";
const MOST_ROWS: u32 = u16::MAX as u32;
const MOST_LABELS: usize = 4096;
/// Maximum number of distinct categories; real traces have about 15.
const MOST_CATEGORIES: usize = 100;

/// Encodes the id that links events: correlations from 0 up, external ids from -2 down, -1 for none.
fn link(correlation: Option<&[u8]>, external: Option<&[u8]>) -> i64 {
    let number = |text: Option<&[u8]>| text.and_then(last_integer).filter(|n| *n >= 0);
    number(correlation).or_else(|| number(external).map(|id| (-2i64).saturating_sub(id))).unwrap_or(-1)
}

fn is_label(name: &[u8]) -> bool {
    matches!(name, b"process_name" | b"process_labels")
}

impl EventTable {
    /// Parses the complete array elements in `bytes`, with the commas between them, up to the first
    /// broken one. `offset` is the offset of `bytes` in the file.
    pub(super) fn read(&mut self, bytes: &[u8], offset: u64) -> Result<(), JsonError> {
        let from = self.lengths();
        let mut cursor = Cursor::new(bytes, 0);
        while let Some(byte) = cursor.peek() {
            if byte == b',' {
                cursor.at += 1;
            } else {
                let place = offset.saturating_add(cursor.at as u64);
                self.event(&mut cursor, place)?;
            }
        }
        self.pieces.push(Piece { offset, from, to: self.lengths() });
        Ok(())
    }

    /// Parses the event at the cursor; `place` is its offset in the file. Keeps nothing of a broken
    /// event.
    #[inline]
    pub(super) fn event(&mut self, cursor: &mut Cursor<'_>, place: u64) -> Result<(), JsonError> {
        let (bytes, from) = (cursor.bytes, cursor.at);
        let (mut class, mut ignored) = (None, None);
        let event = TraceEvent::read(cursor, |event| {
            match self.class_of(event) {
                Ok(found) => class = found,
                Err(reason) => ignored = Some(reason),
            }
            ignored.is_none()
        })?;
        match (ignored, event.phase, class) {
            (Some(Ignored::Phase(phase)), ..) => *self.phases.entry(phase).or_default() += 1,
            (Some(Ignored::Category(at)), ..) => self.categories[at].ignored += 1,
            (None, Some(b"M"), _) => self.label(&event, bytes)?,
            (None, Some(b"B" | b"E"), _) => {
                self.begin_end.push((place, bytes[from..cursor.at].to_vec()));
            }
            (None, Some(_), Some(class)) => self.keep(&event, class, bytes, place)?,
            (None, Some(_), None) => self.keep_uncategorised(&event, bytes)?,
            (None, None, _) => self.note("event", "no phase (ph)"),
        }
        self.events += 1;
        self.with_phase += u64::from(event.phase.is_some());
        Ok(())
    }

    pub(super) fn keep_uncategorised<'a>(
        &mut self,
        event: &TraceEvent<'a>,
        bytes: &'a [u8],
    ) -> Result<(), JsonError> {
        if !self.uncategorised.keep(event, bytes)? {
            self.note("event", "no category");
        }
        Ok(())
    }

    /// Class of an event to keep, `None` for names of processes and threads, and begin and end events; or the reason to
    /// ignore it.
    #[inline]
    fn class_of(&mut self, event: &TraceEvent<'_>) -> Result<Option<EventClass>, Ignored> {
        let phase = event.phase.and_then(|phase| phase.first()).copied().unwrap_or(0);
        if phase == b'M' && event.name.is_none_or(|name| is_label(name) || jax::is_label(name)) {
            return Ok(None);
        }
        if phase != b'X' {
            let is_begin_or_end = matches!(event.phase, Some(b"B" | b"E"));
            return if is_begin_or_end { Ok(None) } else { Err(Ignored::Phase(phase)) };
        }
        let found = self.category(event.category.unwrap_or_default());
        match self.categories[found].class {
            EventClass::Other => Err(Ignored::Category(found)),
            class => Ok(Some(class)),
        }
    }

    #[cold]
    fn label<'a>(&mut self, event: &TraceEvent<'a>, bytes: &'a [u8]) -> Result<(), JsonError> {
        if event.name.is_some_and(jax::is_label) {
            self.uncategorised.label(event, bytes)?;
        }
        if event.name.is_some_and(is_label)
            && let Some(text) = event.label(bytes)?
            && text.iter().any(u8::is_ascii_digit)
            && self.labels.len() < MOST_LABELS
        {
            self.labels.push((event.pid.into(), text.into()));
        }
        // only now: an event with broken arguments counts as broken
        *self.phases.entry(b'M').or_default() += 1;
        Ok(())
    }

    #[inline]
    fn process(&mut self, pid: &[u8]) -> u16 {
        if self.processes.len() == 0 || self.last_process.0 != pid {
            let number = self.processes.intern(pid).min(MOST_ROWS - 1) as u16;
            self.last_process = (pid.to_vec(), number);
        }
        self.last_process.1
    }

    #[inline]
    fn thread(&mut self, event: &TraceEvent<'_>) -> u32 {
        if let Some((pid, tid, number)) = &self.last_thread
            && pid == event.pid
            && tid == event.tid
        {
            return *number;
        }
        let number = key(&[event.pid, event.tid], |key| self.threads.intern(key));
        self.last_thread = Some((event.pid.to_vec(), event.tid.to_vec(), number));
        number
    }

    #[inline]
    pub(super) fn category(&mut self, name: &[u8]) -> usize {
        match self.categories.iter().position(|known| *known.name == *name) {
            Some(at) => at,
            None => self.new_category(name),
        }
    }

    #[cold]
    fn new_category(&mut self, name: &[u8]) -> usize {
        let class = EventClass::from_category(name);
        if self.categories.len() >= MOST_CATEGORIES && class == EventClass::Other {
            // count further categories as "others"
            return match self.categories.iter().position(|known| *known.name == *b"others") {
                Some(at) => at,
                None => {
                    self.categories.push(Category { name: (*b"others").into(), class, ignored: 0 });
                    self.categories.len() - 1
                }
            };
        }
        self.categories.push(Category { name: name.into(), class, ignored: 0 });
        self.categories.len() - 1
    }

    pub(super) fn lose(&mut self, lost: LostEvents) {
        self.events += lost.elements;
        self.lost = lost;
    }

    pub(super) fn note(&mut self, what: &'static str, why: &'static str) {
        *self.odd.entry((what, why)).or_default() += 1;
    }

    #[inline]
    pub(super) fn keep(
        &mut self,
        event: &TraceEvent<'_>,
        class: EventClass,
        bytes: &[u8],
        place: u64,
    ) -> Result<(), JsonError> {
        let what = match class {
            EventClass::Gpu(gpu) => gpu.as_str(),
            EventClass::Launch => "launch",
            EventClass::Operator => "operator",
            _ => "annotation",
        };
        let (start_ns, end_ns) = match times(event) {
            Ok(times) => times,
            Err(why) => {
                let text =
                    |text: Option<&[u8]>| String::from_utf8_lossy(text.unwrap_or(b"?")).into_owned();
                let order = place.try_into().unwrap_or(i64::MAX);
                self.left_out.add(what, why, order, || EventDescription {
                    name: unescape(event.name.unwrap_or(b"?")).0,
                    time: format!("with ts {} and dur {}", text(event.start), text(event.duration)),
                });
                return Ok(());
            }
        };
        match class {
            EventClass::Gpu(gpu) => {
                self.span(event, &event.arguments(bytes)?, gpu, (start_ns, end_ns), bytes)?;
            }
            EventClass::Launch => self.launch(event, &event.arguments(bytes)?, (start_ns, end_ns)),
            _ => {
                self.extremes.add((start_ns, end_ns));
                if class == EventClass::Operator {
                    self.comms_operator(event, (start_ns, end_ns), bytes)?;
                }
                self.range(event, class, (start_ns, end_ns), bytes)?;
            }
        }
        Ok(())
    }

    /// Adds a host call; its event needs a name, `pid` and `tid`.
    #[inline]
    pub(super) fn launch(
        &mut self,
        event: &TraceEvent<'_>,
        arguments: &EventArguments<'_>,
        (start_ns, end_ns): (i64, i64),
    ) {
        self.extremes.add((start_ns, end_ns));
        let text = event.name.unwrap_or_default();
        if end_ns.saturating_sub(start_ns) >= LONG_CALL
            && !arguments.is_stretched
            && std::str::from_utf8(text).is_ok_and(is_host_call)
        {
            let thread = self.thread(event).min(MOST_ROWS - 1);
            let name = self.names.intern(text);
            self.long_calls.push(bare_range(false, thread, name, (start_ns, end_ns)));
        }
        match link(arguments.correlation, arguments.external) {
            -1 => self.note("launch", NO_CORRELATION),
            link => {
                let thread = self.thread(event).min(MOST_ROWS - 1) as u16;
                let name = self.names.intern(text);
                self.launches_read += 1;
                let process = self.process(event.pid);
                self.launches.push(LaunchCall { link, start_ns, end_ns, process, thread, name });
            }
        }
    }

    /// Adds GPU work. `bytes` is the JSON that the event is from; empty if it is from another format.
    #[inline]
    pub(super) fn span(
        &mut self,
        event: &TraceEvent<'_>,
        arguments: &EventArguments<'_>,
        gpu: GpuCategory,
        (start_ns, end_ns): (i64, i64),
        bytes: &[u8],
    ) -> Result<(), JsonError> {
        self.extremes.add((start_ns, end_ns));
        let Some(name) = event.name else {
            self.note(gpu.as_str(), "no name");
            return Ok(());
        };
        let device = arguments.device.unwrap_or(event.pid);
        let stream = arguments.stream.unwrap_or(event.tid);
        let row = self.stream(event.pid, device, stream);
        if row >= MOST_ROWS {
            self.note(gpu.as_str(), "more than 65535 streams");
            return Ok(());
        }
        if let (Some(rank), Some(ranks)) = (arguments.rank, arguments.group_ranks)
            && let Some(rank) = global_rank(rank, ranks)
        {
            self.ranks.entry(row as u16).or_insert(rank);
        }
        let mut sequence = Span::NO_SEQUENCE;
        let named = if arguments.is_collective {
            match CollectiveArguments::new(event, bytes)? {
                Some(found) => {
                    sequence = found.sequence;
                    self.names.intern(&found.key(name))
                }
                None => self.names.intern(name),
            }
        } else {
            let named = self.names.intern(name);
            if gpu == GpuCategory::Kernel && self.is_library(named, name) {
                let link = link(None, arguments.external);
                self.bare.push(BareCollective { span: self.spans.len(), link });
            }
            named
        };
        let operation = named.saturating_mul(3).saturating_add(gpu as u32);
        self.used[gpu as usize] += 1;
        if gpu != GpuCategory::Kernel {
            let bytes = arguments.bytes.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
            self.copied.entry(operation).or_default().add(bytes);
        }
        self.spans.push(Span {
            stream: row as u16,
            operation,
            ready_ns: link(arguments.correlation, arguments.external),
            start_ns,
            end_ns,
            sequence,
            ..Span::EMPTY
        });
        Ok(())
    }

    #[inline]
    fn is_library(&mut self, number: u32, name: &[u8]) -> bool {
        let number = number as usize;
        if number >= self.libraries.len() {
            self.libraries.resize(number + 1, false);
            let start = name.get(..8).unwrap_or(name).to_ascii_lowercase();
            self.libraries[number] = memchr::memmem::find(&start, b"ccl").is_some();
        }
        self.libraries[number]
    }

    fn comms_operator(
        &mut self,
        event: &TraceEvent<'_>,
        (start_ns, end_ns): (i64, i64),
        bytes: &[u8],
    ) -> Result<(), JsonError> {
        if event.name != Some(names::OPERATOR) {
            return Ok(());
        }
        let Some(found) = CollectiveArguments::new(event, bytes)? else { return Ok(()) };
        let link = link(None, event.arguments(bytes)?.external);
        let arguments = self.names.intern(&found.key(b""));
        let (process, sequence) = (self.process(event.pid), found.sequence);
        self.comms.push(CommsOperator { link, start_ns, end_ns, arguments, sequence, process });
        Ok(())
    }

    fn stream(&mut self, pid: &[u8], device: &[u8], stream: &[u8]) -> u32 {
        key(&[pid, device, stream], |key| self.streams.intern(key))
    }

    /// Adds a range of a stream, which is given by process, device and number.
    pub(super) fn stream_range(
        &mut self,
        [pid, device, stream]: [&[u8]; 3],
        name: &[u8],
        times: (i64, i64),
    ) {
        let row = self.stream(pid, device, stream);
        if row >= MOST_ROWS {
            self.note("annotation", "more than 65535 streams");
            return;
        }
        self.extremes.add(times);
        let name = self.names.intern(name);
        self.device_ranges.push(bare_range(true, row, name, times));
    }

    fn range(
        &mut self,
        event: &TraceEvent<'_>,
        class: EventClass,
        times: (i64, i64),
        bytes: &[u8],
    ) -> Result<(), JsonError> {
        let Some(name) = event.name else {
            self.note("annotation", "no name");
            return Ok(());
        };
        let row = if class == EventClass::DeviceRange {
            let arguments = event.arguments(bytes)?;
            let device = arguments.device.unwrap_or(event.pid);
            self.stream(event.pid, device, arguments.stream.unwrap_or(event.tid))
        } else {
            self.thread(event)
        };
        if row >= MOST_ROWS {
            self.note("annotation", "more than 65535 threads");
            return Ok(());
        }
        let shaped =
            if class == EventClass::Operator { names::shape_key(event, name, bytes)? } else { None };
        self.has_shapes |= shaped.is_some();
        let name = self.names.intern(shaped.as_deref().unwrap_or(name));
        let range = bare_range(class == EventClass::DeviceRange, row, name, times);
        match class {
            EventClass::DeviceRange => self.device_ranges.push(range),
            EventClass::Operator => {
                self.operators_read += 1;
                self.operators.push(range);
            }
            _ => self.host_ranges.push(range),
        }
        Ok(())
    }

    fn lengths(&self) -> Lengths {
        [
            self.spans.len(),
            self.launches.len(),
            self.comms.len(),
            self.bare.len(),
            self.host_ranges.len(),
            self.device_ranges.len(),
            self.operators.len(),
            self.long_calls.len(),
        ]
    }

    /// Merges the tables of several threads. Rows are in file order, in which most lists are sorted.
    pub(super) fn merged(mut tables: Vec<Self>) -> Self {
        tables.retain(|table| !table.pieces.is_empty());
        if tables.len() < 2 {
            return tables.pop().unwrap_or_default();
        }
        let mut all = Self::default();
        let (mut pieces, mut numbers): (Vec<(usize, Piece)>, Vec<Numbers>) = Default::default();
        for (at, table) in tables.iter_mut().enumerate() {
            pieces.extend(table.pieces.iter().map(|piece| (at, *piece)));
            numbers.push(all.merge(table));
        }
        tables.par_iter_mut().zip(&numbers).for_each(|(table, numbers)| table.renumber(numbers));
        pieces.sort_unstable_by_key(|(_, piece)| piece.offset);
        rayon::scope(|scope| {
            let (pieces, tables) = (&pieces, &tables);
            let Self {
                spans, launches, comms, host_ranges, device_ranges, operators, long_calls, ..
            } = &mut all;
            scope.spawn(|_| *spans = gather(pieces, tables, 0, |table| &table.spans));
            scope.spawn(|_| *launches = gather(pieces, tables, 1, |table| &table.launches));
            scope.spawn(|_| *operators = gather(pieces, tables, 6, |table| &table.operators));
            *comms = gather(pieces, tables, 2, |table| &table.comms);
            *host_ranges = gather(pieces, tables, 4, |table| &table.host_ranges);
            *device_ranges = gather(pieces, tables, 5, |table| &table.device_ranges);
            *long_calls = gather(pieces, tables, 7, |table| &table.long_calls);
        });
        let mut first = 0;
        for (table, Piece { from, to, .. }) in &pieces {
            let moved =
                |one: &BareCollective| BareCollective { span: first + one.span - from[0], ..*one };
            all.bare.extend(tables[*table].bare[from[3]..to[3]].iter().map(moved));
            first += to[0] - from[0];
        }
        all
    }

    /// Gives the rows of this table their numbers in the merged one.
    fn renumber(&mut self, numbers: &Numbers) {
        let Numbers { names, streams, threads, processes } = numbers;
        for one in &mut self.comms {
            one.arguments = names[one.arguments as usize];
            one.process = row(processes, one.process);
        }
        for span in &mut self.spans {
            (span.operation, span.stream) = (renamed(names, span.operation), row(streams, span.stream));
        }
        let named = |ranges: &mut [Range], rows: &[u32]| {
            for range in ranges {
                (range.name, range.thread) = (names[range.name as usize], row(rows, range.thread));
            }
        };
        named(&mut self.host_ranges, threads);
        named(&mut self.device_ranges, streams);
        named(&mut self.operators, threads);
        named(&mut self.long_calls, threads);
        for launch in &mut self.launches {
            launch.process = row(processes, launch.process);
            launch.thread = row(threads, launch.thread);
            launch.name = names[launch.name as usize];
        }
    }

    /// Merges everything but the rows of another table. Returns the numbers that they have here.
    fn merge(&mut self, other: &mut Self) -> Numbers {
        let numbers = Numbers {
            names: self.names.merge(&other.names),
            streams: self.streams.merge(&other.streams),
            threads: self.threads.merge(&other.threads),
            processes: self.processes.merge(&other.processes),
        };
        self.labels.append(&mut other.labels);
        self.begin_end.append(&mut other.begin_end);
        for (stream, rank) in &other.ranks {
            self.ranks.entry(row(&numbers.streams, *stream)).or_insert(*rank);
        }
        for (operation, copied) in &other.copied {
            self.copied.entry(renamed(&numbers.names, *operation)).or_default().merge(copied);
        }
        self.extremes.merge(other.extremes);
        self.has_shapes |= other.has_shapes;
        self.launches_read += other.launches_read;
        self.operators_read += other.operators_read;
        self.uncategorised.merge(std::mem::take(&mut other.uncategorised));
        for category in &other.categories {
            let at = self.category(&category.name);
            self.categories[at].ignored += category.ignored;
        }
        for (phase, count) in &other.phases {
            *self.phases.entry(*phase).or_default() += count;
        }
        for (odd, count) in &other.odd {
            *self.odd.entry(*odd).or_default() += count;
        }
        self.left_out.merge(std::mem::take(&mut other.left_out));
        self.events += other.events;
        self.with_phase += other.with_phase;
        for (mine, theirs) in self.used.iter_mut().zip(other.used) {
            *mine += theirs;
        }
        numbers
    }
}

/// Numbers in a merged table, indexed by those in one of its parts.
struct Numbers {
    names: Vec<u32>,
    streams: Vec<u32>,
    threads: Vec<u32>,
    processes: Vec<u32>,
}

/// Range whose rank and depth are not known yet.
fn bare_range(on_device: bool, thread: u32, name: u32, (start_ns, end_ns): (i64, i64)) -> Range {
    Range { rank: 0, on_device, thread: thread as u16, depth: 0, name, start_ns, end_ns }
}

/// Numbers beyond 16 bits collapse into the last one.
fn row(rows: &[u32], row: u16) -> u16 {
    rows[row as usize].min(MOST_ROWS - 1) as u16
}

fn renamed(names: &[u32], operation: u32) -> u32 {
    names[operation as usize / 3] * 3 + operation % 3
}

/// Rows of one list of all tables, in the order of the file; pieces have the index of their table.
fn gather<T: Copy>(
    pieces: &[(usize, Piece)],
    tables: &[EventTable],
    list: usize,
    of: impl Fn(&EventTable) -> &Vec<T>,
) -> Vec<T> {
    let mut all = Vec::with_capacity(tables.iter().map(|table| of(table).len()).sum());
    for (table, Piece { from, to, .. }) in pieces {
        all.extend_from_slice(&of(&tables[*table])[from[list]..to[list]]);
    }
    all
}

/// Job rank of a process from its rank within a communicator: 1 of `[2, 3]` is 3.
fn global_rank(rank: &[u8], ranks: &[u8]) -> Option<u32> {
    let number = |text: &[u8]| std::str::from_utf8(text.trim_ascii()).ok()?.parse::<u32>().ok();
    let list = ranks.strip_prefix(b"[")?.strip_suffix(b"]")?;
    // long lists are abbreviated
    let ranks: Option<Vec<u32>> = list.split(|byte| *byte == b',').map(number).collect();
    ranks?.get(number(rank)? as usize).copied().filter(|rank| *rank <= MAX_RANK)
}

/// Calls `with` with the parts joined into one key. Allocates only for oversized keys.
#[inline]
fn key<T>(parts: &[&[u8]], with: impl FnOnce(&[u8]) -> T) -> T {
    let mut buffer = [0u8; 96];
    let mut at = 0;
    for part in parts {
        let Some(room) = buffer.get_mut(at..at + part.len() + 1) else {
            return with(&parts.join(&PART));
        };
        room[..part.len()].copy_from_slice(part);
        room[part.len()] = PART;
        at += part.len() + 1;
    }
    with(&buffer[..at - 1])
}
