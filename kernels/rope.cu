// Rotary position embedding (RoPE) of queries and keys, and append of keys and values to the KV cache.
//
// -DHEAD_DIM: elements per head, a multiple of 8. Pairs are (i, i + HEAD_DIM / 2), as in HF checkpoints.

#include "block.cuh"

constexpr u32 HALF = HEAD_DIM / 2;
// True if both halves of a head consist of whole packs, and if a head does.
constexpr bool HALVES_FIT = HALF % PACK == 0;
constexpr bool HEADS_FIT = HEAD_DIM % PACK == 0;
// Elements of one half that a thread rotates at a time, and elements of a value that it copies at a time.
constexpr u32 ROTATED = HALVES_FIT ? PACK : 1;
constexpr u32 COPIED = HEADS_FIT ? PACK : 1;

static_assert(HEAD_DIM % 8 == 0 && HEAD_DIM >= 8, "a head has a multiple of 8 numbers");

// Rotates `ROTATED` pairs of a head, starting at element `i`. `angles`: (cos, sin) of the head's pairs.
DEVICE void rotate(const T* from, T* to, const float* angles, u32 i, bool aligned) {
    if (HALVES_FIT && aligned) {
        float a[PACK], b[PACK];
        unpack(load_pack(from + i), a);
        unpack(load_pack(from + HALF + i), b);
#pragma unroll
        for (u32 k = 0; k < PACK; k += 2) {
            // cos, sin, cos, sin
            Pack p = load_pack(angles + 2 * (i + k));
#pragma unroll
            for (u32 j = 0; j < 2; j++) {
                float cos = __uint_as_float(p.words[2 * j]), sin = __uint_as_float(p.words[2 * j + 1]);
                float low = a[k + j], high = b[k + j];
                a[k + j] = low * cos - high * sin;
                b[k + j] = high * cos + low * sin;
            }
        }
        store_pack(to + i, pack(a));
        store_pack(to + HALF + i, pack(b));
        return;
    }
#pragma unroll
    for (u32 k = 0; k < ROTATED; k++) {
        float cos = angles[2 * (i + k)], sin = angles[2 * (i + k) + 1];
        float low = to_float(from[i + k]), high = to_float(from[HALF + i + k]);
        to[i + k] = to_number(low * cos - high * sin);
        to[HALF + i + k] = to_number(high * cos + low * sin);
    }
}

// Row r of qkv belongs to sequence r / tokens, at position positions[sequence] + first + r % tokens. A row has `stride`
// elements and starts with the queries (heads x HEAD_DIM), the keys and the values (kv_heads x HEAD_DIM each). Rotated
// queries go to q [rows][heads][HEAD_DIM], rotated keys and the values to the caches
// [sequence][kv_head][capacity][HEAD_DIM]. `rope`: [capacity][HEAD_DIM / 2] pairs (cos, sin).
// Grid (rows, parts): all threads of a row's parts share its work. Moves 2 x (heads + 2 kv_heads) x HEAD_DIM elements
// per row and HEAD_DIM floats of the table; 6 FLOPs per pair.
KERNEL(rope_append, const T* qkv, T* q, T* k_cache, T* v_cache, const u32* positions, const float* rope,
       u32 stride, u32 heads, u32 kv_heads, u32 tokens, u32 first, u32 capacity) {
    SAY_WHEN();
    wait_for_previous();
    let_next_start();
    u32 row = blockIdx.x, sequence = row / tokens;
    u64 position = u64(positions[sequence]) + first + row % tokens;
    const T* from = qkv + u64(row) * stride;
    const float* angles = rope + position * HEAD_DIM;
    T* queries = q + u64(row) * heads * HEAD_DIM;
    bool aligned = packs_fit(stride);

    constexpr u32 rotations = HALF / ROTATED, copies = HEAD_DIM / COPIED;
    u32 rotated = (heads + kv_heads) * rotations, pieces = rotated + kv_heads * copies;
    for (u32 piece = blockIdx.y * blockDim.x + threadIdx.x; piece < pieces; piece += gridDim.y * blockDim.x) {
        if (piece < rotated) {
            u32 head = piece / rotations, i = piece % rotations * ROTATED;
            T* to = queries + head * HEAD_DIM;
            if (head >= heads) {
                u64 kv_head = u64(sequence) * kv_heads + (head - heads);
                to = k_cache + (kv_head * capacity + position) * HEAD_DIM;
            }
            rotate(from + head * HEAD_DIM, to, angles, i, aligned);
        } else {
            u32 head = (piece - rotated) / copies, i = (piece - rotated) % copies * COPIED;
            const T* value = from + (heads + kv_heads + head) * HEAD_DIM + i;
            T* to = v_cache + ((u64(sequence) * kv_heads + head) * capacity + position) * HEAD_DIM + i;
            if (HEADS_FIT && aligned) {
                store_pack(to, load_pack(value));
            } else {
#pragma unroll
                for (u32 k = 0; k < COPIED; k++) to[k] = value[k];
            }
        }
    }
}

// Adds biases in place to the queries, keys and values at the start of each row, before `rope_append`. A row has
// `stride` elements, of which the first `columns` have a bias. Grid (rows, parts): one thread per element. Moves
// 2 x columns elements per row and the biases once; 1 FLOP per element.
KERNEL(bias_heads, T* qkv, const T* bias, u32 stride, u32 columns) {
    SAY_WHEN();
    wait_for_previous();
    let_next_start();
    T* row = qkv + u64(blockIdx.x) * stride;
    for (u32 i = blockIdx.y * blockDim.x + threadIdx.x; i < columns; i += gridDim.y * blockDim.x) {
        row[i] = to_number(to_float(row[i]) + to_float(bias[i]));
    }
}

// RMSNorm in place of each query and key head at the start of rows of `stride` elements, before `rope_append`. weight
// [2][HEAD_DIM]: for queries, for keys. Grid (rows, parts): one warp per head. Moves 2 x (heads + kv_heads) x HEAD_DIM
// elements per row and the weights once; 4 FLOPs per element.
KERNEL(norm_heads, T* qkv, const T* weight, u32 stride, u32 heads, u32 kv_heads, float eps) {
    SAY_WHEN();
    wait_for_previous();
    let_next_start();
    u32 warps = blockDim.x / WARP;
    for (u32 head = blockIdx.y * warps + warp_index(); head < heads + kv_heads; head += gridDim.y * warps) {
        T* x = qkv + u64(blockIdx.x) * stride + head * HEAD_DIM;
        const T* w = head < heads ? weight : weight + HEAD_DIM;
        float total = 0.0f;
        for (u32 i = lane_index(); i < HEAD_DIM; i += WARP) total += to_float(x[i]) * to_float(x[i]);
        float scale = 1.0f / sqrtf(warp_sum(total) / float(HEAD_DIM) + eps);
        for (u32 i = lane_index(); i < HEAD_DIM; i += WARP) {
            x[i] = to_number(to_float(x[i]) * scale * to_float(w[i]));
        }
    }
}
