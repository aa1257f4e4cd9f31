//! `ladderscope record -- CMD`: runs a program, records all its processes, and explains the trace.

use std::ffi::OsString;
use std::io::{ErrorKind, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::output::{self, FormatArgs, OutputFormat};
use super::{diff, overlap, stderr};
use crate::desk::record::{self, RecordingDirectory, RecordingWindow, Variables};
use base::error::{Error, Result};
use base::text::counted;
use lab::store::{RECORDINGS, Store};
use study::diff::StoredPrediction;
use trace::Trace;

/// Interval between looks at a recorded program that is running.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);
/// Time after the window's end until all processes have written.
const SETTLE_NS: u64 = 1_000_000_000;
const HELP: &str = "\
Records all processes that CMD starts: kernels, copies, CUDA graphs, NVTX ranges and NCCL collectives. Passes CMD's \
output, signals and exit status through; if recording fails, CMD continues. Containers, Ray, Slurm and torchrun: \
docs/trace-of-my-engine.md.";

/// Arguments of `ladderscope record`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Program to record, with its arguments
    #[arg(last = true, value_name = "CMD", required_unless_present_any = ["merge", "start", "stop"])]
    pub command: Vec<OsString>,
    /// Start recording this many seconds after the start of CMD
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with = "on_demand")]
    pub delay: Option<f64>,
    /// Record for this many seconds, all processes in the same window; CMD continues
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with = "on_demand")]
    pub duration: Option<f64>,
    /// Keep only work launched inside NVTX ranges of this name; `*` matches any text
    #[arg(long, value_name = "NAME")]
    pub range: Option<String>,
    /// Wait with recording until `ladderscope record --start DIR` runs in another terminal
    #[arg(long)]
    pub on_demand: bool,
    /// Name of the recording in RUNS_DIR/recordings; nodes that use the same name share the recording [default: the
    /// time]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub name: Option<String>,
    /// Maximum size of each process's file
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = super::app::size)]
    pub limit: u64,
    /// Compare with the trace of a stored prediction (`rewire --save NAME`), and show how far off the prediction was
    #[arg(long, value_name = "NAME", conflicts_with_all = ["start", "stop"])]
    pub check: Option<String>,
    /// Begin the window of a recording that waits (--on-demand)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["command", "stop", "merge"])]
    pub start: Option<PathBuf>,
    /// End the window of a recording (--on-demand)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["command", "merge"])]
    pub stop: Option<PathBuf>,
    /// Merge the recordings of several nodes, or finish an interrupted one
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub merge: Option<PathBuf>,
    /// Trace to write [default: trace.parquet in the recording's directory]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub format: FormatArgs,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1e6).contains(number));
    number.ok_or_else(|| "write a number of seconds, such as 30 or 2.5".into())
}

fn name(text: &str) -> std::result::Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match !text.is_empty() && !text.starts_with('.') && text.len() <= 100 && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err("use letters, digits, '-', '_' and '.'".into()),
    }
}

pub fn run(args: &Args, dir: &Path) -> Result<u8> {
    if let Some(directory) = &args.start {
        record::start(directory)?;
        stderr::note("recording from 0.3 s on; end it with `ladderscope record --stop`");
        return Ok(0);
    }
    if let Some(directory) = &args.stop {
        record::stop(directory)?;
        stderr::note("recording ends in 0.3 s; `ladderscope record` then merges it");
        return Ok(0);
    }
    if let Some(name) = &args.check {
        predicted_trace(name, dir)?;
    }
    if let Some(directory) = &args.merge {
        explain(args, &RecordingDirectory::open(directory)?, dir)?;
        return Ok(0);
    }
    if let Some(outer) = std::env::var_os(inject::control::DIRECTORY_VARIABLE) {
        stderr::note(&format!(
            "already recorded into {}: running without a second recorder",
            PathBuf::from(outer).display()
        ));
        return Ok(exit_code(wait(&mut start_program(args, Vec::new())?, &mut || {})?));
    }
    let window = match (args.on_demand, args.delay, args.duration) {
        (true, ..) => RecordingWindow::OnDemand,
        (false, None, None) => RecordingWindow::Always,
        (false, delay, duration) => RecordingWindow::Timed { delay: delay.unwrap_or(0.0), duration },
    };
    let stamp = || jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
    let directory = dir.join(RECORDINGS).join(args.name.clone().unwrap_or_else(stamp));
    let recording = RecordingDirectory::create(directory, window, args.limit)?;
    let (variables, warnings) = recording.environment()?;
    warnings.iter().for_each(|warning| stderr::warn(warning));
    let mut program = start_program(args, variables)?;
    stderr::note(&format!("recording into {}", recording.directory.display()));
    let mut progress = RecordingProgress::new(&recording);
    let mut explained = false;
    let status = wait(&mut program, &mut || {
        progress.show();
        // CMD may be a server that never ends: explain the window when it is over
        let control = recording.control().ok();
        let over = control.is_some_and(|control| {
            control.start_ns < control.stop_ns
                && control.stop_ns.saturating_add(SETTLE_NS) < record::now_ns()
        });
        if over && !explained {
            explained = true;
            progress.clear();
            explain_or_print_error(args, &recording, dir);
        }
    })?;
    progress.clear();
    if !explained {
        explain_or_print_error(args, &recording, dir);
    }
    Ok(exit_code(status))
}

