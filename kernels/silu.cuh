// The gated activation: by a kernel of its own, and by the product that reads its result, which rounds as that does.
#pragma once

#include "block.cuh"

DEVICE float silu_times(float gate, float up) {
#if defined(NUMBER_F32)
    return gate / (1.0f + expf(-gate)) * up;
#else
    // the fast exponential is off by 2^-21 for the gates that matter; 16 bits keep 2^-9 or 2^-12
    return gate / (1.0f + __expf(-gate)) * up;
#endif
}

DEVICE Pack silu_times(const Pack& gates, const Pack& ups) {
    float gate[PACK], up[PACK];
    unpack(gates, gate);
    unpack(ups, up);
#pragma unroll
    for (u32 i = 0; i < PACK; i++) gate[i] = silu_times(gate[i], up[i]);
    return pack(gate);
}
