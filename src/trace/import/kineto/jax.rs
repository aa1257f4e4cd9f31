//! JAX traces (XProf's `trace.json.gz`): events without a category, classified by process and thread
//! names.
//!
//! GPU work is on threads named `Stream #20(Compute)` of processes named `/device:GPU:0`. Their thread
//! `Steps` has the numbers of the steps. Other threads of these processes (`XLA Ops`, `XLA Modules`,
//! `Source code`, ...) show the same work again under its names in the program, and are ignored. Names
//! of processes and threads may follow the events, so events are buffered until the whole file is
//! parsed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::assemble::Profiler;
use super::event::{EventArguments, EventClass, GpuCategory, TraceEvent, times};
use super::json::{JsonError, last_integer, unescape};
use super::names::Interner;
use super::table::{Category, EventTable, PART};
use base::error::{Error, Result};

#[derive(Clone, Copy, Debug)]
struct Loose {
    /// Thread: an index into [`Uncategorised::threads`].
    thread: u32,
    /// Name: an index into [`Uncategorised::names`].
    name: u32,
    start_ns: i64,
    end_ns: i64,
    /// -1 if there is none.
    correlation: i64,
    /// Type of memory operation, if the arguments mark a copy or fill.
    memory: Option<GpuCategory>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Uncategorised {
    events: Vec<Loose>,
    names: Interner,
    /// Thread keys: pid, tid.
    threads: Interner,
    process_names: BTreeMap<Box<[u8]>, String>,
    thread_names: BTreeMap<Box<[u8]>, String>,
}

enum Line {
    /// Process, device and number of a GPU stream. The device is unique in the file; the number is in the thread's name.
    Stream([String; 3]),
    /// Device of the steps.
    Steps(String),
    Derived(String),
    /// Process and thread.
    Host([String; 2]),
}

pub(super) fn is_label(name: &[u8]) -> bool {
    matches!(name, b"process_name" | b"thread_name")
}

impl Uncategorised {
    /// Buffers an event of phase X without a category. Returns false if it has no name or time.
    pub(super) fn keep<'a>(
        &mut self,
        event: &TraceEvent<'a>,
        bytes: &'a [u8],
    ) -> Result<bool, JsonError> {
        let (Some(name), Ok((start_ns, end_ns))) = (event.name, times(event)) else { return Ok(false) };
        let mut loose = Loose {
            thread: self.threads.intern(&[event.pid, event.tid].join(&PART)),
            name: self.names.intern(name),
            start_ns,
            end_ns,
            correlation: -1,
            memory: None,
        };
        if let Some(mut cursor) = event.arguments_cursor(bytes) {
            cursor.enter()?;
            while let Some(key) = cursor.key()? {
                let value = cursor.value()?;
                match key {
                    b"correlation_id" => {
                        loose.correlation = value.text().and_then(last_integer).unwrap_or(-1);
                    }
                    b"memcpy_details" => loose.memory = Some(GpuCategory::Memcpy),
                    b"memset_details" => loose.memory = Some(GpuCategory::Memset),
                    _ => {}
                }
            }
        }
        self.events.push(loose);
        Ok(true)
    }