/// Starts the program and returns the signals to forward to it. Registers their handlers first: until then, a signal would
/// end this process and leave the program running.
fn start_program(args: &Args, variables: Variables) -> Result<(Child, Signals)> {
    let Some((program, arguments)) = args.command.split_first() else {
        return Err(Error::input("no program to record"));
    };
    let mut command = Command::new(program);
    command.args(arguments).envs(variables);
    let signals = Signals::new([SIGINT, SIGQUIT, SIGHUP, SIGTERM, SIGUSR1, SIGUSR2]).map_err(waiting)?;
    let child = command
        .spawn()
        .map_err(|error| Error::input(start_problem(&program.to_string_lossy(), &error)))?;
    Ok((child, signals))
}

/// Reason and remedy if the program does not start.
fn start_problem(program: &str, error: &std::io::Error) -> String {
    let is_path = program.contains('/');
    match error.kind() {
        ErrorKind::NotFound if is_path && Path::new(program).exists() => {
            format!("{program}: its interpreter, named in the first line, does not exist")
        }
        ErrorKind::NotFound if is_path => {
            format!("{program}: no such program; check the path, which is relative to this folder")
        }
        ErrorKind::NotFound => format!(
            "no program '{program}' in PATH: check the spelling, activate its environment, or give a path (./{program})"
        ),
        ErrorKind::PermissionDenied => format!(
            "{program} is not executable: chmod +x {program}, or name its interpreter (python {program})"
        ),
        _ => format!("{program}: {error}"),
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    let signal = || status.signal().map_or(1, |signal| 128 + signal);
    u8::try_from(status.code().unwrap_or_else(signal)).unwrap_or(1)
}

fn waiting(error: std::io::Error) -> Error {
    Error::failed(format!("waiting for the program: {error}"))
}

/// Waits for the program, and passes signals on to it. `watch` is called about every 100 ms.
fn wait((child, signals): &mut (Child, Signals), watch: &mut dyn FnMut()) -> Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait().map_err(waiting)? {
            return Ok(status);
        }
        for signal in signals.pending() {
            // the terminal sends these to the whole foreground group, of which the program is a part
            let by_terminal = matches!(signal, SIGINT | SIGQUIT | SIGHUP) && is_foreground();
            if let (false, Some(signal), Some(pid)) = (
                by_terminal,
                rustix::process::Signal::from_named_raw(signal),
                rustix::process::Pid::from_raw(child.id() as i32),
            ) {
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
        watch();
        std::thread::sleep(WATCH_INTERVAL);
    }
}

/// True if this process is in its terminal's foreground group.
fn is_foreground() -> bool {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // after the name: state, parent, group, session, terminal, the terminal's foreground group
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    matches!(fields.as_slice(), [_, _, group, _, _, foreground, ..] if group == foreground)
}

/// Progress on standard error: a line that is drawn over, on a terminal.
struct RecordingProgress<'a> {
    recording: &'a RecordingDirectory,
    drawn: Option<Instant>,
    /// Bytes written when it was drawn.
    drawn_bytes: u64,
}

impl<'a> RecordingProgress<'a> {
    fn new(recording: &'a RecordingDirectory) -> Self {
        Self { recording, drawn: None, drawn_bytes: 0 }
    }

