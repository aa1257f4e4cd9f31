// Loads that stream memory once: masked without a branch, and prefetches into the second-level cache.
#pragma once

#include "block.cuh"

#ifndef SHIM
// A load of 16 bytes, predicated rather than branched around, so that many of them are in flight.
#define PREDICATED_LOAD(kind, p, at, valid)                                                                   \
    asm volatile("{\n.reg .pred valid;\n"                                                                     \
                 "setp.ne.u32 valid, %5, 0;\n"                                                                \
                 "mov.u32 %0, 0;\nmov.u32 %1, 0;\nmov.u32 %2, 0;\nmov.u32 %3, 0;\n"                           \
                 "@valid ld.global" kind ".v4.u32 {%0, %1, %2, %3}, [%4];\n}"                                 \
                 : "=&r"(p.words[0]), "=&r"(p.words[1]), "=&r"(p.words[2]), "=&r"(p.words[3])                 \
                 : "l"(at), "r"(u32(valid))                                                                   \
                 : "memory")
#endif

// Sixteen bytes (aligned; zeros where not `valid`) that are read once, of memory that an earlier kernel may have
// written.
DEVICE Pack load_once(const void* at, bool valid) {
#ifndef SHIM
    Pack p;
    PREDICATED_LOAD(".L1::no_allocate.L2::128B", p, at, valid);
    return p;
#else
    return valid ? load_pack(at) : Pack{};
#endif
}

// The same, kept in the first-level cache for others to read.
DEVICE Pack load_shared(const void* at, bool valid) {
#ifndef SHIM
    Pack p;
    PREDICATED_LOAD("", p, at, valid);
    return p;
#else
    return valid ? load_pack(at) : Pack{};
#endif
}

// A number that another block of the same kernel wrote, from the second-level cache: the first-level one of this
// multiprocessor may hold what was there before.
DEVICE float load_written(const float* at) {
#ifndef SHIM
    return __ldcg(at);
#else
    return *at;
#endif
}

// Whether this block is the last of `of` that arrive here, where a counter is 0 before the first: what all of them wrote
// before is then seen by all threads of this one. One thread waits for the others' writes, so that what its neighbours
// have under way from memory need not end; whoever is last leaves the counter at 0.
DEVICE bool is_last_to_arrive(u32* arrived, u32 of) {
    SHARED(u32, before, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        before[0] = atomicAdd(arrived, 1u);
        __threadfence();
        if (before[0] + 1 == of) *arrived = 0;
    }
    __syncthreads();
    return before[0] + 1 == of;
}

// Asks for `bytes` (a multiple of 16) from `at` (aligned to 16) to be brought into the second-level cache; one
// thread asks for all of it. Only where a kernel can begin before the one ahead of it ends, else there is
// nothing to hide it behind.
DEVICE void prefetch_to_l2(const void* at, u32 bytes) {
#if defined(PROGRAMMATIC) && !defined(NO_PREFETCH) && !defined(SHIM)
    if (bytes > 0) asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(at), "r"(bytes));
#else
    (void)at;
    (void)bytes;
#endif
}
