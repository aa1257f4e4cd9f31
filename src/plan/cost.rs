//! Costs of operations: FLOPs and bytes, affine in the few numbers that describe a step.

use serde::{Deserialize, Serialize};

use super::builder::Builder;
use super::{
    Element, ExpertLoad, Kind, Phase, RoutedWeights, Rows, SCALED_TOGETHER, ValueId, Variant, Weight,
    WeightId,
};

/// Size of one step (a prefill or one decode step); every cost depends on these numbers only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub sequences: u64,
    /// New tokens per sequence: the prompt length in prefill, 1 in decode.
    pub new_tokens: u64,
    /// Tokens per sequence in the KV cache, including the new ones.
    pub context: u64,
}

impl Step {
    pub fn prefill(sequences: u64, prompt_tokens: u64) -> Self {
        Self { sequences, new_tokens: prompt_tokens, context: prompt_tokens }
    }

    /// Decode step `step` (from 0), which reads output token `step + 1` and yields the next one.
    pub fn decode(sequences: u64, prompt_tokens: u64, step: u64) -> Self {
        Self { sequences, new_tokens: 1, context: prompt_tokens + step + 1 }
    }

    /// Part of the step that a group processes.
    pub fn of_group(&self, groups: Groups, group: u32) -> Self {
        match groups {
            Groups { count: 1, .. } => *self,
            Groups { of_tokens: false, .. } => {
                Self { sequences: groups.part(self.sequences, group).1, ..*self }
            }
            Groups { of_tokens: true, .. } => {
                let (first, new_tokens) = groups.part(self.new_tokens, group);
                let context = self.context - self.new_tokens + first + new_tokens;
                Self { new_tokens, context, ..*self }
            }
        }
    }

    /// Rows of an activation: sequences x new tokens.
    pub fn rows(&self) -> u64 {
        self.sequences * self.new_tokens
    }

    /// Tokens in the KV cache, over all sequences.
    pub fn kv_tokens(&self) -> u64 {
        self.sequences * self.context
    }

    /// The step with at most `window` tokens before and including each query's; 0 limits nothing.
    fn within(&self, window: u32) -> Self {
        let most = self.new_tokens.saturating_sub(1) + u64::from(window);
        if window == 0 { *self } else { Self { context: self.context.min(most), ..*self } }
    }

    /// Query-key pairs in a window, over all sequences, for one head.
    fn pairs_within(&self, window: u32) -> u64 {
        let window = u64::from(window);
        if window == 0 || self.context <= window {
            return self.pairs();
        }
        // queries whose own position is within the first window see fewer
        let before = self.context - self.new_tokens;
        let early = window.saturating_sub(before).min(self.new_tokens);
        let fewer = early * window.saturating_sub(before) - early * (early + 1) / 2;
        self.sequences * (self.new_tokens * window - fewer)
    }

    /// Query-key pairs under the causal mask, over all sequences, for one head.
    pub fn pairs(&self) -> u64 {
        let (new, context) = (self.new_tokens, self.context);
        self.sequences * (new * context - new * (new.saturating_sub(1)) / 2)
    }
}

/// Division of a batch into groups (micro-batches). Each group has its own activations and KV caches;
/// their operations alternate on the compute lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Groups {
    /// 1 if the batch is not divided.
    pub count: u32,
    /// True if groups split each prompt's tokens instead of the sequences; later groups attend to the
    /// cache entries of earlier ones.
    pub of_tokens: bool,
}

impl Groups {
    pub const ONE: Self = Self { count: 1, of_tokens: false };

    /// Divides a batch of `batch` sequences into `count` groups. A prefill with fewer sequences than
    /// groups splits the prompts' tokens instead; a decode step gets at most one group per sequence.
    pub fn of(phase: Phase, batch: u32, count: u32) -> Self {
        let count = count.max(1);
        match phase {
            _ if batch >= count => Self { count, of_tokens: false },
            Phase::Prefill => Self { count, of_tokens: true },
            Phase::Decode => Self { count: batch.max(1), of_tokens: false },
        }
    }

