//! Latency of an operation on simulated hardware, alone on its lane.
//!
//! Matrix products and attention come from measured latency tables by GPU, format and engine, scaled to the stack;
//! everything else from rooflines plus a fixed time per kernel; collectives from the link.

use super::quantities::StepQuantities;
use super::routing::{ExpertRouting, RoutedWork};
use super::simulator::precision;
use machine::hardware::{
    ActivationScales, AllToAll, AttentionKind, AttentionSizes, CollectiveCost, CostSource, ExpertSizes,
    Peaks, Tables, Target, TransferCost,
};
use plan::{
    Cost, DType, Groups, Kind, Lane, ModelShape, Operation, Phase, Plan, Precision, Quantity, Rows, Step,
};
use table::Spec;

pub(super) const NS_PER_US: f64 = 1e3;

/// Kernels of routed experts: sorting the choices, two grouped products with the activation, the sum.
const EXPERT_KERNELS: u32 = 4;

/// Kernels of attention over latents: two products with the up projection around the attention itself.
const LATENT_KERNELS: u32 = 3;

/// Shortest time of a layer's routed experts, as the quickest engines were measured at one token (us).
const EXPERTS_START_US: f64 = 15.0;

/// Latency model of one rank in one phase of a cell.
#[derive(Clone, Debug)]
pub(super) struct CostModel<'a> {
    target: &'a Target,
    collective: CollectiveCost<'a>,
    /// Cost of a send to the next pipeline stage; `None` without stages.
    transfer: Option<TransferCost<'a>>,
    tables: Option<&'static Tables>,
    phase: Phase,
    shape: ModelShape,
    precision: Precision,
    /// Dtype of activations.
    dtype: DType,
    head_dim: u64,
    kv_heads: u64,
    /// Routing of tokens to experts, in a model with experts.
    routed: Option<ExpertRouting>,
    /// Slots of a static KV cache per sequence.
    slots: u64,
    groups: Groups,
}

/// Latency of an operation alone on its lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct OperationCost {
    pub(super) us: f64,
    pub(super) source: CostSource,
    is_compute_bound: bool,
}

impl OperationCost {
    /// Latency that arithmetic does not bound.
    fn new(us: f64, source: CostSource) -> Self {
        Self { us, source, is_compute_bound: false }
    }

    /// Fixed time plus the larger of memory and arithmetic (us).
    fn roofline(fixed: f64, memory: f64, arithmetic: f64) -> Self {
        let us = fixed + memory.max(arithmetic);
        Self { us, source: CostSource::Roofline, is_compute_bound: arithmetic > memory }
    }
}

/// Weight of a matrix product, or of experts.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ClassWeight {
    inputs: u32,
    outputs: u32,
    format: DType,
}

/// Operations with the same latency.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CostClass {
    kind: Kind,
    lane: Lane,
    cost: Cost,
    weight: Option<ClassWeight>,
    rows: Rows,
    columns: u32,
    group: u32,
}

impl<'a> CostModel<'a> {
    pub(super) fn new(
        target: &'a Target,
        collective: CollectiveCost<'a>,
        spec: &Spec,
        shape: &ModelShape,
        phase: Phase,
    ) -> Self {
        // no table has 4-byte numbers
        let tables = target.profile.tables.as_deref().filter(|_| spec.dtype != DType::F32);
        Self {
            target,
            collective,
            transfer: None,
            tables: tables.and_then(Tables::from_name),
            phase,
            shape: shape.clone(),
            precision: precision(spec, target),
            dtype: spec.dtype.activations(),
            head_dim: u64::from(shape.head_dim),
            kv_heads: u64::from(shape.kv_heads_of(spec.tp)),
            routed: ExpertRouting::new(spec, shape),
            slots: u64::from(spec.prompt_tokens) + u64::from(spec.output_tokens),
            groups: Groups::new(phase, spec.sequences_of_rank(), spec.micro_batches),
        }
    }

    /// Model of a pipeline stage that sends to the next at this cost.
    pub(super) fn sending(self, transfer: TransferCost<'a>) -> Self {
        Self { transfer: Some(transfer), ..self }
    }

