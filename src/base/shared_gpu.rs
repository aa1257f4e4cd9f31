//! `LADDERSCOPE_SHARED_GPU=1`: all ranks share GPU 0, to check several ranks over NCCL on a machine with one GPU. Their
//! times say nothing: the ranks wait for one another's turn on the GPU.

/// The variable that asks for it: 1.
pub const VARIABLE: &str = "LADDERSCOPE_SHARED_GPU";

/// NCCL's variable of the most blocks of threads that a collective takes.
pub const MOST_BLOCKS: &str = "NCCL_MAX_CTAS";

/// The most blocks of each rank's collectives: those of all ranks must find room on the GPU beside one another.
pub const BLOCKS: u32 = 8;

/// Variables that such ranks need, unless they are set: NCCL's permission, room for all ranks' blocks, and a hardware queue
/// for each stream, since a collective that spins at the head of a queue blocks the streams behind it, the other rank's
/// among them.
const NEEDED: [(&str, &str); 3] =
    [("NCCL_MULTI_RANK_GPU_ENABLE", "1"), (MOST_BLOCKS, "8"), ("CUDA_DEVICE_MAX_CONNECTIONS", "32")];

/// Whether ranks share GPU 0.
pub fn is_on() -> bool {
    std::env::var(VARIABLE).is_ok_and(|value| value.trim() == "1")
}

/// The GPU of a rank that would have this one if it did not share.
pub fn device(own: usize) -> usize {
    if is_on() { 0 } else { own }
}

/// Sets the variables that NCCL and the driver read once, for this process and its children.
///
/// # Safety
///
/// No other thread runs yet.
pub unsafe fn prepare() {
    if !is_on() {
        return;
    }
    for (name, value) in NEEDED {
        if std::env::var_os(name).is_none() {
            // SAFETY: no other thread reads or writes the environment, as promised by the caller.
            unsafe { std::env::set_var(name, value) };
        }
    }
}
