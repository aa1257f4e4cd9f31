//! Loads the NCCL library once per process.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use libloading::Library;
use serde::Serialize;

use base::error::{Error, Result};
use machine::driver::functions::functions;
use machine::driver::libraries;
use plan::DType;
use table::shared_gpu;

/// First version that allows several ranks on one GPU.
const SHARES_GPU: c_int = 23_000;

functions! {
    /// NCCL functions in use, with their `nccl.h` types, from 2.18 on.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Functions;
    fn ncclGetUniqueId(id: *mut UniqueId) -> c_int;
    fn ncclCommInitRankConfig(comm: *mut Comm, ranks: c_int, id: UniqueId, rank: c_int, config: *mut NcclConfig) -> c_int;
    fn ncclCommGetAsyncError(comm: Comm, error: *mut c_int) -> c_int;
    fn ncclAllReduce(from: *const c_void, to: *mut c_void, count: usize, data_type: c_int, operation: c_int, comm: Comm, stream: RawStream) -> c_int;
    fn ncclReduceScatter(from: *const c_void, to: *mut c_void, receive_count: usize, data_type: c_int, operation: c_int, comm: Comm, stream: RawStream) -> c_int;
    fn ncclAllGather(from: *const c_void, to: *mut c_void, send_count: usize, data_type: c_int, comm: Comm, stream: RawStream) -> c_int;
    fn ncclCommFinalize(comm: Comm) -> c_int;
    fn ncclCommDestroy(comm: Comm) -> c_int;
    fn ncclCommAbort(comm: Comm) -> c_int;
    fn ncclGetErrorString(code: c_int) -> *const c_char;
    fn ncclGetLastError(comm: Comm) -> *const c_char;
}

#[derive(Debug)]
pub struct Nccl {
    pub(super) functions: Functions,
    version: c_int,
}

impl Nccl {
    /// Loads NCCL; the result is cached for the process. Returns an error that lists the tried paths if NCCL is
    /// missing, cannot be loaded or is older than 2.18.
    pub fn load() -> Result<&'static Self> {
        static LOADED: OnceLock<std::result::Result<Nccl, String>> = OnceLock::new();
        let loaded = LOADED.get_or_init(|| {
            let (library, name, version) = find()?;
            if shared_gpu::is_on() && version < SHARES_GPU {
                return Err(format!(
                    "{name} is NCCL {}: it refuses two ranks on one GPU, which {}=1 asks for; 2.30 or newer is needed (pip \
                     install nvidia-nccl-cu13, and name its file by LADDERSCOPE_NCCL)",
                    version_text(version),
                    shared_gpu::VARIABLE
                ));
            }
            let functions = Functions::load(library).map_err(|missing| {
                let (version, missing) = (version_text(version), missing.join(", "));
                format!("{name} is NCCL {version}: it has no {missing}; 2.18 or newer is needed")
            })?;
            Ok(Self { functions, version })
        });
        loaded.as_ref().map_err(|why| Error::failed(why.clone()))
    }

    #[cfg(test)]
    pub(super) fn from_functions(functions: Functions) -> Self {
        Self { functions, version: 22_703 }
    }

    /// Version of the loaded library: `2.27.3`.
    pub fn version(&self) -> String {
        version_text(self.version)
    }

    /// Creates a communicator id (`ncclGetUniqueId`, 128 bytes) on rank 0, to be broadcast to all ranks. Returns an
    /// error with NCCL's reason.
    pub fn unique_id(&self) -> Result<UniqueId> {
        let mut id = UniqueId { bytes: [0; 128] };
        // SAFETY: the function fills 128 bytes at a valid address.
        let code = unsafe { (self.functions.ncclGetUniqueId)(&mut id) };
        self.check(code, "ncclGetUniqueId", std::ptr::null_mut())?;
        Ok(id)
    }

    /// Turns a result code into an error; `InProgress` counts as success.
    pub(super) fn check(&self, code: c_int, what: &str, comm: Comm) -> Result<()> {
        match code {
            SUCCESS | IN_PROGRESS => Ok(()),
            code => Err(Error::failed(self.describe(code, what, comm))),
        }
    }

    pub(super) fn describe(&self, code: c_int, what: &str, comm: Comm) -> String {
        // SAFETY: both functions accept any code and return null or a string that lives as long as the library; the
        // communicator is alive, or null to ask for the thread's own last error.
        let (name, last) = unsafe {
            (
                text((self.functions.ncclGetErrorString)(code)),
                text((self.functions.ncclGetLastError)(comm)),
            )
        };
        let name = name.unwrap_or_else(|| "unknown".into());
        let last = last.map(|last| format!(": {last}")).unwrap_or_default();
        format!(
            "{what}: NCCL {} answers {code} ({name}){last}; --env NCCL_DEBUG=INFO lets it say more in the log",
            self.version()
        )
    }
}

