// Decode attention (GQA): one new token per sequence over its KV cache, split along the context (split-K).
// `attend_decode` computes a partial result per split, `attend_combine` merges them.
//
// Cost: 2 x context x HEAD_DIM x sizeof(T) bytes of KV cache per sequence and KV head, each read once for all GROUP
// heads that share it; 4 x context x HEAD_DIM x GROUP FLOPs. Memory-bound for every GROUP in use. The combine kernel
// reads splits x (HEAD_DIM + 2) x 4 bytes per head, from L2.
//
// Method: a warp processes 16 keys at a time; the warps of a block take the tiles of their split round-robin. 16-bit
// formats use tensor cores with keys as rows and heads as columns (8 heads fill a product exactly), loaded from global
// memory straight into fragments (mma.cuh): scores = K Q^T, and out^T = V^T P^T, whose fragments a lane builds from
// halves of the words that it loaded. 16 keys of 128 elements thus take 16 loads of 16 bytes per lane, 16 products, and
// about 250 other instructions for up to 8 heads. As soon as part of a tile is consumed, the same part of the next tile
// is loaded: 4 to 8 KB per warp are in flight, 48 KB or more on an SM with 12 warps (an H200 needs 29 KB).
//
// Splits (`attention::splits`): as many blocks as are resident at once, or as fill whole waves, but at least 64 keys
// each. Splits past the context write only their maximum, -infinity; the combine kernel reads nothing else.
#include "mma.cuh"
#include "softmax.cuh"
#include "stream.cuh"

#ifndef HEAD_DIM
#define HEAD_DIM 128
#endif
#ifndef GROUP
#define GROUP 4
#endif
static_assert(HEAD_DIM % 8 == 0 && HEAD_DIM <= 256, "HEAD_DIM is a multiple of 8 up to 256");
static_assert(GROUP >= 1, "heads share a KV head by GROUP");

constexpr u32 WARPS = 4;
constexpr u32 THREADS = WARPS * WARP;
constexpr u32 TILE = 16;

// Floats of a partial result: HEAD_DIM weighted sums of values, maximum score (in units of log 2), sum of weights.
constexpr u32 RESULT = HEAD_DIM + 2;

// Keys of a split: whole rounds of the block's warps, so that no warp has more than one extra tile.
struct Keys {
    u32 first, end;
};

DEVICE Keys keys_of_split(u32 context, u32 splits) {
    constexpr u32 ROUND = WARPS * TILE;
    u32 each = ((context + splits - 1) / splits + ROUND - 1) / ROUND * ROUND;
    u32 first = min(blockIdx.x * each, context);
    return {first, min(first + each, context)};
}

DEVICE void prefetch_by_all(const NextProduct& next_product) {
    u32 block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    next_product.prefetch(block, gridDim.x * gridDim.y * gridDim.z, WARPS);
}

// Results of a block's warps, for HEADS heads at a time (f32 with large heads: what fits in registers).
#if defined(NUMBER_F32)
constexpr u32 MOST_HEADS = HEAD_DIM <= 128 ? 8 : 4;
#else
constexpr u32 MOST_HEADS = 8;
#endif
constexpr u32 HEADS = GROUP < MOST_HEADS ? GROUP : MOST_HEADS;
struct Found {
    float sums[WARPS][HEADS][HEAD_DIM];
    float maximum[WARPS][HEADS], denominator[WARPS][HEADS];
};

// Merges the warps' results in warp order and writes them for `heads` heads, `stride` floats apart.
DEVICE void merge_warps(const Found& found, float* partial, u64 stride, u32 heads) {
    __syncthreads();
    for (u32 i = threadIdx.x; i < heads * RESULT; i += THREADS) {
        u32 head = i / RESULT, at = i % RESULT;
        float largest = found.maximum[0][head];
#pragma unroll
        for (u32 warp = 1; warp < WARPS; warp++) largest = fmaxf(largest, found.maximum[warp][head]);
        float sum = 0.0f;
#pragma unroll
        for (u32 warp = 0; warp < WARPS; warp++) {
            float x = at < HEAD_DIM ? found.sums[warp][head][at] : found.denominator[warp][head];
            sum += weight_of(found.maximum[warp][head], largest) * x;
        }
        partial[head * stride + at] = at == HEAD_DIM ? largest : sum;
    }
    __syncthreads();
}

