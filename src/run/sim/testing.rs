//! Shapes, specs and plans for tests.

use plan::{Architecture, DType, Lowering, ModelShape, Phase, Plan, PlanSpec, Precision};
pub(crate) use table::testing::{cell as spec, shape_70b, shape_tiny};

pub(crate) fn plan(architecture: &Architecture, shape: &ModelShape, tp: u32, phase: Phase) -> Plan {
    Plan::new(&PlanSpec {
        shape: shape.clone(),
        architecture: architecture.clone(),
        tp,
        phase,
        precision: Precision::uniform(DType::F16),
        lowering: Lowering { fuse_add_norm: true, ..Lowering::default() },
        variant: plan::Variant::default(),
        batch: 1,
    })
    .unwrap()
}
