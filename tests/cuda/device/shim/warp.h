// Warp collectives of CUDA, and the tensor-core product as one.
#pragma once

#include "fibers.h"

namespace shim {

inline float word_to_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

// A value and the lane it is wanted from.
template <class V> struct Shuffled {
    V value;
    unsigned source;
};

template <class V> V shuffle(const char* what, unsigned mask, V value, unsigned source) {
    static_assert(sizeof(V) == 4 || sizeof(V) == 8, "shuffles take 32 or 64 bits");
    Shuffled<V> in{value, source};
    V out{};
    collective(mask, what, &in, &out, [](Lanes& lanes) SHIM_UNSEEN {
        for (unsigned i = 0; i < 32; i++) {
            if (!(lanes.mask >> i & 1)) continue;
            unsigned source = static_cast<const Shuffled<V>*>(lanes.in[i])->source;
            if (!(lanes.mask >> source & 1)) {
                fail("a shuffle reads lane %u, which is not in its mask %#x", source, lanes.mask);
            }
            *static_cast<V*>(lanes.out[i]) = static_cast<const Shuffled<V>*>(lanes.in[source])->value;
        }
    });
    return out;
}

inline unsigned lane_now() { return current->linear % 32; }

inline unsigned ballot(const char* what, unsigned mask, bool vote) {
    unsigned out = 0;
    collective(mask, what, &vote, &out, [](Lanes& lanes) SHIM_UNSEEN {
        unsigned votes = 0;
        for (unsigned i = 0; i < 32; i++) {
            if ((lanes.mask >> i & 1) && *static_cast<const bool*>(lanes.in[i])) votes |= 1u << i;
        }
        for (unsigned i = 0; i < 32; i++) {
            if (lanes.mask >> i & 1) *static_cast<unsigned*>(lanes.out[i]) = votes;
        }
    });
    return out;
}

// What a lane holds of the operands of an m16n8k16 product (the fragments of the PTX manual).
struct Fragments {
    uint32_t a[4], b[2];
    float c[4];
};

// Of which number of a product a lane holds the i-th.
struct Place {
    unsigned row, column;
};

// d = a b + c over a warp: a is 16x16, b 16x8, 16-bit numbers widened by `widen`; sums in f32, k ascending.
template <float (*WIDEN)(uint16_t)>
void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4]) {
    Fragments in;
    memcpy(in.a, a, sizeof a);
    memcpy(in.b, b, sizeof b);
    memcpy(in.c, c, sizeof c);
    float out[4];
    collective(0xffffffffu, "mma", &in, out, [](Lanes& lanes) SHIM_UNSEEN {
        // a row of eight numbers, all columns at once
        typedef float Row __attribute__((vector_size(32)));
        static float A[16][16];
        static Row B[16], sums[16];
        auto place = [](unsigned lane, unsigned i) { return Place{lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2}; };
        for (unsigned lane = 0; lane < 32; lane++) {
            const Fragments& f = *static_cast<const Fragments*>(lanes.in[lane]);
            unsigned group = lane / 4, pair = lane % 4 * 2;
            for (unsigned i = 0; i < 4; i++) {
                for (unsigned half = 0; half < 2; half++) {
                    unsigned row = group + i % 2 * 8, k = pair + half + i / 2 * 8;
                    A[row][k] = WIDEN(uint16_t(f.a[i] >> 16 * half));
                }
            }
            for (unsigned i = 0; i < 2; i++) {
                for (unsigned half = 0; half < 2; half++) {
                    B[pair + half + i * 8][group] = WIDEN(uint16_t(f.b[i] >> 16 * half));
                }
            }
            for (unsigned i = 0; i < 4; i++) sums[place(lane, i).row][place(lane, i).column] = f.c[i];
        }
        for (unsigned row = 0; row < 16; row++) {
            for (unsigned k = 0; k < 16; k++) sums[row] += A[row][k] * B[k];
        }
        for (unsigned lane = 0; lane < 32; lane++) {
            float* out = static_cast<float*>(lanes.out[lane]);
            for (unsigned i = 0; i < 4; i++) out[i] = sums[place(lane, i).row][place(lane, i).column];
        }
    });
    memcpy(d, out, sizeof out);
}

} // namespace shim

#define SHIM_SHUFFLE_SOURCE(source) (((source) & (width - 1)) | (shim::lane_now() & ~(width - 1)))

template <class V> V __shfl_sync(unsigned mask, V value, int source, unsigned width = 32) {
    return shim::shuffle("__shfl_sync", mask, value, SHIM_SHUFFLE_SOURCE(unsigned(source)));
}
template <class V> V __shfl_xor_sync(unsigned mask, V value, int lanes, unsigned width = 32) {
    unsigned source = shim::lane_now() ^ unsigned(lanes);
    // beyond the lane's own group: its own value
    if (source / width > shim::lane_now() / width) source = shim::lane_now();
    return shim::shuffle("__shfl_xor_sync", mask, value, source);
}
template <class V> V __shfl_up_sync(unsigned mask, V value, unsigned by, unsigned width = 32) {
    unsigned lane = shim::lane_now();
    return shim::shuffle("__shfl_up_sync", mask, value, lane % width < by ? lane : lane - by);
}
template <class V> V __shfl_down_sync(unsigned mask, V value, unsigned by, unsigned width = 32) {
    unsigned lane = shim::lane_now();
    return shim::shuffle("__shfl_down_sync", mask, value, lane % width + by >= width ? lane : lane + by);
}
#undef SHIM_SHUFFLE_SOURCE

inline unsigned __ballot_sync(unsigned mask, int vote) { return shim::ballot("__ballot_sync", mask, vote); }
inline int __any_sync(unsigned mask, int vote) { return shim::ballot("__any_sync", mask, vote) != 0; }
inline int __all_sync(unsigned mask, int vote) { return shim::ballot("__all_sync", mask, vote) == mask; }
inline void __syncwarp(unsigned mask = 0xffffffffu) { shim::ballot("__syncwarp", mask, true); }
