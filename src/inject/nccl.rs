//! NCCL's profiler plugin, versions 1 (NCCL 2.23) to 6 (2.30): which collectives a process enqueues, and its rank in
//! each communicator.
//!
//! The bits of kernel channels and proxies are never set: they would put a host node into every captured collective.

use std::ffi::{CStr, c_char, c_void};

use crate::cupti;
use crate::format::RecordingEvent;
use crate::session::{RecordingSession, guarded};
use crate::sys::realtime_ns;

const COLLECTIVE: u64 = 1 << 1;
const POINT_TO_POINT: u64 = 1 << 2;
const COLLECTIVE_CALL: u64 = 1 << 9;
const POINT_TO_POINT_CALL: u64 = 1 << 10;
const COPY_ENGINE: u64 = 1 << 12;

type Init = *const c_void;
type StartEvent = unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *const u8) -> i32;

/// `ncclProfiler_vN_t`: the same six fields in all versions.
#[repr(C)]
#[derive(Debug)]
pub struct Plugin {
    name: *const c_char,
    init: Init,
    start: StartEvent,
    stop: unsafe extern "C" fn(*mut c_void) -> i32,
    state: unsafe extern "C" fn(*mut c_void, i32, *const c_void) -> i32,
    finalize: unsafe extern "C" fn(*mut c_void) -> i32,
}

// SAFETY: constant; NCCL only reads it.
unsafe impl Sync for Plugin {}

const NAME: &CStr = c"ladderscope";

pub const fn plugin<const V: u8>() -> Plugin {
    with::<V>(init::<V> as unsafe extern "C" fn(*mut *mut c_void, *mut i32) -> i32 as Init)
}

pub const fn plugin_v4() -> Plugin {
    with::<4>(init_v4::<4> as InitV4 as Init)
}

pub const fn plugin_v5<const V: u8>() -> Plugin {
    with::<V>(init_v5::<V> as InitV5 as Init)
}

const fn with<const V: u8>(init: Init) -> Plugin {
    Plugin { name: NAME.as_ptr(), init, start: start::<V>, stop, state, finalize: stop }
}

unsafe extern "C" fn stop(_handle: *mut c_void) -> i32 {
    0
}

unsafe extern "C" fn state(_handle: *mut c_void, _state: i32, _arguments: *const c_void) -> i32 {
    0
}

/// Arguments of a communicator's initialisation.
struct Opening {
    context: *mut *mut c_void,
    mask: *mut i32,
    id: u64,
    name: *const c_char,
    nodes: i32,
    ranks: i32,
    rank: i32,
}

/// Sets NCCL's mask and gives it the communicator's id as context.
///
/// # Safety
///
/// The addresses must be NCCL's, or null.
unsafe fn begin(context: *mut *mut c_void, mask: *mut i32, id: u64, bits: u64) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if let Some(context) = context.as_mut() {
            *context = id as *mut c_void;
        }
        if let Some(mask) = mask.as_mut() {
            *mask |= bits as i32;
        }
    }
}

/// Initializer of versions 1 to 3, which pass the communicator with each event.
unsafe extern "C" fn init<const V: u8>(context: *mut *mut c_void, mask: *mut i32) -> i32 {
    // SAFETY: NCCL's addresses.
    guarded(0, |_| unsafe {
        begin(context, mask, 0, COLLECTIVE | POINT_TO_POINT);
        0
    })
}

macro_rules! inits {
    ($($type:ident = fn $name:ident($($first:ident: $of:ty),*);)*) => {$(
        type $type = unsafe extern "C" fn($($of,)* i32, i32, i32, *const c_void) -> i32;

        #[allow(clippy::too_many_arguments)]
        unsafe extern "C" fn $name<const V: u8>(
            $($first: $of,)*
            nodes: i32,
            ranks: i32,
            rank: i32,
            _log: *const c_void,
        ) -> i32 {
            let opening = Opening { $($first,)* nodes, ranks, rank };
            // SAFETY: NCCL's addresses.
            guarded(0, |session| unsafe { opened(session, V, &opening) })
        }
    )*};
}

inits! {
    InitV4 = fn init_v4(context: *mut *mut c_void, mask: *mut i32, name: *const c_char, id: u64);
    InitV5 = fn init_v5(context: *mut *mut c_void, id: u64, mask: *mut i32, name: *const c_char);
}

/// # Safety
///
/// As for [`begin`].
unsafe fn opened(session: &'static RecordingSession, plugin: u8, opening: &Opening) -> i32 {
    let calls = COLLECTIVE_CALL | POINT_TO_POINT_CALL | COPY_ENGINE;
    let bits = COLLECTIVE | POINT_TO_POINT | if plugin >= 5 { calls } else { 0 };
    // SAFETY: NCCL gives a zero-terminated name or null.
    let name = unsafe {
        begin(opening.context, opening.mask, opening.id, bits);
        (!opening.name.is_null()).then(|| CStr::from_ptr(opening.name).to_bytes().to_vec())
    };
    session.add_always(&RecordingEvent::Communicator {
        time_ns: realtime_ns(),
        id: opening.id,
        plugin,
        nodes: opening.nodes.max(0) as u32,
        ranks: opening.ranks.max(0) as u32,
        rank: opening.rank.max(0) as u32,
        device: cupti::current_device().unwrap_or(-1),
        name: name.unwrap_or_default(),
    });
    0
}