    pub(super) fn class(&self, plan: &Plan, operation: &Operation) -> CostClass {
        let written = operation.writes.first().map(|value| &plan.values[value.index()]);
        CostClass {
            kind: operation.kind.clone(),
            lane: operation.lane,
            cost: operation.cost,
            weight: operation.weight.map(|w| {
                let weight = &plan.weights[w.index()];
                let format = self.precision.of_weight(weight, &self.shape);
                ClassWeight { inputs: weight.inputs, outputs: weight.outputs, format }
            }),
            rows: written.map_or(Rows::Tokens, |value| value.rows),
            columns: written.map_or(0, |value| value.columns),
            group: operation.group,
        }
    }

    pub(super) fn operation_cost(&self, class: &CostClass, step: &Step) -> OperationCost {
        let step = &step.of_group(self.groups, class.group);
        let quantities = StepQuantities::new(step);
        let cost = &class.cost;
        if class.kind.is_transfer() {
            // a receive only waits
            let sent = self.transfer.filter(|_| class.kind == Kind::Send);
            let us = sent.map_or(0.0, |sent| sent.us(quantities.at(&cost.message_bytes)));
            return OperationCost::new(us, CostSource::Calibrated);
        }
        if class.kind.is_all_to_all() {
            // on an emulated link, or where nothing was measured, half of an all-reduce
            let bytes = quantities.at(&cost.message_bytes);
            let measured = self.measured_exchange(class, step, bytes);
            let (us, source) = measured.unwrap_or_else(|| self.collective.half_us(bytes));
            return OperationCost::new(us, source);
        }
        if class.kind.is_collective() {
            let message = quantities.at(&cost.message_bytes);
            let (mut us, source) = match class.kind {
                Kind::ReduceScatter | Kind::AllGather => self.collective.half_us(message),
                _ => self.collective.us(message),
            };
            let is_sum = matches!(class.kind, Kind::AllReduce | Kind::ReduceScatter);
            if is_sum && cost.flops != Quantity::ZERO {
                // 8-bit messages are scaled and summed by kernels that read the messages of all ranks
                us += self.memory_us(quantities.bytes_moved(cost));
            }
            return OperationCost::new(us, source);
        }
        let stack = &self.target.stack;
        let (kernels, mut latency) = match (&class.kind, class.weight) {
            (Kind::MatMul | Kind::Router, Some(ClassWeight { inputs, outputs, format })) => {
                let shape = [class.rows.count(step, 1), outputs.into(), inputs.into()];
                (1, self.matmul(shape, format, cost, &quantities))
            }
            (Kind::Attend | Kind::WindowAttend { .. }, _) => {
                (stack.attention.kernels, self.attend(class, step, &quantities))
            }
            (Kind::LatentAttend, _) => (LATENT_KERNELS, self.latent_attend(class, &quantities)),
            (Kind::Experts, Some(ClassWeight { format, .. })) => {
                (EXPERT_KERNELS, self.experts(class, format, &quantities))
            }
            (Kind::Sample, _) => {
                (stack.sample_kernels, self.streamed(cost, &quantities, stack.sample_kernels))
            }
            _ => (1, self.streamed(cost, &quantities, 1)),
        };
        if !stack.cuda_graphs {
            latency.us = latency.us.max(f64::from(kernels) * stack.eager_launch_us);
        }
        latency
    }

    /// Time that the engine's host takes before the operation that begins a step (us); 0 for other operations.
    fn host_us(&self, class: &CostClass, step: &Step) -> f64 {
        // micro-batches of a pipeline are steps of their own
        if class.kind != Kind::Embed || class.group > 0 && self.transfer.is_none() {
            return 0.0;
        }
        let (stack, step) = (&self.target.stack, step.of_group(self.groups, class.group));
        let sequences = self.target.profile.host_scale * step.sequences as f64;
        stack.step_us + stack.sequence_us * sequences
    }

    /// [`Self::host_us`] of a class (ns). The sum of host time and operation is rounded once.
    pub(super) fn host_ns(&self, class: &CostClass, cost: &OperationCost, step: &Step) -> i64 {
        ns(cost.us + self.host_us(class, step)) - ns(cost.us)
    }

