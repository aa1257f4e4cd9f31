//! Lowering of plan operations to launches, with arguments and geometry for a step size. Attention, matrix products and
//! experts have files of their own.

use super::blas::MatMul;
use super::experts::PerExpert;
use super::kernels::{KernelCall, KernelSource, geometry};
use super::matmul::MatvecChoice;
use super::memory::RankMemory;
use super::one_shot::OneShotRegions;
use super::program::{GpuProgram, StepSize};
use crate::comm::Exchange;
use crate::generate::Sampling;
use base::error::{Error, Result};
use machine::driver::{Arguments, DevicePtr, Launch, Memory, arguments};
use plan::{Element, Kind, ModelShape, Operation, Rows, ValueId};

/// One call of an operation; calls are enqueued in order on its stream.
#[derive(Debug)]
pub(super) enum OperationCall {
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

/// Everything that the launches of a rank's step depend on, except the step's size.
#[derive(Clone, Copy)]
pub(super) struct Binder<'a> {
    pub kernels: KernelSource<'a>,
    pub program: &'a GpuProgram,
    pub shape: &'a ModelShape,
    pub rank: &'a RankMemory,
    /// Buffers by [`GpuProgram::buffer`].
    pub activations: &'a [Memory],
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
    pub gpu_multiprocessors: u32,
    pub overlapped: OverlappedSms<'a>,
    /// True if kernels may start before their predecessors end.
    pub programmatic: bool,
    /// Regions of the one-shot all-reduces, if the step uses them.
    pub one_shot: Option<&'a OneShotRegions>,
}

