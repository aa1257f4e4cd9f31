// Helpers of the single-pass (online) softmax. Scores are in units of log 2 (scaled by LOG2_E), so that weights are
// powers of 2 relative to the running maximum.
#pragma once

#include "block.cuh"

// WINDOW: a query sees only the last WINDOW tokens; 0 for all. SINKS: each head has an extra logit in the denominator.
#ifndef WINDOW
#define WINDOW 0
#endif
#ifdef SINKS
#define SINK_PARAMETER , const T *sinks
#else
#define SINK_PARAMETER
#endif

constexpr float LOG2_E = 1.4426950408889634f;

// Score of a masked key; its weight is 0.
DEVICE float unseen() { return negative_infinity(); }

// 2^x in one instruction; relative error 2^-22, results below the normal range flush to 0.
DEVICE float power_of_2(float x) {
#ifndef SHIM
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

// Weight of a score relative to the maximum; 0 for a masked key, also if every key is masked.
DEVICE float weight_of(float score, float largest) {
    return score == unseen() ? 0.0f : power_of_2(score - largest);
}
