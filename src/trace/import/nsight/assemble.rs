//! Assembles the parts of a file: ranks, streams, launches, steps and ranges.
//!
//! Ranges of a thread get rows in which they nest: pushed ranges of one NVTX domain nest, but ranges of different
//! domains, and ranges started and ended explicitly, may overlap. A range that does not nest in a row goes to the
//! next.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};

use super::Notes;
use super::gpu::{GpuActivity, GpuEvent, GpuStream};
use super::host::{HostLaunch, HostLaunches, HostRange, HostRanges, ProcessId, process};
use crate::import::enclosing::{Enclosing, ThreadRange};
use crate::import::left_out::{Extremes, TimeRanges, described};
use crate::import::misplaced::{
    GpuWork, NO_LAUNCH, correlation, forget_reused, is_early, misplaced, stream_name,
};
use crate::import::samples::align_samples;
use crate::import::steps::{FileSteps, step_name};
use crate::overlap::StepKey;
use crate::{
    CopiedBytes, LaunchSite, NO_STEP, OperationInfo, Range, Span, Trace, TraceMeta, TraceStream,
    sort_spans,
};
use plan::Phase;
use table::{Environment, Provenance};

const MOST_RANKS: usize = 4096;

pub(in crate::import) struct ImportParts {
    pub gpu: GpuActivity,
    pub launches: HostLaunches,
    /// Names of host calls, by string id.
    pub calls: HashMap<i64, String>,
    pub ranges: HostRanges,
    pub environment: Environment,
}

/// Assembles the unclassified trace of a file. Returns an error message on failure.
pub(in crate::import) fn assemble(mut parts: ImportParts, notes: &mut Notes) -> Result<Trace, String> {
    leave_out_far(&mut parts, notes);
    // Exports of old versions do not record the process of an event; usually there is only one.
    let only = parts.launches.only_process();
    for place in &mut parts.gpu.places {
        place.process = place.process.or(only);
    }
    parts.gpu.drop_lone_contexts();
    let launch_of = leave_out_misplaced(&mut parts, notes);
    let layout = Layout::new(&parts.gpu, notes)?;
    let last = parts.gpu.events.iter().map(|event| event.end).max().unwrap_or(0);
    close(&mut parts.ranges, last, notes);
    let steps = steps(&parts.ranges, notes);
    let (mut spans, threads) = spans(&mut parts, &launch_of, &layout, &steps, notes);
    let (ranges, range_names) = ranges(parts.ranges, &parts.gpu, &layout, &threads, &mut spans, notes);
    let operations = parts
        .gpu
        .operations
        .into_iter()
        .zip(0..)
        .map(|((name, kind), at)| OperationInfo {
            cost: parts.gpu.copied.get(&at).map(CopiedBytes::cost).unwrap_or_default(),
            ..OperationInfo::imported(name, kind)
        })
        .collect();
    Ok(Trace {
        meta: TraceMeta {
            environment: parts.environment,
            clock: "Nsight Systems: one clock for all processes and devices of the host".into(),
            recorder: "nsys".into(),
            streams: layout.streams,
            range_names,
            ..TraceMeta::new(Provenance::Measured, layout.ranks.len() as u32)
        },
        operations,
        spans,
        ranges,
    })
}

struct Layout {
    /// Process and device of each rank.
    ranks: Vec<(Option<ProcessId>, i64)>,
    streams: Vec<TraceStream>,
    /// Rank and stream of each place.
    of_place: Vec<(u32, u16)>,
}

