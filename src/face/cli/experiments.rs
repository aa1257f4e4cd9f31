//! `ladderscope experiments`: lists the experiment files in `./experiments` and the built-in ones, with their
//! questions.

use std::path::Path;

use super::output::{self, Format, FormatArgs};
use super::report;
use crate::desk::{self, experiments::DIRECTORY};
use base::error::Result;
use base::text::counted;
use lab::sweep::Experiment;
use run::Feasibility;
use table::render::{Shown, Sourced, Table};

/// Prints the list. An invalid file causes a warning only, because the others can be run.
pub fn run(args: &FormatArgs) -> Result<u8> {
    let mut experiments = Vec::new();
    for found in desk::experiments::at_hand(Path::new(DIRECTORY))? {
        match found.experiment {
            // built-in experiments are run by name
            Ok(experiment) if found.path.is_none() => {
                experiments.push(Experiment { path: found.name.into(), ..experiment });
            }
            Ok(experiment) => experiments.push(experiment),
            Err(error) => report::print(&error),
        }
    }
    match args.format {
        Format::Json => {
            let list: Vec<Printed<'_>> = experiments.iter().map(Printed::of).collect();
            output::json(&list)?;
        }
        Format::Csv => output::emit(&rows(&experiments).csv(Sourced::NoRuns))?,
        Format::Table if experiments.is_empty() => {
            report::note(&format!("no experiment files (*.toml) in ./{DIRECTORY}"));
        }
        Format::Table => {
            let text: String = experiments.iter().map(in_words).collect();
            output::emit(&format!("{text}Run one: ladderscope sweep EXPERIMENT\n"))?;
        }
    }
    Ok(0)
}

fn can_run(experiment: &Experiment) -> usize {
    experiment.cells.iter().filter(|cell| cell.feasibility == Feasibility::Runs).count()
}

/// Name, size, and the question below them.
fn in_words(experiment: &Experiment) -> String {
    let (cells, fit) = (experiment.cells.len(), can_run(experiment));
    let fit = if fit < cells { format!(" ({fit} fit)") } else { String::new() };
    let head = format!("{}: {}{fit}", experiment.path.display(), counted(cells, "cell"));
    let axes = experiment.axes.join(" x ");
    let question = experiment.question.as_deref().unwrap_or_default();
    output::wrapped("", &format!("{head}, {}: {axes}", counted(experiment.rounds as usize, "round")), 4)
        + &match question.is_empty() {
            true => String::new(),
            false => output::wrapped("    ", question, 4),
        }
}

fn rows(experiments: &[Experiment]) -> Table {
    Table::of(
        experiments,
        &[
            ("path|experiment", &|e: &Experiment| Shown::text(e.path.display())),
            ("axes", &|e| e.axes.join(" x ").into()),
            ("cells", &|e| e.cells.len().into()),
            ("can_run|cells that fit", &|e| can_run(e).into()),
            ("rounds", &|e| e.rounds.into()),
            ("question", &|e| e.question.as_deref().into()),
        ],
    )
}

/// Experiment in JSON.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct Printed<'a> {
    name: &'a str,
    path: &'a std::path::Path,
    question: Option<&'a str>,
    /// Names of the grid's axes, in file order.
    axes: &'a [String],
    /// Cells of the grid.
    cells: usize,
    /// Cells that can run on this machine.
    can_run: usize,
    /// Passes over the cells.
    rounds: u32,
}

impl<'a> Printed<'a> {
    fn of(experiment: &'a Experiment) -> Self {
        Self {
            name: &experiment.name,
            path: &experiment.path,
            question: experiment.question.as_deref(),
            axes: &experiment.axes,
            cells: experiment.cells.len(),
            can_run: can_run(experiment),
            rounds: experiment.rounds,
        }
    }
}
