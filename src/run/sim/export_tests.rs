//! Exports, read back by parsers that are not ours.

use std::collections::{BTreeMap, HashMap};
use std::io::Read as _;

use proptest::prelude::*;
use serde_json::Value;

use crate::sim::testing;
use plan::{Lane, Phase};
use table::Spec;
use trace::export::{ExportFormat, ExportedRanks, chrome, csv, write, write_ranks};
use trace::{CollectiveInfo, ProcessGroup, Range, Span, Trace, TraceStream};

fn simulated(architecture: &str) -> Trace {
    let spec = Spec { output_tokens: 4, ..testing::spec(architecture, "tiny") };
    crate::testing::simulated(&spec)
}

#[test]
fn a_simulated_run_comes_back_as_it_was() {
    let spec = Spec { tp: 4, output_tokens: 9, ..testing::spec("ladder", "tiny") };
    let trace = crate::testing::simulated(&spec);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.trace");
    trace::write(&path, &trace).unwrap();
    let (meta, operations) = trace::read_meta(&path).unwrap();
    assert_eq!((&meta, &operations), (&trace.meta, &trace.operations));
    let back = trace::read(&path).unwrap();
    assert!(back == trace);
}

/// A trace as an importer leaves it: streams, ranges, no spec.
fn imported() -> Trace {
    let mut trace = simulated("ladder");
    trace.meta.spec = None;
    trace.meta.import = Some(trace::ImportReport::default());
    trace.meta.provenance = table::Provenance::Measured;
    trace.meta.ranks = 2;
    let stream = |rank, device, id| TraceStream {
        rank,
        process: Some(9),
        device: Some(device),
        context: None,
        id,
    };
    trace.meta.streams = vec![stream(0, 0, 7), stream(0, 1, 7), stream(1, 2, 7)];
    trace.meta.range_names = vec!["ProfilerStep#3".into(), "a \"quoted\"\nname".into()];
    for operation in &mut trace.operations {
        operation.waits_for.clear();
    }
    trace.operations[0].kind = "memcpy".into();
    trace.spans.truncate(30);
    for (at, span) in trace.spans.iter_mut().enumerate() {
        span.rank = u32::from(at >= 20);
        span.stream = if at >= 20 { 2 } else { (at % 2) as u16 };
    }
    let range = |name| Range {
        rank: 1,
        on_device: false,
        thread: 4,
        depth: 0,
        name,
        start_ns: 11,
        end_ns: 2222,
    };
    trace.ranges = vec![range(0), range(1)];
    trace
}

