//! Gradients against PyTorch's autograd (`tests/gradients/golden.py`) and against finite differences, in f64, for every
//! architecture on one rank and on two.

use arithmetic::Real;
use proptest::prelude::*;
use serde::Deserialize;

use super::trainer::{Optimiser, Trainer, TrainerSetup, assemble};
use base::error::Result;
use model::{Model, WeightSource};
use plan::testing::ARCHITECTURES;
use plan::{
    Architecture, AttentionShape, DType, ExpertShape, HeadStep, ModelShape, Rope, RouterScore, Routing,
    Tensor, Weight,
};

/// What the script wrote.
#[derive(Deserialize)]
struct Golden {
    seed: u64,
    windows: Vec<Vec<u32>>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    architecture: String,
    tp: u32,
    qkv: HeadStep,
    tied: bool,
    distil: Option<f64>,
    nll: f64,
    kl: f64,
    /// By tensor the projections of its gradient on sines and cosines of the index.
    gradients: std::collections::BTreeMap<String, [f64; 2]>,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("../../../../tests/gradients/golden.json")).unwrap()
}

fn shape(qkv: HeadStep, tied: bool) -> ModelShape {
    ModelShape {
        layers: 3,
        hidden: 16,
        heads: 4,
        kv_heads: 2,
        head_dim: 6,
        qkv,
        intermediate: 20,
        vocab: 30,
        rope: Rope::plain(10000.0),
        norm_eps: 1e-5,
        tied_embeddings: tied,
        attention: AttentionShape::default(),
        experts: None,
    }
}

/// A rank's slices of random weights.
fn random<T: Real>(
    shape: &ModelShape,
    seed: u64,
) -> impl Fn(&Weight, u32, u32) -> Result<Vec<T>> + use<T> {
    let model = Model { shape: shape.clone(), ..Model::resolve("tiny").unwrap() };
    let source = WeightSource::open(&model, seed).unwrap();
    move |weight, rank, tp| {
        let matrix = source.load(weight, rank, tp, DType::F32)?;
        Ok(matrix.numbers().iter().map(|number| T::from_f64(f64::from(*number))).collect())
    }
}

fn trainer<T: Real>(
    architecture: &str,
    tp: u32,
    shape: &ModelShape,
    distil: Option<f64>,
    (replicas, context): (usize, usize),
) -> Trainer<T> {
    let architecture: Architecture = architecture.parse().unwrap();
    let trains = &|_: Tensor| true;
    let setup =
        TrainerSetup { shape, architecture: &architecture, trains, tp, replicas, context, distil };
    let load = random::<T>(shape, golden().seed);
    Trainer::new(setup, &|weight, rank| load(weight, rank, tp)).unwrap()
}

/// A tensor's gradient, as the trainer's ranks have it together.
fn gradient<T: Real>(trainer: &Trainer<T>, tensor: Tensor) -> Option<Vec<T>> {
    let of_rank = |rank: usize| -> Vec<Vec<T>> {
        let parameters = 0..trainer.program.parameters.len();
        parameters.map(|at| trainer.gradient(rank, at).to_vec()).collect()
    };
    let ranks: Vec<Vec<Vec<T>>> = (0..trainer.weights.len()).map(of_rank).collect();
    let ranks: Vec<&[Vec<T>]> = ranks.iter().map(Vec::as_slice).collect();
    assemble(&trainer.program, &ranks, tensor)
}

fn windows(all: &[Vec<u32>]) -> Vec<&[u32]> {
    all.iter().map(Vec::as_slice).collect()
}

#[test]
fn losses_and_gradients_are_those_of_pytorch() {
    let golden = golden();
    assert_eq!(golden.cases.len(), 31);
    for case in &golden.cases {
        let label = format!("{} tp {} {:?} tied {}", case.architecture, case.tp, case.qkv, case.tied);
        let shape = shape(case.qkv, case.tied);
        let mut trainer = trainer::<f64>(&case.architecture, case.tp, &shape, case.distil, (2, 7));
        let lost = trainer.gradients(&windows(&golden.windows)).unwrap();
        let close = |found: f64, wanted: f64| (found - wanted).abs() < 1e-8 * (1.0 + wanted.abs());
        let tokens = lost.predicted as f64;
        assert_eq!(lost.predicted, 14);
        assert!(close(lost.nll / tokens, case.nll), "{label}: nll {} {}", lost.nll / tokens, case.nll);
        assert!(close(lost.kl / tokens, case.kl), "{label}: kl {} {}", lost.kl / tokens, case.kl);
        let mut seen = 0;
        for tensor in Tensor::all(&shape) {
            let Some(wanted) = case.gradients.get(&tensor.hf_name()) else { continue };
            let found = gradient(&trainer, tensor).unwrap();
            let project = |of: fn(f64) -> f64| {
                found.iter().enumerate().map(|(at, g)| g * of(at as f64 + 1.0)).sum::<f64>()
            };
            let found = [project(f64::sin), project(|n| (2.0 * n).cos())];
            for (found, wanted) in found.into_iter().zip(wanted) {
                assert!(close(found, *wanted), "{label}: {}: {found} {wanted}", tensor.hf_name());
            }
            seen += 1;
        }
        assert_eq!(seen, case.gradients.len(), "{label}");
    }
}

