//! `ladderscope experiments`: the experiment files under `./experiments` and the built-in ones, with
//! their questions.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::output::{self, Field, Format, FormatArgs, Rows};
use super::report;
use crate::error::{Error, Result};
use crate::sweep::{BUILT_IN, Experiment, Verdict};

const DIRECTORY: &str = "experiments";

/// Prints the list. A file with a mistake is warned of, not fatal: the others can be run.
pub fn run(args: &FormatArgs) -> Result<u8> {
    let mut experiments = Vec::new();
    for path in files(Path::new(DIRECTORY))? {
        match Experiment::load(&path) {
            Ok(experiment) => experiments.push(experiment),
            Err(error) => report::print(&error),
        }
    }
    for (name, _) in BUILT_IN {
        // a file hides the built-in experiment of its name
        if experiments.iter().all(|experiment: &Experiment| experiment.name != name) {
            experiments.push(Experiment { path: name.into(), ..Experiment::open(Path::new(name))? });
        }
    }
    match args.format {
        Format::Json => {
            let list: Vec<_> = experiments
                .iter()
                .map(|experiment| {
                    json!({
                        "name": experiment.name,
                        "path": experiment.path,
                        "question": experiment.question,
                        "axes": experiment.axes,
                        "cells": experiment.cells.len(),
                        "can_run": can_run(experiment),
                        "rounds": experiment.rounds,
                    })
                })
                .collect();
            output::json(&list)?;
        }
        Format::Csv => output::emit(&rows(&experiments).csv())?,
        Format::Table if experiments.is_empty() => {
            report::note(&format!("no experiment files (*.toml) in ./{DIRECTORY}"));
        }
        Format::Table => {
            output::emit(&format!(
                "{}Run one with: ladderscope sweep PATH\n",
                rows(&experiments).table()
            ))?;
        }
    }
    Ok(0)
}

fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    if !directory.is_dir() {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(Error::io(directory))? {
        let path = entry.map_err(Error::io(directory))?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn can_run(experiment: &Experiment) -> usize {
    experiment.cells.iter().filter(|cell| cell.verdict == Verdict::Runs).count()
}

fn rows(experiments: &[Experiment]) -> Rows {
    let mut rows = Rows::new(["path", "axes", "cells", "can_run", "rounds", "question"]);
    for experiment in experiments {
        rows.push(vec![
            Field::text(experiment.path.display()),
            Field::text(experiment.axes.join(" x ")),
            Field::Whole(experiment.cells.len() as u64),
            Field::Whole(can_run(experiment) as u64),
            Field::Whole(experiment.rounds.into()),
            experiment.question.as_ref().map_or(Field::None, Field::text),
        ]);
    }
    rows
}
