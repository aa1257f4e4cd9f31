// Matrix-vector products for up to 8 rows (16 through tensor cores): out[r][o] = sum over i of x[r][i] w[o][i]. Bound by reading w once.
//
// Cost: outputs x inputs x sizeof(T) bytes of weights, each read once for all ROWS rows; 2 x ROWS FLOPs a weight.
// x (ROWS x inputs) is read once by each block, mostly from the second-level cache.
//
// How: a block takes a contiguous range of outputs (equal to one row over the grid, so no multiprocessor has
// more than one row too many), and all its warps share each row, split along the inputs. So a warp needs only its
// slice of x, which stays in registers as it is stored. No atomics: partial sums of the warps meet in shared
// memory and are added in the order of warps; results do not depend on timing.
//
// Bytes in flight: each thread keeps a ring of DEPTH x UNIT packs of 16 bytes under way and refills a slot as
// soon as it is consumed: 8 packs x 512 threads = 64 KB a multiprocessor (half of it at the worst moment); an
// H200 needs 4.8 TB/s x 0.8 us / 132 = 29 KB. The first ring is filled before `wait_for_previous`, for weights
// do not change, and one thread asks for the next PREFETCH bytes of the block's weights in the second-level
// cache: the start of a matrix streams while the kernels before this one still run.
//
// Two ways of the arithmetic. VECTOR (f32 always, 16 bits for few rows): FMA, about 3 instructions a weight at
// one row, lanes of a warp read 512 contiguous bytes. MMA (16 bits): 16 outputs x 8 rows x 32 inputs take two
// tensor-core products, so the work hardly grows with ROWS; lanes read 64 contiguous bytes of each of 8 outputs.
// x is read again for each 16 outputs then, from the first-level cache where it fits (ROWS x inputs x 2 bytes); for
// 16 rows of 14336 inputs it does not.
//
// Registers: 64 a thread for 16 bits, so that beside a block of 512 threads there is room on a multiprocessor for
// the blocks of the next kernel, or of a collective.
//
// Waves and tails on 132 multiprocessors (inputs x outputs, bf16, one block of 448 to 512 threads each):
//   4096 x 4096 (33.5 MB): 31 or 32 outputs a block, 97% of the blocks' time is the mean's
//   4096 x 6144: 46 or 47, 99%;  4096 x 28672: 217 or 218, 99.6%;  14336 x 4096: 31 or 32 (448 threads x 4 packs)
//   4096 x 128256: 971 or 972;   8192 x 1280 (one of 8 ranks of 70B): 9 or 10, 97%
//   1024 x 8192: 128 threads, 4 blocks a multiprocessor, 15 or 16 outputs each, 97%
//
// Constants: ROWS; INPUTS (0: known at the launch only, slow); THREADS; BLOCKS (at least so many on a multiprocessor:
// bounds registers); UNIT_ROWS, UNIT_PACKS, DEPTH: the ring; MMA: 1 for tensor cores. `matvec_geometry` chooses them.
#include "mma.cuh"
#include "stream.cuh"

#ifndef ROWS
#define ROWS 1
#endif
#ifndef INPUTS
#define INPUTS 0
#endif
#ifndef THREADS
#define THREADS 256
#endif
#ifndef BLOCKS
#define BLOCKS 1
#endif
#ifndef UNIT_ROWS
#define UNIT_ROWS 2
#endif
#ifndef UNIT_PACKS
#define UNIT_PACKS 2
#endif
#ifndef DEPTH
#define DEPTH 2
#endif
#ifndef MMA
#define MMA 0
#endif

static_assert(ROWS >= 1 && ROWS <= (MMA ? 16 : 8), "ROWS is 1 to 8, through tensor cores 16");
static_assert(THREADS % WARP == 0 && THREADS <= 1024, "whole warps");

constexpr u32 WARPS = THREADS / WARP;

// Bytes of a block's weights that are asked for before the kernels ahead have ended.
constexpr u32 PREFETCH = 65536;

