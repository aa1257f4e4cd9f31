// Prefill attention: many new tokens per sequence over the KV cache, causal, tiled, in one pass (FlashAttention's
// online softmax, arXiv 2205.14135): at most BLOCK_K scores per query exist at a time, in registers.
//
// Cost: 4 x HEAD_DIM FLOPs per query, head and visible key; for a new prompt these are about half the square of the
// context. Each block of BLOCK_Q queries reads its visible keys and values once: from L2, 2 x BLOCK_K x HEAD_DIM x
// sizeof(T) bytes per 4 x BLOCK_Q x BLOCK_K x HEAD_DIM FLOPs (16-bit: 128 FLOPs per byte, 16 bytes per cycle and SM at
// 2048 FLOPs per cycle). Tiles that are masked for a whole block are not read; tiles that are masked for a whole warp
// are skipped; blocks with the most keys start first.
//
// Method (16-bit): 8 warps of 16 queries each. Queries stay in registers (head size up to 128). Tiles of keys and
// values are double-buffered in shared memory with asynchronous copies, one barrier per tile. Scores use 16-byte loads
// of keys as fragments of two products (row stride of 4 packs modulo 8: no bank conflicts), weights become fragments in
// place, values are transposed by ldmatrix (row stride of an odd number of packs: no bank conflicts). A warp reads 1
// byte of shared memory per 8 multiply-adds.
//
// f32: FMA, 4 queries per warp; lanes are keys for scores and dimensions for sums.
#include "mma.cuh"
#include "softmax.cuh"
#include "stream.cuh"

#ifndef HEAD_DIM
#define HEAD_DIM 128
#endif
static_assert(HEAD_DIM % 8 == 0 && HEAD_DIM <= 256, "HEAD_DIM is a multiple of 8 up to 256");

constexpr u32 WARPS = 8;
constexpr u32 THREADS = WARPS * WARP;
constexpr u32 PACKS = HEAD_DIM / PACK; // per row

// Work of one block.
struct Part {
    const T *q, *keys, *values; // of this sequence and head; rows of q and out are `stride` apart
    T* out;
    u64 stride;
    u32 tokens;   // new tokens of the sequence
    u32 position; // of the first new token
    u32 first;    // first query of the block, as an index into the new tokens
    u32 end;      // the block's queries see keys 0 .. end
    float scale;  // from scores to units of log 2
    float sink;   // in units of log 2; -infinity without sinks

    // First key that a query sees.
    DEVICE u32 first_key(u32 query) const {
        u32 context = position + query + 1;
        return WINDOW > 0 && context > WINDOW ? context - WINDOW : 0;
    }
};

#if defined(NUMBER_F32)

constexpr u32 WARP_ROWS = 4;
constexpr u32 BLOCK_Q = WARPS * WARP_ROWS;
constexpr u32 BLOCK_K = WARP;
constexpr u32 KEY_STRIDE = PACKS + 1; // packs between keys: odd, so that lanes access different banks
constexpr u32 LANE_PACKS = (PACKS + WARP - 1) / WARP;

