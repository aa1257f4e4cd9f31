// Matrix-vector products, up to 8 rows (16 with tensor cores): out[r][o] = sum_i x[r][i] w[o][i]. Bound by reading w.
//
// Cost: outputs x inputs x sizeof(W) bytes of weights, each read once for all ROWS rows; 2 x ROWS FLOPs per weight. x
// (ROWS x inputs) is read from L2: once per block, or with tensor cores once per round of outputs if the block's part
// of it does not fit in registers.
//
// Method: each block takes a contiguous range of outputs (equal to within one row over the grid, so that no SM has more
// than one extra row if blocks are spread evenly), and all its warps share each row, split along the inputs (split-K).
// A warp thus needs only its slice of x. No atomics: the warps' partial sums meet in shared memory and are added in
// warp order, so results do not depend on timing.
//
// Bytes in flight: each thread has SLOTS groups of packs in flight into its own part of shared memory (`Ring`) and
// issues a new one as soon as it has taken the oldest: 64 to 86 KB per SM (8 packs x 512 threads, 12 x 448), at worst
// one group less; an H200 needs 4.8 TB/s x 0.8 us / 132 = 29 KB. Registers would not do: the compiler has six
// scoreboard barriers for loads, lets all loads of a loop share one, and so waits for the newest where it needs the
// oldest.
//
// The first ring is filled before `wait_for_previous`, because weights do not change, and about the next 64 KB of the
// block's weights are prefetched into L2: a matrix starts streaming while earlier kernels still run. With AHEAD, a
// product that has issued its last loads prefetches the first weights of the next product (stream.cuh).
//
// Two arithmetic paths:
// - FMA (f32 always, 16-bit weights with one row): about 5 instructions per weight at one row; the lanes of a warp read
//   512 contiguous bytes; x stays in registers.
// - MMA (16-bit weights with more rows, fp8 with any number of rows): 16 outputs x 8 rows x 32 inputs take two
//   tensor-core products, so the work hardly grows with ROWS; lanes read 64 contiguous bytes of each of 8 outputs. x is
//   read again from the caches for each TILES x 16 outputs: at 16 rows, a quarter to half as many bytes as weights if a
//   block has that many outputs.
//
// Registers: 64 per thread for 16-bit weights, and for fp8 with up to 8 rows (72 in blocks of 448 threads). This leaves
// room on an SM for one more block, of the next kernel or of a collective.
//
// Waves and tails on 132 SMs (inputs x outputs, bf16, one block of 448 to 512 threads each; percentages are the mean
// block time over the longest):
//   4096 x 4096 (33.5 MB): 31 or 32 outputs per block, 97%
//   4096 x 6144: 46 or 47, 99%;  4096 x 28672: 217 or 218, 99.6%;  14336 x 4096: 31 or 32 (448 threads x 4 packs)
//   4096 x 128256: 971 or 972;   8192 x 1280 (one of 8 ranks of 70B): 9 or 10, 97%
//   1024 x 8192, one row: 128 threads, 4 blocks per SM, 15 or 16 outputs each, 97%
//
// Constants: ROWS; INPUTS (0: known only at launch, slow); THREADS; BLOCKS (minimum per SM, bounds registers); SLOTS
// (of the ring); UNIT_ROWS, UNIT_PACKS (processed at a time by FMA); TILES (of 16 outputs, processed at a time by
// tensor cores; 0 for FMA). `matvec_geometry` chooses them. The launch provides the ring's shared memory.
#include "weight.cuh"

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
#ifndef SLOTS
#define SLOTS 4
#endif
#ifndef UNIT_ROWS
#define UNIT_ROWS 2
#endif
#ifndef UNIT_PACKS
#define UNIT_PACKS 2
#endif
#ifndef TILES
#define TILES 0
#endif

static_assert(ROWS >= 1 && ROWS <= (TILES > 0 ? 16 : 8), "ROWS is 1 to 8, through tensor cores 16");
static_assert(THREADS % WARP == 0 && THREADS <= 1024, "whole warps");

#include "ring.cuh"

constexpr u32 WARPS = THREADS / WARP;

// Bytes of a block's weights prefetched beyond the ring while earlier kernels still run. With AHEAD the window also
// spans what the previous product may have prefetched.
constexpr u32 BEYOND_RING = 65536;
#ifdef AHEAD
constexpr u32 PREFETCH = BEYOND_RING + AHEAD;
#else
constexpr u32 PREFETCH = BEYOND_RING;
#endif

// Outputs of one block.
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

