//! A Slurm command as a child process with a timeout; its failures as messages.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use base::error::{Error, Result};
use base::text::{printable, shell_command};

const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Runs a command and returns its standard output. Fails on a nonzero status or after `timeout`.
pub(super) fn output_of(command: &mut Command, timeout: Duration) -> Result<String> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let command_line = shell_command(words.map(|word| word.to_string_lossy()));
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
    let Some(status) = wait_for_exit(&mut child, timeout) else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(Error::failed(format!("{command_line}: no answer within {} s", timeout.as_secs())));
    };
    let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    if status.success() {
        return Ok(out);
    }
    let reason = match err.trim() {
        "" => format!("it ended with {status}"),
        message => message.lines().collect::<Vec<_>>().join("; "),
    };
    Err(Error::failed(format!("{command_line}: {}", printable(&reason))))
}

/// Exit status; `None` if the child still runs after `timeout`.
fn wait_for_exit(child: &mut Child, timeout: Duration) -> Option<ExitStatus> {
    let started = Instant::now();
    while started.elapsed() < timeout {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        std::thread::sleep(EXIT_POLL_INTERVAL);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_hanging_and_missing_commands_report_an_error() {
        let run = |script: &str| {
            output_of(Command::new("sh").args(["-c", script]), Duration::from_millis(300))
        };
        assert_eq!(run("echo 12; echo note >&2").unwrap(), "12\n");
        let refused =
            run("echo 'invalid partition' >&2; echo 'really' >&2; exit 1").unwrap_err().to_string();
        assert!(refused.ends_with("invalid partition; really"), "{refused}");
        assert!(run("exit 3").unwrap_err().to_string().contains("exit status: 3"));
        assert!(run("sleep 5").unwrap_err().to_string().ends_with("no answer within 0 s"));
        let none = output_of(&mut Command::new("no-such-sbatch"), Duration::from_secs(60)).unwrap_err();
        assert_eq!(none.exit_code(), 2);
    }
}
