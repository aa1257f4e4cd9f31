//! Recording of any program: prepares the directory and the environment of the program, sets the window, and merges
//! what its processes wrote.
//!
//! The control file is replaced as a whole so that processes never read half of it. For the workbench, a recording is a
//! child process whose output goes to a file.

use std::ffi::OsString;
use std::fs::DirEntry;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::ranges::keep_launched_in;
use super::recorder_library::recorder_path;
use base::atomic;
use base::error::{Error, Result};
use inject::control::{CONTROL_FILE, Control, DIRECTORY_VARIABLE};
use inject::cupti::LIBRARY_VARIABLE;
use lab::store::{PROCESSES_FOLDER, RECORDINGS};
use machine::driver::libraries::{self, Library};
use trace::rules::Rules;
use trace::{Trace, import};

pub const TRACE: &str = "trace.parquet";
/// Variable with the library that the CUDA driver loads.
const CUDA_INJECTION: &str = "CUDA_INJECTION64_PATH";
/// Variables with the libraries that NVTX and NCCL load, and the data that is lost without them.
const OTHER_INJECTIONS: [(&str, &str); 2] =
    [("NVTX_INJECTION64_PATH", "NVTX ranges"), ("NCCL_PROFILER_PLUGIN", "NCCL's algorithms")];

/// Time of the run that is recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RecordingWindow {
    Always,
    /// Seconds after the start, and duration in seconds or until the end.
    Timed {
        delay: f64,
        duration: Option<f64>,
    },
    /// Between `record --start` and `record --stop`.
    OnDemand,
}

/// Environment variables of the recorded program.
pub type Variables = Vec<(&'static str, OsString)>;

/// A directory of one recording.
#[derive(Clone, Debug)]
pub struct RecordingDirectory {
    pub directory: PathBuf,
}

/// Parts that the processes have written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenParts {
    pub processes: usize,
    pub bytes: u64,
}

/// Wall-clock time, as in [`Control`].
pub fn now_ns() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or_default()
}

impl RecordingDirectory {
    /// Creates the directory, readable by this user alone, with the window's control file. An existing recording is
    /// joined: several nodes record into one.
    pub fn create(directory: PathBuf, window: RecordingWindow, limit: u64) -> Result<Self> {
        let parts = directory.join(PROCESSES_FOLDER);
        std::fs::create_dir_all(&parts).map_err(Error::io(&parts))?;
        let own = rustix::fs::Mode::RWXU;
        rustix::fs::chmod(&parts, own).map_err(|error| Error::io(&parts)(error.into()))?;
        let directory = directory.canonicalize().map_err(Error::io(&directory))?;
        let recording = Self { directory };
        if recording.control().is_err() {
            let start_ns = match window {
                RecordingWindow::Always => 0,
                RecordingWindow::Timed { delay, .. } => now_ns().saturating_add(nanoseconds(delay)),
                RecordingWindow::OnDemand => u64::MAX,
            };
            let stop_ns = match window {
                RecordingWindow::Timed { duration: Some(duration), .. } => {
                    start_ns.max(now_ns()).saturating_add(nanoseconds(duration))
                }
                _ => u64::MAX,
            };
            recording.set_control(Control { start_ns, stop_ns, limit })?;
        }
        Ok(recording)
    }

    /// Opens an existing recording. Returns an input error for another directory.
    pub fn open(directory: &Path) -> Result<Self> {
        let directory = if directory.ends_with(PROCESSES_FOLDER) {
            directory.parent().unwrap_or(directory)
        } else {
            directory
        };
        let recording = Self { directory: directory.to_owned() };
        if !recording.parts().is_dir() {
            return Err(Error::input_help(
                format!("{}: no recording of `ladderscope record`", directory.display()),
                "pass the directory that `ladderscope record` named when it started",
            ));
        }
        Ok(recording)
    }

    /// Directory of the control file and of one part per process.
    fn parts(&self) -> PathBuf {
        self.directory.join(PROCESSES_FOLDER)
    }

    pub fn control(&self) -> Result<Control> {
        let path = self.parts().join(CONTROL_FILE);
        let bytes = std::fs::read(&path).map_err(Error::io(&path))?;
        Control::decode(&bytes)
            .ok_or_else(|| Error::input(format!("{}: not a recording's control file", path.display())))
    }

    fn set_control(&self, control: Control) -> Result<()> {
        atomic::write(&self.parts().join(CONTROL_FILE), &control.encode())
    }

