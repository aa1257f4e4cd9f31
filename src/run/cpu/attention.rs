//! RoPE, KV cache and causal attention (GQA) over it, on one rank's heads.
//!
//! Decode reads each layer's cache once: `2 x kv_heads x head_dim x 4` bytes per cached token. Prefill works on
//! blocks of [`BLOCK`] queries, so at most `BLOCK x context` scores exist at a time.

use std::borrow::Cow;

use arithmetic::{CausalScores, OneQuery, Real, View, gemm};

use super::kernels::Kernels;
use plan::{Groups, ModelShape, Quantity};

const BLOCK: usize = 64;

/// Minimum new tokens per sequence for computing scores as a matrix product.
const MANY_QUERIES: usize = 8;

/// Rows of a step by sequence. The rows of a sequence are consecutive, with ascending positions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepRows {
    /// One run per sequence with new tokens.
    pub runs: Vec<RowRun>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRun {
    pub sequence: usize,
    pub position: usize,
    pub count: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepPart<'a> {
    pub rows: Cow<'a, StepRows>,
    /// One token per row.
    pub tokens: Cow<'a, [u32]>,
}

impl StepPart<'_> {
    /// Bytes of a message that depends only on rows and sequences.
    pub fn bytes(&self, message: &Quantity) -> u64 {
        message.row * self.rows.rows() as u64 + message.sequence * self.rows.runs.len() as u64
    }
}

impl StepRows {
    /// Splits the step into its groups, by sequences or by the rows of every sequence.
    pub fn parts<'a>(&'a self, groups: Groups, tokens: &'a [u32]) -> Vec<StepPart<'a>> {
        if groups.count == 1 {
            return vec![StepPart { rows: Cow::Borrowed(self), tokens: Cow::Borrowed(tokens) }];
        }
        let whole = |n: usize| n as u64;
        (0..groups.count)
            .map(|group| {
                let (mut runs, mut own, mut at) = (Vec::new(), Vec::new(), 0);
                let (first, count) = groups.part(whole(self.runs.len()), group);
                for (index, run) in self.runs.iter().enumerate() {
                    let (skipped, taken) = match groups.of_tokens {
                        true => groups.part(whole(run.count), group),
                        false if (first..first + count).contains(&whole(index)) => (0, whole(run.count)),
                        false => (0, 0),
                    };
                    let (skipped, taken) = (skipped as usize, taken as usize);
                    if taken > 0 {
                        runs.push(RowRun { position: run.position + skipped, count: taken, ..*run });
                        own.extend_from_slice(&tokens[at + skipped..at + skipped + taken]);
                    }
                    at += run.count;
                }
                StepPart { rows: Cow::Owned(Self { runs }), tokens: Cow::Owned(own) }
            })
            .collect()
    }

    pub fn rows(&self) -> usize {
        self.runs.iter().map(|run| run.count).sum()
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Heads {
    pub query: usize,
    pub kv: usize,
    pub dim: usize,
}

impl Heads {
    pub fn of(shape: &ModelShape, tp: u32) -> Self {
        Self {
            query: (shape.heads / tp) as usize,
            kv: shape.kv_heads_of(tp) as usize,
            dim: shape.head_dim as usize,
        }
    }
}

/// Preprocessing of one head before RoPE.
#[derive(Clone, Copy, Debug)]
pub enum Before<'a, T = f32> {
    Nothing,
    Bias(&'a [T]),
    /// RMSNorm of queries and keys with weights `[2, dim]` and epsilon.
    Norm(&'a [T], T),
}

impl<T: Real> Before<'_, T> {
    /// Applies the preprocessing to a head; `number` counts queries first, then keys, then values.
    pub(super) fn apply(self, heads: Heads, number: usize, head: &mut [T]) {
        let Heads { query, kv, dim } = heads;
        match self {
            Self::Bias(bias) => {
                for (x, bias) in head.iter_mut().zip(&bias[number * dim..]) {
                    *x += *bias;
                }
            }
            Self::Norm(weight, eps) if number < query + kv => {
                let weight = if number < query { &weight[..dim] } else { &weight[dim..] };
                let scale = T::ONE / (T::dot(head, head) / T::of(dim as f64) + eps).sqrt();
                for (x, weight) in head.iter_mut().zip(weight) {
                    *x *= scale * *weight;
                }
            }
            Self::Nothing | Self::Norm(..) => {}
        }
    }
}

/// Rows of a projection that start with q, k, v of a rank's heads.
#[derive(Clone, Copy, Debug)]
pub struct Projected<'a> {
    /// Row-major values.
    pub x: &'a [f32],
    pub columns: usize,
    pub before: Before<'a>,
}

/// Cosines and sines of all positions: `[positions, dim / 2]` each.
#[derive(Debug)]
pub struct RopeTable<T = f32> {
    half: usize,
    cos: Vec<T>,
    sin: Vec<T>,
}

impl<T: Real> RopeTable<T> {
    /// For positions `0..positions`. Angles are f64 because position times frequency needs the precision.
    pub fn new(shape: &ModelShape, positions: usize) -> Self {
        let frequencies = shape.rope.frequencies(shape.head_dim);
        let angles = (0..positions).flat_map(|p| frequencies.iter().map(move |f| p as f64 * f));
        let (cos, sin) = angles.map(|angle| (T::of(angle.cos()), T::of(angle.sin()))).unzip();
        Self { half: frequencies.len(), cos, sin }
    }

