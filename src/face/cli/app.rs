//! Command definition and dispatch, with handling of results and errors.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser};

use super::{VERBS, Verb, complete, help, output, stderr};
use crate::desk::DEFAULT_DIR;
use base::error::{Error, Result};
use base::text::is_coloured;
use lab::store::Store;
use run::cuda;
use table::shared_gpu;
use trace::memory;

/// Measure exposed communication in tensor-parallel LLM decoding and compare architectures that hide it
///
/// Ladderscope runs or simulates decoding with several architectures, records the compute and communication streams
/// of every rank, and shows them in a terminal workbench. Without a verb it opens the workbench; with the path of a trace
/// instead of a verb, it opens that trace.
#[derive(Debug, Parser)]
#[command(name = "ladderscope", version, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    /// Directory of stored runs
    #[arg(long, global = true, display_order = 900, value_name = "RUNS_DIR", default_value = DEFAULT_DIR)]
    dir: PathBuf,
    /// Write CSV without the apostrophe that keeps spreadsheets from reading text as a formula (`=`, `+`, `-`, `@`)
    #[arg(long, global = true, display_order = 901)]
    raw: bool,
    /// Memory limit for reading traces, such as 8G [default: half of the free memory]
    #[arg(long, global = true, display_order = 902, value_name = "SIZE", env = "LADDERSCOPE_MEMORY_LIMIT", hide_env = true, value_parser = size)]
    memory_limit: Option<u64>,
    #[command(subcommand)]
    verb: Option<Verb>,
}

const AFTER_HELP: &str = "\
`ladderscope help VERB` explains the options of a verb. Terms such as TPOT, exposed, hidden and gap closed: \
glossary in docs/faq.md.

Exit status: 0 success, 1 failure, 2 invalid input or a cell that cannot run, 3 some cells of a sweep failed or none \
could run, 4 a gate failed, 130 interrupted (finished work is stored).";

/// Exit statuses besides 0 and 1, as in [`AFTER_HELP`].
pub(super) mod exit_status {
    /// Invalid input, or a cell that cannot run.
    pub const INVALID: u8 = 2;
    /// Some cells of a sweep failed, or none can run.
    pub const SOME_FAILED: u8 = 3;
    /// A gate failed.
    pub const GATE_FAILED: u8 = 4;
    pub const INTERRUPTED: u8 = 130;
}

/// Verb in the help.
pub(super) struct VerbEntry {
    pub heading: &'static str,
    pub name: &'static str,
    pub uses_runs_dir: bool,
    /// Page of `docs/` about it.
    pub page: &'static str,
    pub examples: &'static [&'static str],
}

