//! The kernels of `kernels/*.cu`: compiled for the GPU at hand when they are first asked for, kept on disk.
//!
//! | file | what it is for |
//! |---|---|
//! | `sources` | the units and what each needs to be told |
//! | `nvrtc` | NVIDIA's compiler, loaded at run time |
//! | `compile` | from a unit to a cubin: options, errors |
//! | `cache` | cubins on disk |
//! | `geometry` | how many blocks and threads each kernel is launched with |
//! | `attention`, `matvec` | the same for those where it decides their speed |

pub mod attention;
mod cache;
mod compile;
pub mod geometry;
pub mod matvec;
mod nvrtc;
mod sources;

#[cfg(test)]
mod checks;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use nvrtc::Nvrtc;

use self::cache::Cache;
use self::compile::{Defines, cubin, options_for};
use super::driver::{Function, Gpu};
use crate::error::{Error, Result};
use crate::model::DType;

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
}

impl Default for KernelOptions {
    /// For kernels that have nothing to do with a model.
    fn default() -> Self {
        Self { dtype: DType::Bf16, head_dim: 128, group: 1, programmatic: false, prefetch: true }
    }
}

/// What getting kernels ready took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compiled {
    /// Units that were compiled.
    pub compiled: u32,
    /// Units that were on disk.
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
    /// Of each unit and its constants all kernels.
    units: HashMap<(&'static str, Defines), Vec<Function>>,
    compiled: Compiled,
}

impl std::fmt::Debug for Kernels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernels").field("gpu", &self.gpu).field("options", &self.options).finish()
    }
}

impl Kernels {
    /// Kernels for this GPU; loads NVRTC, compiles nothing yet.
    ///
    /// # Errors
    /// Input errors: no NVRTC (with what was tried and what to install), or a head size that no kernel is
    /// for.
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
            cache: Cache::of_user(),
            ready: Mutex::default(),
        })
    }

    /// The kernel of this name.
    ///
    /// # Errors
    /// A failure: a name that no unit has; what NVRTC says where it does not compile, with file, line and
    /// column; a cubin that the driver refuses.
    pub fn get(&self, name: &str) -> Result<Function> {
        self.get_with(name, &[])
    }

    /// The kernel of this name, compiled with these constants besides the options'. Each set of constants is
    /// a unit of its own.
    ///
    /// # Errors
    /// As [`Self::get`].
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
                        let module = self.gpu.load(&bytes)?;
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

    /// What getting the kernels ready took so far.
    pub fn compiled(&self) -> Compiled {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).compiled
    }

    /// What they are compiled for.
    pub fn options(&self) -> &KernelOptions {
        &self.options
    }

    /// The compiler: `13.0`.
    pub fn compiler(&self) -> String {
        let (major, minor) = self.nvrtc.version();
        format!("{major}.{minor}")
    }
}
