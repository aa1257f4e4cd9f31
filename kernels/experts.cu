// Mixture of experts: routing of rows to experts, and the MLPs of a rank's experts.
//
// Cost: the weights of each touched expert are read once from memory (2 or 1 bytes per element), regardless of its
// number of rows; rows beyond ROW_TILES x 8 read a tile of weights again, from L2. Experts without rows are not read.
//
// Method: `group_choices` lists the choices of each expert. Each block of `experts_up` or `experts_down` takes an equal
// share of the tiles (16 rows of weights) of all touched experts, sequentially, so that even a batch of one token,
// which touches top_k experts, fills all SMs. All warps of a block share a tile, split along the inputs (split-K) as in
// matvec.cu; packs arrive through a ring of SLOTS x 2 x THREADS x 16 bytes (64 KB with 4 slots and 512 threads). A tile
// of `experts_up` is 8 rows of gate and the same 8 of up, so the activation needs no kernel of its own. The results of
// each choice go to separate rows and are summed in the order of choices: no atomics, results independent of other
// rows.
//
// In prefill with many rows, cuBLASLt multiplies instead, expert by expert: `place_choices` assigns each choice a slot,
// contiguous per expert, `embed` gathers x by slot, and `activate_experts` runs between the two products. There the
// algorithm depends on the number of slots, so the rounding of a row can depend on the other rows.
//
// `experts_down` issues its first weight loads before `wait_for_previous`: the lists were written by the kernel before
// the previous one, which had ended when the previous one let this one start.
//
// Constants: INPUTS; ROW_TILES (tiles of 8 rows multiplied at a time); THREADS, BLOCKS, SLOTS as in matvec.cu. Without
// whole packs, and for f32: one warp per output, element by element (slow).
#include "activation.cuh"
#include "weight.cuh"

#ifndef INPUTS
#define INPUTS 64
#endif
#ifndef ROW_TILES
#define ROW_TILES 1
#endif
#ifndef THREADS
#define THREADS 512
#endif
#ifndef BLOCKS
#define BLOCKS 1
#endif
#ifndef SLOTS
#define SLOTS 4
#endif

#include "ring.cuh"

constexpr u32 WARPS = THREADS / WARP;
constexpr u32 ROWS = ROW_TILES * 8;
// Rows of weights per tile.
constexpr u32 TILE = 16;
// Maximum number of experts per rank.
constexpr u32 MOST_EXPERTS = 1024;

struct Choice {
    u32 expert;
    float weight;
};