    pub(super) fn label<'a>(
        &mut self,
        event: &TraceEvent<'a>,
        bytes: &'a [u8],
    ) -> Result<(), JsonError> {
        let Some(mut cursor) = event.arguments_cursor(bytes) else { return Ok(()) };
        cursor.enter()?;
        while let Some(key) = cursor.key()? {
            let value = cursor.value()?;
            if let (b"name", Some(text)) = (key, value.text()) {
                let text = unescape(text).0;
                match event.name {
                    Some(b"process_name") => self.process_names.insert(event.pid.into(), text),
                    _ => {
                        let key = [event.pid, event.tid].join(&PART);
                        self.thread_names.insert(key.into(), text)
                    }
                };
            }
        }
        Ok(())
    }

    pub(super) fn merge(&mut self, other: Self) {
        let names = self.names.merge(&other.names);
        let threads = self.threads.merge(&other.threads);
        self.events.extend(other.events.into_iter().map(|event| Loose {
            name: names[event.name as usize],
            thread: threads[event.thread as usize],
            ..event
        }));
        self.process_names.extend(other.process_names);
        self.thread_names.extend(other.thread_names);
    }

    /// Pids of the device processes, ordered by host and device number.
    fn devices(&self) -> BTreeMap<(String, i64), &[u8]> {
        let key = |name: &str| {
            let (host, number) = name.split_once("/device:GPU:")?;
            let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
            Some((host.trim().to_owned(), digits.parse().ok()?))
        };
        self.process_names.iter().filter_map(|(pid, name)| Some((key(name)?, &**pid))).collect()
    }

    fn lines(&self) -> Vec<Line> {
        let devices = self.devices();
        let one_host = devices.keys().map(|(host, _)| host).collect::<BTreeSet<_>>().len() == 1;
        let numbered = devices.iter().enumerate().map(|(at, ((_, number), pid))| {
            // device numbers repeat across hosts
            let number = if one_host { usize::try_from(*number).unwrap_or(at) } else { at };
            (*pid, number)
        });
        let devices: HashMap<&[u8], usize> = numbered.collect();
        let hosts: BTreeSet<&str> = self.process_names.values().filter_map(|name| host(name)).collect();
        // as in merged files, a prefix links launches to the streams of the same host
        let prefix = |pid: &[u8]| {
            let name = self.process_names.get(pid).and_then(|name| host(name));
            hosts.iter().position(|host| Some(*host) == name).unwrap_or(0)
        };
        let line = |key: &[u8]| {
            let mut parts = key.splitn(2, |byte| *byte == PART);
            let (pid, tid) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            let Some(device) = devices.get(pid) else {
                let tid = String::from_utf8_lossy(tid).into_owned();
                return Line::Host([format!("{}_0", prefix(pid)), tid]);
            };
            let name = self.thread_names.get(key).map_or("", String::as_str);
            let digits =
                name.strip_prefix("Stream #").map(|rest| rest.split(|c: char| !c.is_ascii_digit()));
            match digits.and_then(|mut digits| digits.next()?.parse::<i64>().ok()) {
                Some(stream) => {
                    // PyTorch's profiler uses the device number as the pid of GPU processes, too
                    let pid = format!("{}_{device}", prefix(pid));
                    Line::Stream([pid, device.to_string(), stream.to_string()])
                }
                None if name == "Steps" => Line::Steps(device.to_string()),
                None => Line::Derived(name.to_owned()),
            }
        };
        self.threads.texts().into_iter().map(line).collect()
    }

    fn planes(&self) -> Vec<&str> {
        let is_plane = |name: &&str| host(name).is_some();
        self.process_names.values().map(String::as_str).filter(is_plane).collect()
    }
}

/// Host name in a JAX process name: `a` in `a /device:GPU:0`; empty in a file of one host.
fn host(process: &str) -> Option<&str> {
    let (host, _) = process.split_once("/device:").or_else(|| process.split_once("/host:"))?;
    Some(host.trim())
}

pub(super) const JAX: Profiler = Profiler { format: "JAX trace (JSON)", recorder: "xla" };

/// Adds JAX's GPU work and launches to the table. Returns true if the file is from JAX, and an input
/// error for a JAX trace without GPU work or a file in which no event has a category.
pub(super) fn adopt(name: &str, table: &mut EventTable) -> Result<bool> {
    let loose = std::mem::take(&mut table.uncategorised);
    let has_spans = table.used.iter().any(|count| *count > 0);
    if loose.events.is_empty() {
        return Ok(false);
    }
    let planes = loose.planes();
    if planes.is_empty() {
        let all = table.with_phase.saturating_sub(table.phases.values().sum());
        if !has_spans && loose.events.len() as u64 == all {
            return Err(Error::input_help(
                format!(
                    "{name}: none of its {all} events has a category (cat), by which GPU work is recognised"
                ),
                "expected a trace of PyTorch's profiler or of JAX",
            ));
        }
        *table.odd.entry(("event", "no category")).or_default() += loose.events.len() as u64;
        return Ok(false);
    }
    // host names may look like rank labels
    table.labels.clear();
    let names = loose.names.texts();
    let lines = loose.lines();
    let mut left_out: BTreeMap<String, u64> = BTreeMap::new();
    for loose in &loose.events {
        let (name, times) = (names[loose.name as usize], (loose.start_ns, loose.end_ns));
        let correlation = loose.correlation.to_string();
        let arguments =
            EventArguments { correlation: Some(correlation.as_bytes()), ..EventArguments::default() };
        match &lines[loose.thread as usize] {
            Line::Stream([pid, device, stream]) => {
                let event =
                    TraceEvent { name: Some(name), pid: pid.as_bytes(), ..TraceEvent::default() };
                let (device, stream) = (Some(device.as_bytes()), Some(stream.as_bytes()));
                let arguments = EventArguments { device, stream, ..arguments };
                let gpu = loose.memory.unwrap_or_else(|| by_name(name));
                let added = table.span(&event, &arguments, gpu, times, b"");
                debug_assert!(added.is_ok(), "{added:?}");
            }
            // markers count for their own stream only
            Line::Steps(device) if name.iter().all(u8::is_ascii_digit) => {
                let step = [b"step ".as_slice(), name].concat();
                for line in &lines {
                    if let Line::Stream(stream) = line
                        && stream[1] == *device
                    {
                        table.stream_range(stream.each_ref().map(|part| part.as_bytes()), &step, times);
                    }
                }
            }
            Line::Steps(_) => {
                *left_out.entry("Steps (JAX: without a number)".into()).or_default() += 1;
            }
            Line::Host([pid, tid]) if loose.correlation >= 0 => {
                let (pid, tid) = (pid.as_bytes(), tid.as_bytes());
                table.launch(
                    &TraceEvent { name: Some(name), pid, tid, ..TraceEvent::default() },
                    &arguments,
                    times,
                );
            }
            Line::Host(_) => *left_out.entry("host (JAX)".into()).or_default() += 1,
            // it may be a stream or repeat one
            Line::Derived(line) if line.is_empty() => {
                table.note("event", "on a device's thread without a name (JAX)");
            }
            Line::Derived(line) => {
                *left_out.entry(format!("{line} (JAX: the streams' work again)")).or_default() += 1;
            }
        }
    }
    for (line, count) in left_out {
        table.categories.push(Category {
            name: line.into_bytes().into(),
            class: EventClass::Other,
            ignored: count,
        });
    }
    if table.used.iter().all(|count| *count == 0) {
        let what = match planes.iter().find(|plane| plane.contains("/device:TPU")) {
            Some(_) => "cannot import JAX traces of TPUs".to_owned(),
            None => format!("a JAX trace without work on a GPU's streams; it has {}", planes.join(", ")),
        };
        return Err(Error::input_help(
            format!("{name}: {what}"),
            "only JAX traces of GPUs can be read: the threads `Stream #N` of processes `/device:GPU:N`",
        ));
    }
    Ok(true)
}

