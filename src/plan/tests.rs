//! Laws of plans, over random shapes, architectures and TP.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::Rope;

fn shape(layers: u32, kv_heads: u32, group: u32, tied: bool) -> ModelShape {
    ModelShape {
        layers,
        hidden: 32,
        heads: kv_heads * group,
        kv_heads,
        head_dim: 8,
        qkv: HeadStep::Plain,
        intermediate: 48,
        vocab: 64,
        rope: Rope::plain(1e4),
        norm_eps: 1e-5,
        tied_embeddings: tied,
        attention: AttentionShape::default(),
        experts: None,
    }
}

pub(super) fn spec(architecture: &Architecture, layers: u32, tp: u32, phase: Phase) -> PlanSpec {
    PlanSpec {
        shape: shape(layers, 4, 2, false),
        architecture: architecture.clone(),
        tp,
        phase,
        precision: Precision::uniform(DType::Bf16),
        lowering: Lowering::default(),
        variant: crate::Variant::default(),
        batch: 1,
        pp: 1,
    }
}

pub(super) fn plan(architecture: &str, layers: u32, tp: u32) -> Plan {
    let architecture = architecture.parse().unwrap();
    Plan::new(&spec(&architecture, layers, tp, Phase::Decode)).unwrap()
}

fn architectures() -> impl Strategy<Value = Architecture> {
    prop_oneof![
        Just(Architecture::Standard),
        Just(Architecture::Ladder(LayerSet::All)),
        (0u32..6).prop_map(|k| Architecture::Ladder(LayerSet::Last(k))),
        proptest::collection::btree_set(0u32..6, 0..4)
            .prop_map(|set| Architecture::Ladder(LayerSet::Only(set.into_iter().collect()))),
        (0u32..4).prop_map(Architecture::Stale),
        Just(Architecture::Parallel),
        Just(Architecture::ParallelLadder),
        (1u32..6).prop_map(Architecture::Desync),
        (0u32..14).prop_map(Architecture::Delayed),
        (0u32..6).prop_map(|k| Architecture::SyncDrop(LayerSet::Last(k))),
        proptest::collection::btree_set(0u32..6, 0..4)
            .prop_map(|set| Architecture::SyncDrop(LayerSet::Only(set.into_iter().collect()))),
        Just(Architecture::Kraken),
        (0u32..7).prop_map(|k| Architecture::FarSkip(LayerSet::Last(k))),
        proptest::collection::btree_set(0u32..6, 0..4)
            .prop_map(|set| Architecture::FarSkip(LayerSet::Only(set.into_iter().collect()))),
        // of 32 channels at least one
        (32u32..=1000, any::<bool>()).prop_map(|(share, stale)| {
            let ladder = if stale { "+ladder" } else { "" };
            format!("partial:{}{ladder}", f64::from(share) / 1000.0).parse().unwrap()
        }),
        (1u32..6).prop_map(Architecture::Tracks),
        Just(Architecture::UpperBound),
    ]
}

fn lowerings() -> impl Strategy<Value = Lowering> {
    any::<[bool; 5]>().prop_map(
        |[shard_head, all_logits, late_select, fuse_add_norm, fuse_all_reduce]| Lowering {
            shard_head,
            all_logits,
            late_select,
            fuse_add_norm,
            fuse_all_reduce,
        },
    )
}

fn variants() -> impl Strategy<Value = Variant> {
    let formats = prop_oneof![Just(CommDType::Activations), Just(CommDType::F8), Just(CommDType::Int8)];
    (1u32..5, formats, any::<bool>()).prop_map(|(micro_batches, comm_dtype, sequence_parallel)| {
        Variant { micro_batches, comm_dtype, sequence_parallel, ..Variant::default() }
    })
}

/// Experts of a model, and how they are divided: in slices, whole, or behind a dispatch.
fn experts() -> impl Strategy<Value = Option<(ExpertShape, u32)>> {
    let some = (any::<bool>(), 0u32..3, 1u32..3, any::<bool>(), 0u32..3).prop_map(
        |(has_shared, dense_first, every, biased, division)| {
            let shared_width = if has_shared { 16 } else { 0 };
            Some((
                ExpertShape { shared_width, dense_first, every, biased, ..expert_tests::experts() },
                division,
            ))
        },
    );
    prop_oneof![Just(None), some]
}

