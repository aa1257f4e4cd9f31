//! Checks of `matvec` and `matvec_logits`, as they are compiled and launched for each shape.

use super::compile::{ARCHITECTURES, nvrtc, registers};
use super::{Argument, Bench, DTYPES, Handle, assert_close, checks, random};
use model::{Matrix, MatrixData};
use plan::DType;
use run::testing::cpu::{CpuKernels, Panels};
use run::testing::cuda::KernelOptions;
use run::testing::cuda::matvec::{MOST_ROWS, MatvecKernel, matvec_geometry, most_rows};
use run::testing::cuda::unit_of;
use run::testing::cuda::{cubin, defines, options_for};

checks!(
    few_rows_times_weights_are_as_the_cpu_backend_s,
    rows_up_to_twice_as_many_go_through_tensor_cores,
    rows_of_weights_need_not_begin_on_16_bytes,
    inputs_of_known_models_are_divided_well,
    prefetch_for_the_next_product_changes_no_bit,
);

fn few_rows_times_weights_are_as_the_cpu_backend_s(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        // f16 differs from bf16 in conversions alone
        let several: Vec<u32> =
            if dtype == DType::F16 { vec![1, 2, 7] } else { (1..=MOST_ROWS).collect() };
        for rows in several {
            // packs that divide evenly among no number of warps; blocks of one output, of some, of many
            for outputs in [1, 7, 61] {
                one(bench, dtype, rows, 520, outputs, 3);
            }
            one(bench, dtype, rows, 520, 530, 2);
        }
    }
}

fn rows_up_to_twice_as_many_go_through_tensor_cores(bench: &mut Bench<'_>) {
    for (dtype, several) in [(DType::Bf16, vec![9, 13, 16]), (DType::F16, vec![11])] {
        for rows in several {
            assert!(rows <= most_rows(dtype, 520));
            // 1, 2 and 4 tiles, of which the last are not full; 4 in two rounds
            for outputs in [41, 61, 110, 250] {
                one(bench, dtype, rows, 520, outputs, 3);
            }
            // most of a turn is past the end
            one(bench, dtype, rows, 8, 61, 1);
        }
    }
}

fn rows_of_weights_need_not_begin_on_16_bytes(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        for (rows, inputs) in [(1, 101), (3, 101), (8, 1), (1, 1030)] {
            one(bench, dtype, rows, inputs, 37, 2);
        }
    }
}

fn inputs_of_known_models_are_divided_well(bench: &mut Bench<'_>) {
    for inputs in [1024, 3584, 4096, 8192, 14_336] {
        for rows in [1, 4] {
            one(bench, DType::Bf16, rows, inputs, 35, 1);
        }
    }
    // rows in parts
    one(bench, DType::Bf16, 1, 20_000, 9, 1);
    one(bench, DType::F32, 2, 14_336, 9, 1);
}

fn prefetch_for_the_next_product_changes_no_bit(bench: &mut Bench<'_>) {
    let (dtype, inputs, outputs, multiprocessors) = (DType::Bf16, 520, 110, 3);
    for rows in [1, 16] {
        let mut chosen = matvec_geometry(dtype, rows, inputs, outputs, multiprocessors);
        bench.start(dtype);
        let x = bench.numbers(&random(1, (rows * inputs) as usize));
        let w = bench.numbers(&random(2, (inputs * outputs) as usize));
        let start = chosen.start(dtype, inputs, outputs, multiprocessors, 4);
        let mut product = |chosen: &MatvecKernel, more: &[Argument]| {
            let out = bench.output_numbers((rows * outputs) as usize);
            let own = [x.into(), w.into(), out.into(), inputs.into(), outputs.into()];
            bench.launch_with("matvec", &chosen.defines, &chosen.geometry, &[&own[..], more].concat());
            bench.read_numbers(out)
        };
        let without = product(&chosen, &[]);
        chosen.defines.push(("AHEAD", chosen.bytes_a_block(multiprocessors, 4)));
        let next =
            [start.outputs, start.blocks, start.pitch, start.rows, start.bytes].map(Argument::from);
        let with = product(&chosen, &[&[w.into()], &next[..]].concat());
        assert_eq!(with, without, "{rows} rows");
    }
}

