//! Checks of `stamp`, `keep_stamps`, and of kernels that say when they ran.

use super::{Bench, checks};
use machine::driver::Launch;
use plan::DType;
use run::testing::cuda::geometry;

checks!(a_kernel_says_when_it_ran, stamps_are_kept_step_by_step);

/// The first block's begin and the last one's end, of all kernels that are told the same place.
fn a_kernel_says_when_it_ran(bench: &mut Bench<'_>) {
    bench.start(DType::Bf16);
    let numbers = vec![1.0f32; 5000];
    let (x, y) = (bench.numbers(&numbers), bench.numbers(&numbers));
    let out = bench.output_numbers(5000);
    let stamps = bench.state(&[0u64; 2]);
    let launch = geometry::elements(5000, 4);
    let mut before = [0u64; 2];
    for round in 0..2 {
        let arguments = [x.into(), y.into(), out.into(), 5000u64.into(), stamps.into()];
        bench.launch_with("add", &[("STAMPED", 1)], &launch, &arguments);
        let after: Vec<u64> = bench.read(stamps);
        assert!(after[0] > 0 && after[1] >= after[0], "{after:?}");
        if round > 0 {
            assert!(after[0] == before[0] && after[1] >= before[1], "{before:?} {after:?}");
        }
        before = [after[0], after[1]];
    }
}

fn stamps_are_kept_step_by_step(bench: &mut Bench<'_>) {
    bench.start(DType::Bf16);
    // two operations, room for two steps; a third one is not kept
    let (stamps, kept) = (bench.state(&[0u64; 4]), bench.state(&[0u64; 8]));
    let count = bench.state(&[0u32]);
    for step in 0..3u32 {
        for is_end in [0u32, 1] {
            bench.launch("stamp", &Launch::flat(1, 1), &[stamps.into(), is_end.into()]);
        }
        let now: Vec<u64> = bench.read(stamps);
        assert!(now[0] > 0 && now[1] >= now[0] && now[2..] == [0, 0], "{now:?}");
        let before: Vec<u64> = bench.read(kept);
        let arguments = [stamps.into(), kept.into(), count.into(), 4u32.into(), 2u32.into()];
        bench.launch("keep_stamps", &Launch::flat(1, 256), &arguments);
        assert_eq!(bench.read::<u64>(stamps), [0; 4], "for the next step");
        assert_eq!(bench.read::<u32>(count), [step + 1]);
        let after: Vec<u64> = bench.read(kept);
        match step {
            0 | 1 => assert_eq!(after[4 * step as usize..][..4], now),
            _ => assert_eq!(after, before),
        }
    }
}