/// What is left of a lowering that fuses nothing.
pub(super) fn unfused(lowering: &Lowering) -> Lowering {
    Lowering { fuse_add_norm: false, fuse_all_reduce: false, ..*lowering }
}

pub(super) fn specs() -> impl Strategy<Value = PlanSpec> {
    let phases = prop_oneof![Just(Phase::Prefill), Just(Phase::Decode)];
    (
        architectures(),
        1u32..6,
        prop_oneof![Just(1u32), Just(2), Just(4)],
        phases,
        lowerings(),
        any::<bool>(),
        variants(),
        1u32..6,
        prop_oneof![Just(HeadStep::Plain), Just(HeadStep::Biased), Just(HeadStep::Normed)],
        experts(),
    )
        .prop_map(
            |(architecture, layers, tp, phase, lowering, tied, variant, batch, qkv, experts)| {
                // enough layers for those that the architecture names
                let layers = if architecture.layer_problem(layers).is_some() { 6 } else { layers };
                let mut shape = ModelShape { qkv, ..shape(layers, 4, 2, tied) };
                let (mut tp, mut ep, mut dp) = (tp, 1, 1);
                if let Some((experts, division)) = experts {
                    shape.experts = Some(experts);
                    (tp, ep, dp) = [(tp, 1, 1), (tp, tp, 1), (1, tp, tp)][division as usize];
                    if architecture.model_problem(&shape, tp).is_some() {
                        (shape.experts, ep, dp) = (None, 1, 1);
                    }
                }
                PlanSpec {
                    variant: Variant {
                        ep,
                        dp,
                        sequence_parallel: variant.sequence_parallel
                            && architecture.scatter_problem(layers).is_none(),
                        ..variant
                    },
                    shape,
                    architecture,
                    tp,
                    phase,
                    precision: Precision::uniform(DType::Bf16),
                    lowering,
                    batch,
                    pp: 1,
                }
            },
        )
}

/// Everything an operation waits for, directly or transitively.
fn ancestors(plan: &Plan, of: OpId) -> HashSet<OpId> {
    let dependencies = plan.dependencies();
    let mut seen = HashSet::new();
    let mut stack = vec![of];
    while let Some(op) = stack.pop() {
        for wait in &dependencies[op.index()] {
            if seen.insert(*wait) {
                stack.push(*wait);
            }
        }
    }
    seen
}

