// RMSNorm of rows, alone or fused with the addition before it.
//
// A block is a row. Its numbers stay in registers between the sum of squares and the scaling (up to KEEP packs a
// thread: 1024 threads keep 16384 numbers of 16 bits), so each byte is read once and written once. The weights
// do not depend on the kernel before and are fetched while it still runs.

#include "block.cuh"
#include "join.cuh"

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

// Where a row's numbers come from: x itself, a + b, or a join. A sum is stored to `to` and normed as it was rounded.
struct Alone {
    const T* to;
    DEVICE Pack packed(u32 at) const { return load_pack(to + at * PACK); }
    DEVICE float number(u32 at) const { return to_float(to[at]); }
};

struct Sum {
    const T *a, *b;
    T* to;
    DEVICE Pack packed(u32 at) const {
        Pack p = added(load_pack(a + at * PACK), load_pack(b + at * PACK));
        store_pack(to + at * PACK, p);
        return p;
    }
    DEVICE float number(u32 at) const {
        to[at] = to_number(to_float(a[at]) + to_float(b[at]));
        return to_float(to[at]);
    }
};

struct Joined {
    Join join;
    T* to;
    DEVICE Pack packed(u32 at) const {
        Pack p = join.packed(at);
        store_pack(to + at * PACK, p);
        return p;
    }
    DEVICE float number(u32 at) const {
        to[at] = to_number(join.number(at));
        return to_float(to[at]);
    }
};

DEVICE float norm_scale(float total, u32 columns, float eps) {
    return 1.0f / sqrtf(total / float(columns) + eps);
}

// One row.
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
    // rows longer than the registers: read again below
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

// out = x / sqrt(mean(x^2) + eps) * weight for each row. Grid (rows).
// Moves 2 x columns numbers a row and the weights once (from L2 for all rows but the first); 4 FLOPs a number.
BOUNDED_KERNEL(rms_norm, 1024, 1, const T* x, const T* weight, T* out, u32 columns, float eps) {
    SAY_WHEN();
    u64 row = u64(blockIdx.x) * columns;
    norm_row(Alone{x + row}, weight, out + row, columns, eps);
}

// sum = a + b, rounded to T; out = the norm of that. Grid (rows). Moves 4 x columns numbers a row (a, b, sum, out):
// one read less than the two kernels alone; 5 FLOPs a number.
BOUNDED_KERNEL(add_norm, 1024, 1, const T* a, const T* b, const T* weight, T* sum, T* out, u32 columns,
               float eps) {
    SAY_WHEN();
    u64 row = u64(blockIdx.x) * columns;
    norm_row(Sum{a + row, b + row, sum + row}, weight, out + row, columns, eps);
}

// to = x + own * scale + (sum - part) (join.cuh), rounded to T; out = the norm of that. Grid (rows).
// Moves 6 x columns numbers a row (4 without `sum`); 8 FLOPs a number.
BOUNDED_KERNEL(join_norm, 1024, 1, const T* x, const T* own, const T* sum, const T* part, const T* weight, T* to,
               T* out, u32 columns, float scale, float eps) {
    SAY_WHEN();
    u64 row = u64(blockIdx.x) * columns;
    Join join{x + row, own + row, sum ? sum + row : sum, part ? part + row : part, scale};
    norm_row(Joined{join, to + row}, weight, out + row, columns, eps);
}
