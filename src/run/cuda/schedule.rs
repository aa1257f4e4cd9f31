//! From a plan to an ordered list of what to enqueue on which stream. Pure: data, no driver.
//!
//! A rank has two streams, one a lane; where nothing may compute beside any collective it has one ([`Layout::chained`]),
//! and its collectives are of the comm lane all the same. Within a stream things happen in order; between streams only
//! where an event says so, and events are recorded and awaited nowhere but where a plan's dependency
//! needs it that is not implied already (a transitive reduction: each wait here is necessary). A step
//! begins and ends on the first rank's compute stream: other streams are forked from it and joined to
//! it, so that a list can be captured into one graph, and so that the next step, on the same memory,
//! begins after everything of this one.
//!
//! Buffers need no waits of their own: [`Plan::buffers`] reuses one only where the dependencies order
//! all its users anyway.

use std::collections::HashMap;

use super::program::beside;
use plan::{Lane, Plan};

/// Which ranks one thread drives, and how their collectives are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Ranks that are driven together, on one device.
    pub ranks: u32,
    /// Whether a collective is one launch for all of them, on the first one's comm stream (loopback);
    /// else each rank launches its own part.
    pub joint: bool,
    /// Whether collectives beside which nothing may compute go onto the compute stream: two events and a change of streams
    /// less for each. Not where communication has multiprocessors of its own.
    pub chained: bool,
}

impl Layout {
    /// A layout of one local rank, whose collectives go elsewhere.
    pub const ONE: Self = Self { ranks: 1, joint: false, chained: true };

    /// All ranks of a tensor-parallel group on one device.
    pub fn loopback(ranks: u32) -> Self {
        Self { ranks, joint: true, chained: true }
    }

    /// The lane whose streams execute a plan's collectives.
    fn comm_lane(&self, plan: &Plan) -> Lane {
        let is_alone = || !beside(plan).contains(&true);
        if self.chained && is_alone() { Lane::Compute } else { Lane::Comm }
    }
}

/// One stream of one local rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId {
    /// The rank, counted among the local ones.
    pub rank: u32,
    /// The lane whose operations the stream executes.
    pub lane: Lane,
}

/// One thing to be enqueued, in the order of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// An operation of a local rank; a joint collective is rank 0's.
    Launch {
        /// The stream on which the operation is enqueued.
        stream: StreamId,
        /// Index in the plan.
        operation: u32,
    },
    /// An event is recorded, for waits.
    Record {
        /// The stream on which the event is recorded.
        stream: StreamId,
        /// Which event, from 0.
        event: u32,
    },
    /// The stream waits for an event that was recorded before.
    Wait {
        /// The stream whose later work waits.
        stream: StreamId,
        /// The event that it waits for.
        event: u32,
    },
    /// A timing mark is recorded.
    Mark {
        /// Where; the mark is one of this rank's.
        stream: StreamId,
        /// Which mark, from 0.
        mark: u32,
    },
}

/// Where a timing mark may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// On the first local rank's compute stream before anything of the step, before other streams are forked off it.
    Start,
    /// On the stream of this operation, after its waits.
    Before(usize),
    /// On the stream of this operation, behind it and, but for the last one of a stream, behind the event for which others
    /// wait: they do not wait for the mark.
    After(usize),
}

/// The mark at a place, where there is one.
pub type Marks<'a> = &'a dyn Fn(Place) -> Option<u32>;

/// A step as a list of what to enqueue, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// In the order in which they are enqueued.
    pub items: Vec<Item>,
    /// How many events there are.
    pub events: u32,
    /// The ranks for whose streams the items are.
    pub layout: Layout,
}

/// What a stream does, in order: the step's begin and end, and operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Begin,
    Operation(u32),
    End,
}

#[derive(Debug)]
struct Node {
    stream: usize,
    work: Work,
    /// The item's position on its stream, from 1.
    position: u32,
    /// For each stream, how much of it has completed when this node has.
    clock: Vec<u32>,
    /// Nodes of other streams that must be waited for.
    waits: Vec<usize>,
    /// The event recorded after it, where somebody waits for it.
    event: Option<u32>,
}

