//! Progress of a watched run: decode steps done and the lanes of the last step, in a compact form that disturbs the
//! run little.

use serde::{Deserialize, Serialize};

use plan::Lane;
use trace::Span;

/// Busy intervals of a rank's lanes during one decode step. Times are ns since the step's first operation on any
/// rank; the intervals of a lane are sorted and do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepLanes {
    pub rank: u32,
    pub compute: Vec<[u32; 2]>,
    pub comm: Vec<[u32; 2]>,
}

impl StepLanes {
    /// Computes each rank's lanes from the spans of one step; sorted by rank.
    pub fn of_step(spans: &[Span]) -> Vec<Self> {
        let zero = spans.iter().map(|span| span.start_ns).min().unwrap_or(0);
        let mut ranks: Vec<u32> = spans.iter().map(|span| span.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let of_rank = |rank| {
            let busy = |lane| {
                let of_lane = spans.iter().filter(|span| (span.rank, span.lane) == (rank, lane));
                union(
                    of_lane
                        .map(|span| [offset(span.start_ns, zero), offset(span.end_ns, zero)])
                        .collect(),
                )
            };
            Self { rank, compute: busy(Lane::Compute), comm: busy(Lane::Comm) }
        };
        ranks.into_iter().map(of_rank).collect()
    }

    pub fn end(&self) -> u32 {
        self.compute.iter().chain(&self.comm).map(|[_, end]| *end).max().unwrap_or(0)
    }
}

/// Nanoseconds from `zero`; saturates after about four seconds.
fn offset(ns: i64, zero: i64) -> u32 {
    u32::try_from(ns.saturating_sub(zero).max(0)).unwrap_or(u32::MAX)
}

fn union(mut intervals: Vec<[u32; 2]>) -> Vec<[u32; 2]> {
    intervals.sort_unstable();
    let mut joined: Vec<[u32; 2]> = Vec::new();
    for [start, end] in intervals {
        match joined.last_mut() {
            Some(last) if start <= last[1] => last[1] = last[1].max(end),
            _ => joined.push([start, end]),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_of_a_step_are_unions_from_its_first_operation() {
        let span = |rank, lane, start_ns, end_ns| Span {
            step: 3,
            rank,
            lane,
            ready_ns: start_ns,
            start_ns,
            end_ns,
            ..Span::EMPTY
        };
        let spans = [
            span(1, Lane::Compute, 1_050, 1_100),
            span(0, Lane::Compute, 1_000, 1_200),
            span(0, Lane::Compute, 1_200, 1_300),
            span(0, Lane::Comm, 1_250, 1_500),
            span(0, Lane::Compute, 1_400, 1_450),
        ];
        let lanes = StepLanes::of_step(&spans);
        let first = StepLanes { rank: 0, compute: vec![[0, 300], [400, 450]], comm: vec![[250, 500]] };
        assert_eq!(lanes, [first, StepLanes { rank: 1, compute: vec![[50, 100]], comm: Vec::new() }]);
        assert_eq!((lanes[0].end(), lanes[1].end()), (500, 100));
        assert!(StepLanes::of_step(&[]).is_empty());
    }
}