#if defined(NUMBER_F32)

// CUDA cores: lanes share a key's row, KEYS_AT_ONCE keys are loaded together.
constexpr u32 PACKS = HEAD_DIM / PACK;
constexpr u32 LANE_PACKS = (PACKS + WARP - 1) / WARP;
constexpr u32 KEYS_AT_ONCE = 4;

DEVICE void load_row(const T* row, bool valid, float (&x)[LANE_PACKS][PACK]) {
#pragma unroll
    for (u32 i = 0; i < LANE_PACKS; i++) {
        u32 pack = i * WARP + lane_index();
        unpack(load_once(row + pack * PACK, valid && pack < PACKS), x[i]);
    }
}

DEVICE void attend_split(const T* q, const T* keys, const T* values, float* partial, u64 stride, Keys split,
                         float scale, const NextProduct& next_product) {
    SHARED(Found, found, 1);
#pragma unroll 1
    for (u32 first_head = 0; first_head < GROUP; first_head += HEADS) {
        const u32 heads = min(HEADS, GROUP - first_head);
        float query[HEADS][LANE_PACKS][PACK], sums[HEADS][LANE_PACKS][PACK] = {};
        float maximum[HEADS], denominator[HEADS];
#pragma unroll
        for (u32 head = 0; head < HEADS; head++) {
            load_row(q + (first_head + head) * HEAD_DIM, head < heads, query[head]);
            maximum[head] = unseen();
            denominator[head] = 0.0f;
        }
        for (u32 key = split.first + warp_index() * KEYS_AT_ONCE; key < split.end; key += WARPS * KEYS_AT_ONCE) {
            float k[KEYS_AT_ONCE][LANE_PACKS][PACK], v[KEYS_AT_ONCE][LANE_PACKS][PACK];
#pragma unroll
            for (u32 i = 0; i < KEYS_AT_ONCE; i++) load_row(keys + u64(key + i) * HEAD_DIM, key + i < split.end, k[i]);
#pragma unroll
            for (u32 i = 0; i < KEYS_AT_ONCE; i++) load_row(values + u64(key + i) * HEAD_DIM, key + i < split.end, v[i]);
#pragma unroll
            for (u32 head = 0; head < HEADS; head++) {
                float score[KEYS_AT_ONCE], largest = maximum[head];
#pragma unroll
                for (u32 i = 0; i < KEYS_AT_ONCE; i++) {
                    float sum = 0.0f;
#pragma unroll
                    for (u32 n = 0; n < LANE_PACKS * PACK; n++) {
                        sum = fmaf(query[head][n / PACK][n % PACK], k[i][n / PACK][n % PACK], sum);
                    }
                    sum = warp_sum(sum) * (scale * LOG2_E);
                    score[i] = key + i < split.end ? sum : unseen();
                    largest = fmaxf(largest, score[i]);
                }
                float shrink = weight_of(maximum[head], largest);
                maximum[head] = largest;
                denominator[head] *= shrink;
#pragma unroll
                for (u32 n = 0; n < LANE_PACKS * PACK; n++) sums[head][n / PACK][n % PACK] *= shrink;
#pragma unroll
                for (u32 i = 0; i < KEYS_AT_ONCE; i++) {
                    float p = weight_of(score[i], largest);
                    denominator[head] += p;
#pragma unroll
                    for (u32 n = 0; n < LANE_PACKS * PACK; n++) {
                        float& sum = sums[head][n / PACK][n % PACK];
                        sum = fmaf(p, v[i][n / PACK][n % PACK], sum);
                    }
                }
            }
        }
#pragma unroll
        for (u32 head = 0; head < HEADS; head++) {
#pragma unroll
            for (u32 n = 0; n < LANE_PACKS * PACK; n++) {
                u32 at = (n / PACK * WARP + lane_index()) * PACK + n % PACK;
                if (at < HEAD_DIM) found[0].sums[warp_index()][head][at] = sums[head][n / PACK][n % PACK];
            }
            if (lane_index() == 0) {
                found[0].maximum[warp_index()][head] = maximum[head];
                found[0].denominator[warp_index()][head] = denominator[head];
            }
        }
        merge_warps(found[0], partial + first_head * stride, stride, heads);
    }
    prefetch_by_all(next_product);
}

