//! Work that dominates a trace: copies by direction, kernels, the longest kernel, idle time.

use std::collections::BTreeMap;

use serde::Serialize;

use super::report::TraceReport;
use trace::Trace;
use trace::overlap::Selection;

/// Minimum share of the time for a part to be reported (0 to 1).
const LEAST: f64 = 0.01;

/// Part of the time of a trace. Parts overlap if copies, kernels and communication run in parallel.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct TimePart {
    /// `idle`, `kernels`, `communication`, `other work`, or the direction of copies: `host-to-device copies`.
    pub work: String,
    /// Share of the time, averaged over ranks (0 to 1).
    pub share: f64,
    /// Kernel with the largest share of the part; null for idle time and copies.
    pub longest: Option<String>,
    /// Share of the time that this kernel takes (0 to 1).
    pub longest_share: f64,
    /// Bandwidth of copies (GB/s), if the trace records all their sizes.
    pub gb_s: Option<f64>,
}

/// Parts of the time of a trace, the largest first; empty if nothing ran.
pub fn time_parts(trace: &Trace, report: &TraceReport, selection: &Selection) -> Vec<TimePart> {
    let all = &report.overlap.all;
    if all.span_us <= 0.0 {
        return Vec::new();
    }
    // sums of durations count parallel work twice, so shares use the unions of lanes
    let lane = |lane: &str, union_us: f64| {
        let rows = || report.names.iter().filter(move |row| row.lane == lane);
        let sum: f64 = rows().map(|row| row.total_us).sum();
        let part = move |us: f64| if sum > 0.0 { us / sum * union_us / all.span_us } else { 0.0 };
        let longest = rows().next().map(|row| (row.name.clone(), part(row.total_us)));
        (union_us / all.span_us, longest, part)
    };
    let mut parts = vec![TimePart {
        work: "idle".into(),
        share: all.idle_us / all.span_us,
        longest: None,
        longest_share: 0.0,
        gb_s: None,
    }];
    for (work, name, union_us) in
        [("kernels", "compute", all.compute_us), ("communication", "comm", all.comm_us)]
    {
        let (share, longest, _) = lane(name, union_us);
        let (longest, longest_share) = longest.unzip();
        let longest_share = longest_share.unwrap_or(0.0);
        parts.push(TimePart { work: work.into(), share, longest, longest_share, gb_s: None });
    }
    let (_, _, part) = lane("memory", all.memory_us);
    let is_whole = selection.is_everything();
    let mut copies: BTreeMap<&str, (f64, Option<f64>, f64)> = BTreeMap::new();
    let ranks = report.overlap.ranks.len().max(1) as f64;
    for row in report.names.iter().filter(|row| row.lane == "memory") {
        let operation = trace.operations.iter().find(|operation| operation.name == row.name);
        let mean = operation.map_or(0, |operation| operation.cost.bytes_written.fixed);
        let bytes = (mean > 0 && is_whole).then_some(mean as f64 * row.count as f64);
        let (us, sum, time) = copies.entry(direction(&row.name)).or_insert((0.0, Some(0.0), 0.0));
        *us += row.total_us;
        *sum = sum.zip(bytes).map(|(sum, bytes)| sum + bytes);
        *time += row.total_us * ranks;
    }
    parts.extend(copies.into_iter().map(|(work, (us, bytes, time))| TimePart {
        work: work.into(),
        share: part(us),
        longest: None,
        longest_share: 0.0,
        gb_s: bytes.filter(|_| time > 0.0).map(|bytes| bytes / time / 1e3),
    }));
    parts.retain(|part| part.share >= LEAST);
    parts.sort_by(|a, b| b.share.total_cmp(&a.share));
    parts
}

/// Direction of a copy, from the names that CUDA and ROCm profilers use.
fn direction(name: &str) -> &'static str {
    let has = |words: [&str; 3]| words.iter().any(|word| name.contains(word));
    match () {
        () if has(["HtoD", "HostToDevice", "HOST_TO_DEVICE"]) => "host-to-device copies",
        () if has(["DtoH", "DeviceToHost", "DEVICE_TO_HOST"]) => "device-to-host copies",
        () if has(["PtoP", "PeerToPeer", "PEER_TO_PEER"]) => "copies between GPUs",
        () if has(["DtoD", "DeviceToDevice", "DEVICE_TO_DEVICE"]) => "device-to-device copies",
        () if has(["Memset", "fill", "Fill"]) => "fills",
        () => "copies",
    }
}

impl TimePart {
    /// Description: `97 % host-to-device copies at 27.7 GB/s`. `percent` formats a share, `name` a kernel's name.
    pub fn in_words(&self, percent: impl Fn(f64) -> String, name: impl Fn(&str) -> String) -> String {
        let mut words = format!("{} {}", percent(self.share), self.work);
        if let Some(gb_s) = self.gb_s {
            words += &format!(" at {gb_s:.1} GB/s");
        }
        if let Some(longest) = &self.longest {
            let all = self.share - self.longest_share < LEAST / 2.0;
            words += &match all {
                true => format!(" in {}", name(longest)),
                false => format!(" ({} in {})", percent(self.longest_share), name(longest)),
            };
        }
        words
    }
}
