// MLP activation functions, in f32.
#pragma once

#include "number.cuh"

// silu(gate) x up.
DEVICE float silu_times(float gate, float up) {
#if defined(NUMBER_F32)
    return gate / (1.0f + expf(-gate)) * up;
#else
    // the error of __expf is 2^-21 for the gates that matter; rounding to 16 bits costs 2^-9 (bf16) or 2^-12 (f16)
    return gate / (1.0f + __expf(-gate)) * up;
#endif
}

// gpt-oss activation. Comparisons instead of fminf, which would drop NaN.
DEVICE float clamped_times(float gate, float up) {
    gate = gate > 7.0f ? 7.0f : gate;
    up = up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up;
    return (up + 1.0f) * gate / (1.0f + expf(-1.702f * gate));
}
