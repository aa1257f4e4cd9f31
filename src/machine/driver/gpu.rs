//! A GPU: its properties, its primary context, and what is made in it.

use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};

use super::answer::{self, check, code};
use super::api::{self, Api, api};
use base::error::{Error, Result};

/// What is known about a GPU without using it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// CUDA's number of it in this process.
    pub index: usize,
    /// The name that NVIDIA gave it: `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Compute capability: (9, 0).
    pub sm: (u32, u32),
    /// How many streaming multiprocessors (SMs) it has.
    pub multiprocessors: u32,
    /// Memory in all (bytes).
    pub memory_bytes: u64,
    /// The size of its level-2 cache (bytes).
    pub l2_bytes: u64,
    /// The most shared memory that a block can ask for (bytes).
    pub shared_per_block: u32,
    /// CUDA version of the driver: 13000 is 13.0.
    pub driver_api: u32,
    /// The identity that stays with the chip, as nvidia-smi prints it: `GPU-xxxxxxxx-…`.
    pub uuid: String,
    /// The PCI address of its slot: domain, bus, device, function, as `0000:1b:00.0`.
    pub pci: String,
    /// Highest SM clock (kHz); 0 where the driver does not tell.
    pub clock_khz: u32,
}

/// A GPU with its primary context, held until the last clone and everything made in it are gone.
#[derive(Clone)]
pub struct Gpu {
    inner: Arc<Inner>,
}

static ANY_ABANDONED: AtomicBool = AtomicBool::new(false);

/// Whether work hangs on any GPU of this process: an orderly exit would wait for it, in the driver.
pub fn any_abandoned() -> bool {
    ANY_ABANDONED.load(Ordering::Relaxed)
}

struct Inner {
    api: &'static Api,
    device: sys::CUdevice,
    context: sys::CUcontext,
    info: GpuInfo,
    /// Work hangs on it: freeing would wait for that work for ever.
    abandoned: AtomicBool,
}

