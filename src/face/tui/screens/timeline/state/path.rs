//! Critical path of a step, for navigation and highlighting.

use study::analysis::{self, PathStep, PathSummary};
use trace::Trace;
use trace::overlap::StepKey;

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
    pub fn of(trace: &Trace, key: StepKey) -> Self {
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
    use crate::face::tui::tests::fixtures;
    use plan::Phase;

    #[test]
    fn a_path_is_walked_from_its_first_span_to_its_last_and_back() {
        let index = fixtures::trace();
        let key = StepKey { sample: 0, phase: Phase::Decode, step: 1 };
        let path = CriticalPath::of(&index.trace, key);
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
