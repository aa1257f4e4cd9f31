// Random weights on the device; must match src/model/random.rs bit for bit.

#include "block.cuh"
#include "hash.cuh"

// Fills rows x columns elements at `out`, a slice of a stored tensor of width `width`: element (r, c) is tensor element
// start + r * width + c. Grid: any; one pack per thread and iteration. Writes rows x columns elements; one hash (two
// 64-bit multiplications and shifts) per two elements.
KERNEL(random_fill, T* out, u64 key, float mean, float step, u32 signs, u64 start, u64 width, u32 columns,
       u64 rows) {
    SAY_WHEN();
    wait_for_previous();
    let_next_start();
    u64 first = u64(blockIdx.x) * blockDim.x + threadIdx.x, stride = u64(gridDim.x) * blockDim.x;
    u64 count = rows * columns;
    // fast path, which models use: whole packs within a row, pairs that share their hash
    if (packs_fit(columns) && width % 2 == 0 && start % 2 == 0 && reinterpret_cast<u64>(out) % 16 == 0) {
        for (u64 i = first; i < count / PACK; i += stride) {
            u64 at = i * PACK, row = at / columns, index = start + row * width + (at - row * columns);
            float x[PACK];
#pragma unroll
            for (u32 k = 0; k < PACK; k += 2) {
                u64 hash = pair_hash(key, index + k);
                x[k] = random_number(hash, 0, mean, step, signs);
                x[k + 1] = random_number(hash, 1, mean, step, signs);
            }
            store_pack(out + at, pack(x));
        }
    } else {
        for (u64 at = first; at < count; at += stride) {
            u64 row = at / columns, index = start + row * width + (at - row * columns);
            out[at] = to_number(random_number(pair_hash(key, index), index, mean, step, signs));
        }
    }
}
