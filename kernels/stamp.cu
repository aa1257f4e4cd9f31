// Timestamps of operations that cannot record their own (cuBLASLt products, NCCL collectives), and a per-step history.

#include "block.cuh"

// Records the current time in at[0] if that is still 0, or with `is_end` in at[1] if it is later. Launched before and
// after the timed operation, on its stream. Grid (1), one thread.
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

// history[*step][0..n] = stamps; resets the stamps to 0 for the next step and increments *step. Steps from `most`
// onwards are not stored. Grid (1). Moves 24 n bytes.
KERNEL(keep_stamps, u64* stamps, u64* history, u32* step, u32 n, u32 most) {
    SAY_WHEN();
    wait_for_previous();
    u32 at = *step;
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
        if (at < most) history[u64(at) * n + i] = stamps[i];
        stamps[i] = 0;
    }
    // all threads have read *step
    __syncthreads();
    if (threadIdx.x == 0) *step = at + 1;
}
