//! NVTX: the function tables of its core, its domains and its payload extension.
//!
//! NCCL gives communicator, bytes and operation of each call as payload of its ranges, and the communicator's rank at
//! the end of its initialisation; CUPTI's own NVTX records lack both before CUDA 13.0.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::format::RecordingEvent;
use crate::session::{RecordingSession, guarded};
use crate::sys::realtime_ns;

type Function = *const c_void;
/// NVTX's `NvtxGetExportTableFunc_t`.
pub type GetExportTable = unsafe extern "C" fn(u32) -> *const ExportTable;

#[repr(C)]
#[derive(Debug)]
pub struct ExportTable {
    size: usize,
    module_functions: Option<unsafe extern "C" fn(i32, *mut *mut *mut Function, *mut u32) -> i32>,
}

const CALLBACKS: u32 = 1;
const CORE: i32 = 1;
const DOMAINS: i32 = 5;
const PAYLOAD_MODULE: u16 = 2;
/// Returned by pushes and pops: levels are not tracked.
const NO_LEVEL: i32 = -2;
/// Most bytes read of a name.
const MOST_NAME: usize = 1024;

/// `nvtxEventAttributes_t`, of which later versions keep these fields.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    payload_count: i32,
    payload: u64,
    message_type: i32,
    _unused: i32,
    message: *const c_void,
}

const EXTENDED_PAYLOAD: i32 = 0xDFBD_0009_u32 as i32;

/// `nvtxPayloadData_t`.
#[repr(C)]
struct PayloadData {
    schema: u64,
    size: usize,
    data: *const u8,
}

/// A domain or registered text, as our handle to the program.
struct Named {
    name: Vec<u8>,
}

type Payload = (u64, [u64; 4]);
const NO_PAYLOAD: Payload = (0, [0; 4]);

/// # Safety
///
/// `data` is null or the address of `count` payloads.
unsafe fn payload(data: *const PayloadData, count: usize) -> Payload {
    // SAFETY: guaranteed by the caller; NVTX requires the sizes to be right.
    unsafe {
        let Some(data) = data.as_ref().filter(|data| count > 0 && !data.data.is_null()) else {
            return NO_PAYLOAD;
        };
        let mut bytes = [0u8; 32];
        let size = data.size.min(bytes.len());
        std::ptr::copy_nonoverlapping(data.data, bytes.as_mut_ptr(), size);
        let word = |at: usize| u64::from_le_bytes(bytes[8 * at..][..8].try_into().unwrap_or_default());
        (data.schema, [word(0), word(1), word(2), word(3)])
    }
}

unsafe fn text(text: *const c_char) -> Vec<u8> {
    if text.is_null() {
        return Vec::new();
    }
    // SAFETY: NVTX requires a zero-terminated text.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    bytes[..bytes.len().min(MOST_NAME)].to_vec()
}

/// A text of `wchar_t`, which has 32 bits on Linux.
unsafe fn wide(text: *const u32) -> Vec<u8> {
    let mut found = String::new();
    for at in 0..MOST_NAME {
        // SAFETY: NVTX requires a zero-terminated text, and its end was not reached yet.
        let Some(unit) = (!text.is_null()).then(|| unsafe { text.add(at).read_unaligned() }) else {
            break;
        };
        if unit == 0 {
            break;
        }
        found.push(char::from_u32(unit).unwrap_or('?'));
    }
    found.into_bytes()
}

unsafe fn named<'a>(handle: *const c_void) -> &'a [u8] {
    // SAFETY: the program passes handles that we gave it, which are leaked, or null.
    unsafe { handle.cast::<Named>().as_ref() }.map_or(&[], |named| &named.name)
}

fn handle(name: Vec<u8>) -> *const c_void {
    Box::into_raw(Box::new(Named { name })).cast()
}

/// Number of the message, and the payload of attributes.
unsafe fn attributes(session: &RecordingSession, attributes: *const Attributes) -> (u32, Payload) {
    // SAFETY: NVTX requires initialised attributes; fields beyond their size are not read.
    unsafe {
        let Some(attributes) = attributes.as_ref().filter(|attributes| attributes.size >= 48) else {
            return (session.text(b""), NO_PAYLOAD);
        };
        let name = match attributes.message_type {
            1 => session.text(&text(attributes.message.cast())),
            2 => session.text(&wide(attributes.message.cast())),
            3 => session.text(named(attributes.message)),
            _ => session.text(b""),
        };
        let payload = match attributes.payload_type {
            EXTENDED_PAYLOAD => payload(
                attributes.payload as *const PayloadData,
                attributes.payload_count.max(0) as usize,
            ),
            _ => NO_PAYLOAD,
        };
        (name, payload)
    }
}

