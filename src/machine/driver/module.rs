//! Compiled kernels: modules, functions and launch parameters.

use std::ffi::{CString, c_int, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUfunction_attribute as Attribute};

use super::api::code;
use super::gpu::Gpu;
use super::memory::DevicePtr;
use base::error::{Error, Result};

/// Loaded kernels, unloaded when the last clone and function are dropped.
#[derive(Clone)]
pub struct Module {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    gpu: Gpu,
    module: sys::CUmodule,
}

// SAFETY: handles are plain addresses, usable from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        let module = self.module as usize;
        // SAFETY: loaded by `Gpu::load`, unloaded once, while its context is retained.
        self.gpu.free(move |api| unsafe {
            (api.cuModuleUnload)(module as sys::CUmodule);
        });
    }
}

impl Gpu {
    /// Loads a cubin. Returns an error if it targets another architecture or does not fit into GPU
    /// memory.
    pub fn load(&self, cubin: &[u8]) -> Result<Module> {
        self.bind()?;
        let mut module = std::ptr::null_mut();
        // The driver expects PTX text to end with NUL; a cubin knows its size.
        let image = [cubin, &[0]].concat();
        // SAFETY: the image is complete and NUL-terminated; writes one handle.
        let code = unsafe { (self.api().cuModuleLoadData)(&mut module, image.as_ptr().cast()) };
        self.check(code, || {
            let (major, minor) = self.info().sm;
            format!("loading {} bytes of compiled kernels for sm_{major}{minor}", cubin.len())
        })?;
        Ok(Module { inner: Arc::new(Inner { gpu: self.clone(), module }) })
    }
}

impl Module {
    /// Looks up a kernel by its `extern "C"` name. Returns an error if the module lacks it.
    pub fn function(&self, name: &str) -> Result<Function> {
        let gpu = &self.inner.gpu;
        gpu.bind()?;
        let symbol = CString::new(name)
            .map_err(|_| Error::failed(format!("a kernel's name has a zero byte: {name:?}")))?;
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is held; the name is NUL-terminated; writes one handle.
        let answer = unsafe {
            (gpu.api().cuModuleGetFunction)(&mut function, self.inner.module, symbol.as_ptr())
        };
        if answer == code::NOT_FOUND {
            return Err(Error::failed(format!("the compiled module has no kernel '{name}'")));
        }
        gpu.check(answer, || format!("looking up kernel '{name}'"))?;
        let function = Function { module: Arc::clone(&self.inner), function, name: name.into() };
        function.share_most()?;
        Ok(function)
    }
}

/// Kernel of a loaded module; keeps the module loaded.
#[derive(Clone, Debug)]
pub struct Function {
    module: Arc<Inner>,
    function: sys::CUfunction,
    name: Arc<str>,
}