/// The loss that is trained on.
fn loss(trainer: &mut Trainer<f64>, windows: &[&[u32]], distil: Option<f64>) -> f64 {
    let lost = trainer.loss(windows).unwrap();
    (lost.nll + distil.unwrap_or(0.0) * lost.kl) / lost.predicted as f64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Each parameter is moved by itself along a random direction.
    #[test]
    fn gradients_are_what_the_loss_changes_by(
        architecture in prop::sample::select(&ARCHITECTURES[..]).prop_filter("trainable", |a| *a != "upper-bound"),
        tp in 1u32..3, qkv in prop::sample::select(vec![HeadStep::Plain, HeadStep::Biased, HeadStep::Normed]),
        tied: bool, distil in prop::option::of(0.2f64..2.0), length in 2usize..9, seed: u64,
    ) {
        changes_as_its_gradients_say(architecture, tp, &shape(qkv, tied), distil, (length, seed));
    }
}

/// Moves each parameter along a random direction, and compares the loss's change with its gradient.
fn changes_as_its_gradients_say(
    architecture: &str,
    tp: u32,
    shape: &ModelShape,
    distil: Option<f64>,
    (length, seed): (usize, u64),
) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let all: Vec<Vec<u32>> = (0..2).map(|_| (0..=length).map(|_| rng.u32(0..30)).collect()).collect();
    let windows = windows(&all);
    let mut trainer = trainer::<f64>(architecture, tp, shape, distil, (1, length));
    trainer.gradients(&windows).unwrap();
    for at in 0..trainer.program.parameters.len() {
        let ranks = 0..trainer.weights.len();
        let is_whole = trainer.program.weight(at).is_whole();
        let direction: Vec<f64> = (0..trainer.program.numbers(at)).map(|_| rng.f64() - 0.5).collect();
        // a parameter that ranks share moves on all of them, and has one gradient
        let moved: Vec<usize> = if is_whole { ranks.collect() } else { vec![rng.usize(ranks)] };
        let expected: f64 =
            trainer.gradient(moved[0], at).iter().zip(&direction).map(|(g, d)| g * d).sum();
        let mut at_distance = |distance: f64| {
            for rank in &moved {
                let numbers = trainer.weights[*rank][at].iter_mut().zip(&direction);
                numbers.for_each(|(weight, d)| *weight += distance * d);
            }
            loss(&mut trainer, &windows, distil)
        };
        let h = 1e-5;
        let (up, down) = (at_distance(h), at_distance(-2.0 * h));
        at_distance(h);
        let found = (up - down) / (2.0 * h);
        assert!(
            (found - expected).abs() < 1e-6 * (1.0 + expected.abs()),
            "{architecture} tp {tp} {:?}: {}: {found} {expected}",
            shape.qkv,
            trainer.program.weight(at).name
        );
    }
}

fn mixture(score: RouterScore, renormalise: bool, shared_width: u32) -> ModelShape {
    let routing = Routing { scale: 1.5, ..Routing::plain(score, renormalise) };
    let experts = ExpertShape { shared_width, dense_first: 1, ..ExpertShape::plain(4, 2, 12, routing) };
    ModelShape { experts: Some(experts), ..shape(HeadStep::Normed, false) }
}

/// Seeds are fixed: a step that changes a choice has no gradient.
#[test]
fn gradients_of_mixtures_are_what_the_loss_changes_by() {
    let shapes = [
        mixture(RouterScore::Softmax, true, 0),
        mixture(RouterScore::Softmax, false, 8),
        mixture(RouterScore::Sigmoid, true, 8),
        mixture(RouterScore::SoftmaxChosen, true, 8),
    ];
    for (seed, shape) in shapes.iter().enumerate() {
        for architecture in ["standard", "ladder", "farskip", "farskip:1", "parallel", "stale:2"] {
            for tp in [1, 2] {
                let distil = (tp == 2).then_some(0.5);
                changes_as_its_gradients_say(architecture, tp, shape, distil, (6, seed as u64));
            }
        }
    }
}

