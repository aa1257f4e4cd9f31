//! Nesting of named ranges.

use trace::{Range, Span, Trace, is_host_call};

/// Index of no range.
const NONE: u32 = u32::MAX;

/// Enclosing ranges of each range of a trace.
///
/// A host range outside all others of its thread lies in the innermost range around it of the only other thread of its
/// rank with one: PyTorch names all-reduces on the thread of the backward pass, while the step's range is on the thread
/// that waits for it. Calls such as `cudaStreamSynchronize` hold no range of another thread.
pub(super) struct OuterRanges<'a> {
    /// Sorted by rank, thread and start, longest first.
    ranges: &'a [Range],
    /// Index of the innermost range around the start of each.
    outer: Vec<u32>,
    /// Index of the next range around each; those in between end before it. Skips what ended long ago where each range
    /// overlaps the one before.
    longer: Vec<u32>,
}

impl<'a> OuterRanges<'a> {
    pub fn from_trace(trace: &'a Trace) -> Self {
        let ranges = &trace.ranges[..];
        let is_call: Vec<bool> = trace.meta.range_names.iter().map(|name| is_host_call(name)).collect();
        let is_named = |range: &Range| !is_call.get(range.name as usize).copied().unwrap_or(false);
        let mut nested = Self::within_threads(ranges);
        let mut threads: Vec<std::ops::Range<usize>> = Vec::new();
        for thread in ranges.chunk_by(|a, b| (a.rank, a.thread) == (b.rank, b.thread)) {
            let start = threads.last().map_or(0, |last| last.end);
            threads.push(start..start + thread.len());
        }
        let mut around: Vec<(usize, u32)> = Vec::new();
        for of_rank in threads.chunk_by(|a, b| ranges[a.start].rank == ranges[b.start].rank) {
            let on_host = |thread: &&std::ops::Range<usize>| !ranges[thread.start].on_device;
            for thread in of_rank.iter().filter(on_host) {
                let others = || of_rank.iter().filter(on_host).filter(|other| *other != thread);
                for at in thread.clone().filter(|at| nested.outer[*at] == NONE) {
                    let mut found =
                        others().filter_map(|other| nested.on_thread(other, &ranges[at], is_named));
                    if let (Some(only), None) = (found.next(), found.next()) {
                        around.push((at, only));
                    }
                }
            }
        }
        nested.add_threads(&around);
        nested
    }

    fn within_threads(ranges: &'a [Range]) -> Self {
        let mut open: Vec<u32> = Vec::new();
        let mut row = None;
        let mut nested = Self { ranges, outer: Vec::new(), longer: Vec::new() };
        for (at, range) in ranges.iter().enumerate() {
            if row.replace((range.rank, range.thread)) != Some((range.rank, range.thread)) {
                open.clear();
            }
            while open.last().is_some_and(|last| ranges[*last as usize].end_ns <= range.start_ns) {
                open.pop();
            }
            let around = open.last().copied().unwrap_or(NONE);
            let longer = nested.after(around, range.end_ns);
            nested.outer.push(around);
            nested.longer.push(longer);
            open.push(at as u32);
        }
        nested
    }

    /// The range `at`, or the innermost one around it that ends after `time`.
    fn after(&self, mut at: u32, time: i64) -> u32 {
        while self.ranges.get(at as usize).is_some_and(|range| range.end_ns <= time) {
            at = self.longer[at as usize];
        }
        at
    }

    /// Innermost eligible range of a thread that begins before another range and ends after it.
    fn on_thread(
        &self,
        thread: &std::ops::Range<usize>,
        within: &Range,
        is_eligible: impl Fn(&Range) -> bool,
    ) -> Option<u32> {
        let ranges = &self.ranges[thread.clone()];
        let before = ranges.partition_point(|range| range.start_ns < within.start_ns);
        let around = |at: u32| {
            let at = self.after(at, within.end_ns.saturating_sub(1));
            (at != NONE).then_some(at)
        };
        let last = (thread.start + before.checked_sub(1)?) as u32;
        std::iter::successors(around(last), |at| around(self.outer[*at as usize]))
            .find(|at| is_eligible(&self.ranges[*at as usize]))
    }

