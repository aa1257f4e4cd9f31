//! Checks of `rms_norm`, `add_norm` and `join_norm`.

use super::{Argument, Bench, DTYPES, assert_close, checks, random, rounded};
use model::{Matrix, MatrixData};
use run::testing::cpu::CpuKernels;
use run::testing::cuda::geometry;

checks!(norm_is_the_cpu_backends, add_norm_is_an_addition_and_a_norm, join_norm_is_a_join_and_a_norm);

/// (rows, columns): within the registers of a block, at and beyond their end, and without whole packs.
const SHAPES: [(usize, usize); 8] =
    [(1, 64), (3, 8), (2, 1), (33, 37), (1, 4096), (2, 8192), (1, 33_000), (1, 32_776)];
const EPS: f32 = 1e-5;

fn reference(x: &[f32], weight: &[f32]) -> Vec<f32> {
    let weight = Matrix { outputs: 1, inputs: weight.len(), data: MatrixData::F32(weight.to_vec()) };
    let mut y = vec![0.0; x.len()];
    CpuKernels::default().norm(x, &weight, EPS, &mut y);
    y
}

fn norm_is_the_cpu_backends(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        for (rows, columns) in SHAPES {
            bench.start(dtype);
            let x = bench.numbers(&random(1, rows * columns));
            let weight = bench.numbers(&random(2, columns));
            let out = bench.output_numbers(rows * columns);
            let geometry = geometry::rows(rows as u32, columns as u32);
            let arguments = [x.into(), weight.into(), out.into(), (columns as u32).into(), EPS.into()];
            bench.launch("rms_norm", &geometry, &arguments);
            let want = reference(&bench.read_numbers(x), &bench.read_numbers(weight));
            assert_close(&format!("{rows} x {columns}"), dtype, &bench.read_numbers(out), &want);
        }
    }
}

fn add_norm_is_an_addition_and_a_norm(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        for (rows, columns) in SHAPES {
            bench.start(dtype);
            let a = bench.numbers(&random(3, rows * columns));
            let b = bench.numbers(&random(4, rows * columns));
            let weight = bench.numbers(&random(5, columns));
            let (sum, out) =
                (bench.output_numbers(rows * columns), bench.output_numbers(rows * columns));
            let geometry = geometry::rows(rows as u32, columns as u32);
            let arguments = [
                a.into(),
                b.into(),
                weight.into(),
                sum.into(),
                out.into(),
                (columns as u32).into(),
                EPS.into(),
            ];
            bench.launch("add_norm", &geometry, &arguments);
            // the sum is exact but for its rounding, and it is the rounded sum that is normed
            let (a, b) = (bench.read_numbers(a), bench.read_numbers(b));
            let sums: Vec<f32> = a.iter().zip(&b).map(|(a, b)| rounded(dtype, a + b)).collect();
            assert_eq!(bench.read_numbers(sum), sums, "{rows} x {columns}, {dtype}");
            let want = reference(&sums, &bench.read_numbers(weight));
            assert_close(&format!("{rows} x {columns}"), dtype, &bench.read_numbers(out), &want);
        }
    }
}

fn join_norm_is_a_join_and_a_norm(bench: &mut Bench<'_>) {
    let scale = 2.0f32.sqrt();
    for dtype in DTYPES {
        for ((rows, columns), whole) in
            SHAPES.into_iter().flat_map(|shape| [(shape, true), (shape, false)])
        {
            bench.start(dtype);
            let shared = if whole { columns } else { columns.div_ceil(2) };
            let [x, own, part] = [3, 4, 7].map(|seed| bench.numbers(&random(seed, rows * columns)));
            let sum = bench.numbers(&random(6, rows * shared));
            let weight = bench.numbers(&random(5, columns));
            let (to, out) = (bench.output_numbers(rows * columns), bench.output_numbers(rows * columns));
            let geometry = geometry::rows(rows as u32, columns as u32);
            let arguments = [
                x.into(),
                own.into(),
                sum.into(),
                if whole { part.into() } else { Argument::Null },
                weight.into(),
                to.into(),
                out.into(),
                (columns as u32).into(),
                (shared as u32).into(),
                scale.into(),
                EPS.into(),
            ];
            bench.launch("join_norm", &geometry, &arguments);
            let [x, own, sum, part] = [x, own, sum, part].map(|at| bench.read_numbers(at));
            let (mut joined, kernels) = (vec![0.0; rows * columns], CpuKernels::default());
            match whole {
                true => kernels.join([&x, &own], scale, Some([&sum, &part]), &mut joined),
                false => kernels.join_channels([&x, &own], scale, (&sum, shared), columns, &mut joined),
            }
            let stored = bench.read_numbers(to);
            assert_close(&format!("{rows} x {columns}, {shared}"), dtype, &stored, &joined);
            // it is the rounded sum that is normed
            let want = reference(&stored, &bench.read_numbers(weight));
            let what = format!("{rows} x {columns}, {shared}");
            assert_close(&what, dtype, &bench.read_numbers(out), &want);
        }
    }
}
