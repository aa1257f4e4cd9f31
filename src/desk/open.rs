//! Opens a trace by file, by directory with one file per rank, or by stored run (id, prefix, or `last`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::files::{expand_home, list_directory};
use super::resimulate::{FirstSteps, require_unchanged_files, resimulate};
use base::error::{Error, Result};
use base::input;
use lab::store::Store;
use study::analysis::tie_clocks;
use table::{Record, Status};
use trace::rules::{RuleReport, Rules};
use trace::{ImportReport, Trace, import};

#[derive(Debug)]
pub enum RunOrTrace {
    Run(Box<Record>),
    /// Trace file, or directory with one file per rank.
    File(PathBuf),
}

impl RunOrTrace {
    /// Resolves a name to a file if there is one (`~` is the home directory), else to a stored run. Returns an input
    /// error that lists the alternatives if neither exists.
    pub fn find(given: &str, store: &Store) -> Result<Self> {
        let path = expand_home(given);
        if path.is_file() {
            return Ok(Self::File(path));
        }
        if let Some(refused) = input::special_file_error(&path, "a trace file or a directory of them") {
            return Err(refused);
        }
        let separated = given.contains(std::path::MAIN_SEPARATOR);
        if path.is_dir() {
            // A run id may equal a directory name; a name with a separator means the directory.
            let run = if separated { None } else { store.get(given).ok() };
            return Ok(run.map_or(Self::File(path), |record| Self::Run(Box::new(record))));
        }
        if separated || path.extension().is_some() {
            return Err(Error::input_help(
                format!("{given}: no such file"),
                "pass a trace file, a directory with one per rank, or a stored run: id, prefix or 'last' (see `ladderscope runs`)",
            ));
        }
        store.get(given).map(|record| Self::Run(Box::new(record)))
    }
}

/// True if a name is a trace file, or a directory that holds trace files, also in the directories below it, and no runs.
pub fn is_trace(given: &str) -> bool {
    let path = expand_home(given);
    let holds_runs = || Store::open(&path).list().is_ok_and(|listing| !listing.records.is_empty());
    let names_traces = || {
        let inside = list_directory(&format!("{}/", path.display()));
        inside.iter().any(|entry| entry.is_trace)
    };
    let holds_traces = || names_traces() || import::holds_traces(&path);
    path.is_file() || (path.is_dir() && !holds_runs() && holds_traces())
}

#[derive(Debug)]
pub struct OpenedTrace {
    pub trace: Trace,
    /// Path or run id that opens it again.
    pub source: String,
    pub rules: Option<String>,
    pub recording: Option<String>,
    /// Result of the classification; empty for native traces.
    pub classified: RuleReport,
    pub record: Option<Box<Record>>,
    /// Steps of the trace, if not all of the run.
    pub part: Option<FirstSteps>,
}

impl OpenedTrace {
    /// Display name: the run or file name, prefixed by the part if the trace is not complete.
    pub fn name(&self) -> String {
        let name = match &self.record {
            Some(record) => record.run.as_str(),
            None => Path::new(&self.source).file_name().and_then(|n| n.to_str()).unwrap_or(&self.source),
        };
        self.part.map_or_else(|| name.to_owned(), |part| format!("{part}: {name}"))
    }

    /// Returns an input error for a trace without GPU spans, and explains which kind of file it is.
    pub fn require_gpu_spans(self) -> Result<Self> {
        if !self.trace.spans.is_empty() {
            return Ok(self);
        }
        let import = self.trace.meta.import.unwrap_or_default();
        let (problem, help) = missing_gpu_spans(&import);
        Err(Error::input_help(format!("{}: {problem}", self.source), help))
    }
}

/// Options of every verb that opens an imported trace.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OpenOptions {
    /// Rules that identify communication in an imported trace: default, nccl-name, hta, or a rule file (TOML) [default:
    /// default]
    #[arg(long, value_name = "RULES")]
    pub rules: Option<String>,
    /// Recording to open if a directory holds several of the same ranks, by name [default: the newest with all ranks]
    #[arg(long, value_name = "NAME")]
    pub recording: Option<String>,
}

impl OpenOptions {
    /// Options for one of several traces, of which only directories hold recordings.
    pub fn of_one(&self, given: &str) -> Self {
        let recording = self.recording.clone().filter(|_| Path::new(given).is_dir());
        Self { recording, ..self.clone() }
    }

    /// Arguments with which a trace is opened in the same way.
    pub fn to_arguments(&self) -> Vec<String> {
        let options = [("--rules", &self.rules), ("--recording", &self.recording)];
        let given =
            options.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value.clone()?]));
        given.flatten().collect()
    }
}

