// Sampling: the next token from the logits (the highest, or drawn from the top k), and the update of the step's state.
//
// Must match src/run/sample.rs: lowest token id on ties, NaN lowest, draws depend on (seed, sequence, position) only.

#include "block.cuh"
#include "hash.cuh"

constexpr u32 SAMPLE_THREADS = 1024; // block size of sample_random

// ---- the highest logit (argmax)

struct Best {
    float value;
    u32 index;
};

// The higher of two; the lower index on ties.
DEVICE Best better(Best a, Best b) {
    return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}

// Block-wide argmax, returned to thread 0. `values`, `indices`: 32 elements of shared memory each.
DEVICE Best block_best(Best best, float* values, u32* indices) {
#pragma unroll
    for (u32 by = WARP / 2; by > 0; by /= 2) {
        best = better(best, Best{shuffle_xor(best.value, by), shuffle_xor(best.index, by)});
    }
    if (lane_index() == 0) {
        values[warp_index()] = best.value;
        indices[warp_index()] = best.index;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (u32 warp = 1; warp < blockDim.x / WARP; warp++) best = better(best, Best{values[warp], indices[warp]});
    }
    return best;
}

// Records a token as the next input and as this step's history entry, and advances the position.
DEVICE void finish_step(u32 sequence, u32 token, u32* tokens, u32* history, u32* steps, u32* positions, u32 batch,
                        u32 advance) {
    u32 step = steps[sequence];
    tokens[sequence] = token;
    history[u64(step) * batch + sequence] = token;
    steps[sequence] = step + 1;
    positions[sequence] += advance;
}

// Exponent bits of a logit, all set if it is infinite or NaN.
constexpr u32 NOT_FINITE = 0x7f800000u;

// Argmax of each part of a sequence's vocabulary: [sequence][part]. Counts infinite and NaN logits in *not_finite; the
// results of such a run are meaningless. Grid (parts, sequences). Reads 4 x vocab bytes per sequence.
KERNEL(sample_part, const float* logits, u32 vocab, float* best_value, u32* best_index, u32* not_finite) {
    SAY_WHEN();
    SHARED(float, values, 32);
    SHARED(u32, indices, 32);
    // parts start at multiples of 4, for 16-byte loads
    u32 length = (vocab + gridDim.x - 1) / gridDim.x;
    length = (length + 3) / 4 * 4;
    u32 begin = min(blockIdx.x * length, vocab), end = min(begin + length, vocab);
    const float* row = logits + u64(blockIdx.y) * vocab;
    wait_for_previous();
    let_next_start();
    // a thread visits its logits in ascending order, so only a greater one replaces the best
    Best best{negative_infinity(), 0};
    u32 odd = 0;
    u32 whole = vocab % 4 == 0 ? begin + (end - begin) / 4 * 4 : begin;
    for (u32 i = begin + threadIdx.x * 4; i < whole; i += blockDim.x * 4) {
        Pack p = load_pack(row + i);
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            float x = __uint_as_float(p.words[k]);
            odd += (p.words[k] & NOT_FINITE) == NOT_FINITE;
            if (x > best.value) best = Best{x, i + k};
        }
    }
    for (u32 i = whole + threadIdx.x; i < end; i += blockDim.x) {
        odd += (__float_as_uint(row[i]) & NOT_FINITE) == NOT_FINITE;
        if (row[i] > best.value) best = Best{row[i], i};
    }
    if (odd > 0) atomicAdd(not_finite, odd);
    best = block_best(best, values, indices);
    if (threadIdx.x == 0) {
        u32 at = blockIdx.y * gridDim.x + blockIdx.x;
        best_value[at] = best.value;
        best_index[at] = best.index;
    }
}

// Takes the highest of a sequence's parts as its next token and advances the state: `history` is [step][batch],
// `advance` is the number of positions that the step processed. Grid (sequences). Reads 8 bytes per part.
KERNEL(sample_greedy, const float* best_value, const u32* best_index, u32 parts, u32* tokens, u32* history,
       u32* steps, u32* positions, u32 batch, u32 advance) {
    SAY_WHEN();
    SHARED(float, values, 32);
    SHARED(u32, indices, 32);
    wait_for_previous();
    let_next_start();
    u32 sequence = blockIdx.x;
    Best best{negative_infinity(), 0};
    for (u32 part = threadIdx.x; part < parts; part += blockDim.x) {
        u64 at = u64(sequence) * parts + part;
        best = better(best, Best{best_value[at], best_index[at]});
    }
    best = block_best(best, values, indices);
    if (threadIdx.x == 0) {
        finish_step(sequence, best.index, tokens, history, steps, positions, batch, advance);
    }
}

