//! Ranks of a file's streams and threads.

use std::collections::{BTreeMap, HashMap};

use super::assemble::{ReadFile, stream_key};
use crate::{Range, Stream};

pub(super) struct Place {
    streams: Vec<Stream>,
    hosts: Vec<u32>,
}

impl Place {
    /// Rows for the trace's table of streams, in the file's numbering.
    pub(super) fn streams(&self) -> impl Iterator<Item = Stream> + '_ {
        self.streams.iter().skip(1).cloned()
    }

    pub(super) fn rank_of(&self, stream: u16) -> u32 {
        self.streams.get(stream as usize + 1).map_or(self.first_rank(), |stream| stream.rank)
    }

    pub(super) fn rank_of_host(&self, thread: u16) -> u32 {
        self.hosts.get(thread as usize).copied().unwrap_or(self.first_rank())
    }

    /// Default rank of host events.
    pub(super) fn first_rank(&self) -> u32 {
        self.streams[0].rank
    }

    pub(super) fn ranks(&self) -> impl Iterator<Item = u32> + '_ {
        self.streams.iter().map(|stream| stream.rank)
    }

    /// Rows for ranges, numbered from 0 within each rank: host threads in order of their first range,
    /// then streams. Keyed by (is on a device, number in the file).
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

/// Assigns ranks to a file's streams and threads; `ranks` is indexed by part.
pub(super) fn place(file: &ReadFile, ranks: &[u32]) -> Place {
    let rank = |part: u32| ranks.get(part as usize).copied().unwrap_or_default();
    // the host row comes first
    let host = Stream { rank: rank(0), process: None, device: None, id: 0 };
    // a stream without a number still gets its own row
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
