//! Function table of the CUDA driver, available once the driver is loaded, recent enough and
//! initialized.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys;

use super::functions::{functions, symbol};
use super::libraries::{self, Library};
use base::error::{Error, Result};

/// Oldest supported CUDA version of a driver: launch attributes for programmatic dependent launch and
/// lazy kernel loading are reliable from 12.0.
pub const OLDEST_DRIVER: u32 = 12_000;

functions! {
    /// Driver functions in use, all present in drivers for CUDA 12.0.
    pub(crate) struct DriverFunctions;
    fn cuGetErrorName(code: u32, text: *mut *const c_char) -> u32;
    fn cuGetErrorString(code: u32, text: *mut *const c_char) -> u32;
    fn cuInit(flags: c_uint) -> u32;
    fn cuDeviceGetCount(count: *mut c_int) -> u32;
    fn cuDeviceGet(device: *mut sys::CUdevice, ordinal: c_int) -> u32;
    fn cuDeviceGetName(name: *mut c_char, bytes: c_int, device: sys::CUdevice) -> u32;
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: u32, device: sys::CUdevice) -> u32;
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: sys::CUdevice) -> u32;
    fn cuDeviceGetUuid_v2(uuid: *mut sys::CUuuid, device: sys::CUdevice) -> u32;
    fn cuDeviceGetPCIBusId(name: *mut c_char, bytes: c_int, device: sys::CUdevice) -> u32;
    fn cuDeviceCanAccessPeer(can: *mut c_int, from: sys::CUdevice, to: sys::CUdevice) -> u32;
    fn cuDeviceGetP2PAttribute(
        value: *mut c_int, attribute: u32, from: sys::CUdevice, to: sys::CUdevice,
    ) -> u32;
    fn cuDevicePrimaryCtxRetain(context: *mut sys::CUcontext, device: sys::CUdevice) -> u32;
    fn cuDevicePrimaryCtxRelease_v2(device: sys::CUdevice) -> u32;
    fn cuCtxSetCurrent(context: sys::CUcontext) -> u32;
    fn cuCtxSynchronize() -> u32;
    fn cuCtxEnablePeerAccess(peer: sys::CUcontext, flags: c_uint) -> u32;
    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> u32;
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> u32;
    fn cuMemAlloc_v2(pointer: *mut sys::CUdeviceptr, bytes: usize) -> u32;
    fn cuMemFree_v2(pointer: sys::CUdeviceptr) -> u32;
    fn cuMemcpyHtoD_v2(to: sys::CUdeviceptr, from: *const c_void, bytes: usize) -> u32;
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: sys::CUdeviceptr, bytes: usize) -> u32;
    fn cuMemcpyHtoDAsync_v2(
        to: sys::CUdeviceptr, from: *const c_void, bytes: usize, stream: sys::CUstream,
    ) -> u32 as in sys;
    fn cuMemsetD8Async(to: sys::CUdeviceptr, byte: u8, bytes: usize, stream: sys::CUstream) -> u32 as in sys;
    fn cuModuleLoadData(module: *mut sys::CUmodule, image: *const c_void) -> u32;
    fn cuModuleUnload(module: sys::CUmodule) -> u32;
    fn cuModuleGetFunction(
        function: *mut sys::CUfunction, module: sys::CUmodule, name: *const c_char,
    ) -> u32 as in sys;
    fn cuFuncSetAttribute(function: sys::CUfunction, attribute: u32, value: c_int) -> u32;
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int, function: sys::CUfunction, threads: c_int, shared: usize,
    ) -> u32 as in sys;
    fn cuLaunchKernel(
        function: sys::CUfunction,
        grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared: c_uint, stream: sys::CUstream,
        arguments: *mut *mut c_void, extra: *mut *mut c_void,
    ) -> u32 as in sys;
    fn cuLaunchKernelEx(
        config: *const sys::CUlaunchConfig, function: sys::CUfunction,
        arguments: *mut *mut c_void, extra: *mut *mut c_void,
    ) -> u32 as in sys;
    fn cuStreamCreateWithPriority(stream: *mut sys::CUstream, flags: c_uint, priority: c_int) -> u32 as in sys;
    fn cuStreamDestroy_v2(stream: sys::CUstream) -> u32;
    fn cuStreamSynchronize(stream: sys::CUstream) -> u32;
    fn cuStreamQuery(stream: sys::CUstream) -> u32;
    fn cuStreamWaitEvent(stream: sys::CUstream, event: sys::CUevent, flags: c_uint) -> u32 as in sys;
    fn cuStreamBeginCapture_v2(stream: sys::CUstream, mode: u32) -> u32;
    fn cuStreamEndCapture(stream: sys::CUstream, graph: *mut sys::CUgraph) -> u32 as in sys;
    fn cuEventCreate(event: *mut sys::CUevent, flags: c_uint) -> u32;
    fn cuEventDestroy_v2(event: sys::CUevent) -> u32;
    fn cuEventRecord(event: sys::CUevent, stream: sys::CUstream) -> u32;
    fn cuEventRecordWithFlags(event: sys::CUevent, stream: sys::CUstream, flags: c_uint) -> u32 as in sys;
    fn cuEventQuery(event: sys::CUevent) -> u32;
    fn cuEventElapsedTime(milliseconds: *mut f32, start: sys::CUevent, end: sys::CUevent) -> u32;
    fn cuGraphGetNodes(graph: sys::CUgraph, nodes: *mut sys::CUgraphNode, count: *mut usize) -> u32 as in sys;
    fn cuGraphInstantiateWithFlags(
        exec: *mut sys::CUgraphExec, graph: sys::CUgraph, flags: c_ulonglong,
    ) -> u32 as in sys;
    fn cuGraphDestroy(graph: sys::CUgraph) -> u32;
    fn cuGraphExecDestroy(exec: sys::CUgraphExec) -> u32;
    fn cuGraphLaunch(exec: sys::CUgraphExec, stream: sys::CUstream) -> u32 as in sys;
    fn cuGraphUpload(exec: sys::CUgraphExec, stream: sys::CUstream) -> u32;
}