/// Reads a C string; `None` if it is null or blank.
///
/// # Safety
///
/// `pointer` is null or a C string.
unsafe fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    let text = unsafe { CStr::from_ptr(pointer) }.to_string_lossy().trim().to_owned();
    (!text.is_empty()).then_some(text)
}

#[derive(Debug, Default, Serialize, schemars::JsonSchema)]
pub struct Probe {
    /// Version as `2.27.3`; `None` if no NCCL was found.
    pub version: Option<String>,
    pub library: Option<String>,
    pub problem: Option<String>,
}

pub fn probe() -> Probe {
    match find() {
        Ok((_, library, version)) => Probe {
            version: Some(version_text(version)),
            problem: Nccl::load().err().map(|e| e.to_string()),
            library: Some(library),
        },
        Err(problem) => Probe { problem: Some(problem), ..Probe::default() },
    }
}

fn find() -> std::result::Result<(&'static Library, String, c_int), String> {
    let found = libraries::open_with_path(libraries::Library::Nccl).map_err(|e| e.to_string())?;
    let name = found.path.display().to_string();
    let version = version(&found.library, &name)?;
    Ok((&found.library, name, version))
}

fn version(library: &Library, name: &str) -> std::result::Result<c_int, String> {
    type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;
    // SAFETY: the symbol has this type in nccl.h in all versions of NCCL 2.
    let get = unsafe { library.get::<GetVersion>(b"ncclGetVersion\0") }.map_err(|e| why(name, &e))?;
    let mut code = 0;
    // SAFETY: the function writes one int to a valid address and needs no GPU.
    match unsafe { get(&mut code) } {
        SUCCESS => Ok(code),
        error => Err(format!("{name}: ncclGetVersion answers {error}")),
    }
}

/// The loader's message, with the library's name.
fn why(name: &str, error: &libloading::Error) -> String {
    let detail = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    if detail.contains(name) { detail } else { format!("{name}: {detail}") }
}

pub(super) type Comm = *mut c_void;

/// CUDA driver stream (`CUstream`, the same as `cudaStream_t`).
pub(super) type RawStream = *mut c_void;

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
pub(super) struct NcclConfig {
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

impl NcclConfig {
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
    fn a_library_that_is_not_nccl_is_refused() {
        // SAFETY: the C library is loaded already.
        let libc = unsafe { Library::new("libc.so.6") }.unwrap();
        let problem = version(&libc, "libc.so.6").err().unwrap_or_default();
        assert!(problem.contains("libc.so.6") && problem.contains("ncclGetVersion"), "{problem}");
        let missing = Functions::load(&libc).err().unwrap_or_default();
        assert_eq!((missing.len(), missing[0]), (11, "ncclGetUniqueId"), "{missing:?}");
    }

    #[test]
    fn structures_lie_in_memory_as_nccl_expects_them() {
        assert_eq!((size_of::<UniqueId>(), align_of::<UniqueId>()), (128, 1));
        assert_eq!((size_of::<NcclConfig>(), align_of::<NcclConfig>()), (48, 8));
        let offsets = [
            offset_of!(NcclConfig, magic),
            offset_of!(NcclConfig, version),
            offset_of!(NcclConfig, blocking),
            offset_of!(NcclConfig, cga_cluster_size),
            offset_of!(NcclConfig, min_ctas),
            offset_of!(NcclConfig, max_ctas),
            offset_of!(NcclConfig, net_name),
            offset_of!(NcclConfig, split_share),
            offset_of!(NcclConfig, later),
        ];
        assert_eq!(offsets, [8, 12, 16, 20, 24, 28, 32, 40, 44]);
        let config = NcclConfig::blocking();
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
