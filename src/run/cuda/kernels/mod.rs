//! Kernels of `kernels/*.cu`, compiled for the current GPU at first use and cached on disk.
//!
//! | file | contents |
//! |---|---|
//! | `compile` | units and the constants each needs; unit to cubin: NVRTC, options, errors, cache keys |
//! | `geometry` | launch geometry of the kernels, and constants of the products of experts |
//! | `matvec` | constants and launch geometry of the matrix-vector product |

pub mod compile;
pub mod geometry;
pub mod matvec;

pub use compile::Nvrtc;
use compile::{Defines, cubin, options_for};

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::cache::FileCache;
use base::error::{Error, Result};
use machine::driver::{Arguments, Function, Gpu, Launch, Stream, version_text};
use plan::DType;

/// Compile options of the kernels, in addition to the GPU's architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelOptions {
    /// Format of activations, weights and KV caches.
    pub dtype: DType,
    /// Head size: a multiple of 8, up to 256.
    pub head_dim: u32,
    /// Query heads per KV head.
    pub group: u32,
    /// True if a kernel may start while its predecessor still runs (sm_90 and later; ignored on older GPUs).
    /// Launches must use the same setting.
    pub programmatic: bool,
    /// True if a product that starts early prefetches what it will read next.
    pub prefetch: bool,
    pub ahead: WeightPrefetch,
}

/// L2 prefetch of the next product's weights, in KB per SM; 0 disables it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct WeightPrefetch {
    /// Prefetch by a product, after it has requested all its own weights.
    pub product_kb: u32,
    /// Prefetch by decode attention, instead of by the product before it.
    pub attention_kb: u32,
}

impl Default for KernelOptions {
    /// Options for kernels that do not depend on a model.
    fn default() -> Self {
        Self {
            dtype: DType::Bf16,
            head_dim: 128,
            group: 1,
            programmatic: false,
            prefetch: true,
            ahead: WeightPrefetch::default(),
        }
    }
}

/// Kernels of one GPU, either all with stamps or all without.
#[derive(Clone, Copy)]
pub struct KernelSource<'a> {
    kernels: &'a GpuKernels,
    is_stamped: bool,
}

impl KernelSource<'_> {
    /// The same kernels without stamps.
    pub fn unstamped(self) -> Self {
        Self { is_stamped: false, ..self }
    }

    pub fn get(&self, name: &str) -> Result<Function> {
        self.get_with(name, &[])
    }

    /// Same as [`GpuKernels::get_with`], plus the `STAMPED` constant if needed.
    pub fn get_with(&self, name: &str, constants: &[(&str, u32)]) -> Result<Function> {
        let stamped = self.is_stamped.then_some(("STAMPED", 1));
        let constants: Vec<_> = constants.iter().copied().chain(stamped).collect();
        self.kernels.get_with(name, &constants)
    }

    /// Launch of a kernel that needs no additional constants.
    pub fn call(&self, name: &str, launch: Launch, arguments: Arguments) -> Result<KernelCall> {
        Ok(KernelCall { function: self.get(name)?, launch, arguments })
    }

    pub fn options(&self) -> &KernelOptions {
        &self.kernels.options
    }
}

/// Launch of a kernel with its arguments.
#[derive(Debug)]
pub struct KernelCall {
    pub function: Function,
    pub launch: Launch,
    pub arguments: Arguments,
}

