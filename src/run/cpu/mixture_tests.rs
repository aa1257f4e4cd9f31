//! Mixtures of experts, windows, sinks and latent attention on the cpu backend, against the independent forward pass.

use super::evaluate_tests;
use super::run::generate;
use super::tests::{PROMPT, Reference, agrees, request, tiny};
use crate::GenerateRequest;
use model::Model;
use plan::{
    AttentionShape, AttentionWindow, DType, ExpertActivation, ExpertShape, HeadStep, Latent, ModelShape,
    Rope, RouterBias, RouterScore, Routing, Temperature, Tensor, Variant, Yarn,
};

/// Rows of each rank.
type Streams = Vec<Vec<Vec<f64>>>;

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Indices of the `count` largest numbers, best first.
fn best(numbers: &[f64], count: usize) -> Vec<usize> {
    let mut left: Vec<usize> = (0..numbers.len()).collect();
    left.sort_by(|a, b| numbers[*b].partial_cmp(&numbers[*a]).unwrap());
    left.truncate(count);
    left
}

fn softmax(numbers: &[f64]) -> Vec<f64> {
    let total: f64 = numbers.iter().map(|x| x.exp()).sum();
    numbers.iter().map(|x| x.exp() / total).collect()
}

impl Reference<'_> {
    /// Shared experts, or zeros: a partial output of each rank.
    pub(super) fn shared(&self, layer: u32, inputs: &[Vec<Vec<f64>>]) -> Streams {
        match self.shape.experts_of(layer).map_or(0, |experts| experts.shared_width) {
            0 => inputs.iter().map(|x| vec![vec![0.0; self.shape.hidden as usize]; x.len()]).collect(),
            _ => {
                let tensors =
                    [Tensor::SharedGate(layer), Tensor::SharedUp(layer), Tensor::SharedDown(layer)];
                self.gated(tensors, inputs)
            }
        }
    }

    /// Experts of a row and their weights, as the model's authors write the rule.
    fn choice(&self, layer: u32, x: &[f64]) -> Vec<(usize, f64)> {
        let of = self.shape.experts_of(layer).unwrap();
        let (k, rule) = (of.top_k as usize, &of.routing);
        let bias = || match rule.bias {
            RouterBias::None => vec![0.0; of.count as usize],
            _ => self.tensor(Tensor::RouterBias(layer)).data,
        };
        let z = self.tensor(Tensor::Router(layer)).times(x);
        let weighed = |of: &[f64], chosen: Vec<usize>| -> Vec<(usize, f64)> {
            let sum = if rule.renormalise { chosen.iter().map(|e| of[*e]).sum() } else { 1.0 };
            chosen.into_iter().map(|expert| (expert, rule.scale * of[expert] / sum)).collect()
        };
        // scores with those outside the kept groups at the bottom; a group counts as its `most` largest together
        let masked = |scores: &[f64], most: usize| -> Vec<f64> {
            let each = of.count as usize / rule.groups as usize;
            let of_groups: Vec<f64> = scores
                .chunks(each)
                .map(|group| best(group, most).into_iter().map(|at| group[at]).sum())
                .collect();
            let kept = best(&of_groups, rule.kept_groups as usize);
            let mask =
                |(expert, s): (usize, &f64)| if kept.contains(&(expert / each)) { *s } else { f64::MIN };
            scores.iter().enumerate().map(mask).collect()
        };
        match rule.score {
            RouterScore::Softmax => {
                let p = softmax(&z);
                weighed(&p, best(&masked(&p, 1), k))
            }
            RouterScore::SoftmaxChosen => {
                let z: Vec<f64> = z.iter().zip(bias()).map(|(z, b)| z + b).collect();
                let chosen = best(&z, k);
                let weights = softmax(&chosen.iter().map(|expert| z[*expert]).collect::<Vec<_>>());
                chosen.into_iter().zip(weights).collect()
            }
            RouterScore::Sigmoid => {
                let s: Vec<f64> = z.iter().map(|z| 1.0 / (1.0 + (-z).exp())).collect();
                let corrected: Vec<f64> = s.iter().zip(bias()).map(|(s, b)| s + b).collect();
                weighed(&s, best(&masked(&corrected, 2), k))
            }
        }
    }

    /// Routed experts: a partial output of each rank, of its columns of every expert or of its own experts.
    pub(super) fn routed(&self, layer: u32, inputs: &[Vec<Vec<f64>>]) -> Streams {
        let of = self.shape.experts_of(layer).unwrap();
        let (hidden, width, count) = (self.shape.hidden as usize, of.width as usize, of.count as usize);
        let [gate, up, down] =
            [Tensor::ExpertGate(layer), Tensor::ExpertUp(layer), Tensor::ExpertDown(layer)]
                .map(|tensor| self.tensor(tensor).data);
        let biases =
            [Tensor::ExpertGateBias(layer), Tensor::ExpertUpBias(layer), Tensor::ExpertDownBias(layer)];
        let [gate_bias, up_bias, down_bias] =
            biases.map(|tensor| if of.biased { self.tensor(tensor).data } else { Vec::new() });
        let bias = |all: &[f64], at: usize| all.get(at).copied().unwrap_or(0.0);
        let is_divided = self.ep == 1;
        let output = |rank: usize, x: &Vec<f64>| {
            let mut out = vec![0.0; hidden];
            for (expert, weight) in self.choice(layer, x) {
                let columns = if is_divided {
                    rank * width / self.tp..(rank + 1) * width / self.tp
                } else if expert * self.ep / count == rank {
                    0..width
                } else {
                    continue;
                };
                let (factor, weight) =
                    if of.routing.weighs_input { (weight, 1.0) } else { (1.0, weight) };
                let x: Vec<f64> = x.iter().map(|x| factor * x).collect();
                for column in columns {
                    let row = expert * width + column;
                    let x = &x[..];
                    let g = dot(&gate[row * hidden..][..hidden], x) + bias(&gate_bias, row);
                    let u = dot(&up[row * hidden..][..hidden], x) + bias(&up_bias, row);
                    let active = match of.activation {
                        ExpertActivation::Silu => g / (1.0 + (-g).exp()) * u,
                        ExpertActivation::Clamped => {
                            let g = g.min(7.0);
                            (u.clamp(-7.0, 7.0) + 1.0) * g / (1.0 + (-1.702 * g).exp())
                        }
                    };
                    for (at, out) in out.iter_mut().enumerate() {
                        *out += weight * active * down[(expert * hidden + at) * width + column];
                    }
                }
                if !is_divided || rank == 0 {
                    for (at, out) in out.iter_mut().enumerate() {
                        *out += weight * bias(&down_bias, expert * hidden + at);
                    }
                }
            }
            out
        };
        let of_rank = |rank: usize| inputs[rank].iter().map(|x| output(rank, x)).collect();
        (0..self.tp).map(of_rank).collect()
    }

    /// Latent attention with keys and values of every head, nothing absorbed.
    pub(super) fn latent_attention(
        &self,
        layer: u32,
        latent: Latent,
        inputs: &[Vec<Vec<f64>>],
    ) -> Streams {
        let [nope, rope, value, rank] =
            [latent.nope_dim, latent.rope_dim, latent.value_dim, latent.kv_rank].map(|n| n as usize);
        let heads = self.shape.heads as usize;
        let product = |tensor: Tensor, x: &[f64]| self.tensor(tensor).times(x);
        let (yarn, frequencies) = (self.shape.rope.yarn, self.shape.rope.frequencies(latent.rope_dim));
        let rotated = |x: &[f64], position: usize| -> Vec<f64> {
            let scale = yarn.map_or(1.0, |yarn| yarn.rotated_scale);
            let mut y = x.to_vec();
            for (i, f) in frequencies.iter().enumerate() {
                let (sin, cos) = (position as f64 * f).sin_cos();
                y[i] = scale * (x[i] * cos - x[i + rope / 2] * sin);
                y[i + rope / 2] = scale * (x[i + rope / 2] * cos + x[i] * sin);
            }
            y
        };
        let scale = yarn.map_or(1.0, |yarn| yarn.score_scale) / ((nope + rope) as f64).sqrt();
        let o = self.tensor(Tensor::Output(layer));
        let of_rank = |index: usize| {
            let x = &inputs[index];
            let queries: Vec<Vec<f64>> = x
                .iter()
                .map(|x| match latent.q_rank {
                    Some(_) => {
                        let down = product(Tensor::QueryDown(layer), x);
                        product(Tensor::Query(layer), &self.norm(&down, Tensor::QueryLatentNorm(layer)))
                    }
                    None => product(Tensor::Query(layer), x),
                })
                .collect();
            let down: Vec<Vec<f64>> =
                x.iter().map(|x| product(Tensor::KeyValueDown(layer), x)).collect();
            let up: Vec<Vec<f64>> = down
                .iter()
                .map(|down| {
                    let normed = self.norm(&down[..rank], Tensor::LatentNorm(layer));
                    product(Tensor::KeyValueUp(layer), &normed)
                })
                .collect();
            let gates: Vec<Vec<f64>> = match latent.is_gated {
                true => x.iter().map(|x| product(Tensor::AttentionGate(layer), x)).collect(),
                false => Vec::new(),
            };
            let mut out = vec![vec![0.0; self.shape.hidden as usize]; x.len()];
            for head in index * heads / self.tp..(index + 1) * heads / self.tp {
                for at in 0..x.len() {
                    let query = &queries[at][head * (nope + rope)..][..nope + rope];
                    let turned = rotated(&query[nope..], at);
                    let scores: Vec<f64> = (0..=at)
                        .map(|p| {
                            let key = &up[p][head * (nope + value)..][..nope];
                            scale
                                * (dot(&query[..nope], key)
                                    + dot(&turned, &rotated(&down[p][rank..], p)))
                        })
                        .collect();
                    let weights = softmax(&scores);
                    for column in 0..value {
                        let from = |p: usize| up[p][head * (nope + value) + nope + column];
                        let mut mixed: f64 = weights.iter().enumerate().map(|(p, w)| w * from(p)).sum();
                        if let Some(gates) = gates.get(at) {
                            mixed /= 1.0 + (-gates[head * value + column]).exp();
                        }
                        for (row, out) in out[at].iter_mut().enumerate() {
                            *out += o.data[row * o.columns + head * value + column] * mixed;
                        }
                    }
                }
            }
            out
        };
        (0..self.tp).map(of_rank).collect()
    }
}

