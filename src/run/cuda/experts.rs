//! Launches of a mixture of experts: the router's choice on the device, and products of all touched experts, whose number of
//! rows only the device knows.
//!
//! Steps with many rows are processed in parts of [`ROWS`], which bounds scratch memory.

use super::kernels::KernelCall;
use super::kernels::geometry::{self, Grouped, MOST_CHOICES, MOST_EXPERTS};
use super::launches::{Binder, Call};
use super::matmul::{MatvecChoice, Product, Way};
use super::program::{Program, StepSize};
use base::error::{Error, Result};
use machine::driver::{DevicePtr, arguments};
use plan::{
    ExpertActivation, ExpertShape, Kind, ModelShape, Operation, RouterBias, RouterScore, Weight,
};

/// Maximum rows that the experts process at a time.
const ROWS: u32 = 2048;

/// Explains why the kernels cannot compute a model's experts, if so.
pub(super) fn lacks(experts: &ExpertShape) -> Option<String> {
    let ExpertShape { count, top_k, routing, .. } = experts;
    if *count > MOST_EXPERTS {
        return Some(format!("router for {count} experts (at most {MOST_EXPERTS})"));
    }
    if *top_k > MOST_CHOICES || (routing.kept_groups < routing.groups && routing.groups > MOST_CHOICES) {
        return Some(format!(
            "router that chooses {top_k} experts in {} groups (at most {MOST_CHOICES} each)",
            routing.groups
        ));
    }
    routing.weighs_input.then(|| "experts whose inputs are weighted".into())
}

/// Byte offsets in the scratch of a rank's experts, for a part of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Scratch {
    /// Experts of the rank, their width on it, and the most rows of a part.
    own: u32,
    width: u32,
    rows: u32,
    logits: u64,
    counts: u64,
    lists: u64,
    active: u64,
    outputs: u64,
    bytes: u64,
}

impl Scratch {
    fn of(shape: &ModelShape, program: &Program, [gate_up, down]: [&Weight; 2], rows: u32) -> Self {
        let experts = shape.experts.as_ref();
        let own = gate_up.parts.first().map_or(0, |part| part.experts(shape, 0, program.plan.tp).len());
        let (top_k, count) = experts.map_or((0, 0), |e| (u64::from(e.top_k), u64::from(e.count)));
        let mut scratch =
            Self { own: own as u32, width: down.inputs, rows: rows.min(ROWS), ..Self::default() };
        let (own, rows) = (own as u64, u64::from(scratch.rows));
        let mut take = |bytes: u64| {
            let at = scratch.bytes;
            scratch.bytes = (at + bytes).next_multiple_of(256);
            at
        };
        let places = [
            4 * rows * count,
            4 * own,
            4 * own * rows,
            rows * top_k * u64::from(down.inputs) * program.dtype.bytes(),
            4 * rows * top_k * u64::from(shape.hidden),
        ]
        .map(&mut take);
        [scratch.logits, scratch.counts, scratch.lists, scratch.active, scratch.outputs] = places;
        scratch
    }

    /// Scratch of a step's experts; `None` without experts.
    fn of_step(shape: &ModelShape, program: &Program, size: &StepSize) -> Option<Self> {
        let plan = &program.plan;
        let operation = plan.operations.iter().find(|operation| operation.kind == Kind::Experts)?;
        let mut weights = operation.weights().map(|w| &plan.weights[w.index()]);
        let weights = [weights.next()?, weights.next()?];
        let rows = (0..plan.groups.count).map(|group| size.of_group(plan.groups, group).rows());
        Some(Self::of(shape, program, weights, rows.max().unwrap_or(0)))
    }
}

/// Scratch memory of a rank's experts (bytes).
pub(super) fn scratch_bytes(shape: &ModelShape, program: &Program, size: &StepSize) -> u64 {
    Scratch::of_step(shape, program, size).map_or(0, |scratch| scratch.bytes)
}

