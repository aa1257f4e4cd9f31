//! cuBLASLt's functions, and the descriptors and algorithm candidates of one matrix product.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use cudarc::cublaslt::sys;

use crate::cuda::blas::{MatMul, WORKSPACE_BYTES};
use base::error::{Error, Result};
use machine::driver::functions::functions;
use machine::driver::libraries::{self, Library};
use plan::DType;

/// `cublasLtMatmulHeuristicResult_t`. The state is a plain integer because newer libraries may add states.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct AlgorithmCandidate {
    pub algorithm: sys::cublasLtMatmulAlgo_t,
    pub workspace_bytes: usize,
    pub state: u32,
    pub waves: f32,
    reserved: [c_int; 4],
}

const _: () = {
    assert!(size_of::<AlgorithmCandidate>() == size_of::<sys::cublasLtMatmulHeuristicResult_t>());
    assert!(align_of::<AlgorithmCandidate>() == align_of::<sys::cublasLtMatmulHeuristicResult_t>());
};

impl AlgorithmCandidate {
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
        candidates: *mut AlgorithmCandidate, given: *mut c_int,
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
        let found = libraries::open_with_path(Library::CublasLt).map_err(|error| error.to_string())?;
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

const TRANSPOSE: i32 = 1;

/// `cudaDataType` value of a format.
fn data_type(dtype: DType) -> u32 {
    (match dtype {
        DType::F32 => sys::cudaDataType::CUDA_R_32F,
        DType::F16 => sys::cudaDataType::CUDA_R_16F,
        DType::Bf16 => sys::cudaDataType::CUDA_R_16BF,
        DType::Fp8 | DType::Fp8Block => sys::cudaDataType::CUDA_R_8F_E4M3,
        DType::Nvfp4 | DType::Mxfp4 => sys::cudaDataType::CUDA_R_8U,
    }) as u32
}

/// Alignment of weights, input and output (bytes, powers of two up to 256), which limits the algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Alignment {
    pub w: u32,
    pub x: u32,
    pub out: u32,
}

impl Alignment {
    /// Alignment of the start of an allocation: the driver aligns to 256 bytes.
    pub const FULL: Self = Self { w: 256, x: 256, out: 256 };

    /// Largest power of two up to 256 that divides each address.
    pub fn new(x: u64, w: u64, out: u64) -> Self {
        let alignment = |address: u64| 1 << address.trailing_zeros().min(8);
        Self { w: alignment(w), x: alignment(x), out: alignment(out) }
    }
}

/// cuBLASLt descriptors of a product. cuBLASLt is column-major, so row-major `out[rows][outputs] =
/// x[rows][inputs] w[outputs][inputs]^T` maps to A = w (inputs x outputs, transposed), B = x (inputs x rows)
/// and D = out (outputs x rows).
pub(super) struct Descriptors {
    lt: &'static Lt,
    description: sys::cublasLtMatmulDesc_t,
    a: sys::cublasLtMatrixLayout_t,
    b: sys::cublasLtMatrixLayout_t,
    d: sys::cublasLtMatrixLayout_t,
}

// SAFETY: descriptors are read-only after creation.
unsafe impl Send for Descriptors {}
// SAFETY: as above.
unsafe impl Sync for Descriptors {}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: each was created by cuBLASLt or is null, and is destroyed once.
        unsafe {
            if !self.description.is_null() {
                (self.lt.cublasLtMatmulDescDestroy)(self.description);
            }
            for layout in [self.a, self.b, self.d].into_iter().filter(|layout| !layout.is_null()) {
                (self.lt.cublasLtMatrixLayoutDestroy)(layout);
            }
        }
    }
}

