//! Reports: one self-contained HTML page about runs ([`page()`]) or a trace ([`trace_page()`]), with figures,
//! tables, flags, and the origin of every number.
//!
//! Both are pure: records or a trace in, text out. A page needs no network, prints well, and follows the reader's light
//! or dark theme; only the timeline needs scripts. Each set of comparable cells ([`crate::analysis::comparable`]) has a
//! section; truncated lists say how much they omit.
//!
//! Layout of the page about runs: questions, one section per set of comparable cells, flags, failed runs, environments,
//! glossary; and the shell commands (POSIX) that show the same data.

mod events;
mod sections;
mod set;
mod trace;

pub use trace::{TracePage, WrittenTrace, trace_page};

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::iter;

use crate::analysis::filter::{Operator, Term, Test};
use crate::analysis::{self, Axis, CellSet, Cells, ComparisonReport};
use crate::plot::{Figure, ProvenanceSummary};
use base::error::{Error, Result};
use base::text::{escape, printable, shell_command};
use table::options::{OPTIONS, value};
use table::render::Table;
use table::{Provenance, Record, host};

/// Maximum sets with a section; the page lists the others by name.
const MOST_SETS: usize = 8;

#[derive(Clone, Debug, Default)]
pub struct Report<'a> {
    pub records: &'a [Record],
    /// Records with their environment: one for each batch of simulations, and every other run.
    pub environments: Vec<Record>,
    pub provenance: ProvenanceSummary,
    /// Command-line arguments, after the verb, that select these runs, one word each: `--dir mine`.
    pub arguments: Vec<String>,
    /// Same for verbs that accept only a directory.
    pub directory: Vec<String>,
    /// Filter that matches exactly the runs that the user named; empty if none was named.
    pub named: String,
    pub filter: String,
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
pub struct Compared {
    /// Each architecture compared with standard, other options equal.
    pub by_architecture: ComparisonReport,
    /// P2P off compared with P2P on, other options equal.
    pub by_p2p: ComparisonReport,
}

impl Compared {
    /// Compares the given runs.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`crate::analysis::compare()`].
    pub fn of(records: &[Record]) -> Result<Self> {
        let cells = Cells::of(records);
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
    let compared = Compared::of(&ok)?;
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
    Ok(document(&title, &html.into_text(), include_str!("sort.js")))
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

pub fn badge(provenance: Provenance) -> String {
    format!("<span class=\"badge {provenance}\">{provenance}</span>")
}

fn header(html: &mut Html, report: &Report<'_>, title: &str, sets: &[CellSet]) {
    html.raw("<header>\n").element("h1", title);
    html.raw("<p>");
    for provenance in &report.provenance.kinds {
        html.raw(&badge(*provenance));
    }
    let mut ended: BTreeMap<&str, usize> = BTreeMap::new();
    for record in report.records {
        *ended.entry(record.status.as_str()).or_default() += 1;
    }
    let ended: Vec<String> = ended.iter().map(|(status, count)| format!("{count} {status}")).collect();
    let cells: usize = sets.iter().map(|set| set.cells.len()).sum();
    html.raw("</p>\n").element(
        "p",
        &format!(
            "{} runs ({}): {cells} cells with results, in {} group{} of comparable cells.",
            report.records.len(),
            ended.join(", "),
            sets.len(),
            if sets.len() == 1 { "" } else { "s" }
        ),
    );
    html.element("p class=\"soft\"", &report.provenance.caption());
    let not = report.provenance.kinds.iter().filter_map(|provenance| match provenance {
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
    for sentence in not.collect::<Vec<_>>() {
        html.element("p class=\"banner\"", sentence);
    }
    html.command(&Commands::of_all(report).verb(&["report"], &["-o", "report.html"]));
    html.raw("</header>\n");
}

fn contents(html: &mut Html, shown: &[CellSet], all: &[CellSet]) {
    html.raw("<nav aria-label=\"contents\"><ul>\n");
    for (index, set) in shown.iter().enumerate() {
        html.raw(&format!("<li><a href=\"#set{index}\">")).raw(&base::text::escape(&set.name));
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
                "The {} largest groups have a section; {} smaller ones are left out: {}{}. Select with --filter.",
                shown.len(),
                all.len() - shown.len(),
                rest.join(" · "),
                if all.len() - shown.len() > rest.len() { " · ..." } else { "" }
            ),
        );
    }
}

#[derive(Clone, Debug, Default)]
pub struct Html {
    text: String,
}

impl Html {
    pub fn raw(&mut self, markup: &str) -> &mut Self {
        self.text.push_str(markup);
        self
    }

    /// Appends an element with escaped text. `open` is the inside of the tag: `p`, `p class="note"`.
    pub fn element(&mut self, open: &str, text: &str) -> &mut Self {
        let name = open.split(' ').next().unwrap_or(open);
        // writing to a String cannot fail, here and below
        let _ = writeln!(self.text, "<{open}>{}</{name}>", escape(&printable(text)));
        self
    }

    pub fn command(&mut self, command: &str) -> &mut Self {
        let _ = writeln!(self.text, "<p class=\"command\"><code>{}</code></p>", escape(command));
        self
    }

    /// Appends a table with its caption and at most `most` rows; `whole` is the command that shows all of
    /// them.
    pub fn table(&mut self, caption: &str, table: &Table, most: usize, whole: &str) -> &mut Self {
        self.raw(&table.html(caption, most, whole))
    }

    pub fn into_text(self) -> String {
        self.text
    }
}

/// Whole page; `script` runs at its end.
pub fn document(title: &str, body: &str, script: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"generator\" content=\"ladderscope {}\">\n\
         <title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n{body}<script>\n{script}</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION"),
        escape(&printable(title)),
        include_str!("style.css"),
    )
}