/// Loads and initializes the driver (`cuInit`) once per process. Returns an input error with advice if
/// the driver is missing, older than CUDA 12.0, or refuses.
pub(crate) fn api() -> Result<&'static DriverFunctions> {
    static API: OnceLock<Result<DriverFunctions, String>> = OnceLock::new();
    API.get_or_init(|| enter().map_err(|error| error.to_string()))
        .as_ref()
        .map_err(|message| Error::input(message.clone()))
}

fn enter() -> Result<DriverFunctions> {
    let library = libraries::open(Library::Driver)?;
    let version = version();
    let api =
        DriverFunctions::load(library).map_err(|missing| Error::input(too_old(version, &missing)))?;
    if version.is_some_and(|version| version < OLDEST_DRIVER) {
        return Err(Error::input(too_old(version, &[])));
    }
    // SAFETY: flags must be 0; there are no other preconditions.
    let code = unsafe { (api.cuInit)(0) };
    if code != 0 { Err(Error::input(refusal(&api, code))) } else { Ok(api) }
}

/// CUDA version supported by the driver (13010: 13.1); `None` without a driver. Needs no GPU and works
/// with drivers that are too old.
pub fn version() -> Option<u32> {
    let library = libraries::open(Library::Driver).ok()?;
    type GetVersion = unsafe extern "C" fn(*mut c_int) -> u32;
    // SAFETY: this is the symbol's type in cuda.h in all versions.
    let get = unsafe { symbol::<GetVersion>(library, "cuDriverGetVersion\0") }?;
    let mut version = 0;
    // SAFETY: writes one int to a valid address.
    let code = unsafe { get(&mut version) };
    (code == 0).then_some(())?;
    u32::try_from(version).ok().filter(|version| *version > 0)
}