proptest! {
    #[test]
    fn every_value_is_written_once_and_before_it_is_read(spec in specs()) {
        let plan = Plan::new(&spec).unwrap();
        let mut written = plan.tokens.iter().copied().collect::<HashSet<_>>();
        for operation in &plan.operations {
            for read in &operation.reads {
                prop_assert!(written.contains(read), "{} reads too early", operation.name);
            }
            for write in &operation.writes {
                prop_assert!(written.insert(*write), "{} writes again", operation.name);
            }
        }
        prop_assert_eq!(written.len(), plan.values.len());
        prop_assert!(plan.outputs.iter().chain(&plan.logits).all(|value| written.contains(value)));
    }

    #[test]
    fn groups_are_apart_but_for_their_weights(spec in specs()) {
        let plan = Plan::new(&spec).unwrap();
        let group = |value: &ValueId| plan.values[value.index()].group;
        for operation in &plan.operations {
            let own = operation.reads.iter().chain(&operation.writes).all(|v| group(v) == operation.group);
            prop_assert!(own, "{} touches another group", operation.name);
        }
        let buffers = plan.buffers();
        for (value, buffer) in plan.values.iter().zip(&buffers.of_value) {
            prop_assert_eq!(buffers.buffers[buffer.0 as usize].group, value.group);
        }
        // each group does what the undivided batch does, but for all-reduces whose fusing another group's
        // collective prevents; weights are there once
        let lowering = Lowering { fuse_all_reduce: false, ..spec.lowering };
        let plan = Plan::new(&PlanSpec { lowering, ..spec.clone() }).unwrap();
        let one = Variant { micro_batches: 1, ..spec.variant };
        let whole = Plan::new(&PlanSpec { variant: one, lowering, ..spec.clone() }).unwrap();
        prop_assert_eq!(&whole.weights, &plan.weights);
        let last = spec.groups().count - 1;
        let kinds = |plan: &Plan, group: u32| -> Vec<Kind> {
            plan.operations.iter().filter(|o| o.group == group).map(|o| o.kind.clone()).collect()
        };
        prop_assert_eq!(kinds(&plan, last), kinds(&whole, 0));
    }

    #[test]
    fn parts_of_groups_make_up_the_whole(whole in 0u64..5000, count in 1u32..20) {
        let groups = Groups { count, of_tokens: false };
        let mut next = 0;
        for group in 0..count {
            let (first, part) = groups.part(whole, group);
            prop_assert_eq!(first, next);
            prop_assert!(part == whole / u64::from(count) || part == whole.div_ceil(u64::from(count)));
            next += part;
        }
        prop_assert_eq!(next, whole);
        // costs of parts of a prompt are those of the whole, but for what each reads
        let step = Step::prefill(3, whole + 1);
        let parts = |of: fn(&Step) -> u64| {
            let groups = Groups { count, of_tokens: true };
            (0..count).map(|group| of(&step.of_group(groups, group))).sum::<u64>()
        };
        prop_assert_eq!(parts(Step::rows), step.rows());
        prop_assert_eq!(parts(Step::pairs), step.pairs());
    }

    #[test]
    fn names_are_unique_and_origins_survive_lowering(spec in specs()) {
        let plan = Plan::new(&spec).unwrap();
        let names: HashSet<&str> = plan.operations.iter().map(|o| o.name.as_str()).collect();
        prop_assert_eq!(names.len(), plan.operations.len());
        let unlowered =
            Plan::new(&PlanSpec { lowering: unfused(&spec.lowering), ..spec }).unwrap();
        let mut wanted: Vec<&str> = unlowered.operations.iter().map(|o| o.name.as_str()).collect();
        let mut origins: Vec<&str> =
            plan.operations.iter().flat_map(|o| o.origins.iter().map(String::as_str)).collect();
        wanted.sort_unstable();
        origins.sort_unstable();
        prop_assert_eq!(origins, wanted);
    }

    #[test]
    fn a_step_ends_only_when_everything_in_flight_has_joined(spec in specs()) {
        let plan = Plan::new(&spec).unwrap();
        let last = OpId(plan.operations.len() as u32 - 1);
        let known = ancestors(&plan, last);
        let loose: Vec<&str> = (0..last.0)
            .filter(|id| !known.contains(&OpId(*id)))
            .map(|id| plan.operations[id as usize].name.as_str())
            .collect();
        prop_assert!(loose.is_empty(), "{loose:?} are still under way");
    }

    #[test]
    fn ranks_diverge_only_where_the_architecture_says_so(spec in specs()) {
        let plan = Plan::new(&spec).unwrap();
        let diverges = plan.values.iter().any(|v| v.placement == Placement::Divergent);
        let layers = spec.shape.layers;
        let may = match &spec.architecture {
            Architecture::Desync(n) => *n > 1,
            Architecture::Delayed(delay) => *delay > 0,
            Architecture::SyncDrop(which) => (0..layers).any(|layer| which.contains(layer, layers)),
            Architecture::Kraken | Architecture::Tracks(_) | Architecture::UpperBound => true,
            Architecture::Partial(share) | Architecture::PartialLadder(share) => *share != Channels::ALL,
            _ => false,
        };
        prop_assert_eq!(diverges, may && spec.tp > 1);
    }

    /// A later value may take a buffer only when all that used it has ended, in every execution that
    /// the plan's dependencies allow.
    #[test]
    fn buffers_are_never_shared_by_values_that_live_together(spec in specs()) {
        let plan = Plan::new(&spec).unwrap();
        let buffers = plan.buffers();
        let writers = plan.writers();
        for (later, writer) in writers.iter().enumerate() {
            let Some(writer) = writer else { continue };
            let before = ancestors(&plan, *writer);
            let mine = buffers.of_value[later];
            for (earlier, earlier_writer) in writers.iter().enumerate().take(later) {
                if buffers.of_value[earlier] != mine {
                    continue;
                }
                let users = plan.operations.iter().enumerate().filter(|(_, o)| {
                    o.reads.contains(&ValueId(earlier as u32)) || o.writes.contains(&ValueId(earlier as u32))
                });
                for (user, operation) in users {
                    prop_assert!(
                        before.contains(&OpId(user as u32)),
                        "{:?}'s buffer is taken while {} uses it", earlier_writer, operation.name
                    );
                }
            }
        }
        prop_assert!(buffers.buffers.len() < plan.values.len());
    }

    #[test]
    fn happens_before_is_reachability(spec in specs(), pick in any::<prop::sample::Index>()) {
        let plan = Plan::new(&spec).unwrap();
        let later = OpId(pick.index(plan.operations.len()) as u32);
        let before = ancestors(&plan, later);
        for earlier in 0..plan.operations.len() as u32 {
            if earlier != later.0 {
                prop_assert_eq!(plan.happens_before(OpId(earlier), later), before.contains(&OpId(earlier)));
            }
        }
    }

    #[test]
    fn names_of_architectures_round_trip(architecture in architectures()) {
        prop_assert_eq!(architecture.to_string().parse::<Architecture>().unwrap(), architecture);
    }

    #[test]
    fn architecture_parser_never_panics(text in ".{0,24}") {
        let _ = text.parse::<Architecture>();
    }

    /// Shards' work adds up: FLOPs and weight bytes of all ranks are the model's, but for what is
    /// replicated (embedding, norms, head, sampling).
    #[test]
    fn sharded_work_adds_up(architecture in architectures(), layers in 6u32..8, tp in prop_oneof![Just(2u32), Just(4)]) {
        let step = Step::decode(3, 17, 5);
        let flops = |tp: u32| -> u64 {
            let plan = Plan::new(&spec(&architecture, layers, tp, Phase::Decode)).unwrap();
            plan.operations
                .iter()
                .filter(|o| o.layer.is_some() && matches!(o.kind, Kind::MatMul | Kind::Attend | Kind::SiluMul { .. }))
                .map(|o| o.cost.flops.at(&step))
                .sum::<u64>() * u64::from(tp)
        };
        prop_assert_eq!(flops(1), flops(tp));
    }
}

