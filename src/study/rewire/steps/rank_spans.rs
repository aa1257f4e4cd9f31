//! Spans of each rank, with the collectives that end its layers.

use std::collections::HashMap;
use std::ops::Range;

use rayon::prelude::*;

use super::super::stretch::LaunchedKernel;
use super::super::wire::middle;
use super::{LayerCollectives, is_end, leads};
use plan::Lane;
use trace::overlap::Launches;
use trace::rules::is_attention;
use trace::{OperationKind, Span, Trace};

/// Spans of one rank, sorted by start.
pub(in crate::rewire) struct RankSpans<'a> {
    pub rank: u32,
    pub spans: Vec<&'a Span>,
    /// Indices of the layers' collectives in `spans`.
    pub reduces: Vec<usize>,
    pub(super) launches: Launches,
    /// Clock correction to add to the rank's times (ns).
    pub(super) offset: i64,
    /// For each of the first rank's collectives, the index in `reduces` of the one that matches; empty until matched.
    pub counterparts: Vec<Option<usize>>,
}

/// Sorted spans per rank, with the indices of the layers' collectives (of one process group, if given).
pub(in crate::rewire) fn ranks<'a>(
    trace: &'a Trace,
    spans: &'a [Span],
    offsets: &HashMap<u32, i64>,
    (ends, group): (LayerCollectives, Option<u32>),
) -> Vec<RankSpans<'a>> {
    let mut by_rank: HashMap<u32, Vec<&Span>> = HashMap::new();
    spans.iter().for_each(|span| by_rank.entry(span.rank).or_default().push(span));
    let mut ranks: Vec<RankSpans<'_>> = by_rank
        .into_par_iter()
        .map(|(rank, mut spans)| {
            spans.sort_by_key(|span| (span.start_ns, span.end_ns));
            let reduces = (0..spans.len()).filter(|at| is_end(trace, spans[*at], ends, group)).collect();
            let offset = offsets.get(&rank).copied().unwrap_or(0);
            let (launches, counterparts) = (Launches::default(), Vec::new());
            RankSpans { rank, spans, reduces, launches, offset, counterparts }
        })
        .collect();
    ranks.sort_by_key(|rank| rank.rank);
    ranks
}

/// Finds the kernels' launches in a foreign trace.
pub(in crate::rewire) fn find_launches(trace: &Trace, ranks: &mut [RankSpans<'_>]) {
    // an export of a native trace names layers; its launches are the times at which inputs were ready
    if trace.operations.iter().all(|of| of.layer.is_none()) {
        ranks
            .par_iter_mut()
            .for_each(|rank| rank.launches = Launches::from_spans(rank.spans.iter().copied()));
    }
}

/// Minimum ratio of the distance between collectives to the distance between the ends of one on two ranks, for ends to
/// decide which collectives match: separates aligned clocks from clocks that drift, by which a neighbour could be taken for
/// a collective. Chosen, not measured: an order of magnitude.
const NEAR: i64 = 10;

/// Index of the time nearest to another.
fn nearest(sorted: &[i64], time: i64) -> Option<usize> {
    let after = sorted.partition_point(|other| *other < time);
    let near = [after.checked_sub(1), Some(after).filter(|at| *at < sorted.len())];
    near.into_iter().flatten().min_by_key(|at| sorted[*at].abs_diff(time))
}

impl RankSpans<'_> {
    /// For each collective of this rank, the index of the one on another rank that ends at the same time. If clocks drift,
    /// or `is_tied` does not say that they are aligned, ranks with equally many match in order. `None` if the ranks cannot
    /// be matched, or clocks that are not aligned differ by more than the distance of collectives.
    pub(in crate::rewire) fn matched_with(
        &self,
        other: &Self,
        is_tied: Option<bool>,
    ) -> Option<Vec<Option<usize>>> {
        let is_even = self.reduces.len() == other.reduces.len();
        let in_order = || is_even.then(|| (0..self.reduces.len()).map(Some).collect());
        if is_tied.is_none() || self.rank == other.rank {
            return in_order();
        }
        let ends = |rank: &Self| -> Vec<i64> {
            let ends = rank.reduces.iter().map(|at| rank.spans[*at].end_ns.saturating_add(rank.offset));
            ends.collect()
        };
        let (own, others) = (ends(self), ends(other));
        let distance = middle(own.windows(2).map(|pair| pair[1] - pair[0]));
        if is_tied == Some(false) {
            let apart = own.iter().zip(&others).map(|(a, b)| a.abs_diff(*b) as i64);
            return in_order().filter(|_| middle(apart) <= distance);
        }
        let is_near = |a: i64, b: i64| 2 * a.abs_diff(b) <= distance.unsigned_abs();
        if is_even && own.iter().zip(&others).all(|(a, b)| is_near(*a, *b)) {
            return in_order();
        }
        let partner = |(at, end): (usize, &i64)| {
            let found = nearest(&others, *end).filter(|found| nearest(&own, others[*found]) == Some(at));
            found.filter(|found| is_near(others[*found], *end))
        };
        let partners: Vec<Option<usize>> = own.iter().enumerate().map(partner).collect();
        let matched = || partners.iter().enumerate().filter_map(|(at, found)| Some((at, (*found)?)));
        let apart = matched().map(|(at, found)| own[at].abs_diff(others[found]) as i64);
        // one of the ranks may have recorded fewer steps
        let least = own.len().min(others.len());
        let is_clear = 2 * matched().count() > least && NEAR * middle(apart) <= distance;
        if is_clear { Some(partners) } else { in_order() }
    }

    pub(super) fn kernel(&self, trace: &Trace, span: &Span) -> LaunchedKernel {
        LaunchedKernel {
            start: span.start_ns + self.offset,
            end: span.end_ns.max(span.start_ns) + self.offset,
            released: self.released(span),
            leads: leads(trace, span),
            routes: trace.operation_kind(span) == Some(&OperationKind::Experts),
        }
    }

    /// Index of the span at which attention ends and the router begins, among those before a dispatch: the last norm
    /// between attention and router, else the router. `None` without either.
    pub(super) fn router(&self, trace: &Trace, places: Range<usize>) -> Option<usize> {
        let operation = |at: usize| trace.operations.get(self.spans[at].operation as usize);
        if trace.meta.spec.is_some() {
            return places.clone().find(|at| operation(*at).is_some_and(|of| of.module == "moe"));
        }
        let attended = places.clone().rev().find(|at| {
            operation(*at).is_some_and(|of| of.lane == Lane::Compute && is_attention(&of.name))
        });
        let from = attended.map_or(places.start, |at| at + 1);
        let router = (from..places.end)
            .find(|at| trace.operation_kind(self.spans[*at]) == Some(&OperationKind::Router));
        let is_norm = |at: &usize| {
            let is = |name: &str| ["norm", "rsqrt"].iter().any(|word| name.contains(word));
            self.spans[*at].lane == Lane::Compute
                && operation(*at).is_some_and(|of| is(&of.name.to_ascii_lowercase()))
        };
        (from..router.unwrap_or(places.end)).rev().find(is_norm).or(router)
    }

    pub(super) fn released(&self, span: &Span) -> Option<i64> {
        self.launches.release(span).map(|at| at + self.offset)
    }
}

