//! Finds the collective of each NCCL kernel: the NCCL call under which it was launched, or under which its graph node
//! was captured.
//!
//! A call is an NVTX range of NCCL with its communicator and bytes, or an event of NCCL's plugin if there are no ranges.
//! Kernels of grouped calls are launched when the group ends, so calls wait until a launch follows on their thread. As
//! many launches as calls belong to them one by one; one launch runs all of them; otherwise one for each communicator.
//! Anything else is left unjoined and counted. After the launch the plugin reports the algorithm of each call.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::part::{NvtxRange, PluginCall, RecordedCommunicator, RecordingPart};
use crate::{OperationKind, collective_kind, dtype_bytes};

/// Event types of NCCL's plugin: a collective that was enqueued, and the call of one.
const ENQUEUED: u32 = 1 << 1;
const CALLED: u32 = 1 << 9;
const DOMAIN: &str = "NCCL";
/// Schema ids of NCCL's payloads.
const SCHEMAS: u64 = 1 << 24;
const INITIALISE: [u64; 3] = [SCHEMAS, SCHEMAS + 11, SCHEMAS + 12];
const SPLIT: u64 = SCHEMAS + 13;
/// Maximum number of graphs through which a node is cloned.
const MOST_CLONED: usize = 8;

/// A collective call: what a kernel does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NcclCollective {
    pub name: String,
    /// Communicator, by NCCL's hash; `None` before NCCL 2.25.
    pub communicator: Option<u64>,
    /// Bytes of a rank's argument: what AllGather sends, what ReduceScatter receives.
    pub bytes: u64,
    /// Number of calls that the kernel runs.
    pub calls: u32,
    /// NCCL's choices; empty if its plugin was not loaded, or calls of one kernel differ.
    pub chosen: NcclChoice,
}

/// Algorithm, protocol and channels that NCCL chose.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NcclChoice {
    pub algorithm: String,
    pub protocol: String,
    pub channels: u8,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct JoinedCollectives {
    /// Collective of eager kernels, by correlation id of the launch.
    pub by_correlation: HashMap<u32, NcclCollective>,
    /// Collective of graph kernels, by node of the executable graph.
    pub by_node: HashMap<u64, NcclCollective>,
    /// NCCL kernels without a matching call.
    pub unjoined: u64,
}

/// True for kernels of NCCL, mangled or not.
pub(super) fn is_nccl(kernel: &str) -> bool {
    kernel.contains("ncclDevKernel") || kernel.contains("ncclKernel") || kernel.contains("ncclSymk")
}

/// Communicators that NCCL's ranges describe at the end of their initialisation.
pub(super) fn communicators(part: &RecordingPart) -> Vec<RecordedCommunicator> {
    let nccl = part.ranges.iter().filter(|range| part.text(range.domain) == DOMAIN);
    nccl.filter_map(|range| {
        let at = match range.schema {
            SPLIT => 1,
            schema if INITIALISE.contains(&schema) => 0,
            _ => return None,
        };
        let numbers = range.payload[at + 1];
        let (ranks, rank) = (numbers as u32, (numbers >> 32) as u32);
        let id = range.payload[at];
        (id != 0 && rank < ranks).then(|| RecordedCommunicator { id, ranks, rank, name: String::new() })
    })
    .collect()
}

/// The collective of an NCCL range; `None` for other ranges.
fn collective(part: &RecordingPart, range: &NvtxRange) -> Option<NcclCollective> {
    if part.text(range.domain) != DOMAIN {
        return None;
    }
    let name = part.text(range.name);
    let is_collective = collective_kind(name).is_some_and(|kind| kind != OperationKind::Collective);
    if !is_collective || !name.starts_with("nccl") || name.contains("Comm") {
        return None;
    }
    let [first, second, ..] = range.payload;
    // since NCCL 2.25 the communicator is first; before it, the bytes. Bytes beyond a terabyte are a hash.
    let (communicator, bytes) = match range.schema.checked_sub(SCHEMAS) {
        Some(4..=18) if first >= 1 << 40 || second != 0 => (Some(first), second),
        Some(4..=18) => (None, first),
        _ => (None, 0),
    };
    Some(NcclCollective {
        name: name.to_owned(),
        communicator,
        bytes,
        calls: 1,
        chosen: NcclChoice::default(),
    })
}

/// The collective of a call that the plugin reports (NCCL 2.28 and later).
fn called(part: &RecordingPart, call: &PluginCall) -> Option<NcclCollective> {
    let name = format!("nccl{}", part.text(call.function));
    let size = dtype_bytes(part.text(call.datatype));
    (call.kind == CALLED && collective_kind(&name).is_some()).then(|| NcclCollective {
        name,
        communicator: Some(call.communicator),
        bytes: size.map_or(0, |size| call.count.saturating_mul(size)),
        calls: 1,
        chosen: NcclChoice::default(),
    })
}

/// A moment on a thread.
enum Moment {
    Call(NcclCollective),
    Launch(Key),
    /// NCCL's choices for a call of this name and communicator, reported after its launch.
    Chosen(String, u64, NcclChoice),
}

#[derive(Clone, Copy)]
enum Key {
    Correlation(u32),
    Node(u64),
}

