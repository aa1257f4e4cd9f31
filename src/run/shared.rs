//! Caches for the cells of a grid. They live for one pass over a grid, so the next pass sees changed files. A full
//! cache is cleared, so memory does not grow with the grid.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use crate::HOST;
use crate::cuda::{self, gpus::Gpus};
use crate::sim::Simulator;
use base::error::Result;
use base::hash::short_key;
use base::input::InputKind;
use machine::environment::available_memory;
use machine::hardware::{MemoryNeed, Profile, Stack, Target};
use model::Model;
use plan::ModelShape;
use table::Spec;

/// Maximum cached entries.
const MOST: usize = 1024;

/// Shared state of a grid's cells: the simulator, hashes of files, and this machine's GPUs and memory.
#[derive(Debug, Default)]
pub struct Shared {
    pub simulator: Simulator,
    files: Cache<PathBuf, String>,
    gpus: Option<Gpus>,
    /// Memory need of a rank on a GPU, keyed by all its inputs.
    on_gpu: Cache<String, MemoryNeed>,
    elsewhere: bool,
}

impl Shared {
    /// For cells that run on another machine: this machine's GPUs and memory do not limit them.
    pub fn elsewhere() -> Self {
        Self { elsewhere: true, ..Self::default() }
    }

    pub fn is_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// Available memory for cells on CPUs, if known.
    pub fn available_memory(&self) -> Option<u64> {
        if self.elsewhere { None } else { available_memory() }
    }

    /// Cached model; see [`Simulator::model`].
    pub fn model(&self, name_or_dir: &str) -> Result<Arc<Model>> {
        self.simulator.model(name_or_dir)
    }

    /// Cached hardware profile and stack; see [`Simulator::target`].
    pub fn target(
        &self,
        hardware: &str,
        stack: &str,
        set: &BTreeMap<String, String>,
    ) -> Result<Arc<Target>> {
        self.simulator.target(hardware, stack, set)
    }

    /// Hashes of the files that a cell names, by option: hardware profile and stack if not built in, and the files
    /// that [`Model::hash`] covers. Each file is read once. Returns an error if a file cannot be read.
    pub fn files(&self, model: &Model, hardware: &str, stack: &str) -> Result<BTreeMap<String, String>> {
        let mut files = BTreeMap::new();
        let profile = Profile::file(hardware).filter(|_| hardware != HOST);
        for (option, file) in [("hardware", profile), ("stack", Stack::file(stack))] {
            if let Some(file) = file {
                let hash = || Ok(short_key(InputKind::HARDWARE.bytes(file)?));
                files.insert(option.to_owned(), (*self.files.get(file.into(), MOST, hash)?).clone());
            }
        }
        if let Some(dir) = &model.dir {
            let hash = self.files.get(dir.clone(), MOST, || model.hash())?;
            files.insert("model".to_owned(), (*hash).clone());
        }
        Ok(files)
    }

    /// Cached [`cuda::memory_need`], which has to build plans. Returns an input error if TP does not divide the
    /// model.
    pub fn memory_on_gpu(
        &self,
        spec: &Spec,
        shape: &ModelShape,
        multiprocessors: u32,
    ) -> Result<MemoryNeed> {
        let Spec {
            model, architecture, tp, dtype, batch, prompt_tokens, output_tokens, shard_head, ..
        } = spec;
        let key = format!(
            "{model}\n{architecture} {tp} {dtype} {batch} {prompt_tokens} {output_tokens} {multiprocessors} {shard_head} {:?}",
            spec.variant()
        );
        let need = || cuda::memory_need(spec, shape, multiprocessors);
        self.on_gpu.get(key, MOST, need).map(|need| *need)
    }

    pub fn gpus(&self) -> &Gpus {
        self.gpus.as_ref().unwrap_or_else(|| Gpus::of_machine())
    }

    #[cfg(test)]
    pub fn with_gpus(gpus: Gpus) -> Self {
        Self { gpus: Some(gpus), ..Self::default() }
    }
}

/// Cache of bounded size, shared by threads.
#[derive(Debug)]
pub(crate) struct Cache<K, V>(RwLock<HashMap<K, Arc<V>>>);

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<K: Eq + Hash, V> Cache<K, V> {
    /// Returns the value of `key`, computing it if missing. Errors are not cached: each cell reports its own.
    pub(crate) fn get(&self, key: K, most: usize, make: impl FnOnce() -> Result<V>) -> Result<Arc<V>> {
        if let Some(there) = self.0.read().ok().and_then(|table| table.get(&key).cloned()) {
            return Ok(there);
        }
        // two threads may compute the same value concurrently; neither waits for the other
        let made = Arc::new(make()?);
        if let Ok(mut table) = self.0.write() {
            if table.len() >= most {
                table.clear();
            }
            table.insert(key, Arc::clone(&made));
        }
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_makes_a_value_once_and_never_holds_more_than_it_may() {
        let cache: Cache<u32, u32> = Cache::default();
        for _ in 0..3 {
            assert_eq!(*cache.get(7, 4, || Ok(49)).unwrap(), 49);
        }
        assert_eq!(*cache.get(7, 4, || Ok(0)).unwrap(), 49, "made once");
        for key in 0..100 {
            cache.get(key, 4, || Ok(key)).unwrap();
            assert!(cache.0.read().unwrap().len() <= 4);
        }
    }

    #[test]
    fn a_target_with_overrides_is_another_target() {
        let shared = Shared::default();
        let of = |stack, pairs: &[(&str, &str)]| {
            let set = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            shared.target("h100_sxm", stack, &set)
        };
        let plain = of("native", &[]).unwrap();
        let half = of("native", &[("hbm_gb_s", "1000")]).unwrap();
        let less = of("native", &[("hbm_gb_s", "500")]).unwrap();
        assert!(plain.profile.hbm_gb_s > half.profile.hbm_gb_s);
        assert!(half.profile.hbm_gb_s > less.profile.hbm_gb_s);
        assert_eq!(of("gpt-fast", &[("stack.launch_us", "9")]).unwrap().stack.launch_us, 9.0);
        assert_ne!(of("gpt-fast", &[]).unwrap().stack, plain.stack);
        assert!(of("native", &[("hbm_gb_s", "fast")]).is_err());
        assert!(of("nativ", &[]).is_err());
    }
}
