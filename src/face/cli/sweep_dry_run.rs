//! `ladderscope sweep --dry-run`: lists what would run, what is stored, what cannot run and why, and estimates the time.

use std::collections::HashMap;
use std::path::Path;

use super::output::{self, OutputFormat};
use super::stderr;
use super::sweep::TABLE_ROWS;
use crate::desk::RunSelection;
use base::error::Result;
use base::text::{counted, duration};
use lab::sweep::forecast::{CellHistory, Forecast, RunHistory, forecast};
use lab::sweep::{Cell, Experiment, SweepSelection};
use machine::environment::load;
use table::Status;
use table::render::{Shown, Sourced, Table};

/// Output of `sweep --dry-run`: runs that the sweep would start. Nothing is run or written.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct PrintedPlan<'a> {
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

#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
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

pub(super) fn dry_run(
    experiment: &Experiment,
    selection: SweepSelection,
    dir: &Path,
    format: OutputFormat,
) -> Result<u8> {
    let records = RunSelection::all(dir)?.records;
    let past = RunHistory::past(&records, &selection.kept_since());
    let history = RunHistory::new(&experiment.cells, |key| past.get(key).cloned(), &records, load());
    let forecast = forecast(experiment, &history, &|| false).unwrap_or_default();
    let cells: Vec<PlannedCell<'_>> =
        experiment.cells.iter().map(|cell| PlannedCell::new(cell, experiment.rounds, &past)).collect();
    let printed = PrintedPlan {
        experiment: &experiment.name,
        rounds: experiment.rounds,
        runs: forecast.left(),
        stored: forecast.stored,
        seconds: forecast.seconds,
        basis: forecast.basis(),
        cells,
    };
    let csv = || plan_table(&printed.cells).csv(Sourced::ByRow);
    output::print(format, &printed, csv, || plan_text(&printed, &forecast))?;
    experiment.notes.iter().for_each(|note| stderr::note(note));
    Ok(0)
}

impl<'a> PlannedCell<'a> {
    fn new(cell: &'a Cell, rounds: u32, past: &HashMap<String, CellHistory>) -> Self {
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

fn plan_table<'a>(cells: impl IntoIterator<Item = &'a PlannedCell<'a>>) -> Table {
    Table::from_rows(
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

fn plan_text(printed: &PrintedPlan<'_>, forecast: &Forecast) -> String {
    let time = match printed.seconds {
        _ if printed.runs == 0 => String::new(),
        None => ", time unknown".into(),
        Some(seconds) if seconds < 1.0 => ", under a second".into(),
        Some(seconds) => format!(", about {}", duration(seconds)),
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
        text += &output::aligned(&plan_table(planned.iter().copied().take(TABLE_ROWS)));
    }
    let beyond = planned.len().saturating_sub(TABLE_ROWS);
    if beyond > 0 {
        text += &format!("... and {}; all: --format csv\n", counted(beyond, "more cell"));
    }
    text
}
