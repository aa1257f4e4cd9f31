//! Latency of an operation on simulated hardware, alone on its lane.
//!
//! Matrix products and attention come from measured latency tables by GPU, format and engine, scaled to the stack;
//! everything else from rooflines plus a fixed time per kernel; collectives from the link. Times are whole nanoseconds, so
//! sums are exact. Operations of the same kind and size are costed once (about twenty per plan), and between decode steps
//! only those that depend on the context are costed again.

use super::routing::{Routed, Work};
use super::simulator::precision;
use machine::hardware::{
    ActivationScales, AllToAll, AttentionKind, AttentionSizes, CollectiveCost, CostSource, ExpertSizes,
    Peaks, Tables, Target, TransferCost,
};
use plan::{
    Cost, DType, Groups, Kind, Lane, ModelShape, Operation, Phase, Plan, Precision, Quantity, Rows, Step,
};
use table::Spec;

const NS_PER_US: f64 = 1e3;

/// Kernels of routed experts: sorting the choices, two grouped products with the activation, the sum.
const EXPERT_KERNELS: u32 = 4;

/// Kernels of attention over latents: two products with the up projection around the attention itself.
const LATENT_KERNELS: u32 = 3;

/// Shortest time of a layer's routed experts, as the quickest engines were measured at one token (us).
const EXPERTS_START_US: f64 = 15.0;

#[derive(Clone, Debug)]
pub(super) struct Machine<'a> {
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
    routed: Option<Routed>,
    /// Slots of a static KV cache per sequence.
    slots: u64,
    groups: Groups,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Taken {
    us: f64,
    source: CostSource,
    /// True if compute-bound.
    arithmetic: bool,
}

/// Operations with the same latency.
#[derive(Clone, Debug, PartialEq)]
struct Class {
    kind: Kind,
    lane: Lane,
    cost: Cost,
    /// Inputs, outputs and format.
    weight: Option<(u32, u32, DType)>,
    rows: Rows,
    columns: u32,
    group: u32,
}

impl<'a> Machine<'a> {
    pub(super) fn new(
        target: &'a Target,
        collective: CollectiveCost<'a>,
        spec: &Spec,
        shape: &ModelShape,
        phase: Phase,
    ) -> Self {
        Self {
            target,
            collective,
            transfer: None,
            // no table has 4-byte numbers
            tables: target
                .profile
                .tables
                .as_deref()
                .filter(|_| spec.dtype != DType::F32)
                .and_then(Tables::of),
            phase,
            shape: shape.clone(),
            precision: precision(spec, target),
            dtype: spec.dtype.activations(),
            head_dim: u64::from(shape.head_dim),
            kv_heads: u64::from(shape.kv_heads_of(spec.tp)),
            routed: Routed::of(spec, shape),
            slots: u64::from(spec.prompt_tokens) + u64::from(spec.output_tokens),
            groups: Groups::of(phase, spec.sequences_of_rank(), spec.micro_batches),
        }
    }

    /// The machine of a pipeline stage that sends to the next at this cost.
    pub(super) fn sending(self, transfer: TransferCost<'a>) -> Self {
        Self { transfer: Some(transfer), ..self }
    }

    fn class(&self, plan: &Plan, operation: &Operation) -> Class {
        let written = operation.writes.first().map(|value| &plan.values[value.index()]);
        Class {
            kind: operation.kind.clone(),
            lane: operation.lane,
            cost: operation.cost,
            weight: operation.weight.map(|w| {
                let weight = &plan.weights[w.index()];
                (weight.inputs, weight.outputs, self.precision.of_weight(weight, &self.shape))
            }),
            rows: written.map_or(Rows::Tokens, |value| value.rows),
            columns: written.map_or(0, |value| value.columns),
            group: operation.group,
        }
    }

