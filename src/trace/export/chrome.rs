//! Chrome JSON in the format of PyTorch's profiler: events, flow arrows, and annotations.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};

use serde_json::{Value, json};

use crate::overlap::intervals::{TimeInterval, union};
use crate::{
    CollectiveInfo, OperationInfo, OperationKind, ProcessGroup, Range, Span, Trace, TransferDirection,
    is_host_call,
};
use base::text::escaped_json;
use machine::hardware::SIMULATED_GPU;
use plan::{Groups, Lane, Phase};
use table::Provenance;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportedRanks {
    All,
    One(u32),
}

/// Stream numbers of native traces, as PyTorch assigns them.
const COMPUTE: i64 = 7;
const COMM: i64 = 20;
/// Device row of layers and modules.
const MODULES: i64 = 1;
/// Host rows: steps, launches, and the first row of named ranges.
const STEPS: i64 = 1;
const LAUNCHES: i64 = 2;
const RANGES: i64 = 10;
/// Process ids. A rank's first device has the rank's number; further devices and hosts are offset.
const MORE_DEVICES: i64 = 50_000;
const HOSTS: i64 = 100_000;

/// Writes the trace as Chrome JSON. Streams, so memory use does not grow with the trace. Returns an
/// error if writing to `out` fails.
pub fn chrome(trace: &Trace, ranks: ExportedRanks, out: &mut impl Write) -> io::Result<()> {
    let head = serde_json::to_string_pretty(&head(trace, ranks))?;
    let mut head = escaped_json(&head).into_owned();
    // reopen the object: the events are its last entry
    head.truncate(head.trim_end_matches(['}', '\n']).len());
    write!(out, "{head},\n  \"traceEvents\": [")?;
    let (rows, calls) = (rows(trace), calls(trace));
    let ranged = ranged(trace, &calls);
    let mut file = ChromeFile { trace, ranks, rows, calls, ranged, events: Events::new(&mut *out) };
    file.about()?;
    file.ranges()?;
    file.spans()?;
    out.write_all(b"\n]}\n")
}

fn head(trace: &Trace, ranks: ExportedRanks) -> Value {
    let meta = &trace.meta;
    let devices: Vec<Value> = (0..meta.ranks)
        .filter(|rank| ranks.has(*rank))
        .map(|rank| json!({ "id": rank, "name": device_name(trace) }))
        .collect();
    let mut distributed = json!({ "backend": "nccl", "world_size": meta.ranks });
    let only = match ranks {
        ExportedRanks::One(rank) => Some(rank),
        ExportedRanks::All => (meta.ranks == 1).then_some(0),
    };
    if let (Some(rank), Some(object)) = (only, distributed.as_object_mut()) {
        object.insert("rank".into(), rank.into());
    }
    json!({
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
        "traceName": title(trace),
        "deviceProperties": devices,
        "distributedInfo": distributed,
        "ladderscope": {
            "provenance": meta.provenance.as_str(),
            "recorder": meta.recorder,
            "clock": meta.clock,
            "run": meta.run,
            "spec": meta.spec,
            "plan_hashes": meta.plan_hashes,
            "environment": meta.environment,
            "import": meta.import,
        },
    })
}

fn title(trace: &Trace) -> String {
    let meta = &trace.meta;
    match &meta.spec {
        Some(spec) => format!("{} ({})", spec.label(), meta.provenance),
        None => format!("{} ({})", meta.recorder, meta.provenance),
    }
}

fn device_name(trace: &Trace) -> String {
    match (&trace.meta.spec, trace.meta.provenance) {
        // readers must not match a run with changed values to the unchanged profile
        (Some(spec), Provenance::Simulated) if !spec.set.is_empty() => {
            format!("{SIMULATED_GPU}{} (changed)", spec.hardware)
        }
        (Some(spec), Provenance::Simulated) => format!("{SIMULATED_GPU}{}", spec.hardware),
        (Some(spec), _) => spec.backend.as_str().into(),
        (None, _) => "device".into(),
    }
}

