// Thread-block utilities: declarations of kernels and shared memory, warp and block reductions in a fixed order,
// programmatic dependent launch, and timestamps.
#pragma once

#include "number.cuh"

#ifndef SHIM
// Kernel entry point; the registry finds it by name. BOUNDED_KERNEL adds launch bounds: maximum threads per block, and
// minimum resident blocks per SM.
#ifdef STAMPED
#define STAMP_PARAMETER , u64* stamps_at
#else
#define STAMP_PARAMETER
#endif
#define KERNEL(name, ...) extern "C" __global__ void name(__VA_ARGS__ STAMP_PARAMETER)
#define BOUNDED_KERNEL(name, threads, blocks, ...)                                                            \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(__VA_ARGS__ STAMP_PARAMETER)
// Shared memory of a block: static size, or dynamic size (set by the launch).
#define SHARED(type, name, n) __shared__ type name[n]
#define DYNAMIC_SHARED(type, name)                                                                            \
    extern __shared__ u8 dynamic_shared_memory[];                                                             \
    type* const name = reinterpret_cast<type*>(__builtin_assume_aligned(dynamic_shared_memory, 16))
#endif

constexpr u32 WARP = 32;
constexpr u32 ALL_LANES = 0xffffffffu;

DEVICE u32 lane_index() { return threadIdx.x % WARP; }
DEVICE u32 warp_index() { return threadIdx.x / WARP; }

// ---- Programmatic dependent launch (PDL): with -DPROGRAMMATIC on sm_90 and newer, a kernel may start while its
// predecessor in the stream still runs. Before `wait_for_previous`, a kernel must not read anything that another kernel
// writes, and must not write anything. Weights never change and may be read at once.
//
// Short kernels call `wait_for_previous` before `let_next_start`. The product after them then starts streaming its
// weights while they run, when memory is idle, and not while the previous product still streams: its blocks would fill
// that product's SMs unevenly, and that product's weight stream would evict the prefetched lines from L2. Products call
// `let_next_start` first: the next kernel is a short one, and is resident by the time they end.

DEVICE void wait_for_previous() {
#if defined(PROGRAMMATIC) && !defined(SHIM) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

DEVICE void let_next_start() {
#if defined(PROGRAMMATIC) && !defined(SHIM) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// ---- warps

template <class V> DEVICE V shuffle(V x, u32 lane) { return __shfl_sync(ALL_LANES, x, lane); }
template <class V> DEVICE V shuffle_xor(V x, u32 lanes) { return __shfl_xor_sync(ALL_LANES, x, lanes); }

// Reduces over each group of LANES adjacent lanes; every lane gets the same bits.
template <u32 LANES = WARP> DEVICE float warp_sum(float x) {
#pragma unroll
    for (u32 by = LANES / 2; by > 0; by /= 2) x += shuffle_xor(x, by);
    return x;
}

template <u32 LANES = WARP> DEVICE float warp_max(float x) {
#pragma unroll
    for (u32 by = LANES / 2; by > 0; by /= 2) x = fmaxf(x, shuffle_xor(x, by));
    return x;
}

// ---- 1D blocks of whole warps

// Block-wide sum, returned to all threads. One barrier. `scratch`: 32 floats of shared memory; needs another barrier
// before it is written again.
DEVICE float block_sum(float x, float* scratch) {
    x = warp_sum(x);
    if (lane_index() == 0) scratch[warp_index()] = x;
    __syncthreads();
    u32 warps = blockDim.x / WARP;
    x = lane_index() < warps ? scratch[lane_index()] : 0.0f;
    return warp_sum(x);
}

// ---- clocks

// Global timer in ns, shared by all SMs; may advance in steps of 1 us.
DEVICE u64 global_time() {
#ifndef SHIM
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
#else
    return shim::globaltimer();
#endif
}

// ---- Timestamps: with -DSTAMPED every kernel takes an extra argument and records when it ran: the start of its first
// block at stamps_at[0], the end of the first thread of its last block at stamps_at[1] (ns; both are 0 before). With
// PDL, a kernel starts before its predecessor ends. Kernels that share a slot record one joint interval.

struct Stamps {
    u64* at;

    DEVICE static bool is_first_thread() { return threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0; }
    DEVICE explicit Stamps(u64* place) : at(place) {
        // most blocks find the start already set and skip the atomic, which leaves the cache line alone
        if (is_first_thread() && *static_cast<volatile u64*>(at) == 0) atomicCAS(at, 0ull, global_time());
    }
    DEVICE ~Stamps() {
        if (is_first_thread()) atomicMax(at + 1, global_time());
    }
};

#ifdef STAMPED
#define SAY_WHEN() const Stamps stamps_of_kernel(stamps_at)
#else
#define SAY_WHEN()
#endif
