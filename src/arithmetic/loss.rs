//! Training loss of rows of logits, which are replaced by their gradients.

use pulp::{Simd, WithSimd};

use crate::real::Real;
use crate::rows::dot;
use crate::softmax::softmax;

/// Loss of a batch of windows: sums over its predicted tokens, in nats.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lost {
    pub nll: f64,
    /// KL(teacher || student); 0 without a teacher.
    pub kl: f64,
    pub predicted: u64,
}

impl std::ops::AddAssign for Lost {
    fn add_assign(&mut self, other: Self) {
        self.nll += other.nll;
        self.kl += other.kl;
        self.predicted += other.predicted;
    }
}

/// Rows of logits, replaced by their gradients.
pub struct LossRows<'a, T> {
    /// Student's logits, `[targets, vocabulary]`, replaced by their gradients.
    pub student: &'a mut [T],
    /// Teacher's logits, replaced by probabilities, and the weight of the KL loss.
    pub teacher: Option<(&'a mut [T], T)>,
    /// Target token of each row.
    pub targets: &'a [u32],
    /// Weight of one token's loss in the step.
    pub share: T,
}

impl<T: Real> WithSimd for LossRows<'_, T> {
    type Output = Lost;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Lost {
        let Self { student, mut teacher, targets, share } = self;
        let vocab = student.len() / targets.len();
        let mut lost = Lost::default();
        for (row, (student, target)) in student.chunks_exact_mut(vocab).zip(targets).enumerate() {
            let target = *target as usize;
            let logit = student[target].wide();
            let mut logits_dot = (0.0, 0.0);
            if let Some((teacher, _)) = &mut teacher {
                // sums of t x teacher's logits and of t x student's logits, before they are overwritten
                let teacher = &mut teacher[row * vocab..(row + 1) * vocab];
                let shift = shifted_entropy(teacher);
                logits_dot = (shift, dot(teacher, student).wide());
            }
            let log_total = softmax(student, T::ONE);
            lost.nll += log_total - logit;
            lost.predicted += 1;
            if let Some((teacher, weight)) = &mut teacher {
                // KL = sum t (log t - log p) = sum t log t - (sum t x logits - log total)
                let kl = logits_dot.0 - (logits_dot.1 - log_total);
                // rounding may make the KL of equal distributions negative; NaN is kept
                lost.kl += if kl < 0.0 { 0.0 } else { kl };
                let teacher = &teacher[row * vocab..(row + 1) * vocab];
                let (both, weight) = ((T::ONE + *weight) * share, *weight * share);
                for (p, t) in student.iter_mut().zip(teacher) {
                    *p = *p * both - *t * weight;
                }
            } else {
                for p in student.iter_mut() {
                    *p *= share;
                }
            }
            student[target] -= share;
        }
        lost
    }
}

/// Replaces logits by their probabilities t and returns the sum of `t log t`.
#[inline(always)]
fn shifted_entropy<T: Real>(logits: &mut [T]) -> f64 {
    let own = logits.to_vec();
    let log_total = softmax(logits, T::ONE);
    dot(logits, &own).wide() - log_total
}