    fn show(&mut self) {
        let since = self.drawn.map(|drawn| drawn.elapsed());
        if !stderr::can_draw() || since.is_some_and(|since| since < Duration::from_secs(1)) {
            return;
        }
        self.drawn = Some(Instant::now());
        let written = self.recording.written();
        let rate = since.map_or(0.0, |since| {
            written.bytes.saturating_sub(self.drawn_bytes) as f64 / since.as_secs_f64()
        });
        self.drawn_bytes = written.bytes;
        let now = record::now_ns();
        let window = match self.recording.control() {
            Ok(control) if control.start_ns == u64::MAX => "waiting for --start".to_owned(),
            Ok(control) if control.start_ns > now => {
                format!("window in {:.0} s", (control.start_ns - now) as f64 / 1e9)
            }
            Ok(control) if control.stop_ns <= now => "window closed".to_owned(),
            _ => "recording".to_owned(),
        };
        let line = format!(
            "{window}: {}, {}, {}/s",
            processes(written.processes),
            output::bytes(written.bytes),
            output::bytes(rate as u64),
        );
        let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
    }

    fn clear(&mut self) {
        if self.drawn.take().is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn processes(count: usize) -> String {
    format!("{count} process{}", if count == 1 { "" } else { "es" })
}

/// Calls [`explain`]; prints a failure on standard error, since the status is CMD's.
fn explain_or_print_error(args: &Args, recording: &RecordingDirectory, dir: &Path) {
    if let Err(error) = explain(args, recording, dir) {
        stderr::print_error(&error);
    }
}

/// Merges the recording, writes the trace, and prints the report of `overlap`.
fn explain(args: &Args, recording: &RecordingDirectory, dir: &Path) -> Result<()> {
    recording.problems().iter().for_each(|problem| stderr::warn(problem));
    let trace = recording.merge(args.range.as_deref())?;
    let path = args.output.clone().unwrap_or_else(|| recording.directory.join(record::TRACE));
    trace::export::write(&trace, &path)?;
    let import = trace.meta.import.clone().unwrap_or_default();
    let from = import.ranks_from.map(|from| format!(" ({from})")).unwrap_or_default();
    stderr::note(&format!("{}{from}: {}", counted(trace.meta.ranks as usize, "rank"), path.display()));
    if trace.spans.is_empty() {
        // otherwise `overlap` prints them
        stderr::warn_all(import.warnings.iter().map(String::as_str), "the trace has all of them");
        output::emit(&ranges_text(&trace))?;
    } else {
        let (recorded, output) = (path.to_string_lossy().into_owned(), args.format);
        // JSON and CSV have one document: that of `diff` has the check
        if args.check.is_none() || output.format == OutputFormat::Table {
            let source = Some(recorded.clone());
            overlap::run(&overlap::Args { source, output, ..Default::default() }, dir.to_owned())?;
        }
        if let Some(name) = &args.check {
            let (a, check) = (predicted_trace(name, dir)?, Some(name.clone()));
            diff::run(
                &diff::Args { a, b: recorded, check, output, ..Default::default() },
                dir.to_owned(),
            )?;
        }
    }
    stderr::note(&format!("open it with `ladderscope timeline {}`", path.display()));
    Ok(())
}

/// The trace that a stored prediction starts from. Returns an error for an unknown name, and for one of `whatif`.
fn predicted_trace(name: &str, dir: &Path) -> Result<String> {
    let prediction: StoredPrediction = Store::open(dir).prediction(name)?;
    prediction.trace.ok_or_else(|| {
        Error::input_help(
            format!("prediction '{name}' does not say which trace it starts from"),
            format!("record without --check, then `ladderscope diff BEFORE AFTER --check {name}`"),
        )
    })
}

/// Ranges by total time, for a recording without GPU work.
fn ranges_text(trace: &Trace) -> String {
    let mut sums: Vec<(u64, i64, &str)> =
        trace.meta.range_names.iter().map(|name| (0, 0, name.as_str())).collect();
    for range in &trace.ranges {
        if let Some(sum) = sums.get_mut(range.name as usize) {
            sum.0 += 1;
            sum.1 += range.end_ns - range.start_ns;
        }
    }
    sums.sort_by_key(|(_, time, _)| std::cmp::Reverse(*time));
    let mut text =
        format!("No process used a GPU. {} NVTX ranges, longest in all:\n", trace.ranges.len());
    for (count, time, name) in sums.iter().filter(|(count, ..)| *count > 0).take(12) {
        text += &format!("  {:>12.3} ms  {count:>7}x  {name}\n", *time as f64 / 1e6);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_status_is_that_of_the_program() {
        for (command, code) in [("exit 7", 7), ("kill -9 $$", 137), ("true", 0)] {
            let status = Command::new("sh").args(["-c", command]).status().unwrap();
            assert_eq!(exit_code(status), code, "{command}");
        }
    }
}