impl Descriptors {
    pub fn new(lt: &'static Lt, matmul: &MatMul) -> Result<Self> {
        let what = || format!("describing {matmul}");
        let null = std::ptr::null_mut();
        let mut made = Self { lt, description: null, a: null.cast(), b: null.cast(), d: null.cast() };
        let f32_type = data_type(DType::F32);
        // f32 accumulation, without TF32 for f32 inputs
        let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F as u32;
        // SAFETY: here and below, handles are written to valid addresses.
        let status = unsafe { (lt.cublasLtMatmulDescCreate)(&mut made.description, compute, f32_type) };
        lt.check(status, what)?;
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        made.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, TRANSPOSE, matmul)?;
        if let Some(multiprocessors) = matmul.sm_target {
            let target = i32::try_from(multiprocessors).unwrap_or(i32::MAX);
            made.set(Attribute::CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, target, matmul)?;
        }
        let number = data_type(matmul.dtype);
        let (rows, inputs, outputs) = (matmul.rows, matmul.inputs, matmul.outputs);
        let layout = |number: u32, rows: u64, columns: u64| {
            let mut layout = std::ptr::null_mut();
            // SAFETY: as above. Columns are contiguous.
            let status = unsafe {
                (lt.cublasLtMatrixLayoutCreate)(&mut layout, number, rows, columns, rows as i64)
            };
            lt.check(status, what).map(|()| layout)
        };
        made.a = layout(number, inputs, outputs)?;
        made.b = layout(number, inputs, rows)?;
        made.d = layout(if matmul.f32_output { f32_type } else { number }, outputs, rows)?;
        Ok(made)
    }

    fn set(
        &self,
        attribute: sys::cublasLtMatmulDescAttributes_t,
        value: i32,
        matmul: &MatMul,
    ) -> Result<()> {
        // SAFETY: all attributes set here are 32-bit integers.
        let status = unsafe {
            (self.lt.cublasLtMatmulDescSetAttribute)(
                self.description,
                attribute as u32,
                std::ptr::from_ref(&value).cast(),
                size_of_val(&value),
            )
        };
        self.lt.check(status, || format!("describing {matmul} ({attribute:?})"))
    }

    /// Returns 1 to `wanted` algorithms in the order of cuBLASLt's heuristic, best first.
    pub fn candidates(
        &self,
        handle: sys::cublasLtHandle_t,
        matmul: &MatMul,
        alignment: Alignment,
        wanted: usize,
    ) -> Result<Vec<AlgorithmCandidate>> {
        let what = || format!("choosing an algorithm for {matmul}");
        let preference = Preference::new(self.lt, alignment)?;
        let mut candidates = vec![AlgorithmCandidate::empty(); wanted.max(1)];
        let mut given: c_int = 0;
        // SAFETY: all handles exist; `candidates` has room for the requested count.
        let status = unsafe {
            (self.lt.cublasLtMatmulAlgoGetHeuristic)(
                handle,
                self.description,
                self.a,
                self.b,
                self.d,
                self.d,
                preference.handle,
                c_int::try_from(candidates.len()).unwrap_or(1),
                candidates.as_mut_ptr(),
                &mut given,
            )
        };
        self.lt.check(status, what)?;
        candidates.truncate(usize::try_from(given).unwrap_or(0));
        candidates.retain(|candidate| {
            candidate.state == 0 && candidate.workspace_bytes as u64 <= WORKSPACE_BYTES
        });
        if candidates.is_empty() {
            return Err(Error::failed(format!(
                "{}: cuBLASLt knows none on this GPU (alignments {} {} {})",
                what(),
                alignment.x,
                alignment.w,
                alignment.out
            )));
        }
        Ok(candidates)
    }

    /// Enqueues the product on a stream and returns immediately.
    ///
    /// # Safety
    ///
    /// The addresses must point to matrices of these shapes on the stream's GPU, and the workspace must be as
    /// large as the algorithm requires.
    pub unsafe fn run(
        &self,
        handle: sys::cublasLtHandle_t,
        candidate: &AlgorithmCandidate,
        (x, w, out): (u64, u64, u64),
        workspace: u64,
        stream: sys::cudaStream_t,
    ) -> u32 {
        let (alpha, beta) = (1.0_f32, 0.0_f32);
        let number = |value: &f32| std::ptr::from_ref(value).cast::<c_void>();
        // SAFETY: guaranteed by the caller; alpha and beta are read before the call returns.
        unsafe {
            (self.lt.cublasLtMatmul)(
                handle,
                self.description,
                number(&alpha),
                w as *const c_void,
                self.a,
                x as *const c_void,
                self.b,
                number(&beta),
                out as *const c_void,
                self.d,
                out as *mut c_void,
                self.d,
                &candidate.algorithm,
                workspace as *mut c_void,
                candidate.workspace_bytes,
                stream,
            )
        }
    }
}

/// Limits on the algorithms: workspace size and alignment.
struct Preference {
    lt: &'static Lt,
    handle: sys::cublasLtMatmulPreference_t,
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: created by cuBLASLt, destroyed once.
        unsafe { (self.lt.cublasLtMatmulPreferenceDestroy)(self.handle) };
    }
}

impl Preference {
    fn new(lt: &'static Lt, alignment: Alignment) -> Result<Self> {
        let what = || "describing what an algorithm may use".to_owned();
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle to a valid address.
        lt.check(unsafe { (lt.cublasLtMatmulPreferenceCreate)(&mut handle) }, what)?;
        let made = Self { lt, handle };
        use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
        let bytes = |attribute: Attribute, value: &[u8]| {
            // SAFETY: the handle exists; the value has the given size.
            let status = unsafe {
                (lt.cublasLtMatmulPreferenceSetAttribute)(
                    made.handle,
                    attribute as u32,
                    value.as_ptr().cast(),
                    value.len(),
                )
            };
            lt.check(status, what)
        };
        let workspace = WORKSPACE_BYTES;
        bytes(Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace.to_ne_bytes())?;
        for (attribute, value) in [
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment.w),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment.x),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment.out),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment.out),
        ] {
            bytes(attribute, &value.to_ne_bytes())?;
        }
        Ok(made)
    }
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

    #[test]
    fn alignment_is_the_lowest_set_bit_up_to_256() {
        let alignment = Alignment::new(0x7f00_0000_0010, 0x7f00_0000_0400, 0x7f00_0000_0006);
        assert_eq!(alignment, Alignment { x: 16, w: 256, out: 2 });
        assert_eq!(Alignment::new(0, 0, 0), Alignment::FULL);
    }

    #[test]
    fn types_are_cudas_numbers_of_them() {
        assert_eq!([DType::F32, DType::F16, DType::Bf16].map(data_type), [0, 2, 14]);
    }
}