    /// Adds ranges of other threads `around` outermost ones.
    fn add_threads(&mut self, around: &[(usize, u32)]) {
        if around.is_empty() {
            return;
        }
        let mut of_outermost = vec![NONE; self.ranges.len()];
        around.iter().for_each(|(at, other)| of_outermost[*at] = *other);
        for at in 0..self.ranges.len() {
            if self.outer[at] == NONE {
                self.outer[at] = of_outermost[at];
            } else {
                // indices of ranges around it on its thread are smaller
                of_outermost[at] = of_outermost[self.outer[at] as usize];
            }
            if self.longer[at] == NONE {
                self.longer[at] = of_outermost[at];
            }
        }
    }

    /// Range `site` and those around its start, the innermost first; empty if `site` is not a range.
    pub fn around(&self, site: u32) -> impl Iterator<Item = usize> {
        let known = move |at: u32| self.ranges.get(at as usize).map(|_| at as usize);
        let begin = known(site).map_or(i64::MIN, |at| self.ranges[at].start_ns);
        std::iter::successors(known(site), move |at| known(self.after(self.outer[*at], begin)))
    }

    /// True for ranges that launched work, in themselves or in ranges within.
    pub fn with_launches(&self, spans: &[Span]) -> Vec<bool> {
        let mut launches = vec![false; self.ranges.len()];
        for span in spans {
            let mut at = span.launched.range;
            while launches.get_mut(at as usize).is_some_and(|known| !std::mem::replace(known, true)) {
                at = self.outer[at as usize];
            }
        }
        launches
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::testing::trace;

    fn named(times: &[(u16, i64, i64)]) -> Trace {
        let mut trace = trace(Vec::new());
        trace.meta.range_names = vec!["range".into()];
        let range = |&(thread, start_ns, end_ns): &(u16, i64, i64)| Range {
            rank: 0,
            on_device: false,
            thread,
            depth: 0,
            name: 0,
            start_ns,
            end_ns,
        };
        trace.ranges = times.iter().map(range).collect();
        trace
    }

    fn around(times: &[(u16, i64, i64)], site: u32) -> Vec<usize> {
        OuterRanges::from_trace(&named(times)).around(site).collect()
    }

    #[test]
    fn ranges_that_ended_are_not_around() {
        // each overlaps the next, and all are in the first
        let times = [(0, 0, 900), (0, 10, 100), (0, 50, 150), (0, 120, 200), (0, 180, 300)];
        assert_eq!(around(&times, 4), [4, 3, 0]);
        assert_eq!(around(&times, 2), [2, 1, 0]);
        assert_eq!(around(&times, 9), [0; 0]);
    }

    #[test]
    fn ranges_of_another_thread_are_around_the_outermost() {
        let times =
            [(0, 0, 1_000), (1, 10, 100), (1, 50, 150), (1, 120, 200), (1, 130, 140), (1, 1_100, 1_200)];
        assert_eq!(around(&times, 4), [4, 3, 2, 0]);
        assert_eq!(around(&times, 1), [1, 0]);
        assert_eq!(around(&times, 5), [5]);
    }

    /// Takes minutes if each range visits all that ended.
    #[test]
    fn many_ranges_that_overlap_their_neighbours_are_nested_at_once() {
        let mut times = vec![(0, 0, 10_000_000)];
        times.extend((1..100_000).map(|at| (0, 10 * at, 10 * at + 25)));
        let trace = named(&times);
        let outer = OuterRanges::from_trace(&trace);
        let most = (0..100_000).map(|site| outer.around(site).count()).max();
        assert_eq!(most, Some(4));
    }
}
