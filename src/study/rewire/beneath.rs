//! One step of a trace as it would be in another wiring: spans, to be shown under the original.

use super::answer::{Choice, Rewiring};
use base::error::Result;
use plan::{Kind, Lane, Phase};
use table::Provenance;
use trace::{FORMAT_VERSION, Span, Trace, TraceMeta, operations};

/// Step `number` of a trace in another wiring, as a trace of its own that begins when the measured step did; with
/// contention where a profile says how much. A module's kernels are one span.
///
/// # Errors
///
/// Those of [`Rewiring::answer`], and an input error where there is no such step.
pub fn beneath(original: &Trace, rewiring: &Rewiring, choice: &Choice, number: u32) -> Result<Trace> {
    let (assigned, executed, step) = rewiring.executed(choice, number)?;
    let plan = &assigned.plan;
    let mut table = operations(plan, plan);
    table.truncate(plan.operations.len());
    for (info, operation) in table.iter_mut().zip(&plan.operations) {
        info.phase = step.key.phase;
        info.shape = String::new();
        // the operation that carries a module's time stands for all of it
        if let (Lane::Compute, Some((module, _))) = (operation.lane, info.name.rsplit_once('/'))
            && matches!(
                operation.kind,
                Kind::Norm | Kind::AddNorm | Kind::JoinNorm { .. } | Kind::MatMul
            )
        {
            info.name = module.to_owned();
            info.kind = "module".into();
        }
    }
    let mut spans: Vec<Span> = executed
        .iter()
        // what is part of a module's span has no length of its own
        .filter(|one| one.end > one.start)
        .map(|one| Span {
            sample: step.key.sample,
            phase: step.key.phase,
            step: if step.key.phase == Phase::Prefill { 0 } else { step.key.step },
            rank: one.rank,
            lane: one.lane,
            stream: 0,
            operation: one.operation as u32,
            ready_ns: step.time.0 + one.ready,
            start_ns: step.time.0 + one.start,
            end_ns: step.time.0 + one.end,
            last_arrival_ns: match plan.operations[one.operation].kind.is_collective() {
                true => step.time.0 + one.arrival,
                false => -1,
            },
            ..Span::EMPTY
        })
        .collect();
    spans.sort_by_key(|span| (span.rank, span.lane, span.start_ns));
    Ok(Trace {
        meta: TraceMeta {
            version: FORMAT_VERSION,
            // of times that were measured, but no measurement
            provenance: Provenance::Simulated,
            run: None,
            spec: None,
            ranks: rewiring.steps.ranks,
            plan_hashes: Vec::new(),
            environment: original.meta.environment.clone(),
            clock: original.meta.clock.clone(),
            recorder: format!("rewired: {}", choice.label()),
            streams: Vec::new(),
            range_names: Vec::new(),
            groups: Vec::new(),
            products: Default::default(),
            import: None,
        },
        operations: table,
        spans,
        ranges: Vec::new(),
    })
}
