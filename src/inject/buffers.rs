//! Buffers that CUPTI fills with activity records, and what is copied out of them into the part.

use std::alloc::{Layout as Allocation, alloc_zeroed};
use std::ffi::{CStr, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::cupti::{self, CuptiFunctions};
use crate::format::RecordingEvent;
use crate::records::{self, ActivityRecord, WorkRecord, WorkRecordKind};
use crate::session::{RecordingSession, lock};
use crate::sys;

pub(crate) type RequestBuffer = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
pub(crate) type CompleteBuffer = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
/// Callback of CUPTI's second interface; the last argument describes the buffer.
pub(crate) type RequestBuffer2 =
    unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize, *const c_void);
pub(crate) type CompleteBuffer2 = unsafe extern "C" fn(*mut u8, usize, usize, *const c_void);

const BUFFER: usize = 1 << 20;
/// Maximum number of buffers.
const BUFFERS: u32 = 256;
/// Zeroed buffers kept ready.
const READY_BUFFERS: usize = 4;
/// First version that may be refused a buffer (CUDA 12.9).
const MAY_REFUSE: u32 = 27;

static UNTIMED: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);
static MADE: AtomicU32 = AtomicU32::new(0);

/// Zeroed buffers, by address.
static READY: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static USED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Makes zeroed buffers ready, outside the program's threads where possible.
pub(crate) fn refill() {
    loop {
        // first what CUPTI returned
        let used = lock(&USED).pop();
        let address = match used {
            Some(address) => {
                // SAFETY: a buffer of ours that nobody uses.
                unsafe { std::ptr::write_bytes(address as *mut u8, 0, BUFFER) };
                Some(address)
            }
            None if lock(&READY).len() < READY_BUFFERS => new_buffer(),
            None => None,
        };
        let Some(address) = address else { return };
        lock(&READY).push(address);
    }
}

fn new_buffer() -> Option<usize> {
    if MADE.fetch_add(1, Ordering::Relaxed) >= BUFFERS {
        MADE.fetch_sub(1, Ordering::Relaxed);
        return None;
    }
    allocated()
}

fn allocated() -> Option<usize> {
    let layout = Allocation::from_size_align(BUFFER, 64).ok()?;
    // SAFETY: the size is not zero.
    let address = unsafe { alloc_zeroed(layout) } as usize;
    (address != 0).then_some(address)
}

pub(crate) unsafe extern "C" fn request(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    let ready = lock(&READY).pop();
    let address = ready.or_else(new_buffer).or_else(|| {
        REFUSED.fetch_add(1, Ordering::Relaxed);
        // before CUDA 12.9 CUPTI crashes without a buffer
        (cupti::VERSION.load(Ordering::Relaxed) < MAY_REFUSE).then(allocated).flatten()
    });
    // SAFETY: CUPTI's addresses.
    unsafe {
        *buffer = address.unwrap_or(0) as *mut u8;
        *size = if address.is_none() { 0 } else { BUFFER };
        *most = 0;
    }
}

pub(crate) unsafe extern "C" fn request_second(
    buffer: *mut *mut u8,
    size: *mut usize,
    most: *mut usize,
    _about: *const c_void,
) {
    // SAFETY: CUPTI's addresses.
    unsafe { request(buffer, size, most) };
}

pub(crate) unsafe extern "C" fn complete(
    _context: *mut c_void,
    _stream: u32,
    buffer: *mut u8,
    _size: usize,
    valid: usize,
) {
    if buffer.is_null() {
        return;
    }
    if let (Some(session), Some(api)) = (RecordingSession::current(), cupti::api()) {
        // not `guarded`: the writing thread is inside when it flushes
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // SAFETY: CUPTI returns a buffer with `valid` bytes of records.
            unsafe { copy_records(session, api, buffer, valid) }
        }));
        drop(read);
    }
    lock(&USED).push(buffer as usize);
}

pub(crate) unsafe extern "C" fn complete_second(
    buffer: *mut u8,
    size: usize,
    valid: usize,
    _about: *const c_void,
) {
    // SAFETY: CUPTI's buffer.
    unsafe { complete(std::ptr::null_mut(), 0, buffer, size, valid) };
}

/// # Safety
///
/// `buffer` must hold `valid` bytes of records.
unsafe fn copy_records(
    session: &'static RecordingSession,
    api: &CuptiFunctions,
    buffer: *mut u8,
    valid: usize,
) {
    let mut events: Vec<u8> = Vec::with_capacity(valid / 2);
    let mut untimed = 0;
    let take = |record: ActivityRecord<'_>| {
        let (time, event) = match record {
            ActivityRecord::Work(work) if !work.is_timed() => {
                untimed += 1;
                return;
            }
            // a name is copied only if its kernel is wanted
            ActivityRecord::Work(work) if session.wants(work.start_ns) => {
                (work.start_ns, of_work(session, &work))
            }
            ActivityRecord::Call { start_ns, end_ns, thread, correlation, id, is_runtime } => {
                let runtime = u8::from(is_runtime);
                (start_ns, RecordingEvent::Call { start_ns, end_ns, thread, correlation, id, runtime })
            }
            _ => return,
        };
        if session.wants(time) {
            event.encode(&mut events);
        }
    };
    // SAFETY: CUPTI steps through its own buffer.
    unsafe { records::each(|record| api.next(buffer, valid, record), take) };
    if untimed > 0 {
        UNTIMED.fetch_add(untimed, Ordering::Relaxed);
    }
    if !events.is_empty() {
        session.add(sys::thread_id(), |to| to.extend_from_slice(&events));
    }
    DROPPED.fetch_add(api.dropped(), Ordering::Relaxed);
}

/// Kernel names go with their module: they are copied now.
fn of_work(session: &RecordingSession, work: &WorkRecord<'_>) -> RecordingEvent {
    let WorkRecord { start_ns, end_ns, device, context, stream, correlation, node, graph, .. } = *work;
    let (kind, is_fill, bytes) = match work.what {
        WorkRecordKind::Kernel(name) => {
            let name = name.map_or(0, |name: &CStr| session.text(name.to_bytes()));
            return RecordingEvent::Kernel {
                start_ns,
                end_ns,
                device,
                context,
                stream,
                correlation,
                name,
                node,
                graph,
            };
        }
        WorkRecordKind::Copy { direction, bytes } => (direction, 0, bytes),
        WorkRecordKind::Fill { bytes } => (0, 1, bytes),
    };
    RecordingEvent::Copy { start_ns, end_ns, device, stream, correlation, kind, is_fill, bytes, node }
}

/// Writes counts of lost records since the last call.
pub(crate) fn report_losses(session: &'static RecordingSession) {
    let (count, dropped) = (UNTIMED.swap(0, Ordering::Relaxed), DROPPED.swap(0, Ordering::Relaxed));
    if count > 0 || dropped > 0 {
        session.add_always(&RecordingEvent::Untimed { count, dropped });
    }
    let refused = REFUSED.swap(0, Ordering::Relaxed);
    if refused > 0 {
        session.note(format!("{refused} times no buffer was free for GPU records; some are lost"));
    }
}
