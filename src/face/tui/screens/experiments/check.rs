//! Background check of a draft: its cells and the forecast of its sweep.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use super::draft::Checked;
use crate::face::tui::snapshot::Snapshot;
use base::error::Error;
use lab::sweep::Experiment;
use lab::sweep::forecast::{History, Past, forecast};
use study::answer::{Answer, MOST_RUNS};

/// Maximum number of stored runs used to scale predictions.
const EXECUTED: usize = 8;

/// Checks an experiment text and forecasts its sweep. `stop` returns true once the result is no longer
/// needed.
pub fn check(
    serial: u64,
    text: &str,
    path: &Path,
    stored: Option<&Snapshot>,
    stop: &dyn Fn() -> bool,
) -> Checked {
    match Experiment::from_str(text, path) {
        Ok(experiment) => {
            let history = stored.map(|stored| history(&experiment, stored)).unwrap_or_default();
            let forecast = forecast(&experiment, &history, stop);
            let answers = stored.map(|stored| answers(&experiment, stored)).unwrap_or_default();
            let note = Some(experiment.remarks().collect::<Vec<_>>().join("; "))
                .filter(|note| !note.is_empty());
            Checked { serial, experiment: Ok(Arc::new(experiment)), forecast, answers, note }
        }
        Err(error) => {
            let (experiment, answers) = (Err(said(&error)), Vec::new());
            Checked { serial, experiment, forecast: None, answers, note: None }
        }
    }
}

fn answers(experiment: &Experiment, stored: &Snapshot) -> Vec<Answer> {
    if experiment.cells.len() * experiment.rounds as usize > MOST_RUNS {
        return Vec::new();
    }
    let keys: HashSet<String> = experiment.cells.iter().map(|cell| cell.spec.key()).collect();
    let runs = keys.iter().filter_map(|key| stored.known.get(key)).flat_map(|known| &known.runs);
    let mut runs: Vec<usize> = runs.copied().collect();
    // in storage order
    runs.sort_unstable();
    Answer::of(runs.into_iter().map(|run| stored.records[run].clone()).collect())
}

/// Formats an error with its help; the message already includes the location.
fn said(error: &Error) -> String {
    match error {
        Error::At { message, help: Some(help), .. } | Error::Input { message, help: Some(help) } => {
            format!("{message}\n{help}")
        }
        other => other.to_string(),
    }
}

fn history(experiment: &Experiment, stored: &Snapshot) -> History {
    let known = experiment.cells.iter().filter_map(|cell| {
        let key = cell.spec.key();
        let known = stored.known.get(&key)?;
        let past = Past { rounds: known.rounds.clone(), completion_ms: known.completion_ms };
        Some((key, past))
    });
    let cells: HashMap<String, Past> = known.collect();
    let mut seen = HashSet::new();
    let executed = stored
        .records
        .iter()
        .rev()
        .filter(|record| !record.spec.backend.is_simulated())
        .filter_map(|record| Some((record, record.metrics.as_ref()?.completion_ms)))
        .filter(|(record, _)| seen.insert(record.spec.key()))
        .map(|(record, ms)| (record.spec.clone(), ms))
        .take(EXECUTED)
        .collect();
    History { cells, executed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_of_both_links_is_told_before_it_is_run() {
        let text = |p2p: &str| {
            format!(
                "backend = \"sim\"\nhardware = \"h100_sxm\"\n[model]\nname = \"tiny\"\n[grid]\np2p = {p2p}\n\
                 \"set.link.alpha_us\" = [5, 20]\n"
            )
        };
        let note = |p2p: &str| {
            let checked = check(1, &text(p2p), Path::new("e.toml"), None, &|| false);
            assert!(checked.experiment.is_ok(), "{:?}", checked.experiment.err());
            checked.note
        };
        let both = note("[\"on\", \"off\"]").expect("a note");
        assert!(
            both.contains("P2P on and off alike") && both.contains("link.p2p_off.alpha_us"),
            "{both}"
        );
        assert_eq!(note("[\"on\"]"), None, "there is one link");
    }

    #[test]
    fn what_a_backend_does_not_read_is_told_beside_the_count_of_cells() {
        let text = "backend = \"cpu\"\n[model]\nname = \"tiny\"\n[grid]\nnvls = [\"on\", \"off\"]\n";
        let checked = check(1, text, Path::new("e.toml"), None, &|| false);
        assert_eq!(checked.experiment.expect("it can be read").cells.len(), 1);
        assert!(checked.note.is_some_and(|note| note.starts_with("1 of the grid's 2 cells")));
    }
}
