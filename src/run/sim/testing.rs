//! Shapes, specs, plans and simulations for tests.

use super::Simulator;
use crate::RunResult;
use plan::{Architecture, DType, Lowering, ModelShape, Phase, Plan, Precision};
use table::Spec;
pub(crate) use table::testing::{cell as spec, shape_70b, shape_tiny};

pub(crate) fn plan(architecture: &Architecture, shape: &ModelShape, tp: u32, phase: Phase) -> Plan {
    let cell = Spec { architecture: architecture.clone(), tp, ..Spec::default() };
    let lowering = Lowering { fuse_add_norm: true, ..Lowering::default() };
    Plan::new(&cell.plan(shape, phase, Precision::uniform(DType::F16), lowering)).unwrap()
}

/// Lanes that leave each other alone.
pub(super) fn alone(mut spec: Spec) -> Spec {
    for key in ["contention.memory", "contention.arithmetic", "contention.comm"] {
        spec.set.insert(key.into(), "0".into());
    }
    spec
}

/// Simulates a cell of a model with this shape.
pub(crate) fn simulate(spec: &Spec, shape: &ModelShape, record: bool) -> RunResult {
    let simulator = Simulator::default();
    let target = simulator.target(&spec.hardware, &spec.stack, &spec.set)?;
    simulator.cell_on(spec, shape, target)?.run(record)
}