fn experts(score: RouterScore, change: impl FnOnce(&mut ExpertShape)) -> Option<ExpertShape> {
    let mut experts = ExpertShape::plain(8, 2, 32, Routing::plain(score, true));
    change(&mut experts);
    Some(experts)
}

fn model(name: &str, change: impl FnOnce(&mut ModelShape)) -> Model {
    let mut model = tiny();
    model.name = name.into();
    model.shape.layers = 3;
    change(&mut model.shape);
    model
}

const YARN: Yarn = Yarn {
    factor: 8.0,
    beta_fast: 4.0,
    beta_slow: 1.0,
    original_context: 16.0,
    truncate: false,
    rotated_scale: 1.2,
    score_scale: 1.0,
};

/// Shapes like Mixtral's, Qwen3-MoE's, gpt-oss', DeepSeek-V3's, Instella-MoE's and Llama 4's (Scout and Maverick), in
/// miniature.
fn models() -> [Model; 7] {
    let deepseek = |experts: &mut ExpertShape| {
        (experts.shared_width, experts.dense_first, experts.top_k) = (32, 1, 3);
        experts.routing = Routing {
            bias: RouterBias::Choice,
            scale: 2.5,
            groups: 4,
            kept_groups: 2,
            ..experts.routing
        };
    };
    let llama4 = |shape: &mut ModelShape, every: u32| {
        let window = Some(AttentionWindow { tokens: 3, full_every: 3, is_chunked: true });
        let temperature = Some(Temperature { every: 2.0, scale: 0.4 });
        shape.attention = AttentionShape { window, temperature, ..AttentionShape::default() };
        shape.experts = experts(RouterScore::Sigmoid, |experts| {
            (experts.dense_first, experts.every) = (every - 1, every);
            (experts.shared_width, experts.top_k) = (32, 1);
            (experts.routing.renormalise, experts.routing.weighs_input) = (false, true);
        });
    };
    let latent = Latent {
        q_rank: Some(24),
        kv_rank: 32,
        nope_dim: 16,
        rope_dim: 8,
        value_dim: 12,
        is_gated: false,
    };
    [
        model("mixtral", |shape| shape.experts = experts(RouterScore::Softmax, |_| ())),
        model("qwen3-moe", |shape| {
            shape.qkv = HeadStep::Normed;
            shape.experts = experts(RouterScore::Softmax, |experts| {
                (experts.dense_first, experts.routing.renormalise) = (1, false);
            });
        }),
        model("gpt-oss", |shape| {
            shape.qkv = HeadStep::Biased;
            shape.rope = Rope { yarn: Some(YARN), ..Rope::plain(150_000.0) };
            let window = Some(AttentionWindow { tokens: 4, full_every: 2, is_chunked: false });
            shape.attention =
                AttentionShape { output_bias: true, sinks: true, window, ..AttentionShape::default() };
            shape.experts = experts(RouterScore::SoftmaxChosen, |experts| {
                (experts.biased, experts.activation) = (true, ExpertActivation::Clamped);
                experts.routing.bias = RouterBias::Logits;
            });
        }),
        model("deepseek", |shape| {
            shape.rope.yarn = Some(Yarn { score_scale: 1.3, rotated_scale: 1.0, ..YARN });
            shape.attention.latent = Some(latent);
            shape.head_dim = latent.query_dim();
            shape.experts = experts(RouterScore::Sigmoid, deepseek);
        }),
        model("instella", |shape| {
            let latent = Latent { q_rank: None, is_gated: true, ..latent };
            shape.attention.latent = Some(latent);
            shape.head_dim = latent.query_dim();
            shape.experts = experts(RouterScore::Sigmoid, |experts| {
                deepseek(experts);
                (experts.routing.groups, experts.routing.kept_groups) = (1, 1);
            });
        }),
        model("scout", |shape| {
            shape.qkv = HeadStep::UnitNormed;
            llama4(shape, 1);
        }),
        model("maverick", |shape| llama4(shape, 2)),
    ]
}

