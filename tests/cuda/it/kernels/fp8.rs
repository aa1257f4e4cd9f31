//! Checks of weights in fp8: products by `matvec`, `random_fp8` and `expand_fp8`.

use std::sync::Arc;

use super::matvec::products;
use super::{Bench, assert_close, checks, random, rounded};
use arithmetic::e4m3;
use machine::driver::Launch;
use model::{Fp8Rows, Matrix, MatrixData, Model, WeightSource};
use plan::{DType, Shard, Tensor, Weight, WeightPart};
use run::testing::cpu::{CpuKernels, Panels};
use run::testing::cuda::fp8;
use run::testing::cuda::geometry;
use run::testing::cuda::matvec::{matvec_geometry, most_rows};

checks!(
    products_are_those_of_the_numbers_that_weights_stand_for,
    products_of_odd_shapes_are_too,
    random_weights_are_the_hosts,
    expanded_weights_are_the_hosts_in_bf16,
    a_scale_that_is_not_finite_is_not_hidden,
);

/// A weight as the host quantizes it, and as it lies in memory.
fn quantized(numbers: &[f32], inputs: usize) -> (Fp8Rows, Vec<u8>) {
    let scales: Vec<f32> = numbers.chunks(inputs).map(e4m3::scale_of).collect();
    let mut bits = vec![0; numbers.len()];
    let rows = numbers.chunks(inputs).zip(bits.chunks_mut(inputs));
    rows.zip(&scales).for_each(|((row, bits), scale)| e4m3::quantize(row, *scale, bits));
    let mut bytes = bits.clone();
    bytes.resize(fp8::scales_at(bits.len() as u64) as usize, 0);
    bytes.extend_from_slice(bytemuck::cast_slice(&scales));
    (Fp8Rows { bits, scales }, bytes)
}

/// The numbers that a weight stands for.
fn numbers(Fp8Rows { bits, scales }: &Fp8Rows, inputs: usize) -> Vec<f32> {
    let rows = bits.chunks(inputs).zip(scales);
    rows.flat_map(|(row, scale)| row.iter().map(move |bits| e4m3::from_e4m3(*bits) * scale)).collect()
}

/// Numbers over five decades, so that small ones are subnormal; a row of zeros; rows of very different sizes.
fn weights(outputs: usize, inputs: usize) -> Vec<f32> {
    let mut all = random(2, outputs * inputs);
    for (at, x) in all.iter_mut().enumerate() {
        let (row, column) = (at / inputs, at % inputs);
        *x *= 10f32.powi(-((column % 6) as i32)) * 2f32.powi((row % 9) as i32 - 4);
        if row % 13 == 3 {
            *x = 0.0;
        }
    }
    all
}

/// A product by the chosen kernels, against f64 sums, and what the cpu backend makes of the same weights against them too.
fn product(bench: &mut Bench<'_>, rows: u32, inputs: u32, outputs: u32, multiprocessors: u32) {
    bench.start(DType::Bf16);
    let (wide, high) = (inputs as usize, outputs as usize);
    let (weight, bytes) = quantized(&weights(high, wide), wide);
    let stand_for = numbers(&weight, wide);
    let x = bench.numbers(&random(1, (rows * inputs) as usize));
    let w = bench.input(&bytes);
    let read = bench.read_numbers(x);
    let dot = |x: &[f32], w: &[f32]| x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
    let wanted: Vec<f64> =
        read.chunks(wide).flat_map(|x| stand_for.chunks(wide).map(move |w| dot(x, w))).collect();
    let what = format!("{rows} x [{inputs}, {outputs}] in fp8");
    let close = |by: &str, got: &[f32]| {
        let largest = wanted.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
        for (i, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
            let error = (f64::from(*got) - wanted).abs() / largest;
            // not `>`: a NaN is wrong
            assert!(
                error <= 3e-5,
                "{what} {by}: number {i} is {got}, not {wanted} (off by {error:.1e})"
            );
        }
    };
    let held = Matrix { outputs: high, inputs: wide, data: MatrixData::F32(stand_for) };
    let mut on_cpu = vec![0.0; wanted.len()];
    CpuKernels::default().matmul(&read, &Arc::new(Panels::from_matrix(&held)), &mut on_cpu);
    close("on the cpu", &on_cpu);

    let chosen = matvec_geometry(DType::Fp8, rows, inputs, outputs, multiprocessors);
    let [out, again, logits] = products(bench, &chosen, (x, w), [rows, inputs, outputs]);
    close("logits", &bench.read::<f32>(logits));
    let got = bench.read_numbers(out);
    assert_close(&what, DType::Bf16, &got, &on_cpu);
    assert_eq!(bench.read_numbers(again), got, "{what}: not the same twice");
}