    fn taken(&self, class: &Class, step: &Step) -> Taken {
        let step = &step.of_group(self.groups, class.group);
        let numbers = Numbers::new(step);
        let cost = &class.cost;
        if class.kind.is_transfer() {
            // a receive only waits
            let sent = self.transfer.filter(|_| class.kind == Kind::Send);
            let us = sent.map_or(0.0, |sent| sent.us(numbers.of(&cost.message_bytes)));
            return Taken { us, source: CostSource::Calibrated, arithmetic: false };
        }
        if class.kind.is_all_to_all() {
            return self.all_to_all(class, step, &numbers);
        }
        if class.kind.is_collective() {
            let message = numbers.of(&cost.message_bytes);
            let (mut us, source) = match class.kind {
                Kind::ReduceScatter | Kind::AllGather => self.collective.half_us(message),
                _ => self.collective.us(message),
            };
            let is_sum = matches!(class.kind, Kind::AllReduce | Kind::ReduceScatter);
            if is_sum && cost.flops != Quantity::ZERO {
                // 8-bit messages are scaled and summed by kernels that read the messages of all ranks
                us += self.memory_us(numbers.of(&cost.bytes_read) + numbers.of(&cost.bytes_written));
            }
            return Taken { us, source, arithmetic: false };
        }
        let stack = &self.target.stack;
        let (kernels, mut taken) = match (&class.kind, class.weight) {
            (Kind::MatMul | Kind::Router, Some((inputs, outputs, format))) => {
                let shape = [class.rows.count(step, 1), outputs.into(), inputs.into()];
                (1, self.matmul(shape, format, cost, &numbers))
            }
            (Kind::Attend | Kind::WindowAttend { .. }, _) => {
                (stack.attention.kernels, self.attend(class, step, &numbers))
            }
            (Kind::LatentAttend, _) => (LATENT_KERNELS, self.latent_attend(class, step, &numbers)),
            (Kind::Experts, Some((.., format))) => {
                (EXPERT_KERNELS, self.experts(class, format, step, &numbers))
            }
            (Kind::Sample, _) => {
                (stack.sample_kernels, self.streamed(cost, &numbers, stack.sample_kernels))
            }
            _ => (1, self.streamed(cost, &numbers, 1)),
        };
        if !stack.cuda_graphs {
            taken.us = taken.us.max(f64::from(kernels) * stack.eager_launch_us);
        }
        taken
    }

    /// Time that the engine's host takes before the operation that begins a step (us); 0 for other operations.
    fn host_us(&self, class: &Class, step: &Step) -> f64 {
        // micro-batches of a pipeline are steps of their own
        if class.kind != Kind::Embed || class.group > 0 && self.transfer.is_none() {
            return 0.0;
        }
        let (stack, step) = (&self.target.stack, step.of_group(self.groups, class.group));
        let sequences = self.target.profile.host_scale * step.sequences as f64;
        stack.step_us + stack.sequence_us * sequences
    }

