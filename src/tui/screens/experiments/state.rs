//! State of screen 1: the experiments and what is known about them.

use crate::spec::Spec;
use crate::sweep::{Experiment, Verdict};
use crate::tui::experiments::Entry;
use crate::tui::message::Snapshot;
use crate::tui::state::List;

/// State of the experiments screen.
#[derive(Debug, Default)]
pub struct Experiments {
    /// The experiments, quickstart first; `None` until they are read.
    pub entries: Option<Vec<Entry>>,
    /// What stored runs say of each entry.
    pub stored: Vec<Stored>,
    /// The selection.
    pub list: List,
}

/// What stored runs say about an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stored {
    /// Runs (cells times rounds) that can be run.
    pub runs: usize,
    /// Of those, how many are stored already.
    pub done: usize,
    /// Time that the others should take (ms), where each cell has been run before.
    pub remaining_ms: Option<f64>,
}

impl Experiments {
    /// The selected entry.
    pub fn selected(&self) -> Option<&Entry> {
        self.entries.as_ref()?.get(self.list.selected)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.as_ref().map_or(0, Vec::len)
    }

    /// Takes new entries; the selection stays on the entry of the same name.
    pub fn set(&mut self, entries: Vec<Entry>) {
        let name = self.selected().map(|e| e.name.clone());
        let at = name.and_then(|name| entries.iter().position(|e| e.name == name));
        self.list.selected = at.unwrap_or(0);
        self.entries = Some(entries);
    }

    /// Matches the entries with the stored runs.
    pub fn match_stored(&mut self, snapshot: Option<&Snapshot>) {
        let entries = self.entries.as_deref().unwrap_or_default();
        self.stored = entries.iter().map(|entry| stored(entry, snapshot)).collect();
    }
}

fn stored(entry: &Entry, snapshot: Option<&Snapshot>) -> Stored {
    let Ok(experiment) = &entry.experiment else { return Stored::default() };
    let mut result = Stored { remaining_ms: Some(0.0), ..Stored::default() };
    for (cell, key) in experiment.cells.iter().zip(&entry.keys) {
        if cell.verdict != Verdict::Runs {
            continue;
        }
        let rounds = experiment.rounds as usize;
        let known = snapshot.and_then(|s| s.known.get(key));
        let done = known.map_or(0, |k| k.rounds.range(..experiment.rounds).count());
        result.runs += rounds;
        result.done += done;
        let generations = f64::from(cell.spec.samples + cell.spec.warmup);
        let left = (rounds - done) as f64 * generations;
        result.remaining_ms = match (result.remaining_ms, known) {
            _ if left == 0.0 => result.remaining_ms,
            // simulating takes no time that its result would tell
            (Some(sum), Some(known)) if cell.spec.backend != crate::spec::Backend::Sim => {
                Some(sum + left * known.completion_ms)
            }
            _ => None,
        };
    }
    result
}

/// An axis of the grid and its values, in the order met.
pub fn axes(experiment: &Experiment) -> Vec<(String, Vec<String>)> {
    experiment
        .axes
        .iter()
        .map(|axis| {
            let mut values: Vec<String> = Vec::new();
            for cell in &experiment.cells {
                let value = value(&cell.spec, axis);
                if !values.contains(&value) {
                    values.push(value);
                }
            }
            (axis.clone(), values)
        })
        .collect()
}

/// A spec's value under a contract key, or of an environment variable; `-` where it has none.
pub fn value(spec: &Spec, key: &str) -> String {
    match key {
        "architecture" => spec.architecture.to_string(),
        "model" => spec.model.clone(),
        "dtype" => spec.dtype.to_string(),
        "tp" => spec.tp.to_string(),
        "batch" => spec.batch.to_string(),
        "prompt_tokens" => spec.prompt_tokens.to_string(),
        "output_tokens" => spec.output_tokens.to_string(),
        "p2p" => spec.p2p.as_str().into(),
        "backend" => spec.backend.as_str().into(),
        "link" => spec.link.to_string(),
        "hardware" => spec.hardware.clone(),
        "stack" => spec.stack.clone(),
        "samples" => spec.samples.to_string(),
        "warmup" => spec.warmup.to_string(),
        "seed" => spec.seed.to_string(),
        "collective" => match spec.collective {
            crate::spec::Collective::Nccl => "nccl".into(),
            crate::spec::Collective::OneShot => "one-shot".into(),
        },
        other => {
            let name = other.strip_prefix("env.").or(other.strip_prefix("set.")).unwrap_or(other);
            spec.env.get(name).or_else(|| spec.set.get(name)).cloned().unwrap_or_else(|| "-".into())
        }
    }
}