/// Numbers explicit ranges and domains; never reused within a process.
fn next_number() -> u64 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    u64::from(LAST.fetch_add(1, Ordering::Relaxed)) + 1
}

/// Number of a range's name, and its payload.
type Message<'a> = &'a dyn Fn(&RecordingSession) -> (u32, Payload);

/// Adds an event of this thread, made of its time, thread and domain. Not generic: it is inlined nowhere.
fn add(domain: *const c_void, event: &dyn Fn(&RecordingSession, u64, u32, u32) -> RecordingEvent) {
    guarded((), |session| {
        let time_ns = realtime_ns();
        if session.wants(time_ns) {
            // SAFETY: a handle of ours or null.
            let domain = domain_number(session, unsafe { named(domain) });
            let thread = session.thread();
            let event = event(session, time_ns, thread, domain);
            session.add(thread, |to| event.encode(to));
        }
    });
}

fn push(domain: *const c_void, name: Message<'_>) -> i32 {
    add(domain, &|session, time_ns, thread, domain| {
        let (name, (schema, payload)) = name(session);
        RecordingEvent::Push { time_ns, thread, domain, name, schema, payload }
    });
    NO_LEVEL
}

fn pop(domain: *const c_void, (schema, payload): Payload) -> i32 {
    add(domain, &|_, time_ns, thread, domain| RecordingEvent::Pop {
        time_ns,
        thread,
        domain,
        schema,
        payload,
    });
    NO_LEVEL
}

fn start(domain: *const c_void, name: Message<'_>) -> u64 {
    let id = next_number();
    add(domain, &|session, time_ns, thread, domain| {
        let (name, (schema, payload)) = name(session);
        RecordingEvent::Start { time_ns, thread, domain, name, id, schema, payload }
    });
    id
}

fn stop(id: u64) {
    add(DEFAULT, &|_, time_ns, _, _| RecordingEvent::Stop { time_ns, id });
}

fn mark(domain: *const c_void, name: Message<'_>) {
    add(domain, &|session, time_ns, thread, domain| {
        let (name, _) = name(session);
        RecordingEvent::Mark { time_ns, thread, domain, name }
    });
}

fn domain_number(session: &RecordingSession, name: &[u8]) -> u32 {
    if name.is_empty() { 0 } else { session.text(name) }
}

const DEFAULT: *const c_void = std::ptr::null();

/// Functions of the tables. All pointers are the program's, valid as NVTX requires.
mod calls {
    use super::*;

    macro_rules! calls {
        ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? $body:block)*) => {$(
            pub(super) unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
                // SAFETY: NVTX requires valid arguments of its callers.
                #[allow(unused_unsafe)]
                unsafe { $body }
            }
        )*};
    }

    type Ascii = *const c_char;
    type Wide = *const u32;
    type Domain = *const c_void;
    type Data = *const PayloadData;

    calls! {
        fn mark_ex(a: *const Attributes) { mark(DEFAULT, &|s| attributes(s, a)) }
        fn mark_a(t: Ascii) { mark(DEFAULT, &|s| (s.text(&text(t)), NO_PAYLOAD)) }
        fn mark_w(t: Wide) { mark(DEFAULT, &|s| (s.text(&wide(t)), NO_PAYLOAD)) }
        fn start_ex(a: *const Attributes) -> u64 { start(DEFAULT, &|s| attributes(s, a)) }
        fn start_a(t: Ascii) -> u64 { start(DEFAULT, &|s| (s.text(&text(t)), NO_PAYLOAD)) }
        fn start_w(t: Wide) -> u64 { start(DEFAULT, &|s| (s.text(&wide(t)), NO_PAYLOAD)) }
        fn end(id: u64) { stop(id) }
        fn push_ex(a: *const Attributes) -> i32 { push(DEFAULT, &|s| attributes(s, a)) }
        fn push_a(t: Ascii) -> i32 { push(DEFAULT, &|s| (s.text(&text(t)), NO_PAYLOAD)) }
        fn push_w(t: Wide) -> i32 { push(DEFAULT, &|s| (s.text(&wide(t)), NO_PAYLOAD)) }
        fn pop_any() -> i32 { pop(DEFAULT, NO_PAYLOAD) }
        fn thread_name_a(thread: u32, t: Ascii) {
            guarded((), |s| s.add_always(&RecordingEvent::ThreadName { thread, name: s.text(&text(t)) }))
        }
        fn domain_mark(d: Domain, a: *const Attributes) { mark(d, &|s| attributes(s, a)) }
        fn domain_start(d: Domain, a: *const Attributes) -> u64 { start(d, &|s| attributes(s, a)) }
        fn domain_end(_d: Domain, id: u64) { stop(id) }
        fn domain_push(d: Domain, a: *const Attributes) -> i32 { push(d, &|s| attributes(s, a)) }
        fn domain_pop(d: Domain) -> i32 { pop(d, NO_PAYLOAD) }
        fn register_a(_d: Domain, t: Ascii) -> *const c_void {
            guarded(DEFAULT, |_| handle(text(t)))
        }
        fn register_w(_d: Domain, t: Wide) -> *const c_void {
            guarded(DEFAULT, |_| handle(wide(t)))
        }
        fn create_a(t: Ascii) -> *const c_void { guarded(DEFAULT, |_| handle(text(t))) }
        fn create_w(t: Wide) -> *const c_void { guarded(DEFAULT, |_| handle(wide(t))) }
        // handles stay valid: ranges of the domain may still be open
        fn destroy(_d: Domain) {}

        fn schema(_d: Domain, _attributes: *const c_void) -> u64 { (1 << 32) + next_number() }
        fn mark_payload(d: Domain, _data: Data, _count: usize) { mark(d, &|s| (s.text(b""), NO_PAYLOAD)) }
        fn push_payload(d: Domain, data: Data, count: usize) -> i32 {
            push(d, &|s| (s.text(b""), payload(data, count)))
        }
        fn pop_payload(d: Domain, data: Data, count: usize) -> i32 { pop(d, payload(data, count)) }
        fn start_payload(d: Domain, data: Data, count: usize) -> u64 {
            start(d, &|s| (s.text(b""), payload(data, count)))
        }
        fn end_payload(_d: Domain, id: u64, _data: Data, _count: usize) { stop(id) }
        fn is_enabled(_d: Domain) -> u8 { 1 }
    }
}

