//! What the device did within named ranges (NVTX, user annotations): by name and, where names tell, by
//! layer.
//!
//! A range is a stretch of the host's or a device row's time, and what is counted within it is what the
//! rank's device did in that time, whoever asked for it. Ranges of one name on one rank are a union:
//! nested ones count once.

use std::collections::HashMap;

use rayon::prelude::*;
use serde::Serialize;

use crate::trace::overlap::intervals::{Coverage, Interval, clip, difference, union};
use crate::trace::overlap::{Lanes, Runs, us};

/// What happened within ranges of one name, or of one layer. Times a rank, averaged over ranks (us).
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct RangeRow {
    /// Name of the ranges.
    pub name: String,
    /// Layer that the name tells.
    pub layer: Option<u32>,
    /// Ranges, over all ranks.
    pub count: u64,
    /// Sum of the ranges' own durations (us).
    pub time_us: f64,
    /// Time within the ranges in which any lane was busy (us).
    pub busy_us: f64,
    /// Time within the ranges in which the compute lane was busy (us).
    pub compute_us: f64,
    /// Time within the ranges in which the comm lane was busy (us).
    pub comm_us: f64,
    /// Comm busy, compute not, within it.
    pub exposed_us: f64,
}

/// Sums over ranks (ns).
#[derive(Clone, Copy, Default)]
struct Sums {
    count: u64,
    time: i64,
    busy: i64,
    compute: i64,
    comm: i64,
    exposed: i64,
}

/// What a rank's device did, to be asked about any time.
struct Device {
    busy: Coverage,
    comm: Coverage,
    exposed: Coverage,
}

/// By name, the longest first. Empty where nothing has a name.
pub(super) fn by_name(runs: &Runs, lanes: &[Lanes]) -> Vec<RangeRow> {
    let names = &runs.trace.meta.range_names;
    let mut rows: Vec<RangeRow> = sums(runs, lanes, |name| (name < names.len()).then_some(name as u32))
        .into_iter()
        .map(|(name, sums)| {
            let name = &names[name as usize];
            row(name.clone(), layer_of(name), sums, runs.ranks.len())
        })
        .collect();
    rows.sort_by(|a, b| b.time_us.total_cmp(&a.time_us).then_with(|| a.name.cmp(&b.name)));
    rows
}

/// By the layer that names tell, in order of layers. Empty where no name tells one.
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
        time_us: average(sums.time),
        busy_us: average(sums.busy),
        compute_us: average(sums.compute),
        comm_us: average(sums.comm),
        exposed_us: average(sums.exposed),
    }
}

/// Sums of the ranges whose names have the same key.
fn sums(runs: &Runs, lanes: &[Lanes], key: impl Fn(usize) -> Option<u32>) -> Vec<(u32, Sums)> {
    // (key, rank, interval), so that what belongs together lies together.
    let mut ranges: Vec<(u32, usize, Interval)> = Vec::new();
    for range in &runs.trace.ranges {
        let Some(key) = key(range.name as usize) else { continue };
        let Ok(rank) = runs.ranks.binary_search(&range.rank) else { continue };
        let interval = (range.start_ns, range.end_ns.max(range.start_ns));
        let within = runs.clip_interval(interval).and_then(|interval| match lanes[rank].extent {
            // Ranges know no steps: those of a step are those of its time.
            _ if runs.selection.step.is_none() => Some(interval),
            Some(extent) => clip(interval, extent),
            None => None,
        });
        if let Some(within) = within {
            ranges.push((key, rank, within));
        }
    }
    if ranges.is_empty() {
        return Vec::new();
    }
    ranges.par_sort_unstable();
    let devices: Vec<Device> = lanes.par_iter().map(Device::new).collect();
    let mut sums: HashMap<u32, Sums> = HashMap::new();
    for together in ranges.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let (key, rank, _) = together[0];
        let (sums, device) = (sums.entry(key).or_default(), &devices[rank]);
        sums.count += together.len() as u64;
        let mut near = [0; 4];
        for interval in union(together.iter().map(|(_, _, interval)| *interval)) {
            sums.time = sums.time.saturating_add(interval.1.saturating_sub(interval.0));
            sums.busy += device.busy.near(interval, &mut near[0]);
            sums.compute += lanes[rank].compute.near(interval, &mut near[1]);
            sums.comm += device.comm.near(interval, &mut near[2]);
            sums.exposed += device.exposed.near(interval, &mut near[3]);
        }
    }
    sums.into_iter().collect()
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

/// The layer that a name tells: `model.layers.12.mlp`, `layer_12`,
/// `nn.Module: LlamaDecoderLayer_12`, `transformer.h.12`, `decode/L12/mlp`.
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
#[path = "ranges_tests.rs"]
mod tests;
