//! Collectives in traces: parses names and data types of all frameworks into one vocabulary.

use serde::{Deserialize, Serialize};

use super::OperationKind;

/// Collective arguments from an imported trace. Missing fields are `None` or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CollectiveInfo {
    /// Name as recorded: `allreduce`, `_allgather_base`, `ncclAllReduce`.
    pub name: String,
    /// Process group: an index into [`crate::TraceMeta::groups`].
    pub group: Option<u32>,
    /// Input elements per rank.
    pub in_elements: Option<u64>,
    /// Output elements per rank.
    pub out_elements: Option<u64>,
    /// Data type as recorded: `BFloat16`; empty if unknown.
    pub dtype: String,
    /// Message size as nccl-tests defines it: the larger of a rank's input and output.
    pub message_bytes: Option<u64>,
    /// Algorithm that NCCL chose, in its spelling (`RING`); empty if unknown. Kernel names only hint at it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub algorithm: String,
    /// Protocol that NCCL chose (`LL128`); empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub protocol: String,
    /// Number of channels, at most one thread block each; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channels: Option<u32>,
    /// Rank that a send goes to, or that a receive comes from; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<u32>,
}

impl CollectiveInfo {
    /// Fills [`Self::message_bytes`] from elements and data type.
    #[must_use]
    pub fn with_message_bytes(self) -> Self {
        let elements = self.in_elements.max(self.out_elements);
        let bytes = elements.zip(dtype_bytes(&self.dtype)).and_then(|(n, size)| n.checked_mul(size));
        // PyTorch records 0 elements for barriers, waits and unknown sizes
        Self { message_bytes: bytes.filter(|bytes| *bytes > 0), ..self }
    }

    /// Kind of collective; `None` for an unknown name.
    pub fn kind(&self) -> Option<OperationKind> {
        collective_kind(&self.name)
    }

    /// Direction of a send or receive; `None` for collectives, and for kernels that do both or do not say.
    pub fn direction(&self) -> Option<TransferDirection> {
        let name = bare_name(&self.name);
        match name.strip_prefix('i').unwrap_or(&name) {
            both if both.starts_with("sendrecv") => None,
            send if send.starts_with("send") => Some(TransferDirection::Send),
            receive if receive.starts_with("recv") => Some(TransferDirection::Receive),
            _ => None,
        }
    }
}

/// Direction of point-to-point communication, seen from the rank that runs the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferDirection {
    Send,
    Receive,
}

/// A communicator: the ranks that run a collective together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ProcessGroup {
    /// Name in the framework, or the communicator's id: `1`. Groups with equal names but different ranks
    /// are different groups.
    pub name: String,
    /// Purpose as the framework records it: `TP`, `default_pg`; empty if unknown.
    pub description: String,
    /// Number of ranks; 0 if unknown.
    pub size: u32,
    /// Global ranks, ascending; empty if the trace does not list all of them.
    pub ranks: Vec<u32>,
}

impl ProcessGroup {
    /// Parallelism of the group (`TP`, `DP`, `PP`, `EP`, `CP`, `SP`), parsed from its description or
    /// name. Falls back to the description, then to `group NAME`.
    pub fn kind(&self) -> String {
        if let Some(kind) = parallelism(&self.description).or_else(|| parallelism(&self.name)) {
            return kind.to_owned();
        }
        match (self.description.as_str(), self.name.as_str()) {
            ("" | "undefined", "") => format!("group of {}", self.size),
            ("" | "undefined", name) => format!("group {name}"),
            (description, _) => description.to_owned(),
        }
    }
}

