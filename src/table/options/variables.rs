//! Environment variables that a file may set. Experiment files come from colleagues, papers and
//! repositories and must not execute code, which loader variables, plugins or paths would allow. `--env`
//! on the command line accepts any variable.

use base::error::nearest;

/// NCCL's tuning variables (NCCL user guide, "Environment Variables") that neither name nor load a file, without `NCCL_`.
const NCCL: &str = "\
    ALGO ALLOC_P2P_NET_LL_BUFFERS BUFFSIZE CGA_CLUSTER_SIZE CHECK_POINTERS CHUNK_SIZE \
    COLLNET_ENABLE COMM_BLOCKING CROSS_NIC CTA_POLICY CUMEM_ENABLE CUMEM_HOST_ENABLE DEBUG \
    DEBUG_SUBSYS DMABUF_ENABLE GDRCOPY_ENABLE GDR_READ GRAPH_MIXING_SUPPORT GRAPH_REGISTER \
    IB_ADAPTIVE_ROUTING IB_AR_THRESHOLD IB_DISABLE IB_GID_INDEX IB_HCA IB_MERGE_NICS \
    IB_PCI_RELAXED_ORDERING IB_QPS_PER_CONNECTION IB_RETRY_CNT IB_SL IB_SPLIT_DATA_ON_QPS IB_TC \
    IB_TIMEOUT IGNORE_CPU_AFFINITY LAUNCH_MODE LAUNCH_ORDER_IMPLICIT LL_BUFFSIZE LL128_BUFFSIZE \
    LOCAL_REGISTER MAX_CTAS MAX_NCHANNELS MAX_P2P_NCHANNELS MIN_CTAS MIN_NCHANNELS \
    MIN_P2P_NCHANNELS MNNVL_ENABLE NCHANNELS_PER_NET_PEER NET_GDR_LEVEL NET_GDR_READ \
    NSOCKS_PERTHREAD NTHREADS NVB_DISABLE NVLS_ENABLE NVLS_NCHANNELS NVLSTREE_MAX_CHUNKSIZE \
    P2P_DIRECT_DISABLE P2P_DISABLE P2P_LEVEL P2P_NET_CHUNKSIZE P2P_NVL_CHUNKSIZE P2P_PCI_CHUNKSIZE \
    P2P_READ_ENABLE P2P_USE_CUDA_MEMCPY PROTO PXN_DISABLE RUNTIME_CONNECT SHM_DISABLE \
    SHM_USE_CUDA_MEMCPY SOCKET_IFNAME SOCKET_NTHREADS WIN_ENABLE WORK_FIFO_BYTES";

/// Variables of CUDA and its libraries, with full names.
const CUDA: &str = "\
    CUBLASLT_WORKSPACE_SIZE CUBLAS_WORKSPACE_CONFIG CUDA_AUTO_BOOST CUDA_CACHE_DISABLE \
    CUDA_CACHE_MAXSIZE CUDA_DEVICE_MAX_CONNECTIONS CUDA_DEVICE_ORDER CUDA_DISABLE_PERF_BOOST \
    CUDA_FORCE_PTX_JIT CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING CUDA_SCALE_LAUNCH_QUEUES \
    CUDA_VISIBLE_DEVICES NVIDIA_TF32_OVERRIDE";

pub fn settable() -> impl Iterator<Item = String> {
    let nccl = NCCL.split_whitespace().map(|name| format!("NCCL_{name}"));
    nccl.chain(CUDA.split_whitespace().map(str::to_owned))
}

/// NCCL variable that affects the latency of an all-reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcclVariable {
    /// Name in the environment, e.g. `NCCL_ALGO`.
    pub name: &'static str,
    pub about: &'static str,
    /// Valid values, if they are few.
    pub values: &'static [&'static str],
}

const fn nccl_variable(
    name: &'static str,
    about: &'static str,
    values: &'static [&'static str],
) -> NcclVariable {
    NcclVariable { name, about, values }
}

