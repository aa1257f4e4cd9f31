//! Launches of a mixture of experts: the router's choice on the device, and products of all touched experts, whose number of
//! rows only the device knows.
//!
//! Decode, which is captured, and short prefill steps multiply all touched experts in one grouped kernel. Prefill steps with
//! [`PRODUCT_ROWS`] rows per expert, always eager, use cuBLASLt expert by expert ([`PerExpert`]): the host waits for the number
//! of rows of each. Weights in fp8 are expanded before each product.
//!
//! Steps with many rows are processed in parts of [`MAX_ROWS`], which bounds scratch memory.

use std::sync::Arc;

use super::blas::{Blas, MatMul};
use super::engine::Engine;
use super::fp8;
use super::kernels::KernelCall;
use super::kernels::geometry::{self, Grouped, MOST_CHOICES, MOST_EXPERTS, SLOT_ROWS};
use super::launches::{Binder, OperationCall};
use super::matmul::{MatrixProduct, MatvecChoice, ProductKernel};
use super::program::{GpuProgram, StepSize};
use base::error::{Error, Result};
use machine::driver::{DevicePtr, Function, Launch, Memory, Stream, arguments};
use plan::{
    DType, ExpertActivation, ExpertShape, Kind, ModelShape, Operation, Phase, RouterBias, RouterScore,
    Weight,
};
use table::shared_gpu;

/// Maximum rows that the experts process at a time.
const MAX_ROWS: u32 = 2048;
/// Rows per expert, if routing is balanced, from which prefill uses cuBLASLt. For each 16 rows the grouped kernel reads an
/// expert's weights, and as many numbers of x, through the second-level cache: at 64 rows 8 times the weights (fp8: 12).
/// cuBLASLt reads them once and costs two launches per expert (fp8: 5 bytes per weight and four launches). Counted, not
/// measured.
const PRODUCT_ROWS: u32 = 64;

/// True if cuBLASLt multiplies a part with so many rows. Independent of the routing: all ranks, and all runs of a shape,
/// choose alike.
fn is_per_expert(phase: Phase, experts: &ExpertShape, rows: u32) -> bool {
    // ranks that share a GPU must not load kernels during a step, as cuBLASLt does for each new number of rows
    phase == Phase::Prefill
        && !shared_gpu::is_on()
        && u64::from(rows) * u64::from(experts.top_k)
            >= u64::from(PRODUCT_ROWS) * u64::from(experts.count)
}

/// Explains why the kernels cannot compute a model's experts, if so.
pub(super) fn kernel_problem(experts: &ExpertShape) -> Option<String> {
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
    /// Only for products by cuBLASLt: slot of each choice; row of x, expert and x of each slot; an expert's expanded weight.
    slots: u64,
    rows_of: u64,
    experts_of: u64,
    gathered: u64,
    expanded: u64,
    bytes: u64,
}

impl Scratch {
    fn new(shape: &ModelShape, program: &GpuProgram, [gate_up, down]: [&Weight; 2], rows: u32) -> Self {
        let experts = shape.experts.as_ref();
        let own = gate_up.parts.first().map_or(0, |part| part.experts(shape, 0, program.plan.tp).len());
        let (top_k, count) = experts.map_or((0, 0), |e| (u64::from(e.top_k), u64::from(e.count)));
        let phase = program.plan.phase;
        let per_expert =
            experts.is_some_and(|experts| is_per_expert(phase, experts, rows.min(MAX_ROWS)));
        let is_expanded = program.precision.of_weight(gate_up, shape) == DType::Fp8;
        let mut scratch =
            Self { own: own as u32, width: down.inputs, rows: rows.min(MAX_ROWS), ..Self::default() };
        let (own, rows) = (own as u64, u64::from(scratch.rows));
        let mut take = |bytes: u64| {
            let at = scratch.bytes;
            scratch.bytes = (at + bytes).next_multiple_of(256);
            at
        };
        let (choices, hidden, width) = (rows * top_k, u64::from(shape.hidden), u64::from(down.inputs));
        let number = program.dtype.bytes();
        let (slots, columns) = match per_expert {
            // sums of gate and up, until they are activated
            true => (choices + own * u64::from(SLOT_ROWS - 1), hidden.max(2 * width)),
            false => (choices, hidden),
        };
        let places =
            [4 * rows * count, 4 * own, 4 * own * rows, slots * width * number, 4 * slots * columns]
                .map(&mut take);
        [scratch.logits, scratch.counts, scratch.lists, scratch.active, scratch.outputs] = places;
        if per_expert {
            let expanded = if is_expanded { 2 * width * hidden * number } else { 0 };
            let places = [4 * choices, 4 * slots, 4 * slots, slots * hidden * number, expanded];
            let places = places.map(&mut take);
            [scratch.slots, scratch.rows_of, scratch.experts_of, scratch.gathered, scratch.expanded] =
                places;
        }
        scratch
    }

