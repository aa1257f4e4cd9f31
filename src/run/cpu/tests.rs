//! The cpu backend against an independent forward pass: f64, one token at a time, no plan, no cache
//! layout, no shards but where the architecture is about shards.

use super::run::generate;
use super::run::run;
use crate::{GenerateRequest, Generated, Job, RunEvent};
use model::{Model, WeightSource};
use plan::testing::ARCHITECTURES;
use plan::{
    Architecture, Channels, DType, HeadStep, Lane, ModelShape, Shard, Tensor, Weight, WeightPart,
};
use table::{Backend, Link, Spec};

pub(super) const SEED: u64 = 11;

/// A whole tensor in f64, rows by columns.
pub(super) struct Whole {
    pub columns: usize,
    pub data: Vec<f64>,
}

pub(super) struct Reference<'a> {
    pub shape: &'a ModelShape,
    pub source: &'a WeightSource,
    pub tp: usize,
    /// Ranks among which whole experts are divided, or 1.
    pub ep: usize,
    /// The format of the weights: f32, or fp8 and mxfp4 as the numbers that they stand for.
    pub dtype: DType,
}

impl Reference<'_> {
    pub(super) fn tensor(&self, tensor: Tensor) -> Whole {
        let (outputs, inputs) = tensor.dimensions(self.shape);
        let parts = vec![WeightPart { tensor, shard: Shard::Whole }];
        let weight = Weight { name: tensor.hf_name(), parts, outputs, inputs };
        let matrix = self.source.load(&weight, 0, 1, self.dtype).unwrap();
        let data = matrix.numbers().iter().map(|number| f64::from(*number)).collect();
        Whole { columns: inputs as usize, data }
    }

    pub(super) fn norm(&self, x: &[f64], tensor: Tensor) -> Vec<f64> {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (mean + self.shape.norm_eps).sqrt();
        x.iter().zip(&self.tensor(tensor).data).map(|(x, w)| x * scale * w).collect()
    }

    /// Attention of all positions; `ranks` heads' worth of output, one partial output a rank.
    fn attention(&self, layer: u32, inputs: &[Vec<Vec<f64>>]) -> Vec<Vec<Vec<f64>>> {
        let s = self.shape;
        if let Some(latent) = s.attention.latent {
            return self.latent_attention(layer, latent, inputs);
        }
        let (dim, heads, kv_heads) = (s.head_dim as usize, s.heads as usize, s.kv_heads as usize);
        let [q, k, v, o] =
            [Tensor::Query(layer), Tensor::Key(layer), Tensor::Value(layer), Tensor::Output(layer)]
                .map(|t| self.tensor(t));
        let frequencies = s.rope.frequencies(s.head_dim);
        let scale = s.rope.yarn.map_or(1.0, |yarn| yarn.rotated_scale);
        let window = s.window_of(layer).map_or(usize::MAX, |window| window.tokens as usize);
        // Llama 4 rotates where it attends in chunks
        let chunks = s.attention.window.is_some_and(|window| window.is_chunked);
        let has_rope = !chunks || window < usize::MAX;
        let sinks = s.attention.sinks.then(|| self.tensor(Tensor::Sinks(layer)).data);
        let output_bias = s.attention.output_bias.then(|| self.tensor(Tensor::OutputBias(layer)).data);
        // biases of queries, keys and values, or norms of queries and keys
        let own: Vec<Vec<f64>> = match s.qkv {
            HeadStep::Plain | HeadStep::UnitNormed => vec![],
            HeadStep::Biased => {
                vec![Tensor::QueryBias(layer), Tensor::KeyBias(layer), Tensor::ValueBias(layer)]
            }
            HeadStep::Normed => vec![Tensor::QueryNorm(layer), Tensor::KeyNorm(layer)],
        }
        .into_iter()
        .map(|tensor| self.tensor(tensor).data)
        .collect();
        // `part`: 0 queries, 1 keys, 2 values
        let project =
            |part: usize, w: &Whole, head: usize, x: &[f64], position: Option<usize>| -> Vec<f64> {
                let mut y: Vec<f64> = (0..dim)
                    .map(|i| {
                        let row = &w.data[(head * dim + i) * w.columns..][..w.columns];
                        row.iter().zip(x).map(|(a, b)| a * b).sum()
                    })
                    .collect();
                match s.qkv {
                    HeadStep::Biased => {
                        y.iter_mut().zip(&own[part][head * dim..]).for_each(|(y, bias)| *y += bias);
                    }
                    HeadStep::Normed if part < 2 => {
                        let mean = y.iter().map(|y| y * y).sum::<f64>() / dim as f64;
                        let root = (mean + s.norm_eps).sqrt();
                        y.iter_mut().zip(&own[part]).for_each(|(y, weight)| *y *= weight / root);
                    }
                    HeadStep::UnitNormed if part < 2 && has_rope => {
                        let mean = y.iter().map(|y| y * y).sum::<f64>() / dim as f64;
                        y.iter_mut().for_each(|y| *y /= (mean + s.norm_eps).sqrt());
                    }
                    _ => {}
                }
                if let Some((position, of)) = position.zip(s.attention.temperature)
                    && part == 0
                    && !has_rope
                {
                    let grown = (1.0 + ((position as f64 + 1.0) / of.every).floor()).ln();
                    y.iter_mut().for_each(|y| *y *= 1.0 + of.scale * grown);
                }
                if let Some(position) = position.filter(|_| has_rope) {
                    for (i, f) in frequencies.iter().enumerate() {
                        let (sin, cos) = (position as f64 * f).sin_cos();
                        let (a, b) = (y[i], y[i + dim / 2]);
                        y[i] = scale * (a * cos - b * sin);
                        y[i + dim / 2] = scale * (b * cos + a * sin);
                    }
                }
                y
            };
        (0..self.tp)
            .map(|rank| {
                let x = &inputs[rank];
                let bias = output_bias.as_ref().filter(|_| rank == 0);
                let empty = bias.cloned().unwrap_or_else(|| vec![0.0; s.hidden as usize]);
                let mut out = vec![empty; x.len()];
                for head in rank * heads / self.tp..(rank + 1) * heads / self.tp {
                    let kv = head * kv_heads / heads;
                    for position in 0..x.len() {
                        let query = project(0, &q, head, &x[position], Some(position));
                        let first = match s.window_of(layer) {
                            Some(chunks) if chunks.is_chunked => position - position % window,
                            _ => (position + 1).saturating_sub(window),
                        };
                        let scores: Vec<f64> = (first..=position)
                            .map(|p| {
                                let key = project(1, &k, kv, &x[p], Some(p));
                                query.iter().zip(key).map(|(a, b)| a * b).sum::<f64>()
                                    / (dim as f64).sqrt()
                            })
                            .collect();
                        let sink = sinks.as_ref().map(|sinks| sinks[head]);
                        let all = || scores.iter().copied().chain(sink);
                        let max = all().fold(f64::MIN, f64::max);
                        let total: f64 = all().map(|s| (s - max).exp()).sum();
                        let mut mixed = vec![0.0; dim];
                        for (p, score) in (first..).zip(&scores) {
                            let value = project(2, &v, kv, &x[p], None);
                            for (m, value) in mixed.iter_mut().zip(value) {
                                *m += (score - max).exp() / total * value;
                            }
                        }
                        for (row, out) in out[position].iter_mut().enumerate() {
                            for (i, m) in mixed.iter().enumerate() {
                                *out += o.data[row * o.columns + head * dim + i] * m;
                            }
                        }
                    }
                }
                out
            })
            .collect()
    }

    /// A dense MLP, or all experts of a mixture.
    fn mlp(&self, layer: u32, inputs: &[Vec<Vec<f64>>]) -> Vec<Vec<Vec<f64>>> {
        if self.shape.experts_of(layer).is_none() {
            return self.gated([Tensor::Gate(layer), Tensor::Up(layer), Tensor::Down(layer)], inputs);
        }
        let (routed, shared) = (self.routed(layer, inputs), self.shared(layer, inputs));
        let rows = |(a, b): (&Vec<f64>, &Vec<f64>)| a.iter().zip(b).map(|(a, b)| a + b).collect();
        routed.iter().zip(&shared).map(|(a, b)| a.iter().zip(b).map(rows).collect()).collect()
    }

    /// A gated MLP, each rank with its columns.
    pub(super) fn gated(&self, tensors: [Tensor; 3], inputs: &[Vec<Vec<f64>>]) -> Vec<Vec<Vec<f64>>> {
        let [gate, up, down] = tensors.map(|t| self.tensor(t));
        let width = down.columns / self.tp;
        (0..self.tp)
            .map(|rank| {
                inputs[rank]
                    .iter()
                    .map(|x| {
                        let mut out = vec![0.0; self.shape.hidden as usize];
                        for column in rank * width..(rank + 1) * width {
                            let product = |w: &Whole| -> f64 {
                                w.data[column * w.columns..][..w.columns]
                                    .iter()
                                    .zip(x)
                                    .map(|(a, b)| a * b)
                                    .sum()
                            };
                            let g = product(&gate);
                            let active = g / (1.0 + (-g).exp()) * product(&up);
                            for (row, out) in out.iter_mut().enumerate() {
                                *out += down.data[row * down.columns + column] * active;
                            }
                        }
                        out
                    })
                    .collect()
            })
            .collect()
    }

    /// Logits at every position, as rank 0 sees them.
    pub(super) fn logits(&self, architecture: &Architecture, tokens: &[u32]) -> Vec<Vec<f64>> {
        type Stream = Vec<Vec<f64>>;
        let embedding = self.tensor(Tensor::Embedding);
        let x0: Stream = tokens
            .iter()
            .map(|t| embedding.data[*t as usize * embedding.columns..][..embedding.columns].to_vec())
            .collect();
        let plus = |a: &Stream, b: &Stream| -> Stream {
            a.iter().zip(b).map(|(a, b)| a.iter().zip(b).map(|(a, b)| a + b).collect()).collect()
        };
        let total =
            |parts: &[Stream]| parts[1..].iter().fold(parts[0].clone(), |sum, part| plus(&sum, part));
        let norm = |streams: &[Stream], tensor: Tensor| -> Vec<Stream> {
            streams.iter().map(|s| s.iter().map(|x| self.norm(x, tensor)).collect()).collect()
        };
        let same = |x: &Stream| vec![x.clone(); self.tp];
        let layers = self.shape.layers;
        let stream = match architecture {
            // every rank keeps a residual of its own; n = None: they never synchronise
            Architecture::Desync(_) | Architecture::UpperBound => {
                let every = match architecture {
                    Architecture::Desync(n) => Some(*n),
                    _ => None,
                };
                let mut residuals = same(&x0);
                for module in 0..2 * layers {
                    let layer = module / 2;
                    let outputs = if module % 2 == 0 {
                        self.attention(layer, &norm(&residuals, Tensor::InputNorm(layer)))
                    } else {
                        self.mlp(layer, &norm(&residuals, Tensor::PostAttentionNorm(layer)))
                    };
                    residuals = residuals.iter().zip(&outputs).map(|(r, o)| plus(r, o)).collect();
                    if every.is_some_and(|n| (module + 1) % n == 0 || module + 1 == 2 * layers) {
                        // sum over ranks of (output + residual before it / tp)
                        let tp = self.tp as f64;
                        let before: Vec<Stream> = residuals
                            .iter()
                            .zip(&outputs)
                            .map(|(r, o)| {
                                let minus = |(r, o): (&f64, &f64)| (r - o) / tp + o;
                                r.iter()
                                    .zip(o)
                                    .map(|(r, o)| r.iter().zip(o).map(minus).collect())
                                    .collect()
                            })
                            .collect();
                        residuals = same(&total(&before));
                    }
                }
                residuals.swap_remove(0)
            }
            // modules n - D of the others join when module n does; the mean of the ranks' final norms is taken below
            Architecture::Delayed(delay) if *delay > 0 && self.tp > 1 => {
                let (modules, delay) = (2 * layers as usize, *delay as usize);
                let mut residuals = same(&x0);
                let mut outputs: Vec<Vec<Stream>> = Vec::new();
                for module in 0..modules {
                    let layer = module as u32 / 2;
                    outputs.push(if module % 2 == 0 {
                        self.attention(layer, &norm(&residuals, Tensor::InputNorm(layer)))
                    } else {
                        self.mlp(layer, &norm(&residuals, Tensor::PostAttentionNorm(layer)))
                    });
                    let alone = module < delay || module >= modules - delay.min(modules);
                    let s = if alone { (self.tp as f64).sqrt() } else { 1.0 };
                    for rank in 0..self.tp {
                        let own = outputs[module][rank].iter();
                        let own: Stream = own.map(|x| x.iter().map(|x| s * x).collect()).collect();
                        residuals[rank] = plus(&residuals[rank], &own);
                        for other in (0..self.tp).filter(|&other| other != rank && module >= delay) {
                            residuals[rank] = plus(&residuals[rank], &outputs[module - delay][other]);
                        }
                    }
                }
                let normed: Vec<Stream> = residuals
                    .iter()
                    .map(|s| s.iter().map(|x| self.norm(x, Tensor::FinalNorm)).collect())
                    .collect();
                let mean = total(&normed);
                let tp = self.tp as f64;
                let mean: Stream = mean.iter().map(|x| x.iter().map(|x| x / tp).collect()).collect();
                return self.head(&mean);
            }
            // in the layers in question the MLP reads the residual and the rank's own part of attention
            Architecture::SyncDrop(which) if self.tp > 1 => {
                let mut x = x0;
                for layer in 0..layers {
                    let attention = self.attention(layer, &norm(&same(&x), Tensor::InputNorm(layer)));
                    let summed = plus(&x, &total(&attention));
                    let inputs: Vec<Stream> = match which.contains(layer, layers) {
                        true => attention.iter().map(|own| plus(&x, own)).collect(),
                        false => same(&summed),
                    };
                    let mlp = self.mlp(layer, &norm(&inputs, Tensor::PostAttentionNorm(layer)));
                    x = plus(&summed, &total(&mlp));
                }
                x
            }
            // the sum of a layer joins behind the next attention, which reads the rank's own part of it
            Architecture::Kraken if self.tp > 1 => {
                let mut x = x0;
                let mut parts: Option<Vec<Stream>> = None;
                for layer in 0..layers {
                    let inputs: Vec<Stream> = match &parts {
                        Some(parts) => parts.iter().map(|own| plus(&x, own)).collect(),
                        None => same(&x),
                    };
                    let attention = self.attention(layer, &norm(&inputs, Tensor::InputNorm(layer)));
                    x = parts.map_or(x.clone(), |parts| plus(&x, &total(&parts)));
                    let inputs: Vec<Stream> = attention.iter().map(|own| plus(&x, own)).collect();
                    let mlp = self.mlp(layer, &norm(&inputs, Tensor::PostAttentionNorm(layer)));
                    parts = Some(attention.iter().zip(&mlp).map(|(a, f)| plus(a, f)).collect());
                }
                parts.map_or(x.clone(), |parts| plus(&x, &total(&parts)))
            }
            // ranks run whole layers by themselves, and meet every D of them in the mean of all residuals
            Architecture::Tracks(every) if self.tp > 1 => {
                let mut residuals = same(&x0);
                for layer in 0..layers {
                    let attention = self.attention(layer, &norm(&residuals, Tensor::InputNorm(layer)));
                    residuals = residuals.iter().zip(&attention).map(|(x, a)| plus(x, a)).collect();
                    let mlp = self.mlp(layer, &norm(&residuals, Tensor::PostAttentionNorm(layer)));
                    residuals = residuals.iter().zip(&mlp).map(|(x, f)| plus(x, f)).collect();
                    if (layer + 1) % every == 0 || layer + 1 == layers {
                        let tp = self.tp as f64;
                        let sum = total(&residuals);
                        let mean: Stream =
                            sum.iter().map(|x| x.iter().map(|x| x / tp).collect()).collect();
                        residuals = same(&mean);
                    }
                }
                residuals.swap_remove(0)
            }
            // only the first channels are summed; each rank makes its part of the logits from its own residual
            Architecture::Partial(share) | Architecture::PartialLadder(share)
                if self.tp > 1 && *share != Channels::ALL =>
            {
                let (shared, root) = (share.count(self.shape.hidden) as usize, (self.tp as f64).sqrt());
                let lag = usize::from(matches!(architecture, Architecture::PartialLadder(_)));
                let mut residuals = same(&x0);
                let mut joining: Vec<Vec<Stream>> = Vec::new();
                for module in 0..2 * layers {
                    let layer = module / 2;
                    let outputs = if module % 2 == 0 {
                        self.attention(layer, &norm(&residuals, Tensor::InputNorm(layer)))
                    } else {
                        self.mlp(layer, &norm(&residuals, Tensor::PostAttentionNorm(layer)))
                    };
                    let sum = total(&outputs);
                    let channel = |own: &f64, (at, sum): (usize, &f64)| {
                        if at < shared { *sum } else { root * own }
                    };
                    let joined = |own: &Stream| -> Stream {
                        let rows = own.iter().zip(&sum);
                        rows.map(|(own, sum)| {
                            own.iter().zip(sum.iter().enumerate()).map(|(o, s)| channel(o, s)).collect()
                        })
                        .collect()
                    };
                    joining.push(outputs.iter().map(joined).collect());
                    // what has joined when the next module, or the final norm, reads
                    let last = module + 1 == 2 * layers;
                    while joining.len() > if last { 0 } else { lag } {
                        let joins = joining.remove(0);
                        residuals = residuals.iter().zip(&joins).map(|(x, y)| plus(x, y)).collect();
                    }
                }
                let of_ranks: Vec<Stream> =
                    norm(&residuals, Tensor::FinalNorm).iter().map(|normed| self.head(normed)).collect();
                let each = self.shape.vocab as usize / self.tp;
                return (0..tokens.len())
                    .map(|at| {
                        (0..each * self.tp).map(|token| of_ranks[token / each][at][token]).collect()
                    })
                    .collect();
            }
            // attention reads all but the newest routed output, the MLP all but attention of its layer
            Architecture::FarSkip(which) => {
                let (mut x, mut routed) = (x0, None);
                for layer in 0..layers {
                    let skips = which.contains(layer, layers);
                    if !skips {
                        x = routed.take().map_or(x.clone(), |routed| plus(&x, &routed));
                    }
                    let a = self.attention(layer, &norm(&same(&x), Tensor::InputNorm(layer)));
                    x = routed.take().map_or(x.clone(), |routed| plus(&x, &routed));
                    let seen = if skips { x.clone() } else { plus(&x, &total(&a)) };
                    let f = norm(&same(&seen), Tensor::PostAttentionNorm(layer));
                    let own = if self.shape.experts_of(layer).is_some() && skips {
                        routed = Some(total(&self.routed(layer, &f)));
                        self.shared(layer, &f)
                    } else {
                        self.mlp(layer, &f)
                    };
                    x = plus(&plus(&x, &total(&a)), &total(&own));
                }
                routed.map_or(x.clone(), |routed| plus(&x, &routed))
            }
            Architecture::Parallel | Architecture::ParallelLadder => {
                let lag = usize::from(*architecture == Architecture::ParallelLadder);
                let mut outputs: Vec<Stream> = Vec::new();
                for layer in 0..layers {
                    let seen = outputs.len().saturating_sub(lag);
                    let x = outputs[..seen].iter().fold(x0.clone(), |sum, o| plus(&sum, o));
                    let input = norm(&same(&x), Tensor::InputNorm(layer));
                    let (attention, mlp) = (self.attention(layer, &input), self.mlp(layer, &input));
                    outputs.push(plus(&total(&attention), &total(&mlp)));
                }
                outputs.iter().fold(x0, |sum, o| plus(&sum, o))
            }
            _ => {
                let mut outputs: Vec<Stream> = Vec::new();
                for module in 0..2 * layers {
                    let layer = module / 2;
                    let lag = match architecture {
                        Architecture::Standard
                        | Architecture::Delayed(_)
                        | Architecture::SyncDrop(_)
                        | Architecture::Kraken
                        | Architecture::Tracks(_)
                        | Architecture::Partial(_) => 0,
                        Architecture::PartialLadder(_) => 1,
                        Architecture::Stale(s) => *s,
                        Architecture::Ladder(which) => u32::from(which.contains(layer, layers)),
                        _ => unreachable!(),
                    };
                    let seen = outputs.len().saturating_sub(lag as usize);
                    let x = outputs[..seen].iter().fold(x0.clone(), |sum, o| plus(&sum, o));
                    let output = if module % 2 == 0 {
                        self.attention(layer, &norm(&same(&x), Tensor::InputNorm(layer)))
                    } else {
                        self.mlp(layer, &norm(&same(&x), Tensor::PostAttentionNorm(layer)))
                    };
                    outputs.push(total(&output));
                }
                outputs.iter().fold(x0, |sum, o| plus(&sum, o))
            }
        };
        self.head(&norm(&[stream], Tensor::FinalNorm)[0])
    }

    /// Logits of what the final norm made.
    fn head(&self, normed: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let head = self.tensor(Tensor::Head);
        normed
            .iter()
            .map(|x| {
                head.data
                    .chunks(head.columns)
                    .map(|w| w.iter().zip(x).map(|(a, b)| a * b).sum())
                    .collect()
            })
            .collect()
    }
}

