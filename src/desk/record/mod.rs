//! Recording of any program: prepares the directory and the environment of the program, sets the window, and merges
//! what its processes wrote.

mod background;
mod control;
mod object;
mod ranges;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use background::{Recorded, record_shell};
pub use control::{start, stop};
pub use ranges::{RangePattern, keep_launched_in};

use base::error::{Error, Result};
use inject::control::{Control, DIRECTORY_VARIABLE};
use inject::cupti::LIBRARY_VARIABLE;
use machine::driver::libraries::{self, Library};
use trace::Trace;
use trace::import;
use trace::rules::Rules;

/// Subdirectory with one file per process.
const PARTS: &str = "parts";
pub const TRACE: &str = "trace.parquet";
/// Variables that name the library which the driver, NVTX and NCCL load.
const INJECTIONS: [&str; 3] = ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NCCL_PROFILER_PLUGIN"];

/// Part of the run that is recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Window {
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
pub struct Recording {
    directory: PathBuf,
}

/// Parts that the processes have written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub processes: usize,
    pub bytes: u64,
    /// Processes that could not write, or reached their limit.
    pub silent: usize,
}

pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl Recording {
    /// Creates the directory, readable by this user alone, with the window's control file. An existing recording is
    /// joined: several nodes record into one.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory cannot be written.
    pub fn create(directory: PathBuf, window: Window, limit: u64) -> Result<Self> {
        let parts = directory.join(PARTS);
        std::fs::create_dir_all(&parts).map_err(Error::io(&parts))?;
        let own = rustix::fs::Mode::RWXU;
        rustix::fs::chmod(&parts, own).map_err(|error| Error::io(&parts)(error.into()))?;
        let directory = directory.canonicalize().map_err(Error::io(&directory))?;
        let recording = Self { directory };
        if control::read(&recording.parts()).is_err() {
            let start_ns = match window {
                Window::Always => 0,
                Window::Timed { delay, .. } => now_ns().saturating_add(nanoseconds(delay)),
                Window::OnDemand => u64::MAX,
            };
            let stop_ns = match window {
                Window::Timed { duration: Some(duration), .. } => {
                    start_ns.max(now_ns()).saturating_add(nanoseconds(duration))
                }
                _ => u64::MAX,
            };
            control::write(&recording.parts(), Control { start_ns, stop_ns, limit })?;
        }
        Ok(recording)
    }

    /// Opens an existing recording. Returns an input error for another directory.
    pub fn open(directory: &Path) -> Result<Self> {
        let directory =
            if directory.ends_with(PARTS) { directory.parent().unwrap_or(directory) } else { directory };
        let recording = Self { directory: directory.to_owned() };
        if !recording.parts().is_dir() {
            return Err(Error::input_help(
                format!("{}: no recording of `ladderscope record`", directory.display()),
                "pass the directory that `ladderscope record` named when it started",
            ));
        }
        Ok(recording)
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn parts(&self) -> PathBuf {
        self.directory.join(PARTS)
    }

    /// The window, for progress.
    pub fn control(&self) -> Result<Control> {
        control::read(&self.parts())
    }

    /// Variables for the program, and warnings about doors that are taken.
    ///
    /// # Errors
    ///
    /// Returns an error if another tool records the program, or the recorder cannot be written anywhere.
    pub fn environment(&self) -> Result<(Variables, Vec<String>)> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(other) = set(INJECTIONS[0]) {
            return Err(Error::input_help(
                format!("{} is set already: {}", INJECTIONS[0], other.to_string_lossy()),
                "CUDA loads one such library; unset the variable, or record with the tool that set it",
            ));
        }
        let object = object::unpacked(&self.directory)?;
        let mut warnings = Vec::new();
        let mut variables = vec![(DIRECTORY_VARIABLE, self.parts().into_os_string())];
        for (name, loses) in INJECTIONS.into_iter().zip(["", "NVTX ranges", "NCCL's algorithms"]) {
            match set(name) {
                None => variables.push((name, object.clone().into_os_string())),
                Some(other) => warnings.push(format!(
                    "{name} is set to {}: recording without {loses}",
                    other.to_string_lossy()
                )),
            }
        }
        // the process's own CUPTI comes first; searching loads nothing into the program
        if set(LIBRARY_VARIABLE).is_none()
            && let Ok(found) = libraries::found(Library::Cupti)
        {
            variables.push((LIBRARY_VARIABLE, found.path.clone().into_os_string()));
        }
        Ok((variables, warnings))
    }

    pub fn written(&self) -> Written {
        let mut written = Written::default();
        for entry in std::fs::read_dir(self.parts()).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(inject::format::SUFFIX) {
                written.processes += 1;
                written.bytes += entry.metadata().map_or(0, |found| found.len());
            } else if name.contains(".errno-") || name.ends_with(".limit") {
                written.silent += 1;
            }
        }
        written
    }

    /// Sentences about processes whose recording ended early.
    pub fn problems(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.parts()).into_iter().flatten().flatten();
        let mut found: Vec<String> = names
            .filter_map(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                let (process, why) = name.rsplit_once('.')?;
                if why == "limit" {
                    return Some(format!(
                        "{process}: stopped at the size limit; raise --limit or record a window"
                    ));
                }
                let code: i32 = why.strip_prefix("errno-")?.parse().ok()?;
                let error = std::io::Error::from_raw_os_error(code);
                Some(format!("{process}: could not write any more: {error}"))
            })
            .collect();
        found.sort();
        found
    }

    /// Merges the parts into one trace, classified by the default rules.
    ///
    /// # Errors
    ///
    /// Returns an error if nothing was recorded.
    pub fn merge(&self, pattern: Option<&RangePattern>) -> Result<Trace> {
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