// SAFETY: handles are plain addresses, usable from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn gpu(&self) -> &Gpu {
        &self.module.gpu
    }

    /// Allows this much dynamic shared memory per block, required above 48 KB. Returns an error above
    /// [`super::GpuInfo::shared_per_block`].
    pub fn set_shared(&self, bytes: u32) -> Result<()> {
        let value = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        self.set(Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, value, || {
            format!(
                "allowing {} {bytes} bytes of dynamic shared memory (a block has at most {})",
                self.name,
                self.gpu().info().shared_per_block
            )
        })
    }

    /// Requests the maximum shared-memory carveout. An SM changes the carveout only when idle, so
    /// kernels with different preferences could not overlap with each other or with collectives. NCCL
    /// requests the same.
    fn share_most(&self) -> Result<()> {
        let most = sys::CUshared_carveout::CU_SHAREDMEM_CARVEOUT_MAX_SHARED as c_int;
        self.set(Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, most, || {
            format!("preferring shared memory for {}", self.name)
        })
    }

    fn set(&self, which: Attribute, value: c_int, what: impl FnOnce() -> String) -> Result<()> {
        let gpu = self.gpu();
        gpu.bind()?;
        // SAFETY: the function's module is held.
        let code = unsafe { (gpu.api().cuFuncSetAttribute)(self.function, which as u32, value) };
        gpu.check(code, what)
    }

    /// Occupancy: resident blocks per SM with `block` threads and `shared` bytes of dynamic shared
    /// memory.
    pub fn blocks_per_multiprocessor(&self, block: u32, shared: u32) -> Result<u32> {
        let gpu = self.gpu();
        gpu.bind()?;
        let mut blocks = 0;
        // SAFETY: the function's module is held; writes one int to a valid address.
        let code = unsafe {
            (gpu.api().cuOccupancyMaxActiveBlocksPerMultiprocessor)(
                &mut blocks,
                self.function,
                c_int::try_from(block).unwrap_or(c_int::MAX),
                shared as usize,
            )
        };
        gpu.check(code, || format!("asking how many blocks of {} fit", self.name))?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    /// Driver handle, valid as long as `self`.
    pub fn raw(&self) -> sys::CUfunction {
        self.function
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    pub grid: [u32; 3],
    /// Threads per block: x, y, z.
    pub block: [u32; 3],
    pub shared_bytes: u32,
    /// True if the kernel may start before its predecessor in the stream ends and synchronizes itself
    /// (programmatic dependent launch; compute capability 9.0 or higher).
    pub programmatic: bool,
}

impl Launch {
    /// Grid of one-dimensional blocks without shared memory.
    pub fn grid(grid: [u32; 3], threads: u32) -> Self {
        Self { grid, block: [threads, 1, 1], shared_bytes: 0, programmatic: false }
    }

    pub fn flat(blocks: u32, threads: u32) -> Self {
        Self::grid([blocks, 1, 1], threads)
    }
}

/// Value that a kernel takes as an argument.
pub trait Argument {
    /// Bytes of the value from the start of a slot, as the driver reads them.
    fn slot(self) -> u64;
}

impl Argument for DevicePtr {
    fn slot(self) -> u64 {
        self.0
    }
}

impl Argument for u64 {
    fn slot(self) -> u64 {
        self
    }
}

impl Argument for u32 {
    fn slot(self) -> u64 {
        let mut slot = [0; 8];
        slot[..4].copy_from_slice(&self.to_ne_bytes());
        u64::from_ne_bytes(slot)
    }
}

impl Argument for f32 {
    fn slot(self) -> u64 {
        self.to_bits().slot()
    }
}

/// Kernel arguments in order: device pointers, `u32`, `u64` and `f32`, without conversions.
#[macro_export]
macro_rules! arguments {
    ($($value:expr),* $(,)?) => {{
        let mut arguments = $crate::driver::Arguments::default();
        $(arguments.push($value);)*
        arguments
    }};
}
pub use arguments;

/// Kernel arguments in order; the launch copies them.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    /// A slot is aligned for every type.
    slots: Vec<u64>,
    pointers: Vec<*mut c_void>,
}

// SAFETY: `pointers` is scratch space, refilled for each launch from an exclusive borrow.
unsafe impl Send for Arguments {}
// SAFETY: as above.
unsafe impl Sync for Arguments {}

impl Arguments {
    pub fn push(&mut self, value: impl Argument) -> &mut Self {
        self.slots.push(value.slot());
        self
    }

    /// Array of argument addresses for the driver, valid until `self` is changed or moved.
    pub(super) fn addresses(&mut self) -> *mut *mut c_void {
        self.pointers.clear();
        self.pointers
            .extend(self.slots.iter_mut().map(|slot| std::ptr::from_mut(slot).cast::<c_void>()));
        self.pointers.as_mut_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_lie_where_the_driver_looks_for_them() {
        let mut arguments = arguments![DevicePtr(0x1234_5678_9abc), 7u32, 1.5f32, u64::MAX];
        let addresses = arguments.addresses();
        // SAFETY: four addresses, each of a value of the type that was appended there.
        unsafe {
            assert_eq!(*(*addresses).cast::<u64>(), 0x1234_5678_9abc);
            assert_eq!(*(*addresses.add(1)).cast::<u32>(), 7);
            assert_eq!(*(*addresses.add(2)).cast::<f32>(), 1.5);
            assert_eq!(*(*addresses.add(3)).cast::<u64>(), u64::MAX);
        }
    }
}