#[test]
fn stale_0_is_standard_and_stale_1_is_ladder() {
    for phase in [Phase::Prefill, Phase::Decode] {
        for (stale, named) in [
            ("stale:0", "standard"),
            ("stale:1", "ladder"),
            ("ladder:0", "standard"),
            ("delayed:0", "standard"),
            ("sync-drop:0", "standard"),
        ] {
            let of = |name: &str| Plan::new(&spec(&name.parse().unwrap(), 5, 4, phase)).unwrap();
            assert_eq!(of(stale), of(named));
        }
    }
    assert_eq!(plan("ladder:5", 5, 2), plan("ladder", 5, 2));
    assert_ne!(plan("standard", 5, 2).hash(), plan("ladder", 5, 2).hash());
}

/// How many collectives reduce the residual in one step.
fn all_reduces(plan: &Plan) -> usize {
    plan.operations.iter().filter(|operation| operation.kind == Kind::AllReduce).count()
}

#[test]
fn all_reduces_a_layer_are_the_tables() {
    let layers = 6;
    for (architecture, wanted) in [
        ("standard", 2 * layers),
        ("ladder", 2 * layers),
        ("ladder:3", 2 * layers),
        ("stale:2", 2 * layers),
        ("parallel", layers),
        ("parallel+ladder", layers),
        ("desync:1", 2 * layers),
        ("desync:2", layers),
        ("desync:4", (2 * layers as usize).div_ceil(4) as u32),
        ("desync:5", (2 * layers as usize).div_ceil(5) as u32),
        // the last D modules start none; the mean of the ranks is one
        ("delayed:0", 2 * layers),
        ("delayed:1", 2 * layers),
        ("delayed:4", 2 * layers - 4 + 1),
        ("delayed:12", 1),
        ("delayed:20", 1),
        ("sync-drop:0", 2 * layers),
        ("sync-drop:4", 2 * layers - 4),
        ("sync-drop:[0+2+5]", 2 * layers - 3),
        ("sync-drop", layers),
        ("kraken", layers),
        ("farskip", layers),
        ("partial:0.5", 2 * layers),
        ("partial:1", 2 * layers),
        ("partial:0.5+ladder", 2 * layers),
        ("tracks:1", layers),
        ("tracks:2", 3),
        ("tracks:4", 2),
        ("tracks:99", 1),
        ("upper-bound", 0),
    ] {
        assert_eq!(all_reduces(&plan(architecture, layers, 2)), wanted as usize, "{architecture}");
        assert_eq!(all_reduces(&plan(architecture, layers, 1)), 0, "{architecture} on one rank");
    }
    for beyond in ["ladder:[0+6]", "sync-drop:4294967295"] {
        let error = Plan::new(&spec(&beyond.parse().unwrap(), layers, 2, Phase::Decode)).unwrap_err();
        assert!(
            matches!(&error, PlanError::Shape(why) if why.contains("the model has only 6")),
            "{error}"
        );
    }
}

