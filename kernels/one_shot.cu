// All-reduces in one shot among GPUs that reach each other's memory: each rank lays its part where all can read it,
// says so, waits until all others have said so, and sums what lies there.
//
// A rank has a region in the memory of its GPU. Each launch is the region's next epoch, which the kernel itself counts,
// so that a graph can be replayed. Parts of odd and of even epochs lie in different halves: a rank that lays its part
// down for epoch e + 2 has seen all parts of e + 1, whose ranks had ended e, so nobody reads what it writes over. A
// flag is the latest epoch for which a block of a rank has laid its numbers down: a block waits for the blocks of its
// own number alone, and so for none that may find no room beside it. Epochs are compared by their difference: they may
// wrap.
//
// All ranks launch the same grids in the same order. Sums are in f32 and in the order of ranks, rounded once: all ranks
// get the same bits, and the same as `loopback_sum`.

#include "norm.cuh"

constexpr u32 MOST_RANKS = 16, MOST_BLOCKS = 64;

// The head of a region; its two halves follow.
struct Region {
    // Where the regions of all ranks begin.
    u64 peers[MOST_RANKS];
    // Launches that have ended, and blocks that have, of the one under way.
    u32 epoch, ended, unused[30];
    u32 flags[MOST_BLOCKS][MOST_RANKS];
};

// ---- memory that other GPUs write and read

DEVICE u32 load_flag(const u32* at) {
#ifndef SHIM
    u32 x;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(x) : "l"(at) : "memory");
    return x;
#else
    return *at;
#endif
}

DEVICE void store_flag(u32* at, u32 x) {
#ifndef SHIM
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(x) : "memory");
#else
    *at = x;
#endif
}

DEVICE Pack load_peers_pack(const T* at) {
#ifndef SHIM
    Pack p;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(p.words[0]), "=r"(p.words[1]), "=r"(p.words[2]), "=r"(p.words[3])
                 : "l"(at)
                 : "memory");
    return p;
#else
    return load_pack(at);
#endif
}

// What a thread does that waits for another GPU.
DEVICE void wait_on() {
#ifdef SHIM
    shim::come_back();
#endif
}

// ---- what a block has to do with the others of its number

struct Meeting {
    Region* own;
    u32 epoch, rank, ranks;
    u64 half; // bytes

    DEVICE Meeting(Region* region, u32 rank, u32 ranks, u64 half)
        : own(region), epoch(region->epoch + 1), rank(rank), ranks(ranks), half(half) {}

    // Where a rank's part lies.
    DEVICE T* part(u32 of) const {
        return reinterpret_cast<T*>(own->peers[of] + sizeof(Region) + (epoch % 2) * half);
    }

    // Lays the own part's numbers from `from` up to `end` down, this thread its share as one of `threads`.
    DEVICE void lay_down(const T* in, u64 from, u64 end, u64 thread, u64 threads) const {
        T* to = part(rank);
        u64 packs = packs_fit(from) ? (end - from) / PACK : 0;
        for (u64 i = thread; i < packs; i += threads) {
            store_pack(to + from + i * PACK, load_pack(in + from + i * PACK));
        }
        for (u64 i = from + packs * PACK + thread; i < end; i += threads) to[i] = in[i];
    }

    // Until what the blocks of this number of all ranks have laid down can be read.
    DEVICE void meet() const {
        __syncthreads();
        if (warp_index() == 0) {
            u32 other = lane_index();
            if (other < ranks) {
                __threadfence_system();
                store_flag(&reinterpret_cast<Region*>(own->peers[other])->flags[blockIdx.x][rank], epoch);
            }
            __syncwarp();
            if (other < ranks) {
                while (int(load_flag(&own->flags[blockIdx.x][other]) - epoch) < 0) wait_on();
            }
        }
        __syncthreads();
    }

    // The sum of the ranks' numbers `at`, a pack of them.
    DEVICE Pack sum_pack(u64 at) const {
        constexpr u32 FLIGHT = 4;
        float sum[PACK] = {};
        for (u32 first = 0; first < ranks; first += FLIGHT) {
            Pack p[FLIGHT] = {};
#pragma unroll
            for (u32 k = 0; k < FLIGHT; k++) {
                if (first + k < ranks) p[k] = load_peers_pack(part(first + k) + at);
            }
#pragma unroll
            for (u32 k = 0; k < FLIGHT; k++) {
                if (first + k < ranks) {
                    float x[PACK];
                    unpack(p[k], x);
#pragma unroll
                    for (u32 i = 0; i < PACK; i++) sum[i] += x[i];
                }
            }
        }
        return pack(sum);
    }

    DEVICE T sum_number(u64 at) const {
        float sum = 0.0f;
        for (u32 of = 0; of < ranks; of++) sum += to_float(part(of)[at]);
        return to_number(sum);
    }

    // The last block to end leaves the region to the next launch.
    DEVICE void end() const {
        if (threadIdx.x == 0 && atomicAdd(&own->ended, 1u) == gridDim.x - 1) {
            own->ended = 0;
            own->epoch = epoch;
        }
    }
};

// out = the sum over ranks of their `in`; out may be in. `half`: bytes of half a region. Grid: at most MOST_BLOCKS.
// Moves 2 numbers, and `ranks` numbers over the link, and `ranks` FLOPs a number.
BOUNDED_KERNEL(one_shot_sum, 512, 1, Region* region, const T* in, T* out, u32 rank, u32 ranks, u64 half, u64 n) {
    SAY_WHEN();
    wait_for_previous();
    Meeting meeting(region, rank, ranks, half);
    u64 thread = u64(blockIdx.x) * blockDim.x + threadIdx.x, threads = u64(gridDim.x) * blockDim.x;
    meeting.lay_down(in, 0, n, thread, threads);
    meeting.meet();
    u64 packs = n / PACK;
    for (u64 i = thread; i < packs; i += threads) store_pack(out + i * PACK, meeting.sum_pack(i * PACK));
    for (u64 i = packs * PACK + thread; i < n; i += threads) out[i] = meeting.sum_number(i);
    meeting.end();
}

// A row of a residual with the sum over ranks added to it, each rounded as if it were a kernel of its own.
struct Reduced {
    const Meeting& meeting;
    u64 first;
    const T* residual;
    T* to;
    DEVICE Pack packed(u32 at) const {
        Pack p = added(meeting.sum_pack(first + u64(at) * PACK), load_pack(residual + at * PACK));
        store_pack(to + at * PACK, p);
        return p;
    }
    DEVICE float number(u32 at) const {
        to[at] = to_number(to_float(meeting.sum_number(first + at)) + to_float(residual[at]));
        return to_float(to[at]);
    }
};

// to = residual + the sum over ranks of their `in`; out = the norm of that. A block takes every gridDim.x-th row: at most
// MOST_BLOCKS of them. Moves 5 numbers, and `ranks` numbers over the link, and `ranks` + 5 FLOPs a number.
BOUNDED_KERNEL(one_shot_add_norm, 512, 1, Region* region, const T* in, const T* residual, const T* weight, T* to, T* out,
               u32 rank, u32 ranks, u64 half, u32 rows, u32 columns, float eps) {
    SAY_WHEN();
    wait_for_previous();
    Meeting meeting(region, rank, ranks, half);
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        meeting.lay_down(in, row * columns, (row + 1) * columns, threadIdx.x, blockDim.x);
    }
    meeting.meet();
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        u64 first = row * columns;
        norm_row(Reduced{meeting, first, residual + first, to + first}, weight, out + first, columns, eps);
        // what the block summed in shared memory has been read
        __syncthreads();
    }
    meeting.end();
}
