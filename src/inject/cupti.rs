//! CUPTI in the recorded process: finds the library, enables activity records and graph resource callbacks, and copies
//! what the trace needs out of each buffer.
//!
//! No callback is taken at launches: only records, whose cost is on CUPTI's side. Nothing synchronises a context, and
//! only the writing thread flushes.

use std::alloc::{Layout as Allocation, alloc_zeroed};
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::format::Event;
use crate::records::{self, Layout, field, kind};
use crate::session::{self, Session, guarded};
use crate::sys::{self, realtime_ns};

/// Fallback library, found by `ladderscope record`.
pub const LIBRARY_VARIABLE: &str = "LADDERSCOPE_CUPTI";

const BUFFER: usize = 1 << 20;
/// Maximum number of buffers.
const BUFFERS: u32 = 256;
const RESOURCE_DOMAIN: u32 = 3;
const NODE_CREATED: u32 = 13;
const NODE_CLONED: u32 = 20;
const ZEROED_OUT: u32 = 5;
const SYSTEM_THREAD_IDS: u32 = 1;
/// First version whose calls can be enabled one by one (CUDA 12.5).
const CALLS_BY_ID: u32 = 23;
/// First version that may be refused a buffer (CUDA 12.9).
const MAY_REFUSE: u32 = 27;
const DRIVER_CALLS: [u32; 8] = [307, 442, 652, 653, 477, 514, 515, 478];
const RUNTIME_CALLS: [u32; 12] = [211, 214, 430, 431, 269, 311, 312, 41, 51, 131, 137, 165];

type RequestBuffer = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type CompleteBuffer = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);

macro_rules! api {
    ($(fn $name:ident($($type:ty),*);)* optional { $(fn $optional:ident($($optional_type:ty),*);)* }) => {
        #[allow(non_snake_case)]
        struct Api {
            $($name: unsafe extern "C" fn($($type),*) -> u32,)*
            $($optional: Option<unsafe extern "C" fn($($optional_type),*) -> u32>,)*
        }

        impl Api {
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
    }
}

static API: OnceLock<Result<Api, String>> = OnceLock::new();
static VERSION: AtomicU32 = AtomicU32::new(0);
static UNTIMED: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);
static MADE: AtomicU32 = AtomicU32::new(0);
static FLUSHING: AtomicBool = AtomicBool::new(false);
static FLUSH_STATUS: AtomicI32 = AtomicI32::new(0);

/// Zeroed buffers, by address.
static READY: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static USED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn api() -> Option<&'static Api> {
    API.get().and_then(|api| api.as_ref().ok())
}

/// Starts recording. Problems become notes of the part; the program runs on.
pub fn set_up(session: &'static Session) {
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
fn load() -> Result<Api, String> {
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
        match Api::load(library) {
            Ok(api) => return Ok(api),
            Err(missing) => tried.push(format!("{} lacks {missing}", path.display())),
        }
    }
    Err(match tried.is_empty() {
        true => "CUPTI was not found: pip install nvidia-cuda-cupti, or set LADDERSCOPE_CUPTI".into(),
        false => format!("no usable CUPTI: {}", tried.join("; ")),
    })
}

fn enable(api: &'static Api, session: &'static Session) -> Result<(), String> {
    let mut version = 0;
    // SAFETY: all calls take plain numbers, functions of ours, or valid addresses.
    unsafe {
        check((api.cuptiGetVersion)(&mut version), "its version")?;
        VERSION.store(version, Ordering::Relaxed);
        if let Some(set) = api.cuptiSetThreadIdType {
            set(SYSTEM_THREAD_IDS);
        }
        if let Some(set) = api.cuptiActivitySetAttribute {
            let (mut size, mut on) = (1usize, 1u8);
            set(ZEROED_OUT, &mut size, (&raw mut on).cast());
        }
        refill(4);
        check(
            (api.cuptiActivityRegisterCallbacks)(request_buffer, complete_buffer),
            "registering buffers",
        )?;
        for kind in [kind::CONCURRENT_KERNEL, kind::MEMCPY, kind::MEMSET] {
            check((api.cuptiActivityEnable)(kind), &format!("enabling records of kind {kind}"))?;
        }
        (api.cuptiActivityEnable)(kind::MEMCPY2);
        let by_id = api.cuptiActivityEnableDriverApi.zip(api.cuptiActivityEnableRuntimeApi);
        match by_id.filter(|_| version >= CALLS_BY_ID) {
            Some((driver, runtime)) => {
                for id in DRIVER_CALLS {
                    driver(id, 1);
                }
                for id in RUNTIME_CALLS {
                    runtime(id, 1);
                }
            }
            None => {
                (api.cuptiActivityEnable)(kind::DRIVER);
                (api.cuptiActivityEnable)(kind::RUNTIME);
            }
        }
        // nodes of graphs; without them collectives in graphs keep no bytes
        if let (Some(subscribe), Some(enable), Some(_)) =
            (api.cuptiSubscribe, api.cuptiEnableCallback, api.cuptiGetGraphNodeId)
        {
            let mut subscriber = std::ptr::null_mut();
            let code = subscribe(&mut subscriber, resource, std::ptr::null_mut());
            if code == 0 {
                for id in [NODE_CREATED, NODE_CLONED] {
                    enable(1, subscriber, RESOURCE_DOMAIN, id);
                }
            } else {
                session.note(format!(
                    "CUPTI {code}: another profiler has the callbacks; collectives in CUDA graphs keep no bytes"
                ));
            }
        }
    }
    session.note(format!("CUPTI version {version}"));
    Ok(())
}