impl Layout {
    fn new(gpu: &GpuActivity, notes: &mut Notes) -> Result<Self, String> {
        let owner = |place: &GpuStream| (place.process, place.device);
        let ranks: Vec<_> = gpu.places.iter().map(owner).collect::<BTreeSet<_>>().into_iter().collect();
        if ranks.len() > MOST_RANKS {
            return Err(format!(
                "{} pairs of process and device: their ids make no sense, the file is damaged",
                ranks.len()
            ));
        }
        let rank = |place: &GpuStream| ranks.binary_search(&owner(place)).unwrap_or(0) as u32;
        let key = |place: &GpuStream| (rank(place), place.stream, place.context);
        let list: Vec<(u32, i64, Option<i64>)> =
            gpu.places.iter().map(key).collect::<BTreeSet<_>>().into_iter().collect();
        let most = usize::from(u16::MAX);
        if list.len() > most {
            notes.warn(format!("{} streams: those beyond {most} are shown as one", list.len()));
        }
        let stream =
            |place: &GpuStream| list.binary_search(&key(place)).unwrap_or(0).min(most - 1) as u16;
        Ok(Self {
            of_place: gpu.places.iter().map(|place| (rank(place), stream(place))).collect(),
            streams: list
                .iter()
                .take(most)
                .map(|(rank, id, context)| {
                    let (process, device) = ranks[*rank as usize];
                    // show the process id proper: the upper bits number hosts
                    let process = process.map(|process| process & 0xFF_FFFF);
                    TraceStream {
                        rank: *rank,
                        process,
                        device: Some(device),
                        context: *context,
                        id: *id,
                    }
                })
                .collect(),
            ranks,
        })
    }

    /// First rank of a process, and its number of ranks.
    fn of_process(&self, process: ProcessId) -> (usize, usize) {
        let first = self.ranks.partition_point(|rank| rank.0 < Some(process));
        let after = self.ranks.partition_point(|rank| rank.0 <= Some(process));
        (first, after - first)
    }
}

/// Ends ranges that were never closed at the last GPU event.
fn close(ranges: &mut HostRanges, last: i64, notes: &mut Notes) {
    let mut open = 0u64;
    for range in &mut ranges.list {
        if range.end.is_none() {
            open += 1;
            range.end = Some(last.max(range.start));
        }
    }
    if open > 0 {
        notes.warn(format!("{open} ranges were never ended; they last until the last GPU event"));
    }
}

fn thread_range(range: &HostRange, value: u32) -> ThreadRange {
    let (start_ns, end_ns) = (range.start, range.end.unwrap_or(range.start));
    ThreadRange { thread: range.thread, start_ns, end_ns, value }
}

/// Steps of the file, from the kind of range names that looks most like steps.
fn steps(ranges: &HostRanges, notes: &mut Notes) -> FileSteps {
    let names: Vec<_> = ranges.names.iter().map(|name| step_name(name)).collect();
    let candidate = |range: &HostRange| (process(range.thread), thread_range(range, range.name));
    let steps = FileSteps::new(ranges.list.iter().map(candidate), &names);
    if let Some((kinds, count)) = &steps.kinds {
        let others: Vec<String> = steps.others.iter().map(|kind| format!("'{kind} N'")).collect();
        let also =
            if others.is_empty() { String::new() } else { format!("; not {}", others.join(", ")) };
        let kinds = kinds.join(" N' and '");
        notes.warn(format!("using the {count} ranges named '{kinds} N' as steps{also}"));
    }
    steps.warning().into_iter().for_each(|warning| notes.warn(warning));
    steps
}

/// Number of events that each thread launched on each rank, for processes with several devices.
type Threads = HashMap<(i64, u32), u64>;

/// Drops events whose time is implausible compared with all other events, and sorts the launches.
fn leave_out_far(parts: &mut ImportParts, notes: &mut Notes) {
    let ImportParts { gpu, launches, ranges, calls, .. } = parts;
    let of_range = |range: &HostRange| (range.start, range.end.unwrap_or(range.start));
    let clock = TimeRanges::from_times(
        (gpu.events.iter().map(|event| (event.start, event.end)))
            .chain(launches.calls.iter().map(|call| (call.start, call.end)))
            .chain(ranges.list.iter().map(of_range))
            .chain(gpu.graphs.iter().map(|graph| (graph.start, graph.end))),
    );
    let mut keeps = |what, name: &dyn Fn() -> String, (start, end)| {
        let Some(why) = clock.fault((start, end)) else { return true };
        notes.left_out.add(what, why, start, || described(&name(), start, end));
        false
    };
    let rows = &mut launches.rows;
    let calls = |call: &HostLaunch| {
        let name = || calls.get(&call.name).cloned().unwrap_or_else(|| "a call".into());
        let kept = keeps("host call", &name, (call.start, call.end));
        *rows -= u64::from(!kept);
        kept
    };
    launches.calls.retain(calls);
    launches.settle();
    ranges
        .list
        .retain(|range| keeps("range", &|| ranges.names[range.name as usize].clone(), of_range(range)));
    gpu.graphs.retain(|graph| {
        keeps("graph launch", &|| format!("graph {}", graph.graph), (graph.start, graph.end))
    });
    let mut unused = Vec::new();
    gpu.events.retain(|event| {
        let (name, kind) = &gpu.operations[event.operation as usize];
        let kept = keeps(kind, &|| name.clone(), (event.start, event.end));
        unused.extend((!kept).then_some(*kind));
        kept
    });
    unused.into_iter().for_each(|kind| notes.unuse(kind, 1));
}