impl Binder<'_> {
    fn scratch(&self, size: &StepSize) -> Result<(&ExpertShape, Scratch)> {
        let shape = self.shape.experts.as_ref();
        let scratch = Scratch::of_step(self.shape, self.program, size);
        shape.zip(scratch).ok_or_else(|| Error::failed("the plan has no experts"))
    }

    /// Pointer to further weight `i` of an operation, or null without one.
    pub(super) fn further(&self, operation: &Operation, i: usize) -> Result<DevicePtr> {
        let weight = operation.more.get(i).map(|w| &self.program.plan.weights[w.index()].name);
        weight.map_or(Ok(DevicePtr(0)), |name| self.rank.weight(name))
    }

    /// Parts of a step's rows that the experts process: first row and rows of each.
    fn parts(rows: u32, most: u32) -> impl Iterator<Item = (u32, u32)> {
        let most = most.max(1);
        (0..rows).step_by(most as usize).map(move |first| (first, most.min(rows - first)))
    }

    /// Logits of the router, then the choice.
    pub(super) fn router(
        &self,
        operation: &Operation,
        size: &StepSize,
        weight: DevicePtr,
    ) -> Result<Vec<Call>> {
        let (experts, scratch) = self.scratch(size)?;
        let (hidden, routing) = (self.shape.hidden, &experts.routing);
        let bias = self.further(operation, 0)?;
        let (x, choices) = (self.value(operation.reads[0]), self.value(operation.writes[0]));
        let logits = self.rank.experts.ptr().offset(scratch.logits);
        let score = match routing.score {
            RouterScore::Softmax => 0u32,
            RouterScore::SoftmaxChosen => 1,
            RouterScore::Sigmoid => 2,
        };
        let bias_kind = match routing.bias {
            RouterBias::None => 0u32,
            RouterBias::Logits => 1,
            RouterBias::Choice => 2,
        };
        let mut calls = Vec::new();
        for (first, rows) in Self::parts(size.rows(), scratch.rows) {
            let dtype = self.program.dtype;
            let product = Product {
                rows,
                inputs: hidden,
                outputs: experts.count,
                weights: dtype,
                logits: true,
                multiprocessors: self.multiprocessors,
            };
            let x = x.offset(u64::from(first) * u64::from(hidden) * dtype.bytes());
            let by_own = *self.matvec != MatvecChoice::Asked(Way::Library)
                && MatvecChoice::usual(dtype).way((rows, hidden, experts.count)) == Way::Own
                && product.fits_own_kernel();
            calls.push(match by_own {
                true => self.early(product.call(self.kernels, [x, weight, logits], None)?),
                false => {
                    Call::MatMul { shape: product.by_library(dtype, None), x, w: weight, out: logits }
                }
            });
            let choices = choices.offset(8 * u64::from(first) * u64::from(experts.top_k));
            let mut arguments = arguments![logits, bias, choices, rows, experts.count, experts.top_k];
            arguments.push(score).push(bias_kind).push(u32::from(routing.renormalise));
            arguments.push(routing.scale as f32).push(routing.groups).push(routing.kept_groups);
            let launch = geometry::choose_experts(rows, experts.count, self.multiprocessors);
            calls.push(self.kernel("choose_experts", launch, arguments)?);
        }
        Ok(calls)
    }

    /// MLPs of the rank's experts, for the rows that chose them.
    pub(super) fn experts(
        &self,
        at: usize,
        operation: &Operation,
        size: &StepSize,
        gate_up: DevicePtr,
    ) -> Result<Vec<Call>> {
        let plan = &self.program.plan;
        let (experts, scratch) = self.scratch(size)?;
        let ExpertShape { count, top_k, activation, .. } = *experts;
        let Scratch { own, width, .. } = scratch;
        let hidden = self.shape.hidden;
        let first_own = if own < count { self.rank.index * own } else { 0 };
        let weights = operation.weight.map_or(self.program.dtype, |w| {
            self.program.precision.of_weight(&plan.weights[w.index()], self.shape)
        });
        let (down, bias) = (self.further(operation, 0)?, self.further(operation, 1)?);
        // with a slice of every expert, one rank adds the bias of the sum
        let adds_bias = own < count || self.rank.index == 0;
        let down_bias = if adds_bias { self.further(operation, 2)? } else { DevicePtr(0) };
        let (x, all_choices) = (self.value(operation.reads[0]), self.value(operation.reads[1]));
        let out = self.value(operation.writes[0]);
        let row = u64::from(hidden) * self.program.dtype.bytes();
        let place = |offset: u64| self.rank.experts.ptr().offset(offset);
        let [counts, lists, active, outputs] =
            [scratch.counts, scratch.lists, scratch.active, scratch.outputs].map(place);
        let free = self.free_multiprocessors(at);
        let clamped = u32::from(activation == ExpertActivation::Clamped);
        let mut calls = Vec::new();
        for (first, rows) in Self::parts(size.rows(), scratch.rows) {
            let x = x.offset(u64::from(first) * row);
            let choices = all_choices.offset(8 * u64::from(first) * u64::from(top_k));
            let arguments = arguments![choices, counts, lists, rows, top_k, first_own, own];
            calls.push(self.kernel("group_choices", geometry::group_choices(own), arguments)?);
            let mut arguments = arguments![x, gate_up, bias, counts, lists, active, own, rows, width];
            arguments.push(top_k).push(clamped);
            let up = geometry::grouped(weights, rows, hidden, free);
            calls.push(self.grouped("experts_up", up, arguments)?);
            let mut arguments = arguments![active, down, down_bias, counts, lists, outputs, own, rows];
            arguments.push(hidden);
            let down = geometry::grouped(weights, rows, width, free);
            calls.push(self.grouped("experts_down", down, arguments)?);
            let out = out.offset(u64::from(first) * row);
            let arguments = arguments![outputs, choices, out, top_k, first_own, own, hidden];
            calls.push(self.kernel("sum_experts", geometry::sum_experts(rows, hidden), arguments)?);
        }
        Ok(calls)
    }

    fn grouped(
        &self,
        name: &str,
        chosen: Grouped,
        arguments: machine::driver::Arguments,
    ) -> Result<Call> {
        let function = self.kernels.get_with(name, &chosen.defines)?;
        function.set_shared(chosen.geometry.shared_bytes)?;
        Ok(self.early(KernelCall { function, launch: chosen.geometry, arguments }))
    }
}