/// The modules' first and last compute operations and their all-reduce, in order.
fn modules(plan: &Plan) -> Vec<(Vec<OpId>, OpId)> {
    type Key = (Module, Option<u32>);
    let mut modules: Vec<(Key, Vec<OpId>, Option<OpId>)> = Vec::new();
    for (index, operation) in plan.operations.iter().enumerate() {
        if operation.layer.is_none() {
            continue;
        }
        let key = (operation.module, operation.layer);
        if modules.last().is_none_or(|(last, ..)| *last != key) {
            modules.push((key, Vec::new(), None));
        }
        let (_, compute, reduce) = modules.last_mut().unwrap();
        match operation.lane {
            Lane::Compute => compute.push(OpId(index as u32)),
            Lane::Comm => *reduce = Some(OpId(index as u32)),
        }
    }
    modules.into_iter().map(|(_, compute, reduce)| (compute, reduce.unwrap())).collect()
}

#[test]
fn ladder_never_waits_for_the_previous_modules_all_reduce_and_standard_always_does() {
    for (architecture, waits) in [
        ("ladder", false),
        ("standard", true),
        ("parallel", true),
        ("parallel+ladder", false),
        ("partial:0.5+ladder", false),
    ] {
        let plan = plan(architecture, 5, 4);
        let modules = modules(&plan);
        for pair in modules.windows(2) {
            let previous = pair[0].1;
            for op in &pair[1].0 {
                assert_eq!(
                    ancestors(&plan, *op).contains(&previous),
                    waits,
                    "{architecture}: {}",
                    plan.operations[op.index()].name
                );
            }
        }
    }
}

/// In `delayed:D` module n reads the sums of the modules before n - D, and of no younger one.
#[test]
fn no_module_of_delayed_waits_for_a_collective_younger_than_d_modules() {
    let layers = 5;
    for delay in 1..2 * layers {
        for tp in [2, 4] {
            let plan = plan(&format!("delayed:{delay}"), layers, tp);
            let name = |module: u32, what: &str| {
                let kind = if module.is_multiple_of(2) { "attn" } else { "mlp" };
                plan.find(&format!("L{}/{kind}/{what}", module / 2))
            };
            for module in 0..2 * layers {
                let before = ancestors(&plan, name(module, "norm").unwrap());
                for earlier in 0..2 * layers {
                    let sum = name(earlier, "all_reduce");
                    assert_eq!(
                        sum.is_some(),
                        earlier + delay < 2 * layers,
                        "delayed:{delay}: {earlier}"
                    );
                    let waits = sum.is_some_and(|sum| before.contains(&sum));
                    assert_eq!(
                        waits,
                        earlier + delay < module,
                        "delayed:{delay}: {module} for {earlier}"
                    );
                }
            }
        }
    }
}

/// A rank's own part counts more where the others' parts are missing: in the first and the last D modules.
#[test]
fn own_parts_of_delayed_are_scaled_at_both_ends() {
    let plan = plan("delayed:2", 4, 2);
    let roots: Vec<(bool, usize)> = plan
        .operations
        .iter()
        .filter_map(|operation| match operation.kind {
            Kind::Join { root } => Some((root, operation.reads.len())),
            _ => None,
        })
        .collect();
    let wanted =
        [(true, 2), (true, 2), (false, 4), (false, 4), (false, 4), (false, 4), (true, 4), (true, 4)];
    assert_eq!(roots, wanted);
}

