//! Plans: the computation, communication and dependencies of one step, for every backend.
//!
//! A [`Plan`] is a list of [`Operation`]s over [`Value`]s; each value is written once, and each
//! operation runs on the compute or the comm [`Lane`]. Overlap is not scheduled: an operation waits only
//! for the previous operation on its lane and for the values it reads. Plans are SPMD: one plan for all
//! ranks, with the rank as a parameter of the executor. No I/O, clocks or threads.

mod architecture;
mod backward;
mod buffers;
mod build;
mod builder;
mod common;
mod cost;
mod digest;
mod fuse;
#[cfg(test)]
mod fuse_tests;
mod graph;
mod infer;
mod lower;
mod operation;
mod shape;
#[cfg(test)]
mod tests;
mod value;
mod variant;
mod weights;

pub use architecture::{Architecture, LayerSet, Reduce, Wiring};
pub use backward::{BackwardOperation, Derivative, Gradient, GradientId, TrainingPlan};
pub use buffers::{Buffer, BufferId, Buffers};
pub use builder::{Builder, PlanError};
pub use cost::{Cost, Groups, Quantity, Step};
pub use graph::{Plan, PlanSpec, Precision};
pub use lower::Lowering;
pub use operation::{Kind, Lane, Module, Operation, Phase};
pub use shape::{DType, HeadStep, ModelShape, Rope, RopeScaling};
pub use value::{Element, OpId, Placement, Rows, Value, ValueId, WeightId};
pub use variant::{CommDType, SCALED_TOGETHER, Variant};
pub use weights::{QUANTIZED, Shard, Tensor, Weight, WeightPart};
