//! What is known of a step before it ran: on which lane each operation is, and what it reads.

use plan::{Lane, Plan};

/// Lanes and reads of a step's operations, or of its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skeleton {
    /// The lane of each operation.
    pub lanes: Vec<Lane>,
    /// By operation: the operations whose results it reads or awaits, its lane's previous one left out
    /// unless it reads from it.
    pub reads_from: Vec<Vec<u32>>,
}

impl Skeleton {
    /// The skeleton of a plan: its lanes, and which operations each reads from.
    pub fn of(plan: &Plan) -> Self {
        let writers = plan.writers();
        let reads_from = plan.operations.iter().map(|operation| {
            let read = operation.reads.iter().filter_map(|value| writers[value.index()]);
            let mut from: Vec<u32> =
                read.chain(operation.after.iter().copied()).map(|operation| operation.0).collect();
            from.sort_unstable();
            from.dedup();
            from
        });
        Self {
            lanes: plan.operations.iter().map(|operation| operation.lane).collect(),
            reads_from: reads_from.collect(),
        }
    }
}

/// When an operation of a step was ready, started and ended (ns since the step's start).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationTime {
    /// When everything that the operation reads was there.
    pub ready_ns: i64,
    /// When the operation started, having waited for its lane.
    pub start_ns: i64,
    /// When the operation ended.
    pub end_ns: i64,
}
