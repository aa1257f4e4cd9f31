//! Finding NCCL and its functions, once for the process.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use libloading::Library;
use serde::Serialize;

use super::types::{Comm, Config, IN_PROGRESS, SUCCESS, Stream, UniqueId, version_text};
use base::error::{Error, Result};
use base::shared_gpu;
use machine::driver::functions::functions;
use machine::driver::libraries;

/// The first version that permits several ranks on one GPU.
const SHARES_GPU: c_int = 23_000;

functions! {
    /// The functions of NCCL that are used, with their types in `nccl.h`, from 2.18 on.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Functions;
    fn ncclGetUniqueId(id: *mut UniqueId) -> c_int;
    fn ncclCommInitRankConfig(comm: *mut Comm, ranks: c_int, id: UniqueId, rank: c_int, config: *mut Config) -> c_int;
    fn ncclCommGetAsyncError(comm: Comm, error: *mut c_int) -> c_int;
    fn ncclAllReduce(from: *const c_void, to: *mut c_void, count: usize, data_type: c_int, operation: c_int, comm: Comm, stream: Stream) -> c_int;
    fn ncclReduceScatter(from: *const c_void, to: *mut c_void, receive_count: usize, data_type: c_int, operation: c_int, comm: Comm, stream: Stream) -> c_int;
    fn ncclAllGather(from: *const c_void, to: *mut c_void, send_count: usize, data_type: c_int, comm: Comm, stream: Stream) -> c_int;
    fn ncclCommFinalize(comm: Comm) -> c_int;
    fn ncclCommDestroy(comm: Comm) -> c_int;
    fn ncclCommAbort(comm: Comm) -> c_int;
    fn ncclGetErrorString(code: c_int) -> *const c_char;
    fn ncclGetLastError(comm: Comm) -> *const c_char;
}

/// NCCL's library, loaded, with the functions that are used.
#[derive(Debug)]
pub struct Nccl {
    pub(super) functions: Functions,
    version: c_int,
}

impl Nccl {
    /// Loads NCCL; the same answer for the life of the process. Fails where NCCL is not found, cannot be
    /// loaded or is older than 2.18, with all that was tried.
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
    pub(super) fn of(functions: Functions) -> Self {
        Self { functions, version: 22_703 }
    }

    /// The version of the library that was loaded, as people write it: `2.27.3`.
    pub fn version(&self) -> String {
        version_text(self.version)
    }

    /// A fresh id of a communicator (`ncclGetUniqueId`, 128 bytes), for rank 0 to make and all ranks to
    /// have. Fails with NCCL's reason.
    pub fn unique_id(&self) -> Result<UniqueId> {
        let mut id = UniqueId { bytes: [0; 128] };
        // SAFETY: the function fills 128 bytes at a valid address.
        let code = unsafe { (self.functions.ncclGetUniqueId)(&mut id) };
        self.check(code, "ncclGetUniqueId", std::ptr::null_mut())?;
        Ok(id)
    }

    /// What NCCL answered; `InProgress` counts as well.
    pub(super) fn check(&self, code: c_int, what: &str, comm: Comm) -> Result<()> {
        match code {
            SUCCESS | IN_PROGRESS => Ok(()),
            code => Err(Error::failed(self.describe(code, what, comm))),
        }
    }

    /// An answer in words, with NCCL's own last words where it has any.
    pub(super) fn describe(&self, code: c_int, what: &str, comm: Comm) -> String {
        // SAFETY: both functions take any code and give a string that lives as long as the library, or
        // null; the communicator is alive or null, which asks for the thread's own last error.
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

/// A C string that is neither null nor blank.
///
/// # Safety
/// `pointer` is null or a C string.
unsafe fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: as promised by the caller.
    let text = unsafe { CStr::from_ptr(pointer) }.to_string_lossy().trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// The NCCL that would be used.
#[derive(Debug, Default, Serialize, schemars::JsonSchema)]
pub struct Probe {
    /// The version as people write it: `2.27.3`; `None` where no NCCL was found.
    pub version: Option<String>,
    /// Name or path under which it was found.
    pub library: Option<String>,
    /// Why there is none, or why it cannot be used.
    pub problem: Option<String>,
}

/// Loads NCCL and asks its version.
pub fn probe() -> Probe {
    match find() {
        Ok((_, library, version)) => Probe {
            version: Some(version_text(version)),
            problem: match Nccl::load() {
                Ok(_) => None,
                Err(e) => Some(e.to_string()),
            },
            library: Some(library),
        },
        Err(problem) => Probe { problem: Some(problem), ..Probe::default() },
    }
}

/// The library, the file or name under which it was found, its version code.
fn find() -> std::result::Result<(&'static Library, String, c_int), String> {
    let found = libraries::found(libraries::Library::Nccl).map_err(|e| e.to_string())?;
    let name = found.path.display().to_string();
    let version = version(&found.library, &name)?;
    Ok((&found.library, name, version))
}

fn version(library: &Library, name: &str) -> std::result::Result<c_int, String> {
    type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;
    // SAFETY: this is the symbol's type in nccl.h, in all versions of NCCL 2.
    let get = unsafe { library.get::<GetVersion>(b"ncclGetVersion\0") }.map_err(|e| why(name, &e))?;
    let mut code = 0;
    // SAFETY: the function writes one int to a valid address, and needs no GPU.
    match unsafe { get(&mut code) } {
        SUCCESS => Ok(code),
        error => Err(format!("{name}: ncclGetVersion answers {error}")),
    }
}

/// The loader's own words, which name the library or the symbol.
fn why(name: &str, error: &libloading::Error) -> String {
    let detail = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    if detail.contains(name) { detail } else { format!("{name}: {detail}") }
}

#[cfg(test)]
mod tests {
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
}
