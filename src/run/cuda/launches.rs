//! Lowering of plan operations to launches: kernels, matrix products and collectives, with arguments and
//! geometry for a step size.

use std::ops::Range;

use super::blas::MatMul;
use super::experts::PerExpert;
use super::fp8;
use super::kernels::matvec::NextProduct;
use super::kernels::{KernelCall, Source, geometry, matvec};
use super::matmul::{MatvecChoice, Product, Way};
use super::memory::{Activations, RankMemory};
use super::one_shot::OneShot;
use super::program::{Program, StepSize};
use crate::comm::Exchange;
use crate::generate::Sampling;
use base::error::{Error, Result};
use machine::driver::{Arguments, DevicePtr, Launch, arguments};
use plan::{DType, Element, Kind, ModelShape, Operation, Phase, Placement, Rows, ValueId};

/// One call of an operation; calls are enqueued in order on its stream.
#[derive(Debug)]
pub(super) enum Call {
    /// Kernel of this project.
    Kernel(KernelCall),
    /// `out = x w^T` with cuBLASLt.
    MatMul { shape: MatMul, x: DevicePtr, w: DevicePtr, out: DevicePtr },
    /// MLPs of the touched experts with cuBLASLt; waits until the host knows the rows of each.
    PerExpert(Box<PerExpert>),
    /// NCCL exchange of `count` activations, or of `count` bytes if `bytes`.
    Exchange { exchange: Exchange, send: DevicePtr, receive: DevicePtr, count: u64, bytes: bool },
}

/// SMs that operations leave to a collective in flight.
#[derive(Clone, Copy)]
pub(super) struct OverlappedSms<'a> {
    pub sms: u32,
    /// For each operation, true if a collective may overlap it.
    pub is_overlapped: &'a [bool],
}

#[derive(Clone, Copy)]
pub(super) struct Binder<'a> {
    pub kernels: Source<'a>,
    pub program: &'a Program,
    pub shape: &'a ModelShape,
    pub rank: &'a RankMemory,
    pub activations: &'a Activations,
    pub sampling: Sampling,
    pub matvec: &'a MatvecChoice,
    /// New tokens, one per row; in decode they are in the rank's state.
    pub tokens: DevicePtr,
    /// Sequences of the whole batch; a prefill step may process a part of it.
    pub batch: u32,
    /// KV-cache capacity per sequence (tokens).
    pub capacity: u32,
    /// SMs available to compute.
    pub multiprocessors: u32,
    /// SMs of the GPU, which cuBLASLt assumes by default.
    pub whole: u32,
    pub overlapped: OverlappedSms<'a>,
    /// True if kernels may start before their predecessors end.
    pub programmatic: bool,
    /// Regions of the one-shot all-reduces, if the step uses them.
    pub one_shot: Option<&'a OneShot>,
}