/// Drops work that contradicts its stream or launch. Returns the launch index of each event.
fn leave_out_misplaced(parts: &mut ImportParts, notes: &mut Notes) -> Vec<u32> {
    let ImportParts { gpu, launches, ranges, .. } = parts;
    let mut near = vec![0; gpu.places.len()];
    let find = |event: &GpuEvent| match (gpu.places[event.place as usize].process, event.correlation) {
        (None, _) | (_, 0) => NO_LAUNCH,
        (Some(process), id) => launches.find(process, id, event.start, &mut near[event.place as usize]),
    };
    let mut launch_of: Vec<u32> = gpu.events.iter().map(find).collect();
    forget_reused(
        &mut launch_of,
        || launches.has_again(),
        |at, launch| is_early(gpu.events[at].start, launches.calls[launch as usize].start),
    );
    let placed = |at: usize| {
        let GpuEvent { start, end, place, operation, correlation: id, .. } = gpu.events[at];
        let process = gpu.places[place as usize].process.unwrap_or_default();
        let launch = launch_of[at] as usize;
        let call = launches.calls.get(launch);
        GpuWork {
            stream: place as usize,
            start_ns: start,
            end_ns: end,
            launch: call.map(|call| (launch, call.start)),
            correlation: correlation(process, id.into()),
            identity: (operation, id.into()),
        }
    };
    let host = || {
        let mut host = Extremes::default();
        launches.calls.iter().for_each(|call| host.add((call.start, call.end)));
        let ended = ranges.list.iter().filter_map(|range| Some((range.start, range.end?)));
        ended.for_each(|times| host.add(times));
        host
    };
    let stream_name = |stream: usize| {
        let GpuStream { device, stream, .. } = gpu.places[stream];
        stream_name(stream, Some(device))
    };
    let misplaced = misplaced(gpu.events.len(), placed, host, stream_name);
    let (operations, mut dropped) = (&gpu.operations, Vec::new());
    misplaced.drop_from(&mut gpu.events, &mut launch_of, &mut notes.left_out, |left_out, event, why| {
        let (name, kind) = &operations[event.operation as usize];
        left_out.add(kind, why, event.start, || described(name, event.start, event.end));
        dropped.push(*kind);
    });
    dropped.into_iter().for_each(|kind| notes.unuse(kind, 1));
    launch_of
}

