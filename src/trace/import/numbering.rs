//! Numbers of distinct items, in order of first use.

use std::collections::HashMap;
use std::hash::Hash;

#[derive(Debug)]
pub(super) struct Numbering<T>(HashMap<T, u32>);

impl<T> Default for Numbering<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Eq + Hash> Numbering<T> {
    pub(super) fn number(&mut self, item: T) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(item).or_insert(next)
    }

    /// The items, each at the index of its number.
    pub(super) fn list(self) -> Vec<T> {
        let mut items: Vec<(T, u32)> = self.0.into_iter().collect();
        items.sort_unstable_by_key(|(_, number)| *number);
        items.into_iter().map(|(item, _)| item).collect()
    }
}
