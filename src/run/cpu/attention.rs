//! RoPE, KV cache and causal attention (GQA) over it, on one rank's heads.
//!
//! Decode reads each layer's cache once: `2 x kv_heads x head_dim x 4` bytes per cached token. Prefill works on
//! blocks of [`BLOCK`] queries, so at most `BLOCK x context` scores exist at a time.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::kernels::CpuKernels;
use arithmetic::product::Panels;
use arithmetic::{CausalScores, MatrixView, MatrixViewMut, OneQuery, Real, gemm};
use model::Matrix;
use plan::{Groups, ModelShape, Quantity, Temperature};

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

    /// Sequence and position of each row.
    pub fn positions(&self) -> impl Iterator<Item = (usize, usize)> {
        self.runs.iter().flat_map(|run| {
            let RowRun { sequence, position, count } = *run;
            (position..position + count).map(move |at| (sequence, at))
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Heads {
    pub query: usize,
    pub kv: usize,
    pub dim: usize,
}

impl Heads {
    pub fn new(shape: &ModelShape, tp: u32) -> Self {
        Self {
            query: (shape.heads / tp) as usize,
            kv: shape.kv_heads_of(tp) as usize,
            dim: shape.head_dim as usize,
        }
    }
}

/// Preprocessing of one head before RoPE.
#[derive(Clone, Copy, Debug)]
pub enum HeadPreprocessing<'a, T = f32> {
    Nothing,
    Bias(&'a [T]),
    /// RMSNorm of queries and keys with weights `[2, dim]`, or without if they are empty, and epsilon.
    Norm(&'a [T], T),
}

impl<T: Real> HeadPreprocessing<'_, T> {
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
                let scale = T::ONE / (T::dot(head, head) / T::from_f64(dim as f64) + eps).sqrt();
                if weight.is_empty() {
                    head.iter_mut().for_each(|x| *x *= scale);
                    return;
                }
                let weight = if number < query { &weight[..dim] } else { &weight[dim..] };
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
    pub before: HeadPreprocessing<'a>,
}

/// Effect of a token's position on queries and keys.
#[derive(Clone, Copy, Debug)]
pub enum PositionEncoding<'a> {
    Rope(&'a RopeTable),
    /// Nothing on keys; queries are multiplied, if there is a factor.
    Scale(Option<Temperature>),
}

impl PositionEncoding<'_> {
    fn query(self, position: usize, head: &mut [f32]) {
        match self {
            Self::Rope(table) => table.rotate(position, head),
            Self::Scale(Some(temperature)) => {
                let factor = temperature.factor(position) as f32;
                head.iter_mut().for_each(|x| *x *= factor);
            }
            Self::Scale(None) => {}
        }
    }

    fn key(self, position: usize, head: &mut [f32]) {
        if let Self::Rope(table) = self {
            table.rotate(position, head);
        }
    }
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
        let dim = shape.attention.latent.map_or(shape.head_dim, |latent| latent.rope_dim);
        let frequencies = shape.rope.frequencies(dim);
        let scale = shape.rope.yarn.map_or(1.0, |yarn| yarn.rotated_scale);
        let angles = (0..positions).flat_map(|p| frequencies.iter().map(move |f| p as f64 * f));
        let rotation = |angle: f64| (T::from_f64(angle.cos() * scale), T::from_f64(angle.sin() * scale));
        let (cos, sin) = angles.map(rotation).unzip();
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

/// Keys and values of all layers on one rank: `[layer, sequence, kv head, position, dim]`. With latent attention (MLA)
/// one head, whose keys are a normed latent and a rotated part, and whose values are the latent.
#[derive(Debug)]
pub struct KvCache {
    heads: Heads,
    /// Columns of the latent; `None` if values are stored.
    latent: Option<usize>,
    /// Factor of query-key products.
    scale: f32,
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
            latent: None,
            scale: 1.0 / (heads.dim as f32).sqrt(),
            sequences,
            capacity,
            keys: (0..layers).map(|_| layer()).collect(),
            values: (0..layers).map(|_| layer()).collect(),
        }
    }

    /// Cache of one rank's part of a model.
    pub fn from_shape(
        shape: &ModelShape,
        tp: u32,
        layers: usize,
        sequences: usize,
        capacity: usize,
    ) -> Self {
        let heads = Heads::new(shape, tp);
        let Some(latent) = shape.attention.latent else {
            return Self::new(heads, layers, sequences, capacity);
        };
        let factor = shape.rope.yarn.map_or(1.0, |yarn| yarn.score_scale);
        let heads = Heads { kv: 1, dim: latent.cached() as usize, ..heads };
        let layer = || vec![0.0; sequences * capacity * heads.dim];
        Self {
            heads,
            latent: Some(latent.kv_rank as usize),
            scale: (factor / f64::from(latent.query_dim()).sqrt()) as f32,
            sequences,
            capacity,
            keys: (0..layers).map(|_| layer()).collect(),
            values: Vec::new(),
        }
    }

    pub fn bytes(&self) -> u64 {
        let layer = self.sequences * self.heads.kv * self.capacity * self.heads.dim;
        ((self.keys.len() + self.values.len()) * layer * size_of::<f32>()) as u64
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

    /// Stores a key of a cache with one head.
    pub(super) fn put(&mut self, layer: usize, sequence: usize, position: usize, key: &[f32]) {
        let at = self.start(sequence, 0) + position * self.heads.dim;
        self.keys[layer][at..at + self.heads.dim].copy_from_slice(key);
    }

    /// Rotates or scales queries and keys, appends keys and values to `layer`, and writes the queries.
    pub fn append(
        &mut self,
        layer: usize,
        rows: &StepRows,
        turn: PositionEncoding<'_>,
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
                    turn.query(position, head);
                }
                for head in 0..kv {
                    let at = self.start(run.sequence, head) + position * dim;
                    let key = &mut self.keys[layer][at..at + dim];
                    key.copy_from_slice(&x[(query + head) * dim..][..dim]);
                    before.apply(heads, query + head, key);
                    turn.key(position, key);
                    let value = &mut self.values[layer][at..at + dim];
                    value.copy_from_slice(&x[(query + kv + head) * dim..][..dim]);
                    before.apply(heads, query + kv + head, value);
                }
                row += 1;
            }
        }
    }
}

