//! CUDA driver error codes, translated into errors with advice.

use std::ffi::{CStr, c_char};

use super::api::Api;
use base::error::{Error, Result};

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
pub(crate) fn check(api: &Api, code: u32, what: impl FnOnce() -> String) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    Err(Error::failed(format!("{}: {}{}", what(), text(api, code), advice(code))))
}

/// Name and description of a code, such as `CUDA_ERROR_NO_DEVICE (100), no CUDA-capable device is
/// detected`.
pub(crate) fn text(api: &Api, code: u32) -> String {
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
pub(crate) fn refusal(api: &Api, code: u32) -> String {
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
