//! Memory estimate of a rank, computed without a GPU.

use super::blas::WORKSPACE_BYTES;
use super::program::Program;
use super::rank::Sizes;
use crate::sample::Sampling;
use base::error::Result;
use machine::hardware::MemoryNeed;
use plan::{Lowering, ModelShape, Phase, Precision};
use table::Spec;

/// Memory of one rank on a GPU with `multiprocessors` SMs: weights, KV cache, activations of both phases,
/// attention scratch and the cuBLASLt workspace (bytes). Returns an input error if TP does not divide the
/// model.
pub fn memory_need(spec: &Spec, shape: &ModelShape, multiprocessors: u32) -> Result<MemoryNeed> {
    let precision = Precision::gpu(spec.dtype);
    let lowering = Lowering { shard_head: spec.shard_head, ..Program::lowering(false) };
    let program = |phase| Program::new(&spec.plan(shape, phase, precision, lowering), 0);
    let sizes = Sizes {
        dtype: precision.activations,
        tp: spec.tp,
        batch: spec.batch,
        capacity: spec.prompt_tokens.saturating_add(spec.output_tokens),
        output_tokens: spec.output_tokens,
        prefill: (spec.batch, spec.prompt_tokens),
        sampling: Sampling::Greedy,
        multiprocessors,
    };
    let (prefill, decode) = (program(Phase::Prefill)?, program(Phase::Decode)?);
    Ok(sizes.need(shape, &prefill, &decode, 1, WORKSPACE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::testing::{shape_70b, spec};
    use plan::DType;

    #[test]
    fn a_shard_of_70b_needs_an_eighth_of_its_layers_and_the_whole_embedding() {
        let spec = Spec { tp: 8, dtype: DType::Bf16, batch: 16, ..spec("ladder", "llama-3-70b") };
        let need = memory_need(&spec, &shape_70b(), 132).unwrap();
        let (h, v) = (8192_u64, 128_256_u64);
        let layer = h * h + 2 * h * 1024 + h * h + 3 * h * 28672;
        assert_eq!(need.weights, 2 * (80 * (layer / 8 + 2 * h) + 2 * v * h + h));
        let tokens = 16 * u64::from(spec.prompt_tokens + spec.output_tokens);
        assert_eq!(need.kv, 2 * 80 * 128 * 2 * tokens);
        assert!(need.workspace > WORKSPACE_BYTES, "attention's partial sums and the table of angles");
        assert!(need.fits(80_000_000_000), "{}", need.arithmetic());
        // a sharded head is an eighth of it, beside room for the other ranks' logits
        let sharded = memory_need(&Spec { shard_head: true, ..spec }, &shape_70b(), 132).unwrap();
        assert_eq!(need.weights - sharded.weights, 2 * v * h / 8 * 7);
        assert_eq!(sharded.workspace - need.workspace, 4 * 16 * v);
    }

    #[test]
    fn fp8_needs_a_byte_a_number_a_scale_an_output_and_room_to_expand_the_largest_weight() {
        let wide = Spec { tp: 8, dtype: DType::Bf16, batch: 16, ..spec("ladder", "llama-3-70b") };
        let spec = Spec { dtype: DType::Fp8, ..wide.clone() };
        let [need, wide] = [&spec, &wide].map(|spec| memory_need(spec, &shape_70b(), 132).unwrap());
        let (h, v) = (8192_u64, 128_256_u64);
        let numbers = (h * h + 2 * h * 1024 + h * h + 3 * h * 28672) / 8;
        let outputs = (h + 2 * 1024 + 2 * 28672) / 8 + 2 * h;
        let layer = numbers + 4 * outputs + 2 * 2 * h;
        // the head like other linear layers; embedding and norms in bf16
        assert_eq!(need.weights, 80 * layer + (v * h + 4 * v) + 2 * v * h + 2 * h);
        assert_eq!((need.kv, need.activations), (wide.kv, wide.activations));
        // gate and up of a prefill; of decode's 16 rows and the head's none is expanded
        assert_eq!(need.workspace - wide.workspace, 2 * h * 2 * 28672 / 8);
        // the head that is the embedding stays as it is
        let tied = ModelShape { tied_embeddings: true, ..shape_70b() };
        let need = memory_need(&spec, &tied, 132).unwrap();
        assert_eq!(need.weights, 80 * layer + 2 * v * h + 2 * h);
    }
}