pub(super) fn tiny() -> Model {
    Model::resolve("tiny").unwrap()
}

pub(super) const PROMPT: [u32; 11] = [3, 141, 59, 26, 53, 58, 97, 93, 238, 46, 26];

pub(super) fn request(architecture: &str, tp: u32, prompts: Vec<Vec<u32>>) -> GenerateRequest {
    GenerateRequest {
        model: tiny(),
        architecture: architecture.parse().unwrap(),
        dtype: DType::F32,
        tp,
        prompts,
        output_tokens: 6,
        temperature: None,
        top_k: None,
        seed: SEED,
        stop_at: vec![],
        variant: plan::Variant::default(),
    }
}

fn generate_with(architecture: &str, tp: u32) -> Generated {
    generate(&request(architecture, tp, vec![PROMPT.to_vec()]), &mut |_| ()).unwrap()
}

/// Every kind of architecture, and parameters at which one becomes another.
pub(super) fn architectures() -> Vec<&'static str> {
    let limits = [
        "desync:1",
        "delayed:0",
        "delayed:2",
        "delayed:9",
        "sync-drop:1",
        "sync-drop:[0]",
        "sync-drop",
        "partial:0.3",
        "partial:1",
        "partial:1+ladder",
        "tracks:9",
    ];
    ARCHITECTURES.into_iter().chain(limits).collect()
}

