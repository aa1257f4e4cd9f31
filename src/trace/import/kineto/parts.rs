//! Parts of a file, each a rank: labelled processes of merged traces, or else pairs of process and device.
//!
//! Also finds the process that launched each part's work, because correlation ids are unique only per process.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::assemble::{ReadFile, StreamKey, stream_key};
use super::event::GpuCategory;
use super::json::last_integer;
use super::names::KINDS;
use super::open::Metadata;
use super::table::{EventTable, LaunchCall, PART};
use crate::import::rank::{Position, label};
use crate::{Range, TraceStream};
use base::error::{Error, Result};
use base::text::natural_order;

/// Limit above which device numbers are considered damaged.
const MOST_PARTS: usize = 4096;

/// Shares of explained launches that differ by less count as equal.
const TIE: f64 = 0.02;

/// Ranks within a file, numbered from 0, and the groups of processes and streams that share correlation
/// ids.
#[derive(Debug, Default)]
pub(super) struct FileRanks {
    pub(super) of_stream: Vec<u32>,
    pub(super) of_thread: Vec<u32>,
    pub(super) labels: Vec<Option<Position>>,
    /// Correlation group of each stream, thread and launching process; all 0 in a file of one process.
    pub(super) groups: CorrelationGroups,
    pub(super) notes: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct CorrelationGroups {
    pub(super) count: usize,
    pub(super) of_stream: Vec<usize>,
    pub(super) of_thread: Vec<usize>,
    pub(super) of_process: Vec<usize>,
}

/// Owner of a process id: a rank's label or prefix in a merged file (`[TP01] 0`, `1_900`), or unnamed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Owner {
    position: Option<Position>,
    prefix: String,
}

impl Owner {
    fn is_named(&self) -> bool {
        self.position.is_some() || !self.prefix.is_empty()
    }
}

/// Ranks that labels give to processes.
type Labels<'a> = HashMap<&'a [u8], Position>;

fn labels(table: &EventTable) -> Labels<'_> {
    let position = |text: &[u8]| label(&String::from_utf8_lossy(text));
    table.labels.iter().filter_map(|(pid, text)| Some((&**pid, position(text)?))).collect()
}

fn owner(labels: &Labels<'_>, pid: &[u8]) -> Owner {
    let labelled = labels.get(pid).copied();
    if pid.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-') {
        return Owner { position: labelled, prefix: String::new() };
    }
    let text = String::from_utf8_lossy(pid);
    let position = label(&text).or(labelled);
    let before = text.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_prefix = position.is_none() && before.contains(|c: char| c.is_ascii_digit());
    Owner { position, prefix: if is_prefix { before.to_owned() } else { String::new() } }
}

/// Key of a part: the label, or else the owner with process and device.
type Key = (Owner, Option<(Option<i64>, Option<i64>)>);

fn key(owner: Owner, stream: &StreamKey) -> Key {
    let place = owner.position.is_none().then_some((stream.pid, stream.device));
    (owner, place)
}

fn pid(key: &[u8]) -> &[u8] {
    key.split(|byte| *byte == PART).next().unwrap_or_default()
}

struct Rows<'a> {
    table: &'a EventTable,
    labels: Labels<'a>,
    streams: Vec<Key>,
    /// True for streams with kernels.
    busy: Vec<bool>,
    threads: Vec<&'a [u8]>,
    processes: Vec<&'a [u8]>,
}

