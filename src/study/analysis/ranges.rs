//! Device time of named ranges (NVTX, user annotations), by name and by layer.
//!
//! Device work belongs to the host ranges that launched it, whenever it ran. For ranks without recorded launches, and
//! for annotations that only the device has, it is the device's work during the range. Ranges of one name on one rank
//! form a union: nested ones count once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rayon::prelude::*;
use serde::Serialize;

use trace::overlap::intervals::{Coverage, Interval, clip, common_length, difference, length, union};
use trace::overlap::{Lanes, LanesBuilder, Runs, us};
use trace::{LaunchSite, Range};

/// Device time of the ranges of one name or layer. Times per rank, averaged over ranks (us).
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct RangeRow {
    pub name: String,
    /// Layer parsed from the name.
    pub layer: Option<u32>,
    /// Host ranges, over all ranks; device ranges for a name that only the device has.
    pub count: u64,
    /// Total duration of host ranges of this name (us); null if there are none.
    pub time_us: Option<f64>,
    /// Total duration of device annotations of this name (us); null if there are none.
    pub device_us: Option<f64>,
    /// Time in which any lane was busy with work of these ranges (us).
    pub busy_us: f64,
    /// Part on the compute lane (us).
    pub compute_us: f64,
    /// Part on the comm lane (us).
    pub comm_us: f64,
    /// Exposed part of `comm_us`: the rank's compute lane was idle (us).
    pub exposed_us: f64,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    count: u64,
    time: Option<i64>,
    device: Option<i64>,
    busy: i64,
    compute: i64,
    comm: i64,
    exposed: i64,
}

/// Busy intervals of a rank's device, for overlap queries.
struct Device {
    busy: Coverage,
    comm: Coverage,
    exposed: Coverage,
}

/// Rows by name, the longest first; empty if the trace has no names.
pub(super) fn by_name(runs: &Runs, lanes: &[Lanes]) -> Vec<RangeRow> {
    let names = &runs.trace.meta.range_names;
    let mut rows: Vec<RangeRow> = sums(runs, lanes, |name| (name < names.len()).then_some(name as u32))
        .into_iter()
        .map(|(name, sums)| {
            let name = &names[name as usize];
            row(name.clone(), layer_of(name), sums, runs.ranks.len())
        })
        .collect();
    let time = |row: &RangeRow| row.time_us.or(row.device_us).unwrap_or(0.0);
    rows.sort_by(|a, b| time(b).total_cmp(&time(a)).then_with(|| a.name.cmp(&b.name)));
    rows
}

/// Rows by layer, in order; empty if no name contains a layer.
pub(super) fn by_layer(runs: &Runs, lanes: &[Lanes]) -> Vec<RangeRow> {
    let layers: Vec<Option<u32>> = runs.trace.meta.range_names.iter().map(|n| layer_of(n)).collect();
    if layers.iter().all(Option::is_none) {
        return Vec::new();
    }
    let mut sums = sums(runs, lanes, |name| layers.get(name).copied().flatten());
    sums.sort_by_key(|(layer, _)| *layer);
    let ranks = runs.ranks.len();
    sums.into_iter()
        .map(|(layer, sums)| row(format!("layer {layer}"), Some(layer), sums, ranks))
        .collect()
}

fn row(name: String, layer: Option<u32>, sums: Sums, ranks: usize) -> RangeRow {
    let average = |ns: i64| us(ns) / ranks.max(1) as f64;
    RangeRow {
        name,
        layer,
        count: sums.count,
        time_us: sums.time.map(average),
        device_us: sums.device.map(average),
        busy_us: average(sums.busy),
        compute_us: average(sums.compute),
        comm_us: average(sums.comm),
        exposed_us: average(sums.exposed),
    }
}

