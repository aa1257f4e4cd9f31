//! Backward pass of one rank.

use arithmetic::{
    Gated, MatrixView, MatrixViewMut, NormOperand, NormWeight, Real, SiluMulOperand, gemm, gemm_onto,
};

use super::attention::Windows;
use super::experts::ExpertGradients;
use super::pass::{Pass, RankContext, TrainingError, combine, experts, router, weight_of};
use super::program::{TrainingProgram, TrainingSlot};
use crate::comm::RankFailure;
use crate::cpu::attention::Heads;
use plan::{BackwardOperation, Derivative, Kind, Operation, ValueId};

impl<T: Real> Pass<T> {
    pub(super) fn backward(
        &mut self,
        context: &RankContext<'_, T>,
        operation: &BackwardOperation,
        gradients: &mut [Vec<T>],
    ) -> Result<(), TrainingError> {
        let read = |at: usize| TrainingSlot::Gradient(operation.reads[at]);
        let written = |at: usize| TrainingSlot::Gradient(operation.writes[at]);
        for at in 0..operation.reads.len() {
            self.fetch(context, read(at))?;
        }
        match operation.does.clone() {
            Derivative::AllReduce => self.all_reduce(context, read(0), written(0)),
            Derivative::Sum => {
                let mut sum = self.buffer(self.buffers[&read(0)].len());
                combine(&mut sum, [&self.buffers[&read(0)], &self.buffers[&read(1)]], |a, b| a + b);
                for at in 2..operation.reads.len() {
                    for (sum, more) in sum.iter_mut().zip(&self.buffers[&read(at)]) {
                        *sum += *more;
                    }
                }
                self.buffers.insert(written(0), sum);
                Ok(())
            }
            Derivative::Scale(scale, kept) => {
                let gradients = &context.program.plan.gradients;
                let [width, out] = [operation.reads[0], operation.writes[0]]
                    .map(|id| gradients[id.index()].columns as usize);
                let kept = kept.start as usize..kept.end as usize;
                let mut scaled = self.buffer(self.buffers[&read(0)].len() / width * out);
                let from = &self.buffers[&read(0)];
                if kept.len() < out {
                    scaled.fill(T::ZERO);
                }
                for (to, from) in scaled.chunks_exact_mut(out).zip(from.chunks_exact(width)) {
                    for (to, from) in to[kept.clone()].iter_mut().zip(&from[kept.clone()]) {
                        *to = *from * T::from_f64(scale);
                    }
                }
                self.buffers.insert(written(0), scaled);
                Ok(())
            }
            Derivative::Operand(id) => {
                let forward = &context.program.plan.plan.operations[id.index()];
                self.operand(context, forward, operation)
            }
            Derivative::Weight(id) => {
                let forward = &context.program.plan.plan.operations[id.index()];
                self.weight(context, forward, operation, gradients)
            }
        }
    }