// The outputs of one block.
struct Range {
    u32 first, end;
};

DEVICE Range outputs_of_block(u32 outputs) {
    u32 each = outputs / gridDim.x, longer = outputs % gridDim.x;
    u32 first = blockIdx.x * each + min(blockIdx.x, longer);
    return {first, first + each + (blockIdx.x < longer)};
}

DEVICE void store(T* out, float x) { *out = to_number(x); }
#if !defined(NUMBER_F32)
DEVICE void store(float* out, float x) { *out = x; }
#endif

// Sums of WARPS warps for COUNT outputs x ROWS rows meet here; two of them, so that one barrier a round is enough:
// what is read after a barrier is written again only after the next one.
template <u32 COUNT> struct Partial {
    float sums[2][WARPS][ROWS * COUNT];
};

// Adds up and stores one round of COUNT outputs from `first` on.
template <u32 COUNT, class Out>
DEVICE void finish_round(float (&sums)[WARPS][ROWS * COUNT], Out* out, u32 first, u32 end, u32 outputs) {
    __syncthreads();
#pragma unroll 1
    for (u32 from = 0; from < ROWS * COUNT; from += THREADS) {
        u32 i = from + threadIdx.x, row = i / COUNT, output = first + i % COUNT;
        if (i >= ROWS * COUNT) break;
        float sum = sums[0][i];
#pragma unroll 4
        for (u32 warp = 1; warp < WARPS; warp++) sum += sums[warp][i];
        if (output < end) store(&out[u64(row) * outputs + output], sum);
    }
}

// Asks for what follows the first `rows` outputs of this block.
DEVICE void prefetch_after(const T* w, Range range, u32 rows, u32 inputs) {
    if (threadIdx.x == 0 && INPUTS > 0 && INPUTS % PACK == 0 && range.end > range.first + rows) {
        u64 bytes = u64(range.end - range.first - rows) * inputs * sizeof(T);
        prefetch_to_l2(w + u64(range.first + rows) * inputs, u32(bytes < PREFETCH ? bytes : PREFETCH));
    }
}

#if MMA

static_assert(INPUTS > 0 && INPUTS % PACK == 0, "tensor cores take inputs in whole packs");

// Steps of 32 inputs that a warp takes of each output, a multiple of DEPTH (what is past the end counts as zero).
constexpr u32 STEPS = ((INPUTS + 32 * WARPS - 1) / (32 * WARPS) + DEPTH - 1) / DEPTH * DEPTH;
// Whether a warp's slice of x stays in registers.
constexpr bool KEPT = STEPS <= 8 && ROWS <= 8 && THREADS * BLOCKS <= 512;
// Tiles of 8 rows of x.
constexpr u32 COLUMNS = (ROWS + 7) / 8;
constexpr u32 TILE = 16;

// The pack of a row that lane t of a group of 4 takes in a step, less what is the lane's own. Warps take turns by
// DEPTH steps, so that each reads DEPTH x 64 contiguous bytes and all together a contiguous part of the row.
DEVICE constexpr u32 pack_of_step(u32 step) { return (step / DEPTH * WARPS * DEPTH + step % DEPTH) * 4; }
DEVICE u32 pack_of_lane() { return warp_index() * DEPTH * 4 + lane_index() % 4; }
// Whether every pack of every step is one of the row.
constexpr bool EXACT = INPUTS / PACK == STEPS * WARPS * 4;