/// Slots of a table with our functions.
macro_rules! slots {
    ($($at:literal $name:ident),*) => {{
        const SLOTS: &[(usize, Function)] = &[$(($at, calls::$name as Function)),*];
        SLOTS
    }};
}

/// Writes our functions into the tables of a library that uses NVTX.
///
/// # Safety
///
/// `export` must be NVTX's function.
pub unsafe fn attach(export: GetExportTable) -> i32 {
    // SAFETY: NVTX gives the table, or null for an unknown one.
    let Some(table) = (unsafe { export(CALLBACKS).as_ref() }) else { return 0 };
    let Some(functions) = table.module_functions.filter(|_| table.size >= 16) else { return 0 };
    let core = slots![
        1 mark_ex, 2 mark_a, 3 mark_w, 4 start_ex, 5 start_a, 6 start_w, 7 end, 8 push_ex, 9 push_a, 10 push_w,
        11 pop_any, 14 thread_name_a
    ];
    let domains = slots![
        1 domain_mark, 2 domain_start, 3 domain_end, 4 domain_push, 5 domain_pop, 10 register_a, 11 register_w,
        12 create_a, 13 create_w, 14 destroy
    ];
    let mut attached = 0;
    for (module, ours) in [(CORE, core), (DOMAINS, domains)] {
        let (mut slots, mut count): (*mut *mut Function, u32) = (std::ptr::null_mut(), 0);
        // SAFETY: writes the table's address and length.
        if unsafe { functions(module, &mut slots, &mut count) } == 0 || slots.is_null() {
            continue;
        }
        for (at, function) in ours {
            if *at < count as usize {
                // SAFETY: each entry is null or the address of a slot.
                unsafe {
                    let slot = *slots.add(*at);
                    if !slot.is_null() {
                        slot.write(*function);
                        attached = 1;
                    }
                }
            }
        }
    }
    attached
}

#[repr(C)]
#[derive(Debug)]
pub struct Segment {
    id: usize,
    count: usize,
    slots: *mut Function,
}

/// `nvtxExtModuleInfo_t`.
#[repr(C)]
#[derive(Debug)]
pub struct ModuleInfo {
    version: u16,
    size: u16,
    module: u16,
    compatible: u16,
    segment_count: usize,
    segments: *mut Segment,
}

/// Writes our functions into the slots of the payload extension.
///
/// # Safety
///
/// `info` must be NVTX's description of an extension module.
pub unsafe fn attach_extension(info: *mut ModuleInfo) -> i32 {
    let ours = slots![
        0 schema, 1 schema, 2 mark_payload, 3 push_payload, 4 pop_payload, 5 start_payload, 6 end_payload, 7 is_enabled
    ];
    // SAFETY: guaranteed by the caller.
    unsafe {
        let Some(info) = info.as_ref().filter(|info| info.module == PAYLOAD_MODULE) else { return 0 };
        if info.segment_count == 0 {
            return 0;
        }
        let Some(segment) = info.segments.as_ref().filter(|segment| !segment.slots.is_null()) else {
            return 0;
        };
        for (at, function) in ours.iter().filter(|(at, _)| *at < segment.count) {
            segment.slots.add(*at).write(*function);
        }
    }
    1
}
