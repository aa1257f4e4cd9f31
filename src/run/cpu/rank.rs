//! One rank: weights, KV cache, buffers, and the loop that executes a plan's operations.
//!
//! The rank executes compute operations in order and posts collectives to its comm lane; it waits only if an
//! operation needs the result of a collective in flight. A collective's buffer is moved out of the rank, so using it
//! too early is an error, not a race. If the operand is read again (`delayed`), a copy is sent.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::attention::{AttentionScratch, KvCache, RopeTable, StepPart, StepRows};
use super::kernels::CpuKernels;
use super::program::{CpuProgram, StoredWeight};
use crate::comm::{Exchange, Pipe, RankFailure, RankGroup};
use crate::generate::Sampling;
use crate::recorder::{MonotonicClock, NvtxProcessRange, SpanRecorder, StepPlace, range, start};
use arithmetic::product::Panels;
use plan::{Element, Kind, Lane, ModelShape, Operation, Rows, Tensor, ValueId};
use trace::Span;

#[derive(Debug)]
pub(super) struct BoundProgram<'a> {
    pub program: &'a CpuProgram,
    pub weights: Vec<StoredWeight>,
    pub slots: Vec<Vec<f32>>,
    /// Values in each buffer in the current step.
    sizes: Vec<usize>,
    /// Spare buffers for copies of operands that are read again during the collective.
    spare: Vec<Vec<f32>>,
    /// Time at which each value became available (ns).
    ready: Vec<i64>,
}

impl<'a> BoundProgram<'a> {
    pub fn new(program: &'a CpuProgram, weights: Vec<StoredWeight>) -> Self {
        Self {
            weights,
            slots: program.buffers.iter().map(|_| Vec::new()).collect(),
            sizes: vec![0; program.buffers.len()],
            spare: Vec::new(),
            ready: vec![0; program.plan.values.len()],
            program,
        }
    }

    pub fn bytes(&self) -> u64 {
        let buffers = self.slots.iter().chain(&self.spare);
        buffers.map(|buffer| (buffer.capacity() * size_of::<f32>()) as u64).sum()
    }

    /// Copies a buffer into memory of an earlier copy.
    fn copy_of(&mut self, slot: usize) -> Vec<f32> {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clone_from(&self.slots[slot]);
        copy
    }

    /// The weight of a tensor, if the program stores it unfused.
    pub fn panels(&self, tensor: Tensor) -> Option<Arc<Panels>> {
        let weights = self.program.plan.weights.iter().zip(&self.weights);
        let mut alone =
            weights.filter(|(weight, _)| weight.parts.iter().all(|part| part.tensor == tensor));
        alone.find_map(|(_, held)| held.panels().cloned())
    }

    pub fn kept(&self, values: &[ValueId]) -> KeptValues {
        values.iter().map(|value| (*value, self.value(*value).to_vec())).collect()
    }

    /// Restores values computed by another plan with the same prefix.
    pub fn restore(&mut self, kept: KeptValues) {
        for (value, numbers) in kept {
            let slot = self.slot(value);
            self.slots[slot] = numbers;
        }
    }

    pub fn value(&self, value: ValueId) -> &[f32] {
        &self.slots[self.slot(value)]
    }

    pub fn slot(&self, value: ValueId) -> usize {
        self.program.buffer_of[value.index()].0 as usize
    }

    /// Columns that each rank contributes to an all-gather; `None` if it gathers rows.
    fn gathers(&self, operation: &Operation) -> Option<usize> {
        let (own, all) = (self.columns(operation.reads[0]), self.columns(operation.writes[0]));
        (own < all).then_some(own)
    }

    pub fn columns(&self, value: ValueId) -> usize {
        self.program.plan.values[value.index()].columns as usize
    }

    fn fit(&mut self, parts: &[StepPart<'_>], rank: u32) {
        let tp = self.program.plan.tp;
        let buffers = self.slots.iter_mut().zip(&mut self.sizes).zip(&self.program.buffers);
        for ((slot, size), buffer) in buffers {
            let part = &parts[buffer.group as usize].rows;
            let rows = match buffer.rows {
                Rows::Tokens => part.rows(),
                Rows::Sequences => part.runs.len(),
                Rows::Share => Rows::share(part.rows(), rank, tp).len(),
            };
            // a choice is an expert and its weight
            let numbers = if buffer.element == Element::Choice { 2 } else { 1 };
            *size = rows * buffer.columns as usize * numbers;
            slot.resize(*size, 0.0);
        }
    }
}

pub(super) type KeptValues = Vec<(ValueId, Vec<f32>)>;

#[derive(Debug)]
pub(super) struct Rank {
    /// Rank within its pipeline stage.
    pub index: u32,
    /// Rank over all stages.
    pub global: u32,
    pub tp: u32,
    pub first_layer: usize,
    pub shape: ModelShape,
    pub kernels: CpuKernels,
    pub attention: AttentionScratch,
    pub cache: KvCache,
    pub rope: Arc<RopeTable>,
    pub sampling: Sampling,
    pub clock: MonotonicClock,
    pub compute: SpanRecorder,
    pub comm: CommLane,
    /// Channels from the previous pipeline stage (on the first: from the last) and to the next; `None` without stages.
    pub from_previous: Option<Arc<Pipe>>,
    pub to_next: Option<Arc<Pipe>>,
    pub not_finite: u64,
}

impl Rank {
    /// Executes one step with one token per row; returns the next token of each run of rows.
    pub fn step(
        &mut self,
        bound: &mut BoundProgram<'_>,
        place: StepPlace,
        rows: &StepRows,
        tokens: &[u32],
    ) -> Result<Vec<u32>, RankFailure> {
        let all = 0..bound.program.plan.operations.len();
        self.run_operations(bound, place, rows, tokens, all)
    }

