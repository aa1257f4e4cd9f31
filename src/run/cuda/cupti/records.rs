//! Parser of activity records. Newer CUPTI versions append fields, but the offsets read here are unchanged
//! since CUDA 11.8; tests compare them with the declarations of two versions.

use std::ffi::{CStr, c_char};

/// `CUpti_ActivityKind` values.
pub(super) mod kind {
    pub const MEMCPY: u32 = 1;
    pub const MEMSET: u32 = 2;
    pub const DRIVER: u32 = 4;
    pub const RUNTIME: u32 = 5;
    pub const CONCURRENT_KERNEL: u32 = 10;
    pub const EXTERNAL_CORRELATION: u32 = 39;
}

/// Byte offsets of fields in a record.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivityKind {
    Kernel,
    Copy,
    Set,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    pub kind: ActivityKind,
    /// Start on CUPTI's clock (ns); 0 if unknown.
    pub start_ns: u64,
    /// End on CUPTI's clock (ns).
    pub end_ns: u64,
    /// CUDA device index within this process.
    pub device: u32,
    pub stream: u32,
    /// Correlation id of the launching call; shared by all kernels of a graph launch.
    pub correlation: u32,
    /// Node id in the executable graph; 0 for eager launches.
    pub graph_node: u64,
    /// Mangled kernel name; `None` for copies and memsets.
    pub name: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Activity(Activity),
    /// External id pushed during a call.
    External {
        id: u64,
        correlation: u32,
    },
    /// Any other record; requested only because external ids depend on it.
    Other,
}

/// Parses the record at an address.
///
/// # Safety
///
/// `record` must point to a complete record written by CUPTI 11.8 or newer.
pub(super) unsafe fn read(record: *const u8) -> Record {
    // SAFETY: every record begins with its kind; the offsets below are within a record of that kind.
    unsafe {
        match number::<u32>(record, 0) {
            kind::CONCURRENT_KERNEL => {
                let name = number::<*const c_char>(record, KERNEL_NAME);
                // SAFETY: CUPTI keeps names while the module is loaded.
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
/// Same as [`read`]; the layout must match the record's kind.
unsafe fn activity(
    record: *const u8,
    kind: ActivityKind,
    at: &Layout,
    name: Option<String>,
) -> Activity {
    // SAFETY: guaranteed by the caller.
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
/// A `T` must exist at `offset` bytes from `record`; it may be unaligned.
unsafe fn number<T: Copy>(record: *const u8, offset: usize) -> T {
    // SAFETY: guaranteed by the caller.
    unsafe { record.add(offset).cast::<T>().read_unaligned() }
}
