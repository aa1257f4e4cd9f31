//! GPUs: properties, primary context, and the resources created in it.
//!
//! Green contexts are a partition of a GPU's SMs between compute and communication streams. Requires a
//! driver for CUDA 12.5 or later.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};

use super::api::{self, DriverFunctions, api, check, code};
use super::functions::functions;
use super::libraries::{Library, open};
use super::stream::{Priority, Stream};
use base::error::{Error, Result};

/// Static properties of a GPU, available without a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    pub index: usize,
    /// Product name: `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Compute capability: (9, 0).
    pub sm: (u32, u32),
    /// Streaming multiprocessors (SMs).
    pub multiprocessors: u32,
    pub memory_bytes: u64,
    pub l2_bytes: u64,
    pub shared_per_block: u32,
    /// CUDA version of the driver: 13000 is 13.0.
    pub driver_api: u32,
    /// UUID of the chip, as printed by nvidia-smi: `GPU-xxxxxxxx-…`.
    pub uuid: String,
    /// PCI address (domain, bus, device, function): `0000:1b:00.0`.
    pub pci: String,
    /// Maximum SM clock in kHz; 0 if the driver does not report it.
    pub clock_khz: u32,
}

/// GPU with its primary context, retained until the last clone and every resource in it are dropped.
#[derive(Clone)]
pub struct Gpu {
    inner: Arc<Inner>,
}

static ANY_ABANDONED: AtomicBool = AtomicBool::new(false);

/// True if work hangs on any GPU of this process; a normal exit would block in the driver.
pub fn any_abandoned() -> bool {
    ANY_ABANDONED.load(Ordering::Relaxed)
}

struct Inner {
    api: &'static DriverFunctions,
    device: sys::CUdevice,
    context: sys::CUcontext,
    info: GpuInfo,
    /// Set when work hangs: freeing would block forever.
    abandoned: AtomicBool,
}

// SAFETY: the driver's functions may be called from any thread; handles are plain addresses.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.abandoned.load(Ordering::Relaxed) {
            // SAFETY: retained by `Gpu::open`, released once. An error cannot be handled here.
            unsafe { (self.api.cuDevicePrimaryCtxRelease_v2)(self.device) };
        }
    }
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Gpu").field(&self.inner.info.index).finish()
    }
}

impl Gpu {
    /// Number of visible GPUs; none is an error with advice.
    ///
    /// # Errors
    ///
    /// Returns an input error with advice if the driver is missing, a stub or too old, or if no GPU is
    /// visible.
    pub fn count() -> Result<usize> {
        let api = api()?;
        let mut count = 0;
        // SAFETY: writes one int to a valid address.
        let code = unsafe { (api.cuDeviceGetCount)(&mut count) };
        if code != 0 {
            return Err(Error::input(api::refusal(api, code)));
        }
        match usize::try_from(count) {
            Ok(count) if count > 0 => Ok(count),
            _ => Err(Error::input(api::refusal(api, code::NO_DEVICE))),
        }
    }

    /// Properties of all visible GPUs by ordinal, without creating contexts. Returns an error like
    /// [`Gpu::count`], or if the driver fails to describe one.
    pub fn list() -> Result<Vec<GpuInfo>> {
        let count = Self::count()?;
        let api = api()?;
        (0..count).map(|index| describe(api, index).map(|(_, info)| info)).collect()
    }

    /// Opens a GPU by ordinal and makes it current on this thread.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Gpu::count`], an input error for an invalid ordinal, and a failure if
    /// another process uses the GPU exclusively or it lacks memory for a context.
    pub fn open(index: usize) -> Result<Self> {
        let count = Self::count()?;
        if index >= count {
            return Err(Error::input(format!(
                "there is no GPU {index}: this process sees {count} (numbers from 0); \
                 CUDA_VISIBLE_DEVICES may hide others"
            )));
        }
        let api = api()?;
        let (device, info) = describe(api, index)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: the device comes from the driver; writes one handle to a valid address.
        let code = unsafe { (api.cuDevicePrimaryCtxRetain)(&mut context, device) };
        check(api, code, || format!("opening GPU {index} ({})", info.name))?;
        let abandoned = AtomicBool::new(false);
        let gpu = Self { inner: Arc::new(Inner { api, device, context, info, abandoned }) };
        gpu.bind()?;
        Ok(gpu)
    }