/// In a dropped layer the MLP does not wait for a collective of its own layer.
#[test]
fn the_mlp_of_a_dropped_layer_waits_for_no_sum_of_its_layer() {
    let plan = plan("sync-drop:[1]", 3, 2);
    for layer in 0..3 {
        let sum = plan.find(&format!("L{layer}/attn/all_reduce"));
        assert_eq!(sum.is_none(), layer == 1);
        let part = plan.find(&format!("L{layer}/mlp/add_part"));
        assert_eq!(part.is_some(), layer == 1);
    }
}

/// Messages of partial are the first channels, rounded down; the logits are gathered once.
#[test]
fn partial_sends_its_share_of_the_channels() {
    for (share, columns) in [("0.5", 16), ("0.3", 9), ("0.032", 1), ("1", 32)] {
        let plan = plan(&format!("partial:{share}"), 3, 2);
        let of = |kind: Kind| plan.operations.iter().filter(move |o| o.kind == kind);
        let bytes = of(Kind::AllReduce).map(|o| o.cost.message_bytes.row).collect::<HashSet<_>>();
        assert_eq!(bytes, HashSet::from([2 * columns]), "{share}");
        assert_eq!(of(Kind::AllGather).count(), usize::from(share != "1"), "{share}");
    }
    let refused = |architecture: &str, vocab: u32| {
        let mut spec = spec(&architecture.parse().unwrap(), 3, 2, Phase::Decode);
        spec.shape.vocab = vocab;
        Plan::new(&spec).unwrap_err().to_string()
    };
    assert_eq!(refused("partial:0.02", 64), "partial:0.02 sums none of 32 channels");
    assert!(refused("partial:0.5", 63).contains("TP 2 does not divide the vocabulary of 63"));
    for wrong in ["partial", "partial:0", "partial:1.5", "partial:x", "partial:0.0005"] {
        let error = wrong.parse::<Architecture>().unwrap_err().to_string();
        assert!(error.contains(wrong) && error.contains("P is missing"), "{error}");
    }
}

/// Attention of kraken waits for no sum of the layer before, the MLP for all of it.
#[test]
fn krakens_sum_joins_behind_the_next_attention() {
    let plan = plan("kraken", 4, 2);
    for layer in 1u32..4 {
        let sum = plan.find(&format!("L{}/mlp/all_reduce", layer - 1)).unwrap();
        let attention = ancestors(&plan, plan.find(&format!("L{layer}/attn/out")).unwrap());
        let mlp = ancestors(&plan, plan.find(&format!("L{layer}/mlp/norm")).unwrap());
        assert!(!attention.contains(&sum) && mlp.contains(&sum), "layer {layer}");
        let earlier = layer.checked_sub(2).map(|l| plan.find(&format!("L{l}/mlp/all_reduce")).unwrap());
        assert!(earlier.is_none_or(|sum| attention.contains(&sum)), "layer {layer}");
    }
}

/// Module input, exactly, for ladder (design): attention of layer l reads x0 + all attention outputs
/// of layers < l + all MLP outputs of layers < l - 1; MLP of layer l x0 + all of layers < l.
#[test]
fn ladder_residuals_hold_what_the_paper_says() {
    let plan = plan("ladder", 4, 2);
    // what each residual value is the sum of, by the names of the all-reduces
    let mut sums: Vec<HashSet<String>> = vec![HashSet::new(); plan.values.len()];
    for operation in &plan.operations {
        let written = operation.writes[0].index();
        match operation.kind {
            Kind::AllReduce => {
                sums[written] =
                    HashSet::from([operation.name.trim_end_matches("/all_reduce").to_owned()]);
            }
            Kind::Add => {
                let (a, b) = (operation.reads[0].index(), operation.reads[1].index());
                sums[written] = sums[a].union(&sums[b]).cloned().collect();
            }
            _ => {}
        }
    }
    let attn = |n: u32| (0..n).map(|l| format!("L{l}/attn"));
    let mlp = |n: u32| (0..n).map(|l| format!("L{l}/mlp"));
    for layer in 0..4u32 {
        let input = |module: &str| {
            let norm = plan.find(&format!("L{layer}/{module}/norm")).unwrap();
            sums[plan.operations[norm.index()].reads[0].index()].clone()
        };
        assert_eq!(
            input("attn"),
            attn(layer).chain(mlp(layer.saturating_sub(1))).collect(),
            "attention {layer}"
        );
        assert_eq!(input("mlp"), attn(layer).chain(mlp(layer)).collect(), "MLP {layer}");
    }
    let norm = plan.find("head/norm").unwrap();
    assert_eq!(
        sums[plan.operations[norm.index()].reads[0].index()],
        attn(4).chain(mlp(4)).collect(),
        "the head sees everything"
    );
}

