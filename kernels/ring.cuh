// Packs on their way from memory into shared memory, in the order in which they were asked for.
//
// Constants of the unit that includes this: THREADS of a block, SLOTS of the ring.
#pragma once

#include "weight.cuh"

// What a thread has under way from memory into its own part of shared memory: SLOTS groups of PACKS packs, taken in
// the order in which they were asked for. A thread reads only what it copied itself, so there are no barriers. The
// packs of a group are THREADS apart: lanes read neighbours. Loops take TURN groups at a time, by their index k, which
// is known when the kernel is compiled.
template <u32 PACKS, u32 TURN> class Ring {
    static_assert(SLOTS % TURN == 0, "whole turns");
    Pack* const mine;
    u32 turn = 0; // where the oldest one begins

    DEVICE Pack* at(u32 k, u32 pack) const { return mine + turn + (k * PACKS + pack) * THREADS; }

  public:
    DEVICE explicit Ring(Pack* memory) : mine(memory + threadIdx.x) {}
    // Asks for a pack (zeros where not `valid`) of the group that takes the place of the one taken last.
    DEVICE void ask(u32 k, u32 pack, const W* from, bool valid) { copy_async(at(k, pack), from, valid); }
    // Ends that group.
    DEVICE void asked(u32 k) {
        commit_copies();
        constexpr u32 LENGTH = TURN * PACKS * THREADS;
        if (k + 1 == TURN && TURN < SLOTS) turn = turn == (SLOTS / TURN - 1) * LENGTH ? 0 : turn + LENGTH;
    }
    // Waits for the oldest group and takes it; another must be asked for next.
    DEVICE void take(u32 k, Pack (&packs)[PACKS]) const {
        wait_for_copies<SLOTS - 1>();
#pragma unroll
        for (u32 i = 0; i < PACKS; i++) packs[i] = load_pack(at(k, i));
    }
    // Nothing may be under way (zeros, at the end) when the block gives its shared memory back.
    DEVICE void end() const { wait_for_copies<0>(); }
};
