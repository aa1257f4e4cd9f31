//! Causal attention over whole windows on one rank's heads, forward and backward.
//!
//! Probabilities are not stored: the backward pass recomputes them from queries and keys, as in FlashAttention (Dao
//! et al., 2022). Queries are processed in blocks of [`BLOCK`], so scores above the diagonal are computed only within
//! a block. A block takes two products forward and five backward.

use std::ops::Range;

use arithmetic::{CausalSoftmax, MatrixView, MatrixViewMut, Real, SoftmaxBack, gemm, gemm_onto};
use pulp::Arch;

use crate::cpu::attention::{HeadPreprocessing, Heads, RopeTable};

const BLOCK: usize = 128;

/// Adjacent windows of `length` positions each, and the heads of a rank.
#[derive(Clone, Copy)]
pub(super) struct Windows {
    pub heads: Heads,
    pub length: usize,
}

impl Windows {
    fn columns(self) -> (usize, usize) {
        (self.heads.query * self.heads.dim, 2 * self.heads.kv * self.heads.dim)
    }

    /// Splits the rows of a projection into rotated queries and, in one buffer, rotated keys and values.
    pub fn rotate<T: Real>(
        self,
        rotation: &RopeTable<T>,
        before: HeadPreprocessing<'_, T>,
        (x, columns): (&[T], usize),
        queries: &mut [T],
        keys: &mut [T],
    ) {
        let Heads { query, kv, dim } = self.heads;
        let (of_queries, of_keys) = self.columns();
        let rows = x.chunks_exact(columns).zip(queries.chunks_exact_mut(of_queries));
        for (row, ((x, queries), keys)) in rows.zip(keys.chunks_exact_mut(of_keys)).enumerate() {
            let position = row % self.length;
            queries.copy_from_slice(&x[..of_queries]);
            keys.copy_from_slice(&x[of_queries..of_queries + of_keys]);
            let heads = queries.chunks_exact_mut(dim).chain(keys.chunks_exact_mut(dim));
            for (number, head) in heads.enumerate() {
                before.apply(self.heads, number, head);
                if number < query + kv {
                    rotation.rotate(position, head);
                }
            }
        }
    }

    /// Computes gradients before the rotation from those of queries, keys and values. Calls `head` for each head with
    /// its row, its number (queries, keys, values) and its gradient.
    pub fn rotate_back<T: Real>(
        self,
        rotation: &RopeTable<T>,
        [queries, keys]: [&[T]; 2],
        mut head: impl FnMut(usize, usize, &mut [T]),
    ) {
        let Heads { query, kv, dim } = self.heads;
        let (of_queries, of_keys) = self.columns();
        let mut gradient = vec![T::ZERO; dim];
        let rows = queries.chunks_exact(of_queries).zip(keys.chunks_exact(of_keys));
        for (row, (queries, keys)) in rows.enumerate() {
            let heads = queries.chunks_exact(dim).chain(keys.chunks_exact(dim));
            for (number, from) in heads.enumerate() {
                gradient.copy_from_slice(from);
                if number < query + kv {
                    rotation.rotate_back(row % self.length, &mut gradient);
                }
                head(row, number, &mut gradient);
            }
        }
    }

    fn sharers(self, kv: usize) -> Range<usize> {
        let Heads { query, kv: all, .. } = self.heads;
        kv * query / all..(kv + 1) * query / all
    }

    fn blocks(self, rows: usize, mut block: impl FnMut(Block)) {
        for window in (0..rows).step_by(self.length.max(1)) {
            for kv in 0..self.heads.kv {
                for query in self.sharers(kv) {
                    for first in (0..self.length).step_by(BLOCK) {
                        let count = BLOCK.min(self.length - first);
                        block(Block { window, kv, query, first, count });
                    }
                }
            }
        }
    }

