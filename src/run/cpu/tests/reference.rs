//! Forward pass that is independent of plans: f64, one token at a time, no cache layout, no shards but where the
//! architecture is about shards.

use crate::cpu::mixture_tests::dot;
use model::WeightSource;
use plan::{Architecture, Channels, DType, HeadStep, ModelShape, Shard, Tensor, Weight, WeightPart};

/// A whole tensor in f64, rows by columns.
pub(in crate::cpu) struct Whole {
    pub columns: usize,
    pub data: Vec<f64>,
}

impl Whole {
    fn row(&self, at: usize) -> &[f64] {
        &self.data[at * self.columns..][..self.columns]
    }

    /// Its product with a vector.
    pub(in crate::cpu) fn times(&self, x: &[f64]) -> Vec<f64> {
        self.data.chunks(self.columns).map(|row| dot(row, x)).collect()
    }
}

pub(in crate::cpu) struct Reference<'a> {
    pub shape: &'a ModelShape,
    pub source: &'a WeightSource,
    pub tp: usize,
    /// Ranks among which whole experts are divided, or 1.
    pub ep: usize,
    /// The format of the weights: f32, or fp8 and mxfp4 as the numbers that they stand for.
    pub dtype: DType,
}

impl<'a> Reference<'a> {
    /// With f32 weights, and experts divided like everything else.
    pub(in crate::cpu) fn plain(shape: &'a ModelShape, source: &'a WeightSource, tp: u32) -> Self {
        Self { shape, source, tp: tp as usize, ep: 1, dtype: DType::F32 }
    }

    pub(in crate::cpu) fn tensor(&self, tensor: Tensor) -> Whole {
        let (outputs, inputs) = tensor.dimensions(self.shape);
        let parts = vec![WeightPart { tensor, shard: Shard::Whole }];
        let weight = Weight { name: tensor.hf_name(), parts, outputs, inputs };
        let matrix = self.source.load(&weight, 0, 1, self.dtype).unwrap();
        let data = matrix.numbers().iter().map(|number| f64::from(*number)).collect();
        Whole { columns: inputs as usize, data }
    }

    pub(in crate::cpu) fn norm(&self, x: &[f64], tensor: Tensor) -> Vec<f64> {
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
                let mut y: Vec<f64> = (0..dim).map(|i| dot(w.row(head * dim + i), x)).collect();
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
                                dot(&query, &key) / (dim as f64).sqrt()
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
    pub(in crate::cpu) fn gated(
        &self,
        tensors: [Tensor; 3],
        inputs: &[Vec<Vec<f64>>],
    ) -> Vec<Vec<Vec<f64>>> {
        let [gate, up, down] = tensors.map(|t| self.tensor(t));
        let width = down.columns / self.tp;
        (0..self.tp)
            .map(|rank| {
                inputs[rank]
                    .iter()
                    .map(|x| {
                        let mut out = vec![0.0; self.shape.hidden as usize];
                        for column in rank * width..(rank + 1) * width {
                            let g = dot(gate.row(column), x);
                            let active = g / (1.0 + (-g).exp()) * dot(up.row(column), x);
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
    pub(in crate::cpu) fn logits(&self, architecture: &Architecture, tokens: &[u32]) -> Vec<Vec<f64>> {
        type Stream = Vec<Vec<f64>>;
        let embedding = self.tensor(Tensor::Embedding);
        let x0: Stream = tokens.iter().map(|t| embedding.row(*t as usize).to_vec()).collect();
        let plus = |a: &Stream, b: &Stream| -> Stream {
            a.iter().zip(b).map(|(a, b)| a.iter().zip(b).map(|(a, b)| a + b).collect()).collect()
        };
        let total =
            |parts: &[Stream]| parts[1..].iter().fold(parts[0].clone(), |sum, part| plus(&sum, part));
        let norm = |streams: &[Stream], tensor: Tensor| -> Vec<Stream> {
            streams.iter().map(|s| s.iter().map(|x| self.norm(x, tensor)).collect()).collect()
        };
        let same = |x: &Stream| vec![x.clone(); self.tp];
        let each_plus = |a: &[Stream], b: &[Stream]| -> Vec<Stream> {
            a.iter().zip(b).map(|(a, b)| plus(a, b)).collect()
        };
        let mean = |parts: &[Stream]| -> Stream {
            let tp = self.tp as f64;
            total(parts).iter().map(|x| x.iter().map(|x| x / tp).collect()).collect()
        };
        let attend =
            |layer: u32, x: &[Stream]| self.attention(layer, &norm(x, Tensor::InputNorm(layer)));
        let feed =
            |layer: u32, x: &[Stream]| self.mlp(layer, &norm(x, Tensor::PostAttentionNorm(layer)));
        // a layer's attention is an even module, its MLP the odd one behind
        let run = |module: u32, x: &[Stream]| match module % 2 {
            0 => attend(module / 2, x),
            _ => feed(module / 2, x),
        };
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
                    let outputs = run(module, &residuals);
                    residuals = each_plus(&residuals, &outputs);
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
                    outputs.push(run(module as u32, &residuals));
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
                return self.head(&mean(&norm(&residuals, Tensor::FinalNorm)));
            }
            // in the layers in question the MLP reads the residual and the rank's own part of attention
            Architecture::SyncDrop(which) if self.tp > 1 => {
                let mut x = x0;
                for layer in 0..layers {
                    let attention = attend(layer, &same(&x));
                    let summed = plus(&x, &total(&attention));
                    let inputs: Vec<Stream> = match which.contains(layer, layers) {
                        true => attention.iter().map(|own| plus(&x, own)).collect(),
                        false => same(&summed),
                    };
                    let mlp = feed(layer, &inputs);
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
                    let attention = attend(layer, &inputs);
                    x = parts.map_or(x.clone(), |parts| plus(&x, &total(&parts)));
                    let inputs: Vec<Stream> = attention.iter().map(|own| plus(&x, own)).collect();
                    let mlp = feed(layer, &inputs);
                    parts = Some(each_plus(&attention, &mlp));
                }
                parts.map_or(x.clone(), |parts| plus(&x, &total(&parts)))
            }
            // ranks run whole layers by themselves, and meet every D of them in the mean of all residuals
            Architecture::Tracks(every) if self.tp > 1 => {
                let mut residuals = same(&x0);
                for layer in 0..layers {
                    residuals = each_plus(&residuals, &attend(layer, &residuals));
                    residuals = each_plus(&residuals, &feed(layer, &residuals));
                    if (layer + 1) % every == 0 || layer + 1 == layers {
                        residuals = same(&mean(&residuals));
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
                    let outputs = run(module, &residuals);
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
                        residuals = each_plus(&residuals, &joins);
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
                    let a = attend(layer, &same(&x));
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
                    outputs.push(total(&run(module, &same(&x))));
                }
                outputs.iter().fold(x0, |sum, o| plus(&sum, o))
            }
        };
        self.head(&norm(&[stream], Tensor::FinalNorm)[0])
    }

    /// Logits of what the final norm made.
    fn head(&self, normed: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let head = self.tensor(Tensor::Head);
        normed.iter().map(|x| head.times(x)).collect()
    }
}
