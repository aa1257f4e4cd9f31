//! `ladderscope report [RUNS|DIR] -o report.html`: one self-contained page of runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::filter::FilterArgs;
use super::report;
use crate::desk::{self, Stores, overlap_pair};
use base::error::{Error, Result};
use base::text::counted;
use plan::Phase;
use study::analysis;
use study::plot::{self, Figure, Options, Part};
use study::report::{Report, page};
use table::Record;
use trace::overlap::Selection;

/// Arguments of `ladderscope report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Stored runs (id, prefix, batch, 'last') or runs directories [default: all runs in --dir]
    #[arg(value_name = "RUNS|DIR")]
    pub runs: Vec<String>,
    /// Output file (HTML)
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    pub output: PathBuf,
    #[command(flatten)]
    pub filter: FilterArgs,
}

pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let extension = args.output.extension().and_then(|e| e.to_str()).unwrap_or_default();
    if !extension.eq_ignore_ascii_case("html") && !extension.eq_ignore_ascii_case("htm") {
        return Err(Error::input_help(
            format!("{}: a report is an HTML page", args.output.display()),
            "use a file name that ends in .html",
        ));
    }
    let records = args.filter.records(&args.runs, &dir)?;
    let stores = Stores::named(&args.runs, &dir);
    let ok: Vec<Record> = records.iter().filter(|record| record.has_numbers()).cloned().collect();
    let mut environments = stores.environments(&records);
    environments.extend(records.iter().filter(|record| !record.environment.is_empty()).cloned());
    let (overlaps, verdicts) = traces(&ok, &stores);
    let report_of_runs = Report {
        provenance: stores.provenance(&ok),
        environments,
        arguments: arguments(args, &dir),
        directory: directory(args, &dir),
        named: named(args, &records),
        filter: args.filter.typed().unwrap_or_default().to_owned(),
        questions: questions(&records),
        overlaps,
        verdicts,
        records: &records,
    };
    let html = page(&report_of_runs)?;
    plot::write(&args.output, html.as_bytes())?;
    report::note(&format!(
        "wrote {}: {}, {:.1} MB ({})",
        args.output.display(),
        counted(records.len(), "run"),
        html.len() as f64 / 1e6,
        report_of_runs.provenance.origin()
    ));
    Ok(0)
}

/// Arguments with which the user named these runs.
fn arguments(args: &Args, dir: &Path) -> Vec<String> {
    let mut words = args.runs.clone();
    if dir != Path::new("runs") {
        words.extend(["--dir".into(), dir.display().to_string()]);
    }
    words
}

/// Arguments for the directory of the runs, for verbs that accept no other name. Uses the first of several.
fn directory(args: &Args, dir: &Path) -> Vec<String> {
    match args.runs.iter().find(|name| Path::new(name).is_dir()) {
        Some(named) => vec!["--dir".into(), named.clone()],
        None if dir != Path::new("runs") => vec!["--dir".into(), dir.display().to_string()],
        None => Vec::new(),
    }
}

/// Filter that matches exactly the named runs. Uses the names of whole batches, which are prefixes of their rows'
/// ids; otherwise full ids, since part of an id may match another.
fn named(args: &Args, records: &[Record]) -> String {
    if args.runs.is_empty() || args.runs.iter().any(|name| Path::new(name).is_dir()) {
        return String::new();
    }
    // a batch may have been named by a prefix
    let batch = |name: &String| {
        let of_rows = records.iter().filter_map(|record| record.run.split_once(':'));
        of_rows.map(|(batch, _)| batch).find(|batch| batch.starts_with(name.as_str()))
    };
    if let Some(batches) = args.runs.iter().map(batch).collect::<Option<BTreeSet<&str>>>() {
        let begins: Vec<String> = batches.iter().map(|batch| format!("{batch}:")).collect();
        return format!("id:{}", begins.join("|"));
    }
    let ids: Vec<&str> = records.iter().map(|record| record.run.as_str()).collect();
    format!("id={}", ids.join("|"))
}

/// Questions of the runs' experiments, from files and built-in ones.
fn questions(records: &[Record]) -> Vec<(String, String)> {
    let names: BTreeSet<&str> = records.iter().filter_map(|r| r.experiment.as_deref()).collect();
    let question = |name: &str| Some((name.to_owned(), desk::experiments::question(name)?));
    names.into_iter().filter_map(question).collect()
}

/// Figures, and verdicts with their runs, by name of the set.
type OfTraces = (BTreeMap<String, Figure>, BTreeMap<String, (String, Vec<String>)>);

/// Overlap figure of standard and ladder in the largest set, and the verdict on standard, if both have lanes
/// (recorded or simulated again).
fn traces(ok: &[Record], stores: &Stores) -> OfTraces {
    let mut sets = analysis::comparable(ok);
    sets.sort_by_key(|set| std::cmp::Reverse(set.cells.len()));
    let Some(set) = sets.first() else { return OfTraces::default() };
    let Ok((standard, ladder)) = overlap_pair(set) else { return OfTraces::default() };
    if !stores.has_trace(standard) || !stores.has_trace(ladder) {
        return OfTraces::default();
    }
    let traces = [standard, ladder].map(|record| stores.trace(record, None));
    let provenance = stores.provenance(&[standard.clone(), ladder.clone()]);
    let run = standard.run.clone();
    let [Ok(standard), Ok(ladder)] = traces else { return OfTraces::default() };
    let (part, options) = (Part::default(), Options::default());
    let figure = plot::overlap_figure(&[&standard, &ladder], &part, &provenance, &options);
    let decode = Selection { phase: Some(Phase::Decode), ..Selection::default() };
    let report = analysis::trace_report(&standard, &decode);
    let verdict = desk::verdict_of(&standard, &report, &decode);
    let of_set = |figure| (set.name.clone(), figure);
    (
        figure.ok().map(of_set).into_iter().collect(),
        BTreeMap::from([(set.name.clone(), (run, verdict.sentences))]),
    )
}
