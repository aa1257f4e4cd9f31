//! fp8 weights on a GPU: memory layout, choice of product, and the kernels that create and expand them.
//!
//! Our kernel reads one byte per weight, once per 16 rows of x. cuBLASLt cannot multiply bf16 activations
//! with fp8 weights, so products with more rows expand the weights to bf16 first, which moves five bytes per
//! weight.

use std::ops::Range;

use super::kernels::{KernelCall, geometry, matvec};
use super::program::{GpuProgram, StepSize};
use machine::driver::{DevicePtr, Function, arguments};
use plan::{DType, Kind, ModelShape, Weight};

/// Maximum number of rows for our kernel: four launches of 16 read 4 bytes per weight, expanding moves 5. Not measured.
const OWN_ROWS: u32 = 64;

/// Byte offset of the scales in a weight of `numbers` elements, as in `kernels/e4m3.cuh`.
pub fn scales_at(numbers: u64) -> u64 {
    numbers.next_multiple_of(16)
}

/// Size of a weight in memory (bytes).
pub(super) fn bytes(weight: &Weight) -> u64 {
    scales_at(u64::from(weight.inputs) * u64::from(weight.outputs)) + 4 * u64::from(weight.outputs)
}

/// Row ranges of x, one per launch of our kernel; `None` if the weights are expanded instead.
pub(super) fn own_rows(rows: u32, inputs: u32) -> Option<impl Iterator<Item = Range<u32>>> {
    let most = matvec::most_rows(DType::Fp8, inputs);
    let chunk = move |first| first..rows.min(first + most);
    (rows <= OWN_ROWS && most > 0).then(|| (0..rows).step_by(most as usize).map(chunk))
}

/// Size of the largest weight that a step of this size expands to bf16 (bytes).
pub(super) fn expanded_bytes(program: &GpuProgram, shape: &ModelShape, size: &StepSize) -> u64 {
    let plan = &program.plan;
    let products = plan.operations.iter().filter(|operation| operation.kind == Kind::MatMul);
    let expanded = products.filter_map(|operation| {
        let weight = &plan.weights[operation.weight?.index()];
        let rows = plan.values[operation.writes[0].index()].rows;
        let rows = size.of_group(plan.groups, operation.group).rows_of(rows, 0, plan.tp);
        let is_expanded = program.precision.of_weight(weight, shape) == DType::Fp8
            && own_rows(rows, weight.inputs).is_none();
        let numbers = u64::from(weight.inputs) * u64::from(weight.outputs);
        is_expanded.then(|| numbers * program.dtype.bytes())
    });
    expanded.max().unwrap_or(0)
}

/// Launch of the kernel that expands a weight to the format of activations, written to `out`. `expert` is the
/// weight's index and number of experts.
pub(super) fn expand(
    function: Function,
    [weight, out]: [DevicePtr; 2],
    [inputs, outputs]: [u32; 2],
    (expert, experts): (u32, u32),
    multiprocessors: u32,
) -> KernelCall {
    let numbers = u64::from(inputs) * u64::from(outputs);
    let scales = scales_at(numbers * u64::from(experts)) + 4 * u64::from(expert) * u64::from(outputs);
    let (scales, weight) = (weight.offset(scales), weight.offset(numbers * u64::from(expert)));
    let launch = geometry::elements(numbers, multiprocessors);
    KernelCall { function, launch, arguments: arguments![weight, scales, out, inputs, outputs] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Model;
    use plan::Phase;

    fn program(model: &str, phase: Phase, tp: u32) -> (GpuProgram, ModelShape) {
        let shape = Model::resolve(model).expect("built in").shape;
        (GpuProgram::plain(&shape, "ladder", tp, DType::Fp8, phase, false), shape)
    }

    #[test]
    fn rows_are_multiplied_16_at_a_time_up_to_64() {
        let lengths = |part: Range<u32>| part.len();
        let chunks =
            |rows, inputs| own_rows(rows, inputs).map(|parts| parts.map(lengths).collect::<Vec<_>>());
        assert_eq!(chunks(1, 4096), Some(vec![1]));
        assert_eq!(chunks(33, 4096), Some(vec![16, 16, 1]));
        assert_eq!(chunks(64, 4096), Some(vec![16; 4]));
        // rows of weights must begin on 16 bytes
        assert_eq!((chunks(65, 4096), chunks(1, 4104)), (None, None));
    }

    #[test]
    fn the_largest_weight_of_a_long_prefill_is_expanded() {
        let (prefill, shape) = program("llama-3-8b", Phase::Prefill, 2);
        let step = |sequences, tokens| StepSize::prefill((sequences, tokens));
        let (hidden, intermediate) = (u64::from(shape.hidden), u64::from(shape.intermediate));
        // gate and up; the head has but the last row of each sequence
        assert_eq!(expanded_bytes(&prefill, &shape, &step(4, 1024)), 2 * hidden * intermediate);
        assert_eq!(expanded_bytes(&prefill, &shape, &step(4, 16)), 0);
        assert_eq!(
            expanded_bytes(&prefill, &shape, &step(65, 1)),
            2 * hidden * u64::from(shape.vocab),
            "a row of the head for each sequence"
        );
        let (decode, shape) = program("llama-3-8b", Phase::Decode, 2);
        assert_eq!(expanded_bytes(&decode, &shape, &StepSize::decode(64)), 0);
    }
}
