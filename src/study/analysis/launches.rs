//! Launches of kernels: the earliest time at which a kernel can start, which separates waiting for the host from gaps of
//! the device.

use trace::overlap::Replays;
use trace::{Span, Trace};

/// Longest delay from launch to start that a launch itself can take, on slow hosts under a profiler (ns). If even the
/// quickest kernels took longer, they waited in the stream's queue.
const MOST_DELAY: i64 = 20_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct Launches {
    /// Delay from launch to start of a single kernel without other holdups (ns); `None` if no launch is
    /// recorded.
    delay: Option<i64>,
    pub replays: Replays,
}

impl Launches {
    /// Launches among the spans of one rank of an imported trace.
    pub fn of<'a>(spans: impl Iterator<Item = &'a Span> + Clone) -> Self {
        let replays = Replays::of(spans.clone());
        // skip calls that returned after their kernel had started
        let is_single = |span: &&Span| span.start_ns - span.ready_ns > 1 && !replays.has(span);
        let mut delays: Vec<i64> =
            spans.clone().filter(is_single).map(|span| span.start_ns - span.ready_ns).collect();
        let at = delays.len() / 20;
        let quickest = (!delays.is_empty()).then(|| (*delays.select_nth_unstable(at).1).min(MOST_DELAY));
        let delay = quickest.or_else(|| spans.clone().any(Span::is_launch_known).then_some(0));
        Self { delay, replays }
    }

    /// Like [`Self::of`]; in an export of a native trace, which names layers, launches are the times at which inputs were
    /// ready, and have no latency.
    pub fn of_trace<'a>(trace: &Trace, spans: impl Iterator<Item = &'a Span> + Clone) -> Self {
        let launches = Self::of(spans);
        match trace.operations.iter().any(|operation| operation.layer.is_some()) {
            true => Self { delay: launches.delay.map(|_| 0), ..launches },
            false => launches,
        }
    }

    pub fn are_recorded(&self) -> bool {
        self.delay.is_some()
    }

    /// Earliest possible start of a span given its launch; `None` if the launch is not recorded. A replay's
    /// first kernel includes the graph's own startup, which the host cannot avoid; the others follow the
    /// first.
    pub fn release(&self, span: &Span) -> Option<i64> {
        let delay = self.delay.filter(|_| span.is_launch_known())?;
        let delay = if self.replays.has(span) { 0 } else { delay };
        Some((span.ready_ns + delay).min(span.start_ns))
    }
}
