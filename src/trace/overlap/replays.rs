//! Replays of CUDA graphs in an imported trace: launches that several spans of a rank share.

use crate::Span;

/// The graph replays of one rank.
#[derive(Clone, Debug, Default)]
pub struct Replays {
    /// When the host launched each of them (ns), ascending.
    launched: Vec<i64>,
}

impl Replays {
    /// Finds them among the spans of one rank. Spans that start at once prove nothing: their launches may be as old as they
    /// are.
    pub fn of<'a>(spans: impl IntoIterator<Item = &'a Span>) -> Self {
        let known = spans.into_iter().filter(|span| span.is_launch_known());
        let mut launches: Vec<(i64, i64)> = known.map(|span| (span.ready_ns, span.start_ns)).collect();
        launches.sort_unstable();
        let replays = launches.chunk_by(|a, b| a.0 == b.0).filter(|all| all[0].1 < all[all.len() - 1].1);
        Self { launched: replays.map(|all| all[0].0).collect() }
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.launched.is_empty()
    }

    /// True if a span is part of a replay.
    pub fn has(&self, span: &Span) -> bool {
        self.has_launch(span.ready_ns) && span.is_launch_known()
    }

    /// True if the host launched a replay at this time (ns).
    pub fn has_launch(&self, launched_ns: i64) -> bool {
        self.launched.binary_search(&launched_ns).is_ok()
    }
}
