//! rocprofv3 JSON: kernel dispatches, memory copies, and the host calls that launched them.
//!
//! Each process and agent (GPU) with kernels is a rank. The file is parsed as a stream; only used
//! records stay in memory, about 60 bytes each.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::BufReader;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use super::assemble::Profiler;
use super::event::{EventArguments, GpuCategory, TraceEvent};
use super::open::{FileEvents, KinetoOptions, Metadata, Open};
use super::table::EventTable;
use base::error::{Error, Result};

/// Type code of GPU agents in rocprofiler.
const GPU: u32 = 2;

/// Inverse of the minimum number of kernels on a rank's GPU, relative to the busiest one of the process.
const STRAY: usize = 20;

#[derive(Deserialize)]
struct File {
    #[serde(rename = "rocprofiler-sdk-tool")]
    processes: Vec<Process>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Process {
    metadata: About,
    agents: Vec<Agent>,
    strings: Strings,
    kernel_symbols: Vec<Symbol>,
    buffer_records: Records,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct About {
    pid: i64,
    node: Node,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Node {
    hostname: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default)]
struct Id {
    handle: u64,
}

#[derive(Deserialize)]
struct Agent {
    id: Id,
    #[serde(default, rename = "type")]
    kind: u32,
    #[serde(default)]
    product_name: String,
    #[serde(default)]
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Strings {
    buffer_records: Vec<Kind>,
}

impl Strings {
    fn name(&self, kind: usize, operation: usize) -> Option<&str> {
        self.buffer_records.get(kind)?.operations.get(operation).map(String::as_str)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Kind {
    operations: Vec<String>,
}

#[derive(Deserialize)]
struct Symbol {
    kernel_id: u64,
    #[serde(default)]
    formatted_kernel_name: String,
    #[serde(default)]
    demangled_kernel_name: String,
    #[serde(default)]
    kernel_name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Records {
    kernel_dispatch: Vec<Dispatch>,
    memory_copy: Vec<MemoryCopy>,
    hip_api: Vec<Call>,
    hsa_api: Vec<Call>,
    /// Counted only.
    marker_api: Vec<IgnoredAny>,
    /// Counted only.
    rccl_api: Vec<IgnoredAny>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Correlation {
    internal: i64,
}

#[derive(Deserialize)]
struct Dispatch {
    #[serde(default)]
    correlation_id: Correlation,
    start_timestamp: i64,
    end_timestamp: i64,
    dispatch_info: DispatchInfo,
    #[serde(default)]
    stream_id: Id,
}

#[derive(Deserialize)]
struct DispatchInfo {
    agent_id: Id,
    #[serde(default)]
    queue_id: Id,
    kernel_id: u64,
}

#[derive(Deserialize)]
struct MemoryCopy {
    #[serde(default)]
    kind: usize,
    #[serde(default)]
    operation: usize,
    #[serde(default)]
    correlation_id: Correlation,
    start_timestamp: i64,
    end_timestamp: i64,
    #[serde(default)]
    dst_agent_id: Id,
    #[serde(default)]
    src_agent_id: Id,
    #[serde(default)]
    stream_id: Id,
}

#[derive(Deserialize)]
struct Call {
    #[serde(default)]
    kind: usize,
    #[serde(default)]
    operation: usize,
    #[serde(default)]
    thread_id: i64,
    #[serde(default)]
    correlation_id: Correlation,
    start_timestamp: i64,
    end_timestamp: i64,
}

const PROFILER: Profiler = Profiler { format: "rocprofv3 JSON", recorder: "rocprofv3" };

/// Parses a file into an unlinked table. Returns an input error if the JSON is truncated or not from
/// rocprofv3, or has no kernels.
pub(super) fn read(name: &str, open: &Open<'_>, _: KinetoOptions) -> Result<FileEvents> {
    let reader = BufReader::with_capacity(1 << 20, open()?.bytes);
    let file: File = serde_json::from_reader(reader).map_err(|error| {
        let help = "record it again, or copy it again if it was cut off; expected the JSON of `rocprofv3 --output-format json`";
        Error::input_help(format!("{name}: not a readable rocprofv3 trace: {error}"), help)
    })?;
    let kernels: usize =
        file.processes.iter().map(|process| process.buffer_records.kernel_dispatch.len()).sum();
    if kernels == 0 {
        return Err(Error::input_help(
            format!("{name}: a rocprofv3 trace without kernel dispatches"),
            "record with `rocprofv3 --kernel-trace --memory-copy-trace --output-format json`",
        ));
    }
    let mut metadata = Metadata::default();
    let mut events = Events::default();
    let mut gpus = Vec::new();
    for (at, process) in file.processes.iter().enumerate() {
        let used = agents_of_ranks(process);
        for agent in process.agents.iter().filter(|agent| used.contains(&agent.id)) {
            let name = if agent.product_name.is_empty() { &agent.name } else { &agent.product_name };
            gpus.push(json!({ "index": gpus.len(), "name": name }));
        }
        if !process.metadata.node.hostname.is_empty() {
            metadata.environment.insert("host".into(), process.metadata.node.hostname.clone().into());
        }
        events.process(at, process, &used);
    }
    metadata.environment.insert("gpus".into(), gpus.into());
    let warnings = std::mem::take(&mut events.warnings);
    Ok(FileEvents { profiler: PROFILER, table: events.table, metadata, warnings })
}

/// GPUs that count as ranks: those with kernels, except for a few strays of a process that works on another GPU.
fn agents_of_ranks(process: &Process) -> BTreeSet<Id> {
    let is_library = |kernel: &&Symbol| symbol(kernel).to_ascii_lowercase().contains("ccl");
    let collectives: HashSet<u64> =
        process.kernel_symbols.iter().filter(is_library).map(|kernel| kernel.kernel_id).collect();
    // number of kernels, and true if any is a collective
    let mut agents: BTreeMap<Id, (usize, bool)> = BTreeMap::new();
    for kernel in &process.buffer_records.kernel_dispatch {
        let info = &kernel.dispatch_info;
        let (count, has_collective) = agents.entry(info.agent_id).or_default();
        *count += 1;
        *has_collective |= collectives.contains(&info.kernel_id);
    }
    let most = agents.values().map(|(count, _)| *count).max().unwrap_or_default();
    agents.retain(|_, (count, has_collective)| *has_collective || *count * STRAY >= most);
    agents.into_keys().collect()
}

#[derive(Default)]
struct Events {
    table: EventTable,
    ranks: usize,
    warnings: Vec<String>,
}

impl Events {
    fn process(&mut self, at: usize, process: &Process, used: &BTreeSet<Id>) {
        let records = &process.buffer_records;
        // as in merged files, a prefix links launches to the streams of the same process
        let pid = format!("{at}_{}", process.metadata.pid);
        // agent handles ascend with device numbers
        let ranks: BTreeMap<Id, usize> = used.iter().copied().zip(self.ranks..).collect();
        self.ranks += ranks.len();
        let gpus: BTreeSet<Id> =
            process.agents.iter().filter(|agent| agent.kind == GPU).map(|agent| agent.id).collect();
        let names: HashMap<u64, &str> =
            process.kernel_symbols.iter().map(|s| (s.kernel_id, symbol(s))).collect();
        // older versions do not record HIP streams: all work has stream 0, so use the queue
        let has_streams = records.kernel_dispatch.iter().any(|kernel| kernel.stream_id.handle != 0);
        let mut nameless = 0;
        for kernel in &records.kernel_dispatch {
            let info = &kernel.dispatch_info;
            let Some(rank) = ranks.get(&info.agent_id) else {
                self.table.events += 1;
                self.table.note(
                    "kernel",
                    "on another GPU of its process, with hardly any work and no collective",
                );
                continue;
            };
            let stream = if has_streams { kernel.stream_id.handle } else { info.queue_id.handle };
            let name = names.get(&info.kernel_id).copied().filter(|name| !name.is_empty());
            nameless += u64::from(name.is_none());
            let name = name.map_or_else(
                || format!("kernel {} (its name is missing)", info.kernel_id),
                str::to_owned,
            );
            let time = (kernel.start_timestamp, kernel.end_timestamp);
            let on = (pid.as_str(), *rank, stream);
            self.work(GpuCategory::Kernel, &name, time, kernel.correlation_id, on);
        }
        let mut elsewhere = 0_u64;
        for copy in &records.memory_copy {
            // prefer the GPU that has kernels; between GPU and host, the GPU
            let ends = [copy.dst_agent_id, copy.src_agent_id];
            let agent = ends.iter().find(|end| ranks.contains_key(end));
            let Some(agent) = agent else {
                elsewhere += 1;
                continue;
            };
            let name = process.strings.name(copy.kind, copy.operation).unwrap_or("MEMORY_COPY");
            let time = (copy.start_timestamp, copy.end_timestamp);
            let on = (pid.as_str(), ranks[agent], copy.stream_id.handle);
            self.work(GpuCategory::Memcpy, name, time, copy.correlation_id, on);
        }
        for call in records
            .hip_api
            .iter()
            .chain(&records.hsa_api)
            .filter(|call| call.correlation_id.internal > 0)
        {
            let time = (call.start_timestamp, call.end_timestamp);
            let name = process.strings.name(call.kind, call.operation).unwrap_or("call");
            let (name, tid) = (escaped(name), call.thread_id.to_string());
            let (pid, tid) = (pid.as_bytes(), tid.as_bytes());
            let event = TraceEvent { name: Some(name.as_bytes()), pid, tid, ..TraceEvent::default() };
            let correlation = call.correlation_id.internal.to_string();
            let correlation = Some(correlation.as_bytes());
            if self.takes("launch", time) {
                self.table.launch(
                    &event,
                    &EventArguments { correlation, ..EventArguments::default() },
                    time,
                );
            }
        }
        let (markers, library) = (&records.marker_api, &records.rccl_api);
        let ignored = [("marker_api", markers.len()), ("rccl_api", library.len())];
        for (name, count) in ignored.into_iter().filter(|(_, count)| *count > 0) {
            let category = self.table.category(name.as_bytes());
            self.table.categories[category].ignored += count as u64;
            self.table.events += count as u64;
        }
        if nameless > 0 {
            self.warnings.push(format!("{nameless} kernels have no name in kernel_symbols"));
        }
        if elsewhere > 0 {
            let gpus = gpus.len();
            self.warnings.push(format!(
                "{elsewhere} copies ignored: neither end is a GPU with kernels (process {} sees {gpus} GPUs)",
                process.metadata.pid
            ));
        }
    }

    fn work(
        &mut self,
        gpu: GpuCategory,
        name: &str,
        time: (i64, i64),
        correlation: Correlation,
        (pid, device, stream): (&str, usize, u64),
    ) {
        let (name, correlation) = (escaped(name), correlation.internal.to_string());
        let (device, stream) = (device.to_string(), stream.to_string());
        let event =
            TraceEvent { name: Some(name.as_bytes()), pid: pid.as_bytes(), ..TraceEvent::default() };
        let arguments = EventArguments {
            device: Some(device.as_bytes()),
            stream: Some(stream.as_bytes()),
            correlation: Some(correlation.as_bytes()),
            ..EventArguments::default()
        };
        if self.takes(gpu.as_str(), time) {
            let added = self.table.span(&event, &arguments, gpu, time, b"");
            debug_assert!(added.is_ok(), "{added:?}");
        }
    }

    /// Counts an event; false if it ends before it starts.
    fn takes(&mut self, what: &'static str, (start, end): (i64, i64)) -> bool {
        self.table.events += 1;
        if end < start {
            self.table.note(what, "ending before its start");
        }
        end >= start
    }
}

/// Escapes a name as JSON has it: the table unescapes all names.
fn escaped(name: &str) -> String {
    let quoted = serde_json::Value::from(name).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Kernel name without the suffix of a clone.
fn symbol(symbol: &Symbol) -> &str {
    let names = [&symbol.formatted_kernel_name, &symbol.demangled_kernel_name, &symbol.kernel_name];
    names.into_iter().find(|name| !name.is_empty()).map_or("", |name| name.trim_end_matches(".kd"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::open::import_as;
    use crate::Trace;
    use crate::import::tests::{import_report, warned};
    use base::error::Result;

    fn kernel(agent: u64, stream: u64, id: u64, correlation: i64, start: i64, end: i64) -> Value {
        json!({
            "kind": 1, "operation": 2, "thread_id": 3, "correlation_id": {"internal": correlation, "external": 0},
            "start_timestamp": start, "end_timestamp": end,
            "dispatch_info": {"agent_id": {"handle": agent}, "queue_id": {"handle": 16}, "kernel_id": id, "dispatch_id": 1},
            "stream_id": {"handle": stream}
        })
    }

    fn process(pid: i64, kernels: &[Value], copies: &[Value], calls: &[Value]) -> Value {
        let agent = |handle: u64, kind: u32| json!({"id": {"handle": handle}, "type": kind, "product_name": "MI300X"});
        json!({
            "metadata": {"pid": pid, "node": {"hostname": "node0"}},
            "agents": [agent(1, 1), agent(2, 2), agent(3, 2), agent(4, 2)],
            "strings": {"buffer_records": [{"kind": "NONE", "operations": []},
                {"kind": "MEMORY_COPY", "operations": ["MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_DEVICE"]}]},
            "kernel_symbols": [
                {"kernel_id": 0},
                {"kernel_id": 8, "kernel_name": "_Z4gemmv.kd", "formatted_kernel_name": "gemm(\"a\\b\")"},
                {"kernel_id": 9, "kernel_name": "ncclDevKernel_Generic_4.kd"}
            ],
            "buffer_records": {"kernel_dispatch": kernels, "memory_copy": copies, "hip_api": calls}
        })
    }

    fn read(processes: &[Value]) -> Result<Trace> {
        let text = json!({ "rocprofiler-sdk-tool": processes }).to_string();
        import_as("r.json", || text.as_bytes(), super::read)
    }

    #[test]
    fn kernels_copies_and_launches_are_read_to_the_nanosecond() {
        let copy = json!({
            "kind": 1, "operation": 1, "correlation_id": {"internal": 5}, "start_timestamp": 50, "end_timestamp": 61,
            "dst_agent_id": {"handle": 2}, "src_agent_id": {"handle": 1}, "bytes": 64
        });
        let call = json!({
            "kind": 2, "operation": 7, "thread_id": 3, "correlation_id": {"internal": 7},
            "start_timestamp": 90, "end_timestamp": 95
        });
        let all =
            [kernel(2, 5, 8, 7, 100, 203), kernel(2, 6, 9, 8, 150, 350), kernel(2, 6, 10, 9, 400, 401)];
        let trace = read(&[process(9, &all, &[copy], &[call])]).unwrap();
        let names: Vec<(&str, &str)> =
            trace.operations.iter().map(|o| (o.name.as_str(), o.kind.as_str())).collect();
        let expected = [
            ("MEMORY_COPY_HOST_TO_DEVICE", "memcpy"),
            ("gemm(\"a\\b\")", "kernel"),
            ("kernel 10 (its name is missing)", "kernel"),
            ("ncclDevKernel_Generic_4", "kernel"),
        ];
        assert_eq!(names, expected);
        let times: Vec<(i64, i64, i64)> =
            trace.spans.iter().map(|s| (s.ready_ns, s.start_ns, s.end_ns)).collect();
        assert_eq!(times, [(50, 50, 61), (95, 100, 203), (150, 150, 350), (400, 400, 401)]);
        assert_eq!(trace.meta.ranks, 1);
        assert_eq!(trace.meta.recorder, "rocprofv3");
        let report = import_report(&trace);
        assert_eq!(
            (report.format.as_str(), report.used["kernel"], report.used["memcpy"]),
            ("rocprofv3 JSON", 3, 1)
        );
        assert!(warned(&trace, "1 kernels have no name"), "{report:?}");
    }

    #[test]
    fn ranks_are_the_agents_of_processes_with_kernels() {
        let two = process(9, &[kernel(3, 0, 8, 1, 10, 20), kernel(4, 0, 8, 2, 10, 20)], &[], &[]);
        let one = process(11, &[kernel(2, 0, 9, 1, 12, 22)], &[], &[]);
        let trace = read(&[two, one]).unwrap();
        assert_eq!(trace.meta.ranks, 3);
        let ranks: Vec<(u32, i64)> = trace.spans.iter().map(|span| (span.rank, span.start_ns)).collect();
        assert_eq!(ranks, [(0, 10), (1, 10), (2, 12)]);
    }

    #[test]
    fn a_stray_kernel_on_another_gpu_makes_no_rank() {
        let on_agent = |agent: u64, id: u64, count: i64| {
            (0..count).map(move |at| kernel(agent, 0, id, at + 1, 10 * at, 10 * at + 5))
        };
        let of = |strays: Vec<Value>| {
            let all: Vec<Value> = on_agent(3, 8, 40).chain(strays).collect();
            read(&[process(9, &all, &[], &[])]).unwrap()
        };
        let stray = of(on_agent(2, 8, 1).collect());
        assert_eq!((stray.meta.ranks, stray.spans.len()), (1, 40));
        let said =
            "1 ignored (kernel): on another GPU of its process, with hardly any work and no collective";
        assert!(warned(&stray, said), "{:?}", import_report(&stray));
        // a GPU that communicates, or has a twentieth of the kernels, is a rank
        assert_eq!(of(on_agent(2, 9, 1).collect()).meta.ranks, 2);
        assert_eq!(of(on_agent(2, 8, 2).collect()).meta.ranks, 2);
    }

    #[test]
    fn marker_and_rccl_calls_are_listed_as_ignored() {
        let mut process = process(9, &[kernel(2, 0, 8, 1, 100, 200)], &[], &[]);
        process["buffer_records"]["marker_api"] = json!([{"kind": 14, "message": "step 0"}, {}]);
        process["buffer_records"]["rccl_api"] = json!([{"kind": 20}]);
        let report = read(&[process]).unwrap().meta.import.unwrap();
        let ignored = |name: &str| report.ignored[name];
        assert_eq!((ignored("category marker_api"), ignored("category rccl_api")), (2, 1));
        assert_eq!(report.events, 4);
    }

    #[test]
    fn launches_are_linked_within_their_process() {
        let call = |start: i64| {
            json!({
                "kind": 2, "operation": 0, "thread_id": 3, "correlation_id": {"internal": 1},
                "start_timestamp": start, "end_timestamp": start + 1
            })
        };
        // correlations begin anew in each process; the process ids are not in order
        let of = |pid, start| {
            let all = [kernel(2, 0, 8, 1, 100, 200), kernel(3, 0, 8, 1, 100, 200)];
            let mut process = process(pid, &all, &[], &[call(start)]);
            let kinds = process["strings"]["buffer_records"].as_array_mut().unwrap();
            kinds.push(json!({"kind": "HIP_RUNTIME_API", "operations": ["hipLaunchKernel"]}));
            process
        };
        let trace = read(&[of(11, 50), of(9, 60)]).unwrap();
        let ready: Vec<(u32, i64)> = trace.spans.iter().map(|span| (span.rank, span.ready_ns)).collect();
        assert_eq!(ready, [(0, 51), (1, 51), (2, 61), (3, 61)]);
        let operators: Vec<&str> = trace
            .spans
            .iter()
            .map(|span| trace.meta.range_names[span.launched.operator as usize].as_str())
            .collect();
        assert_eq!(operators, ["hipLaunchKernel"; 4]);
    }

    /// A copy that blocks the host, and a wait that launches nothing.
    #[test]
    fn long_calls_are_ranges_of_their_threads() {
        let call = |operation: u64, start: i64, end: i64| {
            json!({
                "kind": 2, "operation": operation, "thread_id": 3 + operation,
                "correlation_id": {"internal": 1 + operation}, "start_timestamp": start, "end_timestamp": end
            })
        };
        let calls = [call(0, 50, 3_000_050), call(1, 60, 2_000_060), call(2, 70, 90)];
        let mut process = process(9, &[kernel(2, 0, 8, 1, 100, 200)], &[], &calls);
        let names = ["hipMemcpyWithStream", "hipStreamSynchronize", "hipStreamSynchronize"];
        let kinds = process["strings"]["buffer_records"].as_array_mut().unwrap();
        kinds.push(json!({"kind": "HIP_RUNTIME_API", "operations": names}));
        let trace = read(&[process]).unwrap();
        let ranges: Vec<_> = (trace.ranges.iter())
            .map(|range| {
                let name = trace.meta.range_names[range.name as usize].as_str();
                (name, range.thread, range.start_ns, range.end_ns)
            })
            .collect();
        assert_eq!(ranges, [(names[0], 0, 50, 3_000_050), (names[1], 1, 60, 2_000_060)]);
    }

    #[test]
    fn broken_and_empty_files_are_refused() {
        let error = read(&[process(9, &[], &[], &[])]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("without kernel dispatches"), "{error}");
        let cut = br#"{"rocprofiler-sdk-tool":[{"agents":["#;
        let error = import_as("r.json", || &cut[..], super::read).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("not a readable rocprofv3 trace"), "{error}");
    }
}