/// Opens a run, a trace file or a directory. `upto` is a step that must be included if a simulated run has too many
/// steps to simulate all of them again.
///
/// # Errors
///
/// Returns an error if the name is unknown, the file is not a trace, the run has no trace, or the directory lacks the
/// recording.
pub fn open(
    given: &str,
    store: &Store,
    options: &OpenOptions,
    upto: Option<u32>,
) -> Result<OpenedTrace> {
    let OpenOptions { rules, recording } = options;
    let loaded = rules.as_deref().map_or_else(|| Ok(Rules::default()), Rules::load)?;
    match (RunOrTrace::find(given, store)?, recording) {
        (RunOrTrace::Run(record), Some(_)) => Err(Error::input_help(
            format!(
                "{}: a stored run, and --recording chooses among the traces of a directory",
                record.run
            ),
            "leave out --recording",
        )),
        (RunOrTrace::Run(record), None) => open_run(record, store, upto),
        (RunOrTrace::File(path), _) => {
            let (mut trace, classified) = import::open_recording(&path, recording.as_deref(), &loaded)?;
            tie_clocks(&mut trace);
            Ok(OpenedTrace {
                trace,
                source: path.display().to_string(),
                rules: rules.clone(),
                recording: recording.clone(),
                classified,
                record: None,
                part: None,
            })
        }
    }
}

/// Opens the trace of a stored run. Returns an error if it has none: it failed, was not recorded, or the file is
/// missing.
pub fn open_run(record: Box<Record>, store: &Store, upto: Option<u32>) -> Result<OpenedTrace> {
    let (trace, part) = trace_of(&record, store, upto)?;
    Ok(OpenedTrace {
        trace,
        source: record.run.clone(),
        rules: None,
        recording: None,
        classified: RuleReport::default(),
        record: Some(record),
        part,
    })
}

/// Trace of a stored run; returns the errors of [`open_run`].
pub fn trace_of(
    record: &Record,
    store: &Store,
    upto: Option<u32>,
) -> Result<(Trace, Option<FirstSteps>)> {
    if let Some(path) = store.trace_path(record) {
        let mut trace = import::open(&path)?;
        tie_clocks(&mut trace);
        return Ok((trace, None));
    }
    let none = |why: String| {
        Err(Error::input_help(why, "its numbers are complete; to see its lanes, run the cell again"))
    };
    match (record.status, record.spec.backend.is_simulated(), &record.trace) {
        (Status::Ok, true, _) => {
            require_unchanged_files(&record.spec)?;
            let (mut trace, part) = resimulate(&record.spec, upto)?;
            trace.meta.run = Some(record.run.clone());
            Ok((trace, part))
        }
        (Status::Ok, _, Some(file)) => none(format!(
            "the trace of run {} is gone: {}",
            record.run,
            store.dir().join(file).display()
        )),
        (Status::Ok, _, None) => {
            none(format!("run {} was not recorded, so it has no trace", record.run))
        }
        (status, ..) => Err(Error::input(format!(
            "run {} is {}: it has no trace{}",
            record.run,
            status.as_str(),
            record.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default()
        ))),
    }
}