/// Wirings whose ranks hold the same residual, and the limit.
const WIRINGS: [&str; 11] = [
    "standard",
    "ladder",
    "ladder:2",
    "ladder:[1+2]",
    "stale:2",
    "parallel",
    "parallel+ladder",
    "farskip",
    "farskip:1",
    "farskip:[0+2]",
    "upper-bound",
];

fn asked(model: &Model, architecture: &str, tp: u32, ep: u32) -> GenerateRequest {
    let variant = Variant { ep, ..Variant::default() };
    let prompts = vec![PROMPT.to_vec()];
    GenerateRequest { model: model.clone(), variant, ..request(architecture, tp, prompts) }
}

#[test]
fn every_mixture_agrees_with_an_independent_forward_pass() {
    for model in models() {
        for architecture in WIRINGS {
            for (tp, ep) in [(1, 1), (2, 1), (4, 1), (2, 2), (4, 4)] {
                agrees(&asked(&model, architecture, tp, ep));
            }
        }
    }
}

#[test]
fn quantised_experts_agree_with_an_independent_forward_pass_of_the_same_numbers() {
    for model in models() {
        for (dtype, tp, ep) in [
            (DType::Fp8, 1, 1),
            (DType::Fp8, 2, 1),
            (DType::Fp8, 4, 4),
            (DType::Mxfp4, 1, 1),
            (DType::Mxfp4, 2, 2),
            (DType::Mxfp4, 4, 4),
        ] {
            agrees(&GenerateRequest { dtype, ..asked(&model, "ladder", tp, ep) });
        }
        // 16 of an expert's 32 columns on each rank
        let divided = GenerateRequest { dtype: DType::Mxfp4, ..asked(&model, "ladder", 2, 1) };
        let error = generate(&divided, &mut |_| ()).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains("16 mod 32"), "{error}");
    }
}