/// Limits of a layer's attention.
#[derive(Clone, Copy, Debug)]
pub struct AttentionLimits<'a> {
    /// Last positions that a query sees, its own included.
    pub window: usize,
    /// True if a query sees its own chunk of `window` positions instead.
    pub is_chunked: bool,
    /// Score of each query head that joins the softmax's denominator without a key; empty without sinks.
    pub sinks: &'a [f32],
}

impl AttentionLimits<'_> {
    /// Attention to the whole context.
    pub const ALL: Self = Self { window: usize::MAX, is_chunked: false, sinks: &[] };

    /// Positions that the query at `position` sees.
    fn positions(self, position: usize) -> Range<usize> {
        let first = match self.is_chunked {
            true => position / self.window * self.window,
            false => (position + 1).saturating_sub(self.window),
        };
        first..position + 1
    }

    /// Queries from `position` on that are computed together: at most `count`, and of one chunk.
    fn together(self, position: usize, count: usize) -> usize {
        if self.is_chunked { count.min(self.window - position % self.window) } else { count }
    }
}

#[derive(Debug, Default)]
pub struct AttentionScratch {
    scores: Vec<f32>,
}

impl AttentionScratch {
    /// Writes `out[rows, query heads x dim]`: attention of each row's queries over the cache up to the row's
    /// position.
    pub fn attend(
        &mut self,
        kernels: &CpuKernels,
        (cache, layer): (&KvCache, usize),
        sight: AttentionLimits<'_>,
        rows: &StepRows,
        queries: &[f32],
        out: &mut [f32],
    ) {
        let Heads { query, kv, dim } = cache.heads;
        let value_dim = cache.latent.unwrap_or(dim);
        let mut row = 0;
        for run in &rows.runs {
            for head in 0..kv {
                let start = cache.start(run.sequence, head);
                let keys = &cache.keys[layer][start..][..(run.position + run.count) * dim];
                let values = cache
                    .values
                    .get(layer)
                    .map_or(keys, |values| &values[start..][..(run.position + run.count) * dim]);
                let (heads, scale) = (query, cache.scale);
                for head in head * query / kv..(head + 1) * query / kv {
                    let of_head =
                        HeadOperands { heads, dim, value_dim, scale, head, row, keys, values, queries };
                    if run.count < MANY_QUERIES {
                        for i in 0..run.count {
                            self.one(kernels, sight, of_head, run.position + i, i, out);
                        }
                    } else {
                        self.many(kernels, sight, of_head, run, out);
                    }
                }
            }
            row += run.count;
        }
    }