// Partial sums of WARPS warps for COUNT outputs x ROWS rows, in shared memory.
template <u32 COUNT> struct Partial {
    float sums[WARPS][ROWS * COUNT];
};

// Reduces, scales and stores one round of COUNT outputs from `first`; `scale` belongs to output threadIdx.x % COUNT.
template <u32 COUNT, class Out>
DEVICE void finish_round(const Partial<COUNT>& partial, float scale, Out* out, u32 first, u32 end, u32 outputs) {
    __syncthreads();
#pragma unroll 1
    for (u32 i = threadIdx.x; i < ROWS * COUNT; i += THREADS) {
        u32 row = i / COUNT, output = first + i % COUNT;
        float sum = partial.sums[0][i];
#pragma unroll 4
        for (u32 warp = 1; warp < WARPS; warp++) sum += partial.sums[warp][i];
        if (output < end) store(&out[u64(row) * outputs + output], sum * scale);
    }
    __syncthreads();
}

// Prefetches the weights that follow the first `rows` outputs of this block.
DEVICE void prefetch_after(const W* w, Range range, u32 rows, u32 inputs) {
    if (threadIdx.x == 0 && INPUTS > 0 && INPUTS % WEIGHTS == 0 && range.end > range.first + rows) {
        u64 bytes = u64(range.end - range.first - rows) * inputs * sizeof(W);
        prefetch_to_l2(w + u64(range.first + rows) * inputs, u32(bytes < PREFETCH ? bytes : PREFETCH));
    }
}

#if TILES > 0

static_assert(INPUTS > 0 && INPUTS % WEIGHTS == 0, "tensor cores take inputs in whole packs");

// A warp processes STEP inputs per step and RUN adjacent steps per turn (64 or 128 contiguous bytes of an output; cache
// lines have 128). The next warp's steps follow; a warp's own next turn is WARPS x RUN steps further.
constexpr u32 RUN = TILES > 2 ? 1 : 2;
constexpr u32 STEP = 4 * WEIGHTS;
constexpr u32 STRIDE = WARPS * RUN * STEP;
constexpr u32 TURNS = (INPUTS + STRIDE - 1) / STRIDE;
// Turn of a round from which the ring holds all remaining weights of that round.
constexpr u32 LAST_TURN = TURNS > SLOTS / (RUN * TILES) ? TURNS - SLOTS / (RUN * TILES) : 0;
// Tiles of 8 rows of x.
constexpr u32 COLUMNS = (ROWS + 7) / 8;
// True if a warp's part of x stays in registers.
constexpr bool KEPT = TURNS == 1 && RUN * COLUMNS * XPack::PACKS <= 4;
// True if each step loads x for the next one; registers must hold both.
constexpr bool X_AHEAD = !KEPT && COLUMNS * XPack::PACKS <= 2;
// True if every pack of every turn is inside the row (packs past the end count as zeros).
constexpr bool EXACT = INPUTS % STRIDE == 0;
// Outputs per round, and tiles whose sums fit into shared memory together.
constexpr u32 COUNT = 16 * TILES;
constexpr u32 TOGETHER = TILES < 2 ? 1 : 2;
static_assert(TILES % TOGETHER == 0, "1 tile, or a multiple of 2");