impl Binder<'_> {
    /// Calls of each operation of the plan, for a step of this size.
    pub fn bind(&self, size: &StepSize) -> Result<Vec<Vec<OperationCall>>> {
        let groups = self.program.plan.groups;
        let parts: Vec<StepSize> = (0..groups.count).map(|group| size.of_group(groups, group)).collect();
        // tokens of the groups are contiguous, group after group
        let tokens: Vec<DevicePtr> = (0..parts.len())
            .map(|group| {
                let before: u32 = parts[..group].iter().map(StepSize::rows).sum();
                self.tokens.offset(4 * u64::from(before))
            })
            .collect();
        let operations = self.program.plan.operations.iter().enumerate();
        operations
            .map(|(at, operation)| {
                let group = operation.group as usize;
                self.calls(at, operation, &parts[group], tokens[group])
            })
            .collect()
    }

    pub(super) fn value(&self, value: ValueId) -> DevicePtr {
        self.activations[self.program.buffer(value)].ptr()
    }

    pub(super) fn columns(&self, value: ValueId) -> u32 {
        self.program.plan.values[value.index()].columns
    }

    pub(super) fn kernel(
        &self,
        name: &str,
        launch: Launch,
        arguments: Arguments,
    ) -> Result<OperationCall> {
        Ok(self.with_early_start(self.kernels.call(name, launch, arguments)?))
    }

    /// Lets a kernel start before its predecessor ends, if the step's kernels may.
    pub(super) fn with_early_start(&self, mut call: KernelCall) -> OperationCall {
        call.launch.programmatic = self.programmatic;
        OperationCall::Kernel(call)
    }

    fn calls(
        &self,
        at: usize,
        operation: &Operation,
        size: &StepSize,
        tokens: DevicePtr,
    ) -> Result<Vec<OperationCall>> {
        let plan = &self.program.plan;
        let weight = || self.weight_of(operation);
        let written = &plan.values[operation.writes[0].index()];
        let rows = size.rows_of(written.rows, self.rank.index, plan.tp);
        // shares are rounded up: the last ranks may have no rows
        if rows == 0 {
            return Ok(Vec::new());
        }
        let call = match &operation.kind {
            Kind::Embed => self.embed(operation, size, tokens, rows),
            Kind::Norm | Kind::AddNorm => self.norm(operation, rows),
            Kind::Add | Kind::AddMean | Kind::MeanShare | Kind::Quantize { .. } => {
                self.elementwise(operation, rows)
            }
            Kind::Join { root } => return self.join(operation, size, rows, *root, None),
            Kind::JoinNorm { root } => return self.join(operation, size, rows, *root, Some(weight()?)),
            Kind::Narrow => self.narrow(operation, rows),
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
            Kind::SiluMul { offset } => self.silu_mul(operation, size, *offset),
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
        };
        Ok(vec![call?])
    }

    fn weight_of(&self, operation: &Operation) -> Result<DevicePtr> {
        let weight = operation.weight.map(|w| &self.program.plan.weights[w.index()]);
        let weight = weight
            .ok_or_else(|| Error::failed(format!("{} has no weight in the plan", operation.name)))?;
        self.rank.weight(&weight.name)
    }

    fn embed(
        &self,
        operation: &Operation,
        size: &StepSize,
        tokens: DevicePtr,
        rows: u32,
    ) -> Result<OperationCall> {
        let written = operation.writes[0];
        let tokens = match self.program.plan.values[written.index()].rows {
            Rows::Share => {
                let tp = self.program.plan.tp;
                let share = Rows::share(size.rows() as usize, self.rank.index, tp);
                tokens.offset(4 * share.start as u64)
            }
            _ => tokens,
        };
        let columns = self.columns(written);
        let arguments = arguments![tokens, self.weight_of(operation)?, self.value(written), columns];
        self.kernel("embed", geometry::rows(rows, columns), arguments)
    }

    /// RMS norm, also of a sum.
    fn norm(&self, operation: &Operation, rows: u32) -> Result<OperationCall> {
        let read = |i: usize| self.value(operation.reads[i]);
        let write = |i: usize| self.value(operation.writes[i]);
        let (columns, eps) = (self.columns(operation.writes[0]), self.shape.norm_eps as f32);
        let (launch, weight) = (geometry::rows(rows, columns), self.weight_of(operation)?);
        if operation.kind == Kind::AddNorm {
            let arguments = arguments![read(0), read(1), weight, write(0), write(1), columns, eps];
            return self.kernel("add_norm", launch, arguments);
        }
        self.kernel("rms_norm", launch, arguments![read(0), weight, write(0), columns, eps])
    }

    /// Kernel that computes each element of its output from the same element of its inputs.
    fn elementwise(&self, operation: &Operation, rows: u32) -> Result<OperationCall> {
        let read = |i: usize| self.value(operation.reads[i]);
        let out = self.value(operation.writes[0]);
        let columns = self.columns(operation.writes[0]);
        let elements = u64::from(rows) * u64::from(columns);
        let mean = 1.0 / self.program.plan.tp as f32;
        let (name, arguments) = match operation.kind {
            Kind::AddMean => ("add_mean", arguments![read(0), read(1), out, mean, elements]),
            Kind::MeanShare => ("mean_share", arguments![read(0), out, mean, elements]),
            Kind::Quantize { .. } => {
                let mut arguments = arguments![read(0), out];
                self.program.eight(columns).append(&mut arguments, elements);
                ("quantize", arguments)
            }
            _ => ("add", arguments![read(0), read(1), out, elements]),
        };
        self.kernel(name, self.element_launch(elements), arguments)
    }

    fn narrow(&self, operation: &Operation, rows: u32) -> Result<OperationCall> {
        let (read, written) = (operation.reads[0], operation.writes[0]);
        let columns = self.columns(written);
        let arguments = arguments![self.value(read), self.value(written), self.columns(read), columns];
        self.kernel("narrow", geometry::rows(rows, columns), arguments)
    }

    fn silu_mul(&self, operation: &Operation, size: &StepSize, offset: u32) -> Result<OperationCall> {
        let (read, written) = (operation.reads[0], operation.writes[0]);
        let (stride, columns) = (self.columns(read), self.columns(written));
        let arguments = arguments![self.value(read), self.value(written), stride, offset, columns];
        self.kernel("silu_mul", geometry::silu_mul(size.rows(), columns), arguments)
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
    ) -> Result<Vec<OperationCall>> {
        let eight = self.program.eight_of_join(operation);
        let own_part = self.activations[self.program.own_part()].ptr();
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
            ("join", self.element_launch(elements))
        };
        let unpacked = eight.map(|part| {
            let (message, numbers) = (self.value(part), self.elements(part, size));
            let eight = self.program.eight(self.columns(part));
            eight.sum(self.kernels, message, own_part, 1, numbers, self.multiprocessors)
        });
        unpacked.into_iter().chain([self.kernel(name, launch, arguments)]).collect()
    }

    fn select_last(&self, operation: &Operation, size: &StepSize) -> Result<OperationCall> {
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

    fn element_launch(&self, elements: u64) -> Launch {
        geometry::elements(elements, self.multiprocessors)
    }

    /// SMs available to operation `at`.
    pub(super) fn free_multiprocessors(&self, at: usize) -> u32 {
        let OverlappedSms { sms, is_overlapped } = self.overlapped;
        let reserved = if is_overlapped.get(at).copied().unwrap_or(false) { sms } else { 0 };
        self.multiprocessors.saturating_sub(reserved).max(1)
    }

    fn sample(&self, operation: &Operation, size: &StepSize) -> Result<Vec<OperationCall>> {
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
