//! Checks of `add`, `add_mean`, `join`, `mean_share` and `silu_mul`.

use super::{Argument, Bench, DTYPES, assert_close, checks, random};
use run::testing::cpu::CpuKernels;
use run::testing::cuda::geometry;

checks!(
    add_is_the_cpu_backends,
    add_mean_is_the_cpu_backends,
    join_is_the_cpu_backends,
    join_of_channels_is_the_cpu_backends,
    mean_share_is_the_cpu_backends,
    silu_mul_is_the_cpu_backends
);

const COUNTS: [usize; 6] = [1, 7, 8, 8192, 4099, 1_000_003];

fn add_is_the_cpu_backends(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        for count in COUNTS {
            bench.start(dtype);
            let (a, b) = (bench.numbers(&random(1, count)), bench.numbers(&random(2, count)));
            let out = bench.output_numbers(count);
            let arguments = [a.into(), b.into(), out.into(), (count as u64).into()];
            bench.launch("add", &geometry::elements(count as u64, 4), &arguments);
            let mut want = vec![0.0; count];
            CpuKernels::default().add(&bench.read_numbers(a), &bench.read_numbers(b), &mut want);
            assert_close(&format!("{count}"), dtype, &bench.read_numbers(out), &want);
        }
    }
}

fn add_mean_is_the_cpu_backends(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        for count in COUNTS {
            bench.start(dtype);
            let (a, b) = (bench.numbers(&random(1, count)), bench.numbers(&random(2, count)));
            let out = bench.output_numbers(count);
            let arguments =
                [a.into(), b.into(), out.into(), (1.0 / 3.0f32).into(), (count as u64).into()];
            bench.launch("add_mean", &geometry::elements(count as u64, 4), &arguments);
            let mut want = vec![0.0; count];
            let (a, b) = (bench.read_numbers(a), bench.read_numbers(b));
            CpuKernels::default().add_scaled(&a, 1.0 / 3.0, &b, &mut want);
            assert_close(&format!("{count}"), dtype, &bench.read_numbers(out), &want);
        }
    }
}

fn join_is_the_cpu_backends(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        for (count, others) in COUNTS.into_iter().flat_map(|count| [(count, false), (count, true)]) {
            bench.start(dtype);
            let [x, own, sum, part] = [1, 2, 3, 4].map(|seed| bench.numbers(&random(seed, count)));
            let out = bench.output_numbers(count);
            let [sum_or, part_or] =
                [sum, part].map(|at| if others { at.into() } else { Argument::Null });
            let scale = 3.0f32.sqrt();
            let mut arguments = vec![x.into(), own.into(), sum_or, part_or, out.into()];
            arguments.extend::<[Argument; 4]>([
                1u32.into(),
                0u32.into(),
                scale.into(),
                (count as u64).into(),
            ]);
            bench.launch("join", &geometry::elements(count as u64, 4), &arguments);
            let mut want = vec![0.0; count];
            let [x, own, sum, part] = [x, own, sum, part].map(|at| bench.read_numbers(at));
            let others = others.then_some([sum.as_slice(), part.as_slice()]);
            CpuKernels::default().join([&x, &own], scale, others, &mut want);
            assert_close(&format!("{count}"), dtype, &bench.read_numbers(out), &want);
        }
    }
}

fn join_of_channels_is_the_cpu_backends(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        for (rows, columns, shared) in
            [(1, 8, 4), (3, 4096, 1024), (2, 4096, 1027), (5, 37, 18), (4, 96, 95)]
        {
            bench.start(dtype);
            let [x, own] = [1, 2].map(|seed| bench.numbers(&random(seed, rows * columns)));
            let (sum, scale) = (bench.numbers(&random(3, rows * shared)), 3.0f32.sqrt());
            let (count, out) = ((rows * columns) as u64, bench.output_numbers(rows * columns));
            let mut arguments = vec![x.into(), own.into(), sum.into(), Argument::Null, out.into()];
            arguments.extend::<[Argument; 4]>([
                (columns as u32).into(),
                (shared as u32).into(),
                scale.into(),
                count.into(),
            ]);
            bench.launch("join", &geometry::elements(count, 4), &arguments);
            let mut want = vec![0.0; rows * columns];
            let [x, own, sum] = [x, own, sum].map(|at| bench.read_numbers(at));
            CpuKernels::default().join_channels([&x, &own], scale, (&sum, shared), columns, &mut want);
            let what = format!("{rows} rows of {columns}, {shared} summed");
            assert_close(&what, dtype, &bench.read_numbers(out), &want);
        }
    }
}

fn mean_share_is_the_cpu_backends(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        for count in COUNTS {
            bench.start(dtype);
            let x = bench.numbers(&random(1, count));
            let out = bench.output_numbers(count);
            let arguments = [x.into(), out.into(), (1.0 / 3.0f32).into(), (count as u64).into()];
            bench.launch("mean_share", &geometry::elements(count as u64, 4), &arguments);
            let mut want = vec![0.0; count];
            CpuKernels::default().scale(&bench.read_numbers(x), 1.0 / 3.0, &mut want);
            assert_close(&format!("{count}"), dtype, &bench.read_numbers(out), &want);
        }
    }
}

fn silu_mul_is_the_cpu_backends(bench: &mut Bench<'_>) {
    // (rows, stride, offset, width): gate and up alone, after other columns, and without whole packs
    let shapes = [
        (1, 28_672, 0, 14_336),
        (33, 64, 0, 32),
        (2, 5000, 1000, 2000),
        (3, 7, 1, 3),
        (2, 4103, 8, 1024),
        (2, 4104, 4, 1024),
    ];
    for dtype in DTYPES {
        for (rows, stride, offset, width) in shapes {
            bench.start(dtype);
            let mut x = random(9, rows * stride);
            // gates so large that exponentials overflow or vanish
            for (i, gate) in x.iter_mut().enumerate() {
                *gate *= if i % 50 == 0 { 60.0 } else { 4.0 };
            }
            let x = bench.numbers(&x);
            let out = bench.output_numbers(rows * width);
            let arguments = [
                x.into(),
                out.into(),
                (stride as u32).into(),
                (offset as u32).into(),
                (width as u32).into(),
            ];
            bench.launch("silu_mul", &geometry::silu_mul(rows as u32, width as u32), &arguments);
            let mut want = vec![0.0; rows * width];
            CpuKernels::default().silu_mul(&bench.read_numbers(x), stride, offset, width, &mut want);
            let what = format!("{rows} rows of {stride}, {width} from {offset}");
            assert_close(&what, dtype, &bench.read_numbers(out), &want);
        }
    }
}
