//! Reports: one self-contained HTML page about runs ([`page()`]) or a trace ([`trace_page()`]), with figures,
//! tables, flags, and the origin of every number.
//!
//! Both are pure: records or a trace in, text out. A page needs no network, prints well, and follows the reader's light
//! or dark theme; only the timeline needs scripts. Each set of comparable cells ([`crate::analysis::comparable`]) has a
//! section; truncated lists say how much they omit.
//!
//! Layout of the page about runs: questions, one section per set of comparable cells, flags, failed runs, environments,
//! glossary; and the shell commands (POSIX) that show the same data.

mod commands;
mod events;
mod html;
mod sections;
mod set;
mod trace;

pub use commands::ReportOrigin;
pub use trace::{TracePage, WrittenTrace, trace_page};

use std::collections::{BTreeMap, BTreeSet, HashSet};

use self::commands::Commands;
use self::html::{Html, document};
use crate::analysis::{self, Axis, CellSet, Cells, ComparisonReport};
use crate::plot::{Figure, ProvenanceSummary};
use base::error::{Error, Result};
use base::text::escape;
use table::{Provenance, Record};

/// Maximum sets with a section; the page lists the others by name.
const MOST_SETS: usize = 8;

#[derive(Clone, Debug, Default)]
pub struct Report<'a> {
    pub records: &'a [Record],
    /// Records with their environment: one for each batch of simulations, and every other run.
    pub environments: Vec<Record>,
    pub provenance: ProvenanceSummary,
    pub origin: ReportOrigin,
    pub questions: Vec<(String, String)>,
    /// Overlap figures (lanes of one step) by set name, for sets with a trace.
    pub overlaps: BTreeMap<String, Figure>,
    /// Verdicts on the trace of each set's standard run: run and sentences, by set name.
    pub verdicts: BTreeMap<String, (String, Vec<String>)>,
}

impl Report<'_> {
    /// Provenance of these runs. Rows of a batch share the software version that the batch records.
    pub fn provenance_of(&self, records: &[Record]) -> ProvenanceSummary {
        let batch = |record: &Record| record.run.split_once(':').map(|(batch, _)| batch.to_owned());
        let batches: HashSet<String> = records.iter().filter_map(batch).collect();
        let of_these = |whole: &&Record| batch(whole).is_some_and(|batch| batches.contains(&batch));
        ProvenanceSummary::of_records(records).with_commits_of(self.environments.iter().filter(of_these))
    }
}

#[derive(Clone, Debug)]
pub struct RunComparisons {
    /// Each architecture compared with standard, other options equal.
    pub by_architecture: ComparisonReport,
    /// P2P off compared with P2P on, other options equal.
    pub by_p2p: ComparisonReport,
}

impl RunComparisons {
    /// Compares the given runs.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`crate::analysis::compare()`].
    pub fn from_records(records: &[Record]) -> Result<Self> {
        let cells = Cells::from_records(records);
        Ok(Self {
            by_architecture: cells.compare(&Axis::ARCHITECTURE, None)?,
            by_p2p: cells.compare(&Axis::P2P, None)?,
        })
    }
}

/// Renders the page as self-contained HTML; the same records give the same bytes.
///
/// # Errors
///
/// Returns an input error if no run finished, and a failure if a figure cannot be drawn.
pub fn page(report: &Report<'_>) -> Result<String> {
    let ok = report.records.iter().filter(|record| record.has_numbers());
    let ok: Vec<Record> = ok.cloned().collect();
    if ok.is_empty() {
        return Err(Error::input_help(
            "nothing to report: no finished runs",
            "`ladderscope runs` lists stored runs; `ladderscope sweep quickstart` creates some",
        ));
    }
    let mut sets = analysis::comparable(&ok);
    sets.sort_by_key(|set| std::cmp::Reverse(set.cells.len()));
    let shown = &sets[..sets.len().min(MOST_SETS)];
    let compared = RunComparisons::from_records(&ok)?;
    let title = title(&sets);
    let mut html = Html::default();
    header(&mut html, report, &title, &sets);
    sections::questions(&mut html, report, shown);
    contents(&mut html, shown, &sets);
    if analysis::differ_in_model(&sets) {
        sections::over_models(&mut html, report, &sets, &compared)?;
    }
    for (index, one) in shown.iter().enumerate() {
        let whole = (sets.len() == 1).then_some(&compared);
        set::section(&mut html, report, one, index, &sets, &ok, whole)?;
    }
    sections::flags(&mut html, &compared);
    sections::unfinished(&mut html, report);
    sections::validation(&mut html, &ok)?;
    sections::environments(&mut html, report);
    sections::words(&mut html);
    Ok(document(&title, &html.text, include_str!("sort.js")))
}

