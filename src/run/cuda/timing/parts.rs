//! Segments of a step that events can bracket without splitting a unit: single collectives, and consecutive
//! operations of a module on one stream.

use std::collections::HashMap;

use super::Skeleton;
use crate::cuda::schedule::{Item, Schedule, StreamId};
use plan::{Lane, Operation, Plan};
use trace::OperationInfo;

/// Consecutive operations of one stream: the stream does not wait within them, and no other stream waits for
/// only some of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Operations in plan order.
    pub operations: Vec<u32>,
    pub stream: Lane,
    /// Previous part on the stream, whose end is this part's start; `None` if the stream waits in between.
    pub follows: Option<usize>,
}

/// Parts of a step on one rank, in enqueue order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// All parts; each operation of the plan is in exactly one.
    pub parts: Vec<Part>,
    /// Part of each operation.
    of: Vec<u32>,
}

/// True if two operations of one stream may be timed as one: same module, and not a collective.
fn belong_together(a: &Operation, b: &Operation) -> bool {
    let what = |o: &Operation| (o.module, o.layer, o.group, o.kind.is_collective());
    what(a) == what(b) && !a.kind.is_collective()
}

impl Parts {
    /// Divides `plan` into parts, as `schedule` executes it on its first rank.
    pub fn of(plan: &Plan, schedule: &Schedule) -> Self {
        let mut parts: Vec<Part> = Vec::new();
        let mut of = vec![0; plan.operations.len()];
        // last part of each stream since its last wait, and whether more operations may join it
        let mut last: HashMap<StreamId, (usize, bool)> = HashMap::new();
        for item in &schedule.items {
            match *item {
                Item::Wait { stream, .. } => {
                    last.remove(&stream);
                }
                Item::Record { stream, .. } => {
                    last.entry(stream).and_modify(|(_, is_open)| *is_open = false);
                }
                Item::Launch { stream, operation } if stream.rank == 0 => {
                    let before = last.get(&stream).copied();
                    let joins = |&(part, is_open): &(usize, bool)| {
                        let first = parts[part].operations[0] as usize;
                        let (first, this) =
                            (&plan.operations[first], &plan.operations[operation as usize]);
                        is_open && belong_together(first, this)
                    };
                    let part = match before.filter(joins) {
                        Some((part, _)) => part,
                        None => {
                            let follows = before.map(|(part, _)| part);
                            parts.push(Part { operations: Vec::new(), stream: stream.lane, follows });
                            parts.len() - 1
                        }
                    };
                    parts[part].operations.push(operation);
                    of[operation as usize] = part as u32;
                    last.insert(stream, (part, true));
                }
                Item::Launch { .. } | Item::Mark { .. } => {}
            }
        }
        Self { parts, of }
    }

    /// Lanes and dependencies of the parts.
    pub fn skeleton(&self, plan: &Plan) -> Skeleton {
        let each = Skeleton::of(plan);
        let reads_from = |(at, part): (usize, &Part)| {
            let read =
                part.operations.iter().flat_map(|operation| &each.reads_from[*operation as usize]);
            let mut from: Vec<u32> = read.map(|operation| self.of[*operation as usize]).collect();
            from.retain(|from| *from as usize != at);
            from.sort_unstable();
            from.dedup();
            from
        };
        Skeleton {
            lanes: self.parts.iter().map(|part| each.lanes[part.operations[0] as usize]).collect(),
            reads_from: self.parts.iter().enumerate().map(reads_from).collect(),
        }
    }

    /// Operations table of the parts, starting at index `base`. `operations` is the table of single
    /// operations, with the plan's operations starting at index `first`. A part with several operations is
    /// named after the scope of its first operation.
    pub fn table(&self, operations: &[OperationInfo], first: u32, base: u32) -> Vec<OperationInfo> {
        let of = |operation: u32| &operations[(first + operation) as usize];
        let mut seen: HashMap<String, u32> = HashMap::new();
        let mut info = |(at, part): (usize, &Part)| {
            let all = || part.operations.iter().map(|operation| of(*operation));
            let mut info = of(part.operations[0]).clone();
            if part.operations.len() > 1 {
                let scope = info.name.rsplit_once('/').map_or(info.name.as_str(), |(scope, _)| scope);
                let times = seen.entry(scope.to_owned()).and_modify(|times| *times += 1).or_insert(1);
                info.name = if *times == 1 { scope.to_owned() } else { format!("{scope}:{times}") };
                info.kind = "module".into();
                info.shape = String::new();
                info.origins = all().flat_map(|info| info.origins.iter().cloned()).collect();
                info.cost = all().skip(1).fold(info.cost, |sum, info| sum + info.cost);
            }
            let waits = all().flat_map(|info| &info.waits_for).map(|on| self.of[(on - first) as usize]);
            let mut waits: Vec<u32> = waits.filter(|on| *on as usize != at).collect();
            waits.sort_unstable();
            waits.dedup();
            info.waits_for = waits.into_iter().map(|on| base + on).collect();
            info
        };
        self.parts.iter().enumerate().map(&mut info).collect()
    }
}
