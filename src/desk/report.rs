//! Page of stored runs with their figures, questions and verdicts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::select::{Stores, overlap_pair};
use super::verdict_of;
use base::error::Result;
use study::analysis;
use study::plot::{self, Figure, Options, Part};
use study::report::{Report, page};
use table::Record;
use trace::overlap::Selection;

/// Command-line arguments that select the runs of a page again; see [`Report`].
#[derive(Clone, Debug, Default)]
pub struct ReportOrigin {
    pub arguments: Vec<String>,
    pub directory: Vec<String>,
    pub named: String,
    pub filter: String,
}

/// Option that names a directory of runs; empty for the default.
pub fn dir_option(dir: &Path) -> Vec<String> {
    match dir == Path::new("runs") {
        true => Vec::new(),
        false => vec!["--dir".into(), dir.display().to_string()],
    }
}

#[derive(Debug)]
pub struct RunsPage {
    pub html: String,
    /// Provenance of the numbers, in words.
    pub origin: String,
}

/// Renders the page of these runs.
///
/// # Errors
///
/// Returns an input error if no run has numbers, and a failure if a figure cannot be drawn.
pub fn report_of_runs(records: &[Record], stores: &Stores, origin: ReportOrigin) -> Result<RunsPage> {
    let ok: Vec<Record> = records.iter().filter(|record| record.has_numbers()).cloned().collect();
    let mut environments = stores.environments(records);
    environments.extend(records.iter().filter(|record| !record.environment.is_empty()).cloned());
    let TraceEvidence { figures: overlaps, verdicts } = trace_evidence(&ok, stores);
    let ReportOrigin { arguments, directory, named, filter } = origin;
    let report = Report {
        provenance: stores.provenance(&ok),
        environments,
        arguments,
        directory,
        named,
        filter,
        questions: questions(records),
        overlaps,
        verdicts,
        records,
    };
    Ok(RunsPage { html: page(&report)?, origin: report.provenance.origin() })
}

/// Questions of the runs' experiments, from files and built-in ones.
fn questions(records: &[Record]) -> Vec<(String, String)> {
    let names: BTreeSet<&str> = records.iter().filter_map(|r| r.experiment.as_deref()).collect();
    let question = |name: &str| Some((name.to_owned(), super::experiments::question(name)?));
    names.into_iter().filter_map(question).collect()
}

/// Evidence from the traces of a set of comparable cells: their figure, and the verdict on the run of standard.
#[derive(Default)]
struct TraceEvidence {
    /// By name of the set.
    figures: BTreeMap<String, Figure>,
    /// Run and sentences, by name of the set.
    verdicts: BTreeMap<String, (String, Vec<String>)>,
}

/// Overlap figure of standard and ladder in the largest set, and the verdict on standard, if both have lanes
/// (recorded or simulated again).
fn trace_evidence(ok: &[Record], stores: &Stores) -> TraceEvidence {
    let mut sets = analysis::comparable(ok);
    sets.sort_by_key(|set| std::cmp::Reverse(set.cells.len()));
    let Some(set) = sets.first() else { return TraceEvidence::default() };
    let Ok((standard, ladder)) = overlap_pair(set) else { return TraceEvidence::default() };
    if !stores.has_trace(standard) || !stores.has_trace(ladder) {
        return TraceEvidence::default();
    }
    let traces = [standard, ladder].map(|record| stores.trace(record, None));
    let provenance = stores.provenance(&[standard.clone(), ladder.clone()]);
    let run = standard.run.clone();
    let [Ok(standard), Ok(ladder)] = traces else { return TraceEvidence::default() };
    let (part, options) = (Part::default(), Options::default());
    let figure = plot::overlap_figure(&[&standard, &ladder], &part, &provenance, &options);
    let decode = Selection::default_of(&standard);
    let report = analysis::trace_report(&standard, &decode);
    let verdict = verdict_of(&standard, &report, &decode);
    TraceEvidence {
        figures: figure.into_iter().map(|figure| (set.name.clone(), figure)).collect(),
        verdicts: BTreeMap::from([(set.name.clone(), (run, verdict.sentences))]),
    }
}
