// fp8 weights (e4m3, one f32 scale per output): random initialization, and expansion to T for products with many rows.
//
// Layout: outputs x inputs bytes, row-major; then, from the next multiple of 16 bytes, one scale per output.

#include "block.cuh"
#include "e4m3.cuh"
#include "hash.cuh"

// Quantizes `rows` rows of a slice of a random tensor of width `width`: element (r, c) is tensor element
// start + r * width + first_column + c. The scale maps the largest magnitude of the whole tensor row to 448.
// Grid: any; one warp per row. Cost: one byte written per element; width + columns hashes per row.
KERNEL(random_fp8, u8* out, float* scales, u64 key, float mean, float step, u32 signs, u64 start, u64 width,
       u32 first_column, u32 columns, u64 rows) {
    SAY_WHEN();
    wait_for_previous();
    let_next_start();
    u64 first = u64(blockIdx.x) * (blockDim.x / WARP) + warp_index(), stride = u64(gridDim.x) * (blockDim.x / WARP);
    for (u64 row = first; row < rows; row += stride) {
        auto number = [&](u64 column) {
            u64 index = start + row * width + column;
            return random_number(pair_hash(key, index), index, mean, step, signs);
        };
        float largest = 0.0f;
        for (u64 column = lane_index(); column < width; column += WARP) largest = fmaxf(largest, fabsf(number(column)));
        float scale = warp_max(largest) / 448.0f;
        for (u32 column = lane_index(); column < columns; column += WARP) {
            out[row * columns + column] = scale > 0.0f ? to_e4m3(number(first_column + column) / scale) : 0;
        }
        if (lane_index() == 0) scales[row] = scale;
    }
}

// out = the dequantized weights, rounded to T; `scales` has one number per output.
// Grid: any; 16 elements per thread and iteration. Reads one byte and writes sizeof(T) bytes per element.
KERNEL(expand_fp8, const u8* w, const float* scales, T* out, u32 inputs, u32 outputs) {
    SAY_WHEN();
    wait_for_previous();
    let_next_start();
    u64 first = u64(blockIdx.x) * blockDim.x + threadIdx.x, stride = u64(gridDim.x) * blockDim.x;
    u64 count = u64(inputs) * outputs;
    if (inputs % 16 != 0) {
        for (u64 at = first; at < count; at += stride) out[at] = to_number(from_e4m3(w[at]) * scales[at / inputs]);
        return;
    }
    for (u64 i = first; i < count / 16; i += stride) {
        float scale = scales[i * 16 / inputs];
        Pack bits = load_pack_once(w + i * 16);
#pragma unroll
        for (u32 part = 0; part < 16; part += PACK) {
            float x[PACK];
#pragma unroll
            for (u32 k = 0; k < PACK; k += 2) {
                from_e4m3_pair(bits.words[(part + k) / 4] >> (8 * (k % 4)), x[k], x[k + 1]);
                x[k] *= scale;
                x[k + 1] *= scale;
            }
            store_pack(out + i * 16 + part, pack(x));
        }
    }
}
