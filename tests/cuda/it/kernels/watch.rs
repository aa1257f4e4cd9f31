//! That the checks would see what goes wrong in kernels: each of these kernels has one mistake.

use super::{Argument, assert_close, shim};
use base::error::catch_panic;
use machine::driver::Launch;
use plan::DType;
use run::testing::cuda::TranslationUnit;

static MISTAKES: TranslationUnit = TranslationUnit {
    name: "mistakes.cu",
    source: r#"#include "mma.cuh"

// Each thread takes its right neighbour's number; `barriers` of the two barriers are there.
template <u32 BARRIERS> DEVICE void rotated(const T* x, T* out) {
    SHARED(T, numbers, 64);
    for (u32 turn = 0; turn < 2; turn++) {
        numbers[threadIdx.x] = x[turn * 64 + threadIdx.x];
        if (BARRIERS >= 1) __syncthreads();
        out[turn * 64 + threadIdx.x] = numbers[(threadIdx.x + 1) % 64];
        if (BARRIERS >= 2) __syncthreads();
    }
}
KERNEL(right, const T* x, T* out) { rotated<2>(x, out); }
KERNEL(one_barrier_is_missing, const T* x, T* out) { rotated<1>(x, out); }
KERNEL(both_barriers_are_missing, const T* x, T* out) { rotated<0>(x, out); }

// The same with a collective in the place of the second barrier.
KERNEL(a_warp_gets_ahead, const T* x, T* out) {
    SHARED(T, numbers, 64);
    for (u32 turn = 0; turn < 2; turn++) {
        numbers[threadIdx.x] = x[turn * 64 + threadIdx.x];
        __syncthreads();
        out[turn * 64 + threadIdx.x] = numbers[(threadIdx.x + 1) % 64];
        warp_sum(1.0f);
    }
}

// The same by copies of each thread's own, one after the other into one place.
template <u32 LATEST, bool EARLY, bool MORE> DEVICE void copied(const T* x, T* out) {
    SHARED(Pack, own, 64);
    u32 from = (threadIdx.x + 1) % 64;
    auto ask = [&](u32 turn) {
        copy_async(&own[threadIdx.x], x + turn * 64 + from / PACK * PACK, true);
        commit_copies();
    };
    auto take = [&](u32 turn) {
        out[turn * 64 + threadIdx.x] = to_number(__uint_as_float(own[threadIdx.x].words[from % PACK]));
    };
    ask(0);
    wait_for_copies<LATEST>();
    if (EARLY) ask(1);
    take(0);
    if (!EARLY) ask(1);
    wait_for_copies<0>();
    take(1);
    if (MORE) ask(0);
}
KERNEL(copies_are_right, const T* x, T* out) { copied<0, false, false>(x, out); }
KERNEL(a_copy_is_not_waited_for, const T* x, T* out) { copied<1, false, false>(x, out); }
KERNEL(a_copy_is_too_early, const T* x, T* out) { copied<0, true, false>(x, out); }
KERNEL(a_copy_is_left, const T* x, T* out) { copied<0, false, true>(x, out); }

KERNEL(half_a_block_waits, T* out) {
    if (threadIdx.x < 32) __syncthreads();
    else out[0] = to_number(warp_sum(1.0f) + (threadIdx.x == 63 ? __shfl_sync(3u << 30, 1.0f, 31) : 0.0f));
}
KERNEL(barriers_differ, T* out) {
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    out[threadIdx.x] = to_number(1.0f);
}
KERNEL(a_lane_has_left, T* out) {
    if (threadIdx.x == 3) return;
    out[threadIdx.x] = to_number(warp_sum(1.0f));
}
KERNEL(half_warps_meet, T* out) {
    unsigned lane = threadIdx.x % 32, first = lane & 16;
    out[threadIdx.x] = to_number(__shfl_sync(0xffffu << first, lane == first ? 1.0f : 0.0f, first));
}
KERNEL(a_lane_waits_elsewhere, T* out) {
    unsigned lane = threadIdx.x % 32;
    if (lane == 1 || lane == 3) __syncwarp(0xa);
    if (lane < 3 || lane == 4) __syncwarp(0x17);
    out[threadIdx.x] = to_number(1.0f);
}
KERNEL(unaligned, const T* x, T* out) { store_pack(out, load_pack(x + 1)); }
KERNEL(past_the_end, T* out) { out[threadIdx.x + 1] = to_number(1.0f); }
KERNEL(before_the_start, T* out) { out[int(threadIdx.x) - 1] = to_number(1.0f); }
KERNEL(changes_its_input, T* x) { x[threadIdx.x] = to_number(1.0f); }
KERNEL(forgets_one, T* out) {
    if (threadIdx.x != 7) out[threadIdx.x] = to_number(1.0f);
}
KERNEL(past_shared_memory, T* out) {
    DYNAMIC_SHARED(float, numbers);
    numbers[threadIdx.x] = 1.0f;
    __syncthreads();
    out[threadIdx.x] = to_number(numbers[threadIdx.x]);
}
KERNEL(shared_memory_unset, T* out) {
    SHARED(float, numbers, 64);
    out[threadIdx.x] = to_number(numbers[threadIdx.x]);
}
"#,
};