fn exported(trace: &Trace, ranks: ExportedRanks) -> String {
    let mut text = Vec::new();
    chrome(trace, ranks, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// An event, its times as they stand in the text.
struct Event {
    ph: String,
    cat: String,
    name: String,
    pid: i64,
    tid: i64,
    ts: i128,
    dur: i128,
    args: Value,
    id: Option<u64>,
}

/// The events of a file: the whole must be JSON, and the events have a line each.
fn events(text: &str) -> Vec<Event> {
    let whole: Value = serde_json::from_str(text).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("{\"ph\":")).collect();
    assert_eq!(whole["traceEvents"].as_array().unwrap().len(), lines.len());
    lines.into_iter().map(|line| Event::from_line(line.trim_end_matches(','))).collect()
}

impl Event {
    fn from_line(line: &str) -> Self {
        let value: Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        Self {
            ph: text("ph"),
            cat: text("cat"),
            name: text("name"),
            pid: value["pid"].as_i64().unwrap(),
            tid: value["tid"].as_i64().unwrap(),
            ts: ns(line, "\"ts\":"),
            dur: if value["ph"] == "X" { ns(line, "\"dur\":") } else { 0 },
            args: value["args"].clone(),
            id: value["id"].as_u64(),
        }
    }

    fn times(&self) -> (i128, i128) {
        (self.ts, self.ts + self.dur)
    }

    fn is_device(&self) -> bool {
        matches!(self.cat.as_str(), "kernel" | "gpu_memcpy" | "gpu_memset")
    }
}

#[test]
fn messages_of_micro_batches_have_the_size_of_their_own_rows() {
    let sizes = |batch| {
        let base = testing::spec("standard", "tiny");
        let spec = Spec { batch, micro_batches: 2, output_tokens: 3, ..base };
        let text = exported(&crate::testing::simulated(&spec), ExportedRanks::One(0));
        let reduces = events(&text).into_iter().filter(|event| {
            event.cat == "kernel" && event.name.contains("AllReduce") && event.name.contains("decode/")
        });
        let mut sizes: Vec<Option<u64>> =
            reduces.map(|event| event.args["In msg nelems"].as_u64()).collect();
        sizes.dedup();
        sizes
    };
    let row = u64::from(testing::shape_tiny().hidden) * 2;
    assert_eq!(sizes(16), [Some(8 * row)]);
    // groups of 9 and 8 sequences
    assert_eq!(sizes(17), [None]);
}

#[test]
fn a_simulated_gpu_with_changed_values_is_not_that_of_its_profile() {
    let name = |set: &[(&str, &str)]| {
        let mut spec = Spec { output_tokens: 2, ..testing::spec("standard", "tiny") };
        spec.set = set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let text = exported(&crate::testing::simulated(&spec), ExportedRanks::One(0));
        let head: Value = serde_json::from_str(&text).unwrap();
        head["deviceProperties"][0]["name"].as_str().unwrap().to_owned()
    };
    let plain = name(&[]);
    assert!(plain.starts_with("simulated "), "{plain}");
    assert_eq!(name(&[("hbm_gb_s", "1000")]), format!("{plain} (changed)"));
}

/// The microseconds behind a key, as nanoseconds and without floats.
fn ns(line: &str, key: &str) -> i128 {
    // a quote within a name has a backslash before it: this is the key
    let (_, number) = line.split_once(key).unwrap();
    let number = number.split([',', '}']).next().unwrap();
    match number.split_once('.') {
        Some((whole, decimals)) => {
            assert_eq!(decimals.len(), 3, "{line}");
            format!("{whole}{decimals}").parse().unwrap()
        }
        None => number.parse::<i128>().unwrap() * 1000,
    }
}

/// Every span is there, to the nanosecond, and its launch.
fn spans_are_in(text: &str, trace: &Trace, ranks: ExportedRanks) {
    let events = events(text);
    let device: Vec<&Event> = events.iter().filter(|e| e.is_device()).collect();
    let wanted: Vec<&Span> = (trace.spans.iter())
        .filter(|span| ranks == ExportedRanks::All || ranks == ExportedRanks::One(span.rank))
        .collect();
    assert_eq!(device.len(), wanted.len());
    let launches: HashMap<u64, (i128, i128)> = (events.iter())
        .filter(|event| event.cat == "cuda_runtime")
        .map(|event| (event.args["correlation"].as_u64().unwrap(), event.times()))
        .collect();
    let is_launched = |span: &Span| trace.meta.import.is_none() || span.is_launch_known();
    let launched = wanted.iter().filter(|span| is_launched(span)).count();
    assert_eq!(
        launches.len(),
        launched,
        "correlations are unique, and launches that nobody recorded are not made up"
    );
    for (event, span) in device.into_iter().zip(wanted) {
        assert_eq!(event.times(), (span.start_ns.into(), span.end_ns.into()));
        if is_launched(span) {
            let launch = launches[&event.args["correlation"].as_u64().unwrap()];
            assert_eq!(launch, (span.ready_ns.into(), span.ready_ns.into()));
        }
        assert_eq!(event.args["stream"], event.tid);
    }
}

#[test]
fn own_traces_have_kernels_steps_layers_and_names_that_others_take_for_communication() {
    let trace = simulated("ladder");
    let text = exported(&trace, ExportedRanks::All);
    spans_are_in(&text, &trace, ExportedRanks::All);
    let events = events(&text);
    let names = |cat: &str| -> Vec<&str> {
        events.iter().filter(|e| e.cat == cat).map(|e| e.name.as_str()).collect()
    };
    let comm = trace.spans.iter().filter(|span| span.lane == Lane::Comm).count();
    let nccl =
        names("kernel").iter().filter(|name| name.starts_with("ncclDevKernel_AllReduce(")).count();
    assert!(nccl == comm && comm > 0);
    // prefill and 3 decode steps of 2 ranks
    let steps: Vec<&str> = names("user_annotation");
    assert_eq!(steps.len(), 8);
    assert!(steps.contains(&"ProfilerStep#0") && steps.contains(&"ProfilerStep#3"), "{steps:?}");
    assert!(names("gpu_user_annotation").contains(&"L3"));
    assert!(names("gpu_user_annotation").iter().any(|name| name.starts_with("L0/")));
    for event in events.iter().filter(|e| e.cat == "kernel") {
        assert_eq!(event.tid, if event.name.starts_with("nccl") { 20 } else { 7 });
        assert_eq!(event.args["device"], event.pid);
        assert!(event.args["operation"].as_str().unwrap().contains('/'));
    }
}

#[test]
fn arrows_lead_from_all_reduces_to_what_reads_them() {
    let trace = simulated("standard");
    let text = exported(&trace, ExportedRanks::One(1));
    let events = events(&text);
    let mut arrows: BTreeMap<u64, [Option<(i64, i128)>; 2]> = BTreeMap::new();
    for event in events.iter().filter(|event| event.cat == "reduced") {
        assert_eq!(event.pid, 1);
        let end = usize::from(event.ph == "f");
        arrows.entry(event.id.unwrap()).or_default()[end] = Some((event.tid, event.ts));
    }
    let comm = trace.spans.iter().filter(|s| s.lane == Lane::Comm && s.rank == 1).count();
    assert!(arrows.len() >= comm && comm > 0, "{} arrows, {comm} all-reduces", arrows.len());
    for [from, to] in arrows.into_values() {
        let (from, to) = (from.unwrap(), to.unwrap());
        assert_eq!((from.0, to.0), (20, 7));
        assert!(from.1 < to.1);
    }
}

#[test]
fn a_file_says_whose_it_is_and_what_its_numbers_are_worth() {
    let trace = simulated("ladder");
    let one: Value = serde_json::from_str(&exported(&trace, ExportedRanks::One(1))).unwrap();
    assert_eq!(one["distributedInfo"]["rank"], 1);
    assert_eq!(one["distributedInfo"]["world_size"], 2);
    assert_eq!(one["schemaVersion"], 1);
    assert_eq!(one["ladderscope"]["provenance"], "simulated");
    assert_eq!(one["ladderscope"]["spec"]["architecture"], "ladder");
    assert!(one["traceName"].as_str().unwrap().contains("(simulated)"));
    let all: Value = serde_json::from_str(&exported(&trace, ExportedRanks::All)).unwrap();
    assert!(all["distributedInfo"].get("rank").is_none(), "a file of two ranks is of no rank");
    for file in [one, all] {
        for event in file["traceEvents"].as_array().unwrap() {
            if event["name"] == "process_name" {
                assert!(event["args"]["name"].as_str().unwrap().contains("(simulated)"), "{event}");
            }
            if event["name"] == "process_labels" {
                assert_eq!(event["args"]["labels"], "simulated");
            }
        }
    }
}

#[test]
fn imported_traces_keep_their_names_streams_devices_and_ranges() {
    let trace = imported();
    let text = exported(&trace, ExportedRanks::All);
    spans_are_in(&text, &trace, ExportedRanks::All);
    let events = events(&text);
    let device: Vec<&Event> = events.iter().filter(|event| event.is_device()).collect();
    assert!(device.iter().any(|event| event.cat == "gpu_memcpy"));
    assert!(device.iter().all(|event| !event.name.starts_with("ncclDevKernel_")));
    let first = device[0].pid;
    let other = device.iter().find(|event| event.args["device"] == 1).unwrap();
    assert!(first == 0 && other.pid != 0 && other.tid == 7, "streams of two devices stay apart");
    let ranges: Vec<&Event> = events.iter().filter(|e| e.cat == "user_annotation").collect();
    let names: Vec<&str> = ranges.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["ProfilerStep#3", "a \"quoted\"\nname"], "its own steps, and no others");
    assert_eq!(ranges[0].times(), (11, 2222));
    assert!(!text.contains("(simulated)"));
}

