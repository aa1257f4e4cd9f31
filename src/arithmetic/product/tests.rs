//! Every instruction set that this machine has, against f64.

use half::bf16;
use proptest::prelude::*;

use super::*;
use crate::matrix::{Matrix, MatrixData};
use crate::mxfp4::{self, MXFP4_BLOCK};

fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| rng.f32() - 0.5).collect()
}

/// Each product, and the sum of its terms' sizes, by which its error is measured.
fn naive(x: &[f32], w: &[f64], inputs: usize) -> Vec<(f64, f64)> {
    let mut all = Vec::new();
    for x in x.chunks_exact(inputs) {
        for w in w.chunks_exact(inputs) {
            let terms = x.iter().zip(w).map(|(a, b)| f64::from(*a) * b);
            all.push(terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs())));
        }
    }
    all
}

fn agrees(rows: usize, inputs: usize, outputs: usize, seed: u64) -> Result<(), TestCaseError> {
    let x = numbers(rows * inputs, seed);
    let w = numbers(outputs * inputs, seed ^ 1);
    let narrow: Vec<bf16> = w.iter().map(|w| bf16::from_f32(*w)).collect();
    let mut all = vec![MatrixData::F32(w.clone()), MatrixData::Bf16(narrow)];
    if inputs.is_multiple_of(MXFP4_BLOCK) {
        let mut packed = (vec![0; w.len() / 2], vec![0; w.len() / MXFP4_BLOCK]);
        mxfp4::quantize(&w, &mut packed.0, &mut packed.1);
        all.push(MatrixData::Mxfp4 { blocks: packed.0, scales: packed.1 });
    }
    for data in all {
        let matrix = Matrix { outputs, inputs, data };
        let exact: Vec<f64> = matrix.numbers().iter().map(|w| f64::from(*w)).collect();
        let panels = Panels::from_matrix(&matrix);
        let as_they_are = naive(&x, &exact, inputs);
        let rounded: Vec<f32> = x.iter().map(|x| bf16::from_f32(*x).to_f32()).collect();
        let rounded = naive(&rounded, &exact, inputs);
        for set in InstructionSet::named() {
            let wanted = if set.rounds(&panels) { &rounded } else { &as_they_are };
            let mut arranged = Arranged::default();
            arranged.fill(&x, &panels, set);
            let mut y = vec![f32::NAN; rows * outputs];
            let onto = ProductOutput { y: &mut y, columns: outputs };
            set.product(&arranged, &panels, 0..outputs.div_ceil(PANEL_WIDTH), onto);
            for (at, (y, (wanted, size))) in y.iter().zip(wanted).enumerate() {
                let error = (f64::from(*y) - wanted).abs();
                prop_assert!(error <= 1e-6 * size + 1e-9, "{set} at {at}: {y} {wanted}");
            }
        }
    }
    Ok(())
}

proptest! {
    /// Few rows and many, panels that are whole and that are not, inputs even and odd.
    #[test]
    fn products_agree_with_f64(rows in 1usize..40, inputs in 1usize..80, outputs in 1usize..100, seed: u64) {
        agrees(rows, inputs, outputs, seed)?;
    }

    /// Blocks of mxfp4, of which a line of scales holds four.
    #[test]
    fn products_with_packed_weights_agree_with_f64(
        rows in 1usize..20, blocks in 1usize..10, outputs in 1usize..70, seed: u64,
    ) {
        agrees(rows, blocks * MXFP4_BLOCK, outputs, seed)?;
    }
}

#[test]
fn wide_inputs_and_many_rows_are_divided_into_blocks() {
    for (rows, inputs, outputs) in
        [(1, 1031, 33), (7, 777, 32), (17, 1200, 17), (40, 513, 16), (530, 600, 16)]
    {
        agrees(rows, inputs, outputs, 3).unwrap();
    }
}

/// Blocks of integers share a scale: an outlier costs the numbers beside it little, even where its weights are 0.
#[test]
fn packed_weights_keep_rows_with_outliers_and_what_is_not_finite() {
    const INPUTS: usize = 3 * MXFP4_BLOCK;
    const OUTLIER: usize = MXFP4_BLOCK + 5;
    let mut w = numbers(INPUTS * 20, 7);
    w.chunks_mut(INPUTS).for_each(|w| w[OUTLIER] = 0.0);
    let mut packed = (vec![0; w.len() / 2], vec![0; w.len() / MXFP4_BLOCK]);
    mxfp4::quantize(&w, &mut packed.0, &mut packed.1);
    let data = MatrixData::Mxfp4 { blocks: packed.0, scales: packed.1 };
    let matrix = Matrix { outputs: 20, inputs: INPUTS, data };
    let exact: Vec<f64> = matrix.numbers().iter().map(|w| f64::from(*w)).collect();
    let panels = Panels::from_matrix(&matrix);
    for set in InstructionSet::named() {
        let product = |x: &[f32]| {
            let mut arranged = Arranged::default();
            arranged.fill(x, &panels, set);
            let mut y = vec![0.0; 20];
            set.product(&arranged, &panels, 0..2, ProductOutput { y: &mut y, columns: 20 });
            y
        };
        let mut x = numbers(INPUTS, 11);
        x[OUTLIER] = -1000.0;
        for factor in [1.0, 1e30, 1e-30, f32::MIN_POSITIVE, 0.0] {
            let mut x = x.clone();
            x[..MXFP4_BLOCK].iter_mut().for_each(|x| *x *= factor);
            for (y, (wanted, size)) in product(&x).iter().zip(naive(&x, &exact, INPUTS)) {
                let error = (f64::from(*y) - wanted).abs();
                assert!(error <= 1e-6 * size + 1e-9, "{set} times {factor}: {y} {wanted}");
            }
        }
        for number in [f32::NAN, f32::INFINITY] {
            x[OUTLIER + 1] = number;
            assert!(product(&x).iter().all(|y| !y.is_finite()), "{set} with {number}");
        }
    }
}
