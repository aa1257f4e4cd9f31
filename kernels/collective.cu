// Single-device collectives: between ranks that share the device (loopback), and one that emulates the time and
// resources of a real collective. Like NCCL's kernels, they do not let the next kernel start before they end.

#include "block.cuh"

// All-reduce: outputs[rank][i] = sum over ranks of inputs[rank][i], in f32 and in rank order, rounded once, so all
// ranks get the same bits. `inputs` and `outputs` are arrays of device addresses; an output may alias its input.
// Grid: enough blocks for one pack per thread. Per element: moves 2 x ranks elements, `ranks` FLOPs.
KERNEL(loopback_sum, const u64* inputs, const u64* outputs, u32 ranks, u64 n) {
    SAY_WHEN();
    wait_for_previous();
    u64 first = u64(blockIdx.x) * blockDim.x + threadIdx.x, step = u64(gridDim.x) * blockDim.x;
    u64 packs = n / PACK;
    for (u64 i = first; i < packs; i += step) {
        float sum[PACK] = {};
        for (u32 rank = 0; rank < ranks; rank++) {
            float x[PACK];
            unpack(load_pack(reinterpret_cast<const T*>(inputs[rank]) + i * PACK), x);
#pragma unroll
            for (u32 k = 0; k < PACK; k++) sum[k] += x[k];
        }
        Pack p = pack(sum);
        for (u32 rank = 0; rank < ranks; rank++) store_pack(reinterpret_cast<T*>(outputs[rank]) + i * PACK, p);
    }
    for (u64 i = packs * PACK + first; i < n; i += step) {
        float sum = 0.0f;
        for (u32 rank = 0; rank < ranks; rank++) sum += to_float(reinterpret_cast<const T*>(inputs[rank])[i]);
        for (u32 rank = 0; rank < ranks; rank++) reinterpret_cast<T*>(outputs[rank])[i] = to_number(sum);
    }
}

// Reduce-scatter: outputs[i / each][i % each] = sum over ranks of inputs[rank][i].
KERNEL(loopback_scatter, const u64* inputs, const u64* outputs, u32 ranks, u64 each, u64 n) {
    SAY_WHEN();
    wait_for_previous();
    u64 first = u64(blockIdx.x) * blockDim.x + threadIdx.x, step = u64(gridDim.x) * blockDim.x;
    for (u64 i = first; i < n; i += step) {
        float sum = 0.0f;
        for (u32 rank = 0; rank < ranks; rank++) sum += to_float(reinterpret_cast<const T*>(inputs[rank])[i]);
        reinterpret_cast<T*>(outputs[i / each])[i % each] = to_number(sum);
    }
}

// All-gather: outputs[rank][i] = inputs[i / each][i % each].
KERNEL(loopback_gather, const u64* inputs, const u64* outputs, u32 ranks, u64 each, u64 n) {
    SAY_WHEN();
    wait_for_previous();
    u64 first = u64(blockIdx.x) * blockDim.x + threadIdx.x, step = u64(gridDim.x) * blockDim.x;
    for (u64 i = first; i < n; i += step) {
        T x = reinterpret_cast<const T*>(inputs[i / each])[i % each];
        for (u32 rank = 0; rank < ranks; rank++) reinterpret_cast<T*>(outputs[rank])[i] = x;
    }
}

// All-gather of columns, with rows of `each` 32-bit words per rank: outputs[rank][row][from][i] = inputs[from][row][i].
// Reads each word once and writes it once per rank.
KERNEL(loopback_columns, const u64* inputs, const u64* outputs, u32 ranks, u32 each, u64 words) {
    SAY_WHEN();
    wait_for_previous();
    u64 first = u64(blockIdx.x) * blockDim.x + threadIdx.x, step = u64(gridDim.x) * blockDim.x;
    for (u64 i = first; i < words; i += step) {
        u64 row = i / (u64(each) * ranks), from = i / each % ranks;
        u32 x = reinterpret_cast<const u32*>(inputs[from])[row * each + i % each];
        for (u32 rank = 0; rank < ranks; rank++) reinterpret_cast<u32*>(outputs[rank])[i] = x;
    }
}