// Order-preserving map of floats to unsigned integers, NaN above infinity.
DEVICE u32 place_of(float x) {
    u32 bits = __float_as_uint(x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Warp argmax of `count` places, the lowest index on ties; every lane gets it.
DEVICE u32 largest_of(const u32* places, u32 count) {
    u32 best = 0, at = count;
    for (u32 i = lane_index(); i < count; i += WARP) {
        if (at == count || places[i] > best) {
            best = places[i];
            at = i;
        }
    }
#pragma unroll
    for (u32 by = WARP / 2; by > 0; by /= 2) {
        u32 other = shuffle_xor(best, by), place = shuffle_xor(at, by);
        if (place < count && (at == count || other > best || (other == best && place < at))) {
            best = other;
            at = place;
        }
    }
    return at;
}

// Routing rule; see `Routing` of the plan.
struct Rule {
    u32 score;    // 0: softmax over all; 1: softmax over the chosen; 2: sigmoid
    u32 bias;     // 0: none; 1: added to logits; 2: added to scores for the selection only
    u32 renormalise;
    float scale;
    u32 groups, kept;
};

// Selects the `top_k` (at most 32) experts of a row with one warp. `scores`, `places`: `experts` shared words each.
DEVICE void choose(const float* logits, const T* bias, const Rule& rule, u32 experts, u32 top_k, float* scores, u32* places,
                   Choice* to) {
    float greatest = negative_infinity();
    for (u32 i = lane_index(); i < experts; i += WARP) {
        float x = logits[i] + (rule.bias == 1 ? to_float(bias[i]) : 0.0f);
        if (rule.score == 2) x = 1.0f / (1.0f + expf(-x));
        scores[i] = x;
        greatest = fmaxf(greatest, x);
    }
    if (rule.score == 0) {
        greatest = warp_max(greatest);
        float sum = 0.0f;
        for (u32 i = lane_index(); i < experts; i += WARP) {
            scores[i] = expf(scores[i] - greatest);
            sum += scores[i];
        }
        sum = warp_sum(sum);
        for (u32 i = lane_index(); i < experts; i += WARP) scores[i] /= sum;
    }
    for (u32 i = lane_index(); i < experts; i += WARP) {
        places[i] = place_of(scores[i] + (rule.bias == 2 ? to_float(bias[i]) : 0.0f));
    }
    __syncwarp();
    if (rule.kept < rule.groups) {
        const u32 each = experts / rule.groups;
        // lane l scores group l, so at most 32 groups
        u32 place = 0;
        if (lane_index() < rule.groups) {
            float first = negative_infinity(), second = negative_infinity();
            for (u32 i = lane_index() * each; i < (lane_index() + 1) * each; i++) {
                float x = scores[i] + (rule.bias == 2 ? to_float(bias[i]) : 0.0f);
                second = fmaxf(second, fminf(first, x));
                first = fmaxf(first, x);
            }
            // group score: the maximum with a softmax over all (DeepSeek-V2), otherwise the sum of the two largest
            place = place_of(each > 1 && rule.score != 0 ? first + second : first);
        }
        u32 kept = 0;
        for (u32 n = 0; n < rule.kept; n++) {
            u32 best = lane_index() < rule.groups && !(kept >> lane_index() & 1) ? place : 0, at = lane_index();
#pragma unroll
            for (u32 by = WARP / 2; by > 0; by /= 2) {
                u32 other = shuffle_xor(best, by), lane = shuffle_xor(at, by);
                if (other > best || (other == best && lane < at)) {
                    best = other;
                    at = lane;
                }
            }
            kept |= 1u << at;
        }
        for (u32 i = lane_index(); i < experts; i += WARP) {
            if (!(kept >> i / each & 1)) places[i] = 0;
        }
        __syncwarp();
    }
    // lane n holds the n-th choice
    u32 expert = 0;
    for (u32 n = 0; n < top_k; n++) {
        u32 at = largest_of(places, experts);
        if (lane_index() == n) expert = at;
        __syncwarp();
        if (lane_index() == 0) places[at] = 0;
        __syncwarp();
    }
    const bool chosen = lane_index() < top_k;
    float weight = chosen ? scores[expert] : 0.0f;
    if (rule.score == 1) {
        float largest = warp_max(chosen ? weight : negative_infinity());
        weight = chosen ? expf(weight - largest) : 0.0f;
        weight /= warp_sum(weight);
    } else if (rule.renormalise) {
        weight /= warp_sum(weight) + 1e-20f;
    }
    if (chosen) to[lane_index()] = Choice{expert, weight * rule.scale};
}

DEVICE u32* dynamic_words() {
    DYNAMIC_SHARED(u32, memory);
    return memory;
}

// Grid: any; one warp per row, with 8 x experts bytes of shared memory per warp. logits [rows][experts], bias [experts]
// or null, choices [rows][top_k], best first.
KERNEL(choose_experts, const float* logits, const T* bias, Choice* choices, u32 rows, u32 experts, u32 top_k, u32 score,
       u32 bias_kind, u32 renormalise, float scale, u32 groups, u32 kept) {
    SAY_WHEN();
    u32* const memory = dynamic_words();
    wait_for_previous();
    let_next_start();
    const u32 warps = blockDim.x / WARP;
    const Rule rule{score, bias_kind, renormalise, scale, groups, kept};
    u32* places = memory + warp_index() * 2 * experts;
    float* scores = reinterpret_cast<float*>(places + experts);
    for (u32 row = blockIdx.x * warps + warp_index(); row < rows; row += gridDim.x * warps) {
        choose(logits + u64(row) * experts, bias, rule, experts, top_k, scores, places, choices + u64(row) * top_k);
        __syncwarp();
    }
}

// Grid: any; one warp for each of `own` experts, starting at `first`. counts [own]; lists [own][rows]: indices of each
// expert's choices (row x top_k + n for the n-th choice of a row), ascending.
KERNEL(group_choices, const Choice* choices, u32* counts, u32* lists, u32 rows, u32 top_k, u32 first, u32 own) {
    SAY_WHEN();
    wait_for_previous();
    let_next_start();
    const u32 warps = blockDim.x / WARP, all = rows * top_k;
    for (u32 expert = blockIdx.x * warps + warp_index(); expert < own; expert += gridDim.x * warps) {
        u32 count = 0;
        u32* list = lists + u64(expert) * rows;
        for (u32 from = 0; from < all; from += WARP) {
            u32 i = from + lane_index();
            bool is_own = i < all && choices[i].expert == first + expert;
            u32 lanes = __ballot_sync(ALL_LANES, is_own);
            if (is_own) list[count + __popc(lanes & ((1u << lane_index()) - 1))] = i;
            count += __popc(lanes);
        }
        if (lane_index() == 0) counts[expert] = count;
    }
}

// Slots of an expert are its rows rounded up to a multiple of this, so that products have few distinct shapes.
constexpr u32 SLOT_ROWS = 64;

DEVICE u32 slots_of(u32 count) { return (count + SLOT_ROWS - 1) / SLOT_ROWS * SLOT_ROWS; }

// Grid (own): one block per expert, whose slots follow those of the preceding experts. rows_of, experts_of [all slots]:
// row of x and expert of each slot; padding slots have row 0. slots [rows x top_k]: slot of each choice of own experts.
KERNEL(place_choices, const u32* counts, const u32* lists, u32* rows_of, u32* experts_of, u32* slots, u32 rows, u32 top_k) {
    SAY_WHEN();
    wait_for_previous();
    let_next_start();
    const u32 expert = blockIdx.x, count = counts[expert];
    u32 first = 0;
    for (u32 i = lane_index(); i < expert; i += WARP) first += slots_of(counts[i]);
#pragma unroll
    for (u32 by = WARP / 2; by > 0; by /= 2) first += shuffle_xor(first, by);
    for (u32 i = threadIdx.x; i < slots_of(count); i += blockDim.x) {
        const u32 choice = i < count ? lists[u64(expert) * rows + i] : 0;
        rows_of[first + i] = choice / top_k;
        experts_of[first + i] = expert;
        if (i < count) slots[choice] = first + i;
    }
}

// silu(gate) x up, or the gpt-oss activation if `clamped`, for an output of an expert. bias [own][2 width] or null.
DEVICE T activated(u32 expert, u32 output, float gate, float up, const T* bias, u32 width, u32 clamped) {
    if (bias != nullptr) {
        gate += to_float(bias[u64(expert) * 2 * width + output]);
        up += to_float(bias[(u64(expert) * 2 + 1) * width + output]);
    }
    return to_number(clamped ? clamped_times(gate, up) : silu_times(gate, up));
}

// Grid (slots, parts): one thread per element. sums [slots][2 width]: gate, then up; active [slots][width].
KERNEL(activate_experts, const float* sums, const u32* experts_of, const T* bias, T* active, u32 width, u32 clamped) {
    SAY_WHEN();
    wait_for_previous();
    let_next_start();
    const u32 expert = experts_of[blockIdx.x];
    const float* gates = sums + u64(blockIdx.x) * 2 * width;
    for (u32 i = blockIdx.y * blockDim.x + threadIdx.x; i < width; i += gridDim.y * blockDim.x) {
        active[u64(blockIdx.x) * width + i] = activated(expert, i, gates[i], gates[width + i], bias, width, clamped);
    }
}

// Inputs (other than weights) and shape of a product over all touched experts.
struct Operands {
    const T* x;
    const u32 *counts, *lists;
    u32 own, rows;   // experts of the rank; capacity of each list
    u32 outputs;     // per expert
    u32 shared_by;   // choices that share a row of x
};

// Experts with at least one row.
struct Touched {
    u32 experts[MOST_EXPERTS];
    u32 counts[MOST_EXPERTS];
    u32 count;
};

DEVICE void find_touched(Touched& touched, const u32* counts, u32 own) {
    if (warp_index() == 0) {
        u32 found = 0;
        for (u32 from = 0; from < own; from += WARP) {
            u32 expert = from + lane_index(), count = expert < own ? counts[expert] : 0;
            u32 lanes = __ballot_sync(ALL_LANES, count > 0);
            if (count > 0) {
                u32 at = found + __popc(lanes & ((1u << lane_index()) - 1));
                touched.experts[at] = expert;
                touched.counts[at] = count;
            }
            found += __popc(lanes);
        }
        if (lane_index() == 0) touched.count = found;
    }
    __syncthreads();
}

// Partial sums of a tile per warp: [rows of x][rows of weights].
struct Sums {
    float of[WARPS][ROWS * TILE];
};

// Multiplies the rows of all touched experts. A tile holds rows `first + i` of an expert's weights for i below
// TILE / 2, and rows `second` further for the others. PAIR: the other half are the up projections of the same outputs.
// `store` receives the expert, output, choice and its sum (two sums if PAIR). EARLY: loads weights before
// `wait_for_previous`.
template <bool PAIR, bool EARLY, class Store> DEVICE void multiply(const Operands& of, const W* w, const Store& store) {
    SHARED(Touched, touched, 1);
    SHARED(Sums, sums, 1);
    DYNAMIC_SHARED(Pack, memory);
    constexpr u32 EACH = PAIR ? TILE / 2 : TILE; // outputs per tile
    const u32 height = PAIR ? 2 * of.outputs : of.outputs, second = PAIR ? of.outputs : TILE / 2;
    if (!EARLY) wait_for_previous();
    find_touched(touched[0], of.counts, of.own);
    const u32 tiles = (of.outputs + EACH - 1) / EACH, all = touched[0].count * tiles;
    const u32 share = all / gridDim.x, longer = all % gridDim.x;
    const u32 first_tile = blockIdx.x * share + min(blockIdx.x, longer), end = first_tile + share + (blockIdx.x < longer);
    const Scales scales(w, INPUTS, of.own * height);
    // weight row of row i of a tile, and whether it exists
    auto weight_row = [&](u32 first, u32 i) { return first + i % (TILE / 2) + i / (TILE / 2) * second; };
    auto exists = [&](u32 first, u32 i) { return first + i % (TILE / 2) + (PAIR ? 0 : i / (TILE / 2) * second) < of.outputs; };

#if defined(NUMBER_F32)
    constexpr bool BY_PACKS = false;
#else
    constexpr bool BY_PACKS = INPUTS % WEIGHTS == 0;
#endif
    // a chunk is up to ROWS rows of one expert
    auto finish = [&](u32 at, u32 tile, u32 chunk, u32 warps) {
        const u32 expert = touched[0].experts[at], first = tile * EACH;
        const u32 rows = min(ROWS, touched[0].counts[at] - chunk * ROWS);
        __syncthreads();
        for (u32 i = threadIdx.x; i < rows * EACH; i += THREADS) {
            const u32 row = i / EACH, output = i % EACH;
            auto sum_of = [&](u32 n) {
                float sum = sums[0].of[0][row * TILE + n];
                for (u32 warp = 1; warp < warps; warp++) sum += sums[0].of[warp][row * TILE + n];
                return sum * scales.of(expert * height + weight_row(first, n), of.own * height);
            };
            if (!exists(first, output)) continue;
            const u32 choice = of.lists[u64(expert) * of.rows + chunk * ROWS + row];
            store(expert, first + output, choice, sum_of(output), PAIR ? sum_of(output + EACH) : 0.0f);
        }
        __syncthreads();
    };
    auto row_of_x = [&](u32 at, u32 row) {
        u32 choice = of.lists[u64(touched[0].experts[at]) * of.rows + row];
        return of.x + u64(choice / of.shared_by) * INPUTS;
    };

    if constexpr (BY_PACKS) {
#if !defined(NUMBER_F32)
        constexpr u32 STEP = 4 * WEIGHTS, STRIDE = WARPS * STEP, TURNS = (INPUTS + STRIDE - 1) / STRIDE;
        const u32 g = lane_index() / 4, t = lane_index() % 4;
        const u32 own = warp_index() * STEP + t * WEIGHTS;
        auto inside = [&](u32 turn) { return INPUTS % STRIDE == 0 || turn * STRIDE + own < INPUTS; };
        // ring group: this lane's packs of rows g and g + 8 of a tile, in one turn
        Ring<2, 1> ring(memory);
        u32 ask_tile = first_tile, ask_chunk = 0, ask_turn = 0, ask_chunks = 0;
        const W *upper = w, *lower = w;
        bool has_upper = false, has_lower = false;
        auto begin = [&] {
            has_upper = has_lower = false;
            if (ask_tile >= end) return;
            const u32 at = ask_tile / tiles, first = ask_tile % tiles * EACH;
            const W* expert = w + u64(touched[0].experts[at]) * height * INPUTS + own;
            has_upper = exists(first, g);
            has_lower = exists(first, g + TILE / 2);
            upper = expert + u64(weight_row(first, g)) * INPUTS;
            lower = expert + u64(weight_row(first, g + TILE / 2)) * INPUTS;
            ask_chunks = (touched[0].counts[at] + ROWS - 1) / ROWS;
        };
        begin();
        auto ask = [&] {
            const bool valid = inside(ask_turn);
            ring.ask(0, 0, has_upper && valid ? upper + ask_turn * STRIDE : w, has_upper && valid);
            ring.ask(0, 1, has_lower && valid ? lower + ask_turn * STRIDE : w, has_lower && valid);
            ring.asked(0);
            if (++ask_turn < TURNS) return;
            ask_turn = 0;
            if (++ask_chunk < ask_chunks) return;
            ask_chunk = 0;
            ask_tile++;
            begin();
        };
#pragma unroll 1
        for (u32 slot = 0; slot < SLOTS; slot++) ask();
        if (EARLY) wait_for_previous();
        let_next_start();
#pragma unroll 1
        for (u32 n = first_tile; n < end; n++) {
            const u32 at = n / tiles, count = touched[0].counts[at];
#pragma unroll 1
            for (u32 chunk = 0; chunk * ROWS < count; chunk++) {
                const T* rows[ROW_TILES];
                bool valid[ROW_TILES];
#pragma unroll
                for (u32 column = 0; column < ROW_TILES; column++) {
                    const u32 row = chunk * ROWS + column * 8 + g;
                    valid[column] = row < count;
                    rows[column] = (valid[column] ? row_of_x(at, row) : of.x) + own;
                }
                float c[ROW_TILES][4] = {};
#pragma unroll 1
                for (u32 turn = 0; turn < TURNS; turn++) {
                    XPack x[ROW_TILES];
#pragma unroll
                    for (u32 column = 0; column < ROW_TILES; column++) {
                        x[column] = load_x_pack(rows[column] + turn * STRIDE, valid[column] && inside(turn));
                    }
                    Pack weights[2];
                    ring.take(0, weights);
                    ask();
                    mma_weights(c, weights[0], weights[1], x);
                }
#pragma unroll
                for (u32 i = 0; i < ROW_TILES * 4; i++) {
                    const u32 row = i / 4 * 8 + 2 * t + i % 2, output = g + i % 4 / 2 * 8;
                    sums[0].of[warp_index()][row * TILE + output] = c[i / 4][i % 4];
                }
                finish(at, n % tiles, chunk, WARPS);
            }
        }
        ring.end();
#endif
    } else {
        (void)memory;
        if (EARLY) wait_for_previous();
        let_next_start();
        for (u32 n = first_tile; n < end; n++) {
            const u32 at = n / tiles, count = touched[0].counts[at], first = n % tiles * EACH;
            const W* expert = w + u64(touched[0].experts[at]) * height * INPUTS;
            for (u32 chunk = 0; chunk * ROWS < count; chunk++) {
                for (u32 i = warp_index(); i < ROWS * TILE; i += WARPS) {
                    const u32 row = chunk * ROWS + i / TILE;
                    if (row >= count || !exists(first, i % TILE)) continue;
                    const W* weights = expert + u64(weight_row(first, i % TILE)) * INPUTS;
                    const T* x = row_of_x(at, row);
                    float sum = 0.0f;
                    for (u32 k = lane_index(); k < INPUTS; k += WARP) {
#if defined(WEIGHTS_E4M3)
                        sum = fmaf(to_float(x[k]), from_e4m3(weights[k]), sum);
#else
                        sum = fmaf(to_float(x[k]), to_float(weights[k]), sum);
#endif
                    }
                    sum = warp_sum(sum);
                    if (lane_index() == 0) sums[0].of[0][i] = sum;
                }
                finish(at, n % tiles, chunk, 1);
            }
        }
    }
}

// Grid: any number of blocks of THREADS threads, with SLOTS x 2 x THREADS packs of shared memory (none without whole
// packs). x [rows][INPUTS]; w [own][2 width][INPUTS]: gate, then up; bias [own][2 width] or null; active
// [rows x top_k][width]: silu(gate) x up of each choice, or the gpt-oss activation if `clamped`.
BOUNDED_KERNEL(experts_up, THREADS, BLOCKS, const T* x, const W* w, const T* bias, const u32* counts, const u32* lists,
               T* active, u32 own, u32 rows, u32 width, u32 top_k, u32 clamped) {
    SAY_WHEN();
    multiply<true, false>(Operands{x, counts, lists, own, rows, width, top_k}, w,
                   [&](u32 expert, u32 output, u32 choice, float gate, float up) {
                       active[u64(choice) * width + output] =
                           activated(expert, output, gate, up, bias, width, clamped);
                   });
}

// Grid as `experts_up`. active [rows x top_k][INPUTS]; w [own][hidden][INPUTS]; bias [own][hidden] or null; y
// [rows x top_k][hidden].
BOUNDED_KERNEL(experts_down, THREADS, BLOCKS, const T* active, const W* w, const T* bias, const u32* counts, const u32* lists,
               float* y, u32 own, u32 rows, u32 hidden) {
    SAY_WHEN();
    multiply<false, true>(Operands{active, counts, lists, own, rows, hidden, 1}, w,
                    [&](u32 expert, u32 output, u32 choice, float sum, float) {
                        if (bias != nullptr) sum += to_float(bias[u64(expert) * hidden + output]);
                        y[u64(choice) * hidden + output] = sum;
                    });
}

// out[row] = sum over the row's choices of this rank's experts of weight x (y + bias). A choice's row of y is its slot,
// or the choice itself without `slots`; bias [own][hidden] or null. Grid (rows, parts): one thread per element.
KERNEL(sum_experts, const float* y, const u32* slots, const T* bias, const Choice* choices, T* out, u32 top_k, u32 first,
       u32 own, u32 hidden) {
    SAY_WHEN();
    wait_for_previous();
    let_next_start();
    const Choice* mine = choices + u64(blockIdx.x) * top_k;
    for (u32 i = blockIdx.y * blockDim.x + threadIdx.x; i < hidden; i += gridDim.y * blockDim.x) {
        float sum = 0.0f;
        for (u32 n = 0; n < top_k; n++) {
            const u32 expert = mine[n].expert - first, choice = blockIdx.x * top_k + n;
            if (expert >= own) continue;
            float x = y[u64(slots != nullptr ? slots[choice] : choice) * hidden + i];
            if (bias != nullptr) x += to_float(bias[u64(expert) * hidden + i]);
            sum = fmaf(mine[n].weight, x, sum);
        }
        out[u64(blockIdx.x) * hidden + i] = to_number(sum);
    }
}
