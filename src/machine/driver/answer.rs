//! The driver's answers as errors that say what to do.

use std::ffi::{CStr, c_char};

use super::api::Api;
use base::error::{Error, Result};

/// Codes of `CUresult` (cuda.h) that are told apart here. Plain integers: newer drivers know more.
pub mod code {
    /// The GPU has less free memory than an allocation, a context or
    /// a module needs (`CUDA_ERROR_OUT_OF_MEMORY`).
    pub const OUT_OF_MEMORY: u32 = 2;
    /// The library is the one that programs are linked with, not a driver.
    pub const STUB_LIBRARY: u32 = 34;
    /// The driver lacks what the call needs.
    pub const NEWER_DRIVER: u32 = 36;
    /// Another process has the GPU for itself.
    pub const DEVICE_UNAVAILABLE: u32 = 46;
    /// No GPU, or none that this process may see.
    pub const NO_DEVICE: u32 = 100;
    /// The index names no GPU that this process may see.
    pub const INVALID_DEVICE: u32 = 101;
    /// A cubin for another architecture.
    pub const NO_BINARY_FOR_GPU: u32 = 209;
    /// A memory error that could not be corrected.
    pub const ECC_UNCORRECTABLE: u32 = 214;
    /// No way to the other GPU's memory.
    pub const PEER_ACCESS_UNSUPPORTED: u32 = 217;
    /// No such function in the module.
    pub const NOT_FOUND: u32 = 500;
    /// Work goes on; not an error.
    pub const NOT_READY: u32 = 600;
    /// A kernel read or wrote outside of its memory.
    pub const ILLEGAL_ADDRESS: u32 = 700;
    /// A launch wants more registers, threads or shared memory than there are.
    pub const LAUNCH_OUT_OF_RESOURCES: u32 = 701;
    /// Memory of the other GPU is within reach already.
    pub const PEER_ACCESS_ALREADY_ENABLED: u32 = 704;
    /// A kernel ended by an exception that the driver does not tell apart.
    pub const LAUNCH_FAILED: u32 = 719;
    /// The operating system says no.
    pub const NOT_PERMITTED: u32 = 800;
    /// NVLink's switches are not up (fabric manager).
    pub const SYSTEM_NOT_READY: u32 = 802;
    /// Library and kernel module of the driver differ.
    pub const SYSTEM_DRIVER_MISMATCH: u32 = 803;
    /// A forward-compatible library on a GPU that does not support it.
    pub const COMPAT_NOT_SUPPORTED: u32 = 804;
    /// A call that must not be made while a stream is captured.
    pub const CAPTURE_UNSUPPORTED: u32 = 900;
    /// An earlier error has ended the capture.
    pub const CAPTURE_INVALIDATED: u32 = 901;
    /// A forked stream was not joined.
    pub const CAPTURE_UNJOINED: u32 = 904;
    /// A captured stream depends on work outside of the capture.
    pub const CAPTURE_ISOLATION: u32 = 905;
    /// Unknown, often a driver that was not set up.
    pub const UNKNOWN: u32 = 999;
}

/// Turns a driver's answer into a result; `what` was being done: `launching rms_norm on GPU 0`.
pub(crate) fn check(api: &Api, code: u32, what: impl FnOnce() -> String) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    Err(Error::failed(format!("{}: {}{}", what(), text(api, code), advice(code))))
}

/// The driver's name of a code with its explanation, for example `CUDA_ERROR_NO_DEVICE (100), no
/// CUDA-capable device is detected`.
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

/// Why the driver cannot be used at all, and what to do.
pub(crate) fn refusal(api: &Api, code: u32) -> String {
    format!("the NVIDIA driver cannot be used: {}{}", text(api, code), advice(code))
}

/// What to do about it, beginning with `; `; empty where nothing useful can be said.
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
            "; a call was made that cannot be captured in a graph: try --no-graph"
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
