// W, the element type of weights in memory: T, or e4m3 with -DWEIGHTS_E4M3. e4m3 weights are followed by one f32 scale
// per output, starting at the next multiple of 16 bytes.
#pragma once

#include "e4m3.cuh"
#include "mma.cuh"
#include "stream.cuh"

#if defined(WEIGHTS_E4M3)
typedef u8 W;
#else
typedef T W;
#endif

// Weights per 16-byte pack: 4, 8 or 16.
constexpr u32 WEIGHTS = 16 / sizeof(W);

// Elements of x that match one pack of weights.
struct XPack {
    static constexpr u32 PACKS = WEIGHTS / PACK;
    Pack packs[PACKS];
};

DEVICE XPack load_x_pack(const T* at, bool valid) {
    XPack x;
#pragma unroll
    for (u32 i = 0; i < XPack::PACKS; i++) x.packs[i] = load_shared(at + i * PACK, valid);
    return x;
}

// Scales of the outputs; 1 unless the weights are e4m3.
struct Scales {
#if defined(WEIGHTS_E4M3)
    const float* scales;
    DEVICE Scales(const W* w, u32 inputs, u32 outputs)
        : scales(reinterpret_cast<const float*>(w + scales_at(u64(inputs) * outputs))) {}
    DEVICE float of(u32 output, u32 end) const { return output < end ? scales[output] : 0.0f; }
#else
    DEVICE Scales(const W*, u32, u32) {}
    DEVICE float of(u32, u32) const { return 1.0f; }
#endif
};

#if !defined(NUMBER_F32)

// c += a b for tiles of 8 rows of x, over the k in this lane's packs: weight rows g and g + 8, column g of x.
template <u32 COLUMNS>
DEVICE void mma_weights(float (&c)[COLUMNS][4], const Pack& upper, const Pack& lower, const XPack (&x)[COLUMNS]) {
#if defined(WEIGHTS_E4M3)
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        auto pair = [&](const Pack& weights, u32 shift) {
            float low, high;
            from_e4m3_pair(weights.words[i] >> shift, low, high);
            return to_number_pair(low, high);
        };
        u32 a[4] = {pair(upper, 0), pair(lower, 0), pair(upper, 16), pair(lower, 16)};
#pragma unroll
        for (u32 n = 0; n < COLUMNS; n++) {
            const u32(&words)[4] = x[n].packs[i / 2].words;
            u32 b[2] = {words[2 * (i % 2)], words[2 * (i % 2) + 1]};
            mma(c[n], a, b);
        }
    }
#else
#pragma unroll
    for (u32 n = 0; n < COLUMNS; n++) mma_packs(c[n], upper, lower, x[n].packs[0]);
#endif
}

#endif
