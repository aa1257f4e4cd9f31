//! `ladderscope timeline RUN|TRACE [BENEATH]`: opens the workbench at one trace or two aligned ones, or writes a
//! figure of them.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use super::select::FilterArgs;
use super::select::OpenArgs;
use super::select::SelectArgs;
use super::{output, report};
use crate::desk;
use crate::desk::export::FileKind;
use crate::face::tui;
use base::error::{Error, Result};
use lab::store::Store;
use study::plot::{self, Stretch};

/// Arguments of `ladderscope timeline`.
#[derive(Debug, clap::Args)]
pub struct Args {
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
    pub opening: OpenArgs,
}

pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    if let Some(path) = &args.output {
        FileKind::check(path, &FileKind::FIGURES)?;
    } else if !std::io::stdout().is_terminal() {
        return Err(Error::input_help(
            "the timeline needs a terminal, and standard output is a file or a pipe",
            "write a figure with -o FILE.svg, or numbers with `ladderscope overlap`",
        ));
    }
    let store = Store::open(&dir);
    let options = args.opening.options(args.select.step);
    let open = |source: &str, options| desk::open(source, &store, options);
    let mut traces = vec![open(&args.filter.one(args.source.as_ref(), &dir)?, options)?];
    if let Some(beneath) = &args.beneath {
        let recording = options.recording.filter(|_| Path::new(beneath).is_dir());
        traces.push(open(beneath, desk::OpenOptions { recording, ..options })?);
    }
    traces.iter().for_each(report::part);
    if args.output.is_some() {
        traces.iter().for_each(report::import_warnings);
    }
    let first = &traces[0].trace;
    match &args.output {
        Some(path) => {
            let (from, to) = args.select.window(first)?;
            let above = Stretch { trace: first, from_ns: from, to_ns: to };
            match traces.get(1) {
                Some(beneath) => plot::timeline(&desk::aligned(above, &beneath.trace), path)?,
                None => plot::timeline(&[above], path)?,
            }
            output::emit(&format!("{}\n", path.display()))?;
        }
        None => {
            let window = args.select.any().then(|| args.select.window(first)).transpose()?;
            tui::run(tui::Options { dir, traces, window })?;
        }
    }
    Ok(0)
}
