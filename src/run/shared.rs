//! Values shared by the runs of one process: plans, models, targets, and what they computed.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cuda::AvailableGpus;
use crate::sim::Simulator;
use crate::{HOST, cuda};
use base::checksum::short_key;
use base::error::{Error, Result};
use base::input::InputKind;
use base::text::counted;
use machine::environment::available_memory;
use machine::hardware::{MemoryNeed, Profile, Stack};
use model::Model;
use plan::ModelShape;
use table::Spec;

/// Shared state of a grid's cells: the simulator, hashes of files, and this machine's GPUs and memory.
#[derive(Debug, Default)]
pub struct GridContext {
    pub simulator: Simulator,
    files: BoundedCache<PathBuf, String>,
    gpus: Option<AvailableGpus>,
    /// Memory need of a rank on a GPU, keyed by all its inputs.
    on_gpu: BoundedCache<String, MemoryNeed>,
    elsewhere: bool,
}

impl GridContext {
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

    /// Hashes of the files that a cell names, by option: hardware profile and stack if not built in, and the files
    /// that [`Model::hash`] covers. Each file is read once. Returns an error if a file cannot be read.
    pub fn files(&self, model: &Model, hardware: &str, stack: &str) -> Result<BTreeMap<String, String>> {
        let mut files = BTreeMap::new();
        let profile = Profile::file(hardware).filter(|_| hardware != HOST);
        for (option, file) in [("hardware", profile), ("stack", Stack::file(stack))] {
            if let Some(file) = file {
                let hash = || Ok(short_key(InputKind::HARDWARE.bytes(file)?));
                files.insert(option.to_owned(), (*self.files.get(file.into(), hash)?).clone());
            }
        }
        if let Some(dir) = &model.dir {
            let hash = self.files.get(dir.clone(), || model.hash())?;
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
        self.on_gpu.get(key, need).map(|need| *need)
    }

    pub fn gpus(&self) -> &AvailableGpus {
        self.gpus.as_ref().unwrap_or_else(|| AvailableGpus::of_machine())
    }

    #[cfg(test)]
    pub fn with_gpus(gpus: AvailableGpus) -> Self {
        Self { gpus: Some(gpus), ..Self::default() }
    }
}

/// Cache of at most `MOST` entries, shared by threads.
#[derive(Debug)]
pub(crate) struct BoundedCache<K, V, const MOST: usize = 1024>(RwLock<HashMap<K, Arc<V>>>);

impl<K, V, const MOST: usize> Default for BoundedCache<K, V, MOST> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<K: Eq + Hash, V, const MOST: usize> BoundedCache<K, V, MOST> {
    /// Returns the value of `key`, computing it if missing. Errors are not cached: each cell reports its own.
    pub(crate) fn get(&self, key: K, make: impl FnOnce() -> Result<V>) -> Result<Arc<V>> {
        if let Some(there) = self.0.read().ok().and_then(|table| table.get(&key).cloned()) {
            return Ok(there);
        }
        // two threads may compute the same value concurrently; neither waits for the other
        let made = Arc::new(make()?);
        if let Ok(mut table) = self.0.write() {
            if table.len() >= MOST {
                table.clear();
            }
            table.insert(key, Arc::clone(&made));
        }
        Ok(made)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Computed {
    pub tokens: String,
    pub not_finite: u64,
}

impl Computed {
    /// `tokens` must have the same order on all ranks and in all generations.
    pub fn new<'a>(tokens: impl IntoIterator<Item = &'a u32>, not_finite: u64) -> Self {
        let bytes: Vec<u8> = tokens.into_iter().flat_map(|token| token.to_le_bytes()).collect();
        Self { tokens: short_key(bytes), not_finite }
    }
}

/// Compares the generations of a run; all are greedy and start from the same prompts.
#[derive(Debug)]
pub(super) struct TokenComparison {
    architecture: String,
    /// True if all ranks must choose the same tokens, that is, no rank has its own residual.
    ranks_agree: bool,
    first: Option<(String, Vec<Computed>)>,
    generations: u32,
}

impl TokenComparison {
    pub fn new(spec: &Spec, layers: u32) -> Self {
        Self {
            architecture: spec.architecture.to_string(),
            ranks_agree: !spec.architecture.wiring(layers).may_diverge(),
            first: None,
            generations: 0,
        }
    }