    /// [`Self::host_us`] of each class (ns), which together with the operation is rounded once.
    fn hosts(&self, classes: &[Class], taken: &[Taken], step: &Step) -> Vec<i64> {
        let of =
            |(class, taken): (&Class, &Taken)| ns(taken.us + self.host_us(class, step)) - ns(taken.us);
        classes.iter().zip(taken).map(of).collect()
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
    fn streamed(&self, cost: &Cost, step: &Numbers, kernels: u32) -> Taken {
        let profile = &self.target.profile;
        let memory = self.memory_us(step.of(&cost.bytes_read) + step.of(&cost.bytes_written));
        let reached = profile.tflops.of(self.dtype) * profile.compute_efficiency;
        let arithmetic = step.of(&cost.flops) / (reached * 1e6);
        Taken {
            us: f64::from(kernels) * self.launch_us() + memory.max(arithmetic),
            source: CostSource::Roofline,
            arithmetic: arithmetic > memory,
        }
    }

    /// Product [m, k] x [k, n] with weights in a format.
    fn matmul(&self, shape: [u64; 3], format: DType, cost: &Cost, step: &Numbers) -> Taken {
        let (profile, stack) = (&self.target.profile, &self.target.stack);
        if self.phase == Phase::Decode && shape[0] <= u64::from(stack.matvec.rows) {
            let bytes = step.of(&cost.bytes_read) + step.of(&cost.bytes_written);
            let reached = profile.hbm_gb_s * stack.matvec.efficiency * profile.matvec_scale;
            let us = self.launch_us() + bytes / (reached * 1e3);
            let source =
                if format.is_quantized() { CostSource::Roofline } else { CostSource::Calibrated };
            return Taken { us, source, arithmetic: false };
        }
        let scale = match self.phase {
            Phase::Prefill => stack.matmul.prefill_scale,
            Phase::Decode => stack.matmul.decode_scale,
        };
        let quantized = stack.engine.and_then(|_| profile.tflops.quantized(format));
        let (roofline, tflops) = match quantized {
            Some(tflops) => (self.quantized(shape, tflops, cost, step), Some(tflops)),
            None => (
                self.streamed(cost, step, 1),
                Some(profile.tflops.of(self.dtype)).filter(|_| !format.is_quantized()),
            ),
        };
        let table = self.tables.zip(tflops).and_then(|(tables, tflops)| {
            let peaks = Peaks { tflops, gb_s: profile.hbm_gb_s };
            tables.product_us((format, stack.engine), stack.activation_scales, shape, peaks)
        });
        match table {
            // measured back to back, small weights stay in a cache that a model's do not
            Some((us, source)) if format.is_quantized() => {
                let us = us.max(self.memory_us(format.matrix_bytes(shape[1], shape[2]) as f64));
                Taken { us: us * scale, source, arithmetic: roofline.arithmetic }
            }
            Some((us, source)) => Taken { us: us * scale, source, arithmetic: roofline.arithmetic },
            None => Taken { us: roofline.us * scale, ..roofline },
        }
    }

    /// Roofline of a product whose activations an engine quantizes, in a kernel of its own unless fused. Measured
    /// products of few hundred rows are nearer to the sum of memory and arithmetic than to the larger of the two.
    fn quantized(&self, [m, _, k]: [u64; 3], tflops: f64, cost: &Cost, step: &Numbers) -> Taken {
        let is_fused = self.target.stack.activation_scales == ActivationScales::Fused;
        // 2 bytes read and 1 written; the product reads 1 instead of 2
        let converted = if is_fused { 0.0 } else { 2.0 * m as f64 * k as f64 };
        let bytes = step.of(&cost.bytes_read) + step.of(&cost.bytes_written) + converted;
        let memory = self.memory_us(bytes);
        let arithmetic = step.of(&cost.flops) / (tflops * self.target.profile.compute_efficiency * 1e6);
        let kernels = if is_fused { 1.0 } else { 2.0 };
        Taken {
            us: kernels * self.launch_us() + memory + arithmetic,
            source: CostSource::Roofline,
            arithmetic: arithmetic > memory,
        }
    }

    /// Attention in tables.
    fn measured_attention(&self, class: &Class, step: &Step) -> Option<Taken> {
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
        Some(Taken { us, source, arithmetic: self.phase == Phase::Prefill })
    }

    fn attend(&self, class: &Class, step: &Step, numbers: &Numbers) -> Taken {
        let (profile, stack) = (&self.target.profile, &self.target.stack);
        let attention = &stack.attention;
        if let Some(taken) = self.measured_attention(class, step) {
            return taken;
        }
        let launch = f64::from(attention.kernels) * self.launch_us();
        let heads = u64::from(class.columns) / self.head_dim.max(1);
        let flops_us = |pairs_x_columns: f64| {
            let reached = profile.tflops.of(self.dtype) * attention.prefill_efficiency;
            4.0 * pairs_x_columns / (reached * 1e6)
        };
        match attention.kind {
            AttentionKind::Math => {
                let slots = if stack.static_kv { self.slots } else { step.context };
                let cells = step.sequences as f64 * heads as f64 * slots as f64;
                let expanded = 2.0 * cells * self.head_dim as f64 * self.dtype.bytes() as f64;
                if self.phase == Phase::Decode {
                    let us = launch + expanded / (attention.expanded_kv_gb_s * 1e3);
                    return Taken { us, source: CostSource::Calibrated, arithmetic: false };
                }
                let scores = cells * step.new_tokens as f64;
                let passes = f64::from(attention.score_passes * attention.score_bytes);
                // expanded K and V are written and read again
                let memory = self.memory_us(scores * passes + 2.0 * expanded);
                let us = launch + memory + flops_us(scores * self.head_dim as f64);
                Taken { us, source: CostSource::Roofline, arithmetic: false }
            }
            AttentionKind::Fused if self.phase == Phase::Decode => {
                let taken = self.streamed(&class.cost, numbers, attention.kernels);
                let reached = profile.attention_efficiency.unwrap_or(profile.hbm_efficiency);
                let us = launch + (taken.us - launch) * profile.hbm_efficiency / reached;
                Taken { us, ..taken }
            }
            AttentionKind::Fused => {
                let bytes = numbers.of(&class.cost.bytes_read) + numbers.of(&class.cost.bytes_written);
                let memory = self.memory_us(bytes);
                let pairs =
                    Quantity { pair: 1, window: window(&class.kind).unwrap_or(0), ..Quantity::ZERO };
                let arithmetic = flops_us(numbers.of(&pairs) * f64::from(class.columns));
                Taken {
                    us: launch + memory.max(arithmetic),
                    source: CostSource::Roofline,
                    arithmetic: arithmetic > memory,
                }
            }
        }
    }

    /// Attention over cached latents: measured, with the products before and after it at the roofline.
    fn latent_attend(&self, class: &Class, step: &Step, numbers: &Numbers) -> Taken {
        let stack = &self.target.stack;
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
            let memory = self
                .memory_us(numbers.of(&class.cost.bytes_read) + numbers.of(&class.cost.bytes_written));
            let reached = profile.tflops.of(self.dtype) * stack.attention.prefill_efficiency;
            let arithmetic = numbers.of(&class.cost.flops) / (reached * 1e6);
            return Taken {
                us: f64::from(LATENT_KERNELS) * stack.launch_us + memory.max(arithmetic),
                source: CostSource::Roofline,
                arithmetic: arithmetic > memory,
            };
        };
        let products = Cost {
            flops: Quantity { pair: 0, ..class.cost.flops },
            bytes_read: Quantity { kv_token: 0, ..class.cost.bytes_read },
            ..class.cost
        };
        let products = self.streamed(&products, numbers, LATENT_KERNELS - 1);
        Taken { us: us + products.us, source, arithmetic: false }
    }

