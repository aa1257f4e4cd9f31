//! Plans of mixtures of experts, latent attention, windows and replicated KV heads.

use std::collections::{HashMap, HashSet};

use super::*;
use crate::tests::spec;

pub(super) fn experts() -> ExpertShape {
    ExpertShape::plain(8, 2, 24, Routing::plain(RouterScore::Softmax, true))
}

fn moe(architecture: &str, tp: u32, experts: ExpertShape) -> PlanSpec {
    let mut spec = spec(&architecture.parse().unwrap(), 4, tp, Phase::Decode);
    spec.shape.experts = Some(experts);
    spec
}

/// Attention, shared and routed outputs of each layer that every normed input of a module contains.
fn seen(plan: &Plan) -> HashMap<String, HashSet<String>> {
    let mut holds: Vec<HashSet<String>> = vec![HashSet::new(); plan.values.len()];
    let mut inputs = HashMap::new();
    for operation in &plan.operations {
        let mut all: HashSet<String> = HashSet::new();
        let is_residual = matches!(
            operation.kind,
            Kind::Add | Kind::AllReduce | Kind::Combine | Kind::Narrow | Kind::Quantize { .. }
        );
        if is_residual && operation.kind != Kind::Combine {
            for read in &operation.reads {
                all.extend(holds[read.index()].iter().cloned());
            }
        }
        let layer = operation.layer.unwrap_or(0);
        match operation.name.rsplit('/').next().unwrap_or_default() {
            "out" => drop(all.insert(format!("a{layer}"))),
            "down" => drop(all.insert(format!("m{layer}"))),
            "shared_down" => drop(all.insert(format!("s{layer}"))),
            "experts" | "combine" => drop(all.insert(format!("r{layer}"))),
            "norm" => {
                let module = format!("{}{layer}", operation.module.as_str());
                inputs.insert(module, holds[operation.reads[0].index()].clone());
            }
            _ => {}
        }
        holds[operation.writes[0].index()] = all;
    }
    inputs
}

fn names(list: &[&str]) -> HashSet<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

/// R and A of the published modelling file: attention reads A, without the newest routed output; experts
/// read R from before their layer's attention; the first layer is a dense parallel block.
#[test]
fn farskip_reads_two_streams() {
    let shape = ExpertShape { shared_width: 16, dense_first: 1, ..experts() };
    for (tp, ep, dp) in [(1, 1, 1), (2, 1, 1), (2, 2, 1), (1, 2, 2)] {
        let mut spec = moe("farskip", tp, shape);
        (spec.variant.ep, spec.variant.dp) = (ep, dp);
        let plan = Plan::new(&spec).unwrap();
        let seen = seen(&plan);
        let want = |module: &str, list: &[&str]| {
            assert_eq!(seen[module], names(list), "{module} with TP {tp}, EP {ep}, DP {dp}");
        };
        want("attn0", &[]);
        want("mlp0", &[]);
        want("attn1", &["a0", "m0"]);
        want("moe1", &["a0", "m0"]);
        want("attn2", &["a0", "m0", "a1", "s1"]);
        want("moe2", &["a0", "m0", "a1", "s1", "r1"]);
        want("attn3", &["a0", "m0", "a1", "s1", "r1", "a2", "s2"]);
        want("moe3", &["a0", "m0", "a1", "s1", "r1", "a2", "s2", "r2"]);
        want("head0", &["a0", "m0", "a1", "s1", "r1", "a2", "s2", "r2", "a3", "s3", "r3"]);
    }
}

/// A dense layer behind one with experts is a parallel block whose attention leaves out the routed output before it.
#[test]
fn farskip_reads_two_streams_between_dense_layers() {
    let shape = ExpertShape { shared_width: 16, dense_first: 1, every: 2, ..experts() };
    let seen = seen(&Plan::new(&moe("farskip", 2, shape)).unwrap());
    for (module, list) in [
        ("attn1", &["a0", "m0"][..]),
        ("moe1", &["a0", "m0"]),
        ("attn2", &["a0", "m0", "a1", "s1"]),
        ("mlp2", &["a0", "m0", "a1", "s1", "r1"]),
        ("attn3", &["a0", "m0", "a1", "s1", "r1", "a2", "m2"]),
        ("moe3", &["a0", "m0", "a1", "s1", "r1", "a2", "m2"]),
    ] {
        assert_eq!(seen[module], names(list), "{module}");
    }
}