/// 2880 inputs of a slice on TP 4 are 720 a rank, which are no whole blocks of 32.
#[test]
fn checkpoints_in_mxfp4_stay_packed_where_ranks_hold_whole_blocks() {
    let model = Model { dtype: Some(DType::Mxfp4), ..Model::resolve("gpt-oss-20b").unwrap() };
    for (tp, ep, dtype) in [(1, 1, DType::Mxfp4), (4, 1, DType::Bf16), (4, 4, DType::Mxfp4)] {
        let backend = crate::backend(table::Backend::Cpu).unwrap();
        assert_eq!(backend.generation_dtype(&model, tp, ep), dtype, "TP {tp} EP {ep}");
    }
}

#[test]
fn more_ranks_than_kv_heads_hold_copies() {
    let [mut mixtral, _, _, deepseek, ..] = models();
    mixtral.shape.kv_heads = 2;
    for (tp, ep) in [(4, 1), (8, 8)] {
        agrees(&asked(&mixtral, "ladder", tp, ep));
        agrees(&asked(&deepseek, "standard", tp, ep));
    }
}

/// Long prompts take the path of matrix products, with windows that start within a block.
#[test]
fn long_prompts_and_batches_give_what_tokens_one_by_one_give() {
    for model in models() {
        let prompts = vec![(0..90).map(|i| i * 7 % 256).collect(), vec![5], PROMPT.to_vec()];
        let together = GenerateRequest { prompts: prompts.clone(), ..asked(&model, "farskip", 2, 2) };
        let together = generate(&together, &mut |_| ()).unwrap();
        for (at, prompt) in prompts.into_iter().enumerate() {
            let alone = GenerateRequest { prompts: vec![prompt], ..asked(&model, "farskip", 2, 2) };
            let alone = generate(&alone, &mut |_| ()).unwrap();
            assert_eq!(together.tokens[at], alone.tokens[0], "{}", model.name);
        }
        let mut long = asked(&model, "standard", 1, 1);
        long.prompts = vec![(0..90).map(|i| i * 7 % 256).collect()];
        agrees(&long);
    }
}

