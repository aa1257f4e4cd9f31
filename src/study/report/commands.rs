//! Shell commands (POSIX) that show the same data as the page, and the filters that select one set of cells.

use super::page::Report;
use crate::analysis::CellSet;
use crate::analysis::filter::{Operator, Term, Test};
use base::text::shell_command;
use table::options::{OPTIONS, value};
use table::{Record, host};

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

    pub fn of(&self, verb: &[&str], options: &[&str]) -> String {
        let filter = joined([self.report.filter.as_str(), &self.conditions]);
        let filter = option("--filter", filter);
        let mut words: Vec<&str> = vec!["ladderscope"];
        words.extend(verb);
        words.extend(self.report.arguments.iter().map(String::as_str));
        words.extend(filter.iter().map(String::as_str));
        words.extend(options);
        shell_command(words)
    }

    pub fn listing(&self, more: &str) -> String {
        let filter =
            joined([self.report.named.as_str(), self.report.filter.as_str(), &self.conditions, more]);
        let filter = option("--filter", filter);
        let mut words: Vec<&str> = vec!["ladderscope", "runs"];
        words.extend(self.report.directory.iter().map(String::as_str));
        match filter.as_slice() {
            [] => words.push("--all"),
            filter => words.extend(filter.iter().map(String::as_str)),
        }
        shell_command(words)
    }

    pub fn show(&self, run: &str) -> String {
        let mut words: Vec<&str> = vec!["ladderscope", "show", run];
        words.extend(self.report.directory.iter().map(String::as_str));
        words.extend(["--format", "json"]);
        shell_command(words)
    }
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
    let mut variables: Vec<&String> = cells().flat_map(|cell| cell.spec.env.keys()).collect();
    let mut overrides: Vec<&String> = cells().flat_map(|cell| cell.spec.set.keys()).collect();
    for names in [&mut variables, &mut overrides] {
        names.sort_unstable();
        names.dedup();
    }
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