    /// Scratch of a step's experts; `None` without experts.
    fn of_step(shape: &ModelShape, program: &GpuProgram, size: &StepSize) -> Option<Self> {
        let plan = &program.plan;
        let operation = plan.operations.iter().find(|operation| operation.kind == Kind::Experts)?;
        let mut weights = operation.weights().map(|w| &plan.weights[w.index()]);
        let weights = [weights.next()?, weights.next()?];
        let rows = (0..plan.groups.count).map(|group| size.of_group(plan.groups, group).rows());
        Some(Self::new(shape, program, weights, rows.max().unwrap_or(0)))
    }
}

/// Scratch memory of a rank's experts (bytes).
pub(super) fn scratch_bytes(shape: &ModelShape, program: &GpuProgram, size: &StepSize) -> u64 {
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
    ) -> Result<Vec<OperationCall>> {
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
            let product = MatrixProduct {
                rows,
                inputs: hidden,
                outputs: experts.count,
                weights: dtype,
                logits: true,
                multiprocessors: self.multiprocessors,
            };
            let x = x.offset(u64::from(first) * u64::from(hidden) * dtype.bytes());
            let by_own = *self.matvec != MatvecChoice::Asked(ProductKernel::Library)
                && MatvecChoice::usual(dtype).kernel_for(product.shape()) == ProductKernel::Own
                && product.fits_own_kernel();
            calls.push(match by_own {
                true => self.with_early_start(product.call(self.kernels, [x, weight, logits], None)?),
                false => OperationCall::MatMul {
                    shape: product.by_library(dtype, None),
                    x,
                    w: weight,
                    out: logits,
                },
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
    ) -> Result<Vec<OperationCall>> {
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
        let (counts, lists) = (place(scratch.counts), place(scratch.lists));
        let (active, outputs) = (place(scratch.active), place(scratch.outputs));
        let (slots, gathered) = (place(scratch.slots), place(scratch.gathered));
        let (rows_of, experts_of) = (place(scratch.rows_of), place(scratch.experts_of));
        let free = self.free_multiprocessors(at);
        let clamped = u32::from(activation == ExpertActivation::Clamped);
        let kernels = self.kernels.unstamped();
        let is_expanded = weights == DType::Fp8;
        let expand = is_expanded.then(|| kernels.get("expand_fp8")).transpose()?;
        let product = |[x, weight, out]: [DevicePtr; 3], inputs, outputs| ExpertProduct {
            shape: MatMul {
                rows: 0,
                inputs: u64::from(inputs),
                outputs: u64::from(outputs),
                dtype: self.program.dtype,
                f32_output: true,
                sm_target: (free < self.gpu_multiprocessors).then_some(free),
            },
            x,
            weight,
            out,
            expand: expand.clone().map(|function| (function, place(scratch.expanded))),
        };
        let mut calls = Vec::new();
        for (first, rows) in Self::parts(size.rows(), scratch.rows) {
            let x = x.offset(u64::from(first) * row);
            let choices = all_choices.offset(8 * u64::from(first) * u64::from(top_k));
            let arguments = arguments![choices, counts, lists, rows, top_k, first_own, own];
            calls.push(self.kernel("group_choices", geometry::group_choices(own), arguments)?);
            let by_own = *self.matvec == MatvecChoice::Asked(ProductKernel::Own);
            let per_expert = !by_own && is_per_expert(plan.phase, experts, rows);
            if per_expert {
                let mut arguments = arguments![counts, lists, rows_of, experts_of, slots, rows];
                arguments.push(top_k);
                calls.push(self.kernel("place_choices", geometry::place_choices(own), arguments)?);
                let arguments = arguments![rows_of, x, gathered, hidden];
                let gather = kernels.call("embed", geometry::rows(1, hidden), arguments)?;
                let arguments = arguments![outputs, experts_of, bias, active, width, clamped];
                let launch = geometry::expert_rows(1, width);
                calls.push(OperationCall::PerExpert(Box::new(PerExpert {
                    memory: Arc::clone(&self.rank.experts),
                    counts: scratch.counts,
                    own,
                    rows,
                    multiprocessors: free,
                    gather,
                    up: product([gathered, gate_up, outputs], hidden, 2 * width),
                    activate: kernels.call("activate_experts", launch, arguments)?,
                    down: product([active, down, outputs], width, hidden),
                })));
            } else {
                let mut arguments = arguments![x, gate_up, bias, counts, lists, active, own, rows];
                arguments.push(width).push(top_k).push(clamped);
                let up = geometry::grouped(weights, rows, hidden, free);
                calls.push(self.grouped("experts_up", up, arguments)?);
                let mut arguments = arguments![active, down, down_bias, counts, lists, outputs, own];
                arguments.push(rows).push(hidden);
                let down = geometry::grouped(weights, rows, width, free);
                calls.push(self.grouped("experts_down", down, arguments)?);
            }
            // the grouped kernel leaves a row per choice, with its bias
            let (slots, bias) =
                if per_expert { (slots, down_bias) } else { (DevicePtr(0), DevicePtr(0)) };
            let out = out.offset(u64::from(first) * row);
            let mut arguments = arguments![outputs, slots, bias, choices, out, top_k, first_own, own];
            arguments.push(hidden);
            calls.push(self.kernel("sum_experts", geometry::expert_rows(rows, hidden), arguments)?);
        }
        Ok(calls)
    }

    fn grouped(
        &self,
        name: &str,
        chosen: Grouped,
        arguments: machine::driver::Arguments,
    ) -> Result<OperationCall> {
        let function = self.kernels.get_with(name, &chosen.defines)?;
        function.set_shared(chosen.geometry.shared_bytes)?;
        Ok(self.with_early_start(KernelCall { function, launch: chosen.geometry, arguments }))
    }
}

/// An expert with rows, and its slots: the first, and their number, a multiple of [`SLOT_ROWS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OccupiedExpert {
    expert: u32,
    first: u32,
    slots: u32,
}

