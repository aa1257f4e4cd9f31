// What joins a rank's own residual in `delayed`: the own part of a module at once, the others' later.

#pragma once

#include "block.cuh"

// x + own * scale + (sum - part); `sum` and `part` may both be null.
struct Join {
    const T *x, *own, *sum, *part;
    float scale;

    DEVICE float number(u64 at) const {
        float y = to_float(x[at]) + to_float(own[at]) * scale;
        return sum ? y + (to_float(sum[at]) - to_float(part[at])) : y;
    }

    DEVICE Pack packed(u64 at) const {
        float y[PACK], o[PACK];
        unpack(load_pack(x + at * PACK), y);
        unpack(load_pack(own + at * PACK), o);
#pragma unroll
        for (u32 i = 0; i < PACK; i++) y[i] += o[i] * scale;
        if (sum) {
            float s[PACK], p[PACK];
            unpack(load_pack(sum + at * PACK), s);
            unpack(load_pack(part + at * PACK), p);
#pragma unroll
            for (u32 i = 0; i < PACK; i++) y[i] += s[i] - p[i];
        }
        return pack(y);
    }
};
