//! Subset of a CUPTI activity record, which the recorder's reader (`inject::records`) parses.

use inject::records::{self, WorkRecordKind};

/// Kernel, copy or fill on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    /// False for copies and fills.
    pub is_kernel: bool,
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

impl From<records::WorkRecord<'_>> for Activity {
    fn from(work: records::WorkRecord<'_>) -> Self {
        let name = if let WorkRecordKind::Kernel(name) = work.what { name } else { None };
        Self {
            is_kernel: matches!(work.what, WorkRecordKind::Kernel(_)),
            start_ns: work.start_ns,
            end_ns: work.end_ns,
            device: work.device,
            stream: work.stream,
            correlation: work.correlation,
            graph_node: work.node,
            name: name.map(|name| name.to_string_lossy().into_owned()),
        }
    }
}
