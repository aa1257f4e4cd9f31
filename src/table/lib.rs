//! Cells and runs: the requested [`Spec`] of a cell and the resulting [`Record`] of its run.

mod environment;
mod field;
pub mod frame;
mod measures;
mod metrics;
pub mod options;
mod quality;
mod record;
pub mod render;
#[doc(hidden)]
pub mod shared_gpu;
mod spec;
pub mod testing;
mod training;

pub use environment::Environment;
pub use field::{Field, FieldSearch, FieldSource, Unit, fields};
pub use measures::{Better, IntervalColumns, MEASURES, Measure, MeasureScope, measure};
pub use metrics::{
    CellRuns, aggregate, completion_ms, disturbed, hidden_share, hidden_shares, host, is_unsteady,
    limit, metrics, overhead, recorder, stalls, steps_ms, tokens_per_s,
};
pub use options::{
    AboutCollective, BANDWIDTHS_GB_S, Backend, CellOptions, Collective, LATENCIES_US, Link, Nvls,
    OptionEntry, P2p, Recorder, Spec,
};
pub use quality::{FEW_WINDOWS, Quality, RunQuality, WindowQuality, quality};
pub use record::{
    Instrumented, Metrics, Overlap, Percentiles, Record, SCHEMA, Sample, Split, Status, overlap_pct,
    parse, schema_of,
};
pub use spec::{Provenance, VARIANTS};
pub use training::{
    Curve, HeldOutLoss, RunTraining, TRAINING, Training, TrainingSpec, TrainingSpeed, TrainingStep,
};
