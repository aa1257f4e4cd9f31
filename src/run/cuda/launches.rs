//! Lowering of plan operations to launches: kernels, matrix products and collectives, with arguments and
//! geometry for a step size.

use std::ops::Range;

use super::blas::MatMul;
use super::fp8;
use super::kernels::matvec::NextProduct;
use super::kernels::{Source, attention, geometry, matvec};
use super::multiply::{MatvecChoice, OwnProduct, Way, matmul_shape};
use super::one_shot::OneShot;
use super::program::Program;
use super::rank::{Activations, RankMemory};
use super::size::StepSize;
use crate::comm::Exchange;
use crate::sample::Sampling;
use base::error::{Error, Result};
use machine::driver::{Arguments, DevicePtr, Function, Launch, Memory};
use plan::{DType, Element, Kind, ModelShape, Operation, Phase, Rows, ValueId};

/// One call of an operation; calls are enqueued in order on its stream.
#[derive(Debug)]
pub(super) enum Call {
    /// Kernel of this project.
    Kernel { function: Function, launch: Launch, arguments: Arguments },
    /// `out = x w^T` with cuBLASLt.
    MatMul { shape: MatMul, x: DevicePtr, w: DevicePtr, out: DevicePtr },
    /// NCCL exchange of `count` activations, or of `count` bytes if `bytes`.
    Exchange { exchange: Exchange, send: DevicePtr, receive: DevicePtr, count: u64, bytes: bool },
}