/// What a check of this kernel fails with; empty where it passes. `x`: an input of 128 numbers besides `out`.
fn failure(order: u64, kernel: &str, x: bool, shared_bytes: u32, count: usize) -> String {
    let mut message = String::new();
    shim::run_unit(&MISTAKES, order, |bench| {
        bench.start(DType::F32);
        let numbers: Vec<f32> = (0..128).map(|i| i as f32).collect();
        let input = bench.numbers(&numbers);
        let out = bench.output_numbers(count);
        let geometry = Launch { shared_bytes, ..Launch::flat(1, 64) };
        let mut arguments: Vec<Argument> = Vec::new();
        if x {
            arguments.push(input.into());
        }
        if kernel != "changes_its_input" {
            arguments.push(out.into());
        }
        let check = || {
            bench.launch(kernel, &geometry, &arguments);
            let want: Vec<f32> = match x {
                true => (0..128).map(|i| (i / 64 * 64 + (i + 1) % 64) as f32).collect(),
                false => vec![1.0; count],
            };
            assert_close(kernel, DType::F32, &bench.read_numbers(out), &want);
        };
        message = catch_panic(check).err().unwrap_or_default();
    });
    message
}

/// Whether there is a compiler at all: without one nothing fails.
fn shim_is_there() -> bool {
    let mut there = false;
    shim::run_unit(&MISTAKES, 0, |_| there = true);
    there
}

#[test]
fn a_right_kernel_passes_in_every_order() {
    for order in 0..5 {
        assert_eq!(failure(order, "right", true, 0, 128), "");
        assert_eq!(failure(order, "copies_are_right", true, 0, 128), "");
    }
}

#[test]
fn a_missing_barrier_or_wait_shows() {
    if !shim_is_there() {
        return;
    }
    let message = failure(0, "a_copy_is_left", true, 0, 128);
    assert!(message.contains("leaves with 1 copies under way"), "{message}");
    for kernel in [
        "one_barrier_is_missing",
        "both_barriers_are_missing",
        "a_warp_gets_ahead",
        "a_copy_is_not_waited_for",
        "a_copy_is_too_early",
    ] {
        assert!((0..3).any(|order| !failure(order, kernel, true, 0, 128).is_empty()), "{kernel}");
    }
}

#[test]
fn a_block_that_diverges_is_reported() {
    if !shim_is_there() {
        return;
    }
    for order in 0..3 {
        let message = failure(order, "half_a_block_waits", false, 0, 64);
        assert!(message.contains("kernel half_a_block_waits, block (0, 0, 0), thread ("), "{message}");
        let message = failure(order, "barriers_differ", false, 0, 64);
        assert!(message.contains("__syncthreads in line"), "{message}");
        let message = failure(order, "a_lane_has_left", false, 0, 64);
        assert!(message.contains("lane 3 has left"), "{message}");
        assert_eq!(failure(order, "half_warps_meet", false, 0, 64), "");
        // and the fibers are good for another launch
        assert_eq!(failure(order, "right", true, 0, 128), "");
    }
}

/// A GPU would let lane 1 come later; here no lane may wait in anything else, whichever of those that wait it is.
#[test]
fn a_lane_that_waits_in_another_collective_is_named() {
    if !shim_is_there() {
        return;
    }
    let message = failure(0, "a_lane_waits_elsewhere", false, 0, 64);
    assert!(message.contains("with mask 0x17 while lane 1 waits in"), "{message}");
}

#[test]
fn accesses_outside_are_reported() {
    if !shim_is_there() {
        return;
    }
    for (kernel, x, shared_bytes, why) in [
        ("unaligned", true, 0, "is not aligned to 16 bytes"),
        ("past_the_end", false, 0, "wrote after buffer 1"),
        ("before_the_start", false, 0, "wrote before buffer 1"),
        ("changes_its_input", true, 0, "changed its input, buffer 0"),
        ("forgets_one", false, 0, "number 7 of 64 is NaN, not 1"),
        ("past_shared_memory", false, 63 * 4, "written past 252 bytes of dynamic shared memory"),
        ("shared_memory_unset", false, 0, "number 0 of 64 is NaN"),
    ] {
        let message = failure(0, kernel, x, shared_bytes, 64);
        assert!(message.contains(why), "{kernel}: {message:?}");
    }
    // what is right there
    assert_eq!(failure(0, "past_shared_memory", false, 64 * 4, 64), "");
}

#[test]
fn a_launch_with_too_few_arguments_or_too_many_threads_is_refused() {
    shim::run_unit(&MISTAKES, 0, |bench| {
        bench.start(DType::F32);
        let out = bench.output_numbers(8);
        for (threads, arguments, why) in
            [(64, vec![], "takes 1 arguments, not 0"), (1025, vec![out.into()], "out of bounds")]
        {
            let geometry = Launch::flat(1, threads);
            let check = || bench.launch("forgets_one", &geometry, &arguments);
            let message = catch_panic(check).expect_err("refused");
            assert!(message.contains(why), "{message}");
        }
    });
}