    /// Environment variables for the program, and warnings about variables that other tools have set.
    ///
    /// Returns an error if another tool records the program, or the recorder cannot be written anywhere.
    pub fn environment(&self) -> Result<(Variables, Vec<String>)> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(other) = set(CUDA_INJECTION) {
            return Err(Error::input_help(
                format!("{CUDA_INJECTION} is set already: {}", other.to_string_lossy()),
                "CUDA loads one such library; unset the variable, or record with the tool that set it",
            ));
        }
        let recorder = recorder_path(&self.directory)?.into_os_string();
        let mut warnings = Vec::new();
        let mut variables = vec![
            (DIRECTORY_VARIABLE, self.parts().into_os_string()),
            (CUDA_INJECTION, recorder.clone()),
        ];
        for (name, lost) in OTHER_INJECTIONS {
            match set(name) {
                None => variables.push((name, recorder.clone())),
                Some(other) => warnings.push(format!(
                    "{name} is set to {}: recording without {lost}",
                    other.to_string_lossy()
                )),
            }
        }
        // the process's own CUPTI comes first; searching loads nothing into the program
        if set(LIBRARY_VARIABLE).is_none()
            && let Ok(found) = libraries::open_with_path(Library::Cupti)
        {
            variables.push((LIBRARY_VARIABLE, found.path.clone().into_os_string()));
        }
        Ok((variables, warnings))
    }

    /// Files in the directory of the parts, with their names.
    fn files(&self) -> impl Iterator<Item = (String, DirEntry)> {
        let entries = std::fs::read_dir(self.parts()).into_iter().flatten().flatten();
        entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry))
    }

    pub fn written(&self) -> WrittenParts {
        let mut written = WrittenParts::default();
        for (_, entry) in self.files().filter(|(name, _)| name.ends_with(inject::format::SUFFIX)) {
            written.processes += 1;
            written.bytes += entry.metadata().map_or(0, |found| found.len());
        }
        written
    }

    /// Sentences about processes whose recording ended early.
    pub fn problems(&self) -> Vec<String> {
        let problem = |(name, _): (String, DirEntry)| {
            let (process, why) = name.rsplit_once('.')?;
            if why == "limit" {
                return Some(format!(
                    "{process}: stopped at the size limit; raise --limit or record a window"
                ));
            }
            let code: i32 = why.strip_prefix("errno-")?.parse().ok()?;
            let error = std::io::Error::from_raw_os_error(code);
            Some(format!("{process}: could not write any more: {error}"))
        };
        let mut problems: Vec<String> = self.files().filter_map(problem).collect();
        problems.sort();
        problems
    }

    /// Merges the parts into one trace, classified by the default rules. With a pattern, keeps only the work that NVTX
    /// ranges of matching names launched.
    ///
    /// Returns an error if nothing was recorded.
    pub fn merge(&self, pattern: Option<&str>) -> Result<Trace> {
        if self.written().processes == 0 {
            return Err(Error::input_help(
                "no process of the program used CUDA, NVTX or NCCL while it was recorded",
                "inside a container, run `ladderscope record` there; Ray workers and ssh do not pass the environment on",
            ));
        }
        let (mut trace, _) = import::open_with(&self.parts(), &Rules::default())?;
        if let Some(pattern) = pattern {
            keep_launched_in(&mut trace, pattern)?;
        }
        Ok(trace)
    }
}

fn nanoseconds(seconds: f64) -> u64 {
    u64::try_from(Duration::try_from_secs_f64(seconds).unwrap_or_default().as_nanos())
        .unwrap_or(u64::MAX)
}

/// Time between the request and the window: processes read the control file every 100 ms.
const LEAD_TIME_NS: u64 = 300_000_000;

/// Opens the window of a recording that waits for it, for all its processes at once.
///
/// Returns an error if there is no such recording, or its window is open.
pub fn start(directory: &Path) -> Result<()> {
    let recording = RecordingDirectory::open(directory)?;
    let control = recording.control()?;
    let now = now_ns();
    if control.start_ns != u64::MAX && control.stop_ns > now {
        return Err(Error::input_help(
            format!("{}: is recording already", directory.display()),
            "end it with `ladderscope record --stop DIR`",
        ));
    }
    let start_ns = now + LEAD_TIME_NS;
    recording.set_control(Control { start_ns, stop_ns: u64::MAX, ..control })
}

/// Closes the window.
///
/// Returns an error if there is no such recording, or its window is not open.
pub fn stop(directory: &Path) -> Result<()> {
    let recording = RecordingDirectory::open(directory)?;
    let control = recording.control()?;
    if control.start_ns == u64::MAX || control.stop_ns <= now_ns() {
        return Err(Error::input_help(
            format!("{}: is not recording", directory.display()),
            "begin with `ladderscope record --start DIR`",
        ));
    }
    let stop_ns = (now_ns() + LEAD_TIME_NS).max(control.start_ns);
    recording.set_control(Control { stop_ns, ..control })
}

/// Output of the program and of `record`, in the recording's directory.
pub const OUTPUT: &str = "output.txt";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingResult {
    pub trace: PathBuf,
    /// Exit status of the program if it failed, with its output.
    pub failure: Option<String>,
}

/// Records a shell command to its end, into `recordings/NAME` of the runs directory.
///
/// Returns an error if nothing was recorded, with the last line of output.
pub fn record_shell(runs: &Path, name: &str, line: &str) -> Result<RecordingResult> {
    let directory = runs.join(RECORDINGS).join(name);
    std::fs::create_dir_all(&directory).map_err(Error::io(&directory))?;
    let output = directory.join(OUTPUT);
    let file = std::fs::File::create(&output).map_err(Error::io(&output))?;
    let binary = std::env::current_exe()
        .map_err(|error| Error::failed(format!("the running binary cannot be found: {error}")))?;
    let mut command = Command::new(&binary);
    command.arg("record").arg("--dir").arg(runs).args(["--name", name, "--", "sh", "-c", line]);
    command.stdin(Stdio::null()).stderr(file.try_clone().map_err(Error::io(&output))?).stdout(file);
    let status = command.status().map_err(Error::io(&binary))?;
    let trace = directory.join(TRACE);
    if trace.is_file() {
        let failure = (!status.success()).then(|| format!("{status}: {}", output.display()));
        return Ok(RecordingResult { trace, failure });
    }
    let text = std::fs::read(&output).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines = || text.lines().rev().filter(|line| !line.trim().is_empty());
    let error = lines().find_map(|line| line.strip_prefix("error: "));
    let last = error.or(lines().next()).unwrap_or("no output");
    let last = base::text::without_controls(last);
    Err(Error::failed(format!(
        "nothing was recorded ({status}): {last}; all output: {}",
        output.display()
    )))
}
