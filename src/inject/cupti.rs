//! CUPTI in the recorded process: finds the library, and enables activity records and graph resource callbacks.
//!
//! No callback is taken at launches: only records, whose cost is on CUPTI's side. Nothing synchronises a context, and
//! only the writing thread flushes. CUPTI's first interface comes first, since most profilers use it and one process
//! cannot mix both; the second is tried if the first refuses because another profiler is there.

use std::ffi::{CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};

use crate::buffers::{self, CompleteBuffer, CompleteBuffer2, RequestBuffer, RequestBuffer2};
use crate::format::RecordingEvent;
use crate::records::{self, GraphNode, NODE_CLONED, NODE_CREATED, RESOURCE_DOMAIN, kind};
use crate::session::{self, RecordingSession, guarded};
use crate::sys::{self, realtime_ns};

/// Fallback library, found by `ladderscope record`.
pub const LIBRARY_VARIABLE: &str = "LADDERSCOPE_CUPTI";

/// Attributes: buffers come zeroed; type of thread ids.
const ZEROED_OUT: u32 = 5;
const THREAD_ID_TYPE: u32 = 21;
const SYSTEM_THREAD_IDS: u32 = 1;
/// First version whose calls can be enabled one by one (CUDA 12.5).
const CALLS_BY_ID: u32 = 23;
const NOT_COMPATIBLE: u32 = 14;
const OTHER_SUBSCRIBER: u32 = 39;
const DRIVER_CALLS: [u32; 8] = [307, 442, 652, 653, 477, 514, 515, 478];
const RUNTIME_CALLS: [u32; 12] = [211, 214, 430, 431, 269, 311, 312, 41, 51, 131, 137, 165];

type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);

/// `CUpti_SubscriberParams`.
#[repr(C)]
struct SubscriberParams {
    size: usize,
    name: *const c_char,
    /// Gets the name of another subscriber.
    old_name: *mut c_char,
    old_size: usize,
    allow_multiple: u8,
    padding: [u8; 7],
}

macro_rules! api {
    ($(fn $name:ident($($type:ty),*);)* optional { $(fn $optional:ident($($optional_type:ty),*);)* }) => {
        #[allow(non_snake_case)]
        pub(crate) struct CuptiFunctions {
            $($name: unsafe extern "C" fn($($type),*) -> u32,)*
            $($optional: Option<unsafe extern "C" fn($($optional_type),*) -> u32>,)*
        }

        impl CuptiFunctions {
            /// Loads the functions; the error names the first missing one.
            fn load(library: *mut c_void) -> Result<Self, &'static str> {
                let find = |name: &str| {
                    let name = CString::new(name).ok()?;
                    // SAFETY: the library is open.
                    let found = unsafe { sys::dlsym(library, name.as_ptr()) };
                    (!found.is_null()).then_some(found)
                };
                Ok(Self {
                    $($name: {
                        let found = find(stringify!($name)).ok_or(stringify!($name))?;
                        // SAFETY: the function has this type in all versions of CUPTI.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> u32>(found) }
                    },)*
                    $($optional: find(stringify!($optional)).map(|found| {
                        // SAFETY: as above.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($optional_type),*) -> u32>(found) }
                    }),)*
                })
            }
        }
    };
}