fn title(sets: &[CellSet]) -> String {
    let models: BTreeSet<&str> =
        sets.iter().flat_map(|set| &set.cells).map(|cell| cell.spec.model.as_str()).collect();
    let models: Vec<&str> = models.into_iter().collect();
    match models.as_slice() {
        [one] => format!("Tensor-parallel decoding of {one}"),
        [a, b] => format!("Tensor-parallel decoding of {a} and {b}"),
        all => format!("Tensor-parallel decoding of {} models", all.len()),
    }
}

fn header(html: &mut Html, report: &Report<'_>, title: &str, sets: &[CellSet]) {
    html.raw("<header>\n").element("h1", title);
    let mut ended: BTreeMap<&str, usize> = BTreeMap::new();
    for record in report.records {
        *ended.entry(record.status.as_str()).or_default() += 1;
    }
    let ended: Vec<String> = ended.iter().map(|(status, count)| format!("{count} {status}")).collect();
    let cells: usize = sets.iter().map(|set| set.cells.len()).sum();
    html.badges(report.provenance.kinds.iter().copied()).element(
        "p",
        &format!(
            "{} runs ({}): {cells} cells with results, in {} set{} of comparable cells.",
            report.records.len(),
            ended.join(", "),
            sets.len(),
            if sets.len() == 1 { "" } else { "s" }
        ),
    );
    html.element("p class=\"soft\"", &report.provenance.caption());
    let caveats = report.provenance.kinds.iter().filter_map(|provenance| match provenance {
        Provenance::Measured => None,
        Provenance::EmulatedLink => Some(
            "Numbers labelled emulated-link were timed with all-reduces delayed by an emulated link.",
        ),
        Provenance::Simulated => Some(
            "Numbers labelled simulated are predictions of a discrete-event simulation, not measurements.",
        ),
        Provenance::SharedGpu => Some(
            "Runs labelled shared-gpu put several ranks on one GPU to check correctness; their latencies are meaningless and left out.",
        ),
    });
    for sentence in caveats.collect::<Vec<_>>() {
        html.element("p class=\"banner\"", sentence);
    }
    html.command(&Commands::of_all(&report.origin).verb(&["report"], &["-o", "report.html"]));
    html.raw("</header>\n");
}

fn contents(html: &mut Html, shown: &[CellSet], all: &[CellSet]) {
    html.raw("<nav aria-label=\"contents\"><ul>\n");
    for (index, set) in shown.iter().enumerate() {
        html.raw(&format!("<li><a href=\"#set{index}\">")).raw(&escape(&set.name));
        html.raw("</a></li>\n");
    }
    for (id, name) in [
        ("flags", "Suspicious results"),
        ("unfinished", "Failed and skipped cells"),
        ("environment", "Machine and environment"),
        ("words", "Glossary"),
    ] {
        html.raw(&format!("<li><a href=\"#{id}\">{name}</a></li>\n"));
    }
    html.raw("</ul></nav>\n");
    if all.len() > shown.len() {
        let rest: Vec<&str> = all[shown.len()..].iter().take(40).map(|set| set.name.as_str()).collect();
        html.element(
            "p",
            &format!(
                "The {} largest sets have a section; {} smaller ones are left out: {}{}. Select with --filter.",
                shown.len(),
                all.len() - shown.len(),
                rest.join(" · "),
                if all.len() - shown.len() > rest.len() { " · ..." } else { "" }
            ),
        );
    }
}

#[cfg(test)]
mod tests;
