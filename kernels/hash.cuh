// Numbers that look random, as src/model/random.rs and src/run/sample.rs make them.
#pragma once

#include "number.cuh"

// What splitmix64 adds at each step.
constexpr u64 GOLDEN = 0x9e3779b97f4a7c15ull;

// The finaliser of splitmix64.
DEVICE u64 mix(u64 z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// Number `index` of a tensor: half of the hash of its pair, centred and scaled, never contracted to one operation.
DEVICE float random_number(u64 hash, u64 index, float mean, float step, u32 signs) {
    u32 bits = u32(index % 2 == 0 ? hash : hash >> 32);
    float x = __fadd_rn(mean, __fmul_rn(__int2float_rn(int(bits)), step));
    return signs && bits % 2 == 1 ? -x : x;
}

DEVICE u64 pair_hash(u64 key, u64 index) { return mix(key + index / 2 * GOLDEN); }