/// Factor of a rank's own part when it joins the residual ([`Kind::Join`]).
fn own_scale(root: bool, tp: u32) -> f32 {
    if root { (tp as f32).sqrt() } else { 1.0 }
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
    /// SMs of a collective in flight, and for each operation whether a collective may overlap it.
    pub collective: (u32, &'a [bool]),
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

    pub(super) fn kernel(&self, name: &str, geometry: Launch, arguments: Arguments) -> Result<Call> {
        self.kernel_with(self.kernels.get(name)?, geometry, arguments)
    }

    fn kernel_with(&self, function: Function, geometry: Launch, arguments: Arguments) -> Result<Call> {
        let launch = Launch { programmatic: self.programmatic, ..geometry };
        Ok(Call::Kernel { function, launch, arguments })
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
        let eps = self.shape.norm_eps as f32;
        let mut arguments = Arguments::new();
        let one = |call: Result<Call>| call.map(|call| vec![call]);
        let written = &plan.values[operation.writes[0].index()];
        let rows = size.rows_of(written.rows, self.rank.index, plan.tp);
        // shares are rounded up: the last ranks may have no rows
        if rows == 0 {
            return Ok(Vec::new());
        }
        match &operation.kind {
            Kind::Embed => {
                let columns = self.columns(operation.writes[0]);
                let tokens = match written.rows {
                    Rows::Share => {
                        let share = Rows::share(size.rows() as usize, self.rank.index, plan.tp);
                        tokens.offset(4 * share.start as u64)
                    }
                    _ => tokens,
                };
                arguments.pointer(tokens).pointer(weight()?).pointer(write(0)).u32(columns);
                one(self.kernel("embed", geometry::rows(rows, columns), arguments))
            }
            Kind::Norm => {
                let columns = self.columns(operation.writes[0]);
                arguments.pointer(read(0)).pointer(weight()?).pointer(write(0)).u32(columns).f32(eps);
                one(self.kernel("rms_norm", geometry::rows(rows, columns), arguments))
            }
            Kind::AddNorm => {
                let columns = self.columns(operation.writes[0]);
                arguments.pointer(read(0)).pointer(read(1)).pointer(weight()?);
                arguments.pointer(write(0)).pointer(write(1)).u32(columns).f32(eps);
                one(self.kernel("add_norm", geometry::rows(rows, columns), arguments))
            }
            Kind::Add => {
                let elements = self.elements(operation.writes[0], size);
                arguments.pointer(read(0)).pointer(read(1)).pointer(write(0)).u64(elements);
                one(self.kernel("add", self.elementwise(elements), arguments))
            }
            Kind::AddMean => {
                let elements = self.elements(operation.writes[0], size);
                arguments.pointer(read(0)).pointer(read(1)).pointer(write(0));
                arguments.f32(1.0 / plan.tp as f32).u64(elements);
                one(self.kernel("add_mean", self.elementwise(elements), arguments))
            }
            Kind::Join { root } => {
                let elements = self.elements(operation.writes[0], size);
                let mut calls = self.joined(operation, size, &mut arguments)?;
                arguments.pointer(write(0)).f32(own_scale(*root, plan.tp)).u64(elements);
                calls.push(self.kernel("join", self.elementwise(elements), arguments)?);
                Ok(calls)
            }
            Kind::JoinNorm { root } => {
                let columns = self.columns(operation.writes[0]);
                let mut calls = self.joined(operation, size, &mut arguments)?;
                arguments.pointer(weight()?).pointer(write(0)).pointer(write(1)).u32(columns);
                arguments.f32(own_scale(*root, plan.tp)).f32(eps);
                calls.push(self.kernel("join_norm", geometry::rows(rows, columns), arguments)?);
                Ok(calls)
            }
            Kind::MeanShare => {
                let elements = self.elements(operation.writes[0], size);
                arguments.pointer(read(0)).pointer(write(0)).f32(1.0 / plan.tp as f32).u64(elements);
                one(self.kernel("mean_share", self.elementwise(elements), arguments))
            }
            Kind::MatMul => self.matmul(at, operation, size, weight()?),
            Kind::RopeAppend => one(self.rope_append(operation, size)),
            Kind::BiasRopeAppend => {
                let (heads, kv_heads) = self.heads();
                let columns = (heads + 2 * kv_heads) * self.shape.head_dim;
                arguments.pointer(read(0)).pointer(weight()?);
                arguments.u32(self.columns(operation.reads[0])).u32(columns);
                let geometry = geometry::bias_heads(size.rows(), columns);
                let bias = self.kernel("bias_heads", geometry, arguments)?;
                Ok(vec![bias, self.rope_append(operation, size)?])
            }
            Kind::NormRopeAppend => {
                let (heads, kv_heads) = self.heads();
                arguments.pointer(read(0)).pointer(weight()?).u32(self.columns(operation.reads[0]));
                arguments.u32(heads).u32(kv_heads).f32(eps);
                let geometry = geometry::norm_heads(size.rows(), heads + kv_heads);
                let norm = self.kernel("norm_heads", geometry, arguments)?;
                Ok(vec![norm, self.rope_append(operation, size)?])
            }
            Kind::Attend => self.attend(at, operation, size),
            Kind::SiluMul { offset } => {
                let stride = self.columns(operation.reads[0]);
                let width = self.columns(operation.writes[0]);
                arguments.pointer(read(0)).pointer(write(0)).u32(stride).u32(*offset).u32(width);
                one(self.kernel("silu_mul", geometry::silu_mul(size.rows(), width), arguments))
            }
            Kind::SelectLast => {
                let value = &plan.values[operation.reads[0].index()];
                // logits are always f32: copy them as `ratio` times more columns of the kernels' format
                let ratio = match value.element {
                    Element::Activation => 1,
                    Element::Logit | Element::Token | Element::Eight => {
                        4 / self.program.dtype.bytes() as u32
                    }
                };
                let columns = value.columns * ratio;
                arguments.pointer(read(0)).pointer(write(0)).u32(size.tokens).u32(columns);
                one(self.kernel("select_last", geometry::rows(size.sequences, columns), arguments))
            }
            Kind::AllReduce if self.one_shot.is_some() => one(self.one_shot_sum(operation, size)),
            Kind::AllReduceAddNorm => one(self.one_shot_add_norm(operation, rows, weight()?)),
            // depends on the location of the ranks, so the engine launches it
            Kind::AllReduce | Kind::ReduceScatter | Kind::AllGather => Ok(Vec::new()),
            Kind::Sample => self.sample(operation, size),
            Kind::Quantize { .. } => {
                let elements = self.elements(operation.writes[0], size);
                arguments.pointer(read(0)).pointer(write(0));
                self.program.eight(written.columns).tell(&mut arguments, elements);
                one(self.kernel("quantize", self.elementwise(elements), arguments))
            }
        }
    }

    /// Appends a join's operands: residual, own part, and the sum containing that part, or null for absent
    /// operands. Returns the calls needed first: with 8-bit messages, the own part is replaced by its
    /// quantized value.
    fn joined(
        &self,
        operation: &Operation,
        size: &StepSize,
        arguments: &mut Arguments,
    ) -> Result<Vec<Call>> {
        let eight = self.program.eight_of_join(operation);
        let own_part = self.activations.buffer(self.program.own_part());
        for operand in 0..4 {
            let value = operation.reads.get(operand).map(|&value| match eight {
                Some(part) if part == value => own_part,
                _ => self.value(value),
            });
            arguments.pointer(value.unwrap_or(DevicePtr(0)));
        }
        let said = eight.map(|part| {
            let (message, numbers) = (self.value(part), self.elements(part, size));
            let eight = self.program.eight(self.columns(part));
            eight.sum(self.kernels, message, own_part, 1, numbers, self.multiprocessors)
        });
        said.into_iter().collect()
    }

    pub(super) fn elements(&self, value: ValueId, size: &StepSize) -> u64 {
        let v = &self.program.plan.values[value.index()];
        u64::from(size.rows_of(v.rows, self.rank.index, self.program.plan.tp)) * u64::from(v.columns)
    }

    fn elementwise(&self, elements: u64) -> Launch {
        geometry::elements(elements, self.multiprocessors)
    }

    /// SMs available to operation `at`.
    fn free_multiprocessors(&self, at: usize) -> u32 {
        let (taken, beside) = self.collective;
        let taken = if beside.get(at).copied().unwrap_or(false) { taken } else { 0 };
        self.multiprocessors.saturating_sub(taken).max(1)
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
        let own = |part: Range<u32>| {
            let (x_row, out_row) =
                (self.program.dtype.bytes(), if logits { 4 } else { self.program.dtype.bytes() });
            let first = u64::from(part.start);
            let product = OwnProduct {
                rows: part.len() as u32,
                inputs,
                outputs,
                weights,
                logits,
                multiprocessors: free,
                x: x.offset(first * u64::from(inputs) * x_row),
                weight,
                out: out.offset(first * u64::from(outputs) * out_row),
                next: self.next_product(at, size)?,
            };
            let (function, geometry, arguments) = product.launch(self.kernels)?;
            self.kernel_with(function, geometry, arguments)
        };
        let sm_target = (free < self.whole).then_some(free);
        let shape = matmul_shape(self.program, rows, [inputs, outputs], logits, sm_target);
        if weights == DType::Fp8 {
            if let Some(parts) = fp8::own_rows(rows, inputs) {
                return parts.map(own).collect();
            }
            let expanded = self.rank.expanded.ptr();
            let (function, launch, arguments) =
                fp8::expand(self.kernels, [weight, expanded], [inputs, outputs], free)?;
            let expand = self.kernel_with(function, launch, arguments)?;
            return Ok(vec![expand, Call::MatMul { shape, x, w: expanded, out }]);
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
            Kind::Attend => ahead.attention_kb,
            _ => ahead.product_kb,
        };
        if kb == 0 || plan.phase != Phase::Decode {
            return Ok(None);
        }
        // wraps around: the next step begins with the same products
        let after = (at + 1..plan.operations.len()).chain(0..at);
        let asks =
            |kind: &Kind| *kind == Kind::MatMul || (*kind == Kind::Attend && ahead.attention_kb > 0);
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
        (self.shape.heads / tp, self.shape.kv_heads / tp)
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
        self.rank.state.positions().ptr().offset(4 * u64::from(size.first_sequence))
    }

    fn rope_append(&self, operation: &Operation, size: &StepSize) -> Result<Call> {
        let (heads, kv_heads) = self.heads();
        let (keys, values) = self.cache(operation, size)?;
        let mut arguments = Arguments::new();
        arguments.pointer(self.value(operation.reads[0])).pointer(self.value(operation.writes[0]));
        arguments.pointer(keys).pointer(values).pointer(self.positions(size));
        arguments.pointer(self.rank.rope.ptr()).u32(self.columns(operation.reads[0]));
        arguments.u32(heads).u32(kv_heads).u32(size.tokens).u32(size.first_token).u32(self.capacity);
        let geometry = geometry::rope_append(size.rows(), heads, kv_heads, self.shape.head_dim);
        self.kernel("rope_append", geometry, arguments)
    }

    fn attend(&self, at: usize, operation: &Operation, size: &StepSize) -> Result<Vec<Call>> {
        let (heads, kv_heads) = self.heads();
        let (keys, values) = self.cache(operation, size)?;
        let (queries, out) = (self.value(operation.reads[0]), self.value(operation.writes[0]));
        let scale = (1.0 / f64::from(self.shape.head_dim).sqrt()) as f32;
        let mut arguments = Arguments::new();
        if self.program.plan.phase == Phase::Prefill {
            arguments.pointer(queries).pointer(keys).pointer(values).pointer(out);
            arguments.pointer(self.positions(size)).u32(size.tokens).u32(size.first_token).u32(heads);
            arguments.u32(kv_heads).u32(self.capacity).f32(scale);
            let geometry = attention::attend_prefill(
                self.program.dtype,
                self.shape.head_dim,
                size.tokens,
                heads,
                size.sequences,
            );
            let function = self.kernels.get("attend_prefill")?;
            function.set_shared(geometry.shared_bytes)?;
            return Ok(vec![self.kernel_with(function, geometry, arguments)?]);
        }
        let splits = self.rank.splits;
        let partial = self.rank.partial.ptr();
        arguments.pointer(queries).pointer(keys).pointer(values).pointer(partial);
        arguments.pointer(self.positions(size)).u32(kv_heads).u32(self.capacity).u32(splits).f32(scale);
        let geometry = attention::attend_decode(splits, kv_heads, size.sequences);
        let mut constants = Vec::new();
        if self.kernels.options().ahead.attention_kb > 0 {
            NextProduct::append(self.next_product(at, size)?, &mut arguments);
            constants.push(("AHEAD", 1));
        }
        let decode =
            self.kernel_with(self.kernels.get_with("attend_decode", &constants)?, geometry, arguments)?;
        let mut arguments = Arguments::new();
        arguments.pointer(partial).pointer(out).u32(splits);
        let geometry = attention::attend_combine(heads, size.sequences);
        Ok(vec![decode, self.kernel("attend_combine", geometry, arguments)?])
    }

    fn sample(&self, operation: &Operation, size: &StepSize) -> Result<Vec<Call>> {
        let vocab = self.columns(operation.reads[0]);
        let logits = self.value(operation.reads[0]);
        let state = &self.rank.state;
        let at = |memory: &Memory| memory.ptr().offset(4 * u64::from(size.first_sequence));
        // advance by the prompt in prefill and by one token in decode; with groups of tokens, the last group
        // samples
        let advance = size.first_token + size.tokens;
        let outputs = |arguments: &mut Arguments| {
            arguments.pointer(at(state.tokens())).pointer(at(state.history()));
            arguments.pointer(at(state.steps())).pointer(at(state.positions()));
            arguments.u32(self.batch).u32(advance);
        };
        let mut arguments = Arguments::new();
        match self.sampling {
            Sampling::Greedy => {
                let (value, index) = state.best();
                let parts = state.parts;
                arguments.pointer(logits).u32(vocab).pointer(value).pointer(index);
                arguments.pointer(state.not_finite().ptr());
                let geometry = geometry::sample_part(parts, size.sequences);
                let part = self.kernel("sample_part", geometry, arguments)?;
                let mut arguments = Arguments::new();
                arguments.pointer(value).pointer(index).u32(parts);
                outputs(&mut arguments);
                let geometry = geometry::sample_greedy(size.sequences);
                Ok(vec![part, self.kernel("sample_greedy", geometry, arguments)?])
            }
            Sampling::Random { temperature, top_k, seed } => {
                let top_k = u32::try_from(top_k).unwrap_or(u32::MAX).min(vocab);
                arguments.pointer(logits).u32(vocab).f32(temperature).u32(top_k).u64(seed);
                arguments.u32(size.first_sequence).pointer(state.sorted());
                outputs(&mut arguments);
                let geometry = geometry::sample_random(size.sequences);
                Ok(vec![self.kernel("sample_random", geometry, arguments)?])
            }
        }
    }
}