#else

constexpr u32 PACKS = HEAD_DIM / PACK;                // per row
constexpr u32 STEPS = (PACKS + 3) / 4;                // of 32 dimensions, for scores
constexpr u32 LANE_PACKS = (PACKS + 7) / 8;           // of each value row per lane, for sums
constexpr u32 TILES = (GROUP + 7) / 8;                // of 8 heads

DEVICE void attend_split(const T* q, const T* keys, const T* values, float* partial, u64 stride, Keys split,
                         float scale, const NextProduct& next_product) {
    SHARED(Found, found, 1);
    const u32 g = lane_index() / 4, t = lane_index() % 4;

    Pack key[STEPS][2], value[4][LANE_PACKS];
    // this lane's first row of the next tile to load
    u32 tile = split.first + warp_index() * TILE;
    const T* key_row = keys + u64(tile + g) * HEAD_DIM + t * PACK;
    const T* value_row = values + u64(tile + 2 * t) * HEAD_DIM + g * PACK;
    auto load_keys = [&](u32 tile) { // rows g and g + 8, pack t of each step
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            bool seen = tile + g + 8 * i < split.end;
#pragma unroll
            for (u32 step = 0; step < STEPS; step++) {
                bool inside = PACKS % 4 == 0 || step * 4 + t < PACKS;
                key[step][i] = load_once(key_row + 8 * i * HEAD_DIM + step * 32, inside && seen);
            }
        }
        key_row += WARPS * TILE * HEAD_DIM;
    };
    auto load_values = [&](u32 tile) { // rows 2t, 2t + 1, 2t + 8, 2t + 9, pack g of each 8
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 row = i % 2 + i / 2 * 8;
            bool seen = tile + 2 * t + row < split.end;
#pragma unroll
            for (u32 n = 0; n < LANE_PACKS; n++) {
                bool inside = PACKS % 8 == 0 || n * 8 + g < PACKS;
                value[i][n] = load_once(value_row + row * HEAD_DIM + n * 64, inside && seen);
            }
        }
        value_row += WARPS * TILE * HEAD_DIM;
    };
    load_keys(tile);
    load_values(tile);

    Pack query[TILES][STEPS]; // column g: a head
#pragma unroll
    for (u32 n = 0; n < TILES; n++) {
#pragma unroll
        for (u32 step = 0; step < STEPS; step++) {
            const T* at = q + (n * 8 + g) * HEAD_DIM + (step * 4 + t) * PACK;
            query[n][step] = load_shared(at, n * 8 + g < GROUP && step * 4 + t < PACKS);
        }
    }
    // for heads 2t and 2t + 1: sums of dimensions 2i (first two) and 2i + 1 of pack g; this lane's part of the
    // denominator; the running maximum
    float sums[TILES][LANE_PACKS][4][4] = {}, denominator[TILES][2] = {}, maximum[TILES][2];
#pragma unroll
    for (u32 n = 0; n < TILES; n++) maximum[n][0] = maximum[n][1] = unseen();

#pragma unroll 1
    for (; tile < split.end; tile += WARPS * TILE) {
        float score[TILES][4] = {}; // keys g (first two) and g + 8, heads 2t and 2t + 1
#pragma unroll
        for (u32 step = 0; step < STEPS; step++) {
#pragma unroll
            for (u32 n = 0; n < TILES; n++) mma_packs(score[n], key[step][0], key[step][1], query[n][step]);
        }
        load_keys(tile + WARPS * TILE);
        u32 weight[TILES][2]; // column g: a head; keys 2t, 2t + 1, 2t + 8, 2t + 9
#pragma unroll
        for (u32 n = 0; n < TILES; n++) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                bool seen = tile + g + i / 2 * 8 < split.end;
                score[n][i] = seen ? score[n][i] * (scale * LOG2_E) : unseen();
            }
            float shrink[2];
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
                float largest = fmaxf(maximum[n][i], fmaxf(score[n][i], score[n][i + 2]));
