//! Numbers computed from an index off the drawing thread: those of a time interval, as from
//! `ladderscope overlap --from --to`, visiting only spans that touch it; the density of the whole trace per column;
//! the critical path of a step.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::index::{RankRows, TraceIndex};
use super::row::SpanClass;
use super::window::TimeWindow;
use study::analysis::{self, OperationTable, PathStep, PathSummary};
use trace::overlap::{OverlapReport, Selection, StepKey};
use trace::{Span, Trace};

#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredInterval {
    /// Interval (ns of the trace).
    pub window: TimeWindow,
    /// Overlap and breakdown; `all` holds sums over ranks.
    pub report: OverlapReport,
    pub count: u64,
    /// Ranks that the report leaves out because the first did the same.
    alike: usize,
    /// Time per kind of operation in us, averaged over ranks, longest first.
    pub kinds: Vec<(String, f64)>,
    /// Time per module in us, averaged over ranks, longest first.
    pub modules: Vec<(String, f64)>,
    pub begins: usize,
    pub steps: Option<(StepKey, StepKey)>,
}

impl MeasuredInterval {
    /// Measures an interval (ns of the trace), in time linear in its spans.
    pub fn new(index: &TraceIndex, window: TimeWindow) -> Self {
        let part = touched(index, window);
        let trace = part.as_ref().unwrap_or(&index.trace);
        let report = trace::overlap::overlap(trace, &selection(trace, window));
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
            count: report.breakdown.iter().map(|row| row.count).sum::<u64>()
                * (1 + index.folded.len() as u64),
            alike: index.folded.len(),
            kinds: by(|row| &row.kind),
            modules: by(|row| &row.module),
            begins: before(window.to) - before(window.from),
            steps,
            report,
        }
    }

    /// Ranks in the report's sums.
    pub fn ranks(&self) -> f64 {
        self.report.ranks.len().max(1) as f64
    }

    /// Ranks that the averages are of.
    pub fn meant_ranks(&self) -> usize {
        self.report.ranks.len().max(1) + self.alike
    }
}

/// Operations of an interval (ns of the trace) by name, in time linear in its spans. Its time is that of the interval, as far as
/// the trace covers it, also if no operation runs at its ends.
pub fn operations(index: &TraceIndex, window: TimeWindow) -> OperationTable {
    let all = |trace: &Trace| analysis::operation_table(trace, &selection(trace, window), |_| true);
    let table = match touched_spans(index, window) {
        None => all(&index.trace),
        Some(spans) => {
            let mut table = all(&with_spans(index, &spans));
            for longest in &mut table.longest {
                *longest = spans[*longest] as usize;
            }
            table
        }
    };
    let (from, to) = (window.from.max(index.bounds.from), window.to.min(index.bounds.to));
    OperationTable { time_us: to.saturating_sub(from).max(0) as f64 / 1e3, ..table }
}

/// Selection of an interval (ns of the trace), for a trace or a part of it.
fn selection(trace: &Trace, window: TimeWindow) -> Selection {
    let origin = trace::overlap::origin_ns(trace);
    let since = |time: i64| Some(time.saturating_sub(origin));
    Selection { from_ns: since(window.from), to_ns: since(window.to), ..Selection::default() }
}

/// Trace of only the spans that touch a window.
pub fn part(index: &TraceIndex, window: TimeWindow) -> Trace {
    let touches = |s: &Span| match s.start_ns >= s.end_ns {
        true => window.contains(s.start_ns),
        false => s.start_ns < window.to && s.end_ns > window.from,
    };
    let near = touched(index, window);
    let all = near.as_ref().map_or(&index.trace.spans, |near| &near.spans);
    let part = of_spans(index, all.iter().filter(|span| touches(span)).copied().collect());
    if index.folded.is_empty() { part } else { part.unfold_ranks(&index.folded) }
}

/// Trace of the spans of [`touched_spans`].
fn touched(index: &TraceIndex, window: TimeWindow) -> Option<Trace> {
    touched_spans(index, window).map(|spans| with_spans(index, &spans))
}

