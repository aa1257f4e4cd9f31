//! Marked runs: in the order in which they were marked, and found at once, as each row that is drawn asks.

use std::collections::HashSet;

/// Marked runs, by id.
#[derive(Clone, Debug, Default)]
pub struct Marked {
    order: Vec<String>,
    all: HashSet<String>,
}

impl Marked {
    /// Marks a run, behind those that are marked.
    pub fn insert(&mut self, run: String) {
        if self.all.insert(run.clone()) {
            self.order.push(run);
        }
    }

    /// Marks a run, or takes its mark away.
    pub fn toggle(&mut self, run: String) {
        if self.contains(&run) {
            self.retain(|marked| marked != run);
        } else {
            self.insert(run);
        }
    }

    /// Whether a run is marked.
    pub fn contains(&self, run: &str) -> bool {
        self.all.contains(run)
    }

    /// Keeps the marks that `keep` allows, in their order.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.order.retain(|run| keep(run));
        self.all.retain(|run| keep(run));
    }

    /// Whether no run is marked.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// How many runs are marked.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// The runs, the one marked first in front.
    pub fn as_slice(&self) -> &[String] {
        &self.order
    }
}