/// Attention and shared experts share one all-reduce, which starts before the routed experts do; the
/// routed one is in flight during the next attention.
#[test]
fn farskip_reduces_before_its_experts_and_behind_the_next_attention() {
    let shape = ExpertShape { shared_width: 16, ..experts() };
    let plan = Plan::new(&moe("farskip", 2, shape)).unwrap();
    let at = |name: &str| plan.find(name).unwrap_or_else(|| panic!("no {name}"));
    let (first, experts, second) =
        (at("L1/moe/all_reduce"), at("L1/moe/experts"), at("L1/moe/routed_all_reduce"));
    assert!(first < experts && experts < second);
    assert!(!plan.happens_before(first, experts), "experts do not wait for the first sum");
    assert!(plan.happens_before(first, at("L2/attn/norm")), "the next attention reads the first sum");
    assert!(!plan.happens_before(second, at("L2/attn/out")), "and not the second");
    assert!(plan.happens_before(second, at("L2/moe/norm")));
    let reduces = plan.operations.iter().filter(|o| o.kind == Kind::AllReduce).count();
    assert_eq!(reduces, 2 * 4);
}

/// Without shared experts, attention's sum is alone: every module misses the newest output, as in ladder.
#[test]
fn farskip_without_shared_experts_is_ladder() {
    let [farskip, ladder] =
        ["farskip", "ladder"].map(|name| Plan::new(&moe(name, 2, experts())).unwrap());
    assert_eq!(farskip, ladder);
    assert_ne!(farskip, Plan::new(&moe("standard", 2, experts())).unwrap());
}

#[test]
fn experts_are_slices_whole_or_behind_a_dispatch() {
    let shape = ExpertShape { shared_width: 16, biased: true, ..experts() };
    let plan = |tp: u32, ep: u32, dp: u32| {
        let mut spec = moe("standard", tp, shape);
        (spec.variant.ep, spec.variant.dp) = (ep, dp);
        (Plan::new(&spec).unwrap(), spec)
    };
    let weight = |plan: &Plan, nth: usize| {
        let operation = &plan.operations[plan.find("L1/moe/experts").unwrap().index()];
        plan.weights[operation.weights().nth(nth).unwrap().index()].clone()
    };
    let kinds = |plan: &Plan| -> Vec<Kind> {
        let own = plan.operations.iter().filter(|o| (o.module, o.layer) == (Module::Moe, Some(1)));
        own.filter(|o| o.lane == Lane::Comm).map(|o| o.kind.clone()).collect()
    };
    // 8 experts of width 24, hidden 32
    let (slices, spec) = plan(2, 1, 1);
    let down = weight(&slices, 1);
    assert_eq!((weight(&slices, 0).outputs, down.outputs, down.inputs), (8 * 24, 8 * 32, 12));
    let (rows, columns) = down.parts[0].slice(&spec.shape, 1, 2);
    assert_eq!((rows, columns, down.parts[0].experts(&spec.shape, 1, 2)), (0..32, 12..24, 0..8));
    assert_eq!(kinds(&slices), [Kind::AllReduce]);
    let (whole, spec) = plan(2, 2, 1);
    let gate = &weight(&whole, 0).parts[0];
    let (rows, _) = gate.slice(&spec.shape, 1, 2);
    assert_eq!((rows, gate.experts(&spec.shape, 1, 2)), (0..24, 4..8));
    // biases of down: on every rank, or of the rank's experts
    assert_eq!((weight(&slices, 3).outputs, weight(&whole, 3).outputs), (8 * 32, 4 * 32));
    assert_eq!(kinds(&whole), [Kind::AllReduce]);
    let (sent, _) = plan(1, 4, 4);
    assert_eq!(weight(&sent, 1).outputs, 2 * 32);
    assert_eq!(kinds(&sent), [Kind::Dispatch, Kind::Combine]);
    assert!(sent.operations.iter().all(|o| o.module != Module::Attn || o.lane == Lane::Compute));
    // the shared experts' work is beside the dispatch
    let [dispatch, shared, experts] =
        ["dispatch", "shared_down", "experts"].map(|name| sent.find(&format!("L1/moe/{name}")).unwrap());
    assert!(!sent.happens_before(dispatch, shared) && sent.happens_before(dispatch, experts));
}