DEVICE void attend(const Part& part, Pack* shared) {
    Pack* const queries = shared;                       // [BLOCK_Q][PACKS]
    Pack* const keys = queries + BLOCK_Q * PACKS;       // [BLOCK_K][KEY_STRIDE]
    Pack* const values = keys + BLOCK_K * KEY_STRIDE;   // [BLOCK_K][PACKS]
    for (u32 i = threadIdx.x; i < BLOCK_Q * PACKS; i += THREADS) {
        u32 row = part.first + i / PACKS;
        bool valid = row < part.tokens;
        copy_async(&queries[i], part.q + (valid ? row : 0) * part.stride + i % PACKS * PACK, valid);
    }
    const u32 own = part.first + warp_index() * WARP_ROWS; // this warp's first query
    const Pack* const query = queries + warp_index() * WARP_ROWS * PACKS;

    float sums[WARP_ROWS][LANE_PACKS][PACK] = {}, maximum[WARP_ROWS], denominator[WARP_ROWS] = {};
#pragma unroll
    for (u32 row = 0; row < WARP_ROWS; row++) maximum[row] = unseen();

    for (u32 tile = part.first_key(part.first) / BLOCK_K * BLOCK_K; tile < part.end; tile += BLOCK_K) {
        for (u32 i = threadIdx.x; i < BLOCK_K * PACKS; i += THREADS) {
            u32 key = i / PACKS, at = i % PACKS;
            bool valid = tile + key < part.end;
            u64 from = u64(valid ? tile + key : 0) * HEAD_DIM + at * PACK;
            copy_async(&keys[key * KEY_STRIDE + at], part.keys + from, valid);
            copy_async(&values[i], part.values + from, valid);
        }
        commit_copies();
        wait_for_copies<0>();
        __syncthreads();
        if (tile <= part.position + own + WARP_ROWS - 1) {
            float score[WARP_ROWS] = {};
#pragma unroll 4
            for (u32 i = 0; i < PACKS; i++) {
                float k[PACK];
                unpack(load_pack(&keys[lane_index() * KEY_STRIDE + i]), k);
#pragma unroll
                for (u32 row = 0; row < WARP_ROWS; row++) {
                    float x[PACK];
                    unpack(load_pack(&query[row * PACKS + i]), x);
#pragma unroll
                    for (u32 n = 0; n < PACK; n++) score[row] = fmaf(x[n], k[n], score[row]);
                }
            }
#pragma unroll
            for (u32 row = 0; row < WARP_ROWS; row++) {
                const u32 key = tile + lane_index();
                bool seen = key <= part.position + own + row && key >= part.first_key(own + row);
                score[row] = seen ? score[row] * part.scale : unseen();
                float largest = fmaxf(maximum[row], warp_max(score[row]));
                float shrink = weight_of(maximum[row], largest);
                maximum[row] = largest;
                score[row] = weight_of(score[row], largest);
                denominator[row] = fmaf(denominator[row], shrink, score[row]);
#pragma unroll
                for (u32 n = 0; n < LANE_PACKS * PACK; n++) sums[row][n / PACK][n % PACK] *= shrink;
            }
#pragma unroll 4
            for (u32 key = 0; key < BLOCK_K; key++) {
                float weight[WARP_ROWS];
#pragma unroll
                for (u32 row = 0; row < WARP_ROWS; row++) weight[row] = shuffle(score[row], key);
#pragma unroll
                for (u32 i = 0; i < LANE_PACKS; i++) {
                    if (i * WARP + lane_index() >= PACKS) continue;
                    float v[PACK];
                    unpack(load_pack(&values[key * PACKS + i * WARP + lane_index()]), v);
#pragma unroll
                    for (u32 row = 0; row < WARP_ROWS; row++) {
#pragma unroll
                        for (u32 n = 0; n < PACK; n++) sums[row][i][n] = fmaf(weight[row], v[n], sums[row][i][n]);
                    }
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (u32 row = 0; row < WARP_ROWS; row++) {
        float total = warp_sum(denominator[row]) + weight_of(part.sink, maximum[row]);
        if (own + row >= part.tokens) continue;
#pragma unroll
        for (u32 i = 0; i < LANE_PACKS; i++) {
            u32 at = i * WARP + lane_index();
            if (at >= PACKS) continue;
#pragma unroll
            for (u32 n = 0; n < PACK; n++) sums[row][i][n] /= total;
            store_pack(part.out + (own + row) * part.stride + at * PACK, pack(sums[row][i]));
        }
    }
}

#else

constexpr u32 BLOCK_Q = WARPS * 16;
constexpr u32 BLOCK_K = HEAD_DIM <= 128 ? 64 : 32;
constexpr u32 STEPS = (PACKS + 3) / 4; // of 32 dimensions
constexpr u32 KEY_STRIDE = STEPS * 4 + (STEPS % 2 == 0 ? 4 : 0); // packs between keys: 4 modulo 8
constexpr u32 VALUE_STRIDE = (PACKS + 1) / 2 * 2 + 1;            // packs between values: odd
constexpr u32 STAGE = BLOCK_K * (KEY_STRIDE + VALUE_STRIDE);     // packs per tile; two stages
constexpr bool KEPT = HEAD_DIM <= 128; // queries stay in registers; otherwise reloaded for each tile

DEVICE void copy_tile(const Part& part, u32 tile, Pack* keys, Pack* values) {
    constexpr u32 EACH = (BLOCK_K * PACKS + THREADS - 1) / THREADS;
#pragma unroll
    for (u32 n = 0; n < EACH; n++) {
        u32 i = n * THREADS + threadIdx.x, key = i / PACKS, at = i % PACKS;
        if (BLOCK_K * PACKS % THREADS != 0 && key >= BLOCK_K) break;
        bool valid = tile + key < part.end;
        u64 from = u64(valid ? tile + key : 0) * HEAD_DIM + at * PACK;
        copy_async(&keys[key * KEY_STRIDE + at], part.keys + from, valid);
        copy_async(&values[key * VALUE_STRIDE + at], part.values + from, valid);
    }
    commit_copies();
}

// The padding of keys to whole steps is multiplied by zeros, so it must be finite.
template <u32 PADDING> DEVICE void clear_padding(Pack* first, Pack* second) {
    if constexpr (PADDING > 0) {
        for (u32 i = threadIdx.x; i < 2 * BLOCK_K * PADDING; i += THREADS) {
            u32 key = i / PADDING % BLOCK_K;
            Pack* row = (i / PADDING < BLOCK_K ? first : second) + key * KEY_STRIDE;
            store_pack(&row[PACKS + i % PADDING], Pack{});
        }
    }
}

DEVICE void attend(const Part& part, Pack* shared) {
    const u32 g = lane_index() / 4, t = lane_index() % 4;
    auto keys_of = [&](u32 stage) { return shared + stage * STAGE; };
    auto values_of = [&](u32 stage) { return shared + stage * STAGE + BLOCK_K * KEY_STRIDE; };
    const u32 first_tile = part.first_key(part.first) / BLOCK_K * BLOCK_K;
    copy_tile(part, first_tile, keys_of(0), values_of(0));
    clear_padding<STEPS * 4 - PACKS>(keys_of(0), keys_of(1));

    const u32 own = part.first + warp_index() * 16; // this warp's first query
    auto load_query = [&](u32 step, Pack (&query)[2]) { // rows g and g + 8
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            u32 row = own + g + 8 * i, at = step * 4 + t;
            query[i] = load_shared(part.q + row * part.stride + at * PACK, row < part.tokens && at < PACKS);
        }
    };
    Pack query[KEPT ? STEPS : 1][2];
    if constexpr (KEPT) {
#pragma unroll
        for (u32 step = 0; step < STEPS; step++) load_query(step, query[step]);
    }
    // for rows g (first two) and g + 8: sums of dimensions 2t and 2t + 1 of each pack; this lane's part of the
    // denominator; the running maximum
    float sums[PACKS][4] = {}, denominator[2] = {}, maximum[2] = {unseen(), unseen()};
    const u32 last_seen = part.position + min(own + 15, part.tokens - 1);

    u32 stage = 0;
#pragma unroll 1
    for (u32 tile = first_tile; tile < part.end; tile += BLOCK_K, stage ^= 1) {
        wait_for_copies<0>();
        __syncthreads(); // this tile has arrived for all threads, and all are done with the previous one
        if (tile + BLOCK_K < part.end) copy_tile(part, tile + BLOCK_K, keys_of(stage ^ 1), values_of(stage ^ 1));
        if (tile > last_seen || tile + BLOCK_K <= part.first_key(own)) continue;

        const Pack* const keys = keys_of(stage) + g * KEY_STRIDE + t;
        float score[BLOCK_K / 8][4] = {}; // rows g (first two) and g + 8, keys 8n + 2t and + 1
#pragma unroll
        for (u32 step = 0; step < STEPS; step++) {
            if constexpr (!KEPT) load_query(step, query[0]);
            const Pack(&rows)[2] = query[KEPT ? step : 0];
#pragma unroll
            for (u32 n = 0; n < BLOCK_K / 8; n++) {
                mma_packs(score[n], rows[0], rows[1], load_pack(&keys[n * 8 * KEY_STRIDE + step * 4]));
            }
        }
        // some key is after some query, or before its window
        if (tile + BLOCK_K - 1 > part.position + own || (WINDOW > 0 && tile < part.first_key(own + 15))) {
#pragma unroll
            for (u32 n = 0; n < BLOCK_K / 8; n++) {
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    u32 key = tile + n * 8 + 2 * t + i % 2;
                    const u32 query = own + g + i / 2 * 8;
                    if (key > part.position + query || key < part.first_key(query)) score[n][i] = unseen();
                }
            }
        }
#pragma unroll
        for (u32 i = 0; i < 2; i++) { // without a window, every query sees key 0, so the maximum is finite
            float largest = score[0][2 * i];
#pragma unroll
            for (u32 n = 0; n < BLOCK_K / 8; n++) largest = fmaxf(largest, fmaxf(score[n][2 * i], score[n][2 * i + 1]));
            largest = fmaxf(maximum[i], warp_max<4>(largest) * part.scale);
            const float base = WINDOW > 0 && largest == unseen() ? 0.0f : largest;
            float shrink = power_of_2(maximum[i] - base), total = 0.0f;
            maximum[i] = largest;
#pragma unroll
            for (u32 n = 0; n < BLOCK_K / 8; n++) {
#pragma unroll
                for (u32 j = 2 * i; j < 2 * i + 2; j++) {
                    score[n][j] = power_of_2(fmaf(score[n][j], part.scale, -base));
                    total += score[n][j];
                }
            }
            denominator[i] = fmaf(denominator[i], shrink, total);
#pragma unroll
            for (u32 n = 0; n < PACKS; n++) {
                sums[n][2 * i] *= shrink;
                sums[n][2 * i + 1] *= shrink;
            }
        }
        // lane l: row l % 8 of matrix l / 8; matrices: keys 0 - 7 and 8 - 15 of 16 in one pack, then in the next
        const Pack* const values = values_of(stage) + (lane_index() % 16) * VALUE_STRIDE + lane_index() / 16;
#pragma unroll
        for (u32 step = 0; step < BLOCK_K / 16; step++) {
            const float(&first)[4] = score[2 * step];
            const float(&second)[4] = score[2 * step + 1];
            u32 weight[4] = {to_number_pair(first[0], first[1]), to_number_pair(first[2], first[3]),
                             to_number_pair(second[0], second[1]), to_number_pair(second[2], second[3])};
#pragma unroll
            for (u32 n = 0; n < PACKS; n += 2) {
                Pack two = load_transposed(reinterpret_cast<const T*>(&values[step * 16 * VALUE_STRIDE + n]));
                u32 b[2][2] = {{two.words[0], two.words[1]}, {two.words[2], two.words[3]}};
                mma(sums[n], weight, b[0]);
                if (n + 1 < PACKS) mma(sums[n + 1 < PACKS ? n + 1 : n], weight, b[1]);
            }
        }
    }
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        float total = warp_sum<4>(denominator[i]) + weight_of(part.sink, maximum[i]);
        u32 row = own + g + 8 * i;
        if (row >= part.tokens) continue;
#pragma unroll
        for (u32 n = 0; n < PACKS; n++) {
            u32 pair = to_number_pair(sums[n][2 * i] / total, sums[n][2 * i + 1] / total);
            *reinterpret_cast<u32*>(part.out + row * part.stride + n * PACK + 2 * t) = pair;
        }
    }
}

#endif

// Grid (ceil(tokens / BLOCK_Q), heads, sequences), 256 threads, dynamic shared memory from `attention::prefill`. q,
// out [sequence * tokens][heads * HEAD_DIM]; caches [sequence][kv_head][capacity][HEAD_DIM], which already hold the new
// tokens' keys and values, starting at positions[sequence] + first.
BOUNDED_KERNEL(attend_prefill, THREADS, 1, const T* q, const T* k_cache, const T* v_cache, T* out,
               const u32* positions, u32 tokens, u32 first, u32 heads, u32 kv_heads, u32 capacity, float scale SINK_PARAMETER) {
    SAY_WHEN();
    DYNAMIC_SHARED(Pack, shared);
    wait_for_previous();
    let_next_start();
    u32 sequence = blockIdx.z, head = blockIdx.y, block = gridDim.x - 1 - blockIdx.x;
    u64 cache = (u64(sequence) * kv_heads + head / (heads / kv_heads)) * capacity * HEAD_DIM;
    u64 rows = (u64(sequence) * tokens * heads + head) * HEAD_DIM;
    Part part;
    part.q = q + rows;
    part.keys = k_cache + cache;
    part.values = v_cache + cache;
    part.out = out + rows;
    part.stride = u64(heads) * HEAD_DIM;
    part.tokens = tokens;
    part.position = positions[sequence] + first;
    part.first = block * BLOCK_Q;
    part.end = min(part.position + min(part.first + BLOCK_Q, tokens), capacity);
    part.scale = scale * LOG2_E;
#ifdef SINKS
    part.sink = to_float(sinks[head]) * LOG2_E;
#else
    part.sink = unseen();
#endif
    attend(part, shared);
}
