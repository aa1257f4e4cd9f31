//! `LADDERSCOPE_SHARED_GPU=1`: all ranks share GPU 0, to test several NCCL ranks on a machine with one
//! GPU. Latencies are meaningless, because ranks wait for their turn on the GPU.

use std::sync::LazyLock;

/// Environment variable; 1 enables sharing.
pub const VARIABLE: &str = "LADDERSCOPE_SHARED_GPU";

/// NCCL's variable for the maximum thread blocks per collective.
pub const MOST_BLOCKS: &str = "NCCL_MAX_CTAS";

/// Thread blocks per rank's collective, so that those of all ranks fit on the GPU at once. Not measured: chosen for up to
/// 4 ranks.
pub const BLOCKS: u32 = 8;

/// True if ranks share a GPU in this process.
pub fn is_on() -> bool {
    static ON: LazyLock<bool> =
        LazyLock::new(|| std::env::var(VARIABLE).is_ok_and(|value| value.trim() == "1"));
    *ON
}

/// GPU of a rank, given its own GPU without sharing.
pub fn device(own: usize) -> usize {
    if is_on() { 0 } else { own }
}

/// Sets the variables that NCCL and the driver read once, for this process and its children, unless they are set: NCCL's
/// permission, room for all ranks' blocks, and one hardware queue per stream, because a spinning collective at the head
/// of a queue blocks the streams behind it, including those of other ranks.
///
/// # Safety
///
/// No other thread may be running.
pub unsafe fn prepare() {
    if !is_on() {
        return;
    }
    let blocks = BLOCKS.to_string();
    for (name, value) in [
        ("NCCL_MULTI_RANK_GPU_ENABLE", "1"),
        (MOST_BLOCKS, &*blocks),
        ("CUDA_DEVICE_MAX_CONNECTIONS", "32"),
    ] {
        if std::env::var_os(name).is_none() {
            // SAFETY: no other thread reads or writes the environment, as promised by the caller.
            unsafe { std::env::set_var(name, value) };
        }
    }
}