    /// Start and length of a group's part of `whole` items. Part sizes differ by at most one, larger
    /// parts first.
    pub fn part(&self, whole: u64, group: u32) -> (u64, u64) {
        let (count, group) = (u64::from(self.count), u64::from(group));
        let (each, more) = (whole / count, whole % count);
        (group * each + group.min(more), each + u64::from(group < more))
    }
}

/// Amount that depends on the step: `fixed + row x rows + sequence x sequences + kv_token x kv_tokens +
/// pair x pairs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Quantity {
    /// Independent of the step (weights).
    pub fixed: u64,
    /// Per row of an activation (sequence and new token).
    pub row: u64,
    pub sequence: u64,
    /// Per token in the KV cache, over all sequences.
    pub kv_token: u64,
    /// Per query-key pair under the causal mask, of one head.
    pub pair: u64,
    /// Tokens that a query sees at most, including its own; 0 if it sees all.
    #[serde(skip_serializing_if = "is_zero")]
    pub window: u32,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Quantity {
    pub const ZERO: Self = Self { fixed: 0, row: 0, sequence: 0, kv_token: 0, pair: 0, window: 0 };

    pub fn times(&self, n: u64) -> Self {
        Self {
            fixed: n * self.fixed,
            row: n * self.row,
            sequence: n * self.sequence,
            kv_token: n * self.kv_token,
            pair: n * self.pair,
            window: self.window,
        }
    }

    pub fn at(&self, step: &Step) -> u64 {
        self.fixed
            + self.row * step.rows()
            + self.sequence * step.sequences
            + self.kv_token * step.within(self.window).kv_tokens()
            + self.pair * step.pairs_within(self.window)
    }
}

impl std::ops::Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            fixed: self.fixed + other.fixed,
            row: self.row + other.row,
            sequence: self.sequence + other.sequence,
            kv_token: self.kv_token + other.kv_token,
            pair: self.pair + other.pair,
            window: self.window.max(other.window),
        }
    }
}

/// FLOPs and bytes of one operation on one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Cost {
    /// Floating-point operations; a multiply-add counts as two.
    pub flops: Quantity,
    /// Bytes read from memory: weights, activations, KV cache.
    pub bytes_read: Quantity,
    /// Bytes written to memory: activations and new KV cache entries.
    pub bytes_written: Quantity,
    /// Message size of a collective in bytes (not bus bytes); 0 for compute.
    pub message_bytes: Quantity,
    /// Weights of routed experts, which [`Self::bytes_read`] leaves out: see [`Self::read`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routed: Option<RoutedWeights>,
}

impl Cost {
    /// Bytes read in a step, with the weights of the experts that its rows are expected to touch.
    pub fn read(&self, step: &Step, load: &ExpertLoad) -> f64 {
        let routed = self.routed.map_or(0.0, |routed| routed.bytes(step.rows(), load));
        self.bytes_read.at(step) as f64 + routed
    }
}

impl std::ops::Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            flops: self.flops + other.flops,
            bytes_read: self.bytes_read + other.bytes_read,
            bytes_written: self.bytes_written + other.bytes_written,
            message_bytes: self.message_bytes + other.message_bytes,
            routed: self.routed.or(other.routed),
        }
    }
}