/// Formats a driver's CUDA version: 13010 as `13.1`.
pub fn version_text(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn too_old(version: Option<u32>, missing: &[&str]) -> String {
    let version = version
        .map_or("of unknown version".into(), |version| format!("for CUDA {}", version_text(version)));
    let lacks = match missing {
        [] => String::new(),
        [one] => format!(" (it lacks {one})"),
        [one, rest @ ..] => format!(" (it lacks {one} and {} more functions)", rest.len()),
    };
    format!(
        "the NVIDIA driver is too old: it is {version}{lacks}; install a driver for CUDA {} or newer \
         (525.60 or newer)",
        version_text(OLDEST_DRIVER)
    )
}

/// `CUresult` codes (cuda.h) handled here. Plain integers, because newer drivers return codes unknown at
/// build time.
pub mod code {
    /// Not enough free GPU memory for an allocation, context or module (`CUDA_ERROR_OUT_OF_MEMORY`).
    pub const OUT_OF_MEMORY: u32 = 2;
    /// The loaded library is the link-time stub, not a driver.
    pub const STUB_LIBRARY: u32 = 34;
    /// The driver is too old for the call.
    pub const NEWER_DRIVER: u32 = 36;
    /// Another process uses the GPU exclusively.
    pub const DEVICE_UNAVAILABLE: u32 = 46;
    /// No GPU, or none visible to this process.
    pub const NO_DEVICE: u32 = 100;
    /// Index of a GPU that does not exist or is not visible to this process.
    pub const INVALID_DEVICE: u32 = 101;
    /// Cubin compiled for another architecture.
    pub const NO_BINARY_FOR_GPU: u32 = 209;
    pub const ECC_UNCORRECTABLE: u32 = 214;
    /// The GPUs have no P2P access to each other.
    pub const PEER_ACCESS_UNSUPPORTED: u32 = 217;
    /// Symbol missing in the module.
    pub const NOT_FOUND: u32 = 500;
    /// Work still in progress; not an error.
    pub const NOT_READY: u32 = 600;
    pub const ILLEGAL_ADDRESS: u32 = 700;
    /// The launch needs more registers, threads or shared memory than available.
    pub const LAUNCH_OUT_OF_RESOURCES: u32 = 701;
    pub const PEER_ACCESS_ALREADY_ENABLED: u32 = 704;
    /// Unspecified exception in a kernel.
    pub const LAUNCH_FAILED: u32 = 719;
    pub const NOT_PERMITTED: u32 = 800;
    /// NVSwitch is not initialized (fabric manager).
    pub const SYSTEM_NOT_READY: u32 = 802;
    /// User-space and kernel driver versions differ.
    pub const SYSTEM_DRIVER_MISMATCH: u32 = 803;
    /// Forward-compatibility library on an unsupported GPU.
    pub const COMPAT_NOT_SUPPORTED: u32 = 804;
    pub const CAPTURE_UNSUPPORTED: u32 = 900;
    /// The capture was invalidated by an earlier error.
    pub const CAPTURE_INVALIDATED: u32 = 901;
    /// A forked stream was not joined before the capture ended.
    pub const CAPTURE_UNJOINED: u32 = 904;
    /// A captured stream depends on uncaptured work.
    pub const CAPTURE_ISOLATION: u32 = 905;
    /// Unknown; often a driver that is not set up.
    pub const UNKNOWN: u32 = 999;
}

/// Converts a driver error code to a result; `what` describes the operation: `launching rms_norm on GPU
/// 0`.
pub(crate) fn check(api: &DriverFunctions, code: u32, what: impl FnOnce() -> String) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    Err(Error::failed(format!("{}: {}{}", what(), text(api, code), advice(code))))
}

