//! One rank: weights, KV cache, buffers, and the loop that executes a plan's operations.
//!
//! The rank executes compute operations in order and posts collectives to its comm lane; it waits only if an
//! operation needs the result of a collective in flight. A collective's buffer is moved out of the rank, so using it
//! too early is an error, not a race. If the operand is read again (`delayed`), a copy is sent.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::attention;
use super::attention::{
    Attention, Before, KvCache, Projected, RopeTable, Sight, StepPart, StepRows, Turn,
};
use super::experts::{Experts, add_bias, choose};
use super::kernels::{Kernels, quantize};
use super::program::{Program, StoredWeight};
use crate::comm::{Broken, Exchange, Group, Pipe};
use crate::generate::Sampling;
use crate::recorder::{Clock, SpanPlace, SpanRecorder, Started, range, start};
use arithmetic::product::Panels;
use model::Matrix;
use plan::{
    Element, Kind, Lane, ModelShape, Operation, Placement, Rows, Tensor, ValueId, Weight, WeightId,
};
use trace::Span;

/// Step of a run that a rank executes.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepPlace {
    /// True if spans are recorded; only in the last sample.
    pub is_recorded: bool,
    pub sample: u32,
    /// Decode step; 0 in prefill.
    pub step: u32,
}

#[derive(Debug)]
pub(super) struct Bound<'a> {
    pub program: &'a Program,
    weights: Vec<StoredWeight>,
    slots: Vec<Vec<f32>>,
    /// Values in each buffer in the current step.
    sizes: Vec<usize>,
    /// Spare buffers for copies of operands that are read again during the collective.
    spare: Vec<Vec<f32>>,
    /// Time at which each value became available (ns).
    ready: Vec<i64>,
}

