//! Checks of `loopback_sum` and `emulated_all_reduce`.

use std::time::Duration;

use super::{Argument, Bench, DTYPES, assert_close, checks, random, rounded};
use crate::plan::DType;
use crate::run::cuda::kernels::geometry;

checks!(
    loopback_sums_in_the_order_of_ranks,
    loopback_sums_in_place,
    the_emulated_all_reduce_copies_and_takes_its_time,
);

const COUNTS: [usize; 4] = [1, 8, 4099, 8192];

/// The sum in f32 in the order of ranks, rounded once: the same on the cpu backend for f32.
fn sum(dtype: DType, ranks: &[Vec<f32>]) -> Vec<f32> {
    let mut sum = vec![0.0f32; ranks[0].len()];
    for rank in ranks {
        for (sum, x) in sum.iter_mut().zip(rank) {
            *sum += rounded(dtype, *x);
        }
    }
    sum.iter().map(|x| rounded(dtype, *x)).collect()
}

fn loopback_sums_in_the_order_of_ranks(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        for ranks in [1, 2, 3, 8] {
            for count in COUNTS {
                bench.start(dtype);
                let x: Vec<Vec<f32>> = (0..ranks).map(|rank| random(rank, count)).collect();
                let inputs: Vec<_> = x.iter().map(|x| bench.numbers(x)).collect();
                let outputs: Vec<_> = x.iter().map(|_| bench.output_numbers(count)).collect();
                let addresses = |handles: &[super::Handle], bench: &Bench<'_>| -> Vec<u64> {
                    handles.iter().map(|handle| bench.address(*handle)).collect()
                };
                let (from, to) = (addresses(&inputs, bench), addresses(&outputs, bench));
                let arguments = [
                    bench.input(&from).into(),
                    bench.input(&to).into(),
                    (ranks as u32).into(),
                    (count as u64).into(),
                ];
                bench.launch("loopback_sum", &geometry::elements(count as u64, 2), &arguments);
                let want = sum(dtype, &x);
                for output in outputs {
                    assert_eq!(bench.read_numbers(output), want, "{ranks} ranks, {count}, {dtype}");
                }
            }
        }
    }
}

fn loopback_sums_in_place(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        bench.start(dtype);
        let count = 1003;
        let x: Vec<Vec<f32>> = (0..4).map(|rank| random(rank, count)).collect();
        let buffers: Vec<_> = x.iter().map(|x| bench.numbers_to_change(x)).collect();
        let addresses: Vec<u64> = buffers.iter().map(|handle| bench.address(*handle)).collect();
        let list = bench.input(&addresses);
        let arguments = [list.into(), list.into(), 4u32.into(), (count as u64).into()];
        bench.launch("loopback_sum", &geometry::elements(count as u64, 2), &arguments);
        for buffer in buffers {
            assert_eq!(bench.read_numbers(buffer), sum(dtype, &x), "{dtype}");
        }
    }
}

fn the_emulated_all_reduce_copies_and_takes_its_time(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        for ranks in [2, 3, 8] {
            for count in COUNTS {
                bench.start(dtype);
                let x = bench.numbers(&random(ranks, count));
                let (out, scratch) = (bench.output_numbers(count), bench.output_numbers(count));
                let state = bench.state(&[0u64; 2]);
                let (alpha_ns, ns_per_byte) = (2_000_000u64, 50.0f64);
                let arguments: [Argument; 8] = [
                    x.into(),
                    out.into(),
                    scratch.into(),
                    (count as u64).into(),
                    alpha_ns.into(),
                    ns_per_byte.into(),
                    (ranks as u32).into(),
                    state.into(),
                ];
                // twice, as a graph is replayed: the state must be as it was
                for _ in 0..2 {
                    let geometry = geometry::emulated_all_reduce(5);
                    let took = bench.launch("emulated_all_reduce", &geometry, &arguments);
                    let bytes = count as u64 * dtype.bytes();
                    let least = Duration::from_nanos(alpha_ns + 50 * bytes);
                    assert!(took >= least, "{took:?}, not {least:?}");
                    // nobody else uses the shim's clock; a GPU may be late
                    assert!(took < least + Duration::from_millis(100), "{took:?}, not {least:?}");
                    assert_eq!(bench.read::<u64>(state), [0, 0]);
                }
                let what = format!("{ranks} ranks, {count}");
                assert_close(&what, dtype, &bench.read_numbers(out), &bench.read_numbers(x));
                // (p - 2) / p of the packs went to the scratch, too, and nothing more
                let pack = 16 / dtype.bytes() as usize;
                let copied = count / pack * (ranks as usize - 2) / ranks as usize * pack;
                let got = bench.read_numbers(scratch);
                assert_eq!(got[..copied], bench.read_numbers(x)[..copied], "{what}");
                assert!(got[copied..].iter().all(|x| x.is_nan()), "{what}");
            }
        }
    }
}
