//! Ranks, streams, launches, steps and ranges: the parts of a file put together.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::gpu::{Event, Gpu, Place};
use super::import::Notes;
use super::launches::{Finder, Launches, Process, process};
use super::nest::nest;
use super::ranges::{HostRange, HostRanges};
use super::steps::{Steps, preference, step};
use crate::plan::{Lane, Phase};
use crate::table::{Environment, Provenance};
use crate::trace::rules::sort;
use crate::trace::{FORMAT_VERSION, OperationInfo, Range, Span, Stream, Trace, TraceMeta};

/// More ranks than any machine has: the ids are damaged.
const MOST_RANKS: usize = 4096;

/// What was read of a file.
pub(super) struct Parts {
    pub gpu: Gpu,
    pub launches: Launches,
    pub ranges: HostRanges,
    pub environment: Environment,
}

/// The trace of a file, unclassified; `Err` in words.
pub(super) fn assemble(mut parts: Parts, notes: &mut Notes) -> Result<Trace, String> {
    // Exports of old versions do not say of which process an event is; there mostly is but one.
    let only = parts.launches.only_process();
    for place in &mut parts.gpu.places {
        place.process = place.process.or(only);
    }
    let layout = Layout::of(&parts.gpu, notes)?;
    let last = parts.gpu.events.iter().map(|event| event.end).max().unwrap_or(0);
    close(&mut parts.ranges, last, notes);
    let steps = steps(&parts.ranges, notes);
    let (spans, threads) = spans(&parts, &layout, &steps, notes);
    let (ranges, range_names) = ranges(parts.ranges, &parts.gpu, &layout, &threads, notes);
    let operations = parts
        .gpu
        .operations
        .into_iter()
        .map(|(name, kind)| OperationInfo::imported(name, kind))
        .collect();
    Ok(Trace {
        meta: TraceMeta {
            version: FORMAT_VERSION,
            provenance: Provenance::Measured,
            run: None,
            spec: None,
            ranks: layout.ranks.len() as u32,
            plan_hashes: Vec::new(),
            environment: parts.environment,
            clock: "Nsight Systems: one clock for all processes and devices of the host".into(),
            recorder: "nsys".into(),
            streams: layout.streams,
            range_names,
            groups: Vec::new(),
            import: None,
        },
        operations,
        spans,
        ranges,
    })
}

/// Which rank each process and device is, and which streams the ranks have.
struct Layout {
    /// Process and device of each rank.
    ranks: Vec<(Option<Process>, i64)>,
    streams: Vec<Stream>,
    /// Rank and stream of each place.
    of_place: Vec<(u32, u16)>,
}

impl Layout {
    fn of(gpu: &Gpu, notes: &mut Notes) -> Result<Self, String> {
        let owner = |place: &Place| (place.process, place.device);
        let ranks: Vec<_> = gpu.places.iter().map(owner).collect::<BTreeSet<_>>().into_iter().collect();
        if ranks.len() > MOST_RANKS {
            return Err(format!(
                "{} pairs of process and device: their ids make no sense, the file is damaged",
                ranks.len()
            ));
        }
        let rank = |place: &Place| ranks.binary_search(&owner(place)).unwrap_or(0) as u32;
        let list: Vec<(u32, i64)> = gpu
            .places
            .iter()
            .map(|place| (rank(place), place.stream))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let most = usize::from(u16::MAX);
        if list.len() > most {
            notes.warn(format!("{} streams: those beyond {most} are shown as one", list.len()));
        }
        let stream = |place: &Place| {
            list.binary_search(&(rank(place), place.stream)).unwrap_or(0).min(most - 1) as u16
        };
        Ok(Self {
            of_place: gpu.places.iter().map(|place| (rank(place), stream(place))).collect(),
            streams: list
                .iter()
                .take(most)
                .map(|(rank, id)| {
                    let (process, device) = ranks[*rank as usize];
                    // people know a process by the lower bits: the upper ones number hosts
                    let process = process.map(|process| process & 0xFF_FFFF);
                    Stream { rank: *rank, process, device: Some(device), id: *id }
                })
                .collect(),
            ranks,
        })
    }

    /// Ranks of a process, the first and how many.
    fn of_process(&self, process: Process) -> (usize, usize) {
        let first = self.ranks.partition_point(|rank| rank.0 < Some(process));
        let after = self.ranks.partition_point(|rank| rank.0 <= Some(process));
        (first, after - first)
    }
}

/// Ranges that were never ended last as long as the GPU was busy.
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

/// The steps of each process, by the kind of names that looks most like steps.
fn steps(ranges: &HostRanges, notes: &mut Notes) -> HashMap<Process, Steps> {
    let of_name: Vec<Option<(String, u32)>> = ranges.names.iter().map(|name| step(name)).collect();
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for range in &ranges.list {
        if let Some((prefix, _)) = &of_name[range.name as usize] {
            *kinds.entry(prefix).or_default() += 1;
        }
    }
    let Some((chosen, count)) = kinds.iter().max_by_key(|(prefix, count)| (preference(prefix), **count))
    else {
        return HashMap::new();
    };
    let others: Vec<String> = kinds
        .keys()
        .filter(|prefix| *prefix != chosen)
        .take(5)
        .map(|prefix| format!("'{prefix} N'"))
        .collect();
    let also = if others.is_empty() { String::new() } else { format!("; not by {}", others.join(", ")) };
    notes.warn(format!("steps go by the {count} ranges named '{chosen} N'{also}"));
    let mut steps: HashMap<Process, Steps> = HashMap::new();
    for range in &ranges.list {
        if let (Some((prefix, number)), Some(end)) = (&of_name[range.name as usize], range.end)
            && prefix == chosen
        {
            steps.entry(process(range.thread)).or_default().push(
                range.start,
                end,
                range.thread,
                *number,
            );
        }
    }
    steps.values_mut().for_each(Steps::sort);
    steps
}

