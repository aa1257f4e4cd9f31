//! Named ranges of native traces: steps, layers and modules.

use crate::{OperationInfo, Span, Trace};
use plan::{Lane, Phase};

pub(super) fn has_steps(trace: &Trace) -> bool {
    trace.meta.range_names.iter().any(|name| name.starts_with("ProfilerStep#"))
}

/// Earliest ready time and latest end of a step's spans (ns).
pub(super) fn extent(spans: &[Span]) -> Option<(i64, i64)> {
    let start = spans.iter().map(|span| span.ready_ns.min(span.start_ns)).min()?;
    let end = spans.iter().map(|span| span.end_ns).max()?;
    Some((start, end))
}

/// Display name of a step: `prefill`, `decode 7`.
pub(super) fn step_name(span: &Span) -> String {
    match span.phase {
        Phase::Prefill => "prefill".into(),
        Phase::Decode => format!("decode {}", span.step),
    }
}

pub(super) struct Passage {
    pub(super) name: String,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
}

/// Layers, then modules, that the compute lane executed in these spans of one step on one rank.
pub(super) fn passages(spans: &[Span], operations: &[OperationInfo]) -> Vec<Passage> {
    let of = |span: &Span| operations.get(span.operation as usize);
    let layer = |span: &Span| of(span).and_then(|o| o.layer).map(|layer| format!("L{layer}"));
    let module = |span: &Span| {
        let operation = of(span).filter(|o| !o.module.is_empty())?;
        Some(match operation.layer {
            Some(layer) => format!("L{layer}/{}", operation.module),
            None => operation.module.clone(),
        })
    };
    let mut found = runs(spans, layer);
    found.append(&mut runs(spans, module));
    found
}

/// Groups of consecutive compute spans with equal names.
fn runs(spans: &[Span], name: impl Fn(&Span) -> Option<String>) -> Vec<Passage> {
    let mut found: Vec<Passage> = Vec::new();
    let mut open = false;
    for span in spans.iter().filter(|span| span.lane == Lane::Compute) {
        match (name(span), found.last_mut()) {
            (Some(name), Some(last)) if open && last.name == name => {
                last.end_ns = last.end_ns.max(span.end_ns);
            }
            (Some(name), _) => {
                found.push(Passage { name, start_ns: span.start_ns, end_ns: span.end_ns });
                open = true;
            }
            (None, _) => open = false,
        }
    }
    found
}