    /// Executes a range of a step's operations; the earlier ones must be executed or restored. No collective is in
    /// flight afterwards.
    pub fn run_operations(
        &mut self,
        bound: &mut BoundProgram<'_>,
        place: StepPlace,
        rows: &StepRows,
        tokens: &[u32],
        operations: Range<usize>,
    ) -> Result<Vec<u32>, RankFailure> {
        let program = bound.program;
        let plan = &program.plan;
        let parts = rows.parts(plan.groups, tokens);
        bound.fit(&parts, self.index);
        for recorder in [&mut self.compute, &mut self.comm.recorder] {
            recorder.enter(place, plan.phase, program.base);
        }
        let mut next = Vec::new();
        let mut now = self.clock.now();
        for tokens in &plan.tokens {
            bound.ready[tokens.index()] = now;
        }
        let last_collective = |before: usize| {
            let is_collective = |o: &Operation| o.lane == Lane::Comm && o.kind != Kind::Send;
            let at = plan.operations[..before].iter().rposition(is_collective);
            at.map(|at| at as u32)
        };
        // latest collective known to be complete
        let mut completed = last_collective(operations.start);
        for index in operations.clone() {
            let (at, operation) = (index as u32, &plan.operations[index]);
            if operation.lane == Lane::Comm && operation.kind != Kind::Send {
                let slot = bound.slot(operation.reads[0]);
                let buffer = match program.keeps[index] {
                    true => bound.copy_of(slot),
                    false => std::mem::take(&mut bound.slots[slot]),
                };
                let ready = bound.ready[operation.reads[0].index()];
                let exchange = match operation.kind {
                    Kind::ReduceScatter => {
                        Exchange::ReduceScatter { columns: bound.columns(operation.reads[0]) }
                    }
                    Kind::AllGather => Exchange::AllGather,
                    _ => Exchange::AllReduce,
                };
                let bytes = parts[operation.group as usize].bytes(&operation.cost.message_bytes);
                // the last rank to arrive computes the sum; that time belongs to the collective, not to the next
                // operation
                let named = place.is_recorded.then(|| &*program.names[index]);
                self.comm.post((at, named), [ready, now], exchange, bytes, buffer)?;
                now = self.clock.now();
                continue;
            }
            if let Some(wanted) = program.awaits[index]
                && completed.is_none_or(|done| done < wanted)
            {
                completed = Some(self.wait_for(bound, wanted)?);
                now = self.clock.now();
            }
            if operation.kind.is_transfer() {
                let bytes = parts[operation.group as usize].bytes(&operation.cost.message_bytes);
                self.transfer(bound, at, operation, bytes)?;
                now = self.clock.now();
                continue;
            }
            let span = place.is_recorded.then(|| range(&program.names[index]));
            self.execute(bound, operation, &parts[operation.group as usize], &mut next);
            drop(span);
            let end = self.clock.now();
            if place.is_recorded {
                let ready = operation.reads.iter().map(|v| bound.ready[v.index()]).max().unwrap_or(now);
                self.compute.record(at, ready, now, end, -1);
            }
            for value in &operation.writes {
                bound.ready[value.index()] = end;
            }
            now = end;
        }
        if let Some(last) = last_collective(operations.end).filter(|last| completed < Some(*last)) {
            self.wait_for(bound, last)?;
        }
        Ok(next)
    }

    /// Sends an operand to the next stage, or waits for one of the previous stage. Waiting is no work: a receive's span
    /// is empty.
    fn transfer(
        &mut self,
        bound: &mut BoundProgram<'_>,
        at: u32,
        operation: &Operation,
        bytes: u64,
    ) -> Result<(), RankFailure> {
        let lacks = || RankFailure(format!("{} without pipeline stages", operation.name));
        if let Some(&value) = operation.reads.first() {
            let pipe = self.to_next.as_ref().ok_or_else(lacks)?;
            let start = self.clock.now().max(self.comm.free_at);
            let end = pipe.send(bound.value(value).to_vec(), bytes).max(start);
            self.comm.recorder.record(at, bound.ready[value.index()], start, end, start);
            self.comm.free_at = end;
        }
        if let Some(&value) = operation.writes.first() {
            let slot = bound.slot(value);
            bound.slots[slot] = self.from_previous.as_ref().ok_or_else(lacks)?.receive()?;
            let end = self.clock.now();
            self.compute.record(at, end, end, end, -1);
            bound.ready[value.index()] = end;
        }
        Ok(())
    }