#[test]
fn experts_cost_what_tokens_choose() {
    let mut spec = moe("standard", 2, experts());
    let of = |spec: &PlanSpec| {
        let plan = Plan::new(spec).unwrap();
        plan.operations[plan.find("L1/moe/experts").unwrap().index()].cost
    };
    let (step, load) = (Step::decode(3, 10, 0), ExpertLoad::Balanced);
    let slices = of(&spec);
    // 3 tokens choose 2 of 8 experts each: 6 slices of 3 x 32 x 12 numbers
    assert_eq!(slices.read(&step, &load) - slices.bytes_read.at(&step) as f64, 6.0 * 2.0 * 1152.0);
    assert_eq!(slices.flops.at(&step), 3 * 2 * (6 * 32 * 12 + 5 * 12 + 2 * 32));
    spec.variant.ep = 2;
    let whole = of(&spec);
    // half of the choices on each rank, of whole experts: as many bytes
    assert_eq!(whole.read(&step, &load) - whole.bytes_read.at(&step) as f64, 3.0 * 2.0 * 2304.0);
    // with data parallelism the tokens of all ranks reach a rank's experts
    (spec.tp, spec.variant.ep, spec.variant.dp) = (1, 4, 4);
    let sent = of(&spec);
    let routed = sent.routed.unwrap();
    assert_eq!((routed.touched(3, &load), routed.expert_bytes), (2.0, 2 * 2304));
    // mxfp4 quantizes experts alone
    (spec.precision, spec.shape.hidden) = (Precision::gpu(DType::Mxfp4), 32);
    let plan = Plan::new(&spec).unwrap();
    let router = &plan.weights.iter().find(|w| w.name == "L1/moe/router").unwrap();
    let down = &plan.weights.iter().find(|w| w.name == "L1/moe/experts/down").unwrap();
    let qkv = &plan.weights.iter().find(|w| w.name == "L1/attn/qkv").unwrap();
    let format = |weight: &Weight| spec.precision.of_weight(weight, &spec.shape);
    assert_eq!([router, down, qkv].map(|w| format(w)), [DType::Bf16, DType::Mxfp4, DType::Bf16]);
}

#[test]
fn experts_that_cannot_be_divided_and_routers_that_would_disagree_are_refused() {
    let refused = |architecture: &str, tp: u32, ep: u32, dp: u32| {
        let mut spec = moe(architecture, tp, experts());
        (spec.variant.ep, spec.variant.dp) = (ep, dp);
        Plan::new(&spec).unwrap_err().to_string()
    };
    assert!(refused("standard", 4, 2, 1).contains("EP 2 must be 1"));
    assert!(refused("standard", 2, 2, 2).contains("DP 2 needs TP 1 and EP 2"));
    assert!(refused("standard", 1, 3, 3).contains("EP 3 does not divide 8 experts (8 mod 3 = 2)"));
    let mut wide = moe("standard", 2, ExpertShape { width: 25, ..experts() });
    let problem = Plan::new(&wide).unwrap_err().to_string();
    assert!(problem.contains("25 columns of an expert") && problem.contains("--ep 2"), "{problem}");
    wide.variant.ep = 2;
    assert!(Plan::new(&wide).is_ok());
    for diverges in ["desync:2", "kraken", "sync-drop", "tracks:1", "partial:0.5", "delayed:1"] {
        let problem = refused(diverges, 2, 1, 1);
        assert!(problem.contains(diverges) && problem.contains("routers"), "{problem}");
    }
    let mut dense = spec(&Architecture::Standard, 2, 2, Phase::Decode);
    dense.variant.ep = 2;
    assert!(Plan::new(&dense).unwrap_err().to_string().contains("this model is dense"));
}

#[test]
fn kv_heads_are_copied_to_more_ranks_than_there_are() {
    let mut spec = spec(&Architecture::Standard, 2, 8, Phase::Decode);
    let plan = Plan::new(&spec).unwrap();
    let qkv = &plan.weights
        [plan.operations[plan.find("L0/attn/qkv").unwrap().index()].weight.unwrap().index()];
    // 1 query head, and the key and value head that it shares with another rank
    assert_eq!(qkv.outputs, 3 * 8);
    let rows = |rank: u32| qkv.parts[1].slice(&spec.shape, rank, 8).0;
    assert_eq!([0, 1, 2, 7].map(rows), [0..8, 0..8, 8..16, 24..32]);
    let step = Step::decode(1, 10, 0);
    let read = |plan: &Plan| {
        plan.operations[plan.find("L0/attn/attend").unwrap().index()].cost.bytes_read.at(&step)
    };
    assert_eq!(read(&plan), 2 * 8 + 11 * 2 * 8 * 2);
    spec.shape.kv_heads = 6;
    spec.shape.heads = 24;
    let problem = Plan::new(&spec).unwrap_err().to_string();
    assert_eq!(problem, "TP 8 does not divide 6 KV heads (6 mod 8 = 6)");
}

