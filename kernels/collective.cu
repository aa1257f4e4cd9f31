// Collectives on one device: over ranks that share it, and one that only takes what a real one would.
// As NCCL's kernels they do not let the next kernel start before they end.

#include "block.cuh"

// outputs[rank][i] = sum over ranks of inputs[rank][i], in f32 and in the order of ranks, rounded once: all ranks
// get the same bits. `inputs` and `outputs` are arrays of addresses on the device; an output may be its input.
// Grid: enough blocks for a pack a thread. Moves 2 x ranks numbers and `ranks` FLOPs a number.
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

// The same, of which each rank gets its share: outputs[i / each][i % each] = sum over ranks of inputs[rank][i].
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

// Every rank gets the shares of all: outputs[rank][i] = inputs[i / each][i % each].
KERNEL(loopback_gather, const u64* inputs, const u64* outputs, u32 ranks, u64 each, u64 n) {
    SAY_WHEN();
    wait_for_previous();
    u64 first = u64(blockIdx.x) * blockDim.x + threadIdx.x, step = u64(gridDim.x) * blockDim.x;
    for (u64 i = first; i < n; i += step) {
        T x = reinterpret_cast<const T*>(inputs[i / each])[i % each];
        for (u32 rank = 0; rank < ranks; rank++) reinterpret_cast<T*>(outputs[rank])[i] = x;
    }
}

// Every rank gets the columns of all, of rows of `each` words (32 bits) a rank: outputs[rank][row][from][i] =
// inputs[from][row][i]. Moves each word once, and once a rank.
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

// Puts the columns of ranks into order that were gathered one rank behind the other: out[row][rank][i] =
// in[rank][row][i], rows of `each` words (32 bits) a rank. Four words at a time where rows have whole fours.
// Grid: a thread for each 16 bytes, up to what fills the GPU. Moves 2 x 4 bytes a word.
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

// Packs that a thread of the emulated collective has in flight. With their addresses they take 96 registers,
// which is assumed (not measured) to be what NCCL's kernels take, so that its blocks fit beside others as little as NCCL's.
// The compiler needs more of them for sm_100's wider instructions.
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

// Rank 0's part of a collective, without the other ranks: out = in, `copies` times one behind the other (a gather, of
// whose ranks all hold what this one does), and then the kernel stays until `lasts_ns` have passed since its first
// block could run.
//
// It takes what NCCL's ring takes: its blocks (grid = NCCL's CTAs, 512 threads each, spinning), and its reads and
// writes: those of what it copies and, from in to scratch, those of `more` numbers which a ring would pass on.
// `state`: 2 numbers, 0 before the first launch, and again after each, so that a graph can be replayed: the start (ns,
// 0: none yet) and how many blocks are done. Blocks that only find room later share the start.
BOUNDED_KERNEL(emulated_collective, 512, 1, const T* in, T* out, T* scratch, u64 n, u32 copies, u64 more, u64 lasts_ns,
               u64* state) {
    SAY_WHEN();
    wait_for_previous();
    u64 end = 0;
    if (threadIdx.x == 0) {
        u64 now = global_time(), start = atomicCAS(&state[0], 0ull, now);
        end = (start == 0 ? now : start) + lasts_ns;
    }
    // copies begin on 16 bytes where one has whole packs
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
        // the last block leaves the state as it was found
        if (atomicAdd(&state[1], 1ull) == gridDim.x - 1) {
            atomicExch(&state[0], 0ull);
            atomicExch(&state[1], 0ull);
        }
    }
    // nobody leaves before the time: the threads hold their registers
    __syncthreads();
}