    /// Fixed time of a kernel without a latency table (us).
    fn launch_us(&self) -> f64 {
        self.target.stack.launch_us + self.target.profile.kernel_us
    }

    /// Time to move bytes at the bandwidth that kernels reach (us).
    fn memory_us(&self, bytes: f64) -> f64 {
        bytes / (self.target.profile.hbm_gb_s * self.target.profile.hbm_efficiency * 1e3)
    }

    /// Roofline: fixed time per kernel plus the larger of memory and compute time.
    fn streamed(&self, cost: &Cost, quantities: &StepQuantities, kernels: u32) -> OperationCost {
        let profile = &self.target.profile;
        let memory = self.memory_us(quantities.bytes_moved(cost));
        let reached = profile.tflops.dense(self.dtype) * profile.compute_efficiency;
        let arithmetic = quantities.at(&cost.flops) / (reached * 1e6);
        OperationCost::roofline(f64::from(kernels) * self.launch_us(), memory, arithmetic)
    }

    /// Product [m, k] x [k, n] with weights in a format.
    fn matmul(
        &self,
        shape: [u64; 3],
        format: DType,
        cost: &Cost,
        quantities: &StepQuantities,
    ) -> OperationCost {
        let (profile, stack) = (&self.target.profile, &self.target.stack);
        if self.phase == Phase::Decode && shape[0] <= u64::from(stack.matvec.rows) {
            let bytes = quantities.bytes_moved(cost);
            let reached = profile.hbm_gb_s * stack.matvec.efficiency * profile.matvec_scale;
            let us = self.launch_us() + bytes / (reached * 1e3);
            let source =
                if format.is_quantized() { CostSource::Roofline } else { CostSource::Calibrated };
            return OperationCost::new(us, source);
        }
        let scale = match self.phase {
            Phase::Prefill => stack.matmul.prefill_scale,
            Phase::Decode => stack.matmul.decode_scale,
        };
        let quantized = stack.engine.and_then(|_| profile.tflops.quantized(format));
        let (roofline, tflops) = match quantized {
            Some(tflops) => (self.quantized(shape, tflops, cost, quantities), Some(tflops)),
            None => (
                self.streamed(cost, quantities, 1),
                Some(profile.tflops.dense(self.dtype)).filter(|_| !format.is_quantized()),
            ),
        };
        let table = self.tables.zip(tflops).and_then(|(tables, tflops)| {
            let peaks = Peaks { tflops, gb_s: profile.hbm_gb_s };
            tables.product_us((format, stack.engine), stack.activation_scales, shape, peaks)
        });
        let (mut us, source) = table.unwrap_or((roofline.us, roofline.source));
        if table.is_some() && format.is_quantized() {
            // measured back to back, small weights stay in a cache that a model's do not
            us = us.max(self.memory_us(format.matrix_bytes(shape[1], shape[2]) as f64));
        }
        OperationCost { us: us * scale, source, ..roofline }
    }

    /// Roofline of a product whose activations an engine quantizes, in a kernel of its own unless fused. Measured
    /// products of few hundred rows are nearer to the sum of memory and arithmetic than to the larger of the two.
    fn quantized(
        &self,
        [m, _, k]: [u64; 3],
        tflops: f64,
        cost: &Cost,
        quantities: &StepQuantities,
    ) -> OperationCost {
        let is_fused = self.target.stack.activation_scales == ActivationScales::Fused;
        // 2 bytes read and 1 written; the product reads 1 instead of 2
        let converted = if is_fused { 0.0 } else { 2.0 * m as f64 * k as f64 };
        let bytes = quantities.bytes_moved(cost) + converted;
        let memory = self.memory_us(bytes);
        let arithmetic =
            quantities.at(&cost.flops) / (tflops * self.target.profile.compute_efficiency * 1e6);
        let kernels = if is_fused { 1.0 } else { 2.0 };
        OperationCost {
            us: kernels * self.launch_us() + memory + arithmetic,
            source: CostSource::Roofline,
            is_compute_bound: arithmetic > memory,
        }
    }

