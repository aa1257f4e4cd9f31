//! NCCL's C types, declared by hand.

use std::ffi::{c_char, c_int, c_uint, c_void};

use base::error::{Error, Result};
use plan::DType;

pub(super) type Comm = *mut c_void;

/// CUDA driver stream (`CUstream`, the same as `cudaStream_t`).
pub(super) type Stream = *mut c_void;

/// `ncclSuccess` of `ncclResult_t`: the call has completed.
pub(super) const SUCCESS: c_int = 0;
/// `ncclInProgress`: a non-blocking call continues in the background.
pub(super) const IN_PROGRESS: c_int = 7;

/// `ncclSum` of `ncclRedOp_t`.
pub(super) const SUM: c_int = 0;

/// `ncclUint8` of `ncclDataType_t`, for data that is not summed.
pub(super) const BYTE: c_int = 1;

/// Leaves a configuration value to NCCL.
const UNDEFINED: c_int = c_int::MIN;

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct UniqueId {
    pub(super) bytes: [u8; 128],
}

impl UniqueId {
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let bytes = bytes.try_into().map_err(|_| {
            Error::failed(format!("NCCL's unique id has 128 bytes, and {} came", bytes.len()))
        })?;
        Ok(Self { bytes })
    }

    pub fn as_bytes(&self) -> &[u8; 128] {
        &self.bytes
    }
}

impl std::fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UniqueId({:02x?}..)", &self.bytes[..8])
    }
}

/// `ncclConfig_t` as of 2.18. Later versions read `size` and `version` and accept the shorter struct.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
    /// Padding; a field in later versions.
    later: c_int,
}

impl Config {
    /// Blocking calls; all other values are left to NCCL, and its environment variables override this.
    pub fn blocking() -> Self {
        Self {
            size: size_of::<Self>(),
            magic: 0xcafe_beef,
            version: OLDEST,
            blocking: 1,
            cga_cluster_size: UNDEFINED,
            min_ctas: UNDEFINED,
            max_ctas: UNDEFINED,
            net_name: std::ptr::null(),
            split_share: UNDEFINED,
            later: UNDEFINED,
        }
    }
}

/// Oldest supported version, as NCCL's code: 2.18.0.
const OLDEST: c_uint = 21_800;

pub(super) fn data_type(dtype: DType) -> c_int {
    match dtype {
        DType::F16 => 6,
        DType::F32 => 7,
        DType::Bf16 => 9,
        DType::Fp8 | DType::Fp8Block => 10,
        // pairs of 4-bit numbers
        DType::Nvfp4 | DType::Mxfp4 => 1,
    }
}

/// Formats a version code: major x 1000 + ... up to 2.8, major x 10000 + ... from 2.9 on.
pub(super) fn version_text(code: c_int) -> String {
    let scale = if code >= 10_000 { 10_000 } else { 1_000 };
    format!("{}.{}.{}", code / scale, code % scale / 100, code % 100)
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn structures_lie_in_memory_as_nccl_expects_them() {
        assert_eq!((size_of::<UniqueId>(), align_of::<UniqueId>()), (128, 1));
        assert_eq!((size_of::<Config>(), align_of::<Config>()), (48, 8));
        let offsets = [
            offset_of!(Config, magic),
            offset_of!(Config, version),
            offset_of!(Config, blocking),
            offset_of!(Config, cga_cluster_size),
            offset_of!(Config, min_ctas),
            offset_of!(Config, max_ctas),
            offset_of!(Config, net_name),
            offset_of!(Config, split_share),
            offset_of!(Config, later),
        ];
        assert_eq!(offsets, [8, 12, 16, 20, 24, 28, 32, 40, 44]);
        let config = Config::blocking();
        assert_eq!((config.size, config.blocking, config.version), (48, 1, 21_800));
    }

    #[test]
    fn both_kinds_of_version_codes_are_understood() {
        assert_eq!(version_text(2_804), "2.8.4");
        assert_eq!(version_text(22_703), "2.27.3");
    }

    #[test]
    fn an_id_of_another_length_is_refused() {
        assert!(UniqueId::from_bytes(&[1; 127]).is_err());
        assert_eq!(UniqueId::from_bytes(&[1; 128]).unwrap().as_bytes(), &[1; 128]);
    }
}