pub(super) fn join(part: &RecordingPart) -> JoinedCollectives {
    let nccl: HashSet<u32> =
        part.texts.iter().filter(|(_, text)| is_nccl(text)).map(|(id, _)| *id).collect();
    let is_nccl =
        |what| matches!(what, super::part::RecordedWorkKind::Kernel(name) if nccl.contains(&name));
    // graph kernels by the node at capture
    let mut executables: HashMap<u64, Vec<u64>> = HashMap::new();
    let mut eager: HashSet<u32> = HashSet::new();
    let mut seen: HashSet<u64> = HashSet::new();
    for work in part.work.iter().filter(|work| is_nccl(work.what)) {
        if work.node == 0 {
            eager.insert(work.correlation);
        } else if seen.insert(work.node) {
            let mut node = work.node;
            for _ in 0..MOST_CLONED {
                match part.clones.get(&node) {
                    Some(original) => node = *original,
                    None => break,
                }
            }
            executables.entry(node).or_default().push(work.node);
        }
    }
    let mut threads: BTreeMap<u32, Vec<(i64, u8, Moment)>> = BTreeMap::new();
    for range in &part.ranges {
        if let Some(found) = collective(part, range) {
            threads.entry(range.thread).or_default().push((range.start, 0, Moment::Call(found)));
        }
    }
    let has_ranges = !threads.is_empty();
    for call in &part.plugin {
        let moment = match call.kind {
            ENQUEUED => {
                let text = |id| part.text(id).to_owned();
                let (algorithm, protocol) = (text(call.algorithm), text(call.protocol));
                let chosen = NcclChoice { algorithm, protocol, channels: call.channels };
                (call.time, 2, Moment::Chosen(text(call.function), call.communicator, chosen))
            }
            _ if has_ranges => continue,
            _ => match called(part, call) {
                Some(found) => (call.time, 0, Moment::Call(found)),
                None => continue,
            },
        };
        threads.entry(call.thread).or_default().push(moment);
    }
    let mut launched = HashSet::new();
    for call in part.calls.iter().filter(|call| eager.contains(&call.correlation)) {
        if launched.insert(call.correlation) {
            let moment = Moment::Launch(Key::Correlation(call.correlation));
            threads.entry(call.thread).or_default().push((call.start, 1, moment));
        }
    }
    for node in part.nodes.iter().filter(|node| executables.contains_key(&node.node)) {
        let moment = Moment::Launch(Key::Node(node.node));
        threads.entry(node.thread).or_default().push((node.time, 1, moment));
    }
    let mut joined = JoinedCollectives::default();
    for moments in threads.values_mut() {
        moments.sort_by_key(|(time, order, _)| (*time, *order));
        let (mut calls, mut launches) = (Vec::new(), Vec::new());
        for (_, _, moment) in moments.drain(..) {
            match moment {
                Moment::Call(call) => {
                    if !launches.is_empty() {
                        settle(&mut calls, &mut launches, &executables, &mut joined);
                    }
                    calls.push(call);
                }
                Moment::Launch(key) => launches.push(key),
                Moment::Chosen(function, communicator, chosen) => {
                    let is_its = |call: &&mut NcclCollective| {
                        call.chosen == NcclChoice::default()
                            && call.name.strip_prefix("nccl") == Some(&function)
                            && call.communicator.is_none_or(|id| id == communicator)
                    };
                    if let Some(call) = calls.iter_mut().find(is_its) {
                        call.communicator = Some(communicator);
                        call.chosen = chosen;
                    }
                }
            }
        }
        settle(&mut calls, &mut launches, &executables, &mut joined);
    }
    let is_joined = |work: &&super::part::RecordedWork| match work.node {
        0 => joined.by_correlation.contains_key(&work.correlation),
        node => joined.by_node.contains_key(&node),
    };
    joined.unjoined = part.work.iter().filter(|w| is_nccl(w.what) && !is_joined(w)).count() as u64;
    joined
}

/// Assigns the calls of a group to its launches, and empties both.
fn settle(
    calls: &mut Vec<NcclCollective>,
    launches: &mut Vec<Key>,
    executables: &HashMap<u64, Vec<u64>>,
    joined: &mut JoinedCollectives,
) {
    let (calls, launches) = (std::mem::take(calls), std::mem::take(launches));
    if calls.is_empty() || launches.is_empty() {
        return;
    }
    let groups: Vec<Vec<NcclCollective>> = if calls.len() == launches.len() {
        calls.into_iter().map(|call| vec![call]).collect()
    } else {
        // in order of first use
        let mut by_communicator: Vec<(Option<u64>, Vec<NcclCollective>)> = Vec::new();
        let is_one = launches.len() == 1;
        for call in calls {
            match by_communicator.iter_mut().find(|(id, _)| is_one || *id == call.communicator) {
                Some((_, group)) => group.push(call),
                None => by_communicator.push((call.communicator, vec![call])),
            }
        }
        by_communicator.into_iter().map(|(_, group)| group).collect()
    };
    if groups.len() != launches.len() {
        return;
    }
    for (group, key) in groups.into_iter().zip(launches) {
        let Some(first) = group.first().cloned() else { continue };
        let is_same = group.iter().all(|call| call.name == first.name);
        let is_chosen = group.iter().all(|call| call.chosen == first.chosen);
        let whole = NcclCollective {
            name: if is_same { first.name } else { "coalesced".into() },
            communicator: first.communicator,
            bytes: group.iter().fold(0, |sum, call| sum.saturating_add(call.bytes)),
            calls: group.len() as u32,
            chosen: if is_chosen { first.chosen } else { NcclChoice::default() },
        };
        match key {
            Key::Correlation(id) => {
                joined.by_correlation.insert(id, whole);
            }
            Key::Node(node) => {
                for executable in executables.get(&node).into_iter().flatten() {
                    joined.by_node.insert(*executable, whole.clone());
                }
            }
        }
    }
}
