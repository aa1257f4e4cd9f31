//! Comparison of two traces of one engine: P2P on and off, two versions, a flag.
//!
//! | file | purpose |
//! |---|---|
//! | `steps` | steps of a trace, also of one without markers, and operations by name and place |
//! | `compare` | paired steps: what became slower, and the parts that explain it |
//! | `gate` | limits on the change |
//! | `prediction` | stored predictions, and their error once the change was measured |

mod compare;
mod gate;
mod prediction;
mod steps;
#[cfg(test)]
mod tests;

pub use compare::{
    ChangedLayer, ChangedOperation, ChangedPart, PerStep, SideSummary, TraceDiff, operations_table,
    parts_table, trace_diff,
};
pub use gate::judge_diff;
pub use prediction::{PredictedRow, Prediction, PredictionCheck, checked, checks_table};