// SAFETY: the driver's functions may be called from any thread; handles are plain addresses.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.abandoned.load(Ordering::Relaxed) {
            // SAFETY: retained when this was made, released once. An error cannot be dealt with here.
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
    /// How many GPUs this process sees; zero GPUs are an error that says what to check.
    ///
    /// # Errors
    ///
    /// An input error where there is no driver, a stub library, one too old, or no GPU that this process
    /// may see; each says what to do.
    pub fn count() -> Result<usize> {
        let api = api()?;
        let mut count = 0;
        // SAFETY: writes one int to a valid address.
        let code = unsafe { (api.cuDeviceGetCount)(&mut count) };
        if code != 0 {
            return Err(Error::input(answer::refusal(api, code)));
        }
        match usize::try_from(count) {
            Ok(count) if count > 0 => Ok(count),
            _ => Err(Error::input(answer::refusal(api, code::NO_DEVICE))),
        }
    }

    /// Properties of all GPUs that this process sees, by number, without making a context on any. Fails
    /// where [`Gpu::count`] does, and where the driver does not tell of one.
    pub fn list() -> Result<Vec<GpuInfo>> {
        let count = Self::count()?;
        let api = api()?;
        (0..count).map(|index| describe(api, index).map(|(_, info)| info)).collect()
    }

    /// Opens the GPU of this number (from 0) and makes it current on this thread.
    ///
    /// # Errors
    ///
    /// The errors of [`Gpu::count`], an input error for a number that there is not, and a failure where
    /// another process has the GPU for itself or it has no memory left for a context.
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

    /// Makes it the current GPU of this thread. What is made here does so by itself; needed before other
    /// libraries (NCCL) are called. Fails where an error of earlier work cost the process its context.
    pub fn bind(&self) -> Result<()> {
        // SAFETY: the context is held by `self`.
        let code = unsafe { (self.inner.api.cuCtxSetCurrent)(self.inner.context) };
        self.check(code, || "making it current".into())
    }

    /// What the driver told of the GPU when it was opened.
    pub fn info(&self) -> &GpuInfo {
        &self.inner.info
    }

    /// Memory of the GPU that is free and memory in all (bytes), as `torch.cuda.mem_get_info` has it:
    /// what other processes use is not free.
    pub fn memory(&self) -> Result<(u64, u64)> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two numbers to valid addresses.
        let code = unsafe { (self.inner.api.cuMemGetInfo_v2)(&mut free, &mut total) };
        self.check(code, || "asking for its memory".into())?;
        Ok((free as u64, total as u64))
    }

    /// Waits for all work of this process on the GPU, on whatever stream, without a limit. Fails where
    /// any of that work did; the GPU is unusable for this process from then on.
    pub fn synchronize(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: its context is current.
        let code = unsafe { (self.inner.api.cuCtxSynchronize)() };
        self.check(code, || "waiting for its work".into())
    }

    /// Lets kernels on this GPU read and write the other one's memory, from now on. A failure that says what to look at
    /// where there is no way between the two.
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

    /// The driver's handle of this GPU.
    pub(super) fn device(&self) -> sys::CUdevice {
        self.inner.device
    }

    /// The driver's functions, looked up once for the process.
    pub(super) fn api(&self) -> &'static Api {
        self.inner.api
    }

    /// Turns an answer into a result that names this GPU.
    pub(super) fn check(&self, code: u32, what: impl FnOnce() -> String) -> Result<()> {
        check(self.inner.api, code, || format!("GPU {}: {}", self.inner.info.index, what()))
    }

    /// From now on nothing of this GPU is freed by this process: its work hangs, and freeing would wait.
    pub fn abandon(&self) {
        self.inner.abandoned.store(true, Ordering::Relaxed);
        ANY_ABANDONED.store(true, Ordering::Relaxed);
    }

    /// Whether work on the GPU hangs, so that nothing may wait for it any more.
    pub fn is_abandoned(&self) -> bool {
        self.inner.abandoned.load(Ordering::Relaxed)
    }

    /// Frees with `free`, in its context and after captures; not at all on a GPU whose work hangs.
    /// What it answers cannot be dealt with and is dropped.
    pub(super) fn free(&self, free: impl FnOnce(&'static Api) + 'static) {
        let gpu = self.clone();
        super::capture::free(move || {
            if !gpu.is_abandoned() && gpu.bind().is_ok() {
                free(gpu.inner.api);
            }
        });
    }

    /// Frees like [`Gpu::free`] a handle that may be destroyed during a capture.
    pub(super) fn destroy(&self, destroy: impl FnOnce(&'static Api)) {
        if !self.is_abandoned() && self.bind().is_ok() {
            destroy(self.inner.api);
        }
    }
}

/// The device of this number, with its properties.
fn describe(api: &'static Api, index: usize) -> Result<(sys::CUdevice, GpuInfo)> {
    let ordinal = c_int::try_from(index).unwrap_or(c_int::MAX);
    let what = || format!("asking for GPU {index}");
    let mut device = 0;
    // SAFETY: here and below: writes to valid addresses of the sizes that are given.
    check(api, unsafe { (api.cuDeviceGet)(&mut device, ordinal) }, what)?;
    let mut name: [c_char; 256] = [0; 256];
    // SAFETY: as above; a byte less than there is, so that a zero remains.
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

fn attribute(api: &'static Api, device: sys::CUdevice, attribute: Attribute) -> Result<c_int> {
    let mut value = 0;
    // SAFETY: the device comes from the driver; writes one int to a valid address.
    let code = unsafe { (api.cuDeviceGetAttribute)(&mut value, attribute as u32, device) };
    check(api, code, || format!("asking for {attribute:?}"))?;
    Ok(value)
}

/// Which GPUs reach each other's memory, and how well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct Peer {
    /// Whether the one can read and write the other's memory.
    pub access: bool,
    /// NVIDIA's rank of the link; lower is better. `None` where the driver does not tell.
    pub performance_rank: Option<i32>,
    /// Whether atomics on the other's memory work natively (NVLink).
    pub native_atomics: Option<bool>,
}

impl Gpu {
    /// What GPU `from` can do with the memory of GPU `to` (CUDA's numbers in this process, from 0).
    /// Fails for a number that there is not.
    pub fn peer(from: usize, to: usize) -> Result<Peer> {
        let api = api()?;
        let what = || format!("asking whether GPU {from} reaches GPU {to}");
        let device = |index: usize| {
            let mut device = 0;
            // SAFETY: here and below: writes one int to a valid address.
            let code =
                unsafe { (api.cuDeviceGet)(&mut device, c_int::try_from(index).unwrap_or(c_int::MAX)) };
            check(api, code, what).map(|()| device)
        };
        let (from, to) = (device(from)?, device(to)?);
        let mut can = 0;
        // SAFETY: as above; both devices come from the driver.
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

/// A text that a C function has written into a buffer with a zero at its end.
fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|&byte| byte as u8).collect();
    CStr::from_bytes_until_nul(&bytes).map_or(String::new(), |text| text.to_string_lossy().into_owned())
}

fn uuid_text(bytes: &[u8; 16]) -> String {
    let hex = base::hash::hex(bytes);
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
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