#[derive(Clone, Debug)]
pub struct Commands<'a> {
    report: &'a Report<'a>,
    /// Filter that selects the set; empty for all runs.
    conditions: String,
}

impl<'a> Commands<'a> {
    pub fn of_all(report: &'a Report<'a>) -> Self {
        Self { report, conditions: String::new() }
    }

    pub fn of_set(report: &'a Report<'a>, set: &CellSet, all: &[CellSet]) -> Self {
        let conditions = if all.len() > 1 { conditions(set, all) } else { String::new() };
        Self { report, conditions }
    }

    /// Command line of a verb for the report's runs.
    pub fn verb(&self, verb: &[&str], options: &[&str]) -> String {
        let filter = joined([self.report.filter.as_str(), &self.conditions]);
        command_line(verb, &[&self.report.arguments, &option("--filter", filter)], options)
    }

    pub fn listing(&self, more: &str) -> String {
        let filter =
            joined([self.report.named.as_str(), self.report.filter.as_str(), &self.conditions, more]);
        let filter = option("--filter", filter);
        let all: &[&str] = if filter.is_empty() { &["--all"] } else { &[] };
        command_line(&["runs"], &[&self.report.directory, &filter], all)
    }

    pub fn show(&self, run: &str) -> String {
        command_line(&["show", run], &[&self.report.directory], &["--format", "json"])
    }
}

/// Command line of a verb with arguments given by the user and further options.
fn command_line(verb: &[&str], given: &[&[String]], options: &[&str]) -> String {
    let given = given.iter().copied().flatten().map(String::as_str);
    let verb = iter::once("ladderscope").chain(verb.iter().copied());
    shell_command(verb.chain(given).chain(options.iter().copied()))
}

/// Option with its value, or nothing if the value is empty; `name=value` if the value starts with a dash.
fn option(name: &str, value: String) -> Vec<String> {
    match value.as_str() {
        "" => Vec::new(),
        text if text.starts_with('-') => vec![format!("{name}={value}")],
        _ => vec![name.to_owned(), value],
    }
}

fn joined<const N: usize>(conditions: [&str; N]) -> String {
    conditions.into_iter().filter(|c| !c.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Options that identify a set of cells.
const NAMED: [&str; 8] =
    ["model", "dtype", "prompt_tokens", "output_tokens", "hardware", "backend", "stack", "collective"];
const WITHIN: [&str; 4] = ["architecture", "tp", "batch", "p2p"];

/// Filter that selects one set among all: the options that identify it, plus every other option, variable or
/// override that its cells share and other sets do not.
pub fn conditions(set: &CellSet, all: &[CellSet]) -> String {
    let Some(cell) = set.cells.first() else { return String::new() };
    let spec = &cell.spec;
    let mut terms: Vec<Term> =
        NAMED.iter().filter_map(|name| Some(is(name, value(spec, name)?.into_owned()))).collect();
    terms.push(is("provenance", cell.provenance.to_string()));
    let mut shared = |name: &str, of: &dyn Fn(&Record) -> Option<String>| {
        let Some(mine) = common(set, of) else { return };
        if all.iter().all(|other| common(other, of).as_ref() == Some(&mine)) {
            return;
        }
        terms.push(match mine {
            Some(value) => is(name, value),
            None => Term { negated: true, test: field(name, Operator::Has, "*".into()) },
        });
    };
    let others =
        OPTIONS.iter().filter(|option| !NAMED.contains(&option.name) && !WITHIN.contains(&option.name));
    for option in others {
        shared(option.name, &|cell| Some(option.text(&cell.spec).into_owned()));
    }
    shared("host", &host);
    let cells = || all.iter().flat_map(|set| &set.cells);
    let variables: BTreeSet<&String> = cells().flat_map(|cell| cell.spec.env.keys()).collect();
    let overrides: BTreeSet<&String> = cells().flat_map(|cell| cell.spec.set.keys()).collect();
    // NCCL_P2P_* follow from the p2p option, which sets do not differ in
    for name in variables.into_iter().filter(|name| !name.starts_with("NCCL_P2P_")) {
        shared(&format!("env.{name}"), &|cell| cell.spec.env.get(name).cloned());
    }
    for name in overrides {
        shared(&format!("set.{name}"), &|cell| cell.spec.set.get(name).cloned());
    }
    terms.iter().map(Term::to_string).collect::<Vec<_>>().join(" ")
}

fn is(name: &str, value: String) -> Term {
    Term { negated: false, test: field(name, Operator::Is, value) }
}

fn field(name: &str, operator: Operator, value: String) -> Test {
    Test::Field { name: name.to_owned(), operator, value }
}

/// Value that all cells of a set share; `None` if they differ.
fn common<T: PartialEq>(set: &CellSet, of: impl Fn(&Record) -> T) -> Option<T> {
    let (first, rest) = set.cells.split_first()?;
    let value = of(first);
    rest.iter().all(|cell| of(cell) == value).then_some(value)
}

#[cfg(test)]
mod tests;
