//! Likelihood, KL divergence and agreement from logits.
//!
//! The head is applied to [`ROWS_PER_PASS`] positions and [`COLUMNS`] vocabulary tokens at a time, so logits take a few
//! megabytes for any vocabulary, context and number of architectures. Each position keeps its maximum logit so far
//! and sums relative to it, which are rescaled when a larger logit appears.

use std::ops::Range;
use std::sync::Arc;

use arithmetic::product::Panels;
use arithmetic::{LogitPanel, LogitStatistics, TakeOther, TakeReference};

use super::kernels::CpuKernels;
use crate::generate::WindowQuality;

const ROWS_PER_PASS: usize = 512;

const COLUMNS: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Loss {
    reference: Vec<f32>,
    /// `e^(reference - its max)`.
    weights: Vec<f32>,
    logits: Vec<f32>,
    parts: RankBuffers,
}

/// Buffers for ranks with normed residuals of their own.
#[derive(Debug, Default)]
struct RankBuffers {
    normed: Vec<f32>,
    logits: Vec<f32>,
}

impl Loss {
    /// Compares each of `others` with `reference` on the tokens `following`. Inputs are outputs of the final norm,
    /// one row per predicted token; `others` may have those of several ranks side by side, each for its part of the
    /// vocabulary. `heads` are the reference's head and that of the others. The first result is the
    /// reference's own.
    pub fn of(
        &mut self,
        kernels: &mut CpuKernels,
        heads: [&Arc<Panels>; 2],
        reference: &[f32],
        others: &[&[f32]],
        following: &[u32],
    ) -> Vec<WindowQuality> {
        let mut sums = vec![WindowQuality::default(); others.len() + 1];
        for first in (0..following.len()).step_by(ROWS_PER_PASS) {
            let rows = first..(first + ROWS_PER_PASS).min(following.len());
            let part = |normed: &'_ [f32]| {
                let width = normed.len() / following.len();
                rows.start * width..rows.end * width
            };
            let others: Vec<&[f32]> = others.iter().map(|normed| &normed[part(normed)]).collect();
            let reference = &reference[part(reference)];
            let seen = self.slice(kernels, heads, reference, &others, &following[rows]);
            add(&mut sums, &seen);
        }
        sums
    }

    /// Processes the whole vocabulary at some positions; returns the reference's statistics first, then the others'.
    fn slice(
        &mut self,
        kernels: &mut CpuKernels,
        [of_reference, head]: [&Arc<Panels>; 2],
        reference: &[f32],
        others: &[&[f32]],
        following: &[u32],
    ) -> Vec<Vec<LogitStatistics>> {
        let rows = following.len();
        let mut seen = vec![vec![LogitStatistics::NOTHING; rows]; others.len() + 1];
        for first in (0..head.outputs).step_by(COLUMNS) {
            let part = first..(first + COLUMNS).min(head.outputs);
            let columns = part.len();
            for logits in [&mut self.reference, &mut self.weights, &mut self.logits] {
                logits.resize(rows * columns, 0.0);
            }
            kernels.matmul_part(reference, of_reference, part.clone(), &mut self.reference);
            let mut shrinks = vec![1.0; rows];
            let [ours, theirs @ ..] = &mut seen[..] else { return seen };
            let take = TakeReference {
                panel: LogitPanel { first, columns, following },
                logits: &self.reference,
                weights: &mut self.weights,
                shrinks: &mut shrinks,
                seen: ours,
            };
            take.run(kernels.arch());
            for (normed, theirs) in others.iter().zip(theirs) {
                self.parts.product(kernels, normed, head, part.clone(), &mut self.logits);
                let take = TakeOther {
                    panel: LogitPanel { first, columns, following },
                    logits: &self.logits,
                    reference: &self.reference,
                    weights: &self.weights,
                    shrinks: &shrinks,
                    seen: theirs,
                };
                take.run(kernels.arch());
            }
        }
        seen
    }
}