/// Likely reason why an import found no GPU span, and the remedy.
fn missing_gpu_spans(import: &ImportReport) -> (String, &'static str) {
    let count = |counts: &BTreeMap<String, u64>, word: &str| -> u64 {
        counts.iter().filter(|(what, _)| what.contains(word)).map(|(_, count)| count).sum()
    };
    let is_gpu = |what: &str| ["kernel ", "memcpy ", "memset "].iter().any(|gpu| what.starts_with(gpu));
    let skipped = import.ignored.iter().filter(|(what, _)| is_gpu(what));
    let skipped: Vec<String> = skipped.map(|(what, count)| format!("{count} {what}")).collect();
    // words of the importer about a truncated file
    let truncated =
        import.warnings.iter().find(|warning| warning.contains("everything before it was read"));
    if let Some(warning) = truncated {
        return (
            format!("truncated before the first GPU event: {warning}"),
            "copy the file again, or record it again",
        );
    }
    if !skipped.is_empty() {
        return (
            format!("no readable GPU events; skipped: {}", skipped.join(", ")),
            "ts and dur must be numbers, in microseconds",
        );
    }
    let launches = count(&import.used, "launch");
    if launches > 0 {
        return (
            format!("{launches} host launches but no GPU events: the profiler recorded only the host"),
            "record again without another profiler attached, with permission to read GPU counters, and \
             activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
        );
    }
    let operators = count(&import.ignored, "operators of the framework");
    if operators > 0 {
        return (
            format!("a CPU-only PyTorch profile: {operators} operators and no GPU events"),
            "record GPU activity as well: \
             torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])",
        );
    }
    let events = import.events;
    if events == 0 {
        return (
            "no events in this trace".into(),
            "record again: the profiler may have stopped before the first step",
        );
    }
    let unpaired = count(&import.ignored, "unpaired begin or end");
    if unpaired > 0 {
        return (
            format!(
                "{events} events, {unpaired} of them unpaired begin or end events (ph B, E), and no complete GPU event"
            ),
            "export complete events (ph X), as PyTorch's profiler does",
        );
    }
    (
        format!("{events} events read, none from a GPU (kernel, gpu_memcpy, gpu_memset)"),
        "record with ProfilerActivity.CUDA, or open another file",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::Lane;
    use trace::overlap::{Selection, exposed_intervals, overlap};

    #[test]
    fn a_file_is_classified_by_the_rules_that_it_was_opened_with() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace.json");
        let events = r#"{"traceEvents": [
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", "pid": 0,
             "tid": 7, "ts": 1.0, "dur": 2.0, "args": {"device": 0, "stream": 7}},
            {"ph": "X", "cat": "kernel", "name": "void multimem_all_reduce<1>(x)", "pid": 0,
             "tid": 7, "ts": 4.0, "dur": 2.0, "args": {"device": 0, "stream": 7}}]}"#;
        std::fs::write(&path, events).unwrap();
        let store = Store::open(dir.path());
        let opened = |rules: Option<&str>| {
            let options = OpenOptions { rules: rules.map(str::to_owned), ..OpenOptions::default() };
            open(path.to_str().unwrap(), &store, &options, None)
        };
        let communication = |rules| {
            let opened = opened(rules).unwrap();
            assert_eq!((opened.rules.as_deref(), opened.name().as_str()), (rules, "trace.json"));
            opened.trace.spans.iter().filter(|span| span.lane == Lane::Comm).count()
        };
        assert_eq!((communication(None), communication(Some("hta"))), (2, 1));
        let error = opened(Some("nobodys")).unwrap_err();
        assert!(error.to_string().contains("'nobodys'"), "{error}");
    }

    #[test]
    fn unreadable_gpu_events_are_named_if_no_other_event_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace.json");
        let text = r#"[{"ph": "X", "cat": "kernel", "name": "a", "ts": "0x10", "dur": 5, "args": {"stream": 7}}]"#;
        std::fs::write(&path, text).unwrap();
        let opened =
            open(path.to_str().unwrap(), &Store::open(dir.path()), &OpenOptions::default(), None);
        let error = opened.unwrap().require_gpu_spans().unwrap_err().to_string();
        assert!(error.contains("skipped: 1 kernel with a start (ts) that is not a number"), "{error}");
        let text = r#"[{"ph": "E", "cat": "kernel", "ts": 1}, {"ph": "B", "cat": "kernel", "name": "a", "ts": 5}]"#;
        std::fs::write(&path, text).unwrap();
        let opened =
            open(path.to_str().unwrap(), &Store::open(dir.path()), &OpenOptions::default(), None);
        let error = opened.unwrap().require_gpu_spans().unwrap_err().to_string();
        assert!(error.contains("2 events, 2 of them unpaired begin or end events (ph B, E)"), "{error}");
    }

    /// Two ranks whose clocks are a second apart: opened, they have one.
    #[test]
    fn clocks_of_one_file_per_rank_are_aligned() {
        let dir = tempfile::tempdir().unwrap();
        for rank in 0..2 {
            let event = |name: &str, stream: u32, at: i64, dur: i64| {
                let ts = 5_000 + 1_000_000 * rank + at;
                format!(
                    r#"{{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": {stream}, "ts": {ts}, "dur": {dur}, "args": {{"device": 0, "stream": {stream}}}}}"#
                )
            };
            let step = |at: i64| {
                [
                    event("gemm", 7, at, 300),
                    event("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", 20, at + 300, 200),
                ]
            };
            let events: Vec<String> = (0..5).flat_map(|at| step(1_000 * at)).collect();
            let text = format!(
                r#"{{"distributedInfo": {{"rank": {rank}, "world_size": 2}}, "traceEvents": [{}]}}"#,
                events.join(",")
            );
            std::fs::write(dir.path().join(format!("rank{rank}.json")), text).unwrap();
        }
        let given = format!("{}/", dir.path().display());
        let trace = open(&given, &Store::open(dir.path()), &OpenOptions::default(), None).unwrap().trace;
        let window = |from, to| {
            let selection = Selection { from_ns: Some(from), to_ns: Some(to), ..Selection::default() };
            let ranks = overlap(&trace, &selection).ranks;
            ranks.iter().map(|rank| (rank.compute_us, rank.comm_us)).collect::<Vec<_>>()
        };
        assert_eq!(window(1_000_000, 1_400_000), [(300.0, 100.0); 2]);
        assert_eq!(exposed_intervals(&trace, 1, 0, 1_000_000), [(300_000, 500_000)]);
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_valid_ones() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path());
        for given in ["no/such.json", "such.parquet", "~/no-such-trace.json", "20260101"] {
            assert_eq!(RunOrTrace::find(given, &store).err().map(|e| e.exit_code()), Some(2), "{given}");
        }
        let pipe = dir.path().join("trace.json");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        for (given, kind) in [(pipe.to_str().unwrap(), "a named pipe"), ("/dev/null", "a device")] {
            let error = RunOrTrace::find(given, &store).unwrap_err().to_string();
            assert!(error.contains(&format!("{given}: is {kind}, not a trace file")), "{error}");
        }
        let there = dir.path().display().to_string();
        assert!(matches!(RunOrTrace::find(&there, &store), Ok(RunOrTrace::File(_))));
    }
}
