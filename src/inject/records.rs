//! Reader of CUPTI's activity records. Their fields have the same offsets from CUDA 11.8 to 13.5: later versions only
//! append fields, so a record is never stepped over by a size of ours.

use std::ffi::{CStr, c_char};

/// `CUpti_ActivityKind` values.
pub mod kind {
    pub const MEMCPY: u32 = 1;
    pub const MEMSET: u32 = 2;
    pub const DRIVER: u32 = 4;
    pub const RUNTIME: u32 = 5;
    pub const CONCURRENT_KERNEL: u32 = 10;
    /// Copies between devices.
    pub const MEMCPY2: u32 = 22;
    pub const EXTERNAL_CORRELATION: u32 = 39;
}

/// Byte offsets of fields in a record of GPU work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLayout {
    pub start: usize,
    pub end: usize,
    pub device: usize,
    pub context: usize,
    pub stream: usize,
    pub correlation: usize,
    pub graph_node: usize,
    pub graph: usize,
}

pub const KERNEL: RecordLayout = RecordLayout {
    start: 16,
    end: 24,
    device: 40,
    context: 44,
    stream: 48,
    correlation: 92,
    graph_node: 144,
    graph: 156,
};
/// Address of a kernel's mangled name, valid while its module is loaded.
pub const KERNEL_NAME: usize = 104;
pub const MEMCPY: RecordLayout = RecordLayout {
    start: 16,
    end: 24,
    device: 32,
    context: 36,
    stream: 40,
    correlation: 44,
    graph_node: 64,
    graph: 72,
};
pub const MEMCPY2: RecordLayout = RecordLayout { correlation: 60, graph_node: 72, graph: 80, ..MEMCPY };
pub const MEMSET: RecordLayout = MEMCPY;
/// Direction of a copy, a byte.
pub const COPY_KIND: usize = 4;
/// Size of a copy or fill.
pub const BYTES: usize = 8;
pub const CALL_ID: usize = 4;
pub const CALL_START: usize = 8;
pub const CALL_END: usize = 16;
pub const CALL_THREAD: usize = 28;
pub const CALL_CORRELATION: usize = 32;
pub const EXTERNAL_ID: usize = 8;
pub const EXTERNAL_CORRELATION_ID: usize = 16;

/// Reads a field.
///
/// # Safety
///
/// A `T` must exist at `offset` bytes from `record`; it may be unaligned.
pub unsafe fn field<T: Copy>(record: *const u8, offset: usize) -> T {
    // SAFETY: guaranteed by the caller.
    unsafe { record.add(offset).cast::<T>().read_unaligned() }
}

/// An activity record, which borrows its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivityRecord<'a> {
    Work(WorkRecord<'a>),
    /// A host call of the driver or runtime, by CUPTI's callback id.
    Call {
        start_ns: u64,
        end_ns: u64,
        thread: u32,
        correlation: u32,
        id: u32,
        is_runtime: bool,
    },
    /// External id pushed during a call.
    External {
        id: u64,
        correlation: u32,
    },
    Other,
}

/// A kernel, copy or fill. Times are in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRecord<'a> {
    pub what: WorkRecordKind<'a>,
    pub start_ns: u64,
    pub end_ns: u64,
    /// CUDA device index within the process.
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    /// Correlation id of the launching call; shared by all kernels of a graph launch.
    pub correlation: u32,
    /// Node of the executable graph; 0 for eager launches.
    pub node: u64,
    pub graph: u32,
}

