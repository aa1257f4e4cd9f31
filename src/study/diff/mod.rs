//! Comparison of two traces of one engine: P2P on and off, two versions, a flag.
//!
//! | file | purpose |
//! |---|---|
//! | `compare` | steps of a trace, also of one without markers, in pairs: what became slower, and the parts that explain it |
//! | `gate` | limits on the change; stored predictions, and their error once the change was measured |

mod compare;
mod gate;
#[cfg(test)]
mod tests;

pub use compare::{
    ChangedLayer, ChangedOperation, ChangedPart, PerStep, SideSummary, TraceDiff, operations_table,
    parts_table, trace_diff,
};
pub use gate::{PredictedRow, Prediction, PredictionCheck, checked, checks_table, judge_diff};
