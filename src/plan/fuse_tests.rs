//! Laws of plans whose all-reduces are fused with the addition and the norm behind them.

use std::collections::HashMap;

use proptest::prelude::*;

use super::tests::{spec, specs, unfused};
use super::*;

fn fused(architecture: &str, layers: u32, phase: Phase) -> Plan {
    let mut spec = spec(&architecture.parse().unwrap(), layers, 4, phase);
    spec.lowering = Lowering { fuse_add_norm: true, fuse_all_reduce: true, ..Lowering::default() };
    Plan::new(&spec).unwrap()
}

fn count(plan: &Plan, kind: &Kind) -> usize {
    plan.operations.iter().filter(|operation| operation.kind == *kind).count()
}

/// What each value is, in terms of what the unlowered operations do to the tokens: equal texts, equal numbers.
fn meanings(plan: &Plan) -> HashMap<ValueId, String> {
    let tokens = plan.tokens.iter().enumerate();
    let mut known: HashMap<ValueId, String> =
        tokens.map(|(group, &tokens)| (tokens, format!("tokens {group}"))).collect();
    for operation in &plan.operations {
        let reads: Vec<String> = operation.reads.iter().map(|read| known[read].clone()).collect();
        let weight = operation.weight.map(|w| plan.weights[w.index()].name.clone()).unwrap_or_default();
        let hashed = |text: String| base::checksum::short_key(text);
        let does = |kind: &Kind, reads: &[String], weight: &str| {
            hashed(format!(
                "{kind:?} {reads:?} {weight} {:?}",
                operation.layer.filter(|_| *kind == Kind::Attend)
            ))
        };
        let written = match &operation.kind {
            Kind::AllReduceAddNorm => {
                let sum = does(&Kind::AllReduce, &reads[..1], "");
                let residual = does(&Kind::Add, &[reads[1].clone(), sum], "");
                vec![residual.clone(), does(&Kind::Norm, &[residual], &weight)]
            }
            Kind::AddNorm | Kind::JoinNorm { .. } => {
                let first = match &operation.kind {
                    Kind::JoinNorm { root } => Kind::Join { root: *root },
                    _ => Kind::Add,
                };
                let residual = does(&first, &reads, "");
                vec![residual.clone(), does(&Kind::Norm, &[residual], &weight)]
            }
            kind => vec![does(kind, &reads, &weight)],
        };
        assert_eq!(written.len(), operation.writes.len(), "{}", operation.name);
        known.extend(operation.writes.iter().copied().zip(written));
    }
    known
}

proptest! {
    #[test]
    fn fusing_changes_neither_a_number_nor_the_collectives(spec in specs()) {
        let lowered = |lowering| Plan::new(&PlanSpec { lowering, ..spec.clone() }).unwrap();
        let apart = lowered(unfused(&spec.lowering));
        let fused = lowered(Lowering { fuse_all_reduce: true, ..spec.lowering });
        let step = Step::decode(3, 17, 2);
        let ends = |plan: &Plan| -> Vec<String> {
            let known = meanings(plan);
            plan.logits.iter().chain(&plan.outputs).map(|value| known[value].clone()).collect()
        };
        prop_assert_eq!(ends(&apart), ends(&fused));
        let messages = |plan: &Plan| -> Vec<(String, u64)> {
            let collectives = plan.operations.iter().filter(|operation| operation.kind.is_collective());
            collectives.map(|o| (o.origins[0].clone(), o.cost.message_bytes.at(&step))).collect()
        };
        prop_assert_eq!(messages(&apart), messages(&fused));
        let flops = |plan: &Plan| plan.operations.iter().map(|o| o.cost.flops.at(&step)).sum::<u64>();
        prop_assert_eq!(flops(&apart), flops(&fused));
        let collective = |operation: &Operation| operation.cost.message_bytes != Quantity::ZERO;
        prop_assert!(fused.operations.iter().all(|o| collective(o) == o.kind.is_collective()));
    }
}

#[test]
fn standard_and_parallel_fuse_on_the_compute_lane_and_ladder_beside_it() {
    for (architecture, collectives, lane) in [
        ("standard", 8, Lane::Compute),
        ("parallel", 4, Lane::Compute),
        ("ladder", 7, Lane::Comm),
        ("parallel+ladder", 3, Lane::Comm),
        ("stale:2", 6, Lane::Comm),
        ("sync-drop:2", 6, Lane::Compute),
    ] {
        let plan = fused(architecture, 4, Phase::Decode);
        let fused: Vec<&Operation> =
            plan.operations.iter().filter(|o| o.kind == Kind::AllReduceAddNorm).collect();
        // of several that are in flight at the end, the last one is normed, where the compute lane waits for it
        let (last, others) = fused.split_last().unwrap();
        assert_eq!(last.lane, Lane::Compute, "{architecture}");
        assert!(others.iter().all(|o| o.lane == lane), "{architecture}");
        assert_eq!(fused.len(), collectives, "{architecture}");
        // no norm is left but the first, or as many as modules begin before a sum is there
        let ahead =
            architecture.parse::<Architecture>().unwrap().wiring(4).staleness[0].attention as usize;
        let norms = count(&plan, &Kind::Norm) + count(&plan, &Kind::AddNorm);
        assert_eq!(norms, 1 + ahead + usize::from(architecture == "sync-drop:2") * 2, "{architecture}");
    }
}

#[test]
fn where_sums_join_in_another_way_a_plain_all_reduce_stays() {
    for architecture in ["delayed:2", "desync:2", "upper-bound"] {
        assert_eq!(count(&fused(architecture, 4, Phase::Decode), &Kind::AllReduceAddNorm), 0);
    }
    // a prefill norms the last token's row alone
    let plan = fused("standard", 4, Phase::Prefill);
    assert_eq!((count(&plan, &Kind::AllReduceAddNorm), count(&plan, &Kind::AllReduce)), (7, 1));
    // where ladder ends, two sums join at once: the first has no norm of its own
    let plan = fused("ladder:[0+1]", 4, Phase::Decode);
    assert_eq!((count(&plan, &Kind::AllReduceAddNorm), count(&plan, &Kind::AllReduce)), (7, 1));
}

#[test]
fn a_fused_operation_reads_and_writes_each_activation_once() {
    let plan = fused("standard", 2, Phase::Decode);
    let operation = &plan.operations[plan.find("L0/attn/all_reduce_add_norm").unwrap().index()];
    assert_eq!(operation.origins, ["L0/attn/all_reduce", "L0/mlp/add", "L0/mlp/norm"]);
    let step = Step::decode(3, 10, 0);
    // three rows of 32 bf16 numbers: the partial value and the residual, and the norm's weight
    assert_eq!(operation.cost.bytes_read.at(&step), 2 * (2 * 3 * 32 + 32));
    assert_eq!(operation.cost.bytes_written.at(&step), 2 * 2 * 3 * 32);
    assert_eq!(operation.cost.message_bytes.at(&step), 2 * 3 * 32);
}
