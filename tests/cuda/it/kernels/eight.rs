//! Checks of messages in 8 bits: `quantize`, `sum_eight` and `loopback_eight`.

use super::{Argument, Bench, DTYPES, Handle, assert_close, checks, random, rounded};
use plan::{CommDType, DType};
use run::testing::cpu::quantize;
use run::testing::cuda::EightBitFormat;
use run::testing::cuda::geometry;

checks!(messages_say_what_the_cpu_backends_do, what_is_not_finite_is_not_hidden);

/// (rows, columns): stretches that are whole, shorter than a warp's turn, and begun.
const SHAPES: [(usize, usize); 5] = [(1, 128), (3, 64), (5, 300), (2, 7), (4, 1024)];

/// What the sum of these messages is by the cpu backend's arithmetic.
fn reference(dtype: DType, ranks: &[Vec<f32>], columns: usize, to: CommDType) -> Vec<f32> {
    let mut sum = vec![0.0f32; ranks[0].len()];
    for rank in ranks {
        let mut said = vec![0.0; rank.len()];
        quantize(rank, columns, to, &mut said);
        sum.iter_mut().zip(&said).for_each(|(sum, x)| *sum += x);
    }
    sum.iter().map(|x| rounded(dtype, *x)).collect()
}

/// The sum of these ranks' messages by either kernel, the second one as the last rank gets it.
fn sums(bench: &mut Bench<'_>, ranks: &[Vec<f32>], columns: usize, to: CommDType) -> [Vec<f32>; 2] {
    let n = ranks[0].len();
    let count = ranks.len() as u32;
    let eight = EightBitFormat { is_float: to == CommDType::F8, columns: columns as u32 };
    let bytes = eight.bytes(n as u64);
    let launch = geometry::elements(n as u64, 2);
    let do_it = |bench: &mut Bench<'_>, kernel: &str, mut arguments: Vec<Argument>| {
        arguments.extend::<[Argument; 3]>([
            (columns as u32).into(),
            u32::from(eight.is_float).into(),
            (n as u64).into(),
        ]);
        bench.launch(kernel, &launch, &arguments);
    };
    let mut messages = Vec::new();
    for x in ranks {
        let message = bench.state(&vec![0u8; bytes as usize]);
        let x = bench.numbers(x);
        do_it(bench, "quantize", vec![x.into(), message.into()]);
        messages.push(message);
    }
    let gathered: Vec<u8> = messages.iter().flat_map(|message| bench.read::<u8>(*message)).collect();
    let (gathered, out) = (bench.input(&gathered), bench.output_numbers(n));
    do_it(bench, "sum_eight", vec![gathered.into(), bytes.into(), out.into(), count.into()]);
    let outputs: Vec<Handle> = ranks.iter().map(|_| bench.output_numbers(n)).collect();
    let [from, to] = [&messages, &outputs]
        .map(|handles| handles.iter().map(|handle| bench.address(*handle)).collect::<Vec<u64>>())
        .map(|addresses| bench.input(&addresses));
    do_it(bench, "loopback_eight", vec![from.into(), to.into(), count.into()]);
    [out, outputs[ranks.len() - 1]].map(|out| bench.read_numbers(out))
}

fn messages_say_what_the_cpu_backends_do(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        for (rows, columns) in SHAPES {
            for to in [CommDType::F8, CommDType::Int8] {
                for ranks in [1, 3] {
                    bench.start(dtype);
                    // sizes over five decades, so that small ones of e4m3 are subnormal; and a row of zeros
                    let x: Vec<Vec<f32>> = (0..ranks)
                        .map(|rank| {
                            let x = random(rank, rows * columns);
                            let far = |(at, x): (usize, &f32)| x * 10f32.powi(-((at % 6) as i32));
                            let mut x: Vec<f32> = x.iter().enumerate().map(far).collect();
                            if rows > 1 {
                                x[..columns].fill(0.0);
                            }
                            x.iter().map(|x| rounded(dtype, *x)).collect()
                        })
                        .collect();
                    let want = reference(dtype, &x, columns, to);
                    for got in sums(bench, &x, columns, to) {
                        let what = format!("{ranks} messages in {to} of {rows} x {columns}");
                        assert_close(&what, dtype, &got, &want);
                    }
                }
            }
        }
    }
}

fn what_is_not_finite_is_not_hidden(bench: &mut Bench<'_>) {
    for to in [CommDType::F8, CommDType::Int8] {
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            bench.start(DType::F32);
            let mut x = random(4, 256);
            x[130] = odd;
            let want = reference(DType::F32, &[x[..128].to_vec()], 128, to);
            let [got, _] = sums(bench, &[x], 256, to);
            assert!(got[128..].iter().all(|x| !x.is_finite()), "{to}, {odd}: {:?}", &got[128..]);
            assert_close("the stretch beside it", DType::F32, &got[..128], &want);
        }
    }
}
