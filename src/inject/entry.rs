//! Exported functions: the doors by which the driver, NVTX and NCCL enter. No panic leaves any of them.
//!
//! Names are exported only from the shared object (`--cfg shared_object`), not from programs that use the crate as a library.

use std::ffi::c_void;

use crate::session::guarded;
use crate::{cupti, nccl, nvtx};

/// Called by the driver in `cuInit` (`CUDA_INJECTION64_PATH`). The program goes on whatever it returns.
#[cfg_attr(shared_object, unsafe(no_mangle))]
pub extern "C" fn InitializeInjection() -> i32 {
    guarded(1, |session| {
        cupti::set_up(session);
        1
    })
}

/// Called by each library with NVTX at its first range (`NVTX_INJECTION64_PATH`).
///
/// # Safety
///
/// `export` must be NVTX's function.
#[cfg_attr(shared_object, unsafe(no_mangle))]
pub unsafe extern "C" fn InitializeInjectionNvtx2(export: Option<nvtx::GetExportTable>) -> i32 {
    // SAFETY: guaranteed by the caller.
    guarded(0, |_| export.map_or(0, |export| unsafe { nvtx::attach(export) }))
}

/// Called by NVTX for each extension that a library uses.
///
/// # Safety
///
/// `info` must be NVTX's description of the extension.
#[cfg_attr(shared_object, unsafe(no_mangle))]
pub unsafe extern "C" fn InitializeInjectionNvtxExtension(info: *mut c_void) -> i32 {
    // SAFETY: guaranteed by the caller.
    guarded(0, |_| unsafe { nvtx::attach_extension(info.cast()) })
}

macro_rules! plugins {
    ($($name:ident = $plugin:expr;)*) => {$(
        #[allow(non_upper_case_globals)]
        #[cfg_attr(shared_object, unsafe(no_mangle))]
        pub static $name: nccl::Plugin = $plugin;
    )*};
}

// NCCL takes the newest version that it knows.
plugins! {
    ncclProfiler_v1 = nccl::plugin::<1>();
    ncclProfiler_v2 = nccl::plugin::<2>();
    ncclProfiler_v3 = nccl::plugin::<3>();
    ncclProfiler_v4 = nccl::plugin_v4();
    ncclProfiler_v5 = nccl::plugin_v5::<5>();
    ncclProfiler_v6 = nccl::plugin_v5::<6>();
}