impl<'a> Bound<'a> {
    pub fn new(program: &'a Program, weights: Vec<StoredWeight>) -> Self {
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

    pub fn kept(&self, values: &[ValueId]) -> Kept {
        values.iter().map(|value| (*value, self.value(*value).to_vec())).collect()
    }

    /// Restores values computed by another plan with the same prefix.
    pub fn restore(&mut self, kept: Kept) {
        for (value, numbers) in kept {
            let slot = self.slot(value);
            self.slots[slot] = numbers;
        }
    }

    pub fn value(&self, value: ValueId) -> &[f32] {
        &self.slots[self.program.buffer_of[value.index()].0 as usize]
    }

    fn slot(&self, value: ValueId) -> usize {
        self.program.buffer_of[value.index()].0 as usize
    }

    /// Columns that each rank contributes to an all-gather; `None` if it gathers rows.
    fn gathers(&self, operation: &Operation) -> Option<usize> {
        let (own, all) = (self.columns(operation.reads[0]), self.columns(operation.writes[0]));
        (own < all).then_some(own)
    }

    fn columns(&self, value: ValueId) -> usize {
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

pub(super) type Kept = Vec<(ValueId, Vec<f32>)>;

#[derive(Debug)]
pub(super) struct Rank {
    /// Rank within its pipeline stage.
    pub index: u32,
    /// Rank over all stages.
    pub global: u32,
    pub tp: u32,
    pub first_layer: usize,
    pub shape: ModelShape,
    pub kernels: Kernels,
    pub attention: Attention,
    pub cache: KvCache,
    pub rope: Arc<RopeTable>,
    pub sampling: Sampling,
    pub clock: Clock,
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
        bound: &mut Bound<'_>,
        place: StepPlace,
        rows: &StepRows,
        tokens: &[u32],
    ) -> Result<Vec<u32>, Broken> {
        let all = 0..bound.program.plan.operations.len();
        self.run_operations(bound, place, rows, tokens, all)
    }

    /// Executes a range of a step's operations; the earlier ones must be executed or restored. No collective is in
    /// flight afterwards.
    pub fn run_operations(
        &mut self,
        bound: &mut Bound<'_>,
        place: StepPlace,
        rows: &StepRows,
        tokens: &[u32],
        operations: Range<usize>,
    ) -> Result<Vec<u32>, Broken> {
        let program = bound.program;
        let plan = &program.plan;
        let parts = rows.parts(plan.groups, tokens);
        bound.fit(&parts, self.index);
        let span_place = SpanPlace { sample: place.sample, phase: plan.phase, step: place.step };
        for recorder in [&mut self.compute, &mut self.comm.recorder] {
            recorder.enter(place.is_recorded, span_place, program.base);
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
        bound: &mut Bound<'_>,
        at: u32,
        operation: &Operation,
        bytes: u64,
    ) -> Result<(), Broken> {
        let lacks = || Broken(format!("{} without pipeline stages", operation.name));
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
    fn wait_for(&mut self, bound: &mut Bound<'_>, wanted: u32) -> Result<u32, Broken> {
        loop {
            let Completed { operation, end, buffer } = self.comm.complete()?;
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

    fn execute(
        &mut self,
        bound: &mut Bound<'_>,
        operation: &Operation,
        part: &StepPart<'_>,
        next: &mut Vec<u32>,
    ) {
        let (rows, tokens) = (&*part.rows, &*part.tokens);
        if operation.kind == Kind::Sample {
            let columns = bound.columns(operation.reads[0]);
            let logits = &bound.slots[bound.slot(operation.reads[0])];
            // one branch-free pass: a thousandth of the cost of the head's product
            self.not_finite += logits.iter().map(|logit| u64::from(!logit.is_finite())).sum::<u64>();
            let before = next.len();
            next.extend(logits.chunks_exact(columns).zip(&rows.runs).map(|(logits, run)| {
                self.sampling.choose(logits, run.sequence, run.position + run.count - 1)
            }));
            if self.to_next.is_some() {
                // for the first stage; token ids are exact in f32 up to 2^24
                let slot = bound.slot(operation.writes[0]);
                bound.slots[slot].clear();
                bound.slots[slot].extend(next[before..].iter().map(|token| *token as f32));
            }
            return;
        }
        let to = bound.slot(operation.writes[0]);
        let mut out = std::mem::take(&mut bound.slots[to]);
        let read = |i: usize| bound.slots[bound.slot(operation.reads[i])].as_slice();
        let weight = operation.weight.map(|w| &bound.weights[w.index()]);
        let further_weights: Vec<&StoredWeight> =
            operation.more.iter().map(|w| &bound.weights[w.index()]).collect();
        let further = |i: usize| further_weights.get(i).map_or(&[][..], |weight| weight.vector());
        let layer = (operation.layer.unwrap_or(0) as usize).saturating_sub(self.first_layer);
        match (&operation.kind, weight) {
            (Kind::Embed, Some(StoredWeight::Panels(table))) => {
                let received: Vec<u32>;
                let tokens = if bound.program.plan.tokens.contains(&operation.reads[0]) {
                    tokens
                } else {
                    received = read(0).iter().map(|token| *token as u32).collect();
                    &received
                };
                let own = match bound.program.plan.values[operation.writes[0].index()].rows {
                    Rows::Share => &tokens[Rows::share(tokens.len(), self.index, self.tp)],
                    Rows::Tokens | Rows::Sequences => tokens,
                };
                embed(table, own, &mut out);
            }
            (Kind::Norm, Some(StoredWeight::Rows(weight))) => {
                self.kernels.norm(read(0), weight, self.shape.norm_eps as f32, &mut out);
            }
            (Kind::MatMul, Some(StoredWeight::Panels(weight))) => {
                self.kernels.matmul(read(0), weight, &mut out);
                let value = &bound.program.plan.values[operation.writes[0].index()];
                // one rank adds the bias of a sum
                if value.placement != Placement::Partial || self.index == 0 {
                    add_bias(&mut out, Some(further(0)));
                }
            }
            (Kind::Router, Some(StoredWeight::Panels(weight))) => {
                self.route(read(0), weight, further(0), &mut out);
            }
            (Kind::Experts, Some(gate_up)) => {
                let weight = &bound.program.plan.weights[operation.weight.map_or(0, WeightId::index)];
                self.experts((weight, gate_up), &further_weights, [read(0), read(1)], &mut out);
            }
            (Kind::Add, _) => self.kernels.add(read(0), read(1), &mut out),
            (Kind::AddMean, _) => {
                self.kernels.add_scaled(read(0), 1.0 / self.tp as f32, read(1), &mut out);
            }
            (Kind::Join { root }, _) => {
                let scale = if *root { (self.tp as f32).sqrt() } else { 1.0 };
                let own = [read(0), read(1)];
                if let [residual, _, sum] = operation.reads[..] {
                    let (columns, sum) = (bound.columns(residual), (read(2), bound.columns(sum)));
                    self.kernels.join_channels(own, scale, sum, columns, &mut out);
                } else {
                    let others = (operation.reads.len() == 4).then(|| [read(2), read(3)]);
                    self.kernels.join(own, scale, others, &mut out);
                }
            }
            (Kind::Narrow, _) => {
                let [from, to] = [operation.reads[0], operation.writes[0]].map(|v| bound.columns(v));
                self.kernels.narrow(read(0), from, to, &mut out);
            }
            (Kind::Quantize { to }, _) => {
                let columns = bound.columns(operation.reads[0]);
                quantize(read(0), columns, *to, &mut out);
            }
            (Kind::MeanShare, _) => self.kernels.scale(read(0), 1.0 / self.tp as f32, &mut out),
            (
                kind @ (Kind::RopeAppend | Kind::BiasRopeAppend | Kind::NormRopeAppend | Kind::Append),
                weight,
            ) => {
                let weight = weight.and_then(StoredWeight::rows).map(Matrix::numbers);
                let before = match (kind, &weight) {
                    (Kind::BiasRopeAppend, Some(bias)) => Before::Bias(bias),
                    (Kind::NormRopeAppend, norms) => {
                        let norms = norms.as_ref().map_or(&[][..], |norms| norms);
                        Before::Norm(norms, self.shape.norm_eps as f32)
                    }
                    _ => Before::Nothing,
                };
                let turn = match kind {
                    Kind::Append => Turn::Scale(self.shape.attention.temperature),
                    _ => Turn::Rope(&self.rope),
                };
                let columns = bound.columns(operation.reads[0]);
                let projected = Projected { x: read(0), columns, before };
                self.cache.append(layer, rows, turn, projected, &mut out);
            }
            (kind @ (Kind::Attend | Kind::WindowAttend { .. }), sinks) => {
                let (window, is_chunked) = match kind {
                    Kind::WindowAttend { tokens, is_chunked } => (*tokens as usize, *is_chunked),
                    _ => (usize::MAX, false),
                };
                let sinks = sinks.map_or(&[][..], StoredWeight::vector);
                let sight = Sight { window, is_chunked, sinks };
                let cached = (&self.cache, layer);
                self.attention.attend(&self.kernels, cached, sight, rows, read(0), &mut out);
            }
            (Kind::LatentAppend, Some(StoredWeight::Rows(norm))) => {
                let norm = (&self.shape, &**norm);
                let cached = (&mut self.cache, layer);
                attention::append(&self.kernels, cached, &self.rope, rows, norm, read(0), &mut out);
            }
            (Kind::LatentAttend, Some(StoredWeight::Each(each))) => {
                let units = (&mut self.kernels, &mut self.attention);
                let (cached, up) = ((&self.cache, layer), (&self.shape, &**each));
                attention::attend(units, cached, &self.rope, rows, up, read(0), &mut out);
            }
            (Kind::SigmoidMul, _) => self.kernels.sigmoid_mul(read(0), read(1), &mut out),
            (Kind::SiluMul { offset }, _) => {
                let (columns, width) =
                    (bound.columns(operation.reads[0]), bound.columns(operation.writes[0]));
                self.kernels.silu_mul(read(0), columns, *offset as usize, width, &mut out);
            }
            (Kind::SelectLast, _) => {
                select_last(read(0), bound.columns(operation.reads[0]), rows, &mut out)
            }
            // plans for the cpu never contain these, and collectives are not executed here
            (kind, _) => unreachable!("{} is not a compute operation of the cpu backend", kind.as_str()),
        }
        bound.slots[to] = out;
    }

    /// Chooses each row's experts.
    fn route(&mut self, x: &[f32], weight: &Arc<Panels>, bias: &[f32], choices: &mut [f32]) {
        let Some(of) = &self.shape.experts else { return };
        let (experts, top_k) = (of.count as usize, of.top_k as usize);
        let mut logits = vec![0.0; x.len() / weight.inputs * experts];
        self.kernels.matmul(x, weight, &mut logits);
        let rows = logits.chunks_exact_mut(experts).zip(choices.chunks_exact_mut(2 * top_k));
        rows.for_each(|(logits, choice)| choose(&of.routing, bias, logits, choice));
    }

    /// MLPs of the experts of a weight `gate_up` and its `further` ones: down, and biases if the model has them.
    fn experts(
        &mut self,
        gate_up: (&Weight, &StoredWeight),
        further: &[&StoredWeight],
        [x, choices]: [&[f32]; 2],
        out: &mut [f32],
    ) {
        let Some(of) = &self.shape.experts else { return };
        let (weight, gate_up) = gate_up;
        let part = weight.parts.first();
        let own = part.map_or(0..0, |part| part.experts(&self.shape, self.index, self.tp));
        // with a slice of every expert, one rank adds the bias of the sum
        let is_alone = own.len() < of.count as usize || self.index == 0;
        let vector = |i: usize| further.get(i).map_or(&[][..], |weight| weight.vector());
        let experts = Experts {
            own: own.start as usize..own.end as usize,
            top_k: of.top_k as usize,
            gate_up: gate_up.each(),
            down: further.first().map_or(&[][..], |down| down.each()),
            gate_up_bias: vector(1),
            down_bias: if is_alone { vector(2) } else { &[] },
            activation: of.activation,
            weighs_input: of.routing.weighs_input,
        };
        self.kernels.experts(&experts, choices, x, out);
    }
}

/// Collectives in flight, in order, with their times. The lane has no thread of its own: a posted collective completes
/// in [`Group`], and the rank fetches the result when it needs it.
#[derive(Debug)]
pub(super) struct CommLane {
    rank: usize,
    group: Arc<Group>,
    under_way: VecDeque<Posted>,
    name: String,
    /// End of the last collective (ns).
    free_at: i64,
    recorder: SpanRecorder,
}

#[derive(Debug)]
struct Posted {
    operation: u32,
    /// Times at which the operand was ready and the collective was posted (ns).
    ready: i64,
    posted: i64,
    /// Profiler range, if recorded; ends when the collective is removed from the lane.
    _range: Option<Started>,
}

#[derive(Debug)]
struct Completed {
    operation: u32,
    /// End time (ns).
    end: i64,
    buffer: Vec<f32>,
}

impl CommLane {
    /// `rank` within the group, and over all pipeline stages.
    pub fn new((rank, global): (u32, u32), group: Arc<Group>) -> Self {
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
    ) -> Result<(), Broken> {
        let _range = named.map(|named| start(&self.name, named));
        self.under_way.push_back(Posted { operation, ready, posted, _range });
        self.group.give(self.rank, exchange, bytes, buffer)
    }

    fn complete(&mut self) -> Result<Completed, Broken> {
        let exchanged = self.group.take(self.rank)?;
        let Some(Posted { operation, ready, posted, .. }) = self.under_way.pop_front() else {
            return Err(Broken("no collective is under way".into()));
        };
        // the lane starts a collective when the one before it has ended
        let start = posted.max(self.free_at);
        let end = exchanged.end.max(start);
        self.recorder.record(operation, ready, start, end, exchanged.last_arrival.max(start));
        self.free_at = end;
        Ok(Completed { operation, end, buffer: exchanged.buffer })
    }
}

fn embed(table: &Panels, tokens: &[u32], out: &mut [f32]) {
    for (token, out) in tokens.iter().zip(out.chunks_exact_mut(table.inputs)) {
        table.row(*token as usize, out);
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

fn select_last(x: &[f32], columns: usize, rows: &StepRows, out: &mut [f32]) {
    let mut end = 0;
    for (run, out) in rows.runs.iter().zip(out.chunks_exact_mut(columns)) {
        end += run.count;
        out.copy_from_slice(&x[(end - 1) * columns..end * columns]);
    }
}
