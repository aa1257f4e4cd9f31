// Loads of data that is read once: predicated instead of branching, and prefetches into L2.
#pragma once

#include "block.cuh"

#ifndef SHIM
// 16-byte load, predicated instead of branched around, so that many loads are in flight.
#define PREDICATED_LOAD(kind, p, at, valid)                                                                   \
    asm volatile("{\n.reg .pred valid;\n"                                                                     \
                 "setp.ne.u32 valid, %5, 0;\n"                                                                \
                 "mov.u32 %0, 0;\nmov.u32 %1, 0;\nmov.u32 %2, 0;\nmov.u32 %3, 0;\n"                           \
                 "@valid ld.global" kind ".v4.u32 {%0, %1, %2, %3}, [%4];\n}"                                 \
                 : "=&r"(p.words[0]), "=&r"(p.words[1]), "=&r"(p.words[2]), "=&r"(p.words[3])                 \
                 : "l"(at), "r"(u32(valid))                                                                   \
                 : "memory")
#endif

// Loads 16 aligned bytes that are read once (zeros unless `valid`). An earlier kernel may have written them.
DEVICE Pack load_once(const void* at, bool valid) {
#ifndef SHIM
    Pack p;
    PREDICATED_LOAD(".L1::no_allocate.L2::128B", p, at, valid);
    return p;
#else
    return valid ? load_pack(at) : Pack{};
#endif
}

// As `load_once`, but cached in L1 for other warps.
DEVICE Pack load_shared(const void* at, bool valid) {
#ifndef SHIM
    Pack p;
    PREDICATED_LOAD("", p, at, valid);
    return p;
#else
    return valid ? load_pack(at) : Pack{};
#endif
}

// Prefetches `bytes` (a multiple of 16) from `at` (16-byte aligned) into L2; called by one thread. No-op without
// programmatic dependent launch, where no earlier kernel hides the prefetch.
DEVICE void prefetch_to_l2(const void* at, u32 bytes) {
#if defined(PROGRAMMATIC) && !defined(NO_PREFETCH) && !defined(SHIM)
    if (bytes > 0) asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(at), "r"(bytes));
#else
    (void)at;
    (void)bytes;
#endif
}

// ---- Prefetch of the next product. With -DAHEAD=bytes, a kernel that has issued its last loads prefetches the first
// weights of the next product, so memory stays busy during reductions, short kernels and launches. Estimate, not
// measured: these gaps last up to 5 us, in which an H100 reads 15 MB (116 KB per SM). Only products use its value.
#ifdef AHEAD
#define AHEAD_PARAMETERS                                                                                      \
    , const T *next_w, u32 next_outputs, u32 next_blocks, u32 next_pitch, u32 next_rows, u32 next_bytes
#define NEXT_PRODUCT                                                                                          \
    NextProduct { next_w, next_outputs, next_blocks, next_pitch, next_rows, next_bytes }
#else
#define AHEAD_PARAMETERS
#define NEXT_PRODUCT                                                                                          \
    NextProduct {}
#endif

// First reads of the next product: `blocks` blocks split `outputs` outputs, `pitch` elements apart; each block starts
// with `bytes` bytes of each of its first `rows` outputs.
struct NextProduct {
    const T* w;
    u32 outputs, blocks, pitch, rows, bytes;

    // Called by every warp of a kernel with `count` blocks of `warps` warps; `block` is the index of this block.
    DEVICE void prefetch(u32 block, u32 count, u32 warps) const {
#ifdef AHEAD
        if (lane_index() != 0) return;
        u32 each = outputs / max(blocks, 1u), longer = outputs % max(blocks, 1u);
        for (u32 i = block * warps + warp_index(); i < blocks * rows; i += count * warps) {
            u32 to = i / rows, output = to * each + min(to, longer) + i % rows;
            prefetch_to_l2(w + u64(output) * pitch, bytes);
        }
#else
        (void)block, (void)count, (void)warps;
#endif
    }
};
