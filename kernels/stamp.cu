// Saying when something ran that cannot say so itself (a product of cuBLASLt, a collective of NCCL), and keeping what
// the kernels of a step said.

#include "block.cuh"

// Writes down the time at at[0], if nothing is there yet, or, of an end, the latest at at[1]. On the stream of what it
// stamps, before it and behind it. Grid (1), one thread.
KERNEL(stamp, u64* at, u32 is_end) {
    SAY_WHEN();
    wait_for_previous();
    u64 now = global_time();
    if (is_end == 0) {
        if (at[0] == 0) at[0] = now;
    } else if (at[1] < now) {
        at[1] = now;
    }
}

// history[*step][0..n] = stamps, for the next step 0 again, and *step grows by one; steps from `most` on are not kept.
// Grid (1). Moves 24 n bytes.
KERNEL(keep_stamps, u64* stamps, u64* history, u32* step, u32 n, u32 most) {
    SAY_WHEN();
    wait_for_previous();
    u32 at = *step;
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
        if (at < most) history[u64(at) * n + i] = stamps[i];
        stamps[i] = 0;
    }
    // all have read it
    __syncthreads();
    if (threadIdx.x == 0) *step = at + 1;
}