#[test]
fn a_window_limits_what_attention_reads() {
    let mut spec = spec(&Architecture::Standard, 4, 1, Phase::Decode);
    spec.shape.attention.window = Some(AttentionWindow { tokens: 16, full_every: 2, is_chunked: false });
    spec.shape.attention.sinks = true;
    let plan = Plan::new(&spec).unwrap();
    let cost =
        |layer: u32| plan.operations[plan.find(&format!("L{layer}/attn/attend")).unwrap().index()].cost;
    let bytes = |layer: u32, context: u64| {
        cost(layer).bytes_read.at(&Step { sequences: 1, new_tokens: 1, context }) - 2 * 64 - 2 * 8
    };
    for context in [8, 16, 100] {
        let tokens = context.min(16);
        assert_eq!((bytes(0, context), bytes(1, context)), (tokens * 2 * 32 * 2, context * 2 * 32 * 2));
    }
    // pairs within the window, counted one by one
    for (new, context) in [(40u64, 40u64), (10, 30), (10, 12), (1, 5)] {
        let step = Step { sequences: 2, new_tokens: new, context };
        let pairs: u64 = (0..new).map(|i| (context - new + i + 1).min(16)).sum();
        assert_eq!(cost(0).flops.at(&step), 2 * pairs * 8 * (4 * 8 + 5), "{new} of {context}");
    }
}

#[test]
fn latent_attention_caches_one_latent_for_all_heads() {
    let latent = Latent {
        q_rank: Some(24),
        kv_rank: 20,
        nope_dim: 8,
        rope_dim: 4,
        value_dim: 10,
        is_gated: false,
    };
    for (latent, kinds) in [
        (
            latent,
            ["norm", "matmul", "norm", "matmul", "matmul", "latent_append", "latent_attend", "matmul"]
                .as_slice(),
        ),
        (
            Latent { q_rank: None, is_gated: true, ..latent },
            &[
                "norm",
                "matmul",
                "matmul",
                "latent_append",
                "latent_attend",
                "matmul",
                "sigmoid_mul",
                "matmul",
            ],
        ),
    ] {
        let mut spec = spec(&Architecture::Standard, 2, 4, Phase::Decode);
        spec.shape.attention.latent = Some(latent);
        let plan = Plan::new(&spec).unwrap();
        let own = plan
            .operations
            .iter()
            .filter(|o| (o.module, o.layer, o.lane) == (Module::Attn, Some(0), Lane::Compute));
        assert_eq!(own.map(|o| o.kind.as_str()).collect::<Vec<_>>(), kinds);
        let attend = plan.operations[plan.find("L0/attn/attend").unwrap().index()].clone();
        let step = Step::decode(1, 10, 0);
        // 2 heads a rank: queries of 12, the new latent of 24, up projections, and 11 cached tokens of 24
        let up = 2 * (8 + 10) * 20;
        assert_eq!(attend.cost.bytes_read.at(&step), 2 * (2 * 12 + 24 + up + 11 * 24));
        assert_eq!(plan.values[attend.writes[0].index()].columns, 2 * 10);
        assert_eq!(spec.shape.cached_columns(4), 24);
    }
}

/// Parameters follow from the published dimensions of gpt-oss-120b (116.8e9) without router biases.
#[test]
fn parameters_of_mixtures_are_counted() {
    let mut shape = spec(&Architecture::Standard, 36, 1, Phase::Decode).shape;
    (shape.hidden, shape.heads, shape.kv_heads, shape.head_dim) = (2880, 64, 8, 64);
    (shape.vocab, shape.intermediate) = (201_088, 2880);
    shape.experts = Some(ExpertShape { count: 128, top_k: 4, width: 2880, ..experts() });
    let billions = shape.parameters() as f64 / 1e9;
    assert!((billions - 116.8).abs() < 0.1, "{billions}");
}