template <class Out>
DEVICE void matvec_any(const T* x, const W* w, Out* out, u32 /* INPUTS */, u32 outputs, const NextProduct& next_product) {
    SHARED(Partial<16 * TOGETHER>, partial, 1);
    DYNAMIC_SHARED(Pack, memory);
    const u32 g = lane_index() / 4, t = lane_index() % 4;
    const Range range = outputs_of_block(outputs);
    const Scales scales(w, INPUTS, outputs);
    // this lane's first input, and whether it has a pack in a step of a turn
    const u32 own = warp_index() * RUN * STEP + t * WEIGHTS;
    auto inside = [&](u32 turn, u32 step) { return EXACT || turn * STRIDE + step * STEP + own < INPUTS; };

    // ring group: this lane's packs of outputs g and g + 8 of a tile, in one step
    Ring<2, RUN * TILES> ring(memory);
    u32 ask_first = range.first, ask_turn = 0;
    const W* row = w + u64(range.first + g) * INPUTS + own;
    auto ask = [&](u32 k) {
        const u32 step = k / TILES, tile = k % TILES, output = ask_first + tile * 16 + g;
        const W* at = row + tile * 16 * INPUTS + step * STEP;
        ring.ask(k, 0, at, inside(ask_turn, step) && output < range.end);
        ring.ask(k, 1, at + 8 * INPUTS, inside(ask_turn, step) && output + 8 < range.end);
        ring.asked(k);
        if (k + 1 < RUN * TILES) return;
        row += STRIDE;
        if (++ask_turn == TURNS) {
            ask_turn = 0;
            ask_first += COUNT;
            row -= TURNS * STRIDE;
            row += COUNT * INPUTS;
        }
    };
#pragma unroll
    for (u32 slot = 0; slot < SLOTS; slot++) ask(slot % (RUN * TILES));
    // prefetch the rest of the outputs that the ring started, or the outputs that follow if there is no rest
    constexpr u32 BEGUN = SLOTS / (RUN * TILES) * STRIDE;
    if constexpr (BEGUN < INPUTS) {
        constexpr u32 WIDE = STRIDE + (PREFETCH - BEYOND_RING) / COUNT / sizeof(W) / WEIGHTS * WEIGHTS;
        constexpr u32 MORE = INPUTS - BEGUN < WIDE ? INPUTS - BEGUN : WIDE;
        for (u32 i = warp_index(); i < min(COUNT, range.end - range.first); i += WARPS) {
            if (lane_index() == 0) prefetch_to_l2(w + u64(range.first + i) * INPUTS + BEGUN, MORE * sizeof(W));
        }
    } else {
        prefetch_after(w, range, COUNT, INPUTS);
    }
    let_next_start();
    wait_for_previous();

    const T* row_of_x = x + g * INPUTS + own;
    auto load_x = [&](u32 turn, u32 step, XPack (&column)[COLUMNS]) {
#pragma unroll
        for (u32 n = 0; n < COLUMNS; n++) {
            const T* at = row_of_x + n * 8 * INPUTS + turn * STRIDE + step * STEP;
            column[n] = load_x_pack(at, turn < TURNS && inside(turn, step) && g + n * 8 < ROWS);
        }
    };
    // x of all steps if it stays in registers, otherwise of the current step
    XPack column[KEPT ? RUN : 1][COLUMNS];
    if constexpr (KEPT) {
#pragma unroll
        for (u32 step = 0; step < RUN; step++) load_x(0, step, column[step]);
    }
    for (u32 first = range.first; first < range.end; first += COUNT) {
        float c[TILES][COLUMNS][4] = {};
        bool is_last = first + COUNT >= range.end;
        if constexpr (X_AHEAD) load_x(0, 0, column[0]);
        float scale[TILES / TOGETHER];
#pragma unroll
        for (u32 i = 0; i < TILES / TOGETHER; i++) {
            scale[i] = scales.of(first + i * 16 * TOGETHER + threadIdx.x % (16 * TOGETHER), range.end);
        }
#pragma unroll 1
        for (u32 turn = 0; turn < TURNS; turn++) {
            // all remaining weights of this block are in the ring
            if (is_last && turn == LAST_TURN) next_product.prefetch(blockIdx.x, gridDim.x, WARPS);
#pragma unroll
            for (u32 step = 0; step < RUN; step++) {
                XPack next[COLUMNS];
                if constexpr (X_AHEAD) load_x(turn + (step + 1) / RUN, (step + 1) % RUN, next);
                if constexpr (!KEPT && !X_AHEAD) load_x(turn, step, column[0]);
#pragma unroll
                for (u32 tile = 0; tile < TILES; tile++) {
                    Pack weights[2];
                    ring.take(step * TILES + tile, weights);
                    ask(step * TILES + tile);
                    mma_weights(c[tile], weights[0], weights[1], column[KEPT ? step : 0]);
                }
                if constexpr (X_AHEAD) {
#pragma unroll
                    for (u32 n = 0; n < COLUMNS; n++) column[0][n] = next[n];
                }
            }
        }
#pragma unroll
        for (u32 from = 0; from < TILES; from += TOGETHER) {
#pragma unroll
            for (u32 tile = 0; tile < TOGETHER; tile++) {
#pragma unroll
                for (u32 i = 0; i < COLUMNS * 4; i++) {
                    u32 row = i / 4 * 8 + 2 * t + i % 2, output = tile * 16 + g + i % 4 / 2 * 8;
                    float sum = c[from + tile][i / 4][i % 4];
                    if (row < ROWS) partial[0].sums[warp_index()][row * 16 * TOGETHER + output] = sum;
                }
            }
            finish_round(partial[0], scale[from / TOGETHER], out, first + from * 16, range.end, outputs);
        }
    }
    ring.end();
}

#else

static_assert(sizeof(W) == sizeof(T), "weights of another format go through tensor cores");