    /// Makes the GPU current on this thread. Methods here do so themselves; call it before other
    /// libraries (NCCL). Returns an error if an earlier failure destroyed the context.
    pub fn bind(&self) -> Result<()> {
        // SAFETY: the context is held by `self`.
        let code = unsafe { (self.inner.api.cuCtxSetCurrent)(self.inner.context) };
        self.check(code, || "making it current".into())
    }

    pub fn info(&self) -> &GpuInfo {
        &self.inner.info
    }

    /// Free and total memory in bytes, like `torch.cuda.mem_get_info`; memory of other processes is not
    /// free.
    pub fn memory(&self) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two numbers to valid addresses.
        self.call("asking for its memory", |api| unsafe {
            (api.cuMemGetInfo_v2)(&mut free, &mut total)
        })?;
        Ok((free as u64, total as u64))
    }

    /// Waits without timeout for all work of this process on the GPU, on every stream. Returns an error
    /// if any of that work failed; this process cannot use the GPU afterwards.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: its context is current.
        self.call("waiting for its work", |api| unsafe { (api.cuCtxSynchronize)() })
    }

    /// Enables P2P access from kernels on this GPU to the other's memory. Returns an error with advice
    /// if the GPUs have no P2P path.
    pub fn reach(&self, other: &Self) -> Result<()> {
        self.bind()?;
        // SAFETY: its context is current, and the other's is held by `other`.
        let answer = unsafe { (self.inner.api.cuCtxEnablePeerAccess)(other.inner.context, 0) };
        let to = other.inner.info.index;
        match answer {
            code::PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            code::PEER_ACCESS_UNSUPPORTED => Err(Error::failed(format!(
                "GPU {} does not reach the memory of GPU {to}: nvidia-smi topo -p2p r shows which GPUs reach each \
                 other, and --collective nccl needs no such way",
                self.inner.info.index
            ))),
            answer => self.check(answer, || format!("reaching the memory of GPU {to}")),
        }
    }

    pub(super) fn device(&self) -> sys::CUdevice {
        self.inner.device
    }

    pub(super) fn api(&self) -> &'static DriverFunctions {
        self.inner.api
    }

    /// Converts a driver error code to a result that names this GPU.
    pub(super) fn check(&self, code: u32, what: impl FnOnce() -> String) -> Result<()> {
        check(self.inner.api, code, || format!("GPU {}: {}", self.inner.info.index, what()))
    }

    /// Makes the GPU current and calls the driver; an error names this GPU and `what`.
    pub(super) fn call(
        &self,
        what: &str,
        call: impl FnOnce(&'static DriverFunctions) -> u32,
    ) -> Result<()> {
        self.bind()?;
        self.check(call(self.inner.api), || what.to_owned())
    }

    /// Marks the GPU as hung: this process frees nothing on it any more, because freeing would block.
    pub fn abandon(&self) {
        self.inner.abandoned.store(true, Ordering::Relaxed);
        ANY_ABANDONED.store(true, Ordering::Relaxed);
    }

    /// True if work on the GPU hangs, so that nothing may wait for it.
    pub fn is_abandoned(&self) -> bool {
        self.inner.abandoned.load(Ordering::Relaxed)
    }

    /// Runs `free` in the GPU's context, after captures; does nothing if the GPU hangs. Errors are
    /// ignored, because drop cannot handle them.
    pub(super) fn free(&self, free: impl FnOnce(&'static DriverFunctions) + 'static) {
        let gpu = self.clone();
        super::graph::free_later(move || {
            if !gpu.is_abandoned() && gpu.bind().is_ok() {
                free(gpu.inner.api);
            }
        });
    }

    /// Like [`Gpu::free`], for handles that may be destroyed during a capture.
    pub(super) fn destroy(&self, destroy: impl FnOnce(&'static DriverFunctions)) {
        if !self.is_abandoned() && self.bind().is_ok() {
            destroy(self.inner.api);
        }
    }
}

/// Device handle and properties of an ordinal.
fn describe(api: &'static DriverFunctions, index: usize) -> Result<(sys::CUdevice, GpuInfo)> {
    let what = || format!("asking for GPU {index}");
    let device = handle(api, index, what)?;
    let mut name: [c_char; 256] = [0; 256];
    // SAFETY: here and below: writes to valid addresses of the given sizes; the last byte stays zero.
    check(api, unsafe { (api.cuDeviceGetName)(name.as_mut_ptr(), 255, device) }, what)?;
    let mut pci: [c_char; 32] = [0; 32];
    // SAFETY: as above.
    check(api, unsafe { (api.cuDeviceGetPCIBusId)(pci.as_mut_ptr(), 31, device) }, what)?;
    let mut memory_bytes = 0;
    // SAFETY: as above.
    check(api, unsafe { (api.cuDeviceTotalMem_v2)(&mut memory_bytes, device) }, what)?;
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: as above.
    check(api, unsafe { (api.cuDeviceGetUuid_v2)(&mut uuid, device) }, what)?;
    let get = |which| attribute(api, device, which).map(|value| u32::try_from(value).unwrap_or(0));
    let info = GpuInfo {
        index,
        name: text(&name),
        sm: (
            get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        multiprocessors: get(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        memory_bytes: memory_bytes as u64,
        l2_bytes: get(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
        shared_per_block: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        driver_api: api::version().unwrap_or(0),
        uuid: uuid_text(&uuid.bytes.map(|byte| byte as u8)),
        pci: text(&pci),
        clock_khz: get(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE).unwrap_or(0),
    };
    Ok((device, info))
}

/// Device handle of an ordinal.
fn handle(
    api: &'static DriverFunctions,
    index: usize,
    what: impl FnOnce() -> String,
) -> Result<sys::CUdevice> {
    let mut device = 0;
    // SAFETY: writes one int to a valid address.
    let code = unsafe { (api.cuDeviceGet)(&mut device, c_int::try_from(index).unwrap_or(c_int::MAX)) };
    check(api, code, what).map(|()| device)
}

fn attribute(
    api: &'static DriverFunctions,
    device: sys::CUdevice,
    attribute: Attribute,
) -> Result<c_int> {
    let mut value = 0;
    // SAFETY: the device comes from the driver; writes one int to a valid address.
    let code = unsafe { (api.cuDeviceGetAttribute)(&mut value, attribute as u32, device) };
    check(api, code, || format!("asking for {attribute:?}"))?;
    Ok(value)
}

/// P2P capability between two GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct Peer {
    /// True if the first GPU can access the second's memory.
    pub access: bool,
    /// NVIDIA's rank of the link; lower is better. Null if the driver does not report it.
    pub performance_rank: Option<i32>,
    /// True if atomics on the peer's memory are native (NVLink).
    pub native_atomics: Option<bool>,
}

impl Gpu {
    /// P2P capability from GPU `from` to GPU `to` (CUDA ordinals in this process). Returns an error for
    /// an invalid ordinal.
    pub fn peer(from: usize, to: usize) -> Result<Peer> {
        let api = api()?;
        let what = || format!("asking whether GPU {from} reaches GPU {to}");
        let (from, to) = (handle(api, from, what)?, handle(api, to, what)?);
        let mut can = 0;
        // SAFETY: here and below: writes one int to a valid address; both devices come from the driver.
        check(api, unsafe { (api.cuDeviceCanAccessPeer)(&mut can, from, to) }, what)?;
        let ask = |which: sys::CUdevice_P2PAttribute| {
            let mut value = 0;
            // SAFETY: as above.
            let code = unsafe { (api.cuDeviceGetP2PAttribute)(&mut value, which as u32, from, to) };
            (code == 0).then_some(value)
        };
        use sys::CUdevice_P2PAttribute as P2p;
        Ok(Peer {
            access: can != 0,
            performance_rank: ask(P2p::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK),
            native_atomics: ask(P2p::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED).map(|v| v != 0),
        })
    }
}

/// Converts a NUL-terminated C buffer to a string.
fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|&byte| byte as u8).collect();
    CStr::from_bytes_until_nul(&bytes).map_or(String::new(), |text| text.to_string_lossy().into_owned())
}

fn uuid_text(bytes: &[u8; 16]) -> String {
    let hex = base::checksum::hex(bytes);
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

functions! {
    /// Functions for SM partitioning; older drivers lack some of them.
    struct Functions;
    fn cuDeviceGetDevResource(device: sys::CUdevice, resource: *mut Resource, kind: c_uint) -> u32;
    fn cuDevSmResourceSplitByCount(
        result: *mut Resource, groups: *mut c_uint, input: *const Resource, remaining: *mut Resource,
        flags: c_uint, least: c_uint,
    ) -> u32;
    fn cuDevResourceGenerateDesc(description: *mut *mut c_void, resources: *mut Resource, count: c_uint) -> u32;
    fn cuGreenCtxCreate(
        context: *mut *mut c_void, description: *mut c_void, device: sys::CUdevice, flags: c_uint,
    ) -> u32;
    fn cuGreenCtxDestroy(context: *mut c_void) -> u32;
    fn cuGreenCtxStreamCreate(
        stream: *mut sys::CUstream, context: *mut c_void, flags: c_uint, priority: c_int,
    ) -> u32;
}

/// `CUdevResource` for SMs, padded for fields added by later versions.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
struct Resource {
    kind: c_uint,
    padding: [u8; 92],
    multiprocessors: c_uint,
    later: [u8; 156],
}

const NO_RESOURCE: Resource =
    Resource { kind: 0, padding: [0; 92], multiprocessors: 0, later: [0; 156] };

/// `CU_DEV_RESOURCE_TYPE_SM`.
const MULTIPROCESSORS: c_uint = 1;
/// `CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING`: allows partitions smaller than a cluster needs.
const IGNORE_COSCHEDULING: c_uint = 1;
/// `CU_GREEN_CTX_DEFAULT_STREAM`, required to create a green context.
const DEFAULT_STREAM: c_uint = 1;

fn loaded() -> Result<&'static Functions> {
    static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
    let load = || {
        let library = open(Library::Driver).map_err(|error| error.to_string())?;
        Functions::load(library).map_err(|missing| {
            format!(
                "the driver cannot divide a GPU's multiprocessors (it lacks {}): that needs one for CUDA 12.5 or \
                 newer; --comm-sms 0 does without",
                missing.join(", ")
            )
        })
    };
    LOADED.get_or_init(load).as_ref().map_err(|why| Error::input(why.clone()))
}

/// GPU with its SMs partitioned between compute and communication.
#[derive(Debug)]
pub struct PartitionedGpu {
    compute: Arc<GreenContext>,
    comm: Arc<GreenContext>,
}

/// Green context on some of a GPU's SMs.
#[derive(Debug)]
struct GreenContext {
    gpu: Gpu,
    context: *mut c_void,
    multiprocessors: u32,
}

// SAFETY: the handle is a plain address, usable from any thread.
unsafe impl Send for GreenContext {}
// SAFETY: as above.
unsafe impl Sync for GreenContext {}

impl Drop for GreenContext {
    fn drop(&mut self) {
        let context = self.context;
        self.gpu.destroy(|_| {
            if let Ok(functions) = loaded() {
                // SAFETY: created by `Gpu::part` and destroyed once; its streams hold it, so none are
                // left.
                unsafe { (functions.cuGreenCtxDestroy)(context) };
            }
        });
    }
}

impl Gpu {
    /// Partitions the SMs: at least `for_comm` for communication, the rest for compute.
    ///
    /// # Errors
    ///
    /// Returns an input error if the driver does not support it or if one side would get no SMs.
    pub fn divide(&self, for_comm: u32) -> Result<PartitionedGpu> {
        let functions = loaded()?;
        self.bind()?;
        let all = self.info().multiprocessors;
        if for_comm == 0 || for_comm >= all {
            return Err(Error::input(format!(
                "{for_comm} of {all} multiprocessors for communication leave none for one or the other; choose \
                 --comm-sms 1 to {}",
                all - 1
            )));
        }
        let mut whole = NO_RESOURCE;
        // SAFETY: writes one resource; the struct is large enough for later versions.
        let code =
            unsafe { (functions.cuDeviceGetDevResource)(self.device(), &mut whole, MULTIPROCESSORS) };
        self.check(code, || "asking for its multiprocessors".into())?;
        let (mut comm, mut compute, mut groups) = (NO_RESOURCE, NO_RESOURCE, 1);
        // SAFETY: as above: one group is requested, and one remainder is written.
        let code = unsafe {
            (functions.cuDevSmResourceSplitByCount)(
                &mut comm,
                &mut groups,
                &whole,
                &mut compute,
                IGNORE_COSCHEDULING,
                for_comm,
            )
        };
        self.check(code, || format!("setting {for_comm} multiprocessors aside"))?;
        if groups == 0 || compute.multiprocessors == 0 {
            return Err(Error::input(format!(
                "the driver sets {} of {all} multiprocessors aside for {for_comm}, and leaves {}; choose a smaller \
                 --comm-sms",
                comm.multiprocessors, compute.multiprocessors
            )));
        }
        Ok(PartitionedGpu { compute: self.part(compute)?, comm: self.part(comm)? })
    }

    fn part(&self, mut resource: Resource) -> Result<Arc<GreenContext>> {
        let functions = loaded()?;
        let (mut description, mut context) = (null_mut(), null_mut());
        // SAFETY: one resource, obtained from the driver; writes one handle.
        let code = unsafe { (functions.cuDevResourceGenerateDesc)(&mut description, &mut resource, 1) };
        self.check(code, || "describing a part of its multiprocessors".into())?;
        // SAFETY: the description was just created; writes one handle.
        let code = unsafe {
            (functions.cuGreenCtxCreate)(&mut context, description, self.device(), DEFAULT_STREAM)
        };
        self.check(code, || "making a context of a part of its multiprocessors".into())?;
        let multiprocessors = resource.multiprocessors;
        Ok(Arc::new(GreenContext { gpu: self.clone(), context, multiprocessors }))
    }
}

impl PartitionedGpu {
    /// SMs for compute and for communication; the latter may exceed the request.
    pub fn multiprocessors(&self) -> (u32, u32) {
        (self.compute.multiprocessors, self.comm.multiprocessors)
    }

    /// Creates a stream on the communication SMs or on the compute SMs.
    pub fn stream(&self, for_comm: bool, priority: Priority) -> Result<Stream> {
        let part = if for_comm { &self.comm } else { &self.compute };
        let functions = loaded()?;
        let gpu = &part.gpu;
        let priority = gpu.priority(priority)?;
        let mut stream = null_mut();
        // SAFETY: the context is alive; writes one handle to a valid address.
        let code = unsafe {
            (functions.cuGreenCtxStreamCreate)(&mut stream, part.context, Stream::NON_BLOCKING, priority)
        };
        gpu.check(code, || "making a stream of a part of its multiprocessors".into())?;
        Ok(Stream::new(gpu.clone(), stream, Some(Arc::clone(part) as Arc<_>)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_nvidia_smi_writes_it() {
        let bytes = [0x0a, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff];
        assert_eq!(uuid_text(&bytes), "GPU-0a010203-0405-0607-0809-0a0b0c0d0eff");
    }

    #[test]
    fn counting_gpus_answers_or_says_what_to_do() {
        match Gpu::count() {
            Ok(count) => assert!(count > 0),
            Err(error) => assert!(error.to_string().contains("; "), "{error}"),
        }
    }
}