impl Builder<'_> {
    /// Bytes of one row of a value.
    pub(super) fn row_bytes(&self, columns: u32, element: Element) -> u64 {
        match element {
            Element::Activation => u64::from(columns) * self.spec.precision.activations.bytes(),
            Element::Logit | Element::Token => u64::from(columns) * 4,
            Element::Choice => u64::from(columns) * 8,
            Element::Eight => u64::from(columns) + 4 * u64::from(columns.div_ceil(SCALED_TOGETHER)),
        }
    }

    /// `n` for each row of a value.
    pub(super) fn per_row(&self, rows: Rows, n: u64) -> Quantity {
        match rows {
            Rows::Tokens => Quantity { row: n, ..Quantity::ZERO },
            Rows::Sequences => Quantity { sequence: n, ..Quantity::ZERO },
            // mean share over ranks, so that costs stay affine
            Rows::Share => Quantity { row: n.div_ceil(self.spec.tp.into()), ..Quantity::ZERO },
        }
    }

    /// FLOPs and bytes on one rank; operands and weights are read once, results written once.
    pub(super) fn cost(
        &self,
        kind: &Kind,
        reads: &[ValueId],
        (rows, columns, element): (Rows, u32, Element),
        weights: &[WeightId],
    ) -> Cost {
        let precision = self.spec.precision;
        let bytes = |columns: u32, element: Element| self.row_bytes(columns, element);
        let ranks = u64::from(self.spec.tp);
        let per = |rows: Rows, n: u64| self.per_row(rows, n);
        let fixed = |n: u64| Quantity { fixed: n, ..Quantity::ZERO };
        let mut cost = Cost {
            // a narrowed value is read as far as it is kept
            bytes_read: reads.iter().fold(Quantity::ZERO, |sum, value| {
                let value = &self.values[value.index()];
                // a selection reads only the rows it keeps
                let rows = if *kind == Kind::SelectLast { Rows::Sequences } else { value.rows };
                let columns = if *kind == Kind::Narrow { columns } else { value.columns };
                sum + per(rows, bytes(columns, value.element))
            }),
            bytes_written: per(rows, bytes(columns, element)),
            ..Cost::default()
        };
        let columns = u64::from(columns);
        let shape = &self.spec.shape;
        let weights = weights.iter().map(|weight| &self.weights[weight.index()]);
        for weight in weights.clone().filter(|_| *kind != Kind::Experts) {
            let numbers = u64::from(weight.inputs) * u64::from(weight.outputs);
            if *kind == Kind::Embed {
                let row = u64::from(weight.inputs) * precision.of_weight(weight, shape).bytes();
                cost.bytes_read = cost.bytes_read + per(rows, row);
            } else {
                cost.bytes_read = cost.bytes_read + fixed(precision.weight_bytes(weight, shape));
            }
            match kind {
                Kind::MatMul if weight.inputs == 1 => cost.flops = cost.flops + per(rows, numbers),
                Kind::MatMul | Kind::Router => cost.flops = cost.flops + per(rows, 2 * numbers),
                _ => {}
            }
        }
        let head_dim = u64::from(shape.head_dim);
        let heads = u64::from(shape.heads / self.spec.tp);
        let kv = u64::from(shape.kv_heads_of(self.spec.tp)) * head_dim;
        match kind {
            Kind::Norm => cost.flops = per(rows, 4 * columns),
            Kind::Add => cost.flops = per(rows, columns),
            Kind::AddMean => cost.flops = per(rows, 2 * columns),
            Kind::MeanShare => cost.flops = per(rows, columns),
            Kind::Join { .. } => cost.flops = per(rows, reads.len() as u64 * columns),
            Kind::SiluMul { .. } => cost.flops = per(rows, 5 * columns),
            Kind::RopeAppend | Kind::BiasRopeAppend | Kind::NormRopeAppend | Kind::Append => {
                let before = match kind {
                    Kind::BiasRopeAppend => heads * head_dim + 2 * kv,
                    Kind::NormRopeAppend => 4 * (heads * head_dim + kv),
                    _ => 0,
                };
                let rotation = 3 * (heads * head_dim + kv);
                let flops = if *kind == Kind::Append { heads * head_dim } else { before + rotation };
                cost.flops = per(rows, flops);
                cost.bytes_written = cost.bytes_written + per(rows, 2 * kv * precision.kv.bytes());
            }
            Kind::Attend => {
                // q k^T and p v: two multiply-adds a pair and column; softmax: about 5 a pair
                let flops = heads * (4 * head_dim + 5);
                cost.flops = Quantity { pair: flops, ..Quantity::ZERO };
                let cache = Quantity { kv_token: 2 * kv * precision.kv.bytes(), ..Quantity::ZERO };
                cost.bytes_read = cost.bytes_read + cache;
            }
            Kind::WindowAttend { tokens, .. } => {
                let (pair, window) = (heads * (4 * head_dim + 5), *tokens);
                cost.flops = Quantity { pair, window, ..Quantity::ZERO };
                let kv_token = 2 * kv * precision.kv.bytes();
                cost.bytes_read = cost.bytes_read + Quantity { kv_token, window, ..Quantity::ZERO };
            }
            Kind::LatentAppend => {
                cost.flops = per(rows, 7 * columns);
                cost.bytes_written = cost.bytes_written + per(rows, columns * precision.kv.bytes());
            }
            Kind::LatentAttend => self.latent_cost(&mut cost, heads),
            Kind::SigmoidMul => cost.flops = per(rows, 4 * columns),
            Kind::Experts => self.experts_cost(&mut cost, weights.cloned().collect()),
            Kind::Dispatch => cost.message_bytes = cost.bytes_written,
            Kind::Combine => {
                let bytes = self.values[reads[0].index()].columns;
                cost.message_bytes = per(rows, self.row_bytes(bytes, element));
                cost.flops = per(rows, u64::from(bytes));
            }
            // per number: absolute value, maximum of its scale group, product, rounding
            Kind::Quantize { .. } => cost.flops = per(rows, 4 * columns),
            Kind::AllGather => cost.message_bytes = cost.bytes_written,
            Kind::AllReduce | Kind::ReduceScatter => {
                cost.message_bytes = cost.bytes_read;
                if self.values[reads[0].index()].element == Element::Eight {
                    // each rank reads its part of all ranks' messages, scales and adds
                    let read = if rows == Rows::Share { 1 } else { ranks };
                    cost.bytes_read = cost.message_bytes.times(read);
                    cost.flops = per(rows, 2 * ranks * columns);
                }
            }
            Kind::Sample => {
                let logits = self.values[reads[0].index()].columns;
                cost.flops = per(rows, u64::from(logits));
            }
            _ => {}
        }
        cost
    }

    /// Attention over latents. A decode step absorbs the up projections into queries and results and
    /// attends to the latents themselves; a prefill expands keys and values of its new tokens.
    fn latent_cost(&self, cost: &mut Cost, heads: u64) {
        let Some(latent) = self.spec.shape.attention.latent else { return };
        let [rank, rope, nope, value] =
            [latent.kv_rank, latent.rope_dim, latent.nope_dim, latent.value_dim].map(u64::from);
        let pair = match self.spec.phase {
            Phase::Decode => 2 * (rank + rope) + 2 * rank + 5,
            Phase::Prefill => 2 * (nope + rope) + 2 * value + 5,
        };
        let row = heads * 2 * rank * (nope + value);
        cost.flops = Quantity { pair: heads * pair, row, ..Quantity::ZERO };
        let kv_token = (rank + rope) * self.spec.precision.kv.bytes();
        cost.bytes_read = cost.bytes_read + Quantity { kv_token, ..Quantity::ZERO };
    }

    /// Routed experts: work on the mean over ranks, and weights by the experts that tokens touch. Besides
    /// its operands each choice reads and writes gate, up, the activation and its summand.
    fn experts_cost(&self, cost: &mut Cost, weights: Vec<Weight>) {
        let (spec, Some(experts)) = (self.spec, &self.spec.shape.experts) else { return };
        let Variant { ep, dp, .. } = spec.variant;
        let (hidden, width) = (u64::from(spec.shape.hidden), u64::from(experts.width));
        let slices = if ep == 1 { spec.tp } else { 1 };
        // a rank's choices per row of its own; all have a slice of every expert, or some whole experts
        let choices = |n: u64| (n * u64::from(experts.top_k) * u64::from(dp)).div_ceil(ep.into());
        let columns = width / u64::from(slices);
        let per = |n: u64| self.per_row(Rows::Tokens, choices(n));
        let number = spec.precision.activations.bytes();
        cost.flops = per(6 * hidden * columns + 5 * columns + 2 * hidden);
        cost.bytes_read = cost.bytes_read + per((3 * columns + hidden) * number);
        cost.bytes_written = cost.bytes_written + per((3 * columns + hidden) * number);
        let bytes: u64 = weights.iter().map(|w| spec.precision.weight_bytes(w, &spec.shape)).sum();
        let expert_bytes = bytes / u64::from((experts.count / ep).max(1));
        let (count, top_k) = (experts.count, experts.top_k);
        cost.routed = Some(RoutedWeights { experts: count, top_k, ep, dp, expert_bytes });
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::{plan, spec};
    use crate::*;

    #[test]
    fn costs_are_those_of_the_arithmetic() {
        let plan = plan("standard", 2, 2);
        let step = Step::decode(3, 10, 0); // 3 rows, context 11
        let cost = |name: &str| plan.operations[plan.find(name).unwrap().index()].cost;
        // down: 24 of 48 inputs, 32 outputs, bf16
        let down = cost("L1/mlp/down");
        assert_eq!(down.flops.at(&step), 2 * 3 * 24 * 32);
        assert_eq!(down.bytes_read.at(&step), 2 * (24 * 32 + 3 * 24));
        assert_eq!(down.bytes_written.at(&step), 2 * 3 * 32);
        // attention: 4 query and 2 KV heads of width 8 a rank
        let attend = cost("L0/attn/attend");
        assert_eq!(attend.flops.at(&step), 3 * 11 * 4 * (4 * 8 + 5));
        assert_eq!(attend.bytes_read.at(&step), 2 * 3 * 32 + 2 * (3 * 11) * 2 * 2 * 8);
        // the message of an all-reduce is the residual
        assert_eq!(cost("L0/attn/all_reduce").message_bytes.at(&step), 2 * 3 * 32);
        // causal prefill: 1 + 2 + ... + 10 pairs a sequence
        assert_eq!(Step::prefill(3, 10).pairs(), 3 * 55);
    }

    #[test]
    fn fp8_weights_are_a_byte_a_number_and_a_scale_an_output() {
        let plan = |tied| {
            let mut spec = spec(&Architecture::Standard, 2, 2, Phase::Decode);
            spec.shape.tied_embeddings = tied;
            spec.precision = Precision::gpu(DType::Fp8);
            (Plan::new(&spec).unwrap(), spec)
        };
        let step = Step::decode(3, 10, 0);
        let read = |plan: &Plan, name: &str| {
            plan.operations[plan.find(name).unwrap().index()].cost.bytes_read.at(&step)
        };
        let (own, spec) = plan(false);
        // activations stay bf16
        assert_eq!(read(&own, "L1/mlp/down"), 24 * 32 + 4 * 32 + 2 * 3 * 24);
        assert_eq!(read(&own, "head/logits"), 64 * 32 + 4 * 64 + 2 * 3 * 32);
        // embedding and norms too
        assert_eq!(read(&own, "embed/tokens"), 3 * (4 + 2 * 32));
        assert_eq!(read(&own, "L0/attn/norm"), 2 * 32 + 2 * 3 * 32);
        let (tied, of_tied) = plan(true);
        assert_eq!(read(&tied, "head/logits"), 2 * 64 * 32 + 2 * 3 * 32);
        // of a rank: 32 numbers of each of 5 norms, 64 rows of the embedding, and of each layer four matrices
        let layer = (64 + 2 * 32) / 2 * 32 + 32 * 32 + 96 / 2 * 32 + 32 * 24;
        let scales = 4 * ((64 + 2 * 32) / 2 + 32 + 96 / 2 + 32);
        let rest = 2 * (5 * 32 + 64 * 32);
        let bytes = |plan: &Plan, spec: &PlanSpec| plan.weight_bytes(spec.precision, &spec.shape);
        assert_eq!(bytes(&own, &spec), 2 * (layer + scales) + rest + 64 * 32 + 4 * 64);
        assert_eq!(bytes(&tied, &of_tied), 2 * (layer + scales) + rest + 2 * 64 * 32);
    }

    #[test]
    fn weights_in_blocks_and_in_4_bits_have_their_scales_beside_them_and_leave_the_head() {
        let own = |dtype: DType| {
            let mut spec = spec(&Architecture::Standard, 2, 2, Phase::Decode);
            spec.precision = Precision::gpu(dtype);
            (Plan::new(&spec).unwrap(), spec)
        };
        let step = Step::decode(3, 10, 0);
        // down: 32 outputs of 24 inputs a rank
        for (dtype, down) in [
            (DType::Fp8Block, 24 * 32 + 4),
            (DType::Nvfp4, 24 * 32 / 2 + 2 * 32 + 4),
            (DType::Mxfp4, 24 * 32 / 2 + 32),
        ] {
            let (plan, spec) = own(dtype);
            let read =
                |name: &str| plan.operations[plan.find(name).unwrap().index()].cost.bytes_read.at(&step);
            assert_eq!(read("L1/mlp/down"), down + 2 * 3 * 24, "{dtype}");
            // head, embedding and activations are bf16
            assert_eq!(read("head/logits"), 2 * 64 * 32 + 2 * 3 * 32, "{dtype}");
            let weight = &plan.weights
                [plan.operations[plan.find("L1/mlp/down").unwrap().index()].weight.unwrap().index()];
            assert_eq!(spec.precision.weight_bytes(weight, &spec.shape), down, "{dtype}");
        }
        // blocks at the edge have scales too
        assert_eq!(DType::Fp8Block.matrix_bytes(256, 384), 256 * 384 + 4 * 2 * 3);
        assert_eq!(DType::Fp8Block.matrix_bytes(129, 128), 129 * 128 + 4 * 2);
    }

    #[test]
    fn an_fp8_cache_halves_what_attention_reads_and_is_written() {
        let mut spec = spec(&Architecture::Standard, 2, 2, Phase::Decode);
        let plain = Plan::new(&spec).unwrap();
        spec.precision = spec.precision.with_kv(KvDType::Fp8);
        let eight = Plan::new(&spec).unwrap();
        let step = Step::decode(3, 10, 0);
        let cost = |plan: &Plan, name: &str| plan.operations[plan.find(name).unwrap().index()].cost;
        // 2 KV heads of width 8 a rank, 11 tokens of each of 3 sequences
        let read = |plan: &Plan| cost(plan, "L0/attn/attend").bytes_read.at(&step);
        assert_eq!(read(&plain) - read(&eight), (3 * 11) * 2 * 2 * 8);
        let written = |plan: &Plan| cost(plan, "L0/attn/rope").bytes_written.at(&step);
        assert_eq!(written(&plain) - written(&eight), 3 * 2 * 2 * 8);
    }

    #[test]
    fn fusing_saves_the_second_read_of_the_sum() {
        let mut spec = spec(&Architecture::Ladder(LayerSet::All), 3, 2, Phase::Decode);
        let plain = Plan::new(&spec).unwrap();
        spec.lowering.fuse_add_norm = true;
        let fused = Plan::new(&spec).unwrap();
        let step = Step::decode(1, 8, 0);
        let bytes = |plan: &Plan| -> u64 {
            plan.operations
                .iter()
                .map(|o| o.cost.bytes_read.at(&step) + o.cost.bytes_written.at(&step))
                .sum()
        };
        let pairs = plain.operations.len() - fused.operations.len();
        assert!(pairs > 0);
        assert_eq!(bytes(&plain) - bytes(&fused), pairs as u64 * 2 * 32);
        let flops =
            |plan: &Plan| -> u64 { plan.operations.iter().map(|o| o.cost.flops.at(&step)).sum() };
        assert_eq!(flops(&plain), flops(&fused));
    }
}