// One load: a pack, or a single element if rows are not 16-byte aligned.
constexpr bool WHOLE_PACKS = INPUTS > 0 && INPUTS % PACK == 0;

template <bool PACKS> struct Load {
    static constexpr u32 NUMBERS = PACK;
    Pack pack;
    DEVICE void set(const Pack& from) { pack = from; }
    DEVICE void load(const T*, bool) {} // packs arrive through `set`
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
    DEVICE void set(const Pack&) {} // no ring in this case
    DEVICE void load(const T* at, bool valid) { x = valid ? to_float(*at) : 0.0f; }
    DEVICE float number(u32) const { return x; }
};

using Loaded = Load<WHOLE_PACKS>;

// Parts of a row, each UNIT_PACKS loads per thread wide; 0: known only at launch.
constexpr u32 PART = THREADS * UNIT_PACKS * Loaded::NUMBERS;
constexpr u32 PARTS = INPUTS > 0 ? (INPUTS + PART - 1) / PART : 0;
// True if every load of every part is inside the row.
constexpr bool EXACT = INPUTS > 0 && INPUTS % PART == 0;
// True if a thread's slice of x stays in registers.
constexpr bool KEPT = PARTS == 1 && WHOLE_PACKS && ROWS * UNIT_PACKS <= 8;
// Outputs of a unit processed at a time: if x is re-read, one read serves all of them.
constexpr u32 GRAIN = KEPT ? 1 : UNIT_ROWS;

// Each thread's sums for UNIT_ROWS outputs x ROWS rows, padded to a power of two.
constexpr u32 SUMS = UNIT_ROWS * ROWS;
constexpr u32 PADDED = SUMS <= 1 ? 1 : SUMS <= 2 ? 2 : SUMS <= 4 ? 4 : SUMS <= 8 ? 8 : SUMS <= 16 ? 16 : 32;
static_assert(SUMS <= 32, "a unit's sums are at most one a lane");
// Outputs between two barriers (a round).
constexpr u32 COUNT = (128 / SUMS > 0 ? 128 / SUMS : 1) * UNIT_ROWS;

// Sums each of PADDED values over the lanes of a warp; lane l gets value l / (32 / PADDED). In each exchange a lane
// gives away the half of its values that its partner keeps: about PADDED + 4 shuffles in total.
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

