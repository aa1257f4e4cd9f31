// RMSNorm of rows (norm.cuh), alone or fused with the preceding addition.

#include "join.cuh"
#include "norm.cuh"

// Row sources: x itself, a + b, or a join. A sum is stored to `to`, and its rounded values are normalized.
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

// out = x / sqrt(mean(x^2) + eps) * weight for each row. Grid (rows). Moves 2 x columns elements per row and the
// weights once (from L2 for all rows but the first); 4 FLOPs per element.
BOUNDED_KERNEL(rms_norm, 1024, 1, const T* x, const T* weight, T* out, u32 columns, float eps) {
    SAY_WHEN();
    u64 row = u64(blockIdx.x) * columns;
    norm_row(Alone{x + row}, weight, out + row, columns, eps);
}

// sum = a + b, rounded to T; out = norm of sum. Grid (rows). Moves 4 x columns elements per row (a, b, sum, out), one
// read less than two separate kernels; 5 FLOPs per element.
BOUNDED_KERNEL(add_norm, 1024, 1, const T* a, const T* b, const T* weight, T* sum, T* out, u32 columns,
               float eps) {
    SAY_WHEN();
    u64 row = u64(blockIdx.x) * columns;
    norm_row(Sum{a + row, b + row, sum + row}, weight, out + row, columns, eps);
}

// to = x + own * scale + (sum - part) (join.cuh), rounded to T; out = norm of to.
// Grid (rows). Moves 6 x columns elements per row (4 without `part`); 8 FLOPs per element.
BOUNDED_KERNEL(join_norm, 1024, 1, const T* x, const T* own, const T* sum, const T* part, const T* weight, T* to,
               T* out, u32 columns, u32 shared, float scale, float eps) {
    SAY_WHEN();
    u64 row = u64(blockIdx.x) * columns, of_sum = part ? row : u64(blockIdx.x) * shared;
    Join join{x + row, own + row, sum ? sum + of_sum : sum, part ? part + row : part, scale, columns, shared};
    norm_row(Joined{join, to + row}, weight, out + row, columns, eps);
}
