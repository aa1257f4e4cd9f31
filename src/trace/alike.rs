//! Ranks that did the same at the same times, stored once: the ranks of a simulated run without skew.

use crate::{Span, Trace};

impl Trace {
    /// Keeps only the spans of the first rank if all ranks have the same spans, and returns the other ranks, ascending;
    /// empty if ranks differ, if there is one, or if the trace was imported.
    pub fn fold_ranks(&mut self) -> Vec<u32> {
        let Some(ranks) = self.alike_ranks() else { return Vec::new() };
        let Some((first, others)) = ranks.split_first() else { return Vec::new() };
        self.spans.retain(|span| span.rank == *first);
        self.spans.shrink_to_fit();
        others.to_vec()
    }

    /// Trace with copies of its only rank's spans for these ranks, in the order of every trace.
    pub fn unfold_ranks(&self, others: &[u32]) -> Self {
        let mut spans = Vec::with_capacity(self.spans.len() * (1 + others.len()));
        for step in self.spans.chunk_by(is_same_step) {
            spans.extend_from_slice(step);
            for rank in others {
                spans.extend(step.iter().map(|span| Span { rank: *rank, ..*span }));
            }
        }
        let (meta, operations) = (self.meta.clone(), self.operations.clone());
        Self { meta, operations, spans, ranges: self.ranges.clone() }
    }

    fn alike_ranks(&self) -> Option<Vec<u32>> {
        if self.meta.import.is_some() || !self.meta.streams.is_empty() || !self.ranges.is_empty() {
            return None;
        }
        let bare = |span: &Span| Span { rank: 0, ..*span };
        let mut ranks: Option<Vec<u32>> = None;
        for step in self.spans.chunk_by(is_same_step) {
            let of_rank: Vec<&[Span]> = step.chunk_by(|a, b| a.rank == b.rank).collect();
            let own: Vec<u32> = of_rank.iter().map(|spans| spans[0].rank).collect();
            let is_ascending = own.windows(2).all(|pair| pair[0] < pair[1]);
            let (first, others) = of_rank.split_first()?;
            let is_alike = others.iter().all(|spans| {
                spans.len() == first.len() && spans.iter().zip(*first).all(|(a, b)| bare(a) == bare(b))
            });
            if !is_ascending || !is_alike || *ranks.get_or_insert_with(|| own.clone()) != own {
                return None;
            }
        }
        ranks.filter(|ranks| ranks.len() > 1)
    }
}

fn is_same_step(a: &Span, b: &Span) -> bool {
    (a.sample, a.phase, a.step) == (b.sample, b.phase, b.step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> Trace {
        let span = |step: u32, rank: u32, start_ns: i64| Span {
            step,
            rank,
            start_ns,
            end_ns: start_ns + 5,
            ..Span::EMPTY
        };
        let steps = (0..3).flat_map(|step| (0..4).map(move |rank| (step, rank)));
        let spans = steps.flat_map(|(step, rank)| {
            [0, 10].map(|start| span(step, rank, i64::from(step) * 100 + start))
        });
        crate::testing::trace(spans.collect())
    }

    #[test]
    fn ranks_that_did_the_same_are_stored_once_and_come_back() {
        let whole = trace();
        let mut folded = whole.clone();
        assert_eq!(folded.fold_ranks(), [1, 2, 3]);
        assert_eq!(folded.spans.len(), 6);
        assert_eq!(folded.unfold_ranks(&[1, 2, 3]), whole);
    }

    #[test]
    fn a_trace_stays_as_it_is_if_a_rank_differs_anywhere() {
        let last = trace().spans.len() - 1;
        let changes: [fn(&mut Trace, usize); 3] = [
            |trace, last| trace.spans[last].end_ns += 1,
            |trace, last| trace.spans.truncate(last),
            |trace, _| trace.spans.retain(|span| span.rank == 2),
        ];
        for change in changes {
            let mut trace = trace();
            change(&mut trace, last);
            let before = trace.clone();
            assert!(trace.fold_ranks().is_empty());
            assert_eq!(trace, before);
        }
    }
}
