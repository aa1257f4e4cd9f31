//! Traces of all ranks' lanes, in one format for all backends and imports.
//!
//! A trace file is one Parquet file with one row per [`Span`]. Its footer contains the format version,
//! the [`TraceMeta`] and the [`OperationInfo`] table as JSON. It is written as a stream and renamed into
//! place, so an existing trace is always complete.

mod collective;
mod contents;
mod demangle;
pub mod export;
mod file;
pub mod import;
mod kind;
pub mod memory;
mod nccl_algorithm;
mod operations;
pub mod overlap;
mod product;
pub mod rules;
#[doc(hidden)]
pub mod testing;

pub use collective::{CollectiveInfo, ProcessGroup, TransferDirection, collective_kind, dtype_bytes};
pub use contents::{
    Doubt, Doubted, FORMAT_VERSION, HostWork, IgnoredKernel, ImportReport, LaunchSite, NO_STEP, Range,
    Span, Trace, TraceMeta, TraceStream, is_host_call, sort_spans,
};
pub use file::{TraceWriter, check, read, read_file, read_meta, write};
pub use kind::OperationKind;
pub use nccl_algorithm::{NcclAlgorithm, nccl_algorithm};
pub use operations::{CopiedBytes, OperationInfo, operations, stage_groups};
pub use product::{CallArguments, Product, is_product};
