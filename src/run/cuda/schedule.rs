//! Conversion of a plan to an ordered list of stream operations. Pure: data, no driver.
//!
//! A rank has one stream per lane. If no computation may overlap any collective it has a single stream
//! ([`RankLayout::chained`]); its collectives still belong to the comm lane. Work on a stream runs in order.
//! Streams synchronize only through events, and there is an event only for a plan dependency that no other
//! one implies (a transitive reduction: every wait is necessary). A step begins and ends on the first rank's
//! compute stream. The other streams fork from it and join it again, so the list can be captured into one
//! graph, and the next step, which uses the same memory, starts after everything in this one.
//!
//! Buffers need no waits of their own: [`Plan::buffers`] reuses a buffer only if dependencies already order
//! all its users.

use std::collections::HashMap;
use std::ops::Range;

use super::program::beside;
use plan::{Lane, Plan};

/// Local ranks of one thread, and the execution of their collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankLayout {
    /// Number of local ranks on one device.
    pub ranks: u32,
    /// True if a collective is one launch for all local ranks, on the first one's comm stream (loopback);
    /// false if each rank launches its own part.
    pub joint: bool,
    /// True if collectives that nothing may overlap go onto the compute stream, which saves two events and a
    /// change of streams each. False if communication has SMs of its own.
    pub chained: bool,
}

impl RankLayout {
    /// One local rank whose collectives involve other devices.
    pub const ONE: Self = Self { ranks: 1, joint: false, chained: true };

    /// All ranks of a tensor-parallel group on one device.
    pub fn loopback(ranks: u32) -> Self {
        Self { ranks, joint: true, chained: true }
    }

    /// Lane whose streams execute a plan's collectives.
    fn comm_lane(&self, plan: &Plan) -> Lane {
        let is_alone = || !beside(plan).contains(&true);
        if self.chained && is_alone() { Lane::Compute } else { Lane::Comm }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId {
    /// Index among the local ranks.
    pub rank: u32,
    pub lane: Lane,
}

/// One stream operation of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOperation {
    /// Launches an operation of a local rank; a joint collective belongs to rank 0.
    Launch {
        stream: StreamId,
        /// Index in the plan.
        operation: u32,
    },
    Record {
        stream: StreamId,
        event: u32,
    },
    Wait {
        stream: StreamId,
        event: u32,
    },
    Mark {
        /// Stream of the rank that owns the mark.
        stream: StreamId,
        mark: u32,
    },
}

/// Position of a timing mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventPosition {
    /// Start of the step on the first local rank's compute stream, before other streams fork.
    Start,
    /// Directly before the operation, after its waits.
    Before(usize),
    /// After the operation and the event that other streams wait for, so that they do not wait for the mark.
    /// The last mark of a secondary stream comes before that event.
    After(usize),
}

/// Lookup of the mark at a position.
pub type EventLookup<'a> = &'a dyn Fn(EventPosition) -> Option<u32>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Items in enqueue order.
    pub items: Vec<StreamOperation>,
    pub events: u32,
    pub layout: RankLayout,
}

/// Work of a node: an operation, or the begin or end of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScheduledWork {
    Begin,
    Operation(u32),
    End,
}

#[derive(Debug)]
struct Node {
    stream: usize,
    work: ScheduledWork,
    /// Position on its stream, from 1.
    position: u32,
    /// Vector clock: completed work of each stream when this node completes.
    clock: Vec<u32>,
    /// Nodes of other streams to wait for.
    waits: Vec<usize>,
    /// Event recorded after the node, if another node waits for it.
    event: Option<u32>,
}

impl Schedule {
    /// Schedules one step of `plan`, with timing marks if given.
    pub fn new(plan: &Plan, layout: &RankLayout, marks: Option<EventLookup<'_>>) -> Self {
        let streams = streams(plan, layout);
        let mut nodes = nodes(plan, layout, &streams);
        let events = number_events(&mut nodes);
        // nothing waits for work after a stream's last event, not even the end of the step
        let mut last = vec![0; streams.len()];
        nodes.iter().enumerate().for_each(|(index, node)| last[node.stream] = index);
        let mut items = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            let stream = streams[node.stream];
            let mark =
                |at| Some(StreamOperation::Mark { stream, mark: marks.and_then(|marks| marks(at))? });
            let wait =
                |other: &usize| nodes[*other].event.map(|event| StreamOperation::Wait { stream, event });
            let record = node.event.map(|event| StreamOperation::Record { stream, event });
            match node.work {
                ScheduledWork::Begin => {
                    items.extend(mark(EventPosition::Start).into_iter().chain(record))
                }
                ScheduledWork::End => items.extend(node.waits.iter().filter_map(wait)),
                ScheduledWork::Operation(operation) => {
                    items.extend(node.waits.iter().filter_map(wait));
                    items.extend(mark(EventPosition::Before(operation as usize)));
                    items.push(StreamOperation::Launch { stream, operation });
                    let after = mark(EventPosition::After(operation as usize));
                    let is_last = node.stream != 0 && last[node.stream] == index;
                    let order = if is_last { [after, record] } else { [record, after] };
                    items.extend(order.into_iter().flatten());
                }
            }
        }
        Self { items, events, layout: *layout }
    }

    /// Launches (rank, operation) that directly follow another launch on their stream, mapped to that
    /// operation. They may start while their predecessor still runs. Launches after a wait depend on more
    /// than their predecessor, and launches after a mark on no kernel, so both are left out. `is_launched` is
    /// true for operations that launch something.
    pub fn early_starts(&self, is_launched: impl Fn(u32, u32) -> bool) -> HashMap<(u32, u32), u32> {
        let mut last: HashMap<StreamId, u32> = HashMap::new();
        let mut following = HashMap::new();
        for item in &self.items {
            match *item {
                StreamOperation::Launch { stream, operation } if is_launched(stream.rank, operation) => {
                    if let Some(before) = last.insert(stream, operation) {
                        following.insert((stream.rank, operation), before);
                    }
                }
                StreamOperation::Wait { stream, .. } | StreamOperation::Mark { stream, .. } => {
                    last.remove(&stream);
                }
                StreamOperation::Launch { .. } | StreamOperation::Record { .. } => {}
            }
        }
        following
    }

    /// Streams of the schedule, starting with the one where the step begins.
    pub fn streams(&self) -> Vec<StreamId> {
        let first = StreamId { rank: 0, lane: Lane::Compute };
        let mut streams = vec![first];
        for item in &self.items {
            if let StreamOperation::Launch { stream, .. } = item
                && !streams.contains(stream)
            {
                streams.push(*stream);
            }
        }
        streams
    }
}

