//! State shared by the cells of a grid, so that each model, profile and file is read once.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::bounded_cache::BoundedCache;
use crate::cuda::AvailableGpus;
use crate::sim::Simulator;
use crate::{HOST, cuda};
use base::checksum::short_key;
use base::error::Result;
use base::input::InputKind;
use machine::environment::available_memory;
use machine::hardware::{MemoryNeed, Profile, Stack};
use model::Model;
use plan::ModelShape;
use table::Spec;

#[derive(Debug, Default)]
pub struct GridContext {
    pub simulator: Simulator,
    file_hashes: BoundedCache<PathBuf, String>,
    gpus: Option<AvailableGpus>,
    /// Memory need of a rank on a GPU, keyed by all its inputs.
    gpu_memory: BoundedCache<String, MemoryNeed>,
    /// True if the cells run on another machine: this machine's GPUs and memory do not limit them.
    pub(crate) is_remote: bool,
}

impl GridContext {
    pub fn remote() -> Self {
        Self { is_remote: true, ..Self::default() }
    }

    /// Available memory for cells on CPUs, if known.
    pub fn available_memory(&self) -> Option<u64> {
        if self.is_remote { None } else { available_memory() }
    }

    /// Hashes of the files that a cell names, by option: hardware profile and stack if not built in, and the files
    /// that [`Model::hash`] covers. Each file is read once. Returns an error if a file cannot be read.
    pub fn files(&self, model: &Model, hardware: &str, stack: &str) -> Result<BTreeMap<String, String>> {
        let mut files = BTreeMap::new();
        let profile = Profile::file(hardware).filter(|_| hardware != HOST);
        for (option, file) in [("hardware", profile), ("stack", Stack::file(stack))] {
            let Some(file) = file else { continue };
            let hash = || Ok(short_key(InputKind::HARDWARE.bytes(file)?));
            files.insert(option.to_owned(), (*self.file_hashes.get(file.into(), hash)?).clone());
        }
        if let Some(dir) = &model.dir {
            let hash = self.file_hashes.get(dir.clone(), || model.hash())?;
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
        self.gpu_memory.get(key, need).map(|need| *need)
    }

    pub fn gpus(&self) -> &AvailableGpus {
        self.gpus.as_ref().unwrap_or_else(|| AvailableGpus::of_machine())
    }

    #[cfg(test)]
    pub fn with_gpus(gpus: AvailableGpus) -> Self {
        Self { gpus: Some(gpus), ..Self::default() }
    }
}