/// Slots of the experts with rows, as `place_choices` assigns them.
fn touched(counts: &[u32]) -> Vec<OccupiedExpert> {
    let mut first = 0;
    let all = (0..).zip(counts).map(|(expert, count)| {
        let found = OccupiedExpert { expert, first, slots: count.next_multiple_of(SLOT_ROWS) };
        first += found.slots;
        found
    });
    all.filter(|found| found.slots > 0).collect()
}

/// MLPs of the touched experts of a part, with cuBLASLt. Launches kernels without stamps.
#[derive(Debug)]
pub(super) struct PerExpert {
    /// Scratch, with the number of rows of each of `own` experts at `counts`.
    memory: Arc<Memory>,
    counts: u64,
    own: u32,
    /// Rows of the part: the most that an expert can have.
    rows: u32,
    multiprocessors: u32,
    /// `embed`, with a block per slot.
    gather: KernelCall,
    up: ExpertProduct,
    /// `activate_experts`, with blocks per slot.
    activate: KernelCall,
    down: ExpertProduct,
}

impl PerExpert {
    /// Selects an algorithm for each shape that the routing can need, outside of timed steps.
    pub fn prepare(&self, blas: &Blas) -> Result<()> {
        let most = self.rows.next_multiple_of(SLOT_ROWS);
        for rows in (SLOT_ROWS..=most).step_by(SLOT_ROWS as usize) {
            for product in [&self.up, &self.down] {
                blas.prepare(&MatMul { rows: rows.into(), ..product.shape })?;
            }
        }
        Ok(())
    }

