//! NCCL's algorithm and protocol, from kernel names.

/// Algorithm and protocol parsed from a NCCL kernel name. Only a hint: since NCCL 2.19 one kernel serves
/// several algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcclAlgorithm {
    /// `RING`, `TREE`, `NVLS`, `NVLS_TREE`, `COLLNET_DIRECT`, `COLLNET_CHAIN`, `PAT`.
    pub algorithm: &'static str,
    /// `LL`, `LL128`, `SIMPLE`; `None` if the name does not contain one.
    pub protocol: Option<&'static str>,
}

/// Parses a NCCL or RCCL kernel name. Returns `None` if it names no algorithm, as
/// `ncclDevKernel_Generic`, and for kernels of other libraries.
pub fn nccl_algorithm(kernel: &str) -> Option<NcclAlgorithm> {
    const ALGORITHMS: [(&str, &str); 12] = [
        ("NVLS_TREE", "NVLS_TREE"),
        ("NVLSTree", "NVLS_TREE"),
        ("COLLNET_DIRECT", "COLLNET_DIRECT"),
        ("CollnetDirect", "COLLNET_DIRECT"),
        ("COLLNET_CHAIN", "COLLNET_CHAIN"),
        ("CollnetChain", "COLLNET_CHAIN"),
        ("NVLS", "NVLS"),
        ("RING", "RING"),
        ("Ring", "RING"),
        ("TREE", "TREE"),
        ("Tree", "TREE"),
        ("PAT", "PAT"),
    ];
    const PROTOCOLS: [(&str, &str); 4] =
        [("LL128", "LL128"), ("LL", "LL"), ("SIMPLE", "SIMPLE"), ("Simple", "SIMPLE")];
    let function = super::rules::function(kernel);
    let name = function.rsplit("::").next().unwrap_or(&function);
    if !["nccl", "rccl"].iter().any(|library| name.to_ascii_lowercase().starts_with(library)) {
        return None;
    }
    let (at, (word, algorithm)) =
        ALGORITHMS.iter().find_map(|known| name.find(known.0).map(|at| (at, known)))?;
    let rest = name[at + word.len()..].trim_start_matches('_');
    let protocol = PROTOCOLS.iter().find(|(word, _)| rest.starts_with(word)).map(|(_, name)| *name);
    Some(NcclAlgorithm { algorithm, protocol })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_names_contain_the_algorithm() {
        let of = |name: &str| nccl_algorithm(name).map(|found| (found.algorithm, found.protocol));
        for (name, found) in [
            (
                "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                Some(("RING", Some("LL"))),
            ),
            ("ncclKernel_AllReduce_TREE_LL128_Sum_float(ncclDevComm*)", Some(("TREE", Some("LL128")))),
            ("ncclDevKernel_AllReduce_Sum_f16_NVLS_TREE_SIMPLE", Some(("NVLS_TREE", Some("SIMPLE")))),
            ("ncclKernel_AllReduce_COLLNET_DIRECT_SIMPLE_Sum", Some(("COLLNET_DIRECT", Some("SIMPLE")))),
            ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", Some(("RING", Some("LL")))),
            ("ncclKernel_Broadcast_RING_Sum_int8_t", Some(("RING", None))),
            ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", None),
            ("multimem_all_reduce_RING_kernel", None),
        ] {
            assert_eq!(of(name), found, "{name}");
        }
    }
}