#[test]
fn process_groups_and_single_clocks_survive_an_export_of_a_file_a_rank() {
    let mut trace = imported();
    let group = |name: &str, ranks: &[u32]| ProcessGroup {
        name: name.into(),
        description: "TP".into(),
        size: ranks.len() as u32,
        ranks: ranks.to_vec(),
    };
    trace.meta.groups = vec![group("1", &[0, 1])];
    let info = CollectiveInfo {
        name: "allreduce".into(),
        group: Some(0),
        in_elements: Some(8),
        out_elements: Some(8),
        dtype: "Float".into(),
        ..CollectiveInfo::default()
    };
    let operation = trace.spans[0].operation as usize;
    trace.operations[operation].kind = "kernel".into();
    trace.operations[operation].collective = Some(info.with_message_bytes());
    trace.spans[0].sequence = 5;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.json");
    std::fs::write(&path, exported(&trace, ExportedRanks::All)).unwrap();
    let back = trace::import::open(&path).unwrap();
    assert_eq!(back.meta.groups, trace.meta.groups);
    let expected = &trace.operations[operation].collective;
    assert!(back.operations.iter().any(|operation| operation.collective == *expected));
    assert!(back.spans.iter().any(|span| span.sequence == 5));
    // a run of our own has one clock, whatever the number of files
    let own = simulated("ladder");
    let dir = tempfile::tempdir().unwrap();
    for rank in 0..own.meta.ranks {
        let path = dir.path().join(format!("rank{rank}.json"));
        std::fs::write(path, exported(&own, ExportedRanks::One(rank))).unwrap();
    }
    let back = trace::import::open(dir.path()).unwrap();
    assert_eq!((&back.meta.clock, back.meta.ranks), (&own.meta.clock, own.meta.ranks));
    assert_eq!(back.meta.import.unwrap().clocks, Some(1));
}