    /// Gradient of the operands of `forward`.
    fn operand(
        &mut self,
        context: &RankContext<'_, T>,
        forward: &Operation,
        operation: &BackwardOperation,
    ) -> Result<(), TrainingError> {
        let TrainingProgram { plan, shape, .. } = context.program;
        let rows = context.batch.tokens.len();
        let columns = |value: ValueId| plan.plan.values[value.index()].columns as usize;
        let (inputs, outputs) = (columns(forward.reads[0]), columns(forward.writes[0]));
        let slot = |at: usize| TrainingSlot::Gradient(operation.reads[at]);
        let weight = weight_of(context, forward);
        let width = |at: usize| plan.gradients[operation.writes[at].index()].columns as usize;
        let arch = self.arch;
        let mut dx = self.buffer(rows * width(0));
        let mut beside =
            if operation.writes.len() > 1 { self.buffer(rows * width(1)) } else { Vec::new() };
        let operand = TrainingSlot::Value(forward.reads[0]);
        let written = TrainingSlot::Value(forward.writes[0]);
        let eps = T::from_f64(shape.norm_eps);
        let windows = context.windows();
        let dy = self.buffers[&slot(0)].as_slice();
        match forward.kind {
            Kind::MatMul => {
                let (dy, w) = (MatrixView::rows(dy, 0, outputs), MatrixView::rows(weight, 0, inputs));
                gemm([rows, inputs, outputs], [dy, w], MatrixViewMut::rows(&mut dx, 0, inputs));
            }
            // each rank's part of the gathered rows
            Kind::AllGather => {
                for (dx, dy) in dx.chunks_exact_mut(inputs).zip(dy.chunks_exact(outputs)) {
                    dx.copy_from_slice(&dy[context.rank * inputs..][..inputs]);
                }
            }
            Kind::Norm => {
                let x = self.buffers[&operand].as_slice();
                T::norm_operand(self.arch, NormOperand { x, weight, eps, dy, dx: &mut dx });
            }
            Kind::SiluMul { offset } => {
                let x = self.buffers[&operand].as_slice();
                dx.fill(T::ZERO);
                let gated = Gated { x, columns: inputs, offset: offset as usize, width: outputs };
                T::silu_mul_operand(self.arch, SiluMulOperand { of: gated, dy, dx: &mut dx });
            }
            Kind::Attend => {
                let keys =
                    self.buffers[&TrainingSlot::Keys(forward.layer.unwrap_or_default())].as_slice();
                let operands = [self.buffers[&operand].as_slice(), keys, dy];
                windows.attend_back(self.arch, &mut self.scratch, operands, [&mut dx, &mut beside]);
            }
            Kind::Router => {
                let [x, choices] = [operand, written].map(|slot| self.buffers[&slot].as_slice());
                let Some(router) = router(context, forward, inputs) else { return Ok(()) };
                let logits = router.back(x, choices, dy);
                let experts = logits.len() / rows;
                let (logits, w) =
                    (MatrixView::rows(&logits, 0, experts), MatrixView::rows(weight, 0, inputs));
                gemm([rows, inputs, experts], [logits, w], MatrixViewMut::rows(&mut dx, 0, inputs));
            }
            Kind::Experts => {
                let choices = TrainingSlot::Value(forward.reads[1]);
                let [x, choices] = [operand, choices].map(|slot| self.buffers[&slot].as_slice());
                let gradients = ExpertGradients::Operands { rows: &mut dx, weights: &mut beside };
                experts(context, forward, inputs).back(self.arch, [x, choices, dy], gradients);
            }
            Kind::RopeAppend | Kind::BiasRopeAppend | Kind::NormRopeAppend => {
                let dim = windows.heads.dim;
                let rotated = [dy, self.buffers[&slot(1)].as_slice()];
                dx.fill(T::ZERO);
                let x = self.buffers.get(&operand);
                windows.rotate_back(context.rotation, rotated, |row, number, head| {
                    let at = row * inputs + number * dim;
                    let to = &mut dx[at..at + dim];
                    match (norm_of(&forward.kind, weight, windows, number), x) {
                        (Some(weight), Some(x)) => {
                            let (x, dy) = (&x[at..at + dim], &*head);
                            T::norm_operand(arch, NormOperand { x, weight, eps, dy, dx: to });
                        }
                        _ => to.copy_from_slice(head),
                    }
                });
            }
            _ => return Err(RankFailure(format!("{} has no derivative", forward.name)).into()),
        }
        self.buffers.insert(TrainingSlot::Gradient(operation.writes[0]), dx);
        if let Some(id) = operation.writes.get(1) {
            self.buffers.insert(TrainingSlot::Gradient(*id), beside);
        }
        Ok(())
    }

