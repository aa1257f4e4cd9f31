//! cuBLASLt function table and error conversion.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use cudarc::cublaslt::sys;

use base::error::{Error, Result};
use machine::driver::functions::functions;
use machine::driver::libraries::{self, Library};

/// `cublasLtMatmulHeuristicResult_t`. The state is a plain integer because newer libraries may add states.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub algorithm: sys::cublasLtMatmulAlgo_t,
    pub workspace_bytes: usize,
    pub state: u32,
    pub waves: f32,
    reserved: [c_int; 4],
}

const _: () = {
    assert!(size_of::<Candidate>() == size_of::<sys::cublasLtMatmulHeuristicResult_t>());
    assert!(align_of::<Candidate>() == align_of::<sys::cublasLtMatmulHeuristicResult_t>());
};

impl Candidate {
    pub fn empty() -> Self {
        Self {
            algorithm: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
            workspace_bytes: 0,
            state: 0,
            waves: 0.0,
            reserved: [0; 4],
        }
    }
}

functions! {
    /// cuBLASLt of CUDA 12 or 13.
    pub(super) struct Lt;
    fn cublasLtCreate(handle: *mut sys::cublasLtHandle_t) -> u32 as in sys;
    fn cublasLtDestroy(handle: sys::cublasLtHandle_t) -> u32;
    fn cublasLtGetVersion() -> usize;
    fn cublasLtGetStatusString(status: u32) -> *const c_char;
    fn cublasLtMatmulDescCreate(
        description: *mut sys::cublasLtMatmulDesc_t, compute: u32, scale: u32,
    ) -> u32;
    fn cublasLtMatmulDescDestroy(description: sys::cublasLtMatmulDesc_t) -> u32;
    fn cublasLtMatmulDescSetAttribute(
        description: sys::cublasLtMatmulDesc_t, attribute: u32, value: *const c_void, bytes: usize,
    ) -> u32;
    fn cublasLtMatrixLayoutCreate(
        layout: *mut sys::cublasLtMatrixLayout_t, number: u32, rows: u64, columns: u64, stride: i64,
    ) -> u32;
    fn cublasLtMatrixLayoutDestroy(layout: sys::cublasLtMatrixLayout_t) -> u32;
    fn cublasLtMatmulPreferenceCreate(preference: *mut sys::cublasLtMatmulPreference_t) -> u32 as in sys;
    fn cublasLtMatmulPreferenceDestroy(preference: sys::cublasLtMatmulPreference_t) -> u32;
    fn cublasLtMatmulPreferenceSetAttribute(
        preference: sys::cublasLtMatmulPreference_t, attribute: u32, value: *const c_void, bytes: usize,
    ) -> u32;
    fn cublasLtMatmulAlgoGetHeuristic(
        handle: sys::cublasLtHandle_t, description: sys::cublasLtMatmulDesc_t,
        a: sys::cublasLtMatrixLayout_t, b: sys::cublasLtMatrixLayout_t,
        c: sys::cublasLtMatrixLayout_t, d: sys::cublasLtMatrixLayout_t,
        preference: sys::cublasLtMatmulPreference_t, wanted: c_int,
        candidates: *mut Candidate, given: *mut c_int,
    ) -> u32;
    fn cublasLtMatmul(
        handle: sys::cublasLtHandle_t, description: sys::cublasLtMatmulDesc_t,
        alpha: *const c_void,
        a: *const c_void, a_layout: sys::cublasLtMatrixLayout_t,
        b: *const c_void, b_layout: sys::cublasLtMatrixLayout_t,
        beta: *const c_void,
        c: *const c_void, c_layout: sys::cublasLtMatrixLayout_t,
        d: *mut c_void, d_layout: sys::cublasLtMatrixLayout_t,
        algorithm: *const sys::cublasLtMatmulAlgo_t,
        workspace: *mut c_void, workspace_bytes: usize, stream: sys::cudaStream_t,
    ) -> u32 as in sys;
}

/// Loads cuBLASLt once per process. Returns an input error if it is missing or lacks a function, with the
/// paths tried and how to install it.
pub(super) fn lt() -> Result<&'static Lt> {
    static LT: OnceLock<Result<Lt, String>> = OnceLock::new();
    let load = || {
        let found = libraries::found(Library::CublasLt).map_err(|error| error.to_string())?;
        Lt::load(&found.library).map_err(|missing| {
            format!(
                "cuBLASLt in {} is too old: it lacks {}; install CUDA 12.0's or newer",
                found.path.display(),
                missing.join(", ")
            )
        })
    };
    LT.get_or_init(load).as_ref().map_err(|message| Error::input(message.clone()))
}

impl Lt {
    pub fn check(&self, status: u32, what: impl FnOnce() -> String) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        Err(Error::failed(format!("{}: cuBLASLt answers {}", what(), self.text(status))))
    }

    fn text(&self, status: u32) -> String {
        // SAFETY: returns the address of a static text, or null.
        let text = unsafe {
            let text = (self.cublasLtGetStatusString)(status);
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        };
        match (status, text) {
            (1 | 3, text) => format!(
                "{} ({status}); the GPU's memory may be full, or the driver too old for this cuBLASLt",
                text.unwrap_or_default()
            ),
            (_, Some(text)) => format!("{text} ({status})"),
            (_, None) => format!("status {status}"),
        }
    }
}

/// Version of cuBLASLt as text, e.g. `13.1.0`.
pub fn version() -> Result<String> {
    // SAFETY: has no preconditions.
    let version = unsafe { (lt()?.cublasLtGetVersion)() };
    Ok(version_text(version))
}

fn version_text(version: usize) -> String {
    // since CUDA 12: major x 10000 + minor x 100; before: major x 1000
    let scale = if version >= 100_000 { 10_000 } else { 1_000 };
    format!("{}.{}.{}", version / scale, version % scale / 100, version % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_cublas_are_read() {
        assert_eq!(version_text(130_002), "13.0.2");
        assert_eq!(version_text(120_604), "12.6.4");
        assert_eq!(version_text(11_402), "11.4.2");
    }
}