fn check(code: u32, doing: &str) -> Result<(), String> {
    match code {
        0 => Ok(()),
        14 => Err(format!(
            "CUPTI 14 at {doing}: another profiler uses CUPTI's newer interface in this process; GPU work is not recorded"
        )),
        15 | 999 => Err(format!("CUPTI {code} at {doing}: this CUPTI is newer than the driver allows")),
        35 => Err(format!(
            "CUPTI 35 at {doing}: the driver keeps profiling to root (NVreg_RestrictProfilingToAdminUsers)"
        )),
        39 => {
            Err(format!("CUPTI 39 at {doing}: another profiler (nsys, ncu) is attached to this process"))
        }
        code => Err(format!("CUPTI {code} at {doing}")),
    }
}

/// Makes zeroed buffers ready, outside the program's threads where possible.
fn refill(count: usize) {
    loop {
        // first what CUPTI returned
        let used = USED.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let address = match used {
            Some(address) => {
                // SAFETY: a buffer of ours that nobody uses.
                unsafe { std::ptr::write_bytes(address as *mut u8, 0, BUFFER) };
                Some(address)
            }
            None if READY.lock().unwrap_or_else(PoisonError::into_inner).len() < count => new_buffer(),
            None => None,
        };
        let Some(address) = address else { return };
        READY.lock().unwrap_or_else(PoisonError::into_inner).push(address);
    }
}

fn new_buffer() -> Option<usize> {
    if MADE.fetch_add(1, Ordering::Relaxed) >= BUFFERS {
        MADE.fetch_sub(1, Ordering::Relaxed);
        return None;
    }
    let layout = Allocation::from_size_align(BUFFER, 64).ok()?;
    // SAFETY: the size is not zero.
    let address = unsafe { alloc_zeroed(layout) } as usize;
    (address != 0).then_some(address)
}

unsafe extern "C" fn request_buffer(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    let ready = READY.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let address = ready.or_else(new_buffer).unwrap_or_else(|| {
        REFUSED.fetch_add(1, Ordering::Relaxed);
        // before CUDA 12.9 CUPTI crashes without a buffer
        match VERSION.load(Ordering::Relaxed) < MAY_REFUSE {
            true => Allocation::from_size_align(BUFFER, 64)
                // SAFETY: the size is not zero.
                .map_or(0, |layout| unsafe { alloc_zeroed(layout) } as usize),
            false => 0,
        }
    });
    // SAFETY: CUPTI's addresses.
    unsafe {
        *buffer = address as *mut u8;
        *size = if address == 0 { 0 } else { BUFFER };
        *most = 0;
    }
}

unsafe extern "C" fn complete_buffer(
    _context: *mut c_void,
    _stream: u32,
    buffer: *mut u8,
    _size: usize,
    valid: usize,
) {
    if buffer.is_null() {
        return;
    }
    if let (Some(session), Some(api)) = (Session::current(), api()) {
        // not `guarded`: the writing thread is inside when it flushes
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // SAFETY: CUPTI returns a buffer with `valid` bytes of records.
            unsafe { copy_records(session, api, buffer, valid) }
        }));
        drop(read);
    }
    USED.lock().unwrap_or_else(PoisonError::into_inner).push(buffer as usize);
}

/// # Safety
///
/// `buffer` must hold `valid` bytes of records.
unsafe fn copy_records(session: &'static Session, api: &Api, buffer: *mut u8, valid: usize) {
    let mut events: Vec<u8> = Vec::with_capacity(valid / 2);
    let mut record = std::ptr::null_mut();
    let mut untimed = 0u64;
    // SAFETY: CUPTI steps through its own buffer.
    while unsafe { (api.cuptiActivityGetNextRecord)(buffer, valid, &mut record) } == 0
        && !record.is_null()
    {
        // SAFETY: the record is complete, and its kind has these fields.
        match unsafe { convert(session, record) } {
            Converted::Event(event, time) => {
                if session.wants(time) {
                    event.encode(&mut events);
                }
            }
            Converted::Untimed => untimed += 1,
            Converted::Other => {}
        }
    }
    if untimed > 0 {
        UNTIMED.fetch_add(untimed, Ordering::Relaxed);
    }
    if !events.is_empty() {
        session.add(sys::thread_id(), |to| to.extend_from_slice(&events));
    }
    let mut dropped = 0;
    // SAFETY: writes one number.
    if unsafe { (api.cuptiActivityGetNumDroppedRecords)(std::ptr::null_mut(), 0, &mut dropped) } == 0 {
        DROPPED.fetch_add(dropped as u64, Ordering::Relaxed);
    }
}

