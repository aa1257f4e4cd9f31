//! Command definition and dispatch, with handling of results and errors.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser};

use super::{Verb, complete, output, report};
use base::error::{Error, Result};
use base::shared_gpu;
use base::terminal::is_coloured;
use run::cuda;
use trace::memory;

/// How much of tensor-parallel decoding time is exposed communication, and which architecture hides it?
///
/// Ladderscope runs decoding of several architectures, records what every rank's compute lane and
/// communication lane did, and lets you look at it. Without a verb it opens the workbench.
#[derive(Debug, Parser)]
#[command(name = "ladderscope", version, max_term_width = 100, after_help = EXIT_STATUS)]
struct Cli {
    /// Where runs are stored
    #[arg(long, global = true, display_order = 900, value_name = "RUNS_DIR", default_value = "runs")]
    dir: PathBuf,
    /// CSV without the apostrophe before text that a spreadsheet would take for a formula (`=`, `+`, `-`, `@`)
    #[arg(long, global = true, display_order = 901)]
    raw: bool,
    /// Memory for reading traces, such as 8G [default: half of what is free]
    #[arg(long, global = true, display_order = 902, value_name = "SIZE", env = "LADDERSCOPE_MEMORY_LIMIT", hide_env = true, value_parser = size)]
    memory_limit: Option<u64>,
    #[command(subcommand)]
    verb: Option<Verb>,
}

const EXIT_STATUS: &str = "Exit status: 0 done, 1 failed, 2 the input was wrong or the cell cannot run, \
3 some cells of a sweep failed or none could run, 4 a gate did not hold, 130 interrupted (what was done is stored).";

/// Defines the subcommands: help line, name, arguments, and the code that runs each with the runs directory.
macro_rules! verbs {
    ($($(#[$help:meta])* $name:ident($arguments:ty): |$given:ident, $dir:pat_param| $run:expr;)*) => {
        /// What the command is asked to do.
        #[derive(Debug, clap::Subcommand)]
        enum Verb {
            $($(#[$help])* $name($arguments),)*
            /// Execute the job on standard input (what a run's process does)
            #[command(name = "__run", hide = true)]
            Child,
            /// Run the cells that were submitted to Slurm for the task within which this is called
            #[command(name = "__task", hide = true)]
            Task(crate::face::cli::task::Args),
        }

        impl Verb {
            fn run(self, dir: std::path::PathBuf) -> base::error::Result<u8> {
                match self {
                    $(Self::$name($given) => {
                        let $dir = dir;
                        $run
                    })*
                    Self::Child => Ok(0),
                    Self::Task(arguments) => crate::face::cli::task::run(&arguments, dir),
                }
            }
        }
    };
}
pub(super) use verbs;

pub(super) fn command() -> clap::Command {
    Cli::command()
}

/// Parses the arguments, runs the verb, prints errors, and returns the exit status (docs/files-and-formats.md).
pub fn main() -> ExitCode {
    // A bug must be reported as one, with exit status 1 instead of Rust's 101.
    std::panic::set_hook(Box::new(report::panicked));
    // SAFETY: the process has one thread so far.
    unsafe { shared_gpu::prepare() };
    match std::panic::catch_unwind(parse_and_dispatch) {
        Ok(code) => code,
        Err(_) => ExitCode::from(1),
    }
}

fn parse_and_dispatch() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let verb = arguments.next();
    if verb.as_ref().is_some_and(|verb| verb == cuda::PROBE) {
        return cuda::probe_main(&arguments.next().unwrap_or_default().to_string_lossy());
    }
    if verb.is_some_and(|verb| verb == complete::VERB) {
        let line: Vec<String> =
            arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
        // a shell that closes the pipe early is no failure
        let _ = output::emit(&complete::main(&line));
        return ExitCode::SUCCESS;
    }
    let words: Vec<String> =
        std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    report::heed_format(&words);
    let terminal = std::io::stdout().is_terminal() || report::stderr_is_terminal();
    let colour = if is_coloured(terminal) { ColorChoice::Auto } else { ColorChoice::Never };
    let matches = Cli::command().color(colour).try_get_matches();
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(report::usage(&error)),
    };
    if matches!(cli.verb, Some(Verb::Child)) {
        return lab::launch::child_main();
    }
    match dispatch(cli) {
        Ok(code) => leave(code),
        Err(error) if output::is_broken_pipe(&error) => leave(0),
        Err(error) => {
            report::print(&error);
            leave(error.exit_code())
        }
    }
}

/// Returns the exit status. Exits at once if GPU work hangs, since the driver would wait for it.
fn leave(code: u8) -> ExitCode {
    if machine::driver::any_abandoned() {
        let _ = std::io::stdout().flush();
        signal_hook::low_level::exit(code.into());
    }
    ExitCode::from(code)
}

/// Parses a size such as `8G`, `512M` or `1000000` into bytes.
fn size(text: &str) -> std::result::Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match &text[digits.len()..].to_ascii_lowercase()[..] {
        "" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return Err("write a size such as 8G or 512M".into()),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    number.filter(|bytes| *bytes > 0).ok_or_else(|| "write a size such as 8G or 512M".into())
}

/// Exits because reading a trace needs too much memory.
fn out_of_memory(error: &Error) -> ! {
    crate::face::tui::restore_terminal();
    report::print(error);
    signal_hook::low_level::exit(error.exit_code().into())
}

fn dispatch(cli: Cli) -> Result<u8> {
    if cli.raw {
        table::render::keep_formulas();
    }
    if let Some(bytes) = cli.memory_limit {
        memory::set_limit(bytes);
    }
    memory::on_exceeded(out_of_memory);
    let dir = cli.dir;
    if dir.exists() && !dir.is_dir() {
        return Err(Error::input_help(
            format!("--dir {}: not a directory", dir.display()),
            "name the directory that holds runs, or one to be made",
        ));
    }
    match cli.verb {
        None => super::summary::workbench_or_summary(dir),
        Some(verb) => verb.run(dir),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!((size("8G"), size("512mib"), size("77")), (Ok(8 << 30), Ok(512 << 20), Ok(77)));
        for wrong in ["", "G", "8X", "0", "-1", "1.5G", "99999999999T"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_runs_directory_may_come_before_or_after_the_verb() -> Result<(), clap::Error> {
        for arguments in [["ladderscope", "--dir", "d", "runs"], ["ladderscope", "runs", "--dir", "d"]] {
            assert_eq!(Cli::try_parse_from(arguments)?.dir, PathBuf::from("d"));
        }
        Ok(())
    }
}
