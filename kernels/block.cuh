// What a block of threads does together: declarations of kernels and shared memory, sums and maxima over
// warps and blocks in a fixed order, and the overlap of a kernel's start with the end of the one before it.
#pragma once

#include "number.cuh"

#ifndef SHIM
// A kernel that the registry finds by its name. The second form bounds its registers: so many threads a
// block, and at least so many blocks at a time on a multiprocessor.
#ifdef STAMPED
#define STAMP_PARAMETER , u64* stamps_at
#else
#define STAMP_PARAMETER
#endif
#define KERNEL(name, ...) extern "C" __global__ void name(__VA_ARGS__ STAMP_PARAMETER)
#define BOUNDED_KERNEL(name, threads, blocks, ...)                                                            \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(__VA_ARGS__ STAMP_PARAMETER)
// Arrays that all threads of a block share: of a fixed size, or of the launch's.
#define SHARED(type, name, n) __shared__ type name[n]
#define DYNAMIC_SHARED(type, name)                                                                            \
    extern __shared__ u8 dynamic_shared_memory[];                                                             \
    type* const name = reinterpret_cast<type*>(__builtin_assume_aligned(dynamic_shared_memory, 16))
#endif

constexpr u32 WARP = 32;
constexpr u32 ALL_LANES = 0xffffffffu;

DEVICE u32 lane_index() { return threadIdx.x % WARP; }
DEVICE u32 warp_index() { return threadIdx.x / WARP; }

// ---- programmatic dependent launch: with -DPROGRAMMATIC, on sm_90 and newer, a kernel may begin while the one
// before it in its stream still runs. Nothing that another kernel writes is read, and nothing is written,
// before `wait_for_previous`; weights never change and may be read at once.
//
// Short kernels wait before they let the next one start. So the product after them begins to stream its weights while
// they run, when memory is idle; not while the product before them still streams, whose multiprocessors it would fill
// unevenly and in whose stream what it asked for would be lost from the second-level cache. Products let the next one
// start first: it is a short one, which then is there when they end.

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

// Over the lanes of each group of LANES neighbours; every lane gets the result, the same bits.
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

// ---- blocks of whole warps, one dimension

// The sum over all threads of a block, for every thread. `scratch`: 32 floats of shared memory, to be written
// again only after another barrier. One barrier.
DEVICE float block_sum(float x, float* scratch) {
    x = warp_sum(x);
    if (lane_index() == 0) scratch[warp_index()] = x;
    __syncthreads();
    u32 warps = blockDim.x / WARP;
    x = lane_index() < warps ? scratch[lane_index()] : 0.0f;
    return warp_sum(x);
}

// ---- clocks

// Nanoseconds of the clock that all multiprocessors share; it may tick in steps of a microsecond.
DEVICE u64 global_time() {
#ifndef SHIM
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
#else
    return shim::globaltimer();
#endif
}

// ---- stamps: with -DSTAMPED every kernel takes one argument more and says there when it ran: at stamps_at[0] when its
// first block began, at stamps_at[1] when the first thread of its last block ended (ns; both are 0 before). A kernel that
// was started early begins before the one ahead of it ends. Of kernels that are told the same place, all together.

struct Stamps {
    u64* at;

    DEVICE static bool is_first_thread() { return threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0; }
    DEVICE explicit Stamps(u64* place) : at(place) {
        // most blocks see that another one was there before, and leave the line alone
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