#[test]
fn every_architecture_agrees_with_an_independent_forward_pass() {
    agree_with_an_independent_forward_pass(&architectures(), DType::F32);
}

#[test]
fn fp8_weights_agree_with_an_independent_forward_pass_of_the_same_numbers() {
    agree_with_an_independent_forward_pass(&["standard", "ladder", "parallel", "desync:2"], DType::Fp8);
}

/// Prefill, decode through the cache, and sharding all agree with the independent forward pass: the
/// logits at the prompt's end, every token's likelihood, and every greedy token.
fn agree_with_an_independent_forward_pass(architectures: &[&str], dtype: DType) {
    for architecture in architectures {
        for tp in [1, 2, 3, 4] {
            let mut model = tiny();
            if tp == 3 {
                (model.shape.heads, model.shape.kv_heads, model.shape.intermediate) = (12, 3, 192);
                if architecture.starts_with("partial") {
                    model.shape.vocab = 252;
                }
            }
            agrees(&GenerateRequest {
                model,
                dtype,
                ..request(architecture, tp, vec![PROMPT.to_vec()])
            });
        }
    }
}

/// One generation of a prompt agrees with the independent forward pass.
pub(super) fn agrees(asked: &GenerateRequest) {
    let GenerateRequest { model, architecture, dtype, tp, variant, .. } = asked;
    let what = format!("{} {architecture} tp {tp} ep {}", model.name, variant.ep);
    let prompt = &asked.prompts[0];
    let source = WeightSource::open(model, SEED).unwrap();
    let generated = generate(asked, &mut |_| ()).unwrap();
    let (tp, ep) = (*tp as usize, variant.ep as usize);
    let reference = Reference { shape: &model.shape, source: &source, tp, ep, dtype: *dtype };
    let mut tokens = prompt.clone();
    tokens.extend(&generated.tokens[0]);
    let logits = reference.logits(architecture, &tokens);
    let largest = logits.iter().flatten().fold(0.0f64, |m, l| m.max(l.abs()));
    for (token, logit) in &generated.top_logits[0] {
        let wanted = logits[prompt.len() - 1][*token as usize];
        let error = (f64::from(*logit) - wanted).abs();
        assert!(error < 1e-5 * largest, "{what}: logit of {token} is {logit}, not {wanted}");
    }
    let mut nll = 0.0;
    for (position, next) in prompt[1..].iter().enumerate() {
        let total: f64 = logits[position].iter().map(|l| l.exp()).sum();
        nll -= logits[position][*next as usize] - total.ln();
    }
    let nll = nll / (prompt.len() - 1) as f64;
    assert!((generated.nll[0].unwrap() - nll).abs() < 1e-4, "{what}");
    // upper-bound's ranks sample different tokens, so rank 0's sequence is not one that the
    // reference can follow beyond the prompt
    let checked = if *architecture == Architecture::UpperBound && tp > 1 { 1 } else { 6 };
    for (i, token) in generated.tokens[0].iter().take(checked).enumerate() {
        let at = &logits[prompt.len() - 1 + i];
        let best = at.iter().copied().fold(f64::MIN, f64::max);
        assert!(best - at[*token as usize] < 1e-5 * largest, "{what}: token {i}");
    }
}