/// An evaluation of many wirings on the same weights gives what generations of each give.
#[test]
fn evaluations_give_what_generations_give() {
    let wirings: Vec<&str> = WIRINGS.into_iter().filter(|wiring| *wiring != "upper-bound").collect();
    for model in models() {
        let evaluation = evaluate_tests::asked(model.clone(), &wirings, 2, 1);
        let found = evaluate_tests::results(&evaluation);
        assert_eq!(found.len(), wirings.len());
        for (which, wiring) in wirings.iter().enumerate() {
            let one = found.iter().find(|one| one.architecture == which).unwrap();
            let mut alone = asked(&model, wiring, 2, 2);
            alone.prompts = vec![evaluation.windows[0].tokens.clone()];
            let nll = generate(&alone, &mut |_| ()).unwrap().nll[0].unwrap();
            let mean = one.quality.nll / f64::from(one.quality.predicted);
            assert!((mean - nll).abs() < 1e-4, "{} {wiring}: {mean}, not {nll}", model.name);
        }
    }
}

#[test]
fn impossible_divisions_are_explained() {
    let error = |model: &Model, architecture: &str, tp, ep| {
        generate(&asked(model, architecture, tp, ep), &mut |_| ()).unwrap_err().to_string()
    };
    let [mut mixtral, ..] = models();
    assert!(error(&mixtral, "standard", 4, 2).contains("EP 2"));
    assert!(error(&mixtral, "desync:2", 2, 1).contains("desync:2 needs a dense model"));
    assert!(error(&tiny(), "standard", 2, 2).contains("this model is dense"));
    if let Some(experts) = &mut mixtral.shape.experts {
        experts.count = 6;
    }
    assert!(error(&mixtral, "standard", 4, 4).contains("EP 4 does not divide 6 experts"));
}
