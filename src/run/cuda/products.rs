//! Launches of matrix products: our kernel for few rows, else cuBLASLt; fp8 weights; biases; prefetching.

use std::ops::Range;

use super::fp8;
use super::kernels::matvec::NextProduct;
use super::kernels::{geometry, matvec};
use super::launches::{Binder, OperationCall};
use super::matmul::{MatrixProduct, ProductKernel, ProductShape};
use super::program::StepSize;
use base::error::Result;
use machine::driver::{DevicePtr, arguments};
use plan::{DType, Element, Kind, Operation, Phase, Placement};

impl Binder<'_> {
    /// Adds the bias of a product, if it has one; of a sum, one rank adds it.
    pub(super) fn output_bias(&self, operation: &Operation, rows: u32) -> Result<Option<OperationCall>> {
        let written = operation.writes[0];
        let is_sum = self.program.plan.values[written.index()].placement == Placement::Partial;
        if operation.more.is_empty() || (is_sum && self.rank.index != 0) {
            return Ok(None);
        }
        let (bias, columns) = (self.further(operation, 0)?, self.columns(written));
        let arguments = arguments![self.value(written), bias, columns, columns];
        self.kernel("bias_heads", geometry::bias_heads(rows, columns), arguments).map(Some)
    }

    fn product_kernel(&self, shape: ProductShape) -> ProductKernel {
        match shape.rows <= matvec::most_rows(self.program.dtype, shape.inputs) {
            true => self.matvec.kernel_for(shape),
            false => ProductKernel::Library,
        }
    }

    pub(super) fn matmul(
        &self,
        at: usize,
        operation: &Operation,
        size: &StepSize,
        weight: DevicePtr,
    ) -> Result<Vec<OperationCall>> {
        let plan = &self.program.plan;
        let named = operation.weight.map(|id| &plan.weights[id.index()]);
        let weights =
            named.map_or(self.program.dtype, |w| self.program.precision.of_weight(w, self.shape));
        let out = &plan.values[operation.writes[0].index()];
        let (inputs, outputs) = (self.columns(operation.reads[0]), out.columns);
        let rows = size.rows_of(out.rows, self.rank.index, plan.tp);
        let logits = out.element == Element::Logit;
        let (x, out) = (self.value(operation.reads[0]), self.value(operation.writes[0]));
        let free = self.free_multiprocessors(at);
        let product = MatrixProduct { rows, inputs, outputs, weights, logits, multiprocessors: free };
        let own_kernel = |part: Range<u32>| {
            let x_row = u64::from(inputs) * self.program.dtype.bytes();
            let out_row = u64::from(outputs) * if logits { 4 } else { self.program.dtype.bytes() };
            let first = u64::from(part.start);
            let operands = [x.offset(first * x_row), weight, out.offset(first * out_row)];
            let product = MatrixProduct { rows: part.len() as u32, ..product };
            let call = product.call(self.kernels, operands, self.next_product(at, size)?)?;
            Ok(self.with_early_start(call))
        };
        let shape =
            product.by_library(self.program.dtype, (free < self.gpu_multiprocessors).then_some(free));
        if weights == DType::Fp8 {
            if let Some(parts) = fp8::own_rows(rows, inputs) {
                return parts.map(own_kernel).collect();
            }
            let expanded = self.rank.expanded.ptr();
            let (function, operands) = (self.kernels.get("expand_fp8")?, [weight, expanded]);
            let expand = fp8::expand(function, operands, [inputs, outputs], (0, 1), free);
            return Ok(vec![
                self.with_early_start(expand),
                OperationCall::MatMul { shape, x, w: expanded, out },
            ]);
        }
        match self.product_kernel(product.shape()) {
            ProductKernel::Own => Ok(vec![own_kernel(0..rows)?]),
            ProductKernel::Library => Ok(vec![OperationCall::MatMul { shape, x, w: weight, out }]),
        }
    }

    /// First weights of the next product, for operation `at` to prefetch. Returns `None` if cuBLASLt computes
    /// that product, or if attention in between prefetches it.
    pub(super) fn next_product(&self, at: usize, size: &StepSize) -> Result<Option<NextProduct>> {
        let plan = &self.program.plan;
        let ahead = self.kernels.options().ahead;
        let kb = match plan.operations[at].kind {
            Kind::Attend | Kind::WindowAttend { .. } => ahead.attention_kb,
            _ => ahead.product_kb,
        };
        if kb == 0 || plan.phase != Phase::Decode {
            return Ok(None);
        }
        // wraps around: the next step begins with the same products
        let after = (at + 1..plan.operations.len()).chain(0..at);
        let can_be_next = |kind: &Kind| {
            matches!(kind, Kind::MatMul | Kind::Router | Kind::Experts)
                || (kind.is_attention() && ahead.attention_kb > 0)
        };
        let next = after
            .map(|at| (at, &plan.operations[at]))
            .find(|(_, operation)| can_be_next(&operation.kind));
        let Some((at, operation)) = next else { return Ok(None) };
        let (Kind::MatMul, Some(weight)) = (&operation.kind, operation.weight) else { return Ok(None) };
        let out = &plan.values[operation.writes[0].index()];
        let rows = size.rows_of(out.rows, self.rank.index, plan.tp);
        let (inputs, outputs) = (self.columns(operation.reads[0]), out.columns);
        let shape = ProductShape { rows, inputs, outputs };
        if rows == 0 || self.product_kernel(shape) != ProductKernel::Own {
            return Ok(None);
        }
        let multiprocessors = self.free_multiprocessors(at);
        let dtype = self.program.dtype;
        let chosen = matvec::matvec_geometry(dtype, rows, inputs, outputs, multiprocessors);
        let start = chosen.start(dtype, inputs, outputs, multiprocessors, kb);
        let weight = self.rank.weight(&plan.weights[weight.index()].name)?;
        Ok(Some(NextProduct { weight, start }))
    }
}
