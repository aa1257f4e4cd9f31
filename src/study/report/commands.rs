//! Commands that show what the page shows, as a POSIX shell takes them; and the conditions by which they
//! choose one set of cells among the others.

use super::page::Report;
use crate::analysis::CellSet;
use crate::analysis::filter::{Operator, Term, Test};
use base::text::shell_command;
use table::options::{OPTIONS, value};
use table::{Record, host};

/// Commands about the runs of a report, or of one set of them.
#[derive(Clone, Debug)]
pub struct Commands<'a> {
    report: &'a Report<'a>,
    /// What chooses the set; empty: all runs.
    conditions: String,
}

impl<'a> Commands<'a> {
    /// Commands about all runs of the page, without conditions.
    pub fn of_all(report: &'a Report<'a>) -> Self {
        Self { report, conditions: String::new() }
    }

    /// About a set, one of `all`.
    pub fn of_set(report: &'a Report<'a>, set: &CellSet, all: &[CellSet]) -> Self {
        let conditions = if all.len() > 1 { conditions(set, all) } else { String::new() };
        Self { report, conditions }
    }

    /// A verb, what names and chooses the runs, options.
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

    /// The list of the runs; `more`: those of them that meet these conditions, too.
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

    /// The command that shows all about one run.
    pub fn show(&self, run: &str) -> String {
        let mut words: Vec<&str> = vec!["ladderscope", "show", run];
        words.extend(self.report.directory.iter().map(String::as_str));
        words.extend(["--format", "json"]);
        shell_command(words)
    }
}

/// An option with its value, where it has one; a value that begins like an option is written to it.
fn option(name: &str, value: String) -> Vec<String> {
    match value.as_str() {
        "" => Vec::new(),
        text if text.starts_with('-') => vec![format!("{name}={value}")],
        _ => vec![name.to_owned(), value],
    }
}

/// Conditions, all of which must hold.
fn joined<const N: usize>(conditions: [&str; N]) -> String {
    conditions.into_iter().filter(|c| !c.is_empty()).collect::<Vec<_>>().join(" ")
}

/// What names a set of cells.
const NAMED: [&str; 8] =
    ["model", "dtype", "prompt_tokens", "output_tokens", "hardware", "backend", "stack", "collective"];
/// What the cells of a set differ in.
const WITHIN: [&str; 4] = ["architecture", "tp", "batch", "p2p"];

/// Conditions that choose a set among all: whatever the cells of a set have in common by its name, and
/// what else (other options, variables, overrides) they have in common where sets differ in it.
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
            // no value at all
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
    // those of P2P are P2P's, which sets do not differ in
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

/// What all cells of a set have; `None` where they differ.
fn common<T: PartialEq>(set: &CellSet, of: impl Fn(&Record) -> T) -> Option<T> {
    let (first, rest) = set.cells.split_first()?;
    let value = of(first);
    rest.iter().all(|cell| of(cell) == value).then_some(value)
}
