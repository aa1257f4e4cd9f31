// Deterministic pseudo-random numbers; must match src/model/random.rs and src/run/sample.rs.
#pragma once

#include "number.cuh"

// splitmix64 increment.
constexpr u64 GOLDEN = 0x9e3779b97f4a7c15ull;

// splitmix64 finalizer.
DEVICE u64 mix(u64 z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// Element `index` of a tensor: one half of its pair's hash, centered and scaled; never contracted to an FMA.
DEVICE float random_number(u64 hash, u64 index, float mean, float step, u32 signs) {
    u32 bits = u32(index % 2 == 0 ? hash : hash >> 32);
    float x = __fadd_rn(mean, __fmul_rn(__int2float_rn(int(bits)), step));
    return signs && bits % 2 == 1 ? -x : x;
}

DEVICE u64 pair_hash(u64 key, u64 index) { return mix(key + index / 2 * GOLDEN); }