    /// Cost of fused attention from measured tables; `None` without a fitting one, or for prompts in chunks.
    fn measured_attention(&self, class: &CostClass, step: &Step) -> Option<OperationCost> {
        let heads = u64::from(class.columns) / self.head_dim.max(1);
        let window = window(&class.kind);
        // prompts in chunks attend to earlier tokens too
        let is_measured = self.target.stack.attention.kind == AttentionKind::Fused
            && (self.phase == Phase::Decode || step.new_tokens == step.context);
        let tables = self.tables.filter(|_| is_measured)?;
        let sizes = AttentionSizes {
            heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            window,
            kv: self.precision.kv,
            sequences: step.sequences,
            // measured with the tokens before the step
            tokens: if self.phase == Phase::Decode { step.context - 1 } else { step.context },
        };
        let (us, source) = tables.attention_us(self.target.stack.engine, self.phase, sizes)?;
        Some(OperationCost { us, source, is_compute_bound: self.phase == Phase::Prefill })
    }

    fn attend(&self, class: &CostClass, step: &Step, quantities: &StepQuantities) -> OperationCost {
        let (profile, stack) = (&self.target.profile, &self.target.stack);
        let attention = &stack.attention;
        if let Some(measured) = self.measured_attention(class, step) {
            return measured;
        }
        let launch = f64::from(attention.kernels) * self.launch_us();
        let heads = u64::from(class.columns) / self.head_dim.max(1);
        let flops_us = |pairs_x_columns: f64| {
            let reached = profile.tflops.dense(self.dtype) * attention.prefill_efficiency;
            4.0 * pairs_x_columns / (reached * 1e6)
        };
        match attention.kind {
            AttentionKind::Math => {
                let slots = if stack.static_kv { self.slots } else { step.context };
                let cells = step.sequences as f64 * heads as f64 * slots as f64;
                let expanded = 2.0 * cells * self.head_dim as f64 * self.dtype.bytes() as f64;
                if self.phase == Phase::Decode {
                    let us = launch + expanded / (attention.expanded_kv_gb_s * 1e3);
                    return OperationCost::new(us, CostSource::Calibrated);
                }
                let scores = cells * step.new_tokens as f64;
                let passes = f64::from(attention.score_passes * attention.score_bytes);
                // expanded K and V are written and read again
                let memory = self.memory_us(scores * passes + 2.0 * expanded);
                let us = launch + memory + flops_us(scores * self.head_dim as f64);
                OperationCost::new(us, CostSource::Roofline)
            }
            AttentionKind::Fused if self.phase == Phase::Decode => {
                let roofline = self.streamed(&class.cost, quantities, attention.kernels);
                let reached = profile.attention_efficiency.unwrap_or(profile.hbm_efficiency);
                let us = launch + (roofline.us - launch) * profile.hbm_efficiency / reached;
                OperationCost { us, ..roofline }
            }
            AttentionKind::Fused => {
                let bytes = quantities.bytes_moved(&class.cost);
                let memory = self.memory_us(bytes);
                let pairs =
                    Quantity { pair: 1, window: window(&class.kind).unwrap_or(0), ..Quantity::ZERO };
                let arithmetic = flops_us(quantities.at(&pairs) * f64::from(class.columns));
                OperationCost::roofline(launch, memory, arithmetic)
            }
        }
    }

    /// Attention over cached latents: measured, with the products before and after it at the roofline.
    fn latent_attend(&self, class: &CostClass, quantities: &StepQuantities) -> OperationCost {
        let (stack, step) = (&self.target.stack, quantities.step);
        let latent = self.shape.attention.latent;
        let heads = latent.map_or(0, |latent| u64::from(class.columns / latent.value_dim.max(1)));
        let is_measured = self.phase == Phase::Decode
            && latent.is_some_and(|latent| (latent.kv_rank, latent.rope_dim) == (512, 64));
        let tables = self.tables.filter(|_| is_measured);
        let sizes = [heads, step.sequences, step.context - 1];
        let Some((us, source)) =
            tables.and_then(|t| t.latent_us(stack.engine, self.precision.kv, sizes))
        else {
            let profile = &self.target.profile;
            let memory = self.memory_us(quantities.bytes_moved(&class.cost));
            let reached = profile.tflops.dense(self.dtype) * stack.attention.prefill_efficiency;
            let arithmetic = quantities.at(&class.cost.flops) / (reached * 1e6);
            let launch = f64::from(LATENT_KERNELS) * self.launch_us();
            return OperationCost::roofline(launch, memory, arithmetic);
        };
        let products = Cost {
            flops: Quantity { pair: 0, ..class.cost.flops },
            bytes_read: Quantity { kv_token: 0, ..class.cost.bytes_read },
            ..class.cost
        };
        let products = self.streamed(&products, quantities, LATENT_KERNELS - 1);
        OperationCost::new(us + products.us, source)
    }

