//! The loss of windows and its gradient: cross entropy of the tokens that follow and, where there is a teacher, how far
//! the student's distribution is from the teacher's.
//!
//! The head is applied to some rows at a time, and their logits become gradients in place, so that logits take
//! [`LOGIT_BYTES`] whatever the batch and the vocabulary: three products of the head's size a row, and one more with a
//! teacher. With p the student's probabilities and t the teacher's, the gradient of a row's logits is
//! `(p - [token]) + weight x (p - t)`, over the number of tokens of the step.

use arithmetic::{LossRows, Lost, Real, View, gemm, gemm_onto};
use pulp::Arch;

/// How much memory the logits of the rows that are handled together may take, roughly.
const LOGIT_BYTES: usize = 32 << 20;

/// What the final norm gave of the student, and of the teacher with its head.
pub(super) struct Normed<'a, T> {
    pub student: &'a [T],
    pub head: &'a [T],
    pub teacher: Option<Teacher<'a, T>>,
    /// Columns of both.
    pub hidden: usize,
}

/// What the final norm gave of the teacher, the teacher's head, and how much its distribution counts beside the tokens.
#[derive(Clone, Copy)]
pub(super) struct Teacher<'a, T> {
    pub normed: &'a [T],
    pub head: &'a [T],
    pub weight: f64,
}

/// Where gradients go: that of the student's normed rows, and, where it is trained, that of the head, to which is added.
pub(super) struct Gradients<'a, T> {
    pub normed: Option<&'a mut [T]>,
    pub head: Option<&'a mut [T]>,
    /// What a token's loss counts in the step: one over how many tokens the step predicts.
    pub share: T,
}

/// Memory for logits, kept between calls.
#[derive(Debug, Default)]
pub(super) struct Logits<T> {
    student: Vec<T>,
    teacher: Vec<T>,
}

impl<T: Real> Logits<T> {
    /// The loss of rows whose following tokens are `targets`, and its gradients where they are wanted.
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