/// How many events each thread launched on each rank, of processes with several devices.
type Threads = HashMap<(i64, u32), u64>;

fn spans(
    parts: &Parts,
    layout: &Layout,
    steps: &HashMap<Process, Steps>,
    notes: &mut Notes,
) -> (Vec<Span>, Threads) {
    let gpu = &parts.gpu;
    let mut finders: Vec<Finder> = Vec::new();
    let mut numbers: HashMap<Option<Process>, usize> = HashMap::new();
    // what every place needs of its process: its launches, its steps, whether it has several devices
    let of_place: Vec<(usize, Option<&Steps>, bool)> = gpu
        .places
        .iter()
        .map(|place| {
            let finder = *numbers.entry(place.process).or_insert_with(|| {
                finders.push(parts.launches.of(place.process.unwrap_or(Process::MIN)));
                finders.len() - 1
            });
            let several = place.process.is_some_and(|process| layout.of_process(process).1 > 1);
            (finder, place.process.and_then(|process| steps.get(&process)), several)
        })
        .collect();
    let mut threads = Threads::new();
    let (mut unlaunched, mut stepless) = (0u64, 0u64);
    let mut spans: Vec<Span> = Vec::with_capacity(gpu.events.len());
    for event in &gpu.events {
        let Event { start, end, correlation, operation, place } = *event;
        let (rank, stream) = layout.of_place[place as usize];
        let (finder, steps, several) = of_place[place as usize];
        let launch = if correlation == 0 { None } else { finders[finder].find(correlation) };
        unlaunched += u64::from(launch.is_none());
        if let Some(launch) = launch
            && several
        {
            *threads.entry((launch.thread, rank)).or_default() += 1;
        }
        let step = steps.and_then(|steps| match launch {
            Some(launch) => steps.at(launch.start, Some(launch.thread)),
            None => steps.at(start, None),
        });
        stepless += u64::from(step.is_none());
        spans.push(Span {
            sample: 0,
            phase: Phase::Decode,
            step: step.unwrap_or(0),
            rank,
            lane: Lane::Compute,
            stream,
            operation,
            // a call may return after the GPU has begun
            ready_ns: launch.map_or(start, |launch| launch.end.min(start)),
            start_ns: start,
            end_ns: end,
            last_arrival_ns: -1,
            ..Span::EMPTY
        });
    }
    sort(&mut spans);
    let used: u64 = finders.iter().map(Finder::rows_found).sum();
    notes.use_("launch", used);
    notes.ignore("host call that launched nothing", parts.launches.rows - used);
    if unlaunched > 0 && parts.launches.rows > 0 {
        notes.warn(format!(
            "the launch of {unlaunched} GPU events is not in the file; they count as launched when they started"
        ));
    }
    if !steps.is_empty() && stepless > 0 {
        notes.warn(format!("{stepless} GPU events lie in no step; they count as step 0"));
    }
    (spans, threads)
}

/// What a range was pushed on: a host thread, or the row of a device's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum On {
    Thread(i64),
    Stream(i64),
}

fn ranges(
    host: HostRanges,
    gpu: &Gpu,
    layout: &Layout,
    threads: &Threads,
    notes: &mut Notes,
) -> (Vec<Range>, Vec<String>) {
    let HostRanges { list, mut names } = host;
    let mut rank_of: HashMap<i64, Option<u32>> = HashMap::new();
    let (mut guessed, mut homeless) = (BTreeSet::new(), 0u64);
    let mut found: Vec<(u32, On, i64, Reverse<i64>, u32)> = Vec::with_capacity(list.len());
    for HostRange { start, end, thread, name } in list {
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
            (Some(rank), Some(end)) => found.push((rank, On::Thread(thread), start, Reverse(end), name)),
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
            let (rank, _, start_ns, Reverse(end_ns), name) = *range;
            ranges.push(Range { rank, thread, depth: slot.depth, name, start_ns, end_ns });
        }
        thread += rows;
    }
    ranges.sort_by_key(|range| (range.rank, range.thread, range.start_ns, Reverse(range.end_ns)));
    let lost = found.len() - ranges.len();
    notes.ignore("range that crosses too many others", lost as u64);
    notes.use_("range", (found.len() - on_streams).saturating_sub(lost) as u64);
    (ranges, names)
}

/// Graphs that were recorded as a whole, as ranges of their stream's row.
fn graphs(
    gpu: &Gpu,
    layout: &Layout,
    names: &mut Vec<String>,
) -> Vec<(u32, On, i64, Reverse<i64>, u32)> {
    let mut by_graph: HashMap<i64, u32> = HashMap::new();
    let mut found = Vec::new();
    for graph in &gpu.graphs {
        let owner = (graph.place.process, graph.place.device);
        let Ok(rank) = layout.ranks.binary_search(&owner) else { continue };
        let name = *by_graph.entry(graph.graph).or_insert_with(|| {
            names.push(format!("CUDA graph {}", graph.graph));
            names.len() as u32 - 1
        });
        found.push((rank as u32, On::Stream(graph.place.stream), graph.start, Reverse(graph.end), name));
    }
    found
}