#[test]
fn csv_has_a_row_a_span_with_names() {
    let trace = imported();
    let mut text = Vec::new();
    csv(&[("", &trace)], &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let mut lines = text.lines();
    let columns = lines.next().unwrap().split(',').count();
    assert_eq!((columns, text.lines().count()), (17, 31));
    let span = &trace.spans[0];
    let operation = &trace.operations[span.operation as usize];
    let start = format!("0,prefill,0,0,memory,9,0,7,{},memcpy,", operation.name);
    let first = lines.next().unwrap();
    assert!(first.starts_with(&start), "{first}");
    assert!(
        first.ends_with(&format!(",{},{},{},,measured", span.ready_ns, span.start_ns, span.end_ns)),
        "{first}"
    );
}

#[test]
fn the_name_decides_the_format() {
    let of = |name: &str| ExportFormat::from_path(name.as_ref());
    assert_eq!(of("a/t.JSON").unwrap(), ExportFormat::Json);
    assert_eq!(of("t.pt.trace.json.gz").unwrap(), ExportFormat::JsonGz);
    assert_eq!(of("t.json.zst").unwrap(), ExportFormat::JsonZst);
    assert_eq!(of("t.parquet").unwrap(), ExportFormat::Parquet);
    assert_eq!(of("t.csv").unwrap(), ExportFormat::Csv);
    for name in ["t.sqlite", "json", "t.gz", "/"] {
        let error = of(name).unwrap_err();
        assert!(
            error.exit_code() == 2 && error.to_string().contains("cannot infer the output format"),
            "{name}: {error}"
        );
        assert_eq!(ExportFormat::of_recording(name.as_ref()), ExportFormat::Parquet, "{name}");
    }
}

#[test]
fn files_a_rank_are_made_together_and_replaced_only_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let into = dir.path().join("new");
    let trace = simulated("ladder");
    let files = write_ranks(&trace, &into, false).unwrap();
    assert_eq!(files.len(), 2);
    for (rank, file) in (0..).zip(&files) {
        let mut text = String::new();
        flate2::read::GzDecoder::new(std::fs::File::open(file).unwrap())
            .read_to_string(&mut text)
            .unwrap();
        spans_are_in(&text, &trace, ExportedRanks::One(rank));
    }
    let error = write_ranks(&trace, &into, false).unwrap_err();
    assert!(error.to_string().contains("rank-0.json.gz: file exists"), "{error}");
    write_ranks(&trace, &into, true).unwrap();
    assert_eq!(std::fs::read_dir(&into).unwrap().count(), 2, "nothing else is left there");
}

#[test]
fn what_cannot_be_written_leaves_nothing() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let trace = simulated("ladder");
    for room in [0, 100, 10_000] {
        let error = chrome(&trace, ExportedRanks::All, &mut Full(room)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }
    let dir = tempfile::tempdir().unwrap();
    assert!(write(&trace, &dir.path().join("no/such/t.json")).is_err());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_times_and_names_come_back_exactly(
        times in proptest::collection::vec(any::<(i64, i64, i64)>(), 1..40),
        name in any::<String>(),
        as_imported in any::<bool>(),
    ) {
        let mut trace = if as_imported { imported() } else { simulated("ladder") };
        trace.operations[0].name = name.clone();
        let template = trace.spans[0];
        trace.spans = times
            .into_iter()
            .map(|(ready_ns, a, b)| Span {
                operation: 0, phase: Phase::Decode, ready_ns, start_ns: a.min(b), end_ns: a.max(b),
                ..template
            })
            .collect();
        let text = exported(&trace, ExportedRanks::All);
        spans_are_in(&text, &trace, ExportedRanks::All);
        let file: Value = serde_json::from_str(&text).unwrap();
        let kernel = file["traceEvents"].as_array().unwrap().iter()
            .find(|e| e["cat"] == "kernel" || e["cat"] == "gpu_memcpy").unwrap();
        prop_assert_eq!(kernel["name"].as_str().unwrap(), name);
    }
}