/// Offsets in an event descriptor.
#[derive(Clone, Copy)]
struct Layout {
    /// Hash of the communicator, which later versions give at initialisation.
    hash: Option<usize>,
    sequence: Option<usize>,
    function: usize,
    count: usize,
    datatype: usize,
    captured: Option<usize>,
    channels: Option<usize>,
    algorithm: Option<usize>,
    protocol: Option<usize>,
}

const EMPTY_LAYOUT: Layout = Layout {
    hash: None,
    sequence: None,
    function: 0,
    count: 0,
    datatype: 0,
    captured: None,
    channels: None,
    algorithm: None,
    protocol: None,
};

const fn layout(version: u8, kind: u64) -> Option<Layout> {
    Some(match (version, kind) {
        (2 | 3, COLLECTIVE) => {
            let channels = if version == 2 { 104 } else { 96 };
            Layout {
                hash: Some(32),
                sequence: Some(40),
                function: 48,
                count: 72,
                datatype: 88,
                channels: Some(channels),
                algorithm: Some(channels + 8),
                protocol: Some(channels + 16),
                captured: None,
            }
        }
        (4.., COLLECTIVE) => Layout {
            sequence: Some(24),
            function: 32,
            count: 56,
            datatype: 72,
            channels: Some(80),
            algorithm: Some(88),
            protocol: Some(96),
            ..EMPTY_LAYOUT
        },
        (2 | 3, POINT_TO_POINT) => {
            Layout { hash: Some(32), function: 40, datatype: 56, count: 64, ..EMPTY_LAYOUT }
        }
        (4.., POINT_TO_POINT) => Layout { function: 24, datatype: 40, count: 48, ..EMPTY_LAYOUT },
        (5.., COLLECTIVE_CALL) => {
            Layout { function: 24, count: 32, datatype: 40, captured: Some(64), ..EMPTY_LAYOUT }
        }
        (5.., POINT_TO_POINT_CALL) => {
            Layout { function: 24, count: 32, datatype: 40, captured: Some(56), ..EMPTY_LAYOUT }
        }
        (6.., COPY_ENGINE) => {
            Layout { sequence: Some(24), function: 32, count: 56, datatype: 72, ..EMPTY_LAYOUT }
        }
        _ => return None,
    })
}

unsafe extern "C" fn start<const V: u8>(
    context: *mut c_void,
    handle: *mut *mut c_void,
    event: *const u8,
) -> i32 {
    // SAFETY: NCCL's address; without a handle it sends no end.
    if let Some(handle) = unsafe { handle.as_mut() } {
        *handle = std::ptr::null_mut();
    }
    guarded(0, |session| {
        // SAFETY: NCCL's addresses.
        unsafe {
            let time_ns = realtime_ns();
            if !event.is_null() && session.wants(time_ns) {
                enqueued(session, V, context as u64, event, time_ns);
            }
        }
        0
    })
}

/// # Safety
///
/// `event` must be a descriptor of the version.
unsafe fn enqueued(
    session: &'static RecordingSession,
    version: u8,
    context: u64,
    event: *const u8,
    time_ns: u64,
) {
    // SAFETY: the offsets below are within a descriptor of the version.
    unsafe {
        let byte = |at: usize| event.add(at).read();
        let word = |at: usize| event.add(at).cast::<u64>().read_unaligned();
        let text = |at: usize| {
            let text = event.add(at).cast::<*const c_char>().read_unaligned();
            if text.is_null() { 0 } else { session.text(CStr::from_ptr(text).to_bytes()) }
        };
        let kind = if version >= 5 { word(0) } else { u64::from(byte(0)) };
        let thread = session.thread();
        let found = if version == 1 {
            if kind != COLLECTIVE {
                return;
            }
            // version 1 has NCCL's numbers instead of names
            let function = match byte(48) {
                0 => "Broadcast",
                1 => "Reduce",
                2 => "AllGather",
                3 => "ReduceScatter",
                4 => "AllReduce",
                _ => "",
            };
            let types = [
                "Int8", "Uint8", "Int32", "Uint32", "Int64", "Uint64", "Float16", "Float32", "Float64",
                "Bfloat16",
            ];
            let algorithms =
                ["TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"];
            let named = |names: &[&str], at: usize| {
                session.text(names.get(usize::from(byte(at))).unwrap_or(&"").as_bytes())
            };
            let datatype = types.get(usize::from(byte(84))).unwrap_or(&"");
            RecordingEvent::Collective {
                time_ns,
                thread,
                communicator: word(32),
                kind: kind as u32,
                function: session.text(function.as_bytes()),
                datatype: session.text(format!("nccl{datatype}").as_bytes()),
                count: word(72),
                sequence: word(40),
                captured: 0,
                algorithm: named(&algorithms, 106),
                protocol: named(&["LL", "LL128", "SIMPLE"], 107),
                channels: byte(104),
            }
        } else {
            let Some(at) = layout(version, kind) else { return };
            RecordingEvent::Collective {
                time_ns,
                thread,
                communicator: at.hash.map_or(context, word),
                kind: kind as u32,
                function: text(at.function),
                datatype: text(at.datatype),
                count: word(at.count),
                sequence: at.sequence.map_or(u64::MAX, word),
                captured: at.captured.map_or(0, byte),
                algorithm: at.algorithm.map_or(0, text),
                protocol: at.protocol.map_or(0, text),
                channels: at.channels.map_or(0, byte),
            }
        };
        session.add(thread, |to| found.encode(to));
    }
}