impl FileRanks {
    /// Finds the parts of a file before its launches are linked. Returns an error for an implausible
    /// number of parts.
    pub(super) fn new(name: &str, table: &EventTable, metadata: &Metadata) -> Result<Self> {
        let rows = Rows::from_table(table);
        let mut notes = Vec::new();
        let ranks = rows.ranks(metadata, &mut notes);
        if ranks.len() > MOST_PARTS {
            return Err(Error::input(format!(
                "{name}: kernels of {} devices; at most {MOST_PARTS} are read from one file",
                ranks.len()
            )));
        }
        let of_stream: Vec<u32> = rows.streams.iter().map(|key| part(&ranks, key)).collect();
        let mut labels: Vec<Option<Position>> = ranks.iter().map(|key| key.0.position).collect();
        // fall back to a communicator's ranks for processes without labels
        for (stream, rank) in &table.ranks {
            if let Some(label) = labels.get_mut(of_stream[*stream as usize] as usize) {
                *label = label.or(Some(Position::of_rank(*rank)));
            }
        }
        if ranks.len() <= 1 {
            let pids = rows.processes.iter().chain(&rows.threads);
            let hosts: BTreeSet<Position> =
                pids.filter_map(|pid| owner(&rows.labels, pid).position).collect();
            let host = hosts.first().copied().filter(|_| hosts.len() == 1);
            let labels = vec![labels.first().copied().flatten().or(host)];
            let groups = CorrelationGroups {
                count: 1,
                of_stream: vec![0; rows.streams.len()],
                of_thread: vec![0; rows.threads.len()],
                of_process: vec![0; rows.processes.len()],
            };
            let of_thread = vec![0; rows.threads.len()];
            return Ok(Self { of_stream, of_thread, labels, groups, notes });
        }
        let groups = rows.groups(&of_stream, &mut labels, &mut notes);
        let of_group: Vec<u32> = (0..groups.count)
            .map(|group| {
                let mut streams = groups.of_stream.iter().zip(&rows.busy);
                streams
                    .position(|(of, busy)| *of == group && *busy)
                    .map_or(0, |stream| of_stream[stream])
            })
            .collect();
        let of_thread = groups.of_thread.iter().map(|group| of_group[*group]).collect();
        Ok(Self { of_stream, of_thread, labels, groups, notes })
    }
}

/// Part of a stream: its own, or for a stream without kernels the one of the same owner or device.
fn part(ranks: &[&Key], key: &Key) -> u32 {
    let device = |key: &Key| key.1.and_then(|place| place.1);
    let same = ranks.iter().position(|rank| *rank == key);
    let of_owner = || ranks.iter().position(|rank| key.0.is_named() && rank.0 == key.0);
    let of_device =
        || ranks.iter().position(|rank| device(key).is_some() && device(rank) == device(key));
    same.or_else(of_owner).or_else(of_device).unwrap_or(0) as u32
}

impl<'a> Rows<'a> {
    fn from_table(table: &'a EventTable) -> Self {
        let labels = labels(table);
        let streams = table.streams.texts();
        let mut busy = vec![false; streams.len()];
        for span in &table.spans {
            busy[span.stream as usize] |= span.operation % KINDS as u32 == GpuCategory::Kernel as u32;
        }
        Self {
            table,
            streams: streams
                .iter()
                .map(|text| key(owner(&labels, pid(text)), &stream_key(text)))
                .collect(),
            busy,
            threads: table.threads.texts().into_iter().map(pid).collect(),
            processes: table.processes.texts(),
            labels,
        }
    }

    /// Keys of the parts. A device with copies only is not a part.
    fn ranks(&self, metadata: &Metadata, notes: &mut Vec<String>) -> Vec<&Key> {
        let busy = self.busy.iter().zip(&self.streams).filter(|(busy, _)| **busy);
        let mut ranks: Vec<&Key> =
            busy.map(|(_, key)| key).collect::<BTreeSet<_>>().into_iter().collect();
        // natural order: `2_0` before `10_0`
        ranks.sort_by(|a, b| natural_order(&a.0.prefix, &b.0.prefix));
        let devices: BTreeSet<_> = ranks.iter().map(|key| key.1.and_then(|place| place.1)).collect();
        let is_one_process = self.processes.len() <= 1
            && devices.len() == ranks.len()
            && ranks.iter().all(|key| !key.0.is_named());
        let count = ranks.len();
        match (metadata.rank, metadata.world_size) {
            _ if count <= 1 => {}
            (Some(rank), Some(2..)) if is_one_process => {
                notes.push(format!(
                    "kernels of {count} devices count as one rank, because the file names rank {rank}"
                ));
                ranks.truncate(1);
            }
            _ => {
                let devices_words = match devices.len() {
                    _ if ranks.iter().all(|key| key.1.is_none()) => "labelled processes",
                    1 => "processes",
                    _ => "devices",
                };
                notes.push(format!("kernels of {count} {devices_words}; each is taken as a rank"));
            }
        }
        ranks
    }