fn spans(
    parts: &mut ImportParts,
    launch_of: &[u32],
    layout: &Layout,
    steps: &FileSteps,
    notes: &mut Notes,
) -> (Vec<Span>, Threads) {
    let ImportParts { gpu, launches, ranges, calls, .. } = parts;
    let mut sites = SiteFinder::from_ranges(ranges);
    let mut threads = Threads::new();
    // start of the first kernel of each graph replay, which may precede the return of the call
    let mut replayed: HashMap<u32, i64> = HashMap::new();
    for (event, launch) in gpu.events.iter().zip(launch_of).filter(|(event, _)| event.is_node) {
        let first = replayed.entry(*launch).or_insert(event.start);
        *first = event.start.min(*first);
    }
    let has_times = !notes.left_out.doubts_launches();
    let no_step = if steps.is_empty() { 0 } else { NO_STEP };
    let no_step = StepKey { sample: 0, phase: Phase::Decode, step: no_step };
    let mut stepless = 0u64;
    let mut spans: Vec<Span> = Vec::with_capacity(gpu.events.len());
    for (event, at) in gpu.events.iter().zip(launch_of) {
        let GpuEvent { start, end, operation, place, is_node, .. } = *event;
        let (rank, stream) = layout.of_place[place as usize];
        let process = gpu.places[place as usize].process;
        let launch = launches.calls.get(*at as usize);
        if let Some(launch) = launch
            && process.is_some_and(|process| layout.of_process(process).1 > 1)
        {
            *threads.entry((launch.thread, rank)).or_default() += 1;
        }
        let of_process = process.and_then(|process| steps.of_process(process));
        let step = of_process.and_then(|steps| match launch {
            Some(launch) => steps.at(launch.start, Some(launch.thread)),
            // work launched before the recording started belongs to no step
            None => steps.at(start, None).filter(|_| launches.calls.is_empty()),
        });
        stepless += u64::from(step.is_none());
        let StepKey { sample, phase, step } = step.unwrap_or(no_step);
        let ready_ns = launch.filter(|_| has_times).map_or(start, |launch| {
            let first = replayed.get(at).filter(|_| is_node);
            Span::launched(launch.end, first.copied().unwrap_or(start))
        });
        let launched =
            launch.map_or(LaunchSite::UNKNOWN, |launch| sites.site(launch, calls, &mut ranges.names));
        spans.push(Span {
            sample,
            phase,
            step,
            rank,
            stream,
            operation,
            ready_ns,
            start_ns: start,
            end_ns: end,
            launched,
            ..Span::EMPTY
        });
    }
    align_samples(&mut spans);
    sort_spans(&mut spans);
    count_launches(gpu, launches, launch_of, notes);
    if !steps.is_empty() && stepless > 0 {
        notes.warn(format!(
            "{stepless} of {} GPU events were launched outside all steps and belong to none",
            spans.len()
        ));
    }
    (spans, threads)
}

/// Ranges and operators around launches.
struct SiteFinder {
    ranges: Enclosing,
    /// Names of the ranges that are no steps.
    operators: Enclosing,
    /// Calls that serve as operators: name, and true for graph launches.
    by_call: HashMap<i64, (u32, bool)>,
    /// Positions of the last searches.
    near: [usize; 2],
}

impl SiteFinder {
    fn from_ranges(ranges: &HostRanges) -> Self {
        let numbered = ranges.list.iter().zip(0..).map(|(range, at)| thread_range(range, at));
        let is_step: Vec<bool> = ranges.names.iter().map(|name| step_name(name).is_some()).collect();
        let operators = ranges.list.iter().filter(|range| !is_step[range.name as usize]);
        let operators = operators.map(|range| thread_range(range, range.name));
        Self {
            ranges: Enclosing::new(numbered.collect()),
            operators: Enclosing::new(operators.collect()),
            by_call: HashMap::new(),
            near: [0; 2],
        }
    }

    /// Range and operator around a launch. Adds names of calls to `names`.
    fn site(
        &mut self,
        launch: &HostLaunch,
        calls: &HashMap<i64, String>,
        names: &mut Vec<String>,
    ) -> LaunchSite {
        let [near_range, near_operator] = &mut self.near;
        let range = self.ranges.innermost(launch.thread, launch.start, near_range);
        let operator = self.operators.innermost(launch.thread, launch.start, near_operator);
        let (call, is_graph) = *self.by_call.entry(launch.name).or_insert_with(|| {
            let Some(name) = calls.get(&launch.name) else { return (LaunchSite::NONE, false) };
            names.push(name.clone());
            (names.len() as u32 - 1, name.contains("GraphLaunch"))
        });
        LaunchSite {
            range: range.unwrap_or(LaunchSite::OUTSIDE),
            operator: operator.filter(|_| !is_graph).unwrap_or(call),
        }
    }
}