/// Defines the verbs under the headings of the help. Each has its help line, name, arguments, the expression that
/// runs it with its arguments and the runs directory (`_` if it uses none), its page in `docs/`, and examples.
macro_rules! verbs {
    ($($heading:literal {
        $($(#[$help:meta])* $name:ident($arguments:ty): |$given:ident, $dir:pat_param| $run:expr, $page:literal, $examples:expr;)*
    })*) => {
        const VERBS: &[$crate::face::cli::app::VerbEntry] = &[$($($crate::face::cli::app::VerbEntry {
            heading: $heading,
            name: stringify!($name),
            uses_runs_dir: !matches!(stringify!($dir).as_bytes(), b"_"),
            page: $page,
            examples: &$examples,
        }),*),*];

        /// Verb of the command line.
        #[derive(Debug, clap::Subcommand)]
        enum Verb {
            $($($(#[$help])* $name($arguments),)*)*
            /// Execute the job on standard input (internal: the process of a run)
            #[command(name = "__run", hide = true)]
            Child,
            /// Run the cells submitted to Slurm for the current task (internal)
            #[command(name = "__task", hide = true)]
            Task(crate::face::cli::slurm_task::Args),
        }

        impl Verb {
            fn run(self, dir: std::path::PathBuf) -> base::error::Result<u8> {
                match self {
                    $($(Self::$name($given) => {
                        let $dir = dir;
                        $run
                    })*)*
                    Self::Child => Ok(0),
                    Self::Task(arguments) => crate::face::cli::slurm_task::run(&arguments, dir),
                }
            }
        }
    };
}
pub(super) use verbs;

/// The command with all verbs and options; its help groups the verbs under headings.
pub(super) fn command() -> clap::Command {
    command_in(ColorChoice::Auto)
}

fn command_in(colour: ColorChoice) -> clap::Command {
    let command = Cli::command().color(colour);
    let template = help_template(&command);
    help::completed(command.help_template(template))
}

/// Help template with the verbs by heading, since clap has no headings for subcommands.
fn help_template(command: &clap::Command) -> String {
    let (header, literal) = (command.get_styles().get_header(), command.get_styles().get_literal());
    let mut template = "{before-help}{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    for verbs in VERBS.chunk_by(|a, b| a.heading == b.heading) {
        template += &format!("{header}{}:{header:#}\n", verbs[0].heading);
        for verb in verbs {
            let name = verb.name.to_ascii_lowercase();
            let about = command.find_subcommand(&name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            template += &format!("  {literal}{name:<11}{literal:#}  {about}\n");
        }
        template.push('\n');
    }
    template + &format!("{header}Options:{header:#}\n{{options}}{{after-help}}")
}

/// Parses the arguments, runs the verb, prints errors, and returns the exit status (docs/files-and-formats.md).
pub fn main() -> ExitCode {
    // A bug must be reported as one, with exit status 1 instead of Rust's 101.
    std::panic::set_hook(Box::new(stderr::report_panic));
    // SAFETY: the process has one thread so far.
    unsafe { shared_gpu::prepare() };
    match std::panic::catch_unwind(parse_and_dispatch) {
        Ok(code) => code,
        Err(_) => ExitCode::from(1),
    }
}

fn parse_and_dispatch() -> ExitCode {
    let mut given: Vec<OsString> = std::env::args_os().collect();
    let word = |at: usize| given.get(at).map(|word| word.to_string_lossy());
    match word(1).as_deref() {
        Some(cuda::PROBE) => return cuda::probe_main(&word(2).unwrap_or_default()),
        Some(complete::VERB) => {
            // a shell that closes the pipe early is no failure
            let _ = output::emit(&complete::answer(&word(2).unwrap_or_default(), word(3).as_deref()));
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    stderr::choose_error_format(&given);
    let terminal = std::io::stdout().is_terminal() || stderr::is_terminal();
    let colour = if is_coloured(terminal) { ColorChoice::Auto } else { ColorChoice::Never };
    let mut matches = command_in(colour).try_get_matches_from(&given);
    if let Some(at) = matches.as_ref().err().and_then(|error| trace_at(error, &given)) {
        let opens = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
        given.insert(at, if opens { "timeline" } else { "overlap" }.into());
        matches = command_in(colour).try_get_matches_from(&given);
    }
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(stderr::usage_error(&error)),
    };
    if matches!(cli.verb, Some(Verb::Child)) {
        return lab::launch::child_main();
    }
    match dispatch(cli) {
        Ok(code) => leave(code),
        Err(error) if output::is_broken_pipe(&error) => leave(0),
        Err(error) => {
            stderr::print_error(&error);
            leave(error.exit_code())
        }
    }
}

/// Index of an existing path given instead of a verb: a trace to open.
fn trace_at(error: &clap::Error, given: &[OsString]) -> Option<usize> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let at = given.iter().position(|argument| argument == word.as_str())?;
    // not the second word of `trace FILE`, but `--dir runs FILE` has no verb
    let is_verb = |word: &OsStr| VERBS.iter().any(|verb| word.eq_ignore_ascii_case(verb.name));
    let is_first = !(1..at).any(|at| is_verb(&given[at]) && given[at - 1] != "--dir");
    (is_first && Path::new(word).exists()).then_some(at)
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
pub(super) fn size(text: &str) -> std::result::Result<u64, String> {
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
    stderr::print_error(error);
    signal_hook::low_level::exit(error.exit_code().into())
}

/// Runs directory to use: `h100/runs` for `h100`, such as unpacked results or the directory of a project, if only the inner
/// one has runs.
fn with_runs(dir: PathBuf) -> PathBuf {
    let has_runs = |dir: &Path| Store::open(dir).list().is_ok_and(|all| !all.records.is_empty());
    let inner = dir.join("runs");
    if !inner.is_dir() || has_runs(&dir) || !has_runs(&inner) {
        return dir;
    }
    stderr::note(&format!("no runs in {}: using {}", dir.display(), inner.display()));
    inner
}

fn dispatch(cli: Cli) -> Result<u8> {
    if cli.raw {
        table::render::keep_formulas();
    }
    if let Some(bytes) = cli.memory_limit {
        memory::set_limit(bytes);
    }
    memory::on_out_of_memory(out_of_memory);
    let dir = cli.dir;
    if dir.exists() && !dir.is_dir() {
        return Err(Error::input_help(
            format!("--dir {}: not a directory", dir.display()),
            "pass an existing runs directory or a new path",
        ));
    }
    let dir = with_runs(dir);
    match cli.verb {
        None => super::workbench::workbench_or_summary(dir),
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
        command().debug_assert();
    }

    #[test]
    fn an_existing_path_is_opened_as_a_trace() {
        let at = |words: &[&str]| {
            let given: Vec<OsString> = words.iter().map(Into::into).collect();
            trace_at(&command().try_get_matches_from(&given).unwrap_err(), &given)
        };
        assert_eq!(at(&["ladderscope", "Cargo.toml"]), Some(1));
        assert_eq!(at(&["ladderscope", "--dir", "runs", "Cargo.toml"]), Some(3));
        assert_eq!(at(&["ladderscope", "no-such-file.json"]), None);
        assert_eq!(at(&["ladderscope", "trace", "Cargo.toml"]), None);
    }

    #[test]
    fn a_directory_with_a_store_in_it_stands_for_that_store() -> Result<()> {
        let outer = tempfile::tempdir().expect("a directory");
        let (outer, inner) = (outer.path(), outer.path().join("runs"));
        let run_in = |dir: &Path| Store::open(dir).begin(&table::testing::spec(), None, 0);
        assert_eq!(with_runs(outer.into()), outer);
        run_in(&inner)?;
        assert_eq!(with_runs(outer.into()), inner);
        run_in(outer)?;
        assert_eq!(with_runs(outer.into()), outer, "its own runs");
        Ok(())
    }

    #[test]
    fn the_runs_directory_may_come_before_or_after_the_verb() -> Result<(), clap::Error> {
        for arguments in [["ladderscope", "--dir", "d", "runs"], ["ladderscope", "runs", "--dir", "d"]] {
            assert_eq!(Cli::try_parse_from(arguments)?.dir, PathBuf::from("d"));
        }
        Ok(())
    }
}