impl ExportedRanks {
    fn has(self, rank: u32) -> bool {
        match self {
            Self::All => true,
            Self::One(only) => only == rank,
        }
    }
}

/// Rows of the trace's streams. A second device or context of a rank is a process of its own, because its
/// streams may share numbers with the first.
fn rows(trace: &Trace) -> Vec<ChromeTrack> {
    let mut devices: HashMap<(u32, [Option<i64>; 3]), i64> = HashMap::new();
    let mut first: HashMap<u32, i64> = HashMap::new();
    let mut rows = Vec::new();
    for stream in &trace.meta.streams {
        let new = devices.len() as i64;
        let owner = [stream.process, stream.device, stream.context];
        let at = *devices.entry((stream.rank, owner)).or_insert(new);
        let is_first = *first.entry(stream.rank).or_insert(at) == at;
        let pid = if is_first { stream.rank.into() } else { MORE_DEVICES + at };
        rows.push(ChromeTrack { pid, tid: stream.id });
    }
    rows
}

/// Names of host calls as JSON strings, by index into the range names.
fn calls(trace: &Trace) -> HashMap<u32, String> {
    let calls = trace.meta.range_names.iter().zip(0..).filter(|(name, _)| is_host_call(name));
    calls.map(|(name, at)| (at, quoted(name))).collect()
}

/// Time within any annotation of the host, by rank.
fn ranged(trace: &Trace, calls: &HashMap<u32, String>) -> HashMap<u32, Vec<TimeInterval>> {
    let mut of_rank: HashMap<u32, Vec<TimeInterval>> = HashMap::new();
    let is_annotation = |range: &&Range| !range.on_device && !calls.contains_key(&range.name);
    for range in trace.ranges.iter().filter(is_annotation) {
        of_rank.entry(range.rank).or_default().push((range.start_ns, range.end_ns));
    }
    of_rank.into_iter().map(|(rank, ranges)| (rank, union(ranges))).collect()
}

struct ChromeFile<'a, W> {
    trace: &'a Trace,
    ranks: ExportedRanks,
    rows: Vec<ChromeTrack>,
    calls: HashMap<u32, String>,
    ranged: HashMap<u32, Vec<TimeInterval>>,
    events: Events<W>,
}

