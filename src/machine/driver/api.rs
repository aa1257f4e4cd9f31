//! Function table of the CUDA driver, available once the driver is loaded, recent enough and
//! initialized.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys;

use super::error;
use super::functions::functions;
use super::libraries::{self, Library};
use base::error::{Error, Result};

/// Oldest supported CUDA version of a driver: launch attributes for programmatic dependent launch and
/// lazy kernel loading are reliable from 12.0.
pub const OLDEST: u32 = 12_000;

functions! {
    /// Driver functions in use, all present in drivers for CUDA 12.0.
    pub(crate) struct Api;
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
pub(crate) fn api() -> Result<&'static Api> {
    static API: OnceLock<Result<Api, String>> = OnceLock::new();
    API.get_or_init(|| enter().map_err(|error| error.to_string()))
        .as_ref()
        .map_err(|message| Error::input(message.clone()))
}

fn enter() -> Result<Api> {
    let library = libraries::open(Library::Driver)?;
    let version = version();
    let api = Api::load(library).map_err(|missing| Error::input(too_old(version, &missing)))?;
    match version {
        Some(version) if version < OLDEST => return Err(Error::input(too_old(Some(version), &[]))),
        _ => {}
    }
    // SAFETY: flags must be 0; there are no other preconditions.
    let code = unsafe { (api.cuInit)(0) };
    if code != 0 { Err(Error::input(error::refusal(&api, code))) } else { Ok(api) }
}

/// CUDA version supported by the driver (13010: 13.1); `None` without a driver. Needs no GPU and works
/// with drivers that are too old.
pub fn version() -> Option<u32> {
    let library = libraries::open(Library::Driver).ok()?;
    type GetVersion = unsafe extern "C" fn(*mut c_int) -> u32;
    // SAFETY: this is the symbol's type in cuda.h in all versions.
    let get = unsafe { super::functions::symbol::<GetVersion>(library, "cuDriverGetVersion\0") }?;
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
        version_text(OLDEST)
    )
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
        let missing = Api::load(&library.into()).err().unwrap_or_default();
        assert!(missing.contains(&"cuInit") && missing.contains(&"cuGraphUpload"), "{missing:?}");
    }
}