// ---- a draw from the top k

// Uniform number in [0, 1) from three integers.
DEVICE double uniform(u64 seed, u64 sequence, u64 position) {
    u64 z = seed;
#pragma unroll
    for (u32 i = 0; i < 2; i++) z = mix(z + (i == 0 ? sequence : position) + GOLDEN);
    return double(z >> 11) * 0x1p-53;
}

// Sort key of a logit: smaller for higher logits. NaN counts as -infinity. Zeros differ by their sign unless
// `equal_zeros` (greedy selection compares them as equal).
DEVICE u32 descending(float logit, bool equal_zeros) {
    if (logit != logit) logit = negative_infinity();
    if (equal_zeros && logit == 0.0f) logit = 0.0f;
    u32 bits = __float_as_uint(logit);
    return bits >> 31 ? bits : ~bits & 0x7fffffffu;
}

// Finds the histogram bin that holds rank `rank` (from 0, in ascending order of bins), and the number of elements
// before that bin. Called by the whole block; `found`: 2 elements of shared memory.
DEVICE void find_bin(const u32* histogram, u32 bins, u32 rank, u32* found) {
    if (warp_index() == 0) {
        u32 each = bins / WARP, own = 0;
        for (u32 i = 0; i < each; i++) own += histogram[lane_index() * each + i];
        u32 before = own;
#pragma unroll
        for (u32 by = 1; by < WARP; by *= 2) {
            u32 other = __shfl_up_sync(ALL_LANES, before, by);
            if (lane_index() >= by) before += other;
        }
        before -= own;
        if (rank >= before && rank - before < own) {
            u32 bin = lane_index() * each;
            while (rank - before >= histogram[bin]) before += histogram[bin++];
            found[0] = bin;
            found[1] = before;
        }
    }
    __syncthreads();
}

// Bitonic sort of `count` numbers (a power of two), ascending, by all threads of the block.
DEVICE void sort(u64* numbers, u32 count) {
    for (u32 run = 2; run <= count; run *= 2) {
        for (u32 by = run / 2; by > 0; by /= 2) {
            __syncthreads();
            for (u32 pair = threadIdx.x; pair < count / 2; pair += blockDim.x) {
                u32 low = pair / by * by * 2 + pair % by, high = low + by;
                u64 a = numbers[low], b = numbers[high];
                if ((a > b) == ((low & run) == 0)) {
                    numbers[low] = b;
                    numbers[high] = a;
                }
            }
        }
    }
    __syncthreads();
}