#[test]
fn tp_changes_no_numbers_where_it_must_not() {
    for architecture in architectures() {
        let [one, two, four] = [1, 2, 4].map(|tp| generate_with(architecture, tp));
        let diverges = match architecture.parse().unwrap() {
            Architecture::UpperBound => true,
            Architecture::Desync(every) => every > 1,
            Architecture::Delayed(delay) => delay > 0,
            Architecture::SyncDrop(_) | Architecture::Kraken | Architecture::Tracks(_) => true,
            Architecture::Partial(share) | Architecture::PartialLadder(share) => share != Channels::ALL,
            _ => false,
        };
        for other in [&two, &four] {
            assert_eq!(one.tokens == other.tokens && close(&one, other), !diverges, "{architecture}");
        }
    }
}

fn close(a: &Generated, b: &Generated) -> bool {
    let largest = a.top_logits[0].iter().fold(0.0f32, |m, (_, l)| m.max(l.abs()));
    a.top_logits[0]
        .iter()
        .zip(&b.top_logits[0])
        .all(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() < 1e-4 * largest)
}

#[test]
fn ladder_is_another_function_than_standard() {
    let (standard, ladder) = (generate_with("standard", 2), generate_with("ladder", 2));
    assert!(!close(&standard, &ladder));
    assert_eq!(generate_with("stale:1", 2), ladder);
    assert_eq!(generate_with("partial:1+ladder", 2), ladder);
    assert_eq!(generate_with("partial:1", 2), standard);
    assert_eq!(generate_with("desync:1", 1), generate_with("standard", 1));
}