    /// Adds to the gradient of the weights of `forward`.
    fn weight(
        &mut self,
        context: &RankContext<'_, T>,
        forward: &Operation,
        operation: &BackwardOperation,
        gradients: &mut [Vec<T>],
    ) -> Result<(), TrainingError> {
        let TrainingProgram { plan, parameter, shape, .. } = context.program;
        let rows = context.batch.tokens.len();
        let columns = |value: ValueId| plan.plan.values[value.index()].columns as usize;
        let (inputs, outputs) = (columns(forward.reads[0]), columns(forward.writes[0]));
        let dy = self.buffers[&TrainingSlot::Gradient(operation.reads[0])].as_slice();
        let operand = TrainingSlot::Value(forward.reads[0]);
        let windows = context.windows();
        let eps = T::from_f64(shape.norm_eps);
        let mut weights = forward.weights().map(|weight| parameter[weight.index()]);
        let Some(weight) = weights.next() else { return Ok(()) };
        if let (Kind::Experts, Some(down)) = (&forward.kind, weights.next()) {
            let choices = TrainingSlot::Value(forward.reads[1]);
            let [x, choices] = [operand, choices].map(|slot| self.buffers[&slot].as_slice());
            let mut of_down = std::mem::take(&mut gradients[down]);
            let wanted =
                ExpertGradients::Weights { gate_up: &mut gradients[weight], down: &mut of_down };
            experts(context, forward, inputs).back(self.arch, [x, choices, dy], wanted);
            gradients[down] = of_down;
            return Ok(());
        }
        let dw = &mut gradients[weight];
        match forward.kind {
            Kind::Router => {
                let written = TrainingSlot::Value(forward.writes[0]);
                let [x, choices] = [operand, written].map(|slot| self.buffers[&slot].as_slice());
                let Some(router) = router(context, forward, inputs) else { return Ok(()) };
                let logits = router.back(x, choices, dy);
                let experts = logits.len() / rows;
                let (dy, x) =
                    (MatrixView::rows(&logits, 0, experts).transposed(), MatrixView::rows(x, 0, inputs));
                gemm_onto([experts, inputs, rows], [dy, x], MatrixViewMut::rows(dw, 0, inputs));
            }
            Kind::Embed => {
                for (dy, token) in dy.chunks_exact(outputs).zip(&context.batch.tokens) {
                    for (dw, dy) in dw[*token as usize * outputs..][..outputs].iter_mut().zip(dy) {
                        *dw += *dy;
                    }
                }
            }
            Kind::MatMul => {
                let dy = MatrixView::rows(dy, 0, outputs).transposed();
                let x = MatrixView::rows(&self.buffers[&operand], 0, inputs);
                gemm_onto([outputs, inputs, rows], [dy, x], MatrixViewMut::rows(dw, 0, inputs));
            }
            Kind::Norm => {
                let x = self.buffers[&operand].as_slice();
                T::norm_weight(self.arch, NormWeight { x, eps, dy, dw });
            }
            Kind::BiasRopeAppend | Kind::NormRopeAppend => {
                let dim = windows.heads.dim;
                let x = self.buffers.get(&operand);
                let keys = &self.buffers[&TrainingSlot::Gradient(operation.reads[1])];
                windows.rotate_back(context.rotation, [dy, keys], |row, number, head| {
                    let to = match (&forward.kind, x) {
                        (Kind::BiasRopeAppend, _) => &mut dw[number * dim..][..dim],
                        (_, Some(x)) if number < windows.heads.query + windows.heads.kv => {
                            // gradient of a norm's weight: gradient of the result times the normalized input
                            let x = &x[row * inputs + number * dim..][..dim];
                            let scale = T::ONE / (T::dot(x, x) / T::from_f64(dim as f64) + eps).sqrt();
                            for (head, x) in head.iter_mut().zip(x) {
                                *head *= *x * scale;
                            }
                            let first = if number < windows.heads.query { 0 } else { dim };
                            &mut dw[first..first + dim]
                        }
                        _ => return,
                    };
                    for (to, head) in to.iter_mut().zip(head) {
                        *to += *head;
                    }
                });
            }
            _ => return Err(RankFailure(format!("{} has no weight to train", forward.name)).into()),
        }
        Ok(())
    }
}

/// Weight of the norm of a query or key head before RoPE, if the model has one.
fn norm_of<'a, T: Real>(
    kind: &Kind,
    weight: &'a [T],
    windows: Windows,
    number: usize,
) -> Option<&'a [T]> {
    let Heads { query, kv, dim } = windows.heads;
    match kind {
        Kind::NormRopeAppend if number < query => Some(&weight[..dim]),
        Kind::NormRopeAppend if number < query + kv => Some(&weight[dim..]),
        _ => None,
    }
}