/// Parallelism named in `text`; `None` if it names none or more than one.
fn parallelism(text: &str) -> Option<&'static str> {
    const WORDS: [(&str, &[&str]); 6] = [
        ("TP", &["tp", "tensor"]),
        ("DP", &["dp", "data", "ddp", "fsdp", "hsdp"]),
        ("PP", &["pp", "pipe", "pipeline"]),
        ("EP", &["ep", "expert", "experts"]),
        ("CP", &["cp", "context"]),
        ("SP", &["sp", "sequence"]),
    ];
    let text = text.to_ascii_lowercase();
    let words = || {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric());
        words.map(|word| word.trim_end_matches(|c: char| c.is_ascii_digit()))
    };
    let mut named = WORDS.iter().filter(|(_, known)| words().any(|word| known.contains(&word)));
    let first = named.next();
    first.filter(|_| named.next().is_none()).map(|(kind, _)| *kind)
}

/// Letters and digits of a collective's name in lower case, without its library.
fn bare_name(name: &str) -> String {
    let mut bare: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    bare.make_ascii_lowercase();
    for library in ["nccl", "rccl", "xccl", "hccl", "mpi", "c10d"] {
        if let Some(rest) = bare.strip_prefix(library) {
            bare = rest.to_owned();
        }
    }
    bare
}

/// Parses the name of a collective in PyTorch, NCCL, RCCL, oneCCL or MPI into its kind.
/// Returns `None` for an unknown name and [`OperationKind::Collective`] for a known name without a kind.
pub fn collective_kind(name: &str) -> Option<OperationKind> {
    let bare = bare_name(name);
    // prefixes, longer ones first: allreduce_coalesced, reduce_scatter_tensor, alltoallv, gather_object
    const KINDS: [(&str, OperationKind); 20] = [
        ("allreduce", OperationKind::AllReduce),
        ("allgather", OperationKind::AllGather),
        ("reducescatter", OperationKind::ReduceScatter),
        ("alltoall", OperationKind::AllToAll),
        ("all2all", OperationKind::AllToAll),
        ("broadcast", OperationKind::Broadcast),
        ("bcast", OperationKind::Broadcast),
        ("sendrecv", OperationKind::SendRecv),
        ("send", OperationKind::SendRecv),
        ("isend", OperationKind::SendRecv),
        ("recv", OperationKind::SendRecv),
        ("irecv", OperationKind::SendRecv),
        ("barrier", OperationKind::Barrier),
        ("allbarrier", OperationKind::Barrier),
        ("reduce", OperationKind::Reduce),
        ("gather", OperationKind::Gather),
        ("scatter", OperationKind::Scatter),
        ("coalesced", OperationKind::Collective),
        ("wait", OperationKind::Collective),
        ("init", OperationKind::Collective),
    ];
    KINDS.into_iter().find(|(start, _)| bare.starts_with(start)).map(|(_, kind)| kind)
}

