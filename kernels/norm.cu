// RMSNorm of rows, alone or fused with the addition before it.
//
// A block is a row. Its numbers stay in registers between the sum of squares and the scaling (up to KEEP packs a
// thread: 1024 threads keep 16384 numbers of 16 bits), so each byte is read once and written once. The weights
// do not depend on the kernel before and are fetched while it still runs.

#include "block.cuh"

// Packs of a row that a thread keeps in registers.
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

// A row's numbers at pack `at`: x itself, or a + b, which is stored to `sum` and read as it was rounded.
template <bool ADD> DEVICE Pack row_pack(const T* a, const T* b, T* sum, u32 at) {
    Pack p = load_pack(a + at * PACK);
    if (ADD) {
        p = added(p, load_pack(b + at * PACK));
        store_pack(sum + at * PACK, p);
    }
    return p;
}

template <bool ADD> DEVICE float row_number(const T* a, const T* b, T* sum, u32 at) {
    if (!ADD) return to_float(a[at]);
    T rounded = to_number(to_float(a[at]) + to_float(b[at]));
    sum[at] = rounded;
    return to_float(rounded);
}

DEVICE float norm_scale(float total, u32 columns, float eps) {
    return 1.0f / sqrtf(total / float(columns) + eps);
}

// One row. Without ADD `a` is the row and `b` and `sum` are not touched.
template <bool ADD>
DEVICE void norm_row(const T* a, const T* b, const T* weight, T* sum, T* out, u32 columns, float eps) {
    SHARED(float, scratch, 32);
    u32 first = threadIdx.x, step = blockDim.x;
    if (!packs_fit(columns)) {
        wait_for_previous();
        let_next_start();
        float total = 0.0f;
        for (u32 i = first; i < columns; i += step) {
            float x = row_number<ADD>(a, b, sum, i);
            total += x * x;
        }
        float scale = norm_scale(block_sum(total, scratch), columns, eps);
        const T* row = ADD ? sum : a;
        for (u32 i = first; i < columns; i += step) {
            out[i] = to_number(to_float(row[i]) * scale * to_float(weight[i]));
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
            x[k] = row_pack<ADD>(a, b, sum, first + k * step);
            total += squares(x[k]);
        }
    }
    // rows longer than the registers: read again below
    for (u32 i = first + KEEP * step; i < packs; i += step) total += squares(row_pack<ADD>(a, b, sum, i));
    float scale = norm_scale(block_sum(total, scratch), columns, eps);
#pragma unroll
    for (u32 k = 0; k < KEEP; k++) {
        if (first + k * step < packs) store_pack(out + (first + k * step) * PACK, scaled(x[k], w[k], scale));
    }
    const T* row = ADD ? sum : a;
    for (u32 i = first + KEEP * step; i < packs; i += step) {
        store_pack(out + i * PACK, scaled(load_pack(row + i * PACK), load_pack(weight + i * PACK), scale));
    }
}

// out = x / sqrt(mean(x^2) + eps) * weight for each row. Grid (rows).
// Moves 2 x columns numbers a row and the weights once (from L2 for all rows but the first); 4 FLOPs a number.
BOUNDED_KERNEL(rms_norm, 1024, 1, const T* x, const T* weight, T* out, u32 columns, float eps) {
    u64 row = u64(blockIdx.x) * columns;
    norm_row<false>(x + row, nullptr, weight, nullptr, out + row, columns, eps);
}

// sum = a + b, rounded to T; out = the norm of that. Grid (rows). Moves 4 x columns numbers a row (a, b, sum, out):
// one read less than the two kernels alone; 5 FLOPs a number.
BOUNDED_KERNEL(add_norm, 1024, 1, const T* a, const T* b, const T* weight, T* sum, T* out, u32 columns,
               float eps) {
    u64 row = u64(blockIdx.x) * columns;
    norm_row<true>(a + row, b + row, weight, sum + row, out + row, columns, eps);
}
