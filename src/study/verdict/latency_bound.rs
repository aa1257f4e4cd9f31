//! Latency-bound collectives: small messages, which reach a fraction of the bandwidth of large ones.

use crate::analysis::CollectiveRow;
use base::text::{digits, latency, si};
use machine::hardware::Target;
use table::{Collective, Link, P2p};
use trace::{OperationKind, Trace};

/// Share of the bandwidth of large messages below which a collective is latency-bound (chosen).
const SMALL_SHARE: f64 = 1.0 / 3.0;

/// Minimum size at which a message counts as bandwidth-bound on any link (bytes, chosen).
const SMALL_BYTES: f64 = 4e6;

/// Message that reaches the bandwidth of large ones (bytes).
const LARGE_BYTES: f64 = 1e9;

/// Minimum size ratio at which the larger message serves as the large-message bandwidth (chosen).
const LARGER: u64 = 8;

/// Small message of a collective, and its transfer: means over executions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LatencyBound {
    bytes: f64,
    transfer_us: f64,
}

impl LatencyBound {
    /// `None` unless all rows of a collective have small messages of known size, far below the bandwidth of large ones.
    pub(super) fn new(
        rows: &[&CollectiveRow],
        large_gb_s: impl Fn(&CollectiveRow) -> Option<f64>,
    ) -> Option<Self> {
        let (mut bytes, mut transfer_us, mut count) = (0.0, 0.0, 0.0);
        for row in rows {
            let is_recorded = row.message_bytes_from == Some("trace");
            let message = row.message_bytes.filter(|_| is_recorded)? as f64;
            let (own, large) =
                (message / row.transfer_us.filter(|us| *us > 0.0)? / 1e3, large_gb_s(row)?);
            if message >= SMALL_BYTES || own >= SMALL_SHARE * large {
                return None;
            }
            let executed = row.executed.count as f64;
            bytes += message * executed;
            transfer_us += row.transfer_us? * executed;
            count += executed;
        }
        (count > 0.0).then(|| Self { bytes: bytes / count, transfer_us: transfer_us / count })
    }

    /// Such as `16.4 kB in 64.7 us (0.253 GB/s)`.
    pub(super) fn in_words(self) -> String {
        let Self { bytes, transfer_us } = self;
        let gb_s = digits(bytes / transfer_us / 1e3);
        format!("{} in {} ({gb_s} GB/s)", si(bytes, "B"), latency(transfer_us))
    }
}

/// Bandwidth of large messages of a collective (1e9 bytes/s): that of the trace's largest message if it is much larger,
/// else the profile's.
pub(super) fn large_gb_s(
    row: &CollectiveRow,
    rows: &[CollectiveRow],
    trace: &Trace,
    target: Option<&Target>,
) -> Option<f64> {
    let is_alike =
        |other: &&CollectiveRow| (&other.kind, other.group_size) == (&row.kind, row.group_size);
    let largest = rows.iter().filter(is_alike).max_by_key(|other| other.message_bytes)?;
    if largest.message_bytes? >= row.message_bytes?.saturating_mul(LARGER) {
        return largest.algorithm_gb_s;
    }
    let (target, ranks) = (target?, row.group_size.filter(|ranks| *ranks > 1)?);
    let (collective, p2p) = match &trace.meta.spec {
        // the profile has another link
        Some(spec) if spec.link != Link::Native => return None,
        Some(spec) => (spec.collective, spec.p2p),
        None => (Collective::default(), P2p::On),
    };
    let engine = target.stack.engine_version();
    let (cost, _) =
        target.profile.collective_in(engine, collective, p2p, ranks, target.stack.collective);
    let us = match row.kind {
        OperationKind::AllReduce | OperationKind::AllReduceAddNorm => cost.us(LARGE_BYTES).0,
        OperationKind::ReduceScatter | OperationKind::AllGather => cost.half_us(LARGE_BYTES).0,
        _ => return None,
    };
    (us > 0.0).then(|| LARGE_BYTES / us / 1e3)
}