impl KernelCall {
    pub fn enqueue(&mut self, stream: &Stream) -> Result<()> {
        stream.launch(&self.function, &self.launch, &mut self.arguments)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compiled {
    pub compiled: u32,
    pub cached: u32,
    /// Total time, including loading onto the GPU.
    pub time: Duration,
}

/// Kernels of one GPU. Each unit is compiled and loaded at first use.
pub struct GpuKernels {
    gpu: Gpu,
    options: KernelOptions,
    nvrtc: &'static Nvrtc,
    cache: Option<FileCache>,
    ready: Mutex<LoadedUnits>,
}

#[derive(Default)]
struct LoadedUnits {
    /// All kernels of each compiled unit, by unit name and constants.
    units: HashMap<(&'static str, Defines), Vec<Function>>,
    compiled: Compiled,
}

impl GpuKernels {
    /// Loads NVRTC; compiles nothing yet.
    ///
    /// # Errors
    ///
    /// Returns an input error if NVRTC is missing (with the paths tried and how to install it) or no kernel
    /// supports the head size.
    pub fn new(gpu: &Gpu, options: &KernelOptions) -> Result<Self> {
        let &KernelOptions { head_dim, group, .. } = options;
        if head_dim == 0 || head_dim % 8 != 0 || head_dim > 256 || group == 0 {
            return Err(Error::input_help(
                format!(
                    "the cuda backend does not support head_dim {head_dim} with {group} query heads per KV head"
                ),
                "head_dim must be a multiple of 8, at most 256; --backend cpu supports any",
            ));
        }
        Ok(Self {
            gpu: gpu.clone(),
            options: *options,
            nvrtc: Nvrtc::get()?,
            cache: FileCache::of_user("kernels"),
            ready: Mutex::default(),
        })
    }

    /// Returns a kernel by name, compiling or loading its unit at first use. Returns an error if no unit has
    /// the kernel, the source does not compile (with NVRTC's log: file, line and column), or the driver
    /// rejects the cubin.
    pub fn get(&self, name: &str) -> Result<Function> {
        self.get_with(name, &[])
    }

    /// Returns a kernel compiled with additional constants. Each set of constants is a separate unit. Fails
    /// like [`Self::get`].
    pub fn get_with(&self, name: &str, constants: &[(&str, u32)]) -> Result<Function> {
        let unit = compile::unit_of(name)?;
        let sm = self.gpu.info().sm;
        let defines = compile::defines(unit, &self.options, constants, sm);
        // held while compiling: another thread that needs the same unit would compile it, too
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let LoadedUnits { units, compiled } = &mut *ready;
        let functions = match units.entry((unit.name, defines)) {
            Entry::Occupied(functions) => functions.into_mut(),
            Entry::Vacant(place) => {
                let begin = Instant::now();
                let options = options_for(&place.key().1, sm);
                let key = compile::cache_key(unit, &options, self.nvrtc.version());
                let found = self.cache.as_ref().and_then(|cache| cache.load(&key));
                // recompile an intact file that the driver rejects
                let loaded = found.and_then(|bytes| self.gpu.load(&bytes).ok());
                let module = match loaded {
                    Some(module) => {
                        compiled.cached += 1;
                        module
                    }
                    None => {
                        let bytes = cubin(self.nvrtc, unit, &options)?.bytes;
                        let module =
                            self.gpu.load(&bytes).map_err(|error| self.explain_rejection(&error))?;
                        if let Some(cache) = &self.cache {
                            cache.store(&key, &bytes);
                        }
                        compiled.compiled += 1;
                        module
                    }
                };
                compiled.time += begin.elapsed();
                let functions = unit.kernels().map(|kernel| module.function(kernel));
                place.insert(functions.collect::<Result<_>>()?)
            }
        };
        let found = functions.iter().find(|function| function.name() == name).cloned();
        found.ok_or_else(|| Error::failed(format!("{} has no kernel '{name}'", unit.name)))
    }

    /// Explains a rejected cubin: the likely cause is a compiler with a newer major version than the driver.
    fn explain_rejection(&self, error: &Error) -> Error {
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

    pub fn plain(&self) -> KernelSource<'_> {
        KernelSource { kernels: self, is_stamped: false }
    }

    /// Kernels that write time stamps; each takes the address of its two times as an additional last argument.
    pub fn stamped(&self) -> KernelSource<'_> {
        KernelSource { kernels: self, is_stamped: true }
    }

    pub fn compiled(&self) -> Compiled {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).compiled
    }

    pub fn options(&self) -> &KernelOptions {
        &self.options
    }

    /// Compiler version, e.g. `13.0`.
    pub fn compiler(&self) -> String {
        compile::version(self.nvrtc)
    }
}