#pragma unroll
                for (u32 by = 4; by < WARP; by *= 2) largest = fmaxf(largest, shuffle_xor(largest, by));
                shrink[i] = power_of_2(maximum[n][i] - largest);
                maximum[n][i] = largest;
                score[n][i] = power_of_2(score[n][i] - largest);
                score[n][i + 2] = power_of_2(score[n][i + 2] - largest);
                denominator[n][i] = denominator[n][i] * shrink[i] + (score[n][i] + score[n][i + 2]);
            }
            weight[n][0] = transpose(to_number_pair(score[n][0], score[n][1]));
            weight[n][1] = transpose(to_number_pair(score[n][2], score[n][3]));
#pragma unroll
            for (u32 i = 0; i < LANE_PACKS * 4; i++) {
                float(&sum)[4] = sums[n][i / 4][i % 4];
#pragma unroll
                for (u32 j = 0; j < 4; j++) sum[j] *= shrink[j % 2];
            }
        }
#pragma unroll
        for (u32 i = 0; i < LANE_PACKS * 4; i++) {
            u32 a[4];
#pragma unroll
            for (u32 j = 0; j < 2; j++) {
                u32 first = value[2 * j][i / 4].words[i % 4], second = value[2 * j + 1][i / 4].words[i % 4];
                a[2 * j] = low_halves(first, second);
                a[2 * j + 1] = high_halves(first, second);
            }
#pragma unroll
            for (u32 n = 0; n < TILES; n++) mma(sums[n][i / 4][i % 4], a, weight[n]);
        }
        load_values(tile + WARPS * TILE);
    }
    prefetch_by_all(next_product);

#pragma unroll
    for (u32 n = 0; n < TILES; n++) {
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            u32 head = 2 * t + i;
            float total = denominator[n][i];
#pragma unroll
            for (u32 by = 4; by < WARP; by *= 2) total += shuffle_xor(total, by);
            if (head >= HEADS) continue;
#pragma unroll
            for (u32 j = 0; j < LANE_PACKS * 4; j++) {
                u32 at = (j / 4 * 8 + g) * PACK + j % 4 * 2;
                if (at >= HEAD_DIM) continue;
                found[0].sums[warp_index()][head][at] = sums[n][j / 4][j % 4][i];
                found[0].sums[warp_index()][head][at + 1] = sums[n][j / 4][j % 4][i + 2];
            }
            if (g == 0) {
                found[0].maximum[warp_index()][head] = maximum[n][i];
                found[0].denominator[warp_index()][head] = total;
            }
        }
        merge_warps(found[0], partial + n * 8 * stride, stride, min(8u, GROUP - n * 8));
    }
}

#endif

constexpr u32 COMBINE_WARPS = 8;
constexpr u32 LANE_NUMBERS = (HEAD_DIM + WARP - 1) / WARP;

// Grid (splits, kv_heads, sequences), 128 threads. q [sequence][kv_heads * GROUP][HEAD_DIM]; caches
// [sequence][kv_head][capacity][HEAD_DIM]; the context of a sequence is positions[sequence] + 1; partial
// [sequence][head][split][HEAD_DIM + 2].
BOUNDED_KERNEL(attend_decode, THREADS, HEAD_DIM <= 128 && GROUP <= 8 ? 3 : 2, const T* q, const T* k_cache, const T* v_cache, float* partial,
               const u32* positions, u32 kv_heads, u32 capacity, u32 splits, float scale AHEAD_PARAMETERS) {
    SAY_WHEN();
    const NextProduct next_product = NEXT_PRODUCT;
    u64 pair = u64(blockIdx.z) * kv_heads + blockIdx.y; // (sequence, KV head)
    u64 cache = pair * capacity * HEAD_DIM, stride = u64(splits) * RESULT;
    // `positions` is already final for this step, and every cache row but the newest is older: prefetch the first round
    // of keys and values while the previous kernel still rotates the newest row
    const u32 context = min(positions[blockIdx.z] + 1, capacity);
    const u32 skipped = WINDOW > 0 && context > WINDOW ? context - WINDOW : 0;
    Keys split = keys_of_split(context - skipped, splits);
    split.first += skipped;
    split.end += skipped;
    if (lane_index() == 0 && warp_index() < 2) {
        const T* rows = (warp_index() == 0 ? k_cache : v_cache) + cache + u64(split.first) * HEAD_DIM;
        prefetch_to_l2(rows, min(split.end - split.first, WARPS * TILE) * HEAD_DIM * sizeof(T));
    }
    wait_for_previous();
    let_next_start();
    partial += pair * GROUP * stride + blockIdx.x * u64(RESULT);
    if (split.first == split.end) {
        for (u32 head = threadIdx.x; head < GROUP; head += THREADS) partial[head * stride + HEAD_DIM] = unseen();
        prefetch_by_all(next_product);
    } else {
        attend_split(q + pair * GROUP * HEAD_DIM, k_cache + cache, v_cache + cache, partial, stride, split, scale, next_product);
    }
}