/// An activity record, as an event with its start.
#[derive(Debug, PartialEq, Eq)]
pub enum Converted {
    Event(Event, u64),
    /// GPU work without usable times.
    Untimed,
    Other,
}

/// Converts the record at an address.
///
/// # Safety
///
/// `record` must point to a complete record written by CUPTI 11.8 or newer.
pub unsafe fn convert(session: &Session, record: *const u8) -> Converted {
    // SAFETY: every record begins with its kind; the offsets below are within a record of that kind.
    unsafe {
        let of: u32 = field(record, 0);
        let at: &Layout = match of {
            kind::CONCURRENT_KERNEL => &records::KERNEL,
            kind::MEMCPY => &records::MEMCPY,
            kind::MEMCPY2 => &records::MEMCPY2,
            kind::MEMSET => &records::MEMSET,
            kind::DRIVER | kind::RUNTIME => {
                let start_ns: u64 = field(record, records::CALL_START);
                let call = Event::Call {
                    start_ns,
                    end_ns: field(record, records::CALL_END),
                    thread: field(record, records::CALL_THREAD),
                    correlation: field(record, records::CALL_CORRELATION),
                    id: field(record, records::CALL_ID),
                    runtime: u8::from(of == kind::RUNTIME),
                };
                return Converted::Event(call, start_ns);
            }
            _ => return Converted::Other,
        };
        let (start_ns, end_ns): (u64, u64) = (field(record, at.start), field(record, at.end));
        if start_ns == 0 || end_ns < start_ns {
            return Converted::Untimed;
        }
        let (device, stream) = (field(record, at.device), field(record, at.stream));
        let correlation = field(record, at.correlation);
        let node = field(record, at.graph_node);
        let event = match of {
            kind::CONCURRENT_KERNEL => {
                let name: *const c_char = field(record, records::KERNEL_NAME);
                // names go with their module: copied now
                let name =
                    if name.is_null() { 0 } else { session.text(CStr::from_ptr(name).to_bytes()) };
                let (context, graph) = (field(record, at.context), field(record, at.graph));
                Event::Kernel {
                    start_ns,
                    end_ns,
                    device,
                    context,
                    stream,
                    correlation,
                    name,
                    node,
                    graph,
                }
            }
            _ => Event::Copy {
                start_ns,
                end_ns,
                device,
                stream,
                correlation,
                kind: if of == kind::MEMSET { 0 } else { field(record, records::COPY_KIND) },
                is_fill: u8::from(of == kind::MEMSET),
                bytes: field(record, records::BYTES),
                node,
            },
        };
        Converted::Event(event, start_ns)
    }
}

/// Nodes of graphs, as they are created and cloned into an executable graph.
unsafe extern "C" fn resource(_user: *mut c_void, domain: u32, id: u32, data: *const c_void) {
    guarded((), |session| {
        let Some(node_id) = api().and_then(|api| api.cuptiGetGraphNodeId) else { return };
        if domain != RESOURCE_DOMAIN || data.is_null() {
            return;
        }
        // SAFETY: CUpti_ResourceData with a CUpti_GraphData for these ids; a node lives during its callback.
        unsafe {
            let graph: *const u8 = field(data.cast(), 16);
            if graph.is_null() {
                return;
            }
            let number = |at: usize| {
                let node: *mut c_void = field(graph, at);
                let mut number = 0;
                (!node.is_null() && node_id(node, &mut number) == 0).then_some(number)
            };
            let Some(node) = number(16) else { return };
            // kept whatever the window: graphs are mostly captured before it
            match id {
                NODE_CREATED => {
                    let (time_ns, thread) = (realtime_ns(), session.thread());
                    session.add_always(&Event::NodeCreated { time_ns, thread, node });
                }
                NODE_CLONED => {
                    if let Some(original) = number(24) {
                        session.add_always(&Event::NodeCloned { original, node });
                    }
                }
                _ => {}
            }
        }
    });
}

/// Has CUPTI return its buffers; at the end also those with incomplete records. Called by the writing thread alone.
pub(crate) fn flush(session: &'static Session, is_last: bool) {
    let Some(api) = api() else { return };
    refill(4);
    if !FLUSHING.swap(true, Ordering::AcqRel) {
        // SAFETY: takes a number; buffers return through `complete_buffer`.
        let code = unsafe { (api.cuptiActivityFlushAll)(u32::from(is_last)) };
        FLUSHING.store(false, Ordering::Release);
        if FLUSH_STATUS.swap(code as i32, Ordering::Relaxed) != code as i32 && code != 0 && !is_last {
            session.note(format!("CUPTI {code} at flushing: later GPU work may be missing"));
        }
    }
    let (count, dropped) = (UNTIMED.swap(0, Ordering::Relaxed), DROPPED.swap(0, Ordering::Relaxed));
    if count > 0 || dropped > 0 {
        session.add_always(&Event::Untimed { count, dropped });
    }
    let refused = REFUSED.swap(0, Ordering::Relaxed);
    if refused > 0 {
        session.note(format!("{refused} times no buffer was free for GPU records; some are lost"));
    }
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