api! {
    fn cuptiGetVersion(*mut u32);
    fn cuptiActivityRegisterCallbacks(RequestBuffer, CompleteBuffer);
    fn cuptiActivityEnable(u32);
    fn cuptiActivityFlushAll(u32);
    fn cuptiActivityGetNextRecord(*mut u8, usize, *mut *mut u8);
    fn cuptiActivityGetNumDroppedRecords(*mut c_void, u32, *mut usize);
    optional {
        fn cuptiSubscribe(*mut *mut c_void, Callback, *mut c_void);
        fn cuptiEnableCallback(u32, *mut c_void, u32, u32);
        fn cuptiGetGraphNodeId(*mut c_void, *mut u64);
        fn cuptiSetThreadIdType(u32);
        fn cuptiActivitySetAttribute(u32, *mut usize, *mut c_void);
        fn cuptiActivityEnableDriverApi(u32, u8);
        fn cuptiActivityEnableRuntimeApi(u32, u8);
        fn cuptiSubscribe_v2(*mut *mut c_void, Callback, *mut c_void, *mut SubscriberParams);
        fn cuptiActivityRegisterCallbacks_v2(*mut c_void, RequestBuffer2, CompleteBuffer2);
        fn cuptiActivityEnable_v2(*mut c_void, u32, *mut c_void);
        fn cuptiActivityGetNextRecord_v2(*mut c_void, *mut u8, usize, *mut *mut u8);
        fn cuptiActivityGetNumDroppedRecords_v2(*mut c_void, *mut c_void, u32, *mut usize);
        fn cuptiActivitySetAttribute_v2(*mut c_void, u32, *mut usize, *mut c_void);
        fn cuptiActivityEnableDriverApi_v2(*mut c_void, u32, u8);
        fn cuptiActivityEnableRuntimeApi_v2(*mut c_void, u32, u8);
    }
}

static API: OnceLock<Result<CuptiFunctions, String>> = OnceLock::new();
pub(crate) static VERSION: AtomicU32 = AtomicU32::new(0);
/// Subscriber of CUPTI's second interface; null while the first is used.
static SECOND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static FLUSHING: AtomicBool = AtomicBool::new(false);
static FLUSH_STATUS: AtomicI32 = AtomicI32::new(0);

pub(crate) fn api() -> Option<&'static CuptiFunctions> {
    API.get().and_then(|api| api.as_ref().ok())
}

impl CuptiFunctions {
    /// Steps to the next record of a buffer.
    ///
    /// # Safety
    ///
    /// `buffer` must hold `valid` bytes of records.
    pub(crate) unsafe fn next(&self, buffer: *mut u8, valid: usize, record: &mut *mut u8) -> u32 {
        let second = SECOND.load(Ordering::Acquire);
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self.cuptiActivityGetNextRecord_v2.filter(|_| !second.is_null()) {
                Some(next) => next(second, buffer, valid, record),
                None => (self.cuptiActivityGetNextRecord)(buffer, valid, record),
            }
        }
    }

    /// Number of records that CUPTI dropped since the last call.
    pub(crate) fn dropped(&self) -> u64 {
        let (second, mut count) = (SECOND.load(Ordering::Acquire), 0);
        // SAFETY: writes one number.
        let code = unsafe {
            match self.cuptiActivityGetNumDroppedRecords_v2.filter(|_| !second.is_null()) {
                Some(dropped) => dropped(second, std::ptr::null_mut(), 0, &mut count),
                None => (self.cuptiActivityGetNumDroppedRecords)(std::ptr::null_mut(), 0, &mut count),
            }
        };
        if code == 0 { count as u64 } else { 0 }
    }
}

/// Starts recording. Problems become notes of the part; the program runs on.
pub fn set_up(session: &'static RecordingSession) {
    let problem = match API.get_or_init(load) {
        Ok(api) => enable(api, session).err(),
        Err(problem) => Some(problem.clone()),
    };
    match problem {
        Some(problem) => session.note(problem),
        None => {
            session.has_cupti.store(true, Ordering::Release);
            session::end_before_others();
        }
    }
}