// Grid (heads, sequences), 256 threads. Sums the splits of each head: in split order within a warp, then over the
// warps. out [sequence][head][HEAD_DIM].
BOUNDED_KERNEL(attend_combine, COMBINE_WARPS* WARP, 1, const float* partial, T* out, u32 splits SINK_PARAMETER) {
    SAY_WHEN();
    SHARED(float, found, COMBINE_WARPS * (HEAD_DIM + 1));
    SHARED(float, maxima, COMBINE_WARPS);
    SHARED(u32, counts, COMBINE_WARPS);
    wait_for_previous();
    let_next_start();
    u64 head = u64(blockIdx.y) * gridDim.x + blockIdx.x;
    partial += head * splits * RESULT;

    float largest = unseen();
#ifdef SINKS
    const float sink = to_float(sinks[blockIdx.x]) * LOG2_E;
    largest = sink;
#endif
    u32 used = 0; // splits with keys come first
    for (u32 split = threadIdx.x; split < splits; split += COMBINE_WARPS * WARP) {
        float maximum = partial[split * u64(RESULT) + HEAD_DIM];
        largest = fmaxf(largest, maximum);
        if (maximum != unseen()) used = split + 1;
    }
    largest = warp_max(largest);
#pragma unroll
    for (u32 by = WARP / 2; by > 0; by /= 2) used = max(used, shuffle_xor(used, by));
    if (lane_index() == 0) {
        maxima[warp_index()] = largest;
        counts[warp_index()] = used;
    }
    __syncthreads();
#pragma unroll
    for (u32 warp = 0; warp < COMBINE_WARPS; warp++) {
        largest = fmaxf(largest, maxima[warp]);
        used = max(used, counts[warp]);
    }

    float sums[LANE_NUMBERS] = {}, denominator = 0.0f;
#pragma unroll 4
    for (u32 split = warp_index(); split < used; split += COMBINE_WARPS) {
        const float* result = partial + split * u64(RESULT);
        float weight = weight_of(result[HEAD_DIM], largest);
        denominator = fmaf(weight, result[HEAD_DIM + 1], denominator);
#pragma unroll
        for (u32 i = 0; i < LANE_NUMBERS; i++) {
            u32 at = i * WARP + lane_index();
            sums[i] = fmaf(weight, at < HEAD_DIM ? result[at] : 0.0f, sums[i]);
        }
    }
    float* mine = &found[warp_index() * (HEAD_DIM + 1)];
#pragma unroll
    for (u32 i = 0; i < LANE_NUMBERS; i++) {
        if (i * WARP + lane_index() < HEAD_DIM) mine[i * WARP + lane_index()] = sums[i];
    }
    if (lane_index() == 0) mine[HEAD_DIM] = denominator;
    __syncthreads();
    for (u32 at = threadIdx.x; at < HEAD_DIM; at += COMBINE_WARPS * WARP) {
        float sum = 0.0f, total = 0.0f;
#pragma unroll
        for (u32 warp = 0; warp < COMBINE_WARPS; warp++) {
            sum += found[warp * (HEAD_DIM + 1) + at];
            total += found[warp * (HEAD_DIM + 1) + HEAD_DIM];
        }
#ifdef SINKS
        total += weight_of(sink, largest);
#endif
        out[head * HEAD_DIM + at] = to_number(sum / total);
    }
}
