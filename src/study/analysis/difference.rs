//! Breakdown of the difference between two runs of matched cells: transfer, waiting, contention, extra work.

use serde::Serialize;

use table::Overlap;

/// Decode phase of one run minus another's, by part (ms per sample and rank, averaged over ranks). The parts sum to
/// `decode_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Difference {
    pub decode_ms: f64,
    /// Exposed communication that moves data.
    pub transfer_ms: f64,
    /// Exposed communication that waits for a peer.
    pub peer_wait_ms: f64,
    /// Slowdown of compute while communication runs in parallel.
    pub contention_ms: f64,
    /// Operations that only one of the two executes.
    pub operations_ms: f64,
    /// Time in which neither lane was busy.
    pub idle_ms: f64,
}

impl Difference {
    /// `a` minus `b`; `None` if a backend does not provide the breakdown.
    pub fn new(a: Option<&Overlap>, b: Option<&Overlap>) -> Option<Self> {
        let (a, b) = (a?, b?);
        let (x, y) = (a.split?, b.split?);
        let transfer_ms = x.transfer_ms - y.transfer_ms;
        let peer_wait_ms = x.peer_wait_ms - y.peer_wait_ms;
        let contention_ms = x.contention_ms - y.contention_ms;
        let operations_ms = x.work_ms - y.work_ms;
        let idle_ms = a.idle_ms - b.idle_ms;
        Some(Self {
            decode_ms: transfer_ms + peer_wait_ms + contention_ms + operations_ms + idle_ms,
            transfer_ms,
            peer_wait_ms,
            contention_ms,
            operations_ms,
            idle_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use table::Split;

    fn overlap(work_ms: f64, contention_ms: f64, peer_wait_ms: f64, transfer_ms: f64) -> Overlap {
        let split = Split { work_ms, contention_ms, peer_wait_ms, transfer_ms };
        Overlap { split: Some(split), idle_ms: 1.0, ..Overlap::default() }
    }

    #[test]
    fn parts_sum_to_the_whole_and_are_unknown_where_a_run_has_none() {
        let (standard, ladder) = (overlap(10.0, 0.0, 2.0, 8.0), overlap(10.5, 1.0, 0.25, 0.5));
        let saved = Difference::new(Some(&standard), Some(&ladder)).unwrap();
        assert_eq!(
            saved,
            Difference {
                decode_ms: 7.75,
                transfer_ms: 7.5,
                peer_wait_ms: 1.75,
                contention_ms: -1.0,
                operations_ms: -0.5,
                idle_ms: 0.0
            }
        );
        let measured = Overlap { split: None, ..standard };
        assert_eq!(Difference::new(Some(&measured), Some(&ladder)), None);
        assert_eq!(Difference::new(None, Some(&ladder)), None);
    }
}