    /// Attention of the `i`-th query of a run, at `position`.
    fn one(
        &mut self,
        kernels: &CpuKernels,
        sight: AttentionLimits<'_>,
        of: HeadOperands<'_>,
        position: usize,
        i: usize,
        out: &mut [f32],
    ) {
        let HeadOperands { dim, value_dim, scale, .. } = of;
        let seen = sight.positions(position);
        let (keys, values) =
            (&of.keys[seen.start * dim..seen.end * dim], &of.values[seen.start * dim..]);
        self.scores.resize(seen.len().max(self.scores.len()), 0.0);
        let scores = &mut self.scores[..seen.len()];
        let query = &of.queries[of.query(i)..][..dim];
        let out = &mut out[of.out(i)..][..value_dim];
        let sink = sight.sinks.get(of.head).copied();
        OneQuery { query, keys, values, stride: dim, scores, scale, sink, out }.run(kernels.arch());
    }

    fn many(
        &mut self,
        kernels: &CpuKernels,
        sight: AttentionLimits<'_>,
        of: HeadOperands<'_>,
        run: &RowRun,
        out: &mut [f32],
    ) {
        let HeadOperands { heads, dim, value_dim, scale, .. } = of;
        let mut next = 0;
        while next < run.count {
            let first = next;
            let count = sight.together(run.position + first, BLOCK.min(run.count - first));
            next += count;
            // keys before the first query's window are seen by none
            let Range { start, end } = sight.positions(run.position + first);
            let (context, seen) = (end - start + count - 1, end - start);
            self.scores.resize((count * context).max(self.scores.len()), 0.0);
            let scores = &mut self.scores[..count * context];
            let q = MatrixView::rows(of.queries, of.query(first), heads * dim);
            let [keys, values] = [of.keys, of.values].map(|all| MatrixView::rows(all, start * dim, dim));
            gemm([count, context, dim], [q, keys.transposed()], MatrixViewMut::rows(scores, 0, context));
            let (window, sink) = (sight.window, sight.sinks.get(of.head).copied());
            CausalScores { scores, context, seen, window, scale, sink }.run(kernels.arch());
            let p = MatrixView::rows(scores, 0, context);
            let stride = heads * value_dim;
            gemm(
                [count, value_dim, context],
                [p, values],
                MatrixViewMut::rows(out, of.out(first), stride),
            );
        }
    }
}

/// Operands of one of `heads` query heads in a run that starts at `row`. Positions of keys and values are `dim` apart.
#[derive(Clone, Copy)]
struct HeadOperands<'a> {
    heads: usize,
    /// Columns of a key, and of a value.
    dim: usize,
    value_dim: usize,
    /// Factor of the scores before the softmax.
    scale: f32,
    head: usize,
    row: usize,
    keys: &'a [f32],
    values: &'a [f32],
    queries: &'a [f32],
}