/// Sums of the ranges whose names map to the same key.
fn sums(runs: &Runs, lanes: &[Lanes], key: impl Fn(usize) -> Option<u32> + Sync) -> Vec<(u32, Sums)> {
    let all = &runs.trace.ranges;
    if all.is_empty() {
        return Vec::new();
    }
    let key = |range: &Range| key(range.name as usize);
    let mut launched = Launched::of(runs, &key);
    // (key, rank, on the device, interval), sorted so that ranges of one key and rank are adjacent
    let mut ranges: Vec<(u32, usize, bool, Interval)> = Vec::new();
    for (at, range) in all.iter().enumerate() {
        let Some(key) = key(range) else { continue };
        let Ok(rank) = runs.ranks.binary_search(&range.rank) else { continue };
        let interval = (range.start_ns, range.end_ns.max(range.start_ns));
        let within = runs.clip_interval(interval).and_then(|interval| match &lanes[rank].extents[..] {
            _ if runs.selection.step.is_none() => Some(interval),
            _ if launched.known[rank] && !range.on_device => launched.active[at].then_some(interval),
            // ranges have no steps, so use the time of the step
            extents => extents.iter().find_map(|extent| clip(interval, *extent)),
        });
        if let Some(within) = within {
            ranges.push((key, rank, range.on_device, within));
        }
    }
    ranges.par_sort_unstable();
    let devices: Vec<Device> = lanes.par_iter().map(Device::new).collect();
    let mut sums: HashMap<u32, Sums> = HashMap::new();
    for together in ranges.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let (key, rank, ..) = together[0];
        let sums = sums.entry(key).or_default();
        let (host, device) = together.split_at(together.partition_point(|range| !range.2));
        let union_of =
            |ranges: &[(u32, usize, bool, Interval)]| union(ranges.iter().map(|range| range.3));
        for (sum, ranges) in [(&mut sums.time, host), (&mut sums.device, device)] {
            if !ranges.is_empty() {
                *sum = Some(sum.unwrap_or(0).saturating_add(length(&union_of(ranges))));
            }
        }
        let own = if host.is_empty() { device } else { host };
        sums.count += own.len() as u64;
        if launched.known[rank] && !host.is_empty() {
            let lanes_of = launched.lanes.remove(&(key, rank)).unwrap_or_default().finish();
            let times = lanes_of.sums();
            sums.busy += times.busy_ns;
            sums.compute += times.compute_ns;
            sums.comm += times.comm_ns;
            sums.exposed += times.comm_ns - common_length(&lanes_of.comm, lanes[rank].compute.union());
            continue;
        }
        let (device, mut near) = (&devices[rank], [0; 4]);
        for interval in union_of(own) {
            sums.busy += device.busy.near(interval, &mut near[0]);
            sums.compute += lanes[rank].compute.near(interval, &mut near[1]);
            sums.comm += device.comm.near(interval, &mut near[2]);
            sums.exposed += device.exposed.near(interval, &mut near[3]);
        }
    }
    sums.into_iter().collect()
}

struct Launched {
    /// Lanes by key of the ranges and rank.
    lanes: HashMap<(u32, usize), LanesBuilder>,
    /// True for ranks with recorded launches.
    known: Vec<bool>,
    /// True for ranges that launched selected work.
    active: Vec<bool>,
}

impl Launched {
    fn of(runs: &Runs, key: &(impl Fn(&Range) -> Option<u32> + Sync)) -> Self {
        let ranges = &runs.trace.ranges;
        let outer = outer(ranges);
        let active: Vec<AtomicBool> = ranges.iter().map(|_| AtomicBool::new(false)).collect();
        let of_rank = |(rank, of_rank): (usize, &Vec<_>)| {
            let mut places: HashMap<u32, usize> = HashMap::new();
            let mut lanes: Vec<((u32, usize), LanesBuilder)> = Vec::new();
            let mut known = false;
            // caches the ranges around the last site and their lanes, since launches of one range are adjacent
            let (mut last, mut of_site) = (LaunchSite::NONE, Vec::new());
            runs.each(of_rank, |span, interval| {
                let site = span.launched.range;
                known |= site != LaunchSite::NONE;
                if site != last {
                    last = site;
                    of_site.clear();
                    of_site.extend(around(&outer, site).filter_map(|at| {
                        let place = *places.entry(key(&ranges[at])?).or_insert_with_key(|key| {
                            lanes.push(((*key, rank), LanesBuilder::default()));
                            lanes.len() - 1
                        });
                        // a range that ends within the site is not around its later launches
                        let end = ranges[at].end_ns;
                        let until = if end < ranges[site as usize].end_ns { end } else { i64::MAX };
                        Some((at, place, until))
                    }));
                }
                for (at, place, _) in of_site.iter().filter(|around| span.ready_ns < around.2) {
                    active[*at].store(true, Relaxed);
                    lanes[*place].1.add(span, interval, runs.class(span));
                }
            });
            (lanes, known)
        };
        let found: Vec<_> = runs.by_rank.par_iter().enumerate().map(of_rank).collect();
        let mut all = Self {
            lanes: HashMap::new(),
            known: Vec::new(),
            active: active.into_iter().map(AtomicBool::into_inner).collect(),
        };
        for (lanes, known) in found {
            all.lanes.extend(lanes);
            all.known.push(known);
        }
        all
    }
}