/// Blocks of 16-bit products leave half of a multiprocessor's registers to others, as `matvec_geometry` says, and
/// nothing of a thread is in memory for it (sm_100 and 4 tiles: a few bytes).
#[test]
fn what_is_chosen_compiles_within_its_registers() {
    let Some(nvrtc) = nvrtc() else { return };
    let unit = unit_of("matvec").expect("a unit");
    let shapes = [1024, 4096, 14_336].into_iter().flat_map(|inputs| {
        // outputs for 2 tiles a block and for 4
        [4096, 28_672]
            .into_iter()
            .flat_map(move |outputs| [1, 8, 16].map(|rows| (rows, inputs, outputs)))
    });
    let shapes = shapes.flat_map(|shape| [DType::Bf16, DType::Fp8].map(|weights| (weights, shape)));
    let mut told = Vec::new();
    for (weights, (rows, inputs, outputs)) in shapes {
        let chosen = matvec_geometry(weights, rows, inputs, outputs, 132);
        // fp8 weights of more than 8 rows take all of a multiprocessor's registers but those of a short kernel
        let most = if weights == DType::Fp8 && rows > MOST_ROWS { 60 << 10 } else { 36 << 10 };
        let asked = KernelOptions { programmatic: true, ..KernelOptions::default() };
        for sm in ARCHITECTURES {
            let mut options = options_for(&defines(unit, &asked, &chosen.defines, sm), sm);
            options.push("--ptxas-options=-v".to_owned());
            let output = cubin(nvrtc, unit, &options).unwrap_or_else(|error| panic!("{error}"));
            let kernels = registers(&output.log);
            assert_eq!(kernels.len(), 2, "{}", output.log);
            for (kernel, registers, spilled) in kernels {
                let what = format!("{kernel}, {}", options.join(" "));
                let block = registers.next_multiple_of(8) * chosen.geometry.block[0];
                assert!(block * (512 / chosen.geometry.block[0]) <= most, "{what}: {registers}");
                let few = if sm < (10, 0) && !chosen.defines.contains(&("TILES", 4)) { 0 } else { 100 };
                assert!(spilled <= few, "{what}: {spilled} bytes");
                told.push((kernel, weights, rows, inputs, outputs, sm, registers));
            }
        }
    }
    for (kernel, weights, rows, inputs, outputs, sm, registers) in told {
        println!(
            "{kernel} {rows} x [{inputs}, {outputs}] {weights}, sm_{}{}: {registers} registers",
            sm.0, sm.1
        );
    }
}

fn one(bench: &mut Bench<'_>, dtype: DType, rows: u32, inputs: u32, outputs: u32, multiprocessors: u32) {
    let chosen = matvec_geometry(dtype, rows, inputs, outputs, multiprocessors);
    compare(bench, dtype, [rows, inputs, outputs], &chosen);
}

/// A product as it is chosen, both kernels, against the cpu backend's.
fn compare(
    bench: &mut Bench<'_>,
    dtype: DType,
    [rows, inputs, outputs]: [u32; 3],
    chosen: &MatvecKernel,
) {
    bench.start(dtype);
    let x = bench.numbers(&random(1, (rows * inputs) as usize));
    let w = bench.numbers(&random(2, (inputs * outputs) as usize));
    let what = format!("{rows} x [{inputs}, {outputs}] by {:?}", chosen.defines);
    let weights = Matrix {
        outputs: outputs as usize,
        inputs: inputs as usize,
        data: MatrixData::F32(bench.read_numbers(w)),
    };
    let mut wanted = vec![0.0; (rows * outputs) as usize];
    let weights = std::sync::Arc::new(Panels::from_matrix(&weights));
    CpuKernels::default().matmul(&bench.read_numbers(x), &weights, &mut wanted);

    let [out, again, logits] = products(bench, chosen, (x, w), [rows, inputs, outputs]);
    let got = bench.read_numbers(out);
    assert_close(&what, dtype, &got, &wanted);
    // products of 16-bit numbers are exact in f32: only the sums are rounded; tensor cores truncate theirs
    let tolerance = if chosen.defines.iter().any(|(name, _)| *name == "TILES") { 3e-5 } else { 1e-5 };
    let largest = wanted.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    for (i, (got, wanted)) in bench.read::<f32>(logits).iter().zip(&wanted).enumerate() {
        let error = (got - wanted).abs() / largest;
        // not `>`: a NaN is wrong
        assert!(error <= tolerance, "{what}: logit {i} is {got}, not {wanted} (off by {error:.1e})");
    }

    assert_eq!(bench.read_numbers(again), got, "{what}: not the same twice");
}

/// What both kernels make of x and w: numbers twice, and logits.
pub(super) fn products(
    bench: &mut Bench<'_>,
    chosen: &MatvecKernel,
    (x, w): (Handle, Handle),
    [rows, inputs, outputs]: [u32; 3],
) -> [Handle; 3] {
    let count = (rows * outputs) as usize;
    let outs = [bench.output_numbers(count), bench.output_numbers(count), bench.output::<f32>(count)];
    for (kernel, out) in ["matvec", "matvec", "matvec_logits"].into_iter().zip(outs) {
        let arguments = [x.into(), w.into(), out.into(), inputs.into(), outputs.into()];
        bench.launch_with(kernel, &chosen.defines, &chosen.geometry, &arguments);
    }
    outs
}