template <class Out>
DEVICE void matvec_any(const T* x, const W* w, Out* out, u32 inputs, u32 outputs, const NextProduct& next_product) {
    if (INPUTS > 0) inputs = INPUTS;
    const u32 parts = PARTS > 0 ? PARTS : (inputs + PART - 1) / PART;
    SHARED(Partial<COUNT>, partial, 1);
    DYNAMIC_SHARED(Pack, memory);
    const Range range = outputs_of_block(outputs);

    // column of a load of this thread
    auto column = [&](u32 part, u32 i) {
        return ((part * UNIT_PACKS + i) * THREADS + threadIdx.x) * Loaded::NUMBERS;
    };
    auto inside = [&](u32 part, u32 i) { return EXACT || column(part, i) < inputs; };
    // next unit to load: UNIT_ROWS outputs starting at `ask_first`, part `ask_part`
    u32 ask_first = range.first, ask_part = 0;
    const W* row = w + u64(range.first) * inputs + column(0, 0);
    auto place = [&](u32 j, u32 i) { return row + j * u64(inputs) + column(ask_part, i) - column(0, 0); };
    auto valid = [&](u32 j, u32 i) { return ask_first + j < range.end && inside(ask_part, i); };
    auto next = [&](u32 j) {
        if (j + 1 == UNIT_ROWS && ++ask_part == parts) {
            ask_part = 0;
            ask_first += UNIT_ROWS;
            row += UNIT_ROWS * u64(inputs);
        }
    };
    // ring group: this thread's packs of row j of that unit
    Ring<UNIT_PACKS, UNIT_ROWS> ring(memory);
    auto ask = [&](u32 j) {
#pragma unroll
        for (u32 i = 0; i < UNIT_PACKS; i++) ring.ask(j, i, place(j, i), valid(j, i));
        ring.asked(j);
        next(j);
    };
    auto take = [&](u32 j, Loaded (&weights)[UNIT_PACKS]) {
        if constexpr (WHOLE_PACKS) {
            Pack packs[UNIT_PACKS];
            ring.take(j, packs);
            ask(j);
#pragma unroll
            for (u32 i = 0; i < UNIT_PACKS; i++) weights[i].set(packs[i]);
        } else {
#pragma unroll
            for (u32 i = 0; i < UNIT_PACKS; i++) weights[i].load(place(j, i), valid(j, i));
            next(j);
        }
    };
    if constexpr (WHOLE_PACKS) {
#pragma unroll
        for (u32 slot = 0; slot < SLOTS; slot++) ask(slot % UNIT_ROWS);
    }
    if (PARTS == 1) prefetch_after(w, range, SLOTS, inputs);
    let_next_start();
    wait_for_previous();

    Loaded kept[KEPT ? ROWS : 1][UNIT_PACKS];
    auto load_x = [&](u32 r, u32 part, u32 i, Loaded& loaded) {
        if constexpr (WHOLE_PACKS) {
            loaded.set(load_shared(x + r * INPUTS + column(part, i), inside(part, i)));
        } else {
            loaded.load(x + r * u64(inputs) + column(part, i), inside(part, i));
        }
    };
    if constexpr (KEPT) {
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
#pragma unroll
            for (u32 i = 0; i < UNIT_PACKS; i++) load_x(r, 0, i, kept[r][i]);
        }
    }
    float sums[PADDED] = {};
    // current part, and first output of the current round
    u32 part = 0, round_first = range.first;
    // first unit at which the ring holds all remaining weights of this block
    const u32 length = range.end - range.first;
    const u32 last_asked = range.first + (length > SLOTS ? (length - SLOTS + UNIT_ROWS - 1) / UNIT_ROWS * UNIT_ROWS : 0);
    for (u32 first = range.first; first < range.end;) {
        if (first == last_asked && part == 0) next_product.prefetch(blockIdx.x, gridDim.x, WARPS);
#pragma unroll
        for (u32 from = 0; from < UNIT_ROWS; from += GRAIN) {
            Loaded weights[GRAIN][UNIT_PACKS];
#pragma unroll
            for (u32 j = 0; j < GRAIN; j++) take(from + j, weights[j]);
#pragma unroll
            for (u32 i = 0; i < UNIT_PACKS; i++) {
                Loaded loaded[KEPT ? 1 : ROWS];
                if constexpr (!KEPT) {
#pragma unroll
                    for (u32 r = 0; r < ROWS; r++) load_x(r, part, i, loaded[r]);
                }
#pragma unroll
                for (u32 n = 0; n < Loaded::NUMBERS; n++) {
#pragma unroll
                    for (u32 j = 0; j < GRAIN; j++) {
                        float weight = weights[j][i].number(n);
#pragma unroll
                        for (u32 r = 0; r < ROWS; r++) {
                            float activation = KEPT ? kept[KEPT ? r : 0][i].number(n) : loaded[KEPT ? 0 : r].number(n);
                            float& sum = sums[(from + j) * ROWS + r];
                            sum = fmaf(activation, weight, sum);
                        }
                    }
                }
            }
        }
        if (++part < parts) continue;
        part = 0;
        float sum = sums_over_lanes<WARP / 2>(sums);
#pragma unroll
        for (u32 i = 0; i < PADDED; i++) sums[i] = 0.0f;
        u32 index = lane_index() / (WARP / PADDED);
        if (lane_index() % (WARP / PADDED) == 0 && index < SUMS) {
            u32 output = first - round_first + index / ROWS;
            partial[0].sums[warp_index()][index % ROWS * COUNT + output] = sum;
        }
        first += UNIT_ROWS;
        if (first - round_first == COUNT || first >= range.end) {
            finish_round(partial[0], 1.0f, out, round_first, range.end, outputs);
            round_first = first;
        }
    }
    ring.end();
}

#endif

// Grid: any number of blocks of THREADS threads, with SLOTS x (TILES > 0 ? 2 : UNIT_PACKS) x THREADS packs of shared
// memory (none if INPUTS is not a multiple of a pack). x [ROWS][inputs], w [outputs][inputs], out [ROWS][outputs]; rows
// are 16-byte aligned if INPUTS is a multiple of a pack.
BOUNDED_KERNEL(matvec, THREADS, BLOCKS, const T* x, const W* w, T* out, u32 inputs, u32 outputs AHEAD_PARAMETERS) {
    SAY_WHEN();
    matvec_any(x, w, out, inputs, outputs, NEXT_PRODUCT);
}

// As `matvec` with f32 results, for logits.
BOUNDED_KERNEL(matvec_logits, THREADS, BLOCKS, const T* x, const W* w, float* out, u32 inputs,
               u32 outputs AHEAD_PARAMETERS) {
    SAY_WHEN();
    matvec_any(x, w, out, inputs, outputs, NEXT_PRODUCT);
}
