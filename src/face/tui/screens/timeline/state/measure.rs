//! Numbers of a time interval, as from `ladderscope overlap --from --to`, fast enough to follow the
//! mouse. Uses the index to visit only spans that touch the interval.

use std::collections::BTreeMap;

use super::index::{StepKey, TraceIndex};
use crate::face::tui::screens::timeline::state::window::Window;
use trace::overlap::{OverlapReport, Selection};
use trace::{Span, Trace};

#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Interval (ns of the trace).
    pub window: Window,
    /// Overlap and breakdown; `all` holds sums over ranks.
    pub report: OverlapReport,
    pub count: u64,
    /// Time per kind of operation in us, averaged over ranks, longest first.
    pub kinds: Vec<(String, f64)>,
    /// Time per module in us, averaged over ranks, longest first.
    pub modules: Vec<(String, f64)>,
    pub begins: usize,
    pub steps: Option<(StepKey, StepKey)>,
}

impl Measured {
    /// Measures an interval (ns of the trace), in time linear in its spans.
    pub fn of(index: &TraceIndex, window: Window) -> Self {
        let part = touched(index, window);
        let trace = part.as_ref().unwrap_or(&index.trace);
        let origin = trace::overlap::origin_ns(trace);
        let report = trace::overlap::overlap(
            trace,
            &Selection {
                from_ns: Some(window.from.saturating_sub(origin)),
                to_ns: Some(window.to.saturating_sub(origin)),
                ..Selection::default()
            },
        );
        let by = |key: fn(&trace::overlap::BreakdownRow) -> &str| {
            let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
            for row in &report.breakdown {
                *sums.entry(key(row)).or_default() += row.total_us;
            }
            let mut list: Vec<(String, f64)> =
                sums.into_iter().map(|(name, us)| (name.to_string(), us)).collect();
            list.sort_by(|a, b| b.1.total_cmp(&a.1));
            list
        };
        let steps = index.step_at(window.from).or(index.steps.first().map(|_| 0));
        let steps = steps
            .zip(index.step_at(window.to - 1))
            .map(|(first, last)| (index.steps[first.min(last)].key, index.steps[last].key));
        let before = |time: i64| index.steps.partition_point(|step| step.window.from < time);
        Self {
            window,
            count: report.breakdown.iter().map(|row| row.count).sum(),
            kinds: by(|row| &row.kind),
            modules: by(|row| &row.module),
            begins: before(window.to) - before(window.from),
            steps,
            report,
        }
    }

    pub fn ranks(&self) -> f64 {
        self.report.ranks.len().max(1) as f64
    }
}

/// Trace of only the spans that touch a window.
pub fn part(index: &TraceIndex, window: Window) -> Trace {
    let touches = |s: &Span| match s.start_ns >= s.end_ns {
        true => window.contains(s.start_ns),
        false => s.start_ns < window.to && s.end_ns > window.from,
    };
    let near = touched(index, window);
    let all = near.as_ref().map_or(&index.trace.spans, |near| &near.spans);
    let spans = all.iter().filter(|span| touches(span)).copied().collect();
    let (meta, operations) = (index.trace.meta.clone(), index.trace.operations.clone());
    Trace { meta, operations, spans, ranges: Vec::new() }
}

/// Trace of the spans near a window, plus one per rank so that no rank is missing. `None` if that would
/// be most of the trace, which is then used as it stands.
fn touched(index: &TraceIndex, window: Window) -> Option<Trace> {
    let places = index.rows.iter().map(|row| row.places(index.spans(), window.from, window.to));
    let places: Vec<std::ops::Range<usize>> = places.collect();
    let count: usize = places.iter().map(|range| range.len()).sum();
    if count > index.trace.spans.len() / 2 {
        return None;
    }
    let mut spans: Vec<u32> = Vec::with_capacity(count + index.ranks.len());
    for (row, places) in index.rows.iter().zip(places) {
        // a row's first span keeps its rank present; the analysis clips it away
        let all = std::iter::once(0).chain(places);
        spans.extend(all.filter_map(|place| row.span(place)).map(|span| span as u32));
    }
    // in trace order, without duplicates
    spans.sort_unstable();
    spans.dedup();
    let spans: Vec<Span> = spans.iter().map(|span| index.trace.spans[*span as usize]).collect();
    Some(Trace {
        meta: index.trace.meta.clone(),
        operations: index.trace.operations.clone(),
        spans,
        ranges: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::face::tui::tests::fixtures;
    use plan::{Lane, Phase};

    proptest! {
        #[test]
        fn numbers_are_those_of_analysis(
            list in prop::collection::vec((0u32..3, 0u32..3, 0i64..2_000, 0i64..90, 0i64..80), 0..120),
            from in -50i64..2_050,
            width in 1i64..600,
        ) {
            let mut spans: Vec<Span> = list
                .into_iter()
                .map(|(rank, operation, start, width, wait)| {
                    let comm = operation == 2;
                    Span {
                        sample: 0,
                        phase: Phase::Decode,
                        step: (start / 250) as u32,
                        rank,
                        lane: if comm { Lane::Comm } else { Lane::Compute },
                        stream: 0,
                        operation,
                        ready_ns: start,
                        start_ns: start,
                        end_ns: start + width,
                        last_arrival_ns: if comm { start + wait } else { -1 },
                        ..Span::EMPTY
                    }
                })
                .collect();
            spans.sort_by_key(|s| (StepKey::of(s), s.rank, s.lane, s.start_ns));
            let trace = Trace { spans, ranges: Vec::new(), ..fixtures::trace().trace };
            let origin = trace::overlap::origin_ns(&trace);
            let selection = Selection {
                from_ns: Some(from - origin),
                to_ns: Some(from + width - origin),
                ..Selection::default()
            };
            let expected = trace::overlap::overlap(&trace, &selection);
            let index = TraceIndex::new(String::new(), trace.clone());
            let measured = Measured::of(&index, Window::new(from, from + width));
            prop_assert_eq!(&measured.report.all.exact, &expected.all.exact);
            prop_assert_eq!(&measured.report, &expected);
            let touching = trace.spans.iter().filter(|s| match s.start_ns == s.end_ns {
                true => from <= s.start_ns && s.start_ns < from + width,
                false => s.start_ns < from + width && s.end_ns > from,
            });
            prop_assert_eq!(measured.count, touching.count() as u64);
            let steps: BTreeSet<u32> = trace.spans.iter().map(|s| s.step).collect();
            let began = steps.iter().filter(|step| {
                let starts = trace.spans.iter().filter(|s| s.step == **step).map(|s| s.start_ns);
                starts.min().is_some_and(|start| from <= start && start < from + width)
            });
            prop_assert_eq!(measured.begins, began.count());
        }
    }

    #[test]
    fn a_narrow_stretch_looks_at_few_spans_and_at_every_rank() {
        let index = fixtures::trace();
        let window = Window::new(55_000, 60_000);
        let part = touched(&index, window).expect("a small part");
        assert!(part.spans.len() < index.trace.spans.len());
        let measured = Measured::of(&index, window);
        assert_eq!(measured.report.ranks.len(), 2);
        assert_eq!(measured.kinds, [("matmul".to_string(), 5.0)], "both ranks compute throughout");
        assert!(measured.modules.iter().any(|(name, _)| name == "attn"));
        assert_eq!(
            measured.steps.map(|(a, b)| (a.label(), b.label())),
            Some(("step 0".into(), "step 0".into()))
        );
    }
}