/// Indices of the spans near a window, plus one per rank so that no rank is missing. `None` if they would be over half of
/// the trace; callers then use the whole trace.
fn touched_spans(index: &TraceIndex, window: TimeWindow) -> Option<Vec<u32>> {
    let places = index.rows.iter().map(|row| row.places(index.spans(), window.from, window.to));
    let places: Vec<std::ops::Range<usize>> = places.collect();
    let count: usize = places.iter().map(|range| range.len()).sum();
    if count > index.trace.spans.len() / 2 {
        return None;
    }
    let mut spans: Vec<u32> = Vec::with_capacity(count + 2 * index.ranks.len());
    for (row, places) in index.rows.iter().zip(places) {
        // a row's first span and the rank's last one keep the times between which idle time counts; the analysis clips
        // them away
        let all = std::iter::once(0).chain(places);
        spans.extend(all.filter_map(|place| row.span(place)).map(|span| span as u32));
    }
    spans.extend(index.ranks.iter().filter_map(|rank| rank.last).map(|span| span as u32));
    // in trace order, without duplicates
    spans.sort_unstable();
    spans.dedup();
    Some(spans)
}

fn with_spans(index: &TraceIndex, spans: &[u32]) -> Trace {
    of_spans(index, spans.iter().map(|span| index.trace.spans[*span as usize]).collect())
}

fn of_spans(index: &TraceIndex, spans: Vec<Span>) -> Trace {
    let (meta, operations) = (index.trace.meta.clone(), index.trace.operations.clone());
    Trace { meta, operations, spans, ranges: Vec::new() }
}

/// Shares of a column's time, averaged over ranks, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Density {
    /// Computing, on each rank's busiest row.
    pub compute: f32,
    /// Communicating, on each rank's busiest row.
    pub comm: f32,
    /// Exposed communication of each rank.
    pub exposed: f32,
}

/// Densities of a whole trace, from first start to last end.
pub fn overview(index: &TraceIndex, columns: usize) -> Vec<Density> {
    let window = index.bounds;
    // an eighth of a column is invisible
    let tolerance = window.width() / (columns.max(1) as i64 * 8);
    let of_rank = |rank: &RankRows| -> Vec<[i64; 3]> {
        let mut sums = vec![[0i64; 3]; columns];
        for row in &index.rows[rank.rows.clone()] {
            let covered = row.columns(index.spans(), window, columns, tolerance);
            for (sum, column) in sums.iter_mut().zip(covered) {
                let of = |class: SpanClass| column.covered[class as usize];
                *sum = [sum[0].max(of(SpanClass::Compute)), sum[1].max(of(SpanClass::Comm)), sum[2]];
            }
        }
        for (sum, exposed) in sums.iter_mut().zip(rank.exposed.between(window.edges(columns))) {
            sum[2] = exposed;
        }
        sums
    };
    let ranks: Vec<Vec<[i64; 3]>> = index.ranks.par_iter().map(of_rank).collect();
    let count = ranks.len().max(1) as f32;
    let density = |column: usize| {
        let width = window.time(column + 1, columns).saturating_sub(window.time(column, columns));
        let share = |what: usize| {
            let sum: f32 = ranks.iter().map(|rank| rank[column][what] as f32).sum();
            (sum / count / width.max(1) as f32).clamp(0.0, 1.0)
        };
        Density { compute: share(0), comm: share(1), exposed: share(2) }
    };
    (0..columns).map(density).collect()
}

/// Chain of operations that the end of a step waited for.
#[derive(Clone, Debug, PartialEq)]
pub struct CriticalPath {
    pub key: StepKey,
    /// Path in time order.
    pub steps: Vec<PathStep>,
    /// Composition of the path; `None` if it is empty.
    pub summary: Option<PathSummary>,
}

impl CriticalPath {
    pub fn new(trace: &Trace, key: StepKey) -> Self {
        let steps = analysis::critical_path(trace, key.sample, key.phase, key.step);
        let summary = analysis::path_summary(trace, &steps);
        Self { key, steps, summary }
    }

    /// Path steps that touch an interval (ns of the trace).
    pub fn within(&self, from: i64, to: i64) -> &[PathStep] {
        let first = self.steps.partition_point(|step| step.to_ns <= from);
        let last = self.steps.partition_point(|step| step.from_ns < to).max(first);
        &self.steps[first..last]
    }