    /// Groups that share correlation ids: the processes and streams of an owner, or each process without
    /// an owner with the streams whose work it launched. Copies labels of launching processes to their
    /// parts.
    fn groups(
        &self,
        of_stream: &[u32],
        labels: &mut [Option<Position>],
        notes: &mut Vec<String>,
    ) -> CorrelationGroups {
        let mut numbers: BTreeMap<Owner, usize> = BTreeMap::new();
        let mut group = |owner: Owner| {
            let next = numbers.len();
            *numbers.entry(owner).or_insert(next)
        };
        let mut groups = CorrelationGroups {
            of_stream: self.streams.iter().map(|key| group(key.0.clone())).collect(),
            of_process: self.processes.iter().map(|pid| group(owner(&self.labels, pid))).collect(),
            of_thread: self.threads.iter().map(|pid| group(owner(&self.labels, pid))).collect(),
            count: 0,
        };
        groups.count = numbers.len();
        // parts without an owner, and processes whose owner has no part
        let busy = || self.busy.iter().enumerate().filter(|(_, busy)| **busy).map(|(at, _)| at);
        let parts: BTreeSet<u32> =
            busy().filter(|at| !self.streams[*at].0.is_named()).map(|at| of_stream[at]).collect();
        let parts: Vec<u32> = parts.into_iter().collect();
        let owned: BTreeSet<usize> =
            busy().filter(|at| self.streams[*at].0.is_named()).map(|at| groups.of_stream[at]).collect();
        let free: Vec<usize> =
            (0..self.processes.len()).filter(|at| !owned.contains(&groups.of_process[*at])).collect();
        if parts.is_empty() || free.is_empty() {
            return groups;
        }
        let (launched_by, by_order) = self.launching(of_stream, &parts, &free);
        if by_order {
            notes.push(format!(
                "launches of {} processes have the same numbers; matched to devices in order",
                free.len()
            ));
        }
        for (at, group) in free.iter().zip(groups.count..) {
            groups.of_process[*at] = group;
            let threads = self.threads.iter().zip(&mut groups.of_thread);
            threads.filter(|(pid, _)| **pid == self.processes[*at]).for_each(|(_, of)| *of = group);
        }
        for (part, launched_by) in parts.iter().zip(&launched_by) {
            let streams = of_stream.iter().zip(&mut groups.of_stream);
            streams.filter(|(of, _)| *of == part).for_each(|(_, of)| *of = groups.count + launched_by);
            let label = &mut labels[*part as usize];
            *label = label.or(owner(&self.labels, self.processes[free[*launched_by]]).position);
        }
        groups.count += free.len();
        groups
    }

    /// Finds the process that launched each part's work, as an index into `free`: the one with a
    /// preceding call of the same id for each kernel. Also returns true if several match equally well
    /// and the order of process ids decided.
    fn launching(&self, of_stream: &[u32], parts: &[u32], free: &[usize]) -> (Vec<usize>, bool) {
        let mut launches: Vec<Vec<(i64, i64)>> = vec![Vec::new(); free.len()];
        for LaunchCall { link, start_ns, process, .. } in &self.table.launches {
            if let Some(at) = free.iter().position(|own| *own == usize::from(*process)) {
                launches[at].push((*link, *start_ns));
            }
        }
        launches.iter_mut().for_each(|launches| launches.sort_unstable());
        let mut found = vec![vec![0u64; free.len()]; parts.len()];
        let mut linked = vec![0u64; parts.len()];
        for span in self.table.spans.iter().filter(|span| span.ready_ns != -1) {
            let Ok(part) = parts.binary_search(&of_stream[span.stream as usize]) else { continue };
            linked[part] += 1;
            for (launches, found) in launches.iter().zip(&mut found[part]) {
                let at = launches.partition_point(|launch| launch.0 < span.ready_ns);
                let launch = launches.get(at).filter(|launch| launch.0 == span.ready_ns);
                *found += u64::from(launch.is_some_and(|launch| launch.1 <= span.start_ns));
            }
        }
        // process ids ascend with ranks if one launcher started them
        let mut in_order: Vec<usize> = (0..free.len()).collect();
        in_order.sort_by_key(|at| last_integer(self.processes[free[*at]]));
        let close = |part: usize| -> Vec<usize> {
            let best = found[part].iter().copied().max().unwrap_or(0);
            let is_close = |at: &usize| (best - found[part][*at]) as f64 <= TIE * linked[part] as f64;
            in_order.iter().copied().filter(is_close).collect()
        };
        let mut left: Vec<(usize, Vec<usize>)> =
            (0..parts.len()).map(|part| (part, close(part))).collect();
        let mut launching = vec![0; parts.len()];
        let mut by_order = false;
        // assign parts with a single candidate first; if every part can have its own process, use each
        // process once
        while let Some(next) = (0..left.len()).min_by_key(|at| left[*at].1.len()) {
            let (part, close) = left.remove(next);
            by_order |= close.len() > 1 && linked[part] > 0;
            let nth = in_order.get(part).filter(|at| free.len() == parts.len() && close.contains(at));
            let chosen = nth.or(close.first()).copied().unwrap_or(0);
            launching[part] = chosen;
            for (_, close) in left.iter_mut().filter(|_| free.len() >= parts.len()) {
                if close.len() > 1 {
                    close.retain(|at| *at != chosen);
                }
            }
        }
        (launching, by_order)
    }
}

