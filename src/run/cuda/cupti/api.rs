//! CUPTI's functions, loaded once, and its errors.

use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

use cudarc::cupti::sys::CUptiResult;

use base::error::{Error, Result};
pub(super) use inject::records::kind;
use machine::driver::functions::functions;
use machine::driver::libraries::{self, Library};

/// CUPTI buffer callbacks: one requests an empty buffer, one returns it with `valid` bytes of records.
pub(super) type RequestBufferCallback =
    unsafe extern "C" fn(buffer: *mut *mut u8, size: *mut usize, most_records: *mut usize);
pub(super) type CompleteBufferCallback =
    unsafe extern "C" fn(context: *mut c_void, stream: u32, buffer: *mut u8, size: usize, valid: usize);
/// CUPTI event callback; the type of `data` depends on domain and id.
pub(super) type Callback =
    unsafe extern "C" fn(user: *mut c_void, domain: u32, id: u32, data: *const c_void);

functions! {
    /// CUPTI functions that a recording needs. All return a status, 0 on success.
    pub(super) struct CuptiRecordingApi;
    fn cuptiGetVersion(version: *mut u32) -> u32;
    fn cuptiGetResultString(result: u32, text: *mut *const c_char) -> u32;
    fn cuptiGetTimestamp(timestamp: *mut u64) -> u32;
    fn cuptiSubscribe(subscriber: *mut *mut c_void, callback: Callback, user: *mut c_void) -> u32;
    fn cuptiUnsubscribe(subscriber: *mut c_void) -> u32;
    fn cuptiEnableCallback(enable: u32, subscriber: *mut c_void, domain: u32, id: u32) -> u32;
    fn cuptiGetGraphNodeId(node: *mut c_void, id: *mut u64) -> u32;
    fn cuptiActivityRegisterCallbacks(request: RequestBufferCallback, complete: CompleteBufferCallback) -> u32;
    fn cuptiActivityEnable(kind: u32) -> u32;
    fn cuptiActivityDisable(kind: u32) -> u32;
    fn cuptiActivityFlushAll(flag: u32) -> u32;
    fn cuptiActivityGetNextRecord(buffer: *mut u8, valid: usize, record: *mut *mut u8) -> u32;
    fn cuptiActivityGetNumDroppedRecords(
        context: *mut c_void, stream: u32, dropped: *mut usize,
    ) -> u32;
    fn cuptiActivityPushExternalCorrelationId(kind: u32, id: u64) -> u32;
    fn cuptiActivityPopExternalCorrelationId(kind: u32, last: *mut u64) -> u32;
}

const NOT_INITIALIZED: u32 = CUptiResult::CUPTI_ERROR_NOT_INITIALIZED as u32;
const INSUFFICIENT_PRIVILEGES: u32 = CUptiResult::CUPTI_ERROR_INSUFFICIENT_PRIVILEGES as u32;
const MULTIPLE_SUBSCRIBERS: u32 = CUptiResult::CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED as u32;

/// Loads CUPTI once per process.
pub(super) fn api() -> Result<&'static CuptiRecordingApi> {
    static API: OnceLock<Result<CuptiRecordingApi, String>> = OnceLock::new();
    let loaded = API.get_or_init(|| {
        let found = libraries::open_with_path(Library::Cupti).map_err(|e| e.to_string())?;
        CuptiRecordingApi::load(&found.library).map_err(|missing| {
            format!(
                "CUPTI at {} lacks {}: it is older than CUDA 12; --recorder stamps needs no CUPTI",
                found.path.display(),
                missing.join(", ")
            )
        })
    });
    loaded.as_ref().map_err(|message| Error::input(message.clone()))
}

/// Returns an error if CUPTI cannot be loaded, with the remedy. Call it before loading anything large.
pub fn check_available() -> Result<()> {
    api().map(|_| ())
}

/// CUPTI version number (130000 is 13.0), if CUPTI can be loaded.
pub fn version() -> Option<u32> {
    let mut version = 0;
    // SAFETY: writes one number to a valid address.
    (unsafe { (api().ok()?.cuptiGetVersion)(&mut version) } == 0).then_some(version)
}

impl CuptiRecordingApi {
    /// Converts a status to an error with CUPTI's text and, for common causes, the remedy.
    pub fn check(&self, code: u32, action: &str) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let mut address: *const c_char = std::ptr::null();
        // SAFETY: writes the address of a static text; an unknown code leaves it unchanged.
        let status = unsafe { (self.cuptiGetResultString)(code, &mut address) };
        let text = match status == 0 && !address.is_null() {
            // SAFETY: CUPTI's texts are static and zero-terminated.
            true => unsafe { CStr::from_ptr(address) }.to_string_lossy(),
            false => "an unknown error".into(),
        };
        let remedy = match code {
            INSUFFICIENT_PRIVILEGES => {
                "; the driver keeps profiling to root (NVreg_RestrictProfilingToAdminUsers): use --recorder stamps"
            }
            MULTIPLE_SUBSCRIBERS => {
                "; another profiler (nsys, ncu) is attached: run without it, or with --recorder stamps"
            }
            NOT_INITIALIZED => "; is there an NVIDIA driver?",
            _ => "",
        };
        Err(Error::failed(format!("CUPTI: {action}: {text} ({code}){remedy}")))
    }
}
