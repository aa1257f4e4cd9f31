//! Loss of windows and its gradient: cross entropy of the following tokens plus, with a teacher, the divergence of
//! the student's distribution from the teacher's.
//!
//! The head is applied to some rows at a time and their logits become gradients in place, so logits take
//! [`LOGIT_BYTES`] for any batch and vocabulary. Each row costs three products of the head's size, and one more with
//! a teacher. The gradient of a row's logits is `(p - [token]) + weight x (p - t)`, divided by the tokens of the
//! step, with student probabilities p and teacher probabilities t.

use arithmetic::{LossRows, Lost, Real, View, gemm, gemm_onto};
use pulp::Arch;

/// Approximate memory for the logits of one slice of rows.
const LOGIT_BYTES: usize = 32 << 20;

pub(super) struct Normed<'a, T> {
    pub student: &'a [T],
    pub head: &'a [T],
    pub teacher: Option<Teacher<'a, T>>,
    pub hidden: usize,
}

#[derive(Clone, Copy)]
pub(super) struct Teacher<'a, T> {
    pub normed: &'a [T],
    pub head: &'a [T],
    pub weight: f64,
}

/// Gradient outputs: the student's final norm output and, if trained, the head (accumulated).
pub(super) struct Gradients<'a, T> {
    pub normed: Option<&'a mut [T]>,
    pub head: Option<&'a mut [T]>,
    /// Weight of a token's loss: one over the tokens of the step.
    pub share: T,
}

#[derive(Debug, Default)]
pub(super) struct Logits<T> {
    student: Vec<T>,
    teacher: Vec<T>,
}

impl<T: Real> Logits<T> {
    pub fn loss(
        &mut self,
        arch: Arch,
        of: &Normed<'_, T>,
        targets: &[u32],
        mut gradients: Option<Gradients<'_, T>>,
    ) -> Lost {
        let hidden = of.hidden;
        let vocab = of.head.len() / hidden;
        let together = (LOGIT_BYTES / (vocab * size_of::<T>())).clamp(16, 512);
        let mut lost = Lost::default();
        for (at, targets) in targets.chunks(together).enumerate() {
            let (first, rows) = (at * together * hidden, targets.len());
            self.student.resize(rows * vocab, T::ZERO);
            let product = |x: &[T], head: &[T], out: &mut [T]| {
                let head = View::rows(head, 0, hidden).transposed();
                gemm(rows, vocab, hidden, View::rows(x, first, hidden), head, out, 0, vocab);
            };
            product(of.student, of.head, &mut self.student);
            if let Some(teacher) = of.teacher {
                self.teacher.resize(rows * vocab, T::ZERO);
                product(teacher.normed, teacher.head, &mut self.teacher);
            }
            let share = gradients.as_ref().map_or(T::ZERO, |gradients| gradients.share);
            lost += T::loss(
                arch,
                LossRows {
                    student: &mut self.student,
                    teacher: of.teacher.map(|teacher| (&mut self.teacher[..], T::of(teacher.weight))),
                    targets,
                    share,
                },
            );
            let Some(gradients) = &mut gradients else { continue };
            let logits = View::rows(&self.student, 0, vocab);
            if let Some(normed) = &mut gradients.normed {
                gemm(rows, hidden, vocab, logits, View::rows(of.head, 0, hidden), normed, first, hidden);
            }
            if let Some(head) = &mut gradients.head {
                let x = View::rows(of.student, first, hidden);
                gemm_onto([vocab, hidden, rows], [logits.transposed(), x], head, (0, hidden));
            }
        }
        lost
    }
}