/// Opens CUPTI: the one that the process already has, one next to its CUDA libraries, or the fallback.
fn load() -> Result<CuptiFunctions, String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mapped = |stem: &str| {
        let paths = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
        let is = |path: &&str| {
            Path::new(path).file_name().is_some_and(|n| n.to_string_lossy().starts_with(stem))
        };
        paths.filter(is).map(PathBuf::from).next()
    };
    let mut tried = Vec::new();
    let mut candidates: Vec<(PathBuf, bool)> = Vec::new();
    if let Some(path) = mapped("libcupti.so") {
        candidates.push((path, true));
    }
    for beside in ["libcudart", "libcublas.so", "libcublasLt.so", "libnvrtc.so"] {
        let Some(folder) = mapped(beside).and_then(|path| Some(path.parent()?.to_owned())) else {
            continue;
        };
        // a wheel has a folder for each library: nvidia/cuda_runtime/lib, nvidia/cuda_cupti/lib
        let wheel = folder.parent().and_then(Path::parent).map(|up| up.join("cuda_cupti/lib"));
        let toolkit = folder.join("../extras/CUPTI/lib64");
        for folder in [Some(folder), wheel, Some(toolkit)].into_iter().flatten() {
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            let names = entries.flatten().map(|entry| entry.path());
            let is = |path: &PathBuf| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libcupti.so"))
            };
            let mut found: Vec<PathBuf> = names.filter(is).collect();
            found.sort();
            candidates.extend(found.pop().map(|path| (path, false)));
        }
    }
    let given = std::env::var_os(LIBRARY_VARIABLE).filter(|given| !given.is_empty());
    candidates.extend(given.map(|path| (PathBuf::from(path), false)));
    for name in ["libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so"] {
        candidates.push((PathBuf::from(name), false));
    }
    for (path, is_loaded) in candidates {
        let Ok(name) = CString::new(path.as_os_str().as_encoded_bytes()) else { continue };
        let flags = sys::NOW | if is_loaded { sys::NO_LOAD } else { 0 };
        // SAFETY: the name is zero-terminated; loading runs the library's own initialisation.
        let library = unsafe { sys::dlopen(name.as_ptr(), flags) };
        if library.is_null() {
            continue;
        }
        match CuptiFunctions::load(library) {
            Ok(api) => return Ok(api),
            Err(missing) => tried.push(format!("{} lacks {missing}", path.display())),
        }
    }
    Err(match tried.is_empty() {
        true => "CUPTI was not found: pip install nvidia-cuda-cupti, or set LADDERSCOPE_CUPTI".into(),
        false => format!("no usable CUPTI: {}", tried.join("; ")),
    })
}

/// A call that CUPTI refused.
struct Refused {
    code: u32,
    doing: &'static str,
    /// Name of the other profiler, if CUPTI knows it.
    other: String,
}

impl Refused {
    fn sentence(&self) -> String {
        let Self { code, doing, other } = self;
        let other = if other.is_empty() { "another profiler" } else { other };
        match *code {
            NOT_COMPATIBLE => format!(
                "CUPTI 14 at {doing}: {other} uses CUPTI's other interface in this process; GPU work is not recorded"
            ),
            15 | 999 => format!("CUPTI {code} at {doing}: this CUPTI is newer than the driver allows"),
            35 => format!(
                "CUPTI 35 at {doing}: the driver keeps profiling to root (NVreg_RestrictProfilingToAdminUsers)"
            ),
            OTHER_SUBSCRIBER => format!(
                "CUPTI 39 at {doing}: {other} is attached to this process (as nsys and ncu do); GPU work is not recorded"
            ),
            code => format!("CUPTI {code} at {doing}"),
        }
    }
}

fn check(code: u32, doing: &'static str) -> Result<(), Refused> {
    if code == 0 { Ok(()) } else { Err(Refused { code, doing, other: String::new() }) }
}

fn enable(api: &'static CuptiFunctions, session: &'static RecordingSession) -> Result<(), String> {
    let mut version = 0;
    // SAFETY: writes one number.
    check(unsafe { (api.cuptiGetVersion)(&mut version) }, "its version").map_err(|r| r.sentence())?;
    VERSION.store(version, Ordering::Relaxed);
    buffers::refill();
    match enable_first(api, session, version) {
        Err(first) if matches!(first.code, NOT_COMPATIBLE | OTHER_SUBSCRIBER) => {
            enable_second(api, version).map_err(|second| {
                // the second interface knows the name
                let other = if second.other.is_empty() { first.other.clone() } else { second.other };
                Refused { other, ..first }.sentence()
            })?;
            session.note(
                "another profiler is in this process: recording by CUPTI's second interface".into(),
            );
        }
        result => result.map_err(|refused| refused.sentence())?,
    }
    session.note(format!("CUPTI version {version}"));
    Ok(())
}

