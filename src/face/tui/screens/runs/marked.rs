//! Marked runs in marking order, with constant-time lookup because every drawn row checks.

use std::collections::HashSet;

#[derive(Clone, Debug, Default)]
pub struct Marked {
    order: Vec<String>,
    all: HashSet<String>,
}

impl Marked {
    pub fn insert(&mut self, run: String) {
        if self.all.insert(run.clone()) {
            self.order.push(run);
        }
    }

    pub fn toggle(&mut self, run: String) {
        if self.contains(&run) {
            self.retain(|marked| marked != run);
        } else {
            self.insert(run);
        }
    }

    pub fn contains(&self, run: &str) -> bool {
        self.all.contains(run)
    }

    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.order.retain(|run| keep(run));
        self.all.retain(|run| keep(run));
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn as_slice(&self) -> &[String] {
        &self.order
    }
}