#[test]
fn a_batch_of_unequal_prompts_gives_what_each_gives_alone() {
    let prompts: Vec<Vec<u32>> = vec![PROMPT.to_vec(), vec![7], (0..140).collect()];
    let together = generate(&request("ladder", 2, prompts.clone()), &mut |_| ()).unwrap();
    for (i, prompt) in prompts.into_iter().enumerate() {
        let alone = generate(&request("ladder", 2, vec![prompt]), &mut |_| ()).unwrap();
        assert_eq!(together.tokens[i], alone.tokens[0]);
        assert_eq!(together.nll[i].is_some(), alone.nll[0].is_some());
    }
}

#[test]
fn bf16_and_fp8_weights_are_close_to_f32() {
    let wide = generate_with("ladder", 2);
    let difference = |dtype| {
        let asked = GenerateRequest { dtype, ..request("ladder", 2, vec![PROMPT.to_vec()]) };
        let narrow = generate(&asked, &mut |_| ()).unwrap();
        (narrow.nll[0].unwrap() - wide.nll[0].unwrap()).abs()
    };
    let [bf16, fp8] = [DType::Bf16, DType::Fp8].map(difference);
    assert!(bf16 > 0.0 && bf16 < 0.05, "{bf16}");
    assert!(fp8 > bf16 && fp8 < 0.2, "{fp8}");
}