/// Classifies an event by name: JAX names copies `MemcpyD2D`, `MemcpyH2D`, `MemcpyP2P`, fills `Memset`,
/// and kernels by their function.
fn by_name(name: &[u8]) -> GpuCategory {
    let begins = |text: &str| {
        name.get(..text.len()).is_some_and(|start| start.eq_ignore_ascii_case(text.as_bytes()))
    };
    if begins("memcpy") {
        GpuCategory::Memcpy
    } else if begins("memset") {
        GpuCategory::Memset
    } else {
        GpuCategory::Kernel
    }
}

#[cfg(test)]
mod tests {
    use super::super::{KinetoOptions, import_bytes};
    use crate::Trace;
    use crate::import::tests::warned;

    const STREAM: &str = "Stream #20(Compute)";

    /// A trace of JAX with these processes, threads and events.
    fn trace(
        processes: &[(i64, &str)],
        threads: &[(i64, i64, &str)],
        events: &[impl AsRef<str>],
    ) -> String {
        let process = |(pid, name): &(i64, &str)| {
            format!(
                r#"{{"ph":"M","name":"process_name","pid":{pid},"tid":0,"args":{{"name":"{name}"}}}}"#
            )
        };
        let thread = |(pid, tid, name): &(i64, i64, &str)| {
            format!(
                r#"{{"ph":"M","name":"thread_name","pid":{pid},"tid":{tid},"args":{{"name":"{name}"}}}}"#
            )
        };
        let mut all: Vec<String> = processes.iter().map(process).collect();
        all.extend(threads.iter().map(thread));
        all.extend(events.iter().map(|event| format!("{{{}}}", event.as_ref())));
        format!(r#"{{"displayTimeUnit":"ns","traceEvents":[{},{{}}]}}"#, all.join(","))
    }

    fn event(pid: i64, tid: i64, name: &str, start: &str, duration: &str, args: &str) -> String {
        format!(
            r#""ph":"X","pid":{pid},"tid":{tid},"name":"{name}","ts":{start},"dur":{duration},"args":{{{args}}}"#
        )
    }

    fn read(json: &str) -> Trace {
        let options = KinetoOptions { parsers: 0, piece: 700 };
        import_bytes("jax.trace.json", json.as_bytes(), options).unwrap()
    }

    fn spans(trace: &Trace) -> Vec<(u32, String, String, i64, i64, i64)> {
        let span = |span: &crate::Span| {
            let operation = &trace.operations[span.operation as usize];
            let stream = trace.meta.streams[span.stream as usize].id;
            (
                span.rank,
                operation.kind.to_string(),
                operation.name.clone(),
                stream,
                span.start_ns,
                span.end_ns,
            )
        };
        trace.spans.iter().map(span).collect()
    }

    #[test]
    fn the_streams_of_gpus_are_read_and_their_repetitions_are_not() {
        let processes = [(1, "/device:GPU:0"), (2, "/device:GPU:1"), (701, "/host:CPU")];
        let threads = [
            (1, 20, STREAM),
            (1, 16, "Stream #16(MemcpyD2D,Memset)"),
            (2, 20, STREAM),
            (1, 1, "Steps"),
            (1, 2, "XLA Modules"),
            (1, 3, "XLA Ops"),
            (1, 4, "Source code"),
            (1, 5, "Framework Name Scope"),
            (701, 9, "python"),
        ];
        let all = [
            event(1, 20, "ncclDevKernel_AllReduce_Sum", "10.5", "2.25", r#""correlation_id":"7""#),
            event(1, 16, "MemcpyD2D", "11", "1", r#""hlo_op":"copy.1""#),
            event(1, 16, "loop_copy", "13", "1", r#""memcpy_details":"size:4""#),
            event(1, 16, "Memset", "15", "1", ""),
            event(2, 20, "gemm", "10", "4", ""),
            event(1, 1, "3", "10", "5", ""),
            event(1, 2, "jit_step(1)", "10", "5", ""),
            event(1, 3, "all-reduce.1", "10.5", "2.25", r#""hlo_op":"all-reduce.1""#),
            event(1, 4, "x.py:1", "10.5", "2.25", ""),
            event(1, 5, "layer", "10.5", "2.25", ""),
            event(701, 9, "cuLaunchKernel", "8", "1", r#""correlation_id":"7""#),
            event(701, 9, "$python frame", "1", "90", ""),
        ];
        // the names may come before or after the events
        let ordered = trace(&processes, &threads, &all);
        let (names, events) = ordered.split_at(ordered.find(r#"{"ph":"X""#).unwrap());
        let late = format!(
            r#"{{"traceEvents":[{},{}]}}"#,
            events.trim_end_matches(",{}]}"),
            names.split_once('[').unwrap().1.trim_end_matches(',')
        );
        for json in [ordered.clone(), late] {
            let trace = read(&json);
            assert_eq!(trace.meta.ranks, 2);
            let kind = |rank: u32, kind: &str, name: &str, stream: i64, start: i64, end: i64| {
                (rank, kind.to_owned(), name.to_owned(), stream, start, end)
            };
            assert_eq!(
                spans(&trace),
                [
                    kind(0, "kernel", "ncclDevKernel_AllReduce_Sum", 20, 10_500, 12_750),
                    kind(0, "memcpy", "MemcpyD2D", 16, 11_000, 12_000),
                    kind(0, "memcpy", "loop_copy", 16, 13_000, 14_000),
                    kind(0, "memset", "Memset", 16, 15_000, 16_000),
                    kind(1, "kernel", "gemm", 20, 10_000, 14_000),
                ]
            );
            assert_eq!(trace.spans[0].ready_ns, 9_000, "its launch's end");
            let report = trace.meta.import.unwrap();
            assert_eq!(report.format, "JAX trace (JSON)");
            assert_eq!((report.used["kernel"], report.used["memcpy"], report.used["memset"]), (2, 2, 1));
            assert_eq!(report.ignored["category XLA Ops (JAX: the streams' work again)"], 1);
        }
    }

    #[test]
    fn the_thread_of_steps_numbers_the_work_of_its_device() {
        let processes = [(1, "/device:GPU:0"), (2, "/device:GPU:1")];
        let threads = [
            (1, 16, "Stream #16(MemcpyD2D)"),
            (1, 20, STREAM),
            (2, 20, STREAM),
            (1, 1, "Steps"),
            (2, 1, "Steps"),
        ];
        let all = [
            event(1, 20, "gemm", "10", "4", ""),
            event(1, 16, "MemcpyD2D", "15", "1", ""),
            event(1, 20, "gemm", "20", "4", ""),
            event(2, 20, "gemm", "20", "4", ""),
            event(1, 1, "3", "10", "8", ""),
            event(1, 1, "4", "20", "8", ""),
            event(2, 1, "3", "20", "8", ""),
        ];
        let trace = read(&trace(&processes, &threads, &all));
        let steps: Vec<(u32, i64, u32)> =
            trace.spans.iter().map(|span| (span.rank, span.start_ns / 1000, span.step)).collect();
        assert_eq!(steps, [(0, 10, 3), (0, 15, 3), (1, 20, 3), (0, 20, 4)]);
    }

    #[test]
    fn devices_of_several_hosts_are_ranks_of_their_own() {
        let processes = [
            (1, "a /device:GPU:0"),
            (2, "a /device:GPU:1"),
            (3, "b /device:GPU:0"),
            (4, "b /device:GPU:1"),
        ];
        let threads: Vec<(i64, i64, &str)> = (1..5).map(|pid| (pid, 20, STREAM)).collect();
        let all: Vec<String> =
            (1..5).map(|pid| event(pid, 20, &format!("k{pid}"), "1", "1", "")).collect();
        let trace = read(&trace(&processes, &threads, &all));
        let names: Vec<(u32, String)> = spans(&trace).into_iter().map(|span| (span.0, span.2)).collect();
        let expected: Vec<(u32, String)> = (1..5).map(|pid| (pid - 1, format!("k{pid}"))).collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn work_is_linked_to_the_launches_of_its_own_host_whatever_the_process_ids() {
        let processes = [
            (9, "a /device:GPU:0"),
            (8, "a /device:GPU:1"),
            (7, "b /device:GPU:0"),
            (6, "a /host:CPU"),
            (5, "b /host:CPU"),
        ];
        let threads: Vec<(i64, i64, &str)> = (7..10).map(|pid| (pid, 20, STREAM)).collect();
        let launch = |pid, start: &str, number: u32| {
            event(pid, 1, "cuLaunchKernel", start, "1", &format!(r#""correlation_id":"{number}""#))
        };
        let kernel = |pid, name: &str, number: u32| {
            event(pid, 20, name, "20", "1", &format!(r#""correlation_id":"{number}""#))
        };
        let all = [
            launch(6, "10", 1),
            launch(6, "12", 2),
            launch(5, "14", 1),
            kernel(9, "a0", 1),
            kernel(8, "a1", 2),
            kernel(7, "b0", 1),
        ];
        let trace = read(&trace(&processes, &threads, &all));
        let ready: Vec<(u32, &str, i64)> = trace
            .spans
            .iter()
            .map(|span| {
                let name = trace.operations[span.operation as usize].name.as_str();
                (span.rank, name, span.ready_ns)
            })
            .collect();
        assert_eq!(ready, [(0, "a0", 11_000), (1, "a1", 13_000), (2, "b0", 15_000)]);
    }

    #[test]
    fn long_calls_are_ranges_of_their_threads() {
        let call = |tid, name: &str, start: &str, duration: &str| {
            event(9, tid, name, start, duration, &format!(r#""correlation_id":"{tid}""#))
        };
        let all = [
            event(1, 20, "gemm", "9000", "2", r#""correlation_id":"5""#),
            call(5, "cuLaunchKernel", "10", "2"),
            call(6, "cuStreamSynchronize", "20", "5000"),
            call(7, "cuMemcpyDtoHAsync_v2", "30", "6000"),
        ];
        let processes = [(1, "/device:GPU:0"), (9, "/host:CPU")];
        let trace = read(&trace(&processes, &[(1, 20, STREAM)], &all));
        let ranges: Vec<_> = (trace.ranges.iter())
            .map(|range| {
                let name = trace.meta.range_names[range.name as usize].as_str();
                (name, range.thread, range.start_ns / 1000, range.end_ns / 1000)
            })
            .collect();
        let expected = [("cuStreamSynchronize", 0, 20, 5020), ("cuMemcpyDtoHAsync_v2", 1, 30, 6030)];
        assert_eq!(ranges, expected);
    }

    #[test]
    fn work_of_a_nameless_thread_of_a_device_is_named() {
        let all = [event(1, 20, "gemm", "1", "2", ""), event(1, 21, "ncclDevKernel", "1", "2", "")];
        let trace = read(&trace(&[(1, "/device:GPU:0")], &[(1, 20, STREAM)], &all));
        let said = "1 ignored (event): on a device's thread without a name (JAX)";
        assert!(warned(&trace, said), "{:?}", trace.meta.import);
    }

    #[test]
    fn traces_without_gpu_streams_are_refused_by_name() {
        for (process, thread, words) in [
            ("/device:TPU:0", "XLA Ops", "JAX traces of TPUs"),
            ("/host:CPU", "python", "a JAX trace without work on a GPU's streams; it has /host:CPU"),
            ("/device:GPU:0", "XLA Ops", "a JAX trace without work on a GPU's streams"),
            ("python", "main", "none of its 2 events has a category"),
        ] {
            let one = event(1, 2, "fusion", "1", "1", "");
            let json = trace(&[(1, process)], &[(1, 2, thread)], &[one.as_str(); 2]);
            let error = import_bytes("t.json", json.as_bytes(), KinetoOptions::default()).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