pub(super) fn kernels(trace: &Trace, rank: &RankSpans<'_>, places: Range<usize>) -> Vec<LaunchedKernel> {
    rank.spans[places].iter().map(|span| rank.kernel(trace, span)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::testing::span;

    fn counterparts(ends: [&[i64]; 2], is_tied: Option<bool>) -> Option<Vec<Option<usize>>> {
        let spans = ends
            .map(|ends| ends.iter().map(|end| span(0, Lane::Comm, end - 10, *end)).collect::<Vec<_>>());
        let [a, b] = [0, 1].map(|rank| RankSpans {
            rank: rank as u32,
            spans: spans[rank].iter().collect(),
            reduces: (0..spans[rank].len()).collect(),
            launches: Launches::default(),
            offset: 0,
            counterparts: Vec::new(),
        });
        a.matched_with(&b, is_tied)
    }

    #[test]
    fn collectives_after_a_missing_one_match_by_their_ends() {
        let whole = [100, 200, 300, 400, 500];
        let missing = [101, 199, 401, 500];
        assert_eq!(
            counterparts([&whole, &missing], Some(true)),
            Some(vec![Some(0), Some(1), None, Some(2), Some(3)])
        );
        assert_eq!(counterparts([&whole, &missing], Some(false)), None, "clocks are not aligned");
        // both miss one
        let other = [100, 200, 300, 400];
        assert_eq!(
            counterparts([&missing, &other], Some(true)),
            Some(vec![Some(0), Some(1), Some(3), None])
        );
        // one rank was recorded for less time
        let short = [301, 399];
        let within = Some(vec![None, None, Some(0), Some(1), None]);
        assert_eq!(counterparts([&whole, &short], Some(true)), within);
        assert_eq!(counterparts([&short, &whole], Some(true)), Some(vec![Some(2), Some(3)]));
        let late = whole.map(|end| end + 200);
        let in_order: Option<Vec<Option<usize>>> = Some((0..5).map(Some).collect());
        assert_eq!(counterparts([&whole, &late], None), in_order);
        assert_eq!(counterparts([&whole, &late], Some(false)), None, "by two collectives");
        assert_eq!(counterparts([&whole, &whole.map(|end| end + 20)], Some(false)), in_order);
    }
}