template <class Out> DEVICE void matvec_any(const T* x, const T* w, Out* out, u32 /* INPUTS */, u32 outputs) {
    constexpr u32 PACKS = INPUTS / PACK;
    SHARED(Partial<TILE>, partial, 1);
    const u32 g = lane_index() / 4, t = lane_index() % 4;
    const Range range = outputs_of_block(outputs);

    const u32 own = pack_of_lane();
    auto inside = [&](u32 step) { return EXACT || pack_of_step(step) + own < PACKS; };
    Pack ring[DEPTH][2];
    // this lane's first pack of output `load_first` + g, the tile to load from
    u32 load_first = range.first;
    const T* row = w + u64(range.first + g) * INPUTS + own * PACK;
    auto load = [&](u32 slot, u32 step) {
        const T* at = row + pack_of_step(step) * PACK;
        ring[slot][0] = load_weights(at, inside(step) && load_first + g < range.end);
        ring[slot][1] = load_weights(at + 8 * INPUTS, inside(step) && load_first + g + 8 < range.end);
    };
    const T* row_of_x = x + g * INPUTS + own * PACK;
    auto load_x = [&](u32 step, Pack (&column)[COLUMNS]) {
#pragma unroll
        for (u32 n = 0; n < COLUMNS; n++) {
            const T* at = row_of_x + n * 8 * INPUTS + pack_of_step(step) * PACK;
            column[n] = load_shared(at, inside(step) && g + n * 8 < ROWS);
        }
    };
#pragma unroll
    for (u32 slot = 0; slot < DEPTH; slot++) load(slot, slot);
    prefetch_after(w, range, TILE, INPUTS);
    let_next_start();
    wait_for_previous();

    Pack kept[KEPT ? STEPS : 1][COLUMNS];
    if constexpr (KEPT) {
#pragma unroll
        for (u32 step = 0; step < STEPS; step++) load_x(step, kept[step]);
    }
    u32 round = 0;
    for (u32 first = range.first; first < range.end; first += TILE, round ^= 1) {
        float c[COLUMNS][4] = {};
        auto steps = [&](u32 from) {
            constexpr u32 AHEAD = DEPTH < 2 ? DEPTH : 2; // packs of x that are loaded before they are needed
            Pack column[AHEAD][COLUMNS];
            if constexpr (!KEPT) {
#pragma unroll
                for (u32 slot = 0; slot < AHEAD; slot++) load_x(from + slot, column[slot]);
            }
            bool last = from + DEPTH == STEPS;
            if (last) {
                load_first += TILE;
                row += TILE * INPUTS;
            }
#pragma unroll
            for (u32 slot = 0; slot < DEPTH; slot++) {
#pragma unroll
                for (u32 n = 0; n < COLUMNS; n++) {
                    const Pack& pack = KEPT ? kept[KEPT ? from + slot : 0][n] : column[slot % AHEAD][n];
                    mma_packs(c[n], ring[slot][0], ring[slot][1], pack);
                }
                load(slot, last ? slot : from + DEPTH + slot);
                if (!KEPT && slot + AHEAD < DEPTH) load_x(from + slot + AHEAD, column[slot % AHEAD]);
            }
        };
        if constexpr (KEPT) {
#pragma unroll
            for (u32 from = 0; from < STEPS; from += DEPTH) steps(from);
        } else {
#pragma unroll 1
            for (u32 from = 0; from < STEPS; from += DEPTH) steps(from);
        }
        float(&sums)[WARPS][ROWS * TILE] = partial[0].sums[round];
#pragma unroll
        for (u32 i = 0; i < COLUMNS * 4; i++) {
            u32 row = i / 4 * 8 + 2 * t + i % 2;
            if (row < ROWS) sums[warp_index()][row * TILE + g + i % 4 / 2 * 8] = c[i / 4][i % 4];
        }
        finish_round<TILE>(sums, out, first, range.end, outputs);
    }
}

#else

// What one load brings: a pack, or a single number where rows do not begin on 16 bytes.
constexpr bool WHOLE_PACKS = INPUTS > 0 && INPUTS % PACK == 0;

template <bool PACKS> struct Load {
    static constexpr u32 NUMBERS = PACK;
    Pack pack;
    DEVICE void weights(const T* at, bool valid) { pack = load_weights(at, valid); }
    DEVICE void activations(const T* at, bool valid) { pack = load_shared(at, valid); }
    DEVICE float number(u32 i) const {
#if defined(NUMBER_F32)
        return __uint_as_float(pack.words[i]);
#else
        return i % 2 == 0 ? low_to_float(pack.words[i / 2]) : high_to_float(pack.words[i / 2]);
#endif
    }
};

