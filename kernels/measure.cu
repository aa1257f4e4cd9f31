// Device measurements: memory read bandwidth, and the resolution of the clock.

#include "block.cuh"

// Loads in flight per thread.
constexpr u32 UNROLL = 8;

// Reads n x 16 bytes once; XORs all words into *sink, so that no load is optimized away and the data can be verified.
// Grid: a few blocks per SM. Moves 16 n bytes.
BOUNDED_KERNEL(read_bandwidth, 512, 2, const uint4* data, u64 n, u32* sink) {
    SAY_WHEN();
    let_next_start();
    wait_for_previous();
    u64 step = u64(gridDim.x) * blockDim.x, i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    u32 word = 0;
    for (; i + (UNROLL - 1) * step < n; i += UNROLL * step) {
        Pack p[UNROLL];
#pragma unroll
        for (u32 k = 0; k < UNROLL; k++) p[k] = load_pack_once(data + i + k * step);
#pragma unroll
        for (u32 k = 0; k < UNROLL; k++) word ^= p[k].words[0] ^ p[k].words[1] ^ p[k].words[2] ^ p[k].words[3];
    }
    for (; i < n; i += step) {
        Pack p = load_pack_once(data + i);
        word ^= p.words[0] ^ p.words[1] ^ p.words[2] ^ p.words[3];
    }
#pragma unroll
    for (u32 by = WARP / 2; by > 0; by /= 2) word ^= shuffle_xor(word, by);
    if (lane_index() == 0) atomicXor(sink, word);
}

// out[0..n]: the first n distinct values (ns) of the global timer, which give its tick and the cost of a read.
// Grid (1), one thread.
KERNEL(clock_probe, u64* out, u32 n) {
    SAY_WHEN();
    let_next_start();
    wait_for_previous();
    u64 last = global_time();
    for (u32 i = 0; i < n; i++) {
        u64 now = global_time();
        while (now == last) now = global_time();
        out[i] = last = now;
    }
}
