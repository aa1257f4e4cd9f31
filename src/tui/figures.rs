//! Figures that pages export: the same as those of the command line, with where the numbers come from.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use super::message::Snapshot;
use super::page::Export;
use super::state::State;
use crate::analysis::{ComparisonReport, OverlayPoint, ParetoPoint};
use crate::error::Result;
use crate::plot::{self, Facts, Options, ParetoData};
use crate::store::{Record, Store};

/// The runs directory and what is known of it, for figures that are drawn on a thread.
struct Source {
    dir: PathBuf,
    stored: Option<Arc<Snapshot>>,
}

impl Source {
    fn of(state: &State) -> Self {
        Self { dir: state.dir.clone(), stored: state.stored.clone() }
    }

    /// All rounds of the cells of these runs, with the environment they ran in.
    fn records<'a>(&self, runs: impl Iterator<Item = &'a str>) -> Result<Vec<Record>> {
        let Some(stored) = &self.stored else { return Ok(Vec::new()) };
        let runs: HashSet<&str> = runs.collect();
        let shown = stored.records.iter().filter(|record| runs.contains(record.run.as_str()));
        let cells: HashSet<String> = shown.map(|record| record.spec.key()).collect();
        let finished = stored.records.iter().filter(|record| record.metrics.is_some());
        let records = finished.filter(|record| cells.contains(&record.spec.key())).cloned().collect();
        let mut whole = Vec::new();
        Store::open(&self.dir).complete(records, |record| {
            whole.push(record);
            Ok(())
        })?;
        Ok(whole)
    }
}

/// The Pareto figure of these points, with points from elsewhere beside them.
pub fn pareto(state: &State, points: Vec<ParetoPoint>, others: Vec<OverlayPoint>) -> Export {
    let source = Source::of(state);
    Export::new(move |path| {
        plot::check_format(path)?;
        let records = source.records(points.iter().map(|point| point.run.as_str()))?;
        let overlay = plot::overlay(&others, &points);
        let data = ParetoData { points: &points, overlay };
        plot::pareto_figure(&data, &Facts::of_records(&records), &Options::default())?.save(path)
    })
}

/// The figure of a comparison.
pub fn comparison(state: &State, report: ComparisonReport) -> Export {
    let source = Source::of(state);
    Export::new(move |path| {
        plot::check_format(path)?;
        let runs = report.pairs.iter().flat_map(|pair| [&pair.run, &pair.baseline_run]);
        let facts = Facts::of_records(&source.records(runs.map(String::as_str))?);
        plot::comparison_figure(&report, &facts, &Options::default())?.save(path)
    })
}
