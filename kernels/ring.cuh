// Ring buffer of asynchronous copies from global to shared memory, consumed in issue order.
//
// The including unit defines THREADS (per block) and SLOTS (groups in the ring).
#pragma once

#include "weight.cuh"

// A thread's copies in flight into its own part of shared memory: SLOTS groups of PACKS packs, consumed in issue order.
// A thread reads only what it copied itself, so no barriers are needed. The packs of a group are THREADS packs apart,
// so adjacent lanes access adjacent packs. Loops consume TURN groups per iteration, indexed by a compile-time k.
template <u32 PACKS, u32 TURN> class Ring {
    static_assert(SLOTS % TURN == 0, "whole turns");
    Pack* const mine;
    u32 turn = 0; // offset of the oldest turn

    DEVICE Pack* at(u32 k, u32 pack) const { return mine + turn + (k * PACKS + pack) * THREADS; }

  public:
    DEVICE explicit Ring(Pack* memory) : mine(memory + threadIdx.x) {}
    // Issues the copy of one pack (zeros unless `valid`) of the group that replaces the last one taken.
    DEVICE void ask(u32 k, u32 pack, const W* from, bool valid) { copy_async(at(k, pack), from, valid); }
    // Commits that group.
    DEVICE void asked(u32 k) {
        commit_copies();
        constexpr u32 LENGTH = TURN * PACKS * THREADS;
        if (k + 1 == TURN && TURN < SLOTS) turn = turn == (SLOTS / TURN - 1) * LENGTH ? 0 : turn + LENGTH;
    }
    // Waits for the oldest group and takes it; its replacement must be issued next.
    DEVICE void take(u32 k, Pack (&packs)[PACKS]) const {
        wait_for_copies<SLOTS - 1>();
#pragma unroll
        for (u32 i = 0; i < PACKS; i++) packs[i] = load_pack(at(k, i));
    }
    // Drains the ring: no copy (not even zeros, at the end) may be pending when the block releases its shared memory.
    DEVICE void end() const { wait_for_copies<0>(); }
};