#[test]
fn sampling_is_the_same_on_any_tp_and_stops_where_told() {
    let sampled = |tp| {
        let mut request = request("standard", tp, vec![PROMPT.to_vec()]);
        (request.temperature, request.top_k, request.output_tokens) = (Some(1.0), Some(40), 12);
        generate(&request, &mut |_| ()).unwrap().tokens.swap_remove(0)
    };
    assert_eq!(sampled(1), sampled(1));
    assert_eq!(sampled(1), sampled(2));
    let greedy = generate_with("standard", 1).tokens.swap_remove(0);
    assert_ne!(sampled(1)[..greedy.len()], greedy[..]);
    let mut stopping = request("standard", 1, vec![PROMPT.to_vec()]);
    stopping.stop_at = vec![greedy[2]];
    let stopped = generate(&stopping, &mut |_| ()).unwrap().tokens.swap_remove(0);
    let first = greedy.iter().position(|t| *t == greedy[2]).unwrap();
    assert_eq!(stopped, greedy[..=first]);
}

#[test]
fn bad_requests_are_explained() {
    let error = |change: fn(&mut GenerateRequest)| {
        let mut request = request("standard", 1, vec![PROMPT.to_vec()]);
        change(&mut request);
        generate(&request, &mut |_| ()).unwrap_err().to_string()
    };
    assert!(error(|r| r.prompts.clear()).contains("no prompt"));
    assert!(error(|r| r.prompts.push(vec![])).contains("prompt 1 is empty"));
    assert!(error(|r| r.prompts[0][3] = 256).contains("token 256 is outside the vocabulary of 256"));
    assert!(error(|r| r.dtype = DType::F16).contains("f16"));
    assert!(error(|r| r.temperature = Some(f32::NAN)).contains("temperature"));
    assert!(error(|r| r.tp = 3).contains("TP 3 does not divide 8 heads"));
}