    /// Routed experts on the busiest rank.
    fn experts(&self, class: &CostClass, format: DType, quantities: &StepQuantities) -> OperationCost {
        let Some(routed) = &self.routed else {
            return self.streamed(&class.cost, quantities, EXPERT_KERNELS);
        };
        let balanced = |tokens: f64| self.balanced_experts(class, format, quantities, tokens);
        let tokens = (quantities.step.rows() * routed.dp()) as f64;
        let us = routed.busiest(tokens, &|work| expert_us(work, routed.full(), &balanced));
        OperationCost { us, ..balanced(tokens) }
    }

    /// For operations with experts, the time of each rank over the busiest's mean, in several draws of the
    /// routing; empty if ranks do the same.
    pub(super) fn expert_shares(&self, class: &CostClass, step: &Step) -> Vec<Vec<f64>> {
        let (Some(routed), Kind::Experts, Some(ClassWeight { format, .. })) =
            (&self.routed, &class.kind, class.weight)
        else {
            return Vec::new();
        };
        let step = &step.of_group(self.groups, class.group);
        let quantities = StepQuantities::new(step);
        let balanced = |tokens: f64| self.balanced_experts(class, format, &quantities, tokens);
        let tokens = (step.rows() * routed.dp()) as f64;
        routed.shares(tokens, &|work| expert_us(work, routed.full(), &balanced))
    }

    /// Routed experts for tokens of all ranks whose choices are spread evenly.
    fn balanced_experts(
        &self,
        class: &CostClass,
        format: DType,
        quantities: &StepQuantities,
        tokens: f64,
    ) -> OperationCost {
        let (profile, stack) = (&self.target.profile, &self.target.stack);
        let (Some(shape), Some(weights)) = (&self.shape.experts, class.cost.routed) else {
            return OperationCost::new(0.0, CostSource::Roofline);
        };
        let share = tokens / (quantities.rows * f64::from(weights.dp)).max(1.0);
        let bytes_moved = quantities.bytes_moved(&class.cost);
        let peak = profile.tflops.quantized(format).unwrap_or_else(|| profile.tflops.dense(self.dtype));
        let flops = share * quantities.at(&class.cost.flops) / f64::from(weights.top_k);
        let sizes = ExpertSizes {
            hidden: self.shape.hidden,
            width: shape.width,
            top_k: shape.top_k,
            experts: shape.count,
            tp: self.routed.as_ref().map_or(1, ExpertRouting::slices),
            ep: weights.ep,
        };
        // tables may have experts that differ in width, top-k or number
        let width_ratio = |other: &ExpertSizes| f64::from(other.width) / f64::from(sizes.width);
        let weights_us = |other: &ExpertSizes| {
            let touched = (tokens * f64::from(other.top_k)).min(other.experts.into());
            let bytes = touched / f64::from(weights.ep) * weights.expert_bytes as f64;
            self.memory_us(bytes * width_ratio(other))
        };
        let activations_us = self.memory_us(share * bytes_moved);
        let arithmetic_us = |other: &ExpertSizes| {
            flops * f64::from(other.top_k) * width_ratio(other)
                / (peak * profile.compute_efficiency * 1e6)
        };
        let roofline_us = |other: &ExpertSizes| {
            EXPERTS_START_US + (weights_us(other) + activations_us).max(arithmetic_us(other))
        };
        let is_compute_bound = arithmetic_us(&sizes) > weights_us(&sizes) + activations_us;
        let table = self.tables.map(|tables| {
            let measured = tables.experts_us(stack.engine, format, sizes, tokens);
            measured.unwrap_or_else(|| {
                tables.similar_experts(stack.engine, format, sizes, tokens, &roofline_us)
            })
        });
        let (us, source) = match table {
            // no less than reading the weights: measured back to back, few experts stay in a cache that a model's do not
            Some((us, source)) => (us.max(weights_us(&sizes)), source),
            None => (roofline_us(&sizes), CostSource::Roofline),
        };
        OperationCost { us, source, is_compute_bound }
    }

