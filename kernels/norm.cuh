// RMSNorm of one row by one block.
//
// The row stays in registers between the sum of squares and the scaling (up to KEEP packs per thread: 1024 threads hold
// 16384 16-bit elements), so each byte is read once and written once. The weights do not depend on the previous kernel
// and are loaded while it still runs.
#pragma once

#include "block.cuh"

// Packs of a row that each thread keeps in registers.
constexpr u32 KEEP = 2;

DEVICE float squares(const Pack& p) {
    float x[PACK], sum = 0.0f;
    unpack(p, x);
#pragma unroll
    for (u32 i = 0; i < PACK; i++) sum += x[i] * x[i];
    return sum;
}

DEVICE Pack scaled(const Pack& p, const Pack& weight, float scale) {
    float x[PACK], w[PACK];
    unpack(p, x);
    unpack(weight, w);
#pragma unroll
    for (u32 i = 0; i < PACK; i++) x[i] = x[i] * scale * w[i];
    return pack(x);
}

DEVICE Pack added(const Pack& p, const Pack& q) {
    float a[PACK], b[PACK];
    unpack(p, a);
    unpack(q, b);
#pragma unroll
    for (u32 i = 0; i < PACK; i++) a[i] += b[i];
    return pack(a);
}

DEVICE float norm_scale(float total, u32 columns, float eps) {
    return 1.0f / sqrtf(total / float(columns) + eps);
}

// Normalizes one row. `row.packed(at)` and `row.number(at)` return its elements; `row.to` holds them afterwards.
template <class Row> DEVICE void norm_row(const Row& row, const T* weight, T* out, u32 columns, float eps) {
    SHARED(float, scratch, 32);
    u32 first = threadIdx.x, step = blockDim.x;
    if (!packs_fit(columns)) {
        wait_for_previous();
        let_next_start();
        float total = 0.0f;
        for (u32 i = first; i < columns; i += step) {
            float x = row.number(i);
            total += x * x;
        }
        float scale = norm_scale(block_sum(total, scratch), columns, eps);
        for (u32 i = first; i < columns; i += step) {
            out[i] = to_number(to_float(row.to[i]) * scale * to_float(weight[i]));
        }
        return;
    }
    u32 packs = columns / PACK;
    Pack x[KEEP], w[KEEP];
#pragma unroll
    for (u32 k = 0; k < KEEP; k++) {
        if (first + k * step < packs) w[k] = load_pack(weight + (first + k * step) * PACK);
    }
    wait_for_previous();
    let_next_start();
    float total = 0.0f;
#pragma unroll
    for (u32 k = 0; k < KEEP; k++) {
        if (first + k * step < packs) {
            x[k] = row.packed(first + k * step);
            total += squares(x[k]);
        }
    }
    // packs that do not fit in registers are read again below
    for (u32 i = first + KEEP * step; i < packs; i += step) total += squares(row.packed(i));
    float scale = norm_scale(block_sum(total, scratch), columns, eps);
#pragma unroll
    for (u32 k = 0; k < KEEP; k++) {
        if (first + k * step < packs) store_pack(out + (first + k * step) * PACK, scaled(x[k], w[k], scale));
    }
    for (u32 i = first + KEEP * step; i < packs; i += step) {
        store_pack(out + i * PACK, scaled(load_pack(row.to + i * PACK), load_pack(weight + i * PACK), scale));
    }
}
