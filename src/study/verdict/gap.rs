//! A single gap that is most of the idle time, such as a blocking copy before the first kernel.

use serde::Serialize;

use super::words::percent;
use crate::analysis::{IdleSplit, TraceReport};
use base::text::latency;

/// Minimum share of a rank's idle time for a gap to be named.
const MOST: f64 = 0.5;

/// Minimum share of a rank's time for a gap to be named.
const MUCH: f64 = 0.2;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct LongestGap {
    pub rank: u32,
    pub gap_us: f64,
    /// Start of the gap (us since the trace's first start).
    pub at_us: f64,
    /// Share of the rank's idle time (0 to 1).
    pub idle_share: f64,
    /// Share of the rank's other time in which it was busy (0 to 1).
    pub busy_share: f64,
}

impl LongestGap {
    /// The longest gap of any rank, if it is most of that rank's idle time and much of its time, and no wait for
    /// communication.
    pub(super) fn of(report: &TraceReport) -> Option<Self> {
        let idle = report.idle.iter().filter(|rank| rank.gaps > 1);
        let longest: &IdleSplit = idle.max_by_key(|rank| rank.longest_ns)?;
        let lanes = report.overlap.ranks.iter().find(|rank| rank.rank == Some(longest.rank))?;
        let gap_us = longest.longest_ns as f64 / 1e3;
        let others_us = lanes.span_us - gap_us;
        let is_communication = longest.longest_ns > longest.host_ns + longest.between_ns;
        let is_most =
            !is_communication && gap_us >= MOST * longest.idle_us && gap_us >= MUCH * lanes.span_us;
        (is_most && others_us > 0.0).then(|| Self {
            rank: longest.rank,
            gap_us,
            at_us: longest.longest_at_ns as f64 / 1e3,
            idle_share: gap_us / longest.idle_us,
            busy_share: lanes.busy_us / others_us,
        })
    }

    pub(super) fn in_words(&self, ranks: usize) -> String {
        let of_rank = if ranks > 1 { format!(" of rank {}", self.rank) } else { String::new() };
        format!(
            "One gap of {} at {} is {} of the idle time{of_rank}; outside it the GPU is busy {} of the time. Look at what \
             the host did there (`timeline` with `--from` and `--to`).",
            latency(self.gap_us),
            latency(self.at_us),
            percent(self.idle_share),
            percent(self.busy_share)
        )
    }
}
