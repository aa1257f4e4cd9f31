//! Mixtures of experts in training: router and experts over a pass's rows, and their gradients.
//!
//! A choice has the form of decoding ([`crate::cpu::experts`]): pairs of an expert's number and its weight. The backward
//! pass computes gate, up and activation again instead of keeping them.

use arithmetic::{Gated, MatrixView, MatrixViewMut, Real, SiluMul, SiluMulOperand, gemm, gemm_onto};
use pulp::Arch;

use crate::cpu::experts::{by_expert, choose, choose_back};
use plan::Routing;

/// Router weights `[experts, hidden]`, and the bias of the choice, or nothing.
#[derive(Clone, Copy)]
pub(super) struct Router<'a, T> {
    pub routing: &'a Routing,
    pub weight: &'a [T],
    pub bias: &'a [T],
    pub hidden: usize,
    pub top_k: usize,
}

impl<T: Real> Router<'_, T> {
    fn logits(&self, x: &[T]) -> (usize, Vec<T>) {
        let (rows, experts) = (x.len() / self.hidden, self.weight.len() / self.hidden);
        let mut logits = vec![T::ZERO; rows * experts];
        let weight = MatrixView::rows(self.weight, 0, self.hidden).transposed();
        let x = MatrixView::rows(x, 0, self.hidden);
        gemm([rows, experts, self.hidden], [x, weight], MatrixViewMut::rows(&mut logits, 0, experts));
        (experts, logits)
    }

    pub fn choices(&self, x: &[T], choices: &mut [T]) {
        let (experts, mut logits) = self.logits(x);
        let rows = logits.chunks_exact_mut(experts).zip(choices.chunks_exact_mut(2 * self.top_k));
        rows.for_each(|(logits, choice)| choose(self.routing, self.bias, logits, choice));
    }

    /// Gradients of the logits, `[rows, experts]`, from those of the chosen weights.
    pub fn back(&self, x: &[T], choices: &[T], weights: &[T]) -> Vec<T> {
        let (experts, mut logits) = self.logits(x);
        let choices = choices.chunks_exact(2 * self.top_k).zip(weights.chunks_exact(self.top_k));
        for (logits, (choice, weights)) in logits.chunks_exact_mut(experts).zip(choices) {
            choose_back(self.routing, logits, choice, weights);
        }
        logits
    }
}

/// A rank's slice of every expert: `[gate; up]` one below the other, and down.
#[derive(Clone, Copy)]
pub(super) struct TrainedExperts<'a, T> {
    pub gate_up: &'a [T],
    pub down: &'a [T],
    pub count: usize,
    pub hidden: usize,
    pub top_k: usize,
}

/// Gradients to compute: of rows and chosen weights, or of the experts' own weights.
pub(super) enum ExpertGradients<'a, T> {
    Operands {
        rows: &'a mut [T],
        weights: &'a mut [T],
    },
    /// Accumulated; empty if not trained.
    Weights {
        gate_up: &'a mut [T],
        down: &'a mut [T],
    },
}

/// One expert's rows, gate and up of them, and their activation.
struct RoutedRows<T> {
    /// Numbers of the choices, with their weights.
    choices: Vec<(usize, T)>,
    x: Vec<T>,
    projected: Vec<T>,
    activated: Vec<T>,
}

