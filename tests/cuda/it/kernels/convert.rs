//! The shim's own conversions of 16-bit numbers: all of them, against the `half` crate. What they are the twins
//! of are instructions of a GPU, so the same check runs there.

use half::{bf16, f16};

use super::bench::encode;
use super::{Bench, checks};
use plan::DType;
use run::testing::cuda::geometry;

checks!(every_16_bit_number_survives, sums_round_to_even);

/// x + 0 through f32 and back.
fn every_16_bit_number_survives(bench: &mut Bench<'_>) {
    for dtype in [DType::Bf16, DType::F16] {
        bench.start(dtype);
        let all: Vec<u16> = (0..=u16::MAX).collect();
        let (x, zero) = (bench.input(&all), bench.input(&vec![0x8000u16; all.len()]));
        let out = bench.output_numbers(all.len());
        let count = all.len() as u64;
        let arguments = [x.into(), zero.into(), out.into(), count.into()];
        bench.launch("add", &geometry::elements(count, 2), &arguments);
        for (bits, got) in all.iter().zip(bench.read::<u16>(out)) {
            let is_nan = |bits: u16| match dtype {
                DType::Bf16 => bf16::from_bits(bits).is_nan(),
                _ => f16::from_bits(bits).is_nan(),
            };
            assert!(
                got == *bits || is_nan(*bits) && is_nan(got),
                "{bits:#06x} became {got:#06x}, {dtype}"
            );
        }
    }
}

/// Sums that lie between two numbers of the format, ties among them, overflow and underflow.
fn sums_round_to_even(bench: &mut Bench<'_>) {
    for dtype in [DType::Bf16, DType::F16] {
        bench.start(dtype);
        let mut random = fastrand::Rng::with_seed(5);
        let finite = |x: f32| if x.is_finite() { x } else { 1.0 };
        let mut draw = || -> f32 {
            let bits = random.u16(..);
            finite(match dtype {
                DType::Bf16 => bf16::from_bits(bits).to_f32(),
                _ => f16::from_bits(bits).to_f32(),
            })
        };
        let mut pairs: Vec<(f32, f32)> = (0..20_000).map(|_| (draw(), draw())).collect();
        // a number and about half a unit of its last place
        for exponent in -14..15 {
            for steps in 0..40 {
                let x = (1.0 + steps as f32 / 1024.0) * 2f32.powi(exponent);
                pairs.push((x, 2f32.powi(exponent - 11)));
                pairs.push((x, -(2f32.powi(exponent - 9))));
            }
        }
        let (a, b): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
        let (a, b) = (bench.numbers(&a), bench.numbers(&b));
        let (x, y) = (bench.read_numbers(a), bench.read_numbers(b));
        let out = bench.output_numbers(x.len());
        let count = x.len() as u64;
        let arguments = [a.into(), b.into(), out.into(), count.into()];
        bench.launch("add", &geometry::elements(count, 2), &arguments);
        let sums: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
        assert!(bench.read::<u8>(out) == encode(dtype, &sums), "{dtype}");
    }
}
