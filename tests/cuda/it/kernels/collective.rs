//! Checks of collectives on one device, `loopback_*`, and of `emulated_collective`.

use std::time::Duration;

use super::{Argument, Bench, DTYPES, checks, random, rounded};
use plan::DType;
use run::testing::cuda::geometry;

checks!(
    loopback_sums_in_the_order_of_ranks,
    loopback_sums_in_place,
    loopback_scatters_and_gathers_shares,
    columns_of_ranks_are_put_into_order,
    the_emulated_collective_copies_and_takes_its_time,
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

/// Shares of unlike size, and one rank without any.
fn loopback_scatters_and_gathers_shares(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        for (ranks, each, count) in [(2, 8, 16), (3, 37, 100), (4, 64, 190), (4, 10, 25)] {
            let parts = |x: &[f32]| -> Vec<Vec<f32>> {
                let mut parts: Vec<Vec<f32>> = x.chunks(each).map(<[f32]>::to_vec).collect();
                parts.resize(ranks, Vec::new());
                parts
            };
            let x: Vec<Vec<f32>> = (0..ranks).map(|rank| random(rank as u64, count)).collect();
            let shares = parts(&random(9, count).iter().map(|x| rounded(dtype, *x)).collect::<Vec<_>>());
            let all: Vec<Vec<f32>> = vec![shares.concat(); ranks];
            for (kernel, inputs, want) in
                [("loopback_scatter", &x, parts(&sum(dtype, &x))), ("loopback_gather", &shares, all)]
            {
                bench.start(dtype);
                let from: Vec<_> = inputs.iter().map(|x| bench.numbers(x)).collect();
                let to: Vec<_> = want.iter().map(|part| bench.output_numbers(part.len())).collect();
                let [from, places] = [&from, &to]
                    .map(|list| list.iter().map(|at| bench.address(*at)).collect::<Vec<u64>>());
                let arguments = [
                    bench.input(&from).into(),
                    bench.input(&places).into(),
                    (ranks as u32).into(),
                    (each as u64).into(),
                    (count as u64).into(),
                ];
                bench.launch(kernel, &geometry::elements(count as u64, 2), &arguments);
                for (to, want) in to.into_iter().zip(&want) {
                    assert_eq!(&bench.read_numbers(to), want, "{kernel}, {ranks} x {each}, {dtype}");
                }
            }
        }
    }
}

/// Rows of whole fours of words, and others; the same from each rank's memory, and from where they were gathered.
fn columns_of_ranks_are_put_into_order(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        for (ranks, rows, each) in [(2, 3, 8), (3, 1, 7), (4, 5, 10), (8, 16, 64)] {
            bench.start(dtype);
            let of = |rank: usize| -> Vec<f32> { random(rank as u64, rows * each) };
            let shares: Vec<Vec<f32>> = (0..ranks).map(of).collect();
            let row = |row: usize| {
                shares.iter().flat_map(move |share| share[row * each..(row + 1) * each].to_vec())
            };
            let want: Vec<f32> = (0..rows).flat_map(row).collect();
            let launch = geometry::elements(2 * want.len() as u64, 2);
            let (gathered, out) = (bench.input(&shares.concat()), bench.output::<f32>(want.len()));
            let numbers = [ranks, each, rows].map(|number| Argument::from(number as u32));
            let arguments = [&[gathered.into(), out.into()], &numbers[..]].concat();
            bench.launch("order_columns", &launch, &arguments);
            assert_eq!(bench.read::<f32>(out), want, "{ranks} x {rows} x {each}, {dtype}");

            let from: Vec<_> = shares.iter().map(|share| bench.input(share)).collect();
            let to: Vec<_> = shares.iter().map(|_| bench.output::<f32>(want.len())).collect();
            let [from, places] =
                [&from, &to].map(|list| list.iter().map(|at| bench.address(*at)).collect::<Vec<u64>>());
            let lists = [bench.input(&from).into(), bench.input(&places).into()];
            let words = Argument::from(want.len() as u64);
            bench.launch("loopback_columns", &launch, &[&lists[..], &numbers[..2], &[words]].concat());
            assert!(
                to.iter().all(|to| bench.read::<f32>(*to) == want),
                "{ranks} x {rows} x {each}, {dtype}"
            );
        }
    }
}

fn the_emulated_collective_copies_and_takes_its_time(bench: &mut Bench<'_>) {
    let pack = |dtype: DType| 16 / dtype.bytes() as usize;
    for dtype in DTYPES {
        for (copies, count) in [1, 3].into_iter().flat_map(|copies| COUNTS.map(|count| (copies, count)))
        {
            bench.start(dtype);
            let x = bench.numbers(&random(copies, count));
            let (out, scratch) =
                (bench.output_numbers(count * copies as usize), bench.output_numbers(count));
            let state = bench.state(&[0u64; 2]);
            let lasts_ns = 2_000_000u64;
            // what a ring of three passes on
            let more = count / 3;
            let arguments: [Argument; 8] = [
                x.into(),
                out.into(),
                scratch.into(),
                (count as u64).into(),
                (copies as u32).into(),
                (more as u64).into(),
                lasts_ns.into(),
                state.into(),
            ];
            // twice, as a graph is replayed: the state must be as it was
            for _ in 0..2 {
                let geometry = geometry::emulated_collective(5);
                let took = bench.launch("emulated_collective", &geometry, &arguments);
                let least = Duration::from_nanos(lasts_ns);
                assert!(took >= least, "{took:?}, not {least:?}");
                // nobody else uses the shim's clock; a GPU may be late
                assert!(took < least + Duration::from_millis(100), "{took:?}, not {least:?}");
                assert_eq!(bench.read::<u64>(state), [0, 0]);
            }
            let given = bench.read_numbers(x);
            assert_eq!(bench.read_numbers(out), given.repeat(copies as usize), "{copies} x {count}");
            // whole packs went to the scratch, too, and nothing more
            let passed = more / pack(dtype) * pack(dtype);
            let got = bench.read_numbers(scratch);
            assert_eq!(got[..passed], given[..passed], "{count}");
            assert!(got[passed..].iter().all(|x| x.is_nan()), "{count}");
        }
    }
}
