//! Layout of CUPTI's activity records. Their fields lie at the same offsets from CUDA 11.8 to 13.5: later versions only
//! append fields, so a record is never stepped over by a size of ours.

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
pub struct Layout {
    pub start: usize,
    pub end: usize,
    pub device: usize,
    pub context: usize,
    pub stream: usize,
    pub correlation: usize,
    pub graph_node: usize,
    pub graph: usize,
}

pub const KERNEL: Layout = Layout {
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
pub const MEMCPY: Layout = Layout {
    start: 16,
    end: 24,
    device: 32,
    context: 36,
    stream: 40,
    correlation: 44,
    graph_node: 64,
    graph: 72,
};
pub const MEMCPY2: Layout = Layout { correlation: 60, graph_node: 72, graph: 80, ..MEMCPY };
pub const MEMSET: Layout = MEMCPY;
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