    /// Waits for the numbers of rows, then enqueues. Not allowed during a capture.
    pub fn enqueue(&mut self, engine: &Engine, stream: &Stream) -> Result<()> {
        engine.wait(|| stream.is_done(), || "the choice of experts".into())?;
        let mut counts = vec![0u32; self.own as usize];
        self.memory.download(self.counts, bytemuck::cast_slice_mut(&mut counts))?;
        if let Some(count) = counts.iter().find(|count| **count > self.rows) {
            return Err(Error::failed(format!("{count} rows of an expert in a part of {}", self.rows)));
        }
        let all = touched(&counts);
        let slots: u32 = all.iter().map(|touched| touched.slots).sum();
        if slots == 0 {
            return Ok(());
        }
        let launch = |call: &mut KernelCall| {
            let [_, parts, _] = call.launch.grid;
            call.launch = Launch { grid: [slots, parts, 1], ..call.launch };
            call.enqueue(stream)
        };
        launch(&mut self.gather)?;
        for touched in &all {
            self.up.enqueue(engine, stream, touched, (self.own, self.multiprocessors))?;
        }
        launch(&mut self.activate)?;
        for touched in &all {
            self.down.enqueue(engine, stream, touched, (self.own, self.multiprocessors))?;
        }
        Ok(())
    }
}

/// A product of each touched expert's slots with its weight.
#[derive(Debug)]
struct ExpertProduct {
    /// Shape for one expert, without rows.
    shape: MatMul,
    /// Inputs and f32 outputs by slot.
    x: DevicePtr,
    out: DevicePtr,
    /// Weights of all experts.
    weight: DevicePtr,
    /// Kernel that expands fp8 weights, and the memory for one of them.
    expand: Option<(Function, DevicePtr)>,
}

impl ExpertProduct {
    fn enqueue(
        &self,
        engine: &Engine,
        stream: &Stream,
        touched: &OccupiedExpert,
        (own, multiprocessors): (u32, u32),
    ) -> Result<()> {
        let MatMul { inputs, outputs, dtype, .. } = self.shape;
        let (first, expert) = (u64::from(touched.first), touched.expert);
        let weight = match &self.expand {
            Some((function, expanded)) => {
                let operands = [self.weight, *expanded];
                let columns = [inputs as u32, outputs as u32];
                fp8::expand(function.clone(), operands, columns, (expert, own), multiprocessors)
                    .enqueue(stream)?;
                *expanded
            }
            None => self.weight.offset(u64::from(expert) * inputs * outputs * dtype.bytes()),
        };
        let shape = MatMul { rows: touched.slots.into(), ..self.shape };
        let x = self.x.offset(first * inputs * dtype.bytes());
        engine.blas.matmul(stream, &shape, x, weight, self.out.offset(4 * first * outputs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_touched_experts_follow_each_other() {
        let of = |expert, first, slots| OccupiedExpert { expert, first, slots };
        assert_eq!(touched(&[0, 1, 64, 0, 65]), [of(1, 0, 64), of(2, 64, 64), of(4, 128, 128)]);
        assert_eq!(touched(&[0, 0]), []);
    }
}