    pub fn take_spans(&mut self) -> Vec<Span> {
        let mut spans = self.compute.take();
        spans.extend(self.comm.recorder.take());
        spans
    }

    pub fn step_spans(&self) -> Vec<Span> {
        [self.compute.of_step(), self.comm.recorder.of_step()].concat()
    }

    /// Waits for collectives up to operation `wanted` and stores their results.
    fn wait_for(&mut self, bound: &mut BoundProgram<'_>, wanted: u32) -> Result<u32, RankFailure> {
        loop {
            let (operation, end, buffer) = self.comm.complete()?;
            let done = &bound.program.plan.operations[operation as usize];
            let (from, to) = (bound.slot(done.reads[0]), bound.slot(done.writes[0]));
            // the operand's buffer, or its copy, now holds the result; the result's old buffer takes its place
            let buffer = match bound.gathers(done) {
                Some(columns) => side_by_side(buffer, columns, bound.columns(done.writes[0])),
                None => buffer,
            };
            let mut freed = std::mem::replace(&mut bound.slots[to], buffer);
            match bound.program.keeps[operation as usize] {
                true => bound.spare.push(freed),
                false => {
                    freed.resize(bound.sizes[from], 0.0);
                    bound.slots[from] = freed;
                }
            }
            bound.ready[done.writes[0].index()] = end;
            if operation >= wanted {
                return Ok(operation);
            }
        }
    }
}

/// Collectives in flight, in order, with their times. The lane has no thread of its own: a posted collective completes
/// in [`RankGroup`], and the rank fetches the result when it needs it.
#[derive(Debug)]
pub(super) struct CommLane {
    rank: usize,
    group: Arc<RankGroup>,
    under_way: VecDeque<PostedCollective>,
    name: String,
    /// End of the last collective (ns).
    free_at: i64,
    recorder: SpanRecorder,
}

#[derive(Debug)]
struct PostedCollective {
    operation: u32,
    /// Times at which the operand was ready and the collective was posted (ns).
    ready: i64,
    posted: i64,
    /// Profiler range, if recorded; ends when the collective is removed from the lane.
    _range: Option<NvtxProcessRange>,
}

impl CommLane {
    /// `rank` within the group, and over all pipeline stages.
    pub fn new((rank, global): (u32, u32), group: Arc<RankGroup>) -> Self {
        let recorder = SpanRecorder::new(global, Lane::Comm);
        let (name, under_way) = (format!("rank {global} comm"), VecDeque::new());
        Self { rank: rank as usize, group, under_way, name, free_at: 0, recorder }
    }

    /// Posts a collective with a message of `bytes` bytes, whose operand was ready at `ready`, at time `posted` (ns).
    /// `named` is the operation's name if it is recorded.
    fn post(
        &mut self,
        (operation, named): (u32, Option<&str>),
        [ready, posted]: [i64; 2],
        exchange: Exchange,
        bytes: u64,
        buffer: Vec<f32>,
    ) -> Result<(), RankFailure> {
        let _range = named.map(|named| start(&self.name, named));
        self.under_way.push_back(PostedCollective { operation, ready, posted, _range });
        self.group.give(self.rank, exchange, bytes, buffer)
    }

    /// Waits for the oldest collective; returns its operation, end (ns) and result.
    fn complete(&mut self) -> Result<(u32, i64, Vec<f32>), RankFailure> {
        let exchanged = self.group.take(self.rank)?;
        let Some(PostedCollective { operation, ready, posted, .. }) = self.under_way.pop_front() else {
            return Err(RankFailure("no collective is under way".into()));
        };
        // the lane starts a collective when the one before it has ended
        let start = posted.max(self.free_at);
        let end = exchanged.end.max(start);
        self.recorder.record(operation, ready, start, end, exchanged.last_arrival.max(start));
        self.free_at = end;
        Ok((operation, end, exchanged.buffer))
    }
}

/// Interleaves all-gathered columns: rank-major blocks become rows of all columns.
pub(super) fn side_by_side<T: Copy>(gathered: Vec<T>, columns: usize, all_columns: usize) -> Vec<T> {
    let rows = gathered.len() / all_columns;
    if rows == 1 {
        return gathered;
    }
    let mut out = Vec::with_capacity(gathered.len());
    for row in 0..rows {
        for of_rank in gathered.chunks_exact(rows * columns) {
            out.extend_from_slice(&of_rank[row * columns..][..columns]);
        }
    }
    out
}
