//! Shapes, specs and plans for tests.

use crate::plan::{
    Architecture, DType, HeadStep, Lowering, ModelShape, Phase, Plan, PlanSpec, Precision, Rope,
};
use crate::table::Spec;

/// A cell on sim: TP 2, batch 1, prompt 1024, output 512, f16, h100_sxm, P2P on.
pub(crate) fn spec(architecture: &str, model: &str) -> Spec {
    Spec {
        architecture: architecture.parse().unwrap(),
        model: model.into(),
        dtype: DType::F16,
        tp: 2,
        batch: 1,
        prompt_tokens: 1024,
        output_tokens: 512,
        samples: 1,
        warmup: 0,
        ..Spec::default()
    }
}

/// The shape of Llama 3 70B, the model of most published measurements.
pub(crate) fn shape_70b() -> ModelShape {
    ModelShape {
        layers: 80,
        hidden: 8192,
        heads: 64,
        kv_heads: 8,
        head_dim: 128,
        qkv: HeadStep::Plain,
        intermediate: 28672,
        vocab: 128_256,
        rope: Rope { theta: 500_000.0, scaling: None },
        norm_eps: 1e-5,
        tied_embeddings: false,
    }
}

/// A model of four small layers.
pub(crate) fn shape_tiny() -> ModelShape {
    ModelShape {
        layers: 4,
        hidden: 64,
        heads: 8,
        kv_heads: 4,
        head_dim: 8,
        qkv: HeadStep::Plain,
        intermediate: 160,
        vocab: 256,
        ..shape_70b()
    }
}

/// A plan of the native stack in f16.
pub(crate) fn plan(architecture: &Architecture, shape: &ModelShape, tp: u32, phase: Phase) -> Plan {
    Plan::new(&PlanSpec {
        shape: shape.clone(),
        architecture: architecture.clone(),
        tp,
        phase,
        precision: Precision::uniform(DType::F16),
        lowering: Lowering { fuse_add_norm: true, ..Lowering::default() },
        variant: crate::plan::Variant::default(),
        batch: 1,
    })
    .unwrap()
}