impl WorkRecord<'_> {
    /// False if CUPTI had no room for times.
    pub fn is_timed(&self) -> bool {
        self.start_ns != 0 && self.end_ns >= self.start_ns
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkRecordKind<'a> {
    /// Mangled name, valid while the kernel's module is loaded.
    Kernel(Option<&'a CStr>),
    /// Copy with CUPTI's number of its direction.
    Copy {
        direction: u8,
        bytes: u64,
    },
    Fill {
        bytes: u64,
    },
}

/// Reads the record at an address.
///
/// # Safety
///
/// `record` must point to a complete record written by CUPTI 11.8 or newer, which lives for `'a`.
pub unsafe fn read<'a>(record: *const u8) -> ActivityRecord<'a> {
    // SAFETY: every record begins with its kind; the offsets are within a record of that kind.
    unsafe {
        let of: u32 = field(record, 0);
        let (at, what) = match of {
            kind::CONCURRENT_KERNEL => {
                let name: *const c_char = field(record, KERNEL_NAME);
                (&KERNEL, WorkRecordKind::Kernel((!name.is_null()).then(|| CStr::from_ptr(name))))
            }
            kind::MEMCPY | kind::MEMCPY2 => {
                let at = if of == kind::MEMCPY { &MEMCPY } else { &MEMCPY2 };
                (
                    at,
                    WorkRecordKind::Copy {
                        direction: field(record, COPY_KIND),
                        bytes: field(record, BYTES),
                    },
                )
            }
            kind::MEMSET => (&MEMSET, WorkRecordKind::Fill { bytes: field(record, BYTES) }),
            kind::DRIVER | kind::RUNTIME => {
                return ActivityRecord::Call {
                    start_ns: field(record, CALL_START),
                    end_ns: field(record, CALL_END),
                    thread: field(record, CALL_THREAD),
                    correlation: field(record, CALL_CORRELATION),
                    id: field(record, CALL_ID),
                    is_runtime: of == kind::RUNTIME,
                };
            }
            kind::EXTERNAL_CORRELATION => {
                return ActivityRecord::External {
                    id: field(record, EXTERNAL_ID),
                    correlation: field(record, EXTERNAL_CORRELATION_ID),
                };
            }
            _ => return ActivityRecord::Other,
        };
        ActivityRecord::Work(WorkRecord {
            what,
            start_ns: field(record, at.start),
            end_ns: field(record, at.end),
            device: field(record, at.device),
            context: field(record, at.context),
            stream: field(record, at.stream),
            correlation: field(record, at.correlation),
            node: field(record, at.graph_node),
            graph: field(record, at.graph),
        })
    }
}

/// Calls `take` with each record of a buffer. `next` is CUPTI's function that steps through it: 0 while there is one.
///
/// # Safety
///
/// `next` must set its argument to the address of a complete record of CUPTI 11.8 or newer, or return an error.
pub unsafe fn each(next: impl Fn(&mut *mut u8) -> u32, mut take: impl FnMut(ActivityRecord<'_>)) {
    let mut record = std::ptr::null_mut();
    while next(&mut record) == 0 && !record.is_null() {
        // SAFETY: guaranteed by the caller.
        take(unsafe { read(record) });
    }
}

/// Nodes of a graph in a CUPTI callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphNode {
    Created {
        node: u64,
    },
    /// Node of an executable graph, and the one it was cloned from; 0 if it has no number.
    Cloned {
        original: u64,
        node: u64,
    },
}

pub const RESOURCE_DOMAIN: u32 = 3;
/// Callback ids of [`GraphNode`].
pub const NODE_CREATED: u32 = 13;
pub const NODE_CLONED: u32 = 20;

/// Reads a callback about a graph's node; `None` for other callbacks. `number` is `cuptiGetGraphNodeId`.
///
/// # Safety
///
/// `data` must be CUPTI's argument of a callback with this domain and id.
pub unsafe fn graph_node(
    (domain, id): (u32, u32),
    data: *const u8,
    number: unsafe extern "C" fn(*mut std::ffi::c_void, *mut u64) -> u32,
) -> Option<GraphNode> {
    if domain != RESOURCE_DOMAIN || !matches!(id, NODE_CREATED | NODE_CLONED) || data.is_null() {
        return None;
    }
    // SAFETY: CUpti_ResourceData with a CUpti_GraphData for these ids; a node lives during its callback.
    unsafe {
        let graph: *const u8 = field(data, 16);
        if graph.is_null() {
            return None;
        }
        let number = |at: usize| {
            let node: *mut std::ffi::c_void = field(graph, at);
            let mut found = 0;
            (!node.is_null() && number(node, &mut found) == 0).then_some(found)
        };
        let node = number(16)?;
        Some(match id {
            NODE_CREATED => GraphNode::Created { node },
            _ => GraphNode::Cloned { original: number(24).unwrap_or(0), node },
        })
    }
}