    /// Routed experts on the busiest rank.
    fn experts(&self, class: &Class, format: DType, step: &Step, numbers: &Numbers) -> Taken {
        let Some(routed) = &self.routed else {
            return self.streamed(&class.cost, numbers, EXPERT_KERNELS);
        };
        let time = |tokens: f64| self.spread_experts(class, format, numbers, tokens);
        let tokens = (step.rows() * routed.dp()) as f64;
        let (_, source, arithmetic) = time(tokens);
        let us = routed.busiest(tokens, &|work| self.expert_us(work, routed.full(), &time));
        Taken { us, source, arithmetic }
    }

    /// Time of a rank that touches so many experts for so many tokens: as many as evenly spread ones would, and
    /// from where those touch all, what more tokens cost.
    fn expert_us(&self, work: Work, full: f64, time: &dyn Fn(f64) -> (f64, CostSource, bool)) -> f64 {
        let us = |tokens: f64| time(tokens).0;
        let beyond = if work.tokens > full { us(work.tokens) - us(full) } else { 0.0 };
        us(work.seen.clamp(1.0, full)) + beyond.max(0.0)
    }

    /// For operations with experts, the time of each rank over the busiest's mean, in several draws of the
    /// routing; empty if ranks do the same.
    fn expert_shares(&self, class: &Class, step: &Step) -> Vec<Vec<f64>> {
        let (Some(routed), Kind::Experts, Some((.., format))) =
            (&self.routed, &class.kind, class.weight)
        else {
            return Vec::new();
        };
        let step = &step.of_group(self.groups, class.group);
        let numbers = Numbers::new(step);
        let time = |tokens: f64| self.spread_experts(class, format, &numbers, tokens);
        let tokens = (step.rows() * routed.dp()) as f64;
        routed.shares(tokens, &|work| self.expert_us(work, routed.full(), &time))
    }

