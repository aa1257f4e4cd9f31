//! Plans: what a step of decoding computes, communicates and waits for, on every backend.
//!
//! A [`Plan`] is a list of [`Operation`]s over [`Value`]s, each value written once, each operation on
//! the compute or the comm [`Lane`]. Nobody schedules overlap: an operation waits for its lane's
//! previous operation, for the values it reads, and for nothing else. The plan is SPMD: one for all
//! ranks, the rank a parameter of whoever executes it. Pure: no I/O, no clock, no threads.

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
