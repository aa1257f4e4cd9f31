// Element-wise kernels: residual additions, and the activation of an MLP.

#include "activation.cuh"
#include "block.cuh"
#include "join.cuh"

// out = b + a * scale over n elements; all threads of the grid, 16 bytes at a time.
template <bool SCALED> DEVICE void add_all(const T* a, const T* b, T* out, float scale, u64 n) {
    u64 first = u64(blockIdx.x) * blockDim.x + threadIdx.x, step = u64(gridDim.x) * blockDim.x;
    u64 packs = n / PACK;
    for (u64 i = first; i < packs; i += step) {
        float x[PACK], y[PACK];
        unpack(load_pack(a + i * PACK), x);
        unpack(load_pack(b + i * PACK), y);
#pragma unroll
        for (u32 k = 0; k < PACK; k++) x[k] = SCALED ? x[k] * scale + y[k] : x[k] + y[k];
        store_pack(out + i * PACK, pack(x));
    }
    for (u64 i = packs * PACK + first; i < n; i += step) {
        float x = to_float(a[i]), y = to_float(b[i]);
        out[i] = to_number(SCALED ? x * scale + y : x + y);
    }
}

// out = a + b. Grid: enough blocks for one pack per thread. Per element: moves 3 elements, 1 FLOP.
KERNEL(add, const T* a, const T* b, T* out, u64 n) {
    SAY_WHEN();
    wait_for_previous();
    let_next_start();
    add_all<false>(a, b, out, 1.0f, n);
}

// out = b + a * scale. As `add`, 2 FLOPs per element.
KERNEL(add_mean, const T* a, const T* b, T* out, float scale, u64 n) {
    SAY_WHEN();
    wait_for_previous();
    let_next_start();
    add_all<true>(a, b, out, scale, n);
}

// out = x + own * scale + (sum - part), see join.cuh. Per element: moves 5 elements (3 without `part`), 4 FLOPs.
KERNEL(join, const T* x, const T* own, const T* sum, const T* part, T* out, u32 columns, u32 shared, float scale, u64 n) {
    SAY_WHEN();
    wait_for_previous();
    let_next_start();
    Join join{x, own, sum, part, scale, columns, shared};
    u64 first = u64(blockIdx.x) * blockDim.x + threadIdx.x, step = u64(gridDim.x) * blockDim.x;
    u64 packs = n / PACK;
    for (u64 i = first; i < packs; i += step) store_pack(out + i * PACK, join.packed(i));
    for (u64 i = packs * PACK + first; i < n; i += step) out[i] = to_number(join.number(i));
}

// out = x * scale. Per element: moves 2 elements, 1 FLOP.
KERNEL(mean_share, const T* x, T* out, float scale, u64 n) {
    SAY_WHEN();
    wait_for_previous();
    let_next_start();
    u64 first = u64(blockIdx.x) * blockDim.x + threadIdx.x, step = u64(gridDim.x) * blockDim.x;
    for (u64 i = first; i < n; i += step) out[i] = to_number(to_float(x[i]) * scale);
}

DEVICE Pack silu_times(const Pack& gates, const Pack& ups) {
    float gate[PACK], up[PACK];
    unpack(gates, gate);
    unpack(ups, up);
#pragma unroll
    for (u32 i = 0; i < PACK; i++) gate[i] = silu_times(gate[i], up[i]);
    return pack(gate);
}

// out[row][i] = silu(gate[i]) * up[i]; gate starts at column `offset` of a row of `stride` elements, up follows.
// Grid (rows, parts): one pack per thread (one element per thread if packs do not fit). Moves 3 x width elements per
// row; about 5 FLOPs and one exponential per result.
KERNEL(silu_mul, const T* x, T* out, u32 stride, u32 offset, u32 width) {
    SAY_WHEN();
    wait_for_previous();
    let_next_start();
    const T* gates = x + u64(blockIdx.x) * stride + offset;
    const T* ups = gates + width;
    T* to = out + u64(blockIdx.x) * width;
    u32 first = blockIdx.y * blockDim.x + threadIdx.x, step = gridDim.y * blockDim.x;
    if (packs_fit(stride) && packs_fit(offset) && packs_fit(width)) {
        for (u32 i = first; i < width / PACK; i += step) {
            store_pack(to + i * PACK, silu_times(load_pack(gates + i * PACK), load_pack(ups + i * PACK)));
        }
    } else {
        for (u32 i = first; i < width; i += step) {
            to[i] = to_number(silu_times(to_float(gates[i]), to_float(ups[i])));
        }
    }
}