impl HeadOperands<'_> {
    /// Start of the run's `i`-th query.
    fn query(&self, i: usize) -> usize {
        ((self.row + i) * self.heads + self.head) * self.dim
    }

    /// Start of its result.
    fn out(&self, i: usize) -> usize {
        ((self.row + i) * self.heads + self.head) * self.value_dim
    }
}

/// Norms the latents of new tokens, rotates their shared keys, and appends both to the cache: `[rows, kv_rank +
/// rope_dim]`.
pub(super) fn append(
    kernels: &CpuKernels,
    (cache, layer): (&mut KvCache, usize),
    rope: &RopeTable,
    rows: &StepRows,
    (shape, norm): (&ModelShape, &Matrix),
    x: &[f32],
    out: &mut [f32],
) {
    let Some(latent) = shape.attention.latent else { return };
    let (rank, columns) = (latent.kv_rank as usize, latent.cached() as usize);
    let of_rows = x.chunks_exact(columns).zip(out.chunks_exact_mut(columns));
    for ((x, out), (sequence, position)) in of_rows.zip(rows.positions()) {
        let (normed, rotated) = out.split_at_mut(rank);
        kernels.norm(&x[..rank], norm, shape.norm_eps as f32, normed);
        rotated.copy_from_slice(&x[rank..]);
        rope.rotate(position, rotated);
        cache.put(layer, sequence, position, out);
    }
}

/// Attention of queries that are not rotated yet, `[rows, heads x (nope_dim + rope_dim)]`, over the cached latents:
/// `[rows, heads x value_dim]`. `each` has two panels per head: keys' up projection, transposed, and values'.
pub(super) fn attend(
    (kernels, attention): (&mut CpuKernels, &mut AttentionScratch),
    (cache, layer): (&KvCache, usize),
    rope: &RopeTable,
    rows: &StepRows,
    (shape, each): (&ModelShape, &[Arc<Panels>]),
    queries: &[f32],
    out: &mut [f32],
) {
    let Some(latent) = shape.attention.latent else { return };
    let (rank, nope) = (latent.kv_rank as usize, latent.nope_dim as usize);
    let (cached, query_dim) = (latent.cached() as usize, latent.query_dim() as usize);
    let (value_dim, heads) = (latent.value_dim as usize, each.len() / 2);
    let count = rows.rows();
    let mut absorbed = vec![0.0; count * heads * cached];
    let (mut part, mut product) = (vec![0.0; count * nope], vec![0.0; count * rank]);
    for (head, pair) in each.chunks_exact(2).enumerate() {
        let row = |row: usize| (row * heads + head) * query_dim;
        for (at, part) in part.chunks_exact_mut(nope).enumerate() {
            part.copy_from_slice(&queries[row(at)..][..nope]);
        }
        kernels.matmul(&part, &pair[0], &mut product);
        for (at, (product, (_, position))) in
            product.chunks_exact(rank).zip(rows.positions()).enumerate()
        {
            let to = &mut absorbed[(at * heads + head) * cached..][..cached];
            to[..rank].copy_from_slice(product);
            to[rank..].copy_from_slice(&queries[row(at) + nope..][..query_dim - nope]);
            rope.rotate(position, &mut to[rank..]);
        }
    }
    let mut mixed = vec![0.0; count * heads * rank];
    attention.attend(kernels, (cache, layer), AttentionLimits::ALL, rows, &absorbed, &mut mixed);
    let mut values = vec![0.0; count * value_dim];
    for (head, pair) in each.chunks_exact(2).enumerate() {
        for (at, product) in product.chunks_exact_mut(rank).enumerate() {
            product.copy_from_slice(&mixed[(at * heads + head) * rank..][..rank]);
        }
        kernels.matmul(&product, &pair[1], &mut values);
        for (at, values) in values.chunks_exact(value_dim).enumerate() {
            out[(at * heads + head) * value_dim..][..value_dim].copy_from_slice(values);
        }
    }
}