/// Records by the interface of CUDA 11 to 13.
fn enable_first(
    api: &'static CuptiFunctions,
    session: &'static RecordingSession,
    version: u32,
) -> Result<(), Refused> {
    // SAFETY: all calls take plain numbers, functions of ours, or valid addresses.
    unsafe {
        if let Some(set) = api.cuptiSetThreadIdType {
            set(SYSTEM_THREAD_IDS);
        }
        if let Some(set) = api.cuptiActivitySetAttribute {
            let (mut size, mut on) = (1usize, 1u8);
            set(ZEROED_OUT, &mut size, (&raw mut on).cast());
        }
        let register = api.cuptiActivityRegisterCallbacks;
        check(register(buffers::request, buffers::complete), "registering buffers")?;
        enable_kinds(
            version,
            |kind| (api.cuptiActivityEnable)(kind),
            api.cuptiActivityEnableDriverApi.map(|enable| move |id| enable(id, 1)),
            api.cuptiActivityEnableRuntimeApi.map(|enable| move |id| enable(id, 1)),
        )?;
        // nodes of graphs; without them collectives in graphs keep no bytes
        if let (Some(subscribe), Some(_)) = (api.cuptiSubscribe, api.cuptiGetGraphNodeId) {
            let mut subscriber = std::ptr::null_mut();
            let code = subscribe(&mut subscriber, resource, std::ptr::null_mut());
            if code == 0 {
                enable_nodes(api, subscriber);
            } else {
                let named = subscribe_second(api).err().map(|refused| refused.other);
                let other = named.filter(|name| !name.is_empty());
                session.note(format!(
                    "CUPTI {code}: {} has the callbacks; collectives in CUDA graphs keep no bytes",
                    other.as_deref().unwrap_or("another profiler")
                ));
            }
        }
    }
    Ok(())
}

/// Records by the interface of CUDA 13.3 and later, which allows several profilers in a process.
fn enable_second(api: &'static CuptiFunctions, version: u32) -> Result<(), Refused> {
    let subscriber = subscribe_second(api)?;
    let missing =
        || Refused { code: NOT_COMPATIBLE, doing: "its second interface", other: String::new() };
    let register = api.cuptiActivityRegisterCallbacks_v2.ok_or_else(missing)?;
    let enable = api.cuptiActivityEnable_v2.ok_or_else(missing)?;
    if api.cuptiActivityGetNextRecord_v2.is_none() {
        return Err(missing());
    }
    SECOND.store(subscriber, Ordering::Release);
    // SAFETY: the subscriber exists; the rest as above.
    unsafe {
        if let Some(set) = api.cuptiActivitySetAttribute_v2 {
            let (mut size, mut on) = (1usize, 1u8);
            set(subscriber, ZEROED_OUT, &mut size, (&raw mut on).cast());
            let (mut size, mut ids) = (4usize, SYSTEM_THREAD_IDS);
            set(subscriber, THREAD_ID_TYPE, &mut size, (&raw mut ids).cast());
        }
        check(
            register(subscriber, buffers::request_second, buffers::complete_second),
            "registering buffers",
        )?;
        enable_kinds(
            version,
            |kind| enable(subscriber, kind, std::ptr::null_mut()),
            api.cuptiActivityEnableDriverApi_v2.map(|enable| move |id| enable(subscriber, id, 1)),
            api.cuptiActivityEnableRuntimeApi_v2.map(|enable| move |id| enable(subscriber, id, 1)),
        )?;
        enable_nodes(api, subscriber);
    }
    Ok(())
}

/// Enables GPU work, and the calls that launch it: one by one, or all.
fn enable_kinds(
    version: u32,
    kind: impl Fn(u32) -> u32,
    driver: Option<impl Fn(u32) -> u32>,
    runtime: Option<impl Fn(u32) -> u32>,
) -> Result<(), Refused> {
    check(kind(kind::CONCURRENT_KERNEL), "enabling records of kernels")?;
    check(kind(kind::MEMCPY), "enabling records of copies")?;
    check(kind(kind::MEMSET), "enabling records of fills")?;
    kind(kind::MEMCPY2);
    match driver.zip(runtime).filter(|_| version >= CALLS_BY_ID) {
        Some((driver, runtime)) => {
            for id in DRIVER_CALLS {
                driver(id);
            }
            for id in RUNTIME_CALLS {
                runtime(id);
            }
        }
        None => {
            kind(kind::DRIVER);
            kind(kind::RUNTIME);
        }
    }
    Ok(())
}

