//! Plans: the computation, communication and dependencies of one step, for every backend.
//!
//! A [`Plan`] is a list of [`Operation`]s over [`Value`]s; each value is written once, and each
//! operation runs on the compute or the comm [`Lane`]. Overlap is not scheduled: an operation waits only
//! for the previous operation on its lane and for the values it reads. Plans are SPMD: one plan for all
//! ranks, with the rank as a parameter of the executor; a pipeline has one for each stage. No I/O, clocks
//! or threads.

mod architecture;
mod backward;
mod buffers;
mod build;
mod builder;
mod cost;
mod experts;
mod graph;
mod lower;
mod modules;
mod operation;
mod pipeline;
mod shape;
mod step;
mod weights;

#[cfg(test)]
mod expert_tests;
#[cfg(test)]
mod fuse_tests;
#[cfg(test)]
mod tests;

pub use architecture::{Architecture, Channels, LayerSet, Reduce, Staleness, Wiring};
pub use backward::{BackwardOperation, Derivative, Gradient, TrainingPlan};
pub use buffers::{Buffer, BufferId, Buffers};
pub use builder::{Builder, PlanError};
pub use cost::{Cost, Quantity};
pub use experts::{
    CLAMP, CLAMP_SLOPE, ExpertActivation, ExpertLoad, ExpertShape, RoutedWeights, RouterBias,
    RouterScore, Routing,
};
pub use graph::{CommDType, Plan, PlanSpec, Precision, SCALED_TOGETHER, Variant};
pub use lower::Lowering;
pub use operation::{
    Element, GradientId, Kind, Lane, Module, OpId, Operation, Phase, Placement, Rows, Value, ValueId,
    WeightId,
};
pub use pipeline::{stage_layers, stage_problem};
pub use shape::{
    AttentionShape, AttentionWindow, DType, HeadStep, KvDType, Latent, ModelShape, Rope, RopeScaling,
    Temperature, Yarn, division_problem,
};
pub use step::{Groups, Step};
pub use weights::{QUANTIZED, Shard, Tensor, Weight, WeightPart};

/// Shared by the tests of all packages; hidden, because `cfg(test)` does not reach dependencies.
#[doc(hidden)]
pub mod testing {
    /// Every kind of architecture, for tests with models of at least three layers.
    pub const ARCHITECTURES: [&str; 20] = [
        "standard",
        "ladder",
        "ladder:2",
        "ladder:[0+2]",
        "stale:2",
        "stale:3",
        "parallel",
        "parallel+ladder",
        "desync:2",
        "desync:3",
        "delayed:1",
        "delayed:3",
        "sync-drop:2",
        "kraken",
        "farskip",
        "tracks:1",
        "tracks:3",
        "partial:0.5",
        "partial:0.5+ladder",
        "upper-bound",
    ];
}
