//! Job arrays: `sbatch` submits them, `scancel` cancels them.

use std::path::Path;
use std::process::Command;

use super::CONTROLLER_TIMEOUT;
use super::command::output_of;
use base::error::{Error, Result};
use base::text::printable;

#[derive(Clone, Debug)]
pub struct JobArray<'a> {
    /// Name by which `squeue` finds the array.
    pub name: String,
    pub script: &'a Path,
    /// Directory for the output of the tasks, one `ARRAY_TASK.log` each.
    pub logs: &'a Path,
    pub tasks: usize,
    /// Resources per task, as options of `sbatch`.
    pub resources: Vec<String>,
    /// User options. They come last and thus override the others.
    pub options: &'a [String],
}

/// Submits a job array and returns its number.
///
/// # Errors
///
/// Returns a failure with the message of `sbatch`, e.g. for an unknown partition or too many nodes.
pub fn submit(job: &JobArray<'_>) -> Result<u64> {
    let mut command = Command::new("sbatch");
    // options that users may not pass must not come from the environment either
    for name in ["SBATCH_WAIT", "SBATCH_ERROR", "SBATCH_INPUT", "SBATCH_OPEN_MODE", "SBATCH_EXPORT_FILE"]
    {
        command.env_remove(name);
    }
    command
        .arg("--parsable")
        .arg(format!("--job-name={}", job.name))
        .arg(format!("--array=0-{}", job.tasks.saturating_sub(1)))
        // an interrupted measurement must not be repeated without the user's knowledge
        .arg("--no-requeue")
        .arg(format!("--output={}", log_pattern(job.logs)?))
        .args(&job.resources)
        .args(job.options)
        .arg(job.script);
    let output = output_of(&mut command, CONTROLLER_TIMEOUT)?;
    // `--parsable` prints the number, then the cluster's name if there are several
    output.trim().split(';').next().and_then(|number| number.parse().ok()).ok_or_else(|| {
        Error::failed(format!("sbatch printed '{}' instead of a job number", printable(output.trim())))
    })
}

/// Pattern of the output files for `sbatch`, which replaces `%x` by the job name and `%a` by the task's number.
/// Returns an input error if the directory contains a backslash, since `sbatch` then replaces nothing.
fn log_pattern(logs: &Path) -> Result<String> {
    let dir = logs.display().to_string();
    if dir.contains('\\') {
        return Err(Error::input_help(
            format!("{dir}: sbatch writes no output to a directory with a backslash in its name"),
            "name another runs directory: --dir DIR",
        ));
    }
    Ok(format!("{}/%x-%a.log", dir.replace('%', "%%")))
}

/// Cancels this user's jobs with these names. Fails with the message of `scancel`.
pub fn cancel(names: &[String]) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let user = rustix::process::getuid().as_raw().to_string();
    for name in names {
        output_of(Command::new("scancel").args(["--user", &user, "--name", name]), CONTROLLER_TIMEOUT)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_names_are_escaped_in_log_patterns() {
        let pattern = |dir: &str| log_pattern(Path::new(dir));
        assert_eq!(pattern("/runs/.slurm/x").unwrap(), "/runs/.slurm/x/%x-%a.log");
        assert_eq!(pattern("/100%/%u%%j").unwrap(), "/100%%/%%u%%%%j/%x-%a.log");
        assert_eq!(pattern("/a\\b").unwrap_err().exit_code(), 2);
    }
}
