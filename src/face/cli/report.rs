//! `ladderscope report [RUNS|DIR|TRACE] -o report.html`: one self-contained page of runs or of a trace.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::filter::FilterArgs;
use super::select::SelectArgs;
use super::{overlap, stderr};
use crate::desk::{self, OpenOptions, Stores, report_of_runs};
use base::error::{Error, Result};
use base::text::counted;
use lab::store::Store;
use study::plot;
use study::report::{ReportOrigin, TracePage, trace_page};
use table::Record;

/// Arguments of `ladderscope report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Stored runs (id, prefix, batch, 'last') or runs directories [default: all runs in --dir]; or one trace: a file, a
    /// directory with one file per rank, or a run with --step, --from or --to
    #[arg(value_name = "RUNS|DIR|TRACE")]
    pub runs: Vec<String>,
    /// Output file (HTML)
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    pub output: PathBuf,
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub opening: OpenOptions,
}

pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let extension = args.output.extension().and_then(|e| e.to_str()).unwrap_or_default();
    if !extension.eq_ignore_ascii_case("html") && !extension.eq_ignore_ascii_case("htm") {
        return Err(Error::input_help(
            format!("{}: a report is an HTML page", args.output.display()),
            "use a file name that ends in .html",
        ));
    }
    if args.select.is_any() || matches!(&args.runs[..], [one] if desk::is_trace(one)) {
        return write_trace_page(args, dir);
    }
    let records = args.filter.records(&args.runs, &dir)?;
    let stores = Stores::named(&args.runs, &dir);
    let page = report_of_runs(&records, &stores, origin(args, &dir, &records))?;
    plot::write(&args.output, page.html.as_bytes())?;
    stderr::note(&format!(
        "wrote {}: {}, {:.1} MB ({})",
        args.output.display(),
        counted(records.len(), "run"),
        page.html.len() as f64 / 1e6,
        page.origin
    ));
    Ok(0)
}

fn write_trace_page(args: &Args, dir: PathBuf) -> Result<u8> {
    if args.runs.len() > 1 {
        return Err(Error::input_help(
            "--phase, --step, --from and --to choose a part of one trace, and several are named",
            "name one trace or run",
        ));
    }
    let source = args.filter.one_run(args.runs.first(), &dir)?;
    let store = Store::open(&dir);
    let opened = desk::open(&source, &store, &args.opening, args.select.step)?.require_gpu_spans()?;
    stderr::note_part(&opened);
    let trace = &opened.trace;
    let selection = args.select.resolve(trace)?;
    let is_chosen = args.select.step.is_some() || args.select.has_time_range();
    let window = is_chosen.then(|| args.select.interval(trace)).transpose()?;
    let analyzed = overlap::analyzed(trace, &selection)?;
    let written = trace_page(&TracePage {
        trace,
        name: &opened.name(),
        report: &analyzed,
        verdict: &desk::verdict_of(trace, &analyzed, &selection),
        selection: &selection,
        window,
        arguments: &trace_arguments(args, &source, &dir),
    })?;
    plot::write(&args.output, written.html.as_bytes())?;
    stderr::note(&format!(
        "wrote {}: {:.1} MB ({}); timeline of {}, {}",
        args.output.display(),
        written.html.len() as f64 / 1e6,
        trace.meta.provenance,
        counted(written.events, "GPU event"),
        written.shown,
    ));
    Ok(0)
}

/// Arguments that open the same part of a trace.
fn trace_arguments(args: &Args, source: &str, dir: &Path) -> Vec<String> {
    // a shared page does not show the folders of this machine
    let path = Path::new(source);
    let here = std::env::current_dir().ok();
    let below = here.as_deref().and_then(|here| path.strip_prefix(here).ok());
    let shown = match path.is_absolute() {
        true => below.or(path.file_name().map(Path::new)).unwrap_or(path).display().to_string(),
        false => source.to_owned(),
    };
    let (part, opening) = (args.select.to_arguments(), args.opening.to_arguments());
    [vec![shown], part, opening, desk::dir_option(dir)].concat()
}

/// Arguments that select the runs of the page again.
fn origin(args: &Args, dir: &Path, records: &[Record]) -> ReportOrigin {
    // the first of several directories
    let named_dir = args.runs.iter().find(|name| Path::new(name).is_dir());
    ReportOrigin {
        arguments: [args.runs.clone(), desk::dir_option(dir)].concat(),
        directory: match named_dir {
            Some(named) => vec!["--dir".into(), named.clone()],
            None => desk::dir_option(dir),
        },
        named: match args.runs.is_empty() || named_dir.is_some() {
            true => String::new(),
            false => named_filter(&args.runs, records),
        },
        filter: args.filter.typed().unwrap_or_default().to_owned(),
    }
}

/// Filter that matches exactly the named runs. Uses the names of whole batches, which are prefixes of their rows'
/// ids; otherwise full ids, since part of an id may match another.
fn named_filter(runs: &[String], records: &[Record]) -> String {
    // a batch may have been named by a prefix
    let batch = |name: &String| {
        let of_rows = records.iter().filter_map(|record| record.run.split_once(':'));
        of_rows.map(|(batch, _)| batch).find(|batch| batch.starts_with(name.as_str()))
    };
    if let Some(batches) = runs.iter().map(batch).collect::<Option<BTreeSet<&str>>>() {
        let begins: Vec<String> = batches.iter().map(|batch| format!("{batch}:")).collect();
        return format!("id:{}", begins.join("|"));
    }
    let ids: Vec<&str> = records.iter().map(|record| record.run.as_str()).collect();
    format!("id={}", ids.join("|"))
}