    /// Routed experts for tokens of all ranks whose choices are spread evenly: latency (us), source, and if it is
    /// compute-bound.
    fn spread_experts(
        &self,
        class: &Class,
        format: DType,
        numbers: &Numbers,
        tokens: f64,
    ) -> (f64, CostSource, bool) {
        let (profile, stack) = (&self.target.profile, &self.target.stack);
        let (Some(shape), Some(weights)) = (&self.shape.experts, class.cost.routed) else {
            return (0.0, CostSource::Roofline, false);
        };
        let share = tokens / (numbers.rows * f64::from(weights.dp)).max(1.0);
        let passing = numbers.of(&class.cost.bytes_read) + numbers.of(&class.cost.bytes_written);
        let peak = profile.tflops.quantized(format).unwrap_or_else(|| profile.tflops.of(self.dtype));
        let flops = share * numbers.of(&class.cost.flops) / f64::from(weights.top_k);
        let sizes = ExpertSizes {
            hidden: self.shape.hidden,
            width: shape.width,
            top_k: shape.top_k,
            experts: shape.count,
            tp: self.routed.as_ref().map_or(1, Routed::slices),
            ep: weights.ep,
        };
        // of experts that differ in width, top-k or number
        let scale = |of: &ExpertSizes| f64::from(of.width) / f64::from(sizes.width);
        let weights_us = |of: &ExpertSizes| {
            let touched = (tokens * f64::from(of.top_k)).min(of.experts.into());
            let bytes = touched / f64::from(weights.ep) * weights.expert_bytes as f64;
            self.memory_us(bytes * scale(of))
        };
        let passing_us = self.memory_us(share * passing);
        let arithmetic_us = |of: &ExpertSizes| {
            flops * f64::from(of.top_k) * scale(of) / (peak * profile.compute_efficiency * 1e6)
        };
        let roofline_us =
            |of: &ExpertSizes| EXPERTS_START_US + (weights_us(of) + passing_us).max(arithmetic_us(of));
        let is_arithmetic = arithmetic_us(&sizes) > weights_us(&sizes) + passing_us;
        let table = self.tables.map(|tables| {
            let measured = tables.experts_us(stack.engine, format, sizes, tokens);
            measured.unwrap_or_else(|| {
                tables.similar_experts(stack.engine, format, sizes, tokens, &roofline_us)
            })
        });
        match table {
            // no less than reading the weights: measured back to back, few experts stay in a cache that a model's do not
            Some((us, source)) => (us.max(weights_us(&sizes)), source, is_arithmetic),
            None => (roofline_us(&sizes), CostSource::Roofline, is_arithmetic),
        }
    }

    /// Dispatch or combine: measured; on an emulated link, or where nothing was measured, half of an all-reduce.
    fn all_to_all(&self, class: &Class, step: &Step, numbers: &Numbers) -> Taken {
        let bytes = numbers.of(&class.cost.message_bytes);
        let found = self.measured_exchange(class, step, bytes);
        let (us, source) = found.unwrap_or_else(|| self.collective.half_us(bytes));
        Taken { us, source, arithmetic: false }
    }

    /// Latency of a dispatch or combine in tables, which the link does not change.
    fn measured_exchange(&self, class: &Class, step: &Step, bytes: f64) -> Option<(f64, CostSource)> {
        let measured = self.routed.as_ref().zip(self.tables).filter(|_| !self.collective.is_formula());
        let (routed, tables) = measured?;
        tables.all_to_all_us(AllToAll {
            is_combine: class.kind == Kind::Combine,
            ranks: routed.dp() as u32,
            copies: routed.top_k() * self.shape.hidden,
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
            let bytes = Numbers::new(&step).of(&class.cost.message_bytes);
            class.kind.is_all_to_all() && self.measured_exchange(&class, &step, bytes).is_some()
        };
        collectives.peek().is_some() && collectives.all(is_measured)
    }

    /// Contention of an operation: for compute, the share of its rate lost to a large collective; for a collective,
    /// how much of that loss it causes.
    fn contention(&self, class: &Class, taken: &Taken, step: &Step) -> f64 {
        let step = &step.of_group(self.groups, class.group);
        let contention = &self.target.stack.contention;
        match class.lane {
            Lane::Comm => {
                let message = Numbers::new(step).of(&class.cost.message_bytes);
                contention.intensity(message, self.collective.ctas(message))
            }
            Lane::Compute if taken.arithmetic => contention.arithmetic,
            Lane::Compute => contention.memory,
        }
    }
}

/// Window of a local attention.
fn window(kind: &Kind) -> Option<u32> {
    match kind {
        Kind::WindowAttend { tokens, .. } => Some(*tokens),
        _ => None,
    }
}

/// Step quantities as floats: precise enough, and they cannot overflow.
struct Numbers {
    rows: f64,
    sequences: f64,
    new: f64,
    context: f64,
}

impl Numbers {
    fn new(step: &Step) -> Self {
        let (sequences, new, context) =
            (step.sequences as f64, step.new_tokens as f64, step.context as f64);
        Self { rows: sequences * new, sequences, new, context }
    }

