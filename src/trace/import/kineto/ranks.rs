//! Whose events they are: a rank a file, or a rank a device where one process drives several.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::assemble::{ReadFile, StreamKey, stream_key};
use super::event::Gpu;
use super::operations::KINDS;
use super::top::rank_in_name;
use crate::trace::export::HOSTS;
use crate::trace::{Range, Stream};

/// A file's streams and whose they are.
pub(super) struct Place {
    streams: Vec<Stream>,
    /// The rank of each of the host's threads.
    hosts: Vec<u32>,
}

impl Place {
    /// Rows of the trace's table of streams, at the file's own numbers.
    pub(super) fn streams(&self) -> impl Iterator<Item = Stream> + '_ {
        self.streams.iter().skip(1).cloned()
    }

    /// The rank of one of the file's streams.
    pub(super) fn rank_of(&self, stream: u16) -> u32 {
        self.streams.get(stream as usize + 1).map_or(self.first_rank(), |stream| stream.rank)
    }

    /// The rank of one of the host's threads.
    pub(super) fn rank_of_host(&self, thread: u16) -> u32 {
        self.hosts.get(thread as usize).copied().unwrap_or(self.first_rank())
    }

    /// The rank that the host's events belong to where nothing says more.
    pub(super) fn first_rank(&self) -> u32 {
        self.streams[0].rank
    }

    /// All ranks of the file.
    pub(super) fn ranks(&self) -> impl Iterator<Item = u32> + '_ {
        self.streams.iter().map(|stream| stream.rank)
    }

    /// Rows for ranges, counted from 0 in each rank: threads of the host in order of their first
    /// range, then streams. The key: on a device or not, and the file's number.
    pub(super) fn rows(&self, host: &[Range], device: &[Range]) -> HashMap<(bool, u16), u16> {
        let mut first: BTreeMap<(bool, u16), i64> = BTreeMap::new();
        let host = host.iter().map(|range| (false, range));
        for (on_device, range) in host.chain(device.iter().map(|range| (true, range))) {
            let start = first.entry((on_device, range.thread)).or_insert(range.start_ns);
            *start = range.start_ns.min(*start);
        }
        let mut order: Vec<_> = first.into_iter().map(|(row, start)| (row.0, start, row.1)).collect();
        order.sort_unstable();
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

/// Gives every file its ranks, and says in words what had to be guessed.
pub(super) fn places(files: &[ReadFile]) -> (Vec<Place>, Vec<String>) {
    let mut said = Vec::new();
    let keys: Vec<Vec<StreamKey>> = files
        .iter()
        .map(|file| file.table.streams.texts().into_iter().map(stream_key).collect())
        .collect();
    let parts: Vec<Vec<u32>> =
        files.iter().zip(&keys).map(|(file, keys)| parts(file, keys, &mut said)).collect();
    let counts: Vec<u32> =
        parts.iter().map(|parts| parts.iter().max().map_or(1, |most| most + 1)).collect();
    let first_ranks = if counts.iter().all(|count| *count == 1) {
        file_ranks(files, &mut said)
    } else {
        let before = |at: usize| counts[..at].iter().sum();
        (0..counts.len()).map(before).collect()
    };
    let place = |at: usize| {
        let (keys, parts, first) = (&keys[at], &parts[at], first_ranks[at]);
        // the host's own row comes first
        let host = Stream { rank: first, process: None, device: None, id: 0 };
        // a stream without a number still has a row of its own
        let stream = |((key, part), at): ((&StreamKey, &u32), i64)| {
            let id = key.id.unwrap_or(-1 - at);
            Stream { rank: first + part, process: key.pid, device: key.device, id }
        };
        let rows: Vec<_> = keys.iter().zip(parts).zip(0..).map(stream).collect();
        let ranks = parts.iter().max().map_or(1, |most| most + 1);
        Place {
            streams: std::iter::once(host).chain(rows).collect(),
            hosts: hosts(&files[at], first, ranks),
        }
    };
    let places = (0..files.len()).map(place).collect();
    (places, said)
}

/// The rank of each of the host's threads: the file's first, but in what this program exported, where every rank has a
/// host process of its own.
fn hosts(file: &ReadFile, first: u32, ranks: u32) -> Vec<u32> {
    let own = file.metadata.provenance.is_some();
    let rank = |key: &[u8]| {
        let number = stream_key(key).pid.and_then(|pid| u32::try_from(pid.checked_sub(HOSTS)?).ok());
        first + number.filter(|number| own && *number < ranks).unwrap_or(0)
    };
    file.table.threads.texts().into_iter().map(rank).collect()
}

/// Which of the file's ranks, from 0, each of its streams belongs to.
fn parts(file: &ReadFile, keys: &[StreamKey], said: &mut Vec<String>) -> Vec<u32> {
    let mut busy = vec![false; keys.len()];
    for span in &file.table.spans {
        busy[span.stream as usize] |= span.operation % KINDS as u32 == Gpu::Kernel as u32;
    }
    // a device that only copies take part in is no rank
    let with_kernels = |of: fn(&StreamKey) -> Option<i64>| -> BTreeSet<i64> {
        busy.iter().zip(keys).filter(|(busy, _)| **busy).filter_map(|(_, key)| of(key)).collect()
    };
    let devices = with_kernels(|key| key.device);
    let processes = with_kernels(|key| key.pid);
    let (what, of, distinct): (_, fn(&StreamKey) -> Option<i64>, _) = if devices.len() > 1 {
        ("devices", |key| key.device, devices)
    } else {
        ("processes", |key| key.pid, processes)
    };
    if distinct.len() <= 1 {
        return vec![0; keys.len()];
    }
    let name = &file.name;
    if let (Some(rank), Some(2..)) = (file.metadata.rank, file.metadata.world_size) {
        said.push(format!(
            "{name}: kernels of {} {what}; taken as one rank, because the file says it is rank {rank}",
            distinct.len()
        ));
        return vec![0; keys.len()];
    }
    said.push(format!("{name}: kernels of {} {what}; each is taken as a rank", distinct.len()));
    let distinct: Vec<i64> = distinct.into_iter().collect();
    let number = |key: &StreamKey| {
        let at = of(key).and_then(|value| distinct.binary_search(&value).ok());
        at.unwrap_or(0) as u32
    };
    keys.iter().map(number).collect()
}

/// A rank a file: what the files say, else what their names say, else their order.
fn file_ranks(files: &[ReadFile], said: &mut Vec<String>) -> Vec<u32> {
    let distinct = |ranks: Vec<Option<u32>>| -> Option<Vec<u32>> {
        let ranks: Vec<u32> = ranks.into_iter().collect::<Option<_>>()?;
        let different: BTreeSet<u32> = ranks.iter().copied().collect();
        (different.len() == ranks.len()).then_some(ranks)
    };
    let known: Vec<Option<u32>> = files.iter().map(|file| file.metadata.rank).collect();
    if let Some(ranks) = distinct(known.clone()) {
        return ranks;
    }
    let named = |loose| files.iter().map(|file| rank_in_name(&file.name, loose)).collect();
    if let Some(ranks) = distinct(named(false)).or_else(|| distinct(named(files.len() > 1))) {
        if known.iter().any(Option::is_some) {
            said.push("several files say they are of the same rank, or do not say; ranks are taken from the files' names".into());
        }
        return ranks;
    }
    if files.len() > 1 {
        said.push("neither the files nor their names tell the ranks apart; ranks are numbered in order of the files".into());
    }
    (0..files.len() as u32).collect()
}