impl Schedule {
    /// Schedules one step of `plan`; with `marks`, also where timing marks are recorded.
    pub fn new(plan: &Plan, layout: &Layout, marks: Option<Marks<'_>>) -> Self {
        let streams = streams(plan, layout);
        let mut nodes = nodes(plan, layout, &streams);
        let events = number_events(&mut nodes);
        // what stands behind the last event of a stream nobody would wait for, not even the step's end
        let mut last = vec![0; streams.len()];
        nodes.iter().enumerate().for_each(|(index, node)| last[node.stream] = index);
        let mut items = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            let stream = streams[node.stream];
            let mark =
                |place| marks.and_then(|marks| marks(place)).map(|mark| Item::Mark { stream, mark });
            let wait = |other: &usize| nodes[*other].event.map(|event| Item::Wait { stream, event });
            let record = node.event.map(|event| Item::Record { stream, event });
            match node.work {
                Work::Begin => items.extend(mark(Place::Start).into_iter().chain(record)),
                Work::End => items.extend(node.waits.iter().filter_map(wait)),
                Work::Operation(operation) => {
                    items.extend(node.waits.iter().filter_map(wait));
                    items.extend(mark(Place::Before(operation as usize)));
                    items.push(Item::Launch { stream, operation });
                    let after = mark(Place::After(operation as usize));
                    let is_last = node.stream != 0 && last[node.stream] == index;
                    let order = if is_last { [after, record] } else { [record, after] };
                    items.extend(order.into_iter().flatten());
                }
            }
        }
        Self { items, events, layout: *layout }
    }

    /// The launches (rank, operation) that directly follow another launch on their stream, with no wait and no mark between
    /// them, and which: those that may begin while that one still runs. After a wait a kernel depends on
    /// more than the kernel before it, and after a mark on no kernel. `is_launched`: whether anything is, for an operation.
    pub fn follows_a_launch(&self, is_launched: impl Fn(u32, u32) -> bool) -> HashMap<(u32, u32), u32> {
        let mut last: HashMap<StreamId, u32> = HashMap::new();
        let mut following = HashMap::new();
        for item in &self.items {
            match *item {
                Item::Launch { stream, operation } if !is_launched(stream.rank, operation) => {}
                Item::Launch { stream, operation } => {
                    if let Some(before) = last.insert(stream, operation) {
                        following.insert((stream.rank, operation), before);
                    }
                }
                Item::Wait { stream, .. } | Item::Mark { stream, .. } => {
                    last.remove(&stream);
                }
                Item::Record { .. } => {}
            }
        }
        following
    }

    /// The streams that it uses, the one where the step begins first.
    pub fn streams(&self) -> Vec<StreamId> {
        let first = StreamId { rank: 0, lane: Lane::Compute };
        let mut streams = vec![first];
        for item in &self.items {
            if let Item::Launch { stream, .. } = item
                && !streams.contains(stream)
            {
                streams.push(*stream);
            }
        }
        streams
    }
}

/// The streams that a plan needs.
fn streams(plan: &Plan, layout: &Layout) -> Vec<StreamId> {
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

/// Every operation on every local rank, between the step's begin and end, in plan order, each with
/// the waits that it needs.
fn nodes(plan: &Plan, layout: &Layout, streams: &[StreamId]) -> Vec<Node> {
    let comm_lane = layout.comm_lane(plan);
    let place = |rank: u32, lane: Lane| {
        let lane = if lane == Lane::Comm { comm_lane } else { lane };
        streams.iter().position(|s| *s == StreamId { rank, lane }).unwrap_or_default()
    };
    let is_joint = |operation: usize| layout.joint && plan.operations[operation].kind.is_collective();
    let mut graph = Graph { nodes: Vec::new(), last: vec![None; streams.len()] };
    let begin = graph.add(0, Work::Begin, &[]);
    // for each operation, its node on each local rank
    let mut of_operation: Vec<Vec<usize>> = Vec::with_capacity(plan.operations.len());
    for (index, waits) in plan.dependencies().iter().enumerate() {
        let operation = &plan.operations[index];
        let work = Work::Operation(index as u32);
        let on = |rank: u32| waits.iter().map(move |op| (op.index(), rank as usize));
        let mut added = Vec::with_capacity(layout.ranks as usize);
        if is_joint(index) {
            let all = (0..layout.ranks).flat_map(on).map(|(op, rank)| of_operation[op][rank]);
            let needs: Vec<usize> = all.chain([begin]).collect();
            let node = graph.add(place(0, operation.lane), work, &needs);
            added.extend((0..layout.ranks).map(|_| node));
        } else {
            for rank in 0..layout.ranks {
                let own = on(rank).map(|(op, rank)| of_operation[op][rank]);
                let needs: Vec<usize> = own.chain([begin]).collect();
                added.push(graph.add(place(rank, operation.lane), work, &needs));
            }
        }
        of_operation.push(added);
    }
    let last: Vec<usize> = graph.last.iter().flatten().copied().collect();
    graph.add(0, Work::End, &last);
    graph.nodes
}

struct Graph {
    nodes: Vec<Node>,
    /// The last node of each stream.
    last: Vec<Option<usize>>,
}

impl Graph {
    /// Adds a node that must happen after `needs`; returns its index.
    fn add(&mut self, stream: usize, work: Work, needs: &[usize]) -> usize {
        let nodes = &self.nodes;
        let mut clock = match self.last[stream] {
            Some(last) => nodes[last].clock.clone(),
            None => vec![0; self.last.len()],
        };
        let position = self.last[stream].map_or(0, |last| nodes[last].position) + 1;
        let knows = |clock: &[u32], node: usize| clock[nodes[node].stream] >= nodes[node].position;
        let mut wanted: Vec<usize> = needs.iter().copied().filter(|n| !knows(&clock, *n)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        // what another of them implies needs no wait of its own
        let waits: Vec<usize> = wanted
            .iter()
            .copied()
            .filter(|node| !wanted.iter().any(|o| o != node && knows(&nodes[*o].clock, *node)))
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

/// Gives an event to each node that another waits for.
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