    /// Cached tokens that the step's queries see; a window of 0 limits nothing.
    fn kv_tokens_within(&self, window: u32) -> f64 {
        let most = if window == 0 { f64::INFINITY } else { f64::from(window) + self.new - 1.0 };
        self.sequences * self.context.min(most)
    }

    fn pairs_within(&self, window: u32) -> f64 {
        let window = if window == 0 { f64::INFINITY } else { f64::from(window) };
        if self.context <= window {
            return self.sequences * (self.new * self.context - self.new * (self.new - 1.0) / 2.0);
        }
        // the first queries of a sequence see fewer
        let before = self.context - self.new;
        let early = (window - before).clamp(0.0, self.new);
        let fewer = early * (window - before) - early * (early + 1.0) / 2.0;
        self.sequences * (self.new * window - fewer)
    }

    fn of(&self, quantity: &Quantity) -> f64 {
        quantity.fixed as f64
            + quantity.row as f64 * self.rows
            + quantity.sequence as f64 * self.sequences
            + quantity.kv_token as f64 * self.kv_tokens_within(quantity.window)
            + quantity.pair as f64 * self.pairs_within(quantity.window)
    }
}

/// Latency of each operation of a plan, updated from step to step.
#[derive(Debug)]
pub(super) struct Durations<'a> {
    machine: Machine<'a>,
    classes: Vec<Class>,
    taken: Vec<Taken>,
    class_of: Vec<u32>,
    /// Classes and operations whose cost depends on the context.
    growing: (Vec<u32>, Vec<u32>),
    /// Duration of each operation, alone on the machine (ns).
    pub(super) ns: Vec<i64>,
    /// Time of the host before each operation: see [`Machine::host_us`] (ns).
    pub(super) host: Vec<i64>,
    /// Contention of each operation; see [`Machine::contention`].
    pub(super) contention: Vec<f64>,
    /// Share of its rate that a collective loses while compute runs.
    pub(super) comm_loss: f64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Loads<'a> {
    pub(super) ns: &'a [i64],
    pub(super) contention: &'a [f64],
    pub(super) comm_loss: f64,
}

