//! Traces: what every rank's lanes did. One format for all backends and for imported traces.
//!
//! A trace file is one Parquet file: a row a [`Span`], and in its footer the format version, the
//! [`TraceMeta`] and the table of [`OperationInfo`]s as JSON. It is written streaming and renamed
//! into place, so a trace that exists is whole.

mod collective;
mod contents;
pub mod export;
mod file;
pub mod import;
pub mod memory;
mod operations;
pub mod overlap;
mod product;
pub mod rules;
#[doc(hidden)]
pub mod testing;

pub use collective::{
    Algorithm, CollectiveInfo, ProcessGroup, algorithm, bus_factor, dtype_bytes, kind_of,
};
pub use contents::{
    FORMAT_VERSION, ImportReport, LaunchSite, NO_STEP, Range, Span, Stream, Trace, TraceMeta,
};
pub use file::{TraceWriter, read, read_file, read_meta, write};
pub use operations::{Copied, OperationInfo, operations};
pub use product::{CallArguments, Product, is_product};