/// Index of the enclosing range, for sorted ranges; `u32::MAX` if none. A host range outside all others of its thread
/// lies in the innermost range around it of the only other thread of its rank with one: PyTorch names all-reduces on
/// the thread of the backward pass, while the step's range is on the thread that waits for it.
pub(super) fn outer(ranges: &[Range]) -> Vec<u32> {
    let nested = nested(ranges);
    let mut outer = nested.clone();
    let mut threads: Vec<std::ops::Range<usize>> = Vec::new();
    for thread in ranges.chunk_by(|a, b| (a.rank, a.thread) == (b.rank, b.thread)) {
        let start = threads.last().map_or(0, |last| last.end);
        threads.push(start..start + thread.len());
    }
    for of_rank in threads.chunk_by(|a, b| ranges[a.start].rank == ranges[b.start].rank) {
        let on_host = |thread: &&std::ops::Range<usize>| !ranges[thread.start].on_device;
        for thread in of_rank.iter().filter(on_host) {
            let others = || of_rank.iter().filter(on_host).filter(|other| *other != thread);
            for at in thread.clone().filter(|at| nested[*at] == u32::MAX) {
                let mut found = others().filter_map(|other| around_range(ranges, &nested, other, at));
                if let (Some(only), None) = (found.next(), found.next()) {
                    outer[at] = only;
                }
            }
        }
    }
    outer
}

/// Innermost range of a thread that begins before the range `at` and ends after it.
fn around_range(
    ranges: &[Range],
    nested: &[u32],
    thread: &std::ops::Range<usize>,
    at: usize,
) -> Option<u32> {
    let within = &ranges[at];
    let before = ranges[thread.clone()].partition_point(|range| range.start_ns < within.start_ns);
    let last = (thread.start + before.checked_sub(1)?) as u32;
    let ends_after = |at: &u32| ranges[*at as usize].end_ns >= within.end_ns;
    let known = |at: u32| (at != u32::MAX).then_some(at);
    std::iter::successors(Some(last), |at| known(nested[*at as usize])).find(ends_after)
}

/// Index of the enclosing range of the same thread; `u32::MAX` if none.
fn nested(ranges: &[Range]) -> Vec<u32> {
    let mut open: Vec<u32> = Vec::new();
    let mut row = None;
    let mut outer = Vec::with_capacity(ranges.len());
    for (at, range) in ranges.iter().enumerate() {
        if row.replace((range.rank, range.thread)) != Some((range.rank, range.thread)) {
            open.clear();
        }
        while open.last().is_some_and(|last| ranges[*last as usize].end_ns <= range.start_ns) {
            open.pop();
        }
        outer.push(open.last().copied().unwrap_or(u32::MAX));
        open.push(at as u32);
    }
    outer
}

/// Range `site` and its enclosing ranges, the innermost first; empty if `site` is not a range.
pub(super) fn around(outer: &[u32], site: u32) -> impl Iterator<Item = usize> {
    let known = move |at: u32| outer.get(at as usize).map(|_| at as usize);
    std::iter::successors(known(site), move |at| known(outer[*at]))
}

impl Device {
    fn new(lanes: &Lanes) -> Self {
        Self {
            busy: Coverage::new(lanes.busy()),
            comm: Coverage::new(lanes.comm.clone()),
            exposed: Coverage::new(difference(&lanes.comm, lanes.compute.union())),
        }
    }
}

/// Layer index in a name: `model.layers.12.mlp`, `layer_12`, `nn.Module: LlamaDecoderLayer_12`, `transformer.h.12`,
/// `decode/L12/mlp`.
pub fn layer_of(name: &str) -> Option<u32> {
    let number = |text: &str| {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        text[..digits].parse().ok()
    };
    let lower = name.to_ascii_lowercase();
    for word in ["layers", "layer", "blocks", "block", "transformer.h"] {
        for (at, _) in lower.match_indices(word) {
            let rest = &lower[at + word.len()..];
            let rest = rest.strip_prefix(['.', '_', '-', ':', '[', '/', ' ', '#']).unwrap_or(rest);
            if let Some(layer) = number(rest.trim_start()) {
                return Some(layer);
            }
        }
    }
    name.split('/').find_map(|part| {
        let digits = part.strip_prefix('L').filter(|d| d.bytes().all(|b| b.is_ascii_digit()))?;
        number(digits)
    })
}

#[cfg(test)]
mod tests;
