//! Figures exported by screens: the same as from the command line, including provenance.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use super::prelude::*;
use crate::desk::{Stores, export};
use study::analysis::{Axes, ComparisonReport, OverlayPoint, ParetoPoint};
use study::plot::ProvenanceSummary;

/// Runs directory and its contents, for drawing on a background thread.
struct Source {
    dir: PathBuf,
    stored: Option<Arc<Snapshot>>,
}

impl Source {
    fn of(cx: &Context) -> Self {
        Self { dir: cx.dir.clone(), stored: cx.stored.clone() }
    }

    /// Provenance of these runs, counting every round of their cells.
    fn provenance<'a>(&self, runs: impl Iterator<Item = &'a str>) -> ProvenanceSummary {
        let Some(stored) = &self.stored else { return ProvenanceSummary::default() };
        let runs: HashSet<&str> = runs.collect();
        let shown = stored.records.iter().filter(|record| runs.contains(record.run.as_str()));
        let cells: HashSet<String> = shown.map(|record| record.spec.key()).collect();
        let finished = stored.records.iter().filter(|record| record.metrics.is_some());
        let of_cells = finished.filter(|record| cells.contains(&record.spec.key()));
        Stores::named(&[], &self.dir).provenance(&of_cells.cloned().collect::<Vec<_>>())
    }
}

pub fn pareto(cx: &Context, points: Vec<ParetoPoint>, axes: Axes, others: Vec<OverlayPoint>) -> Export {
    let source = Source::of(cx);
    Export::new(move |path| {
        let runs = points.iter().map(|point| point.run.as_str());
        export::pareto(path, &points, axes, &others, || source.provenance(runs))
    })
}

pub fn comparison(cx: &Context, report: ComparisonReport) -> Export {
    let source = Source::of(cx);
    Export::new(move |path| {
        let runs = report.pairs.iter().flat_map(|pair| [&pair.run, &pair.baseline_run]);
        export::comparison(path, &report, || source.provenance(runs.map(String::as_str)))
    })
}
