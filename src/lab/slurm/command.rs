//! Slurm's commands as child processes: bounded in time, with their errors in words.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base::error::{Error, Result};
use base::text::{printable, shell_command};

/// A controller that does not answer for so long is not waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often an answer is looked for.
const POLL: Duration = Duration::from_millis(10);

/// A job array that is to be queued.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// The name by which `squeue` finds it again.
    pub name: String,
    /// The batch script that every task of the array runs.
    pub script: &'a Path,
    /// The directory in which the tasks' output is written, `ARRAY_TASK.log` each.
    pub logs: &'a Path,
    /// How many tasks the array has.
    pub tasks: usize,
    /// What a task needs, as options of `sbatch`.
    pub needs: Vec<String>,
    /// Options of the user, which come last and so win.
    pub options: &'a [String],
}

/// Queues a job array; its number.
///
/// # Errors
///
/// A failure with what `sbatch` said: no such partition, too many nodes asked for.
pub fn submit(job: &Job<'_>) -> Result<u64> {
    let mut command = Command::new("sbatch");
    // what the options may not say the environment may not either
    for name in ["SBATCH_WAIT", "SBATCH_ERROR", "SBATCH_INPUT", "SBATCH_OPEN_MODE", "SBATCH_EXPORT_FILE"]
    {
        command.env_remove(name);
    }
    command
        .arg("--parsable")
        .arg(format!("--job-name={}", job.name))
        .arg(format!("--array=0-{}", job.tasks.saturating_sub(1)))
        // a measurement that was interrupted is not repeated behind the user's back
        .arg("--no-requeue")
        .arg(format!("--output={}", log_pattern(job.logs)?))
        .args(&job.needs)
        .args(job.options)
        .arg(job.script);
    let said = answer(&mut command, PATIENCE)?;
    // `--parsable` prints the number, and the cluster's name where there are several
    said.trim().split(';').next().and_then(|number| number.parse().ok()).ok_or_else(|| {
        Error::failed(format!("sbatch said '{}', which is no job's number", printable(said.trim())))
    })
}

/// Pattern of the tasks' output for `sbatch`, which replaces `%x` by the array's name and `%a` by the task's number.
/// An input error for a directory with a backslash, behind which `sbatch` replaces nothing.
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

/// Cancels all jobs of these names that are this user's.
///
/// # Errors
///
/// A failure with what `scancel` said.
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

/// What a command prints, as far as it ends well within `patience`.
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