template <> struct Load<false> {
    static constexpr u32 NUMBERS = 1;
    float x;
    DEVICE void weights(const T* at, bool valid) { x = valid ? to_float(*at) : 0.0f; }
    DEVICE void activations(const T* at, bool valid) { x = valid ? to_float(*at) : 0.0f; }
    DEVICE float number(u32) const { return x; }
};

using Loaded = Load<WHOLE_PACKS>;

// Parts of a row, UNIT_PACKS loads of each thread wide; 0: known at the launch only.
constexpr u32 PART = THREADS * UNIT_PACKS * Loaded::NUMBERS;
constexpr u32 PARTS = INPUTS > 0 ? (INPUTS + PART - 1) / PART : 0;
// Whether every load of every part is one of the row.
constexpr bool EXACT = INPUTS > 0 && INPUTS % PART == 0;
// Whether a thread's slice of x stays in registers.
constexpr bool KEPT = PARTS == 1 && WHOLE_PACKS && ROWS * UNIT_PACKS <= 8;

// Sums of each thread for UNIT_ROWS outputs x ROWS rows, padded to a power of two.
constexpr u32 SUMS = UNIT_ROWS * ROWS;
constexpr u32 PADDED = SUMS <= 1 ? 1 : SUMS <= 2 ? 2 : SUMS <= 4 ? 4 : SUMS <= 8 ? 8 : SUMS <= 16 ? 16 : 32;
static_assert(SUMS <= 32, "a unit's sums are at most one a lane");
// Outputs between two barriers.
constexpr u32 COUNT = (128 / SUMS > 0 ? 128 / SUMS : 1) * UNIT_ROWS;

// Adds each of PADDED values over the lanes of a warp; lane l ends with value l / (32 / PADDED). In each exchange
// a lane gives away the half of its values that its partner keeps: about PADDED + 4 shuffles in all.
template <u32 BY, u32 VALUES> DEVICE float sums_over_lanes(float (&x)[VALUES]) {
    if constexpr (BY == 0) {
        return x[0];
    } else if constexpr (VALUES == 1) {
        x[0] += shuffle_xor(x[0], BY);
        return sums_over_lanes<BY / 2>(x);
    } else {
        bool upper = lane_index() & BY;
        float kept[VALUES / 2];
#pragma unroll
        for (u32 i = 0; i < VALUES / 2; i++) {
            float given = upper ? x[i] : x[i + VALUES / 2];
            kept[i] = (upper ? x[i + VALUES / 2] : x[i]) + shuffle_xor(given, BY);
        }
        return sums_over_lanes<BY / 2>(kept);
    }
}