/// Element size in bytes of a PyTorch, NCCL or NumPy data type.
pub fn dtype_bytes(name: &str) -> Option<u64> {
    let name = name.rsplit("::").next().unwrap_or(name).to_ascii_lowercase();
    let name = name.strip_prefix("torch.").unwrap_or(&name);
    let name = name.strip_prefix("nccl").unwrap_or(name);
    Some(match name {
        "byte" | "char" | "bool" | "int8" | "uint8" | "i8" | "u8" | "int8_t" | "uint8_t"
        | "signed char" | "unsigned char" => 1,
        name if name.starts_with("float8") || name.starts_with("fp8") || name.starts_with("f8") => 1,
        "short" | "int16" | "uint16" | "half" | "float16" | "fp16" | "f16" | "bfloat16" | "bf16" => 2,
        "int" | "int32" | "uint32" | "i32" | "u32" | "float" | "float32" | "fp32" | "f32"
        | "complexhalf" => 4,
        "long" | "long int" | "int64" | "uint64" | "i64" | "u64" | "double" | "float64" | "fp64"
        | "f64" | "complexfloat" => 8,
        "complexdouble" => 16,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_collectives_have_a_kind() {
        for (name, kind) in [
            ("allreduce", Some("all_reduce")),
            ("all_reduce", Some("all_reduce")),
            ("ncclAllReduce", Some("all_reduce")),
            ("allreduce_coalesced", Some("all_reduce")),
            ("_allgather_base", Some("all_gather")),
            ("all_gather_into_tensor_coalesced", Some("all_gather")),
            ("ALLGATHER", Some("all_gather")),
            ("_reduce_scatter_base", Some("reduce_scatter")),
            ("reduce_scatter_tensor_coalesced", Some("reduce_scatter")),
            ("alltoall_base", Some("all_to_all")),
            ("all_to_allv", Some("all_to_all")),
            ("broadcast", Some("broadcast")),
            ("_broadcast_oop", Some("broadcast")),
            ("reduce", Some("reduce")),
            ("_reduce_oop", Some("reduce")),
            ("gather", Some("gather")),
            ("send", Some("send_recv")),
            ("recv 0", Some("send_recv")),
            ("barrier", Some("barrier")),
            ("wait", Some("collective")),
            ("init", Some("collective")),
            ("", None),
            ("quantise", None),
        ] {
            assert_eq!(collective_kind(name), kind.map(OperationKind::from), "{name}");
        }
    }

    #[test]
    fn sends_and_receives_have_a_direction() {
        use TransferDirection::{Receive, Send};
        for (name, direction) in [
            ("send", Some(Send)),
            ("nccl:send 0->1", Some(Send)),
            ("ncclSend", Some(Send)),
            ("isend", Some(Send)),
            ("recv", Some(Receive)),
            ("recv 0<-1", Some(Receive)),
            ("irecv", Some(Receive)),
            ("ncclRecv", Some(Receive)),
            ("SendRecv", None),
            ("send_recv", None),
            ("allreduce", None),
            ("coalesced", None),
            ("", None),
        ] {
            let info = CollectiveInfo { name: name.into(), ..CollectiveInfo::default() };
            assert_eq!(info.direction(), direction, "{name}");
        }
    }

    #[test]
    fn message_sizes_follow_nccl_tests() {
        let of = |name: &str, n: u64, out: u64, dtype: &str| {
            let info = CollectiveInfo {
                name: name.into(),
                in_elements: Some(n),
                out_elements: Some(out),
                dtype: dtype.into(),
                ..CollectiveInfo::default()
            };
            info.with_message_bytes().message_bytes
        };
        assert_eq!(of("allreduce", 8192, 8192, "BFloat16"), Some(16_384));
        assert_eq!(of("_allgather_base", 25_136, 201_088, "c10::BFloat16"), Some(402_176));
        assert_eq!(of("_reduce_scatter_base", 4096, 512, "Float"), Some(16_384));
        assert_eq!(of("allreduce", 5, 5, "Float8_e4m3fn"), Some(5));
        assert_eq!(of("allreduce", 5, 5, "torch.float32"), Some(20));
        assert_eq!(of("allreduce", 5, 5, "Undefined"), None);
        assert_eq!(of("barrier", 0, 0, "Byte"), None);
        assert_eq!(of("allreduce", u64::MAX, 0, "Long"), None);
    }

    #[test]
    fn the_kind_of_a_group_is_the_parallelism_in_its_name() {
        for (description, name, kind) in [
            ("TP", "1", "TP"),
            ("TENSOR_MODEL_PARALLEL_GROUP", "5", "TP"),
            ("mesh_dp", "7", "DP"),
            ("PIPELINE_MODEL_PARALLEL_GROUP", "9", "PP"),
            ("EXPERT_DATA_PARALLEL_GROUP", "9", "EXPERT_DATA_PARALLEL_GROUP"),
            ("undefined", "3", "group 3"),
            ("undefined", "ep:0", "EP"),
            ("", "tp0", "TP"),
            ("default_pg", "0", "default_pg"),
        ] {
            let (name, description) = (name.to_owned(), description.to_owned());
            assert_eq!(ProcessGroup { name, description, ..ProcessGroup::default() }.kind(), kind);
        }
    }
}
