//! Launches of attention: bias or norm of heads, rotation, KV cache, prefill and decode kernels.

use super::kernels::matvec::NextProduct;
use super::kernels::{KernelCall, geometry};
use super::launches::{Binder, OperationCall};
use super::program::StepSize;
use base::error::{Error, Result};
use machine::driver::{DevicePtr, arguments};
use plan::{Kind, Operation, Phase};

impl Binder<'_> {
    /// Query and KV heads per rank.
    fn heads(&self) -> (u32, u32) {
        let tp = self.program.plan.tp;
        (self.shape.heads / tp, self.shape.kv_heads_of(tp))
    }

    /// KV cache of a layer, offset to the step's first sequence.
    fn cache(&self, operation: &Operation, size: &StepSize) -> Result<(DevicePtr, DevicePtr)> {
        let layer = operation.layer.ok_or_else(|| {
            Error::failed(format!("{} belongs to no layer: it has no cache", operation.name))
        })?;
        let (_, kv_heads) = self.heads();
        let numbers = u64::from(kv_heads) * u64::from(self.capacity) * u64::from(self.shape.head_dim);
        let offset = u64::from(size.first_sequence) * numbers * self.program.dtype.bytes();
        let (keys, values) = self.rank.cache(layer)?;
        Ok((keys.offset(offset), values.offset(offset)))
    }

    fn positions(&self, size: &StepSize) -> DevicePtr {
        self.rank.state.positions.ptr().offset(4 * u64::from(size.first_sequence))
    }

    /// Bias or norm of the heads, in place, before their rotation.
    pub(super) fn before_rope(
        &self,
        operation: &Operation,
        size: &StepSize,
        weight: DevicePtr,
    ) -> Result<OperationCall> {
        let (heads, kv_heads) = self.heads();
        let (x, stride) = (self.value(operation.reads[0]), self.columns(operation.reads[0]));
        if operation.kind == Kind::BiasRopeAppend {
            let columns = (heads + 2 * kv_heads) * self.shape.head_dim;
            let launch = geometry::bias_heads(size.rows(), columns);
            return self.kernel("bias_heads", launch, arguments![x, weight, stride, columns]);
        }
        let launch = geometry::norm_heads(size.rows(), heads + kv_heads);
        let eps = self.shape.norm_eps as f32;
        self.kernel("norm_heads", launch, arguments![x, weight, stride, heads, kv_heads, eps])
    }

    pub(super) fn rope_append(&self, operation: &Operation, size: &StepSize) -> Result<OperationCall> {
        let (heads, kv_heads) = self.heads();
        let (keys, values) = self.cache(operation, size)?;
        let (x, stride) = (self.value(operation.reads[0]), self.columns(operation.reads[0]));
        let (queries, rope) = (self.value(operation.writes[0]), self.rank.rope.ptr());
        let mut arguments = arguments![x, queries, keys, values, self.positions(size), rope, stride];
        arguments.push(heads).push(kv_heads);
        arguments.push(size.tokens).push(size.first_token).push(self.capacity);
        let launch = geometry::rope_append(size.rows(), heads, kv_heads, self.shape.head_dim);
        self.kernel("rope_append", launch, arguments)
    }

    pub(super) fn attend(
        &self,
        at: usize,
        operation: &Operation,
        size: &StepSize,
    ) -> Result<Vec<OperationCall>> {
        let (heads, kv_heads) = self.heads();
        let (keys, values) = self.cache(operation, size)?;
        let (queries, out) = (self.value(operation.reads[0]), self.value(operation.writes[0]));
        let (positions, capacity) = (self.positions(size), self.capacity);
        let scale = (1.0 / f64::from(self.shape.head_dim).sqrt()) as f32;
        let mut constants = Vec::new();
        if let Kind::WindowAttend { tokens, .. } = operation.kind {
            constants.push(("WINDOW", tokens));
        }
        let sinks = operation.weight.map(|w| &self.program.plan.weights[w.index()].name);
        let sinks = sinks.map(|name| self.rank.weight(name)).transpose()?;
        constants.extend(sinks.map(|_| ("SINKS", 1)));
        if self.program.plan.phase == Phase::Prefill {
            let &StepSize { sequences, tokens, first_token, .. } = size;
            let mut arguments = arguments![queries, keys, values, out, positions, tokens, first_token];
            arguments.push(heads).push(kv_heads).push(capacity).push(scale);
            let dtype = self.program.dtype;
            let launch = geometry::attend_prefill(dtype, self.shape.head_dim, tokens, heads, sequences);
            if let Some(sinks) = sinks {
                arguments.push(sinks);
            }
            let function = self.kernels.get_with("attend_prefill", &constants)?;
            function.set_shared(launch.shared_bytes)?;
            return Ok(vec![self.with_early_start(KernelCall { function, launch, arguments })]);
        }
        let (splits, partial) = (self.rank.splits, self.rank.partial.ptr());
        let mut arguments =
            arguments![queries, keys, values, partial, positions, kv_heads, capacity, splits, scale];
        let mut decode_constants = constants.clone();
        if self.kernels.options().ahead.attention_kb > 0 {
            NextProduct::append(self.next_product(at, size)?, &mut arguments);
            decode_constants.push(("AHEAD", 1));
        }
        let function = self.kernels.get_with("attend_decode", &decode_constants)?;
        let launch = geometry::attend_decode(splits, kv_heads, size.sequences);
        let decode = self.with_early_start(KernelCall { function, launch, arguments });
        let launch = geometry::attend_combine(heads, size.sequences);
        let mut arguments = arguments![partial, out, splits];
        if let Some(sinks) = sinks {
            arguments.push(sinks);
        }
        let function = self.kernels.get_with("attend_combine", &constants)?;
        Ok(vec![decode, self.with_early_start(KernelCall { function, launch, arguments })])
    }
}