fn spec(architecture: &str, tp: u32, link: &str) -> Spec {
    Spec {
        architecture: architecture.parse().unwrap(),
        model: "tiny".into(),
        dtype: DType::F32,
        tp,
        batch: 2,
        prompt_tokens: 8,
        output_tokens: 5,
        backend: Backend::Cpu,
        link: link.parse::<Link>().unwrap(),
        hardware: "host".into(),
        samples: 3,
        warmup: 1,
        seed: SEED,
        ..Spec::default()
    }
}

#[test]
fn a_run_yields_samples_and_a_trace_that_obeys_the_plan() {
    let spec = spec("ladder", 2, "emulated:alpha_us=300,gb_s=10");
    let mut events = Vec::new();
    let job = Job::of(spec, true, false);
    let (outcome, trace) = run(&job, &mut |event| events.push(event)).unwrap();
    assert_eq!(outcome.samples.len(), 3);
    assert_eq!(events.iter().filter(|e| matches!(e, RunEvent::SampleDone { .. })).count(), 3);
    for sample in &outcome.samples {
        assert_eq!(sample.steps_ms.len(), 4);
        assert!((sample.steps_ms.iter().sum::<f64>() - sample.decode_ms).abs() < 1e-6);
    }
    let trace = trace.unwrap();
    let executed = trace.operations.len() - prefill_length(&trace);
    assert_eq!(trace.spans.len(), 2 * (prefill_length(&trace) + 4 * executed));
    let collectives = trace.spans.iter().filter(|s| s.lane == Lane::Comm);
    for span in collectives {
        assert!(span.end_ns - span.last_arrival_ns >= 300_000, "the link takes 300 us");
        assert!(span.ready_ns <= span.start_ns && span.start_ns <= span.last_arrival_ns);
    }
    // an operation starts only after all it waits for has ended, on its rank, in its step
    let mut ends = std::collections::HashMap::new();
    for span in &trace.spans {
        ends.insert((span.sample, span.phase, span.step, span.rank, span.operation), span.end_ns);
    }
    for span in &trace.spans {
        for wait in &trace.operations[span.operation as usize].waits_for {
            let end = ends[&(span.sample, span.phase, span.step, span.rank, *wait)];
            assert!(end <= span.start_ns, "{}", trace.operations[span.operation as usize].name);
        }
    }
}

