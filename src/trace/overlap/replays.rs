//! CUDA graph replays in an imported trace: launches shared by several spans of a rank.

use crate::Span;

#[derive(Clone, Debug, Default)]
pub struct Replays {
    /// Launch time of each replay (ns), ascending.
    launched: Vec<i64>,
}

impl Replays {
    /// Finds the replays among the spans of one rank. Requires spans with different starts: spans that
    /// start together may have equal ready times only because these are capped by the start.
    pub fn of<'a>(spans: impl IntoIterator<Item = &'a Span>) -> Self {
        let known = spans.into_iter().filter(|span| span.is_launch_known());
        let mut launches: Vec<(i64, i64)> = known.map(|span| (span.ready_ns, span.start_ns)).collect();
        launches.sort_unstable();
        let replays = launches.chunk_by(|a, b| a.0 == b.0).filter(|all| all[0].1 < all[all.len() - 1].1);
        Self { launched: replays.map(|all| all[0].0).collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.launched.is_empty()
    }

    pub fn has(&self, span: &Span) -> bool {
        self.has_launch(span.ready_ns) && span.is_launch_known()
    }

    pub fn has_launch(&self, launched_ns: i64) -> bool {
        self.launched.binary_search(&launched_ns).is_ok()
    }
}