fn products_are_those_of_the_numbers_that_weights_stand_for(bench: &mut Bench<'_>) {
    for rows in [1, 2, 8, 9, 16] {
        assert!(rows <= most_rows(DType::Fp8, 1056));
        // packs that divide evenly among no number of warps; blocks of one output, of some, of many
        for outputs in [1, 7, 61, 250] {
            product(bench, rows, 1056, outputs, 3);
        }
    }
}

fn products_of_odd_shapes_are_too(bench: &mut Bench<'_>) {
    for rows in [3, 7, 10, 13, 15] {
        product(bench, rows, 272, 45, 2);
    }
    // most of a turn is past the end; several turns; a warp's x in registers
    for (rows, inputs) in [(1, 16), (16, 16), (1, 4096), (3, 3584), (1, 512)] {
        product(bench, rows, inputs, 37, 1);
    }
}

fn random_weights_are_the_hosts(bench: &mut Bench<'_>) {
    let mut odd = Model::resolve("tiny").expect("built in");
    odd.shape.intermediate = 3 * 37;
    for (model, tp) in [(Model::resolve("tiny").expect("built in"), 2), (odd, 3)] {
        for (tensor, shard) in [
            (Tensor::Query(1), Shard::Whole),
            (Tensor::Gate(0), Shard::Rows),
            (Tensor::Down(2), Shard::Columns),
        ] {
            for rank in [0, tp - 1] {
                let part = WeightPart { tensor, shard };
                let (rows, columns) = part.slice(&model.shape, rank, tp);
                let weight = Weight {
                    name: format!("{tensor:?}"),
                    outputs: rows.len() as u32,
                    inputs: columns.len() as u32,
                    parts: vec![part],
                };
                let source = WeightSource::open(&model, 42).expect("random weights");
                let stream = source.random_stream(tensor).expect("no checkpoint");
                bench.start(DType::Bf16);
                let out = bench.output::<u8>(rows.len() * columns.len());
                let scales = bench.output::<f32>(rows.len());
                let width = u64::from(tensor.dimensions(&model.shape).1);
                let arguments = [
                    out.into(),
                    scales.into(),
                    stream.key.into(),
                    stream.mean.into(),
                    stream.step.into(),
                    u32::from(stream.signs).into(),
                    (rows.start as u64 * width).into(),
                    width.into(),
                    (columns.start as u32).into(),
                    (columns.len() as u32).into(),
                    (rows.len() as u64).into(),
                ];
                bench.launch("random_fp8", &geometry::warps(rows.len() as u64, 1), &arguments);
                let want = source.fp8(&weight, rank, tp, 0..rows.len()).expect("made on the host");
                let what = format!("{tensor:?}, {shard:?}, rank {rank} of {tp}");
                assert!(bench.read::<f32>(scales) == want.scales, "{what}: scales");
                assert!(bench.read::<u8>(out) == want.bits, "{what}: numbers");
            }
        }
    }
}

fn expanded_weights_are_the_hosts_in_bf16(bench: &mut Bench<'_>) {
    // packs, and rows that do not begin on 16 bytes
    for (outputs, inputs) in [(19, 48), (7, 37), (1, 5)] {
        bench.start(DType::Bf16);
        let (weight, bytes) = quantized(&weights(outputs, inputs), inputs);
        let w = bench.input(&bytes);
        let out = bench.output_numbers(outputs * inputs);
        let scales = bench.input(&weight.scales);
        let arguments =
            [w.into(), scales.into(), out.into(), (inputs as u32).into(), (outputs as u32).into()];
        bench.launch("expand_fp8", &Launch::flat(2, 64), &arguments);
        let want = numbers(&weight, inputs).into_iter().map(|x| rounded(DType::Bf16, x));
        assert_eq!(bench.read_numbers(out), want.collect::<Vec<f32>>(), "{outputs} x {inputs}");
    }
}

fn a_scale_that_is_not_finite_is_not_hidden(bench: &mut Bench<'_>) {
    for odd in [f32::NAN, f32::INFINITY] {
        bench.start(DType::Bf16);
        let (outputs, inputs) = (20, 64);
        let mut numbers = weights(outputs, inputs);
        numbers[5 * inputs + 7] = odd;
        let (_, bytes) = quantized(&numbers, inputs);
        let (x, w) = (bench.numbers(&random(1, inputs)), bench.input(&bytes));
        let chosen = matvec_geometry(DType::Fp8, 1, inputs as u32, outputs as u32, 1);
        let [out, ..] = products(bench, &chosen, (x, w), [1, inputs as u32, outputs as u32]);
        let finite: Vec<bool> = bench.read_numbers(out).iter().map(|x| x.is_finite()).collect();
        assert!((0..outputs).all(|output| finite[output] == (output != 5)), "{odd}: {finite:?}");
    }
}