impl Binder<'_> {
    pub fn bind(&self, size: &StepSize) -> Result<Vec<Vec<Call>>> {
        let operations = self.program.plan.operations.iter().enumerate();
        let groups = self.program.plan.groups;
        let parts: Vec<StepSize> = (0..groups.count).map(|group| size.of_group(groups, group)).collect();
        // tokens of the groups are contiguous, group after group
        let tokens: Vec<DevicePtr> = (0..parts.len())
            .map(|group| {
                let before: u32 = parts[..group].iter().map(StepSize::rows).sum();
                self.tokens.offset(4 * u64::from(before))
            })
            .collect();
        operations
            .map(|(at, operation)| {
                let group = operation.group as usize;
                self.calls(at, operation, &parts[group], tokens[group])
            })
            .collect()
    }

    pub(super) fn value(&self, value: ValueId) -> DevicePtr {
        self.activations.buffer(self.program.buffer(value))
    }

    pub(super) fn columns(&self, value: ValueId) -> u32 {
        self.program.plan.values[value.index()].columns
    }

    pub(super) fn kernel(&self, name: &str, launch: Launch, arguments: Arguments) -> Result<Call> {
        Ok(self.early(self.kernels.call(name, launch, arguments)?))
    }

    /// Lets a kernel start before its predecessor ends, if the step's kernels may.
    pub(super) fn early(&self, mut call: KernelCall) -> Call {
        call.launch.programmatic = self.programmatic;
        Call::Kernel(call)
    }

    fn calls(
        &self,
        at: usize,
        operation: &Operation,
        size: &StepSize,
        tokens: DevicePtr,
    ) -> Result<Vec<Call>> {
        let plan = &self.program.plan;
        let read = |i: usize| self.value(operation.reads[i]);
        let write = |i: usize| self.value(operation.writes[i]);
        let weight = || -> Result<DevicePtr> {
            let weight = operation.weight.map(|w| &plan.weights[w.index()]);
            let weight = weight
                .ok_or_else(|| Error::failed(format!("{} has no weight in the plan", operation.name)))?;
            self.rank.weight(&weight.name)
        };
        let written = &plan.values[operation.writes[0].index()];
        let columns = written.columns;
        let rows = size.rows_of(written.rows, self.rank.index, plan.tp);
        // shares are rounded up: the last ranks may have no rows
        if rows == 0 {
            return Ok(Vec::new());
        }
        let elements = u64::from(rows) * u64::from(columns);
        let (by_row, by_element) = (geometry::rows(rows, columns), self.elementwise(elements));
        let (mean, eps) = (1.0 / plan.tp as f32, self.shape.norm_eps as f32);
        let call = match &operation.kind {
            Kind::Embed => {
                let tokens = match written.rows {
                    Rows::Share => {
                        let share = Rows::share(size.rows() as usize, self.rank.index, plan.tp);
                        tokens.offset(4 * share.start as u64)
                    }
                    _ => tokens,
                };
                self.kernel("embed", by_row, arguments![tokens, weight()?, write(0), columns])
            }
            Kind::Norm => {
                self.kernel("rms_norm", by_row, arguments![read(0), weight()?, write(0), columns, eps])
            }
            Kind::AddNorm => {
                let arguments =
                    arguments![read(0), read(1), weight()?, write(0), write(1), columns, eps];
                self.kernel("add_norm", by_row, arguments)
            }
            Kind::Add => {
                self.kernel("add", by_element, arguments![read(0), read(1), write(0), elements])
            }
            Kind::AddMean => {
                let arguments = arguments![read(0), read(1), write(0), mean, elements];
                self.kernel("add_mean", by_element, arguments)
            }
            Kind::Join { root } => return self.join(operation, size, rows, *root, None),
            Kind::JoinNorm { root } => return self.join(operation, size, rows, *root, Some(weight()?)),
            Kind::Narrow => {
                let from = self.columns(operation.reads[0]);
                self.kernel("narrow", by_row, arguments![read(0), write(0), from, columns])
            }
            Kind::MeanShare => {
                self.kernel("mean_share", by_element, arguments![read(0), write(0), mean, elements])
            }
            Kind::MatMul => {
                let mut calls = self.matmul(at, operation, size, weight()?)?;
                calls.extend(self.output_bias(operation, rows)?);
                return Ok(calls);
            }
            Kind::Router => return self.router(operation, size, weight()?),
            Kind::Experts => return self.experts(at, operation, size, weight()?),
            Kind::RopeAppend => self.rope_append(operation, size),
            Kind::BiasRopeAppend | Kind::NormRopeAppend => {
                let first = self.before_rope(operation, size, weight()?)?;
                return Ok(vec![first, self.rope_append(operation, size)?]);
            }
            Kind::Attend | Kind::WindowAttend { .. } => return self.attend(at, operation, size),
            Kind::SiluMul { offset } => {
                let stride = self.columns(operation.reads[0]);
                let launch = geometry::silu_mul(size.rows(), columns);
                self.kernel("silu_mul", launch, arguments![read(0), write(0), stride, *offset, columns])
            }
            Kind::SelectLast => self.select_last(operation, size),
            Kind::AllReduce if self.one_shot.is_some() => self.one_shot_sum(operation, size),
            Kind::AllReduceAddNorm => self.one_shot_add_norm(operation, rows, weight()?),
            // depends on the location of the ranks, so the engine launches it
            Kind::AllReduce | Kind::ReduceScatter | Kind::AllGather => return Ok(Vec::new()),
            // the backend refuses pipeline stages, latents and chunks, and sends no tokens between ranks
            kind @ (Kind::Send
            | Kind::Receive
            | Kind::Append
            | Kind::LatentAppend
            | Kind::LatentAttend
            | Kind::SigmoidMul
            | Kind::Dispatch
            | Kind::Combine) => {
                return Err(Error::failed(format!("cuda has no kernel for {}", kind.as_str())));
            }
            Kind::Sample => return self.sample(operation, size),
            Kind::Quantize { .. } => {
                let mut arguments = arguments![read(0), write(0)];
                self.program.eight(columns).append(&mut arguments, elements);
                self.kernel("quantize", by_element, arguments)
            }
        };
        Ok(vec![call?])
    }

    /// Joins the residual with the rank's own part and the sum containing that part; operands that the join does not
    /// have are null. With 8-bit messages, the own part is first replaced by its quantized value. With the weight of
    /// a norm, also norms the result.
    fn join(
        &self,
        operation: &Operation,
        size: &StepSize,
        rows: u32,
        root: bool,
        norm: Option<DevicePtr>,
    ) -> Result<Vec<Call>> {
        let eight = self.program.eight_of_join(operation);
        let own_part = self.activations.buffer(self.program.own_part());
        let mut arguments = Arguments::default();
        for operand in 0..4 {
            let value = operation.reads.get(operand).map(|&value| match eight {
                Some(part) if part == value => own_part,
                _ => self.value(value),
            });
            arguments.push(value.unwrap_or(DevicePtr(0)));
        }
        if let Some(weight) = norm {
            arguments.push(weight);
        }
        for written in &operation.writes {
            arguments.push(self.value(*written));
        }
        let columns = self.columns(operation.writes[0]);
        let columns_of_sum = operation.reads.get(2).map_or(0, |sum| self.columns(*sum));
        let own_scale = if root { (self.program.plan.tp as f32).sqrt() } else { 1.0 };
        arguments.push(columns).push(columns_of_sum).push(own_scale);
        let (name, launch) = if norm.is_some() {
            arguments.push(self.shape.norm_eps as f32);
            ("join_norm", geometry::rows(rows, columns))
        } else {
            let elements = self.elements(operation.writes[0], size);
            arguments.push(elements);
            ("join", self.elementwise(elements))
        };
        let unpacked = eight.map(|part| {
            let (message, numbers) = (self.value(part), self.elements(part, size));
            let eight = self.program.eight(self.columns(part));
            eight.sum(self.kernels, message, own_part, 1, numbers, self.multiprocessors)
        });
        unpacked.into_iter().chain([self.kernel(name, launch, arguments)]).collect()
    }

    /// Adds the bias of a product, if it has one; of a sum, one rank adds it.
    fn output_bias(&self, operation: &Operation, rows: u32) -> Result<Option<Call>> {
        let written = operation.writes[0];
        let is_sum = self.program.plan.values[written.index()].placement == Placement::Partial;
        if operation.more.is_empty() || (is_sum && self.rank.index != 0) {
            return Ok(None);
        }
        let (bias, columns) = (self.further(operation, 0)?, self.columns(written));
        let arguments = arguments![self.value(written), bias, columns, columns];
        self.kernel("bias_heads", geometry::bias_heads(rows, columns), arguments).map(Some)
    }

    fn select_last(&self, operation: &Operation, size: &StepSize) -> Result<Call> {
        let (read, written) = (operation.reads[0], operation.writes[0]);
        let value = &self.program.plan.values[read.index()];
        // logits are always f32: copy them as `ratio` times more columns of the kernels' format
        let ratio = match value.element {
            Element::Activation => 1,
            Element::Logit | Element::Token | Element::Eight | Element::Choice => {
                4 / self.program.dtype.bytes() as u32
            }
        };
        let columns = value.columns * ratio;
        let arguments = arguments![self.value(read), self.value(written), size.tokens, columns];
        self.kernel("select_last", geometry::rows(size.sequences, columns), arguments)
    }

    pub(super) fn elements(&self, value: ValueId, size: &StepSize) -> u64 {
        let v = &self.program.plan.values[value.index()];
        u64::from(size.rows_of(v.rows, self.rank.index, self.program.plan.tp)) * u64::from(v.columns)
    }

    fn elementwise(&self, elements: u64) -> Launch {
        geometry::elements(elements, self.multiprocessors)
    }

    /// SMs available to operation `at`.
    pub(super) fn free_multiprocessors(&self, at: usize) -> u32 {
        let OverlappedSms { sms, is_overlapped } = self.overlapped;
        let reserved = if is_overlapped.get(at).copied().unwrap_or(false) { sms } else { 0 };
        self.multiprocessors.saturating_sub(reserved).max(1)
    }

    fn way(&self, rows: u32, inputs: u32, outputs: u32) -> Way {
        match rows <= matvec::most_rows(self.program.dtype, inputs) {
            true => self.matvec.way((rows, inputs, outputs)),
            false => Way::Library,
        }
    }

    fn matmul(
        &self,
        at: usize,
        operation: &Operation,
        size: &StepSize,
        weight: DevicePtr,
    ) -> Result<Vec<Call>> {
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
        let product = Product { rows, inputs, outputs, weights, logits, multiprocessors: free };
        let own = |part: Range<u32>| {
            let x_row = u64::from(inputs) * self.program.dtype.bytes();
            let out_row = u64::from(outputs) * if logits { 4 } else { self.program.dtype.bytes() };
            let first = u64::from(part.start);
            let operands = [x.offset(first * x_row), weight, out.offset(first * out_row)];
            let product = Product { rows: part.len() as u32, ..product };
            let call = product.call(self.kernels, operands, self.next_product(at, size)?)?;
            Ok(self.early(call))
        };
        let shape = product.by_library(self.program.dtype, (free < self.whole).then_some(free));
        if weights == DType::Fp8 {
            if let Some(parts) = fp8::own_rows(rows, inputs) {
                return parts.map(own).collect();
            }
            let expanded = self.rank.expanded.ptr();
            let (function, operands) = (self.kernels.get("expand_fp8")?, [weight, expanded]);
            let expand = fp8::expand(function, operands, [inputs, outputs], (0, 1), free);
            return Ok(vec![self.early(expand), Call::MatMul { shape, x, w: expanded, out }]);
        }
        match self.way(rows, inputs, outputs) {
            Way::Own => Ok(vec![own(0..rows)?]),
            Way::Library => Ok(vec![Call::MatMul { shape, x, w: weight, out }]),
        }
    }

    /// First weights of the next product, for operation `at` to prefetch. Returns `None` if cuBLASLt computes
    /// that product, or if attention in between prefetches it.
    fn next_product(&self, at: usize, size: &StepSize) -> Result<Option<NextProduct>> {
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
        let asks = |kind: &Kind| {
            matches!(kind, Kind::MatMul | Kind::Router | Kind::Experts)
                || (kind.is_attention() && ahead.attention_kb > 0)
        };
        let next =
            after.map(|at| (at, &plan.operations[at])).find(|(_, operation)| asks(&operation.kind));
        let Some((at, operation)) = next else { return Ok(None) };
        let (Kind::MatMul, Some(weight)) = (&operation.kind, operation.weight) else { return Ok(None) };
        let out = &plan.values[operation.writes[0].index()];
        let rows = size.rows_of(out.rows, self.rank.index, plan.tp);
        let (inputs, outputs) = (self.columns(operation.reads[0]), out.columns);
        if rows == 0 || self.way(rows, inputs, outputs) != Way::Own {
            return Ok(None);
        }
        let multiprocessors = self.free_multiprocessors(at);
        let dtype = self.program.dtype;
        let chosen = matvec::matvec_geometry(dtype, rows, inputs, outputs, multiprocessors);
        let start = chosen.start(dtype, inputs, outputs, multiprocessors, kb);
        let weight = self.rank.weight(&plan.weights[weight.index()].name)?;
        Ok(Some(NextProduct { weight, start }))
    }

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
        let each = u64::from(kv_heads) * u64::from(self.capacity) * u64::from(self.shape.head_dim);
        let offset = u64::from(size.first_sequence) * each * self.program.dtype.bytes();
        let (keys, values) = self.rank.cache(layer)?;
        Ok((keys.offset(offset), values.offset(offset)))
    }

    fn positions(&self, size: &StepSize) -> DevicePtr {
        self.rank.state.positions.ptr().offset(4 * u64::from(size.first_sequence))
    }

    /// Bias or norm of the heads, in place, before their rotation.
    fn before_rope(&self, operation: &Operation, size: &StepSize, weight: DevicePtr) -> Result<Call> {
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

    fn rope_append(&self, operation: &Operation, size: &StepSize) -> Result<Call> {
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

    fn attend(&self, at: usize, operation: &Operation, size: &StepSize) -> Result<Vec<Call>> {
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
            return Ok(vec![self.early(KernelCall { function, launch, arguments })]);
        }
        let (splits, partial) = (self.rank.splits, self.rank.partial.ptr());
        let mut arguments =
            arguments![queries, keys, values, partial, positions, kv_heads, capacity, splits, scale];
        let mut of_decode = constants.clone();
        if self.kernels.options().ahead.attention_kb > 0 {
            NextProduct::append(self.next_product(at, size)?, &mut arguments);
            of_decode.push(("AHEAD", 1));
        }
        let function = self.kernels.get_with("attend_decode", &of_decode)?;
        let launch = geometry::attend_decode(splits, kv_heads, size.sequences);
        let decode = self.early(KernelCall { function, launch, arguments });
        let launch = geometry::attend_combine(heads, size.sequences);
        let mut arguments = arguments![partial, out, splits];
        if let Some(sinks) = sinks {
            arguments.push(sinks);
        }
        let function = self.kernels.get_with("attend_combine", &constants)?;
        Ok(vec![decode, self.early(KernelCall { function, launch, arguments })])
    }

    fn sample(&self, operation: &Operation, size: &StepSize) -> Result<Vec<Call>> {
        let vocab = self.columns(operation.reads[0]);
        let logits = self.value(operation.reads[0]);
        let state = &self.rank.state;
        // advance by the prompt in prefill and by one token in decode; with groups of tokens, the last group
        // samples
        let advance = size.first_token + size.tokens;
        let outputs = |arguments: &mut Arguments| {
            for memory in [&state.tokens, &state.history, &state.steps, &state.positions] {
                arguments.push(memory.ptr().offset(4 * u64::from(size.first_sequence)));
            }
            arguments.push(self.batch).push(advance);
        };
        match self.sampling {
            Sampling::Greedy => {
                let (value, index) = (state.best_value.ptr(), state.best_index.ptr());
                let (parts, not_finite) = (state.parts, state.not_finite.ptr());
                let launch = geometry::sample_part(parts, size.sequences);
                let arguments = arguments![logits, vocab, value, index, not_finite];
                let part = self.kernel("sample_part", launch, arguments)?;
                let mut arguments = arguments![value, index, parts];
                outputs(&mut arguments);
                let launch = geometry::sample_greedy(size.sequences);
                Ok(vec![part, self.kernel("sample_greedy", launch, arguments)?])
            }
            Sampling::Random { temperature, top_k, seed } => {
                let top_k = u32::try_from(top_k).unwrap_or(u32::MAX).min(vocab);
                let mut arguments = arguments![logits, vocab, temperature, top_k, seed];
                arguments.push(size.first_sequence).push(state.sorted.ptr());
                outputs(&mut arguments);
                let launch = geometry::sample_random(size.sequences);
                Ok(vec![self.kernel("sample_random", launch, arguments)?])
            }
        }
    }
}