/// Variables offered for selection. Users can type any other.
pub const NCCL_CHOICES: [NcclVariable; 18] = [
    nccl_variable("NCCL_ALGO", "algorithm", &["Ring", "Tree", "NVLS", "NVLSTree"]),
    nccl_variable("NCCL_PROTO", "protocol", &["LL", "LL128", "Simple"]),
    nccl_variable("NCCL_P2P_DISABLE", "1: no direct access between GPUs", &["0", "1"]),
    nccl_variable(
        "NCCL_P2P_LEVEL",
        "largest distance for direct GPU access",
        &["LOC", "NVL", "PIX", "PXB", "PHB", "SYS"],
    ),
    nccl_variable("NCCL_SHM_DISABLE", "1: no shared memory between processes", &["0", "1"]),
    nccl_variable("NCCL_NVLS_ENABLE", "NVLink SHARP", &["0", "1", "2"]),
    nccl_variable("NCCL_MIN_CTAS", "minimum thread blocks per collective", &[]),
    nccl_variable("NCCL_MAX_CTAS", "maximum thread blocks per collective (SMs taken from compute)", &[]),
    nccl_variable("NCCL_MIN_NCHANNELS", "minimum channels", &[]),
    nccl_variable("NCCL_MAX_NCHANNELS", "maximum channels", &[]),
    nccl_variable("NCCL_NTHREADS", "threads per block", &["64", "128", "256", "512"]),
    nccl_variable("NCCL_BUFFSIZE", "buffer size between two GPUs, in bytes", &[]),
    nccl_variable("NCCL_CGA_CLUSTER_SIZE", "size of thread block clusters", &["0", "1", "2", "4", "8"]),
    nccl_variable("NCCL_CUMEM_ENABLE", "memory allocation through cuMem", &["0", "1"]),
    nccl_variable(
        "NCCL_NET_GDR_LEVEL",
        "largest GPU-to-NIC distance for GPUDirect",
        &["LOC", "PIX", "PXB", "PHB", "SYS"],
    ),
    nccl_variable("NCCL_IB_DISABLE", "1: sockets instead of InfiniBand", &["0", "1"]),
    nccl_variable("NCCL_CROSS_NIC", "rings across several NICs", &["0", "1", "2"]),
    nccl_variable(
        "NCCL_GRAPH_MIXING_SUPPORT",
        "1: mix captured and uncaptured collectives",
        &["0", "1"],
    ),
];

/// Looks up an offered variable by name.
pub fn nccl(name: &str) -> Option<&'static NcclVariable> {
    NCCL_CHOICES.iter().find(|variable| variable.name == name)
}

/// Message and hint if a file must not set the variable to this value.
pub fn refusal(name: &str, value: &str) -> Option<(String, String)> {
    let own = format!("set it on the command line: --env {name}=VALUE");
    let settable: Vec<String> = settable().collect();
    if !settable.iter().any(|settable| settable == name) {
        let near = nearest(name, settable.iter().map(String::as_str));
        let near = near.map(|known| format!("did you mean {known}? ")).unwrap_or_default();
        let message = format!("a file cannot set env.{name}: it is not an NCCL or CUDA tuning variable");
        return Some((message, format!("{near}{own}")));
    }
    let path = value.contains(['/', '\\']) || value.starts_with('~');
    path.then(|| (format!("a file cannot set env.{name} to '{value}', which is a path"), own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuning_is_taken_and_what_could_run_code_is_not() {
        for name in ["NCCL_ALGO", "NCCL_P2P_DISABLE", "NCCL_DEBUG", "CUDA_DEVICE_MAX_CONNECTIONS"] {
            assert_eq!(refusal(name, "1"), None);
        }
        for name in [
            "LD_PRELOAD",
            "LD_AUDIT",
            "LD_LIBRARY_PATH",
            "PATH",
            "XDG_CACHE_HOME",
            "LADDERSCOPE_NVRTC",
            "LADDERSCOPE_SECRET_FILE",
            "NCCL_NET_PLUGIN",
            "NCCL_TUNER_PLUGIN",
            "NCCL_PROFILER_PLUGIN",
            "NCCL_CONF_FILE",
            "NCCL_DEBUG_FILE",
            "NCCL_TOPO_FILE",
            "CUDA_INJECTION64_PATH",
            "NVTX_INJECTION64_PATH",
            "nccl_algo",
            "",
        ] {
            assert!(refusal(name, "1").is_some(), "{name}");
        }
        for value in ["/tmp/x.so", "../x", "~/x", "a\\b"] {
            assert!(refusal("NCCL_ALGO", value).unwrap().0.contains("which is a path"));
        }
        assert!(refusal("NCCL_ALGOO", "Ring").unwrap().1.contains("did you mean NCCL_ALGO?"));
        // nothing on the list loads or names a file
        let risky = ["PLUGIN", "FILE", "PATH", "INJECTION", "CONF_"];
        assert!(settable().all(|name| risky.iter().all(|part| !name.contains(part))));
    }
}