impl RankBuffers {
    /// Logits of a part of the vocabulary.
    fn product(
        &mut self,
        kernels: &mut CpuKernels,
        normed: &[f32],
        head: &Arc<Panels>,
        part: Range<usize>,
        logits: &mut [f32],
    ) {
        let (width, columns) = (head.inputs, part.len());
        let rows = logits.len() / columns;
        let ranks = normed.len() / (rows * width);
        if ranks == 1 {
            return kernels.matmul_part(normed, head, part, logits);
        }
        let each = head.outputs / ranks;
        self.normed.resize(rows * width, 0.0);
        self.logits.resize(rows * columns, 0.0);
        for rank in part.start / each..part.end.div_ceil(each) {
            for (own, all) in self.normed.chunks_exact_mut(width).zip(normed.chunks_exact(ranks * width))
            {
                own.copy_from_slice(&all[rank * width..][..width]);
            }
            kernels.matmul_part(&self.normed, head, part.clone(), &mut self.logits);
            let of_rank = (rank * each).max(part.start)..((rank + 1) * each).min(part.end);
            let of_rank = of_rank.start - part.start..of_rank.end - part.start;
            for (to, from) in logits.chunks_exact_mut(columns).zip(self.logits.chunks_exact(columns)) {
                to[of_rank.clone()].copy_from_slice(&from[of_rank.clone()]);
            }
        }
    }
}

/// Adds statistics of some positions to the sums, the reference's first.
fn add(sums: &mut [WindowQuality], seen: &[Vec<LogitStatistics>]) {
    let Some(reference) = seen.first() else { return };
    for (at, (sum, seen)) in sums.iter_mut().zip(seen).enumerate() {
        for (one, p) in seen.iter().zip(reference) {
            sum.predicted += 1;
            sum.nll += one.log_total() - f64::from(one.following);
            sum.agreed += u32::from(one.best == p.best);
            let kl = one.cross / p.total - (p.log_total() - one.log_total());
            // rounding can make the KL of equal distributions negative; NaN is kept
            sum.kl += if at == 0 || kl < 0.0 { 0.0 } else { kl };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cpu::evaluate_tests::log_softmax;
    use model::{Matrix, MatrixData};

    fn numbers(count: usize, scale: f32, seed: u64) -> Vec<f32> {
        let mut rng = fastrand::Rng::with_seed(seed);
        (0..count).map(|_| scale * (rng.f32() - 0.5)).collect()
    }

    fn logits(normed: &[f32], head: &[f32], width: usize) -> Vec<Vec<f64>> {
        let product = |x: &[f32], w: &[f32]| -> f64 {
            x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum()
        };
        normed
            .chunks_exact(width)
            .map(|x| head.chunks_exact(width).map(|w| product(x, w)).collect())
            .collect()
    }

    fn best(logits: &[f64]) -> usize {
        (0..logits.len()).fold(0, |best, at| if logits[at] > logits[best] { at } else { best })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// Vocabularies of one panel and of several, ordinary logits and peaked ones.
        #[test]
        fn slices_agree_with_whole_rows_in_f64(
            vocab in prop_oneof![2usize..40, 1000usize..2300], rows in 1usize..12, scale in 0.5f32..40.0, seed: u64,
        ) {
            let width = 8;
            let head = numbers(vocab * width, 2.0, seed);
            let normed = [1, 2].map(|n| numbers(rows * width, scale, seed ^ n));
            let following: Vec<u32> = (0..rows).map(|row| (seed as usize / (row + 1) % vocab) as u32).collect();
            let data = MatrixData::F32(head.clone());
            let matrix = Arc::new(Panels::from_matrix(&Matrix { outputs: vocab, inputs: width, data }));
            let mut loss = Loss::default();
            let found = loss.of(&mut CpuKernels::default(), [&matrix, &matrix], &normed[0], &[&normed[1], &normed[0]], &following);
            let [p, q] = [0, 1].map(|at| logits(&normed[at], &head, width));
            let mut wanted = [WindowQuality::default(); 2];
            for (row, token) in following.iter().enumerate() {
                let (p, q) = (log_softmax(&p[row]), log_softmax(&q[row]));
                wanted[0].nll -= p[*token as usize];
                wanted[1].nll -= q[*token as usize];
                wanted[1].kl += p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum::<f64>();
                wanted[1].agreed += u32::from(best(&p) == best(&q));
            }
            let close = |a: f64, b: f64| (a - b).abs() < 2e-5 * (1.0 + b.abs());
            for (found, wanted) in found.iter().zip(&wanted) {
                prop_assert!(close(found.nll, wanted.nll), "{found:?} {wanted:?}");
                prop_assert_eq!(found.predicted as usize, rows);
            }
            prop_assert!(close(found[1].kl, wanted[1].kl), "{:?} {:?}", found[1], wanted[1]);
            prop_assert_eq!(found[1].agreed, wanted[1].agreed);
            // the reference beside itself: nothing lost, exactly
            prop_assert_eq!((found[2].kl, found[2].agreed), (0.0, rows as u32));
            prop_assert_eq!(found[2].nll, found[0].nll);
            prop_assert!(found[1].kl >= 0.0);
        }
    }
}