// Reorders columns that were gathered rank by rank: out[row][rank][i] = in[rank][row][i], rows of `each` 32-bit words
// per rank. Moves four words at a time if `each` is a multiple of 4.
// Grid: one thread per 16 bytes, up to a full GPU. Moves 2 x 4 bytes per word.
KERNEL(order_columns, const u32* in, u32* out, u32 ranks, u32 each, u32 rows) {
    SAY_WHEN();
    wait_for_previous();
    let_next_start();
    u64 first = u64(blockIdx.x) * blockDim.x + threadIdx.x, step = u64(gridDim.x) * blockDim.x;
    bool fours = each % 4 == 0;
    u32 width = fours ? each / 4 : each;
    u64 n = u64(rows) * ranks * width;
    for (u64 i = first; i < n; i += step) {
        u64 row = i / (u64(width) * ranks), rank = i / width % ranks;
        u64 from = (rank * rows + row) * width + i % width;
        if (fours) {
            store_pack(reinterpret_cast<T*>(out + 4 * i), load_pack(reinterpret_cast<const T*>(in + 4 * from)));
        } else {
            out[i] = in[from];
        }
    }
}

// Packs in flight per thread of the emulated collective. With their addresses they need 96 registers, which is assumed
// (not measured) to match NCCL's kernels, so that these blocks co-reside with others as little as NCCL's. With the
// wider instructions of sm_100 the compiler needs more registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr u32 FLIGHT = 10;
#else
constexpr u32 FLIGHT = 12;
#endif

// Copies `packs` packs with all threads of the grid.
DEVICE void copy_packs(const T* from, T* to, u64 packs) {
    u64 step = u64(gridDim.x) * blockDim.x, i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; i + (FLIGHT - 1) * step < packs; i += FLIGHT * step) {
        Pack p[FLIGHT];
#pragma unroll
        for (u32 k = 0; k < FLIGHT; k++) p[k] = load_pack(from + (i + k * step) * PACK);
#pragma unroll
        for (u32 k = 0; k < FLIGHT; k++) store_pack(to + (i + k * step) * PACK, p[k]);
    }
    for (; i < packs; i += step) store_pack(to + i * PACK, load_pack(from + i * PACK));
}

// Rank 0's share of a collective, without the other ranks: copies `in` to `out` `copies` times back to back (a gather
// whose ranks all hold the same data), then keeps running until `lasts_ns` after its first block could start.
//
// Uses the resources of NCCL's ring: its blocks (grid = NCCL's CTAs, 512 threads each, spinning) and its reads and
// writes: the copies above and, from `in` to `scratch`, `more` elements that a ring would forward. `state`: 2 words, 0
// before the first launch and reset by each launch, so that a CUDA graph can be replayed: start time (ns, 0: none yet)
// and number of finished blocks. Blocks that become resident later share the start time.
BOUNDED_KERNEL(emulated_collective, 512, 1, const T* in, T* out, T* scratch, u64 n, u32 copies, u64 more, u64 lasts_ns,
               u64* state) {
    SAY_WHEN();
    wait_for_previous();
    u64 end = 0;
    if (threadIdx.x == 0) {
        u64 now = global_time(), start = atomicCAS(&state[0], 0ull, now);
        end = (start == 0 ? now : start) + lasts_ns;
    }
    // every copy starts 16-byte aligned if n is whole packs
    u64 packs = copies == 1 || packs_fit(n) ? n / PACK : 0;
#pragma unroll 1
    for (u32 copy = 0; copy <= copies; copy++) {
        bool passes_on = copy == copies;
        copy_packs(in, passes_on ? scratch : out + copy * n, passes_on ? more / PACK : packs);
    }
    u64 step = u64(gridDim.x) * blockDim.x;
    for (u64 i = packs * PACK + u64(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
        for (u32 copy = 0; copy < copies; copy++) out[copy * n + i] = in[i];
    }
    if (threadIdx.x == 0) {
        while (global_time() < end) __nanosleep(64);
        __threadfence();
        // the last block resets the state
        if (atomicAdd(&state[1], 1ull) == gridDim.x - 1) {
            atomicExch(&state[0], 0ull);
            atomicExch(&state[1], 0ull);
        }
    }
    // no thread exits early: all of them hold their registers
    __syncthreads();
}