    /// Checks a generation's results, by rank; `name` is used in errors.
    ///
    /// # Errors
    ///
    /// Returns an error if logits are not finite, if ranks disagree that must agree, or if a rank's tokens differ
    /// from the first generation.
    pub fn take(&mut self, name: &str, ranks: &[Computed]) -> Result<()> {
        let failed =
            |why: String| Err(Error::failed(format!("{name}: {why}; its timings are discarded")));
        if let Some((rank, wrong)) = ranks.iter().enumerate().find(|(_, rank)| rank.not_finite > 0) {
            let logits = counted(wrong.not_finite as usize, "logit");
            return failed(format!("{logits} of rank {rank} are infinite or NaN"));
        }
        let differs = ranks.iter().position(|rank| rank.tokens != ranks[0].tokens);
        if let (true, Some(rank)) = (self.ranks_agree, differs) {
            let architecture = &self.architecture;
            return failed(format!(
                "rank {rank} chose other tokens than rank 0, but all ranks of {architecture} compute the same"
            ));
        }
        self.generations += 1;
        let Some((first, before)) = &self.first else {
            self.first = Some((name.to_owned(), ranks.to_vec()));
            return Ok(());
        };
        let mut pairs = ranks.iter().zip(before);
        match pairs.position(|(now, before)| now.tokens != before.tokens) {
            Some(rank) => failed(format!(
                "rank {rank} chose other tokens than in {first}, from the same prompts and without sampling"
            )),
            None => Ok(()),
        }
    }

    /// Entry for the run record: the token hash, the number of compared generations (including warm-ups), and if
    /// ranks were compared.
    pub fn environment(&self) -> Value {
        let ranks = self.first.as_ref().map_or(&[][..], |(_, ranks)| ranks);
        json!({
            "tokens": ranks.first().map(|rank| &rank.tokens),
            "generations": self.generations,
            "ranks": ranks.len(),
            "ranks_agree": (self.ranks_agree && ranks.len() > 1).then_some(true),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::testing::spec;

    #[test]
    fn a_cache_makes_a_value_once_and_never_holds_more_than_it_may() {
        let cache: BoundedCache<u32, u32, 4> = BoundedCache::default();
        for _ in 0..3 {
            assert_eq!(*cache.get(7, || Ok(49)).unwrap(), 49);
        }
        assert_eq!(*cache.get(7, || Ok(0)).unwrap(), 49, "made once");
        for key in 0..100 {
            cache.get(key, || Ok(key)).unwrap();
            assert!(cache.0.read().unwrap().len() <= 4);
        }
    }

    #[test]
    fn a_target_with_overrides_is_another_target() {
        let shared = GridContext::default();
        let of = |stack, pairs: &[(&str, &str)]| {
            let set = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            shared.simulator.target("h100_sxm", stack, &set)
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

    fn computed(tokens: &[u32]) -> Computed {
        Computed::new(tokens, 0)
    }

    fn error(result: Result<()>) -> String {
        result.expect_err("it must not pass").to_string()
    }

    #[test]
    fn samples_and_ranks_that_agree_pass() {
        let mut all = TokenComparison::new(&spec("ladder", "tiny"), 4);
        for name in ["warm-up 1/1", "sample 1/2", "sample 2/2"] {
            all.take(name, &[computed(&[1, 2, 3]), computed(&[1, 2, 3])]).unwrap();
        }
        let said = all.environment();
        assert_eq!((&said["generations"], &said["ranks"]), (&json!(3), &json!(2)), "{said}");
        assert_eq!(said["ranks_agree"], true);
    }

    #[test]
    fn other_tokens_of_a_rank_or_a_sample_fail() {
        let mut all = TokenComparison::new(&spec("standard", "tiny"), 4);
        let why = error(all.take("sample 1/2", &[computed(&[1, 2]), computed(&[1, 3])]));
        assert!(why.starts_with("sample 1/2: rank 1 chose other tokens than rank 0"), "{why}");
        all.take("sample 1/2", &[computed(&[1, 2]), computed(&[1, 2])]).unwrap();
        let why = error(all.take("sample 2/2", &[computed(&[2, 1]), computed(&[2, 1])]));
        assert!(why.starts_with("sample 2/2: rank 0 chose other tokens than in sample 1/2"), "{why}");
    }

    #[test]
    fn ranks_with_residuals_of_their_own_may_differ_from_each_other_but_not_from_sample_to_sample() {
        for architecture in ["desync:2", "upper-bound"] {
            let mut all = TokenComparison::new(&spec(architecture, "tiny"), 4);
            all.take("sample 1/2", &[computed(&[1]), computed(&[2])]).unwrap();
            assert_eq!(all.environment()["ranks_agree"], Value::Null);
            let why = error(all.take("sample 2/2", &[computed(&[1]), computed(&[1])]));
            assert!(why.contains("rank 1 chose other tokens than in sample 1/2"), "{why}");
        }
    }

    #[test]
    fn logits_that_are_no_numbers_fail() {
        let mut all = TokenComparison::new(&spec("upper-bound", "tiny"), 4);
        let why = error(all.take("sample 1/1", &[computed(&[1]), Computed::new(&[1], 5)]));
        assert!(why.starts_with("sample 1/1: 5 logits of rank 1 are infinite or NaN"), "{why}");
    }
}