/// Counts the calls that launched something, and the others.
fn count_launches(gpu: &GpuActivity, launches: &HostLaunches, launch_of: &[u32], notes: &mut Notes) {
    let mut found = vec![false; launches.calls.len()];
    let mut unlaunched = 0u64;
    for at in launch_of {
        match found.get_mut(*at as usize) {
            Some(found) => *found = true,
            None => unlaunched += 1,
        }
    }
    let graphs: HashSet<(Option<ProcessId>, u32)> =
        gpu.graphs.iter().map(|graph| (graph.place.process, graph.correlation)).collect();
    let of_graph = |call: &HostLaunch| graphs.contains(&(Some(process(call.thread)), call.correlation));
    let rows = launches.calls.iter().zip(&found).filter(|(call, found)| **found || of_graph(call));
    let used: u64 = rows.map(|(call, _)| u64::from(call.rows)).sum();
    notes.use_("launch", used);
    notes.ignore("host call that launched nothing", launches.rows - used);
    if unlaunched > 0 && launches.rows > 0 {
        notes.warn(format!(
            "{unlaunched} GPU events have no launch record; assuming launch time = start time"
        ));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RangeOwner {
    Thread(i64),
    /// Stream, and its context.
    Stream(i64, Option<i64>),
}

/// Unnumbered range: rank, row, start, end, name, index into the host ranges.
type UnnumberedRange = (u32, RangeOwner, i64, Reverse<i64>, u32, u32);

fn ranges(
    host: HostRanges,
    gpu: &GpuActivity,
    layout: &Layout,
    threads: &Threads,
    spans: &mut [Span],
    notes: &mut Notes,
) -> (Vec<Range>, Vec<String>) {
    let HostRanges { list, mut names } = host;
    let mut rank_of: HashMap<i64, Option<u32>> = HashMap::new();
    let (mut guessed, mut homeless) = (BTreeSet::new(), 0u64);
    let listed = list.len();
    let mut found: Vec<UnnumberedRange> = Vec::with_capacity(listed);
    for (HostRange { start, end, thread, name }, place) in list.into_iter().zip(0..) {
        let rank = *rank_of.entry(thread).or_insert_with(|| {
            let (first, count) = layout.of_process(process(thread));
            if count == 0 {
                return None;
            }
            if count == 1 {
                return Some(first as u32);
            }
            guessed.insert(process(thread) & 0xFF_FFFF);
            let ranks = first as u32..(first + count) as u32;
            ranks
                .max_by_key(|rank| (threads.get(&(thread, *rank)).copied().unwrap_or(0), Reverse(*rank)))
        });
        match (rank, end) {
            (Some(rank), Some(end)) => {
                found.push((rank, RangeOwner::Thread(thread), start, Reverse(end), name, place));
            }
            _ => homeless += 1,
        }
    }
    notes.ignore("range of a process without GPU work", homeless);
    if !guessed.is_empty() {
        let processes: Vec<String> = guessed.iter().take(8).map(i64::to_string).collect();
        notes.warn(format!(
            "process {} drives several devices: each thread's ranges go to the rank that it launched to most",
            processes.join(", ")
        ));
    }
    let graphs = graphs(gpu, layout, &mut names);
    notes.use_("graph launch", graphs.len() as u64);
    notes.ignore("graph launch of a device without kernels", (gpu.graphs.len() - graphs.len()) as u64);
    let on_streams = graphs.len();
    found.extend(graphs);
    found.sort_unstable();

    let mut ranges = Vec::with_capacity(found.len());
    let (mut rank, mut thread) = (u32::MAX, 0usize);
    for group in found.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        if group[0].0 != rank {
            (rank, thread) = (group[0].0, 0);
        }
        let slots = nest(group.iter().map(|range| (range.2, range.3.0)));
        let rows = slots.iter().flatten().map(|slot| slot.row + 1).max().unwrap_or(0);
        for (range, slot) in group.iter().zip(slots) {
            let Some(slot) = slot else { continue };
            let Ok(thread) = u16::try_from(thread + slot.row) else { continue };
            let (rank, on, start_ns, Reverse(end_ns), name, place) = *range;
            let on_device = matches!(on, RangeOwner::Stream(..));
            let depth = slot.depth;
            ranges.push((place, Range { rank, on_device, thread, depth, name, start_ns, end_ns }));
        }
        thread += rows;
    }
    ranges.sort_by_key(|(_, range)| (range.rank, range.thread, range.start_ns, Reverse(range.end_ns)));
    let mut sorted = vec![LaunchSite::OUTSIDE; listed];
    let ranges: Vec<Range> = (ranges.into_iter().zip(0..))
        .map(|((place, range), at)| {
            sorted.get_mut(place as usize).into_iter().for_each(|to| *to = at);
            range
        })
        .collect();
    for span in spans {
        span.launched.range =
            sorted.get(span.launched.range as usize).copied().unwrap_or(span.launched.range);
    }
    let lost = found.len() - ranges.len();
    notes.ignore("range that crosses too many others", lost as u64);
    notes.use_("range", (found.len() - on_streams).saturating_sub(lost) as u64);
    (ranges, names)
}

/// CUDA graphs that were recorded as a whole, as ranges on their stream's row.
fn graphs(gpu: &GpuActivity, layout: &Layout, names: &mut Vec<String>) -> Vec<UnnumberedRange> {
    let mut by_graph: HashMap<i64, u32> = HashMap::new();
    let mut found = Vec::new();
    for graph in &gpu.graphs {
        let owner = (graph.place.process, graph.place.device);
        let Ok(rank) = layout.ranks.binary_search(&owner) else { continue };
        let name = *by_graph.entry(graph.graph).or_insert_with(|| {
            names.push(format!("CUDA graph {}", graph.graph));
            names.len() as u32 - 1
        });
        let on = RangeOwner::Stream(graph.place.stream, graph.place.context);
        found.push((rank as u32, on, graph.start, Reverse(graph.end), name, u32::MAX));
    }
    found
}

const MOST_ROWS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NestingSlot {
    pub row: usize,
    pub depth: u16,
}

/// Slots of intervals sorted by (start, longest first); `None` if no row is left.
pub(super) fn nest(intervals: impl Iterator<Item = (i64, i64)>) -> Vec<Option<NestingSlot>> {
    // ends of the open intervals of each row, innermost last
    let mut rows: Vec<Vec<i64>> = Vec::new();
    intervals
        .map(|(start, end)| {
            for (row, open) in rows.iter_mut().enumerate() {
                while open.last().is_some_and(|last| *last <= start) {
                    open.pop();
                }
                if open.last().is_none_or(|last| end <= *last) {
                    let depth = u16::try_from(open.len()).ok()?;
                    open.push(end);
                    return Some(NestingSlot { row, depth });
                }
            }
            if rows.len() == MOST_ROWS {
                return None;
            }
            rows.push(vec![end]);
            Some(NestingSlot { row: rows.len() - 1, depth: 0 })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn crossing_ranges_get_rows_of_their_own() {
        let slots = nest([(0, 10), (1, 5), (2, 7), (6, 9)].into_iter());
        let found: Vec<_> = slots.into_iter().flatten().map(|slot| (slot.row, slot.depth)).collect();
        assert_eq!(found, [(0, 0), (0, 1), (1, 0), (0, 1)]);
    }

    proptest! {
        #[test]
        fn in_a_row_ranges_nest_and_depth_counts_what_holds_them(
            mut ranges in prop::collection::vec((0i64..40, 1i64..20), 0..30),
        ) {
            for range in &mut ranges {
                range.1 += range.0;
            }
            ranges.sort_by_key(|range| (range.0, std::cmp::Reverse(range.1)));
            let slots = nest(ranges.iter().copied());
            for (i, a) in ranges.iter().enumerate() {
                let slot = slots[i].expect("few rows");
                let holders = (0..i).filter(|j| {
                    slots[*j].is_some_and(|other| other.row == slot.row) && ranges[*j].1 > a.0
                });
                let mut count = 0;
                for j in holders {
                    prop_assert!(ranges[j].1 >= a.1, "{:?} crosses {:?}", ranges[j], a);
                    count += 1;
                }
                prop_assert_eq!(count, slot.depth);
            }
        }
    }
}
