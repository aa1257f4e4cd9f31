//! Cells that were not measured side by side with those they are ranked against, so that the machine may have changed.

use std::collections::{BTreeMap, HashMap};

use plan::Architecture;
use table::{CellRuns, Provenance, Record, Spec, host};

/// Cell key without the architecture, and host: comparisons match cells that share both.
type Setting = (String, Option<String>);

fn setting(cell: &CellRuns<'_>) -> Option<Setting> {
    let run: &Record = cell.runs.first().filter(|run| run.provenance != Provenance::Simulated)?;
    let standard = Spec { architecture: Architecture::Standard, ..run.spec.clone() };
    Some((standard.key(), host(run)))
}

/// True for each cell that ran a round after a later round of its experiment had begun in a cell of its setting, as after a
/// resume. Comparisons leave such rounds out.
pub(super) fn measured_apart(cells: &[CellRuns<'_>]) -> Vec<bool> {
    let settings: Vec<Option<Setting>> = cells.iter().map(setting).collect();
    let mut begun: HashMap<(&Setting, &str), BTreeMap<u32, &str>> = HashMap::new();
    for (cell, setting) in cells.iter().zip(&settings) {
        let Some(setting) = setting else { continue };
        for run in cell.ok() {
            let Some(experiment) = run.experiment.as_deref() else { continue };
            let rounds = begun.entry((setting, experiment)).or_default();
            let first = rounds.entry(run.round).or_insert(run.created.as_str());
            if run.created.as_str() < *first {
                *first = run.created.as_str();
            }
        }
    }
    let is_late = |setting: &Setting, run: &Record| {
        let experiment = run.experiment.as_deref().unwrap_or_default();
        let later = begun.get(&(setting, experiment)).map(|rounds| rounds.range(run.round + 1..));
        later.is_some_and(|mut later| later.any(|(_, first)| *first < run.created.as_str()))
    };
    let apart = cells.iter().zip(&settings).map(|(cell, setting)| {
        setting.as_ref().is_some_and(|setting| cell.ok().any(|run| is_late(setting, run)))
    });
    apart.collect()
}