/// Name and description of a code, such as `CUDA_ERROR_NO_DEVICE (100), no CUDA-capable device is
/// detected`.
pub(crate) fn text(api: &DriverFunctions, code: u32) -> String {
    // SAFETY: both functions write the address of a static text, or nothing.
    let ask = |function: unsafe extern "C" fn(u32, *mut *const c_char) -> u32| unsafe {
        let mut text = std::ptr::null();
        if function(code, &mut text) != 0 || text.is_null() {
            return None;
        }
        Some(CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    let name = ask(api.cuGetErrorName).unwrap_or_else(|| "error".into());
    match ask(api.cuGetErrorString) {
        Some(text) => format!("{name} ({code}), {text}"),
        None => format!("{name} ({code})"),
    }
}

/// Message for an unusable driver, with advice.
pub(crate) fn refusal(api: &DriverFunctions, code: u32) -> String {
    format!("the NVIDIA driver cannot be used: {}{}", text(api, code), advice(code))
}

/// Advice for a code, starting with `; `; empty if there is none.
fn advice(number: u32) -> &'static str {
    match number {
        code::OUT_OF_MEMORY => "; choose a smaller batch, context or model, or a larger TP",
        code::STUB_LIBRARY => {
            "; libcuda.so.1 is a toolkit's stub: take the toolkit's 'stubs' folder out of LD_LIBRARY_PATH"
        }
        code::NEWER_DRIVER => "; install a newer driver",
        code::DEVICE_UNAVAILABLE => {
            "; another process holds the GPU, or it is in exclusive or prohibited mode (nvidia-smi -c 0)"
        }
        code::NO_DEVICE => {
            "; check that nvidia-smi lists a GPU, that CUDA_VISIBLE_DEVICES does not hide it, and that \
             this user or container may open /dev/nvidia0"
        }
        code::INVALID_DEVICE => "; see the GPUs with: ladderscope doctor",
        code::NO_BINARY_FOR_GPU => {
            "; the compiled kernel is for another GPU: remove ladderscope/kernels in the cache folder"
        }
        code::ECC_UNCORRECTABLE => "; the GPU's memory has a defect: reset or replace it",
        code::ILLEGAL_ADDRESS | code::LAUNCH_FAILED => {
            "; a kernel failed, the GPU's state is lost for this process: run again under compute-sanitizer"
        }
        code::LAUNCH_OUT_OF_RESOURCES => "; the launch wants more threads or registers than the GPU has",
        code::NOT_PERMITTED => "; ask the administrator of the machine for the right to use it",
        code::SYSTEM_NOT_READY => {
            "; on a machine with NVSwitch the fabric manager must run: systemctl start nvidia-fabricmanager"
        }
        code::SYSTEM_DRIVER_MISMATCH => {
            "; the driver was updated while in use: restart the machine, or load the new kernel module \
             (in a container: its libcuda.so.1 is not the host's)"
        }
        code::COMPAT_NOT_SUPPORTED => {
            "; libcuda.so.1 comes from a forward-compatibility package (cuda-compat) that this GPU does \
             not support: take its folder out of LD_LIBRARY_PATH, or install a newer driver"
        }
        code::CAPTURE_UNSUPPORTED | code::CAPTURE_INVALIDATED => {
            "; a call cannot be captured in a graph: try --no-graph"
        }
        code::CAPTURE_UNJOINED | code::CAPTURE_ISOLATION => {
            "; streams are not forked and joined as a graph needs it: try --no-graph and report this"
        }
        code::UNKNOWN => "; check that nvidia-smi works (modules nvidia and nvidia_uvm loaded)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_driver_is_told_by_version_and_by_what_it_lacks() {
        assert_eq!(
            too_old(Some(11_080), &["cuLaunchKernelEx", "cuGraphUpload"]),
            "the NVIDIA driver is too old: it is for CUDA 11.8 (it lacks cuLaunchKernelEx and 1 more \
             functions); install a driver for CUDA 12.0 or newer (525.60 or newer)"
        );
    }

    #[test]
    fn a_library_without_the_functions_names_them() {
        let library = libloading::os::unix::Library::this();
        let missing = DriverFunctions::load(&library.into()).err().unwrap_or_default();
        assert!(missing.contains(&"cuInit") && missing.contains(&"cuGraphUpload"), "{missing:?}");
    }

    #[test]
    fn refusals_that_users_meet_say_what_to_do() {
        for number in [
            code::NO_DEVICE,
            code::NOT_PERMITTED,
            code::SYSTEM_NOT_READY,
            code::SYSTEM_DRIVER_MISMATCH,
            code::COMPAT_NOT_SUPPORTED,
            code::STUB_LIBRARY,
            code::DEVICE_UNAVAILABLE,
            code::UNKNOWN,
        ] {
            assert!(advice(number).starts_with("; "), "{number}");
        }
        assert!(advice(code::NO_DEVICE).contains("CUDA_VISIBLE_DEVICES"));
        assert!(advice(code::COMPAT_NOT_SUPPORTED).contains("LD_LIBRARY_PATH"));
        assert_eq!(advice(12_345), "");
    }
}