impl<T: Real> TrainedExperts<'_, T> {
    fn width(&self) -> usize {
        self.down.len() / (self.count * self.hidden)
    }

    fn gather(&self, choices: &[(usize, T)], rows: &[T]) -> Vec<T> {
        let row = |(at, _): &(usize, T)| &rows[at / self.top_k * self.hidden..][..self.hidden];
        choices.iter().flat_map(row).copied().collect()
    }

    /// Each expert that has rows, by number.
    fn each(&self, arch: Arch, x: &[T], choices: &[T], mut visit: impl FnMut(usize, RoutedRows<T>)) {
        let (hidden, width) = (self.hidden, self.width());
        for (expert, choices) in by_expert(choices, 0..self.count).into_iter().enumerate() {
            let count = choices.len();
            if count == 0 {
                continue;
            }
            let x = self.gather(&choices, x);
            let mut projected = vec![T::ZERO; count * 2 * width];
            let w = MatrixView::rows(self.gate_up, expert * 2 * width * hidden, hidden).transposed();
            let rows = MatrixView::rows(&x, 0, hidden);
            gemm(
                [count, 2 * width, hidden],
                [rows, w],
                MatrixViewMut::rows(&mut projected, 0, 2 * width),
            );
            let mut activated = vec![T::ZERO; count * width];
            let gated = Gated { x: &projected, columns: 2 * width, offset: 0, width };
            T::silu_mul(arch, SiluMul { of: gated, y: &mut activated });
            visit(expert, RoutedRows { choices, x, projected, activated });
        }
    }

    /// For each row the sum of its experts' outputs times their weights.
    pub fn forward(&self, arch: Arch, x: &[T], choices: &[T], y: &mut [T]) {
        let (hidden, width) = (self.hidden, self.width());
        y.fill(T::ZERO);
        self.each(arch, x, choices, |expert, routed| {
            let mut outputs = vec![T::ZERO; routed.choices.len() * hidden];
            let w = MatrixView::rows(self.down, expert * hidden * width, width).transposed();
            let active = MatrixView::rows(&routed.activated, 0, width);
            let to = MatrixViewMut::rows(&mut outputs, 0, hidden);
            gemm([routed.choices.len(), hidden, width], [active, w], to);
            for ((at, weight), output) in routed.choices.iter().zip(outputs.chunks_exact(hidden)) {
                let y = &mut y[at / self.top_k * hidden..][..hidden];
                y.iter_mut().zip(output).for_each(|(y, output)| *y += *weight * *output);
            }
        });
    }

    pub fn back(&self, arch: Arch, [x, choices, dy]: [&[T]; 3], mut gradients: ExpertGradients<'_, T>) {
        let (hidden, width) = (self.hidden, self.width());
        if let ExpertGradients::Operands { rows, weights } = &mut gradients {
            rows.fill(T::ZERO);
            weights.fill(T::ZERO);
        }
        self.each(arch, x, choices, |expert, routed| {
            let count = routed.choices.len();
            let mut dy = self.gather(&routed.choices, dy);
            let down = MatrixView::rows(self.down, expert * hidden * width, width);
            let mut d_active = vec![T::ZERO; count * width];
            let outputs = MatrixView::rows(&dy, 0, hidden);
            gemm([count, width, hidden], [outputs, down], MatrixViewMut::rows(&mut d_active, 0, width));
            if let ExpertGradients::Operands { weights, .. } = &mut gradients {
                let rows = d_active.chunks_exact(width).zip(routed.activated.chunks_exact(width));
                for ((at, _), (gradient, active)) in routed.choices.iter().zip(rows) {
                    weights[*at] = T::dot(gradient, active);
                }
            }
            for ((_, weight), gradient) in routed.choices.iter().zip(d_active.chunks_exact_mut(width)) {
                gradient.iter_mut().for_each(|gradient| *gradient *= *weight);
            }
            let mut projected = vec![T::ZERO; count * 2 * width];
            let gated = Gated { x: &routed.projected, columns: 2 * width, offset: 0, width };
            let operand = SiluMulOperand { of: gated, dy: &d_active, dx: &mut projected };
            T::silu_mul_operand(arch, operand);
            let first = expert * 2 * width * hidden;
            let projected = MatrixView::rows(&projected, 0, 2 * width);
            match &mut gradients {
                ExpertGradients::Operands { rows, .. } => {
                    let mut dx = vec![T::ZERO; count * hidden];
                    let gate_up = MatrixView::rows(self.gate_up, first, hidden);
                    let to = MatrixViewMut::rows(&mut dx, 0, hidden);
                    gemm([count, hidden, 2 * width], [projected, gate_up], to);
                    for ((at, _), dx) in routed.choices.iter().zip(dx.chunks_exact(hidden)) {
                        let row = &mut rows[at / self.top_k * hidden..][..hidden];
                        row.iter_mut().zip(dx).for_each(|(row, dx)| *row += *dx);
                    }
                }
                ExpertGradients::Weights { gate_up, down } => {
                    if !gate_up.is_empty() {
                        let x = MatrixView::rows(&routed.x, 0, hidden);
                        let to = MatrixViewMut::rows(gate_up, first, hidden);
                        gemm_onto([2 * width, hidden, count], [projected.transposed(), x], to);
                    }
                    if !down.is_empty() {
                        for ((_, weight), dy) in routed.choices.iter().zip(dy.chunks_exact_mut(hidden)) {
                            dy.iter_mut().for_each(|dy| *dy *= *weight);
                        }
                        let dy = MatrixView::rows(&dy, 0, hidden).transposed();
                        let active = MatrixView::rows(&routed.activated, 0, width);
                        let to = MatrixViewMut::rows(down, expert * hidden * width, width);
                        gemm_onto([hidden, width, count], [dy, active], to);
                    }
                }
            }
        });
    }
}