pub(super) struct FileStreams {
    /// Rank of what no stream or thread names.
    first_rank: u32,
    /// Rows for the trace's table of streams, in the file's numbering.
    pub(super) streams: Vec<TraceStream>,
    hosts: Vec<u32>,
}

impl FileStreams {
    pub(super) fn rank_of(&self, stream: u16) -> u32 {
        self.streams.get(stream as usize).map_or(self.first_rank, |stream| stream.rank)
    }

    pub(super) fn rank_of_host(&self, thread: u16) -> u32 {
        self.hosts.get(thread as usize).copied().unwrap_or(self.first_rank)
    }

    pub(super) fn ranks(&self) -> impl Iterator<Item = u32> + '_ {
        self.streams.iter().map(|stream| stream.rank).chain([self.first_rank])
    }

    /// Rows for ranges, numbered from 0 within each rank: host threads in order of their first range,
    /// then streams, then host threads with `work` only, so that it does not change the numbers of others. Keyed by
    /// (is on a device, number in the file).
    pub(super) fn rows(
        &self,
        host: &[Range],
        device: &[Range],
        work: &[Range],
    ) -> HashMap<(bool, u16), u16> {
        let mut first: BTreeMap<(bool, u16), i64> = BTreeMap::new();
        let host = host.iter().map(|range| (false, range));
        for (on_device, range) in host.chain(device.iter().map(|range| (true, range))) {
            let start = first.entry((on_device, range.thread)).or_insert(range.start_ns);
            *start = range.start_ns.min(*start);
        }
        let mut bare: BTreeMap<u16, i64> = BTreeMap::new();
        for events in work.chunk_by(|a, b| a.thread == b.thread) {
            let thread = events[0].thread;
            if !first.contains_key(&(false, thread)) {
                let start = bare.entry(thread).or_insert(events[0].start_ns);
                *start = events.iter().map(|event| event.start_ns).fold(*start, i64::min);
            }
        }
        let mut order: Vec<_> = first.into_iter().map(|(row, start)| (row.0, start, row.1)).collect();
        order.sort_unstable();
        let mut bare: Vec<_> = bare.into_iter().map(|(thread, start)| (false, start, thread)).collect();
        bare.sort_unstable();
        order.append(&mut bare);
        let mut counts: HashMap<u32, u16> = HashMap::new();
        let number = |(on_device, _, row): (bool, i64, u16)| {
            let rank = if on_device { self.rank_of(row) } else { self.rank_of_host(row) };
            let count = counts.entry(rank).or_default();
            let at = *count;
            *count = count.saturating_add(1);
            ((on_device, row), at)
        };
        order.into_iter().map(number).collect()
    }
}

/// Assigns ranks to a file's streams and threads; `ranks` is indexed by part.
pub(super) fn place(file: &ReadFile, ranks: &[u32]) -> FileStreams {
    let rank = |part: u32| ranks.get(part as usize).copied().unwrap_or_default();
    // a stream without a number still gets its own row
    let stream = |((text, part), at): ((&[u8], &u32), i64)| {
        let key = stream_key(text);
        let id = key.id.unwrap_or(-1 - at);
        TraceStream { rank: rank(*part), process: key.pid, device: key.device, id, context: None }
    };
    let rows = file.table.streams.texts().into_iter().zip(&file.parts.of_stream).zip(0..).map(stream);
    let hosts = file.parts.of_thread.iter().map(|part| rank(*part)).collect();
    FileStreams { first_rank: rank(0), streams: rows.collect(), hosts }
}