template <class Out> DEVICE void matvec_any(const T* x, const T* w, Out* out, u32 inputs, u32 outputs) {
    if (INPUTS > 0) inputs = INPUTS;
    const u32 parts = PARTS > 0 ? PARTS : (inputs + PART - 1) / PART;
    SHARED(Partial<COUNT>, partial, 1);
    const Range range = outputs_of_block(outputs);

    // where a load of this thread lies in a row
    auto column = [&](u32 part, u32 i) {
        return ((part * UNIT_PACKS + i) * THREADS + threadIdx.x) * Loaded::NUMBERS;
    };
    auto inside = [&](u32 part, u32 i) { return EXACT || column(part, i) < inputs; };
    Loaded ring[DEPTH][UNIT_ROWS][UNIT_PACKS];
    // the next unit to load: UNIT_ROWS outputs from `load_first` on, their part `load_part`
    u32 load_first = range.first, load_part = 0;
    const T* row = w + u64(range.first) * inputs + column(0, 0);
    auto load = [&](u32 slot) {
#pragma unroll
        for (u32 j = 0; j < UNIT_ROWS; j++) {
#pragma unroll
            for (u32 i = 0; i < UNIT_PACKS; i++) {
                bool valid = load_first + j < range.end && inside(load_part, i);
                ring[slot][j][i].weights(row + j * u64(inputs) + column(load_part, i) - column(0, 0), valid);
            }
        }
        if (++load_part == parts) {
            load_part = 0;
            load_first += UNIT_ROWS;
            row += UNIT_ROWS * u64(inputs);
        }
    };
#pragma unroll
    for (u32 slot = 0; slot < DEPTH; slot++) load(slot);
    if (PARTS == 1) prefetch_after(w, range, DEPTH * UNIT_ROWS, inputs);
    let_next_start();
    wait_for_previous();

    Loaded kept[KEPT ? ROWS : 1][UNIT_PACKS];
    if constexpr (KEPT) {
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
#pragma unroll
            for (u32 i = 0; i < UNIT_PACKS; i++) {
                kept[r][i].activations(x + r * u64(inputs) + column(0, i), inside(0, i));
            }
        }
    }
    float sums[PADDED] = {};
    // the unit that is consumed (its slot is refilled before its sums go anywhere), the first output of its round, and which half of `partial` the round uses
    u32 first = range.first, part = 0, round_first = range.first, round = 0;
    auto consume = [&](u32 slot) {
#pragma unroll
        for (u32 i = 0; i < UNIT_PACKS; i++) {
            Loaded loaded[KEPT ? 1 : ROWS];
            if constexpr (!KEPT) {
#pragma unroll
                for (u32 r = 0; r < ROWS; r++) {
                    loaded[r].activations(x + r * u64(inputs) + column(part, i), inside(part, i));
                }
            }
#pragma unroll
            for (u32 n = 0; n < Loaded::NUMBERS; n++) {
                float activation[ROWS];
#pragma unroll
                for (u32 r = 0; r < ROWS; r++) {
                    if constexpr (KEPT) {
                        activation[r] = kept[r][i].number(n);
                    } else {
                        activation[r] = loaded[r].number(n);
                    }
                }
#pragma unroll
                for (u32 j = 0; j < UNIT_ROWS; j++) {
                    float weight = ring[slot][j][i].number(n);
#pragma unroll
                    for (u32 r = 0; r < ROWS; r++) {
                        sums[j * ROWS + r] = fmaf(weight, activation[r], sums[j * ROWS + r]);
                    }
                }
            }
        }
        load(slot);
        if (++part < parts) return;
        part = 0;
        float sum = sums_over_lanes<WARP / 2>(sums);
#pragma unroll
        for (u32 i = 0; i < PADDED; i++) sums[i] = 0.0f;
        u32 index = lane_index() / (WARP / PADDED);
        if (lane_index() % (WARP / PADDED) == 0 && index < SUMS) {
            u32 output = first - round_first + index / ROWS;
            partial[0].sums[round][warp_index()][index % ROWS * COUNT + output] = sum;
        }
        first += UNIT_ROWS;
        if (first - round_first == COUNT || first >= range.end) {
            finish_round<COUNT>(partial[0].sums[round], out, round_first, range.end, outputs);
            round_first = first;
            round ^= 1;
        }
    };
    while (first < range.end) {
#pragma unroll
        for (u32 slot = 0; slot < DEPTH; slot++) {
            if (first < range.end) consume(slot);
        }
    }
}

#endif

// Grid: any number of blocks of THREADS threads. x [ROWS][inputs], w [outputs][inputs], out [ROWS][outputs]; rows
// begin on 16 bytes where INPUTS is a multiple of a pack.
BOUNDED_KERNEL(matvec, THREADS, BLOCKS, const T* x, const T* w, T* out, u32 inputs, u32 outputs) {
    matvec_any(x, w, out, inputs, outputs);
}

// The same with f32 results, for logits.
BOUNDED_KERNEL(matvec_logits, THREADS, BLOCKS, const T* x, const T* w, float* out, u32 inputs, u32 outputs) {
    matvec_any(x, w, out, inputs, outputs);
}