/// Sequence parallelism halves each all-reduce, one half before additions and norms of a share of the rows and one
/// behind them; the head has an all-gather more.
#[test]
fn a_scattered_residual_has_two_collectives_for_each_all_reduce() {
    for (architecture, reduces) in [("standard", 10), ("ladder", 10), ("parallel", 5), ("stale:2", 10)] {
        let mut spec = spec(&architecture.parse().unwrap(), 5, 2, Phase::Prefill);
        let whole = Plan::new(&spec).unwrap();
        spec.variant.sequence_parallel = true;
        let plan = Plan::new(&spec).unwrap();
        let of = |plan: &Plan, kind: Kind| plan.operations.iter().filter(|o| o.kind == kind).count();
        assert_eq!(of(&plan, Kind::ReduceScatter), reduces, "{architecture}");
        assert_eq!(of(&plan, Kind::AllGather), reduces + 1, "{architecture}");
        assert_eq!((of(&plan, Kind::AllReduce), of(&whole, Kind::AllReduce)), (0, reduces));
        let row = |plan: &Plan, name: &str, of: fn(&Cost) -> Quantity| {
            of(&plan.operations[plan.find(name).unwrap().index()].cost).row
        };
        for norm in ["L1/attn/norm", "L1/block/norm"].iter().filter(|name| plan.find(name).is_some()) {
            assert_eq!(2 * row(&plan, norm, |c| c.bytes_read), row(&whole, norm, |c| c.bytes_read));
        }
        // messages are counted as those of the all-reduce: what is summed, and what is gathered
        let module = if architecture == "parallel" { "block" } else { "attn" };
        let message = row(&whole, &format!("L1/{module}/all_reduce"), |c| c.message_bytes);
        for half in ["reduce_scatter", "all_gather"] {
            assert_eq!(row(&plan, &format!("L1/{module}/{half}"), |c| c.message_bytes), message);
        }
        spec.tp = 1;
        assert!(Plan::new(&spec).unwrap().operations.iter().all(|o| !o.kind.is_collective()));
    }
    for architecture in ["desync:2", "delayed:1", "sync-drop", "upper-bound"] {
        let mut spec = spec(&architecture.parse().unwrap(), 5, 2, Phase::Prefill);
        spec.variant.sequence_parallel = true;
        let problem = Plan::new(&spec).unwrap_err().to_string();
        assert!(problem.contains(architecture) && problem.contains("sequence parallelism"), "{problem}");
    }
}

#[test]
fn tp_that_does_not_divide_is_explained() {
    let spec = spec(&Architecture::Standard, 2, 3, Phase::Decode);
    let error = Plan::new(&spec).unwrap_err().to_string();
    assert_eq!(error, "TP 3 does not divide 8 heads (8 mod 3 = 2)");
}

#[test]
fn a_sharded_head_adds_one_collective_apart() {
    let mut spec = spec(&Architecture::Standard, 2, 2, Phase::Decode);
    spec.lowering.shard_head = true;
    let plan = Plan::new(&spec).unwrap();
    let head = plan.find("head").unwrap();
    assert_eq!(plan.operations[head.index()].kind, Kind::AllGather);
    assert_eq!(all_reduces(&plan), 4);
    spec.architecture = Architecture::UpperBound;
    assert!(Plan::new(&spec).unwrap().operations.iter().all(|o| o.lane == Lane::Compute));
}
