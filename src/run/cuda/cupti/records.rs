//! What a buffer of activity records holds. Records of newer versions of CUPTI are longer, but what is
//! read here has kept its place since CUDA 11.8; the tests hold it against two versions' declarations.

use std::ffi::{CStr, c_char};

/// Kinds of records, as CUPTI counts them.
pub(super) mod kind {
    pub const MEMCPY: u32 = 1;
    pub const MEMSET: u32 = 2;
    pub const DRIVER: u32 = 4;
    pub const RUNTIME: u32 = 5;
    pub const CONCURRENT_KERNEL: u32 = 10;
    pub const EXTERNAL_CORRELATION: u32 = 39;
}

/// Where fields lie in a record, in bytes.
pub(super) struct Layout {
    pub start: usize,
    pub end: usize,
    pub device: usize,
    pub stream: usize,
    pub correlation: usize,
    pub graph_node: usize,
}

pub(super) const KERNEL: Layout =
    Layout { start: 16, end: 24, device: 40, stream: 48, correlation: 92, graph_node: 144 };
pub(super) const KERNEL_NAME: usize = 104;
pub(super) const MEMCPY: Layout =
    Layout { start: 16, end: 24, device: 32, stream: 40, correlation: 44, graph_node: 64 };
pub(super) const MEMSET: Layout =
    Layout { start: 16, end: 24, device: 32, stream: 40, correlation: 44, graph_node: 64 };
pub(super) const EXTERNAL_ID: usize = 8;
pub(super) const EXTERNAL_CORRELATION: usize = 16;

/// What a GPU did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivityKind {
    /// A kernel ran on its multiprocessors.
    Kernel,
    /// Memory was copied, within the GPU or between it and elsewhere.
    Copy,
    /// Memory was filled with one value.
    Set,
}

/// One thing that a GPU did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Whether a kernel ran, or memory was copied or filled.
    pub kind: ActivityKind,
    /// When it started, on CUPTI's clock (ns); 0: unknown.
    pub start_ns: u64,
    /// When it ended, on CUPTI's clock (ns).
    pub end_ns: u64,
    /// The GPU on which it ran, as CUDA counts this process's.
    pub device: u32,
    /// The number of the stream, as CUPTI counts them.
    pub stream: u32,
    /// The call that launched it: the same number for all of a graph's.
    pub correlation: u32,
    /// Node of the executable graph that it belongs to; 0 without one.
    pub graph_node: u64,
    /// The name of the kernel, mangled; copies and fills have none.
    pub name: Option<String>,
}

/// A record of a buffer, as far as it is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Activity(Activity),
    /// A call was made while this id was pushed.
    External {
        id: u64,
        correlation: u32,
    },
    /// Something else, asked for only because others depend on it.
    Other,
}

/// Reads the record that begins at an address.
///
/// # Safety
///
/// `record` must point to a whole record as CUPTI (11.8 or newer) writes them.
pub(super) unsafe fn read(record: *const u8) -> Record {
    // SAFETY: every record begins with its kind; the offsets below lie within a record of that kind.
    unsafe {
        match number::<u32>(record, 0) {
            kind::CONCURRENT_KERNEL => {
                let name = number::<*const c_char>(record, KERNEL_NAME);
                // SAFETY: CUPTI keeps names for as long as the module is loaded.
                let name =
                    (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned());
                Record::Activity(activity(record, ActivityKind::Kernel, &KERNEL, name))
            }
            kind::MEMCPY => Record::Activity(activity(record, ActivityKind::Copy, &MEMCPY, None)),
            kind::MEMSET => Record::Activity(activity(record, ActivityKind::Set, &MEMSET, None)),
            kind::EXTERNAL_CORRELATION => Record::External {
                id: number(record, EXTERNAL_ID),
                correlation: number(record, EXTERNAL_CORRELATION),
            },
            _ => Record::Other,
        }
    }
}

/// # Safety
///
/// As of [`read`]; the layout must be that of the record's kind.
unsafe fn activity(
    record: *const u8,
    kind: ActivityKind,
    at: &Layout,
    name: Option<String>,
) -> Activity {
    // SAFETY: the caller's promise.
    unsafe {
        Activity {
            kind,
            start_ns: number(record, at.start),
            end_ns: number(record, at.end),
            device: number(record, at.device),
            stream: number(record, at.stream),
            correlation: number(record, at.correlation),
            graph_node: number(record, at.graph_node),
            name,
        }
    }
}

/// # Safety
///
/// There must be a `T` so many bytes from `record`, whatever its alignment.
unsafe fn number<T: Copy>(record: *const u8, offset: usize) -> T {
    // SAFETY: the caller's promise.
    unsafe { record.add(offset).cast::<T>().read_unaligned() }
}
