//! Recording as a child process, for the workbench: its output goes to a file, not to the terminal.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::TRACE;
use base::error::{Error, Result};

/// Output of the program and of `record`, in the recording's directory.
pub const OUTPUT: &str = "output.txt";

/// A finished recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub trace: PathBuf,
    /// Exit status of the program if it failed, with its output.
    pub failure: Option<String>,
}

/// Records a shell command to its end, into `recordings/NAME` of the runs directory.
///
/// # Errors
///
/// Returns an error if nothing was recorded, with the last line of output.
pub fn record_shell(runs: &Path, name: &str, line: &str) -> Result<Recorded> {
    let directory = runs.join("recordings").join(name);
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
        return Ok(Recorded { trace, failure });
    }
    let said = std::fs::read(&output).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let lines = || said.lines().rev().filter(|line| !line.trim().is_empty());
    let error = lines().find_map(|line| line.strip_prefix("error: "));
    let last = error.or(lines().next()).unwrap_or("no output");
    let last = base::text::without_controls(last);
    Err(Error::failed(format!(
        "nothing was recorded ({status}): {last}; all output: {}",
        output.display()
    )))
}