    /// Next or previous span on the path, relative to a span, or to a time if the span is not on the path.
    pub fn neighbour(&self, span: Option<usize>, time: i64, forwards: bool) -> Option<usize> {
        let on = span.and_then(|span| self.steps.iter().position(|step| step.span == span));
        let to = match (on, forwards) {
            (Some(at), true) => at.checked_add(1),
            (Some(at), false) => at.checked_sub(1),
            (None, true) => Some(self.steps.partition_point(|step| step.to_ns <= time)),
            (None, false) => self.steps.partition_point(|step| step.from_ns < time).checked_sub(1),
        };
        self.steps.get(to?).map(|step| step.span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use proptest::prelude::*;

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
            spans.sort_by_key(|s| (StepKey::from_span(s), s.rank, s.lane, s.start_ns));
            let trace = Trace { spans, ranges: Vec::new(), ..fixtures::trace().trace };
            let origin = trace::overlap::origin_ns(&trace);
            let selection = Selection {
                from_ns: Some(from - origin),
                to_ns: Some(from + width - origin),
                ..Selection::default()
            };
            let expected = trace::overlap::overlap(&trace, &selection);
            let index = TraceIndex::new(String::new(), trace.clone());
            let measured = MeasuredInterval::new(&index, TimeWindow::new(from, from + width));
            prop_assert_eq!(&measured.report.all.exact, &expected.all.exact);
            prop_assert_eq!(&measured.report, &expected);
            let started = trace.spans.iter().filter(|s| (from..from + width).contains(&s.start_ns));
            prop_assert_eq!(measured.count, started.count() as u64);
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
        let window = TimeWindow::new(55_000, 60_000);
        let part = touched(&index, window).expect("a small part");
        assert!(part.spans.len() < index.trace.spans.len());
        let measured = MeasuredInterval::new(&index, window);
        assert_eq!(measured.report.ranks.len(), 2);
        assert_eq!(measured.kinds, [("matmul".to_string(), 5.0)], "both ranks compute throughout");
        assert!(measured.modules.iter().any(|(name, _)| name == "attn"));
        assert_eq!(
            measured.steps.map(|(a, b)| (a.label(), b.label())),
            Some(("step 0".into(), "step 0".into()))
        );
    }

    #[test]
    fn densities_are_what_the_lanes_did() {
        let index = fixtures::trace();
        let whole = overview(&index, 1)[0];
        // five steps of 46 us; 30 us of compute each, and on comm 15 us of rank 0 and 13 us of rank 1
        let width = index.bounds.width() as f32;
        let near = |share: f32, ns: f32| (share - ns / width).abs() < 0.13;
        assert!(near(whole.compute, 150_000.0), "{whole:?}");
        assert!(near(whole.comm, 70_000.0), "{whole:?}");
        assert!(near(whole.exposed, 70_000.0), "standard hides nothing: {whole:?}");
        let fine = overview(&index, 500);
        assert_eq!(fine.len(), 500);
        assert!(fine.iter().all(|d| d.exposed <= d.comm + 1e-3));
        assert!(fine.iter().any(|d| d.exposed > 0.9 && d.compute < 0.1));
        assert_eq!(overview(&index, 0), []);
    }

    #[test]
    fn a_path_is_walked_from_its_first_span_to_its_last_and_back() {
        let index = fixtures::trace();
        let key = StepKey { sample: 0, phase: Phase::Decode, step: 1 };
        let path = CriticalPath::new(&index.trace, key);
        let spans: Vec<usize> = path.steps.iter().map(|step| step.span).collect();
        assert!(spans.len() >= 3, "qkv, up, reduce: {spans:?}");
        let mut walked = vec![path.neighbour(None, i64::MIN, true).expect("it has a first")];
        while let Some(next) = path.neighbour(walked.last().copied(), 0, true) {
            walked.push(next);
        }
        assert_eq!(walked, spans);
        assert_eq!(path.neighbour(walked.last().copied(), 0, false), spans.iter().rev().nth(1).copied());
        assert_eq!(path.neighbour(Some(usize::MAX), i64::MAX, false), spans.last().copied());
        let (from, to) = (path.steps[1].from_ns, path.steps[1].to_ns);
        assert_eq!(path.within(from, to).len(), 1);
        assert_eq!(path.within(i64::MIN, i64::MAX).len(), spans.len());
    }
}
