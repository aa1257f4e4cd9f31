//! Latent attention (MLA). The cache holds one normed latent and one rotated key per token; up projections of keys are
//! absorbed into queries, those of values follow attention, so that all heads attend over the same latents.

use std::sync::Arc;

use super::attention::{Attention, KvCache, RopeTable, Sight, StepRows};
use super::kernels::Kernels;
use arithmetic::product::Panels;
use model::Matrix;
use plan::ModelShape;

/// Norms the latents of new tokens, rotates their shared keys, and appends both to the cache: `[rows, kv_rank +
/// rope_dim]`.
pub(super) fn append(
    kernels: &Kernels,
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
    (kernels, attention): (&mut Kernels, &mut Attention),
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
    attention.attend(kernels, (cache, layer), Sight::ALL, rows, &absorbed, &mut mixed);
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
