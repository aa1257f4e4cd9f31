//! Cache of limited size, shared by threads.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, RwLock};

use base::error::Result;

/// Cache that is cleared once it has `MAX_ENTRIES` entries.
#[derive(Debug)]
pub(crate) struct BoundedCache<K, V, const MAX_ENTRIES: usize = 1024>(RwLock<HashMap<K, Arc<V>>>);

impl<K, V, const MAX_ENTRIES: usize> Default for BoundedCache<K, V, MAX_ENTRIES> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<K: Eq + Hash, V, const MAX_ENTRIES: usize> BoundedCache<K, V, MAX_ENTRIES> {
    /// Returns the value of `key`, computing it if missing. Errors are not cached: each cell reports its own.
    pub(crate) fn get(&self, key: K, make: impl FnOnce() -> Result<V>) -> Result<Arc<V>> {
        if let Some(cached) = self.0.read().ok().and_then(|table| table.get(&key).cloned()) {
            return Ok(cached);
        }
        // two threads may compute the same value concurrently; neither waits for the other
        let value = Arc::new(make()?);
        if let Ok(mut table) = self.0.write() {
            if table.len() >= MAX_ENTRIES {
                table.clear();
            }
            table.insert(key, Arc::clone(&value));
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_made_once_and_the_number_of_entries_is_limited() {
        let cache: BoundedCache<u32, u32, 4> = BoundedCache::default();
        assert_eq!(*cache.get(7, || Ok(49)).unwrap(), 49);
        assert_eq!(*cache.get(7, || Ok(0)).unwrap(), 49, "made once");
        for key in 0..100 {
            cache.get(key, || Ok(key)).unwrap();
            assert!(cache.0.read().unwrap().len() <= 4);
        }
    }
}