fn streams(plan: &Plan, layout: &RankLayout) -> Vec<StreamId> {
    let communicates =
        plan.operations.iter().any(|o| o.lane == Lane::Comm) && layout.comm_lane(plan) == Lane::Comm;
    let compute = (0..layout.ranks).map(|rank| StreamId { rank, lane: Lane::Compute });
    let comm_ranks = match (communicates, layout.joint) {
        (false, _) => 0,
        (true, true) => 1,
        (true, false) => layout.ranks,
    };
    compute.chain((0..comm_ranks).map(|rank| StreamId { rank, lane: Lane::Comm })).collect()
}

/// Nodes in plan order: every operation on every local rank between the step's begin and end, with its waits.
fn nodes(plan: &Plan, layout: &RankLayout, streams: &[StreamId]) -> Vec<Node> {
    let comm_lane = layout.comm_lane(plan);
    let stream_of = |rank: u32, lane: Lane| {
        let lane = if lane == Lane::Comm { comm_lane } else { lane };
        streams.iter().position(|s| *s == StreamId { rank, lane }).unwrap_or_default()
    };
    let mut graph = Graph { nodes: Vec::new(), last: vec![None; streams.len()] };
    let begin = graph.add(0, ScheduledWork::Begin, &[]);
    // for each operation, its node on each local rank
    let mut of_operation: Vec<Vec<usize>> = Vec::with_capacity(plan.operations.len());
    for (index, waits) in plan.dependencies().iter().enumerate() {
        let operation = &plan.operations[index];
        let work = ScheduledWork::Operation(index as u32);
        let mut add = |rank: u32, needed: Range<u32>| {
            let needed = needed.flat_map(|rank| waits.iter().map(move |op| (op.index(), rank as usize)));
            let needs = needed.map(|(op, rank)| of_operation[op][rank]).chain([begin]);
            graph.add(stream_of(rank, operation.lane), work, &needs.collect::<Vec<_>>())
        };
        let added = if layout.joint && operation.kind.is_collective() {
            vec![add(0, 0..layout.ranks); layout.ranks as usize]
        } else {
            (0..layout.ranks).map(|rank| add(rank, rank..rank + 1)).collect()
        };
        of_operation.push(added);
    }
    let last: Vec<usize> = graph.last.iter().flatten().copied().collect();
    graph.add(0, ScheduledWork::End, &last);
    graph.nodes
}

struct Graph {
    nodes: Vec<Node>,
    last: Vec<Option<usize>>,
}

impl Graph {
    /// Adds a node that depends on `needs`; returns its index.
    fn add(&mut self, stream: usize, work: ScheduledWork, needs: &[usize]) -> usize {
        let nodes = &self.nodes;
        let mut clock = match self.last[stream] {
            Some(last) => nodes[last].clock.clone(),
            None => vec![0; self.last.len()],
        };
        let position = self.last[stream].map_or(0, |last| nodes[last].position) + 1;
        let includes = |clock: &[u32], node: usize| clock[nodes[node].stream] >= nodes[node].position;
        let mut pending: Vec<usize> = needs.iter().copied().filter(|n| !includes(&clock, *n)).collect();
        pending.sort_unstable();
        pending.dedup();
        // drop waits that another wait implies
        let waits: Vec<usize> = pending
            .iter()
            .copied()
            .filter(|node| !pending.iter().any(|o| o != node && includes(&nodes[*o].clock, *node)))
            .collect();
        for wait in &waits {
            for (mine, theirs) in clock.iter_mut().zip(&nodes[*wait].clock) {
                *mine = (*mine).max(*theirs);
            }
        }
        clock[stream] = position;
        let index = self.nodes.len();
        self.nodes.push(Node { stream, work, position, clock, waits, event: None });
        self.last[stream] = Some(index);
        index
    }
}

fn number_events(nodes: &mut [Node]) -> u32 {
    let mut awaited: Vec<usize> = nodes.iter().flat_map(|node| node.waits.iter().copied()).collect();
    awaited.sort_unstable();
    awaited.dedup();
    for (event, node) in awaited.iter().enumerate() {
        nodes[*node].event = Some(event as u32);
    }
    awaited.len() as u32
}

#[cfg(test)]
mod tests;