/// Subscribes while other profilers may be active; the error names one that forbids it.
fn subscribe_second(api: &'static CuptiFunctions) -> Result<*mut c_void, Refused> {
    let doing = "attaching beside it";
    let Some(subscribe) = api.cuptiSubscribe_v2 else {
        return Err(Refused { code: NOT_COMPATIBLE, doing, other: String::new() });
    };
    let mut old = [0 as c_char; 128];
    let mut params = SubscriberParams {
        size: 40,
        name: c"ladderscope".as_ptr(),
        old_name: old.as_mut_ptr(),
        old_size: old.len(),
        allow_multiple: 1,
        padding: [0; 7],
    };
    let mut subscriber = std::ptr::null_mut();
    // SAFETY: all addresses are valid; the callback is ours.
    let code = unsafe { subscribe(&mut subscriber, resource, std::ptr::null_mut(), &mut params) };
    check(code, doing).map_err(|refused| {
        let bytes: Vec<u8> = old.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
        Refused { other: String::from_utf8_lossy(&bytes).into_owned(), ..refused }
    })?;
    Ok(subscriber)
}

/// # Safety
///
/// The subscriber must exist.
unsafe fn enable_nodes(api: &CuptiFunctions, subscriber: *mut c_void) {
    for id in [NODE_CREATED, NODE_CLONED] {
        if let Some(enable) = api.cuptiEnableCallback {
            // SAFETY: guaranteed by the caller.
            unsafe { enable(1, subscriber, RESOURCE_DOMAIN, id) };
        }
    }
}

/// Nodes of graphs, as they are created and cloned into an executable graph. Kept whatever the window: graphs are
/// mostly captured before it.
unsafe extern "C" fn resource(_user: *mut c_void, domain: u32, id: u32, data: *const c_void) {
    guarded((), |session| {
        let Some(number) = api().and_then(|api| api.cuptiGetGraphNodeId) else { return };
        // SAFETY: CUPTI's own argument.
        match unsafe { records::graph_node((domain, id), data.cast(), number) } {
            Some(GraphNode::Created { node }) => {
                let (time_ns, thread) = (realtime_ns(), session.thread());
                session.add_always(&RecordingEvent::NodeCreated { time_ns, thread, node });
            }
            Some(GraphNode::Cloned { original, node }) if original != 0 => {
                session.add_always(&RecordingEvent::NodeCloned { original, node });
            }
            Some(GraphNode::Cloned { .. }) | None => {}
        }
    });
}

/// Has CUPTI return its buffers; at the end also those with incomplete records. Called by the writing thread alone.
pub(crate) fn flush(session: &'static RecordingSession, is_last: bool) {
    let Some(api) = api() else { return };
    buffers::refill();
    if !FLUSHING.swap(true, Ordering::AcqRel) {
        // SAFETY: takes a number; buffers return through `complete_buffer`.
        let code = unsafe { (api.cuptiActivityFlushAll)(u32::from(is_last)) };
        FLUSHING.store(false, Ordering::Release);
        if FLUSH_STATUS.swap(code as i32, Ordering::Relaxed) != code as i32 && code != 0 && !is_last {
            session.note(format!("CUPTI {code} at flushing: later GPU work may be missing"));
        }
    }
    buffers::report_losses(session);
}

/// The CUDA device that is current on this thread.
pub(crate) fn current_device() -> Option<i32> {
    // SAFETY: the driver is loaded in every process with a communicator; otherwise the symbol is missing.
    unsafe {
        let driver = sys::dlopen(c"libcuda.so.1".as_ptr(), sys::NOW | sys::NO_LOAD);
        let function = (!driver.is_null()).then(|| sys::dlsym(driver, c"cuCtxGetDevice".as_ptr()))?;
        if function.is_null() {
            return None;
        }
        type GetDevice = unsafe extern "C" fn(*mut i32) -> u32;
        let function = std::mem::transmute::<*mut c_void, GetDevice>(function);
        let mut device = -1;
        (function(&mut device) == 0).then_some(device)
    }
}
