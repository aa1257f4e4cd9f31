//! A product ready to run: descriptors and the algorithm for one shape.

use std::ffi::{c_int, c_void};

use cudarc::cublaslt::sys;

use super::library::{Candidate, Lt};
use super::{MatMul, WORKSPACE_BYTES};
use base::error::{Error, Result};
use plan::DType;

/// `CUBLAS_OP_T` of `cublasOperation_t` (cublas_api.h).
const TRANSPOSE: i32 = 1;

/// `CUDA_R_32F`, `CUDA_R_16F`, `CUDA_R_16BF` of `cudaDataType`.
fn data_type(dtype: DType) -> u32 {
    (match dtype {
        DType::F32 => sys::cudaDataType::CUDA_R_32F,
        DType::F16 => sys::cudaDataType::CUDA_R_16F,
        DType::Bf16 => sys::cudaDataType::CUDA_R_16BF,
        DType::Fp8 => sys::cudaDataType::CUDA_R_8F_E4M3,
    }) as u32
}

/// Alignments (bytes, powers of two up to 256) of weights, input and output: algorithms depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Alignment {
    pub w: u32,
    pub x: u32,
    pub out: u32,
}

impl Alignment {
    /// What operands have that begin where an allocation does: the driver aligns to 256 bytes.
    pub const FULL: Self = Self { w: 256, x: 256, out: 256 };

    /// The alignment that the addresses of weights, input and output have: the largest power of two up
    /// to 256 that divides each.
    pub fn of(x: u64, w: u64, out: u64) -> Self {
        let alignment = |address: u64| 1 << address.trailing_zeros().min(8);
        Self { w: alignment(w), x: alignment(x), out: alignment(out) }
    }
}

/// Descriptors of a product as cuBLASLt, which counts columns first, sees it: with row-major
/// `out[rows][outputs] = x[rows][inputs] w[outputs][inputs]^T`, its A is w (inputs x outputs, transposed),
/// its B is x (inputs x rows), its D is out (outputs x rows).
pub(super) struct Descriptors {
    lt: &'static Lt,
    description: sys::cublasLtMatmulDesc_t,
    a: sys::cublasLtMatrixLayout_t,
    b: sys::cublasLtMatrixLayout_t,
    d: sys::cublasLtMatrixLayout_t,
}

// SAFETY: descriptors are only read once they are made.
unsafe impl Send for Descriptors {}
// SAFETY: as above.
unsafe impl Sync for Descriptors {}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: each was made by cuBLASLt or is null, and is destroyed once.
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
    /// Describes a product to cuBLASLt: its formats, its layouts, sums in f32.
    pub fn new(lt: &'static Lt, matmul: &MatMul) -> Result<Self> {
        let what = || format!("describing {matmul}");
        let null = std::ptr::null_mut();
        let mut made = Self { lt, description: null, a: null.cast(), b: null.cast(), d: null.cast() };
        let f32_type = data_type(DType::F32);
        // Sums in f32, and no TF32 for f32 numbers.
        let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F as u32;
        // SAFETY: here and below: handles are written to valid addresses.
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
            // SAFETY: as above. Columns lie one after another.
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
        // SAFETY: the attributes that are set here are 32-bit integers.
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

    /// Algorithms for it, the one that cuBLASLt deems fastest first; at most `wanted`, at least one.
    pub fn candidates(
        &self,
        handle: sys::cublasLtHandle_t,
        matmul: &MatMul,
        alignment: Alignment,
        wanted: usize,
    ) -> Result<Vec<Candidate>> {
        let what = || format!("choosing an algorithm for {matmul}");
        let preference = Preference::new(self.lt, alignment)?;
        let mut candidates = vec![Candidate::empty(); wanted.max(1)];
        let mut given: c_int = 0;
        // SAFETY: all handles exist; there is room for as many candidates as are asked for.
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

    /// Enqueues the product on a stream; it returns before anything was computed.
    ///
    /// # Safety
    ///
    /// The addresses are those of matrices of this shape on the stream's GPU, and the workspace is as large
    /// as the algorithm asks.
    pub unsafe fn run(
        &self,
        handle: sys::cublasLtHandle_t,
        candidate: &Candidate,
        (x, w, out): (u64, u64, u64),
        workspace: u64,
        stream: sys::cudaStream_t,
    ) -> u32 {
        let (alpha, beta) = (1.0_f32, 0.0_f32);
        let number = |value: &f32| std::ptr::from_ref(value).cast::<c_void>();
        // SAFETY: by the caller; alpha and beta are read before this returns.
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

/// What an algorithm may use.
struct Preference {
    lt: &'static Lt,
    handle: sys::cublasLtMatmulPreference_t,
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: made by cuBLASLt, destroyed once.
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
            // SAFETY: the handle exists; the value has the size that is given.
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
    fn alignment_is_the_lowest_set_bit_up_to_256() {
        let alignment = Alignment::of(0x7f00_0000_0010, 0x7f00_0000_0400, 0x7f00_0000_0006);
        assert_eq!(alignment, Alignment { x: 16, w: 256, out: 2 });
        assert_eq!(Alignment::of(0, 0, 0), Alignment::FULL);
    }

    #[test]
    fn types_are_cudas_numbers_of_them() {
        assert_eq!([DType::F32, DType::F16, DType::Bf16].map(data_type), [0, 2, 14]);
    }
}
