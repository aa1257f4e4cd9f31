// Tensor-core products of 16-bit elements (mma.m16n8k16, f32 accumulators), and the data movement for them.
//
// Fragments (PTX manual, "Matrix fragments for mma.m16n8k16"), with g = lane / 4 and t = lane % 4:
//   a[0], a[1]: rows g, g + 8 of k = 2t, 2t + 1;    a[2], a[3]: the same rows of k = 2t + 8, 2t + 9
//   b[0], b[1]: column g of k = 2t, 2t + 1, and of k = 2t + 8, 2t + 9
//   c[0], c[1]: row g, columns 2t, 2t + 1;          c[2], c[3]: row g + 8
// The order of k is free as long as a and b agree. A lane may thus load 16 bytes (elements 8t .. 8t + 7 of a row's 32)
// and use them as k of two products: words 0 and 1 in the first, 2 and 3 in the second (`mma_packs`). K-major matrices
// in global memory then need no shared memory.
#pragma once

#include "block.cuh"

#if !defined(NUMBER_F32)

// c += a b.
DEVICE void mma(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#ifdef SHIM
#if defined(NUMBER_BF16)
    shim::mma_m16n8k16<bf16_to_float>(c, a, b, c);
#else
    shim::mma_m16n8k16<f16_to_float>(c, a, b, c);
#endif
#else
#if defined(NUMBER_BF16)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
#endif
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// c += a b over 32 values of k. `upper`, `lower`: packs of rows g and g + 8 of a; `column`: pack of column g of b.
DEVICE void mma_packs(float (&c)[4], const Pack& upper, const Pack& lower, const Pack& column) {
#pragma unroll
    for (u32 half = 0; half < 4; half += 2) {
        u32 a[4] = {upper.words[half], lower.words[half], upper.words[half + 1], lower.words[half + 1]};
        u32 b[2] = {column.words[half], column.words[half + 1]};
        mma(c, a, b);
    }
}

// Combines the low (high) halves of two words; `first` becomes the low half.
DEVICE u32 low_halves(u32 first, u32 second) { return (first & 0xffffu) | second << 16; }
DEVICE u32 high_halves(u32 first, u32 second) { return first >> 16 | (second & 0xffff0000u); }

// Transposes an 8 x 8 matrix of 16-bit elements: a lane's row g, columns 2t, 2t + 1 becomes column g, rows 2t, 2t + 1.
DEVICE u32 transpose(u32 pair) {
#ifndef SHIM
    u32 turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
    return turned;
#else
    u32 g = lane_index() / 4, t = lane_index() % 4;
    u32 first = shuffle(pair, 8 * t + g / 2), second = shuffle(pair, 8 * t + 4 + g / 2);
    return g % 2 == 0 ? low_halves(first, second) : high_halves(first, second);
#endif
}

// Loads four 8 x 8 matrices from shared memory, transposed: lane l passes the address of row l % 8 (16 bytes, aligned)
// of matrix l / 8; word i of the result is column g, rows 2t and 2t + 1 of matrix i.
DEVICE Pack load_transposed(const T* row) {
    Pack p;
#ifndef SHIM
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(p.words[0]), "=r"(p.words[1]), "=r"(p.words[2]), "=r"(p.words[3])
                 : "r"(u32(__cvta_generic_to_shared(row)))
                 : "memory");
#else
    shim::aligned(reinterpret_cast<const Pack*>(row));
    u32 g = lane_index() / 4, t = lane_index() % 4;
    for (u32 i = 0; i < 4; i++) {
        u64 first = shuffle(u64(row), 8 * i + 2 * t), second = shuffle(u64(row), 8 * i + 2 * t + 1);
        p.words[i] = u32(reinterpret_cast<const T*>(first)[g].bits) |
                     u32(reinterpret_cast<const T*>(second)[g].bits) << 16;
    }
#endif
    return p;
}

#endif

// ---- asynchronous copies from global to shared memory (cp.async)

// Copies 16 bytes (both addresses aligned); zero-fills unless `valid` (`from` must still be an address).
DEVICE void copy_async(void* to, const void* from, bool valid) {
#ifndef SHIM
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(u32(__cvta_generic_to_shared(to))),
                 "l"(from), "r"(valid ? 16u : 0u)
                 : "memory");
#else
    shim::copy_async(to, from, valid);
#endif
}

// Commits the current group of copies.
DEVICE void commit_copies() {
#ifndef SHIM
    asm volatile("cp.async.commit_group;" ::: "memory");
#else
    shim::commit_copies();
#endif
}

// Waits until at most LATEST of this thread's groups are pending.
template <u32 LATEST> DEVICE void wait_for_copies() {
#ifndef SHIM
    asm volatile("cp.async.wait_group %0;" ::"n"(LATEST) : "memory");
#else
    shim::wait_for_copies(LATEST);
#endif
}