    /// Latency of a dispatch or combine in tables, which the link does not change.
    fn measured_exchange(
        &self,
        class: &CostClass,
        step: &Step,
        bytes: f64,
    ) -> Option<(f64, CostSource)> {
        let measured = self.routed.as_ref().zip(self.tables).filter(|_| !self.collective.is_formula());
        let (routed, tables) = measured?;
        tables.all_to_all_us(AllToAll {
            is_combine: class.kind == Kind::Combine,
            ranks: routed.dp() as u32,
            copies: routed.top_k * self.shape.hidden,
            rows: step.rows() as f64,
            bytes,
        })
    }

    /// True if a plan communicates only by exchanges whose latencies were measured.
    pub(super) fn has_measured_exchanges(&self, plan: &Plan, step: &Step) -> bool {
        let mut collectives = plan.operations.iter().filter(|o| o.kind.is_collective()).peekable();
        let is_measured = |operation: &Operation| {
            let class = self.class(plan, operation);
            let step = step.of_group(self.groups, class.group);
            let bytes = StepQuantities::new(&step).at(&class.cost.message_bytes);
            class.kind.is_all_to_all() && self.measured_exchange(&class, &step, bytes).is_some()
        };
        collectives.peek().is_some() && collectives.all(is_measured)
    }

    /// Contention of an operation: for compute, the share of its rate lost to a large collective; for a collective,
    /// how much of that loss it causes.
    pub(super) fn contention(&self, class: &CostClass, cost: &OperationCost, step: &Step) -> f64 {
        let step = &step.of_group(self.groups, class.group);
        let contention = &self.target.stack.contention;
        match class.lane {
            Lane::Comm => {
                let message = StepQuantities::new(step).at(&class.cost.message_bytes);
                contention.intensity(message, self.collective.ctas(message))
            }
            Lane::Compute if cost.is_compute_bound => contention.arithmetic,
            Lane::Compute => contention.memory,
        }
    }

    /// True if an operation's latency depends on the context.
    pub(super) fn depends_on_context(&self, class: &CostClass) -> bool {
        let cost = &class.cost;
        let depends = [cost.flops, cost.bytes_read, cost.bytes_written, cost.message_bytes]
            .iter()
            .any(|quantity| quantity.kv_token > 0 || quantity.pair > 0);
        let is_fixed =
            self.target.stack.attention.kind == AttentionKind::Math && self.target.stack.static_kv;
        depends && !(is_fixed && class.kind == Kind::Attend)
    }

    /// Share of its rate that a collective loses while compute runs.
    pub(super) fn collective_loss(&self) -> f64 {
        self.target.stack.contention.comm
    }
}

/// Latency (us) of a rank's experts: that of evenly spread tokens which touch as many experts, plus that of the tokens
/// beyond those which touch all.
fn expert_us(work: RoutedWork, full: f64, balanced: &dyn Fn(f64) -> OperationCost) -> f64 {
    let us = |tokens: f64| balanced(tokens).us;
    let beyond = if work.tokens > full { us(work.tokens) - us(full) } else { 0.0 };
    us(work.seen.clamp(1.0, full)) + beyond.max(0.0)
}

/// Window of a local attention.
fn window(kind: &Kind) -> Option<u32> {
    match kind {
        Kind::WindowAttend { tokens, .. } => Some(*tokens),
        _ => None,
    }
}

/// Whole nanoseconds; saturates, and overflowing times are reported later.
pub(super) fn ns(us: f64) -> i64 {
    (us * NS_PER_US).round() as i64
}

#[cfg(test)]
mod tests;
