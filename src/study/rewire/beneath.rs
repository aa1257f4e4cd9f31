use super::answer::{Choice, Rewiring};
use base::error::Result;
use plan::{Kind, Lane, Phase};
use table::Provenance;
use trace::{FORMAT_VERSION, Span, Trace, TraceMeta, operations};

/// Rewires step `number` of a trace and returns it as a trace that starts at the measured step's time;
/// includes contention if a profile gives it. Each module is one span.
///
/// # Errors
///
/// Returns the errors of [`Rewiring::answer`], and an error if the step does not exist.
pub fn beneath(original: &Trace, rewiring: &Rewiring, choice: &Choice, number: u32) -> Result<Trace> {
    let (assigned, executed, step) = rewiring.executed(choice, number)?;
    let plan = &assigned.plan;
    let mut table = operations(plan, plan);
    table.truncate(plan.operations.len());
    for (info, operation) in table.iter_mut().zip(&plan.operations) {
        info.phase = step.key.phase;
        info.shape = String::new();
        // the operation that carries a module's time represents the whole module
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
        // operations covered by a module's span have zero length
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
            // computed from measured times, but not a measurement
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