    /// Interleaved (cos, sin) pairs: `[positions, dim / 2]`.
    pub fn pairs(&self) -> Vec<T> {
        self.cos.iter().zip(&self.sin).flat_map(|(cos, sin)| [*cos, *sin]).collect()
    }

    /// Rotates the pairs `(i, i + dim / 2)` of one head, as HF checkpoints do.
    pub(super) fn rotate(&self, position: usize, head: &mut [T]) {
        self.turn(position, head, |sin| sin);
    }

    /// Inverse rotation, for gradients.
    pub(super) fn rotate_back(&self, position: usize, head: &mut [T]) {
        self.turn(position, head, |sin| -sin);
    }

    fn turn(&self, position: usize, head: &mut [T], signed: impl Fn(T) -> T) {
        let (low, high) = head.split_at_mut(self.half);
        let cos = &self.cos[position * self.half..][..self.half];
        let sin = &self.sin[position * self.half..][..self.half];
        for (((low, high), cos), sin) in low.iter_mut().zip(high).zip(cos).zip(sin) {
            let (a, b, sin) = (*low, *high, signed(*sin));
            *low = a * *cos - b * sin;
            *high = b * *cos + a * sin;
        }
    }
}

/// Keys and values of all layers on one rank: `[layer, sequence, kv head, position, dim]`.
#[derive(Debug)]
pub struct KvCache {
    heads: Heads,
    sequences: usize,
    capacity: usize,
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
}

impl KvCache {
    /// Reserves `capacity` tokens per sequence.
    pub fn new(heads: Heads, layers: usize, sequences: usize, capacity: usize) -> Self {
        let layer = || vec![0.0; sequences * heads.kv * capacity * heads.dim];
        Self {
            heads,
            sequences,
            capacity,
            keys: (0..layers).map(|_| layer()).collect(),
            values: (0..layers).map(|_| layer()).collect(),
        }
    }

    pub fn bytes(&self) -> u64 {
        let layer = self.sequences * self.heads.kv * self.capacity * self.heads.dim;
        (2 * self.keys.len() * layer * size_of::<f32>()) as u64
    }

    /// Keys and values of a layer, for checks of other backends: `[sequence, kv head, position, dim]`.
    #[doc(hidden)]
    pub fn layer(&self, layer: usize) -> (&[f32], &[f32]) {
        (&self.keys[layer], &self.values[layer])
    }

    fn start(&self, sequence: usize, head: usize) -> usize {
        (sequence * self.heads.kv + head) * self.capacity * self.heads.dim
    }

    /// Replaces a layer's keys and values, to continue from another backend's cache.
    #[doc(hidden)]
    pub fn replace(&mut self, layer: usize, keys: Vec<f32>, values: Vec<f32>) {
        assert!(keys.len() == self.keys[layer].len() && values.len() == keys.len());
        (self.keys[layer], self.values[layer]) = (keys, values);
    }

