// Update of a rank's own residual. `delayed` adds the rank's own part of a module at once and the other ranks' parts
// later. `partial` adds the sum over ranks for the first channels and the own part for the others.

#pragma once

#include "block.cuh"

// x + own * scale + (sum - part). Without `part`, `sum` holds only the first `shared` columns of each row: x + sum
// there, x + own * scale elsewhere. `sum` and `part` may both be null.
struct Join {
    const T *x, *own, *sum, *part;
    float scale;
    u32 columns, shared;

    DEVICE float number(u64 at) const {
        float y = to_float(x[at]);
        if (sum && !part) {
            u64 row = at / columns, column = at % columns;
            return y + (column < shared ? to_float(sum[row * shared + column]) : to_float(own[at]) * scale);
        }
        y += to_float(own[at]) * scale;
        return sum ? y + (to_float(sum[at]) - to_float(part[at])) : y;
    }

    DEVICE Pack packed(u64 at) const {
        float y[PACK], o[PACK];
        u64 first = at * PACK, row = 0, column = 0;
        bool channels = sum && !part;
        if (channels) {
            row = first / columns, column = first % columns;
            // a pack may straddle `shared` or the end of a row
            if (!packs_fit(shared) || !packs_fit(columns)) {
                for (u32 i = 0; i < PACK; i++) y[i] = number(first + i);
                return pack(y);
            }
        }
        unpack(load_pack(x + first), y);
        if (channels && column < shared) {
            unpack(load_pack(sum + row * shared + column), o);
#pragma unroll
            for (u32 i = 0; i < PACK; i++) y[i] += o[i];
            return pack(y);
        }
        unpack(load_pack(own + first), o);
#pragma unroll
        for (u32 i = 0; i < PACK; i++) y[i] += o[i] * scale;
        if (part) {
            float s[PACK], p[PACK];
            unpack(load_pack(sum + first), s);
            unpack(load_pack(part + first), p);
#pragma unroll
            for (u32 i = 0; i < PACK; i++) y[i] += s[i] - p[i];
        }
        return pack(y);
    }
};
