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
