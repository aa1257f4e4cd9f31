//! Verbs that open or configure the workbench: none (the workbench, or a short summary without a terminal), `timeline`
//! (at one trace or two aligned ones, or a figure of them) and `config`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use super::filter::{FilterArgs, select_runs};
use super::select::SelectArgs;
use super::{output, stderr};
use crate::desk::export::FileKind;
use crate::desk::{self, OpenOptions};
use crate::face::tui;
use crate::face::tui::config::{self, Surroundings, WorkbenchConfig};
use base::error::{Error, Result};
use base::text::counted;
use lab::store::Store;
use study::plot::{self, TraceStretch};
use table::Status;

/// Opens the workbench on a terminal, else prints a short introduction.
pub fn workbench_or_summary(dir: PathBuf) -> Result<u8> {
    if std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        tui::run(tui::WorkbenchOptions { dir, ..tui::WorkbenchOptions::default() })?;
    } else {
        output::emit(&summary(&dir)?)?;
    }
    Ok(0)
}

fn summary(dir: &Path) -> Result<String> {
    let records = select_runs(&[], dir)?.records;
    let count = |status| records.iter().filter(|record| record.status == status).count();
    let running = match count(Status::Running) {
        0 => String::new(),
        running => format!(", {running} running now"),
    };
    Ok(format!(
        "\
Ladderscope {}: how much of tensor-parallel decoding time is exposed communication,
and which model architecture hides it best, on which hardware?

{} in {} ({} ok{running}). Not a terminal, so the workbench was not opened. Try:

  ladderscope run --model tiny --backend cpu --tp 2 --architecture ladder   run one cell
  ladderscope experiments                                                   experiment files at hand
  ladderscope sweep FILE.toml                                               run an experiment
  ladderscope runs                                                          list stored runs
  ladderscope doctor                                                        what this machine can do
  ladderscope --help                                                        everything else
",
        env!("CARGO_PKG_VERSION"),
        counted(records.len(), "stored run"),
        dir.display(),
        count(Status::Ok),
    ))
}

/// Arguments of `ladderscope timeline`.
#[derive(Debug, clap::Args)]
pub struct TimelineArgs {
    /// Stored run (id, prefix, 'last'), trace file, or directory with one file per rank
    #[arg(value_name = "RUN|TRACE", required_unless_present = "filter")]
    pub source: Option<String>,
    /// Second run or trace, drawn below the first and aligned at a common step
    #[arg(value_name = "SECOND")]
    pub beneath: Option<String>,
    /// Write a figure (.svg or .png) instead of opening the workbench; for a stored run, by default of the middle decode step
    #[arg(short, long, alias = "export", value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub opening: OpenOptions,
}

pub fn timeline(args: &TimelineArgs, dir: PathBuf) -> Result<u8> {
    if let Some(path) = &args.output {
        FileKind::check(path, &FileKind::FIGURES)?;
    } else if !std::io::stdout().is_terminal() {
        return Err(Error::input_help(
            "the timeline needs a terminal, and standard output is a file or a pipe",
            "write a figure with -o FILE.svg, or numbers with `ladderscope overlap`",
        ));
    }
    let store = Store::open(&dir);
    let open =
        |source: &str, options: &OpenOptions| desk::open(source, &store, options, args.select.step);
    let mut traces = vec![open(&args.filter.one_run(args.source.as_ref(), &dir)?, &args.opening)?];
    if let Some(beneath) = &args.beneath {
        traces.push(open(beneath, &args.opening.of_one(beneath))?);
    }
    traces.iter().for_each(stderr::note_part);
    if args.output.is_some() {
        traces.iter().for_each(stderr::import_warnings);
    }
    let first = &traces[0].trace;
    match &args.output {
        Some(path) => {
            let (from, to) = args.select.window(first)?;
            let above = TraceStretch { trace: first, from_ns: from, to_ns: to };
            match traces.get(1) {
                Some(beneath) => plot::timeline(&desk::align_stretches(above, &beneath.trace), path)?,
                None => plot::timeline(&[above], path)?,
            }
            output::emit(&format!("{}\n", path.display()))?;
        }
        None => {
            let window = args.select.is_any().then(|| args.select.window(first)).transpose()?;
            tui::run(tui::WorkbenchOptions { dir, traces, window })?;
        }
    }
    Ok(0)
}

/// Arguments of `ladderscope config`.
#[derive(Debug, clap::Args)]
pub struct ConfigArgs {
    /// Theme to start from: neutral, terminal, dark, light, high-contrast
    #[arg(long, value_name = "THEME", default_value = "neutral")]
    pub theme: String,
    /// Print the path of the settings file instead
    #[arg(long, conflicts_with = "check")]
    pub path: bool,
    /// Check the settings file instead; exit status 2 if it contains an error
    #[arg(long)]
    pub check: bool,
}

/// Prints a template with every theme role and key, the path of the settings file, or its errors.
pub fn config(args: &ConfigArgs) -> Result<u8> {
    let path = || {
        config::path().ok_or_else(|| {
            Error::input_help("no home directory", "set LADDERSCOPE_CONFIG to a file's path")
        })
    };
    if args.path {
        output::emit(&format!("{}\n", path()?.display()))?;
        return Ok(0);
    }
    if args.check {
        let (path, wrong) = (path()?, WorkbenchConfig::load(&Surroundings::of_process()).wrong);
        if let [first, rest @ ..] = &wrong[..] {
            let more = rest.iter().map(|w| format!("\n{w}")).collect::<String>();
            return Err(Error::input(format!("{first}{more}")));
        }
        let says = if path.exists() { "is fine" } else { "does not exist; using the built-in settings" };
        output::emit(&format!("{} {says}\n", path.display()))?;
        return Ok(0);
    }
    output::emit(&config::template(&args.theme)?)?;
    Ok(0)
}
