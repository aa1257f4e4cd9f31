// One-shot all-reduces between GPUs with peer access: each rank copies its part to memory that all ranks can read,
// publishes a flag, waits for the flags of all other ranks, and sums the parts.
//
// Each rank has a region in its GPU's memory. Each launch is the region's next epoch, counted by the kernel itself, so
// that a CUDA graph can be replayed. Odd and even epochs use different halves of the region: a rank that writes its
// part for epoch e + 2 has seen all flags of e + 1, whose ranks had finished e, so nobody reads what it overwrites. A
// flag is the latest epoch for which a block of a rank has published its part. A block waits only for the blocks with
// its own index on the other ranks, and so never for one that may not become resident alongside it. Epochs are compared
// by their difference, so they may wrap.
//
// All ranks launch the same grids in the same order. Sums are in f32 and in rank order, rounded once: all ranks get the
// same bits, and the same as `loopback_sum`.

#include "norm.cuh"

constexpr u32 MOST_RANKS = 16, MOST_BLOCKS = 64;

// Header of a region; its two halves follow.
struct Region {
    // Addresses of all ranks' regions.
    u64 peers[MOST_RANKS];
    // Number of finished launches, and of finished blocks of the current launch.
    u32 epoch, ended, unused[30];
    u32 flags[MOST_BLOCKS][MOST_RANKS];
};

// ---- memory shared with other GPUs

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

// Body of a spin-wait for another GPU; the CPU shim ends the block and runs it again later.
DEVICE void wait_on() {
#ifdef SHIM
    shim::come_back();
#endif
}

// ---- rendezvous of the blocks with the same index on all ranks

struct Meeting {
    Region* own;
    u32 epoch, rank, ranks;
    u64 half; // bytes

    DEVICE Meeting(Region* region, u32 rank, u32 ranks, u64 half)
        : own(region), epoch(region->epoch + 1), rank(rank), ranks(ranks), half(half) {}

    // Address of a rank's part.
    DEVICE T* part(u32 of) const {
        return reinterpret_cast<T*>(own->peers[of] + sizeof(Region) + (epoch % 2) * half);
    }

    // Copies elements `from` to `end` of this rank's part into its region, as thread `thread` of `threads`.
    DEVICE void lay_down(const T* in, u64 from, u64 end, u64 thread, u64 threads) const {
        T* to = part(rank);
        u64 packs = packs_fit(from) ? (end - from) / PACK : 0;
        for (u64 i = thread; i < packs; i += threads) {
            store_pack(to + from + i * PACK, load_pack(in + from + i * PACK));
        }
        for (u64 i = from + packs * PACK + thread; i < end; i += threads) to[i] = in[i];
    }

    // Publishes this block's flag, and waits until the parts of all ranks' blocks with this index can be read.
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

    // Sum over ranks of the pack at element `at`.
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

    // The last block to end advances the epoch.
    DEVICE void end() const {
        if (threadIdx.x == 0 && atomicAdd(&own->ended, 1u) == gridDim.x - 1) {
            own->ended = 0;
            own->epoch = epoch;
        }
    }
};

// out = sum over ranks of `in`; out may alias in. `half`: bytes of half a region.
// Grid: at most MOST_BLOCKS. Per element: moves 2 elements, and `ranks` elements over the link, `ranks` FLOPs.
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

// Row of a residual plus the sum over ranks, each rounded as if by a separate kernel.
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

// to = residual + sum over ranks of `in`; out = norm of to. A block processes every gridDim.x-th row; at most
// MOST_BLOCKS blocks. Per element: moves 5 elements, and `ranks` elements over the link, `ranks` + 5 FLOPs.
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
        // the next row reuses the shared memory of norm_row
        __syncthreads();
    }
    meeting.end();
}
