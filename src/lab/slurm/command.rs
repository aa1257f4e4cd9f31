//! Runs Slurm's commands as child processes with a timeout, and turns failures into messages.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base::error::{Error, Result};
use base::text::{printable, shell_command};

/// Timeout for commands that need the controller.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);

#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// Job name, by which `squeue` finds it.
    pub name: String,
    pub script: &'a Path,
    /// Directory for the output of the tasks, one `ARRAY_TASK.log` each.
    pub logs: &'a Path,
    pub tasks: usize,
    /// Resources per task, as options of `sbatch`.
    pub needs: Vec<String>,
    /// User options. They come last and thus override the others.
    pub options: &'a [String],
}

/// Submits a job array and returns its number.
///
/// # Errors
///
/// Returns a failure with the message of `sbatch`, e.g. for an unknown partition or too many nodes.
pub fn submit(job: &Job<'_>) -> Result<u64> {
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
        .args(&job.needs)
        .args(job.options)
        .arg(job.script);
    let said = answer(&mut command, PATIENCE)?;
    // `--parsable` prints the number, then the cluster's name if there are several
    said.trim().split(';').next().and_then(|number| number.parse().ok()).ok_or_else(|| {
        Error::failed(format!("sbatch said '{}', which is no job's number", printable(said.trim())))
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
        answer(Command::new("scancel").args(["--user", &user, "--name", name]), PATIENCE)?;
    }
    Ok(())
}

/// Runs a command and returns its standard output. Fails on a nonzero status or after `patience`.
pub(super) fn answer(command: &mut Command, patience: Duration) -> Result<String> {
    let words = || {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        shell_command(words.map(|word| word.to_string_lossy()))
    };
    let shown = words();
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Error::input_help(
            format!("{name} is not installed here"),
            "--slurm is for hosts of a Slurm cluster, from which jobs are submitted (its login nodes)",
        ),
        _ => Error::failed(format!("{name}: {e}")),
    })?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let reader = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            pipe.map(|mut pipe| pipe.read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let out = reader(out.map(|pipe| Box::new(pipe) as _));
    let err = reader(err.map(|pipe| Box::new(pipe) as _));
    let Some(status) = ended(&mut child, patience) else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(Error::failed(format!("{shown}: no answer within {} s", patience.as_secs())));
    };
    let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    if status.success() {
        return Ok(out);
    }
    let said = match err.trim() {
        "" => format!("it ended with {status}"),
        said => said.lines().collect::<Vec<_>>().join("; "),
    };
    Err(Error::failed(format!("{shown}: {}", printable(&said))))
}

fn ended(child: &mut Child, patience: Duration) -> Option<std::process::ExitStatus> {
    let began = Instant::now();
    while began.elapsed() < patience {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        std::thread::sleep(POLL);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_directories_are_no_patterns() {
        let pattern = |dir: &str| log_pattern(Path::new(dir));
        assert_eq!(pattern("/runs/.slurm/x").unwrap(), "/runs/.slurm/x/%x-%a.log");
        assert_eq!(pattern("/100%/%u%%j").unwrap(), "/100%%/%%u%%%%j/%x-%a.log");
        assert_eq!(pattern("/a\\b").unwrap_err().exit_code(), 2);
    }

    #[test]
    fn a_command_that_fails_hangs_or_is_not_there_is_told_in_words() {
        let of =
            |script: &str| answer(Command::new("sh").args(["-c", script]), Duration::from_millis(300));
        assert_eq!(of("echo 12; echo note >&2").unwrap(), "12\n");
        let refused =
            of("echo 'invalid partition' >&2; echo 'really' >&2; exit 1").unwrap_err().to_string();
        assert!(refused.ends_with("invalid partition; really"), "{refused}");
        assert!(of("exit 3").unwrap_err().to_string().contains("exit status: 3"));
        assert!(of("sleep 5").unwrap_err().to_string().ends_with("no answer within 0 s"));
        let none = answer(&mut Command::new("no-such-sbatch"), PATIENCE).unwrap_err();
        assert_eq!(none.exit_code(), 2);
    }
}
