//! Traces prepared for comparison: inferred steps, and operations distinguished by their place.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::rewire::{Asked, Steps};
use plan::Phase;
use trace::{LaunchSite, NO_STEP, Span, Trace};

/// Minimum share of spans with a known operator for it to tell kernels apart.
const KNOWN: f64 = 0.5;

/// Adds step numbers to a trace without step markers, if its all-reduces repeat as those of a model do.
pub(super) fn with_steps(trace: &Trace) -> Cow<'_, Trace> {
    if trace.spans.iter().any(|span| span.step != NO_STEP) {
        return Cow::Borrowed(trace);
    }
    let Ok(steps) = Steps::of(trace, &Asked::default()) else { return Cow::Borrowed(trace) };
    let times: Vec<(u32, i64, i64)> = steps.times().collect();
    let step_of = |span: &Span| {
        let after = times.partition_point(|(_, from, _)| *from <= span.start_ns);
        let (number, _, to) = times.get(after.checked_sub(1)?)?;
        (span.start_ns < *to).then_some(*number)
    };
    let mut marked = trace.clone();
    for span in &mut marked.spans {
        span.step = step_of(span).unwrap_or(NO_STEP);
    }
    // the order of every trace: see `Trace`
    marked.spans.sort_by_key(|s| (s.sample, s.phase, s.step, s.rank, s.lane, s.start_ns));
    Cow::Owned(marked)
}

/// True if the framework's operators tell the kernels of this trace apart.
pub(super) fn has_places(trace: &Trace) -> bool {
    let known = trace.spans.iter().filter(|span| span.launched.operator != LaunchSite::NONE).count();
    !trace.spans.is_empty() && known as f64 >= KNOWN * trace.spans.len() as f64
}

/// Splits operations by the operator that launched them: one kernel in two places becomes two operations.
pub(super) fn with_places(trace: &Trace) -> Trace {
    let mut placed = trace.clone();
    placed.operations.clear();
    let mut known: HashMap<(u32, Option<&str>), u32> = HashMap::new();
    for span in &mut placed.spans {
        let Some(info) = trace.operations.get(span.operation as usize) else { continue };
        let operator = trace.meta.range_names.get(span.launched.operator as usize);
        let operator = operator.map(String::as_str).filter(|_| info.collective.is_none());
        let next = placed.operations.len() as u32;
        let operation = *known.entry((span.operation, operator)).or_insert(next);
        if operation == next {
            let mut info = info.clone();
            if let Some(operator) = operator {
                info.name = format!("{} in {operator}", info.name);
            }
            placed.operations.push(info);
        }
        span.operation = operation;
    }
    placed
}

/// Phase that is compared: decoding of own runs, everything of imported traces.
pub(super) fn phase(trace: &Trace) -> Option<Phase> {
    let decodes = || trace.spans.iter().any(|span| span.phase == Phase::Decode);
    (trace.meta.spec.is_some() && decodes()).then_some(Phase::Decode)
}