    pub fn attend<T: Real>(
        self,
        arch: Arch,
        scores: &mut Vec<T>,
        queries: &[T],
        keys: &[T],
        out: &mut [T],
    ) {
        let (width, key_width) = self.columns();
        let dim = self.heads.dim;
        self.blocks(queries.len() / width, |block| {
            block.probabilities(self, arch, scores, queries, keys);
            let (count, seen) = (block.count, block.first + block.count);
            let p = MatrixView::rows(scores, 0, seen);
            let values = MatrixView::rows(keys, block.values(self), key_width);
            gemm([count, dim, seen], [p, values], MatrixViewMut::rows(out, block.queries(self), width));
        });
    }

    pub fn attend_back<T: Real>(
        self,
        arch: Arch,
        scratch: &mut [Vec<T>; 2],
        [queries, keys, dy]: [&[T]; 3],
        [dqueries, dkeys]: [&mut [T]; 2],
    ) {
        let (width, key_width) = self.columns();
        let dim = self.heads.dim;
        dkeys.fill(T::ZERO);
        let [p, ds] = scratch;
        self.blocks(queries.len() / width, |block| {
            block.probabilities(self, arch, p, queries, keys);
            let (count, seen) = (block.count, block.first + block.count);
            let (of_queries, of_keys, of_values) =
                (block.queries(self), block.keys(self), block.values(self));
            let dy = MatrixView::rows(dy, of_queries, width);
            let probabilities = MatrixView::rows(p, 0, seen);
            // dV += P^T dO
            let dv = MatrixViewMut::rows(dkeys, of_values, key_width);
            gemm_onto([seen, dim, count], [probabilities.transposed(), dy], dv);
            // dP = dO V^T, and from it dS = scale x P (dP - sum of P dP over the row)
            ds.resize(count * seen, T::ZERO);
            let values = MatrixView::rows(keys, of_values, key_width);
            gemm([count, seen, dim], [dy, values.transposed()], MatrixViewMut::rows(ds, 0, seen));
            let scale = T::ONE / T::from_f64(dim as f64).sqrt();
            T::softmax_back(arch, SoftmaxBack { p, ds, seen, scale });
            // dQ = dS K, dK += dS^T Q
            let ds = MatrixView::rows(ds, 0, seen);
            let k = MatrixView::rows(keys, of_keys, key_width);
            gemm([count, dim, seen], [ds, k], MatrixViewMut::rows(dqueries, of_queries, width));
            let q = MatrixView::rows(queries, of_queries, width);
            let dk = MatrixViewMut::rows(dkeys, of_keys, key_width);
            gemm_onto([seen, dim, count], [ds.transposed(), q], dk);
        });
    }
}

/// Queries of one window and head that are processed together.
#[derive(Clone, Copy)]
struct Block {
    window: usize,
    kv: usize,
    query: usize,
    first: usize,
    count: usize,
}

impl Block {
    fn queries(self, of: Windows) -> usize {
        (self.window + self.first) * of.columns().0 + self.query * of.heads.dim
    }

    fn keys(self, of: Windows) -> usize {
        self.window * of.columns().1 + self.kv * of.heads.dim
    }

    fn values(self, of: Windows) -> usize {
        self.keys(of) + of.heads.kv * of.heads.dim
    }

    /// Probabilities of the block's queries over all positions up to the block's last; 0 where masked.
    fn probabilities<T: Real>(
        self,
        of: Windows,
        arch: Arch,
        scores: &mut Vec<T>,
        queries: &[T],
        keys: &[T],
    ) {
        let (width, key_width) = of.columns();
        let dim = of.heads.dim;
        let seen = self.first + self.count;
        scores.resize(self.count * seen, T::ZERO);
        let q = MatrixView::rows(queries, self.queries(of), width);
        let k = MatrixView::rows(keys, self.keys(of), key_width);
        gemm([self.count, seen, dim], [q, k.transposed()], MatrixViewMut::rows(scores, 0, seen));
        let scale = T::ONE / T::from_f64(dim as f64).sqrt();
        T::causal_softmax(arch, CausalSoftmax { scores, seen, first: self.first, scale });
    }
}