/// One rank and two, one replica and three: the same gradients up to rounding, and the same bits each time.
#[test]
fn gradients_do_not_depend_on_ranks_or_replicas() {
    let dense = shape(HeadStep::Normed, false);
    let mixture = mixture(RouterScore::Sigmoid, true, 8);
    let mut rng = fastrand::Rng::with_seed(5);
    let all: Vec<Vec<u32>> = (0..5).map(|_| (0..9).map(|_| rng.u32(0..30)).collect()).collect();
    let wirings = ["standard", "ladder", "parallel", "parallel+ladder", "stale:2", "farskip"];
    for (architecture, shape) in wirings.into_iter().flat_map(|w| [(w, &dense), (w, &mixture)]) {
        let of = |tp, replicas| {
            let mut trainer = trainer::<f32>(architecture, tp, shape, Some(0.5), (replicas, 8));
            trainer.gradients(&windows(&all)).unwrap();
            let all = Tensor::all(shape).into_iter();
            all.filter_map(|tensor| gradient(&trainer, tensor)).flatten().collect::<Vec<f32>>()
        };
        let one = of(1, 1);
        for (tp, replicas) in [(2, 1), (1, 3), (2, 2)] {
            let other = of(tp, replicas);
            assert_eq!(other, of(tp, replicas), "{architecture}: the same bits");
            for (a, b) in one.iter().zip(&other) {
                assert!((a - b).abs() < 1e-5 * (1.0 + a.abs()), "{architecture} tp {tp}: {a} {b}");
            }
        }
    }
}

#[test]
fn a_text_is_learned_by_heart_and_a_loss_that_is_no_number_names_the_layer() {
    let shape = shape(HeadStep::Plain, true);
    let mut rng = fastrand::Rng::with_seed(1);
    let all: Vec<Vec<u32>> = (0..2).map(|_| (0..9).map(|_| rng.u32(0..30)).collect()).collect();
    let windows = windows(&all);
    let optimiser = Optimiser { lr: 0.02, warmup: 2, weight_decay: 0.01, clip: 1.0 };
    for architecture in
        ["standard", "ladder", "parallel", "desync:2", "delayed:1", "sync-drop", "kraken"]
    {
        let mut trainer = trainer::<f32>(architecture, 2, &shape, None, (1, 8));
        let losses: Vec<f64> = (0..60)
            .map(|step| trainer.step(&windows, &optimiser, step, 60).unwrap().lost.nll / 16.0)
            .collect();
        assert!(losses[0] > 2.0 && losses[59] < 0.1, "{architecture}: {losses:?}");
        // ranks that share a parameter keep sharing it
        for at in 0..trainer.program.parameters.len() {
            if trainer.program.weight(at).is_whole() {
                assert_eq!(trainer.weights[0][at], trainer.weights[1][at], "{architecture}");
            }
        }
        let at = (0..trainer.program.parameters.len())
            .find(|at| trainer.program.weight(*at).name.starts_with("L1/"))
            .unwrap();
        let name = trainer.program.weight(at).name.clone();
        trainer.weights.iter_mut().for_each(|rank| rank[at][0] = f32::NAN);
        let error = trainer.step(&windows, &optimiser, 60, 61).unwrap_err().to_string();
        assert!(
            error.contains("step 61: the loss is not finite; L1/"),
            "{architecture} {name}: {error}"
        );
    }
}

#[test]
fn only_what_is_to_be_trained_moves_and_nothing_below_it_is_computed() {
    let shape = shape(HeadStep::Plain, true);
    let architecture: Architecture = "ladder:1".parse().unwrap();
    let trains = &|tensor: Tensor| tensor.layer() == Some(2);
    let setup = TrainerSetup {
        shape: &shape,
        architecture: &architecture,
        trains,
        tp: 2,
        replicas: 1,
        context: 8,
        distil: None,
    };
    let load = random::<f32>(&shape, 3);
    let mut trainer = Trainer::new(setup, &|weight, rank| load(weight, rank, 2)).unwrap();
    let before = trainer.weights.clone();
    let backward = &trainer.program.plan.backward;
    assert!(backward.iter().all(|o| !o.name.starts_with("L0/") && !o.name.starts_with("L1/mlp/down")));
    let window: Vec<u32> = (0..9).collect();
    let optimiser = Optimiser { lr: 0.01, warmup: 0, weight_decay: 0.1, clip: 1.0 };
    trainer.step(&[&window], &optimiser, 0, 10).unwrap();
    for (rank, (before, after)) in before.iter().zip(&trainer.weights).enumerate() {
        for (at, (before, after)) in before.iter().zip(after).enumerate() {
            let name = &trainer.program.weight(at).name;
            assert_eq!(before != after, name.starts_with("L2/"), "rank {rank}: {name}");
        }
    }
}