impl<'a> Durations<'a> {
    pub(super) fn loads(&self) -> Loads<'_> {
        Loads { ns: &self.ns, contention: &self.contention, comm_loss: self.comm_loss }
    }

    pub(super) fn new(machine: Machine<'a>, plan: &Plan, step: &Step) -> Self {
        let mut classes: Vec<Class> = Vec::new();
        let class_of: Vec<u32> = plan
            .operations
            .iter()
            .map(|operation| {
                let class = machine.class(plan, operation);
                let at = classes.iter().position(|known| *known == class).unwrap_or_else(|| {
                    classes.push(class);
                    classes.len() - 1
                });
                at as u32
            })
            .collect();
        let taken: Vec<Taken> = classes.iter().map(|class| machine.taken(class, step)).collect();
        let host = machine.hosts(&classes, &taken, step);
        let contention: Vec<f64> = classes
            .iter()
            .zip(&taken)
            .map(|(class, taken)| machine.contention(class, taken, step))
            .collect();
        let growing: Vec<u32> = (0_u32..)
            .zip(&classes)
            .filter(|(_, class)| machine.grows(class))
            .map(|(index, _)| index)
            .collect();
        let operations =
            (0_u32..).zip(&class_of).filter(|(_, class)| growing.contains(class)).map(|(i, _)| i);
        Self {
            ns: class_of.iter().map(|&class| ns(taken[class as usize].us)).collect(),
            host: class_of.iter().map(|&class| host[class as usize]).collect(),
            contention: class_of.iter().map(|&class| contention[class as usize]).collect(),
            comm_loss: machine.target.stack.contention.comm,
            growing: (growing.clone(), operations.collect()),
            machine,
            classes,
            taken,
            class_of,
        }
    }

    /// Updates to a step that differs only in its context; returns true if any duration changed.
    pub(super) fn grow(&mut self, step: &Step) -> bool {
        let mut changed = false;
        for &class in &self.growing.0 {
            let class = class as usize;
            let taken = self.machine.taken(&self.classes[class], step);
            changed |= taken != self.taken[class];
            self.taken[class] = taken;
        }
        if changed {
            for &operation in &self.growing.1 {
                let operation = operation as usize;
                self.ns[operation] = ns(self.taken[self.class_of[operation] as usize].us);
            }
        }
        changed
    }

    /// Costs another step of the same plan.
    pub(super) fn cost_of(&mut self, step: &Step) {
        let machine = &self.machine;
        self.taken = self.classes.iter().map(|class| machine.taken(class, step)).collect();
        let classes = self.classes.iter().zip(&self.taken);
        let contention: Vec<f64> =
            classes.map(|(class, taken)| machine.contention(class, taken, step)).collect();
        let host = machine.hosts(&self.classes, &self.taken, step);
        for (operation, &class) in self.class_of.iter().enumerate() {
            self.ns[operation] = ns(self.taken[class as usize].us);
            self.host[operation] = host[class as usize];
            self.contention[operation] = contention[class as usize];
        }
    }

    /// Operations with experts, with the shares of [`Machine::expert_shares`].
    pub(super) fn expert_shares(&self, step: &Step) -> ExpertShares {
        let of_class: Vec<Vec<Vec<f64>>> =
            self.classes.iter().map(|class| self.machine.expert_shares(class, step)).collect();
        let operations = self.class_of.iter().enumerate();
        let own = operations.map(|(at, class)| (at, of_class[*class as usize].clone()));
        own.filter(|(_, shares)| !shares.is_empty()).collect()
    }

    pub(super) fn is_growing(&self) -> bool {
        !self.growing.0.is_empty()
    }

    /// Simulated time (us), grouped by cost source in the order of [`CostSource::ALL`].
    pub(super) fn by_source(&self) -> [f64; 4] {
        let mut us = [0.0; 4];
        for &class in &self.class_of {
            let taken = &self.taken[class as usize];
            us[taken.source as usize] += taken.us;
        }
        us[CostSource::Calibrated as usize] +=
            self.host.iter().map(|&ns| ns as f64 / NS_PER_US).sum::<f64>();
        us
    }
}

/// Operations with experts, each with the time of each rank over the busiest's mean in several draws.
pub(super) type ExpertShares = Vec<(usize, Vec<Vec<f64>>)>;

impl Machine<'_> {
    fn grows(&self, class: &Class) -> bool {
        let cost = &class.cost;
        let depends = [cost.flops, cost.bytes_read, cost.bytes_written, cost.message_bytes]
            .iter()
            .any(|quantity| quantity.kv_token > 0 || quantity.pair > 0);
        let fixed =
            self.target.stack.attention.kind == AttentionKind::Math && self.target.stack.static_kv;
        depends && !(fixed && class.kind == Kind::Attend)
    }
}

#[cfg(test)]
impl Durations<'_> {
    pub(super) fn given(ns: &[i64]) -> Self {
        Self::contending(ns, &vec![0.0; ns.len()], 0.0)
    }

    pub(super) fn contending(ns: &[i64], contention: &[f64], comm_loss: f64) -> Self {
        use std::sync::LazyLock;
        static TARGET: LazyLock<Target> =
            LazyLock::new(|| Target::of(&super::testing::spec("standard", "tiny")).unwrap());
        let machine = Machine::new(
            &TARGET,
            CollectiveCost::Formula { alpha_us: 0.0, gb_s: 1.0 },
            &super::testing::spec("standard", "tiny"),
            &super::testing::shape_tiny(),
            Phase::Decode,
        );
        Self {
            machine,
            classes: Vec::new(),
            taken: Vec::new(),
            class_of: Vec::new(),
            growing: (Vec::new(), Vec::new()),
            ns: ns.to_vec(),
            host: vec![0; ns.len()],
            contention: contention.to_vec(),
            comm_loss,
        }
    }
}

/// Whole nanoseconds; saturates, and overflowing times are reported later.
fn ns(us: f64) -> i64 {
    (us * NS_PER_US).round() as i64
}

#[cfg(test)]
mod tests;
