//! Segments of a step that are timed as one ([`StreamSegments`]), and what they depend on ([`Skeleton`]).

use std::collections::HashMap;

use crate::cuda::schedule::{Schedule, StreamId, StreamOperation};
use plan::{Lane, Operation, Plan};
use trace::{OperationInfo, OperationKind};

/// Lanes and dependencies of operations, or of parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skeleton {
    /// Lane of each operation.
    pub lanes: Vec<Lane>,
    /// Operations whose results each operation reads or awaits. Excludes the previous operation of the lane
    /// unless it is read.
    pub reads_from: Vec<Vec<u32>>,
}

impl Skeleton {
    pub fn from_plan(plan: &Plan) -> Self {
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

/// Consecutive operations of one stream: the stream does not wait within them, and no other stream waits for
/// only some of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSegment {
    /// Operations in plan order.
    pub operations: Vec<u32>,
    pub stream: Lane,
    /// Previous part on the stream, whose end is this part's start; `None` if the stream waits in between.
    pub follows: Option<usize>,
}

/// Parts of a step on one rank, in enqueue order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSegments {
    /// All parts; each operation of the plan is in exactly one.
    pub parts: Vec<StreamSegment>,
    /// Part of each operation.
    part_of: Vec<u32>,
}

/// True if two operations of one stream may be timed as one: same module, and not a collective.
fn belong_together(a: &Operation, b: &Operation) -> bool {
    let module = |o: &Operation| (o.module, o.layer, o.group);
    module(a) == module(b) && !a.kind.is_collective() && !b.kind.is_collective()
}

impl StreamSegments {
    /// Divides `plan` into parts, as `schedule` executes it on its first rank.
    pub fn new(plan: &Plan, schedule: &Schedule) -> Self {
        let mut parts: Vec<StreamSegment> = Vec::new();
        let mut part_of = vec![0; plan.operations.len()];
        // last part of each stream since its last wait, and if more operations may join: no other stream waits for it
        let mut last: HashMap<StreamId, (usize, bool)> = HashMap::new();
        for item in &schedule.items {
            match *item {
                StreamOperation::Wait { stream, .. } => {
                    last.remove(&stream);
                }
                StreamOperation::Record { stream, .. } => {
                    last.entry(stream).and_modify(|(_, is_open)| *is_open = false);
                }
                StreamOperation::Launch { stream, operation } if stream.rank == 0 => {
                    let before = last.get(&stream).copied();
                    let joins = |&(part, is_open): &(usize, bool)| {
                        let first = &plan.operations[parts[part].operations[0] as usize];
                        is_open && belong_together(first, &plan.operations[operation as usize])
                    };
                    let part = match before.filter(joins) {
                        Some((part, _)) => part,
                        None => {
                            let follows = before.map(|(part, _)| part);
                            parts.push(StreamSegment {
                                operations: Vec::new(),
                                stream: stream.lane,
                                follows,
                            });
                            parts.len() - 1
                        }
                    };
                    parts[part].operations.push(operation);
                    part_of[operation as usize] = part as u32;
                    last.insert(stream, (part, true));
                }
                StreamOperation::Launch { .. } | StreamOperation::Mark { .. } => {}
            }
        }
        Self { parts, part_of }
    }

    /// Lanes and dependencies of the parts.
    pub fn skeleton(&self, plan: &Plan) -> Skeleton {
        let of_operations = Skeleton::from_plan(plan);
        let reads_from = |(index, part): (usize, &StreamSegment)| {
            let operations = part.operations.iter();
            let read = operations.flat_map(|operation| &of_operations.reads_from[*operation as usize]);
            self.other_parts(index, read.copied())
        };
        let lane = |part: &StreamSegment| of_operations.lanes[part.operations[0] as usize];
        Skeleton {
            lanes: self.parts.iter().map(lane).collect(),
            reads_from: self.parts.iter().enumerate().map(reads_from).collect(),
        }
    }

    /// Operations table of the parts, starting at index `base`. `operations` is the table of single
    /// operations, with the plan's operations starting at index `first`. A part with several operations is
    /// named after the scope of its first operation.
    pub fn table(&self, operations: &[OperationInfo], first: u32, base: u32) -> Vec<OperationInfo> {
        let info_of = |operation: u32| &operations[(first + operation) as usize];
        let mut parts_of_scope: HashMap<String, u32> = HashMap::new();
        let mut info = |(index, part): (usize, &StreamSegment)| {
            let all = || part.operations.iter().map(|operation| info_of(*operation));
            let mut info = info_of(part.operations[0]).clone();
            if part.operations.len() > 1 {
                let scope = info.name.rsplit_once('/').map_or(info.name.as_str(), |(scope, _)| scope);
                let count = parts_of_scope.entry(scope.to_owned()).and_modify(|n| *n += 1).or_insert(1);
                info.name = if *count == 1 { scope.to_owned() } else { format!("{scope}:{count}") };
                info.kind = OperationKind::Module;
                info.shape = String::new();
                info.origins = all().flat_map(|info| info.origins.iter().cloned()).collect();
                info.cost = all().skip(1).fold(info.cost, |sum, info| sum + info.cost);
            }
            let awaited = all().flat_map(|info| &info.waits_for).map(|operation| operation - first);
            let parts = self.other_parts(index, awaited).into_iter();
            info.waits_for = parts.map(|part| base + part).collect();
            info
        };
        self.parts.iter().enumerate().map(&mut info).collect()
    }

    /// Parts of these operations in ascending order, without part `own`.
    fn other_parts(&self, own: usize, operations: impl Iterator<Item = u32>) -> Vec<u32> {
        let parts = operations.map(|operation| self.part_of[operation as usize]);
        let mut parts: Vec<u32> = parts.filter(|part| *part as usize != own).collect();
        parts.sort_unstable();
        parts.dedup();
        parts
    }
}
