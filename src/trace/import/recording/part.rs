//! Reader of one part. A part is untrusted: lengths are checked before anything is allocated, a chunk with a wrong
//! checksum ends it, and a damaged event ends its chunk.

use std::collections::HashMap;
use std::io::Read;

use base::error::{Error, Result};
use base::text::without_controls;
use inject::format::{self, RecordingEvent};

/// Limit on times (ns since 1970): the year 2043. Differences of smaller ones cannot overflow.
const MOST_TIME: u64 = 1 << 61;
const MOST_NOTES: usize = 50;
/// Maximum nesting of ranges on one thread.
const MOST_NESTED: usize = 4096;

/// A kernel, copy or fill. `name` is a kernel's text; copies have their direction and size instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordedWork {
    pub start: i64,
    pub end: i64,
    pub device: u32,
    /// CUDA context; `None` for copies and fills, whose context is not recorded.
    pub context: Option<u32>,
    pub stream: u32,
    pub correlation: u32,
    pub node: u64,
    pub what: RecordedWorkKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordedWorkKind {
    Kernel(u32),
    Copy { kind: u8, bytes: u64 },
    Fill { bytes: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordedCall {
    pub start: i64,
    pub end: i64,
    pub thread: u32,
    pub correlation: u32,
    pub id: u32,
    pub runtime: bool,
}

/// An NVTX range; `end` is `None` if it was still open when the recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NvtxRange {
    pub start: i64,
    pub end: Option<i64>,
    pub thread: u32,
    pub domain: u32,
    pub name: u32,
    pub schema: u64,
    pub payload: [u64; 4],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeCreated {
    pub time: i64,
    pub thread: u32,
    pub node: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordedCommunicator {
    pub id: u64,
    pub ranks: u32,
    pub rank: u32,
    pub name: String,
}

/// A collective as NCCL's plugin reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PluginCall {
    pub time: i64,
    pub thread: u32,
    pub communicator: u64,
    /// The plugin's event type.
    pub kind: u32,
    pub function: u32,
    pub datatype: u32,
    pub count: u64,
    pub algorithm: u32,
    pub protocol: u32,
    pub channels: u8,
}

#[derive(Debug, Default)]
pub(super) struct RecordingPart {
    /// File name, for messages.
    pub name: String,
    pub pid: u32,
    pub parent: u32,
    pub host: String,
    pub command: String,
    pub start: i64,
    pub variables: HashMap<String, String>,
    pub texts: HashMap<u32, String>,
    pub work: Vec<RecordedWork>,
    pub calls: Vec<RecordedCall>,
    pub ranges: Vec<NvtxRange>,
    pub nodes: Vec<NodeCreated>,
    /// Node that each node of an instantiated graph was cloned from.
    pub clones: HashMap<u64, u64>,
    pub communicators: Vec<RecordedCommunicator>,
    pub plugin: Vec<PluginCall>,
    pub notes: Vec<String>,
    pub events: u64,
    pub lost: u64,
    pub untimed: u64,
    pub dropped: u64,
    /// Largest step of the wall clock against the monotonic one (ns).
    pub clock_step: u64,
    pub is_ended: bool,
    /// Place and reason if reading stopped before the end of the file.
    pub cut: Option<String>,
}

/// NVTX ranges without an end so far, by thread and domain (pushed) or id (started).
#[derive(Default)]
struct Open {
    pushed: HashMap<(u32, u32), Vec<usize>>,
    started: HashMap<u64, usize>,
    /// Difference of wall clock and monotonic clock (ns).
    offset: Option<i128>,
}

impl RecordingPart {
    /// Reads a part up to its first damage.
    ///
    /// # Errors
    ///
    /// Returns an error for a file that is no part, or of a newer version, and for a failing disk.
    pub fn read(name: &str, from: &mut dyn Read) -> Result<Self> {
        let mut header = [0; format::HEADER];
        from.read_exact(&mut header).map_err(|error| Error::input(format!("{name}: {error}")))?;
        let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if header[..8] != format::MAGIC || version != format::VERSION {
            return Err(Error::input_help(
                format!(
                    "{name}: version {version} of a recording's part; this program reads {}",
                    format::VERSION
                ),
                "open it with the version of ladderscope that recorded it, or a newer one",
            ));
        }
        let mut part = Self { name: name.to_owned(), ..Self::default() };
        let mut open = Open::default();
        let mut at = format::HEADER as u64;
        let mut bytes = Vec::new();
        let read = |from: &mut dyn Read, length: usize, bytes: &mut Vec<u8>| {
            bytes.clear();
            let read = from.take(length as u64).read_to_end(bytes);
            read.map_err(|error| Error::input(format!("{name}: {error}")))
        };
        loop {
            read(from, format::CHUNK_HEADER, &mut bytes)?;
            if bytes.is_empty() {
                break;
            }
            let header = <[u8; format::CHUNK_HEADER]>::try_from(&bytes[..]).ok();
            let stated = header.map(|[a, b, c, d, sum @ ..]| {
                (u32::from_le_bytes([a, b, c, d]) as usize, u32::from_le_bytes(sum))
            });
            let stated = stated.filter(|(length, _)| *length <= format::MOST_CHUNK);
            let length = stated.map_or(0, |(length, _)| length);
            read(from, length, &mut bytes)?;
            if stated != Some((bytes.len(), format::checksum(&bytes))) {
                part.cut = Some(format!("byte {at}: the last write is torn"));
                break;
            }
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                match RecordingEvent::decode(&mut rest) {
                    Ok(event) => part.add(event, &mut open),
                    Err(broken) => {
                        part.cut = Some(format!("byte {at}: {broken}"));
                        break;
                    }
                }
            }
            at += (format::CHUNK_HEADER + length) as u64;
        }
        Ok(part)
    }

    pub fn text(&self, id: u32) -> &str {
        self.texts.get(&id).map_or("", String::as_str)
    }

    fn add(&mut self, event: RecordingEvent, open: &mut Open) {
        self.events += 1;
        match event {
            RecordingEvent::Text { id, text: bytes } => {
                self.texts.entry(id).or_insert_with(|| text(&bytes));
            }
            RecordingEvent::Process { pid, parent, start_ns, host, command } => {
                // the parent at the start: orphans get another one
                if self.pid == 0 {
                    self.parent = parent;
                }
                (self.pid, self.start) = (pid, time(start_ns));
                (self.host, self.command) = (text(&host), text(&command));
            }
            RecordingEvent::Variable { text: bytes } => {
                if let Some((name, value)) = text(&bytes).split_once('=') {
                    self.variables.insert(name.to_owned(), value.to_owned());
                }
            }
            RecordingEvent::Clock { realtime_ns, monotonic_ns } => {
                let offset = i128::from(realtime_ns) - i128::from(monotonic_ns);
                let step = open.offset.map_or(0, |last| last.abs_diff(offset));
                self.clock_step = self.clock_step.max(u64::try_from(step).unwrap_or(u64::MAX));
                open.offset = Some(offset);
            }
            RecordingEvent::Note { text: bytes } => {
                if self.notes.len() < MOST_NOTES {
                    self.notes.push(text(&bytes));
                }
            }
            RecordingEvent::End { lost, .. } => {
                self.lost = self.lost.max(lost);
                self.is_ended = true;
            }
            RecordingEvent::Untimed { count, dropped } => {
                self.untimed = self.untimed.saturating_add(count);
                self.dropped = self.dropped.saturating_add(dropped);
            }
            RecordingEvent::NodeCloned { original, node } => {
                self.clones.insert(node, original);
            }
            RecordingEvent::Communicator { id, ranks, rank, name, .. } => {
                self.communicators.push(RecordedCommunicator { id, ranks, rank, name: text(&name) });
            }
            RecordingEvent::Device { .. }
            | RecordingEvent::Mark { .. }
            | RecordingEvent::ThreadName { .. } => {}
            timed => self.add_timed(timed, open),
        }
    }

    /// Adds GPU work, a call, a range, or an event of NCCL's plugin.
    fn add_timed(&mut self, event: RecordingEvent, open: &mut Open) {
        match event {
            RecordingEvent::Kernel {
                start_ns,
                end_ns,
                device,
                context,
                stream,
                correlation,
                name,
                node,
                ..
            } => {
                let (start, end) = (time(start_ns), time(end_ns));
                let (what, context) = (RecordedWorkKind::Kernel(name), Some(context));
                self.work.push(RecordedWork {
                    start,
                    end,
                    device,
                    context,
                    stream,
                    correlation,
                    node,
                    what,
                });
            }
            RecordingEvent::Copy {
                start_ns,
                end_ns,
                device,
                stream,
                correlation,
                kind,
                is_fill,
                bytes,
                node,
            } => {
                let (start, end) = (time(start_ns), time(end_ns));
                let what = if is_fill == 0 {
                    RecordedWorkKind::Copy { kind, bytes }
                } else {
                    RecordedWorkKind::Fill { bytes }
                };
                let context = None;
                self.work.push(RecordedWork {
                    start,
                    end,
                    device,
                    context,
                    stream,
                    correlation,
                    node,
                    what,
                });
            }
            RecordingEvent::Call { start_ns, end_ns, thread, correlation, id, runtime } => {
                let (start, end) = (time(start_ns), time(end_ns.max(start_ns)));
                self.calls.push(RecordedCall {
                    start,
                    end,
                    thread,
                    correlation,
                    id,
                    runtime: runtime != 0,
                });
            }
            RecordingEvent::NodeCreated { time_ns, thread, node } => {
                self.nodes.push(NodeCreated { time: time(time_ns), thread, node });
            }
            RecordingEvent::Push { time_ns, thread, domain, name, schema, payload } => {
                let stack = open.pushed.entry((thread, domain)).or_default();
                if stack.len() < MOST_NESTED {
                    stack.push(self.ranges.len());
                    let (start, end) = (time(time_ns), None);
                    self.ranges.push(NvtxRange { start, end, thread, domain, name, schema, payload });
                }
            }
            RecordingEvent::Pop { time_ns, thread, domain, schema, payload } => {
                // a range that was pushed before the window has no beginning here
                let Some(at) = open.pushed.get_mut(&(thread, domain)).and_then(Vec::pop) else { return };
                let range = &mut self.ranges[at];
                range.end = Some(time(time_ns).max(range.start));
                if schema != 0 {
                    (range.schema, range.payload) = (schema, payload);
                }
            }
            RecordingEvent::Start { time_ns, thread, domain, name, id, schema, payload } => {
                open.started.insert(id, self.ranges.len());
                let (start, end) = (time(time_ns), None);
                self.ranges.push(NvtxRange { start, end, thread, domain, name, schema, payload });
            }
            RecordingEvent::Stop { time_ns, id } => {
                if let Some(range) = open.started.remove(&id).and_then(|at| self.ranges.get_mut(at)) {
                    range.end = Some(time(time_ns).max(range.start));
                }
            }
            RecordingEvent::Collective {
                time_ns,
                thread,
                communicator,
                kind,
                function,
                datatype,
                count,
                algorithm,
                protocol,
                channels,
                ..
            } => self.plugin.push(PluginCall {
                time: time(time_ns),
                thread,
                communicator,
                kind,
                function,
                datatype,
                count,
                algorithm,
                protocol,
                channels,
            }),
            _ => {}
        }
    }
}

fn text(bytes: &[u8]) -> String {
    without_controls(&String::from_utf8_lossy(bytes))
}

/// A time within the limit (ns).
fn time(ns: u64) -> i64 {
    ns.min(MOST_TIME) as i64
}

/// Name of a call of the runtime or driver; `None` for one that launches nothing.
pub(super) fn name(runtime: bool, id: u32) -> Option<&'static str> {
    Some(match (runtime, id) {
        (false, 307 | 442) => "cuLaunchKernel",
        (false, 652 | 653) => "cuLaunchKernelEx",
        (false, 477 | 478) => "cuLaunchCooperativeKernel",
        (false, 514 | 515) => "cuGraphLaunch",
        (true, 211 | 214) => "cudaLaunchKernel",
        (true, 430 | 431) => "cudaLaunchKernelExC",
        (true, 269) => "cudaLaunchCooperativeKernel",
        (true, 311 | 312) => "cudaGraphLaunch",
        (true, 41) => "cudaMemcpyAsync",
        (true, 51) => "cudaMemsetAsync",
        (true, 131) => "cudaStreamSynchronize",
        (true, 137) => "cudaEventSynchronize",
        (true, 165) => "cudaDeviceSynchronize",
        _ => return None,
    })
}
