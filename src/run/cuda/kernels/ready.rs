//! The kernels of one GPU: each unit compiled, or taken from disk, at its first use.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::compile::{Defines, cubin, options_for};
use super::{Nvrtc, cache, compile, sources};
use base::cache::Cache;
use base::error::{Error, Result};
use machine::driver::{Function, Gpu, version_text};
use plan::DType;

/// What kernels are compiled for, besides the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelOptions {
    /// How activations, weights and KV caches are stored.
    pub dtype: DType,
    /// Numbers of a head: a multiple of 8 up to 256.
    pub head_dim: u32,
    /// Query heads that share a key and value head.
    pub group: u32,
    /// Whether a kernel may begin while the one before it still runs (sm_90 and newer; no effect before).
    /// Launches must say the same.
    pub programmatic: bool,
    /// Whether a product that begins early asks for what it will read next.
    pub prefetch: bool,
    /// Prefetch of the next product's weights.
    pub ahead: Ahead,
}

/// KB a multiprocessor of the next product's weights that kernels prefetch into the second-level cache; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Ahead {
    /// By a product, once it has asked for all of its own weights.
    pub product_kb: u32,
    /// By decode attention, in place of the product before it.
    pub attention_kb: u32,
}

impl Default for KernelOptions {
    /// For kernels that have nothing to do with a model.
    fn default() -> Self {
        Self {
            dtype: DType::Bf16,
            head_dim: 128,
            group: 1,
            programmatic: false,
            prefetch: true,
            ahead: Ahead::default(),
        }
    }
}

/// The kernels of one GPU, all of them compiled to say when they ran, or none.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    kernels: &'a Kernels,
    stamped: bool,
}

impl Source<'_> {
    /// The kernel of this name, as [`Kernels::get`] gives it.
    pub fn get(&self, name: &str) -> Result<Function> {
        self.get_with(name, &[])
    }

    /// The kernel of this name with these constants, as [`Kernels::get_with`] gives it.
    pub fn get_with(&self, name: &str, constants: &[(&str, u32)]) -> Result<Function> {
        let stamped = self.stamped.then_some(("STAMPED", 1));
        let constants: Vec<_> = constants.iter().copied().chain(stamped).collect();
        self.kernels.get_with(name, &constants)
    }

    /// The options that the kernels are compiled with.
    pub fn options(&self) -> &KernelOptions {
        &self.kernels.options
    }
}

/// What getting kernels ready took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compiled {
    /// How many units were compiled now.
    pub compiled: u32,
    /// How many units lay on disk already.
    pub cached: u32,
    /// Time for both, loading onto the GPU included.
    pub time: Duration,
}

/// The kernels of one GPU. Each unit is compiled and loaded at its first use.
pub struct Kernels {
    gpu: Gpu,
    options: KernelOptions,
    nvrtc: &'static Nvrtc,
    cache: Option<Cache>,
    ready: Mutex<Ready>,
}

#[derive(Default)]
struct Ready {
    /// All kernels of each unit that was compiled, by its name and constants.
    units: HashMap<(&'static str, Defines), Vec<Function>>,
    compiled: Compiled,
}

impl Kernels {
    /// Kernels for this GPU; loads NVRTC, compiles nothing yet.
    ///
    /// # Errors
    /// Input errors: no NVRTC (with what was tried and what to install), or a head size that
    /// no kernel is for.
    pub fn new(gpu: &Gpu, options: &KernelOptions) -> Result<Self> {
        let &KernelOptions { head_dim, group, .. } = options;
        if head_dim == 0 || head_dim % 8 != 0 || head_dim > 256 || group == 0 {
            return Err(Error::input_help(
                format!(
                    "the cuda backend has no kernels for heads of {head_dim} numbers in groups of {group}"
                ),
                "heads of a multiple of 8 numbers, at most 256; --backend cpu takes any",
            ));
        }
        Ok(Self {
            gpu: gpu.clone(),
            options: *options,
            nvrtc: Nvrtc::get()?,
            cache: Cache::of_user("kernels"),
            ready: Mutex::default(),
        })
    }

    /// The kernel of this name, compiled or taken from disk at its first use. Fails for a name that no
    /// unit has; where the source does not compile, with NVRTC's text, which has file, line and column;
    /// and where the driver refuses the cubin.
    pub fn get(&self, name: &str) -> Result<Function> {
        self.get_with(name, &[])
    }

    /// The kernel of this name, compiled with these constants besides the options'. Each set of
    /// constants is a unit of its own. Fails where [`Self::get`] does.
    pub fn get_with(&self, name: &str, constants: &[(&str, u32)]) -> Result<Function> {
        let unit = sources::unit_of(name)?;
        let sm = self.gpu.info().sm;
        let defines = compile::defines(unit, &self.options, constants, sm);
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let Ready { units, compiled } = &mut *ready;
        let functions = match units.entry((unit.name, defines)) {
            Entry::Occupied(functions) => functions.into_mut(),
            Entry::Vacant(place) => {
                let begin = Instant::now();
                let options = options_for(&place.key().1, sm);
                let key = cache::key(unit, &options, self.nvrtc.version());
                let found = self.cache.as_ref().and_then(|cache| cache.load(&key));
                // a file that is whole but that the driver does not take is made anew
                let loaded = found.and_then(|bytes| self.gpu.load(&bytes).ok());
                let module = match loaded {
                    Some(module) => {
                        compiled.cached += 1;
                        module
                    }
                    None => {
                        let bytes = cubin(self.nvrtc, unit, &options)?.bytes;
                        let module = self.gpu.load(&bytes).map_err(|error| self.refused(&error))?;
                        if let Some(cache) = &self.cache {
                            cache.store(&key, &bytes);
                        }
                        compiled.compiled += 1;
                        module
                    }
                };
                compiled.time += begin.elapsed();
                let functions = unit.kernels.iter().map(|kernel| module.function(kernel));
                place.insert(functions.collect::<Result<_>>()?)
            }
        };
        let found = functions.iter().find(|function| function.name() == name).cloned();
        found.ok_or_else(|| Error::failed(format!("{} has no kernel '{name}'", unit.name)))
    }

    /// Why the driver takes no machine code of this compiler, where that is likely to be it: one of a later major version.
    fn refused(&self, error: &Error) -> Error {
        let driver = self.gpu.info().driver_api;
        let (major, _) = self.nvrtc.version();
        if major <= driver / 1000 {
            return Error::failed(error.to_string());
        }
        Error::input_help(
            format!(
                "{error}: the compiler is NVRTC {}, and the driver is for CUDA {}",
                self.compiler(),
                version_text(driver)
            ),
            format!(
                "an NVRTC of the driver's major version (pip install nvidia-cuda-nvrtc-cu{}; LADDERSCOPE_NVRTC names its \
                 file), or a newer driver",
                driver / 1000
            ),
        )
    }

    /// Kernels that compute and no more, or that say when they ran too: those take the address of their
    /// two times as one argument more.
    pub fn of(&self, stamped: bool) -> Source<'_> {
        Source { kernels: self, stamped }
    }

    /// What getting the kernels ready took so far.
    pub fn compiled(&self) -> Compiled {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).compiled
    }

    /// The options that the kernels are compiled with.
    pub fn options(&self) -> &KernelOptions {
        &self.options
    }

    /// The version of the compiler, major and minor: `13.0`.
    pub fn compiler(&self) -> String {
        let (major, minor) = self.nvrtc.version();
        format!("{major}.{minor}")
    }
}
