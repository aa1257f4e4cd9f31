//! Alignment of two traces shown one above the other.

use std::collections::BTreeMap;

use plan::Phase;
use study::analysis::StepAlignment;
use study::plot::TraceStretch;
use trace::overlap::{StepKey, origin_ns};
use trace::{NO_STEP, Trace};

/// Start and end of each step over all ranks (ns since the trace's first start).
fn steps(trace: &Trace) -> BTreeMap<StepKey, (i64, i64)> {
    let origin = origin_ns(trace);
    let mut steps: BTreeMap<StepKey, (i64, i64)> = BTreeMap::new();
    for span in trace.spans.iter().filter(|span| span.step != NO_STEP) {
        let own = (span.start_ns - origin, span.end_ns - origin);
        let step = steps.entry(StepKey::from_span(span)).or_insert(own);
        *step = (step.0.min(own.0), step.1.max(own.1));
    }
    steps
}

/// Aligns a stretch of `lower` with a stretch of another trace: at the step in which `upper` starts if the other trace
/// has its partner ([`StepAlignment`]), else at the first decode step with one, else at their first starts. If the
/// stretch is a whole step, its length becomes that of the longer step.
pub fn align_stretches<'a>(upper: TraceStretch<'a>, lower: &'a Trace) -> [TraceStretch<'a>; 2] {
    let (upper_steps, lower_steps) = (steps(upper.trace), steps(lower));
    let alignment = StepAlignment::of_keys(upper_steps.keys().copied(), lower_steps.keys().copied());
    let partner = |key: &StepKey| {
        let at = alignment.partner(true, upper_steps.keys().position(|own| own == key)?)?;
        lower_steps.values().nth(at)
    };
    let begun = upper_steps.iter().filter(|(_, (start, _))| *start <= upper.from_ns);
    let current = begun.max_by_key(|(_, (start, _))| *start).filter(|(key, _)| partner(key).is_some());
    let mut decode = upper_steps.iter().filter(|(key, _)| key.phase == Phase::Decode);
    let step = current.or_else(|| decode.find(|(key, _)| partner(key).is_some()));
    let pair = step.and_then(|(key, own)| Some((*own, *partner(key)?)));
    let (own, other) = pair.unwrap_or_default();
    let mut length = upper.to_ns.saturating_sub(upper.from_ns);
    if own == (upper.from_ns, upper.to_ns) {
        length = length.max(other.1 - other.0);
    }
    let from_ns = upper.from_ns - own.0 + other.0;
    [
        TraceStretch { to_ns: upper.from_ns.saturating_add(length), ..upper },
        TraceStretch { trace: lower, from_ns, to_ns: from_ns.saturating_add(length) },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::Lane;
    use trace::Span;
    use trace::testing::{span, trace};

    #[test]
    fn stretches_are_aligned_at_the_same_step() {
        let trace_of_steps = |first: u32, length: i64| {
            let step = |at: u32| Span {
                step: at,
                ..span(
                    0,
                    Lane::Compute,
                    1_000 + i64::from(at - first) * length,
                    1_000 + i64::from(at - first + 1) * length,
                )
            };
            trace((first..first + 4).map(step).collect())
        };
        let (upper, lower) = (trace_of_steps(0, 100), trace_of_steps(2, 150));
        let window = |from_ns, to_ns| TraceStretch { trace: &upper, from_ns, to_ns };
        let times = |both: [TraceStretch; 2]| both.map(|stretch| (stretch.from_ns, stretch.to_ns));
        // step 3 of both: the fourth of the upper, the second of the lower, which is longer
        assert_eq!(times(align_stretches(window(300, 400), &lower)), [(300, 450), (150, 300)]);
        // a part of a step keeps its length
        assert_eq!(times(align_stretches(window(310, 330), &lower)), [(310, 330), (160, 180)]);
        // the lower has no step 1: aligned at step 2, which is its first
        assert_eq!(times(align_stretches(window(100, 150), &lower)), [(100, 150), (-100, -50)]);
        // no number in common: aligned in order, at the second step of each
        let mut other = trace_of_steps(9, 10);
        assert_eq!(times(align_stretches(window(100, 150), &other)), [(100, 150), (10, 60)]);
        other.spans.iter_mut().for_each(|span| span.step = NO_STEP);
        assert_eq!(
            times(align_stretches(window(100, 150), &other)),
            [(100, 150), (100, 150)],
            "no steps"
        );
    }
}