impl<W: Write> ChromeFile<'_, W> {
    fn about(&mut self) -> io::Result<()> {
        let provenance = self.trace.meta.provenance;
        let mark = match provenance {
            Provenance::Measured => String::new(),
            other => format!(" ({other})"),
        };
        let mut rows: Vec<(ChromeTrack, String)> = Vec::new();
        for rank in (0..self.trace.meta.ranks).filter(|rank| self.ranks.has(*rank)) {
            let host = host(rank);
            let mut process = |pid: i64, name: String| -> io::Result<()> {
                let row = ChromeTrack { pid, tid: 0 };
                self.events.about("process_name", row, format_args!(r#""name":{}"#, quoted(&name)))?;
                let label = quoted(provenance.as_str());
                self.events.about("process_labels", row, format_args!(r#""labels":{label}"#))?;
                let sort = 2 * i64::from(rank) + i64::from(pid >= HOSTS);
                self.events.about("process_sort_index", row, format_args!(r#""sort_index":{sort}"#))
            };
            let streams = self.trace.meta.streams.iter().zip(&self.rows).filter(|(s, _)| s.rank == rank);
            let mut pids = vec![i64::from(rank)];
            for (stream, row) in streams {
                if !pids.contains(&row.pid) {
                    pids.push(row.pid);
                }
                rows.push((*row, stream.label()));
            }
            for pid in pids {
                process(pid, format!("rank {rank}{mark}"))?;
            }
            process(host, format!("rank {rank} host{mark}"))?;
            if self.trace.meta.streams.is_empty() {
                let pid = rank.into();
                rows.push((ChromeTrack { pid, tid: MODULES }, "layers and modules".into()));
                rows.push((ChromeTrack { pid, tid: COMPUTE }, format!("stream {COMPUTE}: compute")));
                rows.push((ChromeTrack { pid, tid: COMM }, format!("stream {COMM}: comm")));
            }
            rows.push((ChromeTrack { pid: host, tid: STEPS }, "steps".into()));
            rows.push((ChromeTrack { pid: host, tid: LAUNCHES }, "launches".into()));
        }
        for (row, name) in rows {
            self.events.about("thread_name", row, format_args!(r#""name":{}"#, quoted(&name)))?;
            self.events.about("thread_sort_index", row, format_args!(r#""sort_index":{}"#, row.tid))?;
        }
        Ok(())
    }

    fn ranges(&mut self) -> io::Result<()> {
        let names: Vec<String> = self.trace.meta.range_names.iter().map(|name| quoted(name)).collect();
        for range in self.trace.ranges.iter().filter(|range| self.ranks.has(range.rank)) {
            let Some(name) = names.get(range.name as usize) else { continue };
            let row = ChromeTrack { pid: host(range.rank), tid: RANGES + i64::from(range.thread) };
            let times = (range.start_ns, range.end_ns);
            if range.on_device {
                let row = ChromeTrack { pid: range.rank.into(), ..row };
                self.events.complete(("gpu_user_annotation", name), row, times, format_args!(""))?;
                continue;
            }
            let is_call = self.calls.contains_key(&range.name);
            let cat = if is_call { "cuda_runtime" } else { "user_annotation" };
            self.events.complete((cat, name), row, times, format_args!(""))?;
        }
        Ok(())
    }

    fn spans(&mut self) -> io::Result<()> {
        let own = self.trace.meta.import.is_none();
        let operations = self.trace.operations.iter();
        let events: Vec<OperationEvent> =
            operations.map(|operation| OperationEvent::new(operation, self.trace, own)).collect();
        let awaited = awaited(&self.trace.operations);
        let steps = own && !has_steps(self.trace);
        let key = |span: &Span| (span.sample, span.phase, span.step);
        let (mut correlation, mut arrow, mut number) = (0, 0, 0_u64);
        // sample of each rank's latest step, and the end of its work
        let mut idle_from: HashMap<u32, (u32, i64)> = HashMap::new();
        for step in self.trace.spans.chunk_by(|a, b| key(a) == key(b)) {
            for spans in step.chunk_by(|a, b| a.rank == b.rank) {
                let rank = spans.first().map_or(0, |span| span.rank);
                if !self.ranks.has(rank) {
                    continue;
                }
                let sample = spans.first().map_or(0, |span| span.sample);
                let free_ns =
                    idle_from.get(&rank).filter(|before| before.0 == sample).map(|before| before.1);
                let launches = launches(spans, &events, free_ns);
                if steps {
                    self.step(spans, &launches, number)?;
                }
                if own {
                    let row = ChromeTrack { pid: rank.into(), tid: MODULES };
                    for passage in passages(spans, &self.trace.operations) {
                        let name = quoted(&passage.name);
                        let times = (passage.start_ns, passage.end_ns);
                        let cat_name = ("gpu_user_annotation", name.as_str());
                        self.events.complete(cat_name, row, times, format_args!(""))?;
                    }
                }
                for (span, launched_ns) in spans.iter().zip(launches) {
                    correlation += 1;
                    if let Some(event) = events.get(span.operation as usize) {
                        self.span(span, launched_ns, event, correlation)?;
                    }
                }
                if let Some((_, end_ns)) = extent(spans) {
                    idle_from.insert(rank, (sample, end_ns));
                }
                for (producer, consumer) in flows(spans, &awaited) {
                    arrow += 1;
                    let from = (self.row(producer), producer.start_ns);
                    let to = (self.row(consumer), consumer.start_ns);
                    self.events.arrow(("reduced", arrow), from, to)?;
                }
            }
            number += 1;
        }
        Ok(())
    }

    fn step(&mut self, spans: &[Span], launches: &[i64], number: u64) -> io::Result<()> {
        let (Some(first), Some((start_ns, end_ns))) = (spans.first(), extent(spans)) else {
            return Ok(());
        };
        let times = (launches.iter().fold(start_ns, |first, launch| first.min(*launch)), end_ns);
        let name = quoted(&format!("ProfilerStep#{number}"));
        let row = ChromeTrack { pid: host(first.rank), tid: STEPS };
        let what = quoted(&step_name(first));
        let args = format_args!(r#""step":{what},"sample":{}"#, first.sample);
        self.events.complete(("user_annotation", &name), row, times, args)
    }

    /// Writes a span: the execution on the device, and the launch on the host, which ends at `launched_ns`.
    /// Skips the launch if an imported trace did not record it.
    fn span(
        &mut self,
        span: &Span,
        launched_ns: i64,
        event: &OperationEvent,
        correlation: u64,
    ) -> io::Result<()> {
        let row = self.row(span);
        let stream = self.trace.meta.streams.get(usize::from(span.stream));
        let device = stream.and_then(|stream| stream.device).unwrap_or_else(|| span.rank.into());
        let arrival = (span.last_arrival_ns != -1).then_some(span.last_arrival_ns);
        let arrival =
            arrival.map_or(String::new(), |ns| format!(r#","last arrival":{}"#, Micros::at(ns)));
        let sequence = (span.sequence != Span::NO_SEQUENCE).then_some(span.sequence);
        let sequence = sequence.map_or(String::new(), |number| format!(r#","Seq":{number}"#));
        self.events.complete(
            (event.cat, &event.name),
            row,
            (span.start_ns, span.end_ns),
            format_args!(
                r#""device":{device},"stream":{},"correlation":{correlation}{}{arrival}{sequence}"#,
                row.tid, event.args
            ),
        )?;
        if self.trace.meta.import.is_some() && !span.is_launch_known() {
            return Ok(());
        }
        // the call begins where readers find the launch's range: on its row and in it, or before all of them
        let range = self.trace.ranges.get(span.launched.range as usize);
        let (tid, begin_ns) = match range {
            Some(range) => {
                let last = range.end_ns.saturating_sub(1).max(range.start_ns);
                (RANGES + i64::from(range.thread), launched_ns.clamp(range.start_ns, last))
            }
            None => (LAUNCHES, self.outside_ns(span.rank, launched_ns)),
        };
        let call = self.calls.get(&span.launched.operator);
        // the call began later: readers must not take it for one that blocked the host
        let stretched = if begin_ns < launched_ns { r#","stretched":true"# } else { "" };
        self.events.complete(
            ("cuda_runtime", call.map_or(event.launch, String::as_str)),
            ChromeTrack { pid: host(span.rank), tid },
            (begin_ns, launched_ns.max(begin_ns)),
            format_args!(r#""correlation":{correlation}{stretched}"#),
        )
    }

    /// Latest time up to `at_ns` outside all annotations of a rank's host.
    fn outside_ns(&self, rank: u32, at_ns: i64) -> i64 {
        let ranged = self.ranged.get(&rank).map_or(&[][..], Vec::as_slice);
        let after = ranged.partition_point(|(start, _)| *start <= at_ns);
        match after.checked_sub(1).and_then(|at| ranged.get(at)) {
            Some((start, end)) if *end > at_ns => start.saturating_sub(1).min(at_ns),
            _ => at_ns,
        }
    }

    fn row(&self, span: &Span) -> ChromeTrack {
        let own = match span.lane {
            Lane::Compute => COMPUTE,
            Lane::Comm => COMM,
        };
        let stream = self.rows.get(usize::from(span.stream)).copied();
        stream.unwrap_or(ChromeTrack { pid: span.rank.into(), tid: own })
    }
}

fn host(rank: u32) -> i64 {
    HOSTS + i64::from(rank)
}

struct OperationEvent {
    cat: &'static str,
    /// Operation name as a JSON string, with quotes.
    name: String,
    launch: &'static str,
    /// True for a receive of an own trace, which has no length: the rank waits for another stage until it ends.
    is_receive: bool,
    /// Further arguments, each with a leading comma.
    args: String,
}

impl OperationEvent {
    fn new(operation: &OperationInfo, trace: &Trace, own: bool) -> Self {
        let (cat, launch) = match operation.kind {
            OperationKind::Memcpy => ("gpu_memcpy", "\"cudaMemcpyAsync\""),
            OperationKind::Memset => ("gpu_memset", "\"cudaMemsetAsync\""),
            _ => ("kernel", "\"cudaLaunchKernel\""),
        };
        if !own {
            let arguments_of = |info: &CollectiveInfo| {
                let group = info.group.and_then(|group| trace.meta.groups.get(group as usize));
                collective(info, group)
            };
            let args = operation.collective.as_ref().map_or(String::new(), arguments_of);
            return Self { cat, launch, name: quoted(&operation.name), is_receive: false, args };
        }
        let is_receive = operation.kind == OperationKind::Receive;
        let name = match operation.lane {
            _ if is_receive => format!("ncclDevKernel_Recv({})", operation.name),
            Lane::Comm => {
                format!("ncclDevKernel_{}({})", camel(operation.kind.as_str()), operation.name)
            }
            Lane::Compute => operation.name.clone(),
        };
        let mut args = format!(
            r#","operation":{},"kind":{},"shape":{}"#,
            quoted(&operation.name),
            quoted(operation.kind.as_str()),
            quoted(&operation.shape)
        );
        if !operation.origins.is_empty() {
            args += &format!(r#","origins":{}"#, quoted(&operation.origins.join(" ")));
        }
        args.extend(message(operation, trace).map(|info| collective(&info, None)));
        Self { cat, launch, name: quoted(&name), is_receive, args }
    }
}

/// Message of a collective of an own trace, of the phase's first step; `None` if micro-batches differ in their rows.
fn message(operation: &OperationInfo, trace: &Trace) -> Option<CollectiveInfo> {
    let step = trace.step(&Span { phase: operation.phase, step: 0, ..Span::EMPTY })?;
    let spec = trace.meta.spec.as_ref()?;
    let groups = Groups::new(operation.phase, spec.sequences_of_rank(), spec.micro_batches);
    let of_group = |group| operation.cost.message_bytes.at(&step.of_group(groups, group));
    // an operation does not name its group; the first has the most rows, the last the fewest
    let [bytes, fewest] = [0, groups.count - 1].map(of_group);
    (bytes > 0 && bytes == fewest).then(|| CollectiveInfo {
        name: operation.kind.to_string(),
        in_elements: Some(bytes),
        dtype: "uint8".into(),
        ..CollectiveInfo::default()
    })
}

/// Launch times of a rank's spans of one step: when they were ready. A receive is launched when the rank has nothing
/// else to do, so that readers see a wait for communication, not for the host; `free_ns` is the end of the
/// generation's earlier steps.
fn launches(spans: &[Span], events: &[OperationEvent], free_ns: Option<i64>) -> Vec<i64> {
    let mut free_ns = free_ns;
    let launches = spans.iter().map(|span| {
        let is_receive = events.get(span.operation as usize).is_some_and(|event| event.is_receive);
        let posted_ns = free_ns.filter(|_| is_receive).map(|free| free.min(span.ready_ns));
        if span.lane == Lane::Compute {
            free_ns = Some(free_ns.map_or(span.end_ns, |free| free.max(span.end_ns)));
        }
        posted_ns.unwrap_or(span.ready_ns)
    });
    launches.collect()
}

/// Collective arguments in the format of PyTorch's profiler, each with a leading comma.
fn collective(info: &CollectiveInfo, group: Option<&ProcessGroup>) -> String {
    let mut args = format!(r#","Collective name":{}"#, quoted(&info.name));
    for (key, elements) in [("In msg nelems", info.in_elements), ("Out msg nelems", info.out_elements)] {
        args.extend(elements.map(|elements| format!(r#","{key}":{elements}"#)));
    }
    for (key, text) in
        [("dtype", &info.dtype), ("Algorithm", &info.algorithm), ("Protocol", &info.protocol)]
    {
        if !text.is_empty() {
            args += &format!(r#","{key}":{}"#, quoted(text));
        }
    }
    args.extend(info.channels.map(|channels| format!(r#","Channels":{channels}"#)));
    let peer = match info.direction() {
        Some(TransferDirection::Receive) => "Src Rank",
        _ => "Dst Rank",
    };
    args.extend(info.peer.map(|rank| format!(r#","{peer}":{rank}"#)));
    if let Some(group) = group {
        args += &format!(
            r#","Process Group Name":{},"Process Group Description":{},"Process Group Ranks":"{:?}","Group size":{}"#,
            quoted(&group.name),
            quoted(&group.description),
            group.ranks,
            group.size
        );
    }
    args
}

/// Converts `all_reduce` to NCCL's spelling, `AllReduce`.
fn camel(kind: &str) -> String {
    kind.split('_')
        .map(|word| {
            let mut letters = word.chars();
            letters.next().map(|first| first.to_uppercase().chain(letters).collect::<String>())
        })
        .map(Option::unwrap_or_default)
        .collect()
}

/// Time in ns, displayed in microseconds with three decimals and never converted to a float.
#[derive(Clone, Copy, Debug)]
pub(super) struct Micros(pub(super) i128);

impl Micros {
    pub(super) fn at(ns: i64) -> Self {
        Self(ns.into())
    }

    /// Duration between two times; may exceed the range of i64.
    pub(super) fn between(start_ns: i64, end_ns: i64) -> Self {
        Self(i128::from(end_ns) - i128::from(start_ns))
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, ns) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        write!(f, "{sign}{}.{:03}", ns / 1000, ns % 1000)
    }
}

/// Encodes text as a JSON string, with quotes.
pub(super) fn quoted(text: &str) -> String {
    // serializing a string cannot fail
    serde_json::to_string(text).map_or_else(|_| "\"\"".into(), |json| escaped_json(&json).into_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChromeTrack {
    pub(super) pid: i64,
    pub(super) tid: i64,
}

pub(super) struct Events<W> {
    out: W,
    first: bool,
}

impl<W: Write> Events<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, first: true }
    }

    /// Writes an event with a duration. `name` is [`quoted`]; `args` is the body of a JSON object.
    pub(super) fn complete(
        &mut self,
        (cat, name): (&str, &str),
        row: ChromeTrack,
        (start_ns, end_ns): (i64, i64),
        args: fmt::Arguments<'_>,
    ) -> io::Result<()> {
        let (ts, dur) = (Micros::at(start_ns), Micros::between(start_ns, end_ns));
        self.comma()?;
        write!(
            self.out,
            r#"{{"ph":"X","cat":"{cat}","name":{name},"pid":{},"tid":{},"ts":{ts},"dur":{dur},"args":{{{args}}}}}"#,
            row.pid, row.tid
        )
    }

    pub(super) fn arrow(
        &mut self,
        (cat, id): (&str, u64),
        from: (ChromeTrack, i64),
        to: (ChromeTrack, i64),
    ) -> io::Result<()> {
        for (ph, (row, at)) in [(r#""s""#, from), (r#""f","bp":"e""#, to)] {
            self.comma()?;
            write!(
                self.out,
                r#"{{"ph":{ph},"id":{id},"cat":"{cat}","name":"{cat}","pid":{},"tid":{},"ts":{}}}"#,
                row.pid,
                row.tid,
                Micros::at(at)
            )?;
        }
        Ok(())
    }

    pub(super) fn about(
        &mut self,
        what: &str,
        row: ChromeTrack,
        args: fmt::Arguments<'_>,
    ) -> io::Result<()> {
        self.comma()?;
        write!(
            self.out,
            r#"{{"ph":"M","name":"{what}","pid":{},"tid":{},"ts":0,"args":{{{args}}}}}"#,
            row.pid, row.tid
        )
    }

    fn comma(&mut self) -> io::Result<()> {
        let before: &[u8] = if std::mem::take(&mut self.first) { b"\n" } else { b",\n" };
        self.out.write_all(before)
    }
}

/// Collectives that each operation waits for.
fn awaited(operations: &[OperationInfo]) -> Vec<Vec<u32>> {
    let is_comm = |of: &u32| operations.get(*of as usize).is_some_and(|of| of.lane == Lane::Comm);
    operations
        .iter()
        .map(|operation| operation.waits_for.iter().copied().filter(is_comm).collect())
        .collect()
}

/// Collectives with their consumers, in one step of one rank.
fn flows<'a>(spans: &'a [Span], awaited: &[Vec<u32>]) -> Vec<(&'a Span, &'a Span)> {
    let collectives = spans.iter().filter(|span| span.lane == Lane::Comm);
    let producers: HashMap<u32, &Span> = collectives.map(|span| (span.operation, span)).collect();
    let mut pairs = Vec::new();
    // communication spans that wait for a collective wait for its buffer, not its result
    for consumer in spans.iter().filter(|span| span.lane == Lane::Compute) {
        let awaited = awaited.get(consumer.operation as usize).into_iter().flatten();
        pairs.extend(awaited.filter_map(|of| Some((*producers.get(of)?, consumer))));
    }
    pairs
}

pub(super) fn has_steps(trace: &Trace) -> bool {
    trace.meta.range_names.iter().any(|name| name.starts_with("ProfilerStep#"))
}

/// Earliest ready time and latest end of a step's spans (ns).
pub(super) fn extent(spans: &[Span]) -> Option<(i64, i64)> {
    let start = spans.iter().map(|span| span.ready_ns.min(span.start_ns)).min()?;
    let end = spans.iter().map(|span| span.end_ns).max()?;
    Some((start, end))
}

/// Display name of a step: `prefill`, `decode 7`.
pub(super) fn step_name(span: &Span) -> String {
    match span.phase {
        Phase::Prefill => "prefill".into(),
        Phase::Decode => format!("decode {}", span.step),
    }
}

pub(super) struct Passage {
    pub(super) name: String,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
}

/// Layers, then modules, that the compute lane executed in these spans of one step on one rank.
pub(super) fn passages(spans: &[Span], operations: &[OperationInfo]) -> Vec<Passage> {
    let operation_of = |span: &Span| operations.get(span.operation as usize);
    let layer = |span: &Span| operation_of(span).and_then(|o| o.layer).map(|layer| format!("L{layer}"));
    let module = |span: &Span| {
        let operation = operation_of(span).filter(|o| !o.module.is_empty())?;
        Some(match operation.layer {
            Some(layer) => format!("L{layer}/{}", operation.module),
            None => operation.module.clone(),
        })
    };
    let mut found = runs(spans, layer);
    found.append(&mut runs(spans, module));
    found
}

/// Groups of consecutive compute spans with equal names.
fn runs(spans: &[Span], name: impl Fn(&Span) -> Option<String>) -> Vec<Passage> {
    let computes = spans.iter().filter(|span| span.lane == Lane::Compute);
    let named: Vec<(Option<String>, &Span)> = computes.map(|span| (name(span), span)).collect();
    let passage = |run: &[(Option<String>, &Span)]| {
        let end_ns = run.iter().map(|(_, span)| span.end_ns).max()?;
        Some(Passage { name: run[0].0.clone()?, start_ns: run[0].1.start_ns, end_ns })
    };
    named.chunk_by(|a, b| a.0 == b.0).filter_map(passage).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_even_at_the_ends_of_the_clock() {
        for (ns, text) in [
            (0, "0.000"),
            (1, "0.001"),
            (-1, "-0.001"),
            (1_234_567, "1234.567"),
            (-1_000, "-1.000"),
            (i64::MAX, "9223372036854775.807"),
            (i64::MIN, "-9223372036854775.808"),
        ] {
            assert_eq!(Micros::at(ns).to_string(), text);
        }
        assert_eq!(Micros::between(i64::MIN, i64::MAX).to_string(), "18446744073709551.615");
    }
}
