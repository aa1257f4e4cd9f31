//! Spans of each rank, with the collectives that end its layers.

use std::collections::HashMap;
use std::ops::Range;

use rayon::prelude::*;

use super::super::stretch::Kernel;
use super::{Ends, is_end, kind, leads};
use plan::Lane;
use trace::overlap::Launches;
use trace::rules::{EXPERTS, ROUTER, is_attention};
use trace::{Span, Trace};

/// Spans of one rank, sorted by start.
pub(in crate::rewire) struct RankSpans<'a> {
    pub rank: u32,
    pub spans: Vec<&'a Span>,
    /// Indices of the layers' collectives in `spans`.
    pub reduces: Vec<usize>,
    pub(super) launches: Launches,
    /// Clock correction to add to the rank's times (ns).
    pub(super) offset: i64,
}

/// Sorted spans per rank, with the indices of the layers' collectives (of one process group, if given).
pub(in crate::rewire) fn ranks<'a>(
    trace: &'a Trace,
    spans: &'a [Span],
    offsets: &HashMap<u32, i64>,
    (ends, group): (Ends, Option<u32>),
) -> Vec<RankSpans<'a>> {
    let mut by_rank: HashMap<u32, Vec<&Span>> = HashMap::new();
    spans.iter().for_each(|span| by_rank.entry(span.rank).or_default().push(span));
    let mut ranks: Vec<RankSpans<'_>> = by_rank
        .into_par_iter()
        .map(|(rank, mut spans)| {
            spans.sort_by_key(|span| (span.start_ns, span.end_ns));
            let reduces = (0..spans.len()).filter(|at| is_end(trace, spans[*at], ends, group)).collect();
            let offset = offsets.get(&rank).copied().unwrap_or(0);
            RankSpans { rank, spans, reduces, launches: Launches::default(), offset }
        })
        .collect();
    ranks.sort_by_key(|rank| rank.rank);
    ranks
}

/// Finds the kernels' launches in a foreign trace.
pub(in crate::rewire) fn find_launches(trace: &Trace, ranks: &mut [RankSpans<'_>]) {
    // an export of a native trace names layers; its launches are the times at which inputs were ready
    if trace.operations.iter().all(|of| of.layer.is_none()) {
        ranks.par_iter_mut().for_each(|rank| rank.launches = Launches::of(rank.spans.iter().copied()));
    }
}

impl RankSpans<'_> {
    pub(super) fn kernel(&self, trace: &Trace, span: &Span) -> Kernel {
        Kernel {
            start: span.start_ns + self.offset,
            end: span.end_ns.max(span.start_ns) + self.offset,
            released: self.released(span),
            leads: leads(trace, span),
            routes: kind(trace, span) == EXPERTS,
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
        let router = (from..places.end).find(|at| kind(trace, self.spans[*at]) == ROUTER);
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

pub(super) fn kernels(trace: &Trace, rank: &RankSpans<'_>, places: Range<usize>) -> Vec<Kernel> {
    rank.spans[places].iter().map(|span| rank.kernel(trace, span)).collect()
}
