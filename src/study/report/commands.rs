//! Shell commands (POSIX) that show the data of a page, and the filter that selects one set of cells.

use std::collections::BTreeSet;
use std::iter;

use crate::analysis::CellSet;
use crate::analysis::filter::{Filter, Operator, Term, Test};
use base::text::shell_command;
use table::options::{OPTIONS, value};
use table::{Record, host};

/// Command-line arguments that select the runs of a page again.
#[derive(Clone, Debug, Default)]
pub struct ReportOrigin {
    /// Arguments after the verb that select these runs, one word each: `--dir mine`.
    pub arguments: Vec<String>,
    /// Same for verbs that accept only a directory.
    pub directory: Vec<String>,
    /// Filter that matches exactly the runs that the user named; empty if none was named.
    pub named: String,
    /// Filter that the user typed, in addition.
    pub filter: String,
}

/// Shell commands that show the data of a page about runs.
#[derive(Clone, Debug)]
pub struct Commands<'a> {
    origin: &'a ReportOrigin,
    /// Filter that selects the set; empty for all runs.
    conditions: String,
}

impl<'a> Commands<'a> {
    pub fn of_all(origin: &'a ReportOrigin) -> Self {
        Self { origin, conditions: String::new() }
    }

    pub fn of_set(origin: &'a ReportOrigin, set: &CellSet, all: &[CellSet]) -> Self {
        let conditions = if all.len() > 1 { conditions(set, all) } else { String::new() };
        Self { origin, conditions }
    }

    /// Command line of a verb for the report's runs.
    pub fn verb(&self, verb: &[&str], options: &[&str]) -> String {
        let filter = joined([self.origin.filter.as_str(), &self.conditions]);
        command_line(verb, &[&self.origin.arguments, &option("--filter", filter)], options)
    }

    /// Command that lists the runs.
    pub fn listing(&self, more: &str) -> String {
        let filter =
            joined([self.origin.named.as_str(), self.origin.filter.as_str(), &self.conditions, more]);
        let filter = option("--filter", filter);
        let all: &[&str] = if filter.is_empty() { &["--all"] } else { &[] };
        command_line(&["runs"], &[&self.origin.directory, &filter], all)
    }

    /// Command that shows one run.
    pub fn show(&self, run: &str) -> String {
        command_line(&["show", run], &[&self.origin.directory], &["--format", "json"])
    }
}

/// Command line of a verb with arguments given by the user and further options.
pub fn command_line(verb: &[&str], given: &[&[String]], options: &[&str]) -> String {
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
/// Options that may differ within a set of comparable cells.
const WITHIN: [&str; 4] = ["architecture", "tp", "batch", "p2p"];

/// Filter that selects one set among all: the options that identify it, plus every other option, variable or
/// override that its cells share and other sets do not.
pub fn conditions(set: &CellSet, all: &[CellSet]) -> String {
    let Some(cell) = set.cells.first() else { return String::new() };
    let spec = &cell.spec;
    let mut terms: Vec<Term> =
        NAMED.iter().filter_map(|name| Some(Filter::is(name, &value(spec, name)?))).collect();
    terms.push(Filter::is("provenance", cell.provenance.as_str()));
    let mut shared = |name: &str, of: &dyn Fn(&Record) -> Option<String>| {
        let Some(mine) = common(set, of) else { return };
        if all.iter().all(|other| common(other, of).as_ref() == Some(&mine)) {
            return;
        }
        terms.push(match mine {
            Some(value) => Filter::is(name, &value),
            None => {
                let test =
                    Test::Field { name: name.to_owned(), operator: Operator::Has, value: "*".into() };
                Term { negated: true, test }
            }
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

/// Value that all cells of a set share; `None` if they differ.
fn common<T: PartialEq>(set: &CellSet, of: impl Fn(&Record) -> T) -> Option<T> {
    let (first, rest) = set.cells.split_first()?;
    let value = of(first);
    rest.iter().all(|cell| of(cell) == value).then_some(value)
}