// Draws each sequence's next token from the softmax, at a temperature, of its top_k highest logits, and advances the
// state like `sample_greedy`. The draw depends on sequence first_sequence + block and the position of the last
// processed token. `scratch`: unused for top_k up to 1024, otherwise min(top_k, vocab) elements per sequence, rounded
// up to a power of two. Grid (sequences) of 1024 threads.
//
// Three passes over 11, 11 and 10 bits of the keys (radix select) find the k-th highest logit, and a fourth pass
// gathers the top k, which are then sorted: reads 16 x vocab bytes per sequence, from L2 after the first pass. Weights
// and sums are f64, added in the order of the sorted logits, as on the host.
BOUNDED_KERNEL(sample_random, SAMPLE_THREADS, 1, const float* logits, u32 vocab, float temperature, u32 top_k,
               u64 seed, u32 first_sequence, u64* scratch, u32* tokens, u32* history, u32* steps, u32* positions,
               u32 batch, u32 advance) {
    SAY_WHEN();
    constexpr u32 BINS = 2048;
    SHARED(u32, histogram, BINS);
    SHARED(u64, few, SAMPLE_THREADS);
    SHARED(u32, found, 2);
    SHARED(u32, gathered, 1);
    SHARED(double, left_over, 1);
    SHARED(u32, chosen, 1);
    wait_for_previous();
    let_next_start();
    u32 sequence = blockIdx.x, thread = threadIdx.x;
    const float* row = logits + u64(sequence) * vocab;
    u32 k = min(max(top_k, 1u), vocab);
    bool equal_zeros = top_k <= 1;

    // key of rank k - 1, most significant bits first
    u32 key = 0, known = 0, rank = k - 1;
    constexpr u32 WIDTHS[3] = {11, 11, 10};
#pragma unroll
    for (u32 pass = 0; pass < 3; pass++) {
        u32 width = WIDTHS[pass], shift = 32 - known - width;
        for (u32 i = thread; i < BINS; i += blockDim.x) histogram[i] = 0;
        __syncthreads();
        for (u32 i = thread; i < vocab; i += blockDim.x) {
            u32 x = descending(row[i], equal_zeros);
            if (known == 0 || x >> (32 - known) == key) atomicAdd(&histogram[x >> shift & ((1u << width) - 1)], 1u);
        }
        __syncthreads();
        find_bin(histogram, BINS, rank, found);
        key = key << width | found[0];
        rank -= found[1];
        known += width;
        __syncthreads();
    }

    // gather all keys below it, and the first `rank + 1` of the equal ones
    u64* best = k <= SAMPLE_THREADS ? few : nullptr;
    u32 room = 1;
    while (room < k) room *= 2;
    if (!best) best = scratch + u64(sequence) * room;
    u32 below = k - (rank + 1);
    if (thread == 0) *gathered = 0;
    for (u32 i = thread; i < room; i += blockDim.x) {
        if (i >= k) best[i] = ~0ull;
    }
    __syncthreads();
    for (u32 i = thread; i < vocab; i += blockDim.x) {
        u32 x = descending(row[i], equal_zeros);
        if (x < key) best[atomicAdd(gathered, 1u)] = u64(x) << 32 | i;
    }
    __syncthreads();
    // in token order, since not all of the equal ones may be selected
    u32 taken = below;
    for (u32 start = 0; start < vocab && taken < k; start += blockDim.x) {
        u32 i = start + thread;
        bool equal = i < vocab && descending(row[i], equal_zeros) == key;
        u32 votes = __ballot_sync(ALL_LANES, equal);
        if (lane_index() == 0) histogram[warp_index()] = __popc(votes);
        __syncthreads();
        u32 at = taken, all = 0;
        for (u32 warp = 0; warp < blockDim.x / WARP; warp++) {
            if (warp < warp_index()) at += histogram[warp];
            all += histogram[warp];
        }
        at += __popc(votes & ((1u << lane_index()) - 1));
        if (equal && at < k) best[at] = u64(key) << 32 | i;
        taken += all;
        __syncthreads();
    }
    sort(best, room);

    // all threads compute weights; one thread sums them, in order
    double* weights = reinterpret_cast<double*>(histogram);
    float highest = row[u32(best[0])];
    if (thread == 0) {
        *left_over = 0.0;
        *chosen = u32(best[k - 1]);
    }
    for (u32 round = 0; round < 2; round++) {
        bool drawn = false;
        for (u32 start = 0; start < k; start += SAMPLE_THREADS) {
            if (start + thread < k) {
                float logit = row[u32(best[start + thread])];
                weights[thread] = exp(double((logit - highest) / temperature));
            }
            __syncthreads();
            if (thread == 0) {
                u32 count = min(k - start, SAMPLE_THREADS);
                for (u32 i = 0; i < count && !drawn; i++) {
                    *left_over = round == 0 ? __dadd_rn(*left_over, weights[i]) : __dsub_rn(*left_over, weights[i]);
                    if (round == 1 && *left_over < 0.0) {
                        *chosen = u32(best[start + i]);
                        drawn = true;
                    }
                }
            }
            __syncthreads();
        }
        if (round == 0 && thread == 0) {
            u64 position = u64(positions[sequence]) + advance - 1;
            *left_over = __dmul_rn(uniform(seed, first_sequence + sequence, position), *left_over);
        }
    }
    if (thread == 0) finish_step(sequence, *chosen, tokens, history, steps, positions, batch, advance);
}
