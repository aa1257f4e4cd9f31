//! The ranks of a file's streams and threads.

use std::collections::{BTreeMap, HashMap};

use super::assemble::{ReadFile, stream_key};
use crate::{Range, Stream};

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

/// The places of a file's events, its parts being these ranks.
pub(super) fn place(file: &ReadFile, ranks: &[u32]) -> Place {
    let rank = |part: u32| ranks.get(part as usize).copied().unwrap_or_default();
    // the host's own row comes first
    let host = Stream { rank: rank(0), process: None, device: None, id: 0 };
    // a stream without a number still has a row of its own
    let stream = |((text, part), at): ((&[u8], &u32), i64)| {
        let key = stream_key(text);
        Stream { rank: rank(*part), process: key.pid, device: key.device, id: key.id.unwrap_or(-1 - at) }
    };
    let rows = file.table.streams.texts().into_iter().zip(&file.parts.of_stream).zip(0..).map(stream);
    Place {
        streams: std::iter::once(host).chain(rows).collect(),
        hosts: file.parts.of_thread.iter().map(|part| rank(*part)).collect(),
    }
}
