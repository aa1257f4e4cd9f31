//! `ladderscope sweep --dry-run`: lists what a sweep would run, what is stored, what cannot run and why, and estimates the
//! time. Runs nothing and writes nothing.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::output::{self, Format};
use super::progress::duration;
use super::report;
use crate::desk::Selection;
use base::error::Result;
use base::text::counted;
use lab::sweep::forecast::{Forecast, History, Past, forecast};
use lab::sweep::{Choice, Experiment};
use machine::environment::load;
use table::Status;
use table::render::{Shown, Sourced, Table};

/// Cells listed in a table for a terminal; CSV and JSON have all.
const ROWS: usize = 24;

#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Printed<'a> {
    experiment: &'a str,
    rounds: u32,
    /// Runs that the sweep would start.
    runs: usize,
    /// Runs that are stored already.
    stored: usize,
    /// Estimated time of the runs (s); null if unknown.
    seconds: Option<f64>,
    /// Basis of the estimate.
    basis: Option<String>,
    cells: Vec<PlannedCell<'a>>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
struct PlannedCell<'a> {
    cell: String,
    provenance: &'static str,
    /// Runs of the cell that the sweep would start.
    runs: usize,
    /// Runs of the cell that are stored already.
    stored: usize,
    /// `skipped` or `oom`; null for a cell that can run.
    status: Option<&'static str>,
    reason: Option<&'a str>,
}

pub fn run(experiment: &Experiment, choice: Choice, dir: &Path, format: Format) -> Result<u8> {
    let records = Selection::all(dir)?.records;
    let mut past = History::past(&records);
    if choice == Choice::All {
        // stored runs still tell how long the cells take
        past.values_mut().for_each(|past| past.rounds.clear());
    }
    let history = History::new(&experiment.cells, |key| past.get(key).cloned(), &records, load());
    let forecast = forecast(experiment, &history, &|| false).unwrap_or_default();
    let cells: Vec<PlannedCell<'_>> =
        experiment.cells.iter().map(|cell| PlannedCell::of(cell, experiment.rounds, &past)).collect();
    let printed = Printed {
        experiment: &experiment.name,
        rounds: experiment.rounds,
        runs: forecast.left(),
        stored: forecast.stored,
        seconds: forecast.seconds,
        basis: forecast.basis(),
        cells,
    };
    let csv = || table(&printed.cells).csv(Sourced::ByRow);
    output::print(format, &printed, csv, || text(&printed, &forecast))?;
    experiment.notes.iter().for_each(|note| report::note(note));
    Ok(0)
}

impl<'a> PlannedCell<'a> {
    fn of(cell: &'a lab::sweep::Cell, rounds: u32, past: &HashMap<String, Past>) -> Self {
        let obstacle = cell.feasibility.obstacle();
        let key = (!past.is_empty()).then(|| cell.spec.key());
        let past = key.and_then(|key| past.get(&key));
        let stored = past.map_or(0, |past| past.rounds.range(..rounds).count());
        Self {
            cell: cell.spec.label(),
            provenance: cell.spec.provenance().as_str(),
            runs: if obstacle.is_some() { 0 } else { rounds as usize - stored },
            stored,
            status: obstacle.map(|(status, _)| status.as_str()),
            reason: obstacle.map(|(_, reason)| reason),
        }
    }
}

fn table<'a>(cells: impl IntoIterator<Item = &'a PlannedCell<'a>>) -> Table {
    Table::of(
        cells,
        &[
            ("cell", &|c: &PlannedCell<'_>| Shown::text(&c.cell)),
            ("runs", &|c| c.runs.into()),
            ("stored", &|c| c.stored.into()),
            ("status|", &|c| c.status.into()),
            ("reason|", &|c| c.reason.into()),
            ("!provenance", &|c| Shown::text(c.provenance)),
        ],
    )
}

fn text(printed: &Printed<'_>, forecast: &Forecast) -> String {
    let time = match printed.seconds {
        _ if printed.runs == 0 => String::new(),
        None => ", time unknown".into(),
        Some(seconds) if seconds < 1.0 => ", under a second".into(),
        Some(seconds) => format!(", about {}", duration(Duration::from_secs_f64(seconds))),
    };
    let rounds = match printed.rounds {
        1 => String::new(),
        rounds => format!(" in {rounds} rounds"),
    };
    let mut text = output::wrapped(
        "",
        &format!(
            "{}: would start {} of {}{rounds}{time}; {} stored.",
            printed.experiment,
            counted(printed.runs, "run"),
            counted(forecast.cells, "cell"),
            printed.stored,
        ),
        2,
    );
    text.extend(printed.basis.as_ref().map(|basis| output::wrapped("  ", basis, 2)));
    for unable in &forecast.unable {
        let why = match unable.status {
            Status::Oom => "would not fit in memory",
            _ => "would be skipped",
        };
        let line =
            format!("{} {why}: {} ({})", counted(unable.cells, "cell"), unable.reason, unable.example);
        text += &output::wrapped("  ", &line, 4);
    }
    let planned: Vec<&PlannedCell<'_>> = printed.cells.iter().filter(|cell| cell.runs > 0).collect();
    if !planned.is_empty() {
        text += "\n";
        text += &output::aligned(&table(planned.iter().copied().take(ROWS)));
    }
    let beyond = planned.len().saturating_sub(ROWS);
    if beyond > 0 {
        text += &format!("... and {}; all: --format csv\n", counted(beyond, "more cell"));
    }
    text
}