    /// Rotates queries and keys, appends keys and values to `layer`, and writes the queries.
    pub fn append(
        &mut self,
        layer: usize,
        rows: &StepRows,
        rope: &RopeTable,
        projected: Projected<'_>,
        queries: &mut [f32],
    ) {
        let Projected { x, columns, before } = projected;
        let heads = self.heads;
        let Heads { query, kv, dim } = heads;
        let mut row = 0;
        for run in &rows.runs {
            for position in run.position..run.position + run.count {
                let x = &x[row * columns..][..(query + 2 * kv) * dim];
                let queries = &mut queries[row * query * dim..][..query * dim];
                queries.copy_from_slice(&x[..query * dim]);
                for (number, head) in queries.chunks_exact_mut(dim).enumerate() {
                    before.apply(heads, number, head);
                    rope.rotate(position, head);
                }
                for head in 0..kv {
                    let at = self.start(run.sequence, head) + position * dim;
                    let key = &mut self.keys[layer][at..at + dim];
                    key.copy_from_slice(&x[(query + head) * dim..][..dim]);
                    before.apply(heads, query + head, key);
                    rope.rotate(position, key);
                    let value = &mut self.values[layer][at..at + dim];
                    value.copy_from_slice(&x[(query + kv + head) * dim..][..dim]);
                    before.apply(heads, query + kv + head, value);
                }
                row += 1;
            }
        }
    }
}

#[derive(Debug, Default)]
pub struct Attention {
    scores: Vec<f32>,
}

impl Attention {
    /// Writes `out[rows, query heads x dim]`: attention of each row's queries over the cache up to the row's
    /// position.
    pub fn attend(
        &mut self,
        kernels: &Kernels,
        cache: &KvCache,
        layer: usize,
        rows: &StepRows,
        queries: &[f32],
        out: &mut [f32],
    ) {
        let Heads { query, kv, dim } = cache.heads;
        let width = query * dim;
        let mut row = 0;
        for run in &rows.runs {
            for head in 0..kv {
                let start = cache.start(run.sequence, head);
                let keys = &cache.keys[layer][start..][..(run.position + run.count) * dim];
                let values = &cache.values[layer][start..][..(run.position + run.count) * dim];
                let group = head * query / kv..(head + 1) * query / kv;
                for q in group {
                    let offset = row * width + q * dim;
                    if run.count < MANY_QUERIES {
                        for i in 0..run.count {
                            let context = (run.position + i + 1) * dim;
                            let at = offset + i * width;
                            let (keys, values) = (&keys[..context], &values[..context]);
                            let out = &mut out[at..at + dim];
                            self.one(kernels, &queries[at..at + dim], keys, values, out);
                        }
                    } else {
                        self.many(kernels, run, dim, width, offset, keys, values, queries, out);
                    }
                }
            }
            row += run.count;
        }
    }

    fn one(&mut self, kernels: &Kernels, query: &[f32], keys: &[f32], values: &[f32], out: &mut [f32]) {
        let dim = query.len();
        let scale = 1.0 / (dim as f32).sqrt();
        let scores = &mut self.scores;
        scores.resize((keys.len() / dim).max(scores.len()), 0.0);
        let scores = &mut scores[..keys.len() / dim];
        OneQuery { query, keys, values, scores, scale, out }.run(kernels.arch());
    }

    #[expect(clippy::too_many_arguments, reason = "geometry of two strided operands and the result")]
    fn many(
        &mut self,
        kernels: &Kernels,
        run: &RowRun,
        dim: usize,
        width: usize,
        offset: usize,
        keys: &[f32],
        values: &[f32],
        queries: &[f32],
        out: &mut [f32],
    ) {
        let scale = 1.0 / (dim as f32).sqrt();
        for first in (0..run.count).step_by(BLOCK) {
            let count = BLOCK.min(run.count - first);
            let context = run.position + first + count;
            self.scores.resize((count * context).max(self.scores.len()), 0.0);
            let scores = &mut self.scores[..count * context];
            let q = View::rows(queries, offset + first * width, width);
            gemm(count, context, dim, q, View::rows(keys, 0, dim).transposed(), scores, 0, context);
            let seen = run.position + first + 1;
            CausalScores { scores, context, seen, scale }.run(kernels.arch());
            let p = View::rows(scores, 0, context);
            gemm(count, dim, context, p, View::rows(values, 0, dim), out, offset + first * width, width);
        }
    }
}
