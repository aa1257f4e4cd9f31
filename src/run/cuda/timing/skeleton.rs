//! Static structure of a step: the lane and the dependencies of each operation.

use plan::{Lane, Plan};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skeleton {
    pub lanes: Vec<Lane>,
    /// Operations whose results each operation reads or awaits. Excludes the previous operation of the lane
    /// unless it is read.
    pub reads_from: Vec<Vec<u32>>,
}

impl Skeleton {
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

/// Ready, start and end time of an operation (ns since the start of the step).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationTime {
    /// Time when all inputs were complete.
    pub ready_ns: i64,
    /// Start, after waiting for the lane.
    pub start_ns: i64,
    pub end_ns: i64,
}