fn prefill_length(trace: &trace::Trace) -> usize {
    trace.operations.iter().filter(|o| o.phase == plan::Phase::Prefill).count()
}

#[test]
fn who_watches_hears_of_steps_with_the_lanes_of_every_rank() {
    let spec = spec("standard", 2, "emulated:alpha_us=4000,gb_s=10");
    let watched = |watch| {
        let mut events = Vec::new();
        let job = Job::of(spec.clone(), true, watch);
        let (_, trace) = run(&job, &mut |event| events.push(event)).unwrap();
        events.retain(|event| matches!(event, RunEvent::Step { .. }));
        (events, trace.unwrap())
    };
    let (events, trace) = watched(true);
    let mut with_lanes = 0;
    for event in &events {
        let RunEvent::Step { done, of, steps, ms, lanes } = event else { continue };
        assert!(done <= of && *of == 4 && steps <= done, "{event:?}");
        // eight all-reduces of 4 ms a step
        assert!(*steps == 0 || ms / f64::from(*steps) >= 32.0, "{event:?}");
        if lanes.is_empty() {
            continue;
        }
        with_lanes += 1;
        let ranks: Vec<u32> = lanes.iter().map(|lanes| lanes.rank).collect();
        assert_eq!(ranks, [0, 1]);
        for lanes in lanes {
            let busy: u32 = lanes.comm.iter().map(|[start, end]| end - start).sum();
            assert!(busy >= 32_000_000 && !lanes.compute.is_empty(), "{lanes:?}");
            assert!(f64::from(lanes.end()) / 1e6 <= 2.0 * ms.max(1000.0));
        }
    }
    assert!(with_lanes >= 2, "{events:?}");
    // nothing is heard otherwise, and watching takes nothing from the trace
    let (nothing, unwatched) = watched(false);
    assert!(nothing.is_empty());
    assert_eq!(trace.spans.len(), unwatched.spans.len());
}

#[test]
fn one_rank_communicates_nothing() {
    let (outcome, trace) = run(&Job::of(spec("ladder", 1, "native"), true, false), &mut |_| ()).unwrap();
    assert!(trace.unwrap().spans.iter().all(|s| s.lane == Lane::Compute));
    assert_eq!(outcome.samples[0].overlap.unwrap().overlap_pct, None);
}

#[test]
fn without_recording_there_is_no_trace() {
    let (outcome, trace) =
        run(&Job::of(spec("standard", 2, "native"), false, false), &mut |_| ()).unwrap();
    assert!(trace.is_none());
    assert_eq!(outcome.samples.len(), 3);
    assert!(outcome.samples.iter().all(|s| s.overlap.is_none()));
}
